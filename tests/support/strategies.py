# SPDX-License-Identifier: Apache-2.0
"""Flow-control strategies that a daemon has to live with."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.core.driver_types import ReceiverView


class Loops:
    """Answers a few times, and then never again, at full speed."""

    def __init__(self) -> None:
        self._calls = 0

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        self._calls += 1
        while self._calls > 3:
            pass
        return 0


class Sleeps:
    """Never answers, at rest."""

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        while True:
            time.sleep(3600)


class NeverMade(Sleeps):
    """Its constructor does not return."""

    def __init__(self) -> None:
        while True:
            time.sleep(3600)
