/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim_queue.c: datagrams on their way, in a binary heap ordered by (time, sequence), so that
 * ties are broken by the order of sending; and the hash of the trace.
 */
#include <assert.h>
#include <stdlib.h>

#include "ps_net_sim.h"

#define FNV_PRIME UINT64_C(0x100000001b3)

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

uint64_t ps_simnet_trace_hash(const ps_simnet_t *simnet)
{
    return simnet->hash;
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

ps_sim_arrival_t ps_sim_next_arrival(ps_simnet_t *simnet)
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

int64_t ps_simnet_next_event_ns(const ps_simnet_t *simnet)
{
    return simnet->heap_length > 0 ? simnet->heap[0].time_ns : INT64_MAX;
}
