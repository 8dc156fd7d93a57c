/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe_types.h: the models of the probe (ps_sim_probe.h). A model is the state that the
 * driver should have: of a publication, of an image, or in a duty cycle. The probe computes the
 * models from datagrams. */
#ifndef PS_SIM_PROBE_TYPES_H
#define PS_SIM_PROBE_TYPES_H

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
    PS_PROBE_HOLDS = 64,
    PS_PROBE_READERS = 8,
    PS_PROBE_LEARNED = 64
};

typedef struct ps_sim_stamps ps_sim_stamps_t;

/* The probe's copy of a token bucket. The part of the probe that uses a bucket chooses the unit of
 * the tokens (bytes or messages). */
typedef struct ps_probe_bucket {
    double level, burst, rate;
    int64_t at_ns;
} ps_probe_bucket_t;

/* A range that arrived after the receiver had requested it with exactly one NAK. If the range
 * arrives again, one arrival was the retransmit and the other the original: the original was late,
 * but not lost. */
typedef struct ps_probe_suspect {
    int64_t from, to, late_ns;
} ps_probe_suspect_t;

/* Model of an index ring. Each entry of the ring states a position, and the number of messages
 * before this position. The driver adds an entry after a 256th of a term, or after a millisecond if
 * that comes first. */
typedef struct ps_probe_index {
    uint64_t count;
    int64_t position, at_ns, end; /* `position` is the position of the newest entry; `end` is the
                                   * position up to which the messages are counted. */
} ps_probe_index_t;

/* Model of the rounds of CUBIC congestion control with HyStart++ (RFC 9406). */
typedef struct ps_probe_round {
    /* Shortest round trips: `least_ns` is the shortest of this round, `last_ns` is the shortest of
     * the previous round. `base_ns` is the shortest round trip at the time when the conservative
     * phase began. */
    int64_t least_ns, last_ns, base_ns;
    int64_t received, window; /* Number of bytes received in this round, and the window at the
                               * beginning of this round. */
    int32_t samples, conservative, phase;
} ps_probe_round_t;

/* Model of NAK-strength control in the sender. Rates are in bytes a second. */
typedef struct ps_probe_strength {
    double limit, floor, base, wall, wall_dev;
    double unsure;             /* By how much `limit` may differ from the driver's value, because
                                * the driver rounds to integers. */
    int64_t window_ns, end_ns; /* `window_ns` is the length and `end_ns` the end of the present
                                * measuring window. While the stream has no rate limit, `end_ns` is
                                * 0. */
    int64_t base_until_ns, sent_ns, began_ns;
    int64_t culprit;
    int32_t level, quiet, beyond;
    uint64_t signals;
    int64_t eighths[9], bytes[9]; /* The last nine intervals of 50/8 ms with sent data: `eighths`
                                   * has the number of each interval, `bytes` the bytes that the
                                   * sender sent in it. */
    bool open;                    /* True if a value is so near a threshold that the driver may
                                   * decide either way. In this case, the model adopts the decision
                                   * of the driver. */
} ps_probe_strength_t;

/* NAK-strength control in the receiver. */
typedef struct ps_probe_queue {
    int64_t next_ns, notified_ns, signals;
    uint32_t random;
    int32_t level; /* last signalled */
    bool started, episode;
} ps_probe_queue_t;

/* Measured values of an image's readers under NAK-strength control, at the last check. */
typedef struct ps_probe_reader {
    int32_t id;  /* of the position counter */
    bool counts; /* True if the reader holds the sender back, so that the receiver measures it. */
    ps_pressure_reader_t reader;
} ps_probe_reader_t;
typedef struct ps_probe_readers {
    ps_probe_reader_t of[PS_PROBE_READERS];
    int32_t count;
    bool outrun; /* True if the image had ended because its readers were too slow. */
} ps_probe_readers_t;

/* Datagrams in a row that show an image a position of its sender beyond repair or its window. */
typedef struct ps_probe_row {
    int64_t end;      /* of the last of these datagrams */
    int64_t further;  /* Number of datagrams that continue where the one before ended. */
    int64_t believed; /* Highest position that the image may believe. */
    int64_t seen;     /* Position that the image believed at the last check. */
    bool unsure;      /* True if the driver possibly did not count the last datagram. */
} ps_probe_row_t;

