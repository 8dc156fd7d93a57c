# SPDX-License-Identifier: Apache-2.0
"""Lines of the source lists 003 and 001 that speak of the network, each over it, in virtual time.
``docs/tests-by-rule.md`` says which test is for which line."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from penstock.core.driver_types import ImageStatus, PublicationStatus, ReceiverView
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
MESSAGE = 1024                          # bytes of the log that one takes
LOSSY = Link(delay_ns=5 * MS_NS, loss_ppm=10_000, reorder_ppm=20_000, reorder_ns=2 * MS_NS)


def publisher(channel: str, *, rate: int = 0, stream_id: int = 1001) -> PublisherScript:
    """Messages that take 1 KiB of the log each; rate: so many a second, 0: as fast as it goes."""
    return PublisherScript(
        host=0, channel=channel, stream_id=stream_id, count=10**9, size_low=992, size_high=992,
        start_ns=SECOND_NS, interval_ns=SECOND_NS // rate if rate else 0,
    )


def reader(
    channel: str = UNICAST, *, host: int = 1, pause: tuple[float, float] | None = None,
    stream_id: int = 1001, may_miss: bool = False,
) -> SubscriberScript:
    pauses = () if pause is None else (
        (int(pause[0] * SECOND_NS), int(pause[1] * SECOND_NS)),
    )
    return SubscriberScript(
        host=host, channel=channel, stream_id=stream_id, pauses=pauses, may_miss=may_miss,
        may_join_late=may_miss,
    )


def scenario(
    publishers: tuple[PublisherScript, ...], readers: tuple[SubscriberScript, ...], *,
    hosts: int = 2, link: Link = LOSSY,
) -> Scenario:
    return Scenario(
        name="sources", hosts=hosts, link=link, publishers=publishers, subscribers=readers,
        limit_ns=60 * SECOND_NS,
    )


def sending(world: World, nth: int = 0) -> PublicationStatus:
    host = world.hosts[0]
    return host.driver.publication_status(host.publications()[nth].id)


def heard(world: World) -> tuple[ReceiverView, ...]:
    """What the sender heard of its receivers last."""
    host = world.hosts[0]
    (publication,) = host.publications()
    return host.driver.publication_receivers(publication.id)


def receiving(world: World, host: int = 1) -> ImageStatus:
    (image,) = world.hosts[host].conductor.snapshot().images
    return world.hosts[host].driver.image_status(image.id)


def moments(world: World, from_s: float, to_s: float, step_ms: int = 5) -> Iterator[float]:
    """Runs from one moment to another in steps."""
    at_ns = int(from_s * SECOND_NS)
    while at_ns <= int(to_s * SECOND_NS):
        world.run_until(at_ns)
        yield at_ns / SECOND_NS
        at_ns += step_ms * MS_NS


# ---- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "window", "own_kib", "theirs_kib"), [
    ("|term-length=256k", "", 128, 128),
    ("|term-length=64k", "", 32, 32),               # never above half a term
    ("|term-length=1m|pub-wnd=64k", "|rcv-wnd=256k", 64, 256),
    ("|term-length=1m", "", 512, 128),              # the defaults: half a term, 128 KiB
])
def test_a_publisher_is_ahead_of_its_reader_by_both_windows_and_no_further(
    options: str, window: str, own_kib: int, theirs_kib: int
) -> None:
    """While the reader stands still; with losses and reordering on the way (003: 1 to 5)."""
    limit = (own_kib + theirs_kib) * 1024
    receiver_window = theirs_kib * 1024
    what = scenario((publisher(UNICAST + options),), (reader(UNICAST + window, pause=(1.5, 3.0)),))
    furthest = sent = 0
    with World(what, seed=3) as world:
        for now_s in moments(world, 1.1, 3.5):
            status, image = sending(world), receiving(world)
            distance = status.producer_position - image.slowest_subscriber
            assert distance <= limit + MESSAGE, now_s           # one begins inside the window
            assert status.consumer_position - image.slowest_subscriber <= receiver_window, now_s
            assert heard(world)[0].window <= receiver_window
            if now_s < 3.0:
                furthest = max(furthest, distance)
                sent = status.producer_position
        assert furthest >= limit - MESSAGE
        assert sending(world).producer_position > sent          # it was temporary


@pytest.mark.parametrize(("options", "room"), [("", 64), ("|pub-wnd=16k", 16)])
def test_on_ipc_a_publisher_is_a_window_ahead_of_the_slowest_reader(
    options: str, room: int
) -> None:
    """003: 13.  A term unless less is configured, and no status message at all."""
    channel = f"aeron:ipc?term-length=64k{options}"
    what = scenario(
        (publisher(channel, rate=500),),
        (reader("aeron:ipc", host=0), reader("aeron:ipc", host=0, pause=(1.5, 3.0))),
    )
    with World(what, seed=1) as world:
        world.run_until(2 * SECOND_NS)
        status = sending(world)
        ahead = status.producer_position - status.consumer_position
        assert room * 1024 - MESSAGE <= ahead <= room * 1024 + MESSAGE
        world.run_until(int(2.9 * SECOND_NS))
        assert sending(world).producer_position == status.producer_position
        assert world.network.wire().status_messages == 0


# ---- streams apart -------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["stopped", "none reads", "flood"])
def test_a_stream_in_trouble_does_not_change_another(trouble: str) -> None:
    """Both on one channel, one socket, one path without a bound (003: 6)."""
    calm = publisher(f"{UNICAST}|term-length=256k", rate=500)
    other = publisher(f"{UNICAST}|term-length=256k", stream_id=2)
    readers = {
        "stopped": (reader(stream_id=2, pause=(1.5, 50.0)),),
        "none reads": (),
        "flood": (reader(stream_id=2),),
    }[trouble]
    alone = scenario((calm,), (reader(),), link=Link(delay_ns=5 * MS_NS))
    both = scenario((calm, other), (reader(), *readers), link=Link(delay_ns=5 * MS_NS))

    def progress(what: Scenario) -> list[tuple[int, int]]:
        """Bytes sent and bytes read, moment by moment."""
        with World(what, seed=1) as world:
            calm_publisher, calm_reader = world.publishers[0], world.subscribers[0]
            return [
                (calm_publisher.sent_bytes, calm_reader.reader(calm_publisher.ledgers[0]).bytes)
                for _ in moments(world, 1.2, 4.0, 50)
            ]

    for quiet, troubled in zip(progress(alone), progress(both), strict=True):
        for one, other_one in zip(quiet, troubled, strict=True):
            assert abs(one - other_one) <= 2 * 992      # the message of that very moment


# ---- max -----------------------------------------------------------------------------------------


def test_under_max_a_slow_receiver_loses_its_image_and_rejoins_at_the_latest_point() -> None:
    """003: 8.  The fast one is not held; the slow one learns what it missed."""
    channel = f"{GROUP}|term-length=64k"
    what = scenario(
        (publisher(channel, rate=1000),),
        (reader(GROUP), reader(GROUP, host=2, pause=(2.0, 20.0), may_miss=True)),
        hosts=3, link=Link(delay_ns=MS_NS),
    )
    with World(what, seed=1) as world:
        fast, slow = world.subscribers
        world.run_until(2 * SECOND_NS)
        before = world.publishers[0].sent_bytes
        world.run_until(20 * SECOND_NS)
        assert world.publishers[0].sent_bytes - before >= 17_900 * 992
        world.run_until(35 * SECOND_NS)
        assert fast.unavailable == []
        assert len(slow.unavailable) == 1
        assert len(slow.available) == 2
        rejoined_ns = slow.available[1][0]
        session = world.publishers[0].session_id
        there = slow.joined[session]
        published = (rejoined_ns - SECOND_NS) // MS_NS * MESSAGE
        assert abs(there - published) <= 100 * MESSAGE
        missed = sum(row.missed for row in slow.readers(world.publishers[0].ledgers[0]))
        assert missed > 10_000
        assert sum(row.gaps for row in slow.readers(world.publishers[0].ledgers[0])) >= 1


# ---- status messages -----------------------------------------------------------------------------


def test_the_slowest_of_the_readers_of_a_host_is_what_the_sender_hears() -> None:
    """003: 9.  One status message for all readers: the minimum of what they took."""
    what = scenario(
        (publisher(f"{UNICAST}|term-length=256k", rate=2000),),
        (reader(), reader(pause=(1.5, 3.0))), link=Link(delay_ns=5 * MS_NS),
    )
    with World(what, seed=1) as world:
        world.run_until(int(1.5 * SECOND_NS))
        start = receiving(world).slowest_subscriber
        world.run_until(int(2.9 * SECOND_NS))
        (view,) = heard(world)
        image = receiving(world)
        assert image.slowest_subscriber <= start + MESSAGE
        assert view.position == image.slowest_subscriber
        assert image.position == image.slowest_subscriber + view.window     # full, and no more
        assert world.now_ns - view.heard_ns <= 200 * MS_NS + 10 * MS_NS     # by time
        world.run_until(4 * SECOND_NS)
        assert heard(world)[0].position > start + 128 * 1024


# ---- NAK-strength --------------------------------------------------------------------------------


def test_signals_travel_only_while_a_queue_is_too_full_and_the_limit_comes_back() -> None:
    """001: 1, 2, 3, 5.  No limit at first; it binds while one reader is slow, then goes again."""
    channel = f"{GROUP}|term-length=256k"
    slow = attrs.evolve(
        reader(GROUP, host=2, may_miss=True), poll_limit=20, interval_ns=50 * MS_NS
    )
    quick = reader(GROUP, may_miss=True)
    what = scenario(
        (publisher(f"{channel}|fc=nak", rate=1000),), (quick, slow), hosts=3,
        link=Link(delay_ns=MS_NS),
    )
    with World(what, seed=1) as world:
        world.run_until(int(1.05 * SECOND_NS))
        assert sending(world).producer_position > 40 * MESSAGE
        assert sending(world).rate_bytes_per_s == 0
        assert sending(world).pressure_signals == 0
        limits = [sending(world).rate_bytes_per_s for _ in moments(world, 3.0, 8.0, 50)]
        assert all(128 * 1024 <= limit <= 1100 * 1024 for limit in limits), limits
        assert sending(world).pressure_signals > 0
        world.subscribers[1].crash()                # who complained is gone: nobody counts it
        counted = sending(world).pressure_signals
        world.run_until(int(11.5 * SECOND_NS))
        assert sending(world).rate_bytes_per_s == 0
        assert sending(world).pressure_signals <= counted + 1
