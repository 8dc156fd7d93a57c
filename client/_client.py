# SPDX-License-Identifier: Apache-2.0
"""The client: the connection of a process to the daemon of its host."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import attrs

from penstock.client._classes import client_classes
from penstock.client._counters import Counter, Counters
from penstock.client._credit_options import Credits, CreditsGiven, credits_of
from penstock.client._defaults import DEFAULT_TIMEOUT_S
from penstock.client._directory import gone_text
from penstock.client._fork import call_in_child
from penstock.client._handles import subscription_class
from penstock.client._parking import Parking
from penstock.client._port import DriverPort, Lease, PortState, Request
from penstock.client._publication import Publication, SessionCallback
from penstock.client._registration import (
    Addition,
    Registration,
    add_again,
    checked_channel,
    checked_i32,
    client_params,
    removal_of,
)
from penstock.client._restart import Bell
from penstock.client._schemas import optional_codec
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

if TYPE_CHECKING:
    from penstock.client._consumer import ConsumerGroup
    from penstock.client._requester import Requester
    from penstock.client._schemas import AnySchema
    from penstock.client._service import RequestHandler, Service
    from penstock.client._typed import TypedPublication, TypedSubscription
    from penstock.client._typed_groups import TypedConsumerGroup

Starting: TypeAlias = Literal["latest", "earliest"]
Resource: TypeAlias = Publication | Subscription | Counter
T = TypeVar("T")
_R = TypeVar("_R", Publication, Subscription, Counter)

class Client:
    """Adds publications, subscriptions and counters at the host's daemon.

    Made by :func:`penstock.connect`. May be shared by threads. At the end of a ``with`` block the
    client closes itself and all objects that it has added. They cannot be used afterwards. In a
    forked child every call raises ``ForkedError``; connect again in the child.
    """

    def __init__(
        self,
        port: DriverPort,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        library: core.Library = core.CORE,
        name: str = "",
        credits: Credits | None = None,
    ) -> None:
        """``timeout_s`` is the longest wait for an answer of the daemon, in seconds. ``library`` is
        the core library that the client calls; the simulator passes its own library."""
        self._port = port
        self.name = name
        self._credits = credits
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
        params = self._params = client_params(port.lease)
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
        """The id that the daemon assigned to this client."""
        return self._port.lease.client_id

    @property
    def daemon_version(self) -> str:
        return self._port.lease.daemon_version

    @property
    def is_closed(self) -> bool:
        return self._port.state is PortState.CLOSED

    @property
    def is_daemon_alive(self) -> bool:
        """Whether a live daemon serves this client. While the client waits for a new daemon, the
        value is False, and offers return DAEMON_AWAY."""
        state = self._port.state
        return state is PortState.OPEN or (state is PortState.AWAY and not self._bell.is_away)

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """Publications, subscriptions and counters that this client has added and not removed."""
        with self._lock:
            return tuple(self._registrations.values())

    @property
    def counters(self) -> Counters:
        """The values of all counters of the daemon, read from shared memory."""
        self._check()
        return Counters(self)

    # ---- adding ----------------------------------------------------------------------------------

    @overload
    def add_publication(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication: ...

    @overload
    def add_publication(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_session_lost: SessionCallback | None = None,
    ) -> TypedPublication[T]: ...

    @overload
    def add_publication(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_session_lost: SessionCallback | None = None,
    ) -> TypedPublication[Any]: ...

    def add_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication | TypedPublication[Any]:
        """Add a publication, which other clients of this daemon can share.

        :param channel: an Aeron URI, for example ``aeron:udp?endpoint=10.0.0.2:40456``.
        :param stream_id: 32 bits.
        :param schema: what the stream carries in place of bytes: a dataclass, an attrs class, a
            NumPy dtype, an Arrow schema, or ``"msgpack"``.
        :param on_session_lost: called with a :class:`LostSession`, on a thread of the client, when
            the daemon died and the new daemon could not continue the session.
        :raises ChannelRefused: the daemon refuses the channel, with a reason and a ``code``.
        :raises StorageError: shared memory cannot hold the log.
        :raises DaemonGone: the daemon died.
        """
        return self._add_publication(channel, stream_id, schema, on_session_lost, exclusive=False)

    @overload
    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication: ...

    @overload
    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_session_lost: SessionCallback | None = None,
    ) -> TypedPublication[T]: ...

    @overload
    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_session_lost: SessionCallback | None = None,
    ) -> TypedPublication[Any]: ...

    def add_exclusive_publication(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_session_lost: SessionCallback | None = None,
    ) -> Publication | TypedPublication[Any]:
        """Add a publication with its own session, for one thread at a time. An exclusive
        publication is a little faster than a shared publication."""
        return self._add_publication(channel, stream_id, schema, on_session_lost, exclusive=True)

    @overload
    def add_subscription(
        self, channel: str, stream_id: int, *, schema: None = None,
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> Subscription: ...

    @overload
    def add_subscription(
        self, channel: str, stream_id: int, *, schema: type[T],
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> TypedSubscription[T]: ...

    @overload
    def add_subscription(
        self, channel: str, stream_id: int, *, schema: AnySchema,
        on_available: ImageCallback | None = None, on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None, credits: CreditsGiven = None,
    ) -> TypedSubscription[Any]: ...

    def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        schema: Any = None,
        on_available: ImageCallback | None = None,
        on_unavailable: ImageCallback | None = None,
        on_gap: GapCallback | None = None,
        credits: CreditsGiven = None,
    ) -> Subscription | TypedSubscription[Any]:
        """Add a subscription, which receives a stream.

        :param schema: as for :meth:`add_publication`.
        :param on_available: called with each new image, on the thread that polls, waits or asks
            for images, before the first message of it is handed out.
        :param on_unavailable: called with an image that has ended, before the client closes it.
        :param on_gap: called with a :class:`Gap` for each range of permanently missing messages.
        :param credits: messages that may be outstanding: a number, ``auto``, or a :class:`Credits`;
            default: the client's, from ``connect(credits=...)``.
        :raises ChannelRefused: with the daemon's reason and a ``code``.
        """
        codec, grant = optional_codec(schema), credits_of(credits, self._credits, channel)
        if grant is not None:
            channel = grant.in_channel(checked_channel(channel))
        request = control.AddSubscription(
            channel=checked_channel(channel), stream_id=checked_i32(stream_id)
        )
        self._check()
        ready = self._port.add_subscription(request, self._timeout_s)
        made = self._keep(
            ready.registration_id,
            request,
            lambda: subscription_class(self._classes, grant, schema)(
                self, channel, ready, on_available=on_available, on_unavailable=on_unavailable,
                on_gap=on_gap,
            ),
            control.RemoveSubscription(registration_id=ready.registration_id),
        )
        return made if codec is None else codec.subscription(made)

    def requester(self, channel: str, stream_id: int) -> Requester:
        """Return a requester, which sends requests to the servers of a stream (:meth:`serve`).

        :param channel: an Aeron URI without ``session-id``, as for :meth:`add_publication`.
        :raises ChannelRefused: the daemon refuses the channel, with a reason and a ``code``.
        """
        from penstock.client._requester import Requester

        return Requester(self, channel, stream_id)

    def serve(
        self,
        channel: str,
        stream_id: int,
        *,
        concurrency: int = 1,
        reply_timeout_s: float = 1.0,
    ) -> Callable[[RequestHandler], Service]:
        """Decorate a function that serves requests: ``@client.serve("aeron:ipc", 10)``.

        The function is called with each request, a :class:`Message`, and returns the reply: bytes,
        a buffer, a list of buffers, or None for an empty reply.  If the function raises, the
        requester gets a :class:`RemoteError`. The decorated function becomes a :class:`Service`;
        call ``run()`` of this object to serve requests.

        :param channel: an Aeron URI, as for :meth:`add_subscription`.
        :param concurrency: number of calls of the function at once, each in a separate thread.
        :param reply_timeout_s: how long a requester that takes no replies can hold one, in seconds;
            then the reply is dropped and counted.
        """
        from penstock.client._service import Answering, Service

        answering = Answering(self, channel, stream_id, reply_timeout_s)
        return lambda handler: Service(handler, answering, concurrency)

    @overload
    def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: None = None,
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> ConsumerGroup: ...

    @overload
    def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: type[T],
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> TypedConsumerGroup[T]: ...

    @overload
    def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: AnySchema,
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> TypedConsumerGroup[Any]: ...

    def consumer_group(
        self, name: str, channel: str, stream_id: int, *, schema: Any = None,
        starting: Starting = "latest", expiry_s: float = 600.0, credits: CreditsGiven = None,
    ) -> ConsumerGroup | TypedConsumerGroup[Any]:
        """Join a consumer group as a member; the first member opens the group.

        :param name: name of the group, at most 80 characters.
        :param schema: as for :meth:`add_publication`.
        :param starting: start in streams that exist when the group is opened: ``latest``, after all
            present data; ``earliest``, at the oldest data that the log certainly contains.
        :param expiry_s: if no member sends a request for this time, the daemon ends the group.
        :param credits: largest number of messages that are sent and not committed, or `Credits`.
        :raises UnreliableStream: the flow control of the stream does not wait for slow receivers.
        :raises GroupOwned: another reader, for example a Spark query, uses the group.
        """
        from penstock.client._consumer import ConsumerGroup
        from penstock.client._group_credits import group_channel

        codec = optional_codec(schema)
        channel = group_channel(credits, self._credits, name, channel)
        group = ConsumerGroup(self, name, channel, stream_id, starting=starting, expiry_s=expiry_s)
        return group if codec is None else codec.group(group)

    def add_counter(
        self, label: str, *, type_id: int = 1001, key: bytes = b"", value: int = 0
    ) -> Counter:
        """Add a counter in the daemon's shared memory; the daemon's tools show it.

        :param label: at most 380 bytes of text.
        :param type_id: type of the counter and its key; applications use types from 1000 on.
        :param key: the counter's key, at most 112 bytes.
        """
        if not isinstance(label, str) or not isinstance(key, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"a counter's label is text and its key is bytes, not {label!r} and {key!r}"
            )
        if len(label.encode()) > 380 or len(key) > 112:
            raise InvalidArgument("a counter's label has at most 380 bytes, its key at most 112")
        request = control.AddCounter(
            type_id=checked_i32(type_id, "a counter's type id"), key=bytes(key), label=label
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
        """Return the daemon's present state as plain data (dicts, lists, numbers and text)."""
        self._check()
        return self._port.status(self._timeout_s).snapshot

    # ---- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all objects that the client has added, then close the connection to the daemon.
        Further calls of ``close``, and calls in a forked child, do nothing."""
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

    def _repr_html_(self) -> str:
        from penstock.client._html import client_html

        return client_html(self)

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
            raise ForkedError("this client belongs to the parent process: connect again")

    def _check(self) -> None:
        """Raise if this client can no longer be used."""
        self._check_fork()
        state = self._port.state
        if state is PortState.CLOSED:
            raise ClosedError("the client is closed")
        if state is PortState.GONE:
            raise DaemonGone(gone_text(self.directory, self._port.why_gone))

    def _resources_of(self, registrations: Iterable[int]) -> list[Resource]:
        with self._lock:
            return [self._resources[r] for r in registrations if r in self._resources]

    def _suspend(self, lost: Iterable[int]) -> None:
        """Suspend publications that a new daemon could not adopt, until they are added again."""
        for resource in self._resources_of(lost):
            if isinstance(resource, Publication):
                resource._suspend()

    def _recover(self, lost: Iterable[int] | None, lease: Lease | None) -> None:
        """Add again the objects that a new daemon could not adopt. ``lease``: it adopted none, so
        its directory must be mapped again. Runs on its own thread."""
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
            self._port.close()       # a partly recovered client is useless
            core.client_wake(self._handle)

    def _take(self, lost: Iterable[int] | None) -> list[tuple[Resource, Registration]]:
        """Take the objects to be added again out of the tables, because new ids may equal old
        ones."""
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
        params = client_params(lease)
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
        ready = add_again(self._port, known.request, self._timeout_s)
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
            if known is not None and request.channel:
                self._registrations[request.registration_id] = known.after(request)

    def _remove(self, resource: Resource, request: Request) -> None:
        """Remove an object from this client first, then from the daemon if there is one."""
        with self._lock:
            self._resources.pop(resource.registration_id, None)
            self._registrations.pop(resource.registration_id, None)
        resource._drop()
        if self._forked:
            return
        core.client_wake(self._handle)  # wake waiters, which must see that it is closed
        if self._port.state not in (PortState.OPEN, PortState.AWAY):
            return
        try:
            self._port.perform(request, self._timeout_s)
        except DaemonGone:
            return  # the registration ended with the daemon
        finally:
            self._port.forget(resource.registration_id)

    def _add_publication(
        self, channel: str, stream_id: int, schema: Any, on_lost: SessionCallback | None, *,
        exclusive: bool, relay_path: list[int] | None = None,
    ) -> Publication | TypedPublication[Any]:
        codec = optional_codec(schema)
        request = control.AddPublication(
            channel=checked_channel(channel), stream_id=checked_i32(stream_id),
            exclusive=exclusive, relay_path=relay_path or [],
        )
        self._check()
        ready = self._port.add_publication(request, self._timeout_s)
        made = self._keep(
            ready.registration_id,
            request,
            lambda: self._classes.publication(self, channel, ready, on_session_lost=on_lost),
            control.RemovePublication(registration_id=ready.registration_id),
        )
        return made if codec is None else codec.publication(made)

    def _keep(
        self, registration_id: int, request: Addition, make: Callable[[], _R], removal: Request
    ) -> _R:
        """Make the local object of a registration; on failure remove the registration."""
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
