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

/* How the publication of one message counts: the compiler makes code of its own for each. */
typedef enum ps_admission {
    PS_ADMIT_PLAIN,   /* the stream is not metered */
    PS_ADMIT_CREDIT,  /* the word `spend` has counted the message */
    PS_ADMIT_BY_FLAGS /* the flags of the stream decide */
} ps_admission_t;

static PS_ALWAYS_INLINE void ps_pub_count_admitted(ps_pub_t *pub, bool exclusive,
                                                   ps_admission_t admission)
{
    if (admission == PS_ADMIT_BY_FLAGS) {
        ps_pub_count_metered(pub, 1);
    } else if (admission == PS_ADMIT_CREDIT) {
        ps_pub_end_refusals(pub);
    } else {
        ps_pub_count_for(pub, 1, exclusive);
    }
}

/* Publishes `length` bytes. Their source is a buffer, or an array of ps_iov_t if `pieces` is true.
 * Returns true if *position is the position after the message; otherwise *position is the reason,
 * which is never 0. */
static PS_ALWAYS_INLINE bool ps_pub_publish_frame(ps_pub_t *pub, const void *source, bool pieces,
                                                  int32_t length, int64_t reserved_value,
                                                  bool exclusive, ps_admission_t admission,
                                                  int64_t *position)
{
    const int32_t frame_length = length + PS_HEADER_BYTES;
    const int32_t required = ps_align32(frame_length);
    ps_space_t space;
    if (PS_UNLIKELY(!(exclusive ? ps_pub_reserve_exclusive(pub, required, &space, position)
                                : ps_pub_reserve_shared(pub, required, &space, position)))) {
        return false;
    }
    if (!exclusive && PS_UNLIKELY(!ps_pub_claim_shared(pub, space.at, frame_length))) {
        *position = PS_ADMIN_ACTION; /* the daemon padded over it before this claim: no message was
                                      * published */
        return false;
    }
    /* Fetches the next lines early, because readers hold them from a lap ago or wait at the tail.
     * The address may lie beyond the term; the hint then does nothing. */
    ps_cpu_prefetch_write(space.at + PS_AHEAD_BYTES);
    ps_pub_header(pub, &space, 0, reserved_value);
    if (pieces) {
        ps_cursor_t cursor = { source, 0 };
        ps_cursor_copy(&cursor, space.at + PS_HEADER_BYTES, (size_t)length);
    } else if (length > 0) {
        ps_pub_copy(space.at + PS_HEADER_BYTES, source, (size_t)length);
    }
    if (exclusive) {
        /* release: a reader that sees the length sees the rest */
        atomic_store_explicit(ps_frame_word((ps_frame_t *)(void *)space.at),
                              ps_frame_word_of(frame_length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA),
                              memory_order_release);
    } else if (PS_UNLIKELY(!ps_pub_settle(pub, space.at, frame_length, frame_length,
                                          PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA))) {
        *position = ps_pub_fail_unblocked(pub, space.position);
        return false;
    }
    ps_pub_count_admitted(pub, exclusive, admission);
    *position = space.position + required;
    return true;
}

