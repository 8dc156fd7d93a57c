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
 * Each cache line has one writer; the comment at the first field of the line names this writer.
 * Before a daemon or client uses a value that another process wrote, it checks the value. A slot is
 * free if its id is 0. The conductor stores the id last, with release order. */
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

/* PS_DIRTY_WORDS: length of the array dirty_words. Each bit in dirty_words stands for one 64-bit
 * word of the dirty bitmap. If penstock.dat has at most PS_DIRTY_FEW publication slots, dirty_words
 * is not used: the sender reads the whole dirty bitmap. */
enum { PS_DIRTY_WORDS = 65536 / 64 / 64, PS_DIRTY_FEW = 8 * 64 };

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
    /* Cache line of the sender. 1: the sender sleeps in epoll_wait, so a thread that adds work must
     * write to the sender's eventfd. The sender and the threads that add work access the word
     * sender_parked in sequentially consistent order. */
    alignas(PS_LINE) _Atomic uint32_t sender_parked;
    /* line: receiver */
    alignas(PS_LINE) _Atomic uint32_t receiver_parked;
    /* Cache line of the sender. The latest sample of the governor: the pressure on this host, the
     * time of the sample, and the resulting delays. A process that reads a sample older than
     * PS_PRESSURE_STALE_NS must assume that there is no pressure. */
    alignas(PS_LINE) _Atomic uint32_t pressure_ppm;
    _Atomic int64_t pressure_ns;
    _Atomic int64_t retry_after_ns;
    _Atomic int64_t coalesce_ns;
    _Atomic int64_t status_interval_ns;
    /* Cache lines of the sender. Further values of the governor's latest sample, described at
     * ps_scheduler_view_t. */
    alignas(PS_LINE) _Atomic int32_t depth_ppm;
    _Atomic int32_t latency_ppm;
    _Atomic int32_t busy_ppm;
    _Atomic int32_t defers;
    _Atomic int32_t ready[PS_SCHEDULER_LISTS];
    _Atomic int64_t waits;
    _Atomic int64_t waited_ns;
    _Atomic int64_t deferrals;
    /* Cache lines of the publishers (any client) and the sender. Bit n of dirty_words is set when a
     * publisher has set a bit in word n of the dirty bitmap. A client of an earlier version sets no
     * bit in dirty_words. The sender therefore also reads the whole bitmap when its timers run, and
     * before it sleeps. */
    alignas(PS_LINE) _Atomic uint64_t dirty_words[PS_DIRTY_WORDS];
} ps_driver_slot_t;

/* Flag in the upper half of the word ps_client_slot_t.waiting. Clients of older versions never
 * write the upper half of this word. */
#define PS_WATCHED (UINT64_C(1) << 32)

/* Size of the array `spends`: the number of threads of one client that can take credits without
 * sharing an entry. */
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
    /* Cache line of the client. The low half of `waiting` is the number of threads that sleep on
     * futex_word or are about to sleep. If the flag PS_WATCHED is set, the next thread that wakes
     * the client clears the flag and writes to the client's eventfd. One word contains the number
     * and the flag, so a thread that wakes the client reads both with one load. To wake the client,
     * a thread first changes futex_word, then loads `waiting` in sequentially consistent order. */
    alignas(PS_LINE) _Atomic uint64_t waiting;
    _Atomic uint64_t claims_lost; /* Number of commits of this client that failed, because the
                                   * daemon had replaced the claim with padding. */
    /* Cache line of the client. Each entry of `spends` states the credits that a thread of the
     * client is about to take. The low half of an entry is the publication slot + 1, the high half
     * is the number of credits. The entry 0 means that the thread takes no credits. The thread
     * stores the entry before taking the credits, and clears the entry after claiming its frames.
     * While an entry is not 0, the sender does not count the credits in this entry as lost. */
    alignas(PS_LINE) _Atomic uint64_t spends[PS_CLIENT_SPENDS];
} ps_client_slot_t;

