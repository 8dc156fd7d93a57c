/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_count.c: the driver's counters, against what was read and sent.  What goes to
 * several destinations counts once.
 */
#include "ps_driver_state.h"
#include "ps_send_endpoint.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"
#include "ps_wire_credit.h"
#include "ps_wire_fields.h"

static const struct {
    int32_t id;
    const char *name;
} COUNTED[] = { { PS_SYS_BYTES_RECEIVED, "bytes received" },
                { PS_SYS_SM_SENT, "status messages sent" },
                { PS_SYS_SM_RECEIVED, "status messages received" },
                { PS_SYS_SM_REJECTED, "status messages rejected" },
                { PS_SYS_NAKS_RECEIVED, "NAKs received" },
                { PS_SYS_NAKS_SENT, "NAKs sent" },
                { PS_SYS_HEARTBEATS_SENT, "heartbeats sent" },
                { PS_SYS_HEARTBEATS_RECEIVED, "heartbeats received" },
                { PS_SYS_UNDER_RUNS, "datagrams behind" },
                { PS_SYS_OVER_RUNS, "datagrams beyond" },
                { PS_SYS_INVALID_PACKETS, "malformed datagrams" },
                { PS_SYS_SHORT_SENDS, "short sends" },
                { PS_SYS_ERROR_FRAMES_SENT, "error frames sent" },
                { PS_SYS_ERROR_FRAMES_RECEIVED, "error frames received" },
                { PS_SYS_BYTES_SENT, "bytes sent" },
                { PS_SYS_RETRANSMITTED_BYTES, "bytes sent again" },
                { PS_SYS_BACK_PRESSURE, "publications held by their receivers" },
                { PS_SYS_IMAGES_REVOKED, "images revoked" },
                { PS_SYS_IMAGES_REJECTED, "images rejected" },
                { PS_SYS_PUBLICATIONS_REVOKED, "publications revoked" } };
enum { KINDS = sizeof COUNTED / sizeof COUNTED[0] };

static int64_t shown(const ps_driver_t *driver, int32_t id)
{
    return atomic_load_explicit(ps_counter_cell(driver->context.params.cnc, id),
                                memory_order_relaxed);
}

void ps_probe_count_begin(ps_probe_t *probe, int32_t host)
{
    ps_probe_counts_t *counts = &probe->counts[host];
    if (counts->known) {
        return;
    }
    memset(counts, 0, sizeof *counts);
    counts->known = true;
    for (int32_t i = 0; i < KINDS; i++) {
        counts->of[COUNTED[i].id] = shown(ps_probe_driver(probe, host), COUNTED[i].id);
    }
}

void ps_probe_count(ps_probe_t *probe, int32_t host, int32_t id, int64_t delta)
{
    probe->counts[host].of[id] += delta;
}

/* ---- what was read --------------------------------------------------------------------------- */

static void count_sm(ps_probe_t *probe, int32_t host, const ps_sm_t *sm)
{
    const ps_probe_pub_t *model = ps_probe_pub(probe, host, sm->session_id, sm->stream_id);
    const int64_t term = model != NULL ? model->pub->log.term_length : INT64_C(1) << 30;
    const bool sound = sm->term_offset >= 0 && sm->term_offset <= term &&
                       sm->term_offset % PS_FRAME_ALIGNMENT == 0 && sm->window >= 0 &&
                       sm->window <= term / 2;
    ps_probe_count(probe, host, sound ? PS_SYS_SM_RECEIVED : PS_SYS_INVALID_PACKETS, 1);
    if (!sound || model == NULL || (sm->flags & PS_SM_SETUP) != 0) {
        return;
    }
    const int64_t at =
        term * ps_wrap_sub(sm->term_id, model->pub->log.initial_term_id) + sm->term_offset;
    if (!ps_probe_may_grant(model->pub, model->pub->sender_position, at)) {
        ps_probe_count(probe, host, PS_SYS_SM_REJECTED, 1);
    }
}

static void count_nak(ps_probe_t *probe, int32_t host, const ps_nak_list_t *list)
{
    const ps_probe_pub_t *model = ps_probe_pub(probe, host, list->session_id, list->stream_id);
    bool sound = true;
    for (int32_t i = 0; model != NULL && i < list->count; i++) {
        const int64_t from = list->ranges[i].term_offset;
        const int64_t length = list->ranges[i].length;
        sound = sound && from >= 0 && length >= 0 && from % PS_FRAME_ALIGNMENT == 0 &&
                from < model->pub->log.term_length && from + length <= model->pub->log.term_length;
    }
    if (model != NULL) {
        ps_probe_count(probe, host, sound ? PS_SYS_NAKS_RECEIVED : PS_SYS_INVALID_PACKETS, 1);
    }
}

