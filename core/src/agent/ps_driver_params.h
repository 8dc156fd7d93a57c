/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver_params.h: parameters of a driver, and of a subscriber of either agent.  Also the cffi
 * declaration.
 */
#ifndef PS_DRIVER_PARAMS_H
#define PS_DRIVER_PARAMS_H

#include <stdint.h>

#include "ps_cnc.h"
#include "ps_networks.h"
#include "ps_slots.h"

enum ps_threading { PS_INVOKER = 0, PS_SHARED = 1, PS_DEDICATED = 2 };
enum ps_agent_id { PS_AGENT_SENDER = 0, PS_AGENT_RECEIVER = 1 };

typedef struct ps_driver_params {
    ps_net_t *net;       /* taken over */
    ps_cnc_t *cnc;       /* borrowed */
    ps_shared_t *shared; /* borrowed */
    int32_t threading;   /* ps_threading */
    int32_t idle;        /* ps_idle */
    int32_t sender_cpu;  /* CPU to pin to, -1 none */
    int32_t receiver_cpu;
    uint64_t seed;            /* of the injected generators */
    int64_t receiver_id_base; /* non-zero */
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    const char *host;              /* name of the host, stated to senders; NULL: not stated.
                                    * Copied */
    int64_t setup_interval_ns;     /* 100 ms */
    int64_t heartbeat_interval_ns; /* 100 ms */
    /* interval after idle_after_ns of silence: 1 s; with 100 ms the interval does not grow */
    int64_t idle_heartbeat_interval_ns;
    int64_t idle_after_ns;                /* 1 s */
    int64_t status_message_timeout_ns;    /* 200 ms */
    int64_t connection_timeout_ns;        /* 5 s: receivers, destinations, connections */
    int64_t image_liveness_timeout_ns;    /* 10 s */
    int64_t unblock_timeout_ns;           /* 15 s */
    int64_t retransmit_delay_ns;          /* 0 */
    int64_t retransmit_linger_ns;         /* 10 ms */
    int64_t nak_unicast_delay_ns;         /* 1 us .. */
    int64_t nak_unicast_retry_ratio;      /* 100 */
    int64_t nak_multicast_max_backoff_ns; /* 10 ms */
    int64_t pending_setup_timeout_ns;     /* 1 s */
    int32_t nak_multicast_group_size;     /* 10 */
    int32_t max_gaps;                     /* largest number of gaps of an image, 1..16384; 1024 */
    int32_t loss_recovery;                /* ps_loss_recovery; single-gap behaves like Aeron, for
                                           * comparisons */
    int32_t retransmit_percent;           /* bytes that may be retransmitted for 100 bytes of new
                                           * data; 100 */
    int64_t retransmit_bytes_per_s;       /* bytes per second that may be retransmitted without new
                                           * data, so that an idle stream can retransmit */
    int32_t event_capacity;               /* per agent, power of two; 4096 */
    int32_t command_capacity;             /* per agent, power of two; 1024 */
    uint8_t advertise;                    /* send trailers (capabilities) */
    uint8_t governor;                     /* delay new data under pressure; 0 */
} ps_driver_params_t;

typedef struct ps_subscriber_params {
    int32_t position_counter_id; /* sub-pos, preset to the join position */
    int32_t slot;                /* subscriber slot in penstock.dat */
    int32_t client_slot;         /* to wake */
    int64_t join_position;       /* join position, as preset; the client may have moved sub-pos
                                  * since */
    int64_t credits;             /* messages that may be outstanding; 0: it grants no credits */
    int64_t credit_burst;        /* messages granted while none is outstanding; 0: as credits */
    uint8_t tether;
    uint8_t rejoin;
    uint8_t frozen; /* 1: the reader joins with its credits withheld */
    /* 1: the stream does not wait for a reader that is depth_bytes behind (ps_isolation.h). */
    uint8_t isolated;
    int64_t depth_bytes; /* 0: a quarter of the window */
} ps_subscriber_params_t;

/* A change of the credits that a reader grants. */
typedef struct ps_credit_change {
    int32_t position_counter_id; /* of the reader */
    int64_t credits;             /* as above */
    int64_t credit_burst;
    uint8_t frozen;
} ps_credit_change_t;

#endif
