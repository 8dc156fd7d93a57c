/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication.c: publications: reserving space and publishing one message
 * (docs/spec/log-buffer.md).
 *
 * Shared: fetch-add on the tail reserves, a compare-and-swap claims each frame, another commits it.
 * All frames of a message are claimed, in ascending order, before the first is committed: so a
 * failed claim means that nothing of it was published, and a dead claimer leaves no holes behind.
 * Exclusive: the tail is stored first, frames appear by release stores. */
#include "ps_cpu.h"
#include "ps_inline.h"
#include "ps_client_publication.h"
#include "ps_spend.h"

/* AHEAD is more than the bytes zeroed at a time. */
enum { PS_SMALL_BYTES = 256, PS_ZERO_BYTES = 2048, PS_AHEAD_BYTES = PS_ZERO_BYTES + 512 };

/* ---- refusals -------------------------------------------------------------------------------- */

int64_t ps_pub_fail_length(const ps_pub_t *pub, int64_t length, int32_t limit)
{
    return ps_fail(PS_E_TOO_LONG,
                   "message of %lld bytes is longer than the limit of %d bytes of "
                   "stream %d",
                   (long long)length, limit, pub->log.stream_id);
}

int64_t ps_pub_fail_unblocked(const ps_pub_t *pub, int64_t position)
{
    atomic_fetch_add_explicit(&pub->client->shared->clients[pub->client->slot].claims_lost, 1,
                              memory_order_relaxed);
    return ps_fail(PS_E_UNBLOCKED,
                   "the daemon padded over the frame at position %lld of session %d: "
                   "it will not be delivered",
                   (long long)position, pub->log.session_id);
}

/* ---- end of term ----------------------------------------------------------------------------- */

/* Pads [offset, T) after this thread's reservation passed the end of the term. */
static void ps_pub_pad_rest(const ps_pub_t *pub, int32_t term_count, int32_t offset)
{
    const ps_log_t *log = &pub->log;
    const int32_t length = log->term_length - offset;
    const int64_t position = ((int64_t)term_count << log->shift) + offset;
    uint8_t *at = ps_log_at(log, position);
    if (ps_pub_claim(pub, at, length)) {
        /* Clear the reserved value: data of an earlier lap could look like a mark for dropped
         * messages. */
        ps_frame_reserved(ps_frame_at(log, position), 0);
        /* Failure: the unblocker padded it already, with the same effect. */
        ps_log_pad(log, position, length, ps_pub_claim_word(pub, length));
    }
}

/* The last term is used up.  Unlike ADMIN_ACTION this code ends the call, so the sender must learn
 * of the padding here. */
static int64_t ps_pub_end_of_stream(const ps_pub_t *pub, bool padded)
{
    if (padded) {
        ps_pub_dirty(pub);
    }
    return PS_MAX_POSITION_EXCEEDED;
}

static PS_NOINLINE int64_t ps_pub_end_of_term(ps_pub_t *pub, int32_t term_count, int32_t term_id,
                                              uint32_t offset)
{
    const ps_log_t *log = &pub->log;
    const bool padded = offset < (uint32_t)log->term_length;
    if (padded) {
        ps_pub_pad_rest(pub, term_count, (int32_t)offset);
    }
    if (term_count == INT32_MAX) {
        return ps_pub_end_of_stream(pub, padded);
    }
    ps_log_rotate(log, term_count, term_id);
    return PS_ADMIN_ACTION;
}

static int64_t ps_pub_tail_word(int32_t term_id, int32_t offset)
{
    return (int64_t)ps_pair(offset, term_id);
}

