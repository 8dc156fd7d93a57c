# SPDX-License-Identifier: Apache-2.0
"""Each policy on each medium, with readers that pause: what was offered is what arrived and what
both ends count as dropped, to the message."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World

COUNT = 1500
PAUSES = ((1 * SECOND_NS, 2 * SECOND_NS), (3 * SECOND_NS, 3 * SECOND_NS + 400 * MS_NS))
POLICIES = {
    "none": "",
    "block": "ps-policy=block",
    "drop_newest": "ps-policy=drop_newest",
    "drop_oldest": "ps-policy=drop_oldest",
    "error": "ps-policy=error",
    "rate_limit": "ps-policy=rate_limit|ps-rate=2000msg",
}
UDP = f"aeron:udp?endpoint={host_ip(1)}:40456"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
CONTROL = f"control={host_ip(0)}:40456|control-mode=dynamic"


def reads(host: int, channel: str) -> SubscriberScript:
    return SubscriberScript(host=host, channel=channel, pauses=PAUSES, poll_limit=20)


def ipc() -> tuple[str, list[SubscriberScript]]:
    return "aeron:ipc", [reads(0, "aeron:ipc"), attrs.evolve(reads(0, "aeron:ipc"), pauses=())]


def unicast() -> tuple[str, list[SubscriberScript]]:
    return UDP, [reads(1, UDP), attrs.evolve(reads(1, UDP), pauses=())]


def multicast_min() -> tuple[str, list[SubscriberScript]]:
    """One of two pauses: the sender waits for it."""
    return f"{GROUP}|fc=min,g:/2", [reads(1, GROUP), attrs.evolve(reads(2, GROUP), pauses=())]


def multicast_max() -> tuple[str, list[SubscriberScript]]:
    """Both pause: the sender waits for the faster one only, so losses may cost the other its
    image."""
    return f"{GROUP}|fc=max", [reads(1, GROUP), reads(2, GROUP)]


def mdc() -> tuple[str, list[SubscriberScript]]:
    channel = f"aeron:udp?endpoint={host_ip(1)}:40457|{CONTROL}"
    return f"aeron:udp?{CONTROL}|fc=min", [reads(1, channel)]


def spy() -> tuple[str, list[SubscriberScript]]:
    """The spy pauses and holds the publisher; the receiver reads on."""
    return UDP, [reads(0, f"aeron-spy:{UDP}"), attrs.evolve(reads(1, UDP), pauses=())]


def aeron() -> tuple[str, list[SubscriberScript]]:
    """A pausing receiver without the policy, for the sender states none (``AERON``). Real receivers
    of Aeron are in tests/interop/test_drops.py."""
    return UDP, [reads(1, UDP)]


def aeron_min() -> tuple[str, list[SubscriberScript]]:
    """A group of such receivers, of which one pauses: the sender waits for it."""
    return multicast_min()


def aeron_max() -> tuple[str, list[SubscriberScript]]:
    """A group of such receivers: both pause."""
    return multicast_max()


MEDIA: dict[str, Callable[[], tuple[str, list[SubscriberScript]]]] = {
    medium.__name__: medium
    for medium in (
        ipc, unicast, multicast_min, multicast_max, mdc, spy, aeron, aeron_min, aeron_max,
    )
}
#: Hosts without trailers are to each other as Aeron's.
AERON = tuple(HostScript(host=host, driver=(("advertise", 0),)) for host in range(3))


def with_options(channel: str, options: str) -> str:
    return channel + ("|" if "?" in channel else "?") + options if options else channel


def scenario(policy: str, medium: str, loss_ppm: int) -> Scenario:
    channel, readers = MEDIA[medium]()
    stated = POLICIES[policy].split("|")[0]
    return Scenario(
        name=f"{policy} on {medium}", hosts=3,
        link=Link(delay_ns=MS_NS, loss_ppm=loss_ppm),
        publishers=(PublisherScript(
            host=0, channel=with_options(with_options(channel, "term-length=64k"),
                                         POLICIES[policy]),
            count=COUNT, size_low=100, size_high=1200, start_ns=SECOND_NS // 2,
            interval_ns=2 * MS_NS,
        ),),
        subscribers=tuple(
            attrs.evolve(reader, channel=with_options(reader.channel, stated),
                         may_miss=policy == "drop_oldest" and not medium.startswith("aeron"))
            for reader in readers
        ),
        machines=AERON if medium.startswith("aeron") else (),
    )


def check_skipped(world: World, ledger: int) -> None:
    """Check that each reader got each message or a gap, and that only paused readers missed any.
    The world compares the number of messages of each gap with its own count."""
    for subscriber in world.subscribers:
        (got,) = subscriber.readers(ledger)
        assert got.messages + got.missed == COUNT
        assert got.dropped == world.native.ledger_dropped(ledger)
        assert (got.missed > 0) == bool(subscriber.script.pauses)
        assert got.uncounted == 0


@pytest.mark.parametrize("loss_ppm", [0, 20_000])
@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("policy", POLICIES)
def test_offered_is_delivered_and_dropped(policy: str, medium: str, loss_ppm: int) -> None:
    with World(scenario(policy, medium, loss_ppm), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        assert publisher.sent == COUNT
        if policy == "drop_oldest" and not medium.startswith("aeron"):
            check_skipped(world, ledger)
            return
        assert sum(statistics.refusals for statistics in publisher.statistics()) > 0 or dropped > 0
        found = [reader for s in world.subscribers for reader in s.readers(ledger)]
        counts = [(got.messages, got.missed, got.dropped) for got in found]
        if loss_ppm and medium.endswith("_max"):
            counts = [max(counts)]
        assert set(counts) == {(COUNT, 0, dropped)}
        assert (dropped > 0) == (policy in ("drop_newest", "drop_oldest"))


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_publisher_that_closes_while_its_log_is_full_loses_no_count(
    policy: str, medium: str
) -> None:
    """It closes 0.9 s after a reader has paused: no accepted message follows the last drops."""
    with World(scenario(policy, medium, 0), 5) as world:
        (publisher,) = world.publishers
        world.run_until(PAUSES[0][0] + 900 * MS_NS)
        (ledger,) = publisher.ledgers
        accepted, dropped = publisher.sent, world.native.ledger_dropped(ledger)
        skips = policy == "drop_oldest" and not medium.startswith("aeron")
        assert (dropped > 0) == (policy in ("drop_newest", "drop_oldest") and not skips)
        if not dropped:
            assert skips or sum(each.refusals for each in publisher.statistics()) > 0
        publisher.crash()
        assert world.run().violations == ()
        for subscriber in world.subscribers:
            (got,) = subscriber.readers(ledger)
            assert got.messages + got.missed == accepted
            assert got.missed == 0 or (skips and subscriber.script.pauses)
            assert (got.dropped, got.uncounted) == (dropped, 0)


# ---- ps-depth in messages: after each step an oracle counts the messages in the log ----------


def with_depth(base: Scenario, depth: str) -> Scenario:
    (publisher,) = base.publishers
    channel = f"{publisher.channel}|ps-depth={depth}"
    return attrs.evolve(base, publishers=(attrs.evolve(publisher, channel=channel),))


@pytest.mark.parametrize("depth", ["1msg", "10msg", "16k,10msg"])
@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("policy", ["block", "drop_newest", "error", "rate_limit"])
def test_publishers_are_ahead_by_the_depth_at_most(policy: str, medium: str, depth: str) -> None:
    """10 messages fill a sixth of what 16k hold, so the messages bind."""
    with World(with_depth(scenario(policy, medium, 20_000), depth), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        assert publisher.sent == COUNT
        assert (dropped > 0) == (policy == "drop_newest")
        found = [reader for s in world.subscribers for reader in s.readers(ledger)]
        counts = [(got.messages, got.missed, got.dropped) for got in found]
        if medium.endswith("_max"):
            counts = [max(counts)]
        assert set(counts) == {(COUNT, 0, dropped)}


@pytest.mark.parametrize("medium", ["ipc", "unicast", "spy"])
@pytest.mark.parametrize("policy", ["block", "drop_newest"])
def test_a_new_daemon_keeps_the_depth(policy: str, medium: str) -> None:
    """The daemon dies while a reader pauses, with as many messages in the log as the depth has."""
    base = with_depth(scenario(policy, medium, 0), "10msg")
    crash_ns = 1500 * MS_NS
    machine = HostScript(
        host=0, adopt=True, crash_ns=crash_ns, restart_ns=crash_ns + 20 * MS_NS
    )
    with World(attrs.evolve(base, machines=(machine,)), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        assert publisher.sent == COUNT
        for subscriber in world.subscribers:
            (got,) = subscriber.readers(ledger)
            assert got.messages == COUNT
