/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_control.h: the sender's half of NAK-strength control (docs/nak-strength.md): from
 * signals to a rate.  Pure and in integers: no clock, no allocation, no randomness.
 *
 * Unlimited at first.  A signal states its level, what its receiver consumes (r), in which cadence,
 * and what the last batch left behind (the residue).  The rate that it requests:
 *
 *   r unknown       what was sent over the last 50 ms, times 7/8, 3/4, 5/8 or 1/2 by level
 *   residue         r less what drains the residue within max(2 windows, 2 cadences), but not less
 *                   than r times 15/16, 7/8, 3/4 or 1/2 by level
 *   no residue      the receiver takes r at least: r times 9/8, 17/16, 65/64 or 15/16 by level, or
 *                   what r unknown would say, whichever is more
 *   overrun         of the above, at most r times 3/4 (1/2) when more than an eighth (half) of the
 *                   capacity is there beyond it
 *
 * The limit is the lowest such rate. Its receiver (the culprit) moves it down and up; others only
 * down. A window is max(50 ms, two round trips, cadence) of the culprit. In each window without
 * its signal the limit rises by a step, which grows with the number k of such windows. Below the
 * wall, which is what the culprits state, smoothed: min(k, 8) / 16 of the limit. Within an eighth
 * of it: probe x (1 + k/8), where probe is between 1/64 and 1/16, a quarter of the relative
 * deviation of the walls. Above it, with j windows there: min(j, 8) / 32.
 *
 * Bounds (tested): the limit never falls below the floor; from the floor F it exceeds any rate R
 * after at most ps_pressure_recovery_windows(F, R) quiet windows; an unlimited rate returns after
 * that.
 */
#ifndef PS_PRESSURE_CONTROL_H
#define PS_PRESSURE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_pressure_signal.h"

#define PS_PRESSURE_FLOOR     (INT64_C(128) * 1024) /* bytes per second, two MTUs a window */
#define PS_PRESSURE_UNLIMITED (INT64_C(1) << 40)    /* a limit that reached it is none */
enum { PS_PRESSURE_BUCKETS = 8 };

/* Content of a signal; unknown values are 0. */
typedef struct ps_pressure_report {
    int64_t receiver_id;
    int32_t level; /* 1..4 */
    int64_t rtt_ns;
    int64_t rate;       /* bytes per second that its slowest reader consumes */
    int64_t cadence_ns; /* of that reader */
    int64_t residue;    /* bytes that it left behind after its last batch */
    int64_t overrun;    /* bytes beyond the capacity */
    int64_t capacity;   /* bytes, > 0 */
} ps_pressure_report_t;

typedef struct ps_pressure_control {
    int64_t limit; /* bytes per second; PS_PRESSURE_UNLIMITED: none */
    int64_t floor;
    int64_t window_ns;
    int64_t window_end_ns;  /* of the running window; 0: not limited, none runs */
    int64_t base;           /* what was sent when a window began: cuts are taken from it */
    int64_t base_until_ns;  /* a signal after that takes it again */
    int64_t wall, wall_dev; /* rate at which signals come, smoothed; 0: none yet */
    int64_t culprit;        /* receiver whose rate the limit is */
    int32_t level;          /* its strongest in this window, 0 none */
    int32_t quiet;          /* windows without a signal */
    int32_t beyond;         /* of them, those with a limit above the wall */
    /* rate measurement: bytes by 1/8 of 50 ms */
    int64_t sent_ns, began_ns; /* last bytes; first ones after 50 ms without */
    int64_t bucket_index;
    int64_t buckets[PS_PRESSURE_BUCKETS + 1];
    uint64_t signals, cuts; /* totals, for metrics */
} ps_pressure_control_t;

/* mtu in bytes: the floor lets two of them through in each window. */
void ps_pressure_control_init(ps_pressure_control_t *rate, int32_t mtu);
/* bytes left (>= 0). */
void ps_pressure_control_sent(ps_pressure_control_t *rate, int64_t bytes, int64_t now_ns);
/* Bytes per second over the last 50 ms. */
int64_t ps_pressure_control_measured(ps_pressure_control_t *rate, int64_t now_ns);
/* The rate that a signal requests, given what was sent when its window began; not below the
 * floor. */
int64_t ps_pressure_control_wanted(const ps_pressure_control_t *rate,
                                   const ps_pressure_report_t *report, int64_t sent);
/* A signal.  True: the limit changed. */
bool ps_pressure_control_signal(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                                int64_t now_ns);
/* Ends windows that are over (at most 64 a call; a longer silence counts as 64).  True: the limit
 * changed. */
bool ps_pressure_control_step(ps_pressure_control_t *rate, int64_t now_ns);
static inline bool ps_pressure_control_limits(const ps_pressure_control_t *rate)
{
    return rate->limit < PS_PRESSURE_UNLIMITED;
}
/* Quiet windows after which a limit of `from` is above `to`, at most, whatever the wall. */
int32_t ps_pressure_recovery_windows(int64_t from, int64_t to);

#endif
