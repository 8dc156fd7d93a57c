/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication.h: the sender's state of a publication: its log, its positions, its local readers
 * and its receivers. The field `endpoint` is NULL if the publication is on IPC.
 *
 *   clean     snd-pos          pub-pos   pub-lmt
 *     |----------|----------------|---------|            (all positions; snd-lmt anywhere >=
 * snd-pos)      history    to be sent       room
 *
 * The sender thread owns all fields, except those below a comment that names another thread. */
#ifndef PS_PUBLICATION_H
#define PS_PUBLICATION_H

#include "ps_allowance.h"
#include "ps_bands.h"
#include "ps_context.h"
#include "ps_credit.h"
#include "ps_error.h"
#include "ps_publication_params.h"
#include "ps_publication_pressure.h"
#include "ps_sender_agent.h"
#include "ps_shared.h"
#include "ps_wake.h"
#include "ps_flow_control.h"
#include "ps_wire_nak_list.h"
#include "ps_isolation.h"
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
    PS_PUBLICATION_RECEIVERS_GROUP = 2048 /* A dynamic multi-destination channel has at most this
                                           * number of destinations. */
};

enum ps_publication_state {
    PS_PUBLICATION_ACTIVE = 0,
    PS_PUBLICATION_DRAINING = 1,
    PS_PUBLICATION_DRAINED = 2
};

/* Events that the sender must still emit. The sender emits the event with the lowest bit first, and
 * so reports released memory before it requests memory. */
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
    PS_PEND_TRIGGERED = 512,
    PS_PEND_RELIEVED = 1024,
    PS_PEND_LAST = PS_PEND_RELIEVED
};

typedef struct ps_snapshot_entry ps_snapshot_entry_t; /* ps_receiver_snapshot.c */

typedef struct ps_publication_receiver {
    int64_t id;
    int64_t heard_ns;
    int64_t edge;          /* Position + window of the receiver's last status message. */
    int64_t consumed;      /* Highest position that the receiver has stated in a status message. */
    uint32_t capabilities; /* Capabilities in the receiver's trailer; 0: an Aeron receiver. */
    uint32_t reason;       /* Cause (ps_cause) of the receiver's limit, from its status message. */
    int64_t reason_client;
    int64_t pacing_rate;  /* Bytes a second that the receiver states; INT64_MAX: it states none. */
    int64_t credit_limit; /* Message number up to which the receiver has granted credits;
                           * PS_CREDIT_OPEN: no limit. */
    uint32_t credit_epoch;
    bool credit_frozen;
    bool credit_answer;      /* 1: the receiver waits for a CREDIT frame */
    ps_receiver_view_t view; /* its entry of the snapshot */
} ps_publication_receiver_t;

typedef struct ps_publication_subscriber {
    int32_t counter_id;
    int32_t client_slot;
    _Atomic int64_t *cell; /* sub-pos, written by the client */
    int64_t position;      /* last valid value */
    ps_tether_t tether;
    ps_isolation_t isolation;
    ps_credit_reader_t credit;
    bool tether_pending; /* True if the sender must still report the reader's new tether state. */
} ps_publication_subscriber_t;

/* The last status message that the sender processed. While the publication rests, the sender need
 * not process an identical status message (ps_publication_rest.c). */
typedef struct ps_publication_heard {
    uint32_t length; /* bytes; 0: none */
    ps_addr_t from;
    int64_t sender_position; /* when it was processed */
    int64_t sender_limit;
    uint8_t bytes[160];
} ps_publication_heard_t;

/* Credits of a stream (ps_publication_credit.c). An ordinal is the number of a message in the
 * stream; on IPC the count begins when the first reader grants credits. */
