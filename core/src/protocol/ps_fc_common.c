/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_common.c: callbacks that several flow-control strategies share. */
#include "ps_flow_control.h"

bool ps_fc_always(const ps_fc_t *fc)
{
    (void)fc;
    return true;
}

/* A limit stays valid for the time that a receiver may be silent. If receivers advertise less for
 * that time, the receiver that advertised the limit has gone, or its status message was false. The
 * limit then falls to the highest edge advertised meanwhile. A lost or reordered status message
 * changes nothing. */
int64_t ps_fc_furthest(ps_fc_t *fc, int64_t receiver_id, int64_t edge, int64_t limit,
                       int64_t now_ns)
{
    if (edge >= limit) {
        fc->limiting_receiver = receiver_id;
        fc->watch_until_ns = INT64_MAX;
        return edge;
    }
    if (fc->watch_until_ns == INT64_MAX) {
        fc->watch_until_ns = now_ns + fc->timeout_ns;
        fc->watch_edge = INT64_MIN;
        fc->due_ns = fc->watch_until_ns < fc->due_ns ? fc->watch_until_ns : fc->due_ns;
    }
    if (edge >= fc->watch_edge) {
        fc->watch_edge = edge;
        fc->watch_receiver = receiver_id;
    }
    return limit;
}

void ps_fc_no_error(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns)
{
    (void)fc;
    (void)receiver_id;
    (void)now_ns;
}

int32_t ps_fc_no_setup_requested(ps_fc_t *fc, const ps_sm_t *sm, const ps_addr_t *from,
                                 int64_t now_ns)
{
    (void)fc;
    (void)sm;
    (void)from;
    (void)now_ns;
    return PS_JOIN_GRANTED;
}

void ps_fc_no_setup_sent(ps_fc_t *fc, int64_t limit, int64_t now_ns)
{
    (void)fc;
    (void)limit;
    (void)now_ns;
}

int64_t ps_fc_recede(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    fc->due_ns = fc->watch_until_ns;
    if (now_ns < fc->watch_until_ns) {
        return limit;
    }
    const int64_t granted = fc->watch_edge > sender_position ? fc->watch_edge : sender_position;
    fc->watch_until_ns = INT64_MAX;
    fc->due_ns = INT64_MAX;
    if (granted < limit) {
        fc->limiting_receiver = fc->watch_receiver;
        return granted;
    }
    return limit;
}
