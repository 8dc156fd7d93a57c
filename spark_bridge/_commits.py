# SPDX-License-Identifier: Apache-2.0
"""Find the position at which a batch of committed rows must end. A batch of committed rows contains
only complete parts from a penstock sink, and each part only once.

The planner looks for the markers of the sink in the daemons' logs. A batch ends between parts. The
offset of a batch lists the ranges that the batch skips: broken parts, repeated parts, failed batch
writes. If Spark repeats a batch, the source skips the ranges that the offset lists.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import attrs

from penstock.client import GroupRefused, LogMarks, RangeNotRetained
from penstock.core.errors import PenstockError
from penstock.spark_bridge._assembler import RepeatDiffers
from penstock.spark_bridge._brackets import Done, Mark, Piece, Stretch, pieces
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge._planner import View, Want
from penstock.spark_bridge._reader import DataLoss
from penstock.spark_bridge.markers import Kind, MarkerError, Part, decode

_log = logging.getLogger(__name__)

#: For how long the rest of a part or of a batch write is waited for when its publishers are gone.
GRACE_S: Final = 30.0
_PROBE_BYTES: Final = 256 * 1024        # of a session that has had no marker
_ALL_BYTES: Final = 2**62
_MOST_MARKS: Final = 50_000     # of a session, ahead of the query
_MOST_SKIPPED: Final = 128      # stretches that a batch leaves out of a session
_MOST_LEFT_OUT: Final = 1024    # parts without a COMMIT that are recognised if it comes later

#: A run of a batch write.
Run: TypeAlias = tuple[UUID, int, UUID]
#: Finds markers from a position on, within a number of bytes.
Look: TypeAlias = Callable[[Want, int, int], LogMarks]


class ForgottenPart(PenstockError):
    """Raised for a part whose epoch is too old: the offset no longer states whether the query has
    read this part.
    """


class UnreadableMarker(PenstockError):
    """Raised for a message with the reserved value of a marker that is no marker of a known
    version."""


@attrs.frozen(kw_only=True)
class Batch:
    """One batch of committed rows. The batch covers only the sessions that contain markers of a
    sink."""

    heard: frozenset[Session] = frozenset()         # those with markers
    ends: Mapping[Session, int] = attrs.Factory(dict)
    messages: int = 0
    limited: bool = False       # a limit of the batch leaves out a part that has arrived
    broken: int = 0             # parts and runs that are left out for ever
    skipped: Mapping[Session, tuple[tuple[int, int], ...]] = attrs.Factory(dict)
    done: Done = attrs.Factory(Done)
    keys: Mapping[Session, bytes] = attrs.Factory(dict)

    def offset(self, begin: Offset, after: Offset) -> Offset:
        """Add the entries about parts to ``after``, the offset at the end of the batch, and return
        the result. With these entries, the source can plan the next batch, and can repeat this
        batch.
        """
        marked = (self.heard | begin.skipped.keys()) & after.positions.keys()
        keys = {**begin.keys, **self.keys}
        return attrs.evolve(
            after, done=self.done, skipped={s: self.skipped.get(s, ()) for s in sorted(marked)},
            keys={s: key for s, key in sorted(keys.items()) if s in after.positions},
        )


@attrs.define
class _Heard:
    """Markers of a session behind the query's position."""

    marks: list[Mark] = attrs.Factory(list)
    position: int = 0           # all before it was looked at


@attrs.define
class _Taken:
    """Of one session, while a batch is planned."""

    end: int
    messages: int = 0
    skipped: list[tuple[int, int]] = attrs.Factory(list)

    def skip(self, piece: Piece) -> None:
        if self.skipped and self.skipped[-1][1] == piece.start:
            self.skipped[-1] = (self.skipped[-1][0], piece.end)
        else:
            self.skipped.append((piece.start, piece.end))


