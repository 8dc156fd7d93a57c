# SPDX-License-Identifier: Apache-2.0
"""Implement the sink. Each task of a query publishes its rows between two markers
(:mod:`.markers`). With the markers, a receiver distinguishes a complete part from the rows of a
failed attempt. If the sink's stream has back-pressure, the task must wait, so its batch finishes
later. The query then also acknowledges the batch's input later, and flow control slows down the
publishers of this input.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4, uuid5

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.client._directory import daemon_directory, not_allowed
from penstock.core.errors import InvalidArgument, MessageTooLong, PenstockError
from penstock.spark_bridge import _digest
from penstock.spark_bridge._arrow import fingerprint
from penstock.spark_bridge._keeping import keep_modules
from penstock.spark_bridge._one_line import hide, one_line
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
    SCHEMA_VALUE,
    Content,
    Kind,
    Marker,
    Part,
    encode,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LEASE_SOCKET: Final = "lease.sock"       # in the directory of a running daemon
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"      # a streaming query's run id
_JOBS: Final = UUID("7a1f2d64-52a3-4c39-9a3e-6d6f6b737061")       # of option jobId
_MOST_ENDED: Final = 256
#: Sent at once: what has to find room within the timeout.
_CHUNK_BYTES: Final = 256 * 1024


@attrs.define(kw_only=True)
class Published(WriterCommitMessage):
    """Numbers of rows and bytes that one attempt of a task has published."""

    host: str
    partition: int
    attempt: int
    job: Part | None = None
    run: str = ""               # of the streaming query whose foreachBatch writes
    sessions: tuple[int, ...] = ()
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


class _Lane:
    """The part of a task in one publication: BEGIN, rows, COMMIT."""

    def __init__(self, pipe: Pipe, part: Part, options: SinkOptions) -> None:
        self._pipe = pipe
        self._part = part
        self._options = options
        self._content = Content()
        self._fingerprint = 0       # of the schema that was sent
        self._mark(Kind.BEGIN)

    @property
    def session_id(self) -> int:
        return self._pipe.session_id

    @property
    def content(self) -> Content:
        return self._content

    def rows(self, values: pa.Array) -> None:
        """Publish each value of a binary column without nulls as a message."""
        values = values.cast(pa.large_binary())
        count = len(values)
        if count == 0:
            return
        _validity, bounds, data = values.buffers()
        ends = np.frombuffer(bounds, np.int64, count + 1, 8 * values.offset)
        raw = memoryview(data).cast("B") if data is not None else memoryview(b"")
        if self._options.markers:
            self._count_rows(count, _digest.of_messages(raw, ends))
        first = 0
        while first < count:
            reach = np.searchsorted(ends, ends[first] + _CHUNK_BYTES, side="right")
            last = min(max(int(reach) - 1, first + 1), count)
            self._pipe.send_batch(values.slice(first, last - first))
            self._add(last - first, raw[ends[first] : ends[last]])
            first = last

    def batch(self, batch: pa.RecordBatch) -> None:
        """Publish an Arrow batch as one message. If the batch is too long for one message, split it
        into several batches and publish each as a message."""
        self._send_schema(batch.schema)
        if self._options.markers:
            self._count_rows(batch.num_rows, _digest.of_batch(batch))
        self._pieces(batch)

    def _send_schema(self, schema: pa.Schema) -> None:
        """Once, before the first batch of a part."""
        if self._fingerprint:
            return
        self._fingerprint = fingerprint(schema)
        message = schema.serialize()
        most = self._pipe.publication.max_message_length
        if message.size > most:
            raise MessageTooLong(
                f"the Arrow schema of {len(schema)} columns has {message.size} bytes, but a "
                f"message of this channel has at most {most}: use a longer term-length"
            )
        self._pipe.send(message.to_pybytes(), reserved_value=SCHEMA_VALUE)
        self._add(1, memoryview(message))

    def _pieces(self, batch: pa.RecordBatch) -> None:
        message = batch.serialize()
        if message.size <= self._pipe.publication.max_message_length:
            self._pipe.send(message.to_pybytes(), reserved_value=self._fingerprint)
            self._add(1, memoryview(message))
            return
        if batch.num_rows < 2:
            raise MessageTooLong(
                f"a row has {message.size} bytes as an Arrow batch, but a message of this channel "
                f"has at most {self._pipe.publication.max_message_length}: use a longer "
                "term-length"
            )
        half = batch.num_rows // 2
        self._pieces(batch.slice(0, half))
        self._pieces(batch.slice(half))

    def commit(self) -> None:
        self._mark(Kind.COMMIT)

    def drain(self) -> None:
        self._pipe.drain(self._options.drain)

    def _add(self, messages: int, payload: memoryview) -> None:
        crc = 0 if not self._options.markers else zlib.crc32(payload, self._content.crc)
        self._content = attrs.evolve(
            self._content, messages=self._content.messages + messages,
            bytes=self._content.bytes + payload.nbytes, crc=crc,
        )

    def _count_rows(self, rows: int, digest: int) -> None:
        self._content = attrs.evolve(
            self._content, rows=self._content.rows + rows,
            digest=(self._content.digest + digest) % 2**64,
        )

    def _mark(self, kind: Kind) -> None:
        if self._options.markers:
            marker = Marker(kind=kind, part=self._part, content=self._content)
            self._pipe.send(encode(marker), reserved_value=RESERVED_VALUE)


class _Task:
    """Publisher of one attempt of a task."""

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
            raise InvalidArgument(
                f"key column {key} has nulls: filter them out; each row needs a key"
            )
        rest = batch.drop_columns([key])
        for value in pc.unique(column):
            rows = rest.filter(pc.equal(column, value))
            self._send(self._lane(_key_bytes(value.as_py(), key)), rows)

    def commit(self) -> None:
        """Publish the COMMIT markers of all parts of the task. Then wait until the data is sent or
        consumed, as the option ``drain`` states."""
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
                f"column {VALUE} has {values.null_count} nulls, but a message cannot be null: "
                "filter them out, or use payload=arrow"
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
            f"column {column} has a key of {len(key)} bytes: the limit is {MAX_KEY_BYTES}"
        )
    return key


def publish_task(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], *, job: UUID,
    whole: bool = False,
) -> Published:
    """Publish the rows of a task.

    :param job: in a batch write, the sink uses this id instead of a query id and a run id, because
        Spark states no such ids for a batch write.
    :param whole: whether readers return the parts of all tasks together, after the driver's
        JOB_COMMIT.
    """
    context = TaskContext.get()
    if context is None:
        raise InvalidArgument("the sink runs inside a Spark task only")
    streaming = context.getLocalProperty(_QUERY_ID)
    query = _uuid(streaming, job)
    if options.job_id:
        query = uuid5(query if streaming else _JOBS, options.job_id)
    part = Part(
        query=uuid5(query, options.write_id) if options.write_id else query,
        run=_uuid(context.getLocalProperty(_RUN_ID), job) if streaming and not whole else job,
        job=whole,
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
    keep_modules()
    return Published(
        host=os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname(),    # as Spark has it
        partition=part.partition,
        attempt=part.attempt,
        job=attrs.evolve(part, partition=0, attempt=0) if whole else None,
        run=(context.getLocalProperty(_RUN_ID) or "") if streaming else "",
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


@functools.cache
def _ended() -> OrderedDict[tuple[str, int, UUID, int], str]:
    """Return the last batch writes of a ``foreachBatch`` that this process has committed. A write
    is identified by channel, stream, query and batch; the value is the run of the query. Spark's
    driver uses one process for many writes."""
    return OrderedDict()


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
        """Do nothing when a batch succeeds, because each part has its own COMMIT marker."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing when a batch fails. Readers drop the rows of a failed task, because no COMMIT
        marker follows these rows; Spark may repeat the batch."""


class BatchSink(DataSourceArrowWriter):
    """The writer of ``df.write.format("penstock")``. If the option jobCommit is true, readers
    return the parts of a batch write only when all its parts and its JOB_COMMIT marker have
    arrived."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid4()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        try:
            return publish_task(
                self._options, iterator, job=self._job, whole=self._options.job_commit
            )
        except PenstockError as error:
            hide(error)
            raise

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the Spark driver, publish the marker JOB_COMMIT if the batch write is a job (option
        jobCommit). Readers return no part of a job before this marker."""
        done = [one for one in messages if isinstance(one, Published) and one.job is not None]
        if done and done[0].job is not None:
            job, run = done[0].job, done[0].run
            write = (self._options.channel, self._options.stream_id, job.query, job.epoch)
            # Within a run, a query passes each batch to foreachBatch once: this is no repeat.
            if run and _ended().get(write) == run:
                raise InvalidArgument(
                    f"batch {job.epoch} of the query has written to stream "
                    f"{self._options.stream_id} on {self._options.channel} before, and readers "
                    "would drop these rows as a repeat: give each df.write of a foreachBatch "
                    "another writeId"
                )
            self._end(Kind.JOB_COMMIT, job, sum(len(one.sessions) for one in done))
            _ended()[write] = run
            while len(_ended()) > _MOST_ENDED:
                _ended().popitem(last=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the marker JOB_ABORT: it states that the batch write failed. Readers then need
        not keep the parts of this batch write.
        """
        for one in messages:
            if isinstance(one, Published) and one.job is not None:
                # Without it the parts stay uncommitted just as well.
                with contextlib.suppress(PenstockError):
                    self._end(Kind.JOB_ABORT, one.job, 0)
                return

    def _end(self, kind: Kind, job: Part, parts: int) -> None:
        pipe = outlet(self._options.directory, self._options.timeout_s).pipe(self._options, b"")
        marker = Marker(kind=kind, part=job, content=Content(messages=parts))
        try:
            pipe.send(encode(marker), reserved_value=RESERVED_VALUE)
            if self._options.drain != "none":
                pipe.drain(self._options.drain)
        except BaseException:
            forget(self._options.directory)
            raise


