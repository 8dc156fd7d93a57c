/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_insert.c: copies an accepted datagram into the log, and opens or closes gaps.
 *
 * The usual case, a datagram at the high-water mark, is one copy. Everything below the mark is
 * written only where bytes are missing: whole frames, in runs, so that a repeated or forged
 * retransmission can never change what a subscriber may be reading. A run becomes visible by one
 * release store of its first eight bytes, after everything behind these is in place; a reader that
 * walks forward cannot meet the later frames before the first.
 *
 * Terms are not zeroed before they are used again (docs/decisions/0024). A reader stops at a frame
 * whose first word is zero. The only such word that it can reach is at the end of the contiguous
 * data. A write that ends at a missing position therefore first zeroes the word there ("seals" it).
 * Memory beyond may hold frames of an earlier lap, which no reader can reach. */
#include "ps_image.h"
#include "ps_assert.h"

#include <string.h>

#include "ps_receiver.h"

static int32_t frame_length_of(const uint8_t *frame)
{
    int32_t length;

    memcpy(&length, frame, sizeof(length));
    return length;
}

/* Writes a timestamp into one frame that lies in the log, but for its first 8 bytes. */
static void stamp(uint8_t *frame, const uint8_t *source, int32_t offset, int64_t epoch_ns)
{
    int32_t payload = frame_length_of(source) - PS_HEADER_BYTES;
    uint16_t type;

    memcpy(&type, source + 6, sizeof(type));
    if (type != PS_TYPE_DATA) {
        return;
    }
    if (offset == -8) {
        memcpy(frame + 24, &epoch_ns, sizeof(epoch_ns));
    } else if (offset >= 0 && payload >= 8 && offset <= payload - 8 &&
               (source[5] & PS_FLAG_BEGIN) != 0) {
        memcpy(frame + PS_HEADER_BYTES + offset, &epoch_ns, sizeof(epoch_ns));
    }
}

static void stamp_all(const ps_image_t *image, uint8_t *target, const uint8_t *data,
                      uint32_t length, int64_t rx_ns)
{
    const ps_recv_endpoint_params_t *params = &image->endpoint->params;
    int64_t offset_ns = ps_context_epoch_offset_ns(image->context);

    for (uint32_t at = 0; at < length;) {
        if (params->media_timestamp) {
            stamp(target + at, data + at, params->media_timestamp_offset, rx_ns + offset_ns);
        }
        if (params->channel_timestamp) {
            stamp(target + at, data + at, params->channel_timestamp_offset,
                  image->receiver->now_ns + offset_ns);
        }
        at += (uint32_t)ps_align32(frame_length_of(data + at));
    }
}

/* True when bytes from position on are in the log. */
static bool is_filled(const ps_image_t *image, int64_t position)
{
    int32_t index;

    if (position >= image->hwm) {
        return false;
    }
    index = ps_gaps_find(&image->gaps, position);
    return index == image->gaps.count || image->gaps.items[index].from > position;
}

void ps_image_seal(ps_image_t *image, int64_t position)
{
    /* At most at the end of what is reserved, and there each term's first page always is. */
    if (!is_filled(image, position)) {
        /* Relaxed: readers get here only through a frame that is released after this. */
        atomic_store_explicit(ps_frame_word(ps_frame_at(&image->log, position)), 0,
                              memory_order_relaxed);
    }
}

/* Copies length bytes of whole frames to position. The target is missing, reserved, and read by no
 * subscriber; data was checked as a chain within one term. */
static void write_run(ps_image_t *image, int64_t position, const uint8_t *data, uint32_t length,
                      int64_t rx_ns)
{
    uint8_t *target = ps_log_at(&image->log, position);
    uint64_t word;

    PS_ASSERT(length >= PS_HEADER_BYTES && length % PS_FRAME_ALIGNMENT == 0);
    memcpy(&word, data, sizeof(word));
    memcpy(target + sizeof(word), data + sizeof(word), length - sizeof(word));
    if (image->endpoint->params.media_timestamp || image->endpoint->params.channel_timestamp) {
        stamp_all(image, target, data, length, rx_ns);
    }
    /* Pairs with the readers' acquire load of frame_length. */
    atomic_store_explicit(ps_frame_word((ps_frame_t *)(void *)target), word, memory_order_release);
}

