# SPDX-License-Identifier: Apache-2.0
"""``penstock flows``: show for each stream the cause and the culprit that block it, and show the
consumer groups."""

from __future__ import annotations

from typing import Any, Final

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.cli._tables import Column, console, table
from penstock.client._directory import daemon_directory
from penstock.client._inspect import request_status
from penstock.daemon.observe.flows import flows

_TIMEOUT_S = 5.0


@click.command("flows", short_help="Show what holds each stream, and the consumer groups.")
@json_option
@directory_option
def command(as_json: bool, directory: str | None) -> None:
    """Show for each stream of this host the cause and the reader that block the stream. Also show
    the position of each consumer group.

    For a consumer group, the column "lag" shows the amount of its unacknowledged data. The column
    "left" shows how much more data the sender may send before it waits for the consumer group.
    """
    found = flows(request_status(daemon_directory(directory), _TIMEOUT_S))
    if as_json:
        print_json(found, indent=2)
        return
    screen = console()
    for title, empty, columns, rows in (
        ("streams", "no publication on this daemon", _STREAMS, _stream_rows(found["streams"])),
        ("consumer groups", "no consumer group", _GROUPS, _group_rows(found["groups"])),
    ):
        screen.print(table(title, columns, rows, screen.width) if rows else empty)


_STREAMS: Final = (
    Column("publication", right=True, drop=4), Column("stream", right=True),
    Column("session", right=True, drop=1), Column("channel", shrink=36),
    Column("position", right=True, drop=3), Column("limit", right=True, drop=2),
    Column("depth", right=True, drop=6), Column("peak", right=True, drop=5),
    Column("state", drop=7),
    Column("credits", right=True, drop=8),
    Column("held by", shrink=34),
)  # fmt: skip
_GROUPS: Final = (
    Column("group", shrink=12), Column("stream", right=True),
    Column("session", right=True, drop=5), Column("channel", shrink=16),
    Column("committed", right=True, drop=7), Column("end", right=True, drop=6),
    Column("lag", right=True), Column("window", right=True, drop=4),
    Column("left", right=True), Column("flow control", drop=3), Column("state"),
    Column("expires in", right=True, drop=2),
)  # fmt: skip


def _stream_rows(streams: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in streams:
        held = f"{row['cause'].replace('_', ' ')} {row['culprit']}".strip()
        if row["culprit_awaited"]:
            held += " (process ended)"
        rows.append([
            str(row["publication_id"]), str(row["stream_id"]), str(row["session_id"]),
            row["channel"], str(row["position"]), str(row["limit"]),
            str(row["queue_depth_bytes"]), str(row["queue_peak_bytes"]),
            row["watermark"].replace("_", " "),
            "" if row["credits_granted"] < 0
            else str(max(row["credits_granted"] - row["credits_spent"], 0)),
            held if row["cause"] != "none" else "",
        ])  # fmt: skip
    return rows


def _group_rows(groups: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for group in groups:
        name, stream, channel = group["name"], str(group["stream_id"]), group["channel"]
        expires = f"{group['expires_s']:.0f} s"
        if not group["logs"]:
            rows.append([name, stream, "", channel, "", "", "0", "", "", "", "no stream", expires])
        for log in group["logs"]:
            rows.append([
                name, stream, str(log["session_id"]), channel, str(log["committed"]),
                str(log["end_position"]), str(log["lag_bytes"]), str(log["window_bytes"]),
                "" if log["ended"] else str(log["window_left_bytes"]),
                "" if channel.startswith("aeron:ipc") else log["strategy"],
                "ended" if log["ended"] else "live", expires,
            ])  # fmt: skip
    return rows
