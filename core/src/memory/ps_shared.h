/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_shared.h: layout of DIR/penstock.dat (docs/spec/shared-memory.md), native byte order.
 *
 *   +------------------+ 0        ps_shared_header_t (4096 bytes)
 *   | header           |
 *   +------------------+ 4096     ps_driver_slot_t (4096 bytes)
 *   | driver slot      |
 *   +------------------+          publications / 64 words: bit set = publication slot is dirty
 *   | dirty bitmap     |
 *   +------------------+          fixed-size slots, offsets in the header
 *   | client slots     |
 *   | publication slots|
 *   | image slots      |
 *   | subscriber slots |
 *   | group slots      |
 *   | histories        |          one per publication slot, then one per image slot; whole pages
 *   +------------------+
 *
 * Each cache line has one writer, named by its comment. A value that another process wrote is
 * checked before use. A slot is free when its id is 0; ids are release-stored last by the
 * conductor. */
#ifndef PS_SHARED_H
#define PS_SHARED_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_cause.h"
#include "ps_line.h"
#include "ps_slots.h"
#include "ps_times.h"

#define PS_SHARED_MAGIC  UINT64_C(0x4b434f54534e4550) /* "PENSTOCK" */
#define PS_INDEX_ENTRIES 256
#define PS_CULPRITS      8

typedef struct ps_shared_header {
    uint64_t magic; /* release-stored last */
    uint32_t version;
    uint32_t header_bytes;
    int32_t clients, publications, images, subscribers, groups, index_entries;
    uint32_t client_bytes, publication_bytes, image_bytes, subscriber_bytes, group_bytes,
        history_bytes;
    uint64_t dirty_offset, client_offset, publication_offset, image_offset, subscriber_offset,
        group_offset, history_offset, file_bytes;
} ps_shared_header_t;

#define PS_PRESSURE_STALE_NS INT64_C(500000000)
#define PS_RETRY_MOST_NS     INT64_C(1000000000)
#define PS_STATUS_MOST_NS    INT64_C(10000000)

typedef struct ps_driver_slot {
    /* line group: conductor */
    alignas(PS_LINE) _Atomic uint64_t epoch;
    uint64_t id;
    int64_t receiver_id_base;
    int64_t pid;
    int64_t start_ms;
    _Atomic int32_t state; /* ps_driver_state */
    _Atomic int64_t storage_budget_bytes;
    _Atomic int64_t storage_used_bytes;
    /* line: sender. 1: the sender sleeps in epoll_wait, so a thread that adds work must write the
     * sender's eventfd (seq_cst pair) */
    alignas(PS_LINE) _Atomic uint32_t sender_parked;
    /* line: receiver */
    alignas(PS_LINE) _Atomic uint32_t receiver_parked;
    /* line: sender. The governor's pressure, the time of the sample, and its effects; a sample
     * older than PS_PRESSURE_STALE_NS counts as 0. */
    alignas(PS_LINE) _Atomic uint32_t pressure_ppm;
    _Atomic int64_t pressure_ns;
    _Atomic int64_t retry_after_ns;
    _Atomic int64_t coalesce_ns;
    _Atomic int64_t status_interval_ns;
    /* line group: sender. The rest of the sample (ps_scheduler_view_t). */
    alignas(PS_LINE) _Atomic int32_t depth_ppm;
    _Atomic int32_t latency_ppm;
    _Atomic int32_t busy_ppm;
    _Atomic int32_t defers;
    _Atomic int32_t ready[PS_SCHEDULER_LISTS];
    _Atomic int64_t waits;
    _Atomic int64_t waited_ns;
    _Atomic int64_t deferrals;
} ps_driver_slot_t;

/* Bit in the upper half of the word, which older clients never write. */
#define PS_WATCHED (UINT64_C(1) << 32)

/* Number of a client's threads that can take credits at the same time; further threads share these
 * places. */
enum { PS_CLIENT_SPENDS = 8 };

typedef struct ps_client_slot {
    /* line group: conductor */
    alignas(PS_LINE) _Atomic int64_t id;
    int64_t pid;
    int64_t uid;
    uint64_t epoch;
    char name[96];
    /* line: every waker (fetch_add) */
    alignas(PS_LINE) _Atomic uint32_t futex_word;
    /* line: client. Low half: number of threads asleep or about to sleep on futex_word. PS_WATCHED:
     * the next waker clears the flag and writes the client's eventfd. Number and flag are in one
     * word, so that a waker needs one load (seq_cst pair with futex_word). */
    alignas(PS_LINE) _Atomic uint64_t waiting;
    _Atomic uint64_t claims_lost; /* number of commits that failed because the daemon had padded
                                   * over the claim */
    /* line: client. Credits that a thread of the client is about to take: publication slot + 1 in
     * the low half, the number of credits in the high half; 0: none. The thread stores the word
     * before it takes the credits, and clears it when its frames are claimed. While the word states
     * credits, the sender does not count them as lost. */
    alignas(PS_LINE) _Atomic uint64_t spends[PS_CLIENT_SPENDS];
} ps_client_slot_t;

