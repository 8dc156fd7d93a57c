/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication.h: the sender's state of a publication: its log, its positions, its local readers
 * and its receivers. Network publication: endpoint is set. IPC: endpoint is NULL.
 *
 *   clean     snd-pos          pub-pos   pub-lmt
 *     |----------|----------------|---------|            (all positions; snd-lmt anywhere >=
 * snd-pos)      history    to be sent       room
 *
 * Owner: the sender thread, except the marked fields. */
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
    PS_PUBLICATION_RECEIVERS_GROUP = 2048 /* The same as the largest number of destinations of a
                                           * dynamic multi-destination channel. */
};

enum ps_publication_state {
    PS_PUBLICATION_ACTIVE = 0,
    PS_PUBLICATION_DRAINING = 1,
    PS_PUBLICATION_DRAINED = 2
};

/* Events that the sender must still emit, because the event ring was full. The order of the bits is
 * the order of emission: released memory is reported before memory is requested. */
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
    uint32_t capabilities; /* Capabilities in the receiver's last trailer; 0: it is Aeron. */
    uint32_t reason;       /* ps_cause that limits the receiver, from its last status message. */
    int64_t reason_client;
    int64_t credit_limit; /* Last ordinal that it grants; PS_CREDIT_OPEN: no limit. */
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
    bool tether_pending; /* The sender must still report a change of this reader's tether. */
} ps_publication_subscriber_t;

/* Credits of a stream (ps_publication_credit.c). An ordinal is the number of a message in the
 * stream; on IPC the count begins when the first reader grants credits. */
typedef struct ps_publication_credits {
    bool on;      /* True if a receiver or a local reader of the stream grants credits. */
    bool stale;   /* A receiver has changed its grant; the sender must compute the limit again. */
    bool revoked; /* Publishers may take no credits, because a reader has frozen its grant. */
    bool settled; /* Revoked, and publishers have used or returned all earlier credits. */
    bool answer;  /* True if a receiver waits for a CREDIT frame from the sender. */
    bool binds;   /* publishers have taken all */
    bool network_frozen;
    int32_t readers;       /* local readers that grant */
    int64_t network;       /* Lowest credit limit of a remote receiver; PS_CREDIT_OPEN: none. */
    int64_t network_who;   /* that receiver's id */
    int64_t limit;         /* ordinals that publishers may take */
    int64_t send_limit;    /* Ordinal up to which the sender may send. Messages for which publishers
                            * had taken credits when the epoch began are included. */
    int64_t base;          /* Count in the spent word (ps_spend.h) that means message ordinal 0. */
    int64_t spent;         /* Count that the sender last read from the spent word. */
    int64_t leased;        /* Number of credits that the exclusive publisher has yet to use. */
    int64_t spent_on;      /* Count in the spent word at the time when the stream got credits. */
    int64_t epoch_ordinal; /* Number of credits taken before the present epoch began. */
    int64_t culprit;       /* Receiver with the lowest limit; if culprit_slot >= 0: client. */
    int32_t culprit_slot;
    uint32_t local_epoch;
    ps_counted_t counted; /* IPC: messages of the log */
    int64_t counted_dropped;
} ps_publication_credits_t;

/* Memory of a claim that the sender replaced with padding, and into which the dead or slow
 * publisher may still write. */
typedef struct ps_publication_quarantine {
    int32_t client_slot;
    int64_t client_id;
    uint64_t claims_lost; /* At this count of the client, the sender may zero the memory. */
    int64_t from;
    int64_t to;
} ps_publication_quarantine_t;

