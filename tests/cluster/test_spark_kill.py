# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to every kind of process that takes part in a query, in the middle of a batch.

Two queries read one stream: one writes a file a batch (a batch that is repeated replaces its file)
and a journal (which shows what was repeated), the other publishes into a stream whose reader drops
repeats.  Whatever dies, both go on, and have each message that was published, once.

The stream and the queries run through all tests of the module: to start them takes longer than to
survive a death.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.patience import Patience
from support.processes import Peer

from cluster.spark_cluster import Driver, Drivers, SparkCluster, children

pytestmark = [pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(900)]

RATE = 500
ENDLESS = 1_000_000_000
PATIENCE_S = 240.0
HELD_S = 30.0           # the publisher says so often who holds it
FRESH_NS = 200_000_000
STILL_NS = 2_000_000_000
WORK_S = 0.6            # longer in each task, so that there is a middle of it
STREAM = 700
DEATHS = 4              # the open part may be another process's
NOTIFIED_S = 40.0           # what a reader needs to know that a part's session has died


class Flow:
    """A publisher, a stream, and two queries that read it."""

    def __init__(self, spark: SparkCluster, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.into = f"aeron:udp?endpoint={spark.lan.address(1)}:24031|term-length=1m"
        self.out = f"aeron:udp?endpoint={spark.lan.address(0)}:24032|term-length=1m"
        self.received: list[int] = []
        self.partial = 0
        self.publisher: Peer
        self.reader: Peer

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """With its publisher and the reader of the outgoing stream."""
        host = self.spark.hosts[0]
        with (
            host.run(
                "-m", "cluster.spark_receiver", f"--dir={host.directory}", f"--channel={self.out}",
                f"--stream={STREAM}", "--head",
            ) as self.reader,
            self.spark.publisher(
                0, f"--channel={self.into}", f"--stream={STREAM}", f"--count={ENDLESS}",
                f"--rate={RATE}", "--size=64", "--until-told", "--patient", f"--timeout={HELD_S}",
            ) as self.publisher,
        ):
            self.reader.wait("listening", PATIENCE_S)
            yield

    # ---- the queries -----------------------------------------------------------------------------

    def source(self, name: str) -> dict[str, str]:
        return self.spark.source(
            1, channel=self.into, streamId=str(STREAM), startingOffsets="earliest",
            subscription=f"{name}-{STREAM}", minPartitions="4", retry="60s",
        )

    def begin(self, driver: Driver) -> None:
        """Starts both queries, or goes on with them after a death."""
        driver.request(
            "collect", query="files", source=self.source("files"), work_s=WORK_S,
            folder=str(self.folder / "out"), checkpoint=str(self.folder / "checkpoint-files"),
        )
        driver.request(
            "copy", query="copy", source=self.source("copy"), work_s=WORK_S,
            sink={"channel": self.out, "streamId": str(STREAM), "timeout": "60s"},
            checkpoint=str(self.folder / "checkpoint-copy"),
        )

    # ---- what arrives ----------------------------------------------------------------------------

    def hear(self) -> dict[str, Any]:
        """What the reader says next; messages of parts are kept."""
        line = self.reader.next(PATIENCE_S)
        if line["event"] == "part":
            self.received += line["values"]
        self.partial = line.get("partial", self.partial)
        return line

    def until_open(self) -> None:
        """A task of the second query is in the middle of its part at this very moment."""
        while True:
            line = self.hear()
            if (
                line["event"] == "open" and line["parts"]
                and time.time_ns() - line["at_ns"] < FRESH_NS
            ):
                return

    def stays_open(self) -> bool:
        """Whether a part that is open now is so for a while; it is not if all ended."""
        end_ns = time.time_ns() + STILL_NS
        while True:
            line = self.hear()
            if line["event"] == "open" and not line["parts"]:
                return False
            if line["event"] == "open" and line["at_ns"] > end_ns:
                return True

    def files(self) -> list[int]:
        found = [json.loads(p.read_text()) for p in (self.folder / "out").glob("*.json")]
        return sorted(number for numbers in found for number in numbers)

    def take(self, driver: Driver, count: int) -> None:
        """Waits until the first ``count`` messages are in both sinks."""
        while len(self.files()) < count:
            driver.wait("batch", PATIENCE_S)
        wanted = set(range(count)).difference(self.received)
        while wanted:
            known = len(self.received)
            self.hear()
            wanted.difference_update(self.received[known:])

    def survived(self, driver: Driver) -> None:
        """What was published until now, and a while longer, is in both sinks; nothing is there
        twice, and in the files nothing is left out."""
        self.take(driver, self.publisher.newest("sent", PATIENCE_S)["number"])
        found = self.files()
        assert found == list(range(len(found)))
        assert len(self.received) == len(set(self.received))
        print(f"{len(found)} messages; {self.repeated()} rows came again into the journal")

    def left_parts(self, before: int) -> bool:
        """The dead were in the middle of their parts."""
        patience = Patience(NOTIFIED_S)
        while self.partial <= before and not patience.is_over:
            self.hear()
        return self.partial > before

    def repeated(self) -> int:
        """Rows that came again into a sink that is not idempotent."""
        stored = set(self.files())      # a batch is in the journal first
        lines = (self.folder / "out" / "journal").read_text().splitlines()
        counts = Counter(number for line in lines for number in json.loads(line))
        assert stored <= set(counts)
        return sum(counts.values()) - len(counts)


@pytest.fixture(scope="module")
def flow(
    spark: SparkCluster, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flow]:
    """Both queries have had a batch or two."""
    made = Flow(spark, tmp_path_factory.mktemp("kill"))
    with made.running():
        made.begin(drivers.current)
        batches = 0
        while batches < 2:
            batches += drivers.current.wait("batch", PATIENCE_S)["rows"] > 0
        while not made.received:
            made.hear()
        yield made
        drivers.current.request("stop_all")


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def strike(flow: Flow, pids: list[int]) -> None:
    """Kills processes that were looked up before, while some part is open."""
    assert pids
    flow.until_open()
    send(pids, signal.SIGKILL)


def strike_in_part(flow: Flow, victims: Callable[[], list[int]]) -> None:
    """Kills processes in the middle of a part.  A part may end between the look and the death, so
    they are stopped before, and go on if then all parts end."""
    patience = Patience(PATIENCE_S)
    while not patience.is_over:
        pids = victims()
        assert pids
        flow.until_open()
        send(pids, signal.SIGSTOP)
        in_part = False
        try:
            in_part = flow.stays_open()
        finally:
            send(pids, signal.SIGKILL if in_part else signal.SIGCONT)
        if in_part:
            return
    raise AssertionError("all parts end although those that are to die are stopped")


def die_in_parts(flow: Flow, driver: Driver, victims: Callable[[], list[int]]) -> None:
    """They die, again if what was open was not theirs."""
    before = flow.partial
    for _ in range(DEATHS):
        strike_in_part(flow, victims)
        flow.survived(driver)
        if flow.left_parts(before):
            return
    raise AssertionError(f"{DEATHS} deaths, and none in the middle of a part")


def test_an_executor_dies(spark: SparkCluster, flow: Flow, driver: Driver) -> None:
    die_in_parts(flow, driver, lambda: spark.executors(driver.application)[1])


def test_the_python_workers_die(spark: SparkCluster, flow: Flow, driver: Driver) -> None:
    die_in_parts(flow, driver, lambda: [
        worker
        for executors in spark.executors(driver.application).values()
        for executor in executors
        for worker in spark.python_workers(executor)
    ])


def test_the_daemons_client_dies(flow: Flow, driver: Driver) -> None:
    """The process beside the driver that holds a query's subscription: the query ends with an
    error, and goes on when it is started again."""
    runners = source_runners(driver)
    assert len(runners) == 2
    strike(flow, runners)
    for query in ("files", "copy"):
        assert driver.request("ended", query=query)["error"]
    flow.begin(driver)
    flow.survived(driver)


def source_runners(driver: Driver) -> list[int]:
    """Processes of the driver's queries that request offsets."""
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


def test_a_daemon_dies_and_a_new_one_goes_on(
    spark: SparkCluster, flow: Flow, driver: Driver
) -> None:
    """The one that holds the stream: it adopts what the old daemon had."""
    flow.until_open()
    spark.hosts[1].kill()
    spark.restart_daemon(1)
    flow.survived(driver)


def test_the_driver_dies_and_a_new_one_goes_on_from_the_checkpoint(
    flow: Flow, drivers: Drivers
) -> None:
    assert drivers.current
    flow.until_open()
    drivers.kill()
    flow.begin(drivers.current)
    flow.survived(drivers.current)


def test_in_the_end_all_that_was_published_is_there_once(flow: Flow, driver: Driver) -> None:
    flow.publisher.finish()
    count = flow.publisher.wait("done", PATIENCE_S)["count"]
    flow.take(driver, count)
    driver.request("stop_all")
    flow.reader.finish()
    counted = flow.reader.wait("counted")
    assert flow.files() == list(range(count))
    assert sorted(flow.received) == list(range(count))
    assert counted["messages"] == count
    assert counted["headless"] == counted["malformed"] == 0
    print(
        f"{count} messages; repeated: {flow.repeated()} rows in the journal; "
        f"{counted['repeated_messages']} whole and {counted['partial_messages']} partial in the "
        "stream, dropped by its reader"
    )


def test_the_harness_notices_what_is_missing(tmp_path: Path) -> None:
    """The check of the tests above can fail."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "0.json").write_text(json.dumps([0, 1]))
    (out / "journal").write_text("[0, 1]\n[1]\n")
    made = Flow.__new__(Flow)
    made.folder = tmp_path
    assert made.files() == [0, 1]
    assert made.repeated() == 1
    (out / "1.json").write_text(json.dumps([2]))
    with pytest.raises(AssertionError):
        made.repeated()
