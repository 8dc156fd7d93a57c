# SPDX-License-Identifier: Apache-2.0
"""The sink: what a task of a query publishes, and how it is told complete.

Rows go into the stream while the task runs, between two markers (:mod:`.markers`). A receiver can
tell a complete part from the rest of a failed attempt. Back-pressure holds the task, which holds
the batch, which holds the source's acknowledgement: the pressure reaches the query's input.
"""

from __future__ import annotations

import os
import socket
import time
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4, uuid5

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.core.errors import InvalidArgument, MessageTooLong, PenstockError
from penstock.spark_bridge._one_line import hide
from penstock.spark_bridge._outlet import Outlet, Pipe, forget, outlet, too_many_keys
from penstock.spark_bridge._sink_options import (
    VALUE,
    SinkOptions,
    check_schema,
    plain,
    read_options,
)
from penstock.spark_bridge.markers import (
    MAX_KEY_BYTES,
    RESERVED_VALUE,
    Content,
    Kind,
    Marker,
    Part,
    encode,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"      # a streaming query's run id
#: Sent at once: what has to find room within the timeout.
_CHUNK_BYTES: Final = 256 * 1024


@attrs.define(kw_only=True)
class Published(WriterCommitMessage):
    """Rows that one attempt of a task published."""

    host: str
    partition: int
    attempt: int
    sessions: tuple[int, ...] = ()
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


class _Lane:
    """One publication's share of a task: BEGIN, rows, COMMIT."""

    def __init__(self, pipe: Pipe, part: Part, options: SinkOptions) -> None:
        self._pipe = pipe
        self._part = part
        self._options = options
        self._content = Content()
        self._mark(Kind.BEGIN)

    @property
    def session_id(self) -> int:
        return self._pipe.session_id

    @property
    def content(self) -> Content:
        return self._content

    def rows(self, values: pa.Array) -> None:
        """A binary column without nulls, as a message each."""
        values = values.cast(pa.large_binary())
        count = len(values)
        if count == 0:
            return
        _validity, bounds, data = values.buffers()
        offsets = memoryview(bounds).cast("B").cast("q")
        ends = offsets[values.offset : values.offset + count + 1]
        raw = memoryview(data).cast("B") if data is not None else memoryview(b"")
        first = 0
        while first < count:
            last = first + 1
            step = count - first
            while step:     # a bisection of its own: the ends rise
                if last + step <= count and ends[last + step] - ends[first] <= _CHUNK_BYTES:
                    last += step
                else:
                    step //= 2
            self._pipe.send_batch(values.slice(first, last - first))
            self._add(last - first, raw[ends[first] : ends[last]])
            first = last

    def batch(self, batch: pa.RecordBatch) -> None:
        """A batch as one message, or as several if it is too long for one."""
        message = batch.serialize()
        if message.size <= self._pipe.publication.max_message_length:
            self._pipe.send(message.to_pybytes())
            self._add(1, memoryview(message))
            return
        if batch.num_rows < 2:
            raise MessageTooLong(
                f"a row of {message.size} bytes as an Arrow batch: the channel takes "
                f"{self._pipe.publication.max_message_length} at most; give it a longer term-length"
            )
        half = batch.num_rows // 2
        self.batch(batch.slice(0, half))
        self.batch(batch.slice(half))

    def commit(self) -> None:
        self._mark(Kind.COMMIT)

    def drain(self) -> None:
        self._pipe.drain(self._options.drain)

    def _add(self, messages: int, payload: memoryview) -> None:
        self._content = Content(
            messages=self._content.messages + messages,
            bytes=self._content.bytes + payload.nbytes,
            crc=zlib.crc32(payload, self._content.crc),
        )

    def _mark(self, kind: Kind) -> None:
        if self._options.markers:
            marker = Marker(kind=kind, part=self._part, content=self._content)
            self._pipe.send(encode(marker), reserved_value=RESERVED_VALUE)


class _Task:
    """What one attempt of a task publishes."""

    def __init__(self, options: SinkOptions, place: Outlet, part: Part) -> None:
        self._options = options
        self._outlet = place
        self._part = part
        self._lanes: dict[bytes, _Lane] = {}
        if options.key_column is None:
            self._lane(b"")     # a part without rows is complete too

    @property
    def lanes(self) -> tuple[_Lane, ...]:
        return tuple(self._lanes.values())

    def take(self, batch: pa.RecordBatch) -> None:
        key = self._options.key_column
        if key is None:
            self._send(self._lane(b""), batch)
            return
        column = batch.column(key)
        if column.null_count:
            raise InvalidArgument(f"column {key} has nulls: a key says where a row goes")
        rest = batch.drop_columns([key])
        for value in pc.unique(column):
            rows = rest.filter(pc.equal(column, value))
            self._send(self._lane(_key_bytes(value.as_py(), key)), rows)

    def commit(self) -> None:
        """Everything is complete, and on its way."""
        for lane in self.lanes:
            lane.commit()
        if self._options.drain != "none":
            for lane in self.lanes:
                lane.drain()

    def _send(self, lane: _Lane, batch: pa.RecordBatch) -> None:
        if self._options.arrow:
            lane.batch(batch)
            return
        values = batch.column(VALUE)
        if values.null_count:
            raise InvalidArgument(
                f"column {VALUE} has {values.null_count} nulls, which no message can be: filter "
                "them out, or use payload=arrow"
            )
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = values.cast(pa.large_string()).cast(pa.large_binary())
        lane.rows(values)

    def _lane(self, key: bytes) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= self._options.max_keys:
                raise too_many_keys(self._options, len(self._lanes))
            pipe = self._outlet.pipe(self._options, key)
            lane = _Lane(pipe, attrs.evolve(self._part, key=key), self._options)
            self._lanes[key] = lane
        return lane


def _key_bytes(value: Any, column: str) -> bytes:
    key = value if isinstance(value, bytes) else str(value).encode()
    if len(key) > MAX_KEY_BYTES:
        raise InvalidArgument(
            f"column {column} has a key of {len(key)} bytes: at most {MAX_KEY_BYTES} are taken"
        )
    return key


def publish_task(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], *, job: UUID
) -> Published:
    """Publishes what a task got.  Runs in an executor's Python worker.

    :param job: query and run of a batch write, which has none of Spark's.
    """
    context = TaskContext.get()
    if context is None:
        raise InvalidArgument("the sink runs inside a Spark task only")
    streaming = context.getLocalProperty(_QUERY_ID)
    query = _uuid(streaming, job)
    part = Part(
        query=uuid5(query, options.write_id) if options.write_id else query,
        run=_uuid(context.getLocalProperty(_RUN_ID), job) if streaming else job,
        epoch=int(context.getLocalProperty(_BATCH_ID) or 0),
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
    )
    begun = time.monotonic()
    try:
        task = _Task(options, outlet(options.directory, options.timeout_s), part)
        for batch in batches:
            task.take(batch)
        task.commit()
    except BaseException:
        forget(options.directory)   # the next attempt begins in sessions of its own
        raise
    return Published(
        host=os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname(),    # as Spark has it
        partition=part.partition,
        attempt=part.attempt,
        sessions=tuple(lane.session_id for lane in task.lanes),
        messages=sum(lane.content.messages for lane in task.lanes),
        bytes=sum(lane.content.bytes for lane in task.lanes),
        seconds=time.monotonic() - begun,
    )


