# SPDX-License-Identifier: Apache-2.0
"""The connection of a simulated client to its daemon. Instead of using a socket, this connection
calls the methods of the host's conductor.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from penstock.client._port import Lease, Listener, Notice, PortState, Request, Returning
from penstock.config.protocol import control
from penstock.core.errors import ChannelRefused, ClosedError, DaemonGone, StorageError

if TYPE_CHECKING:
    from penstock.sim.world.host import Host

_T = TypeVar("_T")


class SimPort:
    """Implements :class:`penstock.client._port.RelayPort`, which describes the methods."""

    def __init__(self, host: Host, lease: Lease, token: bytes) -> None:
        self._host = host
        self._lease = lease
        self.token = token
        self.resumed: frozenset[int] | None = None
        self._state = PortState.OPEN
        self._listener: weakref.ref[Listener] | None = None
        self._correlation = 0
        self._replies: dict[int, Any] = {}
        self._notices: dict[int, deque[Notice]] = {}
        self._known: set[int] = set()       # registrations

    @property
    def lease(self) -> Lease:
        return self._lease

    def take_watch(self, fd: int) -> None:
        """Add an eventfd to the lease. The lease contains the resources that the client gets when
        it is created. The client then owns the eventfd. Call this method before the client is
        created.
        """
        self._lease = attrs.evolve(self._lease, watch_fd=fd)

    @property
    def state(self) -> PortState:
        return self._state

    @property
    def why_gone(self) -> str:
        return ""

    def listen(self, listener: Listener) -> None:
        self._listener = weakref.ref(listener)

    def add_publication(
        self, request: control.AddPublication, timeout_s: float
    ) -> control.PublicationReady:
        return self._call(request, control.PublicationReady)

    def add_subscription(
        self, request: control.AddSubscription, timeout_s: float
    ) -> control.SubscriptionReady:
        return self._call(request, control.SubscriptionReady)

    def add_counter(self, request: control.AddCounter, timeout_s: float) -> control.CounterReady:
        return self._call(request, control.CounterReady)

    def perform(self, request: Request, timeout_s: float) -> control.Done:
        return self._call(request, control.Done)

    def status(self, timeout_s: float) -> control.Status:
        raise ChannelRefused("a simulated daemon reports no status", code="not_supported")

    def notices(self, registration_id: int) -> deque[Notice]:
        return self._notices.setdefault(registration_id, deque())

    def forget(self, registration_id: int) -> None:
        self._known.discard(registration_id)
        self._notices.pop(registration_id, None)

    def close(self) -> None:
        if self._state in (PortState.OPEN, PortState.AWAY):
            self._state = PortState.CLOSED
            self._host.end_lease(self._lease.client_id)

    def abandon_in_child(self) -> None:
        self._state = PortState.CLOSED

    # ---- from the host ---------------------------------------------------------------------------

    def take_reply(self, correlation_id: int, message: Any) -> None:
        if isinstance(message, control.SubscriptionReady | control.PublicationReady):
            self._notices.setdefault(message.registration_id, deque())
            self._known.add(message.registration_id)
        self._replies[correlation_id] = message

    def take_notice(self, notice: Any) -> None:
        if isinstance(notice, control.PublicationError):
            registration = notice.registration_id
        else:
            registration = notice.subscription_id
        queue = self._notices.get(registration)
        if queue is None:
            return
        queue.append(notice)
        listener = self._listener() if self._listener is not None else None
        if listener is not None:
            listener.on_notice()

    def take_absence(self) -> None:
        """Record the daemon's death; the client waits for a new daemon."""
        if self._state is PortState.OPEN:
            self._state = PortState.AWAY
            listener = self._listener() if self._listener is not None else None
            if listener is not None:
                listener.on_away()

    def take_return(self, lease: Lease) -> None:
        """Record that a new daemon has adopted the client of a dead daemon."""
        if self._state is not PortState.AWAY:
            return
        self._state = PortState.OPEN
        self._lease = lease
        resumed = self._call(
            control.Resume(registration_ids=sorted(self._known)), control.Resumed
        )
        lost = frozenset(self._known - set(resumed.registration_ids))
        if lost:
            raise AssertionError(f"the new daemon lost registrations {sorted(lost)}")
        listener = self._listener() if self._listener is not None else None
        if listener is not None:
            listener.on_back(lease, lost, True)

    def take_over(self, returning: Returning) -> None:
        """Take over the registrations of an ended application."""
        for registration_id in returning.registrations:
            self.notices(registration_id)
        resume = control.Resume(registration_ids=sorted(returning.registrations))
        kept = self._call(resume, control.Resumed).registration_ids
        self._known.update(kept)
        self.resumed = frozenset(kept)

    def take_hangup(self) -> None:
        """The daemon died."""
        if self._state is PortState.OPEN:
            self._state = PortState.GONE
            listener = self._listener() if self._listener is not None else None
            if listener is not None:
                listener.on_gone()

    def _call(self, request: Any, expected: type[_T]) -> _T:
        if self._state in (PortState.GONE, PortState.AWAY):
            raise DaemonGone("the simulated daemon is gone")
        if self._state is PortState.CLOSED:
            raise ClosedError("the client is closed")
        self._correlation += 1
        correlation = self._correlation
        self._host.command(self._lease.client_id, correlation, request)
        reply = self._replies.pop(correlation, None)
        if isinstance(reply, control.Failure):
            if reply.code == "storage":
                raise StorageError(reply.message)
            raise ChannelRefused(reply.message, code=reply.code)
        if not isinstance(reply, expected):
            raise AssertionError(f"{request} was answered with {reply}")
        return reply
