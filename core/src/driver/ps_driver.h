/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver.h: the functions by which the conductor controls the data plane and gets events from
 * it.
 *
 * There are two agents: the sender owns the publications, and the receiver owns the images. The
 * conductor creates an object and hands it over to its agent with a command. The agent reports
 * events to the conductor, which reads them with ps_driver_poll_event. The conductor's call of an
 * object's _add_ or _open_ function makes the agent the owner of the object. The agent's ownership
 * ends when the agent emits PS_EV_RELEASED for the object. After PS_EV_RELEASED, the conductor may
 * call the object's _destroy_ function. Only the conductor thread may call these functions, unless
 * a comment states otherwise.
 *
 * The simulator runs the same objects without threads (threading PS_INVOKER, ps_driver_step, a
 * simulated ps_net). This header is also the cffi declaration (plain types and enums only).
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

/* Sets net, cnc, shared, seed and the ids to zero, and all other parameters to their defaults. */
void ps_driver_params_default(ps_driver_params_t *params);
int ps_driver_create(const ps_driver_params_t *params, ps_driver_t **out);
/* Starts the threads of the agents: one common thread with PS_SHARED, one thread for each agent
 * with PS_DEDICATED. With PS_INVOKER, the driver has no threads, so the function does nothing. */
int ps_driver_start(ps_driver_t *driver);
/* Stops the threads and waits until they have ended; objects stay valid. Idempotent. */
void ps_driver_stop(ps_driver_t *driver);
/* Stops the threads, then frees all remaining objects. */
void ps_driver_destroy(ps_driver_t *driver);
/* In INVOKER mode: runs one duty cycle of both agents at time now_ns. Returns the amount of work
 * that the agents did; 0: none. */
int32_t ps_driver_step(ps_driver_t *driver, int64_t now_ns);
/* In INVOKER mode: returns the time at which the next timer of either agent is due; INT64_MAX: no
 * timer runs. */
int64_t ps_driver_next_deadline_ns(ps_driver_t *driver, int64_t now_ns);
/* Returns an eventfd that becomes readable when the agents have emitted events. A read of the
 * eventfd clears it. -1 in INVOKER mode. */
int32_t ps_driver_event_fd(const ps_driver_t *driver);
/* Return the eventfds with which clients wake a sleeping agent; -1 in INVOKER mode. */
int32_t ps_driver_wake_fd(const ps_driver_t *driver, int32_t agent);
/* Wakes both agents (shut-down, tests).  Any thread. */
void ps_driver_wake(ps_driver_t *driver);
/* Returns the number of duty cycles that an agent has run, so that a watchdog can detect a stopped
 * agent. Any thread. */
uint64_t ps_driver_duty_cycles(const ps_driver_t *driver, int32_t agent);
/* For each ps_wire_fault f, out[f] gets the number of malformed datagrams that the receiver dropped
 * because of this fault. The other entries become 0. Any thread. */
void ps_driver_faults(const ps_driver_t *driver, uint64_t out[16]);

/* ---- events ---------------------------------------------------------------------------------- */

/* Takes the next event from an agent. Returns 1 and fills *out, or returns 0 if no event waits. */
int32_t ps_driver_poll_event(ps_driver_t *driver, ps_event_t *out);

/* ---- send endpoints -------------------------------------------------------------------------- */

/* Opens the sockets and hands the endpoint over to the sender. Returns the errors of
 * ps_net_ops.open. */
int ps_send_endpoint_open(ps_driver_t *driver, const ps_send_endpoint_params_t *params,
                          ps_send_endpoint_t **out);
void ps_send_endpoint_local(const ps_send_endpoint_t *endpoint, ps_addr_t *out);
/* Adds a destination to a manual multi-destination channel. destination_id must be unique in the
 * endpoint. PS_E_AGAIN, PS_E_NO_SPACE (64 destinations). */
int ps_send_endpoint_add_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                     int64_t destination_id, const ps_addr_t *address);
int ps_send_endpoint_remove_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                        int64_t destination_id);
/* Replaces the address of a destination after its host name was resolved again. The destination_id
 * -1 means the peer of a unicast endpoint. */
int ps_send_endpoint_set_address(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *address);
/* Requests that the sender releases the endpoint; the sender then emits PS_EV_RELEASED. The caller
 * must have removed all publications of the endpoint before this call. */
