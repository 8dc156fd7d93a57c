/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe.c: hands each datagram and each duty cycle to the files that check it.
 */
#include <stdlib.h>

#include "ps_driver_state.h"
#include "ps_log.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"
#include "ps_wire_credit.h"
#include "ps_wire_fields.h"

#define SETUP_HOLDS_NS INT64_C(1000000000)

/* ---- datagrams ------------------------------------------------------------------------------- */

static void read_ext(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, int64_t now_ns)
{
    ps_nak_list_t list;
    ps_pressure_t pressure;
    if (ps_wire_ext_subtype(packet->data, packet->length) == PS_EXT_PRESSURE &&
        ps_wire_pressure(packet->data, packet->length, &pressure) == PS_WIRE_OK) {
        ps_probe_pub_t *eased = ps_probe_pub(probe, host, pressure.session_id, pressure.stream_id);
        if (eased != NULL) { /* a cycle sends before it reads: that was at the old rate */
            eased->signal_bytes = eased->fresh_bytes;
            ps_probe_strength_signal(eased, &pressure, now_ns);
            ps_probe_rule_signal(probe, eased, &pressure);
        }
        return;
    }
    if (ps_wire_ext_subtype(packet->data, packet->length) != PS_EXT_NAK_LIST ||
        ps_wire_nak_list(packet->data, packet->length, &list) != PS_WIRE_OK) {
        return;
    }
    ps_probe_pub_t *pub = ps_probe_pub(probe, host, list.session_id, list.stream_id);
    if (pub == NULL) {
        return;
    }
    pub->naks++;
    for (int32_t i = 0; i < list.count; i++) {
        const ps_nak_t nak = { .session_id = list.session_id,
                               .stream_id = list.stream_id,
                               .term_id = list.ranges[i].term_id,
                               .term_offset = list.ranges[i].term_offset,
                               .length = list.ranges[i].length };
        ps_probe_on_nak(pub, &nak, now_ns);
    }
}

static void read_control(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                         uint16_t type, int64_t now_ns)
{
    ps_sm_t sm;
    ps_nak_t nak;
    ps_err_t error;
    ps_probe_pub_t *pub;
    if (type == PS_TYPE_SM && ps_wire_sm(packet->data, packet->length, &sm) == PS_WIRE_OK &&
        (pub = ps_probe_pub(probe, host, sm.session_id, sm.stream_id)) != NULL) {
        ps_probe_fc_sm(probe, pub, &sm, &packet->from, now_ns);
    } else if (type == PS_TYPE_NAK &&
               ps_wire_nak(packet->data, packet->length, &nak) == PS_WIRE_OK &&
               (pub = ps_probe_pub(probe, host, nak.session_id, nak.stream_id)) != NULL) {
        pub->naks++;
        ps_probe_on_nak(pub, &nak, now_ns);
    } else if (type == PS_TYPE_ERR &&
               ps_wire_err(packet->data, packet->length, &error) == PS_WIRE_OK &&
               (pub = ps_probe_pub(probe, host, error.session_id, error.stream_id)) != NULL) {
        ps_probe_fc_error(pub, error.receiver_id, now_ns);
        ps_probe_join_refused(pub, error.receiver_id);
    } else if (type == PS_TYPE_EXT) {
        read_ext(probe, host, packet, now_ns);
    }
}

/* Smoothed by an eighth, its variation by a quarter, which begins at a sixteenth. */
static void take_sample(ps_probe_image_t *image, int64_t sample)
{
    const int64_t error =
        sample > image->smoothed_rtt ? sample - image->smoothed_rtt : image->smoothed_rtt - sample;
    image->least_rtt = sample < image->least_rtt ? sample : image->least_rtt;
    image->most_rtt = sample > image->most_rtt ? sample : image->most_rtt;
    if (image->smoothed_rtt == 0) {
        image->smoothed_rtt = sample;
        image->rtt_variation = sample / 16;
        return;
    }
    image->rtt_variation += (error - image->rtt_variation) / 4;
    image->smoothed_rtt += (sample - image->smoothed_rtt) / 8;
}

