/* SPDX-License-Identifier: Apache-2.0
 * ps_pub_batch.c: publishing many messages with one reservation.
 *
 * A run is as many unfragmented messages as fit the term, the limit and PS_RUN_BYTES.  A shared
 * publisher claims the whole run with the first frame's word (length = all of it), writes the
 * frames behind it, and commits all by one compare-and-swap of that word: if the daemon pads over
 * the claim, it pads over the whole run, and nothing of it counts as accepted.  An exclusive
 * publisher lets each frame appear as it is written. */
#include "ps_pub_internal.h"

enum { PS_RUN_BYTES = 128 * 1024, PS_BATCH_TURNS = 4, PS_COPY_BLOCK = 32, PS_COPY_BLOCKS_MAX = 256,
       PS_PREFETCH_BYTES = 768 };

/* The messages of a batch: by offsets, or every `stride` bytes. */
typedef struct ps_batch {
    const uint8_t *base;
    const int64_t *offsets;  /* NULL: strided */
    int64_t stride;
} ps_batch_t;

static inline int64_t ps_batch_start(const ps_batch_t *batch, int32_t index)
{
    return batch->offsets != NULL ? batch->offsets[index] : batch->stride * index;
}

static inline int64_t ps_batch_length(const ps_batch_t *batch, int32_t index)
{
    return batch->offsets != NULL ? batch->offsets[index + 1] - batch->offsets[index]
                                  : batch->stride;
}

/* ps_batch_run for messages of one length. */
static int32_t ps_batch_strided_run(const ps_pub_t *pub, int64_t length, int32_t count,
                                    int32_t room, int64_t budget, int32_t *bytes)
{
    *bytes = 0;
    if (length > pub->max_payload || length > pub->max_message || budget <= 0) {
        return 0;
    }
    const int32_t frame = ps_align32((int32_t)length + PS_HEADER_BYTES);
    const int64_t most = budget < PS_RUN_BYTES ? budget : PS_RUN_BYTES;
    int64_t run = (most + frame - 1) / frame; /* the last may pass the limit, as any message may */
    run = run < count ? run : count;
    run = run < room / frame ? run : room / frame;
    *bytes = (int32_t)run * frame;
    return (int32_t)run;
}

/* How many messages from `from` on make one run, and its bytes.  0: the next one is fragmented, too
 * long, negative, or does not fit the term. */
static int32_t ps_batch_run(const ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                            int32_t count, int32_t room, int64_t budget, int32_t *bytes)
{
    int32_t total = 0;
    int32_t index = from;
    if (batch->offsets == NULL) {
        return ps_batch_strided_run(pub, batch->stride, count - from, room, budget, bytes);
    }
    while (index < count && total < budget && total < PS_RUN_BYTES) {
        const int64_t length = ps_batch_length(batch, index);
        if (length < 0 || length > pub->max_payload || length > pub->max_message) {
            break;
        }
        const int32_t frame = ps_align32((int32_t)length + PS_HEADER_BYTES);
        if (frame > room - total) {
            break;
        }
        total += frame;
        index++;
    }
    *bytes = total;
    return index - from;
}

/* Small payloads of whole blocks are copied without a call. */
static inline void ps_batch_copy(uint8_t *to, const uint8_t *from, size_t length)
{
    if (length % PS_COPY_BLOCK == 0 && length <= PS_COPY_BLOCKS_MAX) {
        for (size_t at = 0; at < length; at += PS_COPY_BLOCK) {
            memcpy(to + at, from + at, PS_COPY_BLOCK);
        }
    } else {
        memcpy(to, from, length);
    }
}

static inline void ps_batch_fields(const ps_pub_t *pub, const ps_space_t *space, int32_t ahead,
                                   const uint8_t *data, size_t length)
{
    /* The daemon zeroed it a while ago on another processor: fetched ahead, to be written.  May
     * point beyond the term; then it does nothing. */
    __builtin_prefetch(space->at + ahead + PS_PREFETCH_BYTES, 1);
    ps_pub_header(pub, space, ahead, 0);
    ps_batch_copy(space->at + ahead + PS_HEADER_BYTES, data, length);
}

/* Writes the frames of a run; all but the first appear at once. */
static void ps_batch_write(const ps_pub_t *pub, const ps_batch_t *batch, int32_t from, int32_t run,
                           const ps_space_t *space)
{
    int32_t ahead = 0;
    for (int32_t i = 0; i < run; i++) {
        const size_t length = (size_t)ps_batch_length(batch, from + i);
        const int32_t frame_length = (int32_t)length + PS_HEADER_BYTES;
        ps_batch_fields(pub, space, ahead, batch->base + ps_batch_start(batch, from + i), length);
        if (i > 0 || pub->exclusive) {
            atomic_store_explicit(
                ps_frame_word((ps_frame_t *)(void *)(space->at + ahead)),
                ps_frame_word_of(frame_length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA),
                memory_order_release);
        }
        ahead += ps_align32(frame_length);
    }
}

