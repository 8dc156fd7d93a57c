# SPDX-License-Identifier: Apache-2.0
"""Add a stream with ``ps-policy=drop_oldest``.

Some readers pause or are slow; they skip the oldest messages, and gaps must report each skipped
message. The depth is a number of messages, of bytes, or both. With some seeds, a receiver that does
not know the policy joins the group and closes its window. A separate random generator draws this
stream. The rest of a seed's scenario is therefore the same as without this stream.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from penstock.sim.generate.draw import Draw, refuses_datagrams
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    MisfitScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)

STREAM: Final = 1400
_PORT: Final = 44800
_POLICY: Final = "ps-policy=drop_oldest"
_HEADER: Final = 32


class _Oldest(Draw):
    """Adds to one scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(random.Random(f"drop_oldest {seed}"), 0.2, set(scenario.classes))
        self.scenario = scenario
        self.depth = ""

    def _is_steady(self, host: int) -> bool:
        """Whether the host keeps its streams: only its daemon dies, or nothing does."""
        return all(
            machine.crash_ns is None or machine.adopt
            for machine in self.scenario.machines if machine.host == host
        )

    def _depth(self) -> str:
        """Draw a depth: in messages, in bytes, both, or none."""
        messages = self.rng.choice(["1msg", "5msg", "20msg", "300msg"])
        depth = self.rng.choice([messages, messages, messages, f"8k,{messages}", "8k", "2k", ""])
        self.classes.add("drop_oldest: messages" if "msg" in depth else "drop_oldest: bytes")
        self.depth = depth
        return f"|ps-depth={depth}" if depth else ""

    def add(self) -> Scenario:
        """Return the scenario; if the seed decides so, add the stream."""
        rng = self.rng
        hosts = [host for host in range(1, self.scenario.hosts) if self._is_steady(host)]
        if not self._is_steady(0) or not self.chance("drop_oldest"):
            return self.scenario
        media = ["ipc", "unicast", "spy", "mdc", "mdc", "multicast", "multicast"]
        medium = rng.choice(media) if hosts else "ipc"
        if medium == "mdc" and refuses_datagrams(self.scenario, 0):
            medium = "unicast"
        self.classes.add(f"drop_oldest: {medium}")
        at = 0 if medium == "ipc" else rng.choice(hosts)
        out, inward = self._channels(medium, at)
        size = rng.choice([20, 600, 1344, 3000])
        publisher = PublisherScript(
            host=0, channel=f"{out}term-length=64k|{_POLICY}{self._depth()}", stream_id=STREAM,
            count=800, size_low=size, size_high=size, start_ns=SECOND_NS,
            interval_ns=rng.choice([200_000, MS_NS, 2 * MS_NS]),
            exclusive=rng.random() < 0.5,
        )
        readers = [self._reader(at, f"{inward}{_POLICY}")]
        if medium == "spy":
            readers.append(self._reader(0, f"aeron-spy:{inward}{_POLICY}"))
        elif rng.random() < 0.5:
            other = rng.choice(hosts) if medium == "multicast" else at
            readers.append(self._reader(other, f"{inward}{_POLICY}"))
        if medium == "ipc":
            readers = [self._fresh(reader, publisher) for reader in readers]
        misfits = self._closed(at) if medium in ("mdc", "multicast") else ()
        return attrs.evolve(
            self.scenario,
            publishers=(*self.scenario.publishers, publisher),
            subscribers=(*self.scenario.subscribers, *readers),
            misfits=(*self.scenario.misfits, *misfits),
            classes=tuple(sorted(self.classes)),
        )

    def _channels(self, medium: str, at: int) -> tuple[str, str]:
        """Return the publisher's channel and the readers', to which options can be appended."""
        if medium == "ipc":
            return "aeron:ipc?", "aeron:ipc?"
        endpoint = f"endpoint={host_ip(at)}:{_PORT}"
        if medium == "multicast":
            group = f"aeron:udp?endpoint=239.20.0.141:{_PORT}|interface=10.0.0.0/24|"
            return f"{group}fc={self.rng.choice(['min', 'max', 'nak'])}|", f"{group}rcv-wnd=32k|"
        if medium == "mdc":
            control = f"control={host_ip(0)}:{_PORT}|control-mode=dynamic|"
            return f"aeron:udp?{control}fc=min|", f"aeron:udp?{endpoint}|{control}rcv-wnd=32k|"
        return f"aeron:udp?{endpoint}|", f"aeron:udp?{endpoint}|rcv-wnd=32k|"

    def _reader(self, host: int, channel: str) -> SubscriberScript:
        rng = self.rng
        start = SECOND_NS + rng.randrange(SECOND_NS // 2)
        slow = rng.random() < 0.4
        return SubscriberScript(
            host=host, channel=channel, stream_id=STREAM, may_miss=True, may_join_late=True,
            poll_limit=rng.choice([1, 2, 10]) if slow else 64,
            interval_ns=rng.choice([MS_NS, 5 * MS_NS]) if slow else 0,
            pauses=((start, start + rng.choice([20, 100, 700, 3000]) * MS_NS),)
            if rng.random() < 0.7 else (),
        )

    def _is_calm(self) -> bool:
        """Whether the publisher's host lives, has room, and steps once a millisecond or more."""
        return all(
            machine.crash_ns is None and machine.budget_bytes is None and machine.idle_ns == 0
            and machine.conductor_ns == 0 and machine.cycle_ns <= MS_NS
            for machine in self.scenario.machines if machine.host == 0
        )

    def _fresh(self, reader: SubscriberScript, publisher: PublisherScript) -> SubscriberScript:
        """Return the reader on IPC with the highest age at which it reads a message: the time of
        the depth, of 10 ms and of a batch.  At the end the depth waits for the reader. If the
        reader pauses after the end, or the host is slow, return the reader as it is."""
        end_ns = publisher.start_ns + publisher.count * publisher.interval_ns
        paused = any(until_ns > end_ns for _, until_ns in reader.pauses)
        if paused or not self.depth or not self._is_calm():
            return reader
        depth = min(
            int(part.removesuffix("msg")) if "msg" in part
            else int(part.removesuffix("k")) * 1024 // (publisher.size_low + _HEADER) + 1
            for part in self.depth.split(",")
        )
        self.classes.add("drop_oldest: age")
        turns = 2 + -(-depth // reader.poll_limit)
        age_ns = (depth + reader.poll_limit) * publisher.interval_ns + turns * reader.interval_ns
        return attrs.evolve(reader, latency_ns=age_ns + 15 * MS_NS)

    def _closed(self, host: int) -> tuple[MisfitScript, ...]:
        """Draw a receiver that does not know the policy and closes its window, or none."""
        if self.rng.random() < 0.3:
            return ()
        self.classes.add("drop_oldest: closed window")
        start = SECOND_NS + self.rng.randrange(SECOND_NS // 10)
        return (MisfitScript(
            host=host, stream_id=STREAM, kind="shut", from_ns=start,
            until_ns=start + self.rng.choice([300, 1500]) * MS_NS, interval_ns=20 * MS_NS,
        ),)


def add(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with the further stream that the seed determines."""
    return _Oldest(scenario, seed).add()
