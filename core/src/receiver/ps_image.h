/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image.h: one session at the receiver: its log, its gaps, its readers, and the state of the
 * frames that it sends to the sender. Owner: the receiver agent, except the groups that name the
 * conductor.
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
    PS_IMAGE_LIST_TRIES = 3, /* after this number of NAK lists, a plain NAK also requests the first
                              * gap */
    PS_IMAGE_SCAN_FRAMES = 32768
};
#define PS_LOSS_EVENT_NS   INT64_C(100000000)
#define PS_SM_IDLE_NS      INT64_C(1000000000)
#define PS_SM_IDLE_GRID_NS INT64_C(250000000)
/* Bytes of storage reserved when a stream begins; the conductor reserves less for a session that
 * has sent only a SETUP. */
#define PS_STORAGE_AHEAD  (INT64_C(1) << 20)
#define PS_JOIN_HOLD_NONE INT64_MAX
#define PS_JOIN_HOLD_NS   INT64_C(5000000000)

/* Life of an image (docs/spec/wire-format.md section 6).
 *
 *   ACTIVE --reason found--> ENDED --ps_image_drain--> DRAINING --read out, 5 SMs--> DRAINED
 *
 * In the state ENDED the receiver repeats PS_EV_IMAGE_INACTIVE until the event fits into the ring;
 * in DRAINED it repeats PS_EV_IMAGE_DRAINED. */
enum ps_image_state {
    PS_IMAGE_ACTIVE = 0,
    PS_IMAGE_ENDED = 1,
    PS_IMAGE_DRAINING = 2,
    PS_IMAGE_DRAINED = 3
};

/* State of the frames that reach the image through one destination. Only frames of the followed
 * source change it (docs/trust.md). */
typedef struct ps_connection {
    ps_addr_t control;    /* where SMs and NAKs go */
    ps_addr_t source;     /* the followed address; family 0: none yet; the receiver then follows the
                           * source of the next frame within the window */
    int64_t activity_ns;  /* time of the source's last accepted frame or SETUP */
    int64_t furthest;     /* highest position that the source stated, -1: none yet */
    int64_t low_position; /* position of the source's last frame if this frame was a heartbeat below
                           * hwm; otherwise -1 */
    int64_t eos_position; /* valid when eos */
    int64_t eos_since_ns; /* time of the first EOS heartbeat of an uninterrupted series */
    uint8_t established;
    uint8_t confirmed; /* 1: the source sent data or a heartbeat, not only a SETUP */
    uint8_t eos;
    uint8_t eos_repeated; /* 1: the source repeated the EOS heartbeat, at least half a heartbeat
                           * interval later */
    uint8_t eos_revoked;
    uint8_t stranger_seen;     /* 1: a frame of another source arrived after a frame of this
                                * source */
    uint8_t stranger_notified; /* 1: PS_EV_SECOND_SOURCE was emitted for this source */
    ps_addr_t stranger;        /* address of the first other source; valid if stranger_seen */
} ps_connection_t;

/* Identity of the followed source's daemon, from its SETUPs; all 0: the sender is not penstock. */
typedef struct ps_peer {
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    uint32_t candidate; /* capabilities that differ from those in use, not yet confirmed */
    int32_t checks;     /* number of SETUPs still to be requested to confirm the candidate */
    int32_t index;      /* connection from which the SETUPs are requested */
    int64_t due_ns;     /* time of the next request, at most one a second */
    uint8_t changed;    /* 1: two SETUPs in a row stated the change; requests continue even if later
                         * SETUPs confirm it, because both may be forged */
    uint8_t unknown;    /* 1: the receiver follows another source now, whose SETUP has not arrived
                         * yet */
} ps_peer_t;

typedef struct ps_image_subscriber {
    _Atomic int64_t *position; /* sub-pos cell: written by the client, so not trusted; of a lagged
                                * reader the image's leader */
    _Atomic int64_t *cell;     /* sub-pos cell */
    int32_t position_counter_id;
    int32_t client_slot;
    int32_t slot; /* in penstock.dat */
    ps_tether_t tether;
    ps_isolation_t isolation;
    ps_pressure_reader_t reader; /* its consumption, under NAK-strength control */
    ps_credit_reader_t credit;
    uint8_t event_pending; /* 1: a PS_EV_SUBSCRIBER waits for room in the ring */
} ps_image_subscriber_t;

