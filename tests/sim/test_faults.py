# SPDX-License-Identifier: Apache-2.0
"""Faults that generated scenarios have, each by itself: what must be, and that an oracle says so
when it is not (wrong lines in a core built for the test)."""

from __future__ import annotations

import attrs
import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of

from penstock.sim import files, library
from penstock.sim.core import Link
from penstock.sim.generate import faults
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
    two_hosts,
)
from penstock.sim.world import World, run

LOSSY = Link(delay_ns=5 * MS_NS, loss_ppm=50_000)


def unreliable(*, size: int = 900) -> Scenario:
    """A reader that would rather miss something than wait."""
    base = two_hosts(count=3000)
    (publisher,), (reader,) = base.publishers, base.subscribers
    return attrs.evolve(
        base,
        link=LOSSY,
        publishers=(attrs.evolve(publisher, size_low=1, size_high=size),),
        subscribers=(
            attrs.evolve(reader, channel=f"{reader.channel}|reliable=false", may_miss=True),
        ),
    )


def full_sockets(host: int) -> Scenario:
    """The sockets of a host take nothing for a while, from before the first message on."""
    spans = ((SECOND_NS - 1, 2 * SECOND_NS),)
    return attrs.evolve(
        two_hosts(count=3000, loss_ppm=0),
        publishers=(attrs.evolve(two_hosts().publishers[0], count=3000, start_ns=SECOND_NS),),
        machines=tuple(
            # A window that one turn would fill.
            HostScript(host=h, window_bytes=4096, full=spans if h == host else ())
            for h in range(2)
        ),
    )


def rated_with_credits() -> Scenario:
    """A sender that cannot send: publishers wait a tenth of a second ahead, with credits left."""
    base = full_sockets(0)
    (publisher,), (reader,) = base.publishers, base.subscribers
    return attrs.evolve(
        base,
        publishers=(attrs.evolve(publisher, channel=f"{publisher.channel}|ps-rate=1000msg"),),
        subscribers=(attrs.evolve(reader, channel=f"{reader.channel}|ps-credits=500"),),
        machines=tuple(attrs.evolve(machine, window_bytes=None) for machine in base.machines),
    )


def strangers(*, share_ppm: int = 300_000, loss_ppm: int = 20_000) -> Scenario:
    """Somebody repeats what the sender says, falsified, under another address."""
    base = two_hosts(count=3000)
    return attrs.evolve(
        base,
        link=Link(delay_ns=5 * MS_NS, loss_ppm=loss_ppm, stranger_ppm=share_ppm),
        publishers=(attrs.evolve(base.publishers[0], interval_ns=MS_NS),),
    )


def paused() -> Scenario:
    """A reader that stops, behind a window that is small against a term."""
    scenario = files.load(library.path_of("paused-unicast"))
    return attrs.evolve(
        scenario,
        machines=tuple(attrs.evolve(m, window_bytes=16384) for m in scenario.machines),
        publishers=tuple(attrs.evolve(p, interval_ns=0) for p in scenario.publishers),
    )


def witnessed() -> Scenario:
    """A stream whose reader stops and whose way loses much, and a calm one between the same two."""
    base = two_hosts(count=100_000)
    scenario = attrs.evolve(
        base,
        link=Link(delay_ns=5 * MS_NS, loss_ppm=100_000),
        publishers=(attrs.evolve(base.publishers[0], count=3000, size_low=900),),
        subscribers=(
            attrs.evolve(base.subscribers[0], pauses=((2 * SECOND_NS, 4 * SECOND_NS),)),
        ),
    )
    return faults.add(scenario, 3)


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-core"))


# ---- what must be --------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [0, 1])
def test_sockets_that_take_nothing_delay_and_lose_nothing(host: int) -> None:
    """And the cause that is named is the socket, where it is the sender's (an oracle)."""
    report = run(full_sockets(host), seed=1)
    assert report.violations == ()
    assert report.network.refused > 0
    assert report.messages == 3000
    assert report.finished_ns > 2 * SECOND_NS


@pytest.mark.parametrize("host", [0, 1])
def test_sockets_that_take_a_part_lose_nothing(host: int) -> None:
    scenario = attrs.evolve(
        two_hosts(count=3000, loss_ppm=0),
        machines=(HostScript(host=host, short_send_ppm=300_000),),
    )
    report = run(scenario, seed=1)
    assert report.violations == ()
    assert report.network.refused > 0
    assert report.messages == 3000


@pytest.mark.parametrize("size", [900, 8000])
def test_who_is_not_repaired_is_told_of_all_that_is_missing(size: int) -> None:
    report = run(unreliable(size=size), seed=1)
    assert report.violations == ()
    assert report.missed > 50
    assert report.gaps > 20
    assert report.messages + report.missed <= 3000


def test_a_strategy_in_python_that_is_late_is_counted_and_replaced() -> None:
    channel = f"aeron:udp?endpoint={host_ip(1)}:40456"
    fc = "fc=py:penstock.sim.strategies:Slowest"
    for delay_ns, late in ((5 * MS_NS, False), (30 * MS_NS, True)):
        scenario = attrs.evolve(
            two_hosts(),
            publishers=(
                PublisherScript(
                    host=0, channel=f"{channel}|term-length=64k|{fc}", count=3000,
                    interval_ns=MS_NS,
                ),
            ),
            subscribers=(SubscriberScript(host=1, channel=channel),),
            machines=(HostScript(host=0, strategy_delay_ns=delay_ns),),
        )
        with World(scenario, 1) as world:
            world.run_until(2 * SECOND_NS)
            (publication,) = world.hosts[0].publications()
            assert (publication.late_limits > 10) == late
            assert world.run().violations == ()


