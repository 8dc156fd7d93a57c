/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_relay.h: looks through a relay of this host. A relay names, in the slot of its subscriber, the
 * publication that it feeds. If that publication is held, its culprit holds the relay's source too
 * (docs/relay.md). */
#ifndef PS_RELAY_H
#define PS_RELAY_H

#include <stdbool.h>

#include "ps_shared.h"

/* The application behind a relay, perhaps behind further relays. */
typedef struct ps_beyond {
    int64_t client;        /* its id at its daemon, never 0 */
    int64_t backlog_bytes; /* bytes that it has not read; 0 unknown */
    char name[33];
    char host[33]; /* "": this host */
} ps_beyond_t;

/* Returns true and sets *out if subscriber_slot belongs to a relay whose publication is held by an
 * application. The slot's value is the relay's own and is checked. Bound: 8 copies of a holder. */
bool ps_relay_beyond(const ps_shared_t *shared, int32_t subscriber_slot, ps_beyond_t *out);

#endif