typedef struct ps_publication_credits {
    bool on;      /* True if a receiver or a local reader of the stream grants credits. */
    bool stale;   /* A receiver has changed the credits that it grants, so the sender must compute
                   * `limit` again. */
    bool revoked; /* A reader has frozen its credits, so publishers may take no credits. */
    bool settled; /* True if `revoked` is true and publishers have used or returned all credits that
                   * they had taken. */
    bool answer;  /* A receiver waits for a CREDIT frame from the sender. */
    bool binds;   /* publishers have taken all */
    bool held;    /* the reader that set `limit` has left */
    bool network_frozen;
    bool awaited_frozen;   /* True if publishers could take no credits when the daemon adopted the
                            * stream. */
    bool awaits;           /* True in an adopted stream while `awaited_limit` applies. */
    bool granters_changed; /* A receiver began or ceased to grant credits. */
    int32_t awaited;       /* number of granting receivers that the new daemon has not heard */
    int64_t awaited_limit; /* Credit limit at the adoption, which applies while `awaits` is true. */
    int64_t awaited_until_ns;
    uint64_t granters[PS_GRANTER_WORDS]; /* Filter of the dead daemon's granting receivers. */
    uint64_t arrived[PS_GRANTER_WORDS];  /* Filter of those that the new daemon has heard. */
    int32_t readers;                     /* local readers that grant */
    int32_t plain;                       /* remote receivers that grant nothing */
    int64_t network;       /* Lowest credit limit of a remote receiver; PS_CREDIT_OPEN: none. */
    int64_t network_who;   /* that receiver's id */
    int64_t limit;         /* ordinals that publishers may take */
    int64_t send_limit;    /* Ordinal up to which the sender may send. This ordinal is at least
                            * epoch_ordinal, because a new epoch does not revoke credits that
                            * publishers have taken. */
    int64_t base;          /* Difference between the message count in the word `spend` (ps_spend.h)
                            * and the ordinal of the same message. */
    int64_t spent;         /* Message count that the sender last read from the word `spend`. */
    int64_t leased;        /* credits that the exclusive publisher took and did not use yet */
    int64_t spent_on;      /* Message count in the word `spend` when credits were turned on. */
    int64_t epoch_ordinal; /* Number of credits already taken when the present epoch began. */
    int64_t culprit;       /* Id of the receiver or client with the lowest credit limit. If
                            * culprit_slot >= 0, this is the id of a client. */
    int32_t culprit_slot;
    uint32_t local_epoch;
    ps_counted_t counted; /* IPC: messages of the log */
    int64_t counted_dropped;
} ps_publication_credits_t;

/* A depth in messages (ps_publication_depth.c). Ordinals are message counts as in the word `spend`
 * (ps_spend.h). */
typedef struct ps_publication_depth {
    int64_t low;      /* constant: low watermark, in messages */
    int64_t limit;    /* Ordinal up to which publishers may publish; INT64_MAX: the stream has no
                       * depth in messages. */
    int64_t used;     /* number of ordinals that publishers had used at the last check */
    int64_t left;     /* ordinal of the first message that is unsent (on IPC: unread) */
    int64_t ahead;    /* number of unsent messages (on IPC: unread messages) at the last check */
    int64_t position; /* Position up to which the sender has counted `left`; -1: unknown. */
    bool binds;       /* publishers have reached `limit` */
} ps_publication_depth_t;

/* Memory of a claim. The sender has replaced the claim with padding, but the claim's slow publisher
 * may still write into this memory. */
typedef struct ps_publication_quarantine {
    int32_t client_slot;
    int64_t client_id;
    uint64_t claims_lost; /* The sender may zero the memory when the count of failed commits in the
                           * client's slot (claims_lost) has reached this value. */
    int64_t from;
    int64_t to;
} ps_publication_quarantine_t;

/* The sender and the conductor write to a publication. Each group of fields begins a new cache
 * line, so that a store of one thread never invalidates a cache line of the other thread. The
 * function that creates a publication aligns the struct to a cache line. */
