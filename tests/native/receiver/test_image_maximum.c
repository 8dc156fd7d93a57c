/* SPDX-License-Identifier: Apache-2.0
 * test_image_maximum.c: an image at the maximum position, where the term count has no higher value.
 */
#include "recv_world.h"

enum { FRAME = 1024, LAST_FRAMES = 4 };

static const int64_t END = (int64_t)WORLD_TERM_LENGTH << 31;

/* An image whose stream has LAST_FRAMES frames left. */
static void open_near_end(world_t *world, int32_t initial_term_id)
{
    const world_options_t options = { .initial_term_id = initial_term_id,
                                      .terms_before = INT32_MAX,
                                      .term_offset = WORLD_TERM_LENGTH - LAST_FRAMES * FRAME };
    world_open(world, &options);
    world_golden(world, "setup");
    world_step(world);
    world_make_image(world, &options);
    CHECK_EQ(world_status(world).position, END - LAST_FRAMES * FRAME);
    memnet_discard(world->memnet);
}

/* The end as penstock states it: offset T of the last term. */
static void heartbeat_at_end(world_t *world, uint8_t flags)
{
    uint8_t frame[PS_CONTROL_MAX];
    const uint32_t length = ps_wire_build_heartbeat(
        frame, GOLDEN_SESSION, GOLDEN_STREAM, ps_wrap_add(world->log.initial_term_id, INT32_MAX),
        WORLD_TERM_LENGTH, flags);
    world_inject(world, frame, length);
}

static void read_sm(world_t *world, ps_sm_t *sm)
{
    static memnet_dgram_t dgram;
    CHECK_EQ(world_sent(world, PS_TYPE_SM, &dgram), 1);
    CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, sm), PS_WIRE_OK);
}

/* aeron: the heartbeat names the term id that wrapped, as Aeron's senders do. */
static void lost_tail_is_requested(int32_t initial_term_id, bool aeron)
{
    static memnet_dgram_t dgram;
    world_t world;
    ps_nak_t nak;
    ps_sm_t sm;
    open_near_end(&world, initial_term_id);
    world_data(&world, END - 4 * FRAME, END - 2 * FRAME, FRAME);
    world_step(&world);
    if (aeron) {
        world_heartbeat(&world, END, PS_FLAG_UNFRAGMENTED);
    } else {
        heartbeat_at_end(&world, PS_FLAG_UNFRAGMENTED);
    }
    world_pass(&world, 20 * MS);
    CHECK_EQ(world_sent(&world, PS_TYPE_NAK, &dgram), 1);
    CHECK_EQ(ps_wire_nak(dgram.data, dgram.length, &nak), PS_WIRE_OK);
    CHECK_EQ(nak.term_id, ps_wrap_add(initial_term_id, INT32_MAX));
    CHECK_EQ(nak.term_offset, WORLD_TERM_LENGTH - 2 * FRAME);
    CHECK_EQ(nak.length, 2 * FRAME);
    world_data(&world, END - 2 * FRAME, END, FRAME);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, END);
    CHECK(world_holds(&world, END - 4 * FRAME, END, FRAME));
    memnet_discard(world.memnet);
    world_consume(&world, END);
    world_pass(&world, 300 * MS);
    read_sm(&world, &sm);
    CHECK_EQ(sm.term_id, ps_wrap_add(initial_term_id, INT32_MAX));
    CHECK_EQ(sm.term_offset, WORLD_TERM_LENGTH);
    world_close(&world);
}

static void test_a_lost_tail_is_requested(void)
{
    const int32_t initial[] = { GOLDEN_TERM, 0, 1, -1, INT32_MAX, INT32_MIN, INT32_MIN + 7 };
    for (size_t i = 0; i < sizeof initial / sizeof initial[0]; i++) {
        if (initial[i] != 0) { /* 0 stands for golden in the world's options */
            lost_tail_is_requested(initial[i], false);
            lost_tail_is_requested(initial[i], true);
        }
    }
}

static void test_the_end_of_the_stream_is_the_end_of_the_last_term(void)
{
    world_t world;
    ps_event_t event;
    open_near_end(&world, GOLDEN_TERM);
    heartbeat_at_end(&world, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
    world_step(&world);
    world_data(&world, END - 4 * FRAME, END, FRAME);
    world_consume(&world, END);
    for (int32_t i = 0; i < 4; i++) {
        heartbeat_at_end(&world, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(world_status(&world).end_of_stream, END);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_OF_STREAM);
    CHECK_EQ(event.ended.position, END);
    world_close(&world);
}

/* Data beyond the end, as only a forger sends it, is dropped. */
static void test_no_data_lies_beyond_the_end(void)
{
    world_t world;
    open_near_end(&world, GOLDEN_TERM);
    world_data(&world, END - 4 * FRAME, END, FRAME);
    world_data(&world, END, END + FRAME, FRAME);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, END);
    CHECK_EQ(ps_counter_get(world.cnc, world.hwm_counter), END);
    world_close(&world);
}

int main(void)
{
    RUN(test_a_lost_tail_is_requested);
    RUN(test_the_end_of_the_stream_is_the_end_of_the_last_term);
    RUN(test_no_data_lies_beyond_the_end);
    return 0;
}
