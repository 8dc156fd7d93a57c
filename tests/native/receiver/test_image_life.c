/* SPDX-License-Identifier: Apache-2.0
 * Images, part two: what is said back to the sender, and how an image ends.
 */
#include "recv_world.h"

static const world_options_t PLAIN = { 0 };

static void open_image(world_t *world, const world_options_t *options)
{
    world_open(world, options);
    world_make_image(world, options);
    memnet_discard(world->memnet);
}

static ps_sm_t take_sm(world_t *world)
{
    static memnet_dgram_t dgram;
    ps_sm_t sm;
    CHECK_EQ(world_sent(world, PS_TYPE_SM, &dgram), 1);
    CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
    return sm;
}

static void deliver(world_t *world, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to; at += 1024) {
        world_data(world, at, at + 1024, 64);
    }
    world_step(world);
}

static void test_status_message_after_a_quarter_window(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    deliver(&world, 0, 16384);
    ps_image_slot_t *slot = &world.shared->images[world.image_slot];
    CHECK_EQ(atomic_load(&slot->wake_position), WORLD_WINDOW / 4 + 1);
    CHECK_EQ(atomic_load(&slot->fill_ppm), 500000);
    CHECK_EQ(atomic_load(&slot->limiting_client), 5);
    world_consume(&world, WORLD_WINDOW / 4);
    CHECK(!ps_receiver_has_work(world.driver->receiver));
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    world_consume(&world, WORLD_WINDOW / 4 + 64);
    CHECK(ps_receiver_has_work(world.driver->receiver));
    world_step(&world);
    const ps_sm_t sm = take_sm(&world);
    CHECK(sm.term_offset == WORLD_WINDOW / 4 + 64 && sm.window == WORLD_WINDOW && sm.flags == 0);
    world_consume(&world, 16384);
    world_step(&world);
    CHECK_EQ(atomic_load(&slot->wake_position), INT64_MAX);
    world_close(&world);
}

static void test_status_message_at_a_new_term_and_by_time(void)
{
    const world_options_t near_end = { .term_offset = 65408 };
    world_t world;
    open_image(&world, &near_end);
    world_data(&world, 65408, 65536, 64);
    world_data(&world, 65536, 65600, 64);
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    world_consume(&world, 65536);
    world_step(&world);
    ps_sm_t sm = take_sm(&world);
    CHECK(sm.term_id == GOLDEN_TERM + 1 && sm.term_offset == 0);
    world_consume(&world, 65600);
    world_pass(&world, 201 * MS);
    sm = take_sm(&world); /* the timer says the current position */
    CHECK(sm.term_id == GOLDEN_TERM + 1 && sm.term_offset == 64);
    world_close(&world);
}

static void test_status_messages_back_off_when_nothing_moves(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    for (int32_t i = 0; i < 100; i++) { /* heartbeats keep it alive, but nothing moves */
        world_heartbeat(&world, 0, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 100 * MS);
    }
    const int32_t quiet = world_count_sent(&world, PS_TYPE_SM);
    CHECK(quiet >= 12 && quiet <= 15); /* 5 in the first second, then one a second */
    world_data(&world, 0, 64, 64);
    for (int32_t i = 0; i < 10; i++) {
        world_pass(&world, 100 * MS);
    }
    CHECK(world_count_sent(&world, PS_TYPE_SM) >= 5); /* moving again */
    world_close(&world);
}

static void test_trailer_names_the_slow_receiver(void)
{
    const world_options_t speaking = { .advertise = 1, .join_ordinal = 100 };
    world_t world;
    open_image(&world, &speaking);
    deliver(&world, 0, 24576);
    world_consume(&world, 64);
    world_pass(&world, 201 * MS);
    const ps_sm_t sm = take_sm(&world);
    CHECK(sm.trailer.capabilities == (PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_PRESSURE |
                                      PS_CAP_KEEPS_TERM | PS_CAP_CREDITS));
    CHECK_EQ(sm.trailer.daemon_epoch, 3);
    CHECK_EQ(sm.trailer.reason, PS_CAUSE_SLOW_SUBSCRIBER);
    CHECK_EQ(sm.trailer.reason_client, 5);
    CHECK_EQ(sm.trailer.reason_backlog_bytes, 24576 - 64);
    CHECK(sm.trailer.released_ordinal == -1 || sm.trailer.released_ordinal <= 101);
    world_consume(&world, 24576);
    world_step(&world);
    const ps_sm_t after = take_sm(&world);
    CHECK_EQ(after.trailer.reason, 0);
    CHECK_EQ(after.trailer.released_ordinal, 100 + 24576 / 64);
    world_close(&world);
}

