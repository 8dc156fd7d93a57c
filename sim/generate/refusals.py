# SPDX-License-Identifier: Apache-2.0
"""Add a group that follows its slowest receiver, and in which one receiver refuses the stream.

The only subscription of the refusing host contradicts the stream's policy. The host answers each
SETUP by a refusal, so the group must not wait for it. A separate random generator draws this
stream. The rest of a seed's scenario is therefore the same as without this stream.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    PublisherScript,
    Scenario,
    SubscriberScript,
)

STREAM: Final = 1550
_PORT: Final = 43200
_GROUP: Final = f"aeron:udp?endpoint=239.20.0.151:{_PORT}|interface=10.0.0.0/24"
_POLICY: Final = "ps-policy=drop_oldest"


class _Refusals(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"a refusal {seed}"), 0.08, set(scenario.classes))
        self.scenario = scenario

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the stream."""
        if not self.chance("refusals"):
            return self.scenario
        rng = self.rng
        hosts = max(self.scenario.hosts, 3)
        refusing = rng.randrange(1, hosts)
        publisher = PublisherScript(
            host=0, stream_id=STREAM, count=rng.choice([100, 500]), size_low=100, size_high=1344,
            channel=f"{_GROUP}|term-length=64k|fc=min,t:{rng.choice(['500ms', '2s'])}|{_POLICY}",
            start_ns=SECOND_NS, interval_ns=rng.choice([200_000, MS_NS, 5 * MS_NS]),
            exclusive=rng.random() < 0.5,
        )
        reading = [
            SubscriberScript(
                host=host, channel=f"{_GROUP}|rcv-wnd=32k|{_POLICY}", stream_id=STREAM,
                may_join_late=True, may_miss=True,
            )
            for host in range(1, hosts) if host != refusing
        ]
        refuses = SubscriberScript(
            host=refusing, channel=f"{_GROUP}|rcv-wnd=32k|ps-sub-policy=block", stream_id=STREAM,
            start_ns=rng.choice([0, SECOND_NS + rng.randrange(SECOND_NS // 10)]), refuses=True,
        )
        return attrs.evolve(
            self.scenario, hosts=hosts,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, *reading, refuses),
            classes=tuple(sorted(self.classes)),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream that the seed determines."""
    return _Refusals(scenario, seed).add()
