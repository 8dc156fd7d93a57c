# SPDX-License-Identifier: Apache-2.0
"""No order of steps loses a wake-up of a loop of events, and each part of the protocol is needed.

A world without a following step in which a task still waits is a lost wake-up: every step that can
be taken leads on, so nothing is circled for ever.
"""

from __future__ import annotations

import pytest
from watch_model import Rules, explore


@pytest.mark.parametrize("rules", [
    Rules(wakers=1, tasks=1), Rules(wakers=1), Rules(tasks=1), Rules(), Rules(wakers=3, tasks=1),
], ids=str)
def test_every_order_of_steps_ends_every_wait(rules: Rules) -> None:
    worlds, stuck, writes = explore(rules)
    assert stuck is None
    assert worlds > 15
    assert writes <= rules.wakers       # no waker writes twice


@pytest.mark.parametrize("rules", [
    Rules(look_after_watch=False),
    Rules(word_first=False),
    Rules(clear_before_write=False),
    Rules(drain_before_fire=False),
], ids=lambda rules: next(name for name, value in rules._asdict().items() if value is False))
def test_without_any_part_of_the_protocol_some_order_loses_a_wake_up(rules: Rules) -> None:
    assert explore(rules)[1] is not None
