/* SPDX-License-Identifier: Apache-2.0 ps_counters.c: counters of cnc.dat
 * (docs/spec/shared-memory.md section 2, docs/spec/shared-memory.md section 2). Allocation: one
 * conductor thread. Values: their one writer, any reader. */
#include <stdlib.h>
#include <string.h>

#include "ps_cnc_internal.h"
#include "ps_error.h"
#include "ps_file.h"

int32_t ps_counter_capacity(const ps_cnc_t *cnc)
{
    return cnc->counters;
}

/* Cell of a counter; ids out of range (-1 means "no such counter") share one cell that is never
 * read. */
_Atomic int64_t *ps_counter_cell(const ps_cnc_t *cnc, int32_t counter_id)
{
    if (counter_id < 0 || counter_id >= cnc->counters) {
        return (_Atomic int64_t *)(uintptr_t)&cnc->nowhere;
    }
    return &cnc->values[counter_id].value;
}

int64_t ps_counter_get(const ps_cnc_t *cnc, int32_t counter_id)
{
    return atomic_load_explicit(ps_counter_cell(cnc, counter_id), memory_order_acquire);
}

void ps_counter_set(ps_cnc_t *cnc, int32_t counter_id, int64_t value)
{
    atomic_store_explicit(ps_counter_cell(cnc, counter_id), value, memory_order_release);
}

/* Reads freed ids and the highest used id from the file, which may be adopted. */
static int ps_counters_prepare(ps_cnc_t *cnc)
{
    if (cnc->freed != NULL) {
        return PS_OK;
    }
    cnc->freed = calloc((size_t)cnc->counters, sizeof *cnc->freed);
    if (cnc->freed == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d counter ids", cnc->counters);
    }
    for (int32_t id = 0; id < cnc->counters; id++) {
        const int32_t state = atomic_load_explicit(&cnc->metadata[id].state, memory_order_acquire);
        if (state == 0) {
            break;
        }
        if (state < 0) {
            cnc->freed[cnc->freed_count++] = id;
        }
        cnc->high_water = id + 1;
    }
    return PS_OK;
}

/* Memory for the first count counters. A reader that lists counters also reads the first unused
 * record, so that record needs memory too. */
static int ps_counters_back(ps_cnc_t *cnc, int32_t count)
{
    count = count < cnc->counters ? count : cnc->counters;
    if (count <= cnc->backed) {
        return PS_OK;
    }
    int64_t to = ps_cnc_align(count, PS_COUNTERS_BACKED);
    to = to < cnc->counters ? to : cnc->counters;
    const int64_t more = to - cnc->backed;
    int code =
        ps_file_reserve_in(cnc->path, (const uint8_t *)&cnc->metadata[cnc->backed] - cnc->base,
                           more * PS_COUNTER_META_BYTES);
    if (code == PS_OK) {
        code = ps_file_reserve_in(cnc->path, (const uint8_t *)&cnc->values[cnc->backed] - cnc->base,
                                  more * PS_COUNTER_VALUE_BYTES);
    }
    if (code == PS_OK) {
        cnc->backed = (int32_t)to;
    }
    return code;
}

static int32_t ps_counter_take(ps_cnc_t *cnc, int64_t now_ms)
{
    if (cnc->freed_count > 0) {
        const int32_t id = cnc->freed[cnc->freed_head];
        if (cnc->metadata[id].reuse_deadline_ms <= now_ms) {
            cnc->freed_head = (cnc->freed_head + 1) % cnc->counters;
            cnc->freed_count--;
            return id;
        }
    }
    return cnc->high_water < cnc->counters ? cnc->high_water++ : -1;
}

static int32_t ps_cut(int32_t length, int32_t limit)
{
    return length < 0 ? 0 : length < limit ? length : limit;
}

