/* SPDX-License-Identifier: Apache-2.0
 * The order of turns while the socket is full: the kernel makes room for some datagrams from time
 * to time, and the bands decide whose data gets the room.
 */
#include "many.h"

enum { BULK = 64, RETRY_CYCLES = 20 };

/* A link with room for so many datagrams, once in 20 cycles, that is in 100 us. */
static void link_cycle(const many_t *many, int64_t *number, int32_t datagrams)
{
    if (++*number % RETRY_CYCLES == 0) {
        memnet_room(many->rig->net, datagrams);
    }
    cycle(many);
}

static many_t *open_full(const int32_t *priorities, int32_t count)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < count; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    memnet_room(many->rig->net, 0);
    return many;
}

/* A stream of the top band gets the next room, whatever other streams have to send. */
static void check_top_band_beside(int32_t priority)
{
    int32_t priorities[BULK + 1] = { 1000 };
    int64_t number = 0;
    for (int32_t i = 1; i <= BULK; i++) {
        priorities[i] = priority;
    }
    many_t *many = open_full(priorities, BULK + 1);
    ps_publication_t *top = many->pubs[0];
    for (int32_t i = 1; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    for (int32_t message = 1; message <= 100; message++) {
        const int64_t to = (int64_t)message * FRAME;
        for (int32_t i = 0; i < 7 * message % 101; i++) {
            link_cycle(many, &number, QUANTUM / FRAME);
        }
        const int64_t before = sent(many);
        publish(many, top, to);
        for (int32_t i = 0; i < 3 * RETRY_CYCLES && top->sender_position < to; i++) {
            link_cycle(many, &number, QUANTUM / FRAME);
        }
        CHECK_EQ(top->sender_position, to);
        CHECK(sent(many) - before <= QUANTUM + FRAME);
    }
    close_many(many);
}

static void test_a_stream_of_the_top_band_gets_the_next_room(void)
{
    check_top_band_beside(600);
    check_top_band_beside(PS_PRIORITY_AUTO);
    check_top_band_beside(-1000);
    check_top_band_beside(PS_PRIORITY_BACKGROUND);
}

/* The bands share the room by their weights, also if there is less room than for a turn. */
static void test_bands_share_the_room_by_their_weights(void)
{
    static const int32_t priorities[] = { 900, 600, 300, 100, -100 };
    static const int32_t weights[] = { 8, 4, 2, 1, 1 };
    for (int32_t datagrams = 1; datagrams <= 5; datagrams++) {
        many_t *many = open_full(priorities, 5);
        int64_t number = 0;
        for (int32_t i = 0; i < 5; i++) {
            publish(many, many->pubs[i], TERM / 2);
        }
        while (many->pubs[0]->sender_position < TERM / 2 - 20 * FRAME) {
            link_cycle(many, &number, datagrams);
        }
        const double unit = (double)sent(many) / 16;
        for (int32_t i = 0; i < 5; i++) {
            const double share = (double)many->pubs[i]->sender_position / unit;
            CHECK(share > 0.9 * weights[i] - 0.1 && share < 1.1 * weights[i] + 0.1);
        }
        close_many(many);
    }
}

/* Within a band each stream gets the same. */
static void test_streams_of_a_band_share_the_room_equally(void)
{
    int32_t priorities[BULK];
    int64_t number = 0;
    for (int32_t i = 0; i < BULK; i++) {
        priorities[i] = 300;
    }
    many_t *many = open_full(priorities, BULK);
    for (int32_t i = 0; i < BULK; i++) {
        publish(many, many->pubs[i], TERM / 4);
    }
    while (sent(many) < (int64_t)BULK * 20 * FRAME) {
        link_cycle(many, &number, 3);
    }
    for (int32_t i = 0; i < BULK; i++) {
        const int64_t position = many->pubs[i]->sender_position;
        CHECK(position >= 20 * FRAME - QUANTUM && position <= 20 * FRAME + QUANTUM);
    }
    close_many(many);
}

/* One stream asks the kernel for room, and not each of them. */
static void test_a_full_socket_gets_one_send_call_for_each_try(void)
{
    int32_t priorities[BULK];
    for (int32_t i = 0; i < BULK; i++) {
        priorities[i] = i % 3 * 300;
    }
    many_t *many = open_full(priorities, BULK);
    for (int32_t i = 0; i < BULK; i++) {
        publish(many, many->pubs[i], TERM / 4);
    }
    cycle(many);
    const int32_t before = memnet_sends(many->rig->net);
    int64_t number = 0;
    for (int32_t i = 0; i < 100 * RETRY_CYCLES; i++) {
        publish(many, many->pubs[i % BULK], TERM / 4); /* notifies the sender again */
        link_cycle(many, &number, 0);
    }
    CHECK(memnet_sends(many->rig->net) - before <= 101);
    CHECK_EQ(sent(many), 0);
    for (int32_t i = 0; i < BULK; i++) { /* publishers get their limits all the same */
        CHECK(many->pubs[i]->producer_position >= TERM / 4);
    }
    CHECK_EQ(sender(many)->bands.waiting, 0);
    CHECK(ps_driver_next_deadline_ns(many->rig->driver, many->rig->now_ns) > many->rig->now_ns);
    close_many(many);
}

/* Retransmits wait for room too, and get at most half of it. */
static void test_retransmits_get_half_of_the_room(void)
{
    static const int32_t priorities[] = { 300, 300 };
    many_t *many = open_full(priorities, 2);
    ps_publication_t *lossy = many->pubs[0];
    uint8_t out[PS_CONTROL_MAX];
    int64_t number = 0;
    memnet_room(many->rig->net, -1);
    publish(many, lossy, 100 * FRAME);
    for (int32_t i = 0; i < 100; i++) {
        cycle(many);
    }
    CHECK_EQ(lossy->sender_position, 100 * FRAME);
    memnet_room(many->rig->net, 0);
    publish(many, many->pubs[1], TERM / 2);
    const ps_nak_t nak = { lossy->log.session_id, 1, 0, 0, 90 * FRAME };
    rig_inject(many->rig, &many->rig->peer, out, ps_wire_build_nak(out, &nak));
    while (lossy->retransmit.pending == 0) {
        cycle(many);
    }
    while (lossy->retransmit.pending > 0) {
        link_cycle(many, &number, 2);
    }
    const int64_t fresh = many->pubs[1]->sender_position;
    CHECK(fresh >= 80 * FRAME && fresh <= 100 * FRAME);
    close_many(many);
}

static const ps_net_ops_t *real_ops;
static int32_t failed_calls;

/* Fails for the datagrams of the first stream. */
static int send_or_fail(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams,
                        int32_t count, int64_t now_ns)
{
    ps_data_t data;
    if (ps_wire_data(dgrams[0].data, dgrams[0].length, &data) == PS_WIRE_OK &&
        data.session_id == 1000 && !data.is_heartbeat) {
        failed_calls++;
        return ps_fail(PS_E_SYSTEM, "too long");
    }
    return real_ops->send(socket, to, dgrams, count, now_ns);
}

/* An error may be due to a stream's own datagrams: the other streams of the socket send. */
static void test_an_error_holds_no_other_stream(void)
{
    static const int32_t priorities[] = { 300, 300, 300 };
    many_t *many = open_full(priorities, 3);
    ps_net_ops_t ops = *many->rig->endpoint->ops;
    real_ops = many->rig->endpoint->ops;
    ops.send = send_or_fail;
    many->rig->endpoint->ops = &ops;
    memnet_room(many->rig->net, -1);
    for (int32_t i = 0; i < 3; i++) {
        publish(many, many->pubs[i], 100 * FRAME);
    }
    for (int32_t i = 0; i < 200; i++) { /* 1 ms */
        cycle(many);
    }
    CHECK_EQ(many->pubs[0]->sender_position, 0);
    CHECK_EQ(many->pubs[1]->sender_position, 100 * FRAME);
    CHECK_EQ(many->pubs[2]->sender_position, 100 * FRAME);
    CHECK(failed_calls > 0 && failed_calls <= 2);
    many->rig->endpoint->ops = real_ops;
    for (int32_t i = 0; i < 400; i++) {
        cycle(many);
    }
    CHECK_EQ(many->pubs[0]->sender_position, 100 * FRAME);
    close_many(many);
}

/* A stream whose window was shut when the socket became full has no turn in which it could notice
 * that its receiver has room again. */
static void test_a_window_that_opens_is_no_cause_beside_a_full_socket(void)
{
    static const int32_t priorities[] = { 300, 300 };
    many_t *many = open_many();
    ps_publication_t *shut = add_stream(many, priorities[0]);
    ps_publication_t *other = add_stream(many, priorities[1]);
    connect_all(many, 20 * FRAME);
    publish(many, shut, TERM * 3 / 4);
    for (int32_t i = 0; i < 100; i++) {
        cycle(many);
    }
    CHECK_EQ(shut->sender_position, 20 * FRAME);
    CHECK_EQ(atomic_load(&shut->slot->cause), PS_CAUSE_RECEIVER_WINDOW);
    memnet_room(many->rig->net, 0);
    publish(many, other, 10 * FRAME);
    cycle(many);
    open_window(many, shut, 20 * FRAME, 20 * FRAME);
    for (int32_t i = 0; i < 400; i++) { /* 2 ms: the sender looks at each stream once a tick */
        cycle(many);
    }
    CHECK_EQ(shut->sender_limit, 40 * FRAME);
    CHECK_EQ(shut->sender_position, 20 * FRAME);
    CHECK_EQ(atomic_load(&shut->slot->cause), PS_CAUSE_SOCKET);
    close_many(many);
}

/* The limit comes down while another stream of the socket gets each try: with room in the socket,
 * the stream could send nothing either. */
static void test_a_window_that_shuts_is_the_cause_beside_a_full_socket(void)
{
    static const int32_t priorities[] = { 300, 300 };
    const int32_t least = FRAME / 2;
    many_t *many = open_full(priorities, 2);
    ps_publication_t *first = many->pubs[0];
    ps_publication_t *shut = many->pubs[1];
    publish(many, first, 10 * FRAME);
    cycle(many);
    publish(many, shut, TERM * 3 / 4);
    for (int32_t i = 0; i < 400; i++) {
        cycle(many);
    }
    CHECK_EQ(atomic_load(&shut->slot->cause), PS_CAUSE_SOCKET);
    for (int32_t i = 0; i < 6000; i++) { /* 6 s: the limit holds for 5 s */
        if (i % 100 == 0) {
            open_window(many, first, 0, TERM / 2);
            open_window(many, shut, 0, least);
        }
        many->rig->now_ns += MS;
        cycle(many);
    }
    CHECK_EQ(shut->sender_limit, least);
    CHECK_EQ(shut->sender_position, 0);
    CHECK(first->turn.held);
    CHECK_EQ(atomic_load(&shut->slot->cause), PS_CAUSE_RECEIVER_WINDOW);
    CHECK_EQ(atomic_load(&shut->slot->cause_culprit), 7);
    close_many(many);
}

/* A removed stream waits for no room, and its endpoint is not full any more. */
static void test_a_removed_stream_waits_for_no_room(void)
{
    static const int32_t priorities[] = { 300, 300, 300 };
    many_t *many = open_full(priorities, 3);
    int64_t number = 0;
    for (int32_t i = 0; i < 3; i++) {
        publish(many, many->pubs[i], 10 * FRAME);
    }
    cycle(many);
    for (int32_t i = 0; i < 3; i++) {
        CHECK(many->pubs[i]->turn.held && !many->pubs[i]->turn.queued);
    }
    ps_publication_remove(many->rig->driver, many->pubs[1]);
    cycle(many);
    CHECK(!many->pubs[1]->turn.held);
    for (int32_t i = 0; i < 20 * RETRY_CYCLES; i++) {
        link_cycle(many, &number, 4);
    }
    CHECK_EQ(many->pubs[0]->sender_position, 10 * FRAME);
    CHECK_EQ(many->pubs[2]->sender_position, 10 * FRAME);
    CHECK_EQ(sender(many)->full_count, 0);
    ps_event_t event;
    CHECK(rig_event(many->rig, PS_EV_RELEASED, &event));
    ps_publication_destroy(many->rig->driver, many->pubs[1]);
    close_many(many);
}

int main(void)
{
    test_a_stream_of_the_top_band_gets_the_next_room();
    test_bands_share_the_room_by_their_weights();
    test_streams_of_a_band_share_the_room_equally();
    test_a_full_socket_gets_one_send_call_for_each_try();
    test_retransmits_get_half_of_the_room();
    test_an_error_holds_no_other_stream();
    test_a_window_that_opens_is_no_cause_beside_a_full_socket();
    test_a_window_that_shuts_is_the_cause_beside_a_full_socket();
    test_a_removed_stream_waits_for_no_room();
    return 0;
}
