# SPDX-License-Identifier: Apache-2.0
"""Count the TCP connections of a ZeroMQ socket, from the events that ZeroMQ reports about each
connection.

ZeroMQ reports the file descriptor of each accepted connection, each closed connection and each
message. ZeroMQ also reports each finished handshake, but without the file descriptor. When a
handshake finishes, the daemon therefore knows that one more connection has an authorised key, but
does not know which connection. Only the first message of a connection shows that its key is
authorised.
"""

from __future__ import annotations

import socket
from typing import Final

#: Most connections without a finished handshake; ZeroMQ ends each after 5 seconds.
STRANGERS: Final = 64


class Connections:
    """Table of connections. One thread uses it."""

    def __init__(self) -> None:
        self._silent: dict[int, None] = {}      # no message has come; the oldest first
        self._heard: set[int] = set()
        self._admitted = 0  # number of silent connections with an authorised key

    @property
    def placed(self) -> int:
        """Number of connections with an authorised key."""
        return len(self._heard) + self._admitted

    @property
    def strangers(self) -> int:
        """Number of connections that have shown no authorised key so far."""
        return len(self._silent) - self._admitted

    @property
    def oldest(self) -> int:
        """The file descriptor of the connection that has been open longest without sending a
        message."""
        return next(iter(self._silent))

    def accepted(self, fd: int) -> None:
        self._heard.discard(fd)
        self._silent.pop(fd, None)
        self._silent[fd] = None

    def admitted(self) -> None:
        """Record that one more connection has an authorised key, and has not sent a message yet."""
        self._admitted = min(self._admitted + 1, len(self._silent))

    def heard(self, fd: int) -> None:
        """Record that a message arrived on the connection ``fd``. The connection therefore has an
        authorised key."""
        if fd in self._silent:
            del self._silent[fd]
            self._heard.add(fd)
            self._admitted = max(0, self._admitted - 1)

    def gone(self, fd: int) -> None:
        self._heard.discard(fd)
        self._silent.pop(fd, None)
        self._admitted = min(self._admitted, len(self._silent))


def shut(fd: int, port: int) -> bool:
    """Shut down a TCP connection that another thread owns; ``fd`` is its descriptor. The other
    thread may have closed ``fd``, and the number may belong to another file now. The function
    therefore shuts ``fd`` down only if it is a TCP connection whose local port is ``port``."""
    try:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as own:
            ours = (
                own.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
                and own.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
                in (socket.AF_INET, socket.AF_INET6)
                and own.getsockname()[1] == port
            )
            if ours:
                own.shutdown(socket.SHUT_RDWR)
            return ours
    except OSError:
        return False                        # gone already, or no socket
