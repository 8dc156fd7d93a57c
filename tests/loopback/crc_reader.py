# SPDX-License-Identifier: Apache-2.0
"""A subscriber in a process of its own: checks the CRC and the index of each message, and prints
its counts in one line after the last message.

usage: crc_reader.py DIRECTORY CHANNEL STREAM COUNT
"""

from __future__ import annotations

import json
import struct
import sys
import zlib

import penstock
from penstock import Gap

HEAD = struct.Struct("<IQ")


class Reader:
    """Messages and gaps cover the stream: each index is delivered or counted by one gap."""

    def __init__(self) -> None:
        self.next = 0
        self.delivered = 0
        self.missed = 0
        self.gaps = 0
        self.uncounted = 0
        self.wrong: list[str] = []

    def on_gap(self, gap: Gap) -> None:
        self.gaps += 1
        self.uncounted += gap.messages is None
        self.missed += gap.messages or 0
        self.next += gap.messages or 0

    def on_message(self, message: memoryview, _header: object) -> None:
        crc, index = HEAD.unpack_from(message)
        if zlib.crc32(message[4:]) != crc and len(self.wrong) < 10:
            self.wrong.append(f"the message after {self.next} has a wrong CRC")
        if index != self.next and len(self.wrong) < 10:
            self.wrong.append(f"message {index} comes where {self.next} is due")
        self.next = index + 1
        self.delivered += 1


def main(directory: str, channel: str, stream: str, count: str) -> None:
    reader = Reader()
    with (
        penstock.connect(directory, name="reader") as client,
        client.add_subscription(channel, int(stream), on_gap=reader.on_gap) as subscription,
    ):
        subscription.wait_connected(60.0)
        print("connected", flush=True)
        while reader.next < int(count):
            if not subscription.poll(reader.on_message, 64):
                subscription.wait(1.0)
    print(json.dumps(vars(reader)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
