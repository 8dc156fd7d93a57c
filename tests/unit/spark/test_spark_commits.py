# SPDX-License-Identifier: Apache-2.0
"""Which rows of a penstock sink a query takes: whole parts, each once, however its batches are cut
and whenever it is restarted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import GroupRefused, GroupState, LogMark, LogMarks, LogRange
from penstock.spark_bridge import _brackets, _commits, _planner, _times
from penstock.spark_bridge._assembler import RepeatDiffers
from penstock.spark_bridge._commits import GRACE_S, Commits, ForgottenPart, UnreadableMarker
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge._planner import View, Want
from penstock.spark_bridge._reader import DataLoss
from penstock.spark_bridge.markers import Content, Kind, Marker, Part, encode

CHANNEL = "aeron:ipc"
FRAME = 32
QUERY, RUN = UUID(int=1), UUID(int=2)


def session(number: int) -> Session:
    return Session(channel=CHANNEL, stream_id=7, session_id=number, initial_term_id=0)


def part_of(epoch: int, partition: int = 0, **fields: Any) -> Part:
    known = {"query": QUERY, "run": RUN, "attempt": 0, "key": b"", "job": False}
    return Part(epoch=epoch, partition=partition, **(known | fields))


def content_of(rows: Sequence[str]) -> Content:
    return Content(
        messages=len(rows), rows=len(rows), digest=sum(map(hash, rows)) % 2**64,
        crc=hash(tuple(rows)) % 2**32,
    )


@attrs.define
class Log:
    """A session: a frame for each row or marker."""

    number: int
    frames: list[str | Marker] = attrs.Factory(list)
    seen: int = 0               # frames that the daemon has
    ended: bool = False
    edge: int | None = None     # frames before its sender was silent: the rest is in another log
    lost: int = 0               # frames between the two logs

    def begin(self, part: Part) -> None:
        self.frames.append(Marker(kind=Kind.BEGIN, part=part))

    def commit(self, part: Part, rows: Sequence[str]) -> None:
        self.frames.append(Marker(kind=Kind.COMMIT, part=part, content=content_of(rows)))

    def send(self, part: Part, rows: Sequence[str]) -> None:
        self.begin(part)
        self.frames += rows
        self.commit(part, rows)

    def end_job(self, part: Part, parts: int, kind: Kind = Kind.JOB_COMMIT) -> None:
        self.frames.append(Marker(kind=kind, part=part, content=Content(messages=parts)))

    def ranges(self) -> list[LogRange]:
        first = LogRange(
            log_id=self.number + 1, channel=CHANNEL, stream_id=7, session_id=self.number,
            initial_term_id=0, term_length=65536, mtu=1408, log_path="", retained_from=0,
            committed=0, end_position=FRAME * self.seen, ended=self.ended, window_bytes=2**30,
            time_index=[],
        )
        if self.edge is None or self.seen < self.edge:
            return [first]
        start = FRAME * (self.edge + self.lost)
        return [
            attrs.evolve(first, end_position=FRAME * self.edge, ended=True),
            attrs.evolve(first, log_id=self.number + 100, retained_from=start, committed=start,
                         end_position=max(start, first.end_position)),
        ]


class Query:
    """A query of some sessions; ``rows`` are what its batches delivered."""

    def __init__(self, logs: Sequence[Log], *, required: bool = False, strict: bool = True) -> None:
        self.logs = logs
        self.now_s = 0.0
        self.offset = Offset()
        self.rows: list[str] = []
        self.looked = 0
        self._required = required
        self._strict = strict
        self.start()

    def start(self) -> None:
        """Again, from the offset as the checkpoint has it."""
        self.offset = Offset.from_plain(json.loads(json.dumps(self.offset.to_plain())))
        self.commits = Commits(
            self._look, required=self._required, strict=self._strict, clock=lambda: self.now_s
        )

    def _look(self, want: Want, start: int, max_bytes: int) -> LogMarks:
        log = self.logs[want.session.session_id]
        self.looked += 1
        seen = min(
            log.seen, (start + max_bytes + FRAME - 1) // FRAME, want.end // FRAME
        )
        found = [
            LogMark(begin=FRAME * n, end=FRAME * (n + 1), payload=encode(frame))
            for n, frame in enumerate(log.frames[:seen])
            if FRAME * n >= start and isinstance(frame, Marker)
        ][:3]
        position = found[-1].end if len(found) == 3 else FRAME * seen
        return LogMarks(marks=found, position=position)

    def view(self) -> View:
        return View.of([(0, GroupState(
            name="q", channel=CHANNEL, stream_id=7, group_id=5, daemon_id=1, daemon_epoch=1,
            host="h", expires_ns=1, warnings=[], unreliable=[],
            logs=[one for log in self.logs for one in log.ranges()],
        ))])

    def batch(self, max_bytes: int = 2**40, max_messages: int = 0) -> bool:
        """One batch; False: nothing to do."""
        view = self.view()
        found = _planner.wants(view, self.offset, max_bytes=max_bytes)
        whole = self.commits.plan(view, self.offset, found, max_messages=max_messages)
        ends = {w.session: w.start + w.max_bytes for w in found if w.session not in whole.heard}
        after = _planner.advance(view, self.offset, ends | dict(whole.ends))
        if after is self.offset:
            return False
        after = Offset.from_plain(whole.offset(self.offset, after).to_plain())
        for item in _planner.ranges(view, self.offset, after):
            frames = self.logs[item.session.session_id].frames
            for frame in frames[item.start // FRAME : item.end // FRAME]:
                if isinstance(frame, str):
                    self.rows.append(frame)
        self.offset = after
        return True

    def drain(self, **limits: int) -> list[str]:
        for log in self.logs:
            log.seen = len(log.frames)
        while self.batch(**limits):
            pass
        return self.rows


def rows_of(epoch: int, partition: int) -> list[str]:
    return [f"{epoch}/{partition}/{n}" for n in range((epoch * 7 + partition) % 4)]


_attempts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(["whole", "broken"])),
    max_size=10,
)


@given(sessions=st.lists(_attempts, min_size=1, max_size=3), data=st.data())
@settings(max_examples=150, deadline=None)
def test_each_part_comes_once_and_whole_however_batches_are_cut(
    sessions: list[list[tuple[int, int, str]]], data: st.DataObject
) -> None:
    logs = [
        Log(number, edge=data.draw(st.none() | st.integers(1, 30)))
        for number in range(len(sessions))
    ]
    attempt = 0
    for log, attempts in zip(logs, sessions, strict=True):
        for epoch, partition, fate in attempts:
            attempt += 1
            part, rows = part_of(epoch, partition, attempt=attempt), rows_of(epoch, partition)
            if fate == "whole":
                log.send(part, rows)
            else:
                log.begin(part)
                log.frames += rows[: data.draw(st.integers(0, len(rows)))]
    query = Query(logs)
    while any(log.seen < len(log.frames) for log in logs):
        log = data.draw(st.sampled_from([log for log in logs if log.seen < len(log.frames)]))
        log.seen += data.draw(st.integers(1, len(log.frames) - log.seen))
        query.batch(data.draw(st.integers(1, 1000)), data.draw(st.integers(0, 5)))
        if data.draw(st.booleans()):
            query.start()
    query.drain(max_bytes=data.draw(st.integers(1, 1000)))
    whole = {(e, p) for attempts in sessions for e, p, fate in attempts if fate == "whole"}
    assert sorted(query.rows) == sorted(r for place in whole for r in rows_of(*place))


def test_a_part_waits_for_its_commit_and_is_left_out_when_its_session_is_over() -> None:
    log = Log(0)
    log.send(part_of(1), ["a"])
    log.begin(part_of(2))
    log.frames += ["lost"]
    query = Query([log])
    assert query.drain() == ["a"]
    before = query.offset
    log.ended = True
    assert not query.batch()
    query.now_s += GRACE_S + 1
    assert query.drain() == ["a"]
    assert query.offset.positions[session(0)] == FRAME * len(log.frames)
    assert query.offset.positions != before.positions


@pytest.mark.parametrize("edge", range(1, 4))
def test_a_part_whose_sender_was_silent_and_returned_is_read_whole(edge: int) -> None:
    log = Log(0, edge=edge)
    log.begin(part_of(1))
    log.frames += ["a", "b"]
    log.seen = edge
    query = Query([log])
    assert not query.batch()
    log.commit(part_of(1), ["a", "b"])
    log.send(part_of(2), ["c"])
    assert query.drain() == ["a", "b", "c"]


def test_a_part_whose_rest_is_lost_lets_the_query_continue() -> None:
    log = Log(0, edge=2, lost=1)
    log.send(part_of(1), ["a", "b"])
    log.send(part_of(2), ["c"])
    query = Query([log])
    query.drain()
    assert query.offset.positions[session(0)] == FRAME * 2
    [loss] = _planner.losses(query.view(), query.offset)
    assert (loss.start, loss.end) == (FRAME * 2, FRAME * 3)


@pytest.mark.parametrize("strict", [True, False])
def test_a_part_that_was_left_out_too_soon_is_never_lost_in_silence(
    strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(0, ended=True)
    log.begin(part_of(1))
    log.frames += ["a"]
    query = Query([log], strict=strict)
    query.drain()
    query.now_s += GRACE_S + 1
    assert query.drain() == []
    log.ended, log.edge = False, 2
    log.commit(part_of(1), ["a"])
    log.send(part_of(2), ["b"])
    if strict:
        with pytest.raises(DataLoss, match="was left out, and now its COMMIT has arrived"):
            query.drain()
    else:
        assert query.drain() == ["b"]
        assert "was left out, and now its COMMIT has arrived" in caplog.text


def test_a_part_that_was_left_out_and_repeated_is_no_loss() -> None:
    logs = [Log(0, ended=True), Log(1)]
    logs[0].begin(part_of(1))
    logs[0].frames += ["a"]
    query = Query(logs)
    query.drain()
    query.now_s += GRACE_S + 1
    query.drain()
    logs[1].send(part_of(1, attempt=1), ["a"])
    assert query.drain() == ["a"]
    logs[0].ended, logs[0].edge = False, 2
    logs[0].commit(part_of(1), ["a"])
    assert query.drain() == ["a"]


@pytest.mark.parametrize("required", [True, False])
def test_rows_without_markers_are_those_of_another_publisher(required: bool) -> None:
    """Unless the query says that it reads only committed rows."""
    log = Log(0, frames=["a", "b"])
    query = Query([log], required=required)
    assert query.drain() == ([] if required else ["a", "b"])
    assert query.offset.positions[session(0)] == 2 * FRAME


def test_of_a_plain_session_only_the_beginning_of_a_batch_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_commits, "_PROBE_BYTES", 4 * FRAME)
    log = Log(0, frames=["row"] * 100)
    log.send(part_of(1), ["part"])
    query = Query([log])
    assert query.drain() == [*["row"] * 100, "part"]
    assert query.looked == 1
    for logs in ([Log(0, frames=["row"])], [Log(0, frames=["row"] * 3)]):
        logs[0].send(part_of(1), ["a", "b", "c", "d", "e"])     # its COMMIT lies further
        query = Query(logs)
        assert query.drain()[-5:] == ["a", "b", "c", "d", "e"]
        assert session(0) in query.offset.skipped


def test_a_query_that_joins_within_a_part_leaves_its_rest_out() -> None:
    log = Log(0, frames=["of a part before"])
    log.commit(part_of(0), ["?", "of a part before"])
    log.send(part_of(1), ["a"])
    assert Query([log]).drain() == ["a"]


def test_a_session_that_had_markers_has_no_plain_rows() -> None:
    """Its BEGIN was lost with an image that joined again."""
    log = Log(0)
    log.send(part_of(1), ["a"])
    query = Query([log])
    query.drain()
    query.start()
    log.frames += ["headless"]
    assert query.drain() == ["a"]
    assert query.offset.positions[session(0)] == FRAME * len(log.frames)


def test_a_repeat_with_other_rows_is_an_error() -> None:
    log = Log(0)
    log.send(part_of(1), ["a", "b"])
    log.send(part_of(1, attempt=1), ["b", "a"])       # a shuffle keeps no order
    query = Query([log])
    assert query.drain() == ["a", "b"]
    log.send(part_of(1, attempt=2), ["a", "c"])
    with pytest.raises(RepeatDiffers, match=r"epoch 1 partition 0 attempt 2 at position"):
        query.drain()


@pytest.mark.parametrize("required", [True, False])
def test_a_marker_that_cannot_be_read_ends_the_query(
    required: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its part would be left out, or read as rows of another publisher."""
    log = Log(0)
    log.send(part_of(1), ["a"])
    known = encode
    monkeypatch.setitem(
        globals(), "encode", lambda marker: known(marker)[:8] + b"\x03" + known(marker)[9:]
    )
    query = Query([log], required=required)
    with pytest.raises(UnreadableMarker, match=r"marker at position 0 .* marker version 3: this"):
        query.drain()
    assert query.rows == []
    assert Query([log], required=required, strict=False).drain() == ([] if required else ["a"])
    assert "marker version 3" in caplog.text


