# SPDX-License-Identifier: Apache-2.0
"""Count the TCP connections of a ZeroMQ socket, with ZeroMQ's reports of connections.

ZeroMQ reports the file descriptor of each accepted connection, each closed connection and each
message. ZeroMQ also reports each finished handshake, but without the file descriptor. The daemon
therefore knows immediately how many connections have an authorised key. The daemon knows that a
certain connection has an authorised key only after this connection's first message.
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
        """Number of connections without a key, or with a refused key."""
        return len(self._silent) - self._admitted

    @property
    def oldest(self) -> int:
        """The descriptor of the oldest connection that has not sent a message yet."""
        return next(iter(self._silent))

    def accepted(self, fd: int) -> None:
        self._heard.discard(fd)
        self._silent.pop(fd, None)
        self._silent[fd] = None

    def admitted(self) -> None:
        """Record that one more connection has an authorised key, and has not sent a message yet."""
        self._admitted = min(self._admitted + 1, len(self._silent))

    def heard(self, fd: int) -> None:
        """Record that a message arrived on a connection, which shows that the connection's
        handshake is finished."""
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
    thread may have closed ``fd``, so that another file has this number now. Because ``fd`` may
    belong to another file, the function shuts the socket down only if ``fd`` is a connection to
    ``port``."""
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
