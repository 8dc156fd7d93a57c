# SPDX-License-Identifier: Apache-2.0
"""How many TCP connections have a place, from what ZeroMQ tells of them.

It reports when each descriptor was accepted and closed, and on which descriptor a message came. Of
a handshake it reports only that some connection has finished one. So a key that is let in takes a
place at once, without a descriptor; the first message shows which one is meant.
"""

from __future__ import annotations

import socket
from typing import Final

#: Connections that have shown no key yet; ZeroMQ gives each 5 seconds.
STRANGERS: Final = 64


class Connections:
    """One thread uses it."""

    def __init__(self) -> None:
        self._silent: dict[int, None] = {}      # no message has come; the oldest first
        self._heard: set[int] = set()
        self._admitted = 0                      # of the silent ones: those whose keys were let in

    @property
    def placed(self) -> int:
        """Connections with a place: of keys that were let in."""
        return len(self._heard) + self._admitted

    @property
    def strangers(self) -> int:
        """Connections that have shown no key, or one that was refused."""
        return len(self._silent) - self._admitted

    @property
    def oldest(self) -> int:
        """Of those that no message has come from."""
        return next(iter(self._silent))

    def accepted(self, fd: int) -> None:
        self._heard.discard(fd)
        self._silent.pop(fd, None)
        self._silent[fd] = None

    def admitted(self) -> None:
        """A key was let in, on one of the silent ones."""
        self._admitted = min(self._admitted + 1, len(self._silent))

    def heard(self, fd: int) -> None:
        """A message came, so the handshake is finished."""
        if fd in self._silent:
            del self._silent[fd]
            self._heard.add(fd)
            self._admitted = max(0, self._admitted - 1)

    def gone(self, fd: int) -> None:
        self._heard.discard(fd)
        self._silent.pop(fd, None)
        self._admitted = min(self._admitted, len(self._silent))


def shut(fd: int, port: int) -> bool:
    """Ends a TCP connection that another thread owns, whose descriptor is known by its number only:
    by now that may be another file, which is left alone unless it is a connection to ``port``."""
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
