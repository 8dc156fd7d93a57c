/* SPDX-License-Identifier: Apache-2.0
 * Images, part three: frames of other sources than the followed one, and what they cannot change
 * (docs/trust.md).
 */
#include "speaker.h"

static const world_options_t PLAIN = { 0 };

static void test_a_strangers_setup_does_not_silence_the_sender(void)
{
    world_t world;
    speaker_t sender;
    ps_event_t event;
    const speaker_t stranger = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    setup(&world, &stranger, 640);
    data(&world, &stranger, 640, 704);
    CHECK_EQ(world_status(&world).position, 640);
    CHECK_EQ(world_status(&world).foreign_datagrams, 2);
    CHECK_EQ(notified_beside(&world, &sender, 640), 50000);
    CHECK_EQ(world_event(&world, PS_EV_SECOND_SOURCE, &event), 1);
    CHECK(event.id == 77 && event.second_source.source.port == 666 &&
          event.second_source.datagrams == 2);
    for (int32_t i = 0; i < 100; i++) {
        setup(&world, &stranger, 640);
    }
    CHECK_EQ(world_event(&world, PS_EV_SECOND_SOURCE, &event), 0); /* one line a source */
    data(&world, &sender, 640, 704);
    CHECK_EQ(world_status(&world).position, 704);
    world_close(&world);
}

/* The publication of a dead daemon goes on with another port: no second source. */
static void test_data_of_a_successor_is_no_second_source(void)
{
    world_t world;
    speaker_t sender;
    ps_event_t event;
    const speaker_t successor = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    for (int32_t i = 0; i < 60; i++) {
        beat(&world, &successor, 640);
        world_pass(&world, 100 * MS);
    }
    data(&world, &successor, 640, 704);
    CHECK_EQ(world_status(&world).position, 704);
    CHECK(world_status(&world).foreign_datagrams > 10);
    CHECK_EQ(world_event(&world, PS_EV_SECOND_SOURCE, &event), 0);
    world_close(&world);
}

/* A stranger's frames do not keep alive what its sender left. */
static void test_strangers_do_not_keep_an_image_alive(void)
{
    world_t world;
    speaker_t sender;
    ps_event_t event;
    const speaker_t stranger = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    for (int32_t i = 0; i < 49; i++) {
        beat(&world, &stranger, 640);
        world_pass(&world, 100 * MS);
    }
    world_pass(&world, 6 * SECOND);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    CHECK_EQ(event.ended.reason, PS_END_TIMEOUT);
    world_close(&world);
}

/* A zombie and the live sender swap their roles: the one that speaks is followed 5 s after the
 * other fell silent, and not before. */
static void test_zombie_and_live_sender_swap_three_times(void)
{
    world_t world;
    speaker_t who[2];
    int64_t at = 0;
    open_image(&world, &PLAIN, &who[0]);
    who[1] = speaker(9, 50009);
    data(&world, &who[0], 0, 64);
    for (int32_t swap = 0; swap < 4; swap++) {
        const speaker_t *live = &who[swap % 2];
        const speaker_t *zombie = &who[1 - swap % 2];
        at += 64;
        for (int32_t i = 0; i < 3; i++) { /* both speak: the live one is heard */
            setup(&world, zombie, at);
            data(&world, zombie, at, at + 64);
            CHECK_EQ(world_status(&world).position, at);
            data(&world, live, at, at + 64);
            at += 64;
            CHECK_EQ(world_status(&world).position, at);
            CHECK_EQ(notified_beside(&world, live, at), live->address.port);
        }
        for (int32_t i = 0; i < 48; i++) { /* it is silent, for less than the time-out */
            beat(&world, zombie, at);
            setup(&world, zombie, at);
            world_pass(&world, 100 * MS);
        }
        data(&world, zombie, at, at + 64);
        CHECK_EQ(world_status(&world).position, at);
        world_pass(&world, 201 * MS);
        setup(&world, zombie, at);
        CHECK_EQ(notified(&world), zombie->address.port);
        data(&world, zombie, at, at + 64);
        CHECK_EQ(world_status(&world).position, at + 64);
    }
    world_close(&world);
}

