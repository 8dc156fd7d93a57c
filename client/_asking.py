# SPDX-License-Identifier: Apache-2.0
"""Match replies to requests (``docs/request-reply.md``, decision 210). This module has the parts of
a requester that never block. The module :mod:`penstock.client._requester` has the parts that wait
for replies."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from penstock.client._iteration import Held
from penstock.core import client as core
from penstock.core.errors import ChannelRefused, ClosedError, InvalidArgument, TimeoutExpired
from penstock.errors import RemoteError

if TYPE_CHECKING:
    from penstock.client._client import Client
    from penstock.client._message import Message
    from penstock.client._publication import Payload, Publication
    from penstock.client._subscription import Subscription

MAX_COUNTER: Final = 2**31 - 1
_ERROR: Final = 1 << 31
_SESSIONS_TRIED: Final = 8
_SEPARATOR: Final = b"\n"
#: Longest text of an error that travels, in bytes: one frame of any MTU in use.
_MAX_ERROR_BYTES: Final = 1024


def correlation(session_id: int, counter: int, *, failed: bool = False) -> int:
    """Return the reserved value that identifies request number ``counter`` of a session. A reply
    has the reserved value of its request. In an error reply (``failed``), the error bit of this
    value is also set."""
    value = (session_id & 0xFFFFFFFF) << 32 | counter | (_ERROR if failed else 0)
    return value - (1 << 64) if value >> 63 else value


def correlated(reserved_value: int) -> tuple[int, int, bool]:
    """Split a reserved value. Return the session id of the requester's publication, the number of
    the request, and True if the message is an error reply."""
    low = reserved_value & 0xFFFFFFFF
    return reserved_value >> 32, low & MAX_COUNTER, bool(low & _ERROR)


def reply_address(
    source_identity: str, session_id: int, stream_id: int
) -> tuple[str, int] | None:
    """Return the channel and stream on which a server sends its reply. The arguments are the source
    identity, session and stream of the request. Return None if no reply can reach the requester:
    the source is a spy, or the session id contains no UDP port."""
    if source_identity == "aeron:ipc":
        return "aeron:ipc", session_id
    host, _, port = source_identity.rpartition(":")
    if not host or not port.isdigit() or not session_id & 0xFFFF:
        return None
    return f"aeron:udp?endpoint={host}:{session_id & 0xFFFF}", stream_id


def error_payload(error: BaseException) -> bytes:
    """Return the payload of an error reply: the exception's type, a line feed, and the exception's
    text."""
    text = type(error).__name__.encode() + _SEPARATOR + str(error).encode(errors="replace")
    return text[:_MAX_ERROR_BYTES]


def remote_error(payload: bytes) -> RemoteError:
    """Return the exception that an error reply describes."""
    kind, _, text = payload.partition(_SEPARATOR)
    return RemoteError(kind.decode(errors="replace"), text.decode(errors="replace"))


def check_request_channel(channel: object) -> None:
    """Refuse channels that cannot carry requests and replies.

    :raises InvalidArgument: the channel is a spy, or it states ``session-id`` or time stamps in the
        reserved value.
    """
    if not isinstance(channel, str):
        return      # adding the stream refuses it, with a better text
    if channel.startswith("aeron-spy:"):
        raise InvalidArgument(
            f"a spy cannot carry requests: use a UDP or IPC channel in place of {channel}"
        )
    for key in ("session-id=", "-ts-offset=reserved"):
        if key in channel:
            raise InvalidArgument(
                f"requests and replies need the session and the reserved value: remove "
                f"{key!r} from {channel}"
            )


@attrs.frozen(kw_only=True)
class RequesterStatistics:
    """A requester at one moment."""

    requests: int
    """Requests sent."""
    replies: int
    """Replies handed out, those of errors included."""
    errors: int
    """Replies that were errors."""
    late: int
    """Replies dropped: they came after the time-out, or after the first of several servers."""
    strange: int
    """Messages dropped that are no replies to this requester."""


class Call:
    """One request on its way."""

    __slots__ = ("_asking", "counter", "replies", "wanted")

    def __init__(self, asking: Asking, counter: int, wanted: int) -> None:
        self._asking = asking
        self.counter = counter
        self.wanted = wanted
        self.replies: list[tuple[Message, bool]] = []

    @property
    def reserved_value(self) -> int:
        """Reserved value of the request."""
        return correlation(self._asking.publication.session_id, self.counter)

    @property
    def is_answered(self) -> bool:
        """Whether all expected replies have arrived."""
        return len(self.replies) >= self.wanted

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._asking.forget(self)

    def reply(self) -> Message:
        """Return the first reply.

        :raises RemoteError: the reply is an error.
        """
        message, failed = self.replies[0]
        if failed:
            raise remote_error(message)
        return message

    def all_replies(self) -> list[Message | RemoteError]:
        """Return all replies. If a reply is an error, the list contains an exception object in
        place of the reply; the call does not raise this exception."""
        return [remote_error(reply) if failed else reply for reply, failed in self.replies]


class Sending:
    """A request that the caller is publishing. Until :meth:`attempt` returns True, the publication
    has not accepted the request. A lock lets only one thread at a time use the requester's
    publication."""

    def __init__(
        self, publication: Publication, turn: threading.Lock, data: Payload, reserved_value: int
    ) -> None:
        self._publication = publication
        self._turn = turn
        self._data = data
        self._reserved_value = reserved_value
        self._position = 0

    def attempt(self) -> bool:
        """Offer the request once. Return True if the publication accepted the request, and False if
        the caller must wait for room or a receiver and try again."""
        publication = self._publication
        with self._turn:
            publication._want_room()
            self._position = publication._offer_on(self._data, self._reserved_value)
        return publication._settled(self._position, True)

    def raise_timeout(self, timeout_s: float | None) -> NoReturn:
        """Raise TimeoutExpired; its text states the cause and the culprit that block the
        requester's publication."""
        self._publication._raise_timeout(self._position, timeout_s)
        raise AssertionError("unreachable")


