/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_api.c: making and unmaking publications; the conductor's calls.
 */
#include "ps_set_up.h"

#include "ps_account.h"
#include "ps_publication.h"

#include "ps_assert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_driver_state.h"
#include "ps_sender.h"

#define NEVER_NS (INT64_MIN / 2)

static _Atomic int64_t *cell_or_unused(ps_publication_t *pub, int32_t counter_id)
{
    return counter_id < 0 ? &pub->unused_cell
                          : ps_counter_cell(pub->context->params.cnc, counter_id);
}

static void bind_cells(ps_publication_t *pub)
{
    const ps_publication_params_t *params = &pub->params;
    pub->limit_cell = cell_or_unused(pub, params->publisher_limit_counter_id);
    pub->position_cell = cell_or_unused(pub, params->publisher_position_counter_id);
    pub->sender_position_cell = cell_or_unused(pub, params->sender_position_counter_id);
    pub->sender_limit_cell = cell_or_unused(pub, params->sender_limit_counter_id);
    pub->back_pressure_cell = cell_or_unused(pub, params->back_pressure_counter_id);
    pub->naks_cell = cell_or_unused(pub, params->naks_counter_id);
    pub->receivers_cell = cell_or_unused(pub, params->receivers_counter_id);
}

/* Returns where publishers find their limit. */
static const _Atomic int64_t *shown_limit(const ps_publication_t *pub)
{
    const uint32_t metered = atomic_load_explicit(&pub->slot->metered, memory_order_acquire);
    return (metered & PS_METERED_CREDITS) != 0 ? &pub->slot->credited_limit : pub->limit_cell;
}

/* Checks the positions of an adopted publication against each other, because another process wrote
 * them. */
static int check_adopted(const ps_publication_t *pub, int64_t sent, int64_t limit, int64_t producer)
{
    const int64_t start = pub->params.start_position;
    const int64_t term = ps_publication_term(pub);
    const bool network = pub->endpoint != NULL;
    if (pub->log.meta->correlation_id != pub->id || start < 0 || producer < start ||
        (producer & (PS_FRAME_ALIGNMENT - 1)) != 0 ||
        (network && (sent < start || sent > producer || producer - sent > 2 * term ||
                     (sent & (PS_FRAME_ALIGNMENT - 1)) != 0)) ||
        limit < start || limit > producer + 2 * term) {
        return ps_fail(PS_E_CORRUPT,
                       "publication %lld: start %lld, sent %lld, producer %lld and limit %lld do "
                       "not fit its log",
                       (long long)pub->id, (long long)start, (long long)sent, (long long)producer,
                       (long long)limit);
    }
    return PS_OK;
}

/* Returns the number of messages below position, counted from the newest index entry at or below
 * it; -1 unknown. */
static int64_t count_from_index(const ps_publication_t *pub, int64_t position)
{
    const uint64_t count = atomic_load_explicit(&pub->ring->count, memory_order_relaxed);
    for (uint64_t i = count; i > 0 && count - i < PS_INDEX_ENTRIES; i--) {
        ps_index_entry_t *entry = &pub->ring->entries[(i - 1) % PS_INDEX_ENTRIES];
        int64_t at = atomic_load_explicit(&entry->position, memory_order_relaxed);
        int64_t ordinal =
            ps_believed_ordinal(atomic_load_explicit(&entry->ordinal, memory_order_relaxed));
        if (at > position) {
            continue;
        }
        if (ordinal < 0 || at < pub->params.start_position ||
            position - at > ps_publication_term(pub) || (at & (PS_FRAME_ALIGNMENT - 1)) != 0) {
            return -1;
        }
        while (at < position) {
            const ps_frame_t *frame = ps_frame_at(&pub->log, at);
            const int32_t length = ps_frame_length_acquire(frame);
            if (length < PS_HEADER_BYTES ||
                length > ps_publication_term(pub) - (at & pub->log.term_mask)) {
                return -1;
            }
            ordinal += ps_frame_messages(frame);
            at += ps_align32(length);
        }
        return at == position ? ordinal : -1;
    }
    return -1;
}

