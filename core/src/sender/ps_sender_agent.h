/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_agent.h: the calls of the sender agent for its thread and the driver. */
#ifndef PS_SENDER_AGENT_H
#define PS_SENDER_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_agent.h"

typedef struct ps_sender ps_sender_t;

/* agent: the queues of this agent. context and agent outlive the sender. PS_E_NO_MEMORY. */
int ps_sender_create(const ps_context_t *context, ps_agent_t *agent, ps_sender_t **out);
void ps_sender_destroy(ps_sender_t *sender);
/* Sets the time of the cycle before the agent executes the cycle's commands, because the last cycle
 * may have been long ago. */
void ps_sender_set_now(ps_sender_t *sender, int64_t now_ns);
void ps_sender_on_command(ps_sender_t *sender, const ps_command_t *command);
int32_t ps_sender_do_work(ps_sender_t *sender, int64_t now_ns);
/* Returns the time of the next timer, INT64_MAX if there is none. A time that is not after now_ns
 * means that work is due. */
int64_t ps_sender_next_deadline_ns(ps_sender_t *sender, int64_t now_ns);
/* Call before the thread announces that it parks. Cools hot streams. Returns true if streams were
 * hot; a duty cycle must then check them once more before the thread may sleep. */
bool ps_sender_cool(ps_sender_t *sender);
/* Returns the time for which the thread may sleep without ending the hot state of its streams.
 * Returns 0 unless all hot streams are local to this host and have enough room. */
int64_t ps_sender_nap_ns(const ps_sender_t *sender);
/* Returns true if a stream is hot. */
bool ps_sender_is_busy(const ps_sender_t *sender);
/* Returns true if the watermarks of a stream pause its publishers. */
bool ps_sender_is_paused(const ps_sender_t *sender);
/* Returns true if there is work (a dirty bit, ...). Call after the thread announced that it parks
 * (seq_cst). Cheap. */
bool ps_sender_has_work(ps_sender_t *sender);

#endif
