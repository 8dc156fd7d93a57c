/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_governor.c: what the sender does under pressure (docs/scheduling.md). It withholds new
 * data only: SETUPs, heartbeats, retransmits and the data of a closed publication always leave. */
#include "ps_sender.h"

_Static_assert((int32_t)PS_SCHEDULER_LISTS == (int32_t)PS_BAND_LISTS, "one number for each list");

static void publish_signals(const ps_sender_t *sender)
{
    const ps_governor_t *governor = &sender->governor;
    const ps_bands_t *bands = &sender->bands;
    ps_driver_slot_t *slot = sender->shared->driver;
    atomic_store_explicit(&slot->depth_ppm, governor->depth, memory_order_relaxed);
    atomic_store_explicit(&slot->latency_ppm, governor->latency, memory_order_relaxed);
    atomic_store_explicit(&slot->busy_ppm, governor->busy, memory_order_relaxed);
    atomic_store_explicit(&slot->defers, governor->defers, memory_order_relaxed);
    for (int32_t i = 0; i < PS_BAND_LISTS; i++) {
        const bool only = bands->only != NULL && bands->only->list == i;
        atomic_store_explicit(&slot->ready[i], bands->lists[i].count + only, memory_order_relaxed);
    }
}

static void add(_Atomic int64_t *cell, int64_t value)
{
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

static void publish(ps_sender_t *sender)
{
    const ps_governor_t *governor = &sender->governor;
    ps_driver_slot_t *slot = sender->shared->driver;
    publish_signals(sender);
    atomic_store_explicit(&slot->coalesce_ns, governor->coalesce_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->status_interval_ns, governor->status_interval_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->retry_after_ns, governor->retry_after_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->pressure_ppm, (uint32_t)governor->pressure, memory_order_relaxed);
    /* Release: a reader that sees the time sees a word that is not older. */
    atomic_store_explicit(&slot->pressure_ns, sender->now_ns, memory_order_release);
}

static void resume_all(ps_sender_t *sender)
{
    for (int32_t i = 0; i < sender->publication_count; i++) {
        if (sender->publications[i]->withheld) {
            ps_sender_ready(sender, sender->publications[i]);
        }
    }
}

/* Returns the processor time of this thread since the last call; -1: not measured. */
static int64_t ran(ps_sender_t *sender)
{
    if (sender->context->thread_ns == NULL) {
        return -1;
    }
    const int64_t before_ns = sender->thread_ns;
    sender->thread_ns = sender->context->thread_ns();
    return sender->thread_ns - before_ns;
}

void ps_sender_govern(ps_sender_t *sender)
{
    ps_governor_t *governor = &sender->governor;
    if (sender->params->governor == 0 && governor->forced < 0) {
        return;
    }
    const int64_t due_ns = governor->sampled_ns + PS_GOVERNOR_SAMPLE_NS;
    const bool idle = sender->idle_since_ns >= 0;
    if (sender->now_ns < due_ns) {
        if (governor->pressure > 0) {
            ps_sender_due(sender, due_ns);
        }
        return;
    }
    /* After a cycle that another program delayed, all streams seem late until they had turns. */
    const int64_t settled_ns = sender->delayed_ns + sender->bands.round_ns;
    if ((sender->slow || sender->now_ns < settled_ns) &&
        sender->now_ns < due_ns + PS_GOVERNOR_SAMPLE_NS) {
        ps_sender_due(sender, sender->now_ns);
        return;
    }
    if (idle) {
        sender->idle_ns += sender->now_ns - sender->idle_since_ns;
        sender->idle_since_ns = sender->now_ns;
    }
    const int64_t ran_ns = ran(sender);
    const ps_governor_sample_t sample = {
        .now_ns = sender->now_ns,
        .idle_ns = sender->idle_ns,
        .ran_ns = ran_ns,
        .late_streams = ps_bands_late(&sender->bands, sender->now_ns - sender->bands.round_ns,
                                      PS_GOVERNOR_DEPTH),
        .workers = 1,
    };
    add(&sender->shared->driver->waits, governor->waits); /* the step sets both to 0 */
    add(&sender->shared->driver->waited_ns, governor->waited_ns);
    const bool changed = ps_governor_step(governor, &sample);
    sender->idle_ns = 0;
    sender->bands.lowered = governor->defers;
    publish(sender);
    if (changed) {
        resume_all(sender);
    }
    if (governor->pressure > 0) { /* until it is over; then the next work begins */
        ps_sender_due(sender, sender->now_ns + PS_GOVERNOR_SAMPLE_NS);
    }
}

static void wait_until(ps_sender_t *sender, ps_publication_t *pub, int64_t due_ns)
{
    pub->withheld_until_ns = due_ns;
    ps_publication_due(pub, due_ns);
    sender->urgent = true;
}

bool ps_sender_defers(ps_sender_t *sender, ps_publication_t *pub)
{
    const int64_t due_ns = pub->data_sent_ns + PS_GOVERNOR_DEFERRED_NS;
    if (!sender->governor.defers || pub->turn.base >= 0 || pub->state != PS_PUBLICATION_ACTIVE ||
        pub->params.never_throttle || sender->now_ns >= due_ns) {
        return false;
    }
    if (pub->partial_since_ns < 0) { /* it then waits no more for further data */
        pub->partial_since_ns = pub->turn.since_ns;
    }
    pub->deferred = true;
    wait_until(sender, pub, due_ns);
    add(&pub->slot->deferrals, 1);
    add(&sender->shared->driver->deferrals, 1);
    return true;
}

bool ps_sender_coalesces(ps_sender_t *sender, ps_publication_t *pub)
{
    const int64_t coalesce_ns = sender->governor.coalesce_ns;
    if (coalesce_ns == 0 || pub->band == PS_BAND_B4 || pub->state != PS_PUBLICATION_ACTIVE ||
        pub->params.never_throttle) {
        return false;
    }
    if (pub->partial_since_ns < 0) {
        pub->partial_since_ns = pub->turn.since_ns; /* it may have waited for its turn */
    }
    if (sender->now_ns >= pub->partial_since_ns + coalesce_ns) {
        return false;
    }
    pub->deferred = false;
    wait_until(sender, pub, pub->partial_since_ns + coalesce_ns);
    return true;
}
