/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim_link.c: what a link of the simulated network does to a datagram: loses it (by list, by
 * chance, in bursts), has no room for it, damages, delays, holds back or repeats it.
 */
#include <assert.h>
#include <stdlib.h>

#include "ps_net_sim.h"

enum { PPM = 1000000 };

#define NS_PER_S         INT64_C(1000000000)
#define STRANGER_MOST_NS UINT64_C(50000000)

/* A burst is counted in datagrams, but what disturbs a real link goes by: on a quiet one, where one
 * passes in a second, a burst would otherwise outlast any liveness timeout. */
#define BURST_MOST_NS (2 * NS_PER_S)

static bool happens(ps_simnet_t *simnet, uint32_t ppm)
{
    return ppm > 0 && ps_random_below(&simnet->random, PPM) < ppm;
}

static bool is_listed(const ps_sim_link_state_t *link, uint64_t number)
{
    for (int32_t i = 0; i < link->drop_count; i++) {
        if (link->drops[i] == number) {
            return true;
        }
    }
    return false;
}

static bool stays_bad(ps_simnet_t *simnet, const ps_sim_link_state_t *link, int64_t now_ns)
{
    return now_ns - link->bad_since_ns < BURST_MOST_NS &&
           !happens(simnet, link->params.burst_leave_ppm);
}

static bool is_lost(ps_simnet_t *simnet, ps_sim_link_state_t *link, int64_t now_ns)
{
    const ps_simnet_link_t *params = &link->params;
    if (is_listed(link, link->datagrams++)) {
        return true;
    }
    if (params->burst_enter_ppm > 0) {
        const bool was_bad = link->bad;
        link->bad =
            was_bad ? stays_bad(simnet, link, now_ns) : happens(simnet, params->burst_enter_ppm);
        link->bad_since_ns = was_bad ? link->bad_since_ns : now_ns;
        if (link->bad && happens(simnet, params->burst_loss_ppm)) {
            return true;
        }
    }
    return happens(simnet, params->loss_ppm);
}

static int64_t transmit_ns(const ps_simnet_link_t *link, uint32_t length)
{
    return link->bandwidth_bytes_per_s == 0
               ? 0
               : (int64_t)length * NS_PER_S / link->bandwidth_bytes_per_s;
}

/* Takes the link's time for the datagram.  When its last bit has left, -1: the queue is full. */
static int64_t transmit(ps_sim_link_state_t *link, uint32_t length, int64_t now_ns)
{
    const ps_simnet_link_t *params = &link->params;
    int64_t start_ns = link->busy_until_ns > now_ns ? link->busy_until_ns : now_ns;
    int64_t waiting_bytes =
        params->bandwidth_bytes_per_s == 0
            ? 0
            : (start_ns - now_ns) / 1000 * params->bandwidth_bytes_per_s / 1000000;
    if (params->queue_bytes > 0 && waiting_bytes + length > params->queue_bytes) {
        return -1;
    }
    link->busy_until_ns = start_ns + transmit_ns(params, length);
    return link->busy_until_ns;
}

static int64_t journey_ns(ps_simnet_t *simnet, const ps_simnet_link_t *params)
{
    int64_t journey = params->delay_ns;
    if (params->jitter_ns > 0) {
        journey += (int64_t)ps_random_below(&simnet->random, (uint64_t)params->jitter_ns + 1);
    }
    if (happens(simnet, params->reorder_ppm)) {
        simnet->stats.reordered++;
        journey += params->reorder_ns;
    }
    return journey;
}

