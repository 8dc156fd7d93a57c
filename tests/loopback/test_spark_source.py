# SPDX-License-Identifier: Apache-2.0
"""The source in Spark's local mode, on streams from another daemon over UDP."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support.hosts import PenstockHost
from support.java import needs_java
from support.spark import Query, Sink, local_session

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl

pytestmark = [
    needs_java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]
STREAM = 7
TERM = "|term-length=1m"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session() as session:
        yield session


class Stream:
    """A stream that arrives at ``host``, and the options of a query that reads it."""

    def __init__(self, host: PenstockHost, remote: penstock.Client, channel: str) -> None:
        self.host = host
        self.remote = remote
        self.channel = channel
        self.options = {
            "channel": channel, "streamId": str(STREAM), "subscription": "test",
            "daemonDir": str(host.directory), "startingOffsets": "earliest",
        }
        self.group = {"channel": channel, "stream_id": STREAM}

    def open(self, *names: str, expiry_s: float = 300.0) -> None:
        """Opens the groups before there is a publisher, so that nothing is missed."""
        with GroupControl(directory=str(self.host.directory)) as control:
            for name in names or ("test",):
                control.open(name=name, **self.group, expiry_ns=int(expiry_s * 1e9))

    def publication(self) -> penstock.Publication:
        made = self.remote.add_publication(self.channel, STREAM)
        assert made.wait_connected(60)
        return made

    def state(self, name: str = "test") -> Any:
        with GroupControl(directory=str(self.host.directory)) as control:
            return control.state(name=name, **self.group)


@pytest.fixture
def stream(
    host: PenstockHost, remote: penstock.Client, port: Callable[[], int]
) -> Iterator[Stream]:
    made = Stream(host, remote, f"aeron:udp?endpoint=127.0.0.1:{port()}{TERM}")
    yield made
    with GroupControl(directory=str(host.directory)) as control:
        for group in control.groups():
            control.close_group(
                name=group.name, channel=group.channel, stream_id=group.stream_id
            )


def payloads(count: int, most: int = 300, first: int = 0) -> list[bytes]:
    return [
        b"%08d" % n + bytes([n % 251]) * (n * 7919 % most) for n in range(first, first + count)
    ]


class Sending:
    """Sends in a thread of its own, as fast as it is let."""

    def __init__(self, publication: penstock.Publication, messages: Sequence[bytes]) -> None:
        self.sent = 0
        self._publication = publication
        self._messages = messages
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self.sent < len(self._messages) and not self._stop.is_set():
            done = self._publication.offer_batch(
                self._messages[self.sent : self.sent + 100]
            ).accepted
            self.sent += done
            if not done:
                self._stop.wait(0.002)

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()


def latest_of(progress: Any) -> dict[str, Any]:
    """What the source reported of itself."""
    assert progress is not None
    found = json.loads(json.dumps(dict(progress), default=str))["sources"][0]["latestOffset"]
    return dict(found if isinstance(found, dict) else json.loads(found))


def digest(messages: Sequence[bytes]) -> str:
    whole = hashlib.sha256()
    for message in messages:
        whole.update(b"%d:" % len(message) + message)
    return whole.hexdigest()


# ---- content -------------------------------------------------------------------------------------


def test_what_was_sent_is_what_comes(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Small and fragmented messages, several windows of them, with all columns."""
    sent = [*payloads(2000), *payloads(80, 20_000), *payloads(500, first=9000)]
    stream.open()
    sink = Sink()
    publication = stream.publication()
    with Query(spark, stream.options, tmp_path / "c", sink) as query, Sending(publication, sent):
        query.until_rows(len(sent))
        query.query.processAllAvailable()
        progress = query.query.lastProgress
    rows = sorted(sink.rows, key=lambda row: row.position)
    assert digest([bytes(row.value) for row in rows]) == digest(sent)
    assert rows == sink.rows or len({row.position for row in rows}) == len(rows)
    assert {(row.channel, row.stream_id, row.session_id) for row in rows} == {
        (stream.channel, STREAM, publication.session_id)
    }
    assert {row.host for row in rows} == {stream.state().host}
    times = [row.timestamp for row in rows]
    assert times == sorted(times)
    assert {"lagBytes", "windowLeftBytes", "lostBytes"} <= set(latest_of(progress))


