# SPDX-License-Identifier: Apache-2.0
"""Serve requests: run an application's handler in threads, and send its replies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from penstock.client._asking import (
    check_request_channel,
    correlated,
    correlation,
    error_payload,
    reply_address,
)
from penstock.client._iteration import Held
from penstock.core.errors import (
    ChannelRefused,
    ClosedError,
    InvalidArgument,
    MessageTooLong,
    PenstockError,
    TimeoutExpired,
)

if TYPE_CHECKING:
    from penstock.client._client import Client
    from penstock.client._image import Image
    from penstock.client._message import Message
    from penstock.client._publication import Payload, Publication
    from penstock.client._subscription import Subscription

    RequestHandler: TypeAlias = Callable[[Message], Payload | None]

DEFAULT_REPLY_S: Final = 1.0
_LOG = logging.getLogger("penstock.service")


@attrs.frozen(kw_only=True)
class ServiceStatistics:
    """A server at one moment."""

    requests: int
    """Requests that the handler was given."""
    replies: int
    """Replies sent, those of errors included."""
    errors: int
    """Calls of the handler that raised."""
    dropped: int
    """Replies dropped: the requester had left, or took none within ``reply_timeout_s``."""
    strange: int
    """Messages that are no requests, and requests that no reply can reach."""


class _Requester:
    """Where the replies to one session go.  Under the lock of its service."""

    def __init__(self, source_identity: str) -> None:
        self.source_identity = source_identity
        self.lock = threading.Lock()
        self.publication: Publication | None = None
        self.is_slow = False
        self.is_gone = False


class Answering:
    """Sends the replies of a server. Other classes receive requests and call the application's
    handler. Any thread."""

    def __init__(
        self, client: Client, channel: str, stream_id: int, reply_timeout_s: float
    ) -> None:
        check_request_channel(channel)
        if not reply_timeout_s >= 0:
            raise InvalidArgument(f"reply_timeout_s must not be negative: {reply_timeout_s}")
        self.client = client
        self.channel = channel
        self.stream_id = stream_id
        self.reply_timeout_s = reply_timeout_s
        self._lock = threading.Lock()
        self._requesters: dict[int, _Requester] = {}
        self._departed: list[_Requester] = []
        #: Called in the thread that receives when streams of requesters that left are to be closed.
        self.on_departed: Callable[[], object] | None = None
        self._requests = self._replies = self._errors = self._dropped = self._strange = 0

    # ---- who asks --------------------------------------------------------------------------------

    def add_subscription(self) -> Subscription:
        """Subscribe to the requests."""
        return self.client.add_subscription(
            self.channel, self.stream_id, on_available=self._came, on_unavailable=self._left
        )

    def _came(self, image: Image) -> None:
        requester = _Requester(image.source_identity)
        with self._lock:
            old = self._requesters.get(image.session_id)
            if old is not None:
                self._departed.append(old)
            self._requesters[image.session_id] = requester

    def _left(self, image: Image) -> None:
        with self._lock:
            requester = self._requesters.get(image.session_id)
            if requester is None or requester.source_identity != image.source_identity:
                return
            self._departed.append(self._requesters.pop(image.session_id))
        if self.on_departed is not None:
            self.on_departed()

    @property
    def has_departed(self) -> bool:
        """Whether a requester has left. If a requester has left, the server must close the
        requester's reply stream with :meth:`close_departed`."""
        return bool(self._departed)

    def close_departed(self) -> None:
        """Close the reply streams of requesters that have left.  Asks the daemon."""
        with self._lock:
            departed, self._departed = self._departed, []
        for requester in departed:
            with requester.lock:
                requester.is_gone = True
                publication = requester.publication
            if publication is not None:
                publication.close()

    def close(self) -> None:
        """Close all reply streams."""
        with self._lock:
            self._departed += self._requesters.values()
            self._requesters.clear()
        self.close_departed()

    # ---- requests --------------------------------------------------------------------------------

    def is_request(self, message: Message) -> bool:
        """Return True if the reserved value of a message identifies the message as a request. The
        call also counts the message, either as a request or as another message."""
        session, counter, failed = correlated(message.reserved_value)
        good = session == message.session_id and counter > 0 and not failed
        with self._lock:
            if good:
                self._requests += 1
            else:
                self._strange += 1
        return good

    def reply_at_once(self, request: Message, payload: Payload | None) -> bool:
        """Offer the handler's result as the reply, without waiting. Return False if the reply
        cannot be offered at once, for example because the server has no publication for it yet. If
        ``reply_at_once`` returns False, the caller must call :meth:`reply`, which may wait."""
        requester = self._requesters.get(request.session_id)
        publication = None if requester is None else requester.publication
        if publication is None or not isinstance(payload, (bytes, type(None))):
            return False
        if len(payload or b"") > publication.max_message_length:
            return False
        _session, counter, _failed = correlated(request.reserved_value)
        value = correlation(request.session_id, counter)
        if publication.offer(payload or b"", reserved_value=value) < 0:
            return False
        self._count(sent=True)
        return True

    def reply(self, request: Message, payload: Payload | None) -> None:
        """Send what the handler returned."""
        try:
            _check_reply(payload)
            self._send(request, b"" if payload is None else payload, failed=False)
        except (MessageTooLong, TypeError) as error:
            self.reply_error(request, error)

    def reply_error(self, request: Message, error: BaseException) -> None:
        """Log the exception of the handler, and send it to the requester."""
        with self._lock:
            self._errors += 1
        _LOG.error(
            "the handler of %s stream %d raised on a request of session %d", self.channel,
            self.stream_id, request.session_id, exc_info=error,
        )
        self._send(request, error_payload(error), failed=True)

    def _send(self, request: Message, payload: Payload, *, failed: bool) -> None:
        _session, counter, _failed = correlated(request.reserved_value)
        requester = self._requesters.get(request.session_id)
        publication = None if requester is None else self._publication(requester, request)
        if requester is None or publication is None:
            self._count(sent=False)
            return
        value = correlation(request.session_id, counter, failed=failed)
        try:
            if requester.is_slow:
                position = publication.offer(payload, reserved_value=value)
            else:
                position = publication.send(payload, self.reply_timeout_s, reserved_value=value)
            requester.is_slow = position < 0
        except TimeoutExpired:
            requester.is_slow = True
        except ClosedError:
            self.client._check()
            requester.is_slow = True
        self._count(sent=not requester.is_slow)

    def _publication(self, requester: _Requester, request: Message) -> Publication | None:
        """The stream of replies to a requester; asks the daemon at the first reply."""
        with requester.lock:
            if requester.publication is not None or requester.is_gone:
                return requester.publication
            address = reply_address(
                requester.source_identity, request.session_id, self.stream_id
            )
            if address is None:
                return None
            try:
                requester.publication = self.client.add_publication(*address)
            except ChannelRefused as error:
                _LOG.error("cannot add a publication of replies on %s: %s", address[0], error)
            return requester.publication

    def _count(self, *, sent: bool) -> None:
        with self._lock:
            if sent:
                self._replies += 1
            else:
                self._dropped += 1

    def statistics(self) -> ServiceStatistics:
        """A frozen snapshot."""
        with self._lock:
            return ServiceStatistics(
                requests=self._requests, replies=self._replies, errors=self._errors,
                dropped=self._dropped, strange=self._strange,
            )


