/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_timer.h: computes the time of the first request for a missing range, and the times of the
 * repeats (docs/spec/wire-format.md section 6). */
#ifndef PS_NAK_TIMER_H
#define PS_NAK_TIMER_H

#include <stdint.h>

#include "ps_random.h"

typedef struct ps_nak_policy {
    int64_t delay_ns;       /* unicast: delay before the first NAK of a gap */
    int64_t retry_ns;       /* unicast: delay between two NAKs of the same gap */
    int64_t max_backoff_ns; /* group: largest delay of the distribution */
    int64_t group_size;     /* group: receivers expected to see the same loss, >= 1 */
    uint8_t group;          /* 1: random back-off, so that the NAK of one receiver serves all
                             * receivers */
} ps_nak_policy_t;

/* Returns the delay before the first NAK of a new gap. */
int64_t ps_nak_first_ns(const ps_nak_policy_t *policy, ps_random_t *random);

/* Returns the delay before the next NAK of the same gap, after `requested` >= 0 NAKs. answer_ns:
 * the longest time in which an answer arrives, computed from measured round trips. A second NAK
 * before this time would only cause duplicates. If answer_ns is 0 (unknown), the delay doubles each
 * time, up to 100 ms, so that NAKs do not flood a long path. If answer_ns is known, eight NAKs
 * leave at that interval. Then the interval doubles up to 16 times (at most 1 s; the back-off
 * doubles too, up to 100 ms), because a range that is still missing may be lost permanently. If a
 * gap is open for a time t, the number of NAKs is therefore about 9 + log2(t / answer_ns). When the
 * interval has reached its maximum, the number grows linearly. */
int64_t ps_nak_retry_ns(const ps_nak_policy_t *policy, int64_t answer_ns, int32_t requested,
                        ps_random_t *random);

/* Maps a random number u in [0, 2^32) to a delay of the group's distribution: 0 for u = 0, always
 * below max_backoff_ns. */
int64_t ps_nak_backoff_ns(int64_t max_backoff_ns, int64_t group_size, uint32_t u);

#endif
