/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image.h: an image, the receiver's copy of one session. An image contains a log, gaps, readers,
 * and the state of the frames that the receiver sends to the sender. The receiver agent owns all
 * fields, except those below a comment that names the conductor.
 *
 *   free_to           sm_position   min subscriber   rcv-pos      hwm      L + T/2
 *   -----|---------------|--------------|---------------|----gaps--|----------|
 *   may be written over                 '--- unread ----'
 */
#ifndef PS_IMAGE_H
#define PS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ps_congestion.h"
#include "ps_context.h"
#include "ps_credit.h"
#include "ps_error.h"
#include "ps_gaps.h"
#include "ps_isolation.h"
#include "ps_log.h"
#include "ps_nak_timer.h"
#include "ps_wire_nak_list.h"
#include "ps_net.h"
#include "ps_pressure_signal.h"
#include "ps_recv_endpoint.h"
#include "ps_reordering.h"
#include "ps_rtt.h"
#include "ps_shared.h"
#include "ps_tether.h"
#include "ps_timers.h"
#include "ps_wire.h"
#include "ps_wire_credit.h"

enum {
    PS_IMAGE_SUBSCRIBERS_MAX = 64,
    PS_IMAGE_NAKS_PER_CYCLE = 16,
    PS_IMAGE_NAK_RANGES_PER_CYCLE = 4 * PS_NAK_LIST_MAX,
    PS_IMAGE_LIST_TRIES = 3, /* After sending this number of NAK list frames for a gap, the receiver
                              * also requests the gap with a plain NAK. */
    PS_IMAGE_SCAN_FRAMES = 32768
};
#define PS_LOSS_EVENT_NS   INT64_C(100000000)
#define PS_SM_IDLE_NS      INT64_C(1000000000)
#define PS_SM_IDLE_GRID_NS INT64_C(250000000)
/* Number of bytes of storage that the conductor reserves for an image whose first data has arrived.
 * If only the SETUP of a session has arrived, the conductor reserves less. */
#define PS_STORAGE_AHEAD  (INT64_C(1) << 20)
#define PS_JOIN_HOLD_NONE INT64_MAX
#define PS_JOIN_HOLD_NS   INT64_C(5000000000)

/* States of an image (docs/spec/wire-format.md section 6).
 *
 *   ACTIVE --reason found--> ENDED --ps_image_drain--> DRAINING --read out, 5 SMs--> DRAINED
 *
 * In the state ENDED, the receiver tries to emit PS_EV_IMAGE_INACTIVE until the event ring has
 * room. In the state DRAINED, the receiver tries to emit PS_EV_IMAGE_DRAINED until the event ring
 * has room. */
enum ps_image_state {
    PS_IMAGE_ACTIVE = 0,
    PS_IMAGE_ENDED = 1,
    PS_IMAGE_DRAINING = 2,
    PS_IMAGE_DRAINED = 3
};

/* A connection: the path on which frames of this session arrive at one destination (socket) of the
 * endpoint. Only frames from the address in `source` change the state of a connection
 * (docs/trust.md). */
typedef struct ps_connection {
    ps_addr_t control;    /* where SMs and NAKs go */
    ps_addr_t source;     /* Address whose frames the receiver accepts. If the family of `source` is
                           * 0, the receiver accepts the source address of the next frame within the
                           * window. */
    int64_t activity_ns;  /* Time at which the receiver last accepted a frame or a SETUP from
                           * `source`. */
    int64_t furthest;     /* Highest end position of a frame from `source`; -1: no frame yet. */
    int64_t low_position; /* If the last frame from `source` was a heartbeat below the high-water
                           * mark: the position of this heartbeat. Otherwise -1. */
    int64_t eos_position; /* valid when eos */
    int64_t eos_since_ns; /* Time of the first heartbeat in an unbroken series of heartbeats with
                           * the EOS flag. */
    uint8_t established;
    uint8_t confirmed; /* 1: data or a heartbeat has arrived from `source`; 0: only a SETUP has
                        * arrived from `source`. */
    uint8_t eos;
    uint8_t eos_repeated; /* 1: `source` sent a second EOS heartbeat at least half a heartbeat
                           * interval after the first. */
    uint8_t eos_revoked;
    uint8_t stranger_seen;     /* 1: a frame from another address arrived while `source` was the
                                * accepted address. */
    uint8_t stranger_notified; /* 1: the receiver has emitted PS_EV_SECOND_SOURCE for the address in
                                * `stranger`. */
    ps_addr_t stranger;        /* The first address other than `source` from which frames of this
                                * session arrived; valid if stranger_seen is 1. */
} ps_connection_t;