/* A copy with one bit flipped, for one receiver only; NULL: no memory. */
static ps_sim_packet_t *damaged(ps_simnet_t *simnet, const ps_sim_packet_t *packet)
{
    const size_t size = sizeof *packet + packet->length;
    ps_sim_packet_t *copy = malloc(size);
    if (copy != NULL) {
        memcpy(copy, packet, size);
        copy->references = 1;
        const uint64_t bit = ps_random_below(&simnet->random, (uint64_t)packet->length * 8);
        copy->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    return copy;
}

/* A stranger repeats it a while later. */
static int repeat_forged(ps_sim_host_t *to, const ps_simnet_link_t *link,
                         const ps_sim_packet_t *packet, int64_t left_ns)
{
    ps_simnet_t *simnet = to->simnet;
    if (!happens(simnet, link->stranger_ppm)) {
        return PS_OK;
    }
    ps_sim_packet_t *copy = ps_sim_forge(simnet, packet);
    if (copy == NULL) {
        return PS_OK;
    }
    const int64_t later_ns = (int64_t)ps_random_below(&simnet->random, STRANGER_MOST_NS);
    const int result = ps_sim_schedule(
        simnet, left_ns + link->delay_ns + link->jitter_ns + link->reorder_ns + later_ns, to->index,
        copy);
    simnet->stats.forged++;
    ps_sim_release(copy);
    return result;
}

static int depart(ps_sim_host_t *to, ps_sim_link_state_t *link, ps_sim_packet_t *packet,
                  int64_t left_ns)
{
    ps_simnet_t *simnet = to->simnet;
    const bool twice = happens(simnet, link->params.duplicate_ppm);
    int result =
        ps_sim_schedule(simnet, left_ns + journey_ns(simnet, &link->params), to->index, packet);
    if (result == PS_OK && twice) {
        simnet->stats.duplicated++;
        ps_sim_trace(simnet, left_ns, packet, to->index, PS_SIM_DUPLICATED);
        result =
            ps_sim_schedule(simnet, left_ns + journey_ns(simnet, &link->params), to->index, packet);
    }
    return result == PS_OK ? repeat_forged(to, &link->params, packet, left_ns) : result;
}

int ps_sim_put_on_link(ps_sim_host_t *from, ps_sim_host_t *to, ps_sim_packet_t *packet,
                       int64_t now_ns)
{
    ps_simnet_t *simnet = from->simnet;
    ps_sim_link_state_t *link = &simnet->links[from->index][to->index];
    if (from == to) { /* the same host is reached at once */
        return ps_sim_schedule(simnet, now_ns, to->index, packet);
    }
    if (simnet->calm_port != 0 &&
        (packet->to.port == simnet->calm_port || packet->from.port == simnet->calm_port)) {
        return ps_sim_schedule(simnet, now_ns + simnet->calm_delay_ns, to->index, packet);
    }
    if (is_lost(simnet, link, now_ns)) {
        simnet->stats.lost++;
        ps_sim_trace(simnet, now_ns, packet, to->index, PS_SIM_LOST);
        return PS_OK;
    }
    const int64_t left_ns = transmit(link, packet->length, now_ns);
    if (left_ns < 0) {
        simnet->stats.queue_full++;
        ps_sim_trace(simnet, now_ns, packet, to->index, PS_SIM_QUEUE_FULL);
        return PS_OK;
    }
    if (!happens(simnet, link->params.corrupt_ppm)) {
        return depart(to, link, packet, left_ns);
    }
    simnet->stats.corrupted++;
    ps_sim_trace(simnet, now_ns, packet, to->index, PS_SIM_CORRUPTED);
    if (!link->params.no_checksum) {
        return PS_OK;
    }
    ps_sim_packet_t *copy = damaged(simnet, packet);
    if (copy == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a damaged datagram");
    }
    const int result = depart(to, link, copy, left_ns);
    ps_sim_release(copy);
    return result;
}

/* ---- what links are like --------------------------------------------------------------------- */

static bool is_sound(const ps_simnet_link_t *link)
{
    return link->delay_ns >= 0 && link->jitter_ns >= 0 && link->bandwidth_bytes_per_s >= 0 &&
           link->queue_bytes >= 0 && link->reorder_ns >= 0 && link->loss_ppm <= PPM &&
           link->burst_enter_ppm <= PPM && link->burst_leave_ppm <= PPM &&
           link->burst_loss_ppm <= PPM && link->duplicate_ppm <= PPM && link->reorder_ppm <= PPM &&
           link->corrupt_ppm <= PPM && link->stranger_ppm <= PPM;
}

int ps_simnet_set_link(ps_simnet_t *simnet, int32_t from, int32_t to, const ps_simnet_link_t *link)
{
    if (from < -1 || from >= simnet->host_count || to < -1 || to >= simnet->host_count ||
        !is_sound(link)) {
        return ps_fail(PS_E_INVALID, "simulator: no such link or a value out of range");
    }
    for (int32_t i = from < 0 ? 0 : from; i < (from < 0 ? simnet->host_count : from + 1); i++) {
        for (int32_t j = to < 0 ? 0 : to; j < (to < 0 ? simnet->host_count : to + 1); j++) {
            simnet->links[i][j].params = *link;
        }
    }
    return PS_OK;
}

int ps_simnet_calm(ps_simnet_t *simnet, int32_t port, int64_t delay_ns)
{
    if (port < 0 || port > UINT16_MAX || delay_ns < 0) {
        return ps_fail(PS_E_INVALID, "simulator: no port %d, or a delay below 0", port);
    }
    simnet->calm_port = (uint16_t)port;
    simnet->calm_delay_ns = delay_ns;
    return PS_OK;
}

int ps_simnet_drop(ps_simnet_t *simnet, int32_t from, int32_t to, uint64_t number)
{
    if (from < 0 || from >= simnet->host_count || to < 0 || to >= simnet->host_count) {
        return ps_fail(PS_E_INVALID, "simulator: no link from host %d to host %d", from, to);
    }
    ps_sim_link_state_t *link = &simnet->links[from][to];
    uint64_t *drops = realloc(link->drops, ((size_t)link->drop_count + 1) * sizeof *drops);
    if (drops == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a list of losses");
    }
    drops[link->drop_count++] = number;
    link->drops = drops;
    return PS_OK;
}
