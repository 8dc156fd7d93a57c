/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_unblock.c: claims that are never completed (docs/spec/log-buffer.md,
 * docs/spec/rules.md section 3). A dead claimer's claim is padded over at once; one that merely
 * stopped is padded over after a time-out, and its memory is quarantined until it answers or
 * dies. */
#include "ps_sender.h"
#include "ps_assert.h"

enum { WALK_STEPS = 1 << 20, EXCLUSIVE_STEPS = 64, IDLE_CHECKS = 4 };

/* Client slot of the claim word at position if it names a living client, else -1. */
static int32_t living_claimer(const ps_publication_t *pub, int64_t position, int64_t *client_id)
{
    const ps_shared_t *shared = pub->context->params.shared;
    const uint64_t word =
        atomic_load_explicit(ps_frame_word(ps_frame_at(&pub->log, position)), memory_order_acquire);
    const uint32_t slot = (uint32_t)(word >> 32);
    if (pub->params.exclusive || (int32_t)(uint32_t)word >= 0 ||
        slot >= (uint32_t)shared->n_clients) {
        return -1;
    }
    *client_id = atomic_load_explicit(&shared->clients[slot].id, memory_order_acquire);
    return *client_id == 0 ? -1 : (int32_t)slot;
}

/* A client with several lost claims answers once for each. Its memory is released after the last
 * answer, because an answer does not name its claim. */
static void quarantine(ps_publication_t *pub, ps_publication_quarantine_t entry)
{
    for (int32_t i = 0; i < pub->quarantine_count; i++) {
        const ps_publication_quarantine_t *other = &pub->quarantine[i];
        if (other->client_slot == entry.client_slot && other->client_id == entry.client_id &&
            other->claims_lost >= entry.claims_lost) {
            entry.claims_lost = other->claims_lost + 1;
        }
    }
    for (int32_t i = 0; i < pub->quarantine_count; i++) {
        ps_publication_quarantine_t *other = &pub->quarantine[i];
        if (other->client_slot == entry.client_slot && other->client_id == entry.client_id) {
            other->claims_lost = entry.claims_lost;
        }
    }
    PS_ASSERT(pub->quarantine_count < PS_PUBLICATION_QUARANTINE);
    pub->quarantine[pub->quarantine_count++] = entry;
}

/* Pads over the claim at position. owner_may_return: quarantine its memory. Returns the bytes. */
static int32_t pad_over(ps_publication_t *pub, int64_t position, int32_t only_claimer,
                        bool owner_may_return)
{
    const ps_shared_t *shared = pub->context->params.shared;
    ps_publication_quarantine_t entry = { .client_slot = -1, .from = position };
    int32_t claimer = -1;
    if (owner_may_return) {
        entry.client_slot = living_claimer(pub, position, &entry.client_id);
        if (entry.client_slot >= 0 && pub->quarantine_count == PS_PUBLICATION_QUARANTINE) {
            return 0; /* no quarantine entry is free: stay blocked until a claimer answers */
        }
        if (entry.client_slot >= 0) { /* before the padding: the answer may come at once */
            entry.claims_lost =
                1 + atomic_load_explicit(&shared->clients[entry.client_slot].claims_lost,
                                         memory_order_acquire);
        }
    }
    const int32_t bytes = ps_log_unblock(&pub->log, position, only_claimer, &claimer);
    if (bytes <= 0) {
        return 0;
    }
    if (entry.client_slot >= 0 && claimer == entry.client_slot) {
        entry.to = position + bytes;
        quarantine(pub, entry);
    }
    pub->unblocked_at = position;
    pub->unblocked_bytes = bytes;
    pub->pending |= PS_PEND_UNBLOCKED;
    ps_system_add(pub->context, PS_SYS_UNBLOCKED_PUBLICATIONS, 1);
    ps_sender_ready(ps_publication_sender(pub), pub);
    ps_publication_wake_subscribers(pub); /* what lies behind can be read now */
    return bytes;
}

