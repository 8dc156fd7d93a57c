# SPDX-License-Identifier: Apache-2.0
"""A simulated host: the production driver, conductor and executor, which the simulator runs step by
step."""

from __future__ import annotations

import json
import random
import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from penstock.client._client import Client
from penstock.client._port import Lease, Returning
from penstock.config.protocol.control import ImageAvailable, LeaseRequest, Message
from penstock.core import admin
from penstock.core.driver import Driver
from penstock.core.driver_types import (
    NEVER_NS,
    Address,
    CncParams,
    DriverParams,
    ImageStatus,
    ImageView,
    LossRecovery,
    ObjectKind,
    PublicationStatus,
    SharedParams,
    SlotKind,
    SystemCounter,
    Threading,
)
from penstock.core.errors import ChannelRefused
from penstock.daemon.addressing import LocalInterface
from penstock.daemon.conductor import Conductor, ConductorSettings, Operation
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.congestion import RunCongestion
from penstock.daemon.conductor.snapshot import ImageSnapshot, PublicationSnapshot
from penstock.daemon.executor import Executor
from penstock.daemon.observe.samples import sample
from penstock.daemon.restart import journal
from penstock.daemon.restart.adoption import sweep
from penstock.daemon.strategies import Running
from penstock.sim.core import SIM, SimNetwork, SimWorld
from penstock.sim.scenario import HostScript
from penstock.sim.world._port import SimPort

#: Epoch time of virtual time 0, in ms.
EPOCH_MS: Final = 1_700_000_000_000
_MS_NS: Final = 1_000_000
_MIB: Final = 1024 * 1024
_SLOTS: Final = 64
#: Rounds at one moment after which a host that still finds work counts as livelocked.
_MAX_ROUNDS: Final = 100_000


class LivelockError(AssertionError):
    """Raised if a host always finds more work at the same virtual time, so that the virtual time
    makes no progress."""


