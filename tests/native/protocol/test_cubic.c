/* SPDX-License-Identifier: Apache-2.0
 * CUBIC by itself: the cube root, the window after a loss, one event a round trip, fast
 * convergence, the Reno-friendly region, bounds, idle time, and the exit from slow start.
 */
#include "check.h"
#include "ps_congestion.h"
#include "ps_cubic.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_rtt.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
enum { SEGMENT = 1408 };

static int64_t segments(const ps_cubic_t *cubic)
{
    return ps_cubic_window(cubic) / SEGMENT;
}

/* Every perfect cube of 64 bits would be 2.6 million: all of them, and both neighbours. */
static void cube_roots(void)
{
    CHECK_EQ(ps_cube_root(0), 0);
    CHECK_EQ(ps_cube_root(1), 1);
    for (uint64_t root = 2; root <= 2642245; root++) {
        const uint64_t cube = root * root * root;
        CHECK(ps_cube_root(cube) == root);
        CHECK(ps_cube_root(cube - 1) == root - 1);
        CHECK(ps_cube_root(cube + 1) == root);
    }
    CHECK_EQ(ps_cube_root(UINT64_MAX), 2642245);
}

/* A path of rtt that delivers a full window each round trip, in ten parts. */
static int64_t run(ps_cubic_t *cubic, int64_t now_ns, int64_t rtt_ns, int32_t rounds)
{
    for (int32_t i = 0; i < 10 * rounds; i++) {
        now_ns += rtt_ns / 10;
        ps_cubic_on_rtt(cubic, rtt_ns, rtt_ns);
        ps_cubic_on_received(cubic, ps_cubic_window(cubic) / 10, now_ns);
    }
    return now_ns;
}

static void starts_with_ten_and_doubles(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, SEGMENT, 1 << 24, false);
    CHECK_EQ(segments(&cubic), 10);
    int64_t now_ns = run(&cubic, S, 100 * MS, 1);
    CHECK(segments(&cubic) >= 20 && segments(&cubic) <= 27); /* (1 + 1/10)^10 */
    now_ns = run(&cubic, now_ns, 100 * MS, 2);
    CHECK(segments(&cubic) > 100);
    CHECK_EQ(cubic.phase, PS_CUBIC_SLOW_START);
    run(&cubic, now_ns, 100 * MS, 20);
    CHECK_EQ(ps_cubic_window(&cubic), 1 << 24); /* and stops at the receiver's largest */
}

static void a_small_receiver_window_bounds_it(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, SEGMENT, 4096, false);
    CHECK_EQ(ps_cubic_window(&cubic), 4096);
    CHECK(ps_cubic_on_loss(&cubic, 0, 4096, S));
    CHECK(ps_cubic_on_loss(&cubic, 5000, 9000, 2 * S));
    CHECK_EQ(ps_cubic_window(&cubic), 2 * SEGMENT);
    CHECK(ps_cubic_on_loss(&cubic, 10000, 12000, 3 * S));
    CHECK_EQ(ps_cubic_window(&cubic), 2 * SEGMENT);
    ps_cubic_init(&cubic, SEGMENT, 1000, false); /* less than two datagrams: all there is */
    CHECK(ps_cubic_on_loss(&cubic, 0, 1000, S));
    CHECK_EQ(ps_cubic_window(&cubic), 1000);
}

/* From 1000 segments: 700 at once, level again at K = cbrt(300 / 0.4) = 9.086 s, slow around it. */
static void the_cubic_after_a_loss(void)
{
    ps_cubic_t cubic;
    int64_t now_ns = S;
    ps_cubic_init(&cubic, SEGMENT, 1 << 26, false);
    cubic.window_q = (INT64_C(1000) * SEGMENT) << 16;
    CHECK(ps_cubic_on_loss(&cubic, 0, 1000 * SEGMENT, now_ns));
    CHECK_EQ(segments(&cubic), 700);
    CHECK(cubic.k_ticks >= 90855 && cubic.k_ticks <= 90857);
    now_ns = run(&cubic, now_ns, 10 * MS, 300);
    /* 3 s: 1000 - 0.4 * (9.086 - 3)^3 = 909.8 */
    CHECK(segments(&cubic) >= 905 && segments(&cubic) <= 912);
    now_ns = run(&cubic, now_ns, 10 * MS, 609);
    CHECK(segments(&cubic) >= 997 && segments(&cubic) <= 1001);
    run(&cubic, now_ns, 10 * MS, 500);
    /* 5 s beyond: 1000 + 0.4 * 125 */
    CHECK(segments(&cubic) >= 1045 && segments(&cubic) <= 1053);
}

static void one_event_for_one_window(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, SEGMENT, 1 << 24, false);
    cubic.window_q = (INT64_C(100) * SEGMENT) << 16;
    CHECK(ps_cubic_on_loss(&cubic, 50000, 200000, S));
    const int64_t after = ps_cubic_window(&cubic);
    CHECK(!ps_cubic_on_loss(&cubic, 60000, 210000, S + MS));
    CHECK(!ps_cubic_on_loss(&cubic, 199999, 220000, 2 * S));
    CHECK_EQ(ps_cubic_window(&cubic), after);
    CHECK(ps_cubic_on_loss(&cubic, 200000, 300000, 3 * S));
    CHECK(ps_cubic_window(&cubic) < after);
}

