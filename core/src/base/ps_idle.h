/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_idle.h: what an agent's thread does when a duty cycle found nothing.
 *
 * SPIN and YIELD never sleep.  BACKOFF sleeps up to 1 ms and knows no wake-up.  PARK spins, then
 * yields, then sleeps until woken or a timer is due; how long it hesitates before sleeping is
 * learned: a thread whose next work usually comes within microseconds waits for it awake, one whose
 * work comes rarely sleeps at once.  So one setting serves both an idle machine and a ping-pong.
 */
#ifndef PS_IDLE_H
#define PS_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* With this many processors or fewer, a spinning thread holds the processor that the awaited
 * thread needs. */
enum { PS_IDLE_FEW_CPUS = 2 };

enum ps_idle_step {
    PS_IDLE_AGAIN = 0, /* run another duty cycle */
    PS_IDLE_SLEEP = 1, /* park: announce it, check again, wait for a wake-up or timer */
    PS_IDLE_PAUSE = 2  /* sleep for pause_ns without wake-up (BACKOFF) */
};

/* All of it belongs to the thread that idles. */
typedef struct ps_idle_state {
    int32_t strategy; /* ps_idle */
    int32_t cpus;
    int64_t idle_since_ns; /* -1: working */
    int64_t learned_ns;    /* average time from "nothing" to the next work, clamped */
    int64_t pause_ns;      /* BACKOFF: next pause */
    int64_t spin_limit_ns;
    int64_t awake_limit_ns; /* spin and yield together */
    int32_t rounds;         /* idle steps since work */
} ps_idle_state_t;

/* cpus <= PS_IDLE_FEW_CPUS: no spinning, only yielding. */
void ps_idle_init(ps_idle_state_t *idle, int32_t strategy, int32_t cpus);
/* A duty cycle found work. light: little of it, with more unlikely to follow at once. The awaited
 * work goes to a client or comes from one. With few CPUs a parking thread therefore yields the
 * processor before it checks again. True: it did, time has passed. */
bool ps_idle_on_work(ps_idle_state_t *idle, int64_t now_ns, bool light);
/* A duty cycle found nothing; may pause the CPU or yield, and says what to do next. */
int ps_idle_on_nothing(ps_idle_state_t *idle, int64_t now_ns);
/* Whether the thread may sleep a moment although work goes on: it parks, and CPUs are few. */
bool ps_idle_may_nap(const ps_idle_state_t *idle);

#endif
