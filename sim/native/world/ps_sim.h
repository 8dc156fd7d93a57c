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
typedef struct ps_driver ps_driver_t;
typedef struct ps_pub ps_pub_t;
typedef struct ps_sub ps_sub_t;
typedef struct ps_simnet ps_simnet_t;
typedef struct ps_simworld ps_simworld_t;

/* One direction between two hosts.  All zero: instant and lossless. */
typedef struct ps_simnet_link {
    int64_t delay_ns;              /* fixed */
    int64_t jitter_ns;             /* added, uniform in [0, jitter_ns]: reorders */
    int64_t bandwidth_bytes_per_s; /* 0: unlimited */
    int64_t queue_bytes;           /* waiting for the link, 0: unlimited */
    uint32_t loss_ppm;             /* per datagram and receiving host; 1000000: link down */
    /* Gilbert-Elliott: per datagram, from good to bad and back, and back after 2 s in any case;
     * burst_loss_ppm holds while bad */
    uint32_t burst_enter_ppm;
    uint32_t burst_leave_ppm;
    uint32_t burst_loss_ppm;
    uint32_t duplicate_ppm; /* arrives twice, each with its own jitter */
    uint32_t reorder_ppm;   /* held back by reorder_ns more */
    int64_t reorder_ns;
    uint32_t corrupt_ppm;  /* one bit flipped */
    uint32_t stranger_ppm; /* repeated and falsified by another address, within 50 ms */
    uint8_t no_checksum;   /* 1: the flipped bit arrives; 0: UDP's checksum drops it */
} ps_simnet_link_t;

typedef struct ps_simnet_stats {
    uint64_t sent;        /* datagrams given to send */
    uint64_t delivered;   /* put into a socket's receive queue (multicast: once a socket) */
    uint64_t lost;        /* by the link */
    uint64_t queue_full;  /* at the link */
    uint64_t buffer_full; /* at the socket */
    uint64_t unreachable; /* no such host, or no socket there */
    uint64_t bytes_sent;  /* UDP payload */
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t corrupted;
    uint64_t forged;
    uint64_t refused; /* the socket refused them; not counted as sent */
} ps_simnet_stats_t;

/* PS_E_NO_MEMORY. */
int ps_simnet_create(uint64_t seed, ps_simnet_t **out);
/* Every ps_net and socket of it must be gone: destroy the drivers first.  NULL is allowed. */
void ps_simnet_destroy(ps_simnet_t *simnet);
/* Returns the host's index, 0, 1, ..., or PS_E_NO_SPACE (64 hosts). */
int32_t ps_simnet_add_host(ps_simnet_t *simnet);
/* Gives a host an address (port ignored): 8 each, PS_E_NO_SPACE; PS_E_ADDRESS_IN_USE. */
int ps_simnet_add_address(ps_simnet_t *simnet, int32_t host, const ps_addr_t *address);
/* Sets the link from host to host; -1 stands for all. Datagrams in flight keep their properties.
 * PS_E_INVALID. */
int ps_simnet_set_link(ps_simnet_t *simnet, int32_t from, int32_t to, const ps_simnet_link_t *link);
/* Loses the number-th datagram (0, 1, ...) put on the link from host to host.  PS_E_INVALID,
 * PS_E_NO_MEMORY. */
int ps_simnet_drop(ps_simnet_t *simnet, int32_t from, int32_t to, uint64_t number);
/* The host's sockets are full until then: they take nothing.  And of each short_ppm-th call, by
 * chance, they take only the first few datagrams, or none.  PS_E_INVALID. */
int ps_simnet_stuff(ps_simnet_t *simnet, int32_t host, int64_t until_ns, uint32_t short_ppm);
/* Sends a datagram of a stranger on that host, from any port of its own.  length 1..65504 bytes.
 * PS_E_INVALID, PS_E_NO_MEMORY. */
int ps_simnet_inject(ps_simnet_t *simnet, int32_t host, const ps_addr_t *from, const ps_addr_t *to,
                     const uint8_t *data, uint32_t length, int64_t now_ns);
/* Datagrams to or from this port pass every link in delay_ns, whatever befalls others; 0: none.
 * PS_E_INVALID. */
