/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_api.c: the conductor's half of images: mapping, allocation, hand-over, and the fields
 * that it may read while the receiver owns the object. */
#include "ps_set_up.h"

#include "ps_assert.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "ps_driver_state.h"
#include "ps_receiver.h"

enum { TRIM_IMAGES = 32 };

static _Atomic int64_t *cell_of(ps_image_t *image, int32_t counter_id)
{
    return counter_id < 0 ? &image->dummy_cell
                          : ps_counter_cell(image->context->params.cnc, counter_id);
}

static int prepare_timing(ps_image_t *image)
{
    const ps_driver_params_t *driver = &image->context->params;
    int64_t delay_ns =
        image->params.nak_delay_ns >= 0 ? image->params.nak_delay_ns : driver->nak_unicast_delay_ns;
    int32_t half = image->log.term_length / 2;
    int32_t window = image->params.window_bytes < half ? image->params.window_bytes : half;

    if (delay_ns < 1000) {
        delay_ns = 1000;
    }
    image->nak = (ps_nak_policy_t){ .delay_ns = delay_ns,
                                    .retry_ns = delay_ns * driver->nak_unicast_retry_ratio,
                                    .max_backoff_ns = driver->nak_multicast_max_backoff_ns,
                                    .group_size = driver->nak_multicast_group_size,
                                    .group = image->params.group };
    image->nak_due_ns = INT64_MAX;
    image->lost_due_ns = INT64_MAX;
    return ps_congestion_init(&image->congestion, image->params.congestion_control, window,
                              image->log.mtu, image->params.cubic_only == 0);
}

/* Returns the end of the contiguous whole frames of this stream from position on. A frame becomes
 * visible only when it is complete, so no subscriber has read beyond the result. Bound: a term,
 * which is as far as the dead receiver accepted. */
static int64_t contiguous_from(const ps_image_t *image, int64_t position)
{
    const ps_log_t *log = &image->log;
    const int64_t end = position + log->term_length;

    while (position < end) {
        const ps_frame_t *frame = ps_frame_at(log, position);
        int32_t length = ps_frame_length_acquire(frame);
        int32_t offset = (int32_t)(position & log->term_mask);

        if (length < PS_HEADER_BYTES || ps_align32_64(length) > log->term_length - offset ||
            frame->term_offset != offset ||
            frame->term_id != ps_term_id_at(position, log->shift, log->initial_term_id)) {
            break;
        }
        position += ps_align32_64(length);
    }
    return position;
}

/* Finds the contiguous end of a dead daemon's image and drops the data above. */
static int take_over(ps_image_t *image)
{
    const ps_image_params_t *params = &image->params;
    const ps_log_t *log = &image->log;
    int64_t counted = atomic_load_explicit(image->position_cell, memory_order_acquire);
    int64_t slowest = params->consumption;
    int64_t end;

    if (log->meta->correlation_id != params->id || counted < image->join_position ||
        counted % PS_FRAME_ALIGNMENT != 0 || counted >> log->shift > INT32_MAX) {
        return ps_fail(PS_E_CORRUPT, "image %lld: position %lld does not fit its log",
                       (long long)params->id, (long long)counted);
    }
    image->position = contiguous_from(image, counted);
    image->hwm = image->position;
    if (slowest < image->join_position || slowest > image->position) {
        slowest = image->position;
    }
    image->consumption = slowest & ~(int64_t)(PS_FRAME_ALIGNMENT - 1);
    image->fastest = image->consumption;
    image->sm_position = image->consumption;
    image->moved_position = image->position + image->consumption;
    /* No reader can then reach the data above. */
    ps_log_clean(log, image->position, image->position + PS_FRAME_ALIGNMENT);
    /* The dead receiver accepted at most a term beyond the consumed position. */
    end = image->position + log->term_length - INT64_C(3) * log->term_length;
    image->free_to = end > image->join_position ? end : image->join_position;
    return PS_OK;
}

/* Counting continues at the newest index entry within the contiguous data, or at the join of a
 * stream that is too short for an entry. */
static void adopt_ordinal(ps_image_t *image)
{
    uint64_t count = atomic_load_explicit(&image->ring->count, memory_order_relaxed);

    if (count > 0 || image->position - image->join_position >= image->log.term_length / 2) {
        image->ordinal = -1;
    }
    for (uint64_t i = count; i > 0 && count - i < PS_INDEX_ENTRIES; i--) {
        ps_index_entry_t *entry = &image->ring->entries[(i - 1) % PS_INDEX_ENTRIES];
        int64_t at = atomic_load_explicit(&entry->position, memory_order_relaxed);

        if (at > image->position) {
            continue;
        }
        if (at >= image->join_position && at % PS_FRAME_ALIGNMENT == 0 &&
            image->position - at < image->log.term_length / 2) {
            image->ordinal =
                ps_believed_ordinal(atomic_load_explicit(&entry->ordinal, memory_order_relaxed));
            image->ordinal_position = at;
            image->index_position = at;
        }
        return;
    }
}

