/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_watch.c: reads along on the simulated wire.  It knows nothing of what drivers think, only
 * what they say to each other: a SETUP states terms and MTU, a status message that has arrived
 * states a window, and data must stay within both.
 */
#include <stdlib.h>

#include "ps_log.h"
#include "ps_sim_watch.h"
#include "ps_wire.h"

enum { MAX_FLOWS = 512, MAX_HALF_TERMS = 8, MAX_EARLY = 64 };

/* One stream on its way to one address. */
typedef struct flow {
    int32_t host;
    int32_t session_id;
    int32_t stream_id;
    ps_addr_t to;
    int32_t initial_term_id;
    int32_t term_length;
    int32_t mtu;
    int64_t high; /* end of what was sent */
    int64_t edge; /* right edge of the widest window stated, -1: none yet */
} flow_t;

/* A status message that arrived before the first SETUP of its stream: a receiver may know the
 * stream from elsewhere. */
typedef struct early {
    int32_t host;
    ps_sm_t sm;
} early_t;

struct ps_sim_watch {
    ps_sim_wire_t wire;
    int32_t half_terms[MAX_HALF_TERMS]; /* streams */
    int32_t half_term_count;
    int32_t flow_count;
    int32_t early_count; /* the newest MAX_EARLY are kept */
    early_t early[MAX_EARLY];
    flow_t flows[MAX_FLOWS];
};

ps_sim_watch_t *ps_sim_watch_create(void)
{
    return calloc(1, sizeof(ps_sim_watch_t));
}

void ps_sim_watch_half_term(ps_sim_watch_t *watch, int32_t stream_id)
{
    if (stream_id != 0 && watch->half_term_count < MAX_HALF_TERMS) {
        watch->half_terms[watch->half_term_count++] = stream_id;
    }
}

static bool is_half_term(const ps_sim_watch_t *watch, int32_t stream_id)
{
    for (int32_t i = 0; i < watch->half_term_count; i++) {
        if (watch->half_terms[i] == stream_id) {
            return true;
        }
    }
    return false;
}

void ps_sim_watch_wire(const ps_sim_watch_t *watch, ps_sim_wire_t *out)
{
    *out = watch->wire;
}

static int64_t position_of(const flow_t *flow, int32_t term_id, int32_t term_offset)
{
    return (int64_t)(int32_t)((uint32_t)term_id - (uint32_t)flow->initial_term_id) *
               flow->term_length +
           term_offset;
}

static bool is_flow(const flow_t *flow, int32_t host, int32_t session_id, int32_t stream_id)
{
    return flow->host == host && flow->session_id == session_id && flow->stream_id == stream_id;
}

static flow_t *find(ps_sim_watch_t *watch, int32_t host, int32_t session_id, int32_t stream_id,
                    const ps_addr_t *to)
{
    for (int32_t i = 0; i < watch->flow_count; i++) {
        flow_t *flow = &watch->flows[i];
        if (is_flow(flow, host, session_id, stream_id) && flow->to.port == to->port &&
            ps_sim_same_ip(&flow->to, to)) {
            return flow;
        }
    }
    return NULL;
}

static void widen(const ps_sim_watch_t *watch, flow_t *flow, const ps_sm_t *sm)
{
    int64_t window = sm->window;
    if (is_half_term(watch, sm->stream_id) && window < flow->term_length / 4 * 3) {
        window = flow->term_length / 4 * 3; /* what a receiver keeps under fc=nak */
    }
    const int64_t edge = position_of(flow, sm->term_id, sm->term_offset) + window;
    flow->edge = edge > flow->edge ? edge : flow->edge;
}

static void on_setup(ps_sim_watch_t *watch, int32_t from, const ps_sim_packet_t *packet)
{
    ps_setup_t setup;
    if (ps_wire_setup(packet->data, packet->length, &setup) != PS_WIRE_OK) {
        watch->wire.malformed++;
        return;
    }
    watch->wire.setups++;
    if (find(watch, from, setup.session_id, setup.stream_id, &packet->to) != NULL ||
        watch->flow_count == MAX_FLOWS) {
        return;
    }
    flow_t *flow = &watch->flows[watch->flow_count++];
    *flow = (flow_t){ .host = from,
                      .session_id = setup.session_id,
                      .stream_id = setup.stream_id,
                      .to = packet->to,
                      .initial_term_id = setup.initial_term_id,
                      .term_length = setup.term_length,
                      .mtu = setup.mtu,
                      .edge = -1 };
    flow->high = position_of(flow, setup.active_term_id, setup.term_offset);
    for (int32_t i = 0; i + 1 < watch->flow_count; i++) { /* windows are stated for all of them */
        const flow_t *other = &watch->flows[i];
        if (is_flow(other, from, setup.session_id, setup.stream_id) && other->edge > flow->edge) {
            flow->edge = other->edge;
        }
    }
    for (int32_t i = 0; i < watch->early_count && i < MAX_EARLY; i++) {
        const early_t *early = &watch->early[i];
        if (is_flow(flow, early->host, early->sm.session_id, early->sm.stream_id)) {
            widen(watch, flow, &early->sm);
        }
    }
}

