/* SPDX-License-Identifier: Apache-2.0
 * The turns of many streams of one sender, in virtual time: shares, hot streams beyond the limit,
 * streams that leave the ready set, and the wait of a stream of the top band.
 */
#include "many.h"

/* 200 saturated streams, of which 128 can be hot: each gets the same. */
static void test_streams_beyond_the_limit_of_hot_ones_share_equally(void)
{
    many_t *many = open_many();
    const int32_t all = 300 * FRAME;
    for (int32_t i = 0; i < STREAMS; i++) {
        (void)add_stream(many, PS_PRIORITY_AUTO);
    }
    connect_all(many, TERM / 2);
    sender(many)->barriers = true;
    for (int32_t round = 0; round < 8; round++) { /* busy enough to become hot */
        for (int32_t i = 0; i < STREAMS; i++) {
            publish(many, many->pubs[i], all);
        }
        cycle(many);
    }
    CHECK_EQ(sender(many)->hot_count, PS_HOT_LIMIT);
    while (sent(many) < (int64_t)STREAMS * 250 * FRAME) {
        cycle(many);
        CHECK(sender(many)->bands.waiting >= STREAMS - 1);
    }
    int64_t least = INT64_MAX, most = 0;
    for (int32_t i = 0; i < STREAMS; i++) {
        const int64_t position = many->pubs[i]->sender_position;
        least = position < least ? position : least;
        most = position > most ? position : most;
    }
    CHECK((double)most <= 1.02 * (double)least);
    close_many(many);
}