/* Returns the time at which the dead daemon was last known to live; 0: it stopped in order, and has
 * stated its absence in the accounts. */
static int64_t dead_since(const ps_context_t *context)
{
    const int64_t alive_ms = ps_cnc_alive_until(context->params.cnc);
    return alive_ms <= 0 || alive_ms > INT64_MAX / 1000000
               ? 0
               : alive_ms * 1000000 - ps_context_epoch_offset_ns(context);
}

/* Continues at a dead daemon's positions. The zeroed range is not recorded, but the publisher limit
 * is: producers may write in the limit's term, so all memory up to that term's end was zeroed. A
 * producer at the first position of a term may have rotated to it without room to write, so that
 * term proves nothing. Zeroing continues with the next term, whose partition holds the term two
 * before: no producer can have written there, and the usual rule (a term behind the consumers)
 * decides when to zero it. */
static int take_over(ps_publication_t *pub, int64_t producer)
{
    const int64_t sent = atomic_load_explicit(pub->sender_position_cell, memory_order_acquire);
    const int64_t limit = atomic_load_explicit(shown_limit(pub), memory_order_acquire);
    const int64_t furthest = (limit > producer ? limit : producer) - 1; /* -1: nothing, ever */
    ps_account_adopt(pub->slot, dead_since(pub->context));
    const int result = check_adopted(pub, sent, limit, producer);
    if (result != PS_OK) {
        return result;
    }
    pub->connected = atomic_load_explicit(&pub->log.meta->is_connected, memory_order_acquire) == 1;
    pub->adopted_connection = pub->connected;
    pub->status_connected = pub->connected;
    pub->receivers_shown = (int32_t)atomic_load_explicit(pub->receivers_cell, memory_order_relaxed);
    pub->publisher_limit = limit;
    pub->sender_position = sent;
    if (pub->endpoint == NULL) { /* the readers' positions decide; without readers, the limit was
                                  * lowered to them */
        pub->sender_position = pub->connected || limit > producer ? producer : limit;
    }
    pub->clean_position = ((furthest >> pub->log.shift) - 2) * ps_publication_term(pub);
    if (pub->clean_position < pub->params.start_position) {
        pub->clean_position = pub->params.start_position;
    }
    if (pub->clean_position < pub->params.kept_position) { /* zeroing would allocate the released
                                                            * memory again */
        pub->clean_position = pub->params.kept_position;
    }
    const int64_t counted =
        pub->endpoint != NULL ? count_from_index(pub, pub->sender_position) : -1;
    pub->sent_ordinal = counted >= 0 ? counted
                                     : ps_believed_ordinal(atomic_load_explicit(
                                           &pub->slot->sent_ordinal, memory_order_relaxed));
    return PS_OK;
}

