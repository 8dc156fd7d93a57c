# SPDX-License-Identifier: Apache-2.0
"""The sink in Spark's local mode: what arrives, what is refused, what is repeated."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.hosts import PenstockHost, penstock_host
from support.java import has_archive, needs_java
from support.spark import local_session

import penstock
from penstock.spark_bridge import Committed, committed, publish
from penstock.spark_bridge._assembler import CommittedPart
from penstock.spark_bridge._outlet import SinkError, forget, outlet
from penstock.spark_bridge._sink_options import NAMES

pytestmark = [
    needs_java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]
WAIT_S = 30.0


@pytest.fixture(scope="module")
def spark(host: PenstockHost) -> Iterator[SparkSession]:
    """Its workers use ``host``."""
    with local_session(PENSTOCK_DIR=str(host.directory)) as session:
        yield session


@pytest.fixture
def channel(port: Callable[[], int]) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m"


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as value")


def save(df: DataFrame, channel: str, **options: str) -> None:
    given = {"channel": channel, "streamId": "7", "timeout": "20s", **options}
    df.write.format("penstock").mode("append").options(**given).save()


def save_and_take(
    df: DataFrame, sub: penstock.Subscription, channel: str, count: int, **options: str
) -> tuple[list[CommittedPart], Committed]:
    """More than the receiver's window: somebody has to read meanwhile."""
    reader = committed(sub, timeout_s=WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: [next(reader) for _ in range(count)])
        save(df, channel, **options)
        return found.result(WAIT_S), reader


def take(sub: penstock.Subscription, count: int) -> list[CommittedPart]:
    """The next parts; the reader waits no longer than needed."""
    reader = committed(sub, timeout_s=WAIT_S)
    return [next(reader) for _ in range(count)]


