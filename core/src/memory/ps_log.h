/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_log.h: Aeron's log buffer: three terms and a 4096-byte metadata page (aeron-interop.md section
 * 2).
 *
 *   0        T        2T       3T ..           file end - 4096
 *   | term 0 | term 1 | term 2 | (page gap)    | metadata |
 *
 * position = (term_count << log2 T) + term_offset, partition = term_count mod 3,
 * term_count = term_id - initial_term_id (wrapping).  Frames start at multiples of 32.
 * frame_length: 0 nothing yet, < 0 claimed, > 0 complete (acquire-load it before reading the rest).
 *
 * Claim protocol of penstock publishers (semantics.md section 5).  The first 8 bytes of a frame are
 * one word.  A shared publisher claims with a 64-bit compare-and-swap 0 -> {frame_length = -(n),
 * upper half = its client slot}, and commits with a compare-and-swap of that word to {+n, version,
 * flags, type}; so the daemon can tell who holds a blocked frame, and a claim that was padded over
 * is never delivered twice.  An exclusive publisher, alone on its log, uses plain release stores,
 * and zeroes the word where its data ends before that end can be seen.
 */
#ifndef PS_LOG_H
#define PS_LOG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_admin.h"

enum {
    PS_FRAME_ALIGNMENT = 32,
    PS_HEADER_BYTES = 32,
    PS_TERM_MIN = 64 * 1024,
    PS_TERM_MAX = 1024 * 1024 * 1024,
    PS_PARTITIONS = 3,
    PS_LOG_META_BYTES = 4096,
    PS_MTU_MIN = 64,
    PS_MTU_MAX = 65504,
    PS_MESSAGE_MAX = 16 * 1024 * 1024
};

enum {
    PS_FLAG_BEGIN = 0x80,
    PS_FLAG_END = 0x40,
    PS_FLAG_UNFRAGMENTED = 0xC0,
    PS_FLAG_EOS = 0x20,
    PS_FLAG_REVOKED = 0x10
};
enum {
    PS_TYPE_PAD = 0,
    PS_TYPE_DATA = 1,
    PS_TYPE_NAK = 2,
    PS_TYPE_SM = 3,
    PS_TYPE_ERR = 4,
    PS_TYPE_SETUP = 5,
    PS_TYPE_RTTM = 6,
    PS_TYPE_RES = 7,
    PS_TYPE_RSP_SETUP = 0x0B,
    PS_TYPE_EXT = 0xFFFF
};
/* EXCLUSIVE: zeroed ahead of its writer, as CONCURRENT.  SEALED: exclusive too, but its writer
 * zeroes the word where its data ends; beyond lies anything (docs/decisions/0029). */
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

/* A mapped log.  The copies of constants are checked at map time and trusted; never re-read them
 * from the file. */
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

/* Maps and checks.  PS_E_SYSTEM, PS_E_CORRUPT (impossible metadata or size). */
int ps_log_map(const char *path, int32_t read_only, ps_log_t *out);
void ps_log_unmap(ps_log_t *log);

/* The 32-byte header as it lies in a term (and on the wire), little-endian. */
typedef struct ps_frame {
    _Atomic int32_t frame_length;
    uint8_t version;
    uint8_t flags;
    uint16_t type;
    int32_t term_offset;
    int32_t session_id;
    int32_t stream_id;
    int32_t term_id;
    int64_t reserved_value;
} ps_frame_t;
_Static_assert(sizeof(ps_frame_t) == PS_HEADER_BYTES, "layout");

