/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control, the sender's half, in numbers: the size of each step of the limit, the wall
 * that it is relative to, the measured sending rate, and the bound on recovery. Each number follows
 * from docs/nak-strength.md, section "Rates of the sender".
 */
#include <math.h>

#include "check.h"
#include "ps_pressure_control.h"
#include "ps_random.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
#define MB INT64_C(1000000)

static double least_of(double a, double b)
{
    return a < b ? a : b;
}

static double most_of(double a, double b)
{
    return a > b ? a : b;
}

/* Integer divisions lose a few bytes. */
static bool is_near(double value, double wanted)
{
    return fabs(value - wanted) <= 40;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Returns a sender whose window ends at 1 s. quiet: number of windows without a signal until now;
 * beyond: number of these windows in which the limit was above the wall. */
static ps_pressure_control_t sender_at(int64_t limit, int64_t wall, int64_t deviation,
                                       int32_t quiet, int32_t beyond)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    rate.limit = limit;
    rate.wall = wall;
    rate.wall_dev = deviation;
    rate.quiet = quiet;
    rate.beyond = beyond;
    rate.window_end_ns = S;
    return rate;
}

/* Returns the step of the limit in the window number k without a signal, of which j were above the
 * wall. */
static double step_by_law(double limit, double wall, double deviation, double k, double j)
{
    const double away = least_of(k, 8), fast = limit * away / 16;
    if (wall > 0 && limit > wall * 9 / 8) {
        return limit * least_of(j, 8) / 32;
    }
    if (limit < wall * 7 / 8 || wall == 0) {
        return most_of(fast, (wall * 7 / 8 - limit) / 2);
    }
    const double probe = most_of(limit / 64, least_of(limit / 16, deviation / 4));
    return least_of(fast, probe * (1 + away / 8));
}

static void each_step_is_as_the_law_states(void)
{
    static const int64_t of_wall[] = { 10, 500, 800, 860, 890, 1000, 1100, 1140, 1500, 9000 };
    for (int64_t wall = MB; wall <= 4096 * MB; wall *= 8) {
        for (size_t i = 0; i < sizeof of_wall / sizeof *of_wall; i++) {
            for (int64_t part = 4; part <= 256; part *= 2) {
                for (int32_t quiet = 0; quiet <= 20; quiet++) {
                    const int64_t limit = wall / 1000 * of_wall[i];
                    const int64_t deviation = wall / part;
                    const int32_t beyond = limit > wall * 9 / 8 ? quiet / 2 : 0;
                    ps_pressure_control_t rate = sender_at(limit, wall, deviation, quiet, beyond);
                    CHECK(ps_pressure_control_step(&rate, S));
                    const double step = step_by_law((double)limit, (double)wall, (double)deviation,
                                                    quiet + 1, beyond + 1);
                    CHECK(is_near((double)(rate.limit - limit), step));
                    CHECK_EQ(rate.quiet, quiet + 1);
                    CHECK_EQ(rate.beyond, limit > wall * 9 / 8 ? beyond + 1 : 0);
                    CHECK_EQ(rate.wall, wall);
                }
            }
        }
    }
}

/* Without a wall, only the number of windows counts. */
static void without_a_wall_steps_grow_to_half_the_limit(void)
{
    for (int32_t quiet = 0; quiet <= 12; quiet++) {
        ps_pressure_control_t rate = sender_at(64 * MB, 0, 0, quiet, 3);
        CHECK(ps_pressure_control_step(&rate, S));
        CHECK_EQ(rate.limit - 64 * MB, 4 * MB * (quiet < 8 ? quiet + 1 : 8));
        CHECK_EQ(rate.beyond, 0);
    }
}

/* The borders of the wall: 7/8 of it belongs to it, and so does 9/8. */
static void the_wall_has_its_borders(void)
{
    const int64_t wall = 64 * MB;
    ps_pressure_control_t rate = sender_at(wall / 8 * 7, wall, 0, 7, 0);
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK_EQ(rate.limit, wall / 8 * 7 + wall / 8 * 7 / 32);
    rate = sender_at(wall / 8 * 7 - 1, wall, 0, 7, 0);
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK(rate.limit > wall);
    rate = sender_at(wall / 8 * 9, wall, 0, 7, 7);
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK_EQ(rate.limit, wall / 8 * 9 + wall / 8 * 9 / 32);
    rate = sender_at(wall / 8 * 9 + 64, wall, 0, 7, 7);
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK_EQ(rate.limit, (wall / 8 * 9 + 64) / 32 * 40);
}

