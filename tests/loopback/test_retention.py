# SPDX-License-Identifier: Apache-2.0
"""Publications that limit the amount or the age of the data that readers get."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually
from penstock import Gap

STREAM = 1001
COUNT = 200
SIZE = 96                       # with its header, a frame of 128 bytes
FRAME = 128


class Reader:
    """A subscriber that checks that messages and gaps together have every number."""

    def __init__(self) -> None:
        self.next = 0
        self.delivered: list[int] = []
        self.lost = 0

    def on_gap(self, gap: Gap) -> None:
        assert gap.messages is not None
        self.next += gap.messages
        self.lost += gap.messages

    def on_message(self, message: memoryview, _header: object) -> None:
        (number,) = struct.unpack_from("<q", message)
        assert number == self.next
        self.next = number + 1
        self.delivered.append(number)


def channel_on(medium: str, port: Callable[[], int]) -> str:
    return {
        "ipc": "aeron:ipc?",
        "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|",
        "multicast": f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1|",
    }[medium]


def skips(client: penstock.Client) -> list[tuple[str, int, int]]:
    (row,) = client.status()["subscriptions"]
    return [(skip["reason"], skip["messages"], skip["bytes"]) for skip in row["skipped"]]


@pytest.mark.parametrize("medium", ["ipc", "unicast", "multicast"])
@pytest.mark.parametrize("limit", ["ps-retention=4k", "ps-retention-time=50ms"])
def test_a_reader_gets_only_what_is_retained(
    new_host: NewHost, port: Callable[[], int], medium: str, limit: str
) -> None:
    host = new_host()
    channel = f"{channel_on(medium, port)}term-length=64k|{limit}"
    reader = Reader()
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM, on_gap=reader.on_gap) as subscription,
    ):
        connected(publication, subscription)
        for number in range(COUNT):
            publication.send(struct.pack("<q", number) + bytes(SIZE - 8), timeout_s=30)
        eventually(
            lambda: all(image["position"] >= COUNT * FRAME for image in client.status()["images"]),
            "the last message arrives",
        )
        aged_at = time.monotonic() + 0.06
        eventually(lambda: time.monotonic() >= aged_at, "the messages are too old")
        publication.send(struct.pack("<q", COUNT) + bytes(SIZE - 8), timeout_s=30)

        def all_read() -> bool:
            subscription.poll(reader.on_message)
            return reader.next == COUNT + 1

        eventually(all_read, f"{reader.next} of {COUNT + 1} are accounted for")
        assert reader.lost + len(reader.delivered) == COUNT + 1
        if "time" not in limit:
            assert len(reader.delivered) <= 4096 // FRAME
        assert reader.lost > 0
        eventually(lambda: skips(client) == [("retention", reader.lost, reader.lost * FRAME)],
                   f"the status shows {reader.lost} messages")


def test_a_publication_that_retains_more_than_its_log_is_refused(new_host: NewHost) -> None:
    host = new_host()
    with (
        penstock.connect(host.directory) as client,
        pytest.raises(penstock.ChannelRefused, match=r"ps-retention=262144 .* term-length=65536"),
    ):
        client.add_publication("aeron:ipc?term-length=64k|ps-retention=256k", STREAM)
