/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_cause.c: finds the cause and the culprit when producers are at the limit
 * (docs/spec/rules.md section 6). */
#include "ps_set_up.h"

#include <string.h>

#include "ps_account.h"
#include "ps_policy.h"
#include "ps_sender.h"

/* The cause that blocks a publication, and its culprit. */
typedef struct ps_blame {
    int64_t culprit;     /* receiver or client id; 0 unknown */
    int32_t cause;       /* ps_cause */
    int32_t client_slot; /* of a client on this host; -1 */
} ps_blame_t;

static void blame_client(const ps_publication_t *pub, ps_blame_t *blame, int32_t client_slot)
{
    const ps_shared_t *shared = pub->context->params.shared;
    if (client_slot >= 0 && client_slot < shared->n_clients) {
        blame->culprit =
            atomic_load_explicit(&shared->clients[client_slot].id, memory_order_relaxed);
        blame->client_slot = client_slot;
    }
}

static void blame_claimer(const ps_publication_t *pub, ps_blame_t *blame, int64_t position)
{
    const uint64_t word =
        atomic_load_explicit(ps_frame_word(ps_frame_at(&pub->log, position)), memory_order_acquire);
    if ((int32_t)(uint32_t)word < 0 && !pub->params.exclusive) {
        blame_client(pub, blame, (int32_t)(uint32_t)(word >> 32));
    }
}

static const ps_publication_receiver_t *receiver_of(const ps_publication_t *pub, int64_t id)
{
    const int32_t index =
        pub->receiver_count > 0 ? ps_map_get(&pub->receiver_index, (uint64_t)id) : 0;
    return index != 0 ? &pub->receivers[index - 1] : NULL;
}

/* Returns the receiver whose edge is the limit. A receiver that has left cannot extend the limit;
 * then the culprit is the most advanced live receiver. Bound: the receivers. */
static int64_t limiting_receiver(const ps_publication_t *pub)
{
    int64_t furthest = INT64_MIN;
    int64_t id = 0;
    if (pub->fc.counts_receivers) { /* it follows who is there, one by one */
        return pub->fc.limiting_receiver;
    }
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        if (pub->receivers[i].id == pub->fc.limiting_receiver) {
            return pub->fc.limiting_receiver;
        }
        if (pub->receivers[i].edge > furthest) {
            furthest = pub->receivers[i].edge;
            id = pub->receivers[i].id;
        }
    }
    return id;
}

/* Returns the cause if a receiver's window is used up: the receiver's own reason, else by the
 * strategy. */
static int32_t window_cause(const ps_publication_t *pub, int64_t culprit)
{
    if (pub->fc.join_binds) {
        return PS_CAUSE_JOIN_HOLD;
    }
    const ps_publication_receiver_t *receiver = receiver_of(pub, culprit);
    const uint32_t reason = receiver != NULL ? receiver->reason : PS_CAUSE_NONE;
    if (reason == PS_CAUSE_CONGESTION_WINDOW) {
        return PS_CAUSE_CONGESTION_WINDOW;
    }
    if (pub->fc.group_binds || (pub->fc.counts_receivers && culprit == 0)) {
        return PS_CAUSE_GROUP_STRATEGY;
    }
    return reason == PS_CAUSE_LOSS_REPAIR ? PS_CAUSE_LOSS_REPAIR : PS_CAUSE_RECEIVER_WINDOW;
}

static void blame_rate(const ps_publication_t *pub, ps_blame_t *blame)
{
    blame->cause = pub->rate_cause;
    if (pub->rate_cause != PS_CAUSE_NAK_RATE) {
        return;
    }
    if (pub->endpoint != NULL) {
        blame->culprit = pub->pressure_control.culprit;
    } else {
        blame_client(pub, blame, (int32_t)pub->pressure_control.culprit - 1);
    }
}

static bool spies_stand_in(const ps_publication_t *pub)
{
    return pub->params.spies_simulate_connection && !pub->has_receivers;
}

/* Returns the receiver that states the pace; in a group the one that states the highest. */
static int64_t pacing_receiver(const ps_publication_t *pub)
{
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        if (pub->receivers[i].pacing_rate == pub->highest_pace) {
            return pub->receivers[i].id;
        }
    }
    return pub->receiver_count > 0 ? pub->receivers[0].id : 0;
}

