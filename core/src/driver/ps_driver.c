/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver.c: owns the two agents, their queues and threads; the conductor's side of the driver.
 */
#define _GNU_SOURCE 1

#include "ps_set_up.h"

#include "ps_assert.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ps_clock.h"
#include "ps_account.h"
#include "ps_driver_state.h"
#include "ps_receiver.h"
#include "ps_sender.h"

#define NS_MS INT64_C(1000000)
#define NS_S  INT64_C(1000000000)

/* Epoch offset in INVOKER mode: a simulated run must not depend on the date. */

void ps_driver_params_default(ps_driver_params_t *params)
{
    memset(params, 0, sizeof *params);
    params->threading = PS_DEDICATED;
    params->idle = PS_IDLE_PARK;
    params->sender_cpu = -1;
    params->receiver_cpu = -1;
    params->setup_interval_ns = 100 * NS_MS;
    params->heartbeat_interval_ns = 100 * NS_MS;
    params->idle_heartbeat_interval_ns = NS_S;
    params->idle_after_ns = NS_S;
    params->status_message_timeout_ns = 200 * NS_MS;
    params->connection_timeout_ns = 5 * NS_S;
    params->image_liveness_timeout_ns = 10 * NS_S;
    params->unblock_timeout_ns = 15 * NS_S;
    params->retransmit_delay_ns = 0;
    params->retransmit_linger_ns = 10 * NS_MS;
    params->nak_unicast_delay_ns = 1000;
    params->nak_unicast_retry_ratio = 100;
    params->nak_multicast_max_backoff_ns = 10 * NS_MS;
    params->pending_setup_timeout_ns = NS_S;
    params->nak_multicast_group_size = 10;
    params->max_gaps = 1024;
    params->retransmit_percent = 100;
    params->retransmit_bytes_per_s = 4 * 1024 * 1024;
    params->event_capacity = 4096;
    params->command_capacity = 1024;
    params->advertise = 1;
}

static int check_params(const ps_driver_params_t *params)
{
    const struct {
        const char *name;
        int64_t value;
        int64_t low;
        int64_t high;
    } ranges[] = {
        { "threading", params->threading, PS_INVOKER, PS_DEDICATED },
        { "idle", params->idle, PS_IDLE_PARK, PS_IDLE_SPIN },
        { "sender_cpu", params->sender_cpu, -1, CPU_SETSIZE - 1 },
        { "receiver_cpu", params->receiver_cpu, -1, CPU_SETSIZE - 1 },
        { "setup_interval_ns", params->setup_interval_ns, 1, INT64_MAX },
        { "heartbeat_interval_ns", params->heartbeat_interval_ns, 1, INT64_MAX },
        { "idle_heartbeat_interval_ns", params->idle_heartbeat_interval_ns,
          params->heartbeat_interval_ns, INT64_MAX },
        { "idle_after_ns", params->idle_after_ns, 0, INT64_MAX },
        { "status_message_timeout_ns", params->status_message_timeout_ns, 1, INT64_MAX },
        { "connection_timeout_ns", params->connection_timeout_ns, 1, INT64_MAX },
        { "image_liveness_timeout_ns", params->image_liveness_timeout_ns, 1, INT64_MAX },
        { "unblock_timeout_ns", params->unblock_timeout_ns, 1, INT64_MAX },
        { "retransmit_delay_ns", params->retransmit_delay_ns, 0, INT64_MAX },
        { "retransmit_linger_ns", params->retransmit_linger_ns, 0, INT64_MAX },
        { "nak_unicast_delay_ns", params->nak_unicast_delay_ns, 0, INT64_MAX },
        { "nak_unicast_retry_ratio", params->nak_unicast_retry_ratio, 1, INT32_MAX },
        { "nak_multicast_max_backoff_ns", params->nak_multicast_max_backoff_ns, 1, INT64_MAX },
        { "pending_setup_timeout_ns", params->pending_setup_timeout_ns, 1, INT64_MAX },
        { "nak_multicast_group_size", params->nak_multicast_group_size, 1, INT32_MAX },
        { "max_gaps", params->max_gaps, 1, 16384 },
        { "loss_recovery", params->loss_recovery, PS_LOSS_ALL_GAPS, PS_LOSS_SINGLE_GAP },
        { "retransmit_percent", params->retransmit_percent, 1, 10000 },
        { "event_capacity", params->event_capacity, 2, 1 << 20 },
        { "command_capacity", params->command_capacity, 2, 1 << 20 },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high) {
            return ps_fail(PS_E_INVALID, "%s = %lld is outside [%lld, %lld]", ranges[i].name,
                           (long long)ranges[i].value, (long long)ranges[i].low,
                           (long long)ranges[i].high);
        }
    }
    if (params->net == NULL || params->cnc == NULL) {
        return ps_fail(PS_E_INVALID, "a driver needs a network and counters");
    }
    return PS_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int init_agent(ps_driver_t *driver, int32_t id)
{
    const ps_shared_t *shared = driver->context.params.shared;
    _Atomic uint32_t *parked = &driver->own_parked[id];
    if (shared != NULL) {
        parked = id == PS_AGENT_SENDER ? &shared->driver->sender_parked
                                       : &shared->driver->receiver_parked;
    }
    return ps_agent_init(&driver->agents[id], id, &driver->context, parked);
}