static PS_NOINLINE int64_t ps_pub_exclusive_end_of_term(ps_pub_t *pub)
{
    const ps_log_t *log = &pub->log;
    ps_log_meta_t *meta = log->meta;
    const int32_t count = pub->term_count;
    ps_pub_seal(pub, log->term_length);
    atomic_store_explicit(&meta->tail[count % PS_PARTITIONS],
                          ps_pub_tail_word(pub->term_id, log->term_length), memory_order_release);
    const bool padded = pub->term_offset < log->term_length;
    if (padded) {
        ps_pub_pad_rest(pub, count, pub->term_offset);
        pub->term_offset = log->term_length;
    }
    if (count == INT32_MAX) {
        return ps_pub_end_of_stream(pub, padded);
    }
    pub->term_count = count + 1;
    pub->term_id = ps_wrap_add(pub->term_id, 1);
    pub->term_offset = 0;
    pub->zeroed_to = 0;
    atomic_store_explicit(&meta->tail[pub->term_count % PS_PARTITIONS],
                          ps_pub_tail_word(pub->term_id, 0), memory_order_release);
    atomic_store_explicit(&meta->active_term_count, pub->term_count, memory_order_release);
    return PS_ADMIN_ACTION;
}

/* ---- reserving ------------------------------------------------------------------------------- */

typedef struct ps_tail {
    int64_t position;
    int32_t term_count;
    int32_t term_id;
    uint32_t offset; /* may be past T */
} ps_tail_t;

/* Reads the shared tail; false while a rotation is in progress. */
static inline bool ps_pub_tail(const ps_pub_t *pub, ps_tail_t *tail)
{
    const ps_log_t *log = &pub->log;
    tail->term_count = atomic_load_explicit(&log->meta->active_term_count, memory_order_acquire);
    const int64_t raw = atomic_load_explicit(
        &log->meta->tail[(uint32_t)tail->term_count % PS_PARTITIONS], memory_order_acquire);
    tail->term_id = (int32_t)(raw >> 32);
    tail->offset = (uint32_t)raw;
    if (PS_UNLIKELY(tail->term_count < 0 ||
                    ps_wrap_sub(tail->term_id, log->initial_term_id) != tail->term_count)) {
        return false;
    }
    const int64_t clamped =
        tail->offset < (uint32_t)log->term_length ? tail->offset : (uint32_t)log->term_length;
    tail->position = ((int64_t)tail->term_count << log->shift) + clamped;
    return true;
}

int64_t ps_pub_check_offer(ps_pub_t *pub, int64_t *position, int32_t *room, int64_t *budget)
{
    const int64_t limit = ps_pub_limit_now(pub);
    if (pub->exclusive) {
        *position = ((int64_t)pub->term_count << pub->log.shift) + pub->term_offset;
        *room = pub->log.term_length - pub->term_offset;
    } else {
        ps_tail_t tail;
        if (!ps_pub_tail(pub, &tail)) {
            return PS_ADMIN_ACTION;
        }
        *position = tail.position;
        *room = tail.offset < (uint32_t)pub->log.term_length
                    ? pub->log.term_length - (int32_t)tail.offset
                    : 0;
    }
    *budget = limit - *position;
    return *budget > 0 ? 0 : ps_pub_refuse(pub, *position);
}

/* Seals the end of the space to be reserved. Small messages would each write once more to the line
 * that a reader at the tail waits for. A larger range is therefore zeroed for many messages. */
static PS_NOINLINE void ps_pub_seal_range(ps_pub_t *pub, int32_t end, int32_t required)
{
    const int64_t begin = (int64_t)pub->term_count << pub->log.shift;
    const int32_t room = pub->log.term_length - end;
    if (required > PS_SMALL_BYTES || room == 0) {
        ps_pub_seal(pub, end);
        return;
    }
    pub->zeroed_to = end + (room < PS_ZERO_BYTES ? room : PS_ZERO_BYTES);
    ps_log_clean(&pub->log, begin + end, begin + pub->zeroed_to);
}

/* Both reserve as ps_pub_reserve does, without a call on the path of a message.  false: *code has
 * the reason, which is never 0. */
