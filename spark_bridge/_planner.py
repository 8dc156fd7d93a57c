# SPDX-License-Identifier: Apache-2.0
"""Plan a batch and its tasks from states alone, without a request.

A session's log may be held by several daemons (multicast), or twice by one (an image that was lost
and joined again): a *holding* is one such log.  A position is read from a holding that retains it;
which one is a matter of convenience, for frames at one position of one session are the same
everywhere.

Admission: from each session at most half of its window, so that the sender fills the other half
while the batch runs. All sessions together take no more than the query's limits, shared so that a
small session never waits for a large one (max-min fairness).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import attrs

from penstock.client import GroupState, LogRange
from penstock.spark_bridge._offsets import Left, Offset, Session
from penstock.spark_bridge._options import StreamName

#: A task costs tens of milliseconds: less than this is not worth one of its own.
SMALLEST_PART: Final = 256 * 1024
#: Sessions that are over and may come back, of which an offset knows.
REMEMBERED: Final = 128
_K = TypeVar("_K")


@attrs.frozen(kw_only=True)
class Holding:
    """One log on one daemon, by its number in the options."""

    daemon: int
    daemon_id: int
    daemon_epoch: int
    host: str
    group: str               # daemon and group, as offsets name them
    log: LogRange

    @property
    def session(self) -> Session:
        return Session(
            channel=self.log.channel, stream_id=self.log.stream_id,
            session_id=self.log.session_id, initial_term_id=self.log.initial_term_id,
        )

    def readable(self, position: int) -> bool:
        """Whether there is something to read at ``position``."""
        return self.log.retained_from <= position < self.log.end_position


@attrs.frozen(kw_only=True)
class View:
    """State of all daemons for the query at one moment."""

    holdings: Mapping[Session, Sequence[Holding]] = attrs.Factory(dict)
    groups: Mapping[StreamName, str] = attrs.Factory(dict)

    @classmethod
    def of(cls, states: Sequence[tuple[int, GroupState]]) -> View:
        """From (number of the daemon, state of one of its groups)."""
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
        """Where a session that the query has not seen begins for it."""
        return min(holding.log.committed for holding in self.holdings[session])

    def end(self, session: Session) -> int:
        """The furthest that any daemon has; 0 when none has the session."""
        return max((h.log.end_position for h in self.holdings.get(session, ())), default=0)

    def source(self, session: Session, position: int) -> Holding | None:
        """The log to plan from: of those that can be read at ``position`` the shortest, so that
        every daemon can serve the batch."""
        found = [h for h in self.holdings.get(session, ()) if h.readable(position)]
        return min(found, key=lambda h: (h.log.end_position, h.daemon), default=None)

    def held(self, positions: Mapping[Session, int]) -> dict[Session, str]:
        """Which groups can read each session on from its position, where its stream has several."""
        found = {}
        for session, position in positions.items():
            marks = {
                h.group for h in self.holdings.get(session, ()) if h.log.end_position >= position
            }
            if marks and " " in self.groups.get(session.stream, ""):
                found[session] = " ".join(sorted(marks))
        return found

    def ended_at(self, session: Session, position: int) -> bool:
        """Whether the stream has ended there, as far as is known: one whose connection was lost may
        come back."""
        held = self.holdings.get(session, ())
        return self.end(session) == position and any(
            h.log.ended and h.log.end_position == position for h in held
        )


# ---- what is gone --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Loss:
    """Part of a stream that the query will not see."""

    session: Session
    start: int
    end: int | None          # None: nobody knows how much
    reason: str

    def __str__(self) -> str:
        much = "an unknown number of" if self.end is None else str(self.end - self.start)
        return f"{self.session}: {much} bytes from position {self.start}: {self.reason}"


def losses(view: View, start: Offset) -> list[Loss]:
    """Ranges that the query has not read according to ``start`` and that no daemon holds any
    more."""
    found = []
    for session, position in sorted(start.positions.items()):
        holdings = view.holdings.get(session, ())
        if not holdings:
            if session not in start.ended and _may_be_lost(view, start, session):
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
    """Whether a session that nobody has any more went with a group, rather than being read to its
    end: as long as one of the groups is there that could read it on, that one saw its end."""
    now = set(view.groups.get(session.stream, "").split())
    held = set(start.held.get(session, "").split())
    if held:
        return not held & now
    before = set(start.groups.get(session.stream, "").split())
    return not before or not before <= now      # it may have been held by one only


def returns(view: View, start: Offset) -> list[Loss]:
    """Sessions that had ended and returned at a later position: the range in between is missing."""
    return [
        Loss(session=session, start=left.position, end=view.first(session),
             reason=f"the connection was lost, and joined again at {view.first(session)}")
        for session, left in sorted(start.left.items())
        if session in view.holdings and session not in start.positions
        and view.first(session) > left.position
    ]


def outlived(view: View, start: Offset, end: Offset) -> list[StreamName]:
    """Streams whose groups ended between the planning of ``end`` and the making of ``start``.  A
    query's first offset is requested again when its first batch did not finish; after the groups
    have gone that is the place of the new ones, and says nothing of what the batch was to read."""
    found = []
    for stream in sorted({session.stream for session in end.positions}, key=str):
        now = set(view.groups.get(stream, "").split())
        then = set(end.groups.get(stream, "").split())
        made = set(start.groups.get(stream, "").split())
        if made <= now and made - then and then - now:
            found.append(stream)
    return found


def skip(start: Offset, lost: Sequence[Loss]) -> Offset:
    """``start`` behind what is lost: at what is left, or without the session."""
    positions = dict(start.positions)
    for loss in lost:
        if loss.end is None:
            positions.pop(loss.session, None)
        else:
            positions[loss.session] = loss.end
    return attrs.evolve(start, positions=positions, left=_left(start, positions))


def _left(start: Offset, positions: Mapping[Session, int]) -> dict[Session, Left]:
    """Where sessions were that are over by now: those of ``start``, and those that it names and
    ``positions`` do not."""
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
    """To read a session from ``start`` on, at most ``max_bytes`` of its log."""

    session: Session
    holding: Holding
    start: int
    max_bytes: int


def share(available: Mapping[_K, int], limit: int) -> dict[_K, int]:
    """Max-min fair parts of ``limit``: no session gets more than is available, and one that gets
    less than asked gets as much as any other. At least 1 each, so that none starves."""
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
    """Plan the next batch. ``target``: not beyond these positions (AvailableNow)."""
    found: dict[Session, tuple[Holding, int, int]] = {}
    for session in view.holdings:
        position = start.positions.get(session)     # of one that ended too: it may come back
        at = view.first(session) if position is None else position
        holding = view.source(session, at)
        if holding is None:
            continue
        most = min(holding.log.end_position - at, max(1, holding.log.window_bytes // 2))
        if target is not None:
            most = min(most, target.get(session, 0) - at)
        if most > 0:
            found[session] = (holding, at, most)
    available = {session: most for session, (_, _, most) in found.items()}
    parts = available if max_bytes is None else share(available, max_bytes)
    return [
        Want(session=session, holding=holding, start=at, max_bytes=parts[session])
        for session, (holding, at, _) in found.items()
    ]


def advance(view: View, start: Offset, ends: Mapping[Session, int]) -> Offset:
    """The offset of a batch that goes on to ``ends``; ``start`` itself when that is nothing new."""
    moved = {
        session: end for session, end in ends.items()
        if end > start.positions.get(session, -1)
    }
    if not moved:
        return start
    begun = {session: view.first(session) for session in moved if session not in start.positions}
    # A session that is gone, with everything acknowledged, has been read to its end.  One that
    # ended leaves when its end was acknowledged, which comes late with ackOn=commit: before that
    # it would pass for a new one.
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


# ---- who reads what ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Holder:
    """A daemon that can serve a range."""

    daemon: int              # number in the options
    daemon_id: int
    daemon_epoch: int
    host: str
    log_id: int
    log_path: str
    names: tuple[str, ...] = ()
    """Of its host, as Spark may know it; filled in when a task's place matters."""


