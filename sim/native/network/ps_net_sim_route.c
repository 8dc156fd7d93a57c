/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim_route.c: which hosts and sockets a datagram is for, by the kernel's rules: multicast
 * goes to every member, unicast to the best match.
 */
#include <stdlib.h>

#include "ps_net_sim.h"
#include "ps_wire.h"
#include "ps_wire_fields.h"

/* The host that a unicast datagram from `from` reaches, NULL: none. */
static ps_sim_host_t *host_of(ps_simnet_t *simnet, ps_sim_host_t *from, const ps_addr_t *address)
{
    if (ps_sim_host_has(from, address)) {
        return from;
    }
    for (int32_t i = 0; i < simnet->host_count; i++) {
        if (ps_sim_host_has(&simnet->hosts[i], address)) {
            return &simnet->hosts[i];
        }
    }
    return NULL;
}

static bool is_member(const ps_socket_t *socket, const ps_sim_packet_t *packet)
{
    return socket->params.group.family != 0 && ps_sim_same_ip(&socket->params.group, &packet->to) &&
           socket->local.port == packet->to.port &&
           (ps_sim_is_any(&socket->params.bind) ||
            ps_sim_same_ip(&socket->params.bind, &packet->to));
}

/* How well a unicast datagram fits: 0 not at all, 1 wildcard, 2 address, +2 connected. */
static int match(const ps_socket_t *socket, const ps_sim_packet_t *packet)
{
    if (socket->local.port != packet->to.port || socket->local.family != packet->to.family) {
        return 0;
    }
    if (!ps_sim_is_any(&socket->params.bind) &&
        !ps_sim_same_ip(&socket->params.bind, &packet->to)) {
        return 0;
    }
    int score = ps_sim_is_any(&socket->params.bind) ? 1 : 2;
    if (socket->params.connect.family != 0) {
        if (!ps_sim_same_ip(&socket->params.connect, &packet->from) ||
            socket->params.connect.port != packet->from.port) {
            return 0;
        }
        score += 2;
    }
    return score;
}

static void deliver(ps_socket_t *socket, ps_sim_packet_t *packet, int64_t time_ns)
{
    ps_simnet_t *simnet = socket->host->simnet;
    ps_sim_queued_t *entry = NULL;
    if (socket->queued_bytes + packet->length <= socket->limit_bytes) {
        entry = malloc(sizeof *entry);
    }
    if (entry == NULL) {
        simnet->stats.buffer_full++;
        ps_sim_trace(simnet, time_ns, packet, socket->host->index, PS_SIM_BUFFER_FULL);
        return;
    }
    packet->references++;
    *entry = (ps_sim_queued_t){ .packet = packet, .rx_ns = time_ns };
    if (socket->tail == NULL) {
        socket->head = entry;
    } else {
        socket->tail->next = entry;
    }
    socket->tail = entry;
    socket->queued_bytes += packet->length;
    simnet->stats.delivered++;
    ps_sim_trace(simnet, time_ns, packet, socket->host->index, PS_SIM_DELIVERED);
    if (simnet->observer != NULL) {
        simnet->observer->arrived(simnet->observer_context, socket->host->index, packet);
    }
}

/* Returns a copy of a SETUP or status message without its trailer. NULL: the datagram has no
 * trailer, or there is no memory. */
static ps_sim_packet_t *without_trailer(const ps_sim_packet_t *packet)
{
    uint16_t type = 0;
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK ||
        (type != PS_TYPE_SETUP && type != PS_TYPE_SM)) {
        return NULL;
    }
    const uint32_t length = (uint32_t)ps_get_i32(packet->data);
    ps_sim_packet_t *copy =
        length > 0 && length < packet->length ? malloc(sizeof *copy + length) : NULL;
    if (copy != NULL) {
        memcpy(copy, packet, sizeof *copy + length);
        copy->length = length;
        copy->references = 1;
    }
    return copy;
}

static void arrive(ps_sim_host_t *host, ps_sim_packet_t *packet, int64_t time_ns)
{
    bool multicast = ps_sim_is_multicast(&packet->to);
    ps_socket_t *best = NULL;
    int best_score = 0;
    int members = 0;
    for (ps_socket_t *socket = host->sockets; socket != NULL; socket = socket->next) {
        if (multicast) {
            if (is_member(socket, packet)) {
                members++;
                deliver(socket, packet, time_ns);
            }
        } else if (match(socket, packet) > best_score) {
            best_score = match(socket, packet);
            best = socket;
        }
    }
    if (best != NULL) {
        deliver(best, packet, time_ns);
    } else if (members == 0 && !multicast) {
        host->simnet->stats.unreachable++;
        ps_sim_trace(host->simnet, time_ns, packet, host->index, PS_SIM_UNREACHABLE);
    }
}

void ps_sim_arrive(ps_sim_host_t *host, ps_sim_packet_t *packet, int64_t time_ns)
{
    ps_sim_packet_t *plain = host->plain ? without_trailer(packet) : NULL;
    arrive(host, plain != NULL ? plain : packet, time_ns);
    if (plain != NULL) {
        ps_sim_release(plain);
    }
}

bool ps_sim_has_member(const ps_sim_host_t *host, const ps_sim_packet_t *packet)
{
    for (const ps_socket_t *socket = host->sockets; socket != NULL; socket = socket->next) {
        if (is_member(socket, packet)) {
            return true;
        }
    }
    return false;
}

int ps_sim_route(ps_sim_host_t *from, ps_sim_packet_t *packet, int64_t now_ns)
{
    ps_simnet_t *simnet = from->simnet;
    if (!ps_sim_is_multicast(&packet->to)) {
        ps_sim_host_t *to = host_of(simnet, from, &packet->to);
        if (to != NULL) {
            return ps_sim_put_on_link(from, to, packet, now_ns);
        }
        simnet->stats.unreachable++;
        ps_sim_trace(simnet, now_ns, packet, -1, PS_SIM_UNREACHABLE);
        return PS_OK;
    }
    for (int32_t i = 0; i < simnet->host_count; i++) {
        if (ps_sim_has_member(&simnet->hosts[i], packet)) {
            int result = ps_sim_put_on_link(from, &simnet->hosts[i], packet, now_ns);
            if (result != PS_OK) {
                return result;
            }
        }
    }
    return PS_OK;
}
