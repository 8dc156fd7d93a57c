/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_world.h: declarations that the files of the simulated world share: ps_sim_world.c (time),
 * ps_sim_app.c (applications, and the ledgers with which they check received messages),
 * ps_sim_gap.c (gaps that were reported to applications), ps_sim_violation.c (violations that were
 * found).
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

typedef struct ps_log ps_log_t;

/* A *mark* is a padding frame that states how many messages a policy dropped. This structure
 * describes one mark: its end position, and the total number of dropped messages that this mark and
 * all earlier marks state. */
typedef struct ps_sim_mark {
    int64_t end, total;
} ps_sim_mark_t;

/* The ledger of a session: a record of the messages that the session has accepted from its
 * publishers. */
typedef struct ps_sim_ledger {
    int32_t session_id;
    int32_t stream_id;
    uint64_t seed;
    int64_t *ends;     /* position after message i */
    int64_t *times_ns; /* when it was accepted */
    int64_t count;
    int64_t capacity;
    int32_t *sizes;      /* of message i */
    int32_t max_payload; /* of a fragment, in bytes; 0: no message was accepted */
    int64_t edge;        /* Highest position up to which any receiver accepted data. */
    uint64_t estranged;  /* Bit i: an image of host i followed a stranger. */
    int64_t stated; /* Highest edge of a window that a status message, also a stranger's, stated. */
    /* These fields belong to ps_sim_drop.c. This file counts the messages that the publication's
     * policy dropped. */
    int64_t dropped; /* number that the publishers reported */
    int64_t killed;  /* Number of credits that killed publishers had taken for no message. */
    bool aborts;     /* a publisher has aborted claims */
    bool failed;     /* with ps-policy=error: an offer failed, and no publisher has reset since */
    ps_sim_mark_t *marks;
    int64_t mark_count, mark_capacity;
    int64_t walked; /* After the first drop: position up to which the simulator has searched the log
                     * for marks. */
    /* ps_sim_lead.c uses these fields to check the rate limits of a publication: it counts the
     * messages since message number lead_since, and the messages of the last second. */
    int64_t lead_life; /* Number of drivers that the publisher's host had started when the
                        * publication accepted message number lead_since; 0: no message was accepted
                        * yet. */
    /* Id of a publication. Its rates limit the messages since number lead_since. */
    int64_t lead_id;
    int64_t lead_since, second_from, second_bytes;
    int64_t retained_bytes, retained_ns; /* Limits on the data that the publication retains
                                          * (ps-retention, ps-retention-time); 0: no limit. */
    bool reserved;                       /* The publishers write a reserved value. */
    /* The session of a relay; ps_sim_relay.c writes these fields. */
    int32_t relay;     /* 1 + the relay's number; 0: a publisher's session */
    int32_t source;    /* index of the ledger of the session that the relay reads */
    bool begun;        /* The relay has published a message. */
    int64_t next;      /* Number of the next message in the session that the relay reads. Before the
                       * first message: the lowest number that the relay may begin with. */
    int64_t first;     /* Number there of the first message that the relay had to publish. */
    int64_t left_out;  /* Messages there that gaps reported to the relay. */
    int64_t told;      /* Dropped messages there that gaps reported to the relay. */
    bool within;       /* The relay joined in the middle of a message, which it does not get. */
    int64_t *origins;  /* The number that message i has in the session of its publisher; NULL: it is
                       * i. */
    uint8_t **changed; /* Content of message i, if a stranger on the network changed the message
                        * before the relay published it; otherwise NULL. The ledger owns it. */
} ps_sim_ledger_t;

uint64_t ps_sim_scramble(uint64_t value);
/* Returns the size of a publisher's message. */
int32_t ps_sim_message_size(const ps_sim_ledger_t *ledger, int64_t number, int32_t low,
                            int32_t high);
/* Writes the content of message `number` of the ledger, which has `length` bytes. */
void ps_sim_write_content(uint8_t *out, int32_t length, const ps_sim_ledger_t *ledger,
                          int64_t number);
bool ps_sim_is_content(const uint8_t *data, int32_t length, const ps_sim_ledger_t *ledger,
                       int64_t number);
