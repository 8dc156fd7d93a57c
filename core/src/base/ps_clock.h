/* SPDX-License-Identifier: Apache-2.0
 * ps_clock.h: the system's clocks. */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <stdint.h>

/* Returns CLOCK_MONOTONIC in ns. Code of an agent must not call this function: an agent gets the
 * time as an argument. */
int64_t ps_monotonic_ns(void);
/* Returns the processor time of the calling thread in ns. A system call. */
int64_t ps_thread_ns(void);
int64_t ps_epoch_ns(void);
/* Returns the distance in ns from CLOCK_MONOTONIC to the time of day. The returned distance is
 * never too small. If the thread loses the processor between its two clock reads, the result is too
 * large by the time of the interruption. The function therefore reads both clocks several times and
 * returns the smallest distance. */
int64_t ps_epoch_offset_ns(void);

#endif
