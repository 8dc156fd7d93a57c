/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_recv_endpoint.h: a receive endpoint: its destinations (sockets), the subscribed streams
 * (interest) and the state of each session (docs/spec/wire-format.md section 6). */
#ifndef PS_RECV_ENDPOINT_H
#define PS_RECV_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_pressure_signal.h"
#include "ps_context.h"
#include "ps_image_params.h"
#include "ps_net.h"
#include "ps_receiver_agent.h"
#include "ps_map.h"

enum {
    PS_RECV_DESTINATIONS_MAX = 16,
    PS_RECV_PENDING_MAX = 1024, /* sessions without an image that wait for a SETUP or its answer */
    PS_RECV_KEPT_MAX = 1024     /* ended sessions that must not return */
};

typedef struct ps_recv_destination {
    int64_t id;
    ps_recv_endpoint_t *endpoint;
    ps_socket_t *socket;
    ps_addr_t control; /* explicit control address; family 0 none */
    ps_addr_t group_control;
    int64_t elicit_due_ns; /* time of the next S-flag SM to `control` */
    int64_t heard_ns;      /* last datagram */
    int64_t silent_due_ns; /* when PS_EV_SILENT is due */
    int64_t error_due_ns;  /* earliest time of the next PS_EV_ENDPOINT_ERROR */
    int32_t index;         /* in the endpoint's list */
    int32_t ttl;           /* configured multicast TTL, 0 unknown */
    uint32_t idle_polls;   /* number of reads in a row without a datagram */
    uint8_t multicast;
} ps_recv_destination_t;

/* Time for which SETUPs of a refused session are ignored. */
#define PS_REFUSED_NS INT64_C(1000000000)

enum ps_session_state {
    PS_SESSION_FREE = 0,          /* entry unused */
    PS_SESSION_PENDING_SETUP = 1, /* a SETUP was requested; the entry is removed at deadline_ns */
    PS_SESSION_INIT = 2,          /* reported to the conductor, whose answer is awaited */
    PS_SESSION_ACTIVE = 3,        /* has an image */
    /* A session stays in the next two states as long as a subscription reads the stream. Entries in
     * these states take at most PS_RECV_KEPT_MAX places. If there are more, the oldest entry is
     * removed. */
    PS_SESSION_COOL_DOWN = 4,   /* its image has ended; ignored */
    PS_SESSION_NO_INTEREST = 5, /* refused by the conductor; ignored */
    PS_SESSION_REFUSED = 6      /* the receiver refused the SETUP with an ERR frame, and ignores the
                                 * session until deadline_ns */
};

typedef struct ps_session {
    int32_t stream_id;
    int32_t session_id;
    int32_t state;     /* ps_session_state */
    int32_t next_free; /* index + 1 of the next free entry, 0 none */
    int64_t deadline_ns;
    int64_t kept_ns;   /* COOL_DOWN, NO_INTEREST: since when */
    ps_image_t *image; /* ACTIVE only */
    /* INIT: daemon id in the reported SETUP; 0: the sender is not penstock */
    uint64_t peer_daemon_id;
    uint64_t peer_daemon_epoch;
    int32_t half_open; /* handle while INIT, else 0 (ps_half_open.h) */
} ps_session_t;

enum ps_destination_use {
    PS_DESTINATION_UNUSED = 0,
    PS_DESTINATION_USED = 1,
    PS_DESTINATION_LEAVING = 2 /* 1: the receiver has released the destination, and the conductor
                                * has not closed it yet */
};

enum { PS_RECV_LEARNED = 16 };

/* Learned values of a session's readers, kept after the readers were outrun. */
typedef struct ps_recv_learned {
    int32_t stream_id, session_id;
    ps_pressure_learned_t learned;
} ps_recv_learned_t;

