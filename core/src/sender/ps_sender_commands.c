/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_commands.c: executes the conductor's commands: adds, changes and removes endpoints and
 * publications. */
#include "ps_policy.h"
#include "ps_publication_credit.h"
#include "ps_sender.h"
#include "ps_assert.h"

#include "ps_barrier.h"

static void watch_sockets(const ps_sender_t *sender, const ps_send_endpoint_t *endpoint, bool on)
{
    const int fds[2] = {
        endpoint->control == NULL ? endpoint->ops->fd(endpoint->data) : -1,
        endpoint->control != NULL ? endpoint->ops->fd(endpoint->control) : -1,
    };
    for (int32_t i = 0; i < 2; i++) {
        if (on) {
            ps_agent_watch(sender->agent, fds[i]);
        } else {
            ps_agent_unwatch(sender->agent, fds[i]);
        }
    }
}

static void add_endpoint(ps_sender_t *sender, ps_send_endpoint_t *endpoint)
{
    endpoint->next = sender->endpoints;
    sender->endpoints = endpoint;
    sender->endpoint_count++;
    watch_sockets(sender, endpoint, true);
}

static void remove_endpoint(ps_sender_t *sender, ps_send_endpoint_t *endpoint)
{
    ps_send_endpoint_t **link = &sender->endpoints;
    while (*link != NULL && *link != endpoint) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return;
    }
    PS_ASSERT(sender->endpoint_count > 0 && endpoint->held_head == NULL);
    *link = endpoint->next;
    sender->endpoint_count--;
    sender->full_count -= endpoint->full;
    endpoint->full = false;
    if (sender->poll_cursor == endpoint) {
        sender->poll_cursor = endpoint->next;
    }
    watch_sockets(sender, endpoint, false);
    endpoint->next = sender->released_endpoints;
    sender->released_endpoints = endpoint;
}

static void add_publication(ps_sender_t *sender, ps_publication_t *pub)
{
    PS_ASSERT(sender->by_slot[pub->params.slot] == NULL); /* no slot is given twice */
    PS_ASSERT(sender->publication_count < sender->capacity);
    PS_ASSERT(!pub->removed && !pub->turn.queued && !pub->in_watch && !pub->hot);
    pub->index = sender->publication_count;
    pub->due_ns = &sender->due_ns[pub->index];
    sender->publications[sender->publication_count++] = pub;
    sender->largest_datagram =
        pub->log.mtu > sender->largest_datagram ? pub->log.mtu : sender->largest_datagram;
    sender->by_slot[pub->params.slot] = pub;
    /* Clear a dead daemon's flag: if its sender had cleared only the bit, no publisher would set it
     * again. A publisher that has just read HOT notified no sender; after the barrier the first
     * check of the log sees its frame. */
    atomic_store_explicit(&pub->slot->dirty, PS_DIRTY_NOT, memory_order_seq_cst);
    if (pub->params.adopted && sender->barriers) {
        ps_barrier_run();
    }
    /* The dead daemon may have raised the limit without waking publishers that waited for room. */
    pub->limit_raised = pub->params.adopted != 0;
    if (pub->endpoint != NULL) {
        ps_publication_t **head = ps_sender_bucket(sender, pub);
        pub->next_bucket = *head;
        *head = pub;
    }
    *pub->due_ns = sender->now_ns;
    ps_publication_due(pub, sender->now_ns);
    sender->urgent = true;
    ps_sender_ready(sender, pub);
}

