/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_join.c: no receiver can hold a group for longer than its time-out T
 * (docs/decisions/0095). These rules are checked:
 *
 *   - A hold for joining receivers is the limit for at most T in any 4 T.
 *   - The group waits for a receiver at most once in T, and only once for an address that has not
 *     joined.
 *   - The group waits for the first request after a quiet time, unless the receiver had refused the
 *     stream.
 *   - The group does not wait for a receiver that has refused the stream by an ERR frame.
 *   - The limit is the edge of a receiver that is heard and has room, or had room within T.
 */
#include "ps_sim_probe.h"

#include "ps_destinations.h"

#define MOMENT_NS INT64_C(20000000)
enum { SPAN = 4 };

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what,
                     int64_t found, int64_t allowed)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s: %lld, allowed %lld", what,
                  (long long)found, (long long)allowed);
}

static bool is_of(const ps_probe_joiner_t *joiner, int64_t id, const ps_addr_t *from)
{
    return joiner->used && (joiner->id == id || ps_addr_equal(&joiner->address, from));
}

void ps_probe_join_requested(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                             int64_t now_ns)
{
    ps_probe_join_t *join = &model->join;
    /* A hold lasts at most T. It leaves the account 4 T and one part of T after its last part. */
    const int64_t timeout_ns = model->pub->fc.timeout_ns;
    const int64_t quiet_ns = (SPAN + 1) * timeout_ns + timeout_ns / PS_JOIN_TIMEOUT_PARTS;
    bool fresh = model->pub->fc.tracked > 0;
    for (int32_t i = 0; i < PS_PROBE_JOINERS; i++) {
        const ps_probe_joiner_t *joiner = &join->joiners[i];
        fresh = fresh && !is_of(joiner, id, from) && join->deniers[i] != id &&
                !(joiner->used && now_ns - joiner->given_ns < quiet_ns);
    }
    if (fresh) {
        join->fresh = true;
        join->fresh_id = id;
        join->fresh_from = *from;
    }
}

void ps_probe_join_setup(ps_probe_pub_t *model)
{
    ps_probe_join_t *join = &model->join;
    join->owed = join->fresh && model->pub->fc.tracked > 0;
    join->fresh = false;
    join->before = join->began ? join->before : join->limit;
    join->began = true;
    bool requested = false;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        requested = requested || model->pub->fc.join->records[i].state == PS_JOIN_REQUESTED;
    }
    if (requested &&
        (model->pub->sender_limit < join->limit || ps_probe_hold(model) == INT64_MAX)) {
        join->limit = model->pub->sender_limit;
    }
}

int64_t ps_probe_join_came(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from, int64_t now_ns)
{
    int64_t since_ns = now_ns;
    bool waits = false;
    for (int32_t i = 0; i < PS_PROBE_JOINERS; i++) {
        ps_probe_joiner_t *joiner = &model->join.joiners[i];
        if (is_of(joiner, id, from)) {
            since_ns = joiner->waited && joiner->given_ns < since_ns ? joiner->given_ns : since_ns;
            joiner->joined = true;
            joiner->waited = false;
        }
        model->join.deniers[i] = model->join.deniers[i] == id ? 0 : model->join.deniers[i];
        waits = waits || joiner->waited;
    }
    if (id == model->join.fresh_id || ps_addr_equal(from, &model->join.fresh_from)) {
        model->join.fresh = false;
        model->join.owed = false;
    }
    model->join.limit = waits || model->join.began ? model->join.limit : INT64_MAX;
    return since_ns;
}

void ps_probe_join_refused(ps_probe_pub_t *model, int64_t id)
{
    ps_probe_join_t *join = &model->join;
    bool known = false;
    for (int32_t i = 0; i < PS_PROBE_JOINERS; i++) {
        ps_probe_joiner_t *joiner = &join->joiners[i];
        known = known || join->deniers[i] == id;
        if (joiner->used && joiner->id == id && joiner->waited) {
            joiner->waited = false;
            join->refused = id;
            join->ended_by_refusal = true;
            known = true;
        }
    }
    if (!known) {
        join->deniers[join->next_denier] = id;
        join->next_denier = (join->next_denier + 1) % PS_PROBE_JOINERS;
    }
    if (id == join->fresh_id) {
        join->fresh = false;
        join->owed = false;
    }
}

/* A hold began for this receiver: was it allowed to? */
static void begin(ps_probe_t *probe, ps_probe_pub_t *model, const ps_join_record_t *record)
{
    ps_probe_join_t *join = &model->join;
    ps_probe_joiner_t *mine = NULL;
    for (int32_t i = 0; i < PS_PROBE_JOINERS; i++) {
        ps_probe_joiner_t *joiner = &join->joiners[i];
        if (!is_of(joiner, record->id, &record->address)) {
            continue;
        }
        if (joiner->id == record->id && joiner->given_ns == record->given_ns) {
            return; /* known */
        }
        if (!joiner->joined) {
            complain(probe, model, "an address that has not joined is waited for again",
                     record->given_ns, joiner->given_ns);
        }
        if (joiner->id == record->id &&
            record->given_ns - joiner->given_ns < model->pub->fc.timeout_ns) {
            complain(probe, model, "a receiver is waited for twice within its time-out",
                     record->given_ns - joiner->given_ns, model->pub->fc.timeout_ns);
        }
        mine = joiner->id == record->id ? joiner : mine;
    }
    if (mine == NULL) {
        mine = &join->joiners[join->next_joiner];
        join->next_joiner = (join->next_joiner + 1) % PS_PROBE_JOINERS;
    }
    *mine = (ps_probe_joiner_t){ .id = record->id,
                                 .given_ns = record->given_ns,
                                 .address = record->address,
                                 .used = true,
                                 .waited = true };
}

