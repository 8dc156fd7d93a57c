/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control: each rule of both halves, then the closed loop against receivers with a
 * queue and a rate of their own, in steps of a millisecond of virtual time: step response, burst,
 * one slow among many, a receiver that dies, one that pauses, the bound on oscillation, and the
 * bound on recovery.
 */
#include <string.h>

#include "check.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_nak_rate.h"
#include "ps_pacer.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
#define MB INT64_C(1000000)

/* ---- receiver's half ------------------------------------------------------------------------- */

static int32_t look(ps_nak_signal_t *signal, int64_t now_ns, int64_t fill_percent,
                    int64_t consumption)
{
    uint32_t fill;
    int64_t due_ns;
    const ps_nak_input_t in = {
        .now_ns = now_ns, .unread = fill_percent * 10000, .capacity = MB, .consumption = consumption
    };
    return ps_nak_signal_step(signal, &in, &fill, &due_ns);
}

static void silence_below_the_lowest_threshold(void)
{
    ps_nak_signal_t signal;
    ps_nak_signal_init(&signal);
    for (int64_t i = 0; i < 10000; i++) { /* up and down, but never to half */
        const uint32_t lowest = signal.thresholds_ppm[0];
        const int64_t fill = (i * 7) % 50;
        const int32_t level = look(&signal, i * MS, fill, i);
        CHECK(level == 0 || (uint32_t)fill * 10000 >= lowest ||
              (uint32_t)fill * 10000 >= signal.thresholds_ppm[0]);
    }
    ps_nak_signal_init(&signal);
    for (int64_t i = 0; i < 10000; i++) { /* steady: the thresholds stay where the source has */
        CHECK_EQ(look(&signal, i * MS, 49, i), 0);
    }
    CHECK_EQ(signal.thresholds_ppm[0], 500000);
    CHECK_EQ(signal.thresholds_ppm[1], 750000);
    CHECK_EQ(signal.thresholds_ppm[2], 875000);
    CHECK_EQ(signal.thresholds_ppm[3], 1000000);
}

static void levels_once_a_window(void)
{
    static const int32_t fills[] = { 50, 75, 88, 100 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_nak_signal_t signal;
        int32_t signals = 0;
        ps_nak_signal_init(&signal);
        look(&signal, 0, fills[level - 1], 0);
        for (int64_t i = 2000; i < 3000; i++) { /* calm by then */
            const int32_t said = look(&signal, i * MS, fills[level - 1], i);
            CHECK(said == 0 || said == level);
            signals += said != 0;
        }
        CHECK(signals >= 19 && signals <= 20);
    }
}

static void a_fast_growing_queue_signals_earlier(void)
{
    ps_nak_signal_t signal;
    ps_nak_signal_init(&signal);
    int64_t at = -1;
    for (int64_t i = 0; i < 100 && at < 0; i++) { /* 1 % of the capacity a millisecond */
        if (look(&signal, i * MS, i, i) != 0) {
            at = i;
        }
    }
    CHECK(at >= 25 && at < 50);
}

static void a_group_spreads_first_signals(void)
{
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t r = 0; r < 16; r++) {
        ps_nak_signal_t signal;
        uint32_t fill;
        int64_t due_ns, said_ns = -1;
        ps_nak_signal_init(&signal);
        for (int64_t i = 0; i < 100 && said_ns < 0; i++) {
            const ps_nak_input_t in = { .now_ns = i * MS,
                                        .unread = 60,
                                        .capacity = 100,
                                        .consumption = i,
                                        .group = true,
                                        .random = r * UINT32_C(0x10000000) };
            if (ps_nak_signal_step(&signal, &in, &fill, &due_ns) != 0) {
                said_ns = i * MS;
            }
        }
        CHECK(said_ns >= 0 && said_ns <= 25 * MS);
        first = said_ns < first ? said_ns : first;
        last = said_ns > last ? said_ns : last;
    }
    CHECK(last - first >= 20 * MS);
}

