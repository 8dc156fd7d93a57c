# SPDX-License-Identifier: Apache-2.0
"""Plan a batch and its tasks from the known states of the daemons, without sending requests to the
daemons.

Several daemons may have a log of the same session (multicast). One daemon may have two logs of a
session, if the session's first image ended and a second image began later. A *holding* is one log
of a session on one daemon. The frames of a session are equal in all its holdings, so the source can
read a position from any holding that retains this position.

A batch contains at most half of a session's window, so that the sender can fill the other half
while the query processes the batch. The limits of a query on the size of a batch apply to the sum
over all sessions. The planner divides each of these limits among the sessions by max-min fairness:
a session with little data never waits because another session has much data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from penstock.client import GroupState, LogRange
from penstock.spark_bridge._offsets import Left, Offset, Session
from penstock.spark_bridge._options import StreamName

#: Least bytes of a task, because a task costs tens of milliseconds.
SMALLEST_PART: Final = 256 * 1024
#: Number of ended sessions in an offset, which may return.
REMEMBERED: Final = 128
_K = TypeVar("_K")


@attrs.frozen(kw_only=True)
class Holding:
    """A log of a session on one daemon. The daemon is identified by its index in the query's
    options."""

    daemon: int
    daemon_id: int
    daemon_epoch: int
    host: str
    group: str               # daemon and group, in the form of offsets
    log: LogRange

    @property
    def session(self) -> Session:
        return Session(
            channel=self.log.channel, stream_id=self.log.stream_id,
            session_id=self.log.session_id, initial_term_id=self.log.initial_term_id,
        )

    def readable(self, position: int) -> bool:
        """Return whether this log contains the data at ``position``."""
        return self.log.retained_from <= position < self.log.end_position


@attrs.frozen(kw_only=True)
class View:
    """State of all daemons at one moment: the logs and consumer groups that concern the query."""

    holdings: Mapping[Session, Sequence[Holding]] = attrs.Factory(dict)
    groups: Mapping[StreamName, str] = attrs.Factory(dict)

    @classmethod
    def of(cls, states: Sequence[tuple[int, GroupState]]) -> View:
        """Create a view from the states of consumer groups. Each state comes with the number of its
        daemon in the query's options."""
        holdings: dict[Session, list[Holding]] = {}
        marks: dict[StreamName, list[str]] = {}
        for daemon, state in states:
            stream = StreamName(channel=state.channel, stream_id=state.stream_id)
            mark = f"{state.daemon_id:x}.{state.group_id:x}"
            marks.setdefault(stream, []).append(mark)
            for log in state.logs:
                holding = Holding(
                    daemon=daemon, daemon_id=state.daemon_id, daemon_epoch=state.daemon_epoch,
                    host=state.host, group=mark, log=log,
                )
                holdings.setdefault(holding.session, []).append(holding)
        return cls(
            holdings={session: holdings[session] for session in sorted(holdings)},
            groups={stream: " ".join(sorted(found)) for stream, found in marks.items()},
        )

    def first(self, session: Session) -> int:
        """Return the position at which the query begins to read a new session."""
        return min(holding.log.committed for holding in self.holdings[session])

    def end(self, session: Session) -> int:
        """Return the highest position at which a daemon's log of the session ends; 0 if no daemon
        has the session.
        """
        return max((h.log.end_position for h in self.holdings.get(session, ())), default=0)

    def source(self, session: Session, position: int) -> Holding | None:
        """Return the log from which to plan a batch at ``position``. Of the logs that contain this
        position, this is the log that ends first. Every daemon with such a log can then serve the
        batch."""
        found = [h for h in self.holdings.get(session, ()) if h.readable(position)]
        return min(found, key=lambda h: (h.log.end_position, h.daemon), default=None)

    def chain(self, session: Session, position: int) -> list[Holding]:
        """Return the logs from which to plan a batch at ``position``. The first is the log that
        :meth:`source` returns; each further log begins where the log before it ends. If the sender
        of an ended session continues later, the session's next log begins at the end position of
        the ended log. Planning needs both logs, because a message or a sink's part can begin in one
        log and end in the next.
        """
        found = []
        while (holding := self.source(session, position)) is not None:
            found.append(holding)
            if not holding.log.ended:
                break
            position = holding.log.end_position
        return found

    def want(self, session: Session, position: int, max_bytes: int) -> Want | None:
        """Return a :class:`Want` to read the session from ``position`` on; return None if no log
        can be read at this position.
        """
        found = self.chain(session, position)
        if not found:
            return None
        return Want(
            session=session, holding=found[0], behind=tuple(found[1:]), start=position,
            max_bytes=max_bytes,
        )

    def severed_at(self, session: Session, position: int) -> int | None:
        """From ``position`` on, the query can read only the logs that :meth:`chain` returns. If the
        session's next log begins after the end of these logs, data is missing: return the position
        at which this next log begins. Otherwise, return None.
        """
        found = self.chain(session, position)
        if found and not found[-1].log.ended:
            return None
        end = found[-1].log.end_position if found else position
        return min(
            (h.log.retained_from for h in self.holdings.get(session, ())
             if h.log.retained_from > end),
            default=None,
        )

    def held(self, positions: Mapping[Session, int]) -> dict[Session, str]:
        """Return, for each session, the consumer groups that retain the session from its position
        in ``positions`` on. Omit a session if its stream has only one group.
        """
        found = {}
        for session, position in positions.items():
            marks = {
                h.group for h in self.holdings.get(session, ()) if h.log.end_position >= position
            }
            if marks and " " in self.groups.get(session.stream, ""):
                found[session] = " ".join(sorted(marks))
        return found

    def ended_at(self, session: Session, position: int) -> bool:
        """Return whether the stream of a session is known to have ended at ``position``. If a
        daemon's image of the session ended without a stated end of the stream, the session may
        continue later.
        """
        held = self.holdings.get(session, ())
        return self.end(session) == position and any(
            h.log.ended and h.log.end_position == position for h in held
        )


