# SPDX-License-Identifier: Apache-2.0
"""Further features of the channels, applications and hosts in a generated scenario.

A separate random generator draws these features. The rest of a seed's scenario is therefore the
same as without these features.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.generate.faults import WITNESS_STREAM
from penstock.sim.scenario import (
    MISFITS,
    MS_NS,
    SECOND_NS,
    HostScript,
    MisfitScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)

#: Places of a timestamp: at the start, unaligned, beyond most messages, in the reserved value.
_PLACES: Final = ("0", "8", "27", "536", "1336", "reserved", "reserved")


def _with(channel: str, options: Sequence[str]) -> str:
    if not options:
        return channel
    return f"{channel}{'|' if '?' in channel else '?'}{'|'.join(options)}"


class _Features(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"features {seed}"), 0.1, set(scenario.classes))
        self.scenario = scenario

    def _streams(self, suits: Callable[[PublisherScript], bool]) -> list[int]:
        """Return the streams, except the witness, whose publishers all match."""
        streams = {p.stream_id for p in self.scenario.publishers} - {WITNESS_STREAM}
        unfit = {p.stream_id for p in self.scenario.publishers if not suits(p)}
        return sorted(streams - unfit)

    def _extend(
        self, stream_id: int, outward: Sequence[str] = (), inward: Sequence[str] = ()
    ) -> None:
        """Add options to all channels of a stream."""
        self.scenario = attrs.evolve(
            self.scenario,
            publishers=tuple(
                attrs.evolve(p, channel=_with(p.channel, outward))
                if p.stream_id == stream_id else p
                for p in self.scenario.publishers
            ),
            subscribers=tuple(
                attrs.evolve(s, channel=_with(s.channel, inward))
                if s.stream_id == stream_id else s
                for s in self.scenario.subscribers
            ),
        )

    # ---- channels with timestamps ----------------------------------------------------------------

    def timestamps(self) -> None:
        rng = self.rng
        for stream in self._streams(lambda p: p.channel.startswith("aeron:udp")):
            if not self.chance("timestamps"):
                continue
            media, read, sent = (rng.choice(_PLACES) for _ in range(3))
            inward = (
                *((f"media-rcv-ts-offset={media}",) if rng.random() < 0.6 else ()),
                *((f"channel-rcv-ts-offset={read}",) if rng.random() < 0.6 else ()),
            )
            outward = (f"channel-snd-ts-offset={sent}",) if rng.random() < 0.7 else ()
            self._extend(stream, outward, inward)


    # ---- strategies in Python --------------------------------------------------------------------

    def moods(self) -> None:
        """Let a stream use a Python strategy that sometimes fails."""
        for stream in self._streams(lambda p: p.channel.startswith("aeron:udp")
                                    and "fc=" not in p.channel):
            if self.chance("moody strategy"):
                self._extend(stream, ("fc=py:penstock.sim.strategies:Moody",))


    # ---- spies -----------------------------------------------------------------------------------

    def spies(self) -> None:
        """Add spies on the publisher's host. In some of these scenarios (``ssc=true``), the stream
        also advances while only spies are connected.
        """
        for stream in self._streams(lambda p: p.channel.startswith("aeron:udp")):
            if self.chance("spies"):
                self._spy(stream)

    def _spy(self, stream: int) -> None:
        rng = self.rng
        (publisher,) = (p for p in self.scenario.publishers if p.stream_id == stream)
        for _ in range(rng.choice([1, 1, 2])):
            slow = rng.random() < 0.4
            start = rng.randrange(2 * SECOND_NS)
            spy = SubscriberScript(
                host=publisher.host, channel=f"aeron-spy:{_address(publisher.channel)}",
                stream_id=stream, start_ns=rng.choice([0, 0, rng.randrange(SECOND_NS)]),
                may_join_late=True, poll_limit=rng.choice([1, 10]) if slow else 64,
                interval_ns=rng.choice([100_000, MS_NS]) if slow else 0,
                pauses=((start, start + rng.choice([50, 1500]) * MS_NS),)
                if rng.random() < 0.3 else (),
            )
            self.scenario = attrs.evolve(
                self.scenario, subscribers=(*self.scenario.subscribers, spy)
            )
        if rng.random() < 0.6:
            self.classes.add("ssc")
            self._stand_in(stream)

    def _stand_in(self, stream: int) -> None:
        """Let spies replace receivers; subscribers miss the data that passed meanwhile."""
        self._extend(stream, ("ssc=true",))
        self.scenario = attrs.evolve(self.scenario, subscribers=tuple(
            attrs.evolve(s, may_join_late=True, may_miss=True) if s.stream_id == stream else s
            for s in self.scenario.subscribers
        ))


    # ---- conductors ------------------------------------------------------------------------------

    def conductors(self) -> None:
        """Make some conductors slow, and some event rings small."""
        rng = self.rng
        machines = {machine.host: machine for machine in self.scenario.machines}
        for host in range(self.scenario.hosts):
            script = machines.get(host, HostScript(host=host))
            if self.chance("few events"):
                capacity = ("event_capacity", rng.choice([2, 2, 4]))
                script = attrs.evolve(script, driver=(*script.driver, capacity))
            full = "event_capacity" in dict(script.driver)
            if self.chance("slow conductor") or (full and rng.random() < 0.6):
                self.classes.add("slow conductor")
                script = attrs.evolve(script, conductor_ns=rng.choice([MS_NS, 5 * MS_NS]))
            if script != HostScript(host=host):
                machines[host] = script
        self.scenario = attrs.evolve(
            self.scenario,
            machines=tuple(machines[host] for host in sorted(machines)),
            # The first message of an image waits for the conductor that makes it available.
            subscribers=tuple(
                attrs.evolve(s, latency_ns=s.latency_ns + machines[s.host].conductor_ns)
                if s.latency_ns is not None and s.host in machines else s
                for s in self.scenario.subscribers
            ),
        )


class _Idle(Draw):
    """Streams that are idle for a while, on hosts that release their memory meanwhile. A separate
    generator keeps the other features of a seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"idle {seed}"), 0.25, set(scenario.classes))
        self.scenario = scenario

    def add(self) -> Scenario:
        if not self.chance("idle terms"):
            return self.scenario
        rng = self.rng
        machines = {machine.host: machine for machine in self.scenario.machines}
        for host in range(self.scenario.hosts):
            if rng.random() < 0.8:
                machines[host] = attrs.evolve(
                    machines.get(host, HostScript(host=host)),
                    idle_ns=rng.choice([5, 50, 200, 200, 1000]) * MS_NS,
                    small_term_bytes=rng.choice([None, 0, 0]),
                )
        return attrs.evolve(
            self.scenario,
            machines=tuple(machines[host] for host in sorted(machines)),
            publishers=tuple(map(self._rest, self.scenario.publishers)),
            classes=tuple(sorted(self.classes)),
        )

    def _rest(self, publisher: PublisherScript) -> PublisherScript:
        rng = self.rng
        if publisher.pauses or publisher.stream_id == WITNESS_STREAM or rng.random() < 0.3:
            return publisher
        pauses = []
        start = publisher.start_ns
        for _ in range(rng.choice([1, 2, 4])):
            start += rng.choice([5, 50, 400]) * MS_NS
            end = start + rng.choice([30, 400, 2500]) * MS_NS
            pauses.append((start, end))
            start = end
        return attrs.evolve(publisher, pauses=tuple(pauses))