/* Nobody looks at an empty queue: a burst after a rest finds a reader that had nothing to take. */
static void a_burst_after_a_rest_is_signalled(void)
{
    ps_nak_signal_t signal;
    ps_nak_signal_init(&signal);
    CHECK_EQ(look(&signal, 0, 60, 0), 1);
    CHECK_EQ(look(&signal, MS, 0, MB), 0);
    CHECK_EQ(look(&signal, S, 90, MB), 3);
}

static void who_stands_still_falls_silent(void)
{
    ps_nak_signal_t signal;
    int32_t signals = 0;
    ps_nak_signal_init(&signal);
    for (int64_t i = 0; i < 5000; i++) {
        signals += look(&signal, i * MS, 100, 7) != 0;
    }
    CHECK_EQ(signals, 1);
    CHECK(look(&signal, 5000 * MS, 100, 8) == 4); /* it moves again, and says so */
}

/* ---- sender's half --------------------------------------------------------------------------- */

static void stream_for(ps_nak_rate_t *rate, int64_t bytes_per_s, int64_t from_ns, int64_t to_ns)
{
    for (int64_t now_ns = from_ns; now_ns < to_ns; now_ns += MS) {
        ps_nak_rate_sent(rate, bytes_per_s / 1000, now_ns);
    }
}

/* Whatever the length of a pause, what was sent before it does not count after 50 ms of it. */
static void a_pause_is_not_measured(void)
{
    for (int64_t pause_ms = 57; pause_ms < 1000; pause_ms++) {
        ps_nak_rate_t rate;
        ps_nak_rate_init(&rate, 1408);
        ps_nak_rate_sent(&rate, MB, S);
        CHECK_EQ(ps_nak_rate_measured(&rate, S + pause_ms * MS), 0);
    }
}

static void strength_decides_the_cut(void)
{
    static const int64_t left[] = { 0, 875, 750, 625, 500 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_nak_rate_t rate;
        ps_nak_rate_init(&rate, 1408);
        CHECK(!ps_nak_rate_limits(&rate));
        stream_for(&rate, 100 * MB, 0, S);
        CHECK_EQ(ps_nak_rate_measured(&rate, S), 100 * MB);
        CHECK(ps_nak_rate_signal(&rate, 5, level, 500000, 0, S));
        CHECK_EQ(rate.limit / 100000, left[level]);
        CHECK_EQ(rate.culprit, 5);
    }
}

static void the_strongest_of_a_window_counts_once(void)
{
    ps_nak_rate_t rate;
    ps_nak_rate_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    ps_nak_rate_signal(&rate, 1, 1, 510000, 0, S);
    ps_nak_rate_signal(&rate, 2, 1, 510000, 0, S + MS);
    ps_nak_rate_signal(&rate, 3, 3, 880000, 0, S + 2 * MS);
    ps_nak_rate_signal(&rate, 4, 2, 760000, 0, S + 3 * MS);
    CHECK_EQ(rate.limit, 100 * MB / 8 * 5);
    CHECK_EQ(rate.culprit, 3);
    CHECK_EQ(rate.signals, 4);
}

static void a_receding_queue_cuts_no_more(void)
{
    ps_nak_rate_t rate;
    ps_nak_rate_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    ps_nak_rate_signal(&rate, 1, 2, 800000, 0, S);
    const int64_t limit = rate.limit;
    CHECK(!ps_nak_rate_signal(&rate, 1, 2, 790000, 0, S + 51 * MS));
    CHECK_EQ(rate.limit, limit);
    stream_for(&rate, limit, S + 51 * MS, S + 103 * MS);
    CHECK(ps_nak_rate_signal(&rate, 1, 2, 790000, 0, S + 103 * MS)); /* no better: cut */
    CHECK(rate.limit < limit);
}

