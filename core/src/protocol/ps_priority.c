/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_priority.h"

#include "ps_bands.h"

#define HALF_LIFE_NS INT64_C(30000000000)
#define FORGOTTEN_NS INT64_C(300000000000)
enum { STEPS = 32, FRACTION_BITS = 16 };

/* 2^(-i / 32) in units of 2^-16. */
static const int32_t power[STEPS + 1] = {
    65536, 64132, 62757, 61413, 60097, 58809, 57549, 56316, 55109, 53928, 52773,
    51642, 50535, 49452, 48393, 47356, 46341, 45348, 44376, 43425, 42495, 41584,
    40693, 39821, 38968, 38133, 37316, 36516, 35734, 34968, 34219, 33486, 32768,
};

int32_t ps_priority_recency(int64_t since_consumed_ns)
{
    if (since_consumed_ns < 0 || since_consumed_ns >= FORGOTTEN_NS) {
        return 0;
    }
    const int64_t ticks = since_consumed_ns / PS_PRIORITY_TICK_NS + 1;
    const int64_t at = ticks * PS_PRIORITY_TICK_NS * STEPS;
    const int64_t step = at / HALF_LIFE_NS;
    const int64_t rest = at % HALF_LIFE_NS;
    const int64_t from = power[step % STEPS];
    const int64_t value = from - (from - power[step % STEPS + 1]) * rest / HALF_LIFE_NS;
    return (int32_t)(PS_PRIORITY_RECENT * value >> (step / STEPS) >> FRACTION_BITS);
}

int32_t ps_priority_aging(int64_t waited_ns)
{
    const int64_t ticks = waited_ns > 0 ? waited_ns / PS_PRIORITY_TICK_NS : 0;
    return ticks < PS_PRIORITY_MAX / 5 ? (int32_t)(5 * ticks) : PS_PRIORITY_MAX;
}

int32_t ps_priority_band(int32_t effective)
{
    if (effective < 0) {
        return PS_BAND_B0;
    }
    return effective < 750 ? PS_BAND_B1 + effective / 250 : PS_BAND_B4;
}
