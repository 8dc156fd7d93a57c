/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_rate.c: rates that limit a publication: ps-rate in bytes and in messages a second,
 * and the rate of NAK-strength control (ps_pressure_control.h). On the network the sender keeps to
 * them; on IPC, where producers write for readers directly, the publisher limit moves at the rate,
 * and the fill is read from shared memory. */
#include "ps_sender.h"

/* A rate counts as binding for this long after it held data back. */
#define BINDS_NS INT64_C(200000000)
enum {
    BURST_PARTS = 250,
    BURST_DATAGRAMS = 2,
    WINDOW_PARTS = 10,
    LATE_PARTS = 20,
    QUEUE_PARTS = 8
};

/* Returns the burst: a late tick loses no rate, and an idle time saves at most 4 ms. */
static int64_t burst_of(const ps_publication_t *pub, int64_t rate)
{
    const int64_t least = (int64_t)BURST_DATAGRAMS * pub->log.mtu;
    return rate / BURST_PARTS > least ? rate / BURST_PARTS : least;
}

/* Returns the burst of NAK-strength control. It covers a sender that runs up to 50 ms late;
 * otherwise such a sender would send only a part of what the reader can take. An eighth of the
 * reader's queue bounds what an idle time saves. */
static int64_t nak_burst_of(const ps_publication_t *pub, int64_t rate)
{
    const int64_t most = ps_publication_term(pub) / 2 / QUEUE_PARTS;
    const int64_t late = rate / LATE_PARTS < most ? rate / LATE_PARTS : most;
    const int64_t least = burst_of(pub, rate);
    return late > least ? late : least;
}

void ps_publication_rate_init(ps_publication_t *pub)
{
    const ps_publication_params_t *params = &pub->params;
    ps_pacer_init(&pub->byte_rate);
    ps_pacer_init(&pub->message_rate);
    ps_pacer_init(&pub->pressure_pace);
    pub->rate_due_ns = INT64_MAX;
    const bool network = pub->endpoint != NULL; /* on IPC nothing leaves: ps_publication_admit.c */
    if (params->rate_bytes_per_s > 0 && network) {
        ps_pacer_set(&pub->byte_rate, params->rate_bytes_per_s,
                     burst_of(pub, params->rate_bytes_per_s), 0);
    }
    if (params->rate_messages_per_s > 0 && network) {
        const int64_t burst = params->rate_messages_per_s / BURST_PARTS;
        const int64_t least = pub->log.mtu / PS_FRAME_ALIGNMENT; /* a datagram is sent whole */
        ps_pacer_set(&pub->message_rate, params->rate_messages_per_s, burst > least ? burst : least,
                     0);
    }
    pub->nak = params->flow_control == PS_FC_PRESSURE;
    pub->rate_position = pub->producer_position;
    ps_pressure_control_init(&pub->pressure_control, pub->log.mtu);
    atomic_store_explicit(&pub->slot->rate_bytes_per_s, params->rate_bytes_per_s,
                          memory_order_relaxed);
    pub->rated = pub->nak || params->rate_bytes_per_s > 0 || params->rate_messages_per_s > 0;
    ps_publication_admit_init(pub);
    ps_publication_policy_init(pub);
    ps_publication_depth_init(pub);
    ps_publication_watermark_init(pub);
}

/* Stores the binding rate; a rate that has not held data back lately does not bind. */
static void show(ps_publication_t *pub, int64_t now_ns)
{
    const bool binds =
        now_ns < pub->pressure_binds_until_ns && ps_pressure_control_limits(&pub->pressure_control);
    const int64_t limit = binds ? pub->pressure_control.limit : 0;
    const int64_t wish = pub->params.rate_bytes_per_s;
    const int64_t rate = limit == 0 || (wish > 0 && wish < limit) ? wish : limit;
    atomic_store_explicit(&pub->slot->rate_bytes_per_s, rate, memory_order_relaxed);
}

static void follow_nak(ps_publication_t *pub, int64_t now_ns)
{
    const bool limits = ps_pressure_control_limits(&pub->pressure_control);
    const int64_t limit = limits ? pub->pressure_control.limit : 0;
    ps_pacer_set(&pub->pressure_pace, limit, limits ? nak_burst_of(pub, limit) : 1, now_ns);
    show(pub, now_ns);
}

