/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_fc.c: what a sender must make of the status messages that it read: who is there, how
 * far it may send under its strategy, whether it is connected.
 *
 *   unicast, max   the furthest edge ever stated
 *   nak            the same, with at least half a term for a window among peers that can signal and
 *                  have the storage for it
 *   min, tagged    the least edge of those followed, and of the hold for one who joins
 *
 * A limit that has to come down may take until the next timer tick. A sender may tick before it
 * reads, in each cycle: what counts is whether its limit was right at one moment of the cycle.
 */
#include "ps_driver.h"
#include "ps_sim_probe.h"

#define SECOND_NS INT64_C(1000000000)

#define MOMENT_NS INT64_C(20000000)

enum { SNAPSHOT_EVERY = 64 };

static const char LIMIT_RULE[] = "the sender's limit is the strategy's";

static int32_t driver_side(const ps_probe_pub_t *model)
{
    return model->pub->log.session_id;
}

static ps_probe_receiver_t *receiver_of(ps_probe_pub_t *model, int64_t id)
{
    for (int32_t i = 0; i < model->receiver_count; i++) {
        if (model->receivers[i].id == id) {
            return &model->receivers[i];
        }
    }
    for (int32_t i = 0; i < model->receiver_count; i++) { /* one that is gone makes room */
        if (!model->receivers[i].live && !model->receivers[i].followed) {
            model->replaced[model->replaced_count++ % PS_PROBE_RECEIVERS] = model->receivers[i].id;
            model->receivers[i] = (ps_probe_receiver_t){ .id = id };
            return &model->receivers[i];
        }
    }
    if (model->receiver_count == PS_PROBE_RECEIVERS) {
        return NULL;
    }
    model->receivers[model->receiver_count] = (ps_probe_receiver_t){ .id = id };
    return &model->receivers[model->receiver_count++];
}

static int32_t followed_count(const ps_probe_pub_t *model)
{
    int32_t count = 0;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        count += model->receivers[i].followed;
    }
    return count;
}

static int64_t least_edge(const ps_probe_pub_t *model)
{
    int64_t least = model->join.limit;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        least = receiver->followed && receiver->edge < least ? receiver->edge : least;
    }
    return least;
}

static bool follows(const ps_publication_t *pub)
{
    return pub->params.flow_control == PS_FC_MIN || pub->params.flow_control == PS_FC_TAGGED;
}

static bool is_meant(const ps_publication_t *pub, const ps_sm_t *sm)
{
    return pub->params.flow_control != PS_FC_TAGGED ||
           (sm->has_group_tag != 0 && sm->group_tag == pub->params.fc_group_tag);
}

/* Whether its time was over a moment ago: timers run once a tick, before or after it was heard. */
static bool is_doubtful(const ps_publication_t *pub, const ps_probe_receiver_t *receiver,
                        int64_t now_ns)
{
    const int64_t last_ns =
        receiver->open_ns < receiver->fc_heard_ns ? receiver->open_ns : receiver->fc_heard_ns;
    const int64_t over_ns = now_ns - last_ns - pub->fc.timeout_ns;
    return receiver->fc_heard_ns > 0 && over_ns >= 0 && over_ns <= MOMENT_NS;
}

/* A receiver that has left is removed at the next timer tick, which may have been just before this
 * cycle read. */
static void forget_leaving(ps_probe_pub_t *model)
{
    for (int32_t i = 0; i < model->receiver_count; i++) {
        ps_probe_receiver_t *receiver = &model->receivers[i];
        receiver->followed = receiver->followed &&
                             (!receiver->leaving || ps_probe_is_tracked(model->pub, receiver->id));
    }
}

/* The timers of the sender may have removed more receivers than the one that is heard: what counts
 * for one that joins is the least edge of those that are left. */
static void settle_doubtful(ps_probe_pub_t *model, int64_t now_ns)
{
    for (int32_t i = 0; i < model->receiver_count; i++) {
        ps_probe_receiver_t *receiver = &model->receivers[i];
        if (is_doubtful(model->pub, receiver, now_ns)) {
            receiver->followed = ps_probe_is_tracked(model->pub, receiver->id);
        }
    }
}

