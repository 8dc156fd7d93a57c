# SPDX-License-Identifier: Apache-2.0
"""A cancelled call of the asynchronous client has no effect, and a call in a worker thread ends
before its task does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from local_port import FAR, LocalPort
from test_client_async import CHANNEL, STREAM, Run, _stream, _waiting, run

from penstock import AsyncClient
from penstock.client._async_threads import in_thread, made_in_thread, to_the_end

__all__ = ["run"]                       # a fixture


def _cancel_after(scope: anyio.CancelScope, made: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that cancels ``scope`` after ``made`` had an effect."""

    def then_cancelled(*args: Any) -> Any:
        result = made(*args)
        if (isinstance(result, int) and result < 0) or result is None:
            return result
        scope.cancel()
        return result

    return then_cancelled


def _impatient(client: AsyncClient) -> None:
    """Let other tasks run, and look for a cancellation, at the next opportunity."""
    waker: Any = client._parking._waker
    waker._greed = 100


@pytest.mark.parametrize("call", ["recv", "recv_batch"])
def test_a_received_message_is_returned_in_spite_of_a_cancellation(
    run: Run, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        sync = subscription.sync
        taken = {"recv": "_next", "recv_batch": "_next_batch"}[call]
        publication.offer(b"one")
        received: list[object] = []
        with anyio.CancelScope() as scope:
            monkeypatch.setattr(sync, taken, _cancel_after(scope, getattr(sync, taken)))
            _impatient(client)
            received.append(await getattr(subscription, call)())
        monkeypatch.undo()
        assert len(received) == 1       # the message is released: nothing would deliver it again

        publication.offer(b"two")
        with anyio.CancelScope() as scope:
            scope.cancel()
            _impatient(client)
            await getattr(subscription, call)()
        assert scope.cancelled_caught
        assert await subscription.recv() == b"two"

    run(test)


@pytest.mark.parametrize("call", ["messages", "batches"])
def test_a_loop_that_is_cancelled_misses_no_message(run: Run, call: str) -> None:
    """The exception keeps the iterator alive, so that its end does not look like an exception."""

    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        with anyio.CancelScope() as scope:
            publication.offer(b"one")
            async for _ in getattr(subscription, call)():
                publication.offer(b"two")
                scope.cancel()
                _impatient(client)
        assert scope.cancelled_caught
        assert await subscription.recv() == b"two"

    run(test)


@pytest.mark.parametrize("waits", [False, True])
def test_a_sent_message_is_reported_in_spite_of_a_cancellation(
    run: Run, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the call raised the cancellation, an application would send the message again."""

    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication = await client.add_publication(CHANNEL, STREAM)
        identity = publication.registration_id
        port.open_up(identity, limit=0 if waits else FAR)
        sync = publication.sync
        positions: list[int] = []

        async def send() -> None:
            with anyio.CancelScope() as scope:
                name = "_offer_on" if waits else "offer"
                original = getattr(sync, name)

                def offer(data: bytes, reserved_value: int = 0) -> int:
                    result: int = original(data, reserved_value) if waits else original(data)
                    if result > 0:
                        scope.cancel()
                        _impatient(client)
                    return result

                monkeypatch.setattr(sync, name, offer)
                positions.append(await publication.send(b"x"))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            if waits:
                await _waiting(client, 1)
                await anyio.to_thread.run_sync(port.move_limit, identity, FAR)
        monkeypatch.undo()
        assert positions == [64]

        with anyio.CancelScope() as scope:
            scope.cancel()
            _impatient(client)
            await publication.send(b"y")
        assert scope.cancelled_caught
        assert publication.position == 64

    run(test)


@pytest.mark.parametrize("function", [in_thread, to_the_end, partial(made_in_thread, close=id)])
def test_a_call_in_a_thread_ends_before_a_task_that_asyncio_cancels(
    function: Callable[..., Awaitable[object]],
) -> None:
    """``Task.cancel`` reaches into the cancel scopes of anyio that shield a call."""

    async def test() -> None:
        began, may_end, ended = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def call() -> None:
            loop.call_soon_threadsafe(began.set)
            may_end.wait()
            ended.set()

        task = asyncio.ensure_future(function(call))
        await began.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(test())


def test_an_object_that_a_cancelled_task_added_is_closed(port: LocalPort) -> None:
    """No task would read the subscription, and so it would block its publishers."""

    async def test() -> None:
        async with AsyncClient(port.watching_client()) as client:
            began, may_end = asyncio.Event(), threading.Event()
            loop, add = asyncio.get_running_loop(), client.sync.add_subscription

            def slowly(*args: Any, **kwargs: Any) -> Any:
                loop.call_soon_threadsafe(began.set)
                may_end.wait()
                return add(*args, **kwargs)

            client.sync.add_subscription = slowly       # type: ignore[method-assign]
            task = asyncio.ensure_future(client.add_subscription(CHANNEL, STREAM))
            await began.wait()
            task.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not client.registrations

    asyncio.run(test())
