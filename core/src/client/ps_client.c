/* SPDX-License-Identifier: Apache-2.0
 * ps_client.c: a client's handle: mapping, waiting, counters, waking the daemon. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ps_barrier.h"
#include "ps_client_internal.h"

enum {
    LEARN_PARTS = 4,
    LEARN_CLAMP_NS = 1000 * 1000,  /* a dozen short waits outweigh a long silence */
    WORTH_WAITING_NS = 100 * 1000, /* the thread stays awake for a wake-up expected within this
                                    * time */
    AWAKE_NS = 150 * 1000
};

_Atomic uint32_t ps_fork_generation;

static void ps_after_fork(void)
{
    atomic_fetch_add_explicit(&ps_fork_generation, 1, memory_order_relaxed);
}

static void ps_watch_forks(void)
{
    pthread_atfork(NULL, NULL, ps_after_fork);
}

int ps_client_fail_forked(void)
{
    return ps_fail(PS_E_FORKED, "this handle was opened by the parent process: open a new client "
                                "after fork");
}

int ps_client_open(const ps_client_params_t *params, ps_client_t **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    pthread_once(&once, ps_watch_forks);
    ps_client_t *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a client");
    }
    int code = ps_shared_open(params->directory, 0, &client->shared);
    if (code == PS_OK) {
        code = ps_cnc_open(params->directory, 0, &client->cnc);
    }
    if (code == PS_OK &&
        (params->client_slot < 0 || params->client_slot >= client->shared->n_clients)) {
        code = ps_fail(PS_E_INVALID, "client slot %d is not in 0..%d", params->client_slot,
                       client->shared->n_clients - 1);
    }
    if (code != PS_OK) {
        ps_client_close(client);
        return code;
    }
    client->client_id = params->client_id;
    client->slot = params->client_slot;
    client->sender_wake_fd = params->sender_wake_fd;
    client->receiver_wake_fd = params->receiver_wake_fd;
    ps_slot_watch_client(client->shared, client->slot, params->watch_fd);
    client->generation = atomic_load_explicit(&ps_fork_generation, memory_order_relaxed);
    client->counters = ps_counter_capacity(client->cnc);
    client->barriers = ps_barrier_join();
    atomic_init(&client->learned_ns, LEARN_CLAMP_NS);
    *out = client;
    return PS_OK;
}

void ps_client_close(ps_client_t *client)
{
    if (client != NULL) {
        ps_cnc_close(client->cnc);
        ps_shared_close(client->shared);
        free(client);
    }
}

void ps_client_set_clock(ps_client_t *client, const int64_t *now_ns)
{
    client->clock_ns = now_ns;
    client->clock_offset_ns = PS_INVOKER_EPOCH_OFFSET_NS;
}

void ps_client_set_daemon_away(ps_client_t *client, int32_t away)
{
    atomic_store_explicit(&client->daemon_away, away != 0, memory_order_release);
}

/* ---- waiting --------------------------------------------------------------------------------- */

uint32_t ps_client_ticket(ps_client_t *client)
{
    return atomic_load_explicit(&client->shared->clients[client->slot].futex_word,
                                memory_order_seq_cst);
}

/* Updates the average duration of about the last four waits. */
static void learn(ps_client_t *client, int64_t waited_ns)
{
    const int64_t waited = waited_ns < LEARN_CLAMP_NS ? waited_ns : LEARN_CLAMP_NS;
    const int64_t before = atomic_load_explicit(&client->learned_ns, memory_order_relaxed);
    /* Threads that wait at the same time may overwrite each other's sample; the average stays
     * useful. */
    atomic_store_explicit(&client->learned_ns, before + (waited - before) / LEARN_PARTS,
                          memory_order_relaxed);
}

/* Waits awake for work that comes soon, because a sleep in the kernel costs both sides more. Yields
 * the processor meanwhile. True: the word moved. */
static bool stay_awake(ps_client_t *client, uint32_t ticket, int64_t began_ns, int64_t timeout_ns)
{
    const _Atomic uint32_t *word = &client->shared->clients[client->slot].futex_word;
    int64_t limit_ns = timeout_ns >= 0 && timeout_ns < AWAKE_NS ? timeout_ns : AWAKE_NS;
    if (atomic_load_explicit(&client->learned_ns, memory_order_relaxed) > WORTH_WAITING_NS ||
        atomic_load_explicit(&client->awaited, memory_order_relaxed) == (uint64_t)ticket + 1) {
        limit_ns = 0;
    }
    for (int64_t waited_ns = 0; waited_ns < limit_ns; waited_ns = ps_monotonic_ns() - began_ns) {
        if (atomic_load_explicit(word, memory_order_seq_cst) != ticket) {
            learn(client, waited_ns);
            return true;
        }
        (void)sched_yield();
    }
    return false;
}

int32_t ps_client_await(ps_client_t *client, uint32_t ticket)
{
    if (ps_client_forked(client)) {
        return 0;
    }
    const bool moved = stay_awake(client, ticket, ps_monotonic_ns(), -1);
    if (!moved) { /* the next sleep must not begin with the same wait */
        atomic_store_explicit(&client->awaited, (uint64_t)ticket + 1, memory_order_relaxed);
    }
    return moved;
}

