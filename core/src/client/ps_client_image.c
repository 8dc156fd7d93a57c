/* SPDX-License-Identifier: Apache-2.0
 * ps_client_image.c: images: reading a log in place (docs/spec/log-buffer.md).
 *
 * delivered runs ahead of released.  The log is read-only here and hostile: each frame's first word
 * is loaded once, checked against the term, and only the checked copy is used. */
#include <stdlib.h>

#include "ps_client_internal.h"
#include "ps_cpu.h"
#include "ps_inline.h"

enum {
    PS_PREFETCH_BYTES = 768, /* ahead of the frame that is read */
    PS_SHORT_MESSAGES = 32,
    PS_SHORT_POLLS = 4,
    PS_PAUSES = 30 /* 0.3 to 1.5 us, by processor */
};

/* ---- opening --------------------------------------------------------------------------------- */

static int ps_img_check(const ps_client_t *client, const ps_img_params_t *params)
{
    const ps_shared_t *shared = client->shared;
    if (params->position_counter_id < 0 || params->position_counter_id >= client->counters ||
        params->subscriber_slot < -1 || params->subscriber_slot >= shared->n_subscribers ||
        params->image_slot < -1 || params->image_slot >= shared->n_images ||
        params->publication_slot < -1 || params->publication_slot >= shared->n_publications) {
        return ps_fail(PS_E_INVALID,
                       "image %lld: counter %d, subscriber slot %d, image slot %d or publication "
                       "slot %d out of range",
                       (long long)params->correlation_id, params->position_counter_id,
                       params->subscriber_slot, params->image_slot, params->publication_slot);
    }
    if (params->fan_in_weight < 0 || params->fan_in_weight > PS_FAN_IN_MAX) {
        return ps_fail(PS_E_INVALID, "image %lld: fan-in weight %d is not in 0..%d",
                       (long long)params->correlation_id, params->fan_in_weight, PS_FAN_IN_MAX);
    }
    return PS_OK;
}

static void ps_img_bind(ps_img_t *image, const ps_img_params_t *params)
{
    ps_shared_t *shared = image->client->shared;
    image->position_cell = ps_counter_cell(image->client->cnc, params->position_counter_id);
    if (params->subscriber_slot >= 0) {
        image->subscriber = &shared->subscribers[params->subscriber_slot];
    }
    image->publication_slot = params->publication_slot;
    if (params->image_slot >= 0) {
        image->wake_position = &shared->images[params->image_slot].wake_position;
        image->publication_slot = -1;
    } else if (params->publication_slot >= 0) {
        image->wake_position = &shared->publications[params->publication_slot].wake_position;
    }
    image->correlation_id = params->correlation_id;
    const int32_t eighth = image->log.term_length / 8;
    image->max_message_bytes = eighth < PS_MESSAGE_MAX ? eighth : PS_MESSAGE_MAX;
}

int ps_img_open(ps_client_t *client, const ps_img_params_t *params, ps_img_t **out)
{
    *out = NULL;
    if (ps_client_forked(client)) {
        return ps_client_fail_forked();
    }
    int code = ps_img_check(client, params);
    if (code != PS_OK) {
        return code;
    }
    ps_img_t *image = calloc(1, sizeof *image);
    if (image == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for an image");
    }
    image->client = client;
    image->fan_in_weight = params->fan_in_weight;
    code = ps_log_map(params->log_path, 1, &image->log);
    if (code != PS_OK) {
        free(image);
        return code;
    }
    ps_img_bind(image, params);
    const int64_t join = atomic_load_explicit(image->position_cell, memory_order_acquire);
    if (join < 0 || join % PS_FRAME_ALIGNMENT != 0 || join >> image->log.shift > INT32_MAX) {
        code = ps_fail(PS_E_CORRUPT, "%s: impossible join position %lld", params->log_path,
                       (long long)join);
        ps_img_close(image);
        return code;
    }
    image->join_position = join;
    image->credit_mode = image->subscriber != NULL ? params->credit_mode : PS_CREDIT_PLAIN;
    if (image->credit_mode != 0) { /* opened again: counting continues */
        image->passed =
            atomic_load_explicit(&image->subscriber->credit_passed, memory_order_relaxed);
    }
    if (image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->credit_in_order,
                              image->credit_mode == PS_CREDIT_AUTOMATIC, memory_order_relaxed);
    }
    code = ps_img_open_isolated(image, params);
    if (code != PS_OK) {
        ps_img_close(image);
        return code;
    }
    ps_img_open_retention(image, params);
    image->guarded = image->isolated != NULL || image->retention.limits;
    image->delivered = join;
    image->released = join;
    if (image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->delivered, join, memory_order_relaxed);
        atomic_store_explicit(&image->subscriber->released, join, memory_order_release);
    }
    *out = image;
    return PS_OK;
}