static int prepare_positions(ps_image_t *image)
{
    const ps_image_params_t *params = &image->params;
    int64_t join = ps_position(params->active_term_id, params->term_offset, image->log.shift,
                               image->log.initial_term_id);
    int code = PS_OK;

    image->join_position = join;
    image->hwm = join;
    image->position = join;
    image->free_to = join;
    image->consumption = join;
    image->fastest = join;
    image->sm_position = join;
    image->moved_position = 2 * join;
    image->ordinal = params->reliable ? ps_believed_ordinal(params->join_ordinal) : -1;
    image->ordinal_position = join;
    image->reserved_position = params->reserved_position;
    image->established = params->adopted && !params->half_open;
    image->established_taken = image->established;
    image->end_position = INT64_MAX;
    image->next_due_ns = INT64_MAX;
    image->timer.at = -1;
    if (params->adopted) {
        code = take_over(image);
    }
    image->sent_seen = image->hwm;
    image->index_position = image->position;
    atomic_init(&image->shown_slowest, image->consumption);
    atomic_init(&image->shown_end, INT64_MAX);
    atomic_init(&image->join_hold, PS_JOIN_HOLD_NONE);
    atomic_store_explicit(image->high_water_cell, image->hwm, memory_order_release);
    atomic_store_explicit(image->position_cell, image->position, memory_order_release);
    return code;
}

static void prepare_slot(ps_image_t *image)
{
    const ps_image_params_t *params = &image->params;
    ps_shared_t *shared = image->context->params.shared;

    image->slot = &shared->images[params->slot];
    image->ring = &shared->image_histories[params->slot].ring;
    image->times = &shared->image_histories[params->slot].times;
    image->slot->join_position = image->join_position;
    image->slot->join_ordinal = image->ordinal;
    image->slot->session_id = params->session_id;
    image->slot->stream_id = params->stream_id;
    atomic_store_explicit(&image->slot->retention_bytes, params->retention_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&image->slot->retention_ns, params->retention_ns, memory_order_relaxed);
    if (params->adopted) {
        adopt_ordinal(image);
    }
    atomic_store_explicit(&image->slot->ordinal, image->ordinal, memory_order_relaxed);
    atomic_store_explicit(&image->slot->wake_position, INT64_MAX, memory_order_relaxed);
}

static int check_params(const ps_receiver_t *receiver, const ps_image_params_t *params)
{
    if (params->endpoint == NULL || params->log_path == NULL || params->slot < 0 ||
        params->slot >= receiver->shared->n_images || params->window_bytes <= 0 ||
        params->term_offset < 0 || params->term_offset % PS_FRAME_ALIGNMENT != 0 ||
        ps_wrap_sub(params->active_term_id, params->initial_term_id) < 0) {
        return ps_fail(PS_E_INVALID, "image %lld: a parameter is out of range",
                       (long long)params->id);
    }
    if (receiver->opened_images == receiver->images_limit) {
        return ps_fail(PS_E_NO_SPACE, "more than %d images", receiver->images_limit);
    }
    return PS_OK;
}

static int prepare(ps_image_t *image)
{
    const ps_image_params_t *params = &image->params;
    int32_t max_gaps = image->context->params.max_gaps;
    int code;

    if (params->initial_term_id != image->log.initial_term_id ||
        params->term_offset >= image->log.term_length) {
        return ps_fail(PS_E_CORRUPT, "image log does not belong to session %d", params->session_id);
    }
    image->gap_storage = calloc((size_t)max_gaps, sizeof(*image->gap_storage));
    if (image->gap_storage == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d gaps", max_gaps);
    }
    ps_gaps_init(&image->gaps, image->gap_storage, max_gaps);
    image->high_water_cell = cell_of(image, params->high_water_counter_id);
    image->position_cell = cell_of(image, params->position_counter_id);
    image->naks_cell = cell_of(image, params->naks_counter_id);
    image->congestion_rtt_cell = &image->dummy_cell;
    image->congestion_window_cell = &image->dummy_cell;
    if (params->congestion_control != PS_CC_STATIC) {
        image->congestion_rtt_cell = cell_of(image, params->congestion_rtt_counter_id);
        image->congestion_window_cell = cell_of(image, params->congestion_window_counter_id);
    }
    code = prepare_timing(image);
    if (code == PS_OK) {
        code = prepare_positions(image);
    }
    if (code == PS_OK) {
        prepare_slot(image);
        image->window = image->congestion.ops->initial_window(&image->congestion);
        ps_image_bound_window(image);
        image->sent_window = image->window;
        atomic_store_explicit(&image->slot->window_bytes, image->window, memory_order_relaxed);
    }
    return code;
}