/* Another source holds the place of the sender, a stranger that was first or a sender that died:
 * for a second after its SETUP, for the connection time-out after its data (docs/trust.md). */
static bool is_foreign(const ps_image_t *image, const ps_sim_packet_t *packet, int64_t now_ns)
{
    bool foreign = false;
    for (int32_t i = 0; image->endpoint != NULL && i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_connection_t *path = &image->connections[i];
        const int64_t held_ns =
            path->confirmed ? image->receiver->params->connection_timeout_ns : SETUP_HOLDS_NS;
        const bool held =
            path->established && path->source.family != 0 && now_ns - path->activity_ns < held_ns;
        if (image->endpoint->destinations[i] == NULL) {
            continue;
        }
        if (!held || ps_addr_equal(&path->source, &packet->from)) {
            return false;
        }
        foreign = true;
    }
    return foreign;
}

/* Whether the datagram comes from a source that the image follows, held or not. */
static bool is_followed(const ps_image_t *image, const ps_sim_packet_t *packet)
{
    for (int32_t i = 0; image->endpoint != NULL && i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_connection_t *path = &image->connections[i];
        if (image->endpoint->destinations[i] != NULL && path->established &&
            ps_addr_equal(&path->source, &packet->from)) {
            return true;
        }
    }
    return false;
}

/* Data from there could be accepted: no other SETUP changes whom a receiver follows. */
static bool is_near(const ps_image_t *image, const ps_setup_t *setup)
{
    const int64_t term = image->log.term_length;
    const int64_t count = ps_wrap_sub(setup->active_term_id, image->log.initial_term_id);
    const int64_t ahead = count * term + setup->term_offset - image->sm_position;
    return ahead >= -term && ahead <= term + term / 2;
}

/* The SETUP of a later daemon of the followed source's directory takes the place at once: it comes
 * from the same IP address, and states the same daemon id and a later epoch (docs/trust.md). */
static bool is_successor(const ps_image_t *image, const ps_setup_t *setup,
                         const ps_sim_packet_t *packet)
{
    const ps_trailer_t *said = &setup->trailer;
    bool same_ip = false;
    for (int32_t i = 0; image->endpoint != NULL && i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_connection_t *path = &image->connections[i];
        same_ip = same_ip || (image->endpoint->destinations[i] != NULL && path->established &&
                              ps_addr_same_ip(&path->source, &packet->from));
    }
    return same_ip && said->capabilities != 0 && said->daemon_id != 0 &&
           said->daemon_id == image->peer.daemon_id &&
           said->daemon_epoch > image->peer.daemon_epoch;
}

/* An answer to a round-trip request: what it measured bounds what may be believed. */
static void read_rttm(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                      int64_t now_ns)
{
    ps_rttm_t rttm;
    if (ps_wire_rttm(packet->data, packet->length, &rttm) != PS_WIRE_OK ||
        (rttm.flags & PS_RTTM_REPLY) != 0) {
        return;
    }
    ps_probe_image_t *image = ps_probe_image(probe, host, rttm.session_id, rttm.stream_id, now_ns);
    if (image == NULL || (rttm.receiver_id != 0 &&
                          (image->image->endpoint == NULL ||
                           rttm.receiver_id != image->image->endpoint->params.receiver_id))) {
        return;
    }
    if (!is_followed(image->image, packet)) {
        return; /* another path */
    }
    const int64_t sample = ps_probe_rtt_answer(image, rttm.echo_ns, now_ns);
    if (sample > 0) {
        take_sample(image, sample);
        ps_probe_round_sample(image, sample);
    }
}