struct ps_publication {
    /* line: constant after the hand-over */
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
    bool rated; /* True if a rate (ps-rate or NAK-strength control) may limit the stream. */
    bool nak;   /* NAK-strength control */
    /* Array of receiver_capacity + 1 entries. The conductor reads this array. The last entry
     * describes the receiver that caused the last join hold (ps_join.h). */
    ps_snapshot_entry_t *snapshot;
    ps_publication_receiver_t *receivers;
    /* line: conductor */
    alignas(PS_LINE) int32_t subscribers_requested;
    int32_t clients_requested;
    /* Cache line that the sender writes and the conductor reads (ps_publication_get_status) */
    alignas(PS_LINE) _Atomic int64_t status_consumer;
    _Atomic int64_t status_signals; /* PRESSURE frames heard */
    _Atomic int32_t status_connected;
    _Atomic int32_t status_receivers;
    /* Cache lines that only the sender writes and reads */
    alignas(PS_LINE) _Atomic int64_t unused_cell; /* used for absent counters */
    /* sender: positions */
    int64_t sender_position;
    int64_t sender_limit;
    int64_t publisher_limit;
    int64_t producer_position; /* at the last read */
    int64_t clean_position;    /* Position up to which the sender has zeroed old memory of the log.
                                * Publishers can use zeroed memory for new terms. */
    int64_t consumer_position; /* On IPC: highest position that any reader has reached. */
    int64_t reserved_position; /* storage */
    int64_t kept_position;     /* The log has no memory below this position: the stream began here,
                                * or the sender released the memory. */
    int64_t rests_at;          /* Producer position when the sender last released unused terms.
                                * While the producer position is unchanged, the sender requests no
                                * storage. -1: no term is released. */
    int64_t released_to;       /* When the sender last executed PS_SC_RELEASE_TERMS, it kept the
                                * memory of the terms before this position; -1: the sender released
                                * no memory. */
    int64_t end_position;      /* draining: final producer position */
    int64_t sent_ordinal;
    int64_t index_position, index_ns;
    int64_t timed_position; /* Position that the newest entry of the time table records. */
    /* sender: state */
    int32_t state;    /* ps_publication_state */
    uint32_t pending; /* ps_publication_pending */
    bool connected, has_initial_connection, has_receivers, setup_elicited, end_of_stream, revoked,
        corrupt, eos_acked, back_pressured, short_send, window_shut, cleaning_behind,
        storage_clamped, quarantine_clamped, limit_raised, removed, greets; /* new receiver */
    /* sender: policy (ps_publication_policy.c) */
    bool drops;            /* constant: ps_policy_drops */
    bool paused;           /* 1: publishers have reached the publisher limit; the limit does not
                            * rise until the log has drained to low_watermark */
    int64_t low_watermark; /* constant, in bytes: the sender clears `paused` when `depth` has fallen
                            * to low_watermark */
    int64_t dropped_sent;  /* number of dropped messages that are counted in sent_ordinal */
    /* sender: watermarks (ps_publication_watermark.c) */
    int64_t depth;      /* Unsent bytes (on IPC: unread bytes) at the last check. */
    int64_t peak_depth; /* largest value of depth */
    ps_publication_depth_t message_depth;
    int64_t walked, walked_messages; /* On IPC with a policy: position up to which the sender has
                                      * counted messages, and the number of counted messages. */
    ps_publication_pressure_t pressure;
    bool adopted_connection; /* True if a new daemon adopted the publication in the connected state,
                              * and has heard no receiver yet. */
    int64_t adopted_until_ns;
    bool in_watch, hot;
    /* sender: how busy (ps_sender_hot.c) */
    int64_t hot_ns;          /* Time at which the sender last found new data in the hot stream. */
    int64_t hot_tail;        /* Position up to which the sender has woken the stream's readers. */
    int64_t hot_tail_ns;     /* when that was checked */
    int64_t counted_ordinal; /* Value of the slot's published_ordinal when the sender last found
                              * this publication in the dirty bitmap. */
    int64_t counted_ns;
    int32_t busy_checks; /* Number of consecutive checks that found many new messages. */
    ps_publication_credits_t credits;
    /* sender: timers */
    int64_t setup_sent_ns; /* INT64_MIN/2: never */
    int64_t data_sent_ns;
    int64_t heartbeat_sent_ns; /* Time at which the sender last sent data or a heartbeat. */
    int64_t receivers_check_ns;
    int64_t blocked_position; /* Consumer position at which the sender found an uncommitted claim
                               * that blocks the stream. */
    int64_t blocked_since_ns;
    int64_t blocked_reported; /* 1 + the position that the last PS_EV_PUB_BLOCKED reported. */
    int64_t term_needed_ns;   /* last PS_EV_TERM_NEEDED */
    int64_t term_needed_for;
    int64_t unblocked_at, unblocked_bytes;
    int64_t tether_check_ns;
    bool timers_started;
    bool resting; /* True if only heartbeats are due until the publication becomes ready or another
                   * timer is set (ps_publication_rest.c). */
    bool rest_kept;       /* True if rest_frame contains the heartbeat of the resting publication.
                           */
    int64_t rest_beat_ns; /* While the publication rests: time of its next heartbeat. */
    uint8_t rest_frame[PS_HEARTBEAT_BYTES];
    /* sender: receivers and flow control */
    ps_fc_t fc;
    int32_t join_verdict; /* Decision (ps_join_verdict) about a receiver that wants to join: the
                           * receiver join_id at address join_from. The sender must still report
                           * this decision. */
    int64_t join_id;
    ps_addr_t join_from;
    int64_t absent_id; /* Receiver that left or refused the stream last; 0: none. */
    ps_addr_t absent_address;
    int64_t join_refused;     /* Joining receivers that were refused a wait since the last report */
    int64_t join_notified_ns; /* Time of that report. */
    ps_retransmit_t retransmit;
    ps_pacer_t congestion_pace;         /* all data, by congestion control */
    int64_t highest_pace;               /* Highest pacing_rate of the receivers; 0: no receiver. */
    ps_pacer_t repair;                  /* Token bucket that limits the bytes of retransmits. */
    ps_pacer_t byte_rate, message_rate; /* ps-rate */
    ps_pacer_t pressure_pace;           /* the rate of pressure_control */
    ps_pressure_control_t pressure_control;
    ps_pressure_signal_t local_signal; /* On IPC with fc=nak: fill level of the readers' queue. */
    ps_pressure_reader_t local_reader; /* the slowest local reader */
    int64_t pressure_binds_until_ns;   /* Until this time, NAK-strength control is the cause that
                                        * the publication's account names; 0: it is not. */
    int64_t rate_due_ns;               /* When an empty rate bucket has tokens again; INT64_MAX: no
                                        * rate bucket is empty. */
    int64_t rate_position;             /* On IPC: published data is charged up to here. */
    int32_t rate_cause;                /* ps_cause of the empty rate bucket, or PS_CAUSE_NONE. */
    /* sender: admission by ps-rate (ps_publication_admit.c) */
    ps_allowance_t byte_allowance, message_allowance;
    int64_t padding_bytes;                      /* Number of padding bytes that the sender did not
                                                 * send: it sends only the header of a PAD frame. */
    int64_t spent;                              /* Number of messages admitted by ps-rate (the count
                                                 * in the word `spend`) at the last read. */
    int64_t spent_uncounted;                    /* `spent` minus the number of sent messages,
                                                 * measured when no message was unsent. From this
                                                 * value the sender computes the number of unsent
                                                 * messages. */
    int64_t admit_due_ns;                       /* Time at which the limit of ps-rate next rises,
                                                 * or at which the sender checks credits or the
                                                 * depth again; INT64_MAX: no limit is reached. */
    bool bytes_bind, messages_bind;             /* the rate is exhausted */
    bool bytes_lead_binds, messages_lead_binds; /* True if there is at least as much unsent data as
                                                 * the rate allows in 0.1 s. */
    int64_t paced_until_ns;                     /* Earliest time at which pacing allows the sender
                                                 * to send; INT64_MAX: pacing does not delay the
                                                 * stream. */
    bool paced;                                 /* True if congestion pacing ended the publication's
                                                 * last turn. */
    ps_map_t receiver_index;                    /* receiver id -> index + 1 */
    int32_t receiver_count;
    int32_t receivers_shown; /* fc-receivers */
    ps_publication_heard_t heard;
    ps_publication_subscriber_t subscribers[PS_PUBLICATION_SUBSCRIBERS];
    int32_t subscriber_count;
    int32_t gating_count; /* at the last check */
    int32_t isolated;     /* number of isolated readers, for which the stream does not wait */
    bool counting_behind; /* on IPC with isolated readers: true if frames are not yet counted */
    /* On IPC with isolated readers: the sender has counted the committed messages up to
     * committed_position. committed_ordinal is the message number at this position, counted from
     * PS_ORDINAL_FIRST. */
    int64_t committed_position, committed_ordinal;
    int64_t slowest_position, fastest_position;
    int32_t slowest_client_slot;
    int32_t clients[PS_PUBLICATION_CLIENTS];
    int32_t client_count;
    ps_publication_quarantine_t quarantine[PS_PUBLICATION_QUARANTINE];
    int32_t quarantine_count;
    /* sender: lists */
    ps_band_entry_t turn;   /* in the ready set */
    ps_band_entry_t resend; /* in the list of retransmits */
    int8_t band;            /* Band of the publication's priority, valid until priority_until_ns. */
    int64_t priority_until_ns;
    /* sender: governor (ps_sender_governor.c) */
    bool withheld;             /* true if the governor delays new data until withheld_until_ns */
    bool deferred;             /* while withheld: true if whole datagrams wait too */
    int64_t withheld_until_ns; /* while withheld */
    int64_t partial_since_ns;  /* Time since which the governor delays the data that comes next;
                                * -1: it delays none. */
    ps_publication_t *next_watch, *prev_watch, *next_bucket, *next_released;
    int32_t index;     /* in the sender's dense arrays */
    int64_t *due_ns;   /* the publication's entry in the sender's array of due times */
    int64_t no_due_ns; /* when the publication has been removed, due_ns points to this field */
};

