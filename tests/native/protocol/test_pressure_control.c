/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control, the sender's half: what each signal requests, whose it is, and the bound on
 * recovery.  The closed loop is test_nak_loop.c.
 */
#include <string.h>

#include "check.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_pressure_control.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
#define MB INT64_C(1000000)

/* ---- sender's half --------------------------------------------------------------------------- */

static void stream_for(ps_pressure_control_t *rate, int64_t bytes_per_s, int64_t from_ns,
                       int64_t to_ns)
{
    for (int64_t now_ns = from_ns; now_ns < to_ns; now_ns += MS) {
        ps_pressure_control_sent(rate, bytes_per_s / 1000, now_ns);
    }
}

/* Whatever the length of a pause, what was sent before it does not count after 50 ms of it. */
static void a_pause_is_not_measured(void)
{
    for (int64_t pause_ms = 57; pause_ms < 1000; pause_ms++) {
        ps_pressure_control_t rate;
        ps_pressure_control_init(&rate, 1408);
        ps_pressure_control_sent(&rate, MB, S);
        CHECK_EQ(ps_pressure_control_measured(&rate, S + pause_ms * MS), 0);
    }
}

static ps_pressure_report_t report_of(int64_t receiver, int32_t level)
{
    return (ps_pressure_report_t){ .receiver_id = receiver, .level = level, .capacity = MB };
}

/* Of a receiver that has not been seen to consume: as the source has it. */
static void strength_decides_the_cut(void)
{
    static const int64_t left[] = { 0, 875, 750, 625, 500 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_pressure_control_t rate;
        const ps_pressure_report_t report = report_of(5, level);
        ps_pressure_control_init(&rate, 1408);
        CHECK(!ps_pressure_control_limits(&rate));
        stream_for(&rate, 100 * MB, 0, S);
        CHECK_EQ(ps_pressure_control_measured(&rate, S), 100 * MB);
        CHECK(ps_pressure_control_signal(&rate, &report, S));
        CHECK_EQ(rate.limit / 100000, left[level]);
        CHECK_EQ(rate.culprit, 5);
        CHECK(!ps_pressure_control_signal(&rate, &report, S + MS)); /* it says the same */
    }
}

/* A backlog: what is taken, less what drains the rest, never less than the strength allows. */
static void a_backlog_is_drained(void)
{
    static const int64_t least[] = { 0, 9375, 8750, 7500, 5000 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_pressure_control_t rate;
        ps_pressure_report_t report = report_of(5, level);
        ps_pressure_control_init(&rate, 1408);
        stream_for(&rate, 100 * MB, 0, S);
        report.rate = 10 * MB;
        report.residue = 100; /* next to nothing: what it takes */
        CHECK(ps_pressure_control_signal(&rate, &report, S));
        CHECK_EQ(rate.limit, 10 * MB - 100 * 10);
        report.residue = 50 * MB;
        CHECK(ps_pressure_control_signal(&rate, &report, S + 60 * MS));
        CHECK_EQ(rate.limit / 1000, least[level]);
        CHECK(!ps_pressure_control_signal(&rate, &report, S + 61 * MS)); /* no cut of a cut */
    }
}

/* No backlog: it takes more than it states, up to a capacity each cadence. */
static void who_takes_all_is_not_cut(void)
{
    static const int64_t parts[] = { 0, 72, 68, 65, 65 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_pressure_control_t rate;
        ps_pressure_report_t report = report_of(5, level);
        ps_pressure_control_init(&rate, 1408);
        stream_for(&rate, 10 * MB, 0, S);
        report.rate = 10 * MB;
        CHECK(ps_pressure_control_signal(&rate, &report, S));
        CHECK_EQ(rate.limit / 1000, 10 * MB / 64 * parts[level] / 1000);
        report.cadence_ns = S; /* of which a capacity, a megabyte, is kept */
        report.receiver_id = 6;
        stream_for(&rate, MB, S, 3 * S);
        CHECK(ps_pressure_control_signal(&rate, &report, 3 * S));
        CHECK_EQ(rate.limit / 1000, MB * parts[level] / 64 / 1000);
    }
}

static void an_overrun_cuts_more(void)
{
    for (int64_t residue = 0; residue <= 1; residue++) {
        ps_pressure_control_t rate;
        ps_pressure_report_t report = report_of(5, 4);
        report.rate = 10 * MB;
        report.residue = residue;
        report.overrun = MB / 8;
        ps_pressure_control_init(&rate, 1408);
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 0), 10 * MB - residue * 10);
        report.overrun = MB / 2;
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 0), 10 * MB / 8 * 7);
        report.overrun = MB / 2 + 1;
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 0), 5 * MB);
    }
}

