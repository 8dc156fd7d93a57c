/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_spend.h: the word in which the publishers of one stream count the messages that they were
 * admitted to publish (docs/decisions/0082).
 *
 *   63        62 .. 48   47 .. 0
 *   revoked | epoch    | spent: messages admitted in all, modulo 2^48
 *
 * A publisher spends before it reserves space, and returns what it did not commit.  The sender
 * states up to which ordinal it admits; both sides compare modulo 2^48, so the count may wrap.
 * Epoch and revoked are for credits: a spend of one epoch is never returned into another.
 */
#ifndef PS_SPEND_H
#define PS_SPEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PS_SPENT_BITS = 48, PS_SPEND_TRIES = 1024 };
#define PS_SPENT_MASK    ((UINT64_C(1) << PS_SPENT_BITS) - 1)
#define PS_SPEND_REVOKED (UINT64_C(1) << 63)

/* The count that has these low bits and is nearest to `near`. */
static inline int64_t ps_spent_near(uint64_t word, int64_t near)
{
    const uint64_t ahead = (word - (uint64_t)near) << (64 - PS_SPENT_BITS);
    return near + ((int64_t)ahead >> (64 - PS_SPENT_BITS));
}

/* Messages between the word and limit; 0: none, or the right to spend was revoked. */
static inline int64_t ps_spend_room(uint64_t word, int64_t limit)
{
    const int64_t room = limit - ps_spent_near(word, limit);
    return room > 0 && (word & PS_SPEND_REVOKED) == 0 ? room : 0;
}

static inline uint32_t ps_spend_epoch(uint64_t word)
{
    return (uint32_t)(word >> PS_SPENT_BITS) & 0x7FFF;
}

static inline uint64_t ps_spend_moved(uint64_t word, int64_t by)
{
    return (word & ~PS_SPENT_MASK) | ((word + (uint64_t)by) & PS_SPENT_MASK);
}

/* Spends up to `wanted` (> 0) below limit: how many, 0 none, -1: other publishers were in the way
 * every time, try again.  *epoch: of the spend.  alone: this thread is the only writer. */
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

/* Returns what was spent and not published.  Nothing happens if the epoch has changed, since the
 * new one began with a new count. */
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
