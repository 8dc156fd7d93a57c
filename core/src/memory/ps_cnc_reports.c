/* SPDX-License-Identifier: Apache-2.0
 * ps_cnc_reports.c: distinct error log and loss report (docs/spec/shared-memory.md section 2).
 * One writer: the conductor thread.  Readers: tools. */
#include "ps_set_up.h"

#include <stdbool.h>
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

int ps_cnc_log_error(ps_cnc_t *cnc, int64_t epoch_ms, int32_t stranger, const char *text)
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
    const int32_t room = stranger ? cnc->error_log_length / 2 : cnc->error_log_length;
    if (at + PS_ERROR_HEADER + text_length > room) {
        return ps_fail(PS_E_NO_SPACE, "%d bytes of the error log are full", room);
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

enum {
    PS_LOSS_HEADER = 44,
    PS_LOSS_TEXT = 4096,
    PS_LOSS_LAST = 128 /* room for the entry of all other channels */
};
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

/* A loss may be counted in one of four entries, from the most exact one on.  Session 0 with one of
 * these texts is an entry of many streams. */
enum { PS_LOSS_STREAM, PS_LOSS_HOST, PS_LOSS_CHANNEL, PS_LOSS_ALL, PS_LOSS_LABELS };
static const char ps_other_sources[] = "other sources";
static const char ps_other_channels[] = "other channels";

typedef struct ps_loss_label {
    int32_t session_id, stream_id, channel_length, source_length;
    const char *channel, *source;
} ps_loss_label_t;

typedef struct ps_loss_search {
    ps_loss_entry_t *found[PS_LOSS_LABELS];
    int64_t end;      /* where the next entry begins */
    int32_t sessions; /* entries of streams of this channel, stream id and host */
} ps_loss_search_t;

/* Length of the part of "host:port" before the port. */
static int32_t ps_host_length(const char *source, int32_t length)
{
    for (int32_t i = length - 1; i > 0; i--) {
        if (source[i] == ':') {
            return i;
        }
    }
    return length;
}

static void ps_loss_labels(const ps_loss_t *loss, ps_loss_label_t *labels)
{
    const int32_t channel_length = (int32_t)strnlen(loss->channel, PS_LOSS_TEXT);
    const int32_t source_length = (int32_t)strnlen(loss->source, PS_LOSS_TEXT);
    labels[PS_LOSS_STREAM] = (ps_loss_label_t){ .session_id = loss->session_id,
                                                .stream_id = loss->stream_id,
                                                .channel_length = channel_length,
                                                .source_length = source_length,
                                                .channel = loss->channel,
                                                .source = loss->source };
    labels[PS_LOSS_HOST] = labels[PS_LOSS_STREAM];
    labels[PS_LOSS_HOST].session_id = 0;
    labels[PS_LOSS_HOST].source_length = ps_host_length(loss->source, source_length);
    labels[PS_LOSS_CHANNEL] = labels[PS_LOSS_HOST];
    labels[PS_LOSS_CHANNEL].source = ps_other_sources;
    labels[PS_LOSS_CHANNEL].source_length = sizeof ps_other_sources - 1;
    labels[PS_LOSS_ALL] = labels[PS_LOSS_CHANNEL];
    labels[PS_LOSS_ALL].stream_id = 0;
    labels[PS_LOSS_ALL].channel = ps_other_channels;
    labels[PS_LOSS_ALL].channel_length = sizeof ps_other_channels - 1;
}

static bool ps_loss_is(const ps_loss_entry_t *entry, int32_t source_length,
                       const ps_loss_label_t *label)
{
    return entry->session_id == label->session_id && entry->stream_id == label->stream_id &&
           entry->channel_length == label->channel_length &&
           source_length == label->source_length &&
           memcmp(entry->rest, label->channel, (size_t)label->channel_length) == 0 &&
           memcmp(entry->rest + ps_cnc_align(label->channel_length, 4) + 4, label->source,
                  (size_t)label->source_length) == 0;
}

/* Whether the entry is of another session or port of the host. */
static bool ps_loss_is_beside(const ps_loss_entry_t *entry, int32_t source_length,
                              const ps_loss_label_t *host)
{
    const uint8_t *source = entry->rest + ps_cnc_align(host->channel_length, 4) + 4;
    return entry->stream_id == host->stream_id && entry->channel_length == host->channel_length &&
           source_length > host->source_length && source[host->source_length] == ':' &&
           memcmp(source, host->source, (size_t)host->source_length) == 0 &&
           memcmp(entry->rest, host->channel, (size_t)host->channel_length) == 0;
}

static void ps_loss_find(const ps_cnc_t *cnc, const ps_loss_label_t *labels,
                         ps_loss_search_t *search)
{
    int32_t source_length = 0;
    int64_t size;
    memset(search, 0, sizeof *search);
    while (search->found[PS_LOSS_STREAM] == NULL &&
           (size = ps_loss_size(cnc, search->end, &source_length)) > 0) {
        ps_loss_entry_t *entry = (void *)(cnc->loss_report + search->end);
        for (int32_t i = 0; i < PS_LOSS_LABELS; i++) {
            if (search->found[i] == NULL && ps_loss_is(entry, source_length, &labels[i])) {
                search->found[i] = entry;
            }
        }
        search->sessions += ps_loss_is_beside(entry, source_length, &labels[PS_LOSS_HOST]);
        search->end += size;
    }
}

static bool ps_loss_append(ps_cnc_t *cnc, const ps_loss_t *loss, const ps_loss_label_t *label,
                           int64_t at, int64_t limit)
{
    if (at + ps_loss_entry_bytes(label->channel_length, label->source_length) > limit) {
        return false;
    }
    ps_loss_entry_t *entry = (void *)(cnc->loss_report + at);
    atomic_store_explicit(&entry->bytes, loss->bytes, memory_order_relaxed);
    entry->first_ms = loss->epoch_ms;
    atomic_store_explicit(&entry->last_ms, loss->epoch_ms, memory_order_relaxed);
    entry->session_id = label->session_id;
    entry->stream_id = label->stream_id;
    entry->channel_length = label->channel_length;
    memcpy(entry->rest, label->channel, (size_t)label->channel_length);
    uint8_t *rest = entry->rest + ps_cnc_align(label->channel_length, 4);
    memcpy(rest, &label->source_length, 4);
    memcpy(rest + 4, label->source, (size_t)label->source_length);
    atomic_store_explicit(&entry->observations, loss->gaps > 1 ? loss->gaps : 1,
                          memory_order_release);
    return true;
}

int ps_cnc_report_loss(ps_cnc_t *cnc, const ps_loss_t *loss)
{
    if (cnc->read_only || cnc->loss_report == NULL) {
        return ps_fail(PS_E_INVALID, "no loss report to write");
    }
    if (loss->gaps < 0) {
        return ps_fail(PS_E_INVALID, "loss report: %d gaps, which must be >= 0", (int)loss->gaps);
    }
    ps_loss_label_t labels[PS_LOSS_LABELS];
    ps_loss_search_t search;
    ps_loss_labels(loss, labels);
    ps_loss_find(cnc, labels, &search);
    const int64_t length = (int64_t)cnc->loss_report_length;
    const int64_t streams = loss->settled ? length / 4 * 3 : length / 8;
    const int64_t limits[PS_LOSS_LABELS] = { streams, streams, length - PS_LOSS_LAST, length };
    for (int32_t i = 0; i < PS_LOSS_LABELS; i++) {
        ps_loss_entry_t *entry = search.found[i];
        if (entry != NULL) {
            atomic_fetch_add_explicit(&entry->bytes, loss->bytes, memory_order_relaxed);
            atomic_store_explicit(&entry->last_ms, loss->epoch_ms, memory_order_relaxed);
            atomic_fetch_add_explicit(&entry->observations, loss->gaps, memory_order_release);
            return PS_OK;
        }
        const bool many = i == PS_LOSS_STREAM && search.sessions >= PS_LOSS_SESSIONS;
        if (!many && ps_loss_append(cnc, loss, &labels[i], search.end, limits[i])) {
            return PS_OK;
        }
    }
    return ps_fail(PS_E_NO_SPACE, "loss report of %lld bytes is full", (long long)length);
}
