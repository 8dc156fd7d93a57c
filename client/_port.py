# SPDX-License-Identifier: Apache-2.0
"""Define the driver port: the object through which a client exchanges all messages with its daemon.
The simulator replaces this object.

:class:`penstock.client.Client` knows only this protocol. :mod:`penstock.client._zmq_port`
    implements it over ZeroMQ; the simulator and tests have their own.
"""

from __future__ import annotations

import enum
from collections import deque
from pathlib import Path
from typing import Protocol, TypeAlias

import attrs

from penstock.config.protocol import control

Notice: TypeAlias = (
    control.ImageAvailable
    | control.ImageUnavailable
    | control.SubscriptionResumed
    | control.PublicationError
)
Request: TypeAlias = (
    control.AddPublication
    | control.RemovePublication
    | control.AddSubscription
    | control.RemoveSubscription
    | control.AddDestination
    | control.RemoveDestination
    | control.AddCounter
    | control.RemoveCounter
    | control.RejectImage
    | control.WithholdCredits
    | control.GetStatus
)


@attrs.frozen(kw_only=True)
class Lease:
    """The daemon's answer to a client that connects: ids, and file descriptors. The core's client
    object owns the file descriptors of the lease. When the client object is closed, it closes these
    descriptors."""

    directory: Path
    client_id: int
    client_slot: int
    daemon_id: int
    daemon_epoch: int
    daemon_version: str
    sender_wake_fd: int
    receiver_wake_fd: int
    watch_fd: int = -1
    """Written when something happens while the client watches; -1: it did not ask for one."""

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """All descriptors of the lease."""
        return self.sender_wake_fd, self.receiver_wake_fd, self.watch_fd


class PortState(enum.Enum):
    """Life of a port.  The port's state may change between OPEN and AWAY several times; GONE and
    CLOSED are final."""

    OPEN = "open"
    AWAY = "away"
    """The daemon hung up, and a new daemon is waited for."""
    GONE = "gone"
    """The daemon hung up, and no new daemon came in time."""
    CLOSED = "closed"
    """This side closed it."""


class Listener(Protocol):
    """Callbacks of a port. The port calls the listener's methods in the port's thread, so these
    methods must return quickly and never raise."""

    def on_notice(self) -> None:
        """Called when a notice from the daemon has arrived. The notice is in the queue of the
        publication, subscription or counter that it concerns."""

    def on_away(self) -> None:
        """Called when the daemon has closed the connection and the client waits for a new daemon;
        the port's state is already AWAY."""

    def on_back(self, lease: Lease, lost: frozenset[int], same: bool) -> None:
        """Called when a new daemon has accepted the client. ``lease`` has the new ids and file
        descriptors; the listener must close the descriptors of ``lease`` later.

        :param lost: registrations that the client must add again.
        :param same: whether the new daemon adopted this client, with the client's id, slot and
            files.
        """

    def on_gone(self) -> None:
        """Called when the client has lost its daemon permanently; the port's state is already
        GONE."""


class DriverPort(Protocol):
    """Interface of a client's connection to its daemon.  All methods may be called from any thread.

    Requests block until the reply arrives. If the daemon refuses a request, the method raises
    ``ChannelRefused`` or ``StorageError``. Requests can also raise ``TimeoutExpired``,
    ``DaemonGone`` and ``ClosedError``.
    """

    @property
    def lease(self) -> Lease: ...

    @property
    def state(self) -> PortState: ...

    @property
    def why_gone(self) -> str:
        """Why the state is GONE, as a part of a sentence; empty: unknown."""

    def listen(self, listener: Listener) -> None:
        """Set the listener that gets the callbacks; the port keeps only a weak reference to the
        listener."""

    def add_publication(
        self, request: control.AddPublication, timeout_s: float
    ) -> control.PublicationReady: ...

    def add_subscription(
        self, request: control.AddSubscription, timeout_s: float
    ) -> control.SubscriptionReady: ...

    def add_counter(
        self, request: control.AddCounter, timeout_s: float
    ) -> control.CounterReady: ...

    def perform(self, request: Request, timeout_s: float) -> control.Done:
        """Send a request that the daemon answers with the message Done."""

    def status(self, timeout_s: float) -> control.Status: ...

    def notices(self, registration_id: int) -> deque[Notice]:
        """Return the queue of the daemon's notices about a registration. The queue contains all
        notices since the reply to the request that created the registration."""

    def forget(self, registration_id: int) -> None:
        """Delete the queue of notices about a registration that was removed."""

    def close(self) -> None:
        """End the lease.  Idempotent."""

    def abandon_in_child(self) -> None:
        """In a forked child, close the child's copies of file descriptors. ``abandon_in_child``
        must not affect the parent process, with which the child shares sockets and memory."""


@attrs.frozen(kw_only=True)
class Returning:
    """A client whose process has ended, and which this process takes over: the client's id, its
    secret, and the ids of its registrations."""

    client_id: int
    token: bytes = attrs.field(repr=False)
    registrations: frozenset[int]


class RelayPort(DriverPort, Protocol):
    """Interface of a relay's connection to its daemon: the next process of the relay can take over
    the client."""

    @property
    def token(self) -> bytes:
        """Secret that proves the client's identity to the daemon."""

    @property
    def resumed(self) -> frozenset[int] | None:
        """Registrations that this process has from an ended one; None: the daemon did not know
        the ended process's client."""