/* Measured values that the reader of an outrun image must begin its next image with. */
typedef struct ps_probe_learned {
    bool known;
    bool open; /* True if several readers read the image: the driver may use the values of any. */
    int32_t host, stream_id, session_id;
    int64_t receiver_id;
    double cadence_ns, rate;
} ps_probe_learned_t;

typedef struct ps_probe_receiver {
    int64_t id, edge, position, heard_ns, pacing_rate;
    int64_t fc_heard_ns, left_ns; /* `fc_heard_ns`: time of the last status message that counts for
                                   * flow control. `left_ns`: time at which the receiver stated that
                                   * it leaves the stream. */
    int64_t open_ns;              /* Time at which the receiver last advertised a window of at least
                                   * one datagram. */
    uint32_t reason;
    bool live;              /* True if the publication counts as connected because of this
                             * receiver. */
    bool followed, leaving; /* `followed` is true if the strategy fc=min or fc=tagged tracks the
                             * receiver. */
    /* The credits that the receiver grants, by the last statement that counts. `credit_ns`: time at
     * which the receiver began to grant credits, or stated a lower limit than before. */
    bool grants;
    uint32_t credit_epoch;
    int64_t credit_limit, credit_ns;
    bool within; /* True if the sender position has been within this receiver's window
                             * since the strategy began to track the receiver. */
} ps_probe_receiver_t;

/* State of a publication or an image before a duty cycle. If a duty cycle changes this state, the
 * driver must wake the waiting clients. `limit` is the publisher limit of a publication, or the
 * position of an image. */
typedef struct ps_probe_shown {
    bool marked, connected;
    int32_t state;
    int64_t limit;
} ps_probe_shown_t;

/* Summary of the events that the driver has sent to the conductor so far about one publication or
 * image. An entry of tether_ids is 1 + the id of a position counter; 0: the entry is free. */
typedef struct ps_probe_notified {
    int32_t connected; /* -1: no event yet */
    bool drained, ended;
    /* Last request of the driver for storage: end position of the requested storage, and time of
     * the request; 0: the driver never requested storage. */
    int64_t term, term_ns;
    /* 1 + the end position of the data at the time when the driver last released terms; 0: the
     * driver never released terms. */
    int64_t released_at;
    int64_t lost, lost_before, loss_ns, lost_gaps;
    int64_t tether_ids[PS_PROBE_TETHERS];
    int32_t tether_states[PS_PROBE_TETHERS];
    bool pressed; /* True if the driver has reported the beginning of an episode of pressure, but
                   * not its end. The fields of the next line concern this episode. */
    int64_t triggered_ns, messages_before, drained_least, drained_most, drained_by, episodes;
    /* `counted`: the number of episodes at the last check. `waits`: true if, at the last check, the
     * report of an episode's beginning waited for room in the ring. `began_by`: the number of
     * messages that were sent before the newest episode. An episode changes `began_by` only if its
     * report did not wait behind another report. */
    int64_t counted, began_by;
    bool waits;
} ps_probe_notified_t;

/* A range that a receiver requested with a NAK. The sender must retransmit the positions [`from`,
 * `need`), and may also retransmit the positions [`need`, `to`). */
typedef struct ps_probe_request {
    int64_t from, to, need, cursor, requested_ns, done_ns; /* done -1: open */
    /* True if the sender may drop this request, for example because there are too many requests. */
    bool optional;
    bool cut; /* True if the range is longer than the largest range that the sender retransmits for
               * one NAK. */
} ps_probe_request_t;

/* A receiver that has caused a join hold of the sender (ps_join.h). */
typedef struct ps_probe_joiner {
    int64_t id, given_ns;
    ps_addr_t address;
    bool used, waited, joined; /* `waited` is true while the sender waits for this receiver in a
                                * join hold. */
} ps_probe_joiner_t;

