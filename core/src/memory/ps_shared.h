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
 *   | index rings      |          one per publication slot, then one per image slot
 *   +------------------+
 *
 * One writer per cache line; each line names it.  Everything another process wrote is checked
 * before use.  A slot is free when its id is 0; ids are release-stored last by the conductor.
 */
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
        ring_bytes, times_bytes;
    uint64_t dirty_offset, client_offset, publication_offset, image_offset, subscriber_offset,
        group_offset, ring_offset, times_offset, file_bytes;
} ps_shared_header_t;

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
    /* line: sender.  1 = asleep in epoll_wait: write its eventfd after making work (seq_cst
     * pair) */
    alignas(PS_LINE) _Atomic uint32_t sender_parked;
    /* line: receiver */
    alignas(PS_LINE) _Atomic uint32_t receiver_parked;
    /* line: governor (reserved) */
    alignas(PS_LINE) _Atomic uint32_t pressure_ppm;
    _Atomic int64_t pressure_ns;
    _Atomic int64_t retry_after_ns;
    _Atomic int64_t coalesce_ns;
    _Atomic int64_t status_interval_ns;
} ps_driver_slot_t;

/* In the upper half, where a client that knows nothing of it never writes. */
#define PS_WATCHED (UINT64_C(1) << 32)

typedef struct ps_client_slot {
    /* line group: conductor */
    alignas(PS_LINE) _Atomic int64_t id;
    int64_t pid;
    int64_t uid;
    uint64_t epoch;
    char name[96];
    /* line: everyone who wakes (fetch_add) */
    alignas(PS_LINE) _Atomic uint32_t futex_word;
    /* line: client.  Low half: threads asleep or about to sleep on futex_word.  PS_WATCHED: the
     * next wake-up is to be written to the client's eventfd; the waker that clears it writes.
     * One word, so that a waker looks once (seq_cst pair with futex_word). */
    alignas(PS_LINE) _Atomic uint64_t waiting;
    _Atomic uint64_t claims_lost; /* commits that found their frame unblocked */
} ps_client_slot_t;

/* The words of a ps_holder_t (ps_account.h). */
#define PS_HOLDER_WORDS 16

/* An entry of the sketch of culprits: blocked_ns is at most error_ns too much.  who: the first
 * words of a ps_holder_t. */
typedef struct ps_culprit {
    _Atomic int64_t
        id; /* receiver id or client id; 0: free, in the last entry all that are unknown */
    _Atomic int64_t blocked_ns;
    _Atomic int64_t error_ns;
    _Atomic uint64_t who[4];
} ps_culprit_t;

/* Why a publication is in the ready set: there is something to read, or only something to check
 * (a publisher waits for room, a reader made some).  Readers are woken for the first alone.  HOT is
 * the sender's: it checks the stream by itself, and need not be told (docs/decisions/0020). */
enum ps_dirty_flag { PS_DIRTY_NOT = 0, PS_DIRTY_DATA = 1, PS_DIRTY_CHECK = 2, PS_DIRTY_HOT = 3 };

