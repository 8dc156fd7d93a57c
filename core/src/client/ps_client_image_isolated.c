/* SPDX-License-Identifier: Apache-2.0
 * ps_client_image_isolated.c: readers for which the stream does not wait (ps_isolation.h). Their
 * memory may be written over while they read. A poll therefore copies, and then looks at the mark
 * that the daemon stored before it released memory. The client drops a poll that lies below the
 * mark, and continues at the next boundary between messages that it finds with the index ring.
 * Under drop_oldest a poll that begins more than the depth behind data for which the reader is late
 * (ps_isolation.h) skips to the newest depth_bytes, whether memory was written over or not.
 * Images for which the stream waits never get here. */
#include <stdlib.h>
#include <string.h>

#include "ps_client_internal.h"

enum {
    COPY_BYTES = 256 * 1024, /* of one poll; longer than any frame */
    COPY_ALIGNMENT = 32,     /* as in the log */
    RING_TRIES = 8,
    PLACE_TRIES = 32, /* of the search for the place at which an outrun reader continues */
    INDEX_PARTS = 64  /* a walk begins this part of a term before its target */
};

/* True if the difference of the two ordinals is a number of messages. */
static bool have_one_base(int64_t a, int64_t b)
{
    if (a == PS_ORDINAL_UNKNOWN || b == PS_ORDINAL_UNKNOWN || (a < 0) != (b < 0)) {
        return false;
    }
    return a >= 0 || (b - a < PS_ORDINAL_APART && a - b < PS_ORDINAL_APART);
}

struct ps_isolated {
    const ps_index_ring_t *ring; /* NULL: none */
    int64_t depth_bytes;         /* of PS_READER_DROP_OLDEST */
    int64_t ordinal;             /* of the delivered position, as in the ring; PS_ORDINAL_UNKNOWN */
    int64_t since_join;          /* messages from the join to the delivered position; -1 unknown */
    bool skips;                  /* continues with the newest depth_bytes */
    bool reads_next;             /* it has skipped, and reads a message before it skips again */
    alignas(COPY_ALIGNMENT) uint8_t copies[COPY_BYTES];
};

int ps_img_open_isolated(ps_img_t *image, const ps_img_params_t *params)
{
    const ps_shared_t *shared = image->client->shared;
    if (params->isolation < 0 || params->isolation > PS_READER_DROP_OLDEST ||
        params->depth_bytes < 0) {
        return ps_fail(PS_E_INVALID, "image %lld: isolation %d with depth %lld",
                       (long long)params->correlation_id, params->isolation,
                       (long long)params->depth_bytes);
    }
    if (params->isolation == PS_READER_GATES || image->subscriber == NULL) {
        return PS_OK;
    }
    ps_isolated_t *isolated = aligned_alloc(COPY_ALIGNMENT, sizeof *isolated);
    if (isolated == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for the copies of an image");
    }
    isolated->ring = NULL;
    if (params->image_slot >= 0) {
        isolated->ring = &shared->image_histories[params->image_slot].ring;
    } else if (params->publication_slot >= 0) {
        isolated->ring = &shared->publication_histories[params->publication_slot].ring;
    }
    isolated->skips = params->isolation == PS_READER_DROP_OLDEST;
    isolated->reads_next = false;
    isolated->depth_bytes = params->depth_bytes;
    isolated->ordinal = PS_ORDINAL_UNKNOWN;
    isolated->since_join = -1; /* another process of the reader was the one that joined */
    if (image->join_position == params->join_position) {
        isolated->ordinal = params->join_ordinal >= 0 ? params->join_ordinal : PS_ORDINAL_UNKNOWN;
        isolated->since_join = 0;
    }
    image->isolated = isolated;
    return PS_OK;
}

static int64_t mark_of(const ps_img_t *image)
{
    return atomic_load_explicit(&image->subscriber->overwritten, memory_order_acquire);
}

bool ps_img_is_outrun(const ps_img_t *image, int64_t position)
{
    /* Pairs with ps_isolation_publish: what was read before comes before this look. */
    atomic_thread_fence(memory_order_acquire);
    return mark_of(image) > position;
}

/* ---- the index ring -------------------------------------------------------------------------- */

typedef struct ps_found {
    int64_t position; /* -1: no such entry */
    int64_t ordinal;
    int64_t read_from; /* lowest position of the log that the search read */
} ps_found_t;

