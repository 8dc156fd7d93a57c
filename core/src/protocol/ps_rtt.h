/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_rtt.h: round trips as measured by RTTM requests of a receiver. Several requests may be in
 * flight, since on a long path one at a time would give one sample a round trip. Smoothed as in
 * RFC 6298, but with a smaller first variation. Pure. Owner: the receiver thread.
 *
 * The round trip may grow many times over while requests leave at a pace that suits the old one.
 * Sixteen requests are remembered. When the table is full, every second one is dropped, not the
 * oldest. The next requests leave a sixteenth of the oldest one's age apart. So each request is
 * remembered for at least half the age of the oldest. An answer finds its request whatever the
 * round trip has become. */
#ifndef PS_RTT_H
#define PS_RTT_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_RTT_OUTSTANDING = 16 };

typedef struct ps_rtt {
    int64_t smoothed_ns; /* 0: nothing measured yet */
    int64_t variation_ns;
    int64_t least_ns; /* 0: nothing measured yet */
    int64_t
        requested_ns[PS_RTT_OUTSTANDING]; /* requests that were not answered, the oldest first */
    int32_t outstanding;                  /* of them */
} ps_rtt_t;

/* May a request leave now, as far as those in flight are concerned? */
bool ps_rtt_ready(const ps_rtt_t *rtt, int64_t now_ns);
/* A request with this stamp (> 0, later than the last) leaves now. */
void ps_rtt_requested(ps_rtt_t *rtt, int64_t stamp_ns);
/* An answer: sample in ns (> 0). 0 if it answers no request, answers twice, or states an
 * impossible delay at the other end. */
int64_t ps_rtt_answered(ps_rtt_t *rtt, int64_t stamp_ns, int64_t delta_ns, int64_t now_ns);
/* How long an answer may take before it counts as lost: smoothed + 4 variations, at least 9/8
 * smoothed.  0 unknown. */
int64_t ps_rtt_timeout_ns(const ps_rtt_t *rtt);

#endif
