/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication.h: a publication as the sender sees it: a log, where it was sent to, who reads it
 * here, who receives it there.  Network publication: endpoint set.  IPC: endpoint NULL.
 *
 *   clean     snd-pos          pub-pos   pub-lmt
 *     |----------|----------------|---------|            (all positions; snd-lmt anywhere >=
 * snd-pos)      history    to be sent       room
 *
 * Everything belongs to the sender thread, save what is marked.
 */
#ifndef PS_PUBLICATION_H
#define PS_PUBLICATION_H

#include "ps_allowance.h"
#include "ps_context.h"
#include "ps_error.h"
#include "ps_publication_params.h"
#include "ps_sender_agent.h"
#include "ps_shared.h"
#include "ps_wake.h"
#include "ps_flow_control.h"
#include "ps_wire_nak_list.h"
#include "ps_log.h"
#include "ps_pressure_control.h"
#include "ps_wire_pressure.h"
#include "ps_pacer.h"
#include "ps_retransmit.h"
#include "ps_tether.h"

enum {
    PS_PUBLICATION_SUBSCRIBERS = 64,
    PS_PUBLICATION_CLIENTS = 64,
    PS_PUBLICATION_QUARANTINE = 16,
    PS_PUBLICATION_RECEIVERS_UNICAST = 64,
    PS_PUBLICATION_RECEIVERS_GROUP = 2048 /* as many as a dynamic list has places */
};

enum ps_publication_state {
    PS_PUBLICATION_ACTIVE = 0,
    PS_PUBLICATION_DRAINING = 1,
    PS_PUBLICATION_DRAINED = 2
};

/* Events that the ring did not take yet, in the order of emission: releases before requests. */
enum ps_publication_pending {
    PS_PEND_CONNECTED = 1,
    PS_PEND_DRAINED = 2,
    PS_PEND_EOS_ACK = 4,
    PS_PEND_TETHER = 8,
    PS_PEND_TERMS_RELEASED = 16,
    PS_PEND_TERM = 32,
    PS_PEND_UNBLOCKED = 64,
    PS_PEND_CORRUPT = 128,
    PS_PEND_JOIN = 256,
    PS_PEND_LAST = PS_PEND_JOIN
};

typedef struct ps_snapshot_entry ps_snapshot_entry_t; /* ps_receiver_snapshot.c */

typedef struct ps_publication_receiver {
    int64_t id;
    int64_t heard_ns;
    int64_t edge;          /* position + window of its last status message */
    uint32_t capabilities; /* of its trailer; 0 a plain Aeron peer */
    uint32_t reason;       /* ps_cause it states for itself */
    int64_t reason_client;
    ps_receiver_view_t view; /* as shown on the snapshot */
} ps_publication_receiver_t;

typedef struct ps_publication_subscriber {
    int32_t counter_id;
    int32_t client_slot;
    _Atomic int64_t *cell; /* sub-pos, written by the client */
    int64_t position;      /* last value that made sense */
    ps_tether_t tether;
    bool tether_pending; /* its state change is still to be reported */
} ps_publication_subscriber_t;

/* A claim that was padded over while its owner may come back. */
typedef struct ps_publication_quarantine {
    int32_t client_slot;
    int64_t client_id;
    uint64_t claims_lost; /* released when the client counted up to this */
    int64_t from;
    int64_t to;
} ps_publication_quarantine_t;

/* Two threads write a publication.  Each group begins a line of its own, so that a store of one
 * thread never takes a line from the other; ps_publication_add allocates it aligned. */