/* A window with a signal raises nothing; the next one is the first without a signal. */
static void a_window_with_a_signal_raises_nothing(void)
{
    ps_pressure_control_t rate = sender_at(64 * MB, 0, 0, 0, 0);
    rate.level = 2;
    CHECK(!ps_pressure_control_step(&rate, S));
    CHECK(rate.limit == 64 * MB && rate.level == 0 && rate.quiet == 0);
    CHECK_EQ(rate.window_end_ns, S + 50 * MS);
    CHECK(!ps_pressure_control_step(&rate, S + 50 * MS - 1));
    CHECK(ps_pressure_control_step(&rate, S + 50 * MS));
    CHECK(rate.limit == 68 * MB && rate.quiet == 1);
}

/* At most 64 windows count at once; then the next window begins at the present time. */
static void a_sleeper_makes_64_steps_at_most(void)
{
    ps_pressure_control_t late = sender_at(900000 * MB, 1000000 * MB, 0, 0, 0), steady = late;
    late.window_ns = steady.window_ns = MS;
    for (int64_t i = 0; i < 64; i++) {
        ps_pressure_control_step(&steady, S + i * MS);
    }
    ps_pressure_control_step(&late, S + 63 * MS);
    CHECK(late.limit == steady.limit && late.window_end_ns == steady.window_end_ns);
    ps_pressure_control_t later = sender_at(MB, 0, 0, 0, 0);
    later.limit = 1; /* steps of nothing */
    ps_pressure_control_step(&later, 100 * S);
    CHECK_EQ(later.quiet, 64);
    CHECK_EQ(later.window_end_ns, 100 * S + 50 * MS);
}

/* The limit that passes the highest one is lifted, and nothing of the past remains. */
static void a_limit_above_all_is_lifted(void)
{
    ps_pressure_control_t rate = sender_at(PS_PRESSURE_UNLIMITED / 64 * 63, MB, MB, 30, 30);
    rate.window_ns = 200 * MS;
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK(!ps_pressure_control_limits(&rate));
    CHECK(rate.limit == PS_PRESSURE_UNLIMITED && rate.window_end_ns == 0 && rate.wall == 0);
    CHECK(rate.quiet == 0 && rate.beyond == 0 && rate.window_ns == 50 * MS);
    CHECK(!ps_pressure_control_step(&rate, 10 * S));
}

/* ---- the wall -------------------------------------------------------------------------------- */

static void signal_rate(ps_pressure_control_t *sender, int64_t rate, int64_t residue,
                        int64_t now_ns)
{
    const ps_pressure_report_t report = {
        .receiver_id = 1, .level = 1, .capacity = MB, .rate = rate, .residue = residue
    };
    ps_pressure_control_signal(sender, &report, now_ns);
}

/* Each stated rate changes the mean and the deviation by a quarter of the difference. */
static void the_wall_is_the_mean_of_stated_rates(void)
{
    ps_random_t random;
    ps_random_seed(&random, 7);
    for (int32_t run = 0; run < 200; run++) {
        ps_pressure_control_t rate;
        double wall = 0, deviation = 0;
        ps_pressure_control_init(&rate, 1408);
        for (int64_t i = 1; i <= 40; i++) {
            const double stated = (double)(MB + (int64_t)ps_random_below(&random, 9000000));
            signal_rate(&rate, (int64_t)stated, 1, i * 100 * MS);
            if (wall == 0 || stated < wall / 2 - 2) { /* the old wall no longer counts */
                wall = stated;
                deviation = stated / 8;
            } else {
                deviation += (fabs(stated - wall) - deviation) / 4;
                wall += (stated - wall) / 4;
            }
            CHECK(is_near((double)rate.wall, wall) && is_near((double)rate.wall_dev, deviation));
            wall = (double)rate.wall;
            deviation = (double)rate.wall_dev;
        }
        signal_rate(&rate, 5 * MB, 0, 5 * S); /* it takes all: its highest rate is unknown */
        CHECK_EQ(rate.wall, 0);
    }
}

