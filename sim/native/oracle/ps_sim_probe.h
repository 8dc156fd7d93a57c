/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe.h: oracles that check a driver after each duty cycle. The probe sees every datagram
 * that a driver reads and sends, at the virtual time of that call. The probe checks publications
 * and images after each duty cycle. From the datagrams, the probe computes its own model of each
 * publication and image, and compares the model with the driver's state. The code of the model
 * follows the protocol's description, not the tested code.
 *
 *   ps_sim_probe.c        hands datagrams and duty cycles to the files below
 *   ps_sim_probe_model.c  models by object; promises that must be kept within a time
 *   ps_sim_probe_begin.c  initial values of a model
 *   ps_sim_probe_fc.c     receivers heard, limit of the strategy, connection
 *   ps_sim_probe_join.c   how long a group waits for receivers that join, and for others
 *   ps_sim_probe_send.c   SETUPs, heartbeats, data, retransmits
 *   ps_sim_probe_pub.c    publisher limit, zeroed memory, cause account, ordinals, readers
 *   ps_sim_probe_img.c    received and missing data, consumption, counters
 *   ps_sim_probe_recv.c   status messages, NAKs, round trips, PRESSURE, liveness
 *   ps_sim_probe_rate.c   token buckets, cubic
 *   ps_sim_probe_nak.c    NAK-strength control: the sender's limit, the receiver's thresholds
 *   ps_sim_probe_spy.c    spies that stand for receivers
 *   ps_sim_probe_path.c   learned reordering, ways to the sender, readers that may be left behind
 *   ps_sim_probe_batch.c  full datagrams and turns, distribution of delays
 *   ps_sim_probe_count.c  the driver's counters
 *   ps_sim_probe_event.c  events that the conductor gets
 *   ps_sim_probe_pressure.c  watermarks of publications
 *   ps_sim_probe_shown.c  values in slots, logs and snapshots
 *   ps_sim_probe_work.c   work that a cycle reports, checks before parking, wake-ups
 */
#ifndef PS_SIM_PROBE_H
#define PS_SIM_PROBE_H

#include "ps_image.h"
#include "ps_wire_pressure.h"
#include "ps_publication.h"
#include "ps_receiver.h"
#include "ps_send_endpoint.h"
#include "ps_sim_promise.h"
#include "ps_sim_watch.h"
#include "ps_sim_accepted.h"
#include "ps_sim_world.h"

enum {
    PS_PROBE_PUBS = 128,
    PS_PROBE_IMAGES = 256,
    PS_PROBE_RECEIVERS = 128,
    PS_PROBE_REQUESTS = 2048,
    PS_PROBE_GAPS = 2048,
    PS_PROBE_SUSPECTS = 16,
    PS_PROBE_TETHERS = 8,
    PS_PROBE_CLIENTS = 64,
    PS_PROBE_TALLIES = 64,
    PS_PROBE_COUNTERS = 64,
    PS_PROBE_BINS = 16,
    PS_PROBE_JOINERS = 64,
    PS_PROBE_HOLDS = 64
};

typedef struct ps_sim_stamps ps_sim_stamps_t;

/* A token bucket of the probe, in units. */
typedef struct ps_probe_bucket {
    double level, burst, rate;
    int64_t at_ns;
} ps_probe_bucket_t;

/* Data that arrived after one request. If the data arrives a second time, the first copy was late,
 * not lost. */
typedef struct ps_probe_suspect {
    int64_t from, to, late_ns;
} ps_probe_suspect_t;

/* The index of positions and ordinals: one entry for each 256th of a term, or each millisecond. */
typedef struct ps_probe_index {
    uint64_t count;
    int64_t position, at_ns, end; /* position of the newest entry; end of the count */
} ps_probe_index_t;

/* Rounds of cubic, and HyStart++ (RFC 9406). */
typedef struct ps_probe_round {
    int64_t least_ns, last_ns,
        base_ns; /* least round trip of this round, of the last round, of the conservative phase */
    int64_t received, window; /* bytes received in this round; window at its beginning */
    int32_t samples, conservative, phase;
} ps_probe_round_t;

