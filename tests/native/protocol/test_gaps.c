/* SPDX-License-Identifier: Apache-2.0
 * The gap list against a bitmap: every sequence of arrivals on a small stream, with lists of
 * several sizes.  And the NAK distribution: bounds, shape, and the same numbers everywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_choices.h"
#include "ps_congestion.h"
#include "ps_error.h"
#include "ps_gaps.h"
#include "ps_nak_timer.h"
#include "ps_map.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { CELLS = 7, DEPTH = 4, CAPACITY_MAX = 4 };

/* The stream as a bitmap: bit i = cell i was received; hwm = end of the furthest. */
typedef struct world {
    ps_gaps_t gaps;
    ps_gap_t storage[CAPACITY_MAX];
    uint32_t received;
    int64_t hwm;
} world_t;

static void copy_world(world_t *to, const world_t *from)
{
    *to = *from;
    to->gaps.items = to->storage;
}

static void check_same(const world_t *world)
{
    const ps_gaps_t *gaps = &world->gaps;
    int64_t missing = 0;
    CHECK(gaps->count >= 0 && gaps->count <= gaps->capacity);
    for (int32_t i = 0; i < gaps->count; i++) {
        CHECK(gaps->items[i].from < gaps->items[i].to && gaps->items[i].to <= world->hwm);
        CHECK(i == 0 || gaps->items[i - 1].to < gaps->items[i].from);
    }
    for (int64_t cell = 0; cell < world->hwm; cell++) {
        const int32_t index = ps_gaps_find(gaps, cell);
        const int in_gap = index < gaps->count && gaps->items[index].from <= cell;
        CHECK(in_gap == !(world->received >> cell & 1));
        missing += in_gap;
    }
    CHECK(ps_gaps_bytes(gaps) == missing);
}

/* [from, to) arrives; what the list has no room for is dropped, in the bitmap too. */
static void arrive(world_t *world, int64_t from, int64_t to)
{
    if (from >= world->hwm) {
        if (from > world->hwm && !ps_gaps_append(&world->gaps, world->hwm, from, 1, 0)) {
            CHECK(world->gaps.count == world->gaps.capacity);
            return;
        }
        world->hwm = to;
        world->received |= ((1U << to) - 1) & ~((1U << from) - 1);
        return;
    }
    for (int64_t cell = from; cell < to && cell < world->hwm;) {
        int64_t end = cell;
        while (end < to && end < world->hwm && !(world->received >> end & 1)) {
            end++;
        }
        if (end > cell) {
            const int32_t before = world->gaps.count;
            if (ps_gaps_fill(&world->gaps, cell, end)) {
                world->received |= ((1U << end) - 1) & ~((1U << cell) - 1);
            } else {
                CHECK(before == world->gaps.capacity && world->gaps.count == before);
            }
        }
        cell = end + 1;
    }
}

static void walk(const world_t *world, int depth)
{
    check_same(world);
    if (depth == 0) {
        return;
    }
    for (int64_t from = 0; from < CELLS; from++) {
        for (int64_t to = from + 1; to <= CELLS; to++) {
            world_t next;
            copy_world(&next, world);
            arrive(&next, from, to);
            walk(&next, depth - 1);
        }
    }
}

static void test_every_walk(void)
{
    for (int32_t capacity = 1; capacity <= CAPACITY_MAX; capacity++) {
        world_t world;
        memset(&world, 0, sizeof world);
        ps_gaps_init(&world.gaps, world.storage, capacity);
        walk(&world, DEPTH);
    }
}

static void test_fill_outside_a_gap_changes_nothing(void)
{
    ps_gap_t storage[4];
    ps_gaps_t gaps;
    ps_gaps_init(&gaps, storage, 4);
    CHECK(!ps_gaps_fill(&gaps, 0, 32));
    CHECK(ps_gaps_append(&gaps, 64, 128, 5, 0) && ps_gaps_append(&gaps, 192, 256, 6, 0));
    CHECK(!ps_gaps_fill(&gaps, 32, 96) && !ps_gaps_fill(&gaps, 96, 160));
    CHECK(!ps_gaps_fill(&gaps, 64, 256) && !ps_gaps_fill(&gaps, 128, 160));
    CHECK(gaps.count == 2 && ps_gaps_bytes(&gaps) == 128);
}

static void test_a_split_keeps_the_timer(void)
{
    ps_gap_t storage[2];
    ps_gaps_t gaps;
    ps_gaps_init(&gaps, storage, 2);
    CHECK(ps_gaps_append(&gaps, 0, 320, 77, 0));
    gaps.items[0].requested = 3;
    CHECK(ps_gaps_fill(&gaps, 96, 128) && gaps.count == 2);
    CHECK(gaps.items[0].to == 96 && gaps.items[1].from == 128 && gaps.items[1].to == 320);
    CHECK(gaps.items[1].due_ns == 77 && gaps.items[1].requested == 3);
    CHECK(!ps_gaps_fill(&gaps, 160, 192) && gaps.count == 2); /* no room for a third */
    CHECK(ps_gaps_append(&gaps, 320, 352, 1, 0) && gaps.count == 2 && gaps.items[1].to == 352);
    CHECK(!ps_gaps_append(&gaps, 384, 416, 1, 0));
}