/* Limits that publishers of a stream must obey. */
/* LEASES: an exclusive publisher may take credits ahead (ps_spend.h). */
enum ps_metered { PS_METERED_RATE = 1, PS_METERED_CREDITS = 2, PS_METERED_LEASES = 4 };

/* The words of a ps_holder_t (ps_account.h). */
#define PS_HOLDER_WORDS 16

/* An entry of the list of culprits: blocked_ns exceeds the true time by at most error_ns. who: the
 * first words of a ps_holder_t. */
typedef struct ps_culprit {
    _Atomic int64_t
        id; /* receiver id or client id; 0: free, or in the last entry all unknown culprits */
    _Atomic int64_t blocked_ns;
    _Atomic int64_t error_ns;
    _Atomic uint64_t who[4];
} ps_culprit_t;

/* Reasons for which a publication is in the ready set. DATA: there are new frames; the sender also
 * wakes readers. CHECK: a publisher waits for room, or a reader has released memory. HOT, set by
 * the sender: the sender checks the stream in every cycle, so publishers need not notify it
 * (docs/decisions/0020). */
enum ps_dirty_flag { PS_DIRTY_NOT = 0, PS_DIRTY_DATA = 1, PS_DIRTY_CHECK = 2, PS_DIRTY_HOT = 3 };

typedef struct ps_publication_slot {
    /* line: conductor */
    alignas(PS_LINE) _Atomic int64_t id; /* registration id */
    int64_t client_id;                   /* first owner */
    int32_t session_id;
    int32_t stream_id;
    char strategy[PS_STRATEGY_BYTES]; /* flow control, as the channel states it */
    /* line: publishers (any client) and sender. dirty: ps_dirty_flag. DATA and CHECK: the
     * publication is in the ready set. A publisher sets the flag with a seq_cst exchange after a
     * commit, then the bit in the bitmap. The sender clears the flag BEFORE it checks the log. */
    alignas(PS_LINE) _Atomic uint32_t dirty;
    _Atomic uint32_t want_room; /* 1: a client sleeps until the limit moves */
    /* Sender. ps_metered: publishers take an ordinal below ordinal_limit for each message. The bit
     * for credits is set when the first receiver grants credits, and cleared when the last one
     * stops. */
    _Atomic uint32_t metered;
    _Atomic uint32_t never_throttle; /* 1: the governor does not throttle this stream; constant */
    _Atomic int64_t ordinal_limit;   /* in counts of `spend` */
    /* Sender. The publisher limit while the stream has credits. The counter pub-lmt then does not
     * move, so that each publisher reaches it and detects the credits. */
    _Atomic int64_t credited_limit;
    /* line: publishers */
    alignas(PS_LINE) _Atomic int64_t published_ordinal;
    _Atomic uint64_t spend; /* ps_spend.h; used by metered streams */
    /* The exclusive publisher of a stream with credits: its lease (ps_spend.h), and 1 while it
     * publishes a message from it. */
    _Atomic uint64_t lease;
    _Atomic uint32_t spending;
    /* lines: sender */
    alignas(PS_LINE) _Atomic int64_t sent_ordinal;
    _Atomic int64_t credit_limit;   /* ordinal up to which receivers grant credits; INT64_MAX: no
                                     * receiver grants credits */
    _Atomic int64_t credit_refused; /* number of ignored credit statements of receivers, because
                                     * they were out of range or too old */
    _Atomic int64_t credit_base;    /* value that the count in `spend` has at ordinal 0 of the
                                     * stream */
    _Atomic int64_t rate_bytes_per_s;
    _Atomic int64_t tokens_bytes;
    _Atomic int64_t enqueued_ns;
    _Atomic int32_t base_priority;
    _Atomic int32_t effective_priority;
    _Atomic int64_t last_consumed_ns;
    /* IPC with credits: messages counted up to this position */
    alignas(PS_LINE) _Atomic int64_t counted_position;
    _Atomic int64_t counted_ordinal;
    /* a reader (spy, IPC) that releases to or past this position wakes the sender; INT64_MAX: no
     * reader does */
    alignas(PS_LINE) _Atomic int64_t wake_position;
    /* The account of time blocked (ps_account.c). A reader's copy is consistent if the sequence was
     * even before the copy and had the same value after the copy. */
    alignas(PS_LINE) _Atomic uint32_t account_sequence;
    _Atomic int32_t cause; /* ps_cause binding now */
    _Atomic int64_t cause_since_ns;
    _Atomic int64_t cause_culprit;
    _Atomic uint64_t holder[PS_HOLDER_WORDS]; /* of cause_culprit */
    _Atomic int32_t last_cause;               /* the last cause that bound */
    _Atomic int64_t last_cause_ns;            /* 0 never */
    _Atomic int64_t blocked_ns[PS_CAUSE_COUNT];
    ps_culprit_t culprits[PS_CULPRITS + 1];
    /* lines: publishers (any client, fetch_add). The account of refusals: number of refused offers
     * by the cause that blocked the stream, and the time from a publisher's first refusal to its
     * next success. */
    alignas(PS_LINE) _Atomic int64_t refused[PS_CAUSE_COUNT];
    _Atomic int64_t refused_ns;
    _Atomic int64_t refused_episodes;
    _Atomic int64_t throttled; /* number of offers that were answered PS_THROTTLED */
    /* line: publishers and sender (read-modify-write): ps_policy.h */
    alignas(PS_LINE) _Atomic uint64_t policy_word;
    /* line: publishers (any client, fetch_add) */
    alignas(PS_LINE) _Atomic int64_t dropped_bytes;
    _Atomic int64_t failures; /* under ps-policy=error */
    /* line: sender */
    alignas(PS_LINE) _Atomic int32_t policy; /* ps_policy; constant while the publication exists */
    _Atomic int64_t dropped_stated;          /* bytes of the messages counted in policy_word, modulo
                                              * 2^48 */
    _Atomic int64_t deferrals;               /* times that the governor withheld data */
    _Atomic int64_t waits;                   /* turns before which the stream waited with others */
    _Atomic int64_t waited_ns;               /* total time of these waits */
    /* line: sender.  State, times and episodes change under account_sequence. */
    alignas(PS_LINE) _Atomic int64_t depth_bytes; /* bytes by which publishers were ahead at the
                                                   * last turn */
    _Atomic int64_t peak_bytes;                   /* the most of it */
    _Atomic int32_t watermark_state;              /* ps_watermark */
    _Atomic int64_t episodes;                     /* number of times that the depth was reached */
    _Atomic int64_t drained;                      /* messages sent or read in these episodes */
    _Atomic int64_t pressed_since_ns;             /* time at which the depth was reached; 0: the log
                                                   * has since drained to the low watermark */
    _Atomic int64_t pressed_ns;                   /* sum of the ended episodes */
} ps_publication_slot_t;

