# SPDX-License-Identifier: Apache-2.0
"""A further stream for a generated scenario. The stream uses rules of flow and congestion control
that other streams use rarely. ``penstock sim fuzz --histogram`` counts the runs that used each
rule.

A separate random generator draws this stream. The rest of a seed's scenario is therefore the same
as without this stream.
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

STREAM: Final = 1800
_PORT: Final = 42000
_GROUP: Final = f"aeron:udp?endpoint=239.20.0.101:{_PORT}|interface=10.0.0.0/24"
_PAYLOAD: Final = 1344
_FRAME: Final = 1408
_STRATEGIES: Final = "py:penstock.sim.strategies"
_WINDOWS: Final = "py:penstock.sim.congestion"
#: A strategy or a class that answers after this is late, and after this is silent.  An answer is
#: valid for 100 ms, so a strategy whose answers take longer is replaced by on_late in between.
_LATE_NS: Final = 30 * MS_NS
_EXPIRED_NS: Final = 250 * MS_NS
_SILENT_NS: Final = 7 * SECOND_NS
_KINDS: Final = (
    "slow", "slow", "slow", "pauses", "windowed", "plain", "plain", "joins", "late max", "late min",
    "silent", "silent",
)
#: Share of the streams of the kind "plain" that get forged heartbeats instead.
_FORGED: Final = 0.45


class _Rules(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"rules {seed}"), 0.8, set(scenario.classes))
        self.scenario = scenario
        # The fastest of a group outruns the others: it has two members at least.
        self.hosts = max(scenario.hosts, 3)

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the further stream."""
        if not self.chance("rules"):
            return self.scenario
        kind = self.rng.choice(_KINDS)
        self.classes.add(f"rules: {kind}")
        match kind:
            case "slow" | "pauses":
                self._pressed(pauses=kind == "pauses")
            case "windowed":
                self._windowed()
            case "plain" if self.rng.random() < _FORGED:
                self.classes = self.classes - {"rules: plain"} | {"rules: forged"}
                self._forged()
            case "plain":
                self._plain()
            case "joins":
                self._joins()
            case "silent":
                self._silent()
            case _:
                self._late("SlowestElseMax" if kind == "late max" else "FurthestElseMin")
        return attrs.evolve(
            self.scenario, hosts=self.hosts, classes=tuple(sorted(self.classes))
        )

    def _stream(
        self, channel: str, options: str, count: int, interval_ns: int,
        readers: tuple[SubscriberScript, ...],
    ) -> None:
        publisher = PublisherScript(
            host=0, channel=f"{channel}|{options}", stream_id=STREAM, count=count,
            size_low=_PAYLOAD, size_high=_PAYLOAD, start_ns=SECOND_NS, interval_ns=interval_ns,
            exclusive=self.rng.random() < 0.5,
        )
        self.scenario = attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, *readers),
        )

    def _reader(self, host: int, channel: str) -> SubscriberScript:
        return SubscriberScript(
            host=host, channel=channel, stream_id=STREAM, may_join_late=True, may_miss=True
        )

    def _readers(self, channel: str) -> tuple[SubscriberScript, ...]:
        """One on each host but the publisher's."""
        return tuple(self._reader(host, channel) for host in range(1, self.hosts))

    # ---- NAK-strength ----------------------------------------------------------------------------

    def _slow(
        self, reader: SubscriberScript, term: int, *, pauses: bool
    ) -> SubscriberScript:
        """Let a reader take batches in a cadence: at most half a term each time."""
        rng = self.rng
        cadence_ns = rng.choice([2, 10, 30, 100, 200]) * MS_NS
        rate = rng.choice([100_000, 400_000, 1_000_000, 3_000_000])
        batch = min(max(rate * cadence_ns // SECOND_NS // _FRAME, 1), term // 2 // _FRAME - 1)
        spans = []
        start = SECOND_NS + rng.randrange(SECOND_NS // 2)
        for _ in range(rng.choice([1, 2]) if pauses else 0):
            end = start + rng.choice([300, 700, 1200, 2600]) * MS_NS
            spans.append((start, end))
            start = end + rng.choice([100, 500]) * MS_NS
        return attrs.evolve(
            reader, batch=batch, interval_ns=cadence_ns, pauses=tuple(spans)
        )

    def _pressed(self, *, pauses: bool) -> None:
        """Publish faster than some readers take; the others cope."""
        rng = self.rng
        term = rng.choice([65536, 65536, 131072, 262144])
        slow = set(rng.sample(range(1, self.hosts), rng.choice([1, 1, self.hosts - 1])))
        readers = [self._reader(host, _GROUP) for host in range(1, self.hosts)]
        self._stream(
            _GROUP, f"term-length={term}|fc=nak", rng.choice([400, 900]),
            rng.choice([0, 20_000, 300_000]),
            tuple(
                self._slow(reader, term, pauses=pauses) if reader.host in slow else reader
                for reader in readers
            ),
        )

    def _windowed(self) -> None:
        """A congestion window beside the NAK rate."""
        rng = self.rng
        control = rng.choice(["cubic", "cubic,reno:false", f"{_WINDOWS}:Halver"])
        channel = f"{_GROUP}|cc={control}"
        self._stream(
            _GROUP, f"term-length={rng.choice(['64k', '256k'])}|fc=nak", 500, 0,
            self._readers(channel),
        )

    def _plain(self) -> None:
        """A receiver without penstock's extensions in a group under NAK-strength."""
        rng = self.rng
        start = SECOND_NS + rng.randrange(SECOND_NS // 10)
        interval_ns = rng.choice([100_000, MS_NS])
        self._stream(
            _GROUP, f"term-length={rng.choice(['64k', '128k'])}|fc=nak", 900, interval_ns,
            self._readers(_GROUP),
        )
        plain = MisfitScript(
            host=rng.randrange(1, self.hosts), stream_id=STREAM, kind="plain", from_ns=start,
            until_ns=start + rng.choice([300, 1500]) * MS_NS,
            interval_ns=rng.choice([5, 20]) * MS_NS,
        )
        self.scenario = attrs.evolve(self.scenario, misfits=(*self.scenario.misfits, plain))

    def _forged(self) -> None:
        """Heartbeats in the sender's name, far ahead of a stream with heartbeats of its own.

        A message comes each 150 ms, so the sender sends at least one heartbeat between two
        messages, and thereby between two forged heartbeats.
        """
        rng = self.rng
        self._stream(
            _GROUP, f"term-length={rng.choice(['64k', '128k'])}|fc=nak", 20, 150 * MS_NS,
            self._readers(_GROUP),
        )
        start = SECOND_NS + rng.randrange(SECOND_NS)
        forger = MisfitScript(
            host=rng.randrange(1, self.hosts), stream_id=STREAM, kind="forges", from_ns=start,
            until_ns=start + 1500 * MS_NS, interval_ns=rng.choice([200, 300]) * MS_NS,
        )
        self.scenario = attrs.evolve(self.scenario, misfits=(*self.scenario.misfits, forger))

    # ---- joins -----------------------------------------------------------------------------------

    def _joins(self) -> None:
        """Receivers that request SETUPs and never join a group that follows its slowest."""
        rng = self.rng
        self._stream(
            _GROUP, f"term-length=64k|fc=min,t:{rng.choice(['500ms', '1s'])}", 600, 5 * MS_NS,
            self._readers(_GROUP),
        )
        start = SECOND_NS + rng.randrange(SECOND_NS)
        strangers = tuple(
            MisfitScript(
                host=rng.randrange(1, self.hosts), stream_id=STREAM, kind=kind, from_ns=start,
                until_ns=start + 2 * SECOND_NS, interval_ns=rng.choice([50, 200]) * MS_NS,
            )
            for kind in rng.sample(("never joins", "random ids", "crowd"), 2)
        )
        self.scenario = attrs.evolve(
            self.scenario, misfits=(*self.scenario.misfits, *strangers)
        )

    # ---- strategies and classes in Python --------------------------------------------------------

    def _answer_after(self, delay_ns: int, *hosts: int) -> None:
        machines = {machine.host: machine for machine in self.scenario.machines}
        for at in hosts:
            machines[at] = attrs.evolve(
                machines.get(at, HostScript(host=at)), strategy_delay_ns=delay_ns
            )
        self.scenario = attrs.evolve(
            self.scenario, machines=tuple(machines[at] for at in sorted(machines))
        )

    def _late(self, name: str) -> None:
        """A strategy that is late, of a group in which one is slower; so is a class for windows."""
        rng = self.rng
        slow = rng.randrange(1, self.hosts)
        self._answer_after(_LATE_NS if name == "SlowestElseMax" else _EXPIRED_NS, 0, slow)
        self._stream(
            _GROUP, f"term-length=64k|fc={_STRATEGIES}:{name}", 300, rng.choice([0, MS_NS]),
            tuple(
                attrs.evolve(
                    self._reader(host, f"{_GROUP}|cc={_WINDOWS}:Halver"), poll_limit=2,
                    interval_ns=5 * MS_NS,
                ) if host == slow else self._reader(host, _GROUP)
                for host in range(1, self.hosts)
            ),
        )

    def _silent(self) -> None:
        """A strategy and a class for windows that do not answer for longer than the stream lasts
        without them."""
        host = self.rng.randrange(1, self.hosts)
        channel = f"aeron:udp?endpoint={host_ip(host)}:{_PORT}"
        self._answer_after(_SILENT_NS, 0, host)
        self._stream(
            channel, f"term-length=64k|fc={_STRATEGIES}:Slowest", 800, 10 * MS_NS,
            (self._reader(host, f"{channel}|cc={_WINDOWS}:Halver"),),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream that the seed determines."""
    return _Rules(scenario, seed).add()
