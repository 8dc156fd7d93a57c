/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_source.c: chooses the source whose frames count. Each connection of an image follows one
 * source address (docs/trust.md, docs/decisions/0070).
 *
 *   SETUP ---> followed, not confirmed ---data or heartbeat in the window---> confirmed
 *
 * The receiver leaves a confirmed source that was silent for the connection time-out. It also
 * leaves it when a SETUP of a new daemon on the same directory arrives: from another port of the
 * same IP address, with the same daemon id and a later epoch. A directory is on one host, so such a
 * SETUP from another IP address is a stranger's. A source that sent a SETUP only, or that an
 * adopted image knows from its journal, is left when it was silent for SETUP_ONLY_NS. Frames of
 * other sources are counted and dropped.
 *
 * Capabilities of the sender change what the receiver sends, so one SETUP does not change them
 * while its source is followed: the receiver requests SETUPs until two in a row agree.
 */
#include "ps_addr.h"
#include "ps_image.h"
#include "ps_receiver.h"

#define SETUP_ONLY_NS INT64_C(1000000000)
#define CHECK_NS      INT64_C(1000000000)
enum { CHECKS = 5 };

/* ---- which source is followed ---------------------------------------------------------------- */

static bool is_source(const ps_connection_t *connection, const ps_addr_t *from)
{
    return ps_addr_equal(&connection->source, from);
}

/* Returns true if no other source may replace the followed one. */
static bool is_held(const ps_image_t *image, const ps_connection_t *connection)
{
    int64_t silent_ns = image->receiver->now_ns - connection->activity_ns;

    if (!connection->established || connection->source.family == 0) {
        return false;
    }
    if (connection->confirmed) {
        return silent_ns < image->receiver->params->connection_timeout_ns;
    }
    return silent_ns < SETUP_ONLY_NS;
}

/* Both sources are alive: the followed one was heard after the other. An adopted publication that
 * continues with another port sends data before its SETUP arrives, and is no second source. */
static void notify_stranger(ps_image_t *image, int32_t index)
{
    ps_connection_t *connection = &image->connections[index];
    ps_event_t event = { .type = PS_EV_SECOND_SOURCE,
                         .second_source = { .source = connection->stranger,
                                            .datagrams = image->foreign,
                                            .destination = index } };

    /* A full ring: the next frame of the followed source notifies. */
    connection->stranger_notified = ps_image_emit(image, &event);
}

void ps_image_count_foreign(ps_image_t *image, int32_t index, const ps_addr_t *from)
{
    image->foreign++;
    atomic_store_explicit(&image->shown_foreign, image->foreign, memory_order_relaxed);
    if (!image->connections[index].stranger_seen) {
        image->connections[index].stranger = *from;
        image->connections[index].stranger_seen = 1;
    }
}

bool ps_image_admits(const ps_image_t *image, int32_t index, const ps_addr_t *from)
{
    const ps_connection_t *connection = &image->connections[index];

    return is_source(connection, from) || !is_held(image, connection);
}

static void follow(ps_image_t *image, const ps_recv_destination_t *destination,
                   const ps_addr_t *from, bool confirmed)
{
    ps_connection_t *connection = &image->connections[destination->index];

    *connection = (ps_connection_t){ .control = *ps_recv_destination_reply_to(destination, from),
                                     .source = *from,
                                     .activity_ns = image->receiver->now_ns,
                                     .furthest = -1,
                                     .low_position = -1,
                                     .established = 1,
                                     .confirmed = confirmed };
    image->force_sm = 1; /* a new connection to the sender: state the position */
    ps_receiver_make_hot(image->receiver, image);
}

/* ---- capabilities of the sender -------------------------------------------------------------- */

static void check(ps_image_t *image, int32_t index)
{
    ps_peer_t *peer = &image->peer;
    int64_t now_ns = image->receiver->now_ns;
    const ps_recv_destination_t *destination =
        image->endpoint != NULL ? image->endpoint->destinations[index] : NULL;

    peer->index = index;
    if (now_ns < peer->due_ns) {
        ps_image_timer(image, peer->due_ns);
        return;
    }
    peer->checks--;
    peer->due_ns = now_ns + CHECK_NS;
    ps_image_timer(image, peer->due_ns);
    if (destination != NULL && ps_image_connection_live(image, index, now_ns)) {
        ps_recv_endpoint_elicit(image->receiver, destination, &image->connections[index].control,
                                image->params.stream_id, image->params.session_id, now_ns);
    }
}

