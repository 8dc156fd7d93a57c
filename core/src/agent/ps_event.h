/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_event.h: events that an agent reports to the conductor.  Also the cffi declaration.
 */
#ifndef PS_EVENT_H
#define PS_EVENT_H

#include <stdint.h>

#include "ps_types.h"

/* Types of events. The name in parentheses is the member of ps_event_t's union that contains the
 * event's values. */
enum ps_event_type {
    PS_EV_NONE = 0,
    PS_EV_SETUP = 1,          /* On a subscribed stream, a SETUP frame of an unknown session
                               * arrived, so the conductor creates an image (`setup`). */
    PS_EV_IMAGE_INACTIVE = 2, /* ended */
    /* All subscribers have read to the end of the image, and five status message time-outs have
     * passed since then (`ended`). */
    PS_EV_IMAGE_DRAINED = 3,
    PS_EV_PUB_CONNECTED = 4,   /* connection */
    PS_EV_PUB_DRAINED = 5,     /* All data of a publication that is being closed was sent, and the
                                * publication's spies have read all data (`drained`). */
    PS_EV_PUB_EOS_ACK = 6,     /* The receiver of a unicast publication has stated that it received
                                * the whole stream. */
    PS_EV_PUB_BLOCKED = 7,     /* A publisher has claimed space and not committed it, so the sender
                                * cannot send the data behind the claim (`blocked`). */
    PS_EV_PUB_UNBLOCKED = 8,   /* The sender has replaced an uncommitted claim with padding
                                * (`unblocked`). */
    PS_EV_TERM_NEEDED = 9,     /* A publication or an image needs log storage that the conductor has
                                * not reserved yet (`term`). */
    PS_EV_RELEASED = 10,       /* The agent no longer uses the object, so the conductor may destroy
                                * the object (`released`). */
    PS_EV_ENDPOINT_ERROR = 11, /* An endpoint failed, or the log of a publication is damaged
                                * (`error`). */
    PS_EV_DESTINATION = 12,    /* destination; of a send endpoint */
    PS_EV_REMOTE_ERROR = 13,   /* A receiver sent an ERR frame for a publication
                                * (`remote_error`). */
    PS_EV_SILENT = 14,         /* An endpoint receives no frames from a peer, so the conductor
                                * resolves the peer's host name again (`silent`). */
    PS_EV_LOSS = 15,           /* loss; of an image */
    PS_EV_SUBSCRIBER = 16,     /* The tether state of a reader of an image or publication changed
                                * (`subscriber`). */
    PS_EV_SESSION_LEFT = 17,   /* The receiver no longer ignores a session, and will report the
                                * session's next SETUP. */
    /* The answer to the conductor's command RELEASE_TERMS for a publication or an image
     * (`terms`). */
    PS_EV_TERMS_RELEASED = 18,
    PS_EV_SECOND_SOURCE = 19,     /* A second address sends frames of an image's session
                                   * (`second_source`). The receiver emits this event once for each
                                   * address that it accepts as the source of the session. */
    PS_EV_IMAGE_ESTABLISHED = 20, /* The receiver has accepted the first data frame or heartbeat of
                                   * an image's stream. */
    PS_EV_JOIN = 21,              /* join; of a publication */
    /* The unsent data of a publication has reached its configured depth (`pressure`). The sender
     * emits at most one PS_EV_PRESSURE_TRIGGERED a second. After each PS_EV_PRESSURE_TRIGGERED, the
     * sender emits one PS_EV_PRESSURE_RELIEVED. */
    PS_EV_PRESSURE_TRIGGERED = 22,
    PS_EV_PRESSURE_RELIEVED = 23, /* The unsent data of a publication has fallen to the low
                                   * watermark (`pressure`). */
    PS_EV_READER_LAGGED = 24      /* An isolated reader has become lagged, or is lagged no more
                                   * (ps_isolation.h, `reader`). */
};

