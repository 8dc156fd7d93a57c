# SPDX-License-Identifier: Apache-2.0
"""Show the progress of a transfer on a terminal: redraw one line, and at the end write a line with
the totals. Nothing in a pipe.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from types import TracebackType
from typing import Any, Final, TextIO

_INTERVAL_S: Final = 0.1
#: A shorter transfer shows only its totals.
_SILENT_S: Final = 0.5
#: Time over which the line shows the rate; the totals show the average rate.
_RATE_S: Final = 2.0
#: Shortest time over which a rate is shown.
_LEAST_RATE_S: Final = 0.1
_ERASE: Final = "\r\x1b[K"


class Progress:
    """Counts messages and bytes, and draws the counts on standard error if this is a terminal."""

    def __init__(
        self,
        label: str,
        *,
        total: int | None = None,
        enabled: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self.messages = 0
        self.bytes = 0
        self._began: float | None = None
        self._last = 0.0
        self._drawn = 0.0
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._enabled = enabled and self._stream.isatty()
        self._on_line = False
        self._recent: deque[tuple[float, int, int]] = deque()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._enabled and self.messages:
            self._write(f"{_ERASE}{self.totals()}\n")
        elif self._on_line:
            self._write(_ERASE)

    def begin(self) -> None:
        """Start the measured transfer now. If ``begin`` is not called, the measured transfer starts
        with the first message.
        """
        self._began = self._last = time.monotonic()

    def touch(self) -> None:
        """Set the end of the measured transfer to the present time. Without a call of ``touch``
        after the last message, the measured transfer ends at the last message."""
        self._last = time.monotonic()

    def add(self, messages: int, size: int) -> None:
        """Add messages and bytes to the counts. The progress line is redrawn at most ten times a
        second."""
        self._last = now = time.monotonic()
        if self._began is None:
            self._began = now
        self.messages += messages
        self.bytes += size
        if self._enabled and now - self._drawn >= _INTERVAL_S:
            self._drawn = now
            self._recent.append((now, self.messages, self.bytes))
            while now - self._recent[0][0] > _RATE_S:
                self._recent.popleft()
            if now - self._began >= _SILENT_S:
                self._on_line = True
                columns = shutil.get_terminal_size().columns
                self._write(_ERASE + self._line()[: columns - 1])

    @property
    def seconds(self) -> float:
        """Duration of the measured transfer in seconds. The transfer ends at the last message or at
        the last call of :meth:`touch`, whichever is later."""
        return 0.0 if self._began is None else self._last - self._began

    def summary(self) -> dict[str, Any]:
        """Return the counts and rates as plain data for ``--json``. If the measured time is 0, the
        rates are 0.
        """
        seconds = self.seconds
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(seconds, 6),
            "messages_per_s": round(self.messages / seconds, 1) if seconds > 0 else 0.0,
            "bits_per_s": round(self.bytes * 8 / seconds, 1) if seconds > 0 else 0.0,
        }

    def totals(self) -> str:
        """Return the last line."""
        seconds = self.seconds
        text = f"{self._amount()} in {seconds:,.1f} s"
        if seconds < _LEAST_RATE_S:
            return text
        return f"{text}, {_rates(self.messages / seconds, self.bytes / seconds)}"

    def _line(self) -> str:
        since, messages, size = self._recent[0]
        seconds = self._recent[-1][0] - since
        if seconds < _LEAST_RATE_S:
            return self._amount()
        rates = _rates((self.messages - messages) / seconds, (self.bytes - size) / seconds)
        return f"{self._amount()}, {rates}"

    def _amount(self) -> str:
        of = f" of {self._total:,}" if self._total not in (None, self.messages) else ""
        noun = "message" if self.messages == 1 and not of else "messages"
        return f"{self._label} {self.messages:,}{of} {noun}, {_size(self.bytes)}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _size(count: int) -> str:
    return f"{count:,} B" if count < 100_000 else f"{count / 1e6:,.1f} MB"


def _rates(messages_per_s: float, bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    speed = f"{bits / 1e6:,.1f} Mb/s" if bits >= 1e6 else f"{bits / 1e3:,.1f} kb/s"
    return f"{messages_per_s:,.0f}/s, {speed}"
