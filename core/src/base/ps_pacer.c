/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pacer.c: the token bucket.  Sizes: burst <= 2^31 units is <= 2^61 nano-units, a debt as much;
 * a refill adds at most what is missing and the worth of one nanosecond.
 */
#include "ps_pacer.h"

#include "ps_assert.h"

#define NANO INT64_C(1000000000)

void ps_pacer_init(ps_pacer_t *pacer)
{
    *pacer = (ps_pacer_t){ 0 };
}

static void fill(ps_pacer_t *pacer, int64_t now_ns)
{
    const int64_t full = pacer->burst * NANO;
    const int64_t missing = full - pacer->level;
    if (now_ns <= pacer->filled_ns) {
        return;
    }
    const int64_t elapsed_ns = now_ns - pacer->filled_ns;
    pacer->filled_ns = now_ns;
    if (elapsed_ns > missing / pacer->rate) {
        pacer->level = full;
    } else {
        pacer->level += elapsed_ns * pacer->rate;
    }
}

void ps_pacer_set(ps_pacer_t *pacer, int64_t rate, int64_t burst, int64_t now_ns)
{
    const bool was_limited = ps_pacer_limits(pacer);
    if (was_limited) {
        fill(pacer, now_ns); /* at the old rate, up to now */
    }
    pacer->rate = rate <= 0 ? 0 : rate < PS_PACER_RATE_MAX ? rate : PS_PACER_RATE_MAX;
    pacer->burst = burst < 1 ? 1 : burst < PS_PACER_BURST_MAX ? burst : PS_PACER_BURST_MAX;
    const int64_t full = pacer->burst * NANO;
    if (!was_limited) {
        pacer->level = full;
        pacer->filled_ns = now_ns;
    }
    pacer->level = pacer->level > full ? full : pacer->level < -full ? -full : pacer->level;
}

int64_t ps_pacer_room(ps_pacer_t *pacer, int64_t now_ns)
{
    if (!ps_pacer_limits(pacer)) {
        return INT64_MAX;
    }
    fill(pacer, now_ns);
    return pacer->level / NANO;
}

void ps_pacer_spend(ps_pacer_t *pacer, int64_t units)
{
    PS_ASSERT(units >= 0);
    if (!ps_pacer_limits(pacer)) {
        return;
    }
    const int64_t floor = -pacer->burst * NANO;
    const int64_t room = (pacer->level - floor) / NANO;
    pacer->level = units >= room ? floor : pacer->level - units * NANO;
}

void ps_pacer_earn(ps_pacer_t *pacer, int64_t units)
{
    PS_ASSERT(units >= 0);
    if (!ps_pacer_limits(pacer)) {
        return;
    }
    const int64_t full = pacer->burst * NANO;
    const int64_t room = (full - pacer->level) / NANO;
    pacer->level = units >= room ? full : pacer->level + units * NANO;
}

int64_t ps_pacer_ready_ns(ps_pacer_t *pacer, int64_t units, int64_t now_ns)
{
    if (!ps_pacer_limits(pacer)) {
        return now_ns;
    }
    fill(pacer, now_ns);
    const int64_t wanted = (units < pacer->burst ? units : pacer->burst) * NANO;
    if (pacer->level >= wanted) {
        return now_ns;
    }
    /* rounded up, so that the units are available at that time */
    return now_ns + (wanted - pacer->level + pacer->rate - 1) / pacer->rate;
}
