# SPDX-License-Identifier: Apache-2.0
"""Features that generated scenarios have, each by itself: what must be, and that an oracle says so
when it is not (wrong lines in a core built for the test)."""

from __future__ import annotations

import attrs
import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of

from penstock.sim.core import Link
from penstock.sim.generate.fuzz import generate
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    LinkRule,
    Scenario,
    multicast,
    two_hosts,
)
from penstock.sim.world import World, run

ERRORS = 15     # the system counter


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-core"))


def stamped(sent: str, media: str, read: str, *, low: int = 1, high: int = 3000) -> Scenario:
    """A channel with timestamps at these places, over a path that loses and repeats."""
    base = two_hosts(count=1000)
    (publisher,), (reader,) = base.publishers, base.subscribers
    inward = f"{reader.channel}|media-rcv-ts-offset={media}|channel-rcv-ts-offset={read}"
    return attrs.evolve(
        base,
        link=Link(delay_ns=MS_NS, loss_ppm=30_000, duplicate_ppm=30_000),
        publishers=(
            attrs.evolve(
                publisher, channel=f"{publisher.channel}|channel-snd-ts-offset={sent}",
                size_low=low, size_high=high,
            ),
        ),
        subscribers=(attrs.evolve(reader, channel=inward),),
    )


def estranged(sent: str, media: str, read: str) -> Scenario:
    """A reader with timestamps that hears a stranger before it hears the sender. It joins while the
    stranger's copy of a SETUP is on its way: its host is in the group for another stream. A reader
    on another host connects the sender later."""
    base = multicast()
    (publisher,), (near, late) = base.publishers, base.subscribers
    inward = f"{late.channel}|media-rcv-ts-offset={media}|channel-rcv-ts-offset={read}"
    link = Link(delay_ns=50 * MS_NS)
    strange = attrs.evolve(link, stranger_ppm=1_000_000)
    return attrs.evolve(
        base,
        link=link,
        links=(LinkRule(sender=0, receiver=2, link=strange),),
        publishers=(
            attrs.evolve(
                publisher, channel=f"{publisher.channel}|channel-snd-ts-offset={sent}",
                size_low=1, size_high=3000, start_ns=0, interval_ns=MS_NS,
            ),
            attrs.evolve(publisher, host=1, stream_id=1002, count=1),
        ),
        subscribers=(
            attrs.evolve(near, start_ns=600 * MS_NS),
            attrs.evolve(
                late, channel=inward, start_ns=165 * MS_NS, may_join_late=True, may_miss=True
            ),
            attrs.evolve(late, channel=inward, stream_id=1002),
        ),
    )


def small_terms(scenario: Scenario) -> Scenario:
    """Terms of 64 KiB, of which there are many."""
    return attrs.evolve(scenario, publishers=tuple(
        attrs.evolve(p, channel=p.channel.replace("=1m", "=64k"), exclusive=True, count=6000)
        for p in scenario.publishers
    ))


