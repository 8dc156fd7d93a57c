/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver_dispatch.c: finds the session of a datagram. No input is trusted before it is
 * checked: an invalid datagram is counted, and a datagram of no subscribed stream is ignored. */
#include "ps_receiver.h"
#include "ps_assert.h"

#include <string.h>

#include "ps_wire_fields.h"

static const ps_recv_destination_t *as_destination(void *context)
{
    return (const ps_recv_destination_t *)context;
}

/* DATA of a subscribed session without an image: requests a SETUP from its sender, once a
 * time-out. */
static void on_unknown_data(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                            const ps_data_t *first, const ps_addr_t *from)
{
    ps_recv_endpoint_t *endpoint = destination->endpoint;
    ps_session_t *session;

    if ((first->is_heartbeat && (first->flags & PS_FLAG_EOS) != 0) ||
        !ps_recv_endpoint_wants(endpoint, first->stream_id, first->session_id)) {
        return;
    }
    session = ps_recv_endpoint_insert(endpoint, first->stream_id, first->session_id,
                                      PS_SESSION_PENDING_SETUP);
    if (session == NULL) {
        return; /* table full of strangers: those entries time out */
    }
    session->deadline_ns = receiver->now_ns + receiver->params->pending_setup_timeout_ns;
    if (session->deadline_ns < endpoint->pending_due_ns) {
        endpoint->pending_due_ns = session->deadline_ns;
    }
    ps_receiver_timer(receiver, session->deadline_ns);
    ps_recv_endpoint_elicit(receiver, destination, ps_recv_destination_reply_to(destination, from),
                            first->stream_id, first->session_id, receiver->now_ns);
}

static void on_data(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                    const uint8_t *data, uint32_t length, const ps_addr_t *from, int64_t rx_ns)
{
    ps_session_t *session;
    ps_data_t first;
    int fault = ps_wire_data(data, length, &first);

    if (fault == PS_WIRE_OK) {
        session = ps_recv_endpoint_find(destination->endpoint, first.stream_id, first.session_id);
        if (session == NULL) {
            on_unknown_data(receiver, destination, &first, from);
        } else if (session->state == PS_SESSION_ACTIVE) {
            fault =
                ps_image_on_data(session->image, destination, &first, data, length, from, rx_ns);
        }
    }
    if (fault != PS_WIRE_OK) {
        ps_receiver_fault(receiver, fault);
    }
}

static void report_setup(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                         ps_session_t *session, const ps_setup_t *setup, const ps_addr_t *from)
{
    ps_event_t event = { .type = PS_EV_SETUP,
                         .kind = PS_KIND_RECV_ENDPOINT,
                         .id = destination->endpoint->params.id,
                         .now_ns = receiver->now_ns,
                         .session_id = setup->session_id,
                         .stream_id = setup->stream_id,
                         .setup = { .source = *from,
                                    .destination = destination->index,
                                    .initial_term_id = setup->initial_term_id,
                                    .active_term_id = setup->active_term_id,
                                    .term_offset = setup->term_offset,
                                    .term_length = setup->term_length,
                                    .mtu = setup->mtu,
                                    .ttl = setup->ttl,
                                    .flags = setup->flags,
                                    .peer_capabilities = setup->trailer.capabilities,
                                    .peer_ordinal = -1,
                                    .peer_flow_control = setup->trailer.flow_control,
                                    .peer_group_tag = setup->trailer.group_tag,
                                    .peer_policy = setup->trailer.policy,
                                    .peer_depth_bytes = setup->trailer.depth_bytes,
                                    .peer_depth_messages = setup->trailer.depth_messages,
                                    .peer_credit_weight = (int32_t)setup->trailer.credit_weight,
                                    .peer_priority = setup->trailer.priority,
                                    .retention_bytes = setup->trailer.retention_bytes,
                                    .retention_ns = setup->trailer.retention_ns,
                                    .relay_path = setup->trailer.relay_path } };

    PS_ASSERT(destination->index >= 0 && destination->index < PS_RECV_DESTINATIONS_MAX);
    if ((setup->trailer.capabilities & PS_CAP_ORDINALS) != 0) {
        event.setup.peer_ordinal = setup->trailer.ordinal;
    }
    if (ps_agent_emit(receiver->agent, &event)) {
        session->peer_daemon_id = setup->trailer.daemon_id;
        session->peer_daemon_epoch = setup->trailer.daemon_epoch;
        if (destination->multicast && destination->ttl > 0 && setup->ttl > 0 &&
            destination->ttl != setup->ttl) {
            ps_system_add(receiver->context, PS_SYS_TTL_ASYMMETRY, 1);
        }
    } else {
        ps_recv_endpoint_erase(destination->endpoint, session); /* the next SETUP tries again */
    }
}

