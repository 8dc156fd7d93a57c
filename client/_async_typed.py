# SPDX-License-Identifier: Apache-2.0
"""Typed streams for asyncio and trio: see :mod:`penstock.client._typed`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.client._reader import DEFAULT_BATCH, DEFAULT_LIMIT
from penstock.client._schemas import Codec
from penstock.client._typed import TypedBatch

if TYPE_CHECKING:
    from penstock.client._async_publication import AsyncPublication
    from penstock.client._async_subscription import AsyncSteps, AsyncSubscription
    from penstock.client._message import Header
    from penstock.client._publication_facts import BatchResult

T = TypeVar("T")


class AsyncTypedPublication(Generic[T]):
    """A :class:`penstock.TypedPublication` for asyncio and trio, whose methods have the same names
    and results."""

    def __init__(self, publication: AsyncPublication, codec: Codec) -> None:
        self._raw = publication
        self._codec = codec

    @property
    def raw(self) -> AsyncPublication:
        """See :attr:`penstock.TypedPublication.raw`."""
        return self._raw

    def offer(self, value: T) -> int:
        """See :meth:`penstock.TypedPublication.offer`: this call never waits, so it needs no
        ``await``."""
        return self._raw.offer(self._codec.encode(value))

    async def send(
        self, value: T, timeout_s: float | None = None, *, wait_connected: bool = True
    ) -> int:
        """See :meth:`penstock.TypedPublication.send`.  If the call is cancelled, the value was not
        sent."""
        return await self._raw.send(
            self._codec.encode(value), timeout_s, wait_connected=wait_connected
        )

    def offer_batch(self, values: Iterable[T] | Any) -> BatchResult:
        """See :meth:`penstock.TypedPublication.offer_batch`: this call never waits, so it needs no
        ``await``."""
        return self._raw.offer_batch(self._encoded(values))

    async def send_batch(
        self, values: Iterable[T] | Any, timeout_s: float | None = None, *,
        wait_connected: bool = True,
    ) -> int:
        """See :meth:`penstock.TypedPublication.send_batch`."""
        return await self._raw.send_batch(
            self._encoded(values), timeout_s, wait_connected=wait_connected
        )

    def _encoded(self, values: Any) -> Any:
        return self._codec.encode_batch(values, self._raw.max_message_length)

    @property
    def receivers(self) -> int:
        """See :attr:`penstock.Publication.receivers`."""
        return self._raw.receivers

    async def wait_connected(
        self, timeout_s: float | None = None, *, receivers: int = 1
    ) -> bool:
        """See :meth:`penstock.Publication.wait_connected`."""
        return await self._raw.wait_connected(timeout_s, receivers=receivers)

    async def close(self) -> None:
        """See :meth:`penstock.Publication.close`. If the task is cancelled meanwhile, the close
        still completes; the cancellation takes effect afterwards."""
        await self._raw.close()

    async def __aenter__(self) -> AsyncTypedPublication[T]:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import publication_html

        return publication_html(self._raw.sync, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"


class AsyncTypedSteps(Generic[T]):
    """Iterates over the values of an :class:`AsyncTypedSubscription`. ``steps`` is an iterator over
    messages; the object converts each message of ``steps`` to a value. Nothing else refers to
    ``steps``, so Python destroys ``steps`` together with the :class:`AsyncTypedSteps`."""

    __slots__ = ("_convert", "_steps")

    def __init__(self, steps: AsyncSteps[Any], convert: Callable[[Any], T]) -> None:
        self._steps = steps
        self._convert = convert

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return self._convert(await self._steps.__anext__())


class AsyncTypedSubscription(Generic[T]):
    """A :class:`penstock.TypedSubscription` for asyncio and trio, whose methods have the same names
    and results."""

    def __init__(self, subscription: AsyncSubscription, codec: Codec) -> None:
        self._raw = subscription
        self._codec = codec

    @property
    def raw(self) -> AsyncSubscription:
        """See :attr:`penstock.TypedSubscription.raw`."""
        return self._raw

    def __aiter__(self) -> AsyncIterator[T]:
        """``async for value in subscription`` is the same as a loop over :meth:`messages`."""
        return self.messages()

    def messages(
        self, timeout_s: float | None = None, *, until_end: bool = False
    ) -> AsyncIterator[T]:
        """See :meth:`penstock.TypedSubscription.messages`."""
        return AsyncTypedSteps(
            self._raw.messages(timeout_s, until_end=until_end), self._codec.decode
        )

    def batches(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        until_end: bool = False,
    ) -> AsyncIterator[TypedBatch[T]]:
        """See :meth:`penstock.TypedSubscription.batches`."""
        codec = self._codec
        steps = self._raw.batches(limit, timeout_s, until_end=until_end)
        return AsyncTypedSteps(steps, lambda messages: TypedBatch(codec, messages))

    async def recv(self, timeout_s: float | None = None) -> T:
        """See :meth:`penstock.TypedSubscription.recv`. If the call is cancelled, no message is
        consumed."""
        value: T = self._codec.decode(await self._raw.recv(timeout_s))
        return value

    async def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None
    ) -> TypedBatch[T]:
        """See :meth:`penstock.TypedSubscription.recv_batch`."""
        return TypedBatch(self._codec, await self._raw.recv_batch(limit, timeout_s))

    def poll(self, handler: Callable[[T, Header], object], limit: int = DEFAULT_LIMIT) -> int:
        """See :meth:`penstock.TypedSubscription.poll`: this call never waits, so it needs no
        ``await``."""
        decode = self._codec.decode
        return self._raw.poll(lambda message, header: handler(decode(message), header), limit)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait`."""
        return await self._raw.wait(timeout_s)

    async def wait_connected(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait_connected`."""
        return await self._raw.wait_connected(timeout_s)

    async def close(self) -> None:
        """See :meth:`penstock.Subscription.close`. If the task is cancelled meanwhile, the close
        still completes; the cancellation takes effect afterwards."""
        await self._raw.close()

    async def __aenter__(self) -> AsyncTypedSubscription[T]:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import subscription_html

        return subscription_html(self._raw.sync, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"
