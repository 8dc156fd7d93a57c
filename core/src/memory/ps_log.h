/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_log.h: Aeron's log buffer: three terms and a 4096-byte metadata page
 * (docs/spec/log-buffer.md).
 *
 *   0        T        2T       3T ..           file end - 4096
 *   | term 0 | term 1 | term 2 | (page gap)    | metadata |
 *
 * position = (term_count << log2 T) + term_offset, partition = term_count mod 3, term_count =
 * term_id - initial_term_id (wrapping). Frames start at multiples of 32. The field frame_length is
 * negative in a claimed frame and positive in a complete frame. A frame_length of 0 means that no
 * frame begins at this position. Load frame_length with acquire order before the other fields.
 *
 * Claim protocol of penstock publishers (docs/spec/log-buffer.md section 4). The first 8 bytes of a
 * frame are one word. A shared publisher claims a frame of n bytes by a 64-bit compare-and-swap of
 * this word from 0. The new value is {frame_length = -n, upper half = the publisher's client slot}.
 * The publisher commits the frame with a compare-and-swap of the first word to {+n, version, flags,
 * type}. A claim contains the client slot, so that the daemon can find the client whose claim
 * blocks the log. If the daemon has replaced a claim with padding, the publisher's later commit
 * fails, and the message is never delivered. An exclusive publisher is the only writer of its log,
 * so it uses release stores. An exclusive publisher zeroes the word behind a frame before the frame
 * becomes visible. */
#ifndef PS_LOG_H
#define PS_LOG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_frame.h"
#include "ps_logfile.h"

enum { PS_LOG_META_BYTES = 4096 };
/* Types of logs. In an EXCLUSIVE and in a CONCURRENT log, the sender zeroes the memory ahead of the
 * writer. A SEALED log has only one writer, as an EXCLUSIVE log has. The writer of a SEALED log
 * zeroes only one word, directly behind its data. The memory behind this word may contain any bytes
 * (docs/decisions/0029). */
enum { PS_LOG_CONCURRENT = 0, PS_LOG_EXCLUSIVE = 1, PS_LOG_IMAGE = 2, PS_LOG_SEALED = 3 };

/* Metadata page; offsets are Aeron's. */
typedef struct ps_log_meta {
    _Atomic int64_t tail[PS_PARTITIONS]; /* 0: (term_id << 32) | offset */
    _Atomic int32_t active_term_count;   /* 24 */
    uint8_t pad0[128 - 28];
    _Atomic int64_t end_of_stream;   /* 128: INT64_MAX until known */
    _Atomic int32_t is_connected;    /* 136 */
    _Atomic int32_t transport_count; /* 140 */
    uint8_t pad1[256 - 144];
    int64_t correlation_id;                     /* 256 */
    int32_t initial_term_id;                    /* 264 */
    int32_t header_length;                      /* 268: 32 */
    int32_t mtu;                                /* 272 */
    int32_t term_length;                        /* 276 */
    int32_t page_size;                          /* 280 */
    int32_t publication_window;                 /* 284 */
    int32_t receiver_window;                    /* 288 */
    int32_t sndbuf, sndbuf_default, sndbuf_max; /* 292 */
    int32_t rcvbuf, rcvbuf_default, rcvbuf_max; /* 304 */
    int32_t max_resend;                         /* 316 */
    uint8_t default_header[128];                /* 320 */
    int64_t entity_tag;                         /* 448 */
    int64_t response_correlation_id;            /* 456 */
    int64_t linger_timeout_ns;                  /* 464 */
    int64_t untethered_window_limit_timeout_ns; /* 472 */
    int64_t untethered_resting_timeout_ns;      /* 480 */
    uint8_t group, is_response, rejoin, reliable, sparse, signal_eos, spies_simulate_connection,
        tether;                 /* 488 */
    _Atomic uint8_t is_revoked; /* 496 */
    uint8_t type;               /* 497 */
    uint8_t pad2[2];
    uint8_t untethered_linger_timeout_ns[8]; /* 500: unaligned int64 */
    uint8_t pad3[4096 - 508];
} ps_log_meta_t;
_Static_assert(offsetof(ps_log_meta_t, end_of_stream) == 128, "layout");
_Static_assert(offsetof(ps_log_meta_t, correlation_id) == 256, "layout");
_Static_assert(offsetof(ps_log_meta_t, default_header) == 320, "layout");
_Static_assert(offsetof(ps_log_meta_t, is_revoked) == 496, "layout");
_Static_assert(offsetof(ps_log_meta_t, untethered_linger_timeout_ns) == 500, "layout");
_Static_assert(sizeof(ps_log_meta_t) == PS_LOG_META_BYTES, "layout");

/* A mapped log. ps_log_map has checked the constants of the log's metadata and copied them into
 * this structure; never read these constants from the file again. */
typedef struct ps_log {
    uint8_t *map;
    uint64_t map_length;
    uint8_t *term[PS_PARTITIONS];
    ps_log_meta_t *meta;
    int32_t term_length;
    int32_t term_mask; /* T - 1 */
    int32_t shift;     /* log2 T */
    int32_t initial_term_id;
    int32_t mtu;
    int32_t session_id;
    int32_t stream_id;
    int32_t type;
    int32_t read_only;
} ps_log_t;

/* Maps and checks. Returns PS_E_SYSTEM, or PS_E_CORRUPT if the metadata or the size is
 * impossible. */
int ps_log_map(const char *path, int32_t read_only, ps_log_t *out);
void ps_log_unmap(ps_log_t *log);

static inline uint8_t *ps_log_at(const ps_log_t *log, int64_t position)
{
    return log->term[ps_partition(position, log->shift)] + (position & log->term_mask);
}
static inline ps_frame_t *ps_frame_at(const ps_log_t *log, int64_t position)
{
    return (ps_frame_t *)(void *)ps_log_at(log, position);
}
/* Returns the producer position, computed from the tail counters; the offset in the term is at most
 * the term length. Any thread. */
int64_t ps_log_producer_position(const ps_log_t *log);
/* Returns the number of log bytes that a message of `length` bytes takes, with headers and
 * alignment. */
int64_t ps_log_message_space(int64_t length, int32_t max_payload);
/* Zeroes the positions [from, to), which must lie in one term. The function zeroes the first 8
 * bytes of the range after all other bytes, by a store with release order. Only the agent that owns
 * the log may call this function. */
void ps_log_clean(const ps_log_t *log, int64_t from, int64_t to);
/* Writes a complete padding frame of `length` bytes at `position`, with the log's default header.
 * The write is a compare-and-swap: the first word of the frame must still be `expected` (0 or a
 * claim). Returns 1 if the frame was written, 0 if the word had another value. */
int ps_log_pad(const ps_log_t *log, int64_t position, int32_t length, uint64_t expected);

/* Writes a padding frame like ps_log_pad, with a reserved value. Call this function only if no
 * publisher has claimed space in the range of the padding frame. */
int ps_log_pad_marked(const ps_log_t *log, int64_t position, int32_t length, int64_t mark);
/* Unblocks the log at `position` (docs/spec/log-buffer.md, section 6). If the frame length at
 * `position` is negative (a claim), replaces the claim with padding. If the frame length at
 * `position` is zero, replaces the range up to the next frame with padding. If no frame follows
 * below the tail, the replaced range ends at the end of the term. If `position` is the start of the
 * term after the active term, rotates the log. Returns the number of bytes replaced with padding;
 * 0: the log was not blocked. *claimer gets the slot of the client that made the claim; -1:
 * unknown. If only_claimer >= 0, the function replaces only claims of the client with this slot.
 * Sender thread. */
int32_t ps_log_unblock(const ps_log_t *log, int64_t position, int32_t only_claimer,
                       int32_t *claimer);
/* Rotates the log from the term term_count to the term after it. Returns 1 if this call rotated the
 * log. The threads of publishers call this function. The sender also calls this function when the
 * sender unblocks the log at the start of a term. */
int ps_log_rotate(const ps_log_t *log, int32_t term_count, int32_t term_id);

#endif
