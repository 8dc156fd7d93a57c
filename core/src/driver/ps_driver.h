/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver.h: the calls by which the conductor controls the data plane, and the events that the
 * conductor gets.
 *
 * Two agents, sender and receiver, own publications and images. The conductor creates objects,
 * hands them over with a command (single-producer ring), and gets events (one single-consumer ring
 * per agent, read by ps_driver_poll_event). The agent owns an object from the call of _add_ until
 * it emits PS_EV_RELEASED for the object. Afterwards the conductor may call _destroy_. Only the
 * conductor thread may call these functions, unless stated otherwise.
 *
 * The same objects run in the simulator (threading PS_INVOKER, ps_driver_step, a simulated ps_net).
 * This header is also the cffi declaration (plain types and enums only).
 */
#ifndef PS_DRIVER_H
#define PS_DRIVER_H

#include <stdint.h>

#include "ps_choices.h"
#include "ps_driver_params.h"
#include "ps_event.h"
#include "ps_image_params.h"
#include "ps_networks.h"
#include "ps_publication_params.h"

typedef struct ps_driver ps_driver_t;

/* ---- driver ---------------------------------------------------------------------------------- */

/* Fills in the defaults; net, cnc, shared, seed and ids stay zero. */
void ps_driver_params_default(ps_driver_params_t *params);
int ps_driver_create(const ps_driver_params_t *params, ps_driver_t **out);
/* Starts threads (SHARED: one, DEDICATED: two).  INVOKER: nothing to start. */
int ps_driver_start(ps_driver_t *driver);
/* Stops and joins threads; objects stay valid.  Idempotent. */
void ps_driver_stop(ps_driver_t *driver);
/* Stops the threads, then frees all remaining objects. */
void ps_driver_destroy(ps_driver_t *driver);
/* INVOKER: one duty cycle of both agents at now_ns.  Returns the work done (0: nothing). */
int32_t ps_driver_step(ps_driver_t *driver, int64_t now_ns);
/* INVOKER: time of the next timer of either agent, INT64_MAX if none. */
int64_t ps_driver_next_deadline_ns(ps_driver_t *driver, int64_t now_ns);
/* Returns a descriptor that becomes readable when events wait (an eventfd; read it to clear it); -1
 * in INVOKER mode. */
int32_t ps_driver_event_fd(const ps_driver_t *driver);
/* eventfds that wake a parked agent, to be given to clients; -1 in INVOKER. */
int32_t ps_driver_wake_fd(const ps_driver_t *driver, int32_t agent);
/* Wakes both agents (shut-down, tests).  Any thread. */
void ps_driver_wake(ps_driver_t *driver);
/* Returns the number of duty cycles so far, for the watchdog.  Any thread. */
uint64_t ps_driver_duty_cycles(const ps_driver_t *driver, int32_t agent);
/* Datagrams that the receiver dropped as malformed, by cause (index: ps_wire_fault, 1..8: short,
 * negative length, version, alignment, truncated, unknown type, bad field, bad chain; the rest 0).
 * Any thread. */
void ps_driver_faults(const ps_driver_t *driver, uint64_t out[16]);

/* ---- events ---------------------------------------------------------------------------------- */

/* Takes the next event of either agent; 1 = out filled, 0 = none. */
int32_t ps_driver_poll_event(ps_driver_t *driver, ps_event_t *out);

/* ---- send endpoints -------------------------------------------------------------------------- */

/* Opens the sockets (errors as ps_net_ops.open) and hands the endpoint over to the sender. */
int ps_send_endpoint_open(ps_driver_t *driver, const ps_send_endpoint_params_t *params,
                          ps_send_endpoint_t **out);
void ps_send_endpoint_local(const ps_send_endpoint_t *endpoint, ps_addr_t *out);
/* Manual MDC.  destination_id is unique per endpoint.  PS_E_AGAIN, PS_E_NO_SPACE (64
 * destinations). */
int ps_send_endpoint_add_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                     int64_t destination_id, const ps_addr_t *address);
int ps_send_endpoint_remove_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                        int64_t destination_id);
/* Replaces the address of a destination after its name was resolved again. destination_id -1: the
 * unicast peer. */
int ps_send_endpoint_set_address(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *address);
/* Requests the sender to release the endpoint; PS_EV_RELEASED follows. No publication may use the
 * endpoint any more. */
