/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_idle.h: the behaviour of an agent's thread after a duty cycle without work.
 *
 * SPIN and YIELD never sleep. With BACKOFF, the thread sleeps up to 1 ms and cannot be woken. With
 * PARK, the thread spins, then yields the processor, then sleeps until another thread wakes it or a
 * timer is due. With PARK, the thread measures how soon work arrives after a duty cycle without
 * work. If work usually arrives within microseconds, the thread stays awake; otherwise it sleeps at
 * once. PARK therefore suits both an idle host and an exchange of requests and replies. */
#ifndef PS_IDLE_H
#define PS_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* On a host with at most this number of processors, a spinning thread would occupy a processor that
 * the application needs. */
enum { PS_IDLE_FEW_CPUS = 2 };

enum ps_idle_step {
    PS_IDLE_AGAIN = 0, /* run another duty cycle */
    PS_IDLE_SLEEP = 1, /* PARK: the caller must announce its sleep, check for work again, then wait
                        * for a wake-up or a timer. */
    PS_IDLE_PAUSE = 2  /* BACKOFF: the caller must sleep for pause_ns; no wake-up ends this
                        * sleep. */
};

/* Owner: the thread that idles. */
typedef struct ps_idle_state {
    int32_t strategy; /* ps_idle */
    int32_t cpus;
    int64_t idle_since_ns; /* -1: working */
    int64_t learned_ns;    /* Average time from the first duty cycle without work to the arrival of
                            * the next work, clipped to a fixed range. */
    int64_t pause_ns;      /* BACKOFF: next pause */
    int64_t spin_limit_ns;
    int64_t awake_limit_ns; /* Longest time for which the thread stays awake without work, by
                             * spinning and yielding. */
    int32_t rounds;         /* idle steps since work */
} ps_idle_state_t;

/* If cpus <= PS_IDLE_FEW_CPUS, the thread never spins; it only yields. */
void ps_idle_init(ps_idle_state_t *idle, int32_t strategy, int32_t cpus);
/* Call this function after a duty cycle that found work. Set `light` if the duty cycle found little
 * work and more work is unlikely to follow at once. With PARK and at most PS_IDLE_FEW_CPUS
 * processors, the thread yields if it was idle before and the work was light. While the thread
 * yields, a client that waits for the result of the work can use the processor. Returns true if the
 * thread yielded. If the thread yielded, the caller must read the clock again. */
bool ps_idle_on_work(ps_idle_state_t *idle, int64_t now_ns, bool light);
/* Call this function after a duty cycle without work. The function may pause the CPU or yield the
 * CPU to another thread. Returns the next step, PS_IDLE_... */
int ps_idle_on_nothing(ps_idle_state_t *idle, int64_t now_ns);
/* Returns true if the thread may sleep for a moment although there is work. The thread may do so if
 * its strategy is PARK and the host has few CPUs. */
bool ps_idle_may_nap(const ps_idle_state_t *idle);

#endif