/* A window has one wall, however many signals it has. */
static void the_signals_of_one_window_count_once(void)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    signal_rate(&rate, 8 * MB, 1, S);
    for (int64_t i = 1; i < 50; i++) {
        signal_rate(&rate, 7 * MB, 1, S + i * MS);
        CHECK_EQ(rate.wall, 8 * MB);
    }
    signal_rate(&rate, 4 * MB, 1, S + 50 * MS);
    CHECK_EQ(rate.wall, 7 * MB);
    CHECK_EQ(rate.wall_dev, MB + (4 * MB - MB) / 4);
    signal_rate(&rate, 4 * MB / 10, 1, S + 100 * MS);
    CHECK(rate.wall == 4 * MB / 10 && rate.wall_dev == MB / 20);
    signal_rate(&rate, 1, 1, S + 150 * MS); /* below the floor: the floor */
    CHECK_EQ(rate.wall, rate.floor);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool signal_level(ps_pressure_control_t *sender, int64_t receiver, int32_t level,
                         int64_t now_ns)
{
    const ps_pressure_report_t report = { .receiver_id = receiver, .level = level, .capacity = MB };
    return ps_pressure_control_signal(sender, &report, now_ns);
}

/* All signals of a window refer to the sending rate at its begin: no signal cuts what another one
 * has cut.  The rates of the readers are unknown. */
static void the_cuts_of_a_window_have_one_base(void)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    for (int64_t ms = 0; ms < 1000; ms++) {
        ps_pressure_control_sent(&rate, MB / 10, ms * MS);
    }
    CHECK(signal_level(&rate, 1, 1, S));
    CHECK_EQ(rate.limit, 100 * MB / 64 * 56);
    CHECK(rate.wall == 100 * MB && rate.wall_dev == 100 * MB / 8); /* what it sent is the wall */
    CHECK(signal_level(&rate, 1, 2, S + 10 * MS));
    CHECK_EQ(rate.limit, 100 * MB / 64 * 48);
    CHECK(!signal_level(&rate, 1, 2, S + 20 * MS));
    CHECK(!signal_level(&rate, 2, 2, S + 20 * MS)); /* another receiver, the same rate */
    CHECK(rate.limit == 100 * MB / 64 * 48 && rate.culprit == 1 && rate.level == 2);
    CHECK(signal_level(&rate, 2, 3, S + 30 * MS));
    CHECK(rate.limit == 100 * MB / 64 * 40 && rate.culprit == 2 && rate.level == 3);
    CHECK(!signal_level(&rate, 1, 1, S + 40 * MS));
    CHECK(signal_level(&rate, 1, 4, S + 50 * MS - 1));
    CHECK(rate.limit == 100 * MB / 64 * 32 && rate.culprit == 1 && rate.level == 4);
    CHECK(rate.signals == 7 && rate.cuts == 4);
}

/* The next window has the sending rate of its own begin, at most the limit. */
static void each_window_has_its_own_base(void)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    for (int64_t ms = 0; ms < 1100; ms++) {
        if (ms == 1000) {
            CHECK(signal_level(&rate, 1, 4, S));
            CHECK_EQ(rate.limit, 100 * MB / 2);
        }
        ps_pressure_control_sent(&rate, ms < 1000 ? MB / 10 : MB / 25, ms * MS);
    }
    CHECK(!signal_level(&rate, 2, 1, S + 50 * MS - 1)); /* the base of 100 is that of this window */
    CHECK(signal_level(&rate, 2, 1, S + 100 * MS));
    CHECK_EQ(rate.limit, 40 * MB / 64 * 56);
    CHECK_EQ(rate.base, 40 * MB);
}

/* A signal that states nothing new still begins a new window without a step. */
static void a_repeated_signal_delays_the_next_step(void)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    for (int64_t ms = 0; ms < 1000; ms++) {
        ps_pressure_control_sent(&rate, MB / 10, ms * MS);
    }
    CHECK(signal_level(&rate, 1, 2, S));
    CHECK(!signal_level(&rate, 1, 1, S + 30 * MS));
    CHECK_EQ(rate.window_end_ns, S + 80 * MS);
    CHECK(
        !ps_pressure_control_step(&rate, S + 130 * MS - 1)); /* 80 ends the window of the signal */
    CHECK(ps_pressure_control_step(&rate, S + 130 * MS));
}

/* After a signal, the numbers of windows without a signal begin again. */
static void a_signal_begins_the_count_of_windows_again(void)
{
    ps_pressure_control_t rate = sender_at(64 * MB, MB, 0, 7, 7);
    rate.culprit = 1;
    CHECK(ps_pressure_control_step(&rate, S));
    CHECK(rate.quiet == 8 && rate.beyond == 8);
    signal_rate(&rate, 10 * MB, 1, S + MS);
    CHECK(rate.quiet == 0 && rate.beyond == 0 && rate.level == 1);
}

