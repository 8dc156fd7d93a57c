# SPDX-License-Identifier: Apache-2.0
"""The data path of a client: typed wrappers of the functions in ``penstock.h``.

No other module of the Python client uses cffi. A handle frees its native object when the last
reference to the handle is dropped. A running call in another thread, or a view into a mapped log,
keeps the native object alive. To close an object, the client marks the object as closed and drops
its reference to the handle.

A handle refers to the compiled library that created it, and calls with this handle use the
functions of this library. Functions whose names start with ``pub_``, ``sub_`` and ``img_`` take a
handle. Code that runs for each message calls the functions of ``handle.lib`` with
``handle.native``, to save a Python frame. The name of each time ends in its unit (``_ns``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from penstock.core import errors
from penstock.core._lib import CORE as CORE
from penstock.core.library import Closer
from penstock.core.library import Handle as Handle
from penstock.core.library import Library as Library
from penstock.core.messages import MESSAGE as MESSAGE
from penstock.core.messages import MESSAGE_FIELDS as MESSAGE_FIELDS
from penstock.core.messages import Messages as Messages
from penstock.core.messages import copy_bytes as copy_bytes
from penstock.core.pressure import PressureView, decode

ClientHandle: TypeAlias = Handle
PublicationHandle: TypeAlias = Handle
SubscriptionHandle: TypeAlias = Handle
ImageHandle: TypeAlias = Handle
MessageArray: TypeAlias = Any

POLL_ASSEMBLE: Final[int] = CORE.lib.PS_POLL_ASSEMBLE
POLL_KEEP: Final[int] = CORE.lib.PS_POLL_KEEP


def library_version() -> str:
    """Version of the native core, ``major.minor.patch``."""
    return bytes(CORE.ffi.string(CORE.lib.ps_version())).decode()


# ---- client --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ClientParams:
    """The lease that the daemon sends to a new client: directory, client id, slot, descriptors."""

    directory: str
    client_id: int
    client_slot: int
    sender_wake_fd: int
    receiver_wake_fd: int
    watch_fd: int = -1


def client_open(params: ClientParams, library: Library = CORE) -> ClientHandle:
    """Map ``cnc.dat`` and ``penstock.dat``.  VersionMismatch, NativeError.

    The file descriptors in ``params`` are closed when the handle is freed, or if this call fails.
    """
    every = (params.sender_wake_fd, params.receiver_wake_fd, params.watch_fd)
    fds = [fd for fd in every if fd >= 0]
    directory = library.ffi.new("char[]", params.directory.encode())
    native = library.ffi.new("ps_client_params_t *")
    native.directory = directory
    native.client_id = params.client_id
    native.client_slot = params.client_slot
    native.sender_wake_fd = params.sender_wake_fd
    native.receiver_wake_fd = params.receiver_wake_fd
    native.watch_fd = params.watch_fd
    out = library.ffi.new("ps_client_t **")
    code = library.lib.ps_client_open(native, out)
    if code < 0:
        _close_all(fds)
    library.check(code, f"cannot map {params.directory}")

    def close(pointer: Any) -> None:
        library.lib.ps_client_close(pointer)
        _close_all(fds)

    return Handle(library, out[0], close)


def close_fds(*fds: int) -> None:
    """Close the descriptors that the daemon sent for a client that could not be opened."""
    _close_all([fd for fd in fds if fd >= 0])


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def client_ticket(client: ClientHandle) -> int:
    """Return a ticket for :func:`client_sleep`; take it before you check the wait's condition."""
    return int(client.lib.ps_client_ticket(client.native))


def client_wake(client: ClientHandle) -> None:
    """Wake all sleeping threads of this client."""
    client.lib.ps_client_wake(client.native)


def client_counter_count(client: ClientHandle) -> int:
    """Return the number of counters for which the daemon's cnc.dat has room."""
    return int(client.lib.ps_client_counter_count(client.native))


def client_counter_get(client: ClientHandle, counter_id: int) -> int:
    """Return the value of a counter; 0 if the counter does not exist."""
    return int(client.lib.ps_client_counter_get(client.native, counter_id))


def client_counter_set(client: ClientHandle, counter_id: int, value: int) -> None:
    """Store a counter's value."""
    client.lib.ps_client_counter_set(client.native, counter_id, value)


def client_counter_add(client: ClientHandle, counter_id: int, delta: int) -> int:
    """Add ``delta`` to a counter; return the counter's new value."""
    return int(client.lib.ps_client_counter_add(client.native, counter_id, delta))


