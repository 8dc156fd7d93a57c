/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_policy.c: the sender's part of a publication's policy (docs/spec/rules.md
 * section 12): publishers that reached the limit wait for the low watermark; what they dropped is
 * stated in the log before anything else is accepted (docs/decisions/0190).
 */
#include "ps_policy.h"
#include "ps_sender.h"

/* MARK_MOST: messages that one padding frame can state. */
enum { RESERVE_TRIES = 4, OPEN_TRIES = 64, MARK_MOST = PS_GAP_UNKNOWN - 1 };

static uint64_t policy_word(const ps_publication_t *pub)
{
    return atomic_load_explicit(&pub->slot->policy_word, memory_order_acquire);
}

/* Messages that were dropped and are not stated yet. */
static int64_t unstated(const ps_publication_t *pub, uint64_t word)
{
    const uint64_t stated =
        (uint64_t)atomic_load_explicit(&pub->slot->dropped_stated, memory_order_relaxed);
    return (int64_t)((word - stated) & PS_POLICY_DROPPED);
}

void ps_publication_policy_init(ps_publication_t *pub)
{
    const ps_publication_params_t *params = &pub->params;
    const bool known = params->policy > PS_POLICY_NONE && params->policy < PS_POLICY_COUNT;
    const bool stated =
        params->low_watermark_bytes > 0 && params->low_watermark_bytes <= pub->window_bytes;
    pub->low_watermark = stated ? params->low_watermark_bytes : pub->window_bytes / 2;
    pub->drops = ps_policy_drops(params->policy) && !params->exclusive;
    pub->paused = false;
    if (!params->adopted) {
        atomic_store_explicit(&pub->slot->policy_word, 0, memory_order_relaxed);
    }
    /* Release: a publisher that sees it finds the word. */
    atomic_store_explicit(&pub->slot->policy, known ? params->policy : PS_POLICY_NONE,
                          memory_order_release);
}

bool ps_publication_stays_paused(ps_publication_t *pub)
{
    const bool counts = pub->params.depth_messages > 0;
    const bool queued = counts && ps_publication_depth_look(pub);
    const bool full = pub->producer_position >= pub->publisher_limit || pub->message_depth.binds;
    pub->paused = (queued || pub->depth > pub->low_watermark) && (pub->paused || full);
    if (counts) {
        ps_publication_depth_open(pub, pub->paused);
    }
    return pub->paused;
}

/* Reserves one padding frame at the tail, as a publisher does.  -1: the last term is used up, or
 * publishers turned the term each time. */
static int64_t reserve(const ps_publication_t *pub)
{
    const ps_log_t *log = &pub->log;
    for (int32_t i = 0; i < RESERVE_TRIES; i++) {
        const int32_t count =
            atomic_load_explicit(&log->meta->active_term_count, memory_order_acquire);
        if (count < 0 || count == INT32_MAX) {
            return -1;
        }
        _Atomic int64_t *tail = &log->meta->tail[(uint32_t)count % PS_PARTITIONS];
        const int32_t term_id = ps_wrap_add(log->initial_term_id, count);
        int64_t raw = atomic_load_explicit(tail, memory_order_acquire);
        if ((int32_t)(raw >> 32) == term_id && (uint32_t)raw < (uint32_t)log->term_length) {
            raw = atomic_fetch_add_explicit(tail, PS_FRAME_ALIGNMENT, memory_order_acq_rel);
        }
        if ((int32_t)(raw >> 32) != term_id) {
            continue;
        }
        if ((uint32_t)raw < (uint32_t)log->term_length) {
            return ((int64_t)count << log->shift) + (int64_t)(uint32_t)raw;
        }
        (void)ps_log_rotate(log, count, term_id);
    }
    return -1;
}

/* Opens the stream to publishers, and states their drops until then in the frame.  If publishers
 * dropped more during each try, the stream stays shut until the next call. */
static void open_stream(ps_publication_t *pub, ps_frame_t *frame)
{
    _Atomic uint64_t *cell = &pub->slot->policy_word;
    uint64_t word = atomic_load_explicit(cell, memory_order_acquire);
    int64_t messages = 0;
    for (int32_t i = 0; i < OPEN_TRIES; i++) {
        const int64_t owed = unstated(pub, word);
        messages = owed < MARK_MOST ? owed : MARK_MOST;
        if (messages < owed ||
            atomic_compare_exchange_strong_explicit(cell, &word, word & ~PS_POLICY_SHUT,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            break;
        }
    }
    ps_frame_reserved(frame, messages > 0 ? ps_gap_mark((int32_t)messages) : 0);
    const uint64_t stated =
        (uint64_t)atomic_load_explicit(&pub->slot->dropped_stated, memory_order_relaxed);
    atomic_store_explicit(&pub->slot->dropped_stated,
                          (int64_t)((stated + (uint64_t)messages) & PS_POLICY_DROPPED),
                          memory_order_relaxed);
}

bool ps_publication_owes_gap(const ps_publication_t *pub)
{
    const uint64_t word = policy_word(pub);
    return pub->drops && ((word & PS_POLICY_SHUT) != 0 || unstated(pub, word) != 0);
}

/* Returns whether a message can begin after the padding frame. A byte rate raises the limit by few
 * bytes at a time: a frame that used them up would shut the stream again, and publishers that never
 * rest would never be admitted. A stream that ends accepts nothing more: the frame may fill it. */
static bool has_room(const ps_publication_t *pub)
{
    const bool rated = pub->byte_allowance.rate > 0 && pub->state == PS_PUBLICATION_ACTIVE;
    const int64_t begin = ps_log_producer_position(&pub->log);
    return begin + (rated ? PS_FRAME_ALIGNMENT : 0) < pub->publisher_limit;
}

/* A frame of one header: no claim is needed, for who pads over claims is this thread. */
bool ps_publication_state_drops(ps_publication_t *pub)
{
    if (!ps_publication_owes_gap(pub) || pub->paused || !has_room(pub) ||
        ps_publication_admits_no_message(pub)) {
        return false;
    }
    const int64_t position = reserve(pub);
    if (position < 0) {
        return false;
    }
    ps_frame_t *frame = ps_frame_at(&pub->log, position);
    ps_frame_fields(frame, (int32_t)(position & pub->log.term_mask), pub->log.session_id,
                    pub->log.stream_id,
                    ps_term_id_at(position, pub->log.shift, pub->log.initial_term_id));
    open_stream(pub, frame);
    atomic_store_explicit(ps_frame_word(frame),
                          ps_frame_word_of(PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD),
                          memory_order_release);
    pub->producer_position = ps_log_producer_position(&pub->log);
    atomic_store_explicit(pub->position_cell, pub->producer_position, memory_order_release);
    pub->limit_raised = true; /* publishers may be waiting to be let in again */
    ps_publication_wake_subscribers(pub);
    ps_sender_watch(ps_publication_sender(pub), pub); /* as after a publisher's notification */
    return true;
}

void ps_publication_close_end(ps_publication_t *pub)
{
    pub->publisher_limit = pub->producer_position;
    pub->end_position = pub->producer_position;
    atomic_store_explicit(ps_publication_limit_cell(pub), pub->publisher_limit,
                          memory_order_release);
    atomic_store_explicit(&pub->log.meta->end_of_stream, pub->end_position, memory_order_release);
}
