/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication.h: the state of a client's publication, private to its source files. */
#ifndef PS_CLIENT_PUBLICATION_H
#define PS_CLIENT_PUBLICATION_H

#include <string.h>

#include "ps_client_internal.h"
#include "ps_spend.h"
#include "ps_thread_identity.h"

struct ps_pub {
    ps_client_t *client;
    ps_log_t log;
    /* Address of the publisher limit. The publisher limit is the value of the counter pub-lmt. If
     * receivers of the stream grant credits, the publisher limit is credited_limit in the
     * publication's slot instead. */
    _Atomic(_Atomic int64_t *) limit;
    _Atomic int64_t *plain_limit; /* pub-lmt */
    ps_publication_slot_t *slot;
    int64_t registration_id;
    int64_t slot_id; /* the slot's id at ps_pub_open: the registration of the first publisher */
    int64_t max_position;
    int32_t slot_index;
    int32_t max_payload;
    int32_t max_message;
    int32_t exclusive;
    /* Copy of the slot's `metered` flags. If a flag is set, the stream is metered: a publisher
     * needs a message number (ordinal) for each message (ps_client_publication_admit.c). The client
     * reads the slot's flags again after a refused offer, and in each offer on a metered stream. */
    _Atomic int32_t metered;
    int32_t policy;               /* ps_policy (ps_client_publication_policy.c) */
    _Atomic int32_t single_max;   /* If a message has at most this length, its offer runs the short
                                   * code for plain streams (not metered, no policy). The value is
                                   * max_payload, or -1 if the stream is metered or has a policy. */
    _Atomic int32_t credited_end; /* If a message is shorter than this value, its offer runs the
                                   * short code for streams with credits; 0: no offer runs the short
                                   * code. */
    _Atomic int32_t closed;
    /* For the account of refusals: time of the first refused offer since the last accepted offer;
     * 0: the last offer was accepted. */
    _Atomic int64_t refused_since_ns;
    _Atomic int32_t refused_cause; /* cause that the sender stated when an offer was last refused;
                                    * 0: the sender stated no cause */
    _Atomic int64_t refused_early; /* number of refused offers for which the sender has not stated a
                                    * cause yet */
    const int64_t *clock_ns;       /* the simulator's; NULL: CLOCK_MONOTONIC */
    /* For exclusive publications: term and offset of the next frame. Only the publishing thread
     * uses these fields. */
    int32_t term_count;
    int32_t term_id;
    int32_t term_offset;
    int32_t zeroed_to; /* In a sealed log (PS_LOG_SEALED): the memory from term_offset up to
                        * zeroed_to is zero. */
    int64_t ordinal;
    /* Identifies the thread that used credits last. The upper 48 bits are the thread's
     * ps_thread_identity. The lower 16 bits are the index of the thread's entry in the client
     * slot's array `spends`. */
    _Atomic uint64_t spender;
    /* The thread that became the holder of a shared stream's lease through this handle; 0: none. A
     * thread uses the lease only through the handle through which it became the holder. */
    _Atomic uint64_t holder;
    uint32_t handle; /* a number of this object */
};

/* Space that a publisher has reserved in the log for one or more frames. */
typedef struct ps_space {
    int64_t position; /* of the first byte */
    int32_t offset;   /* in the term */
    int32_t term_id;
    uint8_t *at;
} ps_space_t;

/* Reading position in a message that consists of several pieces. */
typedef struct ps_cursor {
    const ps_iov_t *piece;
    size_t used; /* bytes of *piece already read */
} ps_cursor_t;

enum { PS_COPY_BLOCK = 32, PS_COPY_BLOCKS_MAX = 256 };

/* Copies a payload. If the payload consists of a few whole blocks of PS_COPY_BLOCK bytes, copies it
 * without calling the library's memcpy. */
static inline void ps_pub_copy(uint8_t *to, const uint8_t *from, size_t length)
{
    if (length % PS_COPY_BLOCK == 0 && length <= PS_COPY_BLOCKS_MAX) {
        for (size_t at = 0; at < length; at += PS_COPY_BLOCK) {
            memcpy(to + at, from + at, PS_COPY_BLOCK);
        }
    } else {
        memcpy(to, from, length);
    }
}

static inline int64_t ps_pub_limit_now(const ps_pub_t *pub)
{
    _Atomic int64_t *cell = atomic_load_explicit(&pub->limit, memory_order_relaxed);
    return atomic_load_explicit(cell, memory_order_acquire);
}

static inline int32_t ps_pub_metered(const ps_pub_t *pub)
{
    return atomic_load_explicit(&pub->metered, memory_order_relaxed);
}

