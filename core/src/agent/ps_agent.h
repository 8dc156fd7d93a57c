/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_agent.h: connects the conductor with one agent by a ring of commands, a ring of events, and
 * the descriptors that wake the agent's thread. */
#ifndef PS_AGENT_H
#define PS_AGENT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ps_command.h"
#include "ps_context.h"
#include "ps_event.h"
#include "ps_line.h"
#include "ps_ring.h"

typedef struct ps_agent {
    ps_ring_t commands; /* conductor -> agent */
    ps_ring_t events;   /* agent -> conductor */
    /* line: agent's thread */
    alignas(PS_LINE) _Atomic uint64_t duty_cycles;
    uint64_t emitted;              /* Number of events that the agent has emitted since the agent
                                    * last woke the conductor. */
    _Atomic int64_t *max_cycle_ns; /* counter cells */
    _Atomic int64_t *slow_cycles;
    _Atomic uint32_t *parked; /* Word in penstock.dat that is 1 while the agent sleeps. If a thread
                               * adds work for the agent and this word is 1, the thread wakes the
                               * agent. */
    const ps_context_t *context;
    int32_t id;      /* ps_agent_id */
    int epoll_fd;    /* epoll instance on which the agent's thread waits while it sleeps; -1 in
                      * INVOKER mode */
    int wake_fd;     /* eventfd that wakes the agent's thread; -1 in INVOKER mode */
    bool has_thread; /* True while a thread of the driver runs this agent; only the conductor writes
                      * this field. */
} ps_agent_t;

/* Creates the agent's rings and finds its counters in cnc.dat. `parked` is the word that the agent
 * sets to 1 while its thread sleeps. PS_E_NO_MEMORY, PS_E_INVALID. */
int ps_agent_init(ps_agent_t *agent, int32_t id, const ps_context_t *context,
                  _Atomic uint32_t *parked);
void ps_agent_fini(ps_agent_t *agent);
/* Sends a command. Conductor thread. If the command ring is full, the call yields the processor a
 * bounded number of times, then returns PS_E_AGAIN. In INVOKER mode, the agent executes the command
 * in the next call of ps_driver_step. */
int ps_agent_command(ps_agent_t *agent, const ps_command_t *command);
/* Wakes the agent's thread, if the agent has a thread. Any thread. */
void ps_agent_wake(const ps_agent_t *agent);
/* Sends an event. Agent thread. Returns false if the event ring is full. The caller must then store
 * the event, and emit the event in a later duty cycle. */
bool ps_agent_emit(ps_agent_t *agent, const ps_event_t *event);
/* Add a socket to the agent's epoll instance, or remove the socket. When data arrives at an added
 * socket, the kernel wakes the agent's thread. If fd is -1, the functions do nothing. Agent thread.
 */
void ps_agent_watch(ps_agent_t *agent, int fd);
void ps_agent_unwatch(ps_agent_t *agent, int fd);

#endif
