/* SPDX-License-Identifier: Apache-2.0
 * ps_cnc_ring.c: commands that Aeron clients put into cnc.dat are answered with "not supported"
 * (docs/spec/shared-memory.md section 2).  Conductor thread. */
#include "ps_set_up.h"

#include <stdbool.h>
#include <string.h>

#include "ps_cnc_internal.h"

enum {
    PS_COMMANDS_PER_CALL = 64,
    PS_RECORD_HEADER = 8,
    PS_RECORD_PADDING = -1,
    PS_EVENT_ERROR = 0x0F01,
    PS_ERROR_NOT_SUPPORTED = 8,
    PS_ERROR_TEXT_MAX = 512
};

static _Atomic int32_t *ps_record_length(uint8_t *at)
{
    return (_Atomic int32_t *)(void *)at;
}

static void ps_record_type(uint8_t *at, int32_t type)
{
    memcpy(at + 4, &type, sizeof type);
}

/* Advances a cursor. Clients can write both cursors, so the sum may overflow. */
static int64_t ps_moved(int64_t cursor, int64_t bytes)
{
    return (int64_t)((uint64_t)cursor + (uint64_t)bytes);
}

/* Transmits one ERROR event: single writer.  Receivers detect being lapped by `intent`. */
static void ps_broadcast_error(ps_cnc_t *cnc, int64_t correlation_id, const char *reason)
{
    const int32_t capacity = cnc->broadcast_capacity;
    const int32_t text_length = (int32_t)strnlen(reason, PS_ERROR_TEXT_MAX);
    const int32_t length = PS_RECORD_HEADER + 16 + text_length;
    const int64_t required = ps_cnc_align(length, 8);
    _Atomic int64_t *intent = (_Atomic int64_t *)(void *)(cnc->broadcast + capacity);
    _Atomic int64_t *tail = intent + 1;
    _Atomic int64_t *latest = intent + 2;
    int64_t position = atomic_load_explicit(tail, memory_order_relaxed) & ~INT64_C(7);
    const int64_t to_end = capacity - (position & (capacity - 1));
    const int64_t padding = to_end < required ? to_end : 0;
    /* Exchange: the intent is visible before any byte of the record changes. */
    atomic_exchange_explicit(intent, ps_moved(position, padding + required), memory_order_seq_cst);
    if (padding > 0) {
        uint8_t *at = cnc->broadcast + (position & (capacity - 1));
        atomic_store_explicit(ps_record_length(at), (int32_t)padding, memory_order_relaxed);
        ps_record_type(at, PS_RECORD_PADDING);
        position = ps_moved(position, padding);
    }
    uint8_t *at = cnc->broadcast + (position & (capacity - 1));
    const int32_t code = PS_ERROR_NOT_SUPPORTED;
    atomic_store_explicit(ps_record_length(at), length, memory_order_relaxed);
    ps_record_type(at, PS_EVENT_ERROR);
    memcpy(at + 8, &correlation_id, sizeof correlation_id);
    memcpy(at + 16, &code, sizeof code);
    memcpy(at + 20, &text_length, sizeof text_length);
    memcpy(at + 24, reason, (size_t)text_length);
    atomic_store_explicit(latest, position, memory_order_release);
    atomic_store_explicit(tail, ps_moved(position, required), memory_order_release);
}

/* Reads the record at index: bytes it takes, 0 = none yet. An impossible length (hostile client)
 * discards the rest of the ring up to its end. */
static int32_t ps_record_bytes(ps_cnc_t *cnc, int32_t index, int32_t *length)
{
    const int32_t room = cnc->ring_capacity - index;
    *length = atomic_load_explicit(ps_record_length(cnc->ring + index), memory_order_acquire);
    if (*length <= 0) {
        return 0;
    }
    if (*length < PS_RECORD_HEADER || ps_cnc_align(*length, 8) > room) {
        *length = 0;
        return room;
    }
    return (int32_t)ps_cnc_align(*length, 8);
}

int32_t ps_cnc_answer_commands(ps_cnc_t *cnc, const char *reason)
{
    if (cnc->read_only) {
        return 0;
    }
    _Atomic int64_t *head_cell = ps_ring_field(cnc, PS_RING_HEAD);
    const int64_t head = atomic_load_explicit(head_cell, memory_order_acquire) & ~INT64_C(7);
    const int32_t start = (int32_t)(head & (cnc->ring_capacity - 1));
    int32_t consumed = 0;
    int32_t answered = 0;
    while (start + consumed < cnc->ring_capacity && answered < PS_COMMANDS_PER_CALL) {
        int32_t length = 0;
        const int32_t bytes = ps_record_bytes(cnc, start + consumed, &length);
        if (bytes == 0) {
            break;
        }
        const uint8_t *at = cnc->ring + start + consumed;
        int32_t type = 0;
        int64_t correlation_id = -1;
        memcpy(&type, at + 4, sizeof type);
        if (length >= PS_RECORD_HEADER + 16) {
            memcpy(&correlation_id, at + 16, sizeof correlation_id);
        }
        consumed += bytes;
        if (type > 0 && length > 0) {
            answered++;
            if (correlation_id != -1) {
                ps_broadcast_error(cnc, correlation_id, reason);
            }
        }
    }
    if (consumed > 0) {
        /* Zero before the head moves: producers rely on zero length fields. */
        memset(cnc->ring + start, 0, (size_t)consumed);
        atomic_store_explicit(head_cell, ps_moved(head, consumed), memory_order_release);
    }
    return answered;
}
