/* SPDX-License-Identifier: Apache-2.0
 * two_hosts.h: two hosts of the simulated network in one thread: a publisher of one stream, and a
 * subscriber on the other host (IPC: on the same host).  The caller offers, steps and polls.
 */
#ifndef PS_TEST_TWO_HOSTS_H
#define PS_TEST_TWO_HOSTS_H

#include "ps_simnet.h"
#include "ps_sender.h"
#include "setup_image.h"
#include "stream.h"

enum { TWO_HOSTS_TERM = 1 << 20, TWO_HOSTS_MTU = 1408, TWO_HOSTS_WINDOW = 128 * 1024 };

/* The stream. */
typedef struct two_hosts_params {
    bool ipc, exclusive;
    int64_t credits; /* 0: none */
    int32_t policy;  /* ps_policy */
    int64_t depth;   /* publication window; 0: half a term */
} two_hosts_params_t;

typedef struct two_hosts_side {
    char directory[256];
    char path[300];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
    ps_client_t *client;
    int32_t client_slot;
} two_hosts_side_t;

typedef struct two_hosts {
    two_hosts_params_t params;
    two_hosts_side_t sides[2]; /* publisher, subscriber */
    ps_simnet_t *net;
    int64_t now_ns;
    ps_publication_t *publication;
    ps_pub_t *pub;
    ps_sub_t *sub; /* NULL: no image yet */
    ps_img_t *img;
    ps_recv_endpoint_t *endpoint;
    ps_image_t *image;
} two_hosts_t;

/* Opens both hosts; the stream is not connected yet. */
void two_hosts_open(two_hosts_t *hosts, const two_hosts_params_t *params);

/* One step of each driver, and of the network after each; then `by_ns` pass. */
void two_hosts_step(two_hosts_t *hosts, int64_t by_ns);

/* Handles the events of both drivers: the subscriber's image is made. */
void two_hosts_serve(two_hosts_t *hosts);

void two_hosts_close(two_hosts_t *hosts);

#endif
