/* SPDX-License-Identifier: Apache-2.0
 * ps_types.h: plain types that cross from the control plane (through cffi) into the data plane.
 */
#ifndef PS_TYPES_H
#define PS_TYPES_H

#include <stdint.h>

/* An IP address and port. If the field `family` is 0, the address is not set. The field `ip` is in
 * network byte order; an IPv4 address occupies its first 4 bytes. */
typedef struct ps_addr {
    uint16_t family;   /* 0, 4 or 6 */
    uint16_t port;     /* host order */
    uint32_t scope_id; /* Interface index of an IPv6 link-local address; 0 for other addresses. */
    uint8_t ip[16];
} ps_addr_t;

/* Largest weight that a publication can have when several publications share a pool of credits. */
enum { PS_CREDIT_WEIGHT_MAX = 1000 };

/* Range of the priority that a channel may state. PS_PRIORITY_MAX is also the largest bonus for
 * waiting time (aging). */
enum { PS_PRIORITY_MAX = 1000, PS_PRIORITY_MIN = -1000 };

/* The ids of the relays that a stream has passed, beginning with the relay next to the publisher.
 * The ids are random. */
enum { PS_RELAYS_MAX = 8 };

typedef struct ps_relay_path {
    uint64_t ids[PS_RELAYS_MAX]; /* 0 after the last */
    int32_t count;
} ps_relay_path_t;

/* The agent for which the driver opens a socket. */
enum ps_socket_role { PS_SOCKET_ANY = 0, PS_SOCKET_SENDER = 1, PS_SOCKET_RECEIVER = 2 };

typedef struct ps_socket_params {
    ps_addr_t bind;           /* Local address to bind. If the port of this address is 0, the
                               * transport takes a port from port_low to port_high, or the kernel
                               * chooses one. */
    ps_addr_t connect;        /* family 0: unconnected */
    ps_addr_t group;          /* Multicast group that the socket joins; family 0: none. */
    ps_addr_t interface_addr; /* Address of the interface for IPv4 multicast; family 0: the system's
                               * default. */
    uint32_t interface_index; /* Index of the interface on which the socket joins a multicast group
                               * and sends multicast; 0: the system's default. */
    int32_t multicast_ttl;    /* 0: OS default */
    int32_t sndbuf_bytes;     /* 0: OS default */
    int32_t rcvbuf_bytes;     /* 0: OS default */
    uint16_t port_low;        /* If `bind` has port 0, the transport takes a port from port_low to
                               * port_high. If port_low is also 0, the kernel chooses the port. */
    uint16_t port_high;
    uint8_t reuse;      /* 1: set SO_REUSEADDR, so that several sockets of this host can bind a
                         * multicast group's port. */
    uint8_t timestamps; /* SO_TIMESTAMPNS */
    uint8_t gso;        /* 1: try UDP_SEGMENT on sends */
    uint8_t gro;        /* 1: try UDP_GRO on receives */
    uint8_t role;       /* ps_socket_role */
} ps_socket_params_t;

/* How a thread of the driver waits for work. */
enum ps_idle { PS_IDLE_PARK = 0, PS_IDLE_BACKOFF = 1, PS_IDLE_YIELD = 2, PS_IDLE_SPIN = 3 };

#endif
