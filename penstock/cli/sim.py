# SPDX-License-Identifier: Apache-2.0
"""``penstock sim``: runs scenarios in the simulator."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from penstock.cli._common import json_option, print_json

if TYPE_CHECKING:
    from penstock.sim.runner import Result
    from penstock.sim.scenario import Scenario

_PICTURES: Final = (".png", ".svg", ".pdf")


@click.group("sim", short_help="The network simulator, on the production core.")
def command() -> None:
    """The network simulator. The simulator runs the production core in virtual time; the seed
    determines the whole run."""


def _scenario(name: str) -> Scenario:
    from penstock.sim import files, library

    path = Path(name)
    return files.load(path if path.suffix or path.exists() else library.path_of(name))


@command.command("list")
def list_scenarios() -> None:
    """List the names of the scenarios that are part of penstock."""
    from penstock.sim import files, library

    for name in library.names():
        click.echo(f"{name:24} {files.load(library.path_of(name)).about}")


def _picture(_ctx: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Check the file name of the picture, and load the plotting library, before a long run."""
    if path is not None and path.suffix not in _PICTURES:
        raise click.BadParameter(f"{path}: the file name ends in none of {', '.join(_PICTURES)}")
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"{path}: there is no such folder")
    if path is not None:
        from penstock.sim.plots.run import pyplot

        pyplot()
    return path


@command.command("run", short_help="Run a scenario from a seed.")
@click.argument("file")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same run.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), callback=_picture,
              help="Draw the run into this file (png, svg, pdf).")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path),
              help="Write events and samples into this file, as JSON lines.")
@json_option
def run_scenario(
    file: str, seed: int, plot: Path | None, trace: Path | None, as_json: bool
) -> None:
    """Run the scenario in FILE (or a scenario of penstock, by its name).

    The exit status is 1 if an oracle found a violation."""
    from penstock.sim.trace import lines
    from penstock.sim.world import World

    scenario = _scenario(file)
    with World(scenario, seed, record=plot is not None or trace is not None) as world:
        report = world.run()
        if trace is not None:
            trace.write_text("".join(f"{line}\n" for line in lines(world)), encoding="utf-8")
        if plot is not None:
            from penstock.sim.plots.run import plot as draw

            draw(world, plot)
    if as_json:
        print_json(attrs.asdict(report), indent=2)
    else:
        _describe(attrs.asdict(report))
    if report.violations:
        sys.exit(1)


@command.command("plot", short_help="Draw traces.")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...",
                type=click.Path(dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("trace.png"), show_default=True, callback=_picture,
              help="Where the picture goes (png, svg, pdf).")
def plot_traces(traces: tuple[Path, ...], output: Path) -> None:
    """Draw traces of 'penstock sim run --trace' or 'penstock daemon --trace' on one time axis. Give
    one trace file for each host."""
    from penstock.sim.plots.trace import plot

    plot(traces, output)


@command.command("compare", short_help="Run a scenario under several flow controls.")
@click.argument("file", default="overload")
@click.option("--strategy", "strategies", multiple=True, metavar="FC",
              help="As in a channel's fc=, or unicast; several times. Default: all built-in ones.")
@click.option("--seconds", type=click.IntRange(1, 3600), default=28, show_default=True,
              help="How long each run lasts, in virtual time.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same run.")
@json_option
def compare_strategies(
    file: str, strategies: tuple[str, ...], seconds: int, seed: int, as_json: bool
) -> None:
    """Run the scenario in FILE (or a scenario of penstock, by its name) once with each of several
    flow-control strategies. All runs have the same traffic, network and faults."""
    from penstock.sim.compare import STRATEGIES, compare
    from penstock.sim.scenario import SECOND_NS

    found = compare(
        _scenario(file), strategies or STRATEGIES, until_ns=seconds * SECOND_NS, seed=seed
    )
    if as_json:
        print_json([attrs.asdict(series) for series in found], indent=2)
        return
    for series in found:
        click.echo(
            f"{series.strategy:12} published {sum(series.published[0]):,} bytes; "
            f"published nothing for {series.stalled_s():.1f} s"
        )
        for name, got, missed in zip(series.names, series.delivered, series.missed, strict=True):
            click.echo(f"{'':12} {name} read {sum(got):,} bytes, missed {missed[-1]:,} messages")