/* Model of NAK-strength control in the sender. Rates are in bytes a second. */
typedef struct ps_probe_strength {
    double limit, floor, base, wall, wall_dev;
    double unsure;             /* bound of the rounding errors since the last check */
    int64_t window_ns, end_ns; /* end 0: no limit, no window */
    int64_t base_until_ns, sent_ns, began_ns;
    int64_t culprit;
    int32_t level, quiet, beyond;
    uint64_t signals;
    int64_t eighths[9], bytes[9]; /* bytes sent, by eighths of 50 ms */
    bool open; /* true: near the bound of a rule, so the driver's result is accepted */
} ps_probe_strength_t;

/* NAK-strength control in the receiver. */
typedef struct ps_probe_queue {
    int64_t next_ns, notified_ns, signals;
    uint32_t random;
    int32_t level; /* last signalled */
    bool started;
} ps_probe_queue_t;

typedef struct ps_probe_receiver {
    int64_t id, edge, position, heard_ns;
    int64_t fc_heard_ns, left_ns; /* times: last heard by the strategy; stated that it leaves */
    int64_t open_ns;              /* time of the last stated window of at least a datagram */
    uint32_t reason;
    bool live;              /* it counts for the connection */
    bool followed, leaving; /* the receiver is followed by fc=min or fc=tagged */
    bool within;            /* true: the sender was within the receiver's window at some time */
} ps_probe_receiver_t;

/* State before a cycle; a client may wait for a change. limit: for an image, its position. */
typedef struct ps_probe_shown {
    bool marked, connected;
    int32_t state;
    int64_t limit;
} ps_probe_shown_t;

/* Events that the conductor received. tether_ids: counter ids + 1, 0 free. */
typedef struct ps_probe_notified {
    int32_t connected; /* -1: no event yet */
    bool drained, ended;
    int64_t term, term_ns; /* requested storage, and time of the request; 0: never */
    int64_t released_at;   /* end at the release of terms, + 1; 0: never */
    int64_t lost, lost_before, loss_ns, lost_gaps;
    int64_t tether_ids[PS_PROBE_TETHERS];
    int32_t tether_states[PS_PROBE_TETHERS];
    bool pressed; /* pressure is reported, its relief is not; the rest: messages sent */
    int64_t triggered_ns, messages_before, drained_least, drained_most, drained_by, episodes;
} ps_probe_notified_t;

/* A requested range: the sender may retransmit data up to `to`, and must retransmit data up to
 * `need`. */
typedef struct ps_probe_request {
    int64_t from, to, need, cursor, requested_ns, done_ns; /* done -1: open */
    bool optional; /* the range was requested so often that the sender may abandon it */
    bool cut;      /* true: the range is longer than one answer of a sender */
} ps_probe_request_t;

/* A receiver that had a join hold. */
typedef struct ps_probe_joiner {
    int64_t id, given_ns;
    ps_addr_t address;
    bool used, waited, joined; /* waited: it has the hold */
} ps_probe_joiner_t;

typedef struct ps_probe_join {
    int64_t limit; /* limit of the hold, INT64_MAX none */
    ps_probe_joiner_t joiners[PS_PROBE_JOINERS];
    int32_t next_joiner, next_hold;
    int64_t from_ns[PS_PROBE_HOLDS],
        to_ns[PS_PROBE_HOLDS]; /* time intervals in which a hold was the limit */
    bool held, known;          /* state at the last check: a hold was the limit; a hold existed */
    bool fresh, owed;          /* true: its first request arrived; true: a SETUP was sent for it */
    bool began;                /* a SETUP was sent in this cycle */
    int64_t ended_ns;          /* last time at which the check before had found a hold */
    int64_t fresh_id;
    ps_addr_t fresh_from;
} ps_probe_join_t;

