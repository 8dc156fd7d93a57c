# SPDX-License-Identifier: Apache-2.0
"""The ZeroMQ sockets: Own the daemon's control sockets: a ROUTER socket for requests and a PUB
socket for the event feed.

The descriptor of a ZeroMQ socket is edge-triggered: it becomes readable only for events that happen
after the last read or send on the socket. The thread therefore reads the socket until EAGAIN each
time it wakes up, and after each send. Otherwise the thread could miss a message that has already
arrived.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final, Protocol

import msgpack
import trio
import zmq

from penstock.config.protocol import codec
from penstock.config.protocol.control import (
    MAX_MESSAGE_BYTES,
    ControlError,
    Done,
    Failure,
    GetStatus,
    Hello,
    Message,
)
from penstock.daemon.directory import ClaimedDirectory

_LOG = logging.getLogger("penstock.daemon")
_BATCH: Final = 128


class Receiver(Protocol):
    """Callbacks of the control socket; the server implements them."""

    def on_hello(self, identity: bytes, token: bytes) -> bool:
        """Bind the ZeroMQ identity ``identity`` to the client that got ``token`` from the daemon.
        Return False if the token is unknown."""
        ...

    def on_request(self, identity: bytes, correlation_id: int, message: Message) -> bool:
        """Process a request. Return False if no call of ``on_hello`` has bound ``identity`` to a
        client."""
        ...

    async def on_status(self, correlation_id: int) -> bytes:
        """Return the encoded reply to GetStatus."""
        ...


class ControlSocket:
    def __init__(self, directory: ClaimedDirectory, receiver: Receiver) -> None:
        self._receiver = receiver
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.set_hwm(0)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._router.setsockopt(zmq.LINGER, 200)
        self._router.bind(f"ipc://{directory.path}/control.sock")
        directory.protect("control.sock")
        self._events = self._context.socket(zmq.PUB)
        self._events.setsockopt(zmq.LINGER, 200)
        self._events.bind(f"ipc://{directory.path}/events.sock")
        directory.protect("events.sock")
        self._sequence = 0
        self._kick = trio.Event()
        self._nursery: trio.Nursery | None = None
        self.malformed = 0

    def close(self) -> None:
        """Close the sockets. For at most 200 ms, ZeroMQ still sends queued messages."""
        self._router.close()
        self._events.close()
        self._context.term()

    # ---- out ----

    def send(self, identity: bytes, message: Message, correlation_id: int = 0) -> None:
        """Send a message to one client; do nothing if the client has closed its connection."""
        try:
            data = codec.encode(message, correlation_id)
        except ControlError as error:
            _LOG.error("cannot encode %s: %s", type(message).__name__, error)
            data = codec.encode(Failure(code="internal", message=str(error)[:500]), correlation_id)
        self._send_encoded(identity, data)

    def _send_encoded(self, identity: bytes, data: bytes) -> None:
        try:
            self._router.send_multipart([identity, data], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
        if self._readable():
            self._kick.set()

    def publish(self, name: str, fields: dict[str, Any]) -> None:
        """Publish one event: [name, {sequence, time_ms, name, fields}]. The event feed may lose
        events; a gap in the sequence numbers shows the loss."""
        self._sequence += 1
        event = {
            "sequence": self._sequence,
            "time_ms": time.time_ns() // 1_000_000,
            "name": name,
            "fields": fields,
        }
        try:
            self._events.send_multipart([name.encode(), msgpack.packb(event)], zmq.DONTWAIT)
        except zmq.Again:
            return

    # ---- in ----

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            nursery.start_soon(self._on_descriptor)
            nursery.start_soon(self._on_kick)

    async def _on_descriptor(self) -> None:
        fd = int(self._router.getsockopt(zmq.FD))
        while True:
            await self._drain()
            await trio.lowlevel.wait_readable(fd)

    async def _on_kick(self) -> None:
        while True:
            await self._kick.wait()
            self._kick = trio.Event()
            await self._drain()

    def _readable(self) -> bool:
        """Return whether a message waits; the call also makes ZeroMQ process its internal
        events."""
        return bool(int(self._router.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    async def _drain(self) -> None:
        """Read all waiting messages; let other tasks run between batches."""
        taken = 0
        while self._readable():
            try:
                frames = self._router.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            self._take(frames)
            taken += 1
            if taken % _BATCH == 0:
                await trio.lowlevel.checkpoint()

    def _take(self, frames: list[bytes]) -> None:
        identity = frames[0]
        if len(frames) != 2:
            self._refuse(identity, 0, f"a message has one frame, not {len(frames) - 1}")
            return
        try:
            correlation_id, message = codec.decode(frames[1])
        except ControlError as error:
            self._refuse(identity, correlation_of(frames[1]), str(error))
            return
        if correlation_id == 0:
            self._refuse(identity, 0, "a request needs a correlation id above 0")
            return
        self._serve(identity, correlation_id, message)

    def _serve(self, identity: bytes, correlation_id: int, message: Message) -> None:
        match message:
            case GetStatus():
                assert self._nursery is not None
                self._nursery.start_soon(self._answer_status, identity, correlation_id)
            case Hello(token=token):
                if self._receiver.on_hello(identity, token):
                    self.send(identity, Done(), correlation_id)
                else:
                    self._not_leased(identity, correlation_id)
            case _:
                if not self._receiver.on_request(identity, correlation_id, message):
                    self._not_leased(identity, correlation_id)

    async def _answer_status(self, identity: bytes, correlation_id: int) -> None:
        self._send_encoded(identity, await self._receiver.on_status(correlation_id))

    def _not_leased(self, identity: bytes, correlation_id: int) -> None:
        refusal = Failure(
            code="not_leased",
            message="this connection has no lease: connect to lease.sock, then send Hello with its "
            "token",
        )
        self.send(identity, refusal, correlation_id)

    def _refuse(self, identity: bytes, correlation_id: int, why: str) -> None:
        self.malformed += 1
        self.send(identity, Failure(code="malformed", message=why[:1000]), correlation_id)


def correlation_of(data: bytes) -> int:
    """Return the correlation id of a message that could not be decoded, or 0 if the message
    contains no valid id."""
    try:
        frame = msgpack.unpackb(data, max_array_len=64, max_map_len=64)
    except (ValueError, msgpack.UnpackException):
        return 0
    if not isinstance(frame, list) or len(frame) < 3:
        return 0
    correlation = frame[2]
    usable = type(correlation) is int and 0 < correlation < 2**63
    return correlation if usable else 0
