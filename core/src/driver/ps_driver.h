/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_driver.h: what the control plane (conductor) says to the data plane, and hears from it.
 *
 * Two agents, sender and receiver, own publications and images.  The conductor creates objects,
 * hands them over with a command (single-producer ring), and hears back through events (one
 * single-consumer ring per agent, drained by ps_driver_poll_event).  An object is owned by its
 * agent from _add_ until the event PS_EV_RELEASED for it; then the conductor may _destroy_ it.
 * All functions here: conductor thread only, unless said otherwise.
 *
 * The same objects run in the simulator (threading PS_INVOKER, ps_driver_step, a simulated ps_net).
 * This header is also the cffi declaration (plain types and enums only).
 */
#ifndef PS_DRIVER_H
#define PS_DRIVER_H

#include <stdint.h>

#include "ps_types.h"

typedef struct ps_driver ps_driver_t;
typedef struct ps_net ps_net_t;
typedef struct ps_cnc ps_cnc_t;
typedef struct ps_shared ps_shared_t;
typedef struct ps_send_endpoint ps_send_endpoint_t;
typedef struct ps_recv_endpoint ps_recv_endpoint_t;
typedef struct ps_publication ps_publication_t;
typedef struct ps_image ps_image_t;

/* ---- networks -------------------------------------------------------------------------------- */

/* Kernel UDP. */
ps_net_t *ps_net_udp(void);

/* Impairment of one direction; probabilities in parts per million, times in ns. */
typedef struct ps_impair_params {
    uint32_t send_loss_ppm;
    uint32_t recv_loss_ppm;
    uint32_t duplicate_ppm; /* on receive */
    uint32_t reorder_ppm;   /* on receive: held back behind the next datagram */
    uint32_t corrupt_ppm;   /* on receive: one bit flipped */
    int64_t delay_ns;       /* on receive, fixed */
    int64_t jitter_ns;      /* on receive, uniform in [0, jitter_ns] */
    uint64_t seed;
} ps_impair_params_t;

/* Wraps (and takes over) inner. */
ps_net_t *ps_net_impair(ps_net_t *inner, const ps_impair_params_t *params);
void ps_net_free(ps_net_t *net);

/* ---- driver ---------------------------------------------------------------------------------- */

enum ps_threading { PS_INVOKER = 0, PS_SHARED = 1, PS_DEDICATED = 2 };
enum ps_idle { PS_IDLE_PARK = 0, PS_IDLE_BACKOFF = 1, PS_IDLE_YIELD = 2, PS_IDLE_SPIN = 3 };
enum ps_agent_id { PS_AGENT_SENDER = 0, PS_AGENT_RECEIVER = 1 };

typedef struct ps_driver_params {
    ps_net_t *net;       /* taken over */
    ps_cnc_t *cnc;       /* borrowed */
    ps_shared_t *shared; /* borrowed */
    int32_t threading;   /* ps_threading */
    int32_t idle;        /* ps_idle */
    int32_t sender_cpu;  /* CPU to pin to, -1 none */
    int32_t receiver_cpu;
    uint64_t seed;            /* of the injected generators */
    int64_t receiver_id_base; /* non-zero */
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    int64_t setup_interval_ns;     /* 100 ms */
    int64_t heartbeat_interval_ns; /* 100 ms */
    /* 1 s, after idle_after_ns of silence; = 100 ms: no back-off */
    int64_t idle_heartbeat_interval_ns;
    int64_t idle_after_ns;                /* 1 s */
    int64_t status_message_timeout_ns;    /* 200 ms */
    int64_t connection_timeout_ns;        /* 5 s: receivers, destinations, connections */
    int64_t image_liveness_timeout_ns;    /* 10 s */
    int64_t unblock_timeout_ns;           /* 15 s */
    int64_t retransmit_delay_ns;          /* 0 */
    int64_t retransmit_linger_ns;         /* 10 ms */
    int64_t nak_unicast_delay_ns;         /* 1 us .. */
    int64_t nak_unicast_retry_ratio;      /* 100 */
    int64_t nak_multicast_max_backoff_ns; /* 10 ms */
    int64_t pending_setup_timeout_ns;     /* 1 s */
    int32_t nak_multicast_group_size;     /* 10 */
    int32_t max_gaps;                     /* gap list bound per image, 1..16384; 1024 */
    int32_t loss_recovery;                /* ps_loss_recovery; single-gap: as Aeron, to compare */
    int32_t retransmit_percent;           /* of the bytes sent anew, at most; 100 */
    int64_t retransmit_bytes_per_s;       /* beside that, so that an idle stream is repaired */
    int32_t event_capacity;               /* per agent, power of two; 4096 */
    int32_t command_capacity;             /* per agent, power of two; 1024 */
    uint8_t advertise;                    /* send trailers (capabilities) */
    uint8_t cubic_friendly;               /* RFC 9438 section 4.3; 1 */
} ps_driver_params_t;

