/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_params.h: parameters and status of receive endpoints and images.  Also the cffi
 * declaration.
 */
#ifndef PS_IMAGE_PARAMS_H
#define PS_IMAGE_PARAMS_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_recv_endpoint ps_recv_endpoint_t;
typedef struct ps_image ps_image_t;

typedef struct ps_recv_destination_params {
    int64_t id; /* unique per endpoint */
    ps_socket_params_t socket;
    /* Control address of the sender's multi-destination channel. The receiver sends status messages
     * with the S flag to this address; family 0: none. */
    ps_addr_t control;
    ps_addr_t group_control; /* multicast: G+1; family 0 none */
    uint8_t multicast;
} ps_recv_destination_params_t;

typedef struct ps_recv_endpoint_params {
    int64_t id;
    int32_t status_counter_id;
    int64_t receiver_id; /* unique per endpoint */
    int64_t group_tag;
    uint8_t has_group_tag;
    uint8_t media_timestamp;        /* 1: write the kernel's receive time into each message at
                                     * media_timestamp_offset. */
    int32_t media_timestamp_offset; /* payload offset or -8 */
    uint8_t channel_timestamp;
    int32_t channel_timestamp_offset;
} ps_recv_endpoint_params_t;

typedef struct ps_image_params {
    int64_t id; /* correlation id */
    const char *log_path;
    ps_recv_endpoint_t *endpoint;
    int32_t slot;                  /* image slot in penstock.dat */
    int32_t high_water_counter_id; /* rcv-hwm */
    int32_t position_counter_id;   /* rcv-pos */
    int32_t naks_counter_id;       /* rcv-naks-sent */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t active_term_id;
    int32_t term_offset;                  /* join position = pos(active_term_id, term_offset) */
    int32_t window_bytes;                 /* Initial and largest receiver window in bytes, at most
                                           * half a term. */
    int32_t congestion_control;           /* ps_congestion_control */
    int32_t congestion_rtt_counter_id;    /* not of static; -1 none */
    int32_t congestion_window_counter_id; /* not of static; -1 none */
    int32_t destination;                  /* as in the PS_EV_SETUP */
    ps_addr_t source;                     /* as in the PS_EV_SETUP */
    int64_t nak_delay_ns;                 /* -1: driver default */
    int64_t reserved_position;            /* Position up to which storage of the log is reserved;
                                           * the 8 bytes at this position are also reserved. */
    int64_t join_ordinal;                 /* -1 unknown */
    int64_t retention_bytes;              /* as in the PS_EV_SETUP */
    int64_t retention_ns;                 /* as in the PS_EV_SETUP */
    uint32_t peer_capabilities;
    int64_t untethered_window_limit_timeout_ns;
    int64_t untethered_linger_timeout_ns;
    int64_t untethered_resting_timeout_ns;
    /* Number of credits (messages) that the image grants to the publisher before its first reader
     * joins; 0: no credits. */
    int64_t credits;
    int64_t credit_burst;
    uint8_t frozen; /* they are withheld */
    uint8_t group;  /* 1: delay NAKs at random, as in a multicast group. */
    uint8_t reliable;
    uint8_t rejoin;
    uint8_t cubic_only; /* For CUBIC: 1 turns the Reno-friendly region (RFC 9438, section 4.3)
                         * off. */
    /* 1: continue the image of a dead daemon. The image begins at the end of the contiguous data in
     * its log. The receiver drops data that the old daemon had received after this position, and
     * requests this data again. PS_E_CORRUPT: log and counters contradict each other */
    uint8_t adopted;
    uint8_t half_open;   /* 1: the dead daemon created this adopted image, but never accepted a
                          * frame of its session. The receiver must report the first frame that it
                          * accepts. */
    int64_t consumption; /* adopted: slowest subscriber, -1: none */
} ps_image_params_t;

typedef struct ps_image_status {
    int64_t position; /* rcv-pos: contiguous end */
    int64_t high_water;
    int64_t slowest_subscriber;
    int64_t end_of_stream; /* INT64_MAX until known */
    int32_t gaps;
    int32_t subscribers;
    int64_t pressure_signals;  /* PRESSURE frames sent */
    int64_t foreign_datagrams; /* Number of dropped datagrams whose source address is not the
                                * accepted source of the session. */
} ps_image_status_t;

/* The input of a Python class for congestion control. The receiver updates each value separately,
 * so two values may come from two successive duty cycles of the receiver. */
typedef struct ps_congestion_view {
    int64_t window;       /* Number of bytes that may be in flight; 0: no congestion window applies,
                           * because the class has not answered in time. */
    int64_t least, most;  /* bounds of an answer, bytes */
    int64_t received;     /* Number of bytes of the stream that have arrived since the image
                           * began. */
    int64_t consumed;     /* Number of bytes that the slowest subscriber has consumed since the
                           * image began. */
    int64_t granted;      /* Number of bytes that status messages have allowed the sender to send
                           * since the image began. */
    int64_t losses;       /* Number of duty cycles in which the receiver found new loss. */
    int64_t missing;      /* bytes of open gaps */
    int64_t rtt_ns;       /* smoothed, 0 unknown */
    int64_t least_rtt_ns; /* smallest sample, 0 unknown */
} ps_congestion_view_t;

#endif
