/* SPDX-License-Identifier: Apache-2.0
 * ps_net.h: the network as a table of functions. Sender and receiver send and receive datagrams
 * only through this table. Three networks implement the table: kernel UDP, a wrapper that adds
 * artificial loss, and the simulator (docs/internals.md). */
#ifndef PS_NET_H
#define PS_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* One datagram to send: its bytes, contiguous in memory. */
typedef struct ps_dgram {
    const uint8_t *data;
    uint32_t length; /* bytes of UDP payload, 1..65504 */
} ps_dgram_t;

typedef struct ps_socket ps_socket_t; /* A socket; each implementation of the network (UDP,
                                       * simulator) defines this structure itself. Only one thread
                                       * at a time may use a socket. */

/* Callback of recv: called for each received datagram. If the kernel joined several datagrams into
 * one buffer (GRO), the transport calls the callback once for each datagram. The datagram's bytes
 * are valid during the call and may be unaligned. `from` is the source address; rx_ns is the
 * receive time, on the same clock as the agents' now_ns. */
typedef void (*ps_on_datagram_fn)(void *context, const uint8_t *data, uint32_t length,
                                  const ps_addr_t *from, int64_t rx_ns);

/* Callback of recv_runs: called for each received buffer. The buffer contains datagrams of
 * `segment` bytes back to back; the last datagram may be shorter. If segment == length, the buffer
 * contains one datagram. The other arguments are the same as for ps_on_datagram_fn. */
typedef void (*ps_on_run_fn)(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                             const ps_addr_t *from, int64_t rx_ns);

/* Memory in a log buffer; the transport may receive the next bytes of a stream directly into it. No
 * reader reads this memory. The transport must not change the first 8 bytes of this memory; it may
 * overwrite all other bytes. */
typedef struct ps_direct_range {
    uint8_t *at;
    uint32_t length; /* PS_DIRECT_LEAST to PS_DIRECT_MOST */
} ps_direct_range_t;
enum { PS_DIRECT_LEAST = 4096, PS_DIRECT_MOST = 64 * 1024 };
typedef struct ps_direct {
    /* The transport calls `prepare` before each receive. The callback states the memory into which
     * the transport may receive. If the callback returns false, the transport receives into its own
     * buffer. */
    bool (*prepare)(void *context, ps_direct_range_t *out);
    /* The transport calls `received` after it has received datagrams directly into the log. The
     * first 8 bytes of the first datagram are in first_word, not in the range. The callback decides
     * how many datagrams, counted from the first, stay in the log, and returns the total length of
     * these datagrams. The transport passes the remaining datagrams to the callback `fn` of
     * recv_runs. `received` may overwrite the 8 bytes after the datagrams that stay in the log. If
     * these 8 bytes belong to a received datagram, `received` first copies them to *next_word. */
    uint32_t (*received)(void *context, const ps_direct_range_t *range, uint64_t first_word,
                         uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns,
                         uint64_t *next_word);
} ps_direct_t;

typedef struct ps_net_ops {
    /* Opens and binds a socket as `params` specify. If `params` contain a peer, connects the socket
     * to the peer. If `params` contain a multicast group, joins the group. The function may return
     * PS_E_ADDRESS_IN_USE, PS_E_NO_INTERFACE, PS_E_NO_BUFFER, PS_E_PERMISSION, PS_E_SYSTEM or
     * PS_E_NO_MEMORY. Conductor thread. */
    int (*open)(void *net, const ps_socket_params_t *params, ps_socket_t **out);
    /* Closes the socket. Only the thread that owns the socket may call the function. When no thread
     * owns the socket any more, only the conductor may call the function. */
    void (*close)(ps_socket_t *socket);
    /* Sends up to count datagrams in order to `to` (NULL: the connected peer). Returns the number
     * of datagrams that the kernel accepted (0..count); the caller must send the other datagrams
     * later. For an error other than "try again", returns a negative ps_error_code. Never blocks.
     * The implementation may send datagrams of equal length that are contiguous in memory as one
     * GSO run. */
    int (*send)(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams, int32_t count,
                int64_t now_ns);
    /* Receives up to `limit` waiting datagrams, and calls `fn` for each. Returns the number of
     * received datagrams (>= 0), or a negative ps_error_code. Never blocks. */
    int (*recv)(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                int64_t now_ns);
    /* Returns the socket's descriptor for epoll; -1 in the simulator, whose sockets have no
     * descriptor. */
    int (*fd)(const ps_socket_t *socket);
    /* Stores the address to which the socket is bound, with the port that the kernel chose. */
    void (*local)(const ps_socket_t *socket, ps_addr_t *out);
    /* Replaces the peer of a connected socket, after its host name was resolved again. The
     * conductor must own the socket. */
    int (*reconnect)(ps_socket_t *socket, const ps_addr_t *remote);
    /* Receives like recv, but passes datagrams that the kernel joined (GRO) to the callback in one
     * piece. If `direct` is not NULL, the function may receive directly into a log buffer. A
     * network that implements only recv sets recv_runs to NULL. */
    int (*recv_runs)(ps_socket_t *socket, int32_t limit, ps_on_run_fn fn, const ps_direct_t *direct,
                     void *context, int64_t now_ns);
    /* Enlarges the receive buffer to `bytes` (1..PS_RECV_BUFFER_MAX) as far as the kernel allows;
     * never shrinks it. *got gets the new size, as passed to SO_RCVBUF; a size below `bytes` is no
     * error. PS_E_SYSTEM. Any thread may call fit_recv_buffer while the socket is open. A network
     * whose receive buffer has a fixed size sets fit_recv_buffer to NULL. */
    int (*fit_recv_buffer)(ps_socket_t *socket, int32_t bytes, int32_t *got);
} ps_net_ops_t;
enum { PS_RECV_BUFFER_MAX = 1 << 30 };

typedef struct ps_net {
    const ps_net_ops_t *ops;
    void *state;
    void (*free_state)(void *state);
} ps_net_t;

#endif
