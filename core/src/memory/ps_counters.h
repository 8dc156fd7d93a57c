/* SPDX-License-Identifier: Apache-2.0
 * ps_counters.h: cells of counters for the agents (ids: ps_cnc.h). */
#ifndef PS_COUNTERS_H
#define PS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "ps_cnc.h"

/* Returns the cell of a counter's value. A writer stores to the cell with release order, or adds to
 * it with relaxed order. */
_Atomic int64_t *ps_counter_cell(const ps_cnc_t *cnc, int32_t counter_id);

#endif