class Asking:
    """Holds the two streams of one requester, and its unanswered requests. Any thread may use an
    :class:`Asking` object."""

    def __init__(self, client: Client, channel: str, stream_id: int) -> None:
        check_request_channel(channel)
        self._client = client
        self._channel = channel
        self._stream_id = stream_id
        self._lock = threading.Lock()
        self._sending = threading.Lock()    # around each offer: the publication is exclusive
        self._calls: dict[int, Call] = {}
        self._counter = 0
        self._requests = self._replies = self._errors = self._late = self._strange = 0
        self.publication, self.subscription, self._port = self._open()

    # ---- streams ---------------------------------------------------------------------------------

    def _open(self) -> tuple[Publication, Subscription, int]:
        """Add the stream of replies, and that of requests with a session that leads to it."""
        from penstock.config.uri import ChannelError, Media, parse

        try:
            uri = parse(self._channel)
        except ChannelError as error:
            raise ChannelRefused(str(error), code="invalid_channel") from None
        if uri.media is Media.IPC:
            requests = self._add_requests(0)
            try:
                return requests, self._add_replies("aeron:ipc", requests.session_id), 0
            except BaseException:
                requests.close()
                raise
        wildcard = "[::]" if uri.endpoint is not None and uri.endpoint.ipv6 else "0.0.0.0"
        replies = self._add_replies(f"aeron:udp?endpoint={wildcard}:0", self._stream_id)
        try:
            port = _port(replies)
            return self._add_requests(port), replies, port
        except BaseException:
            replies.close()
            raise

    def _add_replies(self, channel: str, stream_id: int) -> Subscription:
        return self._client.add_subscription(channel, stream_id)

    def _add_requests(self, port: int) -> Publication:
        """Add the stream of requests; a session that is in use is drawn again."""
        joint = "|" if "?" in self._channel else "?"
        for attempt in range(_SESSIONS_TRIED):
            drawn = secrets.randbits(32)
            session = drawn & 0xFFFF0000 | port if port else drawn
            session -= (session >> 31) << 32
            try:
                return self._client.add_exclusive_publication(
                    f"{self._channel}{joint}session-id={session}", self._stream_id
                )
            except ChannelRefused as error:
                if "is in use" not in str(error) or attempt == _SESSIONS_TRIED - 1:
                    raise
        raise AssertionError("unreachable")

    @property
    def is_moved(self) -> bool:
        """Whether the daemon restarted and now receives the replies on another UDP port. If
        ``is_moved`` is true, the caller must call :meth:`move`."""
        subscription = self.subscription
        return bool(self._port) and not subscription.is_closed and (
            _port(subscription) != self._port
        )

    def move(self) -> None:
        """If the UDP port on which replies arrive has changed, open a new session for requests,
        because the session id contains this port. The call waits for the daemon's answer."""
        with self._lock:
            port = _port(self.subscription)
            if port == self._port:
                return
            old, self.publication = self.publication, self._add_requests(port)
            self._port = port
        old.close()

    def close(self) -> None:
        """End both streams.  Idempotent."""
        self.publication.close()
        self.subscription.close()

    # ---- calls -----------------------------------------------------------------------------------

    def sending(self, call: Call, data: Payload) -> Sending:
        """Return a :class:`Sending`, which offers the request ``call`` with the payload
        ``data``."""
        return Sending(self.publication, self._sending, data, call.reserved_value)

    def call(self, wanted: int) -> Call:
        """Record a new request that expects ``wanted`` replies. The caller sends the request, and
        later removes the record with :meth:`forget`."""
        with self._lock:
            if self.subscription.is_closed:
                self._client._check()
                raise ClosedError("the requester is closed")
            while True:
                self._counter = self._counter % MAX_COUNTER + 1
                if self._counter not in self._calls:
                    break
            self._requests += 1
            made = self._calls[self._counter] = Call(self, self._counter, wanted)
        return made

    def forget(self, call: Call) -> None:
        """Remove the record of a request. Replies that arrive after the record of their request was
        removed count as late."""
        with self._lock:
            self._calls.pop(call.counter, None)

    def arrived(self, call: Call) -> bool:
        """Poll the reply stream, and store each reply with its request. Return True if the request
        ``call`` now has all the replies that it expects."""
        if call.is_answered:
            return True
        with self._lock:
            for_others = self._take(call)
        if for_others:
            core.client_wake(self._client._native())
        return call.is_answered

    def _take(self, mine: Call) -> bool:
        """Give each reply to its call; whether another one is answered by that."""
        subscription, held = self.subscription, Held(self.subscription)
        session, for_others = self.publication.session_id, False
        while (message := subscription._next(held)) is not None:
            asked, counter, failed = correlated(message.reserved_value)
            call = self._calls.get(counter)
            if asked != session or not counter:
                self._strange += 1
            elif call is None or call.is_answered:
                self._late += 1
            else:
                call.replies.append((message, failed))
                self._replies += 1
                self._errors += failed
                for_others |= call is not mine and call.is_answered
        subscription._drop_batch()
        return for_others

    def no_reply(self, call: Call, timeout_s: float | None) -> TimeoutExpired:
        """Return the exception to raise when the reply to a request has not arrived in time."""
        count = len(self.subscription.images)
        servers = "1 server is" if count == 1 else f"{count} servers are"
        return TimeoutExpired(
            f"request {call.counter} on {self._channel} stream {self._stream_id} has no reply "
            f"within {timeout_s:g} s: "
            + (f"{servers} connected" if count else "no server is connected now")
        )

    def statistics(self) -> RequesterStatistics:
        """A frozen snapshot."""
        with self._lock:
            return RequesterStatistics(
                requests=self._requests, replies=self._replies, errors=self._errors,
                late=self._late, strange=self._strange,
            )

    def __repr__(self) -> str:
        state = " closed" if self.subscription.is_closed else ""
        return f"<Requester {self._channel} stream={self._stream_id}{state}>"


def _port(subscription: Subscription) -> int:
    """The UDP port that a subscription listens on."""
    return int(subscription.local_addresses[0].rpartition(":")[2])
