/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.h: an input as a story for one agent: records of u16, then bytes.
 *   bit 15 set: time passes, (value & 0x7fff) x 100 us
 *   bit 14 set: the application takes its turn
 *   else:       a datagram of (value & 0x0fff) bytes follows (cut to what is left)
 * And a directory with a daemon's files and a stepped driver on a network in memory.
 */
#ifndef PS_SEQUENCE_H
#define PS_SEQUENCE_H

#include "fuzz.h"
#include "memnet.h"
#include "ps_slots.h"

enum {
    SEQUENCE_TIME = 0x8000,
    SEQUENCE_TURN = 0x4000,
    SEQUENCE_LENGTH = 0x0FFF,
    SEQUENCE_STEPS = 256,
    FUZZ_COUNTERS = 16,
    FUZZ_PORT = 40124,
    FUZZ_PEER_PORT = 50000
};

typedef struct sequence {
    const uint8_t *data;
    size_t left;
    int32_t steps;
} sequence_t;

enum sequence_kind { SEQUENCE_END, SEQUENCE_DATAGRAM, SEQUENCE_WAIT, SEQUENCE_APPLICATION };

typedef struct sequence_step {
    int kind;
    const uint8_t *data;
    uint32_t length;
    int64_t wait_ns;
} sequence_step_t;

/* A byte in front of the records, for a choice; 0 when there is none. */
uint8_t sequence_byte(sequence_t *sequence);
/* The next step; after SEQUENCE_STEPS, or without bytes left, the end. */
sequence_step_t sequence_next(sequence_t *sequence);

/* The files are made once and reset for each input: counters to zero, slots freed.  Driver,
 * network and log are new each time. */
typedef struct fuzz_world {
    char directory[256];
    char log_path[300];
    bool is_open;
    int32_t counters[FUZZ_COUNTERS];
    int32_t counters_used;
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    memnet_t *memnet;
    ps_driver_t *driver;
    ps_client_t *client;
    int32_t client_slot;
    int64_t now_ns;
} fuzz_world_t;

fuzz_world_t *fuzz_world_begin(void);
void fuzz_world_end(fuzz_world_t *world);
int32_t fuzz_counter(fuzz_world_t *world, int64_t value);
/* Makes the log of the golden session at world->log_path; gone at the end of the input. */
void fuzz_make_log(fuzz_world_t *world, int32_t term_id, int32_t term_offset, uint8_t type);
/* A step of the driver, no more than `most` datagrams sent by it; each is a valid frame. */
void fuzz_step(fuzz_world_t *world, int32_t most);

#endif