/* Flags for the limits that publishers of a stream must obey. The value 0 means that only the
 * publisher limit applies. PS_METERED_LEASES: a publisher may take several credits in advance
 * (ps_spend.h). PS_METERED_DEPTH: the stream also limits the number of unsent messages; if
 * this limit refuses an offer, the offer returns BACK_PRESSURED. */
enum ps_metered {
    PS_METERED_RATE = 1,
    PS_METERED_CREDITS = 2,
    PS_METERED_LEASES = 4,
    PS_METERED_DEPTH = 8
};

/* Size of the copy of a ps_holder_t (ps_account.h) in a publication slot, in 64-bit words. */
#define PS_HOLDER_WORDS 16

/* An entry of the list of culprits: a receiver or client, and the time for which this culprit
 * blocked the publication. The list of culprits is an estimate: blocked_ns exceeds the true time by
 * at most error_ns. `who` has the first words of the culprit's ps_holder_t. */
typedef struct ps_culprit {
    _Atomic int64_t id; /* Receiver id or client id; 0: the entry is free. The last entry of the
                         * list also has id 0. Its blocked_ns is the total time for which unknown
                         * culprits blocked the publication. */
    _Atomic int64_t blocked_ns;
    _Atomic int64_t error_ns;
    _Atomic uint64_t who[4];
} ps_culprit_t;

/* Reasons why a publication is in the sender's ready set. PS_DIRTY_DATA: the log has new frames, so
 * the sender also wakes readers. PS_DIRTY_CHECK: a publisher waits for room, or a reader has
 * released memory. PS_DIRTY_HOT: the sender checks this stream in every duty cycle, so publishers
 * need not notify the sender (docs/decisions/0020). */
enum ps_dirty_flag { PS_DIRTY_NOT = 0, PS_DIRTY_DATA = 1, PS_DIRTY_CHECK = 2, PS_DIRTY_HOT = 3 };

enum { PS_GRANTER_WORDS = 5 };

