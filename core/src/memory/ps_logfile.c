/* SPDX-License-Identifier: Apache-2.0
 * ps_logfile.c: making log buffer files and reserving their terms (docs/spec/log-buffer.md).
 * Control plane. */
#include "ps_set_up.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps_error.h"
#include "ps_file.h"
#include "ps_log.h"

_Static_assert(offsetof(ps_log_meta_t, active_term_count) == 24, "layout");
_Static_assert(offsetof(ps_log_meta_t, max_resend) == 316, "layout");
_Static_assert(offsetof(ps_log_meta_t, entity_tag) == 448, "layout");
_Static_assert(offsetof(ps_log_meta_t, tether) == 495, "layout");
_Static_assert(offsetof(ps_log_meta_t, type) == 497, "layout");

/* Bytes at the start of a term that are always reserved. */
enum { THRESHOLD_BYTES = 4096 };

static bool ps_is_power_of_two(int64_t value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

int64_t ps_log_file_length(int32_t term_length, int32_t page_size)
{
    const int64_t raw = INT64_C(3) * term_length + PS_LOG_META_BYTES;
    return (raw + page_size - 1) & ~((int64_t)page_size - 1);
}

static int ps_log_params_check(const ps_log_params_t *params)
{
    const int32_t term_length = params->term_length;
    if (params->path == NULL) {
        return ps_fail(PS_E_INVALID, "log buffer without a path");
    }
    if (!ps_is_power_of_two(term_length) || term_length < PS_TERM_MIN ||
        term_length > PS_TERM_MAX) {
        return ps_fail(PS_E_INVALID, "term length %d is not a power of two in 65536..1073741824",
                       term_length);
    }
    if (!ps_is_power_of_two(params->page_size) || params->page_size < 4096 ||
        params->page_size > PS_TERM_MAX) {
        return ps_fail(PS_E_INVALID, "page size %d is not a power of two in 4096..1073741824",
                       params->page_size);
    }
    if (params->mtu < PS_MTU_MIN || params->mtu > PS_MTU_MAX || params->mtu % 32 != 0) {
        return ps_fail(PS_E_INVALID, "mtu %d is not a multiple of 32 in 64..65504", params->mtu);
    }
    if (params->reserve_from < 0 || params->reserve_to < params->reserve_from ||
        params->reserve_to - params->reserve_from > INT64_C(3) * term_length) {
        return ps_fail(PS_E_INVALID, "reserve %lld..%lld is not a range of at most three terms",
                       (long long)params->reserve_from, (long long)params->reserve_to);
    }
    if (params->type > PS_LOG_SEALED || params->reserve_terms > PS_PARTITIONS) {
        return ps_fail(PS_E_INVALID, "log type %d or reserve_terms %d out of range", params->type,
                       params->reserve_terms);
    }
    if (ps_wrap_sub(params->term_id, params->initial_term_id) < 0) {
        return ps_fail(PS_E_INVALID, "term id %d is before initial term id %d", params->term_id,
                       params->initial_term_id);
    }
    if (params->term_offset < 0 || params->term_offset > term_length ||
        params->term_offset % PS_FRAME_ALIGNMENT != 0) {
        return ps_fail(PS_E_INVALID, "term offset %d is not a multiple of 32 in 0..%d",
                       params->term_offset, term_length);
    }
    return PS_OK;
}

/* The header template of 2.2, field by field: it lies in the file little-endian as the host is. */
static void ps_default_header(uint8_t *out, const ps_log_params_t *params)
{
    const uint16_t type = PS_TYPE_DATA;
    out[5] = PS_FLAG_UNFRAGMENTED;
    memcpy(out + 6, &type, sizeof type);
    memcpy(out + 12, &params->session_id, sizeof params->session_id);
    memcpy(out + 16, &params->stream_id, sizeof params->stream_id);
    memcpy(out + 20, &params->initial_term_id, sizeof params->initial_term_id);
}

static void ps_initial_tails(ps_log_meta_t *meta, const ps_log_params_t *params, int32_t term_count)
{
    for (int32_t ahead = 0; ahead < PS_PARTITIONS; ahead++) {
        const int32_t index = (int32_t)(((int64_t)term_count + ahead) % PS_PARTITIONS);
        const int32_t back = ahead == 0 ? 0 : ahead - PS_PARTITIONS;
        const int32_t id = ps_wrap_add(params->term_id, back);
        const uint64_t offset = ahead == 0 ? (uint32_t)params->term_offset : 0;
        atomic_init(&meta->tail[index], (int64_t)(((uint64_t)(uint32_t)id << 32) | offset));
    }
    atomic_init(&meta->active_term_count, term_count);
}

static void ps_fill_meta(ps_log_meta_t *meta, const ps_log_params_t *params)
{
    memset(meta, 0, sizeof *meta);
    if (params->type != PS_LOG_IMAGE) {
        ps_initial_tails(meta, params, ps_wrap_sub(params->term_id, params->initial_term_id));
    }
    atomic_init(&meta->end_of_stream, INT64_MAX);
    meta->correlation_id = params->correlation_id;
    meta->initial_term_id = params->initial_term_id;
    meta->header_length = PS_HEADER_BYTES;
    meta->mtu = params->mtu;
    meta->term_length = params->term_length;
    meta->page_size = params->page_size;
    meta->publication_window = params->publication_window_bytes;
    meta->receiver_window = params->receiver_window_bytes;
    meta->sndbuf = params->sndbuf_bytes;
    meta->sndbuf_default = params->sndbuf_default_bytes;
    meta->sndbuf_max = params->sndbuf_max_bytes;
    meta->rcvbuf = params->rcvbuf_bytes;
    meta->rcvbuf_default = params->rcvbuf_default_bytes;
    meta->rcvbuf_max = params->rcvbuf_max_bytes;
    meta->max_resend = params->max_resend;
    ps_default_header(meta->default_header, params);
    meta->entity_tag = params->entity_tag;
    meta->response_correlation_id = params->response_correlation_id;
    meta->linger_timeout_ns = params->linger_timeout_ns;
    meta->untethered_window_limit_timeout_ns = params->untethered_window_limit_timeout_ns;
    meta->untethered_resting_timeout_ns = params->untethered_resting_timeout_ns;
    memcpy(meta->untethered_linger_timeout_ns, &params->untethered_linger_timeout_ns, 8);
    meta->group = params->group;
    meta->is_response = params->is_response;
    meta->rejoin = params->rejoin;
    meta->reliable = params->reliable;
    meta->sparse = params->sparse;
    meta->signal_eos = params->signal_eos;
    meta->spies_simulate_connection = params->spies_simulate_connection;
    meta->tether = params->tether;
    meta->type = params->type;
}

/* Bytes of positions [from, to), which may lie in several terms. */
static int ps_log_reserve_range(int fd, const char *path, int32_t term_length, int64_t from,
                                int64_t to)
{
    int code = PS_OK;
    while (code == PS_OK && from < to) {
        const int64_t term_end = (from / term_length + 1) * term_length;
        const int64_t end = to < term_end ? to : term_end;
        const int64_t partition = from / term_length % PS_PARTITIONS;
        code = ps_file_reserve(fd, path, partition * term_length + from % term_length, end - from);
        from = end;
    }
    return code;
}

static int ps_log_fill_file(int fd, const ps_log_params_t *params, int64_t length)
{
    const int64_t at = length - PS_LOG_META_BYTES;
    int code = ps_file_reserve(fd, params->path, at, PS_LOG_META_BYTES);
    int32_t first = ps_wrap_sub(params->term_id, params->initial_term_id);
    if (params->term_offset == params->term_length && first < INT32_MAX) {
        first++;
    }
    for (int32_t i = 0; code == PS_OK && i < PS_PARTITIONS; i++) {
        const int64_t partition = ((int64_t)first + i) % PS_PARTITIONS;
        /* A reader at the end of a term checks the first word of the next term. Without memory for
         * it, the read raises SIGBUS on a full file system. */
        code = ps_file_reserve(fd, params->path, partition * params->term_length,
                               i < params->reserve_terms ? params->term_length : THRESHOLD_BYTES);
    }
    if (code == PS_OK) {
        code = ps_log_reserve_range(fd, params->path, params->term_length, params->reserve_from,
                                    params->reserve_to);
    }
    if (code != PS_OK) {
        return code;
    }
    ps_log_meta_t meta;
    ps_fill_meta(&meta, params);
    if (pwrite(fd, &meta, sizeof meta, (off_t)at) != (ssize_t)sizeof meta) {
        return ps_fail(PS_E_SYSTEM, "cannot write metadata of %s: %s", params->path,
                       strerror(errno));
    }
    return PS_OK;
}

int ps_log_create(const ps_log_params_t *params)
{
    int code = ps_log_params_check(params);
    if (code != PS_OK) {
        return code;
    }
    const int64_t length = ps_log_file_length(params->term_length, params->page_size);
    const int fd = ps_file_create(params->path, length, params->file_mode);
    if (fd < 0) {
        return fd;
    }
    const int64_t terms = params->reserve_terms;
    const int64_t needed = PS_LOG_META_BYTES + terms * params->term_length +
                           (PS_PARTITIONS - terms) * THRESHOLD_BYTES + params->reserve_to -
                           params->reserve_from;
    const int64_t available = ps_free_bytes(params->path);
    if (available >= 0 && available < needed) {
        code = ps_fail(PS_E_NO_SPACE, "no space for %s: needs %lld bytes, %lld available",
                       params->path, (long long)needed, (long long)available);
    } else {
        code = ps_log_fill_file(fd, params, length);
    }
    close(fd);
    if (code != PS_OK) {
        unlink(params->path);
    }
    return code;
}

/* Opens a log of terms of this length: a descriptor, or an error. */
static int ps_log_open(const char *path, int32_t term_length)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return ps_fail(PS_E_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    }
    struct stat info;
    if (fstat(fd, &info) != 0 ||
        (int64_t)info.st_size < INT64_C(3) * term_length + PS_LOG_META_BYTES) {
        close(fd);
        return ps_fail(PS_E_CORRUPT, "%s is not a log buffer with terms of %d bytes", path,
                       term_length);
    }
    return fd;
}

