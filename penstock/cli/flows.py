# SPDX-License-Identifier: Apache-2.0
"""``penstock flows``: streams, and the consumer groups that hold them."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.client._directory import daemon_directory
from penstock.client._inspect import request_status

_TIMEOUT_S = 5.0
_STREAM = ("publication_id", "channel", "stream_id", "session_id", "position", "limit",
           "consumer_position", "cause", "culprit", "blocked_ns", "blocked_by_ns")


@click.command("flows", short_help="Show what holds each stream, and the consumer groups.")
@json_option
@directory_option
def command(as_json: bool, directory: str | None) -> None:
    """Show what is sent, what holds it, and how far each consumer group is.

    Lag is what a group has not acknowledged; credit is what the sender may still send before the
    group holds it.
    """
    found = flows(request_status(daemon_directory(directory), _TIMEOUT_S))
    if as_json:
        print_json(found, indent=2)
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=250)    # nothing is cut off
    for what, table in zip(("no stream is sent from here", "no consumer group"), _tables(found),
                           strict=True):
        console.print(table if table.row_count else what)


def flows(status: dict[str, Any]) -> dict[str, Any]:
    """The part of a status that is about flows, as plain data."""
    return {
        "streams": [{key: row[key] for key in _STREAM} for row in status["publications"]],
        "groups": status["groups"],
        "groups_expired": status["groups_expired"],
    }


def _tables(found: dict[str, Any]) -> list[Any]:
    from rich.table import Table

    streams = Table(title="Streams", title_justify="left")
    for name in ("publication", "channel", "stream", "session", "position", "limit", "held by"):
        streams.add_column(name)
    for row in found["streams"]:
        held = f"{row['cause']} {row['culprit']}".strip() if row["cause"] != "none" else ""
        streams.add_row(
            str(row["publication_id"]), row["channel"], str(row["stream_id"]),
            str(row["session_id"]), str(row["position"]), str(row["limit"]), held,
        )
    groups = Table(title="Consumer groups", title_justify="left")
    for name in ("group", "channel", "stream", "session", "committed", "end", "lag", "window",
                 "credit", "flow control", "state", "expires in"):
        groups.add_column(name)
    for group in found["groups"]:
        head = [group["name"], group["channel"], str(group["stream_id"])]
        expires = f"{group['expires_s']:.0f} s"
        if not group["logs"]:
            groups.add_row(*head, "", "", "", "0", "", "", "", "no stream", expires)
        for log in group["logs"]:
            groups.add_row(
                *head, str(log["session_id"]), str(log["committed"]), str(log["end_position"]),
                str(log["lag_bytes"]), str(log["window_bytes"]), str(log["credit_bytes"]),
                log["strategy"], "ended" if log["ended"] else "live", expires,
            )
    return [streams, groups]
