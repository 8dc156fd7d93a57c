# SPDX-License-Identifier: Apache-2.0
"""Queries of a test, and what they put into their sink."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark_bridge import register, tuned_settings
from support.java import QUICK, archive_options
from support.late_worker import LATE_WORKER
from support.patience import Patience

Rows = list[Any]
WAIT_S = 120.0
SETTLE_S = 30.0


@contextlib.contextmanager
def local_session(**environment: str) -> Iterator[SparkSession]:
    """Two task slots, and one more attempt for a task that fails.

    :param environment: of the Python workers, which have it from the JVM that starts them.
    """
    before = dict(os.environ)
    if environment:
        end_jvm()
    os.environ.update(PYSPARK_PYTHON=sys.executable, **environment)
    settings = {
        **tuned_settings(), "spark.master": "local[2,2]", "spark.ui.enabled": "false",
        "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": f"{QUICK} {archive_options()} -Xss4m",
        "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF",
    }  # fmt: skip
    session = SparkSession.builder.config(map=settings).getOrCreate()
    register(session)
    try:
        yield session
    finally:
        session.stop()
        if environment:
            end_jvm()
        os.environ.clear()
        os.environ.update(before)


def end_jvm() -> None:
    """Ends the JVM of this process: the next session starts one with the environment of then."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()      # it ends with its input
    gateway.proc.wait(WAIT_S)
    SparkContext._gateway = SparkContext._jvm = None


class Sink:
    """Keeps each batch under its number: a batch that comes again replaces itself, so the content
    is what a sink that is idempotent in (query, batch) would hold."""

    def __init__(self, seconds: float = 0.0, *, dies_behind: int | None = None) -> None:
        self.batches: dict[int, Rows] = {}
        self.repeats = 0
        self._seconds = seconds
        self._dies_behind = dies_behind     # once it has so many rows, and only once

    def __call__(self, df: DataFrame, batch: int) -> None:
        rows = df.collect()
        if self._seconds:
            time.sleep(self._seconds)       # a slow sink is what some tests are about
        self.repeats += batch in self.batches
        self.batches[batch] = rows
        if self._dies_behind is not None and len(self.rows) >= self._dies_behind:
            self._dies_behind = None
            raise RuntimeError("the sink has the batch, and dies before Spark notes it")

    @property
    def rows(self) -> Rows:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def values(self) -> list[bytes]:
        return [bytes(row.value) for row in self.rows]


def begun(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query, past the start of its source's Python worker (``support.late_worker``)."""
    patience = Patience(WAIT_S)
    while True:
        query = start()
        settling = Patience(SETTLE_S)
        while query.isActive and not settling.is_over and \
                query.status["message"].startswith("Initializing"):
            time.sleep(0.02)
        error = None if query.isActive else query.exception()
        if error is None or LATE_WORKER not in str(error) or patience.is_over:
            return query


class Query:
    """A streaming query of the source into a :class:`Sink`."""

    def __init__(
        self, spark: SparkSession, options: dict[str, str], checkpoint: Path, sink: Sink,
        *, schema: str | None = None, change: Callable[[DataFrame], DataFrame] | None = None,
        **trigger: Any,
    ) -> None:
        def start() -> StreamingQuery:
            reader = spark.readStream.format("penstock").options(**options)
            if schema is not None:
                reader = reader.schema(schema)
            df = reader.load()
            if change is not None:
                df = change(df)
            writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
            if trigger:
                writer = writer.trigger(**trigger)
            return writer.start()

        self.sink = sink
        self.query = begun(start)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_error: object) -> None:
        self.query.stop()

    def until(self, happened: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Waits for it; a query that failed fails the test with its reason."""
        patience = Patience(timeout_s)
        while not happened():
            failure = self.query.exception()
            assert failure is None, str(failure)
            assert not patience.is_over, what
            time.sleep(0.02)

    def until_rows(self, count: int) -> None:
        self.until(
            lambda: len(self.sink.rows) >= count, f"{len(self.sink.rows)} of {count} rows came"
        )

    def failure(self, timeout_s: float = WAIT_S) -> str:
        """What the query ends with."""
        patience = Patience(timeout_s)
        while self.query.isActive:
            assert not patience.is_over, "the query did not fail"
            time.sleep(0.02)
        error = self.query.exception()
        assert error is not None
        return str(error)
