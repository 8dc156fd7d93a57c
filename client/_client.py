# SPDX-License-Identifier: Apache-2.0
"""The client: one process's (or part of a process's) connection to its host's daemon."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import index
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs

from penstock.client._classes import client_classes
from penstock.client._counters import Counter, Counters
from penstock.client._defaults import DEFAULT_TIMEOUT_S
from penstock.client._fork import call_in_child
from penstock.client._parking import Parking
from penstock.client._port import DriverPort, Lease, PortState, Request
from penstock.client._publication import Publication, SessionCallback
from penstock.client._restart import Bell
from penstock.client._subscription import GapCallback, ImageCallback, Subscription
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.errors import (
    ClosedError,
    DaemonGone,
    ForkedError,
    InvalidArgument,
    PenstockError,
)

Resource: TypeAlias = Publication | Subscription | Counter
_R = TypeVar("_R", Publication, Subscription, Counter)
Addition: TypeAlias = control.AddPublication | control.AddSubscription | control.AddCounter

_MAX_CHANNEL = control.MAX_CHANNEL_CHARS


@attrs.frozen(kw_only=True)
class Registration:
    """Record of one request, so that the client can repeat it to another daemon."""

    registration_id: int
    request: Addition
    destinations: tuple[str, ...] = ()


class Client:
    """Adds publications, subscriptions and counters at the host's daemon.

    Made by :func:`penstock.connect`. May be shared by threads. A context manager that closes itself
    and everything added through it; after that nothing of it can be used. In a forked child every
    use raises ``ForkedError``; connect again in the child.
    """

    def __init__(
        self,
        port: DriverPort,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        library: core.Library = core.CORE,
    ) -> None:
        """``timeout_s`` bounds every exchange with the daemon, in seconds; ``library`` is the
        core that does the work: the simulator has one of its own."""
        self._port = port
        self._library = library
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._classes = client_classes(library)
        self._lock = threading.Lock()
        self._resources: dict[int, Resource] = {}
        self._registrations: dict[int, Registration] = {}
        self._forked = False
        #: Called on any thread when another descriptor is to be watched.
        self._on_watch_renewed: Callable[[], object] | None = None
        params = self._params = _params(port.lease)
        try:
            self._handle: core.ClientHandle = core.client_open(params, library)
        except BaseException:
            port.close()
            raise
        self._bell = Bell(self, self._handle, params)
        self._park = self._classes.parking(self._handle, self._check)
        self._finalizer = weakref.finalize(self, port.close)
        port.listen(self._bell)
        if port.state in (PortState.GONE, PortState.AWAY):
            self._bell.on_gone()
        call_in_child(self._after_fork_in_child)

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The daemon's directory."""
        return self._port.lease.directory

    @property
    def client_id(self) -> int:
        """The daemon's number of this client."""
        return self._port.lease.client_id

    @property
    def daemon_version(self) -> str:
        return self._port.lease.daemon_version

    @property
    def is_closed(self) -> bool:
        return self._port.state is PortState.CLOSED

    @property
    def is_daemon_alive(self) -> bool:
        """Whether the daemon holds this client's lease. False while the client waits for a new
        daemon and offers answer DAEMON_AWAY."""
        state = self._port.state
        return state is PortState.OPEN or (state is PortState.AWAY and not self._bell.is_away)

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """Publications, subscriptions and counters that this client has added and not removed."""
        with self._lock:
            return tuple(self._registrations.values())

    @property
    def counters(self) -> Counters:
        """Values of all counters of the daemon."""
        self._check()
        return Counters(self)

    # ---- adding ----------------------------------------------------------------------------------

    def add_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication:
        """A publication that other clients of this daemon may share.

        :param channel: an Aeron URI, e.g. ``aeron:udp?endpoint=10.0.0.2:40456``.
        :param stream_id: 32 bits.
        :param on_session_lost: called with a :class:`LostSession`, on a thread of the client, when
            the daemon died and the new daemon could not go on with the session.
        :raises ChannelRefused: with the daemon's reason and a ``code``.
        :raises StorageError: shared memory cannot hold the log.
        :raises DaemonGone: the daemon died.
        """
        return self._add_publication(channel, stream_id, on_session_lost, exclusive=False)

    def add_exclusive_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication:
        """A publication with a session of its own, for one thread at a time; a little faster."""
        return self._add_publication(channel, stream_id, on_session_lost, exclusive=True)

    def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available: ImageCallback | None = None,
        on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None,
    ) -> Subscription:
        """Receives a stream.

        :param on_available: called with each new image, on the thread that polls, waits or asks
            for images, before the first message of it is handed out.
        :param on_unavailable: called with an image that ended; it is closed after the call.
        :param on_gap: called with a :class:`Gap` where messages are missing for good, in the order
            of the stream.
        :raises ChannelRefused: with the daemon's reason and a ``code``.
        """
        request = control.AddSubscription(channel=_channel(channel), stream_id=_i32(stream_id))
        self._check()
        ready = self._port.add_subscription(request, self._timeout_s)
        return self._keep(
            ready.registration_id,
            request,
            lambda: self._classes.subscription(
                self, channel, ready, on_available=on_available, on_unavailable=on_unavailable,
                on_gap=on_gap,
            ),
            control.RemoveSubscription(registration_id=ready.registration_id),
        )

    def add_counter(
        self, label: str, *, type_id: int = 1001, key: bytes = b"", value: int = 0
    ) -> Counter:
        """A counter in the daemon's shared memory that its tools show.

        :param label: at most 380 bytes of text.
        :param type_id: meaning of the key; application counters start at 1000.
        :param key: at most 112 bytes.
        """
        if not isinstance(label, str) or not isinstance(key, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"a counter's label is text and its key is bytes, not {label!r} and {key!r}"
            )
        if len(label.encode()) > 380 or len(key) > 112:
            raise InvalidArgument("a counter's label has at most 380 bytes, its key at most 112")
        request = control.AddCounter(
            type_id=_i32(type_id, "a counter's type id"), key=bytes(key), label=label
        )
        self._check()
        ready = self._port.add_counter(request, self._timeout_s)
        counter = self._keep(
            ready.registration_id,
            request,
            lambda: Counter(self, label, ready),
            control.RemoveCounter(registration_id=ready.registration_id),
        )
        counter.set(value)
        return counter

    def status(self) -> Mapping[str, Any]:
        """A snapshot of the daemon, as plain data."""
        self._check()
        return self._port.status(self._timeout_s).snapshot

    # ---- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends everything that was added, then the lease.  Idempotent; quiet in a forked child."""
        with self._lock:
            resources = list(self._resources.values())
            self._resources.clear()
            self._registrations.clear()
        for resource in resources:
            resource._drop()
        if os.getpid() == self._pid:
            self._port.close()
            self._finalizer.detach()
            core.client_wake(self._handle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.client_id} of {self.directory} {self._port.state.value}>"

    # ---- for the resources -----------------------------------------------------------------------

    def _native(self) -> core.ClientHandle:
        self._check()
        return self._handle

    def _watched(self) -> tuple[core.ClientHandle, int]:
        """The native client and its eventfd for :func:`penstock.core.client.client_watch`."""
        with self._lock:
            return self._handle, self._params.watch_fd

    def _renew_watch(self) -> None:
        renewed = self._on_watch_renewed
        if renewed is not None:
            renewed()

    def _parking(self) -> Parking:
        self._check_fork()
        return self._park

    def _check_fork(self) -> None:
        if self._forked:
            raise ForkedError("this client belongs to the parent process: connect anew")

    def _check(self) -> None:
        """Raises when this client is of no more use."""
        self._check_fork()
        state = self._port.state
        if state is PortState.CLOSED:
            raise ClosedError("the client is closed")
        if state is PortState.GONE:
            raise DaemonGone(f"the daemon in {self.directory} is gone: connect again")

    def _resources_of(self, registrations: Iterable[int]) -> list[Resource]:
        with self._lock:
            return [self._resources[r] for r in registrations if r in self._resources]

    def _suspend(self, lost: Iterable[int]) -> None:
        """Publications that a new daemon could not adopt take nothing until they are added anew."""
        for resource in self._resources_of(lost):
            if isinstance(resource, Publication):
                resource._suspend()

    def _recover(self, lost: Iterable[int] | None, lease: Lease | None) -> None:
        """Adds anew what a new daemon could not adopt.  ``lease``: it adopted nothing at all, and
        its directory has to be mapped too.  On a thread of its own."""
        taken: list[tuple[Resource, Registration]] = []
        try:
            if lease is not None:
                self._map_again(lease)
            taken = self._take(lost)
            while taken:
                self._add_again(*taken[0])
                taken.pop(0)
            core.client_wake(self._handle)
        except (PenstockError, OSError):
            for resource, _registration in taken:
                resource._drop()
            self._port.close()          # half a client is of no use: every call says so from now on
            core.client_wake(self._handle)

    def _take(self, lost: Iterable[int] | None) -> list[tuple[Resource, Registration]]:
        """What is to be added anew, out of the tables: new ids may equal old ones."""
        with self._lock:
            ids = list(self._resources) if lost is None else list(lost)
            found = [
                (self._resources.pop(r), self._registrations.pop(r))
                for r in ids if r in self._resources
            ]
        for registration_id in ids:
            self._port.forget(registration_id)
        return found

    def _map_again(self, lease: Lease) -> None:
        params = _params(lease)
        handle = core.client_open(params, self._library)
        with self._lock:
            everything = list(self._resources)
        self._suspend(everything)
        with self._lock:
            old, self._handle, self._params = self._handle, handle, params
        self._bell.replace(handle, params)
        self._park.replace(handle)
        self._renew_watch()
        core.client_wake(old)

    def _add_again(self, resource: Resource, known: Registration) -> None:
        ready = self._request_again(known)
        with self._lock:
            closed = resource.is_closed
            if not closed:
                self._resources[ready.registration_id] = resource
                self._registrations[ready.registration_id] = attrs.evolve(
                    known, registration_id=ready.registration_id
                )
        if closed:
            self._port.perform(removal_of(known.request, ready.registration_id), self._timeout_s)
            return
        resource._renew(ready)
        for channel in known.destinations:
            self._port.perform(
                control.AddDestination(registration_id=ready.registration_id, channel=channel),
                self._timeout_s,
            )

    def _request_again(self, known: Registration) -> Any:
        port, request = self._port, known.request
        if isinstance(request, control.AddPublication):
            return port.add_publication(request, self._timeout_s)
        if isinstance(request, control.AddSubscription):
            return port.add_subscription(request, self._timeout_s)
        return port.add_counter(request, self._timeout_s)

    def _perform(self, request: Request) -> control.Done:
        self._check()
        done = self._port.perform(request, self._timeout_s)
        self._remember_destination(request)
        return done

    def _remember_destination(self, request: Request) -> None:
        if not isinstance(request, (control.AddDestination, control.RemoveDestination)):
            return
        with self._lock:
            known = self._registrations.get(request.registration_id)
            if known is None or not request.channel:
                return
            if isinstance(request, control.AddDestination):
                destinations = (*known.destinations, request.channel)
            else:
                destinations = tuple(d for d in known.destinations if d != request.channel)
            self._registrations[request.registration_id] = attrs.evolve(
                known, destinations=destinations
            )

    def _remove(self, resource: Resource, request: Request) -> None:
        """Drops a resource here first, then at the daemon if there still is one."""
        with self._lock:
            self._resources.pop(resource.registration_id, None)
            self._registrations.pop(resource.registration_id, None)
        resource._drop()
        if self._forked:
            return
        core.client_wake(self._handle)  # who waits on it must see that it is closed
        if self._port.state not in (PortState.OPEN, PortState.AWAY):
            return
        try:
            self._port.perform(request, self._timeout_s)
        except DaemonGone:
            return  # with the daemon, the registration went too
        finally:
            self._port.forget(resource.registration_id)

    def _add_publication(
        self, channel: str, stream_id: int, on_lost: SessionCallback | None, *, exclusive: bool
    ) -> Publication:
        request = control.AddPublication(
            channel=_channel(channel), stream_id=_i32(stream_id), exclusive=exclusive
        )
        self._check()
        ready = self._port.add_publication(request, self._timeout_s)
        return self._keep(
            ready.registration_id,
            request,
            lambda: self._classes.publication(self, channel, ready, on_session_lost=on_lost),
            control.RemovePublication(registration_id=ready.registration_id),
        )

    def _keep(
        self, registration_id: int, request: Addition, make: Callable[[], _R], removal: Request
    ) -> _R:
        """Makes the local half of a registration; a failure takes the daemon's half back."""
        try:
            resource = make()
        except BaseException:
            if self._port.state is PortState.OPEN:
                self._port.perform(removal, self._timeout_s)
                self._port.forget(registration_id)
            raise
        with self._lock:
            self._resources[registration_id] = resource
            self._registrations[registration_id] = Registration(
                registration_id=registration_id, request=request
            )
        return resource

    def _after_fork_in_child(self) -> None:
        self._forked = True
        self._lock = threading.Lock()
        self._finalizer.detach()
        for resource in self._resources.values():
            resource._drop()
        self._port.abandon_in_child()