static void test_the_new_daemon_of_a_directory_is_followed_at_once(void)
{
    const world_options_t speaking = { .advertise = 1, .peer_capabilities = PS_CAP_PENSTOCK };
    world_t world;
    speaker_t old;
    world_open(&world, &speaking);
    old = (speaker_t){ world.sender, PS_CAP_PENSTOCK, 4711, 5 };
    world.log.initial_term_id = GOLDEN_TERM;
    setup(&world, &old, 0);
    world_make_image(&world, &speaking);
    data(&world, &old, 0, 64);
    const speaker_t other = { memnet_addr(9, 1), PS_CAP_PENSTOCK, 4712, 9 };
    const speaker_t zombie = { memnet_addr(9, 2), PS_CAP_PENSTOCK, 4711, 5 };
    const speaker_t new_daemon = { memnet_addr(1, 3), PS_CAP_PENSTOCK, 4711, 6 };
    setup(&world, &other, 64);
    setup(&world, &zombie, 64);
    CHECK_EQ(notified_beside(&world, &old, 64), 50000);
    setup(&world, &new_daemon, 64);
    CHECK_EQ(notified(&world), 3);
    data(&world, &new_daemon, 64, 128);
    setup(&world, &old, 64);
    CHECK_EQ(notified_beside(&world, &new_daemon, 128), 3);
    world_close(&world);
}

/* A host that repeats the new daemon's SETUPs under its own address may be heard before the new
 * daemon. */
static void test_a_later_epoch_of_another_host_changes_nothing(void)
{
    const world_options_t speaking = { .advertise = 1, .peer_capabilities = PS_CAP_PENSTOCK };
    world_t world;
    speaker_t old;
    world_open(&world, &speaking);
    old = (speaker_t){ world.sender, PS_CAP_PENSTOCK, 4711, 5 };
    world.log.initial_term_id = GOLDEN_TERM;
    setup(&world, &old, 0);
    world_make_image(&world, &speaking);
    data(&world, &old, 0, 64);
    const speaker_t stranger = { memnet_addr(9, 3), PS_CAP_PENSTOCK, 4711, 6 };
    setup(&world, &stranger, 64);
    data(&world, &stranger, 64, 128);
    CHECK_EQ(world_status(&world).position, 64);
    CHECK_EQ(world.image->peer.daemon_epoch, 5);
    const speaker_t new_daemon = { old.address, PS_CAP_PENSTOCK, 4711, 6 };
    setup(&world, &new_daemon, 64);
    data(&world, &new_daemon, 64, 128);
    CHECK_EQ(world_status(&world).position, 128);
    CHECK_EQ(world.image->peer.daemon_epoch, 6);
    world_close(&world);
}

/* Ends the image while its sender is alive, as an image that was outrun ends. */
static void end_image(world_t *world)
{
    CHECK_EQ(ps_image_remove_subscriber(world->driver, world->image, world->sub_pos), PS_OK);
    world_step(world);
    CHECK_EQ(ps_image_remove(world->driver, world->image, 0), PS_OK);
    world_step(world);
    ps_image_destroy(world->driver, world->image);
}

static void test_between_two_images_a_stranger_is_not_followed(void)
{
    world_t world;
    speaker_t sender;
    ps_event_t event;
    const speaker_t stranger = speaker(9, 666);
    for (int32_t late = 0; late < 2; late++) {
        open_image(&world, &PLAIN, &sender);
        data(&world, &sender, 0, 64);
        end_image(&world);
        world_pass(&world, 4999 * MS);
        setup(&world, &stranger, 64);
        CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 0);
        if (late) {
            world_pass(&world, 2 * MS);
        }
        setup(&world, late ? &stranger : &sender, 64);
        CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
        CHECK_EQ(event.setup.source.port, late ? stranger.address.port : sender.address.port);
        world_close(&world);
    }
}

/* A standby may take over at once from a sender that stated the end of its stream. */
static void test_a_source_that_stated_an_end_is_not_remembered(void)
{
    world_t world;
    speaker_t sender;
    ps_event_t event;
    const speaker_t standby = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 64);
    eos(&world, &sender, 64, 0);
    end_image(&world);
    setup(&world, &standby, 64);
    CHECK_EQ(world_event(&world, PS_EV_SETUP, &event), 1);
    world_close(&world);
}

