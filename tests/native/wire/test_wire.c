/* SPDX-License-Identifier: Apache-2.0
 * Frames: the worked session byte for byte, each rule of the tables, and trailers. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "golden.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_wire.h"
#include "ps_wire_fields.h"

static uint16_t type_of(const uint8_t *frame, uint32_t length, int expected)
{
    uint16_t type = 0;
    const int fault = ps_wire_check(frame, length, &type);
    if (fault != expected) {
        fprintf(stderr, "fault %d, expected %d\n", fault, expected);
    }
    CHECK(fault == expected);
    return type;
}

static bool equals_golden(const uint8_t *built, uint32_t length, const char *name)
{
    uint8_t frame[256];
    const uint32_t expected = golden(name, frame);
    return expected == length && memcmp(built, frame, length) == 0;
}

/* ---- the worked session ---------------------------------------------------------------------- */

static void test_every_golden_frame_passes(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t frame[256];
        const uint32_t length = golden(GOLDEN[i].name, frame);
        CHECK(length > 0);
        CHECK(type_of(frame, length, PS_WIRE_OK) <= PS_TYPE_RSP_SETUP);
    }
}

static void test_setup_is_read_and_built(void)
{
    uint8_t frame[256], built[PS_CONTROL_MAX];
    ps_setup_t setup;
    const uint32_t length = golden("setup", frame);
    CHECK(type_of(frame, length, PS_WIRE_OK) == PS_TYPE_SETUP);
    CHECK(ps_wire_setup(frame, length, &setup) == PS_WIRE_OK);
    CHECK(setup.term_offset == 0 && setup.session_id == GOLDEN_SESSION);
    CHECK(setup.stream_id == GOLDEN_STREAM && setup.initial_term_id == 7);
    CHECK(setup.active_term_id == 7 && setup.term_length == 65536 && setup.mtu == 1408);
    CHECK(setup.ttl == 0 && setup.flags == 0 && setup.trailer.capabilities == 0);
    CHECK(setup.trailer.ordinal == -1);
    CHECK(equals_golden(built, ps_wire_build_setup(built, &setup, NULL), "setup"));
}

static void test_status_messages_are_read_and_built(void)
{
    static const char *const names[] = { "sm", "sm_eos", "sm_setup", "sm_join", "sm_tag" };
    static const uint8_t flags[] = { 0, PS_SM_EOS, PS_SM_SETUP, PS_SM_SETUP, 0 };
    for (size_t i = 0; i < 5; i++) {
        uint8_t frame[256], built[PS_CONTROL_MAX];
        ps_sm_t sm;
        const uint32_t length = golden(names[i], frame);
        CHECK(type_of(frame, length, PS_WIRE_OK) == PS_TYPE_SM);
        CHECK(ps_wire_sm(frame, length, &sm) == PS_WIRE_OK);
        CHECK(sm.flags == flags[i] && sm.receiver_id == GOLDEN_RECEIVER);
        CHECK(sm.window == (flags[i] == PS_SM_SETUP ? 0 : 32768));
        CHECK(sm.has_group_tag == (i == 4) && sm.group_tag == (i == 4 ? 101 : 0));
        CHECK(sm.session_id == (i == 3 ? 0 : GOLDEN_SESSION));
        CHECK(equals_golden(built, ps_wire_build_sm(built, &sm, NULL), names[i]));
    }
}

