# SPDX-License-Identifier: Apache-2.0
"""Subscriptions for event loops: see :class:`penstock.Subscription`."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from penstock.client._async_parking import AsyncParking
from penstock.client._async_threads import in_thread, to_the_end
from penstock.client._credits import SubscriptionCredits
from penstock.client._image import Image
from penstock.client._iteration import Held, Steps
from penstock.client._message import Message, MessageBatch
from penstock.client._reader import DEFAULT_BATCH, DEFAULT_LIMIT, ControlledHandler, Handler
from penstock.client._restart import Gap
from penstock.client._subscription import Subscription, SubscriptionStatistics
from penstock.client._withhold import Withholding
from penstock.core.errors import ClosedError

_T = TypeVar("_T", Message, MessageBatch)


class AsyncImage:
    """A :class:`penstock.Image` of an :class:`AsyncSubscription`, with the same names and
    results."""

    def __init__(self, subscription: AsyncSubscription, image: Image) -> None:
        self._subscription = subscription
        self._sync = image

    @property
    def sync(self) -> Image:
        """The underlying synchronous image."""
        return self._sync

    @property
    def subscription(self) -> AsyncSubscription:
        """See :attr:`penstock.Image.subscription`."""
        return self._subscription

    @property
    def correlation_id(self) -> int:
        """See :attr:`penstock.Image.correlation_id`."""
        return self._sync.correlation_id

    @property
    def session_id(self) -> int:
        """See :attr:`penstock.Image.session_id`."""
        return self._sync.session_id

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.Image.stream_id`."""
        return self._sync.stream_id

    @property
    def source_identity(self) -> str:
        """See :attr:`penstock.Image.source_identity`."""
        return self._sync.source_identity

    @property
    def join_position(self) -> int:
        """See :attr:`penstock.Image.join_position`."""
        return self._sync.join_position

    @property
    def position(self) -> int:
        """See :attr:`penstock.Image.position`."""
        return self._sync.position

    @property
    def released_position(self) -> int:
        """See :attr:`penstock.Image.released_position`."""
        return self._sync.released_position

    @property
    def term_length(self) -> int:
        """See :attr:`penstock.Image.term_length`."""
        return self._sync.term_length

    @property
    def mtu(self) -> int:
        """See :attr:`penstock.Image.mtu`."""
        return self._sync.mtu

    @property
    def initial_term_id(self) -> int:
        """See :attr:`penstock.Image.initial_term_id`."""
        return self._sync.initial_term_id

    @property
    def relay_path(self) -> tuple[int, ...]:
        """See :attr:`penstock.Image.relay_path`."""
        return self._sync.relay_path

    @property
    def is_end_of_stream(self) -> bool:
        """See :attr:`penstock.Image.is_end_of_stream`."""
        return self._sync.is_end_of_stream

    @property
    def transport_count(self) -> int:
        """See :attr:`penstock.Image.transport_count`."""
        return self._sync.transport_count

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Image.is_closed`."""
        return self._sync.is_closed

    def poll(
        self, handler: Handler, limit: int = DEFAULT_LIMIT, *, checked: bool = False
    ) -> int:
        """See :meth:`penstock.Image.poll`: this call never waits, so it needs no ``await``."""
        return self._sync.poll(handler, limit, checked=checked)

    def controlled_poll(self, handler: ControlledHandler, limit: int = DEFAULT_LIMIT) -> int:
        """See :meth:`penstock.Image.controlled_poll`: this call never waits, so it needs no
        ``await``."""
        return self._sync.controlled_poll(handler, limit)

    def poll_batch(self, limit: int = DEFAULT_BATCH) -> MessageBatch:
        """See :meth:`penstock.Image.poll_batch`: this call never waits, so it needs no
        ``await``."""
        return self._sync.poll_batch(limit)

    async def reject(self, reason: str) -> None:
        """See :meth:`penstock.Image.reject`."""
        await in_thread(self._sync.reject, reason)

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncSteps(Generic[_T]):
    """The iterator that :meth:`AsyncSubscription.messages` and :meth:`AsyncSubscription.batches`
    return."""

    __slots__ = ("_parking", "_steps")

    def __init__(self, parking: AsyncParking, steps: Steps[_T]) -> None:
        self._parking = parking
        self._steps: Steps[_T] = steps     # its guard ends with this object

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        steps: Steps[_T] = self._steps
        found: _T | None
        try:
            steps._held.ended(False)            # release the previous message
            await self._parking.breathe()       # first: after the step, nothing may raise
            while (found := steps._step()) is None:
                if steps._subscription._soon():
                    continue
                happened = steps._subscription._step_condition(steps._until_end)
                if not await self._parking.until(happened, steps._timeout_s):
                    raise steps._subscription._no_message(steps._timeout_s)
                if steps._is_over():
                    raise StopAsyncIteration
        except ClosedError:
            raise StopAsyncIteration from None
        return found


class AsyncSubscription:
    """A :class:`penstock.Subscription` for asyncio and trio, whose methods have the same names and
    results.

    Calls that wait, or that exchange messages with the daemon, are awaited. Only one task at a time
    may use a subscription."""

    def __init__(self, parking: AsyncParking, subscription: Subscription) -> None:
        self._parking = parking
        self._sync = subscription

    @property
    def sync(self) -> Subscription:
        """The underlying synchronous subscription."""
        return self._sync

    # ---- receiving -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncSteps[Message]:
        """``async for message in subscription`` is the same as a loop over :meth:`messages`."""
        return self.messages()

    def messages(
        self, timeout_s: float | None = None, *, until_end: bool = False
    ) -> AsyncSteps[Message]:
        """See :meth:`penstock.Subscription.messages`."""
        return AsyncSteps(self._parking, self._sync.messages(timeout_s, until_end=until_end))

    def batches(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        until_end: bool = False,
    ) -> AsyncSteps[MessageBatch]:
        """See :meth:`penstock.Subscription.batches`."""
        return AsyncSteps(
            self._parking, self._sync.batches(limit, timeout_s, until_end=until_end)
        )

    async def recv(self, timeout_s: float | None = None) -> Message:
        """See :meth:`penstock.Subscription.recv`.  If the call is cancelled, no message is
        consumed."""
        await self._parking.breathe()       # first: after the release, nothing may raise
        sync, held = self._sync, Held(self._sync)
        while (message := sync._next(held)) is None:
            if not sync._soon() and not await self._parking.until(sync._has_data, timeout_s):
                raise sync._no_message(timeout_s)
        sync._drop_batch()
        return message

    async def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None
    ) -> MessageBatch:
        """See :meth:`penstock.Subscription.recv_batch`. If the call is cancelled, no message is
        consumed."""
        await self._parking.breathe()       # first: after the release, nothing may raise
        sync, held = self._sync, Held(self._sync)
        while (batch := sync._next_batch(held, limit)) is None:
            if not sync._soon() and not await self._parking.until(sync._has_data, timeout_s):
                raise sync._no_message(timeout_s)
        sync._drop_batch()
        return batch

    def poll(
        self, handler: Handler, limit: int = DEFAULT_LIMIT, *, checked: bool = False
    ) -> int:
        """See :meth:`penstock.Subscription.poll`: this call never waits, so it needs no
        ``await``."""
        return self._sync.poll(handler, limit, checked=checked)

    def controlled_poll(self, handler: ControlledHandler, limit: int = DEFAULT_LIMIT) -> int:
        """See :meth:`penstock.Subscription.controlled_poll`: this call never waits, so it needs no
        ``await``."""
        return self._sync.controlled_poll(handler, limit)

    def poll_batch(self, limit: int = DEFAULT_BATCH) -> MessageBatch:
        """See :meth:`penstock.Subscription.poll_batch`: this call never waits, so it needs no
        ``await``."""
        return self._sync.poll_batch(limit)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait`."""
        self._sync._check_not_polling()
        self._sync._drop_batch()
        return await self._parking.until(self._sync._has_data, timeout_s)

    async def wait_connected(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait_connected`."""
        return await self._parking.until(lambda: self._sync.is_connected, timeout_s)

    # ---- credits ---------------------------------------------------------------------------------

    @property
    def credits(self) -> SubscriptionCredits:
        """See :attr:`penstock.Subscription.credits`."""
        return self._sync.credits

    async def withhold(self, timeout_s: float, handler: Handler | None = None) -> None:
        """See :meth:`penstock.Subscription.withhold`. Each message goes either to ``handler`` or to
        another task that receives from the subscription at the same time. If the task is cancelled
        during the call, the subscription resumes its credits, so that the publishers continue."""
        sync = self._sync
        if handler is not None:
            sync._check_not_polling()
            sync._drop_batch()
        freeze = Withholding(sync, handler)
        done = False
        try:
            await in_thread(freeze.request)
            done = await self._parking.until(freeze.is_done, timeout_s)
            if not done:
                raise freeze.failure(timeout_s)
            freeze.end()
        finally:
            if not done:
                await to_the_end(sync.resume)

    async def resume(self) -> None:
        """See :meth:`penstock.Subscription.resume`."""
        await in_thread(self._sync.resume)

    async def drain(self, timeout_s: float, handler: Handler | None = None) -> None:
        """See :meth:`penstock.Subscription.drain`."""
        await self.withhold(timeout_s, handler)
        await self.close()

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def images(self) -> tuple[AsyncImage, ...]:
        """See :attr:`penstock.Subscription.images`."""
        return tuple(AsyncImage(self, image) for image in self._sync.images)

    @property
    def channel(self) -> str:
        """See :attr:`penstock.Subscription.channel`."""
        return self._sync.channel

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.Subscription.stream_id`."""
        return self._sync.stream_id

    @property
    def registration_id(self) -> int:
        """See :attr:`penstock.Subscription.registration_id`."""
        return self._sync.registration_id

    @property
    def local_addresses(self) -> tuple[str, ...]:
        """See :attr:`penstock.Subscription.local_addresses`."""
        return self._sync.local_addresses

    @property
    def is_connected(self) -> bool:
        """See :attr:`penstock.Subscription.is_connected`."""
        return self._sync.is_connected

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Subscription.is_closed`."""
        return self._sync.is_closed

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """See :attr:`penstock.Subscription.gaps`."""
        return self._sync.gaps

    def statistics(self) -> SubscriptionStatistics:
        """See :meth:`penstock.Subscription.statistics`."""
        return self._sync.statistics()

    # ---- destinations ----------------------------------------------------------------------------

    async def add_destination(self, channel: str) -> int:
        """See :meth:`penstock.Subscription.add_destination`."""
        return await in_thread(self._sync.add_destination, channel)

    async def remove_destination(self, destination: str | int) -> None:
        """See :meth:`penstock.Subscription.remove_destination`."""
        await in_thread(self._sync.remove_destination, destination)

    # ---- life ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """See :meth:`penstock.Subscription.close`. If the task is cancelled meanwhile, the close
        still completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.close)
        self._parking.wake()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"
