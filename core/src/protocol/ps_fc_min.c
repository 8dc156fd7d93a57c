/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_fc_min.c: min and tagged: the slowest receiver sets the pace, of all or of those that carry
 * the group's tag (docs/flow-control.md).
 *
 * The sender follows a receiver from its first status message on, unless that is more than one
 * window behind the slowest. The receiver leaves with an EOS flag or an ERR frame. It also leaves
 * after the receiver time-out if it was silent or stated a window smaller than a datagram. While a
 * receiver that requested a SETUP is about to join, the sender holds its limit (ps_join.h). The
 * stream then does not advance beyond the new receiver's window. The duration of the hold counts
 * towards the receiver's first silence, so no receiver holds a group for longer than one time-out.
 * An ERR frame of the receiver ends its hold at once.
 *
 * Bound: a status message costs O(log n), a timer cycle checks each receiver once, at most
 * PS_FC_RECEIVERS_MAX; in a larger group the first receivers set the pace. */
#include "ps_flow_control.h"

#include <stddef.h>

static ps_fc_receiver_t *find(ps_fc_t *fc, int64_t id)
{
    const int32_t index = ps_map_get(&fc->index, (uint64_t)id);
    return index == 0 ? NULL : &fc->receivers[index - 1];
}

static bool is_open(const ps_fc_t *fc, const ps_sm_t *sm)
{
    return sm->window > 0 && sm->window >= fc->mtu;
}

/* Returns the least of the hold and all edges, and notes its receiver. */
static int64_t slowest(ps_fc_t *fc)
{
    int64_t least = fc->join->limit;
    fc->join_binds = ps_join_holds(fc->join);
    if (fc->join_binds) {
        fc->limiting_receiver = fc->join->joiner;
    }
    if (ps_edges_least(&fc->edges) < least) {
        fc->join_binds = false;
        least = ps_edges_least(&fc->edges);
        fc->limiting_receiver = fc->receivers[ps_edges_first_least(&fc->edges)].id;
    }
    fc->group_binds = ps_edges_largest(&fc->edges) > least;
    return least;
}

static bool carries_tag(const ps_fc_t *fc, const ps_sm_t *sm)
{
    return ps_fc_counts(fc, sm->has_group_tag != 0, sm->group_tag);
}

/* Notes that the receiver joined; the limit moves at the next cycle. Returns the start of its
 * hold. */
static int64_t joined(ps_fc_t *fc, const ps_sm_t *sm, const ps_addr_t *from, int64_t now_ns)
{
    const bool held = ps_join_holds(fc->join);
    const int64_t since_ns =
        fc->join->missing ? ps_join_joined(fc->join, sm->receiver_id, from, now_ns) : now_ns;
    if (held && !ps_join_holds(fc->join)) {
        fc->due_ns = now_ns;
    }
    return since_ns;
}

/* There is room. */
static void insert(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t since_ns)
{
    const int64_t end_ns = since_ns + fc->timeout_ns;
    fc->receivers[fc->tracked] = (ps_fc_receiver_t){ .id = sm->receiver_id,
                                                     .position = position,
                                                     .edge = position + sm->window,
                                                     .heard_ns = since_ns,
                                                     .open_ns = since_ns };
    ps_edges_set(&fc->edges, fc->tracked, position + sm->window);
    fc->tracked++;
    (void)ps_map_put(&fc->index, (uint64_t)sm->receiver_id, fc->tracked);
    fc->due_ns = end_ns < fc->due_ns ? end_ns : fc->due_ns;
}

static void add(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, const ps_addr_t *from,
                int64_t now_ns)
{
    insert(fc, sm, position, joined(fc, sm, from, now_ns));
}

