/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_networks.h: the networks that a driver can use. Also the cffi declaration. */
#ifndef PS_NETWORKS_H
#define PS_NETWORKS_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_net ps_net_t;

/* Kernel UDP. */
ps_net_t *ps_net_udp(void);

/* Artificial loss and delay of one direction. Probabilities are in parts per million, times in
 * ns. */
typedef struct ps_impair_params {
    uint32_t send_loss_ppm;
    uint32_t recv_loss_ppm;
    uint32_t duplicate_ppm; /* on receive */
    uint32_t reorder_ppm;   /* Received datagrams only: probability that the network delivers a
                             * datagram only after the next datagram. */
    uint32_t corrupt_ppm;   /* on receive: one bit flipped */
    int64_t delay_ns;       /* on receive, fixed */
    int64_t jitter_ns;      /* Received datagrams only: largest random delay; the delay is uniformly
                             * distributed in [0, jitter_ns]. */
    uint64_t seed;
} ps_impair_params_t;

/* Wraps (and takes over) inner. */
ps_net_t *ps_net_impair(ps_net_t *inner, const ps_impair_params_t *params);
void ps_net_free(ps_net_t *net);

#endif
