/* SPDX-License-Identifier: Apache-2.0
 * The receiver's sessions: a SETUP becomes an event, an image, a status message; unknown data asks
 * for a SETUP; refusals, interest, several destinations, hostile datagrams.  Frames are golden.h's.
 */
#include "recv_world.h"

static const world_options_t PLAIN = { 0 };

static int is_golden(const memnet_dgram_t *dgram, const char *name)
{
    uint8_t frame[256];
    const uint32_t length = golden(name, frame);
    return length == dgram->length && memcmp(frame, dgram->data, length) == 0;
}

static void test_setup_becomes_image_becomes_status_message(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    world_golden(&world, "setup");
    world_golden(&world, "setup");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    CHECK_EQ(event.id, 500);
    CHECK_EQ(event.session_id, GOLDEN_SESSION);
    CHECK_EQ(event.stream_id, GOLDEN_STREAM);
    CHECK_EQ(event.setup.term_length, WORLD_TERM_LENGTH);
    CHECK_EQ(event.setup.mtu, 1408);
    CHECK_EQ(event.setup.peer_capabilities, 0);
    CHECK_EQ(event.setup.source.port, world.sender.port);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0); /* once */
    world_make_image(&world, &PLAIN);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    CHECK(is_golden(&dgram, "sm"));
    CHECK_EQ(dgram.to.port, world.sender.port);
    CHECK_EQ(dgram.from.port, WORLD_PORT);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    CHECK_EQ(world_system(&world, PS_SYS_SM_SENT), 1);
    world_close(&world);
}

static void test_full_event_ring_repeats_the_setup(void)
{
    const world_options_t tiny = { .event_capacity = 2 };
    world_t world;
    ps_event_t event;
    int32_t seen = 0;
    world_open(&world, &tiny);
    for (int32_t round = 0; round < 8; round++) {
        for (int32_t session = 0; session < 8; session++) {
            uint8_t frame[256];
            const uint32_t length = golden("setup", frame);
            frame[12] = (uint8_t)session;
            world_inject(&world, frame, length);
        }
        world_step(&world);
        while (world_event(&world, PS_EV_SETUP, &event)) {
            seen++;
        }
    }
    CHECK_EQ(seen, 8); /* each once, none lost, none twice */
    world_close(&world);
}

static void test_unknown_data_requests_a_setup_once_a_second(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    world_open(&world, &PLAIN);
    world_golden(&world, "data_hello");
    world_golden(&world, "data_hello");
    world_step(&world);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    CHECK(is_golden(&dgram, "sm_setup"));
    CHECK_EQ(memnet_pending(world.memnet), 0);
    world_pass(&world, SECOND + 2 * MS);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    world_golden(&world, "data_hello");
    world_step(&world);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    world_golden(&world, "setup"); /* pending becomes known */
    world_step(&world);
    ps_event_t event;
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_close(&world);
}

static void test_ending_and_unwanted_streams_are_left_alone(void)
{
    uint8_t frame[256];
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    world_golden(&world, "eos");
    uint32_t length = golden("setup", frame);
    frame[16] = 0x55; /* another stream */
    world_inject(&world, frame, length);
    length = golden("data_hello", frame);
    frame[16] = 0x55;
    world_inject(&world, frame, length);
    world_step(&world);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0);
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), 0);
    world_close(&world);
}

static void test_refused_session_stays_quiet_until_interest_goes(void)
{
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    world_golden(&world, "setup");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    CHECK_EQ(ps_recv_endpoint_forget_session(world.driver, world.endpoint, GOLDEN_STREAM,
                                             GOLDEN_SESSION, 0),
             PS_OK);
    world_step(&world);
    world_golden(&world, "setup");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1); /* reported again */
    CHECK_EQ(ps_recv_endpoint_forget_session(world.driver, world.endpoint, GOLDEN_STREAM,
                                             GOLDEN_SESSION, 1),
             PS_OK);
    world_step(&world);
    world_golden(&world, "setup");
    world_golden(&world, "data_hello");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    ps_recv_endpoint_remove_interest(world.driver, world.endpoint, GOLDEN_STREAM, 0, 1);
    ps_recv_endpoint_add_interest(world.driver, world.endpoint, GOLDEN_STREAM, GOLDEN_SESSION, 0);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SESSION_LEFT, &event), 1);
    world_golden(&world, "setup");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_close(&world);
}

