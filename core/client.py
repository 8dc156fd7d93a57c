# SPDX-License-Identifier: Apache-2.0
"""The data path of a client: typed wrappers of ``penstock.h``, and nothing else.

This is the only client-side module that touches ``ffi``.  Handles are cffi objects that free their
native part when the last reference to them goes, so that a call in another thread, or a view into a
mapped log, keeps the memory under it alive.  Closing therefore means: mark closed, drop the handle.

Functions whose names start with ``pub_``, ``sub_`` and ``img_`` take such a handle.  The ones bound
straight to the library (``pub_offer`` and its like) are the hot path: one crossing, no Python frame
in between.  Positions are bytes since the start of the stream; times are in the unit of the name.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from penstock.core import errors
from penstock.core._lib import ffi, lib

ClientHandle: TypeAlias = Any
PublicationHandle: TypeAlias = Any
SubscriptionHandle: TypeAlias = Any
ImageHandle: TypeAlias = Any
MessageArray: TypeAlias = Any

POLL_ASSEMBLE: Final[int] = lib.PS_POLL_ASSEMBLE
POLL_KEEP: Final[int] = lib.PS_POLL_KEEP


def last_error() -> str:
    """Text of the calling thread's last failure in the core, "" if none."""
    return _text(lib.ps_last_error())


def library_version() -> str:
    """Version of the native core, ``major.minor.patch``."""
    return _text(lib.ps_version())


def raise_native(code: int, operation: str = "") -> None:
    """Raises the exception for ``code`` when it is negative."""
    if code < 0:
        raise errors.native_error(code, last_error(), operation=operation)


def _text(pointer: Any) -> str:
    raw: bytes = ffi.string(pointer) if pointer else b""
    return raw.decode("utf-8", "replace")


# ---- client --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ClientParams:
    """What the lease gave: enough to map the daemon's directory."""

    directory: str
    client_id: int
    client_slot: int
    sender_wake_fd: int
    receiver_wake_fd: int


def client_open(params: ClientParams) -> ClientHandle:
    """Maps ``cnc.dat`` and ``penstock.dat``.  VersionMismatch, NativeError.

    Takes over the two descriptors: they are closed with the handle, or when this fails.
    """
    fds = [fd for fd in (params.sender_wake_fd, params.receiver_wake_fd) if fd >= 0]
    directory = ffi.new("char[]", params.directory.encode())
    native = ffi.new("ps_client_params_t *")
    native.directory = directory
    native.client_id = params.client_id
    native.client_slot = params.client_slot
    native.sender_wake_fd = params.sender_wake_fd
    native.receiver_wake_fd = params.receiver_wake_fd
    out = ffi.new("ps_client_t **")
    code = lib.ps_client_open(native, out)
    if code < 0:
        _close_all(fds)
    raise_native(code, f"cannot map {params.directory}")

    def close(handle: ClientHandle) -> None:
        lib.ps_client_close(handle)
        _close_all(fds)

    return ffi.gc(out[0], close)


def close_fds(*fds: int) -> None:
    """Closes descriptors of a lease that nobody opened a client with."""
    _close_all([fd for fd in fds if fd >= 0])


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


#: ``client_ticket(handle) -> ticket``: taken before looking whether the awaited thing happened.
client_ticket: Final[Callable[[ClientHandle], int]] = lib.ps_client_ticket
#: ``client_wake(handle)``: ends every sleep of this client's threads.
client_wake: Final[Callable[[ClientHandle], None]] = lib.ps_client_wake
client_counter_count: Final[Callable[[ClientHandle], int]] = lib.ps_client_counter_count
client_counter_get: Final[Callable[[ClientHandle, int], int]] = lib.ps_client_counter_get
client_counter_set: Final[Callable[[ClientHandle, int, int], None]] = lib.ps_client_counter_set
client_counter_add: Final[Callable[[ClientHandle, int, int], int]] = lib.ps_client_counter_add


