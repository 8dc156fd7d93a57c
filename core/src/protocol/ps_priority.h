/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_priority.h: the priority of a stream (docs/scheduling.md): the stated one, or one by recency,
 * plus aging. Fixed point, from a table. Pure. */
#ifndef PS_PRIORITY_H
#define PS_PRIORITY_H

#include <stdint.h>

#define PS_PRIORITY_TICK_NS INT64_C(50000000)
enum {
    PS_PRIORITY_MAX = 1000, /* bound of a stated priority, and of aging */
    PS_PRIORITY_MIN = -1000,
    PS_PRIORITY_RECENT = 500,        /* priority of a stream that was consumed just now */
    PS_PRIORITY_AUTO = INT32_MAX,    /* as a parameter: no priority is stated, so recency applies */
    PS_PRIORITY_NONE = INT32_MAX - 1 /* as a parameter: no priority is stated and recency is off, so
                                      * it is 0 */
};

/* Returns 500 * 2^(-t / 30 s), rounded down. t is rounded up to the next tick, so a stream consumed
 * just now has 499. Returns 0 for t >= 300 s and for a negative t. */
int32_t ps_priority_recency(int64_t since_consumed_ns);
/* Returns 5 for each tick of waiting (100 ticks a second), at most PS_PRIORITY_MAX. */
int32_t ps_priority_aging(int64_t waited_ns);
/* Returns the ps_band of an effective priority. 750, 500, 250 and 0 are the lowest priorities of
 * B4, B3, B2 and B1. */
int32_t ps_priority_band(int32_t effective);

#endif
