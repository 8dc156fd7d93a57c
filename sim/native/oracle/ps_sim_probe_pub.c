/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_pub.c: what must hold of a publication whoever receives it: how far producers may
 * go and that the memory there is empty, why they are held and for how long, and what the counters
 * show.
 */
#include "ps_log.h"
#include "ps_policy.h"
#include "ps_spend.h"

#include "ps_sim_probe.h"

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static void promise(ps_probe_t *probe, ps_probe_pub_t *model, enum ps_probe_pub_promise which,
                    bool holds, int64_t now_ns, int64_t times, const char *name)
{
    ps_probe_promise(probe, &model->promises[which], holds, now_ns,
                     times * ps_probe_turn_slack_ns(probe, model->host), name, model->host,
                     model->pub->log.session_id);
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* ---- readers on this host -------------------------------------------------------------------- */

/* The position as which a reader counts. A lagged reader counts as the leader. */
static int64_t counts_as(const ps_publication_t *pub, const ps_publication_subscriber_t *reader)
{
    const int64_t shown = load(reader->cell);
    const bool leads = reader->isolation.lagged && pub->state == PS_PUBLICATION_ACTIVE;
    return leads && shown < pub->producer_position ? pub->producer_position : shown;
}

/* The slowest that counts, INT64_MAX: none. */
static int64_t slowest_reader(const ps_publication_t *pub)
{
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *reader = &pub->subscribers[i];
        const int64_t shown = counts_as(pub, reader);
        if (ps_tether_gates(&reader->tether)) {
            slowest = shown < slowest ? shown : slowest;
        }
    }
    return slowest;
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool is_zero(const ps_log_t *log, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to;) {
        const int64_t term_end = (at | log->term_mask) + 1;
        const int64_t end = to < term_end ? to : term_end;
        const uint8_t *bytes = ps_log_at(log, at);
        for (int64_t i = 0; i < end - at; i += 8) {
            uint64_t word;
            memcpy(&word, bytes + i, sizeof word);
            if (word != 0) {
                return false;
            }
        }
        at = end;
    }
    return true;
}

/* A publisher that may start a message below the limit may write in the whole term of that
 * position. */
static void check_memory(ps_probe_t *probe, ps_probe_pub_t *model, int64_t producer)
{
    const ps_publication_t *pub = model->pub;
    /* At a term's end the limit is in the term before: the next may have no memory, and a look
     * would take some. */
    const int64_t end = ((pub->publisher_limit - 1) | pub->log.term_mask) + 1;
    if (pub->publisher_limit <= producer || end <= model->zero_to) {
        return;
    }
    const int64_t from = model->zero_to > producer ? model->zero_to : producer;
    if (end - producer > 2 * ps_publication_term(pub) + pub->log.term_length) {
        complain(probe, model, "the limit is in a term that is in use", pub->publisher_limit,
                 producer);
    } else if (pub->log.type == PS_LOG_SEALED) { /* its tail is checked each time */
        if (!is_zero(&pub->log, producer, producer + 8)) {
            complain(probe, model, "a log's tail is not sealed", producer, end);
        }
        return;
    } else if (!is_zero(&pub->log, from, end)) {
        complain(probe, model, "producers may write where memory is not empty", from, end);
    }
    model->zero_to = end;
}

/* If a policy is stated, publishers that reached the limit wait until they are ahead by no more
 * than this. */
bool ps_probe_is_above_watermark(const ps_publication_t *pub, int64_t ahead)
{
    const int64_t stated = pub->params.low_watermark_bytes;
    return pub->params.policy != PS_POLICY_NONE &&
           ahead > (stated > 0 ? stated : pub->window_bytes / 2);
}

/* A limit that publishers met stays until they are no further ahead than the watermark. */
static void check_pause(ps_probe_t *probe, ps_probe_pub_t *model, int64_t producer, int64_t ahead)
{
    const ps_publication_t *pub = model->pub;
    /* The sender appends its frame that states drops after the limit rose. */
    const int64_t own = pub->drops ? PS_FRAME_ALIGNMENT : 0;
    const bool above =
        ps_probe_is_above_watermark(pub, ahead - own) && pub->connected && !pub->rated;
    if (above && model->paused_at > 0 && pub->publisher_limit > model->paused_at) {
        complain(probe, model, "the limit rose above the low watermark", pub->publisher_limit,
                 model->paused_at);
    }
    if (!above || pub->publisher_limit < model->paused_at) {
        model->paused_at = 0;
    }
    if (above && producer >= pub->publisher_limit) {
        model->paused_at = pub->publisher_limit;
    }
}

