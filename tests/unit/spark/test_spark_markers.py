# SPDX-License-Identifier: Apache-2.0
"""Markers of the Spark sink, and the reader that makes whole parts of what arrives."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _arrow, _assembler, _digest
from penstock.spark_bridge._assembler import (
    Assembler,
    CommittedPart,
    PendingTooLarge,
    RepeatDiffers,
)
from penstock.spark_bridge.markers import (
    HEAD_BYTES,
    MAGIC,
    Content,
    Kind,
    Marker,
    MarkerError,
    Part,
    decode,
    encode,
)

QUERY, RUN = UUID(int=1), UUID(int=2)
parts = st.builds(
    Part,
    query=st.uuids(), run=st.uuids(), epoch=st.integers(0, 2**63 - 1),
    partition=st.integers(0, 2**32 - 1), attempt=st.integers(0, 2**63 - 1),
    key=st.binary(max_size=1024), job=st.booleans(),
)  # fmt: skip
contents = st.builds(
    Content,
    messages=st.integers(0, 2**64 - 1), bytes=st.integers(0, 2**64 - 1),
    crc=st.integers(0, 2**32 - 1), rows=st.integers(0, 2**64 - 1),
    digest=st.integers(0, 2**64 - 1),
)  # fmt: skip


def part_of(epoch: int, partition: int, attempt: int = 0, *, key: bytes = b"") -> Part:
    return Part(
        query=QUERY, run=RUN, epoch=epoch, partition=partition, attempt=attempt, key=key
    )


def rows_of(epoch: int, partition: int) -> list[bytes]:
    """What Spark computes for a place, in every attempt."""
    return [f"{epoch}/{partition}/{row}".encode() for row in range((epoch * 7 + partition) % 5)]


def content_of(rows: Sequence[bytes]) -> Content:
    joined = b"".join(rows)
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Content(
        messages=len(rows), bytes=len(joined), crc=zlib.crc32(joined), rows=len(rows),
        digest=_digest.of_messages(memoryview(joined), ends),
    )


def begin(part: Part) -> bytes:
    return encode(Marker(kind=Kind.BEGIN, part=part))


def commit(part: Part, rows: Sequence[bytes]) -> bytes:
    return encode(Marker(kind=Kind.COMMIT, part=part, content=content_of(rows)))


def send(
    reader: Assembler, session: int, part: Part, rows: Sequence[bytes]
) -> CommittedPart | None:
    """A whole attempt."""
    reader.marked(session, begin(part))
    reader.rows(session, rows)
    return next(iter(reader.marked(session, commit(part, rows))), None)


# ---- markers -------------------------------------------------------------------------------------


@given(part=parts, content=contents)
def test_a_marker_is_what_was_encoded(part: Part, content: Content) -> None:
    for marker in (
        Marker(kind=Kind.BEGIN, part=part), Marker(kind=Kind.COMMIT, part=part, content=content)
    ):
        assert decode(encode(marker)) == marker
        assert decode(memoryview(encode(marker))) == marker


@given(message=st.binary(max_size=2000))
def test_any_bytes_are_a_marker_or_an_error(message: bytes) -> None:
    for text in (message, MAGIC + message):
        try:
            assert encode(decode(text)) == text
        except MarkerError:
            continue


@given(part=parts, content=contents, data=st.data())
def test_a_changed_marker_never_passes_for_another_one(
    part: Part, content: Content, data: st.DataObject
) -> None:
    whole = encode(Marker(kind=Kind.COMMIT, part=part, content=content))
    at = data.draw(st.integers(0, len(whole) - 1))
    bad = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for message in (bad, whole[:at]):
        try:
            assert encode(decode(message)) == message
        except MarkerError:
            continue


def test_the_errors_say_what_is_wrong() -> None:
    good = begin(part_of(1, 2))
    for message, text in (
        (b"short", f"at least {HEAD_BYTES - 16} bytes, not 5"),
        (b"x" + good[1:], "begins with"),
        (good[:8] + b"\x03" + good[9:], "version 3"),
        (good[:9] + b"\x07" + good[10:], "kind 7"),
        (good + b"k", "a key of 0 bytes"),
        (good[:64] + b"\x01" + good[65:], "the marker BEGIN states rows"),
    ):
        with pytest.raises(MarkerError, match=text):
            decode(message)


# ---- parts ---------------------------------------------------------------------------------------


@attrs.frozen
class Attempt:
    """What a task did: everything, or it died on the way, or a row of it was lost."""

    epoch: int
    partition: int
    fate: str


attempts = st.builds(
    Attempt, st.integers(0, 3), st.integers(0, 2),
    st.sampled_from(["whole", "whole", "died", "lost a row"]),
)
#: What each of several workers did, one attempt after another.
workers = st.lists(st.lists(attempts, max_size=5), min_size=1, max_size=4)


def stream_of(number: int, done: Sequence[Attempt]) -> list[tuple[str, bytes | list[bytes]]]:
    """What a worker put into its session, and in which attempts nothing is missing."""
    steps: list[tuple[str, bytes | list[bytes]]] = []
    for index, attempt in enumerate(done):
        part = part_of(attempt.epoch, attempt.partition, number * 100 + index)
        rows = rows_of(attempt.epoch, attempt.partition)
        steps.append(("mark", begin(part)))
        kept = rows[1:] if attempt.fate == "lost a row" else rows
        kept = kept[: len(kept) // 2] if attempt.fate == "died" else kept
        steps.extend(("rows", [row]) for row in kept)
        if attempt.fate != "died":
            steps.append(("mark", commit(part, rows)))
    return steps


def is_whole(attempt: Attempt) -> bool:
    """A part without rows has none to lose."""
    return attempt.fate == "whole" or (
        attempt.fate == "lost a row" and not rows_of(attempt.epoch, attempt.partition)
    )


@given(done=workers, data=st.data())
def test_each_place_comes_once_and_whole_however_attempts_interleave(
    done: list[list[Attempt]], data: st.DataObject
) -> None:
    reader = Assembler()
    queues = [stream_of(number, attempts) for number, attempts in enumerate(done)]
    out: list[CommittedPart] = []
    while any(queues):
        number = data.draw(st.sampled_from([n for n, queue in enumerate(queues) if queue]))
        kind, what = queues[number].pop(0)
        if kind == "rows":
            assert isinstance(what, list)
            reader.rows(number, what)
        else:
            assert isinstance(what, bytes)
            out += reader.marked(number, what)
    for number in range(len(done)):
        reader.ended(number)

    everything = [attempt for attempts in done for attempt in attempts]
    whole = [(attempt.epoch, attempt.partition) for attempt in everything if is_whole(attempt)]
    assert sorted((part.epoch, part.partition) for part in out) == sorted(set(whole))
    for part in out:
        assert list(part.messages) == rows_of(part.epoch, part.partition)
    seen = reader.statistics
    assert (seen.parts, seen.repeats) == (len(set(whole)), len(whole) - len(set(whole)))
    assert seen.partial == len(everything) - len(whole)
    assert seen.messages == sum(len(part.messages) for part in out)
    assert seen.pending_bytes == 0
    assert (seen.headless, seen.malformed) == (0, 0)


@given(done=workers, cut=st.integers(0, 60))
def test_a_reader_that_joins_late_or_goes_on_from_its_state_repeats_nothing(
    done: list[list[Attempt]], cut: int
) -> None:
    """The first reader stops somewhere; the second has its state and reads on from there."""
    steps = [(n, step) for n, attempts in enumerate(done) for step in stream_of(n, attempts)]
    out: list[tuple[int, int]] = []
    reader = Assembler()
    for index, (session, (kind, what)) in enumerate(steps):
        if index == cut:
            state = json.loads(json.dumps(reader.state()))
            reader = Assembler(state=state)
            assert reader.state() == state
        if kind == "rows":
            reader.rows(session, what)  # type: ignore[arg-type]
            continue
        for found in reader.marked(session, what):  # type: ignore[arg-type]
            assert list(found.messages) == rows_of(found.epoch, found.partition)
            out.append((found.epoch, found.partition))
    assert len(out) == len(set(out))


def test_open_and_given_up_parts_are_shown() -> None:
    reader = Assembler()
    reader.marked(1, begin(part_of(1, 0, 5)))
    reader.rows(1, [b"a", b"b"])
    assert [(p.reason, p.messages) for p in reader.partial] == [("open", 2)]
    reader.marked(1, begin(part_of(1, 0, 6)))
    reader.marked(2, begin(part_of(1, 1, 7)))
    reader.ended(2)
    reader.marked(1, commit(part_of(1, 0, 6), [b"never came"]))
    assert [(p.reason, p.part.attempt) for p in reader.partial] == [
        ("abandoned", 5), ("ended", 7), ("damaged", 6),
    ]  # fmt: skip
    assert reader.statistics.partial == 3
    assert reader.statistics.partial_messages == 2


def test_a_commit_of_another_part_completes_nothing() -> None:
    """Its BEGIN, and the end of the part before it, were lost."""
    reader = Assembler()
    reader.marked(1, begin(part_of(1, 0)))
    reader.rows(1, [b"x"])
    assert reader.marked(1, commit(part_of(2, 0), [b"x"])) == []
    assert [p.reason for p in reader.partial] == ["damaged"]


def test_queries_that_were_seen_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_assembler, "_QUERIES_KEPT", 2)
    first, second, third = (attrs.evolve(part_of(1, 0), query=UUID(int=n)) for n in (7, 8, 9))
    reader = Assembler()
    for part in (first, second, attrs.evolve(first, epoch=2)):
        assert send(reader, 1, part, [b"x"]) is not None
    reader.marked(2, begin(attrs.evolve(second, attempt=5)))    # a repeat: its rows are not kept
    reader.rows(2, [b"x"])
    assert send(reader, 1, third, [b"x"]) is not None
    assert reader.state()["queries"].keys() == {str(UUID(int=7)), str(UUID(int=9))}
    assert reader.marked(2, commit(attrs.evolve(second, attempt=5), [b"x"])) == []
    assert reader.statistics.repeats == 1


def test_keys_are_parts_of_their_own() -> None:
    reader = Assembler()
    assert send(reader, 1, part_of(1, 0, key=b"a"), [b"1"]) is not None
    assert send(reader, 2, part_of(1, 0, key=b"b"), [b"2"]) is not None
    assert send(reader, 3, part_of(1, 0, 9, key=b"b"), [b"2"]) is None
    assert reader.statistics.repeats == 1


def test_a_repeat_with_other_rows_is_an_error_and_reading_goes_on() -> None:
    reader = Assembler()
    assert send(reader, 1, part_of(1, 0), [b"one"]) is not None
    with pytest.raises(RepeatDiffers, match=r"epoch 1 partition 0 .* 2 messages, .* had 1"):
        send(reader, 1, part_of(1, 0, 4), [b"one", b"two"])
    assert send(reader, 1, part_of(2, 0), [b"two"]) is not None


def test_a_repeat_with_the_same_rows_in_another_order_is_a_repeat() -> None:
    """Behind a shuffle Spark keeps no order."""
    reader = Assembler()
    assert send(reader, 1, part_of(1, 0), [b"one", b"two", b"three"]) is not None
    assert send(reader, 2, part_of(1, 0, 4), [b"three", b"one", b"two"]) is None
    assert reader.statistics.repeats == 1
    with pytest.raises(RepeatDiffers):
        send(reader, 2, part_of(1, 0, 5), [b"three", b"one", b"tow"])


@given(rows=st.lists(st.binary(max_size=20), max_size=20), data=st.data())
def test_the_digest_knows_rows_and_not_their_order(rows: list[bytes], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rows))
    assert content_of(rows).digest == content_of(other).digest
    if rows:
        at = data.draw(st.integers(0, len(rows) - 1))
        changed = [*rows[:at], rows[at] + b"\0", *rows[at + 1 :]]
        assert content_of(rows).digest != content_of(changed).digest


_arrow_rows = st.lists(st.fixed_dictionaries({
    "n": st.none() | st.integers(-(2**63), 2**63 - 1), "s": st.none() | st.text(max_size=5),
    "b": st.none() | st.booleans(), "l": st.none() | st.lists(st.integers(0, 3), max_size=3),
    "d": st.none() | st.decimals(-100, 100, places=2),
    "t": st.none() | st.fixed_dictionaries({"x": st.none() | st.floats(allow_nan=False)}),
}), max_size=12)


@given(rows=_arrow_rows, size=st.integers(1, 12), data=st.data())
def test_the_digest_of_arrow_rows_is_that_of_any_split(
    rows: list[dict[str, object]], size: int, data: st.DataObject
) -> None:
    schema = pa.schema([
        ("n", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("l", pa.list_(pa.int32())),
        ("d", pa.decimal128(6, 2)), ("t", pa.struct([("x", pa.float64())])),
    ])

    def total(found: list[dict[str, object]], most: int) -> int:
        batches = pa.Table.from_pylist(found, schema=schema).to_batches(max_chunksize=most)
        return sum(map(_digest.of_batch, batches)) % 2**64

    assert total(rows, 100) == total(data.draw(st.permutations(rows)), size)
    if rows:
        assert total(rows, 100) != total(rows[1:], 100)


def test_a_fingerprint_tells_a_bigint_from_a_double() -> None:
    one = _arrow.fingerprint(pa.schema([("id", pa.int64())]))
    assert one != _arrow.fingerprint(pa.schema([("id", pa.float64())]))
    assert one != _arrow.fingerprint(pa.schema([("di", pa.int64())]))
    assert _arrow.is_fingerprint(one)
    assert not _arrow.is_fingerprint(0)
    zones = [pa.schema([("t", pa.timestamp("us", tz=zone))]) for zone in ("UTC", "Europe/Berlin")]
    assert len(set(map(_arrow.fingerprint, zones))) == 1
    assert _arrow.fingerprint(pa.schema([("t", pa.timestamp("us"))])) != \
        _arrow.fingerprint(zones[0])


def test_markers_of_version_1_are_read() -> None:
    """They end before the rows and the digest, and know no jobs."""
    part, rows = part_of(1, 2, key=b"k"), [b"a", b"b"]
    reader = Assembler()
    for message in (begin(part), *rows, commit(part, rows)):
        if message in rows:
            reader.rows(1, [message])
            continue
        old = message[:8] + b"\x01" + message[9 : HEAD_BYTES - 16] + b"k"
        found = reader.marked(1, old)
    assert [list(one.messages) for one in found] == [rows]


# ---- jobs ----------------------------------------------------------------------------------------


def job_part(run: int, partition: int, attempt: int = 0) -> Part:
    return attrs.evolve(part_of(0, partition, attempt), run=UUID(int=run), job=True)


def end_of(run: int, parts: int, kind: Kind = Kind.JOB_COMMIT) -> bytes:
    return encode(Marker(
        kind=kind, part=job_part(run, 0), content=Content(messages=parts),
    ))


def test_parts_of_a_job_come_when_it_is_committed() -> None:
    reader = Assembler()
    assert send(reader, 1, job_part(5, 1), [b"b"]) is None
    assert send(reader, 2, job_part(5, 0), [b"a"]) is None
    assert send(reader, 2, job_part(5, 0, 9), [b"a"]) is None       # a speculative attempt
    assert [p.reason for p in reader.partial] == ["job", "job"]
    found = reader.marked(3, end_of(5, 2))
    assert [list(part.messages) for part in found] == [[b"a"], [b"b"]]
    assert reader.statistics.pending_bytes == 0
    assert (reader.statistics.parts, reader.statistics.repeats) == (2, 1)


def test_the_end_of_a_job_may_come_before_its_parts() -> None:
    """It has a session of its own, and the parts may have been lost and sent again."""
    reader = Assembler()
    assert reader.marked(3, end_of(5, 2)) == []
    assert send(reader, 1, job_part(5, 1), [b"b"]) is None
    reader.marked(2, begin(job_part(5, 0)))
    reader.rows(2, [b"a"])
    assert len(reader.marked(2, commit(job_part(5, 0), [b"a"]))) == 2


def test_runs_of_a_job_are_told_apart_in_any_order_of_their_sessions() -> None:
    """The driver's session is read first: a run that failed, and two that did not."""
    reader = Assembler()
    for run, parts, kind in ((5, 0, Kind.JOB_ABORT), (6, 2, Kind.JOB_COMMIT),
                             (7, 2, Kind.JOB_COMMIT)):
        assert reader.marked(3, end_of(run, parts, kind)) == []
    assert send(reader, 1, job_part(5, 0), [b"a"]) is None
    assert send(reader, 1, job_part(6, 0), [b"a"]) is None
    assert send(reader, 1, job_part(7, 0), [b"a"]) is None
    assert send(reader, 2, job_part(6, 1), [b"b"]) is not None
    assert send(reader, 2, job_part(7, 1), [b"b"]) is None
    assert reader.statistics.parts == 2
    assert reader.statistics.pending_bytes == 0


