# SPDX-License-Identifier: Apache-2.0
"""Build the view of ``penstock stat``, with a line for each stream. For each position, the view
shows the rate at which this position grows. If a publisher is blocked, the view also shows the
culprit that blocks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.cli._records import printable
from penstock.cli._tables import Column, table

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = Mapping[str, Any]
Cell = Callable[[Row, "Row | None", float], str]


@attrs.frozen
class Shown(Column):
    """A column and its content."""

    cell: Cell = attrs.field(kw_only=True)


def _text(name: str, cell: Cell, *, drop: int = 0, shrink: int = 0) -> Shown:
    return Shown(name, drop=drop, shrink=shrink, cell=cell)


def _number(name: str, cell: Cell, *, drop: int = 0) -> Shown:
    return Shown(name, right=True, drop=drop, cell=cell)


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Return a number of bytes as text with a binary unit, such as 1.5 MiB."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 else f"{count:,.1f} {_UNITS[unit]}"


def _field(name: str) -> Callable[[Row, Row | None, float], str]:
    return lambda row, _before, _s: str(row[name])


def _bytes(name: str) -> Callable[[Row, Row | None, float], str]:
    return lambda row, _before, _s: size(row[name])


def _rate(name: str) -> Callable[[Row, Row | None, float], str]:
    def show(row: Row, before: Row | None, seconds: float) -> str:
        return "" if before is None else f"{size((row[name] - before[name]) / seconds)}/s"

    return show


def _difference(ahead: str, behind: str) -> Callable[[Row, Row | None, float], str]:
    return lambda row, _before, _s: size(max(0, row[ahead] - row[behind]))


def _held(row: Row, before: Row | None, seconds: float) -> str:
    """Return the causes by their share of the last interval, or the total since the start."""
    blocked: Mapping[str, int] = row["blocked_ns"]
    if before is None:
        shares = {cause: ns / 1e9 for cause, ns in blocked.items()}
        text = [f"{cause} {value:,.1f} s" for cause, value in _largest(shares)]
    else:
        old: Mapping[str, int] = before["blocked_ns"]
        shares = {cause: (ns - old.get(cause, 0)) / 1e9 / seconds for cause, ns in blocked.items()}
        text = [f"{cause} {value:.0%}" for cause, value in _largest(shares) if value >= 0.005]
    return ", ".join(text).replace("_", " ")


def _short_buffer(row: Row, _before: Row | None, _seconds: float) -> str:
    """Return the receive buffer and the size that the window needs, if the window does not fit."""
    if row.get("rcvbuf_bytes", 0) >= row.get("window_bytes", 0):
        return ""
    return f"{size(row['rcvbuf_bytes'])} of {size(row['rcvbuf_wanted_bytes'])}"


def _available(row: Row, _before: Row | None, _seconds: float) -> str:
    """Return the credits that publishers have left, if receivers grant some."""
    if row.get("credits_granted", -1) < 0:
        return ""
    return f"{max(row['credits_granted'] - row['credits_spent'], 0):,}"


def _credits(row: Row, _before: Row | None, _seconds: float) -> str:
    """Return the messages of a subscription that are granted and not released, and what is
    unusual."""
    if not row.get("credits"):
        return ""
    pool = f", a pool ({row['credit_policy']})" if row["credit_policy"] else ""
    leaked = f", {row['credits_leaked']:,} leaked" if row["credits_leaked"] else ""
    withheld = ", withheld" if row["withheld"] else ""
    return f"{row['credits_outstanding']:,} used of {row['credits']:,}{pool}{leaked}{withheld}"


def _count(name: str) -> Callable[[Row, Row | None, float], str]:
    """Return a column for a number of messages; empty at 0."""
    return lambda row, _before, _s: f"{row[name]:,}" if row.get(name) else ""


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])[:3]


SECTIONS: dict[str, tuple[str, str, tuple[Shown, ...]]] = {
    "publications": ("publication_id", "publications", (
        _number("stream", _field("stream_id")),
        _number("session", _field("session_id"), drop=2),
        _text("channel", _field("channel"), shrink=16),
        _text("state", lambda row, _b, _s: row["state"] if row["connected"] else "no receiver"),
        _number("rcvrs", _field("receivers"), drop=3),
        _number("rate", _rate("consumer_position")),
        _number("unsent", _difference("position", "consumer_position"), drop=1),
        _number("dropped", _count("dropped_messages")),
        _number("credits", _available, drop=4),
        _text("held by", _held, shrink=12),
    )),
    "images": ("image_id", "images", (
        _number("stream", _field("stream_id")),
        _number("session", _field("session_id"), drop=2),
        _text("from", _field("source"), shrink=15),
        _text("fc", _field("strategy"), drop=4),
        _text("state", _field("state"), drop=3),
        _number("rate", _rate("position")),
        _number("unread", _difference("position", "slowest_subscriber")),
        _number("gaps", _field("gaps")),
        _number("lost", _bytes("lost_bytes"), drop=1),
        _number("buffer short", _short_buffer),
    )),
    "subscriptions": ("subscription_id", "subscriptions", (
        _number("stream", _field("stream_id")),
        _text("channel", _field("channel"), shrink=16),
        _number("images", _field("images")),
        _number("unread", lambda row, _before, _s: size(row.get("unread_bytes", 0))),
        _number("skipped", _count("skipped_messages")),
        _text("credits", _credits),
        _number("client", _field("client_id")),
    )),
    "clients": ("client_id", "clients", (
        _number("client", _field("client_id")),
        _text("name", _field("name"), shrink=16),
        _number("pid", _field("pid")),
        _text("state", _field("state"), drop=5),
        _number("publications", _field("publications"), drop=2),
        _number("subscriptions", _field("subscriptions"), drop=3),
        _number("counters", _field("counters"), drop=4),
    )),
}
_COUNTERS: Final = (
    Column("value", right=True), Column("per second", right=True), Column("counter", shrink=20),
    Column("id", right=True, drop=1),
)  # fmt: skip


def _scheduler(row: Row) -> str:
    """Return the governor's last sample as one line."""
    signals = "  ".join(f"{name} {value:.2f}" for name, value in row["signals"].items())
    ready = "  ".join(f"{band} {count}" for band, count in row["ready"].items() if count)
    wait_ms = row["waited_ns"] / row["waits"] / 1e6 if row["waits"] else 0.0
    return (
        f"pressure {row['pressure']:.2f}  ({signals})  waiting {ready or 'none'}  mean wait "
        f"{wait_ms:.2f} ms  deferrals {row['deferrals']:,}  throttled {row['throttled']:,}"
    )