typedef struct ps_probe_join {
    int64_t limit;  /* Position at which the join hold stops the sender; INT64_MAX: no hold. */
    int64_t before; /* `limit` before the first SETUP of this duty cycle */
    ps_probe_joiner_t joiners[PS_PROBE_JOINERS];
    int32_t next_joiner, next_hold;
    int64_t from_ns[PS_PROBE_HOLDS],
        to_ns[PS_PROBE_HOLDS]; /* The latest time intervals in which a join hold limited the
                                * sender. */
    bool held, known;          /* At the last check: `known` is true if there was a join hold;
                                * `held` is true if this join hold limited the sender. */
    /* `fresh` is true while the sender has not yet sent a SETUP that a new receiver has requested.
     * `owed` is true once the sender has sent this SETUP: a join hold for the new receiver must
     * begin. */
    bool fresh, owed;
    bool began;       /* True if the driver sent a SETUP in this duty cycle. */
    int64_t ended_ns; /* Time at which the probe last noticed that a join hold had
                                * ended. */
    int64_t fresh_id;
    ps_addr_t fresh_from;
    int64_t refused;       /* Id of the joining receiver that has refused the stream in this duty
                      * cycle; 0: none. */
    bool ended_by_refusal; /* True if the group waited for a receiver that then refused. */
    /* The latest receivers that have refused the stream without being waited for; 0: none. */
    int64_t deniers[PS_PROBE_JOINERS];
    int32_t next_denier;
} ps_probe_join_t;

enum { PS_PROBE_QUEUED = 64 };

/* Model of the governor of a host, and of the turns of its streams. */
typedef struct ps_probe_governor {
    int64_t sampled_ns;       /* Time of the last sample; 0: none. */
    int64_t waits, waited_ns; /* The driver's totals at the last sample. */
    int64_t latency_ns;       /* moving average of the waits */
    int64_t pressure;         /* ppm */
    /* Time at which the pressure rose above 0.8; -1: the pressure is not above 0.8. */
    int64_t high_since_ns;
    /* Delay of a partial datagram: after the last sample, and after the sample before it. */
    int64_t coalesce_ns, last_coalesce_ns;
    int64_t interval_ns, last_interval_ns; /* of status messages */
    bool defers;
    int64_t turned_ns; /* Time at which `defers` last changed. */
    /* `step_ns`: time of the last duty cycle. `ready_ns`: for how long, since the last sample,
     * streams were certainly ready. `waited_before`, `waited_twice`: whether streams waited after
     * each of the last two duty cycles. */
    int64_t step_ns, ready_ns;
    bool waited_before, waited_twice;
    int64_t sent_bytes; /* total of the host's data and retransmits */
    /* Streams that waited for a turn after the last duty cycle. `queued`: their number; -1: more
     * than PS_PROBE_QUEUED. `queued_ns`: the time at which each of them began to wait. `round_ns`:
     * duration of a round. */
    int32_t queued;
    int64_t queued_ns[PS_PROBE_QUEUED], round_ns;
    ps_probe_promise_t samples;
} ps_probe_governor_t;

enum { PS_PROBE_BANDS = 6 };

/* Model of the shares of a host's bands. The unit of the bytes of a band is the band's share of a
 * round, and that of retransmits is a quantum. */
typedef struct ps_probe_bands {
    /* Of the present duty cycle: its number; the quantum, the largest datagram, the number of turns
     * for which no other stream waited, and the number of publications at its beginning. `slow`:
     * the sender serves all streams in this cycle. */
    int64_t cycle, quantum, datagram, alone;
    int32_t count;
    bool slow;
    int64_t step_ns; /* time of the last duty cycle */
    /* For a band i that has had data in each of the last duty cycles, and another band j:
     * `ahead[i][j]` is what j has sent since then, less what i has sent; `least[i][j]` is the least
     * value so far. `turn[i]` is the longest turn in this time, `rounding[i][j]` what changes of
     * the quantum can add. */
    double ahead[PS_PROBE_BANDS][PS_PROBE_BANDS], least[PS_PROBE_BANDS][PS_PROBE_BANDS];
    double rounding[PS_PROBE_BANDS][PS_PROBE_BANDS], turn[PS_PROBE_BANDS];
    int64_t cycles[PS_PROBE_BANDS]; /* number of these cycles */
    /* The same for retransmits, while any band has data. */
    double repair_ahead, repair_least, repair_rounding, repair_turn;
} ps_probe_bands_t;

