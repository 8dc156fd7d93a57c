# SPDX-License-Identifier: Apache-2.0
"""Write the trace of a simulated run as JSON lines: each line is one event, with its time.

The file has the form of ``penstock daemon --trace`` (:mod:`penstock.daemon.observe.trace`): it
contains the events of each daemon, and a ``sample`` of each daemon every 10 ms. Events named
``world`` belong to no host; they contain facts that only the simulator knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import attrs

from penstock.daemon.observe.trace import line
from penstock.sim.core import NetworkStatistics, WireStatistics
from penstock.sim.world.apps import same_stream

if TYPE_CHECKING:
    from penstock.sim.world import World


@attrs.frozen(kw_only=True)
class Sample:
    """A sample of the world's state at one moment. Positions are in bytes."""

    now_ns: int
    published: tuple[int, ...]              # position of each publisher
    sent: tuple[int, ...]                   # bytes of messages
    limits: tuple[int, ...]                 # publisher limits
    blocked_ns: tuple[int, ...]
    delivered: tuple[tuple[int, ...], ...]  # of each subscriber, by publisher; -1: not its stream
    received: tuple[tuple[int, ...], ...]   # bytes of messages, in the same order
    wire: WireStatistics
    network: NetworkStatistics

    @classmethod
    def take(cls, world: World) -> Self:
        return cls(
            now_ns=world.now_ns,
            published=tuple(publisher.position for publisher in world.publishers),
            sent=tuple(publisher.sent_bytes for publisher in world.publishers),
            limits=tuple(publisher.limit for publisher in world.publishers),
            blocked_ns=tuple(
                sum(statistics.blocked_ns for statistics in publisher.statistics())
                for publisher in world.publishers
            ),
            delivered=tuple(
                tuple(
                    subscriber.reader(publisher.ledgers[-1]).position
                    if subscriber.app is not None
                    and publisher.ledgers
                    and same_stream(publisher.script, subscriber.script)
                    else -1
                    for publisher in world.publishers
                )
                for subscriber in world.subscribers
            ),
            received=tuple(
                tuple(
                    sum(reader.bytes for reader in subscriber.readers(publisher.ledgers[-1]))
                    if publisher.ledgers
                    else 0
                    for publisher in world.publishers
                )
                for subscriber in world.subscribers
            ),
            wire=world.network.wire(),
            network=world.network.statistics(),
        )


def lines(world: World) -> Iterator[str]:
    """Return the events of a recorded run, in the order of time."""
    found: list[tuple[int, int, str]] = []
    for host in world.hosts:
        for at_ns, name, fields in host.events:
            value = json.loads(fields) if fields.startswith("{") else {"text": fields}
            found.append((at_ns, host.index, line(at_ns, host.name, name, value)))
        for at_ns, sampled in host.samples:
            found.append((at_ns, host.index, line(at_ns, host.name, "sample", sampled)))
    for sample in world.samples:
        value = attrs.asdict(sample)
        value.pop("now_ns")
        found.append((sample.now_ns, len(world.hosts), line(sample.now_ns, None, "world", value)))
    for _, _, text in sorted(found, key=lambda item: item[:2]):
        yield text
