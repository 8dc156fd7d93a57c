# SPDX-License-Identifier: Apache-2.0
"""Actions that read the times at which a log reached its positions."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions import Action


@attrs.frozen(kw_only=True)
class ViewTimes(Action):
    """Read the times at which a log reached the positions of the range [start, end). Result: tuple
    of pairs (position, time in ns since the epoch), ascending; the last position is ``end`` or
    above."""

    kind: SlotKind
    slot: int
    start: int
    end: int
    most: int
    known: Sequence[tuple[int, int]] = ()
