/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_net_impair.c: a network that loses, doubles, reorders, corrupts and delays, on purpose and by
 * seed. Each socket has its own generators, seeded by the order of opening. A run that sends the
 * same datagrams in the same order has the same faults.
 *
 * Delayed datagrams wait in a bounded heap ordered by (due time, arrival); if it is full, the new
 * datagram is lost, as in a router. A wrapped descriptor is an epoll set of the real one and a
 * timer, so that a parked thread wakes for what is due. */
#define _GNU_SOURCE 1

#include "ps_assert.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ps_error.h"
#include "ps_net.h"
#include "ps_networks.h"
#include "ps_random.h"

enum { WAITING = 512, SLOT_BYTES = 65536, NOBODY = -1 };
#define MILLION UINT64_C(1000000)
#define HOLD_NS INT64_C(20000000) /* longest time that a held datagram waits for another one */

typedef struct waiting {
    int64_t due_ns;
    uint64_t sequence;
    int32_t slot;
    uint32_t length;
    ps_addr_t from;
} waiting_t;

typedef struct impair_net {
    ps_net_t *inner;
    ps_impair_params_t params;
    uint64_t opened; /* conductor */
} impair_net_t;

/* One thread at a time, as any socket. */
typedef struct impair_socket {
    const ps_net_ops_t *ops;
    ps_socket_t *inner;
    ps_impair_params_t params;
    ps_random_t send_random;
    ps_random_t recv_random;
    waiting_t heap[WAITING];
    int32_t waiting;
    int32_t free_slots[WAITING];
    int32_t free_count;
    uint64_t sequence;
    waiting_t held; /* reordered: delivered after the next datagram; slot `NOBODY`: none */
    uint8_t *slots; /* WAITING x SLOT_BYTES, touched as used */
    int epoll_fd;
    int timer_fd;
    /* the receive call in progress */
    ps_on_datagram_fn fn;
    void *context;
    int64_t now_ns;
    int32_t delivered;
} impair_socket_t;

static bool happens(ps_random_t *random, uint32_t ppm)
{
    return ppm > 0 && ps_random_below(random, MILLION) < ppm;
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool is_before(const waiting_t *a, const waiting_t *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->sequence < b->sequence);
}

static void heap_push(impair_socket_t *socket, const waiting_t *item)
{
    PS_ASSERT(socket->waiting < WAITING);
    int32_t at = socket->waiting++;
    while (at > 0 && is_before(item, &socket->heap[(at - 1) / 2])) {
        socket->heap[at] = socket->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    socket->heap[at] = *item;
}

static waiting_t heap_pop(impair_socket_t *socket)
{
    PS_ASSERT(socket->waiting > 0);
    const waiting_t first = socket->heap[0];
    const waiting_t last = socket->heap[--socket->waiting];
    int32_t at = 0;
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= socket->waiting) {
            break;
        }
        if (child + 1 < socket->waiting &&
            is_before(&socket->heap[child + 1], &socket->heap[child])) {
            child++;
        }
        if (!is_before(&socket->heap[child], &last)) {
            break;
        }
        socket->heap[at] = socket->heap[child];
        at = child;
    }
    socket->heap[at] = last;
    return first;
}

static uint8_t *slot_of(const impair_socket_t *socket, int32_t slot)
{
    return socket->slots + (size_t)slot * SLOT_BYTES;
}

/* Copies a datagram into a free slot; false = none left. */
static bool keep(impair_socket_t *socket, const uint8_t *data, uint32_t length,
                 const ps_addr_t *from, int64_t due_ns, waiting_t *out)
{
    if (socket->free_count == 0 || length > SLOT_BYTES) {
        return false;
    }
    out->slot = socket->free_slots[--socket->free_count];
    out->length = length;
    out->from = *from;
    out->due_ns = due_ns;
    out->sequence = socket->sequence++;
    memcpy(slot_of(socket, out->slot), data, length);
    return true;
}