/* The network's side: a rate of congestion control, or a window.  False: neither binds. */
static bool blame_receivers(const ps_publication_t *pub, ps_blame_t *blame)
{
    if (pub->endpoint == NULL || (!pub->paced && !pub->window_shut) || spies_stand_in(pub)) {
        return false;
    }
    if (pub->paced) {
        blame->culprit = pacing_receiver(pub);
        blame->cause = PS_CAUSE_CONGESTION_WINDOW;
    } else {
        blame->culprit = limiting_receiver(pub);
        blame->cause = window_cause(pub, blame->culprit);
    }
    return true;
}

/* The log's side: cleaning and claims.  False: none binds. */
static bool blame_log(const ps_publication_t *pub, ps_blame_t *blame)
{
    int64_t blocked_at;
    if (pub->cleaning_behind) {
        blame->cause = PS_CAUSE_TERM_ROTATION;
    } else if (pub->corrupt) { /* a client overwrote the log: the sender sends no more of it */
        blame->cause = PS_CAUSE_BLOCKED_CLAIM;
    } else if (ps_publication_is_blocked(pub, &blocked_at)) {
        blame->cause = PS_CAUSE_BLOCKED_CLAIM;
        blame_claimer(pub, blame, blocked_at);
    } else if (pub->short_send) {
        blame->cause = PS_CAUSE_SOCKET;
    } else if (pub->quarantine_clamped) {
        blame->cause = PS_CAUSE_BLOCKED_CLAIM;
        blame->culprit = pub->quarantine[0].client_id;
        blame->client_slot = pub->quarantine[0].client_slot;
    } else {
        return false;
    }
    return true;
}

/* Returns true if spies block the publishers: the slowest spy is behind the sender or, without
 * receivers, behind the published data. */
static bool spies_bind(const ps_publication_t *pub)
{
    return pub->gating_count > 0 &&
           pub->slowest_position <
               (spies_stand_in(pub) ? pub->producer_position : pub->sender_position);
}

/* Returns true if the readers consumed everything below an open claim, which holds the credit. */
static bool claim_holds_credit(const ps_publication_t *pub, int64_t *position)
{
    if (pub->credits.revoked || !ps_publication_is_blocked(pub, position)) {
        return false;
    }
    if (pub->endpoint == NULL) {
        return pub->slowest_position >= *position;
    }
    const ps_publication_receiver_t *receiver = receiver_of(pub, pub->credits.network_who);
    return pub->credits.culprit_slot < 0 && receiver != NULL && receiver->consumed >= *position;
}

/* The receiver or the client with the least limit, or that withholds; or the owner of a claim. */
static void blame_credit(const ps_publication_t *pub, ps_blame_t *blame)
{
    int64_t position;
    blame->cause = PS_CAUSE_CREDIT;
    if (!claim_holds_credit(pub, &position)) {
        blame->culprit = pub->credits.culprit;
        blame_client(pub, blame, pub->credits.culprit_slot);
    } else if (pub->params.exclusive) {
        blame_client(pub, blame, pub->client_count > 0 ? pub->clients[0] : -1);
    } else {
        blame_claimer(pub, blame, position);
    }
}

/* Returns the receiver for which a stream without enough receivers waits: one that is there and
 * that the required number leaves out, else the last one that left or refused; 0: unknown. Bound:
 * the receivers. */
static int64_t missing_receiver(const ps_publication_t *pub)
{
    for (int32_t i = 0; pub->fc.min_size > 0 && i < pub->receiver_count; i++) {
        const ps_receiver_view_t *view = &pub->receivers[i].view;
        if (ps_fc_counts(&pub->fc, view->has_group_tag != 0, view->group_tag) &&
            ps_map_get(&pub->fc.index, (uint64_t)view->receiver_id) == 0) {
            return view->receiver_id;
        }
    }
    return pub->absent_id;
}

