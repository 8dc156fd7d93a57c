/* SPDX-License-Identifier: Apache-2.0
 * ps_cnc_internal.h: a mapped cnc.dat and loss-report.dat.
 *
 *   0    128            +                +                 +                +
 *   | header | to-driver ring | to-clients broadcast | counter metadata | values | error log |
 *
 * ps_cnc_open checks all lengths of the file and stores them in ps_cnc, so no function reads the
 * lengths in the file again. */
#ifndef PS_CNC_INTERNAL_H
#define PS_CNC_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "ps_cnc.h"

enum {
    PS_CNC_HEADER_BYTES = 128,
    PS_CNC_VERSION = 0x200,
    PS_CNC_RING_BYTES = 1024 * 1024,
    PS_CNC_RING_TRAILER = 768,
    PS_CNC_BROADCAST_TRAILER = 128,
    PS_COUNTER_VALUE_BYTES = 128,
    PS_COUNTER_META_BYTES = 512,
    PS_COUNTER_KEY_BYTES = 112,
    PS_COUNTER_LABEL_BYTES = 380,
    PS_COUNTER_COOL_DOWN_MS = 1000,
    PS_COUNTERS_BACKED = 2048, /* Number of counters for which ps_cnc.c reserves memory in one
                                * step. */
    PS_LOSS_REPORT_BYTES = 1024 * 1024
};

typedef struct ps_cnc_header {
    _Atomic int32_t version;
    int32_t to_driver_length;
    int32_t to_clients_length;
    int32_t counter_metadata_length;
    int32_t counter_values_length;
    int32_t error_log_length;
    int64_t client_liveness_timeout_ns;
    int64_t start_ms;
    int64_t pid;
    int32_t page_size;
} ps_cnc_header_t;

typedef struct ps_counter_meta {
    _Atomic int32_t state;
    int32_t type_id;
    int64_t reuse_deadline_ms;
    uint8_t key[PS_COUNTER_KEY_BYTES];
    int32_t label_length;
    char label[PS_COUNTER_LABEL_BYTES];
} ps_counter_meta_t;
_Static_assert(sizeof(ps_counter_meta_t) == PS_COUNTER_META_BYTES, "layout");

typedef struct ps_counter_value {
    _Atomic int64_t value;
    _Atomic int64_t registration_id;
    _Atomic int64_t owner_id;
    _Atomic int64_t reference_id;
    uint8_t pad[PS_COUNTER_VALUE_BYTES - 32];
} ps_counter_value_t;
_Static_assert(sizeof(ps_counter_value_t) == PS_COUNTER_VALUE_BYTES, "layout");

struct ps_cnc {
    uint8_t *base;
    uint64_t length;
    ps_cnc_header_t *header;
    uint8_t *ring; /* ring_capacity bytes, then the trailer */
    int32_t ring_capacity;
    uint8_t *broadcast;
    int32_t broadcast_capacity;
    ps_counter_meta_t *metadata;
    ps_counter_value_t *values;
    int32_t counters;
    uint8_t *error_log;
    int32_t error_log_length;
    uint8_t *loss_report; /* NULL: none (tools) */
    uint64_t loss_report_length;
    int32_t read_only;
    int64_t alive_until_ms; /* last heartbeat of the dead daemon whose directory this daemon adopted
                             */
    /* `freed` lists the freed counter ids, the oldest first; `high_water` is the lowest id that was
     * never used. The first allocation of a counter creates the list. */
    int32_t *freed;
    int32_t freed_head;
    int32_t freed_count;
    int32_t high_water;
    int32_t backed;          /* Number of counters, from id 0 on, for which this process has
                              * reserved memory. */
    char path[4096];         /* of cnc.dat */
    _Atomic int64_t nowhere; /* Cell that ps_counter_cell returns if the counter id is out of
                              * range. */
};

static inline int64_t ps_cnc_align(int64_t value, int64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

/* Fields of the ring's trailer. */
enum {
    PS_RING_TAIL = 128,
    PS_RING_HEAD_CACHE = 256,
    PS_RING_HEAD = 384,
    PS_RING_CORRELATION = 512,
    PS_RING_HEARTBEAT = 640
};
static inline _Atomic int64_t *ps_ring_field(const ps_cnc_t *cnc, int32_t field)
{
    return (_Atomic int64_t *)(void *)(cnc->ring + cnc->ring_capacity + field);
}

#endif
