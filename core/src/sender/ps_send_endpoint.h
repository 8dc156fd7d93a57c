/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_send_endpoint.h: the sockets that publications of one channel share, and their
 * destinations. */
#ifndef PS_SEND_ENDPOINT_H
#define PS_SEND_ENDPOINT_H

#include "ps_bands.h"
#include "ps_destinations.h"
#include "ps_context.h"
#include "ps_error.h"
#include "ps_publication_params.h"
#include "ps_sender_agent.h"
#include "ps_wire.h"

enum {
    PS_SEND_OUTBOX = 64,
    PS_JOIN_ANSWERS = 64, /* Largest number of joining receivers that the sender answers after one
                           * poll. */
    PS_JOIN_SETUPS = 32,  /* SETUPs for one joining receiver */
    PS_JOIN_BUDGET = 512  /* Largest number of SETUPs that the sender sends after one poll. Each
                           * joining receiver gets an equal share of these SETUPs, but at most
                           * PS_JOIN_SETUPS. */
};

/* Values of the channel status counter. */
enum { PS_CHANNEL_ERRORED = -1, PS_CHANNEL_ACTIVE = 1, PS_CHANNEL_CLOSING = 2 };

/* Heartbeats that leave together. */
typedef struct ps_send_outbox {
    int32_t count;
    uint8_t frames[PS_SEND_OUTBOX][PS_HEARTBEAT_BYTES];
    ps_publication_t *of[PS_SEND_OUTBOX];
} ps_send_outbox_t;

struct ps_send_endpoint {
    /* constants */
    int64_t id;
    const ps_context_t *context;
    ps_sender_t *sender;
    const ps_net_ops_t *ops;
    ps_socket_t *data;
    ps_socket_t *control; /* multicast only, else NULL */
    ps_send_endpoint_params_t params;
    /* conductor */
    int32_t manual_count;
    /* sender */
    ps_addr_t remote; /* unicast peer */
    ps_destinations_t destinations;
    _Atomic int64_t *destinations_cell; /* NULL: none */
    _Atomic int64_t *status_cell;
    _Atomic int64_t *refused_cell; /* NULL: none */
    int64_t heard_ns;              /* last status message */
    int64_t silence_reported_ns;
    int64_t error_reported_ns;
    int64_t full_reported_ns; /* Time at which the sender last reported that the list of
                               * destinations is full; 0: never. */
    int64_t due_ns;
    ps_send_outbox_t outbox;
    ps_addr_t joins[PS_JOIN_ANSWERS]; /* Addresses of joining receivers, to which the sender sends
                                       * SETUPs when the poll ends. */
    int32_t join_count;
    int32_t join_cursor; /* Index of the publication with which the next call of
                          * ps_send_endpoint_answer begins. One call may not send enough SETUPs for
                          * all publications. */
    ps_send_endpoint_t *next;
    /* Streams that wait until the full socket has room again, in the order of their turns. */
    ps_band_entry_t *held_head, *held_tail;
    int64_t full_until_ns; /* while `full` is true */
    int64_t turn_most;     /* Largest number of bytes in a turn of a stream; INT64_MAX if the socket
                            * has not been full lately (ps_send_endpoint_drain.c). */
    int64_t sent_bytes;    /* accepted by the socket */
    int64_t refused_ns;    /* When the socket was last full; INT64_MIN / 2: never. */
    int64_t drain_since_ns;   /* when the measurement of the link's rate began */
    int64_t drain_from_bytes; /* sent_bytes at that time */
    bool full; /* The socket refused a datagram: until full_until_ns, no stream has a turn. */
    bool poll_now;
    bool grew;   /* True if the present poll of the sockets added a destination. */
    bool failed; /* True if the last send failed with an error. A full socket buffer is not an
                  * error. */
    bool removed;
};

/* Stores `status` in the channel status counter. Until the endpoint is handed over to the sender,
 * only the conductor calls this function; afterwards only the sender. */