static void never_below_the_floor_and_back_in_bounded_time(void)
{
    for (int32_t mtu = 1408; mtu <= 65504; mtu = mtu == 1408 ? 65504 : 65505) {
        ps_nak_rate_t rate;
        ps_nak_rate_init(&rate, mtu);
        int64_t now_ns = 0;
        for (int i = 0; i < 500; i++) {
            stream_for(&rate, rate.limit < S ? rate.limit : S, now_ns, now_ns + 50 * MS);
            now_ns += 50 * MS;
            ps_nak_rate_signal(&rate, 1, 4, 1000000, 0, now_ns);
            CHECK(rate.limit >= rate.floor);
        }
        CHECK_EQ(rate.limit, rate.floor);
        CHECK(rate.floor / 20 >= 2 * (int64_t)mtu);
        const int64_t goals[] = { MB, 100 * MB, 10000 * MB, PS_NAK_UNLIMITED - 1 };
        const int64_t since_ns = now_ns;
        for (int g = 0; g < 4; g++) {
            while (rate.limit <= goals[g]) {
                now_ns += 50 * MS;
                ps_nak_rate_step(&rate, now_ns);
                CHECK((now_ns - since_ns) / (50 * MS) <=
                      ps_nak_recovery_windows(rate.floor, goals[g]) + 1);
            }
        }
        CHECK(!ps_nak_rate_limits(&rate));
        CHECK(now_ns - since_ns < 4 * S);
        printf("mtu %d: from the floor of %lld B/s to no limit in %lld ms\n", mtu,
               (long long)rate.floor, (long long)((now_ns - since_ns) / MS));
    }
}

