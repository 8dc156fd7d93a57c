# SPDX-License-Identifier: Apache-2.0
"""Withhold and resume the credits of a stream, for ``penstock withhold``, ``resume`` and ``drain
STREAM``."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from penstock.cli._common import print_json
from penstock.client import GroupControl
from penstock.client._groups import CreditAction

ANSWER_S: Final = 5.0
_LOOK_S: Final = 0.02

timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0), default=10.0, show_default=True,
    help="Seconds to wait until nothing is outstanding.",
)
channel_option = click.option("--channel", default="", help="Only subscriptions of this channel.")
stream_argument = click.argument("stream_id", metavar="STREAM", type=int)


def drain(
    stream_id: int, channel: str, timeout_s: float, as_json: bool, directory: str | None
) -> None:
    """Stop the publishers of a stream until ``penstock resume``, and wait until the readers have
    released every message that was sent. If messages are still outstanding at the time-out, the
    publishers stay stopped, and the exit code is 1.
    """
    with GroupControl(directory=directory, timeout_s=ANSWER_S) as orchestrator:
        report = hold(orchestrator, stream_id, channel, timeout_s)
    show(report, as_json)
    if not report["complete"]:
        raise click.ClickException(
            f"stream {stream_id}: messages were outstanding after {timeout_s:g} s; its publishers "
            f"stay stopped: 'penstock resume {stream_id}' lets them continue"
        )


def hold(
    orchestrator: GroupControl, stream_id: int, channel: str, timeout_s: float
) -> dict[str, Any]:
    """Withhold the credits of a stream. Wait until the readers have released every message that was
    sent, or until the time-out; then return the daemon's report.
    """
    deadline = time.monotonic() + timeout_s
    report = request(orchestrator, stream_id, channel, "withhold")
    while not report["complete"] and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        report = request(orchestrator, stream_id, channel, "report")
    return report


def request(
    orchestrator: GroupControl, stream_id: int, channel: str, action: CreditAction
) -> dict[str, Any]:
    """Send one request about a stream's credits to the daemon, and return its answer."""
    answer = orchestrator.stream_credits(stream_id, channel=channel, action=action)
    return {
        "withheld": answer.withheld, "complete": answer.complete,
        "readers": list(answer.readers.values()),
    }


def show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report, indent=2)
        return
    for reader in report["readers"]:
        final = "" if reader["final"] < 0 else f" of {reader['final']}"
        click.echo(
            f"session {reader['session_id']} from {reader['source']} to client "
            f"{reader['client_id']} {reader['client']}: {reader['state']}, "
            f"{reader['returned']}{final} messages returned, {reader['leaked']} leaked"
        )
    if not report["readers"]:
        click.echo("no publisher is connected; new ones start withheld"
                   if report["withheld"] else "no publisher is connected")
