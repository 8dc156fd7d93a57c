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

static bool may_lease(const ps_pub_t *pub)
{
    return pub->client->barriers && (ps_pub_metered(pub) & PS_METERED_LEASES) != 0;
}

/* On a stream with a message rate or a depth in messages no thread holds the lease: ordinals that
 * rest in a lease would delay the publishers that wait. */
static bool may_hold(const ps_pub_t *pub, uint64_t own)
{
    const int32_t others = PS_METERED_RATE | PS_METERED_DEPTH;
    return own != 0 && may_lease(pub) && (ps_pub_metered(pub) & others) == 0 &&
           atomic_load_explicit(&pub->slot->id, memory_order_acquire) == pub->slot_id;
}

static bool become_holder(ps_pub_t *pub)
{
    _Atomic uint64_t *cell = &pub->slot->lease_holder;
    const uint64_t own = ps_lease_holder_of(ps_thread_identity(), pub->handle, pub->client->slot);
    uint64_t holder = atomic_load_explicit(cell, memory_order_relaxed);
    if (holder != 0 || !may_hold(pub, own) ||
        !atomic_compare_exchange_strong_explicit(cell, &holder, own, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return false;
    }
    atomic_store_explicit(&pub->holder, own, memory_order_relaxed);
    return true;
}

bool ps_pub_fill_lease(ps_pub_t *pub)
{
    ps_publication_slot_t *slot = pub->slot;
    const int64_t wanted =
        ps_lease_share(atomic_load_explicit(&slot->spend, memory_order_acquire),
                       atomic_load_explicit(&slot->ordinal_limit, memory_order_acquire));
    if (wanted < 2 || (!ps_pub_holds_lease(pub) && !become_holder(pub))) {
        return false;
    }
    /* As in take(): the mark is there before the credits, and after the lease. */
    _Atomic uint64_t *place = ps_pub_spend_place(pub);
    uint32_t epoch = 0;
    atomic_store_explicit(place, ps_pub_spend_mark(pub, wanted), memory_order_relaxed);
    const int64_t taken = ps_spend_credits(&slot->spend, &slot->ordinal_limit, wanted, &epoch);
    atomic_store_explicit(&slot->lease, taken > 0 ? ps_lease_of(epoch, taken) : 0,
                          memory_order_release);
    atomic_store_explicit(place, 0, memory_order_release);
    return taken > 0;
}

void ps_pub_return_lease(ps_pub_t *pub)
{
    ps_publication_slot_t *slot = pub->slot;
    const uint64_t own = atomic_load_explicit(&pub->holder, memory_order_relaxed);
    if (own == 0 || ps_client_forked(pub->client) ||
        atomic_load_explicit(&slot->id, memory_order_acquire) != pub->slot_id ||
        atomic_load_explicit(&slot->lease_holder, memory_order_acquire) != own) {
        return;
    }
    /* As in take_leased(): the sender's barrier orders the mark before the loads. */
    _Atomic uint64_t *place = ps_pub_spend_place(pub);
    atomic_store_explicit(place, ps_pub_spend_mark(pub, PS_LEASE_MOST), memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    const int64_t leased = ps_spend_leased(slot);
    if (ps_lease_end(&slot->lease_holder, &slot->lease, own) && leased > 0) {
        ps_spend_return_credits(&slot->spend, leased);
        ps_client_request_to_check(pub->client, pub->slot_index);
    }
    atomic_store_explicit(place, 0, memory_order_release);
}

static int64_t take_credits(ps_pub_t *pub, int64_t wanted)
{
    const bool leases = pub->exclusive && may_lease(pub);
    const int64_t leased = leases || ps_pub_holds_lease(pub) ? take_leased(pub, wanted) : 0;
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
    const int64_t leased =
        pub->exclusive || ps_pub_holds_lease(pub) ? ps_spend_leased(pub->slot) : 0;
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