def spied() -> Scenario:
    """A spy that stops for a while and stands for a slow receiver, which comes later."""
    base = two_hosts(count=1500)
    (publisher,), (reader,) = base.publishers, base.subscribers
    late = attrs.evolve(
        reader, start_ns=SECOND_NS, may_join_late=True, may_miss=True, poll_limit=1,
        interval_ns=4 * MS_NS,
    )
    spy = attrs.evolve(
        reader, host=0, channel=f"aeron-spy:{reader.channel}", poll_limit=10, interval_ns=MS_NS,
        pauses=((SECOND_NS // 2, 3 * SECOND_NS // 4),),
    )
    return attrs.evolve(
        base,
        publishers=(
            attrs.evolve(
                publisher, channel=f"{publisher.channel}|ssc=true", interval_ns=2 * MS_NS
            ),
        ),
        subscribers=(late, spy),
        machines=(HostScript(host=1, window_bytes=8192),),
    )


def moody() -> Scenario:
    """A strategy in Python that is wrong now and then."""
    base = two_hosts(count=3000)
    channel = f"{base.publishers[0].channel}|fc=py:penstock.sim.strategies:Moody"
    return attrs.evolve(
        base,
        publishers=(attrs.evolve(base.publishers[0], channel=channel, interval_ns=MS_NS),),
    )


# ---- what must be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "places",
    [("0", "8", "16"), ("reserved", "27", "0"), ("1336", "reserved", "1336"),
     ("60000", "reserved", "reserved"), ("8", "8", "8")],
)
def test_each_message_has_its_timestamps_and_nothing_else_is_changed(
    places: tuple[str, str, str]
) -> None:
    report = run(stamped(*places), seed=1)
    assert report.violations == ()
    assert report.messages == 1000


@pytest.mark.parametrize("places", [("0", "8", "16"), ("16", "0", "8"), ("reserved", "27", "0")])
def test_timestamps_are_right_in_what_a_stranger_changed(places: tuple[str, str, str]) -> None:
    with World(estranged(*places), 1) as world:
        world.run_until(SECOND_NS)
        host = world.hosts[2]
        (image,) = (image for image in host.images() if image.stream_id == 1001)
        assert host.driver.image_status(image.id).foreign_datagrams > 1000   # most are the sender's
        assert world.run().violations == ()
        assert world.subscribers[1].reader(0).messages >= 5     # up to what no stranger repairs


def test_a_spy_stands_for_receivers_until_one_comes() -> None:
    with World(spied(), 1) as world:
        world.run_until(SECOND_NS)
        assert world.network.statistics().delivered == 0
        assert world.publishers[0].sent > 400
        assert world.run().violations == ()
        remote, spy = (reader.reader(0) for reader in world.subscribers)
    assert (spy.messages, spy.missed) == (1500, 0)
    assert remote.first > 400
    assert remote.next == 1500


def test_a_strategy_that_raises_or_answers_nonsense_is_told_once_each_and_counted() -> None:
    with World(moody(), 1) as world:
        world.run_until(2 * SECOND_NS)
        (running,) = world.hosts[0].strategies()
        assert running.raised > 10
        assert running.nonsense > 10
        assert world.hosts[0].counters(ERRORS) == {ERRORS: 2}
        assert world.run().violations == ()


def test_answers_that_are_counted_wrong_are_found() -> None:
    with World(moody(), 1) as world:
        world.run_until(SECOND_NS)
        (running,) = world.hosts[0].strategies()
        running.nonsense += 1
        found = world.run().violations
    assert any("answers of py:penstock.sim.strategies:Moody that were none" in v for v in found)


def test_many_seeds_have_each_feature() -> None:
    found = [name for seed in range(1, 301) for name in classes_of(seed)]
    for name in ("timestamps", "spies", "ssc", "moody strategy", "few events",
                 "slow conductor"):
        assert found.count(name) >= 15, name


#: The rules that the further stream of each kind is there to meet.
MEANT = {
    "slow": {"nak: cut by strength", "nak: overrun cuts", "nak: probes"},
    "pauses": {"nak: paused"},
    "windowed": {"nak: congestion window"},
    "plain": {"nak: plain receiver"},
    "joins": {"join: held", "join: expired"},
    "late max": {"late: max"},
    "late min": {"late: min"},
    "silent": {"late: hold", "strategy silent", "cc=py: window", "cc=py: silent"},
}


@pytest.mark.parametrize("kind", MEANT)
def test_a_further_stream_meets_the_rules_that_it_is_for(kind: str) -> None:
    """In most of its scenarios: in some a host dies before."""
    seeds = [n for n in range(1, 301) if f"rules: {kind}" in classes_of(n)]
    assert len(seeds) >= 12
    met = [run(generate(n), n).rules for n in seeds[:4]]
    for rule in MEANT[kind]:
        assert sum(rule in rules for rules in met) >= 2, (rule, seeds[:4])


# ---- what the oracles say when it is not ---------------------------------------------------------

WRONG = (
    (
        "does not follow the spies",
        spied(),
        Patch(
            file="ps_publication_limit.c", now="        more = follow_spies(pub) || (",
            old="        more = (",
        ),
        "the sender follows the spies",
    ),
    (
        "goes on with the spies when somebody is heard",
        spied(),
        Patch(
            file="ps_publication_limit.c",
            now="if (!ps_publication_follows_spies(pub) ||",
            old="if (!pub->params.spies_simulate_connection || pub->adopted_connection ||",
        ),
        "passes over what receivers did not get",
    ),
    (
        "goes further than the spies",
        spied(),
        Patch(
            file="ps_publication_limit.c", now="ps_publication_skip_to(pub, pub->fastest_position)",
            old="ps_publication_skip_to(pub, pub->producer_position)",
        ),
        "passes over what no spy has read",
    ),
    (
        "writes into every frame of a message",
        stamped("reserved", "0", "8"),
        Patch(
            file="ps_image_insert.c",
            now="offset <= payload - 8 &&\n               (source[5] & PS_FLAG_BEGIN) != 0)",
            old="offset <= payload - 8)",
        ),
        "that were not sent",
    ),
    (
        "writes into every frame of a message that a stranger changed",
        estranged("16", "0", "8"),
        Patch(
            file="ps_image_insert.c",
            now="offset <= payload - 8 &&\n               (source[5] & PS_FLAG_BEGIN) != 0)",
            old="offset <= payload - 8)",
        ),
        "subscriber 1 got",
    ),
    (
        "writes a wrong time into what a stranger changed",
        estranged("16", "0", "8"),
        Patch(
            file="ps_image_insert.c", now="rx_ns + offset_ns);",
            old="(rx_ns + offset_ns) ^ 0x55);",
        ),
        "has not the time at which it came",
    ),
    (
        "takes a timestamp that just fits for one that does not",
        stamped("reserved", "0", "8", high=40),
        Patch(
            file="ps_image_insert.c", now="offset <= payload - 8 &&", old="offset < payload - 8 &&"
        ),
        "has not the time at which it came",
    ),
    (
        "takes the time of reading for that of arrival",
        stamped("0", "reserved", "8"),
        Patch(
            file="ps_image_insert.c", now="rx_ns + offset_ns);",
            old="image->receiver->now_ns + 1 + offset_ns);",
        ),
        "has another reserved value than it should",
    ),
    (
        "writes the time of sending into padding",
        small_terms(stamped("reserved", "0", "8", high=40)),
        Patch(
            file="ps_publication_send.c",
            now="length > room || frame->type != PS_TYPE_DATA) {",
            old="(length > room && frame->type == PS_TYPE_DATA)) {",
        ),
        "the reserved value of what left is not the time of sending",
    ),
    (
        "leaves what an earlier lap wrote in the reserved value of padding",
        small_terms(stamped("0", "8", "16", high=900)),
        Patch(
            file="ps_client_publication_term.c",
            now="        ps_frame_reserved(ps_frame_at(log, position), 0);\n",
            old="",
        ),
        "the reserved value of what left is not the time of sending",
    ),
)


@pytest.mark.parametrize(
    ("scenario", "patch", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_an_oracle_complains_of_a_core_that(
    scenario: Scenario, patch: Patch, complaint: str, wrong_core: OldCore
) -> None:
    found = wrong_core.violations(scenario, (patch,))
    assert any(complaint in violation for violation in found), found
