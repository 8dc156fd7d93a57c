/* SPDX-License-Identifier: Apache-2.0
 * Images, part four: ends of streams that are false, withdrawn, or believed (docs/trust.md), and
 * senders behind padding.
 */
#include "speaker.h"

static const world_options_t PLAIN = { 0 };

static void test_a_false_end_below_does_not_end_a_stream(void)
{
    world_t world;
    speaker_t sender;
    int32_t reason;
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    for (int32_t i = 0; i < 20; i++) {
        eos(&world, &sender, 320, i % 2 ? PS_FLAG_REVOKED : 0);
        world_pass(&world, 100 * MS);
    }
    CHECK(!has_ended(&world, &reason));
    CHECK_EQ(world_status(&world).end_of_stream, INT64_MAX);
    data(&world, &sender, 640, 704);
    CHECK_EQ(world_status(&world).position, 704);
    eos(&world, &sender, 704, 0);
    world_pass(&world, 100 * MS);
    eos(&world, &sender, 704, 0);
    CHECK(has_ended(&world, &reason) && reason == PS_END_OF_STREAM);
    CHECK_EQ(world_status(&world).end_of_stream, 704);
    world_close(&world);
}

/* One datagram at the very end, also doubled by the network, while the sender is quiet. */
static void test_one_false_end_is_withdrawn(void)
{
    static const uint8_t flags[] = { 0, PS_FLAG_REVOKED };
    static const int64_t ends[] = { 640, 1280, 16384 };
    world_t world;
    speaker_t sender;
    int32_t reason;
    for (int32_t k = 0; k < 6; k++) {
        open_image(&world, &PLAIN, &sender);
        data(&world, &sender, 0, 640);
        eos(&world, &sender, ends[k / 2], flags[k % 2]);
        eos(&world, &sender, ends[k / 2], flags[k % 2]);
        world_pass(&world, 990 * MS); /* its quiet beat */
        CHECK(!has_ended(&world, &reason));
        for (int64_t at = 640; at < 20480; at += 640) { /* over it and on */
            beat(&world, &sender, at);
            data(&world, &sender, at, at + 640);
            world_consume(&world, at);
            world_pass(&world, 100 * MS);
        }
        CHECK(!has_ended(&world, &reason));
        CHECK_EQ(world_status(&world).position, 20480);
        CHECK_EQ(world_status(&world).end_of_stream, INT64_MAX);
        CHECK_EQ(world_system(&world, PS_SYS_IMAGES_REVOKED), 0);
        world_close(&world);
    }
}

static void test_an_end_counts_from_the_followed_source_only(void)
{
    world_t world;
    speaker_t sender;
    int32_t reason;
    const speaker_t stranger = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    for (int32_t i = 0; i < 20; i++) {
        eos(&world, &stranger, 640, i % 2 ? PS_FLAG_REVOKED : 0);
        beat(&world, &sender, 640);
        world_pass(&world, 100 * MS);
    }
    CHECK(!has_ended(&world, &reason));
    world_close(&world);
}

static void test_a_sender_that_states_its_end_once_is_believed(void)
{
    world_t world;
    speaker_t sender;
    int32_t reason;
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    eos(&world, &sender, 640, 0); /* its linger time is short */
    world_pass(&world, 1099 * MS);
    CHECK(!has_ended(&world, &reason));
    world_pass(&world, 2 * MS);
    CHECK(has_ended(&world, &reason) && reason == PS_END_OF_STREAM);
    world_close(&world);
}

/* A heartbeat ahead of everything: the gap that it makes goes, and a true end below it counts. */
static void test_a_false_heartbeat_ahead_is_taken_back(void)
{
    world_t world;
    speaker_t sender;
    int32_t reason;
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    beat(&world, &sender, 16384);
    CHECK_EQ(world_status(&world).high_water, 16384);
    beat(&world, &sender, 640);
    CHECK_EQ(world_status(&world).high_water, 16384); /* it may have been overtaken */
    beat(&world, &sender, 640);
    CHECK_EQ(world_status(&world).high_water, 640);
    CHECK_EQ(world_status(&world).gaps, 0);
    world_check_reader(&world, 0);
    data(&world, &sender, 640, 704);
    CHECK_EQ(world_status(&world).position, 704);
    /* So it does if the stream goes on, and each heartbeat states a new position. */
    beat(&world, &sender, 16384);
    beat(&world, &sender, 704);
    data(&world, &sender, 704, 768);
    CHECK_EQ(world_status(&world).high_water, 16384);
    beat(&world, &sender, 768);
    CHECK_EQ(world_status(&world).high_water, 768);
    beat(&world, &sender, 16384);
    beat(&world, &sender, 768);
    beat(&world, &sender, 704); /* overtaken */
    CHECK_EQ(world_status(&world).high_water, 16384);
    for (int32_t i = 0; i < 4; i++) {
        eos(&world, &sender, 768, 0);
        world_pass(&world, 100 * MS);
    }
    CHECK(has_ended(&world, &reason) && reason == PS_END_OF_STREAM);
    CHECK_EQ(world_status(&world).end_of_stream, 768);
    world_close(&world);
}

