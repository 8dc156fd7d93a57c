# SPDX-License-Identifier: Apache-2.0
"""Compute figures for the progress of a query: how far the query is behind, and how long it has
blocked its senders. Spark shows these figures as the ``latestOffset`` of the source, because Spark
has no other place for the metrics of a Python source.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.client import GroupError
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._planner import Holding, View, Want

_COUNT_S: Final = 1.0           # messages are counted no more often: a daemon walks the log for it
_COUNT_BYTES: Final = 64 * 1024 * 1024
_PART: Final = 32               # of a window: with less left, the sender is held


class Progress:
    """One for each query. The caller passes the function ``count``, which returns the number of
    messages in a range of a session."""

    def __init__(
        self, count: Callable[[Want], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._clock = clock
        self._looked_s = clock()
        self._held_now: frozenset[Session] = frozenset()
        self._held_s: dict[Session, float] = {}
        self._counted_s = -_COUNT_S
        self._messages = 0

    def look(self, view: View) -> None:
        """Update the progress figures from the daemons' state. The planner calls this method
        whenever it has read the daemons' state."""
        now = self._clock()
        for session in self._held_now:
            self._held_s[session] = self._held_s.get(session, 0.0) + now - self._looked_s
        self._looked_s = now
        self._held_now = frozenset(
            session for session, found in view.holdings.items()
            if any(_window_left(h) < max(h.log.mtu, h.log.window_bytes // _PART) for h in found)
            and not all(h.log.ended for h in found)
        )
        self._held_s = {s: held for s, held in self._held_s.items() if s in view.holdings}

    def report(
        self, view: View, planned: Mapping[Session, int], counters: Mapping[str, int]
    ) -> dict[str, Any]:
        """Return the end position of each session, the progress figures, and the values in
        ``counters``. Spark requires sorted keys.
        """
        behind = {
            session: max(0, view.end(session) - planned.get(session, view.first(session)))
            for session in view.holdings
        }
        longest = max(self._held_s, key=lambda session: self._held_s[session], default=None)
        return dict(sorted({
            **{str(session): view.end(session) for session in view.holdings},
            **counters,
            "lagBytes": sum(behind.values()),
            "lagMessages": self._lag(view, planned, behind),
            "windowLeftBytes": sum(
                max(0, min(map(_window_left, h))) for h in view.holdings.values()
            ),
            "heldMs": round(1000 * max(self._held_s.values(), default=0.0)),
            "heldSession": "" if longest is None else str(longest),
            "sessions": len(view.holdings),
        }.items()))

    def _lag(
        self, view: View, planned: Mapping[Session, int], behind: Mapping[Session, int]
    ) -> int:
        if not any(behind.values()):
            self._messages = 0
            return 0
        now = self._clock()
        if now - self._counted_s < _COUNT_S:
            return self._messages
        self._counted_s = now
        messages = 0
        for session, lag in behind.items():
            at = planned.get(session, view.first(session))
            holding = view.source(session, at)
            if lag and holding is not None:
                with contextlib.suppress(GroupError):        # the next look tells
                    messages += self._count(Want(
                        session=session, holding=holding, start=at,
                        max_bytes=min(lag, _COUNT_BYTES),
                    ))
        self._messages = messages
        return messages


def _window_left(holding: Holding) -> int:
    """Bytes that the sender may still send."""
    log = holding.log
    return log.committed + log.window_bytes - log.end_position