int ps_simnet_calm(ps_simnet_t *simnet, int32_t port, int64_t delay_ns);
/* A network for a driver on that host, which takes it over; the simnet must outlive it.
 * NULL: no memory or no such host. */
ps_net_t *ps_simnet_host_net(ps_simnet_t *simnet, int32_t host);
/* Time of the next arrival, INT64_MAX if no datagram is in flight. */
int64_t ps_simnet_next_event_ns(const ps_simnet_t *simnet);
/* Moves what arrives at or before now_ns into the sockets' queues.  Returns how many arrivals. */
int32_t ps_simnet_advance(ps_simnet_t *simnet, int64_t now_ns);
/* Hash over (time, from, to, length, bytes, verdict) of everything sent and everything arrived. */
uint64_t ps_simnet_trace_hash(const ps_simnet_t *simnet);
void ps_simnet_statistics(const ps_simnet_t *simnet, ps_simnet_stats_t *out);

/* ---- what is on the wire --------------------------------------------------------------------- */

/* Datagrams by type, as sent; multicast once. */
typedef struct ps_sim_wire {
    uint64_t data;       /* with bytes of the stream that were not sent before */
    uint64_t data_bytes; /* of the stream */
    uint64_t resent;
    uint64_t resent_bytes;
    uint64_t heartbeats;
    uint64_t setups;
    uint64_t status_messages;
    uint64_t naks;
    uint64_t rtt;
    uint64_t errors;
    uint64_t ext; /* our own extensions: PRESSURE and its like */
    uint64_t malformed;
    uint64_t overruns; /* data beyond every window a receiver had stated */
    uint64_t broken;   /* data that breaks a rule of its SETUP: term, MTU, chain */
} ps_sim_wire_t;

/* Reads along with everything sent from now on.  half_term_stream_id: a stream whose strategy
 * opens half a term whatever receivers state (fc=nak); 0: none.  PS_E_NO_MEMORY. */
int ps_simnet_watch(ps_simnet_t *simnet, int32_t half_term_stream_id);
/* All zero without a watch. */
void ps_simnet_wire(const ps_simnet_t *simnet, ps_sim_wire_t *out);

/* ---- the world: drivers and applications stepped in virtual time ----------------------------- */

enum ps_simworld_stop {
    PS_SIMWORLD_TIME = 0,    /* until_ns */
    PS_SIMWORLD_CONTROL = 1, /* a conductor has to act: an event waits or its deadline is due */
    PS_SIMWORLD_STUCK = 2    /* a host asks for another call each time and does nothing */
};

typedef struct ps_sim_publisher_params {
    ps_pub_t *pub; /* borrowed until detached */
    int32_t host;
    int32_t ledger;
    int32_t size_low;
    int32_t size_high;
    int64_t count; /* messages in all, counted by the ledger */
    int64_t start_ns;
    int64_t interval_ns; /* between messages; 0: as fast as there is room */
} ps_sim_publisher_params_t;

typedef struct ps_sim_subscriber_params {
    ps_sub_t *sub; /* borrowed until detached */
    int32_t host;
    int32_t stream_id;
    int32_t poll_limit;       /* messages a turn */
    int64_t poll_interval_ns; /* from a turn with messages to the next */
    int32_t batch; /* > 0: messages taken and released at each multiple of the interval */
} ps_sim_subscriber_params_t;

typedef struct ps_sim_publisher_stats {
    int64_t messages; /* accepted by this application */
    int64_t bytes;
    int64_t position; /* after the last one */
    int64_t refusals;
    int64_t blocked_ns; /* from a refusal to the next acceptance */
    int64_t last_ns;    /* of the last acceptance */
    int32_t at_end;     /* the stream is at the maximum position: no further message fits */
} ps_sim_publisher_stats_t;

typedef struct ps_sim_reader_stats {
    int64_t messages; /* of the ledger, delivered in order */
    int64_t bytes;
    int64_t missed; /* messages in explicit gaps */
    int64_t gaps;
    int64_t first;    /* number of the first message, -1: none yet */
    int64_t next;     /* number of the message after the last */
    int64_t position; /* delivered */
    int64_t last_ns;
    int64_t latency_ns; /* longest from acceptance to delivery */
    int64_t untold;     /* messages behind the last that no gap told explains */
} ps_sim_reader_stats_t;