static void check_limit(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t producer = ps_log_producer_position(&pub->log);
    const int64_t reader = slowest_reader(pub);
    int64_t consumer = pub->endpoint != NULL ? pub->sender_position : reader;
    consumer = reader < consumer ? reader : consumer;
    const bool active = pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked;
    if (consumer != INT64_MAX && consumer + pub->window_bytes > model->reach) {
        model->reach = consumer + pub->window_bytes;
    }
    if (active && pub->publisher_limit > model->reach) {
        complain(probe, model, "the publisher limit is beyond consumer and window",
                 pub->publisher_limit, model->reach);
    }
    if (active && consumer != INT64_MAX) {
        check_pause(probe, model, producer, producer - consumer);
    }
    const bool served = pub->connected || (pub->endpoint != NULL && pub->receiver_count > 0 &&
                                           ps_probe_has_receivers(model));
    const int64_t stored = pub->reserved_position == INT64_MAX
                               ? INT64_MAX
                               : pub->reserved_position & ~(int64_t)pub->log.term_mask;
    if (active && pub->publisher_limit > stored) {
        complain(probe, model, "the publisher limit is beyond storage", pub->publisher_limit,
                 stored);
    }
    if (pub->publisher_limit > model->limit_most) {
        model->limit_most = pub->publisher_limit;
    }
    int64_t expected = consumer == INT64_MAX ? 0 : consumer + pub->window_bytes;
    expected = expected < stored ? expected : stored;
    promise(probe, model, P_PUB_ROOM,
            !active || !served || pub->rated || pub->quarantine_count > 0 ||
                ps_probe_is_above_watermark(pub, producer - consumer) ||
                pub->message_depth.ahead > pub->message_depth.low ||
                pub->publisher_limit >= expected - PS_FRAME_ALIGNMENT,
            now_ns, 8, "producers get a window of room");
    promise(probe, model, P_PUB_PULLED,
            !active || served ||
                (pub->endpoint != NULL ? pub->publisher_limit <= pub->sender_position
                                       : pub->publisher_limit == pub->consumer_position),
            now_ns, 1, "without receivers there is no room");
    promise(probe, model, P_PUB_STORAGE,
            !active || !served || consumer == INT64_MAX || pub->rated ||
                consumer + pub->window_bytes <= stored,
            now_ns, 8, "storage keeps ahead of producers");
    if (active) {
        check_memory(probe, model, producer);
    }
}

/* ---- the account ----------------------------------------------------------------------------- */

static bool is_window_shut(const ps_publication_t *pub)
{
    const ps_frame_t *frame = ps_frame_at(&pub->log, pub->sender_position);
    const int32_t length = ps_frame_length_acquire(frame);
    const int64_t wire = frame->type == PS_TYPE_PAD ? PS_HEADER_BYTES : ps_align32(length);
    return length > 0 && pub->sender_position + wire > pub->sender_limit;
}

/* The receiver states that a gap keeps its window back. */
static bool is_repairing(const ps_probe_pub_t *model, int64_t receiver_id)
{
    for (int32_t i = 0; i < model->receiver_count; i++) {
        if (model->receivers[i].id == receiver_id) {
            return model->receivers[i].live && model->receivers[i].reason == PS_CAUSE_LOSS_REPAIR;
        }
    }
    return false;
}

/* The receiver last said that its congestion window is what is shut. */
static bool is_congested(const ps_probe_pub_t *model, int64_t receiver_id)
{
    for (int32_t i = 0; i < model->receiver_count; i++) {
        if (model->receivers[i].id == receiver_id) {
            return model->receivers[i].live &&
                   model->receivers[i].reason == PS_CAUSE_CONGESTION_WINDOW;
        }
    }
    return false;
}

/* Publishers have taken all credits, or may take none. The stored limit is the lower of those of
 * the credits and of a message rate. The rate may have used it up although credits are left. */
static bool has_no_credit(const ps_publication_t *pub)
{
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const bool others = pub->params.rate_messages_per_s > 0 || pub->params.depth_messages > 0;
    const int64_t limit =
        others ? ps_publication_credit_ordinals(pub) : load(&pub->slot->ordinal_limit);
    /* The lease of a shared stream is for one publisher. */
    const int64_t leased = pub->params.exclusive ? ps_spend_leased(pub->slot) : 0;
    return pub->credits.on && leased == 0 && ps_spend_room(word, limit) == 0;
}

