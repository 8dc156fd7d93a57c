/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_agent.h: the functions of the sender agent that its thread and the driver call. */
#ifndef PS_SENDER_AGENT_H
#define PS_SENDER_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_agent.h"

typedef struct ps_sender ps_sender_t;

/* `agent` has the queues of this agent. `context` and `agent` must exist longer than the sender.
 * PS_E_NO_MEMORY. */
int ps_sender_create(const ps_context_t *context, ps_agent_t *agent, ps_sender_t **out);
void ps_sender_destroy(ps_sender_t *sender);
/* Sets the sender's time. Call this function before the agent executes commands. Without the call,
 * the sender would use the time of its last duty cycle, which may be long ago. */
void ps_sender_set_now(ps_sender_t *sender, int64_t now_ns);
void ps_sender_on_command(ps_sender_t *sender, const ps_command_t *command);
int32_t ps_sender_do_work(ps_sender_t *sender, int64_t now_ns);
/* States when the duty cycle ended. Without the call, the sender assumes that the cycle took no
 * time. */
void ps_sender_end_cycle(ps_sender_t *sender, int64_t end_ns);
/* Returns the time of the sender's next timer; INT64_MAX if no timer runs. A result of now_ns or
 * earlier means that work is due. */
int64_t ps_sender_next_deadline_ns(ps_sender_t *sender, int64_t now_ns);
/* Makes the sender stop checking streams in every duty cycle: no stream is hot after this call.
 * Call this function before the sender's thread announces that it will sleep. Returns true if
 * streams were hot. If streams were hot, a duty cycle must check these streams once more before the
 * thread may sleep. */
bool ps_sender_cool(ps_sender_t *sender);
/* Returns how long the thread may sleep between two duty cycles while streams are hot. The result
 * is 0 in some cases: for example, if a hot stream is not on IPC, or if its publishers wait for
 * room. */
int64_t ps_sender_nap_ns(const ps_sender_t *sender);
/* Returns true if a stream is hot. */
bool ps_sender_is_busy(const ps_sender_t *sender);
/* Returns true if at least one stream is in the state PS_WATERMARK_PAUSED, in which publishers wait
 * until the log has drained. */
bool ps_sender_is_paused(const ps_sender_t *sender);
/* Returns true if the sender has work, for example a bit in the dirty bitmap. Call this function
 * after the sender's thread has announced, with a sequentially consistent store, that it will
 * sleep. */
bool ps_sender_has_work(ps_sender_t *sender);

#endif
