# SPDX-License-Identifier: Apache-2.0
"""Make scenarios from a seed: topologies, loads and faults. Every fault ends, so all data must
arrive before the run ends.

The probability of each feature is not the same in all scenarios: the seed chooses it, so that rare
combinations of features occur (swarm testing). The field ``classes`` of a scenario contains the
names of its features.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from penstock.sim.core import Link
from penstock.sim.generate import (
    claims,
    fan,
    faults,
    features,
    isolated,
    killed,
    load,
    oldest,
    pools,
    refusals,
    relays,
    retention,
    rules,
)
from penstock.sim.generate.draw import CERTAIN_PPM, FAULTS_END_NS, Draw
from penstock.sim.scenario import (
    CYCLE_NS,
    MS_NS,
    SECOND_NS,
    Drop,
    HostScript,
    LinkRule,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

_LIMIT_NS: Final = 3000 * SECOND_NS


class _Maker(Draw):
    """Draws one scenario."""

    def __init__(self, seed: int) -> None:
        # Weights, kinds and strategies go round with the seeds: the first few meet each of them.
        weight = (0.3, 0.6, 0.1)[seed % 3]
        super().__init__(random.Random(f"scenario {seed}"), weight, set())
        self.link = Link()
        self.rules: list[LinkRule] = []
        self.drops: list[Drop] = []
        self.machines: dict[int, HostScript] = {}
        self.publishers: list[PublisherScript] = []
        self.subscribers: list[SubscriberScript] = []
        self.seed = seed
        self.hosts = self.rng.choice([2, 2, 2, 3, 3, 4, 5])

    # ---- links ----

    def make_link(self) -> None:
        rng = self.rng
        fields: dict[str, Any] = {
            "delay_ns": rng.choice([10_000, 100_000, MS_NS, 5 * MS_NS, 50 * MS_NS])
        }
        if self.chance("loss"):
            fields["loss_ppm"] = rng.choice([100, 1_000, 10_000, 50_000, 150_000])
        if self.chance("bursts"):
            fields["burst_enter_ppm"] = rng.choice([100, 1_000, 5_000])
            # A burst is counted in datagrams: a long one would outlast liveness on a quiet link.
            fields["burst_leave_ppm"] = rng.choice([200_000, 500_000])
            fields["burst_loss_ppm"] = rng.choice([300_000, CERTAIN_PPM])
        if self.chance("jitter"):
            fields["jitter_ns"] = rng.choice([10_000, MS_NS, 5 * MS_NS])
        if self.chance("reordering"):
            fields["reorder_ppm"] = rng.choice([1_000, 50_000])
            fields["reorder_ns"] = rng.choice([100_000, 3 * MS_NS])
        if self.chance("duplication"):
            fields["duplicate_ppm"] = rng.choice([1_000, 100_000])
        if self.chance("corruption"):
            fields["corrupt_ppm"] = rng.choice([1_000, 20_000])
        if self.chance("narrow"):
            fields["bandwidth_bytes_per_s"] = rng.choice([1_250_000, 12_500_000])
            fields["queue_bytes"] = rng.choice([0, 20_000, 200_000])
        self.link = Link(**fields)

    def make_faults(self) -> None:
        rng = self.rng
        if self.chance("asymmetric"):
            slow = attrs.evolve(
                self.link, delay_ns=self.link.delay_ns * 4 + MS_NS, loss_ppm=rng.choice([0, 30_000])
            )
            self.rules.append(LinkRule(sender=rng.randrange(1, self.hosts), receiver=0, link=slow))
        for _ in range(rng.randrange(3)):
            if self.chance("partition"):
                start = rng.randrange(FAULTS_END_NS - SECOND_NS)
                self.rules.append(
                    LinkRule(
                        sender=0,
                        receiver=rng.randrange(1, self.hosts),
                        both=rng.random() < 0.5,
                        link=attrs.evolve(self.link, loss_ppm=CERTAIN_PPM),
                        from_ns=start,
                        until_ns=start + rng.choice([20, 300, 1500]) * MS_NS,
                    )
                )
        if self.chance("scripted loss"):
            numbers = tuple(sorted({rng.randrange(60) for _ in range(rng.randrange(1, 20))}))
            forth = rng.random() < 0.7
            other = rng.randrange(1, self.hosts)
            self.drops.append(
                Drop(
                    sender=0 if forth else other, receiver=other if forth else 0, numbers=numbers
                )
            )

    def make_machines(self) -> None:
        rng = self.rng
        for host in range(self.hosts):
            script = HostScript(host=host)
            if self.chance("slow machine"):
                script = attrs.evolve(script, cycle_ns=rng.choice([20_000, MS_NS, 5 * MS_NS]))
            if self.chance("small window"):
                script = attrs.evolve(script, window_bytes=rng.choice([4096, 16384, 65536]))
            if self.chance("small buffer"):
                script = attrs.evolve(script, rcvbuf_bytes=rng.choice([8192, 32768]))
            if self.chance("few gaps"):
                script = attrs.evolve(script, max_gaps=rng.choice([4, 8, 16]))
            if self.chance("other timers"):
                script = attrs.evolve(script, driver=(
                    ("retransmit_delay_ns", rng.choice([0, 3 * MS_NS])),
                    ("nak_unicast_delay_ns", rng.choice([1000, 100_000, 2 * MS_NS])),
                    ("nak_multicast_group_size", rng.choice([2, 10, 100])),
                    ("status_message_timeout_ns", rng.choice([100, 200, 400]) * MS_NS),
                ))
            if script != HostScript(host=host):
                self.machines[host] = script

    # ---- streams ----

    def make_stream(self, number: int) -> None:
        rng = self.rng
        kinds = ("unicast", "multicast", "ipc", "mdc", "unicast")
        kind = kinds[self.seed % 5] if number == 0 else rng.choice(kinds)
        self.classes.add(kind)
        port = 40456 + 10 * number
        term = rng.choice(["64k", "64k", "128k", "1m"])
        receivers = [rng.randrange(1, self.hosts)]
        if kind == "ipc":
            receivers = [0]
            out = inward = "aeron:ipc"
        elif kind == "unicast":
            out = inward = f"aeron:udp?endpoint={host_ip(receivers[0])}:{port}"
        elif kind == "multicast":
            receivers = list(range(1, self.hosts))
            group = f"239.20.0.{2 * number + 1}:{port}"
            out = inward = f"aeron:udp?endpoint={group}|interface=10.0.0.0/24"
        else:
            receivers = list(range(1, self.hosts))
            control = f"control={host_ip(0)}:{port}|control-mode=dynamic"
            out, inward = f"aeron:udp?{control}", f"aeron:udp?endpoint={{}}:{port + 1}|{control}"
        out = _with(out, f"term-length={term}")
        if kind in ("multicast", "mdc") and self.seed % 4 > 0:
            strategies = ("min", "nak", "min,t:2s", "min,g:/1")
            others = ("nak", "min", "min")
            strategy = (strategies[self.seed // 4 % 4] if number == 0
                        else others[self.seed // 16 % 3])
            self.classes.add(f"fc={strategy[:3]}")
            out = _with(out, f"fc={strategy}")
        pressed = "fc=nak" in out and rng.random() < 0.7
        if kind in ("unicast", "multicast") and self.chance("cubic"):
            inward = _with(inward, "cc=cubic")
        if self.chance("rate"):
            out = _with(out, f"ps-rate={rng.choice(['256k', '2m', '1000msg'])}")
        if kind != "mdc" and self.chance("untethered"):
            inward = _with(
                inward, "tether=false|untethered-window-limit-timeout=300ms"
                "|untethered-linger-timeout=200ms|untethered-resting-timeout=400ms"
            )
        if kind != "ipc" and self.chance("small mtu"):
            out = _with(out, f"mtu={rng.choice([256, 576])}")
        self._publish(number, out)
        for host in receivers:
            self._subscribe(number, inward.format(host_ip(host)), host, kind)
        if pressed:
            self._press(len(receivers))

    def _publish(self, number: int, channel: str) -> None:
        rng = self.rng
        low, high = rng.choice([(0, 40), (1, 1000), (1344, 1344), (100, 5000), (8000, 8000)])
        paced = rng.random() < 0.5
        pauses: tuple[tuple[int, int], ...] = ()
        if self.chance("paused publisher"):
            start = rng.randrange(3 * SECOND_NS)
            pauses = ((start, start + rng.choice([200, 2000]) * MS_NS),)
        self.publishers.append(
            PublisherScript(
                host=0,
                channel=channel,
                stream_id=1000 + number,
                count=rng.choice([1, 20, 300, 300, 1500]),
                size_low=low,
                size_high=high,
                open_ns=rng.choice([0, 0, rng.randrange(SECOND_NS)]),
                start_ns=rng.choice([0, SECOND_NS]),
                interval_ns=rng.choice([10_000, 200_000, 5 * MS_NS]) if paced else 0,
                exclusive=rng.random() < 0.5,
                pauses=pauses,
            )
        )

    def _subscribe(self, number: int, channel: str, host: int, kind: str) -> None:
        rng = self.rng
        pauses: tuple[tuple[int, int], ...] = ()
        interval_ns = 0
        poll_limit = 64
        lossy = "tether=false" in channel
        if self.chance("paused subscriber"):
            start = rng.randrange(3 * SECOND_NS)
            pauses = ((start, start + rng.choice([100, 1000, 3000, 12_000]) * MS_NS),)
        if self.chance("slow subscriber"):
            poll_limit = rng.choice([1, 10])
            interval_ns = rng.choice([100_000, MS_NS])
        script = SubscriberScript(
            host=host,
            channel=channel,
            stream_id=1000 + number,
            start_ns=rng.choice([0, 0, rng.randrange(SECOND_NS)]),
            may_join_late=kind in ("multicast", "mdc") or lossy,
            may_miss=kind in ("multicast", "mdc") or lossy,
            poll_limit=poll_limit,
            interval_ns=interval_ns,
            pauses=pauses,
        )
        if self.chance("subscriber dies"):
            crash = rng.randrange(SECOND_NS, 4 * SECOND_NS)
            script = attrs.evolve(
                script, crash_ns=crash, restart_ns=crash + rng.choice([100, 3000]) * MS_NS,
                may_join_late=True, may_miss=True,
            )
        self.subscribers.append(script)

    def _patience_ns(self, publisher: PublisherScript) -> int:
        """On a path that loses much, cubic stays at its least window: one of its two datagrams a
        round trip, repairs counted.  What each of a group loses holds all of them."""
        readers = [s for s in self.subscribers if s.stream_id == publisher.stream_id]
        if not any("cc=cubic" in reader.channel for reader in readers):
            return 0
        payload = 256 - 32 if "mtu=256" in publisher.channel else 576 - 32
        datagrams = publisher.count * (publisher.size_high // payload + 1)
        ways = [self.link, *(rule.link for rule in self.rules)]
        round_trip_ns = 2 * max(way.delay_ns + way.jitter_ns for way in ways)
        return datagrams * round_trip_ns * len(readers)

    def _press(self, receivers: int) -> None:
        """Make the last stream faster than one of its readers, for seconds."""
        rng = self.rng
        self.classes.add("pressed")
        low, high = rng.choice([(500, 1000), (1344, 1344), (100, 3000)])
        self.publishers[-1] = attrs.evolve(
            self.publishers[-1], size_low=low, size_high=high, count=rng.choice([800, 2000]),
            interval_ns=rng.choice([0, 10_000, 200_000]),
        )
        at = len(self.subscribers) - 1 - rng.randrange(receivers)
        self.subscribers[at] = attrs.evolve(
            self.subscribers[at], poll_limit=rng.choice([1, 2, 10]),
            interval_ns=rng.choice([300_000, MS_NS, 3 * MS_NS]),
        )

    def make(self, seed: int) -> Scenario:
        self.make_link()
        for number in range(self.rng.choice([1, 1, 1, 2, 3])):
            self.make_stream(number)
        self.make_faults()
        self.make_machines()
        if self.chance("host dies"):
            host = self.rng.randrange(1, self.hosts)
            script = self.machines.get(host, HostScript(host=host))
            crash = self.rng.randrange(SECOND_NS, 4 * SECOND_NS)
            self.machines[host] = attrs.evolve(
                script, crash_ns=crash, restart_ns=crash + self.rng.choice([10, 2000]) * MS_NS
            )
            self.subscribers = [
                attrs.evolve(s, may_join_late=True, may_miss=True) if s.host == host else s
                for s in self.subscribers
            ]
        if self.chance("daemon dies"):
            host = self.rng.randrange(self.hosts)
            script = self.machines.get(host, HostScript(host=host))
            if script.crash_ns is None:
                crash = self.rng.randrange(SECOND_NS, 4 * SECOND_NS)
                self.machines[host] = attrs.evolve(
                    script, adopt=True, crash_ns=crash,
                    restart_ns=crash + self.rng.choice([10, 300, 2000]) * MS_NS,
                )
        if self.rng.random() < 0.5:
            self.classes.add("one stream" if len(self.publishers) == 1 else "several streams")
        return Scenario(
            name=f"fuzz-{seed}",
            link=self.link,
            hosts=self.hosts,
            machines=tuple(self.machines[host] for host in sorted(self.machines)),
            links=tuple(self.rules),
            drops=tuple(self.drops),
            publishers=tuple(self.publishers),
            subscribers=tuple(self.subscribers),
            limit_ns=max(_LIMIT_NS, *(self._patience_ns(p) for p in self.publishers)),
            classes=tuple(sorted(self.classes)),
        )


def _with(channel: str, option: str) -> str:
    return f"{channel}{'|' if '?' in channel else '?'}{option}"


def generate(seed: int, *, plain: bool = False) -> Scenario:
    """Return the scenario of a seed. If ``plain`` is true, omit all faults, features and streams
    that the other modules of this folder would add."""
    scenario = _Maker(seed).make(seed)
    if plain:
        return scenario
    scenario = rules.add(features.add(faults.add(scenario, seed), seed), seed)
    scenario = features.add_python_spies(scenario, seed)
    scenario = retention.add(isolated.add(scenario, seed), seed)
    scenario = oldest.add(load.add(pools.add(scenario, seed), seed), seed)
    scenario = relays.add(fan.add(scenario, seed), seed)
    return claims.add(killed.add(refusals.add(scenario, seed), seed), seed)


# ---- making a failing scenario smaller -----------------------------------------------------------


def simpler(scenario: Scenario) -> list[Scenario]:
    """Return variants of a scenario, each of which is simpler in one respect. The variants with the
    largest simplification come first."""
    found = []
    for name in ("publishers", "subscribers", "relays", "links", "drops", "machines"):
        items = getattr(scenario, name)
        for index in range(len(items)):
            if len(items) > 1 or name not in ("publishers", "subscribers"):
                rest = items[:index] + items[index + 1 :]
                found.append(attrs.evolve(scenario, **{name: rest}))
    plain = Link()
    for field in attrs.fields(Link):
        if getattr(scenario.link, field.name) != getattr(plain, field.name):
            link = attrs.evolve(scenario.link, **{field.name: getattr(plain, field.name)})
            found.append(attrs.evolve(scenario, link=link))
    for index, publisher in enumerate(scenario.publishers):
        calmer = []
        if publisher.count > 1:
            calmer.append(attrs.evolve(publisher, count=publisher.count // 2))
            calmer.append(attrs.evolve(publisher, count=publisher.count - 1))
        if publisher.pauses:
            calmer.append(attrs.evolve(publisher, pauses=()))
        for one in calmer:
            others = list(scenario.publishers)
            others[index] = one
            found.append(attrs.evolve(scenario, publishers=tuple(others)))
    for index, subscriber in enumerate(scenario.subscribers):
        calm = attrs.evolve(
            subscriber, pauses=(), interval_ns=0, poll_limit=64, crash_ns=None, restart_ns=None
        )
        if calm != subscriber:
            listed = list(scenario.subscribers)
            listed[index] = calm
            found.append(attrs.evolve(scenario, subscribers=tuple(listed)))
    for index, relay in enumerate(scenario.relays):
        lasting = attrs.evolve(relay, pauses=(), interval_ns=0, kills=(), kill_points=())
        if lasting != relay:
            relays_left = list(scenario.relays)
            relays_left[index] = lasting
            found.append(attrs.evolve(scenario, relays=tuple(relays_left)))
    for index, machine in enumerate(scenario.machines):
        plainer = (
            attrs.evolve(machine, cycle_ns=CYCLE_NS),
            attrs.evolve(machine, window_bytes=None),
            attrs.evolve(machine, rcvbuf_bytes=None),
            attrs.evolve(machine, max_gaps=None),
            attrs.evolve(machine, full=()),
            attrs.evolve(machine, short_send_ppm=0),
            attrs.evolve(machine, idle_ns=0),
        )
        for plain_machine in plainer:
            if plain_machine != machine:
                machines = list(scenario.machines)
                machines[index] = plain_machine
                found.append(attrs.evolve(scenario, machines=tuple(machines)))
    return [candidate for candidate in found if _is_whole(candidate)]


def _is_whole(scenario: Scenario) -> bool:
    """Return whether every stream has a publisher or relay, and a subscriber or relay."""
    published = {publisher.stream_id for publisher in scenario.publishers}
    published |= {relay.target_stream for relay in scenario.relays}
    read = {subscriber.stream_id for subscriber in scenario.subscribers}
    return published == read | {relay.source_stream for relay in scenario.relays}