/* [hwm, position) is missing, the mark rises over it; the first timer of a new gap: due_ns. */
static bool append_gap(ps_image_t *image, int64_t position, int64_t due_ns)
{
    PS_ASSERT(position > image->hwm);
    if (!ps_gaps_append(&image->gaps, image->hwm, position, due_ns, image->receiver->now_ns)) {
        image->refused++;
        return false;
    }
    image->hwm = position;
    image->nak_due_ns = due_ns < image->nak_due_ns ? due_ns : image->nak_due_ns;
    image->lost_due_ns = due_ns < image->lost_due_ns ? due_ns : image->lost_due_ns;
    ps_receiver_make_hot(image->receiver, image);
    return true;
}

bool ps_image_raise_hwm(ps_image_t *image, int64_t position)
{
    int64_t from = image->hwm;
    int64_t first_ns = 0;

    PS_ASSERT(position >= from);
    if (position == from) {
        return true;
    }
    if (image->params.reliable) {
        first_ns = ps_nak_first_ns(&image->nak, &image->receiver->random);
        first_ns = first_ns > image->reordering.window_ns ? first_ns : image->reordering.window_ns;
    }
    if (!append_gap(image, position, image->receiver->now_ns + first_ns)) {
        return false;
    }
    if (image->gaps.items[image->gaps.count - 1].lost) { /* it joined one that counts already */
        ps_image_count_loss(image, from, position);
    }
    return true;
}

void ps_image_lower_hwm(ps_image_t *image, int64_t position)
{
    PS_ASSERT(image->gaps.count > 0 && image->gaps.items[image->gaps.count - 1].to == image->hwm &&
              position >= image->gaps.items[image->gaps.count - 1].from && position < image->hwm);
    (void)ps_gaps_fill(&image->gaps, position, image->hwm); /* the end of a gap: no split */
    image->hwm = position; /* the word there is zeroed by what fills the rest of the gap */
}

/* Bytes of a gap arrived, late or retransmitted. A request that did not fit into the list is not
 * recorded, so a later arrival is not counted as a duplicate. */
static void learn_lateness(ps_image_t *image, int64_t from, int64_t to, const ps_gap_t *gap,
                           bool filled)
{
    if (!image->params.group && (filled || gap->requested == 0)) {
        ps_reordering_filled(&image->reordering, from, to, image->receiver->now_ns - gap->opened_ns,
                             gap->requested, image->rtt.least_ns);
    }
}

/* [from, to) of a gap arrived, so the sender still retransmits. The interval between the NAKs for
 * the rest of the gap must not grow: it grows only for a range that may be lost permanently. Until
 * a round trip is measured, the interval grows in any case. */
static void keep_requesting(ps_image_t *image, int64_t from, int64_t to)
{
    ps_gaps_t *gaps = &image->gaps;

    if (ps_rtt_timeout_ns(&image->rtt) == 0) {
        return;
    }
    for (int32_t i = ps_gaps_find(gaps, from - 1); i < gaps->count && gaps->items[i].from <= to;
         i++) {
        ps_gap_t *gap = &gaps->items[i];

        gap->requested = gap->requested < PS_NAK_PATIENCE ? gap->requested : PS_NAK_PATIENCE;
    }
}

/* Writes [from, to) of the datagram, whole frames inside one gap. */
static bool fill_run(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t start,
                     int64_t from, int64_t to, int64_t rx_ns)
{
    PS_ASSERT(from >= start && to > from && to <= image->hwm);
    const ps_gap_t gap = image->gaps.items[ps_gaps_find(&image->gaps, from)];
    bool filled = ps_gaps_fill(&image->gaps, from, to);
    uint32_t at = (uint32_t)(from - start);
    uint32_t bytes = (uint32_t)(to - from);

    learn_lateness(image, from, to, &gap, filled);
    if (!filled) {
        image->refused++;
        return false; /* would need one gap more than there is room for */
    }
    if (bytes > length - at) {
        bytes = length - at; /* a PAD, sent without its body */
    }
    keep_requesting(image, from, to);
    ps_image_seal(image, to);
    write_run(image, from, data + at, bytes, rx_ns);
    return true;
}

