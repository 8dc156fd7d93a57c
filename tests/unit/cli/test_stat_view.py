# SPDX-License-Identifier: Apache-2.0
"""The table of ``penstock stat``: rates over the interval, and shares of time by cause."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from rich.console import Console

from penstock.cli._stat_view import render, size

SNAPSHOT: dict[str, Any] = {
    "directory": "/dev/shm/penstock",
    "daemon": {"pid": 7},
    "errors": [],
    "counters": [{"id": 0, "value": 1000, "label": "Bytes sent"},
                 {"id": 1, "value": 0, "label": "Bytes received"}],
    "status": {
        "threading": "shared", "uptime_s": 12.0, "storage_used_bytes": 1024**2,
        "storage_budget_bytes": 1024**3, "clients": [], "images": [], "subscriptions": [],
        "publications": [{
            "publication_id": 3, "stream_id": 1001, "session_id": -5, "channel": "aeron:ipc",
            "state": "active", "connected": True, "receivers": 1, "position": 4096,
            "consumer_position": 1024, "blocked_ns": {"receiver_window": 10**9},
        }],
    },
}


def shown(before: dict[str, Any] | None, seconds: float, show_all: bool = False) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(SNAPSHOT, before, seconds, show_all))
    return console.export_text()


def test_sizes_have_binary_units() -> None:
    assert [size(0), size(1023), size(1536), size(3 * 1024**4)] == [
        "0 B", "1,023 B", "1.5 KiB", "3.0 TiB"]


def test_the_first_look_shows_totals_by_cause_and_no_rates() -> None:
    text = shown(None, 0.0)
    assert "receiver window 1.0 s" in text
    assert "3.0 KiB" in text          # unsent: position - consumer position
    assert "B/s" not in text
    assert "Bytes received" not in text


def test_later_looks_show_rates_and_shares_of_the_interval() -> None:
    before = copy.deepcopy(SNAPSHOT)
    before["status"]["publications"][0]["consumer_position"] = 0
    before["status"]["publications"][0]["blocked_ns"] = {"receiver_window": 5 * 10**8}
    before["counters"][0]["value"] = 0
    text = shown(before, 2.0)
    assert "512 B/s" in text
    assert "receiver window 25%" in text
    assert "500" in text


def test_credits_are_shown_where_they_are_granted() -> None:
    snapshot = copy.deepcopy(SNAPSHOT)
    row = snapshot["status"]["publications"][0]
    row |= {"credits_granted": 1042, "credits_spent": 1000}
    grants = {"stream_id": 1001, "channel": "aeron:ipc", "images": 2, "client_id": 9,
              "credits": 100, "credit_policy": "fifo", "withheld": True,
              "credits_outstanding": 42, "credits_leaked": 3}
    grants_none = {**grants, "credits": 0}
    snapshot["status"]["subscriptions"] = [
        {"subscription_id": 1, **grants}, {"subscription_id": 2, **grants_none},
    ]
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(render(snapshot, None, 0.0, False, width=160))
    text = console.export_text()
    assert text.count("42 used of 100, a pool (fifo), 3 leaked, withheld") == 1
    assert " 42  receiver window" in text
    assert text.count("credits") == 2
    assert "credits" not in shown(None, 0.0)


IMAGE: dict[str, Any] = {
    "image_id": 4, "stream_id": 1001, "session_id": -5, "source": "10.0.0.2:40456", "position": 0,
    "strategy": "max", "state": "active", "slowest_subscriber": 0, "gaps": 0, "lost_bytes": 0,
    "window_bytes": 8 << 20, "rcvbuf_bytes": 208 << 10, "rcvbuf_wanted_bytes": 16 << 20,
}


def image_table(width: int, **fields: int) -> str:
    snapshot = copy.deepcopy(SNAPSHOT)
    snapshot["status"]["images"] = [{**IMAGE, **fields}]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(snapshot, None, 0.0, False, width=width))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_window_that_does_not_fit_is_shown_at_each_width(width: int) -> None:
    assert "208.0 KiB of 16.0 MiB" in image_table(width)


@pytest.mark.parametrize("buffer", [8 << 20, 16 << 20])
def test_a_window_that_fits_takes_no_column(buffer: int) -> None:
    assert "buffer short" not in image_table(200, rcvbuf_bytes=buffer)


def test_errors_stand_above_the_counters() -> None:
    """A live view of 24 rows shows no more than the first of them."""
    snapshot = copy.deepcopy(SNAPSHOT)
    snapshot["errors"] = [{"count": 2, "text": "something is wrong"}]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(snapshot, None, 0.0, False, width=80))
    text = console.export_text()
    assert 0 < text.index("something is wrong") < text.index("Bytes sent")


def test_a_stream_without_receiver_says_so_and_all_counters_can_be_shown() -> None:
    SNAPSHOT["status"]["publications"][0]["connected"] = False
    try:
        assert "no receiver" in shown(None, 0.0)
    finally:
        SNAPSHOT["status"]["publications"][0]["connected"] = True
    assert "Bytes received" in shown(None, 0.0, show_all=True)


def test_readers_and_publishers_show_what_is_unread_skipped_and_dropped() -> None:
    snapshot = copy.deepcopy(SNAPSHOT)
    snapshot["status"]["publications"][0]["dropped_messages"] = 1234
    snapshot["status"]["subscriptions"] = [
        {"subscription_id": 4, "stream_id": 1001, "channel": "aeron:ipc", "images": 1,
         "client_id": 9, "unread_bytes": 5 * 1024, "skipped_messages": 678},
        {"subscription_id": 5, "stream_id": 1001, "channel": "aeron:ipc", "images": 1,
         "client_id": 9, "unread_bytes": 0, "skipped_messages": 0},
    ]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(snapshot, None, 0.0, False))
    text = console.export_text()
    for shown_text in ("dropped", "1,234", "unread", "5.0 KiB", "skipped", "678"):
        assert shown_text in text
    assert "skipped" not in shown(None, 0.0)
