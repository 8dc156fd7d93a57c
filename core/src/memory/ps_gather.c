/* SPDX-License-Identifier: Apache-2.0
 * ps_gather.c: ranges of a log as columns. */

#include "ps_gather.h"

#include <stdlib.h>
#include <string.h>

#include "ps_error.h"
#include "ps_frame.h"
#include "ps_log.h"

/* Frames ahead of a walk whose headers are requested early. */
#define PS_GATHER_AHEAD 16

/* One frame's header, loaded once and checked; the one before it when the next one is loaded. */
typedef struct ps_gather_header {
    int32_t length; /* with header, without padding to 32 */
    int32_t span;   /* with padding */
    uint8_t flags;
    uint16_t type;
    int64_t reserved_value;
} ps_gather_header_t;

static int ps_gather_check(const ps_gather_frames_t *frames)
{
    const int32_t term = frames->term_length;
    if (term < PS_TERM_MIN || term > PS_TERM_MAX || (term & (term - 1)) != 0) {
        return ps_fail(PS_E_INVALID, "impossible term length %d", term);
    }
    if (frames->start < 0 || frames->start % PS_FRAME_ALIGNMENT != 0 || frames->length < 0 ||
        frames->length % PS_FRAME_ALIGNMENT != 0) {
        return ps_fail(PS_E_INVALID, "frames at %lld, %lld bytes: not multiples of 32",
                       (long long)frames->start, (long long)frames->length);
    }
    if ((frames->start & (term - 1)) + frames->length > term) {
        return ps_fail(PS_E_INVALID, "frames at %lld, %lld bytes: across the end of a term",
                       (long long)frames->start, (long long)frames->length);
    }
    if (frames->length > 0 && (uintptr_t)frames->data % 8 != 0) {
        return ps_fail(PS_E_INVALID, "frames are not aligned to 8 bytes");
    }
    return PS_OK;
}

static int ps_gather_wrong(const ps_gather_frames_t *frames, int64_t at, const char *what,
                           int64_t value)
{
    return ps_fail(PS_E_CORRUPT, "position %lld of session %d, stream %d: %s %lld",
                   (long long)(frames->start + at), frames->session_id, frames->stream_id, what,
                   (long long)value);
}

/* Loads and checks the frame at byte `at`.  The first word is one atomic load: length, flags and
 * type belong together. */
static int ps_gather_load(const ps_gather_frames_t *frames, int64_t at, ps_gather_header_t *out)
{
    ps_frame_t *frame = (ps_frame_t *)(uintptr_t)(frames->data + at);
    /* A walk that copies nothing waits for one header after another, and the processor cannot
     * guess the stride over pages: neighbours mostly have the same length. */
    __builtin_prefetch(frames->data + at + (int64_t)PS_GATHER_AHEAD * out->span);
    /* acquire: pairs with the release store that completed the frame */
    const uint64_t word = atomic_load_explicit(ps_frame_word(frame), memory_order_acquire);
    const int32_t length = (int32_t)(uint32_t)word;
    out->flags = (uint8_t)(word >> 40);
    out->type = (uint16_t)(word >> 48);
    if (length < PS_HEADER_BYTES || length > frames->length - at) {
        return ps_gather_wrong(frames, at, "frame length", length);
    }
    if (out->type != PS_TYPE_DATA && out->type != PS_TYPE_PAD) {
        return ps_gather_wrong(frames, at, "frame type", out->type);
    }
    const ps_alias64_t *words = (const ps_alias64_t *)(const void *)frame;
    const uint64_t second = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
    const uint64_t third = __atomic_load_n(words + 2, __ATOMIC_RELAXED);
    const int64_t position = frames->start + at;
    const int32_t shift = __builtin_ctz((uint32_t)frames->term_length);
    const int32_t offset = (int32_t)(position & (frames->term_length - 1));
    if (second != ps_pair(offset, frames->session_id) ||
        third !=
            ps_pair(frames->stream_id, ps_term_id_at(position, shift, frames->initial_term_id))) {
        return ps_gather_wrong(frames, at, "another frame's header, term offset",
                               (int32_t)(uint32_t)second);
    }
    out->reserved_value = ps_frame_reserved_value(frame);
    out->length = length;
    out->span = ps_align32(length);
    return PS_OK;
}

/* Notes padding; it also ends a message that was being put together. */
static void ps_gather_padding(const ps_gather_header_t *header, ps_gather_rows_t *rows)
{
    if (ps_is_gap_mark(header->reserved_value)) {
        const int32_t messages = (int32_t)(uint32_t)header->reserved_value;
        rows->gaps++;
        if (messages > 0 && messages != PS_GAP_UNKNOWN) {
            rows->gap_messages += messages;
        }
    }
}

