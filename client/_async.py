# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio and trio.

An offer or a poll never blocks, so it runs in the thread of the event loop. A task that waits for
room or for messages sleeps on the client's eventfd (:mod:`penstock.client._async_parking`).
Exchanges with the daemon run in worker threads.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

import anyio

from penstock.client._async_parking import AsyncParking
from penstock.client._async_publication import AsyncPublication
from penstock.client._async_service import AsyncRequestHandler, AsyncService
from penstock.client._async_subscription import AsyncSubscription
from penstock.client._async_threads import in_thread, made_in_thread, to_the_end
from penstock.client._client import Client, Starting
from penstock.client._connect import RETRY_S, Attempt
from penstock.client._counters import Counter, Counters
from penstock.client._credit_options import CreditsGiven
from penstock.client._defaults import DEFAULT_REATTACH_S, DEFAULT_TIMEOUT_S
from penstock.client._publication import Publication, SessionCallback
from penstock.client._registration import Registration
from penstock.client._requester import AsyncRequester
from penstock.client._restart import DaemonCallback
from penstock.client._schemas import optional_codec
from penstock.client._service import Answering
from penstock.client._subscription import GapCallback, ImageCallback, Subscription

if TYPE_CHECKING:
    from penstock.client._async_consumer import AsyncConsumerGroup
    from penstock.client._async_typed import AsyncTypedPublication, AsyncTypedSubscription
    from penstock.client._schemas import AnySchema
    from penstock.client._typed import TypedPublication, TypedSubscription
    from penstock.client._typed_groups import AsyncTypedConsumerGroup

T = TypeVar("T")
_A = TypeVar("_A")
_LOG: Final = logging.getLogger("penstock.client")


