/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_event.c: what the agents tell the conductor: each event is due, says what is, and
 * comes once; none is missing.
 */
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

#define SECOND        INT64_C(1000000000)
#define LOSS_EVERY_NS INT64_C(100000000)

static void complain(ps_probe_t *probe, int32_t host, int32_t session_id, const char *what,
                     int64_t a, int64_t b)
{
    ps_probe_fail(probe, host, session_id, "%s (%lld, %lld)", what, (long long)a, (long long)b);
}

static int64_t patience_ns(const ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    return ps_probe_is_crowded(probe, host, now_ns) ? INT64_MAX / 2
                                                    : ps_probe_slack_ns(probe, host);
}

/* ---- publications ---------------------------------------------------------------------------- */

static void on_connected(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                         int64_t now_ns)
{
    ps_probe_notified_t *notified = &model->notified;
    /* If the connection is lost and returns in one cycle, the next cycle reports it once more. */
    const bool quiet = !ps_probe_is_crowded(probe, model->host, now_ns) &&
                       now_ns - probe->read_ns[model->host] > ps_probe_slack_ns(probe, model->host);
    if (event->connection.connected != model->pub->connected && quiet) {
        complain(probe, model->host, model->pub->log.session_id,
                 "a connection is told otherwise than it is", event->connection.connected,
                 model->pub->connected);
    }
    if (notified->connected == event->connection.connected && quiet) {
        complain(probe, model->host, model->pub->log.session_id, "a connection is told twice",
                 event->connection.connected, 0);
    }
    notified->connected = (int32_t)event->connection.connected;
}

static void on_pub_term(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                        int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_notified_t *notified = &model->notified;
    const bool again = notified->term_ns != 0 && notified->term == event->term.reserved;
    if (event->term.reserved != pub->reserved_position && !probe->cycles[model->host].commanded) {
        complain(probe, model->host, pub->log.session_id, "storage is requested elsewhere",
                 event->term.reserved, pub->reserved_position);
    }
    if (again && now_ns - notified->term_ns < SECOND) {
        complain(probe, model->host, pub->log.session_id, "storage is requested again too soon",
                 now_ns - notified->term_ns, event->term.reserved);
    }
    if (notified->released_at == pub->producer_position + 1) {
        complain(probe, model->host, pub->log.session_id, "a stream that rests requests storage",
                 event->term.reserved, pub->producer_position);
    }
    notified->term = event->term.reserved;
    notified->term_ns = now_ns;
}

/* Checks the terms that an agent released: whole terms, but not all terms that it has reached. */
static void on_terms_released(ps_probe_t *probe, ps_probe_notified_t *notified, int32_t host,
                              const ps_log_t *log, const ps_event_t *event, int64_t reserved)
{
    notified->term_ns = 0; /* what was requested is forgotten on both sides */
    if (event->terms.kept_to < 0) {
        return;
    }
    if (((event->terms.kept_to | event->terms.kept_from) & log->term_mask) != 0 ||
        event->terms.kept_from >= event->terms.kept_to ||
        event->terms.kept_to - event->terms.kept_from >=
            PS_PARTITIONS * (int64_t)log->term_length) {
        complain(probe, host, log->session_id, "no terms are given up", event->terms.kept_to,
                 event->terms.kept_from);
    }
    if (event->terms.kept_to != reserved && !probe->cycles[host].commanded) {
        complain(probe, host, log->session_id, "storage is given up elsewhere",
                 event->terms.kept_to, reserved);
    }
}

/* A lagged reader skips what lies below the stated mark. */
static int64_t reads_from(const ps_isolation_t *isolation, int64_t position)
{
    const int64_t mark = isolation->lagged ? atomic_load_explicit(&isolation->slot->overwritten,
                                                                  memory_order_relaxed)
                                           : position;
    return mark > position ? mark : position;
}

/* Publishers may write below any limit that they ever had, receivers may request half a term and a
 * message again, readers stand where they stand. */