/* Fills defaults; net, cnc, shared, seed, ids stay zero. */
void ps_driver_params_default(ps_driver_params_t *params);
int ps_driver_create(const ps_driver_params_t *params, ps_driver_t **out);
/* Starts threads (SHARED: one, DEDICATED: two).  INVOKER: nothing to start. */
int ps_driver_start(ps_driver_t *driver);
/* Stops and joins threads; objects stay valid.  Idempotent. */
void ps_driver_stop(ps_driver_t *driver);
/* Stops, then frees everything that is left. */
void ps_driver_destroy(ps_driver_t *driver);
/* INVOKER: one duty cycle of both agents at now_ns.  Returns the work done (0: nothing). */
int32_t ps_driver_step(ps_driver_t *driver, int64_t now_ns);
/* INVOKER: time of the next timer of either agent, INT64_MAX if none. */
int64_t ps_driver_next_deadline_ns(ps_driver_t *driver, int64_t now_ns);
/* Descriptor that becomes readable when events wait (eventfd, read it to clear); -1 in INVOKER. */
int32_t ps_driver_event_fd(const ps_driver_t *driver);
/* eventfds that wake a parked agent, to be given to clients; -1 in INVOKER. */
int32_t ps_driver_wake_fd(const ps_driver_t *driver, int32_t agent);
/* Wakes both agents (shut-down, tests).  Any thread. */
void ps_driver_wake(ps_driver_t *driver);
/* Duty cycles so far; for the watchdog.  Any thread. */
uint64_t ps_driver_duty_cycles(const ps_driver_t *driver, int32_t agent);
/* Datagrams that the receiver dropped as malformed, by cause (index: ps_wire_fault, 1..8: short,
 * negative length, version, alignment, truncated, unknown type, bad field, bad chain; the rest 0).
 * Any thread. */
void ps_driver_faults(const ps_driver_t *driver, uint64_t out[16]);

/* ---- events ---------------------------------------------------------------------------------- */

enum ps_event_type {
    PS_EV_NONE = 0,
    /* endpoint id; an unknown session of a wanted stream: make an image */
    PS_EV_SETUP = 1,
    PS_EV_IMAGE_INACTIVE = 2, /* image id; reason: ps_image_end */
    /* image id; all subscribers are at the end and 5 SM timeouts passed */
    PS_EV_IMAGE_DRAINED = 3,
    PS_EV_PUB_CONNECTED = 4,   /* publication id; a = 1 connected, 0 not */
    PS_EV_PUB_DRAINED = 5,     /* publication id; closing and everything sent (spies done) */
    PS_EV_PUB_EOS_ACK = 6,     /* publication id; the unicast receiver said EOS */
    PS_EV_PUB_BLOCKED = 7,     /* publication id; a = position, b = claimer client slot or -1 */
    PS_EV_PUB_UNBLOCKED = 8,   /* publication id; a = position, b = bytes padded */
    PS_EV_TERM_NEEDED = 9,     /* publication or image id; a = position reserved so far */
    PS_EV_RELEASED = 10,       /* kind: ps_object_kind; id; the conductor may destroy it */
    PS_EV_ENDPOINT_ERROR = 11, /* endpoint id; reason = ps_error_code; text */
    /* send endpoint id; from; a = 1 added, 0 timed out, -1 no place left for it (at most one event
     * a second), b = how often so far */
    PS_EV_DESTINATION = 12,
    /* publication id; an ERR frame: reason = code, a = receiver id, text */
    PS_EV_REMOTE_ERROR = 13,
    /* endpoint id; nothing heard from `from` for 5 s: re-resolve its name */
    PS_EV_SILENT = 14,
    PS_EV_LOSS = 15, /* image id; a = bytes newly lost, b = position */
    /* image or publication id; a = sub-pos counter id; reason: ps_tether_state */
    PS_EV_SUBSCRIBER = 16,
    PS_EV_SESSION_LEFT = 17, /* endpoint id: a cooled down / refused session may come back */
    /* publication or image id; the answer to _give_up: from now on the agent touches no memory but
     * the terms [b, a).  a = -1: it needs what it has */
    PS_EV_GIVEN_UP = 18,
    /* image id; frames of its session come from `from` too, which is not the source followed; once
     * a source that is followed.  a = datagrams so far, destination */
    PS_EV_SECOND_SOURCE = 19
};

