# SPDX-License-Identifier: Apache-2.0
"""A conductor with a scripted world around it: actions are recorded and answered, time is a number.

Answers are those of a world without trouble, unless a test says otherwise: ``fail`` makes the next
action of a type fail, ``hold`` keeps its answer back until ``resume``.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any, TypeVar

import attrs

from penstock.config.protocol import control
from penstock.core.credits import CreditState, CreditView
from penstock.core.driver_events import EVENTS
from penstock.core.driver_types import (
    Address,
    EventType,
    ObjectKind,
    PublicationStatus,
)
from penstock.daemon.addressing import LocalInterface
from penstock.daemon.conductor import Conductor, ConductorSettings, Operation
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.credits import ReadCredits, ReadRoundTrip

SECOND_NS = 10**9
MIB = 1 << 20
SOURCE = Address(ip="10.0.0.9", port=5000)

T = TypeVar("T")

INTERFACES = (
    LocalInterface(name="lo", index=1, ip="127.0.0.1", prefix_length=8, is_loopback=True),
    LocalInterface(name="eth0", index=2, ip="10.0.0.1", prefix_length=24),
    LocalInterface(name="eth1", index=3, ip="10.0.1.1", prefix_length=28),
    LocalInterface(name="lo", index=1, ip="::1", prefix_length=128, is_loopback=True),
)


class Rig:
    def __init__(self, **settings: Any) -> None:
        values: dict[str, Any] = {
            "directory": "/d", "receiver_id_base": 77, "storage_budget_bytes": 1024 * MIB,
            **settings,
        }
        self.conductor = Conductor(ConductorSettings(**values), rng=random.Random(1))
        self.state = self.conductor._state
        self.now_ns = 0
        self.done: list[a.Action] = []
        self.names: dict[str, str] = {}
        self._failures: dict[type[a.Action], a.ActionError] = {}
        self._held_types: set[type[a.Action]] = set()
        self.held: deque[Operation] = deque()
        self._numbers = itertools.count(100)
        self._correlations = itertools.count(1)
        self.leaked: dict[int, int] = {}        # lost credits by slot of the reader
        self.counters: dict[int, a.AllocateCounter] = {}
        self.slots: dict[tuple[Any, int], int] = {}
        self.files: set[str] = set()
        self.native: set[tuple[ObjectKind, int]] = set()
        self.kernel_buffer = 1 << 30    # the largest receive buffer that the kernel grants

    # ---- what a test says ----

    def fail(self, action: type[a.Action], code: str = "internal", message: str = "no") -> None:
        self._failures[action] = a.ActionError(code=code, message=message)

    def hold(self, action: type[a.Action]) -> None:
        self._held_types.add(action)

    def resume(self) -> None:
        """Answers the oldest held action."""
        self._answer(self.held.popleft())

    def client(self, name: str = "c", **fields: Any) -> int:
        token = bytes([next(self._numbers) % 256])
        request = control.LeaseRequest(name=name, **fields)
        self._run(
            self.conductor.on_lease(
                1, request, pid=10, uid=20, now_ns=self.now_ns, token=token
            )
        )
        return self.last(a.GrantLease).client_id

    def lose(self, client_id: int) -> None:
        self._run(self.conductor.on_lease_lost(client_id, self.now_ns))

    def send(self, client_id: int, message: control.Message) -> int:
        """Sends a request; its correlation id."""
        correlation = next(self._correlations)
        self._run(self.conductor.on_command(client_id, correlation, message, self.now_ns))
        return correlation

    def request(self, client_id: int, message: control.Message) -> Any:
        """Sends a request; its reply."""
        return self.reply(self.send(client_id, message))

    def reply(self, correlation: int) -> Any:
        replies = [r for r in self.all(a.Reply) if r.correlation_id == correlation]
        assert len(replies) == 1, replies
        return replies[0].message

    def pub(self, client_id: int, channel: str, stream: int = 7, **options: Any) -> Any:
        return self.request(
            client_id, control.AddPublication(channel=channel, stream_id=stream, **options)
        )

    def sub(self, client_id: int, channel: str, stream: int = 7) -> Any:
        return self.request(client_id, control.AddSubscription(channel=channel, stream_id=stream))

    def event(self, event_type: EventType, **fields: Any) -> None:
        event = EVENTS[event_type](now_ns=self.now_ns, **fields)
        self._run(self.conductor.on_event(event, self.now_ns))

    def setup(self, endpoint_id: int, *, established: bool = True, **fields: Any) -> None:
        """A SETUP comes, and the first frame of its stream behind it."""
        before = len(self.all(a.AddImageObject))
        values: dict[str, Any] = {
            "stream_id": 7, "session_id": 42, "initial_term_id": 3, "active_term_id": 3,
            "term_offset": 0, "term_length": MIB, "mtu": 1408, "source": SOURCE, **fields,
        }
        self.event(EventType.SETUP, kind=ObjectKind.RECV_ENDPOINT, id=endpoint_id, **values)
        made = self.all(a.AddImageObject)[before:]
        if made and established:
            self.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=made[0].params.id)

    def release(self, kind: ObjectKind, object_id: int) -> None:
        self.event(EventType.RELEASED, kind=kind, id=object_id)

    def release_all(self) -> None:
        """The agents let go of whatever they were asked to."""
        seen = 0
        while seen < len(self.done):
            action = self.done[seen]
            seen += 1
            if isinstance(action, a.RemoveObject) and \
                    (action.kind, action.object_id) in self.native:
                self.release(action.kind, action.object_id)
            elif isinstance(action, a.RemoveRecvDestination):
                self.event(
                    EventType.RELEASED, kind=ObjectKind.RECV_DESTINATION, id=action.endpoint_id,
                    destination_id=action.destination_id,
                )

    def advance(self, seconds: float) -> None:
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        while (deadline := self.conductor.next_deadline_ns()) <= end_ns:
            self.now_ns = max(deadline, self.now_ns)
            self._run(self.conductor.on_tick(self.now_ns))
        self.now_ns = end_ns

    # ---- what a test checks ----

    def all(self, action: type[T]) -> list[T]:
        return [done for done in self.done if isinstance(done, action)]

    def last(self, action: type[T]) -> T:
        return self.all(action)[-1]

    def notices(self, notice: type[T]) -> list[T]:
        return [n.notice for n in self.all(a.Notify) if isinstance(n.notice, notice)]

    def assert_nothing_left(self) -> None:
        """Every counter, slot, file and native object that was made is gone."""
        assert not self.counters
        assert not self.slots
        assert not self.files
        assert not self.native
        assert self.state.storage.used_bytes == 0
        assert self.state.runner.pending == 0

    # ---- the world ----

    def _run(self, operations: list[Operation]) -> None:
        for operation in operations:
            if type(operation.action) in self._held_types and operation.operation_id:
                self.held.append(operation)
            else:
                self._answer(operation)

    def _answer(self, operation: Operation) -> None:
        action = operation.action
        error = self._failures.pop(type(action), None)
        value = None
        if error is None:
            self.done.append(action)
            value = self._perform(action)
            if isinstance(value, a.ActionError):
                error, value = value, None
        if operation.operation_id:
            outcome = a.Outcome(value=value, error=error)
            self._run(self.conductor.on_result(operation.operation_id, outcome, self.now_ns))

    def _perform(self, action: a.Action) -> Any:
        match action:
            case a.AllocateCounter():
                number = next(self._numbers)
                self.counters[number] = action
                return number
            case a.FreeCounter(counter_id=number):
                del self.counters[number]
            case a.ReadCounter(counter_id=number):
                return self.counters[number].value
            case a.AllocateSlot(kind=kind, object_id=owner):
                number = next(self._numbers)
                self.slots[(kind, number)] = owner
                return number
            case a.FreeSlot(kind=kind, index=number):
                del self.slots[(kind, number)]
            case a.CreateLog(params=params):
                assert params.path not in self.files
                self.files.add(params.path)
            case a.DeleteFile(path=path):
                self.files.remove(path)
            case a.ResolveName(host=host, port=port):
                if host not in self.names:
                    return a.ActionError(code="unknown_host", message=f"no {host}")
                return Address(ip=self.names[host], port=port)
            case a.ListInterfaces():
                return INTERFACES
            case _:
                return self._perform_native(action)
        return None

    def _perform_native(self, action: a.Action) -> Any:
        match action:
            case a.OpenSendEndpoint(params=params):
                self.native.add((ObjectKind.SEND_ENDPOINT, params.id))
                return attrs.evolve(params.data.bind, port=params.data.bind.port or 33333)
            case a.OpenRecvEndpoint(params=params):
                self.native.add((ObjectKind.RECV_ENDPOINT, params.id))
            case a.AddRecvDestination(params=destination):
                bind = destination.socket.bind
                return attrs.evolve(bind, port=bind.port or 44444)
            case a.FitRecvBuffer(size_bytes=size):
                return min(size, self.kernel_buffer)
            case a.AddPublicationObject(params=publication):
                self.native.add((ObjectKind.PUBLICATION, publication.id))
            case a.AddImageObject(params=image):
                self.native.add((ObjectKind.IMAGE, image.id))
            case a.DestroyObject(kind=kind, object_id=number):
                self.native.remove((kind, number))
            case a.GetPublicationStatus():
                return PublicationStatus(
                    producer_position=4096, consumer_position=1024, publisher_limit=8192,
                    is_connected=True, receivers=1,
                )
            case a.GetImageJoinPosition():
                return 2048
            case a.OldestPosition():
                return 512
            case ReadRoundTrip():
                return 0
            case ReadCredits(slot=slot):
                return CreditView(
                    credits=1, burst=1, passed=0, returned=0, leaked=self.leaked.get(slot, 0),
                    granted=1, final=-1, epoch=1, state=CreditState.GRANTING,
                )
        return None
