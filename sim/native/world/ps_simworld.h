/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_simworld.h: drivers and applications on the hosts of the simulated network. The drivers and
 * applications run step by step in virtual time. This header is also the cffi declaration (plain
 * types and enums only).
 */
#ifndef PS_SIMWORLD_H
#define PS_SIMWORLD_H

#include <stdint.h>

#include "ps_simnet.h"

typedef struct ps_driver ps_driver_t;
typedef struct ps_pub ps_pub_t;
typedef struct ps_sub ps_sub_t;
typedef struct ps_client ps_client_t;
typedef struct ps_simworld ps_simworld_t;

enum ps_simworld_stop {
    PS_SIMWORLD_TIME = 0, /* until_ns */
    /* A host's conductor must run: an event waits for the conductor, or the conductor's deadline
     * has come. */
    PS_SIMWORLD_CONTROL = 1,
    PS_SIMWORLD_STUCK = 2, /* A host repeatedly requests a duty cycle at the same virtual time,
                              * and does no work in these duty cycles. */
    PS_SIMWORLD_WOKEN = 3  /* A client that was passed to ps_simworld_await was woken. */
};

/* Rules of the protocol. For each run, the simulator records which of the following rules the
 * driver has used. ps_simworld_rules returns a bit for each used rule. */
enum ps_sim_rule {
    PS_SIM_RULE_OVERRUN_REPAIRED,
    PS_SIM_RULE_OUTRUN,
    PS_SIM_RULE_REJOINED,
    PS_SIM_RULE_HASTENS,
    PS_SIM_RULE_PAUSED,
    PS_SIM_RULE_CUT_BY_STRENGTH,
    PS_SIM_RULE_SETTLES,
    PS_SIM_RULE_DRAINS,
    PS_SIM_RULE_OVERRUN_CUTS,
    PS_SIM_RULE_PROBES,
    PS_SIM_RULE_PROBES_BEYOND,
    PS_SIM_RULE_FREE_AGAIN,
    PS_SIM_RULE_HEALTHY_SILENCE,
    PS_SIM_RULE_NAK_AND_WINDOW,
    PS_SIM_RULE_PLAIN_BOUNDS,
    PS_SIM_RULE_JOIN_HOLD,
    PS_SIM_RULE_JOIN_EXPIRED,
    PS_SIM_RULE_JOIN_TOO_SOON,
    PS_SIM_RULE_JOIN_NOT_JOINED,
    PS_SIM_RULE_JOIN_SPENT,
    PS_SIM_RULE_JOIN_REFUSED,
    PS_SIM_RULE_LATE_HOLDS,
    PS_SIM_RULE_LATE_MAX,
    PS_SIM_RULE_LATE_MIN,
    PS_SIM_RULE_SILENT_STRATEGY,
    PS_SIM_RULE_CUSTOM_WINDOW,
    PS_SIM_RULE_SILENT_WINDOW,
    PS_SIM_RULE_COALESCES,
    PS_SIM_RULE_COALESCED,
    PS_SIM_RULE_DEFERS,
    PS_SIM_RULE_DELAYS_STATUS,
    PS_SIM_RULE_THROTTLES,
    PS_SIM_RULE_RELAYED_REASON,
    PS_SIM_RULES
};

typedef struct ps_sim_publisher_params {
    ps_pub_t *pub; /* borrowed until detached */
    int32_t host;
    int32_t ledger;
    int32_t size_low;
    int32_t size_high;
    int64_t count; /* Number of messages in the whole session, including those of earlier
                    * publishers. */
    int64_t start_ns;
    int64_t interval_ns; /* Time between two messages; 0: the application offers as fast as the
                          * stream accepts. */
    int32_t claims; /* 1: the application claims some of its messages, and aborts some claims. */
} ps_sim_publisher_params_t;

typedef struct ps_sim_subscriber_params {
    ps_sub_t *sub; /* borrowed until detached */
    int32_t host;
    int32_t stream_id;
    int32_t poll_limit; /* messages a turn */
    /* Time from a turn in which the application read messages to the application's next turn. */
    int64_t poll_interval_ns;
    int32_t batch;   /* If above 0: number of messages that the application reads and
                               * releases at each multiple of poll_interval_ns. */
    int64_t credits; /* Number of credits that the application grants: the largest number
                               * of outstanding messages. 0: the application grants no credits. */
    /* If `pool` is above 0, all subscriptions of the host with this `pool` divide their credits
     * among all their publishers. */
    int32_t pool;
} ps_sim_subscriber_params_t;

/* Datagrams of senders under NAK-strength control that receivers discarded for lack of storage. */
typedef struct ps_sim_unstored {
    uint64_t datagrams;
    uint64_t ranges; /* Number of these datagrams that begin at the end of the received data. The
                      * discarded datagrams that follow are part of the same gap. */
} ps_sim_unstored_t;