int ps_image_add(ps_driver_t *driver, const ps_image_params_t *params, ps_image_t **out)
{
    ps_receiver_t *receiver = driver->receiver;
    ps_command_t command = { .type = PS_RCMD_ADD_IMAGE };
    ps_image_t *image;
    int code = check_params(receiver, params);

    if (code != PS_OK) {
        return code;
    }
    image = aligned_alloc(PS_LINE, sizeof(*image));
    if (image == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for an image");
    }
    memset(image, 0, sizeof(*image));
    image->params = *params;
    image->params.log_path = NULL;
    image->context = &driver->context;
    image->receiver = receiver;
    image->endpoint = params->endpoint;
    image->peer_capabilities = params->peer_capabilities;
    code = ps_log_map(params->log_path, 0, &image->log);
    if (code != PS_OK) {
        free(image);
        return code;
    }
    code = prepare(image);
    if (code == PS_OK) {
        command.image = image;
        code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    }
    if (code != PS_OK) {
        ps_image_free(image);
        return code;
    }
    receiver->opened_images++;
    if (receiver->opened_images > receiver->most_images) {
        receiver->most_images = receiver->opened_images;
    }
    *out = image;
    return PS_OK;
}

int ps_image_add_subscriber(ps_driver_t *driver, ps_image_t *image,
                            const ps_subscriber_params_t *params)
{
    ps_command_t command = { .type = PS_RCMD_ADD_SUBSCRIBER,
                             .image = image,
                             .subscriber = *params };
    int code;

    if (image->n_joined == PS_IMAGE_SUBSCRIBERS_MAX) {
        return ps_fail(PS_E_NO_SPACE, "more than %d subscribers of one image",
                       PS_IMAGE_SUBSCRIBERS_MAX);
    }
    code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    if (code == PS_OK) {
        image->joined[image->n_joined++] = params->position_counter_id;
    }
    return code;
}

int ps_image_remove_subscriber(ps_driver_t *driver, ps_image_t *image, int32_t position_counter_id)
{
    ps_command_t command = { .type = PS_RCMD_REMOVE_SUBSCRIBER,
                             .image = image,
                             .position_counter_id = position_counter_id };
    int code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);

    for (int32_t i = 0; code == PS_OK && i < image->n_joined; i++) {
        if (image->joined[i] == position_counter_id) {
            image->joined[i] = image->joined[--image->n_joined];
            break;
        }
    }
    return code;
}

int64_t ps_image_join_position(const ps_image_t *image)
{
    ps_image_t *held = (ps_image_t *)(uintptr_t)image;
    int64_t slowest = atomic_load_explicit(&held->shown_slowest, memory_order_acquire);
    int64_t position;

    /* While the hold is set, the receiver releases no memory; pairs with the acquire load in
     * ps_image_reclaim. The loads are sequentially consistent: an acquire load may pass the store
     * (LDAPR of ARMv8). A release already in progress stays a term below every position read
     * here. */
    atomic_store_explicit(&held->join_hold, INT64_MIN, memory_order_seq_cst);
    position = atomic_load_explicit(held->position_cell, memory_order_seq_cst);
    for (int32_t i = 0; i < image->n_joined; i++) {
        int64_t other = atomic_load_explicit(
            ps_counter_cell(image->context->params.cnc, image->joined[i]), memory_order_seq_cst);

        position = other < position ? other : position;
    }
    if (position < slowest) {
        position = slowest; /* a resting subscriber, or one with a false position, does not hold the
                             * others */
    }
    position &= ~(int64_t)(PS_FRAME_ALIGNMENT - 1);
    atomic_store_explicit(&held->join_hold, position, memory_order_release);
    return position;
}

