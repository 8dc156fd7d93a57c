/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_command.h: an order of the conductor to an agent, as it lies in the agent's ring.
 */
#ifndef PS_COMMAND_H
#define PS_COMMAND_H

#include "ps_driver_params.h"
#include "ps_types.h"

/* A command from the conductor.  Small values are inline; `object` points to what is handed over;
 * `address` and `text` serve the few that need them.  Types are the agent's own enum. */
typedef struct ps_command {
    int32_t type;
    int32_t i;
    void *object;
    void *other;
    int64_t a;
    int64_t b;
    ps_addr_t address;
    union {
        ps_subscriber_params_t subscriber;
        char text[128];
    } u;
} ps_command_t;

#endif