@attrs.frozen(kw_only=True)
class Range:
    """Positions [start, end) of a session, between messages, and who has them."""

    session: Session
    start: int
    end: int
    term_length: int
    holders: tuple[Holder, ...]
    times: str = ""
    """Of the session's part of the batch, as its offset has them; empty: none is known."""

    @property
    def length(self) -> int:
        return self.end - self.start


def ranges(view: View, start: Offset, end: Offset) -> list[Range]:
    """Ranges between two offsets. A range that no daemon holds has no holders."""
    found = []
    for session, stop in sorted(end.positions.items()):
        begin = start.positions.get(session, end.begun.get(session, stop))
        if begin < stop:
            found.append(_range(view, session, begin, stop, end.times.get(session)))
    return found


def _range(view: View, session: Session, start: int, end: int, times: str | None) -> Range:
    able = [
        h for h in view.holdings.get(session, ())
        if h.log.retained_from <= start and h.log.end_position >= end
    ]
    return Range(
        session=session, start=start, end=end,
        term_length=able[0].log.term_length if able else 0,
        holders=tuple(
            Holder(
                daemon=h.daemon, daemon_id=h.daemon_id, daemon_epoch=h.daemon_epoch, host=h.host,
                log_id=h.log.log_id, log_path=h.log.log_path,
            )
            for h in able
        ),
        times=times or "",
    )


def partition_count(total_bytes: int, *, wanted: int | None, cores: int) -> int:
    """How many tasks: as many as were requested, else one per core as far as each has work."""
    if wanted is not None:
        return wanted
    return max(1, min(cores, -(-total_bytes // SMALLEST_PART)))


def pieces(found: Sequence[Range], count: int) -> list[int]:
    """Into how many parts to cut each range so that ``count`` tasks can have about the same."""
    total = sum(item.length for item in found)
    even = max(1, -(-total // count))
    return [max(1, round(item.length / even)) for item in found]


def split(item: Range, places: Sequence[int]) -> list[Range]:
    """The range cut at ``places``, ascending and within it."""
    edges = [item.start, *(p for p in places if item.start < p < item.end), item.end]
    return [
        attrs.evolve(item, start=a, end=b) for a, b in itertools.pairwise(edges)
    ]


def pack(found: Sequence[Range], count: int, *, apart: bool = False) -> list[tuple[int, ...]]:
    """Which of the ranges each task reads.  Neighbours stay together, and tasks are in the order of
    their ranges.  So the rows of a session are in order from task to task.

    :param count: of tasks; each has about as many bytes as any other, and at least one range.
    :param apart: each range has a task of its own.
    """
    if apart:
        return [(index,) for index in range(len(found))] or [()]
    total = max(1, sum(item.length for item in found))
    tasks: list[list[int]] = [[] for _ in range(count)]
    before = task = 0
    for index, item in enumerate(found):
        middle = (2 * before + item.length) * count // (2 * total)
        # None is passed over while there are enough ranges for those that follow.
        task = min(max(task, middle), task + 1 if tasks[task] else task, count - 1)
        if tasks[task] and len(found) - index <= count - 1 - task:
            task += 1
        tasks[task].append(index)
        before += item.length
    return [tuple(each) for each in tasks]