enum ps_object_kind {
    PS_KIND_SEND_ENDPOINT = 1,
    PS_KIND_RECV_ENDPOINT = 2,
    PS_KIND_PUBLICATION = 3,
    PS_KIND_IMAGE = 4,
    PS_KIND_RECV_DESTINATION = 5 /* only in PS_EV_RELEASED: id of the endpoint, a of it */
};
enum ps_image_end {
    PS_END_OF_STREAM = 1,
    PS_END_TIMEOUT = 2,
    PS_END_REVOKED = 3,
    PS_END_NO_SUBSCRIBER = 4,
    PS_END_REJECTED = 5
};
enum ps_tether_state {
    PS_TETHER_ACTIVE = 0,
    PS_TETHER_LINGER = 1,
    PS_TETHER_RESTING = 2,
    PS_TETHER_CLOSED = 3
};

typedef struct ps_event {
    int32_t type; /* ps_event_type */
    int32_t kind; /* ps_object_kind of id */
    int64_t id;   /* as given in the object's params */
    int64_t now_ns;
    int64_t a;
    int64_t b;
    int32_t reason;
    /* SETUP */
    int32_t destination; /* index of the receive destination it came by */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t active_term_id;
    int32_t term_offset;
    int32_t term_length;
    int32_t mtu;
    int32_t ttl;
    int32_t setup_flags;
    uint32_t peer_capabilities; /* 0: a plain Aeron peer */
    int64_t peer_ordinal;       /* -1 unknown */
    int32_t peer_flow_control;  /* ps_flow_control of the sender, -1 not stated */
    int64_t peer_group_tag;     /* of the receivers that count, when that is PS_FC_TAGGED */
    ps_addr_t from;
    char text[128]; /* NUL-terminated */
} ps_event_t;

/* Takes the next event of either agent; 1 = out filled, 0 = none. */
int32_t ps_driver_poll_event(ps_driver_t *driver, ps_event_t *out);

/* ---- send endpoints -------------------------------------------------------------------------- */

enum ps_mdc { PS_MDC_NONE = 0, PS_MDC_DYNAMIC = 1, PS_MDC_MANUAL = 2 };

typedef struct ps_send_endpoint_params {
    int64_t id;                      /* of the conductor's choosing, unique */
    ps_socket_params_t data;         /* data out; for unicast and MDC also control in */
    ps_socket_params_t control;      /* multicast: joined on G+1; bind.family 0 = none */
    int32_t mdc;                     /* ps_mdc */
    int32_t status_counter_id;       /* channel status */
    int32_t destinations_counter_id; /* mdc-num-dest, -1 none */
    int32_t refused_counter_id;      /* mdc-refused, -1 none */
    uint8_t multicast;
} ps_send_endpoint_params_t;

/* Opens the sockets (errors as ps_net_ops.open) and hands the endpoint to the sender. */
int ps_send_endpoint_open(ps_driver_t *driver, const ps_send_endpoint_params_t *params,
                          ps_send_endpoint_t **out);
void ps_send_endpoint_local(const ps_send_endpoint_t *endpoint, ps_addr_t *out);
/* Manual MDC.  destination_id is unique per endpoint.  PS_E_AGAIN, PS_E_NO_SPACE (64
 * destinations). */
int ps_send_endpoint_add_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                     int64_t destination_id, const ps_addr_t *address);
int ps_send_endpoint_remove_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                        int64_t destination_id);
/* New address after re-resolution.  destination_id -1: the unicast peer. */
int ps_send_endpoint_set_address(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *address);
/* Asks the sender to let go; PS_EV_RELEASED follows.  No publication may use it any more. */
int ps_send_endpoint_remove(ps_driver_t *driver, ps_send_endpoint_t *endpoint);
void ps_send_endpoint_destroy(ps_driver_t *driver, ps_send_endpoint_t *endpoint);

/* ---- publications ---------------------------------------------------------------------------- */

