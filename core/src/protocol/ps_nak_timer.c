/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_timer.c: NAK timing.
 *
 * In a group many receivers miss the same datagram. Each draws a delay from a distribution whose
 * mass lies near its end. With high probability one receiver then sends a NAK early, and its
 * retransmit reaches the others before their timers expire (RFC 5401 section 3.2.3):
 *
 *     delay = (max / lambda) * ln(1 + u * (e^lambda - 1)),   lambda = ln(group) + 1
 *
 * e^lambda is e * group, and the quotient of two logarithms does not depend on their base; so the
 * whole is done with integers and base 2, and one seed gives one trace on every machine.
 */
#include "ps_nak_timer.h"

#include "ps_assert.h"

enum {
    PS_NAK_GROUP_MAX = 65536,
    PS_LOG_FRACTION_BITS = 24,
    PS_NAK_DOUBLINGS_MAX = 10,
    PS_NAK_ANSWER_DOUBLINGS = 4
};
#define PS_NAK_BACKOFF_MAX_NS INT64_C(100000000)
#define PS_NAK_ANSWER_MAX_NS  INT64_C(1000000000)
#define PS_E_Q32              UINT64_C(11674931555) /* e * 2^32, rounded */
#define PS_ONE_Q32            (UINT64_C(1) << 32)

/* log2(x / 2^32) in units of 2^-24, for x >= 2^32.  One squaring a bit. */
static uint64_t log2_q24(uint64_t x)
{
    int32_t whole = 63 - __builtin_clzll(x);
    uint64_t result = (uint64_t)(whole - 32) << PS_LOG_FRACTION_BITS;
    uint64_t m = whole > 31 ? x >> (whole - 31) : x << (31 - whole); /* in [2^31, 2^32) */

    PS_ASSERT(whole >= 32);
    for (int32_t bit = PS_LOG_FRACTION_BITS - 1; bit >= 0; bit--) {
        m = (m * m) >> 31;
        if (m >= PS_ONE_Q32) {
            m >>= 1;
            result |= UINT64_C(1) << bit;
        }
    }
    return result;
}

int64_t ps_nak_backoff_ns(int64_t max_backoff_ns, int64_t group_size, uint32_t u)
{
    uint64_t group = group_size < 1 ? 1 : (uint64_t)group_size;
    uint64_t top;
    uint64_t x;

    if (max_backoff_ns <= 0) {
        return 0;
    }
    if (group > PS_NAK_GROUP_MAX) {
        group = PS_NAK_GROUP_MAX;
    }
    top = PS_E_Q32 * group;
    x = PS_ONE_Q32 + (uint64_t)(((__uint128_t)u * (top - PS_ONE_Q32)) >> 32);
    return (int64_t)(((__uint128_t)(uint64_t)max_backoff_ns * log2_q24(x)) / log2_q24(top));
}

int64_t ps_nak_first_ns(const ps_nak_policy_t *policy, ps_random_t *random)
{
    if (policy->group) {
        uint32_t u = (uint32_t)(ps_random_next(random) >> 32);

        return ps_nak_backoff_ns(policy->max_backoff_ns, policy->group_size, u);
    }
    return policy->delay_ns;
}

int64_t ps_nak_retry_ns(const ps_nak_policy_t *policy, int64_t answer_ns, int32_t requested,
                        ps_random_t *random)
{
    int64_t wait = policy->group ? ps_nak_first_ns(policy, random) : policy->retry_ns;

    if (answer_ns == 0) {
        int32_t doublings = requested < PS_NAK_DOUBLINGS_MAX ? requested : PS_NAK_DOUBLINGS_MAX;

        if (wait < PS_NAK_BACKOFF_MAX_NS) {
            wait = wait << doublings;
            wait = wait < PS_NAK_BACKOFF_MAX_NS ? wait : PS_NAK_BACKOFF_MAX_NS;
        }
        return wait;
    }
    if (requested > PS_NAK_PATIENCE) {
        int32_t doublings = requested - PS_NAK_PATIENCE;
        int64_t most = answer_ns > PS_NAK_ANSWER_MAX_NS ? answer_ns : PS_NAK_ANSWER_MAX_NS;

        doublings = doublings < PS_NAK_ANSWER_DOUBLINGS ? doublings : PS_NAK_ANSWER_DOUBLINGS;
        answer_ns = answer_ns << doublings;
        answer_ns = answer_ns < most ? answer_ns : most;
        if (wait < PS_NAK_BACKOFF_MAX_NS) { /* on a short path the wait is the longer part */
            wait = wait << doublings;
            wait = wait < PS_NAK_BACKOFF_MAX_NS ? wait : PS_NAK_BACKOFF_MAX_NS;
        }
    }
    if (policy->group) {
        return answer_ns + wait; /* drawn again: receivers that still miss it must not send NAKs
                                  * together */
    }
    return wait > answer_ns ? wait : answer_ns;
}
