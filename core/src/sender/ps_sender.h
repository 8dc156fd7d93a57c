/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender.h: the state of the sender agent, private to its files. Owner: the sender thread unless
 * stated otherwise.
 *
 * The unit of work is a dirty publication. A publisher sets a bit. The sender takes the bits, puts
 * each publication into the ready set at most once, and serves the set by bands (ps_bands.h). A
 * publication whose window is closed leaves the set, and returns when a status message opens the
 * window. A publication with due retransmits is also in the set of retransmits. Publications with
 * local readers (IPC, spies) are watched while a reader is behind. A scan finds due timers. The
 * scan runs at most once a millisecond, and only when the earliest timer is due. */
#ifndef PS_SENDER_H
#define PS_SENDER_H

#include "ps_bands.h"
#include "ps_governor.h"
#include "ps_publication.h"
#include "ps_send_endpoint.h"

enum {
    PS_TURN_DATAGRAMS = 64,     /* per send call */
    PS_TURN_BYTES = 128 * 1024, /* per turn of one publication, if no other publication waits */
    PS_TURNS_PER_CYCLE = 32,
    PS_SLOW_CYCLE_NS = 500 * 1000, /* if the cycles of a thread are this far apart, each cycle
                                    * serves all publications */
    PS_POLL_RATIO = 6,             /* cycles between polls while sending */
    PS_POLL_BYTES = 64 * 1024,     /* or after this number of sent bytes */
    PS_POLL_LIMIT = 64,            /* datagrams per socket and poll */
    PS_POLL_SLICE = 32,            /* endpoints per poll in addition to those that sent */
    PS_SCAN_SLICE = 512,           /* publications per cycle of the timer scan */
    PS_HOT_LIMIT = 128             /* largest number of publications that the sender checks in every
                                    * cycle */
};
#define PS_TICK_NS INT64_C(1000000)

/* A publication that had its turn, and the time since which it waits. */
typedef struct ps_sender_again {
    ps_publication_t *pub;
    int64_t since_ns;
    bool repair; /* the turn was one of retransmits */
} ps_sender_again_t;

struct ps_sender {
    const ps_context_t *context;
    ps_agent_t *agent;
    const ps_driver_params_t *params;
    ps_shared_t *shared;
    int64_t now_ns;                  /* of the running cycle */
    ps_publication_t **by_slot;      /* penstock.dat slot -> publication */
    ps_publication_t **publications; /* dense, any order */
    int64_t *due_ns;                 /* due time of each publication, in a separate array, so that a
                                      * scan reads few cache lines */
    int32_t capacity;
    int32_t publication_count;
    ps_publication_t **buckets; /* (endpoint, session, stream) -> publication, chained */
    uint32_t bucket_mask;
    ps_bands_t bands;
    int64_t turn_bytes; /* bound of the running turn */
    int64_t cycle_ns;   /* when the cycle began */
    bool slow;          /* 1: the previous cycle did not send all data and began PS_SLOW_CYCLE_NS
                         * earlier */
    int32_t again_count;
    ps_sender_again_t again[PS_TURNS_PER_CYCLE]; /* slow cycles: publications that had a turn and
                                                  * have more data */
    ps_governor_t governor;
    int64_t idle_since_ns;    /* time since which no publication is ready; -1: one is ready */
    int64_t idle_ns;          /* since the governor's last sample */
    int64_t thread_ns;        /* processor time of the thread at the last sample */
    int64_t busy_bytes;       /* number of bytes sent in cycles whose previous cycle also sent
                               * data */
    int64_t busy_ns;          /* the time of these cycles */
    int64_t busy_since_ns;    /* time at which the last cycle began, if it sent data; else -1 */
    int64_t largest_datagram; /* of all publications */
    ps_publication_t *watch_head;
    ps_publication_t *released_publications; /* publications whose PS_EV_RELEASED waits for room in
                                              * the ring */
    ps_send_endpoint_t *endpoints;           /* list */
    ps_send_endpoint_t *poll_cursor;
    ps_send_endpoint_t *released_endpoints;
    int32_t endpoint_count;
    int32_t cycles_since_poll;
    int64_t bytes_since_poll;
    int64_t polled_ns;
    int64_t poll_gap_ns; /* time between polls while no publication waits for a receiver */
    bool awaits_window;  /* 1: a publication has waited for a window since a poll last found a
                          * datagram */
    int64_t scan_started_ns;
    int64_t min_due_ns;   /* no timer before this */
    int64_t scan_min_ns;  /* earliest time that the running scan has found */
    int32_t scan_index;   /* -1: no scan running */
    bool urgent;          /* 1: scan the timers now, without waiting for the next tick */
    int32_t paused_count; /* publications whose state is PS_WATERMARK_PAUSED */
    bool barriers;        /* 1: ps_barrier_run works, so streams may be hot */
    ps_publication_t *hot[PS_HOT_LIMIT];
    int32_t hot_count;
};

