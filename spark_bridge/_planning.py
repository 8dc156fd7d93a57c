# SPDX-License-Identifier: Apache-2.0
"""Implement a query's offset methods. The offset methods of one query share the subscription, the
last known state of the daemons, and the planned offset.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql.datasource import InputPartition

from penstock.client import RangeNotRetained
from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge import _planner as planner
from penstock.spark_bridge import _times
from penstock.spark_bridge._checkpoints import Checkpoints
from penstock.spark_bridge._commits import Batch, Commits
from penstock.spark_bridge._locality import with_names
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge._options import MOST_PARTITIONS, Bound, SourceOptions
from penstock.spark_bridge._planner import Range, View, Want
from penstock.spark_bridge._progress import Progress
from penstock.spark_bridge._reader import DataLoss
from penstock.spark_bridge._splitting import CUT_BYTES, Splitting
from penstock.spark_bridge._subscription import Subscription
from penstock.spark_bridge.markers import RESERVED_VALUE

_log = logging.getLogger(__name__)

_CHECKS: Final = 32
_REAPPEAR_S: Final = 3.0
# pause after a look, as a multiple of its duration: a fifth of the time is spent looking
_IDLE_PARTS: Final = 4
_IDLE_MOST_S: Final = 0.5
_PAUSE_S: Final = 0.1


@attrs.frozen
class Partition(InputPartition):
    """The input of one Spark task: ``own`` has the indices of its ranges in ``table``. In a barrier
    stage, ``table`` has the ranges of all tasks, and each task chooses its own.
    """

    index: int
    own: tuple[int, ...]
    table: tuple[Range, ...]


def _cores() -> int:
    """Return the number of cores of the driver's host, at most the limit of an offset."""
    return min(len(os.sched_getaffinity(0)), MOST_PARTITIONS)


