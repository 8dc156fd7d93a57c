# SPDX-License-Identifier: Apache-2.0
"""Send requests about consumer groups over ZeroMQ: to a daemon on this host, or over TCP with
CURVE.

Each call takes one connection from a pool. While a fetch of log data runs, no other request uses
the fetch's connection. If the daemon does not answer on a connection, this module closes the
connection and repeats the request on another connection, until the time-out. A daemon may therefore
execute the same request twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import zmq

from penstock.client._fork import call_in_child
from penstock.client._group_errors import refusal
from penstock.config.protocol import codec, control
from penstock.config.protocol.keys import CurveKeys, check_public_key
from penstock.core.errors import ClosedError, InvalidArgument, VersionMismatch
from penstock.errors import (
    DaemonUnreachable,
    GroupError,
    GroupRefused,
    NotAuthorised,
    RangeNotRetained,
)

SOCKET_NAME: Final = "groups.sock"
_ATTEMPT_S: Final = 2.0
_POOL: Final = 8
_REFUSED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Endpoint:
    """The address of a daemon's service for consumer groups, with the keys to connect to it."""

    address: str
    keys: CurveKeys | None = None
    server_key: str = ""

    @classmethod
    def local(cls, directory: Path) -> Endpoint:
        return cls(address=f"ipc://{directory}/{SOCKET_NAME}")

    @classmethod
    def remote(cls, address: str, keys: CurveKeys | None, server_key: str | None) -> Endpoint:
        """:raises InvalidArgument: keys are missing, or the address is not TCP."""
        if not address.startswith("tcp://") or not address.rpartition(":")[2].isdigit():
            raise InvalidArgument(f"address {address!r}: expected tcp://HOST:PORT")
        if keys is None or not server_key:
            raise InvalidArgument(
                f"{address}: TCP needs keys (CurveKeys.load) and server_key: there is no plain TCP"
            )
        return cls(
            address=address, keys=keys, server_key=check_public_key(server_key, "server_key")
        )


@contextlib.contextmanager
def _until_closed() -> Iterator[None]:
    """Raise a clear error if another thread closes the port meanwhile."""
    try:
        yield
    except zmq.ContextTerminated:
        raise ClosedError("the GroupControl was closed during the call") from None


class _Connection:
    """One DEALER socket; used by one thread at a time."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: Endpoint, forks: int
    ) -> None:
        self._endpoint = endpoint
        self.forks = forks              # generation of its port when it was made
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.IPV6, 1)
        self._monitor: zmq.Socket[bytes] | None = None
        self._correlation = 0
        if endpoint.keys is not None:
            self._socket.curve_publickey = endpoint.keys.public.encode()
            self._socket.curve_secretkey = endpoint.keys.secret.encode()
            self._socket.curve_serverkey = endpoint.server_key.encode()
            self._monitor = self._socket.get_monitor_socket(_REFUSED)
        try:
            self._socket.connect(endpoint.address)
        except zmq.ZMQError as error:
            self.close()
            raise InvalidArgument(f"{endpoint.address}: {error.strerror}") from None

    def close(self) -> None:
        if self._monitor is not None and not self._socket.closed:
            self._socket.disable_monitor()
        self._monitor = None
        self._socket.close()

    @property
    def closed(self) -> bool:
        """Whether one of the connection's sockets is closed. If the garbage collector destroys an
        unfinished fetch, it may close the sockets of the fetch's connection before the connection
        returns to the pool."""
        return self._socket.closed or (self._monitor is not None and self._monitor.closed)

    def send(self, request: Any) -> None:
        """Send a new request; later replies to the previous request are ignored."""
        self._correlation += 1
        try:
            data = codec.encode(request, self._correlation)
        except control.ControlError as error:
            raise InvalidArgument(f"{type(request).__name__}: {error}") from None
        with _until_closed():
            self._socket.send(data)

    def add(self, message: Any) -> None:
        """Send a further message of the last request, with the correlation id of this request. An
        example is the message with which a fetch permits the daemon to send more pieces."""
        with _until_closed():
            self._socket.send(codec.encode(message, self._correlation))

    def receive(self, deadline: float) -> tuple[Any, list[bytes]] | None:
        """Return the next reply to the last request; None at the time-out."""
        with _until_closed():
            return self._receive(deadline)

    def _receive(self, deadline: float) -> tuple[Any, list[bytes]] | None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if self._monitor is not None:
            poller.register(self._monitor, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(max(0, int((deadline - time.monotonic()) * 1000))))
            if self._socket in ready:
                frames = self._socket.recv_multipart()
                try:
                    correlation, message = codec.decode(frames[0])
                except control.ControlError as error:
                    where = self._endpoint.address
                    raise VersionMismatch(f"cannot understand {where}: {error}") from None
                if correlation == self._correlation:
                    return message, frames[1:]
                continue
            if self._monitor is not None and self._monitor in ready:
                self._on_refusal(self._monitor)
            if not ready:
                return None

    def _on_refusal(self, monitor: zmq.Socket[bytes]) -> None:
        from zmq.utils.monitor import recv_monitor_message  # it loads asyncio

        event = recv_monitor_message(monitor, zmq.DONTWAIT)
        where = self._endpoint.address
        if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise NotAuthorised(
                f"{where} refuses the key {self._key()}: add it to the daemon's allow-list "
                "(control_tcp.clients)"
            )
        raise NotAuthorised(
            f"{where} did not complete the CURVE handshake with the key {self._key()}: compare "
            "server_key with the daemon's public key, and the daemon's allow-list with this key"
        )

    def _key(self) -> str:
        return self._endpoint.keys.public if self._endpoint.keys is not None else "(none)"


class _Held:
    """The ZeroMQ context of a port, and its idle connections. They outlive a port that was not
    closed, until the collector has found the port."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.idle: list[_Connection] = []

    def forget(self) -> None:
        """In a forked child: drop the connections, which belong to the parent process."""
        self.idle, self.context = [], None

    def close(self) -> None:
        """Close the connections, then the context."""
        idle, context = self.idle, self.context
        self.forget()
        for connection in idle:
            connection.close()
        if context is not None:
            # The context ends after other threads have closed their sockets; their waits end at
            # once.
            threading.Thread(target=context.term, daemon=True).start()