typedef struct ps_probe_pub {
    int32_t host;
    const ps_publication_t *pub;
    int64_t id;
    bool seen;    /* in this sweep */
    bool settled; /* true: the object existed at the end of a duty cycle */
    ps_probe_promise_t promises[PS_PROBE_PUB_PROMISES];
    /* datagrams */
    int64_t high, last_high; /* end of the sent data, now and at the last check */
    int64_t messages;        /* number of messages sent, counted by END flags */
    int64_t setup_ns, beat_ns, data_ns;
    int64_t idle_ns; /* time at which the publication last had no destination for heartbeats */
    bool requested_setup, ever_heard, ever_connected;
    uint64_t naks;
    int32_t request_count, requested_now;
    int64_t full_ns; /* time at which the pool of answers was last full; 0: never */
    ps_probe_request_t requests[PS_PROBE_REQUESTS];
    /* receivers */
    int32_t receiver_count;
    ps_probe_receiver_t receivers[PS_PROBE_RECEIVERS];
    int64_t watch_ns,
        watch_edge;      /* since when receivers advertise less than the limit; 0: they do not */
    int64_t limit;       /* by the strategy */
    int64_t stated_edge; /* the highest position that a receiver has stated */
    ps_probe_join_t join;
    int32_t answers; /* number of ranges that one frame may request, 0 unknown */
    int64_t plain_ns, plain_edge;
    /* memory and account */
    int64_t zero_to;           /* memory below this position is known to be zeroed */
    int64_t reach;             /* upper bound of all publisher limits so far */
    int64_t limit_most, began; /* highest publisher limit; approximate start of the stream */
    int64_t held_ns, checked_ns;
    int32_t cause;
    ps_probe_bucket_t repair, pace, bytes, message_rate, nak;
    int64_t stated_rate; /* pacing rate that a congestion-controlled receiver stated; 0: none */
    int64_t fresh_bytes, repair_bytes, fresh_messages; /* since the last check */
    int64_t paced_bytes;                               /* bytes sent before a new pace was read */
    int64_t signal_bytes; /* new data sent at the old rate, before PRESSURE was read */
    ps_probe_index_t index;
    ps_probe_strength_t strength;
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    int64_t last_leader;
    int64_t spied;    /* highest position of a spy */
    bool spies_heard; /* at the last check: connected to a receiver, or adopted so */
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
    bool counted, was_revoked; /* state at the last check of the counters */
    int64_t held_count;
    int64_t turn_datagrams, turn_bytes, turn_limit, turn_waits; /* new data; the rest: before it */
    int64_t consumed_sum, consumed_ns;                          /* as last shown */
    int64_t paused_at; /* limit that publishers reached above the low watermark; 0: none */
    int64_t consumed_by;
    bool forgot;       /* a receiver left the table since the last check */
    int64_t published; /* on IPC: position up to which the rate is charged */
} ps_probe_pub_t;

typedef struct ps_probe_gap {
    int64_t from, to, opened_ns, requested_ns, first_ns;
    int32_t requested;
    bool placed;           /* true: the first due time was checked */
    bool lost, fresh_loss; /* counts as a loss; became a loss after the last cycle */
} ps_probe_gap_t;

typedef struct ps_probe_image {
    int32_t host;
    const ps_image_t *image;
    int64_t id;
    bool seen;
    ps_probe_promise_t promises[PS_PROBE_IMAGE_PROMISES];
    int64_t made_ns;
    int64_t edge;     /* end of the highest accepted data or heartbeat */
    int64_t heard_ns; /* time of the last datagram that counts for liveness */
    int64_t data_ns;
    int64_t eos;          /* position of an EOS heartbeat, -1 none */
    int64_t eos_since_ns; /* time at which the first EOS heartbeat with this position arrived */
    ps_sim_stated_t credits;
    int64_t sm_ns, sm_position;
    int64_t sm_forced_ns;                    /* time at which a frame was read that requires a
                                              * status message */
    int64_t rtt_ns, rtt_due_ns, rtt_late_ns; /* last request of a round trip; earliest and
                                              * latest time of the next request */
    int64_t last_position;
    int64_t quiet_ns; /* last time at which no frame of the sender had arrived */
    int64_t seen_consumption, consumed_ns, drain_ns;
    int64_t moved_ns, surely_moved_ns, moved_sum;
    int64_t pressure_ns;
    bool was_empty; /* true: there was no unread data at the last check */
    int64_t least_rtt, most_rtt, smoothed_rtt, rtt_variation;
    int32_t last_phase; /* phase of cubic */
    bool counted;       /* true: the ordinals of the image's messages are known */
    ps_probe_index_t index;
    int64_t cubic_received;
    int64_t cubic_grown_ns;    /* time at which data last arrived, or a new epoch began */
    double cubic_credit;       /* bytes that arrived in avoidance and have not raised the window */
    int64_t requested_rtt[16]; /* open requests, the oldest first */
    int32_t n_requested_rtt;
    int64_t consumption;
    uint64_t naks;
    int64_t naks_shown;
    bool was_revoked, was_rejected;
    int32_t readers, last_state;   /* at the last check */
    int64_t lost_bytes, lost_gaps; /* bytes lost in total; gaps to report since the model began */
    int32_t gap_count;
    ps_probe_gap_t gaps[PS_PROBE_GAPS];
    ps_probe_queue_t queue;
    int64_t beyond; /* sender's position when it was last beyond the kept range; 0: never */
    int64_t kept;   /* end of the range that the receiver keeps under nak, at the last check */
    int64_t joined_bytes; /* missing bytes of gaps that already count as lost */
    int64_t late_ns;      /* learned reordering */
    int64_t late_start_ns,
        late_top_ns; /* late_ns at the beginning of the cycle; its maximum in the cycle */
    int64_t late_least_ns, late_most_ns; /* bounds of late_ns in the last cycle */
    ps_probe_suspect_t suspects[PS_PROBE_SUSPECTS];
    uint32_t suspect_next;
    int64_t path_ns; /* time at which the receiver last heard the sender; -1: unknown */
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    ps_cubic_t cubic;
    ps_probe_round_t round;
    bool cubic_known;
    bool sm_bound;             /* the last status message stated less than the configured window */
    bool sm_idle, sm_may_idle; /* the stream was (may have been) silent at the last status
                                * message */
    bool ended;
    /* datagrams read in this cycle, which must be in the log afterwards */
    int32_t took;
    int64_t took_from[64], took_to[64];
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
} ps_probe_image_t;

