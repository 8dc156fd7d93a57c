# SPDX-License-Identifier: Apache-2.0
"""The ZeroMQ sockets: ROUTER for requests, PUB for the event feed.

ZeroMQ's descriptor is edge-triggered: it tells that something *may* have changed since the socket
was last used, by a send too.  So each wake drains until EAGAIN, and each send looks once more.
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
    """Calls of the control socket; the server implements them."""

    def on_hello(self, identity: bytes, token: bytes) -> bool:
        """Binds the sender; False: no such token."""
        ...

    def on_request(self, identity: bytes, correlation_id: int, message: Message) -> bool:
        """A request of a bound sender; False: it is not bound."""
        ...

    def on_status(self) -> Message:
        """The answer to GetStatus."""
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
        self.malformed = 0

    def close(self) -> None:
        """Messages in the queue get 200 ms to leave."""
        self._router.close()
        self._events.close()
        self._context.term()

    # ---- out ----

    def send(self, identity: bytes, message: Message, correlation_id: int = 0) -> None:
        """To one client; one that has gone is no error."""
        try:
            data = codec.encode(message, correlation_id)
        except ControlError as error:
            _LOG.error("cannot encode %s: %s", type(message).__name__, error)
            data = codec.encode(Failure(code="internal", message=str(error)[:500]), correlation_id)
        try:
            self._router.send_multipart([identity, data], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
        if self._readable():
            self._kick.set()

    def publish(self, name: str, fields: dict[str, Any]) -> None:
        """Publish one event: [name, {sequence, time_ms, name, fields}]. The feed may lose events; a
        gap in the sequence tells."""
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
        async with trio.open_nursery() as nursery:
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
        """Asking also makes ZeroMQ process what waits behind its descriptor."""
        return bool(int(self._router.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    async def _drain(self) -> None:
        """Takes what is there; lets others run between batches."""
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
                self.send(identity, self._receiver.on_status(), correlation_id)
            case Hello(token=token):
                if self._receiver.on_hello(identity, token):
                    self.send(identity, Done(), correlation_id)
                else:
                    self._not_leased(identity, correlation_id)
            case _:
                if not self._receiver.on_request(identity, correlation_id, message):
                    self._not_leased(identity, correlation_id)

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
    """The correlation id of a message that is otherwise wrong, 0 when it cannot be told."""
    try:
        frame = msgpack.unpackb(data, max_array_len=64, max_map_len=64)
    except (ValueError, msgpack.UnpackException):
        return 0
    if not isinstance(frame, list) or len(frame) < 3:
        return 0
    correlation = frame[2]
    usable = type(correlation) is int and 0 < correlation < 2**63
    return correlation if usable else 0
