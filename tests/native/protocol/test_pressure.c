/* SPDX-License-Identifier: Apache-2.0
 * PRESSURE: the frame and its checks; a sender that hears it, by the rate it keeps to and by what a
 * publisher is told; a receiver that sends it, to those that asked and only when its queue is full.
 * And ps-rate through the sender.
 */
#include "ps_wire_pressure.h"
#include "ps_wire_fields.h"
#include "sender_rig.h"

#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
    } while (0)

static const ps_pressure_t SAMPLE = { .session_id = GOLDEN_SESSION,
                                      .stream_id = GOLDEN_STREAM,
                                      .receiver_id = 0x1122334455667788,
                                      .fill_ppm = 760000,
                                      .level = 2,
                                      .rtt_ns = 2000000,
                                      .client_id = 42,
                                      .backlog_bytes = 99,
                                      .rate = 5000000,
                                      .cadence_ns = 7000000,
                                      .residue = 11,
                                      .overrun = 13 };

static void the_frame_is_as_documented(void)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_pressure_t read;
    uint16_t type = 0;
    const uint32_t length = ps_wire_build_pressure(out, &SAMPLE);
    CHECK_EQ(length, 96);
    CHECK_EQ(ps_wire_check(out, length, &type), PS_WIRE_OK);
    CHECK_EQ(type, PS_TYPE_EXT);
    CHECK_EQ(ps_get_i32(out), 96);
    CHECK_EQ(ps_get_i64(out + 64), SAMPLE.rate);
    CHECK_EQ(ps_get_u32(out + 8), PS_EXT_MAGIC);
    CHECK_EQ(ps_get_u16(out + 14), PS_EXT_PRESSURE);
    CHECK_EQ(ps_get_i64(out + 24), SAMPLE.receiver_id);
    CHECK_EQ(ps_wire_pressure(out, length, &read), PS_WIRE_OK);
    CHECK(memcmp(&read, &SAMPLE, sizeof(read)) == 0);
}

static void bad_frames_are_refused(void)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_pressure_t read;
    const struct {
        int at;
        uint8_t value;
    } wrong[] = { { 36, 0 }, { 36, 5 },    { 35, 0x7f }, { 47, 0x80 }, { 63, 0x80 },
                  { 0, 63 }, { 0, 97 },    { 71, 0x80 }, { 71, 0x01 }, { 79, 0x80 },
                  { 79, 1 }, { 87, 0x80 }, { 87, 1 },    { 95, 0x80 }, { 95, 1 } };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const uint32_t length = ps_wire_build_pressure(out, &SAMPLE);
        out[wrong[i].at] = wrong[i].value;
        CHECK_EQ(ps_wire_pressure(out, length, &read), PS_WIRE_BAD_FIELD);
    }
    for (uint32_t length = 24; length < 96; length++) {
        ps_wire_build_pressure(out, &SAMPLE);
        CHECK(ps_wire_pressure(out, length, &read) != PS_WIRE_OK);
    }
    ps_wire_build_pressure(out, &SAMPLE);
    ps_put_i32(out, 104); /* of a later version, with more behind */
    CHECK_EQ(ps_wire_pressure(out, 104, &read), PS_WIRE_OK);
    ps_put_i32(out, 64); /* of an earlier one: nothing is known of what it consumes */
    CHECK_EQ(ps_wire_pressure(out, 64, &read), PS_WIRE_OK);
    CHECK(read.backlog_bytes == 99 && read.rate == 0 && read.cadence_ns == 0);
    CHECK(read.residue == 0 && read.overrun == 0);
}

/* rate: bytes per second that its reader takes, to the end of the queue each time; 0: it was not
 * seen to consume. */
static void press_at(rig_t *rig, int64_t receiver, int32_t level, int64_t rate)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_pressure_t pressure = SAMPLE;
    pressure.level = level;
    pressure.receiver_id = receiver;
    pressure.rtt_ns = 0;
    pressure.rate = rate;
    pressure.residue = rate > 0 ? 0 : pressure.residue;
    pressure.overrun = rate > 0 ? 0 : pressure.overrun;
    pressure.cadence_ns = 0;
    rig_inject(rig, &rig->peer, out, ps_wire_build_pressure(out, &pressure));
}

