/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_barrier.h: a memory barrier that one thread makes all others take (membarrier(2)), so that a
 * publisher need not take one for each message (docs/decisions/0020).
 */
#ifndef PS_BARRIER_H
#define PS_BARRIER_H

#include <stdbool.h>

/* Lets other processes' ps_barrier_run reach the threads of this one; once per process is enough,
 * more do no harm.  False: the kernel cannot, so this process must fence by itself.  Any thread;
 * may take some milliseconds. */
bool ps_barrier_join(void);
/* True when ps_barrier_run works here.  Any thread. */
bool ps_barrier_available(void);
/* A full barrier on every running thread of every process that joined.  Costs an interrupt on each
 * CPU that runs one: some microseconds, or milliseconds when memory is short.  Only where
 * ps_barrier_available.  Any thread. */
void ps_barrier_run(void);

#endif
