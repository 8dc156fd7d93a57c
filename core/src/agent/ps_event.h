/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_event.h: events that an agent reports to the conductor.  Also the cffi declaration.
 */
#ifndef PS_EVENT_H
#define PS_EVENT_H

#include <stdint.h>

#include "ps_types.h"

/* Types of events. Each comment names the member of the union that the event uses. */
enum ps_event_type {
    PS_EV_NONE = 0,
    PS_EV_SETUP = 1,          /* setup: a SETUP of an unknown session arrived on a subscribed
                               * stream; the conductor makes an image */
    PS_EV_IMAGE_INACTIVE = 2, /* ended */
    /* ended: all subscribers are at the end, and five status message time-outs have passed */
    PS_EV_IMAGE_DRAINED = 3,
    PS_EV_PUB_CONNECTED = 4,   /* connection */
    PS_EV_PUB_DRAINED = 5,     /* drained: a closing publication has sent everything, and its spies
                                * have read it */
    PS_EV_PUB_EOS_ACK = 6,     /* the unicast receiver stated that it has finished */
    PS_EV_PUB_BLOCKED = 7,     /* blocked: a claim is still not committed */
    PS_EV_PUB_UNBLOCKED = 8,   /* unblocked: the sender padded over the claim */
    PS_EV_TERM_NEEDED = 9,     /* term: a publication or an image needs storage */
    PS_EV_RELEASED = 10,       /* released: the conductor may destroy the object */
    PS_EV_ENDPOINT_ERROR = 11, /* error: an endpoint failed, or the log of a publication is
                                * damaged */
    PS_EV_DESTINATION = 12,    /* destination; of a send endpoint */
    PS_EV_REMOTE_ERROR = 13,   /* remote_error: an ERR frame for a publication */
    PS_EV_SILENT = 14,         /* silent: an endpoint receives no frames; the conductor resolves the
                                * host name again */
    PS_EV_LOSS = 15,           /* loss; of an image */
    PS_EV_SUBSCRIBER = 16,     /* subscriber: a reader of an image or a publication changed its
                                * tether state */
    PS_EV_SESSION_LEFT = 17,   /* the receiver no longer ignores a session, so its next SETUP is
                                * reported */
    /* terms: answer to the command RELEASE_TERMS of a publication or an image */
    PS_EV_TERMS_RELEASED = 18,
    PS_EV_SECOND_SOURCE = 19,     /* second_source: another address sends an image's session; once
                                   * for each followed source */
    PS_EV_IMAGE_ESTABLISHED = 20, /* the receiver accepted the first frame of the image's stream */
    PS_EV_JOIN = 21,              /* join; of a publication */
    /* pressure: the publishers of a publication reached the depth. At most one event a second; each
     * is followed by one PS_EV_PRESSURE_RELIEVED. */
    PS_EV_PRESSURE_TRIGGERED = 22,
    PS_EV_PRESSURE_RELIEVED = 23 /* pressure: the log has drained to the low watermark */
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
    PS_END_EVICTED = 6, /* no frame of the image's stream arrived, and another session needed the
                         * place */
    PS_END_OUTRUN = 7   /* the missing data is too old to be retransmitted */
};
typedef struct ps_event {
    int32_t type; /* ps_event_type */
    int32_t kind; /* ps_object_kind of id */
    int64_t id;   /* id from the object's params */
    int64_t now_ns;
    int32_t session_id; /* session of the stream, 0 if there is none */
    int32_t stream_id;
    union {
        struct {
            ps_addr_t source;
            int64_t peer_ordinal;     /* -1 unknown */
            int64_t peer_group_tag;   /* tag of the receivers that the sender follows, for
                                     * PS_FC_TAGGED */
            int64_t peer_depth_bytes; /* of peer_policy; 0: this host's choice */
            int32_t peer_policy;      /* ps_policy that the sender requests of its receivers */
            int32_t destination;      /* index of the receive destination through which the SETUP
                                     * arrived */
            int32_t initial_term_id;
            int32_t active_term_id;
            int32_t term_offset;
            int32_t term_length;
            int32_t mtu;
            int32_t ttl;
            int32_t flags;
            int32_t peer_flow_control;  /* ps_flow_control of the sender, -1 not stated */
            uint32_t peer_capabilities; /* 0: a plain Aeron peer */
            ps_relay_path_t relay_path; /* relays that the stream has passed */
        } setup;
        struct {
            int64_t position;
            int64_t messages; /* number of messages of the session below the position, -1 unknown */
            int32_t reason;   /* ps_image_end */
        } ended;
        struct {
            int32_t connected; /* 0 or 1 */
        } connection;
        struct {
            int64_t position;
            int64_t unsent; /* bytes that remain unsent in the log */
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
            int64_t wanted;   /* storage is needed up to this position at least; 0: to the end of
                               * the next term */
        } term;
        struct {
            int64_t destination_id; /* id of a PS_KIND_RECV_DESTINATION, whose endpoint is in id */
        } released;
        struct {
            int32_t code;        /* ps_error_code */
            int32_t destination; /* index of the receive destination */
            char text[128];      /* NUL-terminated */
        } error;
        struct {
            ps_addr_t source;
            int64_t refused; /* number of receivers refused so far because the list of destinations
                              * was full */
            int32_t change;  /* 1 added, 0 timed out, -1 refused; refusals: at most one event a
                              * second */
        } destination;
        struct {
            ps_addr_t source;
            int64_t receiver_id;
            int32_t code;   /* ps_err_code */
            char text[128]; /* NUL-terminated */
        } remote_error;
        struct {
            ps_addr_t source; /* no datagram came from this address for 5 s */
            int64_t destination_id;
        } silent;
        struct {
            int64_t bytes; /* newly lost */
            int64_t position;
            int32_t gaps; /* number of newly lost gaps; 0 if only known gaps grew */
        } loss;
        struct {
            int32_t position_counter_id;
            int32_t state; /* ps_tether_state */
        } subscriber;
        struct {
            int64_t kept_to; /* the agent uses only [kept_from, kept_to); -1: the agent needs all
                              * terms */
            int64_t kept_from;
        } terms;
        struct {
            ps_addr_t source;  /* address of the other sender, which the receiver does not follow */
            int64_t datagrams; /* from that address so far */
            int32_t destination;
        } second_source;
        struct {
            ps_addr_t source;
            int64_t receiver_id;
            int64_t refused; /* number of requests refused since the last such event */
            int32_t verdict; /* ps_join_verdict */
        } join;
        struct {
            ps_addr_t source;    /* address of a receiver that is the culprit */
            int64_t culprit;     /* receiver id or client id; 0 unknown */
            int64_t peak_bytes;  /* largest depth in this episode */
            int64_t depth_bytes; /* now */
            int64_t duration_ns; /* since the depth was reached */
            int64_t drained;     /* number of messages sent (on IPC: read) since publishers reached
                                  * the depth; -1 unknown */
            int32_t episodes;    /* number of episodes since the last such event, including this
                                  * one */
            int32_t cause;       /* ps_cause that bound last */
            int32_t client_slot; /* slot of a client on this host that is the culprit, else -1 */
        } pressure;
    };
} ps_event_t;

#endif
