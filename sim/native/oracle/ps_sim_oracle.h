/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_oracle.h: oracles. They observe a simulated network and its world. This header is also the
 * cffi declaration (plain types and enums only). */
#ifndef PS_SIM_ORACLE_H
#define PS_SIM_ORACLE_H

#include <stdint.h>

#include "ps_simworld.h"

/* Numbers of sent datagrams, one for each type of datagram; a multicast datagram counts once. */
typedef struct ps_sim_wire {
    uint64_t data;       /* Number of data frames with new data (not retransmitted data). */
    uint64_t data_bytes; /* of the stream */
    uint64_t resent;
    uint64_t resent_bytes;
    uint64_t heartbeats;
    uint64_t setups;
    uint64_t status_messages;
    uint64_t naks;
    uint64_t rtt;
    uint64_t errors;
    uint64_t ext; /* frames of penstock's extensions, such as PRESSURE */
    uint64_t malformed;
    uint64_t overruns; /* Number of new data frames that end beyond the highest limit that the
                        * receivers had advertised. */
    uint64_t broken;   /* Number of data frames whose length, term or order does not agree with the
                        * stream's SETUP. */
} ps_sim_wire_t;

/* From this call on, the oracle `watch` (ps_sim_watch.c) checks all sent datagrams. If
 * half_term_stream_id is not 0, it names a stream with fc=nak. The oracle lets the sender of this
 * stream be half a term ahead of its receivers, even if they advertise less. PS_E_NO_MEMORY. */
int ps_simnet_watch(ps_simnet_t *simnet, int32_t half_term_stream_id);
/* If ps_simnet_watch was not called, all values in `out` are zero. */
void ps_simnet_wire(const ps_simnet_t *simnet, ps_sim_wire_t *out);

/* Begins to check every duty cycle of every driver (ps_sim_probe.h). Call this function before the
 * first host gets a driver. PS_E_NO_MEMORY. */
int ps_simworld_probe(ps_simworld_t *world);

#endif
