# SPDX-License-Identifier: Apache-2.0
"""Assemble complete parts of epochs from the messages of a penstock sink (markers and rows), and
drop repeated parts. A part contains the rows of one task of a Spark batch (an epoch). The assembler
reads no stream and no clock: its caller passes it all messages."""

from __future__ import annotations

import zlib
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge.markers import Content, Kind, Marker, MarkerError, Part, decode

_PARTIAL_KEPT: Final = 256
_QUERIES_KEPT: Final = 4096
_JOBS_KEPT: Final = 256             # runs that are not committed
STATE_VERSION: Final = 2

#: (partition, key): identifies a part of an epoch, for every attempt.
Place: TypeAlias = tuple[int, bytes]


class RepeatDiffers(PenstockError):
    """Raised if Spark has repeated a batch and divided its rows differently among the tasks:
    repeated rows cannot be distinguished from new rows. The iterator over parts has dropped the
    repeated part, and can continue with the next part."""

    def __init__(self, message: str, *, part: Part) -> None:
        super().__init__(message)
        self.part = part


class PendingTooLarge(PenstockError):
    """The rows of open parts (begun, but not committed) exceed ``max_pending_bytes``."""


@attrs.frozen(kw_only=True)
class CommittedPart:
    """A complete part of an epoch: the rows of one task, with a COMMIT marker that agrees with
    these rows.
    """

    part: Part
    session_id: int
    messages: tuple[bytes, ...] = attrs.field(repr=lambda rows: f"<{len(rows)} messages>")

    @property
    def query(self) -> UUID:
        return self.part.query

    @property
    def epoch(self) -> int:
        """The epoch: Spark's batch id, or 0 for a batch write."""
        return self.part.epoch

    @property
    def partition(self) -> int:
        return self.part.partition

    @property
    def key(self) -> bytes:
        """Value of the sink's key column in the rows of this part; empty if the sink has no key
        column."""
        return self.part.key


@attrs.frozen(kw_only=True)
class PartialPart:
    """A part that has begun and is not complete."""

    part: Part
    session_id: int
    messages: int
    """Received so far."""
    reason: str
    """``open``: more may come.  ``job``: complete, and its job is not.  ``abandoned``: its
    publisher began another one.  ``ended``: its session is gone.  ``damaged``: its COMMIT counts
    other rows than came.  ``too_large``: it passed the limit.  ``aborted``: its job failed."""


@attrs.frozen(kw_only=True)
class CommittedStatistics:
    """Counts the parts and rows that an assembler has processed since it was created."""

    parts: int = 0
    """Handed out."""
    messages: int = 0
    """In them."""
    repeats: int = 0
    """Complete parts that were there before."""
    repeated_messages: int = 0
    partial: int = 0
    """Parts dropped: abandoned, ended or damaged."""
    partial_messages: int = 0
    headless: int = 0
    """Rows without a BEGIN: the reader joined in the middle of a part."""
    malformed: int = 0
    """Messages with a marker's reserved value that are none."""
    pending_bytes: int = 0
    """Held for parts that are open now."""


class _Open:
    """A part between BEGIN and COMMIT."""

    __slots__ = ("bytes", "count", "crc", "known", "part", "rows")

    def __init__(self, part: Part, *, known: bool) -> None:
        self.part = part
        self.known = known          # repeats an earlier part: counted, not kept
        self.rows: list[bytes] = []
        self.count = self.bytes = self.crc = 0

    def add(self, payloads: Iterable[bytes | memoryview]) -> int:
        """Add rows to the part. Return how many bytes the assembler keeps in memory for these rows;
        0 if the part is a repeat.
        """
        kept = 0
        for payload in payloads:
            self.crc = zlib.crc32(payload, self.crc)
            self.count += 1
            self.bytes += len(payload)
            if not self.known:
                self.rows.append(bytes(payload))
                kept += len(payload)
        return kept

    @property
    def content(self) -> Content:
        return Content(messages=self.count, bytes=self.bytes, crc=self.crc)