static void fast_convergence(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, SEGMENT, 1 << 24, false);
    cubic.window_q = (INT64_C(100) * SEGMENT) << 16;
    CHECK(ps_cubic_on_loss(&cubic, 0, 1, S));
    CHECK_EQ(cubic.peak, 100 * SEGMENT);
    CHECK(ps_cubic_on_loss(&cubic, 2, 3, 2 * S)); /* before it was back: 70 * (1 + 0.7) / 2 */
    CHECK(cubic.peak / SEGMENT >= 59 && cubic.peak / SEGMENT <= 60);
}

/* With losses at equal distances a window meets its plateau to within thousandths of a segment.
 * The growth of the last round trip, 8.8 bytes here, is not lower. */
static void the_last_round_trip_is_not_lower(void)
{
    for (int64_t below = 8; below <= 9; below++) {
        ps_cubic_t cubic;
        ps_cubic_init(&cubic, SEGMENT, 1 << 24, false);
        ps_cubic_on_rtt(&cubic, 250 * MS, 250 * MS);
        cubic.window_q = (INT64_C(100) * SEGMENT) << 16;
        CHECK(ps_cubic_on_loss(&cubic, 0, 1, S));
        const int64_t window = 100 * SEGMENT - below;
        cubic.window_q = window << 16;
        CHECK(ps_cubic_on_loss(&cubic, 2, 3, 2 * S));
        CHECK_EQ(cubic.peak, below < 9 ? window : window - window * 3 / 20);
    }
}

/* At 10 ms the cubic alone needs seconds to grow; Reno's line is above it. */
static void friendly_region(void)
{
    ps_cubic_t plain, friendly;
    ps_cubic_init(&plain, SEGMENT, 1 << 24, false);
    plain.window_q = (INT64_C(20) * SEGMENT) << 16;
    ps_cubic_init(&friendly, SEGMENT, 1 << 24, true);
    friendly.window_q = plain.window_q;
    CHECK(ps_cubic_on_loss(&plain, 0, 1, S));
    CHECK(ps_cubic_on_loss(&friendly, 0, 1, S));
    run(&plain, S, 10 * MS, 20);
    run(&friendly, S, 10 * MS, 20);
    /* 14 + 12 rounds of 9/17 to be back at 20, then 8 of 1 */
    CHECK(segments(&friendly) >= 26 && segments(&friendly) <= 30);
    CHECK(segments(&plain) < 18);
}

/* A stream that uses a tenth of its window neither grows it nor lets the cubic's time run. */
static void idle_time_does_not_count(void)
{
    ps_cubic_t cubic;
    int64_t now_ns = S;
    ps_cubic_init(&cubic, SEGMENT, 1 << 26, false);
    cubic.window_q = (INT64_C(1000) * SEGMENT) << 16;
    CHECK(ps_cubic_on_loss(&cubic, 0, 1, now_ns));
    now_ns = run(&cubic, now_ns, 100 * MS, 5);
    const int64_t before = ps_cubic_window(&cubic);
    for (int32_t i = 0; i < 3000; i++) { /* 30 s */
        now_ns += 10 * MS;
        ps_cubic_on_received(&cubic, before / 100, now_ns);
    }
    CHECK(ps_cubic_window(&cubic) < before + before / 50);
    run(&cubic, now_ns, 100 * MS, 10);
    CHECK(ps_cubic_window(&cubic) < before + before / 5); /* 1.5 s of cubic, not 31 s */
}

/* Of a round that was not used, in which a loss began an epoch, only what there was of the epoch
 * does not count: it never begins in the future. */
static void an_epoch_begins_by_now(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, SEGMENT, 1 << 26, false);
    cubic.window_q = (INT64_C(1000) * SEGMENT) << 16;
    cubic.round_window = INT64_C(1000) * SEGMENT;
    ps_cubic_on_rtt(&cubic, 100 * MS, 100 * MS);
    ps_cubic_on_received(&cubic, SEGMENT, S);
    CHECK(ps_cubic_on_loss(&cubic, 0, 1, S + 90 * MS));
    ps_cubic_on_received(&cubic, SEGMENT, S + 100 * MS); /* ends the round, a little used */
    CHECK(!cubic.limited);
    CHECK_EQ(cubic.epoch_ns, S + 100 * MS);
}

/* The queue fills, round trips grow: no loss is needed to stop doubling; a passing delay is
 * forgiven. */
