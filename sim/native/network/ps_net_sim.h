/* SPDX-License-Identifier: Apache-2.0
 * ps_net_sim.h: declarations that the files of the simulated network share: ps_net_sim.c (hosts),
 * ps_net_sim_socket.c (sockets), ps_net_sim_route.c (the destinations of a datagram),
 * ps_net_sim_link.c (loss and delay on a link), ps_net_sim_queue.c (arrivals, trace).
 */
#ifndef PS_NET_SIM_H
#define PS_NET_SIM_H

#include <stdbool.h>
#include <string.h>

#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_simnet.h"

enum { PS_SIM_MAX_HOSTS = 64, PS_SIM_MAX_ADDRESSES = 8, PS_SIM_MAX_DATAGRAM_BYTES = 65504 };

enum ps_sim_verdict {
    PS_SIM_SENT = 1,
    PS_SIM_LOST = 2,
    PS_SIM_QUEUE_FULL = 3,
    PS_SIM_UNREACHABLE = 4,
    PS_SIM_DELIVERED = 5,
    PS_SIM_BUFFER_FULL = 6,
    PS_SIM_DUPLICATED = 7,
    PS_SIM_CORRUPTED = 8
};

typedef struct ps_sim_packet {
    int32_t references; /* Number of arrival events and socket queues that refer to the datagram. */
    uint32_t length;
    ps_addr_t from;
    ps_addr_t to;
    uint8_t data[];
} ps_sim_packet_t;

typedef struct ps_sim_arrival {
    int64_t time_ns;
    uint64_t sequence;
    int32_t host;
    ps_sim_packet_t *packet;
} ps_sim_arrival_t;

typedef struct ps_sim_queued {
    struct ps_sim_queued *next;
    ps_sim_packet_t *packet;
    int64_t rx_ns;
} ps_sim_queued_t;

typedef struct ps_sim_host ps_sim_host_t;

/* An observer of the network: functions that the network calls. `role` is the role of the socket;
 * PS_SOCKET_ANY: the socket does not belong to a driver. */
typedef struct ps_sim_observer {
    /* The network calls `sent` when a datagram has left a host. It calls `refused` when a socket
     * did not accept datagrams. */
    void (*sent)(void *context, int32_t host, enum ps_socket_role role,
                 const ps_sim_packet_t *packet, int64_t now_ns);
    void (*refused)(void *context, int32_t host, const ps_dgram_t *dgrams, int32_t count,
                    int64_t now_ns);
    /* The network calls `arrived` when a datagram has entered the queue of a socket. It calls
     * `read` before the driver reads a datagram. */
    void (*arrived)(void *context, int32_t host, const ps_sim_packet_t *packet);
    void (*read)(void *context, int32_t host, enum ps_socket_role role,
                 const ps_sim_packet_t *packet, int64_t rx_ns, int64_t now_ns);
    /* Returns true if one receive call may return this datagram joined with the next datagrams of
     * its stream, as with the kernel's GRO. */
    bool (*may_join)(void *context, int32_t host, const ps_sim_packet_t *packet);
    void (*free)(void *context);
} ps_sim_observer_t;

struct ps_socket {
    ps_socket_t *next; /* next socket of the same host, in the order in which the sockets were
                        * opened */
    ps_sim_host_t *host;
    ps_socket_params_t params;
    ps_addr_t local;
    ps_sim_queued_t *head;
    ps_sim_queued_t *tail;
    int64_t queued_bytes;
    int64_t limit_bytes;
};

struct ps_sim_host {
    ps_simnet_t *simnet;
    ps_socket_t *sockets;
    int32_t index;
    int32_t address_count;
    ps_addr_t addresses[PS_SIM_MAX_ADDRESSES];
    uint16_t next_port;
    bool touched;          /* True if a datagram has arrived since the world last checked this
                            * host. */
    int64_t full_until_ns; /* Time until which the sockets of the host accept no datagram. */
    uint32_t short_ppm;    /* Probability, in ppm, that a send call accepts only a part of its
                            * datagrams. */
    bool plain;            /* Datagrams arrive without trailers (ps_simnet.h). */
};

typedef struct ps_sim_link_state {
    ps_simnet_link_t params;
    int64_t busy_until_ns;
    uint64_t datagrams; /* put on it so far */
    uint64_t *drops;    /* Numbers of the datagrams that the link drops, in any order. The link
                         * numbers its datagrams from 0. */
    int32_t drop_count;
    bool bad; /* Gilbert-Elliott */
    int64_t bad_since_ns;
} ps_sim_link_state_t;