/* A datagram that begins below the high-water mark: its frames go where bytes are missing. */
static bool insert_into_gaps(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t start,
                             int64_t rx_ns)
{
    int64_t run_from = -1;
    int64_t run_to = -1;
    bool any = false;

    for (uint32_t at = 0; at < length;) {
        int64_t from = start + at;
        int64_t to = from + ps_align32_64(frame_length_of(data + at));
        int32_t index = ps_gaps_find(&image->gaps, from);
        bool missing = index < image->gaps.count && image->gaps.items[index].from <= from &&
                       image->gaps.items[index].to >= to;

        if (run_from >= 0 && !(missing && from == run_to)) {
            any |= fill_run(image, data, length, start, run_from, run_to, rx_ns);
            run_from = -1;
        }
        if (missing) {
            run_from = run_from < 0 ? from : run_from;
            run_to = to;
        }
        if (index == image->gaps.count) {
            break;
        }
        at = to - start >= length ? length : (uint32_t)(to - start);
    }
    if (run_from >= 0) {
        any |= fill_run(image, data, length, start, run_from, run_to, rx_ns);
    }
    return any;
}

bool ps_image_insert(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t position,
                     int32_t span, int32_t messages, int64_t rx_ns)
{
    int64_t end = position + span;

    if (position >= image->hwm) {
        if (!ps_image_raise_hwm(image, position)) {
            return false;
        }
        ps_image_seal(image, end);
        write_run(image, position, data, length, rx_ns);
        image->hwm = end;
        if (image->ordinal_position == position && image->ordinal >= 0) {
            image->ordinal_position = end;
            image->ordinal += messages;
        }
        return true;
    }
    /* The mark rises over a datagram that begins below it: what it brings above the mark counts as
     * missing until it is written a moment later. */
    if (end > image->hwm && !append_gap(image, end, image->receiver->now_ns)) {
        return false;
    }
    if (image->gaps.count == 0 || end <= image->gaps.items[0].from) {
        return false; /* all there already */
    }
    return insert_into_gaps(image, data, length, position, rx_ns);
}

void ps_image_reveal(ps_image_t *image, uint64_t first_word, uint32_t length, int32_t messages)
{
    int64_t position = image->hwm;

    ps_image_seal(image, position + length);
    /* Pairs with the readers' acquire load of frame_length. */
    atomic_store_explicit(ps_frame_word(ps_frame_at(&image->log, position)), first_word,
                          memory_order_release);
    image->hwm = position + length;
    if (image->ordinal_position == position && image->ordinal >= 0) {
        image->ordinal_position = image->hwm;
        image->ordinal += messages;
    }
}

/* ---- message ordinals ------------------------------------------------------------------------ */

static void index_ordinal(ps_image_t *image)
{
    int64_t now_ns = image->receiver->now_ns;
    int64_t moved = image->ordinal_position - image->index_position;

    if (moved <= 0 || image->ring == NULL ||
        (moved < image->log.term_length / 256 && now_ns - image->index_ns < INT64_C(1000000))) {
        return;
    }
    image->index_position = image->ordinal_position;
    image->index_ns = now_ns;
    ps_index_append(image->ring, image->ordinal_position, image->ordinal,
                    now_ns + ps_context_epoch_offset_ns(image->context));
}

void ps_image_count_messages(ps_image_t *image)
{
    int64_t end = ps_image_contiguous(image);

    if (image->ordinal < 0) {
        return;
    }
    for (int32_t i = 0; i < PS_IMAGE_SCAN_FRAMES && image->ordinal_position < end; i++) {
        const ps_frame_t *frame = ps_frame_at(&image->log, image->ordinal_position);
        int32_t length = ps_frame_length_acquire(frame);
        int64_t left = image->log.term_length - (image->ordinal_position & image->log.term_mask);

        if (length <= 0 || ps_align32_64(length) > left) {
            image->ordinal = -1; /* another process wrote into the log: stop counting and report
                                  * unknown */
            return;
        }
        image->ordinal += ps_frame_messages(frame);
        image->ordinal_position += ps_align32_64(length);
    }
    image->ordinal = ps_believed_ordinal(image->ordinal);
    atomic_store_explicit(&image->slot->ordinal, image->ordinal, memory_order_relaxed);
    index_ordinal(image);
}
