# SPDX-License-Identifier: Apache-2.0
"""Send requests and wait for their replies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.client._asking import Asking, Call, RequesterStatistics
from penstock.client._async_threads import in_thread, to_the_end
from penstock.core.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.client._async_parking import AsyncParking
    from penstock.client._client import Client
    from penstock.client._message import Message
    from penstock.client._publication import Payload
    from penstock.errors import RemoteError

_UNLIMITED = 2**31


class Requester:
    """Sends requests to the servers of one stream and receives their replies.

    Made by :meth:`penstock.Client.requester`. May be shared by threads. At the end of a ``with``
    block the requester closes itself.
    """

    def __init__(self, client: Client, channel: str, stream_id: int) -> None:
        self._client = client
        self._asking = Asking(client, channel, stream_id)

    def request(self, data: Payload, timeout_s: float | None = None) -> Message:
        """Send a request and wait for its reply.  The requester never repeats a request.

        If several servers answer, the call returns the reply that arrives first.

        :param data: bytes, any contiguous buffer, or a list or tuple of buffers.
        :param timeout_s: longest wait in seconds; None: no limit.
        :raises TimeoutExpired: no server, or no reply, within ``timeout_s``.  A reply that comes
            later is dropped and counted.
        :raises RemoteError: the handler of the server raised an exception; ``type`` and ``text``
            describe it.
        :raises MessageTooLong: the request is longer than the stream's longest message.
        :raises DaemonGone: the daemon died.
        """
        with self._begin(1) as call:
            if not self._exchange(call, data, timeout_s):
                raise self._asking.no_reply(call, timeout_s)
            return call.reply()

    def request_many(
        self, data: Payload, timeout_s: float, *, count: int | None = None
    ) -> list[Message | RemoteError]:
        """Send a request to several servers, and wait for ``count`` replies, but at most
        ``timeout_s`` seconds.

        :param timeout_s: seconds.
        :param count: number of replies after which the call returns; None: wait for ``timeout_s``.
        :returns: the replies that arrived in time, perhaps none; for an error reply,
            a :class:`RemoteError`.
        :raises TimeoutExpired: the request could not be sent within ``timeout_s``.
        """
        with self._begin(_wanted(count)) as call:
            self._exchange(call, data, timeout_s)
            return call.all_replies()

    def _begin(self, wanted: int) -> Call:
        if self._asking.is_moved:
            self._asking.move()
        return self._asking.call(wanted)

    def _exchange(self, call: Call, data: Payload, timeout_s: float | None) -> bool:
        """Send the request and wait; whether it is answered."""
        began = time.monotonic()
        until = self._client._parking().until
        sending = self._asking.sending(call, data)
        if not sending.attempt() and not until(sending.attempt, timeout_s):
            sending.raise_timeout(timeout_s)
        return until(lambda: self._asking.arrived(call), _left(began, timeout_s))

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Sleep until a server is connected. Return True if a server is connected, and False if
        ``timeout_s`` seconds have passed."""
        return self._asking.publication.wait_connected(timeout_s)

    @property
    def is_connected(self) -> bool:
        """Whether a server is there."""
        return self._asking.publication.is_connected

    @property
    def is_closed(self) -> bool:
        return self._asking.subscription.is_closed

    @property
    def channel(self) -> str:
        return self._asking._channel

    @property
    def stream_id(self) -> int:
        return self._asking._stream_id

    def statistics(self) -> RequesterStatistics:
        """A frozen snapshot."""
        return self._asking.statistics()

    def close(self) -> None:
        """Close the requester's two streams. Calls that still wait for a reply raise ClosedError.
        Idempotent."""
        self._asking.close()

    def __enter__(self) -> Requester:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import exchange_html

        return exchange_html(
            "Requester", self.stream_id, self.channel, closed=self.is_closed,
            statistics=self.statistics(),
        )

    def __repr__(self) -> str:
        return repr(self._asking)


class AsyncRequester:
    """A :class:`penstock.Requester` for asyncio and trio, whose methods have the same names and
    results. Several tasks of one event loop may send requests at the same time."""

    def __init__(self, parking: AsyncParking, requester: Requester) -> None:
        self._parking = parking
        self._sync = requester
        self._asking = requester._asking

    @property
    def sync(self) -> Requester:
        """The plain requester underneath."""
        return self._sync

    async def request(self, data: Payload, timeout_s: float | None = None) -> Message:
        """See :meth:`penstock.Requester.request`. If the task is cancelled during the call, a
        server may get the request nevertheless."""
        with await self._begin(1) as call:
            if not await self._exchange(call, data, timeout_s):
                raise self._asking.no_reply(call, timeout_s)
            return call.reply()

    async def request_many(
        self, data: Payload, timeout_s: float, *, count: int | None = None
    ) -> list[Message | RemoteError]:
        """See :meth:`penstock.Requester.request_many`."""
        with await self._begin(_wanted(count)) as call:
            await self._exchange(call, data, timeout_s)
            return call.all_replies()

    async def _begin(self, wanted: int) -> Call:
        if self._asking.is_moved:
            await in_thread(self._asking.move)
        return self._asking.call(wanted)

    async def _exchange(self, call: Call, data: Payload, timeout_s: float | None) -> bool:
        """Send the request and wait; whether it is answered."""
        began = time.monotonic()
        until = self._parking.until
        sending = self._asking.sending(call, data)
        if not sending.attempt() and not await until(sending.attempt, timeout_s):
            await in_thread(sending.raise_timeout, timeout_s)
        return await until(lambda: self._asking.arrived(call), _left(began, timeout_s))

    async def wait_connected(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Requester.wait_connected`."""
        publication = self._asking.publication

        def connected() -> bool:
            publication._want_room()
            return publication.is_connected

        return await self._parking.until(connected, timeout_s)

    @property
    def is_connected(self) -> bool:
        """See :attr:`penstock.Requester.is_connected`."""
        return self._sync.is_connected

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Requester.is_closed`."""
        return self._sync.is_closed

    @property
    def channel(self) -> str:
        """See :attr:`penstock.Requester.channel`."""
        return self._sync.channel

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.Requester.stream_id`."""
        return self._sync.stream_id

    def statistics(self) -> RequesterStatistics:
        """See :meth:`penstock.Requester.statistics`."""
        return self._sync.statistics()

    async def close(self) -> None:
        """See :meth:`penstock.Requester.close`. If the task is cancelled meanwhile, the close still
        completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.close)
        self._parking.wake()

    async def __aenter__(self) -> AsyncRequester:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


def _wanted(count: int | None) -> int:
    if count is not None and count < 1:
        raise InvalidArgument(f"count is the number of replies to wait for, at least 1: {count}")
    return _UNLIMITED if count is None else count


def _left(began: float, timeout_s: float | None) -> float | None:
    """Seconds of ``timeout_s`` that are left."""
    return None if timeout_s is None else max(0.0, began + timeout_s - time.monotonic())