/* How far the limit goes up in a quiet window at the wall, in ppm, after signals at these rates. */
static int64_t probe_after(int64_t even, int64_t odd)
{
    ps_nak_rate_t rate;
    int64_t now_ns = S;
    ps_nak_rate_init(&rate, 1408);
    for (int32_t i = 0; i < 12; i++) { /* far apart: each is the first of an episode */
        rate.limit = 1000 * MB;
        stream_for(&rate, i % 2 == 0 ? even : odd, now_ns, now_ns + 100 * MS);
        now_ns += 100 * MS;
        ps_nak_rate_signal(&rate, 1, 1, 500000 + (uint32_t)i, 0, now_ns);
        now_ns += 110 * MS;
        ps_nak_rate_step(&rate, now_ns);
    }
    rate.limit = rate.wall;
    rate.quiet = 0;
    rate.level = 0;
    const int64_t before = rate.limit;
    ps_nak_rate_step(&rate, rate.window_end_ns);
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

/* Signals of any level at any rate, for some seconds; then down to the floor, if asked for. */
static int64_t any_history(ps_nak_rate_t *rate, ps_random_t *random, bool to_the_floor)
{
    const int64_t rtt_ns = (int64_t)ps_random_below(random, 25) * MS;
    int64_t now_ns = S;
    ps_nak_rate_init(rate, 1408);
    for (uint64_t i = ps_random_below(random, 100); i > 0; i--) {
        const int64_t demand = MB << ps_random_below(random, 12);
        const int64_t until_ns = now_ns + (int64_t)(1 + ps_random_below(random, 400)) * MS;
        for (; now_ns < until_ns; now_ns += MS) {
            ps_nak_rate_step(rate, now_ns);
            stream_for(rate, rate->limit < demand ? rate->limit : demand, now_ns, now_ns + MS);
        }
        ps_nak_rate_signal(rate, 1, 1 + (int32_t)ps_random_below(random, 4),
                           (uint32_t)ps_random_below(random, 1000001), rtt_ns, now_ns);
        CHECK(rate->limit >= rate->floor);
    }
    for (int32_t i = 0; to_the_floor && rate->limit > rate->floor; i++) {
        CHECK(i < 400);
        stream_for(rate, rate->limit < S ? rate->limit : S, now_ns, now_ns + 50 * MS);
        now_ns += 50 * MS;
        ps_nak_rate_signal(rate, 1, 4, 1000000, rtt_ns, now_ns);
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
        ps_nak_rate_t rate;
        const bool from_floor = i % 2 == 0;
        const int64_t since_ns = any_history(&rate, &random, from_floor);
        const int32_t bound = ps_nak_recovery_windows(rate.limit, PS_NAK_UNLIMITED - 1);
        int64_t now_ns = since_ns;
        CHECK(bound < 100);
        while (ps_nak_rate_limits(&rate)) {
            now_ns += MS;
            ps_nak_rate_step(&rate, now_ns);
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
    CHECK(least_ms >= 2000 && most_ms <= 3500);
}

static void steps_grow_with_the_time_since_the_last_signal(void)
{
    ps_nak_rate_t rate;
    int64_t step = 0;
    ps_nak_rate_init(&rate, 1408);
    stream_for(&rate, 100 * MB, 0, S);
    ps_nak_rate_signal(&rate, 1, 4, 1000000, 0, S);
    ps_nak_rate_step(&rate, S + 50 * MS);
    for (int64_t i = 2; i < 6; i++) { /* up to the wall */
        const int64_t before = rate.limit;
        ps_nak_rate_step(&rate, S + i * 50 * MS);
        const int64_t part = (rate.limit - before) * 1000 / before;
        CHECK(part > step); /* of the limit: not only because that grows */
        step = part;
    }
}

/* ---- the closed loop ------------------------------------------------------------------------- */

enum { MEMBERS = 8, HISTORY = 64 };

typedef struct member {
    ps_nak_signal_t signal;
    int64_t drain; /* bytes per second it takes */
    int64_t queue, taken;
    bool dead, stopped;
} member_t;

typedef struct loop {
    ps_nak_rate_t rate;
    ps_pacer_t pacer;
    member_t members[MEMBERS];
    int32_t n;
    int64_t capacity;
    int64_t demand;   /* bytes per second */
    int64_t delay_ms; /* one way */
    int64_t now_ms;
    int64_t history[HISTORY]; /* sent per millisecond, on their way */
    struct {
        int64_t at_ms;
        int64_t id;
        int32_t level;
        uint32_t fill;
    } said[512];
    int32_t n_said;
    int64_t sent, lost, signals;
} loop_t;

static void loop_open(loop_t *loop, int32_t n, int64_t demand, int64_t drain, int64_t delay_ms)
{
    memset(loop, 0, sizeof(*loop));
    ps_nak_rate_init(&loop->rate, 1408);
    ps_pacer_init(&loop->pacer);
    loop->n = n;
    loop->demand = demand;
    loop->delay_ms = delay_ms;
    loop->capacity = 8 * 1024 * 1024;
    for (int32_t i = 0; i < n; i++) {
        ps_nak_signal_init(&loop->members[i].signal);
        loop->members[i].drain = drain;
    }
}

static void hear(loop_t *loop)
{
    for (int32_t i = 0; i < loop->n_said;) {
        if (loop->said[i].at_ms > loop->now_ms) {
            i++;
            continue;
        }
        loop->signals++;
        ps_nak_rate_signal(&loop->rate, loop->said[i].id, loop->said[i].level, loop->said[i].fill,
                           2 * loop->delay_ms * MS, loop->now_ms * MS);
        loop->said[i] = loop->said[--loop->n_said];
    }
}

static void receive(loop_t *loop, int32_t i, int64_t arriving)
{
    member_t *member = &loop->members[i];
    uint32_t fill = 0;
    int64_t due_ns;
    if (member->dead) {
        return;
    }
    member->queue += arriving;
    if (member->queue > loop->capacity) {
        loop->lost += member->queue - loop->capacity;
        member->queue = loop->capacity;
    }
    if (!member->stopped) {
        const int64_t taken =
            member->queue < member->drain / 1000 ? member->queue : member->drain / 1000;
        member->queue -= taken;
        member->taken += taken;
    }
    const ps_nak_input_t in = { .now_ns = loop->now_ms * MS,
                                .unread = member->queue,
                                .capacity = loop->capacity,
                                .consumption = member->taken,
                                .rtt_ns = 2 * loop->delay_ms * MS,
                                .group = loop->n > 1,
                                .random = (uint32_t)i * UINT32_C(0x1fffffff) };
    const int32_t level = ps_nak_signal_step(&member->signal, &in, &fill, &due_ns);
    if (level > 0) {
        CHECK(loop->n_said < 512);
        loop->said[loop->n_said].at_ms = loop->now_ms + loop->delay_ms;
        loop->said[loop->n_said].id = i + 1;
        loop->said[loop->n_said].level = level;
        loop->said[loop->n_said++].fill = fill;
    }
}

/* Returns bytes sent in these milliseconds. */
static int64_t loop_run(loop_t *loop, int64_t ms)
{
    const int64_t before = loop->sent;
    for (int64_t i = 0; i < ms; i++) {
        const int64_t now_ns = ++loop->now_ms * MS;
        hear(loop);
        ps_nak_rate_step(&loop->rate, now_ns);
        const int64_t limit = ps_nak_rate_limits(&loop->rate) ? loop->rate.limit : 0;
        ps_pacer_set(&loop->pacer, limit, limit / 250 + 2816, now_ns);
        int64_t bytes = ps_pacer_room(&loop->pacer, now_ns);
        bytes = bytes < loop->demand / 1000 ? bytes : loop->demand / 1000;
        bytes = bytes > 0 ? bytes : 0;
        ps_pacer_spend(&loop->pacer, bytes);
        ps_nak_rate_sent(&loop->rate, bytes, now_ns);
        loop->sent += bytes;
        const int64_t arriving = loop->history[(loop->now_ms + HISTORY - loop->delay_ms) % HISTORY];
        loop->history[loop->now_ms % HISTORY] = bytes;
        for (int32_t m = 0; m < loop->n; m++) {
            receive(loop, m, loop->delay_ms == 0 ? bytes : arriving);
        }
    }
    return loop->sent - before;
}

static void no_signal_while_all_cope(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 110 * MB, 5);
    CHECK_EQ(loop_run(&loop, 20000), 20 * 100 * MB);
    CHECK_EQ(loop.signals, 0);
    CHECK(!ps_nak_rate_limits(&loop.rate));
}

/* The receiver slows to half: how soon does the sender, how well does it hold. */
static void step_response(void)
{
    static const int64_t delays[] = { 0, 10, 30 };
    for (int d = 0; d < 3; d++) {
        loop_t loop;
        loop_open(&loop, 1, 100 * MB, 200 * MB, delays[d]);
        loop_run(&loop, 1000);
        loop.members[0].drain = 50 * MB;
        int64_t settled_ms = -1;
        for (int64_t t = 0; t < 2000; t += 50) {
            const int64_t rate = loop_run(&loop, 50) * 20;
            settled_ms = settled_ms < 0 && rate <= 55 * MB ? t + 50 : settled_ms;
        }
        CHECK(settled_ms > 0 && settled_ms <= 600);
        /* The queue holds 80 ms: with 60 ms of round trip the step itself overruns it. */
        CHECK(delays[d] > 10 || loop.lost == 0);
        const int64_t lost = loop.lost;
        int64_t least = INT64_MAX, most = 0;
        const int64_t sent = loop_run(&loop, 100);
        int64_t total = sent;
        for (int i = 0; i < 199; i++) {
            const int64_t bin = loop_run(&loop, 100);
            least = bin < least ? bin : least;
            most = bin > most ? bin : most;
            total += bin;
        }
        printf("rtt %lld ms: settled in %lld ms; mean %.1f %% of the drain, bins %.1f..%.1f %%, "
               "%lld signals\n",
               (long long)(2 * delays[d]), (long long)settled_ms,
               (double)total / (double)(20 * 50 * MB) * 100, (double)least / (5.0 * MB) * 100,
               (double)most / (5.0 * MB) * 100, (long long)loop.signals);
        CHECK(total >= 20 * 50 * MB / 100 * 97 && total <= 20 * 50 * MB / 100 * 102);
        CHECK(least >= 5 * MB / 4 * 3); /* never below three quarters ... */
        CHECK(most <= 5 * MB / 4 * 6);  /* ... nor above one and a half of what it takes */
        CHECK_EQ(loop.lost, lost);      /* and never again overrun */
        /* and it copes again: no permanent degrade */
        loop.members[0].drain = 200 * MB;
        int64_t back_ms = -1;
        for (int64_t t = 0; t < 5000 && back_ms < 0; t += 50) {
            back_ms = loop_run(&loop, 50) * 20 >= 99 * MB ? t + 50 : -1;
        }
        printf("rtt %lld ms: back after %lld ms\n", (long long)(2 * delays[d]), (long long)back_ms);
        CHECK(back_ms > 0 && back_ms <= 1500);
    }
}

/* A burst that fits is none of the controller's business; one that does not is slowed. */
static void burst(void)
{
    loop_t loop;
    loop_open(&loop, 1, 50 * MB, 60 * MB, 1);
    loop_run(&loop, 1000);
    loop.demand = 100 * MB; /* 40 MB/s too much for 20 ms: 10 % of the queue */
    loop_run(&loop, 20);
    loop.demand = 50 * MB;
    loop_run(&loop, 1000);
    CHECK_EQ(loop.signals, 0);
    loop.demand = 1000 * MB;
    loop_run(&loop, 100);
    loop.demand = 50 * MB;
    CHECK(loop.signals > 0);
    int64_t bytes = 0;
    loop_run(&loop, 3000);
    bytes = loop_run(&loop, 1000);
    CHECK_EQ(bytes, 50 * MB);
    printf("burst of 20 times for 100 ms: %lld signals, %lld KB lost of %lld KB\n",
           (long long)loop.signals, (long long)loop.lost / 1000, (long long)loop.sent / 1000);
}

static void one_slow_of_many_sets_the_pace(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 200 * MB, 5);
    loop.members[3].drain = 30 * MB;
    loop_run(&loop, 3000);
    const int64_t sent = loop_run(&loop, 10000);
    printf("one of %d takes 30 MB/s: %.1f MB/s, %.1f signals/s\n", MEMBERS, (double)sent / 1e7,
           (double)loop.signals / 13.0);
    CHECK(sent >= 270 * MB && sent <= 306 * MB);
    CHECK_EQ(loop.rate.culprit, 4);
    CHECK(loop.signals <= 13 * 20);
}

static void a_dying_receiver_changes_nothing(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 110 * MB, 5);
    for (int i = 0; i < 100; i++) {
        loop.members[i / 20].dead = true; /* one after the other */
        CHECK_EQ(loop_run(&loop, 50), 5 * MB);
    }
    CHECK_EQ(loop.signals, 0);
}