static int64_t min_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         const ps_addr_t *from, int64_t now_ns)
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
        known->open_ns = is_open(fc, sm) ? now_ns : known->open_ns;
        known->eos = leaving;
        (void)joined(fc, sm, from, now_ns);
    }
    int64_t least = slowest(fc);
    if (known == NULL && matches && !leaving && is_open(fc, sm) &&
        fc->tracked < PS_FC_RECEIVERS_MAX && (fc->tracked == 0 || edge >= least - sm->window)) {
        add(fc, sm, position, from, now_ns);
        least = edge < least ? edge : least;
        (void)slowest(fc); /* who it is */
    }
    if (leaving || least < limit) { /* what has to come down does so at the next timer cycle */
        fc->due_ns = now_ns;
    }
    if (fc->tracked < fc->min_size) {
        fc->join_binds = false;
        return limit;
    }
    if (fc->tracked == 0) { /* no receiver to wait for: as max */
        fc->group_binds = false;
        fc->join_binds = false;
        return ps_fc_furthest(fc, sm->receiver_id, edge, limit, now_ns);
    }
    return least > limit ? least : limit;
}

static int32_t min_on_setup_requested(ps_fc_t *fc, const ps_sm_t *sm, const ps_addr_t *from,
                                      int64_t now_ns)
{
    if (!carries_tag(fc, sm) || fc->tracked == 0 || find(fc, sm->receiver_id) != NULL) {
        return PS_JOIN_GRANTED; /* there is no group to hold, or the receiver has joined */
    }
    return ps_join_request(fc->join, sm->receiver_id, from, now_ns);
}

static void min_on_setup_sent(ps_fc_t *fc, int64_t limit, int64_t now_ns)
{
    ps_join_start(fc->join, limit, fc->tracked > 0, now_ns);
    (void)slowest(fc); /* whose hold it is */
    if (ps_join_holds(fc->join) && fc->join->until_ns < fc->due_ns) {
        fc->due_ns = fc->join->until_ns;
    }
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

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Removes receivers that left, were silent, or had no room for the time-out. */
static void evict(ps_fc_t *fc, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (int32_t i = 0; i < fc->tracked;) {
        const ps_fc_receiver_t *receiver = &fc->receivers[i];
        const int64_t end_ns = earlier(receiver->heard_ns, receiver->open_ns) + fc->timeout_ns;
        if (receiver->eos || receiver->evict || end_ns <= now_ns) {
            leave(fc, i);
        } else {
            due_ns = earlier(due_ns, end_ns);
            i++;
        }
    }
    (void)ps_join_expire(fc->join, now_ns);
    fc->due_ns = ps_join_holds(fc->join) ? earlier(due_ns, fc->join->until_ns) : due_ns;
}

void ps_fc_follow(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t now_ns)
{
    ps_fc_receiver_t *known = find(fc, sm->receiver_id);
    if ((sm->flags & PS_SM_EOS) != 0) {
        if (known != NULL) {
            leave(fc, (int32_t)(known - fc->receivers));
        }
    } else if (known != NULL) {
        known->edge = position + sm->window;
        known->heard_ns = now_ns;
        ps_edges_set(&fc->edges, (int32_t)(known - fc->receivers), known->edge);
    } else if (fc->tracked < PS_FC_RECEIVERS_MAX) {
        insert(fc, sm, position, now_ns);
    }
}

int64_t ps_fc_forget(ps_fc_t *fc, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (int32_t i = 0; i < fc->tracked;) {
        const int64_t end_ns = fc->receivers[i].heard_ns + fc->timeout_ns;
        if (end_ns <= now_ns) {
            leave(fc, i);
        } else {
            due_ns = earlier(due_ns, end_ns);
            i++;
        }
    }
    return due_ns;
}

static int64_t min_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    (void)sender_position;
    evict(fc, now_ns);
    if (fc->tracked < fc->min_size || fc->tracked == 0) {
        fc->join_binds = false;
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
    if (fc->join->missing && ps_join_refused(fc->join, receiver_id, now_ns)) {
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
    min_on_setup_requested,
    min_on_setup_sent,
    min_on_idle,
    min_on_error,
    min_has_required,
};
const ps_fc_ops_t ps_fc_tagged_ops = {
    "tagged",          4,           min_on_sm,    min_on_setup_requested,
    min_on_setup_sent, min_on_idle, min_on_error, min_has_required,
};
