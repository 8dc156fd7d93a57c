# SPDX-License-Identifier: Apache-2.0
"""The client for trio: the same words, awaited.

The data path is the plain client's: an offer or a poll never blocks, so it runs in the trio thread.
Only waiting differs. A waiting task takes a ticket, checks its condition, and gives the ticket to
one helper thread per client. The thread sleeps on the client's futex word and wakes the tasks
through trio. Exchanges with the daemon run in worker threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio

from penstock.client._claim import Claim
from penstock.client._client import Client
from penstock.client._connect import RETRY_S, Attempt
from penstock.client._counters import Counter, Counters
from penstock.client._defaults import DEFAULT_REATTACH_S, DEFAULT_TIMEOUT_S
from penstock.client._image import Image
from penstock.client._message import MessageBatch
from penstock.client._offer import Offer
from penstock.client._parking import SLICE_NS
from penstock.client._publication import BatchResult, Publication
from penstock.client._reader import DEFAULT_BATCH, DEFAULT_LIMIT, Handler
from penstock.client._subscription import ImageCallback, Subscription
from penstock.core import client as core
from penstock.core.errors import ClosedError, TimeoutExpired

_T = TypeVar("_T")


class _Sleeper:
    """The helper thread: sleeps for tasks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._token = trio.lowlevel.current_trio_token()
        self._changed = threading.Condition()
        self._waiters: dict[trio.Event, tuple[core.ClientHandle, int]] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-trio", daemon=True)
        self._thread.start()

    async def until(self, happened: Callable[[], bool], check: Callable[[], None]) -> None:
        """Returns once ``happened()`` is true; a checkpoint in any case."""
        await trio.lowlevel.checkpoint()
        while True:
            handle = self._client._handle
            ticket = core.client_ticket(handle)
            if happened():
                return
            check()
            event = trio.Event()
            with self._changed:
                self._waiters[event] = (handle, ticket)
                self._changed.notify()
            try:
                await event.wait()
            finally:
                with self._changed:
                    self._waiters.pop(event, None)

    def stop(self) -> None:
        """Ends the thread; it is gone within one sleep's wake-up."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        core.client_wake(self._client._handle)
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiters and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                # A ticket older than others sees what they see; one that has passed ends at once.
                handle, ticket = next(iter(self._waiters.values()))
            # Woken or not: after a slice everyone checks again, as a thread that waits does.
            core.client_sleep(handle, ticket, SLICE_NS)
            self._fire()

    def _fire(self) -> None:
        with self._changed:
            events = list(self._waiters)
            self._waiters.clear()
        try:
            self._token.run_sync_soon(_set_all, events)
        except trio.RunFinishedError:
            return


def _set_all(events: list[trio.Event]) -> None:
    for event in events:
        event.set()


class AsyncPublication:
    """See :class:`penstock.Publication`; facts and the never-waiting calls are the same."""

    def __init__(self, client: AsyncClient, publication: Publication) -> None:
        self._client = client
        self._sync = publication

    @property
    def sync(self) -> Publication:
        """The plain publication underneath."""
        return self._sync

    def offer(self, data: Any, *, reserved_value: int = 0) -> int:
        """See :meth:`penstock.Publication.offer`: never waits, so it is not awaited."""
        return self._sync.offer(data, reserved_value=reserved_value)

    def offer_batch(self, messages: Any) -> BatchResult:
        """See :meth:`penstock.Publication.offer_batch`."""
        return self._sync.offer_batch(messages)

    def try_claim(self, length: int) -> Claim:
        """See :meth:`penstock.Publication.try_claim`."""
        return self._sync.try_claim(length)

    async def send(
        self,
        data: Any,
        timeout_s: float | None = None,
        *,
        reserved_value: int = 0,
        wait_connected: bool = True,
    ) -> int:
        """See :meth:`penstock.Publication.send`.  Cancellable: then nothing was sent."""
        position: int = Offer.NOT_CONNECTED

        def attempt() -> bool:
            nonlocal position
            self._sync._want_room()
            position = self._sync._offer_on(data, reserved_value)
            return self._sync._settled(position, wait_connected)

        with trio.move_on_after(_seconds(timeout_s)) as scope:
            await self._client._until(attempt)
        if scope.cancelled_caught:
            await _in_thread(self._sync._raise_timeout, position, timeout_s)
        return position

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Waits for a receiver.  :raises TimeoutExpired: none within ``timeout_s`` seconds."""

        def connected() -> bool:
            self._sync._want_room()
            return self._sync.is_connected

        await _within(
            timeout_s, self._client._until(connected), f"no receiver on {self._sync.channel}"
        )

    @property
    def position(self) -> int:
        return self._sync.position

    @property
    def is_connected(self) -> bool:
        return self._sync.is_connected

    @property
    def session_id(self) -> int:
        return self._sync.session_id

    @property
    def stream_id(self) -> int:
        return self._sync.stream_id

    @property
    def channel(self) -> str:
        return self._sync.channel

    async def add_destination(self, channel: str) -> int:
        return await _in_thread(self._sync.add_destination, channel)

    async def remove_destination(self, destination: str | int) -> None:
        await _in_thread(self._sync.remove_destination, destination)

    async def aclose(self) -> None:
        """Ends the publication; what was accepted is still sent by the daemon."""
        with trio.CancelScope(shield=True):
            await _in_thread(self._sync.close)

    async def __aenter__(self) -> AsyncPublication:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


