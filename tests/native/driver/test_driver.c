/* SPDX-License-Identifier: Apache-2.0
 * The driver itself: what it refuses, stepping, threads that sleep and wake, queues that fill.
 */
#define _GNU_SOURCE 1

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include "stream.h"

typedef struct rig {
    char directory[256];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
} rig_t;

static ps_driver_params_t params_of(const rig_t *rig, int32_t threading)
{
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = ps_net_udp();
    params.cnc = rig->cnc;
    params.shared = rig->shared;
    params.threading = threading;
    params.seed = 3;
    params.receiver_id_base = 9;
    params.command_capacity = 4;
    return params;
}

static void open_files(rig_t *rig)
{
    memset(rig, 0, sizeof *rig);
    directory_make(rig->directory, sizeof rig->directory);
    rig->cnc = cnc_make(rig->directory);
    rig->shared = shared_make(rig->directory);
}

static void open_rig(rig_t *rig, int32_t threading)
{
    open_files(rig);
    const ps_driver_params_t params = params_of(rig, threading);
    CHECK_EQ(ps_driver_create(&params, &rig->driver), PS_OK);
    CHECK_EQ(ps_driver_start(rig->driver), PS_OK);
}

static void close_rig(rig_t *rig)
{
    ps_driver_destroy(rig->driver);
    ps_shared_close(rig->shared);
    ps_cnc_close(rig->cnc);
    directory_remove(rig->directory);
}

static void it_refuses_values_out_of_range_by_name(void)
{
    rig_t rig;
    open_files(&rig);
    for (int i = 0; i < 6; i++) {
        ps_driver_params_t params = params_of(&rig, PS_INVOKER);
        const char *const names[] = { "threading",
                                      "idle",
                                      "max_gaps",
                                      "event_capacity",
                                      "heartbeat_interval_ns",
                                      "idle_heartbeat_interval_ns" };
        params.threading = i == 0 ? 7 : params.threading;
        params.idle = i == 1 ? -1 : params.idle;
        params.max_gaps = i == 2 ? 16385 : params.max_gaps;
        params.event_capacity = i == 3 ? 0 : params.event_capacity;
        params.heartbeat_interval_ns = i == 4 ? 0 : params.heartbeat_interval_ns;
        params.idle_heartbeat_interval_ns = i == 5 ? 1 : params.idle_heartbeat_interval_ns;
        CHECK_EQ(ps_driver_create(&params, &rig.driver), PS_E_INVALID);
        CHECK(rig.driver == NULL && strstr(ps_last_error(), names[i]) != NULL);
        ps_net_free(params.net); /* a refused driver does not take it */
    }
    ps_driver_params_t params = params_of(&rig, PS_DEDICATED);
    params.command_capacity = 3;
    CHECK_EQ(ps_driver_create(&params, &rig.driver), PS_E_INVALID);
    ps_net_free(params.net);
    close_rig(&rig);
}

static void a_cpu_that_is_not_there_is_an_error(void)
{
    rig_t rig;
    open_files(&rig);
    ps_driver_params_t params = params_of(&rig, PS_DEDICATED);
    params.receiver_cpu = CPU_SETSIZE - 1;
    CHECK_EQ(ps_driver_create(&params, &rig.driver), PS_OK);
    CHECK_EQ(ps_driver_start(rig.driver), PS_E_SYSTEM); /* the sender had started: it is stopped */
    CHECK(strstr(ps_last_error(), "ps-receiver") != NULL);
    close_rig(&rig);
}

static void stepping_needs_no_descriptors(void)
{
    rig_t rig;
    open_rig(&rig, PS_INVOKER);
    CHECK_EQ(ps_driver_event_fd(rig.driver), -1);
    CHECK_EQ(ps_driver_wake_fd(rig.driver, PS_AGENT_SENDER), -1);
    CHECK_EQ(ps_driver_step(rig.driver, 1000), 0);
    CHECK_EQ(ps_driver_duty_cycles(rig.driver, PS_AGENT_RECEIVER), 1);
    ps_event_t event;
    CHECK_EQ(ps_driver_poll_event(rig.driver, &event), 0);
    close_rig(&rig);
}

static void commands_wait_for_the_next_step_and_are_bounded(void)
{
    rig_t rig;
    open_rig(&rig, PS_INVOKER);
    ps_recv_endpoint_params_t params;
    memset(&params, 0, sizeof params);
    params.status_counter_id = -1;
    params.receiver_id = 77;
    ps_recv_endpoint_t *endpoint;
    for (int i = 0; i < 4; i++) {
        params.id = i + 1;
        CHECK_EQ(ps_recv_endpoint_open(rig.driver, &params, &endpoint), PS_OK);
        CHECK_EQ(ps_driver_next_deadline_ns(rig.driver, 500), 500);
    }
    params.id = 5;
    CHECK_EQ(ps_recv_endpoint_open(rig.driver, &params, &endpoint), PS_E_AGAIN);
    CHECK(ps_driver_step(rig.driver, 1000) >= 4);
    CHECK(ps_driver_next_deadline_ns(rig.driver, 1000) > 1000);
    CHECK_EQ(ps_recv_endpoint_open(rig.driver, &params, &endpoint), PS_OK);
    close_rig(&rig); /* five endpoints, one never taken: all are freed */
}