static void test_nak_rttm_err_and_response_setup(void)
{
    uint8_t frame[256], built[PS_CONTROL_MAX];
    ps_nak_t nak;
    CHECK(ps_wire_nak(frame, golden("nak", frame), &nak) == PS_WIRE_OK);
    CHECK(nak.term_id == 7 && nak.term_offset == 64 && nak.length == 96);
    CHECK(equals_golden(built, ps_wire_build_nak(built, &nak), "nak"));
    ps_rttm_t rttm;
    CHECK(ps_wire_rttm(frame, golden("rttm_request", frame), &rttm) == PS_WIRE_OK);
    CHECK(rttm.flags == PS_RTTM_REPLY && rttm.echo_ns == 123456789);
    CHECK(rttm.reception_delta_ns == 0 && rttm.receiver_id == GOLDEN_RECEIVER);
    CHECK(equals_golden(built, ps_wire_build_rttm(built, &rttm), "rttm_request"));
    rttm.flags = 0;
    CHECK(equals_golden(built, ps_wire_build_rttm(built, &rttm), "rttm_reply"));
    ps_err_t err;
    CHECK(ps_wire_err(frame, golden("err", frame), &err) == PS_WIRE_OK);
    CHECK(err.code == 13 && err.text_length == 4 && memcmp(err.text, "nope", 4) == 0);
    CHECK(err.receiver_id == GOLDEN_RECEIVER && !err.has_group_tag);
    CHECK(equals_golden(built, ps_wire_build_err(built, &err), "err"));
    ps_rsp_setup_t response;
    CHECK(ps_wire_rsp_setup(frame, golden("rsp_setup", frame), &response) == PS_WIRE_OK);
    CHECK(response.session_id == GOLDEN_SESSION && response.response_session_id == 0x55667788);
}

