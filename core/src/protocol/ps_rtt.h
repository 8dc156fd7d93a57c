/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_rtt.h: the round-trip time of a stream, measured by RTTM requests of the receiver. Several
 * requests may be in flight, because with a single request the receiver would get only one sample
 * in each round trip. The round-trip time is smoothed as in RFC 6298, but with a smaller first
 * variation. Pure. Owner: the receiver thread.
 *
 * Requests leave at an interval computed from the known round-trip time. If the round-trip time
 * later grows by a large factor, many requests are unanswered at the same time. The table of
 * requests has sixteen entries. When the table is full, the receiver removes every second request
 * from it. After that, the receiver sends requests at intervals of 1/16 of the oldest request's
 * age. With these intervals, each request stays in the table for at least half of the oldest
 * request's age. If the round-trip time has grown, a late answer therefore still finds its request
 * in the table. */
#ifndef PS_RTT_H
#define PS_RTT_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_RTT_OUTSTANDING = 16 };

typedef struct ps_rtt {
    int64_t smoothed_ns; /* 0: nothing measured yet */
    int64_t variation_ns;
    int64_t least_ns;                         /* 0: nothing measured yet */
    int64_t requested_ns[PS_RTT_OUTSTANDING]; /* unanswered requests, the oldest first */
    int32_t outstanding;                      /* number of these */
} ps_rtt_t;

/* Returns true if the receiver may send another RTTM request now. The receiver may do so if the
 * latest request is at least 1/16 as old as the oldest unanswered request. */
bool ps_rtt_ready(const ps_rtt_t *rtt, int64_t now_ns);
/* Records that an RTTM request with this time stamp leaves now. The time stamp must be above 0 and
 * later than the time stamp of the last request. */
void ps_rtt_requested(ps_rtt_t *rtt, int64_t stamp_ns);
/* Processes an answer to an RTTM request. Returns the round trip in ns (> 0). Returns 0 if the
 * answer belongs to no request, repeats an earlier answer, or states an impossible delay at the
 * sender. */
int64_t ps_rtt_answered(ps_rtt_t *rtt, int64_t stamp_ns, int64_t delta_ns, int64_t now_ns);
/* Returns the time after which an answer counts as lost: the smoothed round trip + 4 variations,
 * but at least 9/8 of the smoothed round trip. Returns 0 if the round trip is unknown. */
int64_t ps_rtt_timeout_ns(const ps_rtt_t *rtt);

#endif