enum ps_object_kind {
    PS_KIND_SEND_ENDPOINT = 1,
    PS_KIND_RECV_ENDPOINT = 2,
    PS_KIND_PUBLICATION = 3,
    PS_KIND_IMAGE = 4,
    PS_KIND_RECV_DESTINATION = 5 /* only in PS_EV_RELEASED */
};
enum ps_image_end {
    PS_END_OF_STREAM = 1,
    PS_END_TIMEOUT = 2,
    PS_END_REVOKED = 3,
    PS_END_NO_SUBSCRIBER = 4,
    PS_END_REJECTED = 5,
    PS_END_EVICTED = 6, /* The receiver ended a half-open session (only its SETUP had arrived),
                         * because it needed the session's table entry for another session. */
    PS_END_OUTRUN = 7   /* The missing data of the image is so old that the sender can no longer
                         * retransmit it. */
};
typedef struct ps_event {
    int32_t type; /* ps_event_type */
    int32_t kind; /* ps_object_kind of id */
    int64_t id;   /* id from the object's params */
    int64_t now_ns;
    int32_t session_id; /* Session id of the stream that the event concerns; 0: no session. */
    int32_t stream_id;
    union {
        struct {
            ps_addr_t source;
            int64_t peer_ordinal;     /* -1 unknown */
            int64_t peer_group_tag;   /* for PS_FC_TAGGED: the sender waits only for receivers with
                                       * this tag */
            int64_t peer_depth_bytes; /* the depth that belongs to peer_policy, in bytes; 0: this
                                       * host chooses the depth */
            int64_t peer_depth_messages; /* the same as a number of messages; 0: no limit in
                                          * messages */
            int64_t retention_bytes;     /* Readers do not get data that is more than this number of
                                       * bytes behind the newest data; 0: no limit */
            int64_t retention_ns;        /* Readers do not get data that is older than this; 0: no
                                       * limit */
            int32_t peer_policy;         /* the sender requests that its receivers use this policy
                                       * (ps_policy) */
            int32_t destination;         /* index of the receive destination through which the SETUP
                                       * arrived */
            int32_t initial_term_id;
            int32_t active_term_id;
            int32_t term_offset;
            int32_t term_length;
            int32_t mtu;
            int32_t ttl;
            int32_t flags;
            int32_t peer_flow_control;  /* Flow control of the sender, a value of ps_flow_control;
                                         * -1: the SETUP does not state it. */
            uint32_t peer_capabilities; /* 0: a plain Aeron peer */
            int32_t peer_credit_weight; /* Weight of the publication when several publications share
                                         * a pool of credits; 0: the SETUP states no weight. */
            int32_t peer_priority;      /* Priority of the publication; 0 if the SETUP states no
                                    * priority. */
            ps_relay_path_t relay_path; /* Relays that the stream has passed on its path to this
                                         * host. */
        } setup;
        struct {
            int64_t position;
            int64_t messages; /* Number of messages of the session before `position`; -1: unknown.
                               */
            int32_t reason;   /* ps_image_end */
        } ended;
        struct {
            int32_t connected; /* 0 or 1 */
        } connection;
        struct {
            int64_t position;
            int64_t unsent; /* Number of bytes in the log that the sender has not sent. */
        } drained;
        struct {
            int64_t position;
            int32_t client_slot; /* of the claimer, -1 unknown */
        } blocked;
        struct {
            int64_t position;
            int64_t bytes; /* padded */
        } unblocked;
        struct {
            int64_t reserved; /* position reserved so far */
            int64_t wanted;   /* The conductor must reserve storage up to this position or beyond;
                               * 0: up to the end of the next term. */
        } term;
        struct {
            int64_t destination_id; /* If the released object is a receive destination
                                     * (PS_KIND_RECV_DESTINATION): its id. The id of the
                                     * destination's endpoint is in `id`. */
        } released;
        struct {
            int32_t code;        /* ps_error_code */
            int32_t destination; /* index of the receive destination */
            char text[128];      /* NUL-terminated */
        } error;
        struct {
            ps_addr_t source;
            int64_t refused; /* Number of receivers that the sender has refused so far, because its
                              * list of destinations was full. */
            int32_t change;  /* 1: a destination was added; 0: a destination timed out; -1: a
                              * destination was refused (at most one such event a second). */
        } destination;
        struct {
            ps_addr_t source;
            int64_t receiver_id;
            int32_t code;   /* ps_err_code */
            char text[128]; /* NUL-terminated */
        } remote_error;
        struct {
            ps_addr_t source; /* Address from which no datagram has arrived for 5 s. */
            int64_t destination_id;
        } silent;
        struct {
            int64_t bytes; /* newly lost */
            int64_t position;
            int32_t gaps; /* Number of newly lost gaps; 0: only gaps that were reported before have
                           * become longer. */
        } loss;
        struct {
            int32_t position_counter_id;
            int32_t state; /* ps_tether_state */
        } subscriber;
        struct {
            int64_t kept_to; /* The agent uses only the positions [kept_from, kept_to) of the log.
                              * The conductor may release the memory of all other positions. -1: the
                              * agent needs all terms. */
            int64_t kept_from;
        } terms;
        struct {
            ps_addr_t source;  /* Address of the second sender, whose frames the receiver drops. */
            int64_t datagrams; /* number of datagrams that the second sender has sent so far */
            int32_t destination;
        } second_source;
        struct {
            ps_addr_t source;
            int64_t receiver_id;
            int64_t refused; /* Number of SETUP requests that the sender has refused since its last
                              * PS_EV_JOIN. */
            int32_t verdict; /* ps_join_verdict */
        } join;
        struct {
            ps_addr_t source;    /* If a receiver blocks the publication: the receiver's address. */
            int64_t culprit;     /* Id of the receiver or client that blocks the publication; 0:
                                  * unknown. */
            int64_t peak_bytes;  /* largest depth in this episode */
            int64_t depth_bytes; /* now */
            int64_t duration_ns; /* since the depth was reached */
            int64_t drained;     /* Number of messages sent (on IPC: read) since the unsent data
                                  * reached the configured depth; -1: unknown. */
            int32_t episodes;    /* Number of times that the unsent data has reached the configured
                                  * depth since the last event of this type, including this time. */
            int32_t cause;       /* ps_cause that bound last */
            int32_t client_slot; /* If a client of this host blocks the publication: the client's
                                  * slot in penstock.dat. Otherwise -1. */
        } pressure;
        struct {
            int64_t behind;      /* bytes */
            int64_t messages;    /* number of messages that the reader skipped in this lag */
            int64_t duration_ns; /* since the reader became lagged */
            int32_t position_counter_id;
            int32_t lagged; /* 1: the reader is lagged */
        } reader;
    };
} ps_event_t;

#endif