void ps_send_endpoint_set_status(ps_send_endpoint_t *endpoint, int64_t status);
/* Stores the endpoint's number of destinations in the counter mdc-num-dest. */
void ps_send_endpoint_store_count(ps_send_endpoint_t *endpoint);
/* Counts an error of a socket, and reports errors to the conductor at most once a second. */
void ps_send_endpoint_report_error(ps_send_endpoint_t *endpoint, int32_t code, int64_t now_ns);
/* Sends datagrams to all destinations (MDC) or to the peer. Returns the number of datagrams that
 * the socket accepted (0..count). Adds short sends, errors and bytes to the system counters. Sender
 * thread. */
int32_t ps_send_endpoint_send(ps_send_endpoint_t *endpoint, const ps_dgram_t *dgrams, int32_t count,
                              int64_t now_ns);
/* The same for datagrams whose lengths have the sum `bytes`. */
int32_t ps_send_endpoint_send_sum(ps_send_endpoint_t *endpoint, const ps_dgram_t *dgrams,
                                  int32_t count, int64_t bytes, int64_t now_ns);
/* Queues the heartbeat of a publication (PS_HEARTBEAT_BYTES). The next call of
 * ps_send_endpoint_flush sends queued heartbeats, at the latest at the end of the present duty
 * cycle. */
void ps_send_endpoint_queue(ps_send_endpoint_t *endpoint, ps_publication_t *pub,
                            const uint8_t *frame, int64_t now_ns);
/* Sends the queued heartbeats. If the socket does not accept a heartbeat, the next heartbeat is due
 * one interval later. */
void ps_send_endpoint_flush(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* Returns false if the endpoint has no destination. */
static inline bool ps_send_endpoint_reachable(const ps_send_endpoint_t *endpoint)
{
    return endpoint->params.mdc == PS_MDC_NONE || endpoint->destinations.count > 0;
}
/* Passes received datagrams to on_datagram, with the endpoint as context. Returns the number of
 * received datagrams. */
int32_t ps_send_endpoint_poll(ps_send_endpoint_t *endpoint, ps_on_datagram_fn on_datagram,
                              int64_t now_ns);
/* Runs the endpoint's timers, which detect silent dynamic destinations and silent peers. Returns
 * the time at which the next timer is due. */
int64_t ps_send_endpoint_on_timer(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* Kinds of valid status messages. */
enum ps_heard {
    PS_HEARD_OTHER = 0, /* The status message names no publication of this endpoint, or states that
                         * the receiver leaves. */
    PS_HEARD_NAMES = 1, /* The status message belongs to a publication of this endpoint; `from` is a
                         * receiver of this publication. */
    PS_HEARD_JOIN = 2   /* The status message has session 0, stream 0 and the S flag: it requests
                         * the SETUPs of all publications. */
};
void ps_send_endpoint_heard(ps_send_endpoint_t *endpoint, const ps_sm_t *sm, int32_t heard,
                            const ps_addr_t *from, int64_t now_ns);
/* ps_send_endpoint_join records that the address `to` requested SETUPs; ps_send_endpoint_answer
 * sends SETUPs to all recorded addresses (ps_send_endpoint_join.c). */
void ps_send_endpoint_join(ps_send_endpoint_t *endpoint, const ps_addr_t *to, int64_t now_ns);
void ps_send_endpoint_answer(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* Sends SETUPs to the provisional destinations again. Returns the time at which the caller must
 * repeat the call; INT64_MAX: never. */
int64_t ps_send_endpoint_join_timer(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* ps_send_endpoint_drain.c. Call ps_send_endpoint_drain_init before the sender gets the
 * endpoint. */
void ps_send_endpoint_drain_init(ps_send_endpoint_t *endpoint);
/* Notes that the socket was full. If the socket stays full, this function measures the rate of the
 * link, and bounds the turns of the streams by this rate. */
void ps_send_endpoint_refused(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* If the socket has not been full for some time, ends the bound of the turns. Returns the time at
 * which the caller must repeat the call; INT64_MAX: never. */
int64_t ps_send_endpoint_drain_timer(ps_send_endpoint_t *endpoint, int64_t now_ns);
/* Executes a command of the conductor; sender thread. */
void ps_send_endpoint_on_command(ps_send_endpoint_t *endpoint, const ps_command_t *command,
                                 int64_t now_ns);
/* Closes and frees the endpoint. Call this function only after the sender thread has ended. */
void ps_send_endpoint_free(ps_send_endpoint_t *endpoint);

#endif
