/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_shown.c: what others are shown of a publication or an image, in its slot, its log
 * and in snapshots, is what it is: clients act on it, and so does a new daemon.
 */
#include "ps_sim_probe.h"

static void fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *what,
                 int64_t shown, int64_t is)
{
    ps_probe_fail(probe, host, session_id, "%s: shown is %lld, not %lld", what, (long long)shown,
                  (long long)is);
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* ---- publications ---------------------------------------------------------------------------- */

static void expect_pub(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what,
                       int64_t shown, int64_t is)
{
    if (shown != is) {
        fail(probe, model->host, model->pub->log.session_id, what, shown, is);
    }
}

/* Returns the position from which a local reader's release must wake a sleeping sender: the next
 * one while a publisher waits for room or for credit, the end while the stream drains, else an
 * eighth of the window. */
static int64_t wake_position(const ps_publication_t *pub)
{
    const bool waits = pub->producer_position >= pub->publisher_limit || pub->credits.binds ||
                       pub->message_depth.binds ||
                       atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed) != 0;
    if (pub->gating_count == 0 || pub->slowest_position >= pub->producer_position) {
        return INT64_MAX;
    }
    if (pub->state != PS_PUBLICATION_ACTIVE) {
        return pub->producer_position;
    }
    return pub->slowest_position + (waits ? PS_FRAME_ALIGNMENT : pub->window_bytes / 8);
}

/* Returns the sum of the consumers' positions: those of local readers, or the furthest that each
 * receiver stated.  *who differs when other consumers are counted. */
static int64_t consumed_sum(const ps_publication_t *pub, int64_t *who)
{
    int64_t sum = 0;
    *who = pub->endpoint != NULL ? pub->receiver_count : pub->subscriber_count;
    for (int32_t i = 0; pub->endpoint == NULL && i < pub->subscriber_count; i++) {
        sum += pub->subscribers[i].position;
    }
    for (int32_t i = 0; pub->endpoint != NULL && i < pub->receiver_count; i++) {
        sum += pub->receivers[i].consumed;
        *who ^= pub->receivers[i].id;
    }
    return sum;
}

/* Checks the time of a consumer's last progress: it separates idle streams from stuck ones. */
static void check_consumed(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t shown_ns = load(&pub->slot->last_consumed_ns);
    int64_t who;
    const int64_t sum = consumed_sum(pub, &who);
    bool tethered = true; /* one that rests is put where the others are: it took nothing */
    for (int32_t i = 0; pub->endpoint == NULL && i < pub->subscriber_count; i++) {
        tethered = tethered && pub->subscribers[i].tether.tethered;
    }
    const bool same = tethered && model->consumed_by == who && !model->forgot && model->settled &&
                      !probe->cycles[model->host].commanded;
    if (same && sum == model->consumed_sum && shown_ns != model->consumed_ns) {
        fail(probe, model->host, pub->log.session_id, "consumption that was none", shown_ns,
             model->consumed_ns);
    }
    /* A sender that takes long over a cycle states when the cycle began. */
    const int64_t slack_ns = pub->endpoint != NULL ? ps_probe_turn_slack_ns(probe, model->host) : 0;
    if (same && sum > model->consumed_sum && (shown_ns > now_ns || shown_ns < now_ns - slack_ns)) {
        fail(probe, model->host, pub->log.session_id, "the time of consumption", shown_ns, now_ns);
    }
    model->consumed_sum = sum;
    model->consumed_ns = shown_ns;
    model->consumed_by = who;
    model->forgot = false;
}

void ps_probe_pub_shown(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool network = pub->endpoint != NULL;
    expect_pub(probe, model, "its connection", pub->log.meta->is_connected, pub->connected);
    expect_pub(probe, model, "its connection", pub->status_connected, pub->connected);
    expect_pub(probe, model, "who receives it", pub->status_receivers,
               network ? pub->receiver_count : pub->gating_count);
    expect_pub(probe, model, "that it is revoked", pub->log.meta->is_revoked, pub->revoked);
    expect_pub(probe, model, "its end", load(&pub->log.meta->end_of_stream),
               pub->state == PS_PUBLICATION_ACTIVE ? INT64_MAX : pub->end_position);
    expect_pub(probe, model, "what is consumed", load(&pub->status_consumer),
               network                 ? pub->sender_position
               : pub->gating_count > 0 ? pub->slowest_position
                                       : pub->consumer_position);
    if (network) {
        expect_pub(probe, model, "messages sent", load(&pub->slot->sent_ordinal),
                   pub->sent_ordinal);
    }
    ps_probe_promise(probe, &model->promises[P_PUB_WAKE_AT],
                     load(&pub->slot->wake_position) == wake_position(pub), now_ns,
                     ps_probe_turn_slack_ns(probe, model->host),
                     "readers know when to wake the sender", model->host, pub->log.session_id);
    check_consumed(probe, model, now_ns);
}

