/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_limit.c: the publisher limit (docs/spec/log-buffer.md): the slowest of sender and
 * local readers plus a window. The limit never reaches memory that is not zeroed, has no storage,
 * or that a stopped claimer may still write. */
#include "ps_policy.h"
#include "ps_publication_credit.h"
#include "ps_sender.h"

enum { CLEAN_BYTES = 256 * 1024, WAKE_PARTS = 8 };
#define TERM_EVENT_INTERVAL_NS INT64_C(1000000000)

/* ---- connection ------------------------------------------------------------------------------ */

static bool raise_limit(ps_publication_t *pub, int64_t now_ns);
static void pull_back(ps_publication_t *pub);

void ps_publication_update_connected(ps_publication_t *pub, int64_t now_ns)
{
    const int32_t receivers = pub->endpoint != NULL ? pub->receiver_count : pub->gating_count;
    const bool real = ps_publication_is_read(pub);
    if (pub->adopted_connection &&
        pub->adopted_until_ns == 0) { /* as long as a receiver may be silent */
        pub->adopted_until_ns = now_ns + pub->context->params.connection_timeout_ns;
    }
    pub->adopted_connection =
        pub->adopted_connection && !real && !pub->revoked && now_ns < pub->adopted_until_ns;
    const bool connected = real || pub->adopted_connection;
    if (atomic_load_explicit(&pub->status_receivers, memory_order_relaxed) != receivers) {
        atomic_store_explicit(&pub->status_receivers, receivers, memory_order_release);
    }
    const int32_t followed =
        pub->endpoint != NULL && pub->fc.counts_receivers ? pub->fc.tracked : receivers;
    if (pub->receivers_shown != followed) {
        pub->receivers_shown = followed;
        atomic_store_explicit(pub->receivers_cell, followed, memory_order_release);
    }
    if (connected == pub->connected) {
        return;
    }
    pub->connected = connected;
    if (connected && pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked) {
        (void)raise_limit(pub, now_ns); /* who sees the connection finds room and no cause */
        ps_publication_account(pub, now_ns);
    } else if (pub->credits.held && pub->state == PS_PUBLICATION_ACTIVE) {
        pull_back(pub); /* no room, so the credits of readers that have left may end */
        (void)ps_publication_credit_step(pub, now_ns);
    } else if (pub->endpoint == NULL) {
        pull_back(pub); /* before the disconnection is stored: the daemon may die in between */
    }
    atomic_store_explicit(&pub->log.meta->is_connected, connected, memory_order_release);
    atomic_store_explicit(&pub->status_connected, connected, memory_order_release);
    pub->pending |= PS_PEND_CONNECTED;
    ps_publication_wake_clients(pub);
}

/* ---- cleaning and quarantine ----------------------------------------------------------------- */

/* Zeroes memory behind the consumers; in a sealed log only advances the position. Bound:
 * CLEAN_BYTES a call. True: reached `to`. */
static bool clean(ps_publication_t *pub, int64_t to)
{
    if (pub->log.type == PS_LOG_SEALED) {
        pub->clean_position = to > pub->clean_position ? to : pub->clean_position;
        return true;
    }
    int64_t left = CLEAN_BYTES;
    while (pub->clean_position < to && left > 0) {
        const int64_t term_end = (pub->clean_position | pub->log.term_mask) + 1;
        int64_t end = to < term_end ? to : term_end;
        end = end - pub->clean_position > left ? pub->clean_position + left : end;
        ps_log_clean(&pub->log, pub->clean_position, end);
        left -= end - pub->clean_position;
        pub->clean_position = end;
    }
    return pub->clean_position >= to;
}

/* Returns the slowest consumer's position; memory a term below is free. */
static int64_t last_consumer(const ps_publication_t *pub)
{
    const int64_t consumer = pub->endpoint != NULL ? pub->sender_position : pub->slowest_position;
    return pub->gating_count > 0 && pub->slowest_position < consumer ? pub->slowest_position
                                                                     : consumer;
}

void ps_publication_clean_behind(ps_publication_t *pub)
{
    (void)clean(pub, last_consumer(pub) - ps_publication_term(pub));
}

