/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_view.h: a copy of the two accounts of a publication (docs/spec/rules.md section 6).
 * The first account states how long the publication was blocked, by cause and by culprit. The
 * second account states how many offers were refused, by cause. Also a cffi declaration. */
#ifndef PS_PRESSURE_VIEW_H
#define PS_PRESSURE_VIEW_H

#include <stdint.h>

/* A culprit that blocks a publication: a receiver with an address, or a client of this host with a
 * name and a pid. */
typedef struct ps_pressure_party {
    int64_t id; /* Id of the receiver or client; 0: the culprit is unknown. In the array `culprits`,
                 * the entry with id 0 has the total time of all unknown culprits. */
    int64_t blocked_ns;
    int64_t error_ns; /* error bound of blocked_ns: the true time lies between blocked_ns - error_ns
                       * and blocked_ns */
    int64_t pid;      /* process id of the client, if it is on this host; 0: unknown */
    uint8_t ip[16];
    uint32_t scope_id;
    uint16_t port;
    uint16_t family; /* IP version of the receiver's address, 4 or 6; 0: the culprit is no
                      * receiver. */
    char name[96];   /* name of the client, if it is on this host; else "" */
} ps_pressure_party_t;

typedef struct ps_pressure_view {
    int32_t cause;    /* the cause (ps_cause) that blocks the publication now; 0: none */
    int32_t stale;    /* 1: the sender changed the accounts during each attempt to copy them, so
                       * this view is an older, consistent copy. */
    int64_t since_ns; /* CLOCK_MONOTONIC */
    ps_pressure_party_t culprit;
    uint32_t reason;       /* if the culprit is a receiver: the cause (ps_cause) that limits this
                            * receiver; the receiver's status messages state it; 0: none */
    int32_t counter_id;    /* If the culprit is a client of this host: id of its slowest reader's
                            * position counter; else -1. */
    int64_t reason_client; /* if the culprit is a receiver: id of its slowest client; 0: not
                            * stated */
    int64_t backlog_bytes; /* number of bytes that the client reason_client has not read; the
                            * receiver's status messages state this number */
    char reason_name[33];
    char reason_host[33];
    int64_t blocked_ns[32];          /* closed intervals, by ps_cause */
    ps_pressure_party_t culprits[9]; /* The eight culprits with the longest times. A ninth entry at
                                      * the end has the total time of all unknown culprits. */
    int64_t refused[32];             /* Number of refused offers. The entry with index c counts the
                                      * offers that were refused while the cause c (ps_cause)
                                      * blocked the stream. */
    int64_t refused_ns;              /* sum of the intervals from a publisher's first refused offer
                                      * to its next accepted offer */
    int64_t refused_episodes;        /* number of intervals whose sum is refused_ns */
    int64_t rate_bytes_per_s;        /* rate limit of the stream; 0: the stream has none */
    int64_t published_ordinal;
    int64_t sent_ordinal;
    int64_t dropped_messages; /* messages dropped by ps-policy */
    int64_t dropped_bytes;
    int64_t depth_bytes;      /* Number of published bytes that the sender has not sent (on IPC:
                               * that the slowest reader has not read). */
    int64_t peak_bytes;       /* largest value of depth_bytes */
    int64_t pressed_since_ns; /* CLOCK_MONOTONIC time at which the present episode of pressure
                               * began, because depth_bytes reached the configured depth; 0: there
                               * is no episode now. */
    int64_t pressed_ns;       /* total duration of the episodes of pressure that have ended */
    int64_t pressed_episodes; /* number of episodes of pressure, including the present one; an
                               * episode begins when depth_bytes reaches the configured depth, and
                               * ends when depth_bytes has fallen to the low watermark */
    int64_t drained_messages; /* Number of messages sent (on IPC: read) during episodes of pressure.
                               * On IPC, the sender counts these messages only for streams with a
                               * policy (ps-policy). */
    int64_t watermark;        /* ps_watermark */
    int64_t throttled;        /* Number of offers that returned PS_THROTTLED. */
    int64_t retry_after_ns;   /* Time for which a publisher must wait after PS_THROTTLED; 0: the
                               * governor does not throttle this stream now. */
    int64_t deferrals;        /* Number of times that the governor delayed data although no other
                               * limit applied to this data. */
    int64_t waits;     /* Number of times that this stream had to wait for other streams before
                             * the sender served it. */
    int64_t waited_ns; /* total time of these waits */
    int64_t refused_since_ns; /* CLOCK_MONOTONIC time of the first refused offer of this handle
                               * since its last accepted offer; 0: the last offer of this handle was
                               * accepted */
    int64_t refused_cause;    /* cause (ps_cause) for which this handle's offers were refused since
                               * refused_since_ns; 0: the sender has not stated a cause yet */
    int64_t reason_pid;       /* process id of reason_client, if it is a client of this daemon; 0:
                               * unknown */
    int64_t dropped_storage;  /* number of the messages in dropped_messages that publishers dropped
                              * because no memory was free */
    int64_t dropped_rate;     /* number of the messages in dropped_messages that publishers dropped
                              * because of the rate limit */
    char strategy[64];
} ps_pressure_view_t;

enum { PS_SCHEDULER_LISTS = 7 };

/* The latest sample of the governor. The fields pressure, depth, latency and busy are in parts per
 * million; the pressure is computed from depth, latency and busy. */
typedef struct ps_scheduler_view {
    int64_t sampled_ns; /* time of the sample, on CLOCK_MONOTONIC; 0: there was no sample */
    int64_t pressure, depth, latency, busy;
    int64_t coalesce_ns;               /* longest time for which the sender delays a datagram that
                                        * is not full, to put more data into it */
    int64_t status_interval_ns;        /* least time between two status messages that the receiver
                                        * sends for one image */
    int64_t retry_after_ns;            /* time for which a publisher must wait after PS_THROTTLED;
                                        * 0: no publisher is throttled */
    int64_t defers;                    /* 1: the governor delays streams with a priority below 0 */
    int64_t ready[PS_SCHEDULER_LISTS]; /* Number of streams that wait in each ps_band. The last
                                        * entry is the number of streams that wait to send due
                                        * retransmits. */
    int64_t waits;                     /* number of times that a stream had to wait while the sender
                                        * served other streams */
    int64_t waited_ns;                 /* total time of these waits */
    int64_t deferrals;                 /* number of times that the governor delayed the data of a
                                        * stream */
} ps_scheduler_view_t;

#endif