@pytest.mark.parametrize("attempts", [([], ["a"]), (["a"], [])])
def test_an_empty_part_with_rows_in_its_repeat_is_an_error(attempts: tuple[list[str], ...]) -> None:
    """Spark has moved rows to another task: they would be lost, or come twice."""
    log = Log(0)
    query = Query([log])
    log.send(part_of(1), attempts[0])
    assert query.drain() == attempts[0]
    query.start()
    log.send(part_of(1, attempt=1), attempts[0])
    assert query.drain() == attempts[0]
    log.send(part_of(1, attempt=2), attempts[1])
    with pytest.raises(RepeatDiffers, match="epoch 1 partition 0 attempt 2"):
        query.drain()


def test_an_epoch_that_the_offset_forgot_is_never_left_out_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_brackets, "_MOST_RUNS", 2)
    logs = [Log(0), Log(1)]
    for epoch in (10, 20, 30, 40, 50):
        logs[0].send(part_of(epoch), [f"{epoch}"])
    for strict in (True, False):
        query = Query(logs, strict=strict)
        query.drain()
        logs[1].send(part_of(5), ["late"])
        if strict:
            with pytest.raises(ForgottenPart, match="epoch 5"):
                query.drain()
        else:
            assert query.drain() == ["10", "20", "30", "40", "50"]
        logs[1].frames.clear()


