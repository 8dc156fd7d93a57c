/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_join.h: the join hold of a group whose slowest receiver sets the pace (docs/flow-control.md,
 * docs/decisions/0095). A receiver requests a SETUP before it joins. The sender then holds its
 * limit until the receiver has joined, so that the stream does not advance beyond the window of the
 * new receiver. The sender cannot know whether a receiver will ever join, so it rations holds. T is
 * the receiver time-out. A hold ends after T at the latest. One receiver id gets a hold at most
 * once in T. If a hold ended without a join, its address gets no further hold before a receiver
 * there has joined. In any 4 T all holds together last at most T.
 *
 * Pure: no clock, no allocation.  Owner: the sender thread.  Times in ns of the driver's clock.
 */
#ifndef PS_JOIN_H
#define PS_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

enum {
    PS_JOIN_RECORDS = 64,     /* records of receivers */
    PS_JOIN_SPAN = 4,         /* the budget covers this number of time-outs */
    PS_JOIN_TIMEOUT_PARTS = 8 /* parts of a time-out, the resolution of the budget */
};

/* The result of a request for a SETUP; also the reason in PS_EV_JOIN. */
enum ps_join_verdict {
    PS_JOIN_GRANTED = 0,    /* the hold begins when the SETUP leaves, or continues */
    PS_JOIN_EXPIRED = 1,    /* reported later: the hold ended and the receiver had not joined */
    PS_JOIN_TOO_SOON = 2,   /* this receiver had a hold within one time-out */
    PS_JOIN_NOT_JOINED = 3, /* a receiver at this address had a hold and has not joined since */
    PS_JOIN_SPENT = 4       /* the holds of the last four time-outs together lasted one time-out, or
                             * there are too many requests */
};

enum ps_join_state {
    PS_JOIN_FREE = 0,
    PS_JOIN_REQUESTED = 1, /* the SETUP has not left yet */
    PS_JOIN_WAITING = 2,   /* a hold for this receiver is in force */
    PS_JOIN_FAILED = 3,    /* the hold ended before the receiver joined */
    PS_JOIN_JOINED = 4
};

typedef struct ps_join_record {
    int64_t id; /* receiver */
    ps_addr_t address;
    int64_t given_ns; /* time at which the hold began, or at which the receiver requested the
                       * SETUP */
    int32_t state;    /* ps_join_state */
} ps_join_record_t;

typedef struct ps_join {
    int64_t
        limit; /* the sender stays below this position while the hold lasts; INT64_MAX: no hold */
    int64_t until_ns; /* end of the hold */
    int64_t since_ns; /* time up to which holds are counted in spent_ns */
    int64_t joiner;   /* id of the receiver for which the last hold began */
    ps_addr_t joiner_address;
    int64_t timeout_ns; /* T >= 1 */
    int64_t spent_ns[PS_JOIN_SPAN * PS_JOIN_TIMEOUT_PARTS + 1];
    int64_t part;   /* newest entry of spent_ns: now / (T / 8) */
    bool requested; /* some record is PS_JOIN_REQUESTED */
    bool missing;   /* true: a record belongs to a receiver that has not joined */
    ps_join_record_t records[PS_JOIN_RECORDS];
} ps_join_t;

/* timeout_ns > 0. */
void ps_join_init(ps_join_t *join, int64_t timeout_ns);
/* A receiver requested a SETUP.  Returns ps_join_verdict.  Bound: PS_JOIN_RECORDS. */
int32_t ps_join_request(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns);
/* Call when the SETUP has left. Holds the limit for the receivers that requested the SETUP. waits:
 * the group has members. */
void ps_join_start(ps_join_t *join, int64_t limit, bool waits, int64_t now_ns);
/* Call when a status message of a followed receiver has arrived. This receiver has joined, and all
 * receivers at its address that requested a SETUP count as joined. The hold ends unless it is for
 * another receiver. Returns the time at which the receiver's hold began; now_ns if the receiver had
 * no hold. Bound: PS_JOIN_RECORDS. */
int64_t ps_join_joined(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns);
/* Ends the hold if its time is over. Returns true if the hold ended now and its receiver has not
 * joined. */
bool ps_join_expire(ps_join_t *join, int64_t now_ns);

static inline bool ps_join_holds(const ps_join_t *join)
{
    return join->limit != INT64_MAX;
}

#endif
