/* SPDX-License-Identifier: Apache-2.0
 * Images, part one: what arrives, in which order, and what the log holds then.
 */
#include "ps_driver_state.h"
#include "recv_world.h"

static const world_options_t PLAIN = { 0 };

static void open_image(world_t *world, const world_options_t *options)
{
    world_open(world, options);
    world_make_image(world, options);
    memnet_discard(world->memnet);
}

static void test_one_lost_datagram_is_requested_once(void)
{
    static memnet_dgram_t dgram;
    uint8_t expected[256];
    world_t world;
    open_image(&world, &PLAIN);
    world_golden(&world, "data_hello");
    world_golden(&world, "data_two");
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 64);
    CHECK_EQ(world_status(&world).high_water, 288);
    CHECK_EQ(world_status(&world).gaps, 1);
    CHECK_EQ(world_sent(&world, PS_TYPE_NAK, &dgram), 0); /* the delay is 1 us */
    world_pass(&world, 2000);
    CHECK_EQ(world_sent(&world, PS_TYPE_NAK, &dgram), 1);
    CHECK_EQ(dgram.length, golden("nak", expected));
    CHECK(memcmp(dgram.data, expected, dgram.length) == 0);
    CHECK_EQ(dgram.to.port, world.sender.port);
    world_pass(&world, 95000);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    world_pass(&world, 10000); /* 100 us after the first: again */
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 1);
    world_golden(&world, "data_33");
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 288);
    CHECK_EQ(world_status(&world).gaps, 0);
    world_golden(&world, "heartbeat");
    world_pass(&world, 50 * MS);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    CHECK_EQ(world_system(&world, PS_SYS_NAKS_SENT), 2);
    CHECK_EQ(ps_counter_get(world.cnc, world.naks_counter), 2);
    CHECK_EQ(world_system(&world, PS_SYS_HEARTBEATS_RECEIVED), 1);
    ps_event_t event;
    CHECK_EQ(world_event(&world, PS_EV_LOSS, &event), 1);
    CHECK_EQ(event.loss.bytes, 96);
    CHECK_EQ(event.loss.gaps, 1);
    CHECK_EQ(world_event(&world, PS_EV_LOSS, &event), 0);
    uint8_t frame[256];
    golden("data_33", frame);
    CHECK(memcmp(ps_log_at(&world.log, 64), frame, 96) == 0);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].ordinal), 4);
    world_close(&world);
}

/* While no path to the sender lives, no NAK leaves, none is counted, and its timer is no work. When
 * the sender is heard again, a status message and a NAK leave at once. */
static void test_without_a_path_no_nak_is_counted(void)
{
    world_t world;
    const world_options_t options = { 0 };
    world_open(&world, &options);
    world_make_image(&world, &options);
    world_data(&world, 0, 1024, 1024);
    world_data(&world, 2048, 3072, 1024);
    world_pass(&world, MS);
    CHECK(world_count_sent(&world, PS_TYPE_NAK) > 0);
    world_pass(&world, 6 * SECOND); /* the connection's time is over after 5 s */
    memnet_discard(world.memnet);
    const int64_t sent = world_system(&world, PS_SYS_NAKS_SENT);
    const int64_t of_image = ps_counter_get(world.cnc, world.naks_counter);
    for (int32_t i = 0; i < 10000; i++, world.now_ns += MS / 10) { /* 1 s */
        CHECK_EQ(ps_image_request(world.image, world.now_ns), 0);
    }
    world_pass(&world, SECOND);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    CHECK_EQ(world_system(&world, PS_SYS_NAKS_SENT), sent);
    CHECK_EQ(ps_counter_get(world.cnc, world.naks_counter), of_image);
    world_data(&world, 3072, 4096, 1024);
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    world_pass(&world, SECOND);
    CHECK(world_system(&world, PS_SYS_NAKS_SENT) > sent);
    CHECK(ps_counter_get(world.cnc, world.naks_counter) > of_image);
    world_close(&world);
}