/* Publishes pieces that fit one frame. */
static int64_t ps_pub_publish_single(ps_pub_t *pub, const ps_iov_t *pieces, int32_t length,
                                     int64_t reserved_value)
{
    int64_t position;
    (void)ps_pub_publish_frame(pub, pieces, true, length, reserved_value, pub->exclusive,
                               PS_ADMIT_BY_FLAGS, &position);
    return position;
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
        return ps_pub_publish_single(pub, pieces, (int32_t)length, reserved_value);
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
        return ps_pub_publish_single(pub, pieces, (int32_t)length, reserved_value);
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

/* Offers of one frame have a function for each kind of stream: none looks at what another kind
 * needs, and ps_pub_offer needs no stack frame. */
static PS_ALWAYS_INLINE int64_t ps_pub_offer_plain(ps_pub_t *pub, const void *data, size_t length,
                                                   int64_t reserved_value, bool exclusive)
{
    int64_t position;
    if (PS_LIKELY(ps_pub_publish_frame(pub, data, false, (int32_t)length, reserved_value, exclusive,
                                       PS_ADMIT_PLAIN, &position))) {
        ps_pub_dirty(pub);
    } else {
        ps_pub_offered(pub, position);
    }
    return position;
}

static PS_NOINLINE int64_t ps_pub_offer_exclusive(ps_pub_t *pub, const void *data, size_t length,
                                                  int64_t reserved_value)
{
    return ps_pub_offer_plain(pub, data, length, reserved_value, true);
}

static PS_NOINLINE int64_t ps_pub_offer_shared(ps_pub_t *pub, const void *data, size_t length,
                                               int64_t reserved_value)
{
    return ps_pub_offer_plain(pub, data, length, reserved_value, false);
}

/* Ends the use of a credit of the lease, and puts back this number of credits. The lease is loaded
 * again, so that it occupies no register meanwhile. */
static PS_ALWAYS_INLINE void ps_pub_end_spend(const ps_pub_t *pub, uint64_t unused)
{
    _Atomic uint64_t *cell = &pub->slot->lease;
    const uint64_t lease = atomic_load_explicit(cell, memory_order_relaxed);
    /* Release: a sender that sees no mark sees the frame. */
    atomic_store_explicit(cell, lease - PS_LEASE_SPENDING + unused, memory_order_release);
}

/* Publishes a message of an exclusive stream with a credit of the lease, if the lease has one and
 * belongs to the epoch. */
static PS_NOINLINE int64_t ps_pub_offer_leased(ps_pub_t *pub, const void *data, size_t length,
                                               int64_t reserved_value)
{
    ps_publication_slot_t *slot = pub->slot;
    /* Only this publisher writes the word. */
    const uint64_t lease = atomic_load_explicit(&slot->lease, memory_order_relaxed);
    int64_t position;
    if (PS_UNLIKELY((uint32_t)lease - 1 >= PS_LEASE_MOST)) {
        return ps_pub_offer_long(pub, data, length, reserved_value);
    }
    atomic_store_explicit(&slot->lease, lease - 1 + PS_LEASE_SPENDING, memory_order_relaxed);
    /* The sender's barrier orders the mark before this load. */
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t word = atomic_load_explicit(&slot->spend, memory_order_relaxed);
    if (PS_UNLIKELY(!ps_lease_is_of(lease, word))) {
        ps_pub_end_spend(pub, 1);
        return ps_pub_offer_long(pub, data, length, reserved_value);
    }
    if (PS_LIKELY(ps_pub_publish_frame(pub, data, false, (int32_t)length, reserved_value, true,
                                       PS_ADMIT_CREDIT, &position))) {
        ps_pub_end_spend(pub, 0);
        ps_pub_dirty(pub);
    } else {
        ps_pub_end_spend(pub, 1);
        ps_pub_offered(pub, position);
    }
    return position;
}

/* Publishes a message of a shared stream with one credit of the word, if there is one. */
static PS_NOINLINE int64_t ps_pub_offer_spent(ps_pub_t *pub, const void *data, size_t length,
                                              int64_t reserved_value)
{
    ps_publication_slot_t *slot = pub->slot;
    int64_t position;
    uint32_t epoch = 0;
    _Atomic uint64_t *place = ps_pub_spend_place(pub);
    /* Stored before the credit is taken, as in ps_pub_take. */
    atomic_store_explicit(place, ps_pub_spend_mark(pub, 1), memory_order_relaxed);
    if (PS_UNLIKELY(ps_spend_credits(&slot->spend, &slot->ordinal_limit, 1, &epoch) <= 0)) {
        atomic_store_explicit(place, 0, memory_order_release);
        return ps_pub_offer_long(pub, data, length, reserved_value);
    }
    if (PS_LIKELY(ps_pub_publish_frame(pub, data, false, (int32_t)length, reserved_value, false,
                                       PS_ADMIT_CREDIT, &position))) {
        atomic_store_explicit(place, 0, memory_order_release);
        ps_pub_dirty(pub);
    } else {
        ps_spend_return_credits(&slot->spend, 1);
        atomic_store_explicit(place, 0, memory_order_release);
        ps_pub_offered(pub, position);
    }
    return position;
}

static int64_t ps_pub_offer_credited(ps_pub_t *pub, const void *data, size_t length,
                                     int64_t reserved_value);

/* Fills the lease of a shared stream before the next message, if this thread may. */
static PS_NOINLINE int64_t ps_pub_offer_unleased(ps_pub_t *pub, const void *data, size_t length,
                                                 int64_t reserved_value)
{
    const uint64_t lease = atomic_load_explicit(&pub->slot->lease, memory_order_relaxed);
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const bool empty = !ps_pub_holds_lease(pub) || ps_leased(lease, word) == 0;
    return empty && ps_pub_fill_lease(pub)
               ? ps_pub_offer_credited(pub, data, length, reserved_value)
               : ps_pub_offer_spent(pub, data, length, reserved_value);
}

/* Publishes a message of a shared stream with credits, if publishers are still admitted by credits
 * only: with a credit of the lease, if this thread holds it. The steps are those of
 * ps_pub_offer_leased. */
static PS_NOINLINE int64_t ps_pub_offer_credited(ps_pub_t *pub, const void *data, size_t length,
                                                 int64_t reserved_value)
{
    ps_publication_slot_t *slot = pub->slot;
    int64_t position;
    if (PS_UNLIKELY(atomic_load_explicit(&slot->metered, memory_order_acquire) !=
                    (uint32_t)ps_pub_metered(pub))) {
        return ps_pub_offer_long(pub, data, length, reserved_value);
    }
    const uint64_t lease = atomic_load_explicit(&slot->lease, memory_order_relaxed);
    if (PS_UNLIKELY((uint32_t)lease - 1 >= PS_LEASE_MOST || !ps_pub_holds_lease(pub))) {
        return ps_pub_offer_unleased(pub, data, length, reserved_value);
    }
    atomic_store_explicit(&slot->lease, lease - 1 + PS_LEASE_SPENDING, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t word = atomic_load_explicit(&slot->spend, memory_order_relaxed);
    if (PS_UNLIKELY(!ps_lease_is_of(lease, word))) {
        atomic_store_explicit(&slot->lease, 0, memory_order_release);
        return ps_pub_offer_spent(pub, data, length, reserved_value);
    }
    if (PS_LIKELY(ps_pub_publish_frame(pub, data, false, (int32_t)length, reserved_value, false,
                                       PS_ADMIT_CREDIT, &position))) {
        atomic_store_explicit(&slot->lease, lease - 1, memory_order_release);
        ps_pub_dirty(pub);
    } else {
        atomic_store_explicit(&slot->lease, lease, memory_order_release);
        ps_pub_offered(pub, position);
    }
    return position;
}

int64_t ps_pub_offer(ps_pub_t *pub, const void *data, size_t length, int64_t reserved_value)
{
    if (PS_UNLIKELY(!ps_pub_is_open(pub))) {
        return ps_pub_refuse_shut(pub);
    }
    if (PS_LIKELY(length < (size_t)(ps_pub_single_max(pub) + 1))) {
        return pub->exclusive ? ps_pub_offer_exclusive(pub, data, length, reserved_value)
                              : ps_pub_offer_shared(pub, data, length, reserved_value);
    }
    const int32_t end = atomic_load_explicit(&pub->credited_end, memory_order_relaxed);
    if (PS_LIKELY(length < (size_t)end)) {
        return pub->exclusive ? ps_pub_offer_leased(pub, data, length, reserved_value)
                              : ps_pub_offer_credited(pub, data, length, reserved_value);
    }
    return ps_pub_offer_long(pub, data, length, reserved_value);
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
