# SPDX-License-Identifier: Apache-2.0
"""Sending."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import attrs

from penstock.client._batches import Block, as_block
from penstock.client._claim import Claim
from penstock.client._offer import TRANSIENT, Offer, offer_code
from penstock.client._pressure import Pressure, pressure_of
from penstock.client._restart import LostSession
from penstock.client._subscription import removal
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core import errors
from penstock.core.errors import (
    ClosedError,
    InvalidArgument,
    MessageTooLong,
    NotConnected,
    PenstockError,
    PublicationFailed,
    TimeoutExpired,
)
from penstock.core.pressure import NO_PRESSURE, PressureView

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.client._client import Client

    class Array(Protocol):
        """A NumPy array, which is typed as a Buffer from Python 3.12 on."""

        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    #: What one message is made from: a buffer, or a list or tuple of several that are gathered.
    Payload: TypeAlias = Buffer | Array | Sequence[Buffer | Array]

#: Called with what became of a session, on a thread of the client.
SessionCallback: TypeAlias = Callable[[LostSession], object]

_MAX_BATCH = 2**31 - 1
_LOST_KEPT = 16
_HELD = (Offer.BACK_PRESSURED, Offer.RATE_LIMITED)
_TURNS = 16  # offers in a row while a term turns
_MISUSE = -1000  # positions below this are ps_error_code


class BatchResult(NamedTuple):
    """How far ``offer_batch`` went."""

    accepted: int
    """Messages that are in the stream now: the first ``accepted`` of the batch."""
    position: int
    """Position after the last accepted one, or the :class:`Offer` code when none was."""


@attrs.frozen(kw_only=True)
class RemoteRejection:
    """A receiver refused the stream (ERR frames came back).  ``source`` is its address, ``count``
    the number of ERR frames so far; it grows while the receiver repeats them."""

    receiver_id: int
    source: str
    code: int
    message: str
    count: int = 1


@attrs.frozen(kw_only=True)
class PublicationStatistics:
    """A publication at one moment; positions and window in bytes."""

    channel: str
    stream_id: int
    session_id: int
    position: int
    position_limit: int
    available_window: int
    is_connected: bool


def _open_native(client: Client, ready: control.PublicationReady) -> core.PublicationHandle:
    return core.pub_open(
        client._native(),
        core.PublicationParams(
            log_path=ready.log_path,
            registration_id=ready.registration_id,
            publication_slot=ready.publication_slot,
            limit_counter_id=ready.limit_counter_id,
            max_message_bytes=ready.max_message_bytes,
            exclusive=ready.exclusive,
        ),
    )


class BatchSender:
    """A batch on its way into the stream."""

    def __init__(self, publication: Publication, block: Block, wait_connected: bool) -> None:
        self._publication = publication
        self._block = block
        self._wait_connected = wait_connected
        self._done = 0
        self.position = publication.position
        """Position after the last message that was accepted, or the code of a refusal."""

    @property
    def is_done(self) -> bool:
        """Whether every message was accepted."""
        return self._done == self._block.count

    def attempt(self) -> bool:
        """Offer what is left; whether there is no more to wait for now."""
        publication = self._publication
        publication._want_room()
        for _ in range(_TURNS):
            accepted, self.position = publication._offer_block(self._block, self._done)
            self._done += accepted
            if self.position != Offer.ADMIN_ACTION:
                break
        return self.is_done or publication._settled(
            self.position, self._wait_connected, more=True
        )


class Publication:
    """Sends messages to one stream on one channel.

    Made by :meth:`penstock.Client.add_publication` (any thread may offer) or
    :meth:`penstock.Client.add_exclusive_publication` (one thread at a time).  A context manager
    that closes itself.
    """

    # No __slots__: the fast path's class is this upon one with fields in C.

    def __init__(
        self,
        client: Client,
        channel: str,
        ready: control.PublicationReady,
        *,
        on_session_lost: SessionCallback | None = None,
    ) -> None:
        self._client = client
        self._channel = channel
        self._on_session_lost = on_session_lost
        self._lost: deque[LostSession] = deque(maxlen=_LOST_KEPT)
        self._suspended: core.PublicationHandle | None = None
        self._ready = ready
        handle = _open_native(client, ready)
        self._handle: core.PublicationHandle | None = handle
        self._constants = core.pub_constants(handle)
        self._notices = client._port.notices(ready.registration_id)
        self._rejections: dict[int, RemoteRejection] = {}
        self._pressure_seen: PressureView | None = None

    def _suspend(self) -> None:
        """The daemon of this session died, and the new daemon could not adopt it: until it is added
        anew offers answer DAEMON_AWAY."""
        handle = self._handle
        if handle is None or self._suspended is not None:
            return
        self._suspended = handle
        self._handle = None
        position, limit = core.pub_position(handle), core.pub_limit(handle)
        sent = min(position, max(0, limit - self._constants.window_bytes))
        core.pub_mark_closed(handle)
        self._lost.append(
            LostSession(session_id=self.session_id, sent_position=sent, position=position)
        )

    def _renew(self, ready: control.PublicationReady) -> None:
        """Goes on in a new session."""
        handle = _open_native(self._client, ready)
        self._ready = ready
        self._constants = core.pub_constants(handle)
        self._notices = self._client._port.notices(ready.registration_id)
        self._handle, self._suspended = handle, None
        if self._on_session_lost is not None and self._lost:
            self._on_session_lost(self._lost[-1])

    # ---- sending ---------------------------------------------------------------------------------

    def offer(self, data: Payload, *, reserved_value: int = 0) -> int:
        """Publishes one message, never waiting.

        :param data: bytes, any contiguous buffer, or a list or tuple of buffers that are gathered
            into one message.
        :param reserved_value: 64 bits that travel beside the message.
        :returns: the stream position after the message (> 0), or an :class:`Offer`: pressure is
            an answer, not an exception.
        :raises MessageTooLong: over :attr:`max_message_length`.
        :raises ForkedError: in a child of the process that connected.
        """
        handle = self._handle
        if handle is None:
            return self._offer_closed()
        if type(data) is bytes:
            position: int = handle.lib.ps_pub_offer(handle.native, data, len(data), reserved_value)
        elif isinstance(data, (list, tuple)):
            position = core.pub_offer_buffers(handle, data, reserved_value)
        else:
            position = core.pub_offer_buffer(handle, data, reserved_value)
        if position > 0:
            return position
        return self._refusal(position, data)

    def offer_batch(self, messages: Any) -> BatchResult:
        """Publishes many messages in one crossing, in order, until one is refused.  Never waits.

        :param messages: a sequence of bytes; a NumPy array, 2-D uint8 or 1-D of fixed-size records
            (one message a row); an Arrow binary, string or fixed-size-binary array; a RecordBatch
            or Table with one such column, or one named ``payload``.
        :raises MessageTooLong: before anything is sent, if any message is too long.
        :raises InvalidArgument: nulls, or a type that has no bytes to send.
        """
        return self._offer_block(self._block(messages), 0)

    def send(
        self,
        data: Payload,
        timeout_s: float | None = None,
        *,
        reserved_value: int = 0,
        wait_connected: bool = True,
    ) -> int:
        """Publishes one message, waiting for room.

        :param timeout_s: seconds to wait at most, None without end.
        :param wait_connected: whether to wait for a receiver too.
        :returns: the stream position after the message.
        :raises TimeoutExpired: no room, or no receiver, within ``timeout_s``.
        :raises NotConnected: no receiver, and ``wait_connected`` is False.
        :raises DaemonGone: the daemon died.
        :raises PublicationFailed: this session can carry no more.
        """
        position = self.offer(data, reserved_value=reserved_value)
        if position > 0:
            return position

        def attempt() -> bool:
            nonlocal position
            self._want_room()
            position = self._offer_on(data, reserved_value)
            return self._settled(position, wait_connected)

        if not self._settled(position, wait_connected) and not self._client._parking().until(
            attempt, timeout_s
        ):
            self._raise_timeout(position, timeout_s)
        return position

    def send_batch(
        self, messages: Any, timeout_s: float | None = None, *, wait_connected: bool = True
    ) -> int:
        """Publishes all of ``messages`` (see :meth:`offer_batch`), waiting for room.

        On an exception a part of the batch may have been sent.

        :returns: the position after the last message; the current one for an empty batch.
        """
        sending = self._batch_sender(messages, wait_connected)
        while not sending.is_done:
            if not self._client._parking().until(sending.attempt, timeout_s):
                self._raise_timeout(sending.position, timeout_s)
        return sending.position

    def _batch_sender(self, messages: Any, wait_connected: bool) -> BatchSender:
        return BatchSender(self, self._block(messages), wait_connected)

    def try_claim(self, length: int) -> Claim:
        """Claims a frame of ``length`` payload bytes to write a message in place.

        :raises MessageTooLong: over :attr:`max_payload_length`.
        """
        handle = self._open()
        if not 0 <= length <= self._constants.max_payload_bytes:
            raise MessageTooLong(
                f"cannot claim {length} bytes: at most {self._constants.max_payload_bytes} fit "
                "into one frame; use offer() for longer messages"
            )
        native = core.NativeClaim(handle, length)
        if native.position < _MISUSE:
            handle.library.check(native.position, "claim")
        return Claim(native, length)

    # ---- waiting ---------------------------------------------------------------------------------

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Sleeps until there is a receiver: True, or False after ``timeout_s`` seconds."""

        def connected() -> bool:
            self._want_room()
            return self.is_connected

        return self._client._parking().until(connected, timeout_s)

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Stream position after what was published so far by anyone, in bytes."""
        return core.pub_position(self._open())

    @property
    def position_limit(self) -> int:
        """Position up to which the stream accepts messages, in bytes; 0 while not connected."""
        return core.pub_limit(self._open())

    @property
    def available_window(self) -> int:
        """Bytes between position and limit."""
        return core.pub_available_window(self._open())

    def pressure(self) -> Pressure:
        """Return the cause that holds this publication now, and the time held by cause and by
        culprit.

        Reads shared memory in some microseconds, however many streams the daemon serves.
        """
        handle = self._suspended or self._open()
        view = core.pub_pressure(handle)
        if view is None:
            view = attrs.evolve(self._pressure_seen or NO_PRESSURE, stale=True)
        self._pressure_seen = view
        return pressure_of(view, time.monotonic_ns())

    @property
    def is_connected(self) -> bool:
        """Whether a receiver is there."""
        return bool(core.pub_is_connected(self._open()))

    @property
    def is_closed(self) -> bool:
        return self._handle is None and self._suspended is None

    @property
    def lost_sessions(self) -> tuple[LostSession, ...]:
        """Sessions that a new daemon could not continue, newest last; at most the last 16."""
        return tuple(self._lost)

    @property
    def is_exclusive(self) -> bool:
        return self._ready.exclusive

    @property
    def channel(self) -> str:
        return self._channel

    @property
    def registration_id(self) -> int:
        return self._ready.registration_id

    @property
    def original_id(self) -> int:
        """The daemon's number of the publication, the same for all who share it."""
        return self._ready.original_id

    @property
    def session_id(self) -> int:
        return self._constants.session_id

    @property
    def stream_id(self) -> int:
        return self._constants.stream_id

    @property
    def max_payload_length(self) -> int:
        """Longest message that fits into one frame, in bytes; also the limit of try_claim."""
        return self._constants.max_payload_bytes

    @property
    def max_message_length(self) -> int:
        """Longest message that offer takes, in bytes."""
        return self._constants.max_message_bytes

    @property
    def term_length(self) -> int:
        """Bytes."""
        return self._constants.term_length

    @property
    def rejections(self) -> tuple[RemoteRejection, ...]:
        """Receivers that refused the stream, newest last; at most the last 64."""
        while self._notices:
            notice = self._notices.popleft()
            if isinstance(notice, control.PublicationError):
                self._rejections.pop(notice.receiver_id, None)
                self._rejections[notice.receiver_id] = RemoteRejection(
                    receiver_id=notice.receiver_id, source=notice.source, code=notice.code,
                    message=notice.message, count=notice.count,
                )
        while len(self._rejections) > 64:
            del self._rejections[next(iter(self._rejections))]
        return tuple(self._rejections.values())

    def statistics(self) -> PublicationStatistics:
        """A frozen snapshot."""
        handle = self._open()
        return PublicationStatistics(
            channel=self._channel,
            stream_id=self.stream_id,
            session_id=self.session_id,
            position=core.pub_position(handle),
            position_limit=core.pub_limit(handle),
            available_window=core.pub_available_window(handle),
            is_connected=bool(core.pub_is_connected(handle)),
        )

    # ---- destinations ----------------------------------------------------------------------------

    def add_destination(self, channel: str) -> int:
        """Sends to a further destination (``control-mode=manual``).  Returns its id."""
        self._open()
        return self._client._perform(
            control.AddDestination(registration_id=self.registration_id, channel=channel)
        ).registration_id

    def remove_destination(self, destination: str | int) -> None:
        """Stops sending to a destination, given by channel or id."""
        self._open()
        self._client._perform(removal(self.registration_id, destination))

    # ---- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the publication; what was accepted is still sent by the daemon.  Idempotent."""
        self._end(revoke=False)

    def revoke(self) -> None:
        """Ends an exclusive publication at once: what was not sent yet never will be."""
        if not self.is_exclusive:
            raise InvalidArgument("only an exclusive publication can be revoked")
        self._end(revoke=True)

    def _end(self, *, revoke: bool) -> None:
        if self.is_closed:
            return
        self._client._remove(
            self, control.RemovePublication(registration_id=self.registration_id, revoke=revoke)
        )

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _drop(self) -> None:
        """Lets go of everything local; a call in another thread keeps the log until it returns."""
        handle, self._handle = self._handle, None
        self._suspended = None
        if handle is not None:
            core.pub_mark_closed(handle)

    # ---- inside ----------------------------------------------------------------------------------

    def _open(self) -> core.PublicationHandle:
        handle = self._handle
        if handle is None:
            handle = self._suspended
        if handle is None:
            self._client._check()
            raise ClosedError("the publication is closed")
        return handle

    def _offer_closed(self) -> int:
        self._client._check_fork()
        return Offer.DAEMON_AWAY if self._suspended is not None else Offer.CLOSED

    def _want_room(self) -> None:
        if self._suspended is None:
            core.pub_want_room(self._open())

    def _block(self, messages: Any) -> Block:
        return self._checked(as_block(messages))

    def _checked(self, block: Block) -> Block:
        if block.longest > self._constants.max_message_bytes:
            raise self._too_long(block.longest)
        return block

    def _offer_block(self, block: Block, first: int) -> BatchResult:
        handle = self._handle
        if handle is None:
            return BatchResult(0, self._offer_closed())
        count = min(block.count - first, _MAX_BATCH)
        if count == 0:
            return BatchResult(0, core.pub_position(handle))
        outcome = self._offer_native(handle, block, first, count)
        if outcome.position > 0:
            return BatchResult(outcome.accepted, outcome.position)
        return BatchResult(outcome.accepted, self._refusal(outcome.position, b""))

    def _offer_native(
        self, handle: core.PublicationHandle, block: Block, first: int, count: int
    ) -> core.BatchOutcome:
        if block.stride:
            return core.pub_offer_strided(handle, block.base, block.stride, first, count)
        return core.pub_offer_batch(handle, block.base, block.bounds(), first, count)

    def _refusal(self, position: int, data: Any) -> int:
        code = offer_code(position)
        if code is not None:
            return code
        if position == errors.E_TOO_LONG:
            raise self._too_long(_length(data))
        if position < _MISUSE or position == -6:
            self._client._library.check(position, "offer")
        return position

    def _too_long(self, length: int) -> MessageTooLong:
        return MessageTooLong(
            f"a message of {length} bytes is over the limit of "
            f"{self._constants.max_message_bytes} bytes on {self._channel}: split it, or request "
            "longer terms with term-length"
        )

    def _offer_on(self, data: Any, reserved_value: int) -> int:
        """``offer``, and again where a term turned meanwhile: nobody wakes a waiter for that."""
        for _ in range(_TURNS):
            position: int = self.offer(data, reserved_value=reserved_value)
            if position != Offer.ADMIN_ACTION:
                break
        return position

    def _settled(self, position: int, wait_connected: bool, *, more: bool = False) -> bool:
        """Whether waiting can end with ``position``; raises when waiting has no sense."""
        if position > 0:
            return not more
        if position in TRANSIENT:
            return False
        if position == Offer.NOT_CONNECTED:
            if not wait_connected:
                raise NotConnected(f"nobody receives stream {self.stream_id} on {self._channel}")
            return False
        if position == Offer.CLOSED:
            self._client._check()
            raise ClosedError("the publication is closed")
        if position == Offer.DAEMON_AWAY:
            self._client._check()       # raises once no new daemon is waited for any more
            return False
        if position in (Offer.MAX_POSITION_EXCEEDED, Offer.FAILED):
            raise PublicationFailed(
                f"stream {self.stream_id} on {self._channel} can carry no more: "
                f"{Offer(position).name}; add a new publication",
                code=position,
            )
        return True

    def _raise_timeout(self, position: int, timeout_s: float | None) -> None:
        """Say who holds the stream; where nobody does, the code of the offer has to do."""
        code = offer_code(position)
        why = code.name if code is not None else "room"
        if position in _HELD:
            with contextlib.suppress(PenstockError):
                pressure = self.pressure()
                if pressure.cause != "none":
                    why = f"{why}: {pressure.summary}"
        raise TimeoutExpired(
            f"stream {self.stream_id} on {self._channel} took no message for {timeout_s:g} s: {why}"
        )

    def __repr__(self) -> str:
        state = " closed" if self._handle is None else ""
        return (
            f"<Publication {self._channel} stream={self.stream_id} "
            f"session={self.session_id}{state}>"
        )


def _length(data: Any) -> int:
    if isinstance(data, Sequence) and not isinstance(data, (bytes, bytearray, memoryview)):
        return sum(memoryview(piece).nbytes for piece in data)
    return memoryview(data).nbytes


