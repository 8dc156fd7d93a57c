/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe.h: oracles that look over a driver's shoulder.  The probe sees every datagram that a
 * driver reads and sends, at the virtual time at which it does so, and looks at its publications
 * and images after each duty cycle.  From the datagrams it keeps a model of its own of what each
 * publication and image must know; the model is written from the protocol's description, not from
 * the code under test, and is compared with what the driver holds.
 *
 *   ps_sim_probe.c        models by object; promises that must be kept within a time
 *   ps_sim_probe_fc.c     receivers heard, the strategy's limit, connection
 *   ps_sim_probe_send.c   SETUP, heartbeats, data, what is sent again
 *   ps_sim_probe_pub.c    publisher limit, zeroed memory, cause account, ordinals, readers
 *   ps_sim_probe_img.c    what is here and missing, consumption, counters
 *   ps_sim_probe_recv.c   status messages, NAKs, round trips, PRESSURE, liveness
 *   ps_sim_probe_rate.c   token buckets, cubic
 */
#ifndef PS_SIM_PROBE_H
#define PS_SIM_PROBE_H

#include "ps_image.h"
#include "ps_pressure.h"
#include "ps_publication.h"
#include "ps_receiver.h"
#include "ps_send_endpoint.h"
#include "ps_sim_world.h"

enum { PS_PROBE_PUBS = 128, PS_PROBE_IMAGES = 256, PS_PROBE_RECEIVERS = 128, PS_PROBE_ASKS = 2048,
       PS_PROBE_GAPS = 2048, PS_PROBE_PROMISES = 32 };

/* Something that must hold; since: when it was first seen not to, -1 it holds. */
typedef struct ps_probe_promise {
    int64_t since_ns;
    bool broken;
} ps_probe_promise_t;

/* A token bucket of the probe's own, in units. */
typedef struct ps_probe_bucket {
    double level, burst, rate;
    int64_t at_ns;
} ps_probe_bucket_t;

typedef struct ps_probe_receiver {
    int64_t id, edge, position, heard_ns;
    int64_t fc_heard_ns;           /* as the strategy counts */
    uint32_t reason;
    bool live;                     /* counts for the connection */
    bool followed, leaving;        /* by min, tagged */
} ps_probe_receiver_t;

/* A range that was asked for: to may be sent again, need must be. */
typedef struct ps_probe_ask {
    int64_t from, to, need, cursor, asked_ns, done_ns;   /* done -1: open */
    bool optional;                 /* so much was asked that it may be given up */
} ps_probe_ask_t;

typedef struct ps_probe_pub {
    int32_t host;
    const ps_publication_t *pub;
    int64_t id;
    bool seen;                     /* in this sweep */
    bool settled;                  /* a duty cycle ended with it */
    ps_probe_promise_t promises[PS_PROBE_PROMISES];
    /* datagrams */
    int64_t high, last_high;       /* end of what was sent, now and at the last look */
    int64_t messages;              /* sent, counted by their END flags */
    int64_t setup_ns, beat_ns, data_ns;
    int64_t idle_ns;               /* last seen with nobody to send heartbeats to */
    bool asked_setup, ever_heard;
    uint64_t naks;
    int32_t ask_count, asked_now;
    ps_probe_ask_t asks[PS_PROBE_ASKS];
    /* receivers */
    int32_t receiver_count;
    ps_probe_receiver_t receivers[PS_PROBE_RECEIVERS];
    int64_t limit;                 /* by the strategy */
    int64_t hold, hold_until_ns;
    bool hold_asked;
    int64_t plain_ns;
    /* memory and account */
    int64_t zero_to;               /* known to be zero below */
    int64_t reach;                 /* furthest that the publisher limit may ever have been */
    int64_t held_ns, looked_ns;
    int32_t cause;
    ps_probe_bucket_t repair, pace, bytes, message_rate, nak;
    int64_t stated_rate;           /* by a congestion-controlled receiver, 0 none */
    int64_t fresh_bytes, repair_bytes, fresh_messages;     /* since the last look */
    int64_t signal_bytes;          /* fresh before PRESSURE was read: sent at the old rate */
    uint64_t index_count;
} ps_probe_pub_t;

typedef struct ps_probe_gap {
    int64_t from, to, born_ns, asked_ns;
    int32_t asked;
    bool placed;                   /* its first due time was looked at */
} ps_probe_gap_t;

