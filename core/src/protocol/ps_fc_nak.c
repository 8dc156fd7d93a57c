/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_nak.c: the edge under NAK-strength control.  Among receivers that can signal overload, the
 * window is no brake: half a term from the furthest consumption heard, which is as far as any of
 * them can keep.  What brakes is the rate (ps_nak_rate.h).  While a receiver that cannot signal is
 * there, windows count as under max.
 */
#include "ps_cause.h"
#include "ps_flow_control.h"

static bool plain_is_there(const ps_fc_t *fc, int64_t now_ns)
{
    return fc->plain_heard && now_ns - fc->plain_heard_ns < fc->timeout_ns;
}

static int64_t nak_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         int64_t now_ns)
{
    if ((sm->trailer.capabilities & PS_CAP_PRESSURE) == 0) {
        fc->plain_heard = true;
        fc->plain_heard_ns = now_ns;
    }
    /* A receiver that has no storage for half a term yet says so, and states what it has. */
    const bool bound = sm->trailer.reason == PS_CAUSE_STORAGE;
    const int64_t window = bound || plain_is_there(fc, now_ns) || sm->window > fc->half_term
                               ? sm->window
                               : fc->half_term;
    return ps_fc_furthest(fc, sm->receiver_id, position + window, limit, now_ns);
}

const ps_fc_ops_t ps_fc_nak_ops = {
    "nak",
    4,
    nak_on_sm,
    ps_fc_no_setup_asked,
    ps_fc_no_setup_sent,
    ps_fc_recede,
    ps_fc_no_error,
    ps_fc_always,
};
