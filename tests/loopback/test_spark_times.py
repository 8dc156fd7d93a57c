# SPDX-License-Identifier: Apache-2.0
"""Times that the daemons write into messages, as a query's rows have them: without Spark, with real
daemons on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._planning import Partition, Planning
from penstock.spark_bridge._reader import read_ranges

STREAM = 7
SCHEMA = StructType([
    StructField("value", BinaryType()), StructField("timestamp", TimestampType()),
    StructField("reserved_value", LongType()),
])
#: A daemon records the time at which its cycle began.
SLACK_NS = 50_000_000
MESSAGES = [
    *(b"%08d" % number + bytes(8) + b"x" * (number % 50) for number in range(3000)),
    *(b"%08d" % number + bytes(8) + b"x" * 20_000 for number in range(3000, 3010)),   # fragments
    b"short",
]


@pytest.mark.parametrize("where", ["8", "reserved"])
@pytest.mark.parametrize("name", [
    "media-rcv-ts-offset", "channel-rcv-ts-offset", "channel-snd-ts-offset",
])
def test_a_row_has_exactly_the_time_that_a_daemon_wrote_into_its_message(
    host: PenstockHost, remote: penstock.Client, port: Callable[[], int], name: str, where: str
) -> None:
    plain = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m"
    channel = f"{plain}|{name}={where}"
    reading = read_options({
        "channel": channel, "streamId": str(STREAM), "subscription": f"times-{name}-{where}",
        "daemonDir": str(host.directory), "startingOffsets": "earliest", "minPartitions": "2",
    })
    planning = Planning(reading)
    began_ns = time.time_ns()
    try:
        offset = planning.initial()
        with remote.add_exclusive_publication(
            channel if name == "channel-snd-ts-offset" else plain, STREAM
        ) as publication:
            assert publication.wait_connected(60.0)
            for message in MESSAGES:
                publication.send(message, 60.0)
            rows: list[dict[str, object]] = []

            def read() -> bool:
                nonlocal offset
                after = planning.latest(offset, None, 0)
                if after is not offset:
                    for task in planning.partitions(offset, after):
                        assert isinstance(task, Partition)
                        for batch in read_ranges(reading, SCHEMA, task.table):
                            found = batch.set_column(
                                1, "timestamp", batch.column("timestamp").cast(pa.int64())
                            )
                            rows.extend(found.to_pylist())
                    offset = after
                return len(rows) >= len(MESSAGES)

            eventually(read, "the query stands still")
    finally:
        planning.stop()
    ended_ns = time.time_ns()
    assert [(row["value"][:8], len(row["value"])) for row in rows] == [
        (message[:8], len(message)) for message in MESSAGES
    ]
    for row in rows:
        stamp_ns = (
            row["reserved_value"] if where == "reserved"
            else int.from_bytes(row["value"][8:16], "little")
        )
        if where == "8" and row["value"] == b"short":
            assert began_ns - SLACK_NS < row["timestamp"] * 1000 < ended_ns
        else:
            assert row["timestamp"] == stamp_ns // 1000
            assert began_ns - SLACK_NS < stamp_ns < ended_ns
