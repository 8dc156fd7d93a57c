# SPDX-License-Identifier: Apache-2.0
"""Compare the speed of two commits in interleaved pairs: ``python -m bench.pairs OLD NEW``.

Both commits are built below ``build/pairs``.  A pair measures both, one after the other, in
alternating order, so that both meet the same load.  The result of a row is the median of the
ratios NEW / OLD over its pairs: of messages a second, and of CPU time a message.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import click

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "build" / "pairs"
PACKAGES: Final = ("client", "config", "core", "daemon", "sim", "spark_bridge")
ROWS: Final = {
    "udp 1344 B native": ("udp", "--client", "native", "--size", "1344"),
    "udp 32 B native": ("udp", "--client", "native", "--size", "32"),
    "ipc 32 B native": ("ipc", "--client", "native", "--size", "32"),
    "udp 32 B Python": ("udp", "--client", "python", "--size", "32"),
    "udp 32 B Python batches": ("udp", "--client", "batch", "--size", "32"),
}
METRICS: Final = ("msgs_per_s", "cpu_ns_per_msg")
LOWEST: Final = 0.97
HIGHEST: Final = 1.03


def build(commit: str) -> Path:
    """Return a folder with the commit's package, built in place."""
    name = _git("rev-parse", "--short=12", f"{commit}^{{commit}}")
    tree = PLACE / name
    if not _site(tree).is_dir():
        tree.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", name], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        _compile(tree)
    return _site(tree)


def build_here() -> Path:
    """Return a folder with the package of this folder, whose extensions are built."""
    tree = PLACE / "here"
    shutil.rmtree(tree, ignore_errors=True)
    _lay_out(ROOT, _site(tree))
    return _site(tree)


def build_changed(name: str, change: Callable[[Path], None]) -> Path:
    """Return a folder with the package of the files of this folder that git knows, after a change
    of the copied tree. Each call builds the package anew."""
    tree = PLACE / name
    shutil.rmtree(tree, ignore_errors=True)
    for file in _git("ls-files").splitlines():
        copy = tree / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).is_file():
            shutil.copy2(ROOT / file, copy)
    change(tree)
    _compile(tree)
    return _site(tree)


def _site(tree: Path) -> Path:
    return tree / "build" / "site"


def _compile(tree: Path) -> None:
    """Build the extensions of a copied tree, and lay out its package."""
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tree, check=True
    )
    _lay_out(tree, _site(tree))


def _lay_out(tree: Path, site: Path) -> None:
    package = site / "penstock"
    package.mkdir(parents=True)
    for path in (*(tree / "penstock").iterdir(), *(tree / folder for folder in PACKAGES)):
        (package / path.name).symlink_to(path)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def measure(site: Path, row: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Return one result; :raises click.ClickException: messages were lost."""
    command = [
        sys.executable, "-m", "penstock", "bench", *row, "--seconds", str(seconds), "--warmup",
        str(seconds / 4), "--json",
    ]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    if not result["hash_ok"]:
        raise click.ClickException(f"{' '.join(row)}: messages were lost or changed")
    return result


@click.command()
@click.argument("old")
@click.argument("new", default="HEAD")
@click.option("--pairs", type=click.IntRange(3), default=10, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.2), default=2.0, show_default=True)
@click.option("--only", multiple=True, help="Start of a row's name; may repeat.")
def main(old: str, new: str, pairs: int, seconds: float, only: tuple[str, ...]) -> None:
    """Measure OLD and NEW in interleaved pairs; fail if a median of rates leaves 0.97 to 1.03."""
    sites = (build(old), build(new))
    outside = []
    for name, row in ROWS.items():
        if only and not name.startswith(only):
            continue
        ratios: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for number in range(pairs):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {side: measure(sites[side], row, seconds) for side in order}
            for metric, values in ratios.items():
                values.append(found[1][metric] / found[0][metric])
        for metric, values in ratios.items():
            low, _, high = quantiles(values, n=4)
            click.echo(
                f"{name:24} {metric:15} median {median(values):.3f}, quartiles {low:.3f} to "
                f"{high:.3f}, {len(values)} pairs"
            )
        if not LOWEST <= median(ratios["msgs_per_s"]) <= HIGHEST:
            outside.append(name)
    if outside:
        raise click.ClickException(f"outside {LOWEST} to {HIGHEST}: {', '.join(outside)}")


if __name__ == "__main__":
    main()
