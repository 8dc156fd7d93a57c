# SPDX-License-Identifier: Apache-2.0
"""A flow-control strategy of one's own: every receiver is given half the window it offers, and the
slowest that was heard in the last second sets the pace.

    penstock daemon, started where this module can be imported, then
    fc=py:half_window:HalfWindow on a publication's channel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.driver_types import ReceiverView

_FRESH_NS: Final = 1_000_000_000


class HalfWindow:
    """One object for each publication."""

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """How far the sender may go: a stream position."""
        fresh = [view for view in snapshots if now_ns - view.heard_ns < _FRESH_NS] or snapshots
        return min(view.position + view.window // 2 for view in fresh)