/* One run: its messages, 0 when the next message needs ps_pub_publish, or a code. */
static int64_t ps_batch_publish_run(ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                                    int32_t count, int64_t *position)
{
    int64_t start = 0;
    int64_t budget = 0;
    int32_t room = 0;
    int64_t code = ps_pub_look(pub, &start, &room, &budget);
    if (PS_UNLIKELY(code != 0)) {
        return code;
    }
    int32_t bytes = 0;
    const int32_t run = ps_batch_run(pub, batch, from, count, room, budget, &bytes);
    if (run == 0) {
        return 0;
    }
    ps_space_t space;
    code = ps_pub_reserve(pub, bytes, &space);
    if (PS_UNLIKELY(code != 0)) {
        return code;
    }
    if (!pub->exclusive && PS_UNLIKELY(!ps_pub_claim(pub, space.at, bytes))) {
        return PS_ADMIN_ACTION;
    }
    ps_batch_write(pub, batch, from, run, &space);
    if (!pub->exclusive) {
        const int32_t first = (int32_t)ps_batch_length(batch, from) + PS_HEADER_BYTES;
        if (PS_UNLIKELY(!ps_pub_settle(pub, space.at, bytes, first, PS_FLAG_UNFRAGMENTED,
                                       PS_TYPE_DATA))) {
            return ps_pub_fail_unblocked(pub, space.position);
        }
    }
    ps_pub_count(pub, run);
    *position = space.position + bytes;
    return run;
}

static int64_t ps_batch_one(ps_pub_t *pub, const ps_batch_t *batch, int32_t index,
                            int64_t *position)
{
    const int64_t length = ps_batch_length(batch, index);
    if (length < 0) {
        return ps_fail(PS_E_INVALID, "message %d of the batch has length %lld", index,
                       (long long)length);
    }
    if (length > pub->max_message) {
        return ps_pub_fail_length(pub, length, pub->max_message);
    }
    const ps_iov_t piece = { batch->base + ps_batch_start(batch, index), (size_t)length };
    const int64_t result = ps_pub_publish(pub, &piece, length, 0);
    if (result <= 0) {
        return result;
    }
    *position = result;
    return 1;
}

/* Bound: count messages, and a few turns of the term without progress. */
static int64_t ps_batch_publish(ps_pub_t *pub, const ps_batch_t *batch, int32_t count,
                                int32_t *accepted)
{
    *accepted = 0;
    const int64_t gate = ps_pub_gate(pub);
    if (PS_UNLIKELY(gate != 0)) {
        return gate;
    }
    if (count < 1 || (batch->offsets == NULL && batch->stride < 0)) {
        return ps_fail(PS_E_INVALID, "batch of %d messages, stride %lld", count,
                       (long long)batch->stride);
    }
    int64_t position = 0;
    int64_t code = 0;
    int32_t turns = 0;
    int32_t done = 0;
    while (done < count && turns < PS_BATCH_TURNS) {
        code = ps_batch_publish_run(pub, batch, done, count, &position);
        if (code == 0) {
            code = ps_batch_one(pub, batch, done, &position);
        }
        if (code > 0) {
            done += (int32_t)code;
            turns = 0;
        } else if (code == PS_ADMIN_ACTION) {
            turns++; /* "retry at once" */
        } else {
            break;
        }
    }
    *accepted = done;
    if (pub->exclusive) {
        atomic_store_explicit(&pub->slot->published_ordinal, pub->ordinal, memory_order_relaxed);
    }
    ps_pub_dirty(pub);
    return done > 0 ? position : code;
}

int64_t ps_pub_offer_batch(ps_pub_t *pub, const uint8_t *base, const int64_t *offsets,
                           int32_t count, int32_t *accepted)
{
    if (PS_UNLIKELY(offsets == NULL)) {
        *accepted = 0;
        return ps_fail(PS_E_INVALID, "a batch needs offsets");
    }
    const ps_batch_t batch = { base, offsets, 0 };
    return ps_batch_publish(pub, &batch, count, accepted);
}

int64_t ps_pub_offer_strided(ps_pub_t *pub, const uint8_t *base, int64_t stride, int32_t count,
                             int32_t *accepted)
{
    const ps_batch_t batch = { base, NULL, stride };
    return ps_batch_publish(pub, &batch, count, accepted);
}
