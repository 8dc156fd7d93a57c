# SPDX-License-Identifier: Apache-2.0
"""What a batch takes and who reads it: properties of the planner, and a query's life played through
with sessions that begin, end, are lost and joined again."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import GroupState, LogRange
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _planner as planner
from penstock.spark_bridge import _splitting
from penstock.spark_bridge._locality import assign
from penstock.spark_bridge._offsets import Left, Offset, Session
from penstock.spark_bridge._options import StreamName, read_options
from penstock.spark_bridge._planner import Holder, Range, View
from penstock.spark_bridge._planning import Planning
from penstock.spark_bridge._reader import DataLoss

CHANNEL = "aeron:udp?endpoint=localhost:40456|term-length=64k"
STREAM = StreamName(channel=CHANNEL, stream_id=1001)


def session(number: int) -> Session:
    return Session(channel=CHANNEL, stream_id=1001, session_id=number, initial_term_id=-number)


def log(number: int, **fields: Any) -> LogRange:
    known: dict[str, Any] = {
        "log_id": 10 + number, "channel": CHANNEL, "stream_id": 1001, "session_id": number,
        "initial_term_id": -number, "term_length": 65536, "mtu": 1408, "log_path": f"log{number}",
        "retained_from": 0, "committed": 0, "end_position": 0, "ended": False,
        "window_bytes": 32768, "time_index": [],
    }
    return LogRange(**(known | fields))


def state(*logs: LogRange, daemon_id: int = 1, group_id: int = 5) -> GroupState:
    return GroupState(
        name="q", channel=CHANNEL, stream_id=1001, group_id=group_id, daemon_id=daemon_id,
        daemon_epoch=1, host=f"host{daemon_id}", expires_ns=10**9, warnings=[], unreliable=[],
        logs=list(logs),
    )


def view(*logs: LogRange) -> View:
    return View.of([(0, state(*logs))])


@given(available=st.dictionaries(st.integers(0, 20), st.integers(1, 10**6), min_size=1),
       limit=st.integers(1, 10**7))
def test_shares_are_max_min_fair(available: dict[int, int], limit: int) -> None:
    parts = planner.share(available, limit)
    assert parts.keys() == available.keys()
    assert all(1 <= parts[key] <= available[key] for key in parts)
    assert sum(parts.values()) <= max(limit, len(parts))
    cut = [parts[key] for key in parts if parts[key] < available[key]]
    if cut:
        # Who is cut has as much as anybody (but for rounding), and nothing is left over.
        assert max(parts.values()) <= max(min(cut) + len(parts), 1)
        assert sum(parts.values()) >= limit - len(parts)


@given(ends=st.lists(st.integers(0, 4000).map(lambda n: 32 * n), min_size=1, max_size=5),
       done=st.lists(st.integers(0, 4000).map(lambda n: 32 * n), min_size=5, max_size=5),
       window=st.integers(1, 200_000), limit=st.none() | st.integers(1, 10**6),
       target=st.none() | st.integers(0, 10**5))
def test_no_batch_takes_more_than_half_a_window_or_goes_beyond_the_target(
    ends: list[int], done: list[int], window: int, limit: int | None, target: int | None
) -> None:
    logs = [
        log(n, end_position=end, committed=min(done[n], end), window_bytes=window)
        for n, end in enumerate(ends)
    ]
    start = Offset(positions={session(n): min(done[n], end) for n, end in enumerate(ends)})
    targets = None if target is None else {session(n): target for n in range(len(ends))}
    for want in planner.wants(view(*logs), start, max_bytes=limit, target=targets):
        number = want.session.session_id
        assert want.start == start.positions[want.session]
        assert 1 <= want.max_bytes <= max(1, window // 2)
        assert want.start + want.max_bytes <= ends[number]
        assert target is None or want.start + want.max_bytes <= target


@given(lengths=st.lists(st.integers(1, 10**6), max_size=30), count=st.integers(1, 12))
def test_each_range_is_read_by_one_task(lengths: list[int], count: int) -> None:
    table = [made_range(n, 0, 32 * length) for n, length in enumerate(lengths)]
    tasks = planner.pack(table, count)
    assert len(tasks) == count
    assert sorted(index for task in tasks for index in task) == list(range(len(table)))
    # In order from task to task, neighbours together, none idle while another has two.
    assert [index for task in tasks for index in task] == list(range(len(table)))
    assert all(tasks[:len(table)]) or len(table) == 0
    loads = [sum(table[i].length for i in task) for task in tasks]
    largest = max((r.length for r in table), default=0)
    if len(table) > count:
        assert max(loads) <= sum(loads) / count + 2 * largest
    assert planner.pack(table, count, apart=True) == [(n,) for n in range(len(table))] or not table
    cuts = planner.pieces(table, count)
    assert all(number >= 1 for number in cuts)
    assert sum(cuts) <= count + len(table)


def made_range(number: int, start: int, end: int, *names: str) -> Range:
    holder = Holder(daemon=0, daemon_id=1, daemon_epoch=1, host="h", log_id=1, log_path="",
                    names=names)
    return Range(session=session(number), start=start, end=end, term_length=65536,
                 holders=(holder,))


@given(homes=st.lists(st.sampled_from(["a", "b", "nowhere"]), max_size=20),
       hosts=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6))
def test_ranges_go_to_tasks_on_their_hosts(homes: list[str], hosts: list[str]) -> None:
    table = [made_range(n, 0, 32 * (n + 1), home) for n, home in enumerate(homes)]
    tasks = assign(table, hosts)
    assert sorted(index for task in tasks for index in task) == list(range(len(table)))
    for task, host in zip(tasks, hosts, strict=True):
        for index in task:
            assert homes[index] == host or homes[index] not in hosts


def test_a_range_is_cut_where_it_may_be_and_has_the_times_of_its_offset() -> None:
    now = [(4096 * n, 10**9 * n) for n in range(1, 9)]      # what a daemon would say by now
    found = planner.ranges(
        view(log(1, end_position=32768, time_index=now)), Offset(positions={session(1): 4096}),
        Offset(positions={session(1): 16384}, times={session(1): "frozen"}),
    )
    assert [(r.start, r.end, r.times) for r in found] == [(4096, 16384, "frozen")]
    parts = planner.split(found[0], [4096, 8192, 16384])
    assert [(r.start, r.end) for r in parts] == [(4096, 8192), (8192, 16384)]
    assert all(part.times == "frozen" for part in parts)


def test_tasks_are_as_many_as_there_is_work_for() -> None:
    assert planner.partition_count(100, wanted=None, cores=8) == 1
    assert planner.partition_count(10**6, wanted=None, cores=8) == 4
    assert planner.partition_count(10**9, wanted=None, cores=8) == 8
    assert planner.partition_count(100, wanted=20, cores=8) == 20


# ---- offsets -------------------------------------------------------------------------------------


_sessions = st.builds(
    Session, channel=st.sampled_from(["aeron:ipc", CHANNEL]), stream_id=st.integers(-5, 5),
    session_id=st.integers(-(2**31), 2**31 - 1), initial_term_id=st.integers(-9, 9),
)
_positions = st.dictionaries(_sessions, st.integers(0, 2**50).map(lambda n: 32 * n), max_size=6)


@given(positions=_positions, begun=_positions, tasks=st.integers(0, 1024),
       records=st.integers(0, 2**62), data=st.data())
def test_offsets_are_the_same_text_however_they_were_made(
    positions: dict[Session, int], begun: dict[Session, int], tasks: int, records: int,
    data: st.DataObject,
) -> None:
    ended = data.draw(st.sets(st.sampled_from(sorted(positions)))) if positions else set()
    left = data.draw(st.dictionaries(_sessions, st.builds(
        Left, st.integers(0, 2**50).map(lambda n: 32 * n), st.integers(1, 2**40)), max_size=6))
    offset = Offset(positions=positions, begun=begun, ended=frozenset(ended), left=left,
                    groups={s.stream: "1.5 2.7" for s in positions},
                    held=dict.fromkeys(begun, "2.7"), tasks=tasks, records=records,
                    times=dict.fromkeys(positions, "gAEC"))
    text = json.dumps(offset.to_plain())
    assert Offset.from_plain(json.loads(text)) == offset
    shuffled = dict(data.draw(st.permutations(sorted(positions.items()))))
    assert json.dumps(attrs.evolve(offset, positions=shuffled).to_plain()) == text


@pytest.mark.parametrize("plain", [
    {"aeron:ipc|1|2": 32}, {"nonsense": 32}, {"aeron:ipc|1|2|3": 33}, {"aeron:ipc|1|2|3": -32},
    {"left|aeron:ipc|1|2|3": 32}, {"left|aeron:ipc|1|2|3": [33, 1]}, {"held|aeron:ipc": "1.1"},
    {"aeron:ipc|1|2|3": "32"}, {"group|aeron:ipc|x": "1.1"}, {"|1|2|3": 32},
    {"tasks": 0}, {"tasks": 1025}, {"tasks": "4"},
])
def test_what_is_no_offset_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Offset.from_plain(plain)


def test_a_checkpoint_of_an_older_version_is_read() -> None:
    older = {"aeron:ipc|1001|-77|12": 96, "end|aeron:ipc|1001|5|6": 64,
             "from|aeron:ipc|1001|-77|12": 32, "group|aeron:ipc|1001": "1.5 2.7"}
    offset = Offset.from_plain(older)
    assert offset.held == offset.left == {}
    assert offset.to_plain() == older


def test_a_checkpoint_of_another_query_is_named() -> None:
    offset = Offset(positions={session(1): 64})
    offset.check_streams((STREAM,))
    with pytest.raises(InvalidArgument, match=r"made for aeron:udp.*but the options.*aeron:ipc"):
        offset.check_streams((StreamName(channel="aeron:ipc", stream_id=1001),))
    only_groups = Offset(groups={StreamName(channel="aeron:ipc", stream_id=7): "1.5"})
    with pytest.raises(InvalidArgument, match="made for aeron:ipc stream 7"):
        only_groups.check_streams((STREAM,))


# ---- transitions ---------------------------------------------------------------------------------


def test_a_session_that_appears_is_read_from_where_the_offset_says() -> None:
    seen = view(log(1, retained_from=96, committed=96, end_position=320))
    after = planner.advance(seen, Offset(), {session(1): 320})
    assert after.to_plain()[f"from|{session(1)}"] == 96
    # Later, after the group went on, and after a restart: the same range.
    later = view(log(1, retained_from=320, committed=320, end_position=640))
    assert [(r.start, r.end) for r in planner.ranges(later, Offset(), after)] == [(96, 320)]
    assert planner.ranges(later, Offset(), after)[0].holders == ()
    assert "from|" not in json.dumps(
        planner.advance(later, after, {session(1): 640}).to_plain()
    )


def test_a_stream_that_ends_leaves_the_offsets_when_it_was_read() -> None:
    seen = view(log(1, end_position=320, ended=True), log(2, end_position=64))
    start = Offset(positions={session(1): 0, session(2): 0}, groups={STREAM: "1.5"})
    after = planner.advance(seen, start, {session(1): 320, session(2): 32})
    assert after.to_plain()[f"end|{session(1)}"] == 320
    assert not planner.losses(view(log(2, end_position=64)), after)
    further = planner.advance(view(log(2, end_position=64)), after, {session(2): 64})
    assert set(further.positions) == {session(2)}
    # As long as its end is not acknowledged, which comes late with ackOn=commit, it is no new one.
    held = view(log(1, end_position=320, ended=True), log(2, end_position=96))
    later = planner.advance(held, after, {session(2): 64})
    assert later.ended == {session(1)}
    assert [w.session for w in planner.wants(held, later, max_bytes=None)] == [session(2)]
    assert planner.ranges(held, after, later) == planner.ranges(held, after, further)


def test_nothing_new_is_the_same_offset() -> None:
    start = Offset(positions={session(1): 320})
    seen = view(log(1, end_position=320), log(2, end_position=0))
    assert planner.wants(seen, start, max_bytes=None) == []
    assert planner.advance(seen, start, {}) is start
    assert planner.advance(seen, start, {session(1): 320}) is start


def test_what_is_gone_is_a_loss_and_what_was_read_is_not() -> None:
    start = Offset(positions={session(1): 320}, groups={STREAM: "1.5"})
    assert planner.losses(view(log(1, retained_from=320, end_position=640)), start) == []
    (loss,) = planner.losses(view(log(1, retained_from=352, end_position=640)), start)
    assert (loss.start, loss.end) == (320, 352)
    assert planner.skip(start, [loss]).positions == {session(1): 352}
    # All read, then lost and joined again further on: what came between is missing.
    both = view(log(1, retained_from=0, end_position=320),
                log(1, log_id=99, retained_from=640, end_position=700))
    assert [(x.start, x.end) for x in planner.losses(both, start)] == [(320, 640)]
    # The group saw it to its end ...
    assert planner.losses(view(), attrs.evolve(start, groups={})) != []
    assert planner.losses(View.of([(0, state())]), start) == []
    # ... or is another one.
    (loss,) = planner.losses(View.of([(0, state(group_id=6))]), start)
    assert loss.end is None
    assert planner.skip(start, [loss]).positions == {}


def test_a_log_that_disappears_before_it_was_read_is_a_loss() -> None:
    """Its group is there: without what was seen, the session would pass for read to its end."""
    start = Offset(
        positions={session(1): 320, session(2): 320},
        groups=dict(view(log(1), log(2)).groups),
    )
    gone = view(log(3))
    assert planner.losses(gone, start) == []
    [loss] = planner.losses(gone, start, {session(1): 640, session(2): 320})
    assert (loss.session, loss.start, loss.end) == (session(1), 320, None)
    assert "data up to 640" in str(loss)


def test_a_session_that_comes_back_is_read_on() -> None:
    # Its connection was lost at 320, where the query had all of it; nothing else moves.
    start = Offset(positions={session(1): 0}, groups={STREAM: "1.5"})
    gone = log(1, end_position=320, ended=True)
    ended = planner.advance(view(gone), start, {session(1): 320})
    assert ended.to_plain()[f"end|{session(1)}"] == 320
    joined = log(1, log_id=99, retained_from=320, committed=320, end_position=640)
    for seen in (view(joined), view(gone, joined)):
        assert planner.losses(seen, ended) == []
        (want,) = planner.wants(seen, ended, max_bytes=None)
        assert (want.start, want.holding.log.log_id) == (320, 99)
        after = planner.advance(seen, ended, {session(1): 640})
        assert not after.ended
        assert [(r.start, r.end) for r in planner.ranges(seen, ended, after)] == [(320, 640)]
    # Further on than it was lost: what came between is missing.
    further = log(1, log_id=99, retained_from=480, committed=480, end_position=640)
    (loss,) = planner.losses(view(further), ended)
    assert (loss.start, loss.end) == (320, 480)
    # One that goes on elsewhere has not ended.
    assert not planner.advance(view(gone, joined), start, {session(1): 320}).ended


def test_a_daemon_that_is_gone_may_have_held_what_another_one_never_had() -> None:
    seen = View.of([(0, state(log(1, end_position=640), daemon_id=1)),
                    (1, state(log(2, end_position=640), daemon_id=2))])
    start = Offset(positions={session(1): 320, session(2): 320}, groups=seen.groups)
    assert planner.losses(seen, start) == []
    anew = View.of([(0, state(log(1, end_position=640), daemon_id=1)),
                    (1, state(daemon_id=3))])
    (loss,) = planner.losses(anew, start)
    assert (loss.session, loss.end) == (session(2), None)
    # An offset that says who held the session leaves no doubt.
    notified = planner.advance(seen, start, {session(1): 352, session(2): 352})
    (loss,) = planner.losses(anew, Offset.from_plain(notified.to_plain()))
    assert (loss.session, loss.end) == (session(2), None)


def test_a_session_that_was_read_to_its_end_is_no_loss_though_another_daemon_started_anew() -> None:
    # The first daemon alone had session 1, the two together session 3.
    seen = View.of([(0, state(log(1, end_position=640), log(3, end_position=640), daemon_id=1)),
                    (1, state(log(2, end_position=640), log(3, end_position=960), daemon_id=2))])
    start = Offset(positions={session(n): 0 for n in (1, 2, 3)}, groups=seen.groups)
    after = planner.advance(seen, start, {session(n): 640 for n in (1, 2, 3)})
    assert after.held == {session(1): "1.5", session(2): "2.5", session(3): "1.5 2.5"}
    anew = View.of([(0, state(daemon_id=1)), (1, state(log(2, end_position=640), daemon_id=3))])
    again = Offset.from_plain(json.loads(json.dumps(after.to_plain())))
    assert planner.losses(anew, again) == []
    # Who could not read it on is no witness.
    ahead = planner.advance(seen, start, {session(3): 960})
    assert ahead.held[session(3)] == "2.5"
    assert [x.session for x in planner.losses(anew, ahead)] == [session(3)]
    # And one group needs no such entries.
    assert planner.advance(view(log(1, end_position=64)), Offset(), {session(1): 64}).held == {}


def test_a_first_batch_whose_group_is_gone_is_not_planned_again_as_empty() -> None:
    first = view(log(1, end_position=640))
    start = Offset(positions={session(1): 0}, groups=first.groups)
    end = planner.advance(first, start, {session(1): 640})
    assert planner.outlived(first, start, end) == []
    # The group expired; the first offset, requested again, is where a new one stands.
    later = View.of([(0, state(log(1, retained_from=640, committed=640, end_position=640),
                               group_id=6))])
    anew = Offset(positions={session(1): 640}, groups=later.groups)
    assert planner.ranges(later, anew, end) == []
    assert planner.outlived(later, anew, end) == [STREAM]
    # With the offset that the checkpoint has, the positions tell.
    assert planner.outlived(later, start, end) == []
    assert planner.losses(later, start) != []
    # Another daemon that joined meanwhile is no loss.
    both = View.of([(0, state(log(1, end_position=640))), (1, state(daemon_id=2))])
    assert planner.outlived(both, start, attrs.evolve(end, groups=both.groups)) == []
    assert planner.outlived(both, attrs.evolve(start, groups=both.groups), end) == []


def test_of_two_daemons_the_one_that_is_behind_sets_the_end() -> None:
    seen = View.of([
        (0, state(log(1, end_position=640), daemon_id=1)),
        (1, state(log(1, retained_from=64, committed=64, end_position=320), daemon_id=2)),
    ])
    start = Offset(positions={session(1): 64})
    (want,) = planner.wants(seen, start, max_bytes=None)
    assert want.holding.daemon == 1
    (found,) = planner.ranges(seen, start, Offset(positions={session(1): 320}))
    assert [h.daemon for h in found.holders] == [0, 1]
    (found,) = planner.ranges(seen, start, Offset(positions={session(1): 640}))
    assert [h.daemon for h in found.holders] == [0]
    # Before the second one joined only the first can serve.
    (want,) = planner.wants(seen, Offset(positions={session(1): 0}), max_bytes=None)
    assert want.holding.daemon == 0
    # One that stands still holds nobody up.
    (want,) = planner.wants(seen, Offset(positions={session(1): 320}), max_bytes=None)
    assert want.holding.daemon == 0


@given(events=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(
    ["grow", "grow", "grow", "end"]), st.integers(1, 600)), max_size=60),
    window=st.sampled_from([64, 4096, 32768]), limit=st.none() | st.integers(1, 5000),
    late=st.integers(0, 3))
@settings(max_examples=200)
def test_each_byte_is_read_once_whatever_comes_between(
    events: list[tuple[int, str, int]], window: int, limit: int | None, late: int
) -> None:
    """Messages of 32 bytes; each event is followed by a batch, and acknowledgements come ``late``
    batches later than latestOffset would: ackOn=commit with asynchronous progress tracking."""
    logs: dict[int, LogRange] = {}
    read: dict[Session, int] = {}
    first: dict[Session, int] = {}
    offset = Offset(groups={STREAM: "1.5"})
    planned = [offset]
    current: dict[int, int] = {}
    for source, event, amount in [*events, *[(9, "grow", 0)] * 40]:
        number = current.get(source, source)
        known = logs.get(number)
        if session(number) in first and known is None:      # it ended: a publisher starts anew
            number = current[source] = number + 10
        if known is None and source < 9:
            at = 32 * amount
            logs[number] = log(number, retained_from=at, committed=at, end_position=at,
                               window_bytes=window)
            first[session(number)] = at
        elif event == "end" and known is not None:
            logs[number] = attrs.evolve(known, ended=True)
        elif known is not None and not known.ended:
            room = known.committed + known.window_bytes - known.end_position
            grown = min(32 * amount, room // 32 * 32)
            logs[number] = attrs.evolve(known, end_position=known.end_position + grown)
        durable = planned[max(0, len(planned) - 1 - late)]
        for key, one in list(logs.items()):
            done = max(one.committed, durable.positions.get(session(key), 0))
            logs[key] = attrs.evolve(one, committed=done, retained_from=done)
            if one.ended and done == one.end_position:
                del logs[key]
        seen = view(*logs.values())
        assert planner.losses(seen, offset) == []
        ends = {
            want.session: want.start + max(32, want.max_bytes // 32 * 32)
            for want in planner.wants(seen, offset, max_bytes=limit)
        }
        after = planner.advance(seen, offset, ends)
        after = Offset.from_plain(json.loads(json.dumps(after.to_plain())))
        for item in planner.ranges(seen, offset, after):
            assert item.holders
            assert item.start == read.get(item.session, first[item.session])
            read[item.session] = item.end
        offset = after
        planned.append(offset)
    for key, one in logs.items():
        if limit is None:
            assert read.get(session(key), first[session(key)]) == one.end_position


def planning_of(*, fail: bool) -> Planning:
    """As a driver has it that has just started."""
    return Planning(read_options({
        "channel": CHANNEL, "streamId": "1001", "subscription": "q", "failOnDataLoss": str(fail),
    }))


@pytest.mark.parametrize("fail", [True, False])
def test_a_session_that_left_the_offsets_and_comes_back_further_on_is_a_loss(fail: bool) -> None:
    """Also for the next driver, which knows only what is in the checkpoint."""
    start = Offset(positions={session(1): 320, session(2): 0}, ended=frozenset({session(1)}))
    after = planner.advance(view(log(2, end_position=64)), start, {session(2): 64})
    assert set(after.positions) == {session(2)}
    after = planner.advance(view(log(2, end_position=96)), after, {session(2): 96})
    after = Offset.from_plain(json.loads(json.dumps(after.to_plain())))
    planning = planning_of(fail=fail)
    planning._check_returns(view(log(2, end_position=96)), after)
    joined = view(log(1, log_id=99, retained_from=480, committed=480, end_position=640))
    if fail:
        with pytest.raises(DataLoss, match=r"160 bytes from position 320.*joined again at 480"):
            planning._check_returns(joined, after)
    else:
        for _ in range(2):
            planning._check_returns(joined, after)      # told once, however often it is seen
        assert planning.report()["lostBytes"] == 160
    planning.stop()
    # One that goes on where it was left has lost nothing, and is none that left any more.
    seen = view(log(1, committed=320, end_position=640), log(2, end_position=96))
    assert planner.returns(seen, after) == []
    assert planner.advance(seen, after, {session(1): 640}).left == {}


def test_a_range_that_no_daemon_holds_is_one_loss_however_often_it_is_planned() -> None:
    lost = Range(session=session(1), start=64, end=192, term_length=65536, holders=())
    planning = planning_of(fail=False)
    for _ in range(2):
        assert planning._with_holders([lost]) == []
    found = planning.report()
    planning.stop()
    assert (found["lostBytes"], found["losses"]) == (128, 1)


def test_of_the_sessions_that_left_the_latest_are_remembered() -> None:
    count = planner.REMEMBERED + 10
    offset = Offset(positions={session(0): 0})
    for number in range(1, count + 1):
        seen = view(log(0, end_position=32 * number), log(number, end_position=32))
        offset = planner.advance(seen, offset, {session(0): 32 * number, session(number): 32})
    assert len(offset.left) == planner.REMEMBERED
    assert session(count - 1) in offset.left
    assert session(1) not in offset.left


def test_what_goes_beyond_the_target_is_planned_as_if_it_had_not_been_checked() -> None:
    seen = view(log(1, end_position=640, ended=True), log(2, end_position=64),
                log(3, committed=96, end_position=640))
    begin = Offset(positions={session(1): 320, session(2): 0}, left={session(3): Left(96, 1)})
    after = planner.advance(seen, begin, {session(1): 640, session(2): 64, session(3): 640})
    assert after.ended == {session(1)}
    cut = planner.not_beyond(after, {session(1): 352, session(2): 64, session(3): 128}, begin)
    assert cut.positions == {session(1): 320, session(2): 64}
    assert cut.ended == frozenset()         # there is more of it
    assert cut.left == begin.left


@given(length=st.integers(1, 2000), pieces=st.integers(1, 40), message=st.integers(1, 5),
       reach=st.integers(10, 2000))
def test_tasks_have_equal_parts_of_a_range_that_one_request_does_not_walk(
    length: int, pieces: int, message: int, reach: int
) -> None:
    """A daemon walks a stretch at a time; in units of 32 bytes."""
    planning = planning_of(fail=True)

    def cut_places(
        want: planner.Want, *, max_bytes: int, max_messages: int, pieces: int
    ) -> tuple[list[int], int]:
        assert max_bytes <= 32 * reach
        step = 32 * message
        last = max(step, max_bytes // step * step)
        places = {last * n // pieces // step * step for n in range(1, pieces)} | {last}
        return sorted(want.start + place for place in places if place > 0), 0

    planning._subscription.cut_places = cut_places  # type: ignore[method-assign]
    end = 32 * message * length
    item = made_range(1, 0, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_splitting, "CUT_BYTES", 32 * reach)
        places = planning._splitting.places(view(log(1, end_position=end)), item, pieces)
    planning.stop()
    assert places == sorted(set(places))
    parts = [part.length for part in planner.split(item, places)]
    assert len(parts) <= pieces
    if pieces <= length // 4:
        assert max(parts) <= 9 / 8 * end / pieces + 3 * 32 * message