typedef struct ps_probe_image {
    int32_t host;
    const ps_image_t *image;
    int64_t id;
    bool seen;
    ps_probe_promise_t promises[PS_PROBE_PROMISES];
    int64_t made_ns;
    int64_t edge;                  /* end of the highest data or heartbeat taken */
    int64_t heard_ns;              /* last datagram that keeps it alive */
    int64_t data_ns;
    int64_t eos;                   /* position of an EOS heartbeat, -1 none */
    int64_t sm_ns, sm_position;
    int64_t sm_forced_ns;          /* something that forces one was read */
    int64_t rtt_ns, rtt_due_ns, rtt_late_ns;   /* last request; the next neither before nor after */
    int64_t last_position;
    int64_t quiet_ns;              /* last seen without a word from its sender */
    int64_t seen_consumption, consumed_ns, wanted_ns, drain_ns;
    int64_t moved_ns, surely_moved_ns, moved_sum;
    int64_t pressure_ns;
    int64_t least_rtt, most_rtt, smoothed_rtt, rtt_variation;
    bool counted;                  /* it knows the ordinals of its messages */
    uint64_t index_count;
    int64_t cubic_received;
    int64_t asked_rtt[16];
    uint32_t asked_rtt_next;
    int64_t consumption;
    uint64_t naks, refused;
    int64_t lost_bytes;
    int32_t gap_count;
    ps_probe_gap_t gaps[PS_PROBE_GAPS];
    ps_cubic_t cubic;
    bool cubic_known;
    bool sm_idle, sm_may_idle;     /* the stream was (may have been) quiet when the last one left */
    bool ended;
    /* read in this cycle: must be in the log after it */
    int32_t took;
    int64_t took_from[64], took_to[64];
} ps_probe_image_t;

typedef struct ps_probe {
    ps_simworld_t *world;
    ps_probe_pub_t *pubs[PS_PROBE_PUBS];
    int32_t pub_count;
    ps_probe_image_t *images[PS_PROBE_IMAGES];
    int32_t image_count;
    uint64_t looks;
} ps_probe_t;

/* ---- for the world and the network ----------------------------------------------------------- */

ps_probe_t *ps_probe_create(ps_simworld_t *world);
void ps_probe_destroy(ps_probe_t *probe);
/* The host has another driver, or none: models of its objects go. */
void ps_probe_forget_host(ps_probe_t *probe, int32_t host);
/* The host's driver is about to take a datagram / has just handed one to its socket.  kind:
 * ps_sim_kind, what the watch makes of it. */
void ps_probe_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, int64_t now_ns);
void ps_probe_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                   enum ps_sim_kind kind, int64_t now_ns);
/* A duty cycle of the host's driver ended. */
void ps_probe_step(ps_probe_t *probe, int32_t host, int64_t now_ns);

/* ---- shared by the files --------------------------------------------------------------------- */

/* How late a timer may be: two ticks of a millisecond, and two duty cycles of the host. */
int64_t ps_probe_slack_ns(const ps_probe_t *probe, int32_t host);
/* `holds` must become true within grace_ns of becoming false; name says what. */
void ps_probe_promise(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds, int64_t now_ns,
                      int64_t grace_ns, const char *name, int32_t host, int32_t session_id);
void ps_probe_fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
ps_driver_t *ps_probe_driver(const ps_probe_t *probe, int32_t host);
ps_probe_pub_t *ps_probe_pub(ps_probe_t *probe, int32_t host, int32_t session_id,
                             int32_t stream_id);
ps_probe_image_t *ps_probe_image(ps_probe_t *probe, int32_t host, int32_t session_id,
                                 int32_t stream_id, int64_t now_ns);
const ps_sim_ledger_t *ps_probe_ledger(const ps_probe_t *probe, int32_t session_id,
                                       int32_t stream_id);
/* Messages of a ledger that end at or below position; -1: unknown. */
int64_t ps_probe_ordinal(const ps_sim_ledger_t *ledger, int64_t position);

/* ps_sim_probe_fc.c */
void ps_probe_fc_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_fc_sm(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sm_t *sm, int64_t now_ns);
void ps_probe_fc_error(ps_probe_pub_t *model, int64_t receiver_id);
void ps_probe_fc_setup_sent(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_fc_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_send.c */
void ps_probe_on_nak(ps_probe_pub_t *model, const ps_nak_t *nak, int64_t now_ns);
void ps_probe_send_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_setup_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_setup_t *setup,
                         int64_t now_ns);
void ps_probe_data_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                        const ps_sim_packet_t *packet, enum ps_sim_kind kind, int64_t now_ns);
void ps_probe_heartbeat_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                             int64_t now_ns);

/* ps_sim_probe_pub.c */
void ps_probe_pub_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_pub_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_img.c */
void ps_probe_image_init(ps_probe_image_t *model, int64_t now_ns);
void ps_probe_image_look(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_image_data(ps_probe_t *probe, ps_probe_image_t *model, const ps_data_t *data,
                         const ps_sim_packet_t *packet, int64_t now_ns);

/* ps_sim_probe_recv.c */
void ps_probe_sm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_sm_t *sm,
                      int64_t now_ns);
void ps_probe_nak_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_nak_t *nak,
                       int64_t now_ns);
void ps_probe_rttm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_rttm_t *rttm,
                        int64_t now_ns);
void ps_probe_pressure_sent(ps_probe_t *probe, ps_probe_image_t *model,
                            const ps_pressure_t *pressure, int64_t now_ns);
/* Whether one of its ways to the sender is alive. */
bool ps_probe_is_heard(const ps_image_t *image, int64_t now_ns);
void ps_probe_recv_look(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_rate.c */
void ps_probe_rate_init(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_rate_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_cubic_look(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

#endif
