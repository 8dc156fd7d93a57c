# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in Python for generated scenarios."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.congestion import CongestionView

#: Invalid answers of a congestion control.
_NONSENSE: Final[tuple[object, ...]] = (None, True, -1, 2**63, 1e6, "wide", (), b"\0" * 1000)
_ERRORS: Final = (ValueError("moody"), SystemExit(1), KeyboardInterrupt(), ZeroDivisionError())
#: Valid answers before each invalid one.
_PATIENCE: Final = 3


class Halver:
    """Halve the window after an interval with losses; after an interval without a loss, enlarge the
    window by one datagram."""

    def __init__(self) -> None:
        self._losses = 0

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        """Return the number of bytes that may be in flight."""
        lost, self._losses = view.losses > self._losses, view.losses
        window = view.window or view.most
        return window // 2 if lost else window + view.mtu


class MoodyWindow:
    """:class:`Halver` with faults: sometimes this control raises an exception, returns a value that
    is not a valid window, or returns a window that is far out of bounds.
    """

    def __init__(self) -> None:
        self.raised = 0
        self.nonsense = 0
        self._calls = 0
        self._calm = Halver()

    def on_interval(self, view: CongestionView, now_ns: int) -> Any:
        """Return the number of bytes that may be in flight, or sometimes an invalid value."""
        mood, rest = divmod(self._calls, _PATIENCE + 1)
        self._calls += 1
        if rest < _PATIENCE:
            return self._calm.on_interval(view, now_ns)
        if mood % 3 == 0:
            self.raised += 1
            raise _ERRORS[mood // 3 % len(_ERRORS)]
        if mood % 3 == 1:
            self.nonsense += 1
            return _NONSENSE[mood // 3 % len(_NONSENSE)]
        return 2**62 if mood % 2 == 0 else 0
