/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_grants.c: the limits that receivers and local readers of a stream state, and their
 * combination (docs/decisions/0240). */
#include "ps_publication_credit.h"
#include "ps_sender.h"

enum { COUNT_FRAMES = 4096, WALK_BYTES = 4096 };

/* ---- statements ------------------------------------------------------------------------------ */

static bool counts(const ps_publication_t *pub, const ps_sm_t *sm)
{
    const bool tagged = pub->params.flow_control == PS_FC_TAGGED;
    return (sm->trailer.capabilities & PS_CAP_CREDITS) != 0 && sm->trailer.credit_messages > 0 &&
           sm->trailer.credit_limit >= 0 && !pub->nak && pub->params.flow_control != PS_FC_CUSTOM &&
           (!tagged || (sm->has_group_tag && sm->group_tag == pub->params.fc_group_tag));
}

/* A receiver grants at most N beyond what was returned; twice as much is never sound. */
static bool is_absurd(const ps_trailer_t *trailer)
{
    const int64_t most = 2 * (int64_t)trailer->credit_messages;
    return trailer->credit_messages > PS_CREDITS_MAX || trailer->released_ordinal < 0 ||
           trailer->released_ordinal > PS_CREDIT_OPEN - most ||
           trailer->credit_limit > trailer->released_ordinal + most;
}

static void refuse(const ps_publication_t *pub)
{
    atomic_fetch_add_explicit(&pub->slot->credit_refused, 1, memory_order_relaxed);
}

void ps_publication_credit_heard(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                                 const ps_sm_t *sm)
{
    const ps_trailer_t *trailer = &sm->trailer;
    const bool known = receiver->credit_limit != PS_CREDIT_OPEN;
    if (!counts(pub, sm)) {
        if (known) {
            pub->credits.granters_changed = true;
            receiver->credit_limit = PS_CREDIT_OPEN;
            receiver->credit_frozen = false;
            receiver->credit_answer = false;
        }
        pub->credits.stale = pub->credits.stale || known || pub->credits.held;
        return;
    }
    const int32_t newer = (int32_t)(trailer->credit_epoch - receiver->credit_epoch);
    if (is_absurd(trailer)) {
        refuse(pub);
        return;
    }
    if (!known) {
        pub->credits.granters_changed = true;
    } else if (newer < 0 || (newer == 0 && trailer->credit_limit < receiver->credit_limit)) {
        refuse(pub); /* an earlier statement */
        return;
    }
    receiver->credit_limit = trailer->credit_limit;
    receiver->credit_epoch = trailer->credit_epoch;
    receiver->credit_frozen = (trailer->credit_flags & PS_CREDIT_FLAG_FROZEN) != 0;
    receiver->credit_answer = (trailer->credit_flags & PS_CREDIT_FLAG_ANSWER) != 0;
    pub->credits.answer = pub->credits.answer || receiver->credit_answer;
    pub->credits.stale = true;
}

/* The epochs of a reader that a new daemon adopted continue: its client has seen those of the dead
 * daemon. */
static void continue_epochs(ps_publication_credits_t *credits, const ps_subscriber_slot_t *slot)
{
    const uint32_t before = atomic_load_explicit(&slot->credit_epoch, memory_order_relaxed);
    credits->local_epoch = before > credits->local_epoch ? before : credits->local_epoch;
}

void ps_publication_credit_add(ps_publication_t *pub, ps_publication_subscriber_t *subscriber,
                               const ps_subscriber_params_t *params)
{
    const ps_shared_t *shared = pub->context->params.shared;
    ps_publication_credits_t *credits = &pub->credits;
    if (params->slot < 0 || params->slot >= shared->n_subscribers) {
        return;
    }
    /* It may have read on since it joined, and what it returned counts from there. */
    const int64_t join = params->join_position;
    int64_t from =
        join >= pub->clean_position && join <= subscriber->position ? join : subscriber->position;
    if (from < pub->clean_position) { /* outrun: messages there cannot be counted */
        from = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    }
    ps_credit_join(&subscriber->credit, &shared->subscribers[params->slot], from, true);
    continue_epochs(credits, &shared->subscribers[params->slot]);
    const ps_credit_change_t change = { .position_counter_id = params->position_counter_id,
                                        .credits = params->credits,
                                        .credit_burst = params->credit_burst,
                                        .frozen = params->frozen };
    if (params->credits > 0) {
        ps_publication_credit_change(pub, &change);
    }
    if (pub->endpoint == NULL && params->credits > 0 && credits->counted.ordinal < 0) {
        credits->counted = (ps_counted_t){ .position = from, .ordinal = 0 };
    }
}

