# SPDX-License-Identifier: Apache-2.0
"""Compute figures for the progress of a query: how far the query is behind, and how long it has
blocked its senders. Spark shows these figures as the ``latestOffset`` of the source, because Spark
has no other place for the metrics of a Python source.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.client import GroupError, GroupState
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._planner import Holding, View, Want

_COUNT_S: Final = 1.0           # messages are counted no more often: a daemon walks the log for it
_COUNT_BYTES: Final = 64 * 1024 * 1024
_PART: Final = 32               # of a window: with less left, the sender is held
_OTHERS_S: Final = 5.0          # all groups of a daemon are requested no more often


class Progress:
    """One for each query. The caller passes two functions. ``count`` returns the number of messages
    in a range of a session. ``groups`` returns the states of all consumer groups, each with the
    number of its daemon in the query's options."""

    def __init__(
        self,
        count: Callable[[Want], int],
        groups: Callable[[], Sequence[tuple[int, GroupState]]],
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._groups = groups
        self._name = name
        self._clock = clock
        self._culprits: dict[Session, str] = {}
        self._others: dict[tuple[int, int], tuple[int, str]] = {}
        self._others_s = clock() - _OTHERS_S
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
        self._culprits = {s: said for s, said in self._culprits.items() if s in view.holdings}
        open_ = {
            session: found for session, found in view.holdings.items()
            if not all(h.log.ended for h in found)
        }
        culprits = {session: self._culprit(found) for session, found in open_.items()}
        if not all(culprits.values()) and now - self._others_s >= _OTHERS_S:
            self._others_s = now
            self._others = _furthest_behind(self._groups())
        for session, found in open_.items():
            culprits[session] = culprits[session] or self._other(found)
        held = {session: said for session, said in culprits.items() if said}
        self._culprits |= held
        self._held_now = frozenset(held)
        self._held_s = dict.fromkeys(held, 0.0) | self._held_s
        self._held_s = {s: held_s for s, held_s in self._held_s.items() if s in view.holdings}

    def _culprit(self, found: Sequence[Holding]) -> str:
        """Return the group of this query that holds the sender; empty: this query does not hold
        it."""
        tightest = min(found, key=_window_left)
        return f"{self._name} on {tightest.host}" if _is_held(
            tightest, tightest.log.committed
        ) else ""

    def _other(self, found: Sequence[Holding]) -> str:
        """Return another group that holds the sender; empty: none of the known groups does."""
        for holding in found:
            committed, said = self._others.get((holding.daemon, holding.log.log_id), (None, ""))
            if committed is not None and _is_held(holding, committed):
                return said
        return ""

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
            "culprit": "" if longest is None else self._culprits.get(longest, ""),
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


def _is_held(holding: Holding, committed: int) -> bool:
    """Return whether the sender has nearly no window left behind the position ``committed``."""
    log = holding.log
    return committed + log.window_bytes - log.end_position < max(log.mtu, log.window_bytes // _PART)


def _furthest_behind(
    states: Sequence[tuple[int, GroupState]]
) -> dict[tuple[int, int], tuple[int, str]]:
    """Return for each log of each daemon the lowest position that a group has acknowledged, and the
    name of that group."""
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for daemon, state in states:
        for log in state.logs:
            key, entry = (daemon, log.log_id), (log.committed, f"{state.name} on {state.host}")
            found[key] = min(found.get(key, entry), entry)
    return found
