/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_send.c: what leaves a sender, and when.
 *
 *   SETUP       every 100 ms until a receiver is heard, then only when one requests it
 *   heartbeat   100 ms after the last datagram, 1 s once the stream is quiet and no receiver is
 *               new; both ways: neither later nor sooner
 *   data        as soon as there is a frame and room for it; nothing beyond the limit
 *   again       only what was requested, all of it, at once, and not twice within the linger
 */
#include "ps_policy.h"

#include "ps_sim_probe.h"

enum { BEATS = 4 };
#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static int64_t position_of(const ps_publication_t *pub, int32_t term_id, int32_t term_offset)
{
    return (int64_t)ps_wrap_sub(term_id, pub->log.initial_term_id) * pub->log.term_length +
           term_offset;
}

/* ---- SETUP ----------------------------------------------------------------------------------- */

static void check_setup_trailer(ps_probe_t *probe, ps_probe_pub_t *model,
                                const ps_trailer_t *trailer)
{
    const ps_publication_t *pub = model->pub;
    if ((trailer->capabilities & PS_CAP_PRESSURE) !=
        (pub->params.flow_control == PS_FC_PRESSURE ? PS_CAP_PRESSURE : 0u)) {
        complain(probe, model, "a SETUP states another kind of stream", trailer->capabilities, 0);
    }
    if (trailer->flow_control != pub->params.flow_control ||
        trailer->group_tag !=
            (pub->params.flow_control == PS_FC_TAGGED ? pub->params.fc_group_tag : 0)) {
        complain(probe, model, "a SETUP states another flow control", trailer->flow_control,
                 pub->params.flow_control);
    }
    const bool skips = pub->params.policy == PS_POLICY_DROP_OLDEST;
    if (trailer->policy != (skips ? PS_POLICY_DROP_OLDEST : PS_POLICY_NONE) ||
        trailer->depth_bytes != (skips ? pub->params.depth_bytes : 0) ||
        trailer->depth_messages != (skips ? (uint32_t)pub->params.reader_depth_messages : 0)) {
        complain(probe, model, "a SETUP states another policy", trailer->policy,
                 pub->params.policy);
    }
    if (trailer->ordinal != model->messages) {
        complain(probe, model, "a SETUP counts messages wrong", trailer->ordinal, model->messages);
    }
}

void ps_probe_setup_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_setup_t *setup,
                         int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_driver_params_t *params = &pub->context->params;
    const bool single = pub->endpoint->params.mdc == PS_MDC_NONE;
    if (position_of(pub, setup->active_term_id, setup->term_offset) != model->high ||
        setup->term_length != pub->log.term_length || setup->mtu != pub->log.mtu ||
        setup->initial_term_id != pub->log.initial_term_id) {
        complain(probe, model, "a SETUP does not state where the stream is",
                 position_of(pub, setup->active_term_id, setup->term_offset), model->high);
    }
    if ((setup->flags & PS_SETUP_GROUP) != (pub->params.group ? PS_SETUP_GROUP : 0)) {
        complain(probe, model, "a SETUP states another kind of stream", setup->flags, 0);
    }
    if (params->advertise) {
        check_setup_trailer(probe, model, &setup->trailer);
    } else if (setup->trailer.capabilities != 0) {
        complain(probe, model, "a SETUP has a trailer", setup->trailer.capabilities, 0);
    }
    if (single && now_ns - model->setup_ns < params->setup_interval_ns) {
        complain(probe, model, "SETUP again too soon", now_ns - model->setup_ns, 0);
    }
    if (single && model->ever_heard && !model->requested_setup) {
        complain(probe, model, "a SETUP that nobody requested", 0, 0);
    }
    if (pub->receiver_count > 0) {
        model->requested_setup = false;
    }
    model->setup_ns = now_ns;
    ps_probe_fc_setup_sent(model);
}

