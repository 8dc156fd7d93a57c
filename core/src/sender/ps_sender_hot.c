/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_hot.c: busy streams, which the sender checks in every cycle without a notification.
 *
 *   cold --many messages, looks in a row--> hot --no news for COOL_NS, or the thread parks--> cold
 *
 * While dirty is HOT, publishers only load it, without a fence. To cool a stream, the sender stores
 * dirty, calls ps_barrier_run, which makes every publisher's CPU execute a full barrier, and checks
 * the log. A publisher that read HOT did so before its barrier, so this check sees its frame. A
 * publisher that stores later reads the new value and notifies the sender (docs/decisions/0020). */

#include "ps_barrier.h"
#include "ps_assert.h"
#include "ps_sender.h"

enum { BUSY_MESSAGES = 4, BUSY_CHECKS = 4 };
#define BUSY_WITHIN_NS INT64_C(200000)
#define COOL_NS        INT64_C(50000)
/* Publishers write at most 4 bytes a nanosecond: in a nap at most a quarter of a window. */
#define NAP_NS       INT64_C(50000)
#define LEAST_NAP_NS INT64_C(20000)
enum { NAP_WINDOW_BYTES_PER_NS = 16 };
/* Local readers need the sender only when they sleep; between checks they have the processor. */
#define LOCAL_GAP_NS INT64_C(5000)

static void store_dirty(ps_publication_t *pub, uint32_t value)
{
    atomic_store_explicit(&pub->slot->dirty, value, memory_order_seq_cst);
}

/* Returns true for several messages a check in several checks in a row: hotness then saves more
 * than its barrier costs. */
static bool is_busy(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t ordinal =
        atomic_load_explicit(&pub->slot->published_ordinal, memory_order_relaxed) +
        (pub->credits.on ? pub->credits.spent - pub->credits.leased : 0);
    const bool many = ordinal - pub->counted_ordinal >= BUSY_MESSAGES &&
                      now_ns - pub->counted_ns <= BUSY_WITHIN_NS;
    pub->counted_ordinal = ordinal;
    pub->counted_ns = now_ns;
    pub->busy_checks = many ? pub->busy_checks + 1 : 0;
    return pub->busy_checks >= BUSY_CHECKS;
}

void ps_sender_note_dirty(ps_sender_t *sender, ps_publication_t *pub)
{
    if (pub->hot) { /* a publisher's mark fell on ours as the stream became hot */
        store_dirty(pub, PS_DIRTY_HOT);
        return;
    }
    if (!sender->barriers || sender->hot_count == PS_HOT_LIMIT || !is_busy(pub, sender->now_ns)) {
        return;
    }
    store_dirty(pub, PS_DIRTY_HOT);
    pub->hot = true;
    pub->hot_ns = sender->now_ns;
    sender->hot[sender->hot_count++] = pub;
}

/* Returns true if the stream's data cannot leave now. Such a check is no work; otherwise the sender
 * would never sleep. */
static bool is_held(const ps_publication_t *pub)
{
    return pub->window_shut || pub->sender_position >= pub->sender_limit || pub->short_send ||
           pub->paced || pub->rate_cause != PS_CAUSE_NONE || pub->corrupt || pub->revoked ||
           !ps_send_endpoint_reachable(pub->endpoint);
}

/* Returns true if the stream has work without a notification. */
static bool has_events(ps_publication_t *pub, int64_t now_ns)
{
    if (pub->withheld) { /* a whole datagram ends the wait for one */
        return !pub->deferred &&
               ps_log_producer_position(&pub->log) - pub->sender_position >= pub->log.mtu;
    }
    if (pub->endpoint != NULL && !is_held(pub) &&
        ps_frame_length_acquire(ps_frame_at(&pub->log, pub->sender_position)) > 0) {
        return true;
    }
    if (pub->subscriber_count == 0 || now_ns - pub->hot_tail_ns < LOCAL_GAP_NS) {
        return false;
    }
    pub->hot_tail_ns = now_ns;
    return ps_log_producer_position(&pub->log) > pub->hot_tail;
}

/* Returns the time without new data. A closed window does not count as quiet, because a status
 * message opens it. */
static int64_t quiet_ns(const ps_publication_t *pub, int64_t now_ns)
{
    return pub->window_shut ? (now_ns - pub->hot_ns) / 8 : now_ns - pub->hot_ns;
}

static void act(ps_sender_t *sender, ps_publication_t *pub)
{
    if (pub->subscriber_count > 0) {
        /* The tail moves before its frame is there: a reader that was woken too early is woken
         * again when the tail has moved on or the stream cools. */
        pub->hot_tail = ps_log_producer_position(&pub->log);
        ps_sender_watch(sender, pub);
        ps_publication_wake_subscribers(pub);
    }
    if (pub->endpoint != NULL || !pub->in_watch) {
        ps_sender_ready(sender, pub);
    }
}

/* Cools the publications [from, hot_count), with one barrier: publishers notify the sender
 * again. */
static void cool_from(ps_sender_t *sender, int32_t from)
{
    PS_ASSERT(from >= 0 && from <= sender->hot_count);
    if (from == sender->hot_count) {
        return;
    }
    for (int32_t i = from; i < sender->hot_count; i++) {
        sender->hot[i]->hot = false;
        sender->hot[i]->busy_checks = 0;
        store_dirty(sender->hot[i], PS_DIRTY_NOT);
    }
    ps_barrier_run();
    for (int32_t i = from; i < sender->hot_count; i++) {
        act(sender, sender->hot[i]);
        ps_sender_ready(sender, sender->hot[i]);
    }
    sender->hot_count = from;
}

int32_t ps_sender_check_hot(ps_sender_t *sender)
{
    int32_t events = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < sender->hot_count; i++) {
        ps_publication_t *pub = sender->hot[i];
        if (has_events(pub, sender->now_ns)) {
            pub->hot_ns = sender->now_ns;
            act(sender, pub);
            events++;
        }
        if (quiet_ns(pub, sender->now_ns) <= COOL_NS) { /* those to cool gather at the end */
            sender->hot[i] = sender->hot[kept];
            sender->hot[kept++] = pub;
        }
    }
    cool_from(sender, kept);
    return events;
}

bool ps_sender_cool(ps_sender_t *sender)
{
    const bool any = sender->hot_count > 0;
    cool_from(sender, 0);
    return any;
}

int64_t ps_sender_nap_ns(const ps_sender_t *sender)
{
    int64_t nap_ns = NAP_NS;
    if (sender->hot_count == 0 || sender->bands.waiting > 0) {
        return 0;
    }
    for (int32_t i = 0; i < sender->hot_count; i++) {
        const ps_publication_t *pub = sender->hot[i];
        const int64_t window_ns = pub->window_bytes / NAP_WINDOW_BYTES_PER_NS;
        if (pub->endpoint != NULL || pub->credits.binds ||
            atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed) != 0) {
            return 0;
        }
        nap_ns = window_ns < nap_ns ? window_ns : nap_ns;
    }
    return nap_ns >= LEAST_NAP_NS ? nap_ns : 0;
}

bool ps_sender_is_busy(const ps_sender_t *sender)
{
    return sender->hot_count > 0;
}

void ps_sender_leave_hot(ps_sender_t *sender, ps_publication_t *pub)
{
    for (int32_t i = 0; pub->hot && i < sender->hot_count; i++) {
        if (sender->hot[i] == pub) {
            sender->hot[i] = sender->hot[--sender->hot_count];
            pub->hot = false;
            store_dirty(pub, PS_DIRTY_NOT);
        }
    }
    PS_ASSERT(!pub->hot);
}