static void a_pausing_receiver_stalls_nobody(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 110 * MB, 5);
    loop_run(&loop, 1000);
    loop.members[2].stopped = true;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        const int64_t bin = loop_run(&loop, 50);
        least = bin < least ? bin : least;
    }
    printf("one of %d pauses: worst 50 ms at %.1f %%, %lld signals\n", MEMBERS,
           (double)least / (double)(5 * MB) * 100, (long long)loop.signals);
    CHECK(least >= 5 * MB / 100 * 95);
    CHECK(loop.signals <= 1);
    CHECK_EQ(loop_run(&loop, 1000), 100 * MB);
}

int main(void)
{
    RUN(silence_below_the_lowest_threshold);
    RUN(levels_once_a_window);
    RUN(a_fast_growing_queue_signals_earlier);
    RUN(a_group_spreads_first_signals);
    RUN(a_burst_after_a_rest_is_signalled);
    RUN(who_stands_still_falls_silent);
    RUN(a_pause_is_not_measured);
    RUN(strength_decides_the_cut);
    RUN(the_strongest_of_a_window_counts_once);
    RUN(a_receding_queue_cuts_no_more);
    RUN(never_below_the_floor_and_back_in_bounded_time);
    RUN(erratic_receivers_are_probed_coarsely);
    RUN(recovery_is_bounded_whatever_happened);
    RUN(steps_grow_with_the_time_since_the_last_signal);
    RUN(no_signal_while_all_cope);
    RUN(step_response);
    RUN(burst);
    RUN(one_slow_of_many_sets_the_pace);
    RUN(a_dying_receiver_changes_nothing);
    RUN(a_pausing_receiver_stalls_nobody);
    return 0;
}
