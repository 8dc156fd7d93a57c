/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_priority.h: the priority of a stream (docs/scheduling.md). The channel URI states the
 * priority; otherwise the priority falls with the time since a reader last read the stream. While a
 * stream waits for its turn, its priority rises (aging). The functions use fixed-point numbers from
 * a table. Pure. */
#ifndef PS_PRIORITY_H
#define PS_PRIORITY_H

#include <stdint.h>

#include "ps_types.h"

#define PS_PRIORITY_TICK_NS INT64_C(50000000)
enum {
    PS_PRIORITY_RECENT = 500,         /* Priority of a stream whose data was read just now, if the
                                      * channel states no priority. */
    PS_PRIORITY_AUTO = INT32_MAX,     /* Special value: the channel states no priority, so the
                                      * priority depends on the time since a reader last read the
                                      * stream. */
    PS_PRIORITY_NONE = INT32_MAX - 1, /* Special value: the channel states no priority, and the
                                      * priority does not depend on the time of the last read. The
                                      * priority is 0. */
    PS_PRIORITY_BACKGROUND = INT32_MAX - 2 /* Special value: the stream carries relayed data, and is
                                            * in the background band. The stream's priority does not
                                            * rise while the stream waits. The governor treats the
                                            * stream as one of priority 0. */
};

/* Returns the priority of a stream from the time t since a reader last read the stream: 500 * 2^(-t
 * / 30 s), rounded down. The time t is first rounded up to the next tick, so the largest result is
 * 499. Returns 0 for t >= 300 s and for a negative t. */
int32_t ps_priority_recency(int64_t since_consumed_ns);
/* Returns the bonus (aging) that is added to the priority of a stream that has waited for
 * waited_ns; at most PS_PRIORITY_MAX. */
int32_t ps_priority_aging(int64_t waited_ns);
/* Returns the band (ps_band) of a stream from its effective priority, which includes the bonus for
 * waiting. The lowest priorities of the bands B4, B3, B2 and B1 are 750, 500, 250 and 0. */
int32_t ps_priority_band(int32_t effective);

#endif
