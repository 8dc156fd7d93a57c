/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_group_log.c: logs as consumer groups need them in the control plane.
 */
#include "ps_set_up.h"

#include "ps_group_log.h"

#include <stdlib.h>

#include "ps_credit.h"
#include "ps_driver_state.h"
#include "ps_error.h"
#include "ps_log.h"
#include "ps_shared.h"

struct ps_group_log {
    ps_log_t log;
    int64_t correlation_id;
};

int ps_group_log_open(const char *path, ps_group_log_t **out)
{
    ps_group_log_t *reader = calloc(1, sizeof *reader);
    *out = NULL;
    if (reader == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a reader of %s", path);
    }
    const int code = ps_log_map(path, 1, &reader->log);
    if (code != PS_OK) {
        free(reader);
        return code;
    }
    reader->correlation_id = reader->log.meta->correlation_id;
    *out = reader;
    return PS_OK;
}

void ps_group_log_close(ps_group_log_t *reader)
{
    if (reader != NULL) {
        ps_log_unmap(&reader->log);
        free(reader);
    }
}

void ps_group_log_facts(const ps_group_log_t *reader, ps_log_facts_t *out)
{
    *out = (ps_log_facts_t){ .correlation_id = reader->correlation_id,
                             .session_id = reader->log.session_id,
                             .stream_id = reader->log.stream_id,
                             .initial_term_id = reader->log.initial_term_id,
                             .term_length = reader->log.term_length,
                             .mtu = reader->log.mtu };
}

/* Aligned length of the committed frame at position; 0: none, or not one of this position. */
static int32_t span_at(const ps_log_t *log, int64_t position)
{
    const ps_frame_t *frame = ps_frame_at(log, position);
    const int32_t offset = (int32_t)(position & log->term_mask);
    const int32_t length = ps_frame_length_acquire(frame);
    if (length < PS_HEADER_BYTES || length > log->term_length - offset ||
        frame->term_offset != offset ||
        frame->term_id != ps_term_id_at(position, log->shift, log->initial_term_id)) {
        return 0;
    }
    return ps_align32(length);
}

static bool is_boundary(int64_t position)
{
    return position >= 0 && (position & (PS_FRAME_ALIGNMENT - 1)) == 0;
}

int64_t ps_group_log_producer(const ps_group_log_t *reader)
{
    return reader->log.type == PS_LOG_IMAGE ? INT64_MAX : ps_log_producer_position(&reader->log);
}

int64_t ps_group_log_end(const ps_group_log_t *reader, int64_t from, int64_t max_bytes)
{
    int64_t position = from;
    if (!is_boundary(from)) {
        return from;
    }
    while (position - from < max_bytes) {
        const int32_t span = span_at(&reader->log, position);
        if (span == 0) {
            break;
        }
        position += span;
    }
    return position;
}

int64_t ps_group_log_cut(const ps_group_log_t *reader, int64_t from, int64_t to, int64_t max_bytes)
{
    int64_t position = from;
    if (!is_boundary(from)) {
        return ps_fail(PS_E_CORRUPT, "position %lld is no frame's", (long long)from);
    }
    const int64_t term_end = (from | reader->log.term_mask) + 1;
    const int64_t limit = to < term_end ? to : term_end;
    while (position < limit) {
        const int32_t span = span_at(&reader->log, position);
        const int64_t next = position + span;
        if (span == 0 || next > limit || (position > from && next - from > max_bytes)) {
            break;
        }
        position = next;
    }
    if (position == from) {
        return ps_fail(PS_E_CORRUPT, "no whole frame begins at position %lld and ends by %lld",
                       (long long)from, (long long)limit);
    }
    return position;
}

const uint8_t *ps_group_log_at(const ps_group_log_t *reader, int64_t position)
{
    return ps_log_at(&reader->log, position);
}

/* ---- penstock.dat ---------------------------------------------------------------------------- */

int32_t ps_slot_read_index(const ps_shared_t *shared, int32_t kind, int32_t slot,
                           ps_index_view_t *out, int32_t capacity)
{
    const bool image = kind == PS_SLOT_IMAGE;
    const int32_t slots = image ? shared->n_images : shared->n_publications;
    if ((!image && kind != PS_SLOT_PUBLICATION) || slot < 0 || slot >= slots || capacity < 0) {
        return ps_fail(PS_E_INVALID, "no index ring of slot %d, kind %d", slot, kind);
    }
    ps_index_ring_t *ring =
        image ? &shared->image_histories[slot].ring : &shared->publication_histories[slot].ring;
    const uint64_t count = atomic_load_explicit(&ring->count, memory_order_acquire);
    uint64_t room = capacity < PS_INDEX_ENTRIES ? (uint64_t)capacity : PS_INDEX_ENTRIES;
    room = room < count ? room : count;
    int32_t kept = 0;
    for (uint64_t i = count - room; i < count; i++) {
        const ps_index_entry_t *entry = &ring->entries[i % PS_INDEX_ENTRIES];
        out[kept++] = (ps_index_view_t){
            .position = atomic_load_explicit(&entry->position, memory_order_relaxed),
            .time_ns = atomic_load_explicit(&entry->time_ns, memory_order_relaxed)
        };
    }
    /* Entries that the writer overwrote during the copy are left out; they are the oldest. */
    atomic_thread_fence(memory_order_acquire);
    const uint64_t now = atomic_load_explicit(&ring->count, memory_order_relaxed);
    /* The writer may be writing entry `now`. */
    const uint64_t intact = now + 1 > PS_INDEX_ENTRIES ? now + 1 - PS_INDEX_ENTRIES : 0;
    const uint64_t first = count - room;
    const uint64_t torn = intact > first ? intact - first : 0;
    const int32_t lost = torn < (uint64_t)kept ? (int32_t)torn : kept;
    for (int32_t i = lost; i < kept; i++) {
        out[i - lost] = out[i];
    }
    return kept - lost;
}

