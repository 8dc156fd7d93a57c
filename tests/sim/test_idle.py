# SPDX-License-Identifier: Apache-2.0
"""Streams that rest give memory back and go on; and an oracle says so when too much or too little
of it goes (wrong lines in a core built for the test)."""

from __future__ import annotations

import json

import attrs
import pytest
from support.old_core import OldCore, Patch

from penstock.sim.core import Link
from penstock.sim.scenario import MS_NS, SECOND_NS, HostScript, Scenario, two_hosts
from penstock.sim.world import World, run
from penstock.sim.world.host import Host

IDLE_NS = 100 * MS_NS


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-core"))


def resting(
    *, exclusive: bool = False, ipc: bool = False, adopt: int | None = None, small: int = 0
) -> Scenario:
    """Bursts of some terms over a path that loses, and rests of seconds between them.

    :param adopt: a host whose daemon dies in a rest.
    :param small: terms up to this length stay two at least.
    """
    base = two_hosts(count=4000, delay_ns=MS_NS, loss_ppm=20_000)
    (publisher,), (reader,) = base.publishers, base.subscribers
    channel = "aeron:ipc" if ipc else reader.channel
    dead: dict[int, HostScript] = {}
    if adopt is not None:
        dead[adopt] = HostScript(
            host=adopt, adopt=True, crash_ns=1_500 * MS_NS, restart_ns=1_800 * MS_NS
        )
    return attrs.evolve(
        base,
        link=Link(delay_ns=MS_NS, loss_ppm=20_000),
        publishers=(
            attrs.evolve(
                publisher, exclusive=exclusive, interval_ns=800_000, size_low=100, size_high=1300,
                channel=f"{channel}{'?' if ipc else '|'}term-length=64k",
                pauses=tuple(
                    (k * SECOND_NS + 600 * MS_NS, (k + 3) * SECOND_NS - 100 * MS_NS)
                    for k in (0, 3, 6)
                ),
            ),
        ),
        subscribers=(attrs.evolve(reader, host=0 if ipc else 1, channel=channel),),
        machines=tuple(
            attrs.evolve(
                dead.get(host, HostScript(host=host)), idle_ns=IDLE_NS, small_term_bytes=small
            )
            for host in range(2)
        ),
    )


def released(host: Host) -> list[int]:
    """Bytes, each time."""
    return [
        json.loads(fields)["bytes"] for _, name, fields in host.events
        if name == "terms_given_back"
    ]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("adopt", [None, 0, 1])
def test_rests_give_memory_back(exclusive: bool, adopt: int | None) -> None:
    with World(resting(exclusive=exclusive, adopt=adopt), 1) as world:
        report = world.run()
        assert report.violations == ()
        assert report.messages == 4000
        for host in world.hosts:
            assert released(host), host.name    # where it stands decides how often


def test_ipc_streams_give_memory_back() -> None:
    with World(resting(ipc=True), 1) as world:
        assert world.run().violations == ()
        assert len(released(world.hosts[0])) >= 2


def test_two_small_terms_stay() -> None:
    with World(resting(small=1 << 20), 1) as world:
        assert world.run().violations == ()
        assert set(released(world.hosts[1])) == {64 * 1024}


def test_without_a_timeout_all_stays() -> None:
    base = resting()
    scenario = attrs.evolve(
        base, machines=tuple(attrs.evolve(machine, idle_ns=0) for machine in base.machines)
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        assert not released(world.hosts[0]) + released(world.hosts[1])


def test_a_run_is_the_same_every_time() -> None:
    assert run(resting(adopt=0), 1).trace == run(resting(adopt=0), 1).trace


WRONG = (
    (
        "gives up what may be sent again",
        Patch(
            file="ps_publication_idle.c", now="ps_publication_resend_floor(pub)",
            old="pub->sender_position",
        ),
        resting(),
        "what is in use is given up",
    ),
    (
        "gives up what a limit reaches",
        Patch(
            file="ps_publication_idle.c", now="const int64_t to = (highest + term - 1)",
            old="const int64_t to = (pub->producer_position + term - 1)",
        ),
        resting(),
        "a publisher's room is given up",
    ),
    (
        "keeps all that a publication has",
        Patch(
            file="ps_publication_idle.c", now="if (to > pub->reserved_position ||", old="if (1 ||"
        ),
        resting(),
        "rests on",
    ),
    (
        "keeps all that an image has",
        Patch(
            file="ps_image_idle.c", now="if (to - from >= PS_PARTITIONS * term) {", old="if (1) {"
        ),
        resting(),
        "rests on",
    ),
    (
        "gives up what an image receives into",
        Patch(file="ps_image_idle.c", now="image->hwm + term / 2 + term - 1", old="image->hwm + 1"),
        resting(),
        "less than half a term is left",
    ),
    (
        "requests its terms while it rests",
        Patch(
            file="ps_publication_limit.c", now="pub->rests_at == pub->producer_position ||", old=""
        ),
        resting(ipc=True),
        "a stream that rests requests storage",
    ),
)


@pytest.mark.parametrize(
    ("patch", "scenario", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_an_oracle_complains_of_a_core_that(
    patch: Patch, scenario: Scenario, complaint: str, wrong_core: OldCore
) -> None:
    found = wrong_core.violations(scenario, (patch,))
    assert any(complaint in violation for violation in found), found