/* Credits of a publication, as of the last check. */
typedef struct ps_probe_credits {
    bool known;       /* The stream had credits. */
    bool off;         /* The stream had no credits. */
    uint32_t epoch;   /* of the word `spend` (ps_spend.h) */
    int64_t first;    /* On IPC: the ordinal that the session's first message would have. */
    int64_t counted;  /* Position up to which the sender had counted dropped messages. */
    int64_t count;    /* messages of the ledger */
    int64_t returned; /* Credits of killed clients that the sender has certainly returned. */
    int64_t before;   /* Credits that killed clients had marked before the stream had credits. */
    bool quiet;       /* Everything was sent, and no client had marked a credit. */
    int64_t acknowledged; /* Number of credits that were taken when the last epoch began; -1: no
                           * epoch has begun since the stream has credits. */
} ps_probe_credits_t;

typedef struct ps_probe_pub {
    int32_t host;
    const ps_publication_t *pub;
    int64_t id;
    bool seen;    /* in this sweep */
    bool settled; /* True if the publication existed at the end of an earlier duty cycle. */
    ps_probe_promise_t promises[PS_PROBE_PUB_PROMISES];
    /* datagrams */
    int64_t high, last_high; /* `high` is the end position of the sent data; `last_high` is the
                              * value of `high` at the last check. */
    int64_t messages;        /* Number of messages that the publication has sent: the number of sent
                              * data frames with an END flag. */
    int64_t setup_ns, beat_ns, data_ns;
    int64_t idle_ns; /* Last time at which the publication could send no heartbeats, because it had
                      * no destination. */
    bool requested_setup, ever_heard, ever_connected;
    bool greets;     /* True if a new receiver may have appeared since the last heartbeat. */
    bool must_greet; /* A receiver is certainly new. */
    uint64_t naks;
    int32_t request_count, requested_now;
    int64_t full_ns; /* Time at which the pool of retransmits was last full; 0: never. */
    ps_probe_request_t requests[PS_PROBE_REQUESTS];
    /* receivers */
    int32_t receiver_count;
    ps_probe_receiver_t receivers[PS_PROBE_RECEIVERS];
    int64_t replaced[PS_PROBE_RECEIVERS]; /* ids of receivers whose entry another one has taken */
    uint32_t replaced_count;
    int64_t watch_ns,
        watch_edge; /* watch_ns: since this time, all status messages have advertised a limit
                          * below the sender limit; 0: the last status message advertised at least
                          * the sender limit. watch_edge: highest limit advertised since
                          * watch_ns. */
    int64_t limit;  /* by the strategy */
    /* Under min and tagged. granted: the highest limit that a status message since the last check
     * has left the strategy with; INT64_MIN: none. last_least, last_limit: at the last check, the
     * limit of the strategy and that of the sender. */
    int64_t granted, last_least, last_limit;
    int64_t stated_edge; /* Highest position that a status message of any receiver has stated. */
    ps_probe_join_t join;
    int32_t answers; /* Number of ranges that the publication may retransmit at the same time; 0:
                      * unknown. */
    int64_t plain_ns, plain_edge;
    /* memory and account */
    int64_t zero_to;           /* Position up to which the sender has certainly set the memory of
                                * the log to zero. */
    int64_t reach;             /* Upper bound of all publisher limits that the publication has had
                                * so far. */
    int64_t limit_most, began; /* `limit_most` is the highest publisher limit so far; `began` is the
                                * approximate start position of the stream. */
    int64_t held_ns, checked_ns;
    int32_t cause;
    ps_probe_bucket_t repair, pace, bytes, message_rate, nak;
    /* Pacing rate of the receivers with congestion control, in a group the highest; 0: none. */
    int64_t stated_rate;
    int64_t fresh_bytes, repair_bytes, fresh_messages; /* since the last check */
    /* A status message can set a new pacing rate within a duty cycle. `paced_bytes` is the number
     * of bytes that the driver had sent in this cycle before it read the status message. */
    int64_t paced_bytes;
    int64_t signal_bytes; /* Bytes of new data that the driver had sent in this duty cycle before it
                           * read a PRESSURE frame. */
    ps_probe_index_t index;
    ps_probe_strength_t strength;
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    int64_t last_leader;
    int64_t spied; /* highest position of a spy */
    /* True if, at the last check, the publication was connected to a receiver. Also true if the
     * driver had adopted it from an old daemon as connected. */
    bool spies_heard;
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
    bool drained;              /* True if the publication was drained at the last check. */
    bool counted, was_revoked; /* At the last check of the counters: `counted` is true if the probe
                                * had already counted this publication; `was_revoked` is true if it
                                * was revoked. */
    int64_t held_count;
    /* A turn is one step of the sender in which it sends data of this publication. `turn_datagrams`
     * and `turn_bytes` count the new data of the present turn. `turn_limit` and `turn_credits`
     * are the sender limit and the limit of the credits (INT64_MAX: none) in the last turn with new
     * data. `turn_most` and `turn_waits` are the bound by the rate of the link (INT64_MAX: none)
     * and the counter `waits` at the previous check. */
    int64_t turn_datagrams, turn_bytes, turn_limit, turn_credits, turn_most, turn_waits;
    int64_t consumed_sum, consumed_ns; /* as last shown */
    /* Publisher limit at which a policy (ps-policy) has paused the publishers; 0: the publishers
     * are not paused. */
    int64_t paused_at;
    int64_t consumed_by;
    bool forgot;       /* True if the driver has removed a receiver from its table since the last
                        * check. */
    int64_t published; /* On IPC: position up to which the probe has charged the published data to
                        * the token bucket of the rate limit. */
    /* For the governor. `step_ns`: time of the last check. `partial_ns`: time since which the
     * waiting data is shorter than a datagram; 0: no data or more data waits. `turn_ns`: time of
     * the last turn that sent new data. `partial_bytes`: bytes of this turn's datagram, if the turn
     * sent only one. */
    int64_t step_ns, partial_ns, turn_ns, partial_bytes;
    /* The present wait for a turn, which began at `wait_since_ns`. Values at that time: `wait_high`
     * is the end of the stream's sent data. `wait_bytes` is the number of bytes that the host had
     * sent. `wait_ahead` is the number of waiting streams in the stream's band. `wait_bound`:
     * largest number of bytes that the host may send during the wait. `wait_list`: priority
     * band. */
    int64_t wait_since_ns, wait_high, wait_bytes, wait_ahead, wait_bound;
    int32_t wait_list;
    /* For the shares of the bands. Values at the beginning of the duty cycle `band_cycle`:
     * `band_queued` is true if the stream waited for its turn in the list `band_list`, since
     * `band_since_ns`; `band_waits` is the counter of its waits. The stream came into this list in
     * the duty cycle `band_joined`. `band_bytes`, `band_repaired`: new data and retransmits of this
     * cycle; `band_of` is the list of its turn. */
    int64_t band_cycle, band_since_ns, band_waits, band_joined, band_bytes, band_repaired;
    int32_t band_list, band_of;
    bool band_queued;
    ps_probe_credits_t credits;
} ps_probe_pub_t;

