/* SPDX-License-Identifier: Apache-2.0 */
#include "memnet.h"

#include <stdlib.h>
#include <string.h>

#include "penstock.h"

typedef struct item {
    struct item *next;
    ps_addr_t to, from;
    uint32_t length;
    uint8_t data[];
} item_t;

typedef struct queue {
    item_t *head, *tail;
    int32_t count;
} queue_t;

struct ps_socket {
    ps_socket_t *next;
    memnet_t *memnet;
    ps_addr_t local, remote;
    queue_t in;
};

struct memnet {
    ps_socket_t *sockets;
    queue_t sent;
    int32_t room, sends, joins, received;
    uint16_t next_port;
};

static void push(queue_t *queue, const ps_addr_t *to, const ps_addr_t *from, const void *data,
                 uint32_t length)
{
    item_t *item = malloc(sizeof(*item) + length);
    if (item == NULL) {
        abort();
    }
    *item = (item_t){ .to = *to, .from = *from, .length = length };
    memcpy(item->data, data, length);
    if (queue->tail != NULL) {
        queue->tail->next = item;
    } else {
        queue->head = item;
    }
    queue->tail = item;
    queue->count++;
}

static item_t *pop(queue_t *queue)
{
    item_t *item = queue->head;
    if (item != NULL) {
        queue->head = item->next;
        queue->tail = queue->head == NULL ? NULL : queue->tail;
        queue->count--;
    }
    return item;
}

static void clear(queue_t *queue)
{
    for (item_t *item = pop(queue); item != NULL; item = pop(queue)) {
        free(item);
    }
}

static int mem_open(void *state, const ps_socket_params_t *params, ps_socket_t **out)
{
    memnet_t *memnet = state;
    for (const ps_socket_t *s = memnet->sockets; s != NULL; s = s->next) {
        if (params->bind.port != 0 && s->local.port == params->bind.port && !params->reuse) {
            return ps_fail(PS_E_ADDRESS_IN_USE, "port %d is in use", (int)params->bind.port);
        }
    }
    ps_socket_t *socket = calloc(1, sizeof(*socket));
    if (socket == NULL) {
        abort();
    }
    socket->memnet = memnet;
    socket->local = params->bind;
    socket->local.port = params->bind.port != 0 ? params->bind.port : memnet->next_port++;
    socket->remote = params->connect;
    socket->next = memnet->sockets;
    memnet->sockets = socket;
    *out = socket;
    return PS_OK;
}

static void mem_close(ps_socket_t *socket)
{
    ps_socket_t **link = &socket->memnet->sockets;
    while (*link != socket) {
        link = &(*link)->next;
    }
    *link = socket->next;
    clear(&socket->in);
    free(socket);
}

static int mem_send(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams,
                    int32_t count, int64_t now_ns)
{
    memnet_t *memnet = socket->memnet;
    int32_t taken = 0;
    (void)now_ns;
    memnet->sends++;
    while (taken < count && memnet->room != 0) {
        push(&memnet->sent, to != NULL ? to : &socket->remote, &socket->local, dgrams[taken].data,
             dgrams[taken].length);
        taken++;
        memnet->room -= memnet->room > 0;
    }
    return taken;
}

static int mem_recv(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                    int64_t now_ns)
{
    int32_t seen = 0;
    while (seen < limit && socket->in.head != NULL) {
        item_t *item = pop(&socket->in);
        fn(context, item->data, item->length, &item->from, now_ns);
        free(item);
        seen++;
    }
    return seen;
}

static int mem_fd(const ps_socket_t *socket)
{
    (void)socket;
    return -1;
}

static void mem_local(const ps_socket_t *socket, ps_addr_t *out)
{
    *out = socket->local;
}

static int mem_reconnect(ps_socket_t *socket, const ps_addr_t *remote)
{
    socket->remote = *remote;
    return PS_OK;
}

/* As the kernel's transport does it. */
static uint32_t receive_direct(const ps_direct_t *direct, void *context, uint8_t *data,
                               uint32_t length, uint32_t segment, const ps_addr_t *from,
                               int64_t now_ns)
{
    ps_direct_range_t range;
    uint64_t first_word;
    if (!direct->prepare(context, &range) || length < 32) {
        return 0;
    }
    const uint32_t there = length < range.length ? length : range.length;
    const uint32_t whole = there == length ? length : there - there % segment;
    memcpy(&first_word, data, sizeof first_word);
    memcpy(range.at + 8, data + 8, there - 8);
    if (whole == 0) {
        return 0;
    }
    uint64_t next_word = 0;
    const uint32_t stays =
        direct->received(context, &range, first_word, whole, segment, from, now_ns, &next_word);
    if (stays > 0 && stays < there) { /* the rest comes from where it was received */
        memcpy(data + stays, range.at + stays, there - stays);
        memcpy(data + stays, &next_word, sizeof next_word);
    }
    return stays;
}

