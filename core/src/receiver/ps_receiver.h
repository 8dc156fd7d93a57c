/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver.h: the receiver agent's state. After the creation, the receiver thread owns the
 * state; the conductor thread owns the fields below the comment "conductor". */
#ifndef PS_RECEIVER_H
#define PS_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_half_open.h"
#include "ps_image.h"
#include "ps_recv_endpoint.h"
#include "ps_shared.h"
#include "ps_timers.h"
#include "ps_wake.h"
#include "ps_wire.h"

enum { PS_RECEIVER_ENDPOINTS_MAX = 1024, PS_RECEIVER_RECV_LIMIT = 256, PS_OUTBOX_SLOTS = 32 };
#define PS_TICK_NS INT64_C(1000000)

/* Buffer for control frames that go to the same address through the same socket; the receiver sends
 * all these frames with one call. */
typedef struct ps_outbox {
    const ps_recv_destination_t *destination;
    ps_addr_t to;
    int32_t count;
    ps_dgram_t dgrams[PS_OUTBOX_SLOTS];
    uint8_t frames[PS_OUTBOX_SLOTS][PS_CONTROL_MAX];
} ps_outbox_t;

/* An event PS_EV_RELEASED that the receiver must still emit, because the event ring was full. */
typedef struct ps_pending_release {
    int64_t id;
    int64_t destination; /* RECV_DESTINATION only */
    int32_t kind;
} ps_pending_release_t;

struct ps_receiver {
    const ps_context_t *context;
    ps_agent_t *agent;
    const ps_driver_params_t *params;
    const ps_net_ops_t *ops;
    ps_shared_t *shared;
    ps_random_t random;
    int64_t now_ns;       /* of the current duty cycle */
    int64_t timer_due_ns; /* time at which the earliest timer of the receiver is due; INT64_MAX: no
                           * timer runs */
    ps_timers_t timers;   /* the timers of all images, except the timers of gaps */
    int64_t last_tick_ns;
    int64_t nak_due_ns; /* Earliest time at which the receiver must send a NAK for a gap of an image
                         * in `hot`. */
    uint64_t cycle;
    ps_recv_endpoint_t *endpoints[PS_RECEIVER_ENDPOINTS_MAX];
    int32_t n_endpoints;
    int32_t n_destinations;
    ps_image_t **images; /* all */
    ps_image_t **hot;    /* Images that the receiver processes in each duty cycle: those with gaps,
                          * unread data, or new datagrams. */
    int32_t n_images;
    int32_t n_hot;
    int32_t n_granting; /* Number of hot images after the last duty cycle whose readers grant
                         * credits. */
    int32_t images_limit;
    ps_half_open_t half_open;
    ps_pending_release_t *releases; /* releases_limit */
    int32_t n_releases;
    int32_t releases_limit; /* Capacity of `releases`: one entry for each image, endpoint and
                             * destination. */
    int64_t bytes_received; /* Number of bytes received in this duty cycle that the receiver has not
                             * yet added to the system counter. */
    int64_t sm_sent;
    int64_t naks_sent;
    _Atomic uint64_t faults[PS_WIRE_FAULTS]; /* Number of malformed datagrams for each
                                              * ps_wire_fault. The receiver writes the array; any
                                              * thread may read it. */
    ps_outbox_t outbox;
    /* conductor */
    int32_t opened_endpoints;
    int32_t opened_images;
    int32_t most_images; /* Largest number of images since the driver last released unused
                          * memory. */
};

/* Copies the number of dropped datagrams for each ps_wire_fault (the reason for the drop). Any
 * thread. */
void ps_receiver_faults(const ps_receiver_t *receiver, uint64_t out[PS_WIRE_FAULTS]);

/* ---- receiver thread ------------------------------------------------------------------------- */

void ps_receiver_fault(ps_receiver_t *receiver, int32_t fault);
/* Returns the memory into which the caller writes one control frame for the address `to`. The
 * caller writes at most PS_CONTROL_MAX bytes, then calls ps_receiver_outbox_commit. If the outbox
 * is full, or has frames to an address other than `to`, the function first sends the frames in the
 * outbox. */
uint8_t *ps_receiver_outbox(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                            const ps_addr_t *to);
void ps_receiver_outbox_commit(ps_receiver_t *receiver, uint32_t length);
void ps_receiver_flush(ps_receiver_t *receiver);
/* Records that a timer is due at due_ns. */
static inline void ps_receiver_timer(ps_receiver_t *receiver, int64_t due_ns)
{
    if (due_ns < receiver->timer_due_ns) {
        receiver->timer_due_ns = due_ns;
    }
}
void ps_receiver_make_hot(ps_receiver_t *receiver, ps_image_t *image);
void ps_receiver_forget_image(ps_receiver_t *receiver, ps_image_t *image);
/* Notifies the conductor that the conductor may destroy an object. If the event ring is full, keeps
 * the event and emits it later. `destination` is the id of a released destination, 0 for other
 * objects. */
void ps_receiver_release(ps_receiver_t *receiver, int32_t kind, int64_t id, int64_t destination);
/* Emits the events PS_EV_RELEASED that did not fit into the event ring earlier. */
void ps_receiver_retry_releases(ps_receiver_t *receiver);
/* Processes one datagram that arrived at a destination. The function is a ps_on_datagram_fn; its
 * `context` is the ps_recv_destination_t. */
void ps_receiver_on_datagram(void *context, const uint8_t *data, uint32_t length,
                             const ps_addr_t *from, int64_t rx_ns);
/* Callbacks with which the transport receives datagrams of a stream directly into a log
 * (ps_direct_t). */
extern const ps_direct_t ps_receiver_direct;
/* Processes a buffer of datagrams that arrived at a destination. The kernel has joined these
 * datagrams into the buffer. The function is a ps_on_run_fn. */
void ps_receiver_on_run(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                        const ps_addr_t *from, int64_t rx_ns);

#endif
