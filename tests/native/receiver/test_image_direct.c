/* SPDX-License-Identifier: Apache-2.0
 * Images: what is received into the log before it is checked.
 */
#include "recv_world.h"

/* Long buffers in order land in the log; then one with a mistake somewhere, which a reader must
 * never come to, and what repairs it. */
static void direct_stream(uint64_t seed, int32_t *received, int32_t *spoilt)
{
    enum { TOTAL = 24 * WORLD_TERM_LENGTH, RUN_BYTES = 1024 };
    world_t world;
    ps_random_t random;
    const world_options_t plain = { 0 };
    int64_t consumed = 0;
    ps_random_seed(&random, seed);
    world_open(&world, &plain);
    world_make_image(&world, &plain);
    for (int32_t turn = 0; consumed < TOTAL; turn++) {
        CHECK(turn < 100000);
        const int64_t limit = consumed + WORLD_WINDOW / 2 / RUN_BYTES * RUN_BYTES;
        const int64_t bad = ps_random_below(&random, 6) == 0
                                ? consumed + RUN_BYTES * (int64_t)ps_random_below(&random, 8)
                                : -1;
        for (int64_t at = consumed; at < limit; at += RUN_BYTES) {
            uint8_t data[RUN_BYTES];
            for (int32_t in = 0; in < RUN_BYTES; in += 64) {
                (void)world_frame(&world, data + in, at + in, 64, PS_TYPE_DATA);
            }
            if (at == bad) { /* any byte of any header */
                data[64 * ps_random_below(&random, RUN_BYTES / 64) +
                     ps_random_below(&random, 24)] ^= (uint8_t)(1 + ps_random_below(&random, 255));
                ++*spoilt;
            }
            world_inject(&world, data, RUN_BYTES);
        }
        world_step(&world);
        int64_t position = world_status(&world).position;
        world_check_reader(&world, consumed);
        if (position < limit) {
            world_data(&world, position & ~(int64_t)(RUN_BYTES - 1),
                       (position & ~(int64_t)(RUN_BYTES - 1)) + RUN_BYTES, 64);
            world_step(&world);
            position = world_status(&world).position;
            world_check_reader(&world, consumed);
        }
        consumed = position;
        world_consume(&world, consumed);
        world_step(&world);
    }
    *received += memnet_direct(world.memnet);
    world_close(&world);
}

static void test_what_lands_is_checked_before_it_is_seen(void)
{
    int32_t received = 0, spoilt = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        direct_stream(seed, &received, &spoilt);
    }
    CHECK(spoilt > 40);
    CHECK(received > 40);
}

/* A run of which only a part may stay: its last datagram ends with a padding frame.  What follows
 * the part comes as it was sent, so that nothing counts as malformed or lost. */
static int32_t padded_stream(uint64_t seed)
{
    enum { TOTAL = 24 * WORLD_TERM_LENGTH, RUN_BYTES = 1024 };
    world_t world;
    ps_random_t random;
    const world_options_t plain = { 0 };
    int32_t direct_padded = 0;
    ps_random_seed(&random, seed);
    world_open(&world, &plain);
    world_make_image(&world, &plain);
    for (int64_t at = 0; at < TOTAL;) {
        const bool pads = ps_random_below(&random, 6) == 0;
        const int64_t end = at + RUN_BYTES * (4 + (int64_t)ps_random_below(&random, 8));
        const int32_t before = memnet_direct(world.memnet);
        for (; at < end; at += RUN_BYTES) {
            uint8_t data[RUN_BYTES];
            uint32_t length = 0;
            const int32_t frames = pads && at + RUN_BYTES == end ? 1 : RUN_BYTES / 64;
            for (int32_t i = 0; i < frames; i++) {
                length += world_frame(&world, data + length, at + 64 * i, 64, PS_TYPE_DATA);
            }
            if (frames == 1) {
                length += world_frame(&world, data + length, at + 64, RUN_BYTES - 64, PS_TYPE_PAD);
            }
            world_inject(&world, data, length);
        }
        world_step(&world);
        CHECK_EQ(world_status(&world).position, end);
        direct_padded += pads && memnet_direct(world.memnet) > before;
        world_consume(&world, end);
        world_step(&world);
    }
    CHECK_EQ(ps_counter_get(world.cnc, PS_SYS_INVALID_PACKETS), 0);
    CHECK_EQ(ps_counter_get(world.cnc, world.naks_counter), 0);
    world_close(&world);
    return direct_padded;
}

static void test_what_follows_the_part_that_stays_is_whole(void)
{
    int32_t direct_padded = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        direct_padded += padded_stream(seed);
    }
    CHECK(direct_padded > 40);
}

int main(void)
{
    RUN(test_what_follows_the_part_that_stays_is_whole);
    RUN(test_what_lands_is_checked_before_it_is_seen);
    return 0;
}
