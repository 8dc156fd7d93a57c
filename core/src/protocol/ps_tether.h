/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_tether.h: the states of an untethered subscriber (tether=false; docs/spec/wire-format.md
 * section 6). If an untethered subscriber is too slow, the stream stops waiting for this
 * subscriber.
 *
 *   ACTIVE --behind for window_limit--> LINGER --linger--> RESTING --resting--> ACTIVE (rejoined)
 *                                          \--linger, rejoin off--> CLOSED
 *
 * A tethered subscriber stays ACTIVE. The stream waits for a subscriber in the state ACTIVE or
 * LINGER, but not for one in the state RESTING or CLOSED. Publications (for spies and IPC readers)
 * and images use the same state machine. */
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
    int64_t since_ns; /* In the state ACTIVE: time of the last check that found the subscriber less
                       * than 3/4 of the window behind the leader. In other states: time at which
                       * the state began. */
} ps_tether_t;

void ps_tether_init(ps_tether_t *tether, bool tethered, bool rejoin, int64_t now_ns);
/* Checks one subscriber, whose position is `position`. The parameter leader_position is the
 * position of the most advanced subscriber (for images) or of the sender (for publications). The
 * parameter window_bytes is the present window. Returns true if the subscriber's state changed; the
 * caller must report the change. When the state changes from RESTING to ACTIVE, the caller moves
 * the subscriber to the position at which it joins again. Agent thread, O(1). */
bool ps_tether_step(ps_tether_t *tether, int64_t position, int64_t leader_position,
                    int64_t window_bytes, const ps_tether_timeouts_t *timeouts, int64_t now_ns);
/* Returns the delay until the next check: a sixteenth of the window limit time-out, at most 100 ms.
 * If a check finds the subscriber close to the leader, the subscriber's time-out begins again.
 * Because of the frequent checks, the agent also notices a subscriber that catches up only for a
 * short time. */
int64_t ps_tether_check_ns(const ps_tether_timeouts_t *timeouts);
static inline bool ps_tether_gates(const ps_tether_t *tether)
{
    return tether->state == PS_TETHER_ACTIVE || tether->state == PS_TETHER_LINGER;
}

#endif
