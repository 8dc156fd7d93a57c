# SPDX-License-Identifier: Apache-2.0
"""A step of a relay's leg: it states whether to look again before the relay sleeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client import _relay_leg
from penstock.client._relay_leg import Leg
from penstock.client._restart import Gap


class _Image:
    """An image with some gaps in a row. Each poll ends at a gap, like a real image."""

    position = 0

    def __init__(self, gaps: int) -> None:
        self.gaps = gaps
        self.leg: Leg | None = None

    def _open(self) -> object:
        return self

    def poll(self, _handler: object, _limit: int) -> int:
        if self.gaps > 0:
            assert self.leg is not None
            start = self.position
            self.gaps -= 1
            self.position += 64
            gap = Gap(
                stream_id=1000, session_id=1, from_position=start, to_position=self.position,
                messages=1,
            )
            self.leg.pass_over(gap)
        return 0


def leg_of(image: _Image, monkeypatch: pytest.MonkeyPatch) -> Leg:
    monkeypatch.setattr(_relay_leg, "img_relay_to", lambda *_: None)
    monkeypatch.setattr(_relay_leg, "img_ordinal", lambda *_: 0)
    publication = SimpleNamespace(
        position=0, _ready=SimpleNamespace(publication_slot=0), _open=lambda: None
    )
    cell = SimpleNamespace(write=lambda *_: None)
    image.leg = Leg(cast(Any, image), cast(Any, publication), cast(Any, cell))
    return image.leg


def test_a_relay_looks_behind_each_gap_before_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    leg = leg_of(_Image(gaps=2), monkeypatch)
    assert [leg.step() for _ in range(4)] == [True, True, False, False]
    assert leg.source == 128
