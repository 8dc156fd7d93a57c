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

/* A turn sends what is there, at most a quantum and a part of a datagram; then the turn goes to the
 * next stream. */
static void test_a_turn_sends_a_quantum_at_most(void)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < 3; i++) {
        (void)add_stream(many, 300);
    }
    connect_all(many, TERM / 2);
    publish(many, many->pubs[0], TERM / 2);
    publish(many, many->pubs[1], TERM / 2);
    int64_t before[2] = { 0 };
    int32_t last = -1;
    for (int32_t i = 0; i < 40; i++) {
        cycle(many);
        int32_t turns = 0, of = -1;
        for (int32_t k = 0; k < 2; k++) {
            const int64_t bytes = many->pubs[k]->sender_position - before[k];
            CHECK(bytes == 0 || bytes == QUANTUM);
            of = bytes > 0 ? k : of;
            turns += bytes > 0;
            before[k] += bytes;
        }
        CHECK(turns == 1 && of != last);
        last = of;
    }
    publish(many, many->pubs[2], 3 * FRAME);
    while (many->pubs[2]->sender_position == 0) {
        cycle(many);
    }
    CHECK_EQ(many->pubs[2]->sender_position, 3 * FRAME);
    close_many(many);
}

/* The turn of a stream that waits alone is two quanta at most. */
static void test_a_turn_alone_sends_two_quanta_at_most(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = add_stream(many, PS_PRIORITY_AUTO);
    connect_all(many, TERM / 2);
    publish(many, pub, TERM / 2);
    ps_bands_set_quantum(&sender(many)->bands, 1, FRAME);
    for (int64_t sent_before = 0; pub->sender_position < TERM / 4;) {
        many->rig->now_ns += 5 * US;
        (void)ps_driver_step(many->rig->driver, many->rig->now_ns);
        const int64_t bytes = pub->sender_position - sent_before;
        CHECK(bytes >= 2 * PS_BANDS_QUANTUM_MIN && bytes < 2 * PS_BANDS_QUANTUM_MIN + FRAME);
        sent_before += bytes;
        memnet_discard(many->rig->net);
    }
    close_many(many);
}

/* If no other stream waits, data leaves in the cycle in which the sender sees it. */
static void test_an_idle_sender_sends_at_once(void)
{
    static const int32_t priorities[] = { 1000, 0, -1000, PS_PRIORITY_AUTO,
                                          PS_PRIORITY_BACKGROUND };
    many_t *many = open_many();
    for (int32_t i = 0; i < 5; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    for (int32_t message = 1; message <= 50; message++) {
        ps_publication_t *pub = many->pubs[message % 5];
        const int64_t to = pub->sender_position + FRAME;
        many->rig->now_ns += message * MS;
        publish(many, pub, to);
        cycle(many);
        CHECK_EQ(pub->sender_position, to);
        CHECK_EQ(sender(many)->bands.waiting, 0);
    }
    close_many(many);
}

/* Beside saturating streams of this priority, a stream of the top band has the next turn, at any
 * place of a round, also several times in it. */
static void check_top_band_beside(int32_t priority)
{
    many_t *many = open_many();
    ps_publication_t *top = add_stream(many, 1000);
    for (int32_t i = 0; i < 20; i++) {
        (void)add_stream(many, priority);
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
        cycle(many);
        CHECK_EQ(top->sender_position, (int64_t)message * FRAME);
        CHECK(sent(many) - before <= QUANTUM + 2 * FRAME); /* after it, a turn of another one */
    }
    close_many(many);
}

static void test_a_stream_of_the_top_band_has_the_next_turn(void)
{
    check_top_band_beside(600);
    check_top_band_beside(300);
    check_top_band_beside(PS_PRIORITY_AUTO);
    check_top_band_beside(-1000);
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
    CHECK(share >= 0.04 && share < 0.05);
    CHECK(many->pubs[5]->turn.list == PS_BAND_BACKGROUND);
    close_many(many);
}

static void test_a_saturating_relay_takes_no_turn_of_the_top_band(void)
{
    check_top_band_beside(PS_PRIORITY_BACKGROUND);
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
    test_a_turn_sends_a_quantum_at_most();
    test_a_turn_alone_sends_two_quanta_at_most();
    test_an_idle_sender_sends_at_once();
    test_stated_priorities_share_by_the_weights_of_their_bands();
    test_a_stream_with_a_closed_window_leaves_the_ready_set();
    test_a_stream_of_the_top_band_has_the_next_turn();
    test_streams_beyond_the_limit_of_hot_ones_share_equally();
    test_retransmits_leave_a_slow_cycle_to_other_streams();
    test_a_slow_cycle_does_not_cause_the_next_one();
    test_a_saturating_relay_gets_its_share_beside_all_bands();
    test_a_saturating_relay_takes_no_turn_of_the_top_band();
    return 0;
}