/* Identity of the sender's daemon, from the SETUPs of the accepted source; all 0: the sender is not
 * penstock. */
typedef struct ps_peer {
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    uint32_t candidate; /* Capabilities in the latest SETUP; a further SETUP must confirm them
                         * before the receiver uses them. */
    int32_t checks;     /* Number of further SETUPs that the receiver may request to confirm
                         * `candidate`. */
    int32_t index;      /* Index in `connections`. From the source of this connection, the receiver
                         * requests the SETUPs that confirm `candidate`. */
    int64_t due_ns;     /* Earliest time at which the receiver may request the next SETUP. The
                         * receiver requests at most one SETUP a second. */
    uint8_t changed;    /* 1: the last two SETUPs stated capabilities that differ from those that
                         * the receiver uses. Both SETUPs may be forged, so the receiver continues
                         * to request SETUPs. */
    uint8_t unknown;    /* 1: the receiver has changed to a new source address, and no SETUP has
                         * arrived from this address. */
} ps_peer_t;

typedef struct ps_image_subscriber {
    _Atomic int64_t *position; /* Memory from which the receiver reads this subscriber's position.
                                * Usually this memory is `cell`. If the subscriber is lagged
                                * (ps_isolation.h), this memory is the image's field `leader`. */
    _Atomic int64_t *cell;     /* Value of the subscriber's position counter. The client writes the
                                * position counter, so the receiver checks each value. */
    int32_t position_counter_id;
    int32_t client_slot;
    int32_t slot; /* in penstock.dat */
    ps_tether_t tether;
    ps_isolation_t isolation;
    ps_pressure_reader_t reader; /* measured rate and cadence of this subscriber, for NAK-strength
                                  * control */
    ps_credit_reader_t credit;
    uint8_t event_pending; /* 1: the receiver must still emit PS_EV_SUBSCRIBER, because the event
                            * ring was full. */
} ps_image_subscriber_t;

/* Credits that the readers of this image grant to the publisher (ps_image_credit.c). */
typedef struct ps_image_credits {
    int32_t readers;  /* Number of subscribers of the image that grant credits. */
    bool joined;      /* True if a subscriber, with or without credits, has joined the image. */
    bool known;       /* True if `limit` is valid; the next status message then states this limit to
                       * the sender. */
    bool frozen;      /* a subscriber withholds its credits */
    bool asks;        /* True if the receiver has begun a credit epoch that the sender has not yet
                       * acknowledged. */
    bool settled;     /* True if the sender has confirmed that no message beyond `final` will arrive
                       * before the subscriber resumes. */
    bool outstanding; /* True if a subscriber has received messages and not yet returned their
                       * credits. */
    uint32_t epoch;
    uint32_t messages; /* Lowest number of credits that a subscriber of the image grants. The
                        * publisher can send at most this number of messages before this subscriber
                        * returns credits. */
    int64_t limit;     /* ordinals */
    int64_t released;  /* ordinals returned by that reader */
    int64_t stated;    /* Credit limit that the last status message advertised. */
    int64_t final;     /* ordinal, -1 not known */
    int64_t ask_ns;    /* Time at which the receiver next repeats the status message for a credit
                        * epoch that the sender has not acknowledged. */
    int64_t restate_ns;
    int64_t restate_ordinal;
    int32_t restates; /* Number of repetitions still to send of a status message that granted
                       * credits again; the message may be lost. */
} ps_image_credits_t;

/* The receiver and the conductor write to an image. Each group of fields begins a new cache line,
 * so that a store of one thread never invalidates a cache line of the other thread. The function
 * that creates an image aligns the struct to a cache line. */
