# SPDX-License-Identifier: Apache-2.0
"""Encode the arrival times of a batch's messages as text. The source writes this text into an
offset.

For each batch, the planner requests the arrival times from a daemon once, and writes them into the
batch's offset. If Spark repeats the batch, on any host, the messages therefore keep these times. An
entry consists of a position and a time: at this time, all data before the position had arrived. A
message gets the time of the first entry whose position is at or after the message's end.

The text is the base64 encoding of a sequence of numbers. Each byte of a number carries seven of its
bits, the lowest bits first. The top bit is set in all bytes except the number's last byte. For each
entry, the text contains two numbers: the position in units of 32 bytes, and the time in
microseconds since 1970. The position and the time are written as differences from the previous
entry. A difference of times can be negative, because a clock can be set back. It is therefore
zigzag-coded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.core.errors import InvalidArgument

#: Most entries of all sessions of a batch: about 12 KiB of text in its offset.
MOST_ENTRIES: Final = 2048
FEWEST_ENTRIES: Final = 8
_UNIT: Final = 32


def entries_each(sessions: int) -> int:
    """Return how many time entries each session may have in an offset with ``sessions`` sessions.
    The limit keeps the offset small."""
    return max(FEWEST_ENTRIES, MOST_ENTRIES // max(1, sessions))


def encode(entries: Iterable[tuple[int, int]]) -> str:
    """Encode pairs (position, time in ns since 1970). The pairs must be in the order of their
    positions.
    """
    out = bytearray()
    position = time_us = 0
    for at, time_ns in entries:
        _add(out, (at - position) // _UNIT)
        moved = time_ns // 1000 - time_us
        _add(out, 2 * moved if moved >= 0 else -2 * moved - 1)
        position, time_us = at, time_ns // 1000
    return base64.b64encode(out).decode()


def decode(text: str) -> tuple[list[int], list[int]]:
    """Decode a text; return the positions, and the times in microseconds since 1970.

    :raises InvalidArgument: the text is not a result of :func:`encode`.
    """
    try:
        numbers = list(_numbers(base64.b64decode(text, validate=True)))
    except (binascii.Error, ValueError, IndexError):
        raise InvalidArgument(f"{text[:40]!r} does not encode arrival times") from None
    positions: list[int] = []
    times: list[int] = []
    position = time_us = 0
    for step, folded in zip(numbers[::2], numbers[1::2], strict=False):
        position += step * _UNIT
        time_us += folded // 2 if folded % 2 == 0 else -(folded + 1) // 2
        if step < 1 or position >= 2**63 or not -(2**62) < time_us < 2**62:
            raise InvalidArgument(f"{text[:40]!r} does not encode arrival times")
        positions.append(position)
        times.append(time_us)
    if len(numbers) % 2:
        raise InvalidArgument(f"{text[:40]!r} does not encode arrival times")
    return positions, times


def bounded(positions: Sequence[int], times: Sequence[int], start: int, end: int) -> str:
    """Encode the entries that determine the arrival times in a range [start, end): the entries
    inside the range, and the first entry at or after ``end``.
    """
    entries: list[tuple[int, int]] = []
    for position, time_ns in zip(positions, times, strict=True):
        if position <= start or (entries and position <= entries[-1][0]):
            continue
        entries.append((position, time_ns))
        if position >= end:
            break
    return encode(entries)


def _add(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        if shift > 63:
            raise ValueError("a number is too long")
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("a number is cut off")
