# SPDX-License-Identifier: Apache-2.0
"""A group whose slowest receiver sets the pace, and receivers that misbehave in each state: none
stops it, all are named, and oracles say so when it is otherwise."""

from __future__ import annotations

import json

import attrs
import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of, seeds_with

from penstock.daemon.observe.status import publication_status
from penstock.sim import files
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MISFITS,
    MS_NS,
    SECOND_NS,
    HostScript,
    MisfitScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

#: Seeds of one kind that are run at most.
TRIED = 20
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
TIMEOUT_NS = 2 * SECOND_NS
START_NS = 3 * SECOND_NS
END_NS = 23 * SECOND_NS                 # ten time-outs
BIN_NS = 50 * MS_NS


def group(*kinds: str, fc: str = "min,t:2s", interval_ms: int = 100) -> Scenario:
    """1000 messages of 1000 bytes a second to two good receivers, and misfits on a third host."""
    return Scenario(
        name="misfits",
        hosts=4,
        link=Link(delay_ns=MS_NS),
        machines=(HostScript(host=1, group_tag=5), HostScript(host=2, group_tag=5)),
        publishers=(
            PublisherScript(
                host=0, channel=f"{GROUP}|term-length=256k|fc={fc}", count=26_000, size_low=1000,
                size_high=1000, start_ns=SECOND_NS, interval_ns=MS_NS,
            ),
        ),
        subscribers=tuple(
            SubscriberScript(host=host, channel=GROUP, may_join_late=True) for host in (1, 2)
        ),
        misfits=tuple(
            MisfitScript(
                host=3, kind=kind, from_ns=START_NS, until_ns=END_NS,
                interval_ns=interval_ms * MS_NS,
            )
            for kind in kinds
        ),
        limit_ns=200 * SECOND_NS,
    )


def refusing() -> Scenario:
    """The third host refuses the stream, whose policy contradicts that of its only subscription."""
    scenario = group()
    (publisher,) = scenario.publishers
    channel = f"{publisher.channel}|ps-policy=drop_oldest"
    return attrs.evolve(
        scenario,
        publishers=(attrs.evolve(publisher, channel=channel, count=500),),
        subscribers=(
            *scenario.subscribers,
            SubscriberScript(host=3, channel=f"{GROUP}|ps-sub-policy=block", refuses=True),
        ),
        limit_ns=10 * SECOND_NS,
    )


def test_a_reader_of_which_a_refusal_is_expected_must_not_join() -> None:
    scenario = refusing()
    *others, reader = scenario.subscribers
    agrees = attrs.evolve(reader, channel=GROUP)
    with World(attrs.evolve(scenario, subscribers=(*others, agrees)), seed=1) as world:
        assert world.run().violations == (
            "subscriber 2 joined a stream whose policy contradicts its own",
        )
    with World(scenario, seed=1) as world:
        assert world.run().violations == ()


def stalled_ns(scenario: Scenario) -> tuple[int, int]:
    """For how long nothing was accepted while the misfits were there: in all, and at a stretch."""
    total = longest = run = 0
    with World(scenario, seed=1) as world:
        world.run_until(START_NS)
        (publisher,) = world.publishers
        last = publisher.sent_bytes
        for at_ns in range(START_NS + BIN_NS, END_NS, BIN_NS):
            world.run_until(at_ns)
            run = run + BIN_NS if publisher.sent_bytes == last else 0
            total += BIN_NS if run else 0
            longest = max(longest, run)
            last = publisher.sent_bytes
        assert world.run().violations == ()
    return total, longest


@pytest.mark.parametrize("fc", ["min,t:2s", "tagged,g:5,t:2s"])
@pytest.mark.parametrize("kind", MISFITS)
def test_no_receiver_holds_a_group_for_longer_than_its_time_out(kind: str, fc: str) -> None:
    _, longest = stalled_ns(group(kind, fc=fc))
    assert longest <= TIMEOUT_NS + 2 * BIN_NS


@pytest.mark.parametrize(("kind", "time_outs"), [
    ("never joins", 1), ("random ids", 1), ("shut", 1), ("crowd", 3), ("leaves", 1),
])
def test_receivers_that_do_not_join_hold_it_for_one_time_out_in_four(
    kind: str, time_outs: int
) -> None:
    """Ten time-outs: an address once, strangers from everywhere at 0, 4 and 8."""
    total, _ = stalled_ns(group(kind, interval_ms=20))
    assert total <= time_outs * TIMEOUT_NS + 4 * BIN_NS
    assert kind == "leaves" or total >= TIMEOUT_NS - 8 * BIN_NS     # it is waited for, once


def test_all_misfits_together_do_not_stop_it() -> None:
    total, longest = stalled_ns(group("never joins", "random ids", "crowd", "shut"))
    assert longest <= 2 * TIMEOUT_NS                # a hold, and one that joined and is shut
    assert total <= 5 * TIMEOUT_NS


def test_a_receiver_that_never_joins_is_the_culprit_and_is_logged() -> None:
    with World(group("never joins"), seed=1) as world:
        world.run_until(START_NS + SECOND_NS)
        host = world.hosts[0]
        (publication,) = host.publications()
        status = publication_status(
            publication, host.driver, host._shared, now_ns=world.now_ns,
            counter=host._cnc.counter,
        )
        assert status.cause == "join_hold"
        assert status.culprit.endswith(" at 10.0.0.4:45000")
        world.run_until(START_NS + 9 * SECOND_NS)
        notified = [json.loads(text) for _, name, text in host.events if name.startswith("join_")]
        assert [event["reason"] for event in notified[:2]] == ["expired", "not_joined"]
        assert 5 <= len(notified) <= 9                  # one a second at most
        assert sum(event["refusals"] for event in notified) >= 50
        logged = [record.text for record in host._cnc.errors()]
        assert len(logged) == 2
        assert all("10.0.0.4:45000" in text for text in logged)


