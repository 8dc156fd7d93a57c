/* SPDX-License-Identifier: Apache-2.0
 *
 * ccsim.h: two hosts and one path in virtual time: the real sender and receiver agents over the
 * simulated network, any number of flows from the first host to the second, each with a producer
 * that always has more and a reader that reads at once.  What is measured is the path.
 */
#ifndef CCSIM_H
#define CCSIM_H

#include "ps_slots.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_log.h"
#include "ps_simnet.h"

enum { CCSIM_FLOWS_MAX = 8 };

typedef struct ccsim_options {
    int64_t rtt_ns;                /* of the empty path */
    int64_t bandwidth_bytes_per_s; /* there; 0 unlimited.  Back: unlimited */
    int64_t queue_bytes;
    uint32_t loss_ppm;    /* both ways, random */
    uint32_t reorder_ppm; /* there: datagrams that take so much longer */
    int64_t reorder_ns;
    uint32_t duplicate_ppm; /* there */
    int32_t max_gaps;       /* 0: the default */
    int64_t drop_each;      /* data datagrams between two scripted losses, 0 none */
    int64_t drop_first;     /* the first lost one, 0 drop_each */
    int32_t lossy_flow;     /* flow of which every third data datagram is lost; 0 none */
    int32_t flows;          /* 1..CCSIM_FLOWS_MAX */
    int64_t start_apart_ns; /* flow i begins i times that later */
    int32_t mtu;
    int32_t term_length;
    int32_t window_bytes;       /* receiver window */
    int32_t congestion_control; /* ps_congestion_control */
    int32_t loss_recovery;      /* ps_loss_recovery, both sides */
    uint8_t not_friendly;
    uint8_t plain; /* no trailers: both take each other for Aeron */
    uint64_t seed;
    int64_t offered_bytes_per_s; /* each flow, 0: as much as goes */
} ccsim_options_t;

typedef struct ccsim_flow_state {
    int64_t delivered;         /* stream bytes read */
    int64_t congestion_window; /* now, bytes; 0 under static */
    int64_t rtt_ns;
    int64_t missing_gaps;
    int64_t lost_bytes; /* as counted by the receiver */
    int64_t cause;      /* ps_cause the publication is bound by now */
    int64_t blocked_congestion_ns;
} ccsim_flow_state_t;

typedef struct ccsim ccsim_t;

ccsim_t *ccsim_open(const ccsim_options_t *options);
void ccsim_close(ccsim_t *sim);
/* Runs for so long. */
void ccsim_run(ccsim_t *sim, int64_t ns);
int64_t ccsim_now(const ccsim_t *sim);
void ccsim_flow(const ccsim_t *sim, int32_t flow, ccsim_flow_state_t *out);
/* System counter of the sending (0) or receiving (1) side. */
int64_t ccsim_system(const ccsim_t *sim, int32_t side, int32_t counter);
void ccsim_path(const ccsim_t *sim, ps_simnet_stats_t *out);

#endif