# ---- batch writes --------------------------------------------------------------------------------


def job_of(run: int, partition: int = 0, **fields: Any) -> Part:
    return part_of(0, partition, run=UUID(int=run), job=True, **fields)


def test_a_batch_write_is_read_when_all_of_it_is_there() -> None:
    """Its end comes first, for it has a session of its own."""
    one, two, driver = logs = [Log(0), Log(1), Log(2)]
    one.send(job_of(5, 0), ["a"])
    one.send(job_of(5, 0, attempt=7), ["a"])
    driver.end_job(job_of(5), 2)
    query = Query(logs)
    assert query.drain() == []
    query.start()
    two.send(job_of(5, 1), ["b"])
    assert query.drain() == ["a", "b"]
    assert query.offset.positions[session(2)] == FRAME
    assert query.offset.done.has_job(job_of(5))


@given(max_bytes=st.integers(1, 400), restart=st.booleans())
def test_a_batch_write_may_be_read_in_several_batches(max_bytes: int, restart: bool) -> None:
    one, driver = logs = [Log(1), Log(0)][::-1]
    for partition in range(6):
        driver.send(job_of(5, partition), [f"{partition}"] * 3)
    one.end_job(job_of(5), 6)
    query = Query(logs)
    for log in logs:
        log.seen = len(log.frames)
    while query.batch(max_bytes=max_bytes):
        if restart:
            query.start()
    assert sorted(query.rows) == sorted(f"{n}" for n in range(6) for _ in range(3))


