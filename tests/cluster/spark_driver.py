# SPDX-License-Identifier: Apache-2.0
"""The driver process of the cluster tests: a Spark session that does what the test tells it.

``python -m cluster.spark_driver SETTINGS EXECUTORS`` reads commands from standard input, a JSON
object a line, and reports on standard output in the same way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from support.spark import begun

from cluster.spark_publisher import HEAD
from penstock.spark_bridge import publish, read_local, register, tuned_settings

_LOCK = threading.Lock()
#: A message of :mod:`cluster.spark_publisher`, of 64 bytes, with the times (ns) that daemons wrote:
#: when it was sent, when the kernel of the receiving host received it, and when its daemon read it.
MESSAGE = np.dtype([
    *((name, np.int64) for name in ("number", "offered", "sent", "received", "read")),
    ("padding", "V24"),
])
#: The relay adds its time (us) and its position in the first stream.
RELAYED = np.dtype([("message", MESSAGE), ("time_us", np.int64), ("position", np.int64)])
#: A row that ``keep`` stores; ``first_*``: in the first stream, else in the second one.
ROW = np.dtype([
    (name, np.int64) for name in (
        "number", "offered", "sent", "received", "read", "first_us", "first_position", "session",
        "position", "time_us",
    )
])


def say(event: str, **values: Any) -> None:
    with _LOCK:
        sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
        sys.stdout.flush()


class Jobs:
    """What a test can request; each method answers once."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.queries: dict[str, StreamingQuery] = {}

    # ---- the sink --------------------------------------------------------------------------------

    def write(self, *, rows: int, partitions: int, options: dict[str, str]) -> dict[str, Any]:
        """A batch of numbers into a stream."""
        df = self.spark.range(0, rows, 1, partitions).selectExpr("cast(id as string) as value")
        begun = time.monotonic()
        df.write.format("penstock").mode("append").options(**options).save()
        return {"seconds": time.monotonic() - begun}

    def publish(self, *, rows: int, partitions: int, options: dict[str, Any]) -> dict[str, Any]:
        """The same by ``publish``."""
        df = self.spark.range(0, rows, 1, partitions).selectExpr("cast(id as string) as value")
        return {"tasks": [row.asDict() for row in publish(df, **options).collect()]}

    # ---- the source ------------------------------------------------------------------------------

    def copy(
        self, *, query: str, source: dict[str, str], sink: dict[str, str], checkpoint: str,
        local: bool = False, work_s: float = 0.0,
    ) -> dict[str, Any]:
        """From a stream into a stream."""
        df = with_place(self._read(source, local=local), work_s).select("value")
        self.queries[query] = begun(
            df.writeStream.format("penstock").options(**sink)
            .option("checkpointLocation", checkpoint).start
        )
        return {"id": str(self.queries[query].id)}

    def collect(
        self, *, query: str, source: dict[str, str], folder: str, checkpoint: str,
        local: bool = False, work_s: float = 0.0, plain: bool = False,
    ) -> dict[str, Any]:
        """From a stream into a file a batch, which is replaced when the batch comes again; and a
        journal to which every row is added whenever it comes.  ``plain``: without the step that
        tells where a row is read."""
        target = Path(folder)
        target.mkdir(exist_ok=True)

        def take(df: DataFrame, batch: int) -> None:
            columns = ["value"] if plain else ["value", "host", "read_on"]
            table = df.select(*columns).toArrow()
            now = time.time_ns()
            heads = [HEAD.unpack_from(value.as_py()) for value in table["value"]]
            numbers = [number for number, _sent in heads]
            text = json.dumps(numbers)
            with (target / "journal").open("ab", buffering=0) as journal:
                journal.write(f"{text}\n".encode())     # whole, or not at all
            fresh = target / f".{batch}"
            fresh.write_text(text)
            os.replace(fresh, target / f"{batch}.json")
            say(
                "batch", query=query, batch=batch, rows=len(numbers),
                places=[] if plain else places_of(table), last=max(numbers, default=-1),
                latency_ms=[(now - sent) / 1e6 for _number, sent in heads[-16:]],
            )

        df = self._read(source, local=local)
        df = df if plain else with_place(df, work_s)
        self.queries[query] = begun(
            df.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
            .queryName(query).start
        )
        return {"id": str(self.queries[query].id)}

    def relay(
        self, *, query: str, source: dict[str, str], sink: dict[str, str], checkpoint: str
    ) -> dict[str, Any]:
        """From a stream into a stream; the time of each message goes with it."""
        def start() -> StreamingQuery:
            df = self._read(source, local=False).mapInArrow(with_time, "value binary")
            return (
                df.writeStream.format("penstock").options(**sink)
                .option("checkpointLocation", checkpoint).queryName(query).start()
            )

        self.queries[query] = begun(start)
        return {"id": str(self.queries[query].id)}

    def keep(
        self, *, query: str, source: dict[str, str], folder: str, checkpoint: str
    ) -> dict[str, Any]:
        """A file for each batch, with all that is known of its rows; a batch that comes again has
        to be the same. If the folder has a file ``hold`` with a number, the sink keeps the
        first batch with which that many rows are saved, and names it in a file ``held``: Spark has
        not committed it yet. The sink goes on when ``hold`` is gone or has a higher number; if
        there is a file ``fail``, it fails."""
        target = Path(folder)
        target.mkdir(exist_ok=True)

        def take(df: DataFrame, batch: int) -> None:
            table = df.select("value", "session_id", "position", "timestamp").toArrow()
            rows = kept(table)
            path = target / f"{batch}.npy"
            if path.exists():
                before = np.load(path)
                same = before.shape == rows.shape and bool((before == rows).all())
                with (target / "again").open("a") as again:
                    again.write(f"{batch} {'same' if same else 'another'}\n")
            fresh = target / f".{batch}.npy"
            np.save(fresh, rows)
            os.replace(fresh, path)
            say("kept", batch=batch, rows=len(rows))
            saved = rows_of(target)
            if rows.size and held_from(target) <= saved:
                (target / "held").write_text(str(batch))
                while held_from(target) <= saved:
                    time.sleep(0.01)
                if (target / "fail").exists():
                    (target / "fail").unlink()
                    raise OSError("the sink fails although it has the batch")

        def start() -> StreamingQuery:
            return (
                self._read(source, local=False).writeStream.foreachBatch(take)
                .option("checkpointLocation", checkpoint).queryName(query).start()
            )

        self.queries[query] = begun(start)
        return {"id": str(self.queries[query].id)}

    def floor(self, *, warm: int, batches: int, checkpoint: str) -> dict[str, Any]:
        """What an empty micro-batch takes here: a source without rows that always has a batch.
        Says when ``warm`` have passed, which are not measured."""
        took: list[float] = []
        done = threading.Event()

        def take(df: DataFrame, _batch: int) -> None:
            df.select("value").toArrow()
            took.append(time.monotonic())
            if len(took) == warm:
                say("warm")
            if len(took) == warm + batches:
                done.set()

        self.spark.dataSource.register(_empty_source())
        query = begun(
            self.spark.readStream.format("empty_batches").load().writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint).start
        )
        done.wait(120)
        query.stop()
        gaps = itertools.pairwise(took[warm - 1:warm + batches])
        return {"batch_ms": [(b - a) * 1e3 for a, b in gaps]}

    def progress(self, *, query: str) -> dict[str, Any]:
        running = self.queries[query]
        last = running.lastProgress
        error = running.exception()
        return {
            "active": running.isActive, "error": str(error) if error is not None else "",
            "progress": json.loads(last.json) if last is not None else None,
        }

    def ended(self, *, query: str) -> dict[str, Any]:
        """Waits for its end; why it ended."""
        running = self.queries.pop(query)
        with contextlib.suppress(StreamingQueryException):
            running.awaitTermination()
        error = running.exception()
        return {"error": str(error) if error is not None else ""}

    def finish(self, *, query: str) -> dict[str, Any]:
        """Everything there is, then the end."""
        running = self.queries.pop(query)
        running.processAllAvailable()
        running.stop()
        return {}

    def stop(self, *, query: str) -> dict[str, Any]:
        self.queries.pop(query).stop()
        return {}

    def stop_all(self) -> dict[str, Any]:
        """Ends what a test left."""
        for name in tuple(self.queries):
            self.queries.pop(name).stop()
        return {}

    def read(self, *, source: dict[str, str], local: bool = False) -> dict[str, Any]:
        """A batch read: numbers, and where each was read."""
        df = self.spark.read.format("penstock").options(**source).load()
        table = with_place(self._near(df, local)).select("value", "host", "read_on").toArrow()
        return {
            "numbers": [HEAD.unpack_from(value.as_py())[0] for value in table["value"]],
            "places": places_of(table),
        }

    def _read(self, source: dict[str, str], *, local: bool) -> DataFrame:
        df = self.spark.readStream.format("penstock").options(**source).load()
        return self._near(df, local)

    def _near(self, df: DataFrame, local: bool) -> DataFrame:
        return read_local(df) if local else df