/* A duty cycle of a driver: its start, and the datagrams read and sent. */
typedef struct ps_probe_cycle {
    bool commanded, notified; /* true: commands waited; true: a client marked a stream dirty */
    bool turns;               /* true: the sender had streams to check in each cycle */
    bool timed;               /* a timer was due */
    int64_t tick_ns, readers;
    uint64_t positions, reported;
    uint64_t events[2]; /* number of events of each kind that an agent reported */
    uint32_t woken[PS_PROBE_CLIENTS];
    int64_t sent;                /* datagrams sent or refused, of any kind */
    int64_t read, data, answers; /* datagrams: read; sent with data; sent by the receiver */
} ps_probe_cycle_t;

/* Datagrams that a send endpoint sent to one destination in a cycle. */
typedef struct ps_probe_tally {
    const ps_send_endpoint_t *endpoint;
    ps_addr_t to;
    int64_t bytes, beats, again; /* beats: heartbeats; again: retransmitted bytes */
} ps_probe_tally_t;

/* Expected values of the driver's counters, by id. */
typedef struct ps_probe_counts {
    bool known;
    bool unsure; /* true: the values of this cycle are unknown */
    int64_t of[PS_PROBE_COUNTERS];
    int32_t tally_count;
    ps_probe_tally_t tallies[PS_PROBE_TALLIES];
} ps_probe_counts_t;

/* Counts of random delays, by their quantile in the expected distribution. */
typedef struct ps_probe_backoff {
    int64_t bins[PS_PROBE_BINS], count;
    bool broken;
} ps_probe_backoff_t;

typedef struct ps_probe {
    ps_simworld_t *world;
    ps_sim_stamps_t *stamps; /* NULL: no channel has timestamps */
    ps_probe_pub_t *pubs[PS_PROBE_PUBS];
    int32_t pub_count;
    ps_probe_image_t *images[PS_PROBE_IMAGES];
    int32_t image_count;
    uint64_t checks;
    ps_probe_backoff_t backoff;
    int64_t refused_ns[PS_SIM_MAX_HOSTS]; /* time at which a socket last accepted only a part */
    int64_t vain_ns[PS_SIM_MAX_HOSTS];    /* time at which busy and vain were last reset to 0 */
    int32_t busy[PS_SIM_MAX_HOSTS];       /* datagrams, commands and wake-ups since vain_ns */
    int32_t vain[PS_SIM_MAX_HOSTS];       /* cycles without work since vain_ns */
    ps_probe_promise_t releases[PS_SIM_MAX_HOSTS];
    int64_t crowded_ns[PS_SIM_MAX_HOSTS]; /* time at which a ring of events was last full */
    int64_t read_ns[PS_SIM_MAX_HOSTS];    /* time at which the host last read a datagram */
    ps_probe_cycle_t cycles[PS_SIM_MAX_HOSTS];
    ps_probe_counts_t counts[PS_SIM_MAX_HOSTS];
    ps_probe_gap_t next_gaps[PS_PROBE_GAPS]; /* gaps of the checked image */
} ps_probe_t;

/* ---- acceptance: ps_sim_bound.c, ps_sim_lead.c ----------------------------------------------- */

/* At the end of a host's duty cycle, records the position up to which the host's receivers accept
 * data. */
