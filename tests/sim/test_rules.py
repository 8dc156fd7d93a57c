# SPDX-License-Identifier: Apache-2.0
"""A core that breaks one rule of flow or congestion control is found by a generated scenario, among
the first 2000 seeds.  Only seeds with the further stream that meets the rule are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.old_core import OldCore, Patch
from support.seeds import classes_of, seeds_where

#: Seeds of one kind that are run at most.
TRIED = 60
#: Classes of seeds that are not kinds of the further stream: one host has several readers of a
#: stream under NAK-strength control; a strategy sometimes answers positions that are too high.
CLASSES = {"shared": {"isolated: nak", "fc=nak"}, "moody": {"moody strategy"}}
#: The seeds of this kind have all these classes.
ALL_OF = {"left behind": {"fc=nak", "untethered"}}


def seeds_with(kind: str) -> Iterator[int]:
    if kind in ALL_OF:
        return seeds_where(lambda seed: ALL_OF[kind] <= set(classes_of(seed)), TRIED)
    names = CLASSES.get(kind) or {f"rules: {one}" for one in kind.split(", ")}
    return seeds_where(lambda seed: bool(names & set(classes_of(seed))), TRIED)


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
    ("believes a single datagram", "slow, pauses", Patch(
        file="ps_image_outrun.c", now="BELIEVED = 2", old="BELIEVED = 0",
    )),
    ("believes datagrams that do not continue each other", "slow, pauses", Patch(
        file="ps_image_outrun.c",
        now="const bool follows = position >= image->beyond_end && "
        "position - image->beyond_end <= half;",
        old="const bool follows = position >= 0 || half < 0;",
    )),
    ("believes what a lower heartbeat has withdrawn", "forged", Patch(
        file="ps_image_outrun.c", now="        image->beyond_count = 0;\n    }\n",
        old="        ;\n    }\n",
    )),
    ("keeps a mark that two lower heartbeats have withdrawn", "forged", Patch(
        file="ps_image_end.c", now="        ps_image_lower_hwm(image, position);\n", old="",
    )),
    ("withdraws a mark at one lower heartbeat", "forged", Patch(
        file="ps_image_end.c", now="    if (again && last != NULL", old="    if (last != NULL",
    )),
    ("never believes that its sender is ahead", "slow, pauses", Patch(
        file="ps_image_outrun.c", now="image->beyond_count >= BELIEVED",
        old="image->beyond_count > BELIEVED",
    )),
    ("delays a NAK of a group until repair is impossible", "slow", Patch(
        file="ps_image_nak.c", now="    hasten(image, now_ns);\n", old="",
    )),
    ("delays no NAK of a group", "slow", Patch(
        file="ps_image_nak.c",
        now="return left <= 0 || rtt_us == 0 ||", old="return true ||",
    )),
    ("delays a repeated NAK of a group", "slow", Patch(
        file="ps_image_nak.c",
        now="        policy.max_backoff_ns = 0;\n", old="        ;\n",
    )),
    ("requests less often what still fills", "slow", Patch(
        file="ps_image_insert.c", now="    keep_requesting(image, from, to);\n", old="",
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
    ("signals at once in a group", "slow", _signal("(in->group ? delay_ns : 0)", "0")),
    ("learns half of a longer cadence", "slow, pauses", _signal(
        "reader->cadence_ns = larger(reader->cadence_ns, waited_ns);",
        "reader->cadence_ns = larger(reader->cadence_ns, (reader->cadence_ns + waited_ns) / 2);",
    )),
    ("never learns a shorter cadence", "slow, pauses", _signal(
        "        reader->cadence_ns -= (reader->cadence_ns - reader->longest_ns) / 4;", "        ;",
    )),
    ("learns from a pause", "pauses", _signal(
        "waited_ns >= PS_NAK_PAUSE_MAX_NS", "waited_ns < 0",
    )),
    ("measures a rate in less than a cadence", "slow, pauses", _signal(
        "elapsed_ns >= PS_NAK_SPAN_NS && elapsed_ns >= reader->cadence_ns",
        "elapsed_ns >= PS_NAK_SPAN_NS",
    )),
    ("waits for a batch for ever", "slow, pauses", _signal(
        "SPAN_CADENCES = 3", "SPAN_CADENCES = 1000",
    )),
    ("takes a lower bound for a rate", "slow, pauses", _signal(
        "    if (!reader->starved) {", "    if (true) {",
    )),
    ("states no residue", "slow, pauses", _signal(
        "        reader->residue = reader->low;", "        reader->residue = 0;",
    )),
    ("takes what arrives for a residue", "slow, pauses", _signal(
        "const bool took_all = position > reader->position && position >= reader->end;",
        "const bool took_all = false;",
    )),
    ("takes the end of a term for a backlog", "slow, pauses", _signal(
        "            reader->starved = true; "
        "/* the end of the term ended its poll: it may take more */\n"
        "            reader->low = 0;\n", "            ;\n",
    )),
    ("learns more than a term in a cadence", "slow, pauses", _signal(
        "    if (known && reader->term > 0) { /* no more is kept for it */", "    if (0) {",
    )),
    ("states a residue beside a lower bound", "slow, pauses", Patch(
        file="ps_image_pressure.c", now="ps_pressure_reader_residue(reader)",
        old="reader->residue",
    )),
    ("forgets the rate of a reader that was outrun", "slow, pauses", Patch(
        file="ps_image_timers.c", now="            ps_image_remember(image);\n",
        old="            ;\n",
    )),
    ("measures one reader of several", "shared", Patch(
        file="ps_image_pressure.c", now="        if (ps_tether_gates(&subscriber->tether) &&",
        old="        if (i == 0 && ps_tether_gates(&subscriber->tether) &&",
    )),
    ("states the fastest reader of several", "shared", Patch(
        file="ps_image_outrun.c", now="reader->position < slowest->position",
        old="reader->position > slowest->position",
    )),
    ("states the fill of another reader of several", "shared", Patch(
        file="ps_image_pressure.c",
        now="    const int64_t fill = furthest(image) - reader->position;",
        old="    const int64_t fill =\n        furthest(image) - "
        "image->subscribers[image->n_subscribers - 1].reader.position;",
    )),
    ("measures a reader that rests", "left behind", Patch(
        file="ps_image_pressure.c",
        now="if (ps_tether_gates(&subscriber->tether) && !subscriber->isolation.lagged) {",
        old="if (!subscriber->isolation.lagged) {",
    )),
    ("measures a reader that it left behind", "shared", Patch(
        file="ps_image_pressure.c",
        now="if (ps_tether_gates(&subscriber->tether) && !subscriber->isolation.lagged) {",
        old="if (ps_tether_gates(&subscriber->tether)) {",
    )),
    ("goes below the lowest rate", "slow, pauses", _control(
        "return larger(wanted, rate->floor);", "return larger(wanted, 1);",
    )),
    ("cuts once for each receiver", "slow", _control(
        "const bool anew = !ps_pressure_control_limits(rate) || now_ns >= rate->base_until_ns;",
        "const bool anew = true;",
    )),
    ("cuts a sender that stood", "slow, pauses", _control(
        "const bool stood = anew && ps_pressure_control_measured(rate, now_ns) < rate->limit / 2;",
        "const bool stood = false;",
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
    ("states what a healthy receiver consumed too rarely", "slow, plain", Patch(
        file="ps_image_status.c", now="eighth = image->log.term_length / 8;",
        old="eighth = image->log.term_length / 2;",
    )),
    ("sends status messages by time though healthy", "slow, plain", Patch(
        file="ps_image_status.c",
        now="    return ps_image_is_silent(image) && timeout_ns < PS_SM_IDLE_NS ? "
        "PS_SM_IDLE_NS : timeout_ns;", old="    return timeout_ns;",
    )),
    ("is silent for longer than a second", "slow, plain", Patch(
        file="ps_image_status.c", now="    image->sm_due_ns = now_ns + interval_ns;",
        old="    image->sm_due_ns = now_ns + 3 * interval_ns;",
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
    ("holds though told to take the slowest", "late min", Patch(
        file="ps_fc_custom.c",
        now="fc->on_late == PS_FC_LATE_MIN || slowest > fc->custom_limit",
        old="slowest > fc->custom_limit",
    )),
    ("obeys a strategy beyond every window", "moody", Patch(
        file="ps_fc_custom.c", now="    return lower(limit, fc->edge);", old="    return limit;",
    )),
    ("waits for a silent strategy for ever", "silent", Patch(
        file="ps_fc_custom.c", now="limit = silent ? fc->edge : meanwhile(fc);",
        old="limit = meanwhile(fc);",
    )),
    ("takes any window of a class", "late max, late min", Patch(
        file="ps_congestion_custom.c",
        now="    window = window < least ? least : window;\n", old="",
    )),
    ("takes any large window of a class", "late max, late min", Patch(
        file="ps_congestion_custom.c",
        now="return window < congestion->window_max ? window : congestion->window_max;",
        old="return window;",
    )),
    ("keeps to Reno where told not to", "windowed", Patch(
        file="ps_congestion.c",
        now="ps_cubic_init(&congestion->cubic, mtu, window_max, friendly);",
        old="ps_cubic_init(&congestion->cubic, mtu, window_max, true);",
    )),
    ("paces a group by whoever spoke last", "windowed", Patch(
        file="ps_publication_pace.c", now="if (!pub->params.group || rate >= pub->highest_pace) {",
        old="if (true) {",
    )),
    ("paces a group by a receiver that slowed down", "windowed", Patch(
        file="ps_publication_pace.c", now="    } else if (was_highest) {",
        old="    } else if (was_highest && now_ns < 0) {",
    )),
    ("paces a group by a receiver that left", "windowed", Patch(
        file="ps_publication_pace.c",
        now="    if (pub->params.group && rate == pub->highest_pace) {",
        old="    if (pub->params.group && rate == pub->highest_pace && now_ns < 0) {",
    )),
    ("waits for a silent class for ever", "silent", Patch(
        file="ps_congestion_custom.c",
        now="congestion->custom_silent = input->now_ns >= congestion->custom_silent_ns;",
        old="congestion->custom_silent = false;",
    )),
)


@pytest.mark.parametrize(
    ("kind", "patch"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_generated_scenario_finds_a_core_that(
    kind: str, patch: Patch, wrong_core: OldCore
) -> None:
    assert wrong_core.finds(seeds_with(kind), (patch,))