class Host:
    """A simulated host. The host's daemon has a directory with real files. The
    host has no clock: callers pass the time to its methods.
    """

    def __init__(
        self,
        *,
        name: str,
        ip: str,
        directory: Path,
        network: SimNetwork,
        native: SimWorld,
        rng: random.Random,
        script: HostScript,
    ) -> None:
        self.name = name
        self.ip = ip
        self.directory = directory
        self.now_ns = 0
        self.events: list[tuple[int, str, str]] = []
        self.samples: list[tuple[int, dict[str, Any]]] = []
        self.script = script
        self.index = network.add_host(ip)
        self._network = network
        self._native = native
        self._rng = rng
        self._epoch = 0
        self.running = False
        self._over_runs_before = 0
        self.start()

    def start(self) -> None:
        """Start a daemon on an empty directory."""
        self._epoch += 1
        self._events_before = len(self.events)  # of earlier daemons, whose ids the new one reuses
        self._ports: dict[int, SimPort] = {}
        self._shared_clients: dict[int, list[Client]] = {}
        self._granted: dict[int, Lease] = {}
        self._tokens: dict[int, bytes] = {}         # by client
        self._records: dict[journal.Key, dict[str, Any]] = {}
        self._connections = 0
        rng = self._rng
        (self.directory / "publications").mkdir(parents=True)
        (self.directory / "images").mkdir()
        receiver_id_base = rng.randrange(1, 2**62)
        self._daemon_id = rng.randrange(1, 2**63)
        self._answers: list[tuple[int, int, a.Outcome]] = []  # of strategies, not heard yet
        self._cnc = self._make_cnc()
        self._shared = admin.Shared.create(
            self._shared_params(receiver_id_base), library=SIM
        )
        self._make_driver(receiver_id_base)

    def set_credits(
        self, notice: ImageAvailable, numbers: tuple[int, int], *, frozen: bool
    ) -> None:
        """Change the credits that a reader of this host grants."""
        network = notice.image_slot >= 0
        self.driver.call(
            "ps_image_set_credits" if network else "ps_publication_set_credits",
            ObjectKind.IMAGE if network else ObjectKind.PUBLICATION,
            notice.correlation_id, notice.position_counter_id, *numbers, int(frozen),
            operation="change credits",
        )
        self._native.touch(self.index)

    def _make_driver(self, receiver_id_base: int) -> None:
        rng = self._rng
        self.driver = Driver(
            DriverParams(
                threading=Threading.INVOKER,
                seed=rng.randrange(2**63),
                receiver_id_base=receiver_id_base,
                daemon_id=self._daemon_id,
                daemon_epoch=self._epoch,
                max_gaps=self.script.max_gaps,
                **self._parameters(),
            ),
            net=self._network.host_net(self.index),
            cnc=self._cnc,
            shared=self._shared,
        )
        self.driver.start()
        settings = ConductorSettings(
            directory=str(self.directory),
            receiver_id_base=receiver_id_base,
            storage_budget_bytes=(
                512 * _MIB if self.script.budget_bytes is None else self.script.budget_bytes
            ),
            epoch_offset_ns=EPOCH_MS * _MS_NS,
            file_mode=0o600,
            gso=False,
            gro=False,
            receiver_group_tag=self.script.group_tag,
            journal=self.script.adopt,
            daemon_id=self._daemon_id,
            daemon_epoch=self._epoch,
        )
        settings = attrs.evolve(settings, idle_term_timeout_ns=self.script.idle_ns)
        if self.script.small_term_bytes is not None:
            settings = attrs.evolve(settings, small_term_bytes=self.script.small_term_bytes)
        if self.script.window_bytes is not None:
            settings = attrs.evolve(settings, receiver_window=self.script.window_bytes)
        if self.script.rcvbuf_bytes is not None:
            settings = attrs.evolve(settings, rcvbuf_bytes=self.script.rcvbuf_bytes)
        self.conductor = Conductor(
            settings, rng=random.Random(rng.randrange(2**63)), next_id=self._cnc.next_id
        )
        self._executor = Executor(
            driver=self.driver, cnc=self._cnc, shared=self._shared, port=self
        )
        self._native.set_driver(self.index, self.driver, self.script.cycle_ns)
        self.running = True
        self._reschedule()

    def _parameters(self) -> dict[str, Any]:
        fields: dict[str, Any] = dict(self.script.driver)
        if "loss_recovery" in fields:
            fields["loss_recovery"] = LossRecovery(fields["loss_recovery"])
        return fields

    def images(self) -> list[ImageView]:
        """Loss, round trip and fill level of each image, read from the image slots."""
        return [self._shared.read_image(i.slot) for i in self.conductor.snapshot().images]

    def publications(self) -> tuple[PublicationSnapshot, ...]:
        """Return the publications that the conductor of this host has now."""
        return self.conductor.snapshot().publications

    def status_of(
        self, owner: ImageSnapshot | PublicationSnapshot
    ) -> ImageStatus | PublicationStatus:
        """Return the driver's status of an image or of a publication."""
        if isinstance(owner, ImageSnapshot):
            return self.driver.image_status(owner.id)
        return self.driver.publication_status(owner.id)

    def indexed(self, owner: ImageSnapshot | PublicationSnapshot) -> list[int]:
        """A new daemon would count the image's messages from the newest entry of the image's index
        on. Return the position of this entry as a list of one element; the list is empty if no
        entry is near enough.
        """
        if not isinstance(owner, ImageSnapshot):
            return []
        end = self.driver.image_status(owner.id).position
        newest = [at for at, _ in self._shared.read_index(SlotKind.IMAGE, owner.slot)][-1:]
        return [at for at in newest if end - at < owner.log.term_length // 2]

    def sample(self) -> None:
        """Append a sample of the daemon's state to ``samples``. The sample has the same form as in
        a real daemon's trace.
        """
        if self.running:
            fields = sample(
                self.conductor.snapshot(), self.driver, self._shared, self._cnc,
                now_ns=self.now_ns,
            )
            self.samples.append((self.now_ns, fields))

    def _make_cnc(self) -> admin.Cnc:
        return admin.Cnc.create(
            CncParams(
                directory=str(self.directory),
                client_liveness_timeout_ns=10_000 * _MS_NS,
                start_ms=EPOCH_MS,
                pid=1 + self.index,
                counter_values_bytes=_MIB,
                error_log_bytes=_MIB,
                file_mode=0o600,
                software_version=256,
            ),
            library=SIM,
        )

    def _shared_params(self, receiver_id_base: int) -> SharedParams:
        return SharedParams(
            directory=str(self.directory),
            clients=_SLOTS,
            publications=_SLOTS,
            images=_SLOTS,
            subscribers=_SLOTS,
            groups=_SLOTS,
            file_mode=0o600,
            daemon_id=self._daemon_id,
            daemon_epoch=self._epoch,
            receiver_id_base=receiver_id_base,
            pid=1 + self.index,
            start_ms=EPOCH_MS,
        )

    def die(self) -> None:
        """Kill only the daemon: its clients continue to run, and its files and its journal stay."""
        self._over_runs_before = self.over_runs
        self.running = False
        self._answers.clear()
        for port in self._ports.values():
            port.take_absence()
        self._native.set_driver(self.index, None, self.script.cycle_ns)
        self.driver.close()
        self._shared.close()
        self._cnc.heartbeat(self.epoch_ms())
        self._cnc.close()

    def adopt(self) -> None:
        """Start a new daemon on a dead daemon's directory. The clients connect to the new daemon
        one by one."""
        self._epoch += 1
        records = self._records
        self._records = {}
        receiver_id_base = self._rng.randrange(1, 2**62)
        directory = str(self.directory)
        self._cnc = admin.Cnc.open(directory, read_only=False, library=SIM)
        self._shared = admin.Shared.open(directory, read_only=False, library=SIM)
        self._cnc.adopt(pid=1 + self.index, start_ms=self.epoch_ms())
        self._shared.adopt(self._shared_params(receiver_id_base))
        self._make_driver(receiver_id_base)
        self._perform(
            self.conductor.adopt(records, dead=frozenset(), now_ns=self.now_ns)
        )
        self.settle()
        sweep(self.directory, self._cnc, self._shared, self.conductor)
        for port in list(self._ports.values()):
            self._take_back(port)

    def _take_back(self, port: SimPort) -> None:
        old = port.lease
        self._connections += 1
        number = self._connections
        request = LeaseRequest(
            name="again", client_id=old.client_id, token=self._tokens[old.client_id]
        )
        self._perform(
            self.conductor.on_lease(
                number, request, pid=1000 + old.client_id, uid=0, now_ns=self.now_ns,
                token=number.to_bytes(8, "little"),
            )
        )
        self.settle()
        lease = self._granted.pop(number)
        if lease.client_id != old.client_id:
            raise AssertionError(f"{self.name}: the new daemon does not know client {old}")
        port.take_return(lease)

    def close(self) -> None:
        """End the daemon without a notice to its clients; its files stay."""
        if not self.running:
            return
        self._over_runs_before = self.over_runs
        self.running = False
        for port in list(self._ports.values()):
            port.take_hangup()
        self._native.set_driver(self.index, None, self.script.cycle_ns)
        self.driver.close()
        self._shared.close()
        self._cnc.close()

    def wipe(self) -> None:
        """Discard the directory of a crashed daemon."""
        shutil.rmtree(self.directory)

    @property
    def over_runs(self) -> int:
        """Number of datagrams that were dropped because they were too far ahead of their image's
        position. The number includes the datagrams that earlier daemons of this host dropped.
        """
        now = self.counters(SystemCounter.OVER_RUNS)[SystemCounter.OVER_RUNS] if self.running else 0
        return self._over_runs_before + now

    def counters(self, *ids: int) -> dict[int, int]:
        """Values of system counters."""
        return {number: self._cnc.counter(number) for number in ids}

    def strategies(self) -> list[Running]:
        """The Python strategies of the host's streams; each states how many of its results were
        used, late or invalid.
        """
        ids = [owner.id for owner in self.publications()]
        ids += [image.id for image in self.conductor.snapshot().images]
        found = map(self._executor.strategies.get, ids)
        return [running for running in found if running is not None]

    def untold(self) -> list[str]:
        """Return a text for each publication with a wrong connection state in its last event.
        Return no texts if a new daemon may adopt publications: such a daemon sends no event about a
        connected publication that it adopts.
        """
        self.settle()
        notified: dict[int, bool] = {}
        for _, name, fields in self.events[self._events_before:]:
            if name == "publication_connected":
                values = json.loads(fields)
                notified[values["publication_id"]] = values["connected"]
        return [
            f"{self.name}: the last event states a wrong connection state of publication {number}"
            for number in (publication.id for publication in self.publications())
            if not self.script.adopt
            and bool(self.driver.publication_status(number).is_connected)
            != notified.get(number, False)
        ]

    # ---- applications ----------------------------------------------------------------------------

    def connect(self, name: str) -> Client:
        """Return a client of this host's daemon. The client is an object of the production class,
        but its requests call the conductor in this process directly."""
        return Client(self.attach(name), library=SIM)

    def connect_shared(self, name: str, number: int) -> Client:
        """Return a client for an application. Applications that state the same number share one
        client. If the number is 0, return a new client.
        """
        users = self._shared_clients.setdefault(number, []) if number else []
        client = users[0] if users else self.connect(name)
        users.append(client)
        return client

    def release_shared(self, client: Client) -> bool:
        """Close the client if no other application uses it; return whether it is closed."""
        for users in self._shared_clients.values():
            if client in users:
                users.remove(client)
                if users:
                    return False
        client.close()
        return True

    def watch(self, port: SimPort, fd: int) -> None:
        """Make the agents write to an eventfd when they wake the client of this port."""
        self._shared.watch_client(port.lease.client_slot, fd)

    def attach(
        self, name: str, *, linger_ns: int = 0, returning: Returning | None = None
    ) -> SimPort:
        """Return a new client's port.

        :param linger_ns: time for which the daemon keeps the client's objects after the client's
            application has ended.
        :param returning: a client of an ended application, which the new application takes over.
        """
        self._connections += 1
        number = self._connections
        request = LeaseRequest(name=name, linger_ns=linger_ns)
        if returning is not None:
            request = attrs.evolve(request, client_id=returning.client_id, token=returning.token)
        self._perform(
            self.conductor.on_lease(
                number, request, pid=1000 + number, uid=0, now_ns=self.now_ns,
                token=number.to_bytes(8, "little") if self.script.adopt or linger_ns else b"",
            )
        )
        self.settle()
        lease = self._granted.pop(number)
        port = SimPort(self, lease, self._tokens[lease.client_id])
        self._ports[lease.client_id] = port
        if returning is not None and returning.token == port.token:
            port.take_over(returning)
        return port

    def command(self, client_id: int, correlation_id: int, message: Message) -> None:
        """Execute a request of a client; the reply is sent during the call."""
        self._perform(
            self.conductor.on_command(client_id, correlation_id, message, self.now_ns)
        )
        self.settle()

    def end_lease(self, client_id: int) -> None:
        """The client has gone."""
        self._ports.pop(client_id, None)
        if not self.running:
            return
        self._perform(self.conductor.on_lease_lost(client_id, self.now_ns))
        self.settle()

    # ---- time ------------------------------------------------------------------------------------

    def control(self) -> None:
        """Run the conductor: process its events first, then its timers. The world steps the
        driver.
        """
        for _ in range(_MAX_ROUNDS):
            worked = False
            while (event := self.driver.poll_event()) is not None:
                worked = True
                self._perform(self.conductor.on_event(event, self.now_ns))
            worked = self._turn() or worked
            if not worked:
                return self._reschedule()
        raise LivelockError(f"{self.name}: the conductor never finishes its work")

    def settle(self) -> None:
        """Step driver and conductor until both have no more work at the present time."""
        for _ in range(_MAX_ROUNDS):
            worked = self._native.step(self.index, self.now_ns) > 0
            while (event := self.driver.poll_event()) is not None:
                worked = True
                self._perform(self.conductor.on_event(event, self.now_ns))
            worked = self._turn() or worked
            if not worked:
                return self._reschedule()
        raise LivelockError(f"{self.name} never finishes its work at {self.now_ns} ns")

    def _turn(self) -> bool:
        """The conductor's timers, and answers of strategies whose time has come."""
        worked = False
        while self._answers and self._answers[0][0] <= self.now_ns:
            worked = True
            _, number, outcome = self._answers.pop(0)
            self._perform(self.conductor.on_result(number, outcome, self.now_ns))
        if self.conductor.next_deadline_ns() <= self.now_ns:
            worked = True
            self._perform(self.conductor.on_tick(self.now_ns))
        return worked

    def _reschedule(self) -> None:
        answer_ns = self._answers[0][0] if self._answers else NEVER_NS
        self._native.set_control_ns(
            self.index, min(self.conductor.next_deadline_ns(), answer_ns)
        )
        self._native.touch(self.index)

    def _perform(self, operations: Sequence[Operation]) -> None:
        waiting = deque(operations)
        while waiting:
            operation = waiting.popleft()
            outcome = self._executor.perform(operation.action)
            asks = isinstance(operation.action, a.RunStrategy | RunCongestion)
            if asks and self.script.strategy_delay_ns > 0:
                answer_ns = self.now_ns + self.script.strategy_delay_ns
                self._answers.append((answer_ns, operation.operation_id, outcome))
                continue
            if operation.operation_id != 0:
                waiting.extend(
                    self.conductor.on_result(operation.operation_id, outcome, self.now_ns)
                )
            elif outcome.error is not None:
                kind = type(operation.action).__name__
                self.events.append((self.now_ns, "error", f"{kind}: {outcome.error.message}"))

    # ---- what the executor leaves to its shell ---------------------------------------------------

    def reply(self, action: a.Reply) -> None:
        port = self._ports.get(action.client_id)
        if port is not None:
            port.take_reply(action.correlation_id, action.message)

    def notify(self, action: a.Notify) -> None:
        port = self._ports.get(action.client_id)
        if port is not None:
            port.take_notice(action.notice)

    def publish(self, action: a.PublishEvent) -> None:
        fields = json.dumps(action.fields, sort_keys=True, default=str)
        self.events.append((self.now_ns, action.name, fields))

    def grant(self, action: a.GrantLease) -> None:
        self._tokens[action.client_id] = action.token
        self._granted[action.connection_id] = Lease(
            directory=self.directory,
            client_id=action.client_id,
            client_slot=action.client_slot,
            daemon_id=1,
            daemon_epoch=self._epoch,
            daemon_version="simulated",
            sender_wake_fd=-1,
            receiver_wake_fd=-1,
        )

    def refuse(self, action: a.RefuseLease) -> None:
        raise ChannelRefused(action.message, code=action.code)

    def forget(self, action: a.ForgetClient) -> None:
        self._ports.pop(action.client_id, None)

    def answer(self, action: a.Answer) -> None:
        """Simulated daemons serve no groups."""

    def record(self, action: a.Record) -> None:
        """The daemon's journal, which the simulator keeps in memory. After a crash, the journal
        still has the records that were written before the crash."""
        key = (action.kind, action.key)
        if action.fields is None:
            self._records.pop(key, None)
        else:
            self._records[key] = dict(action.fields)

    def warn(self, text: str) -> None:
        """The daemon's log, which a simulated daemon does not write."""

    def epoch_ms(self) -> int:
        return EPOCH_MS + self.now_ns // _MS_NS

    def resolve(self, action: a.ResolveName) -> Address:
        raise ChannelRefused(f"a simulated host cannot resolve {action.host}", code="unknown_host")

    def interfaces(self) -> tuple[LocalInterface, ...]:
        loopback = LocalInterface(
            name="lo", index=1, ip="127.0.0.1", prefix_length=8, is_loopback=True
        )
        return (loopback, LocalInterface(name="eth0", index=2, ip=self.ip, prefix_length=24))
