# SPDX-License-Identifier: Apache-2.0
"""Let tasks of an event loop (asyncio or trio) wait for the daemon.

A waiting task reads a ticket (the count of the client's events so far), checks its condition, and
calls ``client_watch`` with the ticket. ``client_watch`` requests the data plane to write to the
client's eventfd at the next event. The event loop waits for the eventfd together with its other
descriptors, so a client needs no thread. A write to the eventfd wakes all waiting tasks of the
client, and each task checks its condition again. If the client's last waits were short, a task does
not sleep at once: it first polls its condition for at most 150 us. Polling for 150 us costs less
than one iteration of the event loop. After 16 waits in succession without a sleep, the task lets
the loop's other tasks run. In addition, each waiting task checks its condition every 250 ms, as a
waiting thread does.

A condition can have an effect, such as a message that was sent. A task therefore lets other tasks
run, and can be cancelled, only before its condition is true. After that the call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import sniffio
from anyio.lowlevel import checkpoint

from penstock.client._parking import SLICE_NS
from penstock.core import client as core

if TYPE_CHECKING:
    import trio

    from penstock.client._client import Client

_SLICE_S: Final = SLICE_NS / 1e9
#: A shorter wait ends only by time, without a wake-up.
_SHORT_S: Final = 1e-3
#: Calls in a row that may return at once before other tasks of the loop run.
_GREEDY: Final = 16


class _Waker(Protocol):
    async def wait(self, seconds: float) -> None:
        """Sleep until the data plane writes to the client's eventfd, but at most ``seconds``."""

    async def breathe(self) -> None:
        """Check for a cancellation, and let other tasks run from time to time."""

    def call_soon(self, function: Callable[[], object]) -> None:
        """Schedule a function to run in the event loop. Any thread may call this method. After the
        event loop has ended, :meth:`call_soon` does nothing."""

    def renew(self) -> None:
        """Watch another descriptor.  In the loop."""

    def fire(self) -> None:
        """End all waits.  In the loop."""

    def stop(self) -> None:
        """Release the descriptor. In the loop."""


class AsyncParking:
    """Lets the tasks that use one client wait for an event."""

    def __init__(self, client: Client) -> None:
        """Create an :class:`AsyncParking` in the event loop in which its tasks will run."""
        self._client = client
        self._waited_ns = -1    # duration of the last wait, until the core has it
        backend = sniffio.current_async_library()
        self._waker: _Waker = _AsyncioWaker(client) if backend == "asyncio" else _TrioWaker(client)
        client._on_watch_renewed = lambda: self._waker.call_soon(self._waker.renew)

    async def until(
        self, happened: Callable[[], bool], timeout_s: float | None,
        rest_ns: Callable[[], int] = lambda: 0,
    ) -> bool:
        """Return True as soon as ``happened()`` is true, or False after ``timeout_s`` seconds
        (None: no limit). ``rest_ns()`` returns the remaining pause of a throttled publisher, in ns.
        During this pause, the call does not check ``happened()``. If the task is cancelled,
        ``happened()`` was not true."""
        await self._waker.breathe()
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            handle = self._client._handle
            ticket = core.client_ticket(handle)
            if rest_ns() == 0 and happened():
                return True
            self._client._check()
            began = time.monotonic()
            left = deadline - began
            if left <= 0:
                await checkpoint()
                return False
            if rest := rest_ns():
                left = min(left, rest / 1e9)
            elif left > _SHORT_S and core.client_await(handle, ticket):
                continue
            waited_ns, self._waited_ns = self._waited_ns, -1
            if not core.client_watch(handle, ticket, waited_ns):
                await self._waker.wait(left)
                self._waited_ns = int((time.monotonic() - began) * 1e9)

    async def breathe(self) -> None:
        """Check for a cancellation, and let other tasks run from time to time."""
        await self._waker.breathe()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run in the loop, soon.  Any thread."""
        self._waker.call_soon(function)

    def wake(self) -> None:
        """Wake all waiting tasks, so that each checks its condition.  In the loop."""
        self._waker.fire()

    def close(self) -> None:
        """End all waits permanently.  In the loop."""
        self._client._on_watch_renewed = None
        self._waker.fire()
        self._waker.stop()


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(fd)


class _AsyncioWaker:
    """The eventfd is a reader of the loop; a wait is a future."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        self._slice: asyncio.TimerHandle | None = None
        self._greed = 0
        self._watch()

    def _watch(self) -> None:
        self._handle, self._fd = self._client._watched()    # the handle owns the descriptor
        self._loop.add_reader(self._fd, self._on_ready)

    def _on_ready(self) -> None:
        _drain(self._fd)
        self.fire()

    def _on_slice(self) -> None:
        self._slice = None
        self.fire()

    def fire(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _end(waiter)

    async def wait(self, seconds: float) -> None:
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        self._greed = 0
        if self._slice is None:
            self._slice = self._loop.call_later(_SLICE_S, self._on_slice)
        timer = self._loop.call_later(seconds, _end, waiter) if seconds < _SLICE_S else None
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()

    async def breathe(self) -> None:
        self._greed += 1
        if self._greed >= _GREEDY:
            self._greed = 0
            await asyncio.sleep(0)

    def call_soon(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):     # the loop is closed
            self._loop.call_soon_threadsafe(function)

    def renew(self) -> None:
        self._loop.remove_reader(self._fd)
        self._watch()
        self.fire()

    def stop(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._slice is not None:
            self._slice.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _TrioWaker:
    """A system task waits for the eventfd; a wait is an event."""

    def __init__(self, client: Client) -> None:
        import trio

        self._trio = trio
        self._client = client
        self._token = trio.lowlevel.current_trio_token()
        self._waiters: set[trio.Event] = set()
        self._scope = trio.CancelScope()
        self._slice = trio.CancelScope()
        self._handle, self._fd = client._watched()
        trio.lowlevel.spawn_system_task(self._run, name="penstock eventfd")

    async def _run(self) -> None:
        trio = self._trio
        with self._scope:
            while True:
                with trio.CancelScope() as self._slice:
                    if self._waiters:
                        self._slice.deadline = trio.current_time() + _SLICE_S
                    await trio.lowlevel.wait_readable(self._fd)
                _drain(self._fd)
                self.fire()

    def fire(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.set()

    async def wait(self, seconds: float) -> None:
        trio = self._trio
        waiter = trio.Event()
        self._waiters.add(waiter)
        if self._slice.deadline == math.inf:
            self._slice.deadline = trio.current_time() + _SLICE_S
        try:
            if seconds == math.inf:
                await waiter.wait()
            else:
                with trio.move_on_after(seconds):
                    await waiter.wait()
        finally:
            self._waiters.discard(waiter)

    async def breathe(self) -> None:
        await self._trio.lowlevel.checkpoint()

    def call_soon(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(self._trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def renew(self) -> None:
        self._handle, self._fd = self._client._watched()
        self._slice.cancel()        # the next turn waits for the other descriptor
        self.fire()

    def stop(self) -> None:
        self._scope.cancel()