/* Computes the waiting time again, because the rate may have risen. */
static void check_again(ps_publication_t *pub)
{
    if (pub->rate_due_ns != INT64_MAX) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
}

void ps_publication_on_pressure(ps_publication_t *pub, const ps_pressure_t *pressure,
                                int64_t now_ns)
{
    if (!pub->nak || pub->endpoint == NULL) {
        return;
    }
    atomic_fetch_add_explicit(&pub->status_signals, 1, memory_order_relaxed);
    const ps_pressure_report_t report = { .receiver_id = pressure->receiver_id,
                                          .level = pressure->level,
                                          .rtt_ns = pressure->rtt_ns,
                                          .rate = pressure->rate,
                                          .cadence_ns = pressure->cadence_ns,
                                          .residue = pressure->residue,
                                          .overrun = pressure->overrun,
                                          .capacity = ps_publication_term(pub) / 2 };
    if (ps_pressure_control_signal(&pub->pressure_control, &report, now_ns)) {
        follow_nak(pub, now_ns);
        check_again(pub);
    }
}

/* Ends the controller's windows that are over. */
static void step(ps_publication_t *pub, int64_t now_ns)
{
    if (pub->nak && pub->pressure_control.window_end_ns != 0 &&
        ps_pressure_control_step(&pub->pressure_control, now_ns)) {
        follow_nak(pub, now_ns);
    }
}

int64_t ps_publication_rate_room(ps_publication_t *pub, int64_t now_ns)
{
    if (!pub->rated) {
        return INT64_MAX;
    }
    step(pub, now_ns);
    const int64_t bytes = ps_pacer_room(&pub->byte_rate, now_ns);
    const int64_t nak = ps_pacer_room(&pub->pressure_pace, now_ns);
    return ps_pacer_room(&pub->message_rate, now_ns) <= 0 ? 0 : bytes < nak ? bytes : nak;
}

int64_t ps_publication_message_room(ps_publication_t *pub, int64_t now_ns)
{
    return pub->rated ? ps_pacer_room(&pub->message_rate, now_ns) : INT64_MAX;
}

/* The tightest bucket binds: the one that is ready last. */
static int64_t ready_ns(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t mtu = pub->log.mtu;
    const int64_t bytes_ns = ps_pacer_ready_ns(&pub->byte_rate, mtu, now_ns);
    const int64_t messages_ns = ps_pacer_ready_ns(&pub->message_rate, 1, now_ns);
    const int64_t wish_ns = bytes_ns > messages_ns ? bytes_ns : messages_ns;
    const int64_t nak_ns = ps_pacer_ready_ns(&pub->pressure_pace, mtu, now_ns);
    pub->rate_cause =
        nak_ns >= wish_ns && nak_ns > now_ns ? PS_CAUSE_NAK_RATE : PS_CAUSE_RATE_LIMIT;
    return nak_ns > wish_ns ? nak_ns : wish_ns;
}

bool ps_publication_rate_shut(ps_publication_t *pub, int64_t now_ns)
{
    if (!pub->rated || ps_publication_rate_room(pub, now_ns) > 0) {
        pub->rate_cause = PS_CAUSE_NONE;
        return false;
    }
    pub->rate_due_ns = ready_ns(pub, now_ns);
    if (pub->rate_cause == PS_CAUSE_NAK_RATE) {
        const int64_t end_ns = pub->pressure_control.window_end_ns; /* the rate may rise then */
        pub->rate_due_ns = end_ns > now_ns && end_ns < pub->rate_due_ns ? end_ns : pub->rate_due_ns;
        pub->pressure_binds_until_ns = now_ns + BINDS_NS;
        show(pub, now_ns);
    }
    ps_publication_due(pub, pub->rate_due_ns);
    return true;
}

void ps_publication_rate_sent(ps_publication_t *pub, int64_t bytes, int64_t messages,
                              int64_t now_ns)
{
    if (!pub->rated) {
        return;
    }
    ps_pacer_spend(&pub->byte_rate, bytes);
    ps_pacer_spend(&pub->message_rate, messages);
    ps_pacer_spend(&pub->pressure_pace, bytes);
    if (pub->nak) {
        ps_pressure_control_sent(&pub->pressure_control, bytes, now_ns);
    }
}

