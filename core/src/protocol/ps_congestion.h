/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.h: congestion control at the receiver: it decides the window that status messages
 * offer (docs/congestion-control.md).  A table of functions and a small
 * inline state, so that a strategy needs no allocation.
 */
#ifndef PS_CONGESTION_H
#define PS_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_cubic.h"

typedef struct ps_congestion ps_congestion_t;

/* Input of a strategy at each rebuild pass; positions in bytes. */
typedef struct ps_congestion_input {
    int64_t now_ns;
    int64_t consumption; /* slowest gating subscriber */
    int64_t granted;     /* position + window of the last status message */
    int64_t received;    /* bytes of the stream that are here: rcv-hwm less what is missing */
    bool new_loss;       /* a gap appeared since the last pass, the newest at loss_position */
    int64_t loss_position;
} ps_congestion_input_t;

typedef struct ps_congestion_ops {
    const char *name;
    /* Window of the first status message, bytes. */
    int32_t (*initial_window)(ps_congestion_t *congestion);
    /* Window beyond consumption from now on, 0..window_max bytes.  *force: the sender must hear of
     * it now.  Receiver thread; constant time, integers only. */
    int32_t (*on_rebuild)(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                          bool *force);
    /* A round-trip sample and the smoothed value; NULL: not interested. */
    void (*on_rtt)(ps_congestion_t *congestion, int64_t sample_ns, int64_t smoothed_ns);
} ps_congestion_ops_t;

struct ps_congestion {
    const ps_congestion_ops_t *ops;
    int32_t window_max; /* min(T/2, configured), bytes */
    int32_t mtu;
    int64_t received; /* as of the last pass */
    bool started;
    bool binds;       /* the congestion window is less than the receiver could take */
    ps_cubic_t cubic; /* state of PS_CC_CUBIC */
};

/* kind: ps_congestion_control.  friendly: CUBIC's Reno-friendly region.  PS_E_INVALID for an
 * unknown kind. */
int ps_congestion_init(ps_congestion_t *congestion, int32_t kind, int32_t window_max, int32_t mtu,
                       bool friendly);
/* Bytes that may be in flight, 0: the strategy has no such bound. */
static inline int64_t ps_congestion_window(const ps_congestion_t *congestion)
{
    return congestion->cubic.segment > 0 ? ps_cubic_window(&congestion->cubic) : 0;
}
/* Bytes a second the sender should pace at, 0: no opinion. */
static inline int64_t ps_congestion_rate(const ps_congestion_t *congestion)
{
    return congestion->cubic.segment > 0 ? ps_cubic_rate(&congestion->cubic) : 0;
}
/* When the next round-trip sample is wanted, after one requested at now_ns. */
int64_t ps_congestion_rtt_interval_ns(const ps_congestion_t *congestion, int64_t smoothed_ns);

#endif
