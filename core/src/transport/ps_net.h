/* SPDX-License-Identifier: Apache-2.0
 * ps_net.h: the transport seam.  Sender and receiver state machines see datagrams only through this
 * table; kernel UDP, the impairing wrapper and the simulator implement it (docs/internals.md).
 */
#ifndef PS_NET_H
#define PS_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* One datagram to send: a run of header-and-payload bytes that is contiguous in memory. */
typedef struct ps_dgram {
    const uint8_t *data;
    uint32_t length; /* bytes of UDP payload, 1..65504 */
} ps_dgram_t;

typedef struct ps_socket ps_socket_t; /* implementation's own; one writer thread */

/* Called for each received datagram (a GRO buffer is split before).  data is valid during the call,
 * 8-byte aligned is NOT promised.  from: source address.  rx_ns: receive time, same clock as
 * now. */
typedef void (*ps_on_datagram_fn)(void *context, const uint8_t *data, uint32_t length,
                                  const ps_addr_t *from, int64_t rx_ns);

/* Called for each received buffer: datagrams of `segment` bytes, back to back, the last of them
 * perhaps shorter (segment == length: only one).  Otherwise as ps_on_datagram_fn. */
typedef void (*ps_on_run_fn)(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                             const ps_addr_t *from, int64_t rx_ns);

/* Memory into which the next bytes of a stream may be received at once. No reader reaches it; its
 * first 8 bytes must stay as they are, all others may become anything. */
typedef struct ps_direct_range {
    uint8_t *at;
    uint32_t length; /* PS_DIRECT_LEAST to PS_DIRECT_MOST */
} ps_direct_range_t;
enum { PS_DIRECT_LEAST = 4096, PS_DIRECT_MOST = 64 * 1024 };
typedef struct ps_direct {
    /* Before each receive: false = into a buffer of the transport's. */
    bool (*prepare)(void *context, ps_direct_range_t *out);
    /* Datagrams lie in the range, but for their first 8 bytes, which are first_word.  Returns the
     * bytes that may stay: whole datagrams from the first on; the others are handed out by fn.
     * The 8 bytes behind what stays may be overwritten: *next_word has them, if anything stays and
     * the range goes on there. */
    uint32_t (*received)(void *context, const ps_direct_range_t *range, uint64_t first_word,
                         uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns,
                         uint64_t *next_word);
} ps_direct_t;

typedef struct ps_net_ops {
    /* Opens and binds (and connects, joins) as params say.  PS_E_ADDRESS_IN_USE, PS_E_NO_INTERFACE,
     * PS_E_NO_BUFFER, PS_E_PERMISSION, PS_E_SYSTEM, PS_E_NO_MEMORY.  Conductor thread. */
    int (*open)(void *net, const ps_socket_params_t *params, ps_socket_t **out);
    /* Owner thread or, after the owner let go, conductor thread. */
    void (*close)(ps_socket_t *socket);
    /* Sends up to count datagrams in order to `to` (NULL: the connected peer).  Returns how many
     * the kernel took (0..count; fewer = short send: try the rest later) or a negative
     * ps_error_code for an error that is not "try again".  Never blocks.  Datagrams that lie back
     * to back in memory with equal lengths may leave as one GSO run. */
    int (*send)(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams, int32_t count,
                int64_t now_ns);
    /* Receives what is there, at most limit datagrams, calling fn for each.  Returns datagrams seen
     * (>= 0) or a negative ps_error_code.  Never blocks. */
    int (*recv)(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                int64_t now_ns);
    /* Descriptor for epoll, or -1 (simulator). */
    int (*fd)(const ps_socket_t *socket);
    /* Bound address (port 0 resolved). */
    void (*local)(const ps_socket_t *socket, ps_addr_t *out);
    /* Replaces the peer of a connected socket (name re-resolution).  Conductor must own it. */
    int (*reconnect)(ps_socket_t *socket, const ps_addr_t *remote);
    /* As recv, but hands out what the kernel joined (GRO) in one piece, and may receive it directly
     * (direct NULL: never).  NULL: there is only recv. */
    int (*recv_runs)(ps_socket_t *socket, int32_t limit, ps_on_run_fn fn, const ps_direct_t *direct,
                     void *context, int64_t now_ns);
    /* Enlarges the receive buffer to `bytes` (1..PS_RECV_BUFFER_MAX) as far as the kernel allows,
     * unless it is as large.  *got: its size afterwards, in the unit of SO_RCVBUF; less than
     * `bytes` is no error.  PS_E_SYSTEM.  Any thread while it is open.  NULL: the size is fixed. */
    int (*fit_recv_buffer)(ps_socket_t *socket, int32_t bytes, int32_t *got);
} ps_net_ops_t;
enum { PS_RECV_BUFFER_MAX = 1 << 30 };

typedef struct ps_net {
    const ps_net_ops_t *ops;
    void *state;
    void (*free_state)(void *state);
} ps_net_t;

#endif
