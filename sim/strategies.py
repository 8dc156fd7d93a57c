# SPDX-License-Identifier: Apache-2.0
"""Flow-control strategies in Python for generated scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.driver_types import ReceiverView

_FRESH_NS: Final = 1_000_000_000
#: Invalid answers of a strategy.
_NONSENSE: Final[tuple[object, ...]] = (None, True, -1, 2**63, 1e6, "far", (), b"\0" * 1000)
_ERRORS: Final = (ValueError("moody"), SystemExit(1), KeyboardInterrupt(), ZeroDivisionError())
#: Valid answers before each invalid one.
_PATIENCE: Final = 3


class Slowest:
    """Strategy that considers only the receivers that were heard in the last second. The slowest of
    these receivers determines the sender limit.
    """

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """Return the stream position up to which the sender may send."""
        fresh = [view for view in snapshots if now_ns - view.heard_ns < _FRESH_NS] or snapshots
        return min(view.position + view.window for view in fresh)


class Moody:
    """:class:`Slowest` with faults: sometimes this strategy raises an exception, returns an invalid
    position, removes the limit, or stops the sender for one step.
    """

    def __init__(self) -> None:
        self.raised = 0
        self.nonsense = 0
        self._calls = 0
        self._calm = Slowest()

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> Any:
        """Return the sender limit; sometimes return an invalid value instead."""
        mood, rest = divmod(self._calls, _PATIENCE + 1)
        self._calls += 1
        if rest < _PATIENCE:
            return self._calm.on_status_messages(snapshots, now_ns)
        if mood % 3 == 0:
            self.raised += 1
            raise _ERRORS[mood // 3 % len(_ERRORS)]
        if mood % 3 == 1:
            self.nonsense += 1
            return _NONSENSE[mood // 3 % len(_NONSENSE)]
        return 2**62 if mood % 2 == 0 else 0


class SlowestElseMax(Slowest):
    """Like :class:`Slowest`. While the strategy's result is late, the sender may send up to the
    highest limit that any receiver advertises.
    """

    on_late = "max"


class SlowestElseMin(Slowest):
    """Like :class:`Slowest`. While the strategy's result is late, the sender may send only up to
    the limit of the slowest receiver.
    """

    on_late = "min"


class FurthestElseMin:
    """Strategy: the sender limit is the limit of the fastest receiver. While the result of the
    strategy is late, the sender may send only up to the limit of the slowest receiver.
    """

    on_late = "min"

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """Return the stream position up to which the sender may send."""
        return max(view.position + view.window for view in snapshots)
