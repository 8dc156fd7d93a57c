/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_credit.c: credits at the sender (docs/decisions/0240). The other half is
 * ps_publication_grants.c: limits of receivers and readers, and their combination.
 *
 * Receivers state limits in status messages, local readers in their slots. The least is the
 * stream's, whatever the strategy. Publishers take ordinals below it from the word of ps_spend.h.
 *
 *   ordinal limit = limit + base - dropped     in counts of the spent word
 *
 * base translates ordinals. It moves when the log and the word disagree: a publisher died between
 * the two, or a claim was padded over. The sender finds that out when everything in the log is sent
 * and no client marks a spend in progress.
 *
 * A limit that decreases, or a freeze, begins a new epoch: the sender stores the lower limit, then
 * changes the word, and reads in that operation what was taken. */
#include "ps_barrier.h"
#include "ps_inline.h"
#include "ps_publication_credit.h"
#include "ps_sender.h"
#include "ps_spend.h"
#include "ps_wire_credit.h"

static uint64_t word_of(const ps_publication_t *pub)
{
    return atomic_load_explicit(&pub->slot->spend, memory_order_acquire);
}

static int64_t dropped_of(const ps_publication_t *pub)
{
    return pub->endpoint == NULL ? pub->credits.counted_dropped : pub->dropped_sent;
}

static void check_later(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t due_ns = now_ns + PS_TICK_NS;
    pub->admit_due_ns = due_ns < pub->admit_due_ns ? due_ns : pub->admit_due_ns;
    ps_publication_due(pub, due_ns);
}

/* ---- base ------------------------------------------------------------------------------------ */

/* Returns true if the exclusive publisher, or this client as the holder of the lease, is just using
 * a credit of the lease. */
static bool is_spending(const ps_publication_t *pub, int32_t client)
{
    const ps_publication_slot_t *slot = pub->slot;
    return (atomic_load_explicit(&slot->lease, memory_order_acquire) & PS_LEASE_SPENDING) != 0 &&
           (pub->params.exclusive || ps_lease_holder_client(atomic_load_explicit(
                                         &slot->lease_holder, memory_order_relaxed)) == client);
}

/* Returns true if a client is just taking credits of the stream. */
static bool is_marked(const ps_publication_t *pub)
{
    const ps_client_slot_t *clients = pub->context->params.shared->clients;
    const uint32_t mark = (uint32_t)pub->params.slot + 1;
    for (int32_t i = 0; i < pub->client_count; i++) {
        const ps_client_slot_t *client = &clients[pub->clients[i]];
        if (atomic_load_explicit(&client->id, memory_order_acquire) == 0) {
            continue;
        }
        if (is_spending(pub, pub->clients[i])) {
            return true;
        }
        for (int32_t j = 0; j < PS_CLIENT_SPENDS; j++) {
            if ((uint32_t)atomic_load_explicit(&client->spends[j], memory_order_acquire) == mark) {
                return true;
            }
        }
    }
    return false;
}

/* Others know the spent word and the limit only. A dropped message has an ordinal, and spent no
 * credit, so what they subtract from the word is less by the dropped messages. */
static int64_t show_base(const ps_publication_t *pub)
{
    const int64_t base = pub->credits.base - dropped_of(pub);
    if (base != atomic_load_explicit(&pub->slot->credit_base, memory_order_relaxed)) {
        atomic_store_explicit(&pub->slot->credit_base, base, memory_order_relaxed);
    }
    return base;
}

static void set_base(ps_publication_t *pub, int64_t base)
{
    pub->credits.base = base;
    (void)show_base(pub);
}

/* Returns true if each credit that was taken is in the log and counted, or returned, or lost with
 * its publisher. The order of the loads counts: the lease, the word, the marks, the tail, the word
 * again, the lease again. A publisher without room returns its credit to the lease. While messages
 * of the last look are not counted, the publishers' lines are not loaded. */
