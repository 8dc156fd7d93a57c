/* SPDX-License-Identifier: Apache-2.0
 * A receiver under NAK-strength control: silent below its threshold, silent to those that did not
 * ask, one frame a window above it, silent again when its reader stands still.
 */
#include "ps_wire_pressure.h"
#include "ps_image.h"
#include "recv_world.h"

static void fill_to(world_t *world, int64_t *at, int64_t to)
{
    for (; *at < to; *at += 1024) {
        world_data(world, *at, *at + 1024, 1024);
        world_step(world);
    }
}

static int32_t count_pressure(world_t *world, ps_pressure_t *last)
{
    static memnet_dgram_t dgram;
    int32_t count = 0;
    while (world_sent(world, PS_TYPE_EXT, &dgram)) {
        CHECK_EQ(ps_wire_pressure(dgram.data, dgram.length, last), PS_WIRE_OK);
        count++;
    }
    return count;
}

static void open_pressed(world_t *world, uint32_t capabilities)
{
    const world_options_t options = { .peer_capabilities = capabilities, .advertise = 1 };
    world_open(world, &options);
    world_make_image(world, &options);
    memnet_discard(world->memnet);
}

static void a_full_queue_signals_once_a_window(void)
{
    ps_pressure_t pressure;
    world_t world;
    int64_t at = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
    for (int i = 0; i < 13; i++) { /* slowly up to 13 of 32 KiB: nothing to say */
        fill_to(&world, &at, at + 1024);
        world_pass(&world, 10 * MS);
        world_consume(&world, (i + 1) * 32);
    }
    CHECK_EQ(count_pressure(&world, &pressure), 0);
    CHECK_EQ(world_status(&world).pressure_signals, 0);
    int32_t frames = 0;
    fill_to(&world, &at, 26 * 1024);
    for (int i = 1; i <= 100; i++) { /* a second; its reader takes a little each time */
        world_consume(&world, (13 + i) * 32);
        world_pass(&world, 10 * MS);
        frames += count_pressure(&world, &pressure);
    }
    CHECK(frames >= 18 && frames <= 24); /* and once for each further level */
    CHECK_EQ(world_status(&world).pressure_signals, frames);
    CHECK_EQ(pressure.receiver_id, GOLDEN_RECEIVER);
    CHECK(pressure.session_id == GOLDEN_SESSION && pressure.stream_id == GOLDEN_STREAM);
    CHECK(pressure.level >= 1 && pressure.fill_ppm >= 500000);
    CHECK_EQ(pressure.client_id, 5);
    CHECK(pressure.backlog_bytes > 20000);
    world_pass(&world, SECOND); /* it stands still: paused after a quarter of a second */
    CHECK(count_pressure(&world, &pressure) <= 6);
    world_pass(&world, SECOND);
    CHECK_EQ(count_pressure(&world, &pressure), 0);
    world_close(&world);
}

/* Consumes 32 bytes every 20 ms, so that the reader does not count as paused. */
static void consume_slowly(world_t *world, int64_t *consumed, int64_t ns)
{
    const int64_t end = world->now_ns + ns;
    while (world->now_ns < end) {
        *consumed += 32;
        world_consume(world, *consumed);
        world_pass(world, 20 * MS);
    }
}

static void a_sender_that_is_not_heard_gets_no_notice(void)
{
    world_t world;
    int64_t at = 0;
    int64_t consumed = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
    fill_to(&world, &at, 32 * 1024);
    consume_slowly(&world, &consumed, SECOND);
    CHECK(world_status(&world).pressure_signals >= 15);
    consume_slowly(&world, &consumed, 5 * SECOND);
    const int64_t signals = world_status(&world).pressure_signals;
    consume_slowly(&world, &consumed, SECOND);
    CHECK_EQ(world_status(&world).pressure_signals, signals);
    fill_to(&world, &at, 34 * 1024);
    consume_slowly(&world, &consumed, SECOND / 10);
    CHECK(world_status(&world).pressure_signals > signals);
    world_close(&world);
}

static void a_sender_without_requests_gets_no_notice(void)
{
    ps_pressure_t pressure;
    world_t world;
    int64_t at = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_ORDINALS);
    fill_to(&world, &at, 32 * 1024);
    for (int i = 1; i <= 50; i++) {
        world_consume(&world, i * 32);
        world_pass(&world, 10 * MS);
    }
    CHECK_EQ(count_pressure(&world, &pressure), 0);
    world_close(&world);
}

/* The queue stays `unread` bytes long, and its reader takes a KiB each 20 ms. The receiver keeps a
 * term; its capacity is half a term. */
