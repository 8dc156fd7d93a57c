/* SPDX-License-Identifier: Apache-2.0
 * ps_client_internal.h: what the files of the client share.
 */
#ifndef PS_CLIENT_INTERNAL_H
#define PS_CLIENT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"
#include "ps_clock.h"
#include "ps_counters.h"
#include "ps_error.h"
#include "ps_frame.h"
#include "ps_log.h"
#include "ps_shared.h"
#include "ps_wake.h"

#define PS_LIKELY(x)   __builtin_expect(!!(x), 1)
#define PS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Raised in the child of every fork; a handle remembers the value it was opened under. */
extern _Atomic uint32_t ps_fork_generation;

struct ps_client {
    ps_shared_t *shared;
    ps_cnc_t *cnc;
    int64_t client_id;
    int32_t slot;
    int32_t sender_wake_fd;
    int32_t receiver_wake_fd;
    uint32_t generation;
    int32_t counters;
    bool barriers; /* the sender's barriers reach us: no fence while a stream is hot */
    _Atomic int32_t daemon_away;
    _Atomic int64_t learned_ns; /* how long a sleep is likely to last */
    _Atomic uint64_t awaited;   /* ticket + 1 that ps_client_await waited for in vain */
};

static inline bool ps_client_forked(const ps_client_t *client)
{
    return PS_UNLIKELY(client->generation !=
                       atomic_load_explicit(&ps_fork_generation, memory_order_relaxed));
}

/* PS_E_FORKED with its text. */
int ps_client_fail_forked(void);
/* Writes 1 to an eventfd; a full or missing one is no failure. */
void ps_client_kick(int32_t fd);
/* Puts a publication into the sender's ready set and wakes the sender if it sleeps.  `dirty` is set
 * before the bitmap: the sender clears the bit, then dirty, then checks the log. */
void ps_client_mark_dirty(const ps_client_t *client, int32_t publication_slot);
/* The same where nothing was published: the sender checks positions and wakes no reader. */
void ps_client_request_to_check(const ps_client_t *client, int32_t publication_slot);

struct ps_img {
    ps_client_t *client;
    ps_log_t log;
    _Atomic int64_t *position_cell;   /* sub-pos: released */
    ps_subscriber_slot_t *subscriber; /* NULL: none */
    _Atomic int64_t *wake_position;   /* of the image or publication; NULL: none */
    int32_t publication_slot;         /* -1: network image */
    int64_t correlation_id;
    int64_t join_position;
    int64_t delivered;
    int64_t released;
    /* Logs that a publisher on this host writes: */
    int32_t short_polls; /* in a row that found little */
    int32_t behind;      /* the last poll found all that it may take */
    int32_t index;       /* in the subscription's list */
    int32_t stopped;     /* PS_E_CORRUPT once seen */
    /* Assembly. */
    uint8_t *buffer;
    int64_t capacity;
    int64_t used;
    int64_t max_message_bytes;
    int32_t assembling;
    int32_t redeliver; /* hand out `assembled` again */
    int32_t report_gaps;
    int64_t gap_from, gap_to; /* not yet taken; equal: none */
    int64_t gap_messages;     /* -1 not known */
    ps_message_t assembled;   /* position 0: none */
};

#endif
