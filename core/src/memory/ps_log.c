/* SPDX-License-Identifier: Apache-2.0
 * ps_log.c: mapping and walking log buffers; padding, unblocking, rotation. */

#include "ps_log.h"

#include <stdbool.h>
#include <string.h>

#include "ps_error.h"
#include "ps_file.h"
#include "ps_frame.h"

/* ---- mapping --------------------------------------------------------------------------------- */

static int ps_log_check(const ps_log_meta_t *meta, uint64_t file_length, const char *path)
{
    const int32_t term_length = meta->term_length;
    const int32_t page_size = meta->page_size;
    if (term_length < PS_TERM_MIN || term_length > PS_TERM_MAX ||
        (term_length & (term_length - 1)) != 0) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible term length %d", path, term_length);
    }
    if (page_size < 4096 || page_size > PS_TERM_MAX || (page_size & (page_size - 1)) != 0) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible page size %d", path, page_size);
    }
    if ((int64_t)file_length != ps_log_file_length(term_length, page_size)) {
        return ps_fail(PS_E_CORRUPT, "%s: %llu bytes do not fit terms of %d", path,
                       (unsigned long long)file_length, term_length);
    }
    if (meta->mtu < PS_MTU_MIN || meta->mtu > PS_MTU_MAX || meta->mtu % 32 != 0) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible mtu %d", path, meta->mtu);
    }
    if (meta->header_length != PS_HEADER_BYTES || meta->type > PS_LOG_SEALED) {
        return ps_fail(PS_E_CORRUPT, "%s: header length %d, type %d", path, meta->header_length,
                       meta->type);
    }
    return PS_OK;
}

int ps_log_map(const char *path, int32_t read_only, ps_log_t *out)
{
    memset(out, 0, sizeof *out);
    uint8_t *map = NULL;
    uint64_t length = 0;
    int code =
        ps_file_map(path, read_only, INT64_C(3) * PS_TERM_MIN + PS_LOG_META_BYTES, &map, &length);
    if (code != PS_OK) {
        return code;
    }
    if (length % 4096 != 0) {
        ps_file_unmap(map, length);
        return ps_fail(PS_E_CORRUPT, "%s: length %llu is not a multiple of 4096", path,
                       (unsigned long long)length);
    }
    /* A private copy is checked and used: another process may be changing the page. */
    ps_log_meta_t copy;
    memcpy(&copy, map + length - PS_LOG_META_BYTES, sizeof copy);
    code = ps_log_check(&copy, length, path);
    if (code != PS_OK) {
        ps_file_unmap(map, length);
        return code;
    }
    out->map = map;
    out->map_length = length;
    out->meta = (ps_log_meta_t *)(void *)(map + length - PS_LOG_META_BYTES);
    out->term_length = copy.term_length;
    out->term_mask = copy.term_length - 1;
    out->shift = __builtin_ctz((uint32_t)copy.term_length);
    out->initial_term_id = copy.initial_term_id;
    out->mtu = copy.mtu;
    out->type = copy.type;
    out->read_only = read_only;
    memcpy(&out->session_id, copy.default_header + 12, sizeof out->session_id);
    memcpy(&out->stream_id, copy.default_header + 16, sizeof out->stream_id);
    for (int32_t i = 0; i < PS_PARTITIONS; i++) {
        out->term[i] = map + (int64_t)i * copy.term_length;
    }
    return PS_OK;
}

void ps_log_unmap(ps_log_t *log)
{
    ps_file_unmap(log->map, log->map_length);
    memset(log, 0, sizeof *log);
}

/* ---- positions ------------------------------------------------------------------------------- */

int64_t ps_log_producer_position(const ps_log_t *log)
{
    const int32_t term_count =
        atomic_load_explicit(&log->meta->active_term_count, memory_order_acquire);
    const int32_t index = (int32_t)((uint32_t)term_count % PS_PARTITIONS);
    const int64_t raw = atomic_load_explicit(&log->meta->tail[index], memory_order_acquire);
    const uint32_t offset = (uint32_t)raw;
    const int32_t clamped =
        offset < (uint32_t)log->term_length ? (int32_t)offset : log->term_length;
    return ps_position((int32_t)(raw >> 32), clamped, log->shift, log->initial_term_id);
}

