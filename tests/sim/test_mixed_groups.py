# SPDX-License-Identifier: Apache-2.0
"""Groups whose receivers have different policies: no receiver's policy costs the others data."""

from __future__ import annotations

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
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
CONTROL = f"control={host_ip(0)}:40456|control-mode=dynamic"
#: The publisher's channel, and those of the receivers on hosts 1 and 2.
MEDIA = {
    "multicast": (f"{GROUP}|", (f"{GROUP}|", f"{GROUP}|")),
    "mdc": (f"aeron:udp?{CONTROL}|",
            tuple(f"aeron:udp?endpoint={host_ip(host)}:40457|{CONTROL}|" for host in (1, 2))),
}
DROPS = ("drop_newest", "drop_oldest")


def group(
    medium: str, strategy: str, policy: str, readers: tuple[str, str], pausing: int | None
) -> Scenario:
    """A message each 2 ms to a reader on host 1 and one on host 2; each states a policy or none."""
    published, read = MEDIA[medium]
    tag = "|gtag=7" if strategy.startswith("tagged") else ""
    seen = f"ps-policy={policy}" if policy in DROPS else "ps-policy=block"
    return Scenario(
        name="a mixed group", hosts=3, link=Link(delay_ns=MS_NS, loss_ppm=10_000),
        publishers=(PublisherScript(
            host=0, channel=f"{published}fc={strategy}|term-length=64k"
            + (f"|ps-policy={policy}" if policy else ""),
            count=COUNT, size_low=100, size_high=1200, start_ns=SECOND_NS // 2,
            interval_ns=2 * MS_NS,
        ),),
        subscribers=tuple(
            SubscriberScript(
                host=host, channel=f"{read[host - 1]}{seen}{tag}|{stated}".rstrip("|"),
                pauses=PAUSES if host == pausing else (), poll_limit=20,
                may_miss=policy == "drop_oldest" or "block" not in (stated or "block"),
            )
            for host, stated in enumerate(readers, 1)
        ),
    )


READERS = (
    ("ps-sub-policy=drop_oldest", ""),
    ("ps-sub-policy=independent", "ps-sub-policy=block"),
    ("", "ps-sub-policy=independent|ps-sub-depth=20msg"),
    ("ps-sub-policy=drop_oldest|ps-sub-depth=20msg", "ps-sub-policy=independent"),
)


@pytest.mark.parametrize("pausing", [1, 2])
@pytest.mark.parametrize("readers", READERS)
@pytest.mark.parametrize("policy", ["block", "drop_newest", "drop_oldest"])
@pytest.mark.parametrize("strategy", ["min", "tagged,g:7"])
@pytest.mark.parametrize("medium", MEDIA)
def test_each_receiver_has_its_own_policy(
    medium: str, strategy: str, policy: str, readers: tuple[str, str], pausing: int
) -> None:
    if policy == "drop_oldest" and "block" in readers[1]:
        readers = (readers[0], "")      # they contradict each other: see below
    with World(group(medium, strategy, policy, readers, pausing), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        (statistics,) = publisher.statistics()
        (paused,), (other,) = (
            world.subscribers[host - 1].readers(ledger) for host in (pausing, 3 - pausing)
        )
        stated = readers[pausing - 1]
        skips = "drop_oldest" in (policy, stated) or bool(stated and "block" not in stated)
        for reader in (paused, other):
            assert reader.messages + reader.missed == publisher.sent == COUNT
            assert (reader.dropped, reader.uncounted) == (dropped, 0)
        assert other.missed == 0
        assert (paused.missed > 0) == skips
        assert (dropped > 0) == (policy == "drop_newest" and not skips)
        assert (statistics.blocked_ns > 0) == (policy == "block" and not skips)


POLICIES = ("", "block", "drop_newest", "drop_oldest", "error", "rate_limit|ps-rate=2000msg")


@pytest.mark.parametrize("pauses", ["plain", "penstock"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", ["min", "tagged,g:7"])
@pytest.mark.parametrize("medium", MEDIA)
def test_a_receiver_without_trailers_has_the_same_messages(
    medium: str, strategy: str, policy: str, pauses: str
) -> None:
    """The host of the first reader neither sends nor reads trailers, as Aeron's receivers. Under
    ``drop_oldest`` it does not know the policy: the group waits for it, and the newest is dropped
    beyond seven eighths. The other reader skips."""
    plain, penstock = 1, 2
    pausing = plain if pauses == "plain" else penstock
    scenario = group(medium, strategy, policy, ("", ""), pausing)
    scenario = attrs.evolve(
        scenario,
        machines=(HostScript(host=plain, driver=(("advertise", 0),)),),
        subscribers=tuple(
            attrs.evolve(s, may_miss=policy == "drop_oldest") for s in scenario.subscribers
        ),
    )
    with World(scenario, 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        (statistics,) = publisher.statistics()
        assert publisher.sent == COUNT
        skips = policy == "drop_oldest" and pausing == penstock
        for subscriber in world.subscribers:
            (reader,) = subscriber.readers(ledger)
            assert reader.messages + reader.missed == COUNT
            assert (reader.dropped, reader.uncounted) == (dropped, 0)
            assert (reader.missed > 0) == (skips and subscriber.script.host == pausing)
        assert (dropped > 0) == (policy in DROPS and not skips)
        assert (statistics.blocked_ns > 0) == (policy not in DROPS)


@pytest.mark.parametrize("strategy", ["min", "tagged,g:7", "max"])
@pytest.mark.parametrize("medium", MEDIA)
def test_a_receiver_that_refuses_the_policy_holds_no_group(medium: str, strategy: str) -> None:
    """Under ``drop_oldest`` a reader with ``ps-sub-policy=block`` gets no image: its host answers
    each SETUP by an ERR frame."""
    scenario = group(medium, strategy, "drop_oldest", ("", "ps-sub-policy=block"), None)
    scenario = attrs.evolve(scenario, subscribers=(
        scenario.subscribers[0], attrs.evolve(scenario.subscribers[1], stream_id=1001),
    ))
    with World(scenario, 5) as world:
        longest = run = sent = 0
        for at_ns in range(SECOND_NS, 4 * SECOND_NS, 10 * MS_NS):
            world.run_until(at_ns)
            (publisher,) = world.publishers
            run = run + 10 if publisher.sent_bytes == sent else 0
            longest, sent = max(longest, run), publisher.sent_bytes
            if publisher.sent == COUNT:
                break
        assert publisher.sent == COUNT
        (ledger,) = publisher.ledgers
        (read,) = world.subscribers[0].readers(ledger)
        assert world.native.ledger_dropped(ledger) == 0
        assert longest <= 10
        assert read.missed == 0
        assert any(name == "refused" for _, name, _ in world.hosts[2].events)
