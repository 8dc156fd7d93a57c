/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim_socket.c: sockets of the simulated network: the transport's table of operations.
 */
#include <assert.h>
#include <stdlib.h>

#include "ps_net_sim.h"
#include "ps_wire.h"

enum {
    DEFAULT_RCVBUF_BYTES = 212992, /* Linux's */
    EPHEMERAL_LOW = 32768,
    EPHEMERAL_HIGH = 60999,
    RUN_DATAGRAMS = 64, /* of one joined buffer, as of Linux's GRO */
    PPM = 1000000
};

/* ---- sending --------------------------------------------------------------------------------- */

/* The address a datagram carries as its source. */
static ps_addr_t source_of(const ps_socket_t *socket, const ps_addr_t *to)
{
    ps_addr_t source = socket->local;
    if (!ps_sim_is_any(&source) && !ps_sim_is_multicast(&source)) {
        return source;
    }
    const ps_sim_host_t *host = socket->host;
    source.family = to->family;
    memset(source.ip, 0, sizeof source.ip);
    if (ps_sim_is_loopback(to)) {
        memcpy(source.ip, to->ip, sizeof source.ip);
        return source;
    }
    const ps_addr_t *wanted = &socket->params.interface_addr;
    for (int32_t i = 0; i < host->address_count; i++) {
        const ps_addr_t *address = &host->addresses[i];
        if (address->family == to->family &&
            (wanted->family != to->family || ps_sim_is_any(wanted) ||
             ps_sim_same_ip(wanted, address))) {
            memcpy(source.ip, address->ip, sizeof source.ip);
            break;
        }
    }
    return source;
}

static enum ps_socket_role role_of(const ps_socket_t *socket)
{
    return (enum ps_socket_role)socket->params.role;
}

static void report_sent(const ps_socket_t *socket, const ps_sim_packet_t *packet, int64_t now_ns)
{
    ps_simnet_t *simnet = socket->host->simnet;
    if (simnet->observer != NULL) {
        simnet->observer->sent(simnet->observer_context, socket->host->index, role_of(socket),
                               packet, now_ns);
    }
}

/* Returns the number of datagrams, of count, for which the kernel has room. */
static int32_t room_for(ps_socket_t *socket, int32_t count, int64_t now_ns)
{
    ps_sim_host_t *host = socket->host;
    if (now_ns < host->full_until_ns) {
        return 0;
    }
    if (host->short_ppm > 0 && ps_random_below(&host->simnet->random, PPM) < host->short_ppm) {
        return (int32_t)ps_random_below(&host->simnet->random, (uint64_t)count);
    }
    return count;
}

static void refuse(ps_socket_t *socket, const ps_dgram_t *dgrams, int32_t count, int64_t now_ns)
{
    ps_simnet_t *simnet = socket->host->simnet;
    simnet->stats.refused += (uint64_t)count;
    if (count > 0 && simnet->observer != NULL) {
        simnet->observer->refused(simnet->observer_context, socket->host->index, dgrams, count,
                                  now_ns);
    }
}

