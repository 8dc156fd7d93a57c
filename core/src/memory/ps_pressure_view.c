/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_view.c: both accounts of a publication slot, copied from shared memory.  The account
 * of time held is consistent: its sequence was even and the same before and after. Each figure of
 * the refusals is exact by itself only, because many publishers add to them. */
#include "ps_set_up.h"

#include <stdbool.h>
#include <string.h>

#include "ps_account.h"
#include "ps_error.h"
#include "ps_policy.h"
#include "ps_shared.h"
#include "ps_slots.h"

enum { TRIES = 8, WHO_WORDS = 4 };

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Describes a culprit: a client of this host by its slot, if the slot is still its own; else the
 * address. */
static void describe(const ps_shared_t *shared, const ps_holder_t *who, ps_pressure_party_t *party)
{
    memcpy(party->ip, who->address.ip, sizeof(party->ip));
    party->family = who->address.family;
    party->port = who->address.port;
    party->scope_id = who->address.scope_id;
    if (who->client_slot < 0 || who->client_slot >= shared->n_clients) {
        return;
    }
    const ps_client_slot_t *slot = &shared->clients[who->client_slot];
    if (atomic_load_explicit(&slot->id, memory_order_acquire) == party->id) {
        party->pid = slot->pid;
        memcpy(party->name, slot->name, sizeof(party->name) - 1);
    }
}

static void copy_culprit(const ps_shared_t *shared, const ps_culprit_t *entry,
                         ps_pressure_party_t *party)
{
    uint64_t words[WHO_WORDS];
    ps_holder_t who = { .client_slot = -1 };
    party->id = load(&entry->id);
    party->blocked_ns = load(&entry->blocked_ns);
    party->error_ns = load(&entry->error_ns);
    if (party->id != 0) {
        for (int32_t i = 0; i < WHO_WORDS; i++) {
            words[i] = atomic_load_explicit(&entry->who[i], memory_order_relaxed);
        }
        memcpy(&who, words, sizeof(words));
        describe(shared, &who, party);
    }
}

static void copy_holder(const ps_shared_t *shared, const ps_publication_slot_t *slot,
                        ps_pressure_view_t *out)
{
    uint64_t words[PS_HOLDER_WORDS];
    ps_holder_t holder;
    for (int32_t i = 0; i < PS_HOLDER_WORDS; i++) {
        words[i] = atomic_load_explicit(&slot->holder[i], memory_order_relaxed);
    }
    memcpy(&holder, words, sizeof(holder));
    out->culprit.id = load(&slot->cause_culprit);
    describe(shared, &holder, &out->culprit);
    out->counter_id = holder.counter_id;
    out->reason = holder.reason < PS_CAUSE_COUNT ? holder.reason : PS_CAUSE_NONE;
    out->reason_client = holder.reason_client;
    out->backlog_bytes = holder.backlog_bytes > 0 ? holder.backlog_bytes : 0;
    memcpy(out->reason_name, holder.name, sizeof(out->reason_name) - 1);
    memcpy(out->reason_host, holder.host, sizeof(out->reason_host) - 1);
}

/* Returns whether the image of this stream on the same daemon states this client as its slowest. */
static bool has_local_image(const ps_shared_t *shared, const ps_publication_slot_t *slot,
                            int64_t client)
{
    for (int32_t i = 0; i < shared->n_images; i++) {
        const ps_image_slot_t *image = &shared->images[i];
        if (load(&image->id) != 0 && image->session_id == slot->session_id &&
            image->stream_id == slot->stream_id && load(&image->limiting_client) == client) {
            return true;
        }
    }
    return false;
}

/* Ids of clients are unique to a daemon. The client of a receiver belongs to this daemon if id,
 * name and stream agree. */
static int64_t local_pid(const ps_shared_t *shared, const ps_publication_slot_t *slot,
                         const ps_pressure_view_t *view)
{
    for (int32_t i = 0; view->reason_client != 0 && i < shared->n_clients; i++) {
        const ps_client_slot_t *client = &shared->clients[i];
        if (atomic_load_explicit(&client->id, memory_order_acquire) == view->reason_client) {
            const size_t length = strlen(view->reason_name);
            return strncmp(client->name, view->reason_name, length) == 0 &&
                           has_local_image(shared, slot, view->reason_client)
                       ? client->pid
                       : 0;
        }
    }
    return 0;
}

