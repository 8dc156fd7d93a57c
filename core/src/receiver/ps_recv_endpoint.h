/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_recv_endpoint.h: a receive endpoint (docs/spec/wire-format.md section 6). A receive endpoint
 * has destinations (sockets), the list of subscribed streams (interest) and a state for each
 * session. */
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
    PS_RECV_PENDING_MAX = 1024, /* largest number of pending sessions: sessions without an image
                                 * that wait for a SETUP, or for the conductor's answer to a SETUP
                                 */
    PS_RECV_KEPT_MAX = 1024     /* largest number of ended sessions that the receiver still
                                 * ignores */
};

typedef struct ps_recv_destination {
    int64_t id;
    ps_recv_endpoint_t *endpoint;
    ps_socket_t *socket;
    ps_addr_t control; /* Control address of the sender, if the channel names one; family 0:
                        * none. */
    ps_addr_t group_control;
    int64_t elicit_due_ns; /* Time at which the receiver sends the next status message with the S
                            * flag to `control`. */
    int64_t heard_ns;      /* last datagram */
    int64_t silent_due_ns; /* when PS_EV_SILENT is due */
    int64_t error_due_ns;  /* Earliest time at which the receiver may emit the next
                            * PS_EV_ENDPOINT_ERROR. */
    int32_t index;         /* in the endpoint's list */
    int32_t ttl;           /* configured multicast TTL, 0 unknown */
    uint32_t idle_polls;   /* Number of consecutive reads of the socket that found no datagram. */
    uint8_t multicast;
} ps_recv_destination_t;

/* Time for which the receiver ignores SETUPs of a session that it refused. */
#define PS_REFUSED_NS INT64_C(1000000000)

enum ps_session_state {
    PS_SESSION_FREE = 0,          /* entry unused */
    PS_SESSION_PENDING_SETUP = 1, /* The receiver has requested a SETUP; if no SETUP arrives, the
                                   * receiver removes the session's entry at deadline_ns. */
    PS_SESSION_INIT = 2,          /* The receiver has reported the SETUP to the conductor and waits
                                   * for the answer. */
    PS_SESSION_ACTIVE = 3,        /* has an image */
    /* A session keeps the state COOL_DOWN or NO_INTEREST while a subscription reads the session's
     * stream. If more than PS_RECV_KEPT_MAX sessions are in these two states, the receiver removes
     * the oldest of them. */
    PS_SESSION_COOL_DOWN = 4,   /* its image has ended; ignored */
    PS_SESSION_NO_INTEREST = 5, /* refused by the conductor; ignored */
    PS_SESSION_REFUSED = 6      /* The receiver has refused the SETUP with an ERR frame, and ignores
                                 * the session until deadline_ns. */
};

typedef struct ps_session {
    int32_t stream_id;
    int32_t session_id;
    int32_t state;     /* ps_session_state */
    int32_t next_free; /* For a free entry: 1 + the index of the next free entry; 0: none. */
    int64_t deadline_ns;
    int64_t kept_ns;   /* COOL_DOWN, NO_INTEREST: since when */
    ps_image_t *image; /* ACTIVE only */
    /* In the state INIT: daemon id from the reported SETUP; 0: the sender is not penstock. */
    uint64_t peer_daemon_id;
    uint64_t peer_daemon_epoch;
    int32_t half_open; /* In the state INIT: handle of the session in the table of half-open
                        * sessions (ps_half_open.h); otherwise 0. */
} ps_session_t;

enum ps_destination_use {
    PS_DESTINATION_UNUSED = 0,
    PS_DESTINATION_USED = 1,
    PS_DESTINATION_LEAVING = 2 /* The receiver has released the destination, and the conductor has
                                * not yet closed it. */
};

enum { PS_RECV_LEARNED = 16, PS_RECV_LEFT_SOURCES = 64 };

/* Measured rate at which the readers of a session consume data. The endpoint stores the rate when
 * an image ends because its readers are too slow. */
typedef struct ps_recv_learned {
    int32_t stream_id, session_id;
    ps_pressure_learned_t learned;
} ps_recv_learned_t;

/* The source of an image that has ended, if the source was then alive and had not stated the end of
 * the stream. While this source still sends, a SETUP from another host does not create a new image
 * of the session. */
typedef struct ps_recv_left_source {
    int64_t heard_ns;
    ps_addr_t source; /* family 0: the entry is empty */
    int32_t stream_id, session_id;
    int32_t destination; /* index */
} ps_recv_left_source_t;

