# SPDX-License-Identifier: Apache-2.0
"""Typed classes for the C functions with which the control plane controls the data plane.

Only the conductor's thread may use a :class:`Driver`, unless the docstring of a method states
otherwise. Callers choose an object's id when they create the object, and identify the object by
this id; native pointers stay in this module. A failed call raises the exception of
:func:`penstock.core.errors.native_error`; an unknown id raises KeyError.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from penstock.core._lib import CORE
from penstock.core.admin import Cnc, Shared
from penstock.core.driver_events import DriverEvent, Released, read_event
from penstock.core.driver_types import (
    Address,
    Agent,
    DriverParams,
    ImageParams,
    ImageStatus,
    ImpairParams,
    ObjectKind,
    PublicationParams,
    PublicationStatus,
    ReceiverView,
    RecvDestinationParams,
    RecvEndpointParams,
    SendEndpointParams,
    SubscriberParams,
)
from penstock.core.group_log import GroupLog
from penstock.core.library import Library, NativeObject

_CONGESTION_FIELDS: Final = (
    "window", "least", "most", "received", "consumed", "granted", "losses", "missing", "rtt_ns",
    "least_rtt_ns",
)
_NOT_FOR_C: Final = frozenset({"endpoint_id", "congestion_name"})
_C_NAMES: Final = {
    ObjectKind.SEND_ENDPOINT: "ps_send_endpoint",
    ObjectKind.RECV_ENDPOINT: "ps_recv_endpoint",
    ObjectKind.PUBLICATION: "ps_publication",
    ObjectKind.IMAGE: "ps_image",
}
_RECEIVERS_MAX: Final = 1024


class Net(NativeObject):
    """A network implementation. A driver owns the network that its creator passes to it."""

    @classmethod
    def udp(cls, library: Library = CORE) -> Net:
        """Kernel UDP."""
        return cls(library.lib.ps_net_udp(), library)

    def impaired(self, params: ImpairParams) -> Net:
        """Return a network that sends and receives through this network, but drops, delays and
        damages some datagrams. The returned network owns this network."""
        native = self._ffi.new("ps_impair_params_t *")
        self._fill(native, params)
        wrapped = self._lib.ps_net_impair(self.take(), native)
        if wrapped == self._ffi.NULL:
            self._check(-1003, "make an impaired network")
        return Net(wrapped, self.library)

    def take(self) -> Any:
        """Return the native pointer. Only the first call succeeds."""
        handle, self._handle = self._handle, None
        if handle is None:
            raise ValueError("this network already belongs to another driver")
        return handle

    def free(self) -> None:
        """Free a network that belongs to no driver."""
        if self._handle is not None:
            self._lib.ps_net_free(self.take())


class Driver(NativeObject):
    """The sender and receiver agents with their objects. The driver calls the functions of the
    library in which ``cnc`` was created."""

    def __init__(self, params: DriverParams, *, net: Net, cnc: Cnc, shared: Shared) -> None:
        """:raises InvalidArgument: ``net`` or ``shared`` belongs to another library than
        ``cnc``."""
        super().__init__(None, cnc.library)
        self.library.refuse_others(net=net, shared=shared)
        native = self._ffi.new("ps_driver_params_t *")
        self._lib.ps_driver_params_default(native)
        keep = self._fill(native, params)
        native.net = net.take()
        native.cnc = cnc.handle
        native.shared = shared.handle
        out = self._ffi.new("ps_driver_t **")
        self._check(self._lib.ps_driver_create(native, out), "create the driver")
        del keep                        # copied
        self._handle = out[0]
        self._event = self._ffi.new("ps_event_t *")
        self._send_endpoints: dict[int, Any] = {}
        self._recv_endpoints: dict[int, Any] = {}
        self._publications: dict[int, Any] = {}
        self._images: dict[int, Any] = {}
        self._released: set[tuple[ObjectKind, int]] = set()     # and not destroyed
        self._guard: Final = threading.Lock()   # no object goes while another thread reads one
        self._objects: Final = {
            ObjectKind.SEND_ENDPOINT: self._send_endpoints,
            ObjectKind.RECV_ENDPOINT: self._recv_endpoints,
            ObjectKind.PUBLICATION: self._publications,
            ObjectKind.IMAGE: self._images,
        }

    def start(self) -> None:
        self._check(self._lib.ps_driver_start(self._handle), "start the driver's threads")

    def stop(self) -> None:
        """Stop the agents' threads and wait for their end. All objects stay valid. Idempotent."""
        if self._handle is not None:
            self._lib.ps_driver_stop(self._handle)

    def close(self) -> None:
        """Stop the threads and free all remaining objects. Idempotent."""
        if self._handle is not None:
            self.stop()
            while self.poll_event() is not None:
                pass
            for kind, object_id in list(self._released):    # no agent frees these
                self.destroy(kind, object_id)
            with self._guard:
                self._lib.ps_driver_destroy(self._handle)
                self._handle = None
                for table in self._objects.values():
                    table.clear()

    def step(self, now_ns: int) -> int:
        """INVOKER: one duty cycle.  Returns the work done."""
        return int(self._lib.ps_driver_step(self._handle, now_ns))

    def next_deadline_ns(self, now_ns: int) -> int:
        """In INVOKER mode: return the time at which the next timer of an agent is due."""
        return int(self._lib.ps_driver_next_deadline_ns(self._handle, now_ns))

    def event_fd(self) -> int:
        return int(self._lib.ps_driver_event_fd(self._handle))

    def wake_fd(self, agent: Agent) -> int:
        return int(self._lib.ps_driver_wake_fd(self._handle, int(agent)))

    def wake(self) -> None:
        """Wake both agents.  Any thread."""
        self._lib.ps_driver_wake(self._handle)

    def duty_cycles(self, agent: Agent) -> int:
        return int(self._lib.ps_driver_duty_cycles(self._handle, int(agent)))

    def poll_event(self) -> DriverEvent | None:
        """Return the next event of either agent."""
        event = self._event
        if self._lib.ps_driver_poll_event(self._handle, event) != 1:
            return None
        found = read_event(event, self.library)
        if isinstance(found, Released) and found.kind in self._objects:
            self._released.add((found.kind, found.id))
        return found

    # ---- objects of every kind ----

    def call(
        self, function: str, kind: ObjectKind, object_id: int, *arguments: Any, operation: str
    ) -> None:
        """Call a function of ``ps_driver.h`` whose parameters are the driver, an object and
        ``arguments``.

        :param arguments: numbers, texts, addresses or parameters of a subscriber.
        :param operation: name of the operation in errors.
        :raises KeyError: no object of this kind has this id.
        """
        native = [self._argument(argument) for argument in arguments]
        code = getattr(self._lib, function)(self._handle, self._objects[kind][object_id], *native)
        self._check(code, operation)

    def remove(self, kind: ObjectKind, object_id: int, *arguments: Any) -> None:
        """Request the object's agent to release the object; the agent then emits PS_EV_RELEASED."""
        self.call(
            f"{_C_NAMES[kind]}_remove", kind, object_id, *arguments,
            operation=f"remove {_C_NAMES[kind][3:].replace('_', ' ')} {object_id}",
        )

    def destroy(self, kind: ObjectKind, object_id: int) -> None:
        """Free an object that its agent has released."""
        destroy = getattr(self._lib, f"{_C_NAMES[kind]}_destroy")
        with self._guard:
            destroy(self._handle, self._objects[kind].pop(object_id))
        self._released.discard((kind, object_id))

    def _make(
        self, kind: ObjectKind, verb: str, native: Any, params: Any, *, operation: str
    ) -> None:
        keep = self._fill(native, params, skip=_NOT_FOR_C)
        out = self._ffi.new(f"{_C_NAMES[kind]}_t **")
        make = getattr(self._lib, f"{_C_NAMES[kind]}_{verb}")
        self._check(make(self._handle, native, out), operation)
        del keep                        # copied
        self._objects[kind][params.id] = out[0]

    def _argument(self, value: Any) -> Any:
        match value:
            case Address():
                return self.library.new_address(value)
            case SubscriberParams():
                native = self._ffi.new("ps_subscriber_params_t *")
                self._fill(native, value)
                return native
            case str():
                return value.encode()
        return int(value)

    # ---- send endpoints ----

    def open_send_endpoint(self, params: SendEndpointParams) -> Address | None:
        """Open the sockets of a send endpoint; return the bound address."""
        native = self._ffi.new("ps_send_endpoint_params_t *")
        self._make(ObjectKind.SEND_ENDPOINT, "open", native, params, operation="publish")
        local = self._ffi.new("ps_addr_t *")
        self._lib.ps_send_endpoint_local(self._send_endpoints[params.id], local)
        return self.library.read_address(local)

    # ---- publications ----

    def add_publication(self, params: PublicationParams) -> None:
        native = self._ffi.new("ps_publication_params_t *")
        if params.endpoint_id:
            native.endpoint = self._send_endpoints[params.endpoint_id]
        self._make(ObjectKind.PUBLICATION, "add", native, params, operation="add a publication")

    def release(
        self, *, position: int, position_counter_id: int, subscriber_slot: int,
        publication_slot: int, log: GroupLog | None = None,
    ) -> None:
        """Advance the position of a consumer group, which is a subscriber without a client process.

        :param publication_slot: -1 if the subscriber reads a network image.
        :param log: the log, if the group grants credits. The call then also returns the credits of
            the messages below ``position``.
        """
        params = self._ffi.new("ps_release_params_t *")
        if log is not None:
            params.log = log.native
        params.position = position
        params.position_counter_id = position_counter_id
        params.subscriber_slot = subscriber_slot
        params.publication_slot = publication_slot
        self._check(self._lib.ps_driver_release(self._handle, params), "move a group's position")

    def publication_status(self, publication_id: int) -> PublicationStatus:
        """Return the present state. Any thread.

        :raises KeyError: it has ended.
        """
        out = self._ffi.new("ps_publication_status_t *")
        with self._guard:
            self._lib.ps_publication_get_status(self._publications[publication_id], out)
        return PublicationStatus(
            producer_position=out.producer_position,
            consumer_position=out.consumer_position,
            publisher_limit=out.publisher_limit,
            is_connected=bool(out.is_connected),
            receivers=out.receivers,
            rate_bytes_per_s=out.rate_bytes_per_s,
            pressure_signals=out.pressure_signals,
        )

    def _text(self, field: Any) -> str:
        """Decode a name from another host."""
        return bytes(self._ffi.string(field)).decode("utf-8", "replace")

    def publication_receivers(self, publication_id: int) -> tuple[ReceiverView, ...]:
        """Return the live receivers with their last status messages. Any thread.

        :raises KeyError: the publication has ended.
        """
        out = self._ffi.new("ps_receiver_view_t[]", _RECEIVERS_MAX)
        with self._guard:
            count = self._lib.ps_publication_receivers(
                self._publications[publication_id], out, _RECEIVERS_MAX
            )
        return tuple(
            ReceiverView(
                receiver_id=view.receiver_id, heard_ns=view.heard_ns, position=view.position,
                window=view.window, group_tag=view.group_tag if view.has_group_tag else None,
                capabilities=view.capabilities, reason=view.reason,
                reason_client=view.reason_client, backlog_bytes=view.backlog_bytes,
                fill_ppm=view.fill_ppm, address=self.library.read_address(view.address),
                reason_name=self._text(view.reason_name), reason_host=self._text(view.reason_host),
            )
            for view in out[0:count]
        )

    def publication_joiner(self, publication_id: int) -> ReceiverView | None:
        """Return the receiver that caused the last join hold. During a join hold, the sender does
        not raise its limit, because a receiver has requested a SETUP and not joined yet."""
        out = self._ffi.new("ps_receiver_view_t *")
        if not self._lib.ps_publication_joiner(self._publications[publication_id], out):
            return None
        return ReceiverView(
            receiver_id=out.receiver_id, heard_ns=out.heard_ns, position=0, window=0,
            address=self.library.read_address(out.address),
        )

    # ---- receive endpoints ----

    def open_recv_endpoint(self, params: RecvEndpointParams) -> None:
        native = self._ffi.new("ps_recv_endpoint_params_t *")
        self._make(
            ObjectKind.RECV_ENDPOINT, "open", native, params, operation="open a receive endpoint"
        )

    def add_recv_destination(
        self, endpoint_id: int, params: RecvDestinationParams
    ) -> Address | None:
        """Open the socket of a receive destination; return the bound address."""
        native = self._ffi.new("ps_recv_destination_params_t *")
        self._fill(native, params)
        local = self._ffi.new("ps_addr_t *")
        code = self._lib.ps_recv_endpoint_add_destination(
            self._handle, self._recv_endpoints[endpoint_id], native, local
        )
        self._check(code, "subscribe")
        return self.library.read_address(local)

    def fit_recv_buffer(self, endpoint_id: int, destination_id: int, size_bytes: int) -> int:
        """Enlarge the receive buffer of a destination as far as the kernel allows.

        :return: the buffer's new size in bytes, as a value for setsockopt(SO_RCVBUF).
        """
        got = self._ffi.new("int32_t *")
        code = self._lib.ps_recv_endpoint_fit_buffer(
            self._handle, self._recv_endpoints[endpoint_id], destination_id, size_bytes, got
        )
        self._check(code, "enlarge a receive buffer")
        return int(got[0])

    def destroy_recv_destination(self, endpoint_id: int, destination_id: int) -> None:
        """Close the socket of a destination that the receiver agent has released."""
        code = self._lib.ps_recv_endpoint_destroy_destination(
            self._recv_endpoints[endpoint_id], destination_id
        )
        self._check(code, "close a receive destination")

    def set_interest(
        self, endpoint_id: int, stream_id: int, session_id: int | None, *, wanted: bool
    ) -> None:
        """Make the receiver accept a session of a stream if ``wanted`` is true, and ignore it
        otherwise. If ``session_id`` is None, the call applies to every session of the stream."""
        self.call(
            f"ps_recv_endpoint_{'add' if wanted else 'remove'}_interest", ObjectKind.RECV_ENDPOINT,
            endpoint_id, stream_id, session_id or 0, session_id is None,
            operation=f"{'declare' if wanted else 'withdraw'} interest",
        )

    # ---- images ----

    def add_image(self, params: ImageParams) -> None:
        native = self._ffi.new("ps_image_params_t *")
        native.endpoint = self._recv_endpoints[params.endpoint_id]
        self._make(ObjectKind.IMAGE, "add", native, params, operation="add an image")

    def image_join_position(self, image_id: int) -> int:
        """Return the position at which a new subscriber of the image starts."""
        return int(self._lib.ps_image_join_position(self._images[image_id]))

    def image_status(self, image_id: int) -> ImageStatus:
        """Return the present state. Any thread.

        :raises KeyError: it has ended.
        """
        out = self._ffi.new("ps_image_status_t *")
        with self._guard:
            self._lib.ps_image_get_status(self._images[image_id], out)
        return ImageStatus(
            position=out.position,
            high_water=out.high_water,
            slowest_subscriber=out.slowest_subscriber,
            end_of_stream=out.end_of_stream,
            gaps=out.gaps,
            subscribers=out.subscribers,
            foreign_datagrams=out.foreign_datagrams,
        )

    def image_congestion(self, image_id: int) -> dict[str, int]:
        """Return the values that the receiver's thread measured for an image, as fields of a
        CongestionView."""
        out = self._ffi.new("ps_congestion_view_t *")
        self._lib.ps_image_get_congestion(self._images[image_id], out)
        return {name: int(getattr(out, name)) for name in _CONGESTION_FIELDS}


__all__ = ["Driver", "Net"]