static void test_a_peers_ordinal_that_cannot_be_is_unknown(void)
{
    const world_options_t lying = { .advertise = 1, .join_ordinal = INT64_MAX - 3 };
    world_t world;
    open_image(&world, &lying);
    deliver(&world, 0, 1024);
    world_consume(&world, 1024);
    world_pass(&world, 201 * MS);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].ordinal), -1);
    CHECK_EQ(take_sm(&world).trailer.released_ordinal, -1);
    world_close(&world);
}

static void test_a_lying_subscriber_is_bent_back(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    deliver(&world, 0, 1024);
    world_consume(&world, INT64_MAX);
    world_pass(&world, 201 * MS);
    CHECK_EQ(take_sm(&world).term_offset, 1024);
    world_consume(&world, -77);
    world_pass(&world, 201 * MS);
    CHECK_EQ(take_sm(&world).term_offset, 1024); /* never back */
    world_close(&world);
}

static void test_end_of_stream_drain_and_release(void)
{
    world_t world;
    ps_event_t event;
    open_image(&world, &PLAIN);
    world_data(&world, 0, 128, 64);
    world_end(&world, 192, 0);
    CHECK_EQ(atomic_load(&world.log.meta->end_of_stream), INT64_MAX); /* a frame is missing */
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    world_data(&world, 128, 192, 64);
    world_step(&world);
    CHECK_EQ(atomic_load(&world.log.meta->end_of_stream), 192);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK(event.id == 77 && event.ended.reason == PS_END_OF_STREAM && event.kind == PS_KIND_IMAGE);
    memnet_discard(world.memnet);
    CHECK_EQ(ps_image_drain(world.driver, world.image), PS_OK);
    world_step(&world);
    CHECK_EQ(take_sm(&world).flags, PS_SM_EOS);
    world_pass(&world, 2 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_DRAINED, &event), 0); /* not read out */
    CHECK(world_count_sent(&world, PS_TYPE_SM) >= 9);
    world_consume(&world, 192);
    world_pass(&world, 250 * MS);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_DRAINED, &event), 1);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_DRAINED, &event), 0);
    CHECK_EQ(ps_image_remove(world.driver, world.image, 0), PS_OK);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_RELEASED, &event), 1);
    CHECK(event.kind == PS_KIND_IMAGE && event.id == 77);
    ps_image_destroy(world.driver, world.image);
    world_golden(&world, "setup"); /* the session may come again */
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_close(&world);
}

static void test_silence_ends_an_image(void)
{
    world_t world;
    ps_event_t event;
    open_image(&world, &PLAIN);
    world_data(&world, 0, 64, 64);
    world_pass(&world, 9 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    world_pass(&world, SECOND + 2 * MS);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_TIMEOUT);
    CHECK_EQ(ps_image_remove(world.driver, world.image, 1), PS_OK);
    world_step(&world);
    ps_image_destroy(world.driver, world.image);
    world_golden(&world, "setup"); /* rejoin=false: ignored */
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0);
    world_close(&world);
}

static void test_revoked_and_abandoned_images_end(void)
{
    world_t world;
    ps_event_t event;
    open_image(&world, &PLAIN);
    world_end(&world, 640, PS_FLAG_REVOKED);
    memnet_discard(world.memnet);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_REVOKED);
    CHECK_EQ(atomic_load(&world.log.meta->is_revoked), 1);
    CHECK_EQ(world_system(&world, PS_SYS_IMAGES_REVOKED), 1);
    world_pass(&world, 10 * MS);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    world_close(&world);

    open_image(&world, &PLAIN);
    CHECK_EQ(ps_image_remove_subscriber(world.driver, world.image, world.sub_pos), PS_OK);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_NO_SUBSCRIBER);
    world_close(&world);
}

static void fill_event_ring(world_t *world)
{
    for (int32_t session = 0; session < 4; session++) {
        uint8_t frame[256];
        const uint32_t length = golden("setup", frame);
        frame[12] = (uint8_t)session;
        world_inject(world, frame, length);
    }
}