static bool read_by_sender(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                           uint16_t type)
{
    ps_sm_t sm;
    ps_nak_t nak;
    ps_nak_list_t list;
    ps_err_t error;
    if (type == PS_TYPE_SM && ps_wire_sm(packet->data, packet->length, &sm) == PS_WIRE_OK) {
        count_sm(probe, host, &sm);
    } else if (type == PS_TYPE_NAK &&
               ps_wire_nak(packet->data, packet->length, &nak) == PS_WIRE_OK) {
        list =
            (ps_nak_list_t){ .session_id = nak.session_id, .stream_id = nak.stream_id, .count = 1 };
        list.ranges[0].term_offset = nak.term_offset;
        list.ranges[0].length = nak.length;
        count_nak(probe, host, &list);
    } else if (type == PS_TYPE_EXT &&
               ps_wire_ext_subtype(packet->data, packet->length) == PS_EXT_NAK_LIST) {
        if (ps_wire_nak_list(packet->data, packet->length, &list) != PS_WIRE_OK) {
            return false;
        }
        count_nak(probe, host, &list);
    } else if (type == PS_TYPE_ERR &&
               ps_wire_err(packet->data, packet->length, &error) == PS_WIRE_OK) {
        ps_probe_count(probe, host, PS_SYS_ERROR_FRAMES_RECEIVED, 1);
    }
    return true;
}

void ps_probe_count_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                         bool by_sender)
{
    uint16_t type = 0;
    ps_probe_count_begin(probe, host);
    if (!by_sender) {
        ps_probe_count(probe, host, PS_SYS_BYTES_RECEIVED, packet->length);
    }
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK) {
        ps_probe_count(probe, host, PS_SYS_INVALID_PACKETS, 1);
    } else if (by_sender && !read_by_sender(probe, host, packet, type)) {
        ps_probe_count(probe, host, PS_SYS_INVALID_PACKETS, 1);
    }
}

/* ---- what was sent --------------------------------------------------------------------------- */

static ps_probe_tally_t *tally_of(ps_probe_counts_t *counts, const ps_send_endpoint_t *endpoint,
                                  const ps_addr_t *to)
{
    for (int32_t i = 0; i < counts->tally_count; i++) {
        ps_probe_tally_t *tally = &counts->tallies[i];
        if (tally->endpoint == endpoint && tally->to.port == to->port &&
            memcmp(tally->to.ip, to->ip, sizeof to->ip) == 0) {
            return tally;
        }
    }
    if (counts->tally_count == PS_PROBE_TALLIES) {
        counts->unsure = true;
        return &counts->tallies[0];
    }
    ps_probe_tally_t *tally = &counts->tallies[counts->tally_count++];
    *tally = (ps_probe_tally_t){ .endpoint = endpoint, .to = *to };
    return tally;
}

/* A SETUP for a receiver that has no place yet: no other destination gets a copy. */
static bool is_to_stranger(const ps_publication_t *pub, const ps_sim_packet_t *packet)
{
    return pub->endpoint->params.mdc == PS_MDC_DYNAMIC &&
           !ps_destinations_has(&pub->endpoint->destinations, &packet->to);
}

void ps_probe_count_sent(ps_probe_t *probe, int32_t host, const ps_probe_pub_t *model,
                         const ps_sim_packet_t *packet, bool beat, bool again)
{
    ps_probe_count_begin(probe, host);
    if (model == NULL || model->pub->endpoint == NULL || is_to_stranger(model->pub, packet)) {
        ps_probe_count(probe, host, PS_SYS_BYTES_SENT, packet->length);
        return;
    }
    ps_probe_tally_t *tally = tally_of(&probe->counts[host], model->pub->endpoint, &packet->to);
    tally->bytes += packet->length;
    tally->beats += beat;
    tally->again += again ? packet->length : 0;
}

void ps_probe_count_short(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length)
{
    uint16_t type = 0;
    ps_data_t first;
    ps_setup_t setup;
    ps_rttm_t rttm;
    ps_credit_frame_t credit;
    const ps_probe_pub_t *model = NULL;
    ps_probe_count_begin(probe, host);
    if (ps_wire_check(data, length, &type) != PS_WIRE_OK) {
        return;
    }
    if ((type == PS_TYPE_DATA || type == PS_TYPE_PAD) &&
        ps_wire_data(data, length, &first) == PS_WIRE_OK) {
        model = ps_probe_pub(probe, host, first.session_id, first.stream_id);
    } else if (type == PS_TYPE_SETUP && ps_wire_setup(data, length, &setup) == PS_WIRE_OK) {
        model = ps_probe_pub(probe, host, setup.session_id, setup.stream_id);
    } else if (type == PS_TYPE_RTTM && ps_wire_rttm(data, length, &rttm) == PS_WIRE_OK &&
               (rttm.flags & PS_RTTM_REPLY) == 0) {
        model = ps_probe_pub(probe, host, rttm.session_id, rttm.stream_id);
    } else if (type == PS_TYPE_EXT && ps_wire_ext_subtype(data, length) == PS_EXT_CREDIT &&
               ps_wire_credit(data, length, &credit) == PS_WIRE_OK) {
        model = ps_probe_pub(probe, host, credit.session_id, credit.stream_id);
    }
    ps_probe_count(probe, host, PS_SYS_SHORT_SENDS, 1);
    probe->counts[host].unsure =
        probe->counts[host].unsure || (model != NULL && model->pub->endpoint != NULL &&
                                       model->pub->endpoint->params.mdc != PS_MDC_NONE);
}