def client_set_daemon_away(client: ClientHandle, away: bool) -> None:
    """While away, offers answer ``Offer.DAEMON_AWAY``."""
    lib.ps_client_set_daemon_away(client, 1 if away else 0)


def client_replace_fds(params: ClientParams, sender_wake_fd: int, receiver_wake_fd: int) -> None:
    """Puts a successor's descriptors in the places of those the client was opened with, and wakes
    both agents: what happened in between had nobody to wake.  Takes the new ones over.

    A thread that is about to write to an old one reaches the new one instead."""
    for new, old in (
        (sender_wake_fd, params.sender_wake_fd), (receiver_wake_fd, params.receiver_wake_fd)
    ):
        if new < 0:
            continue
        if old >= 0:
            os.dup2(new, old, inheritable=False)
            os.eventfd_write(old, 1)
        os.close(new)


def client_sleep(client: ClientHandle, ticket: int, timeout_ns: int) -> bool:
    """Sleeps until something happened after ``ticket`` was taken; False after ``timeout_ns``.

    A signal ends the sleep as if woken, so that the caller's loop lets Python run its handlers.
    """
    code: int = lib.ps_client_sleep(client, ticket, timeout_ns)
    if code == 0 or code == errors.E_INTERRUPTED:
        return True
    if code == errors.E_TIMEOUT:
        return False
    raise errors.native_error(code, last_error(), operation="waiting")


# ---- publication ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PublicationParams:
    """What the daemon answered to an AddPublication."""

    log_path: str
    registration_id: int
    publication_slot: int
    limit_counter_id: int
    max_message_bytes: int
    exclusive: bool


@attrs.frozen(kw_only=True)
class PublicationConstants:
    """Facts of a publication that never change; lengths in bytes."""

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
    """Maps the publication's log.  VersionMismatch, CorruptLogError, NativeError."""
    path = ffi.new("char[]", params.log_path.encode())
    native = ffi.new("ps_pub_params_t *")
    native.log_path = path
    native.registration_id = params.registration_id
    native.publication_slot = params.publication_slot
    native.limit_counter_id = params.limit_counter_id
    native.max_message_bytes = params.max_message_bytes
    native.exclusive = 1 if params.exclusive else 0
    out = ffi.new("ps_pub_t **")
    raise_native(lib.ps_pub_open(client, native, out), f"cannot map {params.log_path}")
    return ffi.gc(out[0], _Closer(lib.ps_pub_close, client))


def address_of(handle: Any) -> int:
    """The native address of a handle, for the fast path; it keeps the handle itself beside it."""
    address: int = int(ffi.cast("uintptr_t", handle))
    return address


class _Closer:
    """A destructor that keeps what the handle stands on alive until the handle itself is freed."""

    __slots__ = ("_close", "_owner")

    def __init__(self, close: Callable[[Any], None], owner: Any) -> None:
        self._close = close
        self._owner = owner

    def __call__(self, handle: Any) -> None:
        self._close(handle)
        self._owner = None


def _nothing(_pointer: Any) -> None:
    """Destructor of a borrowed pointer."""


def pub_constants(pub: PublicationHandle) -> PublicationConstants:
    """The constants of an open publication."""
    native = ffi.new("ps_pub_constants_t *")
    lib.ps_pub_get_constants(pub, native)
    names = [field.name for field in attrs.fields(PublicationConstants)]
    return PublicationConstants(**{name: getattr(native, name) for name in names})


#: ``pub_offer(handle, bytes, length, reserved_value) -> position or code``; bytes objects only.
pub_offer: Final[Callable[[PublicationHandle, bytes, int, int], int]] = lib.ps_pub_offer
pub_mark_closed: Final[Callable[[PublicationHandle], None]] = lib.ps_pub_mark_closed
pub_position: Final[Callable[[PublicationHandle], int]] = lib.ps_pub_position
pub_limit: Final[Callable[[PublicationHandle], int]] = lib.ps_pub_limit
pub_available_window: Final[Callable[[PublicationHandle], int]] = lib.ps_pub_available_window
pub_is_connected: Final[Callable[[PublicationHandle], int]] = lib.ps_pub_is_connected
pub_want_room: Final[Callable[[PublicationHandle], None]] = lib.ps_pub_want_room


