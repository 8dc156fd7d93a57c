# SPDX-License-Identifier: Apache-2.0
"""Credits in virtual time: what is outstanding, what a withhold leaves, and that each rule has an
oracle."""

from __future__ import annotations

import attrs
import pytest
from support.old_core import OldCore, Patch
from support.withheld import COUNT, LOSSY, WITHHELD, check, drawn, withheld

from penstock.sim import files, library
from penstock.sim.scenario import MS_NS, Scenario
from penstock.sim.world import run


def slow(medium: str = "unicast", size: int = 500) -> Scenario:
    """A reader that works on each batch for 20 ms."""
    scenario = withheld(medium, number=5, size=size)
    (reader,) = scenario.subscribers
    return attrs.evolve(
        scenario, subscribers=(attrs.evolve(reader, withholds=(), interval_ns=20 * MS_NS),)
    )


def idle_at_the_freeze(*, exclusive: bool = True) -> Scenario:
    """A publisher that offers nothing while a withhold settles, and then goes on."""
    scenario = withheld("unicast", number=300, exclusive=exclusive)
    (publisher,) = scenario.publishers
    idle = (WITHHELD[0] - 100 * MS_NS, WITHHELD[0] + 500 * MS_NS)
    return attrs.evolve(scenario, publishers=(attrs.evolve(publisher, pauses=(idle,)),))


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("number", [1, 5, 100, 300])
@pytest.mark.parametrize(
    ("medium", "readers"),
    [("ipc", 1), ("ipc", 2), ("unicast", 1), ("multicast", 1), ("multicast", 3), ("tagged", 1),
     ("mdc", 1), ("spy", 1)],
)
@pytest.mark.parametrize("size", [500, 6000])
def test_nothing_is_in_flight_while_credits_are_withheld(
    medium: str, readers: int, number: int, size: int, exclusive: bool
) -> None:
    scenario = withheld(medium, number=number, readers=readers, size=size, exclusive=exclusive)
    report = check(scenario, 1, readers=readers)
    assert report.messages == COUNT if len(scenario.subscribers) == 1 else report.messages > COUNT


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_an_idle_publisher_loses_its_lease_at_the_freeze(exclusive: bool) -> None:
    check(idle_at_the_freeze(exclusive=exclusive), 1)


@pytest.mark.parametrize("seed", range(12))
def test_a_withhold_leaves_nothing_in_flight_in_any_seed(seed: int) -> None:
    check(drawn(seed), seed)


def test_the_sender_takes_over_the_count_of_a_busy_reader() -> None:
    """Five messages of up to 6000 bytes are more than the sender counts itself."""
    report = run(slow("ipc", size=6000), seed=1)
    assert report.violations == ()
    assert report.messages == COUNT


WRONG = (
    (
        "publishers are admitted beyond the limit",
        files.load(library.path_of("credits")),
        Patch(
            file="ps_publication_credit.c",
            now="const int64_t ordinals = pub->credits.limit + show_base(pub);",
            old="const int64_t ordinals = pub->credits.limit + show_base(pub) + 7;",
        ),
        "accepted and not released",
    ),
    (
        "a reader grants one more than it said",
        files.load(library.path_of("credits")),
        Patch(
            file="ps_credit.c",
            now="reader->base + reader->returned + (nothing",
            old="reader->base + reader->returned + 1 + (nothing",
        ),
        "accepted and not released",
    ),
    (
        "a credit returns when its message is delivered",
        slow(),
        Patch(
            file="ps_client_image_credit.c",
            now="    image->passed += passed;\n    show_passed(image);\n",
            old="    image->passed += passed;\n    show_passed(image);\n"
                "    ps_img_credit_released(image);\n",
        ),
        "accepted and not released",
    ),
    (
        "the sender takes over a count with one message too few",
        slow("ipc", size=6000),
        Patch(
            file="ps_credit.c",
            now="    out->ordinal = reader->base + returned;\n",
            old="    out->ordinal = reader->base + returned - (returned > 500);\n",
        ),
        "the sender counts messages wrong",
    ),
    (
        "a freeze does not revoke",
        withheld("unicast", number=5),
        Patch(
            file="ps_publication_credit.c",
            now="ps_spend_begin(&pub->slot->spend, frozen, &done);",
            old="ps_spend_begin(&pub->slot->spend, frozen && limit < 0, &done);",
        ),
        "",
    ),
    (
        "a lease outlives its epoch",
        idle_at_the_freeze(),
        Patch(
            file="ps_client_publication.c",
            now="if (PS_UNLIKELY(!ps_lease_is_of(lease, word))) {\n        ps_pub_end_spend",
            old="if (PS_UNLIKELY(lease == 0)) {\n        ps_pub_end_spend",
        ),
        "",
    ),
    (
        "a lease of a shared stream outlives its epoch",
        idle_at_the_freeze(exclusive=False),
        Patch(
            file="ps_client_publication.c",
            now="if (PS_UNLIKELY(!ps_lease_is_of(lease, word))) {\n        atomic_store",
            old="if (PS_UNLIKELY(lease == 0)) {\n        atomic_store",
        ),
        "",
    ),
)


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-credits"))


@pytest.mark.parametrize(
    ("what", "scenario", "patch", "complaint"), WRONG, ids=[wrong[0] for wrong in WRONG]
)
def test_an_oracle_finds_a_broken_rule_of_credits(
    wrong_core: OldCore, what: str, scenario: Scenario, patch: Patch, complaint: str
) -> None:
    found = wrong_core.violations(scenario, (patch,))
    assert any(complaint in violation for violation in found), (what, found)


def test_the_least_of_a_group_decides() -> None:
    """Two members grant different numbers, under max, too: the smaller one is kept to."""
    scenario = withheld("multicast", number=50, readers=2)
    few = attrs.evolve(
        scenario.subscribers[1], channel=scenario.subscribers[1].channel.replace("=50", "=3")
    )
    scenario = attrs.evolve(
        scenario, subscribers=(attrs.evolve(scenario.subscribers[0], withholds=()), few)
    )
    report = run(scenario, seed=2)
    assert report.violations == ()
    assert report.messages > 3900
    assert report.finished_ns > 1900 // 3 * 2 * LOSSY.delay_ns
