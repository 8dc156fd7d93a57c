# SPDX-License-Identifier: Apache-2.0
"""Add streams. The subscriptions of these streams divide a pool of credits among the publishers.

One host reads one or two streams, over IPC or from other hosts. Each stream has several publishers.
If there are two streams, one client reads both, and all their publishers share one pool. A separate
random generator draws these streams. The rest of a seed's scenario is therefore the same as without
these streams.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.daemon.conductor.credit_division import POLICIES
from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

STREAM: Final = 1500
_PORT: Final = 44500     # misfits send from ports above 45000
_CLIENT: Final = 1


class _Pools(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"pools {seed}"), 0.3, set(scenario.classes))
        self.scenario = scenario
        # Each policy is as frequent as the others in any range of seeds.
        self.policy = POLICIES[seed % len(POLICIES)]

    def _stays(self, host: int) -> bool:
        """Whether the host keeps its streams: only its daemon dies, or nothing does."""
        return all(
            machine.crash_ns is None or machine.adopt
            for machine in self.scenario.machines if machine.host == host
        )

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the streams."""
        rng = self.rng
        hosts = [host for host in range(self.scenario.hosts) if self._stays(host)]
        if not hosts or not self.chance("pools"):
            return self.scenario
        at = rng.choice(hosts)
        others = [host for host in hosts if host != at]
        shared = rng.random() < 0.5
        members = rng.choice([2, 2, 3])
        streams = 2 if shared else 1
        credits = rng.choice([members * streams, 7, 20, 100])
        options = f"ps-credits={credits}|ps-credit-policy={self.policy}"
        self.classes.add(f"pool: {self.policy}")
        if shared:
            self.classes.add("pool: client")
            options += "|ps-credit-pool=client"
        for number in range(streams):
            network = bool(others) and rng.random() < 0.6
            self.classes.add(f"pool: {'network' if network else 'ipc'}")
            channel = f"aeron:udp?endpoint={host_ip(at)}:{_PORT}" if network else "aeron:ipc"
            outward = f"{channel}{'|' if '?' in channel else '?'}term-length=64k"
            for _ in range(members):
                self._publish(rng.choice(others) if network else at, outward, STREAM + number)
            slow = rng.random() < 0.5
            reader = SubscriberScript(
                host=at, stream_id=STREAM + number,
                channel=f"{channel}{'|' if '?' in channel else '?'}{options}",
                poll_limit=rng.choice([1, 3]) if slow else 64,
                interval_ns=rng.choice([MS_NS, 5 * MS_NS]) if slow else 0,
                client=_CLIENT if shared else 0,
            )
            self.scenario = attrs.evolve(
                self.scenario, subscribers=(*self.scenario.subscribers, reader)
            )
        return attrs.evolve(self.scenario, classes=tuple(sorted(self.classes)))

    def _publish(self, host: int, channel: str, stream: int) -> None:
        """Add a publisher: busy, slow, or idle for a while."""
        rng = self.rng
        weight = f"|ps-credit-weight={rng.choice([2, 5])}" if rng.random() < 0.3 else ""
        start = SECOND_NS + rng.randrange(SECOND_NS)
        publisher = PublisherScript(
            host=host, channel=channel + weight, stream_id=stream,
            count=rng.choice([20, 100, 300]), size_low=0, size_high=rng.choice([40, 1000]),
            open_ns=rng.choice([0, 0, start]), start_ns=rng.choice([SECOND_NS, start]),
            interval_ns=rng.choice([0, 0, MS_NS, 10 * MS_NS]), exclusive=True,
            pauses=((start, start + 1500 * MS_NS),) if rng.random() < 0.3 else (),
        )
        self.scenario = attrs.evolve(
            self.scenario, publishers=(*self.scenario.publishers, publisher)
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further streams that the seed determines."""
    return _Pools(scenario, seed).add()