static void copy_held(const ps_shared_t *shared, const ps_publication_slot_t *slot,
                      ps_pressure_view_t *out)
{
    const int32_t cause = atomic_load_explicit(&slot->cause, memory_order_relaxed);
    out->cause = cause >= 0 && cause < PS_CAUSE_COUNT ? cause : PS_CAUSE_NONE;
    out->since_ns = load(&slot->cause_since_ns);
    const int32_t watermark = atomic_load_explicit(&slot->watermark_state, memory_order_relaxed);
    out->watermark =
        watermark >= 0 && watermark < PS_WATERMARK_COUNT ? watermark : PS_WATERMARK_NORMAL;
    out->pressed_since_ns = load(&slot->pressed_since_ns);
    out->pressed_ns = load(&slot->pressed_ns);
    out->pressed_episodes = load(&slot->episodes);
    out->drained_messages = load(&slot->drained);
    copy_holder(shared, slot, out);
    for (int32_t i = 0; i < PS_CAUSE_COUNT; i++) {
        out->blocked_ns[i] = load(&slot->blocked_ns[i]);
    }
    for (int32_t i = 0; i <= PS_CULPRITS; i++) {
        copy_culprit(shared, &slot->culprits[i], &out->culprits[i]);
    }
}

static void copy_refusals(const ps_publication_slot_t *slot, ps_pressure_view_t *out)
{
    for (int32_t i = 0; i < PS_CAUSE_COUNT; i++) {
        out->refused[i] = load(&slot->refused[i]);
    }
    out->refused_ns = load(&slot->refused_ns);
    out->refused_episodes = load(&slot->refused_episodes);
    out->rate_bytes_per_s = load(&slot->rate_bytes_per_s);
    out->published_ordinal = load(&slot->published_ordinal);
    out->sent_ordinal = load(&slot->sent_ordinal);
    out->dropped_messages =
        (int64_t)(atomic_load_explicit(&slot->policy_word, memory_order_relaxed) &
                  PS_POLICY_DROPPED);
    out->dropped_bytes = load(&slot->dropped_bytes);
    out->dropped_storage = load(&slot->dropped_storage);
    out->dropped_rate = load(&slot->dropped_rate);
    out->depth_bytes = load(&slot->depth_bytes);
    out->peak_bytes = load(&slot->peak_bytes);
    memcpy(out->strategy, slot->strategy, sizeof(out->strategy) - 1);
    out->throttled = load(&slot->throttled);
    out->deferrals = load(&slot->deferrals);
    out->waits = load(&slot->waits);
    out->waited_ns = load(&slot->waited_ns);
}

int ps_slot_read_pressure(const ps_shared_t *shared, int32_t publication_slot,
                          ps_pressure_view_t *out)
{
    if (publication_slot < 0 || publication_slot >= shared->n_publications) {
        return ps_fail(PS_E_INVALID, "publication slot %d is not in 0..%d", publication_slot,
                       shared->n_publications - 1);
    }
    const ps_publication_slot_t *slot = &shared->publications[publication_slot];
    for (int32_t i = 0; i < TRIES; i++) {
        ps_pressure_view_t view = { .counter_id = -1 };
        const uint32_t before = atomic_load_explicit(&slot->account_sequence, memory_order_acquire);
        copy_held(shared, slot, &view);
        atomic_thread_fence(memory_order_acquire);
        if ((before & 1) == 0 &&
            atomic_load_explicit(&slot->account_sequence, memory_order_relaxed) == before) {
            copy_refusals(slot, &view);
            view.reason_pid = local_pid(shared, slot, &view);
            *out = view;
            return PS_OK;
        }
    }
    out->stale = 1;
    return PS_E_AGAIN;
}

void ps_slot_read_scheduler(const ps_shared_t *shared, int64_t now_ns, ps_scheduler_view_t *out)
{
    const ps_driver_slot_t *slot = shared->driver;
    *out = (ps_scheduler_view_t){ .waits = load(&slot->waits),
                                  .waited_ns = load(&slot->waited_ns),
                                  .deferrals = load(&slot->deferrals) };
    /* Acquire: the words are not older than the time. */
    out->sampled_ns = atomic_load_explicit(&slot->pressure_ns, memory_order_acquire);
    const int64_t age_ns = now_ns - out->sampled_ns;
    if (out->sampled_ns == 0 || age_ns < 0 || age_ns >= PS_PRESSURE_STALE_NS) {
        return;
    }
    out->pressure = atomic_load_explicit(&slot->pressure_ppm, memory_order_relaxed);
    out->depth = atomic_load_explicit(&slot->depth_ppm, memory_order_relaxed);
    out->latency = atomic_load_explicit(&slot->latency_ppm, memory_order_relaxed);
    out->busy = atomic_load_explicit(&slot->busy_ppm, memory_order_relaxed);
    out->coalesce_ns = load(&slot->coalesce_ns);
    out->status_interval_ns = load(&slot->status_interval_ns);
    out->retry_after_ns = load(&slot->retry_after_ns);
    out->defers = atomic_load_explicit(&slot->defers, memory_order_relaxed);
    for (int32_t i = 0; i < PS_SCHEDULER_LISTS; i++) {
        out->ready[i] = atomic_load_explicit(&slot->ready[i], memory_order_relaxed);
    }
}