static int sim_send(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams,
                    int32_t count, int64_t now_ns)
{
    ps_simnet_t *simnet = socket->host->simnet;
    const ps_addr_t *target = to != NULL ? to : &socket->params.connect;
    if (target->family == 0) {
        return ps_fail(PS_E_INVALID, "simulator: send without an address on an unconnected socket");
    }
    ps_addr_t source = source_of(socket, target);
    const int32_t room = room_for(socket, count, now_ns);
    refuse(socket, dgrams + room, count - room, now_ns);
    for (int32_t i = 0; i < room; i++) {
        uint32_t length = dgrams[i].length;
        if (length == 0 || length > PS_SIM_MAX_DATAGRAM_BYTES) {
            return i > 0 ? i : ps_fail(PS_E_INVALID, "simulator: datagram of %u bytes", length);
        }
        ps_sim_packet_t *packet = malloc(sizeof *packet + length);
        if (packet == NULL) {
            return i > 0 ? i : ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a datagram");
        }
        packet->references = 1;
        packet->length = length;
        packet->from = source;
        packet->to = *target;
        memcpy(packet->data, dgrams[i].data, length);
        simnet->stats.sent++;
        simnet->stats.bytes_sent += length;
        ps_sim_trace(simnet, now_ns, packet, socket->host->index, PS_SIM_SENT);
        report_sent(socket, packet, now_ns);
        int result = ps_sim_route(socket->host, packet, now_ns);
        ps_sim_release(packet);
        if (result != PS_OK) {
            return i > 0 ? i : result;
        }
    }
    return room;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static bool overlaps(const ps_socket_t *socket, const ps_addr_t *bind, uint16_t port)
{
    const ps_addr_t *bound = &socket->params.bind;
    return socket->local.port == port && socket->local.family == bind->family &&
           (ps_sim_is_any(bound) || ps_sim_is_any(bind) || ps_sim_same_ip(bound, bind));
}

static bool port_taken(const ps_sim_host_t *host, const ps_socket_params_t *params, uint16_t port)
{
    for (const ps_socket_t *socket = host->sockets; socket != NULL; socket = socket->next) {
        if (overlaps(socket, &params->bind, port) && !(socket->params.reuse && params->reuse)) {
            return true;
        }
    }
    return false;
}

/* Port for port 0: the range's next free one.  0: none left. */
static uint16_t choose_port(ps_sim_host_t *host, const ps_socket_params_t *params)
{
    uint16_t low = params->port_low != 0 ? params->port_low : EPHEMERAL_LOW;
    uint16_t high = params->port_high != 0 ? params->port_high : EPHEMERAL_HIGH;
    uint16_t start = host->next_port >= low && host->next_port <= high ? host->next_port : low;
    uint32_t span = (uint32_t)(high - low) + 1u;
    for (uint32_t i = 0; i < span; i++) {
        uint16_t port = (uint16_t)(low + (start - low + i) % span);
        if (!port_taken(host, params, port)) {
            host->next_port = (uint16_t)(port + 1u);
            return port;
        }
    }
    return 0;
}

static int check_params(const ps_sim_host_t *host, const ps_socket_params_t *params)
{
    const ps_addr_t *bind = &params->bind;
    const ps_addr_t *interface = &params->interface_addr;
    if (bind->family != 4 && bind->family != 6) {
        return ps_fail(PS_E_INVALID, "simulator: bind address has no family");
    }
    if (!ps_sim_is_any(bind) && !ps_sim_is_multicast(bind) && !ps_sim_host_has(host, bind)) {
        return ps_fail(PS_E_NO_INTERFACE, "simulator: host %d lacks the bind address", host->index);
    }
    if (!ps_sim_is_any(interface) && !ps_sim_host_has(host, interface)) {
        return ps_fail(PS_E_NO_INTERFACE, "simulator: host %d lacks the interface", host->index);
    }
    return PS_OK;
}

static int sim_open(void *net, const ps_socket_params_t *params, ps_socket_t **out)
{
    ps_sim_host_t *host = net;
    int result = check_params(host, params);
    if (result != PS_OK) {
        return result;
    }
    uint16_t port = params->bind.port;
    if (port == 0) {
        port = choose_port(host, params);
    }
    if (port == 0 || port_taken(host, params, port)) {
        return ps_fail(PS_E_ADDRESS_IN_USE, "simulator: port %u of host %d is in use",
                       params->bind.port, host->index);
    }
    ps_socket_t *socket = calloc(1, sizeof *socket);
    if (socket == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a socket");
    }
    socket->host = host;
    socket->params = *params;
    socket->local = params->bind;
    socket->local.port = port;
    socket->limit_bytes = params->rcvbuf_bytes > 0 ? params->rcvbuf_bytes : DEFAULT_RCVBUF_BYTES;
    if (ps_sim_is_any(&socket->local) && params->connect.family != 0) {
        socket->local = source_of(socket, &params->connect);
        socket->params.bind = socket->local;
    }
    ps_socket_t **end = &host->sockets;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = socket;
    *out = socket;
    return PS_OK;
}

static ps_sim_queued_t *take(ps_socket_t *socket)
{
    ps_sim_queued_t *entry = socket->head;
    if (entry != NULL) {
        socket->head = entry->next;
        socket->queued_bytes -= entry->packet->length;
        if (socket->head == NULL) {
            socket->tail = NULL;
        }
    }
    return entry;
}

static void sim_close(ps_socket_t *socket)
{
    ps_socket_t **at = &socket->host->sockets;
    while (*at != socket) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = socket->next;
    for (ps_sim_queued_t *entry = take(socket); entry != NULL; entry = take(socket)) {
        ps_sim_release(entry->packet);
        free(entry);
    }
    free(socket);
}

static void report_read(const ps_socket_t *socket, const ps_sim_queued_t *entry, int64_t now_ns)
{
    const ps_simnet_t *simnet = socket->host->simnet;
    assert(entry->rx_ns <= now_ns);
    if (simnet->observer != NULL) {
        simnet->observer->read(simnet->observer_context, socket->host->index, role_of(socket),
                               entry->packet, entry->rx_ns, now_ns);
    }
}

static int sim_recv(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                    int64_t now_ns)
{
    int32_t count = 0;
    while (count < limit) {
        ps_sim_queued_t *entry = take(socket);
        if (entry == NULL) {
            break;
        }
        report_read(socket, entry, now_ns);
        fn(context, entry->packet->data, entry->packet->length, &entry->packet->from, entry->rx_ns);
        ps_sim_release(entry->packet);
        free(entry);
        count++;
    }
    return count;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Stores the position at which the datagram begins; returns false if it has no data. */
static bool is_data(const ps_sim_packet_t *packet, ps_data_t *data)
{
    uint16_t type = 0;
    return ps_wire_check(packet->data, packet->length, &type) == PS_WIRE_OK &&
           type == PS_TYPE_DATA && ps_wire_data(packet->data, packet->length, data) == PS_WIRE_OK &&
           !data->is_heartbeat;
}

/* Whether a kernel would join `next` to a run of `length` bytes that begins with `first`: as long,
 * or shorter and the last, from the same sender.  Only what arrived together and follows in its
 * stream is joined here: what an observer sees one by one is then what is taken at once. */
static bool joins(const ps_sim_queued_t *first, const ps_sim_queued_t *next, uint32_t length)
{
    ps_data_t a, b;
    const uint32_t segment = first->packet->length;
    return length % segment == 0 && next->packet->length <= segment &&
           length + next->packet->length <= PS_SIM_MAX_DATAGRAM_BYTES &&
           next->rx_ns == first->rx_ns &&
           ps_sim_same_ip(&next->packet->from, &first->packet->from) &&
           next->packet->from.port == first->packet->from.port && is_data(first->packet, &a) &&
           is_data(next->packet, &b) && a.session_id == b.session_id &&
           a.stream_id == b.stream_id && a.term_id == b.term_id &&
           b.term_offset == a.term_offset + (int32_t)length;
}

/* Takes the next datagram, and those that come with it; joined: in one piece.  Returns how many. */
static int32_t take_run(ps_socket_t *socket, int32_t limit, uint8_t *joined, uint32_t *length,
                        ps_sim_queued_t *first, int64_t now_ns)
{
    const ps_simnet_t *simnet = socket->host->simnet;
    int32_t count = 0;
    while (count < limit && socket->head != NULL) {
        ps_sim_queued_t *entry = socket->head;
        if (count > 0 && !joins(first, entry, *length)) {
            break;
        }
        (void)take(socket);
        if (count == 0 && simnet->observer != NULL &&
            !simnet->observer->may_join(simnet->observer_context, socket->host->index,
                                        entry->packet)) {
            limit = 1;
        }
        report_read(socket, entry, now_ns);
        memcpy(joined + *length, entry->packet->data, entry->packet->length);
        *length += entry->packet->length;
        if (count++ == 0) {
            *first = *entry;
        } else {
            ps_sim_release(entry->packet);
        }
        free(entry);
    }
    return count;
}

/* Acts like a kernel that receives into the range: all bytes except the first eight are stored
 * before their stream is known. Returns the number of bytes that stay. */
static uint32_t settle(const ps_direct_t *direct, void *context, const ps_direct_range_t *range,
                       uint8_t *data, uint32_t length, const ps_sim_queued_t *first)
{
    const uint32_t segment = first->packet->length;
    const uint32_t there = length < range->length ? length : range->length;
    const uint32_t whole = there == length ? length : there - there % segment;
    uint64_t first_word;
    if (there <= sizeof first_word) {
        return 0;
    }
    memcpy(&first_word, data, sizeof first_word);
    memcpy(range->at + sizeof first_word, data + sizeof first_word, there - sizeof first_word);
    if (whole == 0) {
        return 0;
    }
    uint64_t next_word = 0;
    const uint32_t stays = direct->received(context, range, first_word, whole, segment,
                                            &first->packet->from, first->rx_ns, &next_word);
    if (stays > 0 && stays < there) { /* the rest comes from where it was received */
        memcpy(data + stays, range->at + stays, there - stays);
        memcpy(data + stays, &next_word, sizeof next_word);
    }
    return stays;
}

static int sim_recv_runs(ps_socket_t *socket, int32_t limit, ps_on_run_fn fn,
                         const ps_direct_t *direct, void *context, int64_t now_ns)
{
    uint8_t joined[PS_SIM_MAX_DATAGRAM_BYTES];
    int32_t count = 0;
    while (count < limit) {
        ps_direct_range_t range;
        ps_sim_queued_t first = { .packet = NULL };
        uint32_t length = 0;
        const bool is_direct = direct != NULL && direct->prepare(context, &range);
        const int32_t most = limit - count < RUN_DATAGRAMS ? limit - count : RUN_DATAGRAMS;
        const int32_t taken = take_run(socket, most, joined, &length, &first, now_ns);
        if (taken == 0) {
            break;
        }
        const uint32_t done =
            is_direct ? settle(direct, context, &range, joined, length, &first) : 0;
        const uint32_t rest = length - done;
        const uint32_t segment = first.packet->length;
        if (rest > 0 || length == 0) {
            fn(context, joined + done, rest, segment < rest ? segment : rest, &first.packet->from,
               first.rx_ns);
        }
        ps_sim_release(first.packet);
        count += taken;
    }
    return count;
}

static int sim_fd(const ps_socket_t *socket)
{
    (void)socket;
    return -1;
}

static void sim_local(const ps_socket_t *socket, ps_addr_t *out)
{
    *out = socket->local;
}

static int sim_reconnect(ps_socket_t *socket, const ps_addr_t *remote)
{
    if (remote->family != socket->local.family) {
        return ps_fail(PS_E_INVALID, "simulator: peer of another address family");
    }
    socket->params.connect = *remote;
    return PS_OK;
}

/* The simulated kernel grants what its machine's `rcvbuf` states, whatever is asked. */
static int sim_fit_recv_buffer(ps_socket_t *socket, int32_t bytes, int32_t *got)
{
    (void)bytes;
    *got = socket->limit_bytes;
    return PS_OK;
}

const ps_net_ops_t PS_SIM_OPS = { .open = sim_open,
                                  .close = sim_close,
                                  .send = sim_send,
                                  .recv = sim_recv,
                                  .fd = sim_fd,
                                  .local = sim_local,
                                  .reconnect = sim_reconnect,
                                  .recv_runs = sim_recv_runs,
                                  .fit_recv_buffer = sim_fit_recv_buffer };