static void believe(ps_image_t *image, const ps_trailer_t *said)
{
    image->peer_capabilities = said->capabilities;
    image->peer.daemon_id = said->daemon_id;
    image->peer.daemon_epoch = said->daemon_epoch;
    image->peer.candidate = said->capabilities;
    image->peer.checks = 0;
    image->peer.unknown = 0;
    image->peer.changed = 0;
}

/* The receiver follows another source because of its data; its capabilities are unknown until its
 * SETUP. */
static void forget_peer(ps_image_t *image, int32_t index)
{
    believe(image, &(ps_trailer_t){ 0 });
    image->peer.unknown = 1;
    image->peer.checks = CHECKS;
    check(image, index);
}

static bool is_new_daemon(const ps_image_t *image, const ps_trailer_t *said)
{
    return said->capabilities != 0 && said->daemon_id != 0 &&
           said->daemon_id == image->peer.daemon_id &&
           said->daemon_epoch > image->peer.daemon_epoch;
}

/* Returns true if a SETUP may change the source at once: a new daemon of the directory could not
 * bind the port of the previous one. */
static bool succeeds(const ps_image_t *image, const ps_connection_t *connection,
                     const ps_trailer_t *said, const ps_addr_t *from)
{
    return is_new_daemon(image, said) && ps_addr_same_ip(&connection->source, from);
}

/* A SETUP of the followed source. */
static void weigh(ps_image_t *image, int32_t index, const ps_trailer_t *said)
{
    ps_peer_t *peer = &image->peer;
    bool known = said->daemon_id == peer->daemon_id && said->daemon_epoch == peer->daemon_epoch;

    if (peer->unknown || is_new_daemon(image, said)) {
        believe(image, said);
        return;
    }
    if (said->capabilities == image->peer_capabilities && (known || !peer->daemon_id)) {
        if (!peer->changed || peer->checks == 0) {
            believe(image, said);
        }
        return;
    }
    if (peer->checks > 0 && said->capabilities == peer->candidate) {
        believe(image, said);
        /* Both may be forged: the receiver continues to request SETUPs, even if others agree. */
        peer->changed = 1;
    }
    peer->candidate = said->capabilities;
    peer->checks = CHECKS;
    check(image, index);
}

/* ---- frames ---------------------------------------------------------------------------------- */

void ps_image_touch(ps_image_t *image, const ps_recv_destination_t *destination,
                    const ps_addr_t *from, int64_t end)
{
    ps_connection_t *connection = &image->connections[destination->index];
    int64_t now_ns = image->receiver->now_ns;

    if (!is_source(connection, from)) {
        bool another = connection->established && connection->source.family != 0;

        follow(image, destination, from, true);
        if (another) {
            forget_peer(image, destination->index);
        }
    } else if (!ps_image_connection_live(image, destination->index, now_ns)) {
        follow(image, destination, from, true);
    }
    if (connection->stranger_seen && !connection->stranger_notified) {
        notify_stranger(image, destination->index);
    }
    connection->confirmed = 1;
    connection->activity_ns = now_ns;
    if (!image->established) {
        ps_image_establish(image);
        ps_receiver_make_hot(image->receiver, image); /* it may need storage, whatever came */
    }
    if (end > connection->furthest) {
        connection->furthest = end;
        connection->low_position = -1;
        if (connection->eos && end > connection->eos_position) {
            ps_image_withdraw_end(image, connection);
        }
    }
}

static bool contradicts(const ps_image_t *image, const ps_setup_t *setup)
{
    return setup->initial_term_id != image->log.initial_term_id ||
           setup->term_length != image->log.term_length || setup->mtu != image->log.mtu;
}

/* Returns true if data at the SETUP's position could be accepted: at most as far away as heartbeats
 * may be. */
static bool is_near(const ps_image_t *image, const ps_setup_t *setup)
{
    int64_t position = ps_position(setup->active_term_id, setup->term_offset, image->log.shift,
                                   setup->initial_term_id);
    int64_t ahead = position - image->sm_position;

    return ahead >= -(int64_t)image->log.term_length &&
           ahead <= image->log.term_length / 2 + (int64_t)image->log.term_length;
}

static bool is_heard_elsewhere(const ps_image_t *image, int32_t index)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (i != index && ps_image_connection_live(image, i, image->receiver->now_ns)) {
            return true;
        }
    }
    return false;
}

