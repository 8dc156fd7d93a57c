/* SPDX-License-Identifier: Apache-2.0
 * test_img_hostile.c: images over a log whose frames another process has damaged. */
#include "ps_client_internal.h"
#include "stream.h"

typedef void (*damage_fn)(ps_frame_t *frame);
static void too_short(ps_frame_t *frame)
{
    atomic_store(&frame->frame_length, 31);
}
static void past_the_term(ps_frame_t *frame)
{
    atomic_store(&frame->frame_length, 65536);
}
static void enormous(ps_frame_t *frame)
{
    atomic_store(&frame->frame_length, INT32_MAX);
}
static void elsewhere(ps_frame_t *frame)
{
    frame->term_offset += 32;
}
static void of_another_term(ps_frame_t *frame)
{
    frame->term_id++;
}
static void of_unknown_type(ps_frame_t *frame)
{
    frame->type = 9;
}

static void hostile_frames_stop_the_image(void)
{
    static const damage_fn damages[] = { too_short, past_the_term,   enormous,
                                         elsewhere, of_another_term, of_unknown_type };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        stream_t stream;
        stream_open(&stream, NULL);
        ps_pub_t *pub = stream_pub(&stream);
        ps_img_t *image = stream_img(&stream);
        ps_counter_set(stream.cnc, stream.limit, 65536);
        CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
        CHECK_EQ(ps_pub_offer(pub, "y", 1, 0), 128);
        damages[i](ps_frame_at(&stream.log, 64));
        ps_message_t messages[4];
        CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), 1);
        CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), PS_E_CORRUPT);
        CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), PS_E_CORRUPT);
        CHECK_EQ(ps_img_position(image), 64);
        ps_img_close(image);
        ps_pub_close(pub);
        stream_close(&stream);
    }
}

static void random_bytes_in_the_log_never_lead_outside(void)
{
    uint64_t state = 88172645463325252u;
    for (int32_t round = 0; round < 200; round++) {
        stream_t stream;
        stream_open(&stream, NULL);
        ps_img_t *image = stream_img(&stream);
        for (int32_t at = 0; at < 65536; at += 8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            memcpy(stream.log.term[0] + at, &state, 8);
        }
        /* Let the first frames pass, so that the scan goes somewhere. */
        int32_t offset = 0;
        for (int32_t i = 0; i < 8; i++) {
            ps_frame_t *frame = ps_frame_at(&stream.log, offset);
            frame->term_offset = offset;
            frame->term_id = stream.params.initial_term_id;
            frame->type = (uint16_t)(state >> (8 + i) & 1);
            const int32_t length = 32 + (int32_t)(state >> (i * 3) & 0x1fff);
            atomic_store(&frame->frame_length, length);
            offset += ps_align32(length);
            if (offset > 65536 - 16384) {
                break;
            }
        }
        ps_message_t messages[64];
        for (int32_t i = 0; i < 20; i++) {
            const int32_t got = ps_img_poll(image, messages, 64, i % 2);
            for (int32_t j = 0; j < got; j++) {
                volatile uint8_t sum = 0;
                for (int64_t k = 0; k < messages[j].length; k++) {
                    sum = (uint8_t)(sum + messages[j].data[k]);
                }
            }
        }
        ps_img_close(image);
        stream_close(&stream);
    }
}

/* ---- waking ---------------------------------------------------------------------------------- */

int main(void)
{
    RUN(hostile_frames_stop_the_image);
    RUN(random_bytes_in_the_log_never_lead_outside);
    return 0;
}
