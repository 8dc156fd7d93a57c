/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_subscribers.c: readers of the publication's own log on this host (IPC subscribers,
 * spies) and the clients that publish into it.
 */
#include "ps_sender.h"
#include "ps_assert.h"

enum { JOIN_TRIES = 8, WALK_FRAMES = 4096 };

void ps_publication_wake_subscribers(ps_publication_t *pub)
{
    if (pub->subscriber_count == 0) {
        return;
    }
    /* Pairs with a reader that announces it sleeps, then checks the log once more. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        if (pub->subscribers[i].client_slot >= 0) {
            ps_wake_client_fenced(pub->context->params.shared, pub->subscribers[i].client_slot);
        }
    }
}

bool ps_publication_is_forgotten(const ps_publication_t *pub)
{
    const _Atomic uint64_t *bits = &pub->context->params.shared->dirty[pub->params.slot / 64];
    return !pub->hot &&
           atomic_load_explicit(&pub->slot->dirty, memory_order_seq_cst) != PS_DIRTY_NOT &&
           (atomic_load_explicit(bits, memory_order_seq_cst) >> (pub->params.slot % 64) & 1) == 0;
}

void ps_publication_check_again(ps_publication_t *pub)
{
    /* Cleared before the log is checked, as always. */
    if (!pub->hot) {
        atomic_store_explicit(&pub->slot->dirty, PS_DIRTY_NOT, memory_order_seq_cst);
        atomic_thread_fence(memory_order_seq_cst); /* dirty before the log */
    }
    ps_sender_ready(ps_publication_sender(pub), pub);
    ps_publication_wake_subscribers(pub);
}

void ps_publication_wake_clients(ps_publication_t *pub)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t i = 0; i < pub->client_count; i++) {
        ps_wake_client_fenced(pub->context->params.shared, pub->clients[i]);
    }
}

/* Returns the end of the data that readers can read at least; an open claim lies above it. */
static int64_t available_of(const ps_publication_t *pub)
{
    return pub->endpoint != NULL ? pub->sender_position : pub->committed_position;
}

/* Returns the end of the data whose messages are counted; the count stops at an open claim. Without
 * receivers the sender follows the spies (ssc): if all spies stop, its position stops too, but the
 * messages behind it already hold the publishers. */
static int64_t counted_to(const ps_publication_t *pub)
{
    return pub->endpoint != NULL && ps_publication_follows_spies(pub) ? pub->producer_position
                                                                      : available_of(pub);
}

/* Returns true if the stream does not wait for an isolated reader. When the publication has ended
 * nothing is written any more, and each reader reads the rest. */
static bool is_lagged(ps_publication_t *pub, ps_publication_subscriber_t *reader)
{
    if (ps_isolation_count(&reader->isolation, &pub->log, counted_to(pub))) {
        pub->counting_behind = true;
    }
    if (ps_isolation_step(&reader->isolation, reader->position, pub->producer_position) &&
        !reader->isolation.lagged) { /* a leader is not watched */
        ps_sender_watch(ps_publication_sender(pub), pub);
    }
    return reader->isolation.lagged && pub->state == PS_PUBLICATION_ACTIVE;
}

/* Counts committed messages on IPC, where no other thread looks at the frames: the gaps of isolated
 * readers state such numbers. The memory of an open claim must not be used again, so the sender
 * stops there. Bound: WALK_FRAMES. */
static void count_committed(ps_publication_t *pub)
{
    int64_t position = pub->committed_position;
    int32_t frames = 0;
    while (frames < WALK_FRAMES && position < pub->producer_position) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, position);
        const int32_t span = ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame),
                                                         (int32_t)(position & pub->log.term_mask));
        if (span < 0) {
            break;
        }
        pub->committed_ordinal += ps_frame_messages(frame);
        position += span;
        frames++;
    }
    pub->committed_position = position;
    pub->counting_behind = frames == WALK_FRAMES && position < pub->producer_position;
}

/* Returns the ordinal of a position that a reader joined at, as ps_ordinal_stated; 0: unknown. The
 * sender may have sent or counted messages behind it. If other frames are there by now, zeroed
 * memory lies before the sender's position and ends the walk. Bound: WALK_FRAMES. */
static int64_t ordinal_of_joined(const ps_publication_t *pub, int64_t position)
{
    const bool sends = pub->endpoint != NULL;
    const int64_t counted = sends ? pub->sender_position : pub->committed_position;
    int64_t ordinal = sends ? pub->sent_ordinal : pub->committed_ordinal;
    for (int32_t i = 0; i < WALK_FRAMES && position < counted; i++) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, position);
        const int32_t span = ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame),
                                                         (int32_t)(position & pub->log.term_mask));
        if (span < 0) {
            return 0;
        }
        ordinal -= ps_frame_messages(frame);
        position += span;
    }
    const bool known = position == counted && (sends ? ordinal >= 0 : ordinal > PS_ORDINAL_BASE);
    return known ? ps_ordinal_stated(ordinal) : 0;
}

