# SPDX-License-Identifier: Apache-2.0
"""``ps-policy=drop_oldest`` in virtual time: readers skip, and publishers never wait for one."""

from __future__ import annotations

import attrs
import pytest

from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    MisfitScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World

POLICY = "ps-policy=drop_oldest|ps-depth=8k"
UDP = f"aeron:udp?endpoint={host_ip(1)}:40456"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24|fc=min"
#: The reader's host, its channel and the publisher's.
MEDIA = {
    "ipc": (0, "aeron:ipc?x", "aeron:ipc?x"),
    "unicast": (1, UDP, UDP),
    "multicast": (1, GROUP, GROUP),
    "spy": (0, f"aeron-spy:{UDP}", f"{UDP}|ssc=true"),
}
CONTROL = f"control={host_ip(0)}:40456|control-mode=dynamic"
#: Of a term.
SEVEN_EIGHTHS = 7 * 64 * 1024 // 8
STOPPED = (2 * SECOND_NS, 62 * SECOND_NS)


def channel_of(base: str, options: str) -> str:
    return f"{base}|{options}".replace("?x|", "?")


def stopped_reader(medium: str, *, loss_ppm: int = 0) -> Scenario:
    """A stream whose only reader stops for a minute."""
    host, read, published = MEDIA[medium]
    return Scenario(
        name=f"drop_oldest on {medium}", hosts=2, link=Link(delay_ns=MS_NS, loss_ppm=loss_ppm),
        publishers=(PublisherScript(
            host=0, channel=channel_of(published, f"term-length=64k|{POLICY}"), count=31_500,
            size_low=100, size_high=1200, start_ns=SECOND_NS, interval_ns=2 * MS_NS,
        ),),
        subscribers=(SubscriberScript(
            host=host, channel=channel_of(read, POLICY), may_miss=True, pauses=(STOPPED,),
        ),),
    )


@pytest.mark.parametrize("loss_ppm", [0, 10_000])
@pytest.mark.parametrize("medium", MEDIA)
def test_a_reader_that_stops_for_a_minute_stops_no_publisher(medium: str, loss_ppm: int) -> None:
    with World(stopped_reader(medium, loss_ppm=loss_ppm), 3) as world:
        after: list[int] = []

        def sample() -> None:
            (ledger,) = world.publishers[0].ledgers
            after.append(world.publishers[0].sent - world.subscribers[0].reader(ledger).next)

        world.at(STOPPED[1] - MS_NS, sample)
        world.at(STOPPED[1] + 40 * MS_NS, sample)
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (statistics,) = publisher.statistics()
        (ledger,) = publisher.ledgers
        assert statistics.blocked_ns == 0
        assert world.native.ledger_dropped(ledger) == 0
        (got,) = world.subscribers[0].readers(ledger)
        assert got.messages + got.missed == 31_500
        assert got.uncounted == 0
        assert after[0] > 29_000 * 0.99
        assert after[1] < 40                    # it continues with the newest 8 KiB


def test_drops_for_a_stopped_receiver_without_the_policy_are_stated() -> None:
    """A receiver as Aeron's: it does not know the policy, and its window shuts for a minute."""
    reader = SubscriberScript(
        host=1, channel=f"aeron:udp?endpoint={host_ip(1)}:40457|{CONTROL}|{POLICY}", may_miss=True,
        pauses=((20 * SECOND_NS, 30 * SECOND_NS),),
    )
    scenario = Scenario(
        name="drop_oldest and Aeron", hosts=3, link=Link(delay_ns=MS_NS),
        publishers=(PublisherScript(
            host=0, channel=f"aeron:udp?{CONTROL}|fc=min|term-length=64k|{POLICY}", count=10_000,
            size_low=100, size_high=1200, start_ns=SECOND_NS, interval_ns=2 * MS_NS,
        ),),
        subscribers=(reader,),
        misfits=(MisfitScript(
            host=2, kind="shut", from_ns=5 * SECOND_NS, until_ns=65 * SECOND_NS,
        ),),
    )
    with World(scenario, 3) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (statistics,) = publisher.statistics()
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        assert dropped > 2000
        assert statistics.blocked_ns == 0
        (got,) = world.subscribers[0].readers(ledger)
        assert (got.messages + got.missed, got.dropped) == (10_000, dropped)
        assert got.uncounted == 0


@pytest.mark.parametrize("loss_ppm", [0, 10_000])
@pytest.mark.parametrize("medium", ["unicast", "multicast"])
def test_towards_aeron_the_newest_is_dropped_beyond_seven_eighths(
    medium: str, loss_ppm: int
) -> None:
    """The only receiver does not know the policy and stops for a minute. Without trailers, penstock
    hosts are to each other as Aeron's."""
    scenario = stopped_reader(medium, loss_ppm=loss_ppm)
    (publisher,), (reader,) = scenario.publishers, scenario.subscribers
    scenario = attrs.evolve(
        scenario, publishers=(attrs.evolve(publisher, count=2000),),
        subscribers=(attrs.evolve(reader, may_miss=False),),
        machines=tuple(HostScript(host=host, driver=(("advertise", 0),)) for host in range(2)),
    )
    with World(scenario, 3) as world:
        held: list[int] = []

        def sample() -> None:
            (found,) = world.hosts[0].publications()
            status = world.hosts[0].driver.publication_status(found.id)
            held.append(status.producer_position - status.consumer_position)

        for at_ns in range(3 * SECOND_NS, STOPPED[1], SECOND_NS):
            world.at(at_ns, sample)
        assert world.run().violations == ()
        (publishing,) = world.publishers
        (statistics,) = publishing.statistics()
        (ledger,) = publishing.ledgers
        dropped = world.native.ledger_dropped(ledger)
        assert publishing.sent == 2000      # accepted
        assert statistics.blocked_ns == 0
        assert dropped > 29_000
        (got,) = world.subscribers[0].readers(ledger)
        assert (got.messages, got.missed, got.dropped) == (2000, 0, dropped)
        assert min(held) >= SEVEN_EIGHTHS
        assert max(held) <= SEVEN_EIGHTHS + 2 * 1280


