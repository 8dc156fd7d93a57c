# SPDX-License-Identifier: Apache-2.0
"""Add a stream. Its publication limits the amount or the age of the data that readers get.

One reader pauses, and may therefore miss messages; gaps must report each of these messages to this
reader. A second reader does not pause. If only the age of the data is limited, this second reader
must get every message. A separate random generator draws this stream. The rest of a seed's scenario
is therefore the same as without this stream.
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
    host_ip,
)

STREAM: Final = 1900
_PORT: Final = 44000


class _Retention(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"retention {seed}"), 0.18, set(scenario.classes))
        self.scenario = scenario
        # Raises the shares of streams of the network, and of limits by age. A generator of its own
        # keeps the other values of a seed.
        self.more = random.Random(f"retention by age {seed}")

    def _runs_through(self, host: int) -> bool:
        return all(machine.crash_ns is None for machine in self.scenario.machines
                   if machine.host == host)

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the stream."""
        if not self._runs_through(0) or not self.chance("retention"):
            return self.scenario
        rng = self.rng
        hosts = [host for host in range(1, self.scenario.hosts) if self._runs_through(host)]
        medium = rng.choice(["ipc", "ipc", "network"]) if hosts else "ipc"
        at = 0 if medium == "ipc" else rng.choice(hosts)
        if medium == "ipc" and hosts and self.more.random() < 0.35:
            medium, at = "network", self.more.choice(hosts)
        limit = rng.choice(["ps-retention=4k", "ps-retention=16k", "ps-retention-time=100ms",
                            "ps-retention-time=300ms", "ps-retention=8k|ps-retention-time=200ms"])
        if self.more.random() < 0.3:
            limit = self.more.choice(["ps-retention-time=100ms", "ps-retention-time=300ms"])
        by_age = "ps-retention=" not in limit
        self.classes |= {f"retention: {medium}", f"retention: {'age' if by_age else 'bytes'}"}
        channel = "aeron:ipc?" if medium == "ipc" else (
            f"aeron:udp?endpoint={host_ip(at)}:{_PORT}|rcv-wnd=32k|")
        channel += f"term-length=64k|{limit}"
        size = rng.choice([100, 600, 1344])
        publisher = PublisherScript(
            host=0, channel=channel, stream_id=STREAM, count=800, size_low=size, size_high=size,
            start_ns=SECOND_NS, interval_ns=rng.choice([200_000, MS_NS, 2 * MS_NS]),
            exclusive=rng.random() < 0.5,
        )
        keeps_up = SubscriberScript(
            host=at, channel=channel, stream_id=STREAM, may_miss=not by_age,
        )
        start = SECOND_NS + rng.randrange(SECOND_NS // 2)
        pauses = SubscriberScript(
            host=at, stream_id=STREAM, may_miss=True, poll_limit=rng.choice([1, 10, 64]),
            channel=channel + rng.choice(["", "", "|ps-sub-policy=independent"]),
            interval_ns=rng.choice([0, MS_NS, 5 * MS_NS]),
            pauses=((start, start + rng.choice([50, 200, 700]) * MS_NS),),
        )
        return attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, keeps_up, pauses),
            classes=tuple(sorted(self.classes)),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream that the seed determines."""
    return _Retention(scenario, seed).add()