void ps_publication_credit_change(ps_publication_t *pub, const ps_credit_change_t *change)
{
    ps_publication_credits_t *credits = &pub->credits;
    credits->readers = 0;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        ps_credit_reader_t *reader = &subscriber->credit;
        if (subscriber->counter_id == change->position_counter_id && reader->slot != NULL &&
            ps_credit_set(reader, change->credits, change->credit_burst, change->frozen != 0)) {
            ps_credit_restart(reader);
            credits->local_epoch++;
        }
        credits->readers += reader->credits > 0;
    }
    credits->local_epoch += credits->local_epoch == 0;
    credits->stale = true;
}

/* ---- who grants ------------------------------------------------------------------------------ */

void ps_publication_credit_combine_receivers(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    const int64_t timeout_ns = pub->params.fc_receiver_timeout_ns;
    credits->stale = false;
    credits->network = credits->awaits ? credits->awaited_limit : PS_CREDIT_OPEN;
    credits->network_frozen = credits->awaits && credits->awaited_frozen;
    credits->network_who = 0;
    credits->plain = 0;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        const ps_publication_receiver_t *receiver = &pub->receivers[i];
        const bool silent =
            timeout_ns > 0 && pub->fc.counts_receivers && receiver->heard_ns + timeout_ns <= now_ns;
        credits->plain += !silent && receiver->credit_limit == PS_CREDIT_OPEN;
        if (silent || receiver->credit_limit == PS_CREDIT_OPEN) {
            continue;
        }
        const bool least = receiver->credit_limit < credits->network;
        if (receiver->credit_frozen || (least && !credits->network_frozen)) {
            credits->network_who = receiver->id;
        }
        credits->network_frozen = credits->network_frozen || receiver->credit_frozen;
        credits->network = least ? receiver->credit_limit : credits->network;
    }
}

/* Returns the number of messages of the stream. A message that is not counted yet exists if its
 * credit was taken. */
static int64_t existing(const ps_publication_t *pub, const ps_counted_t *counted)
{
    if (pub->endpoint != NULL || !pub->credits.on || counted->position >= pub->producer_position) {
        return counted->ordinal;
    }
    const int64_t taken = ps_publication_credit_taken(pub);
    return taken > counted->ordinal ? taken : counted->ordinal;
}

/* Returns true if a reader or a receiver that grants nothing keeps the stream connected. Local
 * readers that grant are not among them: the caller has found none. */
static bool is_read_freely(const ps_publication_t *pub)
{
    const bool local =
        pub->gating_count > 0 && (pub->endpoint == NULL || pub->params.spies_simulate_connection);
    return (local || pub->credits.plain > 0) && ps_publication_is_read(pub);
}

/* Returns true if the limit of readers that have left still holds: until a reader without credits
 * joins, or until publishers can write nothing because the stream is not connected. */
__attribute__((cold, noinline)) static bool outlives_readers(const ps_publication_t *pub)
{
    const bool shut = !pub->connected && pub->publisher_limit <= pub->producer_position;
    return !shut && !is_read_freely(pub);
}

int64_t ps_publication_credit_combine(ps_publication_t *pub, bool *frozen)
{
    ps_publication_credits_t *credits = &pub->credits;
    const ps_counted_t counted = ps_publication_credit_counted(pub);
    const int64_t exist = existing(pub, &counted);
    /* The dead daemon's limit holds until a receiver states one. */
    const bool held = credits->network == PS_CREDIT_OPEN && credits->on &&
                      (pub->adopted_connection || (credits->readers == 0 && outlives_readers(pub)));
    int64_t limit = held ? credits->limit : credits->network;
    *frozen = held ? credits->revoked : credits->network_frozen;
    credits->held = held;
    credits->culprit = credits->network_who;
    credits->culprit_slot = -1;
    for (int32_t i = 0; credits->readers > 0 && i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        ps_credit_reader_t *reader = &subscriber->credit;
        if (reader->credits == 0) {
            continue;
        }
        const bool known = ps_credit_step(reader, &pub->log, &counted, exist);
        const int64_t granted = known         ? reader->limit
                                : credits->on ? credits->limit
                                              : counted.ordinal;
        if (reader->frozen || (granted < limit && !*frozen)) {
            credits->culprit_slot = subscriber->client_slot;
        }
        *frozen = *frozen || reader->frozen;
        limit = granted < limit ? granted : limit;
    }
    return limit;
}

