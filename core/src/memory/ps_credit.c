/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_credit.c: see ps_credit.h. The client writes what it returned, so it is checked: it never
 * decreases, and never exceeds the messages that exist. */
#include "ps_credit.h"

#include "ps_error.h"
#include "ps_frame.h"
#include "ps_spend.h"

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_acquire);
}

/* A walk over the frames of a log, at most to the end of one term. */
typedef struct walk {
    const uint8_t *term;
    int32_t offset;
    int32_t end; /* in the term */
    int32_t frames;
    int64_t messages, dropped;
} walk_t;

/* Counts the frames of a term. Returns false at a frame that is not there or not valid. */
static bool walk_term(const ps_log_t *log, walk_t *walk)
{
    int32_t guess = 0;
    while (walk->offset < walk->end && walk->frames > 0) {
        ps_frame_t *frame = (ps_frame_t *)(void *)(uintptr_t)(walk->term + walk->offset);
        const uint64_t word = atomic_load_explicit(ps_frame_word(frame), memory_order_acquire);
        const int32_t length = (int32_t)(uint32_t)word;
        if (length < PS_HEADER_BYTES || length > log->term_length - walk->offset) {
            return false;
        }
        if (ps_frame_word_type(word) != PS_TYPE_PAD) {
            walk->messages += ps_frame_word_ends(word);
        } else {
            const int32_t count = ps_marked_messages(ps_frame_reserved_value(frame));
            walk->messages += count;
            walk->dropped += count;
        }
        walk->offset += ps_frame_guess(&guess, ps_align32(length));
        walk->frames--;
    }
    return true;
}

int64_t ps_credit_count(const ps_log_t *log, int64_t *position, int64_t to, int32_t frames,
                        int64_t *dropped)
{
    walk_t walk = { .frames = frames };
    bool there = true;
    while (there && *position < to && walk.frames > 0) {
        const int32_t offset = (int32_t)(*position & log->term_mask);
        const int64_t begin = *position - offset;
        walk.term = ps_log_at(log, begin);
        walk.offset = offset;
        walk.end = to - begin < log->term_length ? (int32_t)(to - begin) : log->term_length;
        there = walk_term(log, &walk);
        *position = begin + walk.offset;
    }
    if (dropped != NULL) {
        *dropped += walk.dropped;
    }
    return there || walk.frames < frames ? walk.messages : -1;
}

void ps_credit_join(ps_credit_reader_t *reader, ps_subscriber_slot_t *slot, int64_t position,
                    bool adopted)
{
    *reader = (ps_credit_reader_t){ .slot = slot, .base = -1, .at = position };
    if (adopted && slot != NULL &&
        atomic_load_explicit(&slot->credit_epoch, memory_order_acquire) != 0) {
        reader->base = ps_believed_ordinal(load(&slot->credit_base));
        const int64_t granted = load(&slot->credit_granted);
        if (reader->base >= 0 && granted >= 0 && granted < PS_CREDIT_OPEN - reader->base) {
            reader->limit = reader->base + granted; /* granted once already */
        }
    }
}

bool ps_credit_set(ps_credit_reader_t *reader, int64_t credits, int64_t burst, bool frozen)
{
    const int64_t most = credits > PS_CREDITS_MAX ? PS_CREDITS_MAX : credits < 0 ? 0 : credits;
    const int64_t before = reader->credits;
    /* A freeze that is stated again begins an epoch too: its client waits for one to settle. */
    const bool lowers = (most < before && most > 0) || frozen || reader->frozen;
    reader->credits = most;
    reader->burst = burst > PS_CREDITS_MAX ? PS_CREDITS_MAX : burst < most ? most : burst;
    reader->frozen = frozen && most > 0;
    return lowers;
}

void ps_credit_restart(ps_credit_reader_t *reader)
{
    reader->limit = 0;
}

