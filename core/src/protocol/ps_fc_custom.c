/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_custom.c: a limit that a strategy in the control plane computes from snapshots of status
 * messages and hands down with a time until which it counts.  It can hold the sender back as far as
 * it likes; it cannot send it beyond the furthest edge heard, where nobody would keep the data.
 * When its time is up, the built-in rule (the furthest edge) applies until the next one comes.
 */
#include "ps_flow_control.h"

static int64_t current(ps_fc_t *fc, int64_t now_ns)
{
    if (now_ns >= fc->custom_until_ns) {
        fc->due_ns = fc->watch_until_ns;
        fc->group_binds = false;
        return fc->edge;
    }
    fc->due_ns =
        fc->custom_until_ns < fc->watch_until_ns ? fc->custom_until_ns : fc->watch_until_ns;
    fc->group_binds = fc->custom_limit < fc->edge;
    return fc->custom_limit < fc->edge ? fc->custom_limit : fc->edge;
}

static int64_t custom_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                            const ps_addr_t *from, int64_t now_ns)
{
    (void)from;
    fc->edge = fc->edge < limit ? limit : fc->edge;
    fc->edge = ps_fc_furthest(fc, sm->receiver_id, position + sm->window, fc->edge, now_ns);
    return current(fc, now_ns);
}

static int64_t custom_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    fc->edge = fc->edge < limit ? limit : fc->edge;
    fc->edge = ps_fc_recede(fc, fc->edge, sender_position, now_ns);
    return current(fc, now_ns);
}

int64_t ps_fc_set_custom(ps_fc_t *fc, int64_t limit, int64_t until_ns, int64_t now_ns)
{
    fc->custom_limit = limit;
    fc->custom_until_ns = until_ns;
    return current(fc, now_ns);
}

const ps_fc_ops_t ps_fc_custom_ops = {
    "custom",
    4,
    custom_on_sm,
    ps_fc_no_setup_asked,
    ps_fc_no_setup_sent,
    custom_on_idle,
    ps_fc_no_error,
    ps_fc_always,
};
