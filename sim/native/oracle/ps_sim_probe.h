/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe.h: oracles that look over a driver's shoulder. The probe sees every datagram that
 * a driver reads and sends, at the virtual time of that call. It checks publications and images
 * after each duty cycle. From the datagrams it keeps a model of its own of what each publication
 * and image must know; the model is written from the protocol's description, not from the code
 * under test, and is compared with what the driver holds.
 *
 *   ps_sim_probe.c        models by object; promises that must be kept within a time
 *   ps_sim_probe_fc.c     receivers heard, the strategy's limit, connection
 *   ps_sim_probe_join.c   how long a group waits for receivers that join, and for others
 *   ps_sim_probe_send.c   SETUP, heartbeats, data, what is sent again
 *   ps_sim_probe_pub.c    publisher limit, zeroed memory, cause account, ordinals, readers
 *   ps_sim_probe_img.c    what is here and missing, consumption, counters
 *   ps_sim_probe_recv.c   status messages, NAKs, round trips, PRESSURE, liveness
 *   ps_sim_probe_rate.c   token buckets, cubic
 *   ps_sim_probe_nak.c    NAK-strength control: the sender's limit, the receiver's thresholds
 *   ps_sim_probe_spy.c    spies that stand for receivers
 *   ps_sim_probe_path.c   learned reordering, ways to the sender, readers that may be left behind
 *   ps_sim_probe_batch.c  full datagrams and turns, the distribution of delays
 *   ps_sim_probe_count.c  the driver's counters
 *   ps_sim_probe_event.c  what the conductor is told
 *   ps_sim_probe_shown.c  what slots, logs and snapshots show
 *   ps_sim_probe_work.c   what a cycle says it did, what is seen before parking, who is woken
 */
#ifndef PS_SIM_PROBE_H
#define PS_SIM_PROBE_H

#include "ps_image.h"
#include "ps_wire_pressure.h"
#include "ps_publication.h"
#include "ps_receiver.h"
#include "ps_send_endpoint.h"
#include "ps_sim_world.h"

enum {
    PS_PROBE_PUBS = 128,
    PS_PROBE_IMAGES = 256,
    PS_PROBE_RECEIVERS = 128,
    PS_PROBE_REQUESTS = 2048,
    PS_PROBE_GAPS = 2048,
    PS_PROBE_PROMISES = 40,
    PS_PROBE_SUSPECTS = 16,
    PS_PROBE_TETHERS = 8,
    P_PROBE_PATHS = 20,
    PS_PROBE_CLIENTS = 64,
    PS_PROBE_TALLIES = 64,
    PS_PROBE_COUNTERS = 64,
    PS_PROBE_BINS = 16,
    PS_PROBE_JOINERS = 64,
    PS_PROBE_HOLDS = 64,
    P_PROBE_WAKE = 34
};

/* Something that must hold; since: when it was first seen not to, -1 it holds. */
typedef struct ps_probe_promise {
    int64_t since_ns;
    bool broken;
} ps_probe_promise_t;

/* A token bucket of the probe's own, in units. */
typedef struct ps_probe_bucket {
    double level, burst, rate;
    int64_t at_ns;
} ps_probe_bucket_t;

typedef struct ps_probe_tether {
    bool known;
    int32_t id, state;
    int64_t since_ns, near_ns; /* in this state; last seen near the others */
    int64_t surely_ns, far_ns; /* near for so long that a look saw it; last seen behind */
} ps_probe_tether_t;

/* Data that arrived after one request: late, if it comes a second time. */
typedef struct ps_probe_suspect {
    int64_t from, to, late_ns;
} ps_probe_suspect_t;

/* The index of positions and ordinals: an entry each 256th of a term, or each millisecond. */
typedef struct ps_probe_index {
    uint64_t count;
    int64_t position, at_ns, end; /* of the newest entry; what was counted up to */
} ps_probe_index_t;

/* Rounds of cubic, and HyStart++ (RFC 9406). */
typedef struct ps_probe_round {
    int64_t least_ns, last_ns, base_ns; /* round trips: of this round, the last, conservative */
    int64_t received, window;           /* in this round; as it began */
    int32_t samples, conservative, phase;
} ps_probe_round_t;