void ps_img_close(ps_img_t *image)
{
    if (image != NULL) {
        ps_log_unmap(&image->log);
        free(image->isolated);
        free(image->buffer);
        free(image);
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

int64_t ps_img_position(const ps_img_t *image)
{
    return image->redeliver ? image->assembled.start_position : image->delivered;
}

int64_t ps_img_released(const ps_img_t *image)
{
    return image->released;
}

int64_t ps_img_end_of_stream_position(const ps_img_t *image)
{
    return atomic_load_explicit(&image->log.meta->end_of_stream, memory_order_acquire);
}

int32_t ps_img_is_end_of_stream(const ps_img_t *image)
{
    return !image->redeliver && image->delivered >= ps_img_end_of_stream_position(image);
}

int32_t ps_img_term_length(const ps_img_t *image)
{
    return image->log.term_length;
}

int32_t ps_img_mtu(const ps_img_t *image)
{
    return image->log.mtu;
}

int32_t ps_img_initial_term_id(const ps_img_t *image)
{
    return image->log.initial_term_id;
}

int32_t ps_img_session_id(const ps_img_t *image)
{
    return image->log.session_id;
}

int64_t ps_img_join_position(const ps_img_t *image)
{
    return image->join_position;
}

int32_t ps_img_transport_count(const ps_img_t *image)
{
    return atomic_load_explicit(&image->log.meta->transport_count, memory_order_acquire);
}

const uint8_t *ps_img_map(const ps_img_t *image, int64_t *length_bytes)
{
    *length_bytes = (int64_t)image->log.map_length;
    return image->log.map;
}

int32_t ps_img_has_data(const ps_img_t *image)
{
    return image->redeliver || image->gap_to != image->gap_from ||
           (image->isolated != NULL && ps_img_is_outrun(image, image->delivered)) ||
           (image->stopped == 0 &&
            ps_frame_length_acquire(ps_frame_at(&image->log, image->delivered)) > 0);
}

/* ---- releasing ------------------------------------------------------------------------------- */

static void ps_img_wake_daemon(const ps_img_t *image)
{
    if (image->wake_position == NULL ||
        (image->released < atomic_load_explicit(image->wake_position, memory_order_seq_cst) &&
         !(image->credit_mode != 0 && ps_img_credit_awaited(image)))) {
        return;
    }
    ps_img_wake_agent(image);
}

void ps_img_wake_agent(const ps_img_t *image)
{
    const ps_client_t *client = image->client;
    if (image->publication_slot >= 0) {
        ps_client_request_to_check(client, image->publication_slot);
    } else if (atomic_load_explicit(&client->shared->driver->receiver_parked,
                                    memory_order_seq_cst)) {
        ps_client_kick(client->receiver_wake_fd);
    }
}

static void ps_img_release_to(ps_img_t *image, int64_t position)
{
    if (position <= image->released) {
        return;
    }
    image->released = position;
    if (image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->released, position, memory_order_release);
    }
    if (image->credit_mode == PS_CREDIT_AUTOMATIC) {
        ps_img_credit_released(image);
    }
    /* Sequentially consistent: the store comes before the checks wake_position and parked; the
     * daemon stores these first and then checks the position. */
    atomic_store_explicit(image->position_cell, position, memory_order_seq_cst);
    ps_img_wake_daemon(image);
}

void ps_img_release(ps_img_t *image)
{
    /* A message that is to be delivered again is not released. */
    ps_img_release_to(image, image->redeliver ? image->assembled.start_position : image->delivered);
}

int ps_img_rewind(ps_img_t *image, int64_t position)
{
    if (position == image->assembled.start_position && image->assembled.position > 0 &&
        image->assembled.position == image->delivered && !image->assembling) {
        image->redeliver = 1; /* its first fragments may be released: deliver the copy again */
        if (image->credit_mode != 0) {
            ps_img_credit_redelivered(image, 1);
        }
        return PS_OK;
    }
    if (position < image->released || position > image->delivered ||
        position % PS_FRAME_ALIGNMENT != 0) {
        return ps_fail(PS_E_INVALID, "cannot rewind to %lld: released %lld, delivered %lld",
                       (long long)position, (long long)image->released,
                       (long long)image->delivered);
    }
    if (position == image->delivered) {
        return PS_OK;
    }
    if (image->credit_mode != 0) {
        ps_img_credit_rewound(image, position);
    }
    if (image->isolated != NULL) {
        ps_img_isolated_rewound(image, position);
    }
    image->delivered = position;
    image->assembling = 0;
    image->redeliver = 0;
    image->assembled.position = 0;
    if (image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->delivered, position, memory_order_release);
    }
    return PS_OK;
}