/* Returns a handle if the session can be reported: there is room for a half-open session, and the
 * rate of new sessions is not exceeded. 0: not now; the sender repeats its SETUP. */
static int32_t admit(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, const ps_addr_t *from)
{
    const int64_t now_ns = receiver->now_ns;
    ps_image_t *victim = NULL;
    int32_t handle;

    if (endpoint->setup_due_ns < now_ns) {
        endpoint->setup_due_ns = now_ns;
    }
    if (endpoint->setup_due_ns - now_ns >= PS_SETUP_BURST * PS_SETUP_INTERVAL_NS) {
        receiver->half_open.refused++;
        return 0;
    }
    handle = ps_half_open_enter(&receiver->half_open, from, now_ns, &victim);
    if (victim != NULL) {
        victim->half_open = 0;
        ps_image_end(victim, PS_END_EVICTED);
    }
    if (handle != 0) {
        endpoint->setup_due_ns += PS_SETUP_INTERVAL_NS;
    }
    return handle;
}

/* An unknown session, or one that was requested a SETUP. */
static void on_new_session(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                           ps_session_t *session, const ps_setup_t *setup, const ps_addr_t *from)
{
    ps_recv_endpoint_t *endpoint = destination->endpoint;
    int32_t handle;

    if (session == NULL && ps_recv_endpoint_is_full(endpoint)) {
        return; /* the table is full */
    }
    if (!ps_left_source_admits(destination, setup->stream_id, setup->session_id, from)) {
        return; /* a stranger's: the sender is alive */
    }
    handle = admit(receiver, endpoint, from);
    if (handle == 0) {
        return;
    }
    if (session == NULL) {
        session =
            ps_recv_endpoint_insert(endpoint, setup->stream_id, setup->session_id, PS_SESSION_INIT);
    }
    if (session == NULL) {
        ps_half_open_leave(&receiver->half_open, handle);
        return;
    }
    ps_recv_endpoint_set_state(endpoint, session, PS_SESSION_INIT);
    session->half_open = handle;
    report_setup(receiver, destination, session, setup, from);
}

static int on_setup(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                    const uint8_t *data, uint32_t length, const ps_addr_t *from)
{
    ps_recv_endpoint_t *endpoint = destination->endpoint;
    ps_session_t *session;
    ps_setup_t setup;
    int fault = ps_wire_setup(data, length, &setup);

    if (fault != PS_WIRE_OK) {
        return fault;
    }
    session = ps_recv_endpoint_find(endpoint, setup.stream_id, setup.session_id);
    if (session == NULL) {
        if (!ps_recv_endpoint_wants(endpoint, setup.stream_id, setup.session_id)) {
            return PS_WIRE_OK;
        }
    }
    if (session == NULL || session->state == PS_SESSION_PENDING_SETUP) {
        on_new_session(receiver, destination, session, &setup, from);
    } else if (session->state == PS_SESSION_ACTIVE) {
        return ps_image_on_setup(session->image, destination, &setup, from);
    }
    return PS_WIRE_OK;
}

static int on_rttm(const ps_recv_destination_t *destination, const uint8_t *data, uint32_t length,
                   const ps_addr_t *from)
{
    ps_session_t *session;
    ps_rttm_t rttm;
    int fault = ps_wire_rttm(data, length, &rttm);

    if (fault != PS_WIRE_OK) {
        return fault;
    }
    session = ps_recv_endpoint_find(destination->endpoint, rttm.stream_id, rttm.session_id);
    if (session != NULL && session->state == PS_SESSION_ACTIVE) {
        ps_image_on_rttm(session->image, destination, &rttm, from);
    }
    return PS_WIRE_OK;
}