static void press(rig_t *rig, int64_t receiver, int32_t level)
{
    press_at(rig, receiver, level, 0);
}

static void sm_that_speaks(rig_t *rig, int64_t position)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_trailer_t trailer = { .capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE,
                                   .ordinal = -1,
                                   .credit_limit = -1,
                                   .released_ordinal = -1 };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = ps_term_id_at(position, rig->log.shift, GOLDEN_TERM),
                         .term_offset = (int32_t)(position & rig->log.term_mask),
                         .window = 4096,
                         .receiver_id = 1 };
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
}

/* Keeps producing and consuming for ms; returns bytes sent. */
static int64_t drive(rig_t *rig, int32_t ms)
{
    const int64_t before = rig_counter(rig, rig->sender_position);
    for (int32_t i = 0; i < ms; i++) {
        for (int32_t n = 0; n < 24 && rig_tail(rig) < rig_counter(rig, rig->limit); n++) {
            rig_offer(rig, NULL, 1376 - 32, PS_FLAG_UNFRAGMENTED);
        }
        sm_that_speaks(rig, rig_counter(rig, rig->sender_position));
        rig_step(rig, 0);
        rig_step(rig, MS);
        memnet_discard(rig->net);
    }
    return rig_counter(rig, rig->sender_position) - before;
}

static void a_sender_requests_it_and_obeys(void)
{
    rig_t *rig = rig_open(
        &(rig_options_t){ .kind = RIG_UNICAST, .flow_control = PS_FC_PRESSURE, .advertise = 1 });
    ps_setup_t setup;
    ps_publication_status_t status;
    rig_step(rig, 0);
    rig_take(rig);
    CHECK_EQ(ps_wire_setup(rig->got.data, rig->got.length, &setup), PS_WIRE_OK);
    CHECK((setup.trailer.capabilities & PS_CAP_PRESSURE) != 0);
    sm_that_speaks(rig, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), RIG_TERM / 2); /* half a term, not 4096 */
    const int64_t before = drive(rig, 500);
    CHECK(before > 5000000);
    press(rig, 77, 4);
    rig_step(rig, 0);
    const int64_t cut = drive(rig, 40); /* half, and a burst that was saved up */
    CHECK(cut > before / 500 * 40 / 100 * 45 && cut < before / 500 * 40 / 100 * 65);
    CHECK(atomic_load(&rig->slot->blocked_ns[PS_CAUSE_NAK_RATE]) > 10 * MS);
    CHECK_EQ(atomic_load(&rig->slot->culprits[0].id), 77);
    ps_publication_get_status(rig->pub, &status);
    CHECK_EQ(status.pressure_signals, 1);
    CHECK(status.rate_bytes_per_s > 0);
    (void)drive(rig, 3000); /* silence: it recovers */
    const int64_t after = drive(rig, 500);
    CHECK(after >= before / 100 * 98);
    ps_publication_get_status(rig->pub, &status);
    CHECK_EQ(status.rate_bytes_per_s, 0);
    CHECK_EQ(atomic_load(&rig->slot->cause) == PS_CAUSE_NAK_RATE, 0);
    rig_close(rig);
}

/* A sender that waits for its rate goes on at once when a signal states a higher one. */
static void a_signal_that_raises_the_rate_ends_the_wait(void)
{
    rig_t *rig = rig_open(
        &(rig_options_t){ .kind = RIG_UNICAST, .flow_control = PS_FC_PRESSURE, .advertise = 1 });
    rig_step(rig, 0);
    sm_that_speaks(rig, 0);
    rig_step(rig, 0);
    (void)drive(rig, 200);
    for (int i = 0; i < 40; i++) { /* down to the floor, by halves */
        press(rig, 77, 1 + i % 4);
        (void)drive(rig, 60);
    }
    CHECK(drive(rig, 100) < 30000);
    int32_t waits_ms = 0;
    while (drive(rig, 1) == 0) {
        waits_ms++;
    }
    CHECK(waits_ms < 100);
    for (int i = 0; i < 20 && rig_tail(rig) < rig_counter(rig, rig->limit); i++) {
        rig_offer(rig, NULL, 1376 - 32, PS_FLAG_UNFRAGMENTED);
    }
    const int64_t before = rig_counter(rig, rig->sender_position);
    press_at(rig, 77, 1, 40000000);
    rig_step(rig, 0);
    rig_step(rig, MS);
    CHECK(rig_counter(rig, rig->sender_position) > before);
    rig_close(rig);
}