/* Credits of the image's readers (ps_image_credit.c). */
typedef struct ps_image_credits {
    int32_t readers;  /* number of readers that grant credits */
    bool joined;      /* a reader has joined, with or without credits */
    bool known;       /* the limit is known, so a status message can state it */
    bool frozen;      /* a reader withholds its credits */
    bool asks;        /* the sender has not answered the present epoch */
    bool settled;     /* no message beyond `final` arrives before the resume */
    bool outstanding; /* a reader has not returned all its credits */
    uint32_t epoch;
    uint32_t messages; /* N of the reader with the lowest limit */
    int64_t limit;     /* ordinals */
    int64_t released;  /* ordinals returned by that reader */
    int64_t stated;    /* limit in the last status message */
    int64_t final;     /* ordinal, -1 not known */
    int64_t ask_ns;    /* time at which an unanswered epoch is stated again */
    int64_t restate_ns;
    int64_t restate_ordinal;
    int32_t restates; /* number of times to repeat the statement that raised the limit from 0 */
} ps_image_credits_t;

/* Two threads write an image. Each group of fields begins a new cache line, so that a store of one
 * thread never invalidates a cache line of the other thread. The creating function allocates the
 * struct aligned. */
struct ps_image {
    /* line: constant after the hand-over */
    ps_image_params_t params; /* log_path is not valid any more; peer_capabilities are from the
                               * first SETUP */
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

    /* line: receiver, read by no other thread */
    alignas(PS_LINE) ps_recv_endpoint_t *endpoint; /* NULL after the endpoint's release */
    uint32_t peer_capabilities;                    /* wed source */
    _Atomic int64_t dummy_cell;                    /* cell that is used in place of absent
                                                    * counters */

    /* rebuild */
    ps_gaps_t gaps;
    int64_t join_position;
    int64_t hwm;
    int64_t position; /* rcv-pos, as last stored in the counter */
    int64_t reserved_position;
    int64_t kept_position; /* answer to PS_RCMD_RELEASE_TERMS: the image keeps the terms in
                            * [kept_position, released_to) */
    int64_t released_to;   /* -1 nothing */
    int64_t free_to;       /* no reader is below this position, so the receiver may write up to
                            * three terms above it */
    int64_t lost_bytes;    /* not yet reported by PS_EV_LOSS */
    int32_t lost_gaps;     /* number of gaps not yet reported; a gap that grew counts once */
    int64_t loss_due_ns;
    int64_t nak_due_ns;    /* earliest gap timer, INT64_MAX none */
    int64_t lost_due_ns;   /* earliest time at which an open gap becomes a loss, INT64_MAX none */
    int64_t front_from;    /* start of the first gap at the last check */
    int64_t loss_position; /* start of the newest gap that counts as lost */
    ps_nak_policy_t nak;
    ps_reordering_t reordering;
    uint64_t refused; /* number of datagrams dropped because the gap list was full */
    int64_t ordinal;  /* number of messages below ordinal_position; -1 unknown */
    int64_t ordinal_position;
    int64_t index_position; /* position of the newest entry in the index ring */
    int64_t index_ns;

