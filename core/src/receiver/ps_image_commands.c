/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_commands.c: the conductor's commands to images: handed over, taken back, subscribers,
 * draining, rejection.
 */
#include <string.h>

#include "ps_image.h"
#include "ps_assert.h"
#include "ps_receiver.h"

static void add_image(ps_receiver_t *receiver, ps_image_t *image)
{
    ps_recv_endpoint_t *endpoint = image->endpoint;
    const ps_image_params_t *params = &image->params;
    ps_session_t *session = ps_recv_endpoint_find(endpoint, params->stream_id, params->session_id);

    PS_ASSERT(receiver->n_images < receiver->images_limit);
    image->receiver = receiver;
    image->index = receiver->n_images;
    receiver->images[receiver->n_images++] = image;
    ps_timers_add(&receiver->timers, &image->timer, image->next_due_ns);
    if (session == NULL) {
        session = ps_recv_endpoint_insert(endpoint, params->stream_id, params->session_id,
                                          PS_SESSION_INIT);
    }
    if (session != NULL) {
        ps_recv_endpoint_set_state(endpoint, session, PS_SESSION_ACTIVE);
        session->image = image;
        image->peer.daemon_id = session->peer_daemon_id;
        image->peer.daemon_epoch = session->peer_daemon_epoch;
        image->half_open = session->half_open;
        session->half_open = 0;
    }
    if (params->destination >= 0 && params->destination < PS_RECV_DESTINATIONS_MAX &&
        endpoint->destinations[params->destination] != NULL && params->source.family != 0) {
        ps_connection_t *connection = &image->connections[params->destination];

        connection->established = 1;
        connection->source = params->source;
        connection->activity_ns = receiver->now_ns;
        connection->furthest = -1;
        connection->low_position = -1;
        connection->control = *ps_recv_destination_reply_to(
            endpoint->destinations[params->destination], &params->source);
    }
    image->born_ns = receiver->now_ns;
    if (image->half_open != 0) {
        ps_half_open_answered(&receiver->half_open, image->half_open, image);
    }
    image->force_sm = 1;
    ps_receiver_make_hot(receiver, image);
}

static void remove_image(ps_receiver_t *receiver, ps_image_t *image, bool keep)
{
    ps_recv_endpoint_t *endpoint = image->endpoint;
    ps_session_t *session = NULL;

    if (endpoint != NULL) {
        session =
            ps_recv_endpoint_find(endpoint, image->params.stream_id, image->params.session_id);
    }
    if (session != NULL && session->image == image) {
        session->image = NULL;
        if (keep && ps_recv_endpoint_wants(endpoint, session->stream_id, session->session_id)) {
            ps_recv_endpoint_keep(receiver, endpoint, session, PS_SESSION_COOL_DOWN);
        } else {
            ps_recv_endpoint_erase(endpoint, session);
        }
    }
    ps_half_open_leave(&receiver->half_open, image->half_open);
    image->half_open = 0;
    ps_receiver_forget_image(receiver, image);
    ps_receiver_release(receiver, PS_KIND_IMAGE, image->params.id, 0);
}

static void limit_messages(const ps_image_t *image, ps_image_subscriber_t *reader,
                           int64_t depth_messages)
{
    const int64_t position = ps_image_position_of(image, reader);
    ps_isolation_limit(&reader->isolation, depth_messages, 0,
                       position >= image->free_to && position <= image->position ? position
                                                                                 : image->position);
}