static void other_strategies_do_not_hear_it(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .advertise = 1 });
    ps_setup_t setup;
    ps_publication_status_t status;
    rig_step(rig, 0);
    rig_take(rig);
    CHECK_EQ(ps_wire_setup(rig->got.data, rig->got.length, &setup), PS_WIRE_OK);
    CHECK((setup.trailer.capabilities & PS_CAP_PRESSURE) == 0);
    rig_connect(rig);
    press(rig, 77, 4);
    rig_step(rig, 0);
    ps_publication_get_status(rig->pub, &status);
    CHECK_EQ(status.pressure_signals, 0);
    CHECK_EQ(status.rate_bytes_per_s, 0);
    rig_close(rig);
}

static void a_rate_in_bytes_is_kept(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .rate_bytes_per_s = 1000000 });
    rig_connect(rig);
    (void)drive(rig, 100);
    const int64_t sent = drive(rig, 2000);
    CHECK(sent >= 1980000 && sent <= 2000000 + 28000); /* PADs are not on the wire */
    CHECK(atomic_load(&rig->slot->blocked_ns[PS_CAUSE_RATE_LIMIT]) > S / 4);
    rig_close(rig);
}

static void a_rate_in_messages_is_kept(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .rate_messages_per_s = 500 });
    rig_connect(rig);
    (void)drive(rig, 100);
    const int64_t sent = drive(rig, 2000);
    CHECK(sent / 1376 >= 990 && sent / 1376 <= 1020); /* PADs are no messages */
    rig_close(rig);
}

/* IPC: the fill is read from the reader's position, no frame is sent. */
static void ipc_reads_the_fill(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC, .flow_control = PS_FC_PRESSURE });
    const int32_t reader = rig_make_counter(rig, 0);
    const ps_subscriber_params_t params = {
        .position_counter_id = reader, .slot = 0, .client_slot = -1, .tether = 1, .rejoin = 1
    };
    ps_publication_status_t status;
    CHECK_EQ(ps_publication_add_subscriber(rig->driver, rig->pub, &params), PS_OK);
    rig_step(rig, 0);
    int64_t most = 0;
    for (int32_t i = 0; i < 3000; i++) {
        while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
            rig_offer(rig, NULL, 32, PS_FLAG_UNFRAGMENTED);
        }
        const int64_t position = ps_counter_get(rig->cnc, reader);
        const int64_t tail = rig_tail(rig);
        const int64_t next = position + 512; /* 512 KB/s */
        ps_counter_set(rig->cnc, reader, (next < tail ? next : tail) & ~(int64_t)63);
        rig_dirty(rig);
        rig_step(rig, MS);
        most = i > 2000 && tail - position > most ? tail - position : most;
    }
    ps_publication_get_status(rig->pub, &status);
    printf("IPC: reader at 512 KB/s, producer held at %lld B/s, at most %lld B unread\n",
           (long long)status.rate_bytes_per_s, (long long)most);
    CHECK(most < RIG_TERM / 2); /* it does not live at the limit */
    CHECK(ps_counter_get(rig->cnc, reader) > 3000 * 512 / 100 * 85);
    rig_close(rig);
}

int main(void)
{
    RUN(the_frame_is_as_documented);
    RUN(bad_frames_are_refused);
    RUN(a_sender_requests_it_and_obeys);
    RUN(a_signal_that_raises_the_rate_ends_the_wait);
    RUN(other_strategies_do_not_hear_it);
    RUN(a_rate_in_bytes_is_kept);
    RUN(a_rate_in_messages_is_kept);
    RUN(ipc_reads_the_fill);
    return 0;
}