/* Polls until condition, at most a few seconds. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        const int64_t give_up_ns = ps_monotonic_ns() + INT64_C(5000000000);                        \
        while (!(condition)) {                                                                     \
            CHECK(ps_monotonic_ns() < give_up_ns);                                                 \
            (void)sched_yield();                                                                   \
        }                                                                                          \
    } while (0)

static bool is_parked(const rig_t *rig, int32_t agent)
{
    ps_driver_slot_t *slot = rig->shared->driver;
    return atomic_load_explicit(agent == PS_AGENT_SENDER ? &slot->sender_parked
                                                         : &slot->receiver_parked,
                                memory_order_seq_cst) == 1;
}

static void threads_sleep_and_are_woken(int32_t threading)
{
    rig_t rig;
    open_rig(&rig, threading);
    for (int32_t agent = 0; agent < 2; agent++) {
        EVENTUALLY(is_parked(&rig, agent));
    }
    const int32_t sender_fd = ps_driver_wake_fd(rig.driver, PS_AGENT_SENDER);
    const int32_t receiver_fd = ps_driver_wake_fd(rig.driver, PS_AGENT_RECEIVER);
    CHECK((sender_fd == receiver_fd) == (threading == PS_SHARED));
    for (int32_t agent = 0; agent < 2; agent++) {
        for (int round = 0; round < 50; round++) { /* as a client does */
            const uint64_t before = ps_driver_duty_cycles(rig.driver, agent);
            CHECK_EQ(eventfd_write(ps_driver_wake_fd(rig.driver, agent), 1), 0);
            EVENTUALLY(ps_driver_duty_cycles(rig.driver, agent) != before);
        }
    }
    ps_recv_endpoint_params_t params;
    memset(&params, 0, sizeof params);
    params.status_counter_id = -1;
    params.receiver_id = 77;
    for (int round = 0; round < 50; round++) { /* as the conductor does: nobody waits for a timer */
        ps_recv_endpoint_t *endpoint;
        params.id = round + 1;
        CHECK_EQ(ps_recv_endpoint_open(rig.driver, &params, &endpoint), PS_OK);
        CHECK_EQ(ps_recv_endpoint_remove(rig.driver, endpoint), PS_OK);
        struct pollfd ready = { .fd = ps_driver_event_fd(rig.driver), .events = POLLIN };
        CHECK_EQ(poll(&ready, 1, 5000), 1);
        eventfd_t count;
        CHECK_EQ(eventfd_read(ready.fd, &count), 0);
        ps_event_t event;
        CHECK_EQ(ps_driver_poll_event(rig.driver, &event), 1);
        CHECK(event.type == PS_EV_RELEASED && event.id == params.id);
        ps_recv_endpoint_destroy(rig.driver, endpoint);
    }
    ps_driver_stop(rig.driver);
    ps_driver_stop(rig.driver);
    close_rig(&rig);
}

static void one_thread_sleeps_and_is_woken(void)
{
    threads_sleep_and_are_woken(PS_SHARED);
}
static void two_threads_sleep_and_are_woken(void)
{
    threads_sleep_and_are_woken(PS_DEDICATED);
}

static void a_driver_can_be_started_again(void)
{
    rig_t rig;
    open_rig(&rig, PS_DEDICATED);
    ps_driver_stop(rig.driver);
    const uint64_t before = ps_driver_duty_cycles(rig.driver, PS_AGENT_SENDER);
    CHECK_EQ(ps_driver_start(rig.driver), PS_OK);
    EVENTUALLY(ps_driver_duty_cycles(rig.driver, PS_AGENT_SENDER) != before);
    close_rig(&rig);
}

static void an_unused_driver_sleeps(void)
{
    rig_t rig;
    open_rig(&rig, PS_SHARED);
    EVENTUALLY(is_parked(&rig, PS_AGENT_SENDER));
    const uint64_t before = ps_driver_duty_cycles(rig.driver, PS_AGENT_SENDER);
    struct pollfd nothing = { .fd = ps_driver_event_fd(rig.driver), .events = POLLIN };
    CHECK_EQ(poll(&nothing, 1, 300), 0);
    CHECK(ps_driver_duty_cycles(rig.driver, PS_AGENT_SENDER) - before < 20);
    close_rig(&rig);
}

int main(void)
{
    RUN(it_refuses_values_out_of_range_by_name);
    RUN(a_cpu_that_is_not_there_is_an_error);
    RUN(stepping_needs_no_descriptors);
    RUN(commands_wait_for_the_next_step_and_are_bounded);
    RUN(one_thread_sleeps_and_is_woken);
    RUN(two_threads_sleep_and_are_woken);
    RUN(a_driver_can_be_started_again);
    RUN(an_unused_driver_sleeps);
    return 0;
}
