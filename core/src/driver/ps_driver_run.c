/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver_run.c: threads that run agents, and how they sleep.
 *
 * No wake-up is lost: the thread stores parked = 1 (seq_cst), then checks for work once more; the
 * thread that makes work stores it, fences (seq_cst), then loads parked. One of the two sees the
 * other's store. Sockets need no such pair: epoll is level-triggered. */
#define _GNU_SOURCE 1

#include "ps_clock.h"
#include "ps_driver_state.h"
#include "ps_error.h"

#include "ps_assert.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    NS_PER_S = 1000 * 1000 * 1000,
    NS_PER_MS = 1000 * 1000,
    LIGHT_WORK = 2,
    TOO_SHORT_TO_SLEEP_NS = 5000,
    LONGEST_SLEEP_NS = NS_PER_S,
    LAST_CYCLES = 64 /* after a stop: bounds the work, not its absence */
};

int ps_loop_open(ps_loop_t *loop)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->wake_fd < 0) {
        return ps_fail(PS_E_SYSTEM, "cannot make wake-up descriptors: %s", strerror(errno));
    }
    struct epoll_event interest = { .events = EPOLLIN, .data = { .fd = loop->wake_fd } };
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &interest) != 0) {
        return ps_fail(PS_E_SYSTEM, "epoll_ctl: %s", strerror(errno));
    }
    for (int32_t i = 0; i < loop->agent_count; i++) {
        loop->agents[i]->epoll_fd = loop->epoll_fd;
        loop->agents[i]->wake_fd = loop->wake_fd;
    }
    return PS_OK;
}

void ps_loop_close(ps_loop_t *loop)
{
    PS_ASSERT(!loop->running);
    if (loop->epoll_fd >= 0) {
        (void)close(loop->epoll_fd);
    }
    if (loop->wake_fd >= 0) {
        (void)close(loop->wake_fd);
    }
    loop->epoll_fd = -1;
    loop->wake_fd = -1;
    for (int32_t i = 0; i < loop->agent_count; i++) {
        loop->agents[i]->epoll_fd = -1;
        loop->agents[i]->wake_fd = -1;
    }
}

static void set_running(ps_loop_t *loop, bool running)
{
    loop->running = running;
    for (int32_t i = 0; i < loop->agent_count; i++) {
        loop->agents[i]->has_thread = running;
    }
}

