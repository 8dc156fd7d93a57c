/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_relay.c: looks through a relay of this host. */
#include <string.h>

#include "ps_relay.h"

#include "ps_account.h"

enum { TRIES = 8 };

/* Copies the present culprit of a publication. False: nothing holds the publication, or its sender
 * wrote during each try. */
static bool copy_holder(const ps_publication_slot_t *slot, ps_holder_t *holder, int64_t *culprit)
{
    uint64_t words[PS_HOLDER_WORDS];

    for (int32_t i = 0; i < TRIES; i++) {
        const uint32_t before = atomic_load_explicit(&slot->account_sequence, memory_order_acquire);
        const int32_t cause = atomic_load_explicit(&slot->cause, memory_order_relaxed);
        *culprit = atomic_load_explicit(&slot->cause_culprit, memory_order_relaxed);
        for (int32_t w = 0; w < PS_HOLDER_WORDS; w++) {
            words[w] = atomic_load_explicit(&slot->holder[w], memory_order_relaxed);
        }
        atomic_thread_fence(memory_order_acquire);
        if ((before & 1) == 0 &&
            atomic_load_explicit(&slot->account_sequence, memory_order_relaxed) == before) {
            memcpy(holder, words, sizeof *holder);
            return cause != PS_CAUSE_NONE;
        }
    }
    return false;
}

static void copy_text(char *out, const char *from)
{
    memcpy(out, from, sizeof(((ps_beyond_t *)0)->name) - 1);
    out[sizeof(((ps_beyond_t *)0)->name) - 1] = '\0';
}

bool ps_relay_beyond(const ps_shared_t *shared, int32_t subscriber_slot, ps_beyond_t *out)
{
    ps_holder_t holder;
    int64_t culprit;

    if (subscriber_slot < 0 || subscriber_slot >= shared->n_subscribers) {
        return false;
    }
    const int32_t target = atomic_load_explicit(&shared->subscribers[subscriber_slot].relayed_to,
                                                memory_order_relaxed);
    if (target < 1 || target > shared->n_publications ||
        !copy_holder(&shared->publications[target - 1], &holder, &culprit)) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (holder.reason_client != 0) { /* as the receiver states */
        out->client = holder.reason_client;
        out->backlog_bytes = holder.backlog_bytes > 0 ? holder.backlog_bytes : 0;
        copy_text(out->name, holder.name);
        copy_text(out->host, holder.host);
        return true;
    }
    if (holder.address.family != 0 || holder.client_slot < 0 ||
        holder.client_slot >= shared->n_clients || culprit == 0) {
        return false; /* the receiver names no client */
    }
    const ps_client_slot_t *client = &shared->clients[holder.client_slot];
    if (atomic_load_explicit(&client->id, memory_order_acquire) != culprit) {
        return false;
    }
    out->client = culprit;
    copy_text(out->name, client->name);
    return true;
}
