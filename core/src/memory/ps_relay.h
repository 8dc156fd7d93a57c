/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_relay.h: finds the application that blocks a relay of this host. A relay publishes the
 * messages that it receives. In the slot of its subscriber, the relay states the publication on
 * which it publishes. If a relay's publication is blocked, the culprit of that publication also
 * blocks the stream that the relay reads (docs/relay.md). */
#ifndef PS_RELAY_H
#define PS_RELAY_H

#include <stdbool.h>

#include "ps_shared.h"

/* The application that blocks a relay, directly or through further relays. */
typedef struct ps_beyond {
    int64_t client;        /* Client id of the application at its own daemon; never 0. */
    int64_t backlog_bytes; /* Number of bytes that the application has not read; 0: unknown. */
    char name[33];
    char host[33]; /* "": this host */
} ps_beyond_t;

/* Returns true and sets *out if subscriber_slot belongs to a relay and an application blocks the
 * relay's publication. The relay is another process, so the function checks the publication number
 * that the relay wrote into its subscriber slot. If the sender changes the culprit's description
 * during the copy, the function repeats the copy, with at most 8 attempts in all. */
bool ps_relay_beyond(const ps_shared_t *shared, int32_t subscriber_slot, ps_beyond_t *out);

#endif
