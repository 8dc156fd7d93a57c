/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image.h: one session as received here: its log, what is missing, who reads it, and what is
 * said back to the sender.  Owner: the receiver agent, but for the parts that name the conductor.
 *
 *   free_to           sm_position   min subscriber   rcv-pos      hwm      L + T/2
 *   -----|---------------|--------------|---------------|----gaps--|----------|
 *   may be written over                 '--- unread ----'
 */
#ifndef PS_IMAGE_H
#define PS_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_congestion.h"
#include "ps_context.h"
#include "ps_error.h"
#include "ps_gaps.h"
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
#include "ps_wire.h"

enum {
    PS_IMAGE_SUBSCRIBERS_MAX = 64,
    PS_IMAGE_NAKS_PER_CYCLE = 16,
    PS_IMAGE_NAK_RANGES_PER_CYCLE = 4 * PS_NAK_LIST_MAX,
    PS_IMAGE_LIST_TRIES = 3, /* then the first gap is requested by a plain NAK too */
    PS_IMAGE_SCAN_FRAMES = 32768
};
#define PS_LOSS_EVENT_NS   INT64_C(100000000)
#define PS_SM_IDLE_NS      INT64_C(1000000000)
#define PS_SM_IDLE_GRID_NS INT64_C(250000000)
/* Storage ahead of a stream that begins, in bytes; of a SETUP alone the conductor reserves less. */
#define PS_STORAGE_AHEAD  (INT64_C(1) << 20)
#define PS_JOIN_HOLD_NONE INT64_MAX
#define PS_JOIN_HOLD_NS   INT64_C(5000000000)

/* Life of an image (docs/spec/wire-format.md section 6).
 *
 *   ACTIVE --reason found--> ENDED --ps_image_drain--> DRAINING --read out, 5 SMs--> DRAINED
 *
 * ENDED repeats PS_EV_IMAGE_INACTIVE until the ring takes it, DRAINED PS_EV_IMAGE_DRAINED. */
enum ps_image_state {
    PS_IMAGE_ACTIVE = 0,
    PS_IMAGE_ENDED = 1,
    PS_IMAGE_DRAINING = 2,
    PS_IMAGE_DRAINED = 3
};

/* How frames reach the image through one destination of its endpoint.  Only the followed source
 * moves anything of it (docs/trust.md). */
typedef struct ps_connection {
    ps_addr_t control;    /* where SMs and NAKs go */
    ps_addr_t source;     /* followed; family 0: the next frame in the window decides */
    int64_t activity_ns;  /* last accepted frame or SETUP of the source */
    int64_t furthest;     /* end of what the source stated, -1 nothing yet */
    int64_t low_position; /* of its last frame, a heartbeat below hwm; -1 it was something else */
    int64_t eos_position; /* valid when eos */
    int64_t eos_since_ns; /* first of the EOS heartbeats in a row */
    uint8_t established;
    uint8_t confirmed; /* the source sent data or a heartbeat, not only a SETUP */
    uint8_t eos;
    uint8_t eos_repeated; /* heard again, half a heartbeat interval later or more */
    uint8_t eos_revoked;
    uint8_t stranger_notified; /* PS_EV_SECOND_SOURCE of this source was taken */
} ps_connection_t;

/* Which daemon the followed source is, as its SETUPs state; all 0: no penstock sender. */
typedef struct ps_peer {
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    uint32_t candidate; /* capabilities that differ from those in use, not yet confirmed */
    int32_t checks;     /* SETUPs still to be requested, to confirm them */
    int32_t index;      /* of the connection that is asked */
    int64_t due_ns;     /* next request, at most one a second */
    uint8_t changed;    /* two SETUPs in a row did; looks go on, although others agree */
    uint8_t unknown;    /* another source is followed, its SETUP is not here yet */
} ps_peer_t;

typedef struct ps_image_subscriber {
    _Atomic int64_t *position; /* sub-pos cell: written by the client, so not trusted */
    int32_t position_counter_id;
    int32_t client_slot;
    ps_tether_t tether;
    ps_pressure_reader_t reader; /* how it consumes, under NAK-strength control */
    uint8_t event_pending;       /* PS_EV_SUBSCRIBER not yet taken */
} ps_image_subscriber_t;

/* Two threads write an image.  Each group begins a line of its own, so that a store of one thread
 * never takes a line from the other; ps_image_add allocates it aligned. */
struct ps_image {
    /* line: constant once the receiver has it */
    ps_image_params_t params; /* log_path is not kept; peer_capabilities: of the first SETUP */
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
    alignas(PS_LINE) ps_recv_endpoint_t *endpoint; /* NULL once that is gone */
    uint32_t peer_capabilities;                    /* of the followed source */
    _Atomic int64_t dummy_cell;                    /* for counters that do not exist */