static void test_backoff_distribution(void)
{
    const int64_t max_ns = 10000000;
    int64_t before = -1;
    CHECK(ps_nak_backoff_ns(max_ns, 10, 0) == 0);
    for (uint64_t u = 0; u <= UINT32_MAX; u += UINT32_MAX / 1000) {
        const int64_t delay = ps_nak_backoff_ns(max_ns, 10, (uint32_t)u);
        CHECK(delay >= before && delay <= max_ns);
        before = delay;
    }
    CHECK(before > max_ns - 1000);
    /* (10 ms / 3.302585) * ln(1 + 0.5 * (27.18282 - 1)) = 8.0106 ms */
    const int64_t half = ps_nak_backoff_ns(max_ns, 10, UINT32_C(1) << 31);
    CHECK(half > 8010580 && half < 8010600);
    CHECK(ps_nak_backoff_ns(0, 10, 12345) == 0);
    CHECK(ps_nak_backoff_ns(max_ns, 1 << 30, UINT32_MAX) <= max_ns);
    CHECK(ps_nak_backoff_ns(max_ns, 0, UINT32_MAX) <= max_ns);
}

static void test_retry_waits_for_a_round_trip(void)
{
    const ps_nak_policy_t unicast = { .delay_ns = 1000, .retry_ns = 100000 };
    ps_random_t random;
    ps_random_seed(&random, 42);
    CHECK(ps_nak_first_ns(&unicast, &random) == 1000);
    CHECK(ps_nak_retry_ns(&unicast, 0, 0, &random) == 100000);
    CHECK(ps_nak_retry_ns(&unicast, 0, 1, &random) == 200000);
    CHECK(ps_nak_retry_ns(&unicast, 0, INT32_MAX, &random) == 100000000);
    /* an answer takes a millisecond: seven more NAKs at that pace, then ever more rarely */
    CHECK(ps_nak_retry_ns(&unicast, 1000000, 0, &random) == 1000000);
    CHECK(ps_nak_retry_ns(&unicast, 1000000, 7, &random) == 1000000);
    CHECK(ps_nak_retry_ns(&unicast, 1000000, 8, &random) == 2000000);
    CHECK(ps_nak_retry_ns(&unicast, 1000000, INT32_MAX, &random) == 16000000);
    CHECK(ps_nak_retry_ns(&unicast, 250000000, INT32_MAX, &random) == 1000000000);
    CHECK(ps_nak_retry_ns(&unicast, 3000000000, INT32_MAX, &random) == 3000000000);
    CHECK(ps_nak_retry_ns(&unicast, 10, 0, &random) == 100000); /* the configured least */
    const ps_nak_policy_t group = { .max_backoff_ns = 1000000, .group_size = 10, .group = 1 };
    int64_t sum = 0;
    for (int i = 0; i < 10000; i++) {
        sum += ps_nak_first_ns(&group, &random);
    }
    CHECK(ps_nak_retry_ns(&group, 5000000, 0, &random) >= 5000000);
    CHECK(ps_nak_retry_ns(&group, 5000000, 0, &random) <= 6000000);
    CHECK(sum / 10000 > 710000 && sum / 10000 < 760000); /* the mean is 0.735 of the maximum */
}

static void test_static_congestion(void)
{
    ps_congestion_t congestion;
    bool force = true;
    const ps_congestion_input_t input = { .new_loss = true };
    CHECK(ps_congestion_init(&congestion, PS_CC_STATIC, 32768, 1408, true) == PS_OK);
    CHECK(congestion.ops->initial_window(&congestion) == 32768);
    CHECK(congestion.ops->on_rebuild(&congestion, &input, &force) == 32768 && !force);
    CHECK(ps_congestion_init(&congestion, 99, 32768, 1408, true) == PS_E_INVALID);
}

/* Random puts and removes against a plain array. */
static void test_map(void)
{
    enum { KEYS = 300, LIMIT = 200 };
    int32_t model[KEYS] = { 0 };
    int32_t count = 0;
    ps_map_t map;
    ps_random_t random;
    ps_random_seed(&random, 7);
    CHECK(ps_map_init(&map, LIMIT, 12345) == PS_OK);
    for (int step = 0; step < 200000; step++) {
        const int32_t key = (int32_t)ps_random_below(&random, KEYS);
        const uint64_t wide = ps_map_key(key / 7, key % 7 - 3);
        if (ps_random_below(&random, 2) == 0) {
            const int32_t value = 1 + (int32_t)ps_random_below(&random, 1000);
            const bool room = model[key] != 0 || count < LIMIT;
            CHECK(ps_map_put(&map, wide, value) == room);
            count += room && model[key] == 0;
            model[key] = room ? value : model[key];
        } else {
            ps_map_remove(&map, wide);
            count -= model[key] != 0;
            model[key] = 0;
        }
        CHECK(ps_map_get(&map, wide) == model[key] && map.count == count);
    }
    for (int32_t key = 0; key < KEYS; key++) {
        CHECK(ps_map_get(&map, ps_map_key(key / 7, key % 7 - 3)) == model[key]);
    }
    ps_map_fini(&map);
}

int main(void)
{
    test_every_walk();
    test_fill_outside_a_gap_changes_nothing();
    test_a_split_keeps_the_timer();
    test_backoff_distribution();
    test_retry_waits_for_a_round_trip();
    test_static_congestion();
    test_map();
    return 0;
}
