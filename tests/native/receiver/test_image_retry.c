/* SPDX-License-Identifier: Apache-2.0
 * The interval between the NAKs for a gap: it grows while nothing of the gap arrives, and no longer
 * when a part arrives.
 */
#include "recv_world.h"

enum { GAP = 1024, RTT_MS = 4, RETRIES = 12 };

/* Opens an image with the gap [0, GAP), and lets its interval grow. */
static void open_with_an_old_gap(world_t *world, int64_t rtt_ns)
{
    const world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK };
    world_open(world, &options);
    world_make_image(world, &options);
    world->image->rtt.smoothed_ns = rtt_ns;
    world_data(world, GAP, GAP + 64, 64);
    world_step(world);
    for (int32_t i = 0; i < RETRIES * 16; i++) {
        world_pass(world, RTT_MS * MS);
    }
    memnet_discard(world->memnet);
}

/* Returns the milliseconds from the next NAK to the one after it. */
static int32_t interval_ms(world_t *world)
{
    int32_t passed = 0;
    for (int32_t naks = 0; naks < 2;) {
        CHECK(passed < 1000);
        world_pass(world, MS);
        naks += world_count_sent(world, PS_TYPE_NAK) > 0;
        passed += naks == 1;
    }
    return passed;
}

static void without_data_the_interval_stays_long(void)
{
    world_t world;
    open_with_an_old_gap(&world, RTT_MS * MS);
    CHECK(interval_ms(&world) >= 16 * RTT_MS);
    world_close(&world);
}

/* [from, to) of the gap arrives: its start, its end, or its middle. */
static void a_part_ends_the_growth(int64_t from, int64_t to, int32_t gaps)
{
    world_t world;
    open_with_an_old_gap(&world, RTT_MS * MS);
    world_data(&world, from, to, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).gaps, gaps);
    for (int32_t i = 0; i < gaps; i++) {
        CHECK_EQ(world.image->gaps.items[i].requested, PS_NAK_PATIENCE);
    }
    CHECK(interval_ms(&world) <= 2 * RTT_MS);
    world_close(&world);
}

static void a_part_of_the_gap_ends_the_growth(void)
{
    a_part_ends_the_growth(0, 64, 1);
    a_part_ends_the_growth(GAP - 64, GAP, 1);
    a_part_ends_the_growth(512, 576, 2);
}

/* The data behind the gap says nothing of the gap. */
static void data_behind_the_gap_changes_nothing(void)
{
    world_t world;
    open_with_an_old_gap(&world, RTT_MS * MS);
    world_data(&world, GAP + 64, GAP + 128, 64);
    world_step(&world);
    CHECK(world.image->gaps.items[0].requested > PS_NAK_PATIENCE + 1);
    CHECK(interval_ms(&world) >= 16 * RTT_MS);
    world_close(&world);
}

/* Before a round trip is measured, the NAKs for a gap must not flood a long path. */
static void without_a_round_trip_a_part_changes_nothing(void)
{
    world_t world;
    open_with_an_old_gap(&world, 0);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    CHECK(world.image->gaps.items[0].requested > PS_NAK_PATIENCE + 1);
    CHECK(interval_ms(&world) >= 99);
    world_close(&world);
}

int main(void)
{
    RUN(without_data_the_interval_stays_long);
    RUN(a_part_of_the_gap_ends_the_growth);
    RUN(data_behind_the_gap_changes_nothing);
    RUN(without_a_round_trip_a_part_changes_nothing);
    return 0;
}