/* Finds the cause that holds the limit at which producers are. */
__attribute__((noinline)) static void find_cause(const ps_publication_t *pub, ps_blame_t *blame)
{
    if (!pub->connected || (pub->endpoint != NULL && !ps_send_endpoint_reachable(pub->endpoint))) {
        blame->cause = PS_CAUSE_NO_RECEIVER;
        blame->culprit = pub->connected ? 0 : missing_receiver(pub);
    } else if (pub->storage_clamped && pub->producer_position >= pub->publisher_limit) {
        blame->cause = PS_CAUSE_STORAGE;
    } else if (pub->credits.binds) {
        blame_credit(pub, blame);
    } else if (pub->rate_cause != PS_CAUSE_NONE) {
        blame_rate(pub, blame);
    } else if (pub->bytes_bind || pub->messages_bind) {
        blame->cause = PS_CAUSE_RATE_LIMIT;
    } else if (blame_receivers(pub, blame) || blame_log(pub, blame)) {
        return;
    } else if (pub->withheld) {
        blame->cause = PS_CAUSE_GOVERNOR;
    } else if (pub->endpoint == NULL) {
        blame->cause = PS_CAUSE_SLOW_SUBSCRIBER;
        blame_client(pub, blame, pub->slowest_client_slot);
    } else if (spies_bind(pub)) {
        blame->cause = PS_CAUSE_SPY;
        blame_client(pub, blame, pub->slowest_client_slot);
    } else if (pub->bytes_lead_binds || pub->messages_lead_binds) {
        blame->cause = PS_CAUSE_RATE_LIMIT;
    } else { /* no other cause: accepted data waits for the stream's turn */
        blame->cause = PS_CAUSE_SCHEDULER;
    }
}

static void describe_receiver(const ps_publication_receiver_t *receiver, ps_holder_t *holder)
{
    const ps_receiver_view_t *view = &receiver->view;
    holder->address = view->address;
    holder->reason = (uint8_t)(view->reason < PS_CAUSE_COUNT ? view->reason : PS_CAUSE_NONE);
    holder->reason_client = view->reason_client;
    holder->backlog_bytes = view->backlog_bytes;
    memcpy(holder->name, view->reason_name, sizeof(holder->name));
    memcpy(holder->host, view->reason_host, sizeof(holder->host));
}

/* Once an interval. */
__attribute__((cold, noinline)) static ps_holder_t holder_of(const ps_publication_t *pub,
                                                             const ps_blame_t *blame)
{
    ps_holder_t holder = { .client_slot = blame->client_slot, .counter_id = -1 };
    const ps_publication_receiver_t *receiver =
        blame->client_slot < 0 ? receiver_of(pub, blame->culprit) : NULL;
    if (receiver != NULL) {
        describe_receiver(receiver, &holder);
    } else if (pub->fc.join != NULL && pub->fc.join->joiner == blame->culprit) {
        holder.address = pub->fc.join->joiner_address;
    } else if (blame->client_slot < 0 && pub->absent_id != 0 && pub->absent_id == blame->culprit) {
        holder.address = pub->absent_address;
    }
    for (int32_t i = 0; blame->client_slot >= 0 && i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        if (subscriber->client_slot == blame->client_slot &&
            subscriber->position == pub->slowest_position) {
            holder.counter_id = subscriber->counter_id;
        }
    }
    return holder;
}

void ps_publication_account(ps_publication_t *pub, int64_t now_ns)
{
    ps_blame_t blame = { .client_slot = -1 };
    if (pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked &&
        (pub->producer_position >= pub->publisher_limit || ps_publication_admits_no_message(pub))) {
        find_cause(pub, &blame);
    }
    if (!ps_account_binds(pub->slot, blame.cause, blame.culprit)) {
        const ps_holder_t holder = holder_of(pub, &blame);
        ps_account_bind(pub->slot, blame.cause, blame.culprit, &holder, now_ns);
    }
    const bool held = blame.cause != PS_CAUSE_NONE;
    if (held || pub->pressure.state != PS_WATERMARK_NORMAL) {
        ps_publication_step_watermark(pub, held, now_ns);
    }
}

void ps_publication_account_restated(ps_publication_t *pub,
                                     const ps_publication_receiver_t *receiver)
{
    const int32_t cause = atomic_load_explicit(&pub->slot->cause, memory_order_relaxed);
    if (cause != PS_CAUSE_NONE && ps_account_binds(pub->slot, cause, receiver->id)) {
        ps_holder_t holder = { .client_slot = -1, .counter_id = -1 };
        describe_receiver(receiver, &holder);
        ps_account_describe(pub->slot, &holder);
    }
}
