/* SPDX-License-Identifier: Apache-2.0
 * ps_addr.h: comparing addresses.
 */
#ifndef PS_ADDR_H
#define PS_ADDR_H

#include <stdbool.h>
#include <string.h>

#include "ps_types.h"

/* Returns true if the IP addresses are equal; ignores port and scope_id. */
static inline bool ps_addr_same_ip(const ps_addr_t *a, const ps_addr_t *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, a->family == 6 ? 16 : 4) == 0;
}

/* Returns true if IP address and port are equal; ignores scope_id. An agent calls this function
 * once for each run of consecutive datagrams from the same source. */
static inline bool ps_addr_equal(const ps_addr_t *a, const ps_addr_t *b)
{
    return a->port == b->port && ps_addr_same_ip(a, b);
}

#endif