struct ps_image {
    /* line: constant after the hand-over */
    ps_image_params_t params; /* Parameters with which the image was created. After the creation,
                               * the pointer log_path is not valid. The field peer_capabilities has
                               * the capabilities in the first SETUP. */
    const ps_context_t *context;
    ps_receiver_t *receiver;
    ps_log_t log;
    ps_image_slot_t *slot;
    ps_index_ring_t *ring;
    ps_time_table_t *times;
    _Atomic int64_t *high_water_cell;
    _Atomic int64_t *position_cell;
    _Atomic int64_t *naks_cell;
    _Atomic int64_t *congestion_rtt_cell, *congestion_window_cell; /* counters of type 10 */
    ps_gap_t *gap_storage;

    /* Cache lines of the receiver, which no other thread reads */
    alignas(PS_LINE) ps_recv_endpoint_t *endpoint; /* NULL after the endpoint's release */
    uint32_t peer_capabilities;                    /* Capabilities of the sender, from the SETUPs of
                                                    * the accepted source. */
    _Atomic int64_t dummy_cell;                    /* Memory to which the receiver writes in place
                                                    * of a counter that was not allocated. */

    /* rebuild */
    ps_gaps_t gaps;
    int64_t join_position;
    int64_t hwm;
    int64_t position; /* Position that the receiver last stored in the counter rcv-pos: the end of
                       * the contiguous data. */
    int64_t reserved_position;
    int64_t kept_position; /* The last command PS_RCMD_RELEASE_TERMS released all memory of the log
                            * except the positions [kept_position, released_to).
                            */
    int64_t released_to;   /* -1 nothing */
    int64_t free_to;       /* No reader needs data below free_to, so the receiver may write up to
                            * three terms above free_to. */
    int64_t lost_bytes;    /* not yet reported by PS_EV_LOSS */
    int32_t lost_gaps;     /* Number of gaps that the receiver has counted as lost and not yet
                            * reported with PS_EV_LOSS. A growing gap counts once. */
    int64_t loss_due_ns;
    int64_t nak_due_ns;    /* earliest gap timer, INT64_MAX none */
    int64_t lost_due_ns;   /* Earliest time at which the receiver counts a gap that is still open as
                            * lost; INT64_MAX: no gap is open. */
    int64_t front_from;    /* Start of the first gap at the receiver's last check of the gaps. */
    int64_t loss_position; /* Position at which the newest gap that counts as lost begins. */
    ps_nak_policy_t nak;
    ps_reordering_t reordering;
    uint64_t refused; /* Number of datagrams that the receiver dropped because the gap list was
                       * full. */
    int64_t ordinal;  /* Number of messages of the stream below ordinal_position; -1: unknown. */
    int64_t ordinal_position;
    int64_t index_position; /* Position that the newest entry of the index ring records. */
    int64_t index_ns;

