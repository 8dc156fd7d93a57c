/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_inline.h: what the compiler must, or must not, copy into the caller.  The path of a message
 * has no call that the compiler can avoid (docs/decisions/0226). */
#ifndef PS_INLINE_H
#define PS_INLINE_H

/* For a function of the path of a message with one or two callers. */
#define PS_ALWAYS_INLINE inline __attribute__((always_inline))
/* For what such a function does once a term or for rare messages: in line it would cost registers
 * on the path. */
#define PS_NOINLINE __attribute__((noinline))

#endif
