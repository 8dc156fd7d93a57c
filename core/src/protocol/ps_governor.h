/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_governor.h: the governor measures the pressure on the sender, and limits the sender's work
 * (docs/scheduling.md).
 *
 *   pressure = max(depth, latency, min(busy, 0.15 + latency))
 *
 * The value `depth` is the number of streams that wait longer than a round, divided by (32 * number
 * of workers). The value `latency` is the mean time that a stream waits for its turn, divided by 5
 * ms. The value `busy` is the share of the time in which at least one stream is ready to send. All
 * values are in parts per million. While the sender's thread has no processor, the waiting time of
 * streams does not grow. No clock, no I/O. Owner: one thread. */
#ifndef PS_GOVERNOR_H
#define PS_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define PS_GOVERNOR_SAMPLE_NS INT64_C(100000000)
/* If the governor took no sample for PS_GOVERNOR_STALE_NS, the pressure begins at 0 again. The
 * value equals PS_PRESSURE_STALE_NS. */
#define PS_GOVERNOR_STALE_NS    INT64_C(500000000)
#define PS_GOVERNOR_COALESCE_NS INT64_C(20000000)
/* While the governor delays a stream, the stream may send once in each interval of this length. */
#define PS_GOVERNOR_DEFERRED_NS  INT64_C(1000000000)
#define PS_GOVERNOR_LATENCY_NS   INT64_C(5000000)
#define PS_GOVERNOR_SUSTAINED_NS INT64_C(500000000)
enum {
    PS_GOVERNOR_FULL = 1000000,
    PS_GOVERNOR_COALESCE = 200000,
    PS_GOVERNOR_STATUS = 400000,
    PS_GOVERNOR_DEFER = 800000,
    PS_GOVERNOR_RELEASE = 600000,
    PS_GOVERNOR_THROTTLE = 980000,
    PS_GOVERNOR_DEPTH = 32 /* `depth` is 100 % if, for each worker, this number of streams have
                            * waited longer than one round of all bands. */
};

typedef struct ps_governor {
    int32_t pressure, depth, latency, busy; /* ppm, of the last sample */
    int64_t latency_ns;                     /* moving average */
    int64_t coalesce_ns;                    /* Longest time for which the sender delays a datagram
                                             * that is not full; 0: no delay. */
    int64_t status_interval_ns;             /* Least time between two status messages of an image;
                                             * 0: no least time. */
    int64_t retry_after_ns;                 /* Time for which publishers must wait after
                                             * PS_THROTTLED; 0: no publisher is throttled. */
    bool defers;                            /* True if the governor delays the data of streams with
                                             * a priority below 0. */
    bool holds;                             /* coalesces or defers */
    int64_t sampled_ns;                     /* time of the last sample */
    int64_t high_since_ns;                  /* Time at which the pressure rose above
                                             * PS_GOVERNOR_DEFER; -1: the pressure is not above this
                                             * value. */
    int64_t waited_ns;                      /* Sum of the times for which streams waited for their
                                             * turns since the last sample. */
    int64_t waits;
    int32_t forced; /* Pressure in ppm that a test sets in place of the measured pressure; -1: use
                     * the measured pressure. */
} ps_governor_t;

typedef struct ps_governor_sample {
    int64_t now_ns;
    int64_t idle_ns;      /* Idle time since the last sample: total time for which no stream was
                           * ready to send. */
    int64_t ran_ns;       /* The processor time of the sender's thread since the last sample; -1:
                           * not measured. */
    int32_t late_streams; /* Number of streams that have waited for longer than a round of all
                           * bands. */
    int32_t workers;
} ps_governor_sample_t;

void ps_governor_init(ps_governor_t *governor);
/* Computes the pressure from a sample. The sender calls this function once in PS_GOVERNOR_SAMPLE_NS
 * while it has work. Returns true if the governor has begun or ended one of its two delays: the
 * delay of streams with a low priority, or the delay of datagrams that are not full. If the last
 * sample is older than PS_GOVERNOR_STALE_NS, the pressure begins at 0. */
bool ps_governor_step(ps_governor_t *governor, const ps_governor_sample_t *sample);

/* Records the time that a stream waited for its turn. */
static inline void ps_governor_waited(ps_governor_t *governor, int64_t wait_ns)
{
    governor->waited_ns += wait_ns;
    governor->waits++;
}

#endif
