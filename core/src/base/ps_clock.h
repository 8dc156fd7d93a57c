/* SPDX-License-Identifier: Apache-2.0
 * ps_clock.h: the system's clocks. */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <stdint.h>

/* Clock of the caller's thread for code outside agents. */
int64_t ps_monotonic_ns(void);
int64_t ps_epoch_ns(void);

#endif
