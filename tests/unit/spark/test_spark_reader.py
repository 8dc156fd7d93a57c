# SPDX-License-Identifier: Apache-2.0
"""Reading a range: in pieces of any size, from one source after another, without a message missing
or twice; and what is refused."""

from __future__ import annotations

import gc
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from support import frames as made
from support.frames import Stream

from penstock.client import DaemonUnreachable, GroupRefused, NotAuthorised, RangeNotRetained
from penstock.core import gather
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _fetch, _reader, _times
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._options import Daemon, SourceOptions, StreamName
from penstock.spark_bridge._planner import Holder, Range
from penstock.spark_bridge._reader import DataLoss, Unreadable, read_ranges

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
        holders=(HOLDER,), times=_times.encode([(stream.position, 10**9)]),
    )


def read(
    stream: Stream, controls: list[Pieces], options: SourceOptions = OPTIONS
) -> list[dict[str, Any]]:
    item = whole(stream)

    def sources(_options: SourceOptions, _item: Range) -> Iterator[Any]:
        for control in controls:
            yield _fetch._Fetched(item, HOLDER, lambda _, control=control: control)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_reader, "sources", sources)
        return [row for batch in read_ranges(options, SCHEMA, [item]) for row in batch.to_pylist()]


_lengths = st.lists(st.integers(0, 200) | st.integers(2000, 9000), min_size=1, max_size=60)


@given(lengths=_lengths, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
       failures=st.lists(st.integers(0, 12), max_size=3),
       batch_bytes=st.sampled_from([1024, 16 * 1024, 64 * 1024]))
@settings(max_examples=120)
def test_every_message_comes_once_whoever_fails_on_the_way(
    lengths: list[int], sizes: list[int], failures: list[int], batch_bytes: int
) -> None:
    stream = made.of_messages(bytes([n % 256]) * length for n, length in enumerate(lengths))
    controls = [Pieces(stream, sizes, fail_after=after) for after in failures]
    options = attrs.evolve(OPTIONS, batch_bytes=batch_bytes)
    rows = read(stream, [*controls, Pieces(stream, sizes)], options)
    assert [(row["position"], row["value"]) for row in rows] == [
        (after, payload) for _, after, _, payload in stream.messages
    ]


def test_a_message_longer_than_a_batch_gets_a_larger_one() -> None:
    stream = Stream(term_length=1024 * 1024)
    for length in (10, 100_000, 10):
        stream.message(bytes([7]) * length)
    assert [len(row["value"]) for row in read(stream, [Pieces(stream, [3])])] == [10, 100_000, 10]


def test_a_message_that_was_given_up_at_the_end_of_a_term_holds_nobody_up() -> None:
    """Its publisher died between two fragments, and the rest of the term is behind it."""
    stream = Stream()
    stream.message(b"before")
    while stream.term_length - stream.position > 256:
        stream.pad(min(4096, stream.term_length - stream.position - 256))
    stream.frame(bytes(224), made.BEGIN)
    assert stream.position == stream.term_length
    stream.message(b"behind")
    for sizes in ([1], [1000]):
        rows = read(stream, [Pieces(stream, sizes)])
        assert [row["value"] for row in rows] == [b"before", b"behind"]


def test_a_fetch_ends_with_its_reader_and_without_a_garbage_collection() -> None:
    """A fetch has a connection of the worker, and the next task needs it."""
    stream = made.of_messages([b"a"] * 3)
    ended = []

    class Watched(Pieces):
        def fetch(self, *, start: int, end: int, **log: Any) -> Iterator[bytes]:
            try:
                yield from super().fetch(start=start, end=end, **log)
            finally:
                ended.append(end)

    gc.collect()
    gc.disable()
    try:
        far: Any = Watched(stream, [3])
        source = _fetch._Fetched(whole(stream), HOLDER, lambda _: far)
        source.frames(stream.start)
        assert ended == []
        del source
        assert ended == [stream.position]
    finally:
        gc.enable()


def test_what_nobody_has_fails_or_is_skipped() -> None:
    stream = made.of_messages([b"a", b"b"])
    gone = RangeNotRetained("released", lowest_readable=4096, end_position=8192)
    with pytest.raises(DataLoss, match=r"\[0, 128\) cannot be read: far: released.*failOnDataLoss"):
        read(stream, [Pieces(stream, [1], fail_after=0, error=gone)])
    tolerant = attrs.evolve(OPTIONS, fail_on_data_loss=False)
    assert read(stream, [Pieces(stream, [1], fail_after=0, error=gone)], tolerant) == []
    with pytest.raises(DataLoss, match="no daemon holds it"):
        read(stream, [])