typedef struct ps_publication_slot {
    /* line: conductor */
    alignas(PS_LINE) _Atomic int64_t id; /* registration id */
    int64_t client_id;                   /* first owner */
    int32_t session_id;
    int32_t stream_id;
    char strategy[PS_STRATEGY_BYTES]; /* Name of the stream's flow control strategy, as written in
                                       * the channel URI. */
    /* Cache line of the publishers (any client) and the sender. The field `dirty` is a
     * ps_dirty_flag. If `dirty` is PS_DIRTY_DATA or PS_DIRTY_CHECK, the publication is in the ready
     * set, and the sender must serve it. After a commit, a publisher stores PS_DIRTY_DATA in
     * `dirty` with a sequentially consistent exchange. After this store, the publisher sets the
     * publication's bit in the dirty bitmap. The sender clears `dirty` before checking the log;
     * otherwise the sender could miss a commit. */
    alignas(PS_LINE) _Atomic uint32_t dirty;
    _Atomic uint32_t want_room; /* 1: a client sleeps until the publisher limit rises. */
    /* Written by the sender: flags of ps_metered. If a flag is set, a publisher may publish a
     * message only after it has taken an ordinal (message number) below ordinal_limit. The flag
     * PS_METERED_CREDITS is set while at least one receiver grants credits. */
    _Atomic uint32_t metered;
    _Atomic uint32_t never_throttle; /* 1: the governor never throttles this stream; constant while
                                      * the publication exists. */
    _Atomic int64_t ordinal_limit;   /* in counts of `spend` */
    /* Written by the sender: the publisher limit of a stream with credits. While a stream has
     * credits, the sender does not change the stream's counter pub-lmt. Every publisher soon
     * reaches the old value of pub-lmt, reads the flags in `metered`, and afterwards uses
     * credited_limit. */
    _Atomic int64_t credited_limit;
    /* line: publishers */
    alignas(PS_LINE) _Atomic int64_t published_ordinal;
    _Atomic uint64_t spend; /* ps_spend.h; used by metered streams */
    /* Written by the exclusive publisher of a stream with credits, or by the holder of the lease:
     * the credits that the publisher took in advance (ps_spend.h). */
    _Atomic uint64_t lease;
    /* On a shared stream: the thread that may take credits in advance, and its client; 0: none. A
     * thread names itself by a compare-and-swap. The sender removes a holder whose client has no
     * publication of the stream any more. */
    _Atomic uint64_t lease_holder;
    /* lines: sender */
    alignas(PS_LINE) _Atomic int64_t sent_ordinal;
    _Atomic int64_t credit_limit;   /* Message ordinal up to which the receivers have granted
                                     * credits; INT64_MAX: no receiver grants credits. */
    _Atomic int64_t credit_refused; /* Number of status messages whose credits were out of range or
                                     * too old, so that the sender ignored the credits. */
    _Atomic int64_t credit_base;    /* Difference between the message count in the word `spend` and
                                     * the ordinal of the next message; dropped messages have
                                     * ordinals, too. */
    _Atomic int64_t rate_bytes_per_s;
    _Atomic int64_t tokens_bytes;
    _Atomic int64_t enqueued_ns;
    _Atomic int32_t base_priority;
    _Atomic int32_t effective_priority;
    _Atomic int64_t last_consumed_ns;
    /* On IPC with credits: position up to which the sender has counted the messages. */
    alignas(PS_LINE) _Atomic int64_t counted_position;
    _Atomic int64_t counted_ordinal;
    /* Number of remote receivers that grant credits, and a filter of their ids
     * (ps_publication_await.c). If the daemon dies, the new daemon awaits these receivers. */
    _Atomic int64_t granter_count;
    _Atomic uint64_t granters[PS_GRANTER_WORDS];
    /* A client wakes the sender when the client's spy or IPC reader releases data up to
     * wake_position or beyond. INT64_MAX: never. */
    alignas(PS_LINE) _Atomic int64_t wake_position;
    /* The account of the time for which the publication was blocked (ps_account.c). To copy the
     * account, read account_sequence before and after the copy. The copy of the account is
     * consistent if both values of account_sequence are equal and even. */
    alignas(PS_LINE) _Atomic uint32_t account_sequence;
    _Atomic int32_t cause; /* ps_cause binding now */
    _Atomic int64_t cause_since_ns;
    _Atomic int64_t cause_culprit;
    _Atomic uint64_t holder[PS_HOLDER_WORDS]; /* of cause_culprit */
    _Atomic int32_t last_cause;               /* the last cause that bound */
    _Atomic int64_t last_cause_ns;            /* 0 never */
    _Atomic int64_t blocked_ns[PS_CAUSE_COUNT];
    ps_culprit_t culprits[PS_CULPRITS + 1];
    /* Cache lines of the publishers (any client, fetch_add). The account of refusals. `refused` has
     * the number of refused offers for each cause. `refused_ns` is the sum of the intervals from a
     * publisher's first refused offer to its next accepted offer. */
    alignas(PS_LINE) _Atomic int64_t refused[PS_CAUSE_COUNT];
    _Atomic int64_t refused_ns;
    _Atomic int64_t refused_episodes;
    _Atomic int64_t throttled; /* Number of offers that returned PS_THROTTLED. */
    /* Cache line of the policy word (ps_policy.h), which publishers and the sender change by atomic
     * read-modify-write operations */
    alignas(PS_LINE) _Atomic uint64_t policy_word;
    /* Cache line of the publishers (any client, fetch_add) */
    alignas(PS_LINE) _Atomic int64_t dropped_bytes;
    _Atomic int64_t failures;        /* under ps-policy=error */
    _Atomic int64_t dropped_storage; /* Number of messages that were dropped because no storage was
                                      * reserved. */
    _Atomic int64_t dropped_rate;    /* Number of dropped messages that exceeded the stream's rate.
                                      * Messages dropped because the log was full count neither in
                                      * dropped_storage nor in dropped_rate. */
    /* line: sender */
    alignas(PS_LINE) _Atomic int32_t policy; /* The stream's policy (ps_policy); constant while the
                                              * publication exists. */
    _Atomic int64_t retention_bytes;         /* Retention limit, constant while the publication
                                              * exists. Readers do not get data that is more than
                                              * this number of bytes behind the newest data; 0: no
                                              * limit. */
    _Atomic int64_t retention_ns;            /* Retention limit, constant while the publication
                                              * exists. Readers do not get data older than this; 0:
                                              * no limit. */
    _Atomic int64_t dropped_stated;          /* Number of dropped messages that padding frames in
                                              * the log have reported, modulo 2^48 (ps_policy.h). */
    _Atomic int64_t deferrals;               /* Number of times that the governor delayed data of
                                              * this stream. */
    _Atomic int64_t waits;                   /* Number of times that the stream had to wait for
                                              * other streams before the sender served it. */
    _Atomic int64_t waited_ns;               /* total time of these waits */
    /* Cache line of the sender: the fill level of the log. The sender changes watermark_state,
     * `episodes`, `drained` and the pressed_ times between two increments of account_sequence. */
    /* Number of unsent bytes (on IPC: unread bytes) when the sender last served the stream. */
    alignas(PS_LINE) _Atomic int64_t depth_bytes;
    _Atomic int64_t peak_bytes;       /* largest value of depth_bytes */
    _Atomic int32_t watermark_state;  /* ps_watermark */
    _Atomic int64_t episodes;         /* Number of times that the unsent data reached the configured
                                       * depth. */
    _Atomic int64_t drained;          /* Number of messages sent (on IPC: read) during episodes of
                                       * pressure. An episode begins when the unsent data reaches
                                       * the configured depth, and ends at the low watermark. */
    _Atomic int64_t pressed_since_ns; /* Time at which the unsent data reached the configured
                                       * depth; 0: the unsent data has since fallen to the low
                                       * watermark. */
    _Atomic int64_t pressed_ns;       /* sum of the ended episodes */
} ps_publication_slot_t;