def test_a_calm_stream_keeps_its_time_beside_one_in_trouble() -> None:
    scenario = witnessed()
    assert "witness" in scenario.classes
    assert run(scenario, seed=1).violations == ()


def test_a_log_that_nobody_accounts_for_is_found() -> None:
    scenario = two_hosts(count=3000)
    with World(scenario, 1) as world:
        stray = world.hosts[1].directory / "images" / "stray.logbuffer"
        world.at(SECOND_NS // 2, lambda: stray.write_bytes(bytes(1 << 20)) and None)
        world.at(3 * SECOND_NS // 2, stray.unlink)
        found = world.run().violations
    assert any("2 logs for 1 publications and images" in line for line in found), found
    assert any("logs take" in line for line in found), found


def test_timers_that_nobody_waits_for_are_found() -> None:
    with World(two_hosts(count=3000), 1) as world:
        timers = world.hosts[0].conductor._state.timers
        for _ in range(200):
            timers.at(1000 * SECOND_NS, lambda: None)
        found = world.run().violations
    assert any("timers for" in line for line in found), found


@pytest.mark.parametrize("seed", range(1, 9))
def test_strangers_change_nothing(seed: int) -> None:
    with World(strangers(), seed) as world:
        report = world.run()
    assert not report.violations
    assert report.network.forged > 500


def test_many_seeds_have_a_witness_and_each_further_fault() -> None:
    found = [name for seed in range(1, 301) for name in classes_of(seed)]
    assert found.count("witness") > 100
    for name in (
        "full sockets", "short sends", "splits and heals", "unreliable", "fc=py", "strangers",
    ):
        assert found.count(name) > 10, name


# ---- what the oracles say when it is not ---------------------------------------------------------

#: The probe sees most of these too, and first: what it says is left out, that others are heard.
DEAF = Patch(
    file="ps_sim_probe_model.c",
    now='    ps_sim_violate(probe->world, "host %d, session',
    old='    if (0) ps_sim_violate(probe->world, "host %d, session',
)
#: Of complaints that the probe alone makes.
BY_PROBE = ("pressure", "cause", "a way to the sender", "believed")
WRONG = (
    (
        "a full socket is taken for a shut window",
        full_sockets(0),
        Patch(
            file="ps_publication_send.c",
            now="pub->window_shut = pub->window_shut && !pub->short_send;",
            old="",
        ),
        "the cause is the one that holds",
    ),
    (
        "credits are blamed for a rate",
        rated_with_credits(),
        Patch(
            file="ps_publication_cause.c",
            now="    } else if (pub->credits.binds) {\n",
            old="    } else if (pub->credits.on) {\n",
        ),
        "the cause is the one that holds",
    ),
    (
        "pressure is not told to be over before the stream ends",
        paused(),
        Patch(
            file="ps_publication_watermark.c",
            now="    if (!above) {\n",
            old="    if (!active) {\n",
        ),
        "the end of pressure is told",
    ),
    (
        "a gap is told shorter than it is",
        unreliable(size=8000),
        Patch(
            file="ps_client_image.c",
            now="    image->gap_to = at->begin + offset;\n",
            old="    image->gap_to = image->gap_from + PS_FRAME_ALIGNMENT;\n",
        ),
        "",
    ),
    (
        "does not hear that a stream has ended",
        two_hosts(count=200),
        Patch(
            file="ps_image_frames.c",
            now="        ps_image_on_eos(image, destination, position, first->flags);\n",
            old="        (void)destination;\n",
        ),
        "though its stream was ended",
    ),
    (
        "padding of a gap is passed over without a word",
        unreliable(),
        Patch(
            file="ps_client_image.c",
            now="if (PS_UNLIKELY(image->report_gaps) && ps_img_is_gap(&at, before)) {",
            old="if (image->report_gaps && ps_img_is_gap(&at, before) && at.offset % 512) {",
        ),
        "without a word",
    ),
    (
        "lets a publisher go on for longer than its window",
        files.load(library.path_of("paused-unicast")),
        Patch(
            file="ps_publication_limit.c",
            now="    int64_t want = consumer + pub->window_bytes;\n",
            old="    int64_t want = consumer + pub->window_bytes + 8192;\n",
        ),
        "the windows of the receiver furthest on end at",
    ),
    (
        "states a window twice as large as it is",
        paused(),
        Patch(
            file="ps_image_status.c",
            now=" .window = image->window,",
            old=" .window = 2 * image->window,",
        ),
        "the windows of the receiver furthest on end at",
    ),
    (
        "forgets the slowest under min",
        files.load(library.path_of("paused-min")),
        Patch(
            file="ps_fc_min.c",
            now="        least = ps_edges_least(&fc->edges);\n",
            old="        least = ps_edges_largest(&fc->edges);\n",
        ),
        "the windows of a receiver that is followed end at",
    ),
    (
        "takes the data of a stranger",
        strangers(),
        Patch(
            file="ps_image_source.c",
            now="    return is_source(connection, from) || !is_held(image, connection);",
            old="    (void)connection;\n    (void)from;\n    (void)is_held;\n    return true;",
        ),
        "a way to the sender was heard at another time",
    ),
    (
        "believes an end that was stated once",
        two_hosts(count=200),
        Patch(
            file="ps_image_end.c",
            now="    return connection->eos_since_ns + interval_ns;",
            old="    return connection->eos_since_ns + 0 * interval_ns;",
        ),
        "an end is believed at once",
    ),
)


@pytest.mark.parametrize(
    ("scenario", "patch", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_an_oracle_complains_of_a_core_that(
    scenario: Scenario, patch: Patch, complaint: str, wrong_core: OldCore
) -> None:
    by_probe = any(word in complaint for word in BY_PROBE)
    found = wrong_core.violations(scenario, (patch,) if by_probe else (patch, DEAF))
    assert any(complaint in violation for violation in found), found
