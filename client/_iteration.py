# SPDX-License-Identifier: Apache-2.0
"""Loops over messages and batches.

A loop over a subscription returns one message (or batch) at a time, as a copy that belongs to the
caller. The subscription releases the original message in the log only at the next step of the loop.
``break`` and ``return`` release it. If an exception leaves the loop, the message is not released,
and the next loop or poll delivers it again. When a loop ends, Python destroys the loop's iterator.
The destructor of the iterator (``core/fast/taking.c``) finds out whether an exception ended the
loop.
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
            """Without the extension no exception is detected: every end of a loop counts as
            ``break``."""

            def __init__(self, ended):
                self._ended = ended

            def __del__(self):
                self._ended(False)

_T = TypeVar("_T", Message, MessageBatch)


class Held:
    """Represents a message or ``batch`` that the body of a ``for`` loop is still processing.
    During this time, the attribute ``_batch`` of the reader refers to this object."""

    __slots__ = ("_reader", "batch")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.batch: MessageBatch | None = None

    def _end_views(self) -> None:
        """Do nothing: what a loop returned owns its bytes."""

    def _invalidate(self) -> None:
        """Release the held message at another call on the reader."""
        self.batch = None

    def ended(self, failed: bool) -> None:
        """End the loop. If an exception ended the loop (``failed``), the next poll delivers the
        current message again; otherwise release this message."""
        reader = self._reader
        if reader._batch is not self:
            return
        if failed:
            reader._put_back(self)
        else:
            reader._drop_batch()


class LoopHeld(Held):
    """The message or batch that a ``for`` loop is processing. The loop releases this message or
    batch. If the loop's body has not read the credit handle, the loop also returns the credits."""

    __slots__ = ()


class Steps(_Guard, Generic[_T]):
    """Base class of the iterators over messages and over batches."""

    __slots__ = ("_held", "_limit", "_subscription", "_timeout_s", "_until_end")

    def __init__(
        self, subscription: Subscription, timeout_s: float | None, until_end: bool, limit: int
    ) -> None:
        self._held = LoopHeld(subscription)
        super().__init__(self._held.ended)
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._until_end = until_end
        self._limit = limit

    @abstractmethod
    def _step(self) -> _T | None:
        """Return the next value, or None if there is none now."""

    def _is_over(self) -> bool:
        """Wait; return whether the loop is over because no further message can arrive."""
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
