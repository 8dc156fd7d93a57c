# SPDX-License-Identifier: Apache-2.0
"""A flow-control strategy of one's own: the slowest receiver sets the pace, but never one below a
floor; one that is slower than that is left behind.

    penstock daemon, started where this module can be imported, then
    fc=py:floor:Floor on a publication's channel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.driver_types import ReceiverView

_FLOOR_BYTES_PER_S: Final = 200_000
_FRESH_NS: Final = 1_000_000_000


class Floor:
    """One object for each publication."""

    def __init__(self) -> None:
        self._limit = 0
        self._at_ns = 0

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """How far the sender may go: a stream position."""
        fresh = [view for view in snapshots if now_ns - view.heard_ns < _FRESH_NS] or snapshots
        slowest = min(view.position + view.window for view in fresh)
        if self._at_ns == 0:
            self._limit = slowest
        least = self._limit + _FLOOR_BYTES_PER_S * (now_ns - self._at_ns) // 1_000_000_000
        furthest = max(view.position + view.window for view in fresh)
        self._limit = min(max(slowest, least), furthest) if self._at_ns else slowest
        self._at_ns = now_ns
        return self._limit
