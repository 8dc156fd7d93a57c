# SPDX-License-Identifier: Apache-2.0
"""Measure rates between two moments of a run: the rate of each stream at each reader, and the
fairness between the readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.sim.scenario import SECOND_NS

if TYPE_CHECKING:
    from penstock.sim.world import World

_PPM: Final = 1_000_000


def delivered(world: World) -> tuple[int, ...]:
    """For each pair of a reader and a publisher of its stream, return the number of message bytes
    that the reader has received so far.
    """
    from penstock.sim.oracles.oracle import pairs

    return tuple(
        sum(reader.bytes for ledger in publisher.ledgers for reader in subscriber.readers(ledger))
        for publisher, subscriber in pairs(world)
    )


def jain_ppm(values: Sequence[int]) -> int:
    """Return Jain's index of fairness in ppm. The index is one million if all values are equal, and
    one million / n if all values except one are 0."""
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 * _PPM // squares if squares else 0


class Meter:
    """Measures the readers' rates between two moments of a run. The scenario's budget states these
    moments as ``rate_from_ns`` and ``rate_until_ns``; if one of these fields is missing, there are
    no rates.
    """

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
        """Return the rate of each reader between the two moments, in bytes a second. Return no
        rates if the second moment has not come yet."""
        if len(self._readings) < 2:
            return ()
        (from_ns, before), (until_ns, after) = self._readings
        return tuple(
            (last - first) * SECOND_NS // (until_ns - from_ns)
            for first, last in zip(before, after, strict=True)
        )
