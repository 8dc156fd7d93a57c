# SPDX-License-Identifier: Apache-2.0
"""A sink's daemon is away in the middle of a part, for longer than the reader's daemon waits: the
session returns with another log, and the query reads the part from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from support.hosts import PenstockHost

import penstock
from loopback.conftest import NewHost
from loopback.streams import eventually
from penstock import Client
from penstock.client import GroupControl
from penstock.spark_bridge import _sink_options
from penstock.spark_bridge._offsets import Offset
from penstock.spark_bridge._options import SourceOptions, read_options
from penstock.spark_bridge._outlet import Pipe
from penstock.spark_bridge._planning import Partition, Planning
from penstock.spark_bridge._reader import read_ranges
from penstock.spark_bridge._sink import _Lane
from penstock.spark_bridge.markers import Part

STREAM = 7
ROWS = 3000
SCHEMA = StructType([StructField("value", BinaryType())])


class Query:
    """What a query does between two calls of Spark."""

    def __init__(self, reading: SourceOptions) -> None:
        self._reading = reading
        self.planning = Planning(reading)
        self.offset: Offset = self.planning.initial()
        self.rows: list[bytes] = []

    def batch(self) -> bool:
        after = self.planning.latest(self.offset, None, 0)
        if after is self.offset:
            return False
        for task in self.planning.partitions(self.offset, after):
            assert isinstance(task, Partition)
            for batch in read_ranges(self._reading, SCHEMA, task.table):
                self.rows += batch.column("value").to_pylist()
        self.offset = after
        return True


@pytest.fixture
def receiver(new_host: NewHost, tmp_path: Path) -> PenstockHost:
    config = tmp_path / "config.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "1s"\n')
    return new_host("--config", str(config))


@pytest.fixture
def query(receiver: PenstockHost, port: Callable[[], int]) -> Iterator[Query]:
    made = Query(read_options({
        "channel": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m", "subscription": "q",
        "streamId": str(STREAM), "daemonDir": str(receiver.directory), "readCommitted": "true",
        "startingOffsets": "earliest", "minPartitions": "3",
    }))
    yield made
    made.planning.stop()


def pipe_of(client: Client, channel: str) -> Pipe:
    publication = client.add_exclusive_publication(channel, STREAM)
    assert publication.wait_connected(60.0)
    return Pipe(
        client=client, publication=publication, timeout_s=60.0, session_id=publication.session_id
    )


def test_a_part_from_before_and_after_a_long_absence_is_read_whole(
    new_host: NewHost, receiver: PenstockHost, query: Query
) -> None:
    sender = new_host()
    channel = query.planning._options.streams[0].channel
    options = _sink_options.read_options({"channel": channel, "streamId": str(STREAM)})
    values = [b"row %05d" % number for number in range(ROWS)]
    with (
        penstock.connect(sender.directory) as client,
        GroupControl(directory=str(receiver.directory)) as control,
    ):
        pipe = pipe_of(client, channel)

        def part(epoch: int) -> _Lane:
            return _Lane(pipe, Part(
                query=UUID(int=1), run=UUID(int=2), epoch=epoch, partition=0, attempt=0
            ), options)

        def send(lane: _Lane, rows: list[bytes]) -> None:
            lane.rows(pa.array(rows, pa.binary()))
            lane.drain()

        lane = part(0)
        send(lane, values[:1000])
        sender.kill()
        eventually(lambda: control.groups()[0].logs[0].ended, "the session does not end")
        sender.start()
        send(lane, values[1000:2000])
        lane.commit()
        lane = part(1)
        send(lane, values[2000:])
        lane.commit()
        eventually(lambda: len(control.groups()[0].logs) == 2, "the session does not return")
        eventually(lambda: not query.batch() and len(query.rows) >= ROWS, "the query stands still")
    assert query.rows == values