@pytest.mark.parametrize("told", [True, False])
def test_a_job_that_failed_is_never_handed_out_and_its_repeat_is(told: bool) -> None:
    """The driver says so, or died and cannot."""
    reader = Assembler()
    send(reader, 1, job_part(5, 0), [b"of the first run"])
    if told:
        assert reader.marked(3, end_of(5, 0, Kind.JOB_ABORT)) == []
    send(reader, 1, job_part(6, 0), [b"a"])
    send(reader, 1, job_part(6, 1), [b"b"])
    found = reader.marked(3, end_of(6, 2))
    assert [list(part.messages) for part in found] == [[b"a"], [b"b"]]
    assert [p.reason for p in reader.partial] == ["aborted" if told else "abandoned"]


def test_a_job_that_is_written_again_is_not_doubled_however_it_is_split() -> None:
    reader = Assembler()
    for run, split in ((5, [[b"a"], [b"b"]]), (6, [[b"a", b"b"]]), (7, [[b"b"], [b"a"]])):
        for partition, rows in enumerate(split):
            assert send(reader, 1, job_part(run, partition), rows) is None
        found = reader.marked(3, end_of(run, len(split)))
        assert len(found) == (2 if run == 5 else 0)
        reader = Assembler(state=json.loads(json.dumps(reader.state())))


