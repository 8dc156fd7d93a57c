/* SPDX-License-Identifier: Apache-2.0
 * test_times.c: when a stream was where: the bound of each position's time, however fast the stream
 * is, however it rests, and however little of it is read. */
#include <stdlib.h>

#include "ps_times.h"
#include "stream.h"

enum { MOVES = 200000, TERM = 1 << 20 };
_Static_assert(sizeof(ps_time_table_t) / 1024 == 80,
               "docs/spec/shared-memory.md states 80 KiB for each stream");

typedef struct past {
    int64_t position[MOVES], time_ns[MOVES];
    int32_t count;
} past_t;

static past_t past;
static ps_time_table_t table;
static ps_time_point_t points[PS_TIMES_MOST];
static uint64_t random_state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static void live(int32_t moves, int64_t step_ns, int32_t rest_every, int64_t rest_ns, int64_t bytes)
{
    ps_times_reset(&table);
    past.count = 0;
    int64_t position = 0;
    int64_t now = INT64_C(1700000000000000000);
    for (int32_t i = 0; i < moves; i++) {
        now += 1 + (int64_t)draw((uint64_t)step_ns * 2);
        if (draw((uint64_t)rest_every) == 0) {
            now += (int64_t)draw((uint64_t)rest_ns * 2);
        }
        position += 32 + (int64_t)draw((uint64_t)bytes / 16) * 32;
        past.position[i] = position;
        past.time_ns[i] = now;
        ps_times_note(&table, position, now, TERM);
    }
    past.count = moves;
}

/* The bound of the header, for what arrived `age` before the end. */
static int64_t bound(int64_t age)
{
    int64_t span = PS_TIMES_SPAN_NS;
    for (int32_t i = 0; i < PS_TIMES_LEVELS - 1; i++, span *= 4) {
        if (age <= 384 * span) {
            return span;
        }
    }
    return INT64_MAX;
}

/* The same with joined entries: twice the bound, or the bound and one even span. */
static int64_t joint_bound(int64_t age, int64_t span_ns, int32_t capacity, bool even)
{
    const int64_t single = bound(age);
    const int64_t share =
        age / PS_TIMES_SHARE > PS_TIMES_SPAN_NS ? age / PS_TIMES_SHARE : PS_TIMES_SPAN_NS;
    const int64_t evenly = span_ns / (capacity - 1) + 1;
    if (single == INT64_MAX) {
        return single;
    }
    return single + (even && evenly > share ? evenly : share);
}

/* Number of entries that the moves [first, last] have in the table. */
static int32_t entries(int32_t first, int32_t last)
{
    return ps_times_read(&table, first > 0 ? past.position[first - 1] : 0, past.position[last],
                         points, PS_TIMES_MOST);
}

/* Largest lateness of the moves [first, last] as read from the table, which no time exceeds that is
 * later than the bound: that of the header if all entries fit, else that of joined entries. */
static int64_t lateness(int32_t first, int32_t last, int32_t capacity, bool even)
{
    const bool all = entries(first, last) <= capacity;
    const int64_t start = first > 0 ? past.position[first - 1] : 0;
    const int32_t count = ps_times_read(&table, start, past.position[last], points, capacity);
    CHECK(count >= 1 && count <= capacity);
    const int64_t span_ns = points[count - 1].time_ns - past.time_ns[first];
    int64_t worst = 0;
    int32_t at = 0;
    for (int32_t i = first; i <= last; i++) {
        while (at < count && points[at].position < past.position[i]) {
            at++;
        }
        CHECK(at < count);
        const int64_t late = points[at].time_ns - past.time_ns[i];
        CHECK(late >= 0);
        const int64_t age = past.time_ns[past.count - 1] - past.time_ns[i];
        CHECK(late <= (all ? bound(age) : joint_bound(age, span_ns, capacity, even)));
        worst = late > worst ? late : worst;
    }
    return worst;
}

static void every_position_has_its_time_within_the_bound(void)
{
    static const struct {
        int32_t moves;
        int64_t step_ns;
        int32_t rest_every;
        int64_t rest_ns;
        int64_t bytes;
    } lives[] = {
        { 2000, 5000000, 1000000, 1, 100 },         /* 200 messages a second, ten seconds */
        { 100000, 20000, 5000, 300000000, 100 },    /* fast, with rests of a third of a second */
        { 30000, 700000, 40, 20000000, 32 },        /* bursts and gaps about a level's span */
        { 5000, 100000000, 100, 60000000000, 200 }, /* an hour, with rests of minutes */
        { 100000, 1000, 1000000, 1, 1400 },         /* a million a second */
        { 40, 1000000, 2, 4000000000, 64 },         /* hardly anything */
    };
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        live(lives[i].moves, lives[i].step_ns, lives[i].rest_every, lives[i].rest_ns,
             lives[i].bytes);
        /* All that the last term's worth of bytes holds, and any part of it. */
        int32_t oldest = past.count - 1;
        while (oldest > 0 && past.position[past.count - 1] - past.position[oldest - 1] < TERM) {
            oldest--;
        }
        lateness(oldest, past.count - 1, 2048, false);
        for (int32_t capacity = 8; capacity < 2048; capacity *= 2) {
            lateness(oldest, past.count - 1, capacity, true);
        }
        for (int32_t part = 0; part < 200; part++) {
            const int32_t first = oldest + (int32_t)draw((uint64_t)(past.count - oldest));
            const int32_t last = first + (int32_t)draw((uint64_t)(past.count - first));
            lateness(first, last, 2048, false);
            lateness(first, last, 8 + (int32_t)draw(200), true);
        }
    }
}

