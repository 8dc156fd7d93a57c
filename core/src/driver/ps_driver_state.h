/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver_state.h: the state of a driver, private to this folder. */
#ifndef PS_DRIVER_STATE_H
#define PS_DRIVER_STATE_H

#include <pthread.h>

#include "ps_agent.h"
#include "ps_driver.h"
#include "ps_idle.h"
#include "ps_receiver_agent.h"
#include "ps_sender_agent.h"
#include "ps_shared.h"
#include "ps_wire.h"

enum {
    PS_AGENTS = 2,
    PS_COMMANDS_PER_CYCLE = 64,
    PS_PARK_EVENTS = 16,
    PS_CYCLE_THRESHOLD_NS = 1000 * 1000 * 1000
};

/* A thread of the driver, which runs one agent or both. */
typedef struct ps_loop {
    pthread_t thread;
    ps_driver_t *driver;
    ps_agent_t *agents[PS_AGENTS];
    int32_t agent_count;
    int32_t cpu; /* -1: any */
    int epoll_fd;
    int wake_fd;
    bool running;
    bool coarse_timeout;   /* no epoll_pwait2 on this kernel */
    int64_t next_epoch_ns; /* Time at which the thread next measures the offset between monotonic
                            * time and the time of day. */
    ps_idle_state_t idle;
    const char *name;
} ps_loop_t;

struct ps_driver {
    ps_context_t context;
    char host[PS_NAME_MAX + 1]; /* context.params.host */
    ps_sender_t *sender;
    ps_receiver_t *receiver;
    ps_agent_t agents[PS_AGENTS];
    ps_loop_t loops[PS_AGENTS];
    int32_t loop_count;
    int32_t poll_turn; /* Index of the agent whose events the conductor reads first; the two agents
                        * take turns. */
    int event_fd;
    _Atomic bool stop;
    /* For each agent, a word that is 1 while the agent sleeps. The agents use these words only if
     * there is no penstock.dat. */
    alignas(PS_LINE) _Atomic uint32_t own_parked[PS_AGENTS];
};

/* Opens a loop's descriptors.  PS_E_SYSTEM. */
int ps_loop_open(ps_loop_t *loop);
void ps_loop_close(ps_loop_t *loop);
/* Starts the thread: pins it to a CPU if the parameters state one, sets its name, and blocks all
 * signals in it. PS_E_SYSTEM. */
int ps_loop_start(ps_loop_t *loop);
void ps_loop_join(ps_loop_t *loop);
/* Executes waiting commands up to a fixed number, then runs one duty cycle of the agent. Returns
 * the amount of work that the agent did. */
int32_t ps_agent_cycle(ps_driver_t *driver, ps_agent_t *agent, int64_t now_ns);

#endif
