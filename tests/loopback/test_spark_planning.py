# SPDX-License-Identifier: Apache-2.0
"""The source's own processes and a real daemon, without Spark: what a batch read leaves as it was,
what a reader must not believe, and the end of the process that plans."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from loopback import spark_group
from loopback.spark_group import CHANNEL, KEY, MINUTE_NS, STREAM, options, plain
from loopback.streams import eventually
from penstock.client import GroupControl
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _planning, _times
from penstock.spark_bridge._fetch import RangeLost, sources
from penstock.spark_bridge._offsets import Offset
from penstock.spark_bridge._options import Daemon, SourceOptions, read_options
from penstock.spark_bridge._subscription import Subscription

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


control = spark_group.control
sent = spark_group.sent


def planned(reading: SourceOptions) -> tuple[Offset, list[Any]]:
    """The first offset, and the first batch."""
    planning = _planning.Planning(reading)
    try:
        start = planning.initial()
        end = planning.latest(start, None, 0)
        return end, planning.partitions(start, end)
    finally:
        planning.stop()


def test_a_batch_read_leaves_a_querys_group_as_it_was(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    key = key_of(control)
    middle = sent // 2 // 64 * 64
    reading = options(host, streaming=False, startingOffsets=json.dumps({key: middle}))
    planning = _planning.Planning(reading)
    try:
        [partition] = planning.batch()
    finally:
        planning.stop()
    assert isinstance(partition, _planning.Partition)
    [found] = partition.table
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
    session = (found.session.session_id, found.session.initial_term_id)
    control.acknowledge(**KEY, positions={session: 64})
    with pytest.raises(RangeLost, match="was released while this task read it"):
        source.finish()
    control.close_group(**KEY)
    with pytest.raises(RangeLost, match="while it was read"):
        source.finish()


def key_of(control: GroupControl) -> str:
    [log] = control.state(**KEY).logs
    return f"{CHANNEL}|{STREAM}|{log.session_id}|{log.initial_term_id}"


@pytest.mark.parametrize("streaming", [True, False])
def test_a_query_begins_between_messages_only(
    host: PenstockHost, control: GroupControl, sent: int, streaming: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def begin(**starting: int) -> Offset:
        reading = options(host, streaming=streaming, startingOffsets=json.dumps(starting))
        planning = _planning.Planning(reading)
        try:
            return planning.initial(acknowledge=streaming)
        finally:
            planning.stop()

    key = key_of(control)
    for position, what in (
        (32, "is not between two messages"), (sent - 32, "is not between two messages"),
        (sent + 64, f"exceeds the end of the log, {sent}"),
    ):
        with pytest.raises(InvalidArgument, match=f"option startingOffsets: .*{position} {what}"):
            begin(**{key: position})
        assert control.state(**KEY).logs[0].committed == 0     # and the group is as it was
    with pytest.raises(InvalidArgument, match="option startingOffsets has aeron:ipc stream 5, but"):
        begin(**{"aeron:ipc|5|6|7": 64})
    assert list(begin(**{key: 640}).positions.values()) == [640]
    assert control.state(**KEY).logs[0].committed == (640 if streaming else 0)
    caplog.clear()
    control.acknowledge(**KEY, positions={tuple(map(int, key.split("|")[2:])): 1280})
    assert list(begin(**{key: 640, f"{CHANNEL}|{STREAM}|1|2": 0}).positions.values()) == [1280]
    assert "640: begins at 1280" in caplog.text
    assert "no daemon has this session" in caplog.text


def test_both_limits_of_a_batch_hold(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """What a message limit leaves to others must not pass the limit of bytes."""
    planning = _planning.Planning(options(host))
    try:
        start = planning.initial()
        for most_bytes, most_messages, end in (
            (100, 10, 64), (640, 10, 640), (1000, 10, 640), (1000, 100, 960), (32, 5, 64),
        ):
            after = planning.latest(start, most_bytes, most_messages)
            assert list(after.positions.values()) == [end]
    finally:
        planning.stop()


def test_a_batch_is_split_alike_whenever_it_is_read(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """The sink tells repeats by their part: a driver that has more cores, or another option, must
    not split anew what the old daemon had planned."""
    split: list[list[Any]] = []
    for wanted in ("4", "2"):
        planning = _planning.Planning(options(host, minPartitions=wanted, maxBytesPerTrigger="4k"))
        try:
            if not split:
                start = planning.initial()
                end = Offset.from_plain(planning.latest(start, 4096, 0).to_plain())
            split.append(planning.partitions(start, end))
            if wanted == "2":
                further = planning.latest(end, 4096, 0)
        finally:
            planning.stop()
    assert split[0] == split[1]
    assert len(split[0]) == 4
    assert (end.tasks, further.tasks) == (4, 2)


def times_of(partitions: Sequence[Any]) -> list[tuple[int, int]]:
    """(position, microseconds) of each message, as a task would give them."""
    found = []
    for partition in partitions:
        for item in partition.table:
            known = _times.decode(item.times)
            found += [
                (at, next(us for to, us in zip(*known, strict=True) if to >= at))
                for at in range(item.start + 64, item.end + 1, 64)
            ]
    return found


def test_a_batch_has_the_same_times_whenever_it_is_planned(
    host: PenstockHost, control: GroupControl, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the stream went on, after the daemon's death, and by a driver that knows nothing but
    the offsets. A daemon that remembers the times less exactly by then has no influence."""
    started_ns = time.time_ns()
    planning = _planning.Planning(options(host))
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(CHANNEL, STREAM)
        try:
            start = planning.initial()
            end = Offset.from_plain(planning.latest(start, None, 0).to_plain())
            first = times_of(planning.partitions(start, end))
            coarse = _times.encode([(2**40, time.time_ns())])
            monkeypatch.setattr(Subscription, "times", lambda *_, **__: coarse)
            for number in range(2000):
                publication.send(b"message %d" % number)
            again = times_of(planning.partitions(start, end))
        finally:
            planning.stop()
        host.kill()
        host.start()
        planning = _planning.Planning(options(host))
        try:
            later = times_of(planning.partitions(start, end))
        finally:
            planning.stop()
    assert [at for at, _ in first] == list(range(64, sent + 1, 64))
    assert first == again == later
    assert all(us * 1000 < started_ns for _, us in first)


