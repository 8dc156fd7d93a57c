/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_promise.h: the promises that the probe (ps_sim_probe.h) checks: conditions that a
 * publication or an image must fulfil within a time. The header has one enum for publications and
 * one for images.
 */
#ifndef PS_SIM_PROMISE_H
#define PS_SIM_PROMISE_H

#include <stdbool.h>
#include <stdint.h>

/* Promises on a publication: conditions that must become true within a time. The comment beside a
 * promise names the file that checks it. The same file checks the promises after it, up to the next
 * comment. */
enum ps_probe_pub_promise {
    P_PUB_LIMIT, /* ps_sim_probe_fc.c */
    P_PUB_RECEIVERS,
    P_PUB_CONNECTED,
    P_PUB_ADOPTS,
    P_PUB_SETUP, /* ps_sim_probe_send.c */
    P_PUB_BEAT,
    P_PUB_SEND,
    P_PUB_ROOM, /* ps_sim_probe_pub.c */
    P_PUB_PULLED,
    P_PUB_STORAGE,
    P_PUB_HELD,
    P_PUB_CAUSE,
    P_PUB_WAITED,
    P_PUB_FOLLOWED,
    P_PUB_READERS,
    P_PUB_DRAINED,
    P_PUB_CELLS,
    P_PUB_NOTIFIED,
    P_PUB_LOCAL,            /* ps_sim_probe_rate.c */
    P_PUB_STEPPED,          /* ps_sim_probe_nak.c */
    P_PUB_STAND_IN,         /* ps_sim_probe_spy.c */
    P_PUB_CONNECTION_EVENT, /* ps_sim_probe_event.c */
    P_PUB_DRAINED_EVENT,
    P_PUB_TERM_EVENT,
    P_PUB_TRIGGERED, /* ps_sim_probe_pressure.c */
    P_PUB_RELIEVED,
    P_PUB_WATERMARK,
    P_PUB_WAKE_AT, /* ps_sim_probe_shown.c */
    P_PUB_WAKE,    /* ps_sim_probe_work.c */
    PS_PROBE_PUB_PROMISES
};

/* Conditions on an image. */
enum ps_probe_image_promise {
    P_IMAGE_CONSUMED, /* ps_sim_probe_img.c */
    P_IMAGE_CLEANED,
    P_IMAGE_WITHDRAWN,
    P_IMAGE_SHOWN,
    P_IMAGE_COUNTED,
    P_IMAGE_FIRST, /* ps_sim_probe_recv.c */
    P_IMAGE_SM,
    P_IMAGE_DUE,
    P_IMAGE_PRESSURE,
    P_IMAGE_CATCHES_UP,
    P_IMAGE_LEAVES_OFF,
    P_IMAGE_ALIVE,
    P_IMAGE_ENDED,
    P_IMAGE_DRAINED,
    P_IMAGE_REQUEST, /* ps_sim_probe_ask.c */
    P_IMAGE_GOES_ON,
    P_IMAGE_PATHS,      /* ps_sim_probe_path.c */
    P_IMAGE_LOSS_EVENT, /* ps_sim_probe_event.c */
    P_IMAGE_ENDED_EVENT,
    P_IMAGE_DRAINED_EVENT,
    P_IMAGE_TERM_EVENT,
    P_IMAGE_WAKE_AT, /* ps_sim_probe_shown.c */
    P_IMAGE_LIMITS,
    P_IMAGE_GAPS,
    P_IMAGE_MEASURED, /* ps_sim_probe_reader.c */
    PS_PROBE_IMAGE_PROMISES
};

/* State of a promise. While the promised condition is false, since_ns is 1 + the time at which the
 * probe first found it false. While the condition is true, since_ns is 0. */
typedef struct ps_probe_promise {
    int64_t since_ns;
    bool broken;
} ps_probe_promise_t;

typedef struct ps_probe_tether {
    bool known;
    int32_t id, state;
    int64_t since_ns, near_ns; /* `since_ns`: start of the present tether state. `near_ns`: last
                                * check at which the subscriber was near the other subscribers. */
    int64_t surely_ns, far_ns; /* `far_ns`: last check at which the subscriber was behind the
                                * others. `surely_ns`: last check, at least one check interval after
                                * `far_ns`, at which the subscriber was near the others. */
} ps_probe_tether_t;

#endif