static void slow_start_ends_by_delay(void)
{
    ps_cubic_t cubic;
    int64_t now_ns;
    ps_cubic_init(&cubic, SEGMENT, 1 << 26, false);
    now_ns = run(&cubic, S, 100 * MS, 3);
    CHECK_EQ(cubic.phase, PS_CUBIC_SLOW_START);
    now_ns = run(&cubic, now_ns, 113 * MS, 2);
    CHECK_EQ(cubic.phase, PS_CUBIC_CONSERVATIVE);
    now_ns = run(&cubic, now_ns, 100 * MS, 1);
    CHECK_EQ(cubic.phase, PS_CUBIC_SLOW_START);
    now_ns = run(&cubic, now_ns, 100 * MS, 1);
    now_ns = run(&cubic, now_ns, 120 * MS, 7);
    CHECK_EQ(cubic.phase, PS_CUBIC_AVOIDANCE);
    const int64_t left = ps_cubic_window(&cubic);
    run(&cubic, now_ns, 120 * MS, 5);
    CHECK(ps_cubic_window(&cubic) < left + left / 10); /* no loss, no drop, no doubling */
    CHECK(ps_cubic_window(&cubic) >= left);
}

static void paces_by_phase(void)
{
    ps_cubic_t cubic;
    ps_cubic_init(&cubic, 1000, 1 << 24, false);
    CHECK_EQ(ps_cubic_rate(&cubic), 0);
    ps_cubic_on_rtt(&cubic, 100 * MS, 100 * MS);
    CHECK_EQ(ps_cubic_rate(&cubic), 200000); /* 10 000 bytes, 10 round trips a second, twice */
    CHECK(ps_cubic_on_loss(&cubic, 0, 1, S));
    CHECK(ps_cubic_rate(&cubic) > 87000 && ps_cubic_rate(&cubic) <= 87500);
}

/* What arrived above a hole has left the network: as much more may be sent. */
static void a_hole_does_not_hold_the_window(void)
{
    ps_congestion_t congestion;
    bool force = false;
    CHECK_EQ(ps_congestion_init(&congestion, PS_CC_CUBIC, 1 << 20, 1408, true), PS_OK);
    ps_congestion_input_t input = {
        .now_ns = 1000000, .consumption = 60000, .received = 60000, .granted = 60000
    };
    const int32_t before = congestion.ops->on_rebuild(&congestion, &input, &force);
    CHECK_EQ(before, ps_congestion_window(&congestion));
    input.granted = 60000 + before;
    input.received += 10 * 1408; /* a hole at 60000: the reader stands still */
    input.new_loss = true;
    input.loss_position = 60000;
    const int32_t after = congestion.ops->on_rebuild(&congestion, &input, &force);
    CHECK(force && ps_congestion_window(&congestion) < before);
    CHECK_EQ(after, 10 * 1408 + ps_congestion_window(&congestion));
}

/* Requests leave a tenth of the smoothed round trip apart, as in slow start, while a queue lets the
 * round trip grow from 40 ms to `grown` at once.  Sixteen requests in flight used to be replaced
 * before their answers came, so the round trip never followed. */
static void round_trip_grows(int64_t grown_ns, int32_t loss_percent)
{
    enum { REQUESTS = 4096 };
    static int64_t asked[REQUESTS];
    ps_rtt_t rtt = { 0 };
    uint32_t random = 7;
    int32_t sent = 0, answered = 0;
    int64_t due_ns = 0, followed_ns = 0;

    for (int64_t now_ns = MS; followed_ns == 0 && now_ns < 200 * grown_ns; now_ns += MS) {
        const int64_t rtt_ns = now_ns < S ? 40 * MS : grown_ns;
        while (answered < sent && asked[answered] + rtt_ns <= now_ns) {
            random = random * 1664525 + 1013904223;
            if ((int32_t)(random >> 16) % 100 >= loss_percent) {
                (void)ps_rtt_answered(&rtt, asked[answered], 0, now_ns);
            }
            answered++;
        }
        if (now_ns >= due_ns && sent < REQUESTS && ps_rtt_ready(&rtt, now_ns)) {
            asked[sent++] = now_ns;
            ps_rtt_requested(&rtt, now_ns);
            due_ns = now_ns + (rtt.smoothed_ns > 0 ? rtt.smoothed_ns / 10 : 10 * MS);
        }
        followed_ns = rtt.smoothed_ns > grown_ns * 9 / 10 ? now_ns : 0;
        CHECK(rtt.outstanding <= PS_RTT_OUTSTANDING);
    }
    CHECK(followed_ns > 0 && followed_ns - S < 40 * grown_ns);
}

static void round_trips_of_any_growth_are_measured(void)
{
    for (int32_t times = 1; times <= 4096; times *= 2) {
        round_trip_grows((int64_t)times * 45 * MS, 0);
        round_trip_grows((int64_t)times * 45 * MS, 30);
    }
}

int main(void)
{
    RUN(cube_roots);
    RUN(starts_with_ten_and_doubles);
    RUN(a_small_receiver_window_bounds_it);
    RUN(the_cubic_after_a_loss);
    RUN(one_event_for_one_window);
    RUN(fast_convergence);
    RUN(the_last_round_trip_is_not_lower);
    RUN(friendly_region);
    RUN(idle_time_does_not_count);
    RUN(an_epoch_begins_by_now);
    RUN(slow_start_ends_by_delay);
    RUN(paces_by_phase);
    RUN(round_trips_of_any_growth_are_measured);
    RUN(a_hole_does_not_hold_the_window);
    return 0;
}