enum ps_flow_control {
    PS_FC_UNICAST = 0,
    PS_FC_MAX = 1,
    PS_FC_MIN = 2,
    PS_FC_TAGGED = 3,
    PS_FC_NAK = 4,
    PS_FC_CUSTOM = 5
};

typedef struct ps_publication_params {
    int64_t id;                   /* registration id */
    const char *log_path;         /* made by ps_log_create */
    ps_send_endpoint_t *endpoint; /* NULL: IPC */
    int32_t slot;                 /* publication slot in penstock.dat */
    int32_t publisher_limit_counter_id;
    int32_t publisher_position_counter_id;
    int32_t sender_position_counter_id; /* -1 for IPC */
    int32_t sender_limit_counter_id;    /* -1 for IPC */
    int32_t back_pressure_counter_id;   /* -1 for IPC */
    int32_t naks_counter_id;            /* -1 for IPC */
    int32_t receivers_counter_id;       /* -1: none */
    int32_t flow_control;               /* ps_flow_control; IPC: PS_FC_NAK or any other */
    int64_t fc_receiver_timeout_ns;     /* min, tagged: 0 = 5 s */
    int64_t fc_group_tag;               /* tagged */
    int32_t fc_group_min_size;          /* min, tagged */
    int64_t rate_bytes_per_s;           /* 0: no limit */
    int64_t rate_messages_per_s;        /* 0: no limit */
    int32_t retransmit_window_multiple; /* 0: by media (16 unicast, 4 group) */
    int32_t window_bytes;               /* publication window in effect */
    int32_t max_resend;                 /* group semantics: 1..256 */
    int32_t ttl;                        /* stated in SETUP */
    int64_t reserved_position;          /* storage is there below this position */
    int64_t untethered_window_limit_timeout_ns;
    int64_t untethered_linger_timeout_ns;
    int64_t untethered_resting_timeout_ns;
    uint8_t exclusive;
    uint8_t group; /* multicast or MDC */
    uint8_t spies_simulate_connection;
    uint8_t signal_eos;
    uint8_t channel_timestamp;        /* 1: write send time into reserved_value */
    int32_t channel_timestamp_offset; /* payload offset, or -8 = reserved value */
    /* 1: a dead daemon's publication goes on where its log and counters stand; PS_E_CORRUPT when
     * these contradict each other */
    uint8_t adopted;
    int64_t start_position; /* adopted: where the stream began */
    /* adopted: the terms below were given up, and what they left is zero; 0: none were */
    int64_t kept_position;
} ps_publication_params_t;

typedef struct ps_subscriber_params {
    int32_t position_counter_id; /* sub-pos, preset to the join position */
    int32_t slot;                /* subscriber slot in penstock.dat */
    int32_t client_slot;         /* to wake */
    uint8_t tether;
    uint8_t rejoin;
} ps_subscriber_params_t;

typedef struct ps_publication_status {
    int64_t producer_position;
    int64_t consumer_position; /* sender position; IPC: slowest subscriber */
    int64_t publisher_limit;
    int32_t is_connected;
    int32_t receivers;        /* live receivers (network) or subscribers (IPC) */
    int64_t rate_bytes_per_s; /* ps-rate or NAK-strength, whichever is less; 0: none */
    int64_t pressure_signals; /* PRESSURE frames heard */
} ps_publication_status_t;

/* Maps the log, initialises flow control, hands over to the sender.
 * PS_E_SYSTEM, PS_E_VERSION (log metadata), PS_E_NO_MEMORY, PS_E_AGAIN. */
int ps_publication_add(ps_driver_t *driver, const ps_publication_params_t *params,
                       ps_publication_t **out);
/* Spy or IPC subscriber. */
int ps_publication_add_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                  const ps_subscriber_params_t *params);
int ps_publication_remove_subscriber(ps_driver_t *driver, ps_publication_t *publication,
                                     int32_t position_counter_id);
/* Clients that must be woken when the limit moves. */
int ps_publication_add_client(ps_driver_t *driver, ps_publication_t *publication,
                              int32_t client_slot);
int ps_publication_remove_client(ps_driver_t *driver, ps_publication_t *publication,
                                 int32_t client_slot);