/* Each endpoint's destinations got the same, but for one that came in between. */
static void settle_tallies(ps_probe_counts_t *counts)
{
    for (int32_t i = 0; i < counts->tally_count; i++) {
        ps_probe_tally_t *tally = &counts->tallies[i];
        for (int32_t j = 0; j < i; j++) {
            ps_probe_tally_t *other = &counts->tallies[j];
            if (other->endpoint == tally->endpoint) {
                other->bytes = tally->bytes > other->bytes ? tally->bytes : other->bytes;
                other->beats = tally->beats > other->beats ? tally->beats : other->beats;
                other->again = tally->again > other->again ? tally->again : other->again;
                *tally = (ps_probe_tally_t){ .endpoint = NULL };
            }
        }
    }
    for (int32_t i = 0; i < counts->tally_count; i++) {
        counts->of[PS_SYS_BYTES_SENT] += counts->tallies[i].bytes;
        counts->of[PS_SYS_HEARTBEATS_SENT] += counts->tallies[i].beats;
        counts->of[PS_SYS_RETRANSMITTED_BYTES] += counts->tallies[i].again;
    }
    counts->tally_count = 0;
}

/* ---- after a cycle --------------------------------------------------------------------------- */

/* Returns true if an endpoint that copies has no destination: its answers still count. */
static bool is_deserted(const ps_driver_t *driver)
{
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_send_endpoint_t *endpoint = driver->sender->publications[i]->endpoint;
        if (endpoint != NULL && endpoint->params.mdc != PS_MDC_NONE &&
            endpoint->destinations.count == 0) {
            return true;
        }
    }
    return false;
}

static void count_objects(ps_probe_t *probe, int32_t host)
{
    for (int32_t i = 0; i < probe->pub_count; i++) {
        ps_probe_pub_t *model = probe->pubs[i];
        if (model->host != host || !model->seen) {
            continue;
        }
        const int64_t held =
            model->pub->endpoint != NULL
                ? atomic_load_explicit(model->pub->back_pressure_cell, memory_order_relaxed)
                : 0;
        if (model->counted) {
            ps_probe_count(probe, host, PS_SYS_BACK_PRESSURE, held - model->held_count);
            ps_probe_count(probe, host, PS_SYS_PUBLICATIONS_REVOKED,
                           model->pub->revoked && !model->was_revoked);
        } else {
            probe->counts[host].unsure = true;
        }
        model->counted = true;
        model->held_count = held;
        model->was_revoked = model->pub->revoked;
    }
    for (int32_t i = 0; i < probe->image_count; i++) {
        ps_probe_image_t *model = probe->images[i];
        if (model->host == host && model->seen) {
            ps_probe_count(probe, host, PS_SYS_IMAGES_REVOKED,
                           model->image->revoked && !model->was_revoked);
            ps_probe_count(probe, host, PS_SYS_IMAGES_REJECTED,
                           model->image->rejected && !model->was_rejected);
            model->was_revoked = model->image->revoked != 0;
            model->was_rejected = model->image->rejected != 0;
        }
    }
}

void ps_probe_count_check(ps_probe_t *probe, int32_t host)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    ps_probe_counts_t *counts = &probe->counts[host];
    ps_probe_count_begin(probe, host);
    settle_tallies(counts);
    count_objects(probe, host);
    const bool deserted = is_deserted(driver);
    for (int32_t i = 0; i < KINDS; i++) {
        const int32_t id = COUNTED[i].id;
        const bool alone =
            deserted && (id == PS_SYS_RETRANSMITTED_BYTES || id == PS_SYS_BYTES_SENT);
        if (shown(driver, id) != counts->of[id] && !counts->unsure && !alone) {
            ps_probe_fail(probe, host, 0, "the counter of %s shows %lld, not %lld", COUNTED[i].name,
                          (long long)shown(driver, id), (long long)counts->of[id]);
        }
        counts->of[id] = shown(driver, id);
    }
    counts->unsure = false;
}
