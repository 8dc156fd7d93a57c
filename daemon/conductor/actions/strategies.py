# SPDX-License-Identifier: Apache-2.0
"""Actions for flow-control strategies written in Python."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import ReceiverView
from penstock.daemon.conductor.actions.base import Action
from penstock.daemon.conductor.strategy_kind import StrategyKind as StrategyKind


@attrs.frozen(kw_only=True)
class ReadReceivers(Action):
    """Read the state of a publication's live receivers, for the publication's flow control in
    Python. Result: tuple[ReceiverView, ...]."""

    publication_id: int


@attrs.frozen(kw_only=True)
class MakeStrategy(Action):
    """Find the Python class that a user wrote, and create an object of this class. Result: the
    object."""

    kind: StrategyKind
    name: str


@attrs.frozen(kw_only=True)
class StrategyAnswer:
    """Answer of a user's class. If ``limit`` is None, the class gave no valid answer, and the
    daemon applies a built-in rule in place of the class."""

    limit: int | None = None            # a position (FLOW) or a window in bytes (CONGESTION)
    complaint: str = ""                 # for the error log: the first failure of its kind


@attrs.frozen(kw_only=True)
class RunStrategy(Action):
    """Call the Python class of a publication's flow-control strategy. Result: StrategyAnswer. If
    the user's code never returns, the conductor gets no result."""

    publication_id: int
    snapshots: tuple[ReceiverView, ...]
    now_ns: int


@attrs.frozen(kw_only=True)
class SetPublicationLimit(Action):
    publication_id: int
    limit: int
    until_ns: int