class _Misfits(Draw):
    """Receivers that misbehave towards groups whose slowest receiver sets the pace. A separate
    generator keeps the other features of a seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"misfits {seed}"), 0.8, set(scenario.classes))
        self.scenario = scenario

    def add(self) -> Scenario:
        rng = self.rng
        groups = [p for p in self.scenario.publishers if "fc=min" in p.channel]
        if not groups or not self.chance("misfits"):
            return self.scenario
        stream = rng.choice(groups).stream_id
        found = []
        for kind in rng.sample(MISFITS, rng.choice([2, 3, 4])):
            self.classes.add(f"misfit: {kind}")
            start = rng.randrange(2 * SECOND_NS)
            found.append(MisfitScript(
                host=rng.randrange(1, self.scenario.hosts), stream_id=stream, kind=kind,
                from_ns=start, until_ns=start + rng.choice([2, 4, 12]) * SECOND_NS,
                interval_ns=rng.choice([50, 100, 200]) * MS_NS,
            ))
        return attrs.evolve(
            self.scenario, misfits=tuple(found), classes=tuple(sorted(self.classes))
        )


class _Windows(Draw):
    """Congestion controls in Python, drawn from a generator of their own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"windows {seed}"), 0.12, set(scenario.classes))
        self.scenario = scenario

    def add(self) -> Scenario:
        """Return the scenario with Python congestion control for some streams. The result of the
        Python congestion control may arrive late, or not at all.
        """
        for stream in sorted({p.stream_id for p in self.scenario.publishers} - {WITNESS_STREAM}):
            readers = [s for s in self.scenario.subscribers if s.stream_id == stream]
            plain = all(
                s.channel.startswith("aeron:ipc") is False and "cc=" not in s.channel
                for s in readers
            )
            if not plain or not self.chance("cc=py"):
                continue
            name = self.rng.choice(["Halver", "MoodyWindow", "MoodyWindow"])
            self.scenario = attrs.evolve(self.scenario, subscribers=tuple(
                attrs.evolve(
                    s, channel=f"{s.channel}|cc=py:penstock.sim.congestion:{name}"
                ) if s.stream_id == stream and s.channel.startswith("aeron:udp") else s
                for s in self.scenario.subscribers
            ))
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))