static void test_data_heartbeats_and_padding(void)
{
    uint8_t frame[256], built[PS_CONTROL_MAX];
    ps_data_t data;
    int32_t span, messages;
    uint32_t length = golden("data_two", frame);
    CHECK(ps_wire_data(frame, length, &data) == PS_WIRE_OK);
    CHECK(!data.is_heartbeat && data.term_offset == 160 && data.term_id == 7);
    CHECK(ps_wire_chain(frame, length, 65536, &span, &messages) == PS_WIRE_OK);
    CHECK(span == 128 && messages == 2);
    length = golden("pad", frame);
    CHECK(ps_wire_data(frame, length, &data) == PS_WIRE_OK && data.type == PS_TYPE_PAD);
    CHECK(ps_wire_chain(frame, length, 65536, &span, &messages) == PS_WIRE_OK);
    CHECK(span == 64 && messages == 0);
    length = golden("heartbeat", frame);
    CHECK(ps_wire_data(frame, length, &data) == PS_WIRE_OK && data.is_heartbeat);
    CHECK(equals_golden(
        built,
        ps_wire_build_heartbeat(built, GOLDEN_SESSION, GOLDEN_STREAM, 7, 288, PS_FLAG_UNFRAGMENTED),
        "heartbeat"));
    CHECK(equals_golden(built,
                        ps_wire_build_heartbeat(built, GOLDEN_SESSION, GOLDEN_STREAM, 7, 288,
                                                PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS),
                        "eos"));
    length = golden("eos", frame);
    CHECK(ps_wire_data(frame, length, &data) == PS_WIRE_OK && (data.flags & PS_FLAG_EOS) != 0);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void test_first_check_by_its_steps(void)
{
    uint8_t frame[256];
    const uint32_t length = golden("sm", frame);
    (void)type_of(frame, 7, PS_WIRE_SHORT);
    (void)type_of(frame, 0, PS_WIRE_SHORT);
    frame[3] = 0x80;
    (void)type_of(frame, length, PS_WIRE_NEGATIVE);
    frame[3] = 0;
    frame[4] = 1;
    (void)type_of(frame, length, PS_WIRE_BAD_VERSION);
    frame[4] = 0;
    frame[0] = 37; /* says more than the datagram has */
    (void)type_of(frame, length, PS_WIRE_TRUNCATED);
    (void)type_of(frame, length + 1, PS_WIRE_OK);
    for (int type = 0; type < 65536; type++) {
        frame[0] = 8;
        ps_put_u16(frame + 6, (uint16_t)type);
        uint16_t seen;
        const int fault = ps_wire_check(frame, 64, &seen);
        const bool known = type <= PS_TYPE_RES || type == PS_TYPE_RSP_SETUP;
        CHECK(fault == (known ? PS_WIRE_OK : PS_WIRE_UNKNOWN_TYPE) && seen == type);
    }
}

static void test_least_lengths(void)
{
    static const struct {
        uint16_t type;
        uint32_t least;
    } rules[] = {
        { PS_TYPE_NAK, 28 },  { PS_TYPE_SM, 36 },  { PS_TYPE_ERR, 40 },       { PS_TYPE_SETUP, 40 },
        { PS_TYPE_RTTM, 40 }, { PS_TYPE_RES, 22 }, { PS_TYPE_RSP_SETUP, 20 },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        uint8_t frame[64] = { 8 };
        ps_put_u16(frame + 6, rules[i].type);
        (void)type_of(frame, rules[i].least - 1, PS_WIRE_SHORT);
        (void)type_of(frame, rules[i].least, PS_WIRE_OK);
    }
    uint8_t data[128] = { 0 };
    ps_put_u16(data + 6, PS_TYPE_DATA);
    (void)type_of(data, 31, PS_WIRE_SHORT);
    (void)type_of(data, 33, PS_WIRE_UNALIGNED);
    (void)type_of(data, 64, PS_WIRE_OK);
    ps_put_i32(data, 1 << 30); /* a PAD or DATA may say what it likes here: the chain decides */
    (void)type_of(data, 64, PS_WIRE_OK);
}

static void test_extension_frames_need_our_magic(void)
{
    uint8_t frame[32] = { 24 };
    ps_put_u16(frame + 6, PS_TYPE_EXT);
    (void)type_of(frame, 24, PS_WIRE_UNKNOWN_TYPE);
    ps_put_u32(frame + 8, PS_EXT_MAGIC);
    CHECK(type_of(frame, 24, PS_WIRE_OK) == PS_TYPE_EXT);
    (void)type_of(frame, 23, PS_WIRE_UNKNOWN_TYPE);
    frame[0] = 25;
    (void)type_of(frame, 24, PS_WIRE_TRUNCATED);
}

static int setup_with(size_t offset, int32_t value)
{
    uint8_t frame[256];
    ps_setup_t setup;
    const uint32_t length = golden("setup", frame);
    ps_put_i32(frame + offset, value);
    return ps_wire_setup(frame, length, &setup);
}

static void test_setup_rules(void)
{
    CHECK(setup_with(28, 65536) == PS_WIRE_OK && setup_with(28, 1 << 30) == PS_WIRE_OK);
    CHECK(setup_with(28, 32768) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(28, 65536 + 32) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(28, INT32_MIN) == PS_WIRE_BAD_FIELD && setup_with(28, 0) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(8, 65504) == PS_WIRE_OK && setup_with(8, 65536) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(8, 31) == PS_WIRE_BAD_FIELD && setup_with(8, -32) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(32, 32) == PS_WIRE_OK && setup_with(32, 65504) == PS_WIRE_OK);
    CHECK(setup_with(32, 0) == PS_WIRE_BAD_FIELD && setup_with(32, 65536) == PS_WIRE_BAD_FIELD);
    CHECK(setup_with(32, 1409) == PS_WIRE_BAD_FIELD && setup_with(32, -64) == PS_WIRE_BAD_FIELD);
}

static int sm_with(size_t offset, int32_t value)
{
    uint8_t frame[256];
    ps_sm_t sm;
    const uint32_t length = golden("sm", frame);
    ps_put_i32(frame + offset, value);
    return ps_wire_sm(frame, length, &sm);
}

static int nak_with(int32_t offset, int32_t nak_length)
{
    uint8_t frame[256];
    ps_nak_t nak;
    const uint32_t length = golden("nak", frame);
    ps_put_i32(frame + 20, offset);
    ps_put_i32(frame + 24, nak_length);
    return ps_wire_nak(frame, length, &nak);
}

static void test_status_and_nak_rules(void)
{
    CHECK(sm_with(20, 32) == PS_WIRE_OK && sm_with(20, 33) == PS_WIRE_BAD_FIELD);
    CHECK(sm_with(20, -32) == PS_WIRE_BAD_FIELD &&
          sm_with(20, (1 << 30) + 32) == PS_WIRE_BAD_FIELD);
    CHECK(sm_with(24, 0) == PS_WIRE_OK && sm_with(24, 1 << 29) == PS_WIRE_OK);
    CHECK(sm_with(24, -1) == PS_WIRE_BAD_FIELD && sm_with(24, (1 << 29) + 1) == PS_WIRE_BAD_FIELD);
    CHECK(nak_with(0, 0) == PS_WIRE_OK && nak_with(0, 1 << 30) == PS_WIRE_OK);
    CHECK(nak_with(32, 1 << 30) == PS_WIRE_BAD_FIELD && nak_with(0, -1) == PS_WIRE_BAD_FIELD);
    CHECK(nak_with(-32, 32) == PS_WIRE_BAD_FIELD && nak_with(8, 32) == PS_WIRE_BAD_FIELD);
    CHECK(nak_with(32, INT32_MAX) == PS_WIRE_BAD_FIELD);
}

static void test_error_text_stays_inside(void)
{
    uint8_t frame[256];
    ps_err_t err;
    const uint32_t length = golden("err", frame);
    ps_put_i32(frame + 36, 5);
    CHECK(ps_wire_err(frame, length, &err) == PS_WIRE_BAD_FIELD);
    ps_put_i32(frame + 36, -1);
    CHECK(ps_wire_err(frame, length, &err) == PS_WIRE_BAD_FIELD);
    ps_put_i32(frame + 36, 3);
    CHECK(ps_wire_err(frame, length, &err) == PS_WIRE_OK && err.text_length == 3);
    uint8_t built[PS_CONTROL_MAX];
    uint8_t text[2000];
    memset(text, 'x', sizeof text);
    err.text = text;
    err.text_length = sizeof text;
    CHECK(ps_wire_build_err(built, &err) == PS_CONTROL_MAX);
    CHECK(ps_wire_err(built, PS_CONTROL_MAX, &err) == PS_WIRE_OK);
    CHECK(err.text_length == PS_CONTROL_MAX - PS_ERR_BYTES);
}

/* The two-frame datagram with one field of its second frame changed. */
static int chain_with(size_t offset, int32_t value)
{
    uint8_t frame[256];
    int32_t span, messages;
    const uint32_t length = golden("data_two", frame);
    ps_put_i32(frame + offset, value);
    const int fault = ps_wire_chain(frame, length, 65536, &span, &messages);
    CHECK(fault == PS_WIRE_OK || (span == 0 && messages == 0));
    return fault;
}

static void test_chain_rules(void)
{
    CHECK(chain_with(64, 34) == PS_WIRE_OK && chain_with(64, 64) == PS_WIRE_OK);
    CHECK(chain_with(64, 65) == PS_WIRE_BAD_CHAIN); /* beyond the datagram, and no PAD */
    CHECK(chain_with(64, 32) == PS_WIRE_BAD_CHAIN); /* bytes left over that are no frame */
    CHECK(chain_with(64, 0) == PS_WIRE_BAD_CHAIN && chain_with(64, -34) == PS_WIRE_BAD_CHAIN);
    CHECK(chain_with(64, 31) == PS_WIRE_BAD_CHAIN);
    CHECK(chain_with(64, INT32_MAX) == PS_WIRE_BAD_CHAIN);
    CHECK(chain_with(72, 192) == PS_WIRE_BAD_CHAIN); /* not where the first one ends */
    CHECK(chain_with(76, 1) == PS_WIRE_BAD_CHAIN);   /* another session */
    CHECK(chain_with(84, 8) == PS_WIRE_BAD_CHAIN);   /* another term */
    CHECK(chain_with(68, (int32_t)0x0002c000) == PS_WIRE_BAD_CHAIN); /* a NAK in a chain */
    CHECK(chain_with(68, (int32_t)0x0001c001) == PS_WIRE_BAD_CHAIN); /* a version */
    CHECK(chain_with(8, 65536) == PS_WIRE_BAD_FIELD && chain_with(8, 161) == PS_WIRE_BAD_FIELD);
    uint8_t frame[256];
    int32_t span, messages;
    const uint32_t length = golden("data_two", frame);
    frame[70] = PS_TYPE_PAD; /* data, then padding to the end of the term */
    ps_put_i32(frame + 64, 65536 - 224);
    CHECK(ps_wire_chain(frame, length - 32, 65536, &span, &messages) == PS_WIRE_OK);
    CHECK(span == 65536 - 160 && messages == 1);
    ps_put_i32(frame + 64, 65536 - 223); /* one byte past it */
    CHECK(ps_wire_chain(frame, length - 32, 65536, &span, &messages) == PS_WIRE_BAD_CHAIN);
    ps_put_i32(frame + 64, INT32_MAX);
    CHECK(ps_wire_chain(frame, length - 32, 1 << 30, &span, &messages) == PS_WIRE_BAD_CHAIN);
}

/* ---- trailers -------------------------------------------------------------------------------- */

static const ps_trailer_t STATED = {
    .capabilities = PS_CAP_PENSTOCK | PS_CAP_ORDINALS,
    .daemon_id = UINT64_C(0xfedcba9876543210),
    .daemon_epoch = 3,
    .ordinal = 1234567890123,
    .credit_limit = 55,
    .released_ordinal = 44,
    .fill_ppm = 250000,
    .reason = PS_CAUSE_SLOW_SUBSCRIBER,
    .reason_client = 9,
    .reason_backlog_bytes = 1 << 20,
    .client_name = "slow reader",
    .host = "b.example",
    .flow_control = PS_WIRE_FC_TAGGED,
    .group_tag = -77,
    .policy = PS_WIRE_POLICY_COUNT - 1,
    .depth_bytes = INT64_C(1) << 33,
    .relay_path = { .count = 2, .ids = { UINT64_C(0xfedcba9876543210), 5 } },
};

static uint32_t build_sm(uint8_t *out)
{
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = 7,
                         .window = 32768,
                         .receiver_id = GOLDEN_RECEIVER };
    return ps_wire_build_sm(out, &sm, &STATED);
}

