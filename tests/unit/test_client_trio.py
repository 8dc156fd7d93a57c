# SPDX-License-Identifier: Apache-2.0
"""The trio front end on the real core, with the daemon's part moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import trio
import trio.testing
from local_port import FAR, TERM_LENGTH, LocalPort

from penstock.client._trio import AsyncClient, AsyncPublication, AsyncSubscription
from penstock.core import errors

STREAM = 1001
CHANNEL = "aeron:ipc"
MESSAGE_BYTES = 1056   # not a part of a term
FRAME_HEADER_BYTES = 32


@pytest.fixture
def port() -> Iterator[LocalPort]:
    made = LocalPort()
    yield made
    made.dispose()


@pytest.fixture
async def client(port: LocalPort) -> AsyncIterator[AsyncClient]:
    made = AsyncClient(port.client())
    yield made
    await made.aclose()


async def _stream(
    port: LocalPort, client: AsyncClient
) -> tuple[AsyncPublication, AsyncSubscription]:
    publication = await client.add_publication(CHANNEL, STREAM)
    port.open_up(publication.sync.registration_id)
    return publication, await client.add_subscription(CHANNEL, STREAM)


async def test_messages_are_awaited(port: LocalPort, client: AsyncClient) -> None:
    publication, subscription = await _stream(port, client)
    received: list[bytes] = []

    async def receive() -> None:
        async for message in subscription:
            received.append(message)
            if len(received) == 200:
                return

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            for index in range(200):
                await publication.send(b"%d" % index)
                if index % 50 == 0:
                    await trio.testing.wait_all_tasks_blocked()
                # what a network's receiver would do: tell that there is data
                port.shared.wake_client(port.lease.client_slot)
    assert received == [b"%d" % index for index in range(200)]


async def test_a_broken_off_iteration_loses_nothing(port: LocalPort, client: AsyncClient) -> None:
    publication, subscription = await _stream(port, client)
    for index in range(5):
        publication.offer(b"%d" % index)
    received: list[bytes] = []
    async for message in subscription:
        received.append(message)
        if len(received) == 2:
            break
    async for message in subscription:
        received.append(message)
        if len(received) == 5:
            break
    assert received == [b"0", b"1", b"2", b"3", b"4"]


async def test_send_waits_and_can_be_cancelled(port: LocalPort, client: AsyncClient) -> None:
    publication = await client.add_publication(CHANNEL, STREAM)
    identity = publication.sync.registration_id
    with pytest.raises(errors.NotConnected):
        await publication.send(b"x", wait_connected=False)
    with pytest.raises(errors.TimeoutExpired):
        await publication.send(b"x", 0.001)
    port.open_up(identity, limit=0)
    with trio.move_on_after(0.001) as scope:
        await publication.send(b"cancelled")
    assert scope.cancelled_caught
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, port.move_limit, identity, FAR)
            assert await publication.send(b"x") == 64
    assert publication.position == 64


def _fill_the_term(publication: AsyncPublication) -> None:
    """What comes next turns the term: the first attempt at it answers ADMIN_ACTION."""
    message = b"x" * (MESSAGE_BYTES - FRAME_HEADER_BYTES)
    while publication.position + MESSAGE_BYTES <= TERM_LENGTH:
        assert publication.offer(message) > 0
    assert 0 < TERM_LENGTH - publication.position < MESSAGE_BYTES


@pytest.mark.parametrize("exclusive", [False, True])
async def test_send_does_not_wait_where_a_term_turns(
    port: LocalPort, client: AsyncClient, exclusive: bool
) -> None:
    add = client.add_exclusive_publication if exclusive else client.add_publication
    publication = await add(CHANNEL, STREAM)
    port.open_up(publication.sync.registration_id)
    _fill_the_term(publication)
    client._sleeper.stop()      # whoever waits now is never woken
    with trio.fail_after(10):
        assert await publication.send(b"x" * 900) > TERM_LENGTH


async def test_waiters_look_again_when_nobody_woke_them(
    port: LocalPort, client: AsyncClient
) -> None:
    happened = False

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client._until, lambda: happened)
            await trio.testing.wait_all_tasks_blocked()
            happened = True     # and no word of it


async def test_many_tasks_wait_at_once(port: LocalPort, client: AsyncClient) -> None:
    publications = [await client.add_exclusive_publication(CHANNEL, s) for s in range(8)]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for publication in publications:
                nursery.start_soon(publication.send, b"x")
            await trio.testing.wait_all_tasks_blocked()
            for publication in reversed(publications):
                port.open_up(publication.sync.registration_id)
                await trio.testing.wait_all_tasks_blocked()
    assert [publication.position for publication in publications] == [64] * 8


async def test_waiting_ends_when_the_daemon_dies(port: LocalPort, client: AsyncClient) -> None:
    publication, subscription = await _stream(port, client)
    port.move_limit(publication.sync.registration_id, 0)

    async def expect(waiting: trio.MemorySendChannel[str], name: str) -> None:
        waits = {
            "send": lambda: publication.send(b"x"),
            "wait": subscription.wait,
            "next": subscription.__anext__,
        }
        with pytest.raises(errors.DaemonGone):
            await waits[name]()
        waiting.send_nowait(name)

    ended, names = trio.open_memory_channel[str](3)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for name in ("send", "wait", "next"):
                nursery.start_soon(expect, ended, name)
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(port.die)
    assert {names.receive_nowait() for _ in range(3)} == {"send", "wait", "next"}


async def test_closing_ends_an_iteration(port: LocalPort, client: AsyncClient) -> None:
    _, subscription = await _stream(port, client)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                async for _message in subscription:
                    pytest.fail("nothing was sent")

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await subscription.aclose()


async def test_batches_are_awaited(port: LocalPort, client: AsyncClient) -> None:
    publication, subscription = await _stream(port, client)
    assert publication.offer_batch([b"a", b"b"]).accepted == 2
    with await subscription.receive_batch() as batch:
        assert [bytes(view) for view in batch] == [b"a", b"b"]
    with pytest.raises(errors.TimeoutExpired):
        await subscription.receive_batch(timeout_s=0.001)
