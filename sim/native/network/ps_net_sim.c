/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim.c: the simulator's network (ps_simnet.h): its hosts, and what is called on it.
 *
 * A datagram is copied once when sent.  For each host it reaches (ps_net_sim_route.c), the link
 * decides there and then whether and when it arrives (ps_net_sim_link.c); arrivals wait in
 * ps_net_sim_queue.c.
 */
#include <assert.h>
#include <stdlib.h>

#include "ps_net_sim.h"

enum { FIRST_HEAP_CAPACITY = 4096 };

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)

/* ---- the network ----------------------------------------------------------------------------- */

int ps_simnet_create(uint64_t seed, ps_simnet_t **out)
{
    ps_simnet_t *simnet = calloc(1, sizeof *simnet);
    if (simnet == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory");
    }
    simnet->heap_capacity = FIRST_HEAP_CAPACITY;
    simnet->heap = malloc(simnet->heap_capacity * sizeof *simnet->heap);
    if (simnet->heap == NULL) {
        free(simnet);
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory");
    }
    simnet->hash = FNV_OFFSET;
    ps_random_seed(&simnet->random, seed);
    *out = simnet;
    return PS_OK;
}

void ps_simnet_destroy(ps_simnet_t *simnet)
{
    if (simnet == NULL) {
        return;
    }
    for (size_t i = 0; i < simnet->heap_length; i++) {
        ps_sim_release(simnet->heap[i].packet);
    }
    for (int32_t i = 0; i < simnet->host_count; i++) {
        assert(simnet->hosts[i].sockets == NULL);
        for (int32_t j = 0; j < simnet->host_count; j++) {
            free(simnet->links[i][j].drops);
        }
    }
    if (simnet->observer != NULL) {
        simnet->observer->free(simnet->observer_context);
    }
    free(simnet->heap);
    free(simnet);
}

int32_t ps_simnet_add_host(ps_simnet_t *simnet)
{
    if (simnet->host_count == PS_SIM_MAX_HOSTS) {
        return ps_fail(PS_E_NO_SPACE, "simulator: at most %d hosts", PS_SIM_MAX_HOSTS);
    }
    int32_t index = simnet->host_count++;
    simnet->hosts[index].simnet = simnet;
    simnet->hosts[index].index = index;
    return index;
}

int ps_simnet_add_address(ps_simnet_t *simnet, int32_t host, const ps_addr_t *address)
{
    if (host < 0 || host >= simnet->host_count || (address->family != 4 && address->family != 6) ||
        ps_sim_is_any(address) || ps_sim_is_multicast(address)) {
        return ps_fail(PS_E_INVALID, "simulator: no such host or not a host's address");
    }
    for (int32_t i = 0; i < simnet->host_count; i++) {
        if (ps_sim_host_has(&simnet->hosts[i], address)) {
            return ps_fail(PS_E_ADDRESS_IN_USE, "simulator: host %d has that address", i);
        }
    }
    ps_sim_host_t *owner = &simnet->hosts[host];
    if (owner->address_count == PS_SIM_MAX_ADDRESSES) {
        return ps_fail(PS_E_NO_SPACE, "simulator: at most %d addresses a host",
                       PS_SIM_MAX_ADDRESSES);
    }
    owner->addresses[owner->address_count++] = *address;
    return PS_OK;
}

int ps_simnet_stuff(ps_simnet_t *simnet, int32_t host, int64_t until_ns, uint32_t short_ppm)
{
    if (host < 0 || host >= simnet->host_count || short_ppm > 1000000) {
        return ps_fail(PS_E_INVALID, "simulator: no host %d, or a chance of %u ppm", host,
                       short_ppm);
    }
    simnet->hosts[host].full_until_ns = until_ns;
    simnet->hosts[host].short_ppm = short_ppm;
    return PS_OK;
}

int ps_simnet_make_plain(ps_simnet_t *simnet, int32_t host)
{
    if (host < 0 || host >= simnet->host_count) {
        return ps_fail(PS_E_INVALID, "simulator: no host %d", host);
    }
    simnet->hosts[host].plain = true;
    return PS_OK;
}

int ps_simnet_inject(ps_simnet_t *simnet, int32_t host, const ps_addr_t *from, const ps_addr_t *to,
                     const uint8_t *data, uint32_t length, int64_t now_ns)
{
    if (host < 0 || host >= simnet->host_count || length == 0 ||
        length > PS_SIM_MAX_DATAGRAM_BYTES) {
        return ps_fail(PS_E_INVALID, "simulator: no host %d, or a datagram of %u bytes", host,
                       length);
    }
    ps_sim_packet_t *packet = malloc(sizeof *packet + length);
    if (packet == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a datagram");
    }
    simnet->injected = true;
    packet->references = 1;
    packet->length = length;
    packet->from = *from;
    packet->to = *to;
    memcpy(packet->data, data, length);
    simnet->stats.sent++;
    simnet->stats.bytes_sent += length;
    ps_sim_trace(simnet, now_ns, packet, host, PS_SIM_SENT);
    if (simnet->observer != NULL) {
        simnet->observer->sent(simnet->observer_context, host, PS_SOCKET_ANY, packet, now_ns);
    }
    const int result = ps_sim_route(&simnet->hosts[host], packet, now_ns);
    ps_sim_release(packet);
    return result;
}

ps_net_t *ps_simnet_host_net(ps_simnet_t *simnet, int32_t host)
{
    if (host < 0 || host >= simnet->host_count) {
        return NULL;
    }
    ps_net_t *net = calloc(1, sizeof *net);
    if (net != NULL) {
        net->ops = &PS_SIM_OPS;
        net->state = &simnet->hosts[host];
    }
    return net;
}

int32_t ps_simnet_advance(ps_simnet_t *simnet, int64_t now_ns)
{
    int32_t count = 0;
    while (simnet->heap_length > 0 && simnet->heap[0].time_ns <= now_ns) {
        ps_sim_arrival_t arrival = ps_sim_next_arrival(simnet);
        simnet->hosts[arrival.host].touched = true;
        ps_sim_arrive(&simnet->hosts[arrival.host], arrival.packet, arrival.time_ns);
        ps_sim_release(arrival.packet);
        count++;
    }
    return count;
}

void ps_simnet_statistics(const ps_simnet_t *simnet, ps_simnet_stats_t *out)
{
    *out = simnet->stats;
}
