# SPDX-License-Identifier: Apache-2.0
"""Actions that read the times of a log's positions."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions import Action


@attrs.frozen(kw_only=True)
class ViewTimes(Action):
    """Result: tuple of (position, epoch ns), ascending: the times at which a log reached the
    positions of [start, end). The last position is ``end`` or above."""

    kind: SlotKind
    slot: int
    start: int
    end: int
    most: int