/* A SETUP that can never become an image: its sender hears why, and then nothing for a second. */
static void test_a_refused_setup_is_answered_once_a_second(void)
{
    world_t world;
    ps_event_t event;
    ps_err_t error;
    static memnet_dgram_t dgram;
    int32_t reported = 0;
    int32_t errors = 0;
    world_open(&world, &PLAIN);
    for (int32_t i = 0; i < 30; i++) {
        world_golden(&world, "setup");
        world_step(&world);
        while (ps_driver_poll_event(world.driver, &event)) {
            if (event.type == PS_EV_SETUP) {
                reported++;
                CHECK_EQ(ps_recv_endpoint_refuse_session(
                             world.driver, world.endpoint, GOLDEN_STREAM, GOLDEN_SESSION,
                             event.setup.destination, &event.setup.source, "too big"),
                         PS_OK);
            }
        }
        world_pass(&world, 100 * MS);
    }
    CHECK_EQ(reported, 3);
    while (world_sent(&world, PS_TYPE_ERR, &dgram)) {
        CHECK_EQ(ps_wire_err(dgram.data, dgram.length, &error), PS_WIRE_OK);
        CHECK(dgram.to.port == 50000 && error.session_id == GOLDEN_SESSION && error.code == 13);
        CHECK(error.text_length == 7 && memcmp(error.text, "too big", 7) == 0);
        errors++;
    }
    CHECK_EQ(errors, 3);
    world_pass(&world, 2 * SECOND);
    CHECK_EQ(world.endpoint->pending, 0);
    world_make_image(&world, &PLAIN); /* the table has its place again */
    CHECK_EQ(world_status(&world).position, 0);
    world_close(&world);
}

static void test_explicit_control_address_gets_a_request_every_second(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    world_open(&world, &PLAIN);
    const ps_recv_destination_params_t destination = { .id = 2,
                                                       .socket = { .bind = memnet_addr(2, 40200) },
                                                       .control = memnet_addr(9, 40300) };
    ps_addr_t local;
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &destination, &local),
             PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &destination, &local),
             PS_E_INVALID);
    world_pass(&world, 5 * MS);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    CHECK(is_golden(&dgram, "sm_join"));
    CHECK_EQ(dgram.to.port, 40300);
    CHECK_EQ(dgram.from.port, 40200);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    world_pass(&world, 3 * SECOND);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 3);
    ps_event_t event;
    world_pass(&world, 3 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_SILENT, &event), 1);
    CHECK_EQ(event.silent.source.port, 40300);
    memnet_discard(world.memnet);
    CHECK_EQ(ps_recv_endpoint_remove_destination(world.driver, world.endpoint, 2), PS_OK);
    world_pass(&world, 3 * SECOND);
    CHECK_EQ(memnet_pending(world.memnet), 0);
    world_close(&world);
}

static void test_multicast_answers_go_to_the_control_group(void)
{
    static memnet_dgram_t dgram;
    uint8_t frame[256];
    world_t world;
    world_open(&world, &PLAIN);
    const ps_recv_destination_params_t destination = { .id = 2,
                                                       .socket = { .bind = memnet_addr(2, 40200),
                                                                   .multicast_ttl = 4 },
                                                       .group_control = memnet_addr(240, 40201),
                                                       .multicast = 1 };
    ps_addr_t local;
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &destination, &local),
             PS_OK);
    world_step(&world);
    uint32_t length = golden("data_hello", frame);
    CHECK_EQ(memnet_inject(world.memnet, &local, &world.sender, frame, length), 1);
    world_step(&world);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    CHECK(is_golden(&dgram, "sm_setup"));
    CHECK_EQ(dgram.to.port, 40201);
    length = golden("setup", frame);
    frame[36] = 9; /* the sender's time to live is another */
    CHECK_EQ(memnet_inject(world.memnet, &local, &world.sender, frame, length), 1);
    world_step(&world);
    CHECK_EQ(world_system(&world, PS_SYS_TTL_ASYMMETRY), 1);
    world_close(&world);
}

static void test_a_moved_control_address_is_used_at_once(void)
{
    static memnet_dgram_t dgram;
    uint8_t frame[256];
    world_t world;
    world_open(&world, &PLAIN);
    CHECK_EQ(ps_recv_endpoint_remove_destination(world.driver, world.endpoint, 1), PS_OK);
    world_step(&world);
    CHECK_EQ(ps_recv_endpoint_destroy_destination(world.endpoint, 1), PS_OK);
    const ps_recv_destination_params_t destination = { .id = 2,
                                                       .socket = { .bind = memnet_addr(2, 40200) },
                                                       .control = memnet_addr(9, 40300) };
    CHECK_EQ(
        ps_recv_endpoint_add_destination(world.driver, world.endpoint, &destination, &world.local),
        PS_OK);
    world_step(&world);
    const uint32_t length = golden("setup", frame);
    world_inject(&world, frame, length);
    world_step(&world);
    ps_event_t event;
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    CHECK_EQ(event.setup.destination, 0); /* the index is free again */
    world_make_image(&world, &PLAIN);
    const ps_addr_t moved = memnet_addr(9, 40301);
    CHECK_EQ(ps_recv_endpoint_set_control(world.driver, world.endpoint, 2, &moved), PS_OK);
    world_step(&world);
    memnet_discard(world.memnet);
    world_pass(&world, 300 * MS);
    int32_t heard = 0;
    while (memnet_take(world.memnet, &dgram)) {
        CHECK_EQ(dgram.to.port, 40301);
        heard++;
    }
    CHECK(heard > 0);
    CHECK_EQ(ps_recv_endpoint_set_control(world.driver, world.endpoint, 99, &moved), PS_E_INVALID);
    world_close(&world);
}