/* NAK strength, the sender's half: rates in bytes a second. */
typedef struct ps_probe_strength {
    double limit, floor, base, wall, wall_dev;
    double unsure;             /* so much of them integers may have lost since the last look */
    int64_t window_ns, end_ns; /* end 0: no limit, no window */
    int64_t base_until_ns, sent_ns, began_ns;
    int64_t culprit;
    int32_t level, quiet, beyond;
    uint64_t signals;
    int64_t eighths[9], bytes[9]; /* sent, by eighths of 50 ms */
    bool open; /* a signal near the bound of a rule: what the driver made of it is right */
} ps_probe_strength_t;

/* The receiver's half. */
typedef struct ps_probe_queue {
    int64_t next_ns, notified_ns, signals;
    uint32_t random;
    int32_t level; /* last told */
    bool started;
} ps_probe_queue_t;

typedef struct ps_probe_receiver {
    int64_t id, edge, position, heard_ns;
    int64_t fc_heard_ns, left_ns; /* as the strategy counts; it said that it leaves */
    int64_t open_ns;              /* last stated a window that takes a datagram */
    uint32_t reason;
    bool live;              /* counts for the connection */
    bool followed, leaving; /* by min, tagged */
    bool within;            /* the sender was within its window once */
} ps_probe_receiver_t;

/* Events that a client may sleep for, before a cycle. limit: of an image its position. */
typedef struct ps_probe_shown {
    bool marked, connected;
    int32_t state;
    int64_t limit;
} ps_probe_shown_t;

/* Events that the conductor got. tether_ids: counter ids + 1, 0 free. */
typedef struct ps_probe_notified {
    int32_t connected; /* -1: nothing yet */
    bool drained, ended;
    int64_t term, term_ns; /* storage requested, and when; term_ns 0: never */
    int64_t released_at;   /* a publication's end when storage was released, + 1; 0 never */
    int64_t lost, lost_before, loss_ns, lost_gaps;
    int64_t tether_ids[PS_PROBE_TETHERS];
    int32_t tether_states[PS_PROBE_TETHERS];
} ps_probe_notified_t;

/* A range that was requested: to may be retransmitted, need must be. */
typedef struct ps_probe_request {
    int64_t from, to, need, cursor, requested_ns, done_ns; /* done -1: open */
    bool optional; /* enough requests that it may be abandoned */
    bool cut;      /* longer than a sender answers at once */
} ps_probe_request_t;

/* A receiver for which a group was held while it joined. */
typedef struct ps_probe_joiner {
    int64_t id, given_ns;
    ps_addr_t address;
    bool used, waited, joined; /* waited: the hold is for it */
} ps_probe_joiner_t;

typedef struct ps_probe_join {
    int64_t limit; /* that the hold must have, INT64_MAX none */
    ps_probe_joiner_t joiners[PS_PROBE_JOINERS];
    int32_t next_joiner, next_hold;
    int64_t from_ns[PS_PROBE_HOLDS],
        to_ns[PS_PROBE_HOLDS]; /* times in which a hold was the limit */
    bool held;                 /* at the last look */
    bool fresh, owed;          /* a first request came; a SETUP left for it */
    bool began;                /* a SETUP left in this cycle */
    int64_t fresh_id;
    ps_addr_t fresh_from;
} ps_probe_join_t;

