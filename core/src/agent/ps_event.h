/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_event.h: events that an agent reports to the conductor.  Also the cffi declaration.
 */
#ifndef PS_EVENT_H
#define PS_EVENT_H

#include <stdint.h>

#include "ps_types.h"

enum ps_event_type {
    PS_EV_NONE = 0,
    /* endpoint id; an unknown session of a wanted stream: make an image */
    PS_EV_SETUP = 1,
    PS_EV_IMAGE_INACTIVE = 2, /* image id; reason: ps_image_end; a and b as in IMAGE_DRAINED */
    /* image id; all subscribers are at the end and 5 SM timeouts passed.  a = its position, b =
     * messages of the session below it, -1 unknown */
    PS_EV_IMAGE_DRAINED = 3,
    PS_EV_PUB_CONNECTED = 4, /* publication id; a = 1 connected, 0 not */
    PS_EV_PUB_DRAINED = 5,   /* publication id; closing and everything sent (spies done) */
    PS_EV_PUB_EOS_ACK = 6,   /* publication id; the unicast receiver said EOS */
    PS_EV_PUB_BLOCKED = 7,   /* publication id; a = position, b = claimer client slot or -1 */
    PS_EV_PUB_UNBLOCKED = 8, /* publication id; a = position, b = bytes padded */
    /* publication or image id; a = position reserved so far, b = position to reserve up to at
     * least, 0: to the end of the next term */
    PS_EV_TERM_NEEDED = 9,
    PS_EV_RELEASED = 10,       /* kind: ps_object_kind; id; the conductor may destroy it */
    PS_EV_ENDPOINT_ERROR = 11, /* endpoint id; reason = ps_error_code; text */
    /* send endpoint id; from; a = 1 added, 0 timed out, -1 no place left for it (at most one event
     * a second), b = how often so far */
    PS_EV_DESTINATION = 12,
    /* publication id; an ERR frame: reason = code, a = receiver id, text */
    PS_EV_REMOTE_ERROR = 13,
    /* endpoint id; nothing heard from `from` for 5 s: re-resolve its name */
    PS_EV_SILENT = 14,
    /* image id; a = bytes newly lost, b = position, gaps: 0 when known ones grew alone */
    PS_EV_LOSS = 15,
    /* image or publication id; a = sub-pos counter id; reason: ps_tether_state */
    PS_EV_SUBSCRIBER = 16,
    PS_EV_SESSION_LEFT = 17, /* endpoint id: a cooled down / refused session may come back */
    /* publication or image id; the answer to _give_up: from now on the agent touches no memory but
     * the terms [b, a).  a = -1: it needs what it has */
    PS_EV_TERMS_RELEASED = 18,
    /* image id; frames of its session come from `from` too, which is not the source followed; once
     * a source that is followed.  a = datagrams so far, destination */
    PS_EV_SECOND_SOURCE = 19,
    PS_EV_IMAGE_ESTABLISHED = 20, /* image id; the first frame of its stream was accepted */
    /* publication id; reason: ps_join_verdict of receiver a at `from`, which requested a SETUP; b:
     * requests refused since the last such event */
    PS_EV_JOIN = 21
};

enum ps_object_kind {
    PS_KIND_SEND_ENDPOINT = 1,
    PS_KIND_RECV_ENDPOINT = 2,
    PS_KIND_PUBLICATION = 3,
    PS_KIND_IMAGE = 4,
    PS_KIND_RECV_DESTINATION = 5 /* only in PS_EV_RELEASED: id of the endpoint, a of it */
};
enum ps_image_end {
    PS_END_OF_STREAM = 1,
    PS_END_TIMEOUT = 2,
    PS_END_REVOKED = 3,
    PS_END_NO_SUBSCRIBER = 4,
    PS_END_REJECTED = 5,
    PS_END_EVICTED = 6, /* no frame of its stream came, and another session needed the place */
    PS_END_OUTRUN = 7   /* what is missing is beyond retransmission */
};
typedef struct ps_event {
    int32_t type; /* ps_event_type */
    int32_t kind; /* ps_object_kind of id */
    int64_t id;   /* as given in the object's params */
    int64_t now_ns;
    int64_t a;
    int64_t b;
    int32_t reason;
    int32_t gaps; /* LOSS: gaps newly lost, >= 0 */
    /* SETUP */
    int32_t destination; /* index of the receive destination it came by */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t active_term_id;
    int32_t term_offset;
    int32_t term_length;
    int32_t mtu;
    int32_t ttl;
    int32_t setup_flags;
    uint32_t peer_capabilities; /* 0: a plain Aeron peer */
    int64_t peer_ordinal;       /* -1 unknown */
    int32_t peer_flow_control;  /* ps_flow_control of the sender, -1 not stated */
    int64_t peer_group_tag;     /* of the receivers that count, when that is PS_FC_TAGGED */
    ps_addr_t from;
    char text[128]; /* NUL-terminated */
} ps_event_t;

#endif
