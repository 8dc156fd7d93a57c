# SPDX-License-Identifier: Apache-2.0
"""``penstock stat``: show a daemon's streams and counters."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.cli._stat_view import render
from penstock.cli._tables import console
from penstock.client._directory import daemon_directory
from penstock.client._inspect import open_counters, request_status

_TIMEOUT_S = 5.0


@click.command("stat", short_help="Show streams, rates, who holds whom back, counters.")
@click.option("--once", is_flag=True, help="Show once and end.")
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=1.0,
              show_default=True, help="Seconds between looks.")
@click.option("--all", "show_all", is_flag=True, help="Counters at zero too.")
@json_option
@directory_option
def command(
    once: bool, interval_s: float, show_all: bool, as_json: bool, directory: str | None
) -> None:
    """Show a daemon's streams and counters; on a terminal, update the view repeatedly.

    The command does not connect as a client: it maps the daemon's shared memory read-only, and
    requests the daemon's status.
    """
    path = daemon_directory(directory)
    if as_json:
        while True:
            print_json(snapshot(path), indent=2 if once else None)
            if once:
                return
            time.sleep(interval_s)
    from rich.live import Live

    screen = console()
    if once or not screen.is_terminal:
        screen.print(render(snapshot(path), None, interval_s, show_all, width=screen.width))
        return
    before: dict[str, Any] | None = None
    before_s = 0.0
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            now, now_s = snapshot(path), time.monotonic()
            shown = render(now, before, now_s - before_s, show_all, width=screen.width)
            live.update(shown, refresh=True)
            before, before_s = now, now_s
            time.sleep(interval_s)


def snapshot(directory: Path) -> dict[str, Any]:
    """Return the present state of the daemon as plain data: ``status`` comes from the daemon, and
    ``counters`` and ``errors`` come from ``cnc.dat``."""
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
