# SPDX-License-Identifier: Apache-2.0
"""Publish rows from inside a query: one transformation of the query sends the rows and returns a
summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark_bridge._one_line import hide
from penstock.spark_bridge._sink_options import SinkOptions, check_schema, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA: Final = (
    "host string, partition int, attempt bigint, messages bigint, bytes bigint, seconds double"
)


def publish(
    df: DataFrame, *, channel: str, stream_id: int, **options: Any
) -> DataFrame:
    """Publish the rows of ``df`` in the tasks that compute its partitions, in the same way as the
    sink publishes them.

    Return a row for each task: host, partition, attempt, messages, bytes, seconds. Like all
    transformations of Spark, the call is lazy: the call itself publishes nothing. The tasks publish
    the rows when Spark computes the result, and publish them again each time Spark computes the
    result again. A streaming query that publishes in this way needs no penstock sink, so no sink
    code runs on the Spark driver.

    :param options: options of the sink, in its spelling or in Python's: ``timeout="30s"``,
        ``key_column="symbol"``, ``payload="arrow"``.
    :raises InvalidArgument: an option or the schema is wrong; the text names the mistake and the
        fix.
    """
    words = {_spelling(name): _text(value) for name, value in options.items() if value is not None}
    read = read_options({"channel": channel, "streamId": str(stream_id), **words})
    check_schema(read, df.schema)
    return df.mapInArrow(_step(read, uuid4()), _SCHEMA)


def _spelling(name: str) -> str:
    """``key_column`` is ``keyColumn``."""
    return name.replace("_", "")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _step(
    options: SinkOptions, job: UUID
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark_bridge._sink import publish_task

        try:
            sent = publish_task(options, batches, job=job)
        except PenstockError as error:
            hide(error)
            raise
        yield pa.RecordBatch.from_pydict(
            {
                "host": pa.array([sent.host], pa.string()),
                "partition": pa.array([sent.partition], pa.int32()),
                "attempt": pa.array([sent.attempt], pa.int64()),
                "messages": pa.array([sent.messages], pa.int64()),
                "bytes": pa.array([sent.bytes], pa.int64()),
                "seconds": pa.array([sent.seconds], pa.float64()),
            }
        )

    return run
