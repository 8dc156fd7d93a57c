/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.h: congestion control at the receiver: computes the window that status messages
 * advertise (docs/congestion-control.md). A table of functions and a small inline state, so that a
 * strategy needs no allocation. */
#ifndef PS_CONGESTION_H
#define PS_CONGESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_cubic.h"

typedef struct ps_congestion ps_congestion_t;

/* Input of a strategy at each rebuild pass; positions in bytes. */
typedef struct ps_congestion_input {
    int64_t now_ns;
    int64_t consumption; /* slowest gating subscriber */
    int64_t granted;     /* position + window of the last status message */
    int64_t received;    /* received bytes of the stream: rcv-hwm less the open gaps */
    bool new_loss;       /* a gap opened since the last pass; the newest begins at loss_position */
    int64_t loss_position;
} ps_congestion_input_t;

typedef struct ps_congestion_ops {
    const char *name;
    /* Returns the window of the first status message, in bytes. */
    int32_t (*initial_window)(ps_congestion_t *congestion);
    /* Returns the new window beyond consumption, 0..window_max bytes. *force: a status message must
     * leave now. Receiver thread; constant time, integers only. */
    int32_t (*on_rebuild)(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                          bool *force);
    /* Called with a round-trip sample and the smoothed value; NULL: not used. */
    void (*on_rtt)(ps_congestion_t *congestion, int64_t sample_ns, int64_t smoothed_ns);
    /* Returns the number of bytes that may be in flight; 0: no bound at present. NULL: the strategy
     * never has a bound. */
    int64_t (*in_flight)(const ps_congestion_t *congestion);
    /* Returns the pacing rate for the sender in bytes a second, 0: none; NULL: the strategy has no
     * pacing rate. */
    int64_t (*rate)(const ps_congestion_t *congestion);
} ps_congestion_ops_t;

struct ps_congestion {
    const ps_congestion_ops_t *ops;
    int32_t window_max; /* min(T/2, configured), bytes */
    int32_t mtu;
    int64_t received; /* at the last pass */
    bool started;
    bool binds;       /* the congestion window is smaller than the receiver window */
    ps_cubic_t cubic; /* state of PS_CC_CUBIC */
    /* PS_CC_CUSTOM */
    int64_t custom_silent_ns; /* time from which the class counts as silent; 0: not started */
    int64_t smoothed_ns;      /* round trip, 0 unknown */
    int64_t losses;           /* passes that found new loss */
    int32_t custom_window;    /* bytes in flight that the class allows */
    bool custom_silent;       /* the receiver window alone applies */
    bool custom_cut;          /* the window shrank since the last pass */
};

/* If a class in the control plane gives no answer for this time, only the receiver window limits
 * the sender. */
#define PS_CC_SILENT_NS INT64_C(5000000000)

extern const ps_congestion_ops_t ps_congestion_custom;

/* Returns the least window in bytes: two datagrams, or window_max if that is smaller. */
static inline int64_t ps_congestion_least(const ps_congestion_t *congestion)
{
    const int64_t two = 2 * (int64_t)congestion->mtu;
    return two < congestion->window_max ? two : congestion->window_max;
}
/* Returns the window beyond consumption that allows in_flight bytes in flight. Sets binds. Sets
 * *force if the new window allows at least in_flight / 8 more bytes than the last status
 * message. */
int32_t ps_congestion_grant(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                            int64_t in_flight, bool *force);
/* Sets the window that a PS_CC_CUSTOM class returned, in bytes, clipped to the range from the least
 * window to window_max. Does nothing for other kinds. */
void ps_congestion_set(ps_congestion_t *congestion, int64_t window, int64_t now_ns);

/* kind: ps_congestion_control.  friendly: CUBIC's Reno-friendly region.  PS_E_INVALID for an
 * unknown kind. */
int ps_congestion_init(ps_congestion_t *congestion, int32_t kind, int32_t window_max, int32_t mtu,
                       bool friendly);
/* Returns the number of bytes that may be in flight; 0: the strategy does not bound them. */
static inline int64_t ps_congestion_window(const ps_congestion_t *congestion)
{
    return congestion->ops->in_flight != NULL ? congestion->ops->in_flight(congestion) : 0;
}
/* Returns the pacing rate for the sender in bytes a second, 0: none. */
static inline int64_t ps_congestion_rate(const ps_congestion_t *congestion)
{
    return congestion->ops->rate != NULL ? congestion->ops->rate(congestion) : 0;
}
/* Returns the time from one request for a round-trip sample to the next. */
int64_t ps_congestion_rtt_interval_ns(const ps_congestion_t *congestion, int64_t smoothed_ns);

#endif
