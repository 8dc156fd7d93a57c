/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_idle.h"

#include "ps_assert.h"
#include <sched.h>

#include "ps_cpu.h"

enum {
    LEARN_SHIFT = 2,               /* average over about four waits */
    LEARN_CLAMP_NS = 1000 * 1000,  /* a dozen short waits outweigh a long silence */
    WORTH_WAITING_NS = 100 * 1000, /* the thread stays awake for work expected within this time */
    SPIN_NS = 10 * 1000,
    AWAKE_NS = 150 * 1000,
    BACKOFF_SPINS = 10,
    BACKOFF_YIELDS = 20,
    BACKOFF_MIN_NS = 1000,
    BACKOFF_MAX_NS = 1000 * 1000
};

void ps_idle_init(ps_idle_state_t *idle, int32_t strategy, int32_t cpus)
{
    PS_ASSERT(strategy >= PS_IDLE_PARK && strategy <= PS_IDLE_SPIN);
    idle->strategy = strategy;
    idle->cpus = cpus;
    idle->idle_since_ns = -1;
    idle->learned_ns = LEARN_CLAMP_NS;
    idle->pause_ns = BACKOFF_MIN_NS;
    idle->spin_limit_ns = cpus <= PS_IDLE_FEW_CPUS ? 0 : SPIN_NS;
    idle->awake_limit_ns = AWAKE_NS;
    idle->rounds = 0;
}

bool ps_idle_on_work(ps_idle_state_t *idle, int64_t now_ns, bool light)
{
    const bool awaited = idle->idle_since_ns >= 0;
    if (awaited) {
        int64_t waited = now_ns - idle->idle_since_ns;
        waited = waited > LEARN_CLAMP_NS ? LEARN_CLAMP_NS : waited;
        idle->learned_ns += (waited - idle->learned_ns) >> LEARN_SHIFT;
    }
    idle->idle_since_ns = -1;
    idle->pause_ns = BACKOFF_MIN_NS;
    idle->rounds = 0;
    if (!light || !awaited || idle->strategy != PS_IDLE_PARK || idle->cpus > PS_IDLE_FEW_CPUS) {
        return false;
    }
    (void)sched_yield();
    return true;
}

bool ps_idle_may_nap(const ps_idle_state_t *idle)
{
    return idle->strategy == PS_IDLE_PARK && idle->cpus <= PS_IDLE_FEW_CPUS;
}

static int backoff(ps_idle_state_t *idle)
{
    if (idle->rounds <= BACKOFF_SPINS && idle->cpus > PS_IDLE_FEW_CPUS) {
        ps_cpu_relax();
        return PS_IDLE_AGAIN;
    }
    if (idle->rounds <= BACKOFF_SPINS + BACKOFF_YIELDS) {
        (void)sched_yield();
        return PS_IDLE_AGAIN;
    }
    if (idle->rounds > BACKOFF_SPINS + BACKOFF_YIELDS + 1) {
        idle->pause_ns = idle->pause_ns * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : idle->pause_ns * 2;
    }
    return PS_IDLE_PAUSE;
}

int ps_idle_on_nothing(ps_idle_state_t *idle, int64_t now_ns)
{
    if (idle->idle_since_ns < 0) {
        idle->idle_since_ns = now_ns;
    }
    if (idle->rounds < INT32_MAX) {
        idle->rounds++;
    }
    switch (idle->strategy) {
    case PS_IDLE_SPIN: ps_cpu_relax(); return PS_IDLE_AGAIN;
    case PS_IDLE_YIELD: (void)sched_yield(); return PS_IDLE_AGAIN;
    case PS_IDLE_BACKOFF: return backoff(idle);
    default: break;
    }
    const int64_t waited = now_ns - idle->idle_since_ns;
    if (idle->learned_ns > WORTH_WAITING_NS || waited > idle->awake_limit_ns) {
        return PS_IDLE_SLEEP;
    }
    if (waited < idle->spin_limit_ns) {
        ps_cpu_relax();
    } else {
        (void)sched_yield();
    }
    return PS_IDLE_AGAIN;
}
