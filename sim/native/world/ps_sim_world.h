/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_world.h: what the files of the simulated world share: ps_sim_world.c (time), ps_sim_app.c
 * (applications, and the ledgers by which they check what arrives), ps_sim_gap.c (gaps that they
 * were told), ps_sim_violation.c (what was found wrong).
 */
#ifndef PS_SIM_WORLD_H
#define PS_SIM_WORLD_H

#include "ps_net_sim.h"
#include "penstock.h"
#include "ps_simworld.h"

enum {
    PS_SIM_MAX_APPS = 256,
    PS_SIM_MAX_LEDGERS = 512,
    PS_SIM_MAX_VIOLATIONS = 64,
    PS_SIM_VIOLATION_BYTES = 240,
    PS_SIM_MESSAGE_MAX = 1 << 20
};

/* Content of a session. */
typedef struct ps_log ps_log_t;

/* Padding that states dropped messages: its end, and the number of dropped messages stated up to
 * there. */
typedef struct ps_sim_mark {
    int64_t end, total;
} ps_sim_mark_t;

typedef struct ps_sim_ledger {
    int32_t session_id;
    int32_t stream_id;
    uint64_t seed;
    int64_t *ends;     /* position after message i */
    int64_t *times_ns; /* when it was accepted */
    int64_t count;
    int64_t capacity;
    int32_t *sizes; /* of message i */
    int64_t edge;   /* highest position for which a receiver had room */
    /* ps_sim_drop.c: number of messages that a policy dropped */
    int64_t dropped; /* number that the publishers reported */
    ps_sim_mark_t *marks;
    int64_t mark_count, mark_capacity;
    int64_t walked; /* after the first drop: position up to which the log was searched for marks */
    /* ps_sim_lead.c: the publication whose rates limit the messages since lead_since; the last
     * second of these messages */
    int64_t lead_life; /* value of ps_sim_slot_t.lives at lead_since; 0: no message was accepted
                        * yet */
    int64_t lead_id;   /* address of the publication; a later publication may have the same
                        * address */
    int64_t lead_since, second_from, second_bytes;
} ps_sim_ledger_t;

/* ps_sim_gap.c: returns the number of the first message that ends beyond the position; count if
 * there is none. */
int64_t ps_sim_first_beyond(const ps_sim_ledger_t *ledger, int64_t position);

/* ps_sim_drop.c: counts a message for which the session's log had no room. */
void ps_sim_note_drop(ps_sim_ledger_t *ledger, const ps_log_t *log);
/* Records the marks in [walked, to) of the session's log. Call it only after a drop. */
void ps_sim_note_marks(ps_sim_ledger_t *ledger, const ps_log_t *log, int64_t to);
/* Returns the number of dropped messages that marks up to the position state. */
int64_t ps_sim_marked(const ps_sim_ledger_t *ledger, int64_t position);
/* Returns the end of the last mark up to the position; 0: none. */
int64_t ps_sim_mark_end(const ps_sim_ledger_t *ledger, int64_t position);

