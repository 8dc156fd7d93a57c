/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_control.h: the sender's part of NAK-strength control (docs/nak-strength.md): computes
 * the sending rate from the PRESSURE frames of receivers. A pure function on integers: no clock, no
 * allocation, no randomness.
 *
 * At first the stream has no limit. A signal is a PRESSURE frame of a receiver. A signal states its
 * level, and three values of the receiver's slowest reader: the rate r, the cadence (the interval
 * between batches of reads) and the residue (the bytes unread after the last batch). A signal also
 * states the overrun: the bytes beyond the receiver's capacity. From these values the sender
 * computes the rate that the receiver requests: docs/nak-strength.md ("Rates of the sender") has
 * the factors.
 *
 * The limit is the lowest requested rate. The receiver that requested the lowest rate is the
 * culprit. Signals of the culprit lower or raise the limit; signals of other receivers can only
 * lower it. A window is max(50 ms, two round trips, cadence) of the culprit. In each window without
 * a signal of the culprit the limit rises by a step. The smoothed rate r of the culprits' signals
 * is called the wall. A limit far below the wall rises by large steps, and near the wall by small
 * steps. Above the wall, the steps begin small and grow.
 *
 * Bounds that tests check: the limit never falls below the floor. A limit at the floor F rises
 * above any rate R in at most ps_pressure_recovery_windows(F, R) windows without a signal. After a
 * bounded number of such windows, the stream has no limit again.
 */
#ifndef PS_PRESSURE_CONTROL_H
#define PS_PRESSURE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_pressure_signal.h"

/* PS_PRESSURE_FLOOR is the lowest limit in bytes per second: two MTUs in each window. A limit of
 * PS_PRESSURE_UNLIMITED means no limit. */
#define PS_PRESSURE_FLOOR     (INT64_C(128) * 1024)
#define PS_PRESSURE_UNLIMITED (INT64_C(1) << 40)
enum { PS_PRESSURE_BUCKETS = 8 };

/* Content of a PRESSURE frame, as far as the control uses it; unknown values are 0. */
typedef struct ps_pressure_report {
    int64_t receiver_id;
    int32_t level; /* 1..4 */
    int64_t rtt_ns;
    int64_t rate;       /* Bytes per second that the receiver's slowest reader consumes. */
    int64_t cadence_ns; /* of that reader */
    int64_t residue;    /* Number of bytes that this reader left unread after its last batch. */
    int64_t overrun;    /* bytes beyond the capacity */
    int64_t capacity;   /* bytes, > 0 */
} ps_pressure_report_t;

typedef struct ps_pressure_control {
    int64_t limit; /* bytes per second; PS_PRESSURE_UNLIMITED: none */
    int64_t floor;
    int64_t window_ns;
    int64_t window_end_ns;  /* Time at which the running window ends; 0: the stream has no limit, so
                             * no window runs. */
    int64_t base;           /* Sending rate at the beginning of a window; signals in this window
                             * reduce the limit from this rate. */
    int64_t base_until_ns;  /* Time until which `base` is valid; the first signal after this time
                             * sets `base` again. */
    int64_t wall, wall_dev; /* Smoothed value and deviation of the reader rate that culprits stated;
                             * 0: none yet. */
    int64_t culprit;        /* receiver that requested the limit */
    int32_t level;          /* Highest level that the culprit signalled in this window; 0: none. */
    int32_t quiet;          /* windows without a signal */
    int32_t beyond;         /* Of the windows in `quiet`: the number in which the limit was above
                             * `wall`. */
    /* Measurement of the sending rate: `buckets` has the bytes sent in each eighth of 50 ms. */
    int64_t sent_ns, began_ns; /* Time at which data was last sent, and time of the first data after
                                * a pause of 50 ms. */
    int64_t before, turned_ns; /* Rate at the last measurement, and the time of that measurement. */
    int64_t bucket_index;
    int64_t buckets[PS_PRESSURE_BUCKETS + 1];
    uint64_t signals, cuts; /* totals, for metrics */
} ps_pressure_control_t;

/* Initialises the control. At the lowest rate (the floor), the sender sends two datagrams of `mtu`
 * bytes in each window. */
void ps_pressure_control_init(ps_pressure_control_t *rate, int32_t mtu);
/* Records that the sender sent `bytes` (>= 0) of new data. */
void ps_pressure_control_sent(ps_pressure_control_t *rate, int64_t bytes, int64_t now_ns);
/* Returns the sending rate over the last 50 ms, in bytes per second. */
int64_t ps_pressure_control_measured(ps_pressure_control_t *rate, int64_t now_ns);
/* Returns the sending rate that a signal requests, at least the floor. `sent` is the sending rate
 * at the beginning of the signal's window. */
int64_t ps_pressure_control_wanted(const ps_pressure_control_t *rate,
                                   const ps_pressure_report_t *report, int64_t sent);
/* Applies a signal. True: the limit changed. */
bool ps_pressure_control_signal(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                                int64_t now_ns);
/* Processes the windows that have ended since the last call; more than 64 count as 64. True: the
 * limit changed. */
bool ps_pressure_control_step(ps_pressure_control_t *rate, int64_t now_ns);
static inline bool ps_pressure_control_limits(const ps_pressure_control_t *rate)
{
    return rate->limit < PS_PRESSURE_UNLIMITED;
}
/* Returns the number of windows without a signal in which a limit rises from `from` to above `to`,
 * for any value of the wall. */
int32_t ps_pressure_recovery_windows(int64_t from, int64_t to);

#endif
