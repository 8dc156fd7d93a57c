/* SPDX-License-Identifier: Apache-2.0
 * setup_image.h: the parameters of the image that a SETUP requests, as a conductor states them.
 */
#ifndef SETUP_IMAGE_H
#define SETUP_IMAGE_H

#include "ps_event.h"
#include "ps_image_params.h"

/* Of a reliable image.  Path, endpoint, slot, counters and window are the caller's. */
static inline ps_image_params_t setup_image_params(const ps_event_t *event, int64_t id)
{
    return (ps_image_params_t){ .id = id,
                                .session_id = event->session_id,
                                .stream_id = event->stream_id,
                                .initial_term_id = event->setup.initial_term_id,
                                .active_term_id = event->setup.active_term_id,
                                .term_offset = event->setup.term_offset,
                                .destination = event->setup.destination,
                                .source = event->setup.source,
                                .nak_delay_ns = -1,
                                .reserved_position = INT64_MAX,
                                .join_ordinal = event->setup.peer_ordinal,
                                .peer_capabilities = event->setup.peer_capabilities,
                                .reliable = 1 };
}

#endif