# ---- what is gone --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Loss:
    """A range of a session that the query cannot read."""

    session: Session
    start: int
    end: int | None          # None: unknown
    reason: str

    def __str__(self) -> str:
        much = "an unknown number of" if self.end is None else str(self.end - self.start)
        return f"{self.session}: {much} bytes from position {self.start}: {self.reason}"


def losses(
    view: View, start: Offset, seen: Mapping[Session, int] | None = None
) -> list[Loss]:
    """Return the lost ranges: the query had not yet read them at the offset ``start``, and no
    daemon retains them any more.

    :param seen: the highest known end of each session. A daemon that has read groups and logs of a
        dead daemon can lack a log that was there.
    """
    ends = seen or {}
    found = []
    for session, position in sorted(start.positions.items()):
        holdings = view.holdings.get(session, ())
        if not holdings:
            if ends.get(session, 0) > position:
                found.append(Loss(
                    session=session, start=position, end=None,
                    reason=f"the log had data up to {ends[session]}, and is not there any more",
                ))
            elif session not in start.ended and _may_be_lost(view, start, session):
                found.append(Loss(
                    session=session, start=position, end=None,
                    reason="the group expired or was closed, and the session is not there any more",
                ))
            continue
        further = [h for h in holdings if h.log.end_position > position]
        lowest = min((h.log.retained_from for h in further), default=0)
        if lowest > position:
            found.append(Loss(
                session=session, start=position, end=lowest,
                reason=f"the log is retained from {lowest} on",
            ))
    return found


def _may_be_lost(view: View, start: Offset, session: Session) -> bool:
    """Return whether a session that no daemon has any more may have unread data. If a group that
    could continue it still exists, that group has read it to its end."""
    now = set(view.groups.get(session.stream, "").split())
    held = set(start.held.get(session, "").split())
    if held:
        return not held & now
    before = set(start.groups.get(session.stream, "").split())
    return not before or not before <= now      # perhaps only one group held it


