/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_spy.c: spies that stand for receivers (ssc).  While nobody on the network is heard
 * the sender goes where the spy that is furthest on has been, without sending, and no further; it
 * counts what it passes; and as soon as somebody is heard it sends again.
 */
#include "ps_log.h"
#include "ps_sim_probe.h"
#include "ps_sim_stamp.h"

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

/* Returns the position of the most advanced reader that counts; INT64_MIN: there is none. If all
 * are lagged, each counts as the leader. */
static int64_t fastest_spy(const ps_publication_t *pub)
{
    int64_t fastest = INT64_MIN;
    bool lagged = pub->state == PS_PUBLICATION_ACTIVE;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const int64_t at = atomic_load_explicit(pub->subscribers[i].cell, memory_order_relaxed);
        const int32_t state = pub->subscribers[i].tether.state;
        if (state == PS_TETHER_ACTIVE || state == PS_TETHER_LINGER) {
            fastest = at > fastest ? at : fastest;
            lagged = lagged && pub->subscribers[i].isolation.lagged;
        }
    }
    return lagged && fastest != INT64_MIN ? pub->producer_position : fastest;
}

static bool is_heard(const ps_probe_pub_t *model, int64_t now_ns)
{
    const int64_t silent_ns = model->pub->context->params.connection_timeout_ns;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        if (model->receivers[i].live && now_ns - model->receivers[i].heard_ns < silent_ns) {
            return true;
        }
    }
    return false;
}

void ps_probe_spies_passed(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t to = pub->sender_position;
    if (!pub->params.spies_simulate_connection || to <= model->high) {
        return;
    }
    const ps_sim_ledger_t *ledger = ps_probe_ledger(probe, pub->log.session_id, pub->log.stream_id);
    const int64_t furthest = fastest_spy(pub);
    model->spied = furthest > model->spied ? furthest : model->spied;
    if (model->spies_heard && (is_heard(model, now_ns) || pub->adopted_connection)) {
        complain(probe, model, "passes over what receivers did not get", model->high, to);
    } else if (to > model->spied && pub->subscriber_count > 0) {
        complain(probe, model, "passes over what no spy has read", to, model->spied);
    }
    model->messages += ps_probe_ordinal(ledger, to) - ps_probe_ordinal(ledger, model->high);
    ps_sim_stamp_passed(probe, model, model->high, to);
    model->high = to;
    model->last_high = to;
    model->limit = model->limit < to ? to : model->limit;
}

void ps_probe_spies_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    if (!pub->params.spies_simulate_connection) {
        return;
    }
    ps_probe_spies_passed(probe, model, now_ns);
    model->spies_heard = is_heard(model, now_ns) || pub->adopted_connection;
    const int64_t furthest = fastest_spy(pub);
    model->spied = furthest > model->spied ? furthest : model->spied;
    const bool waits = !model->spies_heard && furthest != INT64_MIN &&
                       furthest <= pub->producer_position && pub->sender_position < furthest;
    ps_probe_promise(probe, &model->promises[P_PUB_STAND_IN], !waits, now_ns,
                     ps_probe_slack_ns(probe, model->host), "the sender follows the spies",
                     model->host, pub->log.session_id);
}