static void test_heartbeat_shows_a_lost_tail(void)
{
    static memnet_dgram_t dgram;
    world_t world;
    open_image(&world, &PLAIN);
    world_heartbeat(&world, 320, PS_FLAG_UNFRAGMENTED);
    world_pass(&world, 2000);
    ps_nak_t nak;
    CHECK_EQ(world_sent(&world, PS_TYPE_NAK, &dgram), 1);
    CHECK_EQ(ps_wire_nak(dgram.data, dgram.length, &nak), PS_WIRE_OK);
    CHECK(nak.term_offset == 0 && nak.length == 320);
    world_data(&world, 0, 320, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 320);
    CHECK(world_holds(&world, 0, 320, 64));
    world_close(&world);
}

/* A gap [at, at + 64); then so long until it is requested, to a microsecond. */
static int64_t patience_us(world_t *world, int64_t at)
{
    int64_t waited_us = 0;
    world_count_sent(world, PS_TYPE_NAK);
    world_data(world, at + 64, at + 128, 64);
    world_step(world);
    while (world_count_sent(world, PS_TYPE_NAK) == 0) {
        CHECK(waited_us < 1000);
        world_pass(world, 1000);
        waited_us++;
    }
    return waited_us;
}

/* What came 90 us late, after one request, and then once more was late, not lost: from now on
 * 112 us are waited.  Each loss lets that fade by a sixteenth. */
static void test_patience_is_learned_and_fades(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    CHECK(patience_us(&world, 0) <= 2);
    world_pass(&world, 88000);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    const int64_t learned_us = patience_us(&world, 128);
    CHECK(learned_us >= 110 && learned_us <= 115);
    world_data(&world, 128, 192, 64);
    world_step(&world);
    const int64_t faded_us = patience_us(&world, 256);
    CHECK(faded_us >= 103 && faded_us <= 108);
    world_close(&world);
}

/* The middle of a gap came, and found no room in the list: that it comes again proves nothing. */
static void test_what_finds_no_room_is_not_late(void)
{
    const world_options_t one = { .max_gaps = 1 };
    world_t world;
    open_image(&world, &one);
    world_data(&world, 256, 320, 64);
    world_pass(&world, 90000);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 1);
    world_data(&world, 64, 128, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).gaps, 1);
    world_data(&world, 0, 256, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 320);
    CHECK(patience_us(&world, 320) <= 2);
    world_close(&world);
}

static void test_delivered_bytes_cannot_be_changed(void)
{
    uint8_t forged[2048];
    uint32_t length = 0;
    world_t world;
    open_image(&world, &PLAIN);
    world_data(&world, 0, 512, 64);
    world_data(&world, 768, 1024, 64);
    world_step(&world);
    for (int64_t at = 0; at < 1024; at += 64) {
        length += world_frame(&world, forged + length, at, 64, PS_TYPE_DATA);
        memset(forged + length - 32, 0xEE, 32);
    }
    world_inject(&world, forged, length); /* covers old, missing, and old again */
    world_step(&world);
    CHECK(world_holds(&world, 0, 512, 64) && world_holds(&world, 768, 1024, 64));
    CHECK_EQ(world_status(&world).position, 1024); /* what was missing is believed */
    CHECK_EQ(ps_log_at(&world.log, 512)[40], 0xEE);
    world_close(&world);
}

static void test_frames_across_a_gap_edge_do_not_fit(void)
{
    uint8_t forged[256];
    world_t world;
    open_image(&world, &PLAIN);
    world_data(&world, 0, 64, 64);
    world_data(&world, 192, 256, 64);
    world_inject(&world, forged, world_frame(&world, forged, 128, 128, PS_TYPE_DATA));
    world_inject(&world, forged, world_frame(&world, forged, 32, 64, PS_TYPE_DATA));
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 64);
    CHECK(world_holds(&world, 0, 64, 64) && world_holds(&world, 192, 256, 64));
    CHECK_EQ(*(int32_t *)(void *)ps_log_at(&world.log, 128), 0);
    world_data(&world, 64, 192, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 256);
    world_close(&world);
}

static void test_a_false_heartbeat_does_not_wedge_the_stream(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    world_heartbeat(&world, 96, PS_FLAG_UNFRAGMENTED); /* in the middle of the second frame */
    world_step(&world);
    world_data(&world, 0, 256, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 256);
    CHECK(world_holds(&world, 0, 256, 64));
    world_close(&world);
}

