/* SPDX-License-Identifier: Apache-2.0
 * ps_frame.h: storing and reading the header fields of a frame in a term.
 *
 * Publisher and unblocker may both write the fields behind the first word of one frame; they write
 * the same values, as relaxed 64-bit stores, so neither disturbs the other.
 */
#ifndef PS_FRAME_H
#define PS_FRAME_H

#include "ps_log.h"

typedef uint64_t __attribute__((may_alias)) ps_alias64_t;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

static inline uint64_t ps_pair(int32_t low, int32_t high)
{
    return (uint64_t)(uint32_t)low | ((uint64_t)(uint32_t)high << 32);
}

/* Everything but the first word and the reserved value. */
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

/* value, which is most likely *guess: the address of the next frame would wait for the load of this
 * one's length; with a branch on the guess the processor goes on before the length is there. */
static inline int32_t ps_frame_guess(int32_t *guess, int32_t value)
{
    if (__builtin_expect(value != *guess, 0)) {
        *guess = value;
        __asm__ volatile("" : "+r"(*guess)); /* or the compiler would see through it */
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

#endif
