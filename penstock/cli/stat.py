# SPDX-License-Identifier: Apache-2.0
"""``penstock stat``: what a daemon is doing, read from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.client._directory import daemon_directory
from penstock.client._inspect import open_counters, request_status

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_TIMEOUT_S = 5.0


@click.command("stat")
@click.option("--once", is_flag=True, help="Show once and end.")
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=1.0,
              show_default=True, help="Seconds between looks.")
@click.option("--all", "show_all", is_flag=True, help="Counters at zero too.")
@json_option
@directory_option
def command(
    once: bool, interval_s: float, show_all: bool, as_json: bool, directory: str | None
) -> None:
    """Show a daemon's streams and counters, again and again on a terminal.

    Needs no lease: shared memory is mapped read-only, and the daemon is asked for its status.
    """
    path = daemon_directory(directory)
    if as_json:
        while True:
            print_json(snapshot(path), indent=2 if once else None)
            if once:
                return
            time.sleep(interval_s)
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if once or not console.is_terminal:
        console.print(_render(snapshot(path), {}, interval_s, show_all))
        return
    previous: dict[int, int] = {}
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = snapshot(path)
            live.update(_render(now, previous, interval_s, show_all), refresh=True)
            previous = {counter["id"]: counter["value"] for counter in now["counters"]}
            time.sleep(interval_s)


def snapshot(directory: Path) -> dict[str, Any]:
    """Everything at one moment, as plain data: ``status`` from the daemon, ``counters`` and
    ``errors`` from ``cnc.dat``."""
    status = request_status(directory, _TIMEOUT_S)
    with open_counters(directory) as cnc:
        counters = [
            {
                "id": counter.counter_id,
                "type_id": counter.type_id,
                "value": counter.value,
                "label": counter.label,
                "registration_id": counter.registration_id,
                "owner_id": counter.owner_id,
            }
            for counter in cnc.counters()
        ]
        errors = [
            {
                "count": error.count,
                "first_ms": error.first_ms,
                "last_ms": error.last_ms,
                "text": error.text,
            }
            for error in cnc.errors()
        ]
        daemon = {"pid": cnc.pid(), "start_ms": cnc.start_ms(), "heartbeat_ms": cnc.heartbeat_ms()}
    return {
        "directory": str(directory),
        "daemon": daemon,
        "status": status,
        "counters": counters,
        "errors": errors,
    }


def _render(
    now: Mapping[str, Any], previous: Mapping[int, int], interval_s: float, show_all: bool
) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    counters = Table(title=f"{now['directory']}  pid {now['daemon']['pid']}", box=None)
    counters.add_column("counter", justify="right")
    counters.add_column("value", justify="right")
    counters.add_column("per second", justify="right")
    counters.add_column("label", overflow="fold")
    for counter in now["counters"]:
        value = counter["value"]
        if value == 0 and not show_all:
            continue
        before = previous.get(counter["id"])
        rate = "" if before is None or value == before else f"{(value - before) / interval_s:,.0f}"
        counters.add_row(str(counter["id"]), f"{value:,}", rate, counter["label"])
    parts: list[RenderableType] = [
        _table_of(name, rows)
        for name, rows in now["status"].items()
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    ]
    parts.append(counters)
    if now["errors"]:
        parts.append(_table_of("errors", now["errors"]))
    return Group(*parts)


def _table_of(title: str, rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(title=title, box=None)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return str(value)