static PS_ALWAYS_INLINE bool ps_pub_reserve_exclusive(ps_pub_t *pub, int32_t required,
                                                      ps_space_t *space, int64_t *code)
{
    const ps_log_t *log = &pub->log;
    const int32_t offset = pub->term_offset;
    const int64_t position = ((int64_t)pub->term_count << log->shift) + offset;
    if (PS_UNLIKELY(position >= ps_pub_limit_now(pub))) {
        *code = ps_pub_refuse(pub, position);
        return false;
    }
    if (PS_UNLIKELY(required > log->term_length - offset)) {
        *code = ps_pub_exclusive_end_of_term(pub);
        return false;
    }
    const uint32_t index = (uint32_t)pub->term_count % PS_PARTITIONS;
    if (offset + required >= pub->zeroed_to && log->type == PS_LOG_SEALED) {
        ps_pub_seal_range(pub, offset + required, required);
    }
    /* Release: the daemon must not see frames of a term whose tail it has not seen. */
    atomic_store_explicit(&log->meta->tail[index],
                          ps_pub_tail_word(pub->term_id, offset + required), memory_order_release);
    pub->term_offset = offset + required;
    space->position = position;
    space->offset = offset;
    space->term_id = pub->term_id;
    space->at = log->term[index] + offset;
    return true;
}

static PS_ALWAYS_INLINE bool ps_pub_reserve_shared(ps_pub_t *pub, int32_t required,
                                                   ps_space_t *space, int64_t *code)
{
    const ps_log_t *log = &pub->log;
    const int64_t limit = ps_pub_limit_now(pub);
    ps_tail_t tail;
    if (PS_UNLIKELY(!ps_pub_tail(pub, &tail))) {
        *code = PS_ADMIN_ACTION;
        return false;
    }
    if (PS_UNLIKELY(tail.position >= limit)) {
        *code = ps_pub_refuse(pub, tail.position);
        return false;
    }
    if (PS_UNLIKELY(tail.offset >= (uint32_t)log->term_length)) {
        *code = ps_pub_end_of_term(pub, tail.term_count, tail.term_id, tail.offset);
        return false;
    }
    const int32_t index = (int32_t)((uint32_t)tail.term_count % PS_PARTITIONS);
    const int64_t raw =
        atomic_fetch_add_explicit(&log->meta->tail[index], required, memory_order_acq_rel);
    /* The log may have rotated meanwhile: the returned value counts. */
    const int32_t term_id = (int32_t)(raw >> 32);
    const uint32_t offset = (uint32_t)raw;
    const int32_t term_count = ps_wrap_sub(term_id, log->initial_term_id);
    if (PS_UNLIKELY((int64_t)offset + required > log->term_length)) {
        *code = ps_pub_end_of_term(pub, term_count, term_id, offset);
        return false;
    }
    space->position = ((int64_t)term_count << log->shift) + offset;
    space->offset = (int32_t)offset;
    space->term_id = term_id;
    space->at = log->term[index] + offset;
    return true;
}

int64_t ps_pub_reserve(ps_pub_t *pub, int32_t required, ps_space_t *space)
{
    int64_t code = 0;
    const bool reserved = pub->exclusive ? ps_pub_reserve_exclusive(pub, required, space, &code)
                                         : ps_pub_reserve_shared(pub, required, space, &code);
    return reserved ? 0 : code;
}

/* ---- one message ----------------------------------------------------------------------------- */

static void ps_cursor_copy(ps_cursor_t *cursor, uint8_t *to, size_t length)
{
    while (length > 0) {
        const size_t left = cursor->piece->length - cursor->used;
        const size_t part = left < length ? left : length;
        if (part > 0) {
            memcpy(to, (const uint8_t *)cursor->piece->data + cursor->used, part);
            cursor->used += part;
            to += part;
            length -= part;
        }
        if (cursor->used == cursor->piece->length && length > 0) {
            cursor->piece++;
            cursor->used = 0;
        }
    }
}