typedef struct ps_sim_publisher {
    ps_sim_publisher_params_t params;
    ps_sim_publisher_stats_t stats;
    int64_t due_ns;
    int64_t blocked_since_ns; /* -1: not */
    int64_t refused_limit;    /* limit when the last offer was refused; until the limit changes, a
                               * further offer is useless */
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
    ps_sim_gap_t *gaps; /* gaps reported since the last message, in order */
    int32_t gap_count;
    int32_t gap_capacity;
    int64_t released;    /* number of the message after the last one that a poll released */
    int64_t receiver_id; /* of its last image; 0: it reads on the publisher's host */
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

/* A client that an application in Python waits for. */
typedef struct ps_sim_wait {
    ps_client_t *client;
    uint32_t ticket;
} ps_sim_wait_t;

typedef struct ps_sim_slot {
    ps_driver_t *driver;
    int64_t lives; /* number of drivers of this slot so far, with the present one */
    int64_t cycle_ns;
    int64_t ready_ns;    /* earliest time of the next step */
    int64_t deadline_ns; /* deadline of the driver */
    int64_t control_ns;
    int64_t control_from_ns; /* time until which the host's conductor is busy */
    int32_t idle_steps;      /* number of steps in a row without an external event */
    bool touched;
    bool stepped; /* at this moment */
} ps_sim_slot_t;

/* An observer of the world. */
typedef struct ps_sim_world_observer {
    /* Called when the host gets another driver, or has none. */
    void (*driver_set)(void *context, int32_t host);
    /* Called when a duty cycle of the host's driver begins, and when it has ended with the reported
     * work. */
    void (*step_begins)(void *context, int32_t host, int64_t now_ns);
    void (*stepped)(void *context, int32_t host, int32_t work, int64_t now_ns);
    /* Called when a message of `size` bytes was accepted that ends at the position. */
    void (*accepted)(void *context, const ps_sim_publisher_t *publisher, int64_t end, int32_t size);
    /* Returns true if messages may be delivered with timestamps. */
    bool (*has_stamps)(const void *context);
    /* Changes a published message to the form that the host must receive. NULL, or what is
     * wrong. */
    const char *(*expected)(void *context, int32_t host, const ps_message_t *message,
                            uint8_t *published);
    void (*free)(void *context);
} ps_sim_world_observer_t;

struct ps_simworld {
    ps_simnet_t *simnet;
    const ps_sim_world_observer_t *observer; /* NULL: none */
    void *observer_context;
    uint64_t steps;
    uint64_t rules; /* rules used so far: bits of ps_sim_rule */
    int64_t now_ns;
    ps_sim_slot_t slots[PS_SIM_MAX_HOSTS];
    ps_sim_publisher_t publishers[PS_SIM_MAX_APPS];
    ps_sim_subscriber_t subscribers[PS_SIM_MAX_APPS];
    ps_sim_ledger_t ledgers[PS_SIM_MAX_LEDGERS];
    ps_sim_wait_t waits[PS_SIM_MAX_APPS];
    int32_t wait_count;
    int32_t publisher_count;
    int32_t subscriber_count;
    int32_t ledger_count;
    int32_t violation_count;
    char violations[PS_SIM_MAX_VIOLATIONS][PS_SIM_VIOLATION_BYTES];
    uint8_t offered[PS_SIM_MESSAGE_MAX];  /* message that a publisher is writing */
    uint8_t expected[PS_SIM_MESSAGE_MAX]; /* message with which a subscriber compares a received
                                           * message */
};

/* Runs one turn of an application at now_ns. Returns true if it did work. */
bool ps_sim_publisher_act(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t now_ns);
bool ps_sim_subscriber_act(ps_simworld_t *world, int32_t index, int64_t now_ns);
/* Returns the time of the application's next turn, if no event of its host is earlier. */
int64_t ps_sim_publisher_due_ns(const ps_simworld_t *world, const ps_sim_publisher_t *publisher);
int64_t ps_sim_subscriber_due_ns(const ps_sim_subscriber_t *subscriber);
void ps_sim_apps_free(ps_simworld_t *world);
/* Returns the reader's state for a session, and creates it if it is missing. NULL: the session has
 * no publisher. */
ps_sim_reader_t *ps_sim_reader_of(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                                  int32_t stream_id);
/* Takes the gaps that the subscriber's images have reached. Returns true if there was a gap. */
bool ps_sim_take_gaps(ps_simworld_t *world, int32_t subscriber);
/* Returns the number of missing messages in [first, end) that are not in a reported gap. */
int64_t ps_sim_untold(const ps_sim_ledger_t *ledger, const ps_sim_reader_t *reader, int64_t first,
                      int64_t end);
/* Forgets the gaps up to the reader's position. */
void ps_sim_forget_gaps(ps_sim_reader_t *reader);
void ps_sim_violate(ps_simworld_t *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