static void add_subscriber(ps_image_t *image, const ps_subscriber_params_t *params)
{
    ps_image_subscriber_t *subscriber;

    PS_ASSERT(image->n_subscribers < PS_IMAGE_SUBSCRIBERS_MAX);
    subscriber = &image->subscribers[image->n_subscribers++];
    *subscriber = (ps_image_subscriber_t){ .position = ps_counter_cell(image->context->params.cnc,
                                                                       params->position_counter_id),
                                           .position_counter_id = params->position_counter_id,
                                           .client_slot = params->client_slot,
                                           .slot = params->slot };
    subscriber->cell = subscriber->position;
    ps_tether_init(&subscriber->tether, params->tether != 0, params->rejoin != 0,
                   image->receiver->now_ns);
    if (params->isolated && params->slot >= 0 &&
        params->slot < image->receiver->shared->n_subscribers) {
        ps_isolation_init(&subscriber->isolation,
                          &image->receiver->shared->subscribers[params->slot], params->depth_bytes,
                          image->params.window_bytes);
        limit_messages(image, subscriber, params->depth_messages);
        ps_isolation_mark(&subscriber->isolation, image->free_to, image->position,
                          image->receiver->now_ns);
        image->n_isolated++;
    }
    ps_image_credit_join(image, subscriber, params);
    const ps_pressure_learned_t learned = ps_image_recall(image);
    subscriber->reader.term = image->log.term_length;
    subscriber->reader.cadence_ns = learned.cadence_ns;
    subscriber->reader.rate = learned.rate;
    /* A reader that was outrun takes what it took then, until its first batch tells more. */
    subscriber->reader.at_least = learned.at_least;
    subscriber->reader.residue = learned.rate > 0;
    if (params->tether == 0) {
        ps_image_timer(image, image->receiver->now_ns); /* the image is checked from now on */
    }
    atomic_store_explicit(&image->join_hold, PS_JOIN_HOLD_NONE, memory_order_release);
    image->wake = 1; /* data may be there already */
    ps_receiver_make_hot(image->receiver, image);
}

static void remove_subscriber(ps_image_t *image, int32_t position_counter_id)
{
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        if (image->subscribers[i].position_counter_id == position_counter_id) {
            image->n_isolated -= image->subscribers[i].isolation.slot != NULL;
            image->subscribers[i] = image->subscribers[--image->n_subscribers];
            ps_image_credit_leave(image);
            if (image->n_subscribers == 0) {
                ps_image_end(image, PS_END_NO_SUBSCRIBER);
            }
            break;
        }
    }
    ps_receiver_make_hot(image->receiver, image); /* the slowest may have gone */
}

static void drain(ps_image_t *image)
{
    if (image->state < PS_IMAGE_DRAINING) {
        image->state = PS_IMAGE_DRAINING;
        image->event_taken = 0;
        image->drain_ns = 0; /* set by the next cycle */
        image->force_sm = 1;
        ps_receiver_make_hot(image->receiver, image);
    }
}

static void reject(ps_image_t *image, const char *reason)
{
    if (!image->rejected) {
        image->rejected = 1;
        memcpy(image->reject_text, reason, sizeof(image->reject_text));
        image->reject_text[sizeof(image->reject_text) - 1] = '\0';
        image->error_due_ns = image->receiver->now_ns;
        ps_system_add(image->context, PS_SYS_IMAGES_REJECTED, 1);
        ps_image_timer(image, image->error_due_ns);
    }
}

bool ps_image_on_command(ps_receiver_t *receiver, const ps_command_t *command)
{
    ps_image_t *image = command->image;

    if (command->type > PS_RCMD_ADD_IMAGE && image->index == -1) {
        return true; /* the conductor frees it as soon as it hears that it was removed */
    }
    if (command->type >= PS_RCMD_ADD_IMAGE) { /* the commands that concern an image */
        image->resting = 0;
    }
    switch (command->type) {
    case PS_RCMD_ADD_IMAGE: add_image(receiver, image); break;
    case PS_RCMD_REMOVE_IMAGE: remove_image(receiver, image, command->keep_session); break;
    case PS_RCMD_ADD_SUBSCRIBER: add_subscriber(image, &command->subscriber); break;
    case PS_RCMD_REMOVE_SUBSCRIBER: remove_subscriber(image, command->position_counter_id); break;
    case PS_RCMD_DRAIN_IMAGE: drain(image); break;
    case PS_RCMD_REJECT_IMAGE: reject(image, command->reason); break;
    case PS_RCMD_RESERVED:
        if (command->reserved_position > image->reserved_position) {
            image->reserved_position = command->reserved_position;
            image->term_event_taken = 0;
            image->force_sm |= image->sent_bound;  /* the sender waits for the new window */
            ps_receiver_make_hot(receiver, image); /* it may need more already */
        }
        break;
    case PS_RCMD_SET_WINDOW:
        ps_congestion_set(&image->congestion, command->window_bytes, receiver->now_ns);
        ps_receiver_make_hot(receiver, image);
        break;
    case PS_RCMD_SET_SHARE:
        image->window_share = command->window_bytes;
        ps_receiver_make_hot(receiver, image);
        break;
    case PS_RCMD_SET_CREDITS: ps_image_credit_change(image, &command->credits); break;
    case PS_RCMD_RELEASE_TERMS: ps_image_on_release_terms(image, command->least_terms); break;
    default: return false;
    }
    return true;
}