static inline ps_sender_t *ps_publication_sender(const ps_publication_t *pub)
{
    return pub->sender;
}
static inline int64_t ps_publication_term(const ps_publication_t *pub)
{
    return pub->log.term_length;
}

/* Returns true if the stream has credits; if false, ps_publication_credit_ functions do nothing. */
static inline bool ps_publication_has_credits(const ps_publication_t *pub)
{
    return pub->credits.on || pub->credits.stale || pub->credits.readers > 0;
}

/* Returns the cell from which publishers read the publisher limit. */
static inline _Atomic int64_t *ps_publication_limit_cell(const ps_publication_t *pub)
{
    return pub->credits.on ? &pub->slot->credited_limit : pub->limit_cell;
}

/* Returns the lowest position from which a receiver may still request sent data. */
static inline int64_t ps_publication_sent_floor(const ps_publication_t *pub)
{
    return pub->sender_position -
           ps_log_repair_reach(ps_publication_term(pub), pub->log.mtu, pub->nak);
}

/* ---- ps_publication_send.c ------------------------------------------------------------------- */
/* Executes one turn of the publication: sends a slice of new data (network only), then moves the
 * publisher limit. Sets *more to true if a further turn of the publication would find work now.
 * Returns the number of bytes sent, in at most PS_TURN_DATAGRAMS datagrams. */