def structs(column: Any, kind: np.dtype[Any]) -> Any:
    """The values of a column of binary, all of the same length."""
    whole = pa.concat_arrays(getattr(column, "chunks", [column])) if len(column) else None
    if whole is None:
        return np.zeros(0, kind)
    fixed = whole.cast(pa.binary(kind.itemsize))
    return np.frombuffer(fixed.buffers()[1], kind, len(fixed), fixed.offset * kind.itemsize)


def with_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Appends the time of each message, in microseconds, and its position to its value."""
    for batch in batches:
        joined = np.zeros(batch.num_rows, RELAYED)
        joined["message"] = structs(batch.column("value"), MESSAGE)
        joined["time_us"] = batch.column("timestamp").cast(pa.int64()).to_numpy()
        joined["position"] = batch.column("position").to_numpy()
        values = pa.Array.from_buffers(
            pa.binary(RELAYED.itemsize), len(joined), [None, pa.py_buffer(joined.tobytes())]
        )
        yield pa.RecordBatch.from_arrays([values.cast(pa.binary())], names=["value"])


def rows_of(folder: Path) -> int:
    """The rows of all batches that are saved."""
    return sum(len(np.load(path, mmap_mode="r")) for path in folder.glob("[0-9]*.npy"))


def held_from(folder: Path) -> float:
    """The number of saved rows from which on the sink keeps a batch; infinite: it keeps none."""
    try:
        return int((folder / "hold").read_text())
    except FileNotFoundError:
        return math.inf


def kept(table: Any) -> Any:
    """A row for each message of the second stream."""
    relayed = structs(table["value"], RELAYED)
    rows = np.zeros(len(relayed), ROW)
    for name in ("number", "offered", "sent", "received", "read"):
        rows[name] = relayed["message"][name]
    rows["first_us"], rows["first_position"] = relayed["time_us"], relayed["position"]
    rows["session"] = table["session_id"].to_numpy()
    rows["position"] = table["position"].to_numpy()
    rows["time_us"] = table["timestamp"].cast(pa.int64()).to_numpy()
    return rows


def places_of(table: Any) -> list[tuple[str, str]]:
    """(host that holds the data, host that read it) of all rows."""
    pairs = zip(table["host"].to_pylist(), table["read_on"].to_pylist(), strict=True)
    return sorted(set(pairs))


def with_place(df: DataFrame, work_s: float = 0.0) -> DataFrame:
    """Adds the host whose worker handled the row; each task takes ``work_s`` longer."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            here = pa.array([socket.gethostname()] * batch.num_rows, pa.string())
            yield batch.append_column("read_on", here)
        time.sleep(work_s)

    return df.mapInArrow(run, f"{df.schema.toDDL()}, read_on string")


def _empty_source() -> type:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
            return {"at": start["at"] + 1}

        def partitions(
            self, start: dict[str, int], end: dict[str, int]
        ) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
            return iter(())

    class Empty(DataSource):
        @classmethod
        def name(cls) -> str:
            return "empty_batches"

        def schema(self) -> str:
            return "value binary"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802
            return Reader()

    return Empty


def main() -> None:
    settings, executors = json.loads(sys.argv[1]), int(sys.argv[2])
    builder = SparkSession.builder
    for key, value in {**tuned_settings(), **settings}.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    status = spark.sparkContext._jsc.sc().statusTracker()
    while len(status.getExecutorInfos()) < executors + 1:   # the driver counts
        time.sleep(0.1)
    jobs = Jobs(spark)
    say("ready", application=spark.sparkContext.applicationId)
    for line in sys.stdin:
        command = json.loads(line)
        run: Callable[..., dict[str, Any]] = getattr(jobs, command.pop("run"))
        try:
            say("answer", **run(**command))
        except Exception as error:
            say("failed", text=str(error))
    spark.stop()


if __name__ == "__main__":
    main()
