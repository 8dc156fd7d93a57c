/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_policy.c: publications with a policy of their own (docs/spec/rules.md
 * section 12).  Default streams never get here. */
#include "ps_client_publication.h"
#include "ps_policy.h"

static uint64_t policy_word(const ps_pub_t *pub)
{
    return atomic_load_explicit(&pub->slot->policy_word, memory_order_acquire);
}

static bool is_full(int64_t code)
{
    return code == PS_BACK_PRESSURED || code == PS_STORAGE;
}

bool ps_pub_has_failed(const ps_pub_t *pub)
{
    return pub->policy == PS_POLICY_ERROR && (policy_word(pub) & PS_POLICY_FAILED) != 0;
}

int64_t ps_pub_refuse_failed(ps_pub_t *pub)
{
    return ps_pub_refused(pub, atomic_load_explicit(&pub->slot->cause, memory_order_relaxed),
                          PS_FAILED);
}

int64_t ps_pub_policy_gate(ps_pub_t *pub)
{
    const uint64_t word = policy_word(pub);
    if (PS_LIKELY((word & (PS_POLICY_SHUT | PS_POLICY_FAILED)) == 0)) {
        return 0;
    }
    if ((word & PS_POLICY_FAILED) != 0) {
        return ps_pub_refuse_failed(pub);
    }
    const int64_t position = ps_log_producer_position(&pub->log);
    const int64_t code = ps_pub_refuse(pub, position);
    /* A rate shut the stream, if the log still has room. */
    const bool rated =
        (ps_pub_metered(pub) & (PS_METERED_RATE | PS_METERED_DEPTH)) == PS_METERED_RATE;
    return code == PS_BACK_PRESSURED && rated && position < ps_pub_limit_now(pub) ? PS_RATE_LIMITED
                                                                                  : code;
}

/* A paused stream takes no turn for messages that are refused: its consumers wake the sender. The
 * fence pairs with the sender's, which looks for drops after it has left the state. */
void ps_pub_request_unless_paused(const ps_pub_t *pub)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&pub->slot->watermark_state, memory_order_relaxed) !=
        PS_WATERMARK_PAUSED) {
        ps_client_request_to_check(pub->client, pub->slot_index);
    }
}

/* Counts what is dropped, and closes the stream until the sender has stated it in the log. */
static int64_t drop(ps_pub_t *pub, int64_t code, int64_t messages, int64_t bytes)
{
    if (code != PS_BACK_PRESSURED) {
        _Atomic int64_t *reason =
            code == PS_STORAGE ? &pub->slot->dropped_storage : &pub->slot->dropped_rate;
        atomic_fetch_add_explicit(reason, messages, memory_order_relaxed);
    }
    /* In this order: a sender that opens the stream in between has stated the count. */
    atomic_fetch_add_explicit(&pub->slot->policy_word, (uint64_t)messages, memory_order_acq_rel);
    atomic_fetch_or_explicit(&pub->slot->policy_word, PS_POLICY_SHUT, memory_order_acq_rel);
    atomic_fetch_add_explicit(&pub->slot->dropped_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&pub->slot->published_ordinal, messages, memory_order_relaxed);
    ps_pub_request_unless_paused(pub);
    return PS_DROPPED;
}

static int64_t fail(ps_pub_t *pub)
{
    const uint64_t before =
        atomic_fetch_or_explicit(&pub->slot->policy_word, PS_POLICY_FAILED, memory_order_acq_rel);
    if ((before & PS_POLICY_FAILED) == 0) {
        atomic_fetch_add_explicit(&pub->slot->failures, 1, memory_order_relaxed);
    }
    return PS_FAILED;
}

int64_t ps_pub_policy_refused(ps_pub_t *pub, int64_t code, int64_t messages, int64_t bytes)
{
    if (ps_policy_drops(pub->policy) && (is_full(code) || code == PS_RATE_LIMITED)) {
        return drop(pub, code, messages, bytes);
    }
    return pub->policy == PS_POLICY_ERROR && is_full(code) ? fail(pub) : code;
}

int ps_pub_reset(ps_pub_t *pub)
{
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    if (pub->policy != PS_POLICY_ERROR) {
        return ps_fail(PS_E_INVALID,
                       "stream %d has not ps-policy=error: there is no failure to reset",
                       pub->log.stream_id);
    }
    const uint64_t before =
        atomic_fetch_and_explicit(&pub->slot->policy_word, ~PS_POLICY_FAILED, memory_order_acq_rel);
    return (before & PS_POLICY_FAILED) != 0;
}

int32_t ps_pub_is_failed(const ps_pub_t *pub)
{
    return !ps_client_forked(pub->client) && ps_pub_has_failed(pub);
}