void ps_probe_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, bool by_sender,
                   int64_t now_ns)
{
    uint16_t type = 0;
    ps_data_t data;
    ps_setup_t setup;
    ps_probe_image_t *image;
    probe->cycles[host].read++;
    probe->read_ns[host] = now_ns;
    ps_probe_count_read(probe, host, packet, by_sender);
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK) {
        return; /* which counts for nothing */
    }
    if (type == PS_TYPE_DATA || type == PS_TYPE_PAD) {
        if (ps_wire_data(packet->data, packet->length, &data) == PS_WIRE_OK &&
            (image = ps_probe_image(probe, host, data.session_id, data.stream_id, now_ns)) !=
                NULL &&
            !is_foreign(image->image, packet, now_ns)) {
            if (!is_followed(image->image, packet)) { /* the sender gets a status message at once */
                image->sm_forced_ns = now_ns;
            }
            ps_probe_image_data(probe, image, &data, packet, now_ns);
        }
    } else if (type == PS_TYPE_SETUP) {
        if (ps_wire_setup(packet->data, packet->length, &setup) == PS_WIRE_OK &&
            (image = ps_probe_image(probe, host, setup.session_id, setup.stream_id, now_ns)) !=
                NULL) {
            const bool foreign = is_foreign(image->image, packet, now_ns);
            const bool near = is_near(image->image, &setup);
            if ((foreign &&
                 (ps_sim_is_forged(packet) || !is_successor(image->image, &setup, packet))) ||
                (!near && !is_followed(image->image, packet))) {
                return;
            }
            image->sm_forced_ns = now_ns;
            image->moved_ns = now_ns;
            image->sm_may_idle = false; /* who asks does not hear: no back-off now */
            image->path_ns = foreign ? -1 : now_ns;
        }
    } else if (type == PS_TYPE_RTTM) {
        read_rttm(probe, host, packet, now_ns);
    } else {
        read_control(probe, host, packet, type, now_ns);
    }
}

static void sent_by_receiver(ps_probe_t *probe, int32_t host, const uint8_t *at, uint32_t length,
                             uint16_t type, int64_t now_ns)
{
    ps_sm_t sm;
    ps_nak_t nak;
    ps_rttm_t rttm;
    ps_nak_list_t list;
    ps_pressure_t pressure;
    ps_probe_image_t *image;
    ps_probe_count_begin(probe, host);
    ps_probe_count(probe, host, PS_SYS_SM_SENT, type == PS_TYPE_SM);
    ps_probe_count(probe, host, PS_SYS_ERROR_FRAMES_SENT, type == PS_TYPE_ERR);
    probe->cycles[host].answers += type == PS_TYPE_SM || type == PS_TYPE_NAK || type == PS_TYPE_EXT;
    if (type == PS_TYPE_SM && ps_wire_sm(at, length, &sm) == PS_WIRE_OK &&
        (image = ps_probe_image(probe, host, sm.session_id, sm.stream_id, now_ns)) != NULL) {
        ps_probe_sm_sent(probe, image, &sm, now_ns);
    } else if (type == PS_TYPE_NAK && ps_wire_nak(at, length, &nak) == PS_WIRE_OK &&
               (image = ps_probe_image(probe, host, nak.session_id, nak.stream_id, now_ns)) !=
                   NULL) {
        image->naks++;
        ps_probe_nak_sent(probe, image, &nak, now_ns);
    } else if (type == PS_TYPE_RTTM && ps_wire_rttm(at, length, &rttm) == PS_WIRE_OK &&
               (rttm.flags & PS_RTTM_REPLY) != 0 &&
               (image = ps_probe_image(probe, host, rttm.session_id, rttm.stream_id, now_ns)) !=
                   NULL) {
        ps_probe_rttm_sent(probe, image, &rttm, now_ns);
    } else if (type == PS_TYPE_EXT && ps_wire_pressure(at, length, &pressure) == PS_WIRE_OK &&
               ps_wire_ext_subtype(at, length) == PS_EXT_PRESSURE &&
               (image = ps_probe_image(probe, host, pressure.session_id, pressure.stream_id,
                                       now_ns)) != NULL) {
        ps_probe_pressure_sent(probe, image, &pressure, now_ns);
    } else if (type == PS_TYPE_EXT && ps_wire_ext_subtype(at, length) == PS_EXT_NAK_LIST &&
               ps_wire_nak_list(at, length, &list) == PS_WIRE_OK &&
               (image = ps_probe_image(probe, host, list.session_id, list.stream_id, now_ns)) !=
                   NULL) {
        image->naks++;
        for (int32_t i = 0; i < list.count; i++) {
            const ps_nak_t one = { .session_id = list.session_id,
                                   .stream_id = list.stream_id,
                                   .term_id = list.ranges[i].term_id,
                                   .term_offset = list.ranges[i].term_offset,
                                   .length = list.ranges[i].length };
            ps_probe_nak_sent(probe, image, &one, now_ns);
        }
    }
}

