/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_tether.h: the states of a subscriber that may be left behind (docs/spec/wire-format.md
 * section 6).
 *
 *   ACTIVE --behind for window_limit--> LINGER --linger--> RESTING --resting--> ACTIVE (rejoined)
 *                                          \--linger, rejoin off--> CLOSED
 *
 * A tethered subscriber stays ACTIVE.  ACTIVE and LINGER gate the stream, RESTING and CLOSED do
 * not. Generic over positions: publications (spies, IPC) and images use the same machine.
 */
#ifndef PS_TETHER_H
#define PS_TETHER_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_choices.h"

typedef struct ps_tether_timeouts {
    int64_t window_limit_ns;
    int64_t linger_ns;
    int64_t resting_ns;
} ps_tether_timeouts_t;

typedef struct ps_tether {
    int32_t state; /* ps_tether_state */
    bool tethered;
    bool rejoin;
    int64_t since_ns; /* ACTIVE: last time it was not behind; else when the state began */
} ps_tether_t;

void ps_tether_init(ps_tether_t *tether, bool tethered, bool rejoin, int64_t now_ns);
/* One look.  position: the subscriber's; leader_position: the furthest (images) or the sender's;
 * window_bytes: in effect.  Returns true when the state changed (report it).  On RESTING -> ACTIVE
 * the caller places the subscriber at its join position.  Agent thread, O(1). */
bool ps_tether_step(ps_tether_t *tether, int64_t position, int64_t leader_position,
                    int64_t window_bytes, const ps_tether_timeouts_t *timeouts, int64_t now_ns);
/* How long until the next look: sixteen in the limit, so that who was behind for a moment is not
 * taken for one that was all the time; ten a second at least. */
int64_t ps_tether_check_ns(const ps_tether_timeouts_t *timeouts);
static inline bool ps_tether_gates(const ps_tether_t *tether)
{
    return tether->state == PS_TETHER_ACTIVE || tether->state == PS_TETHER_LINGER;
}

#endif