struct ps_publication {
    /* line: constant once the sender has it */
    int64_t id;
    const ps_context_t *context;
    ps_sender_t *sender;
    ps_send_endpoint_t *endpoint; /* NULL: IPC */
    ps_publication_params_t params;
    ps_log_t log;
    ps_publication_slot_t *slot;
    ps_index_ring_t *ring;
    ps_time_table_t *times;
    int64_t window_bytes;
    _Atomic int64_t *limit_cell, *position_cell, *sender_position_cell, *sender_limit_cell,
        *back_pressure_cell, *naks_cell, *receivers_cell;
    int32_t receiver_capacity;
    bool rated; /* any bucket of a rate may bind */
    bool nak;   /* NAK-strength control */
    /* [receiver_capacity], for the conductor, and after them the receiver last held for */
    ps_snapshot_entry_t *snapshot;
    ps_publication_receiver_t *receivers;
    /* line: conductor */
    alignas(PS_LINE) int32_t subscribers_requested;
    int32_t clients_requested;
    /* line: sender, read by the conductor (ps_publication_get_status) */
    alignas(PS_LINE) _Atomic int64_t status_consumer;
    _Atomic int64_t status_signals; /* PRESSURE frames heard */
    _Atomic int32_t status_connected;
    _Atomic int32_t status_receivers;
    /* line: sender, read by no other thread */
    alignas(PS_LINE) _Atomic int64_t unused_cell; /* stands in for counters that are not there */
    /* sender: positions */
    int64_t sender_position;
    int64_t sender_limit;
    int64_t publisher_limit;
    int64_t producer_position; /* as last read */
    int64_t clean_position;    /* zero below, as far as the history goes */
    int64_t consumer_position; /* IPC: furthest reader so far */
    int64_t reserved_position; /* storage */
    int64_t kept_position;     /* no memory below: the stream began here, or gave it up */
    int64_t rests_at;          /* producer position when storage was released; -1 */
    int64_t released_to;       /* answer to PS_SC_RELEASE_TERMS; -1 nothing */
    int64_t end_position;      /* draining: final producer position */
    int64_t sent_ordinal;
    int64_t index_position, index_ns;
    int64_t timed_position; /* of the newest time */
    /* sender: state */
    int32_t state;    /* ps_publication_state */
    uint32_t pending; /* ps_publication_pending */
    bool connected, has_initial_connection, has_receivers, setup_elicited, end_of_stream, revoked,
        corrupt, eos_acked, back_pressured, short_send, window_shut, cleaning_behind,
        storage_clamped, quarantine_clamped, limit_raised, removed;
    bool adopted_connection; /* connected by a dead daemon, not heard of since */
    int64_t adopted_until_ns;
    bool in_ready, in_watch, hot;
    /* sender: how busy (ps_sender_hot.c) */
    int64_t hot_ns;          /* news last found while hot */
    int64_t hot_tail;        /* readers were woken for what lies below */
    int64_t hot_tail_ns;     /* when that was checked */
    int64_t counted_ordinal; /* published_ordinal when last taken from the bitmap */
    int64_t counted_ns;
    int32_t busy_checks; /* in a row that found many messages */
    /* sender: timers */
    int64_t setup_sent_ns; /* INT64_MIN/2: never */
    int64_t data_sent_ns;
    int64_t heartbeat_sent_ns; /* data or heartbeat, whichever later */
    int64_t receivers_check_ns;
    int64_t blocked_position; /* where the consumer stands */
    int64_t blocked_since_ns;
    int64_t blocked_reported; /* position + 1 of the last PS_EV_PUB_BLOCKED */
    int64_t term_needed_ns;   /* last PS_EV_TERM_NEEDED */
    int64_t term_needed_for;
    int64_t unblocked_at, unblocked_bytes;
    int64_t tether_check_ns;
    bool timers_started;
    /* sender: who */
    ps_fc_t fc;
    int32_t join_verdict; /* ps_join_verdict to be reported, of join_id at join_from */
    int64_t join_id;
    ps_addr_t join_from;
    int64_t join_refused;     /* refusals since the last report, that one included */
    int64_t join_notified_ns; /* last report of a refusal */
    ps_retransmit_t retransmit;
    ps_pacer_t congestion_pace;         /* by the rate a congestion-controlled receiver states */
    ps_pacer_t repair;                  /* budget of bytes that may be retransmitted */
    ps_pacer_t byte_rate, message_rate; /* ps-rate */
    ps_pacer_t pressure_pace;           /* the rate of pressure_control */
    ps_pressure_control_t pressure_control;
    ps_pressure_signal_t local_signal; /* IPC under nak: the readers' queue as a receiver sees it */
    ps_pressure_reader_t local_reader; /* the slowest of them */
    int64_t
        pressure_binds_until_ns; /* the NAK rate held data back less than 200 ms before; 0: not */
    int64_t rate_due_ns;         /* a bucket above is empty until then; INT64_MAX none */
    int64_t rate_position;       /* IPC: counted up to here */
    int32_t rate_cause;          /* ps_cause, or none: no bucket above binds */
    /* sender: how far ps-rate admits (ps_publication_admit.c) */
    ps_allowance_t byte_allowance, message_allowance;
    int64_t padding_bytes;   /* of the log that did not travel: padding goes as its header */
    int64_t spent;           /* messages admitted, as last read */
    int64_t spent_uncounted; /* of these, beyond sent_ordinal when nothing was in flight */
    int64_t admit_due_ns;    /* a limit of a rate rises then; INT64_MAX: none that is reached */
    bool bytes_bind, messages_bind;             /* the rate is used up */
    bool bytes_lead_binds, messages_lead_binds; /* a tenth of a second of it is not sent */
    int64_t paced_until_ns;                     /* a bucket is empty until then; INT64_MAX none */
    bool paced;                                 /* the congestion bucket ended the last turn */
    ps_map_t receiver_index;                    /* receiver id -> index + 1 */
    int32_t receiver_count;
    int32_t receivers_shown; /* fc-receivers */
    ps_publication_subscriber_t subscribers[PS_PUBLICATION_SUBSCRIBERS];
    int32_t subscriber_count;
    int32_t gating_count; /* as of the last look */
    int64_t slowest_position, fastest_position;
    int32_t slowest_client_slot;
    int32_t clients[PS_PUBLICATION_CLIENTS];
    int32_t client_count;
    ps_publication_quarantine_t quarantine[PS_PUBLICATION_QUARANTINE];
    int32_t quarantine_count;
    /* sender: lists */
    ps_publication_t *next_ready, *next_watch, *prev_watch, *next_bucket, *next_released;
    int32_t index;     /* in the sender's dense arrays */
    int64_t *due_ns;   /* its entry there: when its timers are due */
    int64_t no_due_ns; /* stands in for that once removed */
};