static void test_trailers_come_back(void)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_sm_t sm;
    uint32_t length = build_sm(out);
    CHECK(memcmp(out + PS_SM_BYTES, "PSTK\1\0", 6) == 0 && ps_get_i32(out) == PS_SM_BYTES);
    CHECK(ps_wire_sm(out, length, &sm) == PS_WIRE_OK);
    CHECK(sm.trailer.capabilities == STATED.capabilities);
    CHECK(sm.trailer.daemon_id == STATED.daemon_id && sm.trailer.daemon_epoch == 3);
    CHECK(sm.trailer.credit_limit == 55 && sm.trailer.released_ordinal == 44);
    CHECK(sm.trailer.fill_ppm == 250000 && sm.trailer.reason == PS_CAUSE_SLOW_SUBSCRIBER);
    CHECK(sm.trailer.reason_client == 9 && sm.trailer.reason_backlog_bytes == 1 << 20);
    CHECK(strcmp(sm.trailer.client_name, "slow reader") == 0);
    CHECK(strcmp(sm.trailer.host, "b.example") == 0);
    CHECK(sm.trailer.ordinal == -1); /* a SETUP's word, not an SM's */
    const ps_setup_t setup = { .session_id = 1, .stream_id = 2, .term_length = 65536, .mtu = 1408 };
    ps_setup_t read;
    length = ps_wire_build_setup(out, &setup, &STATED);
    CHECK(ps_wire_setup(out, length, &read) == PS_WIRE_OK);
    CHECK(read.trailer.ordinal == STATED.ordinal && read.trailer.credit_limit == -1);
    CHECK(read.trailer.flow_control == PS_FC_TAGGED && read.trailer.group_tag == -77);
    CHECK(sm.trailer.flow_control == PS_WIRE_FC_UNKNOWN); /* a sender's word */
    CHECK(memcmp(&read.trailer.relay_path, &STATED.relay_path, sizeof STATED.relay_path) == 0);
    CHECK_EQ(sm.trailer.relay_path.count, 0); /* too */
}