static void follow(ps_probe_pub_t *model, ps_probe_receiver_t *receiver, const ps_sm_t *sm,
                   const ps_addr_t *from, int64_t edge, int64_t now_ns)
{
    const bool leaving = (sm->flags & PS_SM_EOS) != 0;
    const bool open = sm->window >= model->pub->log.mtu; /* it takes a datagram */
    if (!is_meant(model->pub, sm)) {
        return;
    }
    forget_leaving(model);
    settle_doubtful(model, now_ns);
    if (receiver->followed) {
        receiver->edge = edge;
        receiver->fc_heard_ns = now_ns;
        receiver->open_ns = open ? now_ns : receiver->open_ns;
        (void)ps_probe_join_came(model, sm->receiver_id, from, now_ns);
        receiver->left_ns = receiver->leaving ? receiver->left_ns : now_ns;
        receiver->leaving = leaving;
    } else if (!leaving && open &&
               (followed_count(model) == 0 || edge >= least_edge(model) - sm->window)) {
        receiver->followed = true;
        receiver->leaving = false;
        receiver->within = false; /* while it did not count, the sender may have gone on */
        receiver->edge = edge;
        receiver->fc_heard_ns = ps_probe_join_came(model, sm->receiver_id, from, now_ns);
        receiver->open_ns = receiver->fc_heard_ns;
    } else if (leaving) {
        receiver->edge = edge;
    }
}

/* Returns the limit under min and tagged; INT64_MIN: too few receivers are followed. */
static int64_t group_limit(const ps_probe_pub_t *model)
{
    const int32_t followed = followed_count(model);
    const bool waits = followed > 0 && followed >= model->pub->params.fc_group_min_size;
    return waits ? least_edge(model) : INT64_MIN;
}

/* Notes what a status message has made of the limit. */
static void note_granted(ps_probe_pub_t *model)
{
    const int64_t limit = group_limit(model);
    model->granted = limit > model->granted ? limit : model->granted;
}

/* Returns true if the sender's limit was the strategy's at a moment since the last check: a status
 * message had raised it, or it came down to what it had to be at the last check. */
static bool was_right(const ps_probe_pub_t *model)
{
    const int64_t limit = model->pub->sender_limit;
    return limit == model->granted || (limit == model->last_least && limit < model->last_limit);
}

/* A limit that no receiver granted for the time-out comes down, once. */
static void recede(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t edge =
        model->watch_edge > pub->sender_position ? model->watch_edge : pub->sender_position;
    const bool nak = pub->params.flow_control == PS_FC_PRESSURE; /* the limit may be another's */
    if (model->watch_ns != 0 && now_ns - model->watch_ns >= PS_FC_TIMEOUT_NS &&
        (pub->sender_limit == edge || edge >= model->limit || nak)) {
        model->limit = nak ? (edge < model->limit ? edge : model->limit) : pub->sender_limit;
        model->watch_ns = 0;
    }
}

static void raise(ps_probe_pub_t *model, const ps_sm_t *sm, int64_t position, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const uint32_t capabilities = sm->trailer.capabilities;
    const int64_t term = pub->log.term_length;
    int64_t window = sm->window;
    if (pub->params.flow_control == PS_FC_PRESSURE && (capabilities & PS_CAP_PRESSURE) != 0 &&
        sm->trailer.congestion_window == 0 && sm->trailer.reason != PS_CAUSE_STORAGE) {
        const int64_t kept = (capabilities & PS_CAP_KEEPS_TERM) != 0 ? term / 4 * 3 : term / 2;
        window = window > kept ? window : kept;
    }
    const int64_t edge = position + window;
    if (pub->sender_limit < model->limit) { /* the timer of this cycle may have run already */
        recede(model, now_ns);
    }
    if ((capabilities & PS_CAP_PRESSURE) == 0) {
        const bool first = now_ns - model->plain_ns >= SECOND_NS;
        model->plain_edge = first || edge > model->plain_edge ? edge : model->plain_edge;
        model->plain_ns = now_ns;
    }
    if (edge >= model->limit) {
        model->limit = edge;
        model->watch_ns = 0;
        return;
    }
    if (model->watch_ns == 0) {
        model->watch_ns = now_ns;
        model->watch_edge = edge;
    }
    model->watch_edge = edge > model->watch_edge ? edge : model->watch_edge;
}