typedef struct ps_sim_publisher_stats {
    int64_t messages; /* accepted by this application */
    int64_t bytes;
    int64_t position; /* after the last one */
    int64_t refusals;
    /* Total time for which the application was blocked. Each blocked interval begins with a refused
     * offer, and ends when the stream next accepts an offer. */
    int64_t blocked_ns;
    int64_t last_ns; /* of the last acceptance */
    int32_t at_end;  /* 1: the stream has reached the maximum position, so no further message
                         * fits. */
} ps_sim_publisher_stats_t;

typedef struct ps_sim_reader_stats {
    int64_t messages; /* Number of messages of the session that were delivered to this
                       * subscriber. */
    int64_t bytes;
    int64_t missed; /* messages in explicit gaps */
    int64_t gaps;
    int64_t first;    /* Number of the first delivered message (the session counts its messages from
                       * 0); -1: no message was delivered yet. */
    int64_t next;     /* 1 + the number of the last delivered message. */
    int64_t position; /* delivered */
    int64_t last_ns;
    int64_t latency_ns; /* longest from acceptance to delivery; the time in which the application
                         * was away after a skip does not count */
    int64_t untold;     /* number of missing messages, after the last delivered message, that lie in
                         * no reported gap */
    int64_t dropped;    /* number of messages that the publication's policy dropped, according to
                         * the reported gaps */
    int64_t uncounted;  /* number of reported gaps that do not state a number of messages */
} ps_sim_reader_stats_t;

/* PS_E_NO_MEMORY. Destroy the world before the simulated network (simnet). */
int ps_simworld_create(ps_simnet_t *simnet, ps_simworld_t **out);
void ps_simworld_destroy(ps_simworld_t *world);
/* Sets the driver of a host; NULL: the host has crashed, so it has no driver. cycle_ns >= 1 is the
 * shortest time between two duty cycles of the driver. */
int ps_simworld_set_driver(ps_simworld_t *world, int32_t host, ps_driver_t *driver,
                           int64_t cycle_ns);
/* Sets the time at which the host's conductor must be called. */
void ps_simworld_set_control_ns(ps_simworld_t *world, int32_t host, int64_t deadline_ns);
/* Runs one additional duty cycle of the host's driver now, outside of ps_simworld_run. Returns the
 * amount of work that the driver did. */
int32_t ps_simworld_step(ps_simworld_t *world, int32_t host, int64_t now_ns);
/* Makes the next ps_simworld_run execute a duty cycle of this host's driver. */
void ps_simworld_touch(ps_simworld_t *world, int32_t host);

/* Adds a ledger, which defines the messages of a session. The content of each message is computed
 * from `seed` and the message's number, so that every receiver can check it. Returns the index of
 * the ledger. PS_E_NO_MEMORY. */
int32_t ps_simworld_add_ledger(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                               uint64_t seed);
/* Makes the publishers of a ledger write a reserved value, computed from the seed and the message's
 * number. Call this function before the first message. Do not use it for a channel that writes
 * timestamps. */
void ps_simworld_reserve(ps_simworld_t *world, int32_t ledger);
/* Adds the ledger of a session that a relay publishes. The relay reads the source session from
 * `join_position` on. If another process of the relay published the session before, returns its
 * ledger. PS_E_NO_SPACE; PS_E_INVALID: the source session has no publisher. */
int32_t ps_simworld_add_relayed(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                                int32_t source_session_id, int32_t source_stream_id, int32_t relay,
                                int64_t join_position);
/* Notes and checks a message that the publication of a relay has accepted. The message ends at
 * `position`; `publisher` is an index that ps_simworld_add_publisher has returned. PS_E_NO_MEMORY.
 */
int32_t ps_simworld_relayed(ps_simworld_t *world, int32_t publisher, int64_t position,
                            const uint8_t *data, int64_t length, int64_t reserved_value);
/* Notes that the publication of a relay has refused a message. */
void ps_simworld_relay_refused(ps_simworld_t *world, int32_t publisher);
/* Notes and checks a gap of the source that was reported to a relay: it states the number of
 * missing messages. -1: the number is unknown; a violation unless `may_not_know` is set. `ledger`
 * is the ledger of the session that the relay publishes. */
void ps_simworld_relay_gap(ps_simworld_t *world, int32_t ledger, int64_t from, int64_t to,
                           int64_t messages, int32_t may_not_know);
/* Checks the position up to which a relay has released the source of the ledger. */
void ps_simworld_relay_released(ps_simworld_t *world, int32_t ledger, int64_t position);
/* Numbers of messages of a session that a relay reads. The relay has published `messages` of the
 * messages from number `first` up to number `next`. Gaps reported the other `left_out` of them.
 * Other gaps reported `told` messages that the publishers' policy dropped. `source` is the ledger
 * of the session. */
typedef struct ps_sim_relay_account {
    int64_t source, first, next, messages, left_out, told;
} ps_sim_relay_account_t;
void ps_simworld_relay_account(const ps_simworld_t *world, int32_t ledger,
                               ps_sim_relay_account_t *out);