/* Names of full length, every field: what docs/wire-extensions.md counts, and within the bound. */
static void test_the_largest_trailers_fit(void)
{
    ps_trailer_t largest = STATED;
    uint8_t out[PS_CONTROL_MAX];
    largest.congestion_window = largest.priority = largest.pacing_rate = largest.rtt_ns =
        largest.retention_ns = 1;
    largest.credit_messages = largest.credit_flags = largest.credit_weight = 1;
    memset(largest.client_name, 'c', PS_NAME_MAX);
    memset(largest.host, 'h', PS_NAME_MAX);
    CHECK_EQ(ps_trailer_write_sm(out, &largest), 210);
    largest.relay_path.count = PS_RELAYS_MAX;
    CHECK_EQ(ps_trailer_write_setup(out, &largest), 188);
    ps_trailer_t read;
    ps_trailer_read(out, ps_trailer_write_sm(out, &largest), &read);
    CHECK(memcmp(read.client_name, largest.client_name, sizeof read.client_name) == 0);
    CHECK(memcmp(read.host, largest.host, sizeof read.host) == 0);
}

static void test_names_are_cut_between_characters(void)
{
    char name[PS_NAME_MAX + 1];
    ps_name_copy(name, "short");
    CHECK(strcmp(name, "short") == 0);
    ps_name_copy(name, "");
    CHECK(name[0] == '\0');
    for (size_t before = PS_NAME_MAX - 4; before <= PS_NAME_MAX; before++) {
        char text[PS_NAME_MAX + 16] = { 0 };
        memset(text, 'a', before);
        strcat(text, "\xf0\x9f\x90\xa2z"); /* four bytes, one character */
        ps_name_copy(name, text);
        CHECK_EQ(strlen(name), before + 4 <= PS_NAME_MAX ? before + 4 : before);
        CHECK(memcmp(name, text, strlen(name)) == 0);
    }
}