/* live: how many receivers are. */
static bool has_receivers(const ps_probe_pub_t *model, int32_t live)
{
    return !model->pub->revoked && live > 0 &&
           (!follows(model->pub) || followed_count(model) >= model->pub->params.fc_group_min_size);
}

static int32_t live_count(const ps_probe_pub_t *model)
{
    int32_t live = 0;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        live += model->receivers[i].live;
    }
    return live;
}

bool ps_probe_has_receivers(const ps_probe_pub_t *model)
{
    return has_receivers(model, live_count(model));
}

void ps_probe_fc_sm(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sm_t *sm,
                    const ps_addr_t *from, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int32_t term = pub->log.term_length;
    ps_probe_spies_passed(probe, model, now_ns); /* as a cycle sends before it reads */
    if (pub->endpoint == NULL || sm->term_offset < 0 || sm->term_offset > term ||
        sm->term_offset % PS_FRAME_ALIGNMENT != 0 || sm->window < 0 || sm->window > term / 2) {
        return;
    }
    if ((sm->flags & PS_SM_SETUP) != 0) {
        if (!pub->end_of_stream) {
            model->requested_setup = true;
            if (follows(pub) && is_meant(pub, sm) && followed_count(model) > 0 &&
                !ps_probe_is_tracked(pub, sm->receiver_id)) {
                ps_probe_join_requested(model, sm->receiver_id, from, now_ns);
            }
        }
        return;
    }
    const int64_t position =
        (int64_t)ps_wrap_sub(sm->term_id, pub->log.initial_term_id) * term + sm->term_offset;
    if (!ps_probe_may_grant(pub, model->high, position)) {
        return; /* nothing that it can have received */
    }
    model->stated_edge =
        position + sm->window > model->stated_edge ? position + sm->window : model->stated_edge;
    ps_probe_receiver_t *receiver = receiver_of(model, sm->receiver_id);
    if (receiver == NULL) {
        return;
    }
    ps_probe_credit_heard(model, receiver, sm, now_ns);
    const int64_t silent_ns = pub->context->params.connection_timeout_ns;
    /* If a receiver is removed and returns in the same cycle, it is a new entry of the table. */
    model->forgot =
        model->forgot || (sm->flags & PS_SM_EOS) != 0 || now_ns - receiver->heard_ns >= silent_ns;
    if ((sm->flags & PS_SM_EOS) != 0) {
        receiver->live = false;
    } else {
        ps_probe_greet(model, receiver, now_ns);
        receiver->live = true;
        receiver->heard_ns = now_ns;
        receiver->reason = sm->trailer.capabilities != 0 ? sm->trailer.reason : 0;
        model->idle_ns = model->ever_heard ? model->idle_ns : now_ns;
        model->ever_heard = true;
        if (!pub->params.group) { /* who requests all gaps is answered for all */
            model->answers = (sm->trailer.capabilities & PS_CAP_PENSTOCK) != 0 &&
                                     pub->context->params.loss_recovery == PS_LOSS_ALL_GAPS
                                 ? PS_RESEND_MAX
                                 : 1;
        }
        model->paced_bytes = ps_probe_paced_bytes(model);
        receiver->pacing_rate = sm->trailer.capabilities != 0 ? sm->trailer.pacing_rate : 0;
        model->stated_rate = receiver->pacing_rate;
        if (receiver->pacing_rate == 0) { /* a reordered statement may restore the pace at once */
            ps_probe_bucket_set(&model->pace, 0, 0, now_ns);
        }
    }
    receiver->position = position;
    if (follows(pub)) {
        follow(model, receiver, sm, from, position + sm->window, now_ns);
        note_granted(model);
    } else {
        raise(model, sm, position, now_ns);
        receiver->edge = position + sm->window;
    }
    /* A receiver that joined may have left before the cycle is checked; the adopted state no longer
     * counts then. */
    model->ever_connected = model->ever_connected || has_receivers(model, live_count(model));
}