/* Returns the position as which lagged readers count. */
static int64_t leader_of(const ps_publication_t *pub)
{
    return pub->endpoint != NULL ? pub->producer_position : pub->committed_position;
}

/* Readers that may be outrun learn which memory may be written over: until positions are read again
 * nothing is cleaned above one term below the slowest reader. */
static void mark_isolated(ps_publication_t *pub, int64_t slowest)
{
    const int64_t released = slowest - ps_publication_term(pub);
    const int64_t mark = released > pub->clean_position ? released : pub->clean_position;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        if (pub->subscribers[i].isolation.slot != NULL) {
            ps_isolation_mark(&pub->subscribers[i].isolation, mark, available_of(pub),
                              ps_publication_sender(pub)->now_ns);
            ps_publication_due(pub, ps_isolation_next_ns(&pub->subscribers[i].isolation,
                                                         pub->subscribers[i].position,
                                                         available_of(pub)));
            ps_publication_report_reader(pub, &pub->subscribers[i],
                                         leader_of(pub) - pub->subscribers[i].position);
        }
    }
    ps_isolation_publish();
}

/* Computes the positions again without the readers that are lagged. */
__attribute__((noinline)) static void leave_out_lagged(ps_publication_t *pub)
{
    int64_t slowest = INT64_MAX, fastest = INT64_MIN;
    pub->counting_behind = false;
    if (pub->endpoint == NULL) {
        count_committed(pub);
    }
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        if (!ps_tether_gates(&subscriber->tether) ||
            (subscriber->isolation.slot != NULL && is_lagged(pub, subscriber))) {
            continue;
        }
        if (subscriber->position < slowest) {
            slowest = subscriber->position;
            pub->slowest_client_slot = subscriber->client_slot;
        }
        fastest = subscriber->position > fastest ? subscriber->position : fastest;
    }
    if (pub->gating_count == 0) {
        return;
    }
    const int64_t leader = leader_of(pub);
    fastest = slowest == INT64_MAX ? leader : fastest;
    slowest = slowest < leader ? slowest : leader; /* what is not counted yet is not released */
    pub->slowest_position = slowest;
    pub->fastest_position = fastest;
    if (fastest > pub->consumer_position) {
        pub->consumer_position = fastest;
    }
    mark_isolated(pub, slowest);
}

bool ps_publication_read_subscribers(ps_publication_t *pub)
{
    bool moved = false;
    int64_t slowest = INT64_MAX, fastest = INT64_MIN;
    pub->gating_count = 0;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        /* acquire: what the reader released may be overwritten after this */
        int64_t position = atomic_load_explicit(subscriber->cell, memory_order_acquire);
        /* A client wrote the position: accepted only forward, at frame boundaries, and up to the
         * published data. */
        position = position > pub->producer_position ? pub->producer_position : position;
        if (position > subscriber->position && (position & (PS_FRAME_ALIGNMENT - 1)) == 0) {
            subscriber->position = position;
            moved = true;
        }
        if (!ps_tether_gates(&subscriber->tether)) {
            continue;
        }
        pub->gating_count++;
        if (subscriber->position < slowest) {
            slowest = subscriber->position;
            pub->slowest_client_slot = subscriber->client_slot;
        }
        fastest = subscriber->position > fastest ? subscriber->position : fastest;
    }
    if (pub->gating_count > 0) {
        PS_ASSERT(slowest <= fastest);
        pub->slowest_position = slowest;
        pub->fastest_position = fastest;
        if (fastest > pub->consumer_position) {
            pub->consumer_position = fastest;
        }
    }
    if (__builtin_expect(pub->isolated != 0, 0)) {
        leave_out_lagged(pub);
    }
    return moved;
}

int64_t ps_publication_step_tethers(ps_publication_t *pub, int64_t now_ns)
{
    const ps_tether_timeouts_t timeouts = {
        .window_limit_ns = pub->params.untethered_window_limit_timeout_ns,
        .linger_ns = pub->params.untethered_linger_timeout_ns,
        .resting_ns = pub->params.untethered_resting_timeout_ns,
    };
    const int64_t leader = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        if (!ps_tether_step(&subscriber->tether, subscriber->position, leader, pub->window_bytes,
                            &timeouts, now_ns)) {
            continue;
        }
        if (subscriber->tether.state == PS_TETHER_ACTIVE) { /* it joins again at the others'
                                                             * position */
            subscriber->position = leader;
            atomic_store_explicit(subscriber->cell, leader, memory_order_release);
        }
        subscriber->tether_pending = true;
        pub->pending |= PS_PEND_TETHER;
    }
    return ps_tether_check_ns(&timeouts);
}

/* Returns the position of a reader that has just joined.  Its client may have read since it joined,
 * beyond the sender's last look, so the position is valid up to the published data.  An impossible
 * position, or one whose data was released, is replaced by the leader's.  The exchange fails if the
 * client moves the position at that moment: a plain store would undo the client's step, which the
 * client repeats only when it has read more.  An isolated reader of an adopted publication may have
 * been outrun: it keeps its position, because its client skips from there, and stores positions
 * that are below the leader's. */
