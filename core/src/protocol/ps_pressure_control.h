/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_control.h: the sender's half of NAK-strength control (docs/nak-strength.md): computes
 * a rate from signals.  A pure function on integers: no clock, no allocation, no randomness.
 *
 * At first the stream has no limit. A signal states its level, and three values of the receiver's
 * slowest reader: the rate r, the cadence (the interval between batches) and the residue (the bytes
 * unread after the last batch). A signal also states the overrun: the bytes beyond the receiver's
 * capacity. The requested rate follows from these values: docs/nak-strength.md ("Rates of the
 * sender") has the factors.
 *
 * The limit is the lowest requested rate. The receiver that requested the lowest rate is the
 * culprit. Signals of the culprit lower and raise the limit, signals of other receivers only lower
 * it. A window is max(50 ms, two round trips, cadence) of the culprit. In each window without a
 * signal of the culprit the limit rises by a step. The wall is the smoothed rate r of the culprits'
 * signals. The step is large below the wall and small near the wall; above the wall it begins small
 * and grows.
 *
 * Tested bounds: the limit never falls below the floor. From the floor F the limit exceeds any rate
 * R after at most ps_pressure_recovery_windows(F, R) windows without a signal. After these windows
 * the stream has no limit again.
 */
#ifndef PS_PRESSURE_CONTROL_H
#define PS_PRESSURE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_pressure_signal.h"

#define PS_PRESSURE_FLOOR     (INT64_C(128) * 1024) /* bytes per second, two MTUs a window */
#define PS_PRESSURE_UNLIMITED (INT64_C(1) << 40)    /* a limit of this value means no limit */
enum { PS_PRESSURE_BUCKETS = 8 };

/* Content of a signal; unknown values are 0. */
typedef struct ps_pressure_report {
    int64_t receiver_id;
    int32_t level; /* 1..4 */
    int64_t rtt_ns;
    int64_t rate;       /* bytes per second that the receiver's slowest reader consumes */
    int64_t cadence_ns; /* of that reader */
    int64_t residue;    /* bytes unread after that reader's last batch */
    int64_t overrun;    /* bytes beyond the capacity */
    int64_t capacity;   /* bytes, > 0 */
} ps_pressure_report_t;

typedef struct ps_pressure_control {
    int64_t limit; /* bytes per second; PS_PRESSURE_UNLIMITED: none */
    int64_t floor;
    int64_t window_ns;
    int64_t window_end_ns;  /* end of the running window; 0: no limit, no window */
    int64_t base;           /* rate at the beginning of a window; reductions apply to it */
    int64_t base_until_ns;  /* the first signal after this time sets `base` again */
    int64_t wall, wall_dev; /* smoothed rate that culprits state, and its deviation; 0: none yet */
    int64_t culprit;        /* receiver that requested the limit */
    int32_t level;          /* highest level of the culprit in this window, 0 none */
    int32_t quiet;          /* windows without a signal */
    int32_t beyond;         /* number of these windows with a limit above the wall */
    /* rate measurement: bytes sent in each eighth of 50 ms */
    int64_t sent_ns, began_ns; /* time at which bytes were last sent; time of the first bytes after
                                * 50 ms without bytes */
    int64_t before, turned_ns; /* rate at the last measurement, and the time of this measurement */
    int64_t bucket_index;
    int64_t buckets[PS_PRESSURE_BUCKETS + 1];
    uint64_t signals, cuts; /* totals, for metrics */
} ps_pressure_control_t;

/* mtu in bytes: the lowest rate sends two datagrams of this size in each window. */
void ps_pressure_control_init(ps_pressure_control_t *rate, int32_t mtu);
/* Notes that bytes (>= 0) were sent. */
void ps_pressure_control_sent(ps_pressure_control_t *rate, int64_t bytes, int64_t now_ns);
/* Returns the rate over the last 50 ms, in bytes per second. */
int64_t ps_pressure_control_measured(ps_pressure_control_t *rate, int64_t now_ns);
/* Returns the rate that a signal requests, at least the floor; base: the rate at the beginning of
 * its window. */
int64_t ps_pressure_control_wanted(const ps_pressure_control_t *rate,
                                   const ps_pressure_report_t *report, int64_t sent);
/* Applies a signal. True: the limit changed. */
bool ps_pressure_control_signal(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                                int64_t now_ns);
/* Closes the windows that have ended (at most 64 a call; a longer silence counts as 64). True: the
 * limit changed. */
bool ps_pressure_control_step(ps_pressure_control_t *rate, int64_t now_ns);
static inline bool ps_pressure_control_limits(const ps_pressure_control_t *rate)
{
    return rate->limit < PS_PRESSURE_UNLIMITED;
}
/* Returns the number of windows without a signal after which a limit has risen from `from` above
 * `to`, whatever the wall is. */
int32_t ps_pressure_recovery_windows(int64_t from, int64_t to);

#endif