    /* status */
    ps_congestion_t congestion;
    int32_t window;      /* the last computed window */
    int32_t sent_window; /* the last advertised window */
    int64_t sm_position; /* L: the position in the last status message */
    int64_t consumption; /* position of the slowest gating subscriber; monotonic, a multiple of the
                          * frame alignment */
    int64_t fastest;     /* fastest subscriber */
    int64_t sm_due_ns;
    int64_t last_sm_ns;
    int64_t moved_ns;              /* time at which data or consumption last advanced */
    int64_t moved_position;        /* + consumption at moved_ns */
    int64_t packet_ns;             /* time of the last accepted frame, for liveness */
    int64_t next_due_ns;           /* time of the earliest timer, except the timers of gaps */
    ps_timer_t timer;              /* entry of this time in the receiver's heap */
    ps_pressure_signal_t pressure; /* under NAK-strength control */
    uint32_t pressure_random;
    int64_t sent_seen;    /* position up to which the sender has sent; the receiver may not have
                           * accepted all data below */
    int64_t beyond_end;   /* end of the last datagram that was not accepted */
    int32_t beyond_count; /* number of such datagrams in a row */
    ps_rtt_t rtt;
    int64_t rtt_due_ns;    /* time of the next request while data arrives */
    int64_t drain_ns;      /* when draining began */
    int64_t end_position;  /* end of the stream; INT64_MAX until the end is known and all data up to
                            * the end has arrived */
    int64_t error_due_ns;  /* time of the next ERR frame of a rejected image */
    int64_t hold_since_ns; /* time at which the receiver first saw join_hold, 0 none */
    ps_connection_t connections[PS_RECV_DESTINATIONS_MAX];
    ps_peer_t peer;
    int64_t born_ns;
    int64_t foreign; /* dropped datagrams of other sources */
    ps_image_credits_t credits;
    ps_image_subscriber_t subscribers[PS_IMAGE_SUBSCRIBERS_MAX];
    int32_t n_subscribers;
    _Atomic int64_t leader; /* position as which lagged readers count */
    int32_t n_isolated;     /* of these: readers for which the stream does not wait */
    int32_t index;          /* in the receiver's list */
    int32_t state;          /* ps_image_state */
    int32_t end_reason;     /* ps_image_end */
    int32_t half_open;      /* handle in ps_half_open.h until established, 0 none */
    uint8_t hot;            /* in the hot list */
    uint8_t force_sm;
    uint8_t sm_postponed;      /* 1: a status message for released data waits (the governor) */
    uint8_t established;       /* 1: the receiver accepted a frame of the stream */
    uint8_t established_taken; /* PS_EV_IMAGE_ESTABLISHED was emitted */
    uint8_t storage_binds;     /* reserved storage limits the window */
    uint8_t sent_bound;        /* 1: reserved storage limited the window of the last status
                                * message */
    uint8_t new_loss;
    uint8_t gating; /* a subscriber gates the window */
    /* The slowest subscriber with unread data: the slot of its client, and the subscriber's slot;
     * -1 none. */
    int32_t limiting_slot;
    int32_t limiting_subscriber;
    uint8_t ending; /* 1: a source stated an end and has not withdrawn it */
    uint8_t revoked;
    uint8_t rejected;
    uint8_t event_taken;      /* 1: the event INACTIVE or DRAINED of this state was emitted */
    uint8_t term_event_taken; /* 1: TERM_NEEDED was emitted for this reserved_position */
    uint8_t release_pending;  /* 1: a TERMS_RELEASED waits for room in the ring */
    uint8_t started;          /* 1: the times of this image are set */
    uint8_t wake;             /* wake the clients of this image in this cycle */
    char reject_text[128];

    /* line: receiver, read by the conductor */
    alignas(PS_LINE) _Atomic int64_t shown_slowest;
    _Atomic int64_t shown_end;
    _Atomic int32_t shown_gaps;
    _Atomic int32_t shown_subscribers;
    _Atomic int64_t shown_pressure; /* PRESSURE frames sent */
    _Atomic int64_t shown_foreign;
    struct { /* ps_congestion_view_t, of PS_CC_CUSTOM */
        _Atomic int64_t window, received, consumed, granted, losses, missing, rtt_ns, least_rtt_ns;
    } shown_congestion;
    /* line: conductor; the receiver reads join_hold */
    alignas(PS_LINE) _Atomic int64_t join_hold; /* while it is set, no memory at or above this
                                                 * position is released */
    int32_t joined[PS_IMAGE_SUBSCRIBERS_MAX];   /* position counter ids */
    int32_t n_joined;
};

/* ---- receiver thread ------------------------------------------------------------------------- */