@pytest.mark.parametrize("error", [
    None,       # unreachable
    NotAuthorised("the key is not taken"),
    GroupRefused("16 fetches of this connection are under way: try again later", code="limit"),
])
@pytest.mark.parametrize("others", [0, 1])
def test_what_is_only_out_of_reach_is_never_skipped(error: Exception | None, others: int) -> None:
    """Although another daemon has it no more."""
    stream = made.of_messages([b"a", b"b"])
    gone = RangeNotRetained("released", lowest_readable=4096, end_position=8192)
    controls = [Pieces(stream, [1], fail_after=0, error=error)]
    controls += [Pieces(stream, [1], fail_after=0, error=gone)] * others
    for options in (OPTIONS, attrs.evolve(OPTIONS, fail_on_data_loss=False)):
        with pytest.raises(Unreadable, match=r"\[0, 128\) cannot be read: far: .*daemon"):
            read(stream, controls, options)


@pytest.mark.parametrize("damaged", [False, True])
def test_rows_that_are_out_are_not_completed_from_elsewhere_when_they_may_be_wrong(
    damaged: bool
) -> None:
    """Somebody wrote where they were read: the task has to fail, and to be repeated."""
    stream = made.of_messages([b"a", b"b"])
    if damaged:
        stream.data[64 + 8] ^= 32       # what was written there
    item = whole(stream)

    class Released(_fetch._Fetched):
        def finish(self) -> None:
            raise _fetch.RangeLost("released while it was read")

    def sources(_options: SourceOptions, _item: Range) -> Iterator[Any]:
        for kind in (Released, _fetch._Fetched):
            yield kind(item, HOLDER, lambda _: Pieces(stream, [1]))

    for tolerant in (False, True):
        options = attrs.evolve(OPTIONS, fail_on_data_loss=not tolerant)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_reader, "sources", sources)
            with pytest.raises(DataLoss, match=r"released while it was read.*has to run again"):
                list(read_ranges(options, SCHEMA, [item]))


def test_a_host_without_the_key_file_reads_nothing_and_says_so(tmp_path: Path) -> None:
    stream = made.of_messages([b"a", b"b"])
    options = attrs.evolve(
        OPTIONS, fail_on_data_loss=False, key_file=str(tmp_path / "none.key_secret"),
        daemon_dir=str(tmp_path), daemons=(Daemon(address="tcp://far:1", server_key="k"),),
    )
    with pytest.raises(InvalidArgument, match=r"option keyFile: .*none\.key_secret"):
        list(read_ranges(options, SCHEMA, [whole(stream)]))


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


@pytest.mark.parametrize("batch_bytes", [64, 64 * 1024])
def test_damage_in_the_middle_is_read_elsewhere_or_skipped_where_losses_are(
    batch_bytes: int
) -> None:
    stream = made.of_messages([b"a", b"b", b"c", b"d"])
    damaged = made.of_messages([b"a", b"b", b"c", b"d"])
    damaged.data[2 * 64 + 8] ^= 32       # another term offset
    options = attrs.evolve(OPTIONS, batch_bytes=batch_bytes)
    with pytest.raises(DataLoss, match=r"\[128, 256\) cannot be read.*failOnDataLoss=false"):
        read(damaged, [Pieces(damaged, [1])], options)
    tolerant = attrs.evolve(options, fail_on_data_loss=False)
    rows = read(damaged, [Pieces(damaged, [1])], tolerant)
    assert [row["value"] for row in rows] == [b"a", b"b"]
    rows = read(stream, [Pieces(damaged, [1]), Pieces(stream, [1])], options)
    assert [row["value"] for row in rows] == [b"a", b"b", b"c", b"d"]


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


def test_the_memory_of_a_batch_is_used_again_without_page_faults() -> None:
    """A fault costs as much as a dozen messages, and a batch of 4 MiB has a thousand pages."""
    size, held = 4 * 1024 * 1024, 3         # Spark holds a batch while the next one is made

    def fill() -> int:
        pa.default_memory_pool().release_unused()       # as between two tasks
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        kept = [_reader._Arrays(size, 1024) for _ in range(held)]
        for arrays in kept:
            np.frombuffer(arrays._values, np.uint8)[:] = 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    pages = held * size // resource.getpagesize()
    faults = [fill() for _ in range(4)][-1]
    assert faults < pages / 8, f"{faults} faults for {pages} pages"


def test_a_block_is_used_again_when_nothing_refers_to_its_buffer() -> None:
    blocks = _reader.Blocks()
    size = 100_000
    first = blocks.take(size)
    place, array = first.address, np.frombuffer(first.slice(64, 800), np.int64)[3:]
    part = pa.Array.from_buffers(pa.int64(), 10, [None, first.slice(0, 80)]).slice(2)
    del first
    assert blocks.take(size).address != place
    del array
    assert blocks.take(size).address != place
    del part
    seen = [blocks.take(size) for _ in range(3)]
    assert place in [buffer.address for buffer in seen]
    assert len({buffer.address for buffer in seen}) == len(seen)


def test_blocks_that_are_kept_are_bounded() -> None:
    blocks = _reader.Blocks()
    for size in (64, 70_000, 5_000_000, 64_000_000):
        taken = [blocks.take(size) for _ in range(300)] if size < 10**6 else [blocks.take(size)]
        assert all(len(buffer) == size for buffer in taken)
        del taken
    kept = sum(len(block) for free in blocks._free.values() for block in free)
    assert kept <= 2 * _reader._BLOCKS_KEPT
