/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_relay.h: finds the application that blocks a relay of this host. A relay names, in the slot of
 * its subscriber, the publication on which it publishes. If a relay's publication is blocked, the
 * culprit of that publication also blocks the stream that the relay reads (docs/relay.md). */
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
 * relay's publication. The relay's process wrote the number of the publication into the slot, so
 * this function checks that number. The sender may change the culprit's description during the
 * copy; the function makes at most 8 attempts. */
bool ps_relay_beyond(const ps_shared_t *shared, int32_t subscriber_slot, ps_beyond_t *out);

#endif