/* An ordinal that no daemon writes counts as unknown. */
static int64_t believed(int64_t ordinal)
{
    return ordinal < PS_ORDINAL_BASE || ordinal > -PS_ORDINAL_BASE ? PS_ORDINAL_UNKNOWN : ordinal;
}

/* Returns the first entry of the ring at or above `position`. If the writer replaced an entry in a
 * try, the next try leaves out more of the oldest entries. Bound: the ring, RING_TRIES times. */
static ps_found_t entry_from(const ps_isolated_t *isolated, int64_t position)
{
    ps_index_ring_t *ring = (ps_index_ring_t *)(uintptr_t)isolated->ring;
    ps_found_t found = { -1, -1, position };
    for (int32_t i = 0; ring != NULL && i < RING_TRIES; i++) {
        const uint64_t count = atomic_load_explicit(&ring->count, memory_order_acquire);
        const uint64_t most =
            PS_INDEX_ENTRIES - 1 - (uint64_t)i * (PS_INDEX_ENTRIES / (2 * RING_TRIES));
        const uint64_t kept = count < most ? count : most;
        uint64_t at = count;
        while (at > count - kept) {
            ps_index_entry_t *entry = &ring->entries[(at - 1) % PS_INDEX_ENTRIES];
            const int64_t begin = atomic_load_explicit(&entry->position, memory_order_relaxed);
            if (begin < position) {
                break;
            }
            found.position = begin;
            found.read_from = begin;
            found.ordinal = believed(atomic_load_explicit(&entry->ordinal, memory_order_relaxed));
            at--;
        }
        atomic_thread_fence(memory_order_acquire);
        const uint64_t now = atomic_load_explicit(&ring->count, memory_order_relaxed);
        if (now - at < PS_INDEX_ENTRIES) {
            return found; /* no entry that was read has been replaced */
        }
        found = (ps_found_t){ -1, -1, position };
    }
    return found;
}

static void move_since_join(ps_isolated_t *isolated, int64_t messages)
{
    const int64_t moved = isolated->since_join + messages;
    isolated->since_join = isolated->since_join >= 0 && moved >= 0 ? moved : -1;
}

/* Learns the number of messages below the delivered position. The agent may have stated that of the
 * join, and the ring may have that of a later position. */
static void learn_ordinal(ps_img_t *image)
{
    ps_isolated_t *isolated = image->isolated;
    const int64_t joined = believed(ps_ordinal_read(
        atomic_load_explicit(&image->subscriber->join_ordinal, memory_order_acquire)));
    if (joined != PS_ORDINAL_UNKNOWN && isolated->since_join >= 0) {
        isolated->ordinal = joined + isolated->since_join;
        return;
    }
    const ps_found_t entry = entry_from(isolated, image->delivered);
    const int64_t term = image->log.term_length;
    if (entry.ordinal == PS_ORDINAL_UNKNOWN || entry.position - image->delivered > term ||
        entry.position % PS_FRAME_ALIGNMENT != 0) {
        return;
    }
    const int64_t ordinal =
        entry.ordinal - ps_img_messages(image, image->delivered, entry.position);
    if (have_one_base(ordinal, entry.ordinal) && !ps_img_is_outrun(image, image->delivered)) {
        isolated->ordinal = ordinal;
    }
}

/* ---- skipping -------------------------------------------------------------------------------- */

/* Returns the frame at a position, and moves the position and the count behind the frame. NULL: no
 * frame is there yet. */
static const ps_frame_t *next_frame(const ps_img_t *image, ps_found_t *at)
{
    const ps_log_t *log = &image->log;
    if (at->position < 0 || at->position % PS_FRAME_ALIGNMENT != 0) {
        return NULL;
    }
    const ps_frame_t *frame = ps_frame_at(log, at->position);
    const int64_t length = ps_frame_length_acquire(frame);
    if (length < PS_HEADER_BYTES ||
        ps_align32_64(length) > log->term_length - (at->position & log->term_mask)) {
        return NULL;
    }
    at->position += ps_align32_64(length);
    at->ordinal += at->ordinal != PS_ORDINAL_UNKNOWN ? ps_frame_messages(frame) : 0;
    return frame;
}

