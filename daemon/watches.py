# SPDX-License-Identifier: Apache-2.0
"""Manage the eventfds of clients that wait in an event loop (docs/decisions/0150)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from penstock.core.admin import Shared


class Watches:
    """Keeps one file descriptor for each client slot whose client has requested an eventfd. The
    data plane may write to the eventfd of a slot at any time. The daemon therefore keeps a slot's
    descriptor number open until the daemon ends. When another client gets the slot, the new
    client's eventfd replaces the old one under the same descriptor number.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._fds: dict[int, int] = {}

    @contextlib.contextmanager
    def renewed(self, client_slot: int) -> Iterator[int]:
        """Create an eventfd for the client that now has the slot. The ``with`` block must send the
        eventfd to the client. When the block ends, this copy of the descriptor is closed."""
        fresh = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            known = self._fds.get(client_slot)
            if known is None:
                known = self._fds[client_slot] = os.dup(fresh)
            else:
                os.dup2(fresh, known, inheritable=False)
            self._shared.watch_client(client_slot, known)
            yield fresh
        finally:
            os.close(fresh)

    def close(self) -> None:
        """Close all descriptors. Call ``close`` only after the threads of the data plane have
        ended."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
