/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cpu.h: hints to the processor. They change timing, never results. */
#ifndef PS_CPU_H
#define PS_CPU_H

/* Fetches a cache line for writing: other processors release the line during this call, and not
 * when the caller stores into the line. On x86-64, the compiler's own hint fetches the line only
 * for reading, unless the target is a newer processor. After such a fetch, the store fetches the
 * line a second time. Processors without the prefetch instruction ignore the hint. */
static inline void ps_cpu_prefetch_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Call this function in the body of a loop that waits by spinning. */
static inline void ps_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
