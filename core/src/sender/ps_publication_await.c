/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_await.c: an adopted stream awaits the receivers that granted credits while the
 * dead daemon lived (docs/decisions/0350). A new daemon does not know these receivers. It has their
 * number, a filter of their ids, and the limit to which they had agreed. The filter
 * lacks a new receiver, so a new receiver takes no place of an awaited one.
 *
 * An id sets two bits of the filter. The sender takes a new receiver for an awaited one with a
 * probability of (1 - exp(-2 n / BITS))^2 if n receivers grant credits: 0.4 % at 10, 5 % at 40. */
#include <string.h>

#include "ps_publication_credit.h"
#include "ps_sender.h"

enum { BITS = PS_GRANTER_WORDS * 64 };

/* ---- the filter ------------------------------------------------------------------------------ */

typedef struct ps_granter_bits {
    uint32_t first;
    uint32_t second;
} ps_granter_bits_t;

/* Ids of other implementations may be small numbers: a multiplication spreads them. */
static ps_granter_bits_t bits_of(int64_t receiver_id)
{
    const uint64_t spread =
        ((uint64_t)receiver_id ^ ((uint64_t)receiver_id >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
    return (ps_granter_bits_t){ .first = (uint32_t)(spread >> 32) % BITS,
                                .second = (uint32_t)(spread & UINT32_MAX) % BITS };
}

static bool is_set(const uint64_t *filter, uint32_t bit)
{
    return (filter[bit / 64] >> (bit % 64) & 1) != 0;
}

static bool is_in(const uint64_t *filter, int64_t receiver_id)
{
    const ps_granter_bits_t bits = bits_of(receiver_id);
    return is_set(filter, bits.first) && is_set(filter, bits.second);
}

static void put(uint64_t *filter, int64_t receiver_id)
{
    const ps_granter_bits_t bits = bits_of(receiver_id);
    filter[bits.first / 64] |= UINT64_C(1) << (bits.first % 64);
    filter[bits.second / 64] |= UINT64_C(1) << (bits.second % 64);
}

/* ---- awaiting -------------------------------------------------------------------------------- */

void ps_publication_credit_await_granters(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    const int64_t count = atomic_load_explicit(&pub->slot->granter_count, memory_order_acquire);
    if (count <= 0) {
        return; /* local readers granted, whose slots are in shared memory */
    }
    for (int32_t i = 0; i < PS_GRANTER_WORDS; i++) {
        credits->granters[i] = atomic_load_explicit(&pub->slot->granters[i], memory_order_relaxed);
    }
    credits->awaits = true;
    credits->awaited = count < INT32_MAX ? (int32_t)count : INT32_MAX;
    credits->awaited_limit = credits->limit;
    credits->awaited_frozen = credits->revoked;
}

void ps_publication_credit_arrived(ps_publication_t *pub, int64_t receiver_id)
{
    ps_publication_credits_t *credits = &pub->credits;
    if (credits->awaited > 0 && is_in(credits->granters, receiver_id) &&
        !is_in(credits->arrived, receiver_id)) {
        put(credits->arrived, receiver_id);
        credits->awaited--;
    }
}

static bool is_granted(const ps_publication_t *pub)
{
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        if (pub->receivers[i].credit_limit != PS_CREDIT_OPEN) {
            return true;
        }
    }
    return pub->credits.readers > 0;
}

/* Receivers without credits cannot replace one that granted: the limit holds until a
 * receiver grants credits. */
bool ps_publication_credit_await(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_credits_t *credits = &pub->credits;
    const int64_t timeout_ns = pub->context->params.connection_timeout_ns;
    const int64_t stated_ns = pub->fc.counts_receivers ? pub->params.fc_receiver_timeout_ns : 0;
    if (credits->awaited_until_ns == 0) {
        credits->awaited_until_ns =
            now_ns + (stated_ns > 0 && stated_ns < timeout_ns ? stated_ns : timeout_ns);
    }
    return pub->connected && now_ns < credits->awaited_until_ns &&
           (credits->awaited > 0 || !is_granted(pub));
}

/* ---- for the next daemon --------------------------------------------------------------------- */

/* If this daemon dies while it awaits receivers of the old daemon, the next daemon awaits them
 * too. */
void ps_publication_credit_show_granters(ps_publication_t *pub)
{
    ps_publication_credits_t *credits = &pub->credits;
    ps_publication_slot_t *slot = pub->slot;
    uint64_t filter[PS_GRANTER_WORDS] = { 0 };
    int64_t count = credits->awaits ? credits->awaited : 0;
    credits->granters_changed = false;
    if (credits->awaits) {
        memcpy(filter, credits->granters, sizeof(filter));
    }
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        if (pub->receivers[i].credit_limit != PS_CREDIT_OPEN) {
            put(filter, pub->receivers[i].id);
            count++;
        }
    }
    for (int32_t i = 0; i < PS_GRANTER_WORDS; i++) {
        atomic_store_explicit(&slot->granters[i], filter[i], memory_order_relaxed);
    }
    atomic_store_explicit(&slot->granter_count, count, memory_order_release);
}
