# SPDX-License-Identifier: Apache-2.0
"""The picture and the table of the policies in docs/strategy-comparison.md: the scenario
``policies`` under every back-pressure policy, in the simulator.

    python tools/plots/policies.py OUT_DIR        run from the root of the sources
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from style import BLUE, GREY, RED, plt, save

from penstock.sim import files, library
from penstock.sim.compare import BIN_NS, Series, measure, policed
from penstock.sim.scenario import SECOND_NS

UNTIL_S: Final = 16
SLOW_S, FAST_S = 4, 12
TOP_KIB: Final = 260
#: Name in the table, parameters of the publication, and of the slow subscription.
POLICIES: Final = (
    ("none", "", ""),
    ("block", "ps-policy=block|ps-depth=32k", ""),
    ("drop_newest", "ps-policy=drop_newest|ps-depth=32k", ""),
    ("drop_oldest", "ps-policy=drop_oldest|ps-depth=32k", ""),
    ("error", "ps-policy=error|ps-depth=32k", ""),
    ("rate_limit", "ps-policy=rate_limit|ps-rate=400msg", ""),
    ("independent", "", "ps-sub-policy=independent"),
)


def run(publication: str, subscription: str, name: str) -> Series:
    """Return the measurements of one policy."""
    scenario = files.load(library.path_of("policies"))
    return measure(policed(scenario, publication, subscription), name,
                   until_ns=UNTIL_S * SECOND_NS)


def row(series: Series) -> list[float]:
    """Return the numbers of a policy's row, in the order of the table's columns."""
    return [
        series.rate(5, 12) / 1000, series.refusals, series.dropped[-1],
        sum(series.delivered[1]) / 1000, series.missed[1][-1],
        series.latency_ms(0, 5, 12)[0], series.latency_ms(1, 5, 12)[0],
    ]


def table(found: list[tuple[str, Series]]) -> str:
    """Markdown."""
    lines = [
        "| Policy | Accepted while c is slow | Refused offers | Dropped by the publication "
        "| c gets | c skips | Latency of b | Latency of c |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, series in found:
        rate, refused, dropped, got, skipped, near, far = row(series)
        lines.append(
            f"| `{name}` | {rate:.0f} kB/s | {refused:,.0f} | {dropped:,.0f} | {got:,.0f} "
            f"| {skipped:,.0f} | {near:.0f} ms | {far:.0f} ms |"
        )
    return "\n".join(lines)


def _panels(left: Any, right: Any, name: str, series: Series) -> None:
    times = [(i + 0.5) * BIN_NS / SECOND_NS for i in range(len(series.published[0]))]
    for axis in (left, right):
        axis.axvspan(SLOW_S, FAST_S, color=RED, alpha=0.07, linewidth=0)
        axis.set_xlim(0, UNTIL_S)
        axis.set_xticks(range(0, UNTIL_S + 1, 4))
    scale = SECOND_NS / BIN_NS / 1e6
    left.fill_between(times, [n * scale for n in series.published[0]], color=GREY, alpha=0.35,
                      linewidth=0, label="accepted")
    for index, colour, label in ((0, BLUE, "read by b"), (1, RED, "read by c")):
        left.plot(times, [n * scale for n in series.delivered[index]], color=colour,
                  linewidth=1.2, label=label)
        behind = [float("nan") if n is None else n / 1024 for n in series.behind[index]]
        right.plot(times, behind, color=colour, linewidth=1.4)
    left.set_ylim(0, 2)
    left.set_yticks([0, 1, 2])
    left.set_title(name, loc="left", fontweight="bold")
    left.set_ylabel("MB/s")
    right.set_ylim(0, TOP_KIB)
    right.set_yticks([0, 128, 256])
    right.set_ylabel("behind, KiB")
    lost = [(series.dropped[-1], "dropped for all"), (series.missed[1][-1], "skipped by c")]
    words = ", ".join(f"{count:,} {what}" for count, what in lost if count)
    right.set_title(words or "no message is lost", loc="right", color=RED if words else GREY)


def draw(found: list[tuple[str, Series]], path: Path) -> None:
    """Draw rates and backlogs, one row for each policy."""
    figure, axes = plt.subplots(len(found), 2, figsize=(8.8, 1.6 * len(found) + 0.9), sharex=True)
    for (left, right), (name, series) in zip(axes, found, strict=True):
        _panels(left, right, name, series)
    for axis in axes[-1]:
        axis.set_xlabel(f"seconds (c is slow from {SLOW_S} to {FAST_S})")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 0.975))
    save(figure, path, tight=False)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    found = [(name, run(publication, subscription, name))
             for name, publication, subscription in POLICIES]
    draw(found, out / "policy-comparison.svg")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