static void test_events_wait_for_room_in_the_ring(void)
{
    const world_options_t tiny = { .event_capacity = 2 };
    world_t world;
    ps_event_t event;
    int32_t inactive = 0;
    open_image(&world, &tiny);
    world_heartbeat(&world, 0, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
    world_pass(&world, 100 * MS);
    fill_event_ring(&world);
    world_heartbeat(&world, 0, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
    world_step(&world);
    for (int32_t i = 0; i < 10; i++) {
        while (ps_driver_poll_event(world.driver, &event)) {
            inactive += event.type == PS_EV_IMAGE_INACTIVE;
        }
        world_pass(&world, 2 * MS);
    }
    CHECK_EQ(inactive, 1);
    world_close(&world);
}

static void test_storage_is_requested_once_there_is_room_in_the_ring(void)
{
    const world_options_t tiny = { .event_capacity = 2, .reserved_position = 32768 };
    world_t world;
    ps_event_t event;
    open_image(&world, &tiny);
    fill_event_ring(&world);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    world_consume(&world, 64);
    world_pass(&world, 5 * MS); /* it has nothing to do any more, so no cycle checks it */
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 0);
    world_pass(&world, 5 * MS);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(event.term.reserved, 32768);
    world_close(&world);
}

static void test_a_gap_without_memory_is_no_work(void)
{
    const world_options_t two_terms = { .reserved_position = 32768 };
    world_t world;
    ps_event_t event;
    int32_t work = 0;
    open_image(&world, &two_terms);
    for (int64_t at = 0; at < 32768; at += 8192) {
        world_data(&world, at, at + 8192, 64);
        world_step(&world);
        world_consume(&world, at + 8192);
        world_pass(&world, MS);
    }
    world_heartbeat(&world, 32768 + 64, PS_FLAG_UNFRAGMENTED);
    world_pass(&world, 5 * MS);
    CHECK_EQ(world_status(&world).gaps, 1);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    for (int32_t i = 0; i < 200; i++) {
        world.now_ns += 250000;
        work += world_step(&world);
    }
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    CHECK_EQ(work, 0);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(ps_image_reserved(world.driver, world.image, 65536), PS_OK);
    world_pass(&world, 50 * MS);
    CHECK(world_count_sent(&world, PS_TYPE_NAK) > 0);
    world_close(&world);
}

static void test_rejection_sends_errors_until_it_ends(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    ps_event_t event;
    uint8_t expected[256];
    open_image(&world, &PLAIN);
    CHECK_EQ(ps_image_reject(world.driver, world.image, "nope"), PS_OK);
    world_pass(&world, 2 * MS);
    CHECK_EQ(world_sent(&world, PS_TYPE_ERR, &dgram), 1);
    CHECK_EQ(dgram.length, golden("err", expected));
    CHECK(memcmp(dgram.data, expected, dgram.length) == 0);
    world_data(&world, 0, 64, 64);
    world_pass(&world, SECOND);
    CHECK_EQ(world_status(&world).high_water, 0);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_ERR), 5);
    world_pass(&world, 10 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_REJECTED);
    CHECK_EQ(world_system(&world, PS_SYS_IMAGES_REJECTED), 1);
    world_close(&world);
}

static void test_a_rejected_image_requests_no_gap_and_wakes_nobody_for_it(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    world_data(&world, 64, 128, 64);
    world_pass(&world, 50 * MS);
    CHECK(world_count_sent(&world, PS_TYPE_NAK) > 0);
    CHECK_EQ(ps_image_reject(world.driver, world.image, "nope"), PS_OK);
    world_step(&world);
    world_pass(&world, SECOND);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    /* The next ERR frame is due within 200 ms, and no NAK is due at all. */
    CHECK_EQ(world.driver->receiver->nak_due_ns, INT64_MAX);
    world_close(&world);
}

static void test_a_rejected_image_drains_when_its_reader_reads_on(void)
{
    world_t world;
    ps_event_t event;
    open_image(&world, &PLAIN);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    CHECK_EQ(ps_image_reject(world.driver, world.image, "nope"), PS_OK);
    world_pass(&world, 11 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(ps_image_drain(world.driver, world.image), PS_OK);
    world_pass(&world, 5 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_DRAINED, &event), 0); /* not read out */
    world_consume(&world, 64);
    world_pass(&world, SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_DRAINED, &event), 1);
    world_close(&world);
}

static void test_round_trip_is_measured_and_answered(void)
{
    static memnet_dgram_t dgram;
    uint8_t expected[256];
    ps_rttm_t rttm;
    world_t world;
    open_image(&world, &PLAIN);
    world_golden(&world, "rttm_request");
    world_step(&world);
    CHECK_EQ(world_sent(&world, PS_TYPE_RTTM, &dgram), 1);
    CHECK_EQ(dgram.length, golden("rttm_reply", expected));
    CHECK(memcmp(dgram.data, expected, dgram.length) == 0);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    CHECK_EQ(world_sent(&world, PS_TYPE_RTTM, &dgram), 1);
    CHECK_EQ(ps_wire_rttm(dgram.data, dgram.length, &rttm), PS_WIRE_OK);
    CHECK(rttm.flags == PS_RTTM_REPLY && rttm.receiver_id == GOLDEN_RECEIVER);
    world.now_ns += 3 * MS;
    rttm.flags = 0;
    rttm.echo_ns += 1; /* not what we asked */
    world_inject(&world, dgram.data, ps_wire_build_rttm(dgram.data, &rttm));
    world_step(&world);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].rtt_ns), 0);
    rttm.echo_ns -= 1;
    world_inject(&world, dgram.data, ps_wire_build_rttm(dgram.data, &rttm));
    world_step(&world);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].rtt_ns), 3 * MS);
    world_data(&world, 128, 192, 64); /* now NAKs wait for an answer */
    world_pass(&world, 2000);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 1);
    world_pass(&world, 3 * MS);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    world_pass(&world, MS);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 1);
    world_close(&world);
}