/* Whether this cause can be what holds producers, by what the probe knows. */
static bool is_possible(const ps_probe_t *probe, const ps_probe_pub_t *model, int32_t cause,
                        int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool network = pub->endpoint != NULL;
    const bool follows =
        pub->params.flow_control == PS_FC_MIN || pub->params.flow_control == PS_FC_TAGGED;
    int64_t at;
    switch (cause) {
    case PS_CAUSE_NO_RECEIVER:
        return !pub->connected || (network && !ps_send_endpoint_reachable(pub->endpoint));
    case PS_CAUSE_RECEIVER_WINDOW:
    case PS_CAUSE_LOSS_REPAIR:
        return network && pub->connected && is_window_shut(pub) &&
               !is_congested(model,
                             atomic_load_explicit(&pub->slot->cause_culprit, memory_order_relaxed));
    case PS_CAUSE_GROUP_STRATEGY:
        return network && pub->connected && is_window_shut(pub) &&
               (follows || pub->params.flow_control == PS_FC_CUSTOM);
    case PS_CAUSE_CONGESTION_WINDOW: return network && pub->connected;
    case PS_CAUSE_JOIN_HOLD:
        return network && pub->connected && follows && is_window_shut(pub) &&
               ps_probe_hold(model) != INT64_MAX;
    case PS_CAUSE_NAK_RATE:
        return pub->params.flow_control == PS_FC_PRESSURE &&
               ps_pressure_control_limits(&pub->pressure_control);
    case PS_CAUSE_RATE_LIMIT:
        return pub->params.rate_bytes_per_s > 0 || pub->params.rate_messages_per_s > 0 ||
               pub->params.flow_control == PS_FC_PRESSURE;
    case PS_CAUSE_SLOW_SUBSCRIBER:
        return !network && pub->connected && pub->slowest_position < pub->producer_position;
    case PS_CAUSE_SPY:
        return network && pub->gating_count > 0 && pub->slowest_position < pub->producer_position;
    case PS_CAUSE_BLOCKED_CLAIM:
        return ps_publication_is_blocked(pub, &at) || pub->quarantine_count > 0 || pub->corrupt;
    case PS_CAUSE_CREDIT: return has_no_credit(pub);
    case PS_CAUSE_STORAGE: return pub->reserved_position != INT64_MAX;
    case PS_CAUSE_SOCKET: return network && ps_probe_is_full(probe, model->host, now_ns);
    case PS_CAUSE_GOVERNOR: return network && ps_probe_may_hold(probe, model, now_ns);
    case PS_CAUSE_SCHEDULER: return network && pub->sender_position < pub->producer_position;
    default: return cause == PS_CAUSE_TERM_ROTATION;
    }
}

/* If one followed receiver is behind the others, the cause is the strategy; otherwise it is the
 * window of all receivers. 0: several causes are possible. */
static int32_t group_cause(const ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    int64_t least = INT64_MAX;
    int64_t furthest = INT64_MIN;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        if (receiver->live && receiver->reason == PS_CAUSE_CONGESTION_WINDOW) {
            return 0;
        }
        if (receiver->followed) {
            least = receiver->edge < least ? receiver->edge : least;
            furthest = receiver->edge > furthest ? receiver->edge : furthest;
        }
    }
    if (pub->rated || pub->paced || !is_window_shut(pub) || furthest == INT64_MIN) {
        return 0;
    }
    if (ps_probe_hold(model) <= least) {
        return PS_CAUSE_JOIN_HOLD;
    }
    return furthest > least ? PS_CAUSE_GROUP_STRATEGY : PS_CAUSE_RECEIVER_WINDOW;
}

/* Publishers stand where the storage ends that the log has. */
static bool is_storage_used_up(const ps_publication_t *pub)
{
    const int64_t end = pub->reserved_position & ~(int64_t)pub->log.term_mask;
    return pub->reserved_position != INT64_MAX && pub->publisher_limit >= end;
}

