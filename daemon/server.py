# SPDX-License-Identifier: Apache-2.0
"""The daemon's server: a trio program that gives the conductor its sockets, clocks and threads.

One nursery owns every task.  Only the trio thread uses the conductor, the executor and the native
driver. Worker threads run slow actions (resolving names, large files, users' classes), and pass the
results to the trio thread.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import attrs
import trio

from penstock.config.protocol.control import (
    DaemonStopping,
    Failure,
    GetStatus,
    LeaseGrant,
    LeaseRequest,
    Message,
    Status,
)
from penstock.config.settings.models import DaemonConfig
from penstock.core import admin
from penstock.core.driver import Driver
from penstock.core.driver_types import (
    Address,
    Agent,
    CncParams,
    DriverState,
    SharedParams,
)
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.daemon.addressing import LocalInterface
from penstock.daemon.conductor import Conductor, Operation
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.congestion import RunCongestion
from penstock.daemon.control_socket import ControlSocket
from penstock.daemon.directory import ClaimedDirectory
from penstock.daemon.event_pump import EventPump
from penstock.daemon.executor import Executor, list_interfaces, resolve_name
from penstock.daemon.groups.service import GroupService
from penstock.daemon.identity import new_identity, version, version_number
from penstock.daemon.leases import LeaseSocket
from penstock.daemon.limited_log import LimitedLog
from penstock.daemon.notify import Notifier
from penstock.daemon.observe import status
from penstock.daemon.observe.metrics_socket import open_listener, serve_on_demand
from penstock.daemon.observe.reader import StatusReader, encoded_status
from penstock.daemon.observe.trace import TraceFile
from penstock.daemon.processes import process_started
from penstock.daemon.restart.adoption import adopt, sweep
from penstock.daemon.restart.ending import Ending, Signals
from penstock.daemon.restart.journal import Journal
from penstock.daemon.settings import driver_params_from, net_from, settings_from
from penstock.daemon.strategies import MAX_ABANDONED
from penstock.daemon.watches import Watches

_LOG = logging.getLogger("penstock.daemon")
_TICK_NS: Final = 250_000_000
_SECOND_NS: Final = 10**9
_TOKEN_BYTES: Final = 16
_STRATEGIES_AT_ONCE: Final = 8          # made at once, those that never return included
_MAKING_S: Final = 5.0                  # a strategy in Python has this long to be imported and made
_SAMPLE_SHARE: Final = 20                # samples take a twentieth of the time at most
_CNC_REFUSAL: Final = "penstock serves its own clients only: use the penstock client library"


class Server:
    """Everything of one running daemon."""

    def __init__(
        self, config: DaemonConfig, directory: ClaimedDirectory, last: contextlib.ExitStack
    ) -> None:
        """The caller runs the callbacks in ``last`` after it has released the directory."""
        self._config = config
        self._last = last
        self._directory = directory
        self._identity = new_identity()
        self._notifier = Notifier()
        self._warnings = LimitedLog(_LOG)
        self._tokens: dict[bytes, int] = {}
        self._client_of: dict[bytes, int] = {}          # by ZeroMQ identity
        self._identity_of: dict[int, bytes] = {}
        self._lease_of: dict[int, int] = {}             # connection id -> client id
        self._watching: set[int] = set()                # connections that asked for an eventfd
        self._stopping = False
        self._cycles: dict[Agent, int] = {}
        self._healthy = True
        self._journal = Journal(
            directory.path, file_mode=config.directory.file_mode, on_failure=_LOG.error
        )
        self._open_files()
        self._watches = Watches(self._shared)
        self._slow: trio.Nursery | None = None
        self._nap = trio.CancelScope()                  # housekeeping's sleep
        self._nap_until_ns = 0
        self._resolver_limit = trio.CapacityLimiter(8)
        self._file_limit = trio.CapacityLimiter(2)
        self._making_limit = trio.CapacityLimiter(_STRATEGIES_AT_ONCE)
        self._strategy_limit = trio.CapacityLimiter(
            config.limits.publications + config.limits.images + MAX_ABANDONED
        )

    # ---- start -----------------------------------------------------------------------------------

    def _open_files(self) -> None:
        config, path = self._config, str(self._directory.path)
        timeouts = config.timeouts
        adopted = adopt(self._directory.path)
        self._directory.wipe(keep_streams=adopted is not None)
        if adopted is None:
            self._cnc = admin.Cnc.create(self._cnc_params())
            self._shared = admin.Shared.create(self._shared_params())
        else:
            self._directory.owed = "what a dead daemon left"
            self._identity = attrs.evolve(self._identity, daemon_id=adopted.daemon_id)
            self._cnc, self._shared = adopted.cnc, adopted.shared
            self._cnc.adopt(pid=os.getpid(), start_ms=self._identity.start_ms)
            self._shared.adopt(self._shared_params())
        self._adopted = adopted
        identity = self._identity
        self._driver = Driver(
            driver_params_from(config, identity), net=net_from(config), cnc=self._cnc,
            shared=self._shared,
        )
        budget = config.storage.budget_bytes
        if not budget:
            free = admin.free_bytes(path) + self._directory.log_bytes()
            budget = int(free * config.storage.budget_percent / 100)
        self._shared.set_storage(budget_bytes=budget, used_bytes=0)
        settings = settings_from(
            config, directory=path, budget_bytes=budget,
            receiver_id_base=identity.receiver_id_base,
        )
        self._conductor = Conductor(
            attrs.evolve(
                settings, journal=True, daemon_id=identity.daemon_id,
                daemon_epoch=identity.epoch, host=socket.gethostname(),
            ),
            rng=random.Random(identity.seed),
            next_id=self._cnc.next_id,
        )
        self._executor = Executor(
            driver=self._driver, cnc=self._cnc, shared=self._shared, port=self
        )
        self._facts = status.DaemonFacts(
            version=version(), pid=os.getpid(), directory=path, daemon_id=identity.daemon_id,
            epoch=identity.epoch, threading=config.threading, start_ns=identity.start_ns,
        )
        self._reader = StatusReader(
            self._facts, self._conductor, self._driver, self._cnc, self._shared,
            strategies=self._executor.strategies, logs=self._executor.logs,
            malformed=lambda: self._control.malformed,
        )
        if timeouts.image_liveness_timeout_ns < timeouts.idle_heartbeat_interval_ns * 2:
            _LOG.warning("timeouts: idle images may time out: raise image_liveness_timeout_ns")

    def _cnc_params(self) -> CncParams:
        config = self._config
        return CncParams(
            directory=str(self._directory.path),
            client_liveness_timeout_ns=10 * _SECOND_NS,
            start_ms=self._identity.start_ms,
            pid=os.getpid(),
            counter_values_bytes=config.storage.counter_values_bytes,
            error_log_bytes=config.storage.error_log_bytes,
            file_mode=config.directory.file_mode,
            software_version=version_number(version()),
        )

    def _shared_params(self) -> SharedParams:
        limits, identity = self._config.limits, self._identity
        return SharedParams(
            directory=str(self._directory.path),
            clients=limits.clients,
            publications=limits.publications,
            images=limits.images,
            subscribers=limits.subscribers,
            groups=limits.groups,
            file_mode=self._config.directory.file_mode,
            daemon_id=identity.daemon_id,
            daemon_epoch=identity.epoch,
            receiver_id_base=identity.receiver_id_base,
            pid=os.getpid(),
            start_ms=identity.start_ms,
        )

    def _adopt(self) -> None:
        """Goes on where a dead daemon stood, before any client is heard.  Until all of it is made
        again its journal stays: a second death loses nothing."""
        self._journal.record("daemon", (0,), {"daemon_id": self._identity.daemon_id})
        found = self._adopted
        if found is not None:
            now_ns = time.monotonic_ns()
            self._perform(self._conductor.adopt(found.records, dead=found.dead, now_ns=now_ns))
            sweep(self._directory.path, self._cnc, self._shared, self._conductor)
            snapshot = self._conductor.snapshot()
            _LOG.info(
                "adopted %d clients, %d publications, %d images", len(snapshot.clients),
                len(snapshot.publications), len(snapshot.images),
            )
        self._journal.install()
        self._directory.owed = "what a daemon that failed left"

    async def run(self, signals: Signals) -> None:
        """Serve clients until one of ``signals`` or a request to drain arrives."""
        metrics = self._open_metrics()
        self._trace = self._open_trace()
        self._control = ControlSocket(self._directory, self)
        self._trio = trio.lowlevel.current_trio_token()
        self._groups = GroupService(
            self._directory, self._config.control_tcp, request=self._request,
            floor=self._conductor.floor, failed=self._on_service_failure,
        )
        self._ending = self._make_ending()
        self._leases = LeaseSocket(
            self._directory, on_request=self._on_lease_request, on_lost=self._on_lease_lost,
            on_drain=self._ending.on_drain,
        )
        self._start_driver()
        self._adopt()
        self._shared.set_state(DriverState.RUNNING)
        self._cnc.heartbeat(self.epoch_ms())
        try:
            async with trio.open_nursery() as nursery:
                self._slow = nursery
                nursery.start_soon(self._control.run)
                nursery.start_soon(self._leases.run)
                nursery.start_soon(self._watch_events)
                nursery.start_soon(self._housekeeping)
                if metrics is not None:
                    nursery.start_soon(metrics)
                if self._trace is not None:
                    nursery.start_soon(self._sample, self._trace)
                self._groups.start()
                nursery.start_soon(self._ending.watch_signals, signals, self._config.stop)
                self._announce()
                await self._end()
                nursery.cancel_scope.cancel()
        finally:
            self._stopping = True
            self._leases.close()
            self._groups.close()
            self._control.close()
            if self._trace is not None:
                self._trace.close()

    def _start_driver(self) -> None:
        try:
            self._driver.start()
        except PenstockError as error:
            raise ConfigurationError(
                f"agents: {error}; sender_cpu and receiver_cpu name CPUs that this process may use"
            ) from error

    def _announce(self) -> None:
        self._notifier.send("READY=1", f"STATUS=serving {self._directory.path}")
        print(
            f"penstock {version()} ready in {self._directory.path} "
            f"(pid {os.getpid()}, {self._config.threading})",
            flush=True,
        )

    def _make_ending(self) -> Ending:
        def unsent_bytes(publication_id: int) -> int:
            live = self._driver.publication_status(publication_id)
            return live.producer_position - live.consumer_position

        def lose_client(client_id: int) -> None:
            self._perform(self._conductor.on_lease_lost(client_id, time.monotonic_ns()))

        return Ending(
            snapshot=self._conductor.snapshot, notify_clients=self._say_goodbye,
            lose_client=lose_client, unsent_bytes=unsent_bytes, last=self._last,
        )

    def _say_goodbye(self, notice: DaemonStopping) -> None:
        self._notifier.send("STOPPING=1")
        self._shared.set_state(DriverState.STOPPED)
        for identity in self._identity_of.values():
            self._control.send(identity, notice)

    async def _end(self) -> None:
        """Returns at the end of the daemon's work; its tasks are cancelled next."""
        owed = await self._ending.run(self._leases)
        if owed and not self._journal.settle():
            _LOG.error("%s: no room for the journal, so no daemon can adopt these streams: %s",
                       self._directory.path, owed)
            owed = ""
        self._directory.owed = owed
        if owed:
            _LOG.warning(
                "%s stays for a new daemon: %s: start a daemon there, or remove it with 'penstock "
                "drain --discard --dir %s'", self._directory.path, owed, self._directory.path,
            )
        self._notify("stopping", {"kept": owed})
        self._stopping = True

    def close(self) -> None:
        """End the threads and unmap the files; the caller must then release the directory."""
        self._driver.close()
        self._shared.set_state(DriverState.STOPPED)
        self._cnc.heartbeat(-1)
        self._shared.close()
        self._watches.close()
        self._cnc.close()
        self._journal.close()

    # ---- tasks -----------------------------------------------------------------------------------

    async def _watch_events(self) -> None:
        """News of the data plane, in turns."""
        fd = self._driver.event_fd()
        pump = EventPump(
            self._driver.poll_event,
            lambda event: self._perform(self._conductor.on_event(event, time.monotonic_ns())),
        )
        while True:
            await trio.lowlevel.wait_readable(fd)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(fd)
            while pump.turn():
                await trio.lowlevel.checkpoint()

    async def _housekeeping(self) -> None:
        """Timers when they are due; CnC commands each tick; heartbeat and watchdog each second."""
        next_second_ns = 0
        while True:
            now_ns = time.monotonic_ns()
            if self._conductor.next_deadline_ns() <= now_ns:
                self._perform(self._conductor.on_tick(now_ns))
            self._cnc.answer_commands(_CNC_REFUSAL)
            if now_ns >= next_second_ns:
                next_second_ns = now_ns + _SECOND_NS
                self._cnc.heartbeat(self.epoch_ms())
                self._feed_watchdog()
            self._nap_until_ns = time.monotonic_ns() + _TICK_NS
            with trio.CancelScope() as self._nap:
                self._shorten_nap()
                self._nap.deadline = min(self._nap.deadline, trio.current_time() + _TICK_NS / 1e9)
                await trio.sleep_forever()

    def _shorten_nap(self) -> None:
        """A deadline that comes before the next tick is kept."""
        due_ns = self._conductor.next_deadline_ns()
        if due_ns < self._nap_until_ns:
            self._nap_until_ns = due_ns
            left_ns = max(0, due_ns - time.monotonic_ns())
            self._nap.deadline = trio.current_time() + left_ns / 1e9

    def _feed_watchdog(self) -> None:
        """A parked agent is woken for it: standing still and having nothing to do differ."""
        cycles = {agent: self._driver.duty_cycles(agent) for agent in Agent}
        self._healthy = all(cycles[agent] != self._cycles.get(agent) for agent in Agent)
        self._cycles = cycles
        self._driver.wake()
        if self._healthy and self._notifier.watchdog:
            self._notifier.send("WATCHDOG=1")

    def _open_metrics(self) -> Callable[[], Awaitable[None]] | None:
        """Binds the address of the metrics; what serves them, None without."""
        metrics = self._config.metrics
        if not metrics.listen:
            return None
        listener = open_listener(
            metrics.listen, directory=self._directory.path,
            file_mode=self._config.directory.file_mode,
        )
        return partial(serve_on_demand, listener, self._cnc, self._reader, lambda: self._healthy)

    # ---- the trace ----

    def _open_trace(self) -> TraceFile | None:
        config = self._config.trace
        if not config.file:
            return None
        trace = TraceFile.open(
            config.file, directory=self._directory.path, host=socket.gethostname(),
            file_bytes=config.file_bytes,
        )
        trace.put("started", attrs.asdict(self._facts))
        return trace

    def _notify(self, name: str, fields: dict[str, Any]) -> None:
        """To the event feed and the trace."""
        self._control.publish(name, fields)
        if self._trace is not None:
            self._trace.put(name, fields)

    async def _sample(self, trace: TraceFile) -> None:
        while True:
            now_ns = time.monotonic_ns()
            fields = await self._reader.sample(now_ns)
            weight = 1 + len(fields["publications"]) + len(fields["images"])
            if not self._stopping:      # a worker's result comes before the cancellation
                trace.put("sample", fields, weight=weight)
            wait_ns = (time.monotonic_ns() - now_ns) * _SAMPLE_SHARE
            await trio.sleep(max(self._config.trace.sample_interval_ns, wait_ns) / 1e9)

    # ---- operations ------------------------------------------------------------------------------

    def _perform(self, operations: Iterable[Operation]) -> None:
        """Perform operations, and the further operations that follow from their results."""
        queue = deque(operations)
        while queue:
            operation = queue.popleft()
            if operation.operation_id and Executor.is_slow(operation.action):
                assert self._slow is not None
                self._slow.start_soon(self._perform_slowly, operation)
                continue
            outcome = self._executor.perform(operation.action)
            if operation.operation_id:
                now_ns = time.monotonic_ns()
                queue.extend(self._conductor.on_result(operation.operation_id, outcome, now_ns))
            elif outcome.error is not None:
                self.warn(f"{type(operation.action).__name__}: {outcome.error.message}")
        self._shorten_nap()

    async def _perform_slowly(self, operation: Operation) -> None:
        """In a thread.  One that runs code that is not ours, or asks others, is left behind when
        the daemon stops, or when its time is over."""
        outcome = a.Outcome()
        match operation.action:
            case a.ResolveName():
                limiter, abandon, patience_s = self._resolver_limit, True, math.inf
            case a.MakeStrategy(kind=a.StrategyKind(value=key), name=name):
                limiter, abandon, patience_s = self._making_limit, True, _MAKING_S
                outcome = a.Outcome(error=a.ActionError(
                    code="not_supported",
                    message=f"{key}={name}: not made within {_MAKING_S:.0f} s; importing its "
                    "module or its constructor takes that long",
                ))
            case a.RunStrategy() | RunCongestion():
                limiter, abandon, patience_s = self._strategy_limit, True, math.inf
            case _:
                limiter, abandon, patience_s = self._file_limit, False, math.inf
        with trio.move_on_after(patience_s):
            outcome = await trio.to_thread.run_sync(
                self._executor.perform_slow, operation.action,
                limiter=limiter, abandon_on_cancel=abandon,
            )
        now_ns = time.monotonic_ns()
        self._perform(self._conductor.on_result(operation.operation_id, outcome, now_ns))

    # ---- leases ----------------------------------------------------------------------------------

    def _on_lease_request(
        self, connection_id: int, request: LeaseRequest, pid: int, uid: int
    ) -> None:
        if request.watch:
            self._watching.add(connection_id)
        self._perform(
            self._conductor.on_lease(
                connection_id, request, pid=pid, uid=uid, now_ns=time.monotonic_ns(),
                token=secrets.token_bytes(_TOKEN_BYTES), started=process_started(pid),
            )
        )

    def _on_lease_lost(self, connection_id: int) -> None:
        self._watching.discard(connection_id)
        client_id = self._lease_of.pop(connection_id, None)
        if client_id is not None and not self._stopping:
            self._perform(self._conductor.on_lease_lost(client_id, time.monotonic_ns()))

    # ---- the control socket's receiver -----------------------------------------------------------

    def on_hello(self, identity: bytes, token: bytes) -> bool:
        client_id = self._tokens.get(token)
        if client_id is None:
            return False
        previous = self._identity_of.get(client_id)
        if previous is not None:
            self._client_of.pop(previous, None)
        self._client_of[identity] = client_id
        self._identity_of[client_id] = identity
        return True

    def on_request(self, identity: bytes, correlation_id: int, message: Message) -> bool:
        client_id = self._client_of.get(identity)
        if client_id is None:
            return False
        self._perform(
            self._conductor.on_command(client_id, correlation_id, message, time.monotonic_ns())
        )
        return True

    async def on_status(self, correlation_id: int) -> bytes:
        return await self._reader.read(lambda found: encoded_status(found, correlation_id))

    # ---- the group service, which has a thread of its own ----

    def _request(self, number: int, message: Any) -> None:
        """Called by its thread."""
        self._trio.run_sync_soon(self._on_group_request, number, message)

    def _on_group_request(self, number: int, message: Any) -> None:
        if self._stopping:
            return
        if isinstance(message, GetStatus):
            assert self._slow is not None
            self._slow.start_soon(self._answer_status, number)
            return
        self._perform(
            self._conductor.on_group_request(number, message, time.monotonic_ns())
        )

    async def _answer_status(self, number: int) -> None:
        reply = await self._reader.read(lambda found: Status(snapshot=status.to_dict(found)))
        self._groups.answer(number, reply)

    def _on_service_failure(self, error: BaseException) -> None:
        """Called by its thread.  The daemon ends: a new daemon goes on where it stood."""

        async def end() -> None:
            raise error

        assert self._slow is not None
        self._trio.run_sync_soon(self._slow.start_soon, end)

    # ---- the executor's port ---------------------------------------------------------------------

    def reply(self, action: a.Reply) -> None:
        identity = self._identity_of.get(action.client_id)
        if identity is not None:
            self._control.send(identity, action.message, action.correlation_id)

    def notify(self, action: a.Notify) -> None:
        identity = self._identity_of.get(action.client_id)
        if identity is not None:
            self._control.send(identity, action.notice)

    def publish(self, action: a.PublishEvent) -> None:
        _LOG.debug("%s %s", action.name, action.fields)
        self._notify(action.name, action.fields)

    def grant(self, action: a.GrantLease) -> None:
        # A client that returns has another connection: its last process has ended.
        self._lease_of = {c: owner for c, owner in self._lease_of.items()
                          if owner != action.client_id}
        self._tokens[action.token] = action.client_id
        self._lease_of[action.connection_id] = action.client_id
        grant = LeaseGrant(
            client_id=action.client_id,
            client_slot=action.client_slot,
            token=action.token,
            daemon_id=self._identity.daemon_id,
            daemon_epoch=self._identity.epoch,
            daemon_version=self._facts.version,
        )
        fds = (self._driver.wake_fd(Agent.SENDER), self._driver.wake_fd(Agent.RECEIVER))
        if action.connection_id in self._watching:
            with self._watches.renewed(action.client_slot) as watch_fd:
                self._leases.answer(action.connection_id, grant, (*fds, watch_fd))
            return
        self._leases.answer(action.connection_id, grant, fds)

    def refuse(self, action: a.RefuseLease) -> None:
        refusal = Failure(code=action.code, message=action.message)
        self._leases.answer(action.connection_id, refusal)
        self._leases.hang_up(action.connection_id)

    def forget(self, action: a.ForgetClient) -> None:
        identity = self._identity_of.pop(action.client_id, None)
        if identity is not None:
            self._client_of.pop(identity, None)
        stale = [token for token, owner in self._tokens.items() if owner == action.client_id]
        for token in stale:
            del self._tokens[token]

    def answer(self, action: a.Answer) -> None:
        self._groups.answer(action.request_id, action.message)

    def record(self, action: a.Record) -> None:
        self._journal.record(action.kind, action.key, action.fields)

    def warn(self, text: str) -> None:
        self._warnings.warn(text, time.monotonic_ns())

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def resolve(self, action: a.ResolveName) -> Address:
        return resolve_name(action)

    def interfaces(self) -> tuple[LocalInterface, ...]:
        return list_interfaces()