/* PS_E_NO_MEMORY.  The simnet must outlive it. */
int ps_simworld_create(ps_simnet_t *simnet, ps_simworld_t **out);
void ps_simworld_destroy(ps_simworld_t *world);
/* The driver of a host; NULL: none (crashed).  cycle_ns >= 1: shortest time from step to step. */
int ps_simworld_set_driver(ps_simworld_t *world, int32_t host, ps_driver_t *driver,
                           int64_t cycle_ns);
/* When the host's conductor wants to be called. */
void ps_simworld_set_control_ns(ps_simworld_t *world, int32_t host, int64_t deadline_ns);
/* One duty cycle of the host's driver, beside those that ps_simworld_run makes.  Returns the work
 * done. */
int32_t ps_simworld_step(ps_simworld_t *world, int32_t host, int64_t now_ns);
/* From now on every duty cycle of every driver is checked (ps_sim_probe.h).  Before the first
 * driver.  PS_E_NO_MEMORY. */
int ps_simworld_probe(ps_simworld_t *world);
/* Something was done on the host: its driver must be stepped. */
void ps_simworld_touch(ps_simworld_t *world, int32_t host);

/* Content of a session: its messages are made from seed and number, so that every receiver can
 * check them. Returns its index. PS_E_NO_MEMORY. */
int32_t ps_simworld_add_ledger(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                               uint64_t seed);
int64_t ps_simworld_ledger_messages(const ps_simworld_t *world, int32_t ledger);
int64_t ps_simworld_ledger_position(const ps_simworld_t *world, int32_t ledger);

/* Returns an index.  PS_E_NO_MEMORY, PS_E_NO_SPACE. */
int32_t ps_simworld_add_publisher(ps_simworld_t *world, const ps_sim_publisher_params_t *params);
int32_t ps_simworld_add_subscriber(ps_simworld_t *world, const ps_sim_subscriber_params_t *params);
/* The handle is not used any more; numbers stay. */
void ps_simworld_detach_publisher(ps_simworld_t *world, int32_t publisher);
void ps_simworld_detach_subscriber(ps_simworld_t *world, int32_t subscriber);
/* A paused application does nothing. */
void ps_simworld_pause_publisher(ps_simworld_t *world, int32_t publisher, int32_t paused);
void ps_simworld_pause_subscriber(ps_simworld_t *world, int32_t subscriber, int32_t paused);
/* The subscriber was told of an image: what is missing before its first message is explicit. */
void ps_simworld_expect_gap(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                            int32_t stream_id);
/* The subscriber takes gaps (reliable=false): what it misses it must have been told. */
void ps_simworld_allow_gaps(ps_simworld_t *world, int32_t subscriber);
void ps_simworld_publisher(const ps_simworld_t *world, int32_t publisher,
                           ps_sim_publisher_stats_t *out);
void ps_simworld_reader(const ps_simworld_t *world, int32_t subscriber, int32_t ledger,
                        ps_sim_reader_stats_t *out);
/* Hash over everything this subscriber received, and when. */
uint64_t ps_simworld_digest(const ps_simworld_t *world, int32_t subscriber);

/* Runs until until_ns or until Python is needed.  *now_ns: from where, to where.  Returns
 * ps_simworld_stop.  Bound: one step of a host per cycle of it. */
int32_t ps_simworld_run(ps_simworld_t *world, int64_t until_ns, int64_t *now_ns);
/* The host's conductor is busy until then: it hears of nothing. */
void ps_simworld_hold_control(ps_simworld_t *world, int32_t host, int64_t until_ns);
/* Does a conductor of this host have to act now? */
int32_t ps_simworld_wants_control(const ps_simworld_t *world, int32_t host, int64_t now_ns);
uint64_t ps_simworld_steps(const ps_simworld_t *world);
/* Violation by index, "" beyond the last. The first 16 are kept. */
const char *ps_simworld_violation(const ps_simworld_t *world, int32_t index);

#endif
