# SPDX-License-Identifier: Apache-2.0
"""Actions for consumer groups."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class LogView:
    """State of a group's log at one moment."""

    committed: int
    end_position: int
    more: bool = False                  # the walk to the end was cut short


@attrs.frozen(kw_only=True)
class ViewLog(Action):
    """Result: LogView. Without ``end_counter_id`` (-1) the executor walks the log to its end, from
    the end of the last walk. Without ``slot`` (-1) there are no times."""

    log_id: int
    path: str
    committed_counter_id: int
    end_counter_id: int
    kind: SlotKind
    slot: int


@attrs.frozen(kw_only=True)
class OldestPosition(Action):
    """Result: int, the position of the first frame of a publication's log that the sender will not
    zero soon."""

    slot: int
    start_position: int
    consumer_position: int
    term_length: int


@attrs.frozen(kw_only=True)
class ReleaseTo(Action):
    """Moves the position of a group's subscriber, never backwards."""

    position: int
    position_counter_id: int
    subscriber_slot: int
    publication_slot: int               # -1: of a network image


@attrs.frozen(kw_only=True)
class DescribeGroup(Action):
    slot: int
    committed: int
    retained_from: int
    expires_ns: int                     # from now