static void the_frame_states_the_queue_and_its_reader(void)
{
    enum { CAPACITY = WORLD_TERM_LENGTH / 2 };
    for (int64_t unread = 17 * 1024; unread <= 48 * 1024; unread += 3072) {
        ps_pressure_t pressure = { 0 };
        world_t world;
        int64_t at = 0;
        open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
        world.image->rtt.smoothed_ns = 3 * MS;
        fill_to(&world, &at, unread);
        for (int64_t i = 1; i <= 100; i++) {
            world_consume(&world, i * 1024);
            fill_to(&world, &at, unread + i * 1024);
            world_pass(&world, 20 * MS);
        }
        CHECK(count_pressure(&world, &pressure) >= 35); /* one in each 50 ms */
        CHECK(pressure.rate >= 48000 && pressure.rate <= 54000);
        CHECK(pressure.cadence_ns >= 19 * MS && pressure.cadence_ns <= 22 * MS);
        CHECK_EQ(pressure.rtt_ns, 3 * MS);
        CHECK_EQ(pressure.backlog_bytes, unread);
        CHECK_EQ(pressure.residue, unread); /* a KiB arrives as it reads one */
        CHECK_EQ(pressure.overrun, unread > CAPACITY ? unread - CAPACITY : 0);
        CHECK_EQ(pressure.fill_ppm, unread < CAPACITY ? unread * 1000000 / CAPACITY : 1000000);
        CHECK_EQ(pressure.level, ps_pressure_level(unread, CAPACITY));
        world_close(&world);
    }
}

/* No data arrives any more, and the reader reads nothing: until it counts as paused, the receiver
 * signals once in each 50 ms. */
static void a_full_queue_signals_without_data(void)
{
    ps_pressure_t pressure;
    world_t world;
    int64_t at = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
    fill_to(&world, &at, 20 * 1024);
    world_pass(&world, MS);
    CHECK_EQ(count_pressure(&world, &pressure), 1);
    for (int64_t i = 0; i < 4; i++) {
        world_pass(&world, 40 * MS);
        CHECK_EQ(count_pressure(&world, &pressure), 0);
        world_pass(&world, 10 * MS);
        CHECK_EQ(count_pressure(&world, &pressure), 1);
    }
    world_close(&world);
}

/* Returns the time from 52 % of a queue that filled for 150 ms to its first signal, in ms. */
static int64_t delay_of_first(world_t *world, int64_t *at)
{
    ps_pressure_t pressure;
    int64_t delay_ms = 0;
    world_pass(world, 500 * MS);
    memnet_discard(world->memnet);
    for (int64_t i = 0; i < 15; i++) {
        fill_to(world, at, *at + 1024);
        world_pass(world, 10 * MS);
    }
    CHECK_EQ(count_pressure(world, &pressure), 0);
    fill_to(world, at, *at + 2048);
    while (count_pressure(world, &pressure) == 0) {
        CHECK(++delay_ms <= 50);
        world_pass(world, MS);
    }
    world_consume(world, *at);
    return delay_ms;
}

/* Members of a group do not signal at the same moment: each waits for a random time before the
 * first signal. A sole receiver signals at once. */
static void only_in_a_group_is_the_first_signal_delayed(void)
{
    enum { EPISODES = 16 };
    for (uint8_t group = 0; group < 2; group++) {
        const world_options_t options = { .peer_capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE,
                                          .advertise = 1,
                                          .group = group };
        uint64_t seen = 0;
        int64_t at = 0;
        world_t world;
        world_open(&world, &options);
        world_make_image(&world, &options);
        for (int32_t i = 0; i < EPISODES; i++) {
            seen |= UINT64_C(1) << delay_of_first(&world, &at);
        }
        if (group) {
            CHECK(__builtin_popcountll(seen) >= 5);
        } else {
            CHECK_EQ(seen, 1);
        }
        world_close(&world);
    }
}

/* The publisher then reads loss_repair as the cause, not the window of a reader that keeps up. */
static void a_receiver_that_waits_for_repair_says_so(void)
{
    static memnet_dgram_t dgram;
    for (int64_t behind = 8; behind <= 24; behind += 16) { /* of 32 KiB */
        world_t world;
        ps_sm_t sm = { .receiver_id = 0 };
        int64_t at = 1024; /* the first datagram is lost */
        open_pressed(&world, PS_CAP_PENSTOCK);
        fill_to(&world, &at, at + behind * 1024);
        world_pass(&world, 250 * MS);
        while (world_sent(&world, PS_TYPE_SM, &dgram)) {
            CHECK_EQ(ps_wire_sm(dgram.data, dgram.length, &sm), PS_WIRE_OK);
        }
        CHECK_EQ(sm.receiver_id, GOLDEN_RECEIVER);
        CHECK_EQ(sm.trailer.reason, behind > 16 ? PS_CAUSE_LOSS_REPAIR : PS_CAUSE_NONE);
        world_close(&world);
    }
}