static PS_ALWAYS_INLINE int64_t ps_pub_publish_single(ps_pub_t *pub, const ps_iov_t *pieces,
                                                      int32_t length, int64_t reserved_value,
                                                      bool exclusive, bool special)
{
    const int32_t frame_length = length + PS_HEADER_BYTES;
    const int32_t required = ps_align32(frame_length);
    ps_space_t space;
    int64_t code;
    if (PS_UNLIKELY(!(exclusive ? ps_pub_reserve_exclusive(pub, required, &space, &code)
                                : ps_pub_reserve_shared(pub, required, &space, &code)))) {
        return code;
    }
    if (!exclusive && PS_UNLIKELY(!ps_pub_claim(pub, space.at, frame_length))) {
        return PS_ADMIN_ACTION; /* the daemon padded over it before this claim: no message was
                                 * published */
    }
    /* Fetches the next lines early, because readers hold them from a lap ago or wait at the tail.
     * The address may lie beyond the term; the hint then does nothing. */
    ps_cpu_prefetch_write(space.at + PS_AHEAD_BYTES);
    ps_pub_header(pub, &space, 0, reserved_value);
    if (PS_LIKELY((int64_t)pieces->length == length)) {
        if (length > 0) {
            ps_pub_copy(space.at + PS_HEADER_BYTES, pieces->data, (size_t)length);
        }
    } else {
        ps_cursor_t cursor = { pieces, 0 };
        ps_cursor_copy(&cursor, space.at + PS_HEADER_BYTES, (size_t)length);
    }
    if (exclusive) {
        /* release: a reader that sees the length sees the rest */
        atomic_store_explicit(ps_frame_word((ps_frame_t *)(void *)space.at),
                              ps_frame_word_of(frame_length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA),
                              memory_order_release);
    } else if (PS_UNLIKELY(!ps_pub_settle(pub, space.at, frame_length, frame_length,
                                          PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA))) {
        return ps_pub_fail_unblocked(pub, space.position);
    }
    if (special) {
        ps_pub_count_metered(pub, 1);
    } else {
        ps_pub_count(pub, 1);
    }
    return space.position + required;
}

/* Length of the fragment that begins `ahead` bytes into the space of a message. */
static int32_t ps_fragment_payload(const ps_pub_t *pub, int64_t left)
{
    return left < pub->max_payload ? (int32_t)left : pub->max_payload;
}

/* Turns this client's uncommitted claims in [from, to) into PADs. */
static void ps_pub_give_up(const ps_pub_t *pub, const ps_space_t *space, int64_t length,
                           int32_t from, int32_t to)
{
    int32_t ahead = 0;
    int64_t left = length;
    while (left > 0 && ahead < to) {
        const int32_t payload = ps_fragment_payload(pub, left);
        const int32_t frame_length = payload + PS_HEADER_BYTES;
        if (ahead >= from) {
            ps_frame_reserved((ps_frame_t *)(void *)(space->at + ahead), 0);
            ps_log_pad(&pub->log, space->position + ahead, frame_length,
                       ps_pub_claim_word(pub, frame_length));
        }
        ahead += ps_align32(frame_length);
        left -= payload;
    }
}

/* Claims all frames, ascending. */
static bool ps_pub_claim_all(ps_pub_t *pub, const ps_space_t *space, int64_t length)
{
    int32_t ahead = 0;
    for (int64_t left = length; left > 0;) {
        const int32_t payload = ps_fragment_payload(pub, left);
        if (left > payload) {
            ps_pub_seal(pub, space->offset + ahead + ps_align32(payload + PS_HEADER_BYTES));
        }
        if (PS_UNLIKELY(!ps_pub_claim(pub, space->at + ahead, payload + PS_HEADER_BYTES))) {
            ps_pub_give_up(pub, space, length, 0, ahead);
            return false;
        }
        ahead += ps_align32(payload + PS_HEADER_BYTES);
        left -= payload;
    }
    return true;
}

static int64_t ps_pub_publish_fragments(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                                        int64_t reserved_value)
{
    const int32_t required = (int32_t)ps_log_message_space(length, pub->max_payload);
    ps_space_t space;
    const int64_t code = ps_pub_reserve(pub, required, &space);
    if (PS_UNLIKELY(code != 0)) {
        return code;
    }
    if (!ps_pub_claim_all(pub, &space, length)) {
        return PS_ADMIN_ACTION;
    }
    ps_cursor_t cursor = { pieces, 0 };
    int32_t ahead = 0;
    uint8_t flags = PS_FLAG_BEGIN;
    for (int64_t left = length; left > 0;) {
        const int32_t payload = ps_fragment_payload(pub, left);
        const int32_t frame_length = payload + PS_HEADER_BYTES;
        if (payload == left) {
            flags |= PS_FLAG_END;
        }
        ps_pub_header(pub, &space, ahead, reserved_value);
        ps_cursor_copy(&cursor, space.at + ahead + PS_HEADER_BYTES, (size_t)payload);
        if (PS_UNLIKELY(!ps_pub_settle(pub, space.at + ahead, frame_length, frame_length, flags,
                                       PS_TYPE_DATA))) {
            ps_pub_give_up(pub, &space, length, ahead, required);
            return ps_pub_fail_unblocked(pub, space.position + ahead);
        }
        ahead += ps_align32(frame_length);
        left -= payload;
        flags = 0;
    }
    ps_pub_count_metered(pub, 1);
    return space.position + required;
}