typedef struct ps_image_slot {
    alignas(PS_LINE) _Atomic int64_t id; /* conductor: correlation id */
    int64_t join_position;
    int64_t join_ordinal; /* -1 unknown */
    int32_t session_id;
    int32_t stream_id;
    _Atomic int64_t retention_bytes; /* retention limit of the publication (as in
                                      * ps_publication_slot_t), which the session's SETUP stated */
    _Atomic int64_t retention_ns;
    /* Cache line of the receiver. `ordinal` is the number of messages from the stream's start up to
     * the receiver position; -1: unknown. */
    alignas(PS_LINE) _Atomic int64_t ordinal;
    _Atomic int32_t fill_ppm;
    _Atomic int32_t gaps;
    _Atomic int64_t window_bytes;
    _Atomic int64_t rtt_ns;
    _Atomic int64_t limiting_client;
    _Atomic int64_t congestion_window; /* bytes; 0: no such bound */
    _Atomic int64_t lost_bytes;        /* Number of bytes lost in all gaps since the image began. */
    /* Cache line of the receiver. When a subscriber releases data up to wake_position or beyond,
     * the subscriber's client wakes the receiver if the receiver sleeps. */
    alignas(PS_LINE) _Atomic int64_t wake_position;
} ps_image_slot_t;