class AsyncSubscription:
    """See :class:`penstock.Subscription`.

    Iterating yields each message as ``bytes``, a copy that is the caller's.  For messages in place
    use :meth:`poll` or :meth:`receive_batch`.  For one task at a time.
    """

    def __init__(self, client: AsyncClient, subscription: Subscription) -> None:
        self._client = client
        self._sync = subscription
        self._ready: deque[bytes] = deque()

    @property
    def sync(self) -> Subscription:
        """The plain subscription underneath."""
        return self._sync

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> bytes:
        if self._ready:
            await trio.lowlevel.checkpoint()
            return self._ready.popleft()

        def fetch() -> bool:
            self._ready.extend(self._sync._take(DEFAULT_LIMIT))
            return bool(self._ready)

        try:
            await self._client._until(fetch)
        except ClosedError:
            raise StopAsyncIteration from None
        return self._ready.popleft()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Waits until there is something to poll.  :raises TimeoutExpired:"""
        self._sync._drop_batch()
        await _within(
            timeout_s,
            self._client._until(self._sync._has_data),
            f"no message on {self._sync.channel}",
        )

    def poll(self, handler: Handler, limit: int = DEFAULT_LIMIT) -> int:
        """See :meth:`penstock.Subscription.poll`: never waits, so it is not awaited."""
        return self._sync.poll(handler, limit)

    async def receive_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None
    ) -> MessageBatch:
        """Waits for messages and returns those there are, at least one, as a batch."""
        await self.wait(timeout_s)
        return self._sync.poll_batch(limit)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Waits for an image.  :raises TimeoutExpired: none within ``timeout_s`` seconds."""
        await _within(
            timeout_s,
            self._client._until(lambda: self._sync.is_connected),
            f"no publisher on {self._sync.channel}",
        )

    @property
    def images(self) -> tuple[Image, ...]:
        return self._sync.images

    @property
    def is_connected(self) -> bool:
        return self._sync.is_connected

    @property
    def local_addresses(self) -> tuple[str, ...]:
        return self._sync.local_addresses

    async def add_destination(self, channel: str) -> int:
        return await _in_thread(self._sync.add_destination, channel)

    async def remove_destination(self, destination: str | int) -> None:
        await _in_thread(self._sync.remove_destination, destination)

    async def aclose(self) -> None:
        """Ends the subscription."""
        with trio.CancelScope(shield=True):
            await _in_thread(self._sync.close)

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


class AsyncClient:
    """See :class:`penstock.Client`.  Made by :func:`open_client`."""

    def __init__(self, client: Client) -> None:
        self._sync = client
        self._sleeper = _Sleeper(client)

    @property
    def sync(self) -> Client:
        """The plain client underneath."""
        return self._sync

    @property
    def counters(self) -> Counters:
        return self._sync.counters

    async def add_publication(self, channel: str, stream_id: int) -> AsyncPublication:
        """See :meth:`penstock.Client.add_publication`."""
        return AsyncPublication(
            self, await _in_thread(self._sync.add_publication, channel, stream_id)
        )

    async def add_exclusive_publication(self, channel: str, stream_id: int) -> AsyncPublication:
        """See :meth:`penstock.Client.add_exclusive_publication`."""
        return AsyncPublication(
            self, await _in_thread(self._sync.add_exclusive_publication, channel, stream_id)
        )

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available: ImageCallback | None = None,
        on_unavailable: ImageCallback | None = None,
    ) -> AsyncSubscription:
        """See :meth:`penstock.Client.add_subscription`; callbacks run in the trio thread."""
        add = partial(
            self._sync.add_subscription, on_available=on_available, on_unavailable=on_unavailable
        )
        return AsyncSubscription(self, await _in_thread(add, channel, stream_id))

    async def add_counter(
        self, label: str, *, type_id: int = 1001, key: bytes = b"", value: int = 0
    ) -> Counter:
        """See :meth:`penstock.Client.add_counter`."""
        add = partial(self._sync.add_counter, type_id=type_id, key=key, value=value)
        return await _in_thread(add, label)

    async def aclose(self) -> None:
        """Ends everything that was added, then the lease."""
        with trio.CancelScope(shield=True):
            await _in_thread(self._sleeper.stop)
            await _in_thread(self._sync.close)

    async def _until(self, happened: Callable[[], bool]) -> None:
        await self._sleeper.until(happened, self._sync._check)


@asynccontextmanager
async def open_client(
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reattach_timeout_s: float = DEFAULT_REATTACH_S,
) -> AsyncIterator[AsyncClient]:
    """``async with open_client() as client``: as :func:`penstock.connect`, for trio.

    A cancellation ends the wait for a daemon at once.
    """
    attempt = Attempt(
        directory, name=name, timeout_s=timeout_s, reattach_timeout_s=reattach_timeout_s
    )
    while True:
        sync = await _in_thread(attempt.once)
        if sync is not None:
            break
        await trio.sleep(RETRY_S)
    try:
        client = AsyncClient(sync)
    except BaseException:
        sync.close()
        raise
    try:
        yield client
    finally:
        await client.aclose()


async def _in_thread(function: Callable[..., _T], *args: Any) -> _T:
    return await trio.to_thread.run_sync(function, *args)


async def _within(timeout_s: float | None, waiting: Any, what: str) -> None:
    with trio.move_on_after(_seconds(timeout_s)) as scope:
        await waiting
    if scope.cancelled_caught:
        raise TimeoutExpired(f"{what} within {timeout_s:g} s")


def _seconds(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else timeout_s
