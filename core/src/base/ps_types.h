/* SPDX-License-Identifier: Apache-2.0
 * ps_types.h: plain types that cross from the control plane (through cffi) into the data plane.
 */
#ifndef PS_TYPES_H
#define PS_TYPES_H

#include <stdint.h>

/* An IP address and port.  family 0 = unset.  ip: network order, IPv4 in the first 4 bytes. */
typedef struct ps_addr {
    uint16_t family;   /* 0, 4 or 6 */
    uint16_t port;     /* host order */
    uint32_t scope_id; /* IPv6 link-local interface index, else 0 */
    uint8_t ip[16];
} ps_addr_t;

/* Relays that a stream has passed, in this order; the first is next to the publisher. Their ids are
 * random. */
enum { PS_RELAYS_MAX = 8 };
typedef struct ps_relay_path {
    uint64_t ids[PS_RELAYS_MAX]; /* 0 after the last */
    int32_t count;
} ps_relay_path_t;

/* Which agent a socket serves; the driver states it when it opens one. */
enum ps_socket_role { PS_SOCKET_ANY = 0, PS_SOCKET_SENDER = 1, PS_SOCKET_RECEIVER = 2 };

typedef struct ps_socket_params {
    ps_addr_t bind;           /* local address; port 0: the kernel chooses, or
                               * port_low..port_high */
    ps_addr_t connect;        /* family 0: unconnected */
    ps_addr_t group;          /* multicast group to join, family 0: none */
    ps_addr_t interface_addr; /* IPv4 interface address for multicast, family 0: default */
    uint32_t interface_index; /* interface index for joins and outgoing multicast; 0: default */
    int32_t multicast_ttl;    /* 0: OS default */
    int32_t sndbuf_bytes;     /* 0: OS default */
    int32_t rcvbuf_bytes;     /* 0: OS default */
    uint16_t port_low;        /* range for port 0; 0: kernel chooses */
    uint16_t port_high;
    uint8_t reuse;      /* SO_REUSEADDR: several sockets of this host may join a group
                         * (multicast) */
    uint8_t timestamps; /* SO_TIMESTAMPNS */
    uint8_t gso;        /* 1: try UDP_SEGMENT on sends */
    uint8_t gro;        /* 1: try UDP_GRO on receives */
    uint8_t role;       /* ps_socket_role */
} ps_socket_params_t;

/* How a thread of the driver waits for work. */
enum ps_idle { PS_IDLE_PARK = 0, PS_IDLE_BACKOFF = 1, PS_IDLE_YIELD = 2, PS_IDLE_SPIN = 3 };

#endif
