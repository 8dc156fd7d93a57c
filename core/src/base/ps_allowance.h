/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_allowance.h: an allowance limits a count that other threads increase; the limit rises at a
 * given rate. If the count exceeds the limit, the caller waits until the limit has grown by the
 * whole excess. In a token bucket (ps_pacer.h), in contrast, the debt is at most one burst. The
 * caller chooses the unit of the count (bytes or messages). Pure: no clock, no allocation. Owner:
 * the sender.
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
    int64_t burst;    /* The limit never rises more than this number of units above the count. At
                       * least 1. */
    int64_t limit;    /* at at_ns, whole units */
    int64_t fraction; /* nano-units in addition to limit */
    int64_t at_ns;
    int64_t taken;   /* Count at the last call. While the count does not grow, the limit rises at
                      * most `burst` units above the count. */
    int32_t started; /* 0: at_ns and `limit` have no values yet */
} ps_allowance_t;

/* `rate` is in units per second (<= 0: unlimited), `burst` in units. */
void ps_allowance_init(ps_allowance_t *allowance, int64_t rate, int64_t burst);
/* The caller passes the present count as `taken`. Returns the number of units by which the count
 * may still grow at now_ns: INT64_MAX if unlimited, <= 0: none. At the first call, a full burst is
 * available. `taken` may decrease. If now_ns is lower than in the call before, the limit does not
 * rise. */
int64_t ps_allowance_room(ps_allowance_t *allowance, int64_t taken, int64_t now_ns);
/* Returns the time at which the caller may take `units` (at most the burst). The time is computed
 * from the state that the last call of ps_allowance_room stored. */
int64_t ps_allowance_ready_ns(const ps_allowance_t *allowance, int64_t taken, int64_t units);

#endif