/* A forged frame begins in what is there and ends beyond: nothing of it is written, and what it
 * claims to cover is requested. */
static void test_a_frame_across_the_mark_is_requested(void)
{
    const world_options_t penstock = { .peer_capabilities = PS_CAP_PENSTOCK };
    static memnet_dgram_t dgram;
    uint8_t forged[256];
    ps_nak_t nak;
    world_t world;
    open_image(&world, &penstock);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    world_consume(&world, 64);
    world_pass(&world, 2000);
    world_inject(&world, forged, world_frame(&world, forged, 32, 96, PS_TYPE_DATA));
    world_pass(&world, 2000);
    CHECK_EQ(world_sent(&world, PS_TYPE_NAK, &dgram), 1);
    CHECK_EQ(ps_wire_nak(dgram.data, dgram.length, &nak), PS_WIRE_OK);
    CHECK(nak.term_offset == 64 && nak.length == 64);
    CHECK(world_holds(&world, 0, 64, 64));
    world_close(&world);
}

static void test_over_and_under_runs_are_counted(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    world_data(&world, WORLD_TERM_LENGTH / 2, WORLD_TERM_LENGTH / 2 + 64, 64);
    world_heartbeat(&world, WORLD_TERM_LENGTH / 2 + world.image->log.mtu, PS_FLAG_UNFRAGMENTED);
    world_step(&world);
    CHECK_EQ(world_system(&world, PS_SYS_OVER_RUNS), 2);
    CHECK_EQ(world_status(&world).high_water, 0);
    for (int64_t at = 0; at < 16384; at += 1024) {
        world_data(&world, at, at + 1024, 64);
    }
    world_step(&world);
    world_consume(&world, 16384);
    world_step(&world);
    world_data(&world, 1024, 2048, 64);
    world_step(&world);
    CHECK_EQ(world_system(&world, PS_SYS_UNDER_RUNS), 1);
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), 0);
    world_close(&world);
}

/* Datagrams that the kernel joined are taken as far as each of them would be. */
static void test_a_run_is_taken_as_far_as_it_may(void)
{
    world_t world;
    open_image(&world, &PLAIN);
    for (int64_t at = 0; at < WORLD_TERM_LENGTH / 2 + 8 * 1024; at += 1024) {
        world_data(&world, at, at + 1024, 64);
    }
    world_step(&world);
    CHECK_EQ(world_status(&world).position, WORLD_TERM_LENGTH / 2);
    CHECK_EQ(world_system(&world, PS_SYS_OVER_RUNS), 8);
    CHECK(world_holds(&world, 0, WORLD_TERM_LENGTH / 2, 64));
    world_close(&world);
}

static void test_padding_ends_a_term(void)
{
    const world_options_t near_end = { .term_offset = 65408 };
    uint8_t frame[256];
    world_t world;
    open_image(&world, &near_end);
    world_data(&world, 65408, 65472, 64);
    world_golden(&world, "pad"); /* 32 bytes that stand for 64 */
    world_data(&world, 65536, 65600, 64);
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 65600);
    CHECK_EQ(world_status(&world).gaps, 0);
    golden("pad", frame);
    CHECK(memcmp(ps_log_at(&world.log, 65472), frame, 32) == 0);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].ordinal), 2);
    world_close(&world);
}

/* A stream of many terms; datagrams lost, doubled and out of order; the subscriber checks each
 * frame before it consumes it.  Term ids wrap on the way. */
