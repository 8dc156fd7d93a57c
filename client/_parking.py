# SPDX-License-Identifier: Apache-2.0
"""Let threads wait without spinning.

A waiting thread reads a ticket (the count of events so far) and checks its condition. If the
condition is false, the thread sleeps on the client's futex word until the client has an event that
is newer than the ticket. If an event occurs after the thread has read the ticket and before it
sleeps, the sleep ends at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.core import client as core

#: Longest single sleep.  Bounds the delay of a signal that arrives just before the sleep begins.
SLICE_NS: Final = 250_000_000


class Parking:
    """Lets the threads of one client sleep until an event."""

    def __init__(self, handle: core.ClientHandle, check: Callable[[], None]) -> None:
        """``check`` raises an exception if no event can occur any more: the client is closed, this
        process is a forked child, or the daemon has ended."""
        self._handle = handle
        self._check = check

    def replace(self, handle: core.ClientHandle) -> None:
        """Wait for events of ``handle``, the core's client object that was opened after the
        daemon's restart. Threads that sleep on the old client's futex word move to the new client's
        futex word within 250 ms."""
        self._handle = handle

    def until(
        self, happened: Callable[[], bool], timeout_s: float | None,
        rest_ns: Callable[[], int] = lambda: 0,
    ) -> bool:
        """Return True as soon as ``happened()`` is true, or False after ``timeout_s`` seconds
        (None: no limit). ``rest_ns()`` returns the remaining pause of a throttled publisher, in ns.
        During this pause, the call does not check ``happened()``."""
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            handle = self._handle
            ticket = core.client_ticket(handle)
            if rest_ns() == 0 and happened():
                return True
            self._check()
            sleep_ns = min(SLICE_NS, rest_ns() or SLICE_NS)
            if deadline_ns is not None:
                sleep_ns = min(sleep_ns, deadline_ns - time.monotonic_ns())
                if sleep_ns <= 0:
                    return False
            core.client_sleep(handle, ticket, sleep_ns)
