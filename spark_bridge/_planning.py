# SPDX-License-Identifier: Apache-2.0
"""State that the offset methods of a query share: its subscription, the daemons' state as it was
seen last, and how far it has planned.  One for each query."""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql.datasource import InputPartition

from penstock.client import RangeNotRetained
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _planner as planner
from penstock.spark_bridge import _times
from penstock.spark_bridge._locality import with_names
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge._options import MOST_PARTITIONS, Bound, SourceOptions
from penstock.spark_bridge._planner import Range, View, Want
from penstock.spark_bridge._reader import DataLoss
from penstock.spark_bridge._subscription import Subscription

_log = logging.getLogger(__name__)

_CUT_BYTES: Final = 64 * 1024 * 1024     # a daemon walks no further at once
_CHECKS: Final = 32
_REAPPEAR_S: Final = 3.0
_IDLE_PARTS: Final = 4           # of the time that a look took: a fifth of it all is spent looking
_IDLE_MOST_S: Final = 0.25
_PAUSE_S: Final = 0.1


@attrs.frozen
class Partition(InputPartition):
    """Ranges of one task; in a barrier stage the table has those of all tasks."""

    index: int
    own: tuple[int, ...]
    table: tuple[Range, ...]


def _cores() -> int:
    """Of the driver's host; at most as many as an offset takes."""
    return min(len(os.sched_getaffinity(0)), MOST_PARTITIONS)