typedef struct ps_probe_pub {
    int32_t host;
    const ps_publication_t *pub;
    int64_t id;
    bool seen;    /* in this sweep */
    bool settled; /* a duty cycle ended with it */
    ps_probe_promise_t promises[PS_PROBE_PROMISES];
    /* datagrams */
    int64_t high, last_high; /* end of what was sent, now and at the last look */
    int64_t messages;        /* sent, counted by their END flags */
    int64_t setup_ns, beat_ns, data_ns;
    int64_t idle_ns; /* last seen without a destination for heartbeats */
    bool requested_setup, ever_heard, ever_connected;
    uint64_t naks;
    int32_t request_count, requested_now;
    ps_probe_request_t requests[PS_PROBE_REQUESTS];
    /* receivers */
    int32_t receiver_count;
    ps_probe_receiver_t receivers[PS_PROBE_RECEIVERS];
    int64_t watch_ns, watch_edge; /* since then receivers grant less than the limit; 0: no */
    int64_t limit;                /* by the strategy */
    ps_probe_join_t join;
    int32_t answers; /* as many ranges may be requested at once, 0 not known */
    int64_t plain_ns, plain_edge;
    /* memory and account */
    int64_t zero_to;           /* known to be zero below */
    int64_t reach;             /* furthest that the publisher limit may ever have been */
    int64_t limit_most, began; /* furthest that it was; where the stream began, about */
    int64_t held_ns, checked_ns;
    int32_t cause;
    ps_probe_bucket_t repair, pace, bytes, message_rate, nak;
    int64_t stated_rate; /* by a congestion-controlled receiver, 0 none */
    int64_t fresh_bytes, repair_bytes, fresh_messages; /* since the last look */
    int64_t paced_bytes;                               /* of these, before another pace was read */
    int64_t signal_bytes; /* fresh before PRESSURE was read: sent at the old rate */
    ps_probe_index_t index;
    ps_probe_strength_t strength;
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    int64_t last_leader;
    int64_t spied;    /* furthest that a spy ever was */
    bool spies_heard; /* at the last check: a receiver was connected, or adopted */
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
    bool counted, was_revoked; /* as of the last check the counters */
    int64_t held_count;
    int64_t turn_datagrams, turn_bytes, turn_limit; /* new data; the limit before */
    int64_t consumed_sum, consumed_ns;              /* as last shown */
    int32_t consumed_readers;
    int64_t published; /* on IPC: spent of the rate up to here */
} ps_probe_pub_t;

typedef struct ps_probe_gap {
    int64_t from, to, opened_ns, requested_ns, first_ns;
    int32_t requested;
    bool placed;           /* its first due time was checked */
    bool lost, fresh_loss; /* counts as a loss; since the last cycle */
} ps_probe_gap_t;

typedef struct ps_probe_image {
    int32_t host;
    const ps_image_t *image;
    int64_t id;
    bool seen;
    ps_probe_promise_t promises[PS_PROBE_PROMISES];
    int64_t made_ns;
    int64_t edge;     /* end of the highest data or heartbeat taken */
    int64_t heard_ns; /* last datagram that keeps it alive */
    int64_t data_ns;
    int64_t eos;          /* position of an EOS heartbeat, -1 none */
    int64_t eos_since_ns; /* first of those that state this position */
    int64_t sm_ns, sm_position;
    int64_t sm_forced_ns;                    /* something that forces one was read */
    int64_t rtt_ns, rtt_due_ns, rtt_late_ns; /* last request; the next neither before nor after */
    int64_t last_position;
    int64_t quiet_ns; /* last seen without a word from its sender */
    int64_t seen_consumption, consumed_ns, drain_ns;
    int64_t moved_ns, surely_moved_ns, moved_sum;
    int64_t pressure_ns;
    bool was_empty; /* nothing to read, at the last look */
    int64_t least_rtt, most_rtt, smoothed_rtt, rtt_variation;
    int32_t last_phase; /* of cubic */
    bool counted;       /* it knows the ordinals of its messages */
    ps_probe_index_t index;
    int64_t cubic_received;
    int64_t requested_rtt[16]; /* open requests, the oldest first */
    int32_t n_requested_rtt;
    int64_t consumption;
    uint64_t naks;
    int64_t naks_shown;
    bool was_revoked, was_rejected;
    int32_t readers, last_state;   /* at the last look */
    int64_t lost_bytes, lost_gaps; /* gaps: since the model began, and not told by then */
    int32_t gap_count;
    ps_probe_gap_t gaps[PS_PROBE_GAPS];
    ps_probe_queue_t queue;
    int64_t joined_bytes;                /* missing, of gaps that counted as lost already */
    int64_t late_ns;                     /* learned reordering */
    int64_t late_start_ns, late_top_ns;  /* as the cycle began, the most in it */
    int64_t late_least_ns, late_most_ns; /* the same of the last cycle */
    ps_probe_suspect_t suspects[PS_PROBE_SUSPECTS];
    uint32_t suspect_next;
    int64_t path_ns; /* its sender was last heard, -1: not known */
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    ps_cubic_t cubic;
    ps_probe_round_t round;
    bool cubic_known;
    bool sm_bound;             /* the last one granted less than the configured window */
    bool sm_idle, sm_may_idle; /* the stream was (may have been) quiet when the last one left */
    bool ended;
    /* read in this cycle: must be in the log after it */
    int32_t took;
    int64_t took_from[64], took_to[64];
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
} ps_probe_image_t;

