/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_client_publication_take_over.c: a process continues the exclusive publication of another that
 * has died (docs/relay.md). The dead owner may have stopped at any instruction: it may have moved
 * the tail without a frame, published a frame without counting it, or published a part of a
 * message. */
#include "ps_client_publication.h"

/* Pads over [position, tail) of a term, of which the dead owner had published nothing. Returns the
 * bytes padded; 0: the sender has padded over it in the meantime. */
static int32_t pad_over(const ps_pub_t *pub, int64_t position)
{
    int32_t claimer;
    return ps_log_unblock(&pub->log, position, -1, &claimer);
}

static int64_t fail_frame(const ps_pub_t *pub, int64_t position, int64_t length)
{
    return ps_fail(PS_E_CORRUPT, "publication %lld: frame of %lld bytes at position %lld",
                   (long long)pub->registration_id, (long long)length, (long long)position);
}

int64_t ps_pub_take_over(ps_pub_t *pub, int64_t from, int64_t ordinal)
{
    const ps_log_t *log = &pub->log;
    const int64_t end = ((int64_t)pub->term_count << log->shift) + pub->term_offset;
    int64_t messages = 0;

    if (!pub->exclusive || from < 0 || from > end || from % PS_FRAME_ALIGNMENT != 0 ||
        end - from > INT64_C(2) * log->term_length || ordinal < 0) {
        return ps_fail(PS_E_INVALID,
                       "cannot take over publication %lld from position %lld: it is at %lld",
                       (long long)pub->registration_id, (long long)from, (long long)end);
    }
    for (int64_t position = from; position < end;) {
        const ps_frame_t *frame = ps_frame_at(log, position);
        int64_t length = ps_frame_length_acquire(frame);
        if (length <= 0) {
            length = pad_over(pub, position);
            if (length == 0) { /* padded by the sender */
                length = ps_frame_length_acquire(frame);
            }
        }
        const int64_t span = ps_align32_64(length);
        if (length < PS_HEADER_BYTES || (position & log->term_mask) + span > log->term_length) {
            return fail_frame(pub, position, length);
        }
        messages += ps_frame_length_acquire(frame) > 0 ? ps_frame_messages(frame) : 0;
        position += span;
    }
    pub->ordinal = ordinal + messages;
    atomic_store_explicit(&pub->slot->published_ordinal, pub->ordinal, memory_order_release);
    ps_client_mark_dirty_again(pub->client, pub->slot_index);
    return messages;
}