static void test_released_endpoint_is_reported(void)
{
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    CHECK_EQ(ps_recv_endpoint_remove(world.driver, world.endpoint), PS_OK);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_RELEASED, &event), 1);
    CHECK(event.kind == PS_KIND_RECV_ENDPOINT && event.id == 500);
    ps_recv_endpoint_destroy(world.driver, world.endpoint);
    world_close(&world);
}

static void test_removed_destination_is_closed_by_the_conductor(void)
{
    world_t world;
    ps_event_t event;
    uint8_t frame[256];
    const ps_addr_t from = memnet_addr(8, 50008);
    const ps_recv_destination_params_t second = { .id = 2,
                                                  .socket = { .bind = memnet_addr(3, 40125) } };
    ps_addr_t local;
    world_open(&world, &PLAIN);
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &second, &local),
             PS_OK);
    world_step(&world);
    CHECK_EQ(ps_recv_endpoint_destroy_destination(world.endpoint, 2), PS_E_INVALID);
    CHECK_EQ(ps_recv_endpoint_remove_destination(world.driver, world.endpoint, 2), PS_OK);
    CHECK_EQ(ps_recv_endpoint_remove_destination(world.driver, world.endpoint, 2), PS_E_INVALID);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_RELEASED, &event), 1);
    CHECK(event.kind == PS_KIND_RECV_DESTINATION && event.id == 500 &&
          event.released.destination_id == 2);
    const uint32_t length = golden("setup", frame);
    CHECK_EQ(memnet_inject(world.memnet, &local, &from, frame, length), 1); /* still open */
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0); /* and not read */
    CHECK_EQ(ps_recv_endpoint_destroy_destination(world.endpoint, 2), PS_OK);
    CHECK_EQ(memnet_inject(world.memnet, &local, &from, frame, length), 0);
    CHECK_EQ(ps_recv_endpoint_destroy_destination(world.endpoint, 2), PS_E_INVALID);
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &second, &local),
             PS_OK);
    world_step(&world);
    CHECK_EQ(memnet_inject(world.memnet, &local, &from, frame, length), 1);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_close(&world);
}

static void test_image_of_two_destinations_answers_on_both(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    world_open(&world, &PLAIN);
    const ps_recv_destination_params_t second = { .id = 2,
                                                  .socket = { .bind = memnet_addr(3, 40125) } };
    ps_addr_t local;
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &second, &local),
             PS_OK);
    world_golden(&world, "setup");
    world_step(&world);
    world_make_image(&world, &PLAIN);
    memnet_discard(world.memnet);
    uint8_t frame[256];
    const ps_addr_t other = memnet_addr(8, 50008);
    uint32_t length = golden("setup", frame);
    CHECK_EQ(memnet_inject(world.memnet, &local, &other, frame, length), 1);
    world_step(&world);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1); /* at once, both ways */
    CHECK_EQ(dgram.to.port, 50000);
    CHECK_EQ(memnet_take(world.memnet, &dgram), 1);
    CHECK_EQ(dgram.to.port, 50008);
    CHECK_EQ(dgram.from.port, 40125);
    world_golden(&world, "data_hello"); /* the same frame by both ways is one */
    length = golden("data_hello", frame);
    CHECK_EQ(memnet_inject(world.memnet, &local, &other, frame, length), 1);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 64);
    world_data(&world, 64, 288, 32);
    world_end(&world, 288, 0); /* one way ended: the other may still bring data */
    CHECK_EQ(world_status(&world).end_of_stream, INT64_MAX);
    length = golden("eos", frame);
    CHECK_EQ(memnet_inject(world.memnet, &local, &other, frame, length), 1);
    world_pass(&world, 100 * MS);
    CHECK_EQ(world_status(&world).end_of_stream, INT64_MAX); /* not repeated by that one yet */
    CHECK_EQ(memnet_inject(world.memnet, &local, &other, frame, length), 1);
    world_step(&world);
    CHECK_EQ(world_status(&world).end_of_stream, 288);
    world_close(&world);
}

