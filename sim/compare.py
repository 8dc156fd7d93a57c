# SPDX-License-Identifier: Apache-2.0
"""One scenario under several flow-control strategies: the same traffic, network and faults."""

from __future__ import annotations

import re
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

#: Of a sample: bytes are counted over so long.
BIN_NS: Final = 100 * MS_NS
STRATEGIES: Final = ("unicast", "max", "min", "tagged,g:7", "nak")
_FC: Final = re.compile(r"\|fc=[^|]*")
_ENDPOINT: Final = re.compile(r"(aeron:udp\?).*?endpoint=[^|]*:(\d+)(?:\|interface=[^|]*)?")


@attrs.frozen(kw_only=True)
class Series:
    """One run in bins of ``BIN_NS``; by reader, in the scenario's order."""

    strategy: str
    names: tuple[str, ...]                      # hosts of the readers
    published: tuple[tuple[int, ...], ...]      # bytes in each bin, by publisher
    delivered: tuple[tuple[int, ...], ...]      # bytes in each bin
    behind: tuple[tuple[int | None, ...], ...]  # bytes; None: not reading
    missed: tuple[tuple[int, ...], ...]         # messages, in all so far
    data_bytes: int                             # sent by the publisher's host, repeats included
    pressure: int                               # PRESSURE signals heard by the sender

    def rate(self, from_s: float, until_s: float) -> int:
        """Published by the first publisher, bytes a second."""
        bins = self.published[0][int(from_s * 10):int(until_s * 10)]
        return sum(bins) * SECOND_NS // (BIN_NS * len(bins))

    def stalled_s(self) -> float:
        """Time in which the first publisher could publish nothing at all, after its start."""
        bins = self.published[0]
        first = next((i for i, sent in enumerate(bins) if sent), len(bins))
        return sum(1 for sent in bins[first:] if not sent) * BIN_NS / SECOND_NS


def under(scenario: Scenario, strategy: str) -> Scenario:
    """The scenario with another strategy for every publisher.  ``unicast``: each publisher of a
    group becomes one for each reader.  ConfigurationError: it has no such group."""
    if strategy == "unicast":
        return _apart(scenario)
    publishers = tuple(
        attrs.evolve(p, channel=f"{_FC.sub('', p.channel)}|fc={strategy}")
        for p in scenario.publishers
    )
    return attrs.evolve(scenario, publishers=publishers, budget=Budget())


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
                    f"{scenario.name}: {publisher.channel} has no endpoint to make unicast of"
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


def observe(scenario: Scenario, strategy: str, *, until_ns: int, seed: int = 1) -> Series:
    """Runs the scenario under the strategy and checks every bin."""
    with World(under(scenario, strategy), seed) as world:
        readers = range(len(world.subscribers))
        published: list[list[int]] = [[] for _ in world.publishers]
        delivered: list[list[int]] = [[] for _ in readers]
        behind: list[list[int | None]] = [[] for _ in readers]
        missed: list[list[int]] = [[] for _ in readers]
        sent, got = [0 for _ in world.publishers], [0 for _ in readers]
        for now_ns in range(BIN_NS, until_ns + 1, BIN_NS):
            world.run_until(now_ns)
            for i, publisher in enumerate(world.publishers):
                published[i].append(publisher.sent_bytes - sent[i])
                sent[i] = publisher.sent_bytes
            for i in readers:
                bytes_, lost, distance = _check(world, i)
                delivered[i].append(bytes_ - got[i])
                missed[i].append(lost)
                behind[i].append(distance)
                got[i] = bytes_
        wire = world.network.wire()
        return Series(
            strategy=strategy,
            names=tuple(scenario.host_name(s.script.host) for s in world.subscribers),
            published=tuple(map(tuple, published)),
            delivered=tuple(map(tuple, delivered)),
            behind=tuple(map(tuple, behind)),
            missed=tuple(map(tuple, missed)),
            data_bytes=wire.data_bytes + wire.resent_bytes,
            pressure=_signals(world),
        )


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


def _signals(world: World) -> int:
    return sum(
        host.driver.publication_status(publication).pressure_signals
        for host in world.hosts
        if host.running
        for publication in host.conductor.world.publications
    )


def compare(
    scenario: Scenario, strategies: Sequence[str] = STRATEGIES, *, until_ns: int, seed: int = 1
) -> list[Series]:
    """One run for each strategy."""
    return [observe(scenario, name, until_ns=until_ns, seed=seed) for name in strategies]
