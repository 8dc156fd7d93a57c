/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control, both halves in the closed loop: receivers with a queue, a rate and a
 * cadence of their own, in steps of a millisecond of virtual time.
 */
#include <string.h>

#include "check.h"
#include "ps_pressure_control.h"
#include "ps_pacer.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
#define MB INT64_C(1000000)

/* ---- the closed loop ------------------------------------------------------------------------- */

enum { MEMBERS = 8, HISTORY = 64 };

typedef struct member {
    ps_pressure_signal_t signal;
    ps_pressure_reader_t reader;
    int64_t cadence_ms; /* it takes its share of so long at once */
    int64_t drain;      /* bytes per second it takes */
    int64_t queue, taken;
    bool dead, stopped;
} member_t;

typedef struct loop {
    ps_pressure_control_t rate;
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
        ps_pressure_report_t report;
    } said[512];
    int32_t n_said;
    int64_t sent, lost, signals;
} loop_t;

static void loop_open(loop_t *loop, int32_t n, int64_t demand, int64_t drain, int64_t delay_ms)
{
    memset(loop, 0, sizeof(*loop));
    ps_pressure_control_init(&loop->rate, 1408);
    ps_pacer_init(&loop->pacer);
    loop->n = n;
    loop->demand = demand;
    loop->delay_ms = delay_ms;
    loop->capacity = 8 * 1024 * 1024;
    for (int32_t i = 0; i < n; i++) {
        loop->members[i].drain = drain;
        loop->members[i].cadence_ms = 1;
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
        ps_pressure_control_signal(&loop->rate, &loop->said[i].report, loop->now_ms * MS);
        loop->said[i] = loop->said[--loop->n_said];
    }
}

static void receive(loop_t *loop, int32_t i, int64_t arriving)
{
    member_t *member = &loop->members[i];
    int64_t due_ns;
    if (member->dead) {
        return;
    }
    member->queue += arriving;
    if (member->queue > 2 * loop->capacity) { /* half a term more is kept */
        loop->lost += member->queue - 2 * loop->capacity;
        member->queue = 2 * loop->capacity;
    }
    if (!member->stopped && loop->now_ms % member->cadence_ms == 0) {
        const int64_t share = member->drain / 1000 * member->cadence_ms;
        const int64_t taken = member->queue < share ? member->queue : share;
        member->queue -= taken;
        member->taken += taken;
    }
    const int64_t now_ns = loop->now_ms * MS;
    ps_pressure_reader_check(&member->reader, member->taken, member->taken + member->queue, now_ns);
    const ps_pressure_input_t in = { .now_ns = now_ns,
                                     .fill = member->queue,
                                     .capacity = loop->capacity,
                                     .rtt_ns = 2 * loop->delay_ms * MS,
                                     .cadence_ns = member->reader.cadence_ns,
                                     .paused = ps_pressure_reader_paused(&member->reader, now_ns),
                                     .group = loop->n > 1,
                                     .random = (uint32_t)i * UINT32_C(0x1fffffff) };
    const int32_t level = ps_pressure_signal_step(&member->signal, &in, &due_ns);
    if (level > 0) {
        CHECK(loop->n_said < 512);
        loop->said[loop->n_said].at_ms = loop->now_ms + loop->delay_ms;
        loop->said[loop->n_said++].report = (ps_pressure_report_t){
            .receiver_id = i + 1,
            .level = level,
            .rtt_ns = in.rtt_ns,
            .rate = member->reader.rate,
            .cadence_ns = member->reader.cadence_ns,
            .residue = ps_pressure_reader_residue(&member->reader),
            .overrun = member->queue > loop->capacity ? member->queue - loop->capacity : 0,
            .capacity = loop->capacity
        };
    }
}

