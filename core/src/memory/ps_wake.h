/* SPDX-License-Identifier: Apache-2.0
 * ps_wake.h: wakes sleeping clients. */
#ifndef PS_WAKE_H
#define PS_WAKE_H

#include <stdint.h>

#include "ps_slots.h"

/* Wakes the client in `slot` if one of its threads sleeps. The function executes a store-load fence
 * before its check for a sleeping thread, so the caller needs no fence. Any daemon thread. */
void ps_wake_client(ps_shared_t *shared, int32_t client_slot);
/* Like ps_wake_client, but without the fence. To wake several clients, execute one sequentially
 * consistent fence, then call this function for each client. */
void ps_wake_client_fenced(ps_shared_t *shared, int32_t client_slot);

#endif
