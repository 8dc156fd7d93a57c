# SPDX-License-Identifier: Apache-2.0
"""Flow-control strategies written in Python: found by name, called with snapshots, contained.

A strategy is a class with one method::

    class Strategy:
        def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int: ...

It gets what each live receiver said last and answers how far the sender may go, as a stream
position.  What it does wrong harms its own stream only, and that only so far that the built-in rule
applies: an exception or an answer that is no position is logged once and counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, Final, Protocol

import attrs

from penstock.core.driver_types import ReceiverView
from penstock.core.errors import ChannelRefused

GROUP: Final = "penstock.flow_control"
PREFIX: Final = "py:"
_LARGEST: Final = 2**63 - 1


class Strategy(Protocol):
    """What a strategy must be."""

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """The position up to which the sender may send."""


@attrs.define(kw_only=True)
class Running:
    """A strategy at work on one publication, and how often the built-in had to stand in."""

    name: str
    strategy: Strategy
    calls: int = 0
    raised: int = 0
    nonsense: int = 0


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
            points = metadata.entry_points(group=GROUP, name=plain)
            if not points:
                known = sorted(p.name for p in metadata.entry_points(group=GROUP))
                raise ChannelRefused(
                    f"fc={name}: no entry point {plain} in the group {GROUP} "
                    f"(there are: {', '.join(known) or 'none'})",
                    code="not_supported",
                )
            found = next(iter(points)).load()
    except ChannelRefused:
        raise
    except Exception as error:  # whatever the user's module does when imported
        raise ChannelRefused(f"fc={name}: cannot be loaded: {error!r}",
                             code="not_supported") from error
    if not callable(getattr(found, "on_status_messages", None)):
        raise ChannelRefused(
            f"fc={name}: has no method on_status_messages(snapshots, now_ns)", code="not_supported"
        )
    made: Callable[[], Strategy] = found
    return made


class StrategyHost:
    """The strategies of a daemon, by publication."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._running: dict[int, Running] = {}

    def open(self, publication_id: int, name: str) -> None:
        """:raises ChannelRefused: it cannot be made."""
        made = find(name)
        try:
            strategy = made()
        except Exception as error:  # the user's constructor
            raise ChannelRefused(f"fc={name}: cannot be made: {error!r}",
                                 code="not_supported") from error
        self._running[publication_id] = Running(name=name, strategy=strategy)

    def close(self, publication_id: int) -> None:
        self._running.pop(publication_id, None)

    def get(self, publication_id: int) -> Running | None:
        return self._running.get(publication_id)

    def run(
        self, publication_id: int, snapshots: Sequence[ReceiverView], now_ns: int
    ) -> int | None:
        """The strategy's limit; None: the built-in must stand in.  Any thread, one at a time."""
        running = self._running.get(publication_id)
        if running is None:
            return None
        running.calls += 1
        try:
            limit: object = running.strategy.on_status_messages(snapshots, now_ns)
        except Exception as error:  # contained: the user's code
            running.raised += 1
            if running.raised == 1:
                self._log(f"fc={running.name}: raised {error!r}; the built-in rule applies")
            return None
        if type(limit) is int and 0 <= limit <= _LARGEST:
            return limit
        running.nonsense += 1
        if running.nonsense == 1:
            self._log(f"fc={running.name}: answered {limit!r}, which is no position; the built-in "
                      "rule applies")
        return None