/* No client holds it any more: stop the producers, send what is there, then PS_EV_PUB_DRAINED. */
int ps_publication_drain(ps_driver_t *driver, ps_publication_t *publication);
int ps_publication_revoke(ps_driver_t *driver, ps_publication_t *publication);
/* The claimer in client_slot is dead: pad over what it left, now.  -1: whoever blocks. */
int ps_publication_unblock(ps_driver_t *driver, ps_publication_t *publication, int32_t client_slot);
/* Storage is there below position (INT64_MAX: all three terms). */
int ps_publication_reserved(ps_driver_t *driver, ps_publication_t *publication, int64_t position);
/* Asks the sender to give up the terms that are not in use; PS_EV_GIVEN_UP follows.  Until that the
 * memory stays, and of a term asked for before it nothing is known any more: if it is still wanted
 * it is asked for again.  least_terms: to keep, from the one in use on; 1 or 2. */
int ps_publication_give_up(ps_driver_t *driver, ps_publication_t *publication, int32_t least_terms);
void ps_publication_get_status(const ps_publication_t *publication, ps_publication_status_t *out);

/* What a live receiver said last. */
typedef struct ps_receiver_view {
    int64_t receiver_id;
    int64_t heard_ns; /* driver's clock */
    int64_t position; /* consumed */
    int64_t group_tag;
    int64_t reason_client; /* its own reason to hold: of its trailer */
    int64_t backlog_bytes;
    int32_t window;
    uint32_t reason;       /* ps_cause, 0 none */
    uint32_t capabilities; /* 0: a plain Aeron peer */
    uint32_t fill_ppm;
    int32_t has_group_tag;
    int32_t followed; /* reserved, 0 */
    ps_addr_t address;
} ps_receiver_view_t;
/* Fills out with the live receivers, at most capacity; returns how many.  Any one thread. */
int32_t ps_publication_receivers(const ps_publication_t *publication, ps_receiver_view_t *out,
                                 int32_t capacity);
/* PS_FC_CUSTOM: the limit that a strategy computed; counts until until_ns (driver's clock). */
int ps_publication_set_limit(ps_driver_t *driver, ps_publication_t *publication, int64_t limit,
                             int64_t until_ns);
/* Lets the sender forget it; PS_EV_RELEASED follows. */
int ps_publication_remove(ps_driver_t *driver, ps_publication_t *publication);
void ps_publication_destroy(ps_driver_t *driver, ps_publication_t *publication);

/* ---- receive endpoints ----------------------------------------------------------------------- */

typedef struct ps_recv_destination_params {
    int64_t id; /* unique per endpoint */
    ps_socket_params_t socket;
    /* explicit control address (MDC): S-flag SMs go there; family 0 none */
    ps_addr_t control;
    ps_addr_t group_control; /* multicast: G+1; family 0 none */
    uint8_t multicast;
} ps_recv_destination_params_t;

typedef struct ps_recv_endpoint_params {
    int64_t id;
    int32_t status_counter_id;
    int64_t receiver_id; /* unique per endpoint */
    int64_t group_tag;
    uint8_t has_group_tag;
    uint8_t media_timestamp;        /* write kernel receive time at media_timestamp_offset */
    int32_t media_timestamp_offset; /* payload offset or -8 */
    uint8_t channel_timestamp;
    int32_t channel_timestamp_offset;
} ps_recv_endpoint_params_t;

/* Hands an endpoint without sockets to the receiver; add destinations next (one for a plain
 * channel, several for multi-destination subscriptions). */
int ps_recv_endpoint_open(ps_driver_t *driver, const ps_recv_endpoint_params_t *params,
                          ps_recv_endpoint_t **out);
/* Opens the socket (errors as ps_net_ops.open); *local gets its bound address. */
int ps_recv_endpoint_add_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     const ps_recv_destination_params_t *params, ps_addr_t *local);
/* Asks the receiver to read the socket no more; PS_EV_RELEASED (PS_KIND_RECV_DESTINATION) follows,
 * and _destroy_destination closes the socket. */
int ps_recv_endpoint_remove_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                        int64_t destination_id);
/* Closes and frees a destination that the receiver released.  PS_E_INVALID: it did not. */
int ps_recv_endpoint_destroy_destination(ps_recv_endpoint_t *endpoint, int64_t destination_id);
/* New control address after re-resolution. */
int ps_recv_endpoint_set_control(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *control);
/* Interest: DATA and SETUP of (stream, session) are wanted.  any_session = 1: of every session. */
int ps_recv_endpoint_add_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                  int32_t stream_id, int32_t session_id, int32_t any_session);
int ps_recv_endpoint_remove_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     int32_t stream_id, int32_t session_id, int32_t any_session);
/* The conductor refuses a SETUP (reported by PS_EV_SETUP) or wants it reported again.
 * keep = 1: ignore the session until its interest goes; 0: the next SETUP is reported again. */
