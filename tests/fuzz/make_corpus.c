/* SPDX-License-Identifier: Apache-2.0
 *
 * make_corpus.c: writes the kept corpora anew from the golden frames (make -C tests/fuzz corpus).
 * Sequence targets read records; see sequence.h.
 */
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "../native/golden.h"
#include "ps_cause.h"
#include "ps_frame.h"
#include "ps_wire_nak_list.h"
#include "ps_wire_pressure.h"
#include "ps_wire_fields.h"

static const char *root;

static void write_file(const char *target, const char *name, const uint8_t *data, size_t length)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", root, target);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, length, file) != length || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static size_t append(uint8_t *out, size_t at, const uint8_t *frame, uint32_t length)
{
    ps_put_u16(out + at, (uint16_t)length);
    memcpy(out + at + 2, frame, length);
    return at + 2 + length;
}

static uint32_t pressure(const char *digit, uint8_t *out)
{
    const int32_t level = *digit - '0';
    const ps_pressure_t stated = { .session_id = GOLDEN_SESSION,
                                   .stream_id = GOLDEN_STREAM,
                                   .receiver_id = GOLDEN_RECEIVER,
                                   .level = level,
                                   .fill_ppm = (uint32_t)level * 250000,
                                   .rtt_ns = 20000000,
                                   .client_id = 4,
                                   .backlog_bytes = 8192 };
    return ps_wire_build_pressure(out, &stated);
}

/* One range more than a list holds. */
static uint32_t nak_list_too_long(uint8_t *out)
{
    const ps_nak_list_t list = { .count = PS_NAK_LIST_MAX };
    const uint32_t length = ps_wire_build_nak_list(out, &list);
    const int32_t longer = (int32_t)length + PS_NAK_RANGE_BYTES;
    memset(out + length, 0, PS_NAK_RANGE_BYTES);
    memcpy(out, &longer, sizeof longer);
    return (uint32_t)longer;
}

static uint32_t nak_list(uint8_t *out)
{
    ps_nak_list_t list = { .session_id = GOLDEN_SESSION, .stream_id = GOLDEN_STREAM, .count = 5 };
    for (int32_t i = 0; i < list.count; i++) {
        list.ranges[i].term_id = GOLDEN_TERM;
        list.ranges[i].term_offset = 128 * i;
        list.ranges[i].length = 64;
    }
    return ps_wire_build_nak_list(out, &list);
}

/* A receiver of ours, or one that gets behind by a window. */
static uint32_t sm_of_ours(uint8_t *out)
{
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM,
                         .window = 32768,
                         .receiver_id = GOLDEN_RECEIVER };
    const ps_trailer_t trailer = { .capabilities =
                                       PS_CAP_PENSTOCK | PS_CAP_PRESSURE | PS_CAP_NAK_LIST,
                                   .daemon_id = 77,
                                   .daemon_epoch = 2,
                                   .ordinal = -1,
                                   .credit_limit = -1,
                                   .released_ordinal = -1,
                                   .congestion_window = 20000,
                                   .pacing_rate = 50000 };
    return ps_wire_build_sm(out, &sm, &trailer);
}

/* A golden frame, or one of our extensions. */
static uint32_t frame_of(const char *name, uint8_t *out)
{
    if (strncmp(name, "pressure", 8) == 0) {
        return pressure(name + 8, out);
    }
    return strcmp(name, "nak_list") == 0  ? nak_list(out)
           : strcmp(name, "sm_ours") == 0 ? sm_of_ours(out)
                                          : golden(name, out);
}

/* kind: the byte in front of a sender's sequence; -1: none. */
static void write_sequence(const char *target, const char *name, int kind,
                           const char *const *frames)
{
    uint8_t out[4096], frame[PS_CONTROL_MAX > 256 ? PS_CONTROL_MAX : 256];
    size_t length = 0;
    if (kind >= 0) {
        out[length++] = (uint8_t)kind;
    }
    for (size_t i = 0; frames[i] != NULL; i++) {
        if (frames[i][0] == '+') { /* time passes, in units of 100 us */
            ps_put_u16(out + length, (uint16_t)(0x8000U | strtoul(frames[i] + 1, NULL, 10)));
            length += 2;
            continue;
        }
        if (frames[i][0] == '!') { /* the application's turn, with a length */
            ps_put_u16(out + length, (uint16_t)(0x4000U | strtoul(frames[i] + 1, NULL, 10)));
            length += 2;
            continue;
        }
        const uint32_t size = frame_of(frames[i], frame);
        FUZZ_CHECK(size > 0);
        length = append(out, length, frame, size);
    }
    write_file(target, name, out, length);
}

