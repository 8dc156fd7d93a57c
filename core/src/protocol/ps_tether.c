/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_tether.h"

enum { PS_TETHER_CHECKS = 16 };
#define PS_TETHER_CHECK_LEAST_NS INT64_C(1000000)
#define PS_TETHER_CHECK_MOST_NS  INT64_C(100000000)

void ps_tether_init(ps_tether_t *tether, bool tethered, bool rejoin, int64_t now_ns)
{
    tether->state = PS_TETHER_ACTIVE;
    tether->tethered = tethered;
    tether->rejoin = rejoin;
    tether->since_ns = now_ns;
}

static bool enter(ps_tether_t *tether, int32_t state, int64_t now_ns)
{
    tether->state = state;
    tether->since_ns = now_ns;
    return true;
}

bool ps_tether_step(ps_tether_t *tether, int64_t position, int64_t leader_position,
                    int64_t window_bytes, const ps_tether_timeouts_t *timeouts, int64_t now_ns)
{
    if (tether->tethered) {
        return false;
    }
    const int64_t waited_ns = now_ns - tether->since_ns;
    switch (tether->state) {
    case PS_TETHER_ACTIVE:
        if (position > leader_position - (window_bytes / 4) * 3) {
            tether->since_ns = now_ns;
            return false;
        }
        return waited_ns >= timeouts->window_limit_ns && enter(tether, PS_TETHER_LINGER, now_ns);
    case PS_TETHER_LINGER:
        return waited_ns >= timeouts->linger_ns &&
               enter(tether, tether->rejoin ? PS_TETHER_RESTING : PS_TETHER_CLOSED, now_ns);
    case PS_TETHER_RESTING:
        return waited_ns >= timeouts->resting_ns && enter(tether, PS_TETHER_ACTIVE, now_ns);
    default: return false;
    }
}

int64_t ps_tether_check_ns(const ps_tether_timeouts_t *timeouts)
{
    int64_t check_ns = timeouts->window_limit_ns / PS_TETHER_CHECKS;

    if (check_ns < PS_TETHER_CHECK_LEAST_NS) {
        return PS_TETHER_CHECK_LEAST_NS;
    }
    return check_ns < PS_TETHER_CHECK_MOST_NS ? check_ns : PS_TETHER_CHECK_MOST_NS;
}