@command.command("grid", short_help="Judge a control law over a sample of conditions.")
@click.argument("law", type=click.Choice(["nak"]))
@click.option("--seed", metavar="HEX", help="Of the sample; default: the first 8 digits of HEAD.")
@click.option("--cells", type=click.IntRange(1, 100_000), default=600, show_default=True,
              help="How many conditions.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="Runs of each: thin these, never the cells.")
@click.option("--workers", type=click.IntRange(1, 256), default=2, show_default=True,
              help="Processes.")
@click.option("--only", type=int, multiple=True, metavar="N", help="These cells; several times.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), callback=_picture,
              help="Draw what was read into this file (png, svg, pdf).")
@json_option
def judge_grid(
    law: str, seed: str | None, cells: int, seeds: int, workers: int, only: tuple[int, ...],
    plot: Path | None, as_json: bool,
) -> None:
    """Run scenarios for a random sample of conditions with fc=LAW.

    Each run has one set of conditions, a cell: read interval, rate, term length, round-trip time
    and size of the group. The command lists each failing cell and the cause of its failure. The
    exit status is 1 if fewer than 95 % of the cells pass, or if a reader gets less than 70 % of its
    attainable rate."""
    from penstock.sim.generate import grid

    name = seed or _commit()
    chosen = grid.sample(_seed_of(name), cells)
    chosen = [cell for cell in chosen if not only or cell.number in only]
    began_s = time.monotonic()
    outcomes: list[grid.Outcome] = []
    for outcome in grid.judge(chosen, seeds, workers):
        outcomes.append(outcome)
        if sys.stderr.isatty():
            click.echo(f"\r{len(outcomes)} of {len(chosen) * seeds} runs ", nl=False, err=True)
    found = grid.verdict(outcomes)
    if plot is not None:
        from penstock.sim.plots.grid import heat_maps

        heat_maps(outcomes, plot)
    if as_json:
        print_json({"seed": name, "runs": [attrs.asdict(o) for o in outcomes]}, indent=2)
    else:
        if only:
            for outcome in outcomes:
                click.echo(grid.report(outcome))
        for cell, cause in found.failures:
            click.echo(f"{grid.describe(cell)}: {cause}")
        click.echo(
            f"{law}, sample {name}: {found.passed} of {found.cells} cells pass; the slowest "
            f"reader got {found.worst_share:.1%} of its attainable rate r*; "
            f"{time.monotonic() - began_s:.0f} s, "
            f"{found.took_s:.0f} s of processor time"
        )
    if not found.holds:
        sys.exit(1)


def _seed_of(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not hexadecimal", param_hint="--seed") from None


def _commit() -> str:
    """Return the first 8 digits of the judged commit's hash."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.UsageError(
            f"git failed ({error}), so the sample has no seed: give --seed"
        ) from None
    return done.stdout[:8]


@command.command("fuzz")
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True,
              help="How many.")
@click.option("--start", type=int, default=1, show_default=True, help="The first.")
@click.option("--histogram", is_flag=True, help="How many scenarios had what in them.")
@click.option("--shrunk", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("shrunk.toml"), show_default=True,
              help="Where a failing scenario goes, made smaller.")
@click.option("--keep-going", is_flag=True, help="Run all seeds even when one fails.")
@json_option
def fuzz(
    seeds: int, start: int, histogram: bool, shrunk: Path, keep_going: bool, as_json: bool
) -> None:
    """Run generated scenarios.

    If scenarios fail, the command reduces the first of them to a smaller scenario that still fails,
    and writes the smaller scenario to a file. If a scenario fails, the exit status is 1, and the
    output contains the command that reproduces the failure."""
    from penstock.sim.runner import summarise, sweep

    results: list[Result] = []
    began_s = time.monotonic()
    for result in sweep(start, seeds):
        results.append(result)
        if result.violations:
            _report_failure(result, shrunk, first=sum(bool(r.violations) for r in results) == 1)
            if not keep_going:
                break
        if sys.stderr.isatty():
            took_s = time.monotonic() - began_s
            click.echo(
                f"\r{len(results)} of {seeds} seeds simulated in {took_s:.0f} s ",
                nl=False, err=True,
            )
    summary = attrs.asdict(summarise(results))
    if as_json:
        first = next((result for result in results if result.violations), None)
        print_json({**summary, "first": None if first is None else attrs.asdict(first)}, indent=2)
    else:
        _describe({k: v for k, v in summary.items() if k != "histogram"})
        if histogram:
            _bars(summary["histogram"], summary["seeds"])
    if summary["failed"]:
        sys.exit(1)


def _report_failure(result: Result, shrunk: Path, *, first: bool) -> None:
    from penstock.sim.files import dump
    from penstock.sim.generate.fuzz import generate
    from penstock.sim.runner import shrink

    click.echo(f"seed {result.seed}: {'; '.join(result.violations)}", err=True)
    click.echo(f"to repeat the run: penstock sim fuzz --seeds 1 --start {result.seed}", err=True)
    if first:
        small = shrink(generate(result.seed), result.seed)
        shrunk.write_text(dump(small), encoding="utf-8")
        click.echo(
            f"to run a smaller failing scenario: penstock sim run {shrunk} --seed {result.seed}",
            err=True,
        )


def _describe(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            text = ", ".join(f"{key} {inner:,}" for key, inner in value.items() if inner)
        elif isinstance(value, list | tuple):
            text = "; ".join(map(str, value)) or "none"
        elif isinstance(value, float):
            text = f"{value:,.1f}"
        else:
            text = f"{value:,}" if isinstance(value, int) else str(value)
        click.echo(f"{name:12} {text}")


def _bars(histogram: dict[str, int], seeds: int) -> None:
    for name, count in sorted(histogram.items(), key=lambda item: -item[1]):
        click.echo(f"{name:20} {count:6} {'#' * round(40 * count / max(1, seeds))}")
