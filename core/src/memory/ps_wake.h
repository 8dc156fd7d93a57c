/* SPDX-License-Identifier: Apache-2.0
 * ps_wake.h: wakes sleeping clients. */
#ifndef PS_WAKE_H
#define PS_WAKE_H

#include <stdint.h>

#include "ps_slots.h"

/* Wakes the client in slot if it is parked (store-load fence inside).  Any daemon thread. */
void ps_wake_client(ps_shared_t *shared, int32_t client_slot);
/* Wakes one of several clients: the caller executes one seq_cst fence, then calls this function for
 * each client. */
void ps_wake_client_fenced(ps_shared_t *shared, int32_t client_slot);

#endif