class _Policies(_Features):
    """Policies of publications, drawn from a generator of their own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.rng = random.Random(f"policies {seed}")
        self.counts = random.Random(f"depths in messages {seed}")
        self.more = random.Random(f"drop_newest {seed}")

    def add(self) -> Scenario:
        """Return the scenario; the publications of some streams get a ``ps-policy``, and perhaps a
        ``ps-depth`` and a ``ps-low-watermark``."""
        for stream in self._streams(lambda p: "ps-policy" not in p.channel):
            readers = [s for s in self.scenario.subscribers if s.stream_id == stream]
            repaired = all("reliable=false" not in s.channel for s in readers)
            if not self.chance("policy"):
                if repaired and self.more.random() < 0.02:
                    self.classes |= {"policy", "policy: drop_newest"}
                    self._extend(stream, *(["ps-policy=drop_newest"],) * 2)
                continue
            policy = self.rng.choice(["drop_newest", "drop_newest", "error", "block"])
            if not repaired:
                policy = "block"            # their gaps are of two kinds
            depth = self.rng.choice(["", "", "4k", "24k"])
            watermark = self.rng.choice(["", "", "0.05", "0.9", "1"])
            messages = self.counts.choice(["", "", "1msg", "20msg", "300msg"])
            if messages:
                self.classes.add("depth: messages")
            depth = ",".join(part for part in (depth, messages) if part)
            outward = [f"ps-policy={policy}"]
            outward += [f"ps-depth={depth}"] if depth else []
            outward += [f"ps-low-watermark={watermark}"] if watermark else []
            if watermark:
                self.classes.add("low watermark")
            self.classes.add(f"policy: {policy}")
            self._extend(stream, outward, [f"ps-policy={policy}"])
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))


class _Priorities(_Features):
    """Priorities of publications, drawn from a generator of their own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.rng = random.Random(f"priorities {seed}")
        self.weight = 0.2
        # Streams without a priority would be in less than a twentieth of some ranges of seeds.
        self.more = random.Random(f"no priorities {seed}")

    def add(self) -> Scenario:
        """Return the scenario with a priority for some streams."""
        for stream in self._streams(lambda p: "ps-priority" not in p.channel):
            if not self.chance("priority"):
                if self.more.random() < 0.02:
                    self.classes |= {"priority", "priority: none"}
                    self._extend(stream, ["ps-auto-priority=false"], [])
                continue
            stated = self.rng.choice([-1000, -1, -1, 0, 249, 500, 750, 1000, None, None])
            self.classes.add("priority: none" if stated is None else
                             f"priority: {'low' if stated < 0 else 'stated'}")
            option = "ps-auto-priority=false" if stated is None else f"ps-priority={stated}"
            self._extend(stream, [option], [])
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))