int32_t ps_counter_allocate(ps_cnc_t *cnc, int32_t type_id, const void *key, int32_t key_length,
                            const char *label, int32_t label_length, int64_t registration_id,
                            int64_t owner_id, int64_t reference_id, int64_t value, int64_t now_ms)
{
    if (cnc->read_only) {
        return ps_fail(PS_E_INVALID, "counters are mapped read-only");
    }
    int code = ps_counters_prepare(cnc);
    if (code == PS_OK) {
        code = ps_counters_back(cnc, cnc->high_water + 2);
    }
    if (code != PS_OK) {
        return code;
    }
    const int32_t id = ps_counter_take(cnc, now_ms);
    if (id < 0) {
        return ps_fail(PS_E_NO_SPACE,
                       "all %d counters are taken; raise storage.counter_values_bytes",
                       cnc->counters);
    }
    ps_counter_value_t *cell = &cnc->values[id];
    ps_counter_meta_t *meta = &cnc->metadata[id];
    atomic_store_explicit(&cell->registration_id, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->owner_id, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->reference_id, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->value, value, memory_order_relaxed);
    meta->type_id = type_id;
    meta->reuse_deadline_ms = INT64_MAX;
    const int32_t key_bytes = key != NULL ? ps_cut(key_length, PS_COUNTER_KEY_BYTES) : 0;
    const int32_t label_bytes = label != NULL ? ps_cut(label_length, PS_COUNTER_LABEL_BYTES) : 0;
    memset(meta->key, 0, sizeof meta->key);
    memset(meta->label, 0, sizeof meta->label);
    if (key_bytes > 0) {
        memcpy(meta->key, key, (size_t)key_bytes);
    }
    if (label_bytes > 0) {
        memcpy(meta->label, label, (size_t)label_bytes);
    }
    meta->label_length = label_bytes;
    /* Release: readers that see state 1 see the rest; ids follow, as clients re-check them. */
    atomic_store_explicit(&meta->state, 1, memory_order_release);
    atomic_store_explicit(&cell->registration_id, registration_id, memory_order_release);
    atomic_store_explicit(&cell->owner_id, owner_id, memory_order_release);
    atomic_store_explicit(&cell->reference_id, reference_id, memory_order_release);
    return id;
}

void ps_counter_free(ps_cnc_t *cnc, int32_t counter_id, int64_t now_ms)
{
    if (counter_id < 0 || counter_id >= cnc->counters || cnc->read_only ||
        ps_counters_prepare(cnc) != PS_OK) {
        return;
    }
    ps_counter_meta_t *meta = &cnc->metadata[counter_id];
    if (atomic_load_explicit(&meta->state, memory_order_acquire) != 1) {
        return;
    }
    atomic_store_explicit(&meta->state, -1, memory_order_release);
    memset(meta->key, 0, sizeof meta->key);
    meta->reuse_deadline_ms = now_ms + PS_COUNTER_COOL_DOWN_MS;
    cnc->freed[(cnc->freed_head + cnc->freed_count) % cnc->counters] = counter_id;
    cnc->freed_count++;
}

void ps_counter_read(const ps_cnc_t *cnc, int32_t counter_id, ps_counter_info_t *out)
{
    memset(out, 0, sizeof *out);
    if (counter_id < 0 || counter_id >= cnc->counters) {
        return;
    }
    ps_counter_meta_t *meta = &cnc->metadata[counter_id];
    ps_counter_value_t *cell = &cnc->values[counter_id];
    out->state = atomic_load_explicit(&meta->state, memory_order_acquire);
    out->type_id = meta->type_id;
    out->value = atomic_load_explicit(&cell->value, memory_order_acquire);
    out->registration_id = atomic_load_explicit(&cell->registration_id, memory_order_acquire);
    out->owner_id = atomic_load_explicit(&cell->owner_id, memory_order_acquire);
    out->reference_id = atomic_load_explicit(&cell->reference_id, memory_order_acquire);
    out->label_length = ps_cut(meta->label_length, PS_COUNTER_LABEL_BYTES);
    memcpy(out->label, meta->label, (size_t)out->label_length);
    memcpy(out->key, meta->key, sizeof out->key);
}