void ps_probe_fc_error(ps_probe_pub_t *model, int64_t receiver_id, int64_t now_ns)
{
    model->forgot = true;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        ps_probe_receiver_t *receiver = &model->receivers[i];
        if (receiver->id == receiver_id) {
            receiver->left_ns = receiver->leaving ? receiver->left_ns : now_ns;
            receiver->leaving = true;
            receiver->live = false; /* It is heard again only with another image. */
        }
    }
}

void ps_probe_fc_setup_sent(ps_probe_pub_t *model)
{
    if (follows(model->pub) && followed_count(model) > 0) {
        ps_probe_join_setup(model);
    } else {
        model->join.fresh = false; /* the group need not wait for it */
    }
}

/* Until that tick the receiver counts, also for receivers that join. */
static bool is_leaving_yet(const ps_publication_t *pub, const ps_probe_receiver_t *receiver,
                           int64_t now_ns)
{
    return receiver->leaving && now_ns - receiver->left_ns <= MOMENT_NS &&
           ps_probe_is_tracked(pub, receiver->id);
}

/* Removes receivers that were silent for too long or have left. */
static int32_t expire(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t silent_ns = pub->context->params.connection_timeout_ns;
    const int64_t requested_ns = pub->params.fc_receiver_timeout_ns;
    const int64_t timeout_ns = requested_ns > 0 ? requested_ns : PS_FC_TIMEOUT_NS;
    int32_t live = 0;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        ps_probe_receiver_t *receiver = &model->receivers[i];
        receiver->live = receiver->live && now_ns - receiver->heard_ns < silent_ns;
        live += receiver->live;
        if (receiver->followed && !is_leaving_yet(pub, receiver, now_ns) &&
            (receiver->leaving || now_ns - receiver->fc_heard_ns >= timeout_ns ||
             now_ns - receiver->open_ns >= timeout_ns)) {
            receiver->followed = false;
        }
    }
    return live;
}

/* The limit of a strategy in Python: its answer in time; while it is late, what on_late states;
 * after five seconds, and never beyond it, the furthest edge. */
static int64_t custom_limit(const ps_fc_t *fc, int64_t now_ns)
{
    const int64_t least = fc->tracked > 0 ? ps_edges_least(&fc->edges) : fc->edge;
    const bool late = now_ns >= fc->custom_until_ns;
    int64_t limit = fc->custom_limit;
    if (late && (now_ns >= fc->custom_silent_ns || fc->on_late == PS_FC_LATE_MAX)) {
        limit = fc->edge;
    } else if (late) {
        limit = fc->on_late == PS_FC_LATE_HOLD && limit > least ? limit : least;
    }
    return limit < fc->edge ? limit : fc->edge;
}

/* Edges that fall after the moment at which the limit was right have their own time from now on. */
static void check_group_limit(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    const int64_t limit = group_limit(model);
    const bool right = limit == INT64_MIN || pub->sender_limit == limit;
    if (!right && was_right(model)) {
        ps_probe_promise(probe, &model->promises[P_PUB_LIMIT], true, now_ns, slack_ns, LIMIT_RULE,
                         model->host, driver_side(model));
    }
    ps_probe_promise(probe, &model->promises[P_PUB_LIMIT], right, now_ns, slack_ns, LIMIT_RULE,
                     model->host, driver_side(model));
    model->granted = INT64_MIN;
    model->last_least = limit;
    model->last_limit = pub->sender_limit;
}

static void check_limit(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    if (pub->params.flow_control == PS_FC_CUSTOM) {
        /* Without receivers, the limit moves with the position that follows the spies. The next
         * answer of the strategy may lower it again. */
        const int64_t stated = custom_limit(&pub->fc, now_ns);
        const bool spied = pub->params.spies_simulate_connection && !model->spies_heard &&
                           stated < pub->sender_position;
        ps_probe_promise(probe, &model->promises[P_PUB_LIMIT],
                         !pub->fc.custom_started || pub->sender_limit == stated ||
                             (spied && pub->sender_limit == pub->sender_position),
                         now_ns, slack_ns, "the limit is the strategy's, or on_late's", model->host,
                         driver_side(model));
        return;
    }
    recede(model, now_ns);
    int64_t expected = model->limit;
    if (pub->params.flow_control == PS_FC_PRESSURE && now_ns - model->plain_ns < SECOND_NS &&
        model->plain_edge < expected) {
        expected = model->plain_edge; /* of Aeron receivers, which cannot signal */
    }
    if (follows(pub)) {
        check_group_limit(probe, model, now_ns);
        return;
    }
    ps_probe_promise(probe, &model->promises[P_PUB_LIMIT], pub->sender_limit == expected, now_ns,
                     pub->params.flow_control == PS_FC_PRESSURE ? slack_ns : 0, LIMIT_RULE,
                     model->host, driver_side(model));
}

