# SPDX-License-Identifier: Apache-2.0
"""Timers of the conductor: a heap of callbacks, ordered by time. Callbacks with the same time run
in the order in which they were added."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from penstock.core.driver_types import NEVER_NS


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, deadline_ns: int, callback: Callable[[], None]) -> None:
        """Add a callback that runs once, at or after the deadline. A callback cannot be removed, so
        the callback itself checks whether it is still needed."""
        heapq.heappush(self._heap, (deadline_ns, next(self._order), callback))

    def __len__(self) -> int:
        return len(self._heap)

    def next_deadline_ns(self) -> int:
        return self._heap[0][0] if self._heap else NEVER_NS

    def run(self, now_ns: int) -> None:
        """Run the callbacks that are due. If a callback adds a callback that is already due, the
        added callback runs in the next call of ``run``."""
        due = []
        while self._heap and self._heap[0][0] <= now_ns:
            due.append(heapq.heappop(self._heap)[2])
        for callback in due:
            callback()