typedef struct ps_publication_slot {
    /* line: conductor */
    alignas(PS_LINE) _Atomic int64_t id; /* registration id */
    int64_t client_id;                   /* first owner */
    int32_t session_id;
    int32_t stream_id;
    char strategy[PS_STRATEGY_BYTES]; /* flow control as the channel states it */
    /* line: publishers (any client) and sender.  dirty: ps_dirty_flag.  DATA and LOOK: in the ready
     * set; set with seq_cst exchange after a commit, then the bit in the bitmap; cleared by the
     * sender BEFORE it checks the log. */
    alignas(PS_LINE) _Atomic uint32_t dirty;
    _Atomic uint32_t want_room; /* a client sleeps until the limit moves */
    /* Sender.  1: publishers take an ordinal below ordinal_limit for each message.  Constant while
     * the publication exists; a daemon that does not know it leaves 0. */
    _Atomic uint32_t metered;
    _Atomic int64_t ordinal_limit;
    /* line: publishers */
    alignas(PS_LINE) _Atomic int64_t published_ordinal;
    _Atomic uint64_t spend; /* ps_spend.h; used by metered streams */
    /* lines: sender */
    alignas(PS_LINE) _Atomic int64_t sent_ordinal;
    _Atomic int64_t credit_limit;
    _Atomic int64_t rate_bytes_per_s;
    _Atomic int64_t tokens_bytes;
    _Atomic int64_t enqueued_ns;
    _Atomic int32_t base_priority;
    _Atomic int32_t effective_priority;
    _Atomic int64_t last_consumed_ns;
    /* consumers (spy, IPC) kick the sender when they release to or past this; INT64_MAX = no
     * need */
    alignas(PS_LINE) _Atomic int64_t wake_position;
    /* The account of time held (ps_account.c): consistent while the sequence is even and the same
     * before and after. */
    alignas(PS_LINE) _Atomic uint32_t account_sequence;
    _Atomic int32_t cause; /* ps_cause binding now */
    _Atomic int64_t cause_since_ns;
    _Atomic int64_t cause_culprit;
    _Atomic uint64_t holder[PS_HOLDER_WORDS]; /* of cause_culprit */
    _Atomic int32_t last_cause;               /* that bound, and since when */
    _Atomic int64_t last_cause_ns;            /* 0 never */
    _Atomic int64_t blocked_ns[PS_CAUSE_COUNT];
    ps_culprit_t culprits[PS_CULPRITS + 1];
    /* lines: publishers (any client, fetch_add).  The account of refusals: offers refused, by the
     * cause that bound then, and the time from a publisher's first refusal to its next success. */
    alignas(PS_LINE) _Atomic int64_t refused[PS_CAUSE_COUNT];
    _Atomic int64_t refused_ns;
    _Atomic int64_t refused_episodes;
    /* reserved: policy state */
    alignas(PS_LINE) _Atomic int64_t depth_bytes;
    _Atomic int64_t peak_bytes;
    _Atomic int32_t watermark_state;
    _Atomic int64_t episodes;
    _Atomic int64_t drained;
    _Atomic int64_t dropped_messages;
    _Atomic int64_t dropped_bytes;
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
    _Atomic int64_t lost_bytes;        /* in all gaps that ever opened */
    /* receiver: a subscriber that releases to or past this kicks the receiver if it is parked */
    alignas(PS_LINE) _Atomic int64_t wake_position;
} ps_image_slot_t;

typedef struct ps_subscriber_slot {
    alignas(PS_LINE) _Atomic int64_t id; /* conductor: subscription id */
    int64_t client_id;
    int32_t position_counter_id;
    alignas(PS_LINE) _Atomic int64_t delivered; /* client */
    _Atomic int64_t released;
    _Atomic int64_t gap_sequence_seen;
    alignas(PS_LINE) _Atomic uint32_t lagged; /* daemon */
    _Atomic int64_t skip_to;
    _Atomic int64_t gap_sequence;
} ps_subscriber_slot_t;

typedef struct ps_group_slot {
    alignas(PS_LINE) _Atomic int64_t id;
    _Atomic int64_t committed;
    _Atomic int64_t retained_from;
    _Atomic int64_t expiry_ms;
} ps_group_slot_t;

/* Index ring: written by the sender (publication) or receiver (image), newest at count - 1.
 * A reader copies entries, fences (acquire) and checks count again: those that are not among the
 * latest PS_INDEX_ENTRIES - 1 then may have been written over. */
typedef struct ps_index_entry {
    _Atomic int64_t position;
    _Atomic int64_t ordinal;
    _Atomic int64_t time_ns; /* epoch ns */
} ps_index_entry_t;
typedef struct ps_index_ring {
    alignas(PS_LINE) _Atomic uint64_t count;
    alignas(PS_LINE) ps_index_entry_t entries[PS_INDEX_ENTRIES];
} ps_index_ring_t;

/* One more entry.  Its one writer; constant time. */
static inline void ps_index_append(ps_index_ring_t *ring, int64_t position, int64_t ordinal,
                                   int64_t time_ns)
{
    const uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    ps_index_entry_t *entry = &ring->entries[count % PS_INDEX_ENTRIES];
    /* Release: a reader that meets these stores finds the latest count at least. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry->position, position, memory_order_relaxed);
    atomic_store_explicit(&entry->ordinal, ordinal, memory_order_relaxed);
    atomic_store_explicit(&entry->time_ns, time_ns, memory_order_relaxed);
    /* Release: a reader that sees the count sees the entry. */
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
    ps_index_ring_t *publication_rings;
    ps_index_ring_t *image_rings;
    ps_time_table_t *publication_times;
    ps_time_table_t *image_times;
    uint8_t *times_backed; /* of this process: the tables that have memory; images behind */
    int32_t n_clients, n_publications, n_images, n_subscribers, n_groups; /* trusted copies */
    int32_t read_only;
    _Atomic int32_t *watch_fds; /* by client slot: eventfd for PS_WATCHED, borrowed; -1: none */
    char path[4096];            /* of the file */
};

#endif
