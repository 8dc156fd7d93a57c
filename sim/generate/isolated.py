# SPDX-License-Identifier: Apache-2.0
"""Add a stream with *isolated readers*. An isolated reader has a ``ps-sub-policy``: the stream does
not wait for this reader when the reader is behind.

Isolated readers stop reading for a while; another reader of the same stream must get every message.
Exception: if the stream uses MDC or NAK-strength control, this other reader may also join late and
miss messages. With some seeds, a daemon dies and a new daemon adopts its streams. With other seeds,
a receiver that behaves like Aeron's receiver joins the group. A separate random generator draws
this stream, so adding it does not change the seed's other streams. If the seed lets a daemon die,
however, this death affects the other streams too.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    MisfitScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

STREAM: Final = 1700
_PORT: Final = 43000
_POLICIES: Final = ("independent", "drop_oldest")


class _Isolated(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"isolated {seed}"), 0.42, set(scenario.classes))
        self.scenario = scenario
        self.plain = random.Random(f"isolated with plain {seed}")

    def _machine(self, host: int) -> HostScript:
        machines = {machine.host: machine for machine in self.scenario.machines}
        return machines.get(host, HostScript(host=host))

    def _is_steady(self, host: int) -> bool:
        """Return whether the log of the host's daemon survives: the daemon never dies, or it is
        adopted. A reader that must miss nothing needs the log."""
        machine = self._machine(host)
        return machine.crash_ns is None or machine.adopt

    def _kill(self, host: int) -> None:
        """Let the daemon of the host die and be adopted while readers are behind, unless it dies
        already or applications of the host have times that a death prolongs."""
        timed = {p.host for p in self.scenario.publishers if p.blocked_ns is not None}
        timed |= {s.host for s in self.scenario.subscribers if s.latency_ns is not None}
        if host in timed or self._machine(host).crash_ns is not None:
            return
        self.classes.add("isolated: adoption")
        crash = SECOND_NS + self.rng.randrange(2 * SECOND_NS)
        dying = attrs.evolve(
            self._machine(host), adopt=True, crash_ns=crash,
            restart_ns=crash + self.rng.choice([10, 300]) * MS_NS,
        )
        others = [machine for machine in self.scenario.machines if machine.host != host]
        machines = tuple(sorted([*others, dying], key=lambda machine: machine.host))
        self.scenario = attrs.evolve(self.scenario, machines=machines)

    def _refuse_nothing(self, host: int) -> None:
        """Let the sockets of the host accept every datagram: a sender of MDC repeats to all
        destinations a datagram that one did not accept, and no oracle expects that."""
        machine = self._machine(host)
        if machine.short_send_ppm == 0:
            return
        others = [other for other in self.scenario.machines if other.host != host]
        if not any(other.short_send_ppm for other in others):
            self.classes.discard("short sends")
        machines = [*others, attrs.evolve(machine, short_send_ppm=0)]
        self.scenario = attrs.evolve(
            self.scenario, machines=tuple(sorted(machines, key=lambda each: each.host))
        )

    def _plain(self, host: int) -> None:
        """Let a receiver without penstock's extensions join the group for a while."""
        self.classes.add("isolated: plain receiver")
        start = SECOND_NS + self.rng.randrange(SECOND_NS // 10)
        plain = MisfitScript(
            host=host, stream_id=STREAM, kind="plain", from_ns=start,
            until_ns=start + self.rng.choice([300, 1500]) * MS_NS, interval_ns=20 * MS_NS,
        )
        self.scenario = attrs.evolve(self.scenario, misfits=(*self.scenario.misfits, plain))

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the stream with isolated readers."""
        steady = [host for host in range(1, self.scenario.hosts) if self._is_steady(host)]
        if not steady or not self._is_steady(0) or not self.chance("isolated"):
            return self.scenario
        rng = self.rng
        host = rng.choice(steady)
        medium = rng.choice(["ipc", "network", "network", "spy", "mdc", "nak"])
        # A plain receiver joins a group with isolated readers in more than one seed of twenty. A
        # generator of its own keeps the other values of a seed.
        plain = medium == "network" and self.plain.random() < 0.3
        medium = "mdc" if plain else medium
        endpoint = f"aeron:udp?endpoint={host_ip(host)}:{_PORT}"
        control = f"control={host_ip(0)}:{_PORT}|control-mode=dynamic"
        out = inward = "aeron:ipc" if medium == "ipc" else endpoint
        if medium == "mdc":
            self._refuse_nothing(0)
            out, inward = f"aeron:udp?{control}|fc=min", f"{endpoint}|{control}"
            if plain or rng.random() < 0.5:
                self._plain(host)
        elif medium == "nak":
            out = f"{endpoint}|fc=nak"
        if rng.random() < 0.6:
            self._kill(rng.choice([0, host]))
        outward = [f"term-length={rng.choice(['64k', '64k', '128k'])}"]
        policy = rng.choice(["", "", "block", "error"])
        if policy:
            self.classes.add(f"policy: {policy}")
            outward.append(f"ps-policy={policy}")
        at = 0 if medium == "ipc" else host
        # A stated depth must fit into the window, which some machines make small.
        inward += "" if medium == "ipc" else "|rcv-wnd=32k"
        size = rng.choice([100, 992, 1344, 3000])
        publisher = PublisherScript(
            host=0, channel=f"{out}{'?' if medium == 'ipc' else '|'}{'|'.join(outward)}",
            stream_id=STREAM, count=600, size_low=size, size_high=size, start_ns=SECOND_NS,
            interval_ns=rng.choice([0, 200_000, MS_NS, 2 * MS_NS]),
            exclusive=rng.random() < 0.5,
        )
        waited_for = SubscriberScript(
            host=at, channel=inward, stream_id=STREAM,
            poll_limit=rng.choice([1, 64]), interval_ns=rng.choice([0, 0, MS_NS]),
            may_join_late=medium in ("mdc", "nak"), may_miss=medium in ("mdc", "nak"),
        )
        where = (0, f"aeron-spy:{endpoint}") if medium == "spy" else (at, inward)
        isolated = [self._isolated(*where) for _ in range(rng.choice([1, 1, 2]))]
        self.classes.add(f"isolated: {medium}")
        return attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, waited_for, *isolated),
            classes=tuple(sorted(self.classes)),
        )

    def _isolated(self, host: int, channel: str) -> SubscriberScript:
        rng = self.rng
        policy = rng.choice(_POLICIES)
        self.classes.add(f"isolated: {policy}")
        options = [f"ps-sub-policy={policy}"]
        depth = rng.choice(["", "2k", "8k"])
        options += [f"ps-sub-depth={depth}"] if depth else []
        start = SECOND_NS + rng.randrange(SECOND_NS // 2)
        slow = rng.random() < 0.4
        return SubscriberScript(
            host=host, channel=f"{channel}{'|' if '?' in channel else '?'}{'|'.join(options)}",
            stream_id=STREAM, may_miss=True,
            poll_limit=rng.choice([1, 2, 10]) if slow else 64,
            interval_ns=rng.choice([MS_NS, 5 * MS_NS]) if slow else 0,
            pauses=((start, start + rng.choice([20, 100, 700, 3000]) * MS_NS),),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream that the seed determines."""
    return _Isolated(scenario, seed).add()
