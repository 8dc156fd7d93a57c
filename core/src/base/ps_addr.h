/* SPDX-License-Identifier: Apache-2.0
 * ps_addr.h: comparing addresses.
 */
#ifndef PS_ADDR_H
#define PS_ADDR_H

#include <stdbool.h>
#include <string.h>

#include "ps_types.h"

/* Returns true if IP address and port are equal; ignores scope_id. Called once for each run of
 * datagrams. */
static inline bool ps_addr_equal(const ps_addr_t *a, const ps_addr_t *b)
{
    return a->family == b->family && a->port == b->port &&
           memcmp(a->ip, b->ip, a->family == 6 ? 16 : 4) == 0;
}

#endif