static bool is_quiet(ps_publication_t *pub, uint64_t word, uint64_t lease)
{
    return pub->producer_position <= ps_publication_credit_counted(pub).position &&
           !is_marked(pub) &&
           ps_log_producer_position(&pub->log) == ps_publication_credit_counted(pub).position &&
           word_of(pub) == word &&
           atomic_load_explicit(&pub->slot->lease, memory_order_relaxed) == lease;
}

int64_t ps_publication_credit_taken(const ps_publication_t *pub)
{
    const int64_t leased = ps_spend_leased(pub->slot); /* before the word, as in reconcile */
    return ps_spent_near(word_of(pub), pub->credits.spent) - leased - pub->credits.base +
           dropped_of(pub);
}

/* Returns true if the client is dead. */
static bool is_dead(const ps_publication_t *pub, int32_t client)
{
    const ps_shared_t *shared = pub->context->params.shared;
    return client >= shared->n_clients ||
           atomic_load_explicit(&shared->clients[client].id, memory_order_acquire) == 0;
}

/* Ends the lease of a holder that is dead. Its credits are found when the stream is quiet. */
static void end_left(ps_publication_t *pub)
{
    ps_publication_slot_t *slot = pub->slot;
    const uint64_t holder = atomic_load_explicit(&slot->lease_holder, memory_order_acquire);
    const int32_t client = ps_lease_holder_client(holder);
    if (client >= 0 && is_dead(pub, client)) {
        (void)ps_lease_end(&slot->lease_holder, &slot->lease, holder);
    }
}

void ps_publication_credit_client_gone(ps_publication_t *pub)
{
    ps_publication_slot_t *slot = pub->slot;
    const uint64_t holder = atomic_load_explicit(&slot->lease_holder, memory_order_acquire);
    const int32_t client = ps_lease_holder_client(holder);
    bool gone = client >= 0;
    for (int32_t i = 0; i < pub->client_count; i++) {
        gone = gone && pub->clients[i] != client;
    }
    /* If it still lives and is just offering, it returns the lease when it closes. */
    if (gone && (is_dead(pub, client) || !is_spending(pub, client))) {
        (void)ps_lease_end(&slot->lease_holder, &slot->lease, holder);
    }
}

/* Fits the base to what the log holds. Returns true if a freeze has to settle and nothing is in
 * progress. */
static bool reconcile(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    /* The lease before the word, and before the marks: ps_spend.h. */
    if (!pub->params.exclusive) {
        end_left(pub);
    }
    const uint64_t lease = atomic_load_explicit(&pub->slot->lease, memory_order_acquire);
    const uint64_t word = word_of(pub);
    const int64_t sent = ps_publication_credit_counted(pub).ordinal - dropped_of(pub);
    const int64_t spent = ps_spent_near(word, credits->spent);
    if (spent < credits->spent) {
        pub->limit_raised = true; /* some have returned */
    }
    credits->spent = spent;
    credits->leased = ps_leased(lease, word);
    const int64_t used = credits->spent - credits->leased;
    const int64_t ahead = used - credits->base - sent;
    if (ahead < 0) { /* published without a credit: it began before the stream had any */
        set_base(pub, used - sent);
        return false;
    }
    const bool settles = credits->revoked && !credits->settled;
    const bool quiet = (ahead > 0 || settles) && is_quiet(pub, word, lease);
    if (ahead > 0 && quiet) {
        set_base(pub, used - sent);
    }
    return quiet;
}

/* ---- the limit of publishers ----------------------------------------------------------------- */

int64_t ps_publication_credit_ordinals(const ps_publication_t *pub)
{
    return pub->credits.on ? pub->credits.limit + pub->credits.base - dropped_of(pub)
                           : PS_CREDIT_OPEN;
}

/* While the stream has credits. A message rate and a depth in messages have limits of their own:
 * only a lower one is stored (ps_publication_admit.c, ps_publication_depth.c). */
