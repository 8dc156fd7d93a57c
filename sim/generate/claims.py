# SPDX-License-Identifier: Apache-2.0
"""Let publishers claim some of their messages, and abort some claims. The credit of an aborted
claim returns to the stream, and its padding has no message."""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import Scenario

#: Share of the seeds, with credits and without.
_CREDITED: Final = 0.3
_OTHERS: Final = 0.05


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario; if the seed decides so, its publishers claim."""
    credited = any("ps-credits=" in reader.channel for reader in scenario.subscribers)
    draw = Draw(
        random.Random(f"claims {seed}"), _CREDITED if credited else _OTHERS, set(scenario.classes)
    )
    if not draw.chance("credits: claims" if credited else "claims"):
        return scenario
    return attrs.evolve(
        scenario, publishers=tuple(attrs.evolve(one, claims=True) for one in scenario.publishers),
        classes=tuple(sorted(draw.classes)),
    )
