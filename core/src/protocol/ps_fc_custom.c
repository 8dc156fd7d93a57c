/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_custom.c: a limit that a strategy in the control plane computes from snapshots of status
 * messages, with the time until which it is valid. The strategy can lower the limit as far as it
 * wants. It cannot raise it beyond the highest edge heard, because no receiver would keep the data.
 * While the next limit is late, `on_late` decides:
 *
 *   hold   the last limit, moved on with the slowest receiver heard
 *   min    the slowest receiver heard
 *   max    the furthest edge
 *
 * No limit exceeds the highest edge. If a strategy has not answered for PS_FC_SILENT_NS, the
 * highest edge applies until it answers, for every value of on_late. No stream therefore stops
 * permanently. */
#include "ps_flow_control.h"

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the limit while the strategy is late but not silent for PS_FC_SILENT_NS. */
static int64_t meanwhile(const ps_fc_t *fc)
{
    const int64_t slowest = fc->tracked > 0 ? ps_edges_least(&fc->edges) : fc->edge;
    if (fc->on_late == PS_FC_LATE_MAX) {
        return fc->edge;
    }
    if (fc->on_late == PS_FC_LATE_MIN || slowest > fc->custom_limit) {
        return slowest;
    }
    return fc->custom_limit;
}

static int64_t current(ps_fc_t *fc, int64_t now_ns)
{
    int64_t limit = fc->custom_limit;
    int64_t next_ns = fc->custom_until_ns;
    if (now_ns >= fc->custom_until_ns) {
        const bool silent = now_ns >= fc->custom_silent_ns;
        limit = silent ? fc->edge : meanwhile(fc);
        next_ns = silent ? INT64_MAX : fc->custom_silent_ns;
    }
    fc->due_ns = lower(lower(fc->due_ns, next_ns), fc->watch_until_ns);
    fc->group_binds = limit < fc->edge;
    return lower(limit, fc->edge);
}

static int64_t custom_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                            const ps_addr_t *from, int64_t now_ns)
{
    (void)from;
    if (!fc->custom_started) { /* the strategy is not called before a receiver was heard */
        fc->custom_started = true;
        fc->custom_limit = INT64_MIN;
        fc->custom_silent_ns = now_ns + PS_FC_SILENT_NS;
    }
    ps_fc_follow(fc, sm, position, now_ns);
    fc->edge = fc->edge < limit ? limit : fc->edge;
    fc->edge = ps_fc_furthest(fc, sm->receiver_id, position + sm->window, fc->edge, now_ns);
    return current(fc, now_ns);
}

static int64_t custom_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    fc->edge = fc->edge < limit ? limit : fc->edge;
    fc->edge = ps_fc_recede(fc, fc->edge, sender_position, now_ns);
    fc->due_ns = ps_fc_forget(fc, now_ns);
    return current(fc, now_ns);
}

int64_t ps_fc_set_custom(ps_fc_t *fc, int64_t limit, int64_t until_ns, int64_t now_ns)
{
    fc->custom_started = true;
    fc->custom_limit = limit;
    fc->custom_until_ns = until_ns;
    fc->custom_silent_ns = now_ns + PS_FC_SILENT_NS;
    return current(fc, now_ns);
}

const ps_fc_ops_t ps_fc_custom_ops = {
    "custom",
    4,
    custom_on_sm,
    ps_fc_no_setup_requested,
    ps_fc_no_setup_sent,
    custom_on_idle,
    ps_fc_no_error,
    ps_fc_always,
};