/* Returns the number of the message of the source with which a relay continues. */
int64_t ps_simworld_relay_next(const ps_simworld_t *world, int32_t ledger);
/* Sets the limits on the data that the publication of a ledger retains for its readers: a number of
 * bytes and an age. 0: no limit. */
void ps_simworld_set_retention(ps_simworld_t *world, int32_t ledger, int64_t bytes, int64_t age_ns);
int64_t ps_simworld_ledger_messages(const ps_simworld_t *world, int32_t ledger);
int64_t ps_simworld_ledger_position(const ps_simworld_t *world, int32_t ledger);

/* Returns an index.  PS_E_NO_MEMORY, PS_E_NO_SPACE. */
int32_t ps_simworld_add_publisher(ps_simworld_t *world, const ps_sim_publisher_params_t *params);
int32_t ps_simworld_add_subscriber(ps_simworld_t *world, const ps_sim_subscriber_params_t *params);
/* Stop using the handle of the application's publication or subscription. The statistics stay. */
void ps_simworld_detach_publisher(ps_simworld_t *world, int32_t publisher);
void ps_simworld_detach_subscriber(ps_simworld_t *world, int32_t subscriber);
/* Kills the application in an offer. If the stream has credits, the application has taken a credit
 * and marked it, and its message is not in the log. Then as ps_simworld_detach_publisher. */
void ps_simworld_kill_publisher(ps_simworld_t *world, int32_t publisher);
/* Pauses or continues an application. */
void ps_simworld_pause_publisher(ps_simworld_t *world, int32_t publisher, int32_t paused);
void ps_simworld_pause_subscriber(ps_simworld_t *world, int32_t subscriber, int32_t paused);
/* Changes the pace of a subscriber: from now on, it reads `batch` messages in each interval. */
void ps_simworld_pace_subscriber(ps_simworld_t *world, int32_t subscriber, int64_t interval_ns,
                                 int32_t batch);
/* Records that the client has notified the subscriber of a new image. The simulator then allows
 * messages to be missing before the first message of this image. */
void ps_simworld_expect_gap(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                            int32_t stream_id);
/* Allows the subscriber to miss messages, as with reliable=false. Each missing message must lie in
 * a reported gap. */
void ps_simworld_allow_gaps(ps_simworld_t *world, int32_t subscriber);
void ps_simworld_publisher(const ps_simworld_t *world, int32_t publisher,
                           ps_sim_publisher_stats_t *out);
void ps_simworld_reader(const ps_simworld_t *world, int32_t subscriber, int32_t ledger,
                        ps_sim_reader_stats_t *out);
/* Returns how many messages the publication's policy (ps-policy) dropped in the session of this
 * ledger. The simulated publishers count these messages. */
int64_t ps_simworld_ledger_dropped(const ps_simworld_t *world, int32_t ledger);
/* Returns a hash over the subscriber's messages and their times. */
uint64_t ps_simworld_digest(const ps_simworld_t *world, int32_t subscriber);

/* For applications in Python: makes the next run end as soon as the client is woken. Each wake-up
 * changes the client's ticket, so the ticket then differs from `ticket`. The client must stay open
 * until the call of ps_simworld_await_nobody. PS_E_NO_SPACE: there are already PS_SIM_MAX_APPS
 * waiting clients. */
int ps_simworld_await(ps_simworld_t *world, ps_client_t *client, uint32_t ticket);
void ps_simworld_await_nobody(ps_simworld_t *world);
/* Makes a publication of a Python application use virtual time when it measures how long it has
 * refused offers. Close the publication before the world is destroyed. */
void ps_simworld_set_clock(ps_simworld_t *world, ps_pub_t *pub);

/* Runs the world until until_ns, or until Python code must run. The caller sets *now_ns to the time
 * at which the run starts; the function sets *now_ns to the time at which the run ended. Returns
 * ps_simworld_stop. */
int32_t ps_simworld_run(ps_simworld_t *world, int64_t until_ns, int64_t *now_ns);
/* Makes the host's conductor busy until until_ns: before that time, the conductor processes no
 * event. */
void ps_simworld_hold_control(ps_simworld_t *world, int32_t host, int64_t until_ns);
/* Returns 1 if the host's conductor must run now. */
int32_t ps_simworld_wants_control(const ps_simworld_t *world, int32_t host, int64_t now_ns);
uint64_t ps_simworld_steps(const ps_simworld_t *world);
/* Returns the text of a violation that an oracle found, by its index; "" if there is no such
 * violation. The world keeps only the first PS_SIM_MAX_VIOLATIONS violations. */
const char *ps_simworld_violation(const ps_simworld_t *world, int32_t index);
/* Returns a bit for each ps_sim_rule: the bit is set if the driver has used this rule in the run.
 * The probe must be active, because it records the rules. */
uint64_t ps_simworld_rules(const ps_simworld_t *world);
/* The probe must be active, because it counts the datagrams. */
void ps_simworld_unstored(const ps_simworld_t *world, ps_sim_unstored_t *out);

#endif
