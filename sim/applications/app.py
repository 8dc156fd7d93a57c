# SPDX-License-Identifier: Apache-2.0
"""One application in the simulator: a thread that runs only while the simulation allows this thread
to run.

At each moment exactly one thread runs: either the thread of the simulation, or the thread of one
application. A run therefore depends only on the seed and on the applications. When an application
waits, the simulation's thread continues. Virtual time passes only in the simulation's thread.
"""

from __future__ import annotations

import _thread
import contextlib
import inspect
import os
import select
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from penstock.core import client as core

if TYPE_CHECKING:
    from penstock.client._client import Client
    from penstock.sim.applications.simulation import Simulation
    from penstock.sim.world.host import Host

NEVER_NS: Final = 2**62
#: Longest wait of a loop of events without a look at its own wake-ups.
_SLICE_NS: Final = 250_000_000
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
_UNKNOWN: Final = "an unknown place"
_local = threading.local()


class SimulationError(AssertionError):
    """An application made a call that the simulator does not support, or did not end."""


class Killed(BaseException):
    """Raised in the thread of a killed application, to end this thread. The class is derived from
    BaseException, so that ``except Exception`` in an application does not catch this exception."""


def current() -> App | None:
    """Return the application to which the calling thread belongs; None in every other thread."""
    return getattr(_local, "app", None)


def _own(filename: str) -> bool:
    """Whether a file belongs to the application, and not to penstock or to a library."""
    if filename.startswith("<"):
        return False
    parts = filename.split(os.sep)
    if "penstock" in parts or "site-packages" in parts:
        return False
    folders = [os.path.join(_PACKAGE, name) for name in ("client", "core", "sim", "config")]
    return not any(
        filename.startswith(folder + os.sep) for folder in [*folders, _LIBRARIES[0]]
    )


