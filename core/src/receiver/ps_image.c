/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image.c: what the files of an image share: its timer, events, connections, losses, its end of
 * life.  Calls no other file of the receiver.  The conductor's half is ps_image_api.c.
 */
#include "ps_image.h"
#include "ps_assert.h"

#include <stdlib.h>

#include "ps_receiver.h"

void ps_image_timer(ps_image_t *image, int64_t due_ns)
{
    if (due_ns < image->next_due_ns) {
        ps_receiver_t *receiver = image->receiver;

        image->resting &= due_ns == image->sm_due_ns; /* another timer ends the rest */
        image->next_due_ns = due_ns;
        /* While the image's timer runs, its entry is earlier; ps_receiver.c sets it afterwards. */
        if (due_ns < ps_timers_due_ns(&receiver->timers, &image->timer)) {
            ps_timers_set(&receiver->timers, &image->timer, due_ns);
        }
        ps_receiver_timer(receiver, due_ns);
    }
}

bool ps_image_emit(ps_image_t *image, ps_event_t *event)
{
    PS_ASSERT(event->type > PS_EV_NONE && event->type <= PS_EV_READER_LAGGED);
    event->kind = PS_KIND_IMAGE;
    event->id = image->params.id;
    event->now_ns = image->receiver->now_ns;
    event->session_id = image->params.session_id;
    event->stream_id = image->params.stream_id;
    return ps_agent_emit(image->receiver->agent, event);
}

/* ---- half-open ------------------------------------------------------------------------------- */

bool ps_image_report_established(ps_image_t *image)
{
    ps_event_t event = { .type = PS_EV_IMAGE_ESTABLISHED };

    image->established_taken = ps_image_emit(image, &event);
    if (!image->established_taken) {
        ps_image_timer(image, image->receiver->now_ns + PS_TICK_NS);
    }
    return image->established_taken;
}

void ps_image_establish(ps_image_t *image)
{
    ps_half_open_leave(&image->receiver->half_open, image->half_open);
    if (image->half_open != 0 && image->endpoint != NULL) {
        image->endpoint->setup_due_ns -= PS_SETUP_INTERVAL_NS;
    }
    image->half_open = 0;
    image->established = 1;
    (void)ps_image_report_established(image);
}

bool ps_image_connection_live(const ps_image_t *image, int32_t index, int64_t now_ns)
{
    const ps_connection_t *connection = &image->connections[index];

    return connection->established &&
           now_ns - connection->activity_ns < image->receiver->params->connection_timeout_ns;
}

bool ps_image_has_path(const ps_image_t *image, int64_t now_ns)
{
    const ps_recv_endpoint_t *endpoint = image->endpoint;

    for (int32_t i = 0; endpoint != NULL && i < endpoint->destinations_end; i++) {
        if (endpoint->destinations[i] != NULL && ps_image_connection_live(image, i, now_ns)) {
            return true;
        }
    }
    return false;
}

void ps_image_count_loss(ps_image_t *image, int64_t from, int64_t to)
{
    PS_ASSERT(to > from);
    image->lost_bytes += to - from;
    image->loss_position = from;
    image->new_loss = 1;
    atomic_fetch_add_explicit(&image->slot->lost_bytes, to - from, memory_order_relaxed);
}

void ps_image_free(ps_image_t *image)
{
    if (image != NULL) {
        ps_log_unmap(&image->log);
        free(image->gap_storage);
        free(image);
    }
}