int64_t ps_log_message_space(int64_t length, int32_t max_payload)
{
    const int64_t whole = length / max_payload;
    const int64_t rest = length % max_payload;
    int64_t space = whole * ps_align32_64((int64_t)max_payload + PS_HEADER_BYTES);
    if (rest > 0 || whole == 0) {
        space += ps_align32_64(rest + PS_HEADER_BYTES);
    }
    return space;
}

/* ---- cleaning and padding -------------------------------------------------------------------- */

void ps_log_clean(const ps_log_t *log, int64_t from, int64_t to)
{
    if (to <= from) {
        return;
    }
    uint8_t *start = ps_log_at(log, from);
    const int64_t room = log->term_length - (from & log->term_mask);
    const int64_t length = to - from < room ? to - from : room;
    memset(start + 8, 0, (size_t)(length - 8));
    /* Release: a thread that sees the zero word sees the zeroes after it. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)start, 0, memory_order_release);
}

/* Writes the header fields except the first word and the reserved value; every writer stores the
 * same bytes. */
static void ps_pad_fields(const ps_log_t *log, int64_t position)
{
    ps_frame_fields(ps_frame_at(log, position), (int32_t)(position & log->term_mask),
                    log->session_id, log->stream_id,
                    ps_term_id_at(position, log->shift, log->initial_term_id));
}

/* Replaces the first word if it is `expected`; the fields after it are written. */
static int ps_pad_settle(const ps_log_t *log, int64_t position, int32_t length, uint64_t expected)
{
    const uint64_t pad = ps_frame_word_of(length, PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD);
    return atomic_compare_exchange_strong_explicit(ps_frame_word(ps_frame_at(log, position)),
                                                   &expected, pad, memory_order_seq_cst,
                                                   memory_order_acquire)
               ? 1
               : 0;
}

int ps_log_pad(const ps_log_t *log, int64_t position, int32_t length, uint64_t expected)
{
    ps_pad_fields(log, position);
    return ps_pad_settle(log, position, length, expected);
}

int ps_log_pad_marked(const ps_log_t *log, int64_t position, int32_t length, int64_t mark)
{
    ps_pad_fields(log, position);
    ps_frame_reserved(ps_frame_at(log, position), mark);
    return ps_pad_settle(log, position, length, 0);
}

int ps_log_rotate(const ps_log_t *log, int32_t term_count, int32_t term_id)
{
    if (term_count == INT32_MAX) {
        return 0;
    }
    const int32_t next_count = term_count + 1;
    const int32_t next_id = ps_wrap_add(term_id, 1);
    const int32_t stale_id = ps_wrap_sub(next_id, PS_PARTITIONS);
    _Atomic int64_t *tail = &log->meta->tail[(uint32_t)next_count % PS_PARTITIONS];
    int64_t raw = atomic_load_explicit(tail, memory_order_acquire);
    const int64_t fresh = (int64_t)((uint64_t)(uint32_t)next_id << 32);
    /* Bounded: each failure means that another thread changed it, which happens once per term. */
    for (int32_t i = 0; i < 8 && (int32_t)(raw >> 32) == stale_id; i++) {
        if (atomic_compare_exchange_strong_explicit(tail, &raw, fresh, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            break;
        }
    }
    int32_t expected = term_count;
    return atomic_compare_exchange_strong_explicit(&log->meta->active_term_count, &expected,
                                                   next_count, memory_order_acq_rel,
                                                   memory_order_acquire)
               ? 1
               : 0;
}

/* ---- unblocking ------------------------------------------------------------------------------ */

/* Pads over the zero words [position, position + limit). A publisher that reserved a part of this
 * range, without a claim, may resume at any moment. It must find each of its frames taken. The
 * function therefore claims the first word. It stores a 32-byte PAD into each further slot by
 * compare-and-swap, in ascending order, up to the first slot that another publisher has claimed.
 * Then the first word covers the filled range. Memory after a foreign slot is not read: its owner
 * may be writing there. Bound: limit / 32 steps. */
static int32_t ps_fill_hole(const ps_log_t *log, int64_t position, int32_t limit)
{
    _Atomic uint64_t *first = ps_frame_word(ps_frame_at(log, position));
    uint64_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(first, &expected,
                                                 ps_claim_word_of(PS_FRAME_ALIGNMENT, -1),
                                                 memory_order_seq_cst, memory_order_acquire)) {
        return 0;
    }
    int32_t filled = PS_FRAME_ALIGNMENT;
    while (filled < limit) {
        if (!ps_log_pad(log, position + filled, PS_FRAME_ALIGNMENT, 0)) {
            break;
        }
        filled += PS_FRAME_ALIGNMENT;
    }
    ps_pad_fields(log, position);
    atomic_store_explicit(first, ps_frame_word_of(filled, PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD),
                          memory_order_seq_cst);
    return filled;
}

/* As ps_fill_hole, in a sealed log whose one writer has died. The range from the first zero word to
 * the tail is its last reservation, which it did not write. */
static int32_t ps_fill_rest(const ps_log_t *log, int64_t position, int32_t length)
{
    return ps_log_pad_marked(log, position, length, 0) ? length : 0;
}

/* Returns the length of a claim, or 32 if another process wrote an invalid one; the next call then
 * continues. */
static int32_t ps_claimed_length(uint64_t word, int32_t room)
{
    const int64_t length = -(int64_t)(int32_t)(uint32_t)word;
    if (length < PS_HEADER_BYTES || ps_align32_64(length) > room) {
        return PS_HEADER_BYTES;
    }
    return (int32_t)length;
}

int32_t ps_log_unblock(const ps_log_t *log, int64_t position, int32_t only_claimer,
                       int32_t *claimer)
{
    *claimer = -1;
    const int32_t active =
        atomic_load_explicit(&log->meta->active_term_count, memory_order_acquire);
    const int64_t blocked = position >> log->shift;
    const int32_t offset = (int32_t)(position & log->term_mask);
    if (position < 0 || offset % PS_FRAME_ALIGNMENT != 0 || blocked > INT32_MAX || active < 0) {
        return 0;
    }
    if (blocked == (int64_t)active + 1 && offset == 0) {
        ps_log_rotate(log, active, ps_wrap_add(log->initial_term_id, active));
        return 0;
    }
    if (blocked > active) {
        return 0;
    }
    int32_t tail = log->term_length;
    bool tripped = false;
    if (blocked == active) {
        const int64_t raw = atomic_load_explicit(&log->meta->tail[(uint32_t)active % PS_PARTITIONS],
                                                 memory_order_acquire);
        const uint32_t low = (uint32_t)raw;
        tripped = low >= (uint32_t)log->term_length;
        tail = tripped ? log->term_length : (int32_t)low;
    }
    if (offset >= tail) {
        return 0;
    }
    const uint64_t word =
        atomic_load_explicit(ps_frame_word(ps_frame_at(log, position)), memory_order_acquire);
    int32_t padded = 0;
    if ((int32_t)(uint32_t)word < 0) {
        *claimer = (int32_t)(uint32_t)(word >> 32);
        if (only_claimer >= 0 && *claimer != only_claimer) {
            return 0;
        }
        const int32_t length = ps_claimed_length(word, log->term_length - offset);
        padded = ps_log_pad(log, position, length, word) ? ps_align32(length) : 0;
    } else if ((uint32_t)word == 0) {
        if (only_claimer >= 0 || word != 0) {
            return 0;
        }
        padded = log->type == PS_LOG_SEALED ? ps_fill_rest(log, position, tail - offset)
                                            : ps_fill_hole(log, position, tail - offset);
    }
    if (padded > 0 && tripped && offset + padded >= log->term_length) {
        ps_log_rotate(log, active, ps_wrap_add(log->initial_term_id, active));
    }
    return padded;
}