class Commits:
    """One for each query."""

    def __init__(
        self, look: Look, *, required: bool, strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        :param required: if True (option readCommitted=true), every session must have markers of a
            sink.
        :param strict: whether to raise an exception if it is unknown whether the query has read a
            part.
        """
        self._look = look
        self._required = required
        self._strict = strict
        self._clock = clock
        self._heard: dict[Session, _Heard] = {}
        self._since: dict[object, float] = {}       # when something was missing first
        self._old_daemon = False
        self._limited = True                        # one batch of many
        self.left_out: dict[tuple[Session, Part], int] = {}     # where they began

    def read_at_once(self) -> None:
        """Plan batches without the limits that keep the offsets of a streaming query small and its
        batches short: there is no next batch that could read the rest."""
        self._limited = False

    def allows(self, marks: int = 0, *, skipped: int = 0) -> bool:
        """Return whether a session may have one more marker ahead of the query, or one more range
        that a batch skips."""
        return not self._limited or (marks < _MOST_MARKS and skipped < _MOST_SKIPPED)

    def plan(
        self, view: View, begin: Offset, found: Sequence[Want], *, max_messages: int = 0,
        target: Mapping[Session, int] | None = None,
    ) -> Batch:
        """Plan a batch of committed rows. The batch covers only those sessions in ``found`` that
        have markers; the result states no end position for the other sessions.
        """
        if self._old_daemon:
            return Batch(done=begin.done)
        heard = {}
        for want in found:
            marked = self._required or want.session in begin.skipped
            one = self._refreshed(want, marked)
            if one.marks or marked:
                heard[want.session] = (want, list(pieces(one.marks, want.start, one.position)))
        for session in [s for s in self._heard if s not in view.holdings]:
            del self._heard[session]
        while len(self.left_out) > _MOST_LEFT_OUT:
            del self.left_out[next(iter(self.left_out))]
        if not heard:
            return Batch(done=begin.done)
        plan = _Plan(self, view, begin, heard, max_messages, target or {}, target is not None)
        return plan.made()

    def _refreshed(self, want: Want, marked: bool) -> _Heard:
        """What is known of a session.  A session of a sink begins with a marker: of one that does
        not, only the first bytes of each batch are looked at."""
        one = self._heard.setdefault(want.session, _Heard())
        one.marks = [mark for mark in one.marks if mark.begin >= want.start]
        one.position = max(one.position, want.start)
        while one.position < want.end and self.allows(len(one.marks)):
            left = _ALL_BYTES
            if not marked and not one.marks:
                left = want.start + _PROBE_BYTES - one.position
                if left <= 0:
                    break
            try:
                found = self._look(want, one.position, left)
            except RangeNotRetained:        # the next look shows what is lost
                break
            except GroupRefused as error:
                if error.code != "malformed" or self._required:
                    raise
                _log.warning(
                    "a daemon is too old to find markers: all rows are read, committed or not"
                )
                self._old_daemon = True
                break
            for mark in found.marks:
                try:
                    marker = decode(mark.payload)
                except MarkerError as error:
                    self._unreadable(want.session, mark.begin, error)
                    continue
                one.marks.append(Mark(begin=mark.begin, end=mark.end, marker=marker))
            if found.position <= one.position:
                break
            one.position = found.position
        return one

    def _unreadable(self, session: Session, position: int, error: MarkerError) -> None:
        """Report a marker that cannot be decoded: which rows are committed is unknown then.

        :raises UnreadableMarker: the query does not continue without these rows.
        """
        text = f"{session}: the marker at position {position} cannot be read: {error}"
        if self._strict:
            raise UnreadableMarker(
                f"{text}. A sink of a later penstock version wrote it, or a time stamp of the "
                "channel overwrote it: upgrade penstock, or correct the channel of the publisher. "
                "To read all rows, committed or not, set readCommitted=false"
            )
        _log.warning("%s: the query continues", text)

    def overdue(self, key: object) -> bool:
        """Return whether the query has waited too long (longer than ``GRACE_S``) for the end of the
        part or job that ``key`` identifies.
        """
        return self._clock() - self._since.setdefault(key, self._clock()) > GRACE_S

    def there(self, keys: Iterable[object]) -> None:
        """Record for which parts and jobs (``keys``) the query waits now. For all other parts and
        jobs, forget when the wait began.
        """
        kept = set(keys)
        self._since = {key: since for key, since in self._since.items() if key in kept}


class _Plan:
    """One batch."""

    def __init__(
        self, commits: Commits, view: View, begin: Offset,
        heard: Mapping[Session, tuple[Want, Sequence[Piece]]], max_messages: int,
        target: Mapping[Session, int], bounded: bool,
    ) -> None:
        self._commits = commits
        self._view = view
        self._begin = begin
        self._heard = heard
        self._max_messages = max_messages
        self._target = target
        self._bounded = bounded
        self._done = Done.from_plain(begin.done.to_plain())
        self._missing: set[object] = set()
        self._limited = False
        self._broken = 0
        self._ends: dict[Run, int | None] = {}      # of batch writes: parts, None: aborted
        self._places: dict[Run, dict[tuple[int, bytes], Part]] = {}
        self._homes: dict[Run, set[Session]] = {}
        self._taken: dict[Session, _Taken] = {}

    def made(self) -> Batch:
        for session in sorted(self._heard):
            for piece in self._heard[session][1]:
                self._note(session, piece)
        # Ends of jobs come last: they may be passed when all parts have been taken.
        turns = sorted(self._heard, key=lambda s: (self._has_ends(s), s))
        left = self._max_messages
        for number, session in enumerate(turns):
            quota = max(1, left // (len(turns) - number)) if self._max_messages else 0
            if self._max_messages and left < 1:
                break
            taken = self._take(session, quota)
            self._taken[session] = taken
            left -= taken.messages
        self._commits.there(self._missing)
        return Batch(
            ends={
                session: taken.end for session, taken in self._taken.items()
                if taken.end > self._heard[session][0].start
            },
            heard=frozenset(self._heard),
            messages=sum(taken.messages for taken in self._taken.values()),
            limited=self._limited,
            broken=self._broken,
            skipped={s: tuple(taken.skipped) for s, taken in self._taken.items()},
            done=self._done,
            keys={
                session: piece.marker.part.key
                for session, (_, found) in self._heard.items() for piece in found
                if piece.marker is not None and piece.marker.part.key
            },
        )

    def _has_ends(self, session: Session) -> bool:
        return any(piece.kind is Stretch.JOB_END for piece in self._heard[session][1])

    def _note(self, session: Session, piece: Piece) -> None:
        """What is known of batch writes, in whatever session."""
        if piece.marker is None or not piece.marker.part.job or piece.kind is Stretch.BROKEN:
            return
        part = piece.marker.part
        run = _run(part)
        if piece.kind is Stretch.JOB_END:
            commits = piece.marker.kind is Kind.JOB_COMMIT
            # A driver may abort a job whose JOB_COMMIT it could not send in time. The JOB_ABORT
            # applies, unless an earlier batch has read a part of the job.
            if commits == (self._done.run_of(part.query, part.epoch) == part.run):
                self._ends[run] = piece.marker.content.messages if commits else None
            else:
                self._ends.setdefault(run, piece.marker.content.messages if commits else None)
            return
        self._homes.setdefault(run, set()).add(session)
        if piece.kind is Stretch.PART:
            self._places.setdefault(run, {})[(part.partition, part.key)] = part

    # ---- one session -----------------------------------------------------------------------------

    def _take(self, session: Session, quota: int) -> _Taken:
        want, found = self._heard[session]
        taken = _Taken(end=want.start)
        for number, piece in enumerate(found):
            if self._bounded and piece.end > self._target.get(session, 0):
                break
            if taken.end > want.start and piece.end - want.start > want.max_bytes:
                self._limited |= piece.kind is Stretch.PART
                break
            messages = 0
            if piece.kind is Stretch.PART and piece.marker is not None:
                messages = piece.marker.content.messages
                if quota and taken.messages and taken.messages + messages > quota:
                    self._limited = True
                    break
            wanted = self._judge(session, piece, self._is_first(found, number))
            if wanted is None or not self._commits.allows(skipped=len(taken.skipped)):
                break
            if wanted:
                taken.messages += messages
            else:
                taken.skip(piece)
            taken.end = piece.end
        return taken

    @staticmethod
    def _is_first(found: Sequence[Piece], number: int) -> bool:
        """Whether plain rows come before any part: nobody knows what they belong to."""
        return all(piece.kind is Stretch.PLAIN for piece in found[: number + 1])

    def _judge(self, session: Session, piece: Piece, first: bool) -> bool | None:
        """Whether to read it; None: it has to wait, and all behind it."""
        if piece.kind is Stretch.BROKEN:
            self._check_left_out(session, piece)
            self._broken += 1
            return False
        if piece.kind is Stretch.PLAIN:
            # In a stream without other markers, these are rows of another publisher.
            return first and not self._commits._required and session not in self._begin.skipped
        if piece.kind is Stretch.OPEN:
            return False if self._is_over(session, piece) else None
        assert piece.marker is not None
        if piece.kind is Stretch.JOB_END:
            return self._passes(piece.marker.part)
        part = piece.marker.part
        if part.job:
            wanted = self._of_job(part)
            if wanted is not True:
                return wanted
        if self._done.knows(part):
            if self._done.differs(part, piece.marker.content):
                raise RepeatDiffers(
                    f"{session}: {part} at position {piece.start}: this attempt has other "
                    "rows than the attempt that this query has read; the writing query must split "
                    "a repeated batch in the same way. To continue, start with a new checkpoint, "
                    "at a position after this part",
                    part=part,
                )
            return False
        if self._done.is_forgotten(part):
            text = f"{session}: {part} at position {piece.start} is older than the epochs that " \
                   "the offset records, so it is unknown whether this query has read it"
            if self._commits._strict:
                raise ForgottenPart(
                    f"{text}. To continue without this part, set failOnDataLoss=false"
                )
            _log.warning("%s: the batch skips it", text)
            return False
        self._done.add(part, piece.marker.content)
        return True

    def _is_over(self, session: Session, piece: Piece) -> bool:
        """Whether the open part at the end of a session will have no COMMIT any more."""
        assert piece.marker is not None
        held = self._view.holdings.get(session, ())
        if self._view.severed_at(session, piece.start) is not None:
            return True                 # the planner reports what is lost behind it
        if not held or not all(h.log.ended and h.log.end_position <= piece.end for h in held):
            return False
        if not self._overdue(("tail", session, piece.start), f"{session}: {piece.marker}"):
            return False
        self._commits.left_out[(session, piece.marker.part)] = piece.start
        return True

    def _check_left_out(self, session: Session, piece: Piece) -> None:
        """Report a part whose session returned after its beginning was left out.

        :raises DataLoss: the part has a COMMIT, and no attempt of it was read.
        """
        if piece.marker is None:
            return
        part = piece.marker.part
        start = self._commits.left_out.get((session, part))
        if start is None or self._done.knows(part):
            return
        text = (
            f"{session}: {part}: its sender was silent for so long that its beginning at position "
            f"{start} was left out, and now its COMMIT has arrived"
        )
        if self._commits._strict:
            raise DataLoss(f"data loss: {text}. To continue, set failOnDataLoss=false")
        _log.warning("%s: the query continues without this part", text)

    # ---- batch writes ----------------------------------------------------------------------------

    def _of_job(self, part: Part) -> bool | None:
        run = _run(part)
        if self._done.has_job(part):
            return False
        if self._is_other(run):
            return False
        if self._is_whole(run):
            return True
        if run in self._ends and self._ends[run] is None:
            return False
        if any(self._is_whole(other) for other in self._ends if other[:2] == run[:2]):
            return False            # a run that failed, and was written again
        if run in self._ends or all(self._is_gone(s) for s in self._homes.get(run, ())):
            return False if self._overdue(("job", run), f"batch write {part.query}") else None
        return None

    def _is_other(self, run: Run) -> bool:
        """Whether the query has begun to read another run of the same batch write. A run is whole
        when its first part is read, so that the query will have read all of it."""
        return self._done.run_of(run[0], run[1]) not in (None, run[2])

    def _is_whole(self, run: Run) -> bool:
        """Whether the run is committed and all its parts are there, or were taken."""
        parts = self._ends.get(run)
        if parts is None or self._is_other(run):
            return False
        example = Part(query=run[0], epoch=run[1], run=run[2], partition=0, attempt=0, job=True)
        unread = self._places.get(run, {}).values()
        new = sum(not self._done.knows(part) for part in unread)
        return new + self._done.places(example) >= parts

    def _is_gone(self, session: Session) -> bool:
        return all(h.log.ended for h in self._view.holdings.get(session, ()))

    def _passes(self, part: Part) -> bool | None:
        """Whether the end of a batch write is behind the query: it is needed until all parts are.
        Its rows are hidden, so that it is read."""
        run = _run(part)
        parts = self._ends[run]
        if parts is None or self._done.has_job(part):
            return True
        if self._is_other(run):
            return True
        if self._done.places(part) >= parts:
            self._done.add_job(part)
            return True
        if any(other[:2] == run[:2] and other != run and self._is_whole(other)
               for other in self._ends):
            return True
        return True if self._overdue(("job", run), f"batch write {part.query}") else None

    def _overdue(self, key: object, what: str) -> bool:
        self._missing.add(key)
        if not self._commits.overdue(key):
            return False
        _log.warning("%s: the rest of this part did not arrive within %g s: skipped", what, GRACE_S)
        self._broken += 1
        return True


def _run(part: Part) -> Run:
    return part.query, part.epoch, part.run
