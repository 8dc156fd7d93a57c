# SPDX-License-Identifier: Apache-2.0
"""Serve requests about consumer groups on ``DIR/groups.sock`` and, if configured, over TCP with
CURVE keys.

One thread owns the sockets. The service's thread passes requests about groups to the conductor, and
gets the conductor's replies through a queue. The service's thread itself answers requests for a
log's data. Large reads of old data therefore do not delay the daemon's other clients. Other hosts
may send requests too, because no reply of this service contains file descriptors or a client's
lease. The service of consumer groups refuses all requests that are not about groups.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs
import zmq

from penstock.config.protocol import codec
from penstock.config.protocol.control import (
    MAX_MESSAGE_BYTES,
    AcknowledgeGroup,
    CloseGroup,
    ControlError,
    CutLog,
    Failure,
    Fetch,
    FetchCredit,
    FindMarks,
    GetGroup,
    GetStatus,
    ListGroups,
    Message,
    OpenGroup,
    ReadTimes,
    WithholdStream,
)
from penstock.config.settings.models import ControlTcpConfig
from penstock.daemon.control_socket import correlation_of
from penstock.daemon.directory import ClaimedDirectory
from penstock.daemon.groups.fetches import FetchServer, Peer

_LOG = logging.getLogger("penstock.daemon")
SOCKET_NAME: Final = "groups.sock"
_QUEUED: Final = 64                     # messages to one connection that does not read
#: ZeroMQ counts what has left by halves of its high-water mark: only half of it is sure room.
_HIGH_WATER: Final = 2 * _QUEUED
_REQUESTED: Final = 1024                    # requests that the conductor has not answered
_REQUESTED_EACH: Final = 32                 # of one connection
_BATCH: Final = 64
_IDLE_S: Final = 1.0
_FORWARDED: Final = (
    OpenGroup, GetGroup, AcknowledgeGroup, CloseGroup, ListGroups, ReadTimes, GetStatus,
    WithholdStream,
)

Request = Callable[[int, Any], None]


@attrs.define(eq=False)
class _Request:
    peer: Peer
    correlation: int


class GroupService:
    """Runs the thread of the group service. The daemon's trio thread creates and closes the group
    service, and calls :meth:`answer` with the conductor's replies."""

    def __init__(
        self, directory: ClaimedDirectory, tcp: ControlTcpConfig, *, request: Request,
        floor: Callable[[int], int | None], failed: Callable[[BaseException], None],
    ) -> None:
        """Binds the sockets.

        :param request: passes a request to the conductor, from any thread; the reply arrives
            by :meth:`answer` with the same number.
        :param floor: returns the lowest position of a log from which a group still needs data, or
            None if no group needs the log; called in any thread.
        :param failed: called in the service's thread with an exception that ends this thread.
        :raises ConfigurationError: an address or key file of ``tcp`` cannot be used.
        """
        self._request = request
        self._failed = failed
        self._context = zmq.Context()
        self._local = self._router()
        self._local.bind(f"ipc://{directory.path}/{SOCKET_NAME}")
        directory.protect(SOCKET_NAME)
        self._routers = [self._local]
        self._gate: CurveGate | None = None
        if tcp.listen:
            from penstock.daemon.curve import CurveGate  # it loads asyncio

            try:
                self._gate = CurveGate(self._context, self._router(), tcp)
            except BaseException:
                self._local.close()
                self._context.destroy(linger=0)
                raise
            self._routers.append(self._gate.router)
        self._fetch_server = FetchServer(
            send=self._send, locate=self._locate, floor=floor, limit_bytes=tcp.fetch_bytes
        )
        self._answers: deque[tuple[int, Any]] = deque()
        self._requested: dict[int, _Request] = {}
        self._next = 1
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        self.malformed = 0
        self._thread = threading.Thread(target=self._run, name="penstock-groups", daemon=True)

    def _router(self) -> zmq.Socket[bytes]:
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.SNDHWM, _HIGH_WATER)
        router.setsockopt(zmq.RCVHWM, _QUEUED)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        router.setsockopt(zmq.HANDSHAKE_IVL, 5000)
        router.setsockopt(zmq.LINGER, 200)
        router.setsockopt(zmq.IPV6, 1)
        return router

    def start(self) -> None:
        self._thread.start()

    @property
    def address(self) -> str:
        """TCP address on which the service listens, with the port that it has bound; empty without
        TCP."""
        return "" if self._gate is None else self._gate.address

    def answer(self, number: int, message: Any) -> None:
        """Give the service's thread the conductor's reply to a request. Any thread."""
        self._answers.append((number, message))
        if not self._closing:
            os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Close the sockets. For at most 200 ms, ZeroMQ still sends queued messages."""
        self._closing = True
        os.eventfd_write(self._wake_fd, 1)
        if self._thread.is_alive():
            self._thread.join()
        self._fetch_server.close()
        if self._gate is not None:
            self._gate.close()          # its monitor ends before the socket that it checks
        for router in self._routers:
            router.close()
        self._context.term()
        os.close(self._wake_fd)

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve_all()
        except BaseException as error:  # no other thread would notice
            self._failed(error)

    def _serve_all(self) -> None:
        poller = zmq.Poller()
        for router in self._routers:
            poller.register(router, zmq.POLLIN)
        if self._gate is not None:
            for inner in self._gate.sockets:
                poller.register(inner, zmq.POLLIN)
        poller.register(self._wake_fd, zmq.POLLIN)
        while not self._closing:
            busy = self._fetch_server.step()
            ready = dict(poller.poll(0 if busy else int(_IDLE_S * 1000)))
            try:
                self._turn(ready)
            except zmq.ZMQError as error:
                _LOG.error("groups: %s", error)

    def _turn(self, ready: dict[Any, int]) -> None:
        if self._wake_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
        if self._gate is not None:
            self._gate.step(ready)
        while self._answers:
            number, message = self._answers.popleft()
            self._on_answer(number, message)
        for router in self._routers:
            if router in ready:
                self._drain(router)

    def _drain(self, router: zmq.Socket[bytes]) -> None:
        for _ in range(_BATCH):
            try:
                frames = router.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            key = ""
            if self._gate is not None and router is self._gate.router:
                key = self._gate.key_of(frames)
                self._gate.heard(frames)
            peer = Peer(router=router, identity=frames[0].bytes)
            self._take(peer, key, [frame.bytes for frame in frames[1:]])

    # ---- requests --------------------------------------------------------------------------------

    def _take(self, peer: Peer, key: str, frames: list[bytes]) -> None:
        if len(frames) != 1:
            self._malformed(peer, 0, f"a message has one frame, not {len(frames)}")
            return
        try:
            correlation, message = codec.decode(frames[0])
        except ControlError as error:
            self._malformed(peer, correlation_of(frames[0]), str(error))
            return
        if correlation == 0:
            self._malformed(peer, 0, "a request needs a correlation id above 0")
            return
        remote = self._gate is not None and peer.router is self._gate.router
        if remote and self._gate is not None and not self._gate.allows(key):
            self._refuse(peer, correlation, "permission",
                         "this key was taken off the daemon's allow-list")
            return
        self._serve(peer, correlation, message)

    def _serve(self, peer: Peer, correlation: int, message: Message) -> None:
        match message:
            case Fetch():
                self._fetch_server.fetch(peer, correlation, message)
            case FetchCredit():
                self._fetch_server.credit(peer, correlation, message.pieces)
            case CutLog() | FindMarks():
                self._fetch_server.look(peer, correlation, message)
            case _ if isinstance(message, _FORWARDED):
                waiting = sum(1 for requested in self._requested.values() if requested.peer == peer)
                if len(self._requested) >= _REQUESTED or waiting >= _REQUESTED_EACH:
                    self._refuse(peer, correlation, "limit",
                                 f"{waiting} requests of this connection wait already: send fewer")
                else:
                    self._forward(_Request(peer, correlation), message)
            case _:
                self._refuse(
                    peer, correlation, "permission",
                    f"{type(message).__name__} is not served here, only groups, fetches and "
                    "GetStatus: a client on the daemon's host connects through its directory",
                )

    def _forward(self, requested: _Request, message: Message) -> None:
        number = self._next
        self._next += 1
        self._requested[number] = requested
        self._request(number, message)

    def _locate(self, question: Any) -> int:
        """Request the place of a log from the conductor, for the fetch server; return the request's
        number."""
        number = self._next
        self._next += 1
        self._request(number, question)
        return number

    def _on_answer(self, number: int, message: Any) -> None:
        requested = self._requested.pop(number, None)
        if requested is None:
            self._fetch_server.located(number, message)
        else:
            self._send(requested.peer, message, requested.correlation, None)

    # ---- replies ---------------------------------------------------------------------------------

    def _send(self, peer: Peer, message: Message, correlation: int, data: bytes | None) -> bool:
        """Send a message; False: the peer has gone, or does not read."""
        try:
            head = codec.encode(message, correlation)
        except ControlError as error:
            _LOG.error("cannot encode %s: %s", type(message).__name__, error)
            head = codec.encode(Failure(code="internal", message=str(error)[:500]), correlation)
        frames = [peer.identity, head] if data is None else [peer.identity, head, data]
        sent = _sent(peer.router, frames, copy=data is None)
        if not sent:
            # processes the I/O thread's notices of sent messages
            peer.router.getsockopt(zmq.EVENTS)
            sent = _sent(peer.router, frames, copy=data is None)
        return sent

    def _refuse(self, peer: Peer, correlation: int, code: str, why: str) -> None:
        self._send(peer, Failure(code=code, message=why[:1000]), correlation, None)

    def _malformed(self, peer: Peer, correlation: int, why: str) -> None:
        self.malformed += 1
        self._refuse(peer, correlation, "malformed", why)


def _sent(router: zmq.Socket[bytes], frames: list[bytes], *, copy: bool) -> bool:
    """Send; return False if the peer has gone or its queue is full."""
    try:
        router.send_multipart(frames, zmq.DONTWAIT, copy=copy)
    except zmq.ZMQError as error:
        if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
            return False
        raise
    return True