/* Nothing was sent for 50 ms, since the sender waits at its edge.  Of a reader that was not seen to
 * consume the signal speaks of what came before; later half a term in two round trips counts. */
static void a_sender_at_its_edge_is_not_cut_to_nothing(void)
{
    for (int64_t rtt_ms = 0; rtt_ms <= 200; rtt_ms += 50) {
        for (int32_t known = 0; known <= 1; known++) {
            ps_pressure_control_t rate;
            ps_pressure_report_t report = report_of(5, 4);
            report.rtt_ns = rtt_ms * MS;
            report.rate = known;
            ps_pressure_control_init(&rate, 1408);
            stream_for(&rate, 100 * MB, 0, 10 * MS);
            ps_pressure_control_signal(&rate, &report, 10 * MS + 100 * MS); /* it waited since */
            const int64_t waited = rtt_ms < 50 ? rate.floor : MB * 1000 / (2 * rtt_ms) / 2;
            const int64_t wanted = known ? waited : 55 * MB; /* of 110 in the 9 ms */
            CHECK(rate.limit <= wanted + MB && rate.limit >= wanted * 9 / 10);
        }
    }
}

/* Its reader was not seen to consume yet: the next window's signal speaks of what was sent before
 * the cut, unless the sender sent at its limit since. */
static void a_sender_that_stood_is_not_cut_again(void)
{
    for (int32_t sends = 0; sends <= 1; sends++) {
        ps_pressure_control_t rate;
        ps_pressure_report_t report = report_of(5, 4);
        report.rtt_ns = 100 * MS;
        ps_pressure_control_init(&rate, 1408);
        stream_for(&rate, 100 * MB, 0, 10 * MS);
        CHECK(ps_pressure_control_signal(&rate, &report, 100 * MS));
        const int64_t limit = rate.limit;
        for (int64_t at_ms = 310; at_ms < 3000; at_ms += 210) {
            if (sends) {
                stream_for(&rate, rate.limit, (at_ms - 200) * MS, at_ms * MS);
            }
            ps_pressure_control_signal(&rate, &report, at_ms * MS);
        }
        CHECK_EQ(rate.limit, sends ? rate.floor : limit);
        report.rate = MB / 2; /* now it was */
        report.residue = 1;
        CHECK(sends || ps_pressure_control_signal(&rate, &report, 3100 * MS));
    }
}

/* The slowest that signals: others move the limit down only. */
static void the_slowest_sets_the_pace(void)
{
    ps_pressure_control_t rate;
    ps_pressure_report_t slow = report_of(1, 1), slower = report_of(2, 1);
    slow.rate = 20 * MB;
    slow.residue = 1;
    slower.rate = 10 * MB;
    slower.residue = 1;
    ps_pressure_control_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    CHECK(ps_pressure_control_signal(&rate, &slow, S));
    CHECK_EQ(rate.limit / MB, 19);
    CHECK(ps_pressure_control_signal(&rate, &slower, S + MS));
    CHECK_EQ(rate.culprit, 2);
    for (int64_t i = 2; i < 5000; i++) {
        CHECK(!ps_pressure_control_signal(&rate, &slow, S + i * MS));
        if (i % 50 == 0) {
            ps_pressure_control_signal(&rate, &slower, S + i * MS);
        }
        CHECK(rate.limit <= 10 * MB);
    }
    slower.rate = 15 * MB; /* it is faster now, and says so */
    CHECK(ps_pressure_control_signal(&rate, &slower, 7 * S));
    CHECK_EQ(rate.limit / MB, 14);
    CHECK_EQ(rate.signals, 4998 + 100 + 2);
}

/* Signals come once a cadence: silence for less is none. */
static void a_window_is_as_long_as_the_cadence(void)
{
    ps_pressure_control_t rate;
    ps_pressure_report_t report = report_of(1, 1);
    report.rate = 10 * MB;
    report.residue = 1;
    report.cadence_ns = 600 * MS;
    ps_pressure_control_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    ps_pressure_control_signal(&rate, &report, S);
    const int64_t limit = rate.limit;
    CHECK(!ps_pressure_control_step(&rate, S + 1199 * MS));
    CHECK_EQ(rate.limit, limit);
    CHECK(ps_pressure_control_step(&rate, S + 1200 * MS));
    report.cadence_ns = 0;
    report.rtt_ns = 100 * MS;
    ps_pressure_control_signal(&rate, &report, 4 * S);
    CHECK_EQ(rate.window_ns, 200 * MS);
    report.rtt_ns = INT64_MAX; /* not believed */
    ps_pressure_control_signal(&rate, &report, 5 * S);
    CHECK_EQ(rate.window_ns, S);
}