int ps_recv_endpoint_forget_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t keep);
int ps_recv_endpoint_remove(ps_driver_t *driver, ps_recv_endpoint_t *endpoint);
void ps_recv_endpoint_destroy(ps_driver_t *driver, ps_recv_endpoint_t *endpoint);

/* ---- images ---------------------------------------------------------------------------------- */

enum ps_congestion_control { PS_CC_STATIC = 0, PS_CC_CUBIC = 1 };
enum ps_loss_recovery { PS_LOSS_ALL_GAPS = 0, PS_LOSS_SINGLE_GAP = 1 };

typedef struct ps_image_params {
    int64_t id; /* correlation id */
    const char *log_path;
    ps_recv_endpoint_t *endpoint;
    int32_t slot;                  /* image slot in penstock.dat */
    int32_t high_water_counter_id; /* rcv-hwm */
    int32_t position_counter_id;   /* rcv-pos */
    int32_t naks_counter_id;       /* rcv-naks-sent */
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t active_term_id;
    int32_t term_offset;                  /* join position = pos(active_term_id, term_offset) */
    int32_t window_bytes;                 /* initial and largest receiver window, <= T/2 */
    int32_t congestion_control;           /* ps_congestion_control */
    int32_t congestion_rtt_counter_id;    /* cubic only; -1 none */
    int32_t congestion_window_counter_id; /* cubic only; -1 none */
    int32_t destination;                  /* as in the PS_EV_SETUP */
    ps_addr_t source;                     /* as in the PS_EV_SETUP */
    int64_t nak_delay_ns;                 /* -1: driver default */
    int64_t reserved_position;
    int64_t join_ordinal; /* -1 unknown */
    uint32_t peer_capabilities;
    int64_t untethered_window_limit_timeout_ns;
    int64_t untethered_linger_timeout_ns;
    int64_t untethered_resting_timeout_ns;
    uint8_t group; /* NAK back-off as in a multicast group */
    uint8_t reliable;
    uint8_t rejoin;
    /* 1: a dead daemon's image goes on at the contiguous end of its log; what lies above is dropped
     * and asked for again.  PS_E_CORRUPT when log and counters contradict each other */
    uint8_t adopted;
    int64_t consumption; /* adopted: slowest subscriber, -1: none */
} ps_image_params_t;

typedef struct ps_image_status {
    int64_t position; /* rcv-pos: contiguous end */
    int64_t high_water;
    int64_t slowest_subscriber;
    int64_t end_of_stream; /* INT64_MAX until known */
    int32_t gaps;
    int32_t subscribers;
    int64_t pressure_signals;  /* PRESSURE frames sent */
    int64_t foreign_datagrams; /* of sources that are not followed: dropped */
} ps_image_status_t;

int ps_image_add(ps_driver_t *driver, const ps_image_params_t *params, ps_image_t **out);
int ps_image_add_subscriber(ps_driver_t *driver, ps_image_t *image,
                            const ps_subscriber_params_t *params);
int ps_image_remove_subscriber(ps_driver_t *driver, ps_image_t *image, int32_t position_counter_id);
/* Join position for a subscriber that comes later: min(rcv-pos, all subscriber positions). */
int64_t ps_image_join_position(const ps_image_t *image);
/* SMs carry EOS from now on; PS_EV_IMAGE_DRAINED follows when subscribers are at the end. */
int ps_image_drain(ps_driver_t *driver, ps_image_t *image);
/* Application rejects it: ERR frames instead of SMs until liveness ends it. */
int ps_image_reject(ps_driver_t *driver, ps_image_t *image, const char *reason);
int ps_image_reserved(ps_driver_t *driver, ps_image_t *image, int64_t position);
/* As ps_publication_give_up, of the receiver. */
int ps_image_give_up(ps_driver_t *driver, ps_image_t *image, int32_t least_terms);
void ps_image_get_status(const ps_image_t *image, ps_image_status_t *out);
/* keep_session = 1: (rejoin=false) the session is ignored while interest stays. */
int ps_image_remove(ps_driver_t *driver, ps_image_t *image, int32_t keep_session);
void ps_image_destroy(ps_driver_t *driver, ps_image_t *image);

#endif
