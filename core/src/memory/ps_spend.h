/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_spend.h: the shared word in which the publishers of one stream count their messages. A rate
 * limit or credits set the upper limit of this count (docs/decisions/0082).
 *
 *   63        62 .. 48   47 .. 0
 *   revoked | epoch    | spent: messages admitted in all, modulo 2^48
 *
 * A publisher takes an ordinal (message number) for each message before it reserves space. The
 * publisher later returns the ordinals of messages that were not committed. The sender states the
 * ordinal up to which publishers may publish. Publishers and sender compare ordinals modulo 2^48,
 * so the count may wrap. The epoch and the flag `revoked` exist only for credits
 * (docs/decisions/0240): when the sender lowers the limit, the sender begins a new epoch. While the
 * flag `revoked` is set, no publisher can take an ordinal.
 *
 * An exclusive publisher takes up to PS_LEASE_MOST credits at once. Its unused credits are the
 * lease of the stream:
 *
 *   63 .. 32 | 31       | 30 .. 0
 *   epoch    | spending | number of credits
 *
 * When the epoch ends, the publisher can no longer use the credits in its lease. To use a credit,
 * the publisher first stores the lease without this credit and with the flag `spending`, then reads
 * the epoch. It stores the lease without the flag after it has committed the message. The sender
 * begins an epoch, makes all publishers execute a memory barrier, then reads the lease. If the flag
 * is not set then, the publisher can no longer use a lease of an older epoch.
 *
 * On a shared stream, one thread holds the lease (ps_publication_slot_t.lease_holder); the others
 * take each credit from the word (docs/decisions/0670). The holder takes at most one of
 * PS_LEASE_SHARE credits that are left, so that few credits lie unused at a thread that rests. */
#ifndef PS_SPEND_H
#define PS_SPEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PS_SPENT_BITS = 48, PS_SPEND_TRIES = 1024, PS_LEASE_MOST = 64, PS_LEASE_SHARE = 64 };
#define PS_SPENT_MASK     ((UINT64_C(1) << PS_SPENT_BITS) - 1)
#define PS_SPEND_REVOKED  (UINT64_C(1) << 63)
#define PS_LEASE_SPENDING (UINT64_C(1) << 31)

/* The shared word contains only the low 48 bits of the number of messages. Returns the full number
 * of messages: the number nearest to `near` that has the same low 48 bits. */
static inline int64_t ps_spent_near(uint64_t word, int64_t near)
{
    const uint64_t ahead = (word - (uint64_t)near) << (64 - PS_SPENT_BITS);
    return near + ((int64_t)ahead >> (64 - PS_SPENT_BITS));
}

/* Returns the number of ordinals below `limit` that publishers may still take; 0 while the flag
 * `revoked` is set. */
static inline int64_t ps_spend_room(uint64_t word, int64_t limit)
{
    const int64_t room = limit - ps_spent_near(word, limit);
    return room > 0 && (word & PS_SPEND_REVOKED) == 0 ? room : 0;
}

static inline uint32_t ps_spend_epoch(uint64_t word)
{
    return (uint32_t)(word >> PS_SPENT_BITS) & 0x7FFF;
}

static inline uint64_t ps_lease_of(uint32_t epoch, int64_t credits)
{
    return (uint64_t)epoch << 32 | (uint64_t)credits;
}

/* Returns the number of unused credits in a lease. Returns 0 if the lease is not valid, or if the
 * epoch in `word` is newer than the lease's epoch. */
static inline int64_t ps_leased(uint64_t lease, uint64_t word)
{
    const uint32_t credits = (uint32_t)(lease & ~PS_LEASE_SPENDING);
    return lease >> 32 == ps_spend_epoch(word) && credits <= PS_LEASE_MOST ? credits : 0;
}

/* Returns the number of credits that return with a lease whose epoch, the one in `word`, has ended.
 * A publisher that set `spending` after the end finds the newer epoch, so its credit returns too.
 * Returns 0 if the lease belongs to another epoch: its publisher has taken credits again since. */
static inline int64_t ps_lease_rest(uint64_t lease, uint64_t word)
{
    return lease >> 32 == ps_spend_epoch(word)
               ? ps_leased(lease, word) + ((lease & PS_LEASE_SPENDING) != 0)
               : 0;
}

/* Returns true if the epoch of a publisher's own lease is the one in `word`. A word with the flag
 * `revoked` belongs to a newer epoch. */
static inline bool ps_lease_is_of(uint64_t lease, uint64_t word)
{
    return lease >> 32 == word >> PS_SPENT_BITS;
}

/* Returns the number of credits that the holder of a shared stream's lease takes at once. */
static inline int64_t ps_lease_share(uint64_t word, int64_t limit)
{
    const int64_t share = ps_spend_room(word, limit) / PS_LEASE_SHARE;
    return share < PS_LEASE_MOST ? share : PS_LEASE_MOST;
}

/* A word that names the holder of a lease:
 *
 *   63 .. 20        | 19 .. 16 | 15 .. 0
 *   thread identity | handle   | client slot + 1
 *
 * The low four bits of a thread's identity (ps_thread_identity) are 0. In their place is a number
 * of the publication object, so that a thread does not take one of its objects for another. */
#define PS_LEASE_HANDLES UINT64_C(15)
/* While a client or the sender ends a lease, it has no holder. */
#define PS_LEASE_ENDING (UINT64_C(1) << 63)

/* Returns the word; 0: the thread cannot hold a lease. */
static inline uint64_t ps_lease_holder_of(uint64_t identity, uint32_t handle, int32_t client_slot)
{
    const bool fits = identity != 0 && (identity & PS_LEASE_HANDLES) == 0 && identity >> 47 == 0 &&
                      client_slot < UINT16_MAX;
    return fits ? (identity | (handle & PS_LEASE_HANDLES)) << 16 | (uint64_t)(client_slot + 1) : 0;
}

