# SPDX-License-Identifier: Apache-2.0
"""The picture and the tables of docs/strategy-comparison.md: the scenario ``overload`` under every
strategy, in the simulator; under nak with three cadences of the slow reader.

    python tools/plots/comparison.py OUT_DIR        run from the root of the sources
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))    # for demo.floor

from style import BLUE, GREY, RED, plt, save

from penstock.sim import files, library
from penstock.sim.compare import BIN_NS, STRATEGIES, Series, at_cadence, observe
from penstock.sim.scenario import MS_NS, SECOND_NS

UNTIL_S = 28
JOINS_S, DIES_S = 4, 17
TOP_KIB = 420
FLOOR = "py:demo.floor:Floor"
#: Cadences of d beside that of the scenario: messages, ms.
CADENCES = ((1, 2.5), (40, 100))
TITLES = {
    "unicast": "unicast: a stream of its own for each receiver",
    "max": "fc=max",
    "min": "fc=min",
    "tagged,g:7": "fc=tagged,g:7 (preferred): b and c have the tag",
    "nak": "fc=nak",
    FLOOR: "fc=py:floor:Floor, a strategy in Python",
}


def runs() -> list[tuple[str, str, Series]]:
    """Name in the tables, title of the picture, and the run."""
    scenario = files.load(library.path_of("overload"))
    found = []
    for strategy in (*STRATEGIES, FLOOR):
        run = observe(scenario, strategy, until_ns=UNTIL_S * SECOND_NS)
        found.append((f"`{strategy}`", TITLES[strategy], run))
        for batch, ms in CADENCES if strategy == "nak" else ():
            other = at_cadence(scenario, batch, int(ms * MS_NS))
            words = f"{batch} each {ms:g} ms"
            run = observe(other, strategy, until_ns=UNTIL_S * SECOND_NS)
            found.append((f"`{strategy}`, {words}", f"fc=nak, d reads {words}", run))
    return found


def _phases(axis: Any) -> None:
    axis.axvspan(JOINS_S, DIES_S, color=RED, alpha=0.07, linewidth=0)
    axis.axvline(DIES_S, color=RED, linewidth=0.8, linestyle=":")
    axis.set_xlim(0, UNTIL_S)
    axis.set_xticks(range(0, UNTIL_S + 1, 4))


def _smooth(bins: Sequence[int]) -> list[float]:
    """MB/s, each the mean of half a second around it: d reads in lumps of 50 ms."""
    found = []
    for i in range(len(bins)):
        near = bins[max(0, i - 2):i + 3]
        found.append(sum(near) / len(near) * SECOND_NS / BIN_NS / 1e6)
    return found


def _rates(axis: Any, times: list[float], title: str, run: Series) -> None:
    axis.fill_between(times, _smooth(run.published[0]), color=GREY, alpha=0.35, linewidth=0,
                      label="published")
    axis.plot(times, _smooth(run.delivered[0]), color=BLUE, linewidth=1.6,
              label="taken by b (and c, the same)")
    axis.plot(times, _smooth(run.delivered[2]), color=RED, linewidth=1.4, label="taken by d")
    axis.set_ylim(0, 1.25)
    axis.set_yticks([0, 0.5, 1.0])
    axis.set_title(title, loc="left", fontweight="bold")


def _backlogs(axis: Any, times: list[float], run: Series) -> None:
    for index, colour, width in ((0, BLUE, 1.6), (2, RED, 1.4)):
        values = [float("nan") if b is None else b / 1024 for b in run.behind[index]]
        axis.plot(times, values, color=colour, linewidth=width)
    axis.set_ylim(0, TOP_KIB)
    axis.set_yticks([0, 128, 256, 384])
    missed = run.missed[2][-1]
    if missed:
        most = max(b or 0 for b in run.behind[2]) / 1024 / 1024
        axis.text(9.9, TOP_KIB * 0.6, f"up to {most:.0f} MiB\nbehind: it misses\n"
                  f"{missed:,} messages", color=RED, ha="center", va="center")
        axis.set_title("a Gap for d", loc="right", color=RED)
    else:
        axis.set_title("nobody misses anything", loc="right", color=GREY)


def draw(found: list[tuple[str, str, Series]], path: Path) -> None:
    figure, axes = plt.subplots(len(found), 2, figsize=(8.8, 1.75 * len(found) + 0.9), sharex=True)
    for (left, right), (_, title, run) in zip(axes, found, strict=True):
        times = [(i + 0.5) * BIN_NS / SECOND_NS for i in range(len(run.published[0]))]
        _phases(left)
        _phases(right)
        _rates(left, times, title, run)
        _backlogs(right, times, run)
        left.set_ylabel("MB/s")
        right.set_ylabel("behind, KiB")
    for axis in axes[-1]:
        axis.set_xlabel("seconds (d joins at 4, dies at 17)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 0.975))
    save(figure, path, tight=False)


def tables(found: list[tuple[str, str, Series]]) -> str:
    """Markdown."""
    lines = [
        "| | Before d joins | d is slow | 3.5 s after its death | Publisher blocked for | d gets "
        "| d misses |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, _, run in found:
        rates = [run.rate(1, 4), run.rate(6, 16), run.rate(17.5, 21)]
        cells = [f"{rate / 1000:.0f} kB/s" for rate in rates]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {run.stalled_s():.1f} s "
            f"| {sum(run.delivered[2]) // 1000:,} messages | {run.missed[2][-1]:,} |"
        )
    lines += [
        "",
        "| | b, before | b, d is slow | d "
        "| Status messages a second before d is slow, and while d is slow | Signals |",
        "|---|---|---|---|---|---|",
    ]
    for name, _, run in found:
        told = run.status_messages
        acks = [(told[39] - told[9]) / 3, (told[159] - told[59]) / 10]
        waits = [run.latency_ms(0, 1, 4), run.latency_ms(0, 6, 16), run.latency_ms(2, 6, 16)]
        cells = [f"{median:.0f} ms, {worst:.0f} ms" for median, worst in waits]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {acks[0]:.0f}/s, {acks[1]:.0f}/s | {run.pressure} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    found = runs()
    draw(found, out / "strategy-comparison.svg")
    print(tables(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