static void store_ordinals(ps_publication_t *pub)
{
    const int64_t ordinals = pub->credits.limit + show_base(pub);
    const int64_t before = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_relaxed);
    const bool rated = pub->message_allowance.rate > 0 || pub->params.depth_messages > 0;
    if (ordinals != before && (!rated || ordinals < before)) {
        /* Release: as the publisher limit. */
        atomic_store_explicit(&pub->slot->ordinal_limit, ordinals, memory_order_release);
        if (ordinals > before) {
            pub->limit_raised = true;
        }
    }
}

/* Counts what is committed and not sent, so that publishers do not get credit for it. Dropped
 * messages have spent no credit. */
static int64_t unsent(const ps_publication_t *pub)
{
    int64_t position = pub->sender_position;
    int64_t dropped = 0;
    const int64_t messages =
        pub->endpoint == NULL
            ? 0
            : ps_credit_count(&pub->log, &position, ps_log_producer_position(&pub->log),
                              PS_CREDIT_SCAN, &dropped);
    return messages > dropped ? messages - dropped : 0;
}

/* Leases need the sender's barrier, or a sender that runs in the publisher's thread. */
static uint32_t leases(const ps_publication_t *pub)
{
    const ps_sender_t *sender = ps_publication_sender(pub);
    return sender->barriers || sender->params->threading == PS_INVOKER ? PS_METERED_LEASES : 0;
}

/* Ends the lease of an earlier epoch. If its publisher is not just spending from it, the unused
 * credits can be granted again; else reconcile finds them later. */
static void end_lease(ps_publication_t *pub, uint64_t word_before)
{
    uint64_t lease = atomic_load_explicit(&pub->slot->lease, memory_order_acquire);
    if (ps_leased(lease, word_before) == 0) {
        return;
    }
    if (ps_publication_sender(pub)->barriers) {
        ps_barrier_run();
    }
    if (!is_marked(pub)) {
        lease = atomic_load_explicit(&pub->slot->lease, memory_order_acquire);
        set_base(pub, pub->credits.base + ps_lease_rest(lease, word_before));
    }
}

static void turn_on(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    const ps_counted_t counted = ps_publication_credit_counted(pub);
    credits->on = true;
    credits->spent = ps_spent_near(word_of(pub), credits->spent);
    credits->spent_on = credits->spent;
    credits->limit = 0;
    credits->send_limit = counted.ordinal;
    set_base(pub, credits->spent - (counted.ordinal - dropped_of(pub)) - unsent(pub));
    credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub);
    atomic_store_explicit(&pub->slot->ordinal_limit, credits->spent, memory_order_relaxed);
    atomic_store_explicit(&pub->slot->credited_limit, pub->publisher_limit, memory_order_relaxed);
    /* Release: a publisher that sees the bit finds both limits. */
    atomic_fetch_or_explicit(&pub->slot->metered, PS_METERED_CREDITS | leases(pub),
                             memory_order_release);
    /* Each publisher meets the plain limit, and learns of the credits there. */
    if (pub->publisher_limit > pub->producer_position) {
        atomic_store_explicit(pub->limit_cell, pub->producer_position, memory_order_release);
    }
    pub->limit_raised = true;
}

static void turn_off(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    bool done = true;
    (void)reconcile(pub);
    if (credits->revoked || pub->params.exclusive ||
        atomic_load_explicit(&pub->slot->lease_holder, memory_order_acquire) != 0) {
        const int64_t base = credits->base;
        const uint64_t word = ps_spend_begin(&pub->slot->spend, false, &done);
        if (done) {
            end_lease(pub, word);
        }
        credits->spent_on += credits->base - base;
    }
    if (!done) {
        check_later(pub, ps_publication_sender(pub)->now_ns);
        return;
    }
    credits->on = false;
    credits->revoked = false;
    credits->binds = false;
    credits->counted.ordinal = -1;
    pub->limit_raised = true;
    pub->spent = credits->spent;
    atomic_fetch_add_explicit(&pub->slot->published_ordinal, credits->spent - credits->spent_on,
                              memory_order_relaxed);
    pub->spent_uncounted = credits->base;
    atomic_store_explicit(&pub->slot->credit_limit, PS_CREDIT_OPEN, memory_order_relaxed);
    atomic_fetch_and_explicit(&pub->slot->metered,
                              ~(uint32_t)(PS_METERED_CREDITS | PS_METERED_LEASES),
                              memory_order_release);
    atomic_store_explicit(pub->limit_cell, pub->publisher_limit, memory_order_release);
}

