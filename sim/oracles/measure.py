# SPDX-License-Identifier: Apache-2.0
"""Rates between two moments of a run: bytes of each stream at each reader, and their fairness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.sim.scenario import SECOND_NS

if TYPE_CHECKING:
    from penstock.sim.world import World

_PPM: Final = 1_000_000


def delivered(world: World) -> tuple[int, ...]:
    """Return the bytes of messages of each stream that each reader has so far."""
    from penstock.sim.oracles.oracle import pairs

    return tuple(
        sum(reader.bytes for ledger in publisher.ledgers for reader in subscriber.readers(ledger))
        for publisher, subscriber in pairs(world)
    )


def jain_ppm(values: Sequence[int]) -> int:
    """Return Jain's index of fairness in ppm: one million if all are equal, one million / n if one
    has all."""
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 * _PPM // squares if squares else 0


class Meter:
    """Reads the rates at the two moments that the scenario's budget states, if it states them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._readings: list[tuple[int, tuple[int, ...]]] = []
        budget = world.scenario.budget
        for at_ns in (budget.rate_from_ns, budget.rate_until_ns):
            if at_ns is not None:
                world.at(at_ns, self._read)

    def _read(self) -> None:
        self._readings.append((self._world.now_ns, delivered(self._world)))

    def rates(self) -> tuple[int, ...]:
        """Return bytes a second by reader; empty before the second moment."""
        if len(self._readings) < 2:
            return ()
        (from_ns, before), (until_ns, after) = self._readings
        return tuple(
            (last - first) * SECOND_NS // (until_ns - from_ns)
            for first, last in zip(before, after, strict=True)
        )
