/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.h: congestion control at the receiver: it decides the window that status messages
 * offer (aeron-interop.md section 7).  A table of functions and a small inline state, so that a
 * strategy needs no allocation.
 */
#ifndef PS_CONGESTION_H
#define PS_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ps_congestion ps_congestion_t;

/* What a strategy is told at each rebuild pass; positions in bytes. */
typedef struct ps_congestion_input {
    int64_t now_ns;
    int64_t consumption;       /* slowest gating subscriber */
    int64_t scheduled;         /* position of the last status message */
    int64_t contiguous;        /* rcv-pos */
    int64_t high_water;        /* rcv-hwm */
    int64_t rtt_ns;            /* 0 unknown */
    bool new_loss;             /* a gap appeared since the last pass */
} ps_congestion_input_t;

typedef struct ps_congestion_ops {
    const char *name;
    /* Window of the first status message, bytes. */
    int32_t (*initial_window)(ps_congestion_t *congestion);
    /* Window from now on, 0..window_max bytes.  *force: send a status message now.  Receiver
     * thread; constant time, integers only. */
    int32_t (*on_rebuild)(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                          bool *force);
} ps_congestion_ops_t;

struct ps_congestion {
    const ps_congestion_ops_t *ops;
    int32_t window_max;        /* min(T/2, configured), bytes */
    int32_t mtu;
    int64_t state[8];          /* the strategy's own */
};

/* kind: ps_congestion_control.  PS_E_INVALID for an unknown one. */
int ps_congestion_init(ps_congestion_t *congestion, int32_t kind, int32_t window_max, int32_t mtu);

#endif