static bool ps_is_term_length(int32_t term_length)
{
    return ps_is_power_of_two(term_length) && term_length >= PS_TERM_MIN &&
           term_length <= PS_TERM_MAX;
}

int ps_log_reserve(const char *path, int32_t term_length, int64_t from, int64_t to)
{
    if (path == NULL || !ps_is_term_length(term_length) || from < 0 || to < from ||
        to - from > INT64_C(3) * term_length) {
        return ps_fail(PS_E_INVALID, "cannot reserve: term length %d, positions %lld..%lld",
                       term_length, (long long)from, (long long)to);
    }
    const int fd = ps_log_open(path, term_length);
    if (fd < 0) {
        return fd;
    }
    const int code = ps_log_reserve_range(fd, path, term_length, from, to);
    close(fd);
    return code;
}

int ps_log_release(const char *path, int32_t term_length, int64_t from, int64_t to)
{
    if (path == NULL || !ps_is_term_length(term_length) || from < 0 || to <= from ||
        from % term_length != 0 || to % term_length != 0 || to - from > INT64_C(3) * term_length) {
        return ps_fail(PS_E_INVALID, "cannot give back: term length %d, kept %lld to %lld",
                       term_length, (long long)from, (long long)to);
    }
    const int fd = ps_log_open(path, term_length);
    if (fd < 0) {
        return fd;
    }
    int code = PS_OK;
    const int64_t end = from / term_length + PS_PARTITIONS;
    for (int64_t term = to / term_length; code == PS_OK && term < end; term++) {
        const int64_t at = term % PS_PARTITIONS * term_length;
        code = ps_file_zero(fd, path, at, THRESHOLD_BYTES);
        if (code == PS_OK) {
            code = ps_file_release(fd, path, at + THRESHOLD_BYTES, term_length - THRESHOLD_BYTES);
        }
    }
    close(fd);
    return code;
}
