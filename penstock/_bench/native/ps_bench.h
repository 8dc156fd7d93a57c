/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_bench.h: the load loops of `penstock bench --client native`: what a C program would write
 * around penstock.h, run with the interpreter's lock released.  The loops are an extension of their
 * own and call the core through its table of functions.  Also the cffi declaration.
 *
 * Every peer in bench/ sends the same messages and computes the same hash. Each message has `size`
 * bytes. The first 8 bytes of message number i contain i (little-endian); the last 8 bytes repeat
 * the byte (i & 0xff). A receiver starts with the hash h = 0, and for each message, in order,
 * computes h = (h ^ first 8 bytes) * 0x9E3779B97F4A7C15 + last 8 bytes. */
#ifndef PS_BENCH_H
#define PS_BENCH_H

#include <stdint.h>

#include "penstock.h"
#include "ps_fast.h"

typedef struct ps_bench_result {
    int64_t messages;
    int64_t bytes;    /* payload */
    int64_t refusals; /* offers that were refused */
    /* Messages that came out of order: the number of such a message differs from the count of
     * messages received before it. */
    int64_t out_of_order;
    uint64_t hash;
    int64_t first_ns; /* monotonic times of the first and the last message of this call */
    int64_t last_ns;
} ps_bench_result_t;

/* Call ps_bench_connect before all other functions. It chooses the core; the loops call the
 * functions of this core. ps_bench_connect returns PS_E_VERSION if the core is from another
 * build. */
int ps_bench_connect(const ps_fast_table_t *core);

/* Offers messages of `size` bytes (at least 16) until the monotonic time until_ns, or until
 * max_messages were sent. The first message of a call gets the present value of out->messages as
 * its number. With the same `out`, a second call therefore continues the numbers of the first.
 * After the first refused offers, the loop yields the processor; after further refused offers, it
 * sleeps. Returns 0 or an error code. */
int ps_bench_publish(ps_client_t *client, ps_pub_t *pub, int32_t size, int64_t until_ns,
                     int64_t max_messages, ps_bench_result_t *out);
/* Polls the subscription until the monotonic time until_ns, or until out->messages is max_messages.
 * Adds the numbers of received messages and bytes to out. */
int ps_bench_receive(ps_client_t *client, ps_sub_t *sub, int64_t until_ns, int64_t max_messages,
                     ps_bench_result_t *out);
/* Measures `count` round trips: in each of them, sends a message of `size` bytes and waits until
 * the peer has returned this message. Writes the duration of each round trip to times_ns. spin_ns
 * is the time for which the loop polls before it sleeps (0: it sleeps immediately). */
int ps_bench_ping(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int32_t size, int32_t count,
                  int64_t spin_ns, int64_t *times_ns);
/* ps_bench_ping writes a number into each message. If the peer returns a message with another
 * number than that of the message just sent, ps_bench_ping returns PS_E_CORRUPT. */

/* Echoes every message until until_ns. */
int ps_bench_pong(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int64_t until_ns,
                  int64_t spin_ns);

/* Writes `count` messages into the memory at `base`, without space between the messages. Loops
 * written in Python use this function. The first message has the number `first`. */
void ps_bench_fill(uint8_t *base, int32_t size, int64_t first, int32_t count);
/* Adds `count` received messages to out->hash. The messages are in the memory at `base`, without
 * space between them. */
void ps_bench_fold(const uint8_t *base, int32_t size, int64_t count, ps_bench_result_t *out);
/* Adds messages to out->hash like ps_bench_fold, but takes them from the array of messages that a
 * poll returned. */
void ps_bench_fold_messages(const ps_message_t *messages, int32_t count, ps_bench_result_t *out);
/* Returns the right hash of the messages 0 to count - 1, to compare a receiver's hash with it. */
uint64_t ps_bench_expected(int64_t count);

/* Once in each interval of tick_ns (a tick), offers per_tick messages to each of `count`
 * publications, until the monotonic time until_ns. If a publication refuses an offer because its
 * window is full, the loop does not repeat this offer in the same tick. Adds the results for
 * publication i to outs[i]. */
int ps_bench_publish_paced(ps_client_t *client, ps_pub_t **pubs, int32_t count, int32_t size,
                           int32_t per_tick, int64_t tick_ns, int64_t until_ns,
                           ps_bench_result_t *outs);
/* Polls `count` subscriptions in turn until the monotonic time until_ns. Adds the results for
 * subscription i to outs[i]. */
int ps_bench_receive_many(ps_client_t *client, ps_sub_t **subs, int32_t count, int64_t until_ns,
                          ps_bench_result_t *outs);

#endif
