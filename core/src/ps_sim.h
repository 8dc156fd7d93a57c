/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim.h: a simulated network in virtual time.  Hosts with addresses, one directed link between
 * every two of them (delay, jitter, bandwidth, loss), unicast and multicast.  Each host has a
 * ps_net that a driver in INVOKER mode uses as it would use the kernel's UDP.  Everything is a
 * function of the seed and of the calls made: no clock, no system randomness, one thread.
 * This header is also the cffi declaration (plain types and enums only).
 */
#ifndef PS_SIM_H
#define PS_SIM_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_net ps_net_t;
typedef struct ps_simnet ps_simnet_t;

/* One direction between two hosts.  All zero: instant and lossless. */
typedef struct ps_simnet_link {
    int64_t delay_ns;               /* fixed */
    int64_t jitter_ns;              /* added, uniform in [0, jitter_ns]: reorders */
    int64_t bandwidth_bytes_per_s;  /* 0: unlimited */
    int64_t queue_bytes;            /* waiting for the link, 0: unlimited */
    uint32_t loss_ppm;              /* per datagram and receiving host; 1000000: link down */
} ps_simnet_link_t;

typedef struct ps_simnet_stats {
    uint64_t sent;          /* datagrams given to send */
    uint64_t delivered;     /* put into a socket's receive queue (multicast: once a socket) */
    uint64_t lost;          /* by the link */
    uint64_t queue_full;    /* at the link */
    uint64_t buffer_full;   /* at the socket */
    uint64_t unreachable;   /* no such host, or no socket there */
    uint64_t bytes_sent;    /* UDP payload */
} ps_simnet_stats_t;

/* PS_E_NO_MEMORY. */
int ps_simnet_create(uint64_t seed, ps_simnet_t **out);
/* Every ps_net and socket of it must be gone: destroy the drivers first.  NULL is allowed. */
void ps_simnet_destroy(ps_simnet_t *simnet);
/* Returns the host's index, 0, 1, ..., or PS_E_NO_SPACE (64 hosts). */
int32_t ps_simnet_add_host(ps_simnet_t *simnet);
/* Gives a host an address (port ignored): 8 each, PS_E_NO_SPACE; PS_E_ADDRESS_IN_USE. */
int ps_simnet_add_address(ps_simnet_t *simnet, int32_t host, const ps_addr_t *address);
/* Sets the link from host to host; -1 stands for all.  Datagrams under way keep what they had.
 * PS_E_INVALID. */
int ps_simnet_set_link(ps_simnet_t *simnet, int32_t from, int32_t to,
                       const ps_simnet_link_t *link);
/* A network for a driver on that host, which takes it over; the simnet must outlive it.
 * NULL: no memory or no such host. */
ps_net_t *ps_simnet_host_net(ps_simnet_t *simnet, int32_t host);
/* Time of the next arrival, INT64_MAX if nothing is under way. */
int64_t ps_simnet_next_event_ns(const ps_simnet_t *simnet);
/* Moves what arrives at or before now_ns into the sockets' queues.  Returns how many arrivals. */
int32_t ps_simnet_advance(ps_simnet_t *simnet, int64_t now_ns);
/* Hash over (time, from, to, length, bytes, verdict) of everything sent and everything arrived. */
uint64_t ps_simnet_trace_hash(const ps_simnet_t *simnet);
void ps_simnet_statistics(const ps_simnet_t *simnet, ps_simnet_stats_t *out);

#endif
