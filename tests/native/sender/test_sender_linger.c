/* SPDX-License-Identifier: Apache-2.0
 * test_sender_linger.c: a publication that has drained without a receiver, and lingers.
 */
#include "sender_rig.h"

enum { PAYLOAD = 992, FRAME = 1024, FRAMES = 8, SENT = 2 };

/* The publication has drained, because its only receiver was silent for the time-out. */
static rig_t *open_drained_alone(int64_t start)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_step(rig, 0);
    CHECK_EQ(rig_tail(rig), start);
    rig_sm(rig, 5, &rig->peer, start, SENT * FRAME, 0);
    rig_step(rig, 0);
    for (int i = 0; i < FRAMES; i++) {
        rig_offer(rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), start + SENT * FRAME);
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 1 * S);
    CHECK(!rig_event(rig, PS_EV_PUB_DRAINED, &event)); /* the receiver may read on */
    for (int i = 0; i < 12; i++) {
        rig_step(rig, 500 * MS);
    }
    CHECK(rig_event(rig, PS_EV_PUB_DRAINED, &event));
    CHECK_EQ(event.drained.unsent, (FRAMES - SENT) * FRAME);
    memnet_discard(rig->net);
    return rig;
}

/* Returns the number of heartbeats with `flags`; no other frame may leave. */
static int32_t heartbeats(rig_t *rig, int64_t position, uint8_t flags)
{
    ps_data_t data;
    int32_t count = 0;
    while (memnet_take(rig->net, &rig->got)) {
        CHECK_EQ(ps_wire_data(rig->got.data, rig->got.length, &data), PS_WIRE_OK);
        CHECK(data.is_heartbeat);
        CHECK_EQ(data.term_offset, position);
        CHECK_EQ(data.flags, flags);
        count++;
    }
    return count;
}

/* A receiver that returns gets the data that was not sent, and then the end of the stream. Until
 * then no heartbeat may state the end. */
static void test_a_receiver_that_returns_gets_the_end(void)
{
    rig_t *rig = open_drained_alone(0);
    ps_event_t event;
    rig_step(rig, 1 * S);
    CHECK(heartbeats(rig, SENT * FRAME, PS_FLAG_UNFRAGMENTED) > 0);
    rig_sm(rig, 5, &rig->peer, SENT * FRAME, FRAMES * FRAME, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), FRAMES * FRAME);
    memnet_discard(rig->net);
    rig_step(rig, 500 * MS);
    CHECK(heartbeats(rig, FRAMES * FRAME, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS) > 0);
    CHECK(!rig_event(rig, PS_EV_PUB_DRAINED, &event)); /* once */
    rig_close(rig);
}

int main(void)
{
    test_a_receiver_that_returns_gets_the_end();
    return 0;
}
