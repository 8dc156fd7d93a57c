/* SPDX-License-Identifier: Apache-2.0
 * ps_client_image_count.c: counts the messages between two positions of an image's log. */
#include "ps_client_internal.h"

int64_t ps_img_messages(const ps_img_t *image, int64_t from, int64_t to)
{
    const ps_log_t *log = &image->log;
    int64_t messages = 0;
    while (from < to) {
        const ps_frame_t *frame = ps_frame_at(log, from);
        const int64_t length = ps_frame_length_acquire(frame);
        if (length < PS_HEADER_BYTES ||
            ps_align32_64(length) > log->term_length - (from & log->term_mask)) {
            break; /* the poll checked it; it was overwritten since */
        }
        messages += ps_frame_messages(frame);
        from += ps_align32_64(length);
    }
    return messages;
}

int64_t ps_img_count(const ps_img_t *image, int64_t from, int64_t to)
{
    const ps_log_t *log = &image->log;
    const int64_t start = from;
    int64_t messages = 0;
    if (from < image->join_position || to < from || to - from > INT64_C(3) * log->term_length ||
        from % PS_FRAME_ALIGNMENT != 0) {
        return -1;
    }
    while (from < to) {
        const ps_frame_t *frame = ps_frame_at(log, from);
        const int64_t length = ps_frame_length_acquire(frame);
        const int64_t offset = from & log->term_mask;
        if (length < PS_HEADER_BYTES || ps_align32_64(length) > log->term_length - offset ||
            frame->term_offset != offset) {
            return -1;
        }
        if (frame->type == PS_TYPE_DATA) {
            messages += (frame->flags & PS_FLAG_END) != 0;
        } else if (ps_is_gap_mark(ps_frame_reserved_value(frame))) {
            return -1;
        }
        from += ps_align32_64(length);
    }
    return from == to && !(image->isolated != NULL && ps_img_is_outrun(image, start)) ? messages
                                                                                      : -1;
}
