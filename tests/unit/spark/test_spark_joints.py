# SPDX-License-Identifier: Apache-2.0
"""A session whose sender was silent and returned has several logs, one behind the other: it is read
as if it had one, wherever the logs meet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType
from support import frames as made
from support.frames import Stream

from penstock.client import GroupState, LogMark, LogMarks, LogRange
from penstock.core import gather
from penstock.spark_bridge import _fetch, _joints, _reader
from penstock.spark_bridge import _planner as planner
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge._options import SourceOptions, StreamName
from penstock.spark_bridge._planner import Holding, View, Want

CHANNEL = "aeron:udp?endpoint=localhost:40456"
OPTIONS = SourceOptions(
    streams=(StreamName(channel=CHANNEL, stream_id=1001),), subscription="s",
    batch_bytes=64 * 1024,
)
SCHEMA = StructType([StructField("position", LongType())])
MARK = 3


class Logs:
    """The logs of one session, and the daemon that answers questions about each of them."""

    def __init__(self, stream: Stream, edges: list[int], file: Path, *, gone: int = 0) -> None:
        """``edges``: where one log ends and the next begins, ``gone`` bytes later."""
        self.stream = stream
        self.mapped = gather.MappedLog.open(str(stream.write_log(file)))
        bounds = [*edges, stream.position]
        self.session = Session(
            channel=CHANNEL, stream_id=1001, session_id=stream.session_id,
            initial_term_id=stream.initial_term_id,
        )
        starts = [0, *(edge + gone for edge in edges)]
        self.ranges = [
            LogRange(
                log_id=number, channel=CHANNEL, stream_id=1001, session_id=stream.session_id,
                initial_term_id=stream.initial_term_id, term_length=stream.term_length,
                mtu=stream.mtu, log_path="", retained_from=start, committed=start,
                end_position=end, ended=number < len(edges), window_bytes=2**40, time_index=[],
            )
            for number, (start, end) in enumerate(zip(starts, bounds, strict=True))
        ]

    @property
    def view(self) -> View:
        return View.of([(0, GroupState(
            name="q", channel=CHANNEL, stream_id=1001, group_id=5, daemon_id=1, daemon_epoch=1,
            host="h", expires_ns=1, warnings=[], unreliable=[], logs=self.ranges,
        ))])

    def want(self, start: int, max_bytes: int) -> Want:
        found = self.view.want(self.session, start, max_bytes)
        assert found is not None
        return found

    def frames(self, holding: Holding, start: int, end: int) -> list[bytes]:
        return list(self.fetch(log_id=holding.log.log_id, start=start, end=end))

    def fetch(self, *, log_id: int, start: int, end: int, **_session: int) -> Iterator[bytes]:
        log = self.ranges[log_id]
        assert log.retained_from <= start <= end <= log.end_position
        if start < end:
            yield bytes(self.stream.data[start:end])

    def cut(self, want: Want, max_messages: int) -> tuple[int, int]:
        def one(part: Want, most: int) -> tuple[int, int]:
            cuts = gather.cut(
                self.mapped, part.start, part.holding.log.end_position, max_bytes=part.max_bytes,
                max_messages=most,
            )
            return (cuts.positions[-1], cuts.messages) if cuts.positions else (part.start, 0)

        return _joints.cut(want, max_messages, one, self.frames)

    def find(self, want: Want, start: int, max_bytes: int) -> LogMarks:
        def one(part: Want, start: int, max_bytes: int) -> LogMarks:
            found = gather.find(
                self.mapped, start, part.holding.log.end_position, reserved_value=MARK,
                max_bytes=max_bytes, most=2, prefix=4096,
            )
            return LogMarks(
                marks=[LogMark(begin=m.begin, end=m.end, payload=m.payload)
                       for m in found.messages],
                position=found.position,
            )

        return _joints.find(want, start, max_bytes, MARK, one, self.frames)


_messages = st.lists(
    st.tuples(st.integers(0, 1500), st.integers(0, MARK)), min_size=1, max_size=60
)


@st.composite
def _sessions(draw: st.DrawFn) -> tuple[Stream, list[int]]:
    stream = Stream()
    for length, reserved in draw(_messages):
        stream.message(bytes([length % 251]) * length, reserved)
    count = draw(st.integers(0, min(3, len(stream.edges) - 1)))
    edges = draw(st.lists(
        st.sampled_from(stream.edges[:-1]) if count else st.nothing(), min_size=count,
        max_size=count, unique=True,
    ))
    return stream, sorted(edges)


@given(session=_sessions(), max_bytes=st.integers(1, 8000), max_messages=st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_batches_end_between_messages_wherever_logs_meet(
    session: tuple[Stream, list[int]], max_bytes: int, max_messages: int
) -> None:
    stream, edges = session
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(stream, edges, Path(folder) / "log")
        at = messages = 0
        while at < stream.position:
            end, count = logs.cut(logs.want(at, max_bytes), max_messages)
            assert end > at, f"stands still at {at}"
            inside = [m for m in stream.messages if at <= m[0] < end]
            assert [m for m in stream.messages if at < m[1] <= end] == inside
            assert len(inside) == count
            assert count <= max_messages or max_messages == 0
            assert count <= 1 or end - at <= max_bytes
            at, messages = end, messages + count
        assert messages == len(stream.messages)


@given(session=_sessions(), max_bytes=st.integers(1, 8000))
@settings(max_examples=150, deadline=None)
def test_markers_are_found_wherever_logs_meet(
    session: tuple[Stream, list[int]], max_bytes: int
) -> None:
    stream, edges = session
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(stream, edges, Path(folder) / "log")
        want, at = logs.want(0, 0), 0
        found: list[LogMark] = []
        while at < want.end:
            answer = logs.find(want, at, max_bytes)
            assert answer.position > at, f"stands still at {at}"
            found += answer.marks
            at = answer.position
        assert [(mark.begin, mark.end, mark.payload) for mark in found] == [
            (begin, end, payload) for begin, end, reserved, payload in stream.messages
            if reserved == MARK
        ]


@given(session=_sessions(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_range_is_read_whole_wherever_logs_meet(
    session: tuple[Stream, list[int]], data: st.DataObject
) -> None:
    stream, edges = session
    starts = sorted(begin for begin, *_ in stream.messages)
    start = data.draw(st.sampled_from(starts))
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(stream, edges, Path(folder) / "log")
        [item] = planner.ranges(
            logs.view, Offset(positions={logs.session: start}),
            Offset(positions={logs.session: stream.position}),
        )
        [holder] = item.holders

        def sources(_options: SourceOptions, _item: planner.Range) -> Iterator[Any]:
            yield _fetch._Fetched(item, holder, lambda _: logs)     # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_reader, "sources", sources)
            rows = [
                row["position"] for batch in _reader.read_ranges(OPTIONS, SCHEMA, [item])
                for row in batch.to_pylist()
            ]
    assert rows == [end for begin, end, *_ in stream.messages if begin >= start]


def test_a_loss_between_two_logs_is_known(tmp_path: Path) -> None:
    stream = made.of_messages([bytes(100)] * 10)
    [edge, later] = stream.edges[3:5]
    whole = Logs(stream, [edge], tmp_path / "whole")
    lacking = Logs(stream, [edge], tmp_path / "lacking", gone=later - edge)
    for at in (0, edge):
        assert whole.view.severed_at(whole.session, at) is None
        assert lacking.view.severed_at(lacking.session, at) == later
    assert lacking.view.severed_at(lacking.session, later) is None
    [item] = planner.ranges(
        lacking.view, Offset(positions={lacking.session: 0}),
        Offset(positions={lacking.session: stream.position}),
    )
    assert item.holders == ()
