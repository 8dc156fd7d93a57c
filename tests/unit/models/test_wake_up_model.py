# SPDX-License-Identifier: Apache-2.0
"""No order of steps loses a wake-up, and each part of the protocol is needed for that.

Larger worlds were explored once, without a world from which everything being delivered is out of
reach: two messages in a window of one (790 377 worlds), two publishers with a window of two
(280 951) and of one (3 623 121).
"""

from __future__ import annotations

import pytest
from wake_up_model import DATA, HOT, NOT, Rules, explore

SMALL = Rules(messages=1)
FULL = Rules(messages=2, window=1, full=True)


@pytest.mark.parametrize("rules", [
    SMALL._replace(dirty=NOT),
    SMALL._replace(dirty=DATA),
    SMALL._replace(dirty=HOT),
    SMALL._replace(dirty=HOT, adopted=True),
    SMALL._replace(messages=2),
    FULL,
], ids=["cold", "told", "hot", "adopted", "two", "full"])
def test_every_order_of_steps_can_still_deliver_everything(rules: Rules) -> None:
    worlds, stuck = explore(rules)
    assert stuck is None
    assert worlds > 500


@pytest.mark.parametrize("rules", [
    SMALL._replace(dirty=DATA, fence=False),
    SMALL._replace(dirty=HOT, barrier=False),
    SMALL._replace(dirty=HOT, adopted=True, barrier=False),
    SMALL._replace(dirty=HOT, wake_at_cooling=False),
    SMALL._replace(dirty=HOT, cool_to_park=False),
    SMALL._replace(dirty=HOT, check_when_parked=False),
    FULL._replace(want_room=False),
    FULL._replace(request=False),
], ids=lambda rules: next(name for name, value in rules._asdict().items() if value is False
                          and name not in ("adopted", "full")))
def test_without_any_part_of_the_protocol_some_order_gets_stuck(rules: Rules) -> None:
    assert explore(rules)[1] is not None