/* The one cause that must be named where it is plain; 0: several may be. */
static int32_t plain_cause(const ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    if (!pub->connected || (pub->endpoint != NULL && !ps_send_endpoint_reachable(pub->endpoint))) {
        return PS_CAUSE_NO_RECEIVER; /* or no destination yet, after an adoption */
    }
    if (is_storage_used_up(pub)) {
        return 0;
    }
    if (pub->credits.on) {
        return has_no_credit(pub) ? PS_CAUSE_CREDIT : 0;
    }
    if (pub->params.rate_bytes_per_s > 0 || pub->params.rate_messages_per_s > 0) {
        return 0;
    }
    if (pub->endpoint != NULL &&
        (pub->params.flow_control == PS_FC_MIN || pub->params.flow_control == PS_FC_TAGGED)) {
        return group_cause(model);
    }
    if (pub->rated || pub->params.flow_control != PS_FC_UNICAST || pub->endpoint == NULL ||
        pub->congestion_pace.rate > 0 || !is_window_shut(pub) || pub->receiver_count != 1 ||
        pub->receivers[0].reason == PS_CAUSE_CONGESTION_WINDOW) {
        return 0;
    }
    return PS_CAUSE_RECEIVER_WINDOW;
}

static void check_account(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int32_t cause = atomic_load_explicit(&pub->slot->cause, memory_order_relaxed);
    const int64_t since_ns = load(&pub->slot->cause_since_ns);
    const int64_t blocked_ns = ps_probe_blocked_total(pub);
    int64_t by_culprit = 0;
    for (int32_t i = 0; i <= PS_CULPRITS; i++) {
        by_culprit += load(&pub->slot->culprits[i].blocked_ns);
    }

    model->held_ns += model->cause != PS_CAUSE_NONE ? now_ns - model->checked_ns : 0;
    model->cause = cause;
    model->checked_ns = now_ns;
    const int64_t shown_ns = blocked_ns + (cause != PS_CAUSE_NONE ? now_ns - since_ns : 0);
    if (by_culprit != blocked_ns) {
        complain(probe, model, "the account by culprit is not the account by cause", by_culprit,
                 blocked_ns);
    }
    if (shown_ns != model->held_ns) {
        complain(probe, model, "the account does not sum to the time held", shown_ns,
                 model->held_ns);
        model->held_ns = shown_ns;
    }
    const bool held = pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked &&
                      (pub->producer_position >= pub->publisher_limit || has_no_credit(pub) ||
                       pub->message_depth.binds ||
                       (pub->params.rate_messages_per_s > 0 && ps_spend_leased(pub->slot) == 0 &&
                        load(&pub->slot->ordinal_limit) <= pub->spent));
    const int32_t plain = held ? plain_cause(model) : 0;
    /* If there is only one receiver, the culprit is known. */
    const bool named = plain != PS_CAUSE_RECEIVER_WINDOW || pub->receiver_count != 1 ||
                       load(&pub->slot->cause_culprit) == pub->receivers[0].id;
    /* A receiver's window, in its own words. */
    const bool repaired = plain == PS_CAUSE_RECEIVER_WINDOW && cause == PS_CAUSE_LOSS_REPAIR &&
                          is_repairing(model, load(&pub->slot->cause_culprit));
    /* A client that was killed between its mark and its message did not notify the sender. */
    const bool untold = cause == PS_CAUSE_NONE && ps_probe_credit_marked(pub) > 0;
    promise(probe, model, P_PUB_HELD, (cause != PS_CAUSE_NONE) == held || untold, now_ns, 1,
            "producers at the limit have a cause");
    promise(probe, model, P_PUB_CAUSE,
            cause == PS_CAUSE_NONE || (is_possible(probe, model, cause, now_ns) && named &&
                                       (plain == 0 || plain == cause || repaired)),
            now_ns, 1, "the cause is the one that holds");
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void check_cells(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool network = pub->endpoint != NULL;
    const bool follows = network && (pub->params.flow_control == PS_FC_MIN ||
                                     pub->params.flow_control == PS_FC_TAGGED);
    int32_t shown = network ? pub->receiver_count : pub->gating_count;
    if (follows) {
        shown = 0;
        for (int32_t i = 0; i < model->receiver_count; i++) {
            shown += model->receivers[i].followed;
        }
    }
    int32_t waited_for = 0;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const int32_t state = pub->subscribers[i].tether.state;
        waited_for += state == PS_TETHER_ACTIVE || state == PS_TETHER_LINGER;
    }
    promise(probe, model, P_PUB_WAITED, pub->gating_count == waited_for, now_ns, 2,
            "readers that are waited for are counted");
    promise(probe, model, P_PUB_FOLLOWED, load(pub->receivers_cell) == shown, now_ns, 2,
            "the number of receivers shown is that of those followed");
    /* With credits pub-lmt stays where each publisher meets it. */
    const _Atomic int64_t *limit = pub->credits.on ? &pub->slot->credited_limit : pub->limit_cell;
    if (load(limit) != pub->publisher_limit || load(pub->position_cell) != pub->producer_position ||
        (network && (load(pub->sender_position_cell) != pub->sender_position ||
                     load(pub->sender_limit_cell) != pub->sender_limit))) {
        complain(probe, model, "counters do not show what is", load(limit), pub->publisher_limit);
    }
    promise(probe, model, P_PUB_READERS,
            pub->producer_position == ps_log_producer_position(&pub->log) &&
                (pub->gating_count == 0 || pub->slowest_position == slowest_reader(pub) ||
                 slowest_reader(pub) > pub->producer_position),
            now_ns, 2, "the sender sees producers and readers");
}