static void let_go(impair_socket_t *socket, int32_t slot)
{
    PS_ASSERT(socket->free_count < WAITING);
    socket->free_slots[socket->free_count++] = slot;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int64_t due_time(impair_socket_t *socket)
{
    const ps_impair_params_t *params = &socket->params;
    int64_t due_ns = socket->now_ns + params->delay_ns;
    if (params->jitter_ns > 0) {
        due_ns += (int64_t)ps_random_below(&socket->recv_random, (uint64_t)params->jitter_ns + 1);
    }
    return due_ns;
}

/* Puts the held datagram right behind what was just queued. */
static void release_held(impair_socket_t *socket, int64_t due_ns)
{
    if (socket->held.slot != NOBODY) {
        socket->held.due_ns = due_ns;
        socket->held.sequence = socket->sequence++;
        heap_push(socket, &socket->held);
        socket->held.slot = NOBODY;
    }
}

static void on_datagram(void *context, const uint8_t *data, uint32_t length, const ps_addr_t *from,
                        int64_t rx_ns)
{
    impair_socket_t *socket = context;
    const ps_impair_params_t *params = &socket->params;
    ps_random_t *random = &socket->recv_random;
    (void)rx_ns;
    if (happens(random, params->recv_loss_ppm)) {
        return;
    }
    const int copies = happens(random, params->duplicate_ppm) ? 2 : 1;
    const bool hold = socket->held.slot == NOBODY && happens(random, params->reorder_ppm);
    const bool corrupt = length > 0 && happens(random, params->corrupt_ppm);
    const uint64_t bit = corrupt ? ps_random_below(random, (uint64_t)length * 8) : 0;
    int64_t due_ns = socket->now_ns;
    for (int i = 0; i < copies; i++) {
        waiting_t item;
        due_ns = due_time(socket);
        if (!keep(socket, data, length, from, due_ns, &item)) {
            continue;
        }
        if (corrupt) {
            slot_of(socket, item.slot)[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        }
        if (hold && i == 0) {
            item.due_ns = socket->now_ns + HOLD_NS;
            socket->held = item;
        } else {
            heap_push(socket, &item);
        }
    }
    if (!hold) {
        release_held(socket, due_ns);
    }
}

static void deliver_due(impair_socket_t *socket)
{
    if (socket->held.slot != NOBODY && socket->held.due_ns <= socket->now_ns) {
        release_held(socket, socket->held.due_ns);
    }
    while (socket->waiting > 0 && socket->heap[0].due_ns <= socket->now_ns) {
        const waiting_t item = heap_pop(socket);
        socket->fn(socket->context, slot_of(socket, item.slot), item.length, &item.from,
                   item.due_ns);
        let_go(socket, item.slot);
        socket->delivered++;
    }
}

/* Arms the timer for what is due next; 0 disarms. */
static void arm(impair_socket_t *socket)
{
    if (socket->timer_fd < 0) {
        return;
    }
    int64_t due_ns = socket->waiting > 0 ? socket->heap[0].due_ns : INT64_MAX;
    if (socket->held.slot != NOBODY && socket->held.due_ns < due_ns) {
        due_ns = socket->held.due_ns;
    }
    struct itimerspec timer;
    memset(&timer, 0, sizeof timer);
    if (due_ns != INT64_MAX) {
        timer.it_value.tv_sec = due_ns / 1000000000;
        timer.it_value.tv_nsec = due_ns % 1000000000 + 1;
        if (timer.it_value.tv_nsec > 999999999) {
            timer.it_value.tv_nsec = 999999999;
        }
    }
    const int failed = timerfd_settime(socket->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
    PS_ASSERT(failed == 0);
    (void)failed;
}

static int impair_recv(ps_socket_t *handle, int32_t limit, ps_on_datagram_fn fn, void *context,
                       int64_t now_ns)
{
    impair_socket_t *socket = (impair_socket_t *)(void *)handle;
    socket->fn = fn;
    socket->context = context;
    socket->now_ns = now_ns;
    socket->delivered = 0;
    const int taken = socket->ops->recv(socket->inner, limit, on_datagram, socket, now_ns);
    deliver_due(socket);
    if (taken > 0 || socket->delivered > 0) {
        arm(socket);
    }
    return taken < 0 && socket->delivered == 0 ? taken : socket->delivered;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Lost datagrams count as sent. Runs between losses stay together for GSO. */
static int impair_send(ps_socket_t *handle, const ps_addr_t *to, const ps_dgram_t *dgrams,
                       int32_t count, int64_t now_ns)
{
    impair_socket_t *socket = (impair_socket_t *)(void *)handle;
    int32_t done = 0;
    while (done < count) {
        int32_t run = 0;
        bool lost = false;
        while (done + run < count && !lost) {
            lost = happens(&socket->send_random, socket->params.send_loss_ppm);
            run += lost ? 0 : 1;
        }
        if (run > 0) {
            const int sent = socket->ops->send(socket->inner, to, dgrams + done, run, now_ns);
            if (sent < 0) {
                return done > 0 ? done : sent;
            }
            done += sent;
            if (sent < run) {
                return done;
            }
        }
        done += lost ? 1 : 0;
    }
    return done;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void impair_close(ps_socket_t *handle)
{
    impair_socket_t *socket = (impair_socket_t *)(void *)handle;
    if (socket == NULL) {
        return;
    }
    if (socket->epoll_fd >= 0) {
        (void)close(socket->epoll_fd);
    }
    if (socket->timer_fd >= 0) {
        (void)close(socket->timer_fd);
    }
    if (socket->inner != NULL) {
        socket->ops->close(socket->inner);
    }
    if (socket->slots != NULL) {
        (void)munmap(socket->slots, (size_t)WAITING * SLOT_BYTES);
    }
    free(socket);
}

static int add_to_epoll(const impair_socket_t *socket, int fd)
{
    struct epoll_event interest = { .events = EPOLLIN, .data = { .fd = fd } };
    return epoll_ctl(socket->epoll_fd, EPOLL_CTL_ADD, fd, &interest);
}

static int wrap_descriptor(impair_socket_t *socket)
{
    const int fd = socket->ops->fd(socket->inner);
    if (fd < 0) {
        return PS_OK; /* a simulated socket: the simulator steps through time */
    }
    socket->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    socket->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (socket->epoll_fd < 0 || socket->timer_fd < 0 || add_to_epoll(socket, fd) != 0 ||
        add_to_epoll(socket, socket->timer_fd) != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot make descriptors: %s", strerror(errno));
    }
    return PS_OK;
}

static int impair_open(void *state, const ps_socket_params_t *params, ps_socket_t **out)
{
    impair_net_t *net = state;
    *out = NULL;
    impair_socket_t *socket = calloc(1, sizeof *socket);
    if (socket == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a socket");
    }
    socket->ops = net->inner->ops;
    socket->params = net->params;
    socket->epoll_fd = -1;
    socket->timer_fd = -1;
    socket->held.slot = NOBODY;
    const uint64_t index = net->opened++;
    ps_random_seed(&socket->send_random, net->params.seed + 2 * index);
    ps_random_seed(&socket->recv_random, net->params.seed + 2 * index + 1);
    for (int32_t i = 0; i < WAITING; i++) {
        socket->free_slots[socket->free_count++] = WAITING - 1 - i;
    }
    void *slots = mmap(NULL, (size_t)WAITING * SLOT_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int result =
        slots == MAP_FAILED ? ps_fail(PS_E_NO_MEMORY, "no memory: %s", strerror(errno)) : PS_OK;
    if (result == PS_OK) {
        socket->slots = slots;
        result = socket->ops->open(net->inner->state, params, &socket->inner);
    }
    if (result == PS_OK) {
        result = wrap_descriptor(socket);
    }
    if (result != PS_OK) {
        impair_close((ps_socket_t *)(void *)socket);
        return result;
    }
    *out = (ps_socket_t *)(void *)socket;
    return PS_OK;
}

static int impair_fd(const ps_socket_t *handle)
{
    return ((const impair_socket_t *)(const void *)handle)->epoll_fd;
}

static void impair_local(const ps_socket_t *handle, ps_addr_t *out)
{
    const impair_socket_t *socket = (const impair_socket_t *)(const void *)handle;
    socket->ops->local(socket->inner, out);
}

static int impair_reconnect(ps_socket_t *handle, const ps_addr_t *remote)
{
    impair_socket_t *socket = (impair_socket_t *)(void *)handle;
    return socket->ops->reconnect(socket->inner, remote);
}

static int impair_fit_recv_buffer(ps_socket_t *handle, int32_t bytes, int32_t *got)
{
    impair_socket_t *socket = (impair_socket_t *)(void *)handle;
    return socket->ops->fit_recv_buffer(socket->inner, bytes, got);
}

static void impair_free(void *state)
{
    impair_net_t *net = state;
    ps_net_free(net->inner);
    free(net);
}

static const ps_net_ops_t IMPAIR_OPS = {
    .open = impair_open,
    .close = impair_close,
    .send = impair_send,
    .recv = impair_recv,
    .fd = impair_fd,
    .local = impair_local,
    .reconnect = impair_reconnect,
    .fit_recv_buffer = impair_fit_recv_buffer,
};

ps_net_t *ps_net_impair(ps_net_t *inner, const ps_impair_params_t *params)
{
    PS_ASSERT(inner != NULL && params != NULL);
    const uint32_t ppm[] = { params->send_loss_ppm, params->recv_loss_ppm, params->duplicate_ppm,
                             params->reorder_ppm, params->corrupt_ppm };
    for (size_t i = 0; i < sizeof ppm / sizeof ppm[0]; i++) {
        if (ppm[i] > MILLION) {
            (void)ps_fail(PS_E_INVALID, "a probability of %u ppm is above one million", ppm[i]);
            return NULL;
        }
    }
    if (params->delay_ns < 0 || params->jitter_ns < 0) {
        (void)ps_fail(PS_E_INVALID, "a delay or jitter below zero");
        return NULL;
    }
    ps_net_t *net = calloc(1, sizeof *net);
    impair_net_t *state = calloc(1, sizeof *state);
    if (net == NULL || state == NULL) {
        free(net);
        free(state);
        (void)ps_fail(PS_E_NO_MEMORY, "no memory for a network");
        return NULL;
    }
    state->inner = inner;
    state->params = *params;
    net->ops = &IMPAIR_OPS;
    net->state = state;
    net->free_state = impair_free;
    return net;
}