static int on_ext(const ps_recv_destination_t *destination, const uint8_t *data, uint32_t length,
                  const ps_addr_t *from)
{
    ps_session_t *session;
    ps_credit_frame_t credit;
    int fault;

    if (ps_wire_ext_subtype(data, length) != PS_EXT_CREDIT) {
        return PS_WIRE_OK; /* of a later version: no trace */
    }
    fault = ps_wire_credit(data, length, &credit);
    if (fault != PS_WIRE_OK) {
        return fault;
    }
    session = ps_recv_endpoint_find(destination->endpoint, credit.stream_id, credit.session_id);
    if (session != NULL && session->state == PS_SESSION_ACTIVE) {
        ps_image_on_credit(session->image, destination, &credit, from);
    }
    return PS_WIRE_OK;
}

void ps_receiver_on_datagram(void *context, const uint8_t *data, uint32_t length,
                             const ps_addr_t *from, int64_t rx_ns)
{
    const ps_recv_destination_t *destination = as_destination(context);
    ps_receiver_t *receiver = destination->endpoint->receiver;
    uint16_t type = 0;
    int fault = ps_wire_check(data, length, &type);

    receiver->bytes_received += length;
    if (fault == PS_WIRE_OK) {
        switch (type) {
        case PS_TYPE_PAD:
        case PS_TYPE_DATA: on_data(receiver, destination, data, length, from, rx_ns); return;
        case PS_TYPE_SETUP: fault = on_setup(receiver, destination, data, length, from); break;
        case PS_TYPE_RTTM: fault = on_rttm(destination, data, length, from); break;
        case PS_TYPE_EXT: fault = on_ext(destination, data, length, from); break;
        default: return; /* what belongs on a sender's socket */
        }
    }
    if (fault != PS_WIRE_OK) {
        ps_receiver_fault(receiver, fault);
    }
}

enum { STREAK = 4, STREAK_BYTES = PS_DIRECT_LEAST };

/* Notes whether the traffic is plain: long buffers of one stream in order. */
static void note_run(ps_recv_endpoint_t *endpoint, uint32_t taken, uint32_t length)
{
    bool plain = taken == length && length >= STREAK_BYTES;

    endpoint->streak = plain ? endpoint->streak + (endpoint->streak < STREAK) : 0;
}

static bool prepare(void *context, ps_direct_range_t *out)
{
    const ps_recv_endpoint_t *endpoint = as_destination(context)->endpoint;
    const ps_session_t *session = endpoint->cached;

    return endpoint->streak >= STREAK && session != NULL && session->state == PS_SESSION_ACTIVE &&
           ps_image_direct_range(session->image, out);
}

static uint32_t received(void *context, const ps_direct_range_t *range, uint64_t first_word,
                         uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns,
                         uint64_t *next_word)
{
    const ps_recv_destination_t *destination = as_destination(context);
    uint32_t taken = ps_image_on_direct(destination->endpoint->cached->image, destination, range,
                                        first_word, length, segment, from, next_word);

    (void)rx_ns; /* streams with time stamps never land */
    note_run(destination->endpoint, taken, length);
    destination->endpoint->receiver->bytes_received += taken;
    return taken;
}

const ps_direct_t ps_receiver_direct = { prepare, received };

/* Bytes of a run that its image took in one piece. */
static uint32_t take_run(const ps_recv_destination_t *destination, const uint8_t *data,
                         uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns)
{
    const ps_session_t *session;
    int32_t ids[2];

    if (length <= PS_HEADER_BYTES) { /* too short, or a heartbeat */
        return 0;
    }
    memcpy(ids, data + 12, sizeof(ids)); /* session, stream */
    session = ps_recv_endpoint_find(destination->endpoint, ids[1], ids[0]);
    if (session == NULL || session->state != PS_SESSION_ACTIVE) {
        return 0;
    }
    return ps_image_on_run(session->image, destination, data, length, segment, from, rx_ns);
}

void ps_receiver_on_run(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                        const ps_addr_t *from, int64_t rx_ns)
{
    const ps_recv_destination_t *destination = as_destination(context);
    ps_receiver_t *receiver = destination->endpoint->receiver;
    uint32_t at = 0;

    do { /* an empty datagram is one too */
        uint32_t size = length - at < segment ? length - at : segment;
        uint32_t taken = take_run(destination, data + at, length - at, segment, from, rx_ns);

        note_run(destination->endpoint, taken, length);
        if (taken > 0) {
            receiver->bytes_received += taken;
        } else {
            ps_receiver_on_datagram(context, data + at, size, from, rx_ns);
            taken = size;
        }
        at += taken;
    } while (at < length);
}
