/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_context.h: the parameters, network, counters, shared slots and clock that both agents use. All
 * fields except epoch_offset_ns are constant while the driver exists. */
#ifndef PS_CONTEXT_H
#define PS_CONTEXT_H

#include <stdatomic.h>
#include <stdint.h>

#include "ps_counters.h"
#include "ps_driver_params.h"

typedef struct ps_context {
    ps_driver_params_t params;
    _Atomic int64_t epoch_offset_ns; /* Number of ns to add to CLOCK_MONOTONIC to get the time since
                                      * 1970; the agents' threads update this number once a second.
                                      */
    int64_t (*thread_ns)(void);      /* Returns the processor time of the calling thread; NULL: the
                                      * driver does not measure it. */
} ps_context_t;

/* Returns the difference between the time since 1970 and the monotonic time, in ns. Constant in the
 * simulator. Any thread. */
static inline int64_t ps_context_epoch_offset_ns(const ps_context_t *context)
{
    return atomic_load_explicit(&((ps_context_t *)(uintptr_t)context)->epoch_offset_ns,
                                memory_order_relaxed);
}

/* Adds a number to a system counter; `id` is a value of ps_system_counter. Any agent thread. */
static inline void ps_system_add(const ps_context_t *context, int32_t id, int64_t delta)
{
    atomic_fetch_add_explicit(ps_counter_cell(context->params.cnc, id), delta,
                              memory_order_relaxed);
}

#endif
