# SPDX-License-Identifier: Apache-2.0
"""Streams read by Spark on two hosts: where each row is read, and how long it takes to get in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median

import psutil
import pytest
from support.patience import descendants, scheduled
from support.processes import Peer

from cluster.spark_cluster import Driver, SparkCluster, name_of

pytestmark = [pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(600)]

SLOTS = 4
_STREAMS = count(500)
COUNT = 20_000
#: Of the latency: rounds, and of each the batches that are not measured, empty batches, messages.
ROUNDS, WARM, BATCHES, ROWS = 3, 3, 17, 35


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


class Usable:
    """The part of the machine since its making that other programs left to our processes."""

    def __init__(self) -> None:
        self._ran_ns, self._at = scheduled(descendants(os.getpid())), machine_s()

    def of(self, times: list[float]) -> list[float]:
        now = scheduled(descendants(os.getpid()))
        busy_s, at_s = (late - early for early, late in zip(self._at, machine_s(), strict=True))
        ours_s = sum(ran - self._ran_ns.get(key, (0, 0))[0] for key, (ran, _) in now.items()) / 1e9
        part = 1 - max(0.0, busy_s - ours_s) / (at_s * (os.cpu_count() or 1))
        return [each * part for each in times]


def machine_s() -> tuple[float, float]:
    """For how long its processors have worked, in all, and the time."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice, time.monotonic()


@pytest.mark.alone
def test_a_row_arrives_within_one_and_a_half_empty_batches(
    spark: SparkCluster, running: Driver, stream: int, tmp_path: Path,
    record_property: pytest.RecordProperty,
) -> None:
    """From ``offer`` on one host to the row in ``foreachBatch`` on another, beside what Spark takes
    for a batch without rows, before and after: both without the part of the time in which other
    programs had the processors.  The median of three rounds counts, which two rounds decide if they
    agree."""
    channel = f"aeron:udp?endpoint={spark.lan.address(1)}:24025|term-length=1m"
    names = count()

    def floor() -> list[float]:
        checkpoint = str(tmp_path / f"floor-{next(names)}")
        running.run("floor", warm=WARM, batches=BATCHES, checkpoint=checkpoint)
        running.wait("warm")
        usable = Usable()
        return usable.of(running.wait("answer")["batch_ms"])

    def latencies() -> list[float]:
        name = f"rows-{next(names)}"
        source = spark.source(
            1, channel=channel, streamId=str(stream), subscription=f"latency-{stream}-{name}",
            minPartitions="2",
        )
        running.request(
            "collect", query=name, source=source, folder=str(tmp_path / name),
            checkpoint=str(tmp_path / f"checkpoint-{name}"), plain=True,
        )
        with publish(spark, channel, stream, f"--count={WARM + ROWS}", "--step") as publisher:
            for _ in range(WARM):       # the first ones start Python's workers
                step(publisher, name)
            usable = Usable()
            taken = usable.of([step(publisher, name) for _ in range(ROWS)])
        running.request("stop", query=name)
        return taken

    def step(publisher: Peer, name: str) -> float:
        """The latency of a message to a query without a batch."""
        publisher.say()
        batch = running.wait("batch")
        while not batch["rows"]:
            batch = running.wait("batch")
        while is_in_batch(name, batch["batch"]):
            time.sleep(0.002)
        (took,) = batch["latency_ms"]
        return float(took)

    def is_in_batch(name: str, number: int) -> bool:
        progress = running.request("progress", query=name)["progress"]
        return progress is None or progress["batchId"] < number

    rounds: list[tuple[float, float]] = []
    before = floor()
    while len(rounds) < 2 or (len(rounds) < ROUNDS and len({*map(is_soon, rounds)}) == 2):
        found = median(latencies())
        after = floor()
        rounds.append((found, median(before + after)))
        before = after
    record_property("latency_and_floor_ms", rounds)
    for found, lowest in rounds:
        print(f"offer to foreachBatch {found:.0f} ms, an empty batch {lowest:.0f} ms")
    assert is_soon(rounds[-1]), rounds


def is_soon(measured: tuple[float, float]) -> bool:
    found, lowest = measured
    return found / lowest <= 1.5