static void what_rested_for_days_still_has_a_time(void)
{
    ps_times_reset(&table);
    past.count = 0;
    int64_t now = INT64_C(1700000000000000000);
    for (int32_t i = 0; i < 4000; i++) { /* two weeks, half a term */
        now += INT64_C(300000000000);
        past.position[i] = (i + 1) * (TERM / 8000 / 32 * 32);
        past.time_ns[i] = now;
        ps_times_note(&table, past.position[i], now, TERM);
    }
    past.count = 4000;
    const int64_t worst = lateness(0, 3999, 2048, false);
    CHECK(worst <= INT64_C(300000000000) * (TERM / 256 / (TERM / 8000 / 32 * 32) + 1));
}

/* All entries of a stream that never rests are more than a batch of one session has room for. */
static void all_times_of_a_session_are_joined_by_their_age(void)
{
    static const int64_t steps_ns[] = { 3100000, 30000000 };
    for (size_t i = 0; i < sizeof steps_ns / sizeof steps_ns[0]; i++) {
        live(MOVES, steps_ns[i], 1000000, 1, 32);
        int32_t oldest = past.count - 1;
        while (oldest > 0 &&
               bound(past.time_ns[past.count - 1] - past.time_ns[oldest - 1]) < INT64_MAX) {
            oldest--;
        }
        CHECK(entries(oldest, past.count - 1) > 2048);
        lateness(oldest, past.count - 1, 2048, false);
        /* Below 98 s a session needs no more than 2048. */
        int32_t young = past.count - 1;
        while (young > oldest &&
               past.time_ns[past.count - 1] - past.time_ns[young - 1] < INT64_C(98000000000)) {
            young--;
        }
        CHECK(entries(young, past.count - 1) <= 2048);
    }
}

static void few_points_are_joined_evenly(void)
{
    live(20000, 1000000, 1000000, 1, 64);
    int32_t first = past.count - 5000;
    const int64_t span = past.time_ns[past.count - 1] - past.time_ns[first];
    CHECK(lateness(first, past.count - 1, 64, true) <= 2 * span / 64);
    CHECK_EQ(ps_times_read(&table, 0, 64, points, 1), PS_E_INVALID);
    CHECK_EQ(ps_times_read(&table, 64, 32, points, 8), PS_E_INVALID);
}

static void an_empty_table_and_a_strangers_have_an_answer(void)
{
    ps_times_reset(&table);
    CHECK_EQ(ps_times_read(&table, 0, 1000, points, 8), 0);
    live(5000, 300000, 100, 3000000, 64);
    for (int32_t i = 0; i < 2000; i++) {
        int64_t *words = (int64_t *)(void *)&table;
        words[draw(sizeof table / sizeof *words)] = (int64_t)draw(UINT64_MAX);
        const int32_t count = ps_times_read(&table, 0, past.position[4999], points, 100);
        CHECK(count >= 0 && count <= 100);
        for (int32_t k = 1; k < count; k++) {
            CHECK(points[k].position > points[k - 1].position);
        }
    }
}

static void a_clock_set_back_does_not_stop_the_times(void)
{
    ps_times_reset(&table);
    for (int32_t i = 0; i < 100; i++) {
        ps_times_note(&table, 32 * (i + 1), (i < 50 ? 5000 : 4000) * PS_TIMES_SPAN_NS + i, TERM);
    }
    CHECK_EQ(ps_times_read(&table, 32 * 60, 32 * 61, points, 8), 1);
    CHECK(points[0].time_ns < 4001 * PS_TIMES_SPAN_NS);
    /* A successor that notes where its predecessor was keeps the predecessor's time. */
    ps_times_note(&table, 32 * 100, 9000 * PS_TIMES_SPAN_NS, TERM);
    CHECK_EQ(ps_times_read(&table, 32 * 99, 32 * 100, points, 8), 1);
    CHECK(points[0].time_ns < 4001 * PS_TIMES_SPAN_NS);
}

static void joined_times_do_not_cross_a_step_of_the_clock(void)
{
    const int64_t second_ns = 1000 * PS_TIMES_SPAN_NS;
    ps_times_reset(&table);
    for (int32_t i = 0; i < 800; i++) { /* two clock steps of 1000 s: back and forth */
        const int64_t begin_ns = (i < 300 || i >= 600 ? 5000 : 4000) * second_ns;
        past.position[i] = 32 * (i + 1);
        past.time_ns[i] = begin_ns + 2 * i * PS_TIMES_SPAN_NS;
        ps_times_note(&table, past.position[i], past.time_ns[i], TERM);
    }
    CHECK(ps_times_read(&table, 0, past.position[799], points, PS_TIMES_MOST) > 40);
    const int32_t count = ps_times_read(&table, 0, past.position[799], points, 40);
    CHECK(count >= 1 && count <= 40);
    for (int32_t i = 0, at = 0; i < 800; i++) {
        while (points[at].position < past.position[i]) {
            at++;
            CHECK(at < count);
        }
        const int64_t late = points[at].time_ns - past.time_ns[i];
        CHECK(late >= 0 && late < 200 * PS_TIMES_SPAN_NS);
    }
}

int main(void)
{
    every_position_has_its_time_within_the_bound();
    what_rested_for_days_still_has_a_time();
    all_times_of_a_session_are_joined_by_their_age();
    few_points_are_joined_evenly();
    an_empty_table_and_a_strangers_have_an_answer();
    a_clock_set_back_does_not_stop_the_times();
    joined_times_do_not_cross_a_step_of_the_clock();
    return 0;
}