static int set_start(ps_publication_t *pub)
{
    const int64_t producer = ps_log_producer_position(&pub->log);
    /* Clients can write the tails as soon as the file exists. */
    if (producer < 0 || (producer & (PS_FRAME_ALIGNMENT - 1)) != 0) {
        return ps_fail(PS_E_CORRUPT, "publication %lld: the log's tail states position %lld",
                       (long long)pub->id, (long long)producer);
    }
    pub->sender_position = producer;
    pub->publisher_limit = producer;
    pub->clean_position = producer;
    if (pub->params.adopted) {
        const int result = take_over(pub, producer);
        if (result != PS_OK) {
            return result;
        }
    }
    const int64_t start = pub->sender_position;
    pub->sender_limit = start;
    pub->producer_position = producer;
    pub->consumer_position = start;
    pub->blocked_position = -1;
    pub->index_position = start;
    pub->timed_position = start;
    pub->sent_ordinal = pub->sent_ordinal < 0 ? 0 : pub->sent_ordinal;
    pub->reserved_position = pub->params.reserved_position;
    pub->kept_position = pub->params.kept_position;
    if (!pub->params.adopted) {
        pub->kept_position = producer & ~(int64_t)pub->log.term_mask;
    }
    pub->rests_at = -1;
    pub->setup_sent_ns = NEVER_NS;
    pub->priority_until_ns = NEVER_NS;
    pub->partial_since_ns = -1;
    pub->join_notified_ns = NEVER_NS;
    pub->data_sent_ns = NEVER_NS;
    pub->heartbeat_sent_ns = NEVER_NS;
    pub->term_needed_ns = NEVER_NS;
    atomic_store_explicit(pub->sender_position_cell, start, memory_order_release);
    atomic_store_explicit(pub->sender_limit_cell, start, memory_order_release);
    atomic_store_explicit(pub->position_cell, producer, memory_order_release);
    ps_publication_credit_init(pub);
    if (!pub->credits.on) {
        atomic_store_explicit(pub->limit_cell, pub->publisher_limit, memory_order_release);
    }
    atomic_store_explicit(&pub->status_consumer, start, memory_order_relaxed);
    atomic_store_explicit(&pub->slot->wake_position, INT64_MAX, memory_order_relaxed);
    return PS_OK;
}

static int set_up_network(ps_publication_t *pub)
{
    const ps_driver_params_t *defaults = &pub->context->params;
    const ps_publication_params_t *params = &pub->params;
    const ps_fc_params_t strategy = { .kind = params->flow_control,
                                      .group_min_size = params->fc_group_min_size,
                                      .receiver_timeout_ns = params->fc_receiver_timeout_ns,
                                      .group_tag = params->fc_group_tag,
                                      .on_late = params->fc_on_late };
    const int result = ps_fc_init(&pub->fc, &strategy, pub->log.term_length, defaults->seed);
    if (result != PS_OK) {
        return result;
    }
    pub->fc.mtu = pub->log.mtu;
    pub->receiver_capacity =
        params->group ? PS_PUBLICATION_RECEIVERS_GROUP : PS_PUBLICATION_RECEIVERS_UNICAST;
    pub->receivers = calloc((size_t)pub->receiver_capacity, sizeof(*pub->receivers));
    const int mapped = ps_map_init(&pub->receiver_index, pub->receiver_capacity,
                                   defaults->seed ^ (uint64_t)pub->id);
    if (mapped != PS_OK) {
        return mapped;
    }
    pub->retransmit.capacity = !params->group                       ? PS_RESEND_MAX
                               : params->max_resend <= 0            ? 16
                               : params->max_resend > PS_RESEND_MAX ? PS_RESEND_MAX
                                                                    : params->max_resend;
    pub->retransmit.delay_ns = defaults->retransmit_delay_ns;
    pub->retransmit.linger_ns = defaults->retransmit_linger_ns;
    pub->retransmit.actions =
        calloc((size_t)pub->retransmit.capacity, sizeof(*pub->retransmit.actions));
    pub->snapshot = ps_snapshot_make(pub->receiver_capacity);
    if (pub->snapshot == NULL || pub->receivers == NULL || pub->retransmit.actions == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a publication's receivers");
    }
    if (!params->group) {
        pub->retransmit.capacity = 1; /* until a penstock receiver is heard */
    }
    ps_publication_pace_init(pub);
    return PS_OK;
}

static int check(const ps_driver_t *driver, const ps_publication_params_t *params)
{
    const ps_shared_t *shared = driver->context.params.shared;
    if (shared == NULL || params->slot < 0 || params->slot >= shared->n_publications) {
        return ps_fail(PS_E_INVALID, "publication slot %d is out of range", (int)params->slot);
    }
    if (params->relay_path.count < 0 || params->relay_path.count > PS_RELAYS_MAX) {
        return ps_fail(PS_E_INVALID, "a path of %d relays: at most %d are allowed",
                       (int)params->relay_path.count, PS_RELAYS_MAX);
    }
    if (params->credit_weight < 0 || params->credit_weight > PS_CREDIT_WEIGHT_MAX) {
        return ps_fail(PS_E_INVALID, "a credit weight of %d: 0 to %d are allowed",
                       (int)params->credit_weight, PS_CREDIT_WEIGHT_MAX);
    }
    return PS_OK;
}

