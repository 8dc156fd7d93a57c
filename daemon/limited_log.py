# SPDX-License-Identifier: Apache-2.0
"""Limit the number of warnings in the daemon's log, so that a flood of datagrams cannot fill a
disk."""

from __future__ import annotations

import logging
from typing import Final

import attrs

REPEAT_NS: Final = 60 * 10**9       # shortest time between two lines with the same text
LINES_PER_SECOND: Final = 10        # lines of all texts together
BURST: Final = 50
_TEXTS: Final = 1024                # remembered


@attrs.define
class LimitedLog:
    """Writes warnings to a log up to a limit. Warnings beyond the limit are counted, but not
    written. The next written line states their number. One owner thread."""

    _log: logging.Logger
    _notified: dict[str, int] = attrs.field(factory=dict)           # text -> when, ns
    _left_out: dict[str, int] = attrs.field(factory=dict)       # text -> number of times since
    _tokens: float = BURST
    _filled_ns: int = 0
    _dropped: int = 0

    def warn(self, text: str, now_ns: int) -> None:
        """Log a line, unless the same text was logged within the last minute, or too many lines
        were logged recently.

        :param now_ns: present time of a monotonic clock.
        """
        notified_ns = self._notified.get(text)
        if notified_ns is not None and now_ns - notified_ns < REPEAT_NS:
            self._left_out[text] = self._left_out.get(text, 0) + 1
            return
        passed = max(0, now_ns - self._filled_ns) / 1e9
        self._filled_ns = now_ns
        self._tokens = min(BURST, self._tokens + passed * LINES_PER_SECOND)
        if self._tokens < 1:
            self._dropped += 1
            return
        self._tokens -= 1
        self._remember(text, now_ns)
        line = text
        repeats = self._left_out.pop(text, 0)
        if repeats:
            line += f" (and {repeats} more times since it was last logged)"
        if self._dropped:
            line += f" ({self._dropped} other warnings left out)"
            self._dropped = 0
        self._log.warning("%s", line)

    def _remember(self, text: str, now_ns: int) -> None:
        self._notified.pop(text, None)
        if len(self._notified) >= _TEXTS:
            oldest = next(iter(self._notified))
            del self._notified[oldest]
            self._left_out.pop(oldest, None)
        self._notified[text] = now_ns
