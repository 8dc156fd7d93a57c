# SPDX-License-Identifier: Apache-2.0
"""Which parts of epochs are complete, and which of them came before: markers and rows in, whole
parts out.  Reads no stream and no clock."""

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
STATE_VERSION: Final = 1

#: (partition, key): a part of an epoch whoever sends it.
Place: TypeAlias = tuple[int, bytes]


class RepeatDiffers(PenstockError):
    """A batch that Spark ran again was split among its tasks in another way, so that repeats cannot
    be told from new rows.  Reading may go on; the part at hand was dropped."""

    def __init__(self, message: str, *, part: Part) -> None:
        super().__init__(message)
        self.part = part


class PendingTooLarge(PenstockError):
    """Parts that were begun and not committed hold more than the limit."""


@attrs.frozen(kw_only=True)
class CommittedPart:
    """A complete part of an epoch."""

    part: Part
    session_id: int
    messages: tuple[bytes, ...] = attrs.field(repr=lambda rows: f"<{len(rows)} messages>")

    @property
    def query(self) -> UUID:
        return self.part.query

    @property
    def epoch(self) -> int:
        """Spark's batch id; 0 for a batch write."""
        return self.part.epoch

    @property
    def partition(self) -> int:
        return self.part.partition

    @property
    def key(self) -> bytes:
        """Of the publication; empty when the sink has none per key."""
        return self.part.key


@attrs.frozen(kw_only=True)
class PartialPart:
    """A part that began and is not complete."""

    part: Part
    session_id: int
    messages: int
    """Received so far."""
    reason: str
    """``open``: more may come.  ``abandoned``: its publisher began another one.  ``ended``: its
    session is gone.  ``damaged``: its COMMIT counts other rows than came.  ``too_large``: it
    passed the reader's limit."""


@attrs.frozen(kw_only=True)
class CommittedStatistics:
    """Counts of a reader of parts since it was made."""

    parts: int = 0
    """Handed out."""
    messages: int = 0
    """In them."""
    repeats: int = 0
    """Complete parts that were there before."""
    repeated_messages: int = 0
    partial: int = 0
    """Parts given up: abandoned, ended or damaged."""
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
        self.known = known          # came before: counted, not kept
        self.rows: list[bytes] = []
        self.count = self.bytes = self.crc = 0

    def add(self, payloads: Iterable[bytes | memoryview]) -> int:
        """Takes rows; returns the bytes kept for them."""
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


