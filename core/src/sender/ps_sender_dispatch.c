/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_dispatch.c: checks and counts datagrams of a sender's socket, and passes them to the
 * named publication (docs/spec/wire-format.md). */
#include "ps_inline.h"
#include "ps_sender.h"
#include "ps_wire_fields.h"

static void count_invalid(const ps_send_endpoint_t *endpoint)
{
    ps_system_add(endpoint->context, PS_SYS_INVALID_PACKETS, 1);
}

/* At a term's end the sender may have passed padding that reaches beyond the receiver's window:
 * then that receiver's status messages still report the position before the padding. */
static bool is_granted_from(const ps_publication_t *pub, int64_t position)
{
    const int64_t half = ps_publication_term(pub) / 2;
    const bool at_end = (pub->sender_position & pub->log.term_mask) == 0;
    const bool far = at_end || pub->nak; /* under nak slower receivers are further behind */
    const int64_t floor = pub->nak ? pub->sender_position - ps_publication_term(pub)
                          : far    ? ps_publication_sent_floor(pub)
                                   : pub->sender_position - half;
    return position >= floor && position <= pub->sender_position + half;
}

/* Processes a status message that repeats the last one of its stream. */
static bool repeats(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                    uint32_t length, const ps_addr_t *from)
{
    if (length < PS_SM_BYTES || endpoint->params.mdc != PS_MDC_NONE) {
        return false;
    }
    ps_publication_t *pub =
        ps_sender_find(sender, endpoint, ps_get_i32(data + 8), ps_get_i32(data + 12));
    if (pub == NULL || !ps_publication_repeats_sm(pub, data, length, from, sender->now_ns)) {
        return false;
    }
    ps_system_add(endpoint->context, PS_SYS_SM_RECEIVED, 1);
    endpoint->heard_ns = sender->now_ns;
    endpoint->silence_reported_ns = sender->now_ns;
    return true;
}