def _uuid(text: str | None, otherwise: UUID) -> UUID:
    try:
        return UUID(text or "")
    except ValueError:
        return otherwise


class StreamSink(DataSourceStreamArrowWriter):
    """``df.writeStream.format("penstock")``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid4()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        try:
            return publish_task(self._options, iterator, job=self._job)
        except PenstockError as error:
            hide(error)
            raise

    def commit(
        self, messages: list[WriterCommitMessage | None], batchId: int  # noqa: N803
    ) -> None:
        """Nothing is left to do: each part carries its own COMMIT."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The sent rows stay without a COMMIT, or are repeated."""


class BatchSink(DataSourceArrowWriter):
    """``df.write.format("penstock")``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid4()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        try:
            return publish_task(self._options, iterator, job=self._job)
        except PenstockError as error:
            hide(error)
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: each part carries its own COMMIT."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The sent rows stay without a COMMIT."""


def stream_writer(options: Any, schema: StructType, overwrite: bool = False) -> StreamSink:
    """The writer of a streaming query.

    :raises InvalidArgument: an option or the schema is wrong: names it, and the fix.
    """
    del overwrite       # outputMode complete: each part is a batch's whole result
    return StreamSink(_checked(options, schema))


def batch_writer(options: Any, schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of a batch.

    :raises InvalidArgument: an option or the schema is wrong: names it, and the fix.
    """
    if overwrite:
        raise InvalidArgument(
            "mode overwrite: a stream cannot be overwritten; write with mode append"
        )
    return BatchSink(_checked(options, schema))


def _checked(options: Any, schema: StructType) -> SinkOptions:
    read = read_options(plain(options))
    check_schema(read, schema)
    return read
