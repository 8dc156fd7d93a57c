# SPDX-License-Identifier: Apache-2.0
"""Run exchanges with the daemon in worker threads of asyncio or trio."""

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
    """Run a blocking call in a worker thread. A cancelled task still waits until the blocking call
    has ended."""
    return await away(function, *args)


async def to_the_end(function: Callable[[], None]) -> None:
    """Run a blocking call in a worker thread, even if the task is being cancelled."""
    with anyio.CancelScope(shield=True):
        await away(function)