/* As GRO does: neighbours of one length from one sender, and one shorter last. */
static int mem_recv_runs(ps_socket_t *socket, int32_t limit, ps_on_run_fn fn,
                         const ps_direct_t *direct, void *context, int64_t now_ns)
{
    static uint8_t joined[65536];
    int32_t seen = 0;
    while (seen < limit && socket->in.head != NULL) {
        item_t *item = pop(&socket->in);
        const ps_addr_t from = item->from;
        const uint32_t segment = item->length;
        uint32_t length = segment;
        memcpy(joined, item->data, length);
        free(item);
        seen++;
        while (socket->memnet->joins && socket->in.head != NULL && length % segment == 0) {
            item = socket->in.head;
            if (item->length > segment || length + item->length > sizeof(joined) ||
                item->from.port != from.port || item->length == 0) {
                break;
            }
            memcpy(joined + length, item->data, item->length);
            length += item->length;
            free(pop(&socket->in));
            seen++;
        }
        const uint32_t stays = direct == NULL ? 0
                                              : receive_direct(direct, context, joined, length,
                                                               segment, &from, now_ns);
        if (stays < length || length == 0) {
            fn(context, joined + stays, length - stays,
               segment < length - stays ? segment : length - stays, &from, now_ns);
        }
        socket->memnet->received += stays > 0;
    }
    return seen;
}

static const ps_net_ops_t MEM_OPS = { mem_open,  mem_close,     mem_send,      mem_recv, mem_fd,
                                      mem_local, mem_reconnect, mem_recv_runs, NULL };

memnet_t *memnet_create(void)
{
    memnet_t *memnet = calloc(1, sizeof(*memnet));
    if (memnet == NULL) {
        abort();
    }
    memnet->room = -1;
    memnet->joins = 1;
    memnet->next_port = 50000;
    return memnet;
}

void memnet_destroy(memnet_t *memnet)
{
    clear(&memnet->sent);
    free(memnet);
}

ps_net_t *memnet_net(memnet_t *memnet)
{
    ps_net_t *net = calloc(1, sizeof(*net));
    if (net == NULL) {
        abort();
    }
    net->ops = &MEM_OPS;
    net->state = memnet;
    return net;
}

ps_driver_params_t memnet_driver_params(memnet_t *memnet, ps_cnc_t *cnc, ps_shared_t *shared)
{
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = memnet_net(memnet);
    params.cnc = cnc;
    params.shared = shared;
    params.threading = PS_INVOKER;
    return params;
}

int memnet_take(memnet_t *memnet, memnet_dgram_t *out)
{
    item_t *item = pop(&memnet->sent);
    if (item == NULL) {
        return 0;
    }
    out->to = item->to;
    out->from = item->from;
    out->length = item->length;
    memcpy(out->data, item->data, item->length);
    free(item);
    return 1;
}

int32_t memnet_pending(const memnet_t *memnet)
{
    return memnet->sent.count;
}

void memnet_discard(memnet_t *memnet)
{
    clear(&memnet->sent);
}

int memnet_inject(memnet_t *memnet, const ps_addr_t *to, const ps_addr_t *from, const void *data,
                  uint32_t length)
{
    for (ps_socket_t *socket = memnet->sockets; socket != NULL; socket = socket->next) {
        if (socket->local.port == to->port) {
            push(&socket->in, to, from, data, length);
            return 1;
        }
    }
    return 0;
}

void memnet_room(memnet_t *memnet, int32_t datagrams)
{
    memnet->room = datagrams;
}

int32_t memnet_direct(const memnet_t *memnet)
{
    return memnet->received;
}

void memnet_join(memnet_t *memnet, int32_t joins)
{
    memnet->joins = joins;
}

int32_t memnet_sends(const memnet_t *memnet)
{
    return memnet->sends;
}

ps_addr_t memnet_addr(uint8_t last, uint16_t port)
{
    const ps_addr_t address = { .family = 4, .port = port, .ip = { 10, 0, 0, last } };
    return address;
}
