# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any message is a marker of the Spark sink or a MarkerError, a marker reads as it was
written, and no sequence of messages makes the reader of parts hand out a part twice."""

from __future__ import annotations

import sys

from penstock.spark_bridge._assembler import Assembler, RepeatDiffers
from penstock.spark_bridge.markers import MAGIC, MarkerError, decode, encode

WORDS = [
    MAGIC, MAGIC + b"\x02\x01", MAGIC + b"\x02\x02", MAGIC + b"\x02\x03", MAGIC + b"\x02\x04",
    MAGIC + b"\x01\x01", b"\x01\x01\x00\x00", b"\x01\x02\x00\x00", b"\x01\x00\x00\x00",
    bytes(16), b"\xff" * 8, b"\x00" * 48, b"|", b"|r", b"|m",
]


def target(data: bytes) -> None:
    try:
        marker = decode(data)
        assert decode(encode(marker)) == marker
    except MarkerError as error:
        assert "\n" not in str(error)
    reader = Assembler(remember=2, max_pending_bytes=1 << 20)
    seen = set()
    for piece in data.split(b"|"):
        kind, message = piece[:1], piece[1:]
        if kind == b"r":
            reader.rows(b"m", [message])
            continue
        try:
            parts = reader.marked(kind, message)
        except RepeatDiffers:
            continue
        for part in parts:
            place = (part.query, part.epoch, part.partition, part.key)
            assert place not in seen
            seen.add(place)
    assert reader.statistics.pending_bytes >= 0
    for name in reader.sessions:
        reader.ended(name)
    held = sum(part.messages for part in reader.partial if part.reason == "job")
    assert held or reader.statistics.pending_bytes == 0


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "markers", WORDS))