/* Pads over all claims of client_slot between consumer and producer. Unclaimed ranges stay. */
static void walk_claims(ps_publication_t *pub, int32_t client_slot)
{
    int64_t position;
    (void)ps_publication_is_blocked(pub, &position);
    for (int32_t i = 0; i < WALK_STEPS && position < pub->producer_position; i++) {
        const uint64_t word = atomic_load_explicit(ps_frame_word(ps_frame_at(&pub->log, position)),
                                                   memory_order_acquire);
        const int64_t length = (int32_t)(uint32_t)word;
        int64_t span = ps_align32_64(length < 0 ? -length : length);
        span = span < PS_FRAME_ALIGNMENT ? PS_FRAME_ALIGNMENT : span;
        if ((position & pub->log.term_mask) + span > ps_publication_term(pub)) {
            return; /* not a valid length */
        }
        if (length < 0 && (uint32_t)(word >> 32) == (uint32_t)client_slot) {
            (void)pad_over(pub, position, client_slot, false);
        }
        position += span;
    }
}

void ps_publication_unblock_client(ps_publication_t *pub, int32_t client_slot, int64_t now_ns)
{
    int64_t position;
    if (client_slot >= 0) { /* the client may have died between commit and notification */
        ps_publication_check_again(pub);
    }
    (void)ps_publication_update(pub, pub->turn.queued, now_ns);
    if (client_slot >= 0 && !pub->params.exclusive) {
        walk_claims(pub, client_slot);
    } else {
        /* Only the owner of an exclusive log could have filled its ranges. */
        const int32_t steps = client_slot >= 0 ? EXCLUSIVE_STEPS : 1;
        (void)ps_publication_is_blocked(pub, &position);
        for (int32_t i = 0; i < steps && position < pub->producer_position; i++) {
            const int32_t length = ps_frame_length_acquire(ps_frame_at(&pub->log, position));
            const int32_t bytes =
                length > 0 ? ps_align32(length) : pad_over(pub, position, -1, client_slot < 0);
            if (bytes <= 0) {
                break;
            }
            position += bytes;
        }
    }
    ps_publication_due(pub, now_ns);
}

static void report_blocked(ps_publication_t *pub, int64_t position, int64_t now_ns)
{
    int64_t client_id;
    const ps_event_t event = { .type = PS_EV_PUB_BLOCKED,
                               .kind = PS_KIND_PUBLICATION,
                               .id = pub->id,
                               .now_ns = now_ns,
                               .blocked = { .position = position,
                                            .client_slot =
                                                living_claimer(pub, position, &client_id) } };
    if (ps_agent_emit(pub->sender->agent, &event)) {
        pub->blocked_reported = position + 1;
    }
}

int64_t ps_publication_check_blocked(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t timeout_ns = pub->context->params.unblock_timeout_ns;
    const int64_t check_ns = ps_publication_check_interval_ns(pub);
    const bool draining = pub->state != PS_PUBLICATION_ACTIVE;
    int64_t position;
    const bool blocked = ps_publication_is_blocked(pub, &position);
    if (!blocked) {
        pub->blocked_position = -1;
        return now_ns + IDLE_CHECKS * check_ns; /* a commit behind a claim makes us look earlier */
    }
    if (position != pub->blocked_position) {
        pub->blocked_position = position;
        pub->blocked_since_ns = now_ns;
    }
    if (draining) { /* all claimers have released their memory */
        return pad_over(pub, position, -1, false) > 0 ? now_ns : now_ns + check_ns;
    }
    const int64_t stood_ns = now_ns - pub->blocked_since_ns;
    if (stood_ns >= timeout_ns && !pub->params.exclusive) {
        return pad_over(pub, position, -1, true) > 0 ? now_ns : now_ns + check_ns;
    }
    if (stood_ns >= check_ns && pub->blocked_reported != position + 1) {
        report_blocked(pub, position, now_ns);
    }
    const int64_t act_ns = pub->blocked_since_ns + timeout_ns;
    return act_ns > now_ns && act_ns < now_ns + check_ns ? act_ns : now_ns + check_ns;
}
