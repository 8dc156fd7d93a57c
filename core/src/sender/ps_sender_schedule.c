/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_schedule.c: the sets of the sender: publications that are ready, watched, due, found by
 * stream; objects that are released.  Calls no other file of the sender.
 */
#include <stddef.h>

#include "ps_sender.h"
#include "ps_assert.h"

void ps_sender_ready(ps_sender_t *sender, ps_publication_t *pub)
{
    if (pub->in_ready || pub->removed) {
        return;
    }
    PS_ASSERT((sender->ready_tail == NULL) == (sender->ready_count == 0));
    pub->in_ready = true;
    pub->next_ready = NULL;
    if (sender->ready_tail != NULL) {
        sender->ready_tail->next_ready = pub;
    } else {
        sender->ready_head = pub;
    }
    sender->ready_tail = pub;
    sender->ready_count++;
}

ps_publication_t *ps_sender_pop_ready(ps_sender_t *sender)
{
    ps_publication_t *pub = sender->ready_head;
    PS_ASSERT(pub != NULL && pub->in_ready && sender->ready_count > 0);
    sender->ready_head = pub->next_ready;
    if (sender->ready_head == NULL) {
        sender->ready_tail = NULL;
    }
    sender->ready_count--;
    pub->in_ready = false;
    return pub;
}

void ps_sender_leave_ready(ps_sender_t *sender, ps_publication_t *pub)
{
    const int32_t count = sender->ready_count;
    for (int32_t i = 0; i < count; i++) {
        ps_publication_t *head = ps_sender_pop_ready(sender);
        if (head != pub) {
            ps_sender_ready(sender, head);
        }
    }
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

void ps_sender_ready_endpoint(ps_sender_t *sender, const ps_send_endpoint_t *endpoint)
{
    for (int32_t i = 0; i < sender->publication_count; i++) {
        ps_publication_t *pub = sender->publications[i];
        if (pub->endpoint == endpoint) {
            pub->setup_sent_ns = INT64_MIN / 2; /* whoever is new wants one */
            *pub->due_ns = sender->now_ns;
            ps_sender_due(sender, sender->now_ns);
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

/* Objects go back to the conductor when the ring takes the event.  The flag goes first: after the
 * event the object may be gone. */
void ps_sender_emit_released(ps_sender_t *sender)
{
    while (sender->released_publications != NULL) {
        ps_publication_t *pub = sender->released_publications;
        ps_publication_t *next = pub->next_released;
        PS_ASSERT(pub->removed && !pub->in_ready && !pub->in_watch && !pub->hot);
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
