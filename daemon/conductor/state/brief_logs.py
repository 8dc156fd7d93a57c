# SPDX-License-Identifier: Apache-2.0
"""Bound the logs that consumer groups keep of brief streams.

Any host can make the daemon create an image, and end the image at once. If a consumer group reads
the channel, the group keeps the log of this image until it has acknowledged the log's data. An
image that ended less than a minute after its first frame is *brief*. The logs of brief images may
together take a quarter of the storage budget, and there may be at most 1024 of them. Logs of older
images do not count.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.model import Retained

BRIEF_NS: Final = 60 * SECOND_NS
MOST_LOGS: Final = 1024
SHARE: Final = 4                        # divisor of the storage budget


class BriefLogs:
    """The logs of brief images that consumer groups keep, in the order in which the images
    ended."""

    def __init__(self, budget_bytes: int) -> None:
        self.most_bytes = budget_bytes // SHARE
        self._logs: dict[int, Retained] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, retained: Retained) -> None:
        """Count a log, unless the log belongs to an older image or another group already keeps the
        log."""
        if retained.brief_source:
            self._logs.setdefault(retained.log_id, retained)

    def remove(self, log_id: int) -> None:
        """Stop counting a log that no group keeps any more."""
        self._logs.pop(log_id, None)

    def surplus(self) -> Retained | None:
        """Return the log that the groups must drop next, or None while the logs stay within
        their bounds. It is the oldest log of the address whose logs take most memory."""
        taken: defaultdict[str, int] = defaultdict(int)
        for retained in self._logs.values():
            taken[retained.brief_source] += retained.log.reserved_bytes
        if len(self._logs) <= MOST_LOGS and sum(taken.values()) <= self.most_bytes:
            return None
        most = max(taken, key=taken.__getitem__)
        return next(log for log in self._logs.values() if log.brief_source == most)
