# SPDX-License-Identifier: Apache-2.0
"""The client of asyncio and trio against real daemons."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, messages
from penstock.client import GroupBatch

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
STREAM = 1001

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    async def limited(test: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(4 * TIMEOUT_S):
            await test()

    backend: str = request.param
    return lambda test: anyio.run(limited, test, backend=backend)


def test_a_stream_arrives_whole(
    run: Run, host: PenstockHost, peer: PenstockHost, port: Port
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    sent = messages(3000)

    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as near,
            penstock.open_client(peer.directory) as far,
            await far.add_subscription(channel, STREAM) as subscription,
            await near.add_publication(channel, STREAM) as publication,
            anyio.create_task_group() as group,
        ):
            received: list[bytes] = []
            complete = anyio.Event()

            async def receive_all() -> None:
                async for message in subscription:
                    received.append(message)
                    if len(received) == len(sent):
                        complete.set()
                        return

            group.start_soon(receive_all)
            assert await publication.wait_connected(TIMEOUT_S)
            for message in sent[:1000]:
                await publication.send(message)
            await publication.send_batch(sent[1000:])
            assert (await publication.pressure()).cause
            await complete.wait()
            assert received == sent
            assert (await near.status())["clients"]

    run(test)


def test_waits_go_on_with_a_new_daemon(run: Run, new_host: NewHost) -> None:
    """One daemon adopts the streams of a killed one; of the next nothing is left to adopt."""
    mortal = new_host()

    async def test() -> None:
        async with (
            penstock.open_client(mortal.directory) as client,
            await client.add_subscription("aeron:ipc", STREAM) as subscription,
            await client.add_publication("aeron:ipc", STREAM) as publication,
            anyio.create_task_group() as group,
        ):
            received: list[bytes] = []
            more = anyio.Event()

            async def receive_all() -> None:
                async for message in subscription:
                    received.append(message)
                    more.set()

            group.start_soon(receive_all)
            for number in range(3):
                more = anyio.Event()
                await publication.send(b"%d" % number)
                await more.wait()
                await anyio.to_thread.run_sync(mortal.kill)
                await anyio.to_thread.run_sync(mortal.start)
            group.cancel_scope.cancel()
            assert received == [b"0", b"1", b"2"]

    run(test)


def _in_child(directory: Path) -> None:
    async def main() -> None:
        async with (
            penstock.open_client(directory) as client,
            await client.add_subscription("aeron:ipc", 7) as subscription,
            await client.add_publication("aeron:ipc", 7) as publication,
        ):
            await publication.send(b"child", TIMEOUT_S)
            assert await subscription.recv(TIMEOUT_S) == b"child"

    anyio.run(main, backend="asyncio")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_opens_a_client_of_its_own(host: PenstockHost) -> None:
    async def main() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.add_subscription("aeron:ipc", 8) as subscription,
            await client.add_publication("aeron:ipc", 8) as publication,
        ):
            child = multiprocessing.get_context("fork").Process(
                target=_fresh_thread, args=(host.directory,)
            )
            child.start()
            await anyio.to_thread.run_sync(child.join)
            assert child.exitcode == 0
            await publication.send(b"parent", TIMEOUT_S)
            assert await subscription.recv(TIMEOUT_S) == b"parent"

    anyio.run(main, backend="asyncio")


def _fresh_thread(directory: Path) -> None:
    """The forked thread is in the parent's running loop: use another."""
    failed: list[BaseException] = []

    def target() -> None:
        try:
            _in_child(directory)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_the_batch_of_a_cancelled_request_is_delivered(host: PenstockHost) -> None:
    """The member has claimed the batch when ``asyncio`` cancels the task that requested it."""

    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.consumer_group("cancelled", "aeron:ipc", STREAM) as group,
            await client.add_publication("aeron:ipc", STREAM) as publication,
        ):
            await publication.send(b"one", TIMEOUT_S)
            claimed, may_end = asyncio.Event(), threading.Event()
            loop, claim = asyncio.get_running_loop(), group.sync._claim

            def slowly(limit: int, max_bytes: int) -> GroupBatch | None:
                batch = claim(limit, max_bytes)
                if batch is not None:
                    loop.call_soon_threadsafe(claimed.set)
                    may_end.wait()
                return batch

            group.sync._claim = slowly              # type: ignore[method-assign]
            task = asyncio.ensure_future(group.recv_batch(timeout_s=TIMEOUT_S))
            await claimed.wait()
            task.cancel()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            batch = await group.recv_batch(timeout_s=TIMEOUT_S)
            assert [bytes(message) for message in batch] == [b"one"]
            await batch.commit()

    asyncio.run(test())