static void stream_of_many_terms(uint64_t seed, int32_t frame, uint32_t capabilities)
{
    const world_options_t options = { .initial_term_id = INT32_MAX - 2,
                                      .peer_capabilities = capabilities,
                                      .max_gaps = 8 };
    enum { RUN_BYTES = 1024, TOTAL = 20 * WORLD_TERM_LENGTH };
    static memnet_dgram_t dgram;
    world_t world;
    ps_random_t random;
    int64_t sent = 0, consumed = 0;
    ps_random_seed(&random, seed);
    open_image(&world, &options);
    memnet_join(world.memnet, seed % 3 != 0);
    for (int32_t turn = 0; consumed < TOTAL; turn++) {
        CHECK(turn < 100000);
        const int64_t limit = consumed + WORLD_WINDOW / 2;
        int64_t batch[8];
        int32_t count = 0;
        while (count < 8 && sent + RUN_BYTES <= limit && sent < TOTAL) {
            batch[count++] = sent;
            sent += RUN_BYTES;
        }
        for (int32_t i = count - 1; i > 0; i--) { /* shuffle */
            const int32_t j = (int32_t)ps_random_below(&random, (uint64_t)i + 1);
            const int64_t other = batch[i];
            batch[i] = batch[j];
            batch[j] = other;
        }
        for (int32_t i = 0; i < count; i++) {
            const uint64_t fate = ps_random_below(&random, 10);
            for (int32_t n = fate < 2 ? 0 : fate == 2 ? 2 : 1; n > 0; n--) {
                world_data(&world, batch[i], batch[i] + RUN_BYTES, frame);
            }
        }
        world_heartbeat(&world, sent, PS_FLAG_UNFRAGMENTED);
        world_pass(&world, 20000);
        while (world_sent(&world, PS_TYPE_NAK, &dgram)) {
            ps_nak_t nak;
            CHECK_EQ(ps_wire_nak(dgram.data, dgram.length, &nak), PS_WIRE_OK);
            const int64_t from = ps_position(nak.term_id, nak.term_offset, world.log.shift,
                                             world.log.initial_term_id);
            CHECK(nak.length > 0 && from >= consumed && from + nak.length <= sent);
            CHECK(nak.term_offset + nak.length <= WORLD_TERM_LENGTH);
            for (int64_t at = from & ~(int64_t)(RUN_BYTES - 1); at < from + nak.length;
                 at += RUN_BYTES) {
                if (ps_random_below(&random, 5) > 0) {
                    world_data(&world, at, at + RUN_BYTES, frame);
                }
            }
        }
        world_step(&world);
        const int64_t position = world_status(&world).position;
        CHECK(position <= sent && world_holds(&world, consumed, position, frame));
        world_check_reader(&world, consumed);
        consumed = position;
        world_consume(&world, consumed);
        world_step(&world);
    }
    CHECK_EQ(world_status(&world).gaps, 0);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].ordinal), TOTAL / frame);
    CHECK_EQ(world_system(&world, PS_SYS_OVER_RUNS), 0);
    CHECK_EQ(world_system(&world, PS_SYS_INVALID_PACKETS), 0);
    world_close(&world);
}

static void test_streams_of_many_terms(void)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        stream_of_many_terms(seed, seed % 2 ? 64 : 128, seed > 3 ? PS_CAP_PENSTOCK : 0);
    }
}

/* The same without repair, and with heartbeats that lie about the end: whatever is padded over, a
 * reader meets nothing of an earlier lap. */
static void lossy_stream_of_many_terms(uint64_t seed)
{
    const world_options_t options = { .initial_term_id = 7, .max_gaps = 8, .unreliable = 1 };
    enum { TOTAL = 20 * WORLD_TERM_LENGTH, UNIT = 512 };
    world_t world;
    ps_random_t random;
    int64_t consumed = 0;
    ps_random_seed(&random, seed);
    open_image(&world, &options);
    for (int32_t turn = 0; consumed < TOTAL; turn++) {
        CHECK(turn < 100000);
        int64_t next = consumed;
        for (int32_t i = 0; i < 6; i++) {
            const int64_t at = next + UNIT * (int64_t)ps_random_below(&random, 4);
            const int64_t term_end = (at | world.log.term_mask) + 1;
            const int64_t end = at + UNIT < term_end ? at + UNIT : term_end;
            const uint64_t fate = ps_random_below(&random, 8);
            if (fate == 0) {
                world_heartbeat(&world, at + 32 * (int64_t)ps_random_below(&random, 9),
                                PS_FLAG_UNFRAGMENTED);
            } else {
                world_data(&world, at, end, fate < 4 ? 64 : 128);
            }
            next = fate == 1 ? next : end; /* some come in the wrong order */
            world_step(&world);
            world_check_reader(&world, consumed);
        }
        world_pass(&world, 20000);
        world_check_reader(&world, consumed);
        consumed = world_status(&world).position;
        world_consume(&world, consumed);
        world_step(&world);
    }
    CHECK(world_system(&world, PS_SYS_LOSS_GAP_FILLS) > 20);
    world_close(&world);
}

