/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_open.c: opening and closing publications, constants, positions, claims. */
#include <stdlib.h>

#include "ps_client_publication.h"
#include "ps_policy.h"

static int ps_pub_check(ps_pub_t *pub, const ps_pub_params_t *params)
{
    const ps_client_t *client = pub->client;
    if (params->publication_slot < 0 ||
        params->publication_slot >= client->shared->n_publications) {
        return ps_fail(PS_E_INVALID, "publication slot %d is not in 0..%d",
                       params->publication_slot, client->shared->n_publications - 1);
    }
    if (params->limit_counter_id < 0 || params->limit_counter_id >= client->counters) {
        return ps_fail(PS_E_INVALID, "limit counter %d is not in 0..%d", params->limit_counter_id,
                       client->counters - 1);
    }
    const int32_t type = params->exclusive ? PS_LOG_EXCLUSIVE : PS_LOG_CONCURRENT;
    if (pub->log.type != type && !(params->exclusive && pub->log.type == PS_LOG_SEALED)) {
        return ps_fail(PS_E_CORRUPT, "%s: log of type %d, %d expected", params->log_path,
                       pub->log.type, type);
    }
    const int32_t eighth = pub->log.term_length / 8;
    const int32_t most = eighth < PS_MESSAGE_MAX ? eighth : PS_MESSAGE_MAX;
    if (params->max_message_bytes < 0 || params->max_message_bytes > most) {
        return ps_fail(PS_E_INVALID, "message limit %d is not in 0..%d", params->max_message_bytes,
                       most);
    }
    pub->max_message = params->max_message_bytes > 0 ? params->max_message_bytes : most;
    /* A frame of mtu bytes may exceed T/8 with the smallest terms; it still fits a term. */
    pub->max_payload = pub->log.mtu - PS_HEADER_BYTES;
    return PS_OK;
}

/* Returns the policy if publishers must apply it themselves, else PS_POLICY_NONE. */
static int32_t policy_of(const ps_pub_t *pub)
{
    const int32_t policy = atomic_load_explicit(&pub->slot->policy, memory_order_acquire);
    return policy == PS_POLICY_ERROR || (ps_policy_drops(policy) && !pub->exclusive)
               ? policy
               : PS_POLICY_NONE;
}

/* An exclusive publisher continues at the log's tail. */
static int ps_pub_resume(ps_pub_t *pub, const char *path)
{
    const ps_log_t *log = &pub->log;
    const int32_t count = atomic_load_explicit(&log->meta->active_term_count, memory_order_acquire);
    const int64_t raw = atomic_load_explicit(&log->meta->tail[(uint32_t)count % PS_PARTITIONS],
                                             memory_order_acquire);
    const int32_t term_id = (int32_t)(raw >> 32);
    const uint32_t offset = (uint32_t)raw;
    if (count < 0 || ps_wrap_sub(term_id, log->initial_term_id) != count ||
        offset > (uint32_t)log->term_length || offset % PS_FRAME_ALIGNMENT != 0) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible tail: term count %d, term id %d, offset %u",
                       path, count, term_id, offset);
    }
    pub->term_count = count;
    pub->term_id = term_id;
    pub->term_offset = (int32_t)offset;
    pub->ordinal = atomic_load_explicit(&pub->slot->published_ordinal, memory_order_relaxed);
    /* The lease of an earlier publisher ends here. */
    atomic_store_explicit(&pub->slot->lease, 0, memory_order_release);
    return PS_OK;
}

/* Publication objects have numbers in turn. */
static _Atomic uint32_t next_handle;

int ps_pub_open(ps_client_t *client, const ps_pub_params_t *params, ps_pub_t **out)
{
    *out = NULL;
    if (ps_client_forked(client)) {
        return ps_client_fail_forked();
    }
    ps_pub_t *pub = calloc(1, sizeof *pub);
    if (pub == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a publication");
    }
    pub->client = client;
    int code = ps_log_map(params->log_path, 0, &pub->log);
    if (code != PS_OK) {
        free(pub);
        return code;
    }
    code = ps_pub_check(pub, params);
    if (code == PS_OK) {
        pub->plain_limit = ps_counter_cell(client->cnc, params->limit_counter_id);
        atomic_init(&pub->limit, pub->plain_limit);
        pub->slot = &client->shared->publications[params->publication_slot];
        pub->slot_index = params->publication_slot;
        pub->registration_id = params->registration_id;
        /* Clients that share a publication have registrations of their own. */
        pub->slot_id = atomic_load_explicit(&pub->slot->id, memory_order_acquire);
        pub->exclusive = params->exclusive != 0;
        pub->handle = atomic_fetch_add_explicit(&next_handle, 1, memory_order_relaxed);
        pub->policy = policy_of(pub);
        atomic_init(&pub->single_max, pub->policy != 0 ? -1 : pub->max_payload);
        (void)ps_pub_follow_metering(pub);
        pub->max_position = (int64_t)pub->log.term_length << 31;
        if (pub->exclusive) {
            code = ps_pub_resume(pub, params->log_path);
        }
    }
    if (code != PS_OK) {
        ps_pub_close(pub);
        return code;
    }
    *out = pub;
    return PS_OK;
}

