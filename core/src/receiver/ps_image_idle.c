/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_idle.c: the terms that an idle image can release (docs/decisions/0033). Only the
 * receiver writes the log, and it accepts no data without storage. The terms that stay are those
 * that a reader may read, and half a term ahead. */
#include "ps_image.h"

#include "ps_receiver.h"

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A new daemon counts messages from the newest index entry on, when that is within half a term. */
static int64_t counted_from(const ps_image_t *image)
{
    uint64_t count = atomic_load_explicit(&image->ring->count, memory_order_relaxed);
    int64_t at;

    if (count == 0) {
        return image->position;
    }
    at = atomic_load_explicit(&image->ring->entries[(count - 1) % PS_INDEX_ENTRIES].position,
                              memory_order_relaxed);
    return image->position - at < image->log.term_length / 2 ? at : image->position;
}

/* Returns the position below which no reader reads. */
static int64_t lowest_in_use(const ps_image_t *image)
{
    int64_t lowest = lower(image->consumption, counted_from(image));

    if (image->ordinal >= 0) {
        lowest = lower(lowest, image->ordinal_position);
    }
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        int64_t position = atomic_load_explicit(image->subscribers[i].cell, memory_order_acquire);

        if (image->subscribers[i].isolation.lagged && position < image->free_to) {
            position = image->free_to; /* it skips what lies below */
        }
        lowest = lower(lowest, position);
    }
    return lowest > image->join_position ? lowest : image->join_position;
}

static void release_terms(ps_image_t *image, int32_t least_terms)
{
    const int64_t term = image->log.term_length;
    const int64_t mask = ~(int64_t)image->log.term_mask;
    const int64_t least = ((image->hwm >> image->log.shift) + least_terms) * term;
    const int64_t whole = image->reserved_position & mask;
    int64_t from;
    int64_t to = (image->hwm + term / 2 + term - 1) & mask;

    if (to < least) { /* terms without memory are no reason to keep the terms below */
        to = lower(least, to > whole ? to : whole);
    }
    if (image->state != PS_IMAGE_ACTIVE || image->rejected || image->n_subscribers == 0 ||
        image->sent_seen > image->hwm || to > image->reserved_position) {
        return;
    }
    /* Pairs with ps_image_join_position: either this thread sees the hold, or the conductor sees
     * the positions that this thread sees. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&image->join_hold, memory_order_acquire) != PS_JOIN_HOLD_NONE) {
        return;
    }
    from = lowest_in_use(image) & mask;
    if (to - from >= PS_PARTITIONS * term) {
        return;
    }
    image->reserved_position = to;
    image->kept_position = from;
    image->released_to = to;
}

void ps_image_report_released(ps_image_t *image, int64_t now_ns)
{
    ps_event_t event = { .type = PS_EV_TERMS_RELEASED,
                         .terms = { .kept_to = image->released_to,
                                    .kept_from = image->kept_position } };

    image->release_pending = !ps_image_emit(image, &event);
    if (image->release_pending) {
        ps_image_timer(image, now_ns + PS_TICK_NS);
    } else { /* storage that it waits for is requested behind this */
        ps_receiver_make_hot(image->receiver, image);
    }
}

void ps_image_on_release_terms(ps_image_t *image, int32_t least_terms)
{
    image->released_to = -1;
    image->term_event_taken = 0;
    release_terms(image, least_terms);
    ps_image_report_released(image, image->receiver->now_ns);
}
