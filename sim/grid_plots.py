# SPDX-License-Identifier: Apache-2.0
"""Heat maps of a judged grid: of what each cell could read, how much it did, by pairs of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from penstock.sim.grid import Cell, Outcome
from penstock.sim.plots import pyplot, save

_AXES: Final[tuple[tuple[str, Callable[[Cell], float]], ...]] = (
    ("cadence, ms", lambda c: c.cadence_ns / 1e6),
    ("reader / offered", lambda c: c.nominal / c.offered),
    ("term, KiB", lambda c: c.term_bytes / 1024),
    ("round trip, ms", lambda c: max(c.rtt_ns / 1e6, 0.5)),
    ("readers", lambda c: c.group),
    ("offered, MB/s", lambda c: c.offered / 1e6),
)
_PAIRS: Final = ((0, 1), (0, 2), (3, 2), (0, 3), (4, 5), (1, 5))


def heat_maps(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write one picture; the suffix chooses the format.  One dot a cell: the share of r* that its
    worst run read, a cross where it failed.

    :raises PenstockError: without matplotlib, or when the file cannot be written.
    """
    draw = pyplot()
    worst: dict[int, Outcome] = {}
    failed: set[int] = set()
    for outcome in outcomes:
        number = outcome.cell.number
        if number not in worst or outcome.share < worst[number].share:
            worst[number] = outcome
        if outcome.cause():
            failed.add(number)
    figure, grid = draw.subplots(2, 3, figsize=(12.0, 7.5), constrained_layout=True)
    dots = None
    for axis, (x, y) in zip(grid.flat, _PAIRS, strict=True):
        points = sorted(worst.values(), key=lambda o: o.cell.number)
        dots = axis.scatter(
            [_AXES[x][1](o.cell) for o in points], [_AXES[y][1](o.cell) for o in points],
            c=[min(1.0, o.share) for o in points], vmin=0.5, vmax=1.0, cmap="viridis", s=14,
        )
        missed = [o for o in points if o.cell.number in failed]
        axis.scatter(
            [_AXES[x][1](o.cell) for o in missed], [_AXES[y][1](o.cell) for o in missed],
            marker="x", c="red", s=30,
        )
        axis.set(xscale="log", yscale="log", xlabel=_AXES[x][0], ylabel=_AXES[y][0])
    figure.colorbar(dots, ax=grid, label="read, of what was attainable")
    save(draw, figure, path)