static void on_publication_terms_released(ps_probe_t *probe, ps_probe_pub_t *model,
                                          const ps_event_t *event)
{
    const ps_publication_t *pub = model->pub;
    const int64_t term = ps_publication_term(pub);
    int64_t lowest = pub->endpoint != NULL ? pub->sender_position - term / 2 - term / 8 : INT64_MAX;
    on_terms_released(probe, &model->notified, model->host, &pub->log, event,
                      pub->reserved_position);
    if (event->terms.kept_to < 0) {
        return;
    }
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const int64_t reader =
            reads_from(&pub->subscribers[i].isolation, pub->subscribers[i].position);
        lowest = reader < lowest ? reader : lowest;
    }
    lowest = lowest < 0 ? 0 : lowest;
    if (lowest < event->terms.kept_from &&
        event->terms.kept_from > (model->began & ~(int64_t)pub->log.term_mask)) {
        complain(probe, model->host, pub->log.session_id, "what is in use is given up",
                 event->terms.kept_from, lowest);
    }
    if (event->terms.kept_to < model->limit_most) {
        complain(probe, model->host, pub->log.session_id, "a publisher's room is given up",
                 event->terms.kept_to, model->limit_most);
    }
    /* A full ring delays the event: since the release, publishers may have written, and the same
     * turn may have stated drops. */
    model->notified.released_at = pub->rests_at + 1;
}

static void on_image_terms_released(ps_probe_t *probe, ps_probe_image_t *model,
                                    const ps_event_t *event)
{
    const ps_image_t *image = model->image;
    const int64_t least = image->hwm + image->log.term_length / 2;
    on_terms_released(probe, &model->notified, model->host, &image->log, event,
                      image->reserved_position);
    if (event->terms.kept_to < 0) {
        return;
    }
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        const int64_t reader =
            reads_from(&subscriber->isolation,
                       atomic_load_explicit(subscriber->position, memory_order_relaxed));
        if (reader < event->terms.kept_from && event->terms.kept_from > image->join_position) {
            complain(probe, model->host, image->params.session_id, "what is unread is given up",
                     event->terms.kept_from, reader);
        }
    }
    if (event->terms.kept_to < least && probe->cycles[model->host].read == 0 &&
        image->sent_seen < image->hwm) { /* nothing came behind it */
        complain(probe, model->host, image->params.session_id,
                 "less than half a term is left to receive into", event->terms.kept_to, least);
    }
}

static void on_subscriber(ps_probe_t *probe, ps_probe_notified_t *notified, int32_t host,
                          int32_t session_id, const ps_event_t *event)
{
    int32_t free = -1;
    for (int32_t i = 0; i < PS_PROBE_TETHERS; i++) {
        if (notified->tether_ids[i] == event->subscriber.position_counter_id + 1) {
            if (notified->tether_states[i] == event->subscriber.state) {
                complain(probe, host, session_id, "a reader's state is told twice",
                         event->subscriber.position_counter_id, event->subscriber.state);
            }
            notified->tether_states[i] = event->subscriber.state;
            return;
        }
        free = notified->tether_ids[i] == 0 ? i : free;
    }
    if (event->subscriber.state == PS_TETHER_ACTIVE) {
        complain(probe, host, session_id, "a reader is told to be back that was not away",
                 event->subscriber.position_counter_id, 0);
    }
    if (free >= 0) {
        notified->tether_ids[free] = event->subscriber.position_counter_id + 1;
        notified->tether_states[free] = event->subscriber.state;
    }
}

static void on_pub_event(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                         int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_notified_t *notified = &model->notified;
    switch (event->type) {
    case PS_EV_PUB_CONNECTED: on_connected(probe, model, event, now_ns); break;
    case PS_EV_PUB_DRAINED:
        if (notified->drained || pub->state != PS_PUBLICATION_DRAINED ||
            event->drained.position != pub->sender_position ||
            event->drained.unsent != pub->end_position - pub->sender_position) {
            complain(probe, model->host, pub->log.session_id, "drained is told wrong or twice",
                     event->drained.position, event->drained.unsent);
        }
        notified->drained = true;
        break;
    case PS_EV_PUB_EOS_ACK:
        if (notified->ended || pub->params.group || !pub->end_of_stream) {
            complain(probe, model->host, pub->log.session_id,
                     "the end is told to be confirmed twice, or too soon", notified->ended, 0);
        }
        notified->ended = true;
        break;
    case PS_EV_TERM_NEEDED: on_pub_term(probe, model, event, now_ns); break;
    case PS_EV_TERMS_RELEASED: on_publication_terms_released(probe, model, event); break;
    case PS_EV_SUBSCRIBER:
        on_subscriber(probe, notified, model->host, pub->log.session_id, event);
        break;
    case PS_EV_PRESSURE_TRIGGERED:
    case PS_EV_PRESSURE_RELIEVED: ps_probe_pressure_event(probe, model, event, now_ns); break;
    default: break;
    }
}

