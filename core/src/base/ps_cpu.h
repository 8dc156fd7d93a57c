/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cpu.h: hints to the processor. They change timing, never results. */
#ifndef PS_CPU_H
#define PS_CPU_H

/* Fetches a cache line for writing. The other processors release the line now, so that a later
 * store of the caller need not wait for these processors. On x86-64, __builtin_prefetch fetches the
 * line only for reading, unless the code is compiled for a newer processor. If a line was fetched
 * only for reading, the later store must fetch the line a second time. Processors without the
 * instruction prefetchw ignore this instruction. */
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