/* Returns whether an image of the host has followed a stranger that spoke first. Only then can a
 * reader on this host get content that the stranger changed. */
bool ps_sim_is_estranged(const ps_sim_ledger_t *ledger, int32_t host);
/* Returns whether `data` is the content `published` as a stranger on the network may have changed
 * it (ps_net_sim_forge.c). */
bool ps_sim_is_forged_content(const uint8_t *data, const uint8_t *published, int32_t length);
/* Returns the reserved value that message `number` of the ledger must have; 0: none. */
int64_t ps_sim_reserved_value(const ps_sim_ledger_t *ledger, int64_t number);
/* Makes room for one further message.  false: there is no memory. */
bool ps_sim_ledger_grow(ps_sim_ledger_t *ledger);
/* Returns the number of the message that ends at `position`; -1: none does. `guess` is the number
 * that it probably has. */
int64_t ps_sim_number_at(const ps_sim_ledger_t *ledger, int64_t position, int64_t guess);
void ps_sim_ledgers_free(ps_simworld_t *world);

/* Returns the number of the first message that ends beyond `position`. If no message ends beyond
 * `position`, returns the number of messages in the session (ps_sim_gap.c). */
int64_t ps_sim_first_beyond(const ps_sim_ledger_t *ledger, int64_t position);

/* Counts a message that the policy dropped because the session's log had no room
 * (ps_sim_drop.c). */
void ps_sim_note_drop(ps_sim_ledger_t *ledger, const ps_log_t *log);
/* Checks the code of a refused offer: the publication's policy must permit the code. Notes that a
 * publication with ps-policy=error has failed (ps_sim_drop.c). */
void ps_sim_check_refusal(ps_simworld_t *world, ps_sim_ledger_t *ledger, const ps_pub_t *pub,
                          int64_t code);
/* If a publication with ps-policy=error has failed, resets it. Checks that it failed only at a
 * refusal, and that the reset ends the failure (ps_sim_drop.c). */
void ps_sim_reset_failed(ps_simworld_t *world, ps_sim_ledger_t *ledger, ps_pub_t *pub);
/* Searches the positions [walked, to) of the session's log for marks (padding frames that state
 * dropped messages). Call this function only after a message was dropped. */
void ps_sim_note_marks(ps_sim_ledger_t *ledger, const ps_log_t *log, int64_t to);
/* Returns the total number of dropped messages that the marks up to `position` state (a mark is a
 * padding frame for dropped messages). */
int64_t ps_sim_marked(const ps_sim_ledger_t *ledger, int64_t position);
/* Returns the end position of the last mark (a padding frame for dropped messages) at or before
 * `position`; 0: there is no such mark. */
int64_t ps_sim_mark_end(const ps_sim_ledger_t *ledger, int64_t position);

typedef struct ps_sim_publisher {
    ps_sim_publisher_params_t params;
    ps_sim_publisher_stats_t stats;
    int64_t due_ns;
    int64_t blocked_since_ns; /* -1: not */
    int64_t refused_limit;    /* Publisher limit when the last offer was refused. Until the
                               * publisher limit differs from this value, the application makes no
                               * further offer. */
    int64_t refused_ordinals;
    int32_t refused_connected;
    int64_t aborted; /* Number of messages before the last one for which it aborted a claim. */
    bool refused;
    bool attached;
    bool paused;
} ps_sim_publisher_t;

/* Publishes message `number` of the ledger. With `claims`, the application claims some messages,
 * and aborts a claim before some. Returns what ps_pub_offer returns. */
int64_t ps_sim_publish(ps_sim_publisher_t *publisher, ps_sim_ledger_t *ledger, int64_t number,
                       const uint8_t *message, int32_t size, int64_t reserved_value);

enum { PS_SIM_FAN_IN_IMAGES = 8 };

/* A range of positions that the client reported to the subscriber as permanently missing. */
typedef struct ps_sim_gap {
    int64_t from, to;
} ps_sim_gap_t;

