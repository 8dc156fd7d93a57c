# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio and trio: the same words, awaited.

An offer or a poll never blocks, so it runs in the loop's thread. Only waiting differs: a task waits
for the client's eventfd (:mod:`penstock.client._async_parking`). Exchanges with the daemon run in
worker threads.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from penstock.client._async_parking import AsyncParking
from penstock.client._async_publication import AsyncPublication
from penstock.client._async_subscription import AsyncSubscription
from penstock.client._async_threads import in_thread, to_the_end
from penstock.client._client import Client, Registration
from penstock.client._connect import RETRY_S, Attempt
from penstock.client._counters import Counter, Counters
from penstock.client._defaults import DEFAULT_REATTACH_S, DEFAULT_TIMEOUT_S
from penstock.client._publication import SessionCallback
from penstock.client._restart import LostSession
from penstock.client._subscription import GapCallback, ImageCallback


class AsyncClient:
    """A :class:`penstock.Client` for asyncio and trio: the same names and results.  Made by
    :func:`penstock.open_client`.  For the tasks of one loop."""

    def __init__(self, client: Client) -> None:
        self._sync = client
        self._parking = AsyncParking(client)

    @property
    def sync(self) -> Client:
        """The plain client underneath."""
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

    async def add_publication(
        self, channel: str, stream_id: int, *, on_session_lost: SessionCallback | None = None
    ) -> AsyncPublication:
        """See :meth:`penstock.Client.add_publication`; the callback runs in the loop."""
        add = partial(
            self._sync.add_publication, channel, stream_id,
            on_session_lost=self._in_loop(on_session_lost),
        )
        return AsyncPublication(self._parking, await in_thread(add))

    async def add_exclusive_publication(
        self, channel: str, stream_id: int, *, on_session_lost: SessionCallback | None = None
    ) -> AsyncPublication:
        """See :meth:`penstock.Client.add_exclusive_publication`; the callback runs in the loop."""
        add = partial(
            self._sync.add_exclusive_publication, channel, stream_id,
            on_session_lost=self._in_loop(on_session_lost),
        )
        return AsyncPublication(self._parking, await in_thread(add))

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available: ImageCallback | None = None,
        on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None,
    ) -> AsyncSubscription:
        """See :meth:`penstock.Client.add_subscription`; the callbacks run in the task that
        receives."""
        add = partial(
            self._sync.add_subscription, channel, stream_id, on_available=on_available,
            on_unavailable=on_unavailable, on_gap=on_gap,
        )
        return AsyncSubscription(self._parking, await in_thread(add))

    async def add_counter(
        self, label: str, *, type_id: int = 1001, key: bytes = b"", value: int = 0
    ) -> Counter:
        """See :meth:`penstock.Client.add_counter`."""
        return await in_thread(
            partial(self._sync.add_counter, label, type_id=type_id, key=key, value=value)
        )

    async def status(self) -> Mapping[str, Any]:
        """See :meth:`penstock.Client.status`."""
        return await in_thread(self._sync.status)

    async def close(self) -> None:
        """See :meth:`penstock.Client.close`.  A cancellation waits for its end."""
        if not self._sync.is_closed:
            await to_the_end(self._sync.close)
        self._parking.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _in_loop(self, callback: SessionCallback | None) -> SessionCallback | None:
        if callback is None:
            return None
        called = callback

        def on_lost(lost: LostSession) -> None:
            self._parking.call_soon(partial(called, lost))

        return on_lost

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


async def _connected(attempt: Attempt) -> Client:
    while True:
        sync = await in_thread(attempt.once)
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
) -> AsyncIterator[AsyncClient]:
    """``async with open_client() as client``: as :func:`penstock.connect`, for asyncio and trio.

    A cancellation ends the wait for a daemon at once.
    """
    attempt = Attempt(
        directory, name=name, timeout_s=timeout_s, reattach_timeout_s=reattach_timeout_s,
        watch=True,
    )
    sync = await _connected(attempt)
    try:
        client = AsyncClient(sync)
    except BaseException:
        sync.close()
        raise
    try:
        yield client
    finally:
        await client.close()