static void init_loop(ps_driver_t *driver, ps_loop_t *loop, const char *name, int32_t cpu)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    loop->driver = driver;
    loop->name = name;
    loop->cpu = cpu;
    loop->epoll_fd = -1;
    loop->wake_fd = -1;
    loop->agent_count = 0;
    ps_idle_init(&loop->idle, driver->context.params.idle, online > 0 ? (int32_t)online : 1);
}

static void loop_takes(ps_loop_t *loop, ps_agent_t *agent)
{
    PS_ASSERT(loop->agent_count < PS_AGENTS);
    loop->agents[loop->agent_count++] = agent;
}

static int open_loops(ps_driver_t *driver)
{
    const ps_driver_params_t *params = &driver->context.params;
    ps_agent_t *sender = &driver->agents[PS_AGENT_SENDER];
    ps_agent_t *receiver = &driver->agents[PS_AGENT_RECEIVER];
    driver->loop_count = params->threading == PS_INVOKER  ? 0
                         : params->threading == PS_SHARED ? 1
                                                          : 2;
    if (driver->loop_count == 0) {
        return PS_OK;
    }
    const bool both = driver->loop_count == 1;
    init_loop(driver, &driver->loops[0], both ? "ps-shared" : "ps-sender", params->sender_cpu);
    loop_takes(&driver->loops[0], sender);
    if (both) {
        loop_takes(&driver->loops[0], receiver);
    } else {
        init_loop(driver, &driver->loops[1], "ps-receiver", params->receiver_cpu);
        loop_takes(&driver->loops[1], receiver);
    }
    driver->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (driver->event_fd < 0) {
        return ps_fail(PS_E_SYSTEM, "eventfd: %s", strerror(errno));
    }
    for (int32_t i = 0; i < driver->loop_count; i++) {
        const int result = ps_loop_open(&driver->loops[i]);
        if (result != PS_OK) {
            return result;
        }
    }
    return PS_OK;
}

static int build(ps_driver_t *driver)
{
    int result = PS_OK;
    for (int32_t id = 0; id < PS_AGENTS && result == PS_OK; id++) {
        result = init_agent(driver, id);
    }
    if (result == PS_OK) {
        result = open_loops(driver);
    }
    if (result == PS_OK) {
        result =
            ps_sender_create(&driver->context, &driver->agents[PS_AGENT_SENDER], &driver->sender);
    }
    if (result == PS_OK) {
        result = ps_receiver_create(&driver->context, &driver->agents[PS_AGENT_RECEIVER],
                                    &driver->receiver);
    }
    return result;
}

int ps_driver_create(const ps_driver_params_t *params, ps_driver_t **out)
{
    PS_ASSERT(params != NULL && out != NULL);
    *out = NULL;
    int result = check_params(params);
    if (result != PS_OK) {
        return result;
    }
    const size_t size = (sizeof(ps_driver_t) + PS_LINE - 1) / PS_LINE * PS_LINE;
    ps_driver_t *driver = aligned_alloc(PS_LINE, size);
    if (driver == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a driver");
    }
    memset(driver, 0, sizeof *driver);
    driver->context.params = *params;
    driver->context.thread_ns = params->threading == PS_INVOKER ? NULL : ps_thread_ns;
    ps_name_copy(driver->host, params->host == NULL ? "" : params->host);
    driver->context.params.host = driver->host;
    driver->event_fd = -1;
    for (int32_t i = 0; i < PS_AGENTS; i++) {
        driver->loops[i].epoll_fd = -1;
        driver->loops[i].wake_fd = -1;
    }
    atomic_store_explicit(&driver->context.epoch_offset_ns,
                          params->threading == PS_INVOKER ? PS_INVOKER_EPOCH_OFFSET_NS
                                                          : ps_epoch_offset_ns(),
                          memory_order_relaxed);
    result = build(driver);
    if (result != PS_OK) {
        driver->context.params.net = NULL; /* stays the caller's */
        ps_driver_destroy(driver);
        return result;
    }
    *out = driver;
    return PS_OK;
}

int ps_driver_start(ps_driver_t *driver)
{
    atomic_store_explicit(&driver->stop, false, memory_order_release);
    for (int32_t i = 0; i < driver->loop_count; i++) {
        const int result = ps_loop_start(&driver->loops[i]);
        if (result != PS_OK) {
            ps_driver_stop(driver);
            return result;
        }
    }
    return PS_OK;
}