/* The storage for a lost range comes while the sender is silent.  Nobody can be asked then. */
static void test_a_request_that_was_not_sent_delays_no_other(void)
{
    const world_options_t lossy = { .unreliable = 1, .reserved_position = 32768 };
    world_t world;
    open_image(&world, &lossy);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_RTTM), 1);
    world_consume(&world, 64);
    world_pass(&world, 201 * MS);
    world_heartbeat(&world, 32768 + 64, PS_FLAG_UNFRAGMENTED);
    world_pass(&world, 6 * SECOND);
    CHECK_EQ(world_status(&world).position, 32768);
    world_consume(&world, 32768);
    CHECK_EQ(ps_image_reserved(world.driver, world.image, 65536), PS_OK);
    world_pass(&world, 5 * MS);
    CHECK_EQ(world_status(&world).position, 32768 + 64);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_RTTM), 0);
    world_data(&world, 32768 + 64, 32768 + 128, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 32768 + 128);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_RTTM), 1);
    world_close(&world);
}

/* One that is tethered.  Returns its position's counter. */
static int32_t add_second_reader(world_t *world)
{
    const int32_t position = world_counter(world, "sub-pos", 0);
    const ps_subscriber_params_t second = {
        .position_counter_id = position, .slot = 1, .client_slot = world->client_slot, .tether = 1
    };
    CHECK_EQ(ps_image_add_subscriber(world->driver, world->image, &second), PS_OK);
    return position;
}

/* The client opens its log when the conductor has told it, which may be before the agent knows. */
static void test_a_reader_that_read_before_it_joined_counts_from_its_join(void)
{
    const world_options_t speaking = { .advertise = 1,
                                       .peer_capabilities =
                                           PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS };
    world_t world;
    open_image(&world, &speaking);
    deliver(&world, 0, 1024);
    const ps_subscriber_params_t early = { .position_counter_id =
                                               world_counter(&world, "sub-pos", 1024),
                                           .slot = 1,
                                           .client_slot = world.client_slot,
                                           .credits = 20,
                                           .tether = 1 };
    atomic_store(&world.shared->subscribers[1].credit_returned, 16);
    CHECK_EQ(ps_image_add_subscriber(world.driver, world.image, &early), PS_OK);
    world_consume(&world, 1024);
    world_step(&world);
    deliver(&world, 1024, 2048); /* nobody has read these */
    (void)world_count_sent(&world, PS_TYPE_SM);
    world_pass(&world, 1200 * MS);
    const ps_sm_t sm = take_sm(&world);
    CHECK_EQ(sm.trailer.released_ordinal, 16);
    CHECK_EQ(sm.trailer.credit_limit, 16 + 20);
    world_close(&world);
}

static void test_untethered_subscriber_stops_gating(void)
{
    const world_options_t loose = { .untethered = 1 };
    world_t world;
    ps_event_t event;
    open_image(&world, &loose);
    const int32_t fast = add_second_reader(&world);
    world_step(&world);
    deliver(&world, 0, 30720);
    ps_counter_set(world.cnc, fast, 30720);
    for (int32_t i = 0; i < 110; i++) {
        world_heartbeat(&world, 30720, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_SUBSCRIBER, &event), 1);
    CHECK(event.subscriber.position_counter_id == world.sub_pos &&
          event.subscriber.state == PS_TETHER_LINGER);
    CHECK_EQ(world_event(&world, PS_EV_SUBSCRIBER, &event), 1);
    CHECK_EQ(event.subscriber.state, PS_TETHER_RESTING);
    CHECK_EQ(world_status(&world).slowest_subscriber, 30720);
    CHECK_EQ(ps_image_join_position(world.image), 30720);
    for (int32_t i = 0; i < 105; i++) {
        world_heartbeat(&world, 30720, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_SUBSCRIBER, &event), 1);
    CHECK_EQ(event.subscriber.state, PS_TETHER_ACTIVE);
    CHECK_EQ(ps_counter_get(world.cnc, world.sub_pos), 30720);
    world_close(&world);
}

