/* SPDX-License-Identifier: Apache-2.0
 *
 * make_corpus.c: writes the kept corpora anew from the golden frames (make -C tests/fuzz corpus).
 * Sequence targets read records; see sequence.h.
 */
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "../native/golden.h"
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

static void write_sequence(const char *target, const char *name, const char *const *frames)
{
    uint8_t out[4096], frame[256];
    size_t length = 0;
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
        const uint32_t size = golden(frames[i], frame);
        FUZZ_CHECK(size > 0);
        length = append(out, length, frame, size);
    }
    write_file(target, name, out, length);
}

static ps_trailer_t stated(void)
{
    return (ps_trailer_t){.capabilities = 3, .daemon_id = 77, .daemon_epoch = 2, .ordinal = 1000,
                          .credit_limit = 50, .released_ordinal = 40, .fill_ppm = 5000,
                          .reason = PS_CAUSE_SLOW_SUBSCRIBER, .reason_client = 4,
                          .reason_backlog_bytes = 4096};
}

/* Frames of a log: a whole message, one of three fragments, padding. */
static void write_gather(void)
{
    static const struct { int32_t length; uint8_t flags; uint16_t type; } frames[] = {
        {37, 0xC0, 1}, {64, 0x80, 1}, {64, 0, 1}, {40, 0x40, 1}, {96, 0xC0, 0}, {32, 0xC0, 1}};
    uint8_t out[1024] = {0x87}; /* repaired, the largest arrays */
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

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    root = argv[1];
    uint8_t frame[PS_CONTROL_MAX];
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const uint32_t length = golden(GOLDEN[i].name, frame);
        write_file("wire", GOLDEN[i].name, frame, length);
    }
    const ps_trailer_t trailer = stated();
    const ps_sm_t sm = {.session_id = GOLDEN_SESSION, .stream_id = GOLDEN_STREAM, .term_id = 7,
                        .window = 32768, .receiver_id = GOLDEN_RECEIVER};
    uint32_t length = ps_wire_build_sm(frame, &sm, &trailer);
    write_file("wire", "sm_trailer", frame, length);
    write_file("trailer", "sm", frame + PS_SM_BYTES, length - PS_SM_BYTES);
    const ps_setup_t setup = {.session_id = GOLDEN_SESSION, .stream_id = GOLDEN_STREAM,
                              .initial_term_id = 7, .active_term_id = 7, .term_length = 65536,
                              .mtu = 1408};
    length = ps_wire_build_setup(frame, &setup, &trailer);
    write_file("wire", "setup_trailer", frame, length);
    write_file("trailer", "setup", frame + PS_SETUP_BYTES, length - PS_SETUP_BYTES);
    write_gather();
    static const char *const whole[] = {
        "setup", "+1", "data_hello", "data_33", "data_two", "!0", "heartbeat", "+1000",
        "rttm_request", "pad", "+2500", "eos", "!0", "+30000", NULL};
    static const char *const loss[] = {"setup", "+1", "data_hello", "data_two", "+1", "heartbeat",
                                       "+10", "data_33", "!0", "eos", "+2000", NULL};
    static const char *const silence[] = {"setup", "+1", "data_hello", "+32767", "+32767", "+32767",
                                          "+32767", "setup", NULL};
    write_sequence("receiver", "whole", whole);
    write_sequence("receiver", "loss", loss);
    write_sequence("receiver", "silence", silence);
    static const char *const session[] = {"sm", "+1", "!20", "+1", "nak", "sm_tag", "rttm_request",
                                          "+200", "sm_setup", "err", "rsp_setup", "sm_join",
                                          "!2000",
                                          "+1000", "sm_eos", "+32767", "+32767", NULL};
    static const char *const naks[] = {"sm", "+1", "!20", "nak", "nak", "+1", "nak", "+200", "nak",
                                       "sm", "!2000", "nak", NULL};
    write_sequence("sender_control", "session", session);
    write_sequence("sender_control", "naks", naks);
    return 0;
}