static bool begins_message(const ps_frame_t *frame)
{
    return frame->type != PS_TYPE_DATA || (frame->flags & PS_FLAG_BEGIN) != 0;
}

/* Moves an entry to the first message that begins at or above `target`. A message that the entry
 * lies in, and those that are passed, are lost. The position is -1 if no such message is there yet.
 * Bound: the log. */
static ps_found_t first_message(const ps_img_t *image, ps_found_t at, int64_t target)
{
    const int64_t most = at.position + INT64_C(3) * image->log.term_length;
    while (at.position < most) {
        const ps_found_t here = at;
        const ps_frame_t *frame = next_frame(image, &at);
        if (frame == NULL) {
            break;
        }
        if (here.position >= target && begins_message(frame)) {
            return here;
        }
    }
    return (ps_found_t){ -1, -1, at.read_from };
}

/* Moves an entry to the last message that begins below `target`. The position is -1 if none begins
 * there. Bound: the frames below the target. */
static ps_found_t last_message(const ps_img_t *image, ps_found_t at, int64_t target)
{
    ps_found_t last = { -1, -1, at.read_from };
    while (at.position < target) {
        const ps_found_t here = at;
        const ps_frame_t *frame = next_frame(image, &at);
        if (frame == NULL) {
            break;
        }
        last = begins_message(frame) ? here : last;
    }
    return last;
}

/* Returns the first known position between two frames at or above `position`: an entry of the ring,
 * or the beginning of a term before it. */
static ps_found_t boundary_from(const ps_img_t *image, int64_t position, int64_t newest)
{
    const ps_found_t entry = entry_from(image->isolated, position);
    const int64_t term = (position + image->log.term_mask) & ~(int64_t)image->log.term_mask;
    if (term >= newest || (entry.position >= 0 && entry.position <= term)) {
        return entry;
    }
    ps_found_t found = { term, -1, term };
    if (entry.ordinal != PS_ORDINAL_UNKNOWN) {
        found.ordinal = entry.ordinal - ps_img_messages(image, term, entry.position);
    }
    return found;
}

/* Returns the position at which the newest depth_bytes before `newest` begin. If the reader also
 * has a depth in messages, returns the higher one of the two positions. The agent may have stored
 * skip_from after `newest`. */
static int64_t newest_from(const ps_img_t *image, int64_t newest)
{
    const int64_t from = newest - image->isolated->depth_bytes;
    const int64_t messages =
        atomic_load_explicit(&image->subscriber->skip_from, memory_order_relaxed);
    const int64_t stated = messages < newest ? messages : newest;
    return stated > from ? stated : from;
}

/* Returns the last message that begins below `target`, for a newest message that is longer than the
 * depth. `low` is an entry below which the function does not search. */
static ps_found_t long_newest(const ps_img_t *image, ps_found_t low, int64_t target, int64_t newest)
{
    const int64_t longest = target - image->log.term_length / INDEX_PARTS -
                            2 * image->max_message_bytes; /* headers included */
    return last_message(image, longest > low.position ? boundary_from(image, longest, newest) : low,
                        target);
}

/* Returns the position at which an outrun reader continues, and the messages below it. `mark` is
 * the position at which the search begins: the reader's mark, or above it. */
static ps_found_t place_to_continue(const ps_img_t *image, int64_t mark)
{
    const ps_isolated_t *isolated = image->isolated;
    const int64_t newest = atomic_load_explicit(&image->subscriber->skip_to, memory_order_relaxed);
    if (mark > newest || image->log.term_length > INT64_MAX - newest) {
        return (ps_found_t){ -1, -1, mark }; /* no daemon writes this */
    }
    const int64_t target = isolated->skips ? newest_from(image, newest) : mark;
    const int64_t near = target - image->log.term_length / INDEX_PARTS;
    ps_found_t found = { -1, -1, mark };
    if (near > mark) {
        found = first_message(image, boundary_from(image, near, newest), target);
    }
    if (found.position < 0) {
        found = first_message(image, boundary_from(image, mark, newest), target);
    }
    if (found.position < 0 && isolated->skips) {
        found = long_newest(image, boundary_from(image, mark, newest), target, newest);
    }
    if (found.position < 0) {
        found = first_message(image, boundary_from(image, mark, newest), mark);
    }
    return found.position >= 0 ? found : (ps_found_t){ newest, -1, mark };
}