def returns(view: View, start: Offset) -> list[Loss]:
    """If sessions ended and later continued at a higher position, return the lost ranges. Each
    range lies between the end of a session and the position at which the session continued.
    """
    return [
        Loss(session=session, start=left.position, end=view.first(session),
             reason=f"the connection was lost, and joined again at {view.first(session)}")
        for session, left in sorted(start.left.items())
        if session in view.holdings and session not in start.positions
        and view.first(session) > left.position
    ]


def outlived(view: View, start: Offset, end: Offset) -> list[StreamName]:
    """Return the streams whose consumer groups were replaced: a group that the offset ``end`` names
    no longer exists, and the offset ``start`` names a newer group. This can happen if the first
    batch of a query did not finish: Spark then requests the first offset a second time. If new
    groups have replaced the old ones meanwhile, this second offset is the start of the new groups,
    not the start of the batch."""
    found = []
    for stream in sorted({session.stream for session in end.positions}, key=str):
        now = set(view.groups.get(stream, "").split())
        then = set(end.groups.get(stream, "").split())
        made = set(start.groups.get(stream, "").split())
        if made <= now and made - then and then - now:
            found.append(stream)
    return found


def skip(start: Offset, lost: Sequence[Loss]) -> Offset:
    """Return a copy of the offset ``start``. In this copy, each session with a lost range continues
    at the end of this range. If a session is lost completely, the result does not contain this
    session."""
    positions = dict(start.positions)
    for loss in lost:
        if loss.end is None:
            positions.pop(loss.session, None)
        else:
            positions[loss.session] = loss.end
    return attrs.evolve(start, positions=positions, left=_left(start, positions))


def _left(start: Offset, positions: Mapping[Session, int]) -> dict[Session, Left]:
    """Return the last positions of ended sessions: those of ``start``, and those of its sessions
    that are not in ``positions``."""
    left = {session: known for session, known in start.left.items() if session not in positions}
    number = max((known.number for known in start.left.values()), default=0)
    for session, position in sorted(start.positions.items()):
        if session not in positions:
            number += 1
            left[session] = Left(position, number)
    latest = sorted(left, key=lambda session: left[session].number)[-REMEMBERED:]
    return {session: left[session] for session in latest}


# ---- how much ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Want:
    """A request to read at most ``max_bytes`` of a session's log, from the position ``start``
    on."""

    session: Session
    holding: Holding
    behind: tuple[Holding, ...] = ()
    """Logs that continue ``holding``."""
    start: int
    max_bytes: int

    @property
    def logs(self) -> tuple[Holding, ...]:
        return (self.holding, *self.behind)

    @property
    def end(self) -> int:
        """Position at which the last log in ``logs`` ends."""
        return self.logs[-1].log.end_position


