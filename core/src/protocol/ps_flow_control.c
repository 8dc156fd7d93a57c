/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_flow_control.c: unicast and max, and the choice of a strategy.  Both follow the furthest edge
 * heard; they differ in how much a single NAK may have repeated.
 */

#include "ps_flow_control.h"

#include <stdlib.h>

#include "ps_error.h"

static int64_t max_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         const ps_addr_t *from, int64_t now_ns)
{
    (void)from;
    return ps_fc_furthest(fc, sm->receiver_id, position + sm->window, limit, now_ns);
}

int64_t ps_fc_no_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    (void)fc;
    (void)sender_position;
    (void)now_ns;
    return limit;
}

static const ps_fc_ops_t unicast_ops = {
    "unicast",           16,           max_on_sm,      ps_fc_no_setup_requested,
    ps_fc_no_setup_sent, ps_fc_recede, ps_fc_no_error, ps_fc_always,
};
static const ps_fc_ops_t max_ops = {
    "max",
    4,
    max_on_sm,
    ps_fc_no_setup_requested,
    ps_fc_no_setup_sent,
    ps_fc_recede,
    ps_fc_no_error,
    ps_fc_always,
};

static const ps_fc_ops_t *ops_of(int32_t kind)
{
    switch (kind) {
    case PS_FC_UNICAST: return &unicast_ops;
    case PS_FC_MAX: return &max_ops;
    case PS_FC_MIN: return &ps_fc_min_ops;
    case PS_FC_TAGGED: return &ps_fc_tagged_ops;
    case PS_FC_PRESSURE: return &ps_fc_pressure_ops;
    case PS_FC_CUSTOM: return &ps_fc_custom_ops;
    default: return NULL;
    }
}

int ps_fc_init(ps_fc_t *fc, const ps_fc_params_t *params, int32_t term_length, uint64_t salt)
{
    const int32_t kind = params->kind;
    const bool tracks = kind == PS_FC_MIN || kind == PS_FC_TAGGED;
    const bool lists = tracks || kind == PS_FC_CUSTOM;
    *fc = (ps_fc_t){ .ops = ops_of(kind),
                     .kind = kind,
                     .half_term = term_length / 2,
                     .min_size = params->group_min_size,
                     .tag = params->group_tag,
                     .timeout_ns = params->receiver_timeout_ns,
                     .due_ns = INT64_MAX,
                     .watch_until_ns = INT64_MAX,
                     .on_late = params->on_late,
                     .counts_receivers = tracks };
    if (fc->ops == NULL) {
        return ps_fail(PS_E_INVALID, "flow control %d is not known", (int)kind);
    }
    if (fc->timeout_ns < 0 || fc->min_size < 0 || (fc->min_size > 0 && !tracks)) {
        return ps_fail(PS_E_INVALID,
                       "flow control %s: receiver timeout %lld ns, least group size "
                       "%d: not possible",
                       fc->ops->name, (long long)fc->timeout_ns, (int)fc->min_size);
    }
    if (fc->min_size > PS_FC_RECEIVERS_MAX) {
        return ps_fail(PS_E_INVALID,
                       "flow control %s: a group of at least %d: at most %d are "
                       "followed",
                       fc->ops->name, (int)fc->min_size, (int)PS_FC_RECEIVERS_MAX);
    }
    fc->timeout_ns = fc->timeout_ns == 0 ? PS_FC_TIMEOUT_NS : fc->timeout_ns;
    if (lists) {
        fc->receivers = calloc(PS_FC_RECEIVERS_MAX, sizeof(*fc->receivers));
        fc->join = tracks ? malloc(sizeof(*fc->join)) : NULL;
        if (fc->receivers == NULL || (tracks && fc->join == NULL)) {
            ps_fc_free(fc);
            return ps_fail(PS_E_NO_MEMORY, "no memory for the receivers of a group");
        }
        if (tracks) {
            ps_join_init(fc->join, fc->timeout_ns);
        }
        const int code = ps_map_init(&fc->index, PS_FC_RECEIVERS_MAX, salt);
        return code != PS_OK ? code : ps_edges_init(&fc->edges, PS_FC_RECEIVERS_MAX);
    }
    return PS_OK;
}

void ps_fc_free(ps_fc_t *fc)
{
    free(fc->receivers);
    free(fc->join);
    fc->receivers = NULL;
    fc->join = NULL;
    ps_map_fini(&fc->index);
    ps_edges_fini(&fc->edges);
}