/* The last message of a freeze; else what was taken when the reader's lower limit began. */
static int64_t final_of(const ps_publication_credits_t *credits, const ps_credit_reader_t *reader,
                        int64_t counted)
{
    if (!credits->revoked) {
        return credits->limit <= reader->limit ? credits->epoch_ordinal : -1;
    }
    return credits->settled ? counted : credits->epoch_ordinal;
}

void ps_publication_credit_show(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    const ps_counted_t counted = ps_publication_credit_counted(pub);
    for (int32_t i = 0; credits->readers > 0 && i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        const ps_credit_reader_t *reader = &subscriber->credit;
        if (reader->credits == 0) {
            continue;
        }
        const int32_t state = !reader->frozen     ? PS_CREDIT_GRANTING
                              : !credits->revoked ? PS_CREDIT_FREEZING
                              : credits->settled  ? PS_CREDIT_SETTLED
                                                  : PS_CREDIT_FROZEN;
        const bool changed =
            atomic_load_explicit(&reader->slot->credit_state, memory_order_relaxed) != state;
        ps_credit_show(reader, credits->local_epoch, state,
                       final_of(credits, reader, counted.ordinal));
        const int64_t step = credits->binds || reader->credits < 4 ? 1 : reader->credits / 4;
        ps_credit_wake_at(reader, reader->returned + step);
        if (changed && subscriber->client_slot >= 0) {
            ps_slot_wake_client(pub->context->params.shared, subscriber->client_slot);
        }
    }
}

/* Returns the only reader that grants; NULL: there are several. */
static const ps_publication_subscriber_t *only_reader(const ps_publication_t *pub)
{
    const ps_publication_subscriber_t *only = NULL;
    for (int32_t i = 0; pub->credits.readers == 1 && i < pub->subscriber_count; i++) {
        only = pub->subscribers[i].credit.credits > 0 ? &pub->subscribers[i] : only;
    }
    return only;
}

/* Returns true if the count of the reader may be true: a message takes at least one frame, and a
 * credit. */
static bool is_possible(const ps_publication_t *pub, const ps_counted_t *stated)
{
    const ps_counted_t *counted = &pub->credits.counted;
    const int64_t messages = stated->ordinal - counted->ordinal;
    return (stated->position & (PS_FRAME_ALIGNMENT - 1)) == 0 && messages >= 0 &&
           messages <= (stated->position - counted->position) / PS_FRAME_ALIGNMENT &&
           stated->ordinal <= ps_publication_credit_taken(pub);
}

/* Takes over the count of a busy stream's only reader, whose client counts the messages that it
 * releases. A walk over the frames would take their lines from publisher and reader (decision
 * 0310). Returns false if the sender must count: no credit is granted yet, a freeze has to settle,
 * little is to be counted, or the reader's count is missing or impossible. */
static bool follow_reader(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    const int64_t behind = pub->producer_position - credits->counted.position;
    const ps_publication_subscriber_t *reader = NULL;
    if (behind > WALK_BYTES && credits->on && !credits->revoked && !pub->drops) {
        reader = only_reader(pub);
    }
    if (reader == NULL ||
        atomic_load_explicit(&reader->credit.slot->credit_in_order, memory_order_relaxed) == 0) {
        return false;
    }
    ps_counted_t stated;
    if (!ps_credit_read_counted(&reader->credit, reader->cell, &stated)) {
        /* The memory of what is not counted must not be released meanwhile. */
        return reader->position - credits->counted.position <= ps_publication_term(pub) / 4;
    }
    if (stated.position <= credits->counted.position || stated.position > pub->producer_position) {
        return true;
    }
    if (!is_possible(pub, &stated)) {
        return false;
    }
    credits->counted = stated;
    return true;
}

static void show_counted(const ps_publication_t *pub)
{
    const ps_counted_t *counted = &pub->credits.counted;
    atomic_store_explicit(&pub->slot->counted_ordinal, counted->ordinal, memory_order_relaxed);
    atomic_store_explicit(&pub->slot->counted_position, counted->position, memory_order_release);
}

bool ps_publication_credit_count_log(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    if (pub->endpoint != NULL || credits->counted.ordinal < 0) {
        return false;
    }
    if (follow_reader(pub)) {
        show_counted(pub);
        return false;
    }
    const int64_t before = credits->counted.position;
    const int64_t messages =
        ps_credit_count(&pub->log, &credits->counted.position, pub->producer_position, COUNT_FRAMES,
                        &credits->counted_dropped);
    credits->counted.ordinal += messages > 0 ? messages : 0;
    show_counted(pub);
    return credits->counted.position > before &&
           credits->counted.position < pub->producer_position &&
           ps_publication_frame_is_there(pub, credits->counted.position);
}
