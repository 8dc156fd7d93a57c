# SPDX-License-Identifier: Apache-2.0
"""Run calls that wait for the daemon in worker threads, so that they do not block the event loop of
asyncio or trio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


async def away(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Run a call in a worker thread.  The simulator replaces this function."""
    return await anyio.to_thread.run_sync(function, *args)


async def in_thread(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Run a blocking call in a worker thread. If the task is cancelled meanwhile, the cancellation
    takes effect only after the blocking call has ended."""
    return await away(function, *args)


async def to_the_end(function: Callable[[], None]) -> None:
    """Run a blocking call in a worker thread. If the task is cancelled before or during the call,
    the call still runs to its end."""
    with anyio.CancelScope(shield=True):
        await away(function)
