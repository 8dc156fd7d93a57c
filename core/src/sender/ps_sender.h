/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender.h: the state of the sender agent, private to its files. Owner: the sender thread unless
 * stated otherwise.
 *
 * Publishers set the bit of a publication with new data in the dirty bitmap. The sender clears the
 * bits in the dirty bitmap, and puts each publication whose bit was set into the ready set. The
 * sender serves the ready set by bands (ps_bands.h). A publication whose window is closed leaves
 * the ready set, and returns when a status message opens the window. A publication with due
 * retransmits is also in the list of retransmits. The watch list contains the publications for
 * which a local reader (an IPC reader or spy) has not reached the producer position. The sender
 * scans the timers at most once a millisecond, and only when the earliest timer is due. The scan
 * skips each block of publications in which no timer is due. */
#ifndef PS_SENDER_H
#define PS_SENDER_H

#include "ps_bands.h"
#include "ps_governor.h"
#include "ps_publication.h"
#include "ps_send_endpoint.h"

enum {
    PS_TURN_DATAGRAMS = 64, /* per send call */
    PS_TURNS_PER_CYCLE = 32,
    PS_SLOW_CYCLE_NS = 500 * 1000, /* If at least this time passes between the end of a duty cycle
                                    * and the next one, the next cycle serves all ready
                                    * publications. */
    PS_POLL_RATIO = 6,             /* cycles between polls while sending */
    PS_POLL_BYTES = 64 * 1024, /* The sender also polls the sockets after it has sent this number of
                                * bytes. */
    PS_POLL_LIMIT = 64,        /* datagrams per socket and poll */
    PS_POLL_SLICE = 32,        /* One poll reads the sockets of this number of endpoints, and also
                                * the sockets of all endpoints that have sent data. */
    PS_SCAN_SLICE = 512,       /* Number of publications that the timer scan checks in one duty
                                * cycle. */
    PS_SCAN_BLOCK = 64,        /* Number of publications that share one entry of block_due_ns. */
    PS_HOT_LIMIT = 128         /* Largest number of hot publications (those that the sender checks
                                * in every duty cycle). */
};
#define PS_TICK_NS INT64_C(1000000)

/* A publication that had a turn in this duty cycle and has more data to send. The publication has
 * waited for its next turn since the time since_ns. */
typedef struct ps_sender_again {
    ps_publication_t *pub;
    int64_t since_ns;
    bool repair; /* true if the publication's turn was a turn of retransmits */
} ps_sender_again_t;

struct ps_sender {
    const ps_context_t *context;
    ps_agent_t *agent;
    const ps_driver_params_t *params;
    ps_shared_t *shared;
    int64_t now_ns;                  /* of the running cycle */
    ps_publication_t **by_slot;      /* penstock.dat slot -> publication */
    ps_publication_t **publications; /* dense, any order */
    int64_t *due_ns;                 /* Time at which each publication's next timer is due. The
                                      * times are in an array of their own, so that a scan reads few
                                      * cache lines. */
    int64_t *block_due_ns;           /* One time for each block of PS_SCAN_BLOCK entries of due_ns.
                                      * The scan skips the block until this time, because no timer
                                      * of the block is due earlier. */
    int32_t capacity;
    int32_t publication_count;
    ps_publication_t **buckets; /* (endpoint, session, stream) -> publication, chained */
    uint32_t bucket_mask;
    ps_bands_t bands;
    int64_t turn_bytes; /* bound of the running turn */
    int64_t cycle_ns;   /* when the cycle began */
    int64_t ended_ns;   /* When the last cycle ended. In the simulator a cycle takes no time. */
    int64_t delayed_ns; /* Time of the last cycle that began at least PS_SLOW_CYCLE_NS after the
                         * cycle before it although data waited. */
    bool slow;          /* True if the previous duty cycle left data unsent and ended at least
                         * PS_SLOW_CYCLE_NS before this cycle. */
    int32_t again_count;
    ps_sender_again_t again[PS_TURNS_PER_CYCLE]; /* In slow cycles: publications that had a turn and
                                                  * have more data to send. */
    ps_governor_t governor;
    int64_t idle_since_ns;    /* Time since which no publication has been ready to send; -1: a
                               * publication is ready. */
    int64_t idle_ns;          /* since the governor's last sample */
    int64_t thread_ns;        /* Processor time of the thread at the governor's last sample. */
    int64_t busy_bytes;       /* Number of bytes sent in busy duty cycles. A cycle is busy if the
                               * cycle before it also sent data. The sending rate is busy_bytes /
                               * busy_ns. */
    int64_t busy_ns;          /* the time of these cycles */
    int64_t busy_since_ns;    /* Time at which the last duty cycle began, if it sent data; otherwise
                               * -1. */
    int64_t largest_datagram; /* of all publications */
    ps_publication_t *watch_head;
    ps_publication_t *released_publications; /* Released publications whose event PS_EV_RELEASED did
                                              * not fit into the event ring. */
    ps_send_endpoint_t *endpoints;           /* list */
    ps_send_endpoint_t *poll_cursor;
    ps_send_endpoint_t *released_endpoints;
    int32_t endpoint_count;
    int32_t cycles_since_poll;
    int64_t bytes_since_poll;
    int64_t polled_ns;
    int64_t poll_gap_ns; /* Interval between polls of the sockets while no publication waits for a
                          * receiver. */
    bool awaits_window;  /* True if a publication waits for a receiver's window, and no poll has
                          * found a datagram since the wait began. */
    bool
        awaits_credit; /* True if a publication has sent all data and publishers have no credit, and
                          * no poll has found a datagram since then. */
    int64_t scan_started_ns;
    int64_t min_due_ns;  /* no timer before this */
    int64_t scan_min_ns; /* Earliest due time that the running scan has found so far. */
    int32_t scan_index;  /* -1: no scan running */
    bool urgent;         /* True if the timers must be scanned now, before the next tick. */
    bool sweeps; /* True if the next duty cycle reads the whole dirty bitmap, not only the words
                  * that dirty_words marks. A publisher may have set its bit in the bitmap and not
                  * yet the bit in dirty_words. */
    int32_t full_count;   /* endpoints whose socket is full */
    int32_t paused_count; /* publications whose state is PS_WATERMARK_PAUSED */
    bool barriers; /* True if ps_barrier_run works on this kernel. If false, no stream is hot,
                           * so the sender checks a stream only after a notification. */
    ps_publication_t *hot[PS_HOT_LIMIT];
    int32_t hot_count;
};

