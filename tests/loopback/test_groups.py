# SPDX-License-Identifier: Apache-2.0
"""Consumer groups of real daemons: what they hold, whom they hold up, what they outlive."""

from __future__ import annotations

import gc
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import connected, eventually
from penstock import Client, Offer, Publication
from penstock.client import (
    GroupControl,
    GroupState,
    LogRange,
    RangeNotRetained,
    UnknownGroup,
    UnreliableStream,
)

NewHost = Callable[..., PenstockHost]
SECOND_NS = 10**9
MS_NS = 10**6
EXPIRY_NS = 600 * SECOND_NS
TERM = 64 * 1024
MESSAGE = b"m" * 992                    # 1024 bytes in the log
HEADER = struct.Struct("<iBBHiiiiq")


class Group:
    """A group by one name, and what a test asks of it."""

    def __init__(self, control: GroupControl, channel: str, stream_id: int) -> None:
        self.control, self.channel, self.stream_id = control, channel, stream_id
        control.open(name="query", channel=channel, stream_id=stream_id, expiry_ns=EXPIRY_NS)

    def state(self) -> GroupState:
        return self.control.state(name="query", channel=self.channel, stream_id=self.stream_id)

    def log(self) -> LogRange:
        """The one log, once its first frame has come."""
        eventually(lambda: self.state().logs != [], "the group has no log")
        [log] = self.state().logs
        return log

    def acknowledge(self, position: int, log: LogRange | None = None) -> GroupState:
        of = log or self.log()
        return self.control.acknowledge(
            name="query", channel=self.channel, stream_id=self.stream_id,
            positions={(of.session_id, of.initial_term_id): position},
        )

    def fetch(self, log: LogRange, start: int, end: int) -> list[bytes]:
        return list(
            self.control.fetch(
                log_id=log.log_id, session_id=log.session_id,
                initial_term_id=log.initial_term_id, start=start, end=end,
            )
        )

    def close(self) -> None:
        self.control.close_group(name="query", channel=self.channel, stream_id=self.stream_id)

    def holds(self) -> bool:
        """Whether its stream stands a window ahead of it."""
        log = self.log()
        return log.end_position - log.committed == log.window_bytes


@pytest.fixture
def control(host: PenstockHost) -> Iterator[GroupControl]:
    with GroupControl(directory=str(host.directory)) as made:
        yield made


def fill(publication: Publication, held: Callable[[], bool]) -> None:
    """Offers until the publication is held."""

    def offers() -> bool:
        while publication.offer(MESSAGE) > 0:
            pass
        return held()

    eventually(offers, "the publication is not held")


def payloads(frames: bytes) -> list[bytes]:
    """The messages in raw frames; each unfragmented."""
    found, at = [], 0
    while at < len(frames):
        length, _version, _flags, kind, *_ = HEADER.unpack_from(frames, at)
        assert length >= HEADER.size
        if kind == 1:
            found.append(frames[at + HEADER.size : at + length])
        at += (length + 31) // 32 * 32
    assert at == len(frames)
    return found


# ---- holding the sender --------------------------------------------------------------------------


