/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_allowance.h: limits a count that other threads increase; the limit grows at a rate. Unlike a
 * token bucket (ps_pacer.h) an allowance never forgets a debt: if the count exceeds the limit, the
 * caller waits until the limit has grown by the whole excess. The caller chooses the unit (bytes,
 * messages). Pure: no clock, no allocation. Owner: the sender.
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
    int64_t burst;    /* units: largest distance of the limit above the count; at least 1 */
    int64_t limit;    /* at at_ns, whole units */
    int64_t fraction; /* nano-units in addition to limit */
    int64_t at_ns;
    int64_t taken;   /* count at the last call; bounds the units that accumulate in an idle time */
    int32_t started; /* 0: at_ns and limit are not set */
} ps_allowance_t;

/* rate: units per second, <= 0: unlimited; burst: units. */
void ps_allowance_init(ps_allowance_t *allowance, int64_t rate, int64_t burst);
/* Returns the number of units that may still be taken at now_ns if the count is `taken`: INT64_MAX
 * if unlimited, <= 0: none. The first call begins with a full burst. `taken` may decrease. A
 * decrease of now_ns counts as no passed time. */
int64_t ps_allowance_room(ps_allowance_t *allowance, int64_t taken, int64_t now_ns);
/* Returns the time at which `units` (at most the burst) may be taken, computed from the state at
 * the last ps_allowance_room. */
int64_t ps_allowance_ready_ns(const ps_allowance_t *allowance, int64_t taken, int64_t units);

#endif
