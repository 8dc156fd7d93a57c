/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_batch.c: what must hold of many rather than of one: datagrams and turns are as full
 * as room and limits allow, and random delays are distributed as they should be.
 */
#include <math.h>

#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

enum { TEST_EVERY = 64, LEAST_SAMPLES = 64 };
/* Time after the last refusal of the socket in which the rate of the link bounds the turns. */
#define SHORT_TURNS_NS INT64_C(10000000)

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

/* Bytes on the wire of the frame at position, 0: there is none. */
static int64_t frame_wire(const ps_publication_t *pub, int64_t position)
{
    const ps_frame_t *frame = ps_frame_at(&pub->log, position);
    const int32_t length = ps_frame_length_acquire(frame);
    return length <= 0 ? 0 : frame->type == PS_TYPE_PAD ? PS_HEADER_BYTES : ps_align32(length);
}

/* Padding ends a datagram. The sender puts padding that states dropped messages into the log after
 * its turn: whether the datagram ends before or with it. */
static bool ends_at_padding(const ps_publication_t *pub, int64_t from, int64_t end)
{
    const ps_frame_t *frame = ps_frame_at(&pub->log, from);
    for (int64_t at = from; at < end; at += ps_align32(ps_frame_length_acquire(frame))) {
        frame = ps_frame_at(&pub->log, at);
        if (ps_frame_length_acquire(frame) <= 0) {
            return false;
        }
    }
    return frame->type == PS_TYPE_PAD ||
           (pub->drops && ps_frame_at(&pub->log, end)->type == PS_TYPE_PAD);
}

/* Returns the ordinal up to which the stream's credits allow messages; INT64_MAX: it has none. */
static int64_t credit_limit(const ps_publication_t *pub)
{
    return pub->credits.on ? pub->credits.send_limit : INT64_MAX;
}

/* [from, from + span) left for the first time, `wire` bytes of it.  Padding ends a datagram, and so
 * does a term. */
void ps_probe_batch_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t from, int64_t span,
                         int64_t wire)
{
    const ps_publication_t *pub = model->pub;
    const int64_t end = from + span;
    const int64_t next = (end & pub->log.term_mask) == 0 || span > wire ? 0 : frame_wire(pub, end);
    model->turn_limit = pub->sender_limit;
    model->turn_credits = credit_limit(pub);
    model->turn_datagrams++;
    model->turn_bytes += wire;
    if (next > 0 && wire + next <= pub->log.mtu && end + next <= pub->sender_limit &&
        !ends_at_padding(pub, from, end) &&
        (!pub->credits.on || model->messages < pub->credits.send_limit)) {
        complain(probe, model, "a datagram could have taken more", wire, next);
    }
}

/* A turn for which others waited is a quantum at most (docs/scheduling.md): another publication, or
 * retransmits of this one, which wait in a list of their own. */
static int64_t turn_bound(ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    const ps_sender_t *sender = pub->sender;
    const int64_t waits = atomic_load_explicit(&pub->slot->waits, memory_order_relaxed);
    const bool shared = waits != model->turn_waits;
    model->turn_waits = waits;
    return shared && (sender->publication_count > 1 ||
                      ps_retransmit_next_ns(&pub->retransmit) < INT64_MAX)
               ? sender->bands.quantum
               : sender->bands.lone_turn;
}

/* While a socket is full again and again, a turn is at most what the link takes in 50 us. It is at
 * least the smallest quantum. The bound of the turn may have changed during the cycle. */
static int64_t link_bound(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_send_endpoint_t *endpoint = model->pub->endpoint;
    const int64_t most = endpoint->turn_most;
    const int64_t before = model->turn_most;
    const int64_t until_ns = endpoint->refused_ns + SHORT_TURNS_NS;
    model->turn_most = most;
    if (most < PS_BANDS_QUANTUM_MIN) {
        complain(probe, model, "a turn of a full socket is too short", most, PS_BANDS_QUANTUM_MIN);
    }
    if (most < INT64_MAX && now_ns > until_ns + 2 * ps_probe_slack_ns(probe, model->host)) {
        complain(probe, model, "turns stay short", now_ns, until_ns);
    }
    return before > 0 && before < most ? before : most;
}

/* A turn ends when it is long, when nothing is there, or when something holds it. The limits are
 * those of the turn: status messages that the sender reads before and after it may change them. */