/* Lengths that lie state no name, and spoil nothing else; control characters are not passed on. */
static void test_names_of_strangers(void)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_trailer_t read;
    ps_trailer_t stated = STATED;
    snprintf(stated.client_name, sizeof stated.client_name, "a\x1b[2Jb\x7f");
    uint32_t length = ps_trailer_write_sm(out, &stated);
    ps_trailer_read(out, length, &read);
    CHECK(strcmp(read.client_name, "a?[2Jb?") == 0);
    uint8_t *names = NULL;
    for (uint32_t at = PS_TRAILER_HEADER_BYTES; at < length; at += 4u + ps_get_u16(out + at + 2)) {
        names = ps_get_u16(out + at) == PS_TLV_CLIENT_NAME ? out + at + 4 : names;
    }
    CHECK(names != NULL);
    for (int i = 0; i < 2; i++) {
        const uint8_t before = names[i];
        for (int value = 0; value < 256; value++) {
            names[i] = (uint8_t)value;
            ps_trailer_read(out, length, &read);
            CHECK_EQ(read.reason_client, 9);
            CHECK(strlen(read.client_name) <= PS_NAME_MAX && strlen(read.host) <= PS_NAME_MAX);
            CHECK(value <= before || read.client_name[0] == '\0' || i == 0);
        }
        names[i] = before;
    }
}

/* Whatever a sender states comes back; with any other number of bytes cut off, or any bytes in its
 * place, it is one that we know or none. */