/* The path changes the port, or the sender came back with another one and states no SETUP. */
static void test_data_from_another_port_counts_after_the_timeout(void)
{
    world_t world;
    speaker_t sender;
    memnet_dgram_t *dgram = malloc(sizeof *dgram);
    open_image(&world, &(world_options_t){ .peer_capabilities = PS_CAP_PENSTOCK }, &sender);
    data(&world, &sender, 0, 64);
    const speaker_t moved = speaker(1, 50001);
    world_pass(&world, 4900 * MS);
    data(&world, &moved, 64, 128);
    CHECK_EQ(world_status(&world).position, 64);
    world_pass(&world, 101 * MS);
    memnet_discard(world.memnet);
    data(&world, &moved, 64, 128);
    CHECK_EQ(world_status(&world).position, 128);
    ps_sm_t sm = { 0 };
    bool requested = false;
    while (world_sent(&world, PS_TYPE_SM, dgram)) { /* what it can do is not known yet */
        CHECK_EQ(ps_wire_sm(dgram->data, dgram->length, &sm), PS_WIRE_OK);
        CHECK_EQ(dgram->to.port, 50001);
        requested = requested || (sm.flags & PS_SM_SETUP) != 0;
    }
    CHECK(requested);
    CHECK_EQ(world.image->peer_capabilities, 0);
    const speaker_t speaks = { moved.address, PS_CAP_PENSTOCK | PS_CAP_NAK_LIST, 1, 1 };
    setup(&world, &speaks, 128);
    CHECK_EQ(world.image->peer_capabilities, speaks.capabilities);
    free(dgram);
    world_close(&world);
}

static void test_a_source_of_a_setup_alone_yields_after_a_second(void)
{
    world_t world;
    speaker_t forger;
    open_image(&world, &PLAIN, &forger); /* the SETUP that made the image was a stranger's */
    const speaker_t sender = speaker(2, 50002);
    world_pass(&world, 999 * MS);
    data(&world, &sender, 0, 64);
    CHECK_EQ(world_status(&world).position, 0);
    world_pass(&world, 1 * MS);
    data(&world, &sender, 0, 64);
    CHECK_EQ(world_status(&world).position, 64);
    setup(&world, &forger, 64);
    data(&world, &forger, 64, 128);
    CHECK_EQ(world_status(&world).position, 64);
    CHECK_EQ(notified_beside(&world, &sender, 64), 50002);
    world_close(&world);

    open_image(&world, &PLAIN, &forger); /* it states SETUPs as nobody answers it */
    setup(&world, &sender, 0);
    world_pass(&world, 1001 * MS);
    setup(&world, &sender, 0);
    CHECK_EQ(notified(&world), 50002);
    world_close(&world);
}

static void test_contradicting_setups_change_nothing(void)
{
    world_t world;
    speaker_t sender;
    const speaker_t stranger = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 640);
    world_pass(&world, 5100 * MS); /* silent: another may come, but not with another stream */
    const ps_setup_t good = setup_at(&world, 640);
    ps_setup_t bad[6] = { good, good, good, good, good, good };
    bad[0].initial_term_id--;
    bad[1].term_length *= 2;
    bad[2].mtu = 2048;
    bad[3] = setup_at(&world, INT64_C(4) * WORLD_TERM_LENGTH);
    bad[4].ttl = -1;
    bad[5].ttl = 256;
    for (int32_t i = 0; i < 6; i++) {
        say_setup(&world, &stranger, &bad[i]);
        world_step(&world);
        CHECK_EQ(notified(&world), 0);
    }
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), 5);
    CHECK_EQ(world_status(&world).foreign_datagrams, 1);
    say_setup(&world, &stranger, &good);
    world_step(&world);
    CHECK_EQ(notified(&world), 0); /* its time ran out meanwhile */
    world_close(&world);
}