static void test_stated_priorities_share_by_the_weights_of_their_bands(void)
{
    static const int32_t priorities[] = { 900, 600, 300, 100, -100 };
    static const int32_t weights[] = { 8, 4, 2, 1, 1 };
    many_t *many = open_many();
    for (int32_t i = 0; i < 5; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    for (int32_t i = 0; i < 5; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    while (many->pubs[0]->sender_position < TERM / 2 - 100 * FRAME) {
        cycle(many);
    }
    const double unit = (double)sent(many) / 16;
    for (int32_t i = 0; i < 5; i++) {
        const double share = (double)many->pubs[i]->sender_position / unit;
        CHECK(share > 0.9 * weights[i] - 0.1 && share < 1.1 * weights[i] + 0.1);
    }
    close_many(many);
}

static void test_a_stream_with_a_closed_window_leaves_the_ready_set(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = add_stream(many, 900);
    ps_publication_t *other = add_stream(many, PS_PRIORITY_AUTO);
    connect_all(many, 10 * FRAME);
    publish(many, pub, 20 * FRAME);
    publish(many, other, 5 * FRAME);
    for (int32_t i = 0; i < 20; i++) {
        cycle(many);
    }
    CHECK_EQ(pub->sender_position, 10 * FRAME);
    CHECK(pub->window_shut && !pub->turn.queued);
    CHECK_EQ(other->sender_position, 5 * FRAME);
    CHECK_EQ(sender(many)->bands.waiting, 0);
    many->rig->now_ns += 8 * S; /* and does not age */
    open_window(many, pub, 10 * FRAME, 10 * FRAME);
    cycle(many);
    CHECK(!pub->turn.queued || pub->turn.since_ns == many->rig->now_ns);
    for (int32_t i = 0; i < 20; i++) {
        cycle(many);
    }
    CHECK_EQ(pub->sender_position, 20 * FRAME);
    close_many(many);
}

/* Beside a saturating stream, one of the top band waits for two quanta at most. */
static void test_a_stream_of_the_top_band_waits_for_two_quanta(void)
{
    many_t *many = open_many();
    ps_publication_t *top = add_stream(many, 1000);
    for (int32_t i = 0; i < 20; i++) {
        (void)add_stream(many, PS_PRIORITY_AUTO);
    }
    connect_all(many, TERM / 2);
    for (int32_t i = 1; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    for (int32_t message = 1; message <= 100; message++) {
        for (int32_t i = 0; i < message % 17; i++) { /* at any place of a round */
            cycle(many);
        }
        const int64_t before = sent(many);
        publish(many, top, (int64_t)message * FRAME);
        while (top->sender_position < (int64_t)message * FRAME) {
            cycle(many);
        }
        CHECK(sent(many) - before <= 2 * (QUANTUM + FRAME) + FRAME);
    }
    close_many(many);
}

/* A relayed stream is in the background band. */
static void test_a_saturating_relay_gets_its_share_beside_all_bands(void)
{
    static const int32_t priorities[] = { 900, 600, 300, 100, -100, PS_PRIORITY_BACKGROUND };
    many_t *many = open_many();
    for (int32_t i = 0; i < 6; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    for (int32_t i = 0; i < 6; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    while (many->pubs[0]->sender_position < TERM / 2 - 100 * FRAME) {
        cycle(many);
    }
    const double share = (double)many->pubs[5]->sender_position / (double)sent(many);
    CHECK(share >= 0.02 && share < 0.03);
    CHECK(many->pubs[5]->turn.list == PS_BAND_BACKGROUND);
    close_many(many);
}

static void test_a_saturating_relay_delays_the_top_band_by_two_quanta(void)
{
    many_t *many = open_many();
    ps_publication_t *top = add_stream(many, 1000);
    for (int32_t i = 0; i < 20; i++) {
        (void)add_stream(many, PS_PRIORITY_BACKGROUND);
    }
    connect_all(many, TERM / 2);
    for (int32_t i = 1; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    for (int32_t message = 1; message <= 100; message++) {
        for (int32_t i = 0; i < message % 17; i++) {
            cycle(many);
        }
        const int64_t before = sent(many);
        publish(many, top, (int64_t)message * FRAME);
        while (top->sender_position < (int64_t)message * FRAME) {
            cycle(many);
        }
        CHECK(sent(many) - before <= 2 * (QUANTUM + FRAME) + FRAME);
    }
    close_many(many);
}

/* If the thread seldom runs, each stream has one turn a cycle: turns of retransmits do not take
 * those of other streams. */
static void test_retransmits_leave_a_slow_cycle_to_other_streams(void)
{
    many_t *many = open_many();
    ps_publication_t *lossy = add_stream(many, PS_PRIORITY_AUTO);
    ps_publication_t *other = add_stream(many, PS_PRIORITY_AUTO);
    uint8_t out[PS_CONTROL_MAX];
    connect_all(many, TERM / 2);
    publish(many, lossy, 100 * FRAME);
    for (int32_t i = 0; i < 100; i++) {
        cycle(many);
    }
    CHECK_EQ(lossy->sender_position, 100 * FRAME);
    const ps_nak_t nak = { lossy->log.session_id, 1, 0, 0, 90 * FRAME };
    rig_inject(many->rig, &many->rig->peer, out, ps_wire_build_nak(out, &nak));
    for (int32_t i = 0; i < 100 && !lossy->resend.queued; i++) {
        cycle(many);
    }
    CHECK(lossy->resend.queued);
    publish(many, other, FRAME);
    /* The share of retransmits suffices for more than the datagrams of one turn. */
    sender(many)->bands.quantum = PS_BANDS_QUANTUM_MAX;
    sender(many)->bands.repair_credit = PS_BANDS_QUANTUM_MAX;
    many->rig->now_ns += MS;
    (void)ps_driver_step(many->rig->driver, many->rig->now_ns);
    CHECK_EQ(other->sender_position, FRAME);
    CHECK(lossy->resend.queued && lossy->retransmit.actions[0].cursor > 0);
    close_many(many);
}

/* A cycle in which each stream has a turn takes longer than PS_SLOW_CYCLE_NS. It must not make the
 * next cycle slow, or the weights would not hold any more. */
static void test_a_slow_cycle_does_not_cause_the_next_one(void)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < 20; i++) {
        (void)add_stream(many, PS_PRIORITY_AUTO);
    }
    connect_all(many, TERM / 2);
    for (int32_t i = 0; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    cycle(many);
    many->rig->now_ns += PS_SLOW_CYCLE_NS;
    int64_t before = sent(many);
    (void)ps_driver_step(many->rig->driver, many->rig->now_ns);
    const int64_t all = sent(many) - before;
    CHECK(all >= 19 * QUANTUM && 5 * all >= PS_SLOW_CYCLE_NS);
    for (int32_t i = 0; i < 10; i++) { /* five nanoseconds a byte */
        many->rig->now_ns += 5 * (sent(many) - before);
        ps_sender_end_cycle(sender(many), many->rig->now_ns);
        before = sent(many);
        (void)ps_driver_step(many->rig->driver, many->rig->now_ns);
        CHECK(sent(many) > before && sent(many) - before <= PS_BANDS_QUANTUM_MAX + FRAME);
    }
    close_many(many);
}

int main(void)
{
    test_stated_priorities_share_by_the_weights_of_their_bands();
    test_a_stream_with_a_closed_window_leaves_the_ready_set();
    test_a_stream_of_the_top_band_waits_for_two_quanta();
    test_streams_beyond_the_limit_of_hot_ones_share_equally();
    test_retransmits_leave_a_slow_cycle_to_other_streams();
    test_a_slow_cycle_does_not_cause_the_next_one();
    test_a_saturating_relay_gets_its_share_beside_all_bands();
    test_a_saturating_relay_delays_the_top_band_by_two_quanta();
    return 0;
}