def share(available: Mapping[_K, int], limit: int) -> dict[_K, int]:
    """Divide ``limit`` among the sessions by max-min fairness. No session gets more than it
    requests. If a session gets less than it requests, no other session gets more than this session.
    The share of each session is at least 1, so that each session makes progress in each batch."""
    parts: dict[_K, int] = {}
    left, count = limit, len(available)
    for key, most in sorted(available.items(), key=lambda item: item[1]):
        parts[key] = max(1, min(most, left // count))
        left = max(0, left - parts[key])
        count -= 1
    return parts


def wants(
    view: View,
    start: Offset,
    *,
    max_bytes: int | None,
    target: Mapping[Session, int] | None = None,
) -> list[Want]:
    """Plan the next batch. ``target``: with the trigger AvailableNow, the positions beyond which
    the batch must not read.
    """
    found: dict[Session, Want] = {}
    for session in view.holdings:
        position = start.positions.get(session)     # also of an ended session, which may return
        at = view.first(session) if position is None else position
        want = view.want(session, at, 0)
        if want is None:
            continue
        most = min(want.end - at, max(1, want.holding.log.window_bytes // 2))
        if target is not None:
            most = min(most, target.get(session, 0) - at)
        if most > 0:
            found[session] = attrs.evolve(want, max_bytes=most)
    available = {session: want.max_bytes for session, want in found.items()}
    parts = available if max_bytes is None else share(available, max_bytes)
    return [attrs.evolve(want, max_bytes=parts[session]) for session, want in found.items()]


def is_limited(found: Sequence[Want], max_bytes: int | None) -> bool:
    """Return whether the sessions have as much data as the batch may contain (``max_bytes``)."""
    return max_bytes is not None and sum(want.end - want.start for want in found) >= max_bytes


def advance(view: View, start: Offset, ends: Mapping[Session, int]) -> Offset:
    """Return the end offset of a batch that reads each session up to its position in ``ends``. If
    there is no new data, return ``start``."""
    moved = {
        session: end for session, end in ends.items()
        if end > start.positions.get(session, -1)
    }
    if not moved:
        return start
    begun = {session: view.first(session) for session in moved if session not in start.positions}
    # A session that is gone, with everything acknowledged, has been read to its end. An ended
    # session leaves when its end was acknowledged, which happens late with ackOn=commit: before
    # that it would pass for a new one.
    positions = {
        session: position for session, position in start.positions.items()
        if session in view.holdings
        and (session not in start.ended or view.first(session) < position)
    }
    positions |= moved
    return Offset(
        positions=positions,
        begun=begun,
        ended=frozenset(s for s, p in positions.items() if view.ended_at(s, p)),
        groups=dict(view.groups),
        held=view.held(positions),
        left=_left(start, positions),
    )


def not_beyond(after: Offset, target: Mapping[Session, int], begin: Offset) -> Offset:
    """Return ``after`` without sessions whose last message ends beyond the target."""
    reverted = {
        session for session, position in after.positions.items()
        if position > target.get(session, 0) and position != begin.positions.get(session)
    }
    if not reverted:
        return after
    positions = {s: p for s, p in after.positions.items() if s not in reverted}
    positions |= {s: begin.positions[s] for s in reverted if s in begin.positions}
    if positions == dict(begin.positions):
        return begin
    return attrs.evolve(
        after, positions=positions,
        begun={s: p for s, p in after.begun.items() if s in positions},
        ended=(after.ended - reverted) | (begin.ended & reverted),
        held={
            s: found for s in positions
            if (found := (after if s not in reverted else begin).held.get(s)) is not None
        },
        left={**after.left, **{s: x for s, x in begin.left.items() if s not in positions}},
    )


# ---- who reads what ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Holder:
    """A daemon from which a task can read a range."""

    daemon: int              # number in the options
    daemon_id: int
    daemon_epoch: int
    host: str
    log_id: int
    log_path: str
    names: tuple[str, ...] = ()
    """Names of its host that Spark may use; set if the place of a task matters."""
    behind: tuple[tuple[int, Holder], ...] = ()
    """The logs that continue this one, and the positions at which they do; empty: the log has the
    whole range."""


@attrs.frozen(kw_only=True)
class Range:
    """A range [start, end) of a session, and the daemons that have this range. The range begins and
    ends between two messages.
    """

    session: Session
    start: int
    end: int
    term_length: int
    holders: tuple[Holder, ...]
    times: str = ""
    """Of the session's part of the batch, as its offset has them; empty: none is known."""
    key: bytes = b""
    """Of a sink's session; empty: it has none."""

    @property
    def length(self) -> int:
        return self.end - self.start


def ranges(view: View, start: Offset, end: Offset) -> list[Range]:
    """Return the ranges that the batch between the offsets ``start`` and ``end`` reads, without the
    ranges that it skips. If no daemon retains a range, the range's list of daemons is empty."""
    found = []
    for session, stop in sorted(end.positions.items()):
        begin = start.positions.get(session, end.begun.get(session, stop))
        for first, last in _without(begin, stop, end.skipped.get(session, ())):
            found.append(attrs.evolve(
                _range(view, session, first, last, end.times.get(session)),
                key=end.keys.get(session, b""),
            ))
    return found


def _without(
    begin: int, end: int, skipped: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """[begin, end) without what lies in ``skipped``, ascending."""
    at = begin
    for first, last in skipped:
        if at < min(first, end):
            yield at, min(first, end)
        at = max(at, last)
    if at < end:
        yield at, end


def _range(view: View, session: Session, start: int, end: int, times: str | None) -> Range:
    able = [
        h for h in view.holdings.get(session, ())
        if h.log.retained_from <= start and h.log.end_position >= end
    ]
    holders = tuple(map(_holder, able)) or _joint_holder(view.chain(session, start), end)
    held = view.holdings.get(session, ())
    return Range(
        session=session, start=start, end=end,
        term_length=held[0].log.term_length if holders else 0, holders=holders, times=times or "",
    )


def _holder(holding: Holding) -> Holder:
    return Holder(
        daemon=holding.daemon, daemon_id=holding.daemon_id, daemon_epoch=holding.daemon_epoch,
        host=holding.host, log_id=holding.log.log_id, log_path=holding.log.log_path,
    )


def _joint_holder(chain: Sequence[Holding], end: int) -> tuple[Holder, ...]:
    """Return the logs that have a range together; none if it goes beyond them."""
    if not chain or chain[-1].log.end_position < end:
        return ()
    return (attrs.evolve(_holder(chain[0]), behind=tuple(
        (before.log.end_position, _holder(holding))
        for before, holding in itertools.pairwise(chain)
    )),)


def partition_count(total_bytes: int, *, wanted: int | None, cores: int) -> int:
    """Return the number of tasks for a batch. If the options state no number (``wanted``), each
    core gets one task. A small batch gets fewer tasks, so that each task reads about
    ``SMALLEST_PART`` or more.
    """
    if wanted is not None:
        return wanted
    return max(1, min(cores, -(-total_bytes // SMALLEST_PART)))


def pieces(found: Sequence[Range], count: int) -> list[int]:
    """Return, for each range, the number of pieces into which to split this range, so that
    ``count`` tasks get about equal work."""
    total = sum(item.length for item in found)
    even = max(1, -(-total // count))
    return [max(1, round(item.length / even)) for item in found]


def split(item: Range, places: Sequence[int]) -> list[Range]:
    """Split a range at the positions ``places``, which are ascending and inside the range."""
    edges = [item.start, *(p for p in places if item.start < p < item.end), item.end]
    return [
        attrs.evolve(item, start=a, end=b) for a, b in itertools.pairwise(edges)
    ]


def pack(found: Sequence[Range], count: int, *, apart: bool = False) -> list[tuple[int, ...]]:
    """Assign ranges to tasks.

    Distribute ranges over tasks. The tasks divide the ranges in order: each task gets consecutive
    ranges, which follow the ranges of the previous task. The rows of a session therefore stay in
    order.
    :param count: number of tasks; all tasks get about the same number of bytes, and each gets at
        least one range.
    :param apart: if true, each range gets a task of its own, and ``count`` is ignored.
    """
    if apart:
        return [(index,) for index in range(len(found))] or [()]
    total = max(1, sum(item.length for item in found))
    tasks: list[list[int]] = [[] for _ in range(count)]
    before = task = 0
    for index, item in enumerate(found):
        middle = (2 * before + item.length) * count // (2 * total)
        # No task stays empty while there are enough ranges for the following tasks.
        task = min(max(task, middle), task + 1 if tasks[task] else task, count - 1)
        if tasks[task] and len(found) - index <= count - 1 - task:
            task += 1
        tasks[task].append(index)
        before += item.length
    return [tuple(each) for each in tasks]
