# SPDX-License-Identifier: Apache-2.0
"""The virtual world: one clock, one network, hosts and their applications.

The result of a run depends only on the scenario and the seed. All ids and all random values come
from generators that the seed initialises. All time comes from the clock of the world. Events of the
same moment happen in a fixed order. C code processes the network and the drivers from event to
event (``sim/native/world/ps_sim_world.c``). Python code runs only if a conductor has work, if an
action of the scenario is due, or if a sample is due.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from penstock.core.driver_types import NEVER_NS
from penstock.sim.core import Link, NetworkStatistics, SimNetwork, SimWorld, Stop, WireStatistics
from penstock.sim.oracles.credits import lost_credits
from penstock.sim.oracles.fan_in import FanIn
from penstock.sim.oracles.measure import Meter
from penstock.sim.oracles.memory import Memory
from penstock.sim.oracles.oracle import awaits_gaps, caught_up, verdict
from penstock.sim.scenario import MS_NS, SECOND_NS, HostScript, Scenario, host_ip
from penstock.sim.trace import Sample
from penstock.sim.world.apps import Publisher, Subscriber
from penstock.sim.world.host import Host, LivelockError
from penstock.sim.world.misfits import Misfit
from penstock.sim.world.relays import RelayApp

SLICE_NS: Final = 10 * MS_NS
_MAX_CONTROL: Final = 100_000
_TIDY_NS: Final = 60_000 * MS_NS
#: Receivers that are not heard, and daemons that have adopted a stream, hold credits for 10 s.
_RETURN_NS: Final = 12_000 * MS_NS
#: Longer than a publication lingers and an image then lives in silence.
_END_NS: Final = 20_000 * MS_NS


def _memory() -> str | None:
    """A file system in memory for the hosts' files, where there is one."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


@attrs.frozen(kw_only=True)
class Report:
    """Result of a run. ``trace`` is a hash of the run. Runs with the same scenario and seed have
    the same hash. ``rules`` contains the names of the protocol's rules that the driver has used in
    the run; the probe records only some rules.
    """

    scenario: str
    seed: int
    trace: str
    ended_ns: int
    finished_ns: int
    steps: int
    messages: int
    missed: int
    gaps: int
    violations: tuple[str, ...]
    rules: tuple[str, ...]
    network: NetworkStatistics
    wire: WireStatistics


