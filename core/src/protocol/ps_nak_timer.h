/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_timer.h: when to request a missing range, and when to request it again
 * (docs/spec/wire-format.md section 6). */
#ifndef PS_NAK_TIMER_H
#define PS_NAK_TIMER_H

#include <stdint.h>

#include "ps_random.h"

typedef struct ps_nak_policy {
    int64_t delay_ns;       /* unicast: before the first NAK of a gap */
    int64_t retry_ns;       /* unicast: between NAKs of the same gap */
    int64_t max_backoff_ns; /* group: upper end of the distribution */
    int64_t group_size;     /* group: receivers expected to see the same loss, >= 1 */
    uint8_t group;          /* 1: random back-off, so that one NAK serves all */
} ps_nak_policy_t;

/* Delay before the first NAK of a new gap. */
int64_t ps_nak_first_ns(const ps_nak_policy_t *policy, ps_random_t *random);

/* Delay before the next NAK of the same gap, after `asked` >= 0 NAKs. answer_ns: the longest time
 * of an answer, from measured round trips; an earlier NAK only produces duplicates. If 0
 * (unknown), the delay doubles each time, up to 100 ms, so that a long path sees no storm. Known:
 * eight NAKs at the interval of answers. Then the interval doubles to 16 times that (or 1 s; the
 * back-off doubles too, to 100 ms), since a range that is still missing may be lost permanently:
 * NAKs per loss are bounded by 9 + log2 of the time it stays open, then by its length. */
int64_t ps_nak_retry_ns(const ps_nak_policy_t *policy, int64_t answer_ns, int32_t requested,
                        ps_random_t *random);

/* One draw of the group distribution for u in [0, 2^32): 0 for u = 0, below max_backoff_ns
 * always. */
int64_t ps_nak_backoff_ns(int64_t max_backoff_ns, int64_t group_size, uint32_t u);

#endif