static void check_setup(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_driver_params_t *params = &pub->context->params;
    const bool wanted = (!model->ever_heard || model->requested_setup) && !pub->revoked &&
                        ps_send_endpoint_reachable(pub->endpoint) &&
                        pub->state != PS_PUBLICATION_DRAINED;
    ps_probe_promise(probe, &model->promises[P_PUB_SETUP],
                     !wanted || now_ns - model->setup_ns < params->setup_interval_ns ||
                         now_ns - probe->refused_ns[model->host] < params->setup_interval_ns,
                     now_ns, ps_probe_slack_ns(probe, model->host), "a SETUP is sent", model->host,
                     pub->log.session_id);
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

/* A new receiver gets a heartbeat within the shorter interval. The sender's timers remove silent
 * receivers a moment later than the model, so a receiver that returns is not certainly new. */
void ps_probe_greet(ps_probe_pub_t *model, const ps_probe_receiver_t *receiver, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t silent_ns = pub->context->params.connection_timeout_ns;
    model->greets = model->greets || !receiver->live || now_ns - receiver->heard_ns >= silent_ns;
    model->must_greet = model->must_greet || (receiver->heard_ns == 0 && !model->pub->revoked &&
                                              pub->receiver_count < pub->receiver_capacity);
}

static bool is_quiet(const ps_probe_pub_t *model, int64_t now_ns)
{
    return now_ns - model->data_ns >= model->pub->context->params.idle_after_ns &&
           !model->pub->end_of_stream;
}

void ps_probe_heartbeat_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                             int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_driver_params_t *params = &pub->context->params;
    const int64_t position = position_of(pub, data->term_id, data->term_offset);
    const bool ended = (data->flags & PS_FLAG_EOS) != 0;
    if (position != model->high) {
        complain(probe, model, "a heartbeat does not state where the stream is", position,
                 model->high);
    }
    if (ended != (pub->revoked || (pub->end_of_stream && pub->params.signal_eos)) ||
        (ended && !pub->revoked && pub->sender_position < pub->end_position)) {
        complain(probe, model, "a heartbeat has the wrong flags", data->flags, pub->state);
    }
    if (!model->ever_heard) {
        complain(probe, model, "a heartbeat before anybody was heard", 0, 0);
    }
    if (pub->endpoint->params.mdc != PS_MDC_NONE && now_ns == model->beat_ns) {
        return; /* the same, to another destination */
    }
    /* Quiet streams beat on a common grid, up to a quarter of the interval before their time. */
    const int64_t quiet_ns = params->idle_heartbeat_interval_ns;
    const bool quiet = is_quiet(model, now_ns) && !model->greets;
    const int64_t least_ns = quiet ? quiet_ns - quiet_ns / BEATS : params->heartbeat_interval_ns;
    /* A heartbeat that the socket did not accept is repeated sooner; the last refusal may belong to
     * another frame. */
    const bool again = probe->refused_ns[model->host] >= model->beat_ns &&
                       now_ns - model->beat_ns >= params->heartbeat_interval_ns;
    if (model->beat_ns > 0 && now_ns - model->beat_ns < least_ns && !pub->revoked &&
        !pub->end_of_stream && !again) {
        complain(probe, model, "a heartbeat too soon", now_ns - model->beat_ns, least_ns);
    }
    if (pub->end_of_stream && model->beat_ns > 0 && !pub->revoked &&
        now_ns - model->beat_ns < params->heartbeat_interval_ns) {
        complain(probe, model, "an EOS heartbeat too soon", now_ns - model->beat_ns, 0);
    }
    /* The heartbeats of quiet streams leave together. */
    const int64_t grid_ns = quiet_ns / BEATS;
    if (quiet && now_ns - model->beat_ns < quiet_ns && model->beat_ns > 0 && !again &&
        grid_ns > MS && now_ns % grid_ns > ps_probe_slack_ns(probe, model->host)) {
        complain(probe, model, "a heartbeat of a quiet stream is off the grid", now_ns % grid_ns,
                 grid_ns);
    }
    model->beat_ns = now_ns;
    model->greets = model->must_greet = false;
}