def place_of(frame: FrameType | None) -> str:
    """Return ``file:line`` of the line that the application's thread executes now: the line in the
    application's own code, not in a library."""
    while frame is not None:
        if _own(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return _UNKNOWN


class App:
    """A running function of an application on a simulated host."""

    def __init__(
        self, simulation: Simulation, host: Host, name: str, call: Callable[[], Any],
        *, message_ns: int, background: bool,
    ) -> None:
        self.name = name
        self.host = host
        self.message_ns = message_ns
        self.background = background
        self.clients: list[Client] = []
        self.coroutine: Any = None      # of a coroutine function
        self.is_finished = False
        self.is_killed = False
        self.is_paused = False
        self.sent = 0
        """Messages that the application's publications have accepted so far."""
        self.received = 0
        """Messages that the application's subscriptions have returned so far."""
        self._simulation = simulation
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._waits: list[tuple[core.ClientHandle, int]] = []
        self._due_ns = 0
        self._place = "its start"
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None

    # ---- for tests -------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the function; None if the function ended without an exception."""
        return self._error

    def result(self) -> Any:
        """Return what the function returned.  Raise what it raised.

        :raises SimulationError: the function has not returned, or was killed.
        """
        if self._error is not None:
            raise self._error
        if self.is_killed:
            raise SimulationError(f"{self.name} was killed")
        if not self.is_finished:
            raise SimulationError(f"{self.name} has not returned: it waits at {self._place}")
        return self._result

    # ---- for the simulation ----------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time in ns since the start of the simulation."""
        return self._simulation.now_ns

    @property
    def simulation(self) -> Simulation:
        return self._simulation

    @property
    def due_ns(self) -> int:
        """Time at which the application continues if no event wakes it earlier."""
        return NEVER_NS if self.is_finished or self.is_paused else self._due_ns

    @property
    def waits(self) -> list[tuple[core.ClientHandle, int]]:
        """Clients that can wake the waiting application, each with its ticket: the value of the
        client's futex word when the wait began. A wake-up of the client changes this word.
        """
        return [] if self.is_finished or self.is_paused else self._waits

    @property
    def is_ready(self) -> bool:
        """Whether the application can continue at the present virtual time."""
        if self.is_finished or (self.is_paused and not self.is_killed):
            return False
        if self.is_killed or self._due_ns <= self.now_ns:
            return True
        return any(core.client_ticket(handle) != ticket for handle, ticket in self._waits)

    def turn(self, hang_s: float) -> None:
        """Let the application's thread run until the application waits or ends. Simulation's
        thread.

        :raises SimulationError: the application did not wait or end within ``hang_s`` real seconds.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        self._go.release()
        if not self._back.acquire(timeout=hang_s):
            stack = sys._current_frames().get(self._thread.ident or 0)
            shown = "".join(traceback.format_stack(stack)) if stack is not None else ""
            self.is_finished = True
            raise SimulationError(
                f"{self.name} has neither waited through penstock nor returned within {hang_s:g} s "
                f"of real time, at {place_of(stack)}: it blocks in a call that the simulator does "
                f"not know, or computes without an end\n{shown}"
            )
        for client in self.clients[:]:
            if client.is_closed:
                self.clients.remove(client)

    def _run(self) -> None:
        _local.app = self
        self._go.acquire()
        try:
            self._result = None if self.is_killed else self._call()
        except Killed:
            pass
        except BaseException as error:      # handed to the test
            if not self.is_killed:
                error.add_note(f"in application {self.name!r} at {self.now_ns / 1e9:.6f} s")
                self._error = error
        finally:
            self.is_finished = True
            _local.app = None
            self._back.release()

    def kill(self) -> None:
        """End the application like SIGKILL. The daemon notices at once that the application has
        ended. The killed function ends: only its ``finally`` blocks and the exits of its ``with``
        blocks still run."""
        if self.is_finished:
            return
        self.is_killed = True
        for client in self.clients:
            client._port.close()
        self._waits = []

    # ---- for the application's thread ------------------------------------------------------------

    def hand_over(
        self, waits: list[tuple[core.ClientHandle, int]], due_ns: int = NEVER_NS
    ) -> None:
        """Wait until a client in ``waits`` is woken (its futex word then differs from its ticket),
        or until the virtual time ``due_ns``. The application's thread calls this method.

        :raises Killed: the application was killed during the wait.
        """
        if not self.is_killed:
            self._waits, self._due_ns = waits, due_ns
            self._place = self._where()
            self._back.release()
            self._go.acquire()
            self._waits = []
        if self.is_killed:
            raise Killed

    def _where(self) -> str:
        """Return where the application waits: in its stack, or in its coroutine."""
        place = place_of(inspect.currentframe())
        awaited: Any = self.coroutine
        while place == _UNKNOWN and getattr(awaited, "cr_frame", None) is not None:
            inner = getattr(awaited, "cr_await", None)
            code = getattr(inner, "cr_code", None)
            if code is None or not _own(code.co_filename):
                return place_of(awaited.cr_frame)
            awaited = inner
        return place

    def spend(self, ns: int) -> None:
        """Let ``ns`` nanoseconds of virtual time pass, as if the application had computed for this
        time.
        """
        if ns > 0 and not self.is_killed:
            self.hand_over([], self.now_ns + ns)

    def notice(self) -> None:
        """If a condition of :meth:`Simulation.when` is true now, interrupt the application, so that
        the simulation can call the action."""
        if not self.is_killed and self._simulation.is_met():
            self.hand_over([], self.now_ns)

    def hand_over_to_loop(self, timeout_s: float | None) -> None:
        """Wait until one of this application's clients is woken, or until the time-out. The
        application's event loop calls this method."""
        due_ns = self.now_ns + _SLICE_NS     # other threads' calls into the loop wake no client
        if timeout_s is not None and timeout_s * 1e9 < _SLICE_NS:
            due_ns = self.now_ns + max(1, int(timeout_s * 1e9))
        waits = []
        for client in self.clients:
            if not client.is_closed:
                handle, _ = client._watched()
                waits.append((handle, core.client_ticket(handle)))
        self.hand_over(waits, due_ns)

    def is_signalled(self) -> bool:
        """Whether a client of this application was woken: the eventfd of an open client is
        readable."""
        fds = [client._watched()[1] for client in self.clients if not client.is_closed]
        poller = select.poll()
        for fd in fds:
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        return bool(poller.poll(0))

    def report(self, what: str, remedy: str) -> SimulationError:
        """Record a call that the simulator does not support, and return the error for it."""
        place = place_of(inspect.currentframe())
        error = SimulationError(
            f"{self.name} calls {what} at {place}, which does not exist in virtual time: {remedy}"
        )
        self._simulation.note(error)
        return error

    def join(self) -> None:
        """Join the application's thread, which has finished. Simulation's thread."""
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):
                self._thread.join(timeout=1.0)

    def __repr__(self) -> str:
        state = "killed" if self.is_killed else "finished" if self.is_finished else "running"
        return f"<App {self.name!r} on {self.host.name}, {state}, at {self._place}>"
