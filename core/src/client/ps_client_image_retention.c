/* SPDX-License-Identifier: Apache-2.0
 * ps_client_image_retention.c: readers of streams whose publisher limits the amount or the age of
 * the data that readers get (ps-retention, ps-retention-time). Each poll first passes the messages
 * beyond the limit, and counts them. The stream keeps what the reader has not released, so the
 * count is exact; the caller of an isolated reader checks afterwards that no frame that was counted
 * here has been overwritten. */
#include "ps_client_internal.h"
#include "ps_times.h"

enum {
    WALK_FRAMES = 1 << 16, /* that one poll passes at most; the next poll continues */
    AGE_PARTS = 64         /* the limit by age is computed again after this part of the age */
};

#define AGE_STEP_MOST_NS INT64_C(100000000)

void ps_img_open_retention(ps_img_t *image, const ps_img_params_t *params)
{
    const ps_shared_t *shared = image->client->shared;
    ps_retention_t *retention = &image->retention;
    if (image->subscriber == NULL) {
        return;
    }
    if (params->image_slot >= 0) {
        const ps_image_slot_t *slot = &shared->images[params->image_slot];
        retention->bytes = atomic_load_explicit(&slot->retention_bytes, memory_order_relaxed);
        retention->age_ns = atomic_load_explicit(&slot->retention_ns, memory_order_relaxed);
        retention->times = &shared->image_histories[params->image_slot].times;
    } else if (params->publication_slot >= 0) {
        const ps_publication_slot_t *slot = &shared->publications[params->publication_slot];
        retention->bytes = atomic_load_explicit(&slot->retention_bytes, memory_order_relaxed);
        retention->age_ns = atomic_load_explicit(&slot->retention_ns, memory_order_relaxed);
        retention->times = &shared->publication_histories[params->publication_slot].times;
    }
    retention->limits = retention->bytes > 0 || retention->age_ns > 0;
    retention->due_ns = INT64_MIN;
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* Returns the position up to which data has arrived. */
static int64_t newest_of(const ps_img_t *image)
{
    return image->publication_slot >= 0 ? ps_log_producer_position(&image->log)
                                        : ps_times_newest(image->retention.times);
}

/* Returns a position below which all data is too old; 0: none is known. */
static int64_t aged_of(ps_img_t *image)
{
    ps_retention_t *retention = &image->retention;
    const ps_client_t *client = image->client;
    const int64_t now_ns =
        client->clock_ns != NULL ? *client->clock_ns + client->clock_offset_ns : ps_epoch_ns();
    const int64_t part = retention->age_ns / AGE_PARTS;
    const int64_t step = part < AGE_STEP_MOST_NS ? part : AGE_STEP_MOST_NS;
    /* A clock that was set back must not delay the next look. */
    if (now_ns >= retention->due_ns || now_ns < retention->due_ns - step) {
        retention->due_ns = now_ns + step;
        retention->aged =
            ps_times_reached(retention->times, now_ns - retention->age_ns, image->delivered);
    }
    return retention->aged;
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef struct ps_walk {
    int64_t position;
    int64_t messages; /* between the start of the walk and `position`; -1: unknown */
    int64_t begun;    /* start of the last message that begins below `position`; -1: none does */
    int64_t begun_messages;
    bool inside; /* the message at `begun`, or the one before the walk, has not ended */
    bool whole;  /* the walk found its place, a start of a message */
} ps_walk_t;

/* Moves past one frame. Returns false if there is no frame. */
static bool pass_frame(const ps_img_t *image, ps_walk_t *walk, int64_t target)
{
    const ps_log_t *log = &image->log;
    const ps_frame_t *frame = ps_frame_at(log, walk->position);
    const int64_t length = ps_frame_length_acquire(frame);
    if (length < PS_HEADER_BYTES ||
        ps_align32_64(length) > log->term_length - (walk->position & log->term_mask)) {
        return false;
    }
    const bool data = frame->type == PS_TYPE_DATA;
    const bool begins = !data || (frame->flags & PS_FLAG_BEGIN) != 0;
    if (begins && walk->position >= target) {
        walk->whole = true;
        return false;
    }
    if (data && begins) {
        walk->begun = walk->position;
        walk->begun_messages = walk->messages;
    }
    walk->inside = data && (frame->flags & PS_FLAG_END) == 0;
    const int64_t mark = data ? 0 : ps_frame_reserved_value(frame);
    const bool unknown =
        ps_is_gap_mark(mark) && (int32_t)mark != 0 && ps_marked_messages(mark) == 0;
    walk->messages = unknown || walk->messages < 0 ? -1 : walk->messages + ps_frame_messages(frame);
    walk->position += ps_align32_64(length);
    return true;
}

/* Returns to the start of the last message that the walk passed. */
static void step_back(ps_walk_t *walk)
{
    walk->position = walk->begun;
    walk->messages = walk->begun_messages;
}

/* Walks to the first message that begins at or above `target`. If there is none, the newest message
 * stays, unless all of the message is older than `aged`. */
static ps_walk_t walk_to(const ps_img_t *image, int64_t target, int64_t aged)
{
    ps_walk_t walk = { .position = image->delivered, .begun = -1, .inside = image->assembling };
    int32_t frames = 0;
    while (frames < WALK_FRAMES && pass_frame(image, &walk, target)) {
        frames++;
    }
    const bool stays = walk.inside || frames == WALK_FRAMES || aged < walk.position;
    if (!walk.whole && stays) {
        if (walk.begun >= 0) {
            step_back(&walk);
        } else {
            walk.position = image->delivered; /* a part of the newest message */
        }
    }
    return walk;
}

static void count_expired(const ps_img_t *image)
{
    ps_subscriber_slot_t *slot = image->subscriber;
    const int64_t messages = image->gap_messages > 0 ? image->gap_messages : 0;
    atomic_fetch_add_explicit(&slot->expired_messages, messages, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->expired_bytes, image->gap_to - image->gap_from,
                              memory_order_relaxed);
}

int32_t ps_img_expire(ps_img_t *image)
{
    const ps_retention_t *retention = &image->retention;
    const int64_t least = retention->bytes > 0 ? newest_of(image) - retention->bytes : 0;
    const int64_t aged = retention->age_ns > 0 ? aged_of(image) : 0;
    const int64_t target = least > aged ? least : aged;
    if (PS_LIKELY(image->delivered >= target)) {
        return 0;
    }
    const ps_walk_t to = walk_to(image, target, aged);
    if (to.position == image->delivered ||
        (image->isolated != NULL && ps_img_is_outrun(image, image->delivered))) {
        return 0; /* the poll of an outrun reader skips by itself */
    }
    image->gap_from = image->assembling ? image->assembled.start_position : image->delivered;
    image->gap_to = to.position;
    image->gap_messages = to.messages;
    count_expired(image);
    if (image->isolated != NULL) {
        ps_img_isolated_passed(image, to.messages);
    }
    image->delivered = to.position;
    image->assembling = 0;
    image->assembled.position = 0;
    if (!image->report_gaps) {
        image->gap_from = image->gap_to;
        return 0;
    }
    return PS_E_GAP;
}