/* State of a walk within a message. */
typedef struct ps_gather_walk {
    int64_t at;        /* byte in the frames */
    int64_t begun;     /* byte where the message begins, -1 outside of one */
    int64_t fragments; /* frames of it so far */
    int64_t reserved_value;
} ps_gather_walk_t;

/* Processes a data frame: 1 = its payload belongs to a message, 0 = it is an orphan. */
static int ps_gather_enter(ps_gather_walk_t *walk, const ps_gather_header_t *header,
                           int64_t *orphans)
{
    if (header->flags & PS_FLAG_BEGIN) {
        *orphans += walk->begun >= 0 ? walk->fragments : 0;
        walk->begun = walk->at;
        walk->fragments = 0;
        walk->reserved_value = header->reserved_value;
    } else if (walk->begun < 0) {
        (*orphans)++;
        return 0;
    }
    walk->fragments++;
    return 1;
}

static int ps_gather_no_room(const ps_gather_frames_t *frames, const ps_gather_walk_t *walk,
                             ps_gather_rows_t *rows, int64_t first_row, int64_t length)
{
    rows->position = frames->start + (walk->begun >= 0 ? walk->begun : walk->at);
    if (rows->rows == 0 && first_row == 0 && rows->row_limit > 0) {
        rows->needed = length;
        return PS_GATHER_TOO_LONG;
    }
    return PS_GATHER_FULL;
}

static void ps_gather_row(ps_gather_rows_t *rows, const ps_gather_walk_t *walk, int64_t position,
                          int64_t value_end)
{
    const int32_t row = rows->rows;
    if (rows->positions != NULL) {
        rows->positions[row] = position;
    }
    if (rows->reserved_values != NULL) {
        rows->reserved_values[row] = walk->reserved_value;
    }
    rows->offsets[row + 1] = (int32_t)value_end;
    rows->used = value_end;
    rows->rows = row + 1;
}

int ps_gather_copy(const ps_gather_frames_t *frames, ps_gather_rows_t *rows)
{
    const int code = ps_gather_check(frames);
    if (code != PS_OK) {
        return code;
    }
    if (rows->row_limit < 0 || rows->rows < 0 || rows->rows > rows->row_limit || rows->used < 0 ||
        rows->used > rows->value_limit || rows->value_limit > INT32_MAX) {
        return ps_fail(PS_E_INVALID, "rows %d of %d, bytes %lld of %lld", rows->rows,
                       rows->row_limit, (long long)rows->used, (long long)rows->value_limit);
    }
    const int32_t first_row = rows->rows;
    ps_gather_walk_t walk = { .at = 0, .begun = -1 };
    ps_gather_header_t header = { .span = 0 };
    int64_t value_end = rows->used;
    rows->offsets[rows->rows] = (int32_t)rows->used;
    while (walk.at < frames->length) {
        const int wrong = ps_gather_load(frames, walk.at, &header);
        if (wrong != PS_OK) {
            return wrong;
        }
        if (header.type == PS_TYPE_PAD) {
            rows->orphans += walk.begun >= 0 ? walk.fragments : 0;
            walk.begun = -1;
            ps_gather_padding(&header, rows);
        } else {
            if (header.flags & PS_FLAG_BEGIN) {
                value_end = rows->used;
            }
            const int64_t payload = header.length - PS_HEADER_BYTES;
            if (rows->rows == rows->row_limit) {
                return ps_gather_no_room(frames, &walk, rows, first_row, payload);
            }
            if (ps_gather_enter(&walk, &header, &rows->orphans)) {
                if (payload > rows->value_limit - value_end) {
                    return ps_gather_no_room(frames, &walk, rows, first_row,
                                             value_end - rows->used + payload);
                }
                memcpy(rows->values + value_end, frames->data + walk.at + PS_HEADER_BYTES,
                       (size_t)payload);
                value_end += payload;
                if (header.flags & PS_FLAG_END) {
                    ps_gather_row(rows, &walk, frames->start + walk.at + header.span, value_end);
                    walk.begun = -1;
                }
            }
        }
        walk.at += header.span;
    }
    rows->position = frames->start + (walk.begun >= 0 ? walk.begun : walk.at);
    return walk.begun >= 0 ? PS_GATHER_INCOMPLETE : PS_GATHER_END;
}

