/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_agent.c: see ps_agent.h.
 */
#include "ps_agent.h"
#include "ps_assert.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ps_clock.h"
#include "ps_error.h"

enum { COMMAND_WAIT_NS = 20 * 1000 * 1000 };

int ps_agent_init(ps_agent_t *agent, int32_t id, const ps_context_t *context,
                  _Atomic uint32_t *parked)
{
    static const int32_t max_cycle_counter[] = { [PS_AGENT_SENDER] = 28, [PS_AGENT_RECEIVER] = 30 };
    const ps_driver_params_t *params = &context->params;
    PS_ASSERT(id == PS_AGENT_SENDER || id == PS_AGENT_RECEIVER);
    agent->id = id;
    agent->context = context;
    agent->epoll_fd = -1;
    agent->wake_fd = -1;
    agent->max_cycle_ns = ps_counter_cell(params->cnc, max_cycle_counter[id]);
    agent->slow_cycles = ps_counter_cell(params->cnc, max_cycle_counter[id] + 1);
    agent->parked = parked;
    atomic_store_explicit(parked, 0, memory_order_seq_cst);
    int result = ps_ring_init(&agent->commands, params->command_capacity, sizeof(ps_command_t));
    if (result == PS_OK) {
        result = ps_ring_init(&agent->events, params->event_capacity, sizeof(ps_event_t));
    }
    return result;
}

void ps_agent_fini(ps_agent_t *agent)
{
    ps_ring_free(&agent->commands);
    ps_ring_free(&agent->events);
}

void ps_agent_wake(const ps_agent_t *agent)
{
    const uint64_t one = 1;
    /* EAGAIN: the counter is at its maximum, so the descriptor is readable already. */
    if (agent->wake_fd >= 0 && write(agent->wake_fd, &one, sizeof one) < 0) {
        PS_ASSERT(errno == EAGAIN || errno == EINTR);
    }
}

int ps_agent_command(ps_agent_t *agent, const ps_command_t *command)
{
    int64_t give_up_ns = -1;
    while (!ps_ring_push(&agent->commands, command)) {
        const int64_t now_ns = agent->has_thread ? ps_monotonic_ns() : INT64_MAX;
        give_up_ns = give_up_ns < 0 && agent->has_thread ? now_ns + COMMAND_WAIT_NS : give_up_ns;
        if (now_ns >= give_up_ns) {
            return ps_fail(PS_E_AGAIN, "the %s has not taken %d commands in time",
                           agent->id == PS_AGENT_SENDER ? "sender" : "receiver",
                           agent->context->params.command_capacity);
        }
        (void)sched_yield();
    }
    /* Pairs with announce_parked(): our store, then the load of its flag. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(agent->parked, memory_order_seq_cst) != 0) {
        ps_agent_wake(agent);
    }
    return PS_OK;
}

bool ps_agent_emit(ps_agent_t *agent, const ps_event_t *event)
{
    PS_ASSERT(event->type > PS_EV_NONE && event->type <= PS_EV_READER_LAGGED);
    if (!ps_ring_push(&agent->events, event)) {
        return false;
    }
    agent->emitted++;
    return true;
}

void ps_agent_watch(ps_agent_t *agent, int fd)
{
    if (agent->epoll_fd < 0 || fd < 0) {
        return;
    }
    struct epoll_event interest = { .events = EPOLLIN, .data = { .fd = fd } };
    if (epoll_ctl(agent->epoll_fd, EPOLL_CTL_ADD, fd, &interest) != 0 && errno != EEXIST) {
        /* Every duty cycle polls an unwatched socket too, at least once a second. */
        ps_system_add(agent->context, PS_SYS_ERRORS, 1);
    }
}

void ps_agent_unwatch(ps_agent_t *agent, int fd)
{
    if (agent->epoll_fd >= 0 && fd >= 0) {
        (void)epoll_ctl(agent->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* ENOENT: was never watched */
    }
}