void ps_pub_close(ps_pub_t *pub)
{
    if (pub != NULL) {
        ps_pub_return_lease(pub);
        ps_log_unmap(&pub->log);
        free(pub);
    }
}

void ps_pub_mark_closed(ps_pub_t *pub)
{
    atomic_store_explicit(&pub->closed, 1, memory_order_release);
}

void ps_pub_get_constants(const ps_pub_t *pub, ps_pub_constants_t *out)
{
    out->registration_id = pub->registration_id;
    out->session_id = pub->log.session_id;
    out->stream_id = pub->log.stream_id;
    out->initial_term_id = pub->log.initial_term_id;
    out->term_length = pub->log.term_length;
    out->mtu = pub->log.mtu;
    out->max_payload_bytes = pub->max_payload;
    out->max_message_bytes = pub->max_message;
    out->window_bytes = pub->log.meta->publication_window;
    out->max_position = pub->max_position;
}

/* ---- positions ------------------------------------------------------------------------------- */

static int ps_pub_is_closed(const ps_pub_t *pub)
{
    return atomic_load_explicit(&pub->closed, memory_order_acquire);
}

static int64_t ps_pub_position_now(const ps_pub_t *pub)
{
    if (pub->exclusive) {
        return ((int64_t)pub->term_count << pub->log.shift) + pub->term_offset;
    }
    return ps_log_producer_position(&pub->log);
}

int64_t ps_pub_position(const ps_pub_t *pub)
{
    return ps_pub_is_closed(pub) ? PS_CLOSED : ps_pub_position_now(pub);
}

/* The limit is in another place while receivers grant credits. An offer follows a change, but who
 * waits for a change of the limit makes no offer. */
static int64_t limit_in_force(const ps_pub_t *pub)
{
    const uint32_t metered = atomic_load_explicit(&pub->slot->metered, memory_order_acquire);
    const _Atomic int64_t *limit =
        (metered & PS_METERED_CREDITS) != 0 ? &pub->slot->credited_limit : pub->plain_limit;
    return atomic_load_explicit(limit, memory_order_acquire);
}

int64_t ps_pub_limit(const ps_pub_t *pub)
{
    return ps_pub_is_closed(pub) ? PS_CLOSED : limit_in_force(pub);
}

int64_t ps_pub_available_window(const ps_pub_t *pub)
{
    if (ps_pub_is_closed(pub)) {
        return PS_CLOSED;
    }
    const int64_t window = limit_in_force(pub) - ps_pub_position_now(pub);
    return window > 0 ? window : 0;
}

int32_t ps_pub_is_connected(const ps_pub_t *pub)
{
    return !ps_pub_is_closed(pub) &&
           atomic_load_explicit(&pub->log.meta->is_connected, memory_order_acquire) == 1;
}

int ps_pub_pressure(const ps_pub_t *pub, ps_pressure_view_t *out)
{
    const ps_shared_t *shared = pub->client->shared;
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    if (atomic_load_explicit(&pub->slot->id, memory_order_acquire) != pub->slot_id) {
        return ps_fail(PS_E_INVALID, "publication %lld has gone: its slot belongs to another",
                       (long long)pub->registration_id);
    }
    const int code = ps_slot_read_pressure(shared, pub->slot_index, out);
    out->refused_since_ns = atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed);
    out->refused_cause = out->refused_since_ns != 0 ? ps_pub_refused_cause(pub) : PS_CAUSE_NONE;
    if (code == PS_OK && out->counter_id >= 0 && out->counter_id < pub->client->counters) {
        const int64_t behind =
            ps_pub_position(pub) - ps_client_counter_get(pub->client, out->counter_id);
        out->backlog_bytes = behind > 0 ? behind : 0;
    }
    if (code == PS_OK) {
        out->retry_after_ns = ps_pub_retry_after_ns(pub);
    }
    return code;
}

