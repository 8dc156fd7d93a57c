/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_inline.h: marks functions that the compiler must inline, or must not inline. Code that runs
 * for each message contains no function call that the compiler can avoid (docs/decisions/0226). */
#ifndef PS_INLINE_H
#define PS_INLINE_H

/* Marks a function that runs for each message and has one or two callers; the compiler must inline
 * it. */
#define PS_ALWAYS_INLINE inline __attribute__((always_inline))
/* Marks a function that the compiler must not inline, because the function runs only for few
 * messages, or once a term. If the compiler inlined a rarely executed function, the function would
 * occupy registers for each message. */
#define PS_NOINLINE __attribute__((noinline))

#endif
