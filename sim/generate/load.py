# SPDX-License-Identifier: Apache-2.0
"""Add two hosts with busy streams. The *governor* of the first host measures pressure, because
these streams are so busy.

The first of the two hosts, the loaded host, has a governor; other hosts have none. The loaded host
publishes busy streams of several priorities to the second host. It also publishes small messages at
intervals, and the governor delays these messages. The second host publishes a stream to the loaded
host, and the governor delays the status messages of this stream. A separate random generator draws
the hosts and their streams, so the rest of the scenario of a seed stays the same.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.core import Link
from penstock.sim.generate.draw import Draw
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

STREAM: Final = 1600
_PORT: Final = 44000
_PRIORITIES: Final = (900, 600, 300, 0, -100, -100, None)
#: Time for which the busy streams publish. Deferral begins after half a second of pressure.
_BUSY_NS: Final = 1600 * MS_NS
#: Bytes of a turn: a window.
_WINDOW: Final = 8192


class _Load(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"load {seed}"), 0.14, set(scenario.classes))
        self.scenario = scenario
        # Generators of their own keep the other values of a seed.
        self.more = random.Random(f"load of crowds {seed}")
        self.status = random.Random(f"load status {seed}")
        self.relays = random.Random(f"load of relays {seed}")
        self.loaded = scenario.hosts
        self.reader = scenario.hosts + 1
        self.publishers: list[PublisherScript] = []
        self.subscribers: list[SubscriberScript] = []

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the loaded host and its reader."""
        if not self.chance("load"):
            return self.scenario
        rng = self.rng
        slow = rng.random() < 0.5
        cycle_ns = rng.choice([4, 6, 10, 10]) * MS_NS if slow else rng.choice([300_000, 450_000])
        streams = rng.choice([4, 8, 12, 16]) if slow else rng.choice([12, 22, 28])
        if not slow and streams == 12 and self.more.random() < 0.75:
            streams = 22        # twelve streams make no pressure if the cycles are short
        # A slow machine serves each stream once in a cycle, another one serves one stream.
        turns = _BUSY_NS // cycle_ns // (1 if slow else streams)
        size, turn = (1344, _WINDOW) if slow else (8000, 16384)
        self.classes.add("load: slow machine" if slow else "load: crowd")
        options = [] if slow else ["mtu=8192"]
        for _ in range(streams):
            stated = self._priority()
            self._stream(
                count=max(turns * turn // size, 10), size=size, interval_ns=0,
                options=[stated, *options], window=_WINDOW if slow else 32768,
                relayed=not (slow or stated) and self._is_relayed(),
            )
        for _ in range(rng.choice([1, 2, 3])):
            self._stream(
                count=150, size=rng.choice([20, 100, 600]),
                interval_ns=rng.choice([MS_NS, 7 * MS_NS, 30 * MS_NS]),
                options=[self._priority(), *(("ps-never-throttle=true",) if rng.random() < 0.3
                                             else ())],
            )
        self._stream(
            count=rng.choice([300, 3000]), size=1000, interval_ns=rng.choice([0, 300_000]),
            options=[""], back=True,
        )
        self._trickle(cycle_ns)
        return self._scenario(cycle_ns)

    def _scenario(self, cycle_ns: int) -> Scenario:
        scenario = self.scenario
        loss_ppm = self.rng.choice([0, 0, 1_000, 20_000])
        near = Link(delay_ns=self.rng.choice([10_000, 100_000]), loss_ppm=loss_ppm)
        return attrs.evolve(
            scenario,
            hosts=scenario.hosts + 2,
            links=(
                *scenario.links,
                LinkRule(sender=self.loaded, receiver=self.reader, both=True, link=near),
            ),
            machines=(
                *scenario.machines,
                HostScript(host=self.loaded, cycle_ns=cycle_ns, driver=(("governor", 1),)),
            ),
            publishers=(*scenario.publishers, *self.publishers),
            subscribers=(*scenario.subscribers, *self.subscribers),
            classes=tuple(sorted(self.classes)),
        )

    def _priority(self) -> str:
        stated = self.rng.choice(_PRIORITIES)
        if stated is not None and stated < 0:
            self.classes.add("load: low priority")
        return "" if stated is None else f"ps-priority={stated}"

    def _is_relayed(self) -> bool:
        """Return whether a busy stream without a stated priority is one that a relay publishes."""
        relayed = self.relays.random() < 0.5
        if relayed:
            self.classes.add("load: relay")
        return relayed

    def _trickle(self, cycle_ns: int) -> None:
        """Add a slow stream to the loaded host. In a few milliseconds its reader releases between a
        quarter of the window and half of it: a status message is due, and the governor may delay
        it."""
        rng = self.status
        interval_ns = rng.choice([MS_NS // 2, MS_NS])
        in_a_cycle = max(1, cycle_ns // interval_ns)
        size = min(1000, rng.choice([3, 4]) * _WINDOW // 10 // in_a_cycle - 32)
        channel = f"aeron:udp?endpoint={host_ip(self.loaded)}:{_PORT}"
        stream = STREAM + len(self.publishers)
        self.publishers.append(
            PublisherScript(
                host=self.reader, channel=f"{channel}|term-length=64k", stream_id=stream,
                count=2 * _BUSY_NS // interval_ns, size_low=size, size_high=size,
                start_ns=SECOND_NS, interval_ns=interval_ns, exclusive=rng.random() < 0.5,
            )
        )
        self.subscribers.append(
            SubscriberScript(
                host=self.loaded, channel=f"{channel}|rcv-wnd={_WINDOW}", stream_id=stream
            )
        )

    def _stream(
        self, *, count: int, size: int, interval_ns: int, options: list[str], back: bool = False,
        window: int = _WINDOW, relayed: bool = False,
    ) -> None:
        """Add a stream from the loaded host, or back to the loaded host."""
        to = self.loaded if back else self.reader
        channel = f"aeron:udp?endpoint={host_ip(to)}:{_PORT}"
        stated = [f"term-length={self.rng.choice(['64k', '64k', '256k'])}", *filter(None, options)]
        stream = STREAM + len(self.publishers)
        self.publishers.append(
            PublisherScript(
                host=self.reader if back else self.loaded,
                channel="|".join([channel, *stated]), stream_id=stream, count=count,
                size_low=size, size_high=size, start_ns=SECOND_NS, interval_ns=interval_ns,
                exclusive=self.rng.random() < 0.5, relayed=relayed,
            )
        )
        self.subscribers.append(
            SubscriberScript(host=to, channel=f"{channel}|rcv-wnd={window}", stream_id=stream)
        )


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the load that the seed determines."""
    return _Load(scenario, seed).add()
