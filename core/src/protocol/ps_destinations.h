/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_destinations.h: where a multi-destination endpoint sends (aeron-interop.md section 4.7).
 * Dynamic: learnt from status messages, forgotten after silence.  Manual: told by the conductor,
 * bound to a receiver id by its status messages.
 */
#ifndef PS_DESTINATIONS_H
#define PS_DESTINATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_net.h"

enum { PS_DESTINATIONS_MAX = 64 };

typedef struct ps_destination {
    int64_t id; /* conductor's (manual), -1 dynamic */
    ps_addr_t address;
    int64_t receiver_id; /* valid when bound */
    bool bound;
    int64_t heard_ns;    /* last status message, or when added */
    int64_t reported_ns; /* last report of silence */
} ps_destination_t;

typedef struct ps_destinations {
    bool dynamic;
    int32_t count;
    int32_t start; /* rotates, so that nobody is always first */
    ps_destination_t items[PS_DESTINATIONS_MAX];
} ps_destinations_t;

bool ps_addr_equal(const ps_addr_t *a, const ps_addr_t *b);
/* All: sender thread, O(count). */
/* A valid status message from `from`.  Returns true when a destination was added. */
bool ps_destinations_on_sm(ps_destinations_t *list, int64_t receiver_id, const ps_addr_t *from,
                           int64_t now_ns);
bool ps_destinations_add(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns);
bool ps_destinations_remove(ps_destinations_t *list, int64_t id);
bool ps_destinations_set(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns);
/* Removes one dynamic destination silent since heard_ns <= now - timeout.  True: *gone filled. */
bool ps_destinations_expire(ps_destinations_t *list, int64_t timeout_ns, int64_t now_ns,
                            ps_addr_t *gone);
/* Earliest time expire or a report of silence can be due, INT64_MAX if none. */
int64_t ps_destinations_next_ns(const ps_destinations_t *list, int64_t timeout_ns);
/* Sends the batch to every destination.  Returns how many datagrams all of them took; errors of one
 * destination count into *errors and hold nobody else (loss recovery repairs them). */
int32_t ps_destinations_send(ps_destinations_t *list, const ps_net_ops_t *ops, ps_socket_t *socket,
                             const ps_dgram_t *dgrams, int32_t count, int64_t now_ns,
                             int32_t *errors);

#endif
