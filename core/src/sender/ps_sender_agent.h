/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_agent.h: the sender as its thread and the driver see it.
 */
#ifndef PS_SENDER_AGENT_H
#define PS_SENDER_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_agent.h"

typedef struct ps_sender ps_sender_t;

/* agent: the queues of this agent.  Both outlive it.  PS_E_NO_MEMORY. */
int ps_sender_create(const ps_context_t *context, ps_agent_t *agent, ps_sender_t **out);
void ps_sender_destroy(ps_sender_t *sender);
/* The cycle's time, before its commands: the last cycle may be long ago. */
void ps_sender_set_now(ps_sender_t *sender, int64_t now_ns);
void ps_sender_on_command(ps_sender_t *sender, const ps_command_t *command);
int32_t ps_sender_do_work(ps_sender_t *sender, int64_t now_ns);
/* Time of the next timer, INT64_MAX if none; now or earlier = work is due. */
int64_t ps_sender_next_deadline_ns(ps_sender_t *sender, int64_t now_ns);
/* Called before parked is announced: true when streams were hot and must be checked once more,
 * by a duty cycle, before the thread may sleep. */
bool ps_sender_cool(ps_sender_t *sender);
/* How long the thread may sleep, woken or not, without cooling its hot streams: while all of them
 * stay on this host, and leave enough room.  0: not at all. */
int64_t ps_sender_nap_ns(const ps_sender_t *sender);
/* Some stream is hot: many messages come in a row. */
bool ps_sender_is_busy(const ps_sender_t *sender);
/* Called after parked was announced (seq_cst): is there anything to do (dirty bit, ...)?  Cheap. */
bool ps_sender_has_work(ps_sender_t *sender);

#endif
