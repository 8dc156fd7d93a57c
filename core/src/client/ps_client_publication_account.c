/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_account.c: the account of refusals (docs/spec/rules.md section 6).
 *
 * The sender binds a cause after it has looked, so the first refusal of an episode usually comes
 * before.  Such refusals are kept in the handle and charged to the cause that the sender bound
 * next. */
#include "ps_set_up.h"

#include "ps_client_publication.h"

void ps_pub_set_clock(ps_pub_t *pub, const int64_t *now_ns)
{
    pub->clock_ns = now_ns;
}

static int64_t now(const ps_pub_t *pub)
{
    return pub->clock_ns != NULL ? *pub->clock_ns : ps_monotonic_ns();
}

static void charge(ps_pub_t *pub, int32_t cause, int64_t refusals)
{
    const bool known = cause > PS_CAUSE_NONE && cause < PS_CAUSE_COUNT;
    atomic_fetch_add_explicit(&pub->slot->refused[known ? cause : PS_CAUSE_NONE], refusals,
                              memory_order_relaxed);
}

static void charge_early(ps_pub_t *pub, int32_t cause)
{
    const int64_t early = atomic_exchange_explicit(&pub->refused_early, 0, memory_order_relaxed);
    if (early > 0) {
        charge(pub, cause, early);
    }
}

int64_t ps_pub_refused(ps_pub_t *pub, int32_t cause, int64_t code)
{
    if (atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed) == 0) {
        int64_t not_refused = 0;
        atomic_compare_exchange_strong_explicit(&pub->refused_since_ns, &not_refused, now(pub),
                                                memory_order_relaxed, memory_order_relaxed);
    }
    if (cause == PS_CAUSE_NONE) {
        atomic_fetch_add_explicit(&pub->refused_early, 1, memory_order_relaxed);
    } else {
        charge_early(pub, cause);
        charge(pub, cause, 1);
    }
    return code;
}

void ps_pub_accepted(ps_pub_t *pub)
{
    const int64_t since_ns =
        atomic_exchange_explicit(&pub->refused_since_ns, 0, memory_order_relaxed);
    if (since_ns == 0) {
        return; /* another thread of this publication was faster */
    }
    const int64_t now_ns = now(pub);
    const ps_publication_slot_t *slot = pub->slot;
    const bool bound_since =
        atomic_load_explicit(&slot->last_cause_ns, memory_order_relaxed) >= since_ns;
    charge_early(pub, bound_since ? atomic_load_explicit(&slot->last_cause, memory_order_relaxed)
                                  : PS_CAUSE_NONE);
    if (now_ns > since_ns) {
        atomic_fetch_add_explicit(&pub->slot->refused_ns, now_ns - since_ns, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&pub->slot->refused_episodes, 1, memory_order_relaxed);
}