/* Two threads write a publication. Each group of fields begins a new cache line, so that a store of
 * one thread never invalidates a cache line of the other thread. The creating function allocates
 * the struct aligned. */
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
    bool rated; /* True if the channel has a rate, so that a token bucket may limit the stream. */
    bool nak;   /* NAK-strength control */
    /* Array of receiver_capacity + 1 entries, which the conductor reads; the last is for
     * ps_join.h. */
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
    /* line: sender; no other thread reads these fields */
    alignas(PS_LINE) _Atomic int64_t unused_cell; /* used for absent counters */
    /* sender: positions */
    int64_t sender_position;
    int64_t sender_limit;
    int64_t publisher_limit;
    int64_t producer_position; /* at the last read */
    int64_t clean_position;    /* The sender has zeroed the memory below this position, back to the
                                * start of the data that the log retains. */
    int64_t consumer_position; /* On IPC: highest position that any reader has reached. */
    int64_t reserved_position; /* storage */
    int64_t kept_position;     /* The log has no memory below this position, because the stream
                                * began here or the sender released the memory. */
    int64_t rests_at;          /* Producer position when unused terms were released; -1: none
                                * were. */
    int64_t released_to;       /* Position to state in the answer to PS_SC_RELEASE_TERMS; -1:
                                * none. */
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
    bool paused;           /* 1: publishers reached the limit, which does not rise until the log
                            * drains to low_watermark */
    int64_t low_watermark; /* constant: bytes; `paused` ends when `depth` has fallen to this
                            * threshold */
    int64_t dropped_sent;  /* number of dropped messages that sent_ordinal includes */
    /* sender: watermarks (ps_publication_watermark.c) */
    int64_t depth;      /* Number of unsent bytes (on IPC: unread bytes) at the last check. */
    int64_t peak_depth; /* largest value of depth */
    int64_t walked, walked_messages; /* On IPC with a policy: counted up to here, and the count. */
    ps_publication_pressure_t pressure;
    bool adopted_connection; /* True if a new daemon adopted the publication in the connected state,
                              * and no receiver has been heard since. */
    int64_t adopted_until_ns;
    bool in_watch, hot;
    /* sender: how busy (ps_sender_hot.c) */
    int64_t hot_ns;          /* Time at which the sender last found new data in the hot stream. */
    int64_t hot_tail;        /* Position up to which the sender has woken the hot stream's
                              * readers. */
    int64_t hot_tail_ns;     /* when that was checked */
    int64_t counted_ordinal; /* Value of published_ordinal when the sender last found the
                              * publication's bit in the dirty bitmap. */
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
    /* sender: receivers and flow control */
    ps_fc_t fc;
    int32_t join_verdict; /* ps_join_verdict to report, about receiver join_id at join_from. */
    int64_t join_id;
    ps_addr_t join_from;
    int64_t join_refused;     /* Number of join holds refused since the last report. */
    int64_t join_notified_ns; /* Time at which the sender last reported a refused join hold. */
    ps_retransmit_t retransmit;
    ps_pacer_t congestion_pace;         /* new data, by congestion control */
    ps_pacer_t repair;                  /* Token bucket that limits the bytes of retransmits. */
    ps_pacer_t byte_rate, message_rate; /* ps-rate */
    ps_pacer_t pressure_pace;           /* the rate of pressure_control */
    ps_pressure_control_t pressure_control;
    ps_pressure_signal_t local_signal; /* On IPC with fc=nak: fill level of the readers' queue. */
    ps_pressure_reader_t local_reader; /* the slowest local reader */
    int64_t pressure_binds_until_ns; /* Until this time, NAK-strength control counts as the cause of
                                  * blocking; 0: it does not. */
    int64_t rate_due_ns;   /* Time at which the first empty bucket (of the rates above) has
                                  * tokens again; INT64_MAX: no bucket is empty. */
    int64_t rate_position; /* On IPC: position up to which the buckets were charged. */
    int32_t rate_cause;    /* ps_cause of the empty bucket, or PS_CAUSE_NONE. */
    /* sender: admission by ps-rate (ps_publication_admit.c) */
    ps_allowance_t byte_allowance, message_allowance;
    int64_t padding_bytes;   /* Bytes of padding skipped: a PAD leaves as a header only. */
    int64_t spent;           /* Number of messages admitted by ps-rate, as last read. */
    int64_t spent_uncounted; /* Difference between the admitted messages and sent_ordinal when all
                              * admitted messages had been sent. */
    int64_t admit_due_ns;    /* Time at which the ps-rate limit rises; INT64_MAX: not reached. */
    bool bytes_bind, messages_bind;             /* the rate is exhausted */
    bool bytes_lead_binds, messages_lead_binds; /* The unsent data equals 0.1 s of the rate. */
    int64_t paced_until_ns;                     /* Pacing allows to send then; INT64_MAX: now. */
    bool paced;                                 /* Congestion pacing ended the last turn. */
    ps_map_t receiver_index;                    /* receiver id -> index + 1 */
    int32_t receiver_count;
    int32_t receivers_shown; /* fc-receivers */
    ps_publication_subscriber_t subscribers[PS_PUBLICATION_SUBSCRIBERS];
    int32_t subscriber_count;
    int32_t gating_count; /* at the last check */
    int32_t isolated;     /* number of readers for which the stream does not wait */
    bool counting_behind; /* IPC with isolated readers: there are more frames to count */
    /* IPC with isolated readers: all frames below are committed and counted; messages from
     * PS_ORDINAL_FIRST on */
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
    bool withheld;             /* new data waits until withheld_until_ns */
    int64_t withheld_until_ns; /* while withheld */
    int64_t partial_since_ns;  /* The governor delays a partial datagram since then; -1: none. */
    ps_publication_t *next_watch, *prev_watch, *next_bucket, *next_released;
    int32_t index;     /* in the sender's dense arrays */
    int64_t *due_ns;   /* the publication's entry in the sender's array of due times */
    int64_t no_due_ns; /* memory that due_ns points to after the publication was removed */
};