static inline int64_t ps_image_contiguous(const ps_image_t *image)
{
    return image->gaps.count > 0 ? image->gaps.items[0].from : image->hwm;
}
/* DATA, PAD or heartbeat (ps_wire_check passed).  Returns ps_wire_fault. */
int ps_image_on_data(ps_image_t *image, const ps_recv_destination_t *destination,
                     const ps_data_t *first, const uint8_t *data, uint32_t length,
                     const ps_addr_t *from, int64_t rx_ns);
/* Processes datagrams of one sender that the kernel joined. Accepts the leading datagrams that
 * continue the stream, as one piece, and returns their bytes; 0: pass the first datagram to
 * ps_image_on_data. */
uint32_t ps_image_on_run(ps_image_t *image, const ps_recv_destination_t *destination,
                         const uint8_t *data, uint32_t length, uint32_t segment,
                         const ps_addr_t *from, int64_t rx_ns);
/* Stores the memory into which the transport may receive the next bytes of the stream. Returns
 * false if the stream does not allow this now. No reader reads these bytes, because the word at the
 * high-water mark stays zero until the run is checked. */
bool ps_image_direct_range(const ps_image_t *image, ps_direct_range_t *out);
/* Checks the received bytes, of which all except the first 8 are in place. Accepts the leading
 * whole datagrams and returns their bytes. *next_word: the 8 bytes after the accepted datagrams,
 * because the zero word that stops readers has overwritten them. */
uint32_t ps_image_on_direct(ps_image_t *image, const ps_recv_destination_t *destination,
                            const ps_direct_range_t *range, uint64_t first_word, uint32_t length,
                            uint32_t segment, const ps_addr_t *from, uint64_t *next_word);
/* Makes visible to readers a run that is already in the log at the high-water mark. */
void ps_image_reveal(ps_image_t *image, uint64_t first_word, uint32_t length, int32_t messages);
/* ps_image_source.c */

/* Processes a SETUP of the session. Returns ps_wire_fault: PS_WIRE_BAD_FIELD when it
 * contradicts the image. */
int ps_image_on_setup(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_setup_t *setup, const ps_addr_t *from);
void ps_image_on_rttm(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_rttm_t *rttm, const ps_addr_t *from);
/* Returns true if the receiver accepts a frame from this address. The followed source is always
 * accepted. Other sources are accepted if the followed source was silent for the connection
 * time-out or sent only a SETUP. */
bool ps_image_admits(const ps_image_t *image, int32_t index, const ps_addr_t *from);
/* Counts a datagram of another source. */
void ps_image_count_foreign(ps_image_t *image, int32_t index, const ps_addr_t *from);
/* Records an accepted data frame or heartbeat within the window. The frame states that the stream
 * reaches up to `end`. From now on the receiver follows the source of the frame. */
void ps_image_touch(ps_image_t *image, const ps_recv_destination_t *destination,
                    const ps_addr_t *from, int64_t end);
/* Returns true if the connection is established and its source was heard within the connection
 * time-out. */
bool ps_image_connection_live(const ps_image_t *image, int32_t index, int64_t now_ns);
/* Requests another SETUP if the sender's capabilities are not confirmed yet and the request is
 * due. */
void ps_image_source_tick(ps_image_t *image, int64_t now_ns);

/* ps_image_end.c */

/* Processes a heartbeat with the EOS flag, which states the end of the stream. */
void ps_image_on_eos(ps_image_t *image, const ps_recv_destination_t *destination, int64_t position,
                     uint8_t flags);
/* Withdraws the stated end, because the source sends data beyond it. */
void ps_image_withdraw_end(ps_image_t *image, ps_connection_t *connection);
/* Processes a heartbeat below the high-water mark. The second such heartbeat in a row lowers a mark
 * that a false heartbeat raised. */
void ps_image_on_low_heartbeat(ps_image_t *image, ps_connection_t *connection, int64_t position);
/* Ends the image if all sources have stated and repeated an end, and the stream is complete. */
void ps_image_check_end(ps_image_t *image);
void ps_image_end(ps_image_t *image, int32_t reason);
/* Returns the number of messages below the position of an ended image, -1 unknown. */
static inline int64_t ps_image_end_ordinal(const ps_image_t *image)
{
    return image->ordinal_position == image->position ? image->ordinal : -1;
}

