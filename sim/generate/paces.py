# SPDX-License-Identifier: Apache-2.0
"""Draw scenarios under ``fc=nak`` in which a slow reader changes its pace in the middle of the run,
and judge the runs.

One reader of a group is slow, and the other readers cope. The slow reader reads with one rate and
one cadence. Then it becomes at least twice as fast or as slow, and its cadence changes too.
"""

from __future__ import annotations

import math
import random
from typing import Final

import attrs

from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

_ENDPOINT: Final = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
_MTU: Final = 1408
_HEADER: Final = 32
_START_NS: Final = SECOND_NS // 2
_WINDOW_NS: Final = 50 * MS_NS
_LOOK_NS: Final = 20 * MS_NS
#: The rate of the slowest reader of a draw, in bytes a second: three times the sender's floor.
_SLOWEST: Final = 400_000
#: Windows in which the sender must follow a change. The sender's limit rises tenfold in 47 windows
#: (``ps_pressure_recovery_windows``); the receiver ends its measuring span after three cadences.
_FOLLOWS: Final = 47 + 3


@attrs.frozen(kw_only=True)
class Pace:
    """How a reader reads: ``batch`` messages in each cadence."""

    cadence_ns: int
    batch: int
    rate: int               # bytes of the log that the reader can get in a second


@attrs.frozen(kw_only=True)
class Change:
    """One drawn scenario: a slow reader reads at the pace ``old``, and then at the pace ``new``."""

    seed: int
    term_bytes: int
    rtt_ns: int
    group: int              # readers, of which one is slow
    offered: int            # bytes of the log that the publisher offers in a second
    frame: int              # bytes of log for each message
    old: Pace
    new: Pace

    @property
    def window_ns(self) -> int:
        """Return the length of the sender's longest window."""
        return max(_WINDOW_NS, 2 * self.rtt_ns, self.old.cadence_ns, self.new.cadence_ns)

    @property
    def changes_ns(self) -> int:
        """Return the time of the change."""
        settles_ns = max(5 * SECOND_NS, 20 * self.window_ns, 60 * self.rtt_ns)
        return _START_NS + settles_ns


def draw(seed: int) -> Change:
    """Return the scenario of a seed."""
    rng = random.Random(f"paces {seed}")
    while True:
        change = _draw(rng, seed)
        old, new = change.old.rate, change.new.rate
        if min(old, new) >= _SLOWEST and max(old, new) >= 2 * min(old, new):
            return change


def _draw(rng: random.Random, seed: int) -> Change:
    def between(low: float, high: float) -> float:
        return low * math.exp(rng.random() * math.log(high / low))

    term = 1 << rng.randint(16, 22)
    rtt_ns = rng.choice((0, int(between(MS_NS, 100 * MS_NS))))
    frame = rng.choice((256, 1056, _MTU))
    group = rng.randint(2, 6)
    offered = int(between(2e6, 20e6))
    slow = offered * between(0.05, 0.4)
    fast = min(slow * between(2.1, 10), offered * 0.95)
    paces = [
        _pace(rate, int(between(MS_NS, 500 * MS_NS)), frame, term, rtt_ns)
        for rate in (slow, fast)
    ]
    if rng.random() < 0.5:
        paces.reverse()
    return Change(
        seed=seed, term_bytes=term, rtt_ns=rtt_ns, group=group, offered=offered, frame=frame,
        old=paces[0], new=paces[1],
    )