/* Progress of one subscriber in one session; `ledger` is the index of the session's ledger. */
typedef struct ps_sim_reader {
    int32_t ledger;
    bool may_jump;
    bool unpaid;        /* Its sender did not support credits, or was not known to. */
    ps_sim_gap_t *gaps; /* gaps that were reported since the last delivered message, in order */
    int32_t gap_count;
    int32_t gap_capacity;
    int64_t released;    /* 1 + the number of the last message that the subscriber has released. */
    int64_t receiver_id; /* Receiver id of the subscriber's last image; 0: the subscriber reads on
                          * the publisher's host. */
    /* At the last check: number of bytes that the subscriber had dropped, because of the
     * retention. */
    int64_t expired_bytes;
    int64_t skipped_bytes; /* number of bytes that the isolated subscriber had skipped at the last
                            * check */
    int64_t skip_ns;       /* time of the poll that skipped; 0: a later poll delivered a message */
    ps_sim_reader_stats_t stats;
} ps_sim_reader_t;

typedef struct ps_sim_subscriber {
    ps_sim_subscriber_params_t params;
    ps_sim_reader_t *readers;
    int32_t reader_count;
    int64_t ready_ns;
    int64_t resumed_ns; /* end of the last pause; INT64_MAX: it has not ended; 0: no pause */
    uint64_t digest;
    bool attached;
    bool paused;
    bool gaps_allowed;
    bool holds; /* delivered, not yet released */
    /* With ps-fanin, ps_sim_fan_in.c counts the messages of each image since each image has data in
     * every poll. */
    int64_t fan_in_got[PS_SIM_FAN_IN_IMAGES];
    int32_t fan_in_images; /* 0: the count begins with the next poll */
} ps_sim_subscriber_t;

/* A client of a Python application: the application waits until this client is woken. */
typedef struct ps_sim_wait {
    ps_client_t *client;
    uint32_t ticket;
} ps_sim_wait_t;

typedef struct ps_sim_slot {
    ps_driver_t *driver;
    int64_t lives; /* Number of drivers that this host has started, including the present one. */
    int64_t cycle_ns;
    int64_t ready_ns;    /* earliest time at which the world may run the driver's next duty cycle */
    int64_t deadline_ns; /* deadline of the driver */
    int64_t control_ns;
    int64_t control_from_ns; /* Time until which the host's conductor is busy, so that it does not
                              * run. */
    int32_t idle_steps;      /* Number of duty cycles that the driver has run since the last event
                              * from outside the host. */
    bool touched;
    bool stepped; /* at this moment */
} ps_sim_slot_t;

/* An observer of the world. */
typedef struct ps_sim_world_observer {
    /* Called when the host gets another driver, or when its driver is removed. */
    void (*driver_set)(void *context, int32_t host);
    /* The world calls `step_begins` before each duty cycle of the host's driver, and `stepped`
     * after it. `work` is the amount of work that the driver reports. */
    void (*step_begins)(void *context, int32_t host, int64_t now_ns);
    void (*stepped)(void *context, int32_t host, int32_t work, int64_t now_ns);
    /* Called when a publication has accepted a message of `size` bytes. The message ends at
     * position `end`. */
    void (*accepted)(void *context, const ps_sim_publisher_t *publisher, int64_t end, int32_t size);
    /* Called when a publication has refused a message with a negative code. */
    void (*refused)(void *context, const ps_sim_publisher_t *publisher, int64_t code);
    /* Returns true if a channel of this run writes timestamps into its messages. */
    bool (*has_stamps)(const void *context);
    /* If a channel writes timestamps into messages, a delivered message differs from the published
     * message. This function changes the published content to the content that a subscriber on the
     * host must receive. `estranged`: a stranger may have changed the message after it was sent.
     * Returns NULL, or the text of an error. */
    const char *(*expected)(void *context, int32_t host, const ps_message_t *message,
                            bool estranged, uint8_t *published);
    void (*free)(void *context);
} ps_sim_world_observer_t;

struct ps_simworld {
    ps_simnet_t *simnet;
    const ps_sim_world_observer_t *observer; /* NULL: none */
    void *observer_context;
    uint64_t steps;
    uint64_t rules; /* Rules of the protocol that the run has used so far: bits of ps_sim_rule. */
    ps_sim_unstored_t unstored;
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
    /* Buffer with the content of the message that a publisher offered last, and which message this
     * is. */
    uint8_t offered[PS_SIM_MESSAGE_MAX];
    const ps_sim_ledger_t *offered_of;
    int64_t offered_number;
    int32_t offered_size;
    uint8_t expected[PS_SIM_MESSAGE_MAX]; /* Buffer with the content that a received message must
                                           * have. */
};