/* An overrun lowers the request; a reader without a residue gets at least the part of the sending
 * rate that its level allows. */
static void an_overrun_is_bounded_by_the_strength(void)
{
    static const int64_t of_sent[] = { 0, 56, 48, 40, 32 };
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408);
    for (int32_t level = 1; level <= 4; level++) {
        ps_pressure_report_t report = { .receiver_id = 1, .level = level, .capacity = MB };
        const int64_t strength = 128 * MB / 64 * of_sent[level];
        report.rate = 8 * MB;
        report.overrun = MB;
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 128 * MB), strength);
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, MB), 4 * MB);
        report.residue = 1;
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 128 * MB), 4 * MB);
    }
}

/* Of the data of one cadence, a capacity is certainly kept; a cadence below 1 ms does not count. */
static void a_request_is_at_most_a_capacity_in_a_cadence(void)
{
    ps_pressure_control_t rate;
    ps_pressure_report_t report = { .receiver_id = 1, .level = 4, .capacity = MB };
    ps_pressure_control_init(&rate, 1408);
    report.rate = 6400 * MB;
    for (int64_t ms = 1; ms <= 1000; ms *= 10) {
        report.cadence_ns = ms * MS;
        CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 0), 1000 * MB / ms / 64 * 65);
    }
    report.cadence_ns = MS - 1;
    CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 0), 6400 * MB / 64 * 65);
    report.cadence_ns = S;
    report.level = 1; /* also of the present rate, which the reader may be able to take */
    CHECK_EQ(ps_pressure_control_wanted(&rate, &report, 64 * MB), 64 * MB / 64 * 56);
    CHECK_EQ(ps_pressure_control_wanted(&rate, &report, MB / 64), MB / 64 * 72);
}

/* A sender that waits at its edge for longer than 50 ms sends a capacity in two round trips. */
static void a_sender_at_its_edge_sends_a_capacity_in_two_round_trips(void)
{
    for (int64_t rtt_ms = 50; rtt_ms <= 400; rtt_ms *= 2) {
        ps_pressure_control_t rate;
        const ps_pressure_report_t report = {
            .receiver_id = 1, .level = 4, .capacity = 64 * MB, .rate = 1, .rtt_ns = rtt_ms * MS
        };
        ps_pressure_control_init(&rate, 1408);
        CHECK(ps_pressure_control_signal(&rate, &report, S));
        CHECK_EQ(rate.base, 64 * MB * 1000 / (2 * rtt_ms));
        CHECK_EQ(rate.limit, rate.base / 2);
    }
}

/* The reader's rate is unknown, and a cut is over: a sender that has sent half of its limit since
 * then is cut again, one that has sent less is not. */
static void a_sender_that_sends_half_its_limit_is_cut_again(void)
{
    for (int64_t percent = 40; percent <= 60; percent++) {
        ps_pressure_control_t rate;
        ps_pressure_control_init(&rate, 1408);
        for (int64_t ms = 0; ms < 1100; ms++) {
            if (ms == 1000) {
                CHECK(signal_level(&rate, 1, 4, S));
                CHECK_EQ(rate.limit, 100 * MB / 2);
            }
            ps_pressure_control_sent(&rate, ms < 1000 ? MB / 10 : 500 * percent, ms * MS);
        }
        rate.limit = 50 * MB; /* without the step of the window between */
        rate.window_end_ns = S + 101 * MS;
        rate.level = 0;
        CHECK(signal_level(&rate, 1, 4, S + 100 * MS) == (percent >= 50));
        CHECK_EQ(rate.limit, percent >= 50 ? 500 * percent * 1000 / 2 : 50 * MB);
    }
}

static void the_floor_is_two_datagrams_a_window(void)
{
    ps_pressure_control_t rate;
    ps_pressure_control_init(&rate, 1408); /* 2 * 1408 * 20 are less than 128 KiB */
    CHECK_EQ(rate.floor, 128 * 1024);
    ps_pressure_control_init(&rate, 65504);
    CHECK_EQ(rate.floor, 2 * 65504 * 20);
}

/* ---- the sending rate ------------------------------------------------------------------------ */