class GroupPort:
    """See the module."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        # Reentrant: a garbage collection inside the lock can end a fetch.
        self._lock = threading.RLock()
        self._held = _Held()
        # A collector that finds a context and its sockets in one cycle would wait for the sockets.
        weakref.finalize(self, self._held.close).atexit = False
        self._forks = 0
        self._closed = False
        call_in_child(self._after_fork_in_child)

    def request(self, request: Any, expected: type[_T]) -> _T:
        """Return the reply to a request."""
        message, _ = self._first(request, self._put)
        if not isinstance(message, expected):
            raise self._unexpected(request, message)
        return message

    def fetch(self, request: control.Fetch) -> Generator[bytes, None, None]:
        """Yield the data of the log range that ``request`` names, piece by piece. The daemon gets
        the request when the caller requests the first piece with ``next``. If the caller takes no
        piece for too long, the daemon ends the fetch. When the caller takes the next piece, this
        method begins another fetch for the remaining range."""
        position = request.start
        while True:
            try:
                with contextlib.closing(self._pieces(request)) as pieces:
                    for piece, following in pieces:
                        position = following
                        yield piece
                return
            except GroupRefused as error:
                if error.code != "stalled" or position == request.start:
                    raise
                request = attrs.evolve(request, start=position)

    def _pieces(self, request: control.Fetch) -> Generator[tuple[bytes, int], None, None]:
        """Yield each piece with the position of the next one."""
        kept: list[_Connection] = []
        message, rest = self._first(request, kept.append)
        connection = kept[0]
        finished = False
        try:
            while True:
                if not isinstance(message, control.FetchPiece) or len(rest) != 1:
                    raise self._unexpected(request, message)
                finished = message.last
                if not finished:
                    connection.add(control.FetchCredit(pieces=1))
                yield rest[0], message.next_position
                if finished:
                    return
                if connection.forks != self._forks:
                    raise ClosedError(
                        "the parent process began this fetch: begin another one in the child"
                    )
                answer = connection.receive(time.monotonic() + self._timeout_s)
                if answer is None:
                    raise self._silence(request)
                message, rest = answer
        finally:
            if finished:
                self._put(connection)
            else:
                connection.close()      # tells the daemon to stop

    def close(self) -> None:
        with self._lock:
            self._closed = True
            held, self._held = self._held, _Held()
        held.close()

    def _after_fork_in_child(self) -> None:
        """Drop the parent's connections, and replace the lock, which a thread of the parent may
        hold."""
        self._lock = threading.RLock()
        self._held.forget()
        self._forks += 1

    # ---- the pool --------------------------------------------------------------------------------

    def _take(self) -> _Connection:
        with self._lock:
            if self._closed:
                raise ClosedError("the group control is closed")
            if self._held.context is None:
                self._held.context = zmq.Context()
            while self._held.idle:
                connection = self._held.idle.pop()
                if not connection.closed:
                    return connection
                connection.close()
            return _Connection(self._held.context, self._endpoint, self._forks)

    def _put(self, connection: _Connection) -> None:
        with self._lock:
            mine = connection.forks == self._forks
            if mine and not self._closed and len(self._held.idle) < _POOL:
                self._held.idle.append(connection)
                return
        connection.close()

    def _first(self, request: Any, keep: Any) -> tuple[Any, list[bytes]]:
        """Return the first message of the reply; ``keep`` gets the connection."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            connection = self._take()
            try:
                connection.send(request)
                answer = connection.receive(min(deadline, time.monotonic() + _ATTEMPT_S))
            except BaseException:
                connection.close()
                raise
            if answer is not None:
                try:
                    self._check(answer[0])
                except GroupError:
                    self._put(connection)
                    raise
                keep(connection)
                return answer
            connection.close()
            if time.monotonic() >= deadline:
                raise self._silence(request)

    @staticmethod
    def _check(message: Any) -> None:
        if isinstance(message, control.Failure):
            raise refusal(message)
        if isinstance(message, control.RangeGone):
            raise RangeNotRetained(
                message.message, lowest_readable=message.lowest, end_position=message.end
            )

    def _silence(self, request: Any) -> DaemonUnreachable:
        where = self._endpoint.address
        return DaemonUnreachable(
            f"no answer to {type(request).__name__} from {where} within {self._timeout_s:g} s: is "
            "the daemon running, and does it serve there?",
            address=where, timeout_s=self._timeout_s,
        )

    def _unexpected(self, request: Any, message: Any) -> Exception:
        self._check(message)
        return VersionMismatch(
            f"{self._endpoint.address} answered {type(request).__name__} with "
            f"{type(message).__name__}"
        )