static inline ps_sender_t *ps_publication_sender(const ps_publication_t *pub)
{
    return pub->sender;
}
static inline int64_t ps_publication_term(const ps_publication_t *pub)
{
    return pub->log.term_length;
}

/* Returns false if the stream has no credits; the other ps_publication_credit_ functions then have
 * no effect. */
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
 * publisher limit. Sets *more if the publication can do more work now. Returns bytes sent. Bound:
 * PS_TURN_DATAGRAMS datagrams, and the number of bytes that one turn may send. */
int32_t ps_publication_turn(ps_publication_t *pub, int64_t now_ns, bool *more);
/* Executes one turn of retransmits, with the same bounds as ps_publication_turn. */
int32_t ps_publication_repair_turn(ps_publication_t *pub, int64_t now_ns, bool *more);
/* Writes the publication's SETUP into `out` (at most PS_CONTROL_MAX bytes); returns its length. */
uint32_t ps_publication_build_setup(const ps_publication_t *pub, uint8_t *out);
/* Send a SETUP or a heartbeat, if it is due. Return false if the socket did not accept the
 * frame. */
bool ps_publication_send_setup(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_send_heartbeat(ps_publication_t *pub, int64_t now_ns);
/* For a publication with spies and no receiver: moves the sender position to `to` and counts the
 * passed messages. Bound: 4096 frames; false: `to` is not reached yet. */
bool ps_publication_skip_to(ps_publication_t *pub, int64_t to);
/* Appends an entry to the index ring if position or time have advanced far enough since the last
 * entry. ordinal is -1 if unknown. */
void ps_publication_add_index(ps_publication_t *pub, int64_t position, int64_t ordinal,
                              int64_t now_ns);
void ps_publication_move_sender(ps_publication_t *pub, int64_t position, int64_t messages,
                                int64_t now_ns);

/* Returns the lowest position from which the sender retransmits data. */
int64_t ps_publication_resend_floor(const ps_publication_t *pub);

/* ---- ps_publication_pace.c ------------------------------------------------------------------- */

void ps_publication_pace_init(ps_publication_t *pub);
/* Applies the pacing rate of a status message (unicast). */
void ps_publication_on_congestion(ps_publication_t *pub, const ps_sm_t *sm, int64_t now_ns);
/* Return true if a pacing bucket is empty, so that the sender may send no new data (no retransmits)
 * now. The publication becomes ready again when the bucket has tokens. */
bool ps_publication_pace_shut(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_repair_shut(ps_publication_t *pub, int64_t now_ns);
/* Charges the pacing buckets with the bytes of new data and of retransmits that the sender has
 * sent. */
void ps_publication_paced(ps_publication_t *pub, int64_t fresh_bytes, int64_t repair_bytes);
/* The timer of pacing. Returns the time at which it must be called next. */
int64_t ps_publication_pace_timer(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_cause.c ------------------------------------------------------------------ */

/* Updates the account in the slot with the cause that blocks the publishers now, if there is one.
 * Bound: the receivers. */
void ps_publication_account(ps_publication_t *pub, int64_t now_ns);
/* If this receiver is the culprit, copies what its newest status message states into the
 * account. */
void ps_publication_account_restated(ps_publication_t *pub,
                                     const ps_publication_receiver_t *receiver);

/* ---- ps_publication_limit.c ------------------------------------------------------------------ */

/* Reads the positions of producer and local readers, moves pub-lmt, updates the account and
 * wake_position, and wakes clients that wait for room. `sending` is true if a further turn follows
 * at once. Returns true if memory remains to be zeroed; the caller must then call it again soon. */
bool ps_publication_update(ps_publication_t *pub, bool sending, int64_t now_ns);
/* Recomputes whether the publication is connected, and reports a change to the conductor. */
void ps_publication_update_connected(ps_publication_t *pub, int64_t now_ns);
void ps_publication_release_quarantine(ps_publication_t *pub);
/* Zeroes a bounded piece of the memory that lies more than a term behind all consumers. */
void ps_publication_clean_behind(ps_publication_t *pub);

/* ---- ps_publication_idle.c ------------------------------------------------------------------- */

/* Releases the memory of unused terms if the stream allows this. Reports the result to the
 * conductor in any case. */
void ps_publication_on_release_terms(ps_publication_t *pub, int32_t least_terms);

/* ---- ps_publication_subscribers.c ----------------------------------------------------------- */

/* Wakes sleeping local readers, because there may be new data. Executes only one memory fence for
 * all readers. */
void ps_publication_wake_subscribers(ps_publication_t *pub);
void ps_publication_wake_clients(ps_publication_t *pub);
/* Returns true if the publication's dirty flag is set and its bit in the bitmap is not. Either a
 * client was killed or stopped between these two stores, or it is about to execute the second
 * store. While the flag is set, no other publisher sets the bit. */
bool ps_publication_is_forgotten(const ps_publication_t *pub);
/* Sets the dirty flag and the bit in the bitmap in place of a publisher that died before it set
 * them. */
void ps_publication_check_again(ps_publication_t *pub);
/* Reads the positions of the local readers, and updates slowest_position and fastest_position. True
 * if one moved. */
bool ps_publication_read_subscribers(ps_publication_t *pub);
/* Updates the tether states of the local readers (ps_tether.h). Returns the time at which it must
 * be called next. */
int64_t ps_publication_step_tethers(ps_publication_t *pub, int64_t now_ns);
bool ps_publication_add_reader(ps_publication_t *pub, const ps_subscriber_params_t *params,
                               int64_t now_ns);
void ps_publication_remove_reader(ps_publication_t *pub, int32_t counter_id);
/* Returns true if the publication has a local reader, whose progress must wake a sleeping
 * sender. */
bool ps_publication_wants_sender(const ps_publication_t *pub);

/* ---- ps_publication_timer.c ------------------------------------------------------------------ */

/* Runs all due timers of the publication, and sets the time of the next call. */
void ps_publication_on_timer(ps_publication_t *pub, int64_t now_ns);
/* Ends the draining of a closed publication if all its data was sent and read. */
void ps_publication_check_drained(ps_publication_t *pub);
void ps_publication_start_drain(ps_publication_t *pub, int64_t now_ns);
void ps_publication_start_revoke(ps_publication_t *pub, int64_t now_ns);
/* Emits the pending events. */
void ps_publication_flush_events(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_publication_unblock.c ---------------------------------------------------------------- */

/* Replaces the uncommitted claims of the dead client in client_slot with padding; -1: any claim
 * that blocks the log. */
void ps_publication_unblock_client(ps_publication_t *pub, int32_t client_slot, int64_t now_ns);
/* After a turn that found data: records since when an uncommitted claim blocks the stream. */
void ps_publication_note_blocked(ps_publication_t *pub, int64_t now_ns);
/* The timer for blocked claims: replaces a claim that has blocked the stream for too long with
 * padding. Returns the time of the next check. */
int64_t ps_publication_check_blocked(ps_publication_t *pub, int64_t now_ns);
/* Returns true if the producer is ahead of the consumer and the frame between them is not
 * committed. */
bool ps_publication_is_blocked(const ps_publication_t *pub, int64_t *position);

/* ---- ps_publication_receivers.c ------------------------------------------------------------- */

void ps_publication_on_sm(ps_publication_t *pub, const ps_sm_t *sm, int64_t position,
                          const ps_addr_t *from, int64_t now_ns);
void ps_publication_on_nak(ps_publication_t *pub, const ps_nak_t *nak, int64_t now_ns);
void ps_publication_on_nak_list(ps_publication_t *pub, const ps_nak_list_t *list, int64_t now_ns);
/* Processes an ERR frame with which a receiver rejects the stream: ignores this receiver until it
 * sends a status message. */
void ps_publication_on_error(ps_publication_t *pub, const ps_err_t *err, const ps_addr_t *from,
                             int64_t now_ns);
/* If a join hold is in force (ps_join.h), stores its receiver for the conductor. */
void ps_publication_show_joiner(ps_publication_t *pub, int64_t now_ns);
/* The timer of flow control: removes silent receivers and recomputes the sender limit. Returns the
 * time at which it must be called next. */
int64_t ps_publication_step_flow_control(ps_publication_t *pub, int64_t now_ns);
/* Sets the sender limit that a custom strategy computed, valid until until_ns. */
void ps_publication_set_custom_limit(ps_publication_t *pub, int64_t limit, int64_t until_ns,
                                     int64_t now_ns);
/* Removes receivers that were silent for the connection time-out. Returns the time of the next
 * check. */
int64_t ps_publication_expire_receivers(ps_publication_t *pub, int64_t now_ns);

/* ---- ps_receiver_snapshot.c ------------------------------------------------------------------ */

ps_snapshot_entry_t *ps_snapshot_make(int32_t capacity);
void ps_snapshot_write(ps_snapshot_entry_t *snapshot, int32_t index,
                       const ps_receiver_view_t *view);

/* ---- ps_publication_rate.c ------------------------------------------------------------------- */

void ps_publication_rate_init(ps_publication_t *pub);
/* Return the number of bytes and of messages that ps-rate and NAK-strength control allow now;
 * INT64_MAX: no limit. */
int64_t ps_publication_rate_room(ps_publication_t *pub, int64_t now_ns);
int64_t ps_publication_message_room(ps_publication_t *pub, int64_t now_ns);
/* Returns true if a rate forbids sending now; then sets a timer for the time at which sending is
 * allowed. */
bool ps_publication_rate_shut(ps_publication_t *pub, int64_t now_ns);
void ps_publication_rate_sent(ps_publication_t *pub, int64_t bytes, int64_t messages,
                              int64_t now_ns);
int64_t ps_publication_rate_timer(ps_publication_t *pub, int64_t now_ns);
/* Returns the publication window to use while the NAK-strength rate limits the stream. */
int64_t ps_publication_rate_window(const ps_publication_t *pub, int64_t window_bytes);
/* Returns the publisher limit of an IPC publication under NAK-strength control, at most `want`. */
int64_t ps_publication_rate_limit(ps_publication_t *pub, int64_t want, int64_t now_ns);
void ps_publication_on_pressure(ps_publication_t *pub, const ps_pressure_t *pressure,
                                int64_t now_ns);

/* ---- ps_publication_policy.c ----------------------------------------------------------------- */

/* Initialises the policy. Conductor thread, before a client may open the publication. */
void ps_publication_policy_init(ps_publication_t *pub);
/* For streams with a policy: returns true if publishers have reached the limit and the unsent data
 * is still above the low watermark, so that the limit must not rise. */
bool ps_publication_stays_paused(ps_publication_t *pub);
/* Returns true if publishers have dropped messages, and no padding frame in the log states their
 * number yet. */
bool ps_publication_owes_gap(const ps_publication_t *pub);
/* If there is room, writes a padding frame that states the number of dropped messages, and lets
 * publishers continue. True: it did. */
bool ps_publication_state_drops(ps_publication_t *pub);
/* Call when draining begins. Stores the producer position as the end of the stream. */
void ps_publication_close_end(ps_publication_t *pub);

/* ---- ps_publication_watermark.c -------------------------------------------------------------- */

void ps_publication_watermark_init(ps_publication_t *pub);
/* Updates the state of the watermarks (ps_watermark). Call it after the account was updated. `held`
 * is true if publishers have reached the publisher limit. Bound: 4096 frames. */
void ps_publication_step_watermark(ps_publication_t *pub, bool held, int64_t now_ns);
/* The timer for reports: emits the event of an episode that began too soon after the last report.
 * Returns the time at which it must be called next. */
int64_t ps_publication_watermark_timer(ps_publication_t *pub, int64_t now_ns);
/* Fills in the event PS_EV_PRESSURE, or PS_EV_PRESSURE_RELIEVED if `relieved` is true. */
void ps_publication_describe_pressure(const ps_publication_t *pub, bool relieved,
                                      ps_event_t *event);
/* Stores the depth (the number of unsent bytes) and its largest value; begins and ends no
 * episode. */
static inline void ps_publication_note_depth(ps_publication_t *pub, int64_t depth)
{
    pub->depth = depth;
    atomic_store_explicit(&pub->slot->depth_bytes, depth, memory_order_relaxed);
    if (depth > pub->peak_depth) {
        pub->peak_depth = depth;
        atomic_store_explicit(&pub->slot->peak_bytes, depth, memory_order_relaxed);
    }
}

/* ---- ps_publication_admit.c ------------------------------------------------------------------ */

/* Conductor thread, before a client can open the publication. */
void ps_publication_admit_init(ps_publication_t *pub);
/* Returns true if the stream has a ps-rate. */
static inline bool ps_publication_is_rated(const ps_publication_t *pub)
{
    return pub->message_allowance.rate > 0 || pub->byte_allowance.rate > 0;
}
/* Returns the publisher limit that ps-rate allows, at most `want`; also stores the limit of message
 * ordinals. */
int64_t ps_publication_admit(ps_publication_t *pub, int64_t want, int64_t now_ns);
/* Returns true if publishers had taken all admitted messages at the last check. */
bool ps_publication_admits_no_message(const ps_publication_t *pub);

/* ---- ps_publication_credit.c ----------------------------------------------------------------- */

/* Conductor thread, before a client can open the publication. */
void ps_publication_credit_init(ps_publication_t *pub);
/* Computes the credit limit from the grants of receivers and local readers. Returns true if
 * messages remain to be counted (on IPC); the caller must then call it again soon. Bound:
 * PS_CREDIT_SCAN frames, the receivers. */
bool ps_publication_credit_step(ps_publication_t *pub, int64_t now_ns);
/* Processes the credits that a status message grants. */
void ps_publication_credit_heard(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                                 const ps_sm_t *sm);
/* Call these functions when a local reader has joined, or has changed its grant. */
void ps_publication_credit_add(ps_publication_t *pub, ps_publication_subscriber_t *subscriber,
                               const ps_subscriber_params_t *params);
void ps_publication_credit_change(ps_publication_t *pub, const ps_credit_change_t *change);
/* Returns the number of messages that the sender may send under the credit limit; INT64_MAX: no
 * limit. */
int64_t ps_publication_credit_room(const ps_publication_t *pub);
/* Returns the number of leading bytes of a datagram in which at most `messages` messages end. The
 * datagram has `bytes` bytes and begins at `position`. */
int32_t ps_publication_credit_bytes(const ps_publication_t *pub, int64_t position, int32_t bytes,
                                    int64_t messages);
/* Returns the credit limit as a value of the count in the spent word: publishers take counts below
 * it. */
int64_t ps_publication_credit_ordinals(const ps_publication_t *pub);

void ps_publication_free(ps_publication_t *pub);

/* Returns the aligned length of a frame; -1 if a frame of this length is impossible at offset.
 * Another process wrote the length. */
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

/* Returns the interval at which the sender checks whether a publication is blocked. */
int64_t ps_publication_check_interval_ns(const ps_publication_t *pub);

#endif
