/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adopt.c: images that a dead driver left, at the worst moments.  A death is a driver that is
 * freed without a word: its files stay as they are.
 */
#include "check.h"
#include "recv_world.h"

enum { FRAME = 1024, FAR = 5 * WORLD_TERM_LENGTH };

static uint32_t walk_state;

static uint32_t walk_random(uint32_t below)
{
    walk_state = walk_state * 1664525u + 1013904223u;
    return (walk_state >> 8) % below;
}

/* The driver dies; another opens the same socket. */
static void succeed(world_t *world)
{
    memnet_dgram_t dropped;
    ps_driver_destroy(world->driver);
    ps_driver_params_t params = memnet_driver_params(world->memnet, world->cnc, world->shared);
    params.seed = 99;
    params.receiver_id_base = GOLDEN_RECEIVER + 1000;
    CHECK_EQ(ps_driver_create(&params, &world->driver), PS_OK);
    while (memnet_take(world->memnet, &dropped)) { /* what the dead driver had sent */
    }
    world_listen(world);
}

static ps_image_params_t adopted_image(const world_t *world)
{
    return (ps_image_params_t){ .id = 77,
                                .log_path = world->path,
                                .endpoint = world->endpoint,
                                .slot = world->image_slot,
                                .high_water_counter_id = world->hwm_counter,
                                .position_counter_id = world->pos_counter,
                                .naks_counter_id = world->naks_counter,
                                .session_id = GOLDEN_SESSION,
                                .stream_id = GOLDEN_STREAM,
                                .initial_term_id = GOLDEN_TERM,
                                .active_term_id = GOLDEN_TERM,
                                .window_bytes = WORLD_WINDOW,
                                .source = world->sender,
                                .nak_delay_ns = -1,
                                .reserved_position = INT64_MAX,
                                .join_ordinal = 0,
                                .untethered_window_limit_timeout_ns = 5 * SECOND,
                                .untethered_linger_timeout_ns = 5 * SECOND,
                                .untethered_resting_timeout_ns = 10 * SECOND,
                                .reliable = 1,
                                .rejoin = 1,
                                .adopted = 1,
                                .consumption = ps_counter_get(world->cnc, world->sub_pos) };
}

static void adopt_image(world_t *world)
{
    const world_options_t options = { 0 };
    const ps_image_params_t params = adopted_image(world);
    CHECK_EQ(ps_image_add(world->driver, &params, &world->image), PS_OK);
    world_subscribe(world, &options);
    CHECK_EQ(ps_recv_endpoint_add_interest(world->driver, world->endpoint, GOLDEN_STREAM, 0, 1),
             PS_OK);
    world_step(world);
}

/* Where a subscriber that walks the log gets to. */
static int64_t readable(const world_t *world, int64_t from)
{
    while (ps_frame_length_acquire(ps_frame_at(&world->log, from)) != 0) {
        /* Never anything of an earlier lap. */
        CHECK_EQ(ps_frame_at(&world->log, from)->frame_length, FRAME);
        CHECK_EQ(ps_frame_at(&world->log, from)->term_offset, from & world->log.term_mask);
        CHECK_EQ(ps_frame_at(&world->log, from)->term_id,
                 ps_term_id_at(from, world->log.shift, world->log.initial_term_id));
        from += FRAME;
    }
    return from;
}

static void open_image(world_t *world)
{
    const world_options_t options = { 0 };
    world_open(world, &options);
    world_make_image(world, &options);
    world->log.meta->correlation_id = 77;
}

/* What the first status message says was consumed. */
static int64_t stated_position(world_t *world)
{
    static memnet_dgram_t dgram;
    ps_sm_t sm;
    CHECK_EQ(world_sent(world, PS_TYPE_SM, &dgram), 1);
    CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
    return ps_position(sm.term_id, sm.term_offset, world->log.shift, world->log.initial_term_id);
}

/* Some data, some of it lost, some of it consumed; then perhaps a death before the last counters
 * moved.  What a subscriber could read stays, what lies above is dropped, and in the end every byte
 * is what was sent. */
static void walk_image(uint32_t seed)
{
    world_t world;
    int64_t consumed = 0, deaths = 0;
    walk_state = seed;
    open_image(&world);
    while (consumed < FAR) {
        const int64_t complete = readable(&world, consumed);
        for (int64_t at = complete; at < consumed + WORLD_WINDOW; at += FRAME) {
            if (walk_random(4) != 0) {
                world_data(&world, at, at + FRAME, FRAME);
            }
        }
        world_pass(&world, MS);
        if (walk_random(3) == 0) {
            const int64_t seen = readable(&world, consumed);
            if (walk_random(2) == 0) { /* died between frames and counter */
                ps_counter_set(world.cnc, world.pos_counter, consumed);
            }
            succeed(&world);
            adopt_image(&world);
            const ps_image_status_t status = world_status(&world);
            CHECK_EQ(status.position, seen);
            CHECK_EQ(status.high_water, seen);
            CHECK_EQ(status.gaps, 0);
            CHECK_EQ(*(int64_t *)(void *)ps_log_at(&world.log, seen), 0);
            CHECK(world_holds(&world, consumed, seen, FRAME));
            CHECK_EQ(stated_position(&world), consumed); /* the sender hears at once */
            deaths++;
        }
        const int64_t complete_now = readable(&world, consumed);
        CHECK(world_holds(&world, consumed, complete_now, FRAME));
        consumed += (complete_now - consumed) / FRAME > 0
                        ? FRAME * (1 + walk_random((uint32_t)((complete_now - consumed) / FRAME)))
                        : 0;
        world_consume(&world, consumed);
        world_pass(&world, MS);
    }
    CHECK(deaths > 3);
    world_close(&world);
}