/* An image of a forged SETUP keeps the session's sender out: it goes after a second. */
static void test_an_image_that_nobody_feeds_gives_way(void)
{
    world_t world;
    speaker_t forger;
    ps_event_t event;
    const speaker_t sender = speaker(2, 50002);
    open_image(&world, &PLAIN, &forger);
    ps_setup_t real = setup_at(&world, 0);
    real.initial_term_id++;
    real.active_term_id = real.initial_term_id;
    for (int32_t i = 0; i < 10; i++) {
        say_setup(&world, &sender, &real);
        world_pass(&world, 99 * MS);
    }
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 0);
    world_pass(&world, 50 * MS);
    say_setup(&world, &sender, &real);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_IMAGE_INACTIVE, &event), 1);
    world_close(&world);
}

/* ---- capabilities ---------------------------------------------------------------------------- */

static int32_t setups_requested(world_t *world)
{
    static memnet_dgram_t dgram;
    ps_sm_t sm;
    int32_t count = 0;
    while (world_sent(world, PS_TYPE_SM, &dgram)) {
        CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
        count += (sm.flags & PS_SM_SETUP) != 0;
    }
    return count;
}

static void test_one_setup_does_not_change_capabilities(void)
{
    const uint32_t all = PS_CAP_PENSTOCK | PS_CAP_PRESSURE | PS_CAP_NAK_LIST;
    world_t world;
    speaker_t sender;
    open_image(&world, &(world_options_t){ .peer_capabilities = all }, &sender);
    data(&world, &sender, 0, 64);
    speaker_t forged = sender; /* by the sender's own address */
    forged.capabilities = 0;
    memnet_discard(world.memnet);
    setup(&world, &forged, 64);
    CHECK_EQ(world.image->peer_capabilities, all);
    CHECK_EQ(setups_requested(&world), 1);
    setup(&world, &sender, 64); /* the answer */
    world_pass(&world, 3 * SECOND);
    CHECK_EQ(setups_requested(&world), 0);
    CHECK_EQ(world.image->peer_capabilities, all);
    for (int32_t i = 0; i < 20; i++) { /* a flood changes them, until the sender answers */
        setup(&world, &forged, 64);
    }
    CHECK_EQ(world.image->peer_capabilities, 0);
    CHECK(setups_requested(&world) <= 1);
    for (int32_t i = 0; i < 2; i++) {
        beat(&world, &sender, 64);
        world_pass(&world, 1001 * MS);
        CHECK(setups_requested(&world) >= 1);
        setup(&world, &sender, 64);
    }
    CHECK_EQ(world.image->peer_capabilities, all);
    world_close(&world);
}

/* A destination that the sender does not use: a stranger's SETUP there changes nothing for the
 * stream, and what it would end does not. */
static void test_a_second_destination_follows_a_source_of_its_own(void)
{
    const uint32_t all = PS_CAP_PENSTOCK | PS_CAP_PRESSURE | PS_CAP_NAK_LIST;
    const ps_recv_destination_params_t second = { .id = 2,
                                                  .socket = { .bind = memnet_addr(3, 40125) } };
    const world_options_t speaking = { .peer_capabilities = all };
    world_t world;
    speaker_t sender;
    ps_addr_t other;
    const speaker_t stranger = speaker(9, 666);
    int32_t reason;
    open_image(&world, &speaking, &sender);
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &second, &other),
             PS_OK);
    data(&world, &sender, 0, 640);
    const ps_addr_t first = world.local;
    world.local = other;
    setup(&world, &stranger, 640);
    CHECK_EQ(world.image->peer_capabilities, all);
    for (int32_t i = 0; i < 4; i++) {
        eos(&world, &stranger, 640, PS_FLAG_REVOKED);
        world.local = first;
        beat(&world, &sender, 640);
        world.local = other;
        world_pass(&world, 100 * MS);
    }
    CHECK(!has_ended(&world, &reason));
    world.local = first;
    CHECK_EQ(world.image->connections[0].control.port, 50000);
    CHECK_EQ(world.image->connections[1].control.port, 666);
    data(&world, &sender, 640, 704);
    CHECK_EQ(world_status(&world).position, 704);
    world_close(&world);
}

/* Lists that the sender does not read, because a forged SETUP said that it does: the gap at the
 * front is requested as a plain NAK too. */