int32_t ps_publication_turn(ps_publication_t *pub, int64_t now_ns, bool *more);
/* Executes one turn of retransmits, with the same bounds as ps_publication_turn. */
int32_t ps_publication_repair_turn(ps_publication_t *pub, int64_t now_ns, bool *more);
/* Writes the publication's SETUP into `out` (at most PS_CONTROL_MAX bytes); returns its length. */
uint32_t ps_publication_build_setup(const ps_publication_t *pub, uint8_t *out);
/* Send a SETUP or a heartbeat, if it is due. Return false if the socket refused the frame. */
bool ps_publication_send_setup(ps_publication_t *pub, int64_t now_ns);
/* Encodes the stream's heartbeat, of PS_HEARTBEAT_BYTES. */
void ps_publication_build_heartbeat(const ps_publication_t *pub, uint8_t *out);
bool ps_publication_send_heartbeat(ps_publication_t *pub, int64_t now_ns);
/* For a publication with spies and no receiver: moves the sender position toward `to`, and counts
 * the messages on the way. One call moves over at most 4096 frames. Returns true if the sender
 * position has reached `to`. */
bool ps_publication_skip_to(ps_publication_t *pub, int64_t to);
/* Appends an entry to the index ring, if position or time have advanced far enough since the last
 * entry. The ordinal is -1 if it is unknown. */
void ps_publication_add_index(ps_publication_t *pub, int64_t position, int64_t ordinal,
                              int64_t now_ns);
void ps_publication_move_sender(ps_publication_t *pub, int64_t position, int64_t messages,
                                int64_t now_ns);
/* Returns the lowest position from which the sender retransmits data. */
int64_t ps_publication_resend_floor(const ps_publication_t *pub);

/* ---- ps_publication_pace.c ------------------------------------------------------------------- */
void ps_publication_pace_init(ps_publication_t *pub);
/* Applies the pacing rate that a status message of `receiver` states. */
void ps_publication_on_congestion(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                                  const ps_sm_t *sm, int64_t now_ns);
/* A receiver that stated `rate` has left the table. */
void ps_publication_pace_left(ps_publication_t *pub, int64_t rate, int64_t now_ns);
/* Return true if a pacing bucket is empty: _pace_shut checks the bucket for new data, _repair_shut
 * the bucket for retransmits. The publication becomes ready again when the bucket has tokens. */