def pub_offer_buffer(pub: PublicationHandle, data: Any, reserved_value: int) -> int:
    """Offers any contiguous buffer.  TypeError when ``data`` is none."""
    with ffi.from_buffer(_flat(data)) as pointer:
        position: int = lib.ps_pub_offer(pub, pointer, len(pointer), reserved_value)
    return position


def pub_offer_buffers(pub: PublicationHandle, pieces: Sequence[Any], reserved_value: int) -> int:
    """Offers one message gathered from ``pieces``."""
    if not pieces:
        position: int = lib.ps_pub_offer(pub, b"", 0, reserved_value)
        return position
    pointers = [ffi.from_buffer(_flat(piece)) for piece in pieces]
    native = ffi.new("ps_iov_t[]", len(pointers))
    for index, pointer in enumerate(pointers):
        native[index].data = pointer
        native[index].length = len(pointer)
    position = lib.ps_pub_offerv(pub, native, len(pointers), reserved_value)
    for pointer in pointers:
        ffi.release(pointer)
    return position


def _flat(data: Any) -> Any:
    """``data`` as something cffi takes a byte pointer from; strings are refused."""
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
    """How far a batch went: messages accepted, and the last position or, for none, the code."""

    accepted: int
    position: int


def pub_offer_batch(
    pub: PublicationHandle, base: Any, offsets: Any, first: int, count: int
) -> BatchOutcome:
    """Offers ``base[offsets[i]:offsets[i + 1]]`` for ``count`` messages from ``first`` on.

    ``offsets`` is a buffer of native int64, monotonic, inside ``base``: checked by the caller.
    """
    accepted = ffi.new("int32_t *")
    with ffi.from_buffer(base) as bytes_, ffi.from_buffer("int64_t[]", offsets) as bounds:
        code = lib.ps_pub_offer_batch(
            pub, ffi.cast("const uint8_t *", bytes_), bounds + first, count, accepted
        )
    return BatchOutcome(accepted[0], code)


def pub_offer_strided(
    pub: PublicationHandle, base: Any, stride: int, first: int, count: int
) -> BatchOutcome:
    """Offers ``count`` messages of ``stride`` bytes, back to back, from number ``first`` on."""
    accepted = ffi.new("int32_t *")
    with ffi.from_buffer(base) as bytes_:
        start = ffi.cast("const uint8_t *", bytes_) + first * stride
        code = lib.ps_pub_offer_strided(pub, start, stride, count, accepted)
    return BatchOutcome(accepted[0], code)


class NativeClaim:
    """A claimed frame of a publication.  ``position`` > 0, or the code of the refusal."""

    __slots__ = ("_native", "_pub", "position")

    def __init__(self, pub: PublicationHandle, length: int) -> None:
        self._pub = pub
        self._native = ffi.new("ps_claim_t *")
        self.position: int = lib.ps_pub_try_claim(pub, length, self._native)

    def view(self) -> memoryview:
        """The writable payload.  The log stays mapped for as long as any view of it exists."""
        native = self._native
        if native.length == 0:
            return memoryview(bytearray())
        pointer = ffi.gc(native.data, _Closer(_nothing, self._pub))
        return memoryview(ffi.buffer(pointer, native.length))

    def commit(self, reserved_value: int) -> int:
        """0, or a ``ps_error_code``."""
        code: int = lib.ps_pub_commit(self._pub, self._native, reserved_value)
        return code

    def abort(self) -> int:
        """0, or a ``ps_error_code``."""
        code: int = lib.ps_pub_abort(self._pub, self._native)
        return code


# ---- images and subscriptions --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ImageParams:
    """What an ImageAvailable notice says."""

    log_path: str
    correlation_id: int
    subscription_id: int
    position_counter_id: int
    subscriber_slot: int
    image_slot: int
    publication_slot: int


