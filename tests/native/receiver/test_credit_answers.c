/* SPDX-License-Identifier: Apache-2.0
 *
 * test_credit_answers.c: CREDIT frames that a receiver must not believe. A frozen image counts as
 * settled only when the source that it follows answers it, in the present epoch.
 */
#include "speaker.h"

#include "ps_image.h"
#include "ps_wire_credit.h"

enum { CREDITS = 20, SLOT = 1 };

static const world_options_t SPEAKING = { .advertise = 1,
                                          .peer_capabilities =
                                              PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS };

static int32_t state_of(const world_t *world)
{
    return atomic_load(&world->shared->subscribers[SLOT].credit_state);
}

/* A frame that answers the freeze, if nothing in it is wrong. */
static ps_credit_frame_t answer_of(const world_t *world)
{
    return (ps_credit_frame_t){ .session_id = GOLDEN_SESSION,
                                .stream_id = GOLDEN_STREAM,
                                .receiver_id = world->image->endpoint->params.receiver_id,
                                .epoch = world->image->credits.epoch,
                                .flags = PS_CREDIT_ANSWER_SETTLED,
                                .ordinal = 0 };
}

static void answer(world_t *world, const speaker_t *who, const ps_credit_frame_t *frame)
{
    uint8_t out[PS_CONTROL_MAX];
    as(world, who);
    world_inject(world, out, ps_wire_build_credit(out, frame));
    world_pass(world, 2 * MS);
}

static int32_t open_granting(world_t *world, speaker_t *sender, const world_options_t *options)
{
    open_image(world, options, sender);
    const int32_t position = world_counter(world, "sub-pos", 0);
    const ps_subscriber_params_t reader = { .position_counter_id = position,
                                            .slot = SLOT,
                                            .client_slot = world->client_slot,
                                            .credits = CREDITS,
                                            .credit_burst = CREDITS,
                                            .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(world->driver, world->image, &reader), PS_OK);
    world_pass(world, 2 * MS);
    CHECK_EQ(state_of(world), PS_CREDIT_GRANTING);
    return position;
}

static void open_frozen(world_t *world, speaker_t *sender)
{
    const int32_t position = open_granting(world, sender, &SPEAKING);
    CHECK_EQ(ps_image_set_credits(world->driver, world->image, position, CREDITS, CREDITS, 1),
             PS_OK);
    world_pass(world, 2 * MS);
    CHECK_EQ(state_of(world), PS_CREDIT_FREEZING);
}

static void test_an_answer_from_a_stranger_is_counted_as_foreign(void)
{
    world_t world;
    speaker_t sender;
    const speaker_t stranger = speaker(9, 666);
    open_frozen(&world, &sender);
    const ps_credit_frame_t frame = answer_of(&world);
    const int64_t before = world_status(&world).foreign_datagrams;
    answer(&world, &stranger, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_FREEZING);
    CHECK_EQ(world_status(&world).foreign_datagrams, before + 1);
    answer(&world, &sender, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_SETTLED);
    world_close(&world);
}

static void test_an_answer_to_another_member_or_epoch_is_ignored(void)
{
    world_t world;
    speaker_t sender;
    open_frozen(&world, &sender);
    ps_credit_frame_t frame = answer_of(&world);
    frame.receiver_id++;
    answer(&world, &sender, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_FREEZING);
    frame = answer_of(&world);
    frame.epoch--;
    answer(&world, &sender, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_FREEZING);
    frame = answer_of(&world);
    frame.session_id++;
    answer(&world, &sender, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_FREEZING);
    world_close(&world);
}

/* Until the image has closed, the sender counts its receiver: what was granted stays stated. */
static void test_the_last_reader_that_leaves_ends_no_grant(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    speaker_t sender;
    int32_t statements = 0;
    world_options_t alone = SPEAKING;
    alone.no_subscriber = 1;
    const int32_t position = open_granting(&world, &sender, &alone);
    memnet_discard(world.memnet);
    CHECK_EQ(ps_image_remove_subscriber(world.driver, world.image, position), PS_OK);
    world_pass(&world, 500 * MS);
    while (world_sent(&world, PS_TYPE_SM, &dgram)) {
        ps_sm_t sm;
        CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
        CHECK_EQ(sm.trailer.credit_limit, CREDITS);
        CHECK_EQ(sm.trailer.credit_messages, CREDITS);
        statements++;
    }
    CHECK(statements > 0);
    world_close(&world);
}

