# SPDX-License-Identifier: Apache-2.0
"""Subscriptions for which a stream does not wait: the others continue, and the one that was behind
gets what the log still holds and a gap for the rest."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from loopback.conftest import NewHost
from loopback.streams import TIMEOUT_S, Patience, connected, eventually
from loopback.test_trace import events
from penstock import Gap

STREAM = 1001
SIZE = 512
TERM = 64 * 1024
FRAME = 544


class Reader:
    """A subscriber that checks each message's number against position and gaps before it."""

    def __init__(self) -> None:
        self.next = 0
        self.delivered = 0
        self.gaps: list[Gap] = []

    def on_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)

    def on_message(self, message: memoryview, _header: object) -> None:
        (number,) = struct.unpack_from("<q", message)
        assert bytes(message[8:]) == bytes([number % 251]) * (SIZE - 8)
        assert number >= self.next
        assert number == self.next or self.gaps, "messages are missing without a gap"
        self.next = number + 1
        self.delivered += 1

    @property
    def lost(self) -> int:
        return sum(gap.messages or 0 for gap in self.gaps)


def message_of(number: int) -> bytes:
    return struct.pack("<q", number) + bytes([number % 251]) * (SIZE - 8)


def channel_on(medium: str, port: Callable[[], int]) -> str:
    return {
        "ipc": "aeron:ipc?term-length=64k",
        "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=32k",
        "spy": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=32k",
        "multicast": f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1|fc=min"
                     "|term-length=64k|rcv-wnd=32k",
    }[medium]


@pytest.mark.parametrize("policy", ["independent", "drop-oldest|ps-sub-depth=8k"])
@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_a_stopped_reader_stops_no_other(
    new_host: NewHost, port: Callable[[], int], medium: str, policy: str
) -> None:
    host = new_host()
    channel = channel_on(medium, port)
    fast, slow = Reader(), Reader()
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM, on_gap=fast.on_gap) as other,
        client.add_subscription(
            f"{channel}|ps-sub-policy={policy}", STREAM, on_gap=slow.on_gap
        ) as stopped,
    ):
        connected(publication, other)
        connected(publication, stopped)
        sent = 20 * TERM // FRAME
        for number in range(sent):
            message = message_of(number)
            patience = Patience(TIMEOUT_S)
            while publication.offer(message) < 0:
                assert not patience.is_over, f"message {number} of {sent}"
                other.poll(fast.on_message)
        eventually(lambda: not other.poll(fast.on_message) and fast.next == sent, "all is read")
        assert fast.delivered == sent
        assert not fast.gaps

        def unread() -> list[int]:
            rows = {row["subscription_id"]: row for row in client.status()["subscriptions"]}
            return [rows[s.registration_id]["unread_bytes"] for s in (other, stopped)]

        eventually(lambda: unread() == [0, publication.position], f"{unread()} bytes are unread")

        def all_read() -> bool:
            stopped.poll(slow.on_message)
            return slow.next == sent

        eventually(all_read, f"{slow.delivered} of {sent} were delivered, gaps {slow.gaps}")
        reached = 0
        for gap in slow.gaps:       # a second one only if the reader was outrun at once again
            assert gap.from_position == reached
            reached = gap.to_position or 0
        assert all(gap.messages is not None for gap in slow.gaps)
        assert slow.lost == sent - slow.delivered
        (row,) = [r for r in client.status()["subscriptions"] if r["skipped"]]
        (skip,) = row["skipped"]
        assert row["subscription_id"] == stopped.registration_id
        assert skip["messages"] == row["skipped_messages"] == slow.lost
        assert skip["bytes"] == sum((gap.to_position or 0) - gap.from_position for gap in slow.gaps)
        assert 0 < slow.delivered * FRAME <= 3 * TERM
        if policy != "independent":
            assert slow.delivered * FRAME <= 3 * 8192


@pytest.mark.parametrize("medium", ["ipc", "unicast", "multicast", "spy"])
def test_a_reader_that_falls_behind_is_in_the_event_feed(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path, medium: str
) -> None:
    path = tmp_path / "trace.jsonl"
    host = new_host("--trace", str(path))
    channel = channel_on(medium, port)
    fast, slow = Reader(), Reader()
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM, on_gap=fast.on_gap) as other,
        client.add_subscription(
            f"{'aeron-spy:' if medium == 'spy' else ''}{channel}|ps-sub-policy=drop_oldest"
            "|ps-sub-depth=8k", STREAM, on_gap=slow.on_gap,
        ) as stopped,
    ):
        connected(publication, other)
        connected(publication, stopped)
        sent = 0

        def offers() -> bool:
            nonlocal sent
            sent += publication.offer(message_of(sent)) > 0
            other.poll(fast.on_message)
            return sent == 4 * TERM // FRAME

        def published(name: str) -> list[dict[str, Any]]:
            return [event["fields"] for event in events(path) if event["event"] == name]

        eventually(offers, "the stopped reader does not block the stream")
        eventually(lambda: len(published("reader_skips")) == 1, "the reader has fallen behind")

        def continues() -> bool:
            stopped.poll(slow.on_message)
            offers()
            return len(published("reader_continues")) == 1

        eventually(continues, "the reader has caught up")
        (before,), (after,) = published("reader_skips"), published("reader_continues")
        assert before["subscription_id"] == after["subscription_id"] == stopped.registration_id
        assert before["cause"] == ("spy" if medium == "spy" else "slow_subscriber")
        assert "client" in before["culprit"]
        assert before["behind_bytes"] >= 8192
        assert after["skipped_messages"] == slow.lost
        assert after["duration_ns"] > 0
