/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_position.c: the sender position of a publication: advances it, skips data that
 * spies have read, maintains the index, and notes a blocking claim. */

#include "ps_frame.h"
#include "ps_assert.h"
#include "ps_sender.h"

enum { SKIP_FRAMES = 4096, INDEX_PARTS = 256 };

void ps_publication_add_index(ps_publication_t *pub, int64_t position, int64_t ordinal,
                              int64_t now_ns)
{
    const int64_t step = ps_publication_term(pub) / INDEX_PARTS;
    const int64_t advanced = position - pub->index_position;
    if (position > pub->timed_position) {
        pub->timed_position = position;
        ps_times_note(pub->times, position, now_ns + ps_context_epoch_offset_ns(pub->context),
                      ps_publication_term(pub));
    }
    if (advanced <= 0 || (advanced < step && now_ns - pub->index_ns < PS_TICK_NS)) {
        return;
    }
    ps_index_append(pub->ring, position, ordinal,
                    now_ns + ps_context_epoch_offset_ns(pub->context));
    pub->index_position = position;
    pub->index_ns = now_ns;
}

void ps_publication_move_sender(ps_publication_t *pub, int64_t position, int64_t messages,
                                int64_t now_ns)
{
    PS_ASSERT(position >= pub->sender_position && messages >= 0);
    pub->sender_position = position;
    pub->sent_ordinal += messages;
    /* release: a thread that sees the position may read the data below */
    atomic_store_explicit(pub->sender_position_cell, position, memory_order_release);
    atomic_store_explicit(&pub->slot->sent_ordinal, pub->sent_ordinal, memory_order_release);
    atomic_store_explicit(&pub->status_consumer, position, memory_order_release);
    ps_publication_add_index(pub, position, pub->sent_ordinal, now_ns);
}

bool ps_publication_skip_to(ps_publication_t *pub, int64_t to)
{
    int64_t position = pub->sender_position;
    int64_t messages = 0;
    for (int32_t i = 0; i < SKIP_FRAMES && position < to; i++) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, position);
        const int32_t length = ps_frame_length_acquire(frame);
        const int32_t span = ps_publication_checked_span(pub, frame, length,
                                                         (int32_t)(position & pub->log.term_mask));
        if (span < 0) {
            break;
        }
        messages += ps_frame_messages(frame);
        pub->dropped_sent += frame->type == PS_TYPE_PAD ? ps_frame_messages(frame) : 0;
        position += span;
    }
    if (position > pub->sender_position) {
        ps_publication_move_sender(pub, position, messages, ps_publication_sender(pub)->now_ns);
        /* The window is no cause if there is no data to send. */
        pub->window_shut = pub->window_shut && ps_publication_frame_is_there(pub, position);
    }
    return position >= to;
}

bool ps_publication_is_blocked(const ps_publication_t *pub, int64_t *position)
{
    const int64_t at = pub->endpoint != NULL   ? pub->sender_position
                       : pub->gating_count > 0 ? pub->fastest_position
                                               : pub->consumer_position;
    *position = at;
    return pub->producer_position > at && ps_frame_length_acquire(ps_frame_at(&pub->log, at)) <= 0;
}

int64_t ps_publication_check_interval_ns(const ps_publication_t *pub)
{
    const int64_t check_ns = pub->context->params.unblock_timeout_ns / 16;
    return check_ns > PS_TICK_NS ? check_ns : PS_TICK_NS;
}

void ps_publication_note_blocked(ps_publication_t *pub, int64_t now_ns)
{
    int64_t position;
    if (!ps_publication_is_blocked(pub, &position) || position == pub->blocked_position) {
        return;
    }
    pub->blocked_position = position;
    pub->blocked_since_ns = now_ns;
    ps_publication_due(pub, now_ns + ps_publication_check_interval_ns(pub));
}
