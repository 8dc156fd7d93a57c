/* SPDX-License-Identifier: Apache-2.0
 * ps_cnc_reports.c: distinct error log and loss report (docs/spec/shared-memory.md section 2).
 * One writer: the conductor thread.  Readers: tools. */
#include "ps_set_up.h"

#include <string.h>

#include "ps_cnc_internal.h"
#include "ps_error.h"

/* ---- error log ------------------------------------------------------------------------------- */

typedef struct ps_error_record {
    _Atomic int32_t length; /* of header and text; release-stored last */
    _Atomic int32_t count;
    _Atomic int64_t last_ms;
    int64_t first_ms;
    char text[];
} ps_error_record_t;

enum { PS_ERROR_HEADER = 24, PS_ERROR_TEXT = 4096 };

/* Record at `at`, or NULL at the end; *length is checked against the region. */
static ps_error_record_t *ps_error_at(const ps_cnc_t *cnc, int64_t at, int32_t *length)
{
    if (at + PS_ERROR_HEADER > cnc->error_log_length) {
        return NULL;
    }
    ps_error_record_t *record = (void *)(cnc->error_log + at);
    *length = atomic_load_explicit(&record->length, memory_order_acquire);
    if (*length < PS_ERROR_HEADER || *length > cnc->error_log_length - at) {
        return NULL;
    }
    return record;
}

int ps_cnc_log_error(ps_cnc_t *cnc, int64_t epoch_ms, const char *text)
{
    if (cnc->read_only || text == NULL) {
        return ps_fail(PS_E_INVALID, "error log: read-only or no text");
    }
    const int32_t text_length = (int32_t)strnlen(text, PS_ERROR_TEXT);
    int64_t at = 0;
    int32_t length = 0;
    ps_error_record_t *record;
    while ((record = ps_error_at(cnc, at, &length)) != NULL) {
        if (length == PS_ERROR_HEADER + text_length &&
            memcmp(record->text, text, (size_t)text_length) == 0) {
            atomic_store_explicit(&record->last_ms, epoch_ms, memory_order_relaxed);
            atomic_fetch_add_explicit(&record->count, 1, memory_order_release);
            return PS_OK;
        }
        at += ps_cnc_align(length, 8);
    }
    if (at + PS_ERROR_HEADER + text_length > cnc->error_log_length) {
        return ps_fail(PS_E_NO_SPACE, "error log of %d bytes is full", cnc->error_log_length);
    }
    record = (void *)(cnc->error_log + at);
    memcpy(record->text, text, (size_t)text_length);
    record->first_ms = epoch_ms;
    atomic_store_explicit(&record->last_ms, epoch_ms, memory_order_relaxed);
    atomic_store_explicit(&record->count, 1, memory_order_relaxed);
    atomic_store_explicit(&record->length, PS_ERROR_HEADER + text_length, memory_order_release);
    return PS_OK;
}

int32_t ps_cnc_read_error(const ps_cnc_t *cnc, int32_t index, int64_t *count, int64_t *first_ms,
                          int64_t *last_ms, char *text, int32_t capacity)
{
    int64_t at = 0;
    int32_t length = 0;
    ps_error_record_t *record = ps_error_at(cnc, at, &length);
    for (int32_t i = 0; record != NULL && i < index; i++) {
        at += ps_cnc_align(length, 8);
        record = ps_error_at(cnc, at, &length);
    }
    if (record == NULL || index < 0 || capacity < 1) {
        return 0;
    }
    const int32_t whole = length - PS_ERROR_HEADER;
    const int32_t kept = whole < capacity - 1 ? whole : capacity - 1;
    memcpy(text, record->text, (size_t)kept);
    text[kept] = '\0';
    *count = atomic_load_explicit(&record->count, memory_order_acquire);
    *last_ms = atomic_load_explicit(&record->last_ms, memory_order_relaxed);
    *first_ms = record->first_ms;
    return 1;
}

/* ---- loss report ----------------------------------------------------------------------------- */

typedef struct ps_loss_entry {
    _Atomic int64_t observations; /* written last */
    _Atomic int64_t bytes;
    int64_t first_ms;
    _Atomic int64_t last_ms;
    int32_t session_id;
    int32_t stream_id;
    int32_t channel_length;
    uint8_t rest[]; /* channel, padded to 4; i32 source length; source */
} ps_loss_entry_t;