def client_set_daemon_away(client: ClientHandle, away: bool) -> None:
    """While away, offers answer ``Offer.DAEMON_AWAY``."""
    client.lib.ps_client_set_daemon_away(client.native, 1 if away else 0)


def client_await(client: ClientHandle, ticket: int) -> bool:
    """Wait at most 150 us for a wake-up, without sleeping; return whether a wake-up came. If recent
    waits of this client were long, return at once."""
    return bool(client.lib.ps_client_await(client.native, ticket))


def client_watch(client: ClientHandle, ticket: int, waited_ns: int = -1) -> bool:
    """Request that the next wake-up also writes to the client's eventfd. Return True if a wake-up
    after ``ticket`` has already come.

    :param waited_ns: duration of the last wait, for :func:`client_await`; negative: none.
    """
    code: int = client.lib.ps_client_watch(client.native, ticket, waited_ns)
    if code < 0:
        raise errors.native_error(code, client.library.last_error(), operation="watching")
    return code > 0


def client_replace_fds(
    params: ClientParams, sender_wake_fd: int, receiver_wake_fd: int, watch_fd: int = -1
) -> None:
    """Replace the client's eventfds with those of a new daemon; this call takes over the new
    descriptors. Then wake both new agents: a thread may have written its wake-up to an old eventfd.

    The new eventfds get the numbers of the old ones, so threads can use the same numbers."""
    for new, old in (
        (sender_wake_fd, params.sender_wake_fd),
        (receiver_wake_fd, params.receiver_wake_fd),
        (watch_fd, params.watch_fd),
    ):
        if new < 0:
            continue
        if old >= 0:
            os.dup2(new, old, inheritable=False)
            os.eventfd_write(old, 1)
        os.close(new)


def client_sleep(client: ClientHandle, ticket: int, timeout_ns: int) -> bool:
    """Sleep until a wake-up comes after ``ticket`` was taken; return False after ``timeout_ns``.

    A signal ends the sleep like a wake-up, so that Python can run its signal handlers.
    """
    code: int = client.lib.ps_client_sleep(client.native, ticket, timeout_ns)
    if code == 0 or code == errors.E_INTERRUPTED:
        return True
    if code == errors.E_TIMEOUT:
        return False
    raise errors.native_error(code, client.library.last_error(), operation="waiting")


# ---- publication ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PublicationParams:
    """Reply of the daemon to AddPublication."""

    log_path: str
    registration_id: int
    publication_slot: int
    limit_counter_id: int
    max_message_bytes: int
    exclusive: bool


@attrs.frozen(kw_only=True)
class PublicationConstants:
    """Values that stay constant for the life of a publication. Lengths are in bytes."""

    registration_id: int
    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu: int
    max_payload_bytes: int
    max_message_bytes: int
    window_bytes: int
    max_position: int


def pub_open(client: ClientHandle, params: PublicationParams) -> PublicationHandle:
    """Map the publication's log.  VersionMismatch, CorruptLogError, NativeError."""
    ffi = client.library.ffi
    path = ffi.new("char[]", params.log_path.encode())
    native = ffi.new("ps_pub_params_t *")
    native.log_path = path
    native.registration_id = params.registration_id
    native.publication_slot = params.publication_slot
    native.limit_counter_id = params.limit_counter_id
    native.max_message_bytes = params.max_message_bytes
    native.exclusive = 1 if params.exclusive else 0
    out = ffi.new("ps_pub_t **")
    code = client.lib.ps_pub_open(client.native, native, out)
    client.library.check(code, f"cannot map {params.log_path}")
    return Handle(client.library, out[0], client.lib.ps_pub_close, client)


def address_of(handle: Handle) -> int:
    """Return the native address of a handle for ``penstock._fast``, which also stores the handle.

    :raises InvalidArgument: the handle belongs to another library."""
    CORE.refuse_others(handle=handle)
    return int(CORE.ffi.cast("uintptr_t", handle.native))


def _nothing(_pointer: Any) -> None:
    """Destructor of a borrowed pointer."""


def pub_constants(pub: PublicationHandle) -> PublicationConstants:
    """Return the constants of an open publication."""
    native = pub.library.ffi.new("ps_pub_constants_t *")
    pub.lib.ps_pub_get_constants(pub.native, native)
    names = [field.name for field in attrs.fields(PublicationConstants)]
    return PublicationConstants(**{name: getattr(native, name) for name in names})


