/* SPDX-License-Identifier: Apache-2.0 */
/* 20 000 SETUPs a second for ten seconds: what reaches the conductor, and who gets in beside it. */
#include "ps_driver_state.h"
#include "golden.h"
#include "recv_world.h"

#define SECOND INT64_C(1000000000)
#define MS     INT64_C(1000000)

enum { PER_MS = 20, SECONDS = 10 };

static void inject_setup(world_t *world, const ps_addr_t *from, int32_t session_id)
{
    uint8_t frame[256];
    const uint32_t length = golden("setup", frame);
    memcpy(frame + 12, &session_id, sizeof session_id);
    (void)memnet_inject(world->memnet, &world->local, from, frame, length);
}

static ps_addr_t stranger(int32_t n)
{
    ps_addr_t from = memnet_addr(0, (uint16_t)(1024 + n % 60000));
    from.ip[0] = 10;
    from.ip[1] = 7;
    from.ip[2] = (uint8_t)(n >> 8);
    from.ip[3] = (uint8_t)n;
    return from;
}

/* The conductor refuses each, a millisecond later. */
static int32_t answer(world_t *world, int32_t *most)
{
    ps_event_t event;
    int32_t count = 0;
    while (ps_driver_poll_event(world->driver, &event)) {
        if (event.type == PS_EV_SETUP) {
            count++;
            CHECK_EQ(ps_recv_endpoint_forget_session(world->driver, world->endpoint,
                                                     event.stream_id, event.session_id, 0),
                     PS_OK);
        }
    }
    *most = count > *most ? count : *most;
    return count;
}

static void test_a_flood_reaches_the_conductor_in_bounds(int32_t addresses)
{
    const world_options_t plain = { 0 };
    world_t world;
    int32_t session_id = 1;
    int32_t reported = 0;
    int32_t most = 0;
    world_open(&world, &plain);
    for (int32_t ms = 0; ms < SECONDS * 1000; ms++) {
        for (int32_t i = 0; i < PER_MS; i++, session_id++) {
            const ps_addr_t from = stranger(session_id % addresses);
            inject_setup(&world, &from, session_id);
        }
        world.now_ns += MS;
        world_step(&world);
        reported += answer(&world, &most);
    }
    CHECK(most <= PS_HALF_OPEN_WAITING);
    CHECK(reported <= PS_SETUP_BURST + SECONDS * SECOND / PS_SETUP_INTERVAL_NS + 1);
    CHECK(reported >= SECONDS * SECOND / PS_SETUP_INTERVAL_NS / 2); /* it goes on */
    world.now_ns += MS;
    world_step(&world);
    CHECK_EQ(world.driver->receiver->half_open.count, 0);
    world_close(&world);
}

/* DATA of strangers takes all places of sessions without a SETUP; a SETUP still gets in. */
static void test_a_setup_gets_in_beside_data_of_strangers(void)
{
    const world_options_t plain = { 0 };
    world_t world;
    ps_event_t event;
    uint8_t frame[256];
    world_open(&world, &plain);
    const uint32_t length = golden("data_hello", frame);
    for (int32_t session_id = 1; session_id < 4000; session_id++) {
        memcpy(frame + 12, &session_id, sizeof session_id);
        (void)memnet_inject(world.memnet, &world.local, &world.sender, frame, length);
        world_step(&world);
        memnet_discard(world.memnet);
    }
    inject_setup(&world, &world.sender, 5000);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    CHECK_EQ(event.session_id, 5000);
    world_close(&world);
}

/* An image is about to be evicted when its first frame comes: the frame wins if it is read first,
 * and after the eviction it does nothing. */
static void test_an_eviction_and_the_first_frame(void)
{
    for (int32_t first = 0; first < 2; first++) {
        const world_options_t plain = { 0 };
        world_t world;
        ps_event_t event;
        world_open(&world, &plain);
        world_golden(&world, "setup");
        world_step(&world);
        CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
        world_make_image(&world, &plain);
        ps_half_open_t *half_open = &world.driver->receiver->half_open;
        CHECK_EQ(half_open->count, 1);
        CHECK_EQ(half_open->waiting, 0);
        world.now_ns += 2 * SECOND;
        world_step(&world);
        if (first) {
            world_golden(&world, "data_hello");
        }
        for (int32_t i = 0; i < half_open->limit; i++) {
            const ps_addr_t from = stranger(i);
            inject_setup(&world, &from, 100 + i);
        }
        if (!first) {
            world_golden(&world, "data_hello");
        }
        world_step(&world);
        CHECK_EQ(world_event(&world, PS_EV_IMAGE_ESTABLISHED, &event), first);
        CHECK_EQ(world.image->state, first ? PS_IMAGE_ACTIVE : PS_IMAGE_ENDED);
        CHECK_EQ(world.image->end_reason, first ? 0 : PS_END_EVICTED);
        CHECK_EQ(world_status(&world).position, first ? 64 : 0);
        CHECK_EQ(half_open->count, half_open->limit);
        world_close(&world);
    }
}

int main(void)
{
    test_a_flood_reaches_the_conductor_in_bounds(1);
    test_a_flood_reaches_the_conductor_in_bounds(5000);
    test_a_setup_gets_in_beside_data_of_strangers();
    test_an_eviction_and_the_first_frame();
    return 0;
}