int ps_publication_add(ps_driver_t *driver, const ps_publication_params_t *params,
                       ps_publication_t **out)
{
    int result = check(driver, params);
    if (result != PS_OK) {
        return result;
    }
    ps_publication_t *pub = aligned_alloc(PS_LINE, sizeof(*pub));
    if (pub == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a publication");
    }
    memset(pub, 0, sizeof(*pub));
    pub->id = params->id;
    pub->context = &driver->context;
    pub->sender = driver->sender;
    pub->endpoint = params->endpoint;
    pub->params = *params;
    result = ps_log_map(params->log_path, 0, &pub->log);
    if (result != PS_OK) {
        free(pub);
        return result;
    }
    pub->params.log_path = NULL; /* the caller's, as is the next */
    pub->params.strategy = NULL;
    pub->due_ns = &pub->no_due_ns;
    pub->slot = &driver->context.params.shared->publications[params->slot];
    pub->slot->session_id = pub->log.session_id;
    pub->slot->stream_id = pub->log.stream_id;
    atomic_store_explicit(&pub->slot->retention_bytes, params->retention_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&pub->slot->retention_ns, params->retention_ns, memory_order_relaxed);
    snprintf(pub->slot->strategy, sizeof(pub->slot->strategy), "%s",
             params->strategy != NULL ? params->strategy : "");
    pub->ring = &driver->context.params.shared->publication_histories[params->slot].ring;
    pub->times = &driver->context.params.shared->publication_histories[params->slot].times;
    pub->window_bytes = params->window_bytes;
    if (pub->window_bytes <= 0 || pub->window_bytes > pub->log.term_length) {
        pub->window_bytes = pub->log.term_length / 2;
    }
    bind_cells(pub);
    result = set_start(pub);
    if (result == PS_OK) {
        ps_publication_rate_init(pub);
    }
    if (result == PS_OK && pub->endpoint != NULL) {
        result = set_up_network(pub);
    }
    if (result == PS_OK) {
        const ps_command_t command = { .type = PS_SC_ADD_PUBLICATION, .publication = pub };
        result = ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
    }
    if (result != PS_OK) {
        ps_publication_free(pub);
        return result;
    }
    *out = pub;
    return PS_OK;
}

void ps_publication_destroy(ps_driver_t *driver, ps_publication_t *publication)
{
    (void)driver;
    PS_ASSERT(publication->removed);
    ps_publication_free(publication);
}

static int command(ps_driver_t *driver, const ps_command_t *order)
{
    return ps_agent_command(&driver->agents[PS_AGENT_SENDER], order);
}

int ps_publication_add_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                  const ps_subscriber_params_t *params)
{
    if (params->position_counter_id < 0) {
        return ps_fail(PS_E_INVALID, "a subscriber needs a position counter");
    }
    if (publication->subscribers_requested >= PS_PUBLICATION_SUBSCRIBERS) {
        return ps_fail(PS_E_NO_SPACE, "a publication has at most %d local subscribers",
                       (int)PS_PUBLICATION_SUBSCRIBERS);
    }
    const int result = command(driver, &(ps_command_t){ .type = PS_SC_ADD_SUBSCRIBER,
                                                        .publication = publication,
                                                        .subscriber = *params });
    publication->subscribers_requested += result == PS_OK;
    return result;
}

int ps_publication_remove_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                     int32_t position_counter_id)
{
    const int result =
        command(driver, &(ps_command_t){ .type = PS_SC_REMOVE_SUBSCRIBER,
                                         .publication = publication,
                                         .position_counter_id = position_counter_id });
    publication->subscribers_requested -= result == PS_OK && publication->subscribers_requested > 0;
    return result;
}

