/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cpu.h: hints to the processor.  They change when something is done, never what.
 */
#ifndef PS_CPU_H
#define PS_CPU_H

/* Fetches a line to be written: the other processors give it up now.  The compiler's own hint is
 * one for reading on x86-64 unless it compiles for a newer processor; then the store would have to
 * ask a second time.  Processors that do not know this instruction do nothing. */
static inline void ps_cpu_prefetch_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Somebody waits in a loop. */
static inline void ps_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