class _Credits(_Features):
    """Subscriptions that grant credits, drawn from a generator of their own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.rng = random.Random(f"credits {seed}")
        self.weight = 0.2
        # Withholds have a generator of their own: they do not change what a stream grants.
        self.freezes = random.Random(f"withholds {seed}")

    def _withhold(self, stream: int) -> None:
        """Let one reader of the stream withhold its credits for a while, once or twice."""
        rng = self.freezes
        chosen = rng.choice([s for s in self.scenario.subscribers if s.stream_id == stream])
        spans = []
        start = rng.randrange(SECOND_NS // 2, 2 * SECOND_NS)
        for _ in range(rng.choice([1, 1, 2])):
            end = start + rng.choice([20, 300, 1500]) * MS_NS
            spans.append((start, end))
            start = end + rng.choice([10, 400]) * MS_NS
        self.scenario = attrs.evolve(self.scenario, subscribers=tuple(
            attrs.evolve(s, withholds=tuple(spans)) if s is chosen else s
            for s in self.scenario.subscribers
        ))

    def _suits(self, subscriber: SubscriberScript) -> bool:
        unfit = ("reliable=false", "tether=false", "aeron-spy", "rcv-wnd")
        return not any(text in subscriber.channel for text in unfit)

    def add(self) -> Scenario:
        """Return the scenario with credits on some streams."""
        for stream in self._streams(lambda p: "fc=nak" not in p.channel and "py:" not in p.channel):
            readers = [s for s in self.scenario.subscribers if s.stream_id == stream]
            if not readers or not all(map(self._suits, readers)) or not self.chance("credits"):
                continue
            messages = sum(p.count for p in self.scenario.publishers if p.stream_id == stream)
            number = self.rng.choice([1, 2, 5, 20] if messages <= 300 else [20, 64, 500])
            inward = [f"ps-credits={number}"]
            if self.rng.random() < 0.45:
                self.classes.add("credits: burst")
                inward.append(f"ps-credit-burst={number * self.rng.choice([2, 10])}")
            self._extend(stream, (), inward)
            if self.freezes.random() < 0.55:
                self.classes.add("credits: withheld")
                self._withhold(stream)
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))


class _PythonSpies(_Features):
    """Spies of streams with a Python strategy, drawn from a generator of their own."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.rng = random.Random(f"python spies {seed}")
        self.weight = 0.4

    def add(self) -> Scenario:
        """Return the scenario with spies on some streams that have a Python strategy."""
        # A spy's channel states no policy, and only such a statement allows gaps.
        for stream in self._streams(lambda p: "fc=py:" in p.channel
                                    and "ps-policy=drop" not in p.channel):
            readers = [s for s in self.scenario.subscribers if s.stream_id == stream]
            spied = any(s.channel.startswith("aeron-spy") for s in readers)
            if not spied and self.chance("spies: fc=py"):
                self._spy(stream)
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))


def add_python_spies(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the spies that the seed adds to streams with a Python strategy."""
    return _PythonSpies(scenario, seed).add()


def _address(channel: str) -> str:
    """Of a channel only where it goes."""
    base, _, options = channel.partition("?")
    kept = ("endpoint=", "interface=", "control=", "control-mode=")
    return f"{base}?{'|'.join(o for o in options.split('|') if o.startswith(kept))}"


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further features that the seed chooses."""
    features = _Features(scenario, seed)
    features.timestamps()
    features.moods()
    features.spies()
    features.conductors()
    scenario = attrs.evolve(features.scenario, classes=tuple(sorted(features.classes)))
    scenario = _Windows(_Misfits(_Idle(scenario, seed).add(), seed).add(), seed).add()
    scenario = _Priorities(_Policies(scenario, seed).add(), seed).add()
    return _Credits(scenario, seed).add()
