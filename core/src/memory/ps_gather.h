/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_gather.h: ranges of a log as columns, read without a subscription.
 *
 * A range [start, end) of positions is walked frame by frame.  Every header is checked before it is
 * used: the bytes may come from another process or another host, and a range may be overwritten
 * while it is read.  Padding is stepped over, fragments are put together, each payload byte is
 * copied once, into the caller's arrays.  Reading consumes nothing and may be repeated.
 *
 * A range begins and ends between messages (ps_gather_scan finds such places).  Fragments without
 * their first one, or cut off by padding, belong to no message: they are counted and left out, as
 * a subscription's assembler does.
 *
 * Threads: a ps_gather_log_t is read-only and may be shared; everything else is the caller's.
 * Intuition and code ours.
 */
#ifndef PS_GATHER_H
#define PS_GATHER_H

#include <stdint.h>

/* Why a walk stopped. */
enum ps_gather_stop {
    PS_GATHER_END = 0,       /* at end */
    PS_GATHER_FULL = 1,      /* no room for the next message: go on at position with new arrays */
    PS_GATHER_TOO_LONG = 2,  /* the first message alone is longer than the room: see needed */
    PS_GATHER_INCOMPLETE = 3 /* the last message goes on behind end; position is its start */
};

/* Frames that lie one behind the other in memory, all of one term. */
typedef struct ps_gather_frames {
    const uint8_t *data; /* of the frame at start; aligned to 8 bytes */
    int64_t start;       /* position of data, a multiple of 32, >= 0 */
    int64_t length;      /* readable bytes at data, a multiple of 32 */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length; /* a power of two, 64 KiB to 1 GiB */
} ps_gather_frames_t;

/* Where rows go, and how far.  The caller sets the arrays and their sizes and zeroes the rest;
 * calls for further frames append. */
typedef struct ps_gather_rows {
    uint8_t *values;          /* payloads, one behind the other */
    int32_t *offsets;         /* row_limit + 1 entries */
    int64_t *positions;       /* row_limit entries: after each message; or NULL */
    int64_t *reserved_values; /* row_limit entries: of the first frame; or NULL */
    int64_t value_limit;      /* bytes at values; at most INT32_MAX */
    int32_t row_limit;
    int32_t rows;
    int64_t used;         /* bytes in values */
    int64_t position;     /* to go on from */
    int64_t needed;       /* PS_GATHER_TOO_LONG: bytes of the message as far as it was seen */
    int64_t gaps;         /* padding that stands for dropped messages */
    int64_t gap_messages; /* how many, where known */
    int64_t orphans;      /* frames that belong to no message */
} ps_gather_rows_t;

/* Copies messages until the frames end or a limit is reached.  Returns a ps_gather_stop, or
 * PS_E_INVALID, PS_E_CORRUPT (a header that cannot be; the text says where).  Bound: length / 32
 * steps, value_limit bytes. */
int ps_gather_copy(const ps_gather_frames_t *frames, ps_gather_rows_t *rows);

/* How far a walk without copying goes, and went.  At least one message is admitted. */
typedef struct ps_gather_scan {
    int64_t byte_limit;    /* go at most this far from start */
    int64_t message_limit; /* on messages; 0: no such limit */
    int64_t messages;      /* complete ones: before start (set by the caller), then position */
    int64_t position;      /* last place between messages that is within the limits */
    int32_t stop;          /* a ps_gather_stop */
} ps_gather_scan_t;

/* Finds a place between messages.  0, PS_E_INVALID, PS_E_CORRUPT.  Bound: length / 32 steps. */
int ps_gather_scan(const ps_gather_frames_t *frames, ps_gather_scan_t *scan);

/* ---- a log file, mapped read-only ------------------------------------------------------------ */

typedef struct ps_gather_log ps_gather_log_t;

typedef struct ps_gather_facts {
    int64_t correlation_id; /* registration id of its publication or image */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length;
    int32_t mtu;
} ps_gather_facts_t;

/* Maps a log.  PS_E_SYSTEM, PS_E_CORRUPT, PS_E_NO_MEMORY. */
int ps_gather_open(const char *path, ps_gather_log_t **out, ps_gather_facts_t *facts);
void ps_gather_close(ps_gather_log_t *log); /* NULL is allowed */

/* The frames from position to the end of its term or to end.  PS_E_INVALID: not multiples of 32, or
 * end before position. */
int ps_gather_locate(const ps_gather_log_t *log, int64_t position, int64_t end,
                     ps_gather_frames_t *out);
/* 1: the frame at position is still the one that belongs there; 0: it was overwritten, and what was
 * copied from there on may be anything.  A quick look: who must be sure asks the daemon, after the
 * copy, whether it retains the position. */
int ps_gather_intact(const ps_gather_log_t *log, int64_t position);

#endif