static void check_index(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_sim_ledger_t *ledger = ps_probe_ledger(probe, pub->log.session_id, pub->log.stream_id);
    const uint64_t count = atomic_load_explicit(&pub->ring->count, memory_order_relaxed);
    if (ledger == NULL || count == 0) {
        return;
    }
    const ps_index_entry_t *entry = &pub->ring->entries[(count - 1) % PS_INDEX_ENTRIES];
    const int64_t position = load(&entry->position);
    const int64_t ordinal = load(&entry->ordinal);
    if (ordinal >= 0 && ordinal != ps_probe_ordinal(ledger, position)) {
        complain(probe, model, "the index counts messages wrong", ordinal,
                 ps_probe_ordinal(ledger, position));
    }
    if (pub->params.spies_simulate_connection && count > model->index.count + 1) {
        model->index.count = 0; /* it passed over some and sent some in one turn */
    }
    const char *wrong =
        pub->endpoint == NULL
            ? NULL
            : ps_probe_index_check(&model->index, pub->ring, pub->sender_position,
                                   ps_publication_term(pub),
                                   ps_context_epoch_offset_ns(pub->context), now_ns);
    if (wrong != NULL) {
        complain(probe, model, wrong, position, pub->sender_position);
    }
}

static void check_end(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool network = pub->endpoint != NULL;
    const bool sent = !network || pub->sender_position >= pub->end_position;
    const bool read = slowest_reader(pub) >= pub->end_position;
    const bool alone = network && pub->receiver_count == 0 && !pub->adopted_connection;
    promise(probe, model, P_PUB_DRAINED,
            pub->state != PS_PUBLICATION_DRAINING || !((sent || alone) && read), now_ns, 2,
            "what is sent and read is drained");
    /* While a drained publication lingers, a receiver may return: the sender sends the rest. */
    const bool drained = pub->state == PS_PUBLICATION_DRAINED;
    if (drained && !model->drained && !pub->revoked && !pub->corrupt && network && !sent &&
        pub->receiver_count > 0 && model->promises[P_PUB_DRAINED].since_ns == 0) {
        complain(probe, model, "drained with data unsent", pub->sender_position, pub->end_position);
    }
    model->drained = drained;
}

/* Marks that no accepted message follows yet. */
static void note_marks(ps_probe_t *probe, const ps_publication_t *pub)
{
    for (int32_t i = 0; pub->drops && i < probe->world->ledger_count; i++) {
        ps_sim_ledger_t *ledger = &probe->world->ledgers[i];
        if (ledger->session_id == pub->log.session_id && ledger->stream_id == pub->log.stream_id &&
            ledger->dropped > 0) {
            ps_sim_note_marks(ledger, &pub->log, pub->producer_position);
        }
    }
}

void ps_probe_pub_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    note_marks(probe, model->pub);
    check_limit(probe, model, now_ns);
    check_account(probe, model, now_ns);
    check_cells(probe, model, now_ns);
    check_index(probe, model, now_ns);
    check_end(probe, model, now_ns);
    ps_probe_promise(probe, &model->promises[P_PUB_NOTIFIED],
                     model->pub->pending == 0 || ps_probe_is_crowded(probe, model->host, now_ns),
                     now_ns, ps_probe_turn_slack_ns(probe, model->host),
                     "what the conductor must hear is told", model->host,
                     model->pub->log.session_id);
}