/* Returns true if the thread is the holder. */
static inline bool ps_lease_is_held_by(uint64_t holder, uint64_t identity)
{
    return (holder >> 16 & ~PS_LEASE_HANDLES) == identity;
}

/* Returns the client slot of a holder; -1: none. */
static inline int32_t ps_lease_holder_client(uint64_t holder)
{
    return (int32_t)(holder & UINT16_MAX) - 1;
}

/* Ends a lease, unless it has got another holder. The credits are neither used nor returned: the
 * caller returns them, or the sender finds them. */
static inline bool ps_lease_end(_Atomic uint64_t *cell, _Atomic uint64_t *lease, uint64_t holder)
{
    uint64_t expected = holder;
    if (!atomic_compare_exchange_strong_explicit(cell, &expected, PS_LEASE_ENDING,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return false;
    }
    atomic_store_explicit(lease, 0, memory_order_relaxed);
    atomic_store_explicit(cell, 0, memory_order_release);
    return true;
}

static inline uint64_t ps_spend_moved(uint64_t word, int64_t by)
{
    return (word & ~PS_SPENT_MASK) | ((word + (uint64_t)by) & PS_SPENT_MASK);
}

/* Takes up to `wanted` (> 0) ordinals (message numbers) below `limit`. Returns the number of
 * ordinals taken; 0: no ordinal is left below `limit`. -1: all attempts failed because other
 * publishers changed the word; the caller must try again. *epoch gets the epoch of the taken
 * ordinals. Set `alone` to true only if no other thread writes the word. */
static inline int64_t ps_spend(_Atomic uint64_t *cell, int64_t limit, int64_t wanted, bool alone,
                               uint32_t *epoch)
{
    uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
    for (int32_t i = 0; i < PS_SPEND_TRIES; i++) {
        const int64_t room = ps_spend_room(word, limit);
        const int64_t taken = room < wanted ? room : wanted;
        *epoch = ps_spend_epoch(word);
        if (taken == 0) {
            return 0;
        }
        if (alone) {
            atomic_store_explicit(cell, ps_spend_moved(word, taken), memory_order_relaxed);
            return taken;
        }
        if (atomic_compare_exchange_weak_explicit(cell, &word, ps_spend_moved(word, taken),
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            return taken;
        }
    }
    return -1;
}

/* Takes ordinals (message numbers) like ps_spend, but reads the limit from memory, because the
 * sender may lower the limit at any time. To lower the limit, the sender first stores the new
 * limit, then changes the shared word of the count. If a publisher's compare-and-swap of the word
 * succeeds after this change, the publisher has read the new limit. */
static inline int64_t ps_spend_credits(_Atomic uint64_t *cell, const _Atomic int64_t *limit,
                                       int64_t wanted, uint32_t *epoch)
{
    uint64_t word = atomic_load_explicit(cell, memory_order_acquire);
    for (int32_t i = 0; i < PS_SPEND_TRIES; i++) {
        const int64_t room = ps_spend_room(word, atomic_load_explicit(limit, memory_order_acquire));
        const int64_t taken = room < wanted ? room : wanted;
        *epoch = ps_spend_epoch(word);
        if (taken == 0) {
            return 0;
        }
        if (atomic_compare_exchange_weak_explicit(cell, &word, ps_spend_moved(word, taken),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            return taken;
        }
    }
    return -1;
}

/* Releases credits that a publisher took and did not use. Unlike ps_spend_return, this function
 * releases the credits even if a new epoch of credits has begun. */
static inline void ps_spend_return_credits(_Atomic uint64_t *cell, int64_t count)
{
    uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
    for (int32_t i = 0; i < PS_SPEND_TRIES; i++) {
        if (atomic_compare_exchange_weak_explicit(cell, &word, ps_spend_moved(word, -count),
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            return;
        }
    }
}

/* Begins a new epoch of credits, and sets the flag `revoked` to the given value. Returns the value
 * of the word before the change; its message count is the number of ordinals that publishers have
 * taken. If *done is false, all attempts failed because publishers changed the word; the caller
 * must then call the function again. */
static inline uint64_t ps_spend_begin(_Atomic uint64_t *cell, bool revoked, bool *done)
{
    uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
    *done = false;
    for (int32_t i = 0; i < PS_SPEND_TRIES && !*done; i++) {
        const uint64_t epoch = (uint64_t)((ps_spend_epoch(word) + 1) & 0x7FFF) << PS_SPENT_BITS;
        const uint64_t next = (word & PS_SPENT_MASK) | epoch | (revoked ? PS_SPEND_REVOKED : 0);
        *done = atomic_compare_exchange_weak_explicit(cell, &word, next, memory_order_acq_rel,
                                                      memory_order_relaxed);
    }
    return word;
}

/* Releases ordinals that a publisher took and did not use. If a new epoch has begun since then, the
 * function does nothing, because the new epoch began with a new count. */
static inline void ps_spend_return(_Atomic uint64_t *cell, int64_t count, bool alone,
                                   uint32_t epoch)
{
    uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
    for (int32_t i = 0; i < PS_SPEND_TRIES && ps_spend_epoch(word) == epoch; i++) {
        if (alone) {
            atomic_store_explicit(cell, ps_spend_moved(word, -count), memory_order_relaxed);
            return;
        }
        if (atomic_compare_exchange_weak_explicit(cell, &word, ps_spend_moved(word, -count),
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            return;
        }
    }
}

#endif
