# SPDX-License-Identifier: Apache-2.0
"""Read the complete parts of epochs that a sink has published; read each part only once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from penstock.client import MessageBatch, Subscription
from penstock.spark_bridge._assembler import (
    Assembler,
    CommittedPart,
    CommittedStatistics,
    PartialPart,
)
from penstock.spark_bridge.markers import RESERVED_VALUE

_BATCH: Final = 4096
#: For how long the rest of a part is waited for when its session is lost: it may return.
_RETURN_S: Final = 30.0


class Committed(Iterator[CommittedPart]):
    """Iterates over complete parts, in the order of the arrival of their COMMITs.

    Made by :func:`committed`. While the iterator is in use, no other code may poll its
    subscription. After an exception of the iterator, the caller can continue: the next call returns
    the next part.
    """

    def __init__(
        self, subscription: Subscription, assembler: Assembler, *, timeout_s: float | None
    ) -> None:
        self._subscription = subscription
        self._assembler = assembler
        self._timeout_s = timeout_s
        self._ready: deque[CommittedPart] = deque()
        self._errors: deque[Exception] = deque()
        self._moved = False         # by the last poll: a part
        self._lost_at: dict[Hashable, float] = {}       # sessions with a part and without image

    def __next__(self) -> CommittedPart:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while not self._ready:
            if self._errors:
                raise self._errors.popleft()
            found = self.poll()
            left = None if deadline is None else deadline - time.monotonic()
            # Messages of one part are read to its end; other messages do not delay it.
            if left is not None and left <= 0 and not self._moved and not self._errors:
                raise StopIteration
            if not found:
                self._subscription.wait(left)
        return self._ready.popleft()

    def poll(self) -> bool:
        """Read the available messages without waiting; return False if no message is available."""
        strange = self._strange()
        with self._subscription.poll_batch(_BATCH) as batch:
            count = len(batch)
            if count:
                self._take(batch)
        self._moved = count > self._strange() - strange
        self._end_sessions()
        return count > 0

    def _strange(self) -> int:
        """Count messages that belong to no part."""
        seen = self._assembler.statistics
        return seen.headless + seen.malformed

    @property
    def partial(self) -> tuple[PartialPart, ...]:
        """The incomplete parts: first the last 256 dropped parts, then the open parts, then the
        complete parts of batch writes (jobs) that have not ended yet."""
        return self._assembler.partial

    @property
    def statistics(self) -> CommittedStatistics:
        return self._assembler.statistics

    def state(self) -> dict[str, Any]:
        """Return a record of the parts that the iterator has returned. Pass this record (plain
        data) to :func:`committed` in a later process. Store the record and your results in the same
        transaction."""
        return self._assembler.state(waiting=[ready.part for ready in self._ready])

    def _take(self, batch: MessageBatch) -> None:
        """Pass runs of rows of one session to the assembler."""
        payloads = batch.payloads
        sessions = batch.session_ids.tolist()
        reserved = batch.reserved_values.tolist()
        start, count = 0, len(payloads)
        while start < count:
            session = sessions[start]
            if reserved[start] == RESERVED_VALUE:
                self._try(self._mark, session, payloads[start])
                start += 1
                continue
            end = start + 1
            while end < count and sessions[end] == session and reserved[end] != RESERVED_VALUE:
                end += 1
            self._try(self._assembler.rows, session, payloads[start:end])
            start = end

    def _mark(self, session: int, message: memoryview) -> None:
        self._ready.extend(self._assembler.marked(session, message))

    def _try(self, act: Any, *arguments: Any) -> None:
        """Keep an error of one part until its turn, so that the rest of the batch is not lost."""
        try:
            act(*arguments)
        except Exception as error:
            self._errors.append(error)

    def _end_sessions(self) -> None:
        """End sessions whose stream has ended, and those that were lost and do not return in time.
        All their messages were read. The COMMIT of a part shows whether a session that returned
        lacks messages."""
        waiting = set(self._assembler.sessions)
        images = self._subscription.images if waiting else ()
        over: set[Hashable] = {i.session_id for i in images if i.is_end_of_stream}
        lost = waiting - {image.session_id for image in images}
        now = time.monotonic()
        self._lost_at = {session: self._lost_at.get(session, now) for session in lost}
        over |= {session for session, at in self._lost_at.items() if now - at >= _RETURN_S}
        for session in over & waiting:
            self._assembler.ended(session)


def committed(
    subscription: Subscription, *, timeout_s: float | None = None, remember: int = 1024,
    max_pending_bytes: int = 1 << 30, state: Mapping[str, Any] | None = None,
) -> Committed:
    """Iterate over the complete parts of epochs that Spark's sink publishes on a stream; return
    each part only once.

    If several attempts of a part (same query, epoch and partition) arrive, the iterator returns
    only one attempt, and counts the others as dropped. The iterator does not return parts without a
    COMMIT; :attr:`Committed.partial` lists these parts. The iterator returns the parts of a batch
    write together, when the write has succeeded.

    :param timeout_s: the iteration ends if no part became complete for this time, in seconds, and
        no message is available; None: it never ends.
    :param remember: number of epochs of a query for which repeats are detected; older epochs count
        as returned.
    :param max_pending_bytes: largest number of bytes kept for the rows of incomplete parts.
    :param state: the result of :meth:`Committed.state` that the application stored before a
        restart.
    :raises RepeatDiffers: raised by the iterator: a repeated part has other rows than before.
    :raises PendingTooLarge: raised by the iterator: it has abandoned a part because of the part's
        size.
    """
    assembler = Assembler(remember=remember, max_pending_bytes=max_pending_bytes, state=state)
    return Committed(subscription, assembler, timeout_s=timeout_s)