/* Two quiet windows bring three quarters of the way back to what is known to be taken. */
static void what_is_known_comes_back_at_once(void)
{
    ps_pressure_control_t rate;
    ps_pressure_report_t report = report_of(1, 4);
    report.rate = 10 * MB;
    report.residue = 50 * MB;
    ps_pressure_control_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    ps_pressure_control_signal(&rate, &report, S);
    CHECK_EQ(rate.limit / MB, 5);
    ps_pressure_control_step(&rate, S + 151 * MS);
    CHECK(rate.limit > 7 * MB && rate.limit < 10 * MB / 8 * 7);
}

static void never_below_the_floor_and_back_in_bounded_time(void)
{
    for (int32_t mtu = 1408; mtu <= 65504; mtu = mtu == 1408 ? 65504 : 65505) {
        ps_pressure_control_t rate;
        ps_pressure_control_init(&rate, mtu);
        int64_t now_ns = 0;
        for (int i = 0; i < 500; i++) {
            stream_for(&rate, rate.limit < S ? rate.limit : S, now_ns, now_ns + 50 * MS);
            now_ns += 50 * MS;
            const ps_pressure_report_t report = report_of(1 + i, 4); /* each of another */
            ps_pressure_control_signal(&rate, &report, now_ns);
            CHECK(rate.limit >= rate.floor);
        }
        CHECK_EQ(rate.limit, rate.floor);
        CHECK(rate.floor / 20 >= 2 * (int64_t)mtu);
        const int64_t goals[] = { MB, 100 * MB, 10000 * MB, PS_PRESSURE_UNLIMITED - 1 };
        const int64_t since_ns = now_ns;
        for (int g = 0; g < 4; g++) {
            while (rate.limit <= goals[g]) {
                now_ns += 50 * MS;
                ps_pressure_control_step(&rate, now_ns);
                CHECK((now_ns - since_ns) / (50 * MS) <=
                      ps_pressure_recovery_windows(rate.floor, goals[g]) + 1);
            }
        }
        CHECK(!ps_pressure_control_limits(&rate));
        CHECK(now_ns - since_ns < 5 * S);
        printf("mtu %d: from the floor of %lld B/s to no limit in %lld ms\n", mtu,
               (long long)rate.floor, (long long)((now_ns - since_ns) / MS));
    }
}

/* How far the limit goes up in a quiet window at the wall, in ppm, after signals of these rates. */
static int64_t probe_after(int64_t even, int64_t odd)
{
    ps_pressure_control_t rate;
    int64_t now_ns = S;
    ps_pressure_control_init(&rate, 1408);
    for (int32_t i = 0; i < 12; i++) {
        ps_pressure_report_t report = report_of(1, 1);
        report.rate = i % 2 == 0 ? even : odd;
        report.residue = 1;
        now_ns += 100 * MS;
        ps_pressure_control_signal(&rate, &report, now_ns);
    }
    rate.limit = rate.wall;
    rate.quiet = 0;
    rate.level = 0;
    const int64_t before = rate.limit;
    ps_pressure_control_step(&rate, rate.window_end_ns);
    return (rate.limit - before) * 1000000 / before;
}

static void erratic_receivers_are_probed_coarsely(void)
{
    const int64_t steady = probe_after(100 * MB, 100 * MB);
    const int64_t erratic = probe_after(100 * MB, 60 * MB);
    printf("probe at the wall: %lld ppm of a steady one, %lld of an erratic one\n",
           (long long)steady, (long long)erratic);
    CHECK(steady >= 1000000 / 64 && steady <= 1000000 / 32);
    CHECK(erratic >= 2 * steady && erratic <= 1000000 / 8);
}

