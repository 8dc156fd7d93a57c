# SPDX-License-Identifier: Apache-2.0
"""Loops over messages and batches.

A loop hands out one message (or batch) at a time. The message is a copy that belongs to the caller.
In the stream it stays unreleased until the next step. ``break`` and ``return`` release it. If an
exception leaves the loop, the reader rewinds, and the message will be delivered again. The
interpreter drops the loop's iterator in both cases; its guard (``core/fast/taking.c``) sees whether
an exception is on its way.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from penstock.client._message import Message, MessageBatch
from penstock.core.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client._reader import Reader
    from penstock.client._subscription import Subscription

    class _Guard:
        def __init__(self, ended: Callable[[bool], object]) -> None: ...
else:
    try:
        from penstock.core.fast import Guard as _Guard
    except ImportError:

        class _Guard:
            """Without the extension no exception is seen: every end of a loop is a break."""

            def __init__(self, ended):
                self._ended = ended

            def __del__(self):
                self._ended(False)

_T = TypeVar("_T", Message, MessageBatch)


class Held:
    """Stands in the reader's place for a batch while one message, or ``batch``, is handed out."""

    __slots__ = ("_reader", "batch")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.batch: MessageBatch | None = None

    def _invalidate(self) -> None:
        """Another call on the reader releases what is held."""
        self.batch = None

    def ended(self, failed: bool) -> None:
        """The loop ended: release what it holds, or give it back."""
        reader = self._reader
        if reader._batch is not self:
            return
        if failed:
            reader._put_back(self)
        else:
            reader._drop_batch()


class Steps(_Guard, Generic[_T]):
    """Common part of loops over messages and over batches."""

    __slots__ = ("_held", "_limit", "_subscription", "_timeout_s", "_until_end")

    def __init__(
        self, subscription: Subscription, timeout_s: float | None, until_end: bool, limit: int
    ) -> None:
        self._held = Held(subscription)
        super().__init__(self._held.ended)
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._until_end = until_end
        self._limit = limit

    @abstractmethod
    def _step(self) -> _T | None:
        """The next value, or None while there is none."""

    def _is_over(self) -> bool:
        """Whether the wait has ended because there comes nothing more."""
        return self._until_end and not self._subscription._has_data()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        subscription = self._subscription
        try:
            while (found := self._step()) is None:
                if not subscription._wait_step(self._timeout_s, self._until_end):
                    raise StopIteration
        except ClosedError:
            raise StopIteration from None
        return found


class Messages(Steps[Message]):
    """Iterator of :meth:`penstock.Subscription.messages`."""

    __slots__ = ()

    def _step(self) -> Message | None:
        return self._subscription._next(self._held)


class Batches(Steps[MessageBatch]):
    """Iterator of :meth:`penstock.Subscription.batches`."""

    __slots__ = ()

    def _step(self) -> MessageBatch | None:
        return self._subscription._next_batch(self._held, self._limit)