    /* rebuild */
    ps_gaps_t gaps;
    int64_t join_position;
    int64_t hwm;
    int64_t position; /* rcv-pos as last published */
    int64_t reserved_position;
    int64_t kept_position; /* answer to PS_RCMD_RELEASE_TERMS: terms [kept, released_to) */
    int64_t released_to;   /* -1 nothing */
    int64_t free_to;       /* no reader is below: written over three terms on */
    int64_t lost_bytes;    /* not yet reported by PS_EV_LOSS */
    int32_t lost_gaps;     /* the same of gaps; those that grew count once */
    int64_t loss_due_ns;
    int64_t nak_due_ns;    /* earliest gap timer, INT64_MAX none */
    int64_t lost_due_ns;   /* no open gap becomes a loss before, INT64_MAX none */
    int64_t front_from;    /* start of the first gap when last checked */
    int64_t loss_position; /* start of the newest gap that counts as lost */
    ps_nak_policy_t nak;
    ps_reordering_t reordering;
    uint64_t refused; /* datagrams dropped because the gap list was full */
    int64_t ordinal;  /* messages below ordinal_position; -1 unknown */
    int64_t ordinal_position;
    int64_t index_position; /* of the newest index entry */
    int64_t index_ns;

    /* status */
    ps_congestion_t congestion;
    int32_t window;      /* as last computed */
    int32_t sent_window; /* as last sent */
    int64_t sm_position; /* L: as last sent */
    int64_t consumption; /* slowest gating subscriber, monotonic, a frame multiple */
    int64_t fastest;     /* fastest subscriber */
    int64_t sm_due_ns;
    int64_t last_sm_ns;
    int64_t moved_ns;              /* data or consumption moved last */
    int64_t moved_position;        /* rcv-pos + consumption then */
    int64_t packet_ns;             /* liveness */
    int64_t next_due_ns;           /* earliest timer but gaps */
    ps_pressure_signal_t pressure; /* under NAK-strength control */
    uint32_t pressure_random;
    int64_t sent_seen;    /* the sender was seen to have sent up to here, accepted or not */
    int64_t beyond_end;   /* end of the last datagram that was not accepted */
    int32_t beyond_count; /* such datagrams, one after the other */
    ps_rtt_t rtt;
    int64_t rtt_due_ns;    /* next request, when data moves */
    int64_t drain_ns;      /* when draining began */
    int64_t end_position;  /* INT64_MAX until known and contiguous up to there */
    int64_t error_due_ns;  /* next ERR frame of a rejected image */
    int64_t hold_since_ns; /* when join_hold was first seen, 0 none */
    ps_connection_t connections[PS_RECV_DESTINATIONS_MAX];
    ps_peer_t peer;
    int64_t born_ns;
    int64_t foreign; /* datagrams of other sources, dropped */
    ps_image_subscriber_t subscribers[PS_IMAGE_SUBSCRIBERS_MAX];
    int32_t n_subscribers;
    int32_t index;      /* in the receiver's list */
    int32_t state;      /* ps_image_state */
    int32_t end_reason; /* ps_image_end */
    int32_t half_open;  /* handle until established, 0 none (ps_half_open.h) */
    uint8_t hot;        /* in the hot list */
    uint8_t force_sm;
    uint8_t established;       /* a frame of the stream was accepted */
    uint8_t established_taken; /* its event was */
    uint8_t storage_binds;     /* the window ends where storage does */
    uint8_t sent_bound;        /* and the last status message said so */
    uint8_t new_loss;
    uint8_t gating; /* a subscriber gates the window */
    int32_t
        limiting_slot; /* client slot of the slowest subscriber that has not read all; -1 none */
    uint8_t ending;    /* some source stated an end that is not withdrawn */
    uint8_t revoked;
    uint8_t rejected;
    uint8_t event_taken;      /* INACTIVE / DRAINED of this state */
    uint8_t term_event_taken; /* TERM_NEEDED for this reserved_position */
    uint8_t release_pending;  /* TERMS_RELEASED not yet taken */
    uint8_t started;          /* times below are set */
    uint8_t wake;             /* news for the clients in this cycle */
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
    alignas(PS_LINE) _Atomic int64_t join_hold; /* nothing at or above this is released meanwhile */
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
/* Datagrams that the kernel joined, from one sender.  Takes those that simply go on where the
 * stream stands, in one piece: returns their bytes; 0: hand the first one to ps_image_on_data. */
uint32_t ps_image_on_run(ps_image_t *image, const ps_recv_destination_t *destination,
                         const uint8_t *data, uint32_t length, uint32_t segment,
                         const ps_addr_t *from, int64_t rx_ns);
/* Where the next bytes of the stream may be received to: false when it is not plain now. No
 * reader reaches these bytes: the word at the high-water mark stays zero until the run was
 * checked. */
bool ps_image_direct_range(const ps_image_t *image, ps_direct_range_t *out);
/* Checks the received bytes, all but the first 8 in place. Takes whole datagrams from the first
 * on, returns their bytes; *next_word: the 8 bytes behind them, where the word that ends the
 * readers' run is now. */
uint32_t ps_image_on_direct(ps_image_t *image, const ps_recv_destination_t *destination,
                            const ps_direct_range_t *range, uint64_t first_word, uint32_t length,
                            uint32_t segment, const ps_addr_t *from, uint64_t *next_word);
/* Makes a run that lies at the high-water mark already visible. */
void ps_image_reveal(ps_image_t *image, uint64_t first_word, uint32_t length, int32_t messages);
/* ps_image_source.c */

/* SETUP of the session.  Returns ps_wire_fault: PS_WIRE_BAD_FIELD when it contradicts the image. */
int ps_image_on_setup(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_setup_t *setup, const ps_addr_t *from);
void ps_image_on_rttm(ps_image_t *image, const ps_recv_destination_t *destination,
                      const ps_rttm_t *rttm, const ps_addr_t *from);
/* May a frame from this address count?  Yes from the followed source, and from any when that was
 * silent for the connection time-out, or stated a SETUP only. */
bool ps_image_admits(const ps_image_t *image, int32_t index, const ps_addr_t *from);
/* A datagram that may not. */
void ps_image_count_foreign(ps_image_t *image, int32_t index, const ps_addr_t *from);
/* A frame of data or a heartbeat that was admitted lies in the window and says that the stream
 * reaches up to `end`: its source is followed from now on. */
void ps_image_touch(ps_image_t *image, const ps_recv_destination_t *destination,
                    const ps_addr_t *from, int64_t end);
/* An established connection whose source was heard within the connection time-out. */
bool ps_image_connection_live(const ps_image_t *image, int32_t index, int64_t now_ns);
/* Requests the SETUPs that capabilities still need, and tells of second sources. */
void ps_image_source_tick(ps_image_t *image, int64_t now_ns);

/* ps_image_end.c */

/* A heartbeat with the EOS flag states the end of the stream. */
void ps_image_on_eos(ps_image_t *image, const ps_recv_destination_t *destination, int64_t position,
                     uint8_t flags);
/* The source goes on: what it said of an end does not hold. */
void ps_image_withdraw_end(ps_image_t *image, ps_connection_t *connection);
/* A heartbeat below the high-water mark: the second in a row takes back what a false one raised. */
void ps_image_on_low_heartbeat(ps_image_t *image, ps_connection_t *connection, int64_t position);
/* Ends the image when all sources stated an end, held to it, and the stream is complete. */
void ps_image_check_end(ps_image_t *image);
void ps_image_end(ps_image_t *image, int32_t reason);
/* Messages of the session below the position of an image that ended, -1 unknown. */
static inline int64_t ps_image_end_ordinal(const ps_image_t *image)
{
    return image->ordinal_position == image->position ? image->ordinal : -1;
}

/* Puts a datagram that passed all checks into the log where bytes are missing.  Returns true when
 * anything was new. */
bool ps_image_insert(ps_image_t *image, const uint8_t *data, uint32_t length, int64_t position,
                     int32_t span, int32_t messages, int64_t rx_ns);
/* Lowers it to position, inside the last gap, which ends at the mark. */
void ps_image_lower_hwm(ps_image_t *image, int64_t position);
/* Raises the high-water mark to position, noting the gap; false: no room in the gap list. */
bool ps_image_raise_hwm(ps_image_t *image, int64_t position);
/* [from, to) counts as lost: for the report, and as an event of the congestion control. */
void ps_image_count_loss(ps_image_t *image, int64_t from, int64_t to);
/* Counts messages up to rcv-pos, at most PS_IMAGE_SCAN_FRAMES frames a call. */
void ps_image_count_messages(ps_image_t *image);
/* Hot images, once a duty cycle: gaps, rcv-pos, consumption, status message.  Returns work done;
 * *stay: keep it hot. */
int32_t ps_image_cycle(ps_image_t *image, int64_t now_ns, bool *stay);
/* Timers. */
void ps_image_tick(ps_image_t *image, int64_t now_ns);
/* A datagram [position, end) that is further than can be kept, or further ahead than its sender
 * could retransmit what is missing.  When others follow it, it is believed: it counts in the fill,
 * and the image ends (PS_END_OUTRUN) if what is missing first is beyond retransmission. */
void ps_image_on_beyond(ps_image_t *image, int64_t position, int64_t end);
/* A heartbeat of a sender under NAK-strength control: it has sent all up to position. */
void ps_image_on_stated(ps_image_t *image, int64_t position);
/* Requests what was not accepted, as far as there is room now. */
void ps_image_catch_up(ps_image_t *image);
/* How its readers consume: outlives the image. */
void ps_image_remember(const ps_image_t *image);
ps_pressure_learned_t ps_image_recall(const ps_image_t *image);
/* The reader whose queue is signalled: the slowest gating one that is not paused; NULL: none. */
const ps_pressure_reader_t *ps_image_signalled_reader(const ps_image_t *image, int64_t now_ns);
/* True when a status message became due by what subscribers released. */
bool ps_image_release_due(const ps_image_t *image);
/* Requests gaps that are due (or pads them over); sets nak_due_ns. */
int32_t ps_image_request(ps_image_t *image, int64_t now_ns);
void ps_image_consumption(ps_image_t *image);
/* Position that a subscriber has consumed, by its cell, clamped to the possible range. */
int64_t ps_image_position_of(const ps_image_t *image, const ps_image_subscriber_t *subscriber);
void ps_image_send_sm(ps_image_t *image, int64_t now_ns);
/* Cuts image->window to what storage is there for; sets storage_binds. */
void ps_image_bound_window(ps_image_t *image);
/* Asks the congestion control for the window; true: the sender must hear of it now. */
bool ps_image_update_window(ps_image_t *image, int64_t now_ns);
void ps_image_send_rttm(ps_image_t *image, int64_t now_ns);
/* Under NAK-strength control: says how full the queue is, if it must be said now. */
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
/* Towards a sender under NAK-strength control a status message only moves the edge: one for each
 * eighth of a term is enough.  A congestion window needs more of them. */
static inline bool ps_image_is_silent(const ps_image_t *image)
{
    return ps_image_under_nak(image) && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* Up to here datagrams are accepted.  Under NAK-strength control a receiver is not asked before the
 * sender goes on: half a term more is kept, so that a signal has time to act. */
static inline int64_t ps_image_edge(const ps_image_t *image)
{
    return ps_image_under_nak(image) ? image->consumption + image->log.term_length
                                     : image->sm_position + image->log.term_length / 2;
}
/* Releases memory that no reader needs. */
void ps_image_reclaim(ps_image_t *image);
/* Where writing must end: storage ends there, or somebody may still read what lies three terms
 * below.  The word at the end of what is written is zeroed too, so it is kept free. */
static inline int64_t ps_image_room(const ps_image_t *image)
{
    int64_t room = image->free_to + INT64_C(3) * image->log.term_length - PS_FRAME_ALIGNMENT;

    return room < image->reserved_position ? room : image->reserved_position;
}
/* Zeroes the first word at position, where something is missing: readers stop there.  For the end
 * of what is about to be made visible, when the gap list or the high-water mark say so already. */
void ps_image_seal(ps_image_t *image, int64_t position);
/* Requests storage ahead of what was received, once for each reserved_position. */
void ps_image_check_storage(ps_image_t *image);
/* A frame of the stream was accepted. */
void ps_image_establish(ps_image_t *image);
/* Emits PS_EV_IMAGE_ESTABLISHED; false: not taken yet. */
bool ps_image_report_established(ps_image_t *image);
/* Releases the terms that are not in use, if it can; reports the result in any case. */
void ps_image_on_release_terms(ps_image_t *image, int32_t least_terms);
void ps_image_report_released(ps_image_t *image, int64_t now_ns);
void ps_image_report_loss(ps_image_t *image, int64_t now_ns);
void ps_image_timer(ps_image_t *image, int64_t due_ns);
/* Join position as the receiver sees it. */
int64_t ps_image_rejoin_position(const ps_image_t *image);
void ps_image_send_error(ps_image_t *image, int64_t now_ns);
void ps_image_tether(ps_image_t *image, int64_t now_ns);
bool ps_image_emit(ps_image_t *image, ps_event_t *event);
/* Commands of this module; false = not one of them. */
bool ps_image_on_command(ps_receiver_t *receiver, const ps_command_t *command);
void ps_image_free(ps_image_t *image);

#endif
