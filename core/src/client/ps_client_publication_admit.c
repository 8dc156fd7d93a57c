/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_admit.c: streams that admit by message.  A publisher takes an ordinal
 * before it reserves space, and returns it if the message is not published.  Streams without a
 * message rate and without credits never get here.
 */
#include "ps_client_publication.h"
#include "ps_credit.h"
#include "ps_spend.h"

/* A publisher notes how it took ordinals: 0 none, the epoch of a rate's ordinals + 1, or: */
#define CREDITS UINT32_MAX

/* Threads get places in turn. */
static _Atomic uint32_t next_place;
static _Thread_local uint32_t own_place; /* + 1; 0: none yet */

uint32_t ps_pub_find_spend_place(ps_pub_t *pub, uint64_t identity)
{
    if (PS_UNLIKELY(own_place == 0)) {
        own_place =
            1 + atomic_fetch_add_explicit(&next_place, 1, memory_order_relaxed) % PS_CLIENT_SPENDS;
    }
    const uint32_t place = own_place - 1;
    atomic_store_explicit(&pub->spender, identity << 16 | place, memory_order_relaxed);
    return place;
}

/* Takes credits from the lease. 0: there are none, or the lease has ended. The caller has marked
 * the spend. */
static int64_t take_leased(ps_pub_t *pub, int64_t wanted)
{
    const uint64_t lease = atomic_load_explicit(&pub->slot->lease, memory_order_relaxed);
    if ((uint32_t)lease == 0) {
        return 0;
    }
    /* The sender's barrier orders the mark before this load. */
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const int64_t leased = ps_leased(lease, word);
    const int64_t taken = leased < wanted ? leased : wanted;
    /* Release: a sender that sees the smaller lease sees the mark. */
    atomic_store_explicit(&pub->slot->lease, taken > 0 ? lease - (uint64_t)taken : 0,
                          memory_order_release);
    return taken;
}

/* An exclusive publisher that takes one credit takes some for later messages too. */
static int64_t take_ahead(ps_pub_t *pub)
{
    uint32_t epoch = 0;
    const int64_t taken =
        ps_spend_credits(&pub->slot->spend, &pub->slot->ordinal_limit, PS_LEASE_MOST, &epoch);
    if (taken <= 0) {
        return taken;
    }
    atomic_store_explicit(&pub->slot->lease, ps_lease_of(epoch, taken - 1), memory_order_release);
    return 1;
}

static int64_t take_credits(ps_pub_t *pub, int64_t wanted)
{
    const bool leases =
        pub->exclusive && pub->client->barriers && (ps_pub_metered(pub) & PS_METERED_LEASES) != 0;
    const int64_t leased = leases ? take_leased(pub, wanted) : 0;
    uint32_t epoch = 0;
    if (leased > 0) {
        return leased;
    }
    return leases && wanted == 1
               ? take_ahead(pub)
               : ps_spend_credits(&pub->slot->spend, &pub->slot->ordinal_limit, wanted, &epoch);
}

/* Returns true if the credits are used up, whatever other limits the stream has. Only for a refused
 * publisher: it has no lease. */
static bool lacks_credit(const ps_pub_t *pub)
{
    const ps_publication_slot_t *slot = pub->slot;
    const uint64_t word = atomic_load_explicit(&slot->spend, memory_order_acquire);
    int64_t granted;
    int64_t spent;
    return (word & PS_SPEND_REVOKED) != 0 ||
           (ps_spend_counts(slot, &granted, &spent) && spent >= granted);
}

static int64_t take(ps_pub_t *pub, int64_t wanted, uint32_t *epoch)
{
    if ((ps_pub_metered(pub) & PS_METERED_CREDITS) == 0) {
        const int64_t limit = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_acquire);
        const int64_t taken = ps_spend(&pub->slot->spend, limit, wanted, pub->exclusive, epoch);
        (*epoch)++;
        return taken;
    }
    /* Stored before the credits are taken (release of the exchange): a sender that sees the credits
     * sees the mark. */
    atomic_store_explicit(ps_pub_spend_place(pub), ps_pub_spend_mark(pub, wanted),
                          memory_order_relaxed);
    *epoch = CREDITS;
    return take_credits(pub, wanted);
}

