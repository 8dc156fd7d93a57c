/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_world.h: what the halves of the simulated world share: ps_sim_world.c (time) and
 * ps_sim_app.c (applications, and the ledgers by which they check what arrives).
 */
#ifndef PS_SIM_WORLD_H
#define PS_SIM_WORLD_H

#include "ps_net_sim.h"
#include "penstock.h"

enum {
    PS_SIM_MAX_APPS = 256,
    PS_SIM_MAX_LEDGERS = 512,
    PS_SIM_MAX_VIOLATIONS = 64,
    PS_SIM_VIOLATION_BYTES = 240,
    PS_SIM_MESSAGE_MAX = 1 << 20
};

/* Content of a session. */
typedef struct ps_sim_ledger {
    int32_t session_id;
    int32_t stream_id;
    uint64_t seed;
    int64_t *ends;     /* position after message i */
    int64_t *times_ns; /* when it was accepted */
    int64_t count;
    int64_t capacity;
    int32_t *sizes; /* of message i */
    int64_t edge;   /* furthest that a receiver ever had room for */
    /* ps_sim_lead.c: whose rates the messages from lead_since on keep to; their last second */
    int64_t lead_life; /* ps_sim_slot_t.lives then; 0: nothing was accepted yet */
    int64_t lead_id;   /* of the publication; an address may come twice */
    int64_t lead_since, second_from, second_bytes;
} ps_sim_ledger_t;

/* ps_sim_gap.c: number of the first message that ends beyond the position, count when none does. */
int64_t ps_sim_first_beyond(const ps_sim_ledger_t *ledger, int64_t position);

typedef struct ps_sim_publisher {
    ps_sim_publisher_params_t params;
    ps_sim_publisher_stats_t stats;
    int64_t due_ns;
    int64_t blocked_since_ns; /* -1: not */
    int64_t refused_limit;    /* what held when an offer was refused: no use to request again */
    int64_t refused_ordinals;
    int32_t refused_connected;
    bool refused;
    bool attached;
    bool paused;
} ps_sim_publisher_t;

/* A range of positions that is missing permanently, as reported to the subscriber. */
typedef struct ps_sim_gap {
    int64_t from, to;
} ps_sim_gap_t;

/* Progress of one subscriber in one ledger. */
typedef struct ps_sim_reader {
    int32_t ledger;
    bool may_jump;
    ps_sim_gap_t *gaps; /* told since the last message, in order */
    int32_t gap_count;
    int32_t gap_capacity;
    ps_sim_reader_stats_t stats;
} ps_sim_reader_t;

typedef struct ps_sim_subscriber {
    ps_sim_subscriber_params_t params;
    ps_sim_reader_t *readers;
    int32_t reader_count;
    int64_t ready_ns;
    uint64_t digest;
    bool attached;
    bool paused;
    bool gaps_allowed;
    bool holds; /* delivered, not yet released */
} ps_sim_subscriber_t;

typedef struct ps_sim_slot {
    ps_driver_t *driver;
    int64_t lives; /* drivers that sat here so far, this one included */
    int64_t cycle_ns;
    int64_t ready_ns;    /* the next step is not before */
    int64_t deadline_ns; /* the driver's own */
    int64_t control_ns;
    int64_t control_from_ns; /* its conductor is busy until then */
    int32_t idle_steps;      /* in a row, with nothing touched */
    bool touched;
    bool stepped; /* at this moment */
} ps_sim_slot_t;

struct ps_simworld {
    ps_simnet_t *simnet;
    uint64_t steps;
    int64_t now_ns;
    ps_sim_slot_t slots[PS_SIM_MAX_HOSTS];
    ps_sim_publisher_t publishers[PS_SIM_MAX_APPS];
    ps_sim_subscriber_t subscribers[PS_SIM_MAX_APPS];
    ps_sim_ledger_t ledgers[PS_SIM_MAX_LEDGERS];
    int32_t publisher_count;
    int32_t subscriber_count;
    int32_t ledger_count;
    int32_t violation_count;
    char violations[PS_SIM_MAX_VIOLATIONS][PS_SIM_VIOLATION_BYTES];
    uint8_t offered[PS_SIM_MESSAGE_MAX];  /* the message that a publisher writes now */
    uint8_t expected[PS_SIM_MESSAGE_MAX]; /* the message that a subscriber compares now */
};

/* One turn of an application at now_ns.  Returns whether it did anything. */
bool ps_sim_publisher_act(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t now_ns);
bool ps_sim_subscriber_act(ps_simworld_t *world, int32_t index, int64_t now_ns);
/* When it acts without anything happening on its host. */
int64_t ps_sim_publisher_due_ns(const ps_simworld_t *world, const ps_sim_publisher_t *publisher);
int64_t ps_sim_subscriber_due_ns(const ps_sim_subscriber_t *subscriber);
void ps_sim_apps_free(ps_simworld_t *world);
/* A duty cycle of the host ended: how far its receivers have room. */
void ps_sim_bound_watch(ps_simworld_t *world, int32_t host);
/* A message of this length that ends there was accepted: it must begin within the windows. */
void ps_sim_bound_check(ps_simworld_t *world, const ps_sim_publisher_t *publisher, int64_t end,
                        int32_t size);
/* The reader's place for a session, made when there is none. NULL: it has no publisher. */
ps_sim_reader_t *ps_sim_reader_of(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                                  int32_t stream_id);
/* Takes the gaps that the subscriber's images stand behind.  Returns whether there was one. */
bool ps_sim_take_gaps(ps_simworld_t *world, int32_t subscriber);
/* How many of the messages from first to before end no gap told explains. */
int64_t ps_sim_untold(const ps_sim_ledger_t *ledger, const ps_sim_reader_t *reader, int64_t first,
                      int64_t end);
/* The gaps up to the reader's position are done with. */
void ps_sim_forget_gaps(ps_sim_reader_t *reader);
void ps_sim_violate(ps_simworld_t *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