def pub_offer(pub: PublicationHandle, data: bytes, length: int, reserved_value: int) -> int:
    """Offer a bytes object; return the position after the message, or a code."""
    return int(pub.lib.ps_pub_offer(pub.native, data, length, reserved_value))


def pub_mark_closed(pub: PublicationHandle) -> None:
    """Mark the publication as closed: further offers return CLOSED."""
    pub.lib.ps_pub_mark_closed(pub.native)


def pub_position(pub: PublicationHandle) -> int:
    """Return the present end of the stream."""
    return int(pub.lib.ps_pub_position(pub.native))


def pub_limit(pub: PublicationHandle) -> int:
    """Return the publisher limit: the position up to which messages can be published now."""
    return int(pub.lib.ps_pub_limit(pub.native))


def pub_available_window(pub: PublicationHandle) -> int:
    """Return the number of bytes from the publication's position to the publisher limit."""
    return int(pub.lib.ps_pub_available_window(pub.native))


def pub_is_connected(pub: PublicationHandle) -> int:
    """Return 1 if a receiver is connected to the publication, otherwise 0."""
    return int(pub.lib.ps_pub_is_connected(pub.native))


def pub_pressure(pub: PublicationHandle) -> PressureView | None:
    """Copy the pressure account; None if the sender changed the account during each attempt."""
    view = pub.library.ffi.new("ps_pressure_view_t *")
    code = pub.lib.ps_pub_pressure(pub.native, view)
    if code == pub.lib.PS_E_AGAIN:
        return None
    pub.library.check(code, "read the pressure")
    return decode(pub.library.ffi, view)


def pub_want_room(pub: PublicationHandle) -> None:
    """Request that the daemon wakes this client when the publisher limit moves."""
    pub.lib.ps_pub_want_room(pub.native)


def pub_offer_buffer(pub: PublicationHandle, data: Any, reserved_value: int) -> int:
    """Offer any contiguous buffer.  TypeError when ``data`` is none."""
    with pub.library.ffi.from_buffer(_flat(data)) as pointer:
        position: int = pub.lib.ps_pub_offer(pub.native, pointer, len(pointer), reserved_value)
    return position


def pub_offer_buffers(pub: PublicationHandle, pieces: Sequence[Any], reserved_value: int) -> int:
    """Offer one message that consists of ``pieces``."""
    ffi = pub.library.ffi
    if not pieces:
        position: int = pub.lib.ps_pub_offer(pub.native, b"", 0, reserved_value)
        return position
    pointers = [ffi.from_buffer(_flat(piece)) for piece in pieces]
    native = ffi.new("ps_iov_t[]", len(pointers))
    for index, pointer in enumerate(pointers):
        native[index].data = pointer
        native[index].length = len(pointer)
    position = pub.lib.ps_pub_offerv(pub.native, native, len(pointers), reserved_value)
    for pointer in pointers:
        ffi.release(pointer)
    return position


def _flat(data: Any) -> Any:
    """Return ``data`` as an object from which cffi makes a byte pointer; refuse strings."""
    if isinstance(data, (bytes, bytearray)):
        return data
    if isinstance(data, str):
        raise TypeError("a message is bytes, not str: encode it first")
    view = memoryview(data)
    if not view.c_contiguous:
        raise TypeError("a message must be a contiguous buffer")
    if view.nbytes == 0:
        return b""
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class BatchOutcome(NamedTuple):
    """Result of offering a batch. If ``accepted`` is 0, ``position`` is the code of the refusal."""

    accepted: int
    position: int


def pub_offer_batch(
    pub: PublicationHandle, base: Any, offsets: Any, first: int, count: int
) -> BatchOutcome:
    """Offer ``count`` messages from i = ``first`` on; message i is base[offsets[i]:offsets[i + 1]].

    ``offsets`` is a buffer of int64; the caller checks that the offsets ascend and lie in ``base``.
    """
    ffi = pub.library.ffi
    accepted = ffi.new("int32_t *")
    with ffi.from_buffer(base) as bytes_, ffi.from_buffer("int64_t[]", offsets) as bounds:
        code = pub.lib.ps_pub_offer_batch(
            pub.native, ffi.cast("const uint8_t *", bytes_), bounds + first, count, accepted
        )
    return BatchOutcome(accepted[0], code)


