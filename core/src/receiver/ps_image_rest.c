/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_rest.c: what an idle image costs (docs/decisions/0335). An image rests if all data was
 * read, nothing is due but status messages, and each of them would have the same bytes. The image
 * keeps the first of them. The rest ends when the image becomes hot, a command arrives or another
 * timer is set. Before that, a visit of its timers sends the kept bytes and checks for silence. */
#include <string.h>

#include "ps_image.h"
#include "ps_receiver.h"

static bool is_tethered(const ps_image_t *image)
{
    bool tethered = true;

    for (int32_t i = 0; i < image->n_subscribers; i++) {
        tethered = tethered && image->subscribers[i].tether.tethered &&
                   !image->subscribers[i].event_pending;
    }
    return tethered;
}

/* Returns true if each reader has read all, and no status message would state something new. */
static bool is_read(const ps_image_t *image)
{
    return image->gaps.count == 0 && image->position == image->hwm &&
           image->consumption == image->hwm && image->sm_position == image->hwm &&
           image->sent_seen <= image->hwm && image->window == image->sent_window &&
           !image->force_sm && !image->sm_postponed && image->lost_bytes == 0 &&
           (image->ordinal < 0 || image->ordinal_position == image->position);
}

void ps_image_check_rest(ps_image_t *image, int64_t now_ns)
{
    image->sm_length = 0;
    image->resting =
        image->state == PS_IMAGE_ACTIVE && !image->hot && !image->rejected && !image->ending &&
        image->endpoint != NULL && image->endpoint->destinations_end == 1 && is_read(image) &&
        now_ns - image->moved_ns >= image->receiver->params->idle_after_ns &&
        image->params.congestion_control == PS_CC_STATIC && !ps_image_under_nak(image) &&
        !ps_image_has_credits(image) && image->n_isolated == 0 && image->n_subscribers > 0 &&
        is_tethered(image) && image->peer.checks == 0 && image->half_open == 0 &&
        image->established_taken && !image->release_pending && !image->connections[0].stranger_seen;
}

/* Sends the kept status message again. */
static void send_kept(ps_image_t *image, int64_t now_ns)
{
    ps_receiver_t *receiver = image->receiver;
    uint8_t *frame = ps_receiver_outbox(receiver, image->endpoint->destinations[0],
                                        &image->connections[0].control);

    memcpy(frame, image->sm_bytes, image->sm_length);
    ps_receiver_outbox_commit(receiver, image->sm_length);
    receiver->sm_sent++;
    image->last_sm_ns = now_ns;
    image->sm_due_ns = now_ns + PS_SM_IDLE_NS;
    image->sm_due_ns -= image->sm_due_ns % PS_SM_IDLE_GRID_NS;
}

int64_t ps_image_rest(ps_image_t *image, int64_t now_ns)
{
    const ps_driver_params_t *params = image->receiver->params;
    const ps_connection_t *connection = &image->connections[0];
    const int64_t dead_ns = image->packet_ns + params->image_liveness_timeout_ns;

    if (image->endpoint == NULL || image->endpoint->destinations[0] == NULL || now_ns >= dead_ns ||
        !connection->established ||
        now_ns - connection->activity_ns >= params->connection_timeout_ns ||
        atomic_load_explicit(&image->join_hold, memory_order_acquire) != PS_JOIN_HOLD_NONE) {
        return 0;
    }
    if (now_ns >= image->sm_due_ns && image->sm_length > 0) {
        send_kept(image, now_ns);
    } else if (now_ns >= image->sm_due_ns) {
        ps_image_send_sm(image, now_ns);
    }
    return image->sm_due_ns < dead_ns ? image->sm_due_ns : dead_ns;
}