/* Signals of any level at any rate, for some seconds; then down to the floor, if requested. */
static int64_t any_history(ps_pressure_control_t *rate, ps_random_t *random, bool to_the_floor)
{
    const int64_t rtt_ns = (int64_t)ps_random_below(random, 25) * MS;
    int64_t now_ns = S;
    ps_pressure_control_init(rate, 1408);
    for (uint64_t i = ps_random_below(random, 100); i > 0; i--) {
        const int64_t demand = MB << ps_random_below(random, 12);
        const int64_t until_ns = now_ns + (int64_t)(1 + ps_random_below(random, 400)) * MS;
        for (; now_ns < until_ns; now_ns += MS) {
            ps_pressure_control_step(rate, now_ns);
            stream_for(rate, rate->limit < demand ? rate->limit : demand, now_ns, now_ns + MS);
        }
        ps_pressure_report_t report = report_of(1, 1 + (int32_t)ps_random_below(random, 4));
        report.rtt_ns = rtt_ns;
        report.rate = (int64_t)ps_random_below(random, 3) * (MB << ps_random_below(random, 8));
        report.residue = (int64_t)ps_random_below(random, 2) * MB;
        report.overrun = (int64_t)ps_random_below(random, 2) * MB;
        ps_pressure_control_signal(rate, &report, now_ns);
        CHECK(rate->limit >= rate->floor);
    }
    for (int32_t i = 0; to_the_floor && rate->limit > rate->floor; i++) {
        CHECK(i < 400);
        stream_for(rate, rate->limit < S ? rate->limit : S, now_ns, now_ns + 50 * MS);
        now_ns += 50 * MS;
        ps_pressure_report_t report = report_of(2 + i, 4);
        report.rtt_ns = rtt_ns;
        ps_pressure_control_signal(rate, &report, now_ns);
    }
    return now_ns;
}

/* No permanent degrade: whatever was heard before, silence ends in no limit, within the bound. */
static void recovery_is_bounded_whatever_happened(void)
{
    int64_t least_ms = INT64_MAX, most_ms = 0;
    ps_random_t random;
    ps_random_seed(&random, 20);
    for (int32_t i = 0; i < 3000; i++) {
        ps_pressure_control_t rate;
        const bool from_floor = i % 2 == 0;
        const int64_t since_ns = any_history(&rate, &random, from_floor);
        const int32_t bound = ps_pressure_recovery_windows(rate.limit, PS_PRESSURE_UNLIMITED - 1);
        int64_t now_ns = since_ns;
        CHECK(bound < 130);
        while (ps_pressure_control_limits(&rate)) {
            now_ns += MS;
            ps_pressure_control_step(&rate, now_ns);
            CHECK(now_ns - since_ns <= (bound + 1) * 50 * MS); /* the first is under way */
        }
        if (from_floor) {
            const int64_t ms = (now_ns - since_ns) / MS;
            least_ms = ms < least_ms ? ms : least_ms;
            most_ms = ms > most_ms ? ms : most_ms;
        }
    }
    printf("from the floor to no limit in %lld to %lld ms, whatever happened before\n",
           (long long)least_ms, (long long)most_ms);
    CHECK(least_ms >= 1500 && most_ms <= 5000);
}

static void steps_grow_with_the_time_since_the_last_signal(void)
{
    ps_pressure_control_t rate;
    int64_t step = 0;
    ps_pressure_control_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    const ps_pressure_report_t report = report_of(1, 4);
    ps_pressure_control_signal(&rate, &report, S);
    rate.wall = 0; /* nothing is known of what it takes */
    ps_pressure_control_step(&rate, S + 50 * MS);
    for (int64_t i = 2; i < 6; i++) {
        const int64_t before = rate.limit;
        ps_pressure_control_step(&rate, S + i * 50 * MS);
        const int64_t part = (rate.limit - before) * 1000 / before;
        CHECK(part > step); /* of the limit: not only because that grows */
        step = part;
    }
}

int main(void)
{
    RUN(a_pause_is_not_measured);
    RUN(strength_decides_the_cut);
    RUN(a_backlog_is_drained);
    RUN(who_takes_all_is_not_cut);
    RUN(an_overrun_cuts_more);
    RUN(a_sender_at_its_edge_is_not_cut_to_nothing);
    RUN(a_sender_that_stood_is_not_cut_again);
    RUN(the_slowest_sets_the_pace);
    RUN(a_window_is_as_long_as_the_cadence);
    RUN(what_is_known_comes_back_at_once);
    RUN(never_below_the_floor_and_back_in_bounded_time);
    RUN(erratic_receivers_are_probed_coarsely);
    RUN(recovery_is_bounded_whatever_happened);
    RUN(steps_grow_with_the_time_since_the_last_signal);
    return 0;
}
