# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of the scheduler or of the governor is found by a generated scenario,
among the first 2000 seeds.  Only seeds with a loaded host are run."""

from __future__ import annotations

import pytest
from support.old_core import OldCore, Patch
from support.seeds import SEEDS, classes_of, seeds_with

#: Seeds of one kind that are run at most.
TRIED = 12


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-governor"))


#: The rule that is broken, the kind of load that meets it, and how.
WRONG = (
    ("does not smooth the waits", "crowd", Patch(
        file="ps_governor.c", now="(mean_ns - governor->latency_ns) / SMOOTH;",
        old="(mean_ns - governor->latency_ns);",
    )),
    ("takes busy time for pressure", "crowd", Patch(
        file="ps_governor.c", now="governor->busy < bound ? governor->busy : bound;",
        old="governor->busy;",
    )),
    ("defers at the first peak", "slow machine", Patch(
        file="ps_governor.c", now=">= PS_GOVERNOR_SUSTAINED_NS) {", old=">= 0) {",
    )),
    ("lets deferred streams send", "slow machine", Patch(
        file="ps_sender_governor.c", now="sender->now_ns >= due_ns) {\n        return false;",
        old="sender->now_ns >= due_ns - PS_GOVERNOR_DEFERRED_NS / 2) {\n        return false;",
    )),
    ("defers streams for longer than a second", "slow machine", Patch(
        file="ps_sender_governor.c",
        now="pub->data_sent_ns + PS_GOVERNOR_DEFERRED_NS;",
        old="pub->data_sent_ns + 2 * PS_GOVERNOR_DEFERRED_NS;",
    )),
    ("sends partial datagrams at once", "crowd", Patch(
        file="ps_sender_governor.c", now="if (coalesce_ns == 0 || pub",
        old="if (coalesce_ns >= 0 || pub",
    )),
    ("delays partial datagrams for longer", "crowd", Patch(
        file="ps_sender_governor.c", now="wait_until(sender, pub, pub->partial_since_ns + coalesce",
        old="wait_until(sender, pub, pub->partial_since_ns + 9 * coalesce",
    )),
    ("throttles at half the pressure", "slow machine", Patch(
        file="ps_governor.c", now="pressure < PS_GOVERNOR_THROTTLE ? 0",
        old="pressure < PS_GOVERNOR_THROTTLE / 2 ? 0",
    )),
    ("ignores the interval of status messages", "crowd", Patch(
        file="ps_image_status.c", now="now_ns < due_ns && open > image->sent_window / 2",
        old="now_ns < due_ns && open > image->sent_window",
    )),
    ("leaves low bands out of the depth", "crowd", Patch(
        file="ps_bands.c", now="for (int32_t list = PS_BAND_B0; list <= PS_BAND_B4; list++) {",
        old="for (int32_t list = PS_BAND_B2; list <= PS_BAND_B4; list++) {",
    )),
    ("counts streams of the present round as late", "crowd", Patch(
        file="ps_sender_governor.c", now="sender->now_ns - sender->bands.round_ns,",
        old="sender->now_ns,",
    )),
    ("forgets consumed data ten times as fast", "crowd", Patch(
        file="ps_priority.c", now="#define HALF_LIFE_NS INT64_C(30000000000)",
        old="#define HALF_LIFE_NS INT64_C(3000000000)",
    )),
    ("takes consumed data for new", "crowd", Patch(
        file="ps_sender_schedule.c", now="ps_priority_recency(now_ns - consumed_ns)",
        old="ps_priority_recency(0)",
    )),
    ("ages a hundred times as fast", "crowd", Patch(
        file="ps_priority.c", now="waited_ns > 0 ? waited_ns / PS_PRIORITY_TICK_NS",
        old="waited_ns > 0 ? waited_ns * 100 / PS_PRIORITY_TICK_NS",
    )),
    ("serves the lowest band last", "crowd", Patch(
        file="ps_bands.c", now="bands->at = bands->at == 0 ? PS_BAND_B4 : bands->at - 1;",
        old="bands->at = bands->at <= PS_BAND_B1 ? PS_BAND_B4 : bands->at - 1;",
    )),
    ("gives the highest band the weight 7", "crowd", Patch(
        file="ps_bands.c", now="{ 6, 8, 8, 16, 32, 64 };", old="{ 6, 8, 8, 16, 32, 56 };",
    )),
    ("gives a middle band an eighth more", "crowd", Patch(
        file="ps_bands.c", now="{ 6, 8, 8, 16, 32, 64 };", old="{ 6, 8, 8, 18, 32, 64 };",
    )),
    ("gives the lowest band an eighth less", "crowd", Patch(
        file="ps_bands.c", now="{ 6, 8, 8, 16, 32, 64 };", old="{ 6, 7, 8, 16, 32, 64 };",
    )),
    ("keeps the rest of a share", "crowd", Patch(
        file="ps_bands.c",
        now="list->deficit = share + (list->deficit < 0 ? list->deficit : 0);",
        old="list->deficit += share;",
    )),
    ("forgets what a band owes", "crowd", Patch(
        file="ps_bands.c",
        now="list->deficit = share + (list->deficit < 0 ? list->deficit : 0);",
        old="list->deficit = share;",
    )),
    ("charges half of a turn", "crowd", Patch(
        file="ps_bands.c", now="charged->deficit -= charge;",
        old="charged->deficit -= charge / 2;",
    )),
    ("lets a stream wait at the front of its band", "crowd", Patch(
        file="ps_bands.c",
        now="""    entry->next = NULL;
    entry->prev = to->tail;
    if (to->tail != NULL) {
        to->tail->next = entry;
    } else {
        to->head = entry;
    }
    to->tail = entry;
""",
        old="""    entry->prev = NULL;
    entry->next = to->head;
    if (to->head != NULL) {
        to->head->prev = entry;
    } else {
        to->tail = entry;
    }
    to->head = entry;
""",
    )),
    ("sends two quanta in a turn while others wait", "crowd", Patch(
        file="ps_sender.c", now="bands->alone > 0 ? bands->lone_turn : bands->quantum;",
        old="bands->lone_turn;",
    )),
    ("retransmits before all new data", "crowd", Patch(
        file="ps_bands.c",
        now="repair->head != NULL && (in_bands(bands) == 0 || bands->repair_credit > 0)",
        old="repair->head != NULL",
    )),
)


@pytest.mark.parametrize(("kind", "patch"), [row[1:] for row in WRONG], ids=[r[0] for r in WRONG])
def test_a_generated_scenario_finds_a_core_that(
    kind: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(f"load: {kind}", TRIED), (patch,))


@pytest.mark.parametrize("feature", ["load", "load: low priority"])
def test_a_twentieth_of_the_seeds_has(feature: str) -> None:
    found = [feature in classes_of(seed) for seed in range(1, SEEDS + 1)]
    assert sum(found) >= SEEDS // 20