static void test_hostile_datagrams_cost_a_counter(void)
{
    world_t world;
    ps_random_t random;
    uint64_t faults[16];
    uint64_t sum = 0;
    ps_random_seed(&random, 4242);
    world_open(&world, &PLAIN);
    world_golden(&world, "setup");
    world_step(&world);
    world_make_image(&world, &PLAIN);
    for (int32_t i = 0; i < 60000; i++) {
        static const char *NAMES[] = { "setup",     "data_hello", "data_33",      "data_two",
                                       "heartbeat", "pad",        "rttm_request", "rttm_reply",
                                       "sm",        "nak" };
        uint8_t frame[256];
        uint32_t length = golden(NAMES[ps_random_below(&random, 10)], frame);
        for (uint64_t flips = ps_random_below(&random, 5); flips > 0; flips--) {
            const uint64_t at = ps_random_below(&random, 40);
            if ((at < 12 || at > 19) && at != 5) { /* keep the route; an EOS flag would end it */
                frame[at] = (uint8_t)ps_random_next(&random);
            }
        }
        if (ps_random_below(&random, 4) == 0) {
            length = 1 + (uint32_t)ps_random_below(&random, 255);
        }
        world_inject(&world, frame, length);
        if (i % 50 == 0) {
            world.now_ns += MS;
            world_step(&world);
            memnet_discard(world.memnet);
        }
    }
    ps_driver_faults(world.driver, faults);
    for (int32_t i = 0; i < 16; i++) {
        sum += faults[i];
    }
    CHECK(sum > 1000);
    CHECK(faults[PS_WIRE_BAD_CHAIN] > 0 && faults[PS_WIRE_BAD_VERSION] > 0);
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), sum);
    world_close(&world);
}

static void test_strangers_cannot_fill_the_table_for_ever(void)
{
    world_t world;
    ps_event_t event;
    world_open(&world, &PLAIN);
    for (int32_t session = 0; session < 5000; session++) {
        uint8_t frame[256];
        const uint32_t length = golden("data_hello", frame);
        memcpy(frame + 12, &session, sizeof session);
        world_inject(&world, frame, length);
        if (session % 100 == 0) {
            world_step(&world);
        }
    }
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), PS_RECV_PENDING_MAX);
    world_golden(&world, "setup"); /* a real one is not locked out for more than the time-out */
    world_step(&world);
    world_pass(&world, SECOND + 2 * MS);
    world_golden(&world, "setup");
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    CHECK_EQ(event.session_id, GOLDEN_SESSION);
    world_close(&world);
}

/* Each session of a stream with rejoin=false that ended is ignored from then on. */
static void test_ended_sessions_never_fill_the_table(void)
{
    const int32_t most = PS_RECV_KEPT_MAX;
    world_t world;
    ps_event_t event;
    int32_t left = 0;
    world_open(&world, &PLAIN);
    for (int32_t i = 0; i < 6 * PS_RECV_KEPT_MAX; i++) {
        CHECK_EQ(ps_recv_endpoint_forget_session(world.driver, world.endpoint, GOLDEN_STREAM,
                                                 1000 + i, 1),
                 PS_OK);
        world_pass(&world, MS);
        while (world_event(&world, PS_EV_SESSION_LEFT, &event)) {
            CHECK_EQ(event.session_id, 1000 + left); /* the oldest first */
            left++;
        }
    }
    CHECK_EQ(left, 6 * PS_RECV_KEPT_MAX - most);
    CHECK_EQ(world.endpoint->kept, most);
    world_golden(&world, "setup"); /* a new stream finds a place */
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_make_image(&world, &PLAIN);
    world_close(&world);
}

int main(void)
{
    RUN(test_setup_becomes_image_becomes_status_message);
    RUN(test_full_event_ring_repeats_the_setup);
    RUN(test_unknown_data_requests_a_setup_once_a_second);
    RUN(test_ending_and_unwanted_streams_are_left_alone);
    RUN(test_refused_session_stays_quiet_until_interest_goes);
    RUN(test_a_refused_setup_is_answered_once_a_second);
    RUN(test_explicit_control_address_gets_a_request_every_second);
    RUN(test_multicast_answers_go_to_the_control_group);
    RUN(test_a_moved_control_address_is_used_at_once);
    RUN(test_released_endpoint_is_reported);
    RUN(test_removed_destination_is_closed_by_the_conductor);
    RUN(test_image_of_two_destinations_answers_on_both);
    RUN(test_hostile_datagrams_cost_a_counter);
    RUN(test_strangers_cannot_fill_the_table_for_ever);
    RUN(test_ended_sessions_never_fill_the_table);
    return 0;
}
