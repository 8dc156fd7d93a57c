/* SPDX-License-Identifier: Apache-2.0
 * ps_frame.h: the header of a frame, on the wire and in a term; positions; stores and loads of its
 * fields.
 *
 * While a publisher writes a frame header, the sender may unblock the stream and write the same
 * header. The publisher and the sender write the same values with relaxed 64-bit stores, so the
 * order of their stores does not matter. */
#ifndef PS_FRAME_H
#define PS_FRAME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PS_FRAME_ALIGNMENT = 32,
    PS_HEADER_BYTES = 32,
    PS_TERM_MIN = 64 * 1024,
    PS_TERM_MAX = 1024 * 1024 * 1024,
    PS_PARTITIONS = 3,
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
/* The 32-byte frame header, little-endian. The header is the same in the log and on the wire. */
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
    /* Shift an unsigned value, because C does not define the shift of a negative value. In a
     * hostile frame, the term id may be lower than the initial term id. */
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

/* Returns the maximum position of a stream: the end of the last term that the term count allows. No
 * frame begins at the maximum position. */
static inline int64_t ps_max_position(int32_t shift)
{
    return INT64_C(1) << (31 + shift);
}

/* The term id and term offset with which heartbeats and status messages state a position. A frame
 * states the maximum position of a stream by the id of the last term, and the term length T as the
 * term offset. The frame cannot state this position as the start of the next term. The id of that
 * term would wrap around, and a receiver would drop the frame. */
typedef struct ps_place {
    int32_t term_id;
    int32_t term_offset; /* Offset in the term, 0 to T (the term length); only the maximum position
                          * has the offset T. */
} ps_place_t;

static inline ps_place_t ps_place_of(int64_t position, int32_t shift, int32_t initial)
{
    const int64_t last = position - (position == ps_max_position(shift));
    const int64_t begin = last >> shift << shift;
    return (ps_place_t){ ps_term_id_at(last, shift, initial), (int32_t)(position - begin) };
}

/* Returns the position that a peer states by a term id and a term offset. Aeron states the maximum
 * position of a stream with a term id that has wrapped around. Aeron uses the wrapped term id for
 * no other position. The result is negative if the term id lies before the initial term. */
static inline int64_t ps_position_stated(int32_t term_id, int32_t offset, int32_t shift,
                                         int32_t initial)
{
    const bool wrapped = offset == 0 && ps_wrap_sub(term_id, initial) == INT32_MIN;
    return wrapped ? ps_max_position(shift) : ps_position(term_id, offset, shift, initial);
}
static inline int32_t ps_frame_length_acquire(const ps_frame_t *frame)
{
    return atomic_load_explicit(&((ps_frame_t *)(uintptr_t)frame)->frame_length,
                                memory_order_acquire);
}
/* Returns the first 8 bytes of a frame as one word. The low half is frame_length; the high half has
 * version, flags and type. */
static inline _Atomic uint64_t *ps_frame_word(ps_frame_t *frame)
{
    return (_Atomic uint64_t *)(void *)frame;
}
static inline uint64_t ps_frame_word_of(int32_t frame_length, uint8_t flags, uint16_t type)
{
    return (uint64_t)(uint32_t)frame_length | ((uint64_t)flags << 40) | ((uint64_t)type << 48);
}
static inline uint16_t ps_frame_word_type(uint64_t word)
{
    return (uint16_t)(word >> 48);
}
/* Returns 1 if a message ends with the frame, else 0. */
static inline int32_t ps_frame_word_ends(uint64_t word)
{
    return (int32_t)(word >> 40 & PS_FLAG_END) / PS_FLAG_END;
}
static inline uint64_t ps_claim_word_of(int32_t frame_length, int32_t client_slot)
{
    return (uint64_t)(uint32_t)(-frame_length) | ((uint64_t)(uint32_t)client_slot << 32);
}

/* Checks a message ordinal from a peer or from memory that clients can write. A stream has at most
 * 2^56 messages (positions end at 2^61, a frame takes 32 bytes). Returns -1 (unknown) if the
 * ordinal is negative or larger than 2^56. */
static inline int64_t ps_believed_ordinal(int64_t ordinal)
{
    return ordinal >= 0 && ordinal <= INT64_C(1) << 56 ? ordinal : -1;
}

/* A padding frame that replaces dropped messages has a mark in its field `reserved_value`. The
 * mark's high half is PS_GAP_MAGIC; its low half is the number of dropped messages, or
 * PS_GAP_UNKNOWN. A receiver does not trust the mark in a frame from the wire. */
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

/* Returns the number of dropped messages that a padding frame with this reserved value replaces; 0:
 * none, or unknown. */
static inline int32_t ps_marked_messages(int64_t reserved_value)
{
    const int32_t count = (int32_t)reserved_value;
    return ps_is_gap_mark(reserved_value) && count > 0 && count < PS_GAP_UNKNOWN ? count : 0;
}