void ps_pub_want_room(ps_pub_t *pub)
{
    if (ps_client_forked(pub->client)) {
        return;
    }
    /* Pairs with the sender: limit store, then want_room load. */
    atomic_store_explicit(&pub->slot->want_room, 1, memory_order_seq_cst);
    ps_client_request_to_check(pub->client, pub->slot_index);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Inlined twice: a stream without a message rate and a policy must not pay for them. */
__attribute__((always_inline)) static inline int64_t ps_pub_claim_open(ps_pub_t *pub, size_t length,
                                                                       bool metered,
                                                                       ps_claim_t *claim)
{
    const int32_t frame_length = (int32_t)length + PS_HEADER_BYTES;
    const int32_t required = ps_align32(frame_length);
    const int64_t taken = metered ? ps_pub_take(pub, 1, &claim->epoch) : 1;
    if (PS_UNLIKELY(taken <= 0)) {
        return taken;
    }
    ps_space_t space;
    int64_t code = ps_pub_reserve(pub, required, &space);
    if (PS_UNLIKELY(code != 0)) {
        if (code == PS_ADMIN_ACTION) {
            ps_pub_dirty(pub);
        }
    } else if (PS_UNLIKELY(!ps_pub_claim(pub, space.at, frame_length))) {
        code = PS_ADMIN_ACTION;
    }
    if (metered) {
        ps_pub_untake(pub, code != 0, claim->epoch);
        ps_pub_taken(pub, claim->epoch);
    }
    if (PS_UNLIKELY(code != 0)) {
        return code;
    }
    ps_pub_header(pub, &space, 0, 0);
    claim->data = space.at + PS_HEADER_BYTES;
    claim->length = length;
    claim->position = space.position + required;
    claim->frame = space.at;
    return claim->position;
}

__attribute__((noinline)) static int64_t ps_pub_claim_special(ps_pub_t *pub, size_t length,
                                                              ps_claim_t *claim)
{
    int64_t position = pub->policy != 0 ? ps_pub_policy_gate(pub) : 0;
    if (ps_pub_metered(pub) != 0) {
        (void)ps_pub_follow_metering(pub);
    }
    if (position == 0) {
        position = ps_pub_claim_open(pub, length, ps_pub_metered(pub) != 0, claim);
    }
    return position > 0 || pub->policy == 0
               ? position
               : ps_pub_policy_refused(pub, position, 1, (int64_t)length);
}

int64_t ps_pub_try_claim(ps_pub_t *pub, size_t length, ps_claim_t *claim)
{
    memset(claim, 0, sizeof *claim);
    const int64_t gate = ps_pub_gate(pub);
    if (PS_UNLIKELY(gate != 0)) {
        return gate;
    }
    const int32_t longest =
        pub->max_payload < pub->max_message ? pub->max_payload : pub->max_message;
    if (PS_UNLIKELY(length > (size_t)longest)) {
        return ps_pub_fail_length(pub, length > INT64_MAX ? INT64_MAX : (int64_t)length, longest);
    }
    return PS_LIKELY(ps_pub_single_max(pub) >= 0) ? ps_pub_claim_open(pub, length, false, claim)
                                                  : ps_pub_claim_special(pub, length, claim);
}

/* Checks a claim and takes it away from the caller, so that it is used once. */
static uint8_t *ps_claim_take(const ps_pub_t *pub, ps_claim_t *claim, int32_t *frame_length)
{
    uint8_t *at = claim->frame;
    claim->frame = NULL;
    claim->data = NULL;
    if (at == NULL || claim->length > (size_t)pub->max_payload || at < pub->log.map ||
        at + PS_HEADER_BYTES > pub->log.map + pub->log.map_length) {
        ps_fail(PS_E_INVALID, "this claim is not open");
        return NULL;
    }
    *frame_length = (int32_t)claim->length + PS_HEADER_BYTES;
    return at;
}

int ps_pub_commit(ps_pub_t *pub, ps_claim_t *claim, int64_t reserved_value)
{
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    int32_t frame_length = 0;
    uint8_t *at = ps_claim_take(pub, claim, &frame_length);
    if (at == NULL) {
        return PS_E_INVALID;
    }
    ps_frame_reserved((ps_frame_t *)(void *)at, reserved_value);
    if (!ps_pub_settle(pub, at, frame_length, frame_length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA)) {
        ps_pub_untake_padded(pub, claim->epoch);
        return (int)ps_pub_fail_unblocked(pub, claim->position - ps_align32(frame_length));
    }
    ps_pub_count_metered(pub, 1);
    ps_pub_dirty(pub);
    return PS_OK;
}

int ps_pub_abort(ps_pub_t *pub, ps_claim_t *claim)
{
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    int32_t frame_length = 0;
    uint8_t *at = ps_claim_take(pub, claim, &frame_length);
    if (at == NULL) {
        return PS_E_INVALID;
    }
    ps_pub_retake(pub, claim->epoch);
    if (ps_pub_settle(pub, at, frame_length, frame_length, PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD)) {
        ps_pub_untake(pub, 1, claim->epoch);
    } else { /* the daemon made the same PAD of it */
        ps_pub_untake_padded(pub, claim->epoch);
    }
    ps_pub_taken(pub, claim->epoch);
    ps_pub_dirty(pub);
    return PS_OK;
}
