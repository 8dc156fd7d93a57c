/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver_agent.h: the functions of the receiver agent that its thread and the driver call. */
#ifndef PS_RECEIVER_AGENT_H
#define PS_RECEIVER_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_agent.h"

typedef struct ps_receiver ps_receiver_t;

/* `agent` has the queues of this agent. `context` and `agent` must exist longer than the receiver.
 * PS_E_NO_MEMORY. */
int ps_receiver_create(const ps_context_t *context, ps_agent_t *agent, ps_receiver_t **out);
void ps_receiver_destroy(ps_receiver_t *receiver);
void ps_receiver_set_now(ps_receiver_t *receiver, int64_t now_ns);
void ps_receiver_on_command(ps_receiver_t *receiver, const ps_command_t *command);
int32_t ps_receiver_do_work(ps_receiver_t *receiver, int64_t now_ns);
int64_t ps_receiver_next_deadline_ns(ps_receiver_t *receiver, int64_t now_ns);
/* Returns true if some image is receiving data or waits for missing data. */
bool ps_receiver_is_busy(const ps_receiver_t *receiver);
bool ps_receiver_has_work(ps_receiver_t *receiver);
/* Returns true if a reader of an image that is receiving data has returned as many credits as a
 * status message must state at once. */
bool ps_receiver_owes_credit(const ps_receiver_t *receiver);

#endif
