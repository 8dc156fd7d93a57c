# SPDX-License-Identifier: Apache-2.0
"""The data plane as the control plane sees it (ps_driver.h): thin typed classes over the C calls.

One thread (the conductor's) uses a :class:`Driver`, unless a method says otherwise.  Objects are
named by the ids of their parameters; the native pointers stay in here.  A failed call raises what
:func:`penstock.core.errors.native_error` makes of it; an id that is not there raises KeyError.
"""

from __future__ import annotations

from typing import Any

from penstock.core._lib import CORE
from penstock.core.admin import Cnc, Shared
from penstock.core.driver_events import DriverEvent, read_event
from penstock.core.driver_types import (
    Address,
    Agent,
    DriverParams,
    ImageParams,
    ImageStatus,
    ImpairParams,
    PublicationParams,
    PublicationStatus,
    ReceiverView,
    RecvDestinationParams,
    RecvEndpointParams,
    SendEndpointParams,
    SubscriberParams,
)
from penstock.core.library import Library, NativeObject

_CONGESTION_FIELDS = (
    "window", "least", "most", "received", "consumed", "granted", "losses", "missing", "rtt_ns",
    "least_rtt_ns",
)
_HANDLES = frozenset({"endpoint_id"})
_RECEIVERS_MAX = 1024


class Net(NativeObject):
    """A transport for the driver; taken over by the driver it is given to."""

    @classmethod
    def udp(cls, library: Library = CORE) -> Net:
        """Kernel UDP."""
        return cls(library.lib.ps_net_udp(), library)

    def impaired(self, params: ImpairParams) -> Net:
        """Wraps and takes over this transport; loses, delays and damages as asked."""
        native = self._ffi.new("ps_impair_params_t *")
        self._fill(native, params)
        wrapped = self._lib.ps_net_impair(self.take(), native)
        if wrapped == self._ffi.NULL:
            self._check(-1003, "make an impaired network")
        return Net(wrapped, self.library)

    def take(self) -> Any:
        """Gives the native pointer away, once."""
        handle, self._handle = self._handle, None
        if handle is None:
            raise ValueError("the network was given away before")
        return handle

    def free(self) -> None:
        """Frees a network that no driver has taken."""
        if self._handle is not None:
            self._lib.ps_net_free(self.take())