/* Returns the position at which a try of the search begins: the first try at the mark, the later
 * ones the further above it the more often the writer was faster than the search. */
static int64_t begin_of_try(const ps_img_t *image, int32_t number)
{
    const int64_t mark = mark_of(image);
    const int64_t newest = atomic_load_explicit(&image->subscriber->skip_to, memory_order_relaxed);
    const int64_t log = INT64_C(3) * image->log.term_length;
    if (newest <= mark || newest - mark > log) {
        return mark;
    }
    return mark + (newest - mark) * number * number / (PLACE_TRIES * PLACE_TRIES);
}

/* Searches again if the mark passed what the search read: the writer may have overwritten that
 * memory, so the search may have ended early or counted other frames. */
static ps_found_t verified_place(const ps_img_t *image)
{
    ps_found_t to = { -1, -1, -1 };
    for (int32_t i = 0; i < PLACE_TRIES; i++) {
        to = place_to_continue(image, begin_of_try(image, i));
        if (!ps_img_is_outrun(image, to.read_from)) {
            return to;
        }
    }
    to.ordinal = PS_ORDINAL_UNKNOWN;
    return to;
}

/* Returns the position at which a reader continues that was not outrun, or -1: the first message of
 * the newest depth_bytes, or the last one before, if the newest message is longer than that. */
static ps_found_t place_of_newest(const ps_img_t *image, int64_t newest)
{
    const int64_t at = image->delivered;
    const ps_found_t here = { at, image->isolated->ordinal, at };
    const int64_t target = newest_from(image, newest);
    const int64_t near = target - image->log.term_length / INDEX_PARTS;
    const ps_found_t from = near > here.position ? boundary_from(image, near, newest) : here;
    const ps_found_t found = first_message(image, from, target);
    return found.position >= 0 ? found : long_newest(image, here, target, newest);
}

static void count_skip(const ps_img_t *image)
{
    ps_subscriber_slot_t *slot = image->subscriber;
    const int64_t messages = image->gap_messages > 0 ? image->gap_messages : 0;
    atomic_fetch_add_explicit(&slot->skipped_messages, messages, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->skipped_bytes, image->gap_to - image->gap_from,
                              memory_order_relaxed);
}

/* Two counts with one base have a difference. Else the client counts, if the log has the range. */
static int64_t messages_of_gap(const ps_img_t *image, int64_t from, ps_found_t to)
{
    const int64_t ordinal = image->isolated->ordinal;
    if (have_one_base(ordinal, to.ordinal) && to.ordinal >= ordinal) {
        return to.ordinal - ordinal;
    }
    return ps_img_count(image, from, to.position);
}

static int32_t skip_to(ps_img_t *image, int64_t from, ps_found_t to)
{
    image->gap_messages = messages_of_gap(image, from, to);
    image->gap_from = from;
    image->gap_to = to.position;
    count_skip(image);
    image->isolated->ordinal = to.ordinal;
    image->isolated->since_join = -1;
    image->isolated->reads_next = true;
    image->delivered = to.position;
    image->assembling = 0;
    image->assembled.position = 0;
    if (!image->report_gaps) {
        image->gap_from = image->gap_to;
        return 0;
    }
    return PS_E_GAP;
}

int32_t ps_img_skip(ps_img_t *image, int64_t from)
{
    const ps_found_t to = verified_place(image);
    if (to.position <= from || to.position % PS_FRAME_ALIGNMENT != 0 ||
        to.position >> image->log.shift > INT32_MAX) {
        image->stopped = ps_fail(PS_E_CORRUPT,
                                 "session %d stream %d: impossible position %lld after %lld: the "
                                 "image is stopped",
                                 image->log.session_id, image->log.stream_id,
                                 (long long)to.position, (long long)from);
        return image->stopped;
    }
    return skip_to(image, from, to);
}

