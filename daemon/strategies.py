# SPDX-License-Identifier: Apache-2.0
"""Flow-control strategies written in Python: found by name, called with snapshots, contained.

A strategy is a class with one method::

    class Strategy:
        def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int: ...

It gets what each live receiver said last and answers how far the sender may go, as a stream
position. A wrong strategy harms its own stream only, and only until the built-in rule applies. An
exception, or an answer that is no position, is logged once and counted. So is one that does not
answer in time; the daemon runs all of this code in threads that it can leave behind.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from penstock.core.driver_types import ReceiverView
from penstock.core.errors import ChannelRefused
from penstock.daemon.conductor.actions import StrategyAnswer
from penstock.daemon.conductor.channel.rules import LATE_WORDS

GROUP: Final = "penstock.flow_control"
PREFIX: Final = "py:"
MAX_ABANDONED: Final = 16            # threads of closed publications whose strategies do not return
_LARGEST: Final = 2**63 - 1
_WORDS: Final = 200


class Strategy(Protocol):
    """Interface of a strategy.

    A class attribute ``on_late`` (``hold``, ``max`` or ``min``) chooses the limit that applies
    while it is late; without one, ``hold`` applies.
    """

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """The position up to which the sender may send."""


@attrs.define(kw_only=True)
class Running:
    """A strategy at work on one publication, and how often the built-in had to stand in."""

    name: str
    strategy: Strategy | None           # None: made at the first call
    calls: int = 0
    raised: int = 0
    nonsense: int = 0
    in_call: bool = False


def find(name: str) -> Callable[[], Strategy]:
    """The class that ``py:entry-point`` or ``py:module:Class`` names.

    :raises ChannelRefused: there is none, or it is no strategy.
    """
    plain = name.removeprefix(PREFIX)
    try:
        if ":" in plain:
            module, _, attribute = plain.partition(":")
            found: Any = getattr(importlib.import_module(module), attribute)
        else:
            from importlib import metadata  # a tenth of a daemon's start

            points = metadata.entry_points(group=GROUP, name=plain)
            if not points:
                known = sorted(p.name for p in metadata.entry_points(group=GROUP))
                raise ChannelRefused(
                    f"fc={name}: no entry point {plain} in the group {GROUP} "
                    f"(there are: {', '.join(known) or 'none'})",
                    code="not_supported",
                )
            found = next(iter(points)).load()
        usable = callable(getattr(found, "on_status_messages", None))
    except ChannelRefused:
        raise
    except BaseException as error:  # whatever the user's module does when imported, sys.exit too
        raise ChannelRefused(f"fc={name}: cannot be loaded: {_words(error)}",
                             code="not_supported") from error
    if not usable:
        raise ChannelRefused(
            f"fc={name}: has no method on_status_messages(snapshots, now_ns)", code="not_supported"
        )
    made: Callable[[], Strategy] = found
    return made


def make(name: str) -> Strategy:
    """A new object of the class that the name tells.  Runs the user's code: any thread, any time.

    :raises ChannelRefused: it cannot be made.
    """
    made = find(name)
    try:
        strategy = made()
        late = inspect.getattr_static(type(strategy), "on_late", "hold")
    except BaseException as error:  # the user's constructor
        raise ChannelRefused(f"fc={name}: cannot be made: {_words(error)}",
                             code="not_supported") from error
    if type(late) is not str or late not in LATE_WORDS:
        raise ChannelRefused(
            f"fc={name}: on_late is {_words(late)}; accepted: {', '.join(LATE_WORDS)}",
            code="not_supported",
        )
    return strategy


class StrategyHost:
    """The strategies of a daemon, by publication.  One thread; :meth:`run` any."""

    def __init__(self) -> None:
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()
        self._abandoned = 0

    def open(self, publication_id: int, name: str, strategy: Strategy | None) -> None:
        """Without an object (the publication was adopted) the first call makes one.

        :raises ChannelRefused: too many strategies of closed publications never returned.
        """
        if self._abandoned >= MAX_ABANDONED:
            raise ChannelRefused(
                f"fc={name}: {self._abandoned} strategies of closed publications still do not "
                "return, each in a thread of the daemon: correct them and restart it",
                code="limit",
            )
        self._running[publication_id] = Running(name=name, strategy=strategy)

    def close(self, publication_id: int) -> None:
        """A call in progress is not interrupted."""
        with self._lock:
            running = self._running.pop(publication_id, None)
            if running is not None and running.in_call:
                self._abandoned += 1

    def get(self, publication_id: int) -> Running | None:
        return self._running.get(publication_id)

    def run(
        self, publication_id: int, snapshots: Sequence[ReceiverView], now_ns: int
    ) -> StrategyAnswer:
        """Return the strategy's answer. Any thread, one call at a time for a publication."""
        with self._lock:
            running = self._running.get(publication_id)
            if running is None:
                return StrategyAnswer()
            running.in_call = True
        try:
            return _request(running, snapshots, now_ns)
        finally:
            with self._lock:
                running.in_call = False
                if self._running.get(publication_id) is not running:
                    self._abandoned -= 1


def _request(running: Running, snapshots: Sequence[ReceiverView], now_ns: int) -> StrategyAnswer:
    running.calls += 1
    try:
        if running.strategy is None:
            running.strategy = make(running.name)
        limit: object = running.strategy.on_status_messages(snapshots, now_ns)
    except BaseException as error:  # contained: the user's code
        running.raised += 1
        return _complaint(running, running.raised, f"raised {_words(error)}")
    if type(limit) is int and 0 <= limit <= _LARGEST:
        return StrategyAnswer(limit=limit)
    running.nonsense += 1
    return _complaint(running, running.nonsense, f"answered {_words(limit)}, which is no position")


def _words(value: object) -> str:
    """A value of the user's, for people: its repr is the user's code too, and may have any length.
    """
    try:
        return repr(value)[:_WORDS]
    except BaseException:
        return "what cannot be shown"


def _complaint(running: Running, nth: int, what: str) -> StrategyAnswer:
    """Only the first of a kind is told."""
    if nth > 1:
        return StrategyAnswer()
    return StrategyAnswer(complaint=f"fc={running.name}: {what}; the built-in rule applies")