static enum ps_sim_kind on_data(ps_sim_watch_t *watch, int32_t from, const ps_sim_packet_t *packet)
{
    ps_data_t data;
    if (ps_wire_data(packet->data, packet->length, &data) != PS_WIRE_OK) {
        watch->wire.malformed++;
        return PS_SIM_OTHER;
    }
    flow_t *flow = find(watch, from, data.session_id, data.stream_id, &packet->to);
    if (data.is_heartbeat) {
        watch->wire.heartbeats++;
        if (flow != NULL) { /* what was passed over, too, is sent only to who requests it */
            const int64_t at = position_of(flow, data.term_id, data.term_offset);
            flow->high = at > flow->high ? at : flow->high;
        }
        return PS_SIM_OTHER;
    }
    if (flow == NULL) {
        watch->wire.data++; /* a destination whose SETUP went elsewhere */
        return PS_SIM_OTHER;
    }
    int32_t span = 0;
    int32_t messages = 0;
    if (packet->length > (uint32_t)flow->mtu ||
        ps_wire_chain(packet->data, packet->length, flow->term_length, &span, &messages) !=
            PS_WIRE_OK ||
        data.term_offset + span > flow->term_length) {
        watch->wire.broken++;
        return PS_SIM_OTHER;
    }
    const int64_t end = position_of(flow, data.term_id, data.term_offset) + span;
    if (end <= flow->high) {
        watch->wire.resent++;
        watch->wire.resent_bytes += (uint64_t)span;
        return PS_SIM_AGAIN;
    }
    watch->wire.data++;
    watch->wire.data_bytes += (uint64_t)span;
    flow->high = end;
    /* A pad that ends a term goes out as one header: the rest of its span is no load. */
    const int64_t unsent = span > (int32_t)packet->length ? span - (int32_t)packet->length : 0;
    if (flow->edge >= 0 && end - unsent > flow->edge) {
        watch->wire.overruns++;
    }
    return PS_SIM_FRESH;
}

enum ps_sim_kind ps_sim_watch_sent(ps_sim_watch_t *watch, int32_t from,
                                   const ps_sim_packet_t *packet)
{
    uint16_t type = 0;
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK) {
        watch->wire.malformed++;
        return PS_SIM_OTHER;
    }
    switch (type) {
    case PS_TYPE_DATA:
    case PS_TYPE_PAD: return on_data(watch, from, packet);
    case PS_TYPE_SETUP: on_setup(watch, from, packet); break;
    case PS_TYPE_SM: watch->wire.status_messages++; break;
    case PS_TYPE_NAK: watch->wire.naks++; break;
    case PS_TYPE_RTTM: watch->wire.rtt++; break;
    case PS_TYPE_ERR: watch->wire.errors++; break;
    case PS_TYPE_EXT: watch->wire.ext++; break;
    default: break;
    }
    return PS_SIM_OTHER;
}

void ps_sim_watch_arrived(ps_sim_watch_t *watch, int32_t host, const ps_sim_packet_t *packet)
{
    uint16_t type = 0;
    ps_sm_t sm;
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK || type != PS_TYPE_SM ||
        ps_wire_sm(packet->data, packet->length, &sm) != PS_WIRE_OK) {
        return;
    }
    bool found = false;
    for (int32_t i = 0; i < watch->flow_count; i++) {
        flow_t *flow = &watch->flows[i];
        if (!is_flow(flow, host, sm.session_id, sm.stream_id)) {
            continue;
        }
        widen(watch, flow, &sm);
        found = true;
    }
    if (!found) {
        watch->early[watch->early_count++ % MAX_EARLY] = (early_t){ .host = host, .sm = sm };
    }
}
