# SPDX-License-Identifier: Apache-2.0
"""The conductor gets commands, events, results and the time, and returns operations.

The conductor reads no clock, file or socket, and calls no native code. The conductor's caller
provides random numbers and ids. Every method of the conductor returns the operations that the
caller must perform, in order. If an operation has an id, the caller passes its result
to :meth:`Conductor.on_result`; results may arrive in any order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator
from typing import Any, Final

from penstock.config.protocol.control import LeaseRequest, Message, PublicationError
from penstock.core import driver_events as events
from penstock.core.driver_types import (
    ObjectKind,
    SlotKind,
    TetherState,
)
from penstock.daemon.conductor.actions import (
    FreeCounter,
    FreeSlot,
    Operation,
    Outcome,
    ReadCounter,
    ReportLoss,
    SetCounter,
    UnblockPublication,
)
from penstock.daemon.conductor.channel.counters import ChannelStatus
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.sagas import (
    groups,
    images,
    joins,
    pressure,
    publications,
    recv_endpoints,
    send_endpoints,
)
from penstock.daemon.conductor.sagas.adopt import (
    Registrations,
    adopt,
    counters_in_use,
    logs_in_use,
    slots_in_use,
)
from penstock.daemon.conductor.sagas.clients import (
    LeasePeer,
    await_return,
    enqueue,
    grant_lease,
    lose_client,
)
from penstock.daemon.conductor.sagas.linking import announce, report_refusal, unlink, withdraw
from penstock.daemon.conductor.sagas.retention import Locate
from penstock.daemon.conductor.sagas.storage import on_term_needed, on_terms_released
from penstock.daemon.conductor.settings import SECOND_NS, ConductorSettings
from penstock.daemon.conductor.snapshot import (
    InUse,
    PublicationSnapshot,
    Snapshot,
    in_slices,
    take,
)
from penstock.daemon.conductor.state.model import Publication, Rejection, SubscriberLink
from penstock.daemon.conductor.state.registry import note_link
from penstock.daemon.conductor.state.state import State

_SETTLED_NS: Final = 60 * SECOND_NS     # age from which an image has an entry of its own
_REJECTIONS: Final = 64                 # receivers of a publication whose rejections are kept


class Conductor:
    def __init__(
        self,
        settings: ConductorSettings,
        *,
        rng: random.Random,
        next_id: Callable[[], int] | None = None,
    ) -> None:
        self._state = State(settings, rng=rng, next_id=next_id or itertools.count(1).__next__)
        self._handlers = self._event_handlers()

    # ---- what goes in ----

    def on_lease(
        self, connection_id: int, request: LeaseRequest, *, pid: int, uid: int, now_ns: int,
        token: bytes = b"", started: int = 0,
    ) -> list[Operation]:
        """Process the lease request of a client that has connected. The conductor answers with the
        action GrantLease or RefuseLease, which states ``connection_id``.

        :param token: secret that a new client gets. The client later sends this secret to prove its
        identity.
        :param started: start time of the client's process, in the kernel's ticks; 0: unknown.
        """
        self._state.now_ns = now_ns
        peer = LeasePeer(pid=pid, uid=uid, token=token, started=started)
        self._start(grant_lease(self._state, connection_id, request, peer))
        return self._state.runner.take()

    def adopt(
        self, records: Registrations, *, dead: frozenset[int] = frozenset(), now_ns: int
    ) -> list[Operation]:
        """Adopt the registrations of a dead daemon. Call ``adopt`` before all other methods of the
        conductor.

        :param dead: ids of the dead daemon's clients whose processes have ended.
        """
        self._state.now_ns = now_ns
        self._start(adopt(self._state, records, dead))
        return self._state.runner.take()

    def sweep_later(self, counters: list[int], slots: list[tuple[SlotKind, int, int]]) -> None:
        """Set a timer. When the timer ends, the conductor frees the dead daemon's counters and
        slots, except those that adopted objects use. The delay gives clients time to read the
        daemon's notices about objects that have ended."""
        state = self._state

        def sweep() -> None:
            for counter_id in counters:
                state.emit(FreeCounter(counter_id=counter_id))
            for kind, index, object_id in slots:
                # The end of an adopted object may have freed it meanwhile, and another object may
                # use it.
                state.emit(FreeSlot(kind=kind, index=index, object_id=object_id))

        delay_ns = max(state.settings.image_linger_ns, state.settings.reattach_timeout_ns)
        state.timers.at(state.now_ns + delay_ns, sweep)

    def on_lease_lost(self, client_id: int, now_ns: int) -> list[Operation]:
        """Process the end of a client's connection on ``lease.sock``: the client has died, or has
        closed the connection."""
        self._state.now_ns = now_ns
        client = self._state.clients.get(client_id)
        if client is not None and client.alive:
            client.commands.clear()
            if client.linger_ns and client.has_objects:
                await_return(self._state, client)
            else:
                client.alive = False
                self._start(lose_client(self._state, client))
        return self._state.runner.take()

    def on_command(
        self, client_id: int, correlation_id: int, message: Message, now_ns: int
    ) -> list[Operation]:
        """Process a request of a client that holds a lease."""
        self._state.now_ns = now_ns
        client = self._state.clients.get(client_id)
        if client is not None and client.alive:
            enqueue(self._state, client, correlation_id, message)
        return self._state.runner.take()

    def on_group_request(
        self, request_id: int, message: Message | Locate, now_ns: int
    ) -> list[Operation]:
        """Process a request about consumer groups. The program that sends the request need not be a
        client with a lease. The conductor answers with the action Answer, which states
        ``request_id``."""
        self._state.now_ns = now_ns
        groups.serve(self._state, request_id, message)
        return self._state.runner.take()

    def on_event(self, event: events.DriverEvent, now_ns: int) -> list[Operation]:
        """Process an event of the data plane."""
        self._state.now_ns = now_ns
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        return self._state.runner.take()

    def on_result(self, operation_id: int, outcome: Outcome, now_ns: int) -> list[Operation]:
        """Process the result of an operation whose ``operation_id`` is not 0."""
        self._state.now_ns = now_ns
        self._state.runner.on_result(operation_id, outcome)
        return self._state.runner.take()

    def on_tick(self, now_ns: int) -> list[Operation]:
        """Runs the timers that are due."""
        self._state.now_ns = now_ns
        self._state.timers.run(now_ns)
        return self._state.runner.take()

    def next_deadline_ns(self) -> int:
        """Return the time of the next timer, in nanoseconds; INT64_MAX if no timer is set."""
        return self._state.timers.next_deadline_ns()

    # ---- what is shown ----

    def snapshot(self) -> Snapshot:
        """Return a frozen copy of the registered objects."""
        return take(self._state)

    def snapshot_in_slices(self, objects: int) -> Generator[None, None, Snapshot]:
        """Return a generator that takes a snapshot. The generator pauses each time it has copied
        ``objects`` objects (:func:`penstock.daemon.conductor.snapshot.in_slices`)."""
        return in_slices(self._state, objects)

    def publication_snapshot(self, publication_id: int) -> PublicationSnapshot | None:
        """Return a frozen copy of one publication, or None if no publication has this id."""
        found = self._state.publications.get(publication_id)
        return None if found is None else PublicationSnapshot.of(found)

    def awaited_clients(self) -> frozenset[int]:
        """Return the ids of the clients in the state ``awaited``. The process of an awaited client
        has ended, or has not connected again since the daemon restarted."""
        return frozenset(c.id for c in self._state.clients.values() if not c.attached)

    def floor(self, log_id: int) -> int | None:
        """Return the position of the oldest needed data of a log; None: no consumer group needs the
        log. Any thread."""
        return self._state.floor(log_id)

    def in_use(self) -> InUse:
        """Return the logs, counters and slots that registered objects use."""
        return InUse(
            logs=frozenset(logs_in_use(self._state)),
            counters=frozenset(counters_in_use(self._state)),
            slots=frozenset(slots_in_use(self._state)),
        )

    # ---- events ----

    def _event_handlers(self) -> dict[type[events.DriverEvent], Callable[[Any], None]]:
        state = self._state
        return {
            events.Setup: lambda e: self._start(images.on_setup(state, e)),
            events.ImageEstablished: lambda e: self._start(
                images.on_established(state, e.id)
            ),
            events.ImageInactive: lambda e: images.on_inactive(state, e),
            events.ImageDrained: lambda e: images.on_drained(state, e),
            events.PublicationConnected: lambda e: state.event(
                "publication_connected", publication_id=e.id, connected=bool(e.connected)
            ),
            events.PublicationDrained: lambda e: publications.on_drained(state, e.id),
            events.EndConfirmed: lambda e: publications.on_end_confirmed(state, e.id),
            events.Blocked: self._on_blocked,
            events.Unblocked: lambda e: state.event(
                "publication_unblocked", publication_id=e.id, position=e.position, bytes=e.bytes
            ),
            events.TermNeeded: lambda e: self._start(
                on_term_needed(state, e.kind, e.id, e.wanted)
            ),
            events.TermsReleased: lambda e: on_terms_released(state, e),
            events.Join: lambda e: joins.on_join(state, e),
            events.PressureTriggered: lambda e: pressure.on_pressure(state, e),
            events.PressureRelieved: lambda e: pressure.on_pressure(state, e),
            events.ReaderLagged: lambda e: pressure.on_reader(state, self._link_of(e), e),
            events.Released: self._on_released,
            events.EndpointError: self._on_endpoint_error,
            events.DestinationChanged: lambda e: send_endpoints.on_destination(state, e),
            events.RemoteError: self._on_remote_error,
            events.Silent: self._on_silent,
            events.Loss: self._on_loss,
            events.SecondSource: lambda e: images.on_second_source(state, e),
            events.SubscriberChanged: lambda e: self._start(self._on_tether(e)),
        }

    def _start(self, saga: Saga[Any]) -> None:
        """Starts work that no client waits for."""
        self._state.runner.start(saga, self._ended)

    def _ended(self, value: Any, error: Refused | None) -> None:
        if error is not None:
            report_refusal(self._state, "housekeeping", error)

    def _on_blocked(self, event: events.Blocked) -> None:
        """A claim blocks a publication. The sender pads over a dead client's claim at once, and
        over a slow client's claim after the time-out."""
        self._state.event(
            "publication_blocked", publication_id=event.id, position=event.position,
            client_slot=event.client_slot,
        )
        alive = any(c.slot == event.client_slot and c.alive for c in self._state.clients.values())
        if event.client_slot >= 0 and not alive and event.id in self._state.publications:
            self._state.emit(
                UnblockPublication(publication_id=event.id, client_slot=event.client_slot)
            )

    def _on_released(self, event: events.Released) -> None:
        match event.kind:
            case ObjectKind.PUBLICATION:
                publications.on_released(self._state, event.id)
            case ObjectKind.IMAGE:
                images.on_released(self._state, event.id)
            case ObjectKind.SEND_ENDPOINT:
                send_endpoints.on_released(self._state, event.id)
            case ObjectKind.RECV_ENDPOINT:
                recv_endpoints.on_released(self._state, event.id)
            case ObjectKind.RECV_DESTINATION:
                recv_endpoints.on_destination_released(self._state, event.id, event.destination_id)
        self._state.runner.on_release()

    def _on_endpoint_error(self, event: events.EndpointError) -> None:
        sender = self._state.send_endpoints.get(event.id)
        receiver = self._state.recv_endpoints.get(event.id)
        endpoint = sender or receiver
        if endpoint is None:
            return
        self._state.emit(
            SetCounter(counter_id=endpoint.status_counter, value=ChannelStatus.ERRORED)
        )
        self._state.error("socket", endpoint.channel, f"{endpoint.channel}: {event.text}")
        self._state.event("endpoint_error", channel=endpoint.channel, message=event.text)

    def _on_remote_error(self, event: events.RemoteError) -> None:
        publication = self._state.publications.get(event.id)
        if publication is None:
            return
        source = str(event.source)
        if not self._is_due(publication, event.receiver_id):
            return
        for registration_id, owner in publication.links.items():
            notice = PublicationError(
                registration_id=registration_id, receiver_id=event.receiver_id, source=source,
                code=event.code, message=event.text,
                count=publication.rejections[event.receiver_id].count,
            )
            self._state.notify(owner, notice)
        text = (
            f"onPublicationError: registrationId={event.id}, receiverId={event.receiver_id}, "
            f"source={source}, errorCode={event.code}, errorMessage={event.text}"
        )
        self._state.error("publication_error", event.source or "", text)
        self._state.event(
            "publication_error", publication_id=event.id, source=source, code=event.code,
            message=event.text,
        )

    def _is_due(self, publication: Publication, receiver_id: int) -> bool:
        """Count a repeated ERR frame; return whether to notify publishers, at most once a
        second."""
        known = publication.rejections
        notified = known.pop(receiver_id, None)
        if notified is None:
            notified = Rejection(notified_ns=self._state.now_ns - SECOND_NS)
            if len(known) >= _REJECTIONS:
                del known[next(iter(known))]
        known[receiver_id] = notified
        notified.count += 1
        if self._state.now_ns - notified.notified_ns < SECOND_NS:
            return False
        notified.notified_ns = self._state.now_ns
        return True

    def _on_silent(self, event: events.Silent) -> None:
        """Resolve the names of an endpoint again, at most once in an interval."""
        state = self._state
        sender = state.send_endpoints.get(event.id)
        receiver = state.recv_endpoints.get(event.id)
        endpoint = sender or receiver
        if endpoint is None or state.now_ns < endpoint.next_resolution_ns:
            return
        endpoint.next_resolution_ns = state.now_ns + state.settings.resolution_interval_ns
        if sender is not None:
            self._start(send_endpoints.resolve_again(state, sender, event.source))
        elif receiver is not None:
            self._start(recv_endpoints.resolve_again(state, receiver))

    def _on_loss(self, event: events.Loss) -> None:
        image = self._state.images.get(event.id)
        if image is None:
            return
        image.lost_bytes += event.bytes
        self._state.emit(
            ReportLoss(
                lost_bytes=event.bytes, gaps=event.gaps, session_id=image.session_id,
                stream_id=image.stream_id, channel=image.endpoint.channel,
                source=str(image.source),
                settled=image.established
                and self._state.now_ns - image.established_ns >= _SETTLED_NS,
            )
        )
        self._state.event(
            "loss", image_id=event.id, bytes=event.bytes, gaps=event.gaps, position=event.position
        )

    def _link_of(
        self, event: events.SubscriberChanged | events.ReaderLagged
    ) -> SubscriberLink | None:
        source = self._state.images.get(event.id) or self._state.publications.get(event.id)
        links = source.subscribers.values() if source is not None else ()
        return next((link for link in links if link.counter_id == event.position_counter_id), None)

    def _on_tether(self, event: events.SubscriberChanged) -> Saga[None]:
        """An untethered subscriber fell behind, or may join again."""
        link = self._link_of(event)
        if link is None:
            return
        if event.state == TetherState.LINGER:
            link.resting = True
            note_link(self._state, link)
            withdraw(self._state, link, "lagged")
        elif event.state == TetherState.CLOSED:
            unlink(self._state, link)
        elif event.state == TetherState.ACTIVE and link.resting:
            position: int = yield ReadCounter(counter_id=link.counter_id)
            link.resting = False
            note_link(self._state, link)
            announce(self._state, link, position)
