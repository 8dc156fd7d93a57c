# SPDX-License-Identifier: Apache-2.0
"""Read access to logs for consumer groups (ps_group_log.h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core._lib import CORE, ffi, lib
from penstock.core.gather import LogFacts


class GroupLog:
    """A log buffer file, mapped read-only.  One thread at a time."""

    def __init__(self, path: str) -> None:
        """Map the log buffer at ``path``.

        :raises NativeError: the file cannot be mapped, or is no log buffer.
        """
        out = ffi.new("ps_group_log_t **")
        CORE.check(lib.ps_group_log_open(path.encode(), out), f"map {path}")
        self._handle: Any = out[0]
        facts = ffi.new("ps_log_facts_t *")
        lib.ps_group_log_facts(self._handle, facts)
        self.facts = LogFacts.of(facts)

    def close(self) -> None:
        if self._handle is not None:
            lib.ps_group_log_close(self._handle)
            self._handle = None

    @property
    def native(self) -> Any:
        """The native handle."""
        return self._handle

    def producer(self) -> int:
        """Return the producer position of a publication's log; 2^63 - 1 for an image's log."""
        return int(lib.ps_group_log_producer(self._handle))

    def end(self, start: int, max_bytes: int) -> int:
        """Return the end of the committed frames that follow ``start`` without a gap. ``start``
        must be a position between two frames. The function checks at most ``max_bytes`` bytes."""
        return int(lib.ps_group_log_end(self._handle, start, max_bytes))

    def cut(self, start: int, end: int, max_bytes: int) -> int:
        """Return the end of the longest range of whole frames that begins at ``start``. The range
        ends at or before ``end``, in the term of ``start``, and has at most ``max_bytes`` bytes. If
        the first frame is longer than ``max_bytes``, the range is this frame.

        :raises NativeError: no complete frame begins at ``start``.
        """
        position = lib.ps_group_log_cut(self._handle, start, end, max_bytes)
        if position < 0:
            CORE.check(int(position), "cut frames")
        return int(position)

    def copy(self, start: int, end: int) -> bytes:
        """Return the bytes of the positions [start, end), which must lie in one term."""
        facts = self.facts
        if start < 0 or not start <= end <= (start | (facts.term_length - 1)) + 1:
            raise ValueError(f"[{start}, {end}) is not within a term")
        at = lib.ps_group_log_at(self._handle, start)
        return bytes(ffi.buffer(at, end - start))


def join_times(entries: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Join ascending entries (position, time in ns) that are close in time, until there are at most
    ``most`` (>= 2). A joined entry has the position and the time of its last entry."""
    if len(entries) <= most:
        return list(entries)
    out = ffi.new("ps_index_view_t[]", list(entries))
    count = CORE.check(lib.ps_join_times(out, len(entries), most), "join times")
    return [(int(out[i].position), int(out[i].time_ns)) for i in range(count)]
