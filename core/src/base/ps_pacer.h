/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pacer.h: a token bucket: how much of a stream may leave now, so that it keeps a rate and its
 * bursts stay bounded.  The unit is the caller's (bytes, messages, datagrams).  Pure: no clock, no
 * allocation; time comes with each call.  Owner: the thread that sends.
 *
 * Exact: a nanosecond at `rate` units a second is worth `rate` nano-units, which is the unit of
 * the count. No rounding error accumulates, however often the bucket is read.
 *
 *     pacer, ps_pacer_set(&p, 1000000, 2816, now)      1 MB/s, at most two datagrams at once
 *     if (ps_pacer_room(&p, now) > 0) { send; ps_pacer_spend(&p, bytes); }
 *     else due = ps_pacer_ready_ns(&p, 1, now);
 */
#ifndef PS_PACER_H
#define PS_PACER_H

#include <stdbool.h>
#include <stdint.h>

/* Bounds of what may be requested; more is taken as this. */
#define PS_PACER_RATE_MAX  (INT64_C(1) << 40)
#define PS_PACER_BURST_MAX (INT64_C(1) << 31)

typedef struct ps_pacer {
    int64_t rate;  /* units per second; 0: unlimited */
    int64_t burst; /* units: most that is ever saved up */
    int64_t level; /* nano-units there at filled_ns; below 0: in debt, at most one burst */
    int64_t filled_ns;
} ps_pacer_t;

/* Unlimited. */
void ps_pacer_init(ps_pacer_t *pacer);
/* Sets rate (units per second, <= 0: unlimited) and burst (units, at least 1). Saved units stay,
 * cut to the new burst; an unlimited bucket becomes a full one. */
void ps_pacer_set(ps_pacer_t *pacer, int64_t rate, int64_t burst, int64_t now_ns);
static inline bool ps_pacer_limits(const ps_pacer_t *pacer)
{
    return pacer->rate > 0;
}
/* Units that may leave at now_ns: whole ones, <= 0 none (in debt), INT64_MAX when unlimited.  Time
 * that goes backwards counts as standing still. */
int64_t ps_pacer_room(ps_pacer_t *pacer, int64_t now_ns);
/* Takes units (>= 0).  More than there is makes a debt, of at most one burst: what is sent whole
 * (a datagram) need not fit exactly. */
void ps_pacer_spend(ps_pacer_t *pacer, int64_t units);
/* Adds units (>= 0) beside what time brings; what exceeds the burst is lost. */
void ps_pacer_earn(ps_pacer_t *pacer, int64_t units);
/* When `units` (cut to the burst) will be there; now_ns when they are. */
int64_t ps_pacer_ready_ns(ps_pacer_t *pacer, int64_t units, int64_t now_ns);

#endif
