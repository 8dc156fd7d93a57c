/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_simnet.h: a simulated network in virtual time. The network has hosts with addresses, and
 * transports unicast and multicast datagrams. Between every two hosts, the network has one link in
 * each direction, with delay, jitter, bandwidth and loss. Each host has a ps_net, which a driver in
 * INVOKER mode uses in place of kernel UDP. The behaviour of the network depends only on the seed
 * and on the calls: it uses no clock, no system randomness and only one thread. This header is also
 * the cffi declaration (plain types and enums only). */
#ifndef PS_SIMNET_H
#define PS_SIMNET_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_net ps_net_t;
typedef struct ps_simnet ps_simnet_t;

/* One direction between two hosts.  All zero: instant and lossless. */
typedef struct ps_simnet_link {
    int64_t delay_ns;  /* fixed */
    int64_t jitter_ns; /* Largest random delay, in addition to delay_ns. This delay is uniformly
                                    * distributed in [0, jitter_ns], so datagrams can overtake each
                                    * other. */
    int64_t bandwidth_bytes_per_s; /* 0: unlimited */
    int64_t queue_bytes;           /* Number of bytes that may wait for the link; 0: unlimited. */
    uint32_t loss_ppm;             /* Probability that this link loses a datagram; 1000000: the link
                                    * is down. */
    /* Gilbert-Elliott model of bursts of losses. At each datagram, a link in the good state enters
     * the bad state with the probability burst_enter_ppm. A link in the bad state leaves this state
     * with the probability burst_leave_ppm. The bad state of a link ends after 2 s at the latest.
     * In the bad state, burst_loss_ppm is the probability of loss. */
    uint32_t burst_enter_ppm;
    uint32_t burst_leave_ppm;
    uint32_t burst_loss_ppm;
    uint32_t duplicate_ppm; /* Probability that a datagram arrives twice; each copy has its own
                             * jitter. */
    uint32_t reorder_ppm;   /* delayed by further reorder_ns */
    int64_t reorder_ns;
    uint32_t corrupt_ppm;  /* one bit flipped */
    uint32_t stranger_ppm; /* Probability that a forged copy follows a datagram within 50 ms. The
                            * copy has changed content and another source address. */
    uint8_t no_checksum;   /* 1: a damaged datagram arrives with a flipped bit; 0: the receiving
                            * host drops a damaged datagram because of its UDP checksum */
} ps_simnet_link_t;

typedef struct ps_simnet_stats {
    uint64_t sent;        /* datagrams given to send */
    uint64_t delivered;   /* Number of datagrams put into receive queues; a multicast datagram
                           * counts once for each socket. */
    uint64_t lost;        /* by the link */
    uint64_t queue_full;  /* at the link */
    uint64_t buffer_full; /* at the socket */
    uint64_t unreachable; /* Number of datagrams sent to an unknown host or to a port without a
                           * socket. */
    uint64_t bytes_sent;  /* UDP payload */
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t corrupted;
    uint64_t forged;
    uint64_t refused; /* Number of datagrams that a socket refused; these datagrams do not count as
                       * sent. */
} ps_simnet_stats_t;

/* PS_E_NO_MEMORY. */
int ps_simnet_create(uint64_t seed, ps_simnet_t **out);
/* Before this call, destroy all drivers of the hosts, with the networks and sockets of these
 * drivers. `simnet` may be NULL. */
void ps_simnet_destroy(ps_simnet_t *simnet);
/* Adds a host. Returns the index of the host (0, 1, ...), or PS_E_NO_SPACE if there are 64
 * hosts. */
int32_t ps_simnet_add_host(ps_simnet_t *simnet);
/* Adds an address to a host (the port is ignored). PS_E_NO_SPACE: the host already has 8 addresses.
 * PS_E_ADDRESS_IN_USE. */
int ps_simnet_add_address(ps_simnet_t *simnet, int32_t host, const ps_addr_t *address);
/* Sets the properties of the link from one host to another; -1 means all hosts. The change does not
 * concern datagrams that are already in flight. PS_E_INVALID. */
int ps_simnet_set_link(ps_simnet_t *simnet, int32_t from, int32_t to, const ps_simnet_link_t *link);
/* Drops the datagram with this number (0, 1, ...) on the link between two hosts. PS_E_INVALID,
 * PS_E_NO_MEMORY. */
int ps_simnet_drop(ps_simnet_t *simnet, int32_t from, int32_t to, uint64_t number);
/* Makes the sockets of a host accept no datagram until until_ns. After until_ns, a send call
 * accepts all its datagrams or, with the probability short_ppm, only the first few or none.
 * PS_E_INVALID. */
int ps_simnet_stuff(ps_simnet_t *simnet, int32_t host, int64_t until_ns, uint32_t short_ppm);
/* Makes a host one that does not know trailers, as Aeron's: SETUPs and status messages arrive there
 * without their trailer. PS_E_INVALID. */
int ps_simnet_make_plain(ps_simnet_t *simnet, int32_t host);
/* Sends a forged datagram from a host. The source address `from` may have any port. `length` is 1
 * to 65504 bytes. PS_E_INVALID, PS_E_NO_MEMORY. */
int ps_simnet_inject(ps_simnet_t *simnet, int32_t host, const ps_addr_t *from, const ps_addr_t *to,
                     const uint8_t *data, uint32_t length, int64_t now_ns);
/* Makes every link deliver datagrams to or from the UDP port `port` after delay_ns, without faults.
 * Port 0: no such port. PS_E_INVALID. */
int ps_simnet_calm(ps_simnet_t *simnet, int32_t port, int64_t delay_ns);
/* Returns the ps_net through which a driver on the host sends and receives datagrams. The driver
 * becomes the owner of the ps_net. Destroy the driver before the simulated network (simnet).
 * Returns NULL if there is no memory or no such host. */
ps_net_t *ps_simnet_host_net(ps_simnet_t *simnet, int32_t host);
/* Returns the time of the next arrival, INT64_MAX if no datagram is in flight. */
int64_t ps_simnet_next_event_ns(const ps_simnet_t *simnet);
/* Moves datagrams that arrive at or before now_ns to the sockets' queues. Returns the number of
 * moved datagrams. */
int32_t ps_simnet_advance(ps_simnet_t *simnet, int64_t now_ns);
/* Returns a hash over all sent and all arrived datagrams, each with its time, addresses, length,
 * bytes and verdict. */
uint64_t ps_simnet_trace_hash(const ps_simnet_t *simnet);
void ps_simnet_statistics(const ps_simnet_t *simnet, ps_simnet_stats_t *out);

#endif
