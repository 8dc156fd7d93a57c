/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_isolation.h"

#include "ps_frame.h"

enum { COUNT_FRAMES = 4096 }; /* of one call of ps_isolation_count */

void ps_isolation_init(ps_isolation_t *isolation, ps_subscriber_slot_t *slot, int64_t depth_bytes,
                       int64_t window_bytes)
{
    const int64_t most = window_bytes / 2;
    int64_t depth = depth_bytes > 0 ? depth_bytes : window_bytes / 4;

    depth = depth < most ? depth : most;
    isolation->depth_bytes = depth > PS_FRAME_ALIGNMENT ? depth : PS_FRAME_ALIGNMENT;
    isolation->slot = slot;
    isolation->seen = 0;
    isolation->seen_ns = 0;
    isolation->lagged = false;
    isolation->messages.on = false;
    isolation->noted = false;
    isolation->reported = false;
    isolation->reported_ns = INT64_MIN / 2;
    atomic_store_explicit(&slot->lagged, 0, memory_order_relaxed);
}

void ps_isolation_limit(ps_isolation_t *isolation, int64_t depth_messages, int64_t most,
                        int64_t position)
{
    ps_isolation_messages_t *messages = &isolation->messages;
    const ps_isolation_cursor_t here = { position, 0 };
    const int64_t depth = depth_messages > 0 ? depth_messages : INT64_MAX;

    *messages = (ps_isolation_messages_t){ .on = depth_messages > 0 || most > 0,
                                           .depth = depth,
                                           .waits = depth,
                                           .end = here,
                                           .newest = here,
                                           .lagged = here,
                                           .caught = here };
    if (most > 0 && most / 2 < depth) {
        messages->waits = most / 2;
    }
}

/* Moves a cursor behind one frame. Returns false if no complete frame is there. */
static bool pass_frame(ps_isolation_cursor_t *cursor, const ps_log_t *log, int64_t to)
{
    const ps_frame_t *frame = ps_frame_at(log, cursor->position);
    const int64_t length = ps_frame_length_acquire(frame);
    const int64_t span = ps_align32_64(length);

    if (length < PS_HEADER_BYTES || span > log->term_length - (cursor->position & log->term_mask) ||
        span > to - cursor->position) {
        return false;
    }
    cursor->messages += frame->type == PS_TYPE_DATA ? ps_frame_messages(frame) : 0;
    cursor->position += span;
    return true;
}

/* Moves a cursor until at most `unread` messages end between it and the end of the count. The
 * writer uses memory again, so a cursor must not stay behind: each cursor also follows the end at a
 * distance of 3/4 of a term. The depth in bytes is less, so a reader that is further behind is
 * lagged in any case. */
static void follow(ps_isolation_cursor_t *cursor, const ps_isolation_messages_t *messages,
                   const ps_log_t *log, int64_t unread)
{
    const int64_t least = messages->end.position - 3 * (int64_t)(log->term_length / 4);

    while ((messages->end.messages - cursor->messages > unread || cursor->position < least) &&
           pass_frame(cursor, log, messages->end.position)) {
    }
}

/* Begins the count again at `available`, because the frames between are gone. All messages below
 * count as more than the depth: a lagged reader does not hold the writer again because of this. */
static void begin_again(ps_isolation_messages_t *messages, int64_t available)
{
    const ps_isolation_cursor_t here = { available, 0 };

    messages->end = here;
    messages->newest = here;
    messages->lagged = here;
    messages->caught = here;
}

bool ps_isolation_count(ps_isolation_t *isolation, const ps_log_t *log, int64_t available)
{
    ps_isolation_messages_t *messages = &isolation->messages;
    int32_t frames = 0;

    if (!messages->on) {
        return false;
    }
    while (frames < COUNT_FRAMES && messages->end.position < available &&
           pass_frame(&messages->end, log, available)) {
        frames++;
    }
    follow(&messages->newest, messages, log, messages->depth);
    follow(&messages->lagged, messages, log, messages->waits);
    follow(&messages->caught, messages, log, messages->waits / 2);
    if (frames < COUNT_FRAMES) {
        return false;
    }
    /* The agent releases memory more than a term behind after this look. */
    const int64_t least = available - log->term_length;
    if (messages->newest.position < least || messages->lagged.position < least ||
        messages->caught.position < least) {
        begin_again(messages, available);
    }
    return messages->end.position < available;
}

