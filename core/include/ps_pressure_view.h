/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_view.h: both accounts of a publication as a reader of shared memory sees them
 * (docs/spec/rules.md section 6): the time that its publishers were held, by cause and by culprit,
 * and the offers that were refused.  Also a cffi declaration.
 */
#ifndef PS_PRESSURE_VIEW_H
#define PS_PRESSURE_VIEW_H

#include <stdint.h>

/* One through whose fault a publication is held: a receiver with an address, or a client of this
 * host with a name and a pid. */
typedef struct ps_pressure_party {
    int64_t id; /* receiver id or client id; 0 unknown, or all that are unknown */
    int64_t blocked_ns;
    int64_t error_ns; /* blocked_ns is at most so much too much */
    int64_t pid;      /* of a client on this host; 0 not known */
    uint8_t ip[16];
    uint32_t scope_id;
    uint16_t port;
    uint16_t family; /* 4 or 6: a receiver's address; 0: none */
    char name[96];   /* of a client on this host, "" none */
} ps_pressure_party_t;

typedef struct ps_pressure_view {
    int32_t cause;    /* ps_cause that binds now, 0 none */
    int32_t stale;    /* 1: the sender wrote in each of the tries; this is the last good copy */
    int64_t since_ns; /* CLOCK_MONOTONIC */
    ps_pressure_party_t culprit;
    uint32_t reason;       /* ps_cause that this receiver states for itself, 0 none */
    int32_t counter_id;    /* position of the slowest reader of a client on this host; -1 */
    int64_t reason_client; /* client beyond that receiver which is behind, 0 not stated */
    int64_t backlog_bytes; /* what that client has not read, as stated */
    char reason_name[33];
    char reason_host[33];
    int64_t blocked_ns[32];          /* closed intervals, by ps_cause */
    ps_pressure_party_t culprits[9]; /* the eight largest; the last entry: all that are unknown */
    int64_t refused[32];             /* offers, by the ps_cause that bound then */
    int64_t refused_ns;              /* from first refusals to next successes */
    int64_t refused_episodes;        /* of these */
    int64_t rate_bytes_per_s;        /* that binds; 0 none */
    int64_t published_ordinal;
    int64_t sent_ordinal;
    char strategy[64];
} ps_pressure_view_t;

#endif
