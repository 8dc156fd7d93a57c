# SPDX-License-Identifier: Apache-2.0
"""Batch reads of a real daemon's log, without Spark: nothing is left out, however often it is read
and whatever the clock did."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypedDict
from uuid import UUID

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from support.hosts import PenstockHost

import penstock
from loopback.conftest import NewHost
from loopback.streams import eventually
from penstock import Publication
from penstock.client import GroupControl
from penstock.spark_bridge import _commits, _times
from penstock.spark_bridge._options import SourceOptions, read_options
from penstock.spark_bridge._planning import Partition, Planning
from penstock.spark_bridge._reader import read_ranges
from penstock.spark_bridge._subscription import Subscription
from penstock.spark_bridge.markers import RESERVED_VALUE, Content, Kind, Marker, Part, encode

pytestmark = pytest.mark.timeout(180)

STREAM = 1013
CHANNEL = "aeron:ipc?term-length=1m"
SCHEMA = StructType([StructField("value", BinaryType())])
EPOCHS = 200


class Key(TypedDict):
    """What a group is known by."""

    name: str
    channel: str
    stream_id: int


KEY: Key = {"name": "batches", "channel": CHANNEL, "stream_id": STREAM}


@pytest.fixture
def daemon(new_host: NewHost) -> PenstockHost:
    made = new_host()
    with GroupControl(directory=str(made.directory)) as control:
        control.open(**KEY, starting="earliest", expiry_ns=600 * 10**9)
    return made


def options(daemon: PenstockHost, **more: str) -> SourceOptions:
    return read_options({
        "channel": CHANNEL, "streamId": str(STREAM), "subscription": "batches",
        "daemonDir": str(daemon.directory), **more,
    }, streaming=False)


def publish(daemon: PenstockHost, send: Callable[[Publication], None]) -> int:
    """Publish, and wait until all has arrived; return the position behind it."""
    with (
        penstock.connect(daemon.directory) as client,
        GroupControl(directory=str(daemon.directory)) as control,
    ):
        publication = client.add_exclusive_publication(CHANNEL, STREAM)
        assert publication.wait_connected(30.0)
        send(publication)
        end = publication.position
        eventually(
            lambda: any(log.end_position == end for log in control.state(**KEY).logs), "there"
        )
        return end


def read(reading: SourceOptions) -> list[bytes]:
    """The rows, as the tasks of a batch read return them."""
    planning = Planning(reading)
    try:
        tasks = planning.batch()
    finally:
        planning.stop()
    rows: list[bytes] = []
    for task in tasks:
        assert isinstance(task, Partition)
        for batch in read_ranges(reading, SCHEMA, [task.table[n] for n in task.own]):
            rows += batch.column("value").to_pylist()
    return rows


def test_all_committed_rows_are_read_however_many_parts_there_are(
    daemon: PenstockHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch follows that could read the rest; and a daemon's death changes nothing."""
    monkeypatch.setattr(_commits, "_MOST_MARKS", 40)

    def send(publication: Publication) -> None:
        def mark(kind: Kind, epoch: int, attempt: int, **fields: int) -> None:
            part = Part(
                query=UUID(int=1), run=UUID(int=2), epoch=epoch, partition=0, attempt=attempt
            )
            publication.send(
                encode(Marker(kind=kind, part=part, content=Content(**fields))),
                reserved_value=RESERVED_VALUE,
            )

        for epoch in range(EPOCHS):
            row = b"%d" % epoch
            mark(Kind.BEGIN, epoch, 0)
            publication.send(row)               # this attempt is never committed
            mark(Kind.BEGIN, epoch, 1)
            publication.send(row)
            mark(Kind.COMMIT, epoch, 1, messages=1, bytes=len(row), crc=zlib.crc32(row))

    publish(daemon, send)
    for reads in ("true", None):
        more = {} if reads is None else {"readCommitted": reads}
        reading = options(daemon, minPartitions="3", **more)
        assert read(reading) == [b"%d" % epoch for epoch in range(EPOCHS)]
        daemon.kill()
        daemon.start()
        assert read(reading) == [b"%d" % epoch for epoch in range(EPOCHS)]


@pytest.mark.parametrize("partitions", ["1", "7", "1000"])
def test_messages_of_any_length_are_read_in_order_by_any_number_of_tasks(
    daemon: PenstockHost, partitions: str
) -> None:
    lengths = [0, 1, 131_000, 0, 31, 32, 33, 100_000, *[0] * 500, 131_072, *range(500)]
    messages = [bytes([n % 251]) * length for n, length in enumerate(lengths)]

    def send(publication: Publication) -> None:
        assert publication.max_message_length == max(lengths)
        for message in messages:
            publication.send(message, 30.0)

    publish(daemon, send)
    assert read(options(daemon, minPartitions=partitions)) == messages
    limited = options(daemon, minPartitions=partitions, maxRecordsPerPartition="3")
    assert read(limited) == messages


def test_a_start_by_time_leaves_nothing_out_where_the_clock_was_set_back(
    daemon: PenstockHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages that arrived at the time or later are read; messages before them may be, too."""
    def send(publication: Publication) -> None:
        for number in range(100):
            publication.send(b"%d" % number)

    sent = publish(daemon, send)
    assert sent == 6400
    arrivals = [(640, 5), (1280, 6), (3200, 3), (5120, 4), (sent, 7)]       # position, second
    times = _times.encode([(at, second * 10**9) for at, second in arrivals])
    monkeypatch.setattr(Subscription, "times", lambda *_, **__: times)
    for second, first in ((5, 0), (6, 10), (4, 0), (7, 80), (8, 100)):
        rows = read(options(daemon, startingTimestamp=str(second * 1000)))
        assert rows == [b"%d" % number for number in range(first, 100)]
