# SPDX-License-Identifier: Apache-2.0
"""``DIR/lease.sock``: a client's connection is its life.

The kernel reports who connects (SO_PEERCRED) and when the client dies (hang-up). There are no
heartbeats, so a stopped client is never taken for dead.
"""

from __future__ import annotations

import array
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

import trio

from penstock.config import codec
from penstock.config.control import (
    MAX_MESSAGE_BYTES,
    ControlError,
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


class LeaseSocket:
    """``on_request(connection_id, request, pid, uid)`` for each client that asks, then, once it was
    granted or refused, ``on_lost(connection_id)`` at its hang-up."""

    def __init__(
        self, directory: ClaimedDirectory, *, on_request: OnRequest, on_lost: OnLost
    ) -> None:
        self._on_request = on_request
        self._on_lost = on_lost
        self._connections: dict[int, socket.socket] = {}
        self._next_id = 1
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._listener = socket.socket(socket.AF_UNIX, kind)
        making = directory.path / "lease.sock.new"
        try:
            self._listener.bind(os.fspath(making))
            directory.protect(making.name)
            self._listener.listen(_BACKLOG)
            making.rename(directory.path / "lease.sock")    # who sees it can connect
        except OSError:
            self._listener.close()
            raise
        self._accepting = trio.socket.from_stdlib_socket(self._listener)

    def close(self) -> None:
        """Hangs up on everybody."""
        self._accepting.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def answer(
        self, connection_id: int, message: Message, descriptors: tuple[int, ...] = ()
    ) -> None:
        """Grant or Failure; a client that is gone already is noticed by its hang-up."""
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
        asked = False
        try:
            with trio.move_on_after(_FIRST_WORD_S):
                asked = await self._first_word(connection_id, connection)
            if asked:
                while await connection.recv(MAX_MESSAGE_BYTES):
                    pass                # a client has nothing more to say here
        except OSError as error:
            _LOG.debug("lease %d: %s", connection_id, error.strerror)
        finally:
            connection.close()
            raw.close()
            self._connections.pop(connection_id, None)
            if asked:
                self._on_lost(connection_id)

    async def _first_word(self, connection_id: int, connection: trio.socket.SocketType) -> bool:
        data = await connection.recv(MAX_MESSAGE_BYTES)
        if not data:
            return False
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size
        )
        pid, uid, _gid = _UCRED.unpack(credentials)
        try:
            _correlation, message = codec.decode(data)
        except ControlError as error:
            self.answer(connection_id, Failure(code="malformed", message=str(error)[:1000]))
            return False
        if not isinstance(message, LeaseRequest):
            why = f"expected LeaseRequest, got {type(message).__name__}"
            self.answer(connection_id, Failure(code="malformed", message=why))
            return False
        self._on_request(connection_id, message, pid, uid)
        return True
