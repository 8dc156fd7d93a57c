# SPDX-License-Identifier: Apache-2.0
"""The client of asyncio and trio on the real core, with the daemon's part moved by hand."""

from __future__ import annotations

import gc
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint
from local_port import END_OF_STREAM_OFFSET, FAR, TERM_LENGTH, LocalPort

from penstock import AsyncClient, AsyncImage, AsyncPublication, AsyncSubscription
from penstock.client import (
    Client,
    ConsumerGroup,
    GroupBatch,
    Image,
    LostSession,
    Publication,
    Requester,
    Service,
    Subscription,
    TypedConsumerGroup,
    TypedGroupBatch,
    TypedPublication,
    TypedSubscription,
)
from penstock.client._async_consumer import AsyncConsumerGroup, AsyncGroupBatch
from penstock.client._async_service import AsyncService
from penstock.client._async_typed import AsyncTypedPublication, AsyncTypedSubscription
from penstock.client._requester import AsyncRequester
from penstock.client._typed_groups import AsyncTypedConsumerGroup, AsyncTypedGroupBatch
from penstock.core import errors

STREAM = 1001
CHANNEL = "aeron:ipc"
MESSAGE_BYTES = 1056   # not a part of a term
FRAME_HEADER_BYTES = 32

Run = Callable[[Callable[[LocalPort, AsyncClient], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, port: LocalPort) -> Run:
    """Runs a test in a loop of its own, with a client."""

    async def with_client(test: Callable[[LocalPort, AsyncClient], Awaitable[None]]) -> None:
        with anyio.fail_after(60):
            async with AsyncClient(port.watching_client()) as client:
                await test(port, client)

    backend: str = request.param
    return lambda test: anyio.run(with_client, test, backend=backend)


async def _stream(
    port: LocalPort, client: AsyncClient
) -> tuple[AsyncPublication, AsyncSubscription]:
    publication = await client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.registration_id)
    return publication, await client.add_subscription(CHANNEL, STREAM)


def _data_came(port: LocalPort) -> None:
    """What the daemon's receiver does when there is data."""
    port.shared.wake_client(port.lease.client_slot)


async def _waiting(client: AsyncClient, count: int) -> None:
    """Until that many tasks wait."""
    waker: Any = client._parking._waker
    while len(waker._waiters) < count:
        await checkpoint()


@asynccontextmanager
async def _background(*functions: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        for function in functions:
            group.start_soon(function)
        yield


# ---- the same words ------------------------------------------------------------------------------

_OWN = {"sync", "__aiter__", "__aenter__", "__aexit__"}
_LOOPS = {"__iter__", "__enter__", "__exit__"}


@pytest.mark.parametrize(("plain", "awaited"), [
    (Client, AsyncClient), (Publication, AsyncPublication), (Subscription, AsyncSubscription),
    (Image, AsyncImage), (Requester, AsyncRequester), (Service, AsyncService),
    (ConsumerGroup, AsyncConsumerGroup), (GroupBatch, AsyncGroupBatch),
    (TypedPublication, AsyncTypedPublication), (TypedSubscription, AsyncTypedSubscription),
    (TypedConsumerGroup, AsyncTypedConsumerGroup), (TypedGroupBatch, AsyncTypedGroupBatch),
])
def test_every_name_of_the_plain_class_is_there(plain: type, awaited: type) -> None:
    def names(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert names(awaited) - _OWN == names(plain)
    for name in names(plain):
        here, there = inspect.getattr_static(awaited, name), inspect.getattr_static(plain, name)
        assert isinstance(here, property) == isinstance(there, property), name
        if isinstance(here, property):
            continue
        mine, its = inspect.signature(here), inspect.signature(there)
        assert list(mine.parameters) == list(its.parameters), name
        assert [p.default for p in mine.parameters.values()] == [
            p.default for p in its.parameters.values()
        ], name
        result = str(mine.return_annotation).replace("AsyncSteps[Message]", "Messages")
        result = result.replace("AsyncSteps[MessageBatch]", "Batches")
        result = result.replace("AsyncRequestHandler", "RequestHandler")
        assert result.replace("Async", "") == str(its.return_annotation), name


# ---- receiving -----------------------------------------------------------------------------------


def test_messages_are_awaited(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        received: list[bytes] = []

        async def receive() -> None:
            async for message in subscription:
                received.append(message)
                if len(received) == 200:
                    return

        async with _background(receive):
            for index in range(200):
                if index % 50 == 0:
                    await _waiting(client, 1)
                await publication.send(b"%d" % index)
                _data_came(port)
        assert received == [b"%d" % index for index in range(200)]

    run(test)


def test_break_releases_and_an_exception_does_not(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        for index in range(4):
            publication.offer(b"%d" % index)
        async for message in subscription:
            assert message == b"0"
            break
        assert subscription.images[0].released_position == 64

        async def fail() -> None:
            async for message in subscription:
                if message == b"2":
                    raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert await subscription.recv() == b"2"
        batch = await subscription.recv_batch()
        assert [bytes(payload) for payload in batch] == [b"3"]
        assert subscription.images[0].released_position == 4 * 64

    run(test)


def test_until_end_ends_with_the_last_publisher(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        publication.offer_batch([b"a", b"b"])
        port._write_meta(
            publication.registration_id, END_OF_STREAM_OFFSET,
            publication.position.to_bytes(8, "little"),
        )
        assert [m async for m in subscription.messages(5.0, until_end=True)] == [b"a", b"b"]
        assert [b async for b in subscription.batches(until_end=True)] == []

    run(test)


def test_waits_end_at_their_time(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        _, subscription = await _stream(port, client)
        for wait in (subscription.recv, subscription.recv_batch):
            with pytest.raises(errors.TimeoutExpired):
                await wait(timeout_s=0.001)
        with pytest.raises(errors.TimeoutExpired):
            await anext(subscription.messages(0.001))
        assert not await subscription.wait(0.001)
        other = await client.add_subscription(CHANNEL, STREAM + 1)
        assert not await other.wait_connected(0.001)
        assert await subscription.wait_connected(0.001)

    run(test)


def test_closing_ends_a_loop(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        _, subscription = await _stream(port, client)

        async def receive() -> None:
            async for _message in subscription:
                pytest.fail("nothing was sent")

        async with _background(receive):
            await _waiting(client, 1)
            await subscription.close()

    run(test)


# ---- sending -------------------------------------------------------------------------------------


def test_send_waits_and_can_be_cancelled(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication = await client.add_publication(CHANNEL, STREAM)
        identity = publication.registration_id
        with pytest.raises(errors.NotConnected):
            await publication.send(b"x", wait_connected=False)
        with pytest.raises(errors.TimeoutExpired):
            await publication.send(b"x", 0.001)
        port.open_up(identity, limit=0)
        with anyio.move_on_after(0.001) as scope:
            await publication.send(b"cancelled")
        assert scope.cancelled_caught
        with pytest.raises(errors.TimeoutExpired):
            await publication.send_batch([b"x"], 0.001)
        async with _background(partial(anyio.to_thread.run_sync, port.move_limit, identity, FAR)):
            assert await publication.send(b"x") == 64
        assert await publication.send_batch([b"y", b"z"]) == 3 * 64
        assert publication.position == 3 * 64

    run(test)


@pytest.mark.parametrize("exclusive", [False, True])
def test_send_does_not_wait_where_a_term_turns(run: Run, exclusive: bool) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        add = client.add_exclusive_publication if exclusive else client.add_publication
        publication = await add(CHANNEL, STREAM)
        port.open_up(publication.registration_id)
        message = b"x" * (MESSAGE_BYTES - FRAME_HEADER_BYTES)
        while publication.position + MESSAGE_BYTES <= TERM_LENGTH:
            assert publication.offer(message) > 0
        assert 0 < TERM_LENGTH - publication.position < MESSAGE_BYTES
        client._parking._waker.stop()      # a task that waits now is never woken
        assert await publication.send(b"x" * 900) > TERM_LENGTH

    run(test)


def test_many_tasks_wait_at_once(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publications = [await client.add_exclusive_publication(CHANNEL, s) for s in range(8)]
        async with _background(*(partial(each.send, b"x") for each in publications)):
            await _waiting(client, 8)
            for publication in reversed(publications):
                port.open_up(publication.registration_id)
        assert [publication.position for publication in publications] == [64] * 8

    run(test)


# ---- waiting -------------------------------------------------------------------------------------


def test_a_wake_up_writes_the_eventfd_once_and_only_while_watched(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        def written() -> int:
            try:
                return os.eventfd_read(port._watch_fd)
            except BlockingIOError:
                return 0

        _, subscription = await _stream(port, client)
        for _ in range(3):
            _data_came(port)
        assert written() == 0           # no task waits
        with anyio.move_on_after(0.001):
            await subscription.wait()   # cancelled: the client still watches
        for _ in range(3):
            _data_came(port)
        assert written() == 1

    run(test)


def test_waiters_look_again_when_no_wake_up_came(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        happened = False

        async def wait() -> None:
            assert await client._parking.until(lambda: happened, None)

        async with _background(wait):
            await _waiting(client, 1)
            happened = True     # and no wake-up

    run(test)


def test_waiting_ends_when_the_daemon_dies(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        port.move_limit(publication.registration_id, 0)
        ended: list[str] = []

        async def expect(name: str, wait: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(errors.DaemonGone):
                await wait()
            ended.append(name)

        async with _background(
            partial(expect, "send", partial(publication.send, b"x")),
            partial(expect, "wait", subscription.wait),
            partial(expect, "next", aiter(subscription).__anext__),
        ):
            await _waiting(client, 3)
            await anyio.to_thread.run_sync(port.die)
        assert sorted(ended) == ["next", "send", "wait"]

    run(test)


def test_a_renewed_eventfd_is_watched(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)

        def renew() -> None:    # as for a daemon that adopted this client
            port.renew_watch()
            client.sync._bell.on_back(port.lease, frozenset(), True)

        for turn in range(3):
            async with _background(subscription.wait):
                await _waiting(client, 1)
                await anyio.to_thread.run_sync(renew)
                for _ in range(10):
                    await checkpoint()
                await _waiting(client, 1)
                publication.offer(b"%d" % turn)
                _data_came(port)
            assert await subscription.recv() == b"%d" % turn

    run(test)


def test_cancelled_waits_leave_nothing_behind(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        _, subscription = await _stream(port, client)

        def held() -> tuple[int, int, int]:
            gc.collect()
            tasks = len(anyio.get_running_tasks())
            return threading.active_count(), len(os.listdir("/proc/self/fd")), tasks

        waits = (subscription.wait, subscription.recv, subscription.recv_batch)
        before = held()
        for turn in range(1000):
            async with anyio.create_task_group() as group:
                group.start_soon(waits[turn % len(waits)])
                await _waiting(client, 1)
                group.cancel_scope.cancel()
        waker: Any = client._parking._waker
        assert not waker._waiters
        # A worker thread of the loop may have ended meanwhile: it rests for 10 s at most.
        assert all(now <= then for now, then in zip(held(), before, strict=True))

    run(test)


def test_a_loop_that_never_waits_lets_others_run(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        publication, subscription = await _stream(port, client)
        publication.offer_batch([b"x"] * 100)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await checkpoint()
                turns += 1

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            async for _ in subscription:
                if turns:
                    break
            group.cancel_scope.cancel()
        assert turns

    run(test)


def test_a_lost_session_is_reported_in_the_loop(run: Run) -> None:
    async def test(port: LocalPort, client: AsyncClient) -> None:
        told: list[tuple[LostSession, int]] = []
        publication = await client.add_publication(
            CHANNEL, STREAM,
            on_session_lost=lambda lost: told.append((lost, threading.get_ident())),
        )
        lost = LostSession(session_id=1, sent_position=0, position=64)
        callback = publication.sync._on_session_lost
        assert callback is not None
        await anyio.to_thread.run_sync(callback, lost)
        while not told:
            await checkpoint()
        assert told == [(lost, threading.get_ident())]

    run(test)