typedef struct ps_probe_gap {
    int64_t from, to, opened_ns, requested_ns, first_ns;
    int32_t requested;
    bool timed;            /* True if the round trip was known. */
    bool placed;           /* True if the probe has checked the time of the first NAK for this
                            * gap. */
    bool lost, fresh_loss; /* `lost` is true if the gap counts as a loss; `fresh_loss` is true if it
                            * began to count as a loss in the last duty cycle. */
} ps_probe_gap_t;

typedef struct ps_probe_image {
    int32_t host;
    const ps_image_t *image;
    int64_t id;
    bool seen;
    ps_probe_promise_t promises[PS_PROBE_IMAGE_PROMISES];
    int64_t made_ns;
    int64_t edge;     /* Highest end position of the data frames and heartbeats that the image has
                       * accepted. */
    int64_t furthest; /* Highest position that the source has stated since `edge` was withdrawn. */
    /* Positions of the last lower heartbeat since then, and of one that was at least the second and
     * not below the one before; -1: there was none. sure_low, due_low: the same, of the heartbeats
     * since the last one that stated more. */
    int64_t stated_low, twice_low, sure_low, due_low;
    int64_t granted;  /* Highest position up to which the image had room; a status message may have
                       * advertised it, so it stays granted. */
    int64_t heard_ns; /* Time of the last datagram that restarted the image's liveness time-out. */
    int64_t data_ns;
    int64_t eos;          /* Position in the last heartbeat with the EOS flag; -1: no heartbeat with
                           * this flag has arrived. */
    int64_t eos_since_ns; /* Time at which the first heartbeat with the EOS flag and the position
                           * `eos` arrived. */
    ps_sim_stated_t credits;
    int64_t sm_ns, sm_position, sm_window;
    int64_t window_share; /* share of a divided window (ps-fanin) at the last status message */
    int64_t sm_forced_ns; /* Time at which the receiver last read a frame that it
                                              * must answer with a status message. */
    int64_t rtt_ns, rtt_due_ns, rtt_late_ns; /* `rtt_ns` is the time of the last RTT request. The
                                              * receiver may send the next RTT request from
                                              * `rtt_due_ns` on, and must send it by `rtt_late_ns`
                                              * if data arrives. */
    int64_t last_position;
    int64_t quiet_ns; /* Time of the last cycle in which no frame of the sender arrived. */
    int64_t seen_consumption, consumed_ns, drain_ns;
    int64_t moved_ns, surely_moved_ns, moved_sum;
    int64_t pressure_ns;
    bool was_empty; /* True if the image had no unread data at the last check. */
    int64_t least_rtt, most_rtt, smoothed_rtt, rtt_variation;
    int32_t last_phase; /* phase of cubic */
    bool counted;       /* True if the image knows the number of messages of its stream. */
    ps_probe_index_t index;
    int64_t cubic_received;
    int64_t cubic_grown_ns;    /* Time at which data last arrived or a new epoch of the cubic curve
                                * began. */
    double cubic_credit;       /* Bytes that arrived in congestion avoidance and have not yet raised
                                * the window. */
    int64_t requested_rtt[16]; /* open requests, the oldest first */
    int32_t n_requested_rtt;
    int64_t freed; /* The log was released up to here when the image ended, or is now. */
    bool inactive; /* The image is no longer active. */
    int64_t consumption;
    uint64_t naks;
    int64_t naks_shown;
    int64_t asked_ns;     /* Time of the last NAK. */
    int32_t asked;        /* Number of ranges that the receiver requested at this time. */
    int64_t asks_most_ns; /* Last check at which the receiver made as many requests as a cycle can
                           * make. */
    bool was_revoked, was_rejected;
    int32_t readers, last_state;   /* at the last check */
    int64_t lost_bytes, lost_gaps; /* Numbers of lost bytes and of lost gaps that the driver must
                                    * have counted for the image so far. */
    int32_t gap_count;
    ps_probe_gap_t gaps[PS_PROBE_GAPS];
    ps_probe_queue_t queue;
    ps_probe_readers_t readers_before;
    ps_probe_row_t row;
    /* The receiver accepts a range of positions. This field is the last position of the sender that
     * was beyond this range; 0: there was no such position. */
    int64_t beyond;
    int64_t kept;                        /* With fc=nak: position up to which the receiver accepted
                                          * data at the last check. */
    int64_t joined_bytes;                /* A gap that already counts as a loss can grow. This field
                                          * counts the missing bytes that such gaps have gained
                                          * since the last check. */
    int64_t late_ns;                     /* learned reordering */
    int64_t late_start_ns, late_top_ns;  /* In the present duty cycle: value of late_ns at its
                                          * beginning, and largest value of late_ns. */
    int64_t late_least_ns, late_most_ns; /* In the last duty cycle: least and largest value of
                                          * late_ns. */
    ps_probe_suspect_t suspects[PS_PROBE_SUSPECTS];
    uint32_t suspect_next;
    int64_t path_ns; /* Time at which the receiver last heard the sender; -1: unknown. */
    ps_probe_tether_t tethers[PS_PROBE_TETHERS];
    ps_cubic_t cubic;
    ps_probe_round_t round;
    bool cubic_known;
    bool sm_bound;             /* True if the last status message advertised less than the
                                * configured window. */
    bool sm_idle, sm_may_idle; /* `sm_idle` is true if the stream was certainly silent at the last
                                * status message; `sm_may_idle` is true if the stream was possibly
                                * silent at that time. */
    bool ended;
    /* Ranges of the datagrams that the receiver read in this duty cycle. The data of these ranges
     * must be in the log at the end of the cycle. */
    int32_t took;
    int64_t took_from[64], took_to[64];
    ps_probe_shown_t shown;
    ps_probe_notified_t notified;
} ps_probe_image_t;

