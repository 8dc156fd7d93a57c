# SPDX-License-Identifier: Apache-2.0
"""Random decisions and values from which a generated scenario is made."""

from __future__ import annotations

import random
from typing import Final

from penstock.sim.scenario import SECOND_NS, Scenario

#: End of all faults, after which everything must arrive.
FAULTS_END_NS: Final = 6 * SECOND_NS
CERTAIN_PPM: Final = 1_000_000


class Draw:
    """Decides at random which features a generated scenario gets, and records their names in
    ``classes``.

    :param weight: probability with which :meth:`chance` chooses a feature, 0 to 1.
    """

    def __init__(self, rng: random.Random, weight: float, classes: set[str]) -> None:
        self.rng = rng
        self.weight = weight
        self.classes = classes

    def chance(self, name: str) -> bool:
        """Decide at random whether the scenario gets the feature ``name``; if so, record it."""
        if self.rng.random() < self.weight:
            self.classes.add(name)
            return True
        return False


def refuses_datagrams(scenario: Scenario, host: int) -> bool:
    """Whether sockets of a host refuse some datagrams: a sender of MDC repeats to all destinations
    a datagram that one did not accept, and no oracle expects that."""
    return any(each.short_send_ppm > 0 for each in scenario.machines if each.host == host)