static inline ps_sender_t *ps_publication_sender(const ps_publication_t *pub)
{
    return pub->sender;
}
static inline int64_t ps_publication_term(const ps_publication_t *pub)
{
    return pub->log.term_length;
}

/* From where on a receiver may miss what was sent. */
static inline int64_t ps_publication_sent_floor(const ps_publication_t *pub)
{
    return pub->sender_position -
           ps_log_repair_reach(ps_publication_term(pub), pub->log.mtu, pub->nak);
}

/* ---- ps_publication_send.c ------------------------------------------------------------------- */

/* One turn: a slice of retransmission, then of new data (network), then the limit.  *more: there is
 * work left that can be done now.  Returns bytes sent.  Bound: PS_TURN_*. */
int32_t ps_publication_turn(ps_publication_t *pub, int64_t now_ns, bool *more);
/* Writes its SETUP, at most PS_CONTROL_MAX bytes; returns the length. */
uint32_t ps_publication_build_setup(const ps_publication_t *pub, uint8_t *out);
/* SETUP / heartbeat, if due.  False: could not be sent. */
bool ps_publication_send_setup(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_send_heartbeat(ps_publication_t *pub, int64_t now_ns);
/* Counts messages in [sender position, to) and moves there (spies stand for receivers).  Bound:
 * 4096 frames; false: not there yet. */
bool ps_publication_skip_to(ps_publication_t *pub, int64_t to);
/* Appends to the index ring when position moved far or long enough.  ordinal -1: not known. */
void ps_publication_add_index(ps_publication_t *pub, int64_t position, int64_t ordinal,
                              int64_t now_ns);
void ps_publication_move_sender(ps_publication_t *pub, int64_t position, int64_t messages,
                                int64_t now_ns);

/* Nothing below is retransmitted. */
int64_t ps_publication_resend_floor(const ps_publication_t *pub);

/* ---- ps_publication_pace.c ------------------------------------------------------------------- */

void ps_publication_pace_init(ps_publication_t *pub);
/* A status message: takes its pacing rate (unicast). */
void ps_publication_on_congestion(ps_publication_t *pub, const ps_sm_t *sm, int64_t now_ns);
/* True: nothing may leave (may be retransmitted) now; the publication becomes ready when it may.
 * */
bool ps_publication_pace_shut(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_repair_shut(ps_publication_t *pub, int64_t now_ns);
/* So much left: new data, and repairs. */
void ps_publication_paced(ps_publication_t *pub, int64_t fresh_bytes, int64_t repair_bytes);
/* Timer; returns when to check again. */
int64_t ps_publication_pace_timer(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_cause.c ------------------------------------------------------------------ */

/* Binds what holds producers now, or nothing, in the account of the slot.  Bound: the receivers. */
void ps_publication_account(ps_publication_t *pub, int64_t now_ns);
/* A receiver said something of itself: the account repeats it if that one holds the publication. */
void ps_publication_account_restated(ps_publication_t *pub,
                                     const ps_publication_receiver_t *receiver);

/* ---- ps_publication_limit.c ------------------------------------------------------------------ */

/* Reads producer and local readers, moves pub-lmt, binds the cause, sets wake_position, wakes those
 * who wait for room.  sending: a further turn follows at once.  True: cleaning is behind, call
 * again soon. */
bool ps_publication_update(ps_publication_t *pub, bool sending, int64_t now_ns);
/* Recomputes is_connected and tells. */
void ps_publication_update_connected(ps_publication_t *pub, int64_t now_ns);
void ps_publication_release_quarantine(ps_publication_t *pub);
/* Zeroes what the consumers left a term ago, a bounded piece of it. */
void ps_publication_clean_behind(ps_publication_t *pub);

/* ---- ps_publication_idle.c ------------------------------------------------------------------- */

/* Releases the terms that are not in use, if it can; reports the result in any case. */
void ps_publication_on_release_terms(ps_publication_t *pub, int32_t least_terms);

/* ---- ps_publication_subscribers.c ----------------------------------------------------------- */

/* New data may be there: wakes parked local readers (fences once). */
void ps_publication_wake_subscribers(ps_publication_t *pub);
void ps_publication_wake_clients(ps_publication_t *pub);
/* Whether a client set the dirty flag and then not the bit: it was killed or stopped in between,
 * or is just there. No publisher would set the bit any more. */
bool ps_publication_is_forgotten(const ps_publication_t *pub);
/* As if a publisher had set the flag and the bit: for one that died before it could. */
void ps_publication_check_again(ps_publication_t *pub);
/* Reads the local readers' positions into slowest/fastest.  True when any moved. */
bool ps_publication_read_subscribers(ps_publication_t *pub);
/* Returns after how long to check again. */
int64_t ps_publication_step_tethers(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_add_reader(ps_publication_t *pub, const ps_subscriber_params_t *params,
                               int64_t now_ns);
void ps_publication_remove_reader(ps_publication_t *pub, int32_t counter_id);
/* Somebody reads locally or gates: true when a parked sender must be up for a reader's progress. */
bool ps_publication_wants_sender(const ps_publication_t *pub);

/* ---- ps_publication_timer.c ------------------------------------------------------------------ */

/* All timers; sets when they are due. */
void ps_publication_on_timer(ps_publication_t *pub, int64_t now_ns);
/* Draining: is everything sent and read? */
void ps_publication_check_drained(ps_publication_t *pub);
void ps_publication_start_drain(ps_publication_t *pub, int64_t now_ns);
void ps_publication_start_revoke(ps_publication_t *pub, int64_t now_ns);
/* Emits what is pending. */
void ps_publication_flush_events(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_unblock.c ---------------------------------------------------------------- */

/* Explicit: the client in client_slot is dead (-1: any blocking claimer). */
void ps_publication_unblock_client(ps_publication_t *pub, int32_t client_slot, int64_t now_ns);
/* A turn that found something: starts the clock of a stuck claim. */
void ps_publication_note_blocked(ps_publication_t *pub, int64_t now_ns);
/* Timer: pads over a claim that blocks too long. Returns when to check again. */
int64_t ps_publication_check_blocked(ps_publication_t *pub, int64_t now_ns);
/* True when the producer is ahead of the consumer with nothing readable there. */
bool ps_publication_is_blocked(const ps_publication_t *pub, int64_t *position);

/* ---- ps_publication_receivers.c ------------------------------------------------------------- */

void ps_publication_on_sm(ps_publication_t *pub, const ps_sm_t *sm, int64_t position,
                          const ps_addr_t *from, int64_t now_ns);
void ps_publication_on_nak(ps_publication_t *pub, const ps_nak_t *nak, int64_t now_ns);
void ps_publication_on_nak_list(ps_publication_t *pub, const ps_nak_list_t *list, int64_t now_ns);
/* A receiver rejected the stream: it counts no more, until it sends a status message. */
void ps_publication_on_error(ps_publication_t *pub, const ps_err_t *err, const ps_addr_t *from,
                             int64_t now_ns);
/* Shows the receiver that the group is held for, if it is. */
void ps_publication_show_joiner(ps_publication_t *pub, int64_t now_ns);
/* The strategy's timer: evicts, recomputes the limit.  Returns when to call again. */
int64_t ps_publication_step_flow_control(ps_publication_t *pub, int64_t now_ns);
/* A limit of a custom strategy, which counts until until_ns. */
void ps_publication_set_custom_limit(ps_publication_t *pub, int64_t limit, int64_t until_ns,
                                     int64_t now_ns);
/* Forgets receivers not heard for the connection timeout.  Returns when to check again. */
int64_t ps_publication_expire_receivers(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_receiver_snapshot.c ------------------------------------------------------------------ */

ps_snapshot_entry_t *ps_snapshot_make(int32_t capacity);
void ps_snapshot_write(ps_snapshot_entry_t *snapshot, int32_t index,
                       const ps_receiver_view_t *view);

/* ---- ps_publication_rate.c ------------------------------------------------------------------- */

void ps_publication_rate_init(ps_publication_t *pub);
/* Bytes and messages that ps-rate and NAK-strength let leave now; INT64_MAX: no limit. */
int64_t ps_publication_rate_room(ps_publication_t *pub, int64_t now_ns);
int64_t ps_publication_message_room(ps_publication_t *pub, int64_t now_ns);
/* True: nothing may leave; a timer is set for when it may. */
bool ps_publication_rate_shut(ps_publication_t *pub, int64_t now_ns);
void ps_publication_rate_sent(ps_publication_t *pub, int64_t bytes, int64_t messages,
                              int64_t now_ns);
int64_t ps_publication_rate_timer(ps_publication_t *pub, int64_t now_ns);
/* The publication window while the rate of NAK-strength control binds. */
int64_t ps_publication_rate_window(const ps_publication_t *pub, int64_t window_bytes);
/* IPC under NAK-strength control: how far producers may go, at most want. */
int64_t ps_publication_rate_limit(ps_publication_t *pub, int64_t want, int64_t now_ns);
void ps_publication_on_pressure(ps_publication_t *pub, const ps_pressure_t *pressure,
                                int64_t now_ns);

/* ---- ps_publication_admit.c ------------------------------------------------------------------ */

/* Conductor: before a client may open the publication. */
void ps_publication_admit_init(ps_publication_t *pub);
/* How far ps-rate lets producers go, at most want; states the ordinal limit. */
int64_t ps_publication_admit(ps_publication_t *pub, int64_t want, int64_t now_ns);
/* At the last look producers had taken every ordinal that they may. */
bool ps_publication_admits_no_message(const ps_publication_t *pub);

void ps_publication_free(ps_publication_t *pub);

/* A frame's aligned length if it may lie at offset, else -1.  Lengths come from other processes. */
static inline int32_t ps_publication_checked_span(const ps_publication_t *pub,
                                                  const ps_frame_t *frame, int32_t length,
                                                  int32_t offset)
{
    const int32_t rest = pub->log.term_length - offset;
    if (length < PS_HEADER_BYTES || length > rest) {
        return -1;
    }
    const int32_t span = ps_align32(length);
    const bool fits =
        frame->type == PS_TYPE_PAD || (frame->type == PS_TYPE_DATA && span <= pub->log.mtu);
    return span <= rest && fits ? span : -1;
}

static inline bool ps_publication_frame_is_there(const ps_publication_t *pub, int64_t position)
{
    return ps_frame_length_acquire(ps_frame_at(&pub->log, position)) > 0;
}

/* How often a blocked publication is checked. */
int64_t ps_publication_check_interval_ns(const ps_publication_t *pub);

#endif
