/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_watch.h: watches all datagrams on the simulated network (ps_sim_watch.c).
 */
#ifndef PS_SIM_WATCH_H
#define PS_SIM_WATCH_H

#include "ps_net_sim.h"
#include "ps_sim_oracle.h"

typedef struct ps_sim_watch ps_sim_watch_t;

/* Kind of a datagram: new data (FRESH), retransmitted data (AGAIN), or any other datagram
 * (OTHER). */
enum ps_sim_kind { PS_SIM_OTHER = 0, PS_SIM_FRESH = 1, PS_SIM_AGAIN = 2 };

/* Creates a watch; NULL: no memory. The caller releases it with free(). */
ps_sim_watch_t *ps_sim_watch_create(void);
/* Sets the id of a stream; 0: no stream. The sender of this stream may always be half a term ahead
 * of its receivers, even if the receivers advertise less. */
void ps_sim_watch_half_term(ps_sim_watch_t *watch, int32_t stream_id);
void ps_sim_watch_wire(const ps_sim_watch_t *watch, ps_sim_wire_t *out);
enum ps_sim_kind ps_sim_watch_sent(ps_sim_watch_t *watch, int32_t from,
                                   const ps_sim_packet_t *packet);
void ps_sim_watch_arrived(ps_sim_watch_t *watch, int32_t host, const ps_sim_packet_t *packet);

#endif
