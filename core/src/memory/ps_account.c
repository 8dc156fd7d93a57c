/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_account.c: the account of time held of a publication slot.  Culprits are kept in a
 * space-saving sketch (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
 * Elements in Data Streams, 2005): a new culprit takes the entry with the least time and keeps that
 * time as its error. The entries therefore add up to the time blocked. Each exceeds the true time
 * by at most error_ns, and no error exceeds an eighth of the sum. A culprit of more than an eighth
 * is always listed. */
#include "ps_set_up.h"

#include <stdbool.h>
#include <string.h>

#include "ps_account.h"
#include "ps_policy.h"

enum { WHO_WORDS = 4 };

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static void store(_Atomic int64_t *cell, int64_t value)
{
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

/* One writer, readers check the sequence: no read-modify-write is needed. */
static void add(_Atomic int64_t *cell, int64_t delta)
{
    store(cell, (int64_t)((uint64_t)load(cell) + (uint64_t)delta));
}

/* ---- the sequence ---------------------------------------------------------------------------- */

static void begin(ps_publication_slot_t *slot)
{
    const uint32_t before = atomic_load_explicit(&slot->account_sequence, memory_order_relaxed);
    atomic_store_explicit(&slot->account_sequence, before | 1, memory_order_relaxed);
    /* Release: a reader that sees one of the stores below sees the odd sequence after them. */
    atomic_thread_fence(memory_order_release);
}

static void end(ps_publication_slot_t *slot)
{
    const uint32_t before = atomic_load_explicit(&slot->account_sequence, memory_order_relaxed);
    atomic_store_explicit(&slot->account_sequence, (before | 1) + 1, memory_order_release);
}

/* ---- the sketch ------------------------------------------------------------------------------ */

static void take_who(ps_culprit_t *entry, const ps_publication_slot_t *slot)
{
    for (int32_t i = 0; i < WHO_WORDS; i++) {
        atomic_store_explicit(&entry->who[i],
                              atomic_load_explicit(&slot->holder[i], memory_order_relaxed),
                              memory_order_relaxed);
    }
}

static void charge(ps_publication_slot_t *slot, int64_t culprit, int64_t blocked_ns)
{
    ps_culprit_t *least = &slot->culprits[0];
    if (culprit == 0) {
        add(&slot->culprits[PS_CULPRITS].blocked_ns, blocked_ns);
        return;
    }
    for (int32_t i = 0; i < PS_CULPRITS; i++) {
        ps_culprit_t *entry = &slot->culprits[i];
        if (load(&entry->id) == culprit) {
            add(&entry->blocked_ns, blocked_ns);
            take_who(entry, slot);
            return;
        }
        if (load(&entry->blocked_ns) < load(&least->blocked_ns)) {
            least = entry;
        }
    }
    store(&least->id, culprit);
    store(&least->error_ns, load(&least->blocked_ns));
    add(&least->blocked_ns, blocked_ns);
    take_who(least, slot);
}

/* ---- what binds ------------------------------------------------------------------------------ */

static void set_holder(ps_publication_slot_t *slot, const ps_holder_t *holder)
{
    static const ps_holder_t nobody = { .client_slot = -1, .counter_id = -1 };
    uint64_t words[PS_HOLDER_WORDS] = { 0 };
    memcpy(words, holder != NULL ? holder : &nobody, sizeof(*holder));
    for (int32_t i = 0; i < PS_HOLDER_WORDS; i++) {
        atomic_store_explicit(&slot->holder[i], words[i], memory_order_relaxed);
    }
}

bool ps_account_binds(const ps_publication_slot_t *slot, int32_t cause, int64_t culprit)
{
    return atomic_load_explicit(&slot->cause, memory_order_relaxed) == cause &&
           load(&slot->cause_culprit) == culprit;
}

void ps_account_describe(ps_publication_slot_t *slot, const ps_holder_t *holder)
{
    begin(slot);
    set_holder(slot, holder);
    end(slot);
}

void ps_account_bind(ps_publication_slot_t *slot, int32_t cause, int64_t culprit,
                     const ps_holder_t *holder, int64_t now_ns)
{
    if (ps_account_binds(slot, cause, culprit)) {
        return;
    }
    const int32_t old = atomic_load_explicit(&slot->cause, memory_order_relaxed);
    const int64_t blocked_ns = now_ns - load(&slot->cause_since_ns);
    begin(slot);
    /* The slot lies in memory that clients can write: an index from it is checked. */
    if (old > PS_CAUSE_NONE && old < PS_CAUSE_COUNT && blocked_ns > 0) {
        add(&slot->blocked_ns[old], blocked_ns);
        charge(slot, load(&slot->cause_culprit), blocked_ns);
    }
    set_holder(slot, holder);
    store(&slot->cause_since_ns, now_ns);
    store(&slot->cause_culprit, culprit);
    if (cause != PS_CAUSE_NONE) {
        atomic_store_explicit(&slot->last_cause, cause, memory_order_relaxed);
        store(&slot->last_cause_ns, now_ns);
    }
    atomic_store_explicit(&slot->cause, cause, memory_order_release);
    end(slot);
}

void ps_account_press(ps_publication_slot_t *slot, int32_t state, int64_t drained, int64_t now_ns)
{
    const int64_t since_ns = load(&slot->pressed_since_ns);
    const bool ends = state == PS_WATERMARK_LOW || state == PS_WATERMARK_NORMAL;
    begin(slot);
    if (state == PS_WATERMARK_HIGH) {
        store(&slot->pressed_since_ns, now_ns);
        add(&slot->episodes, 1);
    } else if (ends && since_ns != 0) {
        add(&slot->pressed_ns, now_ns > since_ns ? now_ns - since_ns : 0);
        add(&slot->drained, drained);
        store(&slot->pressed_since_ns, 0);
    }
    atomic_store_explicit(&slot->watermark_state, state, memory_order_release);
    end(slot);
}

void ps_account_adopt(ps_publication_slot_t *slot, int64_t alive_until_ns)
{
    const int64_t since_ns = load(&slot->cause_since_ns);
    const int64_t consumed_ns = load(&slot->last_consumed_ns);
    const int64_t seen_ns = since_ns > consumed_ns ? since_ns : consumed_ns;
    if ((atomic_load_explicit(&slot->account_sequence, memory_order_relaxed) & 1) != 0) {
        end(slot);
    }
    if (alive_until_ns != 0) {
        ps_account_bind(slot, PS_CAUSE_DAEMON_AWAY, 0, NULL,
                        alive_until_ns > seen_ns ? alive_until_ns : seen_ns);
    }
}
