/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_timers.c: timers of an image: liveness, status messages, draining, tethers, and events
 * that did not fit into the ring. */
#include <string.h>

#include "ps_image.h"
#include "ps_receiver.h"

#define OUTRUN_CHECK_NS INT64_C(5000000)

void ps_image_send_error(ps_image_t *image, int64_t now_ns)
{
    ps_receiver_t *receiver = image->receiver;
    ps_err_t error = { .session_id = image->params.session_id,
                       .stream_id = image->params.stream_id,
                       .code = PS_ERR_IMAGE_REJECTED,
                       .text = (const uint8_t *)image->reject_text,
                       .text_length = (int32_t)strlen(image->reject_text) };

    image->error_due_ns = now_ns + receiver->params->status_message_timeout_ns;
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX && image->endpoint != NULL; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(receiver, destination, &image->connections[i].control);

            error.receiver_id = image->endpoint->params.receiver_id;
            error.has_group_tag = image->endpoint->params.has_group_tag;
            error.group_tag = error.has_group_tag ? image->endpoint->params.group_tag : -1;
            ps_receiver_outbox_commit(receiver, ps_wire_build_err(frame, &error));
            ps_system_add(image->context, PS_SYS_ERROR_FRAMES_SENT, 1);
        }
    }
}

static void notify_subscriber(ps_image_t *image, ps_image_subscriber_t *subscriber)
{
    ps_event_t event = { .type = PS_EV_SUBSCRIBER,
                         .subscriber = { .position_counter_id = subscriber->position_counter_id,
                                         .state = subscriber->tether.state } };

    subscriber->event_pending = !ps_image_emit(image, &event);
}

void ps_image_tether(ps_image_t *image, int64_t now_ns)
{
    const ps_tether_timeouts_t timeouts = { .window_limit_ns =
                                                image->params.untethered_window_limit_timeout_ns,
                                            .linger_ns = image->params.untethered_linger_timeout_ns,
                                            .resting_ns =
                                                image->params.untethered_resting_timeout_ns };

    for (int32_t i = 0; i < image->n_subscribers; i++) {
        ps_image_subscriber_t *subscriber = &image->subscribers[i];
        int64_t position = atomic_load_explicit(subscriber->position, memory_order_acquire);

        /* Do this before the step: a resting reader must not influence the position at which
         * readers rejoin. */
        int64_t join = subscriber->tether.state == PS_TETHER_RESTING
                           ? ps_image_rejoin_position(image)
                           : position;

        if (ps_tether_step(&subscriber->tether, position, image->fastest, image->window, &timeouts,
                           now_ns)) {
            if (subscriber->tether.state == PS_TETHER_ACTIVE) {
                /* The client of a resting reader does not poll, so this thread may set its
                 * position. */
                atomic_store_explicit(subscriber->position, join, memory_order_release);
            }
            subscriber->event_pending = 1;
            ps_receiver_make_hot(image->receiver, image); /* the slowest may be another now */
        }
        if (subscriber->event_pending) {
            notify_subscriber(image, subscriber);
        }
        if (!subscriber->tether.tethered) {
            ps_image_timer(image, now_ns + ps_tether_check_ns(&timeouts));
        }
    }
}

/* Every gating subscriber has read what is complete. */
static bool is_read_out(const ps_image_t *image)
{
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];

        if (ps_tether_gates(&subscriber->tether) &&
            atomic_load_explicit(subscriber->position, memory_order_acquire) < image->position) {
            return false;
        }
    }
    return true;
}

static void tick_draining(ps_image_t *image, int64_t now_ns)
{
    /* An outrun reader continues as soon as it has read the remaining data. */
    const bool outrun = image->end_reason == PS_END_OUTRUN;
    int64_t phase_ns = outrun ? 0 : 5 * image->receiver->params->status_message_timeout_ns;

    if (image->drain_ns == 0) {
        return; /* the next cycle starts it */
    }
    const bool counted = image->ordinal < 0 || image->ordinal_position >= image->position;

    if (counted &&
        (image->revoked || (is_read_out(image) && now_ns - image->drain_ns >= phase_ns))) {
        if (outrun) {
            ps_image_remember(image);
        }
        image->state = PS_IMAGE_DRAINED;
        image->event_taken = 0;
    } else if (outrun) {
        ps_image_timer(image, now_ns + OUTRUN_CHECK_NS);
    } else if (now_ns - image->drain_ns < phase_ns) {
        ps_image_timer(image, image->drain_ns + phase_ns);
    }
}