def render(
    now: Row, before: Row | None, seconds: float, show_all: bool, *, width: int = 250
) -> RenderableType:
    """Return the view of the snapshot ``now``. The rates are computed from the differences between
    ``now`` and the earlier snapshot ``before`` (:func:`penstock.cli.stat.snapshot`)."""
    from rich.console import Group
    from rich.text import Text

    status = now["status"]
    head = Text(
        f"{now['directory']}  pid {now['daemon']['pid']}  {status['threading']}  up "
        f"{status['uptime_s']:,.0f} s  log buffers {size(status['storage_used_bytes'])} of "
        f"{size(status['storage_budget_bytes'])}", style="bold",
    )
    parts: list[RenderableType] = [head]
    if (scheduler := status.get("scheduler", {})).get("sampled"):
        parts.append(Text(_scheduler(scheduler)))
    for name, (key, title, columns) in SECTIONS.items():
        rows: Sequence[Row] = status[name]
        if rows:
            old = {} if before is None else {row[key]: row for row in before["status"][name]}
            cells = [
                [column.cell(row, old.get(row[key]), seconds) for column in columns] for row in rows
            ]
            used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
            parts.append(
                table(title, [columns[i] for i in used], [[row[i] for i in used] for row in cells],
                      width)
            )
    warnings = [
        f"stream {row['stream_id']} on {row['channel']}: {text}"
        for row in status["publications"] for text in row.get("warnings", ())
    ]
    if warnings:
        parts.append(Text("warnings", style="bold"))
        parts += [Text(printable(text.encode())) for text in warnings]
    if now["errors"]:  # above the counters, because a terminal of 24 rows shows only the first rows
        parts.append(Text("errors", style="bold"))      # whole, however long
        parts += [Text(f"{row['count']:,} times: {printable(row['text'].encode())}")
                  for row in now["errors"]]
    parts.append(table("counters", _COUNTERS, _counters(now, before, seconds, show_all), width))
    return Group(*parts)


def _counters(now: Row, before: Row | None, seconds: float, show_all: bool) -> list[list[str]]:
    old = {} if before is None else {row["id"]: row["value"] for row in before["counters"]}
    rows = []
    for row in now["counters"]:
        value = row["value"]
        if value == 0 and not show_all:
            continue
        last = old.get(row["id"])
        rate = "" if last is None or value == last else f"{(value - last) / seconds:,.0f}"
        rows.append([f"{value:,}", rate, row["label"], str(row["id"])])
    return rows
