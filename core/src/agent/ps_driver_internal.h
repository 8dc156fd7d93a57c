/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver_internal.h: what the agents (sender, receiver) and the driver that runs them share.
 */
#ifndef PS_DRIVER_INTERNAL_H
#define PS_DRIVER_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"
#include "ps_clock.h"
#include "ps_counters.h"
#include "ps_driver.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_shared.h"
#include "ps_wake.h"

typedef struct ps_sender ps_sender_t;
typedef struct ps_receiver ps_receiver_t;

/* A command from the conductor.  Small values are inline; `object` points to what is handed over;
 * `address` and `text` serve the few that need them.  Types are the agent's own enum. */
typedef struct ps_command {
    int32_t type;
    int32_t i;
    void *object;
    void *other;
    int64_t a;
    int64_t b;
    ps_addr_t address;
    union {
        ps_subscriber_params_t subscriber;
        char text[128];
    } u;
} ps_command_t;

/* Services of the driver for its agents. */
/* Conductor -> agent.  Waits (bounded, yielding) for room; PS_E_AGAIN after that.  In INVOKER mode
 * the command is taken by the next step. */
int ps_driver_command(ps_driver_t *driver, int32_t agent, const ps_command_t *command);
/* Agent -> conductor.  false = ring full: the agent keeps the condition and emits again later. */
bool ps_driver_emit(ps_driver_t *driver, int32_t agent, const ps_event_t *event);
/* Adds or removes a descriptor of the agent's park set.  Agent thread.  fd -1 is ignored. */
void ps_driver_watch(ps_driver_t *driver, int32_t agent, int fd);
void ps_driver_unwatch(ps_driver_t *driver, int32_t agent, int fd);
const ps_driver_params_t *ps_driver_params(const ps_driver_t *driver);
ps_net_t *ps_driver_net(const ps_driver_t *driver);
ps_shared_t *ps_driver_shared(const ps_driver_t *driver);
ps_cnc_t *ps_driver_cnc(const ps_driver_t *driver);
ps_sender_t *ps_driver_sender(const ps_driver_t *driver);
ps_receiver_t *ps_driver_receiver(const ps_driver_t *driver);
/* Add to a monotonic now_ns to get epoch ns.  Constant in the simulator. */
int64_t ps_driver_epoch_offset_ns(const ps_driver_t *driver);
static inline void ps_system_add(ps_driver_t *driver, int32_t id, int64_t delta)
{
    atomic_fetch_add_explicit(ps_counter_cell(ps_driver_cnc(driver), id), delta,
                              memory_order_relaxed);
}

/* Sender agent (ps_sender.c). */
int ps_sender_create(ps_driver_t *driver, ps_sender_t **out);
void ps_sender_destroy(ps_sender_t *sender);
/* The cycle's time, before its commands: the last cycle may be long ago. */
void ps_sender_set_now(ps_sender_t *sender, int64_t now_ns);
void ps_sender_on_command(ps_sender_t *sender, const ps_command_t *command);
int32_t ps_sender_do_work(ps_sender_t *sender, int64_t now_ns);
/* Time of the next timer, INT64_MAX if none; now or earlier = work is due. */
int64_t ps_sender_next_deadline_ns(ps_sender_t *sender, int64_t now_ns);
/* Called before parked is announced: true when streams were hot and must be looked at once more,
 * by a duty cycle, before the thread may sleep. */
bool ps_sender_cool(ps_sender_t *sender);
/* How long the thread may sleep, woken or not, without cooling its hot streams: while all of them
 * stay on this host, and leave enough room.  0: not at all. */
int64_t ps_sender_nap_ns(const ps_sender_t *sender);
/* Some stream is hot: many messages come in a row. */
bool ps_sender_is_busy(const ps_sender_t *sender);
/* Called after parked was announced (seq_cst): is there anything to do (dirty bit, ...)?  Cheap. */
bool ps_sender_has_work(ps_sender_t *sender);

/* Receiver agent (ps_receiver.c): the same shape. */
int ps_receiver_create(ps_driver_t *driver, ps_receiver_t **out);
void ps_receiver_destroy(ps_receiver_t *receiver);
void ps_receiver_set_now(ps_receiver_t *receiver, int64_t now_ns);
void ps_receiver_on_command(ps_receiver_t *receiver, const ps_command_t *command);
int32_t ps_receiver_do_work(ps_receiver_t *receiver, int64_t now_ns);
int64_t ps_receiver_next_deadline_ns(ps_receiver_t *receiver, int64_t now_ns);
/* Some image gets data, or waits for what is missing. */
bool ps_receiver_is_busy(const ps_receiver_t *receiver);
bool ps_receiver_has_work(ps_receiver_t *receiver);

#endif
