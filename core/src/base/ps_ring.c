/* SPDX-License-Identifier: Apache-2.0 */

#include "ps_ring.h"

#include "ps_assert.h"
#include <stdlib.h>
#include <string.h>

#include "ps_error.h"

int ps_ring_init(ps_ring_t *ring, int32_t capacity, uint32_t record_bytes)
{
    PS_ASSERT(ring != NULL && record_bytes > 0);
    memset(ring, 0, sizeof *ring);
    if (capacity <= 0 || (capacity & (capacity - 1)) != 0) {
        return ps_fail(PS_E_INVALID, "queue capacity %d is not a power of two", capacity);
    }
    ring->records = calloc((size_t)capacity, record_bytes);
    if (ring->records == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a queue of %d records of %u bytes", capacity,
                       record_bytes);
    }
    ring->capacity = (uint64_t)capacity;
    ring->record_bytes = record_bytes;
    return PS_OK;
}

void ps_ring_free(ps_ring_t *ring)
{
    free(ring->records);
    ring->records = NULL;
    ring->capacity = 0;
}

bool ps_ring_push(ps_ring_t *ring, const void *record)
{
    const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_copy >= ring->capacity) {
        /* acquire: pairs with pop's release, the slot has been read before we overwrite it */
        ring->head_copy = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_copy >= ring->capacity) {
            return false;
        }
    }
    const uint64_t at = tail & (ring->capacity - 1);
    memcpy(ring->records + at * ring->record_bytes, record, ring->record_bytes);
    /* release: the record is whole before the consumer sees the index */
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

bool ps_ring_pop(ps_ring_t *ring, void *record)
{
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_copy) {
        /* acquire: pairs with push's release */
        ring->tail_copy = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->tail_copy) {
            return false;
        }
    }
    const uint64_t at = head & (ring->capacity - 1);
    memcpy(record, ring->records + at * ring->record_bytes, ring->record_bytes);
    /* release: the slot may be overwritten now */
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

bool ps_ring_is_empty(const ps_ring_t *ring)
{
    return atomic_load_explicit(&((ps_ring_t *)(uintptr_t)ring)->tail, memory_order_acquire) ==
           atomic_load_explicit(&((ps_ring_t *)(uintptr_t)ring)->head, memory_order_relaxed);
}