static void check_turn(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t quantum = turn_bound(model);
    const int64_t short_turn = link_bound(probe, model, now_ns);
    const int64_t bound = quantum < short_turn ? quantum : short_turn;
    const int64_t next = frame_wire(pub, pub->sender_position);
    const int64_t most = pub->log.mtu;
    const bool held = pub->rated || pub->paced || model->stated_rate > 0 || pub->revoked ||
                      pub->corrupt || pub->short_send || pub->sent_ordinal >= model->turn_credits ||
                      ps_probe_is_full(probe, model->host, now_ns);
    /* The sender appends padding that states drops after its turn: it leaves in the next one. */
    const bool appended =
        pub->drops && ps_frame_at(&pub->log, pub->sender_position)->type == PS_TYPE_PAD;
    if (model->turn_datagrams > 0 && next > 0 && !appended &&
        pub->sender_position + next <= model->turn_limit && !held &&
        model->turn_datagrams < PS_TURN_DATAGRAMS && model->turn_bytes + most <= bound) {
        complain(probe, model, "a turn could have taken more", model->turn_datagrams,
                 model->turn_bytes);
    }
    if (model->turn_datagrams > PS_TURN_DATAGRAMS ||
        model->turn_bytes > PS_BANDS_QUANTUM_MAX + most) {
        complain(probe, model, "a turn is too long", model->turn_datagrams, model->turn_bytes);
    }
    model->turn_datagrams = 0;
    model->turn_bytes = 0;
}

void ps_probe_batch_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    if (model->pub->endpoint != NULL && model->pub->endpoint->params.mdc == PS_MDC_NONE) {
        check_turn(probe, model, now_ns);
    }
}

/* ---- objects --------------------------------------------------------------------------------- */

/* An object to be checked in the next cycle is still there; a released object returns to the
 * conductor as soon as its ring of events has room. */
void ps_probe_lists_check(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_receiver_t *receiver = ps_probe_driver(probe, host)->receiver;
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    for (int32_t i = 0; i < receiver->n_hot; i++) {
        bool there = false;
        for (int32_t k = 0; k < receiver->n_images; k++) {
            there = there || receiver->images[k] == receiver->hot[i];
        }
        if (!there) {
            ps_probe_fail(probe, host, 0, "an image that is gone is to be checked");
        }
    }
    ps_probe_promise(probe, &probe->releases[host],
                     (receiver->n_releases == 0 && sender->released_publications == NULL &&
                      sender->released_endpoints == NULL) ||
                         ps_probe_is_crowded(probe, host, now_ns),
                     now_ns, ps_probe_slack_ns(probe, host), "what was given up is released", host,
                     0);
}

/* ---- delays ---------------------------------------------------------------------------------- */

/* Returns the place of a delay of wait_ns in the distribution of RFC 5401, section 3.2.3, from 0 to
 * 1. All places are equally likely. */
static double share_below(double wait_ns, double most_ns, double group)
{
    const double lambda = log(group) + 1;
    return expm1(lambda * wait_ns / most_ns) / expm1(lambda);
}

/* The first NAK of a gap of a group waits for so long.  All of a run are taken together: their
 * greatest distance from what is to be expected is beyond 3.6 / sqrt(n) once in 10^11 looks. */
void ps_probe_backoff(ps_probe_t *probe, const ps_probe_image_t *model, int64_t wait_ns)
{
    const ps_driver_params_t *params = model->image->receiver->params;
    ps_probe_backoff_t *known = &probe->backoff;
    const int64_t most_ns = params->nak_multicast_max_backoff_ns;
    if (most_ns <= 0) {
        return;
    }
    const double share =
        share_below((double)wait_ns, (double)most_ns, (double)params->nak_multicast_group_size);
    const int32_t bin = (int32_t)(share * PS_PROBE_BINS);
    known->bins[bin < 0 ? 0 : bin < PS_PROBE_BINS ? bin : PS_PROBE_BINS - 1]++;
    known->count++;
    if (known->count < LEAST_SAMPLES || known->count % TEST_EVERY != 0 || known->broken) {
        return;
    }
    double sum = 0;
    for (int32_t i = 0; i + 1 < PS_PROBE_BINS; i++) {
        sum += (double)known->bins[i] / (double)known->count;
        const double apart = fabs(sum - (double)(i + 1) / PS_PROBE_BINS);
        if (apart > 3.6 / sqrt((double)known->count)) {
            known->broken = true;
            ps_probe_fail(probe, model->host, model->image->params.session_id,
                          "delays of NAKs are not distributed as they should be: %.2f of %lld "
                          "below %.2f",
                          sum, (long long)known->count, (double)(i + 1) / PS_PROBE_BINS);
            return;
        }
    }
}
