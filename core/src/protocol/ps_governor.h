/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_governor.h: the pressure on a sender, and the measures against it (docs/scheduling.md).
 *
 *   pressure = max(depth, latency, min(busy, 0.15 + latency))
 *
 * depth: number of streams that wait longer than a round, divided by 32 for each worker. latency:
 * mean wait for a turn, divided by 5 ms. busy: share of the time with ready streams. All values are
 * in parts per million. A wait counts only the time in which the thread had a processor. No clock,
 * no I/O. Owner: one thread. */
#ifndef PS_GOVERNOR_H
#define PS_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define PS_GOVERNOR_SAMPLE_NS INT64_C(100000000)
/* After this time without samples, pressure begins at 0; the same value as PS_PRESSURE_STALE_NS. */
#define PS_GOVERNOR_STALE_NS    INT64_C(500000000)
#define PS_GOVERNOR_COALESCE_NS INT64_C(20000000)
#define PS_GOVERNOR_DEFERRED_NS                                                                    \
    INT64_C(1000000000) /* interval in which a deferred stream sends
                                                      * once */
#define PS_GOVERNOR_LATENCY_NS   INT64_C(5000000)
#define PS_GOVERNOR_SUSTAINED_NS INT64_C(500000000)
enum {
    PS_GOVERNOR_FULL = 1000000,
    PS_GOVERNOR_COALESCE = 200000,
    PS_GOVERNOR_STATUS = 400000,
    PS_GOVERNOR_DEFER = 800000,
    PS_GOVERNOR_RELEASE = 600000,
    PS_GOVERNOR_THROTTLE = 980000,
    PS_GOVERNOR_DEPTH = 32 /* number of late streams that means full pressure */
};

typedef struct ps_governor {
    int32_t pressure, depth, latency, busy; /* ppm, of the last sample */
    int64_t latency_ns;                     /* moving average */
    int64_t coalesce_ns;                    /* time for which a stream may hold back a partial
                                             * datagram */
    int64_t status_interval_ns;             /* least time between two status messages; 0: none */
    int64_t retry_after_ns;                 /* delay that throttled publishers must observe; 0: no
                                             * publisher is throttled */
    bool defers;                            /* true: streams with a priority below 0 are withheld */
    bool holds;                             /* coalesces or defers */
    int64_t sampled_ns;                     /* time of the last sample */
    int64_t high_since_ns;                  /* time since which pressure exceeds PS_GOVERNOR_DEFER;
                                             * -1: pressure does not exceed it */
    int64_t waited_ns;                      /* sum of the waits since the last sample */
    int64_t waits;
    int32_t forced; /* pressure in ppm that a test sets in place of the measured one; -1: none */
} ps_governor_t;

typedef struct ps_governor_sample {
    int64_t now_ns;
    int64_t idle_ns;      /* time without ready streams since the last sample */
    int64_t ran_ns;       /* processor time of the thread since the last sample; -1: not measured */
    int32_t late_streams; /* number of streams that wait longer than a round */
    int32_t workers;
} ps_governor_sample_t;

void ps_governor_init(ps_governor_t *governor);
/* Takes a sample; called once in PS_GOVERNOR_SAMPLE_NS while there is work. True: a step changed.
 * After a longer time without samples, pressure begins at 0. */
bool ps_governor_step(ps_governor_t *governor, const ps_governor_sample_t *sample);

/* Records the time that a stream waited for its turn. */
static inline void ps_governor_waited(ps_governor_t *governor, int64_t wait_ns)
{
    governor->waited_ns += wait_ns;
    governor->waits++;
}

#endif