def test_the_jvm_has_its_classes_from_an_archive(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert has_archive(gateway.proc.pid)


def test_rows_arrive_in_whole_parts(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    with client.add_subscription(channel, 7) as sub:
        save(numbers(spark, 500), channel)
        found = take(sub, 2)
    assert sorted(int(m) for part in found for m in part.messages) == list(range(500))
    assert {(part.epoch, part.partition) for part in found} == {(0, 0), (0, 1)}
    assert len({part.query for part in found}) == 1


def test_each_key_has_a_session_of_its_own(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    df = numbers(spark, 100, 1).selectExpr("value", "concat('k', int(value) % 3) as k")
    with client.add_subscription(channel, 7) as sub:
        save(df, channel, keyColumn="k")
        found = take(sub, 3)
        with pytest.raises(PythonException, match="has more than maxKeys=2 values in one task"):
            save(df, channel, keyColumn="k", maxKeys="2")
    assert {part.key for part in found} == {b"k0", b"k1", b"k2"}
    assert len({part.session_id for part in found}) == 3
    for part in found:
        wanted = [n for n in range(100) if f"k{n % 3}".encode() == part.key]
        assert [int(m) for m in part.messages] == wanted


def test_arrow_batches_are_cut_to_what_a_message_holds(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    df = spark.range(0, 20_000, 1, 1).selectExpr("id", "id * 0.5 as half")
    with client.add_subscription(channel, 7) as sub:
        (part,), _reader = save_and_take(df, sub, channel, 1, payload="arrow")
    assert len(part.messages) > 3       # a message of this channel has at most 128 KiB
    table = pa.ipc.open_stream(b"".join(part.messages)).read_all()      # the schema is the first
    assert table.schema.types == [pa.int64(), pa.decimal128(22, 1)]
    assert table.column("id").to_pylist() == list(range(20_000))


def test_a_job_that_fails_is_not_handed_out_and_its_repeat_is_once(
    spark: SparkSession, client: penstock.Client, channel: str, tmp_path: Path
) -> None:
    """One of its two tasks fails, each time that it is tried."""
    flag = tmp_path / "fixed"

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not flag.exists() and batch.column(0)[0].as_py() != "0":
                raise ValueError("the second task fails")
            yield batch

    df = numbers(spark, 100).mapInArrow(fail, "value string")
    with client.add_subscription(channel, 7) as sub:
        with pytest.raises(PythonException, match="the second task fails"):
            save(df, channel, jobId="daily 2026-11-22")
        flag.touch()
        for _ in range(2):
            save(df, channel, jobId="daily 2026-11-22")
        reader = committed(sub, timeout_s=WAIT_S)
        found = [next(reader) for _ in range(2)]
        # Each task has a session of its own, and parts of different sessions have no order.
        save(numbers(spark, 1, 1), channel)
        found.append(next(reader))
    assert [len(part.messages) for part in found] == [50, 50, 1]
    assert sorted(int(m) for part in found[:2] for m in part.messages) == list(range(100))
    assert reader.statistics.parts == 3


def test_a_task_that_is_tried_again_repeats_nothing(
    spark: SparkSession, client: penstock.Client, channel: str, tmp_path: Path
) -> None:
    """The first attempt sends its rows and dies before it commits."""
    flag = tmp_path / "died"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not flag.exists():
            flag.touch()
            os._exit(1)

    df = numbers(spark, 30_000, 1).mapInArrow(die_once, "value string")
    with client.add_subscription(channel, 7) as sub:
        (part,), reader = save_and_take(df, sub, channel, 1)
        assert [int(m) for m in part.messages] == list(range(30_000))
        assert reader.statistics.parts == 1
    assert flag.exists()


def test_a_stream_of_batches_and_its_restart(
    spark: SparkSession, client: penstock.Client, channel: str, tmp_path: Path
) -> None:
    """The restarted query goes on, and one whose commit was lost comes as a repeat."""
    df = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
        .option("numPartitions", 2).load().selectExpr("cast(value as string) as value")
    )
    checkpoint = tmp_path / "checkpoint"

    def run(epochs: int) -> list[CommittedPart]:
        query = (
            df.writeStream.format("penstock").option("channel", channel).option("streamId", 7)
            .option("checkpointLocation", str(checkpoint)).start()
        )
        try:
            parts: list[CommittedPart] = []
            while len({p.epoch for p in parts}) < epochs:
                parts.append(next(reader))
            return parts
        finally:
            query.stop()

    with client.add_subscription(channel, 7) as sub:
        reader = committed(sub, timeout_s=WAIT_S)
        parts = run(2)
        commits = sorted(
            (p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()),
            key=lambda p: int(p.name),
        )
        for path in checkpoint.glob(f"commits/*{commits[-1].name}*"):
            path.unlink()       # as if the driver had died between the sink and its log
        parts += run(2)
        places = [(p.epoch, p.partition) for p in parts]
        assert len(places) == len(set(places))
        assert reader.statistics.repeats >= 1
        by_epoch = {p.epoch for p in parts}
        assert by_epoch == set(range(max(by_epoch) + 1))
        for part in parts:
            assert len(part.messages) == 50


def test_in_complete_mode_each_batch_publishes_its_whole_result(
    spark: SparkSession, client: penstock.Client, channel: str, tmp_path: Path
) -> None:
    """A part a task, the latest epoch is the answer; nothing of it is marked as a repeat."""
    counts = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        .selectExpr("value % 5 as k").groupBy("k").count()
        .selectExpr("concat(k, '=', count) as value")
    )
    epochs: dict[int, list[bytes]] = {}
    with client.add_subscription(channel, 7) as sub:
        reader = committed(sub, timeout_s=WAIT_S)
        query = (
            counts.writeStream.format("penstock").outputMode("complete")
            .option("channel", channel).option("streamId", 7)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )
        try:
            while len(epochs) < 4:      # then three are whole: a task takes its turn an epoch
                part = next(reader)
                epochs.setdefault(part.epoch, []).extend(bytes(m) for m in part.messages)
        finally:
            query.stop()
        assert reader.statistics.repeats == 0
    for epoch in sorted(epochs)[:3]:
        assert sorted(epochs[epoch]) == [b"%d=%d" % (k, 20 * (epoch + 1)) for k in range(5)]


def test_publish_counts_what_each_task_sent(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    with client.add_subscription(channel, 7) as sub:
        rows = publish(numbers(spark, 200), channel=channel, stream_id=7, timeout="20s").collect()
        take(sub, 2)
    assert [row.messages for row in sorted(rows, key=lambda row: row.partition)] == [100, 100]
    assert sum(row.bytes for row in rows) == sum(len(str(n)) for n in range(200))


def test_a_reader_that_stops_fails_the_task_with_cause_and_culprit(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    with (
        client.add_subscription(channel, 7),
        pytest.raises(
            PythonException,
            match=r"cause receiver_window by receiver -?\d+ at 127\.0\.0\.1:\d+.*option timeout",
        ),
    ):
        save(numbers(spark, 200_000, 1), channel, timeout="1s")


def test_drain_consumed_waits_for_the_readers(
    spark: SparkSession, client: penstock.Client, channel: str
) -> None:
    """All of it was sent at once, and is nothing to a task that wants it taken."""
    with client.add_subscription(channel, 7) as sub:
        save(numbers(spark, 10, 1), channel)
        with pytest.raises(PythonException, match="was not consumed to its end within 3 s, only"):
            save(numbers(spark, 20, 1), channel, drain="consumed", timeout="3s")
        found, reader = save_and_take(numbers(spark, 30, 1), sub, channel, 2, drain="consumed")
    assert [len(part.messages) for part in found] == [10, 30]
    assert reader.statistics.repeats == 1       # the second attempt that failed for the same reason


def test_nulls_are_refused(spark: SparkSession, client: penstock.Client, channel: str) -> None:
    df = numbers(spark, 10, 1).selectExpr("nullif(value, '3') as value")
    with (
        client.add_subscription(channel, 7),
        pytest.raises(PythonException, match="column value has 1 nulls"),
    ):
        save(df, channel)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"timout": "3s"}, "did you mean timeout"),
        ({"timeout": "soon"}, "option timeout=soon"),
        ({"keyColumn": "k"}, "keyColumn=k names no column"),
    ],
)
def test_a_bad_option_is_named_before_anything_runs(
    spark: SparkSession, channel: str, changes: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException, match=said):
        save(numbers(spark, 10), channel, **changes)
    with pytest.raises(AnalysisException, match="mode overwrite"):
        numbers(spark, 10).write.format("penstock").mode("overwrite").option(
            "channel", channel
        ).option("streamId", 7).save()


