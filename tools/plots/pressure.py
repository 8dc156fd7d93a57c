# SPDX-License-Identifier: Apache-2.0
"""The picture and the table of docs/scheduling.md, from the result of ``python -m bench.pressure``.

    python tools/plots/pressure.py RESULT.json OUT_DIR docs/scheduling.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from style import BLUE, COLOURS, GREEN, GREY, NAVY, RED, YELLOW, plt, save

BEGIN, END = "<!-- measured pressure -->\n", "<!-- end of measured pressure -->\n"
LEVELS = {
    "healthy": "below 0.2", "mild": "0.2 to 0.4", "heavy": "0.4 to 0.8", "severe": "0.8 to 0.98",
    "full": "0.98 and above",
}
PROBES = {"B4": (RED, "priority 900 (B4)"), "auto": (BLUE, "no stated priority"),
          "B0": (GREY, "priority −500 (B0)")}
BANDS = {"B4": "priority 800", "B2": "priority 300", "auto": "no stated priority",
         "B0": "priority −100"}


def draw(result: dict[str, Any], path: Path) -> None:
    seconds = result["seconds"]
    at = [second["at_s"] for second in seconds]
    figure, (signals, waits, shares, refusals) = plt.subplots(
        4, 1, figsize=(8, 9), sharex=True, height_ratios=(3, 3, 2, 2)
    )
    signals.plot(at, [second["pressure"] for second in seconds], color=RED, linewidth=2,
                 label="pressure")
    for key, colour, label in (("depth", BLUE, "depth"), ("latency", YELLOW, "latency"),
                               ("busy_share", GREY, "busy")):
        signals.plot(at, [second[key] for second in seconds], color=colour, linewidth=1,
                     label=label)
    signals.set_ylabel("pressure, signals")
    signals.set_ylim(0, 1.05)
    signals.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    steps = signals.twinx()
    steps.step(at, [second["busy"] for second in seconds], where="mid", color=NAVY,
               linestyle=":", linewidth=1)
    steps.set_ylabel("busy streams (dotted)")
    for name, (colour, label) in PROBES.items():
        found = [(second["at_s"], second["wait_ms"][name]) for second in seconds
                 if second["wait_ms"][name] is not None]
        waits.plot([x for x, _ in found], [w[0] for _, w in found], color=colour, label=label)
        waits.plot([x for x, _ in found], [w[1] for _, w in found], color=colour, linestyle=":")
    waits.set_yscale("log")
    waits.set_ylabel("latency (ms): median,\n99th percentile dotted")
    waits.legend(loc="upper left")
    sums = [max(1, sum(second["bytes"].values())) for second in seconds]
    shares.stackplot(
        at, [[100 * second["bytes"][band] / total
              for second, total in zip(seconds, sums, strict=True)] for band in BANDS],
        labels=list(BANDS.values()), colors=COLOURS, alpha=0.8,
    )
    shares.set_ylabel("share of bytes (%)")
    shares.set_ylim(0, 100)
    shares.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=4, fontsize=8)
    refusals.plot(at, [second["throttled"] for second in seconds], color=GREEN)
    refusals.set_ylabel("offers with\nTHROTTLED a second")
    refusals.set_xlabel("time (s)")
    save(figure, path)


def table(result: dict[str, Any]) -> str:
    lines = [
        "| Pressure | Busy streams | Latency B4, median and 99 % | no stated priority | B0 | "
        "Share of B4 : B2 : none : B0 | `THROTTLED` a second |",
        "|---|---|---|---|---|---|---:|",
    ]
    for row in result["levels"]:
        least, most = min(row["streams"]), max(row["streams"])
        streams = f"{least}" if least == most else f"{least} to {most}"
        cells = [LEVELS[row["level"]], streams]
        cells += [f"{wait[0]:.1f} and {wait[1]:.1f} ms" for wait in row["wait_ms"].values()]
        cells.append(" : ".join(f"{100 * share:.0f}" for share in row["share"].values()))
        cells.append(f"{row['throttled_per_s']:,.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Each row summarises those seconds of the run in which the mean pressure was in the range "
        "of the row.",
        "In a second with a lower mean, the pressure can exceed 0.98 for a moment, so rows with a "
        "lower mean also have throttled offers.",
        f"In the measured run the publishers accepted {result['accepted']:,} messages, and the "
        f"readers got {result['delivered']:,},",
        "each stream in order. The load average of the machine was "
        f"{result['load_average'][0]:.0f}, on two processors.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    result = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    draw(result, Path(arguments[1]) / "pressure-walk.svg")
    page = Path(arguments[2])
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(head + BEGIN + table(result) + END + rest.partition(END)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