static void test_a_strategy_comes_back_or_is_unknown(void)
{
    ps_random_t random;
    ps_random_seed(&random, 9);
    for (int32_t round = 0; round < 20000; round++) {
        uint8_t out[PS_TRAILER_MAX];
        ps_trailer_t stated, read;
        ps_trailer_clear(&stated);
        stated.capabilities = PS_CAP_PENSTOCK;
        stated.flow_control = (int32_t)ps_random_below(&random, PS_WIRE_FC_COUNT + 1) - 1;
        stated.group_tag = (int64_t)ps_random_next(&random);
        const uint32_t length = ps_trailer_write_setup(out, &stated);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.flow_control, stated.flow_control);
        CHECK_EQ(read.group_tag, stated.flow_control == PS_FC_TAGGED ? stated.group_tag : 0);
        for (uint32_t at = PS_TRAILER_HEADER_BYTES; at < length; at++) {
            if (ps_random_below(&random, 8) == 0) {
                out[at] = (uint8_t)ps_random_next(&random);
            }
        }
        ps_trailer_read(out, length, &read);
        CHECK(read.flow_control >= PS_WIRE_FC_UNKNOWN && read.flow_control < PS_WIRE_FC_COUNT);
        CHECK(read.flow_control == PS_FC_TAGGED || read.group_tag == 0);
    }
}

/* Paths of every length come back. An id that is cut does not count, nor one beyond the limit. */
static void test_a_relay_path_comes_back_or_is_cut(void)
{
    uint8_t out[PS_TRAILER_MAX];
    ps_trailer_t read;
    ps_trailer_t stated = STATED;
    stated.policy = PS_WIRE_POLICY_NONE;
    for (int32_t i = 0; i < PS_RELAYS_MAX; i++) {
        stated.relay_path.ids[i] = (uint64_t)i + 1;
    }
    for (int32_t count = 0; count <= PS_RELAYS_MAX; count++) {
        stated.relay_path.count = count;
        const uint32_t length = ps_trailer_write_setup(out, &stated);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.relay_path.count, count);
        for (int32_t i = 0; i < PS_RELAYS_MAX; i++) {
            CHECK_EQ(read.relay_path.ids[i], i < count ? (uint64_t)i + 1 : 0);
        }
    }
    const uint32_t at = 64; /* the TLV that comes last */
    CHECK_EQ(ps_get_u16(out + at), PS_TLV_RELAY_PATH);
    for (uint32_t size = 0; size <= PS_TRAILER_MAX - at - 4; size++) {
        memset(out + at + 4 + 8 * PS_RELAYS_MAX, 0xff, PS_TRAILER_MAX - at - 4 - 8 * PS_RELAYS_MAX);
        ps_put_u16(out + at + 2, (uint16_t)size);
        ps_put_u16(out + 6, (uint16_t)(at + 4 + size));
        ps_trailer_read(out, at + 4 + size, &read);
        const uint32_t whole = size / 8 < PS_RELAYS_MAX ? size / 8 : PS_RELAYS_MAX;
        CHECK_EQ(read.relay_path.count, (int32_t)whole);
        CHECK_EQ(read.capabilities, size < 8 ? 0 : STATED.capabilities);
    }
}

static void test_a_strategy_of_a_later_version_is_unknown(void)
{
    uint8_t out[PS_TRAILER_MAX];
    ps_trailer_t read;
    ps_trailer_t stated = STATED;
    stated.relay_path.count = 0;
    stated.policy = PS_WIRE_POLICY_NONE;
    const uint32_t length = ps_trailer_write_setup(out, &stated);
    uint8_t *value = out + length - 12; /* the last TLV */
    CHECK_EQ(ps_get_u16(value - 4), PS_TLV_STRATEGY);
    ps_put_u32(value, PS_WIRE_FC_COUNT);
    ps_trailer_read(out, length, &read);
    CHECK(read.flow_control == PS_WIRE_FC_UNKNOWN && read.group_tag == 0);
    CHECK_EQ(read.capabilities, STATED.capabilities);
    ps_put_u16(value - 2, 11); /* too short */
    ps_put_u16(out + 6, (uint16_t)(length - 1));
    ps_trailer_read(out, length - 1, &read);
    CHECK(read.capabilities == 0 && read.flow_control == PS_WIRE_FC_UNKNOWN);
}