/* ---- images ---------------------------------------------------------------------------------- */

static void expect_image(ps_probe_t *probe, const ps_probe_image_t *model, const char *what,
                         int64_t shown, int64_t is)
{
    if (shown != is) {
        fail(probe, model->host, model->image->params.session_id, what, shown, is);
    }
}

/* The client whose reader holds the rest, 0: everything is read. */
static bool may_limit(const ps_image_t *image, int64_t client)
{
    int64_t slowest = INT64_MAX;
    bool is_slowest = false;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *reader = &image->subscribers[i];
        const int64_t at = atomic_load_explicit(reader->position, memory_order_relaxed);
        const int64_t id = load(&image->receiver->shared->clients[reader->client_slot].id);
        if (reader->isolation.lagged || !ps_tether_gates(&reader->tether)) {
            continue;
        }
        is_slowest = at < slowest ? id == client : is_slowest || (at == slowest && id == client);
        slowest = at < slowest ? at : slowest;
    }
    return is_slowest;
}

static void check_wake(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const bool unread = image->gating != 0 && image->consumption < image->position;
    const int64_t due = ps_probe_sm_due(image, image->sm_position);
    const bool delayed = image->consumption >= due && ps_probe_sm_delayed(probe, model, now_ns);
    ps_probe_promise(probe, &model->promises[P_IMAGE_WAKE_AT],
                     load(&image->slot->wake_position) == (unread && !delayed ? due : INT64_MAX),
                     now_ns, ps_probe_slack_ns(probe, model->host),
                     "readers know when to wake the receiver", model->host,
                     image->params.session_id);
}

void ps_probe_image_shown(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const bool started = image->started != 0;
    if (image->receiver == NULL || !started) {
        return;
    }
    expect_image(probe, model, "what is consumed", load(&image->shown_slowest), image->consumption);
    expect_image(probe, model, "its end", load(&image->shown_end), image->end_position);
    expect_image(probe, model, "its end", load(&image->log.meta->end_of_stream),
                 image->end_position);
    expect_image(probe, model, "that it is revoked", image->log.meta->is_revoked, image->revoked);
    expect_image(probe, model, "its readers", image->shown_subscribers, image->n_subscribers);
    expect_image(probe, model, "messages", load(&image->slot->ordinal), image->ordinal);
    if (image->rtt.smoothed_ns != 0 || !image->params.adopted) { /* else the old daemon's */
        expect_image(probe, model, "its round trip", load(&image->slot->rtt_ns),
                     image->rtt.smoothed_ns);
    }
    if (image->sent_window > 0) {
        expect_image(probe, model, "its window", load(&image->slot->window_bytes),
                     image->sent_window);
    }
    const int64_t client = load(&image->slot->limiting_client);
    const bool unread = image->gating != 0 && image->consumption < ps_image_contiguous(image);
    if (!unread && client != 0) {
        expect_image(probe, model, "who limits it", client, 0);
    }
    ps_probe_promise(probe, &model->promises[P_IMAGE_LIMITS],
                     !unread || may_limit(image, client) || image->state != PS_IMAGE_ACTIVE, now_ns,
                     ps_probe_slack_ns(probe, model->host), "who limits it is shown", model->host,
                     image->params.session_id);
    ps_probe_promise(probe, &model->promises[P_IMAGE_GAPS], image->shown_gaps == image->gaps.count,
                     now_ns, ps_probe_slack_ns(probe, model->host), "its gaps are shown",
                     model->host, image->params.session_id);
    check_wake(probe, model, now_ns);
}