def test_a_group_holds_a_sender_on_another_host_at_the_window(
    host: PenstockHost, remote: Client, control: GroupControl, port: Callable[[], int]
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    group = Group(control, channel, 2001)
    with remote.add_publication(f"{channel}|term-length=64k|mtu=1408", 2001) as publication:
        connected(publication)
        fill(publication, lambda: publication.pressure().reason == "slow_subscriber")
        eventually(group.holds, "less than a window is held")
        log = group.log()
        assert log.window_bytes == TERM // 2
        assert publication.pressure().reason_client == group.state().group_id
        group.acknowledge(log.committed + 8 * 1024)
        eventually(
            lambda: group.log().end_position == log.end_position + 8 * 1024,
            "an acknowledgement did not open the window by as much",
        )
        [status] = [g for g in _flows(host)["groups"] if g["group_id"] == group.state().group_id]
        assert status["window_left_bytes"] == 0
        assert status["lag_bytes"] == TERM // 2
    group.close()


def _flows(host: PenstockHost) -> dict[str, list[dict[str, int]]]:
    from penstock.cli.flows import flows
    from penstock.client._inspect import request_status

    return flows(request_status(host.directory, 10))


def test_a_group_holds_a_local_publication_and_is_named(
    client: Client, control: GroupControl
) -> None:
    group = Group(control, "aeron:ipc", 2002)
    with client.add_publication("aeron:ipc?term-length=64k", 2002) as publication:
        fill(publication, lambda: publication.pressure().cause == "slow_subscriber")
        assert publication.position >= TERM // 2
        assert "query" in publication.pressure().culprit
        log = group.log()
        assert publication.offer(MESSAGE) == Offer.BACK_PRESSURED
        group.acknowledge(log.end_position)
        eventually(lambda: publication.offer(MESSAGE) > 0, "the publication stays held")
    group.close()


def test_an_expired_group_lets_the_sender_go(client: Client, control: GroupControl) -> None:
    with client.add_publication("aeron:ipc?term-length=64k", 2003) as publication, \
            client.add_subscription("aeron:ipc", 2003) as reader:
        state = control.open(name="brief", channel="aeron:ipc", stream_id=2003,
                             expiry_ns=2 * SECOND_NS)
        assert state.expires_ns <= 2 * SECOND_NS
        count = 0
        while publication.offer(MESSAGE) > 0:
            count += 1
        eventually(lambda: reader.poll(lambda m, h: None, 1000) == 0, "the reader does not end")
        assert count <= TERM // 1024
        eventually(
            lambda: reader.poll(lambda m, h: None, 1) >= 0 and publication.offer(MESSAGE) > 0,
            "an expired group holds the sender",
        )
        with pytest.raises(UnknownGroup):
            control.state(name="brief", channel="aeron:ipc", stream_id=2003)


def test_flows_show_a_group_to_people_and_programs(
    host: PenstockHost, client: Client, control: GroupControl
) -> None:
    group = Group(control, "aeron:ipc", 2012)
    with client.add_publication("aeron:ipc?term-length=64k|pub-wnd=32k", 2012) as publication:
        for _ in range(3):
            assert publication.send(MESSAGE, 10) > 0
        eventually(lambda: group.log().end_position == 3 * 1024, "no data")
        with host.command("flows", "--json", "--dir", str(host.directory)) as shown:
            [row] = [g for g in json.loads(shown.output())["groups"] if g["stream_id"] == 2012]
        assert row["name"] == "query"
        assert 0 < row["expires_s"] <= EXPIRY_NS / SECOND_NS
        [log] = row["logs"]
        assert (log["committed"], log["end_position"], log["lag_bytes"]) == (0, 3072, 3072)
        assert log["window_left_bytes"] == log["window_bytes"] - 3072
        with host.command("flows", "--dir", str(host.directory)) as shown:
            text = shown.output()
        assert "query" in text
        assert "consumer groups" in text
    group.close()


def test_metrics_count_lag_and_what_is_left_of_the_window(
    host: PenstockHost, client: Client, control: GroupControl
) -> None:
    group = Group(control, "aeron:ipc", 2013)
    with client.add_publication("aeron:ipc?term-length=64k", 2013) as publication:
        assert publication.send(MESSAGE, 10) > 0
        eventually(lambda: group.log().end_position == 1024, "no data")
        page = metrics(host)
        labels = r'group="\d+",name="query",channel="aeron:ipc",stream="2013"'
        assert re.search(rf"penstock_group_lag_bytes{{{labels}}} 1024.0", page)
        assert re.search(rf"penstock_group_window_left_bytes{{{labels}}} \d+", page)
        assert re.search(rf"penstock_group_expires_seconds{{{labels}}} \d+", page)
        assert "penstock_groups_expired_total" in page
    group.close()


def metrics(host: PenstockHost) -> str:
    """The metrics page."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(host.directory / "metrics.sock"))
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        page = b""
        while more := connection.recv(65536):
            page += more
    return page.decode()


# ---- reading -------------------------------------------------------------------------------------


def test_a_range_is_fetched_as_often_as_wanted_and_not_after_it_was_acknowledged(
    client: Client, control: GroupControl
) -> None:
    group = Group(control, "aeron:ipc", 2004)
    sent = [b"%d" % n * (n % 50 + 1) for n in range(3000)]
    with client.add_publication("aeron:ipc?term-length=1m", 2004) as publication:
        for message in sent:
            assert publication.send(message, 10) > 0
        eventually(lambda: group.log().end_position == publication.position, "an end far behind")
        log = group.log()
        for _ in range(2):
            pieces = group.fetch(log, log.committed, log.end_position)
            assert [m for piece in pieces for m in payloads(piece)] == sent
        assert group.fetch(log, log.end_position, log.end_position) == [b""]
        cuts = control.cut(log_id=log.log_id, session_id=log.session_id,
                           initial_term_id=log.initial_term_id, start=0, max_bytes=64 * 1024,
                           pieces=4)
        parts = [0, *cuts.positions]
        assert len(cuts.positions) == 4
        again = [m for start, end in itertools.pairwise(parts)
                 for piece in group.fetch(log, start, end) for m in payloads(piece)]
        assert again == sent[: cuts.messages]
        group.acknowledge(cuts.positions[-1])
        with pytest.raises(RangeNotRetained) as gone:
            group.fetch(log, 0, log.end_position)
        assert gone.value.lowest_readable == cuts.positions[-1]
        with pytest.raises(RangeNotRetained):
            group.fetch(log, cuts.positions[-1], log.end_position + 32)
        rest = group.fetch(log, cuts.positions[-1], log.end_position)
        assert [m for piece in rest for m in payloads(piece)] == sent[cuts.messages :]
    group.close()


def test_readers_that_died_hold_nobody_up(new_host: NewHost, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[control_tcp]\nfetch_bytes = "4m"\n')       # four pieces of all readers
    own = new_host("--config", str(config))
    with penstock.connect(own.directory) as client, \
            GroupControl(directory=str(own.directory)) as control:
        group = Group(control, "aeron:ipc", 2010)
        with client.add_publication("aeron:ipc?term-length=32m", 2010) as publication:
            for _ in range(1000):
                assert publication.send(bytes(8000), 10) > 0
            eventually(lambda: group.log().end_position == publication.position, "all is there")
            log = group.log()
            whole = {"log_id": log.log_id, "session_id": log.session_id,
                     "initial_term_id": log.initial_term_id, "start": 0, "end": log.end_position}
            for _ in range(4):
                left = control.fetch(**whole)
                next(left)
                group.log()     # meanwhile what it gave credit for is sent
                left.close()    # as when its process is killed
            assert sum(map(len, control.fetch(**whole))) == log.end_position


def test_a_fetch_that_only_the_garbage_collection_ends_spoils_no_connection(
    client: Client, control: GroupControl
) -> None:
    """The objects of a cycle end in any order: the socket may be closed before the fetch that would
    give it back."""
    group = Group(control, "aeron:ipc", 2011)
    with client.add_publication("aeron:ipc?term-length=64k", 2011) as publication:
        assert publication.send(MESSAGE, 10) > 0
        eventually(lambda: group.log().end_position == publication.position, "all is there")
        log = group.log()
        whole = {"log_id": log.log_id, "session_id": log.session_id,
                 "initial_term_id": log.initial_term_id, "start": 0, "end": log.end_position}

        class Reader:
            def __init__(self) -> None:
                self.pieces = self.read()
                next(self.pieces)

            def read(self) -> Iterator[bytes]:
                yield from control.fetch(**whole)
                self.pieces = iter(())

        for _ in range(3):
            for _ in range(4):
                Reader()
            gc.collect()
            assert sum(map(len, control.fetch(**whole))) == log.end_position
    group.close()


@pytest.mark.parametrize("channel", ["aeron:ipc?term-length=1m", "udp"])
def test_each_position_has_the_time_at_which_it_came(
    client: Client, control: GroupControl, port: Callable[[], int], channel: str
) -> None:
    """Of four hundred messages, each sent when the one before it had arrived, and a daemon that
    looks at the stream only afterwards."""
    if channel == "udp":
        channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m"
    group = Group(control, channel.replace("?term-length=1m", ""), 2005)
    sent: list[tuple[int, int, int]] = []
    with client.add_publication(channel, 2005) as publication:
        assert publication.wait_connected(30)
        for _ in range(400):
            before_ns = time.time_ns()
            position = publication.send(MESSAGE, 10)
            eventually(
                lambda end=position: any(x.end_position >= end for x in group.state().logs),
                "it arrives",
            )
            sent.append((position, before_ns, time.time_ns()))
        log = group.log()
        known = {"log_id": log.log_id, "session_id": log.session_id,
                 "initial_term_id": log.initial_term_id}
        asked_ns = time.time_ns()
        for start in (0, sent[100][0], sent[-2][0]):
            found = control.times(**known, start=start, end=log.end_position)
            assert found.positions == sorted(set(found.positions))
            for position, before_ns, after_ns in sent:
                if position > start:
                    at = next(n for n, to in enumerate(found.positions) if to >= position)
                    late_ns = max(MS_NS, (asked_ns - before_ns) // 90)      # docs/spark.md
                    if channel.startswith("aeron:ipc"):
                        late_ns += 250 * MS_NS      # a busy machine: its sender looks later
                    assert before_ns - 5 * MS_NS < found.times_ns[at] < after_ns + late_ns + MS_NS
        assert len(control.times(**known, start=0, end=log.end_position, most=16).positions) <= 16
    group.close()
    with pytest.raises(RangeNotRetained, match="no group keeps log"):
        control.times(**known, start=0, end=64)


def test_a_late_group_begins_where_it_is_told(client: Client, control: GroupControl) -> None:
    with client.add_publication("aeron:ipc?term-length=1m", 2006) as publication, \
            client.add_subscription("aeron:ipc", 2006) as reader:
        for n in range(100):
            assert publication.send(b"%d" % n, 10) > 0
        got = 0
        while got < 100:
            got += reader.poll(lambda m, h: None, 100)
        reader.poll(lambda m, h: None, 1)       # releases
        position = publication.position

        def consumed() -> bool:
            return any(
                row["consumer_position"] == position for row in client.status()["publications"]
                if row["publication_id"] == publication.original_id
            )

        eventually(consumed, "what was read is not released")
        early = control.open(name="early", channel="aeron:ipc", stream_id=2006,
                             starting="earliest", expiry_ns=EXPIRY_NS)
        assert early.logs[0].committed == 0
        late = control.open(name="late", channel="aeron:ipc", stream_id=2006, expiry_ns=EXPIRY_NS)
        assert late.logs[0].committed == position
        for name in ("early", "late"):
            control.close_group(name=name, channel="aeron:ipc", stream_id=2006)


def test_a_strategy_that_does_not_wait_is_refused(client: Client, control: GroupControl) -> None:
    channel = "aeron:udp?endpoint=224.0.1.77:24077|interface=127.0.0.1"
    with client.add_publication(f"{channel}|fc=max", 2007) as publication, \
            client.add_subscription(channel, 2007) as reader:
        connected(publication, reader)
        with pytest.raises(UnreliableStream, match="max"):
            control.open(name="query", channel=channel, stream_id=2007, expiry_ns=EXPIRY_NS)
        state = control.open(name="query", channel=channel, stream_id=2007, expiry_ns=EXPIRY_NS,
                             allow_unreliable=True)
        assert any("does not wait" in warning for warning in state.warnings)
        control.close_group(name="query", channel=channel, stream_id=2007)


def test_the_strategy_of_another_host_is_known_from_its_setup(
    client: Client, remote: Client, control: GroupControl
) -> None:
    """And shown; a group that was there before the stream is told."""
    channel = "aeron:udp?endpoint=224.0.1.77:24079|interface=127.0.0.1"
    assert control.open(name="early", channel=channel, stream_id=2009,
                        expiry_ns=EXPIRY_NS).unreliable == []
    with remote.add_publication(f"{channel}|fc=max", 2009) as publication:
        connected(publication)
        # An image counts from its first frame or heartbeat on.
        early = {"name": "early", "channel": channel, "stream_id": 2009}
        eventually(lambda: control.state(**early).logs != [], "no log")
        with pytest.raises(UnreliableStream, match="flow control is max, which does not wait"):
            control.open(name="late", channel=channel, stream_id=2009, expiry_ns=EXPIRY_NS)
        [what] = control.state(name="early", channel=channel, stream_id=2009).unreliable
        assert "flow control is max" in what
        status = client.status()
        assert {row["strategy"] for row in status["images"] if row["stream_id"] == 2009} == {"max"}
        [group] = status["groups"]
        assert [log["strategy"] for log in group["logs"]] == ["max"]
    control.close_group(name="early", channel=channel, stream_id=2009)


# ---- outliving -----------------------------------------------------------------------------------


def test_a_log_outlives_its_stream_until_it_was_read(
    remote: Client, control: GroupControl, port: Callable[[], int]
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    group = Group(control, channel, 2008)
    with remote.add_publication(f"{channel}|term-length=64k|linger=0", 2008) as publication:
        connected(publication)
        for n in range(20):
            assert publication.send(b"%d" % n, 10) > 0
        eventually(lambda: group.log().end_position == publication.position, "data did not come")
    eventually(lambda: group.log().ended, "the stream's end was not seen", 60)
    log = group.log()
    pieces = group.fetch(log, 0, log.end_position)
    assert [m for piece in pieces for m in payloads(piece)] == [b"%d" % n for n in range(20)]
    assert Path(log.log_path).exists()
    assert group.acknowledge(log.end_position).logs == []
    assert not Path(log.log_path).exists()
    group.close()


def test_a_new_daemon_goes_on_with_the_groups_of_a_killed_one(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    control = GroupControl(directory=str(host.directory), timeout_s=30)
    group = Group(control, channel, 2009)
    local = Group(control, "aeron:ipc", 2009)
    with penstock.connect(host.directory) as client:
        ended = client.add_publication("aeron:ipc?term-length=64k", 2009)
        assert ended.send(b"kept", 10) > 0
        eventually(lambda: local.log().end_position > 0, "nothing came")
        ended.close()
        eventually(lambda: local.log().ended, "the end was not seen")
        with client.add_publication(f"{channel}|term-length=64k", 2009) as publication:
            connected(publication)
            eventually(lambda: bool(group.state().logs), "the group has no log")
            fill(publication, group.holds)
            log = group.log()
            group.acknowledge(log.committed + 4096)
            first_epoch = group.state().daemon_epoch
            host.kill()
            host.start()
            again = group.state()
            assert again.daemon_epoch > first_epoch
            assert again.daemon_id == group.state().daemon_id
            [kept] = again.logs
            assert (kept.log_id, kept.committed) == (log.log_id, log.committed + 4096)
            eventually(lambda: group.log().end_position > log.committed + 4096, "no data is left")
            reach = group.log().end_position
            taken = payloads(b"".join(group.fetch(kept, kept.committed, reach)))
            assert taken
            assert set(taken) == {MESSAGE}
            group.acknowledge(reach)
            eventually(lambda: publication.offer(MESSAGE) > 0, "the sender stays held")
    old = local.log()
    assert old.ended
    assert payloads(b"".join(local.fetch(old, 0, old.end_position))) == [b"kept"]
    assert local.acknowledge(old.end_position, old).logs == []
    control.close()


def left_behind(host: PenstockHost, control: GroupControl, message: bytes) -> Group:
    """A group of a local stream that ended with this message, and nobody else."""
    group = Group(control, "aeron:ipc", 2011)
    with penstock.connect(host.directory) as client, \
            client.add_publication("aeron:ipc?term-length=64k", 2011) as publication:
        assert publication.send(message, 10) > 0
    eventually(lambda: group.log().ended, "the end was not seen")
    return group


def test_groups_without_any_client_are_adopted(new_host: NewHost) -> None:
    host = new_host()
    with GroupControl(directory=str(host.directory), timeout_s=30) as control:
        group = left_behind(host, control, b"last words")
        host.kill()
        host.start()
        log = group.log()
        assert payloads(b"".join(group.fetch(log, 0, log.end_position))) == [b"last words"]


def test_an_orderly_stop_keeps_what_groups_hold(new_host: NewHost) -> None:
    host = new_host()
    with GroupControl(directory=str(host.directory), timeout_s=30) as control:
        group = left_behind(host, control, b"kept")
        assert host.end() == 0
        host.start()
        log = group.log()
        assert payloads(b"".join(group.fetch(log, 0, log.end_position))) == [b"kept"]
        group.close()
        assert host.end() == 0
        assert not host.directory.exists()
