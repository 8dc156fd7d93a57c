# SPDX-License-Identifier: Apache-2.0
"""Reading a range: in pieces of any size, from one source after another, without a message missing
or twice; and what is refused."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from support import frames as made
from support.frames import Stream

from penstock.client import DaemonUnreachable, RangeNotRetained
from penstock.core import gather
from penstock.spark_bridge import _fetch, _reader
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._options import SourceOptions, StreamName
from penstock.spark_bridge._planner import Holder, Range
from penstock.spark_bridge._reader import DataLoss, read_ranges

OPTIONS = SourceOptions(
    streams=(StreamName(channel="aeron:ipc", stream_id=1001),), subscription="s",
    batch_bytes=64 * 1024,
)
SCHEMA = StructType([
    StructField("value", BinaryType()), StructField("position", LongType()),
    StructField("host", StringType()),
])
HOLDER = Holder(daemon=0, daemon_id=1, daemon_epoch=1, host="far", log_id=1, log_path="")


class Pieces:
    """The fetch service of a daemon that has a stream, in pieces of some frames; it fails where it
    is told to."""

    def __init__(
        self, stream: Stream, sizes: list[int], fail_after: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self._stream = stream
        self._sizes = sizes
        self._fail_after = fail_after
        self._error = error or DaemonUnreachable("gone", address="tcp://far:1", timeout_s=1)

    def fetch(self, *, start: int, end: int, **_log: Any) -> Iterator[bytes]:
        edges = [edge for edge in self._stream.edges if start < edge <= end]
        number = 0
        while edges:
            if number == self._fail_after:
                raise self._error
            taken = min(len(edges), self._sizes[number % len(self._sizes)])
            stop = edges[taken - 1]
            # Of one term at most.
            while start // self._stream.term_length != (stop - 1) // self._stream.term_length:
                taken -= 1
                stop = edges[taken - 1]
            edges = edges[taken:]
            yield bytes(self._stream.data[start - self._stream.start : stop - self._stream.start])
            start = stop
            number += 1


def whole(stream: Stream) -> Range:
    return Range(
        session=Session(channel="aeron:ipc", stream_id=stream.stream_id,
                        session_id=stream.session_id, initial_term_id=stream.initial_term_id),
        start=stream.start, end=stream.position, term_length=stream.term_length,
        holders=(HOLDER,), time_positions=(stream.position,), times_ns=(10**9,),
    )


def read(
    stream: Stream, controls: list[Pieces], options: SourceOptions = OPTIONS
) -> list[dict[str, Any]]:
    item = whole(stream)

    def sources(_options: SourceOptions, _item: Range) -> Iterator[Any]:
        for control in controls:
            yield _fetch._Fetched(item, HOLDER, control)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_reader, "sources", sources)
        return [row for batch in read_ranges(options, SCHEMA, [item]) for row in batch.to_pylist()]


_lengths = st.lists(st.integers(0, 200) | st.integers(2000, 9000), min_size=1, max_size=60)


@given(lengths=_lengths, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
       failures=st.lists(st.integers(0, 12), max_size=3))
@settings(max_examples=80)
def test_every_message_comes_once_whoever_fails_on_the_way(
    lengths: list[int], sizes: list[int], failures: list[int]
) -> None:
    stream = made.of_messages(bytes([n % 256]) * length for n, length in enumerate(lengths))
    controls = [Pieces(stream, sizes, fail_after=after) for after in failures]
    rows = read(stream, [*controls, Pieces(stream, sizes)])
    assert [(row["position"], row["value"]) for row in rows] == [
        (after, payload) for _, after, _, payload in stream.messages
    ]


def test_a_message_longer_than_a_batch_gets_a_larger_one() -> None:
    stream = Stream(term_length=1024 * 1024)
    for length in (10, 100_000, 10):
        stream.message(bytes([7]) * length)
    assert [len(row["value"]) for row in read(stream, [Pieces(stream, [3])])] == [10, 100_000, 10]


def test_what_nobody_has_fails_or_is_skipped() -> None:
    stream = made.of_messages([b"a", b"b"])
    gone = RangeNotRetained("released", lowest_readable=4096, end_position=8192)
    with pytest.raises(DataLoss, match=r"\[0, 128\) cannot be read: far: released.*failOnDataLoss"):
        read(stream, [Pieces(stream, [1], fail_after=0, error=gone)])
    tolerant = attrs.evolve(OPTIONS, fail_on_data_loss=False)
    assert read(stream, [Pieces(stream, [1], fail_after=0, error=gone)], tolerant) == []
    with pytest.raises(DataLoss, match="no daemon holds it"):
        read(stream, [])


def test_damage_and_gaps_are_not_passed_on() -> None:
    stream = made.of_messages([b"a", b"b", b"c"])
    stream.data[64 + 8] ^= 32       # another term offset
    with pytest.raises(DataLoss, match="position 64 of session -77"):
        read(stream, [Pieces(stream, [1])])
    dropped = made.of_messages([b"a"])
    dropped.pad(64, reserved=0x50474150 << 32 | 5)
    dropped.message(b"b")
    with pytest.raises(DataLoss, match=r"1 gaps \(5 messages are known to be missing\)"):
        read(dropped, [Pieces(dropped, [1])])
    before_a_long_one = Stream(term_length=1024 * 1024)
    before_a_long_one.pad(64, reserved=0x50474150 << 32 | 5)
    before_a_long_one.message(bytes(100_000))
    with pytest.raises(DataLoss, match=r"1 gaps \(5 messages are known to be missing\)"):
        read(before_a_long_one, [Pieces(before_a_long_one, [100])])
    tolerant = attrs.evolve(OPTIONS, fail_on_data_loss=False)
    rows = read(dropped, [Pieces(dropped, [1])], tolerant)
    assert [row["value"] for row in rows] == [b"a", b"b"]


def test_a_log_is_mapped_once_until_another_file_has_its_name() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = made.of_messages([b"a"]).write_log(Path(folder) / "log")
        first = _fetch.worker.log(str(path))
        assert _fetch.worker.log(str(path)) is first
        path.unlink()
        made.of_messages([b"b"], session_id=5).write_log(path)
        second = _fetch.worker.log(str(path))
        assert (first.facts.session_id, second.facts.session_id) == (-77, 5)
        path.unlink()
        with pytest.raises(OSError, match="log"):
            _fetch.worker.log(str(path))
    assert isinstance(first, gather.MappedLog)