class AsyncClient:
    """A :class:`penstock.Client` for asyncio and trio, whose methods have the same names and
    results. Create the client with :func:`penstock.open_client`. Only tasks of one event loop may
    use the client."""

    def __init__(self, client: Client) -> None:
        self._sync = client
        self._parking = AsyncParking(client)

    @property
    def sync(self) -> Client:
        """The underlying synchronous client."""
        return self._sync

    @property
    def directory(self) -> Path:
        """See :attr:`penstock.Client.directory`."""
        return self._sync.directory

    @property
    def client_id(self) -> int:
        """See :attr:`penstock.Client.client_id`."""
        return self._sync.client_id

    @property
    def daemon_version(self) -> str:
        """See :attr:`penstock.Client.daemon_version`."""
        return self._sync.daemon_version

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Client.is_closed`."""
        return self._sync.is_closed

    @property
    def is_daemon_alive(self) -> bool:
        """See :attr:`penstock.Client.is_daemon_alive`."""
        return self._sync.is_daemon_alive

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """See :attr:`penstock.Client.registrations`."""
        return self._sync.registrations

    @property
    def counters(self) -> Counters:
        """See :attr:`penstock.Client.counters`."""
        return self._sync.counters

    @overload
    async def add_publication(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncPublication: ...

    @overload
    async def add_publication(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncTypedPublication[T]: ...

    @overload
    async def add_publication(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncTypedPublication[Any]: ...

    async def add_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncPublication | AsyncTypedPublication[Any]:
        """See :meth:`penstock.Client.add_publication`; the callback runs in the event loop."""
        add = partial(
            self._sync.add_publication, channel, stream_id, schema=schema,
            on_session_lost=self._in_loop(on_session_lost),
        )
        return _publication(self._parking, await made_in_thread(add, _close))

    @overload
    async def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncPublication: ...

    @overload
    async def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncTypedPublication[T]: ...

    @overload
    async def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncTypedPublication[Any]: ...

    async def add_exclusive_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_session_lost: SessionCallback | None = None,
    ) -> AsyncPublication | AsyncTypedPublication[Any]:
        """See :meth:`penstock.Client.add_exclusive_publication`; the callback runs in the event
        loop."""
        add = partial(
            self._sync.add_exclusive_publication, channel, stream_id, schema=schema,
            on_session_lost=self._in_loop(on_session_lost),
        )
        return _publication(self._parking, await made_in_thread(add, _close))

    @overload
    async def add_subscription(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> AsyncSubscription: ...

    @overload
    async def add_subscription(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> AsyncTypedSubscription[T]: ...

    @overload
    async def add_subscription(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> AsyncTypedSubscription[Any]: ...

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_available: ImageCallback | None = None,
        on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> AsyncSubscription | AsyncTypedSubscription[Any]:
        """See :meth:`penstock.Client.add_subscription`; the callbacks run in the task that
        receives."""
        add = partial(
            self._sync.add_subscription, channel, stream_id, schema=schema,
            on_available=on_available, on_unavailable=on_unavailable, on_gap=on_gap,
            credits=credits,
        )
        return _subscription(self._parking, await made_in_thread(add, _close))

    async def requester(self, channel: str, stream_id: int) -> AsyncRequester:
        """See :meth:`penstock.Client.requester`."""
        make = partial(self._sync.requester, channel, stream_id)
        made = await made_in_thread(make, _close)
        return AsyncRequester(self._parking, made)

    def serve(
        self,
        channel: str,
        stream_id: int,
        *,
        concurrency: int = 1,
        reply_timeout_s: float = 1.0,
    ) -> Callable[[AsyncRequestHandler], AsyncService]:
        """See :meth:`penstock.Client.serve`; the function is an ``async def``."""
        answering = Answering(self._sync, channel, stream_id, reply_timeout_s)
        return lambda handler: AsyncService(self._parking, handler, answering, concurrency)

    @overload
    async def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: None = None,
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> AsyncConsumerGroup: ...

    @overload
    async def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: type[T],
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> AsyncTypedConsumerGroup[T]: ...

    @overload
    async def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: AnySchema,
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> AsyncTypedConsumerGroup[Any]: ...

    async def consumer_group(
        self,
        name: str,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        starting: Starting = "latest",
        expiry_s: float = 600.0,
        credits: CreditsGiven = None,
    ) -> AsyncConsumerGroup | AsyncTypedConsumerGroup[Any]:
        """See :meth:`penstock.Client.consumer_group`."""
        from penstock.client._async_consumer import AsyncConsumerGroup
        from penstock.client._typed_groups import AsyncTypedConsumerGroup

        codec = optional_codec(schema)
        join = partial(
            self._sync.consumer_group, name, channel, stream_id, starting=starting,
            expiry_s=expiry_s, credits=credits,
        )
        group = AsyncConsumerGroup(await made_in_thread(join, _close))
        return group if codec is None else AsyncTypedConsumerGroup(group, codec)

    async def add_counter(
        self, label: str, *, type_id: int = 1001, key: bytes = b"", value: int = 0
    ) -> Counter:
        """See :meth:`penstock.Client.add_counter`."""
        add = partial(self._sync.add_counter, label, type_id=type_id, key=key, value=value)
        return await made_in_thread(add, _close)

    async def status(self) -> Mapping[str, Any]:
        """See :meth:`penstock.Client.status`."""
        return await in_thread(self._sync.status)

    async def close(self) -> None:
        """See :meth:`penstock.Client.close`. If the task is cancelled meanwhile, the close still
        completes; the cancellation takes effect afterwards."""
        if not self._sync.is_closed:
            await to_the_end(self._sync.close)
        self._parking.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _in_loop(self, callback: Callable[[_A], object] | None) -> Callable[[_A], object] | None:
        """Return a function that calls ``callback`` in the loop. The loop survives an exception."""
        if callback is None:
            return None
        called = callback

        def now(argument: _A) -> None:
            try:
                called(argument)
            except Exception:
                _LOG.exception("%r raised an exception", called)

        return lambda argument: self._parking.call_soon(partial(now, argument))

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


def _publication(
    parking: AsyncParking, made: Publication | TypedPublication[Any]
) -> AsyncPublication | AsyncTypedPublication[Any]:
    """Awaited form of a publication."""
    if isinstance(made, Publication):
        return AsyncPublication(parking, made)
    from penstock.client._async_typed import AsyncTypedPublication

    return AsyncTypedPublication(AsyncPublication(parking, made.raw), made._codec)


def _subscription(
    parking: AsyncParking, made: Subscription | TypedSubscription[Any]
) -> AsyncSubscription | AsyncTypedSubscription[Any]:
    """Awaited form of a subscription."""
    if isinstance(made, Subscription):
        return AsyncSubscription(parking, made)
    from penstock.client._async_typed import AsyncTypedSubscription

    return AsyncTypedSubscription(AsyncSubscription(parking, made.raw), made._codec)


class _Closes(Protocol):
    def close(self) -> None: ...


def _close(made: _Closes | None) -> None:
    """Close an object that the caller does not get, because its task was cancelled."""
    if made is not None:
        made.close()


async def _connected(attempt: Attempt) -> Client:
    while True:
        sync = await made_in_thread(attempt.once, _close)
        if sync is not None:
            return sync
        await anyio.sleep(RETRY_S)


@asynccontextmanager
async def open_client(
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reattach_timeout_s: float = DEFAULT_REATTACH_S,
    credits: CreditsGiven = None,
    on_daemon: DaemonCallback | None = None,
) -> AsyncIterator[AsyncClient]:
    """``async with open_client() as client``: connect like :func:`penstock.connect`, for asyncio
    and trio.

    ``on_daemon`` is called in the loop's thread, and may use the client.
    If the task is cancelled while it waits for a daemon, the wait ends at once.
    """
    attempt = Attempt(
        directory, name=name, timeout_s=timeout_s, reattach_timeout_s=reattach_timeout_s,
        credits=credits, watch=True,
    )
    sync = await _connected(attempt)
    try:
        client = AsyncClient(sync)
    except BaseException:
        sync.close()
        raise
    sync._bell.on_daemon = client._in_loop(on_daemon)
    try:
        yield client
    finally:
        await client.close()
