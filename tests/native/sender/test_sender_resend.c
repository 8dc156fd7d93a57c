/* SPDX-License-Identifier: Apache-2.0
 * The delay between a NAK and its retransmit: each requested range has its own.
 */
#include "sender_rig.h"

enum { FRAME = 64, FRAMES = 20 };

static void request_frame(rig_t *rig, int32_t number)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_nak_t nak = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM, number * FRAME, FRAME };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &nak));
    rig_step(rig, 0);
}

static void expect_frame(rig_t *rig, int32_t number)
{
    CHECK_EQ(memnet_pending(rig->net), 1);
    CHECK_EQ(rig_take(rig)->length, FRAME);
    CHECK_EQ(rig->got.data[8] | rig->got.data[9] << 8, number * FRAME);
}

static void test_each_retransmit_leaves_after_its_own_delay(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST, .retransmit_delay_ns = 3 * MS });
    rig_connect(rig);
    for (int32_t i = 0; i < FRAMES; i++) {
        rig_offer(rig, NULL, FRAME - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    memnet_discard(rig->net);
    for (int32_t i = 0; i < 3; i++) {
        request_frame(rig, 5 * i);
        rig_step(rig, MS);
    }
    for (int32_t i = 0; i < 3; i++) {
        expect_frame(rig, 5 * i);
        if (i < 2) { /* the driver may park until then */
            CHECK_EQ(ps_driver_next_deadline_ns(rig->driver, rig->now_ns), rig->now_ns + MS);
        }
        rig_step(rig, MS);
    }
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_close(rig);
}

int main(void)
{
    test_each_retransmit_leaves_after_its_own_delay();
    return 0;
}
