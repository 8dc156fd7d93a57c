/* SPDX-License-Identifier: Apache-2.0
 * test_sender_end.c: a publication at the maximum position, where the term count has no higher
 * value.
 */
#include "sender_rig.h"

enum { PAYLOAD = 992, FRAME = 1024, LAST_FRAMES = 4, PAD = 64 };

static const int64_t END = (int64_t)RIG_TERM << 31;
static const int32_t LAST_TERM = (int32_t)(GOLDEN_TERM + (int64_t)INT32_MAX - (INT64_C(1) << 32));

/* Connected, with room for LAST_FRAMES messages and a PAD. */
static rig_t *open_near_end(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST,
                                            .term_count = INT32_MAX,
                                            .first_offset = RIG_TERM - LAST_FRAMES * FRAME - PAD });
    const int64_t start = END - LAST_FRAMES * FRAME - PAD;
    rig_step(rig, 0);
    CHECK_EQ(rig_tail(rig), start);
    memnet_discard(rig->net);
    rig_sm(rig, 5, &rig->peer, start, 4096, 0);
    rig_step(rig, 0);
    return rig;
}

/* Messages up to the end of the stream, the rest of the last term as padding. */
static void fill(rig_t *rig)
{
    for (int i = 0; i < LAST_FRAMES; i++) {
        rig_offer(rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    }
    CHECK(ps_log_pad(&rig->log, END - PAD, PAD, 0));
    atomic_fetch_add(&rig->log.meta->tail[INT32_MAX % PS_PARTITIONS], PAD);
    rig_dirty(rig);
    rig_step(rig, 0);
}

static void sm_at_end(rig_t *rig, int32_t term_id, int32_t term_offset)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = term_id,
                         .term_offset = term_offset,
                         .window = 4096,
                         .receiver_id = 5 };
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, NULL));
    rig_step(rig, 0);
}

/* Only heartbeats that name offset T of the last term leave; and at least one does. */
static void expect_heartbeats(rig_t *rig, uint8_t flags)
{
    ps_data_t data;
    int32_t count = 0;
    while (memnet_take(rig->net, &rig->got)) {
        CHECK_EQ(ps_wire_data(rig->got.data, rig->got.length, &data), PS_WIRE_OK);
        CHECK(data.is_heartbeat);
        CHECK_EQ(data.term_id, LAST_TERM);
        CHECK_EQ(data.term_offset, RIG_TERM);
        CHECK_EQ(data.flags, flags);
        count++;
    }
    CHECK(count > 0);
}

static void test_heartbeats_name_the_end_of_the_last_term(void)
{
    rig_t *rig = open_near_end();
    fill(rig);
    sm_at_end(rig, LAST_TERM, RIG_TERM - 2 * FRAME - PAD);
    CHECK_EQ(rig_counter(rig, rig->sender_position), END);
    memnet_discard(rig->net);
    rig_step(rig, 500 * MS);
    expect_heartbeats(rig, PS_FLAG_UNFRAGMENTED);
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 500 * MS);
    expect_heartbeats(rig, PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS);
    CHECK_EQ(atomic_load(&rig->log.meta->end_of_stream), END);
    rig_close(rig);
}

static void test_no_setup_leaves_at_the_end(void)
{
    rig_t *rig = open_near_end();
    uint8_t frame[256];
    fill(rig);
    sm_at_end(rig, LAST_TERM, RIG_TERM - 2 * FRAME - PAD);
    memnet_discard(rig->net);
    rig_inject(rig, &rig->peer, frame, golden("sm_setup", frame)); /* requests one */
    for (int i = 0; i < 20; i++) {
        rig_step(rig, 500 * MS); /* the receiver is forgotten on the way */
    }
    expect_heartbeats(rig, PS_FLAG_UNFRAGMENTED);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    rig_close(rig);
}

/* A receiver that has read everything stays one, whichever way it names the end. */
static void test_a_receiver_at_the_end_is_heard(void)
{
    const int32_t places[][2] = { { LAST_TERM, RIG_TERM },
                                  { (int32_t)(LAST_TERM + INT64_C(1)), 0 } };
    for (size_t i = 0; i < 2; i++) {
        rig_t *rig = open_near_end();
        fill(rig);
        sm_at_end(rig, LAST_TERM, RIG_TERM - 2 * FRAME - PAD);
        for (int n = 0; n < 20; n++) {
            rig_step(rig, 500 * MS);
            sm_at_end(rig, places[i][0], places[i][1]);
        }
        CHECK_EQ(rig_counter(rig, PS_SYS_SM_REJECTED), 0);
        CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
        rig_close(rig);
    }
}

static void test_the_tail_is_retransmitted(void)
{
    rig_t *rig = open_near_end();
    uint8_t out[PS_CONTROL_MAX];
    const ps_nak_t nak = { .session_id = GOLDEN_SESSION,
                           .stream_id = GOLDEN_STREAM,
                           .term_id = LAST_TERM,
                           .term_offset = RIG_TERM - FRAME - PAD,
                           .length = FRAME + PAD };
    fill(rig);
    sm_at_end(rig, LAST_TERM, RIG_TERM - 2 * FRAME - PAD);
    memnet_discard(rig->net);
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &nak));
    rig_step(rig, 0);
    CHECK_EQ(rig_take(rig)->length, FRAME + PS_HEADER_BYTES);
    rig_close(rig);
}

int main(void)
{
    test_heartbeats_name_the_end_of_the_last_term();
    test_no_setup_leaves_at_the_end();
    test_a_receiver_at_the_end_is_heard();
    test_the_tail_is_retransmitted();
    return 0;
}
