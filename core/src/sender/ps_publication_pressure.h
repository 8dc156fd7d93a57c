/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_pressure.h: the episodes of pressure of a publication (docs/decisions/0230).
 * Owner: the sender thread. */
#ifndef PS_PUBLICATION_PRESSURE_H
#define PS_PUBLICATION_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* The reported episode, kept until its relief is reported, because the next episode may begin
 * earlier. */
typedef struct ps_publication_episode {
    int32_t cause, client_slot;
    int64_t culprit;
    ps_addr_t source;
    int64_t duration_ns;
    int64_t peak_bytes;
    int64_t drained; /* -1 unknown */
} ps_publication_episode_t;

/* An episode of pressure: publishers reach the depth, the log drains to the low watermark. */
typedef struct ps_publication_pressure {
    int32_t state; /* ps_watermark */
    int32_t cause, client_slot;
    int64_t culprit; /* culprit of the last cause in this episode */
    ps_addr_t source;
    int64_t since_ns;
    int64_t peak_bytes;
    int64_t messages;    /* number of messages that consumers had taken when the episode began; -1
                          * unknown */
    int64_t tail;        /* producer position when the log had drained to the low watermark */
    int64_t reported_ns; /* time at which an episode was last reported; INT64_MIN/2: never */
    int32_t episodes;    /* not reported yet */
    int32_t reported_episodes;
    bool reported; /* 1: the beginning of this episode is reported */
    ps_publication_episode_t ended;
} ps_publication_pressure_t;

#endif