int64_t ps_pub_publish_admitted(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                                int64_t reserved_value)
{
    if (length <= pub->max_payload) {
        return ps_pub_publish_single(pub, pieces, (int32_t)length, reserved_value, pub->exclusive,
                                     true);
    }
    if (PS_UNLIKELY(length > pub->max_message)) {
        return ps_pub_fail_length(pub, length, pub->max_message);
    }
    return ps_pub_publish_fragments(pub, pieces, length, reserved_value);
}

int64_t ps_pub_publish(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                       int64_t reserved_value)
{
    if (PS_LIKELY(length <= ps_pub_single_max(pub))) {
        return ps_pub_publish_single(pub, pieces, (int32_t)length, reserved_value, pub->exclusive,
                                     false);
    }
    return pub->policy != 0 ? ps_pub_publish_policed(pub, pieces, length, reserved_value)
                            : ps_pub_publish_open(pub, pieces, length, reserved_value);
}

int64_t ps_pub_publish_policed(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value)
{
    int64_t position = ps_pub_policy_gate(pub);
    if (position == 0) {
        position = ps_pub_publish_open(pub, pieces, length, reserved_value);
    }
    return position > 0 ? position : ps_pub_policy_refused(pub, position, 1, length);
}

int64_t ps_pub_publish_open(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                            int64_t reserved_value)
{
    if (ps_pub_metered(pub) != 0) {
        (void)ps_pub_follow_metering(pub);
    }
    return ps_pub_metered(pub) != 0 ? ps_pub_publish_metered(pub, pieces, length, reserved_value)
                                    : ps_pub_publish_admitted(pub, pieces, length, reserved_value);
}

/* Publishes a message from the lease, if that is in its epoch. 0: it is not. */
static PS_ALWAYS_INLINE int64_t ps_pub_publish_leased(ps_pub_t *pub, const ps_iov_t *piece,
                                                      int64_t reserved_value)
{
    ps_publication_slot_t *slot = pub->slot;
    int64_t position = 0;
    atomic_store_explicit(&slot->spending, 1, memory_order_relaxed);
    /* The sender's barrier orders the mark before this load. */
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t word = atomic_load_explicit(&slot->spend, memory_order_relaxed);
    if (PS_LIKELY(ps_leased(pub->lease, word) > 0)) {
        /* Release: a sender that sees the smaller lease sees the mark. */
        atomic_store_explicit(&slot->lease, pub->lease - 1, memory_order_release);
        position =
            ps_pub_publish_single(pub, piece, (int32_t)piece->length, reserved_value, true, true);
        if (PS_LIKELY(position > 0)) {
            pub->lease--;
        } else {
            atomic_store_explicit(&slot->lease, pub->lease, memory_order_release);
        }
    }
    atomic_store_explicit(&slot->spending, 0, memory_order_release);
    return position;
}

/* Publishes a message of a shared stream with one credit. 0: there is none, or publishers are
 * admitted in another way now. */
static PS_ALWAYS_INLINE int64_t ps_pub_publish_credited(ps_pub_t *pub, const ps_iov_t *piece,
                                                        int64_t reserved_value)
{
    ps_publication_slot_t *slot = pub->slot;
    int64_t position = 0;
    uint32_t epoch = 0;
    if (PS_UNLIKELY(atomic_load_explicit(&slot->metered, memory_order_acquire) !=
                    (uint32_t)ps_pub_metered(pub))) {
        return 0;
    }
    _Atomic uint64_t *place = ps_pub_spend_place(pub);
    /* Stored before the credit is taken, as in ps_pub_take. */
    atomic_store_explicit(place, ps_pub_spend_mark(pub, 1), memory_order_relaxed);
    if (PS_LIKELY(ps_spend_credits(&slot->spend, &slot->ordinal_limit, 1, &epoch) > 0)) {
        position =
            ps_pub_publish_single(pub, piece, (int32_t)piece->length, reserved_value, false, true);
        if (PS_UNLIKELY(position <= 0)) {
            ps_spend_return_credits(&slot->spend, 1);
        }
    }
    atomic_store_explicit(place, 0, memory_order_release);
    return position;
}

