# SPDX-License-Identifier: Apache-2.0
"""Actions for consumer groups."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class LogView:
    """State of a consumer group's log at one moment: the acknowledged position and the end
    position."""

    committed: int
    end_position: int
    more: bool = False                  # the walk to the end was cut short


@attrs.frozen(kw_only=True)
class ViewLog(Action):
    """Read the state of a consumer group's log. If ``end_counter_id`` is -1, no counter contains
    the end position of the log. The executor then reads the log frame by frame, from the end of its
    last search, until it finds the end of the log. If ``slot`` is -1, the log has no table of the
    times at which it reached its positions. Result: LogView."""

    log_id: int
    path: str
    committed_counter_id: int
    end_counter_id: int
    kind: SlotKind
    slot: int


@attrs.frozen(kw_only=True)
class OldestPosition(Action):
    """Find the oldest frame of a publication's log at which a new reader can begin. The new reader
    cannot begin at a frame that the sender is about to zero. Result: int, the position of the
    frame."""

    slot: int
    start_position: int
    consumer_position: int
    term_length: int


@attrs.frozen(kw_only=True)
class ReleaseTo(Action):
    """Advance the position of a consumer group's subscriber. A position below the subscriber's
    present position has no effect."""

    position: int
    position_counter_id: int
    subscriber_slot: int
    publication_slot: int               # -1: of a network image
    credit_path: str = ""               # log of a group that grants credits; "": it grants none


@attrs.frozen(kw_only=True)
class DescribeGroup(Action):
    slot: int
    committed: int
    retained_from: int
    expires_ns: int                     # from now
