/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_flow_control.h: the strategy that turns status messages into a sender limit
 * (aeron-interop.md section 6).  A table of callbacks and a state; each publication has its own.
 */
#ifndef PS_FLOW_CONTROL_H
#define PS_FLOW_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_driver.h"
#include "ps_wire.h"

typedef struct ps_fc ps_fc_t;

/* All: sender thread, no allocation; limits are positions. */
typedef struct ps_fc_ops {
    const char *name;
    int32_t retransmit_window_multiple;   /* default */
    /* A status message that passed all checks, at position.  Returns the new limit. */
    int64_t (*on_sm)(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                     int64_t now_ns);
    /* An S-flag status message asked for a SETUP. */
    void (*on_setup_asked)(ps_fc_t *fc, const ps_sm_t *sm, int64_t now_ns);
    /* The SETUP so asked for left. */
    void (*on_setup_sent)(ps_fc_t *fc, int64_t limit, int64_t now_ns);
    /* A timer cycle in which nothing was sent.  Returns the limit, which may be lower. */
    int64_t (*on_idle)(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns);
    void (*on_error)(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns);
    bool (*has_required)(const ps_fc_t *fc);
} ps_fc_ops_t;

struct ps_fc {
    const ps_fc_ops_t *ops;
    int64_t limiting_receiver;   /* id whose edge is the limit, 0 none yet */
};

/* kind: ps_flow_control.  PS_E_INVALID when unknown. */
int ps_fc_init(ps_fc_t *fc, int32_t kind);

#endif
