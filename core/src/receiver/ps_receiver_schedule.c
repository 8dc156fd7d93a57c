/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver_schedule.c: state that the files of the receiver share: the outbox of control frames,
 * the list of hot images, pending releases, counted faults. Calls no other file of the receiver. */
#include <string.h>

#include "ps_receiver.h"
#include "ps_assert.h"

void ps_receiver_fault(ps_receiver_t *receiver, int32_t fault)
{
    PS_ASSERT(fault > PS_WIRE_OK && fault < PS_WIRE_FAULTS);
    atomic_fetch_add_explicit(&receiver->faults[fault], 1, memory_order_relaxed);
    ps_system_add(receiver->context, PS_SYS_INVALID_PACKETS, 1);
}

/* ---- outbox ---------------------------------------------------------------------------------- */

static bool same_target(const ps_outbox_t *box, const ps_recv_destination_t *destination,
                        const ps_addr_t *to)
{
    return box->destination == destination && box->to.family == to->family &&
           box->to.port == to->port && box->to.scope_id == to->scope_id &&
           memcmp(box->to.ip, to->ip, sizeof(to->ip)) == 0;
}

void ps_receiver_flush(ps_receiver_t *receiver)
{
    ps_outbox_t *box = &receiver->outbox;
    int sent;

    if (box->count == 0) {
        return;
    }
    PS_ASSERT(box->destination != NULL && box->count <= PS_OUTBOX_SLOTS);
    sent = receiver->ops->send(box->destination->socket, &box->to, box->dgrams, box->count,
                               receiver->now_ns);
    if (sent < box->count) {
        /* Timers repeat every frame that is sent here. */
        ps_system_add(receiver->context, PS_SYS_SHORT_SENDS, 1);
    }
    if (sent > 0) {
        int64_t bytes = 0;

        for (int32_t i = 0; i < sent; i++) {
            bytes += box->dgrams[i].length;
        }
        ps_system_add(receiver->context, PS_SYS_BYTES_SENT, bytes);
    }
    box->count = 0;
}

uint8_t *ps_receiver_outbox(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                            const ps_addr_t *to)
{
    ps_outbox_t *box = &receiver->outbox;

    if (box->count > 0 && (box->count == PS_OUTBOX_SLOTS || !same_target(box, destination, to))) {
        ps_receiver_flush(receiver);
    }
    box->destination = destination;
    box->to = *to;
    return box->frames[box->count];
}

void ps_receiver_outbox_commit(ps_receiver_t *receiver, uint32_t length)
{
    ps_outbox_t *box = &receiver->outbox;

    PS_ASSERT(length > 0 && length <= PS_CONTROL_MAX && box->count < PS_OUTBOX_SLOTS);
    box->dgrams[box->count].data = box->frames[box->count];
    box->dgrams[box->count].length = length;
    box->count++;
}

/* ---- lists ----------------------------------------------------------------------------------- */

void ps_receiver_make_hot(ps_receiver_t *receiver, ps_image_t *image)
{
    image->resting = 0;
    if (!image->hot) {
        PS_ASSERT(receiver->n_hot < receiver->images_limit);
        image->hot = 1;
        receiver->hot[receiver->n_hot++] = image;
    }
}

void ps_receiver_forget_image(ps_receiver_t *receiver, ps_image_t *image)
{
    ps_image_t *last = receiver->images[receiver->n_images - 1];

    PS_ASSERT(receiver->n_images > 0 && image->index < receiver->n_images);
    PS_ASSERT(receiver->images[image->index] == image);
    receiver->images[image->index] = last;
    last->index = image->index;
    image->index = -1;
    receiver->n_images--;
    ps_timers_remove(&receiver->timers, &image->timer);
    for (int32_t i = 0; image->hot && i < receiver->n_hot; i++) {
        if (receiver->hot[i] == image) {
            receiver->hot[i] = receiver->hot[--receiver->n_hot];
            image->hot = 0;
        }
    }
    PS_ASSERT(!image->hot);
}

static bool emit_release(ps_receiver_t *receiver, const ps_pending_release_t *release)
{
    ps_event_t event = { .type = PS_EV_RELEASED,
                         .kind = release->kind,
                         .id = release->id,
                         .now_ns = receiver->now_ns,
                         .released = { .destination_id = release->destination } };

    return ps_agent_emit(receiver->agent, &event);
}

void ps_receiver_release(ps_receiver_t *receiver, int32_t kind, int64_t id, int64_t destination)
{
    const ps_pending_release_t release = { .id = id, .destination = destination, .kind = kind };

    if (receiver->n_releases > 0 || !emit_release(receiver, &release)) {
        PS_ASSERT(receiver->n_releases < receiver->releases_limit);
        receiver->releases[receiver->n_releases++] = release;
        ps_receiver_timer(receiver, receiver->now_ns);
    }
}

void ps_receiver_retry_releases(ps_receiver_t *receiver)
{
    int32_t done = 0;

    while (done < receiver->n_releases && emit_release(receiver, &receiver->releases[done])) {
        done++;
    }
    PS_ASSERT(done <= receiver->n_releases);
    receiver->n_releases -= done;
    memmove(receiver->releases, receiver->releases + done,
            (size_t)receiver->n_releases * sizeof(*receiver->releases));
}
