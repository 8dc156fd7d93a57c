# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to every kind of process that takes part in a query, in the middle of a batch.

Two queries read one stream: one writes a file a batch (a batch that is repeated replaces its file)
and a journal (which shows what was repeated), the other publishes into a stream whose reader drops
repeats.  Whatever dies, both end up with each message that was published, once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.processes import Peer

from cluster.spark_cluster import Driver, SparkCluster, children

pytestmark = [pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT, RATE = 4000, 500
PATIENCE_S = 240.0
FRESH_NS = 200_000_000
WORK_S = 0.6            # longer in each task, so that there is a middle of it
_STREAMS = count(700)


class Flow:
    """A publisher, a stream, and two queries that read it."""

    def __init__(self, spark: SparkCluster, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.stream = next(_STREAMS)
        self.into = f"aeron:udp?endpoint={spark.lan.address(1)}:24031|term-length=1m"
        self.out = f"aeron:udp?endpoint={spark.lan.address(0)}:24032|term-length=1m"
        self.parts = 0
        self.received: list[int] = []

    def source(self, name: str) -> dict[str, str]:
        return self.spark.source(
            1, channel=self.into, streamId=str(self.stream), startingOffsets="earliest",
            subscription=f"{name}-{self.stream}", minPartitions="4", retry="60s",
        )

    def begin(self, driver: Driver) -> None:
        """Starts both queries, or goes on with them after a driver's death."""
        driver.ask(
            "collect", query="files", source=self.source("files"), work_s=WORK_S,
            folder=str(self.folder / "out"), checkpoint=str(self.folder / "checkpoint-files"),
        )
        self.begin_copy(driver)

    def begin_copy(self, driver: Driver) -> None:
        driver.ask(
            "copy", query="copy", source=self.source("copy"), work_s=WORK_S,
            sink={"channel": self.out, "streamId": str(self.stream), "timeout": "60s"},
            checkpoint=str(self.folder / "checkpoint-copy"),
        )

    def publish(self) -> Peer:
        return self.spark.publisher(
            0, f"--channel={self.into}", f"--stream={self.stream}", f"--count={COUNT}",
            f"--rate={RATE}", "--size=64",
        )

    def receive(self) -> Peer:
        host = self.spark.hosts[0]
        return host.run(
            "-m", "cluster.spark_receiver", f"--dir={host.directory}", f"--channel={self.out}",
            f"--stream={self.stream}", "--head",
        )

    def hear(self, reader: Peer) -> dict[str, Any]:
        """What the reader says next; messages of parts are kept."""
        line = reader.next(PATIENCE_S)
        if line["event"] == "part":
            self.received += line["values"]
        return line

    def take(self, reader: Peer, wanted: int) -> None:
        """Reads on until so many messages came out."""
        while len(self.received) < wanted:
            self.hear(reader)

    def until_open(self, reader: Peer) -> None:
        """A task of the second query is in the middle of its part at this very moment."""
        while True:
            line = self.hear(reader)
            if line["event"] == "open" and time.time_ns() - line["at_ns"] < FRESH_NS:
                return

    def files(self) -> list[int]:
        found = [json.loads(p.read_text()) for p in (self.folder / "out").glob("*.json")]
        return sorted(number for numbers in found for number in numbers)

    def wait_files(self, driver: Driver) -> None:
        while len(self.files()) < COUNT:
            driver.wait("batch", PATIENCE_S)

    def repeated(self) -> int:
        """Rows that came again into a sink that is not idempotent."""
        lines = (self.folder / "out" / "journal").read_text().splitlines()
        counts = Counter(number for line in lines for number in json.loads(line))
        assert set(counts) >= set(range(COUNT))
        return sum(counts.values()) - COUNT


@contextlib.contextmanager
def flow(spark: SparkCluster, folder: Path) -> Iterator[tuple[Flow, Peer, Peer]]:
    """With its publisher and the reader of the outgoing stream."""
    made = Flow(spark, folder)
    with made.receive() as reader, made.publish() as publisher:
        reader.wait("listening", PATIENCE_S)
        yield made, publisher, reader


def under_way(made: Flow, driver: Driver, reader: Peer) -> None:
    """Both queries have had a batch or two."""
    batches = 0
    while batches < 2:
        batches += driver.wait("batch", PATIENCE_S)["rows"] > 0
    made.take(reader, 1)


def verify(made: Flow, driver: Driver, publisher: Peer, reader: Peer) -> dict[str, Any]:
    """Everything there, once; what was repeated, and dropped."""
    publisher.wait("done", PATIENCE_S)
    made.wait_files(driver)
    made.take(reader, COUNT)
    driver.ask("stop_all")
    reader.finish()
    counted = reader.wait("counted")
    assert made.files() == list(range(COUNT))
    assert sorted(made.received) == list(range(COUNT))
    assert counted["messages"] == COUNT
    assert counted["headless"] == counted["malformed"] == 0
    print(
        f"repeated: {made.repeated()} rows in the journal; {counted['repeated_messages']} whole "
        f"and {counted['partial_messages']} partial in the stream, dropped by its reader"
    )
    return counted


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def strike(made: Flow, reader: Peer, pids: list[int]) -> None:
    """Kills processes that were looked up before, in the middle of a part."""
    assert pids
    made.until_open(reader)
    for pid in pids:
        kill(pid)


def test_an_executor_dies(spark: SparkCluster, driver: Driver, tmp_path: Path) -> None:
    with flow(spark, tmp_path) as (made, publisher, reader):
        made.begin(driver)
        under_way(made, driver, reader)
        strike(made, reader, spark.executors(driver.application)[1])
        counted = verify(made, driver, publisher, reader)
        assert counted["partial"] > 0       # its tasks were in the middle of their parts


def test_the_python_workers_die(spark: SparkCluster, driver: Driver, tmp_path: Path) -> None:
    with flow(spark, tmp_path) as (made, publisher, reader):
        made.begin(driver)
        under_way(made, driver, reader)
        strike(made, reader, [
            worker
            for executors in spark.executors(driver.application).values()
            for executor in executors
            for worker in spark.python_workers(executor)
        ])
        counted = verify(made, driver, publisher, reader)
        assert counted["partial"] > 0


def test_the_driver_dies_and_its_successor_goes_on_from_the_checkpoint(
    spark: SparkCluster, tmp_path: Path
) -> None:
    with flow(spark, tmp_path) as (made, publisher, reader):
        with spark.driver("first") as driver:
            made.begin(driver)
            under_way(made, driver, reader)
            made.until_open(reader)
            os.killpg(driver.peer.process.pid, signal.SIGKILL)
        with spark.driver("second") as driver:
            made.begin(driver)
            verify(made, driver, publisher, reader)


def test_the_daemons_client_dies(spark: SparkCluster, driver: Driver, tmp_path: Path) -> None:
    """The process beside the driver that holds a query's subscription: the query ends with an
    error, and goes on when it is started again."""
    with flow(spark, tmp_path) as (made, publisher, reader):
        made.begin(driver)
        under_way(made, driver, reader)
        runners = source_runners(driver)
        assert len(runners) == 2
        strike(made, reader, runners)
        for query in ("files", "copy"):
            driver.ask("ended", query=query)
        made.begin(driver)
        verify(made, driver, publisher, reader)


def source_runners(driver: Driver) -> list[int]:
    """Processes of the driver's queries that ask for offsets."""
    found = []
    for pid, words in spark_processes(driver.peer.process.pid):
        if any("python_streaming_source_runner" in word for word in words):
            found.append(pid)
    return found


def spark_processes(root: int) -> Iterator[tuple[int, list[str]]]:
    """All descendants of a process."""
    for pid in children(root, "java") + children(root):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        yield pid, words
        yield from spark_processes(pid)


def test_a_daemon_dies_and_its_successor_goes_on(
    spark: SparkCluster, driver: Driver, tmp_path: Path
) -> None:
    """The one that holds the stream: it adopts what its predecessor had."""
    with flow(spark, tmp_path) as (made, publisher, reader):
        made.begin(driver)
        under_way(made, driver, reader)
        made.until_open(reader)
        spark.hosts[1].kill()
        spark.restart_daemon(1)
        verify(made, driver, publisher, reader)


def test_the_harness_notices_what_is_missing(tmp_path: Path) -> None:
    """The check of the tests above can fail."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "0.json").write_text(json.dumps([0, 1]))
    (out / "journal").write_text("[0, 1]\n[1]\n")
    made = Flow.__new__(Flow)
    made.folder = tmp_path
    assert made.files() == [0, 1]
    with pytest.raises(AssertionError):
        made.repeated()
