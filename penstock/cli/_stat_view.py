# SPDX-License-Identifier: Apache-2.0
"""View of ``penstock stat``: a line a stream, rates instead of positions, and who holds whom
back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = Mapping[str, Any]
Column = tuple[str, str, Callable[[Row, "Row | None", float], str]]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """``count`` bytes with a binary unit, three digits or so."""
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
    """Causes by the share of the last interval, or the total since the start."""
    blocked: Mapping[str, int] = row["blocked_ns"]
    if before is None:
        shares = {cause: ns / 1e9 for cause, ns in blocked.items()}
        text = [f"{cause} {value:,.1f} s" for cause, value in _largest(shares)]
    else:
        old: Mapping[str, int] = before["blocked_ns"]
        shares = {cause: (ns - old.get(cause, 0)) / 1e9 / seconds for cause, ns in blocked.items()}
        text = [f"{cause} {value:.0%}" for cause, value in _largest(shares) if value >= 0.005]
    return ", ".join(text).replace("_", " ")


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])[:3]


_STREAM: tuple[Column, ...] = (
    ("stream", "right", _field("stream_id")),
    ("session", "right", _field("session_id")),
)

SECTIONS: dict[str, tuple[str, str, tuple[Column, ...]]] = {
    "publications": ("publication_id", "publications", (
        *_STREAM,
        ("channel", "left", _field("channel")),
        ("state", "left", lambda row, _b, _s: row["state"] if row["connected"] else "no receiver"),
        ("rcvrs", "right", _field("receivers")),
        ("rate", "right", _rate("consumer_position")),
        ("unsent", "right", _difference("position", "consumer_position")),
        ("held by", "left", _held),
    )),
    "images": ("image_id", "images", (
        *_STREAM,
        ("from", "left", _field("source")),
        ("fc", "left", _field("strategy")),
        ("state", "left", _field("state")),
        ("rate", "right", _rate("position")),
        ("unread", "right", _difference("position", "slowest_subscriber")),
        ("gaps", "right", _field("gaps")),
        ("lost", "right", _bytes("lost_bytes")),
    )),
    "subscriptions": ("subscription_id", "subscriptions", (
        ("stream", "right", _field("stream_id")),
        ("channel", "left", _field("channel")),
        ("images", "right", _field("images")),
        ("client", "right", _field("client_id")),
    )),
    "clients": ("client_id", "clients", (
        ("client", "right", _field("client_id")),
        ("name", "left", _field("name")),
        ("pid", "right", _field("pid")),
        ("publications", "right", _field("publications")),
        ("subscriptions", "right", _field("subscriptions")),
        ("counters", "right", _field("counters")),
    )),
}


def render(now: Row, before: Row | None, seconds: float, show_all: bool) -> RenderableType:
    """``now`` and ``before`` are snapshots of :func:`penstock.cli.stat.snapshot`."""
    from rich.console import Group
    from rich.text import Text

    status = now["status"]
    head = Text(
        f"{now['directory']}  pid {now['daemon']['pid']}  {status['threading']}  up "
        f"{status['uptime_s']:,.0f} s  log buffers {size(status['storage_used_bytes'])} of "
        f"{size(status['storage_budget_bytes'])}", style="bold",
    )
    parts: list[RenderableType] = [head]
    for name, (key, title, columns) in SECTIONS.items():
        rows: Sequence[Row] = status[name]
        if rows:
            old = {} if before is None else {row[key]: row for row in before["status"][name]}
            table = _table(title, columns)
            for row in rows:
                table.add_row(*(show(row, old.get(row[key]), seconds) for _, _, show in columns))
            parts.append(table)
    parts.append(_counters(now, before, seconds, show_all))
    if now["errors"]:
        errors = _table("errors", (("count", "right", _field("count")),
                                   ("text", "left", _field("text"))))
        for row in now["errors"]:
            errors.add_row(str(row["count"]), row["text"])
        parts.append(errors)
    return Group(*parts)


def _table(title: str, columns: Sequence[Column]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
                  header_style="dim")
    for name, justify, _show in columns:
        table.add_column(
            name, justify="right" if justify == "right" else "left",
            overflow="ellipsis" if name == "channel" else "fold", no_wrap=name != "held by",
        )
    return table


def _counters(now: Row, before: Row | None, seconds: float, show_all: bool) -> Table:
    old = {} if before is None else {row["id"]: row["value"] for row in before["counters"]}
    columns: tuple[Column, ...] = tuple(
        (name, side, _field(name))
        for name, side in (("id", "right"), ("value", "right"), ("per second", "right"),
                           ("counter", "left"))
    )
    table = _table("counters", columns)
    for row in now["counters"]:
        value = row["value"]
        if value == 0 and not show_all:
            continue
        last = old.get(row["id"])
        rate = "" if last is None or value == last else f"{(value - last) / seconds:,.0f}"
        table.add_row(str(row["id"]), f"{value:,}", rate, row["label"])
    return table