/* Counts how often a deadline steps the driver. */
static int32_t deadlines_in(world_t *world, int64_t ns)
{
    const int64_t end = world->now_ns + ns;
    int32_t count = 0;
    for (; world->now_ns < end; count++) {
        const int64_t due = ps_driver_next_deadline_ns(world->driver, world->now_ns);
        const int64_t later = due > world->now_ns ? due : world->now_ns + 1;
        world->now_ns = later < end ? later : end;
        world_step(world);
    }
    return count;
}

/* No frame can leave to a sender that was not heard for the connection time-out. */
static void test_a_freeze_is_stated_again_only_while_the_sender_is_heard(void)
{
    world_t world;
    speaker_t sender;
    open_frozen(&world, &sender);
    memnet_discard(world.memnet);
    world_pass(&world, SECOND);
    CHECK(world_count_sent(&world, PS_TYPE_SM) >= 40); /* every 20 ms, until there is an answer */
    world_pass(&world, 5 * SECOND);
    memnet_discard(world.memnet);
    CHECK(deadlines_in(&world, SECOND) <= 15); /* the timers of status messages */
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    data(&world, &sender, 0, 64);
    world_pass(&world, 2 * MS);
    CHECK(world_count_sent(&world, PS_TYPE_SM) >= 1);
    const ps_credit_frame_t frame = answer_of(&world);
    answer(&world, &sender, &frame);
    CHECK_EQ(state_of(&world), PS_CREDIT_SETTLED);
    world_close(&world);
}

static ps_sm_t take_sm(world_t *world)
{
    static memnet_dgram_t dgram;
    ps_sm_t sm;
    CHECK_EQ(world_sent(world, PS_TYPE_SM, &dgram), 1);
    CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
    return sm;
}

/* A publisher that spends each credit at once is blocked again before the next status message. */
static void test_the_message_that_grants_names_the_reader_that_had_none_left(void)
{
    world_t world;
    speaker_t sender;
    open_image(&world, &SPEAKING, &sender);
    const int32_t position = world_counter(&world, "sub-pos", 0);
    const ps_subscriber_params_t reader = { .position_counter_id = position,
                                            .slot = SLOT,
                                            .client_slot = world.client_slot,
                                            .credits = 2,
                                            .credit_burst = 2,
                                            .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(world.driver, world.image, &reader), PS_OK);
    world_pass(&world, 2 * MS);
    memnet_discard(world.memnet);
    data(&world, &sender, 0, 128);
    CHECK_EQ(world.image->ordinal, world.image->credits.stated); /* all credits are spent */
    atomic_store(&world.shared->subscribers[SLOT].credit_returned, 1);
    world_consume(&world, 64);
    world_pass(&world, 2 * MS);
    const ps_sm_t grants = take_sm(&world);
    CHECK_EQ(grants.trailer.credit_limit, 3);
    CHECK_EQ(grants.trailer.reason, PS_CAUSE_CREDIT);
    CHECK_EQ(grants.trailer.reason_client, 5);
    world_close(&world);
}

/* The conductor divides a pool again and again. A sender without credits learns nothing from it. */
static void test_a_sender_without_credits_hears_nothing_of_a_division(void)
{
    world_t world;
    speaker_t sender;
    const world_options_t plain = { .advertise = 1, .peer_capabilities = PS_CAP_PENSTOCK };
    open_image(&world, &plain, &sender);
    const int32_t position = world_counter(&world, "sub-pos", 0);
    const ps_subscriber_params_t reader = { .position_counter_id = position,
                                            .slot = SLOT,
                                            .client_slot = world.client_slot,
                                            .credits = CREDITS,
                                            .credit_burst = CREDITS,
                                            .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(world.driver, world.image, &reader), PS_OK);
    world_pass(&world, 2 * MS);
    CHECK_EQ(state_of(&world), PS_CREDIT_UNSUPPORTED);
    memnet_discard(world.memnet);
    for (int32_t share = CREDITS - 1; share > CREDITS / 2; share--) {
        CHECK_EQ(ps_image_set_credits(world.driver, world.image, position, share, share, 0), PS_OK);
        world_pass(&world, 2 * MS);
    }
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    world_close(&world);
}

int main(void)
{
    test_a_sender_without_credits_hears_nothing_of_a_division();
    test_the_last_reader_that_leaves_ends_no_grant();
    test_the_message_that_grants_names_the_reader_that_had_none_left();
    test_an_answer_from_a_stranger_is_counted_as_foreign();
    test_an_answer_to_another_member_or_epoch_is_ignored();
    test_a_freeze_is_stated_again_only_while_the_sender_is_heard();
    return 0;
}
