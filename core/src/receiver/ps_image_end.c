/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_end.c: when a stream ends (docs/spec/wire-format.md section 6, docs/decisions/0071).
 *
 * A heartbeat with the EOS flag states an end.  Its source repeats the heartbeat for its linger
 * time, so the receiver can wait for a second one: one datagram alone ends nothing while its source
 * is heard.  An end below what the source had stated before is not noted.  Data or a heartbeat
 * beyond a noted end, or a heartbeat without the flag, withdraws the end.
 */
#include "ps_image.h"
#include "ps_assert.h"
#include "ps_receiver.h"

void ps_image_end(ps_image_t *image, int32_t reason)
{
    ps_event_t event = { .type = PS_EV_IMAGE_INACTIVE,
                         .ended = { .position = image->position,
                                    .messages = ps_image_end_ordinal(image),
                                    .reason = reason } };

    if (image->state != PS_IMAGE_ACTIVE) {
        return;
    }
    PS_ASSERT(reason >= PS_END_OF_STREAM && reason <= PS_END_OUTRUN);
    image->state = PS_IMAGE_ENDED;
    image->end_reason = reason;
    ps_left_source_remember(image);
    image->event_taken = ps_image_emit(image, &event);
    if (!image->event_taken) {
        ps_image_timer(image, image->receiver->now_ns);
    }
}

/* Returns the time from which a stated end counts, if no frame contradicts it until then. */
static int64_t believed_ns(const ps_image_t *image, const ps_connection_t *connection)
{
    const ps_driver_params_t *params = image->receiver->params;
    int64_t interval_ns = params->heartbeat_interval_ns;

    if (!connection->eos_repeated) { /* then its source falls silent: longer than a quiet one */
        interval_ns += params->idle_heartbeat_interval_ns;
    }
    return connection->eos_since_ns + interval_ns;
}

/* The end that all sources state, -1: none, or not yet. */
static int64_t stated_end(ps_image_t *image, bool *revoked)
{
    int64_t now_ns = image->receiver->now_ns;
    int64_t due_ns = now_ns;
    int64_t end = -1;

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_connection_t *connection = &image->connections[i];

        if (connection->eos) {
            int64_t at_ns = believed_ns(image, connection);

            due_ns = at_ns > due_ns ? at_ns : due_ns;
            end = connection->eos_position > end ? connection->eos_position : end;
            *revoked = *revoked || connection->eos_revoked;
        } else if (ps_image_connection_live(image, i, now_ns)) {
            return -1; /* another way to the sender may still carry data */
        }
    }
    if (end >= 0 && due_ns > now_ns) {
        ps_image_timer(image, due_ns);
        return -1;
    }
    return end;
}

static void show_end(ps_image_t *image, int64_t end)
{
    image->end_position = end;
    atomic_store_explicit(&image->log.meta->end_of_stream, end, memory_order_release);
    atomic_store_explicit(&image->shown_end, end, memory_order_release);
    image->wake = 1;
    ps_receiver_make_hot(image->receiver, image);
}

void ps_image_check_end(ps_image_t *image)
{
    bool revoked = false;
    int64_t here = ps_image_contiguous(image);
    int64_t end;

    if (!image->ending || image->state != PS_IMAGE_ACTIVE) {
        return;
    }
    end = stated_end(image, &revoked);
    if (end < 0 || (here < end && !revoked)) {
        return;
    }
    if (revoked) {
        image->revoked = 1;
        atomic_store_explicit(&image->log.meta->is_revoked, 1, memory_order_release);
        ps_system_add(image->context, PS_SYS_IMAGES_REVOKED, 1);
    }
    show_end(image, end > here ? end : here);
    ps_image_end(image, revoked ? PS_END_REVOKED : PS_END_OF_STREAM);
}

void ps_image_on_eos(ps_image_t *image, const ps_recv_destination_t *destination, int64_t position,
                     uint8_t flags)
{
    ps_connection_t *connection = &image->connections[destination->index];
    int64_t now_ns = image->receiver->now_ns;

    if (position < connection->furthest) {
        return; /* its source stated more: the stream continues */
    }
    if (!connection->eos || connection->eos_position != position) {
        connection->eos = 1;
        connection->eos_position = position;
        connection->eos_revoked = 0;
        connection->eos_repeated = 0;
        connection->eos_since_ns = now_ns;
    }
    /* The network may double a datagram; a source that repeats it leaves time between. */
    connection->eos_repeated |=
        2 * (now_ns - connection->eos_since_ns) >= image->receiver->params->heartbeat_interval_ns;
    connection->eos_revoked |= (flags & PS_FLAG_REVOKED) != 0;
    image->ending = 1;
    ps_receiver_make_hot(image->receiver, image); /* the next cycle checks the end, after all
                                                   * messages were counted */
}

void ps_image_withdraw_end(ps_image_t *image, ps_connection_t *connection)
{
    bool ending = false;

    connection->eos = 0;
    for (int32_t i = 0; image->ending && i < PS_RECV_DESTINATIONS_MAX; i++) {
        ending = ending || image->connections[i].eos != 0;
    }
    image->ending = ending;
}

/* A forged or delayed heartbeat may have stated more than its source ever sent.  Nothing would fill
 * that gap, and no end below it would count.  With several connections another may be ahead. */
void ps_image_on_low_heartbeat(ps_image_t *image, ps_connection_t *connection, int64_t position)
{
    const ps_gap_t *last = image->gaps.count > 0 ? &image->gaps.items[image->gaps.count - 1] : NULL;
    const bool again = connection->low_position >= 0 && position >= connection->low_position;

    connection->low_position = position;
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (image->connections[i].established && &image->connections[i] != connection) {
            return;
        }
    }
    if (again && last != NULL && last->to == image->hwm && last->from <= position) {
        ps_image_lower_hwm(image, position);
        connection->furthest = position;
        connection->low_position = -1;
    }
}