class Planning:
    """State that the offset methods share."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._subscription = Subscription(options)
        self._view = View()
        self._available_now = False
        self._target: dict[Session, int] | None = None
        self._planned = Offset()
        self._lost_bytes = 0
        self._said: set[str] = set()
        self._turn = 0
        self._idle = False
        self._look_s = 0.0
        self._batch_at = self._busy_at = time.monotonic()
        self._awaited: set[Session] = set()     # known to be gone
        self._compared = False          # with the groups of the checkpoint

    def initial(self, *, acknowledge: bool = True) -> Offset:
        """Where the groups stand, which is where startingOffsets put them once."""
        chosen = self._chosen("startingOffsets", self._options.starting)
        self._subscription.open(keep=not acknowledge)
        view = self._check()
        if self._options.starting_ns is not None:
            view = self._settled(view)
            chosen = {
                session: self._place_at(view, session, self._options.starting_ns)
                for session in view.holdings
            }
            view = self._check(chosen) if acknowledge else view
        elif chosen:
            view = self._settled(view)
            for session, position in chosen.items():
                self._check_start(view, session, position)
            view = self._check(chosen) if acknowledge else view
        positions = {
            session: max(view.first(session), chosen.get(session, 0)) for session in view.holdings
        }
        return Offset(positions=positions, groups=dict(view.groups), held=view.held(positions))

    def _chosen(self, option: str, bound: Bound) -> dict[Session, int]:
        """The positions that an option gives, if it does."""
        if isinstance(bound, str):
            return {}
        chosen = {Session.parse(key): position for key, position in bound.items()}
        Offset(positions=chosen).check_streams(self._options.streams, option)
        return chosen

    def _check_start(self, view: View, session: Session, position: int) -> None:
        """Whether a query can begin there: an acknowledgement of what is no place between messages
        would spoil the group."""
        option = f"option startingOffsets: {session}: position {position}"
        held = view.holdings.get(session)
        if not held:
            _log.warning("%s: no daemon has this session (yet): it begins where it is joined",
                         option)
            return
        at, end = view.first(session), view.end(session)
        if position < at:
            _log.warning("%s: begins at %d, behind what is retained, or was acknowledged", option,
                         at)
        if position > end:
            raise InvalidArgument(f"{option} lies behind the end, {end}")
        while at < position and position % held[0].log.term_length:
            holding = view.source(session, at)
            place = at
            if holding is not None:
                length = min(position - at, _CUT_BYTES)
                place, _ = self._subscription.cut(
                    Want(session=session, holding=holding, start=at, max_bytes=length)
                )
            if not at < place <= position:
                raise InvalidArgument(
                    f"{option} is not between two messages; the column position has such places"
                )
            at = place

    def _place_at(self, view: View, session: Session, time_ns: int) -> int:
        """The place behind the messages of a session that had arrived before a time, as far as the
        daemon knows; the end when all had."""
        at, end = view.first(session), view.end(session)
        holding = view.source(session, at)
        if holding is None:
            return at
        positions, times_us = _times.decode(self._subscription.times(
            holding, at, end, most=_times.MOST_ENTRIES
        ))
        first = bisect.bisect_left(times_us, time_ns // 1000)
        if first == len(positions):
            return end
        reach = positions[first - 1] if first > 0 else at
        while at < reach:           # a message may go on there: its beginning is the place
            place, _ = self._subscription.cut(Want(
                session=session, holding=holding, start=at, max_bytes=min(reach - at, _CUT_BYTES)
            ))
            if not at < place <= reach:
                break
            at = place
        return at

    def latest(self, start: Offset, max_bytes: int | None, max_messages: int) -> Offset:
        start.check_streams(self._options.streams)
        self._subscription.open(start.groups)
        self._rest()
        if not self._compared:
            self._compared = True
            text = self._left_behind(start)
            if text:
                _log.warning("subscription %s%s", self._options.subscription, text)
        view = self._check(start.positions if self._options.ack_on == "batch" else None)
        view = self._rejoined(view, start)
        if self._available_now and self._target is None:
            view = self._settled(view)
            self._target = {session: view.end(session) for session in view.holdings}
        begin = self._behind_losses(view, start)
        self._check_returns(view, begin)
        found = planner.wants(view, begin, max_bytes=max_bytes, target=self._target)
        ends, messages = self._ends(found, max_messages)
        if self._waits(found, messages):
            ends = {}
        after = planner.advance(view, begin, ends)
        if self._target is not None:
            after = _not_beyond(after, self._target, begin)
        # What was lost is behind us only together with something new.
        self._idle = after is begin
        if not self._idle:
            self._batch_at = self._busy_at = time.monotonic()
        after = start if self._idle else self._frozen(view, begin, after)
        self._planned = after
        return after

    def _rest(self) -> None:
        """Spark asks every 10 ms.  A query that has had nothing to read for a while is answered
        later and later, up to a tenth of the time that it was idle."""
        if self._idle:
            idle_s = time.monotonic() - self._busy_at
            time.sleep(min(max(_IDLE_PARTS * self._look_s, idle_s / 10), _IDLE_MOST_S))

    def _waits(self, found: Sequence[Want], messages: int) -> bool:
        """Whether the batch is left for later, as option minOffsetsPerTrigger wants it.  A session
        whose half window is full waits for this query: it is read."""
        least = self._options.min_messages
        if least is None or messages >= least or self._available_now:
            return False
        full = any(
            2 * (want.holding.log.end_position - want.start) >= want.holding.log.window_bytes
            for want in found
        )
        waited_ns = (time.monotonic() - self._batch_at) * 1e9
        return not full and waited_ns < self._options.max_delay_ns

    def _rejoined(self, view: View, start: Offset) -> View:
        """``view`` once the sessions of ``start`` are there.  Groups that were opened again, after
        they expired, join a living stream within moments: before that nothing is known to be lost.
        It is waited for once; with AvailableNow also for the first sessions of a new query."""
        deadline = time.monotonic() + _REAPPEAR_S
        while time.monotonic() < deadline:
            away = {
                loss.session for loss in planner.losses(view, start) if loss.end is None
            } - self._awaited
            first = self._available_now and self._target is None and not view.holdings
            if not away and not first:
                return view
            time.sleep(_PAUSE_S)
            view = self._check()
        self._awaited |= {loss.session for loss in planner.losses(view, start)}
        return view

    def _frozen(self, view: View, begin: Offset, after: Offset) -> Offset:
        """The offset with all that a repeated batch must not find out anew."""
        found = planner.ranges(view, begin, after)
        most = _times.entries_each(len(found))
        times = {}
        for item in found:
            holding = view.source(item.session, item.start)
            if holding is not None:
                with contextlib.suppress(RangeNotRetained):     # the plan shows what is lost
                    times[item.session] = self._subscription.times(
                        holding, item.start, item.end, most=most
                    )
        return attrs.evolve(
            after, tasks=self._count(found), times=times,
            records=self._options.max_records or 0,
        )

    def _ends(
        self, found: Sequence[Want], max_messages: int
    ) -> tuple[dict[Session, int], int]:
        """Where each session's part ends, and how many messages there are in all.  A part ends
        between messages, which the daemons find.  With a limit
        of messages each session has its share first, and then what others left; who comes first
        changes, for a limit may be too small for all."""
        ends: dict[Session, int] = {}
        self._turn += 1
        first = self._turn % len(found) if found else 0
        found = [*found[first:], *found[:first]]
        left = max_messages
        for number, want in enumerate(found):
            quota = max(1, left // (len(found) - number)) if max_messages else 0
            if max_messages and left < 1:
                break
            with contextlib.suppress(RangeNotRetained):     # the next look shows what is lost
                ends[want.session], count = self._subscription.cut(want, max_messages=quota)
                left -= count
        if max_messages and 0 < left < max_messages:
            for want in found:
                if left < 1 or want.session not in ends:
                    continue
                rest = attrs.evolve(
                    want, start=ends[want.session],
                    max_bytes=want.start + want.max_bytes - ends[want.session],
                )
                if rest.max_bytes < 1:
                    continue
                with contextlib.suppress(RangeNotRetained):
                    end, count = self._subscription.cut(rest, max_messages=left)
                    if end <= want.start + want.max_bytes:      # one message is always offered
                        ends[want.session] = end
                        left -= count
        return ends, max_messages - left

    def prepare(self) -> None:
        """The first look that a batch is planned from says how far AvailableNow goes.  (Whether the
        query is new, and so where it begins, is not known here.)"""
        self._available_now = True

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        for offset in (start, end):
            offset.check_streams(self._options.streams)
        self._subscription.open(end.groups)
        deadline = time.monotonic() + _REAPPEAR_S
        self._check_outlived(self._check(), start, end)
        while True:
            view = self._rejoined(self._check(), start)
            found = planner.ranges(view, self._behind_losses(view, start), end)
            if all(item.holders for item in found) or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)        # a daemon that has just started anew finds its logs
        return self._partitions(view, self._with_holders(found), end.tasks, end.records)

    def batch(self) -> list[InputPartition]:
        """All that is retained, or between the options' bounds."""
        start = self.initial(acknowledge=False)
        view = self._settled(self._view)
        ending = self._options.ending
        chosen = self._chosen("endingOffsets", ending)
        self._check_ends(view, chosen)
        if self._options.ending_ns is not None:
            chosen = {
                session: self._place_at(view, session, self._options.ending_ns)
                for session in view.holdings
            }
        bounded = self._options.ending_ns is not None or not isinstance(ending, str)
        ends: dict[Session, int] = {}
        for session, at in start.positions.items():
            if self._options.sessions and session.session_id not in self._options.sessions:
                continue                # of a group that others opened for more
            holding = view.source(session, at)
            last = chosen.get(session, at) if bounded else view.end(session)
            while holding is not None and at < last:
                want = Want(session=session, holding=holding, start=at,
                            max_bytes=min(last - at, _CUT_BYTES))
                place, _ = self._subscription.cut(want)
                if place > last and session in chosen:
                    raise InvalidArgument(
                        f"option endingOffsets: {session}: position {last} is not between two "
                        "messages; the column position has such places"
                    )
                if place <= at or place > last:
                    break
                at = place
                holding = view.source(session, at)
            ends[session] = at
        end = self._frozen(view, start, Offset(positions=ends))
        return self._partitions(view, planner.ranges(view, start, end), end.tasks, end.records)

    @staticmethod
    def _check_ends(view: View, chosen: Mapping[Session, int]) -> None:
        for session, position in sorted(chosen.items()):
            option = f"option endingOffsets: {session}: position {position}"
            if session not in view.holdings:
                known = ", ".join(map(str, view.holdings)) or "none"
                raise InvalidArgument(f"{option}: no daemon has this session; there are {known}")
            if position > view.end(session):
                raise InvalidArgument(f"{option} lies behind the end, {view.end(session)}")
            if position < view.first(session):
                raise InvalidArgument(
                    f"{option} lies before the first retained position, {view.first(session)}"
                )

    def _partitions(
        self, view: View, found: Sequence[Range], tasks: int, records: int
    ) -> list[InputPartition]:
        """In a barrier stage as many as there are slots now, else as was decided with the batch."""
        options = self._options
        barrier = options.locality == "barrier"
        count = tasks or self._count(found)
        table: list[Range] = []
        for item, pieces in zip(found, planner.pieces(found, count), strict=True):
            for part in planner.split(item, self._places(view, item, pieces)):
                table += planner.split(part, self._every(view, part, records))
        if barrier:
            wanted = options.min_partitions
            count = wanted if wanted is not None else _cores()
            named = tuple(with_names(options, table))
            return [
                Partition(index, own, named)
                for index, own in enumerate(planner.pack(named, count))
            ]
        packed = planner.pack(table, min(count, max(1, len(table))), apart=records > 0)
        return [
            Partition(index, tuple(range(len(own))), tuple(table[i] for i in own))
            for index, own in enumerate(packed)
        ]

    def _count(self, found: Sequence[Range]) -> int:
        return planner.partition_count(
            sum(item.length for item in found), wanted=self._options.min_partitions, cores=_cores()
        )

    def _every(self, view: View, item: Range, records: int) -> list[int]:
        """Where to split a range so that no part has more messages than ``records`` (0: any
        number)."""
        places: list[int] = []
        at = item.start
        while records > 0 and at < item.end:
            holding = view.source(item.session, at)
            if holding is None:
                break
            want = Want(session=item.session, holding=holding, start=at,
                        max_bytes=min(item.end - at, _CUT_BYTES))
            try:
                place, _ = self._subscription.cut(want, max_messages=records)
            except RangeNotRetained:
                break
            if place <= at:
                break
            places.append(place)
            at = place
        return places

    def _places(self, view: View, item: Range, pieces: int) -> list[int]:
        """Where to split a range; nowhere when nobody can say."""
        places: list[int] = []
        at = item.start
        while pieces > 1 and at < item.end:
            holding = view.source(item.session, at)
            if holding is None:
                break
            length = min(item.end - at, _CUT_BYTES)
            want = Want(session=item.session, holding=holding, start=at, max_bytes=length)
            try:
                found, _ = self._subscription.cut_places(
                    want, max_bytes=length, max_messages=0,
                    pieces=max(1, round(pieces * length / item.length)),
                )
            except RangeNotRetained:
                break
            if not found:
                break
            places += found
            at = found[-1]
        return places

    def acknowledge(self, end: Offset) -> None:
        self._subscription.open(end.groups)
        self._check(end.positions)

    def report(self) -> dict[str, Any]:
        """The furthest there is, and beside it what a user asks when a query falls behind."""
        view = self._view
        ends = {str(session): view.end(session) for session in view.holdings}
        planned = self._planned.positions
        lag = sum(
            max(0, view.end(s) - planned.get(s, view.first(s))) for s in view.holdings
        )
        credit = sum(
            max(0, min(h.log.committed + h.log.window_bytes - h.log.end_position for h in found))
            for found in view.holdings.values()
        )
        return dict(sorted((ends | {
            "lagBytes": lag, "creditBytes": credit, "lostBytes": self._lost_bytes,
            "sessions": len(view.holdings),
        }).items()))

    def stop(self) -> None:
        self._subscription.stop()

    # ---- looking ---------------------------------------------------------------------------------

    def _check(self, acknowledged: Mapping[Session, int] | None = None) -> View:
        began = time.monotonic()
        self._view = self._subscription.view(acknowledged)
        self._look_s = time.monotonic() - began
        return self._view

    def _settled(self, view: View) -> View:
        """``view`` when the daemons have walked all that is there: they do a stretch at a time."""
        for _ in range(_CHECKS):
            before = {session: view.end(session) for session in view.holdings}
            view = self._check()
            if before == {session: view.end(session) for session in view.holdings}:
                break
        return view

    def _behind_losses(self, view: View, start: Offset) -> Offset:
        """``start``, or behind what is lost, when the query goes on without."""
        lost = planner.losses(view, start)
        for loss in lost:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"data loss: {loss}. To go on with what is left set failOnDataLoss=false; a "
                    f"longer groupExpiry or a faster query avoids it{self._left_behind(start)}"
                )
            self._notify(loss)
        return planner.skip(start, lost)

    def _left_behind(self, start: Offset) -> str:
        """What to say of groups that the query read under another subscription."""
        names = self._subscription.others(start.groups)
        if not names:
            return ""
        return (
            f". The checkpoint was made with subscription {', '.join(names)}, whose group is still "
            "there and holds the sender: give the query that name again, or end the group with "
            f"'penstock groups end {names[0]}'"
        )

    def _notify(self, loss: planner.Loss) -> None:
        """Once of each."""
        if str(loss) not in self._said:
            self._said.add(str(loss))
            self._lost_bytes += 0 if loss.end is None else loss.end - loss.start
            _log.warning("data loss, going on: %s", loss)

    def _check_returns(self, view: View, start: Offset) -> None:
        """What is missing before sessions that were over and are there again."""
        for loss in planner.returns(view, start):
            if self._options.fail_on_data_loss:
                raise DataLoss(f"data loss: {loss}. To go on behind it set failOnDataLoss=false")
            self._notify(loss)

    def _check_outlived(self, view: View, start: Offset, end: Offset) -> None:
        for stream in planner.outlived(view, start, end):
            text = (
                f"data loss: the group of {stream.channel} stream {stream.stream_id} expired or "
                "was closed before the first batch of the query was done, and its data went with it"
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{text}. To go on with what is left set failOnDataLoss=false, or give the "
                    "query another checkpointLocation"
                )
            _log.warning("%s; going on", text)

    def _with_holders(self, found: Sequence[Range]) -> list[Range]:
        """The ranges that somebody has; it is an error when one is not there, or a loss."""
        able = []
        for item in found:
            if item.holders:
                able.append(item)
                continue
            text = (
                f"data loss: no daemon holds {item.session} from {item.start} to {item.end} any "
                "more"
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{text}. To go on with what is left set failOnDataLoss=false")
            self._lost_bytes += item.length
            _log.warning("%s; going on", text)
        return able


def _not_beyond(after: Offset, target: Mapping[Session, int], begin: Offset) -> Offset:
    """``after`` without sessions that a whole message took beyond the target."""
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
