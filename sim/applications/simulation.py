# SPDX-License-Identifier: Apache-2.0
"""A simulated network with daemons on its hosts. Python functions run as applications on the hosts.

The daemons and the client are the product's compiled core; time, network and scheduling are
simulated.  A run depends only on the seed, on the calls of the test and on the functions of the
application.
"""

from __future__ import annotations

import heapq
import inspect
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import attrs

from penstock.client._client import Client
from penstock.core import client as core
from penstock.core.driver_types import NEVER_NS
from penstock.core.errors import DaemonNotRunning
from penstock.sim.applications._clients import CLASSES, SimParking
from penstock.sim.applications._guard import Guard
from penstock.sim.applications._loops import run_async
from penstock.sim.applications.app import App, SimulationError, place_of
from penstock.sim.core import SIM, Link, NetworkStatistics, SimNetwork, SimWorld, Stop
from penstock.sim.scenario import HostScript, host_ip
from penstock.sim.world.host import Host

_S_NS: Final = 10**9
_MS_NS: Final = 10**6
#: Turns of applications at one moment after which they count as livelocked.
_MAX_TURNS: Final = 100_000


def _link(
    loss: float, delay_ms: float, jitter_ms: float, bandwidth_mbit: float, duplicate: float,
    reorder: float,
) -> Link:
    for name, share in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is a share from 0 to 1, not {share}")
    if min(delay_ms, jitter_ms, bandwidth_mbit) < 0:
        raise ValueError("delay_ms, jitter_ms and bandwidth_mbit must not be negative")
    return Link(
        delay_ns=int(delay_ms * _MS_NS), jitter_ns=int(jitter_ms * _MS_NS),
        bandwidth_bytes_per_s=int(bandwidth_mbit * 125_000), loss_ppm=round(loss * 1e6),
        duplicate_ppm=round(duplicate * 1e6), reorder_ppm=round(reorder * 1e6),
        reorder_ns=int(max(delay_ms, 1.0) * _MS_NS) if reorder else 0,
    )


@attrs.frozen
class _Condition:
    """An action of a test that waits until ``holds()`` is true."""

    holds: Callable[[], bool]
    action: Callable[[], object]
    place: str