static ps_trailer_t stated(void)
{
    return (ps_trailer_t){ .capabilities = 3,
                           .daemon_id = 77,
                           .daemon_epoch = 2,
                           .ordinal = 1000,
                           .credit_limit = 50,
                           .released_ordinal = 40,
                           .fill_ppm = 5000,
                           .reason = PS_CAUSE_SLOW_SUBSCRIBER,
                           .reason_client = 4,
                           .reason_backlog_bytes = 4096,
                           .congestion_window = 20000,
                           .pacing_rate = 50000,
                           .rtt_ns = 20000000,
                           .flow_control = PS_WIRE_FC_TAGGED,
                           .group_tag = 5 };
}

/* Frames of a log: a whole message, one of three fragments, padding. */
static void write_gather(void)
{
    static const struct {
        int32_t length;
        uint8_t flags;
        uint16_t type;
    } frames[] = { { 37, 0xC0, 1 }, { 64, 0x80, 1 }, { 64, 0, 1 },
                   { 40, 0x40, 1 }, { 96, 0xC0, 0 }, { 32, 0xC0, 1 } };
    uint8_t out[1024] = { 0x87 }; /* repaired, the largest arrays */
    size_t length = 1;
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        memcpy(out + length, &frames[i].length, sizeof frames[i].length);
        out[length + 5] = frames[i].flags;
        memcpy(out + length + 6, &frames[i].type, sizeof frames[i].type);
        length += ((size_t)frames[i].length + 31) / 32 * 32;
    }
    write_file("gather", "mixed", out, length);
    out[0] = 0xC8; /* at the end of a term, small arrays */
    write_file("gather", "small", out, length);
    out[0] = 0x07; /* as they are */
    write_file("gather", "raw", out, length);
}

/* Commands of an Aeron client: whole ones, one without a correlation id, padding, a hole. */
static void write_cnc(void)
{
    static const struct {
        int32_t length, type;
        int64_t correlation_id;
    } commands[] = { { 68, 1, 17 }, { 24, 0x0B, -1 }, { 52, 4, 18 }, { 11, 99, 0 },
                     { 16, -1, 0 }, { 0, 0, 0 },      { 32, 1, 19 } };
    uint8_t out[1024] = { 0 };
    size_t length = 16;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const int64_t ids[2] = { 5, commands[i].correlation_id };
        memcpy(out + length, &commands[i], 8);
        if (commands[i].length >= 24) {
            memcpy(out + length + 8, ids, sizeof ids);
        }
        length += commands[i].length > 0 ? ((size_t)commands[i].length + 7) / 8 * 8 : 8;
    }
    write_file("cnc", "commands", out, length);
    int64_t cursors[2] = { (1 << 20) - 64, (1 << 20) - 24 }; /* short of the ends of both buffers */
    memcpy(out, cursors, sizeof cursors);
    write_file("cnc", "at_the_end", out, length);
    cursors[0] = INT64_MAX;
    cursors[1] = -7;
    memcpy(out, cursors, sizeof cursors);
    write_file("cnc", "hostile_cursors", out, length);
}

/* Three datagrams that the kernel has joined, the last of them shorter. */
static void write_run(void)
{
    static const int32_t lengths[] = { 64, 40, 33, 128, 60, 32 };
    uint8_t out[1024] = { 0 };
    int32_t at = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const ps_frame_t frame = { .frame_length = lengths[i],
                                   .flags = 0xC0,
                                   .type = 1,
                                   .term_offset = at,
                                   .session_id = GOLDEN_SESSION,
                                   .stream_id = GOLDEN_STREAM,
                                   .term_id = GOLDEN_TERM };
        memcpy(out + at, &frame, sizeof frame);
        at += (lengths[i] + 31) / 32 * 32;
    }
    write_file("wire", "run", out, (size_t)at);
}

