/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_relay.h: finds the culprit behind a relay of this host. A relay names, in the slot of its
 * subscriber, the publication on which it publishes. If this publication is blocked, its culprit
 * also blocks the relay's source (docs/relay.md). */
#ifndef PS_RELAY_H
#define PS_RELAY_H

#include <stdbool.h>

#include "ps_shared.h"

/* The application that blocks a relay, perhaps through further relays. */
typedef struct ps_beyond {
    int64_t client;        /* id of the application at its daemon, never 0 */
    int64_t backlog_bytes; /* bytes that the application has not read; 0 unknown */
    char name[33];
    char host[33]; /* "": this host */
} ps_beyond_t;

/* If subscriber_slot belongs to a relay whose publication an application blocks, sets *out and
 * returns true. The relay writes the value in the slot, so this function checks it. Bound: 8
 * attempts to copy the ps_holder_t of a slot, which the sender may change meanwhile. */
bool ps_relay_beyond(const ps_shared_t *shared, int32_t subscriber_slot, ps_beyond_t *out);

#endif
