# SPDX-License-Identifier: Apache-2.0
"""Log files and frames made by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import attrs

TERM = 64 * 1024
HEADER = 32
DATA, PAD = 1, 0
BEGIN, END = 0x80, 0x40
_FRAME = struct.Struct("<iBBHiiiiq")
assert _FRAME.size == HEADER


def align(length: int) -> int:
    return (length + 31) & ~31


@attrs.define(kw_only=True)
class Stream:
    """The bytes of a stream from position ``start``; appending keeps messages within terms."""

    session_id: int = -77
    stream_id: int = 1001
    initial_term_id: int = 2**31 - 2  # term ids wrap soon
    term_length: int = TERM
    mtu: int = 256
    start: int = 0
    data: bytearray = attrs.Factory(bytearray)
    messages: list[tuple[int, int, int, bytes]] = attrs.Factory(list)
    """(start position, position after, reserved value, payload)"""
    edges: list[int] = attrs.Factory(list)
    """Positions after each frame."""

    @property
    def position(self) -> int:
        return self.start + len(self.data)

    def frame(self, payload: bytes, flags: int, *, kind: int = DATA, reserved: int = 0,
              length: int | None = None) -> None:
        term_id = self.initial_term_id + self.position // self.term_length
        self.data += _FRAME.pack(
            len(payload) + HEADER if length is None else length, 0, flags, kind,
            self.position % self.term_length, self.session_id, self.stream_id,
            (term_id + 2**31) % 2**32 - 2**31, reserved,
        )
        self.data += payload + bytes(align(len(payload)) - len(payload))
        self.edges.append(self.position)

    def pad(self, length: int, reserved: int = 0) -> None:
        self.frame(bytes(length - HEADER), BEGIN | END, kind=PAD, reserved=reserved)

    def message(self, payload: bytes, reserved: int = 0) -> None:
        chunk = self.mtu - HEADER
        pieces = [payload[at : at + chunk] for at in range(0, len(payload), chunk)] or [b""]
        room = self.term_length - self.position % self.term_length
        if sum(HEADER + align(len(piece)) for piece in pieces) > room:
            self.pad(room)
        start = self.position
        for number, piece in enumerate(pieces):
            flags = (BEGIN if number == 0 else 0) | (END if number == len(pieces) - 1 else 0)
            self.frame(piece, flags, reserved=reserved)
        self.messages.append((start, self.position, reserved, payload))

    def write_log(self, path: Path) -> Path:
        """A log file that holds the newest three terms of the stream."""
        content = bytearray(3 * self.term_length)
        for position in range(self.start, self.position, 32):
            at = position // self.term_length % 3 * self.term_length + position % self.term_length
            piece = self.data[position - self.start : position - self.start + 32]
            content[at : at + 32] = piece
        meta = bytearray(4096)
        struct.pack_into("<q", meta, 128, 2**63 - 1)
        struct.pack_into("<qiiiii", meta, 256, 11, self.initial_term_id, HEADER, self.mtu,
                         self.term_length, 4096)
        struct.pack_into("<ii", meta, 320 + 12, self.session_id, self.stream_id)
        path.write_bytes(content + meta)
        return path


def of_messages(payloads: Iterable[bytes], **fields: int) -> Stream:
    stream = Stream(**fields)
    for number, payload in enumerate(payloads):
        stream.message(payload, reserved=number)
    return stream
