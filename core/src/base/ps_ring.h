/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_ring.h: bounded queue of fixed-size records between exactly one producer and one consumer.
 *
 * The producer keeps a copy of the consumer's index, and the consumer keeps a copy of the
 * producer's index. The producer reads the consumer's index only if, according to the copy, the
 * ring is full. The consumer reads the producer's index only if, according to the copy, the ring is
 * empty. With these copies, a busy queue moves fewer cache lines between the two CPUs (Lamport
 * 1983; FastForward 2008). */
#ifndef PS_RING_H
#define PS_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ps_line.h"

typedef struct ps_ring {
    /* line: consumer */
    alignas(PS_LINE) _Atomic uint64_t head; /* records taken */
    uint64_t tail_copy;
    /* line: producer */
    alignas(PS_LINE) _Atomic uint64_t tail; /* records put */
    uint64_t head_copy;
    /* line: constant */
    alignas(PS_LINE) uint8_t *records;
    uint64_t capacity; /* power of two */
    uint64_t record_bytes;
} ps_ring_t;

/* `capacity` must be a power of two, and `record_bytes` above 0. PS_E_INVALID, PS_E_NO_MEMORY. */
int ps_ring_init(ps_ring_t *ring, int32_t capacity, uint32_t record_bytes);
void ps_ring_free(ps_ring_t *ring);
/* Producer.  Copies record in; false = full. */
bool ps_ring_push(ps_ring_t *ring, const void *record);
/* Consumer. Copies the oldest record to the caller; returns false if the ring is empty. */
bool ps_ring_pop(ps_ring_t *ring, void *record);
/* Consumer. Returns true if the ring is empty (reads the producer's index, not the copy). */
bool ps_ring_is_empty(const ps_ring_t *ring);

#endif