static bool find_base(ps_credit_reader_t *reader, const ps_log_t *log, const ps_counted_t *counted)
{
    if (counted->ordinal < 0 || reader->at > counted->position) {
        return false;
    }
    const int64_t messages =
        ps_credit_count(log, &reader->at, counted->position, PS_CREDIT_SCAN, NULL);
    reader->counted += messages > 0 ? messages : 0;
    if (reader->at != counted->position || counted->ordinal < reader->counted) {
        return false;
    }
    reader->base = counted->ordinal - reader->counted;
    return true;
}

bool ps_credit_read_counted(const ps_credit_reader_t *reader, const _Atomic int64_t *position,
                            ps_counted_t *out)
{
    const ps_subscriber_slot_t *slot = reader->slot;
    /* The client stores these words in the opposite order, so equal positions mean that the count
     * belongs to them. */
    out->position = load(position);
    const int64_t returned = ps_believed_ordinal(load(&slot->credit_returned));
    out->ordinal = reader->base + returned;
    return reader->base >= 0 && returned >= 0 && out->position == load(&slot->released);
}

bool ps_credit_step(ps_credit_reader_t *reader, const ps_log_t *log, const ps_counted_t *counted,
                    int64_t exist_ordinal)
{
    if (reader->base < 0 && !find_base(reader, log, counted)) {
        return false;
    }
    const int64_t exist = exist_ordinal - reader->base;
    int64_t returned = load(&reader->slot->credit_returned);
    reader->exist = exist;
    returned = returned < exist ? returned : exist;
    reader->returned = returned > reader->returned ? returned : reader->returned;
    const bool nothing = reader->returned >= exist;
    const int64_t limit =
        reader->base + reader->returned + (nothing ? reader->burst : reader->credits);
    reader->limit = limit > reader->limit ? limit : reader->limit;
    return true;
}

void ps_credit_show(const ps_credit_reader_t *reader, uint32_t epoch, int32_t state, int64_t final)
{
    ps_subscriber_slot_t *slot = reader->slot;
    const int64_t base = reader->base > 0 ? reader->base : 0;
    atomic_store_explicit(&slot->credits, reader->credits, memory_order_relaxed);
    atomic_store_explicit(&slot->credit_burst, reader->burst, memory_order_relaxed);
    atomic_store_explicit(&slot->credit_base, reader->base, memory_order_relaxed);
    atomic_store_explicit(&slot->credit_granted, reader->limit - base, memory_order_relaxed);
    atomic_store_explicit(&slot->credit_arrived, reader->exist, memory_order_relaxed);
    atomic_store_explicit(&slot->credit_final,
                          final >= base ? final - base
                          : final >= 0  ? 0
                                        : -1,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->credit_epoch, epoch, memory_order_relaxed);
    /* Release: a client that sees the state sees the rest. */
    atomic_store_explicit(&slot->credit_state, state, memory_order_release);
}

void ps_credit_wake_at(const ps_credit_reader_t *reader, int64_t returned)
{
    if (atomic_load_explicit(&reader->slot->credit_wake, memory_order_relaxed) != returned) {
        /* Pairs with a client that stores what it returned, then reads this. */
        atomic_store_explicit(&reader->slot->credit_wake, returned, memory_order_seq_cst);
    }
}

bool ps_credit_is_due(const ps_credit_reader_t *reader)
{
    return reader->slot != NULL && reader->credits > 0 &&
           atomic_load_explicit(&reader->slot->credit_returned, memory_order_seq_cst) >=
               atomic_load_explicit(&reader->slot->credit_wake, memory_order_relaxed);
}

/* A daemon may die between two stores, and the next daemon must count no message twice. The count
 * in `credit_passed` is valid up to the position `delivered`. A `delivered` above the position of
 * the group is a release that a dead daemon did not finish. Before the store of `delivered`, only
 * `credit_passed` has changed, and the next call computes it again from `credit_returned`. */
