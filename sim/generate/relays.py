# SPDX-License-Identifier: Apache-2.0
"""Add relays: a stream whose messages one or two relays publish again on other channels.

The processes of the relays are killed between two messages, in the middle of a message's relaying
and while they are idle. Sometimes a relay has a host of its own. The daemon of this host dies and
is followed by another one, or the host dies with all its applications and comes back. Sometimes the
publisher has a policy that drops messages. Sometimes a second relay leads back to the source of the
first one. A separate random generator draws the relays, so the rest of a seed's scenario is the
same as without them.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw, refuses_datagrams
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    RelayScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

#: Stream that a publisher sends; the relays' streams follow.
STREAM: Final = 1450
_PORT: Final = 44600     # misfits send from ports above 45000
_GROUP: Final = "239.20.9"


@attrs.frozen
class _Hop:
    """A stream from one host to another, or within a host: the channels of both ends."""

    medium: str
    out: str
    inward: str


class _Relays(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"relays {seed}"), 0.34, set(scenario.classes))
        self.scenario = scenario
        #: The last reader stops for so long that the first publisher has to wait.
        self.pressed = self.rng.random() < 0.6
        #: A host that has only relays and their readers, and the way it dies; "": there is none.
        self.dying = scenario.hosts
        self.fate = self.rng.choice(["", "", "daemon", "host"])

    def _runs_through(self, host: int) -> bool:
        """Return whether the host keeps its streams, and has room for the events of more streams. A
        host keeps its streams if it never dies, or if only its daemon dies."""
        return all(
            (each.crash_ns is None or each.adopt) and each.budget_bytes is None
            and not {"governor", "event_capacity"} & set(dict(each.driver))
            for each in self.scenario.machines if each.host == host
        )

    def _hop(self, number: int, sender: int, receiver: int, medium: str) -> _Hop:
        port = _PORT + 10 * number
        endpoint = f"endpoint={host_ip(receiver)}:{port}"
        control = f"control={host_ip(sender)}:{port + 1}|control-mode=dynamic"
        out, inward = {
            "ipc": ("aeron:ipc?", "aeron:ipc"),
            "unicast": (f"aeron:udp?{endpoint}|", f"aeron:udp?{endpoint}"),
            "spy": (f"aeron:udp?{endpoint}|", f"aeron-spy:aeron:udp?{endpoint}"),
            "multicast": 2 * (
                f"aeron:udp?endpoint={_GROUP}.{2 * number + 1}:{port}|interface=10.0.0.0/24",
            ),
            "mdc": (f"aeron:udp?{control}|", f"aeron:udp?{endpoint}|{control}"),
        }[medium]
        if medium in ("multicast", "mdc"):
            out = f"{out.rstrip('|')}|fc=min|"
        if self.pressed and medium not in ("ipc", "spy"):
            inward += "|rcv-wnd=32k"
        return _Hop(medium, out, inward)

    def _medium(self, sender: int, receiver: int) -> str:
        if sender == receiver:
            return "ipc"
        medium = self.rng.choice(["unicast", "unicast", "multicast", "mdc"])
        refuses = medium == "mdc" and refuses_datagrams(self.scenario, sender)
        return "unicast" if refuses else medium

    def _relay(self, number: int, host: int, source: _Hop, target: _Hop, count: int) -> RelayScript:
        rng = self.rng
        script = RelayScript(
            host=host, source=source.inward, source_stream=STREAM + number,
            target=f"{target.out}term-length={rng.choice(['64k', '64k', '256k'])}",
            target_stream=STREAM + number + 1,
            start_ns=rng.choice([0, 0, rng.randrange(SECOND_NS)]),
            interval_ns=rng.choice([0, 0, 200_000, MS_NS]),
            may_join_late=source.medium in ("multicast", "mdc", "spy") or (
                host == self.dying and self.fate == "host"
            ),
        )
        if rng.random() < 0.6:
            self.classes.add("relay: killed")
            points = rng.sample(range(2 * count), min(rng.choice([1, 2, 4]), count))
            idle = [SECOND_NS + rng.randrange(2 * SECOND_NS)] if rng.random() < 0.5 else []
            script = attrs.evolve(
                script, kill_points=tuple(sorted(points)), kills=tuple(idle),
                restart_ns=rng.choice([10, 300, 2000]) * MS_NS,
            )
        return script

    def _path(self, hosts: list[int]) -> list[int]:
        """Draw the hosts of the publisher, of the relays and of the last reader."""
        rng = self.rng
        others = hosts[1:]
        path = [0, rng.choice(hosts), rng.choice(hosts)]
        if rng.random() < 0.4:
            self.classes.add("relay: two")
            path.append(rng.choice(hosts))
        elif others and self.fate != "host" and rng.random() < 0.5:
            self.classes.add("relay: circle")
            path[1:] = [rng.choice(others), rng.choice(hosts)]
        if self.fate:
            at = rng.randrange(1, len(path) - 1)
            path[at] = self.dying
            # The next process of the path, which is a reader or another relay, may be there too.
            if rng.random() < 0.3:
                path[at + 1] = self.dying
        return path

    def _die(self, start_ns: int) -> None:
        """Add the host of relays that dies after the publisher has begun."""
        rng = self.rng
        self.classes.add(f"relay: {self.fate} dies")
        crash = start_ns + rng.choice([5, 50, 500, 1500]) * MS_NS + rng.randrange(SECOND_NS // 2)
        machine = HostScript(
            host=self.dying, adopt=self.fate == "daemon", crash_ns=crash,
            restart_ns=crash + rng.choice([10, 300, 2000]) * MS_NS,
        )
        self.scenario = attrs.evolve(
            self.scenario, hosts=self.scenario.hosts + 1,
            machines=(*self.scenario.machines, machine),
        )

    def _policy(self) -> str:
        """Draw a policy of the publisher that drops messages or limits the rate, or none."""
        rng = self.rng
        policy = rng.choice(["", "drop_newest", "drop_oldest", "rate_limit"])
        if not policy:
            return ""
        self.classes.add(f"relay: {policy}")
        options = f"|ps-policy={policy}"
        if policy == "rate_limit":
            return f"{options}|ps-rate={rng.choice(['256k', '1000msg'])}"
        return options + rng.choice(["", "|ps-depth=8k", "|ps-depth=16k", "|ps-depth=20msg"])

    def _publisher(self, hop: _Hop) -> PublisherScript:
        rng = self.rng
        policy = self._policy()
        sizes = [(1344, 1344), (100, 5000)]
        low, high = rng.choice(sizes if self.pressed else [(0, 40), (1, 1000), *sizes])
        interval_ns = rng.choice([0, 0 if self.pressed else 2 * MS_NS, 200_000])
        if "ps-policy=drop" in policy:
            low, interval_ns = max(low, 20), max(interval_ns, 200_000)
        return PublisherScript(
            host=0, channel=f"{hop.out}term-length=64k{policy}", stream_id=STREAM,
            count=300 if self.pressed else rng.choice([40, 300]), size_low=low, size_high=high,
            start_ns=rng.choice([0, SECOND_NS]), interval_ns=interval_ns,
            exclusive=rng.random() < 0.5, reserved=True,
        )

    def _last_reader(self, host: int, number: int, hop: _Hop) -> SubscriberScript:
        """The reader behind all relays."""
        rng = self.rng
        late = hop.medium in ("multicast", "mdc") or (host == self.dying and self.fate == "host")
        begin = rng.choice([0, SECOND_NS]) + rng.randrange(SECOND_NS // 10)
        pauses: tuple[tuple[int, int], ...] = ()
        if self.pressed:
            self.classes.add("relay: pressed")
            pauses = ((begin, begin + rng.choice([2000, 4000]) * MS_NS),)
        return SubscriberScript(
            host=host, channel=hop.inward, stream_id=STREAM + number,
            poll_limit=rng.choice([1, 10, 64]), interval_ns=rng.choice([0, 0, MS_NS]),
            may_join_late=late, may_miss=late, pauses=pauses,
        )

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add a relayed stream."""
        hosts = [host for host in range(self.scenario.hosts) if self._runs_through(host)]
        if 0 not in hosts or not self.chance("relay"):
            return self.scenario
        rng = self.rng
        path = self._path(hosts)
        hops = [
            self._hop(number, sender, receiver, self._medium(sender, receiver))
            for number, (sender, receiver) in enumerate(itertools.pairwise(path))
        ]
        circle = "relay: circle" in self.classes
        if circle:
            hops[0] = self._hop(0, path[0], path[1], "unicast")
        readers: list[SubscriberScript] = []
        if hops[0].medium == "ipc" and len(hosts) > 1 and rng.random() < 0.5:
            at = rng.choice(hosts[1:])
            hops[0] = self._hop(0, 0, at, "spy")
            readers.append(
                SubscriberScript(host=at, channel=self._hop(0, 0, at, "unicast").inward,
                                 stream_id=STREAM, poll_limit=rng.choice([1, 64]))
            )
        self.classes |= {f"relay: {hop.medium}" for hop in hops}
        publisher = self._publisher(hops[0])
        if "ps-policy=drop" in publisher.channel:
            # The simulator then permits gaps.
            readers = [
                attrs.evolve(each, channel=f"{each.channel}|ps-policy=drop_oldest", may_miss=True)
                for each in readers
            ]
        relays = [
            self._relay(number, host, hops[number], hops[number + 1], publisher.count)
            for number, host in enumerate(path[1:-1])
        ]
        if circle:
            relays.append(
                RelayScript(
                    host=path[2], source=hops[1].inward, source_stream=STREAM + 1,
                    target=f"{hops[0].out}term-length=256k", target_stream=STREAM,
                    circle=True, may_join_late=True,
                )
            )
        if self.fate:
            self._die(publisher.start_ns)
        readers.append(self._last_reader(path[-1], len(path) - 2, hops[-1]))
        return attrs.evolve(
            self.scenario, publishers=(*self.scenario.publishers, publisher),
            relays=(*self.scenario.relays, *relays),
            subscribers=(*self.scenario.subscribers, *readers),
            classes=tuple(sorted(self.classes)),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the relays that the seed determines."""
    return _Relays(scenario, seed).add()