static void on_sm(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                  uint32_t length, const ps_addr_t *from)
{
    ps_sm_t sm;
    int64_t position = 0;
    if (ps_wire_sm(data, length, &sm) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    ps_publication_t *pub = ps_sender_find(sender, endpoint, sm.session_id, sm.stream_id);
    const int32_t term = pub != NULL ? pub->log.term_length : PS_TERM_MAX;
    if (sm.term_offset < 0 || sm.term_offset > term || (sm.term_offset & 31) != 0 ||
        sm.window < 0 || sm.window > term / 2) {
        count_invalid(endpoint);
        return;
    }
    ps_system_add(endpoint->context, PS_SYS_SM_RECEIVED, 1);
    if (pub != NULL && (sm.flags & PS_SM_SETUP) == 0) {
        position = ps_position_stated(sm.term_id, sm.term_offset, pub->log.shift,
                                      pub->log.initial_term_id);
        if (!is_granted_from(pub, position)) {
            ps_system_add(endpoint->context, PS_SYS_SM_REJECTED, 1);
            return;
        }
        /* A receiver cannot have consumed unsent data, except in an adopted stream, whose sender
         * repeats that data. */
        position = position < pub->sender_position ? position : pub->sender_position;
    }
    const bool join =
        pub == NULL && (sm.flags & PS_SM_SETUP) != 0 && sm.session_id == 0 && sm.stream_id == 0;
    const bool names = pub != NULL && (sm.flags & PS_SM_EOS) == 0;
    ps_send_endpoint_heard(endpoint, &sm,
                           join    ? PS_HEARD_JOIN
                           : names ? PS_HEARD_NAMES
                                   : PS_HEARD_OTHER,
                           from, sender->now_ns);
    if (pub != NULL) {
        ps_publication_on_sm(pub, &sm, position, from, sender->now_ns);
        if ((sm.flags & (PS_SM_SETUP | PS_SM_EOS)) == 0) {
            ps_publication_note_sm(pub, data, length, from);
        }
    }
}

static void on_nak(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                   uint32_t length)
{
    ps_nak_t nak;
    if (ps_wire_nak(data, length, &nak) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    ps_publication_t *pub = ps_sender_find(sender, endpoint, nak.session_id, nak.stream_id);
    if (pub != NULL) {
        ps_publication_on_nak(pub, &nak, sender->now_ns);
    }
}

static void on_pressure(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                        uint32_t length)
{
    ps_pressure_t pressure;
    if (ps_wire_pressure(data, length, &pressure) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    ps_publication_t *pub =
        ps_sender_find(sender, endpoint, pressure.session_id, pressure.stream_id);
    if (pub != NULL) {
        ps_publication_on_pressure(pub, &pressure, sender->now_ns);
    }
}

static void on_ext(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                   uint32_t length)
{
    ps_nak_list_t list;
    if (ps_wire_ext_subtype(data, length) == PS_EXT_PRESSURE) {
        on_pressure(sender, endpoint, data, length);
        return;
    }
    if (ps_wire_ext_subtype(data, length) != PS_EXT_NAK_LIST) {
        return; /* of a later version: no trace */
    }
    if (ps_wire_nak_list(data, length, &list) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    ps_publication_t *pub = ps_sender_find(sender, endpoint, list.session_id, list.stream_id);
    if (pub != NULL) {
        ps_publication_on_nak_list(pub, &list, sender->now_ns);
    }
}

/* Answers a request with its own stamp, to all receivers on the data path. */
static void on_rttm(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                    uint32_t length)
{
    ps_rttm_t rttm;
    uint8_t out[PS_CONTROL_MAX];
    if (ps_wire_rttm(data, length, &rttm) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    if ((rttm.flags & PS_RTTM_REPLY) == 0 || !ps_send_endpoint_reachable(endpoint) ||
        ps_sender_find(sender, endpoint, rttm.session_id, rttm.stream_id) == NULL) {
        return;
    }
    rttm.flags = 0;
    rttm.reception_delta_ns = 0;
    const ps_dgram_t dgram = { out, ps_wire_build_rttm(out, &rttm) };
    (void)ps_send_endpoint_send(endpoint, &dgram, 1, sender->now_ns);
}

static void on_error(ps_sender_t *sender, ps_send_endpoint_t *endpoint, const uint8_t *data,
                     uint32_t length, const ps_addr_t *from)
{
    ps_err_t err;
    if (ps_wire_err(data, length, &err) != PS_WIRE_OK) {
        count_invalid(endpoint);
        return;
    }
    ps_system_add(endpoint->context, PS_SYS_ERROR_FRAMES_RECEIVED, 1);
    ps_publication_t *pub = ps_sender_find(sender, endpoint, err.session_id, err.stream_id);
    if (pub != NULL) {
        ps_publication_on_error(pub, &err, from, sender->now_ns);
    }
}

/* Out of line, so that a repeated status message does not pay for the frames of these functions. */
static PS_NOINLINE void on_frame(ps_send_endpoint_t *endpoint, uint16_t type, const uint8_t *data,
                                 uint32_t length, const ps_addr_t *from)
{
    ps_sender_t *sender = endpoint->sender;
    switch (type) {
    case PS_TYPE_SM: on_sm(sender, endpoint, data, length, from); break;
    case PS_TYPE_NAK: on_nak(sender, endpoint, data, length); break;
    case PS_TYPE_RTTM: on_rttm(sender, endpoint, data, length); break;
    case PS_TYPE_ERR: on_error(sender, endpoint, data, length, from); break;
    case PS_TYPE_EXT: on_ext(sender, endpoint, data, length); break;
    default: /* DATA, SETUP, RES, RSP_SETUP, EXT without a meaning here: no trace */ break;
    }
}

void ps_sender_on_datagram(void *context, const uint8_t *data, uint32_t length,
                           const ps_addr_t *from, int64_t rx_ns)
{
    ps_send_endpoint_t *endpoint = context;
    uint16_t type = 0;
    (void)rx_ns;
    if (ps_wire_check(data, length, &type) != PS_WIRE_OK) {
        count_invalid(endpoint);
    } else if (type != PS_TYPE_SM || !repeats(endpoint->sender, endpoint, data, length, from)) {
        on_frame(endpoint, type, data, length, from);
    }
}