@pytest.mark.parametrize("medium", MEDIA)
def test_a_stream_ends_while_its_reader_is_behind(medium: str) -> None:
    """The reader gets what the log still holds, and one count for the rest."""
    scenario = stopped_reader(medium)
    (publisher,), (reader,) = scenario.publishers, scenario.subscribers
    scenario = attrs.evolve(
        scenario, publishers=(attrs.evolve(publisher, count=2000),),
        subscribers=(attrs.evolve(reader, pauses=((2 * SECOND_NS, 7 * SECOND_NS),)),),
    )
    with World(scenario, 3) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        (got,) = world.subscribers[0].readers(ledger)
        assert got.messages + got.missed == 2000
        assert got.missed > 1000
        assert got.uncounted == 0


TERM_16M = "term-length=16m"
DEPTH = 8192
#: The slow reader takes BATCH messages each 5 ms; the publisher sends one each ms.
BATCH, EACH_NS, FRAME = 2, 5 * MS_NS, 1056


@pytest.mark.parametrize("stated", ["publication", "subscription"])
@pytest.mark.parametrize("medium", MEDIA)
def test_the_age_of_what_a_slow_reader_reads_is_bounded_by_its_depth(
    medium: str, stated: str
) -> None:
    """The log has all messages, and the reader is always slower than the publisher. It skips as
    soon as it is lagged, and does not read what is old."""
    host, read, published = MEDIA[medium]
    policy = "ps-policy=drop_oldest|ps-depth=8k"
    own = "ps-sub-policy=drop_oldest|ps-sub-depth=8k"
    scenario = Scenario(
        name=f"a slow reader on {medium}", hosts=2, link=Link(delay_ns=MS_NS),
        publishers=(PublisherScript(
            host=0, count=3000, size_low=1000, size_high=1000, start_ns=SECOND_NS,
            interval_ns=MS_NS,
            channel=channel_of(published, TERM_16M + (
                f"|{policy}" if stated == "publication" else ""
            )),
        ),),
        subscribers=(SubscriberScript(
            host=host, channel=channel_of(read, policy if stated == "publication" else own),
            may_miss=True, poll_limit=BATCH, interval_ns=EACH_NS,
        ),),
    )
    with World(scenario, 3) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        (got,) = world.subscribers[0].readers(ledger)
        assert got.messages + got.missed == 3000
        assert got.uncounted == 0
        assert got.missed > 1000
        # Depth and one batch, the poll for the gap, and the network. After the last message the
        # reader needs its own time for the newest depth.
        depth_ns = (DEPTH // FRAME + BATCH) * MS_NS
        reading_ns = -(-(DEPTH // FRAME) // BATCH) * EACH_NS
        assert got.latency_ns <= depth_ns + EACH_NS + reading_ns + 2 * MS_NS


@pytest.mark.parametrize("depth", ["1msg", "2k", "2k,5msg"])
@pytest.mark.parametrize("medium", MEDIA)
def test_a_reader_skips_what_is_old_when_the_stream_is_idle(medium: str, depth: str) -> None:
    """Without new data, the agents look again when data has become old. The reader takes one
    message each 20 ms; a burst of 20 messages would take it 400 ms."""
    host, read, published = MEDIA[medium]
    policy = f"ps-policy=drop_oldest|ps-depth={depth}"
    scenario = Scenario(
        name=f"an idle stream on {medium}", hosts=2, link=Link(delay_ns=MS_NS),
        publishers=(PublisherScript(
            host=0, count=60, size_low=600, size_high=600, start_ns=SECOND_NS,
            interval_ns=200_000, channel=channel_of(published, f"term-length=64k|{policy}"),
            pauses=(
                (SECOND_NS + 4 * MS_NS, 3 * SECOND_NS),
                (3 * SECOND_NS + 4 * MS_NS, 5 * SECOND_NS),
            ),
        ),),
        subscribers=(SubscriberScript(
            host=host, channel=channel_of(read, policy), may_miss=True, poll_limit=1,
            interval_ns=20 * MS_NS,
        ),),
    )
    with World(scenario, 3) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        (got,) = world.subscribers[0].readers(ledger)
        assert got.messages + got.missed == 60
        assert got.uncounted == 0
        # Data is old after 10 ms at most; then the depth, of four messages at most, is read.
        assert got.latency_ns <= 12 * MS_NS + (4 + 2) * 20 * MS_NS
