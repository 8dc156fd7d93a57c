# SPDX-License-Identifier: Apache-2.0
"""Run one scenario under several flow-control strategies, or under several back-pressure policies,
with the same traffic, network and faults."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import attrs

from penstock.core.errors import ConfigurationError
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    Budget,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World

#: Length of an interval over which bytes are counted.
BIN_NS: Final = 100 * MS_NS
#: Interval between reads of positions: the resolution of latencies.
STEP_NS: Final = 2 * MS_NS
STRATEGIES: Final = ("unicast", "max", "min", "tagged,g:7", "nak")
_FC: Final = re.compile(r"\|fc=[^|]*")
_ENDPOINT: Final = re.compile(r"(aeron:udp\?).*?endpoint=[^|]*:(\d+)(?:\|interface=[^|]*)?")


@attrs.frozen(kw_only=True)
class Series:
    """Measurements of one run. Each series has one value for each interval (bin) of ``BIN_NS``. If
    a field has one entry for each reader, the entries are in the order of the scenario's readers.
    """

    strategy: str
    names: tuple[str, ...]                      # hosts of the readers
    published: tuple[tuple[int, ...], ...]      # bytes in each bin, by publisher
    delivered: tuple[tuple[int, ...], ...]      # bytes in each bin
    behind: tuple[tuple[int | None, ...], ...]  # bytes; None: not reading
    missed: tuple[tuple[int, ...], ...]         # messages, in all so far
    latency: tuple[tuple[int, ...], ...]        # ns, of the bin's median message; 0: no message
    status_messages: tuple[int, ...]            # on the wire, in all so far
    data_bytes: int                             # sent by the publisher's host, repeats included
    pressure: int                               # PRESSURE signals heard by the sender
    dropped: tuple[int, ...]                    # by the publications' policy, in all so far
    refusals: int                               # of offers, in all

    def rate(self, from_s: float, until_s: float) -> int:
        """Return the rate of the first publisher between two times of the run, in bytes a
        second.
        """
        bins = self.published[0][int(from_s * 10):int(until_s * 10)]
        return sum(bins) * SECOND_NS // (BIN_NS * len(bins))

    def stalled_s(self) -> float:
        """Return how long the first publisher published nothing, in seconds. The time before its
        first message does not count.
        """
        bins = self.published[0]
        first = next((i for i, sent in enumerate(bins) if sent), len(bins))
        return sum(1 for sent in bins[first:] if not sent) * BIN_NS / SECOND_NS

    def latency_ms(self, reader: int, from_s: float, until_s: float) -> tuple[float, float]:
        """Return the median and the maximum latency of one reader between two times, in
        milliseconds. A latency is the time from offer to poll. Each interval (bin) contributes one
        latency: its median.
        """
        found = [n for n in self.latency[reader][int(from_s * 10):int(until_s * 10)] if n]
        return (statistics.median(found) / MS_NS, max(found) / MS_NS) if found else (0.0, 0.0)


def at_cadence(scenario: Scenario, batch: int, interval_ns: int) -> Scenario:
    """Return a copy of the scenario in which each slow reader reads ``batch`` messages at most, and
    then waits for ``interval_ns``.
    """
    subscribers = tuple(
        attrs.evolve(s, poll_limit=batch, interval_ns=interval_ns) if s.interval_ns else s
        for s in scenario.subscribers
    )
    return attrs.evolve(scenario, subscribers=subscribers, budget=Budget())


def under(scenario: Scenario, strategy: str) -> Scenario:
    """Return a copy of the scenario in which every publisher uses the flow-control strategy
    ``strategy``. If ``strategy`` is ``unicast``, one publisher for each reader replaces the
    publisher of the group. Raise ConfigurationError if a channel has no endpoint."""
    if strategy == "unicast":
        return _apart(scenario)
    publishers = tuple(
        attrs.evolve(p, channel=f"{_FC.sub('', p.channel)}|fc={strategy}")
        for p in scenario.publishers
    )
    return attrs.evolve(scenario, publishers=publishers, budget=Budget())


def policed(scenario: Scenario, publication: str, subscription: str = "") -> Scenario:
    """Return a copy of the scenario with a back-pressure policy. All channels get the parameters
    ``publication``; the channels of readers that become slow also get ``subscription``. The
    parameters are text such as ``ps-policy=error``; an empty text adds nothing."""
    publishers = tuple(
        attrs.evolve(p, channel=_and(p.channel, publication)) for p in scenario.publishers
    )
    subscribers = tuple(
        attrs.evolve(
            s, may_miss=True,
            channel=_and(_and(s.channel, publication), subscription if s.paces else ""),
        )
        for s in scenario.subscribers
    )
    return attrs.evolve(
        scenario, publishers=publishers, subscribers=subscribers, budget=Budget()
    )


def _and(channel: str, parameters: str) -> str:
    return f"{channel}|{parameters}" if parameters else channel


def _apart(scenario: Scenario) -> Scenario:
    publishers: list[PublisherScript] = []
    subscribers: list[SubscriberScript] = []
    for publisher in scenario.publishers:
        plain = _FC.sub("", publisher.channel)
        for reader in scenario.subscribers:
            if reader.stream_id != publisher.stream_id:
                continue
            if not _ENDPOINT.match(plain) or not _ENDPOINT.match(reader.channel):
                raise ConfigurationError(
                    f"{scenario.name}: {publisher.channel} has no endpoint, which unicast needs"
                )
            here = rf"\g<1>endpoint={host_ip(reader.host)}:\g<2>"
            stream = publisher.stream_id + len(subscribers)
            publishers.append(
                attrs.evolve(publisher, channel=_ENDPOINT.sub(here, plain), stream_id=stream,
                             open_ns=max(publisher.open_ns, reader.start_ns))
            )
            subscribers.append(
                attrs.evolve(reader, channel=_ENDPOINT.sub(here, reader.channel), stream_id=stream)
            )
    return attrs.evolve(
        scenario, publishers=tuple(publishers), subscribers=tuple(subscribers), budget=Budget()
    )


class _Clock:
    """Times at which positions were published, and latencies of each reader."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._positions: list[list[int]] = [[0] for _ in world.publishers]
        self._times: list[list[int]] = [[0] for _ in world.publishers]
        self._seen = [0 for _ in world.subscribers]
        self._bin: list[list[int]] = [[] for _ in world.subscribers]

    def look(self) -> None:
        """Read the positions of all publishers and readers at the present moment."""
        now_ns = self._world.now_ns
        for i, publisher in enumerate(self._world.publishers):
            if publisher.position > self._positions[i][-1]:
                self._positions[i].append(publisher.position)
                self._times[i].append(now_ns)
        for i in range(len(self._world.subscribers)):
            of, position = _where(self._world, i)
            if position > self._seen[i]:
                self._seen[i] = position
                at = min(bisect_left(self._positions[of], position), len(self._times[of]) - 1)
                self._bin[i].append(now_ns - self._times[of][at])

    def take(self, reader: int) -> int:
        """Return the median of the latencies that one reader had since the last call; 0 if the
        reader read no message. If the median is below ``STEP_NS``, the resolution of the
        measurement, return ``STEP_NS``.
        """
        found, self._bin[reader] = self._bin[reader], []
        return max(STEP_NS, int(statistics.median(found))) if found else 0