/* ---- polling --------------------------------------------------------------------------------- */

static int ps_img_corrupt(ps_img_t *image, int64_t position, int32_t frame_length)
{
    image->stopped = PS_E_CORRUPT;
    return ps_fail(PS_E_CORRUPT,
                   "session %d stream %d: impossible frame at position %lld (length "
                   "%d): the image is stopped",
                   image->log.session_id, image->log.stream_id, (long long)position, frame_length);
}

/* The range of one term that a poll walks. */
typedef struct ps_stretch {
    uint8_t *term;
    int64_t log_base; /* of the term in the file */
    int64_t begin;    /* position of offset 0 */
    int32_t term_id;
    int32_t offset;
    int32_t step;  /* aligned length of the latest frame */
    bool prefetch; /* no publisher writes ahead of the reader just now */
} ps_stretch_t;

/* Reads the frame at the stretch's offset into out.  1: data, 0: nothing there, 2: padding, or
 * PS_E_CORRUPT.  Moves the offset on 1 and 2. */
static PS_ALWAYS_INLINE int ps_img_frame(ps_img_t *image, ps_stretch_t *at, ps_message_t *out)
{
    ps_frame_t *frame = (ps_frame_t *)(void *)(at->term + at->offset);
    /* One acquire load of length, flags and type together: pairs with the commit. */
    const uint64_t word = atomic_load_explicit(ps_frame_word(frame), memory_order_acquire);
    const int32_t frame_length = (int32_t)(uint32_t)word;
    if (frame_length <= 0) {
        return 0;
    }
    const int32_t room = image->log.term_length - at->offset;
    const int32_t offset = at->offset;
    if (PS_UNLIKELY(frame_length < PS_HEADER_BYTES || frame_length > room ||
                    ps_frame_term_offset(frame) != offset ||
                    ps_frame_term_id(frame) != at->term_id)) {
        return ps_img_corrupt(image, at->begin + offset, frame_length);
    }
    /* room is a multiple of 32, so the aligned length fits too. */
    at->offset = offset + ps_frame_guess(&at->step, ps_align32(frame_length));
    if (at->prefetch) {
        __builtin_prefetch((const uint8_t *)frame + PS_PREFETCH_BYTES);
    }
    const uint16_t type = (uint16_t)(word >> 48);
    if (PS_UNLIKELY(type != PS_TYPE_DATA)) {
        if (type != PS_TYPE_PAD) {
            at->offset = offset;
            return ps_img_corrupt(image, at->begin + offset, frame_length);
        }
        return 2;
    }
    out->data = (const uint8_t *)frame + PS_HEADER_BYTES;
    out->length = frame_length - PS_HEADER_BYTES;
    out->log_offset = at->log_base + offset + PS_HEADER_BYTES;
    out->start_position = at->begin + offset;
    out->position = at->begin + at->offset;
    out->reserved_value = ps_frame_reserved_value(frame);
    out->session_id = image->log.session_id;
    out->stream_id = image->log.stream_id;
    out->term_id = at->term_id;
    out->term_offset = offset;
    out->image_index = image->index;
    out->flags = (uint8_t)(word >> 40);
    out->assembled = 0;
    return 1;
}

static void ps_img_stretch(const ps_img_t *image, ps_stretch_t *at)
{
    const ps_log_t *log = &image->log;
    const int32_t partition = ps_partition(image->delivered, log->shift);
    at->term = log->term[partition];
    at->log_base = (int64_t)partition * log->term_length;
    at->offset = (int32_t)(image->delivered & log->term_mask);
    at->begin = image->delivered - at->offset;
    at->term_id = ps_term_id_at(image->delivered, log->shift, log->initial_term_id);
    at->step = 0;
    at->prefetch = log->type == PS_LOG_IMAGE || image->behind;
}

