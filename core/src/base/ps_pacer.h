/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pacer.h: a token bucket, which limits a stream to a rate and to bounded bursts. The caller
 * chooses the unit in which the bucket counts (bytes, messages or datagrams). Pure: no clock, no
 * allocation; the caller passes the time. Owner: the thread that sends.
 *
 * The level (content) of the bucket is an integer number of nano-units (1e-9 units). Each
 * nanosecond adds `rate` nano-units, so the level is exact and no rounding error accumulates.
 *
 *     pacer, ps_pacer_set(&p, 1000000, 2816, now)      1 MB/s, at most two datagrams at once
 *     if (ps_pacer_room(&p, now) > 0) { send; ps_pacer_spend(&p, bytes); }
 *     else due = ps_pacer_ready_ns(&p, 1, now);
 */
#ifndef PS_PACER_H
#define PS_PACER_H

#include <stdbool.h>
#include <stdint.h>

/* Bounds of rate and burst; larger values are reduced to the bound. */
#define PS_PACER_RATE_MAX  (INT64_C(1) << 40)
#define PS_PACER_BURST_MAX (INT64_C(1) << 31)

typedef struct ps_pacer {
    int64_t rate;  /* units per second; 0: unlimited */
    int64_t burst; /* Largest number of units that the bucket saves while nothing is sent. */
    int64_t level; /* Nano-units in the bucket at filled_ns; a negative level is a debt of at most
                    * one burst. */
    int64_t filled_ns;
} ps_pacer_t;

/* Unlimited. */
void ps_pacer_init(ps_pacer_t *pacer);
/* Sets rate (units per second, <= 0: unlimited) and burst (units, at least 1). The bucket keeps its
 * saved units, up to the new burst. An unlimited bucket starts full. */
void ps_pacer_set(ps_pacer_t *pacer, int64_t rate, int64_t burst, int64_t now_ns);
static inline bool ps_pacer_limits(const ps_pacer_t *pacer)
{
    return pacer->rate > 0;
}
/* Returns the number of whole units that the caller may send at now_ns; <= 0: none, INT64_MAX:
 * unlimited. If now_ns is lower than in the call before, the bucket gets no units. */
int64_t ps_pacer_room(ps_pacer_t *pacer, int64_t now_ns);
/* Takes `units` (>= 0) from the bucket. The caller may take more units than the bucket contains,
 * because it cannot send a part of a datagram. The bucket then has a debt of at most one burst. */
void ps_pacer_spend(ps_pacer_t *pacer, int64_t units);
/* Adds `units` (>= 0) to the bucket, in addition to the units that it gets as time passes. Units
 * beyond the burst are lost. */
void ps_pacer_earn(ps_pacer_t *pacer, int64_t units);
/* Returns the time at which the bucket will contain `units` (at most the burst); now_ns if the
 * bucket already contains them. */
int64_t ps_pacer_ready_ns(ps_pacer_t *pacer, int64_t units, int64_t now_ns);

#endif