static void remove_publication(ps_sender_t *sender, ps_publication_t *pub)
{
    if (pub->removed) {
        return;
    }
    ps_sender_leave_ready(sender, pub);
    ps_sender_leave_watch(sender, pub);
    ps_sender_leave_hot(sender, pub);
    if (pub->endpoint != NULL) {
        ps_publication_t **link = ps_sender_bucket(sender, pub);
        while (*link != pub) {
            PS_ASSERT(*link != NULL);
            link = &(*link)->next_bucket;
        }
        *link = pub->next_bucket;
    }
    PS_ASSERT(sender->by_slot[pub->params.slot] == pub);
    PS_ASSERT(sender->publication_count > 0 && sender->publications[pub->index] == pub);
    sender->by_slot[pub->params.slot] = NULL;
    ps_publication_t *last = sender->publications[--sender->publication_count];
    sender->publications[pub->index] = last;
    last->index = pub->index;
    sender->due_ns[pub->index] = *last->due_ns;
    last->due_ns = &sender->due_ns[pub->index];
    ps_publication_due(last, *last->due_ns);
    pub->due_ns = &pub->no_due_ns;
    sender->paused_count -= pub->pressure.state == PS_WATERMARK_PAUSED;
    pub->removed = true;
    pub->next_released = sender->released_publications;
    sender->released_publications = pub;
}

static void add_client(ps_publication_t *pub, int32_t client_slot)
{
    if (pub->client_count < PS_PUBLICATION_CLIENTS) {
        pub->clients[pub->client_count++] = client_slot;
    }
}

static void remove_client(ps_publication_t *pub, int32_t client_slot)
{
    for (int32_t i = 0; i < pub->client_count; i++) {
        if (pub->clients[i] == client_slot) {
            pub->clients[i] = pub->clients[--pub->client_count];
            ps_publication_credit_client_gone(pub);
            return;
        }
    }
}

static void on_publication_command(ps_sender_t *sender, ps_publication_t *pub,
                                   const ps_command_t *command)
{
    const int64_t now_ns = sender->now_ns;
    PS_ASSERT(pub != NULL && pub->sender == sender);
    switch (command->type) {
    case PS_SC_ADD_PUBLICATION: add_publication(sender, pub); return;
    case PS_SC_REMOVE_PUBLICATION: remove_publication(sender, pub); return;
    case PS_SC_ADD_SUBSCRIBER:
        (void)ps_publication_add_reader(pub, &command->subscriber, now_ns);
        ps_sender_watch(sender, pub);
        break;
    case PS_SC_REMOVE_SUBSCRIBER:
        ps_publication_remove_reader(pub, command->position_counter_id);
        break;
    case PS_SC_ADD_CLIENT: add_client(pub, command->client_slot); break;
    case PS_SC_REMOVE_CLIENT: remove_client(pub, command->client_slot); break;
    case PS_SC_DRAIN: ps_publication_start_drain(pub, now_ns); break;
    case PS_SC_REVOKE: ps_publication_start_revoke(pub, now_ns); break;
    case PS_SC_UNBLOCK: ps_publication_unblock_client(pub, command->client_slot, now_ns); break;
    case PS_SC_RESERVED: pub->reserved_position = command->reserved_position; break;
    case PS_SC_RELEASE_TERMS: ps_publication_on_release_terms(pub, command->least_terms); break;
    case PS_SC_SET_LIMIT:
        ps_publication_set_custom_limit(pub, command->limit.position, command->limit.until_ns,
                                        now_ns);
        break;
    case PS_SC_SET_CREDITS: ps_publication_credit_change(pub, &command->credits); break;
    default: break;
    }
    ps_publication_due(pub, now_ns);
    ps_sender_ready(sender, pub);
}

void ps_sender_set_now(ps_sender_t *sender, int64_t now_ns)
{
    sender->now_ns = now_ns > sender->now_ns ? now_ns : sender->now_ns;
}

void ps_sender_on_command(ps_sender_t *sender, const ps_command_t *command)
{
    if (command->type >= PS_SC_ADD_PUBLICATION) {
        on_publication_command(sender, command->publication, command);
        return;
    }
    ps_send_endpoint_t *endpoint = command->send_endpoint;
    PS_ASSERT(endpoint != NULL && endpoint->sender == sender);
    if (command->type == PS_SC_ADD_ENDPOINT) {
        add_endpoint(sender, endpoint);
    }
    ps_send_endpoint_on_command(endpoint, command, sender->now_ns);
    if (command->type == PS_SC_REMOVE_ENDPOINT) {
        remove_endpoint(sender, endpoint);
    }
}
