/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_account.c: the blocked-time account of a publication slot.  The culprit table keeps the
 * largest by time: a newcomer with more time than the smallest entry pushes that entry into
 * "other".
 */
#include "ps_account.h"

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* One writer, readers take relaxed snapshots: no read-modify-write is needed. */
static void add(_Atomic int64_t *cell, int64_t delta)
{
    atomic_store_explicit(cell, (int64_t)((uint64_t)load(cell) + (uint64_t)delta),
                          memory_order_relaxed);
}

static void charge_culprit(ps_publication_slot_t *slot, int64_t culprit, int64_t blocked_ns)
{
    int32_t smallest = 0;
    if (culprit == 0) {
        add(&slot->culprits[PS_CULPRITS].blocked_ns, blocked_ns);
        return;
    }
    for (int32_t i = 0; i < PS_CULPRITS; i++) {
        if (load(&slot->culprits[i].id) == culprit) {
            add(&slot->culprits[i].blocked_ns, blocked_ns);
            return;
        }
        if (load(&slot->culprits[i].blocked_ns) < load(&slot->culprits[smallest].blocked_ns)) {
            smallest = i;
        }
    }
    const int64_t least = load(&slot->culprits[smallest].blocked_ns);
    if (blocked_ns <= least) {
        add(&slot->culprits[PS_CULPRITS].blocked_ns, blocked_ns);
        return;
    }
    add(&slot->culprits[PS_CULPRITS].blocked_ns, least);
    atomic_store_explicit(&slot->culprits[smallest].id, culprit, memory_order_relaxed);
    atomic_store_explicit(&slot->culprits[smallest].blocked_ns, blocked_ns, memory_order_relaxed);
}

void ps_account_bind(ps_publication_slot_t *slot, int32_t cause, int64_t culprit, int64_t now_ns)
{
    const int32_t old = atomic_load_explicit(&slot->cause, memory_order_relaxed);
    const int64_t old_culprit = load(&slot->cause_culprit);
    if (old == cause && old_culprit == culprit) {
        return;
    }
    const int64_t blocked_ns = now_ns - load(&slot->cause_since_ns);
    /* The slot lies in memory that clients can write: an index from it is checked. */
    if (old > PS_CAUSE_NONE && old < PS_CAUSE_COUNT && blocked_ns > 0) {
        add(&slot->blocked_ns[old], blocked_ns);
        charge_culprit(slot, old_culprit, blocked_ns);
    }
    atomic_store_explicit(&slot->cause_since_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->cause_culprit, culprit, memory_order_relaxed);
    atomic_store_explicit(&slot->cause, cause, memory_order_release);
}
