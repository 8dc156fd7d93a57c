# SPDX-License-Identifier: Apache-2.0
"""The source's own processes and a real daemon, without Spark: what a batch read leaves as it was,
what a reader must not believe, and the end of the process that plans."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl
from penstock.spark_bridge import _source
from penstock.spark_bridge._fetch import RangeLost, sources
from penstock.spark_bridge._offsets import Offset
from penstock.spark_bridge._options import SourceOptions, read_options

STREAM = 1001
CHANNEL = "aeron:ipc"
MINUTE_NS = 60 * 10**9
KEY = {"name": "planned", "channel": CHANNEL, "stream_id": STREAM}
RUNNER = """
import json, sys, time
from pyspark.sql.types import StructType
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._source import StreamReader

class Told(StreamReader):
    def stop(self):
        super().stop()
        print(json.dumps({"event": "stopped"}), flush=True)

reader = Told(read_options(json.loads(sys.argv[1])), StructType())
try:                                    # as Spark's runner does
    offset = reader.initialOffset()
    print(json.dumps({"event": "runs"}), flush=True)
    while True:
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        time.sleep(0.01)
finally:
    reader.stop()
"""


@pytest.fixture
def control(host: PenstockHost) -> Iterator[GroupControl]:
    with GroupControl(directory=str(host.directory)) as made:
        made.open(**KEY, starting="earliest", expiry_ns=10 * MINUTE_NS)  # type: ignore[arg-type]
        yield made
        for group in made.groups():
            made.close_group(
                name=group.name, channel=group.channel, stream_id=group.stream_id
            )


@pytest.fixture
def sent(host: PenstockHost, control: GroupControl) -> Iterator[int]:
    """A hundred messages that have arrived; the position behind them."""
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(CHANNEL, STREAM)
        for number in range(100):
            assert publication.send(b"message %d" % number) > 0
        end = publication.position
        eventually(
            lambda: any(x.end_position == end for x in control.state(**KEY).logs), "it is there"
        )
        yield end


def plain(host: PenstockHost) -> dict[str, str]:
    return {
        "channel": CHANNEL, "streamId": str(STREAM), "subscription": "planned",
        "daemonDir": str(host.directory),
    }


def options(host: PenstockHost, *, streaming: bool = True, **more: str) -> SourceOptions:
    return read_options(plain(host) | more, streaming=streaming)


def planned(reading: SourceOptions) -> tuple[Offset, list[Any]]:
    """The first offset, and the first batch."""
    planning = _source._Planning(reading)
    try:
        start = planning.initial()
        end = planning.latest(start, None, 0)
        return end, planning.partitions(start, end)
    finally:
        planning.stop()


def test_a_batch_read_leaves_a_querys_group_as_it_was(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    [log] = control.state(**KEY).logs
    key = f"{CHANNEL}|{STREAM}|{log.session_id}|{log.initial_term_id}"
    middle = sent // 2 // 64 * 64
    reading = options(host, streaming=False, startingOffsets=json.dumps({key: middle}))
    planning = _source._Planning(reading)
    try:
        [partition] = planning.batch()
    finally:
        planning.stop()
    [found] = partition.table                           # type: ignore[attr-defined]
    assert (found.start, found.end) == (middle, sent)
    state = control.state(**KEY)
    assert state.logs[0].committed == 0                 # acknowledges nothing ...
    assert state.expires_ns > 9 * MINUTE_NS             # ... and the query may be away as long


def test_what_was_read_from_a_log_that_nobody_holds_any_more_is_not_believed(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    reading = options(host)
    _end, [partition] = planned(reading)
    [found] = partition.table
    source = next(sources(reading, found))
    assert source.frames(0).end == sent
    source.finish()
    control.close_group(**KEY)
    with pytest.raises(RangeLost, match="while it was read"):
        source.finish()


def test_a_first_batch_is_not_empty_because_its_group_expired(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    end, [partition] = planned(options(host))
    assert partition.table[0].end == sent
    control.close_group(**KEY)
    for policy, what in (("true", "raised"), ("false", "skipped")):
        planning = _source._Planning(options(host, failOnDataLoss=policy))
        try:
            again = planning.initial()      # Spark asks anew: batch 0 was not committed
            if what == "raised":
                with pytest.raises(_source.DataLoss, match="before the first batch"):
                    planning.partitions(again, end)
            else:
                assert planning.partitions(again, end) == [_source.Partition(0, (), ())]
        finally:
            planning.stop()


def test_sigterm_lets_a_query_stop_in_order(
    host: PenstockHost, control: GroupControl, tmp_path: Path
) -> None:
    """``query.stop()`` sends it to the process that plans."""
    with Peer([sys.executable, "-c", RUNNER, json.dumps(plain(host))]) as runner:
        runner.wait("runs")
        runner.signal(signal.SIGTERM)
        runner.wait("stopped")
        assert runner.finish() == 0
    assert [group.name for group in control.groups()] == ["planned"]    # for a restart