@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=6), again=st.integers(1, 4),
    places=st.permutations(range(5)), max_bytes=st.integers(1, 600), data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_a_batch_write_that_is_repeated_while_it_is_read_comes_once(
    sizes: list[int], again: int, places: list[int], max_bytes: int, data: st.DataObject
) -> None:
    """The repeat may divide the rows differently; no batch mixes parts of both runs."""
    rows = [f"row {n}" for n in range(sum(sizes))]
    logs = [Log(number) for number in range(5)]
    at = 0
    for partition, size in enumerate(sizes):
        logs[places[partition % 2]].send(job_of(5, partition), rows[at:at + size])
        at += size
    logs[places[2]].end_job(job_of(5), len(sizes))
    query = Query(logs)
    for log in logs:
        log.seen = len(log.frames)
    for _ in range(data.draw(st.integers(0, 5))):
        query.batch(max_bytes=max_bytes)
        query.start()
    for partition in range(again):
        logs[places[2 + partition % 2]].send(job_of(6, partition), rows[partition::again])
    logs[places[4]].end_job(job_of(6), again)
    query.drain(max_bytes=max_bytes)
    assert sorted(query.rows) == sorted(rows)
    assert all(
        query.offset.positions.get(session(log.number), 0) == FRAME * len(log.frames)
        for log in logs
    )


