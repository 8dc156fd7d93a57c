# SPDX-License-Identifier: Apache-2.0
"""Reading what a sink published: whole parts of epochs, each once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
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


class Committed(Iterator[CommittedPart]):
    """An iterator over complete parts, in the order in which their COMMITs arrive.

    Made by :func:`committed`. Poll the subscription; no other caller may poll it meanwhile. After
    an exception it can be requested the next part.
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

    def __next__(self) -> CommittedPart:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while not self._ready:
            if self._errors:
                raise self._errors.popleft()
            found = self.poll()
            left = None if deadline is None else deadline - time.monotonic()
            # What is at hand of a part is read to its end; other messages do not keep it up.
            if left is not None and left <= 0 and not self._moved and not self._errors:
                raise StopIteration
            if not found:
                self._subscription.wait(left)
        return self._ready.popleft()

    def poll(self) -> bool:
        """Takes what the stream has now, without waiting; False: nothing."""
        strange = self._strange()
        with self._subscription.poll_batch(_BATCH) as batch:
            count = len(batch)
            if count:
                self._take(batch)
        self._moved = count > self._strange() - strange
        self._end_sessions()
        return count > 0

    def _strange(self) -> int:
        """Messages that belong to no part."""
        seen = self._assembler.statistics
        return seen.headless + seen.malformed

    @property
    def partial(self) -> tuple[PartialPart, ...]:
        """Parts that began and are not complete: the abandoned parts (the last 256), then the open
        ones."""
        return self._assembler.partial

    @property
    def statistics(self) -> CommittedStatistics:
        return self._assembler.statistics

    def state(self) -> dict[str, Any]:
        """Return the parts that were yielded, as plain data for :func:`committed` of a later
        process. Store it in one transaction with what you made of the rows."""
        return self._assembler.state(waiting=[ready.part for ready in self._ready])

    def _take(self, batch: MessageBatch) -> None:
        """Runs of rows of one session go to the assembler as they are."""
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
        part = self._assembler.marked(session, message)
        if part is not None:
            self._ready.append(part)

    def _try(self, act: Any, *arguments: Any) -> None:
        """What goes wrong with one part is told in its turn; the rest of the batch is not lost."""
        try:
            act(*arguments)
        except Exception as error:
            self._errors.append(error)

    def _end_sessions(self) -> None:
        """A session without an image says no more, and what came of it was taken."""
        waiting = self._assembler.sessions
        if waiting:
            alive = {image.session_id for image in self._subscription.images}
            for session in waiting:
                if session not in alive:
                    self._assembler.ended(session)


def committed(
    subscription: Subscription, *, timeout_s: float | None = None, remember: int = 1024,
    max_pending_bytes: int = 1 << 30, state: Mapping[str, Any] | None = None,
) -> Committed:
    """Complete parts of epochs that Spark's sink publishes on a stream, each once.

    Repeats (another attempt of the same query, epoch and partition) are dropped and counted; parts
    without a COMMIT are not handed out, and shown by :attr:`Committed.partial`.

    :param timeout_s: the iteration ends when no part became complete for so long, in seconds, and
        nothing of one is at hand; None: it waits for ever.
    :param remember: epochs of a query of which repeats are told exactly; older ones count as
        handed out.
    :param max_pending_bytes: rows kept for parts that are not complete.
    :param state: what :meth:`Committed.state` returned before a restart of this reader.
    :raises RepeatDiffers: from the iterator: a repeat has other rows than the part before it.
    :raises PendingTooLarge: from the iterator: a part was abandoned because of its size.
    """
    assembler = Assembler(remember=remember, max_pending_bytes=max_pending_bytes, state=state)
    return Committed(subscription, assembler, timeout_s=timeout_s)
