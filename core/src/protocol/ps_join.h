/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_join.h: join holds (docs/flow-control.md, docs/decisions/0095). Join holds exist only if the
 * sender waits for the slowest receiver of a group. During a join hold, the sender does not raise
 * its limit. A receiver requests a SETUP before it joins. When a receiver requests a SETUP, the
 * sender begins a join hold, which lasts until the receiver has joined. Because of the join hold,
 * the stream does not advance beyond the window of the new receiver. The sender cannot know whether
 * a receiver will ever join, so it limits the number and the duration of join holds. A join hold
 * lasts at most one receiver time-out. The same receiver id causes at most one join hold within one
 * receiver time-out. After a receiver has caused a join hold without joining, its address causes no
 * further join hold until a receiver at this address has joined. All join holds of a sender within
 * four receiver time-outs together last at most one receiver time-out.
 *
 * Pure: no clock, no allocation. Owner: the sender thread. Times are in ns of the driver's clock.
 */
#ifndef PS_JOIN_H
#define PS_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

enum {
    PS_JOIN_RECORDS = 64,     /* records of receivers */
    PS_JOIN_SPAN = 4,         /* The sender adds up the durations of all join holds over this number
                               * of receiver time-outs (T): within 4 T, all join holds together may
                               * last at most T. */
    PS_JOIN_TIMEOUT_PARTS = 8 /* A receiver time-out is divided into this number of equal parts. For
                               * each part, the array spent_ns contains the total duration of the
                               * join holds that lie in this part. */
};

/* The sender's decision when a receiver requests a SETUP: a join hold, or the reason why no join
 * hold begins. */
enum ps_join_verdict {
    PS_JOIN_GRANTED = 0,    /* A join hold begins when the SETUP leaves; a join hold that is already
                             * in force continues. */
    PS_JOIN_EXPIRED = 1,    /* A join hold has ended, and its receiver has not joined. The sender
                             * only reports this value to the conductor; a request never gets this
                             * verdict. */
    PS_JOIN_TOO_SOON = 2,   /* No join hold, because this receiver already caused a join hold within
                             * the last receiver time-out. */
    PS_JOIN_NOT_JOINED = 3, /* No join hold, because a receiver at this address caused a join hold
                             * earlier and has not joined since. */
    PS_JOIN_SPENT = 4       /* No join hold, for one of two reasons. Earlier join holds have used up
                             * the total time allowed within four receiver time-outs, or the table
                             * of requests is full. */
};

enum ps_join_state {
    PS_JOIN_FREE = 0,
    PS_JOIN_REQUESTED = 1, /* The receiver has requested a SETUP, which the sender has not sent
                            * yet. */
    PS_JOIN_WAITING = 2,   /* A join hold for this receiver is in force. */
    PS_JOIN_FAILED = 3,    /* The join hold for this receiver ended before the receiver joined, or
                            * the receiver refused the stream. */
    PS_JOIN_JOINED = 4
};

typedef struct ps_join_record {
    int64_t id; /* receiver */
    ps_addr_t address;
    int64_t given_ns; /* Before the receiver's join hold: time at which the receiver requested the
                       * SETUP. Afterwards: time at which the join hold began. */
    int32_t state;    /* ps_join_state */
} ps_join_record_t;

typedef struct ps_join {
    int64_t limit;    /* During a join hold, the sender does not send beyond this position;
                       * INT64_MAX: no join hold. */
    int64_t until_ns; /* end of the hold */
    int64_t since_ns; /* Time up to which the durations of join holds have been added to
                       * spent_ns. */
    int64_t joiner;   /* Id of the receiver that caused the latest join hold. */
    ps_addr_t joiner_address;
    int64_t timeout_ns; /* T >= 1 */
    int64_t spent_ns[PS_JOIN_SPAN * PS_JOIN_TIMEOUT_PARTS + 1];
    int64_t part;   /* Number of the newest part in spent_ns. This number is the present time,
                     * divided by an eighth of timeout_ns. */
    bool requested; /* some record is PS_JOIN_REQUESTED */
    bool missing;   /* True if some record belongs to a receiver that has not joined. */
    ps_join_record_t records[PS_JOIN_RECORDS];
} ps_join_t;

/* timeout_ns > 0. */
void ps_join_init(ps_join_t *join, int64_t timeout_ns);
/* Call this function when a receiver has requested a SETUP. Returns a ps_join_verdict. Cost: visits
 * at most PS_JOIN_RECORDS records. */
int32_t ps_join_request(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns);
/* Call this function when the sender has sent a requested SETUP. If `waits` is true, the group
 * already has members. A join hold then begins for the receivers that requested the SETUP. */
void ps_join_start(ps_join_t *join, int64_t limit, bool waits, int64_t now_ns);
/* Call this function when a status message of a tracked receiver has arrived. The status message
 * shows that the receiver has joined. All receivers at the same address that requested a SETUP also
 * count as joined. Ends the join hold, unless it is also in force for a receiver at another
 * address. Returns the time at which the join hold for the receiver began; now_ns if the receiver
 * caused no join hold. Cost: visits at most PS_JOIN_RECORDS records. */
int64_t ps_join_joined(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns);
/* Call this function when an ERR frame of a receiver has arrived: the receiver refuses the stream.
 * Ends the join hold, unless it is also in force for another receiver. The receiver's address then
 * causes no further join hold until a receiver at this address has joined. Returns true if the join
 * hold ended in this call. Cost: visits at most PS_JOIN_RECORDS records. */
bool ps_join_refused(ps_join_t *join, int64_t id, int64_t now_ns);
/* Ends the join hold if it has lasted for the longest permitted time. Returns true if this call
 * ended a join hold whose receiver has not joined. */
bool ps_join_expire(ps_join_t *join, int64_t now_ns);

static inline bool ps_join_holds(const ps_join_t *join)
{
    return join->limit != INT64_MAX;
}

#endif