static int64_t position_of_joined(const ps_publication_t *pub, _Atomic int64_t *cell, bool isolated)
{
    const int64_t least = isolated ? pub->params.start_position : pub->clean_position;
    const int64_t leader = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    int64_t position = atomic_load_explicit(cell, memory_order_acquire);
    for (int32_t i = 0; i < JOIN_TRIES; i++) {
        const int64_t published = ps_log_producer_position(&pub->log);
        if (position >= least && position <= published &&
            (position & (PS_FRAME_ALIGNMENT - 1)) == 0) {
            /* The next look takes what lies beyond the sender's knowledge. */
            return position < pub->producer_position ? position : pub->producer_position;
        }
        if (atomic_compare_exchange_strong_explicit(cell, &position, leader, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            break;
        }
    }
    return leader;
}

/* Returns the ordinal from which an IPC stream counts. A count that a dead daemon began, or one for
 * readers that have left, cannot be taken for this one. */
static int64_t first_ordinal(const ps_publication_t *pub, int64_t now_ns)
{
    const int64_t by_time = PS_ORDINAL_FIRST + (int64_t)(((uint64_t)now_ns << 3) &
                                                         (uint64_t)(-PS_ORDINAL_FIRST / 2 - 1));
    const int64_t behind_last = pub->committed_ordinal + 2 * PS_ORDINAL_APART;
    return pub->committed_ordinal < 0 && by_time < behind_last ? behind_last : by_time;
}

/* A reader that would hold the publishers at their depth in messages is left out at half of it, as
 * at half of the window. */
static void limit_messages(ps_publication_t *pub, ps_publication_subscriber_t *reader,
                           int64_t depth_messages)
{
    const int64_t available = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    const bool has = reader->position >= pub->clean_position && reader->position <= available;
    ps_isolation_limit(&reader->isolation, depth_messages, pub->params.depth_messages,
                       has ? reader->position : available);
}

bool ps_publication_add_reader(ps_publication_t *pub, const ps_subscriber_params_t *params,
                               int64_t now_ns)
{
    if (pub->subscriber_count == PS_PUBLICATION_SUBSCRIBERS) {
        return false;
    }
    ps_publication_subscriber_t *subscriber = &pub->subscribers[pub->subscriber_count++];
    *subscriber = (ps_publication_subscriber_t){ .counter_id = params->position_counter_id,
                                                 .client_slot = params->client_slot };
    if (params->client_slot >= pub->context->params.shared->n_clients) {
        subscriber->client_slot = -1;
    }
    subscriber->cell = ps_counter_cell(pub->context->params.cnc, params->position_counter_id);
    ps_tether_init(&subscriber->tether, params->tether != 0, params->rejoin != 0, now_ns);
    const bool isolated = params->isolated && params->slot >= 0 &&
                          params->slot < pub->context->params.shared->n_subscribers;
    subscriber->position = position_of_joined(pub, subscriber->cell, isolated);
    if (isolated) {
        ps_isolation_init(&subscriber->isolation,
                          &pub->context->params.shared->subscribers[params->slot],
                          params->depth_bytes, pub->window_bytes);
        limit_messages(pub, subscriber, params->depth_messages);
        if (pub->isolated++ == 0) {
            pub->committed_position = pub->consumer_position;
            pub->committed_ordinal = first_ordinal(pub, now_ns);
        }
        atomic_store_explicit(&subscriber->isolation.slot->join_ordinal,
                              subscriber->position == params->join_position
                                  ? ordinal_of_joined(pub, subscriber->position)
                                  : 0,
                              memory_order_release);
        mark_isolated(pub, pub->slowest_position);
    }
    ps_publication_credit_add(pub, subscriber, params);
    return true;
}

void ps_publication_remove_reader(ps_publication_t *pub, int32_t counter_id)
{
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        if (pub->subscribers[i].counter_id == counter_id) {
            pub->credits.readers -= pub->subscribers[i].credit.credits > 0;
            pub->credits.stale = pub->credits.on;
            pub->isolated -= pub->subscribers[i].isolation.slot != NULL;
            pub->subscribers[i] = pub->subscribers[--pub->subscriber_count];
            return;
        }
    }
}

bool ps_publication_wants_sender(const ps_publication_t *pub)
{
    const int64_t wake = atomic_load_explicit(&pub->slot->wake_position, memory_order_relaxed);
    if (wake == INT64_MAX || pub->gating_count == 0) {
        return false;
    }
    bool waited_for = false;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        if (!ps_tether_gates(&subscriber->tether) || subscriber->isolation.lagged) {
            continue;
        }
        if (atomic_load_explicit(subscriber->cell, memory_order_acquire) < wake) {
            return false;
        }
        waited_for = true;
    }
    return waited_for;
}