/* ---- ps_sender_hot.c ------------------------------------------------------------------------- */

/* Call this function after the sender has found a publication in the dirty bitmap and cleared the
 * publication's flag `dirty`. If the stream's publishers are busy enough, makes the stream hot: the
 * sender then checks the stream in every duty cycle. */
void ps_sender_note_dirty(ps_sender_t *sender, ps_publication_t *publication);
/* Checks all hot publications for new data. A publication without new data for some time stops
 * being hot. Returns the number of publications with new data. */
int32_t ps_sender_check_hot(ps_sender_t *sender);
/* Removes a publication from the set of hot publications, before the sender releases the
 * publication. */
void ps_sender_leave_hot(ps_sender_t *sender, ps_publication_t *publication);

/* ---- ps_sender_governor.c -------------------------------------------------------------------- */

/* Measures the pressure, stores it in penstock.dat, and resumes publications whose data the
 * governor delayed. If the governor begins or ends a delay of data in this call, the function
 * visits all publications. Otherwise the cost is constant. */
void ps_sender_govern(ps_sender_t *sender);
/* If the governor delays the publication's new data, returns true, and sets a timer for the end of
 * the delay. */
bool ps_sender_defers(ps_sender_t *sender, ps_publication_t *publication);
/* If the governor delays a datagram that is not full, returns true, and sets a timer for the end of
 * the delay. */
bool ps_sender_coalesces(ps_sender_t *sender, ps_publication_t *publication);

/* ---- ps_sender_full.c ------------------------------------------------------------------------ */

/* The socket refused a datagram in the turn of `entry`, which is in no list. `sent` is true if the
 * socket accepted other datagrams of this turn. No stream of the endpoint has a turn until
 * ps_sender_resume_held finds that the time for a further try has come. Visits all entries that
 * wait. */
void ps_sender_socket_is_full(ps_sender_t *sender, ps_send_endpoint_t *endpoint,
                              ps_band_entry_t *entry, bool sent);
/* Returns true if the publication's socket is full. The entry then waits for room. */
bool ps_sender_is_held(ps_publication_t *publication, ps_band_entry_t *entry);
/* Ends the wait of an entry, if any, before its publication is removed. */
void ps_sender_leave_held(ps_send_endpoint_t *endpoint, ps_band_entry_t *entry);
/* Notes that an entry, which is in no list any more, waits for the socket no longer. */
void ps_sender_release_held(ps_send_endpoint_t *endpoint, ps_band_entry_t *entry);
/* Returns the publication to which the entry belongs. */
ps_publication_t *ps_sender_publication_of(ps_band_entry_t *entry);

/* ---- ps_sender_resume.c ---------------------------------------------------------------------- */

/* If it is time, adds the streams that wait for the endpoint's socket to the ready set. Visits all
 * of them. */
void ps_sender_resume_held(ps_sender_t *sender, ps_send_endpoint_t *endpoint);

/* ---- ps_sender_schedule.c -------------------------------------------------------------------- */

/* Adds a publication to the ready set, in the band of its priority, unless the publication is
 * already there. */
void ps_sender_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Adds a publication with due retransmits to the list of retransmits, unless the publication is
 * already there. */
void ps_sender_ready_repair(ps_sender_t *sender, ps_publication_t *publication);
/* Removes a publication from the ready set and from the list of retransmits. */
void ps_sender_leave_ready(ps_sender_t *sender, ps_publication_t *publication);
/* Reports released objects to the conductor, as long as the event ring has room. */
void ps_sender_emit_released(ps_sender_t *sender);
/* Adds a publication to the watch list, where it stays until its local readers have reached the
 * producer position. */
void ps_sender_watch(ps_sender_t *sender, ps_publication_t *publication);
/* Removes a publication from the watch list. */
void ps_sender_leave_watch(ps_sender_t *sender, ps_publication_t *publication);
/* Records that a timer of a publication or an endpoint is due at due_ns. */
void ps_sender_due(ps_sender_t *sender, int64_t due_ns);
/* Sets the timer of a publication to due_ns, unless it is set to an earlier time. */
void ps_publication_due(ps_publication_t *publication, int64_t due_ns);
/* Adds all publications of an endpoint to the ready set, because the socket may accept data now. */
void ps_sender_ready_endpoint(ps_sender_t *sender, const ps_send_endpoint_t *endpoint);
ps_publication_t *ps_sender_find(ps_sender_t *sender, const ps_send_endpoint_t *endpoint,
                                 int32_t session_id, int32_t stream_id);
/* Returns the head of the hash chain for an endpoint, a session and a stream. The sender searches
 * this chain for the network publication. */
ps_publication_t **ps_sender_bucket(ps_sender_t *sender, const ps_publication_t *publication);
/* Processes a datagram that arrived at an endpoint (ps_sender_dispatch.c). */
void ps_sender_on_datagram(void *endpoint, const uint8_t *data, uint32_t length,
                           const ps_addr_t *from, int64_t rx_ns);

#endif