def pub_offer_strided(
    pub: PublicationHandle, base: Any, stride: int, first: int, count: int
) -> BatchOutcome:
    """Offer ``count`` adjacent messages of ``stride`` bytes each, from message ``first`` on."""
    ffi = pub.library.ffi
    accepted = ffi.new("int32_t *")
    with ffi.from_buffer(base) as bytes_:
        start = ffi.cast("const uint8_t *", bytes_) + first * stride
        code = pub.lib.ps_pub_offer_strided(pub.native, start, stride, count, accepted)
    return BatchOutcome(accepted[0], code)


class NativeClaim:
    """A claimed frame. ``position`` is the message's end; a negative code if the claim was
    refused."""

    __slots__ = ("_native", "_pub", "position")

    def __init__(self, pub: PublicationHandle, length: int) -> None:
        self._pub = pub
        self._native = pub.library.ffi.new("ps_claim_t *")
        self.position: int = pub.lib.ps_pub_try_claim(pub.native, length, self._native)

    def view(self) -> memoryview:
        """The writable payload.  The log stays mapped as long as a view of it exists."""
        native = self._native
        if native.length == 0:
            return memoryview(bytearray())
        ffi = self._pub.library.ffi
        pointer = ffi.gc(native.data, Closer(_nothing, self._pub))
        return memoryview(ffi.buffer(pointer, native.length))

    def commit(self, reserved_value: int) -> int:
        """0.  ClaimLost."""
        pub = self._pub
        code = pub.lib.ps_pub_commit(pub.native, self._native, reserved_value)
        return pub.library.check(code, "commit")

    def abort(self) -> int:
        """0.  ClaimLost."""
        pub = self._pub
        return pub.library.check(pub.lib.ps_pub_abort(pub.native, self._native), "abort")


# ---- images and subscriptions --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ImageParams:
    """Content of an ImageAvailable notice."""
    log_path: str
    correlation_id: int
    subscription_id: int
    position_counter_id: int
    subscriber_slot: int
    image_slot: int
    publication_slot: int
    credit_mode: int = 0        # CreditMode
    isolation: int = 0          # ReaderIsolation
    depth_bytes: int = 0
    join_position: int = 0
    join_ordinal: int = -1
    fan_in_weight: int = 0      # 0: the subscription polls its images in turn


def img_open(client: ClientHandle, params: ImageParams) -> ImageHandle:
    """Map an image's log.  VersionMismatch, CorruptLogError, NativeError."""
    ffi = client.library.ffi
    path = ffi.new("char[]", params.log_path.encode())
    native = ffi.new("ps_img_params_t *")
    for name, value in attrs.asdict(params).items():
        setattr(native, name, path if name == "log_path" else value)
    out = ffi.new("ps_img_t **")
    code = client.lib.ps_img_open(client.native, native, out)
    client.library.check(code, f"cannot map {params.log_path}")
    return Handle(client.library, out[0], client.lib.ps_img_close, client)


def img_position(image: ImageHandle) -> int:
    """Return the delivered position."""
    return int(image.lib.ps_img_position(image.native))


def img_released(image: ImageHandle) -> int:
    """Return the released position."""
    return int(image.lib.ps_img_released(image.native))


def img_is_end_of_stream(image: ImageHandle) -> int:
    """Return 1 if all messages up to the end of the stream were delivered."""
    return int(image.lib.ps_img_is_end_of_stream(image.native))


def img_end_of_stream_position(image: ImageHandle) -> int:
    """Return the end position of the stream; 2^63 - 1 while it is unknown."""
    return int(image.lib.ps_img_end_of_stream_position(image.native))


def img_term_length(image: ImageHandle) -> int:
    """Bytes of a term."""
    return int(image.lib.ps_img_term_length(image.native))


def img_mtu(image: ImageHandle) -> int:
    """Bytes of a datagram."""
    return int(image.lib.ps_img_mtu(image.native))


def img_initial_term_id(image: ImageHandle) -> int:
    """Term id of position 0."""
    return int(image.lib.ps_img_initial_term_id(image.native))


def img_session_id(image: ImageHandle) -> int:
    """The publisher's session."""
    return int(image.lib.ps_img_session_id(image.native))


def img_join_position(image: ImageHandle) -> int:
    """Return the position at which this subscriber joined the image."""
    return int(image.lib.ps_img_join_position(image.native))


def img_transport_count(image: ImageHandle) -> int:
    """Return the number of destinations from which the image receives data at present."""
    return int(image.lib.ps_img_transport_count(image.native))


def img_has_data(image: ImageHandle) -> int:
    """Return 1 if a poll would find a message."""
    return int(image.lib.ps_img_has_data(image.native))