class Simulation:
    """A simulated network: its hosts, their daemons, and the applications on the hosts. Use a
    simulation in a ``with`` statement; only one simulation can exist at a time.

    :param seed: determines every random loss, delay and id; the same seed gives the same run.
    :param loss: share of datagrams that each link loses, 0 to 1.
    :param delay_ms: one-way delay of each link.
    :param jitter_ms: largest additional delay, drawn for each datagram.
    :param bandwidth_mbit: bandwidth of each link; 0: unlimited.
    :param duplicate: share of datagrams that arrive twice.
    :param reorder: share of datagrams that arrive after later datagrams.
    :param virtual_sleep: let ``time.sleep`` wait in virtual time, instead of reporting the call as
        an error.
    :param hang_s: if a function neither waits nor returns for this number of real seconds, the
        simulation reports the function as an error.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        loss: float = 0.0,
        delay_ms: float = 0.1,
        jitter_ms: float = 0.0,
        bandwidth_mbit: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        virtual_sleep: bool = False,
        hang_s: float = 30.0,
    ) -> None:
        self.now_ns = 0
        self.seed = seed
        self.virtual_sleep = virtual_sleep
        self._hang_s = hang_s
        self._faults: list[SimulationError] = []
        self._rng = random.Random(seed)
        shared = Path("/dev/shm")
        memory = str(shared) if os.access(shared, os.W_OK) else None
        self._parent = Path(tempfile.mkdtemp(prefix="penstock-sim-", dir=memory))
        self._network = SimNetwork(self._rng.randrange(2**64))
        self._native = SimWorld(self._network)
        self._links: list[tuple[str, str, Link]] = [
            ("", "", _link(loss, delay_ms, jitter_ms, bandwidth_mbit, duplicate, reorder))
        ]
        self._hosts: dict[str, Host] = {}
        self._apps: list[App] = []
        self._agenda: list[tuple[int, int, Callable[[], object]]] = []
        self._plans = 0
        self._conditions: list[_Condition] = []
        self._watched: list[tuple[Host, Any, int]] = []
        self._guard = Guard()
        self._guard.install(seed)
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the script ------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual time in seconds since the start."""
        return self.now_ns / _S_NS

    def host(self, name: str, *, ip: str = "", window_bytes: int | None = None) -> str:
        """Add a host with a daemon.  Return its address.

        :param ip: IPv4 address of the host; default 10.0.0.1, 10.0.0.2, ... in the order of the
            calls.
        :param window_bytes: receiver window of the host's daemon.
        :raises ValueError: another host already has the name or the address.
        """
        address = ip or host_ip(len(self._hosts))
        if name in self._hosts or any(host.ip == address for host in self._hosts.values()):
            raise ValueError(f"the name {name!r} or the address {address} belongs to another host")
        host = Host(
            name=name, ip=address, directory=self._parent / str(len(self._hosts)),
            network=self._network, native=self._native,
            rng=random.Random(self._rng.randrange(2**64)),
            script=HostScript(host=len(self._hosts), adopt=True, window_bytes=window_bytes),
        )
        host.now_ns = self.now_ns
        self._hosts[name] = host
        for rule in self._links:
            self._lay(*rule)        # for the links of the new host too
        return address

    def start(
        self,
        function: Callable[..., Any],
        *args: Any,
        host: str = "a",
        name: str = "",
        backend: Literal["asyncio", "trio"] = "asyncio",
        message_us: float = 0.0,
        at_s: float | None = None,
        background: bool = False,
        **kwargs: Any,
    ) -> App:
        """Run a function as a separate application on a host; the host is added if it does not
        exist.

        The function needs no change: inside it, ``penstock.connect()`` and
        ``penstock.open_client()`` connect to the simulated daemon of the host.

        :param backend: the event loop that runs a coroutine function; a plain function may start
            its own event loop.
        :param message_us: virtual microseconds that the application needs for each received
            message: a slow reader.
        :param at_s: start at this virtual time; None: now.
        :param background: if true, :meth:`run` does not wait for the end of the function.
        """
        if host not in self._hosts:
            self.host(host)

        def call() -> Any:
            if not inspect.iscoroutinefunction(function):
                return function(*args, **kwargs)
            app.coroutine = function(*args, **kwargs)

            async def main() -> Any:
                return await app.coroutine

            return run_async(main, backend)

        app = App(
            self, self._hosts[host], name or getattr(function, "__name__", "application"), call,
            message_ns=int(message_us * 1000), background=background,
        )
        if at_s is None:
            app._due_ns = self.now_ns
            self._apps.append(app)
        else:
            app._due_ns = int(at_s * _S_NS)
            self.at(at_s, lambda: self._apps.append(app))
        return app

    def at(self, time_s: float, action: Callable[..., object], *args: Any) -> None:
        """Call ``action(*args)`` at a virtual time."""
        self._plans += 1
        due_ns = max(int(time_s * _S_NS), self.now_ns)
        heapq.heappush(self._agenda, (due_ns, self._plans, lambda: action(*args)))

    def when(
        self, condition: Callable[[], bool], action: Callable[..., object], *args: Any
    ) -> None:
        """Call ``action(*args)`` once, as soon as ``condition()`` is true.

        The simulation checks the condition whenever an application has sent or processed a message,
        and whenever virtual time passes. For example, ``sim.when(lambda: desk.received >= 500,
        sim.kill_daemon, "desk")`` kills a daemon in the middle of a stream.
        """
        place = place_of(inspect.currentframe())
        self._conditions.append(_Condition(condition, lambda: action(*args), place))

    def link(
        self, sender: str = "", receiver: str = "", *, loss: float = 0.0, delay_ms: float = 0.1,
        jitter_ms: float = 0.0, bandwidth_mbit: float = 0.0, duplicate: float = 0.0,
        reorder: float = 0.0,
    ) -> None:
        """Change the properties of the link from the host ``sender`` to the host ``receiver``, for
        all datagrams sent from now on. If ``sender`` or ``receiver`` is omitted, the change applies
        to the links of all hosts in this role."""
        rule = (
            sender, receiver,
            _link(loss, delay_ms, jitter_ms, bandwidth_mbit, duplicate, reorder),
        )
        self._lay(*rule)
        self._links.append(rule)

    def _lay(self, sender: str, receiver: str, link: Link) -> None:
        def number(name: str) -> int:
            return self._host(name).index if name else -1

        self._network.set_link(link, sender=number(sender), receiver=number(receiver))

    def kill(self, app: App) -> None:
        """End an application like SIGKILL."""
        app.kill()
        self._native.touch(app.host.index)

    def pause(self, app: App) -> None:
        """Stop an application like SIGSTOP."""
        app.is_paused = True

    def resume(self, app: App) -> None:
        """Continue a paused application."""
        app.is_paused = False

    def kill_daemon(self, host: str) -> None:
        """End the daemon of a host as by SIGKILL. The applications of the host continue, and the
        daemon's files remain."""
        self._host(host).die()

    def start_daemon(self, host: str) -> None:
        """After :meth:`kill_daemon`, start a new daemon on the host. The new daemon continues the
        streams from the files of the killed daemon.
        """
        found = self._host(host)
        found.adopt()
        for owner, port, fd in self._watched:
            if owner is found and port.state.value == "open":
                found.watch(port, fd)

    def crash(self, host: str) -> None:
        """Make a host fail: its daemon and its applications end at once."""
        found = self._host(host)
        for app in self._apps:
            if app.host is found:
                app.kill()
        found.close()

    def restart(self, host: str) -> None:
        """Restart a crashed host: remove the files of its old daemon, and start a new daemon."""
        found = self._host(host)
        found.wipe()
        found.start()

    def network(self) -> NetworkStatistics:
        """Return the numbers of datagrams that were sent, lost and delivered so far."""
        return self._network.statistics()

    @property
    def trace(self) -> int:
        """A 64-bit hash of all datagrams that were sent so far, and of their times."""
        return self._network.trace_hash()

    # ---- time ------------------------------------------------------------------------------------

    def run(self, timeout_s: float = 60.0) -> None:
        """Run until every application has ended; do not wait for applications in the background.

        Raise the first exception of a function, and report calls that the simulator does not
        support.

        :param timeout_s: virtual seconds; if an application still runs after this time, raise an
            error.
        :raises SimulationError: one has not ended in time, or called something that the simulator
            cannot run; or a condition of :meth:`when` was never true.
        """
        end_ns = self.now_ns + int(timeout_s * _S_NS)
        while any(not app.is_finished and not app.background for app in self._apps) or (
            self._agenda and self._agenda[0][0] < end_ns
        ) or (self._conditions and not all(app.is_finished for app in self._apps)):
            if self.now_ns >= end_ns:
                waiting = [
                    f"{app.name} waits at {app._place}" for app in self._apps
                    if not app.is_finished and not app.background
                ]
                raise SimulationError(
                    f"not ended after {timeout_s:g} virtual s: "
                    + "; ".join(waiting + self._never_met())
                )
            self._advance(end_ns)
        self._meet()
        if self._conditions:
            raise SimulationError(
                "all applications have ended: " + "; ".join(self._never_met())
            )

    def run_for(self, seconds: float) -> None:
        """Let this number of virtual seconds pass, even if all applications end earlier. Raises as
        :meth:`run`.
        """
        end_ns = self.now_ns + int(seconds * _S_NS)
        while self.now_ns < end_ns:
            self._advance(end_ns)
        self._turns()

    def _advance(self, end_ns: int) -> None:
        while self._agenda and self._agenda[0][0] <= self.now_ns:
            heapq.heappop(self._agenda)[2]()
        self._meet()
        self._turns()
        until_ns = min(
            [end_ns, *(app.due_ns for app in self._apps)]
            + [at_ns for at_ns, _, _ in self._agenda[:1]]
        )
        self._native.wait_for_nobody()
        for app in self._apps:
            for handle, ticket in app.waits:
                self._native.wait_for(handle, ticket)
        stop, now_ns = self._native.run(self.now_ns, min(until_ns, NEVER_NS))
        self._native.wait_for_nobody()
        self._set_now(now_ns)
        if stop is Stop.STUCK:
            raise SimulationError("a simulated daemon never finishes its work at one virtual time")
        if stop is Stop.CONTROL:
            for host in self._hosts.values():
                if self._native.wants_control(host.index, self.now_ns):
                    host.control()
                    self._native.hold_control(
                        host.index, self.now_ns + host.script.conductor_ns
                    )

    def _turns(self) -> None:
        for _ in range(_MAX_TURNS):
            ready = [app for app in self._apps if app.is_ready]
            if not ready:
                return
            for app in ready:
                app.turn(self._hang_s)
                if app.host.running:
                    app.host.settle()
                if app.error is not None:
                    raise app.error
                if self._faults:
                    raise self._faults[0]
                self._meet()
        raise SimulationError(
            f"applications have work again and again at {self.now_s} s: "
            + ", ".join(repr(app) for app in ready)
        )

    def _never_met(self) -> list[str]:
        return [
            f"the condition of sim.when() at {condition.place} was never true"
            for condition in self._conditions
        ]

    def is_met(self) -> bool:
        """Whether the condition of at least one action of :meth:`when` is true now."""
        return any(condition.holds() for condition in self._conditions)

    def _meet(self) -> None:
        for condition in self._conditions[:]:
            if condition.holds():
                self._conditions.remove(condition)
                condition.action()

    def _set_now(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for host in self._hosts.values():
            host.now_ns = now_ns

    def _host(self, name: str) -> Host:
        found = self._hosts.get(name)
        if found is None:
            raise ValueError(f"there is no host {name!r}; hosts are: {', '.join(self._hosts)}")
        return found

    # ---- for applications ------------------------------------------------------------------------

    def note(self, fault: SimulationError) -> None:
        """Store the error about an unsupported call. When the application next waits or ends, the
        simulation raises this error in the test, even if the application has caught it.
        """
        self._faults.append(fault)

    def set_clock(self, publication: core.PublicationHandle) -> None:
        """Let a publication use virtual time when it measures how long it has refused offers."""
        self._native.set_clock(publication)

    def connect(self, app: App, name: str, watch: bool, began_s: float, timeout_s: float) -> (
        Client | None
    ):
        """Connect an application to the daemon of its host; return None if the application must try
        again.

        :raises DaemonNotRunning: no daemon runs, and the time-out is over.
        """
        host = app.host
        if not host.running:
            if app.now_ns / _S_NS - began_s >= timeout_s:
                raise DaemonNotRunning(f"no daemon runs on the simulated host {host.name}")
            return None
        port = host.attach(name or app.name)
        if watch:
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            mine = os.dup(fd)
            host.watch(port, mine)
            self._watched.append((host, port, mine))
            port.take_watch(fd)
        client = Client(port, library=SIM)
        client._classes = CLASSES
        client._park = SimParking(client._handle, client._check)
        app.clients.append(client)
        return client

    def close(self) -> None:
        """End all applications and daemons of the simulation, and remove their files.
        Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            for app in self._apps:
                app.kill()
            for app in self._apps:
                for _ in range(_MAX_TURNS):
                    if app.is_finished:
                        break
                    app.turn(self._hang_s)
                app.join()
        finally:
            self._guard.remove()
            for host in self._hosts.values():
                host.close()
            self._native.close()
            self._network.close()
            for _, _, fd in self._watched:
                os.close(fd)
            shutil.rmtree(self._parent, ignore_errors=True)


@attrs.frozen
class Maker:
    """Makes simulations for one test, and closes them after the test."""

    made: list[Simulation] = attrs.field(factory=list)

    def __call__(self, **settings: Any) -> Simulation:
        """Return a new simulation; see :class:`Simulation` for the settings."""
        for simulation in self.made:
            simulation.close()
        simulation = Simulation(**settings)
        self.made.append(simulation)
        return simulation