def test_a_query_goes_on_from_its_checkpoint(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Stopped between batches, and once between the sink and Spark's log: the batch comes again,
    with the same rows."""
    sent = payloads(3000)
    stream.open()
    publication = stream.publication()
    checkpoint, sink = tmp_path / "c", Sink(dies_behind=700)
    limited = stream.options | {"maxBytesPerTrigger": "64k"}
    with Query(spark, limited, checkpoint, sink) as query, Sending(publication, sent[:1500]):
        assert "dies before Spark notes it" in query.failure()
    before = dict(sink.batches)
    with Query(spark, limited, checkpoint, sink) as query, Sending(publication, sent[1500:]):
        query.until_rows(2000)
    with Query(spark, limited, checkpoint, sink) as query:
        query.until_rows(len(sent))
    assert sink.repeats >= 1
    assert all(sink.batches[number] == rows for number, rows in before.items())
    assert digest(sink.values()) == digest(sent)


def test_a_task_that_fails_reads_the_same_again(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    sent = payloads(2000)
    flag = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not flag.exists():
                flag.touch()
                os._exit(1)

    stream.open()
    publication = stream.publication()
    sink = Sink()
    with (
        Query(
            spark, stream.options, tmp_path / "c", sink, schema="value binary",
            change=lambda df: df.mapInArrow(fail_once, df.schema),
        ) as query,
        Sending(publication, sent),
    ):
        query.until_rows(len(sent))
    assert flag.exists()
    assert sorted(sink.values()) == sorted(sent)


def test_two_queries_have_a_subscription_each(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    sent = payloads(2000)
    stream.open("one", "two")
    publication = stream.publication()
    one, two = Sink(), Sink(0.3)
    with (
        Query(spark, stream.options | {"subscription": "one"}, tmp_path / "1", one) as first,
        Query(spark, stream.options | {"subscription": "two"}, tmp_path / "2", two) as second,
        Sending(publication, sent),
    ):
        first.until_rows(len(sent))
        second.until_rows(len(sent))
    assert sorted(one.values()) == sorted(two.values()) == sorted(sent)


def test_a_publisher_that_starts_anew_is_another_session(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.open()
    sink = Sink()
    sent = payloads(400)
    with Query(spark, stream.options, tmp_path / "c", sink) as query:
        for part in (sent[:200], sent[200:]):
            publication = stream.publication()
            for message in part:
                publication.send(message)
            publication.close()
        query.until_rows(len(sent))
    assert sorted(sink.values()) == sorted(sent)
    assert len({row.session_id for row in sink.rows}) == 2


# ---- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [
    ("maxBytesPerTrigger", "32k"), ("maxOffsetsPerTrigger", "100"),
])
def test_no_batch_is_larger_than_the_query_requested(
    spark: SparkSession, stream: Stream, tmp_path: Path, limit: str, value: str
) -> None:
    """And AvailableNow ends with what was there when it began."""
    stream.open()
    publication = stream.publication()
    sent = [bytes([n % 256]) * 100 for n in range(700)]
    for message in sent:
        publication.send(message)
    end = publication.position
    eventually(
        lambda: any(log.end_position == end for log in stream.state().logs), "it all arrives"
    )
    sink = Sink()
    options = stream.options | {limit: value}
    with Query(spark, options, tmp_path / "c", sink, availableNow=True) as query:
        query.until(lambda: not query.query.isActive, "it ends by itself")
    assert sink.values() == sent
    most = 100 if limit == "maxOffsetsPerTrigger" else 32 * 1024 // 160
    sizes = [len(rows) for _, rows in sorted(sink.batches.items())]
    assert max(sizes) <= most
    assert len(sizes) == -(-700 // most)


def test_a_window_smaller_than_a_batch_stops_nobody(
    spark: SparkSession, host: PenstockHost, remote: penstock.Client, port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """64 KiB terms, twenty windows of data, and no acknowledgement but in commit."""
    small = Stream(host, remote, f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k")
    small.open()
    publication = small.publication()
    sent = payloads(1500)
    sink = Sink()
    options = small.options | {"ackOn": "commit", "maxBytesPerTrigger": "1g"}
    with Query(spark, options, tmp_path / "c", sink) as query, Sending(publication, sent):
        query.until_rows(len(sent))
    assert sink.values() == sent
    with GroupControl(directory=str(host.directory)) as control:
        control.close_group(name="test", **small.group)


def test_a_fast_publisher_is_held_to_the_pace_of_the_query(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """The sender never is a window ahead of what the query acknowledged, and the memory of the
    receiving host does not grow."""
    stream.open()
    publication = stream.publication()
    sent = [bytes(1000)] * 20_000
    sink = Sink(0.2)
    daemon = psutil.Process(stream.host.pid)
    options = stream.options | {"maxBytesPerTrigger": "128k"}
    ahead: list[int] = []
    memory: list[int] = []
    with Query(spark, options, tmp_path / "c", sink) as query, Sending(publication, sent) as send:
        def watch(batches: int) -> bool:
            (log,) = stream.state().logs
            ahead.append(log.end_position - log.committed)
            window = log.window_bytes
            assert ahead[-1] <= window
            memory.append(daemon.memory_info().rss)
            return len(sink.batches) >= batches

        query.until(lambda: watch(4), "four batches")
        early = max(memory)
        files = sum(f.stat().st_size for f in stream.host.directory.rglob("*.logbuffer"))
        query.until(lambda: watch(14), "fourteen batches")
        assert send.sent < len(sent)        # it is held: otherwise there is nothing to see
        cause = publication.pressure()
    (log,) = stream.state().logs
    assert publication.position - log.committed <= 2 * log.window_bytes
    assert max(memory) < early + 16 * 1024 * 1024
    assert files == sum(f.stat().st_size for f in stream.host.directory.rglob("*.logbuffer"))
    assert cause is not None


# ---- what is gone --------------------------------------------------------------------------------


def lose(stream: Stream, publication: penstock.Publication, name: str = "test") -> None:
    """Closes the group, and sends so much past it that the log does not hold the old any more."""
    with GroupControl(directory=str(stream.host.directory)) as control:
        control.close_group(name=name, **stream.group)
    with (
        penstock.connect(stream.host.directory, name="reader") as reader,
        reader.add_subscription(stream.channel, STREAM) as other,
    ):
        sent = 0
        while sent < 8000:
            sent += publication.offer_batch([bytes(1000)] * 50).accepted
            other.poll(lambda _m, _h: None, 1000)


def test_what_is_gone_fails_the_query_or_is_skipped(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    checkpoint, sink = tmp_path / "c", Sink()
    stream.open("test", "other")
    publication = stream.publication()
    first = payloads(500)
    with Query(spark, stream.options, checkpoint, sink) as query, Sending(publication, first):
        query.until_rows(500)
        query.query.processAllAvailable()       # in the commit log too: not to be read again
    with GroupControl(directory=str(stream.host.directory)) as control:
        control.close_group(name="other", **stream.group)
    lose(stream, publication)
    with Query(spark, stream.options, checkpoint, sink) as query:
        text = query.failure()
    assert "data loss" in text
    assert "failOnDataLoss=false" in text
    last = payloads(100, first=10_000)
    tolerant = stream.options | {"failOnDataLoss": "false"}
    with Query(spark, tolerant, checkpoint, sink) as query, Sending(publication, last):
        query.until(lambda: last[-1] in sink.values()[-200:], "it goes on")
        query.query.processAllAvailable()
        progress = query.query.lastProgress
    values = sink.values()
    assert values[:500] == first
    assert values[-100:] == last
    assert len(values) < 500 + 8000 + 100
    assert latest_of(progress)["lostBytes"] > 1_000_000


def test_a_stopped_query_holds_the_sender_no_longer_than_was_agreed(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    options = stream.options | {"groupExpiry": "3s"}
    sink = Sink(0.5)
    stream.open(expiry_s=30)
    publication = stream.publication()
    with Query(spark, options, tmp_path / "c", sink) as query, Sending(publication, payloads(200)):
        query.until_rows(200)
        # Kept alive by the query, whatever a batch takes.
        query.until(lambda: len(stream.state().logs) == 1, "the group lives")
    with GroupControl(directory=str(stream.host.directory)) as control:
        eventually(lambda: control.groups() == [], "the group expires", 30)


# ---- payloads and other ways to read -------------------------------------------------------------


def ipc(rows: dict[str, list[Any]]) -> bytes:
    batch = pa.record_batch(rows)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def test_arrow_messages_are_rows(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.open()
    publication = stream.publication()
    sink = Sink()
    options = stream.options | {
        "payload": "arrow", "arrowSchema": "id bigint, name string", "includeMetadata": "true"
    }
    with Query(spark, options, tmp_path / "c", sink) as query:
        for n in range(20):
            publication.send(ipc({"id": [n, n + 100], "name": [f"a{n}", None]}))
        query.until_rows(40)
        assert {(row.id, row.name) for row in sink.rows} == {
            pair for n in range(20) for pair in ((n, f"a{n}"), (n + 100, None))
        }
        assert len({row.position for row in sink.rows}) == 20
        publication.send(ipc({"id": ["one"], "name": ["x"]}))
        text = query.failure()
    assert "its columns are id string, name string, but option arrowSchema declares" in text


def test_a_batch_reads_what_is_retained(spark: SparkSession, stream: Stream) -> None:
    stream.open()
    publication = stream.publication()
    sent = payloads(500)
    for message in sent:
        publication.send(message)
    end = publication.position
    eventually(lambda: any(x.end_position == end for x in stream.state().logs), "it arrives")
    df = spark.read.format("penstock").options(**stream.options).load()
    for _ in range(2):      # reading consumes nothing
        rows = df.select("value", "position").orderBy("position").collect()
        assert [bytes(row.value) for row in rows] == sent
    ends = {f"{stream.channel}|{STREAM}|{s.session_id}|{s.initial_term_id}": rows[99].position
            for s in stream.state().logs}
    bounded = stream.options | {"endingOffsets": json.dumps(ends), "minPartitions": "2"}
    df = spark.read.format("penstock").options(**bounded).load()
    assert df.count() == 100
    assert df.rdd.getNumPartitions() == 2


def test_a_daemon_that_is_killed_is_waited_for(
    spark: SparkSession, new_host: Callable[..., PenstockHost], remote: penstock.Client,
    port: Callable[[], int], tmp_path: Path,
) -> None:
    own = new_host()
    stream = Stream(own, remote, f"aeron:udp?endpoint=127.0.0.1:{port()}{TERM}")
    stream.open()
    publication = stream.publication()
    sent = payloads(20_000)
    sink = Sink()
    options = stream.options | {"maxBytesPerTrigger": "512k"}
    with Query(spark, options, tmp_path / "c", sink) as query, Sending(publication, sent):
        query.until_rows(2000)
        own.kill()
        own.start()
        query.until_rows(len(sent))
    assert digest(sink.values()) == digest(sent)


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "said"), [
    ({"subscription": ""}, "option subscription=''"),
    ({"chanel": "x"}, "did you mean channel"),
    ({"startingOffsets": "soon"}, "option startingOffsets='soon'"),
    ({"payload": "arrow"}, "option arrowSchema is missing"),
    ({"daemonDir": "/dev/shm/penstock-nobody"}, "option daemonDir: no daemon in"),
])
def test_a_mistake_is_named_when_the_stream_is_loaded(
    spark: SparkSession, stream: Stream, changes: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException, match=said) as raised:
        spark.readStream.format("penstock").options(**stream.options | changes).load()
    lines = str(raised.value).strip().splitlines()
    assert said in lines[0]
    assert "Traceback" not in str(raised.value)


def test_sql_reads_a_view_and_refuses_a_table(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """If a table's columns are stated, Spark asks nobody until the table is used."""
    stream.open()
    given = ", ".join(f"{key} '{value}'" for key, value in stream.options.items())
    spark.sql(f"CREATE TEMPORARY VIEW arrived USING penstock OPTIONS ({given})")
    assert spark.sql("SELECT count(*) FROM arrived").collect()[0][0] == 0
    spark.catalog.dropTempView("arrived")
    spark.sql(
        f"CREATE TABLE declared (value string) USING penstock OPTIONS ({given}) "
        f"LOCATION '{tmp_path}'"
    )
    for statement, said in (
        (f"CREATE TABLE arrivals USING penstock OPTIONS ({given})", "use CREATE TEMPORARY VIEW"),
        ("CREATE TABLE arrivals USING penstock", "use CREATE TEMPORARY VIEW"),
        ("SELECT * FROM declared", "use CREATE TEMPORARY VIEW"),
        ("INSERT INTO declared VALUES ('x')", r"use df\.write\.format"),
    ):
        with pytest.raises(AnalysisException, match=said) as raised:
            spark.sql(statement).collect()
        assert len(str(raised.value).strip().splitlines()) <= 2
    spark.sql("DROP TABLE declared")


def test_mistakes_that_show_when_the_query_starts(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.open()
    sink = Sink()
    with Query(spark, stream.options, tmp_path / "x", sink, schema="key string") as query:
        text = query.failure()
    assert "column key string is not one of" in text.strip().splitlines()[0]
    assert "UnboundLocalError" not in text          # of Spark's runner, in place of the reason
    publication = stream.publication()
    checkpoint = tmp_path / "c"
    with Query(spark, stream.options, checkpoint, sink) as query:
        publication.send(b"x")
        query.until_rows(1)
    with Query(spark, stream.options | {"streamId": "8"}, checkpoint, sink) as query:
        text = query.failure()
    assert f"made for {stream.channel} stream {STREAM}" in text.strip().splitlines()[0]
    assert "checkpointLocation" in text
