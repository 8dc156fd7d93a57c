/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_pressure.h: the episodes of pressure of a publication (docs/decisions/0230).
 * Owner: the sender thread. */
#ifndef PS_PUBLICATION_PRESSURE_H
#define PS_PUBLICATION_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_types.h"

/* The values of an episode of pressure that has ended. The sender keeps these values until it has
 * reported the end of the episode. The next episode may begin before this report. */
typedef struct ps_publication_episode {
    int32_t cause, client_slot;
    int64_t culprit;
    ps_addr_t source;
    int64_t duration_ns;
    int64_t peak_bytes;
    int64_t drained; /* -1 unknown */
} ps_publication_episode_t;

/* An episode of pressure begins when the unsent data reaches the configured depth, and ends when
 * the log has drained to the low watermark. */
typedef struct ps_publication_pressure {
    int32_t state; /* ps_watermark */
    int32_t cause, client_slot;
    int64_t culprit; /* Id of the receiver or client that last blocked the publication in this
                      * episode. */
    ps_addr_t source;
    int64_t since_ns;
    int64_t peak_bytes;
    int64_t messages;    /* Number of messages that the sender had sent (on IPC: readers had read)
                          * when the episode began; -1: unknown. */
    int64_t tail;        /* Producer position when the log had drained to the low watermark. */
    int64_t reported_ns; /* Time at which the sender last reported an episode; INT64_MIN/2:
                          * never. */
    int32_t episodes;    /* not reported yet */
    int32_t reported_episodes;
    bool reported; /* True if the sender has reported the beginning of this episode. */
    ps_publication_episode_t ended;
} ps_publication_pressure_t;

#endif
