/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_view.h: a copy of both accounts of a publication (docs/spec/rules.md section 6): the
 * time for which its publishers were blocked, by cause and by culprit, and the number of refused
 * offers. Also a cffi declaration. */
#ifndef PS_PRESSURE_VIEW_H
#define PS_PRESSURE_VIEW_H

#include <stdint.h>

/* A culprit that blocks a publication: a receiver with an address, or a client of this host with a
 * name and a pid. */
typedef struct ps_pressure_party {
    int64_t id; /* receiver id or client id; 0: unknown, or all unknown culprits together */
    int64_t blocked_ns;
    int64_t error_ns; /* blocked_ns exceeds the true time by at most this value */
    int64_t pid;      /* process id of a client on this host; 0 not known */
    uint8_t ip[16];
    uint32_t scope_id;
    uint16_t port;
    uint16_t family; /* 4 or 6: a receiver's address; 0: none */
    char name[96];   /* name of a client on this host; "" none */
} ps_pressure_party_t;

typedef struct ps_pressure_view {
    int32_t cause;    /* ps_cause that binds now, 0 none */
    int32_t stale;    /* 1: the sender wrote during each attempt to copy, and this is the last
                       * consistent copy */
    int64_t since_ns; /* CLOCK_MONOTONIC */
    ps_pressure_party_t culprit;
    uint32_t reason;       /* ps_cause that this receiver states for itself, 0 none */
    int32_t counter_id;    /* position of the slowest reader of a client on this host; -1 */
    int64_t reason_client; /* slowest client of that receiver, 0 not stated */
    int64_t backlog_bytes; /* number of bytes that this client has not read, as its receiver
                            * states */
    char reason_name[33];
    char reason_host[33];
    int64_t blocked_ns[32];          /* closed intervals, by ps_cause */
    ps_pressure_party_t culprits[9]; /* the eight largest; the last entry is the sum of unknown
                                      * culprits */
    int64_t refused[32];             /* number of refused offers, by the ps_cause that blocked the
                                      * stream */
    int64_t refused_ns;              /* total time from a publisher's first refusal to its next
                                      * success */
    int64_t refused_episodes;        /* number of these times */
    int64_t rate_bytes_per_s;        /* rate that binds; 0 none */
    int64_t published_ordinal;
    int64_t sent_ordinal;
    int64_t dropped_messages; /* by the publication's policy */
    int64_t dropped_bytes;
    int64_t depth_bytes;      /* number of bytes by which publishers are ahead of the sender (on
                               * IPC: of the readers) */
    int64_t peak_bytes;       /* the most of it */
    int64_t pressed_since_ns; /* CLOCK_MONOTONIC time at which the depth was reached; 0: the log has
                               * drained since */
    int64_t pressed_ns;       /* total time of the ended episodes of pressure */
    int64_t pressed_episodes; /* number of episodes, including the present one */
    int64_t drained_messages; /* messages drained in the episodes; on IPC only for streams with a
                               * policy */
    int64_t watermark;        /* ps_watermark */
    int64_t throttled;        /* number of offers that were answered PS_THROTTLED */
    int64_t retry_after_ns; /* time after which a throttled publisher may try again; 0: the governor
                             * throttles no publisher of this stream now */
    int64_t deferrals;      /* number of times that the governor withheld data that could leave */
    int64_t waits;          /* number of turns before which the stream waited with others */
    int64_t waited_ns;      /* total time of these waits */
    char strategy[64];
} ps_pressure_view_t;

enum { PS_SCHEDULER_LISTS = 7 };

/* The last sample of the governor. All parts are in ppm. */
typedef struct ps_scheduler_view {
    int64_t sampled_ns; /* CLOCK_MONOTONIC; 0: the governor has taken no sample */
    int64_t pressure, depth, latency, busy;
    int64_t coalesce_ns;        /* longest time for which a partial datagram waits */
    int64_t status_interval_ns; /* least time between status messages */
    int64_t retry_after_ns;     /* for throttled publishers; 0: no publisher is throttled */
    int64_t defers;             /* 1: streams with a priority below 0 are withheld */
    int64_t
        ready[PS_SCHEDULER_LISTS]; /* number of waiting streams, by ps_band; the last entry: with
                                        * retransmits */
    int64_t waits;                 /* number of turns before which a stream waited */
    int64_t waited_ns;             /* total time of these waits */
    int64_t deferrals;             /* number of times that data that could leave was withheld */
} ps_scheduler_view_t;

#endif