struct ps_recv_endpoint {
    const ps_context_t *context;
    ps_receiver_t *receiver;
    ps_recv_endpoint_params_t params;
    ps_recv_destination_t *destinations[PS_RECV_DESTINATIONS_MAX];
    int64_t destination_ids[PS_RECV_DESTINATIONS_MAX];  /* conductor's copy; destination_used[]
                                                         * states which entries are valid */
    uint8_t destination_used[PS_RECV_DESTINATIONS_MAX]; /* conductor's: ps_destination_use */
    ps_socket_t *sockets[PS_RECV_DESTINATIONS_MAX];     /* conductor's copy of the entries in use */
    /* Destinations that the receiver has detached. The conductor closes each destination after its
     * event. */
    ps_recv_destination_t *left[PS_RECV_DESTINATIONS_MAX];
    ps_map_t any_interest;     /* stream -> number of subscriptions to all sessions */
    ps_map_t session_interest; /* (stream, session) -> number of subscriptions */
    ps_map_t session_index;    /* (stream, session) -> index into sessions + 1 */
    ps_session_t *sessions;
    int32_t sessions_limit;                     /* all images, PS_RECV_PENDING_MAX sessions without
                                                 * a SETUP, as many that are being set up, and
                                                 * PS_RECV_KEPT_MAX that have ended */
    int32_t sessions_used;                      /* entries that were ever used */
    int32_t free_session;                       /* index + 1 of a used entry that is free again; 0:
                                                 * none */
    int32_t interests_limit;                    /* subscriptions; the conductor's */
    int32_t pending;                            /* sessions in PENDING_SETUP or REFUSED */
    int32_t kept;                               /* sessions in COOL_DOWN or NO_INTEREST */
    int64_t pending_due_ns;                     /* earliest deadline of the pending sessions */
    int64_t setup_due_ns;                       /* time at which the budget for reports of SETUPs is
                                                 * full again */
    uint64_t cached_key;                        /* key of the last session looked up, for runs of
                                                 * one stream */
    ps_session_t *cached;                       /* NULL: no cache */
    int32_t streak;                             /* number of successive buffers that one image
                                                 * accepted completely */
    ps_recv_learned_t learned[PS_RECV_LEARNED]; /* learned values, newest first; an empty entry has
                                                 * cadence 0 and rate 0 */
    int32_t next_learned;                       /* index */
    int32_t slot;                               /* index in the receiver's list */
    int32_t interests;                          /* conductor: number of interests */
};

/* ---- receiver thread ------------------------------------------------------------------------- */

ps_session_t *ps_recv_endpoint_find(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                    int32_t session_id);
/* Returns true if the table has no free entry. */
static inline bool ps_recv_endpoint_is_full(const ps_recv_endpoint_t *endpoint)
{
    return endpoint->free_session == 0 && endpoint->sessions_used == endpoint->sessions_limit;
}
/* Returns a new entry; NULL if the table is full, or if PS_RECV_PENDING_MAX sessions wait and the
 * new one would wait too. */
ps_session_t *ps_recv_endpoint_insert(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                      int32_t session_id, int32_t state);
void ps_recv_endpoint_erase(ps_recv_endpoint_t *endpoint, ps_session_t *session);
/* Moves a session to state, and maintains the count of pending sessions. */
void ps_recv_endpoint_set_state(ps_recv_endpoint_t *endpoint, ps_session_t *session, int32_t state);
/* Moves a session to COOL_DOWN or NO_INTEREST. If there are more than PS_RECV_KEPT_MAX of
 * them, removes the oldest, so that forged sessions never fill the table. */
void ps_recv_endpoint_keep(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                           ps_session_t *session, int32_t state);
bool ps_recv_endpoint_wants(const ps_recv_endpoint_t *endpoint, int32_t stream_id,
                            int32_t session_id);
bool ps_recv_endpoint_has_interest(const ps_recv_endpoint_t *endpoint);
/* Returns the address for status messages of a stream that arrived at destination from `from`. */
const ps_addr_t *ps_recv_destination_reply_to(const ps_recv_destination_t *destination,
                                              const ps_addr_t *from);
/* Runs the timers: requests for SETUPs, pending sessions, silence. Lowers *due_ns to the time of
 * the next timer. */
void ps_recv_endpoint_tick(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, int64_t now_ns,
                           int64_t *due_ns);
/* Requests a SETUP with an S-flag status message. */
void ps_recv_endpoint_elicit(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                             const ps_addr_t *to, int32_t stream_id, int32_t session_id,
                             int64_t now_ns);
/* Executes a command of this file; returns false if another file executes this command. */
bool ps_recv_endpoint_on_command(ps_receiver_t *receiver, const ps_command_t *command);
/* Closes an open destination. Conductor thread, after the agent stopped or released it. */
void ps_recv_destination_close(ps_recv_endpoint_t *endpoint, ps_recv_destination_t *destination);
void ps_recv_endpoint_free(ps_recv_endpoint_t *endpoint);

#endif
