# SPDX-License-Identifier: Apache-2.0
"""Servers of requests for event loops: see :class:`penstock.Service`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from penstock.client._async_subscription import AsyncSubscription
from penstock.client._async_threads import in_thread, to_the_end
from penstock.client._service import Answering, ServiceStatistics, check_concurrency
from penstock.core.errors import ClosedError, PenstockError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from penstock.client._async_parking import AsyncParking
    from penstock.client._message import Message
    from penstock.client._publication import Payload

    AsyncRequestHandler: TypeAlias = Callable[[Message], Awaitable[Payload | None]]
else:
    AsyncRequestHandler = Any


class AsyncService:
    """A :class:`penstock.Service` for asyncio and trio, whose methods have the same names and
    results.

    The handler is an ``async def``; up to ``concurrency`` calls of it run at once.
    """

    def __init__(
        self,
        parking: AsyncParking,
        handler: AsyncRequestHandler,
        answering: Answering,
        concurrency: int,
    ) -> None:
        self._parking = parking
        self._handler = handler
        self._answering = answering
        self._free = anyio.Semaphore(check_concurrency(concurrency))
        self._subscription: AsyncSubscription | None = None
        self._closed = False
        self._failure: BaseException | None = None
        self._group: TaskGroup | None = None

    async def __call__(self, request: Message) -> Payload | None:
        """Call the handler."""
        return await self._handler(request)

    async def run(self) -> None:
        """See :meth:`penstock.Service.run`.  A cancellation ends it."""
        try:
            await self._subscribe()
            async with anyio.create_task_group() as group:
                await self._receive(group)
        finally:
            await self._end()
        self._raise_failure()

    async def close(self) -> None:
        """See :meth:`penstock.Service.close`."""
        self._closed = True
        if self._subscription is not None:
            await self._subscription.close()

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Service.is_closed`."""
        return self._closed

    @property
    def channel(self) -> str:
        """See :attr:`penstock.Service.channel`."""
        return self._answering.channel

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.Service.stream_id`."""
        return self._answering.stream_id

    def statistics(self) -> ServiceStatistics:
        """See :meth:`penstock.Service.statistics`."""
        return self._answering.statistics()

    async def __aenter__(self) -> AsyncService:
        await self._subscribe()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._receive, self._group)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._group is not None
        group, self._group = self._group, None
        try:
            with anyio.CancelScope(shield=True):
                await self.close()
        finally:
            await group.__aexit__(None, None, None)
            await self._end()
        if _exc[0] is None:
            self._raise_failure()

    async def _subscribe(self) -> None:
        if self._closed or self._subscription is not None:
            raise ClosedError("a service runs once: call serve() again")
        self._subscription = AsyncSubscription(
            self._parking, await in_thread(self._answering.add_subscription)
        )

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()
        try:
            await to_the_end(self._answering.close)
        except PenstockError:
            if not self._answering.client.is_closed:
                raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _receive(self, group: TaskGroup) -> None:
        """Start a task for each request, at most ``concurrency`` at once."""
        assert self._subscription is not None
        self._answering.on_departed = lambda: group.start_soon(self._close_departed)
        try:
            async for request in self._subscription:
                if self._answering.is_request(request):
                    await self._free.acquire()
                    group.start_soon(self._answer, request)
        except PenstockError as failure:
            self._failure = failure
        finally:
            self._answering.on_departed = None
            self._closed = True

    async def _close_departed(self) -> None:
        try:
            await in_thread(self._answering.close_departed)
        except PenstockError as failure:
            self._failure = failure
            await self.close()

    async def _answer(self, request: Message) -> None:
        answering = self._answering
        try:
            try:
                payload = await self._handler(request)
            except Exception as error:
                await in_thread(answering.reply_error, request, error)
            else:
                if not answering.reply_at_once(request, payload):
                    await in_thread(answering.reply, request, payload)
        except PenstockError as failure:
            self._failure = failure
            await self.close()
        finally:
            self._free.release()

    def _repr_html_(self) -> str:
        from penstock.client._html import exchange_html

        return exchange_html(
            "Service", self.stream_id, self.channel, closed=self.is_closed,
            statistics=self.statistics(),
        )

    def __repr__(self) -> str:
        return f"<AsyncService {self.channel} stream={self.stream_id}{' closed' * self._closed}>"
