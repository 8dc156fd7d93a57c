# SPDX-License-Identifier: Apache-2.0
"""Look for messages in a session that has several logs: each log continues at the position where
the log before it ends.

An image ends when its sender is silent for some seconds, for example while the sender's daemon
starts again. When the sender continues the session, a new image begins at the position where the
first image ended. The new image has a new log. A request to the daemon for messages concerns only
one log. A message of several frames can begin in one log and end in the next. For such a message,
this module fetches the frames from both logs to find the end of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import attrs

from penstock.client import LogMark, LogMarks
from penstock.core import gather
from penstock.spark_bridge._planner import Holding, Want

#: Returns the frames of a range of a log.
Frames: TypeAlias = Callable[[Holding, int, int], Iterable[bytes]]
#: Returns (end, messages) of the part of a wish that is in its first log.
Cut: TypeAlias = Callable[[Want, int], tuple[int, int]]
#: Returns the messages with the marker's reserved value in one log.
Find: TypeAlias = Callable[[Want, int, int], LogMarks]


@attrs.frozen(kw_only=True)
class Across:
    """A message of a session; the message may begin in one log and end in the next."""

    end: int
    reserved_value: int
    payload: bytes


def message_at(logs: Sequence[Holding], start: int, frames: Frames) -> Across | None:
    """Return the message that begins at ``start`` in the first log; return None if the logs do not
    contain the whole message.
    """
    data, at = b"", start
    for holding in logs:
        log = holding.log
        for piece in frames(holding, at, log.end_position):
            data += piece
            values, ends, reserved = bytearray(len(data)), bytearray(8), bytearray(8)
            rows = gather.Rows(
                values=values, offsets=bytearray(8), positions=ends, reserved_values=reserved
            )
            rows.copy(gather.frames_of(
                data, start=start, session_id=log.session_id, stream_id=log.stream_id,
                initial_term_id=log.initial_term_id, term_length=log.term_length,
            ))
            if rows.count:
                return Across(
                    end=int.from_bytes(ends, "little"), payload=bytes(values[: rows.used]),
                    reserved_value=int.from_bytes(reserved, "little", signed=True),
                )
        at = log.end_position
    return None


def cut(want: Want, max_messages: int, one: Cut, frames: Frames) -> tuple[int, int]:
    """Return the end position and the number of messages of the batch that ``want`` requests. If
    the batch has no complete message, this end position is the start of the batch.
    """
    at, messages, stop = want.start, 0, want.start + want.max_bytes
    for number, holding in enumerate(want.logs):
        edge = holding.log.end_position
        if at >= edge:
            continue
        part = attrs.evolve(
            want, holding=holding, behind=(), start=at, max_bytes=max(1, stop - at)
        )
        reached, count = one(part, max_messages - messages if max_messages else 0)
        if messages and reached > stop:
            break
        at, messages = reached, messages + count
        if messages and (stop <= edge or 0 < max_messages <= messages):
            break
        if at < edge and number + 1 < len(want.logs):
            across = message_at(want.logs[number:], at, frames)
            if across is None or (messages and across.end > stop):
                break
            at, messages = across.end, messages + 1
            if at >= stop or 0 < max_messages <= messages:
                break
    return at, messages


def find(
    want: Want, start: int, max_bytes: int, reserved_value: int, one: Find, frames: Frames
) -> LogMarks:
    """In the log that contains the position ``start``, search for messages with the reserved value
    ``reserved_value``. If the message at ``start`` begins in this log but ends in the next log,
    return only this message.
    """
    for number, holding in enumerate(want.logs):
        if start >= holding.log.end_position:
            continue
        found = one(attrs.evolve(want, holding=holding, behind=()), start, max_bytes)
        if found.position > start or number + 1 == len(want.logs):
            return found
        across = message_at(want.logs[number:], start, frames)
        if across is None:
            return found
        mark = LogMark(begin=start, end=across.end, payload=across.payload)
        return LogMarks(
            marks=[mark] if across.reserved_value == reserved_value else [], position=across.end
        )
    return LogMarks(marks=[], position=start)