static PS_ALWAYS_INLINE void ps_pub_offered(const ps_pub_t *pub, int64_t position)
{
    if (PS_LIKELY(position > 0 || position == PS_ADMIN_ACTION || position == PS_E_UNBLOCKED)) {
        ps_pub_dirty(pub);
    }
}

/* Publishes one piece that is fragmented, metered or under a policy, or is too long. */
static PS_NOINLINE int64_t ps_pub_offer_long(ps_pub_t *pub, const void *data, size_t length,
                                             int64_t reserved_value)
{
    const ps_iov_t piece = { data, length };
    if (length > (size_t)pub->max_message) {
        return ps_pub_fail_length(pub, length > INT64_MAX ? INT64_MAX : (int64_t)length,
                                  pub->max_message);
    }
    const int64_t position = ps_pub_publish(pub, &piece, (int64_t)length, reserved_value);
    ps_pub_offered(pub, position);
    return position;
}

/* Publishes one piece of a stream that is metered or under a policy, or a piece that is fragmented
 * or too long. The short path is that of a message of one frame with a credit. */
static PS_NOINLINE int64_t ps_pub_offer_special(ps_pub_t *pub, const void *data, size_t length,
                                                int64_t reserved_value)
{
    const ps_iov_t piece = { data, length };
    int64_t position = 0;
    const int32_t end = atomic_load_explicit(&pub->credited_end, memory_order_relaxed);
    if (PS_LIKELY(length < (size_t)end)) {
        if (!pub->exclusive) {
            position = ps_pub_publish_credited(pub, &piece, reserved_value);
        } else if ((uint32_t)pub->lease != 0) {
            position = ps_pub_publish_leased(pub, &piece, reserved_value);
        }
    }
    if (PS_UNLIKELY(position == 0)) {
        return ps_pub_offer_long(pub, data, length, reserved_value);
    }
    ps_pub_offered(pub, position);
    return position;
}

int64_t ps_pub_offer(ps_pub_t *pub, const void *data, size_t length, int64_t reserved_value)
{
    const int64_t gate = ps_pub_gate(pub);
    if (PS_UNLIKELY(gate != 0)) {
        return gate;
    }
    const ps_iov_t piece = { data, length };
    const int32_t single_max = ps_pub_single_max(pub);
    if (PS_UNLIKELY(single_max < 0 || length > (size_t)single_max)) {
        return ps_pub_offer_special(pub, data, length, reserved_value);
    }
    const int64_t position =
        ps_pub_publish_single(pub, &piece, (int32_t)length, reserved_value, pub->exclusive, false);
    ps_pub_offered(pub, position);
    return position;
}

int64_t ps_pub_offerv(ps_pub_t *pub, const ps_iov_t *pieces, int32_t count, int64_t reserved_value)
{
    const int64_t gate = ps_pub_gate(pub);
    if (PS_UNLIKELY(gate != 0)) {
        return gate;
    }
    if (count < 1) {
        return ps_fail(PS_E_INVALID, "offerv of %d pieces: at least one", count);
    }
    size_t length = 0;
    for (int32_t i = 0; i < count; i++) {
        if (pieces[i].length > (size_t)pub->max_message - length) {
            return ps_pub_fail_length(pub, (int64_t)length + (int64_t)pieces[i].length,
                                      pub->max_message);
        }
        length += pieces[i].length;
    }
    const int64_t position = ps_pub_publish(pub, pieces, (int64_t)length, reserved_value);
    if (PS_LIKELY(position > 0 || position == PS_ADMIN_ACTION || position == PS_E_UNBLOCKED)) {
        ps_pub_dirty(pub);
    }
    return position;
}