void ps_pub_taken(ps_pub_t *pub, uint32_t epoch)
{
    if (epoch == CREDITS) {
        /* Release: the reservation, or the return, comes before. */
        atomic_store_explicit(ps_pub_spend_place(pub), 0, memory_order_release);
    }
}

int64_t ps_pub_take(ps_pub_t *pub, int64_t wanted, uint32_t *epoch)
{
    const int64_t taken = take(pub, wanted, epoch);
    if (PS_LIKELY(taken > 0)) {
        return taken;
    }
    ps_pub_taken(pub, *epoch);
    if (taken < 0) {
        return PS_ADMIN_ACTION;
    }
    const int64_t position = pub->exclusive
                                 ? ((int64_t)pub->term_count << pub->log.shift) + pub->term_offset
                                 : ps_log_producer_position(&pub->log);
    const bool credits = *epoch == CREDITS;
    const int64_t code = ps_pub_refuse(pub, position);
    const int32_t others = ps_pub_metered(pub) & (PS_METERED_DEPTH | PS_METERED_RATE);
    if (code != PS_BACK_PRESSURED) { /* the sender has stated the cause */
        return code;
    }
    if (credits && (others == 0 || lacks_credit(pub))) {
        return PS_NO_CREDIT;
    }
    return (others & PS_METERED_DEPTH) != 0 ? PS_BACK_PRESSURED : PS_RATE_LIMITED;
}

void ps_pub_untake(ps_pub_t *pub, int64_t count, uint32_t epoch)
{
    if (count <= 0 || epoch == 0) {
        return;
    }
    if (epoch == CREDITS) {
        ps_spend_return_credits(&pub->slot->spend, count);
    } else {
        ps_spend_return(&pub->slot->spend, count, pub->exclusive, epoch - 1);
    }
}

void ps_pub_retake(ps_pub_t *pub, uint32_t epoch)
{
    if (epoch == CREDITS) {
        /* Before the release of the padding frame: a sender that sees the frame sees the mark. */
        atomic_store_explicit(ps_pub_spend_place(pub), ps_pub_spend_mark(pub, 1),
                              memory_order_relaxed);
    }
}

void ps_pub_untake_padded(ps_pub_t *pub, uint32_t epoch)
{
    if (epoch != CREDITS) {
        ps_pub_untake(pub, 1, epoch);
    }
}

int64_t ps_pub_publish_metered(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value)
{
    uint32_t epoch = 0;
    const int64_t taken = ps_pub_take(pub, 1, &epoch);
    if (taken <= 0) {
        return taken;
    }
    const int64_t position = ps_pub_publish_admitted(pub, pieces, length, reserved_value);
    ps_pub_untake(pub, position <= 0, epoch);
    ps_pub_taken(pub, epoch);
    return position;
}

int64_t ps_pub_ordinal_limit(const ps_pub_t *pub)
{
    return ps_pub_metered(pub) != 0
               ? atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_acquire)
               : INT64_MAX;
}

int64_t ps_pub_credits(const ps_pub_t *pub)
{
    const uint32_t metered = atomic_load_explicit(&pub->slot->metered, memory_order_acquire);
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    if ((metered & PS_METERED_CREDITS) == 0) {
        return INT64_MAX;
    }
    const int64_t leased = ps_spend_leased(pub->slot);
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_acquire);
    return leased + ps_spend_room(word, atomic_load_explicit(&pub->slot->ordinal_limit,
                                                             memory_order_acquire));
}

int ps_pub_credit_counts(const ps_pub_t *pub, int64_t *granted, int64_t *spent)
{
    const ps_publication_slot_t *slot = pub->slot;
    if (ps_client_forked(pub->client)) {
        return (int)ps_client_fail_forked();
    }
    return ps_spend_counts(slot, granted, spent) ? PS_OK : PS_E_INVALID;
}
