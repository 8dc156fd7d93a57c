/* SPDX-License-Identifier: Apache-2.0
 *
 * The start-up check of membarrier executes a barrier: a filter of system calls may refuse what the
 * kernel offers. */
#include "check.h"
#include "ps_barrier.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From now on membarrier only answers what it offers. */
static bool refuse_barriers(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MEMBARRIER_CMD_QUERY, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof rules / sizeof rules[0], .filter = rules };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void test_a_refused_barrier_is_noticed_at_the_start(void)
{
    const pid_t child = fork();
    if (child == 0) {
        if (!refuse_barriers()) {
            _exit(77);
        }
        const long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
        _exit(offered > 0 && !ps_barrier_available() ? 0 : 1);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        printf("this kernel has no filters of system calls: not run\n");
        return;
    }
    CHECK_EQ(WEXITSTATUS(status), 0);
}

int main(void)
{
    if (!ps_barrier_available()) {
        printf("this kernel has no membarrier\n");
        return 0;
    }
    CHECK(ps_barrier_join());
    ps_barrier_run();
    test_a_refused_barrier_is_noticed_at_the_start();
    return 0;
}
