# SPDX-License-Identifier: Apache-2.0
"""From query to query: what one publishes another reads, whole and once, as rows and as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from support.hosts import PenstockHost
from support.java import needs_java
from support.spark import Query, Sink, local_session

pytestmark = [
    needs_java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def spark(host: PenstockHost) -> Iterator[SparkSession]:
    with local_session(PENSTOCK_DIR=str(host.directory)) as session:
        yield session


@pytest.fixture
def stream(port: Callable[[], int]) -> dict[str, str]:
    return {
        "channel": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m", "streamId": "7",
        "subscription": "chain", "startingOffsets": "earliest", "groupExpiry": "20s",
    }


def test_a_chain_is_exact_though_the_first_query_repeats_a_batch(
    spark: SparkSession, stream: dict[str, str], tmp_path: Path
) -> None:
    """Its last commit is lost, as if the driver had died before it was written; behind a shuffle
    the repeat has its rows in another order."""
    source = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
        .option("numPartitions", 2).load().repartition(2, "value")
        .selectExpr("cast(value as string) as value")
    )
    checkpoint = tmp_path / "first"

    def run(until: Callable[[], bool]) -> None:
        writer = source.writeStream.format("penstock").option("checkpointLocation", str(checkpoint))
        query = writer.options(
            channel=stream["channel"], streamId="7", timeout="60s"
        ).trigger(processingTime="1 second").start()
        try:
            second.until(until, "the chain moves")
        finally:
            query.stop()

    with Query(spark, stream, tmp_path / "second", Sink()) as second:
        run(lambda: len(second.sink.rows) >= 300)
        commits = sorted(
            (p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()),
            key=lambda p: int(p.name),
        )
        for path in checkpoint.glob(f"commits/*{commits[-1].name}*"):
            path.unlink()
        before = len(second.sink.rows)
        run(lambda: len(second.sink.rows) >= before + 300)
        numbers = [int(value) for value in second.sink.values()]
    assert len(numbers) == len(set(numbers))
    assert sorted(numbers)[: len(numbers) // 100 * 100 - 100] == \
        list(range(len(numbers) // 100 * 100 - 100))


def test_arrow_goes_from_end_to_end_and_a_wrong_schema_is_refused(
    spark: SparkSession, stream: dict[str, str], tmp_path: Path
) -> None:
    options = {**stream, "payload": "arrow"}
    wrong = {
        **options, "subscription": "wrong",
        "arrowSchema": "id double, half double, pair array<bigint>",
    }
    options["arrowSchema"] = "id bigint, half double, pair array<bigint>"
    with (
        Query(spark, options, tmp_path / "right", Sink()) as right,
        Query(spark, wrong, tmp_path / "wrong", Sink()) as mistaken,
    ):
        frame = spark.range(0, 1000, 1, 2).selectExpr(
            "id", "cast(id as double) / 2 as half", "array(id, id + 1) as pair"
        )
        frame.write.format("penstock").mode("append").options(
            channel=stream["channel"], streamId="7", payload="arrow", timeout="60s"
        ).save()
        right.until_rows(1000)
        said = mistaken.failure()
    assert sorted((row.id, row.half, row.pair) for row in right.sink.rows) == [
        (n, n / 2, [n, n + 1]) for n in range(1000)
    ]
    assert "columns are id int64, half double, pair " in said
    assert "but option arrowSchema declares id double" in said


def test_spark_refuses_update_mode_and_foreach_batch_publishes_it(
    spark: SparkSession, stream: dict[str, str], tmp_path: Path
) -> None:
    """Spark lets no Python sink have it (its PythonWriteBuilder only truncates)."""
    sink = {"channel": stream["channel"], "streamId": "7", "timeout": "60s"}
    counts = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
        .option("numPartitions", 2).load().selectExpr("value % 5 as k").groupBy("k").count()
        .selectExpr("concat(k, ':', count) as value")
    )
    refused = counts.writeStream.format("penstock").outputMode("update").options(**sink).option(
        "checkpointLocation", str(tmp_path / "refused")
    ).start()
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        refused.awaitTermination(120)

    def publish(frame: DataFrame, _batch: int) -> None:
        frame.write.format("penstock").mode("append").options(**sink).save()

    with Query(spark, stream, tmp_path / "second", Sink()) as second:
        first = counts.writeStream.foreachBatch(publish).outputMode("update").option(
            "checkpointLocation", str(tmp_path / "first")
        ).trigger(processingTime="1 second").start()
        try:
            second.until(lambda: b"4:40" in second.sink.values(), "the second result came")
        finally:
            first.stop()
        values = second.sink.values()
    assert len(values) == len(set(values))
    assert {b"%d:%d" % (k, n) for k in range(5) for n in (20, 40)} <= set(values)


@pytest.mark.parametrize("name", ["writeId", "jobId"])
def test_two_writes_of_a_batch_need_names(
    spark: SparkSession, stream: dict[str, str], tmp_path: Path, name: str
) -> None:
    """With one identity, readers would drop the second as a repeat of the first."""
    sink = {"channel": stream["channel"], "streamId": "7", "timeout": "60s"}
    source = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        .option("numPartitions", 1).load()
    )

    def run(named: bool) -> StreamingQuery:
        def publish(frame: DataFrame, _batch: int) -> None:
            for which in ("left", "right"):
                more = {name: which} if named else {}
                frame.selectExpr(f"concat('{which} ', value) as value").write.format(
                    "penstock"
                ).mode("append").options(**sink, **more).save()

        return source.writeStream.foreachBatch(publish).option(
            "checkpointLocation", str(tmp_path / f"first-{named}")
        ).trigger(processingTime="1 second").start()

    with Query(spark, stream, tmp_path / "second", Sink()) as second:
        unnamed = run(named=False)
        with pytest.raises(StreamingQueryException, match=r"give each df.write .* another writeId"):
            unnamed.awaitTermination(120)
        named = run(named=True)
        try:
            second.until(lambda: b"right 29" in second.sink.values(), "the third batch came")
        finally:
            named.stop()
        values = second.sink.values()
    assert {b"%s %d" % (which, n) for which in (b"left", b"right") for n in range(30)} <= \
        set(values)


def test_a_batch_write_that_fails_is_not_read(
    spark: SparkSession, stream: dict[str, str], tmp_path: Path
) -> None:
    """Neither by a query nor by a batch, and its repeat is read once."""
    flag = tmp_path / "fixed"

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not flag.exists() and batch.column(0)[0].as_py() != "0":
                raise ValueError("the second task fails")
            yield batch

    def save() -> None:
        frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        frame.mapInArrow(fail, "value string").write.format("penstock").mode("append").options(
            channel=stream["channel"], streamId="7", jobId="one", timeout="60s"
        ).save()

    with Query(spark, stream, tmp_path / "query", Sink()) as reading:
        with pytest.raises(PythonException, match="the second task fails"):
            save()
        flag.touch()
        save()
        reading.until_rows(100)
        save()
        spark.range(1).selectExpr("'last' as value").write.format("penstock").mode(
            "append"
        ).options(channel=stream["channel"], streamId="7", timeout="60s").save()
        reading.until(lambda: b"last" in reading.sink.values(), "the last write came")
        values = reading.sink.values()
    assert sorted(values) == sorted([b"last", *(b"%d" % n for n in range(100))])