/* Runs one turn of an application at now_ns. Returns true if it did work. */
bool ps_sim_publisher_act(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t now_ns);
bool ps_sim_subscriber_act(ps_simworld_t *world, int32_t index, int64_t now_ns);
/* Returns the time at which the application's next turn is due. If an event of its host wakes the
 * application, the turn comes earlier. */
int64_t ps_sim_publisher_due_ns(const ps_simworld_t *world, const ps_sim_publisher_t *publisher);
int64_t ps_sim_subscriber_due_ns(const ps_sim_subscriber_t *subscriber);
void ps_sim_apps_free(ps_simworld_t *world);
/* Notes that the publication of an application has accepted the next message of its ledger, which
 * has room for it (ps_sim_ledger_grow). The message ends at position `end`. */
void ps_sim_note_accepted(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t end,
                          int32_t size);
enum { PS_SIM_MAX_READERS = 64 }; /* sessions whose progress a subscriber keeps */
/* Returns the index of the ledger of a session; -1: the session has no publisher. */
int32_t ps_sim_ledger_of(const ps_simworld_t *world, int32_t session_id, int32_t stream_id);
/* Returns the entry with a subscriber's progress in a session; creates the entry if it is missing.
 * If no publisher of the session exists, the function returns NULL. */
ps_sim_reader_t *ps_sim_reader_of(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                                  int32_t stream_id);
/* Fetches the reports of gaps that images of the subscriber have reached, and records these gaps.
 * Returns true if at least one image had reached a gap. */
bool ps_sim_take_gaps(ps_simworld_t *world, int32_t subscriber);
/* Records which readers skipped in the poll that has just ended. Call it before the next
 * ps_sim_take_gaps. */
void ps_sim_note_skips(ps_simworld_t *world, int32_t subscriber, int64_t now_ns);
/* Returns how long the application paused between a skip and the poll that delivers the next
 * messages. Only time after `accepted_ns` counts, when the message was accepted. After a skip, an
 * isolated reader gets the messages of one poll however old they have become (decision 275). */
int64_t ps_sim_paused_after_skip_ns(const ps_sim_subscriber_t *subscriber,
                                    const ps_sim_reader_t *reader, int64_t accepted_ns);
/* Call this function when the messages of a poll, at least one, have been checked. */
void ps_sim_forget_skips(ps_sim_subscriber_t *subscriber, int64_t now_ns);
/* Call this function when a poll has reported a gap. If the subscriber dropped the messages in the
 * gap because of the retention, the function checks that the publication no longer retained these
 * messages (ps_sim_retained.c). */
void ps_sim_check_expired(ps_simworld_t *world, int32_t index, int64_t now_ns);
/* Checks that the publication still retained `message`, the first message of a poll
 * (ps_sim_retained.c). `number` is the number of this message in the ledger. */
void ps_sim_check_retained(ps_simworld_t *world, int32_t index, const ps_sim_ledger_t *ledger,
                           const ps_message_t *message, int64_t number, int64_t now_ns);
/* Call these functions before and after a poll of up to `limit` messages. While each image of a
 * subscription with ps-fanin has data, the images get messages by their weights
 * (ps_sim_fan_in.c). */
void ps_sim_fan_in_before(ps_sim_subscriber_t *subscriber);
void ps_sim_fan_in_after(ps_simworld_t *world, int32_t index, const ps_message_t *messages,
                         int32_t count, int32_t limit);
/* The reader has missed the messages `first` to `end` - 1. Returns how many of these messages lie
 * in no reported gap. */
int64_t ps_sim_untold(const ps_sim_ledger_t *ledger, const ps_sim_reader_t *reader, int64_t first,
                      int64_t end);
/* Removes the recorded gaps up to the reader's position. */
void ps_sim_forget_gaps(ps_sim_reader_t *reader);
void ps_sim_violate(ps_simworld_t *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