/* It is checked from the first moment on, not from the first status message on: that it is behind
 * then does not say that it always was. */
static void test_a_reader_that_was_not_behind_has_its_time(void)
{
    const world_options_t loose = { .untethered = 1, .window_limit_ns = 150 * MS };
    world_t world;
    ps_event_t event;
    open_image(&world, &loose);
    const int32_t fast = add_second_reader(&world);
    world_pass(&world, 190 * MS);
    deliver(&world, 0, 30720);
    ps_counter_set(world.cnc, fast, 30720);
    world_pass(&world, 140 * MS);
    CHECK_EQ(world_event(&world, PS_EV_SUBSCRIBER, &event), 0);
    world_pass(&world, 21 * MS);
    CHECK_EQ(world_event(&world, PS_EV_SUBSCRIBER, &event), 1);
    CHECK(event.subscriber.position_counter_id == world.sub_pos &&
          event.subscriber.state == PS_TETHER_LINGER);
    world_close(&world);
}

static void test_a_joiner_finds_its_position_unchanged(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    deliver(&world, 0, 16384);
    world_consume(&world, 8192);
    world_step(&world);
    const int64_t join = ps_image_join_position(world.image);
    CHECK_EQ(join, 8192);
    for (int64_t at = 16384; at < 4 * WORLD_TERM_LENGTH; at += 8192) {
        deliver(&world, at, at + 8192);
        world_consume(&world, world_status(&world).position);
        world_step(&world);
    }
    CHECK(world_holds(&world, join, join + 1024, 64)); /* held although others ran away */
    world_pass(&world, 9 * SECOND);                    /* but not for ever */
    for (int32_t i = 0; i < 20; i++) {
        deliver(&world, world_status(&world).position, world_status(&world).position + 1024);
        world_consume(&world, world_status(&world).position);
        world_step(&world);
    }
    CHECK(!world_holds(&world, join, join + 1024, 64));
    /* A joiner that is looking for its place right now is a term away from what is given up. */
    CHECK_EQ(world.image->free_to, world_status(&world).position - WORLD_TERM_LENGTH);
    world_close(&world);
}

static void test_many_events_of_one_image_keep_their_order(void)
{
    world_t world;
    ps_event_t event;
    open_image(&world, &PLAIN);
    for (int64_t at = 0; at < 4096; at += 128) { /* losses are added up, ten reports a second */
        world_data(&world, at + 64, at + 128, 64);
        world_pass(&world, 10 * MS);
        world_data(&world, at, at + 64, 64);
    }
    world_pass(&world, 200 * MS);
    int64_t lost = 0;
    int32_t count = 0;
    int32_t gaps = 0;
    while (world_event(&world, PS_EV_LOSS, &event)) {
        lost += event.loss.bytes;
        gaps += event.loss.gaps;
        count++;
    }
    CHECK_EQ(lost, 2048);
    CHECK_EQ(gaps, 32);
    CHECK(count >= 3 && count <= 5);
    world_close(&world);
}

int main(void)
{
    RUN(test_status_message_after_a_quarter_window);
    RUN(test_status_message_at_a_new_term_and_by_time);
    RUN(test_status_messages_back_off_when_nothing_moves);
    RUN(test_trailer_names_the_slow_receiver);
    RUN(test_a_peers_ordinal_that_cannot_be_is_unknown);
    RUN(test_a_lying_subscriber_is_bent_back);
    RUN(test_end_of_stream_drain_and_release);
    RUN(test_silence_ends_an_image);
    RUN(test_revoked_and_abandoned_images_end);
    RUN(test_events_wait_for_room_in_the_ring);
    RUN(test_storage_is_requested_once_there_is_room_in_the_ring);
    RUN(test_a_gap_without_memory_is_no_work);
    RUN(test_rejection_sends_errors_until_it_ends);
    RUN(test_a_rejected_image_requests_no_gap_and_wakes_nobody_for_it);
    RUN(test_a_rejected_image_drains_when_its_reader_reads_on);
    RUN(test_round_trip_is_measured_and_answered);
    RUN(test_a_request_that_was_not_sent_delays_no_other);
    RUN(test_a_reader_that_read_before_it_joined_counts_from_its_join);
    RUN(test_untethered_subscriber_stops_gating);
    RUN(test_a_reader_that_was_not_behind_has_its_time);
    RUN(test_a_joiner_finds_its_position_unchanged);
    RUN(test_many_events_of_one_image_keep_their_order);
    return 0;
}
