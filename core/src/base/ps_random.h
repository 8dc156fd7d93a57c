/* SPDX-License-Identifier: Apache-2.0
 * ps_random.h: the generator of random delays; the same seed gives the same delays. */
#ifndef PS_RANDOM_H
#define PS_RANDOM_H

#include <stdint.h>

/* State of the random number generator (xorshift-multiply): 64 bits, never zero. The owner of the
 * generator sets its seed, so that simulated runs can be repeated. */
typedef struct ps_random {
    uint64_t state;
} ps_random_t;
void ps_random_seed(ps_random_t *random, uint64_t seed);
uint64_t ps_random_next(ps_random_t *random);
/* Returns a uniformly distributed number in [0, bound); bound must be above 0. */
uint64_t ps_random_below(ps_random_t *random, uint64_t bound);

#endif