/* Publishers that take a credit after this read the lower limit. False: try again later. */
static bool begin_epoch(ps_publication_t *pub, int64_t limit, bool frozen, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    const int64_t before = credits->limit;
    bool done = false;
    credits->limit = limit;
    store_ordinals(pub);
    const uint64_t word = ps_spend_begin(&pub->slot->spend, frozen, &done);
    if (!done) {
        credits->limit = before; /* tried again as long as the limits differ */
        check_later(pub, now_ns);
        return false;
    }
    credits->spent = ps_spent_near(word, credits->spent);
    end_lease(pub, word);
    credits->leased = 0;
    credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub);
    credits->send_limit = credits->epoch_ordinal > limit ? credits->epoch_ordinal : limit;
    credits->revoked = frozen;
    credits->settled = false;
    pub->limit_raised = pub->limit_raised || !frozen;
    return true;
}

/* False: publishers changed the word at every try, so nothing may be answered yet. */
static bool apply(ps_publication_t *pub, int64_t limit, bool frozen, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    const bool lowers = limit < credits->limit || frozen != credits->revoked;
    if (lowers && !begin_epoch(pub, limit, frozen, now_ns)) {
        return false;
    }
    pub->limit_raised = pub->limit_raised || limit > credits->limit;
    credits->limit = limit;
    credits->send_limit = limit > credits->send_limit ? limit : credits->send_limit;
    store_ordinals(pub);
    atomic_store_explicit(&pub->slot->credit_limit, limit, memory_order_relaxed);
    /* The lease of a shared stream is not for those who wait. */
    const int64_t kept = pub->params.exclusive ? credits->leased : 0;
    credits->binds =
        credits->revoked || credits->spent - kept >= ps_publication_credit_ordinals(pub);
    return true;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void answer(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    uint8_t out[PS_CONTROL_MAX];
    credits->answer = false;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        ps_publication_receiver_t *receiver = &pub->receivers[i];
        if (!receiver->credit_answer || !ps_send_endpoint_reachable(pub->endpoint)) {
            continue;
        }
        const bool settled = credits->settled && receiver->credit_frozen;
        const ps_credit_frame_t frame = { .session_id = pub->log.session_id,
                                          .stream_id = pub->log.stream_id,
                                          .receiver_id = receiver->id,
                                          .epoch = receiver->credit_epoch,
                                          .flags = settled ? PS_CREDIT_ANSWER_SETTLED : 0,
                                          .ordinal = settled ? pub->sent_ordinal
                                                             : credits->epoch_ordinal };
        const ps_dgram_t dgram = { out, ps_wire_build_credit(out, &frame) };
        if (ps_send_endpoint_send(pub->endpoint, &dgram, 1, now_ns) != 1) {
            return; /* the receiver states its epoch again */
        }
        receiver->credit_answer = false;
    }
}

/* Everything that was taken before the freeze has arrived in the log and left, or was returned. No
 * publisher takes a credit after the freeze began, so the look at the marks comes after that. */
static void settle(ps_publication_t *pub, bool more, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    if (!credits->revoked || credits->settled) {
        return;
    }
    if (!reconcile(pub) || more) {
        check_later(pub, now_ns);
        return;
    }
    credits->settled = true;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        pub->receivers[i].credit_answer = pub->receivers[i].credit_frozen;
        credits->answer = credits->answer || pub->receivers[i].credit_frozen;
    }
}

