# SPDX-License-Identifier: Apache-2.0
"""``penstock loss``: show for each stream how much data was lost and retransmitted."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.cli._tables import Column, console, table
from penstock.client._directory import daemon_directory
from penstock.client._inspect import open_counters
from penstock.core.admin import Shared
from penstock.core.driver_types import SlotKind

_RECORD: Final = struct.Struct("<qqqqii")    # count, bytes, first ms, last ms, session, stream
_ALIGNMENT: Final = 64
_NAKS_SENT_TYPE: Final = 20
_STREAM_KEY: Final = struct.Struct("<qii")   # image, session, stream


@click.command("loss")
@json_option
@directory_option
def command(as_json: bool, directory: str | None) -> None:
    """Show where data was lost, and whether it was retransmitted.

    The first table of the output shows the streams that the daemon now receives. The second table
    shows the daemon's loss report, which survives a restart in the same directory. Both tables
    count a lost range once, when the receiver detects the gap, even if a retransmit fills the gap
    later. On a reliable stream, retransmits have filled all gaps that are not open any more.
    """
    path = daemon_directory(directory)
    found = {"live": live(path), "history": history(path)}
    if as_json:
        print_json(found, indent=2)
        return
    if not found["live"] and not found["history"]:
        click.echo("this daemon receives no stream, and its loss report is empty")
        return
    screen = console()
    for title, columns, rows in (
        ("streams that arrive now", _NOW, _rows_now(found["live"])),
        ("loss report", _PAST, _rows_past(found["history"])),
    ):
        if rows:
            screen.print(table(title, columns, rows, screen.width))


def live(directory: Path) -> list[dict[str, Any]]:
    """Return a table row for each stream that the daemon now receives."""
    with open_counters(directory) as cnc:
        naks = {
            _STREAM_KEY.unpack_from(counter.key)[0]: counter.value
            for counter in cnc.counters()
            if counter.type_id == _NAKS_SENT_TYPE and len(counter.key) >= _STREAM_KEY.size
        }
    shared = Shared.open(str(directory))
    try:
        views = [shared.read_image(i) for i in range(shared.slot_count(SlotKind.IMAGE))]
    finally:
        shared.close()
    return [
        {
            "image_id": view.id,
            "session_id": view.session_id,
            "stream_id": view.stream_id,
            "lost_bytes": view.lost_bytes,
            "gaps_open": view.gaps,
            "naks_sent": naks.get(view.id, 0),
            "round_trip_ns": view.rtt_ns,
            "congestion_window": view.congestion_window,
        }
        for view in views
        if view.id != 0
    ]


def history(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of the loss report: one row for each stream that lost data at any time since
    the report was created.
    """
    file = directory / "loss-report.dat"
    return read_report(file.read_bytes()) if file.exists() else []


def read_report(data: bytes) -> list[dict[str, Any]]:
    """Parse a loss report in Aeron's layout and return its rows. Stop at the first invalid
    record."""
    rows = []
    at = 0
    while at + _RECORD.size + 4 <= len(data):
        count, lost, first_ms, last_ms, session_id, stream_id = _RECORD.unpack_from(data, at)
        channel, end = _text(data, at + _RECORD.size)
        source, end = _text(data, end + -end % 4)
        if count <= 0 or end > len(data):
            break
        rows.append(
            {
                "session_id": session_id,
                "stream_id": stream_id,
                "observations": count,
                "bytes": lost,
                "first": _time(first_ms),
                "last": _time(last_ms),
                "channel": channel,
                "source": source,
            }
        )
        at = end + -end % _ALIGNMENT
    return rows


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return the text at ``at`` and its end; an end beyond the data means that there is no text."""
    if at + 4 > len(data):
        return "", len(data) + 1
    (length,) = struct.unpack_from("<i", data, at)
    end = at + 4 + length
    if length < 0 or end > len(data):
        return "", len(data) + 1
    return data[at + 4 : end].decode("ascii", "replace"), end


def _time(epoch_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NOW: Final = (
    Column("stream", right=True), Column("session", right=True, drop=1),
    Column("lost bytes", right=True), Column("gaps open", right=True),
    Column("NAKs sent", right=True, drop=2), Column("round trip", right=True, drop=4),
    Column("congestion window", right=True, drop=3),
)  # fmt: skip
_PAST: Final = (
    Column("stream", right=True), Column("session", right=True, drop=4),
    Column("times", right=True), Column("bytes", right=True), Column("first", drop=3),
    Column("last", drop=1), Column("from", shrink=15), Column("channel", drop=2, shrink=16),
)  # fmt: skip


def _rows_now(live: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["stream_id"]), str(row["session_id"]), f"{row['lost_bytes']:,}",
            str(row["gaps_open"]), f"{row['naks_sent']:,}",
            f"{row['round_trip_ns'] / 1e6:.3f} ms" if row["round_trip_ns"] else "-",
            f"{row['congestion_window']:,}" if row["congestion_window"] else "-",
        ]
        for row in live
    ]


def _rows_past(history: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["stream_id"]), str(row["session_id"]), f"{row['observations']:,}",
            f"{row['bytes']:,}", row["first"], row["last"], row["source"], row["channel"],
        ]
        for row in history
    ]