static void test_an_image_survives_deaths_at_any_moment(void)
{
    for (uint32_t seed = 1; seed <= 20; seed++) {
        walk_image(seed);
    }
}

static void test_an_image_whose_counter_lies_is_refused(void)
{
    world_t world;
    open_image(&world);
    world_data(&world, 0, 4 * FRAME, FRAME);
    world_pass(&world, MS);
    const int64_t lies[] = { -32, 33, INT64_MAX - 31, INT64_MIN };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        ps_image_params_t params;
        ps_image_t *image = NULL;
        succeed(&world);
        ps_counter_set(world.cnc, world.pos_counter, lies[i]);
        params = adopted_image(&world);
        CHECK_EQ(ps_image_add(world.driver, &params, &image), PS_E_CORRUPT);
    }
    world_close(&world);
}

static void test_another_images_log_is_refused(void)
{
    world_t world;
    ps_image_t *image = NULL;
    open_image(&world);
    succeed(&world);
    world.log.meta->correlation_id = 78;
    const ps_image_params_t params = adopted_image(&world);
    CHECK_EQ(ps_image_add(world.driver, &params, &image), PS_E_CORRUPT);
    world_close(&world);
}

static void test_messages_are_counted_on(void)
{
    world_t world;
    open_image(&world);
    world_data(&world, 0, 8 * FRAME, FRAME);
    world_pass(&world, 5 * MS);
    ps_image_slot_t *slot = &world.shared->images[world.image_slot];
    CHECK_EQ(slot->ordinal, 8);
    succeed(&world);
    adopt_image(&world);
    world_data(&world, 8 * FRAME, 10 * FRAME, FRAME);
    world_pass(&world, 5 * MS);
    CHECK_EQ(slot->ordinal, 10);
    world_close(&world);
}

/* What lies at the end of what is complete and is no frame of this place is not followed, and
 * readers stop before it. */
static void test_what_is_no_frame_ends_the_walk(void)
{
    for (int32_t i = 0; i < 4; i++) {
        world_t world;
        open_image(&world);
        world_data(&world, 0, 4 * FRAME, FRAME);
        world_pass(&world, MS);
        ps_frame_t *frame = ps_frame_at(&world.log, 4 * FRAME);
        memcpy((uint8_t *)frame, ps_frame_at(&world.log, 0), FRAME);
        frame->term_offset = i == 0 ? 0 : 4 * FRAME;
        frame->term_id += i == 1 ? -3 : 0; /* of an earlier lap */
        atomic_store(&frame->frame_length, i == 2 ? WORLD_TERM_LENGTH : i == 3 ? 31 : FRAME);
        succeed(&world);
        adopt_image(&world);
        CHECK_EQ(world_status(&world).position, 4 * FRAME);
        CHECK_EQ(readable(&world, 0), 4 * FRAME);
        world_close(&world);
    }
}

/* Clients can write the index: what cannot be is not followed. */
static void test_an_index_that_lies_is_not_believed(void)
{
    static const struct {
        int64_t position, ordinal;
    } lies[] = { { 8 * FRAME - 8, 8 },     { -32, 8 },       { INT64_MIN, 8 }, { INT64_MAX, 8 },
                 { 8 * FRAME, INT64_MAX }, { 8 * FRAME, -2 } };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        world_t world;
        open_image(&world);
        world_data(&world, 0, 8 * FRAME, FRAME);
        world_pass(&world, 5 * MS);
        ps_index_ring_t *ring = &world.shared->image_histories[world.image_slot].ring;
        CHECK(ring->count > 0);
        for (uint64_t entry = 0; entry < ring->count; entry++) {
            ring->entries[entry].position = lies[i].position;
            ring->entries[entry].ordinal = lies[i].ordinal;
        }
        succeed(&world);
        adopt_image(&world);
        world_data(&world, 8 * FRAME, 10 * FRAME, FRAME);
        world_pass(&world, 5 * MS);
        CHECK_EQ(world.shared->images[world.image_slot].ordinal, -1);
        world_close(&world);
    }
}

/* The dead driver had accepted no frame: its conductor does not know whether there is a stream. */
static void test_an_image_without_a_frame_reports_its_first(void)
{
    for (int32_t half_open = 0; half_open < 2; half_open++) {
        world_t world;
        ps_event_t event;
        ps_image_params_t params;
        open_image(&world);
        succeed(&world);
        params = adopted_image(&world);
        params.half_open = (uint8_t)half_open;
        params.consumption = 0;
        CHECK_EQ(ps_image_add(world.driver, &params, &world.image), PS_OK);
        CHECK_EQ(ps_recv_endpoint_add_interest(world.driver, world.endpoint, GOLDEN_STREAM, 0, 1),
                 PS_OK);
        world_pass(&world, MS);
        CHECK_EQ(world_event(&world, PS_EV_IMAGE_ESTABLISHED, &event), 0);
        world_data(&world, 0, 2 * FRAME, FRAME);
        world_pass(&world, MS);
        CHECK_EQ(world_event(&world, PS_EV_IMAGE_ESTABLISHED, &event), half_open);
        CHECK_EQ(world_status(&world).position, 2 * FRAME);
        world_close(&world);
    }
}

int main(void)
{
    RUN(test_an_image_survives_deaths_at_any_moment);
    RUN(test_an_image_whose_counter_lies_is_refused);
    RUN(test_another_images_log_is_refused);
    RUN(test_messages_are_counted_on);
    RUN(test_what_is_no_frame_ends_the_walk);
    RUN(test_an_index_that_lies_is_not_believed);
    RUN(test_an_image_without_a_frame_reports_its_first);
    return 0;
}