/* Checks the snapshot of the receivers for the conductor. */
static void check_snapshot(ps_probe_t *probe, ps_probe_pub_t *model)
{
    ps_receiver_view_t views[PS_PROBE_RECEIVERS];
    const int32_t count = ps_publication_receivers(model->pub, views, PS_PROBE_RECEIVERS);
    if (count != model->pub->receiver_count) {
        ps_probe_fail(probe, model->host, driver_side(model),
                      "the snapshot shows %d receivers, there are %d", count,
                      model->pub->receiver_count);
    }
    for (int32_t i = 0; i < count; i++) {
        const ps_probe_receiver_t *receiver = receiver_of(model, views[i].receiver_id);
        if (receiver != NULL && receiver->live && receiver->position != views[i].position) {
            ps_probe_fail(probe, model->host, driver_side(model),
                          "the snapshot shows a receiver at %lld, it said %lld",
                          (long long)views[i].position, (long long)receiver->position);
        }
    }
}

void ps_probe_fc_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    const int32_t live = expire(model, now_ns);
    const bool spied = pub->params.spies_simulate_connection && pub->gating_count > 0;
    const bool connected = has_receivers(model, live) || (spied && !pub->revoked);
    /* A publication that was connected at the old daemon stays connected as long as a receiver may
     * be silent. */
    const int64_t until_ns = pub->adopted_until_ns;
    model->ever_connected = model->ever_connected || connected;
    const bool adopts =
        until_ns != 0 && now_ns < until_ns && !model->ever_connected && !pub->revoked;
    const int64_t timeout_ns = pub->context->params.connection_timeout_ns;
    if (!model->settled && until_ns != 0 && until_ns != now_ns + timeout_ns) {
        ps_probe_fail(probe, model->host, driver_side(model), "a connection is adopted for %lld",
                      (long long)(until_ns - now_ns));
    }
    if (follows(pub)) {
        ps_probe_join_check(probe, model, now_ns);
    }
    check_limit(probe, model, now_ns);
    ps_probe_promise(probe, &model->promises[P_PUB_RECEIVERS], pub->receiver_count == live, now_ns,
                     slack_ns, "receivers are those heard", model->host, driver_side(model));
    ps_probe_promise(probe, &model->promises[P_PUB_CONNECTED],
                     pub->connected == (connected || adopts), now_ns, slack_ns,
                     "it is connected while receivers are heard", model->host, driver_side(model));
    ps_probe_promise(probe, &model->promises[P_PUB_ADOPTS], !pub->adopted_connection || adopts,
                     now_ns, slack_ns, "a connection of its own replaces an adopted one",
                     model->host, driver_side(model));
    if (atomic_load_explicit(&pub->log.meta->is_connected, memory_order_relaxed) !=
        pub->connected) {
        ps_probe_fail(probe, model->host, driver_side(model), "clients see another connection");
    }
    if (atomic_load_explicit(pub->naks_cell, memory_order_relaxed) != (int64_t)model->naks &&
        model->settled && !pub->params.adopted) {
        ps_probe_fail(probe, model->host, driver_side(model), "%lld NAKs counted, %llu read",
                      (long long)atomic_load_explicit(pub->naks_cell, memory_order_relaxed),
                      (unsigned long long)model->naks);
    }
    if (model->answers > 0 && pub->retransmit.capacity != model->answers) {
        ps_probe_fail(probe, model->host, driver_side(model), "%d answers at once, not %d",
                      pub->retransmit.capacity, model->answers);
    }
    if (probe->checks % SNAPSHOT_EVERY == 0) {
        check_snapshot(probe, model);
    }
}
