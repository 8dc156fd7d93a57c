/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_net_udp.h: implements ps_net.h with kernel UDP; private to ps_net_udp_*.c and their tests. */
#ifndef PS_NET_UDP_H
#define PS_NET_UDP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "ps_networks.h"
#include "ps_net.h"

enum {
    PS_UDP_RECV_BATCH = 16,        /* buffers of a recvmmsg */
    PS_UDP_RECV_BYTES = 64 * 1024, /* Size of each receive buffer, large enough for any datagram and
                                    * for a whole GRO run. */
    PS_UDP_SEND_BATCH = 32,        /* messages of a sendmmsg */
    PS_UDP_SEND_PIECES = 256,      /* iovecs of a sendmmsg */
    PS_UDP_GSO_SEGMENTS = 64,
    PS_UDP_GSO_BYTES = 65000,
    PS_UDP_CONTROL_BYTES = 64,
    PS_ADDR_TEXT = 80
};

/* A UDP socket. The open call allocates the arrays for the system calls. Only one thread at a time
 * may use a socket. */
typedef struct ps_udp_socket {
    int fd;
    int family; /* AF_INET or AF_INET6 */
    bool gso;   /* until the kernel refuses it */
    bool gro;
    bool timestamps;
    ps_addr_t local;
    /* sending */
    struct mmsghdr out[PS_UDP_SEND_BATCH];
    struct iovec pieces[PS_UDP_SEND_PIECES];
    int32_t run[PS_UDP_SEND_BATCH]; /* datagrams in each message */
    uint64_t out_control[PS_UDP_SEND_BATCH][PS_UDP_CONTROL_BYTES / 8];
    /* receiving */
    uint8_t direct_header[32]; /* Buffer for the first 32 bytes of received datagrams. The system
                                * call writes the other bytes directly into a log. */
    uint8_t *buffers;          /* PS_UDP_RECV_BATCH x PS_UDP_RECV_BYTES */
    struct mmsghdr in[PS_UDP_RECV_BATCH];
    struct iovec in_piece[PS_UDP_RECV_BATCH];
    struct sockaddr_storage in_from[PS_UDP_RECV_BATCH];
    uint64_t in_control[PS_UDP_RECV_BATCH][PS_UDP_CONTROL_BYTES / 8];
} ps_udp_socket_t;

/* ps_net_ops.send, .recv and .recv_runs. */
int ps_udp_send(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams, int32_t count,
                int64_t now_ns);
int ps_udp_recv(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                int64_t now_ns);
int ps_udp_recv_runs(ps_socket_t *socket, int32_t limit, ps_on_run_fn fn, const ps_direct_t *direct,
                     void *context, int64_t now_ns);
/* Convert addresses. ps_udp_to_sockaddr returns the length of the address in *out; 0 if no address
 * is set (family 0). */
socklen_t ps_udp_to_sockaddr(const ps_addr_t *addr, struct sockaddr_storage *out);
void ps_udp_from_sockaddr(const struct sockaddr_storage *from, ps_addr_t *out);
/* Writes "1.2.3.4:5" or "[::1]:5" into text (PS_ADDR_TEXT bytes); returns text. */
const char *ps_addr_text(const ps_addr_t *addr, char *text);

#endif