void ps_sim_bound_watch(ps_simworld_t *world, int32_t host);
/* Checks that a message which a publication accepted begins within the publication window and the
 * receiver window. */
void ps_sim_bound_check(ps_probe_t *probe, const ps_sim_publisher_t *publisher, int64_t end,
                        int32_t size);

/* ---- for the observers: ps_sim_observer.c ---------------------------------------------------- */

ps_probe_t *ps_probe_create(ps_simworld_t *world);
void ps_probe_destroy(ps_probe_t *probe);
/* Removes the models of a host's objects, because the host now has another driver or none. */
void ps_probe_forget_host(ps_probe_t *probe, int32_t host);
/* Record that the host's driver is about to read a datagram, or has just sent one. `by_sender` is
 * true if the socket belongs to the sender agent; `kind` comes from ps_sim_watch.h. */
void ps_probe_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, bool by_sender,
                   int64_t now_ns);
void ps_probe_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                   enum ps_sim_kind kind, int64_t now_ns);
/* Records that the host's socket did not accept a datagram. A receiver counts such a datagram as
 * sent, and repeats it by a timer. A sender does not count it. */
void ps_probe_refused(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length,
                      int64_t now_ns);
/* Returns true if the datagram begins exactly at the end of its image's data. The driver may then
 * read this datagram and those that follow in one call. */
bool ps_probe_is_next(const ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet);
/* Record the beginning of a duty cycle, and its end with the amount of work that the driver
 * reports. */
void ps_probe_before(ps_probe_t *probe, int32_t host, int64_t now_ns);
void ps_probe_step(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* ---- shared by the files --------------------------------------------------------------------- */

/* Returns by how much a timer of the host may be late: two ticks of a millisecond plus two duty
 * cycles. */
int64_t ps_probe_slack_ns(const ps_probe_t *probe, int32_t host);
/* Checks that a condition becomes true again within grace_ns. The caller passes its present value
 * in `holds`, and its name for a violation in `name`. */
void ps_probe_promise(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds, int64_t now_ns,
                      int64_t grace_ns, const char *name, int32_t host, int32_t session_id);
void ps_probe_fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns true if a socket of the host recently accepted no datagram, so that the driver may have
 * to repeat datagrams. */
bool ps_probe_is_full(const ps_probe_t *probe, int32_t host, int64_t now_ns);
/* Returns true if the ring of events to the conductor was full recently. */
bool ps_probe_is_crowded(const ps_probe_t *probe, int32_t host, int64_t now_ns);
ps_driver_t *ps_probe_driver(const ps_probe_t *probe, int32_t host);
ps_probe_pub_t *ps_probe_pub(ps_probe_t *probe, int32_t host, int32_t session_id,
                             int32_t stream_id);
ps_probe_image_t *ps_probe_image(ps_probe_t *probe, int32_t host, int32_t session_id,
                                 int32_t stream_id, int64_t now_ns);
/* Return the model of an object; create the model if there is none. NULL: no memory, or too many
 * models. */
ps_probe_pub_t *ps_probe_pub_of(ps_probe_t *probe, int32_t host, const ps_publication_t *pub,
                                int64_t now_ns);
ps_probe_image_t *ps_probe_image_of(ps_probe_t *probe, int32_t host, const ps_image_t *image,
                                    int64_t now_ns);
const ps_sim_ledger_t *ps_probe_ledger(const ps_probe_t *probe, int32_t session_id,
                                       int32_t stream_id);
/* Returns the number of messages of a ledger that end at or below position; -1: unknown. */
int64_t ps_probe_ordinal(const ps_sim_ledger_t *ledger, int64_t position);
/* Compares an index ring with its model. `end` is the position up to which the driver has counted
 * messages. Returns the text of the error; NULL: no error. */
const char *ps_probe_index_check(ps_probe_index_t *model, const ps_index_ring_t *ring, int64_t end,
                                 int32_t term_length, int64_t epoch_offset_ns, int64_t now_ns);
/* The publication has sent data up to `high`. The lowest position that a receiver can still request
 * is the result of ps_probe_sent_floor. The result of ps_probe_may_grant is true if a status
 * message may state `position`. This position may be behind `high` by T/2 (with fc=nak by T), and
 * at the end of a term also by the longest padding. */
int64_t ps_probe_sent_floor(const ps_publication_t *pub, int64_t high);
bool ps_probe_may_grant(const ps_publication_t *pub, int64_t high, int64_t position);

/* ps_sim_probe_begin.c */
/* PS_PROBE_PLENTY is the level of a token bucket that sets no limit, PS_PROBE_NO_LIMIT a rate in
 * bytes a second that means "no NAK-strength limit". */
#define PS_PROBE_PLENTY   1e18
#define PS_PROBE_NO_LIMIT 1099511627776.0
void ps_probe_pub_begin(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_image_begin(ps_probe_image_t *model, int64_t now_ns);
/* Sets the rate and the burst of a token bucket. A rate of 0 or less means no limit. */
void ps_probe_bucket_set(ps_probe_bucket_t *bucket, double rate, double burst, int64_t now_ns);
/* Returns the sum of the times for which publishers were blocked, over all causes. */
int64_t ps_probe_blocked_total(const ps_publication_t *pub);

/* ps_sim_probe_fc.c */
void ps_probe_fc_sm(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sm_t *sm,
                    const ps_addr_t *from, int64_t now_ns);
/* ps_sim_probe_join.c: these functions record a request for a SETUP, a SETUP, a status message of a
 * tracked receiver, and the end of a cycle. The result of ps_probe_join_came is the time since
 * which the group has waited for this receiver, or now_ns. */
void ps_probe_join_requested(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                             int64_t now_ns);
void ps_probe_join_setup(ps_probe_pub_t *model);
int64_t ps_probe_join_came(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                           int64_t now_ns);
void ps_probe_join_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
/* Returns the position at which a join hold stops the sender; INT64_MAX: there is no hold. */
static inline int64_t ps_probe_hold(const ps_probe_pub_t *model)
{
    return model->pub->fc.join != NULL ? model->pub->fc.join->limit : INT64_MAX;
}
void ps_probe_fc_error(ps_probe_pub_t *model, int64_t receiver_id, int64_t now_ns);
void ps_probe_fc_setup_sent(ps_probe_pub_t *model);
void ps_probe_fc_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_send.c */
void ps_probe_on_nak(ps_probe_pub_t *model, const ps_nak_t *nak, int64_t now_ns);
void ps_probe_send_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_setup_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_setup_t *setup,
                         int64_t now_ns);
void ps_probe_data_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                        const ps_sim_packet_t *packet, enum ps_sim_kind kind, int64_t now_ns);
void ps_probe_heartbeat_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                             int64_t now_ns);

