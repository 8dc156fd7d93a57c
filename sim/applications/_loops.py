# SPDX-License-Identifier: Apache-2.0
"""Event loops of simulated applications. The loops wait in virtual time.

An asyncio loop waits in its selector; a trio run asks its clock how long the run may wait. This
module replaces asyncio's selector and trio's clock. When a loop would wait, the replacements let
the simulation run until the loop's next timer or wake-up is due. Then the loop checks its file
descriptors without waiting.
"""

from __future__ import annotations

import contextlib
import selectors
from typing import Any, Final

import trio

from penstock.sim.applications._clients import SPIN_NS
from penstock.sim.applications.app import App, Killed

#: Turns of a loop without a wait, after which virtual time passes.
_GREEDY: Final = 32
#: Turns in which the tasks of a killed application may end.
_LAST_TURNS: Final = 1000


class LoopSelector(selectors.EpollSelector):
    """The selector of an asyncio loop in a simulated application."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app
        self._turns = 0
        self._last_turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See :meth:`selectors.BaseSelector.select`; waits in virtual time."""
        ready = super().select(0)
        if ready:
            return ready
        if self._app.is_killed:     # asyncio.run() cancels the tasks that are left
            self._last_turns += 1
            if self._last_turns >= _LAST_TURNS:
                raise Killed
            return []
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns % _GREEDY == 0:
                self._app.spend(SPIN_NS)
            return super().select(0)
        self._app.hand_over_to_loop(timeout)
        return super().select(0)


class LoopClock(trio.abc.Clock):
    """The clock of a trio run in a simulated application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._turns = 0
        self._last_turns = 0
        self._ending = False

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Virtual time in seconds."""
        self._turns += 1
        if self._turns % (4 * _GREEDY) == 0 and not self._ending:
            self._app.spend(SPIN_NS)
        return self._app.now_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Let the application wait in virtual time until the deadline or a wake-up. Return 0, so
        that trio then checks its file descriptors without waiting in real time.
        """
        left = deadline - self._app.now_ns / 1e9
        if left <= 0 or self._app.is_signalled():
            return 0.0
        try:
            self._app.hand_over_to_loop(left)
        except Killed:
            self._last_turns += 1
            if self._last_turns >= _LAST_TURNS:
                raise
            if not self._ending:
                self._ending = True     # a system task that fails cancels all tasks in order
                with contextlib.suppress(RuntimeError):     # the main task has already ended
                    trio.lowlevel.spawn_system_task(_end)
        return 0.0


async def _end() -> None:
    raise Killed


def run_async(function: Any, backend: str) -> Any:
    """Run a coroutine function in a separate loop. Application's thread."""
    if backend == "trio":
        return trio.run(function)
    import asyncio

    return asyncio.run(function())