struct ps_simnet {
    ps_random_t random;
    uint64_t hash;
    uint64_t sequence;
    ps_simnet_stats_t stats;
    int64_t calm_delay_ns;
    uint16_t calm_port; /* Datagrams to or from this port pass without faults (ps_simnet.h); 0: no
                         * such port. */
    int32_t host_count;
    ps_sim_host_t hosts[PS_SIM_MAX_HOSTS];
    ps_sim_link_state_t links[PS_SIM_MAX_HOSTS][PS_SIM_MAX_HOSTS]; /* [from][to] */
    ps_sim_arrival_t *heap;
    size_t heap_length;
    size_t heap_capacity;
    bool injected;                     /* a stranger has sent something */
    const ps_sim_observer_t *observer; /* NULL: none */
    void *observer_context;
};

/* Returns a forged copy of the datagram `packet`. Returns NULL if the simulator forges no copy of
 * this datagram (ps_net_sim_forge.c). */
ps_sim_packet_t *ps_sim_forge(ps_simnet_t *simnet, const ps_sim_packet_t *packet);
/* A forged copy of data has these bits of its first byte changed. */
#define PS_SIM_FORGED_BITS 0x55
bool ps_sim_is_forged(const ps_sim_packet_t *packet);
/* Returns true if the address lies in the range that the simulator uses only as the source of
 * forged datagrams. */
bool ps_sim_is_stranger(const ps_addr_t *address);

/* Addresses. */
static inline size_t ps_sim_ip_length(const ps_addr_t *address)
{
    return address->family == 4 ? 4u : 16u;
}

static inline bool ps_sim_same_ip(const ps_addr_t *a, const ps_addr_t *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, ps_sim_ip_length(a)) == 0;
}

static inline bool ps_sim_is_any(const ps_addr_t *address)
{
    static const uint8_t zero[16];
    return address->family == 0 || memcmp(address->ip, zero, ps_sim_ip_length(address)) == 0;
}

static inline bool ps_sim_is_multicast(const ps_addr_t *address)
{
    return address->family == 4 ? (address->ip[0] & 0xf0u) == 0xe0u : address->ip[0] == 0xffu;
}

static inline bool ps_sim_is_loopback(const ps_addr_t *address)
{
    static const uint8_t one[16] = { [15] = 1 };
    return address->family == 4 ? address->ip[0] == 127u : memcmp(address->ip, one, 16) == 0;
}

static inline bool ps_sim_host_has(const ps_sim_host_t *host, const ps_addr_t *address)
{
    if (ps_sim_is_loopback(address)) {
        return true;
    }
    for (int32_t i = 0; i < host->address_count; i++) {
        if (ps_sim_same_ip(&host->addresses[i], address)) {
            return true;
        }
    }
    return false;
}

/* Adds the verdict on a datagram (sent, lost, delivered and so on) to the trace hash. If the
 * verdict is PS_SIM_SENT, adds the bytes of the datagram, too. */
void ps_sim_trace(ps_simnet_t *simnet, int64_t time_ns, const ps_sim_packet_t *packet, int32_t host,
                  enum ps_sim_verdict verdict);
/* Drops one reference. */
void ps_sim_release(ps_sim_packet_t *packet);
/* Sends a datagram to every host to which it is addressed. PS_E_NO_MEMORY. */
int ps_sim_route(ps_sim_host_t *from, ps_sim_packet_t *packet, int64_t now_ns);
/* Puts a datagram on the link to one host. The link may lose, delay, duplicate or damage the
 * datagram. PS_E_NO_MEMORY. */
int ps_sim_put_on_link(ps_sim_host_t *from, ps_sim_host_t *to, ps_sim_packet_t *packet,
                       int64_t now_ns);
/* Adds an arrival.  Takes a reference.  PS_E_NO_MEMORY. */
int ps_sim_schedule(ps_simnet_t *simnet, int64_t time_ns, int32_t host, ps_sim_packet_t *packet);
/* Takes the next arrival from the heap. The heap must not be empty. The caller then owns the
 * arrival's reference to the datagram. */
ps_sim_arrival_t ps_sim_next_arrival(ps_simnet_t *simnet);
/* Delivers an arrived datagram to the sockets of its host. */
void ps_sim_arrive(ps_sim_host_t *host, ps_sim_packet_t *packet, int64_t time_ns);
/* Returns true if a socket of the host is a member of the datagram's group. */
bool ps_sim_has_member(const ps_sim_host_t *host, const ps_sim_packet_t *packet);
/* The host's table of operations. */
extern const ps_net_ops_t PS_SIM_OPS;

#endif
