# SPDX-License-Identifier: Apache-2.0
"""Heat maps of the results of a grid. For a pair of axes, a heat map shows the share of the
attainable rate that readers reached."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from penstock.sim.generate.grid import Cell, Outcome
from penstock.sim.plots.run import pyplot, save


@attrs.frozen
class _Axis:
    label: str
    edges: tuple[float, ...]            # of the bins, ascending; the last includes what is above
    value: Callable[[Cell], float]
    is_exact: bool = False              # each bin holds its lower edge alone

    def bin_of(self, cell: Cell) -> int:
        return max(0, min(len(self.edges) - 2, bisect.bisect(self.edges, self.value(cell)) - 1))

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    def ticks(self) -> tuple[list[float], list[str]]:
        shift, edges = (0.5, self.edges[:-1]) if self.is_exact else (0.0, self.edges)
        return [n + shift for n in range(len(edges))], [f"{edge:g}" for edge in edges]


_CADENCE: Final = _Axis("cadence of the readers, ms", (1, 3, 10, 30, 100, 300, 1000),
                        lambda c: c.cadence_ns / 1e6)
_SHARE: Final = _Axis("slow reader's rate, % of offered", (5, 10, 20, 40, 60, 80, 100, 200),
                      lambda c: 100 * c.nominal / c.offered)
_TERM: Final = _Axis("term, KiB", tuple(64 << n for n in range(10)), lambda c: c.term_bytes / 1024,
                     is_exact=True)
_RTT: Final = _Axis("round trip, ms", (0, 1, 3, 10, 30, 100, 200), lambda c: c.rtt_ns / 1e6)
_READERS: Final = _Axis("readers", (1, 2, 3, 5, 10, 20, 50), lambda c: c.group)
_OFFERED: Final = _Axis("offered, MB/s", (1, 2, 5, 10, 20, 50, 100), lambda c: c.offered / 1e6)
_PAIRS: Final = (
    (_CADENCE, _SHARE), (_CADENCE, _TERM), (_RTT, _TERM),
    (_RTT, _CADENCE), (_READERS, _OFFERED), (_OFFERED, _SHARE),
)
_LEAST: Final = 0.7                     # least share of r* of each cell
_INCHES: Final = (13.0, 8.2)


def heat_maps(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write one picture to ``path``, whose suffix determines the format. Each heat map divides its
    two axes into bins. The colour of a bin shows the lowest share of the attainable rate that a
    slow reader reached in a cell of this bin. The text in a bin states the number of its cells, and
    in bold the number of cells that failed.

    :raises PenstockError: matplotlib is missing, or the file cannot be written.
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
    figure, panels = draw.subplots(2, 3, figsize=_INCHES, constrained_layout=True)
    # Beyond what is required (0.9) it is blue.
    colours = draw.matplotlib.colors.LinearSegmentedColormap.from_list(
        "share", [(0.0, "#d1495b"), (0.6, "#f3d9b1"), (0.7, "#e3ecef"), (1.0, "#9cc9dc")]
    )
    mesh = None
    for panel, (x, y) in zip(panels.flat, _PAIRS, strict=True):
        mesh = _panel(panel, x, y, list(worst.values()), failed, colours)
    figure.colorbar(
        mesh, ax=panels, shrink=0.7, extend="min",
        label="least that a cell read, of what was attainable (white: no cell)",
    )
    save(draw, figure, path)


def _panel(
    panel: Any, x: _Axis, y: _Axis, worst: list[Outcome], failed: set[int], colours: Any
) -> Any:
    """Draw one pair of axes. Bins are squares, whatever range they cover."""
    cells: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in worst:
        cells.setdefault((x.bin_of(outcome.cell), y.bin_of(outcome.cell)), []).append(outcome)
    shares = [[float("nan")] * x.bins for _ in range(y.bins)]
    for (column, row), found in cells.items():
        judged = [min(1.0, o.share) for o in found if o.cell.kind() != "lost"]
        shares[row][column] = min(judged, default=1.0)
        bad = sum(o.cell.number in failed for o in found)
        panel.text(
            column + 0.5, row + 0.5, f"{bad} of {len(found)}" if bad else str(len(found)),
            ha="center", va="center", fontsize=9 if bad else 8,
            color="#111111" if bad else "#555555", fontweight="bold" if bad else "normal",
        )
    mesh = panel.pcolormesh(
        shares, vmin=_LEAST, vmax=1.0, cmap=colours, edgecolors="white", linewidth=1
    )
    panel.set(xlabel=x.label, ylabel=y.label)
    panel.set_xticks(*x.ticks())
    panel.set_yticks(*y.ticks())
    for side in panel.spines.values():
        side.set_visible(False)
    return mesh
