/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_allowance.h: how much may have been taken in all, at a rate: an absolute limit of a count that
 * somebody else moves.  Unlike a token bucket (ps_pacer.h) it has no debt to forget: what was taken
 * beyond the limit is waited for in full, whatever its size.  The unit is the caller's (bytes,
 * messages).  Pure: no clock, no allocation.  Owner: the sender.
 *
 *     taken within any time t <= burst + rate * t + what the last taker went beyond the limit
 *
 *     room = ps_allowance_room(&a, taken, now);          taken + room is the limit to publish
 *     if (room <= 0) due = ps_allowance_ready_ns(&a, taken, 1);
 */
#ifndef PS_ALLOWANCE_H
#define PS_ALLOWANCE_H

#include <stdint.h>

typedef struct ps_allowance {
    int64_t rate;     /* units per second; 0: unlimited */
    int64_t burst;    /* units: furthest that the limit is ahead of what was taken; at least 1 */
    int64_t limit;    /* at at_ns, whole units */
    int64_t fraction; /* nano-units beyond it */
    int64_t at_ns;
    int64_t taken;   /* as last told: what a silence saves up is bounded by it */
    int32_t started; /* 0: at_ns and limit are not set */
} ps_allowance_t;

/* rate: units per second, <= 0: unlimited; burst: units. */
void ps_allowance_init(ps_allowance_t *allowance, int64_t rate, int64_t burst);
/* Units that may still be taken at now_ns, when `taken` have been: INT64_MAX when unlimited, <= 0
 * none.  The first call begins with a full burst.  `taken` may go back.  Time that goes backwards
 * counts as standing still. */
int64_t ps_allowance_room(ps_allowance_t *allowance, int64_t taken, int64_t now_ns);
/* When `units` (cut to the burst) may be taken, by the time of the last ps_allowance_room. */
int64_t ps_allowance_ready_ns(const ps_allowance_t *allowance, int64_t taken, int64_t units);

#endif
