# SPDX-License-Identifier: Apache-2.0
"""Congestion controls that a daemon has to live with."""

from __future__ import annotations

import time

from penstock.core.congestion import CongestionView


class Fixed:
    """16 KiB."""

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        return 16384


class Raises:
    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        raise ValueError("mine")


class Loops:
    """Answers a few times, and then never again, at full speed."""

    def __init__(self) -> None:
        self._calls = 0

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        self._calls += 1
        while self._calls > 3:
            pass
        return 16384


class Sleeps:
    """Never answers, at rest."""

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        while True:
            time.sleep(3600)


class NeverMade(Sleeps):
    """Its constructor does not return."""

    def __init__(self) -> None:
        while True:
            time.sleep(3600)