static const char *const whole[] = { "setup", "+1",        "data_hello", "data_33",      "data_two",
                                     "!0",    "heartbeat", "+1000",      "rttm_request", "pad",
                                     "+2500", "eos",       "!0",         "+30000",       NULL };
static const char *const loss[] = { "setup", "+1",        "data_hello", "data_two",
                                    "+1",    "heartbeat", "+10",        "data_33",
                                    "!0",    "eos",       "+2000",      NULL };
static const char *const silence[] = { "setup",  "+1",     "data_hello", "+32767", "+32767",
                                       "+32767", "+32767", "setup",      NULL };
static const char *const session[] = { "sm",        "+1",           "!20",   "+1",       "nak",
                                       "sm_tag",    "rttm_request", "+200",  "sm_setup", "err",
                                       "rsp_setup", "sm_join",      "!2000", "+1000",    "sm_eos",
                                       "+32767",    "+32767",       NULL };
static const char *const naks[] = { "sm",   "+1",  "!20", "nak",   "nak", "+1", "nak",
                                    "+200", "nak", "sm",  "!2000", "nak", NULL };
static const char *const ours[] = { "sm_ours",   "+1",        "!20",    "+1",       "nak_list",
                                    "+1",        "pressure1", "+500",   "!900",     "pressure4",
                                    "pressure2", "+600",      "!900",   "nak_list", "sm_ours",
                                    "pressure3", "+5000",     "!900",   "sm",       "+20000",
                                    "!20",       "sm_eos",    "+32767", NULL };
static const char *const group[] = { "sm_tag",  "+1",     "!20", "sm",   "+1",
                                     "sm_join", "+100",   "err", "!400", "sm_tag",
                                     "+32767",  "+32767", "!20", NULL };
static const char *const kinds[] = { "max", "unicast", "min", "tagged", "nak", "custom" };

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    root = argv[1];
    uint8_t frame[PS_CONTROL_MAX + PS_NAK_RANGE_BYTES];
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const uint32_t length = golden(GOLDEN[i].name, frame);
        write_file("wire", GOLDEN[i].name, frame, length);
    }
    const ps_trailer_t trailer = stated();
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = 7,
                         .window = 32768,
                         .receiver_id = GOLDEN_RECEIVER };
    uint32_t length = ps_wire_build_sm(frame, &sm, &trailer);
    write_file("wire", "sm_trailer", frame, length);
    write_file("trailer", "sm", frame + PS_SM_BYTES, length - PS_SM_BYTES);
    const ps_setup_t setup = { .session_id = GOLDEN_SESSION,
                               .stream_id = GOLDEN_STREAM,
                               .initial_term_id = 7,
                               .active_term_id = 7,
                               .term_length = 65536,
                               .mtu = 1408 };
    length = ps_wire_build_setup(frame, &setup, &trailer);
    write_file("wire", "setup_trailer", frame, length);
    write_file("trailer", "setup", frame + PS_SETUP_BYTES, length - PS_SETUP_BYTES);
    write_gather();
    write_cnc();
    write_run();
    write_sequence("receiver", "whole", -1, whole);
    write_sequence("receiver", "loss", -1, loss);
    write_sequence("receiver", "silence", -1, silence);
    char name[32];
    write_sequence("sender_dispatch", "session", 0, session);
    write_sequence("sender_dispatch", "naks", 1, naks);
    for (int kind = 0; kind < 6; kind++) {
        (void)snprintf(name, sizeof name, "ours_%s", kinds[kind]);
        write_sequence("sender_dispatch", name, kind | 32, ours);
        (void)snprintf(name, sizeof name, "group_%s", kinds[kind]);
        write_sequence("sender_dispatch", name, kind | 8, group);
    }
    write_sequence("sender_dispatch", "ours_paced", 4 | 16 | 32, ours);
    length = pressure("3", frame);
    write_file("wire", "pressure", frame, length);
    length = nak_list(frame);
    write_file("wire", "nak_list", frame, length);
    length = nak_list_too_long(frame);
    write_file("wire", "nak_list_too_long", frame, length);
    return 0;
}
