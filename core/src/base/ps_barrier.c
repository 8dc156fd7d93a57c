/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_barrier.h"

#include "ps_assert.h"
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool ps_barrier_join(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool ps_barrier_available(void)
{
    const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    /* A filter of system calls may refuse what the kernel offers, so one barrier is tried. */
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
           (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0 ||
            syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0);
}

void ps_barrier_run(void)
{
    long result = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    if (result != 0) { /* it allocates a set of CPUs; the slow one, some milliseconds, does not */
        result = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
    }
    PS_ASSERT(result == 0);
    (void)result;
}
