/* SPDX-License-Identifier: Apache-2.0
 * ps_random.h: the generator of random delays; the same seed gives the same delays. */
#ifndef PS_RANDOM_H
#define PS_RANDOM_H

#include <stdint.h>

/* Injected generator: xorshift-multiply, 64 bits of state, never zero. */
typedef struct ps_random {
    uint64_t state;
} ps_random_t;
void ps_random_seed(ps_random_t *random, uint64_t seed);
uint64_t ps_random_next(ps_random_t *random);
/* Uniform in [0, bound), bound > 0. */
uint64_t ps_random_below(ps_random_t *random, uint64_t bound);

#endif