int ps_client_sleep(ps_client_t *client, uint32_t ticket, int64_t timeout_ns)
{
    if (ps_client_forked(client)) {
        return ps_client_fail_forked();
    }
    ps_client_slot_t *slot = &client->shared->clients[client->slot];
    struct timespec timeout;
    struct timespec *limit = NULL;
    if (timeout_ns >= 0) {
        timeout.tv_sec = (time_t)(timeout_ns / INT64_C(1000000000));
        timeout.tv_nsec = (long)(timeout_ns % INT64_C(1000000000));
        limit = &timeout;
    }
    const int64_t began_ns = ps_monotonic_ns();
    if (stay_awake(client, ticket, began_ns, timeout_ns)) {
        return PS_OK;
    }
    /* Parked first, then the kernel compares the word: pairs with ps_wake_client_fenced, which
     * moves the word first and then checks waiting. */
    atomic_fetch_add_explicit(&slot->waiting, 1, memory_order_seq_cst);
    long result = 0;
    int cause = 0;
    if (atomic_load_explicit(&slot->futex_word, memory_order_seq_cst) == ticket) {
        result = syscall(SYS_futex, &slot->futex_word, FUTEX_WAIT, ticket, limit, NULL, 0);
        cause = errno;
    }
    atomic_fetch_sub_explicit(&slot->waiting, 1, memory_order_seq_cst);
    learn(client, ps_monotonic_ns() - began_ns);
    if (result == 0 || cause == EAGAIN) {
        return PS_OK;
    }
    if (cause == ETIMEDOUT) {
        return ps_fail(PS_E_TIMEOUT, "nothing happened for %lld ns", (long long)timeout_ns);
    }
    if (cause == EINTR) {
        return ps_fail(PS_E_INTERRUPTED, "a signal arrived while waiting");
    }
    return ps_fail(PS_E_SYSTEM, "cannot wait: %s", strerror(cause));
}

int32_t ps_client_watch(ps_client_t *client, uint32_t ticket, int64_t waited_ns)
{
    if (ps_client_forked(client)) {
        return ps_client_fail_forked();
    }
    if (atomic_load_explicit(&client->shared->watch_fds[client->slot], memory_order_relaxed) < 0) {
        return ps_fail(PS_E_INVALID, "the lease of this client has no eventfd to watch");
    }
    if (waited_ns >= 0) {
        learn(client, waited_ns);
    }
    ps_client_slot_t *slot = &client->shared->clients[client->slot];
    /* The flag first, then the word: pairs with ps_wake_client_fenced. */
    atomic_fetch_or_explicit(&slot->waiting, PS_WATCHED, memory_order_seq_cst);
    return atomic_load_explicit(&slot->futex_word, memory_order_seq_cst) != ticket;
}

void ps_client_wake(ps_client_t *client)
{
    ps_wake_client(client->shared, client->slot);
}

void ps_client_kick(int32_t fd)
{
    if (fd >= 0) {
        const uint64_t one = 1;
        const ssize_t written = write(fd, &one, sizeof one);
        (void)written; /* full: a wake-up is pending anyway */
    }
}

static void join_ready_set(const ps_client_t *client, int32_t publication_slot)
{
    const ps_shared_t *shared = client->shared;
    ps_shared_set_dirty(shared, publication_slot);
    if (atomic_load_explicit(&shared->driver->sender_parked, memory_order_seq_cst) != 0) {
        ps_client_kick(client->sender_wake_fd);
    }
}

void ps_client_mark_dirty(const ps_client_t *client, int32_t publication_slot)
{
    ps_publication_slot_t *slot = &client->shared->publications[publication_slot];
    /* All sequentially consistent: store (commit) then load (dirty, parked) against the sender's
     * store (dirty = 0, parked = 1) then load (log, bitmap). */
    const uint32_t dirty = atomic_load_explicit(&slot->dirty, memory_order_seq_cst);
    if (dirty == PS_DIRTY_DATA || dirty == PS_DIRTY_HOT ||
        atomic_exchange_explicit(&slot->dirty, PS_DIRTY_DATA, memory_order_seq_cst) !=
            PS_DIRTY_NOT) {
        return;
    }
    join_ready_set(client, publication_slot);
}

void ps_client_mark_dirty_again(const ps_client_t *client, int32_t publication_slot)
{
    const ps_publication_slot_t *slot = &client->shared->publications[publication_slot];
    ps_client_mark_dirty(client, publication_slot);
    if (atomic_load_explicit(&slot->dirty, memory_order_seq_cst) != PS_DIRTY_HOT) {
        join_ready_set(client, publication_slot);
    }
}

void ps_client_request_to_check(const ps_client_t *client, int32_t publication_slot)
{
    ps_publication_slot_t *slot = &client->shared->publications[publication_slot];
    uint32_t expected = PS_DIRTY_NOT;
    if (atomic_compare_exchange_strong_explicit(&slot->dirty, &expected, PS_DIRTY_CHECK,
                                                memory_order_seq_cst, memory_order_seq_cst)) {
        join_ready_set(client, publication_slot);
    }
}

/* ---- counters -------------------------------------------------------------------------------- */

int32_t ps_client_counter_count(const ps_client_t *client)
{
    return client->counters;
}

int64_t ps_client_counter_get(const ps_client_t *client, int32_t counter_id)
{
    return ps_counter_get(client->cnc, counter_id);
}

void ps_client_counter_set(ps_client_t *client, int32_t counter_id, int64_t value)
{
    ps_counter_set(client->cnc, counter_id, value);
}

int64_t ps_client_counter_add(ps_client_t *client, int32_t counter_id, int64_t delta)
{
    const int64_t before = atomic_fetch_add_explicit(ps_counter_cell(client->cnc, counter_id),
                                                     delta, memory_order_acq_rel);
    return (int64_t)((uint64_t)before + (uint64_t)delta);
}