    /* status */
    ps_congestion_t congestion;
    int32_t window;      /* Receiver window in bytes that the receiver computed last; sent_window is
                          * the window that the receiver advertised last. */
    int32_t sent_window; /* the last advertised window */
    int64_t
        window_share;    /* Largest window in bytes if ps-fanin divides the window; 0: ps-fanin does
                       * not divide the window. */
    int64_t sm_position; /* Position that the last status message stated. */
    int64_t consumption; /* Position of the slowest subscriber that limits the receiver window. This
                          * position never decreases, and is a multiple of the frame alignment. */
    int64_t fastest;     /* fastest subscriber */
    int64_t sm_due_ns;
    int64_t last_sm_ns;
    int64_t moved_ns;              /* Time at which the received position, or the subscribers'
                                    * consumption position, last moved forward. */
    int64_t moved_position;        /* + consumption at moved_ns */
    int64_t packet_ns;             /* time of the last accepted frame, for liveness */
    int64_t next_due_ns;           /* time of the earliest timer, except the timers of gaps */
    ps_timer_t timer;              /* the image's entry in the receiver's heap of timers, with the
                                    * time next_due_ns */
    ps_pressure_signal_t pressure; /* under NAK-strength control */
    uint32_t pressure_random;
    int64_t sent_seen;    /* The sender has sent data at least up to this position. The receiver may
                           * have dropped some of this data. */
    int64_t beyond_end;   /* End position of the last datagram that the receiver dropped because the
                           * datagram was too far ahead of the received data. */
    int32_t beyond_count; /* Number of datagrams in a row that were too far ahead of the received
                           * data, so that the receiver dropped them; the count stops at 2. */
    ps_rtt_t rtt;
    int64_t rtt_due_ns;    /* Time at which the receiver sends the next RTT request, if data
                            * arrives. */
    int64_t drain_ns;      /* when draining began */
    int64_t end_position;  /* End position of the stream; INT64_MAX until the sender has stated the
                            * end and all data up to the end has arrived. */
    int64_t error_due_ns;  /* Time at which the receiver sends the next ERR frame, if the
                            * application has rejected the image. */
    int64_t hold_since_ns; /* Time at which the receiver first saw that a subscriber joins
                            * (join_hold has a position); 0: no subscriber joins. */
    ps_connection_t connections[PS_RECV_DESTINATIONS_MAX];
    ps_peer_t peer;
    int64_t born_ns;
    int64_t foreign; /* dropped datagrams of other sources */
    ps_image_credits_t credits;
    ps_image_subscriber_t subscribers[PS_IMAGE_SUBSCRIBERS_MAX];
    int32_t n_subscribers;
    _Atomic int64_t leader; /* Position of the leading reader. For a lagged reader (ps_isolation.h),
                             * the receiver uses this position in place of the reader's own
                             * position. */
    int32_t n_isolated;     /* Number of isolated readers: subscribers for which the stream does not
                             * wait (ps_isolation.h). */
    int32_t index;          /* in the receiver's list; -1: it was removed */
    int32_t state;          /* ps_image_state */
    int32_t end_reason;     /* ps_image_end */
    int32_t half_open;      /* Until the image is established: handle of its session in the table of
                             * half-open sessions (ps_half_open.h); 0: none. */
    uint8_t hot;            /* in the hot list */
    uint8_t resting;        /* 1: the image is idle, so that the receiver only repeats the same
                             * status message (ps_image_rest.c) */
    uint32_t sm_length;     /* While the image rests: length of its status message; 0: not built. */
    uint8_t sm_bytes[160];
    uint8_t force_sm;
    uint8_t sm_postponed;      /* 1: the governor delays the status message that would report
                                * released data. */
    uint8_t established;       /* 1: the receiver has accepted a data frame or a heartbeat of this
                                * stream. */
    uint8_t established_taken; /* 1: PS_EV_IMAGE_ESTABLISHED was emitted */
    uint8_t storage_binds;     /* 1: scarcity of reserved storage limits the receiver window */
    uint8_t sent_bound;        /* 1: the last status message advertised a reduced window, because
                                * little storage was reserved. */
    uint8_t new_loss;
    uint8_t gating; /* 1: a subscriber limits the window */
    /* The slowest subscriber with unread data, as two indexes in penstock.dat: limiting_slot is the
     * slot of its client, limiting_subscriber is its own slot; -1: no subscriber. */
    int32_t limiting_slot;
    int32_t limiting_subscriber;
    uint8_t ending; /* 1: the sender has stated the end of the stream, and has sent no data beyond
                     * that end. */
    uint8_t revoked;
    uint8_t rejected;
    uint8_t event_taken;      /* 1: the receiver has emitted the event for the present state
                               * (PS_EV_IMAGE_INACTIVE or PS_EV_IMAGE_DRAINED). */
    uint8_t term_event_taken; /* 1: the receiver has emitted PS_EV_TERM_NEEDED, and
                               * reserved_position has not moved since. */
    uint8_t release_pending;  /* 1: the receiver must still emit PS_EV_TERMS_RELEASED, because the
                               * event ring was full. */
    uint8_t started;          /* 1: the receiver has set the timers of this image, in the image's
                               * first duty cycle. */
    uint8_t wake;             /* 1: the receiver wakes the clients of this image at the end of this
                               * duty cycle. */
    char reject_text[128];