typedef struct ps_image_slot {
    alignas(PS_LINE) _Atomic int64_t id; /* conductor: correlation id */
    int64_t join_position;
    int64_t join_ordinal; /* -1 unknown */
    int32_t session_id;
    int32_t stream_id;
    /* receiver: messages below rcv-pos since the stream's start; -1 unknown */
    alignas(PS_LINE) _Atomic int64_t ordinal;
    _Atomic int32_t fill_ppm;
    _Atomic int32_t gaps;
    _Atomic int64_t window_bytes;
    _Atomic int64_t rtt_ns;
    _Atomic int64_t limiting_client;
    _Atomic int64_t congestion_window; /* bytes; 0: no such bound */
    _Atomic int64_t lost_bytes;        /* bytes lost in all gaps since the image began */
    /* receiver: a subscriber that releases to or past this position wakes a parked receiver */
    alignas(PS_LINE) _Atomic int64_t wake_position;
} ps_image_slot_t;

typedef struct ps_subscriber_slot {
    alignas(PS_LINE) _Atomic int64_t id; /* conductor: subscription id */
    int64_t client_id;
    int32_t position_counter_id;
    alignas(PS_LINE) _Atomic int64_t delivered; /* client */
    _Atomic int64_t released;
    _Atomic int64_t gap_sequence_seen;
    _Atomic int64_t credit_passed;   /* number of messages that polls have passed since the join */
    _Atomic int64_t credit_returned; /* number of these messages whose credits were returned */
    _Atomic int64_t credit_leaked;   /* number of these messages whose credits were lost with their
                                      * handles */
    _Atomic int32_t relayed_to; /* for a relay: slot of the publication on which it publishes, + 1;
                                 * 0 none */
    _Atomic int32_t credit_in_order; /* 1: credit_returned counts the messages below `released` */
    /* line: the agent that the reader belongs to (ps_isolation.h) */
    alignas(PS_LINE) _Atomic uint32_t lagged; /* 1: the stream does not wait for this reader now */
    _Atomic int64_t skip_to;      /* a position between two messages, not below `overwritten` */
    _Atomic int64_t join_ordinal; /* of the join position, as in the index ring; 0: unknown */
    _Atomic int64_t overwritten;  /* memory below may be written over; 0 for other readers */
    /* line: the agent that the reader belongs to (ps_credit.h) */
    alignas(PS_LINE) _Atomic int64_t credits; /* N, 0: grants none */
    _Atomic int64_t credit_burst;
    _Atomic int64_t credit_base;    /* ordinal of the stream at the reader's join; valid if the
                                     * epoch is not 0 */
    _Atomic int64_t credit_granted; /* number of messages since the join for which credits are
                                     * granted */
    _Atomic int64_t credit_final;   /* number of messages since the join, -1: unknown */
    _Atomic int64_t credit_wake;    /* a client that has returned this number of credits wakes the
                                     * agent */
    _Atomic uint32_t credit_epoch;  /* 0: none yet */
    _Atomic int32_t credit_state;   /* ps_credit_state */
} ps_subscriber_slot_t;