/* Returns bytes sent in these milliseconds. */
static int64_t loop_run(loop_t *loop, int64_t ms)
{
    const int64_t before = loop->sent;
    for (int64_t i = 0; i < ms; i++) {
        const int64_t now_ns = ++loop->now_ms * MS;
        hear(loop);
        ps_pressure_control_step(&loop->rate, now_ns);
        const int64_t limit = ps_pressure_control_limits(&loop->rate) ? loop->rate.limit : 0;
        ps_pacer_set(&loop->pacer, limit, limit / 250 + 2816, now_ns);
        int64_t bytes = ps_pacer_room(&loop->pacer, now_ns);
        bytes = bytes < loop->demand / 1000 ? bytes : loop->demand / 1000;
        bytes = bytes > 0 ? bytes : 0;
        ps_pacer_spend(&loop->pacer, bytes);
        ps_pressure_control_sent(&loop->rate, bytes, now_ns);
        loop->sent += bytes;
        const int64_t arriving = loop->history[(loop->now_ms + HISTORY - loop->delay_ms) % HISTORY];
        loop->history[loop->now_ms % HISTORY] = bytes;
        for (int32_t m = 0; m < loop->n; m++) {
            receive(loop, m, loop->delay_ms == 0 ? bytes : arriving);
        }
    }
    return loop->sent - before;
}

/* What a reader of 5 MB/s in this cadence can be sent. */
static int64_t loop_kept(int64_t cadence_ms)
{
    const int64_t kept = 8 * 1024 * 1024 * INT64_C(1000) / cadence_ms;
    return kept < 5 * MB ? kept : 5 * MB;
}

static void no_signal_while_all_cope(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 110 * MB, 5);
    CHECK_EQ(loop_run(&loop, 20000), 20 * 100 * MB);
    CHECK_EQ(loop.signals, 0);
    CHECK(!ps_pressure_control_limits(&loop.rate));
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
        CHECK(back_ms > 0 && back_ms <= 1600);
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

/* What one of many takes in batches, from a millisecond to a second: all of it is sent, and nothing
 * is overrun once the cadence is known. */
static void any_cadence_is_slowed_to(void)
{
    for (int64_t cadence_ms = 1; cadence_ms <= 1000; cadence_ms = cadence_ms * 3 / 2 + 1) {
        loop_t loop;
        const int64_t kept = loop_kept(cadence_ms);
        loop_open(&loop, MEMBERS, 20 * MB, 40 * MB, 5);
        loop.members[3].drain = 5 * MB;
        loop.members[3].cadence_ms = cadence_ms;
        loop_run(&loop, 1000 + 5 * cadence_ms);
        const int64_t lost = loop.lost, taken = loop.members[3].taken;
        loop_run(&loop, 20 * cadence_ms + 10000);
        const int64_t rate = (loop.members[3].taken - taken) * 1000 / (20 * cadence_ms + 10000);
        CHECK(rate >= kept / 100 * 93);
        CHECK_EQ(loop.lost, lost);
    }
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

/* Until it counts as paused, a quarter of a second, it is slow; then nobody waits for it. */
static void a_pausing_receiver_stalls_nobody(void)
{
    loop_t loop;
    loop_open(&loop, MEMBERS, 100 * MB, 110 * MB, 5);
    loop_run(&loop, 1000);
    loop.members[2].stopped = true;
    int64_t least = INT64_MAX, all = 0;
    for (int i = 0; i < 100; i++) {
        const int64_t bin = loop_run(&loop, 50);
        all += bin;
        least = bin < least && i * 50 >= 600 ? bin : least;
    }
    printf("one of %d pauses: %.1f %% in 5 s, after 600 ms worst 50 ms at %.1f %%, %lld signals\n",
           MEMBERS, (double)all / (double)(5 * MB), (double)least / (double)(5 * MB) * 100,
           (long long)loop.signals);
    CHECK(least >= 5 * MB / 100 * 95 && all >= 500 * MB / 100 * 95);
    CHECK(loop.signals <= 8);
    CHECK_EQ(loop_run(&loop, 1000), 100 * MB);
}

int main(void)
{
    RUN(no_signal_while_all_cope);
    RUN(step_response);
    RUN(burst);
    RUN(any_cadence_is_slowed_to);
    RUN(one_slow_of_many_sets_the_pace);
    RUN(a_dying_receiver_changes_nothing);
    RUN(a_pausing_receiver_stalls_nobody);
    return 0;
}
