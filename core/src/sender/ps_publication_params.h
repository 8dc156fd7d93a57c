/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_params.h: parameters and status of send endpoints and publications.  Also the cffi
 * declaration.
 */
#ifndef PS_PUBLICATION_PARAMS_H
#define PS_PUBLICATION_PARAMS_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_send_endpoint ps_send_endpoint_t;
typedef struct ps_publication ps_publication_t;

enum ps_mdc { PS_MDC_NONE = 0, PS_MDC_DYNAMIC = 1, PS_MDC_MANUAL = 2 };

typedef struct ps_send_endpoint_params {
    int64_t id;                      /* Id of the endpoint, which the conductor chooses; unique in
                                      * the driver. */
    ps_socket_params_t data;         /* Parameters of the socket that sends data; with unicast and
                                      * MDC this socket also receives control frames. */
    ps_socket_params_t control;      /* For multicast: parameters of the socket that receives
                                      * control frames on group address G+1; bind.family 0: none. */
    int32_t mdc;                     /* ps_mdc */
    int32_t status_counter_id;       /* channel status */
    int32_t destinations_counter_id; /* mdc-num-dest, -1 none */
    int32_t refused_counter_id;      /* mdc-refused, -1 none */
    uint8_t multicast;
} ps_send_endpoint_params_t;

typedef struct ps_publication_params {
    int64_t id;                   /* registration id */
    const char *log_path;         /* made by ps_log_create */
    ps_send_endpoint_t *endpoint; /* NULL: IPC */
    int32_t slot;                 /* publication slot in penstock.dat */
    int32_t publisher_limit_counter_id;
    int32_t publisher_position_counter_id;
    int32_t sender_position_counter_id; /* -1 for IPC */
    int32_t sender_limit_counter_id;    /* -1 for IPC */
    int32_t back_pressure_counter_id;   /* -1 for IPC */
    int32_t naks_counter_id;            /* -1 for IPC */
    int32_t receivers_counter_id;       /* -1: none */
    int32_t flow_control;               /* ps_flow_control; IPC: PS_FC_PRESSURE or any other */
    int64_t fc_receiver_timeout_ns;     /* min, tagged: 0 = 5 s */
    int64_t fc_group_tag;               /* tagged */
    int32_t fc_group_min_size;          /* min, tagged */
    int32_t fc_on_late;                 /* custom: ps_fc_late */
    int64_t rate_bytes_per_s;           /* 0: no limit */
    int64_t rate_messages_per_s;        /* 0: no limit */
    int32_t priority;                   /* -1000..1000, or a special value of ps_priority.h */
    int32_t never_throttle;             /* 1: the governor does not delay this stream's data, and
                                         * does not throttle its publishers. */
    int32_t policy;                     /* ps_policy */
    int64_t low_watermark_bytes;        /* low watermark of a stream with a policy, in bytes; 0:
                                         * half the publication window */
    int64_t depth_messages;             /* for a stream with a policy: largest number of published
                                         * messages that may be unsent (on IPC: unread); 0: no limit
                                         */
    int64_t low_watermark_messages;     /* low watermark in messages; 0: half of depth_messages */
    int64_t depth_bytes;                /* with PS_POLICY_DROP_OLDEST: number of bytes by which a
                                         * reader may be behind the newest data; 0: a quarter of the
                                         * reader's window */
    int32_t reader_depth_messages;      /* with PS_POLICY_DROP_OLDEST: number of messages by which a
                                         * reader may be behind the newest data; 0: no limit in
                                         * messages */
    int64_t retention_bytes;            /* largest distance behind the newest data at which readers
                                         * still get data; 0: no limit */
    int64_t retention_ns;               /* largest age of data that readers still get; 0: no
                                         * limit */
    int32_t retransmit_window_multiple; /* largest range that the sender retransmits for one NAK, in
                                         * windows; 0: 16 for unicast, 4 for groups */
    int32_t window_bytes;               /* publication window in effect */
    int32_t max_resend;                 /* group semantics: 1..256 */
    int32_t ttl;                        /* stated in SETUP */
    const char *strategy;               /* Readable name of the flow control strategy. The slot in
                                         * penstock.dat stores the first PS_STRATEGY_BYTES bytes of
                                         * the name. */
    int64_t reserved_position;          /* Position up to which storage is reserved in the log. */
    int64_t untethered_window_limit_timeout_ns;
    int64_t untethered_linger_timeout_ns;
    int64_t untethered_resting_timeout_ns;
    uint8_t exclusive;
    uint8_t group; /* multicast or MDC */
    uint8_t spies_simulate_connection;
    uint8_t signal_eos;
    uint8_t channel_timestamp;        /* 1: write the send time into each message, by default into
                                       * the reserved value. */
    int32_t channel_timestamp_offset; /* Offset in the payload at which to write the send time; -8:
                                       * into the reserved value. */
    /* 1: continue the publication of a dead daemon, at the positions in the publication's log and
     * counters. PS_E_CORRUPT: the positions in the log and in the counters contradict each other */
    uint8_t adopted;
    int64_t start_position;     /* For an adopted publication: first position of the stream. */
    ps_relay_path_t relay_path; /* Relays that the stream has passed; the SETUP states them. If the
                                 * path's `count` is 0, the stream has passed no relay. */
    int32_t credit_weight;      /* Weight of the publication when several publications share a pool
                                 * of credits: 1 to PS_CREDIT_WEIGHT_MAX; 0: the SETUP states no
                                 * weight. */
    /* For an adopted publication: the old daemon released the memory of the terms below this
     * position, which now reads as zeroes; 0: the old daemon released no memory. */
    int64_t kept_position;
} ps_publication_params_t;

typedef struct ps_publication_status {
    int64_t producer_position;
    int64_t consumer_position; /* sender position; IPC: slowest subscriber */
    int64_t publisher_limit;
    int32_t is_connected;
    int32_t receivers;        /* Number of live receivers (network) or of subscribers (IPC). */
    int64_t rate_bytes_per_s; /* The lower of ps-rate and the rate of NAK-strength control, in bytes
                               * a second; 0: no rate limit. */
    int64_t pressure_signals; /* number of PRESSURE frames received */
} ps_publication_status_t;

/* The last status message of a live receiver. */
typedef struct ps_receiver_view {
    int64_t receiver_id;
    int64_t heard_ns; /* driver's clock */
    int64_t position; /* consumed */
    int64_t group_tag;
    int64_t reason_client; /* Id of the client that limits the receiver, from the trailer of the
                            * status message. */
    int64_t backlog_bytes;
    int32_t window;
    uint32_t reason;       /* ps_cause, 0 none */
    uint32_t capabilities; /* 0: a plain Aeron peer */
    uint32_t fill_ppm;
    int32_t has_group_tag;
    int32_t followed;     /* reserved, 0 */
    char reason_name[33]; /* Name of the client reason_client, from the trailer; "": the trailer has
                           * no name. */
    char reason_host[33];
    ps_addr_t address;
} ps_receiver_view_t;

#endif
