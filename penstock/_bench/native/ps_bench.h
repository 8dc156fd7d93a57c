/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_bench.h: the load loops of `penstock bench --client native`: what a C program would write
 * around penstock.h, run with the interpreter's lock released.  The loops are an extension of their
 * own and call the core through its table of functions.  Also the cffi declaration.
 *
 * Every peer in bench/ sends the same messages and computes the same hash. Message i is size
 * bytes; its first 8 bytes hold i (little-endian), its last 8 bytes repeat the byte (i & 0xff).
 * Receivers fold h = (h ^ first8) * 0x9E3779B97F4A7C15 + last8 over the messages in order. */
#ifndef PS_BENCH_H
#define PS_BENCH_H

#include <stdint.h>

#include "penstock.h"
#include "ps_fast.h"

typedef struct ps_bench_result {
    int64_t messages;
    int64_t bytes;        /* payload */
    int64_t refusals;     /* offers that were refused */
    int64_t out_of_order; /* number of messages with an unexpected number */
    uint64_t hash;
    int64_t first_ns; /* monotonic times of the first and the last message of this call */
    int64_t last_ns;
} ps_bench_result_t;

/* Call this function before all others: it sets the core whose functions the loops call.
 * PS_E_VERSION: the core is from another build. */
int ps_bench_connect(const ps_fast_table_t *core);

/* Offers messages of size >= 16 bytes until until_ns (monotonic) or max_messages. Message numbers
 * continue at out->messages, so several calls act as one. Waits by yielding, then by parking. 0 or
 * a code. */
int ps_bench_publish(ps_client_t *client, ps_pub_t *pub, int32_t size, int64_t until_ns,
                     int64_t max_messages, ps_bench_result_t *out);
/* Polls until until_ns or out->messages == max_messages; adds the result to out. */
int ps_bench_receive(ps_client_t *client, ps_sub_t *sub, int64_t until_ns, int64_t max_messages,
                     ps_bench_result_t *out);
/* Round trips: offers size bytes, waits for the echo; times_ns[count] gets each.  spin_ns: how long
 * to spin before parking (0: park at once). */
int ps_bench_ping(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int32_t size, int32_t count,
                  int64_t spin_ns, int64_t *times_ns);
/* Each ping carries its number; PS_E_CORRUPT if a pong has another number. */

/* Echoes every message until until_ns. */
int ps_bench_pong(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int64_t until_ns,
                  int64_t spin_ns);

/* Writes the same messages for loops written in Python: count messages, beginning with number
 * first, without space between them. */
void ps_bench_fill(uint8_t *base, int32_t size, int64_t first, int32_t count);
/* Adds count received messages, which lie back to back, to the hash of out. */
void ps_bench_fold(const uint8_t *base, int32_t size, int64_t count, ps_bench_result_t *out);
/* Like ps_bench_fold, for the messages that a poll returned. */
void ps_bench_fold_messages(const ps_message_t *messages, int32_t count, ps_bench_result_t *out);
/* Returns the hash of a receiver after the first count messages. */
uint64_t ps_bench_expected(int64_t count);

/* Offers per_tick messages to each of count publications every tick_ns, until until_ns; messages
 * that do not fit into a window are skipped in this tick. Adds the results to outs[count]. */
int ps_bench_publish_paced(ps_client_t *client, ps_pub_t **pubs, int32_t count, int32_t size,
                           int32_t per_tick, int64_t tick_ns, int64_t until_ns,
                           ps_bench_result_t *outs);
/* Polls count subscriptions in turn until until_ns; adds the results to outs[count]. */
int ps_bench_receive_many(ps_client_t *client, ps_sub_t **subs, int32_t count, int64_t until_ns,
                          ps_bench_result_t *outs);

#endif