int ps_image_drain(ps_driver_t *driver, ps_image_t *image)
{
    ps_command_t command = { .type = PS_RCMD_DRAIN_IMAGE, .image = image };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_image_reject(ps_driver_t *driver, ps_image_t *image, const char *reason)
{
    ps_command_t command = { .type = PS_RCMD_REJECT_IMAGE, .image = image, .reason = "" };

    strncpy(command.reason, reason, sizeof(command.reason) - 1);
    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_image_reserved(ps_driver_t *driver, ps_image_t *image, int64_t position)
{
    ps_command_t command = { .type = PS_RCMD_RESERVED,
                             .image = image,
                             .reserved_position = position };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_image_release_terms(ps_driver_t *driver, ps_image_t *image, int32_t least_terms)
{
    ps_command_t command = { .type = PS_RCMD_RELEASE_TERMS,
                             .image = image,
                             .least_terms = least_terms };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

void ps_image_get_status(const ps_image_t *image, ps_image_status_t *out)
{
    ps_image_t *shown = (ps_image_t *)(uintptr_t)image;

    out->position = atomic_load_explicit(shown->position_cell, memory_order_acquire);
    out->high_water = atomic_load_explicit(shown->high_water_cell, memory_order_acquire);
    out->slowest_subscriber = atomic_load_explicit(&shown->shown_slowest, memory_order_acquire);
    out->end_of_stream = atomic_load_explicit(&shown->shown_end, memory_order_acquire);
    out->gaps = atomic_load_explicit(&shown->shown_gaps, memory_order_relaxed);
    out->subscribers = atomic_load_explicit(&shown->shown_subscribers, memory_order_relaxed);
    out->foreign_datagrams = atomic_load_explicit(&shown->shown_foreign, memory_order_relaxed);
    out->pressure_signals = atomic_load_explicit(&shown->shown_pressure, memory_order_relaxed);
}

int ps_image_set_congestion_window(ps_driver_t *driver, ps_image_t *image, int64_t window)
{
    ps_command_t command = { .type = PS_RCMD_SET_WINDOW, .image = image, .window_bytes = window };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_image_set_share(ps_driver_t *driver, ps_image_t *image, int64_t window)
{
    const int64_t least = INT64_C(2) * image->log.mtu;

    if (window != 0 && (window < least || window % PS_FRAME_ALIGNMENT != 0)) {
        return ps_fail(PS_E_INVALID, "a share of %lld bytes: it is 0, or at least two MTUs (%lld)",
                       (long long)window, (long long)least);
    }
    ps_command_t command = { .type = PS_RCMD_SET_SHARE, .image = image, .window_bytes = window };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

void ps_image_get_congestion(const ps_image_t *image, ps_congestion_view_t *out)
{
    ps_image_t *shown = (ps_image_t *)(uintptr_t)image;
#define LOAD(field) atomic_load_explicit(&shown->shown_congestion.field, memory_order_relaxed)
    *out = (ps_congestion_view_t){ .window = LOAD(window),
                                   .least = ps_congestion_least(&image->congestion),
                                   .most = image->congestion.window_max,
                                   .received = LOAD(received),
                                   .consumed = LOAD(consumed),
                                   .granted = LOAD(granted),
                                   .losses = LOAD(losses),
                                   .missing = LOAD(missing),
                                   .rtt_ns = LOAD(rtt_ns),
                                   .least_rtt_ns = LOAD(least_rtt_ns) };
#undef LOAD
}

int ps_image_set_credits(ps_driver_t *driver, ps_image_t *image, int32_t position_counter_id,
                         int64_t credits, int64_t burst, int32_t frozen)
{
    const ps_credit_change_t change = { .position_counter_id = position_counter_id,
                                        .credits = credits,
                                        .credit_burst = burst,
                                        .frozen = frozen != 0 };
    const ps_command_t command = { .type = PS_RCMD_SET_CREDITS, .image = image, .credits = change };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_image_remove(ps_driver_t *driver, ps_image_t *image, int32_t keep_session)
{
    ps_command_t command = { .type = PS_RCMD_REMOVE_IMAGE,
                             .image = image,
                             .keep_session = keep_session != 0 };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

/* Returns the memory of many removed images to the system, which the allocator would otherwise
 * keep. */
static void trim(ps_receiver_t *receiver)
{
    if (receiver->most_images - receiver->opened_images >= TRIM_IMAGES) {
        receiver->most_images = receiver->opened_images;
#ifdef __GLIBC__
        (void)malloc_trim(0);
#endif
    }
}

void ps_image_destroy(ps_driver_t *driver, ps_image_t *image)
{
    ps_receiver_t *receiver = driver->receiver;

    PS_ASSERT(receiver->opened_images > 0);
    receiver->opened_images--;
    ps_image_free(image);
    trim(receiver);
}