static inline int32_t ps_pub_single_max(const ps_pub_t *pub)
{
    return atomic_load_explicit(&pub->single_max, memory_order_relaxed);
}

/* Updates `limit` and `metered` if receivers have begun or stopped granting credits. Returns true
 * if `limit` or `metered` changed. */
bool ps_pub_follow_metering(ps_pub_t *pub);

/* Sets the clock for the times of refused offers, in place of CLOCK_MONOTONIC. Call this function
 * before the first offer. */
void ps_pub_set_clock(ps_pub_t *pub, const int64_t *now_ns);
/* Counts a refusal; returns code. */
int64_t ps_pub_refused(ps_pub_t *pub, int32_t cause, int64_t code);
/* Returns the cause of the offers refused since the last accepted offer; PS_CAUSE_NONE: the sender
 * has not stated a cause yet. */
int32_t ps_pub_refused_cause(const ps_pub_t *pub);
/* Ends an episode of refusals. Call this function at the first accepted message after a refusal. */
void ps_pub_accepted(ps_pub_t *pub);

/* Returns true if the publication has failed under ps-policy=error. Every offer then fails until
 * the application resets the publication. */
bool ps_pub_has_failed(const ps_pub_t *pub);
/* Counts the refusal; returns PS_FAILED. */
int64_t ps_pub_refuse_failed(ps_pub_t *pub);

/* Returns true if the publication is open and its daemon is alive. */
static inline bool ps_pub_is_open(const ps_pub_t *pub)
{
    return !ps_client_forked(pub->client) &&
           PS_LIKELY(!atomic_load_explicit(&pub->closed, memory_order_relaxed)) &&
           PS_LIKELY(!atomic_load_explicit(&pub->client->daemon_away, memory_order_relaxed));
}

/* Returns the ps_offer_code of an offer if ps_pub_is_open has returned false. */
int64_t ps_pub_refuse_shut(ps_pub_t *pub);

/* Returns 0 if the publication is open and its daemon is alive; otherwise the ps_offer_code that
 * the offer must return. */
static inline int64_t ps_pub_gate(ps_pub_t *pub)
{
    return PS_LIKELY(ps_pub_is_open(pub)) ? 0 : ps_pub_refuse_shut(pub);
}

/* Notifies the sender after a commit, unless the stream is hot: the sender checks a hot stream in
 * every duty cycle without a notification. The CPU must not execute the load of `dirty` before the
 * store of the commit. On a hot stream, a compiler barrier is enough in this function, because the
 * sender's process-wide barrier keeps the load after the store (docs/decisions/0020). On all other
 * streams, this function executes a fence. */
static inline void ps_pub_dirty(const ps_pub_t *pub)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (PS_LIKELY(pub->client->barriers &&
                  atomic_load_explicit(&pub->slot->dirty, memory_order_relaxed) == PS_DIRTY_HOT)) {
        return;
    }
    atomic_thread_fence(memory_order_seq_cst);
    const uint32_t dirty = atomic_load_explicit(&pub->slot->dirty, memory_order_seq_cst);
    if (dirty != PS_DIRTY_DATA && dirty != PS_DIRTY_HOT) {
        ps_client_mark_dirty(pub->client, pub->slot_index);
    }
}

/* Ends the account of refused offers, because a message was accepted. */
static inline void ps_pub_end_refusals(ps_pub_t *pub)
{
    if (PS_UNLIKELY(atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed) != 0)) {
        ps_pub_accepted(pub);
    }
}

/* Counts committed messages. */
static inline void ps_pub_count_for(ps_pub_t *pub, int64_t messages, bool exclusive)
{
    ps_pub_end_refusals(pub);
    if (exclusive) {
        pub->ordinal += messages;
        atomic_store_explicit(&pub->slot->published_ordinal, pub->ordinal, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&pub->slot->published_ordinal, messages, memory_order_relaxed);
    }
}

/* Adds committed messages of a metered stream to the stream's number of published messages. On a
 * stream with credits, the function does not count messages, because the word `spend` already
 * counts them. */
static inline void ps_pub_count_metered(ps_pub_t *pub, int64_t messages)
{
    if ((ps_pub_metered(pub) & PS_METERED_CREDITS) == 0) {
        ps_pub_count_for(pub, messages, pub->exclusive);
    } else {
        ps_pub_end_refusals(pub);
    }
}

/* Returns the ps_offer_code for an offer that was refused at `position`. If several codes apply,
 * the order in docs/spec/rules.md section 5 decides. */
