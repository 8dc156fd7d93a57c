/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication.h: a publication as its source files see it.
 */
#ifndef PS_CLIENT_PUBLICATION_H
#define PS_CLIENT_PUBLICATION_H

#include <string.h>

#include "ps_client_internal.h"

struct ps_pub {
    ps_client_t *client;
    ps_log_t log;
    _Atomic int64_t *limit;
    ps_publication_slot_t *slot;
    int64_t registration_id;
    int64_t max_position;
    int32_t slot_index;
    int32_t max_payload;
    int32_t max_message;
    int32_t exclusive;
    int32_t metered;    /* each message takes an ordinal (ps_pub_admit.c) */
    int32_t single_max; /* max_payload; metered: -1, so that nothing takes the short way */
    _Atomic int32_t closed;
    /* The account of refusals: since when this publisher is refused (0: it is not), and how many
     * times before the sender had bound a cause. */
    _Atomic int64_t refused_since_ns;
    _Atomic int64_t refused_early;
    const int64_t *clock_ns; /* the simulator's; NULL: CLOCK_MONOTONIC */
    /* Exclusive: where the next frame goes; owned by the one publishing thread. */
    int32_t term_count;
    int32_t term_id;
    int32_t term_offset;
    int32_t zeroed_to; /* sealed logs: zero from term_offset to here, if that is ahead */
    int64_t ordinal;
};

/* Reserved space of one or more frames. */
typedef struct ps_space {
    int64_t position; /* of the first byte */
    int32_t offset;   /* in the term */
    int32_t term_id;
    uint8_t *at;
} ps_space_t;

/* Reads from a list of pieces in order. */
typedef struct ps_cursor {
    const ps_iov_t *piece;
    size_t used; /* bytes of *piece already taken */
} ps_cursor_t;

enum { PS_COPY_BLOCK = 32, PS_COPY_BLOCKS_MAX = 256 };

/* Small payloads of whole blocks are copied without a call. */
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

/* Measures episodes of refusals by *now_ns, not by the host's clock.  Before the first offer. */
void ps_pub_set_clock(ps_pub_t *pub, const int64_t *now_ns);
/* Counts a refusal; returns code. */
int64_t ps_pub_refused(ps_pub_t *pub, int32_t cause, int64_t code);
/* The first message accepted after a refusal. */
void ps_pub_accepted(ps_pub_t *pub);

/* 0 when offers are possible at all, else the code. */
static inline int64_t ps_pub_gate(ps_pub_t *pub)
{
    if (ps_client_forked(pub->client)) {
        return ps_client_fail_forked();
    }
    if (PS_UNLIKELY(atomic_load_explicit(&pub->closed, memory_order_relaxed))) {
        return PS_CLOSED;
    }
    if (PS_UNLIKELY(atomic_load_explicit(&pub->client->daemon_away, memory_order_relaxed))) {
        return ps_pub_refused(pub, PS_CAUSE_DAEMON_AWAY, PS_DAEMON_AWAY);
    }
    return 0;
}

/* After a commit: the sender must come to look, unless it looks by itself.  A store (commit) that
 * must not pass a load (dirty): while the stream is hot, the sender makes us take the barrier when
 * it ends that (docs/decisions/0020), so the compiler alone must be told; else we fence. */
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

/* Counts committed messages. */
static inline void ps_pub_count(ps_pub_t *pub, int64_t messages)
{
    if (PS_UNLIKELY(atomic_load_explicit(&pub->refused_since_ns, memory_order_relaxed) != 0)) {
        ps_pub_accepted(pub);
    }
    if (pub->exclusive) {
        pub->ordinal += messages;
        atomic_store_explicit(&pub->slot->published_ordinal, pub->ordinal, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&pub->slot->published_ordinal, messages, memory_order_relaxed);
    }
}

/* Why position may not be published at: precedence of docs/spec/rules.md section 5. */
int64_t ps_pub_refuse(ps_pub_t *pub, int64_t position);
/* Bytes that may be reserved as one run at the end of the stream: room in the term and *budget, how
 * far below the limit a message may begin.  Returns 0 or a code. */
int64_t ps_pub_check_offer(ps_pub_t *pub, int64_t *position, int32_t *room, int64_t *budget);
/* Takes `required` (aligned) bytes below the limit: 0, or a code (term rotated: ADMIN_ACTION). */
int64_t ps_pub_reserve(ps_pub_t *pub, int32_t required, ps_space_t *space);
/* One message; does not mark dirty.  Returns the position after it or a code. */
int64_t ps_pub_publish(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                       int64_t reserved_value);
/* The same of a message whose ordinal is taken already, and of one whose ordinal is not. */
int64_t ps_pub_publish_admitted(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                                int64_t reserved_value);
int64_t ps_pub_publish_metered(ps_pub_t *pub, const ps_iov_t *pieces, int64_t length,
                               int64_t reserved_value);
/* Metered streams: takes up to `wanted` (> 0) ordinals: how many, or a code. */
int64_t ps_pub_take(ps_pub_t *pub, int64_t wanted, uint32_t *epoch);
/* Returns ordinals whose messages were not published. */
void ps_pub_untake(ps_pub_t *pub, int64_t count, uint32_t epoch);
/* PS_E_TOO_LONG with its text. */
int64_t ps_pub_fail_length(const ps_pub_t *pub, int64_t length, int32_t limit);
/* PS_E_UNBLOCKED: counts it in the client's slot. */
int64_t ps_pub_fail_unblocked(const ps_pub_t *pub, int64_t position);

/* In a sealed log: what lies at offset of this publisher's term (the term's end: of the next) is no
 * frame.  To be called before a frame that ends there can be seen. */
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

/* Claims a zero word for this client: false when the daemon padded over it. */
static inline bool ps_pub_claim(const ps_pub_t *pub, uint8_t *at, int32_t frame_length)
{
    _Atomic uint64_t *word = ps_frame_word((ps_frame_t *)(void *)at);
    const uint64_t claimed = ps_pub_claim_word(pub, frame_length);
    if (pub->exclusive) {
        atomic_store_explicit(word, claimed, memory_order_release);
        return true;
    }
    uint64_t expected = 0;
    return atomic_compare_exchange_strong_explicit(word, &expected, claimed, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* Turns a claim of `claimed` bytes into a complete frame. */
static inline bool ps_pub_settle(const ps_pub_t *pub, uint8_t *at, int32_t claimed,
                                 int32_t frame_length, uint8_t flags, uint16_t type)
{
    uint64_t expected = ps_pub_claim_word(pub, claimed);
    return atomic_compare_exchange_strong_explicit(
        ps_frame_word((ps_frame_t *)(void *)at), &expected,
        ps_frame_word_of(frame_length, flags, type), memory_order_acq_rel, memory_order_relaxed);
}

/* Header fields behind the first word. */
static inline void ps_pub_header(const ps_pub_t *pub, const ps_space_t *space, int32_t ahead,
                                 int64_t reserved_value)
{
    ps_frame_t *frame = (ps_frame_t *)(void *)(space->at + ahead);
    ps_frame_fields(frame, space->offset + ahead, pub->log.session_id, pub->log.stream_id,
                    space->term_id);
    ps_frame_reserved(frame, reserved_value);
}

#endif
