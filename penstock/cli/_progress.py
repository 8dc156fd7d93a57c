# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final

_INTERVAL_S: Final = 0.1


class Progress:
    """Counts messages and bytes; draws them on standard error when that is a terminal."""

    def __init__(self, label: str, *, total: int | None = None, enabled: bool = True) -> None:
        self.messages = 0
        self.bytes = 0
        self._started = time.monotonic()
        self._first: float | None = None
        self._drawn = 0.0
        self._label = label
        self._total = total
        self._live: Any = None
        self._enabled = enabled and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._enabled:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, messages: int, size: int) -> None:
        """Counts; redraws at most ten times a second."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self.messages += messages
        self.bytes += size
        if self._live is not None and now - self._drawn >= _INTERVAL_S:
            self._drawn = now
            self._live.update(self._text(now), refresh=True)

    @property
    def seconds(self) -> float:
        """Since the first message, or since the start when there was none."""
        since = self._started if self._first is None else self._first
        return time.monotonic() - since

    def summary(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        seconds = self.seconds
        rate = self.messages / seconds if seconds > 0 else 0.0
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(seconds, 6),
            "messages_per_s": round(rate, 1),
            "bits_per_s": round(self.bytes * 8 / seconds, 1) if seconds > 0 else 0.0,
        }

    def _text(self, now: float) -> str:
        seconds = max(now - (self._first or self._started), 1e-9)
        of = f" of {self._total:,}" if self._total is not None else ""
        return (
            f"{self._label} {self.messages:,}{of} messages, {self.bytes / 1e6:,.1f} MB, "
            f"{self.messages / seconds:,.0f}/s, {self.bytes * 8 / seconds / 1e6:,.1f} Mb/s"
        )