@attrs.define
class _Job:
    """A run of a batch write, whose parts are held until all of it has come."""

    aborted: bool = False
    parts: dict[Place, tuple[CommittedPart, Content]] = attrs.Factory(dict)
    expected: int | None = None         # None: no JOB_COMMIT came yet

    @property
    def is_complete(self) -> bool:
        return self.expected is not None and len(self.parts) >= self.expected

    @property
    def bytes(self) -> int:
        return sum(content.bytes for _, content in self.parts.values())


class Assembler:
    """Assembles the parts in all sessions of a stream. The caller may identify a session by any
    hashable value.

    For each query, epoch, partition and key, the assembler returns the first attempt whose COMMIT
    matches its rows. The assembler drops and counts all other attempts of a part. The assembler
    keeps the parts of a batch write (a job) until all its parts and its JOB_COMMIT marker have
    arrived. The assembler keeps in memory the rows of open parts, up to ``max_pending_bytes``. For
    each of the last ``remember`` epochs of a query, the assembler records which parts it has
    returned. If a part belongs to an older epoch, the assembler cannot know whether it has returned
    this part, and drops the part as a repeat.
    """

    def __init__(
        self, *, remember: int = 1024, max_pending_bytes: int = 1 << 30,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        if remember < 1 or max_pending_bytes < 1:
            raise InvalidArgument(
                f"remember and max_pending_bytes must be at least 1, not {remember} and "
                f"{max_pending_bytes}"
            )
        self._remember = remember
        self._max_pending = max_pending_bytes
        self._open: dict[Hashable, _Open] = {}
        self._done: OrderedDict[UUID, dict[int, dict[Place, Content]]] = OrderedDict()
        self._floor: dict[UUID, int] = {}
        self._jobs: OrderedDict[tuple[UUID, int, UUID], _Job] = OrderedDict()
        self._jobs_done: OrderedDict[tuple[UUID, int], None] = OrderedDict()
        self._given_up: deque[PartialPart] = deque(maxlen=_PARTIAL_KEPT)
        self._seen = CommittedStatistics()
        if state is not None:
            self._restore(state)

    # ---- what comes in ---------------------------------------------------------------------------

    def rows(self, session: Hashable, payloads: Sequence[bytes | memoryview]) -> None:
        """Add rows of a session, in order.

        :raises PendingTooLarge: the waiting rows exceed ``max_pending_bytes``; the assembler has
            dropped the whole part to which these rows belong.
        """
        current = self._open.get(session)
        if current is None:
            self._count(headless=len(payloads))
            return
        kept = current.add(payloads)
        pending = self._seen.pending_bytes + kept
        self._seen = attrs.evolve(self._seen, pending_bytes=pending)
        if pending > self._max_pending:
            self._give_up(session, "too_large")
            if current.part.job:
                self._drop_job(_run_of(current.part), "too_large")
            hint = "write with jobCommit=false" if current.part.job else \
                "make the query's batches smaller"
            raise PendingTooLarge(
                f"rows of {pending} bytes wait for their COMMIT, and the limit is "
                f"{self._max_pending}: raise max_pending_bytes or {hint}; dropped part: "
                f"{current.part}"
            )

    def marked(self, session: Hashable, message: bytes | memoryview) -> list[CommittedPart]:
        """Process a marker, which is a message with a fixed reserved value.

        Return the parts that the marker completes: no part, one part, or all parts of a job.

        :raises RepeatDiffers: the assembler has already returned this part with other rows.
        """
        try:
            marker = decode(message)
        except MarkerError:
            self._count(malformed=1)
            return []
        if marker.kind is Kind.BEGIN:
            self._begin(session, marker.part)
            return []
        if marker.kind is Kind.COMMIT:
            part = self._commit(session, marker)
            if part is None or not part.part.job:
                return [] if part is None else [part]
            return self._hold(part, marker.content)
        return self._end_job(marker)

    def ended(self, session: Hashable) -> None:
        """Record the end of a session. A part of this session that is still open can no longer
        become complete, so the assembler drops it.
        """
        self._give_up(session, "ended")

    # ---- what is known ---------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[Hashable, ...]:
        """Return the sessions with an open part."""
        return tuple(self._open)

    @property
    def partial(self) -> tuple[PartialPart, ...]:
        """Return the incomplete parts: first the last 256 dropped parts, then the open parts, then
        the complete parts of batch writes (jobs) that have not ended yet."""
        still = (
            PartialPart(
                part=item.part, session_id=_number(session), messages=item.count, reason="open"
            )
            for session, item in self._open.items()
        )
        held = (
            PartialPart(
                part=item.part, session_id=item.session_id, messages=len(item.messages),
                reason="job",
            )
            for job in self._jobs.values() for item, _ in job.parts.values()
        )
        return (*self._given_up, *still, *held)

    @property
    def statistics(self) -> CommittedStatistics:
        return self._seen

    def state(self, *, waiting: Iterable[Part] = ()) -> dict[str, Any]:
        """Return a record of the parts that the assembler has returned, as plain data. Store this
        record with your results, and pass it to the new assembler after a restart.

        :param waiting: complete parts that were not delivered yet, which the next reader will
            assemble again.
        """
        without = {(part.query, part.epoch, part.partition, part.key) for part in waiting}
        return {
            "version": STATE_VERSION,
            "queries": {
                str(query): {
                    "floor": self._floor.get(query, 0),
                    "epochs": {
                        str(epoch): [
                            [place[0], place[1].hex(), *attrs.astuple(content)]
                            for place, content in sorted(places.items())
                            if (query, epoch, *place) not in without
                        ]
                        for epoch, places in sorted(epochs.items())
                    },
                }
                for query, epochs in self._done.items()
            },
            "jobs": [
                [str(query), epoch] for query, epoch in self._jobs_done
                if all((query, epoch) != key[:2] for key in without)
            ],
        }

    # ---- inside ----------------------------------------------------------------------------------

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            if state["version"] not in (1, STATE_VERSION):
                raise InvalidArgument(
                    f"the state has version {state['version']}, not {STATE_VERSION}"
                )
            for query, epoch in state.get("jobs", ()):
                self._jobs_done[(UUID(query), int(epoch))] = None
            for name, known in state["queries"].items():
                query = UUID(name)
                self._floor[query] = int(known["floor"])
                self._done[query] = {
                    int(epoch): {
                        (int(row[0]), bytes.fromhex(row[1])): Content(**dict(
                            zip(_CONTENT, row[2:], strict=False)
                        ))
                        for row in rows
                    }
                    for epoch, rows in known["epochs"].items()
                }
        except InvalidArgument:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise InvalidArgument(
                f"the state is not a result of committed().state(): {error!r}"
            ) from None

    def _begin(self, session: Hashable, part: Part) -> None:
        self._give_up(session, "abandoned")
        self._open[session] = _Open(part, known=self._content_of(part) is not None)

    def _commit(self, session: Hashable, marker: Marker) -> CommittedPart | None:
        current = self._open.get(session)
        if current is None:
            return None     # its BEGIN came before the reader joined
        if current.part != marker.part or not current.content.arrived_as(marker.content):
            self._give_up(session, "damaged")
            return None
        before = self._content_of(marker.part)
        self._close(session)
        if before is None and not current.known:
            if not marker.part.job:
                self._remember_part(marker.part, marker.content)
                self._count(parts=1, messages=current.count)
            return CommittedPart(
                part=marker.part, session_id=_number(session), messages=tuple(current.rows)
            )
        self._count(repeats=1, repeated_messages=current.count)
        if before is not None and before is not _FORGOTTEN and not marker.content.repeats(before):
            raise RepeatDiffers(
                f"{marker.part}: this attempt has {marker.content.messages} messages, but an "
                f"earlier attempt of this part had {before.messages}, or other rows. Spark must "
                "split a repeated batch in the same way",
                part=marker.part,
            )
        return None

    def _content_of(self, part: Part) -> Content | None:
        """Return the content that was returned for the part's place; None: none. For epochs older
        than remembered, return the part's own content."""
        if part.job and (part.query, part.epoch) in self._jobs_done:
            return _FORGOTTEN
        found = self._done.get(part.query, {}).get(part.epoch, {}).get((part.partition, part.key))
        if found is None and part.epoch < self._floor.get(part.query, 0):
            return _FORGOTTEN
        return found

    def _remember_part(self, part: Part, content: Content) -> None:
        epochs = self._done.setdefault(part.query, {})
        self._done.move_to_end(part.query)
        epochs.setdefault(part.epoch, {})[(part.partition, part.key)] = content
        floor = max(self._floor.get(part.query, 0), max(epochs) - self._remember + 1)
        self._floor[part.query] = floor
        for epoch in [epoch for epoch in epochs if epoch < floor]:
            del epochs[epoch]
        while len(self._done) > _QUERIES_KEPT:
            oldest, _epochs = self._done.popitem(last=False)
            self._floor.pop(oldest, None)

    def _hold(self, part: CommittedPart, content: Content) -> list[CommittedPart]:
        """A complete part of a job.  Of several attempts the first one holds."""
        key, place = _run_of(part.part), (part.partition, part.key)
        job = self._job(key)
        if job.aborted:
            self._give_up_part(part, "aborted")
            return []
        if place in job.parts:
            self._count(repeats=1, repeated_messages=len(part.messages))
            return []
        job.parts[place] = (part, content)
        self._count(pending_bytes=content.bytes)
        return self._released(key)

    def _end_job(self, marker: Marker) -> list[CommittedPart]:
        """Its parts may come later: each session has an order of its own."""
        key = _run_of(marker.part)
        if key[:2] in self._jobs_done:
            return []
        if marker.kind is Kind.JOB_ABORT:
            self._drop_job(key, "aborted")
            self._job(key).aborted = True
            return []
        self._job(key).expected = marker.content.messages
        return self._released(key)

    def _job(self, key: tuple[UUID, int, UUID]) -> _Job:
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = _Job()
            while len(self._jobs) > _JOBS_KEPT:
                self._drop_job(next(iter(self._jobs)), "abandoned")
        return found

    def _released(self, key: tuple[UUID, int, UUID]) -> list[CommittedPart]:
        """All parts of a job, once they are there and the job is committed."""
        job = self._jobs[key]
        if not job.is_complete:
            return []
        del self._jobs[key]
        for other in [run for run in self._jobs if run[:2] == key[:2]]:
            self._drop_job(other, "abandoned")      # a run that failed
        self._jobs_done[key[:2]] = None
        while len(self._jobs_done) > _QUERIES_KEPT:
            self._jobs_done.popitem(last=False)
        found = [job.parts[place] for place in sorted(job.parts)]
        for part, content in found:
            self._remember_part(part.part, content)
        self._count(
            parts=len(found), messages=sum(content.messages for _, content in found),
            pending_bytes=-job.bytes,
        )
        return [part for part, _ in found]

    def _drop_job(self, key: tuple[UUID, int, UUID], reason: str) -> None:
        job = self._jobs.pop(key, None)
        if job is None:
            return
        self._count(pending_bytes=-job.bytes)
        for part, _ in job.parts.values():
            self._give_up_part(part, reason)

    def _give_up_part(self, part: CommittedPart, reason: str) -> None:
        self._count(partial=1, partial_messages=len(part.messages))
        self._given_up.append(PartialPart(
            part=part.part, session_id=part.session_id, messages=len(part.messages), reason=reason,
        ))

    def _give_up(self, session: Hashable, reason: str) -> None:
        current = self._close(session)
        if current is None:
            return
        self._count(partial=1, partial_messages=current.count)
        self._given_up.append(
            PartialPart(
                part=current.part, session_id=_number(session), messages=current.count,
                reason=reason,
            )
        )

    def _close(self, session: Hashable) -> _Open | None:
        current = self._open.pop(session, None)
        if current is not None and not current.known:
            self._count(pending_bytes=-current.bytes)
        return current

    def _count(self, **moves: int) -> None:
        self._seen = attrs.evolve(
            self._seen, **{name: getattr(self._seen, name) + by for name, by in moves.items()}
        )


def _run_of(part: Part) -> tuple[UUID, int, UUID]:
    return part.query, part.epoch, part.run


def _number(session: Hashable) -> int:
    return session if isinstance(session, int) else 0


_FORGOTTEN: Final = Content(messages=0, bytes=0, crc=0)
_CONTENT: Final = [field.name for field in attrs.fields(Content)]
