/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_simworld.h: drivers and applications on the simulated network, stepped in virtual time.  This
 * header is also the cffi declaration (plain types and enums only).
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
    PS_SIMWORLD_TIME = 0,    /* until_ns */
    PS_SIMWORLD_CONTROL = 1, /* a conductor must run, because an event waits or its deadline is
                              * due */
    PS_SIMWORLD_STUCK = 2,   /* a host repeatedly requests a call at the same time, and does no work
                              * in the calls */
    PS_SIMWORLD_WOKEN = 3    /* a client for which ps_simworld_await waits was woken */
};

/* Rules that a run may use: bits of ps_simworld_rules. */
enum ps_sim_rule {
    PS_SIM_RULE_OVERRUN_REPAIRED,
    PS_SIM_RULE_OUTRUN,
    PS_SIM_RULE_REJOINED,
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
    PS_SIM_RULE_LATE_HOLDS,
    PS_SIM_RULE_LATE_MAX,
    PS_SIM_RULE_LATE_MIN,
    PS_SIM_RULE_SILENT_STRATEGY,
    PS_SIM_RULE_CUSTOM_WINDOW,
    PS_SIM_RULE_SILENT_WINDOW,
    PS_SIM_RULES
};

typedef struct ps_sim_publisher_params {
    ps_pub_t *pub; /* borrowed until detached */
    int32_t host;
    int32_t ledger;
    int32_t size_low;
    int32_t size_high;
    int64_t count; /* total number of messages, counted by the ledger */
    int64_t start_ns;
    int64_t interval_ns; /* time between messages; 0: as fast as there is room */
} ps_sim_publisher_params_t;

typedef struct ps_sim_subscriber_params {
    ps_sub_t *sub; /* borrowed until detached */
    int32_t host;
    int32_t stream_id;
    int32_t poll_limit;       /* messages a turn */
    int64_t poll_interval_ns; /* time from one turn that read messages to the next such turn */
    int32_t batch;   /* > 0: messages taken and released at each multiple of the interval */
    int64_t credits; /* largest number of outstanding messages, 0: no limit */
} ps_sim_subscriber_params_t;

typedef struct ps_sim_publisher_stats {
    int64_t messages; /* accepted by this application */
    int64_t bytes;
    int64_t position; /* after the last one */
    int64_t refusals;
    int64_t blocked_ns; /* time from a refusal to the next acceptance */
    int64_t last_ns;    /* of the last acceptance */
    int32_t at_end;     /* the stream is at the maximum position: no further message fits */
} ps_sim_publisher_stats_t;

typedef struct ps_sim_reader_stats {
    int64_t messages; /* number of the ledger's messages that were delivered, in order */
    int64_t bytes;
    int64_t missed; /* messages in explicit gaps */
    int64_t gaps;
    int64_t first;    /* number of the first message, -1: none yet */
    int64_t next;     /* number of the message after the last delivered one */
    int64_t position; /* delivered */
    int64_t last_ns;
    int64_t latency_ns; /* longest from acceptance to delivery */
    int64_t untold;     /* number of missing messages after the last delivered one that are not in a
                         * reported gap */
    int64_t dropped;    /* number of messages that the publication's policy dropped, as reported in
                         * gaps */
    int64_t uncounted;  /* number of reported gaps without a number of messages */
} ps_sim_reader_stats_t;

/* PS_E_NO_MEMORY.  The simnet must outlive it. */
int ps_simworld_create(ps_simnet_t *simnet, ps_simworld_t **out);
void ps_simworld_destroy(ps_simworld_t *world);
/* Sets the driver of a host; NULL: none (crashed). cycle_ns >= 1: shortest time between two
 * steps. */
int ps_simworld_set_driver(ps_simworld_t *world, int32_t host, ps_driver_t *driver,
                           int64_t cycle_ns);
/* Sets the time at which the host's conductor must be called. */
void ps_simworld_set_control_ns(ps_simworld_t *world, int32_t host, int64_t deadline_ns);
/* Runs one duty cycle of the host's driver, in addition to the cycles that ps_simworld_run
 * runs. Returns the work done. */