/* Each eighth of 50 ms has another number of bytes: the whole eighths of the last 50 ms count. */
static void the_rate_is_that_of_the_last_50_ms(void)
{
    enum { BUCKETS = 60 };
    static const int64_t bucket_ns = 50 * MS / 8;
    ps_random_t random;
    ps_random_seed(&random, 3);
    for (int32_t run = 0; run < 200; run++) {
        ps_pressure_control_t rate;
        int64_t sent[BUCKETS];
        ps_pressure_control_init(&rate, 1408);
        for (int64_t i = 0; i < BUCKETS; i++) {
            int64_t last = 0;
            sent[i] = 1 + (int64_t)ps_random_below(&random, 100000);
            ps_pressure_control_sent(&rate, sent[i], S + i * bucket_ns);
            for (int64_t k = i - 8; i >= 9 && k < i; k++) {
                last += sent[k];
            }
            if (i >= 9) {
                CHECK_EQ(ps_pressure_control_measured(&rate, S + (i + 1) * bucket_ns - 1),
                         last * 20);
            }
        }
    }
}

/* If the sender began to send less than 50 ms ago, the rate is over the time since then. */
static void a_young_rate_is_over_the_time_since_its_begin(void)
{
    for (int64_t silent_ms = 49; silent_ms <= 60; silent_ms++) {
        const int64_t begin_ns = S + silent_ms * MS;
        ps_pressure_control_t rate;
        ps_pressure_control_init(&rate, 1408);
        if (silent_ms >= 50) { /* it sent before, and then was silent; at 49 it did not send */
            ps_pressure_control_sent(&rate, 7 * MB, S);
        }
        for (int64_t ms = 0; ms < 50; ms++) {
            ps_pressure_control_sent(&rate, 1000, begin_ns + ms * MS);
            /* The time counts as an eighth of a bucket at least. */
            const int64_t over_us = ms * 1000 < 781 ? 781 : ms * 1000;
            CHECK_EQ(ps_pressure_control_measured(&rate, begin_ns + ms * MS),
                     (ms + 1) * 1000 * 1000000 / over_us);
        }
        if (silent_ms == 50) { /* the last 50 ms are eight whole parts */
            ps_pressure_control_sent(&rate, 1000, begin_ns + 50 * MS);
            CHECK_EQ(ps_pressure_control_measured(&rate, begin_ns + 50 * MS), MB);
        }
    }
}

/* ---- recovery -------------------------------------------------------------------------------- */

/* The number of steps of k / 32, at most 8 / 32, and 33 windows more. */
static void the_bound_is_that_of_the_page(void)
{
    for (int64_t from = 128 * 1024; from <= 128 * MB; from *= 2) {
        for (int64_t to = from; to < PS_PRESSURE_UNLIMITED; to *= 3) {
            double limit = (double)from;
            int32_t steps = 0;
            while (limit <= (double)to) {
                steps++;
                limit += limit * least_of(steps, 8) / 32;
            }
            const int32_t bound = ps_pressure_recovery_windows(from, to);
            CHECK(bound >= steps + 33 && bound <= steps + 34); /* a rounded step may cost one */
        }
    }
    CHECK_EQ(ps_pressure_recovery_windows(MB, MB - 1), 33);
    CHECK_EQ(ps_pressure_recovery_windows(PS_PRESSURE_UNLIMITED, PS_PRESSURE_UNLIMITED), 33);
}

int main(void)
{
    RUN(each_step_is_as_the_law_states);
    RUN(without_a_wall_steps_grow_to_half_the_limit);
    RUN(the_wall_has_its_borders);
    RUN(a_window_with_a_signal_raises_nothing);
    RUN(a_sleeper_makes_64_steps_at_most);
    RUN(a_limit_above_all_is_lifted);
    RUN(the_wall_is_the_mean_of_stated_rates);
    RUN(the_signals_of_one_window_count_once);
    RUN(the_cuts_of_a_window_have_one_base);
    RUN(each_window_has_its_own_base);
    RUN(a_repeated_signal_delays_the_next_step);
    RUN(a_signal_begins_the_count_of_windows_again);
    RUN(an_overrun_is_bounded_by_the_strength);
    RUN(a_request_is_at_most_a_capacity_in_a_cadence);
    RUN(a_sender_at_its_edge_sends_a_capacity_in_two_round_trips);
    RUN(a_sender_that_sends_half_its_limit_is_cut_again);
    RUN(the_floor_is_two_datagrams_a_window);
    RUN(the_rate_is_that_of_the_last_50_ms);
    RUN(a_young_rate_is_over_the_time_since_its_begin);
    RUN(the_bound_is_that_of_the_page);
    return 0;
}