    /* Cache line of the receiver, which the conductor reads */
    alignas(PS_LINE) _Atomic int64_t shown_slowest;
    _Atomic int64_t shown_end;
    _Atomic int32_t shown_gaps;
    _Atomic int32_t shown_subscribers;
    _Atomic int64_t shown_pressure; /* PRESSURE frames sent */
    _Atomic int64_t shown_foreign;
    struct { /* ps_congestion_view_t, of PS_CC_CUSTOM */
        _Atomic int64_t window, received, consumed, granted, losses, missing, rtt_ns, least_rtt_ns;
    } shown_congestion;
    /* Cache line of the conductor; the receiver reads join_hold */
    /* While a subscriber joins, the receiver releases no memory at or above the position
     * join_hold. PS_JOIN_HOLD_NONE: no subscriber joins. */
    alignas(PS_LINE) _Atomic int64_t join_hold;
    int32_t joined[PS_IMAGE_SUBSCRIBERS_MAX]; /* position counter ids */
    int32_t n_joined;
};

/* ---- receiver thread ------------------------------------------------------------------------- */

static inline int64_t ps_image_contiguous(const ps_image_t *image)
{
    return image->gaps.count > 0 ? image->gaps.items[0].from : image->hwm;
}
/* Processes a datagram that has passed ps_wire_check: DATA or PAD frames, or a heartbeat. Returns a
 * ps_wire_fault. */
int ps_image_on_data(ps_image_t *image, const ps_recv_destination_t *destination,
                     const ps_data_t *first, const uint8_t *data, uint32_t length,
                     const ps_addr_t *from, int64_t rx_ns);
/* Processes one buffer of datagrams of the same sender. The kernel has joined these datagrams.
 * Accepts datagrams, beginning with the first, as long as they continue the stream without a gap.
 * Returns the total length of the accepted datagrams in bytes. If the first datagram does not
 * continue the stream, returns 0; the caller must then pass the datagram to ps_image_on_data. */
uint32_t ps_image_on_run(ps_image_t *image, const ps_recv_destination_t *destination,
                         const uint8_t *data, uint32_t length, uint32_t segment,
                         const ps_addr_t *from, int64_t rx_ns);
/* Sets *out to the log memory into which the transport may receive the next bytes of the stream.
 * Returns false if the transport may not receive into the log now. The word at the high-water mark
 * stays zero until the receiver has checked the datagrams that the transport received behind the
 * mark. Readers stop at this zero word. */
bool ps_image_direct_range(const ps_image_t *image, ps_direct_range_t *out);
/* Checks datagrams that the transport received directly into the log. The first 8 bytes of the
 * first datagram are not in the log, but in first_word. Accepts all datagrams before the first
 * invalid datagram, and returns the total length of the accepted datagrams in bytes. The function
 * writes a zero word, which stops readers, behind the accepted datagrams. Before this write, the
 * function copies to *next_word the 8 bytes that the zero word replaces. */
uint32_t ps_image_on_direct(ps_image_t *image, const ps_recv_destination_t *destination,
                            const ps_direct_range_t *range, uint64_t first_word, uint32_t length,
                            uint32_t segment, const ps_addr_t *from, uint64_t *next_word);
/* Makes checked datagrams visible to readers; the datagrams are already in the log at the
 * high-water mark. */
void ps_image_reveal(ps_image_t *image, uint64_t first_word, uint32_t length, int32_t messages);
/* ps_image_source.c */

/* Processes a SETUP of the session. Returns a ps_wire_fault; PS_WIRE_BAD_FIELD if the SETUP
 * contradicts the image. */
int ps_image_on_setup(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_setup_t *setup, const ps_addr_t *from);
void ps_image_on_rttm(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_rttm_t *rttm, const ps_addr_t *from);
/* Returns true if the receiver accepts a frame from this address. The receiver always accepts the
 * source address that it follows. The receiver accepts another address in two cases: the followed
 * address was silent for the connection time-out, or has sent only a SETUP. */
bool ps_image_admits(const ps_image_t *image, int32_t index, const ps_addr_t *from);
/* Counts a datagram that was dropped because its source is not the address that the receiver
 * follows. */