def stream_into(df: DataFrame, channel: str, options: dict[str, str], checkpoint: Path) -> None:
    """A query that runs until it fails."""
    query = (
        df.writeStream.format("penstock").options(channel=channel, streamId="7", **options)
        .option("checkpointLocation", str(checkpoint)).start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


@pytest.mark.parametrize("how", ["job", "tasks", "publish", "stream"])
def test_no_daemon_is_named_on_the_first_line_and_the_timeout_is_not_waited_for(
    spark: SparkSession, channel: str, tmp_path: Path, how: str
) -> None:
    """The time limit of the test is shorter than the option timeout."""
    away = {"daemonDir": str(tmp_path / "none"), "timeout": "3600s"}
    df = numbers(spark, 10, 1)
    numbered = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    calls: dict[str, Callable[[], object]] = {
        "job": lambda: save(df, channel, **away),
        "tasks": lambda: save(df, channel, **away, jobCommit="false"),
        "publish": lambda: publish(df, channel=channel, stream_id=7, **away).collect(),
        "stream": lambda: stream_into(
            numbered.selectExpr("cast(value as string) as value"), channel, away, tmp_path / "c"
        ),
    }
    with pytest.raises((AnalysisException, PythonException, StreamingQueryException)) as caught:
        calls[how]()
    first, *rest = str(caught.value).strip().splitlines()
    if first == "An exception was thrown from the Python worker:":      # Spark's own line
        first = rest[0]
    assert f"no penstock daemon for the sink in {tmp_path / 'none'}" in first


@pytest.mark.parametrize("sockets", ["left", "removed"])
def test_a_worker_waits_for_the_daemon_that_follows_a_killed_one(
    tmp_path: Path, sockets: str
) -> None:
    """A killed daemon leaves its sockets and its lock file behind, and the next one removes the
    sockets before it listens; a directory without all of them is another mistake."""
    with penstock_host(tmp_path / "d") as host:
        host.kill()
        if sockets == "removed":
            for name in host.directory.glob("*.sock"):
                name.unlink()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: outlet(str(host.directory), 60.0))
            with pytest.raises(SinkError, match="no penstock daemon"):
                outlet(str(tmp_path / "none"), 60.0)
            assert not found.done()
            host.start()
            assert found.result(60.0).client is not None
        forget(str(host.directory))


PAGE = (Path(__file__).parents[2] / "docs" / "spark-sink.md").read_text(encoding="utf-8")


def test_the_page_has_every_option() -> None:
    table = PAGE.split("| Option |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(NAMES.values())


def test_the_example_of_the_page_runs(spark: SparkSession, port: Callable[[], int]) -> None:
    """In the session that is there: it is not stopped, the module needs it."""
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    assert "127.0.0.1:20131" in example
    assert example.endswith("spark.stop()\n")
    text = example.replace("127.0.0.1:20131", f"127.0.0.1:{port()}").removesuffix("spark.stop()\n")
    exec(compile(text, "docs/spark-sink.md", "exec"), {})
