# SPDX-License-Identifier: Apache-2.0
"""Run calls that wait for the daemon in worker threads, so that they do not block the event loop of
asyncio or trio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
import sniffio

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


async def away(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Run a call in a worker thread.  The simulator replaces this function."""
    if sniffio.current_async_library() == "asyncio":
        return await _asyncio_away(function, *args)
    return await anyio.to_thread.run_sync(function, *args)


async def _asyncio_away(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Run a call in a worker thread, and wait for its end.

    ``Task.cancel`` of asyncio ends the wait of ``anyio.to_thread`` although the thread goes on. The
    wait is therefore the one of another task; this task raises its cancellation afterwards."""
    call = asyncio.ensure_future(anyio.to_thread.run_sync(function, *args))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not call.done():
            try:
                await asyncio.wait({call})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is None:
        return call.result()
    if not call.cancelled():
        call.exception()                # retrieved: asyncio logs exceptions that are not
    raise cancelled


async def in_thread(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Run a blocking call in a worker thread. If the task is cancelled meanwhile, the cancellation
    takes effect only after the blocking call has ended."""
    return await away(function, *args)


async def made_in_thread(make: Callable[[], _T], close: Callable[[_T], object]) -> _T:
    """Run a blocking call that makes an object. If the cancellation of the task means that the
    caller does not get the object, close the object."""
    made: list[_T] = []

    def kept() -> _T:
        made.append(make())
        return made[0]

    def close_all() -> None:
        for each in made:
            close(each)

    try:
        return await away(kept)
    except anyio.get_cancelled_exc_class():
        await to_the_end(close_all)
        raise


async def to_the_end(function: Callable[[], None]) -> None:
    """Run a blocking call in a worker thread. If the task is cancelled before or during the call,
    the call still runs to its end."""
    with anyio.CancelScope(shield=True):
        await away(function)