/* Returns the highest limit whose partition is zeroed: two terms ahead of the clean position,
 * exclusive if that is at the beginning of a term. */
static int64_t clean_limit(const ps_publication_t *pub)
{
    const bool inside = (pub->clean_position & pub->log.term_mask) != 0;
    const int64_t terms = (pub->clean_position >> pub->log.shift) + (inside ? 3 : 2);
    return (terms << pub->log.shift) - PS_FRAME_ALIGNMENT;
}

static bool has_answered(const ps_publication_t *pub, const ps_publication_quarantine_t *entry)
{
    const ps_client_slot_t *client = &pub->context->params.shared->clients[entry->client_slot];
    return atomic_load_explicit(&client->id, memory_order_acquire) != entry->client_id ||
           (int64_t)(atomic_load_explicit(&client->claims_lost, memory_order_acquire) -
                     entry->claims_lost) >= 0;
}

void ps_publication_release_quarantine(ps_publication_t *pub)
{
    for (int32_t i = 0; i < pub->quarantine_count;) {
        const ps_publication_quarantine_t entry = pub->quarantine[i];
        if (!has_answered(pub, &entry)) {
            i++;
            continue;
        }
        if (entry.from < pub->clean_position) { /* the claimer may have written into zeroed
                                                 * memory */
            const int64_t to = entry.to < pub->clean_position ? entry.to : pub->clean_position;
            ps_log_clean(&pub->log, entry.from, to);
        }
        pub->quarantine[i] = pub->quarantine[--pub->quarantine_count];
    }
}

/* Start of the term that would reuse the partition of the oldest quarantined claim. */
static int64_t quarantine_limit(const ps_publication_t *pub)
{
    int64_t limit = INT64_MAX;
    for (int32_t i = 0; i < pub->quarantine_count; i++) {
        const int64_t reuse = ((pub->quarantine[i].from >> pub->log.shift) + PS_PARTITIONS)
                              << pub->log.shift;
        limit = reuse < limit ? reuse : limit;
    }
    return limit;
}

/* ---- the limit ------------------------------------------------------------------------------- */

static void store_limit(ps_publication_t *pub, int64_t limit)
{
    pub->limit_raised = pub->limit_raised || limit > pub->publisher_limit;
    pub->publisher_limit = limit;
    /* release: cleaning happened before */
    atomic_store_explicit(ps_publication_limit_cell(pub), limit, memory_order_release);
}

/* Wakes clients that wait for room. While the sender has more data to send at once, it waits until
 * there is more room, because a wake-up costs more than a turn. */