/* ps_sim_probe_pub.c */
void ps_probe_pub_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
bool ps_probe_is_above_watermark(const ps_publication_t *pub, int64_t ahead);

/* ps_sim_probe_img.c */
void ps_probe_image_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_image_data(ps_probe_t *probe, ps_probe_image_t *model, const ps_data_t *data,
                         const ps_sim_packet_t *packet, int64_t now_ns);

/* ps_sim_probe_recv.c */
void ps_probe_sm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_sm_t *sm,
                      int64_t now_ns);
void ps_probe_nak_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_nak_t *nak,
                       int64_t now_ns);
void ps_probe_rttm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_rttm_t *rttm,
                        int64_t now_ns);
void ps_probe_pressure_sent(ps_probe_t *probe, ps_probe_image_t *model,
                            const ps_pressure_t *pressure, int64_t now_ns);
/* Returns true if one of the image's connections to the sender is alive. */
bool ps_probe_is_heard(const ps_image_t *image, int64_t now_ns);
/* Returns true if a timer in this cycle ended the wait for an untethered reader. Timers run after
 * the cycle's status message was built, so only the next status message states the released
 * data. */
bool ps_probe_left_behind(const ps_probe_image_t *model);
void ps_probe_recv_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_rate.c */
void ps_probe_rate_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_round_sample(ps_probe_image_t *model, int64_t sample_ns);
void ps_probe_class_check(ps_probe_t *probe, const ps_probe_image_t *model, int64_t window,
                          int64_t most);
void ps_probe_rtt_requested(ps_probe_image_t *model, int64_t now_ns);
bool ps_probe_rtt_wanted(const ps_probe_image_t *model, int64_t now_ns);
int64_t ps_probe_rtt_answer(ps_probe_image_t *model, int64_t stamp_ns, int64_t now_ns);
void ps_probe_cubic_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_path.c */
/* Returns true if the high-water mark may rise to `position`: the gap list must have room for the
 * new gap. */
