/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_full.c: streams whose socket is full. If a socket refuses a datagram, its kernel buffer
 * has no room, and a further send call of any stream would be refused too. All waiting streams of
 * the socket leave the bands at once, and the bands keep their shares of the round. After
 * RETRY_NS all of them wait again, in the same order: the room that the kernel has made goes to the
 * stream whose turn it is, and not to the one whose timer expires first. */
#include <stddef.h>

#include "ps_assert.h"
#include "ps_sender.h"

#define RETRY_NS INT64_C(100000)

ps_publication_t *ps_sender_publication_of(ps_band_entry_t *entry)
{
    const size_t offset = entry->list == PS_BAND_REPAIR ? offsetof(ps_publication_t, resend)
                                                        : offsetof(ps_publication_t, turn);
    return (ps_publication_t *)(void *)((uint8_t *)entry - offset);
}

static void append(ps_send_endpoint_t *endpoint, ps_band_entry_t *entry)
{
    const bool repair = entry->list == PS_BAND_REPAIR;
    PS_ASSERT(!entry->queued && !entry->held);
    entry->held = true;
    entry->next = NULL;
    entry->prev = endpoint->held_tail;
    if (endpoint->held_tail != NULL) {
        endpoint->held_tail->next = entry;
    } else {
        endpoint->held_head = entry;
    }
    endpoint->held_tail = entry;
    if (!repair) {
        ps_sender_publication_of(entry)->short_send = true;
        endpoint->sender->bands.held++;
    }
}

void ps_sender_release_held(ps_send_endpoint_t *endpoint, ps_band_entry_t *entry)
{
    entry->held = false;
    endpoint->sender->bands.held -= entry->list != PS_BAND_REPAIR;
    PS_ASSERT(endpoint->sender->bands.held >= 0);
}

/* Moves an entry of the bands to the list of its endpoint, if it is this endpoint. */
static void move(ps_sender_t *sender, ps_send_endpoint_t *endpoint, ps_band_entry_t *entry)
{
    if (ps_sender_publication_of(entry)->endpoint == endpoint) {
        ps_bands_remove(&sender->bands, entry);
        append(endpoint, entry);
    }
}

static void move_all(ps_sender_t *sender, ps_send_endpoint_t *endpoint)
{
    if (sender->bands.only != NULL) {
        move(sender, endpoint, sender->bands.only);
        return;
    }
    for (int32_t list = 0; list < PS_BAND_LISTS; list++) {
        for (ps_band_entry_t *entry = sender->bands.lists[list].head, *next; entry != NULL;
             entry = next) {
            next = entry->next;
            move(sender, endpoint, entry);
        }
    }
}

void ps_sender_socket_is_full(ps_sender_t *sender, ps_send_endpoint_t *endpoint,
                              ps_band_entry_t *entry, bool sent)
{
    PS_ASSERT(!entry->queued && ps_sender_publication_of(entry)->endpoint == endpoint);
    sender->full_count += !endpoint->full;
    endpoint->full = true;
    endpoint->full_until_ns = sender->now_ns + RETRY_NS;
    ps_sender_due(sender, endpoint->full_until_ns);
    sender->urgent = true;
    ps_send_endpoint_refused(endpoint, sender->now_ns);
    if (!sent) { /* it stays the first of its band */
        append(endpoint, entry);
    }
    move_all(sender, endpoint);
    if (sent) {
        append(endpoint, entry);
    }
}

bool ps_sender_is_held(ps_publication_t *pub, ps_band_entry_t *entry)
{
    if (pub->endpoint == NULL || !pub->endpoint->full) {
        return false;
    }
    if (!entry->held) {
        entry->list = entry == &pub->resend ? PS_BAND_REPAIR : pub->band;
        append(pub->endpoint, entry);
    }
    return true;
}

void ps_sender_leave_held(ps_send_endpoint_t *endpoint, ps_band_entry_t *entry)
{
    if (!entry->held) {
        return;
    }
    if (entry->prev != NULL) {
        entry->prev->next = entry->next;
    } else {
        endpoint->held_head = entry->next;
    }
    if (entry->next != NULL) {
        entry->next->prev = entry->prev;
    } else {
        endpoint->held_tail = entry->prev;
    }
    ps_sender_release_held(endpoint, entry);
}
