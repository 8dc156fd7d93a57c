/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_min.c: min and tagged: the slowest receiver sets the pace, of all or of those that carry
 * the group's tag (aeron-interop.md section 6.3).
 *
 * A receiver is followed from its first status message on, unless that is more than one window
 * behind the slowest: such a one is not waited for.  It leaves with an EOS flag, with an ERR frame,
 * or when it was silent for the receiver timeout.  While a receiver that asked for a SETUP is about
 * to join, the limit of that moment is held, so that the others do not run away from it.
 *
 * Bound: a status message costs O(log n), a timer cycle looks at each receiver once, at most
 * PS_FC_RECEIVERS_MAX; a group that is larger is paced by those that came first.
 */
#include "ps_flow_control.h"

#include <stddef.h>

static ps_fc_receiver_t *find(ps_fc_t *fc, int64_t id)
{
    const int32_t index = ps_map_get(&fc->index, (uint64_t)id);
    return index == 0 ? NULL : &fc->receivers[index - 1];
}

/* The least of hold and all edges; notes whose it is. */
static int64_t slowest(ps_fc_t *fc)
{
    int64_t least = fc->hold;
    if (fc->hold != INT64_MAX) {
        fc->limiting_receiver = 0;
    }
    if (ps_edges_least(&fc->edges) < least) {
        least = ps_edges_least(&fc->edges);
        fc->limiting_receiver = fc->receivers[ps_edges_first_least(&fc->edges)].id;
    }
    fc->group_binds = ps_edges_largest(&fc->edges) > least;
    return least;
}

static bool carries_tag(const ps_fc_t *fc, const ps_sm_t *sm)
{
    return fc->kind != PS_FC_TAGGED || (sm->has_group_tag != 0 && sm->group_tag == fc->tag);
}

static void add(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t now_ns)
{
    fc->receivers[fc->tracked] = (ps_fc_receiver_t){ .id = sm->receiver_id,
                                                     .position = position,
                                                     .edge = position + sm->window,
                                                     .heard_ns = now_ns };
    ps_edges_set(&fc->edges, fc->tracked, position + sm->window);
    fc->tracked++;
    (void)ps_map_put(&fc->index, (uint64_t)sm->receiver_id, fc->tracked);
    if (fc->hold != INT64_MAX) { /* who joined is here: the limit moves on at the next cycle */
        fc->hold = INT64_MAX;
        fc->due_ns = now_ns;
    }
    fc->due_ns = now_ns + fc->timeout_ns < fc->due_ns ? now_ns + fc->timeout_ns : fc->due_ns;
}

static int64_t min_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         int64_t now_ns)
{
    const int64_t edge = position + sm->window;
    const bool leaving = (sm->flags & PS_SM_EOS) != 0;
    const bool matches = carries_tag(fc, sm);
    ps_fc_receiver_t *known = matches ? find(fc, sm->receiver_id) : NULL;
    if (known != NULL) {
        known->edge = edge;
        ps_edges_set(&fc->edges, (int32_t)(known - fc->receivers), edge);
        known->position = position > known->position ? position : known->position;
        known->heard_ns = now_ns;
        known->eos = leaving;
    }
    int64_t least = slowest(fc);
    if (known == NULL && matches && !leaving && fc->tracked < PS_FC_RECEIVERS_MAX &&
        (fc->tracked == 0 || edge >= least - sm->window)) {
        add(fc, sm, position, now_ns);
        least = edge < least ? edge : least;
        (void)slowest(fc); /* who it is */
    }
    if (leaving || least < limit) { /* what has to come down does so at the next timer cycle */
        fc->due_ns = now_ns;
    }
    if (fc->tracked < fc->min_size) {
        return limit;
    }
    if (fc->tracked == 0) { /* nobody to wait for: as max */
        fc->group_binds = false;
        return ps_fc_furthest(fc, sm->receiver_id, edge, limit, now_ns);
    }
    return least > limit ? least : limit;
}

static void min_on_setup_asked(ps_fc_t *fc, const ps_sm_t *sm, int64_t now_ns)
{
    (void)now_ns;
    /* One that is followed does not join: a forged or repeated request of it must not hold all. */
    fc->setup_asked = fc->setup_asked || (carries_tag(fc, sm) && find(fc, sm->receiver_id) == NULL);
}

static void min_on_setup_sent(ps_fc_t *fc, int64_t limit, int64_t now_ns)
{
    if (fc->setup_asked && fc->tracked > 0) {
        fc->hold = limit;
        fc->hold_until_ns = now_ns + fc->timeout_ns;
        fc->due_ns = fc->hold_until_ns < fc->due_ns ? fc->hold_until_ns : fc->due_ns;
    }
    fc->setup_asked = false;
}

/* The last one moves into the hole. */
static void leave(ps_fc_t *fc, int32_t index)
{
    const int32_t last = --fc->tracked;
    ps_map_remove(&fc->index, (uint64_t)fc->receivers[index].id);
    if (index != last) {
        fc->receivers[index] = fc->receivers[last];
        ps_edges_set(&fc->edges, index, fc->receivers[index].edge);
        (void)ps_map_put(&fc->index, (uint64_t)fc->receivers[index].id, index + 1);
    }
    ps_edges_clear(&fc->edges, last);
}

static void evict(ps_fc_t *fc, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (int32_t i = 0; i < fc->tracked;) {
        const ps_fc_receiver_t *receiver = &fc->receivers[i];
        const int64_t end_ns = receiver->heard_ns + fc->timeout_ns;
        if (receiver->eos || receiver->evict || end_ns <= now_ns) {
            leave(fc, i);
        } else {
            due_ns = end_ns < due_ns ? end_ns : due_ns;
            i++;
        }
    }
    if (fc->hold != INT64_MAX && fc->hold_until_ns <= now_ns) {
        fc->hold = INT64_MAX;
    }
    if (fc->hold != INT64_MAX && fc->hold_until_ns < due_ns) {
        due_ns = fc->hold_until_ns;
    }
    fc->due_ns = due_ns;
}

static int64_t min_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    (void)sender_position;
    evict(fc, now_ns);
    if (fc->tracked < fc->min_size || fc->tracked == 0) {
        return limit;
    }
    return slowest(fc);
}

static void min_on_error(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns)
{
    ps_fc_receiver_t *receiver = find(fc, receiver_id);
    if (receiver != NULL) {
        receiver->evict = true;
        fc->due_ns = now_ns;
    }
}

static bool min_has_required(const ps_fc_t *fc)
{
    return fc->tracked >= fc->min_size;
}

const ps_fc_ops_t ps_fc_min_ops = {
    "min",
    4,
    min_on_sm,
    min_on_setup_asked,
    min_on_setup_sent,
    min_on_idle,
    min_on_error,
    min_has_required,
};
const ps_fc_ops_t ps_fc_tagged_ops = {
    "tagged",          4,           min_on_sm,    min_on_setup_asked,
    min_on_setup_sent, min_on_idle, min_on_error, min_has_required,
};
