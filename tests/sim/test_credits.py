# SPDX-License-Identifier: Apache-2.0
"""Credits in virtual time: what is outstanding, what a withhold leaves, and that each rule has an
oracle."""

from __future__ import annotations

import attrs
import pytest
from support.old_core import OldCore, Patch

from penstock.core.credits import CreditState
from penstock.sim import files, library
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World, run

WITHHELD = (SECOND_NS, 3 * SECOND_NS)
LOSSY = Link(delay_ns=5 * MS_NS, loss_ppm=30_000)


def withheld(medium: str, *, number: int, readers: int = 1, size: int = 500) -> Scenario:
    """A stream whose first reader withholds for two seconds, on a path that loses 3 %."""
    channel = {
        "ipc": "aeron:ipc",
        "unicast": f"aeron:udp?endpoint={host_ip(1)}:40456",
        "multicast": "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24",
    }[medium]
    first = 0 if medium == "ipc" else 1
    option = f"{'|' if '?' in channel else '?'}ps-credits={number}"
    return Scenario(
        name=f"withheld {medium}",
        hosts=1 + (readers if first else 0),
        link=LOSSY,
        publishers=(
            PublisherScript(host=0, channel=channel, count=2000, size_low=1, size_high=size,
                            start_ns=SECOND_NS // 2, interval_ns=MS_NS),
        ),
        subscribers=tuple(
            SubscriberScript(
                host=first + (index if first else 0), channel=channel + option,
                withholds=(WITHHELD,) if index == 0 else (),
                may_join_late=index > 0,
            )
            for index in range(readers)
        ),
    )


def slow() -> Scenario:
    """A reader that works on each batch for 20 ms."""
    scenario = withheld("unicast", number=5)
    (reader,) = scenario.subscribers
    return attrs.evolve(
        scenario, subscribers=(attrs.evolve(reader, withholds=(), interval_ns=20 * MS_NS),)
    )


@pytest.mark.parametrize("number", [1, 5, 100])
@pytest.mark.parametrize(
    ("medium", "readers"),
    [("ipc", 1), ("ipc", 2), ("unicast", 1), ("multicast", 1), ("multicast", 3)],
)
@pytest.mark.parametrize("size", [500, 6000])
def test_nothing_is_in_flight_while_credits_are_withheld(
    medium: str, readers: int, number: int, size: int
) -> None:
    with World(withheld(medium, number=number, readers=readers, size=size), 1) as world:
        world.run_until(WITHHELD[1] - MS_NS)
        views = [view for app in world.subscribers for view in app.credits()]
        assert len(views) == readers
        assert views[0].state == CreditState.SETTLED
        assert views[0].returned == views[0].final > 0
        assert views[0].passed == views[0].final
        published = sum(s.messages for s in world.publishers[0].statistics())
        assert all(view.passed <= published for view in views)
        assert views[0].passed == published or readers > 1
        assert published < 2000
        report = world.run()
    assert report.violations == ()
    assert report.messages == 2000 if readers == 1 else report.messages > 2000


WRONG = (
    (
        "publishers are admitted beyond the limit",
        files.load(library.path_of("credits")),
        Patch(
            file="ps_publication_credit.c",
            now="    const int64_t ordinals = ps_publication_credit_ordinals(pub);\n"
                "    const int64_t before",
            old="    const int64_t ordinals = ps_publication_credit_ordinals(pub) + 7;\n"
                "    const int64_t before",
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
        "a freeze does not revoke",
        withheld("unicast", number=5),
        Patch(
            file="ps_publication_credit.c",
            now="ps_spend_begin(&pub->slot->spend, frozen, &done);",
            old="ps_spend_begin(&pub->slot->spend, frozen && limit < 0, &done);",
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
