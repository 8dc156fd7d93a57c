/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_pressure.c: watermarks of publications: what their slot shows, and that each episode
 * of pressure is reported once, with what was drained in it.
 */
#include "ps_policy.h"
#include "ps_sim_probe.h"

#define REPORT_EVERY_NS INT64_C(1000000000)

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static int64_t watermark_of(const ps_publication_t *pub)
{
    const int64_t stated = pub->params.low_watermark_bytes;
    const bool known = pub->params.policy != PS_POLICY_NONE && stated > 0;
    return known && stated <= pub->window_bytes ? stated : pub->window_bytes / 2;
}

/* Bytes that publishers are ahead of the sender and of the slowest reader that is waited for. */
static int64_t depth_of(const ps_publication_t *pub)
{
    int64_t consumer = pub->endpoint != NULL ? pub->sender_position : INT64_MAX;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *reader = &pub->subscribers[i];
        const int64_t shown = load(reader->cell);
        if (ps_tether_gates(&reader->tether) && !reader->isolation.lagged && shown < consumer) {
            consumer = shown;
        }
    }
    const int64_t producer = ps_log_producer_position(&pub->log);
    return consumer < producer ? producer - consumer : 0;
}

/* True if the depth that a publication shows is its depth. The frame with which the sender itself
 * states drops may have come after the look: it waits for the sender's next turn. */
static bool shows_depth(const ps_publication_t *pub, int64_t depth)
{
    const int64_t shown = load(&pub->slot->depth_bytes);
    return shown == depth || (pub->drops && shown + PS_HEADER_BYTES == depth);
}

/* Committed messages that publishers are ahead of a consumer; counts no more than `most` + 1. */
static int64_t queued_of(const ps_publication_t *pub, int64_t depth, int64_t most)
{
    const int64_t end = ps_log_producer_position(&pub->log);
    int64_t messages = 0;
    for (int64_t at = end - depth; at < end && messages <= most;) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, at);
        const int32_t span = ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame),
                                                         (int32_t)(at & pub->log.term_mask));
        if (span < 0) {
            break;
        }
        messages += frame->type == PS_TYPE_DATA ? ps_frame_messages(frame) : 0;
        at += span;
    }
    return messages;
}

/* ps-depth in messages: publishers are ahead by no more. */
static void check_queued(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t depth)
{
    const int64_t most = model->pub->params.depth_messages;
    if (most > 0 && queued_of(model->pub, depth, most) > most) {
        complain(probe, model, "publishers are further ahead than their depth in messages",
                 queued_of(model->pub, depth, 2 * most), most);
    }
}

/* Messages sent, without those that the log states as dropped. */
static int64_t messages_of(const ps_probe_pub_t *model)
{
    return model->messages - model->pub->dropped_sent;
}

static void check_drained(ps_probe_t *probe, const ps_probe_pub_t *model, const ps_event_t *event)
{
    const ps_probe_notified_t *notified = &model->notified;
    const ps_publication_t *pub = model->pub;
    if (pub->endpoint == NULL || pub->params.spies_simulate_connection) {
        return; /* spies stand in: what they read was not sent */
    }
    /* A message of many fragments is counted where it begins, and by the model where it ends. */
    const int64_t by = notified->drained_by >= 0 ? notified->drained_by : notified->messages_before;
    const int64_t least = by - notified->drained_most - 1;
    const int64_t most = messages_of(model) - notified->drained_least + 1;
    if (event->pressure.drained < least || event->pressure.drained > most) {
        complain(probe, model, "pressure is relieved with another number of messages drained",
                 event->pressure.drained, most);
    }
}

void ps_probe_pressure_event(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                             int64_t now_ns)
{
    ps_probe_notified_t *notified = &model->notified;
    const bool begins = event->type == PS_EV_PRESSURE_TRIGGERED;
    if (begins == notified->pressed) {
        complain(probe, model, "pressure is told twice", begins, event->pressure.episodes);
    }
    if (begins && notified->triggered_ns != 0 &&
        now_ns - notified->triggered_ns < REPORT_EVERY_NS) {
        complain(probe, model, "pressure is told too soon again", now_ns - notified->triggered_ns,
                 event->pressure.episodes);
    }
    const bool counts = model->pub->params.depth_messages > 0;
    if ((!counts && event->pressure.peak_bytes <= watermark_of(model->pub)) ||
        event->pressure.peak_bytes > load(&model->pub->slot->peak_bytes) ||
        event->pressure.duration_ns < 0 || event->pressure.episodes < 1 ||
        event->pressure.cause <= PS_CAUSE_NONE || event->pressure.cause >= PS_CAUSE_COUNT) {
        complain(probe, model, "pressure is told with figures that cannot be",
                 event->pressure.peak_bytes, event->pressure.cause);
    }
    if (begins) {
        notified->triggered_ns = now_ns;
        /* The report may wait a second, or for room in the ring; the episode may be over then. */
        const bool now = !notified->waits && load(&model->pub->slot->episodes) != notified->counted;
        notified->drained_least = now ? notified->messages_before : notified->began_by;
        notified->drained_most = messages_of(model);
        notified->drained_by = -1;
        notified->episodes = load(&model->pub->slot->episodes);
    } else {
        check_drained(probe, model, event);
    }
    notified->pressed = begins;
}

void ps_probe_pressure_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_notified_t *notified = &model->notified;
    const int64_t slack_ns = ps_probe_turn_slack_ns(probe, model->host);
    const int64_t told_ns =
        ps_probe_is_crowded(probe, model->host, now_ns) ? INT64_MAX / 2 : slack_ns;
    const int32_t session_id = pub->log.session_id;
    const bool active = pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked && pub->connected;
    const int64_t depth = depth_of(pub);
    if (active) {
        check_queued(probe, model, depth);
    }
    const ps_publication_depth_t *messages = &pub->message_depth;
    const bool above = active && (depth > watermark_of(pub) || messages->ahead > messages->low);
    const bool full =
        above && (messages->binds || ps_log_producer_position(&pub->log) >= pub->publisher_limit);
    const int32_t state = atomic_load_explicit(&pub->slot->watermark_state, memory_order_relaxed);
    const bool pressed = state == PS_WATERMARK_HIGH || state == PS_WATERMARK_PAUSED;
    ps_probe_promise(probe, &model->promises[P_PUB_TRIGGERED], !full || notified->pressed, now_ns,
                     REPORT_EVERY_NS + told_ns, "pressure is told", model->host, session_id);
    ps_probe_promise(probe, &model->promises[P_PUB_RELIEVED], !notified->pressed || above, now_ns,
                     told_ns, "the end of pressure is told", model->host, session_id);
    ps_probe_promise(probe, &model->promises[P_PUB_WATERMARK],
                     (pressed ? above : !full) && (!active || shows_depth(pub, depth)), now_ns,
                     2 * slack_ns, "the watermarks shown are those of the depth", model->host,
                     session_id);
    if (pressed != (load(&pub->slot->pressed_since_ns) != 0)) {
        complain(probe, model, "an episode of pressure has no beginning", state, now_ns);
    }
    /* The report of the end may wait for room in the ring, while the stream continues. */
    if (notified->drained_by < 0 &&
        (!pressed || load(&pub->slot->episodes) != notified->episodes)) {
        notified->drained_by = notified->messages_before;
    }
    if (load(&pub->slot->episodes) != notified->counted && !notified->waits) {
        notified->began_by = notified->messages_before;
    }
    notified->counted = load(&pub->slot->episodes);
    notified->waits = (pub->pending & PS_PEND_TRIGGERED) != 0;
    notified->messages_before = messages_of(model);
}
