/* SPDX-License-Identifier: Apache-2.0
 *
 * memnet.h: a transport in memory for tests of one agent.  What the agent sends is kept in order
 * for the test to take; what the test injects is what the agent receives.  No clock, one thread.
 */
#ifndef PS_MEMNET_H
#define PS_MEMNET_H

#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"

typedef struct memnet memnet_t;

typedef struct memnet_dgram {
    ps_addr_t to;
    ps_addr_t from; /* bound address of the sending socket */
    uint32_t length;
    uint8_t data[65536];
} memnet_dgram_t;

memnet_t *memnet_create(void);
void memnet_destroy(memnet_t *memnet); /* after the driver */
/* A table for a driver, which takes it over. */
ps_net_t *memnet_net(memnet_t *memnet);
/* Of a driver that is stepped, on this transport; seed, ids and the rest are the caller's. */
ps_driver_params_t memnet_driver_params(memnet_t *memnet, ps_cnc_t *cnc, ps_shared_t *shared);
/* Oldest datagram that was sent and not taken yet: 1 = *out filled. */
int memnet_take(memnet_t *memnet, memnet_dgram_t *out);
int32_t memnet_pending(const memnet_t *memnet);
void memnet_discard(memnet_t *memnet);
/* Puts a datagram into the queue of the socket bound to `to` (by port).  0: no such socket. */
int memnet_inject(memnet_t *memnet, const ps_addr_t *to, const ps_addr_t *from, const void *data,
                  uint32_t length);
/* Sockets take only so many more datagrams; -1: any number. */
void memnet_room(memnet_t *memnet, int32_t datagrams);
/* 0: received datagrams are not joined; 1 (at first): as GRO does. */
void memnet_join(memnet_t *memnet, int32_t joins);
/* Buffers that were received into a log, in part at least. */
int32_t memnet_direct(const memnet_t *memnet);
/* Calls of send so far. */
int32_t memnet_sends(const memnet_t *memnet);
ps_addr_t memnet_addr(uint8_t last, uint16_t port); /* 10.0.0.last */

#endif