bool ps_isolation_step(ps_isolation_t *isolation, int64_t position, int64_t leader)
{
    const int64_t behind = leader - position;
    const ps_isolation_messages_t *messages = &isolation->messages;
    const bool lagged = isolation->lagged
                            ? behind > isolation->depth_bytes / 2 ||
                                  (messages->on && position < messages->caught.position)
                            : behind >= isolation->depth_bytes ||
                                  (messages->on && position < messages->lagged.position);

    if (lagged == isolation->lagged) {
        return false;
    }
    isolation->lagged = lagged;
    atomic_store_explicit(&isolation->slot->lagged, lagged, memory_order_relaxed);
    return true;
}

static void raise_to(_Atomic int64_t *cell, int64_t position)
{
    if (position > atomic_load_explicit(cell, memory_order_relaxed)) {
        atomic_store_explicit(cell, position, memory_order_relaxed);
    }
}

/* Returns the position from which `depth` messages lie before the end of the data; 0: unknown. */
static int64_t newest_of(const ps_isolation_messages_t *messages)
{
    return messages->newest.messages > 0 ? messages->newest.position : 0;
}

/* Each look that is PS_ISOLATION_LATE_NS after the noted one states what was noted, and is noted
 * itself. */
static void state_late(ps_isolation_t *isolation, int64_t newest, int64_t now_ns)
{
    if (now_ns - isolation->seen_ns < PS_ISOLATION_LATE_NS) {
        return;
    }
    if (isolation->seen > atomic_load_explicit(&isolation->slot->late, memory_order_relaxed)) {
        atomic_store_explicit(&isolation->slot->late, isolation->seen, memory_order_relaxed);
    }
    if (isolation->messages.on) {
        raise_to(&isolation->slot->late_from, isolation->messages.seen_newest);
        isolation->messages.seen_newest = newest_of(&isolation->messages);
    }
    isolation->seen = newest;
    isolation->seen_ns = now_ns;
}

void ps_isolation_mark(ps_isolation_t *isolation, int64_t mark, int64_t newest, int64_t now_ns)
{
    ps_subscriber_slot_t *slot = isolation->slot;

    /* skip_to first: a client that sees the mark also sees a position that is not below. */
    if (newest > atomic_load_explicit(&slot->skip_to, memory_order_relaxed)) {
        atomic_store_explicit(&slot->skip_to, newest, memory_order_relaxed);
    }
    if (isolation->messages.on) {
        raise_to(&slot->skip_from, newest_of(&isolation->messages));
    }
    state_late(isolation, newest, now_ns);
    if (mark > atomic_load_explicit(&slot->overwritten, memory_order_relaxed)) {
        atomic_store_explicit(&slot->overwritten, mark, memory_order_release);
    }
}

int64_t ps_isolation_next_ns(const ps_isolation_t *isolation, int64_t position, int64_t newest)
{
    const int64_t late = atomic_load_explicit(&isolation->slot->late, memory_order_relaxed);

    return position < newest && late < newest ? isolation->seen_ns + PS_ISOLATION_LATE_NS
                                              : INT64_MAX;
}

void ps_isolation_publish(void)
{
    /* Pairs with the acquire fence between a client's copy and its look at the mark: a copy that
     * has bytes of a later store is followed by a look that sees the mark. */
    atomic_thread_fence(memory_order_release);
}

/* ---- reports --------------------------------------------------------------------------------- */

static int64_t skipped_of(const ps_isolation_t *isolation)
{
    return atomic_load_explicit(&isolation->slot->skipped_messages, memory_order_relaxed);
}

bool ps_isolation_due(ps_isolation_t *isolation, int64_t now_ns)
{
    if (isolation->lagged && !isolation->noted) {
        isolation->noted = true;
        isolation->since_ns = now_ns;
        isolation->skipped = skipped_of(isolation);
    } else if (!isolation->lagged && !isolation->reported) {
        isolation->noted = false;
    }
    return isolation->lagged
               ? !isolation->reported && now_ns - isolation->reported_ns >= PS_ISOLATION_REPORT_NS
               : isolation->reported;
}

void ps_isolation_reported(ps_isolation_t *isolation, int64_t now_ns)
{
    isolation->reported = isolation->lagged;
    isolation->noted = isolation->lagged;
    isolation->reported_ns = isolation->lagged ? now_ns : isolation->reported_ns;
}

int64_t ps_isolation_skipped(const ps_isolation_t *isolation)
{
    return skipped_of(isolation) - isolation->skipped;
}
