/* SPDX-License-Identifier: Apache-2.0
 *
 * sender_rig.h: a sender in virtual time over memnet, one publication of the worked session
 * (golden.h), and a producer that writes frames by hand so that it can also misbehave.
 */
#ifndef PS_SENDER_RIG_H
#define PS_SENDER_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "memnet.h"
#include "penstock.h"
#include "ps_slots.h"
#include "ps_log.h"
#include "ps_wire.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(actual, expected)                                                                 \
    do {                                                                                           \
        const long long actual_ = (long long)(actual), expected_ = (long long)(expected);          \
        if (actual_ != expected_) {                                                                \
            fprintf(stderr, "%s:%d: %s: %s is %lld, expected %lld\n", __FILE__, __LINE__,          \
                    __func__, #actual, actual_, expected_);                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
enum { RIG_TERM = 65536, RIG_MTU = 1408, RIG_PORT = 40124, RIG_CONTROL = 40500 };

enum rig_kind { RIG_UNICAST, RIG_DYNAMIC, RIG_MANUAL, RIG_MULTICAST, RIG_IPC };

typedef struct rig {
    int32_t kind; /* rig_kind */
    char directory[64];
    char log_path[96];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    memnet_t *net;
    ps_driver_t *driver;
    int64_t now_ns;
    ps_send_endpoint_t *endpoint;
    ps_publication_t *pub;
    ps_publication_slot_t *slot;
    int32_t limit, position, sender_position, sender_limit, back_pressure, naks, receivers,
        destinations, refused, status; /* counter ids */
    ps_log_t log;
    ps_addr_t local; /* of the control socket of the sender */
    ps_addr_t peer;
    memnet_dgram_t got; /* last datagram of rig_take */
} rig_t;

typedef struct rig_options {
    int32_t kind;
    int32_t exclusive;
    int32_t sealed; /* exclusive, and a successor may take over */
    int32_t ssc;
    int32_t window_bytes;      /* 0: T/2 */
    int64_t reserved_position; /* 0: everything */
    int32_t first_offset;      /* start position */
    int32_t term_count;        /* of the first term */
    int32_t timestamp_offset;  /* 0: none, else as the parameter */
    int32_t advertise;
    int64_t retransmit_delay_ns;
    int32_t flow_control; /* 0: by kind */
    int32_t group_min_size;
    int64_t fc_timeout_ns; /* 0: as long as a receiver may be silent */
    int64_t group_tag;
    int64_t rate_bytes_per_s, rate_messages_per_s;
    int32_t policy; /* ps_policy */
    int64_t low_watermark_bytes, depth_messages;
    int32_t publications; /* slots; 0: 64 */
} rig_options_t;

rig_t *rig_open(const rig_options_t *options);
void rig_close(rig_t *rig);
/* Moves time, then runs cycles until nothing happens (at most 64). */
void rig_step(rig_t *rig, int64_t by_ns);
int64_t rig_counter(const rig_t *rig, int32_t id);
int32_t rig_make_counter(rig_t *rig, int64_t value);
/* Writes one frame at the tail, rotating with a PAD when it does not fit; returns the position
 * after it.  length: payload.  dirty is marked. */
int64_t rig_offer(rig_t *rig, const void *payload, int32_t length, uint8_t flags);
/* Reserves and claims, as a shared publisher of client_slot would; returns the frame's position. */
int64_t rig_claim(rig_t *rig, int32_t payload_length, int32_t client_slot);
/* Commits a claim by compare-and-swap: 1, or 0 when it was padded over (counted in the client). */
int rig_commit(rig_t *rig, int64_t position, int32_t payload_length, int32_t client_slot);
void rig_dirty(rig_t *rig);
int64_t rig_tail(const rig_t *rig);
/* Status message from receiver (port of `from`). */
void rig_sm(rig_t *rig, int64_t receiver_id, const ps_addr_t *from, int64_t position,
            int32_t window, uint8_t flags);
void rig_inject(rig_t *rig, const ps_addr_t *from, const void *data, uint32_t length);
/* Next datagram; dies when there is none. */
const memnet_dgram_t *rig_take(rig_t *rig);
/* Takes the next event of this type, skipping others; 0 when there is none. */
int rig_event(rig_t *rig, int32_t type, ps_event_t *out);
void rig_expect_golden(rig_t *rig, const char *name);
/* Parameters of a publication with the rig's endpoint and counters. The whole log is reserved. */
ps_publication_params_t rig_publication_params(const rig_t *rig, int64_t id, const char *log_path,
                                               int32_t slot);
/* Kills the driver. A new one opens the endpoint, and has no publication yet. */
void rig_succeed(rig_t *rig);
/* Parameters with which a new driver adopts the rig's publication. */
ps_publication_params_t rig_adopted_publication(const rig_t *rig);
/* A local reader at a position, of the client in client_slot (-1: none).  Returns its counter. */
int32_t rig_add_reader(rig_t *rig, int64_t position, int32_t client_slot, int tether);
/* A client that publishes.  Returns its slot. */
int32_t rig_add_client(rig_t *rig, int64_t id);
int32_t rig_cause(const rig_t *rig); /* ps_cause that holds the stream */
/* Fills the publication up to its limit as a publisher would.  Returns messages. */
int32_t rig_fill(rig_t *rig);
/* Opens a client of the rig's directory with a handle on its publication. */
void rig_open_publisher(rig_t *rig, int64_t client_id, int exclusive, ps_client_t **client,
                        ps_pub_t **pub);
/* Connected and quiet: SETUP seen, SM with the golden window taken, nothing pending. */
void rig_connect(rig_t *rig);

#endif