static void check_heartbeat(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_driver_params_t *params = &pub->context->params;
    const int64_t most_ns = is_quiet(model, now_ns) && !model->must_greet
                                ? params->idle_heartbeat_interval_ns
                                : params->heartbeat_interval_ns;
    const bool wanted = model->ever_heard && ps_send_endpoint_reachable(pub->endpoint);
    ps_probe_promise(probe, &model->promises[P_PUB_BEAT],
                     !wanted || now_ns - model->beat_ns < most_ns ||
                         now_ns - model->idle_ns < most_ns ||
                         now_ns - probe->refused_ns[model->host] < most_ns,
                     now_ns, ps_probe_slack_ns(probe, model->host), "a heartbeat is sent",
                     model->host, pub->log.session_id);
    model->idle_ns = wanted ? model->idle_ns : now_ns;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* The pool of answers is small towards a group: a full one forgets what lingers, and the same may
 * be requested and answered once more, until the forgotten answer would have lingered long enough.
 * The pool also holds answers that are not in the model: two that one request of the model covers,
 * or one that the sender need not keep. */
static bool was_pool_full(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t linger_ns = pub->context->params.retransmit_linger_ns;
    int32_t used = 0;
    int32_t kept = model->requested_now;
    for (int32_t i = 0; i < pub->retransmit.capacity; i++) {
        const ps_resend_t *action = &pub->retransmit.actions[i];
        kept += action->state == PS_RESEND_PENDING ||
                (action->state == PS_RESEND_LINGER && now_ns < action->due_ns);
    }
    for (int32_t i = 0; i < model->request_count; i++) {
        const ps_probe_request_t *request = &model->requests[i];
        used += request->done_ns < 0 || now_ns - request->done_ns < linger_ns;
    }
    if (used >= pub->retransmit.capacity || kept >= pub->retransmit.capacity) {
        model->full_ns = now_ns;
    }
    return model->full_ns > 0 && now_ns - model->full_ns < linger_ns;
}

/* wire_to: of padding only the header travels, and who requests it gets all it stands for. */
static bool sent_again(ps_probe_pub_t *model, int64_t from, int64_t to, int64_t wire_to,
                       int64_t now_ns)
{
    bool requested = false;
    for (int32_t i = 0; i < model->request_count; i++) {
        ps_probe_request_t *request = &model->requests[i];
        const bool open = request->done_ns < 0;
        requested = requested || (from >= request->from && wire_to <= request->to);
        if (!open || from > request->cursor || to <= request->cursor) {
            continue;
        }
        request->cursor = to;
        if (to >= (request->need < model->high ? request->need : model->high)) {
            request->done_ns = now_ns;
        }
    }
    return requested;
}

/* Dropped messages that the padding of a datagram states: they take none of a rate. */
static int32_t marked_in(const ps_sim_packet_t *packet)
{
    int32_t marked = 0;
    for (uint32_t at = 0; at + PS_HEADER_BYTES <= packet->length;) {
        ps_frame_t frame;
        memcpy(&frame, packet->data + at, sizeof(frame));
        marked += frame.type == PS_TYPE_PAD ? ps_marked_messages(frame.reserved_value) : 0;
        at += (uint32_t)ps_align32(frame.frame_length < 1 ? 1 : frame.frame_length);
    }
    return marked;
}

void ps_probe_data_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                        const ps_sim_packet_t *packet, enum ps_sim_kind kind, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    int32_t span = 0;
    int32_t messages = 0;
    if (ps_wire_chain(packet->data, packet->length, pub->log.term_length, &span, &messages) !=
        PS_WIRE_OK) {
        return; /* the watch complains */
    }
    const int64_t from = position_of(pub, data->term_id, data->term_offset);
    const int64_t wire = span < (int32_t)packet->length ? span : (int32_t)packet->length;
    ps_probe_host_sent(probe, model->host, packet->length);
    if (kind == PS_SIM_AGAIN) {
        if (!sent_again(model, from, from + span, from + wire, now_ns)) {
            complain(probe, model, "sent again what nobody requested", from, from + span);
        }
        model->repair_bytes += packet->length;
        ps_probe_repair_sent(model, packet->length);
        return;
    }
    if (from + span <= model->high) { /* the same, to another destination, or there again */
        (void)sent_again(model, from, from + span, from + wire, now_ns);
        return;
    }
    ps_probe_governed_sent(probe, model, packet->length, now_ns);
    ps_probe_turn_sent(probe, model, packet->length);
    model->beat_ns = now_ns;
    model->data_ns = now_ns;
    if (from != model->high) {
        complain(probe, model, "data does not follow what was sent", from, model->high);
    }
    if (from + wire > pub->sender_limit) {
        complain(probe, model, "data beyond the sender's limit", from + wire, pub->sender_limit);
    }
    model->high = from + span;
    model->messages += messages;
    ps_probe_batch_sent(probe, model, from, span, packet->length);
    model->fresh_bytes += packet->length;
    model->fresh_messages += messages - marked_in(packet);
    ps_probe_strength_sent(model, packet->length, now_ns);
}