/* The last term of a stream: whatever states more is malformed, and the stream ends at its end. */
static void test_a_stream_at_the_maximum_position_ends_there(void)
{
    const world_options_t last = { .terms_before = INT32_MAX, .term_offset = 65536 - 192 };
    const int64_t end = ((int64_t)INT32_MAX + 1) * WORLD_TERM_LENGTH;
    world_t world;
    speaker_t sender;
    int32_t reason;
    open_image(&world, &last, &sender);
    data(&world, &sender, end - 192, end - 64);
    ps_setup_t beyond = setup_at(&world, end - 64);
    beyond.active_term_id = (int32_t)((uint32_t)beyond.initial_term_id + (UINT32_C(1) << 31));
    say_setup(&world, &sender, &beyond);
    world_step(&world);
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), 1);
    CHECK_EQ(world_status(&world).high_water, end - 64);
    beat(&world, &sender, end); /* its term id wraps: the end, as Aeron states it */
    CHECK_EQ(world_status(&world).high_water, end);
    data(&world, &sender, end - 64, end);
    CHECK_EQ(world_status(&world).position, end);
    world_consume(&world, end);
    CHECK_EQ(notified_beside(&world, &sender, end - 64), 50000);
    for (int32_t i = 0; i < 4; i++) {
        eos(&world, &sender, end, 0);
        world_pass(&world, 100 * MS);
    }
    CHECK(has_ended(&world, &reason) && reason == PS_END_OF_STREAM);
    CHECK_EQ(world_status(&world).end_of_stream, end);
    world_close(&world);
}

static void beats_for_twelve_seconds(world_t *world, int64_t position)
{
    for (int32_t i = 0; i < 120; i++) {
        world_heartbeat(world, position, PS_FLAG_UNFRAGMENTED);
        world_pass(world, 100 * MS);
    }
}

/* A sender may pass padding that begins inside the window; then it stands at the end of its term,
 * beyond what is accepted, for as long as the reader pauses. Padding is at most an eighth of a
 * term. */
static void test_a_sender_behind_its_padding_is_alive(void)
{
    const int64_t edge = WORLD_TERM_LENGTH / 8 * 7;
    const world_options_t behind = { .term_offset = (int32_t)edge - WORLD_WINDOW };
    world_t world;
    ps_event_t event;
    world_open(&world, &behind);
    world_make_image(&world, &behind);
    beats_for_twelve_seconds(&world, WORLD_TERM_LENGTH);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    CHECK_EQ(world_status(&world).high_water, edge); /* that is missing */
    CHECK_EQ(world_system(&world, PS_SYS_OVER_RUNS), 0);
    beats_for_twelve_seconds(&world, WORLD_TERM_LENGTH * (int64_t)2); /* no padding leads there */
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    world_close(&world);
}

/* The padding of an aborted claim is at most a frame, and may be anywhere in a term. */
static void test_a_sender_behind_an_aborted_claim_is_alive(void)
{
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    world_make_image(&world, &PLAIN);
    const int64_t beyond = WORLD_WINDOW + world.image->log.mtu;
    beats_for_twelve_seconds(&world, beyond - PS_HEADER_BYTES);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    CHECK_EQ(world_status(&world).high_water, WORLD_WINDOW);
    CHECK_EQ(world_system(&world, PS_SYS_OVER_RUNS), 0);
    beats_for_twelve_seconds(&world, beyond);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    world_close(&world);
}

/* No padding leads a whole term beyond the reader: the sender follows another receiver, and can no
 * longer retransmit what this one misses. */
static void test_a_sender_a_term_beyond_is_not(void)
{
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    world_make_image(&world, &PLAIN);
    beats_for_twelve_seconds(&world, WORLD_TERM_LENGTH);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    world_close(&world);
}

int main(void)
{
    RUN(test_a_false_end_below_does_not_end_a_stream);
    RUN(test_one_false_end_is_withdrawn);
    RUN(test_an_end_counts_from_the_followed_source_only);
    RUN(test_a_sender_that_states_its_end_once_is_believed);
    RUN(test_a_false_heartbeat_ahead_is_taken_back);
    RUN(test_a_stream_at_the_maximum_position_ends_there);
    RUN(test_a_sender_behind_its_padding_is_alive);
    RUN(test_a_sender_behind_an_aborted_claim_is_alive);
    RUN(test_a_sender_a_term_beyond_is_not);
    return 0;
}
