/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_gather.h: copies a range of a log into columns, without a subscription.
 *
 * A walk reads the positions [start, end) frame by frame. The walk checks every header before using
 * it. The check is necessary because another process or host may have written the bytes, and
 * because a writer may overwrite the range during the walk. The walk skips padding, joins
 * fragments, and copies each payload byte once into the caller's arrays. The walk changes no
 * subscriber position, so it can be repeated.
 *
 * A range begins and ends between messages (ps_gather_scan finds such positions). A message is
 * incomplete if its first fragment is missing, or if padding replaces its last fragments. The walk
 * counts and skips all fragments of an incomplete message. A subscription skips the same fragments.
 *
 * Several threads may share a ps_gather_log_t, which is read-only; everything else belongs to the
 * caller. */
#ifndef PS_GATHER_H
#define PS_GATHER_H

#include <stdint.h>

/* Why a walk stopped. */
enum ps_gather_stop {
    PS_GATHER_END = 0,       /* at end */
    PS_GATHER_FULL = 1,      /* The output arrays have no room for the next message; the caller may
                              * continue at `position` with new arrays. */
    PS_GATHER_TOO_LONG = 2,  /* The first message is longer than the whole array `values`; `needed`
                              * is the number of bytes of this message that the walk has read. */
    PS_GATHER_INCOMPLETE = 3 /* The last message continues beyond the end of the range; `position`
                              * is the start of this message. */
};

/* A range of contiguous frames in memory, all of the same term. */
typedef struct ps_gather_frames {
    const uint8_t *data; /* Address of the frame at position `start`, aligned to 8 bytes. */
    int64_t start;       /* Stream position of the first frame at `data`, a multiple of 32, >= 0. */
    int64_t length;      /* Number of readable bytes at `data`, a multiple of 32. */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length; /* Term length of the log: a power of two, 64 KiB to 1 GiB. */
} ps_gather_frames_t;

/* The output arrays, and the number of entries in use. The caller sets the arrays and their sizes,
 * and sets the other fields to zero. Each further call of ps_gather_copy appends to the arrays. */
typedef struct ps_gather_rows {
    uint8_t *values;          /* payloads, back to back */
    int32_t *offsets;         /* row_limit + 1 entries */
    int64_t *positions;       /* Array of row_limit entries, which gets the position after each
                               * message; or NULL. */
    int64_t *reserved_values; /* Array of row_limit entries, which gets the reserved value of each
                               * message's first frame; or NULL. */
    int64_t value_limit;      /* Size of the array `values` in bytes; at most INT32_MAX. */
    int32_t row_limit;
    int32_t rows;
    int64_t used;         /* bytes in values */
    int64_t position;     /* the next call continues here */
    int64_t needed;       /* After PS_GATHER_TOO_LONG: size of the message that did not fit, as far
                           * as the walk has read this message. */
    int64_t gaps;         /* Number of padding frames in the walked range that replace dropped
                           * messages. */
    int64_t gap_messages; /* Number of dropped messages: the sum of the numbers that the padding
                           * frames that `gaps` counts state. A padding frame without a number
                           * counts as 0 messages. */
    int64_t orphans;      /* Number of frames that the walk skipped because their messages are
                           * incomplete. */
} ps_gather_rows_t;

/* Copies messages until the frames end or a limit is reached. Returns a ps_gather_stop, or
 * PS_E_INVALID, PS_E_CORRUPT (a header has an impossible value; the error text states the header's
 * position). One call takes at most length / 32 steps and copies at most value_limit bytes. */
int ps_gather_copy(const ps_gather_frames_t *frames, ps_gather_rows_t *rows);

/* Limits and result of ps_gather_scan, a walk that copies no payload. If the caller sets `messages`
 * to 0, the walk includes the first message even if the message is larger than the limits allow. */
typedef struct ps_gather_scan {
    int64_t byte_limit;    /* largest number of log bytes that one call may visit */
    int64_t message_limit; /* limit of `messages`; 0: none */
    int64_t messages;      /* Set by the caller: number of complete messages before `start`. The
                            * walk increases this field by the number of complete messages between
                            * `start` and `position`. */
    int64_t position;      /* Result: the highest position between two messages that the walk can
                            * reach within the limits. */
    int32_t stop;          /* a ps_gather_stop */
} ps_gather_scan_t;

/* Finds a position between messages. Returns 0, PS_E_INVALID or PS_E_CORRUPT. Cost: at most length
 * / 32 steps. */
int ps_gather_scan(const ps_gather_frames_t *frames, ps_gather_scan_t *scan);

/* Input and result of a search for the first complete message with a given reserved value. */
typedef struct ps_gather_find {
    int64_t reserved_value; /* Set by the caller: the reserved value to find. The first frame of
                             * each message has the message's reserved value. */
    int64_t byte_limit;     /* Set by the caller: number of bytes to search. The search ignores
                             * messages that begin after these bytes. */
    int64_t begin;          /* found: position of the message */
    int64_t position;       /* If the message was found: the position after the message. If the
                             * message was not found: the highest position between two messages that
                             * the search reached. */
    int32_t found;          /* 1, 0 */
    int32_t stop;           /* A value of ps_gather_stop: PS_GATHER_FULL if the message was found or
                             * the search reached the limit. */
} ps_gather_find_t;

/* Finds a message by its reserved value. Returns 0, PS_E_INVALID or PS_E_CORRUPT. Cost: at most
 * length / 32 steps. */
int ps_gather_find(const ps_gather_frames_t *frames, ps_gather_find_t *find);

/* ---- a log file, mapped read-only ------------------------------------------------------------ */

typedef struct ps_gather_log ps_gather_log_t;

typedef struct ps_gather_facts {
    int64_t correlation_id; /* Registration id of the publication or image that owns the log. */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length;
    int32_t mtu;
} ps_gather_facts_t;

/* Maps a log.  PS_E_SYSTEM, PS_E_CORRUPT, PS_E_NO_MEMORY. */
int ps_gather_open(const char *path, ps_gather_log_t **out, ps_gather_facts_t *facts);
void ps_gather_close(ps_gather_log_t *log); /* NULL is allowed */

/* Returns the frames from `position` to the end of the term, or to `end` if `end` is lower.
 * PS_E_INVALID: position or end is no multiple of 32, or end is before position. */
int ps_gather_locate(const ps_gather_log_t *log, int64_t position, int64_t end,
                     ps_gather_frames_t *out);
/* Returns 1 if no writer has overwritten the frame at `position`. Returns 0 if a writer has
 * overwritten the frame; the bytes that the caller copied from the frame are not valid. The check
 * is quick, but may miss that a writer has overwritten the frame. To be certain, ask the daemon
 * after the copy whether the daemon still retains the position. */
int ps_gather_intact(const ps_gather_log_t *log, int64_t position);

#endif
