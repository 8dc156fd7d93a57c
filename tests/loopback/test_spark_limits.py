# SPDX-License-Identifier: Apache-2.0
"""The limits of a batch, and the cost of a query that has nothing to read: a real daemon, without
Spark."""

from __future__ import annotations

import itertools
import json
import time
import zlib
from typing import Any
from uuid import UUID

import psutil
import pytest
from pyspark.sql.types import StructType
from support.hosts import PenstockHost

import penstock
from loopback import spark_group
from loopback.spark_group import CHANNEL, KEY, STREAM, Key, options, plain
from loopback.streams import eventually
from loopback.test_scrape_cost import REFERENCE_MS, cpu_ms, reference_ms
from penstock.client import GroupControl
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _planning
from penstock.spark_bridge._source import DefaultSource
from penstock.spark_bridge.markers import RESERVED_VALUE, Content, Kind, Marker, Part, encode

LOOKS, ROUNDS = 200, 4


control = spark_group.control
sent = spark_group.sent


def test_a_batch_waits_for_as_many_messages_as_it_should_have(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    def taken(**more: str) -> bool:
        planning = _planning.Planning(options(host, **more))
        try:
            start = planning.initial()
            return planning.latest(start, None, 0) is not start
        finally:
            planning.stop()

    assert taken(minOffsetsPerTrigger="100")
    assert not taken(minOffsetsPerTrigger="101")
    assert taken(minOffsetsPerTrigger="101", maxTriggerDelay="1ms")


def test_a_batch_as_large_as_its_bytes_may_be_waits_for_no_more_messages(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """Else each batch would wait for maxTriggerDelay: it can never have as many messages."""
    for max_bytes, is_taken in ((sent, True), (sent + 64, False)):
        planning = _planning.Planning(options(host, minOffsetsPerTrigger="101"))
        try:
            start = planning.initial()
            assert (planning.latest(start, max_bytes, 0) is not start) is is_taken
        finally:
            planning.stop()


def test_a_part_that_is_left_out_counts_once_however_often_its_batch_is_planned(
    host: PenstockHost, control: GroupControl
) -> None:
    """A part without a COMMIT, and a whole one of one message, which is not enough for a batch."""
    parts = [
        Part(query=UUID(int=1), run=UUID(int=2), epoch=epoch, partition=0, attempt=0, key=b"",
             job=False) for epoch in (1, 2)
    ]
    whole = Content(messages=1, bytes=1, crc=zlib.crc32(b"x"), rows=1, digest=1)
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(CHANNEL, STREAM)
        for part in parts:
            publication.send(
                encode(Marker(kind=Kind.BEGIN, part=part)), reserved_value=RESERVED_VALUE
            )
            publication.send(b"x")
        publication.send(
            encode(Marker(kind=Kind.COMMIT, part=parts[1], content=whole)),
            reserved_value=RESERVED_VALUE,
        )
        end = publication.position
        eventually(
            lambda: any(x.end_position == end for x in control.state(**KEY).logs), "it is there"
        )
        planning = _planning.Planning(options(host, minOffsetsPerTrigger="2"))
        try:
            start = planning.initial()
            for _ in range(3):
                assert planning.latest(start, None, 0) is start
            assert planning.report()["partsLeftOut"] == 0
            assert planning.latest(start, 1, 0) is not start        # a limit: it waits no more
            assert planning.report()["partsLeftOut"] == 1
        finally:
            planning.stop()


def test_available_now_reads_a_full_window_in_halves_and_no_further(host: PenstockHost) -> None:
    """Each batch opens the window again, and the publisher fills it: that is for the next run."""
    key: Key = {"name": "halves", "channel": "aeron:ipc?term-length=64k", "stream_id": 1004}
    names = {"channel": key["channel"], "streamId": "1004", "subscription": "halves"}
    with (
        GroupControl(directory=str(host.directory)) as control,
        penstock.connect(host.directory) as client,
    ):
        control.open(**key, starting="earliest", expiry_ns=600 * 10**9)
        publication = client.add_publication(key["channel"], key["stream_id"])
        eventually(lambda: control.state(**key).logs, "the group has the log")
        window = control.state(**key).logs[0].window_bytes

        def is_full() -> bool:
            """A stream that was just connected may have no room yet."""
            while publication.offer(bytes(992)) > 0:    # a KiB with its header
                pass
            return publication.position >= window

        eventually(is_full, "the window is full")
        there = publication.position
        eventually(lambda: control.state(**key).logs[0].end_position == there, "all is there")
        half = window // 2
        planning = _planning.Planning(options(host, **names))
        planning.prepare()
        ends = [0]
        try:
            at = planning.initial()
            while (after := planning.latest(at, None, 0)) is not at:
                ends += after.positions.values()
                at = after
                if len(ends) > 2:       # the first batch is acknowledged: there is room
                    publication.send(bytes(992), timeout_s=30.0)
        finally:
            planning.stop()
            control.close_group(**key)
        assert publication.position > there
    assert ends[-1] == there
    steps = [last - first for first, last in itertools.pairwise(ends)]
    assert len(steps) > 1
    assert max(steps) <= half


def test_a_batch_does_not_end_before_what_is_retained(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    [log] = control.state(**KEY).logs
    control.acknowledge(
        **KEY, positions={(log.session_id, log.initial_term_id): 128}
    )
    ends = json.dumps({f"{CHANNEL}|{STREAM}|{log.session_id}|{log.initial_term_id}": 64})
    planning = _planning.Planning(options(host, streaming=False, endingOffsets=ends))
    try:
        with pytest.raises(InvalidArgument, match=r"64 lies before the first retained.* 128"):
            planning.batch()
    finally:
        planning.stop()


@pytest.mark.parametrize("ending", [
    {"endingOffsets": "latest"}, {"endingTimestamp": "4000000000000"},
], ids=lambda ending: next(iter(ending)))
def test_a_batch_read_may_have_an_end_though_the_user_gives_no_schema(
    host: PenstockHost, control: GroupControl, sent: int, ending: dict[str, str]
) -> None:
    """Spark then asks for the schema, and does not state whether it is for a stream."""
    source = DefaultSource(plain(host) | ending)
    assert source.schema().startswith("value binary, ")
    parts: list[Any] = list(source.reader(StructType()).partitions())
    assert sum(each.length for part in parts for each in part.table) == sent


def test_an_idle_query_looks_twice_a_second_although_spark_asks_every_10_ms(
    host: PenstockHost, sent: int
) -> None:
    assert sent > 0
    planning = _planning.Planning(options(host))
    looks = 0
    try:
        offset = planning.latest(planning.initial(), None, 0)
        began = time.monotonic()
        while time.monotonic() - began < 5.5:       # its pauses grow
            assert planning.latest(offset, None, 0) is offset
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 2.0:
            assert planning.latest(offset, None, 0) is offset
            planning.report()
            looks += 1
    finally:
        planning.stop()
    assert looks <= 1 + 2 * passed, "a slow machine looks less often, never more often"


def test_a_look_of_an_idle_query_takes_a_millisecond_of_cpu_at_most(
    host: PenstockHost, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the planner and the daemon together; 0.4 ms were measured. Between two looks of an idle
    query the caches become cold: then a look takes three times as long, and two looks a second
    stay below 1 % of a core together with the daemon's own work."""
    assert sent > 0
    monkeypatch.setattr(_planning.Planning, "_rest", lambda _planning: None)
    daemon = psutil.Process(host.pid)
    planning = _planning.Planning(options(host))
    rounds_ms = []
    try:
        offset = planning.latest(planning.initial(), None, 0)
        for _ in range(ROUNDS):
            before_ms = time.thread_time() * 1e3 + cpu_ms(daemon)
            for _ in range(LOOKS):
                assert planning.latest(offset, None, 0) is offset
                planning.report()
            rounds_ms.append(time.thread_time() * 1e3 + cpu_ms(daemon) - before_ms)
    finally:
        planning.stop()
    slower = max(1.0, min(reference_ms() for _ in range(ROUNDS)) / REFERENCE_MS)
    assert min(rounds_ms) / LOOKS / slower <= 1.0
