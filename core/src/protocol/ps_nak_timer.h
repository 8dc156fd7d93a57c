/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_timer.h: computes the times at which a receiver sends and repeats the NAK for a missing
 * range (docs/spec/wire-format.md section 6). */
#ifndef PS_NAK_TIMER_H
#define PS_NAK_TIMER_H

#include <stdint.h>

#include "ps_random.h"

/* After more NAKs for a gap than this, the interval between its NAKs grows. */
enum { PS_NAK_PATIENCE = 7 };

typedef struct ps_nak_policy {
    int64_t delay_ns;       /* For unicast: delay from the opening of a gap to its first NAK. */
    int64_t retry_ns;       /* For unicast: delay between two NAKs for the same gap. */
    int64_t max_backoff_ns; /* For groups: upper bound of the random delay before a NAK. */
    int64_t group_size;     /* For groups: expected number of receivers that see the same loss, at
                             * least 1. */
    uint8_t group;          /* 1: delay NAKs at random, so that usually one receiver's NAK serves
                             * the whole group. */
} ps_nak_policy_t;

/* Returns the delay before the first NAK of a new gap. */
int64_t ps_nak_first_ns(const ps_nak_policy_t *policy, ps_random_t *random);

/* Returns the delay before the next NAK for a gap. `requested` (>= 0) is the number of NAKs already
 * sent for this gap. The parameter answer_ns is the longest time that a retransmit needs to arrive,
 * computed from measured round trips. A second NAK before answer_ns has passed would only cause
 * duplicates. If answer_ns is 0 (unknown), the delay doubles with each NAK, up to 100 ms, so that
 * NAKs do not flood a long path. If answer_ns is known, the first eight NAKs leave at intervals of
 * answer_ns. After eight NAKs, the interval doubles with each NAK, because the range may be lost
 * permanently. If a part of the range arrives, the caller lowers `requested` to PS_NAK_PATIENCE.
 * The interval is at most 16 * answer_ns and at most 1 s. In groups, the random delay before a NAK
 * also doubles with each NAK, up to 100 ms. As long as the interval still doubles, a gap that has
 * been open for a time t has caused about 9 + log2(t / answer_ns) NAKs. After the interval has
 * reached its maximum, the number of NAKs grows linearly with t. */
int64_t ps_nak_retry_ns(const ps_nak_policy_t *policy, int64_t answer_ns, int32_t requested,
                        ps_random_t *random);

/* Maps a uniform random number u in [0, 2^32) to the random delay before a NAK in a group. The
 * delay is 0 for u = 0, and always below max_backoff_ns. */
int64_t ps_nak_backoff_ns(int64_t max_backoff_ns, int64_t group_size, uint32_t u);

#endif
