/* SPDX-License-Identifier: Apache-2.0
 * Turns while the socket stays full. The model of a kernel makes room when a whole message has
 * left; a message is a run of up to 65,000 bytes.
 */
#include "many.h"

enum { MESSAGES = 256, MESSAGE_MOST = 65000, BULK = 20, RETRY_US = 100, CYCLE_US = 5 };

typedef struct kernel {
    int64_t rate, buffer;     /* bytes a microsecond; bytes */
    int64_t queue[MESSAGES];  /* lengths of the messages, from `first` on */
    int64_t first, last;      /* of any number of messages */
    int64_t queued, left;     /* bytes; of the first message */
    int64_t time_us, idle_us; /* idle: without a message */
    int64_t most;             /* bytes of a call */
} kernel_t;

static kernel_t kernel;
static const ps_net_ops_t *real_ops;

static void take(int64_t length)
{
    CHECK(kernel.last - kernel.first < MESSAGES);
    kernel.left = kernel.first == kernel.last ? length : kernel.left;
    kernel.queue[kernel.last++ % MESSAGES] = length;
    kernel.queued += length;
}

static void drain(int64_t now_us)
{
    for (; kernel.time_us < now_us; kernel.time_us++) {
        int64_t bytes = kernel.rate;
        kernel.idle_us += kernel.first == kernel.last;
        while (kernel.first < kernel.last && bytes >= kernel.left) {
            bytes -= kernel.left;
            kernel.queued -= kernel.queue[kernel.first++ % MESSAGES];
            kernel.left =
                kernel.first < kernel.last ? kernel.queue[kernel.first % MESSAGES] : bytes;
        }
        kernel.left -= bytes;
    }
}

static int send_by_model(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams,
                         int32_t count, int64_t now_ns)
{
    int32_t taken = 0;
    int64_t call = 0;
    while (taken < count && kernel.queued < kernel.buffer) {
        int64_t message = 0;
        while (taken < count && message + dgrams[taken].length <= MESSAGE_MOST) {
            message += dgrams[taken++].length;
        }
        take(message);
        call += message;
    }
    kernel.most = call > kernel.most ? call : kernel.most;
    return taken == 0 ? 0 : real_ops->send(socket, to, dgrams, taken, now_ns);
}

static void step(const many_t *many)
{
    drain(many->rig->now_ns / US + CYCLE_US);
    cycle(many);
}

static void run_us(const many_t *many, int64_t us)
{
    for (int64_t i = 0; i < us / CYCLE_US; i++) {
        step(many);
    }
}

