# SPDX-License-Identifier: Apache-2.0
"""Further faults for a generated scenario, and a stream that no fault may affect (the witness).

A separate random generator draws these faults. The rest of a seed's scenario is therefore the same
as without these faults.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from penstock.sim.generate.draw import CERTAIN_PPM, FAULTS_END_NS, Draw
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    LinkRule,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

#: Port of the witness, and the delay of its messages without other load.
WITNESS_PORT: Final = 41000
WITNESS_STREAM: Final = 1999
_WITNESS_MESSAGES: Final = 600
_WITNESS_INTERVAL_NS: Final = 10 * MS_NS
_WITNESS_DELAY_NS: Final = MS_NS


class _Faults(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        weight = (0.08, 0.16, 0.04)[seed % 3]
        super().__init__(random.Random(f"faults {seed}"), weight, set(scenario.classes))
        self.scenario = scenario
        self.machines = {machine.host: machine for machine in scenario.machines}

    def change(self, host: int, **fields: Any) -> None:
        script = self.machines.get(host, HostScript(host=host))
        self.machines[host] = attrs.evolve(script, **fields)

    # ---- sockets ---------------------------------------------------------------------------------

    def fill_sockets(self) -> None:
        rng = self.rng
        copies = any("control-mode" in p.channel for p in self.scenario.publishers)
        for host in range(self.scenario.hosts):
            if self.chance("full sockets"):
                spans = []
                for _ in range(rng.randrange(1, 4)):
                    start = rng.randrange(FAULTS_END_NS - 2 * SECOND_NS)
                    spans.append((start, start + rng.choice([1, 20, 300, 1500]) * MS_NS))
                self.change(host, full=tuple(sorted(spans)))
            # A sender that sends to each destination separately repeats to all a datagram that one
            # did not accept.
            if not (host == 0 and copies) and self.chance("short sends"):
                self.change(host, short_send_ppm=rng.choice([10_000, 300_000]))

    # ---- the network -----------------------------------------------------------------------------

    def split(self) -> None:
        """Disconnect some hosts from all other hosts and connect them again, several times."""
        rng = self.rng
        if self.scenario.hosts < 2 or not self.chance("splits and heals"):
            return
        rules = []
        start = rng.randrange(SECOND_NS)
        for _ in range(rng.randrange(2, 6)):
            apart = rng.sample(
                range(self.scenario.hosts), rng.randrange(1, self.scenario.hosts)
            )
            until = start + rng.choice([5, 50, 300, 1000]) * MS_NS
            both = rng.random() < 0.7
            rules += [
                LinkRule(
                    sender=one, receiver=other, both=both, from_ns=start, until_ns=until,
                    link=attrs.evolve(self.scenario.link, loss_ppm=CERTAIN_PPM),
                )
                for one in sorted(apart)
                for other in range(self.scenario.hosts)
                if other not in apart
            ]
            start = until + rng.choice([1, 30, 400]) * MS_NS
            if start > FAULTS_END_NS - SECOND_NS:
                break
        self.scenario = attrs.evolve(
            self.scenario, links=(*self.scenario.links, *rules)
        )

    def strangers(self) -> None:
        """Let the network send forged frames. A forged frame is a copy of a sender's frame with
        changed content, and comes from another address.
        """
        if not self.chance("strangers"):
            return
        share = self.rng.choice([1_000, 30_000, 300_000])
        self.scenario = attrs.evolve(
            self.scenario,
            link=attrs.evolve(self.scenario.link, stranger_ppm=share),
            links=tuple(
                attrs.evolve(rule, link=attrs.evolve(rule.link, stranger_ppm=share))
                for rule in self.scenario.links
            ),
        )

    # ---- streams ---------------------------------------------------------------------------------

    def unreliable(self) -> None:
        """Make some readers unreliable."""
        found = []
        for subscriber in self.scenario.subscribers:
            if subscriber.channel.startswith("aeron:udp") and self.chance("unreliable"):
                subscriber = attrs.evolve(
                    subscriber, channel=f"{subscriber.channel}|reliable=false", may_miss=True
                )
            found.append(subscriber)
        self.scenario = attrs.evolve(self.scenario, subscribers=tuple(found))

    def strategies(self) -> None:
        """Let a stream use a Python strategy that sometimes answers late."""
        found = []
        for publisher in self.scenario.publishers:
            plain = publisher.channel.startswith("aeron:udp") and "fc=" not in publisher.channel
            if plain and self.chance("fc=py"):
                publisher = attrs.evolve(
                    publisher, channel=f"{publisher.channel}|fc=py:penstock.sim.strategies:Slowest"
                )
                self.change(0, strategy_delay_ns=self.rng.choice([0, 5 * MS_NS, 30 * MS_NS]))
            found.append(publisher)
        self.scenario = attrs.evolve(self.scenario, publishers=tuple(found))

    def companions(self) -> None:
        """Add a second reader to some streams with an untethered reader. An untethered reader
        counts as behind only if another reader is ahead of this reader.
        """
        more = []
        for subscriber in self.scenario.subscribers:
            if "tether=false" in subscriber.channel and self.rng.random() < 0.7:
                self.classes.add("companion")
                base, _, rest = subscriber.channel.partition("?")
                options = [option for option in rest.split("|") if "tether" not in option]
                channel = f"{base}?{'|'.join(options)}" if options else base
                more.append(attrs.evolve(
                    subscriber, channel=channel, pauses=(), poll_limit=64, interval_ns=0,
                    may_join_late=True, may_miss=True, crash_ns=None, restart_ns=None,
                ))
        self.scenario = attrs.evolve(
            self.scenario, subscribers=(*self.scenario.subscribers, *more)
        )

    # ---- a witness -------------------------------------------------------------------------------

    def _is_steady(self, host: int) -> bool:
        script = self.machines.get(host, HostScript(host=host))
        return script.crash_ns is None and not script.full and script.short_send_ppm == 0

    def witness(self) -> None:
        """Add the *witness*: a stream whose datagrams every link delivers without faults. Other
        streams of the same hosts have faults. These faults must not affect the witness.
        """
        readers = [host for host in range(1, self.scenario.hosts) if self._is_steady(host)]
        if not readers or not self._is_steady(0):
            return
        host = self.rng.choice(readers)
        self.classes.add("witness")
        channel = f"aeron:udp?endpoint={host_ip(host)}:{WITNESS_PORT}"
        cycles_ns = sum(
            self.machines.get(h, HostScript(host=h)).cycle_ns for h in (0, host)
        )
        publisher = PublisherScript(
            host=0, channel=f"{channel}|term-length=64k", stream_id=WITNESS_STREAM,
            count=_WITNESS_MESSAGES, size_low=100, size_high=100, start_ns=SECOND_NS // 2,
            interval_ns=_WITNESS_INTERVAL_NS, blocked_ns=0,
        )
        reader = SubscriberScript(
            host=host, channel=channel, stream_id=WITNESS_STREAM,
            latency_ns=_WITNESS_DELAY_NS + 2 * cycles_ns + MS_NS,
        )
        self.scenario = attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, reader),
            calm_port=WITNESS_PORT,
            calm_delay_ns=_WITNESS_DELAY_NS,
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further faults that the seed chooses."""
    faults = _Faults(scenario, seed)
    faults.fill_sockets()
    faults.split()
    faults.unreliable()
    faults.strategies()
    faults.companions()
    faults.witness()
    faults.strangers()
    return attrs.evolve(
        faults.scenario,
        machines=tuple(faults.machines[host] for host in sorted(faults.machines)),
        classes=tuple(sorted(faults.classes)),
    )