static void test_lossy_streams_of_many_terms(void)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        lossy_stream_of_many_terms(seed);
    }
}

static void test_full_gap_list_drops_what_would_need_one_more(void)
{
    const world_options_t two = { .max_gaps = 2 };
    world_t world;
    open_image(&world, &two);
    for (int64_t at = 0; at < 10 * 128; at += 128) {
        world_data(&world, at, at + 64, 64); /* every second frame is missing */
    }
    world_step(&world);
    CHECK_EQ(world_status(&world).gaps, 2);
    CHECK_EQ(world_status(&world).high_water, 2 * 128 + 64);
    for (int64_t at = 0; at < 10 * 128; at += 64) {
        world_data(&world, at, at + 64, 64);
    }
    world_step(&world);
    CHECK_EQ(world_status(&world).position, 10 * 128);
    CHECK(world_holds(&world, 0, 10 * 128, 64));
    world_close(&world);
}

static void test_gaps_are_padded_over_when_unreliable(void)
{
    const world_options_t unreliable = { .unreliable = 1 };
    world_t world;
    open_image(&world, &unreliable);
    world_data(&world, 0, 64, 64);
    world_data(&world, 256, 320, 64);
    world_pass(&world, 10000);
    CHECK_EQ(world_status(&world).position, 320);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), 0);
    CHECK_EQ(world_system(&world, PS_SYS_LOSS_GAP_FILLS), 1);
    const ps_frame_t *pad = ps_frame_at(&world.log, 64);
    CHECK(pad->frame_length == 192 && pad->type == PS_TYPE_PAD && pad->term_offset == 64);
    world_data(&world, 64, 256, 64); /* too late */
    world_step(&world);
    CHECK_EQ(pad->frame_length, 192);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].ordinal), -1);
    world_close(&world);
}

static void test_nothing_is_written_without_storage(void)
{
    const world_options_t two_terms = { .reserved_position = 32768 };
    world_t world;
    ps_event_t event;
    open_image(&world, &two_terms);
    world_data(&world, 0, 64, 64);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1); /* half a term early */
    CHECK_EQ(event.term.reserved, 32768);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 0);
    for (int64_t at = 64; at < 32768 + 64; at += 64) {
        world_data(&world, at, at + 64, 64);
        if (at == 16384) {
            world_step(&world);
            world_consume(&world, 16384);
        }
        world_step(&world);
    }
    CHECK_EQ(world_status(&world).position, 32768);
    CHECK_EQ(ps_image_reserved(world.driver, world.image, 65536), PS_OK);
    world_step(&world);
    world_data(&world, 32768, 32768 + 64, 64);
    world_step(&world);
    CHECK_EQ(world_event(&world, PS_EV_TERM_NEEDED, &event), 1);
    CHECK_EQ(event.term.reserved, 65536);
    CHECK_EQ(world_status(&world).position, 32768 + 64);
    world_close(&world);
}

static void test_penstock_senders_get_a_request_for_every_gap(void)
{
    world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK };
    for (int32_t penstock = 1; penstock >= 0; penstock--) {
        world_t world;
        options.peer_capabilities = penstock ? PS_CAP_PENSTOCK : 0;
        open_image(&world, &options);
        for (int64_t at = 0; at < 10 * 128; at += 128) {
            world_data(&world, at, at + 64, 64);
        }
        world_pass(&world, 2000);
        CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), penstock ? 9 : 1);
        for (int64_t at = 64; at < 9 * 128 && !penstock; at += 128) {
            world_data(&world, at, at + 64, 64); /* the repair: the next one is requested */
            world_step(&world);
            CHECK_EQ(world_count_sent(&world, PS_TYPE_NAK), at < 8 * 128 ? 1 : 0);
        }
        world_close(&world);
    }
}