void ps_image_count_foreign(ps_image_t *image, int32_t index, const ps_addr_t *from);
/* Records an accepted data frame or heartbeat, which shows that the stream reaches up to `end`.
 * After this call, the receiver follows the source address of this frame. */
void ps_image_touch(ps_image_t *image, const ps_recv_destination_t *destination,
                    const ps_addr_t *from, int64_t end);
/* Returns true if the connection is established and its source was heard within the connection
 * time-out. ps_image_has_path: such a connection exists, so a frame to the sender can leave. */
bool ps_image_connection_live(const ps_image_t *image, int32_t index, int64_t now_ns);
bool ps_image_has_path(const ps_image_t *image, int64_t now_ns);
/* Requests another SETUP if the sender's capabilities are not confirmed yet and the request is
 * due. */
void ps_image_source_tick(ps_image_t *image, int64_t now_ns);

/* ps_left_source.c */

/* Call this function when an image ends. Stores an entry in the endpoint (ps_recv_left_source_t)
 * for each source that is alive and has not stated the end of the stream. */
void ps_left_source_remember(const ps_image_t *image);
/* Returns true if a SETUP from this address may create an image. The previous image's source must
 * be unknown, have the same IP address, or have been silent for the connection time-out. */
bool ps_left_source_admits(const ps_recv_destination_t *destination, int32_t stream_id,
                           int32_t session_id, const ps_addr_t *from);

/* ps_image_end.c */

/* Processes a heartbeat with the EOS flag, which states the end of the stream. */
void ps_image_on_eos(ps_image_t *image, const ps_recv_destination_t *destination, int64_t position,
                     uint8_t flags);
/* Discards the end of the stream that a source had stated, because this source sends data beyond
 * the stated end. */
void ps_image_withdraw_end(ps_image_t *image, ps_connection_t *connection);
/* Processes a heartbeat below the high-water mark. A forged heartbeat may have raised the
 * high-water mark. After two such heartbeats in a row, the receiver therefore lowers the mark to
 * the second position. It does so only if the second position is not below the first one. */
void ps_image_on_low_heartbeat(ps_image_t *image, ps_connection_t *connection, int64_t position);
/* Ends the image if no data is missing and each source has sent two heartbeats that state the end
 * of the stream. */
void ps_image_check_end(ps_image_t *image);
void ps_image_end(ps_image_t *image, int32_t reason);
/* Returns the number of messages in the whole stream of an ended image; -1: unknown. */
static inline int64_t ps_image_end_ordinal(const ps_image_t *image)
{
    return image->ordinal_position == image->position ? image->ordinal : -1;
}

/* Copies the missing bytes of a checked datagram into the log. Returns true if any byte was new. */
bool ps_image_insert(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t position,
                     int32_t span, int32_t messages, int64_t rx_ns);
/* Lowers the high-water mark to `position`. The last gap must contain `position` and end at the old
 * high-water mark. */
void ps_image_lower_hwm(ps_image_t *image, int64_t position);
/* Raises the high-water mark to `position` and records the range from the old to the new mark as a
 * gap. Returns false if the gap list is full. */
bool ps_image_raise_hwm(ps_image_t *image, int64_t position);
/* Counts the positions [from, to) as lost, for the loss report and for congestion control. */
void ps_image_count_loss(ps_image_t *image, int64_t from, int64_t to);
/* Counts the messages that were received up to rcv-pos; one call checks at most
 * PS_IMAGE_SCAN_FRAMES frames. */
void ps_image_count_messages(ps_image_t *image);
/* The receiver calls this function in each duty cycle, for each image in its list `hot`. Updates
 * the gaps, rcv-pos and the consumption of the image, and sends status messages. Returns the amount
 * of work that the receiver did. Sets *stay to true if the image must stay in the list `hot`. */
int32_t ps_image_cycle(ps_image_t *image, int64_t now_ns, bool *stay);
/* Runs the timers. */
void ps_image_tick(ps_image_t *image, int64_t now_ns);
/* Records a datagram [position, end) that is too far ahead of the received data. Too far ahead
 * means: the log has no room for the datagram, or the sender can no longer retransmit the missing
 * data before it. A single datagram too far ahead may be forged. After several such datagrams in a
 * row, the receiver assumes that the sender has sent all data up to `end`. The image ends
 * (PS_END_OUTRUN) if the sender can no longer retransmit the first missing byte. */
