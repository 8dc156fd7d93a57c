# SPDX-License-Identifier: Apache-2.0
"""The virtual world: one clock, one network, hosts and their applications.

A run is a function of (scenario, seed): all ids and all chance come from generators seeded by it,
all time from the clock of the world, and whatever happens at one moment happens in a fixed order.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from penstock.core.driver_types import NEVER_NS
from penstock.core.sim import NetworkStatistics, SimNetwork
from penstock.sim.apps import App, Publisher, Subscriber, finished, violations
from penstock.sim.host import Host, LivelockError
from penstock.sim.scenario import Scenario, host_ip

#: The shortest duty cycle: a host that asks to be called again at once is called so much later.
CYCLE_NS: Final = 1_000
_MAX_ROUNDS: Final = 100_000


@attrs.frozen(kw_only=True)
class Report:
    """How a run went.  ``trace`` is the same whenever scenario and seed are."""

    scenario: str
    seed: int
    trace: str
    ended_ns: int
    steps: int
    messages: int
    violations: tuple[str, ...]
    network: NetworkStatistics


class World:
    """A context manager: the files of its hosts go with it."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.now_ns = 0
        self.steps = 0
        rng = random.Random(seed)
        self._parent = Path(tempfile.mkdtemp(prefix="penstock-sim-"))
        self.network = SimNetwork(rng.randrange(2**64))
        self.hosts = [
            Host(
                name=f"host {number}",
                ip=host_ip(number),
                directory=self._parent / str(number),
                network=self.network,
                rng=random.Random(rng.randrange(2**64)),
            )
            for number in range(scenario.hosts)
        ]
        self.network.set_link(scenario.link)
        self.publishers = [
            Publisher(script, self.hosts[script.host], random.Random(rng.randrange(2**64)))
            for script in scenario.publishers
        ]
        self.subscribers = [
            Subscriber(script, self.hosts[script.host]) for script in scenario.subscribers
        ]
        self._apps: list[App] = [*self.subscribers, *self.publishers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self.hosts:
            host.close()
        self.network.close()
        shutil.rmtree(self._parent)

    # ---- running ---------------------------------------------------------------------------------

    def next_event_ns(self) -> int:
        """When anything happens next; NEVER_NS: nothing will."""
        times = [self.network.next_event_ns()]
        times += [host.next_deadline_ns() for host in self.hosts]
        times += [app.next_action_ns() for app in self._apps]
        return min(times)

    def step(self) -> bool:
        """Runs the next moment at which anything happens.  False when nothing will."""
        next_ns = self.next_event_ns()
        if next_ns == NEVER_NS:
            return False
        if self.steps > 0:
            next_ns = max(next_ns, self.now_ns + CYCLE_NS)
        self.now_ns = next_ns
        self.steps += 1
        for host in self.hosts:
            host.now_ns = next_ns
        for _ in range(_MAX_ROUNDS):
            worked = self.network.advance(next_ns) > 0
            for host in self.hosts:
                worked = host.settle() or worked
            for app in self._apps:
                worked = app.act(next_ns) or worked
            if not worked:
                return True
        raise LivelockError(f"the world does not come to rest at {next_ns} ns")

    def violations(self) -> list[str]:
        return violations(self.publishers, self.subscribers)

    def run(self) -> Report:
        """Runs until everything is delivered, and the applications have closed and the daemons
        have put everything away; or to the scenario's limit."""
        while not finished(self.publishers, self.subscribers):
            if self.now_ns >= self.scenario.limit_ns or not self.step():
                break
        complaints = self.violations()
        for app in self._apps:
            app.close()
        while not complaints and not self._tidy():
            if self.now_ns >= self.scenario.limit_ns or not self.step():
                complaints = [f"left behind at the end: {self._left_behind()}"]
        return self._report(complaints)

    def _received(self) -> int:
        return sum(
            len(got) for subscriber in self.subscribers for got in subscriber.received.values()
        )

    def _left_behind(self) -> list[str]:
        return sorted(
            str(path.relative_to(self._parent)) for path in self._parent.rglob("*.logbuffer")
        )

    def _tidy(self) -> bool:
        return not self._left_behind()

    def _report(self, complaints: list[str]) -> Report:
        trace = hashlib.sha256(self.network.trace_hash().to_bytes(8, "little"))
        for host in self.hosts:
            for at_ns, text in host.events:
                line = f"{host.name} {at_ns} {text}\n".replace(str(self._parent), "")
                trace.update(line.encode())
        for subscriber in self.subscribers:
            trace.update(subscriber.digest())
        return Report(
            scenario=self.scenario.name,
            seed=self.seed,
            trace=trace.hexdigest(),
            ended_ns=self.now_ns,
            steps=self.steps,
            messages=self._received(),
            violations=tuple(complaints),
            network=self.network.statistics(),
        )


def run(scenario: Scenario, seed: int) -> Report:
    """One run from the beginning to its end."""
    with World(scenario, seed) as world:
        return world.run()