bool ps_publication_pace_shut(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_repair_shut(ps_publication_t *pub, int64_t now_ns);
/* Charges the pacing buckets with the bytes of new data and of retransmits that the sender has
 * sent. */
void ps_publication_paced(ps_publication_t *pub, int64_t fresh_bytes, int64_t repair_bytes);
/* The timer of pacing. Returns the time at which the caller must repeat the call. */
int64_t ps_publication_pace_timer(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_cause.c ------------------------------------------------------------------ */
/* Finds the cause that blocks the publishers at present, and stores it in the publication's
 * account. Cost: visits all receivers. */
void ps_publication_account(ps_publication_t *pub, int64_t now_ns);
/* If this receiver is the culprit, copies its newest status message into the account. */
void ps_publication_account_restated(ps_publication_t *pub,
                                     const ps_publication_receiver_t *receiver);

/* ---- ps_publication_limit.c ------------------------------------------------------------------ */
/* Reads the positions of producer and local readers, moves pub-lmt, updates the account and
 * wake_position, and wakes clients that wait for room. Set `sending` if a further turn of the
 * publication follows at once. Returns true if further calls must zero more memory. */
bool ps_publication_update(ps_publication_t *pub, bool sending, int64_t now_ns);
/* Recomputes whether the publication is connected, and reports a change to the conductor. */
void ps_publication_update_connected(ps_publication_t *pub, int64_t now_ns);
void ps_publication_release_quarantine(ps_publication_t *pub);
/* Zeroes a part of the memory that lies more than a term behind all consumers; the size of this
 * part is bounded. */
void ps_publication_clean_behind(ps_publication_t *pub);

/* ---- ps_publication_idle.c ------------------------------------------------------------------- */
/* Releases the memory of terms that the publication does not use, if the state of the stream allows
 * a release. With or without a release, emits PS_EV_TERMS_RELEASED as the answer. */
void ps_publication_on_release_terms(ps_publication_t *pub, int32_t least_terms);

/* ---- ps_publication_subscribers.c ----------------------------------------------------------- */
/* Wakes all sleeping local readers for which data may be new, with a single memory fence. */
void ps_publication_wake_subscribers(ps_publication_t *pub);
void ps_publication_wake_clients(ps_publication_t *pub);
/* Returns true if the publication's dirty flag is set but its bit in the bitmap is not set. A
 * client stores the flag before the bit. The client is therefore between these two stores, or
 * was stopped or killed between them. While the dirty flag is set, no other publisher sets the bit.
 */
bool ps_publication_is_forgotten(const ps_publication_t *pub);
/* Sets the dirty flag and the bit in the bitmap in place of a publisher that died. */
void ps_publication_check_again(ps_publication_t *pub);
/* Reads the positions of the local readers, and updates slowest_position and fastest_position.
 * Returns true if a reader has moved. */
bool ps_publication_read_subscribers(ps_publication_t *pub);
/* Updates the tether states (ps_tether.h) of the local readers. Returns the time at which the
 * caller must repeat the call. */
int64_t ps_publication_step_tethers(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_add_reader(ps_publication_t *pub, const ps_subscriber_params_t *params,
                               int64_t now_ns);
void ps_publication_remove_reader(ps_publication_t *pub, int32_t counter_id);
/* Returns true if the publication has local readers; their progress must then wake the sender. */
bool ps_publication_wants_sender(const ps_publication_t *pub);

/* ---- ps_publication_timer.c ------------------------------------------------------------------ */
/* Runs all due timers of the publication, and stores the time at which the next timer is due. */
void ps_publication_on_timer(ps_publication_t *pub, int64_t now_ns);
/* Ends the draining of a closed publication when the sender has sent all data and the spies have
 * read all data. */
void ps_publication_check_drained(ps_publication_t *pub);
void ps_publication_start_drain(ps_publication_t *pub, int64_t now_ns);
void ps_publication_start_revoke(ps_publication_t *pub, int64_t now_ns);
/* Emits the pending events. */
void ps_publication_flush_events(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_unblock.c ---------------------------------------------------------------- */
/* Replaces the uncommitted claims of the dead client in client_slot with padding. If client_slot is
 * -1, replaces any claim that blocks the log. */
void ps_publication_unblock_client(ps_publication_t *pub, int32_t client_slot, int64_t now_ns);
/* Call this function after a turn in which the sender found data. If an uncommitted claim blocks
 * the stream, the function records the time at which the block began. */
void ps_publication_note_blocked(ps_publication_t *pub, int64_t now_ns);
/* The timer for blocked streams: if a claim has blocked the stream for too long, replaces the claim
 * with padding. Returns the time at which the caller must check again. */
int64_t ps_publication_check_blocked(ps_publication_t *pub, int64_t now_ns);
/* Returns true if a frame between the consumer position and the producer position is not committed
 * yet. */
bool ps_publication_is_blocked(const ps_publication_t *pub, int64_t *position);

/* ---- ps_publication_receivers.c ------------------------------------------------------------- */
void ps_publication_on_sm(ps_publication_t *pub, const ps_sm_t *sm, int64_t position,
                          const ps_addr_t *from, int64_t now_ns);
void ps_publication_on_nak(ps_publication_t *pub, const ps_nak_t *nak, int64_t now_ns);
void ps_publication_on_nak_list(ps_publication_t *pub, const ps_nak_list_t *list, int64_t now_ns);
/* Processes an ERR frame, with which a receiver rejects the stream. The sender then ignores this
 * receiver until a status message from it arrives. */
void ps_publication_on_error(ps_publication_t *pub, const ps_err_t *err, const ps_addr_t *from,
                             int64_t now_ns);
/* During a join hold (ps_join.h), stores the id and the address of the joining receiver, so that
 * the conductor can read both. */
void ps_publication_show_joiner(ps_publication_t *pub, int64_t now_ns);
/* The timer of flow control: removes silent receivers and recomputes the sender limit. Returns the
 * time at which the caller must repeat the call. */
int64_t ps_publication_step_flow_control(ps_publication_t *pub, int64_t now_ns);
/* Sets the sender limit that a custom strategy computed; the limit is valid until until_ns. */
void ps_publication_set_custom_limit(ps_publication_t *pub, int64_t limit, int64_t until_ns,
                                     int64_t now_ns);
/* Removes receivers that were silent for the connection time-out. Returns the time at which the
 * caller must repeat the check. */
int64_t ps_publication_expire_receivers(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_rest.c ------------------------------------------------------------------- */
/* Stores a processed status message, so that the sender recognises repetitions.
 */
void ps_publication_note_sm(ps_publication_t *pub, const uint8_t *data, uint32_t length,
                            const ps_addr_t *from);
/* Returns true if the status message is equal to the stored status message, and nothing has changed
 * since. If true, the function has stored the time at which the receiver was heard, and the sender
 * need not process the message. */
bool ps_publication_repeats_sm(ps_publication_t *pub, const uint8_t *data, uint32_t length,
                               const ps_addr_t *from, int64_t now_ns);

/* Returns the time of the next heartbeat (ps_publication_timer.c). quiet: the stream is idle. */
int64_t ps_publication_next_beat_ns(const ps_publication_t *pub, bool quiet, int64_t interval_ns);
/* Call this function after the timers of an idle stream have run. Sets `resting` to true if the
 * sender need only send heartbeats for the stream. */
void ps_publication_check_rest(ps_publication_t *pub);
/* Runs the timers of a resting publication. Returns the time at which the caller must call again;
 * 0: all timers of the publication must run again. */
int64_t ps_publication_rest(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_receiver_snapshot.c ------------------------------------------------------------------ */
ps_snapshot_entry_t *ps_snapshot_make(int32_t capacity);
void ps_snapshot_write(ps_snapshot_entry_t *snapshot, int32_t index,
                       const ps_receiver_view_t *view);
/* Changes only the field heard_ns of an entry. */
void ps_snapshot_heard(ps_snapshot_entry_t *snapshot, int32_t index, int64_t heard_ns);

void ps_publication_free(ps_publication_t *pub);

/* Returns the aligned length of a frame; -1 if a frame of this length is impossible at `offset`.
 * The check is necessary because another process wrote the length. */
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

/* Returns true if the publication counts as connected now. */
static inline bool ps_publication_is_read(const ps_publication_t *pub)
{
    if (pub->revoked) {
        return false;
    }
    if (pub->endpoint == NULL) {
        return pub->gating_count > 0;
    }
    return (pub->has_receivers && pub->fc.ops->has_required(&pub->fc)) ||
           (pub->params.spies_simulate_connection && pub->gating_count > 0);
}

/* Returns the interval at which the sender checks whether a publication is blocked. */
int64_t ps_publication_check_interval_ns(const ps_publication_t *pub);

#include "ps_publication_limits.h"

#endif
