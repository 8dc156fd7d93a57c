# SPDX-License-Identifier: Apache-2.0
"""Polling, for subscriptions and images.

In one call, the core fills an array with descriptions (address, length, position and so on) of up
to ``limit`` messages. The reader then calls the handler for each message, with a view of the mapped
log. If a handler raises an exception or stops the poll, the reader moves the core's read position
back. The next poll then begins with the first message that was not handled. When the poll ends, the
reader releases the messages that the handler has handled.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import islice
from sys import getrefcount
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.client._message import (
    Header,
    Message,
    MessageBatch,
    end_view,
    owner_of,
    view_into,
    view_of,
)
from penstock.client._offer import Action
from penstock.core import client as core
from penstock.core.errors import ClosedError, InvalidArgument, PenstockError, native_error

if TYPE_CHECKING:
    from penstock.client._iteration import Held

#: Handler of one message, called with payload and header; both are valid during the call.
Handler: TypeAlias = Callable[[memoryview, Header], object]
ControlledHandler: TypeAlias = Callable[[memoryview, Header], Action]

DEFAULT_LIMIT: Final = 64
DEFAULT_BATCH: Final = 4096
MAX_LIMIT: Final = 1 << 20
_SIZE: Final = core.MESSAGE.size
_unpack = core.MESSAGE.iter_unpack
#: Two batches: one in use, and one whose name is about to be bound again.
_POOL: Final = 2
#: Reference count of an object that only a list and a loop over it refer to.
_UNUSED: Final = 3


class Reader(ABC):
    """Polls one subscription or image of the core. Only one thread at a time may use a reader."""

    # No __slots__: the fast path's classes derive from these and from one with fields in C.

    _message_type = Message

    def __init__(self, poll: Callable[[Any, Any, int, int], int], handle: core.Handle) -> None:
        self._poll = poll
        self._handle: Any = handle
        self._library = handle.library
        self._header: Header = self._new_header()
        self._maps: list[memoryview] = []
        self._logs: list[Any] = []  # the same, for the fast path
        self._messages = core.Messages(DEFAULT_LIMIT, self._library)
        self._batch_messages: list[core.Messages] = []
        self._batch: MessageBatch | Held | None = None
        self._polling = 0       # identity of the thread whose handler runs

    def _new_header(self) -> Header:
        return Header()

    @abstractmethod
    def _prepare(self) -> None:
        """Raise if closed, and apply the daemon's notices. Called before each poll."""

    @abstractmethod
    def _rewind(self, messages: core.Messages, count: int, first: int) -> None:
        """Rewind ``messages[first:count]``, so that they are delivered again."""

    @abstractmethod
    def _release(self) -> None:
        """Release all delivered messages."""

    def poll(
        self, handler: Handler, limit: int = DEFAULT_LIMIT, *, checked: bool = False
    ) -> int:
        """Call ``handler(message, header)`` for up to ``limit`` available messages.

        ``message`` is a read-only memoryview into the log; the view is released when the handler
        returns. Never waits. If the handler raises an exception, the poll ends with this exception.
        The next poll begins with the message for which the handler raised. A handler that closes
        the subscription also ends the poll.

        :param checked: for debugging: the handler gets a copy in pages that become unreadable when
            it returns. Code that uses the memory later ends with SIGSEGV.
        :returns: the number of handled messages.
        :raises BufferError: the handler kept a slice of ``message`` or an array that refers to it.
        :raises CorruptLogError: a frame in the log of an image has an impossible length or other
            value.
        """
        if checked:
            return self._poll_checked(handler, limit)
        messages = self._fetch_room(limit)
        handle = self._handle
        count = self._poll(handle, messages.native, limit, core.POLL_ASSEMBLE)
        if count <= 0:
            return self._nothing(count)
        header, maps = self._header, self._maps
        done = 0
        self._polling = get_ident()
        try:
            for row in _unpack(messages.raw[: count * _SIZE]):
                header._fields = row
                owner = owner_of(row, maps)
                references = getrefcount(owner)
                view = view_into(owner, row)
                handler(view, header)
                end_view(view, owner, references, header)
                done += 1
                if self._handle is None:
                    break  # the handler closed the subscription
        finally:
            self._polling = 0
            self._finish(messages, count, done)
        return done

    def _poll_checked(self, handler: Handler, limit: int) -> int:
        from penstock.client._checked import checked_handler

        return self.poll(checked_handler(handler), limit)

    def _next(self, held: Held, /) -> Message | None:
        """Return the next message, or None. It stays unreleased until the next call with the same
        ``held``, another poll or wait, or the end of the loop of ``held``."""
        if self._batch is held:
            self._drop_batch()
        messages = self._fetch_room(1)
        handle = self._handle
        if handle is None:
            raise ClosedError("another thread has closed the subscription")
        count = self._poll(handle, messages.native, 1, core.POLL_ASSEMBLE)
        if count <= 0:
            self._nothing(count)
            return None
        row = core.MESSAGE.unpack_from(messages.raw)
        message = self._message_type._of(row, view_of(row, self._maps))
        self._batch = held
        return message

    def _give_back(self) -> None:
        """Rewind to the message of the latest ``_next``, so that it is delivered again."""
        self._finish(self._messages, 1, 0)

    def _next_batch(self, held: Held, limit: int) -> MessageBatch | None:
        """As :meth:`_next`, for 1 to ``limit`` available messages."""
        batch = self.poll_batch(limit)
        if not len(batch):
            return None
        batch._detach()
        held.batch = batch
        self._batch = held
        return batch

    def _put_back(self, held: Held) -> None:
        """Rewind to the messages of ``held``, so that they are delivered again."""
        batch = held.batch
        self._batch = held.batch = None
        if self._handle is None:
            return
        if batch is None:
            self._give_back()
        else:
            self._finish(batch._messages, len(batch), 0)

    def _take(self, limit: int, /) -> list[bytes]:
        """Return copies of up to ``limit`` available messages."""
        taken: list[bytes] = []
        self.poll(lambda message, _header: taken.append(bytes(message)), limit)
        return taken

    def controlled_poll(self, handler: ControlledHandler, limit: int = DEFAULT_LIMIT) -> int:
        """Like :meth:`poll`, but the handler returns an :class:`Action`, which decides how the poll
        continues.

        :returns: the number of handled messages; a message that the handler aborted is not counted.
        """
        handled = 0
        while handled < limit:
            messages = self._fetch_room(limit)
            count = self._fill(messages, limit - handled)
            if count <= 0:
                return handled + self._nothing(count)
            done, action = self._run_controlled(handler, messages, count)
            handled += done
            if action is not Action.COMMIT:
                return handled
        return handled

    def _run_controlled(
        self, handler: ControlledHandler, messages: core.Messages, count: int
    ) -> tuple[int, Action]:
        done, action = 0, Action.CONTINUE
        self._polling = get_ident()
        try:
            for row in islice(_unpack(messages.raw), count):
                self._header._take(row)
                owner = owner_of(row, self._maps)
                references = getrefcount(owner)
                view = view_into(owner, row)
                action = handler(view, self._header)
                end_view(view, owner, references, self._header)
                if not isinstance(action, Action):
                    raise InvalidArgument(
                        f"a controlled handler returns an Action, not {type(action).__name__}"
                    )
                if action is not Action.ABORT:
                    done += 1
                if action is not Action.CONTINUE or self._handle is None:
                    break
        finally:
            self._polling = 0
            self._finish(messages, count, done)
        return done, action

    def poll_batch(self, limit: int = DEFAULT_BATCH) -> MessageBatch:
        """Return the available messages, at most ``limit``, as a batch of columns. The result may
        be empty. Never waits.

        The batch's payloads are views. They become invalid when the batch is released, and at the
        next poll or wait.
        """
        self._check_limit(limit)
        self._prepare()
        messages = self._batch_room(limit)
        count = self._fill(messages, limit)
        if count < 0:
            count = self._nothing(count)
        batch = MessageBatch(messages, count, self._check, self._release_batch, self._owners)
        if count:
            self._batch = batch
        return batch

    def _check(self, messages: core.Messages, count: int) -> list[memoryview]:
        """Return a view of each message of the latest poll."""
        return [view_of(row, self._maps) for row in _unpack(messages.raw[: count * _SIZE])]

    def _owners(self) -> list[Any]:
        """Return the object of each log's mapping."""
        return [view.obj for view in self._maps]

    def _batch_room(self, limit: int) -> core.Messages:
        """Return an array of messages that no batch uses any more."""
        pool = self._batch_messages
        for messages in pool:
            if messages.capacity >= limit and getrefcount(messages) == _UNUSED:
                return messages
        made = self._new_messages(limit)
        pool.append(made)
        del pool[:-_POOL]
        return made

    def _new_messages(self, capacity: int) -> core.Messages:
        return core.Messages(capacity, self._library)

    def _release_batch(self, batch: MessageBatch) -> None:
        if self._batch is batch:
            self._batch = None
            self._release()

    def _drop_batch(self) -> None:
        """End a batch that the application still holds, so that the stream may use its memory.

        :raises BufferError: an array made from a view of the batch still exists.
        """
        batch = self._batch
        if batch is not None:
            batch._end_views()
            self._batch = None
            batch._invalidate()
            self._release()

    def _fill(self, messages: core.Messages, limit: int) -> int:
        """Poll into ``messages``. Return the count or a code."""
        return self._poll(self._handle, messages.native, limit, core.POLL_ASSEMBLE)

    def _fetch_room(self, limit: int) -> core.Messages:
        messages = self._messages
        if limit > messages.capacity or limit < 1:
            self._check_limit(limit)
            messages = self._messages = core.Messages(limit, self._library)
        self._prepare()
        return messages

    def _check_limit(self, limit: int) -> None:
        if not 0 < limit <= MAX_LIMIT:
            raise InvalidArgument(f"limit must be from 1 to {MAX_LIMIT}, not {limit}")

    def _check_not_polling(self) -> None:
        polling = self._polling
        if polling == get_ident():
            raise PenstockError("a handler must not poll the subscription that called it")
        if polling:
            name = next((t.name for t in threading.enumerate() if t.ident == polling), "?")
            raise PenstockError(
                f"{self!r} is being polled by thread {name!r}, and only one thread at a time may "
                "use it: take a lock around poll and wait, or add a subscription for each thread"
            )

    @abstractmethod
    def _pass_gaps(self) -> None:
        """Report the gaps that a poll has reached."""

    def _finish(self, messages: core.Messages, count: int, done: int) -> None:
        if self._handle is None:
            return  # the handler closed the subscription
        if done < count:
            self._rewind(messages, count, done)
        self._release()

    def _nothing(self, code: int) -> int:
        if code == core.GAP:
            self._pass_gaps()
            return 0
        if code < 0:
            raise native_error(code, self._library.last_error(), operation="polling")
        return 0