/* Opens streams with a window of half a term. `rate` is that of the link. */
static many_t *open_linked(const int32_t *priorities, int32_t count, int64_t rate)
{
    static ps_net_ops_t ops;
    many_t *many = open_many();
    for (int32_t i = 0; i < count; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    kernel =
        (kernel_t){ .rate = rate, .buffer = 2 * MESSAGE_MOST, .time_us = many->rig->now_ns / US };
    real_ops = many->rig->endpoint->ops;
    ops = *real_ops;
    ops.send = send_by_model;
    many->rig->endpoint->ops = &ops;
    return many;
}

static void close_linked(many_t *many)
{
    many->rig->endpoint->ops = real_ops;
    close_many(many);
}

/* The time for which a stream of the top band waits until the kernel takes its datagram. */
static int64_t wait_us(const many_t *many, ps_publication_t *top)
{
    const int64_t to = ps_log_producer_position(&top->log) + FRAME;
    int64_t waited_us = 0;
    publish(many, top, to);
    while (top->sender_position < to) {
        step(many);
        waited_us += CYCLE_US;
    }
    return waited_us;
}

/* Beside one bulk stream, a stream of the top band waits for one short message of the link, and not
 * for one of 64 KiB. The link is never without data. */
static void test_the_top_band_waits_for_a_short_message(void)
{
    static const int32_t priorities[] = { 900, PS_PRIORITY_AUTO };
    enum { RATE = 40 };
    many_t *many = open_linked(priorities, 2, RATE);
    int64_t longest_us = 0;
    ps_publication_t *bulk = many->pubs[1];
    publish(many, bulk, TERM * 7 / 8);
    run_us(many, 5000); /* the first messages have 64 KiB */
    const int64_t idle_us = kernel.idle_us;
    for (int32_t i = 0; bulk->sender_position < TERM * 3 / 4; i++) {
        run_us(many, 35 * (i % 7));
        open_window(many, bulk, (int32_t)bulk->sender_position / FRAME * FRAME, TERM / 2);
        const int64_t waited_us = wait_us(many, many->pubs[0]);
        longest_us = waited_us > longest_us ? waited_us : longest_us;
    }
    CHECK_EQ(many->rig->endpoint->turn_most, PS_BANDS_QUANTUM_MIN);
    CHECK(longest_us <= (PS_BANDS_QUANTUM_MIN + FRAME) / RATE + RETRY_US + 2 * CYCLE_US);
    CHECK_EQ(kernel.idle_us, idle_us);
    close_linked(many);
}

/* The bound of a turn is the number of bytes that the link takes in 50 us. */
static void test_a_fast_link_has_longer_turns(void)
{
    int32_t priorities[BULK];
    for (int32_t i = 0; i < BULK; i++) {
        priorities[i] = 300;
    }
    many_t *many = open_linked(priorities, BULK, 800);
    for (int32_t i = 0; i < BULK; i++) {
        publish(many, many->pubs[i], TERM / 2);
    }
    run_us(many, 5000);
    CHECK(many->rig->endpoint->turn_most > 36000 && many->rig->endpoint->turn_most < 44000);
    kernel.rate = 400;
    run_us(many, 5000);
    CHECK(many->rig->endpoint->turn_most > 18000 && many->rig->endpoint->turn_most < 22000);
    close_linked(many);
}

/* 10 ms after the last refusal, a lone stream sends 64 datagrams in a turn again. */
static void test_the_bound_ends_when_the_socket_has_room(void)
{
    static const int32_t priorities[] = { 300 };
    many_t *many = open_linked(priorities, 1, 40);
    ps_publication_t *pub = many->pubs[0];
    publish(many, pub, TERM / 4);
    run_us(many, 5000);
    CHECK_EQ(many->rig->endpoint->turn_most, PS_BANDS_QUANTUM_MIN);
    kernel.most = 0;
    kernel.rate = 1000;
    publish(many, pub, TERM * 3 / 8);
    run_us(many, 1000);
    CHECK_EQ(pub->sender_position, ps_log_producer_position(&pub->log));
    CHECK(kernel.most > 0 && kernel.most <= PS_BANDS_QUANTUM_MIN + FRAME);
    CHECK_EQ(many->rig->endpoint->turn_most, PS_BANDS_QUANTUM_MIN);
    run_us(many, 12000);
    CHECK_EQ(many->rig->endpoint->turn_most, INT64_MAX);
    publish(many, pub, ps_log_producer_position(&pub->log) + 64 * FRAME);
    run_us(many, 500);
    CHECK_EQ(kernel.most, 64 * FRAME);
    close_linked(many);
}

static int64_t short_sends(const many_t *many)
{
    return atomic_load(ps_counter_cell(many->rig->driver->context.params.cnc, PS_SYS_SHORT_SENDS));
}

/* A socket that a burst fills from time to time is not slow. */
static void test_single_refusals_bound_no_turn(void)
{
    static const int32_t priorities[] = { 300 };
    many_t *many = open_linked(priorities, 1, 1000);
    ps_publication_t *pub = many->pubs[0];
    const int64_t before = short_sends(many);
    kernel.buffer = MESSAGE_MOST / 2;
    for (int32_t i = 1; i <= 5; i++) {
        publish(many, pub, (int64_t)i * 64 * FRAME);
        run_us(many, 1500);
        CHECK_EQ(pub->sender_position, (int64_t)i * 64 * FRAME);
    }
    CHECK(short_sends(many) - before >= 5);
    CHECK_EQ(many->rig->endpoint->turn_most, INT64_MAX);
    close_linked(many);
}

/* Retransmits have the same bound. */
static void test_turns_of_retransmits_are_short_too(void)
{
    static const int32_t priorities[] = { 300 };
    many_t *many = open_linked(priorities, 1, 40);
    ps_publication_t *lossy = many->pubs[0];
    uint8_t out[PS_CONTROL_MAX];
    publish(many, lossy, 300 * FRAME);
    run_us(many, 10000);
    CHECK_EQ(lossy->sender_position, 300 * FRAME);
    CHECK_EQ(many->rig->endpoint->turn_most, PS_BANDS_QUANTUM_MIN);
    const ps_nak_t nak = { lossy->log.session_id, 1, 0, 200 * FRAME, 90 * FRAME };
    rig_inject(many->rig, &many->rig->peer, out, ps_wire_build_nak(out, &nak));
    while (lossy->retransmit.pending == 0) {
        step(many);
    }
    kernel.most = 0;
    while (lossy->retransmit.pending > 0) {
        step(many);
    }
    CHECK(kernel.most > 0 && kernel.most <= PS_BANDS_QUANTUM_MIN + FRAME);
    close_linked(many);
}

int main(void)
{
    test_the_top_band_waits_for_a_short_message();
    test_a_fast_link_has_longer_turns();
    test_the_bound_ends_when_the_socket_has_room();
    test_single_refusals_bound_no_turn();
    test_turns_of_retransmits_are_short_too();
    return 0;
}
