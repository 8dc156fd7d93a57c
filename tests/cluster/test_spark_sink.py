# SPDX-License-Identifier: Apache-2.0
"""From tasks on two hosts into one stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from support.java import has_archive
from support.processes import Peer, PeerError

from cluster.spark_cluster import Driver, SparkCluster

pytestmark = [pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS, PARTITIONS = 20_000, 4
_STREAMS = count(300)


@pytest.fixture
def stream() -> int:
    """One that no other test has."""
    return next(_STREAMS)


@pytest.fixture
def channel(spark: SparkCluster) -> str:
    return f"aeron:udp?endpoint={spark.lan.address(0)}:24001|term-length=1m"


def receiver(spark: SparkCluster, channel: str, stream: int, *args: str) -> Peer:
    """On host 0."""
    host = spark.hosts[0]
    where = [f"--dir={host.directory}", f"--channel={channel}", f"--stream={stream}"]
    return host.run("-m", "cluster.spark_receiver", *where, *args)


def parts(reader: Peer, wanted: int) -> Iterator[dict[str, object]]:
    for _ in range(wanted):
        yield reader.wait("part", 180.0)


def test_executors_have_their_classes_from_an_archive(
    spark: SparkCluster, driver: Driver
) -> None:
    executors = spark.executors(driver.application)
    assert all(executors.values())
    assert all(has_archive(pid) for pids in executors.values() for pid in pids)


def test_a_batch_arrives_whole_from_both_hosts(
    spark: SparkCluster, driver: Driver, channel: str, stream: int
) -> None:
    options = {"channel": channel, "streamId": str(stream)}
    with receiver(spark, channel, stream, "--values") as reader:
        reader.wait("listening")
        driver.request("write", rows=ROWS, partitions=PARTITIONS, options=options)
        found = list(parts(reader, PARTITIONS))
        reader.finish()
        counted = reader.wait("counted")
    assert sorted(int(str(part["partition"])) for part in found) == list(range(PARTITIONS))
    values = [int(v) for part in found for v in part["values"]]  # type: ignore[attr-defined]
    assert sorted(values) == list(range(ROWS))
    assert (counted["parts"], counted["repeats"], counted["partial"]) == (PARTITIONS, 0, 0)


def test_publish_says_what_each_task_sent_and_where(
    spark: SparkCluster, driver: Driver, channel: str, stream: int
) -> None:
    with receiver(spark, channel, stream) as reader:
        reader.wait("listening")
        tasks = driver.request(
            "publish", rows=ROWS, partitions=PARTITIONS,
            options={"channel": channel, "stream_id": stream, "timeout": "20s"},
        )["tasks"]
        received = sum(int(str(part["messages"])) for part in parts(reader, PARTITIONS))
    assert received == ROWS == sum(task["messages"] for task in tasks)
    assert {task["host"] for task in tasks} == {spark.lan.address(1), spark.lan.address(2)}
    assert sum(task["bytes"] for task in tasks) == sum(len(str(n)) for n in range(ROWS))


def test_a_sink_without_a_receiver_fails_with_the_reason(
    driver: Driver, channel: str, stream: int
) -> None:
    options = {"channel": channel, "streamId": str(stream), "timeout": "500ms"}
    with pytest.raises(PeerError, match=r"was held for 0\.5 s: NOT_CONNECTED, nobody receives it"):
        driver.request("write", rows=10, partitions=1, options=options)