def img_open(client: ClientHandle, params: ImageParams) -> ImageHandle:
    """Maps an image's log.  VersionMismatch, CorruptLogError, NativeError."""
    path = ffi.new("char[]", params.log_path.encode())
    native = ffi.new("ps_img_params_t *")
    native.log_path = path
    native.correlation_id = params.correlation_id
    native.subscription_id = params.subscription_id
    native.position_counter_id = params.position_counter_id
    native.subscriber_slot = params.subscriber_slot
    native.image_slot = params.image_slot
    native.publication_slot = params.publication_slot
    out = ffi.new("ps_img_t **")
    raise_native(lib.ps_img_open(client, native, out), f"cannot map {params.log_path}")
    return ffi.gc(out[0], _Closer(lib.ps_img_close, client))


img_position: Final[Callable[[ImageHandle], int]] = lib.ps_img_position
img_released: Final[Callable[[ImageHandle], int]] = lib.ps_img_released
img_is_end_of_stream: Final[Callable[[ImageHandle], int]] = lib.ps_img_is_end_of_stream
img_end_of_stream_position: Final[Callable[[ImageHandle], int]] = lib.ps_img_end_of_stream_position
img_term_length: Final[Callable[[ImageHandle], int]] = lib.ps_img_term_length
img_mtu: Final[Callable[[ImageHandle], int]] = lib.ps_img_mtu
img_initial_term_id: Final[Callable[[ImageHandle], int]] = lib.ps_img_initial_term_id
img_session_id: Final[Callable[[ImageHandle], int]] = lib.ps_img_session_id
img_join_position: Final[Callable[[ImageHandle], int]] = lib.ps_img_join_position
img_transport_count: Final[Callable[[ImageHandle], int]] = lib.ps_img_transport_count
img_has_data: Final[Callable[[ImageHandle], int]] = lib.ps_img_has_data
#: ``img_poll(handle, messages, limit, flags) -> count or ps_error_code``.
img_poll: Final[Callable[[ImageHandle, MessageArray, int, int], int]] = lib.ps_img_poll
img_release: Final[Callable[[ImageHandle], None]] = lib.ps_img_release


def img_rewind(image: ImageHandle, position: int) -> None:
    """What lies behind ``position`` will be delivered again."""
    raise_native(lib.ps_img_rewind(image, position), "rewinding")


#: What a poll returns at a gap.
GAP: Final[int] = lib.PS_E_GAP


def img_report_gaps(image: ImageHandle) -> None:
    """Polls end before gaps from now on, and return :data:`GAP` behind them."""
    lib.ps_img_report_gaps(image)


def img_take_gap(image: ImageHandle) -> tuple[int, int, int | None] | None:
    """The gap a poll stands behind: positions from and to, and messages where that is known."""
    out = ffi.new("int64_t[3]")
    if not lib.ps_img_take_gap(image, out, out + 1, out + 2):
        return None
    return out[0], out[1], None if out[2] < 0 else out[2]


def img_map(image: ImageHandle) -> memoryview:
    """The whole mapped log, read-only.  It stays mapped for as long as any view of it exists."""
    length = ffi.new("int64_t *")
    base = lib.ps_img_map(image, length)
    pointer = ffi.gc(ffi.cast("uint8_t *", base), _Closer(_nothing, image))
    return memoryview(ffi.buffer(pointer, length[0])).toreadonly()


class MappedLog(NamedTuple):
    """Where an image's log is mapped; ``owner`` keeps it mapped."""

    address: int
    length: int
    owner: Any


def img_mapped(image: ImageHandle) -> MappedLog:
    """The whole mapped log, for the fast path."""
    length = ffi.new("int64_t *")
    base = lib.ps_img_map(image, length)
    return MappedLog(int(ffi.cast("uintptr_t", base)), length[0], image)


def sub_open(client: ClientHandle, registration_id: int, stream_id: int) -> SubscriptionHandle:
    """A subscription without images."""
    out = ffi.new("ps_sub_t **")
    code = lib.ps_sub_open(client, registration_id, stream_id, out)
    raise_native(code, "cannot open the subscription")
    return ffi.gc(out[0], _Closer(lib.ps_sub_close, client))


