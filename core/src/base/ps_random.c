/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_random.c: the injected generator: xorshift64* (Marsaglia 2003; Vigna 2016).  Not for secrets.
 */
#include "ps_random.h"

#include "ps_assert.h"

/* Spreads a seed over all bits (splitmix64 finaliser), so that seeds 1, 2, 3 start far apart. */
static uint64_t spread(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void ps_random_seed(ps_random_t *random, uint64_t seed)
{
    random->state = spread(seed);
    if (random->state == 0) {
        random->state = UINT64_C(0x9e3779b97f4a7c15);
    }
}

uint64_t ps_random_next(ps_random_t *random)
{
    PS_ASSERT(random->state != 0);
    uint64_t x = random->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

uint64_t ps_random_below(ps_random_t *random, uint64_t bound)
{
    PS_ASSERT(bound > 0);
    /* The high half of a 128-bit product: bias below bound / 2^64, no division. */
    return (uint64_t)(((unsigned __int128)ps_random_next(random) * bound) >> 64);
}