class Planning:
    """The state that the offset methods of one query share."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._subscription = Subscription(options)
        retry_s = options.retry_ns / 1e9
        self._freeze = Checkpoints(self._subscription, retry_s) if options.withhold else None
        if self._freeze is not None:    # SIGTERM can end the process just before it calls stop
            atexit.register(self._let_publishers_continue)
        self._splitting = Splitting(self._subscription)
        self._commits = Commits(
            lambda want, at, most: self._subscription.find(want, at, most, RESERVED_VALUE),
            required=options.read_committed is True, strict=options.fail_on_data_loss,
        )
        self._progress = Progress(
            lambda want: self._subscription.cut(want)[1], self._subscription.groups,
            name=options.subscription,
        )
        self._view = View()
        self._available_now = False
        self._target: dict[Session, int] | None = None
        self._planned = Offset()
        self._seen: dict[Session, int] = {}     # the highest end of each session
        self._lost_bytes = 0
        self._parts_left_out = 0
        self._said: set[str] = set()
        self._turn = 0
        self._idle = False
        self._look_s = 0.0
        self._batch_at = self._busy_at = time.monotonic()
        self._awaited: set[Session] = set()     # sessions that are known to be lost
        self._compared = False          # start with the groups of the checkpoint

    def initial(self, *, acknowledge: bool = True) -> Offset:
        """Open the consumer groups, and return the offset at which the query begins. The option
        startingOffsets determines where a new group begins."""
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
        """Return the positions that an option states, if any."""
        if isinstance(bound, str):
            return {}
        chosen = {Session.parse(key): position for key, position in bound.items()}
        Offset(positions=chosen).check_streams(self._options.streams, option)
        return chosen

    def _check_start(self, view: View, session: Session, position: int) -> None:
        """Check that a query can begin at these positions: an acknowledgement within a message
        would damage the group."""
        option = f"option startingOffsets: {session}: position {position}"
        held = view.holdings.get(session)
        if not held:
            _log.warning(
                "%s: no daemon has this session yet: the query begins at the position where it "
                "joins", option,
            )
            return
        at, end = view.first(session), view.end(session)
        if position < at:
            _log.warning(
                "%s: begins at %d; earlier data is not retained or is acknowledged", option, at
            )
        if position > end:
            raise InvalidArgument(f"{option} exceeds the end of the log, {end}")
        while at < position and position % held[0].log.term_length:
            want = view.want(session, at, min(position - at, CUT_BYTES))
            place = at if want is None else self._subscription.cut(want)[0]
            if not at < place <= position:
                raise InvalidArgument(
                    f"{option} is not between two messages; use a value of the column position"
                )
            at = place

    def _place_at(self, view: View, session: Session, time_ns: int) -> int:
        """Return the position after the messages of a session that arrived before a time; the end
        if all did."""
        at, end = view.first(session), view.end(session)
        want = view.want(session, at, 0)
        if want is None:
            return at
        positions, times_us = _times.decode(self._subscription.times(
            want, end, most=_times.MOST_ENTRIES
        ))
        later = [n for n, us in enumerate(times_us) if us >= time_ns // 1000]   # a clock can step
        if not later:
            return end
        reach = positions[later[0] - 1] if later[0] > 0 else at
        while at < reach:           # a message may continue there: use its beginning
            place, _ = self._subscription.cut(attrs.evolve(
                want, start=at, max_bytes=min(reach - at, CUT_BYTES)
            ))
            if not at < place <= reach:
                break
            at = place
        return at

    def latest(self, start: Offset, max_bytes: int | None, max_messages: int) -> Offset:
        if self._freeze is None:
            return self._latest(start, max_bytes, max_messages)
        began = self._batch_at
        if not self._available_now or self._target is not None:
            after = self._latest(start, max_bytes, max_messages)
            if after is start:          # the last batch is committed, and there is no other
                self._freeze.end()
                return start
        else:
            self._subscription.open(start.groups)
        self._freeze.begin()
        self._batch_at = began          # the limits of a batch apply as before
        return self._latest(start, max_bytes, max_messages)

    def _latest(self, start: Offset, max_bytes: int | None, max_messages: int) -> Offset:
        start.check_streams(self._options.streams)
        self._subscription.open(start.groups)
        self._rest()
        if not self._compared:
            self._compared = True
            if text := self._left_behind(start):
                _log.warning("subscription %s%s", self._options.subscription, text)
        view = self._check(start.positions if self._options.ack_on == "batch" else None)
        view = self._rejoined(view, start)
        if self._available_now and self._target is None:
            view = self._settled(view)
            self._target = {session: view.end(session) for session in view.holdings}
        begin = self._behind_losses(view, start)
        self._check_returns(view, begin)
        found = planner.wants(view, begin, max_bytes=max_bytes, target=self._target)
        whole = self._committed(view, begin, found, max_messages, self._target)
        plain = [want for want in found if want.session not in whole.heard]
        left = max(1, max_messages - whole.messages) if max_messages else 0
        ends, messages = self._ends(plain, left)
        ends |= whole.ends
        ends |= self._severed(view, found, ends)
        limited = whole.limited or planner.is_limited(plain, max_bytes)
        if not limited and self._waits(found, messages + whole.messages):
            ends = {}
        after = planner.advance(view, begin, ends)
        if after is not begin:
            after = whole.offset(begin, after)
        if self._target is not None:
            after = planner.not_beyond(after, self._target, begin)
        # A loss is recorded only together with new data.
        self._idle = after is begin
        if not self._idle:
            self._batch_at = self._busy_at = time.monotonic()
            self._parts_left_out += whole.broken
        after = start if self._idle else self._frozen(view, begin, after)
        self._seen = {
            s: end for s, end in self._seen.items() if s in view.holdings or s in start.positions
        }
        self._planned = after
        return after

    def _committed(
        self, view: View, begin: Offset, found: Sequence[Want], max_messages: int,
        target: Mapping[Session, int] | None,
    ) -> Batch:
        if self._options.read_committed is False:
            return Batch()
        return self._commits.plan(
            view, begin, found, max_messages=max_messages, target=target
        )

    def _severed(
        self, view: View, found: Sequence[Want], ends: Mapping[Session, int]
    ) -> dict[Session, int]:
        """Return where sessions continue whose next message begins in an ended log, and whose rest
        is lost."""
        behind = {}
        for want in found:
            moved = ends.get(want.session, want.start) > want.start
            place = None if moved else view.severed_at(want.session, want.start)
            if place is None:
                continue
            with contextlib.suppress(RangeNotRetained):
                if self._subscription.cut(want)[0] == want.start:
                    self._skip_to(want.session, want.start, place)
                    behind[want.session] = place
        return behind

    def _skip_to(self, session: Session, start: int, place: int) -> None:
        """Report what is missing between two logs of a session.

        :raises DataLoss: the query does not continue without it.
        """
        loss = planner.Loss(
            session=session, start=start, end=place,
            reason=f"the connection was lost, and joined again at {place}",
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(f"data loss: {loss}. To continue, set failOnDataLoss=false")
        self._notify(loss)

    def _rest(self) -> None:
        """Delay the answer of an idle query, because Spark asks every 10 ms. The delay grows up to
        a tenth of the idle time."""
        if self._idle:
            idle_s = time.monotonic() - self._busy_at
            time.sleep(min(max(_IDLE_PARTS * self._look_s, idle_s / 10), _IDLE_MOST_S))

    def _waits(self, found: Sequence[Want], messages: int) -> bool:
        """Return whether the batch waits for more messages (option minOffsetsPerTrigger). It does
        not wait if half of a session's window is full."""
        least = self._options.min_messages
        if least is None or messages >= least or self._available_now:
            return False
        full = any(
            2 * (want.end - want.start) >= want.holding.log.window_bytes
            for want in found
        )
        waited_ns = (time.monotonic() - self._batch_at) * 1e9
        return not full and waited_ns < self._options.max_delay_ns

    def _rejoined(self, view: View, start: Offset) -> View:
        """Return ``view`` after the sessions of ``start`` have joined again. A group that was
        opened again after it expired joins a live stream within moments; before that no loss is
        certain. The query waits once; with AvailableNow also for the first sessions of a new
        query."""
        deadline = time.monotonic() + _REAPPEAR_S
        while time.monotonic() < deadline:
            away = {
                loss.session for loss in planner.losses(view, start, self._seen) if loss.end is None
            } - self._awaited
            first = self._available_now and self._target is None and not view.holdings
            if not away and not first:
                return view
            time.sleep(_PAUSE_S)
            view = self._check()
        self._awaited |= {loss.session for loss in planner.losses(view, start, self._seen)}
        return view

    def _frozen(self, view: View, begin: Offset, after: Offset) -> Offset:
        """Return the offset with all values that a repeated batch must reuse."""
        found = planner.ranges(view, begin, attrs.evolve(after, skipped={}))
        most = _times.entries_each(len(found))
        times = {}
        for item in found:
            want = view.want(item.session, item.start, item.length)
            if want is not None:
                with contextlib.suppress(RangeNotRetained):     # the plan shows the losses
                    times[item.session] = self._subscription.times(want, item.end, most=most)
        return attrs.evolve(
            after, tasks=self._count(found), times=times,
            records=self._options.max_records or 0,
        )

    def _ends(
        self, found: Sequence[Want], max_messages: int
    ) -> tuple[dict[Session, int], int]:
        """Return the end of each session's part, and the total number of messages. The daemons find
        ends between messages. With a limit of messages each session first gets its share, and then
        the rest of others. The order of sessions rotates, because a limit may be too small for
        all."""
        ends: dict[Session, int] = {}
        self._turn += 1
        first = self._turn % len(found) if found else 0
        found = [*found[first:], *found[:first]]
        left = max_messages
        for number, want in enumerate(found):
            quota = max(1, left // (len(found) - number)) if max_messages else 0
            if max_messages and left < 1:
                break
            with contextlib.suppress(RangeNotRetained):     # the next look shows the losses
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
                    if end <= want.start + want.max_bytes:      # at least one message is included
                        ends[want.session] = end
                        left -= count
        return ends, max_messages - left

    def prepare(self) -> None:
        """Record that Spark uses the trigger AvailableNow: the query ends when it has read the
        available data. The planner determines the end of this data later, at Spark's first request
        for an offset. Only this request shows whether the query is new."""
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
            time.sleep(_PAUSE_S)        # a daemon that has just restarted finds its logs
        return self._partitions(view, self._with_holders(found), end.tasks, end.records)

    def batch(self) -> list[InputPartition]:
        """Return the partitions of a batch read (``spark.read``). A batch read covers all retained
        data, or the range that the options state."""
        self._commits.read_at_once()
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
                continue                # of a group with further streams
            last = chosen.get(session, at) if bounded else view.end(session)
            while at < last:
                want = view.want(session, at, min(last - at, CUT_BYTES))
                place = at if want is None else self._subscription.cut(want)[0]
                behind = view.severed_at(session, at) if place <= at else None
                if behind is not None and behind <= last:
                    self._skip_to(session, at, behind)
                    place = behind
                if place > last and session in chosen:
                    raise InvalidArgument(
                        f"option endingOffsets: {session}: position {last} is not between two "
                        "messages; use a value of the column position"
                    )
                if place <= at or place > last:
                    break
                at = place
            ends[session] = at
        whole = self._committed(view, start, [
            want for session, at in start.positions.items() if ends.get(session, at) > at
            and (want := view.want(session, at, ends[session] - at)) is not None
        ], 0, ends)
        ends |= {session: start.positions[session] for session in whole.heard}
        ends |= whole.ends
        end = whole.offset(start, Offset(positions=ends))
        end = self._frozen(view, start, end)
        return self._partitions(view, planner.ranges(view, start, end), end.tasks, end.records)

    @staticmethod
    def _check_ends(view: View, chosen: Mapping[Session, int]) -> None:
        for session, position in sorted(chosen.items()):
            option = f"option endingOffsets: {session}: position {position}"
            if session not in view.holdings:
                known = ", ".join(map(str, view.holdings)) or "none"
                raise InvalidArgument(f"{option}: no daemon has this session; sessions: {known}")
            if position > view.end(session):
                raise InvalidArgument(f"{option} exceeds the end of the log, {view.end(session)}")
            if position < view.first(session):
                raise InvalidArgument(
                    f"{option} lies before the first retained position, {view.first(session)}"
                )

    def _partitions(
        self, view: View, found: Sequence[Range], tasks: int, records: int
    ) -> list[InputPartition]:
        """Return the number of tasks: in a barrier stage the present number of slots, else the
        batch's number."""
        options = self._options
        barrier = options.locality == "barrier"
        count = tasks or self._count(found)
        table: list[Range] = []
        for item, pieces in zip(found, planner.pieces(found, count), strict=True):
            for part in planner.split(item, self._splitting.places(view, item, pieces)):
                table += planner.split(part, self._splitting.every(view, part, records))
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

    def acknowledge(self, end: Offset) -> None:
        self._subscription.open(end.groups)
        self._check(end.positions)

    def report(self) -> dict[str, Any]:
        """Return the figures that Spark reports as the progress of the query."""
        return self._progress.report(self._view, self._planned.positions, {
            "lostBytes": self._lost_bytes, "losses": len(self._said),
            "partsLeftOut": self._parts_left_out,
        })

    def stop(self) -> None:
        self._let_publishers_continue()
        atexit.unregister(self._let_publishers_continue)
        self._subscription.stop()

    def _let_publishers_continue(self) -> None:
        if self._freeze is not None:
            with contextlib.suppress(PenstockError):
                self._freeze.end()

    # ---- looking ---------------------------------------------------------------------------------

    def _check(self, acknowledged: Mapping[Session, int] | None = None) -> View:
        began = time.monotonic()
        self._view = self._subscription.view(acknowledged)
        for session in self._view.holdings:
            self._seen[session] = max(self._seen.get(session, 0), self._view.end(session))
        self._progress.look(self._view)
        self._look_s = time.monotonic() - began
        return self._view

    def _settled(self, view: View) -> View:
        """Return ``view`` after the daemons have walked their logs, which takes several steps."""
        for _ in range(_CHECKS):
            before = {session: view.end(session) for session in view.holdings}
            view = self._check()
            if before == {session: view.end(session) for session in view.holdings}:
                break
        return view

    def _behind_losses(self, view: View, start: Offset) -> Offset:
        """Return ``start``, moved beyond losses if the query continues without the lost data."""
        lost = planner.losses(view, start, self._seen)
        for loss in lost:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"data loss: {loss}. To continue after the lost data, set "
                    "failOnDataLoss=false; a longer groupExpiry or a faster query avoids data loss"
                    f"{self._left_behind(start)}"
                )
            self._notify(loss)
        return planner.skip(start, lost)

    def _left_behind(self, start: Offset) -> str:
        """Return a hint about groups that the query read under another subscription."""
        names = self._subscription.others(start.groups)
        if not names:
            return ""
        return (
            f". The checkpoint was made with subscription {', '.join(names)}, whose group still "
            "exists and limits the sender: use that subscription name, or end the group with "
            f"'penstock groups end {names[0]}'"
        )

    def _notify(self, loss: planner.Loss) -> None:
        """Log each text once."""
        if str(loss) not in self._said:
            self._said.add(str(loss))
            self._lost_bytes += 0 if loss.end is None else loss.end - loss.start
            _log.warning("data loss, the query continues: %s", loss)

    def _check_returns(self, view: View, start: Offset) -> None:
        """Report the missing ranges before sessions that ended and returned."""
        for loss in planner.returns(view, start):
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"data loss: {loss}. To continue after the lost data, set failOnDataLoss=false"
                )
            self._notify(loss)

    def _check_outlived(self, view: View, start: Offset, end: Offset) -> None:
        for stream in planner.outlived(view, start, end):
            text = (
                f"data loss: the group of {stream.channel} stream {stream.stream_id} expired or "
                "was closed before the first batch of the query was done, so its data is lost"
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{text}. To continue with the remaining data, set failOnDataLoss=false, or "
                    "give the query another checkpointLocation"
                )
            _log.warning("%s; the query continues", text)

    def _with_holders(self, found: Sequence[Range]) -> list[Range]:
        """Return the ranges that a daemon holds. A missing range is an error, or a loss that is
        skipped."""
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
                raise DataLoss(
                    f"{text}. To continue with the remaining data, set failOnDataLoss=false"
                )
            self._notify(planner.Loss(
                session=item.session, start=item.start, end=item.end,
                reason="no daemon holds it any more",
            ))
        return able
