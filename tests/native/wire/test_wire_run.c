/* SPDX-License-Identifier: Apache-2.0
 * Joined datagrams against the same one by one.
 */
#include <string.h>

#include "check.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_wire.h"

enum { RUN_TERM = 65536 };

/* Datagrams of `segment` bytes, each some frames of one stream; mostly one of a few mistakes. */
static uint32_t make_run(ps_random_t *random, uint8_t *out, uint32_t segment, int32_t offset)
{
    const uint32_t datagrams = 1 + (uint32_t)ps_random_below(random, 6);
    uint32_t at = 0;
    for (uint32_t i = 0; i < datagrams; i++) {
        uint32_t left = segment;
        if (i + 1 == datagrams) {
            left = 32 * (1 + (uint32_t)ps_random_below(random, segment / 32));
        }
        while (left > 0) {
            const uint32_t most = left / 32 < 4 ? left / 32 : 4;
            const uint32_t aligned = 32 * (1 + (uint32_t)ps_random_below(random, most));
            const ps_frame_t frame = {
                .frame_length =
                    (int32_t)(aligned - ps_random_below(random, aligned == 32 ? 1 : 31)),
                .flags = ps_random_below(random, 3) == 0 ? PS_FLAG_BEGIN : PS_FLAG_UNFRAGMENTED,
                .type = ps_random_below(random, 60) == 0 ? PS_TYPE_PAD : PS_TYPE_DATA,
                .term_offset = offset,
                .session_id = 5,
                .stream_id = -7,
                .term_id = 9
            };
            memset(out + at, 0xA5, aligned);
            memcpy(out + at, &frame, sizeof frame);
            at += aligned;
            left -= aligned;
            offset += (int32_t)aligned;
        }
    }
    if (ps_random_below(random, 3) > 0) { /* some byte of some header */
        const uint32_t frame = 32 * (uint32_t)ps_random_below(random, at / 32);
        out[frame + ps_random_below(random, 24)] ^= (uint8_t)(1u << ps_random_below(random, 8));
    }
    return at;
}

/* What ps_wire_chain says of the datagrams one by one. */
static uint32_t run_by_chains(const uint8_t *data, uint32_t length, uint32_t segment,
                              int32_t *messages)
{
    uint32_t done = 0;
    *messages = 0;
    while (done < length) {
        const uint32_t size = length - done < segment ? length - done : segment;
        int32_t span, whole, offset, first;
        memcpy(&first, data + 8, sizeof first);
        memcpy(&offset, data + done + 8, sizeof offset);
        if (ps_wire_chain(data + done, size, RUN_TERM, &span, &whole) != PS_WIRE_OK ||
            offset != first + (int32_t)done || memcmp(data + 12, data + done + 12, 12) != 0) {
            break;
        }
        for (uint32_t at = 0; at < size;) { /* padding is left to the other way */
            int32_t frame_length;
            memcpy(&frame_length, data + done + at, sizeof frame_length);
            if (data[done + at + 6] == PS_TYPE_PAD) {
                return done;
            }
            at += (uint32_t)ps_align32(frame_length);
        }
        done += size;
        *messages += whole;
    }
    return done;
}

static void test_a_run_is_what_its_datagrams_are(void)
{
    static uint8_t data[16384];
    ps_random_t random;
    uint32_t whole = 0, parts = 0, none = 0;
    ps_random_seed(&random, 77);
    for (int32_t i = 0; i < 200000; i++) {
        const uint32_t segment = 32 * (1 + (uint32_t)ps_random_below(&random, 44));
        const int32_t near_end = RUN_TERM - 32 * (int32_t)(1 + ps_random_below(&random, 100));
        const uint32_t length = make_run(&random, data, segment, i % 4 == 0 ? near_end : 4096);
        int32_t expected, messages;
        const uint32_t bytes = run_by_chains(data, length, segment, &expected);
        CHECK_EQ(ps_wire_run(data, length, segment, RUN_TERM, &messages), bytes);
        CHECK_EQ(messages, expected);
        whole += bytes == length;
        none += bytes == 0;
        parts += bytes > 0 && bytes < length;
    }
    CHECK(whole > 1000 && parts > 1000 && none > 1000);
    int32_t messages;
    CHECK_EQ(ps_wire_run(data, 31, 31, RUN_TERM, &messages), 0);
    CHECK_EQ(ps_wire_run(data, 64, 33, RUN_TERM, &messages), 0);
    /* A whole frame and a half one, in memory of just that size: nothing is read behind it. */
    const ps_frame_t frame = {
        .frame_length = 32, .flags = PS_FLAG_UNFRAGMENTED, .type = PS_TYPE_DATA, .term_offset = 64
    };
    uint8_t *exact = malloc(48);
    CHECK(exact != NULL);
    memcpy(exact, &frame, sizeof frame);
    memcpy(exact + sizeof frame, &frame, 16);
    CHECK_EQ(ps_wire_run(exact, 48, 48, RUN_TERM, &messages), 0);
    CHECK_EQ(ps_wire_run(exact, 32, 48, RUN_TERM, &messages), 0);
    CHECK_EQ(ps_wire_run(exact, 32, 32, RUN_TERM, &messages), 32);
    free(exact);
}

int main(void)
{
    RUN(test_a_run_is_what_its_datagrams_are);
    return 0;
}