static void promise_pub(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_notified_t *notified = &model->notified;
    const int64_t slack_ns = patience_ns(probe, model->host, now_ns);
    notified->connected = notified->connected < 0 ? pub->connected : notified->connected;
    ps_probe_promise(probe, &model->promises[P_PUB_CONNECTION_EVENT],
                     notified->connected == pub->connected, now_ns, slack_ns,
                     "a connection is told", model->host, pub->log.session_id);
    ps_probe_promise(
        probe, &model->promises[P_PUB_DRAINED_EVENT],
        pub->state != PS_PUBLICATION_DRAINED || notified->drained || pub->params.adopted, now_ns,
        slack_ns, "that it is drained is told", model->host, pub->log.session_id);
    /* Half a term of storage ahead of the limit that producers will get. */
    const int64_t consumer = pub->endpoint != NULL ? pub->sender_position : pub->slowest_position;
    const bool slowed = pub->gating_count > 0 && pub->slowest_position < consumer;
    const int64_t want = (slowed ? pub->slowest_position : consumer) + pub->window_bytes;
    const int64_t stored = pub->reserved_position == INT64_MAX
                               ? INT64_MAX
                               : pub->reserved_position & ~(int64_t)pub->log.term_mask;
    const bool requests = stored != INT64_MAX && want > stored - ps_publication_term(pub) / 2 &&
                          pub->connected && pub->state == PS_PUBLICATION_ACTIVE && !pub->rated &&
                          pub->quarantine_count == 0 &&
                          notified->released_at != pub->producer_position + 1 /* it rests */
                          && (pub->endpoint != NULL || pub->gating_count > 0);
    ps_probe_promise(probe, &model->promises[P_PUB_TERM_EVENT],
                     !requests ||
                         (notified->term_ns != 0 && notified->term == pub->reserved_position),
                     now_ns, slack_ns, "storage is requested", model->host, pub->log.session_id);
}

/* ---- images ---------------------------------------------------------------------------------- */

static void on_loss(ps_probe_t *probe, ps_probe_image_t *model, const ps_event_t *event,
                    int64_t now_ns)
{
    ps_probe_notified_t *notified = &model->notified;
    if (event->loss.bytes <= 0 || event->loss.position > model->image->hwm ||
        event->loss.gaps < 0) {
        complain(probe, model->host, model->image->params.session_id, "a loss that is none",
                 event->loss.bytes, event->loss.position);
    }
    if (notified->loss_ns != 0 && now_ns - notified->loss_ns < LOSS_EVERY_NS) {
        complain(probe, model->host, model->image->params.session_id,
                 "a loss is told too soon after another", now_ns - notified->loss_ns,
                 event->loss.bytes);
    }
    notified->lost += event->loss.bytes;
    notified->lost_gaps += event->loss.gaps;
    notified->loss_ns = now_ns;
}

static void on_image_event(ps_probe_t *probe, ps_probe_image_t *model, const ps_event_t *event,
                           int64_t now_ns)
{
    const ps_image_t *image = model->image;
    ps_probe_notified_t *notified = &model->notified;
    const int32_t session_id = image->params.session_id;
    switch (event->type) {
    case PS_EV_IMAGE_INACTIVE:
        if (notified->ended || event->ended.reason != image->end_reason ||
            event->ended.position > image->position || image->state == PS_IMAGE_ACTIVE) {
            complain(probe, model->host, session_id, "an image's end is told wrong or twice",
                     event->ended.reason, image->end_reason);
        }
        notified->ended = true;
        break;
    case PS_EV_IMAGE_DRAINED:
        if (notified->drained || image->state != PS_IMAGE_DRAINED) {
            complain(probe, model->host, session_id, "drained is told twice or too soon",
                     image->state, 0);
        }
        notified->drained = true;
        break;
    case PS_EV_LOSS: on_loss(probe, model, event, now_ns); break;
    case PS_EV_TERM_NEEDED:
        if (notified->term_ns != 0 && notified->term == event->term.reserved) {
            complain(probe, model->host, session_id, "storage is requested twice",
                     event->term.reserved, 0);
        }
        notified->term = event->term.reserved;
        notified->term_ns = now_ns + 1;
        break;
    case PS_EV_TERMS_RELEASED: on_image_terms_released(probe, model, event); break;
    case PS_EV_SUBSCRIBER: on_subscriber(probe, notified, model->host, session_id, event); break;
    default: break;
    }
}

