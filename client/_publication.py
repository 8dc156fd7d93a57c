# SPDX-License-Identifier: Apache-2.0
"""Publications."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

from penstock.client._batch_sender import TURNS, BatchSender
from penstock.client._batches import Block, as_block, length_of
from penstock.client._claim import Claim
from penstock.client._no_credit import (
    Diverted,
    OnNoCredit,
    PublicationCredits,
    checked,
    credits_of,
    is_diverted,
    other_of,
)
from penstock.client._offer import TRANSIENT, Offer, offer_code
from penstock.client._pressure import Pressure, Rest, Throttled, after_refusal, pressure_of
from penstock.client._publication_facts import (
    BatchResult,
    PublicationStatistics,
    RemoteRejection,
)
from penstock.client._receivers import Receivers, why_not_connected
from penstock.client._restart import LostSession
from penstock.client._subscription import removal
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core import errors, pub_policy
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
        """Type of a NumPy array: NumPy declares arrays as Buffer only from Python 3.12 on."""

        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    #: Content of one message: a buffer, or a list or tuple of buffers that are joined.
    Payload: TypeAlias = Buffer | Array | Sequence[Buffer | Array]

#: Callback that gets the report of a lost session, on a thread of the client.
SessionCallback: TypeAlias = Callable[[LostSession], object]

_MAX_BATCH = 2**31 - 1
_LOST_KEPT = 16
_HELD = (Offer.BACK_PRESSURED, Offer.RATE_LIMITED, Offer.NO_CREDIT, Offer.THROTTLED)
_MISUSE = -1000  # values below this are ps_error_code


def _open_native(client: Client, ready: control.PublicationReady) -> core.PublicationHandle:
    return core.pub_open(
        client._native(),
        core.PublicationParams(
            log_path=ready.log_path,
            registration_id=ready.registration_id,
            publication_slot=ready.publication_slot,
            limit_counter_id=ready.limit_counter_id,
            max_message_bytes=ready.max_message_bytes,
            exclusive=ready.exclusive and not ready.shared_log,
        ),
    )


class Publication(Throttled, Receivers):
    """Sends messages to one stream on one channel.

    Any thread may use the result of :meth:`penstock.Client.add_publication`. One thread at a time
    may use an exclusive publication. At the end of a ``with`` block the publication closes itself.
    """

    # No __slots__: the fast path's class derives from this one and from one with fields in C.

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
        self._diverted = Diverted()

    def _suspend(self) -> None:
        """Return DAEMON_AWAY for offers until the publication is added again, because a new daemon
        could not adopt its session."""
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
        """Continue in a new session."""
        handle = _open_native(self._client, ready)
        self._ready = ready
        self._constants = core.pub_constants(handle)
        self._notices = self._client._port.notices(ready.registration_id)
        self._handle, self._suspended = handle, None
        if self._on_session_lost is not None and self._lost:
            self._on_session_lost(self._lost[-1])

    # ---- sending ---------------------------------------------------------------------------------

    def offer(self, data: Payload, *, reserved_value: int = 0, never_throttle: bool = False) -> int:
        """Publish one message; never waits.

        :param data: bytes, any contiguous buffer, or a list or tuple of buffers that are gathered
            into one message.
        :param reserved_value: 64 bits that are sent with the message.
        :param never_throttle: if the daemon throttles the stream, return the code of the limit that
            the stream is at, not ``THROTTLED``.
        :returns: the stream position after the message (> 0), or an :class:`Offer` if the message
            was refused.
        :raises MessageTooLong: ``data`` is longer than :attr:`max_message_length`.
        :raises ForkedError: the caller is a child of the process that connected.
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
        if never_throttle and position == Offer.THROTTLED:
            position = handle.lib.ps_pub_unthrottle(handle.native)
        return self._refusal(position, data)

    def offer_batch(self, messages: Any) -> BatchResult:
        """Publish many messages, in order; stop at the first message that is refused. Never waits.

        :param messages: a sequence of bytes; a NumPy array, 2-D uint8 or 1-D of fixed-size records
            (one message a row); an Arrow binary, string or fixed-size-binary array; a RecordBatch
            or Table with one such column, or one named ``payload``.
        :raises MessageTooLong: a message of the batch is too long; no message was sent.
        :raises InvalidArgument: the messages contain nulls, or have a type that cannot be sent.
        """
        return self._offer_block(self._block(messages), 0)

    def send(
        self,
        data: Payload,
        timeout_s: float | None = None,
        *,
        reserved_value: int = 0,
        wait_connected: bool = True,
        on_no_credit: OnNoCredit = "block",
    ) -> int:
        """Publish one message; wait until there is room.

        :param timeout_s: longest wait in seconds; None: no limit.
        :param wait_connected: True: if no receiver is connected, also wait for a receiver.
        :param on_no_credit: without credit, ``block`` (wait), ``drop`` the message, or send it by
            another publication: ``route(publication)``.
        :returns: the stream position after the message, or ``Offer.DROPPED`` under
            ``ps-policy=drop_newest`` or ``drop_oldest``. A dropped message without credit:
            ``Offer.NO_CREDIT``; a routed message: its position in the other stream.
        :raises TimeoutExpired: the stream had no room, or no receiver, for ``timeout_s`` seconds.
        :raises NotConnected: there is no receiver, and ``wait_connected`` is False.
        :raises DaemonGone: the daemon died.
        :raises PublicationFailed: this session cannot accept further messages, or
            ``ps-policy=error`` has failed the publication (call :meth:`reset` to continue).
        """
        position = self.offer(data, reserved_value=reserved_value)
        if position > 0:
            return position
        checked(on_no_credit)

        rest = Rest(self)
        rest.note(position)

        def settled() -> bool:
            return is_diverted(position, on_no_credit) or self._settled(position, wait_connected)

        def attempt() -> bool:
            nonlocal position
            self._want_room()
            position = self._offer_on(data, reserved_value)
            rest.note(position)
            return settled()

        if not settled() and not self._client._parking().until(attempt, timeout_s, rest.left_ns):
            self._raise_timeout(position, timeout_s)
        if is_diverted(position, on_no_credit):
            other = other_of(self, on_no_credit)
            if other is not None:
                position = other.send(data, timeout_s, reserved_value=reserved_value)
        return position

    def send_batch(
        self, messages: Any, timeout_s: float | None = None, *, wait_connected: bool = True
    ) -> int:
        """Publish all of ``messages`` (see :meth:`offer_batch`); wait while the stream has no room.

        If the call raises an exception, a part of the batch may have been sent.

        :returns: the position after the last message; the current position for an empty batch.
        """
        sending = self._batch_sender(messages, wait_connected)
        while not sending.is_done:
            if not self._client._parking().until(
                sending.attempt, timeout_s, sending.rest.left_ns
            ):
                self._raise_timeout(sending.position, timeout_s)
        return sending.position

    def _batch_sender(self, messages: Any, wait_connected: bool) -> BatchSender:
        return BatchSender(self, self._block(messages), wait_connected)

    def try_claim(self, length: int) -> Claim:
        """Claim a frame of ``length`` payload bytes, into which the application writes a message.

        :raises MessageTooLong: ``length`` exceeds :attr:`max_payload_length`.
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

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Stream position after the last message of all publishers of the stream, in bytes."""
        return core.pub_position(self._open())

    @property
    def position_limit(self) -> int:
        """Position up to which the stream now accepts messages, in bytes; 0: no receiver."""
        return core.pub_limit(self._open())

    @property
    def available_window(self) -> int:
        """Bytes between position and limit."""
        return core.pub_available_window(self._open())

    def pressure(self) -> Pressure:
        """Return the cause that blocks this publication now, and the total time for which each
        cause and each culprit has blocked it.

        The method takes a few microseconds, however many streams the daemon has. After a refused
        offer, ``pressure`` waits up to 100 ms until the sender has recorded the cause. If the
        stream is not blocked, the result has its last cause, and ``held_ns`` is 0.
        """
        bell = self._client._bell
        view = self._view()
        view = view.away(bell.away_ns) if bell.is_away else after_refusal(
            view, self._view, self._client._parking()
        )
        return pressure_of(view, time.monotonic_ns())

    def _view(self) -> PressureView:
        view = core.pub_pressure(self._suspended or self._open())
        if view is None:
            view = attrs.evolve(self._pressure_seen or NO_PRESSURE, stale=True)
        self._pressure_seen = view
        return view

    @property
    def credits(self) -> PublicationCredits:
        """Counts of the message credits that receivers have granted and publishers have used."""
        return credits_of(self)

    @property
    def is_connected(self) -> bool:
        """Whether a receiver is there."""
        return bool(core.pub_is_connected(self._open()))

    @property
    def is_closed(self) -> bool:
        return self._handle is None and self._suspended is None

    @property
    def lost_sessions(self) -> tuple[LostSession, ...]:
        """Sessions that a restarted daemon could not continue: at most 16, the newest last."""
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
        """The daemon's id of the publication; all clients that share a publication see the same
        id."""
        return self._ready.original_id

    @property
    def session_id(self) -> int:
        return self._constants.session_id

    @property
    def stream_id(self) -> int:
        return self._constants.stream_id

    @property
    def max_payload_length(self) -> int:
        """Longest message that fits into one frame, in bytes; also the limit of ``try_claim``."""
        return self._constants.max_payload_bytes

    @property
    def max_message_length(self) -> int:
        """Longest message that ``offer`` accepts, in bytes."""
        return self._constants.max_message_bytes

    @property
    def term_length(self) -> int:
        """Bytes."""
        return self._constants.term_length

    @property
    def rejections(self) -> tuple[RemoteRejection, ...]:
        """The receivers that rejected the stream, with reasons: at most 64, the newest last."""
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
        """Return a frozen snapshot."""
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
        """Add a destination (``control-mode=manual``). Return its id."""
        self._open()
        return self._client._perform(
            control.AddDestination(registration_id=self.registration_id, channel=channel)
        ).registration_id

    def remove_destination(self, destination: str | int) -> None:
        """Stop sending to a destination; ``destination`` is its channel or its id."""
        self._open()
        self._client._perform(removal(self.registration_id, destination))

    # ---- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the publication; the daemon still sends accepted messages. Idempotent."""
        self._end(revoke=False)

    def reset(self) -> bool:
        """Reopen a publication that has failed under ``ps-policy=error``.

        A reopened publication keeps its session, positions, open claims and accepted messages.

        :returns: True if the publication had failed, and False if there was no failure.
        :raises InvalidArgument: the publication's channel does not have ``ps-policy=error``.
        """
        handle = self._open()
        found = pub_policy.pub_reset(handle)
        if found < 0:
            raise InvalidArgument(
                f"stream {self.stream_id} on {self._channel} has not ps-policy=error: there is no "
                "failure to reset"
            )
        return found == 1

    @property
    def is_failed(self) -> bool:
        """Whether the publication has failed because of ``ps-policy=error``, and :meth:`reset` was
        not called since."""
        return bool(pub_policy.pub_is_failed(self._open()))

    def revoke(self) -> None:
        """End an exclusive publication at once; the daemon drops messages that are not sent yet."""
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
        """Release all local resources; a call in another thread keeps the log until it returns."""
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
            raise self._too_long(length_of(data))
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
        """Offer a message, and repeat the offer if the log rotated to a new term, because no event
        wakes a waiting caller then."""
        for _ in range(TURNS):
            position: int = self.offer(data, reserved_value=reserved_value)
            if position != Offer.ADMIN_ACTION:
                break
        return position

    def _settled(self, position: int, wait_connected: bool, *, more: bool = False) -> bool:
        """Return whether a wait can end with ``position``, the result of the last offer; raise an
        exception if the offer can never succeed."""
        if position > 0:
            return not more
        if position in TRANSIENT:
            return False
        if position == Offer.NOT_CONNECTED:
            if not wait_connected:
                raise NotConnected(
                    f"no receiver is connected to stream {self.stream_id} on {self._channel}"
                    + why_not_connected(self)
                )
            return False
        if position == Offer.CLOSED:
            self._client._check()
            raise ClosedError("the publication is closed")
        if position == Offer.DAEMON_AWAY:
            self._client._check()       # raises if the client no longer waits for a new daemon
            return False
        if position == Offer.FAILED:
            raise PublicationFailed(
                f"stream {self.stream_id} on {self._channel} failed, because its log was full "
                "under ps-policy=error: call reset() to continue",
                code=position,
            )
        if position == Offer.MAX_POSITION_EXCEEDED:
            raise PublicationFailed(
                f"stream {self.stream_id} on {self._channel} has used all its positions: "
                f"{Offer(position).name}; add a new publication",
                code=position,
            )
        return True

    def _raise_timeout(self, position: int, timeout_s: float | None) -> None:
        """Raise TimeoutExpired. The text names the culprit that blocks the stream; if no culprit is
        known, it names the code of the last offer."""
        code = offer_code(position)
        why = code.name if code is not None else "room"
        if code is Offer.NOT_CONNECTED:
            why += why_not_connected(self)
        if position in _HELD:
            with contextlib.suppress(PenstockError):
                pressure = self.pressure()
                if pressure.cause != "none":
                    why = f"{why}: {pressure.summary}"
        raise TimeoutExpired(
            f"stream {self.stream_id} on {self._channel} accepted no message for "
            f"{timeout_s:g} s: {why}"
        )

    def _repr_html_(self) -> str:
        from penstock.client._html import publication_html

        return publication_html(self)

    def __repr__(self) -> str:
        state = " closed" if self._handle is None else ""
        return (
            f"<Publication {self._channel} stream={self.stream_id} "
            f"session={self.session_id}{state}>"
        )
