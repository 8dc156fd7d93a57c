# SPDX-License-Identifier: Apache-2.0
"""Plots of docs/congestion-control.md and docs/loss-recovery.md, from runs of the native tests.

    python tools/plots/congestion.py TESTS_DIR OUT_DIR

TESTS_DIR holds the built programs test_congestion and test_loss_recovery; each prints a scenario as
CSV.  Runs are in virtual time, so the pictures are the same on every machine.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "penstock"
mpl.rcParams["font.size"] = 10
mpl.rcParams["axes.spines.top"] = False
mpl.rcParams["axes.spines.right"] = False

from matplotlib import pyplot as plt  # noqa: E402

Row = dict[str, float]
COLOURS = ("#0b6e99", "#d1495b", "#edae49", "#30638e")


def rows_of(program: Path, scenario: str) -> list[Row]:
    text = subprocess.run(
        [program, scenario], check=True, capture_output=True, text=True
    ).stdout
    return [{key: float(value) for key, value in row.items()}
            for row in csv.DictReader(text.splitlines())]


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)


def fat_path(rows: list[Row], path: Path) -> None:
    """One flow on 10 000 packets."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
    at = [row["time_s"] for row in rows]
    above.plot(at, [row["window_packets"] for row in rows], color=COLOURS[0])
    above.axhline(10000, color="grey", linestyle=":", linewidth=1)
    above.text(at[-1], 10000, "bandwidth × delay ", ha="right", va="bottom", color="grey")
    above.set_ylabel("congestion window\n(packets)")
    above.set_ylim(0)
    below.plot(at, [row["mbit_per_s"] for row in rows], color=COLOURS[0], label="goodput")
    below.set_ylabel("goodput (Mbit/s)")
    below.set_xlabel("seconds")
    below.set_ylim(0, 125)
    delay = below.twinx()
    delay.plot(at, [row["rtt_ms"] for row in rows], color=COLOURS[1], linewidth=1)
    delay.set_ylabel("round trip (ms)", color=COLOURS[1])
    delay.set_ylim(0, 500)
    delay.spines["right"].set_visible(True)
    save(figure, path)


def shared_path(rows: list[Row], path: Path) -> None:
    """Four flows that begin two seconds apart."""
    flows: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        flows[int(row["flow"])].append(row)
    figure, axes = plt.subplots(figsize=(8, 3.5))
    for flow, of_flow in sorted(flows.items()):
        axes.plot([row["time_s"] for row in of_flow], [row["window_packets"] for row in of_flow],
                  color=COLOURS[flow], label=f"flow {flow + 1}", linewidth=1.2)
    axes.axhline(100, color="grey", linestyle=":", linewidth=1, label="bandwidth × delay ÷ 4")
    axes.set_xlabel("seconds")
    axes.set_ylabel("congestion window (packets)")
    axes.set_ylim(0, 520)
    axes.legend(frameon=False, ncols=5, loc="upper right",
                fontsize=9)
    save(figure, path)


def response(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    for colour, rtt in zip(COLOURS, sorted({row["rtt_ms"] for row in rows}), strict=False):
        mine = [row for row in rows if row["rtt_ms"] == rtt]
        loss = [row["loss"] for row in mine]
        axes.loglog(loss, [row["rfc_packets"] for row in mine], color=colour, linewidth=1)
        axes.loglog(loss, [row["measured_packets"] for row in mine], "o", color=colour,
                    label=f"{rtt:.0f} ms")
    axes.set_xlabel("loss probability")
    axes.set_ylabel("packets a round trip")
    axes.legend(frameon=False, title="round trip (lines: RFC 9438)")
    save(figure, path)


def goodput(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3.5))
    loss = [row["loss_percent"] for row in rows]
    for colour, key, label in ((COLOURS[0], "all_gaps", "all gaps (penstock)"),
                               (COLOURS[1], "single_gap", "one gap at a time")):
        axes.plot(loss, [row[key] / 1024 for row in rows], "o-", color=colour, label=label)
    axes.set_xlabel("random loss (%)")
    axes.set_ylabel("goodput (KiB/s)")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    save(figure, path)


def implosion(rows: list[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3.5))
    receivers = [row["receivers"] for row in rows]
    axes.loglog(receivers, [row["none"] for row in rows], color="grey", linestyle=":",
                label="no back-off")
    for colour, size in zip(COLOURS, (10, 100, 1000), strict=False):
        axes.loglog(receivers, [row[f"group_size_{size}"] for row in rows], color=colour,
                    label=f"configured for {size}")
    axes.set_xlabel("receivers that miss the same datagram")
    axes.set_ylabel("NAKs for one loss")
    axes.legend(frameon=False)
    save(figure, path)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tests, out = Path(arguments[0]), Path(arguments[1])
    out.mkdir(parents=True, exist_ok=True)
    congestion, recovery = tests / "test_congestion", tests / "test_loss_recovery"
    fat_path(rows_of(congestion, "fat"), out / "cubic-fat-path.svg")
    shared_path(rows_of(congestion, "shared"), out / "cubic-shared-path.svg")
    response(rows_of(congestion, "response"), out / "cubic-response.svg")
    goodput(rows_of(congestion, "goodput"), out / "loss-goodput.svg")
    implosion(rows_of(recovery, "implosion"), out / "nak-implosion.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
