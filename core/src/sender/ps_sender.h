/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender.h: inside of the sender agent: what its files share.  Everything here belongs to the
 * sender thread unless said otherwise.
 *
 * The unit of work is a dirty publication.  Publishers set a bit; the sender takes the bits, puts
 * each publication into the ready queue at most once, and serves the queue in turn.  A publication
 * whose window is shut leaves the queue; a status message that opens it puts it back.  Publications
 * with local readers (IPC, spies) are watched while a reader is behind.  Timers are found by a scan
 * that runs at most once a millisecond and only when the earliest of them is due.
 */
#ifndef PS_SENDER_H
#define PS_SENDER_H

#include "ps_publication.h"
#include "ps_send_endpoint.h"

enum {
    PS_TURN_DATAGRAMS = 64,     /* per send call */
    PS_TURN_BYTES = 128 * 1024, /* per turn of one publication */
    PS_TURNS_PER_CYCLE = 16,
    PS_POLL_RATIO = 6,         /* cycles between polls while sending */
    PS_POLL_BYTES = 64 * 1024, /* or after so much sent */
    PS_POLL_LIMIT = 64,        /* datagrams per socket and poll */
    PS_POLL_SLICE = 32,        /* endpoints per poll beside those that sent */
    PS_SCAN_SLICE = 512,       /* publications per cycle of the timer scan */
    PS_HOT_LIMIT = 128         /* publications that are checked without being told */
};
#define PS_TICK_NS INT64_C(1000000)

struct ps_sender {
    const ps_context_t *context;
    ps_agent_t *agent;
    const ps_driver_params_t *params;
    ps_shared_t *shared;
    int64_t now_ns;                  /* of the running cycle */
    ps_publication_t **by_slot;      /* penstock.dat slot -> publication */
    ps_publication_t **publications; /* dense, any order */
    int64_t *due_ns;                 /* of each: apart, so that a scan reads few lines */
    int32_t capacity;
    int32_t publication_count;
    ps_publication_t **buckets; /* (endpoint, session, stream) -> publication, chained */
    uint32_t bucket_mask;
    ps_publication_t *ready_head, *ready_tail;
    int32_t ready_count;
    ps_publication_t *watch_head;
    ps_publication_t *released_publications; /* PS_EV_RELEASED not yet taken by the ring */
    ps_send_endpoint_t *endpoints;           /* list */
    ps_send_endpoint_t *poll_cursor;
    ps_send_endpoint_t *released_endpoints;
    int32_t endpoint_count;
    int32_t cycles_since_poll;
    int64_t bytes_since_poll;
    int64_t polled_ns;
    int64_t poll_gap_ns; /* between polls while nothing is waited for */
    bool awaits_window;  /* since the last poll that found something */
    int64_t scan_started_ns;
    int64_t min_due_ns;  /* no timer before this */
    int64_t scan_min_ns; /* minimum found by the running scan */
    int32_t scan_index;  /* -1: no scan running */
    bool urgent;         /* scan now, whatever the tick */
    bool barriers;       /* streams may be hot: ps_barrier_run works */
    ps_publication_t *hot[PS_HOT_LIMIT];
    int32_t hot_count;
};

/* ---- ps_sender_hot.c ------------------------------------------------------------------------- */

/* A publication was found in the bitmap and its flag cleared: makes the stream hot when it is busy
 * enough. */
void ps_sender_note_dirty(ps_sender_t *sender, ps_publication_t *publication);
/* Checks the hot publications; cools those without news.  Returns how many had news. */
int32_t ps_sender_check_hot(ps_sender_t *sender);
/* No longer hot: before the object goes. */
void ps_sender_leave_hot(ps_sender_t *sender, ps_publication_t *publication);

/* Puts it at the end of the ready queue unless it is there. */
void ps_sender_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Takes it out of the ready queue, which is walked: for removal. */
/* Takes the first of the ready ones; there is one. */
ps_publication_t *ps_sender_pop_ready(ps_sender_t *sender);
/* Gives released objects to the conductor while the ring has room. */
void ps_sender_emit_released(ps_sender_t *sender);
void ps_sender_leave_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Watches it until its local readers are level with the producer. */
void ps_sender_watch(ps_sender_t *sender, ps_publication_t *publication);
/* No longer watched. */
void ps_sender_leave_watch(ps_sender_t *sender, ps_publication_t *publication);
/* A timer of publication or endpoint is due at due_ns. */
void ps_sender_due(ps_sender_t *sender, int64_t due_ns);
/* All publications of endpoint may be able to send now. */
void ps_sender_ready_endpoint(ps_sender_t *sender, const ps_send_endpoint_t *endpoint);
ps_publication_t *ps_sender_find(ps_sender_t *sender, const ps_send_endpoint_t *endpoint,
                                 int32_t session_id, int32_t stream_id);
/* Head of the chain that a network publication belongs to. */
ps_publication_t **ps_sender_bucket(ps_sender_t *sender, const ps_publication_t *publication);
/* One datagram that came in on an endpoint (ps_sender_dispatch.c). */
void ps_sender_on_datagram(void *endpoint, const uint8_t *data, uint32_t length,
                           const ps_addr_t *from, int64_t rx_ns);

#endif
