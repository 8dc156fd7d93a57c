# SPDX-License-Identifier: Apache-2.0
"""Walk the pressure of a daemon from 0 up and back by load alone: ``python -m bench.pressure``.

Between two daemons on loopback, a growing number of streams publishes as fast as it can, and then a
falling number. Ten times a second the command reads the governor's sample. Each second the
processes report the bytes of each band, the waits of three probes, and the refusals. At the end the
command compares every message with the expected one, and prints the measured values by level of
pressure.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs
import click

from bench.contenders import BUILD
from bench.pressure_load import BANDS, PROBES
from penstock._bench import runner
from penstock._bench.network import free_port, network
from penstock._bench.processes import BenchError, Process
from penstock.core.admin import Shared

RESULTS: Final = BUILD / "pressure.json"
STEPS: Final = (1, 4, 16, 48, 100, 200, 400, 800, 400, 200, 100, 48, 16, 4, 1)
SAMPLE_S: Final = 0.1
#: Lower bounds of the levels that docs/scheduling.md describes.
LEVELS: Final = (("healthy", 0.0), ("mild", 0.2), ("heavy", 0.4), ("severe", 0.8), ("full", 0.98))
_START_S: Final = 60.0
_SETTINGS: Final = runner.Settings(term_length=64 * 1024)
_TABLES: Final = {"scheduler": {"governor": True}, "sockets": {"rcvbuf_bytes": 4 << 20}}


@attrs.frozen(kw_only=True)
class Second:
    """One measured second."""

    at_s: float
    busy: int
    pressure: float                     # mean of the samples, as the signals
    depth: float
    latency: float
    busy_share: float
    throttled: int
    bytes: dict[str, int]               # by band
    wait_ms: dict[str, tuple[float, float] | None]      # by probe: median, 99th percentile


@contextlib.contextmanager
def processes(streams: int) -> Iterator[tuple[Path, dict[str, Process]]]:
    """Start two daemons, the load and the probes; end them after the block."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(network(veth=False))
        running = stack.enter_context(runner.hosts(_SETTINGS, where, tables=_TABLES))
        near, far = running.near, running.far
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        started = {}
        for role, directory in (("sub", far), ("measure", far), ("pub", near), ("probe", near)):
            started[role] = stack.enter_context(Process([
                sys.executable, "-m", "bench.pressure_load", role, str(directory), channel,
                str(streams),
            ]))
        for process in started.values():
            process.expect("ready", _START_S)
        yield near, started


def walk(
    shared: Shared, running: dict[str, Process], steps: tuple[int, ...], seconds: int
) -> list[Second]:
    """Measure ``seconds`` at each step."""
    found: list[Second] = []
    begin = time.monotonic()
    before = [0] * len(BANDS)
    throttled = 0
    for busy in steps:
        running["pub"].say(str(busy))
        for _ in range(seconds):
            end = time.monotonic() + 1.0
            samples = []
            while time.monotonic() < end:
                samples.append(shared.read_scheduler(time.monotonic_ns()))
                time.sleep(SAMPLE_S)
            facts = {role: _second(running[role], end - 1.0) for role in ("pub", "sub", "measure")}
            now = facts["sub"]["bytes"]
            names = [name for name, _, _ in BANDS]
            mean = _mean([[sample.pressure, *sample.signals.values()] for sample in samples])
            found.append(Second(
                at_s=time.monotonic() - begin, busy=busy, pressure=mean[0], depth=mean[1],
                latency=mean[2], busy_share=mean[3],
                throttled=facts["pub"]["throttled"] - throttled,
                bytes=dict(zip(names, (a - b for a, b in zip(now, before, strict=True)),
                               strict=True)),
                wait_ms=facts["measure"]["milliseconds"],
            ))
            before, throttled = now, facts["pub"]["throttled"]
    return found


def _second(process: Process, since_s: float) -> dict[str, Any]:
    """Return the first report at ``since_s`` (CLOCK_MONOTONIC) or later."""
    while True:
        line = process.expect("second", 30.0)
        if line["at_s"] >= since_s:
            return line


def _mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def finish(running: dict[str, Process]) -> dict[str, int]:
    """End the load, then the readers; return what was accepted, delivered and wrong."""
    ends = {}
    for role in ("probe", "pub", "sub", "measure"):
        running[role].close_input()
        ends[role] = running[role].expect("done", 120.0)
    return {
        "accepted": ends["pub"]["accepted"], "delivered": ends["sub"]["messages"],
        "wrong": ends["sub"]["wrong"],
    }


def level(pressure: float) -> str:
    """Return the name of the level."""
    return [name for name, least in LEVELS if pressure >= least][-1]


def table(found: list[Second]) -> list[dict[str, Any]]:
    """Return one row for each level that was reached: medians over its seconds."""
    rows = []
    for name, _ in LEVELS:
        of = [second for second in found if level(second.pressure) == name]
        if not of:
            continue
        sums = {band: sum(second.bytes[band] for second in of) for band, _, _ in BANDS}
        rows.append({
            "level": name, "seconds": len(of),
            "streams": sorted({second.busy for second in of}),
            "wait_ms": {probe: _median_wait(of, probe) for probe, _, _ in PROBES},
            "share": {band: count / max(1, sum(sums.values())) for band, count in sums.items()},
            "throttled_per_s": sum(second.throttled for second in of) / len(of),
        })
    return rows


def _median_wait(of: list[Second], probe: str) -> tuple[float, float] | None:
    waits = [found for second in of if (found := second.wait_ms[probe]) is not None]
    return (median(w[0] for w in waits), median(w[1] for w in waits)) if waits else None


@click.command()
@click.option("--seconds", default=3, show_default=True, type=click.IntRange(1),
              help="Seconds at each step.")
@click.option("--steps", default=",".join(map(str, STEPS)), show_default=True,
              help="Numbers of busy streams.")
@click.option("--json", "out", type=click.Path(path_type=Path), default=RESULTS,
              show_default=True, help="File for all measured seconds.")
def main(seconds: int, steps: str, out: Path) -> None:
    """Walk the pressure up and back by load."""
    numbers = tuple(int(step) for step in steps.split(","))
    with processes(max(numbers)) as (near, running):
        shared = Shared.open(str(near))
        try:
            found = walk(shared, running, numbers, seconds)
        finally:
            shared.close()
        ends = finish(running)
    rows = table(found)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({
        "load_average": os.getloadavg(), **ends, "levels": rows,
        "seconds": [attrs.asdict(second) for second in found],
    }, indent=1), encoding="utf-8")
    for row in rows:
        click.echo(_line(row))
    click.echo("accepted {accepted:,}, delivered {delivered:,}, wrong {wrong:,}".format(**ends))
    if ends["wrong"] or ends["accepted"] != ends["delivered"]:
        raise click.ClickException("messages were lost or reordered")


def _line(row: dict[str, Any]) -> str:
    waits = ", ".join(
        f"{name} {found[0]:.1f}/{found[1]:.1f} ms" for name, found in row["wait_ms"].items()
        if found is not None
    )
    shares = ", ".join(f"{name} {share:.0%}" for name, share in row["share"].items())
    return (f"{row['level']:8} {row['seconds']:3} s  streams {row['streams']}  median/p99 {waits}"
            f"  shares {shares}  throttled {row['throttled_per_s']:.0f}/s")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        raise SystemExit(str(error)) from error