/* ---- gaps ------------------------------------------------------------------------------------ */

static int ps_img_is_gap(const ps_stretch_t *at, int32_t offset)
{
    const ps_frame_t *frame = (const ps_frame_t *)(const void *)(at->term + offset);
    return ps_is_gap_mark(ps_frame_reserved_value(frame));
}

/* Joins the gaps that follow one another, up to the end of the term. */
static void ps_img_note_gap(ps_img_t *image, ps_stretch_t *at, int32_t offset)
{
    ps_message_t unused;
    int64_t messages = 0;
    image->gap_from = at->begin + offset;
    for (;;) {
        const ps_frame_t *frame = (const ps_frame_t *)(const void *)(at->term + offset);
        const int64_t mark = (int32_t)ps_frame_reserved_value(frame);
        messages = mark == PS_GAP_UNKNOWN || mark < 0 || messages < 0 ? -1 : messages + mark;
        offset = at->offset;
        if (offset >= image->log.term_length || ps_img_frame(image, at, &unused) != 2 ||
            !ps_img_is_gap(at, offset)) {
            at->offset = offset;
            break;
        }
    }
    image->gap_to = at->begin + offset;
    image->gap_messages = messages;
}

void ps_img_relay_to(ps_img_t *image, int32_t publication_slot)
{
    if (image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->relayed_to, publication_slot + 1,
                              memory_order_relaxed);
    }
}

int ps_img_take_over(ps_img_t *image, int64_t recorded, int64_t ordinal)
{
    const int64_t term = image->released & ~(int64_t)image->log.term_mask;
    const int64_t from = recorded > term ? recorded : term;

    if (recorded < 0 || recorded % PS_FRAME_ALIGNMENT != 0 || image->delivered != image->released ||
        recorded - image->released > INT64_C(3) * image->log.term_length) {
        return ps_fail(
            PS_E_INVALID, "cannot continue an image at %lld: released %lld, delivered %lld",
            (long long)recorded, (long long)image->released, (long long)image->delivered);
    }
    image->delivered = from;
    image->join_position = from < image->join_position ? from : image->join_position;
    if (image->isolated != NULL) {
        ps_img_isolated_taken_over(image, ordinal);
    }
    return PS_OK;
}

int64_t ps_img_ordinal(ps_img_t *image)
{
    return image->isolated != NULL ? ps_img_isolated_ordinal(image) : PS_ORDINAL_UNKNOWN;
}

void ps_img_report_gaps(ps_img_t *image)
{
    image->report_gaps = 1;
}

int32_t ps_img_take_gap(ps_img_t *image, int64_t *from, int64_t *to, int64_t *messages)
{
    if (image->gap_to == image->gap_from) {
        return 0;
    }
    *from = image->gap_from;
    *to = image->gap_to;
    *messages = image->gap_messages;
    image->gap_from = image->gap_to;
    return 1;
}

/* Collects the messages up to the end of one term. */
static int32_t ps_img_scan_term(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags)
{
    ps_stretch_t at;
    ps_img_stretch(image, &at);
    int32_t count = 0;
    int result = 0;
    while (count < limit && at.offset < image->log.term_length) {
        const int32_t before = at.offset;
        result = ps_img_frame(image, &at, &out[count]);
        if (result <= 0) {
            break;
        }
        if (result == 2) {
            image->uneven = true;
            image->assembling = 0; /* padding never lies in a message that is whole */
            if (PS_UNLIKELY(image->report_gaps) && ps_img_is_gap(&at, before)) {
                if (count > 0) {
                    at.offset = before; /* the messages before the gap are delivered first */
                    break;
                }
                ps_img_note_gap(image, &at, before);
                image->delivered = at.begin + at.offset;
                return PS_E_GAP;
            }
            continue;
        }
        if (PS_LIKELY((out[count].flags & PS_FLAG_UNFRAGMENTED) == PS_FLAG_UNFRAGMENTED)) {
            image->assembling = 0;
            count++;
            continue;
        }
        image->uneven = true;
        if (!(flags & PS_POLL_ASSEMBLE)) {
            image->assembling = 0;
            count++;
            continue;
        }
        result = ps_img_assemble(image, &out[count]);
        if (result < 0) {
            break;
        }
        if (result == 1) {
            out[count++] = image->assembled;
            break;
        }
    }
    image->delivered = at.begin + at.offset;
    return result < 0 && count == 0 ? result : count;
}