struct ps_recv_endpoint {
    const ps_context_t *context;
    ps_receiver_t *receiver;
    ps_recv_endpoint_params_t params;
    ps_recv_destination_t *destinations[PS_RECV_DESTINATIONS_MAX];
    int32_t destinations_end; /* 1 + the highest index in `destinations` that was ever in use. */
    /* Ids of the destinations; only the conductor uses this array. An entry is valid unless its
     * destination_used[] is PS_DESTINATION_UNUSED. */
    int64_t destination_ids[PS_RECV_DESTINATIONS_MAX];
    uint8_t destination_used[PS_RECV_DESTINATIONS_MAX]; /* conductor's: ps_destination_use */
    ps_socket_t *sockets[PS_RECV_DESTINATIONS_MAX];     /* Sockets of the destinations in use; only
                                                         * the conductor uses this array. */
    /* Destinations that the receiver no longer reads. The conductor closes a destination in this
     * array after the event PS_EV_RELEASED for this destination. */
    ps_recv_destination_t *left[PS_RECV_DESTINATIONS_MAX];
    ps_map_t any_interest;     /* Map from a stream id to the number of subscriptions that accept
                                * all sessions. */
    ps_map_t session_interest; /* (stream, session) -> number of subscriptions */
    ps_map_t session_index;    /* Map from (stream id, session id) to 1 + the index in
                                * `sessions`. */
    ps_session_t *sessions;
    int32_t sessions_limit;                     /* Capacity of `sessions`: one entry for each image,
                                                 * 2 * PS_RECV_PENDING_MAX entries for sessions
                                                 * without an image, and PS_RECV_KEPT_MAX entries
                                                 * for ended sessions. */
    int32_t sessions_used;                      /* entries that were ever used */
    int32_t free_session;                       /* Head of the list of entries that are free again:
                                                 * 1 + the index of the first such entry; 0: none.
                                                 */
    int32_t interests_limit;                    /* subscriptions; the conductor's */
    int32_t pending;                            /* sessions in PENDING_SETUP or REFUSED */
    int32_t kept;                               /* sessions in COOL_DOWN or NO_INTEREST */
    int64_t pending_due_ns;                     /* Time at which the first pending session reaches
                                                 * its deadline. */
    int64_t setup_due_ns;                       /* Limits the rate at which the endpoint reports
                                                 * SETUPs to the conductor. After this time, the
                                                 * endpoint may report PS_SETUP_BURST SETUPs at
                                                 * once. */
    uint64_t cached_key;                        /* Key of the session that the receiver looked up
                                                 * last. If the next datagram has the same session,
                                                 * the receiver needs no look-up. */
    ps_session_t *cached;                       /* NULL: no cache */
    int32_t streak;                             /* Number of consecutive received buffers of which
                                                 * the same image accepted all datagrams. */
    ps_recv_learned_t learned[PS_RECV_LEARNED]; /* Measured rates of the readers of recent sessions.
                                                 * An entry whose cadence and rate are 0 is
                                                 * empty. */
    int32_t next_learned;                       /* index */
    ps_recv_left_source_t left_sources[PS_RECV_LEFT_SOURCES];
    int32_t next_left_source; /* index */
    int32_t slot;             /* index in the receiver's list */
    int32_t interests;        /* conductor: number of interests */
};

/* ---- receiver thread ------------------------------------------------------------------------- */

ps_session_t *ps_recv_endpoint_find(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                    int32_t session_id);
/* Returns true if the endpoint's table of sessions has no free entry. */
static inline bool ps_recv_endpoint_is_full(const ps_recv_endpoint_t *endpoint)
{
    return endpoint->free_session == 0 && endpoint->sessions_used == endpoint->sessions_limit;
}
/* Returns a new entry of the table of sessions. Returns NULL if the table is full, or if `state` is
 * a pending state and there are already PS_RECV_PENDING_MAX pending sessions. */
ps_session_t *ps_recv_endpoint_insert(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                      int32_t session_id, int32_t state);
void ps_recv_endpoint_erase(ps_recv_endpoint_t *endpoint, ps_session_t *session);
/* Changes the state of a session, and updates the number of pending sessions. */
void ps_recv_endpoint_set_state(ps_recv_endpoint_t *endpoint, ps_session_t *session, int32_t state);
/* Moves a session to COOL_DOWN or NO_INTEREST. If more than PS_RECV_KEPT_MAX sessions are in one of
 * these two states, removes the oldest such session. Forged sessions can therefore never fill the
 * table. */
void ps_recv_endpoint_keep(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                           ps_session_t *session, int32_t state);
bool ps_recv_endpoint_wants(const ps_recv_endpoint_t *endpoint, int32_t stream_id,
                            int32_t session_id);
bool ps_recv_endpoint_has_interest(const ps_recv_endpoint_t *endpoint);
/* Returns the address to which the receiver sends status messages for a stream that arrived at
 * `destination` from address `from`. */
const ps_addr_t *ps_recv_destination_reply_to(const ps_recv_destination_t *destination,
                                              const ps_addr_t *from);
/* Runs the timers of the endpoint. These timers request SETUPs, end pending sessions, and detect
 * silent sources. If the endpoint's next timer is due before *due_ns, sets *due_ns to the time of
 * this timer. */
void ps_recv_endpoint_tick(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, int64_t now_ns,
                           int64_t *due_ns);
/* Requests a SETUP from the sender, by a status message with the S flag. */
void ps_recv_endpoint_elicit(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                             const ps_addr_t *to, int32_t stream_id, int32_t session_id,
                             int64_t now_ns);
/* Executes a command of the conductor that concerns endpoints. Returns false if the command is of
 * another type. */
bool ps_recv_endpoint_on_command(ps_receiver_t *receiver, const ps_command_t *command);
/* ps_recv_destination_close closes an open destination; ps_recv_endpoint_free frees an endpoint.
 * Only the conductor thread may call these two functions, after the agent has stopped or has
 * released the object. */
void ps_recv_destination_close(ps_recv_endpoint_t *endpoint, ps_recv_destination_t *destination);
void ps_recv_endpoint_free(ps_recv_endpoint_t *endpoint);

#endif