int ps_send_endpoint_remove(ps_driver_t *driver, ps_send_endpoint_t *endpoint);
void ps_send_endpoint_destroy(ps_driver_t *driver, ps_send_endpoint_t *endpoint);

/* ---- publications ---------------------------------------------------------------------------- */

/* Maps the log, initialises flow control, hands over to the sender.
 * PS_E_SYSTEM, PS_E_VERSION (log metadata), PS_E_NO_MEMORY, PS_E_AGAIN. */
int ps_publication_add(ps_driver_t *driver, const ps_publication_params_t *params,
                       ps_publication_t **out);
/* Changes the credits that a local reader grants. A lower number, a freeze and the end of a freeze
 * each begin a new epoch: see ps_slot_read_credit. The reader must have joined with credits.
 * PS_E_AGAIN. */
int ps_publication_set_credits(ps_driver_t *driver, ps_publication_t *publication,
                               int32_t position_counter_id, int64_t credits, int64_t burst,
                               int32_t frozen);
/* Spy or IPC subscriber. */
int ps_publication_add_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                  const ps_subscriber_params_t *params);
int ps_publication_remove_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                     int32_t position_counter_id);
/* Sets the clients that must be woken when the limit moves. */
int ps_publication_add_client(ps_driver_t *driver, ps_publication_t *publication,
                              int32_t client_slot);
int ps_publication_remove_client(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t client_slot);
/* Drains a publication without clients: stops producers, sends the remaining data, then emits
 * PS_EV_PUB_DRAINED. */
int ps_publication_drain(ps_driver_t *driver, ps_publication_t *publication);
int ps_publication_revoke(ps_driver_t *driver, ps_publication_t *publication);
/* Turns the claims of the dead client in client_slot into padding; -1: any blocking claim. */
int ps_publication_unblock(ps_driver_t *driver, ps_publication_t *publication, int32_t client_slot);
/* Notifies the sender that storage is reserved below position (INT64_MAX: all three terms). */
int ps_publication_reserved(ps_driver_t *driver, ps_publication_t *publication, int64_t position);
/* Requests the sender to release the terms that are not in use; PS_EV_TERMS_RELEASED follows. The
 * memory stays reserved until this event. A term that was requested before the event may be
 * missing; if the sender needs this term, it sends another request. least_terms: number of terms to
 * keep, beginning with the term in use; 1 or 2. */
int ps_publication_release_terms(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t least_terms);
void ps_publication_get_status(const ps_publication_t *publication, ps_publication_status_t *out);

/* Copies the live receivers to out, at most capacity; returns their number. Any one thread. */
int32_t ps_publication_receivers(const ps_publication_t *publication, ps_receiver_view_t *out,
                                 int32_t capacity);
/* Copies id and address of the receiver that had the last join hold. 1: out is filled, 0: there was
 * none. */
int32_t ps_publication_joiner(const ps_publication_t *publication, ps_receiver_view_t *out);
/* PS_FC_CUSTOM: sets the limit that a strategy computed, valid until until_ns (driver's clock). */
int ps_publication_set_limit(ps_driver_t *driver, ps_publication_t *publication, int64_t limit,
                             int64_t until_ns);
/* Removes the publication from the sender; PS_EV_RELEASED follows. */
int ps_publication_remove(ps_driver_t *driver, ps_publication_t *publication);
void ps_publication_destroy(ps_driver_t *driver, ps_publication_t *publication);

/* ---- receive endpoints ----------------------------------------------------------------------- */

/* Hands an endpoint without sockets over to the receiver. Afterwards add its destinations: one for
 * a plain channel, several for a multi-destination subscription. */
int ps_recv_endpoint_open(ps_driver_t *driver, const ps_recv_endpoint_params_t *params,
                          ps_recv_endpoint_t **out);
/* Opens the socket (errors as ps_net_ops.open); *local gets its bound address. */
int ps_recv_endpoint_add_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     const ps_recv_destination_params_t *params, ps_addr_t *local);
/* Requests the receiver to stop reading the socket. PS_EV_RELEASED (PS_KIND_RECV_DESTINATION)
 * follows; then _destroy_destination closes the socket. */