int32_t ps_slot_read_times(const ps_shared_t *shared, int32_t kind, int32_t slot, int64_t start,
                           int64_t end, ps_index_view_t *out, int32_t capacity)
{
    const bool image = kind == PS_SLOT_IMAGE;
    const int32_t slots = image ? shared->n_images : shared->n_publications;
    if ((!image && kind != PS_SLOT_PUBLICATION) || slot < 0 || slot >= slots) {
        return ps_fail(PS_E_INVALID, "no times of slot %d, kind %d", slot, kind);
    }
    const ps_time_table_t *table =
        image ? &shared->image_histories[slot].times : &shared->publication_histories[slot].times;
    ps_time_point_t *points = malloc(PS_TIMES_MOST * sizeof *points);
    if (points == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for the times of a stream");
    }
    const int32_t count = ps_times_read(table, start, end, points, capacity);
    for (int32_t i = 0; i < count; i++) {
        out[i] = (ps_index_view_t){ .position = points[i].position, .time_ns = points[i].time_ns };
    }
    free(points);
    return count;
}

int32_t ps_join_times(ps_index_view_t *entries, int32_t count, int32_t capacity)
{
    ps_time_point_t *points = malloc((size_t)(count > 0 ? count : 1) * sizeof *points);
    if (points == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d times", count);
    }
    for (int32_t i = 0; i < count; i++) {
        points[i] = (ps_time_point_t){ entries[i].position, entries[i].time_ns };
    }
    const int32_t kept = ps_times_join(points, count, capacity);
    for (int32_t i = 0; i < kept; i++) {
        entries[i] = (ps_index_view_t){ points[i].position, points[i].time_ns };
    }
    free(points);
    return kept;
}

int ps_slot_describe_group(ps_shared_t *shared, int32_t index, int64_t committed,
                           int64_t retained_from, int64_t expiry_ms)
{
    if (index < 0 || index >= shared->n_groups || shared->read_only) {
        return ps_fail(PS_E_INVALID, "no group slot %d", index);
    }
    ps_group_slot_t *slot = &shared->groups[index];
    atomic_store_explicit(&slot->committed, committed, memory_order_relaxed);
    atomic_store_explicit(&slot->retained_from, retained_from, memory_order_relaxed);
    atomic_store_explicit(&slot->expiry_ms, expiry_ms, memory_order_release);
    return PS_OK;
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* Requests the sender to check readers' positions, as a client does (ps_client.c). */
static void request_sender(ps_shared_t *shared, int32_t publication_slot)
{
    ps_publication_slot_t *slot = &shared->publications[publication_slot];
    uint32_t expected = PS_DIRTY_NOT;
    if (atomic_compare_exchange_strong_explicit(&slot->dirty, &expected, PS_DIRTY_CHECK,
                                                memory_order_seq_cst, memory_order_seq_cst)) {
        ps_shared_set_dirty(shared, publication_slot);
    }
}

int ps_driver_release(ps_driver_t *driver, const ps_release_params_t *params)
{
    ps_shared_t *shared = driver->context.params.shared;
    ps_cnc_t *cnc = driver->context.params.cnc;
    if (params->position < 0 || (params->position & (PS_FRAME_ALIGNMENT - 1)) != 0 ||
        params->position_counter_id < 0 ||
        params->position_counter_id >= ps_counter_capacity(cnc) || params->subscriber_slot < 0 ||
        params->subscriber_slot >= shared->n_subscribers ||
        params->publication_slot >= shared->n_publications) {
        return ps_fail(PS_E_INVALID, "cannot release to %lld: counter %d, subscriber %d",
                       (long long)params->position, params->position_counter_id,
                       params->subscriber_slot);
    }
    _Atomic int64_t *cell = ps_counter_cell(cnc, params->position_counter_id);
    const int64_t before = atomic_load_explicit(cell, memory_order_relaxed);
    int64_t position = params->position;
    if (position <= before) {
        return PS_OK;
    }
    ps_subscriber_slot_t *slot = &shared->subscribers[params->subscriber_slot];
    if (params->log != NULL) {
        position = ps_credit_release(slot, &params->log->log, before, position);
    } else {
        atomic_store_explicit(&slot->delivered, position, memory_order_relaxed);
    }
    atomic_store_explicit(&slot->released, position, memory_order_release);
    /* seq_cst: before the agents are woken, which always happens because releases are rare. */
    atomic_store_explicit(cell, position, memory_order_seq_cst);
    if (params->publication_slot >= 0) {
        request_sender(shared, params->publication_slot);
    }
    ps_driver_wake(driver);
    return PS_OK;
}