static void wake_for_room(ps_publication_t *pub, bool more)
{
    const int64_t room = pub->publisher_limit - pub->producer_position;
    if (!pub->limit_raised || (more && room < pub->window_bytes / WAKE_PARTS)) {
        return;
    }
    pub->limit_raised = false;
    /* Pairs with a client that sets want_room, then checks the limit once more. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed) != 0) {
        atomic_store_explicit(&pub->slot->want_room, 0, memory_order_seq_cst);
        ps_publication_wake_clients(pub);
    }
}

/* Storage ends at a term's end: a message started below it never leaves its term. */
static int64_t storage_limit(const ps_publication_t *pub)
{
    if (pub->reserved_position == INT64_MAX) {
        return INT64_MAX;
    }
    return pub->reserved_position & ~(int64_t)pub->log.term_mask;
}

static void request_storage(ps_publication_t *pub, int64_t want, int64_t storage, int64_t now_ns)
{
    const bool short_of = storage != INT64_MAX && want > storage - ps_publication_term(pub) / 2;
    if (!short_of || pub->rests_at == pub->producer_position ||
        (pub->term_needed_for == pub->reserved_position + 1 &&
         now_ns - pub->term_needed_ns < TERM_EVENT_INTERVAL_NS)) {
        return;
    }
    pub->term_needed_for = pub->reserved_position + 1; /* 0 is "never" */
    pub->term_needed_ns = now_ns;
    pub->pending |= PS_PEND_TERM;
}

/* Drops are stated before a message is admitted. If a tenth of a second of the rate is no more than
 * the statement, the limit has room for both. Otherwise the statement waits for room. */
static int64_t rated_limit(ps_publication_t *pub, int64_t want, int64_t now_ns)
{
    const int64_t admitted = ps_publication_admit(pub, want, now_ns);
    const bool small = pub->params.rate_bytes_per_s / 10 <= PS_FRAME_ALIGNMENT;
    const bool states =
        small && pub->drops && admitted > pub->producer_position && ps_publication_owes_gap(pub);
    const int64_t most = admitted + (states ? PS_FRAME_ALIGNMENT : 0);
    return most < want ? most : want;
}

static bool raise_limit(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t consumer = last_consumer(pub);
    ps_publication_note_depth(pub, pub->producer_position - consumer);
    const bool paused = pub->params.policy != PS_POLICY_NONE && ps_publication_stays_paused(pub);
    int64_t want = consumer + pub->window_bytes;
    if (pub->nak) {
        want = consumer + ps_publication_rate_window(pub, pub->window_bytes);
        want = ps_publication_rate_limit(pub, want, now_ns);
    }
    if (ps_publication_is_rated(pub)) {
        want = rated_limit(pub, want, now_ns);
    }
    if (want < pub->publisher_limit && pub->endpoint == NULL && pub->rate_cause != PS_CAUSE_NONE) {
        store_limit(pub, want); /* IPC: the rate was cut */
        return false;
    }
    const int64_t storage = storage_limit(pub);
    const int64_t quarantine = quarantine_limit(pub);
    pub->quarantine_clamped = want > quarantine;
    want = want > quarantine ? quarantine : want;
    request_storage(pub, want, storage, now_ns);
    pub->storage_clamped = want > storage;
    want = want > storage ? storage : want;
    pub->cleaning_behind = false;
    if (want <= pub->publisher_limit || paused) {
        return false;
    }
    const bool cleaned = clean(pub, consumer - ps_publication_term(pub));
    const int64_t zeroed = clean_limit(pub);
    pub->cleaning_behind = !cleaned && want > zeroed; /* cleaned: the consumers hold it */
    want = want > zeroed ? zeroed : want;
    if (want > pub->publisher_limit) {
        store_limit(pub, want);
    }
    return !cleaned;
}

/* Leaves publishers no room. On IPC the limit then states where the next reader begins, and a new
 * daemon takes the position from there: a rate may have left a limit within a message. The readers
 * are never ahead of the producers, so a raised limit makes no room. */
static void pull_back(ps_publication_t *pub)
{
    const int64_t consumer = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    if (pub->publisher_limit > consumer) {
        store_limit(pub, consumer);
    } else if (pub->endpoint == NULL && pub->publisher_limit < consumer) {
        pub->publisher_limit = consumer; /* no wake-up: publishers cannot write */
        atomic_store_explicit(ps_publication_limit_cell(pub), consumer, memory_order_release);
    }
}

/* Stores the position at which a local reader must wake a parked sender. */
static void set_wake_position(ps_publication_t *pub)
{
    int64_t wake = INT64_MAX;
    if (pub->gating_count > 0 && pub->slowest_position < pub->producer_position) {
        const bool waited_for =
            pub->producer_position >= pub->publisher_limit || pub->credits.binds ||
            pub->message_depth.binds ||
            atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed) != 0;
        if (pub->state != PS_PUBLICATION_ACTIVE) {
            wake = pub->producer_position;
        } else if (waited_for) {
            wake = pub->slowest_position + PS_FRAME_ALIGNMENT;
        } else {
            wake = pub->slowest_position + pub->window_bytes / WAKE_PARTS;
        }
    }
    /* seq_cst: before the sender announces that it sleeps; pairs with the reader's release */
    if (atomic_load_explicit(&pub->slot->wake_position, memory_order_relaxed) != wake) {
        atomic_store_explicit(&pub->slot->wake_position, wake, memory_order_seq_cst);
    }
}