void ps_image_on_beyond(ps_image_t *image, int64_t position, int64_t end);
/* Records a heartbeat of a sender under NAK-strength control: the sender has sent all data up to
 * position. */
void ps_image_on_stated(ps_image_t *image, int64_t position);
/* If the receiver dropped data because the log had no room, requests the part of this data for
 * which the log now has room. */
void ps_image_catch_up(ps_image_t *image);
/* Stores the measured rate of the readers in the endpoint. The session's next image begins with
 * this rate. */
void ps_image_remember(const ps_image_t *image);
ps_pressure_learned_t ps_image_recall(const ps_image_t *image);
/* PRESSURE frames describe the backlog of one reader: the slowest reader that limits the stream and
 * is not paused. Returns this reader. NULL: no reader. */
const ps_pressure_reader_t *ps_image_signalled_reader(const ps_image_t *image, int64_t now_ns);
/* Returns true if subscribers have released so much data that the receiver must send a status
 * message. */
bool ps_image_release_due(const ps_image_t *image);
/* Sends NAKs for the gaps that are due; with reliable=false, writes padding into these gaps
 * instead. Sets nak_due_ns. */
int32_t ps_image_request(ps_image_t *image, int64_t now_ns);
void ps_image_consumption(ps_image_t *image);
/* Returns the position that a subscriber has consumed. The client writes the position, so the
 * function clips it to the possible range. */
int64_t ps_image_position_of(const ps_image_t *image, const ps_image_subscriber_t *subscriber);
void ps_image_send_sm(ps_image_t *image, int64_t now_ns);
/* If image->window is larger than the reserved storage, reduces the window to the size of the
 * reserved storage and sets storage_binds. */
void ps_image_bound_window(ps_image_t *image);
/* Computes the window with the congestion control; returns true if a status message must leave
 * now. */
bool ps_image_update_window(ps_image_t *image, int64_t now_ns);
void ps_image_send_rttm(ps_image_t *image, int64_t now_ns);
/* Sends a PRESSURE frame with the fill level of the receive queue, if a frame is due (NAK-strength
 * control). */
int32_t ps_image_pressure(ps_image_t *image, int64_t now_ns);
static inline bool ps_image_wants_pressure(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 && image->endpoint != NULL &&
           image->state == PS_IMAGE_ACTIVE && image->gating != 0;
}
static inline bool ps_image_under_nak(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
}
/* Returns true if the receiver may send status messages rarely. A sender under NAK-strength control
 * needs only one status message for each eighth of a term, unless a congestion window requires
 * more. */
