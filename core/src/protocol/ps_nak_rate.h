/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_rate.h: NAK-strength control, both halves (docs/flow-control.md, semantics.md section 9).
 * Pure and in integers: no clock, no allocation, no randomness but what is passed in.
 *
 *   receiver: ps_nak_signal    inbound queue -> "I am this full", or silence
 *   sender:   ps_nak_rate      such signals  -> a rate
 *
 * Receiver.  Levels 1..4 begin at thresholds t1 < t2 < t3 < t4 = 100 %.  t1 lies between 25 and
 * 50 %: at 50 % unless what the queue grew by lately (mean plus twice its deviation), over the
 * time that a signal needs to have effect (a window and a round trip), would not fit above it.  t2
 * and t3 halve and quarter what is left: 50, 75, 87 and 100 % when the stream is calm.  A queue at
 * or above t1 signals once a window, a window being max(50 ms, round trip); in a group the first
 * signal of an episode is put off by a random part of half a window.  A queue below t1 is silent.
 * So is one whose reader has taken nothing for half a window: no rate would suit it, and the others
 * must not wait for it (a reader that takes in batches signals after each of them).
 *
 * Sender.  Unlimited at first.  The strongest signal of a window cuts the rate: from what was
 * measured over the last 50 ms (never from more than the limit), to 7/8, 3/4, 5/8 or 1/2.  A signal
 * that says the queue is no fuller than the window before it was cuts nothing more: the cut works.
 * Every window (here max(50 ms, two round trips)) without a signal raises the limit by a step; the
 * step grows with the number k of quiet windows.  Below the rate at which signals come (the wall):
 * min(k, 8) / 16 of the limit.  Within an eighth of it: probe x (1 + k/8), where probe is between
 * 1/64 and 1/16, a quarter of the relative deviation of the walls so far: steady receivers are
 * probed finely, erratic ones coarsely.  Above it, with j windows there: min(j, 16) / 32.
 *
 * Bounds (tested): the limit never falls below the floor; from the floor F it exceeds any rate R
 * after at most ps_nak_recovery_windows(F, R) quiet windows; an unlimited rate returns after that.
 */
#ifndef PS_NAK_RATE_H
#define PS_NAK_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define PS_NAK_WINDOW_NS     INT64_C(50000000)
#define PS_NAK_WINDOW_MAX_NS INT64_C(1000000000)   /* a longer round trip is not believed */
#define PS_NAK_FLOOR         (INT64_C(128) * 1024) /* bytes per second, two MTUs a window */
#define PS_NAK_UNLIMITED     (INT64_C(1) << 40)    /* a limit that reached it is none */
enum { PS_NAK_LEVELS = 4, PS_NAK_BUCKETS = 8, PS_NAK_PPM = 1000000 };

/* ---- receiver -------------------------------------------------------------------------------- */

typedef struct ps_nak_signal {
    int64_t next_ns; /* no signal before */
    int64_t sampled_ns;
    int64_t sampled_unread;
    int64_t growth, growth_dev; /* bytes per second, smoothed by an eighth */
    int64_t consumption;        /* as last seen, and when it moved */
    int64_t consumed_ns;
    uint32_t thresholds_ppm[PS_NAK_LEVELS];
    bool episode; /* above t1 since the last time below it */
    bool empty;   /* at the last look: there was nothing to take */
    bool started;
} ps_nak_signal_t;

typedef struct ps_nak_input {
    int64_t now_ns;
    int64_t unread;      /* bytes received and not taken */
    int64_t capacity;    /* bytes, > 0 */
    int64_t consumption; /* position of the slowest reader */
    int64_t rtt_ns;      /* 0 unknown */
    uint32_t random;     /* uniform; in a group it spreads first signals */
    bool group;
} ps_nak_input_t;

void ps_nak_signal_init(ps_nak_signal_t *signal);
/* One look at the queue.  Returns the level to signal now, 1..4, or 0.  *fill_ppm gets the fill,
 * *due_ns when to look again (INT64_MAX: when data comes). */
int32_t ps_nak_signal_step(ps_nak_signal_t *signal, const ps_nak_input_t *input, uint32_t *fill_ppm,
                           int64_t *due_ns);
static inline int64_t ps_nak_window_ns(int64_t rtt_ns)
{
    return rtt_ns < PS_NAK_WINDOW_NS       ? PS_NAK_WINDOW_NS
           : rtt_ns < PS_NAK_WINDOW_MAX_NS ? rtt_ns
                                           : PS_NAK_WINDOW_MAX_NS;
}

/* ---- sender ---------------------------------------------------------------------------------- */

typedef struct ps_nak_rate {
    int64_t limit; /* bytes per second; PS_NAK_UNLIMITED: none */
    int64_t floor;
    int64_t window_ns;
    int64_t window_end_ns;  /* of the running window; 0: not limited, none runs */
    int64_t base;           /* what this window's cuts are taken from */
    int64_t wall, wall_dev; /* rate at which signals come, smoothed; 0: none yet */
    int64_t culprit;        /* receiver of the strongest signal of the last such window */
    uint32_t fill_ppm;      /* strongest of this window, and of the last signalled one */
    uint32_t last_fill_ppm;
    int32_t level;  /* strongest of this window, 0 none */
    int32_t quiet;  /* windows without a signal */
    int32_t beyond; /* of them, those with a limit above the wall */
    /* rate measurement: bytes by 1/8 of 50 ms */
    int64_t bucket_index;
    int64_t buckets[PS_NAK_BUCKETS + 1];
    uint64_t signals, cuts; /* totals, for metrics */
} ps_nak_rate_t;

/* mtu in bytes: the floor lets two of them through in each window. */
void ps_nak_rate_init(ps_nak_rate_t *rate, int32_t mtu);
/* bytes left (>= 0). */
void ps_nak_rate_sent(ps_nak_rate_t *rate, int64_t bytes, int64_t now_ns);
/* Bytes per second over the last 50 ms. */
int64_t ps_nak_rate_measured(ps_nak_rate_t *rate, int64_t now_ns);
/* A signal: level 1..4, fill, the receiver's round trip (0 unknown).  True: the limit changed. */
bool ps_nak_rate_signal(ps_nak_rate_t *rate, int64_t receiver_id, int32_t level, uint32_t fill_ppm,
                        int64_t rtt_ns, int64_t now_ns);
/* Ends windows that are over (at most 64 a call; a longer silence counts as 64).  True: the limit
 * changed. */
bool ps_nak_rate_step(ps_nak_rate_t *rate, int64_t now_ns);
static inline bool ps_nak_rate_limits(const ps_nak_rate_t *rate)
{
    return rate->limit < PS_NAK_UNLIMITED;
}
/* Quiet windows after which a limit of `from` is above `to`, at most, whatever the wall. */
int32_t ps_nak_recovery_windows(int64_t from, int64_t to);

#endif