def img_poll(image: ImageHandle, messages: MessageArray, limit: int, flags: int) -> int:
    """Poll the image into the array; return the number of messages, or a ps_error_code."""
    return int(image.lib.ps_img_poll(image.native, messages, limit, flags))


def img_release(image: ImageHandle) -> None:
    """Releases everything delivered."""
    image.lib.ps_img_release(image.native)


def img_rewind(image: ImageHandle, position: int) -> None:
    """Rewind the image, so that the next poll delivers the messages after ``position`` again."""
    image.library.check(image.lib.ps_img_rewind(image.native, position), "rewinding")


#: Return value of a poll at a gap.
GAP: Final[int] = CORE.lib.PS_E_GAP


def img_report_gaps(image: ImageHandle) -> None:
    """Make each poll of an image end before a gap; the next poll then returns :data:`GAP`."""
    image.lib.ps_img_report_gaps(image.native)


def img_take_gap(image: ImageHandle) -> tuple[int, int, int | None] | None:
    """Return the gap that a poll reported: start, end, number of lost messages (None: unknown)."""
    out = image.library.ffi.new("int64_t[3]")
    if not image.lib.ps_img_take_gap(image.native, out, out + 1, out + 2):
        return None
    return out[0], out[1], None if out[2] < 0 else out[2]


def img_count(image: ImageHandle, start: int, end: int) -> int:
    """Return the number of messages between two received positions; -1 if the number is unknown."""
    return int(image.lib.ps_img_count(image.native, start, end))


def img_map(image: ImageHandle) -> memoryview:
    """Return the whole mapped log, read-only. The log stays mapped while a view of it exists."""
    ffi = image.library.ffi
    length = ffi.new("int64_t *")
    base = image.lib.ps_img_map(image.native, length)
    pointer = ffi.gc(ffi.cast("uint8_t *", base), Closer(_nothing, image))
    return memoryview(ffi.buffer(pointer, length[0])).toreadonly()


class MappedLog(NamedTuple):
    """Address of an image's mapped log. The log stays mapped as long as ``owner`` exists."""

    address: int
    length: int
    owner: Any


def img_mapped(image: ImageHandle) -> MappedLog:
    """Return the whole mapped log of an image, as an object for ``penstock._fast``."""
    ffi = image.library.ffi
    length = ffi.new("int64_t *")
    base = image.lib.ps_img_map(image.native, length)
    return MappedLog(int(ffi.cast("uintptr_t", base)), length[0], image)


def sub_open(client: ClientHandle, registration_id: int, stream_id: int) -> SubscriptionHandle:
    """A subscription without images."""
    ffi = client.library.ffi
    out = ffi.new("ps_sub_t **")
    code = client.lib.ps_sub_open(client.native, registration_id, stream_id, out)
    client.library.check(code, "cannot open the subscription")
    return Handle(client.library, out[0], client.lib.ps_sub_close, client)


def sub_add_image(sub: SubscriptionHandle, image: ImageHandle) -> None:
    """Make the subscription's polls read ``image`` too. The caller must keep the image handle."""
    sub.library.refuse_others(image=image)
    sub.library.check(sub.lib.ps_sub_add_image(sub.native, image.native), "adding an image")


def sub_remove_image(sub: SubscriptionHandle, image: ImageHandle) -> None:
    """Remove ``image`` from a subscription; the indexes of later images decrease by one."""
    sub.library.refuse_others(image=image)
    sub.library.check(sub.lib.ps_sub_remove_image(sub.native, image.native), "removing an image")


def sub_poll(sub: SubscriptionHandle, messages: MessageArray, limit: int, flags: int) -> int:
    """Poll the subscription into the array; return the number of messages, or a ps_error_code."""
    return int(sub.lib.ps_sub_poll(sub.native, messages, limit, flags))


def sub_has_data(sub: SubscriptionHandle) -> int:
    """Return 1 if a poll would find a message."""
    return int(sub.lib.ps_sub_has_data(sub.native))


def sub_release(sub: SubscriptionHandle) -> None:
    """Releases everything delivered."""
    sub.lib.ps_sub_release(sub.native)


def sub_image_count(sub: SubscriptionHandle) -> int:
    """Number of images that a poll of this subscription reads."""
    return int(sub.lib.ps_sub_image_count(sub.native))


def sub_rewind(sub: SubscriptionHandle, messages: Messages, count: int, first: int) -> None:
    """Rewind ``messages[first:count]`` of the last poll; the next poll delivers them again."""
    sub.lib.ps_sub_rewind(sub.native, messages.native, count, first)
