/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_batch.c: publishing many messages with one reservation.
 *
 * A run is as many unfragmented messages as fit the term, the limit and PS_RUN_BYTES. A shared
 * publisher claims the whole run with the first frame's word (length = the run). It writes the
 * frames after it, and commits the run by one compare-and-swap of that word. If the daemon pads
 * over the claim, it pads over the whole run, and no message of the run is accepted. An exclusive
 * publisher lets the frames appear as they are written. */
#include "ps_cpu.h"
#include "ps_client_publication.h"

enum {
    PS_RUN_BYTES = 128 * 1024,
    PS_RUN_MESSAGES = PS_RUN_BYTES / PS_HEADER_BYTES, /* that fit */
    PS_BATCH_TURNS = 4,
    PS_PREFETCH_BYTES = 768,
    PS_GROUP_BYTES = 1024
};

/* The messages of a batch: by offsets, or every `stride` bytes. */
typedef struct ps_batch {
    const uint8_t *base;
    const int64_t *offsets; /* NULL: strided */
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

/* Returns the number of messages from `from` on that make one run, and its bytes. 0: the next one
 * is fragmented, too long, negative, or does not fit the term. */
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

static inline void ps_batch_fields(const ps_pub_t *pub, const ps_space_t *space, int32_t ahead,
                                   const uint8_t *data, size_t length)
{
    /* Fetches lines ahead for writing, because another processor may hold them. The address may lie
     * beyond the term; the hint then does nothing. */
    ps_cpu_prefetch_write(space->at + ahead + PS_PREFETCH_BYTES);
    ps_pub_header(pub, space, ahead, 0);
    ps_pub_copy(space->at + ahead + PS_HEADER_BYTES, data, length);
}

static inline void ps_batch_word(const ps_space_t *space, int32_t ahead, size_t length)
{
    atomic_store_explicit(
        ps_frame_word((ps_frame_t *)(void *)(space->at + ahead)),
        ps_frame_word_of((int32_t)length + PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA),
        memory_order_release);
}

/* Writes frames from `ahead` on, up to count frames or until `most` bytes are passed, all but the
 * first frame's word. Advances *ahead. Returns the number of frames. */
static int32_t ps_batch_group(const ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                              int32_t count, int32_t most, const ps_space_t *space, int32_t *ahead)
{
    const int32_t start = *ahead;
    int32_t at = start;
    int32_t i = 0;
    for (; i < count && at - start < most; i++) {
        const size_t length = (size_t)ps_batch_length(batch, from + i);
        ps_batch_fields(pub, space, at, batch->base + ps_batch_start(batch, from + i), length);
        if (i > 0) {
            ps_batch_word(space, at, length);
        }
        at += ps_align32((int32_t)length + PS_HEADER_BYTES);
    }
    *ahead = at;
    return i;
}

/* Writes the frames of a run. An exclusive publisher makes frames visible in groups, because a
 * reader at the tail would otherwise take each line while the next is written. For a shared
 * publisher the first word stays a claim. */
static void ps_batch_write(const ps_pub_t *pub, const ps_batch_t *batch, int32_t from, int32_t run,
                           const ps_space_t *space)
{
    int32_t ahead = 0;
    for (int32_t done = 0; done < run;) {
        const int32_t first = ahead;
        const int32_t head = from + done;
        done += ps_batch_group(pub, batch, head, run - done,
                               pub->exclusive ? PS_GROUP_BYTES : INT32_MAX, space, &ahead);
        if (pub->exclusive) {
            if (done < run) { /* else it is sealed already */
                ps_pub_seal(pub, space->offset + ahead);
            }
            ps_batch_word(space, first, (size_t)ps_batch_length(batch, head));
        }
    }
}

/* One run of at most `count - from` messages whose ordinals are taken already: its messages, 0 when
 * the next message needs ps_pub_publish, or a code. */
static int64_t ps_batch_admitted_run(ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                                     int32_t count, int64_t *position)
{
    int64_t start = 0;
    int64_t budget = 0;
    int32_t room = 0;
    int64_t code = ps_pub_check_offer(pub, &start, &room, &budget);
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
        if (PS_UNLIKELY(
                !ps_pub_settle(pub, space.at, bytes, first, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA))) {
            return ps_pub_fail_unblocked(pub, space.position);
        }
    }
    ps_pub_count_metered(pub, run);
    *position = space.position + bytes;
    return run;
}

static int64_t ps_batch_metered_run(ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                                    int32_t count, int64_t *position)
{
    const int32_t wanted = count - from < PS_RUN_MESSAGES ? count - from : PS_RUN_MESSAGES;
    uint32_t epoch = 0;
    const int64_t taken = ps_pub_take(pub, wanted, &epoch);
    if (taken <= 0) {
        return taken;
    }
    const int64_t run = ps_batch_admitted_run(pub, batch, from, from + (int32_t)taken, position);
    ps_pub_untake(pub, run > 0 ? taken - run : taken, epoch);
    ps_pub_taken(pub, epoch);
    return run;
}

static inline int64_t ps_batch_publish_run(ps_pub_t *pub, const ps_batch_t *batch, int32_t from,
                                           int32_t count, int64_t *position)
{
    if (PS_UNLIKELY(ps_pub_metered(pub) != 0)) {
        (void)ps_pub_follow_metering(pub);
    }
    return PS_UNLIKELY(ps_pub_metered(pub) != 0)
               ? ps_batch_metered_run(pub, batch, from, count, position)
               : ps_batch_admitted_run(pub, batch, from, count, position);
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
    const int64_t result = ps_pub_publish_open(pub, &piece, length, 0);
    if (result <= 0) {
        return result;
    }
    *position = result;
    return 1;
}

/* Applies the policy to a refusal of the whole batch. */
static int64_t ps_batch_refused(ps_pub_t *pub, const ps_batch_t *batch, int32_t count, int64_t code)
{
    const int64_t bytes = ps_batch_start(batch, count) - ps_batch_start(batch, 0);
    return pub->policy != 0 ? ps_pub_policy_refused(pub, code, count, bytes) : code;
}

/* Bound: count messages, and a few term rotations without progress. */
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
    int64_t code = PS_UNLIKELY(pub->policy != 0) ? ps_pub_policy_gate(pub) : 0;
    if (PS_UNLIKELY(code != 0)) {
        return ps_batch_refused(pub, batch, count, code);
    }
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
    return done > 0 ? position : ps_batch_refused(pub, batch, count, code);
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
