# SPDX-License-Identifier: Apache-2.0
"""The heat maps of docs/nak-strength.md and the table of the cells that fail: a run of the grid.

    python tools/plots/grid.py OUT_DIR PAGE [--seed HEX] [--seeds N] [--cells N]

Two to three minutes of processor time for each seed; the seed of the sample is by default the
commit's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import style  # noqa: F401  (the same run gives the same file)

from penstock.sim.generate import grid
from penstock.sim.plots.grid import heat_maps

_BLOCK = re.compile(r"(<!-- grid begin:[^\n]*-->\n).*?(<!-- grid end -->)", re.DOTALL)


def table(sample: str, seeds: int, outcomes: list[grid.Outcome]) -> str:
    """Markdown: a sentence, the picture, and the cells that fail."""
    found = grid.verdict(outcomes)
    lines = [
        "",
        f"Sample {sample}, {seeds} {'seed' if seeds == 1 else 'seeds'} for each cell: "
        f"{found.passed} of {found.cells} cells pass.",
        f"In the worst cell, the slow reader read {found.worst_share:.1%} of its attainable rate "
        f"r*. The run took {found.took_s:.0f} s of processor time.",
        "",
        "![Heat maps of the grid, by pairs of its axes](images/nak-grid.svg)",
        "",
        "*Each square of the diagram stands for a range of values of two parameters, and contains "
        "the cells with these values. The colour of a square shows its slowest reader: the share "
        "of the attainable rate r\\* at which this reader read. The first number in a square is "
        "the number of its cells, the bold number is the number of failed cells.*",
        "",
    ]
    if found.failures:
        lines += [
            "| cell | batch | cadence | offered | T | round trip | slow of readers | r* | fails "
            "because |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
    for cell, cause in found.failures:
        lines.append(
            f"| {cell.number} | {cell.batch} × {cell.frame} B | {cell.cadence_ns / 1e6:.1f} ms "
            f"| {cell.offered / 1e6:.1f} MB/s | {cell.term_bytes >> 10} KiB "
            f"| {cell.rtt_ns / 1e6:.1f} ms | {cell.slow} of {cell.group} "
            f"| {cell.attainable / 1e6:.3f} MB/s | {cause} |"
        )
    return "\n".join([*lines, "", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--seed", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cells", type=int, default=600)
    args = parser.parse_args()
    sample = args.seed or subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout[:8]
    cells = grid.sample(int(sample, 16), args.cells)
    outcomes = list(grid.judge(cells, args.seeds, workers=2))
    heat_maps(outcomes, args.out / "nak-grid.svg")
    text = args.page.read_text(encoding="utf-8")
    block = table(sample, args.seeds, outcomes)
    renewed, count = _BLOCK.subn(lambda m: m.group(1) + block + m.group(2), text)
    if count != 1:
        print(f"{args.page}: has no lines 'grid begin' and 'grid end'", file=sys.stderr)
        return 1
    args.page.write_text(renewed, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