int64_t ps_credit_release(ps_subscriber_slot_t *slot, const ps_log_t *log, int64_t from, int64_t to)
{
    int64_t at = atomic_load_explicit(&slot->delivered, memory_order_acquire);
    int64_t passed = atomic_load_explicit(&slot->credit_returned, memory_order_relaxed);
    if (at > from) {
        passed = atomic_load_explicit(&slot->credit_passed, memory_order_relaxed);
        atomic_store_explicit(&slot->credit_returned, passed, memory_order_release);
    } else {
        at = from;
    }
    /* Each frame has at least a header, so the count visits the whole range. */
    const int64_t messages = ps_credit_count(log, &at, to, INT32_MAX, NULL);
    passed += messages > 0 ? messages : 0;
    atomic_store_explicit(&slot->credit_passed, passed, memory_order_relaxed);
    atomic_store_explicit(&slot->delivered, at, memory_order_release);
    atomic_store_explicit(&slot->credit_returned, passed, memory_order_release);
    return at;
}

int64_t ps_spend_leased(const ps_publication_slot_t *slot)
{
    /* The lease first: it is never larger than what the word has counted. */
    const uint64_t lease = atomic_load_explicit(&slot->lease, memory_order_acquire);
    return ps_leased(lease, atomic_load_explicit(&slot->spend, memory_order_acquire));
}

bool ps_spend_counts(const ps_publication_slot_t *slot, int64_t *granted, int64_t *spent)
{
    const int64_t limit = load(&slot->credit_limit);
    if ((atomic_load_explicit(&slot->metered, memory_order_acquire) & PS_METERED_CREDITS) == 0 ||
        limit == PS_CREDIT_OPEN) {
        return false;
    }
    const int64_t base = load(&slot->credit_base);
    const int64_t leased = ps_spend_leased(slot);
    const uint64_t word = atomic_load_explicit(&slot->spend, memory_order_acquire);
    const uint64_t near = (uint64_t)base + (uint64_t)limit; /* of another process: may wrap */
    *granted = limit;
    *spent =
        (int64_t)((uint64_t)ps_spent_near(word, (int64_t)near) - (uint64_t)base - (uint64_t)leased);
    return true;
}

int ps_slot_read_spent(const ps_shared_t *shared, int32_t publication_slot, int64_t *granted,
                       int64_t *spent)
{
    if (publication_slot < 0 || publication_slot >= shared->n_publications) {
        return ps_fail(PS_E_INVALID, "publication slot %d is not in 0..%d", publication_slot,
                       shared->n_publications - 1);
    }
    return ps_spend_counts(&shared->publications[publication_slot], granted, spent);
}

int ps_slot_read_credit(const ps_shared_t *shared, int32_t subscriber_slot, ps_credit_view_t *out)
{
    if (subscriber_slot < 0 || subscriber_slot >= shared->n_subscribers) {
        return ps_fail(PS_E_INVALID, "subscriber slot %d is not in 0..%d", subscriber_slot,
                       shared->n_subscribers - 1);
    }
    const ps_subscriber_slot_t *slot = &shared->subscribers[subscriber_slot];
    *out = (ps_credit_view_t){
        .state = atomic_load_explicit(&slot->credit_state, memory_order_acquire),
        .epoch = (int32_t)atomic_load_explicit(&slot->credit_epoch, memory_order_relaxed),
        .credits = load(&slot->credits),
        .burst = load(&slot->credit_burst),
        .passed = load(&slot->credit_passed),
        .returned = load(&slot->credit_returned),
        .leaked = load(&slot->credit_leaked),
        .granted = load(&slot->credit_granted),
        .arrived = load(&slot->credit_arrived),
        .final = load(&slot->credit_final),
        .skipped_messages = load(&slot->skipped_messages),
        .skipped_bytes = load(&slot->skipped_bytes),
        .expired_messages = load(&slot->expired_messages),
        .expired_bytes = load(&slot->expired_bytes)
    };
    return PS_OK;
}
