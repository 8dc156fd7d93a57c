# SPDX-License-Identifier: Apache-2.0
"""Eventfds of clients that wait in an event loop (docs/decisions/0150)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from penstock.core.admin import Shared


class Watches:
    """One descriptor for each client slot whose client has requested an eventfd.

    The data plane may write to a descriptor at any time. The descriptor's number therefore stays
    open until the daemon ends, and the next client's eventfd gets the same number.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._fds: dict[int, int] = {}

    @contextlib.contextmanager
    def renewed(self, client_slot: int) -> Iterator[int]:
        """Create an eventfd for the client that has the slot now; the caller sends it inside the
        ``with`` block."""
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
        """Close all descriptors; call it when no agent runs any more."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
