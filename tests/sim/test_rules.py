# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of flow or congestion control is found by a generated scenario, among
the first 2000 seeds.  Only seeds with the further stream that meets the rule are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of

SEEDS = 2000
#: Seeds of one kind that are run at most.
TRIED = 60
#: Where a search begins that takes long from 1: near the seed that it finds.  From 1, too, it was
#: seed 286, the 27th of its kind.
STARTS = {"lifts the limit when a strategy is late": 280}


def seeds_with(kind: str, start: int) -> Iterator[int]:
    names = {f"rules: {one}" for one in kind.split(", ")}
    found = (n for n in range(start, SEEDS + 1) if names & set(classes_of(n)))
    for _, seed in zip(range(TRIED), found, strict=False):
        yield seed


@pytest.fixture(scope="module")
def wrong_core(tmp_path_factory: pytest.TempPathFactory) -> OldCore:
    return OldCore(tmp_path_factory.mktemp("wrong-core"))


def _control(now: str, old: str) -> Patch:
    return Patch(file="ps_pressure_control.c", now=now, old=old)


def _signal(now: str, old: str) -> Patch:
    return Patch(file="ps_pressure_signal.c", now=now, old=old)


#: The rule that is broken, the kind of stream that meets it, and how.
WRONG = (
    ("requests nothing that was beyond a term", "slow", Patch(
        file="ps_image_outrun.c", now="(void)ps_image_raise_hwm(image, to);", old=";",
    )),
    ("does not end an image beyond repair", "slow, pauses", Patch(
        file="ps_image_outrun.c", now="        ps_image_end(image, PS_END_OUTRUN);",
        old="        ;",
    )),
    ("ends an image that can be repaired", "slow, pauses", Patch(
        file="ps_image_outrun.c",
        now="ps_image_contiguous(image) < image->sent_seen - reach) {\n        ps_image_end",
        old="ps_image_contiguous(image) < image->sent_seen) {\n        ps_image_end",
    )),
    ("leaves out of the fill what was not kept", "slow", Patch(
        file="ps_image_pressure.c",
        now="return image->sent_seen > image->hwm ? image->sent_seen : image->hwm;",
        old="return image->hwm;",
    )),
    ("signals at 40 %", "slow", _signal("{ 50, 75, 87, 100 }", "{ 40, 75, 87, 100 }")),
    ("signals a level again in its window", "slow", _signal(
        "(!over && level <= signal->level)", "(!over && level < signal->level)",
    )),
    ("signals for a paused reader", "pauses", Patch(
        file="ps_image_outrun.c", now="            !ps_pressure_reader_paused(reader, now_ns) &&\n",
        old="",
    )),
    ("takes a reader for paused at once", "slow, pauses", Patch(
        file="ps_image_outrun.c", now="!ps_pressure_reader_paused(reader, now_ns) &&",
        old="!(reader->waiting_ns < now_ns) &&",
    )),
    ("cuts too little by strength", "slow", _control("{ 56, 48, 40, 32 }", "{ 60, 56, 48, 40 }")),
    ("settles above what is taken", "slow", _control("{ 72, 68, 65, 65 }", "{ 80, 72, 70, 70 }")),
    ("drains too slowly", "slow, pauses", _control("DRAIN_WINDOWS = 2", "DRAIN_WINDOWS = 4")),
    ("does not cut by what was not kept", "slow", _control(
        "report->rate > 0 && report->overrun > 0", "report->rate > 0 && report->overrun < 0",
    )),
    ("follows the fastest that signals", "slow", _control(
        "if (!same && wanted >= rate->limit) {", "if (!same && wanted < rate->limit) {",
    )),
    ("probes too fast", "slow", _control("return rate->limit / 32 *", "return rate->limit / 8 *")),
    ("returns too fast", "slow", _control(
        "const int64_t fast = rate->limit / 16 * away;",
        "const int64_t fast = rate->limit / 4 * away;",
    )),
    ("never probes", "slow", _control("    rate->limit += step_of(rate);\n", "")),
    ("states what a healthy receiver consumed too often", "slow, plain", Patch(
        file="ps_image_status.c", now="eighth = image->log.term_length / 8;",
        old="eighth = image->log.term_length / 64;",
    )),
    ("takes a congestion window for none under nak", "windowed", Patch(
        file="ps_fc_pressure.c",
        now="const bool congested = !plain && sm->trailer.congestion_window > 0;",
        old="const bool congested = false;",
    )),
    ("does not stay within a plain receiver's window", "plain", Patch(
        file="ps_fc_pressure.c", now="if (plain && fc->plain_edge < fc->edge) {",
        old="if (0 && plain && fc->plain_edge < fc->edge) {",
    )),
    ("stays within the window of a plain receiver that has gone", "plain", Patch(
        file="ps_fc_pressure.c",
        now="return fc->plain_heard && now_ns - fc->plain_heard_ns < PLAIN_NS;",
        old="(void)now_ns;\n    return fc->plain_heard;",
    )),
    ("lifts the limit when a strategy is late", "silent", Patch(
        file="ps_fc_custom.c", now="    return fc->custom_limit;\n}", old="    return fc->edge;\n}",
    )),
    ("holds where the slowest receiver is further", "silent", Patch(
        file="ps_fc_custom.c",
        now="fc->on_late == PS_FC_LATE_MIN || slowest > fc->custom_limit",
        old="fc->on_late == PS_FC_LATE_MIN",
    )),
    ("holds though told to take the furthest", "late max", Patch(
        file="ps_fc_custom.c", now="fc->on_late == PS_FC_LATE_MAX", old="0",
    )),
    ("waits for a silent strategy for ever", "silent", Patch(
        file="ps_fc_custom.c", now="limit = silent ? fc->edge : meanwhile(fc);",
        old="limit = meanwhile(fc);",
    )),
    ("takes any window of a class", "late max, late min", Patch(
        file="ps_congestion_custom.c",
        now="    window = window < least ? least : window;\n", old="",
    )),
    ("waits for a silent class for ever", "silent", Patch(
        file="ps_congestion_custom.c",
        now="congestion->custom_silent = input->now_ns >= congestion->custom_silent_ns;",
        old="congestion->custom_silent = false;",
    )),
)


@pytest.mark.parametrize(("rule", "kind", "patch"), WRONG, ids=[row[0] for row in WRONG])
def test_a_generated_scenario_finds_a_core_that(
    rule: str, kind: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(kind, STARTS.get(rule, 1)), (patch,))