int ps_send_endpoint_remove(ps_driver_t *driver, ps_send_endpoint_t *endpoint);
void ps_send_endpoint_destroy(ps_driver_t *driver, ps_send_endpoint_t *endpoint);

/* ---- publications ---------------------------------------------------------------------------- */

/* Maps the log, initialises flow control, and hands the publication over to the sender. The
 * function may return PS_E_SYSTEM, PS_E_VERSION (the log metadata has another version),
 * PS_E_NO_MEMORY or PS_E_AGAIN. */
int ps_publication_add(ps_driver_t *driver, const ps_publication_params_t *params,
                       ps_publication_t **out);
/* Changes the credits that a local reader grants. A new credit epoch begins if the reader grants
 * fewer credits than before, freezes its credits, or ends a freeze (see ps_slot_read_credit). The
 * local reader must have granted credits since its join. Error: PS_E_AGAIN. */
int ps_publication_set_credits(ps_driver_t *driver, ps_publication_t *publication,
                               int32_t position_counter_id, int64_t credits, int64_t burst,
                               int32_t frozen);
/* Spy or IPC subscriber. */
int ps_publication_add_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                  const ps_subscriber_params_t *params);
int ps_publication_remove_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                     int32_t position_counter_id);
/* Add and remove a client that the sender wakes when the publisher limit moves. */
int ps_publication_add_client(ps_driver_t *driver, ps_publication_t *publication,
                              int32_t client_slot);
int ps_publication_remove_client(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t client_slot);
/* Drains a publication that no client uses any more: accepts no further messages, sends the
 * remaining data, then emits PS_EV_PUB_DRAINED. */
int ps_publication_drain(ps_driver_t *driver, ps_publication_t *publication);
int ps_publication_revoke(ps_driver_t *driver, ps_publication_t *publication);
/* Replaces the uncommitted claims of the dead client in client_slot with padding. If client_slot is
 * -1, replaces any claim that blocks the log. */
int ps_publication_unblock(ps_driver_t *driver, ps_publication_t *publication, int32_t client_slot);
/* Notifies the sender that the conductor has reserved the log's storage up to `position`.
 * INT64_MAX: the conductor has reserved the storage of all three terms. */
int ps_publication_reserved(ps_driver_t *driver, ps_publication_t *publication, int64_t position);
/* Requests that the sender releases the unused terms. The memory stays reserved until the sender
 * has answered with the event PS_EV_TERMS_RELEASED. After the release, an earlier request for
 * storage (PS_EV_TERM_NEEDED) is void; the sender emits a new request when it needs storage again.
 * The parameter least_terms is the number of terms to keep, beginning with the term in use: 1 or 2.
 */
int ps_publication_release_terms(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t least_terms);
void ps_publication_get_status(const ps_publication_t *publication, ps_publication_status_t *out);

/* Copies the publication's live receivers to `out`, at most `capacity`; returns their number. Any
 * thread may call this function, but only one thread at a time. */
int32_t ps_publication_receivers(const ps_publication_t *publication, ps_receiver_view_t *out,
                                 int32_t capacity);
/* In a join hold, the sender holds the stream back so that a receiver can join (ps_join.h). Copies
 * the id and the address of the receiver that caused the latest join hold. Returns 1, or 0 if there
 * was no join hold. */
int32_t ps_publication_joiner(const ps_publication_t *publication, ps_receiver_view_t *out);
/* For PS_FC_CUSTOM: sets the sender limit that a Python strategy computed. The limit is valid until
 * until_ns on the driver's clock. */
int ps_publication_set_limit(ps_driver_t *driver, ps_publication_t *publication, int64_t limit,
                             int64_t until_ns);
/* Requests that the sender releases the publication; the sender then emits PS_EV_RELEASED. */
int ps_publication_remove(ps_driver_t *driver, ps_publication_t *publication);
void ps_publication_destroy(ps_driver_t *driver, ps_publication_t *publication);

/* ---- receive endpoints ----------------------------------------------------------------------- */

/* Hands an endpoint without sockets over to the receiver. After this call, the caller must add the
 * endpoint's destinations: one for a plain channel, several for a multi-destination
 * subscription. */
int ps_recv_endpoint_open(ps_driver_t *driver, const ps_recv_endpoint_params_t *params,
                          ps_recv_endpoint_t **out);
/* Adds a destination: opens its socket, and stores the bound address in *local. Returns the errors
 * of ps_net_ops.open. */
