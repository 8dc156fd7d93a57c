/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_governor.h: the pressure on a sender and the steps that it causes (docs/scheduling.md).
 *
 *   pressure = max(depth, latency, min(busy, 0.15 + latency))
 *
 * depth: streams that wait longer than a round, of 32 a worker. latency: mean wait for a turn, of
 * 5 ms. busy: share of the time with ready streams. All are parts of a million. Waits count only
 * the share of the time in which the thread had a processor. No clock, no I/O. Owner: one
 * thread. */
#ifndef PS_GOVERNOR_H
#define PS_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define PS_GOVERNOR_SAMPLE_NS INT64_C(100000000)
/* After a longer time without samples, pressure begins at 0; as PS_PRESSURE_STALE_NS. */
#define PS_GOVERNOR_STALE_NS     INT64_C(500000000)
#define PS_GOVERNOR_COALESCE_NS  INT64_C(20000000)
#define PS_GOVERNOR_DEFERRED_NS  INT64_C(1000000000) /* a deferred stream sends once in this time */
#define PS_GOVERNOR_LATENCY_NS   INT64_C(5000000)
#define PS_GOVERNOR_SUSTAINED_NS INT64_C(500000000)
enum {
    PS_GOVERNOR_FULL = 1000000,
    PS_GOVERNOR_COALESCE = 200000,
    PS_GOVERNOR_STATUS = 400000,
    PS_GOVERNOR_DEFER = 800000,
    PS_GOVERNOR_RELEASE = 600000,
    PS_GOVERNOR_THROTTLE = 980000,
    PS_GOVERNOR_DEPTH = 32 /* late streams of one worker that are full pressure */
};

typedef struct ps_governor {
    int32_t pressure, depth, latency, busy; /* ppm, of the last sample */
    int64_t latency_ns;                     /* moving average */
    int64_t coalesce_ns;                    /* a stream may hold a partial datagram back so long */
    int64_t status_interval_ns;             /* least time between status messages; 0: any */
    int64_t retry_after_ns;                 /* for publishers that are throttled; 0: none is */
    bool defers;                            /* streams of priority below 0 are withheld */
    bool holds;                             /* coalesces or defers */
    int64_t sampled_ns;                     /* when the last sample was taken */
    int64_t high_since_ns;                  /* since when pressure exceeds PS_GOVERNOR_DEFER; -1 */
    int64_t waited_ns;                      /* sum of the waits since the last sample */
    int64_t waits;
    int32_t forced; /* ppm that a test sets in place of the signals; -1: none */
} ps_governor_t;

typedef struct ps_governor_sample {
    int64_t now_ns;
    int64_t idle_ns;      /* time without ready streams since the last sample */
    int64_t ran_ns;       /* processor time of the thread since then; -1: not measured */
    int32_t late_streams; /* that wait longer than a round */
    int32_t workers;
} ps_governor_sample_t;

void ps_governor_init(ps_governor_t *governor);
/* Takes a sample, once in PS_GOVERNOR_SAMPLE_NS while there is work. True: a step changed. After a
 * longer time without samples, pressure begins at 0. */
bool ps_governor_step(ps_governor_t *governor, const ps_governor_sample_t *sample);

/* Notes the wait of a stream for its turn. */
static inline void ps_governor_waited(ps_governor_t *governor, int64_t wait_ns)
{
    governor->waited_ns += wait_ns;
    governor->waits++;
}

#endif
