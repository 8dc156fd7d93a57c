# SPDX-License-Identifier: Apache-2.0
"""Results as tables: on the terminal, and in ``bench/README.md``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.contest import ENTRIES, ROWS, Result, middle

_BEGIN: Final = "<!-- results begin: written by 'make bench-readme' -->"
_END: Final = "<!-- results end -->"
_COLUMNS: Final = ("median", "Gb/s", "p50 µs", "p99 µs", "CPU ns/msg", "lowest", "highest")
Results = dict[str, dict[str, list[Result]]]


def ratio_rows(results: dict[str, list[Result]]) -> list[tuple[str, str, str, str]]:
    """(work, ratio, goal, verdict) of every comparison that has its numbers."""
    rows = []
    for row in ROWS:
        ratio = row.ratio(results)
        if ratio is None:
            continue
        sign = "≥" if row.at_least else "≤"
        verdict = "yes" if row.reached(ratio) else "no"
        digits = f"{ratio:.4f}" if ratio < 0.1 else f"{ratio:.2f}"
        goal = f"{sign} {row.goal:g}" + (" (aim)" if row.aim else "")
        rows.append((row.title, digits, goal, verdict))
    return rows


def number_rows(results: dict[str, list[Result]]) -> list[tuple[str, ...]]:
    """One line for each contender that was measured."""
    rows: list[tuple[str, ...]] = []
    for entry in ENTRIES:
        done = results.get(entry.key, [])
        if not done:
            continue
        metric, scale, unit = _headline(done)
        values = sorted(result[metric] for result in done if metric in result)
        main = middle(done, metric)
        assert main is not None
        rows.append(
            (
                entry.title,
                f"{main * scale:,.3g} {unit}",
                _cell(middle(done, "gbit_s"), 2) if unit == "M/s" else "",
                _cell(middle(done, "p50_us"), 1),
                _cell(middle(done, "p99_us"), 1),
                _cell(middle(done, "cpu_ns_per_msg"), 0),
                f"{values[0] * scale:,.3g}",
                f"{values[-1] * scale:,.3g}",
            )
        )
    return rows


def _headline(done: list[Result]) -> tuple[str, float, str]:
    """(metric, scale, unit) of what a work is about."""
    if "worst_daemon_core" in done[0]:
        return "worst_daemon_core", 100.0, "% of a core"
    if "cpu_ratio" in done[0]:
        return "cpu_ratio", 1.0, "times the CPU"
    if "p50_us" in done[0]:
        return "msgs_per_s", 1e-3, "k trips/s"
    return "msgs_per_s", 1e-6, "M/s"


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def show(document: dict[str, Any]) -> None:
    """Both tables of each network on standard output."""
    console = Console(width=max(110, Console().width))
    for network, results in document["results"].items():
        table = Table(title=f"penstock beside its peers, over {network}")
        for name in ("work: peer", "ratio", "goal", "reached"):
            table.add_column(name, justify="left" if name == "work: peer" else "right")
        for row in ratio_rows(results):
            table.add_row(*row, style="green" if row[3] == "yes" else "red")
        console.print(table)
        numbers = Table(title=f"medians over {network}")
        for name in ("contender", *_COLUMNS):
            numbers.add_column(name, justify="left" if name == "contender" else "right")
        for line in number_rows(results):
            numbers.add_row(*line)
        console.print(numbers)
    for failure in document["failures"]:
        console.print(f"failed: {failure['key']} over {failure['network']}: {failure['error']}",
                      style="red", markup=False)


def markdown(document: dict[str, Any]) -> str:
    """The part of the README that the numbers make."""
    machine, options = document["machine"], document["options"]
    settings = options["settings"]
    lines = [
        f"Measured on {document['when']}: {machine['cpu']}, {machine['cpus']} CPUs, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, "
        f"{machine['java']}, Aeron {machine['aeron']}, pyzmq {machine['pyzmq']}, "
        f"Zenoh {machine['zenoh']}; penstock at {machine['commit']}.",
        "",
        f"{options['rounds']} interleaved rounds of {options['seconds']:g} s after "
        f"{settings['warmup_s']:g} s of warm-up (Java 3 s); for all: MTU {settings['mtu']}, terms "
        f"of {settings['term_length']:,} bytes, receiver window {settings['window']:,}, socket "
        f"buffers {settings['so_buffers']:,}.",
        "",
        f"Command: `{options['command']}`",
        "",
    ]
    for network, results in document["results"].items():
        lines += [f"### Over {network}", "", "| work: peer | ratio | goal | reached |",
                  "|---|---:|---:|---|"]
        lines += [f"| {' | '.join(row)} |" for row in ratio_rows(results)]
        lines += ["", f"| contender | {' | '.join(_COLUMNS)} |",
                  "|---|" + "---:|" * len(_COLUMNS)]
        lines += [f"| {' | '.join(row)} |" for row in number_rows(results)]
        lines.append("")
    lines += [
        f"Failed: {one['key']} over {one['network']}: {one['error'][:200]}"
        for one in document["failures"]
    ]
    return "\n".join(lines).rstrip() + "\n"


def write_readme(path: Path, document: dict[str, Any]) -> None:
    """Replace the text between the markers."""
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(_BEGIN) + r".*?" + re.escape(_END), re.DOTALL)
    body = f"{_BEGIN}\n\n{markdown(document)}\n{_END}"
    if not pattern.search(text):
        raise SystemExit(f"{path}: the markers of the results are missing")
    path.write_text(pattern.sub(lambda _match: body, text), encoding="utf-8")
