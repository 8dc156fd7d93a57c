/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender_resume.c: lets the streams of a full socket wait for a turn again, when the time for a
 * further try has come (docs/decisions/0590). */
#include "ps_assert.h"
#include "ps_sender.h"

/* Returns true if the window is too small for the next frame. A frame of an impossible length does
 * not wait for the window. */
static bool is_shut(const ps_publication_t *pub)
{
    const ps_frame_t *frame = ps_frame_at(&pub->log, pub->sender_position);
    const int32_t offset = (int32_t)(pub->sender_position & pub->log.term_mask);
    const int32_t span =
        ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame), offset);
    const int32_t wire = frame->type == PS_TYPE_PAD ? PS_HEADER_BYTES : span;
    return span > 0 && pub->sender_position + wire > pub->sender_limit;
}

/* Notes that a window has opened, or that the limit has come down to less than the next frame. Only
 * a turn would notice it, and a stream that waits for its socket takes no turn: until the socket
 * has room, the account would blame the receiver, or the socket. */
static void note_window(ps_publication_t *pub)
{
    const bool shut = is_shut(pub);
    if (pub->window_shut != shut) {
        pub->window_shut = shut;
        ps_publication_account(pub, ps_publication_sender(pub)->now_ns);
    }
}

static void resume(ps_sender_t *sender, ps_send_endpoint_t *endpoint)
{
    ps_band_entry_t *entry = endpoint->held_head;
    endpoint->full = false;
    endpoint->held_head = NULL;
    endpoint->held_tail = NULL;
    sender->full_count--;
    while (entry != NULL) {
        ps_band_entry_t *next = entry->next;
        ps_publication_t *pub = ps_sender_publication_of(entry);
        ps_sender_release_held(endpoint, entry);
        if (entry->list == PS_BAND_REPAIR) {
            ps_sender_ready_repair(sender, pub);
        } else {
            /* Only the first of them may have a turn, and its publishers wait for their limits. */
            note_window(pub);
            (void)ps_publication_update(pub, false, sender->now_ns);
            ps_sender_ready(sender, pub);
        }
        entry = next;
    }
    PS_ASSERT(sender->full_count >= 0);
}

void ps_sender_resume_held(ps_sender_t *sender, ps_send_endpoint_t *endpoint)
{
    if (endpoint->full_until_ns <= sender->now_ns) {
        resume(sender, endpoint);
        return;
    }
    ps_sender_due(sender, endpoint->full_until_ns);
    sender->urgent = true;
}