def _pace(rate: float, cadence_ns: int, frame: int, term: int, rtt_ns: int) -> Pace:
    batch = max(1, round(rate * cadence_ns / SECOND_NS / frame))
    cadence_ns = int(batch * frame * SECOND_NS / rate)
    # In each cadence and in each round trip, the queue keeps at least half a term.
    kept = (term // 2 - _MTU) * SECOND_NS // max(cadence_ns, rtt_ns)
    return Pace(
        cadence_ns=cadence_ns, batch=min(batch, term // frame), rate=min(int(rate), kept)
    )


def scenario(change: Change) -> Scenario:
    """Return the scenario of a change."""
    size = change.frame - _HEADER
    channel = f"{_ENDPOINT}|term-length={change.term_bytes}|mtu={_MTU}|fc=nak"
    copes = tuple(
        SubscriberScript(host=host, channel=_ENDPOINT, may_join_late=True, may_miss=True)
        for host in range(2, 1 + change.group)
    )
    return Scenario(
        name=f"pace-{change.seed}",
        hosts=1 + change.group,
        link=Link(delay_ns=change.rtt_ns // 2),
        machines=tuple(
            HostScript(host=host, rcvbuf_bytes=32 << 20) for host in range(1 + change.group)
        ),
        publishers=(
            PublisherScript(
                host=0, channel=channel, count=1 << 30, size_low=size, size_high=size,
                start_ns=_START_NS, interval_ns=change.frame * SECOND_NS // change.offered,
            ),
        ),
        subscribers=(
            SubscriberScript(
                host=1, channel=_ENDPOINT, may_join_late=True, may_miss=True,
                interval_ns=change.old.cadence_ns, batch=change.old.batch,
                paces=((change.changes_ns, change.new.cadence_ns, change.new.batch),),
            ),
            *copes,
        ),
        hostile=True,       # only run() judges the run: the oracles would cost more than the run
    )


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of one run. A share is a part of the rate that the slow reader can get."""

    change: Change
    before: float           # share before the change
    after: float            # share after the sender had time to follow the change
    missed: int             # messages that the readers missed, without those of the first overruns
    error: str = ""

    def cause(self) -> str:
        """Return the reason why the run failed; return an empty text if the run passed."""
        if self.error:
            return self.error
        if self.missed > 0:
            return f"missed {self.missed} messages"
        if min(self.before, self.after) < 0.9:
            return f"read {self.before:.1%} before the change, {self.after:.1%} after it"
        return ""


class _Readers:
    """Counts the messages that readers missed although they were sent after a warm-up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = world.publishers[0].ledgers[0]
        self.late = 0

    def run(self, from_ns: int, until_ns: int) -> int:
        """Run from the end of a warm-up on; return the number of messages that the slow reader
        read in this time."""
        self._world.run_until(from_ns)
        sent = self._world.native.ledger_messages(self._ledger)
        readers = [subscriber.reader(self._ledger) for subscriber in self._world.subscribers]
        first, missed = readers[0].messages, [reader.missed for reader in readers]
        parts = 1 + (until_ns - from_ns) // _LOOK_NS
        for part in range(1, 1 + parts):
            self._world.run_until(from_ns + (until_ns - from_ns) * part // parts)
            readers = [subscriber.reader(self._ledger) for subscriber in self._world.subscribers]
            # A reader learns of a gap when it has read all that is before the gap.
            self.late += sum(
                max(0, min(reader.missed - before, reader.next - sent))
                for reader, before in zip(readers, missed, strict=True)
            )
            missed = [reader.missed for reader in readers]
        return readers[0].messages - first


def run(change: Change) -> Outcome:
    """Run a change once. A reader may miss messages during the warm-up. A reader that becomes
    slower may also miss messages in its first overrun after the change.
    """
    old, new, at_ns = change.old, change.new, change.changes_ns
    slower = new.rate < old.rate
    with World(scenario(change), change.seed) as world:
        world.run_until(_START_NS)
        readers = _Readers(world)

        def share(pace: Pace, from_ns: int, until_ns: int) -> float:
            read = readers.run(from_ns, until_ns)
            return read * change.frame * SECOND_NS / (until_ns - from_ns) / pace.rate

        settled_ns = (_START_NS + at_ns) // 2
        readers.run(_START_NS + _warm_ns(change, old), settled_ns)
        before = share(old, settled_ns, at_ns)
        judged_ns = at_ns + (_overrun_ns(change) if slower else 0)
        followed_ns = judged_ns + _FOLLOWS * change.window_ns
        readers.run(judged_ns, followed_ns)
        after = share(new, followed_ns, followed_ns + max(3 * SECOND_NS, 30 * new.cadence_ns))
        violations = world.native.violations()
        return Outcome(
            change=change, before=before, after=after, missed=readers.late,
            error=violations[0] if violations else "",
        )


def _warm_ns(change: Change, pace: Pace) -> int:
    return max(SECOND_NS, 5 * pace.cadence_ns, 10 * change.rtt_ns)


def _overrun_ns(change: Change) -> int:
    """Return the time from the change to the end of its first overrun. An overrun reader joins
    again when it has read the rest of its image, at most a term.
    """
    rest_ns = change.term_bytes * SECOND_NS // change.new.rate
    return max(_warm_ns(change, change.old), _warm_ns(change, change.new)) + rest_ns


def describe(change: Change) -> str:
    """Return the conditions of a change as one line of text."""
    def text(pace: Pace) -> str:
        return (
            f"{pace.batch} x {change.frame} B each {pace.cadence_ns / MS_NS:.1f} ms "
            f"({pace.rate / 1e6:.3f} MB/s)"
        )

    return (
        f"seed {change.seed}: {text(change.old)}, then {text(change.new)}, of "
        f"{change.offered / 1e6:.1f} MB/s, T {change.term_bytes >> 10} KiB, "
        f"RTT {change.rtt_ns / MS_NS:.1f} ms, 1 of {change.group} slow"
    )