/* Copies the missing bytes of a checked datagram into the log. Returns true if any byte was new. */
bool ps_image_insert(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t position,
                     int32_t span, int32_t messages, int64_t rx_ns);
/* Lowers the high-water mark to position, inside the last gap, which ends at the mark. */
void ps_image_lower_hwm(ps_image_t *image, int64_t position);
/* Raises the high-water mark to position and records the gap; returns false if the gap list is
 * full. */
bool ps_image_raise_hwm(ps_image_t *image, int64_t position);
/* Counts [from, to) as lost, for the loss report and for congestion control. */
void ps_image_count_loss(ps_image_t *image, int64_t from, int64_t to);
/* Counts messages up to rcv-pos, at most PS_IMAGE_SCAN_FRAMES frames a call. */
void ps_image_count_messages(ps_image_t *image);
/* Processes a hot image once in each duty cycle: gaps, rcv-pos, consumption, status message.
 * Returns the work done; *stay: the image stays hot. */
int32_t ps_image_cycle(ps_image_t *image, int64_t now_ns, bool *stay);
/* Runs the timers. */
void ps_image_tick(ps_image_t *image, int64_t now_ns);
/* Records a datagram [position, end) for which the log has no room, or a datagram that begins too
 * far beyond missing data for a retransmit. A single such datagram may be forged; after several in
 * a row the receiver believes that the sender has sent up to `end`. If the first missing byte is
 * then too old to be retransmitted, the image ends (PS_END_OUTRUN). */
void ps_image_on_beyond(ps_image_t *image, int64_t position, int64_t end);
/* Records a heartbeat of a sender under NAK-strength control: the sender has sent all data up to
 * position. */
void ps_image_on_stated(ps_image_t *image, int64_t position);
/* Requests data that the receiver dropped earlier, as far as the log has room for it now. */
void ps_image_catch_up(ps_image_t *image);
/* Stores the learned values of the image's readers for the next image of the session. */
void ps_image_remember(const ps_image_t *image);
ps_pressure_learned_t ps_image_recall(const ps_image_t *image);
/* Returns the reader whose queue the signals describe: the slowest gating reader that is not
 * paused; NULL: none. */
const ps_pressure_reader_t *ps_image_signalled_reader(const ps_image_t *image, int64_t now_ns);
/* Returns true if subscribers have released enough data for a new status message. */
bool ps_image_release_due(const ps_image_t *image);
/* Requests gaps that are due, or with reliable=false writes padding over them. Sets nak_due_ns. */
int32_t ps_image_request(ps_image_t *image, int64_t now_ns);
void ps_image_consumption(ps_image_t *image);
/* Returns a subscriber's consumed position from its counter, limited to the possible range. */
int64_t ps_image_position_of(const ps_image_t *image, const ps_image_subscriber_t *subscriber);
void ps_image_send_sm(ps_image_t *image, int64_t now_ns);
/* Reduces image->window to the reserved storage; sets storage_binds. */
void ps_image_bound_window(ps_image_t *image);
/* Computes the window with the congestion control; returns true if a status message must leave
 * now. */
bool ps_image_update_window(ps_image_t *image, int64_t now_ns);
void ps_image_send_rttm(ps_image_t *image, int64_t now_ns);
/* Sends a PRESSURE frame with the fill of the queue, if one is due (NAK-strength control). */
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
/* Returns true if few status messages suffice: a sender under NAK-strength control needs one for
 * each eighth of a term. A congestion window needs more. */
