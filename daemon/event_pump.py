# SPDX-License-Identifier: Apache-2.0
"""Process events of the data plane in turns. Each turn processes a limited number of events, so
that the thread can serve clients' requests between two turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from penstock.core.driver_events import DriverEvent, Setup

EVENTS_PER_TURN: Final = 256
SETUPS_PER_TURN: Final = 8      # each makes an image, which takes about a millisecond


@attrs.define
class EventPump:
    _poll: Callable[[], DriverEvent | None]
    _handle: Callable[[DriverEvent], None]

    def turn(self) -> bool:
        """Process at most EVENTS_PER_TURN events, of which at most SETUPS_PER_TURN are SETUPs.

        :returns: Return True if the turn ended before the queue of events was empty.
        """
        setups = 0
        for _ in range(EVENTS_PER_TURN):
            event = self._poll()
            if event is None:
                return False
            self._handle(event)
            if isinstance(event, Setup):
                setups += 1
                if setups == SETUPS_PER_TURN:
                    break
        return True
