/* SPDX-License-Identifier: Apache-2.0
 * ps_clock.h: the system's clocks. */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <stdint.h>

/* The simulated time of day is the simulator's monotonic clock plus this number of ns. */
#define PS_INVOKER_EPOCH_OFFSET_NS (INT64_C(1700000000) * INT64_C(1000000000))

/* Returns CLOCK_MONOTONIC in ns. Code of an agent must not call this function: an agent gets the
 * time as an argument. */
int64_t ps_monotonic_ns(void);
/* Returns the processor time of the calling thread in ns. A system call. */
int64_t ps_thread_ns(void);
int64_t ps_epoch_ns(void);
/* Returns the difference between the time of day and CLOCK_MONOTONIC, in ns. If the kernel
 * interrupts the thread between its reads of the two clocks, the measured difference is too large,
 * never too small. The function therefore reads both clocks several times and returns the smallest
 * difference. */
int64_t ps_epoch_offset_ns(void);

#endif
