/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_schedule.c: the sets of the sender: ready, watched and due publications, the hash by
 * stream, and released objects. Calls no other file of the sender. */
#include <stddef.h>

#include "ps_sender.h"
#include "ps_assert.h"
#include "ps_priority.h"

/* Computes priority and band, which stay valid for a tick. */
static __attribute__((noinline)) void refresh_priority(ps_publication_t *pub, int64_t now_ns)
{
    int32_t base = pub->params.priority;
    if (base == PS_PRIORITY_AUTO) {
        const int64_t consumed_ns =
            atomic_load_explicit(&pub->slot->last_consumed_ns, memory_order_relaxed);
        base = consumed_ns > 0 ? ps_priority_recency(now_ns - consumed_ns) : 0;
    } else if (base == PS_PRIORITY_NONE || base == PS_PRIORITY_BACKGROUND) {
        base = 0;
    }
    pub->turn.base = base;
    pub->band = pub->params.priority == PS_PRIORITY_BACKGROUND ? PS_BAND_BACKGROUND
                                                               : (int8_t)ps_priority_band(base);
    pub->priority_until_ns = now_ns + PS_PRIORITY_TICK_NS;
    atomic_store_explicit(&pub->slot->base_priority, base, memory_order_relaxed);
}

void ps_sender_ready(ps_sender_t *sender, ps_publication_t *pub)
{
    pub->resting = false;
    if (pub->turn.queued || pub->removed ||
        (sender->full_count != 0 && ps_sender_is_held(pub, &pub->turn))) {
        return;
    }
    if (sender->now_ns >= pub->priority_until_ns) {
        refresh_priority(pub, sender->now_ns);
    }
    ps_bands_add(&sender->bands, &pub->turn, pub->band, sender->now_ns);
}

void ps_sender_ready_repair(ps_sender_t *sender, ps_publication_t *pub)
{
    pub->resting = false;
    if (!pub->resend.queued && !pub->removed && pub->retransmit.pending > 0 &&
        (sender->full_count == 0 || !ps_sender_is_held(pub, &pub->resend))) {
        ps_bands_add(&sender->bands, &pub->resend, PS_BAND_REPAIR, sender->now_ns);
    }
}

void ps_sender_leave_ready(ps_sender_t *sender, ps_publication_t *pub)
{
    ps_bands_remove(&sender->bands, &pub->turn);
    ps_bands_remove(&sender->bands, &pub->resend);
    ps_sender_leave_held(pub->endpoint, &pub->turn);
    ps_sender_leave_held(pub->endpoint, &pub->resend);
}

void ps_sender_watch(ps_sender_t *sender, ps_publication_t *pub)
{
    if (pub->in_watch || pub->removed || pub->subscriber_count == 0) {
        return;
    }
    pub->in_watch = true;
    pub->prev_watch = NULL;
    pub->next_watch = sender->watch_head;
    if (sender->watch_head != NULL) {
        sender->watch_head->prev_watch = pub;
    }
    sender->watch_head = pub;
}

void ps_sender_leave_watch(ps_sender_t *sender, ps_publication_t *pub)
{
    if (!pub->in_watch) {
        return;
    }
    PS_ASSERT((pub->prev_watch == NULL) == (sender->watch_head == pub));
    pub->in_watch = false;
    if (pub->prev_watch != NULL) {
        pub->prev_watch->next_watch = pub->next_watch;
    } else {
        sender->watch_head = pub->next_watch;
    }
    if (pub->next_watch != NULL) {
        pub->next_watch->prev_watch = pub->prev_watch;
    }
}

void ps_sender_due(ps_sender_t *sender, int64_t due_ns)
{
    sender->min_due_ns = due_ns < sender->min_due_ns ? due_ns : sender->min_due_ns;
    sender->scan_min_ns = due_ns < sender->scan_min_ns ? due_ns : sender->scan_min_ns;
}

void ps_publication_due(ps_publication_t *pub, int64_t due_ns)
{
    ps_sender_t *sender = pub->sender;
    int64_t *block_ns = &sender->block_due_ns[pub->index / PS_SCAN_BLOCK];
    pub->resting = false;
    *pub->due_ns = due_ns < *pub->due_ns ? due_ns : *pub->due_ns;
    *block_ns = due_ns < *block_ns ? due_ns : *block_ns;
    ps_sender_due(sender, due_ns);
}

void ps_sender_ready_endpoint(ps_sender_t *sender, const ps_send_endpoint_t *endpoint)
{
    for (int32_t i = 0; i < sender->publication_count; i++) {
        ps_publication_t *pub = sender->publications[i];
        if (pub->endpoint == endpoint) {
            pub->setup_sent_ns = INT64_MIN / 2; /* a new receiver needs one */
            ps_publication_due(pub, sender->now_ns);
            ps_sender_ready(sender, pub);
        }
    }
    sender->urgent = true;
}

static uint32_t bucket_of(const ps_sender_t *sender, const ps_send_endpoint_t *endpoint,
                          int32_t session_id, int32_t stream_id)
{
    uint64_t hash = (uint64_t)endpoint->id * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= ((uint64_t)(uint32_t)session_id << 32) | (uint32_t)stream_id;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return (uint32_t)(hash >> 32) & sender->bucket_mask;
}

ps_publication_t **ps_sender_bucket(ps_sender_t *sender, const ps_publication_t *pub)
{
    return &sender->buckets[bucket_of(sender, pub->endpoint, pub->log.session_id,
                                      pub->log.stream_id)];
}

ps_publication_t *ps_sender_find(ps_sender_t *sender, const ps_send_endpoint_t *endpoint,
                                 int32_t session_id, int32_t stream_id)
{
    ps_publication_t *pub = sender->buckets[bucket_of(sender, endpoint, session_id, stream_id)];
    while (pub != NULL && !(pub->endpoint == endpoint && pub->log.session_id == session_id &&
                            pub->log.stream_id == stream_id)) {
        pub = pub->next_bucket;
    }
    return pub;
}

static bool emit_released(ps_sender_t *sender, int32_t kind, int64_t id)
{
    const ps_event_t event = {
        .type = PS_EV_RELEASED, .kind = kind, .id = id, .now_ns = sender->now_ns
    };
    return ps_agent_emit(sender->agent, &event);
}

/* Reports released objects when the ring has room. The flag is cleared first, because the object
 * may be freed after the event. */
void ps_sender_emit_released(ps_sender_t *sender)
{
    while (sender->released_publications != NULL) {
        ps_publication_t *pub = sender->released_publications;
        ps_publication_t *next = pub->next_released;
        PS_ASSERT(pub->removed && !pub->turn.queued && !pub->resend.queued && !pub->in_watch &&
                  !pub->hot);
        if (!emit_released(sender, PS_KIND_PUBLICATION, pub->id)) {
            return;
        }
        sender->released_publications = next;
    }
    while (sender->released_endpoints != NULL) {
        ps_send_endpoint_t *endpoint = sender->released_endpoints;
        ps_send_endpoint_t *next = endpoint->next;
        endpoint->removed = true;
        if (!emit_released(sender, PS_KIND_SEND_ENDPOINT, endpoint->id)) {
            return;
        }
        sender->released_endpoints = next;
    }
}
