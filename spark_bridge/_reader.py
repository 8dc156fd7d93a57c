# SPDX-License-Identifier: Apache-2.0
"""Convert ranges of logs to Arrow record batches, in the executors of Spark.

A task only reads: it does not change the progress of the query. If Spark repeats the task, on any
host, the task returns the same rows.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.client import GroupError, RangeNotRetained
from penstock.core import gather
from penstock.core.errors import CorruptLogError, PenstockError
from penstock.spark_bridge import _times
from penstock.spark_bridge._decode import Decoder, Messages
from penstock.spark_bridge._fetch import FrameSource, RangeLost, sources
from penstock.spark_bridge._options import SourceOptions
from penstock.spark_bridge._planner import Range

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

_ROWS: Final = 64 * 1024                # most of one batch
_SMALLEST_BLOCK: Final = 64 * 1024
_LARGEST_BLOCK: Final = 8 * 1024 * 1024
_BLOCKS_KEPT: Final = 16 * 1024 * 1024  # bytes of each size; a worker uses two or three sizes
_SMALL_ROWS: Final = 4096               # smaller batches are joined ...
_SMALL_BYTES: Final = 256 * 1024        # ... up to here


class DataLoss(PenstockError):
    """A range of the stream is permanently lost. With failOnDataLoss=false, the query continues
    after the lost range."""


class Unreadable(PenstockError):
    """A range of the stream cannot be read at present, but may still exist. The query never skips
    it."""


def read_ranges(
    options: SourceOptions, schema: StructType, found: Sequence[Range]
) -> Iterator[Any]:
    """Return the messages of the given ranges as record batches of ``schema``, in the order of the
    ranges.

    :raises DataLoss: no daemon retains one of the ranges any more, and the option failOnDataLoss is
        true.
    :raises Unreadable: no daemon returned a range, but a daemon that may hold the range did not
        answer.
    :raises PayloadError: a message does not match the option payload.
    """
    decoder = Decoder(options, schema)
    # A daemon takes a while to answer where all processors are busy: it does while Spark takes what
    # was read.
    with ThreadPoolExecutor(1, "penstock-confirm") as confirming:
        readers = [_RangeReader(options, decoder, item, confirming) for item in found]

        def batches() -> Iterator[Any]:
            for reader in readers:
                yield from reader.batches()

        yield from _merged(batches())
        for reader in readers:
            reader.confirm()


def _merged(batches: Iterator[Any]) -> Iterator[Any]:
    """Join small batches: Spark takes as long for a batch of ten rows as for one of a thousand."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if batch.num_rows >= _SMALL_ROWS or batch.nbytes >= _SMALL_BYTES:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _SMALL_ROWS or size >= _SMALL_BYTES:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def _joined(batches: Sequence[Any]) -> Iterator[Any]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


