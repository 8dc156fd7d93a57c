# SPDX-License-Identifier: Apache-2.0
"""Run classes that users write: flow-control strategies and congestion controls. Found by name,
called, contained.

A strategy (``fc=py:...``) gets what each live receiver said last and answers how far the sender may
go, as a stream position::

    class Strategy:
        def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int: ...

A congestion control (``cc=py:...``) gets what the receiver of one stream measures and answers how
many bytes may be in flight to it::

    class Control:
        def on_interval(self, view: CongestionView, now_ns: int) -> int: ...

If a user's class is faulty, only the stream that it controls suffers. For this stream, the daemon
soon uses a built-in rule in place of the class's answers. The daemon logs and counts the failures
of a user class: exceptions, answers of a wrong type or out of range, and late answers. The daemon
runs the user's code in separate threads. If a call of the user's code never returns, its thread
stays blocked; the daemon does not wait for it.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from penstock.core.congestion import CongestionView
from penstock.core.driver_types import ReceiverView
from penstock.core.errors import ChannelRefused
from penstock.daemon.conductor.actions import StrategyAnswer, StrategyKind
from penstock.daemon.conductor.channel.rules import LATE_WORDS

PREFIX: Final = "py:"
MAX_ABANDONED: Final = 16            # threads of closed publications whose strategies do not return
_LARGEST: Final = 2**63 - 1
_WORDS: Final = 200


class Strategy(Protocol):
    """Interface of a strategy.

    While the strategy's answer is late, the class attribute ``on_late`` (``hold``, ``max`` or
    ``min``) chooses the sender's limit; the default is ``hold``.
    """

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        """Return the position up to which the sender may send."""


class Control(Protocol):
    """Interface of a congestion control. The daemon creates one object of a congestion-control
    class for each arriving stream."""

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        """Return the number of bytes that the sender may have in flight. The receiver limits the
        returned number of bytes to the range from ``view.least`` to ``view.most``."""


@attrs.frozen(kw_only=True)
class _Trait:
    """How a kind of class is found and called."""

    group: str                          # of entry points
    method: str
    arguments: str
    answer: str                         # what it is to answer
    instead: str                        # what applies after a failure


_TRAITS: Final = {
    StrategyKind.FLOW: _Trait(
        group="penstock.flow_control", method="on_status_messages",
        arguments="snapshots, now_ns", answer="position", instead="the built-in rule applies",
    ),
    StrategyKind.CONGESTION: _Trait(
        group="penstock.congestion_control", method="on_interval", arguments="view, now_ns",
        answer="window", instead="the last window holds",
    ),
}


@attrs.define(kw_only=True)
class Running:
    """The user's object that controls one publication or image. The fields count the object's
    calls, exceptions and invalid answers."""

    kind: StrategyKind = StrategyKind.FLOW
    name: str
    strategy: Any                       # None: made at the first call
    calls: int = 0
    raised: int = 0
    nonsense: int = 0
    in_call: bool = False


def find(name: str, kind: StrategyKind = StrategyKind.FLOW) -> Callable[[], Any]:
    """Return the class that ``py:entry-point`` or ``py:module:Class`` names.

    :raises ChannelRefused: no class has this name, or the class does not have the required method.
    """
    trait, key = _TRAITS[kind], kind.value
    plain = name.removeprefix(PREFIX)
    try:
        if ":" in plain:
            module, _, attribute = plain.partition(":")
            found: Any = getattr(importlib.import_module(module), attribute)
        else:
            from importlib import metadata  # a tenth of a daemon's start

            points = metadata.entry_points(group=trait.group, name=plain)
            if not points:
                known = sorted(p.name for p in metadata.entry_points(group=trait.group))
                raise ChannelRefused(
                    f"{key}={name}: no entry point {plain} in the group {trait.group} "
                    f"(there are: {', '.join(known) or 'none'})",
                    code="not_supported",
                )
            found = next(iter(points)).load()
        usable = callable(getattr(found, trait.method, None))
    except ChannelRefused:
        raise
    except BaseException as error:  # whatever the user's module does when imported, sys.exit too
        raise ChannelRefused(f"{key}={name}: cannot be loaded: {_words(error)}",
                             code="not_supported") from error
    if not usable:
        raise ChannelRefused(
            f"{key}={name}: the class has no method {trait.method}({trait.arguments})",
            code="not_supported",
        )
    made: Callable[[], Any] = found
    return made


def make(name: str, kind: StrategyKind = StrategyKind.FLOW) -> Any:
    """Return a new object of the class registered as ``name``. The constructor is the user's code,
    so this call may never return. Any thread may call it.

    :raises ChannelRefused: the object cannot be created.
    """
    made = find(name, kind)
    try:
        strategy = made()
        late = inspect.getattr_static(type(strategy), "on_late", "hold")
    except BaseException as error:  # the user's constructor
        raise ChannelRefused(f"{kind.value}={name}: cannot be made: {_words(error)}",
                             code="not_supported") from error
    if kind is StrategyKind.CONGESTION:
        return strategy
    if type(late) is not str or late not in LATE_WORDS:
        raise ChannelRefused(
            f"fc={name}: on_late is {_words(late)}; accepted: {', '.join(LATE_WORDS)}",
            code="not_supported",
        )
    return strategy


class StrategyHost:
    """A table of the users' objects. The key of an object is the id of the publication or image
    that it controls. Any thread may call :meth:`run`; only one thread may call the other
    methods."""

    def __init__(self) -> None:
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()
        self._abandoned = 0

    def open(
        self, owner_id: int, name: str, strategy: Any, kind: StrategyKind = StrategyKind.FLOW
    ) -> None:
        """Register the user's object for a publication or image. If ``strategy`` is None (for
        images and adopted publications), the first call of :meth:`run` creates the user's object.

        :raises ChannelRefused: too many threads are abandoned, because calls for closed streams
            have not returned.
        """
        if self._abandoned >= MAX_ABANDONED:
            raise ChannelRefused(
                f"{kind.value}={name}: {self._abandoned} calls for closed streams have not "
                "returned, and each call blocks a thread of the daemon: correct the users' classes "
                "and restart the daemon",
                code="limit",
            )
        self._running[owner_id] = Running(name=name, strategy=strategy, kind=kind)

    def close(self, owner_id: int) -> None:
        """Remove the user's object of a publication or image. If a call of the object is in
        progress, the call continues."""
        with self._lock:
            running = self._running.pop(owner_id, None)
            if running is not None and running.in_call:
                self._abandoned += 1

    def get(self, owner_id: int) -> Running | None:
        return self._running.get(owner_id)

    def run(
        self, owner_id: int, seen: Sequence[ReceiverView] | CongestionView, now_ns: int
    ) -> StrategyAnswer:
        """Return the object's answer. Any thread may call ``run``, but only one thread at a time
        for the same ``owner_id``."""
        with self._lock:
            running = self._running.get(owner_id)
            if running is None:
                return StrategyAnswer()
            running.in_call = True
        try:
            return _request(running, seen, now_ns)
        finally:
            with self._lock:
                running.in_call = False
                if self._running.get(owner_id) is not running:
                    self._abandoned -= 1


def _request(
    running: Running, seen: Sequence[ReceiverView] | CongestionView, now_ns: int
) -> StrategyAnswer:
    running.calls += 1
    trait = _TRAITS[running.kind]
    try:
        if running.strategy is None:
            running.strategy = make(running.name, running.kind)
        limit: object = getattr(running.strategy, trait.method)(seen, now_ns)
    except BaseException as error:  # contained: the user's code
        running.raised += 1
        return _complaint(running, running.raised, f"raised {_words(error)}")
    if type(limit) is int and 0 <= limit <= _LARGEST:
        return StrategyAnswer(limit=limit)
    running.nonsense += 1
    what = f"answered {_words(limit)}, which is no {trait.answer}"
    return _complaint(running, running.nonsense, what)


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
    key, trait = running.kind.value, _TRAITS[running.kind]
    return StrategyAnswer(complaint=f"{key}={running.name}: {what}; {trait.instead}")