/* A duty cycle of a driver: the state at its start, and the datagrams that the driver read and
 * sent. */
typedef struct ps_probe_cycle {
    bool commanded, notified; /* At the start of the cycle: `commanded` is true if commands for the
                               * agents were waiting; `notified` is true if a client had set the bit
                               * of a stream in the dirty bitmap. */
    /* True if the sender had at least one stream that it checks in each duty cycle. */
    bool turns;
    bool timed; /* a timer was due */
    int64_t tick_ns, readers;
    uint64_t positions, reported;
    uint64_t events[2]; /* Number of events that each of the two agents had emitted before this
                         * cycle. */
    uint32_t woken[PS_PROBE_CLIENTS];
    int64_t sent;                /* Number of datagrams of any kind that the driver passed to its
                                  * sockets, including refused datagrams. */
    int64_t read, data, answers; /* Numbers of datagrams. `read`: the driver read them. `data`: the
                                  * driver sent data frames. `answers`: the driver sent status
                                  * messages, NAKs and extension frames. */
} ps_probe_cycle_t;

/* Numbers of bytes and of heartbeats that a send endpoint sent to one destination in a duty
 * cycle. */
typedef struct ps_probe_tally {
    const ps_send_endpoint_t *endpoint;
    ps_addr_t to;
    int64_t bytes, beats, again; /* `beats` is the number of heartbeats, `again` the number of
                                  * retransmitted bytes */
} ps_probe_tally_t;

