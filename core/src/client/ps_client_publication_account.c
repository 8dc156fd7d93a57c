/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_account.c: the account of refusals (docs/spec/rules.md section 6).
 *
 * The sender states a cause only after it has checked the stream, so the first refusal of an
 * episode usually comes earlier. The handle counts such refusals and adds them to the next stated
 * cause. */
#include "ps_set_up.h"

#include "ps_client_publication.h"

#define CYCLE_MOST_NS INT64_C(100000000)

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

static void begin_episode(ps_pub_t *pub)
{
    if (atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed) == 0) {
        int64_t not_refused = 0;
        atomic_compare_exchange_strong_explicit(&pub->refused_since_ns, &not_refused, now(pub),
                                                memory_order_relaxed, memory_order_relaxed);
    }
}

int64_t ps_pub_refused(ps_pub_t *pub, int32_t cause, int64_t code)
{
    begin_episode(pub);
    if (cause == PS_CAUSE_NONE) {
        atomic_fetch_add_explicit(&pub->refused_early, 1, memory_order_relaxed);
    } else {
        charge_early(pub, cause);
        charge(pub, cause, 1);
        atomic_store_explicit(&pub->refused_cause, cause, memory_order_relaxed);
    }
    return code;
}

int64_t ps_pub_refuse_shut(ps_pub_t *pub)
{
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    if (atomic_load_explicit(&pub->closed, memory_order_relaxed)) {
        return PS_CLOSED;
    }
    return ps_pub_has_failed(pub) ? ps_pub_refuse_failed(pub)
                                  : ps_pub_refused(pub, PS_CAUSE_DAEMON_AWAY, PS_DAEMON_AWAY);
}

int32_t ps_pub_refused_cause(const ps_pub_t *pub)
{
    const ps_publication_slot_t *slot = pub->slot;
    const int32_t stated = atomic_load_explicit(&pub->refused_cause, memory_order_relaxed);
    /* The sender's time is that of the start of its duty cycle. */
    const int64_t from_ns =
        atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed) - CYCLE_MOST_NS;
    const int32_t last = atomic_load_explicit(&slot->last_cause, memory_order_relaxed);
    const bool bound_since =
        last != PS_CAUSE_NO_RECEIVER && /* its refusals state it at once */
        atomic_load_explicit(&slot->last_cause_ns, memory_order_relaxed) >= from_ns;
    return stated == PS_CAUSE_NONE && bound_since ? last : stated;
}

void ps_pub_accepted(ps_pub_t *pub)
{
    const int64_t since_ns =
        atomic_exchange_explicit(&pub->refused_since_ns, 0, memory_order_relaxed);
    if (since_ns == 0) {
        return; /* another thread of this publication was faster */
    }
    atomic_store_explicit(&pub->refused_cause, PS_CAUSE_NONE, memory_order_relaxed);
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

/* The word of another process: a time that makes no sense counts as none. */
int64_t ps_pub_retry_after_ns(const ps_pub_t *pub)
{
    const ps_driver_slot_t *driver = pub->client->shared->driver;
    /* Acquire, before the other word: a new time never comes with the word of an older sample. */
    const int64_t sampled_ns = atomic_load_explicit(&driver->pressure_ns, memory_order_acquire);
    const int64_t retry_ns = atomic_load_explicit(&driver->retry_after_ns, memory_order_relaxed);
    if (retry_ns <= 0 || retry_ns > PS_RETRY_MOST_NS ||
        atomic_load_explicit(&pub->slot->never_throttle, memory_order_relaxed) != 0) {
        return 0;
    }
    const int64_t age_ns = now(pub) - sampled_ns;
    return age_ns >= 0 && age_ns < PS_PRESSURE_STALE_NS ? retry_ns : 0;
}

/* Returns the code of a refusal, if the governor throttles no publisher. */
static int64_t code_of(int32_t cause)
{
    switch (cause) {
    case PS_CAUSE_CREDIT: return PS_NO_CREDIT;
    case PS_CAUSE_STORAGE: return PS_STORAGE;
    case PS_CAUSE_NAK_RATE:
    case PS_CAUSE_RATE_LIMIT: return PS_RATE_LIMITED;
    default: return PS_BACK_PRESSURED;
    }
}

int64_t ps_pub_unthrottle(ps_pub_t *pub)
{
    const int32_t cause = atomic_load_explicit(&pub->slot->cause, memory_order_relaxed);
    atomic_fetch_sub_explicit(&pub->slot->throttled, 1, memory_order_relaxed);
    charge(pub, PS_CAUSE_GOVERNOR, -1);
    return ps_pub_refused(pub, cause, code_of(cause));
}

bool ps_pub_follow_metering(ps_pub_t *pub)
{
    const int32_t metered =
        (int32_t)atomic_load_explicit(&pub->slot->metered, memory_order_acquire);
    if (metered == ps_pub_metered(pub)) {
        return false;
    }
    const bool credits = (metered & PS_METERED_CREDITS) != 0;
    if (pub->exclusive && !credits) { /* the sender added what the word had counted */
        pub->ordinal = atomic_load_explicit(&pub->slot->published_ordinal, memory_order_relaxed);
    }
    atomic_store_explicit(&pub->metered, metered, memory_order_relaxed);
    atomic_store_explicit(&pub->single_max,
                          metered != 0 || pub->policy != 0 ? -1 : pub->max_payload,
                          memory_order_relaxed);
    const int32_t frame = pub->max_payload < pub->max_message ? pub->max_payload : pub->max_message;
    atomic_store_explicit(&pub->credited_end, credits && pub->policy == 0 ? frame + 1 : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&pub->limit, credits ? &pub->slot->credited_limit : pub->plain_limit,
                          memory_order_relaxed);
    return true;
}

int64_t ps_pub_refuse(ps_pub_t *pub, int64_t position)
{
    if (atomic_load_explicit(&pub->log.meta->is_connected, memory_order_acquire) != 1) {
        return ps_pub_refused(pub, PS_CAUSE_NO_RECEIVER, PS_NOT_CONNECTED);
    }
    if (position >= pub->max_position) {
        return PS_MAX_POSITION_EXCEEDED;
    }
    if (ps_pub_follow_metering(pub)) {
        return PS_ADMIN_ACTION; /* the limit is in another place */
    }
    /* The sender checks the limit again: the cause may have passed, and the sender accounts for the
     * time. */
    if (pub->policy == 0) {
        ps_client_request_to_check(pub->client, pub->slot_index);
    } else {
        ps_pub_request_unless_paused(pub);
    }
    const int32_t cause = atomic_load_explicit(&pub->slot->cause, memory_order_relaxed);
    /* A stream without credits or ordinals may have room in its window. */
    if (cause != PS_CAUSE_STORAGE && position >= ps_pub_limit_now(pub) &&
        ps_pub_retry_after_ns(pub) > 0) {
        atomic_fetch_add_explicit(&pub->slot->throttled, 1, memory_order_relaxed);
        begin_episode(pub);
        charge(pub, PS_CAUSE_GOVERNOR, 1);
        return PS_THROTTLED;
    }
    return ps_pub_refused(pub, cause, code_of(cause));
}