/* It was sent before, maybe in this cycle: a NAK that reaches beyond what was sent is answered up
 * to where the sender is by then. The sender's position moves after a send call, so the copies of
 * new data to several destinations lie beyond it. */
static bool is_again(const ps_probe_pub_t *model, const ps_data_t *data,
                     const ps_sim_packet_t *packet)
{
    const ps_log_t *log = &model->pub->log;
    int32_t span = 0;
    int32_t messages = 0;
    const int64_t from =
        (int64_t)ps_wrap_sub(data->term_id, log->initial_term_id) * log->term_length +
        data->term_offset;
    return !data->is_heartbeat &&
           ps_wire_chain(packet->data, packet->length, log->term_length, &span, &messages) ==
               PS_WIRE_OK &&
           from + span <= model->pub->sender_position;
}

void ps_probe_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                   enum ps_sim_kind kind, int64_t now_ns)
{
    uint16_t type = 0;
    ps_setup_t setup;
    ps_data_t data;
    ps_rttm_t rttm;
    ps_credit_frame_t credit;
    ps_probe_pub_t *pub;
    probe->cycles[host].sent++;
    if (ps_wire_check(packet->data, packet->length, &type) != PS_WIRE_OK) {
        return;
    }
    if (type == PS_TYPE_DATA || type == PS_TYPE_PAD) {
        if (ps_wire_data(packet->data, packet->length, &data) != PS_WIRE_OK ||
            (pub = ps_probe_pub(probe, host, data.session_id, data.stream_id)) == NULL) {
            return;
        }
        ps_probe_spies_passed(probe, pub, now_ns);
        ps_probe_count_sent(probe, host, pub, packet, data.is_heartbeat != 0,
                            is_again(pub, &data, packet));
        if (data.is_heartbeat) {
            ps_probe_heartbeat_sent(probe, pub, &data, now_ns);
        } else {
            probe->cycles[host].data++;
            ps_probe_data_sent(probe, pub, &data, packet, kind, now_ns);
        }
    } else if (type == PS_TYPE_SETUP) {
        if (ps_wire_setup(packet->data, packet->length, &setup) == PS_WIRE_OK &&
            (pub = ps_probe_pub(probe, host, setup.session_id, setup.stream_id)) != NULL) {
            ps_probe_spies_passed(probe, pub, now_ns);
            ps_probe_count_sent(probe, host, pub, packet, false, false);
            ps_probe_setup_sent(probe, pub, &setup, now_ns);
        }
    } else {
        const bool replies = type == PS_TYPE_RTTM &&
                             ps_wire_rttm(packet->data, packet->length, &rttm) == PS_WIRE_OK &&
                             (rttm.flags & PS_RTTM_REPLY) == 0;
        pub = replies ? ps_probe_pub(probe, host, rttm.session_id, rttm.stream_id) : NULL;
        if (type == PS_TYPE_EXT &&
            ps_wire_ext_subtype(packet->data, packet->length) == PS_EXT_CREDIT &&
            ps_wire_credit(packet->data, packet->length, &credit) == PS_WIRE_OK) {
            pub = ps_probe_pub(probe, host, credit.session_id, credit.stream_id);
            if (pub != NULL) {
                ps_probe_credit_sent(probe, pub, &credit);
            }
        }
        ps_probe_count_sent(probe, host, pub, packet, false, false);
        sent_by_receiver(probe, host, packet->data, packet->length, type, now_ns);
    }
}

