# SPDX-License-Identifier: Apache-2.0
"""Replace functions of Python, trio and penstock, such as ``time.time``, while a simulation exists.
In the threads of simulated applications, clocks show virtual time, and penstock connects to the
simulated daemon. Calls that the simulator does not support are reported.

Other threads notice nothing. A module may hold its own reference to such a function (``from time
import sleep``); the guard replaces this reference too. When the simulation ends, the guard restores
all names.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from penstock.client import _async_threads
from penstock.client._connect import Attempt
from penstock.sim.applications._loops import LoopClock, LoopSelector
from penstock.sim.applications.app import current

if TYPE_CHECKING:
    from penstock.client._client import Client

#: Modules that keep the names they took from ``time``.
_KEEP: Final = ("threading", "queue", "pytest", "_pytest", "penstock.sim", "concurrent")
_EPOCH_NS: Final = 1_700_000_000 * 10**9
_PATIENCE: Final = (
    "wait through the client (recv(timeout_s), wait(), messages(timeout_s)), or with asyncio.sleep "
    "or trio.sleep"
)
_ONE_THREAD: Final = (
    "start each function with Simulation.start() as an application of its own, or use tasks of "
    "asyncio or trio"
)
_NO_SOCKETS: Final = (
    "a simulated host has only the streams of penstock; pass a fake of that service"
)
#: Audit events of calls that leave the simulation, and what to do instead.
_EVENTS: Final = {
    "os.fork": ("os.fork", _ONE_THREAD),
    "os.posix_spawn": ("os.posix_spawn", _ONE_THREAD),
    "subprocess.Popen": ("a new process", _ONE_THREAD),
    "socket.getaddrinfo": ("socket.getaddrinfo", _NO_SOCKETS),
    "socket.connect": ("socket.connect", _NO_SOCKETS),
    "socket.bind": ("socket.bind", _NO_SOCKETS),
}


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        app = current()
        if app is not None and not app.is_killed:
            raise app.report(*_EVENTS[event])
    elif event == "socket.__new__" and args[1] != socket.AF_UNIX:
        app = current()
        if app is not None and not app.is_killed:
            raise app.report("socket.socket", _NO_SOCKETS)


class _Audit:
    """Python keeps an audit hook until the process ends, so one is added at most."""

    is_added = False

    @classmethod
    def add(cls) -> None:
        if not cls.is_added:
            cls.is_added = True
            sys.addaudithook(_audit)


def _clock(real: Callable[[], Any], virtual: Callable[[int], Any]) -> Callable[[], Any]:
    def read() -> Any:
        app = current()
        return real() if app is None else virtual(app.now_ns)

    return read


def _sleeper(real: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        app = current()
        if app is None:
            return real(seconds)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if app.simulation.virtual_sleep or caller.startswith("penstock."):
            return app.spend(int(seconds * 1e9))
        raise app.report(f"time.sleep({seconds:g})", f"{_PATIENCE}; or use virtual_sleep=True")

    return sleep


def _condition_wait(real: Callable[..., bool]) -> Callable[..., bool]:
    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        app = current()
        if app is not None and not app.is_killed:
            raise app.report("threading.Condition.wait (also in Event and Queue)", _PATIENCE)
        return real(self, timeout)

    return wait


def _thread_start(real: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def start(self: threading.Thread) -> None:
        app = current()
        if app is not None and not app.is_killed:
            raise app.report("threading.Thread.start", _ONE_THREAD)
        real(self)

    return start


def _once(real: Callable[[Attempt], Client | None]) -> Callable[[Attempt], Client | None]:
    def once(self: Attempt) -> Client | None:
        app = current()
        if app is None:
            return real(self)
        return app.simulation.connect(
            app, self._name, self._watch, self._began, self._timeout_s
        )

    return once


def _away(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def away(function: Callable[..., Any], *args: Any) -> Any:
        if current() is None:
            return await real(function, *args)
        return function(*args)      # an exchange with a simulated daemon takes no time

    return away


def _trio_run(real: Callable[..., Any]) -> Callable[..., Any]:
    def run(function: Any, *args: Any, clock: Any = None, **kwargs: Any) -> Any:
        app = current()
        if app is not None and clock is None:
            clock = LoopClock(app)
        return real(function, *args, clock=clock, **kwargs)

    return run


def _selector(real: type[selectors.BaseSelector]) -> Callable[[], selectors.BaseSelector]:
    def make() -> selectors.BaseSelector:
        app = current()
        return real() if app is None else LoopSelector(app)

    return make


class Guard:
    """Replaces functions of Python, trio and penstock for the time of a simulation, and restores
    them afterwards.
    """

    def __init__(self) -> None:
        self._restore: list[tuple[Any, str, Any]] = []

    def install(self, seed: int) -> None:
        """Replace the guarded functions in every loaded module that has imported them. Trio
        shuffles tasks with a random generator; also replace this generator, by one with a fixed
        seed.
        """
        _Audit.add()
        replaced: dict[int, tuple[Any, Any]] = {}
        for name, virtual in (
            ("time", lambda ns: (_EPOCH_NS + ns) / 1e9),
            ("time_ns", lambda ns: _EPOCH_NS + ns),
            ("monotonic", lambda ns: ns / 1e9),
            ("monotonic_ns", lambda ns: ns),
            ("perf_counter", lambda ns: ns / 1e9),
            ("perf_counter_ns", lambda ns: ns),
        ):
            real = getattr(time, name)
            replaced[id(real)] = (real, _clock(real, virtual))
        replaced[id(time.sleep)] = (time.sleep, _sleeper(time.sleep))
        replaced[id(trio.run)] = (trio.run, _trio_run(trio.run))
        for name, module in list(sys.modules.items()):
            if name.startswith(_KEEP):
                continue
            with contextlib.suppress(TypeError, RuntimeError):
                for attribute, value in list(vars(module).items()):
                    found = replaced.get(id(value))
                    if found is not None and found[0] is value:
                        self._set(module, attribute, found[1])
        self._set(selectors, "DefaultSelector", _selector(selectors.DefaultSelector))
        self._set(threading.Condition, "wait", _condition_wait(threading.Condition.wait))
        self._set(threading.Thread, "start", _thread_start(threading.Thread.start))
        self._set(Attempt, "once", _once(Attempt.once))
        self._set(_async_threads, "away", _away(_async_threads.away))

        scheduler = sys.modules["trio._core._run"]
        self._set(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        self._set(scheduler, "_r", random.Random(seed))

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._restore.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def remove(self) -> None:
        """Put everything back."""
        while self._restore:
            setattr(*self._restore.pop())
