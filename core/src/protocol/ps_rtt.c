/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_rtt.c: see ps_rtt.h.
 */
#include "ps_rtt.h"

#include "ps_assert.h"

void ps_rtt_requested(ps_rtt_t *rtt, int64_t stamp_ns)
{
    PS_ASSERT(stamp_ns > 0);
    rtt->requested_ns[rtt->next++ % PS_RTT_OUTSTANDING] = stamp_ns;
}

static bool was_requested(ps_rtt_t *rtt, int64_t stamp_ns)
{
    for (int32_t i = 0; stamp_ns > 0 && i < PS_RTT_OUTSTANDING; i++) {
        if (rtt->requested_ns[i] == stamp_ns) {
            rtt->requested_ns[i] = 0;
            return true;
        }
    }
    return false;
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
    if (rtt->smoothed_ns == 0) {
        rtt->smoothed_ns = sample_ns;
        rtt->variation_ns = sample_ns / 16; /* asking once too often costs little */
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