def observe(scenario: Scenario, strategy: str, *, until_ns: int, seed: int = 1) -> Series:
    """Run the scenario under the strategy, and measure every interval."""
    return measure(under(scenario, strategy), strategy, until_ns=until_ns, seed=seed)


def measure(scenario: Scenario, name: str, *, until_ns: int, seed: int = 1) -> Series:
    """Run the scenario as it is, and measure every interval; ``name`` is the name of the series."""
    with World(scenario, seed) as world:
        readers = range(len(world.subscribers))
        published: list[list[int]] = [[] for _ in world.publishers]
        delivered: list[list[int]] = [[] for _ in readers]
        behind: list[list[int | None]] = [[] for _ in readers]
        missed: list[list[int]] = [[] for _ in readers]
        latency: list[list[int]] = [[] for _ in readers]
        status_messages: list[int] = []
        dropped: list[int] = []
        sent, got = [0 for _ in world.publishers], [0 for _ in readers]
        clock = _Clock(world)
        for now_ns in range(BIN_NS, until_ns + 1, BIN_NS):
            for step_ns in range(now_ns - BIN_NS + STEP_NS, now_ns + 1, STEP_NS):
                world.run_until(step_ns)
                clock.look()
            for i, publisher in enumerate(world.publishers):
                published[i].append(publisher.sent_bytes - sent[i])
                sent[i] = publisher.sent_bytes
            for i in readers:
                bytes_, lost, distance = _check(world, i)
                delivered[i].append(bytes_ - got[i])
                missed[i].append(lost)
                behind[i].append(distance)
                latency[i].append(clock.take(i))
                got[i] = bytes_
            status_messages.append(world.network.wire().status_messages)
            dropped.append(_dropped(world))
        wire = world.network.wire()
        return Series(
            strategy=name,
            names=tuple(scenario.host_name(s.script.host) for s in world.subscribers),
            published=tuple(map(tuple, published)),
            delivered=tuple(map(tuple, delivered)),
            behind=tuple(map(tuple, behind)),
            missed=tuple(map(tuple, missed)),
            latency=tuple(map(tuple, latency)),
            status_messages=tuple(status_messages),
            data_bytes=wire.data_bytes + wire.resent_bytes,
            pressure=_signals(world),
            dropped=tuple(dropped),
            refusals=sum(s.refusals for p in world.publishers for s in p.statistics()),
        )


def _where(world: World, index: int) -> tuple[int, int]:
    """The publisher that a reader reads from, and the position; it has one of each."""
    subscriber = world.subscribers[index]
    found = (0, 0)
    for of, publisher in enumerate(world.publishers):
        if publisher.script.stream_id == subscriber.script.stream_id and subscriber.app is not None:
            for ledger in publisher.ledgers:
                found = max(found, (of, subscriber.reader(ledger).position))
    return found


def _check(world: World, index: int) -> tuple[int, int, int | None]:
    """Bytes, messages missed and bytes behind of a reader."""
    subscriber = world.subscribers[index]
    bytes_, lost, distance = 0, 0, None
    for publisher in world.publishers:
        if publisher.script.stream_id != subscriber.script.stream_id:
            continue
        for ledger in publisher.ledgers:
            for reader in subscriber.readers(ledger):
                bytes_ += reader.bytes
                lost += reader.missed
                if subscriber.is_open and reader.first >= 0:
                    distance = publisher.position - reader.position
    return bytes_, lost, distance


def _dropped(world: World) -> int:
    return sum(
        world.native.ledger_dropped(ledger)
        for ledger in {ledger for publisher in world.publishers for ledger in publisher.ledgers}
    )


def _signals(world: World) -> int:
    return sum(
        host.driver.publication_status(publication.id).pressure_signals
        for host in world.hosts
        if host.running
        for publication in host.publications()
    )


def compare(
    scenario: Scenario, strategies: Sequence[str] = STRATEGIES, *, until_ns: int, seed: int = 1
) -> list[Series]:
    """Run the scenario once for each strategy."""
    return [observe(scenario, name, until_ns=until_ns, seed=seed) for name in strategies]