@pytest.mark.parametrize("driver", [0, 3])
@pytest.mark.parametrize("begun", [True, False])
def test_a_batch_write_that_is_committed_and_then_aborted_is_read_whole_or_not_at_all(
    driver: int, begun: bool
) -> None:
    """The driver could not send its JOB_COMMIT in time, and aborts in a session of its own."""
    logs = [Log(0), Log(1), Log(2), Log(3)]
    for partition in range(4):
        logs[1].send(job_of(5, partition), [f"{partition}"])
    logs[2].end_job(job_of(5), 4)
    query = Query(logs)
    for log in logs:
        log.seen = len(log.frames)
    if begun:
        query.batch(max_bytes=6 * FRAME)
        assert 0 < len(query.rows) < 4
    logs[driver].end_job(job_of(5), 0, Kind.JOB_ABORT)
    query.start()
    assert query.drain() == (["0", "1", "2", "3"] if begun else [])
    assert query.offset.positions[session(1)] == FRAME * len(logs[1].frames)
    logs[1].send(job_of(6), ["a"])
    logs[2].end_job(job_of(6), 1)
    assert query.drain() == (["0", "1", "2", "3"] if begun else ["a"])


@pytest.mark.parametrize("told", [True, False])
def test_a_batch_write_that_failed_is_left_out_and_its_repeat_is_read_once(told: bool) -> None:
    one, driver = logs = [Log(0), Log(1)]
    one.send(job_of(5, 0), ["of the first run"])
    if told:
        driver.end_job(job_of(5), 0, Kind.JOB_ABORT)
    query = Query(logs)
    assert query.drain() == []
    for run, split in ((6, [["a"], ["b"]]), (7, [["a", "b"]])):
        for partition, rows in enumerate(split):
            one.send(job_of(run, partition), rows)
        driver.end_job(job_of(run), len(split))
        assert query.drain() == ["a", "b"]
        query.start()
    assert all(query.offset.positions[session(n)] == FRAME * len(logs[n].frames) for n in (0, 1))


def test_a_batch_write_whose_driver_died_holds_nothing_for_ever() -> None:
    log = Log(0)
    log.send(job_of(5, 0), ["a"])
    query = Query([log])
    assert query.drain() == []
    query.now_s += 2 * GRACE_S
    assert not query.batch()        # its publisher is there: the driver may follow
    log.ended = True
    query.batch()
    query.now_s += GRACE_S + 1
    assert query.drain() == []
    assert query.offset.positions[session(0)] == FRAME * len(log.frames)


# ---- what an offset has ------------------------------------------------------------------------


def test_the_key_of_a_session_comes_with_its_ranges() -> None:
    log = Log(0)
    log.send(part_of(1, key=b"IBM"), ["a"])
    query = Query([log])
    query.drain()
    query.start()
    log.send(part_of(2, key=b"IBM"), ["b"])
    before = query.offset
    query.drain()
    (item,) = _planner.ranges(query.view(), before, query.offset)
    assert item.key == b"IBM"


def test_an_older_daemon_finds_no_markers(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_want: Want, _at: int, _most: int) -> LogMarks:
        raise GroupRefused("unknown message type FindMarks", code="malformed")

    log = Log(0)
    log.send(part_of(1), ["a"])
    for required in (False, True):
        query = Query([log], required=required)
        make: Callable[..., Any] = Commits
        query.commits = make(refuse, required=required, strict=True)
        if required:
            with pytest.raises(GroupRefused):
                query.drain()
        else:
            assert query.drain() == ["a"]
            assert "too old" in caplog.text


def test_times_of_a_batch_with_left_out_stretches_are_those_of_the_session() -> None:
    log = Log(0)
    log.begin(part_of(1))
    log.frames += ["lost"]
    log.send(part_of(1, attempt=1), ["a"])
    query = Query([log])
    query.drain()
    after = attrs.evolve(query.offset, times={session(0): _times.encode([(160, 10**9)])})
    (item,) = _planner.ranges(query.view(), Offset(), attrs.evolve(
        after, begun={session(0): 0}
    ))
    assert (item.start, item.end) == (64, 160)
    assert item.times == after.times[session(0)]