int32_t ps_agent_cycle(ps_driver_t *driver, ps_agent_t *agent, int64_t now_ns)
{
    ps_command_t command;
    int32_t work = 0;
    while (work < PS_COMMANDS_PER_CYCLE && ps_ring_pop(&agent->commands, &command)) {
        if (agent->id == PS_AGENT_SENDER) {
            ps_sender_set_now(driver->sender, now_ns);
            ps_sender_on_command(driver->sender, &command);
        } else {
            ps_receiver_set_now(driver->receiver, now_ns);
            ps_receiver_on_command(driver->receiver, &command);
        }
        work++;
    }
    if (agent->id == PS_AGENT_SENDER) {
        work += ps_sender_do_work(driver->sender, now_ns);
    } else {
        work += ps_receiver_do_work(driver->receiver, now_ns);
    }
    /* relaxed: one writer; the watchdog only wants to see it move */
    atomic_store_explicit(&agent->duty_cycles,
                          atomic_load_explicit(&agent->duty_cycles, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return work;
}

/* ---- one thread ------------------------------------------------------------------------------ */

/* One cycle of each agent; *now_ns moves on.  Times are the thread's own, taken once per agent. */
static int32_t run_agents(ps_loop_t *loop, int64_t *now_ns)
{
    int32_t work = 0;
    bool notify = false;
    /* A paused publisher waits for consumers: what they state is read before more is sent. A
     * returned credit leaves before the data of this host, so that a publisher has the credit when
     * the answer to its message arrives. */
    const bool alone = loop->agent_count == 1; /* the sender may be another thread's */
    const bool receives_first = !alone && (ps_sender_is_paused(loop->driver->sender) ||
                                           ps_receiver_owes_credit(loop->driver->receiver));
    const int32_t last = receives_first ? loop->agent_count - 1 : 0;
    for (int32_t i = 0; i < loop->agent_count; i++) {
        ps_agent_t *agent = loop->agents[last > 0 ? last - i : i];
        work += ps_agent_cycle(loop->driver, agent, *now_ns);
        const int64_t end_ns = ps_monotonic_ns();
        const int64_t took_ns = end_ns - *now_ns;
        if (agent->id == PS_AGENT_SENDER) {
            ps_sender_end_cycle(loop->driver->sender, end_ns);
        }
        if (took_ns > atomic_load_explicit(agent->max_cycle_ns, memory_order_relaxed)) {
            atomic_store_explicit(agent->max_cycle_ns, took_ns, memory_order_release);
        }
        if (took_ns > PS_CYCLE_THRESHOLD_NS) {
            atomic_fetch_add_explicit(agent->slow_cycles, 1, memory_order_relaxed);
        }
        *now_ns = end_ns;
        notify = notify || agent->emitted > 0;
        agent->emitted = 0;
    }
    if (notify) { /* once per cycle, not per event */
        const uint64_t one = 1;
        if (write(loop->driver->event_fd, &one, sizeof one) < 0) {
            PS_ASSERT(errno == EAGAIN || errno == EINTR);
        }
    }
    return work;
}

/* seq_cst: before the last check for work, see above. */
static void announce_parked(ps_loop_t *loop, uint32_t parked)
{
    for (int32_t i = 0; i < loop->agent_count; i++) {
        atomic_store_explicit(loop->agents[i]->parked, parked, memory_order_seq_cst);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

static bool has_work(const ps_loop_t *loop)
{
    for (int32_t i = 0; i < loop->agent_count; i++) {
        const ps_agent_t *agent = loop->agents[i];
        if (!ps_ring_is_empty(&agent->commands)) {
            return true;
        }
        if (agent->id == PS_AGENT_SENDER ? ps_sender_has_work(loop->driver->sender)
                                         : ps_receiver_has_work(loop->driver->receiver)) {
            return true;
        }
    }
    return atomic_load_explicit(&loop->driver->stop, memory_order_acquire);
}

static int64_t next_deadline(const ps_loop_t *loop, int64_t now_ns)
{
    int64_t deadline = INT64_MAX;
    for (int32_t i = 0; i < loop->agent_count; i++) {
        const int64_t due = loop->agents[i]->id == PS_AGENT_SENDER
                                ? ps_sender_next_deadline_ns(loop->driver->sender, now_ns)
                                : ps_receiver_next_deadline_ns(loop->driver->receiver, now_ns);
        deadline = due < deadline ? due : deadline;
    }
    return deadline;
}

/* Blocks until a descriptor is readable or wait_ns is over. */
static void wait_for_descriptors(ps_loop_t *loop, int64_t wait_ns)
{
    struct epoll_event ready[PS_PARK_EVENTS];
    int count = -1;
    if (!loop->coarse_timeout) {
        const struct timespec timeout = { .tv_sec = wait_ns / NS_PER_S,
                                          .tv_nsec = wait_ns % NS_PER_S };
        /* The C library has the function since 2.35, and wheels are built for 2.17. */
        count = (int)syscall(SYS_epoll_pwait2, loop->epoll_fd, ready, PS_PARK_EVENTS, &timeout,
                             NULL, (size_t)0);
        if (count < 0 && (errno == ENOSYS || errno == EPERM)) {
            loop->coarse_timeout = true;
        }
    }
    if (loop->coarse_timeout) {
        const int64_t wait_ms = (wait_ns + NS_PER_MS - 1) / NS_PER_MS;
        count = epoll_wait(loop->epoll_fd, ready, PS_PARK_EVENTS, (int)wait_ms);
    }
    for (int i = 0; i < count; i++) {
        if (ready[i].data.fd == loop->wake_fd) {
            uint64_t wakes;
            if (read(loop->wake_fd, &wakes, sizeof wakes) < 0) {
                PS_ASSERT(errno == EAGAIN || errno == EINTR);
            }
        }
    }
}

/* Announces that the thread parks, runs one more duty cycle, which finds any work, and sleeps. */
static void park(ps_loop_t *loop, int64_t *now_ns)
{
    for (int32_t i = 0; i < loop->agent_count; i++) {
        if (loop->agents[i]->id == PS_AGENT_SENDER && ps_sender_cool(loop->driver->sender)) {
            return;
        }
    }
    announce_parked(loop, 1);
    if (!has_work(loop)) {
        const int32_t work = run_agents(loop, now_ns);
        if (work > 0) {
            (void)ps_idle_on_work(&loop->idle, *now_ns, false);
        } else {
            const int64_t deadline_ns = next_deadline(loop, *now_ns);
            int64_t wait_ns = deadline_ns > *now_ns ? deadline_ns - *now_ns : 0;
            wait_ns = wait_ns > LONGEST_SLEEP_NS ? LONGEST_SLEEP_NS : wait_ns;
            if (wait_ns >= TOO_SHORT_TO_SLEEP_NS) {
                wait_for_descriptors(loop, wait_ns);
            } else {
                (void)sched_yield();
            }
        }
    }
    announce_parked(loop, 0);
}

/* Returns the time for which the loop's agents need no duty cycle. */
static int64_t nap_length_ns(const ps_loop_t *loop, int64_t now_ns)
{
    int64_t nap_ns = 0;
    for (int32_t i = 0; i < loop->agent_count; i++) {
        if (loop->agents[i]->id == PS_AGENT_SENDER) {
            nap_ns = ps_sender_nap_ns(loop->driver->sender);
        } else if (ps_receiver_is_busy(loop->driver->receiver)) {
            return 0;
        }
    }
    if (nap_ns == 0) {
        return 0;
    }
    const int64_t until_due_ns = next_deadline(loop, now_ns) - now_ns;
    nap_ns = until_due_ns < nap_ns ? until_due_ns : nap_ns;
    return nap_ns >= TOO_SHORT_TO_SLEEP_NS ? nap_ns : 0;
}

/* With few CPUs, leaves the processors for a while to a busy publisher and reader of this host,
 * which do not need the agents meanwhile. Hot streams stay hot; all other work wakes the thread as
 * if it were parked. */
static bool nap(ps_loop_t *loop, int64_t now_ns)
{
    const int64_t nap_ns = ps_idle_may_nap(&loop->idle) ? nap_length_ns(loop, now_ns) : 0;
    if (nap_ns <= 0) {
        return false;
    }
    announce_parked(loop, 1);
    const bool nothing = !has_work(loop);
    if (nothing) {
        wait_for_descriptors(loop, nap_ns);
    }
    announce_parked(loop, 0);
    return nothing;
}

/* Returns true if a cycle found a single message or its answer, not many messages. */
static bool is_light(const ps_loop_t *loop, int32_t work)
{
    for (int32_t i = 0; i < loop->agent_count; i++) {
        if (loop->agents[i]->id == PS_AGENT_SENDER && ps_sender_is_busy(loop->driver->sender)) {
            return false;
        }
    }
    return work <= LIGHT_WORK;
}

static void run_idle(ps_loop_t *loop, int64_t *now_ns)
{
    if (nap(loop, *now_ns)) {
        *now_ns = ps_monotonic_ns();
        return;
    }
    switch (ps_idle_on_nothing(&loop->idle, *now_ns)) {
    case PS_IDLE_SLEEP: park(loop, now_ns); break;
    case PS_IDLE_PAUSE: {
        const struct timespec pause = { .tv_sec = 0, .tv_nsec = loop->idle.pause_ns };
        (void)nanosleep(&pause, NULL);
        break;
    }
    default: break;
    }
    *now_ns = ps_monotonic_ns();
}

static void *run(void *argument)
{
    ps_loop_t *loop = argument;
    ps_driver_t *driver = loop->driver;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    int64_t now_ns = ps_monotonic_ns();
    while (!atomic_load_explicit(&driver->stop, memory_order_acquire)) {
        if (now_ns >= loop->next_epoch_ns) { /* follow steps of the wall clock */
            atomic_store_explicit(&driver->context.epoch_offset_ns, ps_epoch_offset_ns(),
                                  memory_order_relaxed);
            loop->next_epoch_ns = now_ns + NS_PER_S;
        }
        const int32_t work = run_agents(loop, &now_ns);
        if (work > 0) {
            if (ps_idle_on_work(&loop->idle, now_ns, is_light(loop, work))) {
                now_ns = ps_monotonic_ns();
            }
        } else {
            run_idle(loop, &now_ns);
        }
    }
    /* Before the threads end, the sender sends accepted data as far as windows are open. The
     * receiver reads the sockets, because closing a socket would lose its data. */
    for (int32_t i = 0; i < LAST_CYCLES && run_agents(loop, &now_ns) > 0; i++) {
    }
    return NULL;
}

int ps_loop_start(ps_loop_t *loop)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed = pthread_attr_init(&attributes);
    if (failed != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot start thread %s: %s", loop->name, strerror(failed));
    }
    if (loop->cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)loop->cpu, &cpus);
        failed = pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    }
    (void)sigfillset(&all);
    if (failed == 0) {
        failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    if (failed == 0) {
        failed = pthread_create(&loop->thread, &attributes, run, loop);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot start thread %s on CPU %d: %s", loop->name, loop->cpu,
                       strerror(failed));
    }
    set_running(loop, true);
    (void)pthread_setname_np(loop->thread, loop->name);
    return PS_OK;
}

void ps_loop_join(ps_loop_t *loop)
{
    if (loop->running) {
        ps_agent_wake(loop->agents[0]);
        const int failed = pthread_join(loop->thread, NULL);
        PS_ASSERT(failed == 0);
        (void)failed;
        set_running(loop, false);
    }
}
