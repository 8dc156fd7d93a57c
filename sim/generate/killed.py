# SPDX-License-Identifier: Apache-2.0
"""Add a publisher that is killed in an offer, after it has taken a credit. The publisher shares its
session with another publisher of its host, so the session continues."""

from __future__ import annotations

import random

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import MS_NS, SECOND_NS, PublisherScript, Scenario


class _Killed(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"killed {seed}"), 0.8, set(scenario.classes))
        self.scenario = scenario

    def _suits(self, publisher: PublisherScript) -> bool:
        return (
            not publisher.exclusive and not publisher.relayed
            and all(machine.crash_ns is None or machine.adopt for machine in self.scenario.machines
                    if machine.host == publisher.host)
            and any("ps-credits=" in reader.channel for reader in self.scenario.subscribers
                    if reader.stream_id == publisher.stream_id)
        )

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the publisher."""
        suitable = [each for each in self.scenario.publishers if self._suits(each)]
        if not suitable or not self.chance("credits: killed"):
            return self.scenario
        lasting = self.rng.choice(suitable)
        start = max(lasting.open_ns, lasting.start_ns) + self.rng.choice([0, 10, 300]) * MS_NS
        lives = all(machine.crash_ns is None for machine in self.scenario.machines
                    if machine.host == lasting.host)
        killed = attrs.evolve(
            lasting, hangup_ns=self.rng.choice([0, 20, 200]) * MS_NS if lives else 0,
            start_ns=start, count=self.rng.choice([1, 20, 1000]),
            interval_ns=self.rng.choice([MS_NS, 10 * MS_NS]),
            crash_ns=start + self.rng.randrange(SECOND_NS // 100, 2 * SECOND_NS),
        )
        return attrs.evolve(
            self.scenario, publishers=(*self.scenario.publishers, killed),
            classes=tuple(sorted(self.classes)),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further publisher that the seed determines."""
    return _Killed(scenario, seed).add()