class Driver(NativeObject):
    """Sender and receiver agents with everything that they own, in the library of ``cnc``."""

    def __init__(self, params: DriverParams, *, net: Net, cnc: Cnc, shared: Shared) -> None:
        """:raises InvalidArgument: ``net`` or ``shared`` is of another library."""
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

    def start(self) -> None:
        self._check(self._lib.ps_driver_start(self._handle), "start the driver's threads")

    def stop(self) -> None:
        """Stops and joins the threads; objects stay.  Idempotent."""
        if self._handle is not None:
            self._lib.ps_driver_stop(self._handle)

    def close(self) -> None:
        """Stops, and frees everything that is left.  Idempotent."""
        if self._handle is not None:
            self._lib.ps_driver_destroy(self._handle)
            self._handle = None
            for table in (
                self._send_endpoints, self._recv_endpoints, self._publications, self._images
            ):
                table.clear()

    def step(self, now_ns: int) -> int:
        """INVOKER: one duty cycle.  Returns the work done."""
        return int(self._lib.ps_driver_step(self._handle, now_ns))

    def next_deadline_ns(self, now_ns: int) -> int:
        """INVOKER: time of the agents' next timer."""
        return int(self._lib.ps_driver_next_deadline_ns(self._handle, now_ns))

    def event_fd(self) -> int:
        return int(self._lib.ps_driver_event_fd(self._handle))

    def wake_fd(self, agent: Agent) -> int:
        return int(self._lib.ps_driver_wake_fd(self._handle, int(agent)))

    def wake(self) -> None:
        """Wakes both agents.  Any thread."""
        self._lib.ps_driver_wake(self._handle)

    def duty_cycles(self, agent: Agent) -> int:
        return int(self._lib.ps_driver_duty_cycles(self._handle, int(agent)))

    def poll_event(self) -> DriverEvent | None:
        """The next event of either agent."""
        event = self._event
        if self._lib.ps_driver_poll_event(self._handle, event) != 1:
            return None
        return read_event(event, self.library)

    # ---- send endpoints ----

    def open_send_endpoint(self, params: SendEndpointParams) -> Address | None:
        """Opens the sockets; returns the bound address."""
        native = self._ffi.new("ps_send_endpoint_params_t *")
        self._fill(native, params)
        out = self._ffi.new("ps_send_endpoint_t **")
        self._check(self._lib.ps_send_endpoint_open(self._handle, native, out), "publish")
        self._send_endpoints[params.id] = out[0]
        local = self._ffi.new("ps_addr_t *")
        self._lib.ps_send_endpoint_local(out[0], local)
        return self.library.read_address(local)

    def add_send_destination(self, endpoint_id: int, destination_id: int, address: Address) -> None:
        code = self._lib.ps_send_endpoint_add_destination(
            self._handle, self._send_endpoints[endpoint_id],
            destination_id, self.library.new_address(address),
        )
        self._check(code, f"add destination {address}")

    def remove_send_destination(self, endpoint_id: int, destination_id: int) -> None:
        code = self._lib.ps_send_endpoint_remove_destination(
            self._handle, self._send_endpoints[endpoint_id], destination_id
        )
        self._check(code, "remove a destination")

    def set_send_address(self, endpoint_id: int, destination_id: int, address: Address) -> None:
        """New address after a name changed; destination_id -1 is the unicast peer."""
        code = self._lib.ps_send_endpoint_set_address(
            self._handle, self._send_endpoints[endpoint_id],
            destination_id, self.library.new_address(address),
        )
        self._check(code, f"redirect to {address}")

    def remove_send_endpoint(self, endpoint_id: int) -> None:
        code = self._lib.ps_send_endpoint_remove(self._handle, self._send_endpoints[endpoint_id])
        self._check(code, "remove a send endpoint")

    def destroy_send_endpoint(self, endpoint_id: int) -> None:
        self._lib.ps_send_endpoint_destroy(self._handle, self._send_endpoints.pop(endpoint_id))

    # ---- publications ----

    def add_publication(self, params: PublicationParams) -> None:
        native = self._ffi.new("ps_publication_params_t *")
        keep = self._fill(native, params, skip=_HANDLES)
        if params.endpoint_id:
            native.endpoint = self._send_endpoints[params.endpoint_id]
        out = self._ffi.new("ps_publication_t **")
        self._check(self._lib.ps_publication_add(self._handle, native, out), "add a publication")
        del keep
        self._publications[params.id] = out[0]

    def add_publication_subscriber(self, publication_id: int, params: SubscriberParams) -> None:
        code = self._lib.ps_publication_add_subscriber(
            self._handle, self._publications[publication_id], self._subscriber(params)
        )
        self._check(code, "add a local subscriber")

    def remove_publication_subscriber(self, publication_id: int, position_counter_id: int) -> None:
        code = self._lib.ps_publication_remove_subscriber(
            self._handle, self._publications[publication_id], position_counter_id
        )
        self._check(code, "remove a local subscriber")

    def add_publication_client(self, publication_id: int, client_slot: int) -> None:
        code = self._lib.ps_publication_add_client(
            self._handle, self._publications[publication_id], client_slot
        )
        self._check(code, "add a publisher")

    def remove_publication_client(self, publication_id: int, client_slot: int) -> None:
        code = self._lib.ps_publication_remove_client(
            self._handle, self._publications[publication_id], client_slot
        )
        self._check(code, "remove a publisher")

    def drain_publication(self, publication_id: int) -> None:
        publication = self._publications[publication_id]
        self._check(
            self._lib.ps_publication_drain(self._handle, publication), "drain a publication"
        )

    def revoke_publication(self, publication_id: int) -> None:
        publication = self._publications[publication_id]
        self._check(
            self._lib.ps_publication_revoke(self._handle, publication), "revoke a publication"
        )

    def unblock_publication(self, publication_id: int, client_slot: int) -> None:
        """Pad over the claims of the dead client in the slot; -1: over any blocking claim."""
        code = self._lib.ps_publication_unblock(
            self._handle, self._publications[publication_id], client_slot
        )
        self._check(code, "unblock a publication")

    def publication_reserved(self, publication_id: int, position: int) -> None:
        code = self._lib.ps_publication_reserved(
            self._handle, self._publications[publication_id], position
        )
        self._check(code, "hand over a reserved term")

    def release_publication_terms(self, publication_id: int, least_terms: int) -> None:
        """Ask the sender to release the terms that are not in use; TERMS_RELEASED follows."""
        code = self._lib.ps_publication_release_terms(
            self._handle, self._publications[publication_id], least_terms
        )
        self._check(code, "request idle terms")

    def release(
        self, *, position: int, position_counter_id: int, subscriber_slot: int,
        publication_slot: int,
    ) -> None:
        """Moves the position of a subscriber that has no process, never backwards; -1: it reads a
        network image."""
        params = self._ffi.new("ps_release_params_t *")
        params.position = position
        params.position_counter_id = position_counter_id
        params.subscriber_slot = subscriber_slot
        params.publication_slot = publication_slot
        self._check(self._lib.ps_driver_release(self._handle, params), "move a group's position")

    def publication_status(self, publication_id: int) -> PublicationStatus:
        out = self._ffi.new("ps_publication_status_t *")
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
        """A name from another host."""
        return bytes(self._ffi.string(field)).decode("utf-8", "replace")

    def publication_receivers(self, publication_id: int) -> tuple[ReceiverView, ...]:
        """Live receivers, and what each said last."""
        out = self._ffi.new("ps_receiver_view_t[]", _RECEIVERS_MAX)
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
        """Return the receiver for which a group was held last while it asked to join."""
        out = self._ffi.new("ps_receiver_view_t *")
        if not self._lib.ps_publication_joiner(self._publications[publication_id], out):
            return None
        return ReceiverView(
            receiver_id=out.receiver_id, heard_ns=out.heard_ns, position=0, window=0,
            address=self.library.read_address(out.address),
        )

    def set_publication_limit(self, publication_id: int, limit: int, until_ns: int) -> None:
        """The limit of a custom strategy; counts until until_ns of the driver's clock."""
        code = self._lib.ps_publication_set_limit(
            self._handle, self._publications[publication_id], limit, until_ns
        )
        self._check(code, "set a limit")

    def remove_publication(self, publication_id: int) -> None:
        publication = self._publications[publication_id]
        self._check(
            self._lib.ps_publication_remove(self._handle, publication), "remove a publication"
        )

    def destroy_publication(self, publication_id: int) -> None:
        self._lib.ps_publication_destroy(self._handle, self._publications.pop(publication_id))

    # ---- receive endpoints ----

    def open_recv_endpoint(self, params: RecvEndpointParams) -> None:
        native = self._ffi.new("ps_recv_endpoint_params_t *")
        self._fill(native, params)
        out = self._ffi.new("ps_recv_endpoint_t **")
        self._check(
            self._lib.ps_recv_endpoint_open(self._handle, native, out), "open a receive endpoint"
        )
        self._recv_endpoints[params.id] = out[0]

    def add_recv_destination(
        self, endpoint_id: int, params: RecvDestinationParams
    ) -> Address | None:
        """Opens its socket; returns the bound address."""
        native = self._ffi.new("ps_recv_destination_params_t *")
        self._fill(native, params)
        local = self._ffi.new("ps_addr_t *")
        code = self._lib.ps_recv_endpoint_add_destination(
            self._handle, self._recv_endpoints[endpoint_id], native, local
        )
        self._check(code, "subscribe")
        return self.library.read_address(local)

    def fit_recv_buffer(self, endpoint_id: int, destination_id: int, size_bytes: int) -> int:
        """Enlarges the receive buffer of a destination as far as the kernel allows.

        :return: its size afterwards in bytes, as SO_RCVBUF counts.
        """
        got = self._ffi.new("int32_t *")
        code = self._lib.ps_recv_endpoint_fit_buffer(
            self._handle, self._recv_endpoints[endpoint_id], destination_id, size_bytes, got
        )
        self._check(code, "enlarge a receive buffer")
        return int(got[0])

    def remove_recv_destination(self, endpoint_id: int, destination_id: int) -> None:
        code = self._lib.ps_recv_endpoint_remove_destination(
            self._handle, self._recv_endpoints[endpoint_id], destination_id
        )
        self._check(code, "remove a receive destination")

    def destroy_recv_destination(self, endpoint_id: int, destination_id: int) -> None:
        """Closes the socket of a destination that the receiver released."""
        code = self._lib.ps_recv_endpoint_destroy_destination(
            self._recv_endpoints[endpoint_id], destination_id
        )
        self._check(code, "close a receive destination")

    def set_recv_control(self, endpoint_id: int, destination_id: int, control: Address) -> None:
        code = self._lib.ps_recv_endpoint_set_control(
            self._handle, self._recv_endpoints[endpoint_id],
            destination_id, self.library.new_address(control),
        )
        self._check(code, f"redirect status messages to {control}")

    def add_interest(self, endpoint_id: int, stream_id: int, session_id: int | None) -> None:
        """session_id None: every session."""
        code = self._lib.ps_recv_endpoint_add_interest(
            self._handle, self._recv_endpoints[endpoint_id], stream_id, session_id or 0,
            int(session_id is None),
        )
        self._check(code, "declare interest")

    def remove_interest(self, endpoint_id: int, stream_id: int, session_id: int | None) -> None:
        code = self._lib.ps_recv_endpoint_remove_interest(
            self._handle, self._recv_endpoints[endpoint_id], stream_id, session_id or 0,
            int(session_id is None),
        )
        self._check(code, "withdraw interest")

    def forget_session(
        self, endpoint_id: int, stream_id: int, session_id: int, *, keep: bool
    ) -> None:
        code = self._lib.ps_recv_endpoint_forget_session(
            self._handle, self._recv_endpoints[endpoint_id], stream_id, session_id, int(keep)
        )
        self._check(code, "forget a session")

    def remove_recv_endpoint(self, endpoint_id: int) -> None:
        code = self._lib.ps_recv_endpoint_remove(self._handle, self._recv_endpoints[endpoint_id])
        self._check(code, "remove a receive endpoint")

    def destroy_recv_endpoint(self, endpoint_id: int) -> None:
        self._lib.ps_recv_endpoint_destroy(self._handle, self._recv_endpoints.pop(endpoint_id))

    # ---- images ----

    def refuse_session(
        self, endpoint_id: int, stream_id: int, session_id: int, *, destination: int,
        source: Address, reason: str,
    ) -> None:
        """Forget the SETUP of a session, and send its sender an ERR frame with the reason."""
        code = self._lib.ps_recv_endpoint_refuse_session(
            self._handle, self._recv_endpoints[endpoint_id], stream_id, session_id, destination,
            self.library.new_address(source), reason.encode(),
        )
        self._check(code, "refuse a session")

    def add_image(self, params: ImageParams) -> None:
        native = self._ffi.new("ps_image_params_t *")
        keep = self._fill(native, params, skip=_HANDLES | {"congestion_name"})
        native.endpoint = self._recv_endpoints[params.endpoint_id]
        out = self._ffi.new("ps_image_t **")
        self._check(self._lib.ps_image_add(self._handle, native, out), "add an image")
        del keep
        self._images[params.id] = out[0]

    def add_image_subscriber(self, image_id: int, params: SubscriberParams) -> None:
        code = self._lib.ps_image_add_subscriber(
            self._handle, self._images[image_id], self._subscriber(params)
        )
        self._check(code, "add a subscriber")

    def remove_image_subscriber(self, image_id: int, position_counter_id: int) -> None:
        code = self._lib.ps_image_remove_subscriber(
            self._handle, self._images[image_id], position_counter_id
        )
        self._check(code, "remove a subscriber")

    def image_join_position(self, image_id: int) -> int:
        """Where a subscriber that comes now starts."""
        return int(self._lib.ps_image_join_position(self._images[image_id]))

    def drain_image(self, image_id: int) -> None:
        self._check(
            self._lib.ps_image_drain(self._handle, self._images[image_id]), "drain an image"
        )

    def reject_image(self, image_id: int, reason: str) -> None:
        code = self._lib.ps_image_reject(self._handle, self._images[image_id], reason.encode())
        self._check(code, "reject an image")

    def image_reserved(self, image_id: int, position: int) -> None:
        code = self._lib.ps_image_reserved(self._handle, self._images[image_id], position)
        self._check(code, "hand over a reserved term")

    def release_image_terms(self, image_id: int, least_terms: int) -> None:
        """Ask the receiver to release the terms that are not in use; TERMS_RELEASED follows."""
        code = self._lib.ps_image_release_terms(self._handle, self._images[image_id], least_terms)
        self._check(code, "request idle terms")

    def image_status(self, image_id: int) -> ImageStatus:
        out = self._ffi.new("ps_image_status_t *")
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
        """Return the fields of a CongestionView that the receiver knows."""
        out = self._ffi.new("ps_congestion_view_t *")
        self._lib.ps_image_get_congestion(self._images[image_id], out)
        return {name: int(getattr(out, name)) for name in _CONGESTION_FIELDS}

    def set_congestion_window(self, image_id: int, window: int) -> None:
        """Set the window of a congestion control in Python, bytes; the receiver clips it."""
        code = self._lib.ps_image_set_congestion_window(
            self._handle, self._images[image_id], window
        )
        self._check(code, "set a congestion window")

    def remove_image(self, image_id: int, *, keep_session: bool) -> None:
        code = self._lib.ps_image_remove(self._handle, self._images[image_id], int(keep_session))
        self._check(code, "remove an image")

    def destroy_image(self, image_id: int) -> None:
        self._lib.ps_image_destroy(self._handle, self._images.pop(image_id))

    def _subscriber(self, params: SubscriberParams) -> Any:
        native = self._ffi.new("ps_subscriber_params_t *")
        self._fill(native, params)
        return native


__all__ = ["Driver", "Net"]
