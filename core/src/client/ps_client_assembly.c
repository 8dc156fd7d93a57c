/* SPDX-License-Identifier: Apache-2.0
 * ps_client_assembly.c: a message in fragments is copied into one piece.
 */
#include <stdlib.h>
#include <string.h>

#include "ps_client_internal.h"

static int ps_img_grow(ps_img_t *image, int64_t needed)
{
    if (needed <= image->capacity) {
        return PS_OK;
    }
    int64_t capacity = image->capacity > 0 ? image->capacity : 8192;
    while (capacity < needed) {
        capacity *= 2;
    }
    uint8_t *grown = realloc(image->buffer, (size_t)capacity);
    if (grown == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a message of %lld bytes", (long long)needed);
    }
    image->buffer = grown;
    image->capacity = capacity;
    return PS_OK;
}

int ps_img_assemble(ps_img_t *image, const ps_message_t *fragment)
{
    if (fragment->flags & PS_FLAG_BEGIN) {
        image->assembling = 1;
        image->used = 0;
        image->assembled = *fragment;
        image->assembled.position = 0; /* not complete */
    } else if (!image->assembling) {
        return 0; /* joined in the middle of this message */
    }
    if (fragment->length > image->max_message_bytes - image->used) {
        image->stopped = ps_fail(PS_E_CORRUPT,
                                 "session %d stream %d: message at position %lld is "
                                 "longer than %lld bytes: the image is stopped",
                                 fragment->session_id, fragment->stream_id,
                                 (long long)image->assembled.start_position,
                                 (long long)image->max_message_bytes);
        return image->stopped;
    }
    const int code = ps_img_grow(image, image->used + fragment->length);
    if (code != PS_OK) {
        image->stopped = code; /* stops with an error rather than lose the message in silence */
        return code;
    }
    if (fragment->length > 0) {
        memcpy(image->buffer + image->used, fragment->data, (size_t)fragment->length);
    }
    image->used += fragment->length;
    if (!(fragment->flags & PS_FLAG_END)) {
        return 0;
    }
    image->assembling = 0;
    image->assembled.data = image->buffer;
    image->assembled.length = image->used;
    image->assembled.log_offset = -1;
    image->assembled.position = fragment->position;
    image->assembled.flags = PS_FLAG_UNFRAGMENTED;
    image->assembled.assembled = 1;
    return 1;
}