typedef struct ps_subscriber_slot {
    alignas(PS_LINE) _Atomic int64_t id; /* conductor: subscription id */
    int64_t client_id;
    int32_t position_counter_id;
    alignas(PS_LINE) _Atomic int64_t delivered; /* client */
    _Atomic int64_t released;
    _Atomic int64_t skipped_messages; /* number of messages that an isolated reader skipped; gaps
                                       * with an unknown number of messages do not count */
    _Atomic int64_t skipped_bytes;    /* number of bytes in all gaps that an isolated reader
                                       * skipped */
    _Atomic int64_t credit_passed;    /* number of messages that the reader has polled since it
                                       * joined */
    _Atomic int64_t credit_returned;  /* number of polled messages whose credits the client has
                                       * returned */
    _Atomic int64_t credit_leaked;    /* number of polled messages whose credits are lost, because
                                       * the application dropped their credit handles without
                                       * release() */
    _Atomic int32_t relayed_to; /* for a relay: 1 + the slot of the publication on which the relay
                                 * publishes; 0: no such publication */
    _Atomic int32_t credit_in_order; /* 1: the reader returns a message's credit when it releases
                                      * the message, so that credit_returned is the number of
                                      * messages below `released` */
    /* Cache line of the client: what the reader skipped because the publication no longer retains
     * it (ps-retention). These messages and bytes count neither in skipped_messages nor in
     * skipped_bytes. */
    alignas(PS_LINE) _Atomic int64_t expired_messages; /* gaps in which the number of messages is
                                                        * unknown do not count */
    _Atomic int64_t expired_bytes;
    /* Cache line of this reader's agent (ps_isolation.h): the receiver if the reader reads an
     * image, otherwise the sender */
    alignas(PS_LINE) _Atomic uint32_t lagged; /* 1: the stream does not wait for this reader now */
    _Atomic int64_t skip_to;                  /* for an isolated reader: a position between two
                                               * messages, at or above `overwritten`, from which the
                                               * reader can continue */
    _Atomic int64_t join_ordinal;             /* number of the message at the reader's join
                                               * position as ps_ordinal_stated; 0: unknown */
    _Atomic int64_t overwritten;              /* for an isolated reader: the log may be overwritten
                                               * below this position; 0 for other readers */
    _Atomic int64_t late; /* for an isolated reader: the reader is late while it has not read up to
                           * this position (ps_isolation.h); the position is at most skip_to */
    _Atomic int64_t late_from; /* for a reader with a depth in messages: position of the oldest of
                                * the `depth` messages before `late`; 0: none */
    _Atomic int64_t skip_from; /* the same before skip_to */
    /* Cache line of this reader's agent (ps_credit.h): the receiver if the reader reads an image,
     * otherwise the sender */
    alignas(PS_LINE) _Atomic int64_t credits; /* N, 0: grants none */
    _Atomic int64_t credit_burst;
    _Atomic int64_t credit_base;    /* Ordinal of the first message after the reader's join; valid
                                     * if credit_epoch is not 0. */
    _Atomic int64_t credit_granted; /* Number of messages since the reader's join for which the
                                     * reader has granted credits. */
    _Atomic int64_t credit_final;   /* While the reader's credits are frozen: largest number of
                                     * messages that can have arrived since the reader's join when
                                     * the reader resumes; -1: unknown. */
    _Atomic int64_t credit_wake;    /* When credit_returned reaches this number, the client wakes
                                     * the agent. */
    _Atomic uint32_t credit_epoch;  /* 0: none yet */
    _Atomic int32_t credit_state;   /* ps_credit_state */
    _Atomic int64_t credit_arrived; /* Number of messages published since the reader's join, as far
                                     * as this host knows. */
} ps_subscriber_slot_t;

typedef struct ps_group_slot {
    alignas(PS_LINE) _Atomic int64_t id;
    _Atomic int64_t committed;
    _Atomic int64_t retained_from;
    _Atomic int64_t expiry_ms;
} ps_group_slot_t;

/* Index ring of a stream. The sender writes the index ring of a publication; the receiver writes
 * the index ring of an image. The newest entry has number count - 1. A reader of the ring copies
 * entries, executes an acquire fence, and reads `count` again. A copied entry is valid if its
 * number is one of the PS_INDEX_ENTRIES - 1 numbers below the second value of `count`. The writer
 * may have overwritten all older entries. */
#define PS_ORDINAL_UNKNOWN INT64_C(-1)
/* On IPC, the sender begins this count of messages when the first isolated reader joins. The first
 * ordinal is PS_ORDINAL_FIRST + 8 * (time of the join in ns). Ordinals of this count are negative.
 * Only the difference of two ordinals of the same count has a meaning. If two ordinals differ by
 * more than PS_ORDINAL_APART, they belong to different counts. Dropped messages also take ordinals,
 * so two ordinals can differ by more than the number of messages in the log. */
#define PS_ORDINAL_BASE  (INT64_MIN / 4)
#define PS_ORDINAL_FIRST (INT64_MIN / 8)
#define PS_ORDINAL_APART (INT64_C(1) << 28)