static void tick_events(ps_image_t *image, int64_t now_ns)
{
    ps_event_t event = { .type = PS_EV_IMAGE_INACTIVE,
                         .ended = { .position = image->position,
                                    .messages = ps_image_end_ordinal(image),
                                    .reason = image->end_reason } };

    if (image->established && !image->established_taken && !ps_image_report_established(image)) {
        return; /* this one comes first */
    }
    if (image->event_taken ||
        (image->state != PS_IMAGE_ENDED && image->state != PS_IMAGE_DRAINED)) {
        return;
    }
    if (image->state == PS_IMAGE_DRAINED) {
        event.type = PS_EV_IMAGE_DRAINED;
    }
    image->event_taken = ps_image_emit(image, &event);
    if (!image->event_taken) {
        ps_image_timer(image, now_ns + PS_TICK_NS);
    }
}

/* A join that was never completed must not keep memory reserved permanently. */
static void tick_join_hold(ps_image_t *image, int64_t now_ns)
{
    int64_t hold = atomic_load_explicit(&image->join_hold, memory_order_acquire);

    if (hold == PS_JOIN_HOLD_NONE) {
        image->hold_since_ns = 0;
    } else if (image->hold_since_ns == 0) {
        image->hold_since_ns = now_ns;
    } else if (now_ns - image->hold_since_ns >= PS_JOIN_HOLD_NS) {
        (void)atomic_compare_exchange_strong(&image->join_hold, &hold, PS_JOIN_HOLD_NONE);
    }
}

static void tick_transports(ps_image_t *image, int64_t now_ns)
{
    const int32_t end =
        image->endpoint != NULL ? image->endpoint->destinations_end : PS_RECV_DESTINATIONS_MAX;
    int32_t live = 0;

    for (int32_t i = 0; i < end; i++) {
        live += ps_image_connection_live(image, i, now_ns);
    }
    atomic_store_explicit(&image->log.meta->transport_count, live, memory_order_release);
}

static void tick_liveness(ps_image_t *image, int64_t now_ns)
{
    int64_t dead_ns = image->packet_ns + image->receiver->params->image_liveness_timeout_ns;

    if (image->state != PS_IMAGE_ACTIVE) {
        return;
    }
    if (now_ns >= dead_ns) {
        ps_image_end(image, image->rejected ? PS_END_REJECTED : PS_END_TIMEOUT);
    } else {
        ps_image_timer(image, dead_ns);
    }
    if (image->ending) { /* a cycle looks, and wakes the readers: an end may be believed by now */
        ps_receiver_make_hot(image->receiver, image);
    }
}

static void tick_status(ps_image_t *image, int64_t now_ns)
{
    if (image->rejected) {
        if (image->state == PS_IMAGE_ACTIVE) {
            if (now_ns >= image->error_due_ns) {
                ps_image_send_error(image, now_ns);
            }
            ps_image_timer(image, image->error_due_ns);
        } else if (image->state == PS_IMAGE_DRAINING) { /* its readers may read on, or leave */
            ps_image_timer(image, now_ns + image->receiver->params->status_message_timeout_ns);
        }
    } else if (image->state < PS_IMAGE_DRAINED) {
        if (image->end_reason == PS_END_OUTRUN) {
            return; /* the sender would mistake its position or end for that of the stream */
        }
        if (now_ns >= image->sm_due_ns) {
            if (image->sm_postponed) { /* a cycle must state the wake position again */
                ps_receiver_make_hot(image->receiver, image);
            }
            ps_image_consumption(image);
            (void)ps_image_update_window(image, now_ns);
            ps_image_send_sm(image, now_ns);
        }
        ps_image_timer(image, image->sm_due_ns);
    }
}

void ps_image_tick(ps_image_t *image, int64_t now_ns)
{
    image->next_due_ns = image->resting ? ps_image_rest(image, now_ns) : 0;
    if (image->next_due_ns != 0) {
        return;
    }
    image->next_due_ns = INT64_MAX;
    if (!image->started) {
        ps_image_timer(image, now_ns + PS_TICK_NS);
        return; /* its first cycle comes next */
    }
    ps_image_tether(image, now_ns);
    if (ps_image_under_nak(image)) {
        ps_image_consumption(image);
        (void)ps_image_pressure(image, now_ns);
    } else if (image->n_isolated != 0) { /* their data becomes old while the stream is idle */
        ps_image_consumption(image);
    }
    tick_liveness(image, now_ns);
    ps_image_source_tick(image, now_ns);
    if (image->state == PS_IMAGE_DRAINING) {
        tick_draining(image, now_ns);
    }
    tick_events(image, now_ns);
    tick_status(image, now_ns);
    ps_image_credit_tick(image, now_ns);
    tick_join_hold(image, now_ns);
    tick_transports(image, now_ns);
    ps_image_check_storage(image);
    if (image->lost_bytes > 0) {
        ps_image_report_loss(image, now_ns);
    }
    if (image->release_pending) {
        ps_image_report_released(image, now_ns);
    }
    ps_image_check_rest(image, now_ns);
}