typedef uint64_t __attribute__((may_alias)) ps_alias64_t;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

static inline uint64_t ps_pair(int32_t low, int32_t high)
{
    return (uint64_t)(uint32_t)low | ((uint64_t)(uint32_t)high << 32);
}

/* Writes all fields of a frame header except its first word and the reserved value. */
static inline void ps_frame_fields(ps_frame_t *frame, int32_t term_offset, int32_t session_id,
                                   int32_t stream_id, int32_t term_id)
{
    ps_alias64_t *words = (ps_alias64_t *)(void *)frame;
    __atomic_store_n(words + 1, ps_pair(term_offset, session_id), __ATOMIC_RELAXED);
    __atomic_store_n(words + 2, ps_pair(stream_id, term_id), __ATOMIC_RELAXED);
}

static inline void ps_frame_reserved(ps_frame_t *frame, int64_t reserved_value)
{
    ps_alias64_t *words = (ps_alias64_t *)(void *)frame;
    __atomic_store_n(words + 3, (uint64_t)reserved_value, __ATOMIC_RELAXED);
}

/* Returns `value`, the length of a frame. The length of the last frame, *guess, is usually the
 * same. To find the next frame, a reader adds the length to the position. Without ps_frame_guess,
 * the processor would wait until the length is loaded. The function compares `value` with *guess in
 * a branch. Because the processor predicts this branch, it continues with *guess before the length
 * is loaded.
 */
static inline int32_t ps_frame_guess(int32_t *guess, int32_t value)
{
    if (__builtin_expect(value != *guess, 0)) {
        *guess = value;
        /* Without this empty assembly, the compiler would replace the branch by `return value`. */
        __asm__ volatile("" : "+r"(*guess));
    }
    return *guess;
}

/* Readers' side. */
static inline int32_t ps_frame_term_offset(const ps_frame_t *frame)
{
    const ps_alias64_t *words = (const ps_alias64_t *)(const void *)frame;
    return (int32_t)(uint32_t)__atomic_load_n(words + 1, __ATOMIC_RELAXED);
}

static inline int32_t ps_frame_term_id(const ps_frame_t *frame)
{
    const ps_alias64_t *words = (const ps_alias64_t *)(const void *)frame;
    return (int32_t)(uint32_t)(__atomic_load_n(words + 2, __ATOMIC_RELAXED) >> 32);
}

static inline int64_t ps_frame_reserved_value(const ps_frame_t *frame)
{
    const ps_alias64_t *words = (const ps_alias64_t *)(const void *)frame;
    return (int64_t)__atomic_load_n(words + 3, __ATOMIC_RELAXED);
}

/* Returns how many messages end with this frame: 1 for a frame with the flag END, else 0. For a
 * padding frame, returns the number of dropped messages that the padding replaces. */
static inline int32_t ps_frame_messages(const ps_frame_t *frame)
{
    return frame->type == PS_TYPE_PAD ? ps_marked_messages(ps_frame_reserved_value(frame))
                                      : (frame->flags & PS_FLAG_END) != 0;
}

/* Returns the greatest length of a padding frame at the end of a term, in bytes. A padding frame
 * fills the rest of a term if the next claim does not fit. The padding frame is therefore shorter
 * than the longest claim. */
static inline int64_t ps_log_longest_pad(int64_t term_length, int32_t mtu)
{
    const int64_t payload = mtu - PS_HEADER_BYTES;
    const int64_t eighth = term_length / 8;
    const int64_t most = eighth < PS_MESSAGE_MAX ? eighth : PS_MESSAGE_MAX;
    const int64_t frames = (most + payload - 1) / payload;
    const int64_t claim = ps_align32((int32_t)(most + frames * PS_HEADER_BYTES));
    const int64_t longest = claim > mtu ? claim : mtu;

    return longest < term_length / 2 ? longest : term_length / 2;
}
/* Returns how many bytes the sender position may be ahead of a receiver's consumed position. If the
 * sender waits for receivers (`nak` is 0), the result is one window (half a term). Under fc=nak
 * (`nak` is 1), receivers accept a whole term, so the result is one and a half windows (three
 * quarters of a term). */
static inline int64_t ps_log_ahead(int64_t term_length, int nak)
{
    return nak ? term_length / 2 + term_length / 4 : term_length / 2;
}
/* Returns a distance in bytes. A sender retransmits only data that lies at most this distance
 * behind the sender position. A receiver cannot recover data that lies further behind. The result
 * is at most one term, because the sender's log retains one term behind the sender position. */
static inline int64_t ps_log_repair_reach(int64_t term_length, int32_t mtu, int nak)
{
    const int64_t reach = ps_log_ahead(term_length, nak) + ps_log_longest_pad(term_length, mtu);

    return reach < term_length ? reach : term_length;
}

#endif
