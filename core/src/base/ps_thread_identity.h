/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_thread_identity.h: a number that identifies the calling thread. Reading this number takes one
 * instruction; reading a thread-local variable of a shared library takes a function call. */
#ifndef PS_THREAD_IDENTITY_H
#define PS_THREAD_IDENTITY_H

#include <stdint.h>

/* Returns the address of the calling thread's control block; no other live thread has the same
 * address. Returns 0 if the function cannot read the address on this processor, or if the address
 * is 2^48 or higher. */
static inline uint64_t ps_thread_identity(void)
{
    uint64_t identity = 0;
#if defined(__x86_64__) && defined(__LP64__)
    __asm__("mov %%fs:0, %0" : "=r"(identity));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(identity));
#endif
    return identity >> 48 == 0 ? identity : 0;
}

#endif