def _params(lease: Lease) -> core.ClientParams:
    return core.ClientParams(
        directory=str(lease.directory),
        client_id=lease.client_id,
        client_slot=lease.client_slot,
        sender_wake_fd=lease.sender_wake_fd,
        receiver_wake_fd=lease.receiver_wake_fd,
        watch_fd=lease.watch_fd,
    )


def removal_of(request: Addition, registration_id: int) -> Request:
    """The request that takes an addition back."""
    if isinstance(request, control.AddPublication):
        return control.RemovePublication(registration_id=registration_id)
    if isinstance(request, control.AddSubscription):
        return control.RemoveSubscription(registration_id=registration_id)
    return control.RemoveCounter(registration_id=registration_id)


def _channel(channel: str) -> str:
    if not isinstance(channel, str):
        raise InvalidArgument(
            f"a channel is text such as 'aeron:ipc', not {channel!r} "
            f"({type(channel).__name__}); the channel comes before the stream id"
        )
    if not 0 < len(channel) <= _MAX_CHANNEL:
        raise InvalidArgument(f"a channel URI has 1 to {_MAX_CHANNEL} characters: {len(channel)}")
    return channel


def _i32(value: int, what: str = "a stream id") -> int:
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgument(
            f"{what} is a whole number, not {value!r} ({type(value).__name__})"
        ) from None
    if not -(2**31) <= number < 2**31:
        raise InvalidArgument(f"{what} has 32 bits, from {-(2**31)} to {2**31 - 1}: {number}")
    return number
