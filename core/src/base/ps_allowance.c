/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_allowance.c: an absolute limit that rises at a rate.  Products are 128 bits wide: a rate is up
 * to 2^40 units a second and a pause may last for years.
 */
#include "ps_allowance.h"

#include "ps_pacer.h"

#define NANO INT64_C(1000000000)

void ps_allowance_init(ps_allowance_t *allowance, int64_t rate, int64_t burst)
{
    *allowance = (ps_allowance_t){
        .rate = rate <= 0                  ? 0
                : rate < PS_PACER_RATE_MAX ? rate
                                           : PS_PACER_RATE_MAX,
        .burst = burst < 1                    ? 1
                 : burst < PS_PACER_BURST_MAX ? burst
                                              : PS_PACER_BURST_MAX,
    };
}

/* Raises the limit up to now, relative to the count at the last call. Units taken since then may
 * have been taken at the end of an idle time, and that idle time's savings must not replace
 * them. */
static void raise(ps_allowance_t *allowance, int64_t now_ns)
{
    const int64_t most = allowance->taken + allowance->burst;
    if (now_ns > allowance->at_ns) {
        const __int128 gained =
            (__int128)(now_ns - allowance->at_ns) * allowance->rate + allowance->fraction;
        const __int128 limit = allowance->limit + gained / NANO;
        allowance->at_ns = now_ns;
        allowance->limit = limit < most ? (int64_t)limit : most;
        allowance->fraction = (int64_t)(gained % NANO);
    }
    if (allowance->limit >= most) {
        allowance->limit = most;
        allowance->fraction = 0;
    }
}

int64_t ps_allowance_room(ps_allowance_t *allowance, int64_t taken, int64_t now_ns)
{
    if (allowance->rate == 0) {
        return INT64_MAX;
    }
    if (!allowance->started) {
        allowance->started = 1;
        allowance->at_ns = now_ns;
        allowance->limit = taken + allowance->burst;
        allowance->taken = taken;
    }
    allowance->taken = taken < allowance->taken ? taken : allowance->taken;
    raise(allowance, now_ns);
    allowance->taken = taken;
    return allowance->limit - taken;
}

int64_t ps_allowance_ready_ns(const ps_allowance_t *allowance, int64_t taken, int64_t units)
{
    const int64_t wanted = units < allowance->burst ? units : allowance->burst;
    const int64_t missing = taken + wanted - allowance->limit;
    if (allowance->rate == 0 || missing <= 0) {
        return allowance->at_ns;
    }
    const __int128 nanos =
        ((__int128)missing * NANO - allowance->fraction + allowance->rate - 1) / allowance->rate;
    return nanos < INT64_MAX - allowance->at_ns ? allowance->at_ns + (int64_t)nanos : INT64_MAX;
}
