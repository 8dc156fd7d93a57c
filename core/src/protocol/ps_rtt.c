/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_rtt.c: see ps_rtt.h.
 */
#include "ps_rtt.h"

#include <string.h>

#include "ps_assert.h"

bool ps_rtt_ready(const ps_rtt_t *rtt, int64_t now_ns)
{
    const int32_t last = rtt->outstanding - 1;

    return last <= 0 ||
           now_ns - rtt->requested_ns[last] >= (now_ns - rtt->requested_ns[0]) / PS_RTT_OUTSTANDING;
}

void ps_rtt_requested(ps_rtt_t *rtt, int64_t stamp_ns)
{
    PS_ASSERT(stamp_ns > 0);
    if (rtt->outstanding == PS_RTT_OUTSTANDING) {
        rtt->outstanding /= 2;
        for (int32_t i = 1; i < rtt->outstanding; i++) {
            rtt->requested_ns[i] = rtt->requested_ns[2 * i];
        }
    }
    rtt->requested_ns[rtt->outstanding++] = stamp_ns;
}

/* Forgets the request; false: there is none of this stamp. */
static bool was_requested(ps_rtt_t *rtt, int64_t stamp_ns)
{
    int32_t kept = 0;

    for (int32_t i = 0; i < rtt->outstanding; i++) {
        if (rtt->requested_ns[i] != stamp_ns) {
            rtt->requested_ns[kept++] = rtt->requested_ns[i];
        }
    }
    const bool found = kept < rtt->outstanding;
    rtt->outstanding = kept;
    return found;
}

/* Requests that are unanswered after twice the newest sample were lost. */
static void forget_lost(ps_rtt_t *rtt, int64_t before_ns)
{
    int32_t lost = 0;

    while (lost < rtt->outstanding && rtt->requested_ns[lost] < before_ns) {
        lost++;
    }
    rtt->outstanding -= lost;
    memmove(rtt->requested_ns, rtt->requested_ns + lost,
            (size_t)rtt->outstanding * sizeof(rtt->requested_ns[0]));
}

int64_t ps_rtt_answered(ps_rtt_t *rtt, int64_t stamp_ns, int64_t delta_ns, int64_t now_ns)
{
    int64_t sample_ns;
    int64_t error_ns;

    if (!was_requested(rtt, stamp_ns) || delta_ns < 0 || delta_ns > now_ns - stamp_ns) {
        return 0;
    }
    sample_ns = now_ns - stamp_ns - delta_ns;
    sample_ns = sample_ns > 0 ? sample_ns : 1;
    forget_lost(rtt, now_ns - 2 * (sample_ns + delta_ns));
    if (rtt->smoothed_ns == 0) {
        rtt->smoothed_ns = sample_ns;
        rtt->variation_ns = sample_ns / 16; /* an extra request costs little */
        rtt->least_ns = sample_ns;
        return sample_ns;
    }
    error_ns =
        sample_ns > rtt->smoothed_ns ? sample_ns - rtt->smoothed_ns : rtt->smoothed_ns - sample_ns;
    rtt->variation_ns += (error_ns - rtt->variation_ns) / 4;
    rtt->smoothed_ns += (sample_ns - rtt->smoothed_ns) / 8;
    rtt->smoothed_ns = rtt->smoothed_ns > 0 ? rtt->smoothed_ns : 1;
    rtt->least_ns = sample_ns < rtt->least_ns ? sample_ns : rtt->least_ns;
    return sample_ns;
}

int64_t ps_rtt_timeout_ns(const ps_rtt_t *rtt)
{
    const int64_t most_ns = rtt->smoothed_ns + 4 * rtt->variation_ns;
    const int64_t least_ns = rtt->smoothed_ns + rtt->smoothed_ns / 8;

    return most_ns > least_ns ? most_ns : least_ns;
}