def test_a_job_that_is_too_large_is_given_up_whole() -> None:
    reader = Assembler(max_pending_bytes=10)
    assert send(reader, 1, job_part(5, 0), [b"12345"]) is None
    with pytest.raises(PendingTooLarge, match="jobCommit=false"):
        send(reader, 1, job_part(5, 1), [b"123456"])
    assert reader.statistics.pending_bytes == 0


def test_epochs_beyond_memory_count_as_handed_out() -> None:
    reader = Assembler(remember=2)
    for epoch in range(5):
        assert send(reader, 1, part_of(epoch, 0), [b"x"]) is not None
    assert send(reader, 1, part_of(0, 0, 9), [b"something else"]) is None
    assert send(reader, 1, part_of(3, 0, 9), [b"x"]) is None
    assert reader.statistics.repeats == 2
    assert list(reader.state()["queries"][str(QUERY)]["epochs"]) == ["3", "4"]


def test_parts_that_never_end_are_bounded() -> None:
    reader = Assembler(max_pending_bytes=10)
    reader.marked(1, begin(part_of(1, 0)))
    reader.rows(1, [b"12345"])
    with pytest.raises(PendingTooLarge, match=r"11 bytes wait .* the limit is 10"):
        reader.rows(1, [b"123456"])
    assert reader.statistics.pending_bytes == 0
    assert send(reader, 1, part_of(2, 0), [b"12345"]) is not None


def test_rows_and_commits_without_a_begin_are_counted() -> None:
    reader = Assembler()
    reader.rows(1, [b"late", b"comer"])
    assert reader.marked(1, commit(part_of(1, 0), [b"late", b"comer"])) == []
    assert reader.marked(1, b"not a marker") == []
    assert (reader.statistics.headless, reader.statistics.malformed) == (2, 1)


@pytest.mark.parametrize(
    "state", [{}, {"version": 9, "queries": {}}, {"version": 1, "queries": {"x": 1}},
              {"version": 1, "queries": {str(QUERY): {"floor": "high", "epochs": {}}}},
              {"version": 1, "queries": {str(QUERY): {"floor": 0, "epochs": {"1": [[0]]}}}}],
)  # fmt: skip
def test_a_state_that_is_none_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="state"):
        Assembler(state=state)