static inline int32_t ps_align32(int32_t length)
{
    return (length + 31) & ~31;
}
static inline int64_t ps_align32_64(int64_t length)
{
    return (length + 31) & ~INT64_C(31);
}
static inline int32_t ps_wrap_sub(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}
static inline int32_t ps_wrap_add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
static inline int64_t ps_position(int32_t term_id, int32_t offset, int32_t shift, int32_t initial)
{
    /* Unsigned shift: a hostile term id may lie before the initial one. */
    return (int64_t)((uint64_t)(int64_t)ps_wrap_sub(term_id, initial) << shift) + offset;
}
static inline int32_t ps_term_count(int64_t position, int32_t shift)
{
    return (int32_t)(position >> shift);
}
static inline int32_t ps_partition(int64_t position, int32_t shift)
{
    return (int32_t)((position >> shift) % PS_PARTITIONS);
}
static inline int32_t ps_term_id_at(int64_t position, int32_t shift, int32_t initial)
{
    return ps_wrap_add(initial, (int32_t)(position >> shift));
}
static inline uint8_t *ps_log_at(const ps_log_t *log, int64_t position)
{
    return log->term[ps_partition(position, log->shift)] + (position & log->term_mask);
}
static inline ps_frame_t *ps_frame_at(const ps_log_t *log, int64_t position)
{
    return (ps_frame_t *)(void *)ps_log_at(log, position);
}
static inline int32_t ps_frame_length_acquire(const ps_frame_t *frame)
{
    return atomic_load_explicit(&((ps_frame_t *)(uintptr_t)frame)->frame_length,
                                memory_order_acquire);
}
/* First 8 bytes of a frame as one word: low half frame_length, high half version/flags/type. */
static inline _Atomic uint64_t *ps_frame_word(ps_frame_t *frame)
{
    return (_Atomic uint64_t *)(void *)frame;
}
static inline uint64_t ps_frame_word_of(int32_t frame_length, uint8_t flags, uint16_t type)
{
    return (uint64_t)(uint32_t)frame_length | ((uint64_t)flags << 40) | ((uint64_t)type << 48);
}
static inline uint64_t ps_claim_word_of(int32_t frame_length, int32_t client_slot)
{
    return (uint64_t)(uint32_t)(-frame_length) | ((uint64_t)(uint32_t)client_slot << 32);
}

/* Message ordinals come from peers and from memory that clients can write.  A stream has at most
 * 2^56 messages (positions end at 2^61, a frame takes 32 bytes); what is more is unknown: -1. */
static inline int64_t ps_believed_ordinal(int64_t ordinal)
{
    return ordinal >= 0 && ordinal <= INT64_C(1) << 56 ? ordinal : -1;
}

/* Producer position from the tails, offset clamped to T.  Any thread. */
int64_t ps_log_producer_position(const ps_log_t *log);
/* Bytes a message of length takes in the log, headers and alignment included. */
int64_t ps_log_message_space(int64_t length, int32_t max_payload);
/* Zeroes [from, to) of one term (never crossing its end): all but the first 8 bytes, then these
 * with release.  Owner: the agent that cleans. */
void ps_log_clean(const ps_log_t *log, int64_t from, int64_t to);
/* Writes a complete PAD frame of length bytes at position from the default header, replacing word
 * `expected` (0 or a claim word) by compare-and-swap.  1 = done, 0 = the word was something
 * else. */
int ps_log_pad(const ps_log_t *log, int64_t position, int32_t length, uint64_t expected);

/* Padding that stands for messages that were dropped says so in its reserved value: magic in the
 * high half, then the number of messages, PS_GAP_UNKNOWN when nobody knows (semantics section 11).
 * It may come over the wire, so it is no more than a peer's word. */
#define PS_GAP_MAGIC INT64_C(0x50474150) /* "PAGP" */
enum { PS_GAP_UNKNOWN = 0x7FFFFFFF };
static inline int64_t ps_gap_mark(int32_t messages)
{
    return (int64_t)((uint64_t)PS_GAP_MAGIC << 32 | (uint32_t)messages);
}
static inline int ps_is_gap_mark(int64_t reserved_value)
{
    return reserved_value >> 32 == PS_GAP_MAGIC;
}
/* ps_log_pad with this reserved value.  The range must be nobody's claim. */
int ps_log_pad_marked(const ps_log_t *log, int64_t position, int32_t length, int64_t mark);
/* Unblocks at position (aeron-interop.md 2.8): negative length -> PAD of it; zero -> PAD over the
 * hole up to the next frame or, below the tail, the end of term; predecessor active -> rotates.
 * Returns bytes padded (>= 0; 0 = nothing to do).  *claimer: client slot of a claim word, -1 for a
 * hole.  only_claimer >= 0: acts only on that client's claim (holes stay).  Sender thread. */
int32_t ps_log_unblock(const ps_log_t *log, int64_t position, int32_t only_claimer,
                       int32_t *claimer);
/* Rotates to term_count + 1; returns 1 if this call did it.  Any publisher, the unblocker. */
int ps_log_rotate(const ps_log_t *log, int32_t term_count, int32_t term_id);

#endif
