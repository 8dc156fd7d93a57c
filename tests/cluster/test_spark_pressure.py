# SPDX-License-Identifier: Apache-2.0
"""A publisher that is faster than the query: it is slowed, and nobody's memory grows.

Two minutes here; ``PENSTOCK_SOAK_S`` makes it longer (``make soak``).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from cluster.spark_cluster import Driver, SparkCluster
from cluster.test_spark_source import numbers_in, publish

SECONDS = float(os.environ.get("PENSTOCK_SOAK_S", "120"))
pytestmark = [
    pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(600 + int(2 * SECONDS)),
]
STREAM = 900
SAMPLE_S = 2.0
MIB = 1 << 20


def resident(pid: int) -> int:
    """Bytes in memory of a process; 0 when it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def stored(folder: Path) -> int:
    """Bytes of shared memory below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def sample(spark: SparkCluster, driver: Driver) -> dict[str, int]:
    workers = [
        worker
        for executors in spark.executors(driver.application).values()
        for executor in executors
        for worker in spark.python_workers(executor)
    ]
    return {
        "daemons": sum(resident(host.pid) for host in spark.hosts),
        "logs": sum(stored(host.directory) for host in spark.hosts),
        "largest Python worker": max(map(resident, workers), default=0),
    }


def test_a_fast_publisher_is_slowed_and_memory_is_flat(
    spark: SparkCluster, driver: Driver, tmp_path: Path
) -> None:
    channel = f"aeron:udp?endpoint={spark.lan.address(1)}:24041|term-length=1m"
    source = spark.source(
        1, channel=channel, streamId=str(STREAM), subscription="pressure",
        startingOffsets="earliest", minPartitions="2",
    )
    out = tmp_path / "out"
    driver.request(
        "collect", query="q", source=source, folder=str(out), work_s=0.8,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    samples: list[dict[str, int]] = []
    rows = 0
    with publish(
        spark, channel, STREAM, "--count=1000000000", "--size=1024", f"--seconds={SECONDS}"
    ) as publisher:
        begun = last = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            rows += driver.wait("batch")["rows"]
            if time.monotonic() - last > SAMPLE_S:
                last = time.monotonic()
                samples.append(sample(spark, driver))
        done = publisher.wait("done", 180.0)
        while rows < done["count"]:
            rows += driver.wait("batch")["rows"]
    driver.request("stop", query="q")
    assert sorted(numbers_in(out)) == list(range(done["count"]))

    held = done["causes"]["receiver_window"] / 1e9 / done["seconds"]
    print(f"{done['count'] / done['seconds']:.0f} messages a second, held {held:.0%} of the time")
    print(f"by {done['culprits']}, {done['causes']}")
    assert held > 0.5
    settled = samples[len(samples) // 5 :]      # workers started, logs reserved
    first, second = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    for name in samples[0]:
        before, after = (max(one[name] for one in part) for part in (first, second))
        print(f"{name}: {before / MIB:.1f} MiB, then {after / MIB:.1f} MiB")
        assert after <= 1.1 * before + 8 * MIB