enum { PS_LOSS_HEADER = 44, PS_LOSS_TEXT = 4096 };
_Static_assert(offsetof(ps_loss_entry_t, rest) == PS_LOSS_HEADER, "layout");

static int64_t ps_loss_entry_bytes(int32_t channel_length, int32_t source_length)
{
    return ps_cnc_align(PS_LOSS_HEADER + ps_cnc_align(channel_length, 4) + 4 + source_length, 64);
}

/* Lengths of the entry at `at`; 0 = end or damage. */
static int64_t ps_loss_size(const ps_cnc_t *cnc, int64_t at, int32_t *source_length)
{
    const int64_t room = (int64_t)cnc->loss_report_length - at;
    if (room < PS_LOSS_HEADER + 4) {
        return 0;
    }
    ps_loss_entry_t *entry = (void *)(cnc->loss_report + at);
    if (atomic_load_explicit(&entry->observations, memory_order_acquire) == 0) {
        return 0;
    }
    const int32_t channel_length = entry->channel_length;
    if (channel_length < 0 || ps_cnc_align(channel_length, 4) > room - PS_LOSS_HEADER - 4) {
        return 0;
    }
    memcpy(source_length, entry->rest + ps_cnc_align(channel_length, 4), 4);
    const int64_t used = PS_LOSS_HEADER + ps_cnc_align(channel_length, 4) + 4;
    if (*source_length < 0 || *source_length > room - used) {
        return 0;
    }
    return ps_loss_entry_bytes(channel_length, *source_length);
}

int ps_cnc_report_loss(ps_cnc_t *cnc, int64_t epoch_ms, int64_t bytes, int32_t gaps,
                       int32_t session_id, int32_t stream_id, const char *channel,
                       const char *source)
{
    if (cnc->read_only || cnc->loss_report == NULL) {
        return ps_fail(PS_E_INVALID, "no loss report to write");
    }
    if (gaps < 0) {
        return ps_fail(PS_E_INVALID, "loss report: %d gaps, which must be >= 0", (int)gaps);
    }
    const int32_t channel_length = (int32_t)strnlen(channel, PS_LOSS_TEXT);
    const int32_t source_length = (int32_t)strnlen(source, PS_LOSS_TEXT);
    int64_t at = 0;
    int64_t size;
    int32_t length = 0;
    while ((size = ps_loss_size(cnc, at, &length)) > 0) {
        ps_loss_entry_t *entry = (void *)(cnc->loss_report + at);
        if (entry->session_id == session_id && entry->stream_id == stream_id &&
            entry->channel_length == channel_length && length == source_length &&
            memcmp(entry->rest, channel, (size_t)channel_length) == 0 &&
            memcmp(entry->rest + ps_cnc_align(channel_length, 4) + 4, source,
                   (size_t)source_length) == 0) {
            atomic_fetch_add_explicit(&entry->bytes, bytes, memory_order_relaxed);
            atomic_store_explicit(&entry->last_ms, epoch_ms, memory_order_relaxed);
            atomic_fetch_add_explicit(&entry->observations, gaps, memory_order_release);
            return PS_OK;
        }
        at += size;
    }
    size = ps_loss_entry_bytes(channel_length, source_length);
    if (at + size > (int64_t)cnc->loss_report_length) {
        return ps_fail(PS_E_NO_SPACE, "loss report is full");
    }
    ps_loss_entry_t *entry = (void *)(cnc->loss_report + at);
    atomic_store_explicit(&entry->bytes, bytes, memory_order_relaxed);
    entry->first_ms = epoch_ms;
    atomic_store_explicit(&entry->last_ms, epoch_ms, memory_order_relaxed);
    entry->session_id = session_id;
    entry->stream_id = stream_id;
    entry->channel_length = channel_length;
    memcpy(entry->rest, channel, (size_t)channel_length);
    uint8_t *rest = entry->rest + ps_cnc_align(channel_length, 4);
    memcpy(rest, &source_length, 4);
    memcpy(rest + 4, source, (size_t)source_length);
    atomic_store_explicit(&entry->observations, gaps > 1 ? gaps : 1, memory_order_release);
    return PS_OK;
}
