/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_barrier.h: one thread makes all other threads execute a memory barrier (membarrier(2)).
 * Publishers therefore need no fence for each message (docs/decisions/0020). */
#ifndef PS_BARRIER_H
#define PS_BARRIER_H

#include <stdbool.h>

/* Registers this process, so that ps_barrier_run in other processes also reaches the threads of
 * this process. One call per process is enough; further calls have no effect. Returns false if the
 * kernel has no membarrier(2); without membarrier(2), this process must execute the fences itself.
 * Any thread may call ps_barrier_join; the call may take some milliseconds. */
bool ps_barrier_join(void);
/* Executes one barrier as a test. Returns true if the kernel executed the barrier; only then may
 * the process call ps_barrier_run. Any thread. */
bool ps_barrier_available(void);
/* Executes a full barrier on every running thread of every registered process. The call interrupts
 * each CPU that runs such a thread. The call takes some microseconds, or milliseconds if memory is
 * short. Call it only if ps_barrier_available(). Any thread. */
void ps_barrier_run(void);

#endif