/* A new daemon may adopt the publications. Until then no agent updates their accounts. */
static void state_absence(const ps_driver_t *driver)
{
    const ps_sender_t *sender = driver->sender;
    const bool simulated = driver->context.params.threading == PS_INVOKER;
    const int32_t count = sender == NULL || simulated ? 0 : sender->publication_count;
    for (int32_t i = 0; i < count; i++) {
        ps_account_bind(sender->publications[i]->slot, PS_CAUSE_DAEMON_AWAY, 0, NULL,
                        ps_monotonic_ns());
    }
}

void ps_driver_stop(ps_driver_t *driver)
{
    atomic_store_explicit(&driver->stop, true, memory_order_seq_cst);
    for (int32_t i = 0; i < driver->loop_count; i++) {
        ps_loop_join(&driver->loops[i]);
    }
    state_absence(driver);
}

/* Delivers the commands that no agent has taken, so that their objects are freed with the
 * others.  Objects that a command removes stay: no conductor would destroy them. */
static void deliver_commands(ps_driver_t *driver)
{
    ps_command_t command;
    while (driver->sender != NULL &&
           ps_ring_pop(&driver->agents[PS_AGENT_SENDER].commands, &command)) {
        if (command.type != PS_SC_REMOVE_ENDPOINT && command.type != PS_SC_REMOVE_PUBLICATION) {
            ps_sender_on_command(driver->sender, &command);
        }
    }
    while (driver->receiver != NULL &&
           ps_ring_pop(&driver->agents[PS_AGENT_RECEIVER].commands, &command)) {
        if (command.type != PS_RCMD_REMOVE_ENDPOINT && command.type != PS_RCMD_REMOVE_IMAGE &&
            command.type != PS_RCMD_REMOVE_DESTINATION) {
            ps_receiver_on_command(driver->receiver, &command);
        }
    }
}

void ps_driver_destroy(ps_driver_t *driver)
{
    if (driver == NULL) {
        return;
    }
    ps_driver_stop(driver);
    deliver_commands(driver);
    if (driver->receiver != NULL) {
        ps_receiver_destroy(driver->receiver);
    }
    if (driver->sender != NULL) {
        ps_sender_destroy(driver->sender);
    }
    for (int32_t i = 0; i < driver->loop_count; i++) {
        ps_loop_close(&driver->loops[i]);
    }
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        ps_agent_fini(&driver->agents[id]);
    }
    if (driver->event_fd >= 0) {
        (void)close(driver->event_fd);
    }
    ps_net_free(driver->context.params.net);
    free(driver);
}

/* ---- stepping -------------------------------------------------------------------------------- */

int32_t ps_driver_step(ps_driver_t *driver, int64_t now_ns)
{
    PS_ASSERT(driver->context.params.threading == PS_INVOKER);
    int32_t work = 0;
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        work += ps_agent_cycle(driver, &driver->agents[id], now_ns);
    }
    return work;
}

int64_t ps_driver_next_deadline_ns(ps_driver_t *driver, int64_t now_ns)
{
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        if (!ps_ring_is_empty(&driver->agents[id].commands)) {
            return now_ns;
        }
    }
    const int64_t sender = ps_sender_next_deadline_ns(driver->sender, now_ns);
    const int64_t receiver = ps_receiver_next_deadline_ns(driver->receiver, now_ns);
    return sender < receiver ? sender : receiver;
}

/* ---- conductor's side ------------------------------------------------------------------------ */

int32_t ps_driver_event_fd(const ps_driver_t *driver)
{
    return driver->event_fd;
}

int32_t ps_driver_wake_fd(const ps_driver_t *driver, int32_t agent)
{
    PS_ASSERT(agent >= 0 && agent < PS_AGENTS);
    return driver->agents[agent].wake_fd;
}

void ps_driver_wake(ps_driver_t *driver)
{
    for (int32_t i = 0; i < driver->loop_count; i++) {
        ps_agent_wake(driver->loops[i].agents[0]);
    }
}

uint64_t ps_driver_duty_cycles(const ps_driver_t *driver, int32_t agent)
{
    PS_ASSERT(agent >= 0 && agent < PS_AGENTS);
    return atomic_load_explicit(&((ps_driver_t *)(uintptr_t)driver)->agents[agent].duty_cycles,
                                memory_order_relaxed);
}

int32_t ps_driver_poll_event(ps_driver_t *driver, ps_event_t *out)
{
    for (int32_t i = 0; i < PS_AGENTS; i++) {
        const int32_t id = driver->poll_turn ^ i;
        if (ps_ring_pop(&driver->agents[id].events, out)) {
            driver->poll_turn = id ^ 1; /* neither agent's flood hides the other */
            return 1;
        }
    }
    return 0;
}

void ps_driver_faults(const ps_driver_t *driver, uint64_t out[16])
{
    _Static_assert(PS_WIRE_FAULTS <= 16, "room for every cause");
    memset(out, 0, 16 * sizeof(out[0]));
    ps_receiver_faults(driver->receiver, out);
}