def stream_writer(options: Any, schema: StructType, overwrite: bool = False) -> StreamSink:
    """The writer of ``df.writeStream.format("penstock")`` in a streaming query.

    :raises InvalidArgument: an option or the schema is wrong: the text names the mistake and the
        fix.
    """
    del overwrite       # outputMode complete: each part is a batch's whole result
    checked = _checked(options, schema)
    if checked.job_id:
        raise InvalidArgument(
            f"option jobId={checked.job_id}: is for df.write; readers know a batch of a streaming "
            "query by its query and its number: leave jobId out"
        )
    return StreamSink(checked)


def batch_writer(options: Any, schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of a batch.

    :raises InvalidArgument: an option or the schema is wrong: the text names the mistake and the
        fix.
    """
    if overwrite:
        raise InvalidArgument(
            "mode overwrite: a stream cannot be overwritten; write with mode append"
        )
    checked = _checked(options, schema)
    if checked.job_commit:
        _check_driver(checked)
    return BatchSink(checked)


def _check_driver(options: SinkOptions) -> None:
    """Check that the driver can publish the end of the job.

    :raises InvalidArgument: no daemon runs on the driver's host, or this user may not reach it.
    """
    path = daemon_directory(options.directory) / _LEASE_SOCKET
    try:
        is_there = path.exists()
    except PermissionError:
        raise InvalidArgument(f"option daemonDir: {not_allowed(path)}") from None
    if not is_there:
        raise InvalidArgument(
            f"no penstock daemon for the sink in {path.parent} on the driver's host, where the "
            "sink publishes the end of a batch write. Start a daemon, set daemonDir or "
            "PENSTOCK_DIR, or set jobCommit=false, so that readers also return the "
            "parts of a failed job"
        )


def _checked(options: Any, schema: StructType) -> SinkOptions:
    read = read_options(plain(options))
    check_schema(read, schema)
    return read