/* Messages that the publisher accepted before a receiver granted credits wait here for them. So do
 * messages behind dropped ones, which take ordinals too. The sender must send all messages that
 * every receiver grants. After an adoption, the limit of the dead daemon holds until those that
 * granted are heard again. */
static bool is_granted(const ps_publication_t *pub, int64_t now_ns)
{
    const int64_t timeout_ns = pub->params.fc_receiver_timeout_ns;
    int64_t least = PS_CREDIT_OPEN;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        const ps_publication_receiver_t *receiver = &pub->receivers[i];
        const bool silent =
            timeout_ns > 0 && pub->fc.counts_receivers && receiver->heard_ns + timeout_ns <= now_ns;
        if (!silent && (receiver->credit_limit < least || receiver->credit_frozen)) {
            least = receiver->credit_frozen ? 0 : receiver->credit_limit;
        }
    }
    return !pub->credits.on || ps_publication_credit_room(pub) > 0 ||
           (pub->credits.readers == 0 && !pub->credits.awaits && pub->sent_ordinal < least);
}

/* A frame and room for it: it leaves in this cycle, or the next few when many streams send. */
static void check_data(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    bool sendable = false;
    if (!pub->revoked && !pub->corrupt && ps_send_endpoint_reachable(pub->endpoint) &&
        pub->state != PS_PUBLICATION_DRAINED) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, pub->sender_position);
        const int32_t length = ps_frame_length_acquire(frame);
        const int64_t wire = frame->type == PS_TYPE_PAD ? PS_HEADER_BYTES : ps_align32(length);
        sendable = length > 0 && is_granted(pub, now_ns) &&
                   pub->sender_position + wire <= pub->sender_limit &&
                   ps_probe_pace_level(model, now_ns) > pub->log.mtu &&
                   model->bytes.level > pub->log.mtu && model->nak.level > pub->log.mtu &&
                   model->message_rate.level > 1;
    }
    const bool sends = model->high != model->last_high;
    ps_probe_partial_check(probe, model, now_ns);
    const bool delayed = ps_probe_is_delayed(probe, model, sendable, now_ns);
    model->last_high = model->high;
    ps_probe_promise(probe, &model->promises[P_PUB_SEND],
                     !sendable || sends || delayed || ps_probe_is_full(probe, model->host, now_ns),
                     now_ns, ps_probe_slack_ns(probe, model->host), "what can be sent is sent",
                     model->host, pub->log.session_id);
    if (pub->sender_position != model->high) {
        complain(probe, model, "the sender's position is not what was sent", pub->sender_position,
                 model->high);
        model->high = pub->sender_position;
    }
}

/* ---- what was requested ---------------------------------------------------------------------- */

/* Ranges that overlap: one answer may be for both questions, and linger for longer than the probe
 * thinks. */
static bool is_covered(const ps_publication_t *pub, int64_t position)
{
    for (int32_t i = 0; i < pub->retransmit.capacity; i++) {
        const ps_resend_t *action = &pub->retransmit.actions[i];
        if (action->state != PS_RESEND_FREE && position >= action->from && position < action->to) {
            return true;
        }
    }
    return false;
}

/* Returns true if the sender ignores a request that begins here: an answer has the position. */
static bool is_answered(const ps_publication_t *pub, int64_t position, int64_t now_ns)
{
    for (int32_t i = 0; i < pub->retransmit.capacity; i++) {
        const ps_resend_t *action = &pub->retransmit.actions[i];
        const bool held = action->state == PS_RESEND_PENDING ||
                          (action->state == PS_RESEND_LINGER && now_ns < action->due_ns);
        if (held && position >= action->from && position < action->to) {
            return true;
        }
    }
    return false;
}