/* Combines what the receivers state. While receivers of a dead daemon are awaited, the limit may
 * change with the time, so it stays stale. */
static PS_NOINLINE void hear_receivers(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    if (credits->awaits && !ps_publication_credit_await(pub, now_ns)) {
        credits->awaits = false;
        credits->granters_changed = true;
    }
    if (credits->granters_changed) {
        ps_publication_credit_show_granters(pub);
    }
    ps_publication_credit_combine_receivers(pub, now_ns);
    credits->stale = credits->awaits;
}

bool ps_publication_credit_step(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    if (!ps_publication_has_credits(pub)) {
        return false;
    }
    const bool more = pub->endpoint == NULL && ps_publication_credit_count_log(pub);
    if (credits->stale) {
        hear_receivers(pub, now_ns);
    }
    bool frozen = false;
    const int64_t limit = ps_publication_credit_combine(pub, &frozen);
    if (limit == PS_CREDIT_OPEN) {
        if (credits->on) {
            turn_off(pub);
        }
        return more;
    }
    if (!credits->on) {
        turn_on(pub);
    }
    (void)reconcile(pub);
    const bool applied = apply(pub, limit, frozen, now_ns);
    settle(pub, more, now_ns);
    ps_publication_credit_show(pub);
    if (credits->answer && applied) {
        answer(pub, now_ns);
    }
    return more;
}

/* ---- sending --------------------------------------------------------------------------------- */

int64_t ps_publication_credit_room(const ps_publication_t *pub)
{
    return pub->credits.on ? pub->credits.send_limit - pub->sent_ordinal : INT64_MAX;
}

int32_t ps_publication_credit_bytes(const ps_publication_t *pub, int64_t position, int32_t bytes,
                                    int64_t messages)
{
    int32_t at = 0;
    while (at < bytes && messages > 0) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, position + at);
        const int32_t length = ps_frame_length_acquire(frame);
        if (length < PS_HEADER_BYTES || frame->type == PS_TYPE_PAD) {
            break; /* padding ends a datagram, and is no message */
        }
        messages -= (frame->flags & PS_FLAG_END) != 0;
        at += ps_align32(length);
    }
    return at < bytes ? at : bytes;
}

void ps_publication_credit_init(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    const ps_publication_slot_t *slot = pub->slot;
    const uint32_t metered = atomic_load_explicit(&slot->metered, memory_order_acquire);
    credits->network = PS_CREDIT_OPEN;
    credits->counted.ordinal = -1;
    credits->culprit_slot = -1;
    if (!pub->params.adopted || (metered & PS_METERED_CREDITS) == 0) {
        atomic_store_explicit(&pub->slot->credit_limit, PS_CREDIT_OPEN, memory_order_relaxed);
        atomic_store_explicit(&pub->slot->granter_count, 0, memory_order_relaxed);
        return;
    }
    credits->on = true;
    credits->stale = true;
    credits->base =
        atomic_load_explicit(&slot->credit_base, memory_order_relaxed) + dropped_of(pub);
    credits->limit = atomic_load_explicit(&slot->credit_limit, memory_order_relaxed);
    credits->spent = ps_spent_near(word_of(pub), credits->base);
    credits->spent_on = credits->spent;
    credits->revoked = (word_of(pub) & PS_SPEND_REVOKED) != 0;
    credits->epoch_ordinal = credits->spent - credits->base + dropped_of(pub);
    credits->send_limit =
        credits->epoch_ordinal > credits->limit ? credits->epoch_ordinal : credits->limit;
    if (pub->endpoint != NULL && pub->connected) {
        ps_publication_credit_await_granters(pub);
    }
    if (pub->endpoint == NULL) {
        credits->counted.position =
            atomic_load_explicit(&slot->counted_position, memory_order_acquire);
        credits->counted.ordinal =
            ps_believed_ordinal(atomic_load_explicit(&slot->counted_ordinal, memory_order_relaxed));
    }
}