/* A signal leaves on each destination on which the sender is heard, and counts once. */
static void a_signal_leaves_where_the_sender_is_heard(void)
{
    ps_pressure_t pressure;
    world_t world;
    ps_addr_t second;
    int64_t at = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
    const ps_recv_destination_params_t destination = {
        .id = 2, .socket = { .bind = memnet_addr(2, WORLD_PORT + 1) }
    };
    CHECK_EQ(ps_recv_endpoint_add_destination(world.driver, world.endpoint, &destination, &second),
             PS_OK);
    fill_to(&world, &at, 20 * 1024);
    CHECK_EQ(count_pressure(&world, &pressure), 1); /* nothing came to the second */
    CHECK_EQ(world_status(&world).pressure_signals, 1);
    world.local = second;
    fill_to(&world, &at, 21 * 1024);
    world_pass(&world, 50 * MS);
    CHECK_EQ(count_pressure(&world, &pressure), 2);
    CHECK_EQ(world_status(&world).pressure_signals, 2);
    world_close(&world);
}

/* The receiver's loop may rest after a look that sent nothing. */
static void a_look_is_work_if_a_signal_leaves(void)
{
    world_t world;
    int64_t at = 0;
    open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
    CHECK_EQ(ps_image_pressure(world.image, world.now_ns), 0);
    fill_to(&world, &at, 20 * 1024); /* the signal left */
    CHECK_EQ(ps_image_pressure(world.image, world.now_ns), 0);
    CHECK_EQ(ps_image_pressure(world.image, world.now_ns + 50 * MS), 1);
    CHECK_EQ(ps_image_pressure(world.image, world.now_ns + 50 * MS), 0);
    world_close(&world);
}

/* A reader that rests, or that was left behind, continues later at another position. */
static void data_that_a_reader_skips_is_not_measured(void)
{
    for (int32_t lagged = 0; lagged < 2; lagged++) {
        world_t world;
        int64_t at = 0;
        open_pressed(&world, PS_CAP_PENSTOCK | PS_CAP_PRESSURE);
        fill_to(&world, &at, 32 * 1024);
        ps_image_subscriber_t *subscriber = &world.image->subscribers[0];
        int64_t now_ns = world.now_ns;
        for (int64_t read = 1024; read <= 8192; read += 1024) {
            world_consume(&world, read);
            (void)ps_image_pressure(world.image, now_ns += 20 * MS);
        }
        const int64_t rate = subscriber->reader.rate;
        const int64_t cadence_ns = subscriber->reader.cadence_ns;
        CHECK(rate > 0 && cadence_ns > 0);
        subscriber->tether.state = lagged ? PS_TETHER_ACTIVE : PS_TETHER_RESTING;
        subscriber->isolation.lagged = lagged != 0;
        (void)ps_image_pressure(world.image, now_ns += SECOND);
        world_consume(&world, 24 * 1024); /* where the others are */
        (void)ps_image_pressure(world.image, now_ns += MS);
        CHECK(ps_image_signalled_reader(world.image, now_ns) == NULL);
        subscriber->tether.state = PS_TETHER_ACTIVE;
        subscriber->isolation.lagged = false;
        (void)ps_image_pressure(world.image, now_ns += 100 * MS);
        CHECK(ps_image_signalled_reader(world.image, now_ns) == &subscriber->reader);
        CHECK_EQ(subscriber->reader.position, 24 * 1024);
        CHECK_EQ(subscriber->reader.taken, 0);
        CHECK_EQ(subscriber->reader.rate, rate);
        CHECK_EQ(subscriber->reader.cadence_ns, cadence_ns);
        world_close(&world);
    }
}

int main(void)
{
    a_receiver_that_waits_for_repair_says_so();
    RUN(only_in_a_group_is_the_first_signal_delayed);
    RUN(a_signal_leaves_where_the_sender_is_heard);
    RUN(a_look_is_work_if_a_signal_leaves);
    RUN(data_that_a_reader_skips_is_not_measured);
    RUN(a_full_queue_signals_without_data);
    RUN(the_frame_states_the_queue_and_its_reader);
    RUN(a_full_queue_signals_once_a_window);
    RUN(a_sender_that_is_not_heard_gets_no_notice);
    RUN(a_sender_without_requests_gets_no_notice);
    return 0;
}