/* Encodes an ordinal so that 0 means unknown: an ordinal from 0 on is one higher. */
static inline int64_t ps_ordinal_stated(int64_t ordinal)
{
    return ordinal >= 0 ? ordinal + 1 : ordinal;
}

/* Decodes an ordinal; PS_ORDINAL_UNKNOWN. */
static inline int64_t ps_ordinal_read(int64_t stated)
{
    return stated > 0 ? stated - 1 : stated < 0 ? stated : PS_ORDINAL_UNKNOWN;
}

typedef struct ps_index_entry {
    _Atomic int64_t position;
    _Atomic int64_t ordinal; /* number of messages of the stream below `position` */
    _Atomic int64_t time_ns; /* epoch ns */
} ps_index_entry_t;
typedef struct ps_index_ring {
    alignas(PS_LINE) _Atomic uint64_t count;
    alignas(PS_LINE) ps_index_entry_t entries[PS_INDEX_ENTRIES];
} ps_index_ring_t;

/* The history of a stream: its index ring and its time table, which the agent of the stream writes.
 * A history occupies whole pages, so that its memory can be released without the memory of other
 * histories. */
enum { PS_HISTORY_PAGE = 4096 };
#define PS_HISTORY_USED ((sizeof(ps_index_ring_t)) + (sizeof(ps_time_table_t)))
typedef struct ps_history {
    ps_index_ring_t ring;
    ps_time_table_t times;
    uint8_t unused[PS_HISTORY_PAGE - PS_HISTORY_USED % PS_HISTORY_PAGE];
} ps_history_t;
_Static_assert(sizeof(ps_history_t) % PS_HISTORY_PAGE == 0, "whole pages");

/* Appends an entry to an index ring. Only the ring's writer may call this function, which takes
 * constant time. */
static inline void ps_index_append(ps_index_ring_t *ring, int64_t position, int64_t ordinal,
                                   int64_t time_ns)
{
    const uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    ps_index_entry_t *entry = &ring->entries[count % PS_INDEX_ENTRIES];
    /* Fence with release order: a reader that sees the stores of this entry also sees the earlier
     * store of `count`. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry->position, position, memory_order_relaxed);
    atomic_store_explicit(&entry->ordinal, ordinal, memory_order_relaxed);
    atomic_store_explicit(&entry->time_ns, time_ns, memory_order_relaxed);
    /* Store with release order: a reader that sees the new `count` also sees the new entry. */
    atomic_store_explicit(&ring->count, count + 1, memory_order_release);
}

/* Number of kinds of slots: length of an array with one entry for each kind. */
enum { PS_SLOT_KINDS = PS_SLOT_GROUP + 1 };

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
    /* One byte for each history; 1: this process knows that the memory of the history is reserved
     * (ps_shared.c). The bytes of the publications come first, then those of the images. */
    uint8_t *backing;
    int32_t n_clients, n_publications, n_images, n_subscribers, n_groups; /* trusted copies */
    int32_t read_only;
    int32_t free_from[PS_SLOT_KINDS]; /* Index: kind of slot. All slots of this kind with a number
                                       * below this value are in use. Owner: the conductor. */
    _Atomic int32_t *watch_fds;       /* Array by client slot: the eventfd that wakes the client if
                                 * PS_WATCHED is set; -1: none. The conductor owns the
                                 * descriptors. */
    char path[4096];                  /* of the file */
};

/* Sets the bit of a publication slot in the dirty bitmap, then the bit of the bitmap's word. The
 * sender first reads and clears the word's bit, then reads the word. A sender that finds the word's
 * bit set therefore also finds the publication's bit. */
static inline void ps_shared_set_dirty(const ps_shared_t *shared, int32_t slot)
{
    atomic_fetch_or_explicit(&shared->dirty[slot / 64], UINT64_C(1) << (slot % 64),
                             memory_order_seq_cst);
    if (shared->n_publications > PS_DIRTY_FEW) {
        atomic_fetch_or_explicit(&shared->driver->dirty_words[slot / 64 / 64],
                                 UINT64_C(1) << (slot / 64 % 64), memory_order_seq_cst);
    }
}

#endif
