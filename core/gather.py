# SPDX-License-Identifier: Apache-2.0
"""Copy ranges of a log into columns (``ps_gather.h``).

These functions change no subscriber position, so the same range can be read again. A range must
begin and end at a boundary between two messages; the function :func:`cut` finds such positions.
Calls release the GIL.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import attrs

from penstock.core import errors
from penstock.core._lib import CORE, ffi, lib

#: Alignment of frames in bytes.
ALIGNMENT: Final = 32
#: Most bytes of payload in one batch: offsets have 32 bits.
MOST_VALUES: Final = 2**31 - 1


class Stop(IntEnum):
    """Why a copy stopped."""

    END = lib.PS_GATHER_END
    FULL = lib.PS_GATHER_FULL
    TOO_LONG = lib.PS_GATHER_TOO_LONG
    INCOMPLETE = lib.PS_GATHER_INCOMPLETE


@attrs.frozen(kw_only=True)
class LogFacts:
    """Values from a log's metadata: ids of the log and its stream, term length and MTU. Lengths are
    in bytes."""

    correlation_id: int
    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu: int

    @classmethod
    def of(cls, native: Any) -> LogFacts:
        """Create the object from a structure with the same field names."""
        return cls(**{field.name: int(getattr(native, field.name)) for field in attrs.fields(cls)})


class Frames:
    """A range of contiguous frames of one term. As long as the object exists, the memory of the
    frames stays valid."""

    __slots__ = ("keep", "native")

    def __init__(self, native: Any, keep: object) -> None:
        self.native = native
        self.keep = keep

    @property
    def start(self) -> int:
        """Position of the first byte."""
        return int(self.native.start)

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return int(self.native.start) + int(self.native.length)

    @property
    def data(self) -> bytes:
        """Return a copy of the bytes."""
        return bytes(ffi.buffer(self.native.data, self.native.length))


def frames_of(
    data: Any,
    *,
    start: int,
    session_id: int,
    stream_id: int,
    initial_term_id: int,
    term_length: int,
    offset: int = 0,
    end: int | None = None,
) -> Frames:
    """Return the frames in ``data``, a copy of a part of a log that may come from another host.
    ``offset`` is the index in ``data`` of the byte at position ``start``. The frames end at
    ``end``, at the end of the data or at the end of the term, whichever comes first."""
    view = ffi.from_buffer("uint8_t[]", data)
    length = len(view) - offset
    if offset < 0 or length < 0 or start < 0:
        raise errors.InvalidArgument(f"no byte {offset} in a buffer of {len(view)}")
    if end is not None:
        length = min(length, end - start)
    native = ffi.new("ps_gather_frames_t *")
    native.data = view + offset
    native.start = start
    native.length = max(0, min(length, term_length - start % max(term_length, 1)))
    native.session_id = session_id
    native.stream_id = stream_id
    native.initial_term_id = initial_term_id
    native.term_length = term_length
    return Frames(native, view)


class MappedLog:
    """A log file, mapped read-only. After :meth:`close`, the log stays mapped as long as an object
    refers to its frames."""

    def __init__(self, handle: Any, facts: LogFacts) -> None:
        self._handle = handle
        self.facts = facts

    @classmethod
    def open(cls, path: str) -> MappedLog:
        """:raises NativeError, CorruptLogError: no such file, or not a log."""
        out = ffi.new("ps_gather_log_t **")
        facts = ffi.new("ps_gather_facts_t *")
        name = ffi.new("char[]", path.encode())
        CORE.check(lib.ps_gather_open(name, out, facts), f"cannot read {path}")
        return cls(ffi.gc(out[0], lib.ps_gather_close), LogFacts.of(facts))

    def close(self) -> None:
        """Unmap the log. If objects still use frames of the log, unmap it when the last of these
        objects is destroyed."""
        self._handle = None

    def frames(self, position: int, end: int) -> Frames:
        """Return the frames from ``position`` to ``end``, or to the end of the term."""
        handle = self._open_handle()
        native = ffi.new("ps_gather_frames_t *")
        CORE.check(lib.ps_gather_locate(handle, position, end, native), "reading a log")
        return Frames(native, handle)

    def intact(self, position: int) -> bool:
        """Return True if no writer has overwritten the frame at ``position``. The check is quick
        but not certain. To be certain, ask the daemon after the copy whether the daemon still
        retains the position."""
        return bool(lib.ps_gather_intact(self._open_handle(), position))

    def _open_handle(self) -> Any:
        if self._handle is None:
            raise errors.ClosedError("the log was closed")
        return self._handle


class Rows:
    """Arrays for copied messages.

    Each argument is a writable buffer: ``values`` gets the payloads. ``offsets`` (int32) needs one
    entry more than the largest number of rows. ``positions`` gets the position after each message,
    and ``reserved_values`` the reserved value (both int64).
    """

    def __init__(
        self, *, values: Any, offsets: Any, positions: Any = None, reserved_values: Any = None
    ) -> None:
        native = ffi.new("ps_gather_rows_t *")
        self._native = native
        self._keep = [
            ffi.from_buffer("uint8_t[]", values, require_writable=True),
            ffi.from_buffer("int32_t[]", offsets, require_writable=True),
        ]
        native.values, native.offsets = self._keep
        native.value_limit = min(len(self._keep[0]), MOST_VALUES)
        native.row_limit = len(self._keep[1]) - 1
        for name, column in (("positions", positions), ("reserved_values", reserved_values)):
            if column is None:
                continue
            view = ffi.from_buffer("int64_t[]", column, require_writable=True)
            if len(view) < native.row_limit:
                raise errors.InvalidArgument(
                    f"{name} has {len(view)} entries for {native.row_limit} rows"
                )
            self._keep.append(view)
            setattr(native, name, view)
        if native.row_limit < 1:
            raise errors.InvalidArgument("offsets needs at least two entries")

    def copy(self, frames: Frames) -> Stop:
        """Append the messages of ``frames`` to the columns, until the frames end or an array is
        full.

        :raises CorruptLogError: a frame's header has impossible values; the rows that were copied
            before this frame remain.
        """
        return Stop(CORE.check(lib.ps_gather_copy(frames.native, self._native), "reading a log"))

    @property
    def count(self) -> int:
        """Rows so far."""
        return int(self._native.rows)

    @property
    def used(self) -> int:
        """Bytes of ``values`` so far."""
        return int(self._native.used)

    @property
    def position(self) -> int:
        """Stream position at which the next call of :meth:`copy` must continue."""
        return int(self._native.position)

    @property
    def needed(self) -> int:
        """After ``Stop.TOO_LONG``: number of bytes that the call has read of the next message,
        which did not fit into the array."""
        return int(self._native.needed)

    @property
    def gaps(self) -> int:
        """Number of padding frames that replace dropped messages."""
        return int(self._native.gaps)

    @property
    def gap_messages(self) -> int:
        """Number of dropped messages: the sum of the numbers in the padding frames that replace
        dropped messages."""
        return int(self._native.gap_messages)

    @property
    def orphans(self) -> int:
        """Number of frames that :meth:`copy` skipped, because other frames of the same message are
        missing."""
        return int(self._native.orphans)


# ---- looking for messages ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Found:
    """A message that a search has found, with its first bytes."""

    begin: int
    end: int
    payload: bytes


@attrs.frozen(kw_only=True)
class Finding:
    """The messages found in a range, in ascending order, and the position at which the search
    ended."""

    messages: list[Found]
    position: int


def find(
    log: MappedLog, start: int, end: int, *, reserved_value: int, max_bytes: int, most: int,
    prefix: int,
) -> Finding:
    """Return the messages of [start, end) that have a given reserved value.

    :param start: a position between messages.
    :param end: a position between frames.
    :param max_bytes: number of bytes to search from ``start`` on; the last message found may end
        after them.
    :param most: largest number of messages in the answer; the search ends when it has found this
        number of messages.
    :param prefix: number of bytes to return of each message.
    """
    look = ffi.new("ps_gather_find_t *")
    look.reserved_value = reserved_value
    messages: list[Found] = []
    position = start
    while position < end and len(messages) < most:
        frames = log.frames(position, end)
        look.byte_limit = start + max_bytes - position
        if look.byte_limit <= 0:
            break
        CORE.check(lib.ps_gather_find(frames.native, look), "reading a log")
        reached = int(look.position)
        if look.found:
            begin = int(look.begin)
            messages.append(Found(
                begin=begin, end=reached, payload=_payload(log.frames(begin, reached), prefix)
            ))
        elif look.stop == Stop.INCOMPLETE:
            if frames.end % log.facts.term_length:
                position = reached
                break
            reached = frames.end        # no message continues in the next term
        position = reached
    return Finding(messages=messages, position=position)


def _payload(frames: Frames, prefix: int) -> bytes:
    """The first bytes of the one message of these frames."""
    length = frames.end - frames.start
    values = bytearray(max(length, 1))
    rows = Rows(values=values, offsets=bytearray(8))
    rows.copy(frames)
    return bytes(values[: min(rows.used, prefix)])


# ---- cutting -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Cuts:
    """Positions at which a batch of messages can be split, in ascending order; each lies between
    two messages. The last position is the end of the batch. The list is empty if no message is
    complete yet."""

    positions: list[int] = attrs.Factory(list)
    messages: int = 0


def _scan(log: MappedLog, start: int, end: int, byte_limit: int, limit: int) -> tuple[int, int]:
    """Return (last position between messages within the limits, messages before it)."""
    scan = ffi.new("ps_gather_scan_t *")
    position, messages = start, 0
    while position < end:
        frames = log.frames(position, end)
        scan.byte_limit = max(0, start + byte_limit - position)
        scan.message_limit = limit
        scan.messages = messages
        CORE.check(lib.ps_gather_scan(frames.native, scan), "reading a log")
        messages, position = int(scan.messages), int(scan.position)
        if scan.stop == Stop.INCOMPLETE and frames.end % log.facts.term_length == 0:
            position = frames.end  # no message continues in the next term
        elif scan.stop != Stop.END:
            break
    return position, messages


def cut(
    log: MappedLog,
    start: int,
    end: int,
    *,
    max_bytes: int,
    max_messages: int = 0,
    pieces: int = 1,
) -> Cuts:
    """Choose the end of a batch that begins at ``start``, and the positions that split this batch
    into parts.

    ``start`` must be a position between two messages, and ``end`` a position between two frames.
    The batch is as long as possible, but ends at or before ``end``, and has at most ``max_bytes``
    bytes and at most ``max_messages`` messages (0: no limit). If the first message alone exceeds
    these limits, the batch is this message. The other returned positions split the batch into up to
    ``pieces`` parts of about the same length.
    """
    if max_bytes < 1 or max_messages < 0 or pieces < 1:
        raise errors.InvalidArgument(
            f"max_bytes={max_bytes}, max_messages={max_messages}, pieces={pieces}: "
            "at least 1, 0 and 1"
        )
    last, messages = _scan(log, start, end, max_bytes, max_messages)
    if last == start:
        return Cuts()
    places: list[int] = []
    at = start
    for piece in range(1, pieces):
        target = start + (last - start) * piece // pieces
        if target <= at:
            continue
        place, _ = _scan(log, at, last, target - at, 0)
        if at < place < last:
            places.append(place)
            at = place
    return Cuts(positions=[*places, last], messages=messages)