int ps_recv_endpoint_add_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     const ps_recv_destination_params_t *params, ps_addr_t *local);
/* Requests that the receiver stops reading the socket of a destination. After the event
 * PS_EV_RELEASED for the destination, the caller closes the socket with _destroy_destination. */
int ps_recv_endpoint_remove_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                        int64_t destination_id);
/* Closes and frees a destination that the receiver released. PS_E_INVALID: the receiver has not
 * released the destination. */
int ps_recv_endpoint_destroy_destination(ps_recv_endpoint_t *endpoint, int64_t destination_id);
/* Enlarges the receive buffer of the destination's socket to `bytes` (1..PS_RECV_BUFFER_MAX), or as
 * far as the kernel allows. *got gets the new size, as a value for setsockopt(SO_RCVBUF).
 * PS_E_INVALID, PS_E_SYSTEM. */
int ps_recv_endpoint_fit_buffer(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                int64_t destination_id, int32_t bytes, int32_t *got);
/* Replaces the control address of a destination, after its host name was resolved again. */
int ps_recv_endpoint_set_control(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *control);
/* Makes the receiver accept DATA and SETUP frames of a session of a stream. If any_session is 1,
 * the receiver accepts every session of the stream. */
int ps_recv_endpoint_add_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                  int32_t stream_id, int32_t session_id, int32_t any_session);
int ps_recv_endpoint_remove_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     int32_t stream_id, int32_t session_id, int32_t any_session);
/* Call this function after the event PS_EV_SETUP if the conductor creates no image for the session.
 * With keep = 1, the receiver ignores the session as long as a subscription reads the stream. With
 * keep = 0, the receiver reports the session's next SETUP. */
int ps_recv_endpoint_forget_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t keep);
/* Refuses a SETUP from which the conductor cannot create an image. The receiver sends an ERR frame
 * with the reason (at most 127 bytes) to the sender at `source`. The ERR frame leaves through the
 * destination on which the SETUP arrived. The receiver ignores the session for PS_REFUSED_NS, so
 * that repeated SETUPs cost little. */
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
/* Returns the position at which a further subscriber joins: the lowest of the receiver position and
 * all subscriber positions. */
int64_t ps_image_join_position(const ps_image_t *image);
/* Starts to drain an image. After this call, the image's status messages have the EOS flag. When
 * all subscribers have read to the end, the receiver emits PS_EV_IMAGE_DRAINED. */
int ps_image_drain(ps_driver_t *driver, ps_image_t *image);
/* Rejects the image at an application's request. The receiver sends ERR frames instead of status
 * messages, until the image ends because of its liveness time-out. */
int ps_image_reject(ps_driver_t *driver, ps_image_t *image, const char *reason);
int ps_image_reserved(ps_driver_t *driver, ps_image_t *image, int64_t position);
/* Like ps_publication_release_terms, for an image. */
int ps_image_release_terms(ps_driver_t *driver, ps_image_t *image, int32_t least_terms);
void ps_image_get_status(const ps_image_t *image, ps_image_status_t *out);
/* For PS_CC_CUSTOM: sets the congestion window that the Python class returned, in bytes. The
 * receiver clips the window to the range from two datagrams up to the receiver window. The window
 * is valid until the next call of this function, but at most for PS_CC_SILENT_NS. */
int ps_image_set_congestion_window(ps_driver_t *driver, ps_image_t *image, int64_t window);
/* Sets an upper bound for the receiver window of an image. The conductor does so if the
 * subscription divides its window among several images (ps-fanin). The bound is a multiple of 32
 * bytes, at least two MTUs; 0: no bound. The bound has no effect under NAK-strength flow control
 * (fc=nak), because the sender then does not obey windows. */
int ps_image_set_share(ps_driver_t *driver, ps_image_t *image, int64_t window);
/* For PS_CC_CUSTOM: copies to `out` the values from which the Python class computes the congestion
 * window. All values are 0 until the receiver has processed the image for the first time. */
void ps_image_get_congestion(const ps_image_t *image, ps_congestion_view_t *out);
/* Removes the image. With keep_session = 1 (for rejoin=false), the receiver ignores the session of
 * the removed image as long as a subscription reads the stream. */
int ps_image_remove(ps_driver_t *driver, ps_image_t *image, int32_t keep_session);
void ps_image_destroy(ps_driver_t *driver, ps_image_t *image);

#endif