/* ---- ps_sender_hot.c ------------------------------------------------------------------------- */

/* Call after a publication was found in the bitmap and its flag was cleared. Makes the stream hot
 * if it is busy enough. */
void ps_sender_note_dirty(ps_sender_t *sender, ps_publication_t *publication);
/* Checks the hot publications for new data; those without data are no longer hot. Returns the
 * number with new data. */
int32_t ps_sender_check_hot(ps_sender_t *sender);
/* Removes a publication from the set of hot publications, before its release. */
void ps_sender_leave_hot(ps_sender_t *sender, ps_publication_t *publication);

/* ---- ps_sender_governor.c -------------------------------------------------------------------- */

/* Takes a sample of pressure, stores the word, and resumes publications that were withheld. Bound:
 * the publications, when a step of the governor begins or ends. */
void ps_sender_govern(ps_sender_t *sender);
/* Returns true if the governor withholds the publication's new data, and sets a timer for the time
 * at which data may leave. */
bool ps_sender_defers(ps_sender_t *sender, ps_publication_t *publication);
/* Like ps_sender_defers, but decides about one partial datagram. */
bool ps_sender_coalesces(ps_sender_t *sender, ps_publication_t *publication);

/* ---- ps_sender_schedule.c -------------------------------------------------------------------- */

/* Adds a publication to the ready set, in the band of its priority, unless it is in the set. */
void ps_sender_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Adds a publication with pending retransmits to their list, unless it is in the list. */
void ps_sender_ready_repair(ps_sender_t *sender, ps_publication_t *publication);
/* Removes a publication from the ready set and from the list of retransmits. */
void ps_sender_leave_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Reports released objects to the conductor while the ring has room. */
void ps_sender_emit_released(ps_sender_t *sender);
/* Watches a publication until its local readers have reached the producer. */
void ps_sender_watch(ps_sender_t *sender, ps_publication_t *publication);
/* Ends the watch of a publication. */
void ps_sender_leave_watch(ps_sender_t *sender, ps_publication_t *publication);
/* Records that a timer of a publication or an endpoint is due at due_ns. */
void ps_sender_due(ps_sender_t *sender, int64_t due_ns);
/* Makes all publications of endpoint ready, because they may be able to send now. */
void ps_sender_ready_endpoint(ps_sender_t *sender, const ps_send_endpoint_t *endpoint);
ps_publication_t *ps_sender_find(ps_sender_t *sender, const ps_send_endpoint_t *endpoint,
                                 int32_t session_id, int32_t stream_id);
/* Returns the head of the hash chain of a network publication. */
ps_publication_t **ps_sender_bucket(ps_sender_t *sender, const ps_publication_t *publication);
/* Processes a datagram that arrived at an endpoint (ps_sender_dispatch.c). */
void ps_sender_on_datagram(void *endpoint, const uint8_t *data, uint32_t length,
                           const ps_addr_t *from, int64_t rx_ns);

#endif
