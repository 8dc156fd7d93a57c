# SPDX-License-Identifier: Apache-2.0
"""A further stream whose readers state what the stream does when they are behind
(``ps-sub-policy``).

Isolated readers stop for a while; one reader of the same stream must get every message. The stream
has its own random generator, so that the rest of a seed's scenario does not change.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

STREAM: Final = 1700
_PORT: Final = 43000
_POLICIES: Final = ("independent", "drop_oldest")


class _Isolated(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"isolated {seed}"), 0.3, set(scenario.classes))
        self.scenario = scenario

    def _is_steady(self, host: int) -> bool:
        """Return whether the daemon of the host never dies. A reader that must miss nothing needs
        the daemon's log."""
        machines = {machine.host: machine for machine in self.scenario.machines}
        return machines.get(host, HostScript(host=host)).crash_ns is None

    def add(self) -> Scenario:
        """Return the scenario, with the further stream if the seed draws one."""
        steady = [host for host in range(1, self.scenario.hosts) if self._is_steady(host)]
        if not steady or not self._is_steady(0) or not self.chance("isolated"):
            return self.scenario
        rng = self.rng
        host = rng.choice(steady)
        medium = rng.choice(["ipc", "network", "network", "spy"])
        endpoint = f"aeron:udp?endpoint={host_ip(host)}:{_PORT}"
        out = inward = "aeron:ipc" if medium == "ipc" else endpoint
        outward = [f"term-length={rng.choice(['64k', '64k', '128k'])}"]
        policy = rng.choice(["", "", "block", "error"])
        if policy:
            self.classes.add(f"policy: {policy}")
            outward.append(f"ps-policy={policy}")
        at = 0 if medium == "ipc" else host
        # A stated depth must fit into the window, which some machines make small.
        inward += "" if medium == "ipc" else "|rcv-wnd=32k"
        size = rng.choice([100, 992, 1344, 3000])
        publisher = PublisherScript(
            host=0, channel=f"{out}{'?' if medium == 'ipc' else '|'}{'|'.join(outward)}",
            stream_id=STREAM, count=600, size_low=size, size_high=size, start_ns=SECOND_NS,
            interval_ns=rng.choice([0, 200_000, MS_NS, 2 * MS_NS]),
            exclusive=rng.random() < 0.5,
        )
        waited_for = SubscriberScript(
            host=at, channel=inward, stream_id=STREAM,
            poll_limit=rng.choice([1, 64]), interval_ns=rng.choice([0, 0, MS_NS]),
        )
        where = (0, f"aeron-spy:{endpoint}") if medium == "spy" else (at, inward)
        isolated = [self._isolated(*where) for _ in range(rng.choice([1, 1, 2]))]
        self.classes.add(f"isolated: {medium}")
        return attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, waited_for, *isolated),
            classes=tuple(sorted(self.classes)),
        )

    def _isolated(self, host: int, channel: str) -> SubscriberScript:
        rng = self.rng
        policy = rng.choice(_POLICIES)
        self.classes.add(f"isolated: {policy}")
        options = [f"ps-sub-policy={policy}"]
        depth = rng.choice(["", "2k", "8k"])
        options += [f"ps-sub-depth={depth}"] if depth else []
        start = SECOND_NS + rng.randrange(SECOND_NS // 2)
        slow = rng.random() < 0.4
        return SubscriberScript(
            host=host, channel=f"{channel}{'|' if '?' in channel else '?'}{'|'.join(options)}",
            stream_id=STREAM, may_miss=True,
            poll_limit=rng.choice([1, 2, 10]) if slow else 64,
            interval_ns=rng.choice([MS_NS, 5 * MS_NS]) if slow else 0,
            pauses=((start, start + rng.choice([20, 100, 700, 3000]) * MS_NS),),
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream of the seed."""
    return _Isolated(scenario, seed).add()