static void test_receive_times_go_where_the_channel_says(void)
{
    static const int64_t RX = 123456789;
    world_t world;
    open_image(&world, &PLAIN);
    ps_recv_endpoint_params_t *params = &world.endpoint->params;
    params->channel_timestamp = 1;
    params->channel_timestamp_offset = -8;
    params->media_timestamp = 1;
    params->media_timestamp_offset = 16;
    world.now_ns += RX;
    world_data(&world, 0, 128, 64);
    world_data(&world, 128, 160, 32); /* no payload: nowhere to write */
    world_step(&world);
    const int64_t epoch = world.now_ns + ps_context_epoch_offset_ns(&world.driver->context);
    for (int64_t at = 0; at < 128; at += 64) {
        int64_t media;
        memcpy(&media, ps_log_at(&world.log, at) + 32 + 16, sizeof media);
        CHECK_EQ(ps_frame_at(&world.log, at)->reserved_value, epoch);
        CHECK_EQ(media, epoch);
    }
    CHECK_EQ(world_status(&world).position, 160);
    world_close(&world);
}

static void test_group_images_back_off(void)
{
    const world_options_t group = { .group = 1 };
    world_t world;
    open_image(&world, &group);
    world_data(&world, 64, 128, 64);
    world_step(&world);
    const int64_t due = ps_driver_next_deadline_ns(world.driver, world.now_ns);
    CHECK(due > world.now_ns && due <= world.now_ns + 10 * MS);
    world_pass(&world, 10 * MS);
    CHECK(world_count_sent(&world, PS_TYPE_NAK) >= 1);
    world_close(&world);
}

/* In a group the timers of gaps run out in any order: each counts as a loss when its own has. */
static void test_every_gap_counts_as_a_loss(void)
{
    const world_options_t group = { .group = 1,
                                    .max_gaps = 64,
                                    .peer_capabilities = PS_CAP_PENSTOCK };
    world_t world;
    open_image(&world, &group);
    for (int64_t at = 0; at <= 40 * 128; at += 128) {
        world_data(&world, at, at + 64, 64);
    }
    world_step(&world);
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].lost_bytes), 0);
    for (int32_t i = 0; i < 110; i++) {
        world_pass(&world, MS / 10);
    }
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].lost_bytes), 40 * 64);
    world_pass(&world, 200 * MS);
    int64_t bytes = 0;
    int32_t gaps = 0;
    ps_event_t event;
    while (world_event(&world, PS_EV_LOSS, &event)) {
        bytes += event.loss.bytes;
        gaps += event.loss.gaps;
    }
    CHECK_EQ(bytes, 40 * 64);
    CHECK_EQ(gaps, 40);
    world_close(&world);
}

int main(void)
{
    RUN(test_one_lost_datagram_is_requested_once);
    RUN(test_without_a_path_no_nak_is_counted);
    RUN(test_heartbeat_shows_a_lost_tail);
    RUN(test_patience_is_learned_and_fades);
    RUN(test_what_finds_no_room_is_not_late);
    RUN(test_delivered_bytes_cannot_be_changed);
    RUN(test_frames_across_a_gap_edge_do_not_fit);
    RUN(test_a_false_heartbeat_does_not_wedge_the_stream);
    RUN(test_a_frame_across_the_mark_is_requested);
    RUN(test_over_and_under_runs_are_counted);
    RUN(test_a_run_is_taken_as_far_as_it_may);
    RUN(test_padding_ends_a_term);
    RUN(test_streams_of_many_terms);
    RUN(test_lossy_streams_of_many_terms);
    RUN(test_full_gap_list_drops_what_would_need_one_more);
    RUN(test_gaps_are_padded_over_when_unreliable);
    RUN(test_nothing_is_written_without_storage);
    RUN(test_penstock_senders_get_a_request_for_every_gap);
    RUN(test_receive_times_go_where_the_channel_says);
    RUN(test_group_images_back_off);
    RUN(test_every_gap_counts_as_a_loss);
    return 0;
}