int32_t ps_simworld_step(ps_simworld_t *world, int32_t host, int64_t now_ns);
/* Marks a host whose driver must be stepped. */
void ps_simworld_touch(ps_simworld_t *world, int32_t host);

/* Defines the content of a session: its messages are computed from seed and number, so that every
 * receiver can check them. Returns its index. PS_E_NO_MEMORY. */
int32_t ps_simworld_add_ledger(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                               uint64_t seed);
int64_t ps_simworld_ledger_messages(const ps_simworld_t *world, int32_t ledger);
int64_t ps_simworld_ledger_position(const ps_simworld_t *world, int32_t ledger);

/* Returns an index.  PS_E_NO_MEMORY, PS_E_NO_SPACE. */
int32_t ps_simworld_add_publisher(ps_simworld_t *world, const ps_sim_publisher_params_t *params);
int32_t ps_simworld_add_subscriber(ps_simworld_t *world, const ps_sim_subscriber_params_t *params);
/* Stops the use of the handle; the statistics stay. */
void ps_simworld_detach_publisher(ps_simworld_t *world, int32_t publisher);
void ps_simworld_detach_subscriber(ps_simworld_t *world, int32_t subscriber);
/* Pauses or continues an application. */
void ps_simworld_pause_publisher(ps_simworld_t *world, int32_t publisher, int32_t paused);
void ps_simworld_pause_subscriber(ps_simworld_t *world, int32_t subscriber, int32_t paused);
/* Records that the subscriber was notified of an image, so that a gap before its first message is
 * allowed. */
void ps_simworld_expect_gap(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                            int32_t stream_id);
/* Allows gaps for the subscriber (reliable=false): each missing message must lie in a reported
 * gap. */
void ps_simworld_allow_gaps(ps_simworld_t *world, int32_t subscriber);
void ps_simworld_publisher(const ps_simworld_t *world, int32_t publisher,
                           ps_sim_publisher_stats_t *out);
void ps_simworld_reader(const ps_simworld_t *world, int32_t subscriber, int32_t ledger,
                        ps_sim_reader_stats_t *out);
/* Returns the number of messages of a session that its publication's policy dropped, as the
 * publishers reported. */
int64_t ps_simworld_ledger_dropped(const ps_simworld_t *world, int32_t ledger);
/* Returns a hash over the subscriber's messages and their times. */
uint64_t ps_simworld_digest(const ps_simworld_t *world, int32_t subscriber);

/* Applications in Python. Ends the next run as soon as the client's ticket differs from this one.
 * The client must stay open until ps_simworld_await_nobody. PS_E_NO_SPACE: PS_SIM_MAX_APPS. */
int ps_simworld_await(ps_simworld_t *world, ps_client_t *client, uint32_t ticket);
void ps_simworld_await_nobody(ps_simworld_t *world);
/* Makes a publication of an application in Python read the time of the world. The world must
 * outlive the publication. */
void ps_simworld_set_clock(ps_simworld_t *world, ps_pub_t *pub);

/* Runs until until_ns or until Python is needed. *now_ns: the caller sets the time at which the run
 * starts; the function stores the time at which it ended. Returns ps_simworld_stop. Bound: one step
 * of a host in each of its cycles. */
int32_t ps_simworld_run(ps_simworld_t *world, int64_t until_ns, int64_t *now_ns);
/* The host's conductor is busy until until_ns and processes no event. */
void ps_simworld_hold_control(ps_simworld_t *world, int32_t host, int64_t until_ns);
/* Returns 1 if the host's conductor must run now. */
int32_t ps_simworld_wants_control(const ps_simworld_t *world, int32_t host, int64_t now_ns);
uint64_t ps_simworld_steps(const ps_simworld_t *world);
/* Returns a violation by index, "" beyond the last. The first 16 are kept. */
const char *ps_simworld_violation(const ps_simworld_t *world, int32_t index);
/* Returns those rules checked by the probe that the run used: a bit for each ps_sim_rule. */
uint64_t ps_simworld_rules(const ps_simworld_t *world);

#endif