class World:
    """The virtual world, for use in a ``with`` statement. When the ``with`` block ends, the world
    removes the files of its hosts."""

    def __init__(self, scenario: Scenario, seed: int, *, record: bool = False) -> None:
        self.scenario = scenario
        self.seed = seed
        self.now_ns = 0
        self.finished_ns = 0
        self.samples: list[Sample] = []
        self._record = record
        rng = random.Random(seed)
        self._parent = Path(tempfile.mkdtemp(prefix="penstock-sim-", dir=_memory()))
        self.network = SimNetwork(rng.randrange(2**64))
        self.native = SimWorld(self.network)
        if not scenario.hostile:
            self.native.probe()
        machines = {machine.host: machine for machine in scenario.machines}
        self.hosts = [
            Host(
                name=scenario.host_name(number),
                ip=host_ip(number),
                directory=self._parent / str(number),
                network=self.network,
                native=self.native,
                rng=random.Random(rng.randrange(2**64)),
                script=machines.get(number, HostScript(host=number)),
            )
            for number in range(scenario.hosts)
        ]
        self.publishers = [
            Publisher(
                script, self.hosts[script.host], self.native, random.Random(rng.randrange(2**64))
            )
            for script in scenario.publishers
        ]
        self.subscribers = [
            Subscriber(script, self.hosts[script.host], self.native, number)
            for number, script in enumerate(scenario.subscribers)
        ]
        self.relays = [
            RelayApp(
                script, self.hosts[script.host], self.native, number,
                random.Random(f"relay {seed} {number}"),
            )
            for number, script in enumerate(scenario.relays)
        ]
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._plans = 0
        self._plan_network()
        self._plan_applications()
        self._plan_hosts()
        self._plan_misfits()
        self.meter = Meter(self)
        self._memory = Memory(self)
        self._fan_in = FanIn(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for app in self.apps:
            app.close()
        for host in self.hosts:
            host.close()
        self.native.close()
        self.network.close()
        shutil.rmtree(self._parent, ignore_errors=True)

    @property
    def apps(self) -> list[Publisher | Subscriber | RelayApp]:
        return [*self.publishers, *self.relays, *self.subscribers]

    # ---- the script ------------------------------------------------------------------------------

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Schedule an action at a time. Actions with the same time run in the order in which they
        were scheduled."""
        self._plans += 1
        heapq.heappush(self._agenda, (time_ns, self._plans, action))

    def _plan_network(self) -> None:
        half_term = [p.stream_id for p in self.scenario.publishers if "fc=nak" in p.channel]
        for stream_id in half_term or [0]:
            self.network.watch(stream_id)
        for drop in self.scenario.drops:
            for number in drop.numbers:
                self.network.drop(drop.sender, drop.receiver, number)
        self.network.calm(self.scenario.calm_port, self.scenario.calm_delay_ns)
        self.lay_links()
        for rule in self.scenario.links:
            self.at(rule.from_ns, self.lay_links)
            if rule.until_ns is not None:
                self.at(rule.until_ns, self.lay_links)

    def lay_links(self) -> None:
        """Set each link to the properties that the scenario states for the present time."""
        self.network.set_link(self.scenario.link)
        for rule in self.scenario.links:
            if rule.from_ns <= self.now_ns and (
                rule.until_ns is None or self.now_ns < rule.until_ns
            ):
                self.network.set_link(rule.link, sender=rule.sender, receiver=rule.receiver)
                if rule.both:
                    self.network.set_link(rule.link, sender=rule.receiver, receiver=rule.sender)

    def _plan_applications(self) -> None:
        for subscriber in self.subscribers:
            script = subscriber.script
            self.at(script.start_ns, self._opening(subscriber))
            for from_ns, until_ns in script.pauses:
                self.at(from_ns, lambda s=subscriber: s.pause(True))  # type: ignore[misc]
                self.at(until_ns, lambda s=subscriber: s.pause(False))  # type: ignore[misc]
            for from_ns, interval_ns, batch in script.paces:
                self.at(from_ns, partial(subscriber.pace, interval_ns, batch))
            for from_ns, until_ns in script.withholds:
                self.at(from_ns, lambda s=subscriber: s.withhold(True))  # type: ignore[misc]
                self.at(until_ns, lambda s=subscriber: s.withhold(False))  # type: ignore[misc]
            if script.crash_ns is not None:
                self.at(script.crash_ns, subscriber.crash)
                if subscriber.host.script.hangup_ns > 0:
                    self.at(script.crash_ns + subscriber.host.script.hangup_ns, subscriber.close)
            if script.restart_ns is not None:
                self.at(script.restart_ns, self._opening(subscriber))
        for publisher in self.publishers:
            self.at(publisher.script.open_ns, self._starting(publisher))
            for from_ns, until_ns in publisher.script.pauses:
                self.at(from_ns, lambda p=publisher: p.pause(True))  # type: ignore[misc]
                self.at(until_ns, lambda p=publisher: p.pause(False))  # type: ignore[misc]
            if publisher.script.crash_ns is not None:
                self.at(publisher.script.crash_ns, publisher.crash)
                if publisher.script.hangup_ns > 0:
                    self.at(publisher.script.crash_ns + publisher.script.hangup_ns, publisher.close)
        for relay in self.relays:
            self.at(relay.script.start_ns, relay.open)
            for from_ns, until_ns in relay.script.pauses:
                self.at(from_ns, partial(relay.pause, True))
                self.at(until_ns, partial(relay.pause, False))
            for kill_ns in relay.script.kills:
                self.at(kill_ns, relay.kill)

    def _opening(self, subscriber: Subscriber) -> Callable[[], None]:
        def act() -> None:
            if subscriber.host.running and not subscriber.is_open:
                subscriber.open()

        return act

    def _starting(self, publisher: Publisher) -> Callable[[], None]:
        def act() -> None:
            if publisher.host.running and not publisher.is_open and not publisher.finished:
                publisher.open(self.now_ns)

        return act

    def _plan_hosts(self) -> None:
        for host in self.hosts:
            if host.script.crash_ns is not None:
                self.at(host.script.crash_ns, partial(self.crash, host))
            if host.script.restart_ns is not None:
                self.at(host.script.restart_ns, partial(self.restart, host))
            self._stuff(host, 0)
            if dict(host.script.driver).get("advertise") == 0:
                self.network.make_plain(host.index)
            for from_ns, until_ns in host.script.full:
                self.at(from_ns, partial(self._stuff, host, until_ns))

    def _plan_misfits(self) -> None:
        for number, script in enumerate(self.scenario.misfits):
            misfit = Misfit(script, self, random.Random(f"misfit {self.seed} {number}"))
            for at_ns in range(script.from_ns, script.until_ns, script.interval_ns):
                self.at(at_ns, misfit.act)

    def _stuff(self, host: Host, until_ns: int) -> None:
        self.network.stuff(
            host.index, until_ns=until_ns, short_ppm=host.script.short_send_ppm
        )

    def crash(self, host: Host) -> None:
        """Stop a host with all its applications, or only the daemon of the host."""
        if host.script.adopt:
            host.die()
            return
        host.close()
        for app in self.apps:
            if app.host is host:
                app.close()

    def restart(self, host: Host) -> None:
        """Restart a host and its applications. The new daemon of the host begins with an empty
        directory. If the host's script states ``adopt``, start only a new daemon, which adopts the
        old directory."""
        if host.script.adopt:
            host.adopt()
            for app in self.apps:
                if app.host is host:
                    app.resume()
        else:
            host.wipe()
            host.start()
        for subscriber in self.subscribers:
            if subscriber.host is host and subscriber.script.start_ns <= self.now_ns:
                self._opening(subscriber)()
        for publisher in self.publishers:
            if publisher.host is host and publisher.script.open_ns <= self.now_ns:
                self._starting(publisher)()
        for relay in self.relays:
            if relay.host is host and not host.script.adopt and \
                    relay.script.start_ns <= self.now_ns:
                relay.open()

    # ---- time ------------------------------------------------------------------------------------

    def run_until(self, time_ns: int) -> None:
        """Run all events and all actions of the scenario up to the time ``time_ns``, including
        those at this time."""
        controls = 0
        while True:
            next_ns = min(time_ns, self._agenda[0][0] if self._agenda else NEVER_NS)
            if self.relays:
                next_ns = self._await_relays(next_ns)
            stop, now_ns = self.native.run(self.now_ns, next_ns)
            if now_ns > self.now_ns:
                controls = 0
            self._set_now(now_ns)
            if stop is Stop.STUCK:
                raise LivelockError(f"the hosts never finish their work at {now_ns} ns")
            if stop is Stop.CONTROL:
                controls += 1
                if controls > _MAX_CONTROL:
                    raise LivelockError(f"conductors never finish their work at {now_ns} ns")
                self._control()
                continue
            for relay in self.relays:
                relay.restart_if_due()
                relay.act()
            while self._agenda and self._agenda[0][0] <= now_ns:
                heapq.heappop(self._agenda)[2]()
                self._hear()
            if now_ns >= time_ns:
                return

    def _await_relays(self, until_ns: int) -> int:
        """Let the next run end when a relay is woken; return the time at which it must end."""
        self.native.wait_for_nobody()
        for relay in self.relays:
            relay.wait()
        return min(until_ns, *(max(relay.due_ns, self.now_ns) for relay in self.relays))

    def _set_now(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for host in self.hosts:
            host.now_ns = now_ns

    def _control(self) -> None:
        for host in self.hosts:
            if self.native.wants_control(host.index, self.now_ns):
                host.control()
                self.native.hold_control(host.index, self.now_ns + host.script.conductor_ns)
        self._hear()

    def _hear(self) -> None:
        for subscriber in self.subscribers:
            subscriber.refresh()

    def run(self) -> Report:
        """Run until all messages are delivered, all applications have closed their clients, and the
        daemons have released all objects. The run ends at the scenario's time limit at the
        latest.
        """
        complaints: list[str] = []
        swollen: list[str] = []
        try:
            while not self._finished() and self.now_ns < self.scenario.limit_ns:
                self.run_until(self.now_ns + SLICE_NS)
                swollen = swollen or [*self._memory.check(), *self._fan_in.check()]
                if self._record:
                    self._sample()
            self.finished_ns = self.now_ns
            self._take_last_gaps()
            complaints = [*swollen, *verdict(self)]
            self._put_away(complaints)
        except LivelockError as error:
            complaints.append(str(error))
        return self._report([*self.native.violations(), *complaints])

    def _take_last_gaps(self) -> None:
        """Let each subscriber poll once more if it has not taken the report of the last gap. A gap
        at the end of a stream is reported at the poll after the one that reaches the end."""
        interval_ns = max((s.interval_ns for s in self.scenario.subscribers), default=0)
        end_ns = self.now_ns + 2 * interval_ns + SLICE_NS
        while self.now_ns < end_ns and awaits_gaps(self):
            self.run_until(self.now_ns + SLICE_NS)

    def _sample(self) -> None:
        self.samples.append(Sample.take(self))
        for host in self.hosts:
            host.sample()

    def _finished(self) -> bool:
        return not self._agenda and caught_up(self)

    def _put_away(self, complaints: list[str]) -> None:
        """Applications leave, publishers before their readers; daemons must not keep anything of
        theirs."""
        self._settled_link()
        complaints += self._lost_credits()
        complaints += self._end_streams()
        for app in self.apps:
            app.close()
        end_ns = self.now_ns + _TIDY_NS
        while not complaints and self._left_behind():
            if self.now_ns >= end_ns:
                complaints.append(f"left behind at the end: {', '.join(self._left_behind())}")
            self.run_until(self.now_ns + 10 * SLICE_NS)

    def _lost_credits(self) -> list[str]:
        """Let the credits return that are on their way, and return those that do not."""
        end_ns = self.now_ns + _RETURN_NS
        while not self.scenario.hostile and any(lost_credits(self)) and self.now_ns < end_ns:
            self.run_until(self.now_ns + 10 * SLICE_NS)
        return [] if self.scenario.hostile else list(lost_credits(self))

    def _end_streams(self) -> list[str]:
        """Every reader hears that its streams have ended: silence would be the longer way."""
        notified = [len(host.events) for host in self.hosts]
        for publisher in self.publishers:
            publisher.close()
        end_ns = self.now_ns + _END_NS
        while self.now_ns < end_ns and any(
            host.running and host.conductor.snapshot().images for host in self.hosts
        ):
            self.run_until(self.now_ns + 10 * SLICE_NS)
        abandoned = set().union(*(relay.abandoned for relay in self.relays))
        return [
            f"{host.name} at {at_ns / SECOND_NS:.3f} s: {fields}, though its stream was ended"
            for host, known in zip(self.hosts, notified, strict=True)
            for at_ns, name, fields in host.events[known:]
            if name == "image_unavailable" and '"reason": "timeout"' in fields
            and json.loads(fields)["session_id"] not in abandoned
        ]

    def _settled_link(self) -> None:
        self.network.set_link(Link(delay_ns=MS_NS))
        for host in self.hosts:
            self.network.stuff(host.index, until_ns=0, short_ppm=0)

    def _left_behind(self) -> list[str]:
        return sorted(
            str(path.relative_to(self._parent))
            for host in self.hosts
            if host.running
            for path in host.directory.rglob("*.logbuffer")
        )

    def _report(self, complaints: list[str]) -> Report:
        trace = hashlib.sha256(self.network.trace_hash().to_bytes(8, "little"))
        for host in self.hosts:
            for at_ns, name, fields in host.events:
                line = f"{host.name} {at_ns} {name} {fields}\n".replace(str(self._parent), "")
                trace.update(line.encode())
        for subscriber in self.subscribers:
            trace.update(subscriber.digest())
        published = sum(len(publisher.ledgers) for publisher in self.publishers)
        ledgers = range(published + sum(len(relay.ledgers) for relay in self.relays))
        readers = [
            reader
            for subscriber in self.subscribers
            for ledger in ledgers
            for reader in subscriber.readers(ledger)
        ]
        return Report(
            scenario=self.scenario.name,
            seed=self.seed,
            trace=trace.hexdigest(),
            ended_ns=self.now_ns,
            finished_ns=self.finished_ns,
            steps=self.native.steps(),
            messages=sum(reader.messages for reader in readers),
            missed=sum(reader.missed for reader in readers),
            gaps=sum(reader.gaps for reader in readers),
            violations=tuple(complaints),
            rules=tuple(self.native.rules()),
            network=self.network.statistics(),
            wire=self.network.wire(),
        )


def run(scenario: Scenario, seed: int) -> Report:
    """Run a scenario from its beginning to its end."""
    with World(scenario, seed) as world:
        return world.run()