/* Returns true if the sender dropped the request because its pool was full, or answered it with
 * another request. Requests of this cycle are not in the pool yet. */
static bool was_dropped(const ps_publication_t *pub, const ps_probe_request_t *request,
                        int64_t now_ns)
{
    return request->done_ns < 0 && request->optional && now_ns > request->requested_ns &&
           !is_covered(pub, request->from) && !is_covered(pub, request->cursor);
}

/* Returns the end of the last whole frame of [from, to). A range may end inside a frame: at the
 * limit of one answer, or at the edge of a receiver's window. The sender never sends a part. */
static int64_t whole_frames_end(const ps_publication_t *pub, int64_t from, int64_t to)
{
    const int64_t last = to < pub->sender_position ? to : pub->sender_position;
    int64_t end = from;
    while (end < last) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, end);
        const int64_t length = ps_align32(ps_frame_length_acquire(frame));
        const int64_t wire = frame->type == PS_TYPE_PAD ? PS_HEADER_BYTES : length;
        if (length <= 0 || end + wire > last ||
            frame->term_offset != (int32_t)(end & pub->log.term_mask)) {
            break;
        }
        end += length;
    }
    return end;
}

/* Returns true if the sender keeps one request at a time: it has heard no receiver that requests
 * all gaps. After a restart, NAKs may come before the first status message. */
static bool keeps_one(const ps_probe_pub_t *model)
{
    const ps_retransmit_t *pool = &model->pub->retransmit;
    return (model->answers > 0 ? model->answers : pool->capacity) == 1;
}

/* Returns true if the sender may drop a new request because too many others wait. */
static bool is_crowded(const ps_probe_pub_t *model)
{
    const int32_t requested = model->pub->retransmit.pending + model->requested_now;
    const int32_t waiting = model->pub->params.group ? 2 * requested : requested;
    return waiting >= model->pub->retransmit.capacity && !keeps_one(model);
}

/* If the sender keeps one request at a time, a new request replaces the previous one, which may
 * remain without an answer. */
static void replace(ps_probe_pub_t *model)
{
    for (int32_t i = 0; i < model->request_count && keeps_one(model); i++) {
        model->requests[i].optional = model->requests[i].optional || model->requests[i].done_ns < 0;
    }
}

/* Returns the length of the longest range that the sender retransmits for one NAK. */
static int64_t longest_answer(const ps_publication_t *pub)
{
    const int64_t half = pub->log.term_length / 2;
    const int64_t window = half < 128 * 1024 ? half : 128 * 1024;
    const int64_t multiple = pub->params.retransmit_window_multiple;
    return window * (multiple > 0 ? multiple : pub->params.group ? 4 : 16);
}

