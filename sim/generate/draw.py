# SPDX-License-Identifier: Apache-2.0
"""Values that all drawings of a generated scenario depend on."""

from __future__ import annotations

import random
from typing import Final

from penstock.sim.scenario import SECOND_NS

#: No fault lasts longer, so that everything must arrive after all.
FAULTS_END_NS: Final = 6 * SECOND_NS
CERTAIN_PPM: Final = 1_000_000


class Draw:
    """A generator of its own, and what was drawn of it.

    :param weight: How likely each chance is, 0 to 1.
    """

    def __init__(self, rng: random.Random, weight: float, classes: set[str]) -> None:
        self.rng = rng
        self.weight = weight
        self.classes = classes

    def chance(self, name: str) -> bool:
        """Whether the scenario has this in it; then it is so classified."""
        if self.rng.random() < self.weight:
            self.classes.add(name)
            return True
        return False