/* A duty cycle of a driver: as it began, and what it read and sent. */
typedef struct ps_probe_cycle {
    bool commanded, notified; /* commands waited; a client marked a stream */
    bool turns;               /* the sender had streams to check anyway */
    bool timed;               /* a timer was due */
    int64_t tick_ns, readers;
    uint64_t positions, reported;
    uint64_t events[2]; /* number of each that an agent reported */
    uint32_t woken[PS_PROBE_CLIENTS];
    int64_t sent;                /* or refused, of any kind */
    int64_t read, data, answers; /* datagrams: read; sent, with data; sent, by the receiver */
} ps_probe_cycle_t;

/* Datagrams that an endpoint's destination got in a cycle. */
typedef struct ps_probe_tally {
    const ps_send_endpoint_t *endpoint;
    ps_addr_t to;
    int64_t bytes, beats, again; /* again: bytes */
} ps_probe_tally_t;

/* The driver's counters, by their id, as they must be. */
typedef struct ps_probe_counts {
    bool known;
    bool unsure; /* this cycle's are not known */
    int64_t of[PS_PROBE_COUNTERS];
    int32_t tally_count;
    ps_probe_tally_t tallies[PS_PROBE_TALLIES];
} ps_probe_counts_t;

/* Delays drawn, by where they lie in their distribution. */
typedef struct ps_probe_backoff {
    int64_t bins[PS_PROBE_BINS], count;
    bool broken;
} ps_probe_backoff_t;

typedef struct ps_probe {
    ps_simworld_t *world;
    ps_probe_pub_t *pubs[PS_PROBE_PUBS];
    int32_t pub_count;
    ps_probe_image_t *images[PS_PROBE_IMAGES];
    int32_t image_count;
    uint64_t checks;
    ps_probe_backoff_t backoff;
    int64_t refused_ns[PS_SIM_MAX_HOSTS]; /* a socket of the host last took less than all then */
    int64_t vain_ns[PS_SIM_MAX_HOSTS];    /* when vain was last 0 */
    int32_t busy[PS_SIM_MAX_HOSTS];       /* datagrams and commands since */
    int32_t vain[PS_SIM_MAX_HOSTS];       /* cycles that came to nothing since */
    ps_probe_promise_t releases[PS_SIM_MAX_HOSTS];
    int64_t crowded_ns[PS_SIM_MAX_HOSTS]; /* a ring of events was last full then */
    int64_t read_ns[PS_SIM_MAX_HOSTS];    /* the host last read a datagram then */
    ps_probe_cycle_t cycles[PS_SIM_MAX_HOSTS];
    ps_probe_counts_t counts[PS_SIM_MAX_HOSTS];
    ps_probe_gap_t next_gaps[PS_PROBE_GAPS]; /* of the image that is checked */
} ps_probe_t;

/* ---- acceptance: ps_sim_bound.c, ps_sim_lead.c ----------------------------------------------- */

/* Bytes of log that a message takes. */
int64_t ps_sim_framed_bytes(const ps_publication_t *pub, int32_t size);
/* A message that begins there was accepted as the latest of its ledger: its rate must allow it. */
void ps_sim_lead_check(ps_simworld_t *world, const ps_sim_publisher_t *publisher,
                       const ps_publication_t *pub, int64_t start);

/* ---- for the world and the network ----------------------------------------------------------- */

