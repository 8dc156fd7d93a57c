/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim.c: the simulator's network (ps_sim.h).
 *
 * A datagram is copied once when sent.  For each host it reaches, the link decides there and then
 * whether and when it arrives; arrivals wait in a binary heap ordered by (time, sequence), so that
 * ties are broken by the order of sending.
 */
#include <assert.h>
#include <stdlib.h>

#include "ps_net_sim.h"
#include "ps_sim_stamp.h"

enum { FIRST_HEAP_CAPACITY = 4096 };

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

/* ---- hosts and trace ------------------------------------------------------------------------- */

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

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * FNV_PRIME;
    return hash ^ (hash >> 29);
}

/* Eight bytes at a time: the hash is a good part of what a datagram costs. */
static void hash_bytes(ps_simnet_t *simnet, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint64_t hash = simnet->hash;
    for (; length >= sizeof(uint64_t); bytes += sizeof(uint64_t), length -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    for (size_t i = 0; i < length; i++) {
        hash = mix(hash, bytes[i]);
    }
    simnet->hash = hash;
}

static void hash_u64(ps_simnet_t *simnet, uint64_t value)
{
    simnet->hash = mix(simnet->hash, value);
}

static void hash_address(ps_simnet_t *simnet, const ps_addr_t *address)
{
    hash_u64(simnet, ((uint64_t)address->family << 16) | address->port);
    hash_bytes(simnet, address->ip, ps_sim_ip_length(address));
}

void ps_sim_trace(ps_simnet_t *simnet, int64_t time_ns, const ps_sim_packet_t *packet, int32_t host,
                  enum ps_sim_verdict verdict)
{
    hash_u64(simnet, (uint64_t)time_ns);
    hash_address(simnet, &packet->from);
    hash_address(simnet, &packet->to);
    hash_u64(simnet, packet->length);
    if (verdict == PS_SIM_SENT) {
        hash_bytes(simnet, packet->data, packet->length);
    }
    hash_u64(simnet, ((uint64_t)(uint32_t)host << 8) | (uint64_t)verdict);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static bool earlier(const ps_sim_arrival_t *a, const ps_sim_arrival_t *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

void ps_sim_release(ps_sim_packet_t *packet)
{
    assert(packet->references > 0);
    if (--packet->references == 0) {
        free(packet);
    }
}

static int heap_push(ps_simnet_t *simnet, ps_sim_arrival_t arrival)
{
    if (simnet->heap_length == simnet->heap_capacity) {
        size_t capacity = simnet->heap_capacity * 2;
        ps_sim_arrival_t *heap = realloc(simnet->heap, capacity * sizeof *heap);
        if (heap == NULL) {
            return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for %zu arrivals", capacity);
        }
        simnet->heap = heap;
        simnet->heap_capacity = capacity;
    }
    size_t at = simnet->heap_length++;
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!earlier(&arrival, &simnet->heap[parent])) {
            break;
        }
        simnet->heap[at] = simnet->heap[parent];
        at = parent;
    }
    simnet->heap[at] = arrival;
    return PS_OK;
}

static ps_sim_arrival_t heap_pop(ps_simnet_t *simnet)
{
    assert(simnet->heap_length > 0);
    ps_sim_arrival_t first = simnet->heap[0];
    ps_sim_arrival_t last = simnet->heap[--simnet->heap_length];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= simnet->heap_length) {
            break;
        }
        if (child + 1 < simnet->heap_length &&
            earlier(&simnet->heap[child + 1], &simnet->heap[child])) {
            child++;
        }
        if (!earlier(&simnet->heap[child], &last)) {
            break;
        }
        simnet->heap[at] = simnet->heap[child];
        at = child;
    }
    simnet->heap[at] = last;
    return first;
}

int ps_sim_schedule(ps_simnet_t *simnet, int64_t time_ns, int32_t host, ps_sim_packet_t *packet)
{
    int result = heap_push(simnet, (ps_sim_arrival_t){ time_ns, simnet->sequence, host, packet });
    if (result == PS_OK) {
        simnet->sequence++;
        packet->references++;
    }
    return result;
}

/* ---- sending --------------------------------------------------------------------------------- */

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
    ps_sim_stamps_free(simnet);
    free(simnet->watch);
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
    if (simnet->watch != NULL) {
        (void)ps_sim_watch_sent(simnet->watch, host, packet);
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

int64_t ps_simnet_next_event_ns(const ps_simnet_t *simnet)
{
    return simnet->heap_length > 0 ? simnet->heap[0].time_ns : INT64_MAX;
}

int32_t ps_simnet_advance(ps_simnet_t *simnet, int64_t now_ns)
{
    int32_t count = 0;
    while (simnet->heap_length > 0 && simnet->heap[0].time_ns <= now_ns) {
        ps_sim_arrival_t arrival = heap_pop(simnet);
        simnet->hosts[arrival.host].touched = true;
        ps_sim_arrive(&simnet->hosts[arrival.host], arrival.packet, arrival.time_ns);
        ps_sim_release(arrival.packet);
        count++;
    }
    return count;
}

uint64_t ps_simnet_trace_hash(const ps_simnet_t *simnet)
{
    return simnet->hash;
}

void ps_simnet_statistics(const ps_simnet_t *simnet, ps_simnet_stats_t *out)
{
    *out = simnet->stats;
}
