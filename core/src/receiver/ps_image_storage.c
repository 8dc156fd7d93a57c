/* SPDX-License-Identifier: Apache-2.0
 * ps_image_storage.c: frees the consumed part of an image's log, and requests storage ahead of its
 * data (docs/decisions/0076).
 */
#include "ps_image.h"
#include "ps_relay.h"
#include "ps_assert.h"
#include "ps_inline.h"
#include "ps_receiver.h"

void ps_image_reclaim(ps_image_t *image)
{
    /* Acquire: pairs with ps_image_join_position. */
    int64_t hold = atomic_load_explicit(&image->join_hold, memory_order_acquire);
    int64_t target = image->consumption - image->log.term_length;

    if (hold < target) {
        target = hold;
    }
    if (target > image->free_to) {
        image->free_to = target;
    }
    if (image->ordinal >= 0 && image->ordinal_position < image->free_to) {
        image->ordinal = -1; /* the count could not keep up: report unknown, not a wrong number */
        atomic_store_explicit(&image->slot->ordinal, -1, memory_order_relaxed);
    }
}

/* Returns the storage to reserve ahead: half a term, at first less, so that a stream gets storage
 * only as it sends data (docs/decisions/0076). */
static int64_t storage_ahead(const ps_image_t *image, int64_t contiguous)
{
    int64_t half = image->log.term_length / 2;
    int64_t most = PS_STORAGE_AHEAD + 4 * (contiguous - image->join_position);

    return most < half ? most : half;
}

/* Out of line: an event is large, and each cycle of an image comes through its check.  wanted: 0 is
 * the next term. */
static PS_NOINLINE void request_storage(ps_image_t *image, int64_t wanted)
{
    ps_event_t event = { .type = PS_EV_TERM_NEEDED,
                         .term = { .reserved = image->reserved_position, .wanted = wanted } };

    image->term_event_taken = ps_image_emit(image, &event);
    if (!image->term_event_taken) { /* ring full: a tick requests again, whatever else comes */
        ps_image_timer(image, image->receiver->now_ns + PS_TICK_NS);
    }
}

void ps_image_check_storage(ps_image_t *image)
{
    int64_t contiguous = ps_image_contiguous(image);
    int64_t ahead = storage_ahead(image, contiguous);
    bool ramp = ahead < image->log.term_length / 2;
    int64_t edge = contiguous + (ramp ? ahead / 2 : ahead);

    if (image->reserved_position != INT64_MAX && image->established && !image->term_event_taken &&
        !image->release_pending && edge > image->reserved_position) {
        request_storage(image, ramp ? contiguous + ahead : 0);
    }
}