int ps_publication_set_credits(ps_driver_t *driver, ps_publication_t *publication,
                               int32_t position_counter_id, int64_t credits, int64_t burst,
                               int32_t frozen)
{
    const ps_credit_change_t change = { .position_counter_id = position_counter_id,
                                        .credits = credits,
                                        .credit_burst = burst,
                                        .frozen = frozen != 0 };
    return command(driver, &(ps_command_t){ .type = PS_SC_SET_CREDITS,
                                            .publication = publication,
                                            .credits = change });
}

int ps_publication_add_client(ps_driver_t *driver, ps_publication_t *publication,
                              int32_t client_slot)
{
    if (client_slot < 0 || client_slot >= driver->context.params.shared->n_clients) {
        return ps_fail(PS_E_INVALID, "client slot %d is out of range", (int)client_slot);
    }
    if (publication->clients_requested >= PS_PUBLICATION_CLIENTS) {
        return ps_fail(PS_E_NO_SPACE, "a publication is shared by at most %d clients",
                       (int)PS_PUBLICATION_CLIENTS);
    }
    const int result = command(driver, &(ps_command_t){ .type = PS_SC_ADD_CLIENT,
                                                        .publication = publication,
                                                        .client_slot = client_slot });
    publication->clients_requested += result == PS_OK;
    return result;
}

int ps_publication_remove_client(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t client_slot)
{
    const int result = command(driver, &(ps_command_t){ .type = PS_SC_REMOVE_CLIENT,
                                                        .publication = publication,
                                                        .client_slot = client_slot });
    publication->clients_requested -= result == PS_OK && publication->clients_requested > 0;
    return result;
}

int ps_publication_drain(ps_driver_t *driver, ps_publication_t *publication)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_DRAIN, .publication = publication });
}

int ps_publication_revoke(ps_driver_t *driver, ps_publication_t *publication)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_REVOKE, .publication = publication });
}

int ps_publication_unblock(ps_driver_t *driver, ps_publication_t *publication, int32_t client_slot)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_UNBLOCK,
                                            .publication = publication,
                                            .client_slot = client_slot });
}

int ps_publication_reserved(ps_driver_t *driver, ps_publication_t *publication, int64_t position)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_RESERVED,
                                            .publication = publication,
                                            .reserved_position = position });
}

int ps_publication_release_terms(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t least_terms)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_RELEASE_TERMS,
                                            .publication = publication,
                                            .least_terms = least_terms });
}

int ps_publication_set_limit(ps_driver_t *driver, ps_publication_t *publication, int64_t limit,
                             int64_t until_ns)
{
    return command(driver, &(ps_command_t){ .type = PS_SC_SET_LIMIT,
                                            .publication = publication,
                                            .limit = { .position = limit, .until_ns = until_ns } });
}

int ps_publication_remove(ps_driver_t *driver, ps_publication_t *publication)
{
    return command(driver,
                   &(ps_command_t){ .type = PS_SC_REMOVE_PUBLICATION, .publication = publication });
}

void ps_publication_get_status(const ps_publication_t *publication, ps_publication_status_t *out)
{
    ps_publication_t *pub = (ps_publication_t *)(uintptr_t)publication;
    out->producer_position = ps_log_producer_position(&pub->log);
    out->consumer_position = atomic_load_explicit(&pub->status_consumer, memory_order_acquire);
    out->publisher_limit = atomic_load_explicit(shown_limit(pub), memory_order_acquire);
    out->is_connected = atomic_load_explicit(&pub->status_connected, memory_order_acquire);
    out->receivers = atomic_load_explicit(&pub->status_receivers, memory_order_acquire);
    out->rate_bytes_per_s =
        atomic_load_explicit(&pub->slot->rate_bytes_per_s, memory_order_relaxed);
    out->pressure_signals = atomic_load_explicit(&pub->status_signals, memory_order_relaxed);
}
