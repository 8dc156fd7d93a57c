/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_isolation.h"

#include "ps_frame.h"

void ps_isolation_init(ps_isolation_t *isolation, ps_subscriber_slot_t *slot, int64_t depth_bytes,
                       int64_t window_bytes)
{
    const int64_t most = window_bytes / 2;
    int64_t depth = depth_bytes > 0 ? depth_bytes : window_bytes / 4;

    depth = depth < most ? depth : most;
    isolation->depth_bytes = depth > PS_FRAME_ALIGNMENT ? depth : PS_FRAME_ALIGNMENT;
    isolation->slot = slot;
    isolation->seen = 0;
    isolation->seen_ns = 0;
    isolation->lagged = false;
    isolation->noted = false;
    isolation->reported = false;
    isolation->reported_ns = INT64_MIN / 2;
    atomic_store_explicit(&slot->lagged, 0, memory_order_relaxed);
}

bool ps_isolation_step(ps_isolation_t *isolation, int64_t position, int64_t leader)
{
    const int64_t behind = leader - position;
    const bool lagged =
        isolation->lagged ? behind > isolation->depth_bytes / 2 : behind >= isolation->depth_bytes;

    if (lagged == isolation->lagged) {
        return false;
    }
    isolation->lagged = lagged;
    atomic_store_explicit(&isolation->slot->lagged, lagged, memory_order_relaxed);
    return true;
}

/* Each look that is PS_ISOLATION_LATE_NS after the noted one states what was noted, and is noted
 * itself. */
static void state_late(ps_isolation_t *isolation, int64_t newest, int64_t now_ns)
{
    if (now_ns - isolation->seen_ns < PS_ISOLATION_LATE_NS) {
        return;
    }
    if (isolation->seen > atomic_load_explicit(&isolation->slot->late, memory_order_relaxed)) {
        atomic_store_explicit(&isolation->slot->late, isolation->seen, memory_order_relaxed);
    }
    isolation->seen = newest;
    isolation->seen_ns = now_ns;
}

void ps_isolation_mark(ps_isolation_t *isolation, int64_t mark, int64_t newest, int64_t now_ns)
{
    ps_subscriber_slot_t *slot = isolation->slot;

    /* skip_to first: a client that sees the mark also sees a position that is not below. */
    if (newest > atomic_load_explicit(&slot->skip_to, memory_order_relaxed)) {
        atomic_store_explicit(&slot->skip_to, newest, memory_order_relaxed);
    }
    state_late(isolation, newest, now_ns);
    if (mark > atomic_load_explicit(&slot->overwritten, memory_order_relaxed)) {
        atomic_store_explicit(&slot->overwritten, mark, memory_order_release);
    }
}

void ps_isolation_publish(void)
{
    /* Pairs with the acquire fence between a client's copy and its look at the mark: a copy that
     * has bytes of a later store is followed by a look that sees the mark. */
    atomic_thread_fence(memory_order_release);
}

/* ---- reports --------------------------------------------------------------------------------- */

static int64_t skipped_of(const ps_isolation_t *isolation)
{
    return atomic_load_explicit(&isolation->slot->skipped_messages, memory_order_relaxed);
}

bool ps_isolation_due(ps_isolation_t *isolation, int64_t now_ns)
{
    if (isolation->lagged && !isolation->noted) {
        isolation->noted = true;
        isolation->since_ns = now_ns;
        isolation->skipped = skipped_of(isolation);
    } else if (!isolation->lagged && !isolation->reported) {
        isolation->noted = false;
    }
    return isolation->lagged
               ? !isolation->reported && now_ns - isolation->reported_ns >= PS_ISOLATION_REPORT_NS
               : isolation->reported;
}

void ps_isolation_reported(ps_isolation_t *isolation, int64_t now_ns)
{
    isolation->reported = isolation->lagged;
    isolation->noted = isolation->lagged;
    isolation->reported_ns = isolation->lagged ? now_ns : isolation->reported_ns;
}

int64_t ps_isolation_skipped(const ps_isolation_t *isolation)
{
    return skipped_of(isolation) - isolation->skipped;
}