def test_rows_are_in_order_from_task_to_task(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """However many tasks there are, and however few messages each may have."""
    planning = _planning.Planning(options(host))
    try:
        start = planning.initial()
    finally:
        planning.stop()
    for wanted, most, tasks in (("3", None, 3), ("7", None, 7), ("1", "30", 4), ("4", "10", 12)):
        more = {} if most is None else {"maxRecordsPerPartition": most}
        planning = _planning.Planning(options(host, minPartitions=wanted, **more))
        try:
            end = planning.latest(start, None, 0)
            split = planning.partitions(start, end)
        finally:
            planning.stop()
        found: list[Any] = [item for part in split for item in part.table]
        assert [item.start for item in found] == [0, *(item.end for item in found[:-1])]
        assert found[-1].end == sent
        assert len(split) == tasks if most is None else len(split) >= tasks
        assert most is None or all(item.length // 64 <= int(most) for item in found)
        # Another driver's options do not split a planned batch anew.
        other = _planning.Planning(options(host, minPartitions="2", maxRecordsPerPartition="3"))
        try:
            assert other.partitions(start, Offset.from_plain(end.to_plain())) == split
        finally:
            other.stop()


def test_a_subscription_that_was_renamed_names_the_group_it_left(
    host: PenstockHost, control: GroupControl, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    planning = _planning.Planning(options(host))
    start = planning.initial()
    end = planning.latest(start, None, 0)
    planning.stop()
    renamed = _planning.Planning(options(host, subscription="renamed"))
    try:
        renamed.latest(end, None, 0)
    finally:
        renamed.stop()
    assert "made with subscription planned, whose group still exists" in caplog.text
    assert "penstock groups end planned" in caplog.text
    with host.command("groups", "end", "nobody", "--dir", str(host.directory)) as refused:
        assert refused.finish() != 0
    with host.command("groups", "end", "planned", "--dir", str(host.directory)) as ended:
        assert ended.finish() == 0
    assert [group.name for group in control.groups()] == ["renamed"]


def test_a_query_that_was_away_for_longer_than_its_group_lives_goes_on(
    host: PenstockHost, control: GroupControl, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was lost, and its sessions join again in a moment: here, at the third look."""
    planning = _planning.Planning(options(host))
    start = planning.initial()
    end = planning.latest(start, None, 0)
    planning.latest(end, None, 0)       # acknowledges
    planning.stop()
    control.close_group(**KEY)
    later = _planning.Planning(options(host))
    later.prepare()
    seen = later._check
    looks = []

    def joins_late(acknowledged: Any = None) -> _planning.View:
        looks.append(1)
        found = seen(acknowledged)
        return found if len(looks) > 2 else attrs.evolve(found, holdings={})

    monkeypatch.setattr(later, "_check", joins_late)
    try:
        after = later.latest(end, None, 0)
        assert after.positions.keys() == end.positions.keys()
    finally:
        later.stop()
    assert len(looks) > 2


def test_available_now_reads_all_that_is_there_to_a_new_query(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """In several batches, and no further, although the stream goes on."""
    planning = _planning.Planning(options(host))
    planning.prepare()
    try:
        at = planning.initial()
        seen = []
        with penstock.connect(host.directory) as client:
            publication = client.add_publication(CHANNEL, STREAM)
            while True:
                after = planning.latest(at, 1000, 0)
                publication.send(b"later")
                if after is at:
                    break
                [end] = after.positions.values()
                seen.append(end)
                at = after
    finally:
        planning.stop()
    assert seen[-1] == sent
    assert len(seen) > 3


def test_a_range_is_chosen_by_time(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """Between two stretches of a stream, with a pause in which the clock is read."""
    time.sleep(0.05)                    # the pause itself: times are a millisecond exact
    middle = str(time.time_ns() // 10**6)
    time.sleep(0.05)
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(CHANNEL, STREAM)
        for number in range(10):
            publication.send(b"message %d" % number)
        end = publication.position
        eventually(
            lambda: any(x.end_position == end for x in control.state(**KEY).logs), "it is there"
        )

        def read(**more: str) -> list[tuple[int, int]]:
            planning = _planning.Planning(options(host, streaming=False, **more))
            try:
                found: list[Any] = [x for part in planning.batch() for x in part.table]
            finally:
                planning.stop()
            return [(found[0].start, found[-1].end)] if found else []

        assert read() == [(0, end)]
        assert read(startingTimestamp=middle) == [(sent, end)]
        assert read(endingTimestamp=middle) == [(0, sent)]
        assert read(startingTimestamp=middle, endingTimestamp=middle) == []
        assert read(startingTimestamp=str(4 * 10**12)) == []


def test_a_new_query_begins_at_a_time_that_has_passed(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    """Its group joins at the oldest retained position, and not at the end, as ``latest`` does."""
    for wanted, starts in ((1, 0), (4 * 10**12, sent)):
        name = f"begun at {wanted}"
        reading = options(host, startingTimestamp=str(wanted), subscription=name)
        planning = _planning.Planning(reading)
        try:
            assert set(planning.initial().positions.values()) == {starts}
        finally:
            planning.stop()
            control.close_group(name=name, channel=CHANNEL, stream_id=STREAM)


def test_a_batch_ends_between_messages_of_known_sessions_only(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    key = key_of(control)
    for ends, words in (
        ({key: 96}, "position 96 is not between two messages"),
        ({key: sent + 64}, f"exceeds the end of the log, {sent}"),
        ({f"{CHANNEL}|{STREAM}|1|2": 64}, "no daemon has this session; sessions: aeron:ipc"),
    ):
        reading = options(host, streaming=False, endingOffsets=json.dumps(ends))
        planning = _planning.Planning(reading)
        try:
            with pytest.raises(InvalidArgument, match=f"option endingOffsets: .*{words}"):
                planning.batch()
        finally:
            planning.stop()


def test_a_daemon_that_refuses_is_not_left_out_in_silence(
    host: PenstockHost, new_host: Callable[..., PenstockHost], control: GroupControl,
    port: Callable[[], int], caplog: pytest.LogCaptureFixture,
) -> None:
    """Its streams would be missing; only one whose host has not the address has none."""
    second = new_host()
    daemons = tuple(Daemon(directory=str(h.directory)) for h in (host, second))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    reading = attrs.evolve(options(host, channel=channel), daemons=daemons)
    subscription = Subscription(reading)
    try:
        subscription.open()
        assert subscription.view().groups.keys() == set(reading.streams)
    finally:
        subscription.stop()
    assert f"is not read from {second.directory}" in caplog.text     # the port is the other's
    changed = attrs.evolve(options(host, sessions="5"), daemons=daemons)
    subscription = Subscription(changed)
    try:
        with pytest.raises(
            InvalidArgument, match=rf"at {host.directory}: group planned .* open with sessions \[\]"
        ):
            subscription.open()
    finally:
        subscription.stop()


def test_a_first_batch_is_not_empty_because_its_group_expired(
    host: PenstockHost, control: GroupControl, sent: int
) -> None:
    end, [partition] = planned(options(host))
    assert partition.table[0].end == sent
    control.close_group(**KEY)
    for policy, what in (("true", "raised"), ("false", "skipped")):
        planning = _planning.Planning(options(host, failOnDataLoss=policy))
        try:
            again = planning.initial()      # Spark asks anew: batch 0 was not committed
            if what == "raised":
                with pytest.raises(_planning.DataLoss, match="before the first batch"):
                    planning.partitions(again, end)
            else:
                assert planning.partitions(again, end) == [_planning.Partition(0, (), ())]
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


@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_stream_that_comes_later_and_does_not_wait_ends_the_query_or_is_warned_of(
    host: PenstockHost, remote: penstock.Client, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sender is on another host: what its SETUP says is all that is known."""
    group = "aeron:udp?endpoint=224.0.1.77:24081|interface=127.0.0.1"
    planning = _planning.Planning(read_options(
        plain(host) | {"channel": group, "subscription": "late", "failOnDataLoss": policy}
    ))
    key: dict[str, Any] = {"name": "late", "channel": group, "stream_id": STREAM}
    control = GroupControl(directory=str(host.directory))
    try:
        start = planning.initial()
        with remote.add_publication(f"{group}|fc=max", STREAM) as publication:
            assert publication.wait_connected(20)
            assert publication.send(b"lost to whoever is slow") > 0
            eventually(lambda: any(
                log.end_position > 0 for log in control.state(**key).logs
            ), "it is there")
            if policy == "true":
                with pytest.raises(InvalidArgument, match=r"option channel=.*: its flow control is "
                                   r"max, which does not wait\. Use .*failOnDataLoss=false"):
                    planning.latest(start, None, 0)
            else:
                assert planning.latest(start, None, 0).positions
                assert "its flow control is max" in caplog.text
    finally:
        planning.stop()
        control.close_group(**key)
        control.close()