def _check_reply(payload: Any) -> None:
    """Check that a handler returned what can be sent.

    :raises TypeError: it is neither a buffer, nor a list or tuple of buffers, nor None.
    """
    pieces = payload if isinstance(payload, (list, tuple)) else (payload,)
    for piece in pieces:
        if piece is payload and piece is None:
            return
        try:
            memoryview(piece)
        except TypeError:
            raise TypeError(
                f"the handler returned {type(piece).__name__}; it returns bytes, a buffer, a list "
                "of buffers, or None"
            ) from None


class Service:
    """Serves the requests that arrive on one stream.  Made by :meth:`penstock.Client.serve`.

    The method :meth:`run` serves requests in the calling thread until :meth:`close` is called. A
    ``with service:`` block serves requests in other threads, and stops them at its end. A call of
    the service object, such as ``service(request)``, calls the handler function.
    """

    def __init__(
        self, handler: RequestHandler, answering: Answering, concurrency: int
    ) -> None:
        self._handler = handler
        self._answering = answering
        self._concurrency = check_concurrency(concurrency)
        self._turn = threading.Lock()       # the subscription is for one thread at a time
        self._subscription: Subscription | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def __call__(self, request: Message) -> Payload | None:
        """Call the handler."""
        return self._handler(request)

    def run(self) -> None:
        """Serve requests until :meth:`close` is called or the client is closed.

        :raises DaemonGone: the daemon died.
        :raises ChannelRefused: the daemon refuses the channel, with a reason.
        """
        try:
            self._start(self._concurrency - 1)
            self._work()
        finally:
            self._end()
        self._raise_failure()

    def close(self) -> None:
        """End the service. Handlers that are already running finish, and the server sends their
        replies. Idempotent."""
        self._closed = True
        subscription = self._subscription
        if subscription is not None:
            subscription.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def channel(self) -> str:
        return self._answering.channel

    @property
    def stream_id(self) -> int:
        return self._answering.stream_id

    def statistics(self) -> ServiceStatistics:
        """A frozen snapshot."""
        return self._answering.statistics()

    def __enter__(self) -> Service:
        self._start(self._concurrency)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end()
        if _exc[0] is None:
            self._raise_failure()

    def _start(self, threads: int) -> None:
        if self._closed or self._subscription is not None:
            raise ClosedError("a service runs once: call serve() again")
        self._subscription = self._answering.add_subscription()
        for number in range(threads):
            thread = threading.Thread(
                target=self._work_in_thread, name=f"penstock service {number + 1}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _end(self) -> None:
        self.close()
        for thread in self._threads:
            thread.join()
        try:
            self._answering.close()
        except PenstockError:
            if not self._answering.client.is_closed:
                raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work_in_thread(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self._failure = failure
            self.close()

    def _work(self) -> None:
        """Receive and answer, in turns with the other threads of the service."""
        while not self._closed:
            with self._turn:
                request = self._receive()
            if request is not None and self._answering.is_request(request):
                self._answer(request)
            if self._answering.has_departed:
                self._answering.close_departed()

    def _receive(self) -> Message | None:
        """The next message; None: there is none, look again."""
        subscription = self._subscription
        assert subscription is not None
        try:
            message = subscription._next(Held(subscription))
            if message is None:
                subscription.wait(_LOOK_S)
            else:
                subscription._drop_batch()
        except ClosedError:
            self._closed = True
            return None
        return message

    def _answer(self, request: Message) -> None:
        try:
            payload = self._handler(request)
        except Exception as error:
            self._answering.reply_error(request, error)
            return
        if not self._answering.reply_at_once(request, payload):
            self._answering.reply(request, payload)

    def _repr_html_(self) -> str:
        from penstock.client._html import exchange_html

        return exchange_html(
            "Service", self.stream_id, self.channel, closed=self.is_closed,
            statistics=self.statistics(),
        )

    def __repr__(self) -> str:
        return f"<Service {self.channel} stream={self.stream_id}{' closed' * self._closed}>"


#: Longest wait for a request before requesters that left are looked for, in seconds.
_LOOK_S: Final = 1.0


def check_concurrency(concurrency: int) -> int:
    """Return it.

    :raises InvalidArgument: ``concurrency`` is below 1.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidArgument(f"concurrency is a whole number from 1, not {concurrency!r}")
    return concurrency
