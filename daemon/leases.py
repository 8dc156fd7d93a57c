# SPDX-License-Identifier: Apache-2.0
"""Serve ``DIR/lease.sock``: as long as a connection is open, the daemon regards its client as
alive.

The kernel identifies the process that connects to ``DIR/lease.sock`` (SO_PEERCRED), and closes the
connection when this process dies. Clients send no heartbeats, so a client that is stopped (by
SIGSTOP or a debugger) never counts as dead.
"""

from __future__ import annotations

import array
import enum
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

import trio

from penstock.config.protocol import codec
from penstock.config.protocol.control import (
    MAX_MESSAGE_BYTES,
    ControlError,
    Drain,
    Failure,
    LeaseRequest,
    Message,
)
from penstock.daemon.directory import ClaimedDirectory

_LOG = logging.getLogger("penstock.daemon")
_UCRED: Final = struct.Struct("iII")
_FIRST_WORD_S: Final = 10.0
_RETRY_S: Final = 0.1
_BACKLOG: Final = 128

OnRequest = Callable[[int, LeaseRequest, int, int], None]
OnLost = Callable[[int], None]
OnDrain = Callable[[socket.socket, Drain], None]


class _Word(enum.Enum):
    """The first message of a connection."""

    NOTHING = "nothing"
    LEASE = "lease"
    DRAIN = "drain"


class LeaseSocket:
    """Accepts connections on ``lease.sock``. For each lease request of a client, the lease socket
    calls ``on_request(connection_id, request, pid, uid)``. When a client that has a lease closes
    its connection, the lease socket calls ``on_lost(connection_id)``. When root or the user of the
    daemon's process requests a drain, the lease socket calls ``on_drain(connection, request)``.
    After this call, ``on_drain`` owns the connection."""

    def __init__(
        self, directory: ClaimedDirectory, *, on_request: OnRequest, on_lost: OnLost,
        on_drain: OnDrain,
    ) -> None:
        self._on_request = on_request
        self._on_lost = on_lost
        self._on_drain = on_drain
        self._path = directory.path / "lease.sock"
        self._connections: dict[int, socket.socket] = {}
        self.clients: set[int] = set()
        """Connections that requested a lease."""
        self._next_id = 1
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._listener = socket.socket(socket.AF_UNIX, kind)
        making = directory.path / "lease.sock.new"
        try:
            self._listener.bind(os.fspath(making))
            directory.protect(making.name)
            self._listener.listen(_BACKLOG)
            making.rename(directory.path / "lease.sock")  # a process that sees the file can connect
        except OSError:
            self._listener.close()
            raise
        self._accepting = trio.socket.from_stdlib_socket(self._listener)

    def stop_listening(self) -> None:
        """Stop listening. After this call, a client that tries to connect gets the same error as if
        no daemon ran."""
        self._path.unlink(missing_ok=True)
        self._accepting.close()

    def hang_up_clients(self) -> None:
        for connection_id in list(self.clients):
            self.hang_up(connection_id)

    def close(self) -> None:
        """Hang up all connections."""
        self._accepting.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def answer(
        self, connection_id: int, message: Message, descriptors: tuple[int, ...] = ()
    ) -> None:
        """Send the answer to a lease request: a grant or a failure. If the client can no longer
        receive the answer, close its connection."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        ancillary = []
        if descriptors:
            packed = array.array("i", descriptors)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
        try:
            connection.sendmsg([codec.encode(message, 1)], ancillary)
        except OSError as error:
            _LOG.info("lease %d: cannot answer: %s", connection_id, error.strerror)
            self.hang_up(connection_id)

    def hang_up(self, connection_id: int) -> None:
        connection = self._connections.get(connection_id)
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    raise

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    connection, _ = await self._accepting.accept()
                except trio.ClosedResourceError:
                    return
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED,
                                           errno.ENOBUFS, errno.ENOMEM):
                        raise
                    await trio.sleep(_RETRY_S)
                    continue
                nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: trio.socket.SocketType) -> None:
        connection_id = self._next_id
        self._next_id += 1
        raw = socket.socket(fileno=os.dup(connection.fileno()))
        self._connections[connection_id] = raw
        word = _Word.NOTHING
        try:
            with trio.move_on_after(_FIRST_WORD_S):
                word = await self._first_word(connection_id, connection)
            if word is _Word.LEASE:
                while await connection.recv(MAX_MESSAGE_BYTES):
                    pass                # a client sends no further message on this socket
        except OSError as error:
            _LOG.debug("lease %d: %s", connection_id, error.strerror)
        finally:
            connection.close()
            raw.close()
            self._connections.pop(connection_id, None)
            self.clients.discard(connection_id)
            if word is _Word.LEASE:
                self._on_lost(connection_id)

    async def _first_word(self, connection_id: int, connection: trio.socket.SocketType) -> _Word:
        data = await connection.recv(MAX_MESSAGE_BYTES)
        if not data:
            return _Word.NOTHING
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size
        )
        pid, uid, _gid = _UCRED.unpack(credentials)
        try:
            _correlation, message = codec.decode(data)
        except ControlError as error:
            self.answer(connection_id, Failure(code="malformed", message=str(error)[:1000]))
            return _Word.NOTHING
        if isinstance(message, Drain):
            return self._drain(connection_id, message, uid)
        if not isinstance(message, LeaseRequest):
            why = f"expected LeaseRequest, got {type(message).__name__}"
            self.answer(connection_id, Failure(code="malformed", message=why))
            return _Word.NOTHING
        self.clients.add(connection_id)
        self._on_request(connection_id, message, pid, uid)
        return _Word.LEASE

    def _drain(self, connection_id: int, request: Drain, uid: int) -> _Word:
        if uid not in (0, os.geteuid()):
            owner = os.geteuid()
            why = f"only root and the daemon's user (uid {owner}) may drain it, not uid {uid}"
            self.answer(connection_id, Failure(code="permission", message=why))
            return _Word.NOTHING
        self._on_drain(socket.socket(fileno=os.dup(self._connections[connection_id].fileno())),
                       request)
        return _Word.DRAIN