/* Shortens the life of an image that a forged SETUP made, because the session's real sender is
 * refused. */
static void give_way(ps_image_t *image, const ps_recv_destination_t *destination,
                     const ps_addr_t *from)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (image->connections[i].confirmed) {
            return;
        }
    }
    if (image->state == PS_IMAGE_ACTIVE &&
        !is_source(&image->connections[destination->index], from) &&
        image->receiver->now_ns - image->born_ns >= SETUP_ONLY_NS) {
        ps_image_end(image, PS_END_TIMEOUT);
    }
}

int ps_image_on_setup(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_setup_t *setup, const ps_addr_t *from)
{
    ps_connection_t *connection = &image->connections[destination->index];
    int64_t now_ns = image->receiver->now_ns;

    if (contradicts(image, setup)) {
        give_way(image, destination, from);
        return PS_WIRE_BAD_FIELD; /* constant for the life of a session */
    }
    if (image->rejected || image->state != PS_IMAGE_ACTIVE || image->endpoint == NULL) {
        return PS_WIRE_OK;
    }
    image->resting = 0;
    if (is_source(connection, from) && connection->established) {
        if (!ps_image_connection_live(image, destination->index, now_ns)) {
            follow(image, destination, from, false);
        }
        connection->activity_ns = now_ns;
        weigh(image, destination->index, &setup->trailer);
    } else if (is_near(image, setup) && (!is_held(image, connection) ||
                                         succeeds(image, connection, &setup->trailer, from))) {
        bool others = is_heard_elsewhere(image, destination->index);

        follow(image, destination, from, false);
        if (others) { /* what holds for all connections does not change by a new one alone */
            weigh(image, destination->index, &setup->trailer);
        } else {
            believe(image, &setup->trailer);
        }
    } else {
        ps_image_count_foreign(image, destination->index, from);
        return PS_WIRE_OK;
    }
    /* The sender requests it because it does not get status messages: no idle back-off now. */
    image->moved_ns = now_ns;
    if (image->sm_due_ns > image->last_sm_ns + image->receiver->params->status_message_timeout_ns) {
        image->sm_due_ns = image->last_sm_ns + image->receiver->params->status_message_timeout_ns;
        ps_image_timer(image, image->sm_due_ns);
    }
    return PS_WIRE_OK;
}

void ps_image_on_rttm(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_rttm_t *rttm, const ps_addr_t *from)
{
    ps_receiver_t *receiver = image->receiver;
    int64_t sample_ns;

    if (image->endpoint == NULL ||
        (rttm->receiver_id != 0 && rttm->receiver_id != image->endpoint->params.receiver_id)) {
        return;
    }
    if (!ps_image_admits(image, destination->index, from)) {
        ps_image_count_foreign(image, destination->index, from);
        return;
    }
    if ((rttm->flags & PS_RTTM_REPLY) != 0) {
        const ps_addr_t *to = ps_recv_destination_reply_to(destination, from);
        ps_rttm_t reply = *rttm;

        reply.flags = 0;
        reply.reception_delta_ns = 0;
        reply.receiver_id = image->endpoint->params.receiver_id;
        ps_receiver_outbox_commit(
            receiver, ps_wire_build_rttm(ps_receiver_outbox(receiver, destination, to), &reply));
        return;
    }
    if (!is_source(&image->connections[destination->index], from)) {
        return; /* it may be followed next, but its round trip is another one */
    }
    sample_ns =
        ps_rtt_answered(&image->rtt, rttm->echo_ns, rttm->reception_delta_ns, receiver->now_ns);
    if (sample_ns == 0) {
        return; /* not an answer to what we asked */
    }
    image->resting = 0; /* status messages state the round trip */
    if (image->congestion.ops->on_rtt != NULL) {
        image->congestion.ops->on_rtt(&image->congestion, sample_ns, image->rtt.smoothed_ns);
        atomic_store_explicit(image->congestion_rtt_cell, image->rtt.smoothed_ns,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&image->slot->rtt_ns, image->rtt.smoothed_ns, memory_order_relaxed);
}

void ps_image_source_tick(ps_image_t *image, int64_t now_ns)
{
    if (image->peer.checks == 0 || image->state != PS_IMAGE_ACTIVE) {
        return;
    }
    if (now_ns >= image->peer.due_ns) {
        check(image, image->peer.index);
    } else {
        ps_image_timer(image, image->peer.due_ns);
    }
}