static bool follow_spies(ps_publication_t *pub)
{
    if (!ps_publication_follows_spies(pub) || pub->gating_count == 0 ||
        pub->fastest_position <= pub->sender_position) {
        return false;
    }
    const int64_t before = pub->sender_position;
    const bool there = ps_publication_skip_to(pub, pub->fastest_position);
    if (pub->sender_limit < pub->sender_position) {
        pub->sender_limit = pub->sender_position;
        atomic_store_explicit(pub->sender_limit_cell, pub->sender_limit, memory_order_release);
    }
    return !there && pub->sender_position > before;
}

/* Returns true if no cause holds the publishers, and the account states none.  In line: so it is in
 * nearly each turn. */
static inline bool is_at_ease(const ps_publication_t *pub)
{
    return pub->producer_position < pub->publisher_limit &&
           atomic_load_explicit(&pub->slot->cause, memory_order_relaxed) == PS_CAUSE_NONE &&
           pub->pressure.state == PS_WATERMARK_NORMAL && !ps_publication_admits_no_message(pub);
}

/* True: there is more to do at once.  In line: each turn of a stream comes through here. */
__attribute__((always_inline)) static inline bool move_limit(ps_publication_t *pub, int64_t now_ns)
{
    if (!pub->connected) { /* also while fewer receivers are there than the group requires */
        pull_back(pub);
        return false;
    }
    const bool more = raise_limit(pub, now_ns);
    return (pub->drops && ps_publication_state_drops(pub)) || more;
}

/* States the last drops in the log when the publishers have closed.  Without a remaining reader the
 * drops are not stated. */
__attribute__((noinline)) static bool state_last_drops(ps_publication_t *pub, int64_t now_ns)
{
    if (pub->state != PS_PUBLICATION_DRAINING || pub->end_position != INT64_MAX) {
        return false;
    }
    const bool more = pub->connected && !pub->corrupt && move_limit(pub, now_ns);
    if (!pub->connected || pub->corrupt || !ps_publication_owes_gap(pub)) {
        ps_publication_close_end(pub);
    }
    return more;
}

bool ps_publication_update(ps_publication_t *pub, bool sending, int64_t now_ns)
{
    bool more = false;
    const int64_t producer = ps_log_producer_position(&pub->log);
    if (producer > pub->producer_position) {
        pub->producer_position = producer;
        atomic_store_explicit(pub->position_cell, producer, memory_order_release);
    }
    if (ps_publication_read_subscribers(pub) && pub->endpoint == NULL) {
        atomic_store_explicit(&pub->slot->last_consumed_ns, now_ns, memory_order_relaxed);
    }
    if (pub->endpoint != NULL) {
        more = follow_spies(pub) || (pub->isolated > 0 && pub->counting_behind);
    } else {
        if (pub->isolated > 0) {
            more = pub->counting_behind;
            ps_publication_add_index(pub, pub->committed_position, pub->committed_ordinal, now_ns);
        } else {
            ps_publication_add_index(pub, producer, PS_ORDINAL_UNKNOWN, now_ns);
        }
        atomic_store_explicit(&pub->status_consumer,
                              pub->gating_count > 0 ? pub->slowest_position
                                                    : pub->consumer_position,
                              memory_order_release);
    }
    const bool uncounted =
        ps_publication_has_credits(pub) && ps_publication_credit_step(pub, now_ns);
    ps_publication_update_connected(pub, now_ns);
    if (pub->quarantine_count > 0) {
        ps_publication_release_quarantine(pub);
    }
    if (pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked) {
        more = move_limit(pub, now_ns) || more;
        ps_publication_note_blocked(pub, now_ns);
    } else {
        if (pub->drops) {
            more = state_last_drops(pub, now_ns) || more;
        }
        ps_publication_check_drained(pub);
    }
    wake_for_room(pub, sending || more);
    if (!is_at_ease(pub)) {
        ps_publication_account(pub, now_ns);
    }
    set_wake_position(pub);
    if (pub->pending != 0) {
        ps_publication_flush_events(pub, now_ns);
    }
    return more || uncounted;
}