int64_t ps_pub_refuse(ps_pub_t *pub, int64_t position);
/* Computes two limits for the size of a reservation. *room gets the number of bytes from *position
 * to the end of the term. *budget gets the number of bytes from *position to the publisher limit.
 * Returns 0 or an error code. */
int64_t ps_pub_check_offer(ps_pub_t *pub, int64_t *position, int32_t *room, int64_t *budget);
/* Reserves `required` (aligned) bytes of the log below the publisher limit. Returns 0 or a
 * ps_offer_code; PS_ADMIN_ACTION: the log was rotated to the next term. */
int64_t ps_pub_reserve(ps_pub_t *pub, int32_t required, ps_space_t *space);
/* Returns the word in which an exclusive publisher states the tail of a term. */
static inline int64_t ps_pub_tail_word(int32_t term_id, int32_t offset)
{
    return (int64_t)ps_pair(offset, term_id);
}

/* Each function pads the rest of the term from the given offset on, and rotates the log. The
 * functions are in a file of their own, so that the compiler never copies them into an offer.
 * ps_pub_end_of_term is for shared publications. Returns PS_ADMIN_ACTION, or
 * PS_MAX_POSITION_EXCEEDED after the last term. */
int64_t ps_pub_end_of_term(ps_pub_t *pub, int32_t term_count, int32_t term_id, uint32_t offset);
int64_t ps_pub_exclusive_end_of_term(ps_pub_t *pub);
/* Publishes one message; the caller must then notify the sender with ps_pub_dirty. Returns the
 * position after the message, or a negative ps_offer_code or ps_error_code. */
int64_t ps_pub_publish(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                       int64_t reserved_value);
/* Both functions publish one message. ps_pub_publish_open ignores the stream's policy (ps-policy);
 * ps_pub_publish_policed applies the policy. */
int64_t ps_pub_publish_open(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                            int64_t reserved_value);
int64_t ps_pub_publish_policed(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value);
/* Returns 0 if the policy of the stream admits publishers now; otherwise the ps_offer_code that the
 * offer must return. */
int64_t ps_pub_policy_gate(ps_pub_t *pub);
/* Requests that the sender serves the stream. In the state PS_WATERMARK_PAUSED this function does
 * nothing, because the stream's readers then wake the sender. */
void ps_pub_request_unless_paused(const ps_pub_t *pub);
/* Applies the stream's policy to refused messages; `messages` is their number. Returns the
 * ps_offer_code that the offer must return. */
int64_t ps_pub_policy_refused(ps_pub_t *pub, int64_t code, int64_t messages, int64_t bytes);
/* Both functions publish one message, as ps_pub_publish_open does. On a metered stream, a message
 * needs an ordinal (message number). The caller of ps_pub_publish_admitted must have taken this
 * ordinal; ps_pub_publish_metered takes the ordinal itself. */
int64_t ps_pub_publish_admitted(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                                int64_t reserved_value);
int64_t ps_pub_publish_metered(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value);
/* Finds the calling thread's entry in the array `spends` of the client's slot. Stores the index of
 * this entry in the publication, so that the thread finds the entry at once for its next message.
 */
uint32_t ps_pub_find_spend_place(ps_pub_t *pub, uint64_t identity);
/* Returns the calling thread's entry of `spends` in the client's slot. In this entry, the thread
 * states the credits that it is about to take. */
static inline _Atomic uint64_t *ps_pub_spend_place(ps_pub_t *pub)
{
    const uint64_t identity = ps_thread_identity();
    const uint64_t spender = atomic_load_explicit(&pub->spender, memory_order_relaxed);
    const uint32_t place = PS_LIKELY(spender >> 16 == identity && identity != 0)
                               ? (uint32_t)(spender & 0xFFFF)
                               : ps_pub_find_spend_place(pub, identity);
    return &pub->client->shared->clients[pub->client->slot].spends[place];
}
/* Returns true if the calling thread holds the lease of a shared stream, through this handle. */
static inline bool ps_pub_holds_lease(const ps_pub_t *pub)
{
    const uint64_t holder = atomic_load_explicit(&pub->slot->lease_holder, memory_order_relaxed);
    return holder != 0 && holder == atomic_load_explicit(&pub->holder, memory_order_relaxed) &&
           ps_lease_is_held_by(holder, ps_thread_identity());
}
/* Fills the lease of a shared stream, and makes the calling thread its holder if there is none.
 * Returns false if the thread must take each credit from the word. */
bool ps_pub_fill_lease(ps_pub_t *pub);
/* Returns the lease of a shared stream that was held through this handle. */
void ps_pub_return_lease(ps_pub_t *pub);
/* Returns the value that a thread stores in its entry of `spends` (ps_client_slot_t) before the
 * thread takes `credits` credits of this stream. */
