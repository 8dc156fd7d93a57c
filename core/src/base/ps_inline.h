/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_inline.h: marks functions that the compiler must inline, or must not inline. The code that
 * each message passes contains no call that the compiler can avoid (docs/decisions/0226). */
#ifndef PS_INLINE_H
#define PS_INLINE_H

/* For a function that each message passes, with one or two callers. */
#define PS_ALWAYS_INLINE inline __attribute__((always_inline))
/* For the part of such a function that runs once a term or for rare messages. If this part were
 * inlined, it would occupy registers for each message. */
#define PS_NOINLINE __attribute__((noinline))

#endif
