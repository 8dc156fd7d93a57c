# SPDX-License-Identifier: Apache-2.0
"""Streams read by Spark on two hosts: where each row is read, and how long it takes to get in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median

import pytest
from support.processes import Peer

from cluster.spark_cluster import Driver, SparkCluster, name_of

pytestmark = [pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(600)]

SLOTS = 4
_STREAMS = count(500)
COUNT = 20_000
ROUNDS = 3


@pytest.fixture
def stream() -> int:
    """One that no other test has."""
    return next(_STREAMS)


@pytest.fixture
def running(driver: Driver) -> Iterator[Driver]:
    """The shared driver; queries that a test leaves end with it."""
    yield driver
    driver.request("stop_all")


def publish(spark: SparkCluster, channel: str, stream: int, *args: str) -> Peer:
    """From host 0."""
    return spark.publisher(0, f"--channel={channel}", f"--stream={stream}", *args)


def numbers_in(folder: Path) -> list[int]:
    """What the batches' files hold, in order of the batches."""
    files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
    return [number for path in files for number in json.loads(path.read_text())]


def until_read(driver: Driver, folder: Path, wanted: int) -> list[tuple[str, str]]:
    """Waits until so many rows are in the sink; (host of the data, host of the task) of all."""
    places: set[tuple[str, str]] = set()
    rows = 0
    while rows < wanted:
        batch = driver.wait("batch")
        rows += batch["rows"]
        places |= {(host, task) for host, task in batch["places"]}
    assert sorted(numbers_in(folder)) == list(range(wanted))
    return sorted(places)


def test_a_multicast_stream_is_read_on_each_host_from_its_own_daemon(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path
) -> None:
    channel = "aeron:udp?endpoint=239.20.0.9:24020|interface=10.77.0.0/24|term-length=4m"
    source = spark.source(
        1, 2, channel=channel, streamId=str(stream), subscription=f"multicast-{stream}",
        locality="barrier", minPartitions=str(SLOTS), startingOffsets="earliest",
    )
    running.request(
        "collect", query="q", source=source, folder=str(tmp_path / "out"), local=True,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    with publish(
        spark, f"{channel}|fc=min,g:/2", stream, f"--count={COUNT}", "--size=512"
    ) as publisher:
        places = until_read(running, tmp_path / "out", COUNT)
        publisher.wait("done")
    assert places == [(name_of(1), name_of(1)), (name_of(2), name_of(2))]


def test_a_stream_of_one_host_is_read_remotely_where_a_task_runs_elsewhere(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path
) -> None:
    channel = f"aeron:udp?endpoint={spark.lan.address(1)}:24021|term-length=4m"
    source = spark.source(
        1, channel=channel, streamId=str(stream), subscription=f"remote-{stream}",
        minPartitions=str(SLOTS), startingOffsets="earliest",
    )
    running.request(
        "collect", query="q", source=source, folder=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    with publish(spark, channel, stream, f"--count={COUNT}", "--size=512") as publisher:
        places = until_read(running, tmp_path / "out", COUNT)
        publisher.wait("done")
    assert (name_of(1), name_of(2)) in places       # fetched from host 1 by a task on host 2
    assert {data for data, _task in places} == {name_of(1)}


def test_read_local_keeps_a_stream_of_one_host_there(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path
) -> None:
    channel = f"aeron:udp?endpoint={spark.lan.address(2)}:24022|term-length=4m"
    source = spark.source(
        2, channel=channel, streamId=str(stream), subscription=f"local-{stream}",
        locality="barrier", minPartitions=str(SLOTS), startingOffsets="earliest",
    )
    running.request(
        "collect", query="q", source=source, folder=str(tmp_path / "out"), local=True,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    with publish(spark, channel, stream, f"--count={COUNT}", "--size=512") as publisher:
        places = until_read(running, tmp_path / "out", COUNT)
        publisher.wait("done")
    assert places == [(name_of(2), name_of(2))]


def test_a_query_carries_a_stream_to_a_stream(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path
) -> None:
    """Source and sink of one query: what a receiver makes of it is what was published."""
    into = f"aeron:udp?endpoint={spark.lan.address(1)}:24023|term-length=4m"
    out = f"aeron:udp?endpoint={spark.lan.address(0)}:24024|term-length=4m"
    source = spark.source(
        1, channel=into, streamId=str(stream), subscription=f"copy-{stream}",
        startingOffsets="earliest",
    )
    host = spark.hosts[0]
    with (
        host.run(
            "-m", "cluster.spark_receiver", f"--dir={host.directory}", f"--channel={out}",
            f"--stream={stream}", "--head",
        ) as reader,
        publish(spark, into, stream, f"--count={COUNT}", "--size=64") as publisher,
    ):
        reader.wait("listening")
        running.request(
            "copy", query="q", source=source, sink={"channel": out, "streamId": str(stream)},
            checkpoint=str(tmp_path / "checkpoint"),
        )
        received: list[int] = []
        while len(received) < COUNT:
            received += reader.wait("part", 180.0)["values"]
        publisher.wait("done")
        reader.finish()
        counted = reader.wait("counted")
    assert sorted(received) == list(range(COUNT))
    assert (counted["repeats"], counted["partial"]) == (0, 0)


@pytest.mark.alone
def test_a_row_arrives_within_one_and_a_half_empty_batches(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path,
    record_property: pytest.RecordProperty,
) -> None:
    """From ``offer`` on one host to the row in ``foreachBatch`` on another, beside what Spark takes
    for a batch without rows.  Other programs make both longer, and seldom by the same factor: the
    median of three rounds counts."""
    channel = f"aeron:udp?endpoint={spark.lan.address(1)}:24025|term-length=1m"

    def floor(name: str) -> list[float]:
        answer = running.request("floor", batches=20, checkpoint=str(tmp_path / name))
        batches: list[float] = answer["batch_ms"][3:]
        return batches

    def latencies(name: str) -> list[float]:
        source = spark.source(
            1, channel=channel, streamId=str(stream), subscription=f"latency-{stream}-{name}",
            minPartitions="2",
        )
        running.request(
            "collect", query=name, source=source, folder=str(tmp_path / name),
            checkpoint=str(tmp_path / f"checkpoint-{name}"), plain=True,
        )
        took: list[float] = []
        with publish(spark, channel, stream, "--count=60", "--rate=4") as publisher:
            rows = 0
            while rows < 40:
                batch = running.wait("batch")
                rows += batch["rows"]
                took += batch["latency_ms"]
            publisher.stop()
        running.request("stop", query=name)
        return took[5:]

    rounds: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        before = floor(f"before-{number}")
        found = median(latencies(f"rows-{number}"))
        rounds.append((found, median(before + floor(f"after-{number}"))))
    record_property("latency_and_floor_ms", rounds)
    for found, lowest in rounds:
        print(f"offer to foreachBatch {found:.0f} ms, an empty batch {lowest:.0f} ms")
    assert median(found / lowest for found, lowest in rounds) <= 1.5, rounds