def test_a_receiver_without_room_for_the_image_says_so_once_in_ten_seconds() -> None:
    base = group()
    scenario = attrs.evolve(
        base, machines=(*base.machines, HostScript(host=3, budget_bytes=1 << 18)),
        subscribers=(
            *base.subscribers,
            SubscriberScript(host=3, channel=GROUP, start_ns=START_NS, may_join_late=True),
        ),
    )
    with World(scenario, seed=1) as world:
        world.run_until(START_NS + 15 * SECOND_NS)
        refused = [fields for _, name, fields in world.hosts[3].events if name == "refused"]
        assert len(refused) == 2
        assert "cannot join session" in refused[0]
        publisher = world.publishers[0]
        assert publisher.sent > 14_000              # of 17 000: one time-out
        expired = [name for _, name, _ in world.hosts[0].events if name == "join_expired"]
        assert len(expired) == 1


def test_misfits_are_written_and_read() -> None:
    scenario = group(*MISFITS)
    assert files.parse(files.dump(scenario), "again").misfits == scenario.misfits


def test_seeds_have_each_misfit() -> None:
    found = [name for seed in range(1, 401) for name in classes_of(seed)]
    assert found.count("refusals") >= 20
    for kind in MISFITS:
        assert found.count(f"misfit: {kind}") >= 20, kind


# ---- what the oracles say when it is not ---------------------------------------------------------


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-core"))


WRONG = (
    (
        "waits again for an address that did not join",
        group("random ids"),
        Patch(
            file="ps_join.c", now="        return PS_JOIN_NOT_JOINED;\n    }\n    if (mine",
            old="        ;\n    }\n    if (mine",
        ),
        "an address that has not joined is waited for again",
    ),
    (
        "waits for a receiver whenever it asks",
        group("leaves"),
        Patch(
            file="ps_join.c",
            now="if (mine != NULL && now_ns - mine->given_ns < join->timeout_ns) {",
            old="if (mine != NULL && now_ns < mine->given_ns) {",
        ),
        "a receiver is waited for twice within its time-out",
    ),
    (
        "does not count what holds took",
        group("crowd"),
        Patch(
            file="ps_join.c",
            now="    join->spent_ns[(uint64_t)join->part % PARTS] += now_ns - join->since_ns;\n",
            old="",
        ),
        "a group waits for joining receivers too long",
    ),
    (
        "begins a hold again with each SETUP",
        group("never joins"),
        Patch(
            file="ps_join.c",
            now="            return PS_JOIN_GRANTED;\n        }\n        failed",
            old="            record->state = PS_JOIN_REQUESTED;\n"
            "            join->requested = true;\n"
            "            return PS_JOIN_GRANTED;\n        }\n        failed",
        ),
        "waited for",
    ),
    (
        "never ends a hold",
        group("never joins"),
        Patch(
            file="ps_join.c", now="if (!ps_join_holds(join) || now_ns < join->until_ns) {",
            old="if (!ps_join_holds(join) || now_ns >= 0) {",
        ),
        "a group waits for joining receivers too long",
    ),
    (
        "waits for nobody",
        group("leaves"),
        Patch(
            file="ps_join.c", now="    if (!waits || !any) {", old="    if (waits || !any) {",
        ),
        "nobody waits for a receiver that joins",
    ),
    (
        "waits for a receiver that refused",
        refusing(),
        Patch(
            file="ps_fc_min.c", now="    if (fc->join->missing && ps_join_refused(",
            old="    if (!fc->join->missing && ps_join_refused(",
        ),
        "a group waits for a receiver that refused the stream",
    ),
    (
        "follows a receiver whose window is shut",
        group("shut"),
        Patch(
            file="ps_fc_min.c", now="earlier(receiver->heard_ns, receiver->open_ns)",
            old="receiver->heard_ns",
        ),
        "a receiver holds the group for longer than its time-out",
    ),
    (
        "names nobody while it waits",
        group("never joins"),
        Patch(
            file="ps_fc_min.c", now="    fc->join_binds = ps_join_holds(fc->join);\n",
            old="    fc->join_binds = false;\n",
        ),
        "the cause is the one that holds",
    ),
    (
        "never lowers its limit",
        group("leaves"),
        Patch(
            file="ps_fc_min.c", now="    return slowest(fc);\n}\n\nstatic void min_on_error",
            old="    const int64_t least = slowest(fc);\n"
            "    return least > limit ? least : limit;\n}\n\nstatic void min_on_error",
        ),
        "the sender's limit is the strategy's",
    ),
)


#: Class of the seeds that find a wrong core of this name.
FOUND = {
    "waits again for an address that did not join": "rules: joins",
    "waits for a receiver whenever it asks": "misfit: leaves",
    "does not count what holds took": "rules: joins",
    "begins a hold again with each SETUP": "rules: joins",
    "never ends a hold": "rules: joins",
    "waits for nobody": "rules: joins",
    "waits for a receiver that refused": "refusals",
    "follows a receiver whose window is shut": "misfit: shut",
    "names nobody while it waits": "rules: joins",
    "never lowers its limit": "misfit: leaves",
}


@pytest.mark.parametrize(
    ("name", "patch"), [(row[0], row[2]) for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    name: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(FOUND[name], TRIED), (patch,))


@pytest.mark.parametrize(
    ("scenario", "patch", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_an_oracle_complains_of_a_core_that(
    scenario: Scenario, patch: Patch, complaint: str, wrong_core: OldCore
) -> None:
    found = wrong_core.violations(scenario, (patch,))
    assert any(complaint in violation for violation in found), found
