# SPDX-License-Identifier: Apache-2.0
"""Plots of docs/loss-recovery.md, from runs of the native tests.

    python tools/plots/loss.py TESTS_DIR OUT_DIR

TESTS_DIR holds the built programs test_congestion and test_loss_recovery; each prints a scenario as
CSV.  Runs are in virtual time, so the pictures are the same on every machine.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from style import BLUE, COLOURS, GREY, RED, plt, save

Row = dict[str, float]


def rows_of(program: Path, scenario: str) -> list[Row]:
    text = subprocess.run(
        [program, scenario], check=True, capture_output=True, text=True
    ).stdout
    return [{key: float(value) for key, value in row.items()}
            for row in csv.DictReader(text.splitlines())]


def goodput(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3.5))
    loss = [row["loss_percent"] for row in rows]
    for colour, key, label in ((BLUE, "all_gaps", "all gaps (penstock)"),
                               (RED, "single_gap", "one gap at a time")):
        axes.plot(loss, [row[key] / 1024 for row in rows], "o-", color=colour, label=label)
    axes.set_xlabel("random loss (%)")
    axes.set_ylabel("goodput (KiB/s)")
    axes.set_yscale("log")
    axes.legend()
    save(figure, path)


def implosion(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3.5))
    receivers = [row["receivers"] for row in rows]
    axes.loglog(receivers, [row["none"] for row in rows], color=GREY, linestyle=":",
                label="no back-off")
    for colour, size in zip(COLOURS, (10, 100, 1000), strict=False):
        axes.loglog(receivers, [row[f"group_size_{size}"] for row in rows], color=colour,
                    label=f"configured for {size}")
    axes.set_xlabel("receivers that miss the same datagram")
    axes.set_ylabel("NAKs for one loss")
    axes.legend()
    save(figure, path)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tests, out = Path(arguments[0]), Path(arguments[1])
    out.mkdir(parents=True, exist_ok=True)
    congestion, recovery = tests / "test_congestion", tests / "test_loss_recovery"
    goodput(rows_of(congestion, "goodput"), out / "loss-goodput.svg")
    implosion(rows_of(recovery, "implosion"), out / "nak-implosion.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
