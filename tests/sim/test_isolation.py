# SPDX-License-Identifier: Apache-2.0
"""``ps-sub-policy`` in virtual time: a stopped reader costs the others nothing, and the oracle
accounts for each message: offered is delivered plus told to be lost."""

from __future__ import annotations

import itertools
from typing import Final

import attrs
import pytest

from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    Link,
    PublisherScript,
    Scenario,
    SubscriberScript,
    two_hosts,
)
from penstock.sim.world import World

_BIN_NS: Final = 100 * MS_NS
_STOPPED: Final = (2 * SECOND_NS, 62 * SECOND_NS)
_CHANNELS: Final = {
    "ipc": "aeron:ipc?term-length=64k",
    "unicast": "aeron:udp?endpoint=10.0.0.2:40456|term-length=64k|rcv-wnd=32k",
}


def five_readers(
    medium: str, policy: str, *, pauses: tuple[tuple[int, int], ...], count: int,
    interval_ns: int = 0, size: int = 1000,
) -> Scenario:
    """One stream to five readers of a host; ``pauses`` are those of the first."""
    base = two_hosts(loss_ppm=0, delay_ns=MS_NS)
    (publisher,) = base.publishers
    channel = _CHANNELS[medium]
    host = 0 if medium == "ipc" else 1
    independent = SubscriberScript(
        host=host, channel=f"{channel}|ps-sub-policy={policy}", may_miss=True, pauses=pauses
    )
    return attrs.evolve(
        base,
        link=Link(delay_ns=10 * MS_NS),
        publishers=(
            attrs.evolve(
                publisher, channel=channel, count=count, size_low=size, size_high=size,
                start_ns=SECOND_NS, interval_ns=interval_ns,
            ),
        ),
        subscribers=(
            independent,
            *(SubscriberScript(host=host, channel=channel, interval_ns=0) for _ in range(4)),
        ),
    )


def rates(scenario: Scenario, until_ns: int) -> list[int]:
    """Bytes that the slowest of the other readers took in each bin."""
    taken: list[int] = []
    with World(scenario, 1) as world:

        def sample() -> None:
            (ledger,) = world.publishers[0].ledgers
            taken.append(min(s.reader(ledger).bytes for s in world.subscribers[1:]))

        for time_ns in range(2 * SECOND_NS, until_ns, _BIN_NS):
            world.at(time_ns, sample)
        assert world.run().violations == ()
    return [after - before for before, after in itertools.pairwise(taken)]


@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_the_others_keep_their_rate_while_one_stops_for_a_minute(medium: str) -> None:
    interval_ns = MS_NS if medium == "ipc" else 0       # nothing else bounds a rate on IPC
    count = 66_000 if medium == "ipc" else 120_000
    plain = five_readers(
        medium, "independent", pauses=(), count=count, interval_ns=interval_ns
    )
    stopped = five_readers(
        medium, "independent", pauses=(_STOPPED,), count=count, interval_ns=interval_ns
    )
    until_ns = _STOPPED[1]
    undisturbed = rates(plain, until_ns)
    disturbed = rates(stopped, until_ns)
    assert min(disturbed) >= 0.95 * min(undisturbed) > 0


@pytest.mark.parametrize("policy", ["independent", "drop_oldest|ps-sub-depth=8k"])
@pytest.mark.parametrize("medium", ["ipc", "unicast"])
@pytest.mark.parametrize("stopped_ms", [20, 90, 300, 2000])
def test_each_message_is_delivered_or_reported_lost(
    medium: str, policy: str, stopped_ms: int
) -> None:
    begin = SECOND_NS + 400 * MS_NS
    scenario = five_readers(
        medium, policy, pauses=((begin, begin + stopped_ms * MS_NS),), count=4000,
        interval_ns=MS_NS, size=1500,
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        got = world.subscribers[0].reader(ledger)
        assert got.messages + got.missed == 4000
        assert got.uncounted == 0
        # Of 1536 bytes a term has 42, and a depth has 5.
        assert (got.missed > 0) == (stopped_ms > (41 if policy == "independent" else 5))


def test_under_an_independent_fanout_no_local_reader_holds_the_stream() -> None:
    scenario = five_readers("ipc", "block", pauses=((2 * SECOND_NS, 4 * SECOND_NS),), count=4000,
                            interval_ns=MS_NS, size=1500)
    (publisher,) = scenario.publishers
    scenario = attrs.evolve(
        scenario,
        publishers=(attrs.evolve(publisher, channel=f"{publisher.channel}|ps-fanout=independent"),),
        subscribers=tuple(
            attrs.evolve(reader, may_miss=True, channel=f"{_CHANNELS['ipc']}|ps-policy=drop_oldest")
            for reader in scenario.subscribers
        ),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (statistics,) = world.publishers[0].statistics()
        assert statistics.blocked_ns == 0
        (ledger,) = world.publishers[0].ledgers
        stopped, *others = (reader.reader(ledger) for reader in world.subscribers)
        assert stopped.missed > 0
        assert stopped.messages + stopped.missed == 4000
        assert all(other.messages == 4000 for other in others)


@pytest.mark.parametrize("stopped_ms", [300, 700])
@pytest.mark.parametrize("policy", ["independent", "drop_oldest|ps-sub-depth=8k"])
def test_a_new_daemon_counts_no_gap_wrong(policy: str, stopped_ms: int) -> None:
    """The daemon dies and is adopted while a reader on IPC is behind. The new daemon's count began
    elsewhere, so the first gap may have no number; a wrong one is a violation."""
    channel = _CHANNELS["ipc"]
    crash_ns = SECOND_NS + 200 * MS_NS
    scenario = Scenario(
        name="adoption of an isolated reader", hosts=1, link=Link(),
        machines=(HostScript(host=0, adopt=True, crash_ns=crash_ns,
                             restart_ns=crash_ns + 10 * MS_NS),),
        publishers=(PublisherScript(
            host=0, channel=channel, count=3000, size_low=100, size_high=100,
            start_ns=SECOND_NS, interval_ns=MS_NS // 4,
        ),),
        subscribers=(
            SubscriberScript(host=0, channel=channel),
            SubscriberScript(
                host=0, channel=f"{channel}|ps-sub-policy={policy}", may_miss=True,
                pauses=((SECOND_NS + 100 * MS_NS, SECOND_NS + stopped_ms * MS_NS),),
            ),
        ),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        got = world.subscribers[1].reader(ledger)
        assert got.missed > 0
        assert got.messages + got.missed == 3000