typedef struct ps_group_slot {
    alignas(PS_LINE) _Atomic int64_t id;
    _Atomic int64_t committed;
    _Atomic int64_t retained_from;
    _Atomic int64_t expiry_ms;
} ps_group_slot_t;

/* Index ring: written by the sender (publication) or receiver (image), newest at count - 1.
 * A reader copies entries, executes an acquire fence, and reads count again. Copied entries that
 * are then not among the latest PS_INDEX_ENTRIES - 1 may have been overwritten. */
#define PS_ORDINAL_UNKNOWN INT64_C(-1)
/* On IPC the number of messages before the first isolated reader is unknown. The sender counts from
 * here then: such ordinals are negative, and only their differences have a meaning. */
#define PS_ORDINAL_BASE  (INT64_MIN / 4)
#define PS_ORDINAL_FIRST (INT64_MIN / 8)
typedef struct ps_index_entry {
    _Atomic int64_t position;
    _Atomic int64_t ordinal; /* number of messages below the position */
    _Atomic int64_t time_ns; /* epoch ns */
} ps_index_entry_t;
typedef struct ps_index_ring {
    alignas(PS_LINE) _Atomic uint64_t count;
    alignas(PS_LINE) ps_index_entry_t entries[PS_INDEX_ENTRIES];
} ps_index_ring_t;

/* The history of a stream, which its agent records. A history takes whole pages, so that the memory
 * of a freed slot can be released without that of its neighbours. */
enum { PS_HISTORY_PAGE = 4096 };
#define PS_HISTORY_USED ((sizeof(ps_index_ring_t)) + (sizeof(ps_time_table_t)))
typedef struct ps_history {
    ps_index_ring_t ring;
    ps_time_table_t times;
    uint8_t unused[PS_HISTORY_PAGE - PS_HISTORY_USED % PS_HISTORY_PAGE];
} ps_history_t;
_Static_assert(sizeof(ps_history_t) % PS_HISTORY_PAGE == 0, "whole pages");

/* Appends an entry. Only the ring's writer calls it; constant time. */
static inline void ps_index_append(ps_index_ring_t *ring, int64_t position, int64_t ordinal,
                                   int64_t time_ns)
{
    const uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    ps_index_entry_t *entry = &ring->entries[count % PS_INDEX_ENTRIES];
    /* Release order: a reader that sees these stores also sees the earlier store of the count. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry->position, position, memory_order_relaxed);
    atomic_store_explicit(&entry->ordinal, ordinal, memory_order_relaxed);
    atomic_store_explicit(&entry->time_ns, time_ns, memory_order_relaxed);
    /* Release order: a reader that sees the count also sees the entry. */
    atomic_store_explicit(&ring->count, count + 1, memory_order_release);
}

struct ps_shared {
    uint8_t *base;
    uint64_t length;
    ps_shared_header_t *header;
    ps_driver_slot_t *driver;
    _Atomic uint64_t *dirty;
    ps_client_slot_t *clients;
    ps_publication_slot_t *publications;
    ps_image_slot_t *images;
    ps_subscriber_slot_t *subscribers;
    ps_group_slot_t *groups;
    ps_history_t *publication_histories;
    ps_history_t *image_histories;
    uint8_t *backing; /* 1 for each history for which this process has reserved or found memory
                       * (ps_shared.c); publications, then images */
    int32_t n_clients, n_publications, n_images, n_subscribers, n_groups; /* trusted copies */
    int32_t read_only;
    _Atomic int32_t *watch_fds; /* by client slot: eventfd that a waker writes if PS_WATCHED is set;
                                 * borrowed; -1: none */
    char path[4096];            /* of the file */
};

#endif
