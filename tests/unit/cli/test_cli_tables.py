# SPDX-License-Identifier: Apache-2.0
"""Tables on narrow terminals: columns leave by their importance, channels lose their middle."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli import flows, loss
from penstock.cli._stat_view import render
from penstock.cli._tables import Column, fit, shorten, table

LONG = "aeron:udp?endpoint=192.168.100.200:40456|term-length=1m|reliable=true|session-id=-123456"
HELD = "receiver window receiver 4611686018427387904 at 192.168.100.201:40456"


def drawn(width: int, *parts: Any) -> list[str]:
    screen = Console(width=width, file=io.StringIO(), color_system=None)
    for part in parts:
        screen.print(part)
    shown = screen.file
    assert isinstance(shown, io.StringIO)
    return [line.rstrip() for line in shown.getvalue().splitlines()]


def stream(number: int) -> dict[str, Any]:
    return {
        "publication_id": 1_000_000 + number, "stream_id": 1001, "session_id": -1_123_456_789,
        "channel": LONG, "position": 10**12, "limit": 10**12 + 131_072,
        "cause": "receiver_window", "culprit": HELD.removeprefix("receiver window "),
        "queue_depth_bytes": 65_536, "queue_peak_bytes": 131_072, "watermark": "high_watermark",
        "culprit_awaited": False, "credits_granted": 4242, "credits_spent": 2121,
    }


@given(st.text(), st.integers(0, 40))
def test_a_shortened_text_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= max(width, 0)
    if len(text) <= width:
        assert short == text
    elif width >= 3:
        head, _, tail = short.rpartition("…")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert 0 <= len(head) - len(tail) <= 1


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 8]), st.integers(1, 30)), min_size=1,
        max_size=8,
    ),
    st.integers(20, 120),
)
def test_columns_fit_or_only_those_that_stay_are_left(
    given_columns: list[tuple[int, int, int]], width: int
) -> None:
    columns = [Column(f"c{i}", drop=d, shrink=s) for i, (d, s, _) in enumerate(given_columns)]
    row = ["x" * natural for _, _, natural in given_columns]
    shown, widths = fit(columns, [row], width)
    used = sum(widths) + 2 * (len(shown) - 1)
    assert used <= width or all(columns[i].drop == 0 for i in shown)
    left_out = [columns[i].drop for i in range(len(columns)) if i not in shown]
    assert 0 not in left_out
    assert shown == sorted(shown)
    if sum(max(len(c), len(columns[i].name)) for i, c in enumerate(row)) + 2 * len(row) <= width:
        assert len(shown) == len(columns)
        assert all(widths[k] >= len(row[i]) for k, i in enumerate(shown))


@pytest.mark.parametrize("width", [80, 100])
def test_flows_shows_what_matters_on_a_narrow_terminal(width: int) -> None:
    rows = flows._stream_rows([stream(1), stream(2)])
    lines = drawn(width, table("streams", flows._STREAMS, rows, width))
    assert max(map(len, lines)) <= width
    title, head, *body = lines
    assert title == "streams"
    assert {"stream", "channel", "held by"} <= set(re.split(" {2,}", head))
    for line in body:
        assert "1001" in line
        assert "aeron:udp" in line          # both ends of the channel
        assert "…" in line
        assert "receiver window" in line
        assert line.endswith(":40456")      # of the culprit


@pytest.mark.parametrize("width", [80, 300])
def test_flows_says_that_the_process_of_the_culprit_has_ended(width: int) -> None:
    rows = flows._stream_rows([{**stream(1), "culprit_awaited": True}])
    lines = drawn(width, table("streams", flows._STREAMS, rows, width))
    assert any("(process ended)" in line for line in lines)


def test_flows_shows_everything_where_there_is_room() -> None:
    lines = drawn(300, table("streams", flows._STREAMS, flows._stream_rows([stream(1)]), 300))
    for text in (LONG, HELD, "1000001", "1000000000000", "-1123456789", "65536", "131072",
                 "high watermark", " 2121 "):
        assert text in lines[2]


@pytest.mark.parametrize("width", [80, 100, 250])
def test_groups_and_losses_fit(width: int) -> None:
    group = {
        "name": "a group of some name", "channel": LONG, "stream_id": 1001, "expires_s": 86400.0,
        "logs": [{
            "session_id": -1_123_456_789, "committed": 10**12, "end_position": 10**12 + 7,
            "lag_bytes": 7_000_000, "window_bytes": 131_072, "window_left_bytes": 131_072,
            "strategy": "tagged", "ended": False,
        }],
    }
    past = {
        "stream_id": 1001, "session_id": -1_123_456_789, "observations": 12_345,
        "bytes": 123_456_789, "first": "2026-01-01T00:00:00.000Z",
        "last": "2026-01-01T00:00:00.000Z", "source": "192.168.100.200:40456", "channel": LONG,
    }
    for lines in (
        drawn(width, table("", flows._GROUPS, flows._group_rows([group]), width)),
        drawn(width, table("", loss._PAST, loss._rows_past([past]), width)),
    ):
        assert max(map(len, lines)) <= width
    shown = "\n".join(drawn(width, table("", flows._GROUPS, flows._group_rows([group]), width)))
    for text in ("lag", "7000000", "left", "state", "live"):
        assert text in shown


def test_stat_fits_a_narrow_terminal() -> None:
    publication = {
        **stream(1), "state": "active", "connected": True, "receivers": 1,
        "consumer_position": 10**12 - 70_000, "blocked_ns": {"receiver_window": 10**9},
    }
    image = {
        "image_id": 5, "stream_id": 1001, "session_id": -1_123_456_789,
        "source": "192.168.100.200:40456", "strategy": "unicast", "state": "active",
        "position": 10**12, "slowest_subscriber": 10**12 - 5000, "gaps": 0, "lost_bytes": 1 << 30,
    }
    now: dict[str, Any] = {
        "directory": "/dev/shm/penstock", "daemon": {"pid": 7}, "errors": [],
        "counters": [{"id": 100, "value": 10**12, "label": f"snd-pos: 23 5 1001 {LONG}"}],
        "status": {
            "threading": "shared", "uptime_s": 12.0, "storage_used_bytes": 0,
            "storage_budget_bytes": 1024**3, "publications": [publication], "images": [image],
            "subscriptions": [{
                "subscription_id": 1, "stream_id": 1, "channel": LONG, "images": 1, "client_id": 2,
            }],
            "clients": [{
                "client_id": 2, "name": "n" * 95, "pid": 4_194_303, "state": "awaited",
                "publications": 1, "subscriptions": 1, "counters": 1,
            }],
        },
    }
    lines = drawn(80, render(now, now, 1.0, False, width=80))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("stream", "rate", "unsent", "68.4 KiB", "unread", "4.9 KiB", "4194303",
                 "1,000,000,000,000", "per second"):
        assert word in text


def test_names_of_others_are_no_commands_to_the_terminal() -> None:
    lines = drawn(80, table("", [Column("name")], [["[red]a\x1b[2J\nb\x07"]], 80))
    assert lines[-1] == r"[red]a\x1b[2J\nb\x07"