/* At first half of 1 MiB and four times what came, at most half a term. */
static int64_t storage_ahead(const ps_image_t *image)
{
    const int64_t half = image->log.term_length / 2;
    const int64_t ahead = (INT64_C(1) << 20) + 4 * (image->position - image->join_position);
    return ahead >= half ? half : ahead / 2;
}

static void promise_image(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_probe_notified_t *notified = &model->notified;
    const int64_t slack_ns = patience_ns(probe, model->host, now_ns);
    const int64_t lost = atomic_load_explicit(&image->slot->lost_bytes, memory_order_relaxed) -
                         notified->lost_before;
    const bool active = image->state == PS_IMAGE_ACTIVE;
    if (notified->lost > lost) {
        complain(probe, model->host, image->params.session_id, "more is told to be lost than was",
                 notified->lost, lost);
    }
    /* Gaps of an unreliable image are padded over before the probe can see them. */
    const bool counted = notified->lost_gaps == model->lost_gaps || !image->params.reliable;
    ps_probe_promise(probe, &model->promises[P_IMAGE_LOSS_EVENT],
                     (notified->lost == lost && counted) || !active, now_ns,
                     LOSS_EVERY_NS + slack_ns, "what is lost is told", model->host,
                     image->params.session_id);
    ps_probe_promise(probe, &model->promises[P_IMAGE_ENDED_EVENT],
                     image->state != PS_IMAGE_ENDED || notified->ended, now_ns, slack_ns,
                     "an image's end is told", model->host, image->params.session_id);
    ps_probe_promise(probe, &model->promises[P_IMAGE_DRAINED_EVENT],
                     image->state != PS_IMAGE_DRAINED || notified->drained, now_ns, slack_ns,
                     "that an image is drained is told", model->host, image->params.session_id);
    const bool requests = active && image->established && image->reserved_position != INT64_MAX &&
                          image->position + storage_ahead(image) > image->reserved_position;
    ps_probe_promise(
        probe, &model->promises[P_IMAGE_TERM_EVENT],
        !requests || (notified->term_ns != 0 && notified->term == image->reserved_position), now_ns,
        slack_ns, "storage is requested", model->host, image->params.session_id);
}

/* ---- of a cycle ------------------------------------------------------------------------------ */

static void take(ps_probe_t *probe, int32_t host, const ps_event_t *event, int64_t now_ns)
{
    if (event->now_ns != now_ns) {
        complain(probe, host, event->session_id, "an event of another time", event->now_ns,
                 event->type);
    }
    for (int32_t i = 0; i < probe->pub_count && event->kind == PS_KIND_PUBLICATION; i++) {
        if (probe->pubs[i]->host == host && probe->pubs[i]->id == event->id &&
            probe->pubs[i]->seen) {
            on_pub_event(probe, probe->pubs[i], event, now_ns);
        }
    }
    for (int32_t i = 0; i < probe->image_count && event->kind == PS_KIND_IMAGE; i++) {
        if (probe->images[i]->host == host && probe->images[i]->id == event->id &&
            probe->images[i]->seen) {
            on_image_event(probe, probe->images[i], event, now_ns);
        }
    }
}

void ps_probe_event_check(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        const ps_ring_t *ring = &driver->agents[id].events;
        const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        if (tail - head >= ring->capacity) {
            probe->crowded_ns[host] = now_ns;
        }
        for (uint64_t at = probe->cycles[host].events[id]; at < tail; at++) {
            ps_event_t event;
            memcpy(&event, ring->records + (at & (ring->capacity - 1)) * ring->record_bytes,
                   sizeof event);
            take(probe, host, &event, now_ns);
        }
    }
    for (int32_t i = 0; i < probe->pub_count; i++) {
        if (probe->pubs[i]->host == host && probe->pubs[i]->seen) {
            promise_pub(probe, probe->pubs[i], now_ns);
            ps_probe_pressure_check(probe, probe->pubs[i], now_ns);
        }
    }
    for (int32_t i = 0; i < probe->image_count; i++) {
        if (probe->images[i]->host == host && probe->images[i]->seen &&
            probe->images[i]->image->receiver != NULL) {
            promise_image(probe, probe->images[i], now_ns);
        }
    }
}
