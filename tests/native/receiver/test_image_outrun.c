/* SPDX-License-Identifier: Apache-2.0
 * A receiver whose sender under NAK-strength control has gone further than it retransmits: the
 * image ends at once, by data and by heartbeats alone; one forged frame ends nothing.  In a group a
 * NAK leaves before the sender has gone that far.
 */
#include "recv_world.h"

enum { READ = 1024, MTU = 1408 };

static void open_as(world_t *world, const world_options_t *options)
{
    world_open(world, options);
    world_make_image(world, options);
    world_data(world, 0, READ, READ);
    world_step(world);
    world_consume(world, READ);
    world_pass(world, MS);
    memnet_discard(world->memnet);
}

static void open_pressed(world_t *world)
{
    const world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE,
                                      .advertise = 1 };
    open_as(world, &options);
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

/* The sender of a group is known to be this far beyond the first missing byte. */
static int32_t naks_of_a_gap(world_t *world, int64_t beyond)
{
    world_heartbeat(world, READ + beyond, PS_FLAG_UNFRAGMENTED);
    world_step(world);
    return world_count_sent(world, PS_TYPE_NAK);
}

static void open_group(world_t *world, uint32_t capabilities, int64_t rtt_ns)
{
    const world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK | capabilities,
                                      .advertise = 1,
                                      .group = 1 };
    open_as(world, &options);
    world->image->rtt.smoothed_ns = rtt_ns;
}

/* A gap that opens with an eighth of a term in it: the sender's speed is not known yet. */
static void a_nak_of_a_group_does_not_wait_until_repair_is_impossible(void)
{
    const struct {
        uint32_t capabilities;
        int64_t beyond;
        int32_t naks;
    } cases[] = {
        { PS_CAP_PRESSURE, WORLD_TERM_LENGTH / 8 - 32, 0 },
        { PS_CAP_PRESSURE, WORLD_TERM_LENGTH / 8, 1 },
        { 0, WORLD_TERM_LENGTH / 4, 0 }, /* its sender waits for its receivers */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_t world;
        open_group(&world, cases[i].capabilities, 4 * MS);
        CHECK_EQ(naks_of_a_gap(&world, cases[i].beyond), cases[i].naks);
        world_close(&world);
    }
}

/* At the speed that it had since the gap was found, the sender is half a term beyond it in a round
 * trip; or it is not. */
static void the_delay_of_a_group_lasts_while_repair_is_possible(void)
{
    enum { AHEAD = WORLD_TERM_LENGTH / 8 };
    const struct {
        int64_t rtt_ns;
        int64_t beyond;
        int32_t naks;
    } cases[] = {
        { 3 * MS, AHEAD, 1 }, /* 1/8 T a ms: 1/8 and 3/8 */
        { 2 * MS, AHEAD, 0 },
        { 2 * MS, 2 * AHEAD, 1 },
        { MS / 2, 2 * AHEAD + AHEAD / 2, 0 },
        { MS / 2, 3 * AHEAD, 1 },
        { MS / 1000, 4 * AHEAD - 64, 0 },
        { MS / 1000, 4 * AHEAD, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_t world;
        open_group(&world, PS_CAP_PRESSURE, cases[i].rtt_ns);
        CHECK_EQ(naks_of_a_gap(&world, 64), 0);
        world_pass(&world, MS);
        CHECK_EQ(naks_of_a_gap(&world, cases[i].beyond), cases[i].naks);
        world_close(&world);
    }
}

/* The next NAK of such a gap leaves when an answer should have come, without a random part. */
static void a_nak_that_could_not_wait_is_repeated_without_a_delay(void)
{
    world_t world;
    open_group(&world, PS_CAP_PRESSURE, 4 * MS);
    CHECK_EQ(naks_of_a_gap(&world, WORLD_TERM_LENGTH / 2), 1);
    const int64_t answer_ns = ps_rtt_timeout_ns(&world.image->rtt);
    world_pass(&world, answer_ns - 1);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    world_pass(&world, 1);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 1);
    world_close(&world);
}

int main(void)
{
    RUN(heartbeats_beyond_repair_end_the_image);
    RUN(an_end_beyond_repair_ends_the_image_too);
    RUN(what_can_be_repaired_is_requested);
    RUN(what_the_source_denies_ends_nothing);
    RUN(a_nak_of_a_group_does_not_wait_until_repair_is_impossible);
    RUN(the_delay_of_a_group_lasts_while_repair_is_possible);
    RUN(a_nak_that_could_not_wait_is_repeated_without_a_delay);
    return 0;
}