class Assembler:
    """One for all sessions of a stream; sessions are told apart by any hashable.

    Of a place (query, epoch, partition, key) the first attempt whose COMMIT fits its rows is handed
    out, others are dropped and counted.  Memory: the rows of open parts up to
    ``max_pending_bytes``, and for each of the last ``remember`` epochs of a query what was handed
    out; an epoch older than those counts as handed out.
    """

    def __init__(
        self, *, remember: int = 1024, max_pending_bytes: int = 1 << 30,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        if remember < 1 or max_pending_bytes < 1:
            raise InvalidArgument(
                f"remember and max_pending_bytes are at least 1, not {remember} and "
                f"{max_pending_bytes}"
            )
        self._remember = remember
        self._max_pending = max_pending_bytes
        self._open: dict[Hashable, _Open] = {}
        self._done: OrderedDict[UUID, dict[int, dict[Place, Content]]] = OrderedDict()
        self._floor: dict[UUID, int] = {}
        self._given_up: deque[PartialPart] = deque(maxlen=_PARTIAL_KEPT)
        self._seen = CommittedStatistics()
        if state is not None:
            self._restore(state)

    # ---- what comes in ---------------------------------------------------------------------------

    def rows(self, session: Hashable, payloads: Sequence[bytes | memoryview]) -> None:
        """Rows of a session, in order.

        :raises PendingTooLarge: the rows were not taken, and their part is abandoned.
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
            raise PendingTooLarge(
                f"{pending} bytes wait for their COMMIT, the limit is {self._max_pending}: raise "
                f"max_pending_bytes or make the query's batches smaller; given up: {current.part}"
            )

    def marked(self, session: Hashable, message: bytes | memoryview) -> CommittedPart | None:
        """A message with the markers' reserved value.  The part that it completes, if one.

        :raises RepeatDiffers: it completes one that came before with other rows.
        """
        try:
            marker = decode(message)
        except MarkerError:
            self._count(malformed=1)
            return None
        if marker.kind is Kind.BEGIN:
            self._begin(session, marker.part)
            return None
        return self._commit(session, marker)

    def ended(self, session: Hashable) -> None:
        """The session is gone: what it began stays incomplete."""
        self._give_up(session, "ended")

    # ---- what is known ---------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[Hashable, ...]:
        """With an open part."""
        return tuple(self._open)

    @property
    def partial(self) -> tuple[PartialPart, ...]:
        """Parts that are not complete: the last 256 abandoned parts, then those open now."""
        still = (
            PartialPart(
                part=item.part, session_id=_number(session), messages=item.count, reason="open"
            )
            for session, item in self._open.items()
        )
        return (*self._given_up, *still)

    @property
    def statistics(self) -> CommittedStatistics:
        return self._seen

    def state(self, *, waiting: Iterable[Part] = ()) -> dict[str, Any]:
        """Return the parts that were yielded, as plain data. Store it with the results, and give it
        to the next reader after a restart.

        :param waiting: complete parts that were not delivered yet: the next reader takes them
        again.
        """
        without = {(part.query, part.epoch, part.partition, part.key) for part in waiting}
        return {
            "version": STATE_VERSION,
            "queries": {
                str(query): {
                    "floor": self._floor.get(query, 0),
                    "epochs": {
                        str(epoch): [
                            [place[0], place[1].hex(), content.messages, content.bytes, content.crc]
                            for place, content in sorted(places.items())
                            if (query, epoch, *place) not in without
                        ]
                        for epoch, places in sorted(epochs.items())
                    },
                }
                for query, epochs in self._done.items()
            },
        }

    # ---- inside ----------------------------------------------------------------------------------

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            if state["version"] != STATE_VERSION:
                raise InvalidArgument(f"state of version {state['version']}, not {STATE_VERSION}")
            for name, known in state["queries"].items():
                query = UUID(name)
                self._floor[query] = int(known["floor"])
                self._done[query] = {
                    int(epoch): {
                        (int(row[0]), bytes.fromhex(row[1])): Content(
                            messages=row[2], bytes=row[3], crc=row[4]
                        )
                        for row in rows
                    }
                    for epoch, rows in known["epochs"].items()
                }
        except InvalidArgument:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise InvalidArgument(f"not the state of a reader of parts: {error!r}") from None

    def _begin(self, session: Hashable, part: Part) -> None:
        self._give_up(session, "abandoned")
        self._open[session] = _Open(part, known=self._content_of(part) is not None)

    def _commit(self, session: Hashable, marker: Marker) -> CommittedPart | None:
        current = self._open.get(session)
        if current is None:
            return None     # its BEGIN was before the reader's time
        if current.part != marker.part or current.content != marker.content:
            self._give_up(session, "damaged")
            return None
        before = self._content_of(marker.part)
        self._close(session)
        if before is None and not current.known:
            self._remember_part(marker)
            self._count(parts=1, messages=current.count)
            return CommittedPart(
                part=marker.part, session_id=_number(session), messages=tuple(current.rows)
            )
        self._count(repeats=1, repeated_messages=current.count)
        if before is not None and before is not _FORGOTTEN and before != marker.content:
            raise RepeatDiffers(
                f"{marker.part}: {marker.content.messages} messages, where an attempt before had "
                f"{before.messages}; a batch that runs again must be split in the same way",
                part=marker.part,
            )
        return None

    def _content_of(self, part: Part) -> Content | None:
        """What was handed out for the part's place; None nothing.  Below the floor nobody knows: as
        if the same."""
        found = self._done.get(part.query, {}).get(part.epoch, {}).get((part.partition, part.key))
        if found is None and part.epoch < self._floor.get(part.query, 0):
            return _FORGOTTEN
        return found

    def _remember_part(self, marker: Marker) -> None:
        part = marker.part
        epochs = self._done.setdefault(part.query, {})
        self._done.move_to_end(part.query)
        epochs.setdefault(part.epoch, {})[(part.partition, part.key)] = marker.content
        floor = max(self._floor.get(part.query, 0), max(epochs) - self._remember + 1)
        self._floor[part.query] = floor
        for epoch in [epoch for epoch in epochs if epoch < floor]:
            del epochs[epoch]
        while len(self._done) > _QUERIES_KEPT:
            oldest, _epochs = self._done.popitem(last=False)
            self._floor.pop(oldest, None)

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


def _number(session: Hashable) -> int:
    return session if isinstance(session, int) else 0


_FORGOTTEN: Final = Content(messages=0, bytes=0, crc=0)
