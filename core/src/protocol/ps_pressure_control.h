/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_control.h: the sender's part of NAK-strength control (fc=nak; docs/nak-strength.md).
 * The sender computes its sending rate from the PRESSURE frames of receivers. The functions are
 * pure and use only integers: no clock, no allocation, no randomness.
 *
 * When a stream begins, it has no rate limit. A signal is a PRESSURE frame of a receiver. A signal
 * states a level, 1 to 4, which shows how full the receive queue is. A signal also states three
 * values of the receiver's slowest reader: the rate r, the cadence (the interval between batches of
 * reads) and the residue (the bytes unread after the last batch). A signal also states the overrun:
 * the bytes sent beyond the receiver's capacity. From the values of a signal the sender computes
 * the rate that the receiver requests (docs/nak-strength.md, section "Rates of the sender").
 *
 * The sender's rate limit is the lowest rate that a receiver requests. The receiver that requested
 * the lowest rate is the culprit. A signal of the culprit can lower or raise the rate limit; a
 * signal of another receiver can only lower it. The sender divides time into windows. A window
 * lasts 50 ms, two round trips to the culprit, or the culprit's cadence, whichever is longest. If a
 * window passes without a signal of the culprit, the rate limit rises by a step. The wall is the
 * smoothed value of the reader rates r that culprits stated in their signals. A rate limit far
 * below the wall rises by large steps; a rate limit near the wall rises by small steps. Above the
 * wall, the rate limit rises by small steps at first; each further step is larger than the step
 * before.
 *
 * Tests check two bounds. The rate limit never falls below the floor F (PS_PRESSURE_FLOOR). Without
 * signals, a rate limit rises from F to above any rate R in at most ps_pressure_recovery_windows(F,
 * R) windows. After a bounded number of windows without a signal, the sender removes the rate limit
 * of the stream.
 */
#ifndef PS_PRESSURE_CONTROL_H
#define PS_PRESSURE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_pressure_signal.h"

/* PS_PRESSURE_FLOOR is the lowest rate limit in bytes per second. A rate limit of
 * PS_PRESSURE_UNLIMITED means that the rate is not limited. */
#define PS_PRESSURE_FLOOR     (INT64_C(128) * 1024)
#define PS_PRESSURE_UNLIMITED (INT64_C(1) << 40)
enum { PS_PRESSURE_BUCKETS = 8 };

/* The fields of a PRESSURE frame from which the sender computes a rate; unknown values are 0. */
typedef struct ps_pressure_report {
    int64_t receiver_id;
    int32_t level; /* 1..4 */
    int64_t rtt_ns;
    int64_t rate;       /* Bytes per second that the receiver's slowest reader consumes. */
    int64_t cadence_ns; /* of that reader */
    int64_t residue;    /* Number of bytes that the slowest reader left unread after its last batch
                         * of reads. */
    int64_t overrun;    /* bytes beyond the capacity */
    int64_t capacity;   /* bytes, > 0 */
} ps_pressure_report_t;

typedef struct ps_pressure_control {
    int64_t limit; /* bytes per second; PS_PRESSURE_UNLIMITED: none */
    int64_t floor;
    int64_t window_ns;
    int64_t window_end_ns;  /* Time at which the running window ends; 0: the stream has no rate
                             * limit, so no window runs. */
    int64_t base;           /* Sending rate at the beginning of a window. A signal in this window
                             * reduces the rate limit to a fraction of `base`. */
    int64_t base_until_ns;  /* Time until which `base` is valid. At the first signal after this
                             * time, the sender measures its sending rate again and stores it in
                             * `base`. */
    int64_t wall, wall_dev; /* Smoothed value and deviation of the reader rates that culprits
                             * stated; 0: no culprit has stated a rate yet. */
    int64_t culprit;        /* receiver that requested the limit */
    int32_t level;          /* Highest level (fill level of the receive queue, 1 to 4) that the
                             * culprit signalled in the running window; 0: the culprit sent no
                             * signal. */
    int32_t quiet;          /* windows without a signal */
    int32_t beyond;         /* Number of windows without a signal in which the rate limit was above
                             * `wall`; `quiet` counts these windows, too. */
    /* For the sending rate over the last 50 ms: `buckets` divides this time into eight parts, and
     * has the number of bytes sent in each part. */
    int64_t sent_ns, began_ns; /* sent_ns: time at which the sender last sent data. began_ns: time
                                * at which the sender sent the first data after a pause of 50 ms. */
    int64_t before, turned_ns; /* Sending rate at the last measurement, and the time of that
                                * measurement. */
    int64_t bucket_index;
    int64_t buckets[PS_PRESSURE_BUCKETS + 1];
    uint64_t signals, cuts; /* totals, for metrics */
} ps_pressure_control_t;

/* Initialises the rate control. The floor (lowest rate limit) is two datagrams of `mtu` bytes in
 * each window. */
void ps_pressure_control_init(ps_pressure_control_t *rate, int32_t mtu);
/* Records that the sender sent `bytes` (>= 0) of new data. */
void ps_pressure_control_sent(ps_pressure_control_t *rate, int64_t bytes, int64_t now_ns);
/* Returns the sending rate over the last 50 ms, in bytes per second. */
int64_t ps_pressure_control_measured(ps_pressure_control_t *rate, int64_t now_ns);
/* Returns the sending rate that a signal requests; the result is never below the floor. `sent` is
 * the sending rate at the beginning of the signal's window. */
int64_t ps_pressure_control_wanted(const ps_pressure_control_t *rate,
                                   const ps_pressure_report_t *report, int64_t sent);
/* Applies a signal of a receiver. Returns true if the rate limit changed. */
bool ps_pressure_control_signal(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                                int64_t now_ns);
/* Processes the windows that have ended since the last call, at most 64. Returns true if the rate
 * limit changed. */
bool ps_pressure_control_step(ps_pressure_control_t *rate, int64_t now_ns);
static inline bool ps_pressure_control_limits(const ps_pressure_control_t *rate)
{
    return rate->limit < PS_PRESSURE_UNLIMITED;
}
/* Returns a number of windows. If this number of windows pass without a signal, the rate limit
 * rises from `from` to above `to`, whatever the value of `wall` is. */
int32_t ps_pressure_recovery_windows(int64_t from, int64_t to);

#endif
