/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.h: congestion control at the receiver: computes the window that status messages
 * advertise (docs/congestion-control.md). A strategy consists of a table of functions and a small
 * state in ps_congestion_t, so it needs no allocation. */
#ifndef PS_CONGESTION_H
#define PS_CONGESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_cubic.h"

typedef struct ps_congestion ps_congestion_t;

/* The input that a congestion strategy gets each time the receiver processes the image. Positions
 * and sizes are in bytes. */
typedef struct ps_congestion_input {
    int64_t now_ns;
    int64_t consumption; /* slowest gating subscriber */
    int64_t granted;     /* Position + window that the last status message advertised. */
    int64_t received;    /* Number of received bytes of the stream: the high-water mark minus the
                          * bytes in open gaps. */
    bool new_loss;       /* True if a gap opened since the receiver last processed the image; if
                          * true, loss_position is the start of the newest gap. */
    int64_t loss_position;
} ps_congestion_input_t;

typedef struct ps_congestion_ops {
    const char *name;
    /* Returns the window of the first status message, in bytes. */
    int32_t (*initial_window)(ps_congestion_t *congestion);
    /* Returns the new window: the number of bytes, 0 to window_max, that the sender may send beyond
     * the consumed position. Sets *force if the receiver must send a status message now. Called by
     * the receiver thread; must take constant time and use only integers. */
    int32_t (*on_rebuild)(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                          bool *force);
    /* Called with each sample of the round-trip time and with the smoothed round-trip time. NULL if
     * the strategy does not use round-trip times. */
    void (*on_rtt)(ps_congestion_t *congestion, int64_t sample_ns, int64_t smoothed_ns);
    /* Returns the number of bytes that may be in flight; 0: the strategy does not limit them at
     * present. NULL if the strategy never limits the bytes in flight. */
    int64_t (*in_flight)(const ps_congestion_t *congestion);
    /* Returns the pacing rate for the sender in bytes a second; 0: none. NULL if the strategy never
     * computes a pacing rate. */
    int64_t (*rate)(const ps_congestion_t *congestion);
} ps_congestion_ops_t;

struct ps_congestion {
    const ps_congestion_ops_t *ops;
    int32_t window_max; /* min(T/2, configured), bytes */
    int32_t mtu;
    int64_t received; /* at the last pass */
    bool started;
    bool binds;       /* True if the congestion window is smaller than the receiver window. */
    ps_cubic_t cubic; /* state of PS_CC_CUBIC */
    /* PS_CC_CUSTOM */
    int64_t custom_silent_ns; /* Deadline for the next answer of the Python class: without an answer
                               * by this time, the class counts as silent. 0: the class has not
                               * started. */
    int64_t smoothed_ns;      /* round trip, 0 unknown */
    int64_t losses;           /* passes that found new loss */
    int32_t custom_window;    /* Number of bytes that the Python class allows to be in flight. */
    bool custom_silent;       /* the receiver window alone applies */
    bool custom_cut;          /* True if the Python class reduced its window since the receiver last
                               * processed the image. */
};

/* Time-out of a Python class (PS_CC_CUSTOM): after this time without an answer, only the receiver
 * window limits the sender. */
#define PS_CC_SILENT_NS INT64_C(5000000000)

extern const ps_congestion_ops_t ps_congestion_custom;

/* Returns the least window in bytes: the smaller of window_max and two datagrams. */
static inline int64_t ps_congestion_least(const ps_congestion_t *congestion)
{
    const int64_t two = 2 * (int64_t)congestion->mtu;
    return two < congestion->window_max ? two : congestion->window_max;
}
/* Returns the receiver window that lets the sender have in_flight bytes in flight; the window
 * begins at the consumed position. Sets `binds`. Sets *force if the new window permits at least
 * in_flight / 8 bytes more than the last status message did. */
int32_t ps_congestion_grant(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                            int64_t in_flight, bool *force);
/* Sets the window that a PS_CC_CUSTOM class returned, in bytes, clipped to the range from the least
 * window to window_max. Does nothing for other kinds. */
void ps_congestion_set(ps_congestion_t *congestion, int64_t window, int64_t now_ns);

/* `kind` is a ps_congestion_control; `friendly` turns CUBIC's Reno-friendly region on.
 * PS_E_INVALID: `kind` is unknown. */
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
/* Returns the interval between two requests for a round-trip sample. */
int64_t ps_congestion_rtt_interval_ns(const ps_congestion_t *congestion, int64_t smoothed_ns);

#endif