ps_probe_t *ps_probe_create(ps_simworld_t *world);
void ps_probe_destroy(ps_probe_t *probe);
/* The host has another driver, or none: models of its objects go. */
void ps_probe_forget_host(ps_probe_t *probe, int32_t host);
/* The host's driver is about to take a datagram / has just handed one to its socket.  by_sender:
 * from a socket of its sender; kind: ps_sim_kind, what the watch makes of it. */
void ps_probe_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, bool by_sender,
                   int64_t now_ns);
void ps_probe_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                   enum ps_sim_kind kind, int64_t now_ns);
/* The host's socket did not take a datagram.  Receivers count it as sent, and let their timers
 * repeat it; senders do not. */
void ps_probe_refused(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length,
                      int64_t now_ns);
/* Whether the datagram begins where its image ends, and nothing is missing before: then those that
 * follow it may be taken at once. */
bool ps_probe_is_next(const ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet);
/* Whether it was lately that a socket of the host took nothing: what is to leave waits. */
bool ps_probe_is_full(const ps_probe_t *probe, int32_t host, int64_t now_ns);
/* A duty cycle of the host's driver begins; it ended, and reported so much work. */
void ps_probe_before(ps_probe_t *probe, int32_t host, int64_t now_ns);
void ps_probe_step(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* ---- shared by the files --------------------------------------------------------------------- */

/* How late a timer may be: two ticks of a millisecond, and two duty cycles of the host. */
int64_t ps_probe_slack_ns(const ps_probe_t *probe, int32_t host);
/* `holds` must become true within grace_ns of becoming false; name says what. */
void ps_probe_promise(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds, int64_t now_ns,
                      int64_t grace_ns, const char *name, int32_t host, int32_t session_id);
void ps_probe_fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
ps_driver_t *ps_probe_driver(const ps_probe_t *probe, int32_t host);
ps_probe_pub_t *ps_probe_pub(ps_probe_t *probe, int32_t host, int32_t session_id,
                             int32_t stream_id);
ps_probe_image_t *ps_probe_image(ps_probe_t *probe, int32_t host, int32_t session_id,
                                 int32_t stream_id, int64_t now_ns);
const ps_sim_ledger_t *ps_probe_ledger(const ps_probe_t *probe, int32_t session_id,
                                       int32_t stream_id);
/* Messages of a ledger that end at or below position; -1: unknown. */
int64_t ps_probe_ordinal(const ps_sim_ledger_t *ledger, int64_t position);
/* Error of an index that has counted up to end, NULL none. */
const char *ps_probe_index_check(ps_probe_index_t *model, const ps_index_ring_t *ring, int64_t end,
                                 int32_t term_length, int64_t epoch_offset_ns, int64_t now_ns);

/* ps_sim_probe_fc.c */
void ps_probe_fc_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_fc_sm(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sm_t *sm,
                    const ps_addr_t *from, int64_t now_ns);
/* ps_sim_probe_join.c.  A request for a SETUP; a SETUP; a receiver that the group follows was heard
 * (returns since when it was waited for, else now_ns); after a cycle. */
void ps_probe_join_requested(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                             int64_t now_ns);
void ps_probe_join_setup(ps_probe_pub_t *model);
int64_t ps_probe_join_came(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                           int64_t now_ns);
void ps_probe_join_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
/* The hold that binds the strategy, INT64_MAX none. */
static inline int64_t ps_probe_hold(const ps_probe_pub_t *model)
{
    return model->pub->fc.join != NULL ? model->pub->fc.join->limit : INT64_MAX;
}
void ps_probe_fc_error(ps_probe_pub_t *model, int64_t receiver_id, int64_t now_ns);
void ps_probe_fc_setup_sent(ps_probe_pub_t *model);
void ps_probe_fc_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_send.c */
/* Of what was sent up to high: from where on a receiver may miss something, and whether its status
 * message may speak of a position: T/2 and, at a term's end, the longest padding behind. */
int64_t ps_probe_sent_floor(const ps_publication_t *pub, int64_t high);
bool ps_probe_may_grant(const ps_publication_t *pub, int64_t high, int64_t position);
void ps_probe_on_nak(ps_probe_pub_t *model, const ps_nak_t *nak, int64_t now_ns);
void ps_probe_send_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_setup_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_setup_t *setup,
                         int64_t now_ns);