static inline bool ps_image_is_silent(const ps_image_t *image)
{
    return ps_image_under_nak(image) && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* Returns the position up to which datagrams are accepted. Under NAK-strength control the sender
 * does not wait for windows. The receiver therefore accepts half a term more, for the time until a
 * signal has an effect. */
static inline int64_t ps_image_edge(const ps_image_t *image)
{
    return ps_image_under_nak(image) ? image->consumption + image->log.term_length
                                     : image->sm_position + image->log.term_length / 2;
}
/* Releases memory that no reader needs. */
void ps_image_reclaim(ps_image_t *image);
/* Returns the position at which writing must end: the end of storage, or three terms above the
 * slowest reader. One word is kept free, because the word at the end of the written data is
 * zeroed. */
static inline int64_t ps_image_room(const ps_image_t *image)
{
    int64_t room = image->free_to + INT64_C(3) * image->log.term_length - PS_FRAME_ALIGNMENT;

    return room < image->reserved_position ? room : image->reserved_position;
}
/* Zeroes the first word at position, where data is missing, so that readers stop there. Call it
 * after updating the gap list or the high-water mark, and before the data up to position becomes
 * visible. */
void ps_image_seal(ps_image_t *image, int64_t position);
/* Requests storage beyond the received data, once for each reserved_position. */
void ps_image_check_storage(ps_image_t *image);
/* Marks the image as established: a frame of its stream was accepted. */
void ps_image_establish(ps_image_t *image);
/* Emits PS_EV_IMAGE_ESTABLISHED; returns false if the ring is full. */
bool ps_image_report_established(ps_image_t *image);
/* Releases unused terms if the stream allows this, and reports the result in any case. */
void ps_image_on_release_terms(ps_image_t *image, int32_t least_terms);
void ps_image_report_released(ps_image_t *image, int64_t now_ns);
void ps_image_report_loss(ps_image_t *image, int64_t now_ns);
void ps_image_timer(ps_image_t *image, int64_t due_ns);
/* Returns the image that a timer of the receiver's heap belongs to. */
static inline ps_image_t *ps_image_of_timer(ps_timer_t *timer)
{
    return (ps_image_t *)(void *)((uint8_t *)timer - offsetof(ps_image_t, timer));
}
/* Returns the position at which a reader joins again. */
int64_t ps_image_rejoin_position(const ps_image_t *image);
void ps_image_send_error(ps_image_t *image, int64_t now_ns);
void ps_image_tether(ps_image_t *image, int64_t now_ns);
/* ps_image_credit.c */

/* Adds a reader. The reader grants credits if its params state them. */
void ps_image_credit_join(ps_image_t *image, ps_image_subscriber_t *subscriber,
                          const ps_subscriber_params_t *params);
void ps_image_credit_leave(ps_image_t *image);
void ps_image_credit_change(ps_image_t *image, const ps_credit_change_t *change);
/* Returns false if no reader grants credits; the other functions then have no effect. */
static inline bool ps_image_has_credits(const ps_image_t *image)
{
    const ps_image_credits_t *credits = &image->credits;
    return credits->readers > 0 || credits->limit != 0 || image->params.credits > 0 ||
           credits->known || credits->outstanding;
}
/* Reads what readers returned. Returns true if a status message must leave now. Bound: the readers,
 * and PS_CREDIT_SCAN frames for each that has just joined. */
bool ps_image_credit_step(ps_image_t *image, int64_t now_ns);
void ps_image_credit_fill(const ps_image_t *image, ps_trailer_t *trailer);
/* Timer: repeats statements of credits. */
void ps_image_credit_tick(ps_image_t *image, int64_t now_ns);
/* Returns true if a reader has returned enough credits for a new status message. */
bool ps_image_credit_is_due(const ps_image_t *image);
/* Returns true if the sender obeys credits and the messages of the stream are counted. */
bool ps_image_obeys_credits(const ps_image_t *image);
/* The sender answers an epoch. */
void ps_image_on_credit(ps_image_t *image, const ps_recv_destination_t *destination,
                        const ps_credit_frame_t *frame, const ps_addr_t *from);

bool ps_image_emit(ps_image_t *image, ps_event_t *event);
/* Executes a command for an image; returns false if another file executes this command. */
bool ps_image_on_command(ps_receiver_t *receiver, const ps_command_t *command);
void ps_image_free(ps_image_t *image);

#endif