static void test_the_first_gap_does_not_depend_on_lists(void)
{
    world_t world;
    speaker_t sender;
    open_image(&world, &(world_options_t){ .peer_capabilities = PS_CAP_PENSTOCK | PS_CAP_NAK_LIST },
               &sender);
    for (int64_t at = 0; at < 1024; at += 128) { /* every second frame is missing */
        data(&world, &sender, at + 64, at + 128);
    }
    memnet_discard(world.memnet);
    for (int32_t i = 0; i < 10; i++) {
        world_pass(&world, 20 * MS);
    }
    static memnet_dgram_t dgram;
    int32_t plain = 0, lists = 0;
    while (memnet_take(world.memnet, &dgram)) {
        const int32_t type = dgram.data[6] + 256 * dgram.data[7];
        lists += type == PS_TYPE_EXT;
        if (type == PS_TYPE_NAK) {
            ps_nak_t nak;
            CHECK_EQ(ps_wire_nak(dgram.data, dgram.length, &nak), PS_WIRE_OK);
            CHECK(nak.term_offset == 0 && nak.length == 64);
            plain++;
        }
    }
    CHECK(lists > 0 && plain > 0 && plain < lists);
    world_close(&world);
}

static void test_round_trips_are_the_followed_sources(void)
{
    world_t world;
    speaker_t sender;
    uint8_t frame[PS_CONTROL_MAX];
    const speaker_t stranger = speaker(9, 666);
    const ps_rttm_t request = { .session_id = GOLDEN_SESSION,
                                .stream_id = GOLDEN_STREAM,
                                .echo_ns = 5,
                                .flags = PS_RTTM_REPLY };
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 64);
    memnet_discard(world.memnet);
    const uint32_t length = ps_wire_build_rttm(frame, &request);
    as(&world, &stranger);
    world_inject(&world, frame, length);
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_RTTM), 0);
    as(&world, &sender);
    world_inject(&world, frame, length);
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_RTTM), 1);
    world_close(&world);
}

/* The followed source is silent for the connection time-out, so data of another source would be
 * followed. An answer of another source measures another path. */
static void test_an_answer_of_another_source_is_no_round_trip(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    speaker_t sender;
    ps_rttm_t rttm;
    uint8_t frame[PS_CONTROL_MAX];
    const speaker_t other = speaker(9, 666);
    open_image(&world, &PLAIN, &sender);
    data(&world, &sender, 0, 64);
    CHECK_EQ(world_sent(&world, PS_TYPE_RTTM, &dgram), 1);
    CHECK_EQ(ps_wire_rttm(dgram.data, dgram.length, &rttm), PS_WIRE_OK);
    rttm.flags = 0;
    const uint32_t length = ps_wire_build_rttm(frame, &rttm);
    world_pass(&world, 6 * SECOND);
    as(&world, &other);
    world_inject(&world, frame, length);
    world_step(&world);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].rtt_ns), 0);
    as(&world, &sender);
    world_inject(&world, frame, length);
    world_step(&world);
    CHECK(atomic_load(&world.shared->images[world.image_slot].rtt_ns) >= 6 * SECOND);
    world_close(&world);
}

int main(void)
{
    RUN(test_a_strangers_setup_does_not_silence_the_sender);
    RUN(test_an_answer_of_another_source_is_no_round_trip);
    RUN(test_data_of_a_successor_is_no_second_source);
    RUN(test_strangers_do_not_keep_an_image_alive);
    RUN(test_zombie_and_live_sender_swap_three_times);
    RUN(test_the_new_daemon_of_a_directory_is_followed_at_once);
    RUN(test_a_later_epoch_of_another_host_changes_nothing);
    RUN(test_between_two_images_a_stranger_is_not_followed);
    RUN(test_a_source_that_stated_an_end_is_not_remembered);
    RUN(test_data_from_another_port_counts_after_the_timeout);
    RUN(test_a_source_of_a_setup_alone_yields_after_a_second);
    RUN(test_contradicting_setups_change_nothing);
    RUN(test_an_image_that_nobody_feeds_gives_way);
    RUN(test_one_setup_does_not_change_capabilities);
    RUN(test_a_second_destination_follows_a_source_of_its_own);
    RUN(test_the_first_gap_does_not_depend_on_lists);
    RUN(test_round_trips_are_the_followed_sources);
    return 0;
}