bool ps_probe_path_has_room(const ps_image_t *image, int64_t position);
/* The receiver read a datagram with the range [from, to). ps_probe_path_data records a range for
 * which the log has room; it returns false if the gap list had no room for a part.
 * ps_probe_path_stale records a range that begins below the consumed position. */
bool ps_probe_path_data(ps_probe_image_t *model, const ps_sim_packet_t *packet, int64_t from,
                        int64_t to, int64_t now_ns);
void ps_probe_path_stale(ps_probe_image_t *model, int64_t from, int64_t to, int64_t now_ns);
void ps_probe_path_raised(ps_probe_image_t *model, int64_t position);
void ps_probe_path_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_pub_tethers(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_spy.c */
/* Records that the sender passed data without sending it, because only spies read the stream. */
void ps_probe_spies_passed(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_spies_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_batch.c */
void ps_probe_batch_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t from, int64_t span,
                         int64_t wire);
void ps_probe_batch_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_lists_check(ps_probe_t *probe, int32_t host, int64_t now_ns);
void ps_probe_backoff(ps_probe_t *probe, const ps_probe_image_t *model, int64_t wait_ns);

/* ps_sim_probe_count.c */
void ps_probe_count_begin(ps_probe_t *probe, int32_t host);
/* Records that the driver must increase the counter `id` by delta. */
void ps_probe_count(ps_probe_t *probe, int32_t host, int32_t id, int64_t delta);
void ps_probe_count_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                         bool by_sender);
/* Counts a sent datagram. `model` is the publication that sent it; NULL: a receiver sent it. */
void ps_probe_count_sent(ps_probe_t *probe, int32_t host, const ps_probe_pub_t *model,
                         const ps_sim_packet_t *packet, bool beat, bool again);
/* Records that a call of the driver did not send all its datagrams; `data` is the first that was
 * not sent. */
void ps_probe_count_short(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length);
void ps_probe_count_check(ps_probe_t *probe, int32_t host);

/* ps_sim_probe_event.c */
void ps_probe_event_check(ps_probe_t *probe, int32_t host, int64_t now_ns);

void ps_probe_pressure_event(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                             int64_t now_ns);
void ps_probe_pressure_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_shown.c */
void ps_probe_pub_shown(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_image_shown(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_work.c */
void ps_probe_work_check(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* ps_sim_probe_rule.c: records which rules of the protocol a run uses, for the histogram. Called
 * after a PRESSURE frame was read, and after each duty cycle. */
void ps_probe_rule_signal(ps_probe_t *probe, const ps_probe_pub_t *model,
                          const ps_pressure_t *pressure);
void ps_probe_rule_pub(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_rule_image(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_nak.c */
void ps_probe_strength_sent(ps_probe_pub_t *model, int64_t bytes, int64_t now_ns);
void ps_probe_strength_signal(ps_probe_pub_t *model, const ps_pressure_t *pressure, int64_t now_ns);
void ps_probe_strength_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_queue_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_queue_notified(ps_probe_t *probe, ps_probe_image_t *model,
                             const ps_pressure_t *pressure, int64_t now_ns);
int32_t ps_probe_queue_level(const ps_image_t *image, int64_t fill);
/* Returns the fill level of the image's receive queue; -1: all readers are paused, or the image has
 * no reader. */
int64_t ps_probe_queue_fill(const ps_image_t *image, int64_t now_ns);
/* Returns the position up to which a receiver accepts data. */
static inline int64_t ps_probe_accepted_to(const ps_image_t *image)
{
    const int64_t term = image->log.term_length;
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 ? image->consumption + term
                                                             : image->sm_position + term / 2;
}
/* Returns true if a receiver under NAK-strength control sends few status messages. */
static inline bool ps_probe_says_little(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* Returns the consumed position at which the next status message is due, if the last one stated
 * `position`. */
static inline int64_t ps_probe_sm_due(const ps_image_t *image, int64_t position)
{
    const int64_t term = image->log.term_length;
    const int64_t quarter = position + image->window / 4 + 1;
    const int64_t term_end = (position | image->log.term_mask) + 1;
    if (ps_probe_says_little(image)) {
        return position + (image->log.mtu < term / 16 ? term / 8 - image->log.mtu : term / 16);
    }
    return quarter < term_end ? quarter : term_end;
}
static inline bool ps_probe_is_outrun(const ps_image_t *image)
{
    return image->state != PS_IMAGE_ACTIVE && image->end_reason == PS_END_OUTRUN;
}

#endif
