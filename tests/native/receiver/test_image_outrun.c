/* SPDX-License-Identifier: Apache-2.0
 * A receiver whose sender under NAK-strength control has gone further than it retransmits: the
 * image ends at once, by data and by heartbeats alone; one forged frame ends nothing.
 */
#include "recv_world.h"

enum { READ = 1024, MTU = 1408 };

static void open_pressed(world_t *world)
{
    const world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE,
                                      .advertise = 1 };
    world_open(world, &options);
    world_make_image(world, &options);
    world_data(world, 0, READ, READ);
    world_step(world);
    world_consume(world, READ);
    world_pass(world, MS);
    memnet_discard(world->memnet);
}

static int64_t reach_of(const world_t *world)
{
    return ps_log_repair_reach(world->log.term_length, MTU, 1);
}

/* Ends with a loss of heartbeats alone: within what is kept, and beyond it. */
static void heartbeats_beyond_repair_end_the_image(void)
{
    const int64_t ahead[] = { 64, 4096, 16384, 32768 };
    for (size_t i = 0; i < sizeof(ahead) / sizeof(ahead[0]); i++) {
        world_t world;
        ps_event_t event;
        open_pressed(&world);
        const int64_t position = READ + reach_of(&world) + ahead[i];
        world_heartbeat(&world, position, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 100 * MS);
        CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
        for (int k = 0; k < 2; k++) {
            world_heartbeat(&world, position, PS_FLAG_UNFRAGMENTED);
            world_pass(&world, 100 * MS);
        }
        CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
        CHECK_EQ(event.ended.reason, PS_END_OUTRUN);
        CHECK_EQ(event.ended.position, READ);
        world_close(&world);
    }
}

/* An end that the image cannot come to any more is no reason to wait for it. */
static void an_end_beyond_repair_ends_the_image_too(void)
{
    world_t world;
    ps_event_t event;
    open_pressed(&world);
    for (int k = 0; k < 3; k++) {
        world_heartbeat(&world, READ + reach_of(&world) + 64, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_OUTRUN);
    world_close(&world);
}

static void what_can_be_repaired_is_requested(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    ps_event_t event;
    open_pressed(&world);
    for (int k = 0; k < 20; k++) {
        world_heartbeat(&world, READ + reach_of(&world) - 64, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    CHECK(world_sent(&world, PS_TYPE_NAK, &dgram));
    world_close(&world);
}

static void what_the_source_denies_ends_nothing(void)
{
    world_t world;
    ps_event_t event;
    open_pressed(&world);
    for (int k = 0; k < 20; k++) {
        world_heartbeat(&world, READ + reach_of(&world) + 4096, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 50 * MS);
        world_heartbeat(&world, READ, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 50 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    world_data(&world, READ, READ + 1024, 1024);
    world_pass(&world, MS);
    CHECK_EQ(world_status(&world).position, READ + 1024);
    world_close(&world);
}

int main(void)
{
    RUN(heartbeats_beyond_repair_end_the_image);
    RUN(an_end_beyond_repair_ends_the_image_too);
    RUN(what_can_be_repaired_is_requested);
    RUN(what_the_source_denies_ends_nothing);
    return 0;
}