int ps_gather_scan(const ps_gather_frames_t *frames, ps_gather_scan_t *scan)
{
    const int code = ps_gather_check(frames);
    if (code != PS_OK) {
        return code;
    }
    ps_gather_walk_t walk = { .at = 0, .begun = -1 };
    ps_gather_header_t header = { .span = 0 };
    int64_t orphans = 0;
    scan->position = frames->start;
    while (walk.at < frames->length) {
        const int wrong = ps_gather_load(frames, walk.at, &header);
        if (wrong != PS_OK) {
            return wrong;
        }
        const int64_t after = walk.at + header.span;
        int64_t ended = 0;
        if (header.type == PS_TYPE_PAD) {
            walk.begun = -1;
        } else if (ps_gather_enter(&walk, &header, &orphans) && (header.flags & PS_FLAG_END)) {
            walk.begun = -1;
            ended = 1;
        }
        walk.at = after;
        if (walk.begun >= 0) {
            continue;
        }
        const int64_t messages = scan->messages + ended;
        if (scan->messages > 0 && (after > scan->byte_limit ||
                                   (scan->message_limit > 0 && messages > scan->message_limit))) {
            scan->stop = PS_GATHER_FULL;
            return PS_OK;
        }
        scan->position = frames->start + after;
        scan->messages = messages;
    }
    scan->stop = walk.begun >= 0 ? PS_GATHER_INCOMPLETE : PS_GATHER_END;
    return PS_OK;
}

int ps_gather_find(const ps_gather_frames_t *frames, ps_gather_find_t *find)
{
    const int code = ps_gather_check(frames);
    if (code != PS_OK) {
        return code;
    }
    ps_gather_walk_t walk = { .at = 0, .begun = -1 };
    ps_gather_header_t header = { .span = 0 };
    int64_t orphans = 0;
    find->position = frames->start;
    find->found = 0;
    find->stop = PS_GATHER_FULL;
    while (walk.at < frames->length) {
        if (find->found || (walk.begun < 0 && walk.at >= find->byte_limit)) {
            return PS_OK;
        }
        const int wrong = ps_gather_load(frames, walk.at, &header);
        if (wrong != PS_OK) {
            return wrong;
        }
        const int64_t after = walk.at + header.span;
        if (header.type == PS_TYPE_PAD) {
            walk.begun = -1;
        } else if (ps_gather_enter(&walk, &header, &orphans) && (header.flags & PS_FLAG_END)) {
            if (walk.reserved_value == find->reserved_value) {
                find->found = 1;
                find->begin = frames->start + walk.begun;
            }
            walk.begun = -1;
        }
        walk.at = after;
        if (walk.begun < 0) {
            find->position = frames->start + after;
        }
    }
    if (!find->found) {
        find->stop = walk.begun >= 0 ? PS_GATHER_INCOMPLETE : PS_GATHER_END;
    }
    return PS_OK;
}

/* ---- a log file ------------------------------------------------------------------------------ */

struct ps_gather_log {
    ps_log_t log;
};

int ps_gather_open(const char *path, ps_gather_log_t **out, ps_gather_facts_t *facts)
{
    *out = NULL;
    ps_gather_log_t *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a log");
    }
    const int code = ps_log_map(path, 1, &log->log);
    if (code != PS_OK) {
        free(log);
        return code;
    }
    facts->correlation_id = log->log.meta->correlation_id;
    facts->session_id = log->log.session_id;
    facts->stream_id = log->log.stream_id;
    facts->initial_term_id = log->log.initial_term_id;
    facts->term_length = log->log.term_length;
    facts->mtu = log->log.mtu;
    *out = log;
    return PS_OK;
}

void ps_gather_close(ps_gather_log_t *log)
{
    if (log != NULL) {
        ps_log_unmap(&log->log);
        free(log);
    }
}

int ps_gather_locate(const ps_gather_log_t *log, int64_t position, int64_t end,
                     ps_gather_frames_t *out)
{
    if (position < 0 || end < position || position % PS_FRAME_ALIGNMENT != 0 ||
        end % PS_FRAME_ALIGNMENT != 0 || position >> log->log.shift > INT32_MAX) {
        return ps_fail(PS_E_INVALID, "no range of positions: %lld to %lld", (long long)position,
                       (long long)end);
    }
    const int64_t room = log->log.term_length - (position & log->log.term_mask);
    out->data = ps_log_at(&log->log, position);
    out->start = position;
    out->length = end - position < room ? end - position : room;
    out->session_id = log->log.session_id;
    out->stream_id = log->log.stream_id;
    out->initial_term_id = log->log.initial_term_id;
    out->term_length = log->log.term_length;
    return PS_OK;
}

int ps_gather_intact(const ps_gather_log_t *log, int64_t position)
{
    ps_gather_frames_t frames;
    ps_gather_header_t header = { .span = 0 };
    /* acquire: the checks after the fence come after the copies before it */
    atomic_thread_fence(memory_order_acquire);
    if (ps_gather_locate(log, position, position, &frames) != PS_OK) {
        return 0;
    }
    frames.length = log->log.term_length - (position & log->log.term_mask);
    return ps_gather_load(&frames, 0, &header) == PS_OK;
}