/* Values that the driver's counters must have; the index is the counter id. */
typedef struct ps_probe_counts {
    bool known;
    bool unsure; /* True if the probe cannot know the counters' values in this cycle. */
    int64_t of[PS_PROBE_COUNTERS];
    int32_t tally_count;
    ps_probe_tally_t tallies[PS_PROBE_TALLIES];
} ps_probe_counts_t;

/* Histogram of the random NAK delays. The bins of the histogram are quantiles of the expected
 * distribution. */
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
    int64_t refused_ns[PS_SIM_MAX_HOSTS]; /* Time at which a socket of the host last accepted only a
                                           * part of the datagrams. */
    int64_t vain_ns[PS_SIM_MAX_HOSTS];    /* Time at which the probe last set the entries of this
                                           * host in `busy` and `vain` to 0. */
    int32_t busy[PS_SIM_MAX_HOSTS];       /* Number of datagrams, commands and wake-ups since
                                           * vain_ns. */
    int32_t vain[PS_SIM_MAX_HOSTS];       /* number of duty cycles without work since vain_ns */
    int64_t settling_ns[PS_SIM_MAX_HOSTS]; /* Time for which publications waited for the end of a
                                            * freeze since vain_ns: the sum over publications. */
    int64_t checked_ns[PS_SIM_MAX_HOSTS];  /* time of the last duty cycle */
    ps_probe_promise_t releases[PS_SIM_MAX_HOSTS];
    int64_t crowded_ns[PS_SIM_MAX_HOSTS]; /* Time at which an event ring of the host's agents was
                                           * last full. */
    int64_t read_ns[PS_SIM_MAX_HOSTS];    /* Time at which the host's driver last read a
                                           * datagram. */
    ps_probe_cycle_t cycles[PS_SIM_MAX_HOSTS];
    ps_probe_counts_t counts[PS_SIM_MAX_HOSTS];
    ps_probe_governor_t governors[PS_SIM_MAX_HOSTS];
    ps_probe_bands_t bands[PS_SIM_MAX_HOSTS];
    ps_probe_gap_t next_gaps[PS_PROBE_GAPS]; /* gaps of the checked image */
    ps_probe_learned_t learned[PS_PROBE_LEARNED];
    int32_t next_learned; /* Number of sessions that have had an entry in `learned`. */
} ps_probe_t;

#endif