void ps_probe_refused(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length,
                      int64_t now_ns)
{
    uint16_t type = 0;
    probe->refused_ns[host] = now_ns;
    probe->cycles[host].sent++;
    if (ps_wire_check(data, length, &type) == PS_WIRE_OK && type != PS_TYPE_DATA &&
        type != PS_TYPE_PAD && type != PS_TYPE_SETUP) {
        sent_by_receiver(probe, host, data, length, type, now_ns);
    }
}

bool ps_probe_is_next(const ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    ps_data_t data;
    if (ps_wire_data(packet->data, packet->length, &data) != PS_WIRE_OK) {
        return false;
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        if (image->params.session_id == data.session_id &&
            image->params.stream_id == data.stream_id && image->state == PS_IMAGE_ACTIVE) {
            return image->gaps.count == 0 &&
                   ps_position(data.term_id, data.term_offset, image->log.shift,
                               image->log.initial_term_id) == image->hwm;
        }
    }
    return false;
}

/* ---- after a duty cycle ---------------------------------------------------------------------- */

static void sweep(ps_probe_t *probe, int32_t host)
{
    for (int32_t i = 0; i < probe->pub_count;) {
        if (probe->pubs[i]->host == host && !probe->pubs[i]->seen) {
            free(probe->pubs[i]);
            probe->pubs[i] = probe->pubs[--probe->pub_count];
        } else {
            probe->pubs[i++]->seen = false;
        }
    }
    for (int32_t i = 0; i < probe->image_count;) {
        if (probe->images[i]->host == host && !probe->images[i]->seen) {
            free(probe->images[i]);
            probe->images[i] = probe->images[--probe->image_count];
        } else {
            probe->images[i++]->seen = false;
        }
    }
}

void ps_probe_step(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    probe->checks++;
    ps_probe_governor_check(probe, host, now_ns);
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        ps_probe_pub_t *model =
            ps_probe_pub_of(probe, host, driver->sender->publications[i], now_ns);
        if (model == NULL) {
            continue;
        }
        model->seen = true;
        if (model->pub->endpoint != NULL) {
            ps_probe_spies_check(probe, model, now_ns);
            ps_probe_fc_check(probe, model, now_ns);
            ps_probe_send_check(probe, model, now_ns);
        }
        ps_probe_pub_check(probe, model, now_ns);
        ps_probe_credit_check(probe, model, now_ns);
        ps_probe_pub_tethers(probe, model, now_ns);
        ps_probe_strength_check(probe, model, now_ns);
        ps_probe_rate_check(probe, model, now_ns);
        ps_probe_pub_shown(probe, model, now_ns);
        ps_probe_batch_check(probe, model, now_ns);
        ps_probe_rule_pub(probe, model, now_ns);
        model->settled = true;
    }
    ps_probe_bands_check(probe, host, now_ns);
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        ps_probe_image_t *model =
            ps_probe_image_of(probe, host, driver->receiver->images[i], now_ns);
        if (model != NULL) {
            model->seen = true;
            ps_probe_image_check(probe, model, now_ns);
            ps_probe_path_check(probe, model, now_ns);
            ps_probe_recv_check(probe, model, now_ns);
            ps_probe_cubic_check(probe, model, now_ns);
            ps_probe_queue_check(probe, model, now_ns);
            ps_probe_readers_check(probe, model, now_ns);
            ps_probe_image_shown(probe, model, now_ns);
            ps_probe_rule_image(probe, model, now_ns);
        }
    }
    ps_probe_lists_check(probe, host, now_ns);
    ps_probe_work_check(probe, host, work, now_ns);
    ps_probe_event_check(probe, host, now_ns);
    ps_probe_count_check(probe, host);
    sweep(probe, host);
}