void ps_probe_data_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                        const ps_sim_packet_t *packet, enum ps_sim_kind kind, int64_t now_ns);
void ps_probe_heartbeat_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                             int64_t now_ns);

/* ps_sim_probe_pub.c */
void ps_probe_pub_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_pub_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_img.c */
void ps_probe_image_init(ps_probe_image_t *model, int64_t now_ns);
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
/* Whether one of its ways to the sender is alive. */
bool ps_probe_is_heard(const ps_image_t *image, int64_t now_ns);
void ps_probe_recv_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_rate.c */
void ps_probe_rate_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_rate_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_round_sample(ps_probe_image_t *model, int64_t sample_ns);
void ps_probe_class_check(ps_probe_t *probe, const ps_probe_image_t *model, int64_t window,
                          int64_t most);
void ps_probe_rtt_requested(ps_probe_image_t *model, int64_t now_ns);
bool ps_probe_rtt_wanted(const ps_probe_image_t *model, int64_t now_ns);
int64_t ps_probe_rtt_answer(ps_probe_image_t *model, int64_t stamp_ns, int64_t now_ns);
void ps_probe_cubic_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_path.c */
/* Whether the mark may rise to position: what is missing then needs room in the list of gaps. */
bool ps_probe_path_has_room(const ps_image_t *image, int64_t position);
/* [from, to) was read, a chain of frames, and there is room; false: some had no place in the list
 * of gaps.  The other: it begins below what was consumed. */
bool ps_probe_path_data(ps_probe_image_t *model, const ps_sim_packet_t *packet, int64_t from,
                        int64_t to, int64_t now_ns);
void ps_probe_path_stale(ps_probe_image_t *model, int64_t from, int64_t to, int64_t now_ns);
void ps_probe_path_raised(ps_probe_image_t *model, int64_t position);
void ps_probe_path_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_pub_tethers(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_spy.c */
/* The model takes over what the sender passed without sending. */
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
/* The counter id must go up by delta. */
void ps_probe_count(ps_probe_t *probe, int32_t host, int32_t id, int64_t delta);
void ps_probe_count_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                         bool by_sender);
/* model: of the publication that sent it, NULL the receiver did. */
void ps_probe_count_sent(ps_probe_t *probe, int32_t host, const ps_probe_pub_t *model,
                         const ps_sim_packet_t *packet, bool beat, bool again);
/* A call sent less than all; data: the first datagram that was left. */
void ps_probe_count_short(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length);
void ps_probe_count_check(ps_probe_t *probe, int32_t host);

/* ps_sim_probe_event.c */
void ps_probe_event_check(ps_probe_t *probe, int32_t host, int64_t now_ns);
/* Whether the ring of events to the conductor was full lately. */
bool ps_probe_is_crowded(const ps_probe_t *probe, int32_t host, int64_t now_ns);

/* ps_sim_probe_shown.c */
void ps_probe_pub_shown(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_image_shown(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_work.c */
void ps_probe_work_check(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* ps_sim_probe_nak.c */
void ps_probe_strength_init(ps_probe_pub_t *model);
void ps_probe_strength_sent(ps_probe_pub_t *model, int64_t bytes, int64_t now_ns);
void ps_probe_strength_signal(ps_probe_pub_t *model, const ps_pressure_t *pressure, int64_t now_ns);
void ps_probe_strength_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_queue_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_queue_notified(ps_probe_t *probe, ps_probe_image_t *model,
                             const ps_pressure_t *pressure, int64_t now_ns);
int32_t ps_probe_queue_level(const ps_image_t *image, int64_t fill);
/* -1: all its readers are paused, or there is none. */
int64_t ps_probe_queue_fill(const ps_image_t *image, int64_t now_ns);
/* Up to where a receiver accepts data. */
static inline int64_t ps_probe_accepted_to(const ps_image_t *image)
{
    const int64_t term = image->log.term_length;
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 ? image->consumption + term
                                                             : image->sm_position + term / 2;
}
/* A receiver under NAK-strength control says what moves the edge only. */
static inline bool ps_probe_says_little(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* From where on consumption makes a status message due, after one at `position`. */
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
