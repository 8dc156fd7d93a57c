/* SPDX-License-Identifier: Apache-2.0
 *
 * test_idle_image.c: an image that rests keeps what may be read and half a term to receive into; it
 * goes on as if nothing had been.
 */
#include "ps_image.h"
#include "recv_world.h"

enum { STEP = 1024, TERM = WORLD_TERM_LENGTH, QUARTER = TERM / 4 };

/* Receives [from, to), read up to the end of it. */
static void receive(world_t *world, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to; at += STEP) {
        world_data(world, at, at + STEP, STEP);
        world_step(world);
        CHECK(world_holds(world, at, at + STEP, STEP));
        world_consume(world, at + STEP);
        world_pass(world, MS / 10);
    }
    CHECK_EQ(world_status(world).position, to);
}

static void open_at(world_t *world, int64_t end)
{
    static const world_options_t plain;
    world_open(world, &plain);
    world_make_image(world, &plain);
    for (int64_t term = 0; term < PS_PARTITIONS; term++) {
        CHECK_EQ(ps_log_reserve(world->path, TERM, term * TERM, term * TERM + TERM), PS_OK);
    }
    receive(world, 0, end);
}

static ps_event_t give_up(world_t *world, int32_t least_terms)
{
    ps_event_t event;
    CHECK_EQ(ps_image_release_terms(world->driver, world->image, least_terms), PS_OK);
    world_step(world);
    CHECK_EQ(world_event(world, PS_EV_TERMS_RELEASED, &event), 1);
    CHECK(event.kind == PS_KIND_IMAGE && event.id == 77);
    return event;
}

static void expect(const ps_event_t event, int64_t from, int64_t to)
{
    CHECK_EQ(event.terms.kept_from, from);
    CHECK_EQ(event.terms.kept_to, to);
}

static void test_half_a_term_ahead_stays(void)
{
    static const int32_t cases[][3] = { /* quarters of a term: end, kept from, to */
                                        { 1, 0, 4 }, { 2, 0, 4 },  { 3, 0, 8 },  { 5, 4, 8 },
                                        { 6, 4, 8 }, { 7, 4, 12 }, { 8, 8, 12 }, { 13, 12, 16 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_t world;
        open_at(&world, (int64_t)cases[i][0] * QUARTER);
        const ps_event_t event = give_up(&world, 1);
        expect(event, (int64_t)cases[i][1] * QUARTER, (int64_t)cases[i][2] * QUARTER);
        world_close(&world);
    }
}

static void test_a_stream_that_goes_on_requests_its_terms(void)
{
    world_t world;
    ps_event_t event;
    open_at(&world, 5 * QUARTER);
    const int64_t before = memory_of(world.path);
    expect(give_up(&world, 1), TERM, 2 * TERM);
    CHECK_EQ(ps_log_release(world.path, TERM, TERM, 2 * TERM), PS_OK);
    const int64_t resting = memory_of(world.path);
    CHECK_EQ(before - resting, 2 * (TERM - 4096));
    for (int i = 0; i < 30; i++) {
        world_heartbeat(&world, 5 * QUARTER, 0);
        world_pass(&world, SECOND);
    }
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 0);
    receive(&world, 5 * QUARTER, 6 * QUARTER);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 0);
    receive(&world, 6 * QUARTER, 2 * TERM);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(event.term.reserved, 2 * TERM);
    world_data(&world, 2 * TERM, 2 * TERM + STEP, STEP); /* no storage: not taken */
    world_pass(&world, MS);
    CHECK_EQ(world_status(&world).position, 2 * TERM);
    CHECK_EQ(memory_of(world.path), resting);
    CHECK_EQ(ps_log_reserve(world.path, TERM, 2 * TERM, 2 * TERM + TERM), PS_OK);
    CHECK_EQ(ps_image_reserved(world.driver, world.image, 3 * TERM), PS_OK);
    receive(&world, 2 * TERM, 10 * QUARTER + STEP);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(event.term.reserved, 3 * TERM);
    CHECK_EQ(ps_log_reserve(world.path, TERM, 3 * TERM, 3 * TERM + TERM), PS_OK);
    CHECK_EQ(ps_image_reserved(world.driver, world.image, INT64_MAX), PS_OK);
    receive(&world, 10 * QUARTER + STEP, 8 * TERM);
    world_check_reader(&world, 8 * TERM - STEP);
    world_close(&world);
}

static void test_what_is_unread_stays(void)
{
    world_t world;
    open_at(&world, 3 * QUARTER);
    for (int64_t at = 3 * QUARTER; at < TERM + STEP; at += STEP) {
        world_data(&world, at, at + STEP, STEP);
    }
    world_pass(&world, MS);
    CHECK_EQ(world_status(&world).position, TERM + STEP);
    expect(give_up(&world, 1), 0, 2 * TERM);
    world_consume(&world, TERM + STEP);
    world_pass(&world, SECOND);
    expect(give_up(&world, 1), TERM, 2 * TERM);
    world_close(&world);
}