void ps_probe_on_nak(ps_probe_pub_t *model, const ps_nak_t *nak, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_driver_params_t *params = &pub->context->params;
    const int64_t term = pub->log.term_length;
    if (pub->endpoint == NULL || nak->length <= 0 || nak->term_offset < 0 ||
        nak->term_offset + nak->length > term) {
        return;
    }
    const int64_t from = position_of(pub, nak->term_id, nak->term_offset);
    const int64_t most = longest_answer(pub);
    const int64_t to = from + (nak->length < most ? nak->length : most);
    if (from < 0 || from < ps_probe_sent_floor(pub, pub->sender_position) || from >= model->high) {
        return;
    }
    const bool full = was_pool_full(model, now_ns);
    bool forgotten = false;
    int32_t free = -1;
    for (int32_t i = 0; i < model->request_count; i++) {
        ps_probe_request_t *request = &model->requests[i];
        const bool over =
            request->done_ns >= 0 && now_ns - request->done_ns >= params->retransmit_linger_ns;
        if (over) {
            /* After a retransmit was cut short, a small frame may remain, and wait for the
             * budget. */
            const bool cut = request->cut && now_ns - request->done_ns < SECOND;
            /* Or another answer had all of it, and its own answer still waits in the pool. */
            free = cut || is_covered(pub, request->from) ? free : i;
        } else if (from >= request->from && from < request->to) {
            /* The range is in flight, or was just answered. A receiver that requests more than the
             * first range must repeat its request. A full pool may have dropped the answer, and
             * then sends the whole range. */
            const bool beyond = from >= request->need; /* this cycle: no answer was due before */
            /* A full pool drops a request, or forgets an answer earlier in this cycle. The sender
             * then takes the next request that begins in the range, which may be longer. */
            const bool anew = request->optional && (full || !is_answered(pub, from, now_ns));
            const bool same = request->from == from && to <= request->to;
            request->to = pub->params.group && to > request->to ? to : request->to;
            if (!beyond && (request->done_ns < 0 ? !anew || same : !full)) {
                /* The sender may have dropped this request earlier, so it takes a place now. */
                const bool open = request->done_ns < 0 && request->optional;
                model->requested_now += open;
                request->requested_ns = open ? now_ns : request->requested_ns;
                return;
            }
            forgotten = true;
            free = was_dropped(pub, request, now_ns) ? i : free;
        }
    }
    const bool crowded = is_crowded(model);
    replace(model);
    if (free < 0 && model->request_count < PS_PROBE_REQUESTS) {
        free = model->request_count++;
    }
    if (free >= 0) {
        const int64_t need = whole_frames_end(pub, from, to);
        model->requests[free] =
            (ps_probe_request_t){ .from = from,
                                  .to = to,
                                  .need = need,
                                  .cursor = from,
                                  .requested_ns = now_ns,
                                  .done_ns = -1,
                                  .cut = nak->length > most,
                                  .optional = crowded || forgotten || need == from ||
                                              is_covered(pub, from) };
        model->requested_now++;
    }
}

/* Requests may wait while the budget is used up; if there are too many, the sender may drop
 * some. */
static void check_requests(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    /* One answer may serve several questions, or those of its delay: the last waits longer. */
    const int64_t grace_ns = ps_probe_slack_ns(probe, model->host) + 2 * SECOND;
    const int64_t linger_ns = pub->context->params.retransmit_linger_ns;
    const double least = pub->log.mtu + 1;
    const bool shut = model->repair.level < least || model->pace.level < least ||
                      pub->repair.level < (int64_t)(pub->log.mtu + 1) * SECOND ||
                      !ps_send_endpoint_reachable(pub->endpoint) || pub->revoked ||
                      ps_probe_is_full(probe, model->host, now_ns) ||
                      model->repair_bytes > 0    /* a turn of answers at a time */
                      || model->stated_rate > 0; /* a pace spreads them over a round trip */
    model->requested_now = 0;
    for (int32_t i = 0; i < model->request_count; i++) {
        ps_probe_request_t *request = &model->requests[i];
        if (request->done_ns >= 0) {
            continue;
        }
        request->requested_ns = shut ? now_ns : request->requested_ns;
        /* There is no destination, as after a restart, so the answer was not sent. */
        request->optional = request->optional || !ps_send_endpoint_reachable(pub->endpoint);
        if (request->cursor < ps_probe_sent_floor(pub, pub->sender_position) ||
            pub->state == PS_PUBLICATION_DRAINED) {
            /* The sender answers it no more, so no answer lingers for it. */
            request->done_ns = now_ns > linger_ns ? now_ns - linger_ns : 0;
        } else if (now_ns - request->requested_ns > grace_ns && !request->optional) {
            request->done_ns = now_ns;
            complain(probe, model, "what was requested is not sent again", request->from,
                     request->to);
        }
    }
}

void ps_probe_send_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    check_setup(probe, model, now_ns);
    check_heartbeat(probe, model, now_ns);
    check_data(probe, model, now_ns);
    check_requests(probe, model, now_ns);
    ps_probe_turn_check(probe, model, now_ns);
    if (model->pub->sent_ordinal != model->messages) {
        complain(probe, model, "messages sent are counted wrong", model->pub->sent_ordinal,
                 model->messages);
        model->messages = model->pub->sent_ordinal;
    }
}