static inline bool ps_image_is_silent(const ps_image_t *image)
{
    return ps_image_under_nak(image) && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* Returns the position up to which the receiver accepts datagrams. Under NAK-strength control the
 * sender does not obey windows. The sender may send half a term more before a PRESSURE frame slows
 * it down. Under NAK-strength control, the receiver therefore accepts half a term more than
 * otherwise. */
static inline int64_t ps_image_edge(const ps_image_t *image)
{
    return ps_image_under_nak(image) ? image->consumption + image->log.term_length
                                     : image->sm_position + image->log.term_length / 2;
}
/* Releases the memory of the log that no reader needs any more. */
void ps_image_reclaim(ps_image_t *image);
/* Returns the position at which the receiver must stop writing: the lower of reserved_position (end
 * of the reserved storage) and free_to + three terms. The receiver zeroes the word behind the data,
 * so the result is low enough to leave room for this word. */
static inline int64_t ps_image_room(const ps_image_t *image)
{
    int64_t room = image->free_to + INT64_C(3) * image->log.term_length - PS_FRAME_ALIGNMENT;

    return room < image->reserved_position ? room : image->reserved_position;
}
/* Zeroes the first word at `position`, where data is missing, so that readers stop there. First
 * update the gap list or the high-water mark, then call this function, then make the data up to
 * `position` visible. */
void ps_image_seal(ps_image_t *image, int64_t position);
/* Requests more storage from the conductor if little is reserved beyond the received data. The
 * receiver emits at most one such request until the conductor has moved reserved_position. */
void ps_image_check_storage(ps_image_t *image);
/* Marks the image as established, after its first data frame or heartbeat was accepted. */
void ps_image_establish(ps_image_t *image);
/* Emits PS_EV_IMAGE_ESTABLISHED; returns false if the event ring is full. */
bool ps_image_report_established(ps_image_t *image);
/* Releases the memory of terms that the image does not use. In some cases the function releases
 * nothing: for example, while a subscriber joins. With or without a release, emits
 * PS_EV_TERMS_RELEASED as the answer to the conductor. */
void ps_image_on_release_terms(ps_image_t *image, int32_t least_terms);
void ps_image_report_released(ps_image_t *image, int64_t now_ns);
void ps_image_report_loss(ps_image_t *image, int64_t now_ns);
void ps_image_timer(ps_image_t *image, int64_t due_ns);
/* Returns the image of a timer that is in the receiver's heap. */
static inline ps_image_t *ps_image_of_timer(ps_timer_t *timer)
{
    return (ps_image_t *)(void *)((uint8_t *)timer - offsetof(ps_image_t, timer));
}
/* Returns the position at which a reader joins the image again, after a time in which the stream
 * did not wait for this reader. */
int64_t ps_image_rejoin_position(const ps_image_t *image);
void ps_image_send_error(ps_image_t *image, int64_t now_ns);
void ps_image_tether(ps_image_t *image, int64_t now_ns);
/* ps_image_rest.c */

/* Call this function after the image's timers have run. Sets `resting` to true if the receiver need
 * only repeat the image's last status message. */
void ps_image_check_rest(ps_image_t *image, int64_t now_ns);
/* Runs the timers of a resting image. Returns the time at which the caller must call again; 0: all
 * timers of the image must run again. */
int64_t ps_image_rest(ps_image_t *image, int64_t now_ns);
/* ps_image_credit.c */

/* Adds a reader to the image. The reader grants credits if params->credits is above 0. */
void ps_image_credit_join(ps_image_t *image, ps_image_subscriber_t *subscriber,
                          const ps_subscriber_params_t *params);
void ps_image_credit_leave(ps_image_t *image);
void ps_image_credit_change(ps_image_t *image, const ps_credit_change_t *change);
/* Returns true if a reader of the image grants credits. If false, the other ps_image_credit_
 * functions have no effect. */
static inline bool ps_image_has_credits(const ps_image_t *image)
{
    const ps_image_credits_t *credits = &image->credits;
    return credits->readers > 0 || credits->limit != 0 || image->params.credits > 0 ||
           credits->known || credits->outstanding;
}
/* Reads the number of credits that each reader has returned. Returns true if a status message must
 * leave now. Cost: one step for each reader, and up to PS_CREDIT_SCAN frames for each reader that
 * has just joined. */
bool ps_image_credit_step(ps_image_t *image, int64_t now_ns);
void ps_image_credit_fill(const ps_image_t *image, ps_trailer_t *trailer);
/* A timer calls this function. Repeats the status message that granted credits, as long as the
 * message may be lost. */
void ps_image_credit_tick(ps_image_t *image, int64_t now_ns);
/* Returns true if readers have returned enough credits that the receiver must send a new status
 * message. */
bool ps_image_credit_is_due(const ps_image_t *image);
/* Returns true if the sender supports credits and the receiver knows the number of the stream's
 * messages. */
bool ps_image_obeys_credits(const ps_image_t *image);
/* Processes a CREDIT frame, with which the sender acknowledges a credit epoch. */
void ps_image_on_credit(ps_image_t *image, const ps_recv_destination_t *destination,
                        const ps_credit_frame_t *frame, const ps_addr_t *from);

bool ps_image_emit(ps_image_t *image, ps_event_t *event);
/* Executes a command of the conductor that concerns an image. Returns false if the command is of
 * another type. */
bool ps_image_on_command(ps_receiver_t *receiver, const ps_command_t *command);
void ps_image_free(ps_image_t *image);

#endif
