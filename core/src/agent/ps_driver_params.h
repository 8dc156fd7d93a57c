/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver_params.h: parameters of a driver, and parameters of a subscriber (a reader of an image
 * or of a publication). Also the cffi declaration.
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
    int32_t sender_cpu;  /* CPU to which the sender's thread is pinned; -1: none */
    int32_t receiver_cpu;
    uint64_t seed;            /* of the injected generators */
    int64_t receiver_id_base; /* non-zero */
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    const char *host;              /* Name of this host; the receiver's status messages contain this
                                    * name. NULL: none. Copied. */
    int64_t setup_interval_ns;     /* 100 ms */
    int64_t heartbeat_interval_ns; /* 100 ms */
    /* Interval between heartbeats on a stream that has had no new data for idle_after_ns; default 1
     * s. If it equals heartbeat_interval_ns, idle streams send heartbeats as often as busy streams.
     */
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
    int32_t max_gaps;                     /* Largest number of gaps that an image tracks, 1 to
                                           * 16384; default 1024. */
    /* A value of ps_loss_recovery. With PS_LOSS_SINGLE_GAP, a receiver requests the data of only
     * one gap at a time, as Aeron does. Use PS_LOSS_SINGLE_GAP only for comparisons. */
    int32_t loss_recovery;
    int32_t retransmit_percent;     /* Number of bytes that the sender may retransmit for each 100
                                     * bytes of new data; default 100. */
    int64_t retransmit_bytes_per_s; /* Bytes per second that the sender may retransmit even if it
                                     * sends no new data. */
    int32_t event_capacity;         /* Capacity of each agent's event ring, a power of two; default
                                     * 4096. */
    int32_t command_capacity;       /* Capacity of each agent's command ring, a power of two;
                                     * default 1024. */
    uint8_t advertise;              /* send trailers (capabilities) */
    uint8_t governor;               /* 1: delay new data when the host is overloaded; default 0 */
} ps_driver_params_t;

typedef struct ps_subscriber_params {
    int32_t position_counter_id; /* Id of the subscriber's position counter; the conductor has
                                  * already set this counter to join_position. */
    int32_t slot;                /* subscriber slot in penstock.dat */
    int32_t client_slot;         /* to wake */
    int64_t join_position;       /* Position at which the subscriber joined. The client may already
                                  * have moved its position counter beyond this position. */
    int64_t credits;             /* Number of messages that may be outstanding (sent, and their
                                  * credits not yet returned); 0: the reader grants no credits. */
    int64_t credit_burst;        /* Number of messages for which the reader grants credits while no
                                  * message is outstanding; 0: the same number as `credits`. */
    uint8_t tether;
    uint8_t rejoin;
    uint8_t frozen; /* 1: from its join until it resumes, the reader grants no credits. */
    /* 1: the stream does not wait for this reader once it is depth_bytes behind (ps_isolation.h).
     */
    uint8_t isolated;
    int64_t depth_bytes; /* for an isolated reader: the stream does not wait for the reader once the
                          * reader is this number of bytes behind the leading reader; 0: a quarter
                          * of the window */
    int64_t depth_messages; /* the same as a number of messages; 0: no limit in messages */
} ps_subscriber_params_t;

/* A change of the credits that a reader grants. */
typedef struct ps_credit_change {
    int32_t position_counter_id; /* of the reader */
    int64_t credits;             /* as above */
    int64_t credit_burst;
    uint8_t frozen;
} ps_credit_change_t;

#endif
