# SPDX-License-Identifier: Apache-2.0
"""Define the data source ``penstock``, whose methods Spark calls in several processes.

Before a query starts, a planner process of Spark checks the options and the schema. The offset
methods of the stream reader run in one process on the driver's host. This process lives as long as
the query. The method ``read`` runs in Spark's executors, on an unpickled copy of the reader. The
copy has only the options and the schema, so a reader opens a connection only when a method needs
one. All other information that a task needs is in its partition.

When Spark calls ``latestOffset(start)``, all data before ``start`` is already in the sink, and
recorded in Spark's commit log. The source therefore treats a call of ``latestOffset(start)`` as the
acknowledgement of all data before ``start``. Later, Spark also calls ``commit`` for this data, and
the source acknowledges it a second time. With the option ``ackOn=commit`` (for asynchronous
progress tracking), the source acknowledges data only when Spark calls ``commit``.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.core.errors import PenstockError
from penstock.spark_bridge._decode import check_schema, ddl
from penstock.spark_bridge._keeping import keep_modules
from penstock.spark_bridge._locality import own_ranges
from penstock.spark_bridge._offsets import Offset
from penstock.spark_bridge._one_line import hide, one_line
from penstock.spark_bridge._options import BATCH_ONLY, SourceOptions, read_options
from penstock.spark_bridge._planning import Partition, Planning
from penstock.spark_bridge._reader import read_ranges
from penstock.spark_bridge._subscription import check_listening, check_reachable

_log = logging.getLogger(__name__)

NAME: Final = "penstock"


class DefaultSource(DataSource):
    """The data source with the format name ``penstock``, for ``spark.readStream``, ``spark.read``,
    ``writeStream`` and ``write``.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    @one_line
    def schema(self) -> str:
        """Return the schema. Spark calls this method in ``load()``, so errors in the options appear
        before a query starts."""
        options = read_options(self.options, streaming=_streams(self.options))
        check_reachable(options)
        return ddl(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            options = read_options(self.options)
            check_schema(options, schema)
        except PenstockError as error:
            return RefusedReader(error)
        return StreamReader(options, schema)

    @one_line
    def reader(self, schema: StructType) -> BatchReader:
        options = read_options(self.options, streaming=False)
        check_schema(options, schema)
        return BatchReader(options, schema)

    @one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        from penstock.spark_bridge._sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    @one_line
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from penstock.spark_bridge._sink import batch_writer

        return batch_writer(self.options, schema, overwrite)


def _streams(options: Mapping[str, str]) -> bool:
    """Return whether the options are for a stream: ``schema`` does not know its caller, but options
    of batches show it."""
    return BATCH_ONLY.isdisjoint(key.lower() for key in options)


# ---- streaming -----------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. The pickled form of the reader, which Spark sends to
    executors, has only options and schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planning: Planning | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_planning": None}

    # These methods run in the process beside the driver.

    def _plan(self) -> Planning:
        if self._planning is None:
            _stop_on_sigterm()
            check_listening(self._options)      # ``schema`` was not called if the user gave one
            self._planning = Planning(self._options)
        return self._planning

    @one_line
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan().initial().to_plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        return ReadAllAvailable()

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Offset.from_plain(start)
        after = self._plan().latest(before, _bytes(limit), self._messages(limit))
        return start if after is before else after.to_plain()

    def _messages(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows
        # Spark passes one limit of two: the other is the option's.
        if isinstance(limit, ReadMaxBytes):
            return self._options.max_messages or 0
        return 0

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._plan().report()

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan().prepare()

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._plan().partitions(Offset.from_plain(start), Offset.from_plain(end))

    @one_line
    def commit(self, end: dict[str, Any]) -> None:
        self._plan().acknowledge(Offset.from_plain(end))

    def stop(self) -> None:
        with _undisturbed():
            if self._planning is not None:
                self._planning.stop()
                self._planning = None

    # These methods run in the executors.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Partition)
        return _read(self._options, self._schema, partition)


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query with wrong options or a wrong schema: the first call of one of its
    methods raises the error. If ``streamReader`` raised the error, Spark would not show the error:
    Spark's runner would call ``stop`` of a reader that the runner did not get, and raise
    UnboundLocalError.
    """

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    @one_line
    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()


def _read(options: SourceOptions, schema: StructType, partition: Partition) -> Iterator[Any]:
    own = partition.own
    if options.locality == "barrier":
        own = own_ranges(partition.table, own)
    try:
        yield from read_ranges(options, schema, [partition.table[index] for index in own])
    except PenstockError as error:
        hide(error)
        raise
    keep_modules()


def _bytes(limit: ReadLimit) -> int | None:
    return limit.max_bytes if isinstance(limit, ReadMaxBytes) else None


def _stop_on_sigterm() -> None:
    """Turn the first SIGTERM into an exception, so that the runner calls ``stop``.
    ``query.stop()`` sends SIGTERM twice, the second a few milliseconds after the first: it would
    end ``stop`` before the publishers continue."""
    with contextlib.suppress(ValueError):        # not in the main thread: in a test
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit_once)


def _exit_once(*_: object) -> None:
    signal.signal(signal.SIGTERM, _disregard)
    sys.exit(0)


def _disregard(*_: object) -> None:
    """SIG_IGN would make Python report a signal that arrived just before the change."""


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Disregard SIGTERM. If Spark's connection to the runner breaks before the first SIGTERM
    arrives, the error makes the runner call ``stop``, and SIGTERM arrives during ``stop``."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is _exit_once
    )
    if ours:
        signal.signal(signal.SIGTERM, _disregard)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, _exit_once)


# ---- batch ---------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """The reader of ``spark.read``, which reads the retained data and acknowledges nothing."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @one_line
    def partitions(self) -> Sequence[InputPartition]:
        check_listening(self._options)
        planning = Planning(self._options)
        try:
            return planning.batch()
        finally:
            planning.stop()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Partition)
        return _read(self._options, self._schema, partition)
