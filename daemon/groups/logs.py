# SPDX-License-Identifier: Apache-2.0
"""For each log that consumer groups read, find the position that the group has acknowledged, and
the end of the log.

For a network image, a counter contains the end of the log. For a local publication, no counter
contains the end of the log, so this module finds the end by reading frame after frame. Each search
reads a bounded number of bytes, and begins where the last search ended.
"""

from __future__ import annotations

import time
from typing import Final

from penstock.core import admin
from penstock.core.driver_types import SlotKind
from penstock.core.group_log import GroupLog, join_times
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.times import ViewTimes

_WALK_BYTES: Final = 32 * 1024 * 1024


class GroupLogs:
    """Maps and reads the logs of consumer groups. Only one thread may use a :class:`GroupLogs`.
    Each log stays mapped until its file is deleted."""

    def __init__(self, cnc: admin.Cnc, shared: admin.Shared) -> None:
        self._cnc = cnc
        self._shared = shared
        self._readers: dict[str, GroupLog] = {}
        self._ends: dict[str, int] = {}

    def view(self, action: a.ViewLog) -> a.LogView:
        """Return the acknowledged position and the end position of a log."""
        position = self._cnc.counter(action.committed_counter_id)
        if action.end_counter_id >= 0:
            end = self._cnc.counter(action.end_counter_id)
            return a.LogView(committed=min(position, end), end_position=end)
        reader = self.reader(action.path)
        start = min(max(position, self._ends.get(action.path, 0)), reader.producer())
        end = reader.end(start, _WALK_BYTES)
        self._ends[action.path] = end
        return a.LogView(
            committed=min(position, end), end_position=end,
            more=end - start >= _WALK_BYTES,
        )

    def times(self, action: ViewTimes) -> tuple[tuple[int, int], ...]:
        """Return the times at which the log reached the positions of a range. If the log has no
        recorded time for the last position of the range, this position gets the present time."""
        found = join_times(action.known, action.most)
        if action.slot >= 0 and action.start < action.end:
            found = self._shared.read_times(
                action.kind, action.slot, action.start, action.end, action.most
            )
        ends = bool(found) and found[-1][0] >= action.end
        if not action.known and action.start < action.end and not ends:
            found = [*found[: action.most - 1], (action.end, time.time_ns())]
        return tuple(found)

    def oldest(self, action: a.OldestPosition) -> int:
        """Return the lowest known position at which a frame starts and a new reader can begin.
        Until the daemon has added the new reader, the sender zeroes only frames below this
        position."""
        bound = action.consumer_position - action.term_length
        if bound <= action.start_position:
            return action.start_position
        next_term = -(-bound // action.term_length) * action.term_length
        known = [
            position for position, _ in self._shared.read_index(SlotKind.PUBLICATION, action.slot)
            if position >= bound
        ]
        return min([*known, next_term, action.consumer_position])

    def forget(self, path: str) -> None:
        """Unmap a log whose file is about to be deleted."""
        reader = self._readers.pop(path, None)
        self._ends.pop(path, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        for path in list(self._readers):
            self.forget(path)

    def reader(self, path: str) -> GroupLog:
        """Return the mapped log."""
        if path not in self._readers:
            self._readers[path] = GroupLog(path)
        return self._readers[path]
