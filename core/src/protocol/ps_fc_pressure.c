/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_pressure.c: the limit under NAK-strength control (docs/nak-strength.md). The rate
 * (ps_pressure_control.h) slows the sender. The limit is only the data that a receiver keeps beyond
 * the most advanced consumption: half a term, or three quarters if the receiver states that it
 * keeps a term. Lower edges count too:
 *
 *   congestion control   a receiver that states a congestion window is given no more than that
 *   Aeron receivers      cannot signal: while one is heard, the furthest edge of such receivers is
 *                        the limit; one that was silent for PLAIN_NS has gone
 */
#include "ps_cause.h"
#include "ps_flow_control.h"
#include "ps_frame.h"

/* Aeron's receivers send a status message each 200 ms. */
#define PLAIN_NS INT64_C(1000000000)

static bool plain_is_there(const ps_fc_t *fc, int64_t now_ns)
{
    return fc->plain_heard && now_ns - fc->plain_heard_ns < PLAIN_NS;
}

/* Returns the lower of both limits, and notes its receiver. */
static int64_t limit_of(ps_fc_t *fc, int64_t now_ns)
{
    const bool plain = plain_is_there(fc, now_ns);
    const int64_t gone_ns = plain ? fc->plain_heard_ns + PLAIN_NS : INT64_MAX;
    fc->due_ns = gone_ns < fc->watch_until_ns ? gone_ns : fc->watch_until_ns;
    if (plain && fc->plain_edge < fc->edge) {
        fc->limiting_receiver = fc->plain_receiver;
        return fc->plain_edge;
    }
    fc->limiting_receiver = fc->furthest_receiver;
    return fc->edge;
}

/* The limit is never above the edge, unless the sender passed over what only spies read. */
static int64_t edge_of(const ps_fc_t *fc, int64_t limit)
{
    return fc->furthest_receiver == 0 || limit > fc->edge ? limit : fc->edge;
}

static int64_t nak_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         const ps_addr_t *from, int64_t now_ns)
{
    (void)from;
    const uint32_t capabilities = sm->trailer.capabilities;
    const int64_t ahead = (capabilities & PS_CAP_KEEPS_TERM) != 0
                              ? ps_log_ahead(2 * (int64_t)fc->half_term, 1)
                              : fc->half_term;
    const bool plain = (capabilities & PS_CAP_PRESSURE) == 0;
    const bool congested = !plain && sm->trailer.congestion_window > 0;
    /* A receiver without storage for half a term states that as its reason, and the storage it
     * has. */
    const bool bound = plain || congested || sm->trailer.reason == PS_CAUSE_STORAGE;
    const int64_t edge = position + (bound || sm->window > ahead ? sm->window : ahead);
    const int64_t before = edge_of(fc, limit);
    fc->edge = ps_fc_furthest(fc, sm->receiver_id, edge, before, now_ns);
    if (edge >= before || fc->furthest_receiver == 0) {
        fc->furthest_receiver = sm->receiver_id;
    }
    if (plain) {
        if (!plain_is_there(fc, now_ns) || edge >= fc->plain_edge) {
            fc->plain_edge = edge;
            fc->plain_receiver = sm->receiver_id;
        }
        fc->plain_heard = true;
        fc->plain_heard_ns = now_ns;
    }
    return limit_of(fc, now_ns);
}

static int64_t nak_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    if (fc->furthest_receiver == 0) {
        return limit; /* no receiver was heard */
    }
    const int64_t before = edge_of(fc, limit);
    const int64_t edge = ps_fc_recede(fc, before, sender_position, now_ns);
    fc->furthest_receiver = edge < before ? fc->watch_receiver : fc->furthest_receiver;
    fc->edge = edge;
    return limit_of(fc, now_ns);
}

const ps_fc_ops_t ps_fc_pressure_ops = {
    "nak",
    4,
    nak_on_sm,
    ps_fc_no_setup_requested,
    ps_fc_no_setup_sent,
    nak_on_idle,
    ps_fc_no_error,
    ps_fc_always,
};