static void test_who_joins_keeps_all(void)
{
    world_t world;
    open_at(&world, 5 * QUARTER);
    CHECK_EQ(ps_image_join_position(world.image), 5 * QUARTER);
    CHECK_EQ(give_up(&world, 1).terms.kept_to, -1);
    world_close(&world);
}

static void test_a_term_that_was_never_there_is_none_to_keep(void)
{
    const world_options_t one_term = { .reserved_position = TERM };
    world_t world;
    ps_event_t event;
    world_open(&world, &one_term);
    world_make_image(&world, &one_term);
    receive(&world, 0, 3 * QUARTER);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(give_up(&world, 1).terms.kept_to, -1);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1); /* the asker may have forgotten */
    CHECK_EQ(event.term.reserved, TERM);
    world_close(&world);
}

/* Two terms are to stay from the present one on, and the second is not there yet. */
static void test_a_term_that_is_not_there_yet_keeps_none_below(void)
{
    const world_options_t two_terms = { .reserved_position = 2 * TERM };
    world_t world;
    world_open(&world, &two_terms);
    world_make_image(&world, &two_terms);
    receive(&world, 0, 5 * QUARTER);
    expect(give_up(&world, 2), TERM, 2 * TERM);
    world_close(&world);
}

static void test_a_full_ring_delays_the_answer_and_what_comes_behind(void)
{
    const world_options_t small = { .event_capacity = 2, .reserved_position = TERM };
    world_t world;
    ps_event_t event;
    world_open(&world, &small);
    world_make_image(&world, &small);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(ps_image_release_terms(world.driver, world.image, 1), PS_OK);
        world_step(&world);
    }
    receive(&world, 0, 3 * QUARTER);
    int answers = 0;
    int wishes = 0;
    for (int i = 0; i < 20; i++) {
        while (ps_driver_poll_event(world.driver, &event)) {
            answers += event.type == PS_EV_TERMS_RELEASED;
            wishes += event.type == PS_EV_TERM_NEEDED;
            CHECK(event.type != PS_EV_TERM_NEEDED || answers == 3);
        }
        world_pass(&world, 2 * MS);
    }
    CHECK_EQ(answers, 3); /* two that found room, and the last word */
    CHECK_EQ(wishes, 1);
    world_close(&world);
}

/* A heartbeat each second; notes the status messages. */
static int32_t idle(world_t *world, int64_t position, int32_t seconds, memnet_dgram_t *last)
{
    int32_t sent = 0;
    for (int32_t i = 0; i < 100 * seconds; i++) {
        if (i % 100 == 50) {
            world_heartbeat(world, position, PS_FLAG_UNFRAGMENTED);
        }
        world_pass(world, 10 * MS);
        while (world_sent(world, PS_TYPE_SM, last)) {
            sent++;
        }
    }
    return sent;
}

static void test_a_resting_image_repeats_its_status_message(void)
{
    world_t world;
    memnet_dgram_t first, last;
    open_at(&world, QUARTER);
    (void)idle(&world, QUARTER, 5, &first);
    CHECK(world.image->resting && world.image->sm_length == first.length);
    CHECK_EQ(idle(&world, QUARTER, 10, &last), 10);
    CHECK(first.length == last.length && memcmp(first.data, last.data, last.length) == 0);
    receive(&world, QUARTER, QUARTER + STEP); /* goes on as if nothing had been */
    CHECK(!world.image->resting);
    (void)idle(&world, QUARTER + STEP, 5, &last);
    CHECK(world.image->resting);
    CHECK(memcmp(first.data, last.data, last.length) != 0);
    world_close(&world);
}

static void test_a_resting_image_ends_when_its_sender_is_silent(void)
{
    world_t world;
    memnet_dgram_t last;
    ps_event_t event;
    open_at(&world, QUARTER);
    (void)idle(&world, QUARTER, 5, &last);
    CHECK(world.image->resting);
    for (int32_t i = 0; i < 94; i++) { /* the last heartbeat came half a second ago */
        world_pass(&world, 100 * MS);
    }
    CHECK(!world_event(&world, PS_EV_IMAGE_INACTIVE, &event));
    for (int32_t i = 0; i < 3; i++) {
        world_pass(&world, 100 * MS);
    }
    CHECK(world_event(&world, PS_EV_IMAGE_INACTIVE, &event));
    CHECK_EQ(event.ended.reason, PS_END_TIMEOUT);
    world_close(&world);
}

int main(void)
{
    test_a_resting_image_repeats_its_status_message();
    test_a_resting_image_ends_when_its_sender_is_silent();
    RUN(test_half_a_term_ahead_stays);
    RUN(test_a_stream_that_goes_on_requests_its_terms);
    RUN(test_what_is_unread_stays);
    RUN(test_who_joins_keeps_all);
    RUN(test_a_term_that_was_never_there_is_none_to_keep);
    RUN(test_a_term_that_is_not_there_yet_keeps_none_below);
    RUN(test_a_full_ring_delays_the_answer_and_what_comes_behind);
    return 0;
}