static uint32_t capabilities_of(const uint8_t *frame, uint32_t length)
{
    ps_sm_t sm;
    CHECK(type_of(frame, length, PS_WIRE_OK) == PS_TYPE_SM);
    CHECK(ps_wire_sm(frame, length, &sm) == PS_WIRE_OK && sm.window == 32768);
    CHECK(sm.trailer.capabilities != 0 ||
          (sm.trailer.credit_limit == -1 && sm.trailer.fill_ppm == 0 && sm.trailer.daemon_id == 0));
    return sm.trailer.capabilities;
}

static void test_a_damaged_trailer_is_no_trailer(void)
{
    uint8_t whole[PS_CONTROL_MAX], frame[PS_CONTROL_MAX];
    const uint32_t length = build_sm(whole);
    for (uint32_t cut = PS_SM_BYTES; cut < length; cut++) {
        CHECK(capabilities_of(whole, cut) == 0);
    }
    CHECK(capabilities_of(whole, length) == STATED.capabilities);
    static const struct {
        uint32_t at;
        uint8_t value;
    } damages[] = {
        { 0, 'X' }, { 4, 0 },  { 4, 2 },     { 6, 7 },     { 6, 0xFF },
        { 7, 1 },   { 10, 3 }, { 10, 0xFF }, { 11, 0xFF },
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        memcpy(frame, whole, length);
        frame[PS_SM_BYTES + damages[i].at] = damages[i].value;
        CHECK(capabilities_of(frame, length) == 0);
    }
}

static void test_a_later_version_of_trailers_is_understood_in_part(void)
{
    uint8_t frame[PS_CONTROL_MAX];
    uint32_t length = build_sm(frame);
    uint8_t *trailer = frame + PS_SM_BYTES;
    ps_put_u16(frame + length, 999); /* an unknown TLV of 3 bytes, at the end */
    ps_put_u16(frame + length + 2, 3);
    memset(frame + length + 4, 0xEE, 3);
    length += 7;
    ps_put_u16(trailer + 6, (uint16_t)(length - PS_SM_BYTES));
    ps_sm_t sm;
    CHECK(ps_wire_sm(frame, length, &sm) == PS_WIRE_OK);
    CHECK(sm.trailer.capabilities == STATED.capabilities && sm.trailer.credit_limit == 55);
    CHECK(ps_wire_sm(frame, length + 20, &sm) == PS_WIRE_OK); /* bytes behind the trailer */
    CHECK(sm.trailer.capabilities == STATED.capabilities);
    ps_put_u32(trailer + 12, PS_CAP_ORDINALS); /* not penstock: nothing it says counts */
    CHECK(ps_wire_sm(frame, length, &sm) == PS_WIRE_OK && sm.trailer.capabilities == 0);
}

static void test_a_frame_shorter_than_its_base_has_no_trailer(void)
{
    uint8_t frame[PS_CONTROL_MAX];
    const uint32_t length = build_sm(frame);
    ps_sm_t sm;
    for (int32_t stated = 0; stated < PS_SM_BYTES; stated++) {
        ps_put_i32(frame, stated);
        CHECK(ps_wire_sm(frame, length, &sm) == PS_WIRE_OK && sm.trailer.capabilities == 0);
    }
}

int main(void)
{
    test_every_golden_frame_passes();
    test_setup_is_read_and_built();
    test_status_messages_are_read_and_built();
    test_nak_rttm_err_and_response_setup();
    test_data_heartbeats_and_padding();
    test_first_check_by_its_steps();
    test_least_lengths();
    test_extension_frames_need_our_magic();
    test_setup_rules();
    test_status_and_nak_rules();
    test_error_text_stays_inside();
    test_chain_rules();
    test_trailers_come_back();
    test_the_largest_trailers_fit();
    test_names_are_cut_between_characters();
    test_names_of_strangers();
    test_a_strategy_comes_back_or_is_unknown();
    test_a_strategy_of_a_later_version_is_unknown();
    test_a_relay_path_comes_back_or_is_cut();
    test_a_damaged_trailer_is_no_trailer();
    test_a_later_version_of_trailers_is_understood_in_part();
    test_a_frame_shorter_than_its_base_has_no_trailer();
    puts("ok");
    return 0;
}