static inline uint64_t ps_pub_spend_mark(const ps_pub_t *pub, int64_t credits)
{
    return (uint64_t)credits << 32 | (uint32_t)(pub->slot_index + 1);
}
/* For metered streams: takes up to `wanted` (> 0) message numbers (ordinals), one for each message
 * to be published. Returns the number of ordinals taken, or a ps_offer_code. The caller must call
 * ps_pub_taken after it has claimed frames for the messages, or after it has returned the ordinals.
 */
int64_t ps_pub_take(ps_pub_t *pub, int64_t wanted, uint32_t *epoch);
void ps_pub_taken(ps_pub_t *pub, uint32_t epoch);
/* Before a publisher aborts a claim: states again, as ps_pub_take does, that the publisher has
 * taken the claim's credit. The caller must call ps_pub_taken after it has returned the credit.
 * Otherwise, the sender could return the credit of the aborted claim too. */
void ps_pub_retake(ps_pub_t *pub, uint32_t epoch);
/* Releases the ordinal of a claim that the daemon has padded over. If the ordinal is a credit, this
 * function does nothing, because the sender returns the credits of such claims. */
void ps_pub_untake_padded(ps_pub_t *pub, uint32_t epoch);
/* Releases `count` ordinals that this publisher took for messages but did not use. */
void ps_pub_untake(ps_pub_t *pub, int64_t count, uint32_t epoch);
/* Sets the error text and returns PS_E_TOO_LONG. */
int64_t ps_pub_fail_length(const ps_pub_t *pub, int64_t length, int32_t limit);
/* Counts a claim that the daemon replaced with padding, and returns PS_E_UNBLOCKED. */
int64_t ps_pub_fail_unblocked(const ps_pub_t *pub, int64_t position);

/* In a sealed log, the word directly behind the data must be zero. Zeroes this word at `offset` in
 * the publisher's present term. If `offset` is the end of this term, zeroes the first word of the
 * next term. Call this function before the frame that ends at `offset` becomes visible. */
static inline void ps_pub_seal(const ps_pub_t *pub, int32_t offset)
{
    if (pub->log.type == PS_LOG_SEALED) {
        const bool inside = offset < pub->log.term_length;
        const uint32_t count = (uint32_t)pub->term_count + !inside;
        uint8_t *at = pub->log.term[count % PS_PARTITIONS] + (inside ? offset : 0);
        atomic_store_explicit(ps_frame_word((ps_frame_t *)(void *)at), 0, memory_order_relaxed);
    }
}

static inline uint64_t ps_pub_claim_word(const ps_pub_t *pub, int32_t frame_length)
{
    return ps_claim_word_of(frame_length, pub->client->slot);
}

/* Claims a frame for this client: writes the first word of the frame, which must have been zero.
 * Returns false if the daemon has already replaced the frame with padding. */
static inline bool ps_pub_claim_shared(const ps_pub_t *pub, uint8_t *at, int32_t frame_length)
{
    uint64_t expected = 0;
    return atomic_compare_exchange_strong_explicit(ps_frame_word((ps_frame_t *)(void *)at),
                                                   &expected, ps_pub_claim_word(pub, frame_length),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static inline bool ps_pub_claim(const ps_pub_t *pub, uint8_t *at, int32_t frame_length)
{
    if (pub->exclusive) {
        atomic_store_explicit(ps_frame_word((ps_frame_t *)(void *)at),
                              ps_pub_claim_word(pub, frame_length), memory_order_release);
        return true;
    }
    return ps_pub_claim_shared(pub, at, frame_length);
}

/* Commits a claim of `claimed` bytes, so that the claim becomes a complete frame. */
static inline bool ps_pub_settle(const ps_pub_t *pub, uint8_t *at, int32_t claimed,
                                 int32_t frame_length, uint8_t flags, uint16_t type)
{
    uint64_t expected = ps_pub_claim_word(pub, claimed);
    return atomic_compare_exchange_strong_explicit(
        ps_frame_word((ps_frame_t *)(void *)at), &expected,
        ps_frame_word_of(frame_length, flags, type), memory_order_acq_rel, memory_order_relaxed);
}

/* Writes the header fields of a frame, except its first word. */
static inline void ps_pub_header(const ps_pub_t *pub, const ps_space_t *space, int32_t ahead,
                                 int64_t reserved_value)
{
    ps_frame_t *frame = (ps_frame_t *)(void *)(space->at + ahead);
    ps_frame_fields(frame, space->offset + ahead, pub->log.session_id, pub->log.stream_id,
                    space->term_id);
    ps_frame_reserved(frame, reserved_value);
}

#endif