/* If a term ends with padding only, the scan continues in the next term: the wake-up for that data
 * may already have happened. The readable range never spans more terms than partitions. */
static int32_t ps_img_scan(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags)
{
    int32_t count = 0;
    for (int32_t term = 0; term < PS_PARTITIONS && count == 0; term++) {
        const int64_t before = image->delivered;
        count = ps_img_scan_term(image, out, limit, flags);
        if (image->delivered == before || (image->delivered & image->log.term_mask) != 0) {
            break;
        }
    }
    return count;
}

/* A scan of memory that may be written over meanwhile. */
static int32_t ps_img_scan_isolated(ps_img_t *image, ps_message_t *out, int32_t limit,
                                    int32_t flags)
{
    const ps_img_before_t before = ps_img_isolated_begin(image);
    if (ps_img_is_outrun(image, before.delivered)) {
        return ps_img_skip(image, before.whole);
    }
    const int32_t skipped = ps_img_skip_lagged(image, &before);
    if (skipped <= 0) {
        return skipped;
    }
    const int32_t count = ps_img_scan(image, out, limit, flags);
    return ps_img_isolated_end(image, &before, out, count);
}

/* A scan of a stream that may drop data towards this reader. */
static int32_t ps_img_scan_guarded(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags)
{
    if (image->retention.limits) {
        const int32_t code = ps_img_expire(image);
        if (code != 0) {
            return code;
        }
    }
    return image->isolated != NULL ? ps_img_scan_isolated(image, out, limit, flags)
                                   : ps_img_scan(image, out, limit, flags);
}

/* A reader directly behind a busy publisher takes each cache line while the publisher writes the
 * next, so both wait for lines. After a few short polls in a row the reader pauses until several
 * messages have arrived. */
static void ps_img_stay_back(const ps_img_t *image)
{
    for (int32_t i = 0; image->short_polls >= PS_SHORT_POLLS && i < PS_PAUSES; i++) {
        ps_cpu_relax();
    }
}

static void ps_img_note_poll(ps_img_t *image, int32_t count, int32_t limit)
{
    if (image->log.type != PS_LOG_IMAGE) { /* the receiver writes long stretches at once */
        const bool few = count > 0 && count < PS_SHORT_MESSAGES && count < limit;
        const int32_t more = image->short_polls < PS_SHORT_POLLS;
        image->short_polls = few ? image->short_polls + more : 0;
        image->behind = count == limit;
    }
}

int32_t ps_img_poll(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags)
{
    if (ps_client_forked(image->client)) {
        return ps_client_fail_forked();
    }
    if (!(flags & PS_POLL_KEEP)) {
        ps_img_release(image);
    }
    if (limit < 1) {
        return limit == 0 ? 0 : ps_fail(PS_E_INVALID, "poll limit %d", limit);
    }
    if (image->redeliver) {
        image->redeliver = 0;
        image->assembled.image_index = image->index;
        out[0] = image->assembled;
        if (image->credit_mode != 0) {
            ps_img_credit_redelivered(image, -1);
        }
        return 1;
    }
    if (PS_UNLIKELY(image->stopped != 0)) {
        return ps_fail(image->stopped,
                       "session %d stream %d: the image is stopped at position %lld",
                       image->log.session_id, image->log.stream_id, (long long)image->delivered);
    }
    if (PS_UNLIKELY(image->gap_to != image->gap_from)) {
        return PS_E_GAP;
    }
    const int64_t before = image->delivered;
    ps_img_stay_back(image);
    const int32_t count = PS_UNLIKELY(image->guarded)
                              ? ps_img_scan_guarded(image, out, limit, flags)
                              : ps_img_scan(image, out, limit, flags);
    ps_img_note_poll(image, count, limit);
    if (PS_UNLIKELY(image->credit_mode != 0)) {
        ps_img_credit_polled(image, before, out, count);
    }
    if (image->delivered != before && image->subscriber != NULL) {
        atomic_store_explicit(&image->subscriber->delivered, image->delivered,
                              memory_order_release);
    }
    return count;
}