class Blocks:
    """Memory for the Arrow batches of this process. When no batch uses a memory block any more, the
    process keeps the block for a later batch. Using a kept block again is faster than using new
    memory. The kernel clears each new page. This takes as long as processing a dozen messages.
    Several threads may use this object at the same time. A thread takes a block out of the deque of
    free blocks, and is then the only user of this block.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[Any]] = {}      # by size, a power of two

    def take(self, size: int) -> Any:
        """Return a buffer of ``size`` bytes. The buffer's memory block becomes free when no object
        refers to the buffer, to its slices or to arrays in it."""
        whole = 1 << max(size - 1, 1).bit_length()
        if not _SMALLEST_BLOCK <= whole <= _LARGEST_BLOCK:
            return pa.py_buffer(np.empty(size, np.uint8))
        free = self._free.setdefault(whole, deque(maxlen=_BLOCKS_KEPT // whole))
        try:
            block = free.pop()
        except IndexError:
            block = np.empty(whole, np.uint8)
        used = block[:size]
        weakref.finalize(used, free.append, block).atexit = False
        return pa.py_buffer(used)


@functools.cache
def _blocks() -> Blocks:
    """Return the blocks of this process: a worker keeps them for its next task."""
    return Blocks()


class _Arrays:
    """Arrays of one batch."""

    def __init__(self, value_bytes: int, rows: int) -> None:
        take = _blocks().take
        self._values = take(value_bytes)
        self._offsets = take(4 * (rows + 1))
        self._positions = np.frombuffer(take(8 * rows), np.int64)
        self._reserved = np.frombuffer(take(8 * rows), np.int64)
        self.rows = gather.Rows(
            values=self._values, offsets=self._offsets, positions=self._positions,
            reserved_values=self._reserved,
        )

    def messages(self, item: Range, host: str, times: tuple[Any, Any]) -> Messages:
        count, used = self.rows.count, self.rows.used
        value = pa.Array.from_buffers(
            pa.binary(), count,
            [None, self._offsets.slice(0, 4 * (count + 1)), self._values.slice(0, used)],
        )
        return Messages(
            value=value,
            positions=self._positions[:count],
            reserved_values=self._reserved[:count],
            channel=item.session.channel,
            stream_id=item.session.stream_id,
            session_id=item.session.session_id,
            host=host,
            key=item.key,
            time_positions=times[0],
            times_us=times[1],
        )


class _RangeReader:
    """Reads one range, from several sources in turn if one fails."""

    def __init__(
        self, options: SourceOptions, decoder: Decoder, item: Range, confirming: Executor
    ) -> None:
        self._confirming = confirming
        self._confirmation: Future[None] | None = None
        self._options = options
        self._decoder = decoder
        self._range = item
        self._position = item.start
        positions, times_us = _times.decode(item.times)
        self._times = (np.array(positions, np.int64), np.array(times_us, np.int64))
        self._value_bytes = options.batch_bytes

    def batches(self) -> Iterator[Any]:
        reasons = []
        lowest = None
        gone = True             # lowest position that all holders state
        right = True            # rows already returned
        for source in sources(self._options, self._range):
            try:
                yield from self._read(source)
                return
            except RangeLost as error:
                reasons.append(str(error))
                lowest = error.lowest
                right = self._position == self._range.start
            except CorruptLogError as error:
                reasons.append(f"{source.host}: {error}")
                lowest = None
                right = self._position == self._range.start or self._confirmed(source, reasons)
            except GroupError as error:
                reasons.append(f"{source.host}: {error}")
                lowest = getattr(error, "lowest_readable", None)
                gone = gone and isinstance(error, RangeNotRetained)
            if not right:
                break
        self._lost(reasons, lowest, gone=gone, right=right)

    def confirm(self) -> None:
        """This task has read a range. Wait until the daemon has confirmed that it still retains
        this range. The data that the task read is then right.

        :raises DataLoss: a publisher may have overwritten the data while this task read the data.
        """
        if self._confirmation is None:
            return
        try:
            self._confirmation.result()
        except RangeLost as error:
            self._lost([str(error)], error.lowest, gone=True, right=False)

    def _confirmed(self, source: FrameSource, reasons: list[str]) -> bool:
        """Return whether the damage is in the log itself. Otherwise the range was released and
        overwritten, and earlier rows may be wrong."""
        try:
            source.finish()
        except RangeLost as error:
            reasons.append(str(error))
            return False
        return True

    def _lost(
        self, reasons: Sequence[str], lowest: int | None, *, gone: bool, right: bool
    ) -> None:
        text = (
            f"{self._range.session}: [{self._position}, {self._range.end}) cannot be read: "
            f"{'; '.join(reasons) or 'no daemon holds it'}"
        )
        if not gone:
            raise Unreadable(
                f"{text}. Check that each daemon of the query runs and accepts this host's key"
            )
        if not right:
            raise DataLoss(
                f"{text}. The rows read from this range may be wrong: the task has to run again"
            )
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{text}. The query skips permanently lost data with option failOnDataLoss=false"
            )
        _log.warning("%s: skipped (lowest readable: %s)", text, lowest)

    def _read(self, source: FrameSource) -> Iterator[Any]:
        """Yield batches from the position at which the last source stopped. ``_position`` moves
        when a batch was returned, so that no row is missing if this source fails."""
        at = self._position
        arrays = self._new_arrays(at)
        while at < self._range.end:
            frames = source.frames(at)
            if frames.end <= at:
                raise RangeLost(f"{source.host}: nothing at position {at}")
            try:
                stop = arrays.rows.copy(frames)
            except CorruptLogError:
                yield from self._out(source, arrays, arrays.rows.position)  # messages before it
                raise
            at = arrays.rows.position
            if stop is gather.Stop.INCOMPLETE:
                at = self._complete(source, frames, at)
            elif stop is gather.Stop.TOO_LONG:
                yield from self._out(source, arrays, at)    # no row, but perhaps gaps before it
                self._value_bytes = 2 * max(self._value_bytes, arrays.rows.needed)
                arrays = self._new_arrays(at)
            elif stop is gather.Stop.FULL:
                yield from self._out(source, arrays, at)
                arrays = self._new_arrays(at)
        self._confirmation = self._confirming.submit(source.finish)     # all was copied
        yield from self._out(source, arrays, at)

    def _complete(self, source: FrameSource, frames: gather.Frames, at: int) -> int:
        """Get the rest of the last message, which begins at ``at``. Return the position to continue
        at."""
        if frames.end % self._range.term_length == 0:
            return frames.end           # no message continues in the next term
        if frames.end < self._range.end and source.more(at):
            return at
        raise RangeLost(f"{source.host}: the message at position {at} has no end")

    def _out(self, source: FrameSource, arrays: _Arrays, end: int) -> Iterator[Any]:
        rows = arrays.rows
        if rows.gaps:
            self._gap(rows.gaps, rows.gap_messages)
        if rows.count:
            source.check(self._position)
            yield from self._decoder.decode(
                arrays.messages(self._range, source.host, self._times)
            )
        self._position = end

    def _gap(self, gaps: int, messages: int) -> None:
        text = (
            f"{self._range.session}: {gaps} gaps ({messages} messages are known to be missing) "
            f"behind position {self._position}: the stream's policy dropped them before they were "
            "read"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{text}. With the option failOnDataLoss=false, the query continues without the "
                "missing messages"
            )
        _log.warning("%s", text)

    def _new_arrays(self, at: int) -> _Arrays:
        left = max(self._range.end - at, gather.ALIGNMENT)
        return _Arrays(
            min(self._value_bytes, max(left, 64)), min(_ROWS, left // gather.ALIGNMENT + 1)
        )
