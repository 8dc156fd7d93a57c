# SPDX-License-Identifier: Apache-2.0
"""Add streams with fan-in or fan-out.

With fan-in (``ps-fanin``), several publishers fill one subscription that divides its polls and its
receiver window among them. With ``ps-fanout=independent``, a local reader pauses and the publisher
must not wait for this reader. With ``ps-fanout=min``, the publisher waits, and the reader misses
nothing. A separate random generator draws each stream. The rest of a seed's scenario is therefore
the same as without these streams.
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

IN_STREAM: Final = 1300
OUT_STREAM: Final = 1350
_IN_PORT: Final = 44900
_OUT_PORT: Final = 44950
#: Bytes that a publisher sends: more than four windows.
_BYTES: Final = 160 * 1024
#: Priorities of the bands with the weights 8, 4, 2 and 1.
_PRIORITIES: Final = (900, 600, 300, 0)


def _runs_through(scenario: Scenario, host: int) -> bool:
    return all(each.crash_ns is None for each in scenario.machines if each.host == host)


def _serves_more(scenario: Scenario, host: int) -> bool:
    """Whether further images fit into what a host is for: without a governor, whose delays the
    oracles of wake-ups do not know, and with room for the events of these images."""
    return _runs_through(scenario, host) and not any(
        {"governor", "event_capacity"} & set(dict(each.driver))
        for each in scenario.machines if each.host == host
    )


def _is_calm(scenario: Scenario, host: int) -> bool:
    """Whether the host lives, has room, and steps once a millisecond or more."""
    return all(
        each.crash_ns is None and each.budget_bytes is None and each.idle_ns == 0
        and each.conductor_ns == 0 and each.cycle_ns <= MS_NS
        for each in scenario.machines if each.host == host
    )


class _Further(Draw):
    """Adds streams to one scenario, with a random generator of their own."""

    def __init__(self, name: str, weight: float, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"{name} {seed}"), weight, set(scenario.classes))
        self.scenario = scenario

    def channel(self, medium: str, at: int, port: int) -> str:
        """Return the begin of a channel to the host ``at``; parameters follow."""
        return "aeron:ipc?" if medium == "ipc" else (
            f"aeron:udp?endpoint={host_ip(at)}:{port}|rcv-wnd=32k|")

    def with_streams(
        self, publishers: tuple[PublisherScript, ...], subscribers: tuple[SubscriberScript, ...]
    ) -> Scenario:
        return attrs.evolve(
            self.scenario, publishers=(*self.scenario.publishers, *publishers),
            subscribers=(*self.scenario.subscribers, *subscribers),
            classes=tuple(sorted(self.classes)),
        )


class _FanIn(_Further):
    """Adds several publishers and their subscription."""

    def add(self) -> Scenario:
        hosts = [n for n in range(1, self.scenario.hosts) if _serves_more(self.scenario, n)]
        if not _serves_more(self.scenario, 0) or not self.chance("fan-in"):
            return self.scenario
        rng = self.rng
        fanin = rng.choice(["equal", "priority"])
        medium = rng.choice(["ipc", "network", "network"]) if hosts else "ipc"
        self.classes |= {f"fan-in: {fanin}", f"fan-in: {medium}"}
        at = 0 if medium == "ipc" else rng.choice(hosts)
        channel = self.channel(medium, at, _IN_PORT)
        size = rng.choice([100, 600, 1344])
        publishers = tuple(
            PublisherScript(
                host=0, channel=f"{channel}term-length=64k|ps-priority={priority}",
                stream_id=IN_STREAM, count=_BYTES // (size + 32), size_low=size,
                size_high=size,
                start_ns=SECOND_NS, interval_ns=rng.choice([0, 0, 100_000]), exclusive=True,
            )
            for priority in rng.sample(_PRIORITIES, rng.choice([2, 3]))
        )
        reader = SubscriberScript(
            host=at, channel=f"{channel}ps-fanin={fanin}", stream_id=IN_STREAM,
            poll_limit=rng.choice([1, 3, 11, 64]), interval_ns=rng.choice([MS_NS, 2 * MS_NS]),
        )
        return self.with_streams(publishers, (reader,))


class _FanOut(_Further):
    """Adds a publisher with local readers."""

    def add(self) -> Scenario:
        hosts = [n for n in range(1, self.scenario.hosts) if _runs_through(self.scenario, n)]
        if not _is_calm(self.scenario, 0) or not self.chance("fan-out"):
            return self.scenario
        rng = self.rng
        fanout = rng.choice(["min", "independent"])
        medium = rng.choice(["ipc", "ipc", "spy"]) if hosts else "ipc"
        self.classes |= {f"fan-out: {fanout}", f"fan-out: {medium}"}
        at = 0 if medium == "ipc" else rng.choice(hosts)
        channel = self.channel(medium, at, _OUT_PORT)
        independent = fanout == "independent"
        size = rng.choice([600, 1344])
        publisher = PublisherScript(
            host=0, channel=f"{channel}term-length=64k|ps-fanout={fanout}", stream_id=OUT_STREAM,
            count=600, size_low=size, size_high=size, start_ns=SECOND_NS,
            interval_ns=rng.choice([400_000, MS_NS]), exclusive=rng.random() < 0.5,
            blocked_ns=20 * MS_NS if independent and medium == "ipc" else None,
        )
        reads_on = SubscriberScript(host=at, channel=channel.rstrip("?|"), stream_id=OUT_STREAM)
        start = SECOND_NS + rng.randrange(SECOND_NS // 10)
        # The simulator takes gaps of readers whose channel has ps-policy=drop; the stream has none.
        stated = f"{channel}ps-policy=drop_oldest"
        pauses = SubscriberScript(
            host=0, channel=stated if medium == "ipc" else f"aeron-spy:{stated}",
            stream_id=OUT_STREAM, may_miss=independent, poll_limit=rng.choice([10, 64]),
            pauses=((start, start + rng.choice([400, 1500]) * MS_NS),),
        )
        return self.with_streams((publisher,), (reads_on, pauses))


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further streams that the seed determines."""
    more = _FanIn("fan-in", 0.2, scenario, seed).add()
    return _FanOut("fan-out", 0.35, more, seed).add()