def sub_add_image(sub: SubscriptionHandle, image: ImageHandle) -> None:
    """Appends ``image`` to the list that is polled.  The caller keeps the image handle."""
    raise_native(lib.ps_sub_add_image(sub, image), "adding an image")


def sub_remove_image(sub: SubscriptionHandle, image: ImageHandle) -> None:
    """Takes ``image`` out; those behind it move up."""
    raise_native(lib.ps_sub_remove_image(sub, image), "removing an image")


#: ``sub_poll(handle, messages, limit, flags) -> count or ps_error_code``.
sub_poll: Final[Callable[[SubscriptionHandle, MessageArray, int, int], int]] = lib.ps_sub_poll
sub_has_data: Final[Callable[[SubscriptionHandle], int]] = lib.ps_sub_has_data
sub_release: Final[Callable[[SubscriptionHandle], None]] = lib.ps_sub_release
sub_image_count: Final[Callable[[SubscriptionHandle], int]] = lib.ps_sub_image_count

#: One ``ps_message_t``: data address, length, log_offset, start_position, position, reserved_value,
#: session_id, stream_id, term_id, term_offset, image_index, flags, assembled.
MESSAGE: Final = struct.Struct("@PqqqqqiiiiiBB2x")
#: The same as NumPy structured dtype description.
MESSAGE_FIELDS: Final = (
    ("data", "u8"),
    ("length", "i8"),
    ("log_offset", "i8"),
    ("start_position", "i8"),
    ("position", "i8"),
    ("reserved_value", "i8"),
    ("session_id", "i4"),
    ("stream_id", "i4"),
    ("term_id", "i4"),
    ("term_offset", "i4"),
    ("image_index", "i4"),
    ("flags", "u1"),
    ("assembled", "u1"),
    ("_pad", "u2"),
)
assert MESSAGE.size == ffi.sizeof("ps_message_t")


#: ``messages_bytes(native, count) -> bytes``: sum of the lengths.
messages_bytes: Final[Callable[[MessageArray, int], int]] = lib.ps_messages_bytes


class Messages:
    """Room for the results of one poll.

    ``native`` goes to ``sub_poll`` and ``img_poll``; ``raw`` is the same memory for
    ``MESSAGE.iter_unpack`` and NumPy, ``address`` the same for the fast path.
    """

    __slots__ = ("address", "capacity", "native", "raw")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.native: MessageArray = ffi.new("ps_message_t[]", capacity)
        self.raw = memoryview(ffi.buffer(self.native))
        self.address = address_of(self.native)

    # The next three take ``count`` messages of the latest poll, while it is the latest.  Addresses
    # are of memory with room for them.

    def payload_bytes(self, count: int) -> int:
        """Sum of the lengths."""
        return messages_bytes(self.native, count)

    def gather(self, count: int, offsets: int, data: int) -> None:
        """Copies the payloads to ``data``, and count + 1 int64 to ``offsets``."""
        lib.ps_messages_gather(
            self.native, count, ffi.cast("int64_t *", offsets), ffi.cast("uint8_t *", data)
        )

    def columns(self, count: int, positions: int, session_ids: int, reserved_values: int) -> None:
        """Copies int64, int32 and int64 a message."""
        lib.ps_messages_columns(
            self.native, count, ffi.cast("int64_t *", positions),
            ffi.cast("int32_t *", session_ids), ffi.cast("int64_t *", reserved_values),
        )


def sub_rewind(sub: SubscriptionHandle, messages: Messages, count: int, first: int) -> None:
    """Undelivers ``messages[first:count]`` of the last poll."""
    lib.ps_sub_rewind(sub, messages.native, count, first)


def copy_bytes(address: int, length: int) -> bytes:
    """A copy of an assembled message, by the address that the poll gave."""
    copied: bytes = ffi.buffer(ffi.cast("uint8_t *", address), length)[:]
    return copied