int32_t ps_img_skip_lagged(ps_img_t *image, const ps_img_before_t *before)
{
    const ps_isolated_t *isolated = image->isolated;
    if (!isolated->skips || isolated->reads_next) {
        return 1;
    }
    const ps_subscriber_slot_t *slot = image->subscriber;
    const int64_t late = atomic_load_explicit(&slot->late, memory_order_relaxed);
    const int64_t from = atomic_load_explicit(&slot->late_from, memory_order_relaxed);
    if (late <= before->delivered ||
        (late - before->delivered <= isolated->depth_bytes && from <= before->delivered)) {
        return 1;
    }
    const int64_t newest = atomic_load_explicit(&slot->skip_to, memory_order_relaxed);
    const int64_t most = INT64_C(3) * image->log.term_length; /* or no daemon writes this */
    if (newest < late || newest - before->delivered > most) {
        return 1;
    }
    const ps_found_t to = place_of_newest(image, newest);
    if (to.position <= before->delivered || ps_img_is_outrun(image, before->delivered)) {
        return 1; /* the end of the poll sees it */
    }
    return skip_to(image, before->whole, to);
}

/* ---- polling --------------------------------------------------------------------------------- */

/* Copies messages out of the log. Returns how many there was room for; the image goes back to the
 * first of the others. */
static int32_t copy(ps_img_t *image, ps_message_t *out, int32_t count)
{
    ps_isolated_t *isolated = image->isolated;
    int64_t used = 0;
    for (int32_t i = 0; i < count; i++) {
        ps_message_t *message = &out[i];
        if (message->assembled) {
            continue; /* it is a copy already */
        }
        if (message->length > COPY_BYTES - used) {
            image->delivered = message->start_position;
            image->assembling = 0;
            image->assembled.position = 0;
            return i;
        }
        memcpy(isolated->copies + used, message->data, (size_t)message->length);
        message->data = isolated->copies + used;
        message->log_offset = -1;
        message->assembled = 1;
        used += (message->length + COPY_ALIGNMENT - 1) & ~(int64_t)(COPY_ALIGNMENT - 1);
        used = used < COPY_BYTES ? used : COPY_BYTES;
    }
    return count;
}

ps_img_before_t ps_img_isolated_begin(ps_img_t *image)
{
    const int64_t before = image->delivered;
    if (image->isolated->ordinal == PS_ORDINAL_UNKNOWN) {
        learn_ordinal(image);
    }
    return (ps_img_before_t){ .delivered = before,
                              .whole =
                                  image->assembling ? image->assembled.start_position : before };
}

int32_t ps_img_isolated_end(ps_img_t *image, const ps_img_before_t *before, ps_message_t *out,
                            int32_t count)
{
    ps_isolated_t *isolated = image->isolated;
    const int32_t kept = count > 0 ? copy(image, out, count) : count;
    const int64_t messages = ps_img_messages(image, before->delivered, image->delivered);
    if (ps_img_is_outrun(image, before->delivered)) { /* nothing that was read here counts */
        image->stopped = 0;
        image->gap_from = image->gap_to;
        return ps_img_skip(image, before->whole);
    }
    if (isolated->ordinal != PS_ORDINAL_UNKNOWN) {
        isolated->ordinal += messages;
    }
    move_since_join(isolated, messages);
    isolated->reads_next = isolated->reads_next && kept <= 0;
    return kept;
}

void ps_img_isolated_taken_over(ps_img_t *image, int64_t ordinal)
{
    image->isolated->since_join = -1;
    image->isolated->ordinal = believed(ordinal);
}

int64_t ps_img_isolated_ordinal(ps_img_t *image)
{
    if (image->isolated->ordinal == PS_ORDINAL_UNKNOWN) {
        learn_ordinal(image);
    }
    return image->isolated->ordinal;
}

void ps_img_isolated_rewound(ps_img_t *image, int64_t to)
{
    ps_isolated_t *isolated = image->isolated;
    const int64_t messages = ps_img_messages(image, to, image->delivered);
    if (ps_img_is_outrun(image, to)) {
        isolated->ordinal = PS_ORDINAL_UNKNOWN;
        isolated->since_join = -1;
        return;
    }
    move_since_join(isolated, -messages);
    if (isolated->ordinal != PS_ORDINAL_UNKNOWN) {
        isolated->ordinal -= messages;
    }
}

void ps_img_isolated_passed(ps_img_t *image, int64_t messages)
{
    ps_isolated_t *isolated = image->isolated;
    if (messages < 0) {
        isolated->ordinal = PS_ORDINAL_UNKNOWN;
        isolated->since_join = -1;
        return;
    }
    move_since_join(isolated, messages);
    if (isolated->ordinal != PS_ORDINAL_UNKNOWN) {
        isolated->ordinal += messages;
    }
}
