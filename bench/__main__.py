# SPDX-License-Identifier: Apache-2.0
"""``python -m bench run`` measures, ``show`` prints the tables, ``readme`` writes them down."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs
import click

from bench import report
from bench.contenders import BUILD, ROOT
from bench.contest import ENTRIES
from penstock._bench.processes import BenchError
from penstock._bench.runner import Settings

RESULTS: Final = BUILD / "results.json"


@click.group()
def cli() -> None:
    """penstock beside its peers."""


@cli.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.2), default=3.0, show_default=True)
@click.option("--only", multiple=True, help="Start of a contender's key; may repeat.")
@click.option("--network", "networks", type=click.Choice(["loopback", "veth"]), multiple=True,
              help="Default: both as root, else loopback.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS)
def run(
    rounds: int, seconds: float, only: tuple[str, ...], networks: tuple[str, ...], output: Path
) -> None:
    """Measure all contenders in turn, round after round."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = networks or (("loopback", "veth") if os.geteuid() == 0 else ("loopback",))
    entries = [one for one in ENTRIES if not only or one.key.startswith(only)]
    settings = Settings(seconds=seconds)
    command = f"python -m bench run --rounds {rounds} --seconds {seconds:g}"
    document: dict[str, Any] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": _machine(),
        "options": {
            "rounds": rounds, "seconds": seconds, "settings": attrs.asdict(settings),
            "command": command + "".join(f" --only {one}" for one in only),
        },
        "results": {name: {} for name in chosen},
        "failures": [],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, rounds + 1):
        for name in chosen:
            for entry in entries:
                if name == "veth" and not entry.veth:
                    continue
                here = attrs.evolve(settings, veth=name == "veth")
                _measure(document, name, entry, here, f"round {number} of {rounds}")
        output.write_text(json.dumps(document, indent=1), encoding="utf-8")
    report.show(document)
    click.echo(f"results: {output}")


def _measure(
    document: dict[str, Any], network: str, entry: Any, settings: Settings, progress: str
) -> None:
    begin = time.monotonic()
    try:
        result = entry.run(settings)
    except (BenchError, OSError) as error:
        document["failures"].append({"key": entry.key, "network": network, "error": str(error)})
        click.echo(f"{progress}, {network}: {entry.title}: {error}", err=True)
        return
    if result.get("hash_ok") is False:
        document["failures"].append(
            {"key": entry.key, "network": network, "error": "messages were lost or changed"}
        )
        return
    document["results"][network].setdefault(entry.key, []).append(result)
    rate = result.get("msgs_per_s")
    said = f"{rate:,.0f} a second" if rate else ""
    click.echo(
        f"{progress}, {network}: {entry.title}: {said} ({time.monotonic() - begin:.0f} s)", err=True
    )


@cli.command()
@click.option("--input", "path", type=click.Path(path_type=Path), default=RESULTS)
def show(path: Path) -> None:
    """Print the tables of the last run."""
    report.show(json.loads(path.read_text(encoding="utf-8")))


@cli.command()
@click.option("--input", "path", type=click.Path(path_type=Path), default=RESULTS)
def readme(path: Path) -> None:
    """Write the tables of the last run into bench/README.md."""
    target = ROOT / "bench" / "README.md"
    report.write_readme(target, json.loads(path.read_text(encoding="utf-8")))
    click.echo(str(target))


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _said("java", "--version").split("\n")[0],
        "aeron": ", ".join(
            sorted(path.stem.removeprefix("aeron-all-") for path in
                   (BUILD / "aeron" / "lib").glob("aeron-all-*.jar"))
        ),
        "pyzmq": version("pyzmq"),
        "zenoh": ", ".join(
            path.name.split("-")[1].removesuffix(".dist")
            for path in (BUILD / "site").glob("eclipse_zenoh-*.dist-info")
        ),
        "commit": _said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip()


if __name__ == "__main__":
    cli()