int ps_recv_endpoint_remove_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                        int64_t destination_id);
/* Closes and frees a destination that the receiver released. PS_E_INVALID: the receiver has not
 * released it. */
int ps_recv_endpoint_destroy_destination(ps_recv_endpoint_t *endpoint, int64_t destination_id);
/* Enlarges the socket's receive buffer to `bytes` (1..PS_RECV_BUFFER_MAX) as far as the kernel
 * allows; *got: the new size of the buffer, in the unit of SO_RCVBUF. PS_E_INVALID, PS_E_SYSTEM. */
int ps_recv_endpoint_fit_buffer(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                int64_t destination_id, int32_t bytes, int32_t *got);
/* New control address after re-resolution. */
int ps_recv_endpoint_set_control(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *control);
/* Makes the receiver accept DATA and SETUP frames of (stream, session). any_session = 1: of every
 * session of the stream. */
int ps_recv_endpoint_add_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                  int32_t stream_id, int32_t session_id, int32_t any_session);
int ps_recv_endpoint_remove_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     int32_t stream_id, int32_t session_id, int32_t any_session);
/* Answers a SETUP that PS_EV_SETUP reported, if the conductor makes no image. keep = 1: the
 * receiver ignores the session as long as a subscription reads the stream; 0: the receiver reports
 * the next SETUP. */
int ps_recv_endpoint_forget_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t keep);
/* Refuses a SETUP that can never become an image. The sender at `source`, whose SETUP arrived at
 * the destination with that index, gets an ERR frame with the reason (at most 127 bytes). The
 * receiver ignores the session for PS_REFUSED_NS, so that repeated SETUPs cost little. */
int ps_recv_endpoint_refuse_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t destination,
                                    const ps_addr_t *source, const char *reason);
int ps_recv_endpoint_remove(ps_driver_t *driver, ps_recv_endpoint_t *endpoint);
void ps_recv_endpoint_destroy(ps_driver_t *driver, ps_recv_endpoint_t *endpoint);

/* ---- images ---------------------------------------------------------------------------------- */

int ps_image_add(ps_driver_t *driver, const ps_image_params_t *params, ps_image_t **out);
/* As ps_publication_set_credits. */
int ps_image_set_credits(ps_driver_t *driver, ps_image_t *image, int32_t position_counter_id,
                         int64_t credits, int64_t burst, int32_t frozen);
int ps_image_add_subscriber(ps_driver_t *driver, ps_image_t *image,
                            const ps_subscriber_params_t *params);
int ps_image_remove_subscriber(ps_driver_t *driver, ps_image_t *image, int32_t position_counter_id);
/* Returns the join position of a further subscriber: min(rcv-pos, all subscriber positions). */
int64_t ps_image_join_position(const ps_image_t *image);
/* Starts draining. Status messages carry EOS from now on, and PS_EV_IMAGE_DRAINED follows when all
 * subscribers are at the end. */
int ps_image_drain(ps_driver_t *driver, ps_image_t *image);
/* Rejects the image at an application's request. The receiver sends ERR frames instead of status
 * messages until the image's liveness time-out ends it. */
int ps_image_reject(ps_driver_t *driver, ps_image_t *image, const char *reason);
int ps_image_reserved(ps_driver_t *driver, ps_image_t *image, int64_t position);
/* Like ps_publication_release_terms, for an image. */
int ps_image_release_terms(ps_driver_t *driver, ps_image_t *image, int32_t least_terms);
void ps_image_get_status(const ps_image_t *image, ps_image_status_t *out);
/* PS_CC_CUSTOM: sets the window that the class returned, in bytes, clipped to the range from two
 * datagrams to the receiver window. The window is valid until the next call, at most for
 * PS_CC_SILENT_NS. */
int ps_image_set_congestion_window(ps_driver_t *driver, ps_image_t *image, int64_t window);
/* PS_CC_CUSTOM: copies the input of the class; all 0 before the receiver's first pass. */
void ps_image_get_congestion(const ps_image_t *image, ps_congestion_view_t *out);
/* Removes the image. keep_session = 1 (rejoin=false): the receiver ignores the session as long as a
 * subscription reads the stream. */
int ps_image_remove(ps_driver_t *driver, ps_image_t *image, int32_t keep_session);
void ps_image_destroy(ps_driver_t *driver, ps_image_t *image);

#endif
