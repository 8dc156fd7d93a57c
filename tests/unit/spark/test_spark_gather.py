# SPDX-License-Identifier: Apache-2.0
"""The native gather against a walk in Python, on streams drawn at random and damaged ones."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import frames as made
from support.frames import Stream

from penstock.core import digest, gather
from penstock.core.errors import ClosedError, CorruptLogError, InvalidArgument, NativeError

Row = tuple[int, int, bytes]

GAP = 0x50474150 << 32

_piece = st.one_of(
    st.tuples(st.just("message"), st.binary(max_size=700), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("pad"), st.integers(1, 40), st.sampled_from([0, GAP | 3, GAP | 0x7FFFFFFF])),
    st.tuples(st.just("orphan"), st.binary(max_size=100), st.sampled_from([0, made.END])),
    st.tuples(st.just("begun"), st.binary(max_size=100), st.just(0)),
)


def build(pieces: list[tuple[str, object, int]], start: int = 0) -> Stream:
    """A stream of messages, padding, and fragments whose others are missing, within one term."""
    stream = Stream(start=start)
    for kind, what, value in pieces:
        if stream.position % stream.term_length > stream.term_length - 4096:
            break
        if kind == "message":
            assert isinstance(what, bytes)
            stream.message(what, value)
        elif kind == "pad":
            assert isinstance(what, int)
            stream.pad(32 * what, value)
        elif kind == "orphan":
            stream.frame(bytes(what), value)  # type: ignore[call-overload]
        else:
            stream.frame(bytes(what), made.BEGIN)  # type: ignore[call-overload]
    return stream


def walk(stream: Stream, start: int | None = None, end: int | None = None) -> list[Row]:
    """The rows of a stream, the slow way."""
    rows: list[Row] = []
    parts: list[bytes] | None = None
    reserved_of = 0
    at = 0 if start is None else start - stream.start
    stop = len(stream.data) if end is None else end - stream.start
    while at < stop:
        length, _, flags, kind, *_, reserved = struct.unpack_from("<iBBHiiiiq", stream.data, at)
        payload = bytes(stream.data[at + 32 : at + length])
        at += made.align(length)
        if kind == made.PAD:
            parts = None
            continue
        if flags & made.BEGIN:
            parts, reserved_of = [], reserved
        if parts is None:
            continue
        parts.append(payload)
        if flags & made.END:
            rows.append((stream.start + at, reserved_of, b"".join(parts)))
            parts = None
    return rows


def frames_of(stream: Stream, position: int | None = None) -> gather.Frames:
    at = stream.start if position is None else position
    return gather.frames_of(
        stream.data, start=at, offset=at - stream.start, session_id=stream.session_id,
        stream_id=stream.stream_id, initial_term_id=stream.initial_term_id,
        term_length=stream.term_length,
    )


class Arrays:
    def __init__(self, rows: int, values: int) -> None:
        self.values = bytearray(max(values, 1))
        self.offsets = bytearray(4 * (rows + 1))
        self.positions = bytearray(8 * rows)
        self.reserved = bytearray(8 * rows)
        self.rows = gather.Rows(
            values=self.values, offsets=self.offsets, positions=self.positions,
            reserved_values=self.reserved,
        )

    def read(self) -> list[Row]:
        count = self.rows.count
        offsets = struct.unpack_from(f"<{count + 1}i", self.offsets)
        positions = struct.unpack_from(f"<{count}q", self.positions)
        reserved = struct.unpack_from(f"<{count}q", self.reserved)
        return [
            (positions[n], reserved[n], bytes(self.values[offsets[n] : offsets[n + 1]]))
            for n in range(count)
        ]


@given(pieces=st.lists(_piece, max_size=60), rows=st.integers(1, 40),
       values=st.integers(1, 3000), start=st.sampled_from([0, 96, 5 * made.TERM + 64]))
@settings(max_examples=200)
def test_batches_of_any_size_hold_the_messages_of_the_walk(
    pieces: list[tuple[str, object, int]], rows: int, values: int, start: int
) -> None:
    stream = build(pieces, start)
    got: list[Row] = []
    at, orphans, gaps = stream.start, 0, 0
    for _ in range(len(pieces) * 4 + 4):
        arrays = Arrays(rows, values)
        stop = arrays.rows.copy(frames_of(stream, at))
        got += arrays.read()
        orphans += arrays.rows.orphans
        gaps += arrays.rows.gaps
        assert arrays.rows.position >= at
        at = arrays.rows.position
        if stop is gather.Stop.TOO_LONG:
            assert arrays.rows.needed > values
            values = arrays.rows.needed
            continue
        if stop is not gather.Stop.FULL:
            break
    assert got == walk(stream)
    complete = at == stream.position
    assert complete == (stop is gather.Stop.END)
    assert stop in (gather.Stop.END, gather.Stop.INCOMPLETE)
    assert gaps == sum(
        1 for kind, _, value in pieces[: len(pieces)] if kind == "pad" and value >> 32 == GAP >> 32
    ) or len(stream.data) > made.TERM - 8192
    total = sum(1 for kind, *_ in pieces if kind in ("orphan", "begun"))
    assert orphans <= total


@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=80),
       max_bytes=st.integers(1, 200_000), max_messages=st.integers(0, 60),
       pieces=st.integers(1, 7), first=st.integers(0, 20), cut_off=st.integers(0, 40))
@settings(max_examples=150)
def test_cuts_lie_between_messages_and_within_the_limits(
    sizes: list[int], max_bytes: int, max_messages: int, pieces: int, first: int, cut_off: int
) -> None:
    stream = made.of_messages(bytes(size % 251 for _ in range(size)) for size in sizes)
    first = min(first, len(sizes) - 1)
    with tempfile.TemporaryDirectory() as folder:
        log = gather.MappedLog.open(str(stream.write_log(Path(folder) / "log")))
    start = stream.messages[first][0]
    if stream.position - start > 2 * made.TERM or start < stream.position - 3 * made.TERM:
        start = stream.messages[-1][0]
    end = max([start, *stream.edges[: len(stream.edges) - cut_off]])
    cuts = gather.cut(log, start, end, max_bytes=max_bytes, max_messages=max_messages,
                      pieces=pieces)
    whole = [m for m in stream.messages if m[0] >= start and m[1] <= end]
    if not cuts.positions:
        assert not whole
        return
    places = {start, *(m[1] for m in whole)}
    last = cuts.positions[-1]
    assert cuts.positions == sorted(set(cuts.positions))
    assert len(cuts.positions) <= pieces
    # Behind a message, or behind padding at the end of a term.
    assert all(p in places or p % made.TERM == 0 for p in cuts.positions)
    admitted = [m for m in whole if m[1] <= last]
    assert cuts.messages == len(admitted)
    if len(admitted) > 1:
        assert last - start <= max_bytes
        assert max_messages == 0 or len(admitted) <= max_messages
    further = [m for m in whole if m[1] > last]
    if further:
        assert further[0][1] - start > max_bytes or len(admitted) == max_messages
    parts = [b - a for a, b in zip([start, *cuts.positions], cuts.positions, strict=False)]
    largest = max((m[1] - m[0] for m in whole), default=0)
    if len(cuts.positions) == pieces:
        assert max(parts) <= (last - start) / pieces + 2 * max(largest, 64) + made.TERM / 8


@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=80), every=st.integers(1, 9),
       first=st.integers(0, 20), cut_off=st.integers(0, 10), most=st.integers(1, 20),
       prefix=st.integers(1, 3000), max_bytes=st.integers(1, 100_000))
@settings(max_examples=150)
def test_messages_are_found_by_their_reserved_value(
    sizes: list[int], every: int, first: int, cut_off: int, most: int, prefix: int, max_bytes: int
) -> None:
    stream = Stream()
    for number, size in enumerate(sizes):
        stream.message(bytes(number % 251 for _ in range(size)), 7 if number % every == 0 else 8)
    start = stream.messages[min(first, len(sizes) - 1)][0]
    if start < stream.position - 2 * made.TERM:
        start = stream.messages[-1][0]
    end = max([start, *stream.edges[: len(stream.edges) - cut_off]])
    with tempfile.TemporaryDirectory() as folder:
        log = gather.MappedLog.open(str(stream.write_log(Path(folder) / "log")))
        wanted = [m for m in stream.messages if m[0] >= start and m[1] <= end and m[2] == 7]
        found: list[gather.Found] = []
        at = start
        while True:
            part = gather.find(
                log, at, end, reserved_value=7, max_bytes=max_bytes, most=most, prefix=prefix
            )
            assert len(part.messages) <= most
            found += part.messages
            if part.position == at:
                break
            at = part.position
    assert [(m.begin, m.end, m.payload) for m in found] == [
        (begin, after, payload[:prefix]) for begin, after, _, payload in wanted
    ]
    whole = [m[1] for m in stream.messages if start <= m[0] and m[1] <= end]
    assert at >= max(whole, default=start)
    assert at <= end


def test_rows_outside_of_their_data_have_no_digest() -> None:
    for offsets in ([0, 4], [2, 1], [-1, 2]):
        with pytest.raises(InvalidArgument, match="row 0"):
            digest.add_column(bytearray(8), b"abc", struct.pack("<2q", *offsets))


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=40), at=st.integers(0, 10**6),
       value=st.integers(0, 255))
@settings(max_examples=200)
def test_a_damaged_byte_is_refused_or_harmless(sizes: list[int], at: int, value: int) -> None:
    stream = made.of_messages(bytes(size) for size in sizes)
    stream.data[at % len(stream.data)] = value
    arrays = Arrays(100, 100_000)
    try:
        arrays.rows.copy(frames_of(stream))
    except CorruptLogError as error:
        assert "position" in str(error)
    assert arrays.rows.used <= 100_000
    assert len(arrays.read()) <= 100


def test_a_log_file_is_read_over_the_ends_of_terms(tmp_path: Path) -> None:
    stream = made.of_messages(bytes([n % 256]) * (n % 900) for n in range(600))
    log = gather.MappedLog.open(str(stream.write_log(tmp_path / "log")))
    assert log.facts.session_id == -77
    assert log.facts.term_length == made.TERM
    start = next(m[0] for m in stream.messages if m[0] > stream.position - 2 * made.TERM)
    got: list[Row] = []
    at = start
    while at < stream.position:
        arrays = Arrays(50, 8192)
        arrays.rows.copy(log.frames(at, stream.position))
        got += arrays.read()
        at = arrays.rows.position
    assert got == walk(stream, start)
    assert log.intact(start)
    assert not log.intact(start - 3 * made.TERM)


def test_rows_of_several_calls_stand_behind_each_other() -> None:
    one, two = made.of_messages([b"a", b"bc"]), made.of_messages([b"", b"def"])
    arrays = Arrays(4, 100)
    assert arrays.rows.copy(frames_of(one)) is gather.Stop.END
    assert arrays.rows.copy(frames_of(two)) is gather.Stop.END
    assert [row[2] for row in arrays.read()] == [b"a", b"bc", b"", b"def"]


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    stream = made.of_messages([b"abc"])
    path = stream.write_log(tmp_path / "log")
    log = gather.MappedLog.open(str(path))
    for start, end in ((-32, 0), (31, 64), (64, 32), (0, 65)):
        with pytest.raises(InvalidArgument):
            log.frames(start, end)
    with pytest.raises(InvalidArgument, match="max_bytes=0"):
        gather.cut(log, 0, 64, max_bytes=0)
    with pytest.raises(InvalidArgument, match="two entries"):
        gather.Rows(values=bytearray(1), offsets=bytearray(4))
    with pytest.raises(InvalidArgument, match="positions has 1 entries for 2 rows"):
        gather.Rows(values=bytearray(1), offsets=bytearray(12), positions=bytearray(8))
    with pytest.raises(NativeError, match="no-such"):
        gather.MappedLog.open(str(tmp_path / "no-such"))
    path.write_bytes(bytes(200 * 1024))
    with pytest.raises(CorruptLogError):
        gather.MappedLog.open(str(path))
    frames = log.frames(0, 64)
    log.close()
    with pytest.raises(ClosedError):
        log.frames(0, 64)
    assert frames.end == 64  # keeps its memory