int64_t ps_publication_rate_timer(ps_publication_t *pub, int64_t now_ns)
{
    int64_t due_ns = pub->rate_due_ns;
    if (pub->pressure_binds_until_ns != 0 && now_ns >= pub->pressure_binds_until_ns) {
        pub->pressure_binds_until_ns = 0;
        show(pub, now_ns);
    }
    if (now_ns >= pub->rate_due_ns) {
        pub->rate_due_ns = INT64_MAX;
        due_ns = INT64_MAX;
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    return pub->pressure_binds_until_ns != 0 && pub->pressure_binds_until_ns < due_ns
               ? pub->pressure_binds_until_ns
               : due_ns;
}

/* While the controller's rate binds, the publication window is a tenth of a second of the rate, so
 * that publishers are refused early. */
int64_t ps_publication_rate_window(const ps_publication_t *pub, int64_t window_bytes)
{
    if (!pub->nak || pub->rate_cause == PS_CAUSE_NONE ||
        !ps_pressure_control_limits(&pub->pressure_control)) {
        return window_bytes;
    }
    const int64_t rate = pub->pressure_control.limit;
    const int64_t least = (int64_t)BURST_DATAGRAMS * pub->log.mtu;
    const int64_t share = rate / WINDOW_PARTS > least ? rate / WINDOW_PARTS : least;
    return share < window_bytes ? share : window_bytes;
}

/* ---- IPC ------------------------------------------------------------------------------------- */

/* Applies the signals of the slowest reader's queue, as a receiver on the network sends them. */
static void check_readers(ps_publication_t *pub, int64_t now_ns)
{
    int64_t due_ns;
    ps_pressure_reader_check(&pub->local_reader, pub->slowest_position, pub->producer_position,
                             now_ns);
    const ps_pressure_input_t input = { .now_ns = now_ns,
                                        .fill = pub->producer_position - pub->slowest_position,
                                        .capacity = pub->window_bytes,
                                        .cadence_ns = pub->local_reader.cadence_ns,
                                        .paused =
                                            ps_pressure_reader_paused(&pub->local_reader, now_ns) };
    const int32_t level = ps_pressure_signal_step(&pub->local_signal, &input, &due_ns);
    const ps_pressure_report_t report = { .receiver_id = pub->slowest_client_slot + 1,
                                          .level = level,
                                          .rate = pub->local_reader.rate,
                                          .cadence_ns = pub->local_reader.cadence_ns,
                                          .residue = ps_pressure_reader_residue(&pub->local_reader),
                                          .capacity = pub->window_bytes };
    if (level > 0 && ps_pressure_control_signal(&pub->pressure_control, &report, now_ns)) {
        follow_nak(pub, now_ns);
    }
}

/* Fills the buckets up to now before new data is charged; otherwise an idle time would refill the
 * charge. */
static void fill(ps_publication_t *pub, int64_t now_ns)
{
    (void)ps_pacer_room(&pub->pressure_pace, now_ns);
}

int64_t ps_publication_rate_limit(ps_publication_t *pub, int64_t want, int64_t now_ns)
{
    if (!pub->nak || pub->endpoint != NULL) {
        return want;
    }
    const int64_t published = pub->producer_position - pub->rate_position;
    if (published > 0) {
        fill(pub, now_ns);
        ps_publication_rate_sent(pub, published, 0, now_ns);
        pub->rate_position = pub->producer_position;
    }
    if (pub->gating_count > 0) {
        check_readers(pub, now_ns);
    }
    (void)ps_publication_rate_shut(pub, now_ns);
    const int64_t room = ps_publication_rate_room(pub, now_ns);
    const int64_t most = pub->producer_position + (room > 0 ? room : 0);
    if (room == INT64_MAX || most >= want) {
        return want;
    }
    pub->rate_cause = pub->rate_cause == PS_CAUSE_NONE ? PS_CAUSE_RATE_LIMIT : pub->rate_cause;
    return most;
}