/* Times in which the hold was the limit, within the last 4 T. */
static void check_budget(ps_probe_t *probe, ps_probe_pub_t *model, bool held, int64_t now_ns)
{
    ps_probe_join_t *join = &model->join;
    const int64_t timeout_ns = model->pub->fc.timeout_ns;
    const int64_t since_ns = now_ns - SPAN * timeout_ns;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host) + MOMENT_NS;
    int64_t spent_ns = 0;
    int64_t holds = 0;
    if (held && !join->held) {
        join->next_hold = (join->next_hold + 1) % PS_PROBE_HOLDS;
        join->from_ns[join->next_hold] = now_ns;
    }
    if (held || join->held) {
        join->to_ns[join->next_hold] = now_ns;
    }
    join->held = held;
    if (!held) {
        return;
    }
    for (int32_t i = 0; i < PS_PROBE_HOLDS; i++) {
        const int64_t from_ns = join->from_ns[i] > since_ns ? join->from_ns[i] : since_ns;
        if (join->to_ns[i] > from_ns) {
            spent_ns += join->to_ns[i] - from_ns;
            holds++;
        }
    }
    if (spent_ns > timeout_ns + holds * slack_ns) {
        complain(probe, model, "a group waits for joining receivers too long", spent_ns,
                 timeout_ns);
    }
}

/* Returns true if the sender follows the receiver. A receiver whose time is over is followed until
 * the next tick. */
static bool is_followed_yet(const ps_publication_t *pub, const ps_probe_receiver_t *receiver,
                            int64_t heard_ns, int64_t now_ns)
{
    const bool over = now_ns - heard_ns >= pub->fc.timeout_ns;
    return receiver->followed || (over && ps_probe_is_tracked(pub, receiver->id));
}

/* The receiver whose edge is the limit. Others may have the same edge. */
static void check_holder(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host) + MOMENT_NS;
    const int64_t most_ns = pub->fc.timeout_ns + slack_ns;
    int64_t others = INT64_MAX;
    const ps_probe_receiver_t *holder = NULL;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        const int64_t heard_ns =
            receiver->fc_heard_ns < receiver->open_ns ? receiver->fc_heard_ns : receiver->open_ns;
        if (receiver->fc_heard_ns == 0) {
            continue;
        }
        if (now_ns - heard_ns > most_ns) { /* the group need not wait for it */
            holder = receiver->edge == pub->sender_limit && receiver->live ? receiver : holder;
        } else if (is_followed_yet(pub, receiver, heard_ns, now_ns) && receiver->edge < others) {
            others = receiver->edge;
        }
    }
    if (holder != NULL && others != INT64_MAX && others > pub->sender_limit &&
        ps_probe_hold(model) > pub->sender_limit &&
        pub->fc.tracked >= pub->params.fc_group_min_size) {
        const int64_t heard_ns =
            holder->fc_heard_ns < holder->open_ns ? holder->fc_heard_ns : holder->open_ns;
        complain(probe, model, "a receiver holds the group for longer than its time-out",
                 now_ns - heard_ns, pub->fc.timeout_ns);
    }
}

void ps_probe_join_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_join_t *join = &model->join;
    const ps_join_t *shown = pub->fc.join;
    const int64_t hold = ps_probe_hold(model);
    /* The hold may have ended in this cycle; the limit then moves with the next timers. A hold has
     * no effect while no receiver is followed. */
    if (join->held || join->known) {
        join->ended_ns = now_ns;
    }
    const bool was_held = now_ns - join->ended_ns <= ps_probe_slack_ns(probe, model->host);
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < PS_JOIN_RECORDS && hold != INT64_MAX; i++) {
        if (shown->records[i].state == PS_JOIN_WAITING) {
            if (shown->records[i].id == join->refused) {
                complain(probe, model, "a group waits for a receiver that refused the stream",
                         join->refused, 0);
            }
            begin(probe, model, &shown->records[i]);
        }
    }
    for (int32_t i = 0; i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        least = receiver->followed && receiver->edge < least ? receiver->edge : least;
    }
    /* If some destinations accepted a SETUP that others refused, the sender repeats the SETUP. */
    if (join->owed && hold == INT64_MAX && pub->fc.tracked > 0 &&
        pub->setup_sent_ns == model->setup_ns) {
        complain(probe, model, "nobody waits for a receiver that joins", join->fresh_id, 0);
    }
    /* A SETUP that one destination refused began no hold: what was held stays held there. */
    if (join->began && pub->setup_sent_ns != model->setup_ns && hold == join->before) {
        join->limit = hold;
    }
    join->owed = false;
    join->began = false;
    join->refused = 0;
    if (hold != INT64_MAX && hold != join->limit) {
        complain(probe, model, "a group is held somewhere else than where it was", hold,
                 join->limit);
    }
    join->limit = hold;
    join->known = hold != INT64_MAX;
    for (int32_t i = 0; i < PS_PROBE_JOINERS; i++) { /* an ended hold waits for no receiver */
        join->joiners[i].waited = join->joiners[i].waited && hold != INT64_MAX;
    }
    check_budget(probe, model, hold < least && least != INT64_MAX && pub->sender_limit <= hold,
                 now_ns);
    if (!was_held) {
        check_holder(probe, model, now_ns);
    }
}
