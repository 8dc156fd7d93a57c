/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_rate.c: rates.  The probe keeps token buckets of its own, filled by its own clock
 * and spent by what it saw leave: no bucket may be overdrawn by more than a datagram.
 */
#include "ps_sim_probe.h"

#define SECOND 1e9

static void turn_to(ps_probe_bucket_t *bucket, int64_t now_ns)
{
    if (bucket->rate > 0) {
        bucket->level += bucket->rate * (double)(now_ns - bucket->at_ns) / SECOND;
        bucket->level = bucket->level > bucket->burst ? bucket->burst : bucket->level;
    }
    bucket->at_ns = now_ns;
}

static void spend(ps_probe_t *probe, const ps_probe_pub_t *model, ps_probe_bucket_t *bucket,
                  int64_t units, double least, const char *name)
{
    if (bucket->rate <= 0) {
        return;
    }
    bucket->level -= (double)units;
    if (bucket->level < -least - 1) {
        ps_probe_fail(probe, model->host, model->pub->log.session_id,
                      "%s overdrawn: %lld units, level %.0f of %.0f", name, (long long)units,
                      bucket->level, bucket->burst);
        bucket->level = 0;
    }
    if (least < PS_PROBE_PLENTY) { /* what producers took too much of is never forgotten */
        bucket->level = bucket->level < -bucket->burst ? -bucket->burst : bucket->level;
    }
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void follow_controllers(ps_probe_pub_t *model, int64_t now_ns)
{
    model->stated_rate = model->pub->params.group ? ps_probe_group_rate(model) : model->stated_rate;
    const ps_publication_t *pub = model->pub;
    const double mtu = pub->log.mtu;
    const double pace = (double)model->stated_rate;
    const double nak = ps_pressure_control_limits(&pub->pressure_control)
                           ? (double)pub->pressure_control.limit
                           : 0;
    if (pace != model->pace.rate) {
        ps_probe_bucket_set(&model->pace, pace, larger(pace / 500, 10 * mtu), now_ns);
    }
    if (nak != model->nak.rate) {
        /* 50 ms, at most an eighth of a reader's queue; otherwise as ps-rate. */
        const double eighth = (double)ps_publication_term(pub) / 16;
        const double late = nak / 20 < eighth ? nak / 20 : eighth;
        ps_probe_bucket_set(&model->nak, nak, larger(late, larger(nak / 250, 2 * mtu)), now_ns);
    }
}

/* Checks the rate and the capacity of the driver's bucket; rate 0: the bucket sets no limit. */
static void compare(ps_probe_t *probe, const ps_probe_pub_t *model, const char *name,
                    const ps_pacer_t *pacer, const ps_probe_bucket_t *bucket)
{
    const int64_t rate =
        bucket->rate < (double)PS_PACER_RATE_MAX ? (int64_t)bucket->rate : PS_PACER_RATE_MAX;
    const int64_t burst =
        bucket->burst < (double)PS_PACER_BURST_MAX ? (int64_t)bucket->burst : PS_PACER_BURST_MAX;
    if (pacer->rate != rate || (rate > 0 && pacer->burst != burst)) {
        ps_probe_fail(probe, model->host, model->pub->log.session_id,
                      "%s fills by %lld up to %lld, not by %lld up to %lld", name,
                      (long long)pacer->rate, (long long)pacer->burst, (long long)rate,
                      (long long)burst);
    }
}

static void compare_all(ps_probe_t *probe, const ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    if (pub->endpoint != NULL) {
        compare(probe, model, "the bucket of ps-rate", &pub->byte_rate, &model->bytes);
        compare(probe, model, "the bucket of messages", &pub->message_rate, &model->message_rate);
        compare(probe, model, "the NAK rate's bucket", &pub->pressure_pace, &model->nak);
        compare(probe, model, "the bucket of repairs", &pub->repair, &model->repair);
        compare(probe, model, "the pace's bucket", &pub->congestion_pace, &model->pace);
    }
}

/* On IPC published data is charged, and publishers may go as far as the bucket allows; waiting
 * publishers continue when the bucket has enough for a datagram. */
static void check_local(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t published = pub->producer_position - model->published;
    turn_to(&model->bytes, now_ns);
    spend(probe, model, &model->bytes, published, PS_PROBE_PLENTY, "ps-rate is");
    model->published = pub->producer_position;
    if (model->bytes.rate <= 0 || pub->state != PS_PUBLICATION_ACTIVE || pub->revoked || pub->nak) {
        return;
    }
    const double room = model->bytes.level > 0 ? model->bytes.level : 0;
    const int64_t ahead = pub->publisher_limit - pub->producer_position;
    if ((double)ahead > room + PS_FRAME_ALIGNMENT && model->settled) {
        ps_probe_fail(probe, model->host, pub->log.session_id,
                      "producers may go on by %lld, the rate lets them by %.0f", (long long)ahead,
                      room);
    }
    const double least = (double)pub->log.mtu + model->bytes.rate / 1000 + 1;
    /* Under a policy, publishers that met the limit wait for the low watermark, too. */
    const int64_t depth = pub->producer_position - pub->slowest_position;
    const bool unread = depth >= 2 * pub->log.mtu || ps_probe_is_above_watermark(pub, depth);
    ps_probe_promise(
        probe, &model->promises[P_PUB_LOCAL],
        pub->gating_count == 0 || !pub->connected || pub->storage_clamped || pub->cleaning_behind ||
            pub->quarantine_count > 0 || unread || pub->message_rate.rate > 0 ||
            pub->params.depth_messages > 0 || room < least || ahead > 0,
        now_ns, ps_probe_slack_ns(probe, model->host), "producers get what the rate lets them have",
        model->host, pub->log.session_id);
}

void ps_probe_rate_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const double mtu = pub->log.mtu;
    const int64_t fresh = model->fresh_bytes;
    const int64_t again = model->repair_bytes;
    if (pub->endpoint == NULL) {
        compare_all(probe, model);
        check_local(probe, model, now_ns);
        return;
    }
    turn_to(&model->repair, now_ns);
    turn_to(&model->pace, now_ns);
    turn_to(&model->bytes, now_ns);
    turn_to(&model->message_rate, now_ns);
    turn_to(&model->nak, now_ns);
    const double debt = larger(model->nak.burst, mtu);
    spend(probe, model, &model->nak, model->signal_bytes, debt, "the NAK rate is");
    const bool single = pub->endpoint->params.mdc == PS_MDC_NONE;
    const int64_t paced = ps_probe_paced_bytes(model);
    spend(probe, model, &model->pace, model->paced_bytes, 3 * mtu, "the pace is");
    follow_controllers(model, now_ns);
    model->repair.level += (double)fresh * pub->context->params.retransmit_percent / 100;
    if (single) {
        spend(probe, model, &model->repair, again, 2 * mtu, "the repair budget is");
    }
    spend(probe, model, &model->pace, paced - model->paced_bytes, 3 * mtu, "the pace is");
    model->repair.level =
        model->repair.level > model->repair.burst ? model->repair.burst : model->repair.level;
    spend(probe, model, &model->bytes, fresh, mtu, "ps-rate is");
    spend(probe, model, &model->message_rate, model->fresh_messages, mtu / 32, "ps-rate is");
    spend(probe, model, &model->nak, fresh - model->signal_bytes, larger(model->nak.burst, mtu),
          "the NAK rate is");
    model->signal_bytes = 0;
    model->paced_bytes = 0;
    model->fresh_bytes = 0;
    model->repair_bytes = 0;
    model->fresh_messages = 0;
    compare_all(probe, model);
}

/* ---- cubic ----------------------------------------------------------------------------------- */

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, double a,
                     double b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "cubic: %s (%.0f, %.0f)",
                  what, a, b);
}

/* W(t) = 0.4 (t - K)^3 + W_max of RFC 9438, in bytes; t in seconds since the epoch. */
static double cubic_window(const ps_cubic_t *cubic, double seconds)
{
    const double k = (double)cubic->k_ticks / 1e4;
    double d = seconds - k;
    d = d > 104 ? 104 : d < -104 ? -104 : d;
    return (double)cubic->peak + 0.4 * d * d * d * (double)cubic->segment;
}

/* K^3 = (W_max - cwnd) / 0.4, windows in segments. */
static void check_epoch(ps_probe_t *probe, const ps_probe_image_t *model, double window)
{
    const ps_cubic_t *cubic = &model->image->congestion.cubic;
    const double k = (double)cubic->k_ticks / 1e4;
    const double below = ((double)cubic->peak - window) / (double)cubic->segment / 0.4;
    const double step = 1e-4;
    if (below <= 0 ? cubic->k_ticks != 0
                   : (k + step) * (k + step) * (k + step) < below ||
                         (k > step && (k - step) * (k - step) * (k - step) > below)) {
        complain(probe, model, "K", (double)cubic->k_ticks, below);
    }
}

/* A loss: seven tenths, and the plateau where it was (less, if it was below the last one). */
static void check_cut(ps_probe_t *probe, const ps_probe_image_t *model, double arrived)
{
    const ps_cubic_t *cubic = &model->image->congestion.cubic;
    const double before = (double)ps_cubic_window(&model->cubic);
    const double now = (double)ps_cubic_window(cubic);
    const double least =
        0.7 * before - 2 > (double)cubic->least ? 0.7 * before - 2 : (double)cubic->least;
    if (now < least || now > larger(0.7 * before, (double)cubic->least) + arrived + 2) {
        complain(probe, model, "a loss cuts to another window", now, 0.7 * before);
    }
    if (cubic->phase != PS_CUBIC_AVOIDANCE || cubic->prior < (int64_t)before - 1) {
        complain(probe, model, "a loss does not end slow start", (double)cubic->phase, before);
    }
    const double rtt_s = larger((double)cubic->smoothed_ns, (double)model->cubic.smoothed_ns) / 1e9;
    const double close = 0.4 * rtt_s * rtt_s * rtt_s * (double)cubic->segment + 2;
    const double below = (double)model->cubic.peak - before;
    const bool known = model->cubic.epoch_set;
    const int64_t less = (int64_t)before - (int64_t)before * 3 / 20;
    if ((cubic->peak != (int64_t)before && cubic->peak != less) ||
        (cubic->peak != less && known && below > close) ||
        (cubic->peak != (int64_t)before && (!known || below <= 0))) {
        complain(probe, model, "a loss sets another plateau", (double)cubic->peak, before);
    }
    check_epoch(probe, model, (double)cubic->threshold);
}

static void check_growth(ps_probe_t *probe, ps_probe_image_t *model, double arrived, int64_t now_ns)
{
    const ps_cubic_t *cubic = &model->image->congestion.cubic;
    const ps_cubic_t *old = &model->cubic;
    const double before = (double)old->window_q / 65536;
    const double grown = (double)(cubic->window_q - old->window_q) / 65536;
    const bool open = before + arrived < (double)cubic->most;
    /* If Reno's window would be larger, the window is set to Reno's estimate (RFC 9438, 4.3). This
     * estimate may be ahead of a window that followed the cubic curve. A window never grows by more
     * than the bytes that arrived since it was reduced. */
    const bool reno =
        cubic->friendly && cubic->window_q == cubic->reno_q && old->reno_q > old->window_q;
    const bool avoids = old->phase == PS_CUBIC_AVOIDANCE && cubic->phase == PS_CUBIC_AVOIDANCE;
    const double credit = avoids ? model->cubic_credit + arrived : arrived;
    const double led = reno ? (double)(old->reno_q - old->window_q) / 65536 : 0;
    if ((grown < 0 && cubic->epoch_ns == old->epoch_ns) || grown > led + credit + 1) {
        complain(probe, model, "a window changes by more than arrived", grown, credit);
    }
    model->cubic_credit = avoids && grown < credit ? credit - larger(grown, 0) : 0;
    if (old->phase != cubic->phase || !old->limited || arrived <= 0 || !open) {
        return;
    }
    if (cubic->phase == PS_CUBIC_SLOW_START && grown != arrived) {
        complain(probe, model, "slow start grows otherwise", grown, arrived);
    }
    if (cubic->phase == PS_CUBIC_CONSERVATIVE && (grown > arrived / 4 || grown < arrived / 4 - 1)) {
        complain(probe, model, "conservative slow start grows otherwise", grown, arrived);
    }
    if (cubic->phase == PS_CUBIC_AVOIDANCE && !cubic->friendly) {
        const double seconds = (double)(now_ns - old->epoch_ns + cubic->smoothed_ns) / SECOND;
        double target = cubic_window(old, seconds);
        target = target > 1.5 * before ? 1.5 * before : target < before ? before : target;
        /* By the time that passed, a round trip of it at most. */
        const double round_ns = (double)cubic->smoothed_ns;
        const double passed_ns = (double)(now_ns - model->cubic_grown_ns);
        const double part = passed_ns > round_ns ? 1 : passed_ns / round_ns;
        double wanted = (target - before) * (round_ns > 0 ? part : arrived / before);
        wanted = wanted > credit ? credit : wanted;
        if (grown > wanted * 1.05 + 64 || grown < wanted * 0.95 - 64) {
            complain(probe, model, "the window is not on the cubic", grown, wanted);
        }
    }
}

/* Eight samples that are all an eighth (4 to 16 ms) longer than the last round's least: slow start
 * turns conservative, until one is shorter again. */
void ps_probe_round_sample(ps_probe_image_t *model, int64_t sample_ns)
{
    ps_probe_round_t *round = &model->round;
    const int64_t eighth = round->last_ns / 8;
    const int64_t longer = eighth < 4000000 ? 4000000 : eighth > 16000000 ? 16000000 : eighth;
    round->least_ns = sample_ns < round->least_ns ? sample_ns : round->least_ns;
    round->samples++;
    if (round->samples < 8 || round->last_ns == INT64_MAX) {
        return;
    }
    if (round->phase == PS_CUBIC_SLOW_START && round->least_ns - longer >= round->last_ns) {
        round->phase = PS_CUBIC_CONSERVATIVE;
        round->base_ns = round->least_ns;
        round->conservative = 0;
    } else if (round->phase == PS_CUBIC_CONSERVATIVE && round->least_ns < round->base_ns) {
        round->phase = PS_CUBIC_SLOW_START;
    }
}

static void end_round(ps_probe_t *probe, ps_probe_image_t *model, bool cut)
{
    ps_probe_round_t *round = &model->round;
    const ps_cubic_t *cubic = &model->image->congestion.cubic;
    const int64_t unused = round->window / (round->phase == PS_CUBIC_AVOIDANCE ? 4 : 2);
    const bool limited = round->received >= round->window - unused;
    if (!cut && limited != cubic->limited) {
        complain(probe, model, "a round is limited by another", (double)round->received,
                 (double)round->window);
    }
    if (round->phase == PS_CUBIC_CONSERVATIVE && ++round->conservative >= 5) {
        round->phase = PS_CUBIC_AVOIDANCE;
    }
    if (round->samples > 0) {
        round->last_ns = round->least_ns;
        round->least_ns = INT64_MAX;
        round->samples = 0;
    }
    round->received = 0;
    round->window = ps_cubic_window(cubic);
}

/* A further loss may leave the edge of recovery where it was: then its time tells.  A window near
 * its least may have grown back, or beyond, in the same pass. A first epoch begins, and a round
 * without a limit moves the epoch, without a cut; a second check at the same time sees no further
 * one. */
static bool is_cut(const ps_cubic_t *cubic, const ps_cubic_t *old, int64_t now_ns)
{
    const bool grown_back = cubic->window_q >= old->window_q && cubic->limited && old->epoch_set &&
                            old->epoch_ns != now_ns;
    return cubic->epoch_ns == now_ns && (cubic->window_q < old->window_q || grown_back);
}

static void check_phase(ps_probe_t *probe, ps_probe_image_t *model, double arrived, int64_t now_ns)
{
    ps_probe_round_t *round = &model->round;
    const ps_cubic_t *cubic = &model->image->congestion.cubic;
    const ps_cubic_t *old = &model->cubic;
    if (!model->cubic_known || !old->round_set) {
        *round = (ps_probe_round_t){ .least_ns = cubic->this_least_ns,
                                     .last_ns = cubic->last_least_ns,
                                     .base_ns = cubic->baseline_ns,
                                     .received = cubic->round_received,
                                     .window = cubic->round_window,
                                     .samples = cubic->samples,
                                     .conservative = cubic->conservative_rounds,
                                     .phase = cubic->phase };
        return;
    }
    const bool cut =
        cubic->had_event && (!old->had_event || cubic->recovery != old->recovery ||
                             cubic->threshold < old->threshold || is_cut(cubic, old, now_ns));
    round->received += (int64_t)arrived;
    if (cut || (round->phase != PS_CUBIC_AVOIDANCE && ps_cubic_window(cubic) >= old->threshold)) {
        round->phase = PS_CUBIC_AVOIDANCE;
    }
    round->window = cut ? cubic->threshold : round->window;
    if (cubic->round_ns != old->round_ns) {
        end_round(probe, model, cut || cubic->phase != old->phase || cubic->round_ns != now_ns);
    }
    if (round->phase != cubic->phase) {
        complain(probe, model, "another phase", cubic->phase, round->phase);
        round->phase = cubic->phase;
    }
}

/* Between two checks most one pass brings bytes: a window grows or is cut by the rules. */
void ps_probe_cubic_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_cubic_t *cubic = &image->congestion.cubic;
    const ps_cubic_t *old = &model->cubic;
    if (cubic->segment == 0) {
        return;
    }
    const double arrived = (double)(image->congestion.received - model->cubic_received);
    if (cubic->friendly != (image->params.cubic_only == 0)) {
        complain(probe, model, "the option reno is not obeyed", cubic->friendly,
                 image->params.cubic_only);
    }
    if (cubic->round_set && !old->round_set && (cubic->round_ns != now_ns || !cubic->limited)) {
        complain(probe, model, "the first round is over before it began", (double)cubic->round_ns,
                 (double)now_ns);
    }
    const int64_t window = ps_cubic_window(cubic);
    if (window < cubic->least || window > cubic->most || cubic->segment != image->log.mtu) {
        complain(probe, model, "a window out of bounds", (double)window, (double)cubic->most);
    }
    if (model->cubic_known && old->round_set) {
        const int64_t round_ns = cubic->smoothed_ns > 0 ? cubic->smoothed_ns : 100000000;
        if (cubic->recovery != old->recovery || cubic->had_event != old->had_event ||
            is_cut(cubic, old, now_ns)) {
            check_cut(probe, model, arrived);
            model->cubic_credit = larger(arrived - (double)(window - cubic->threshold), 0);
        } else {
            check_growth(probe, model, arrived > 0 ? arrived : 0, now_ns);
        }
        if (arrived > 0 && now_ns - cubic->round_ns > round_ns) {
            complain(probe, model, "a round does not end", (double)(now_ns - cubic->round_ns),
                     (double)round_ns);
        }
    }
    if (cubic->phase != PS_CUBIC_AVOIDANCE && cubic->had_event) {
        complain(probe, model, "slow start again", (double)cubic->phase, 0);
    }
    if (arrived > 0 && image->congestion.received != image->hwm - image->gaps.missing) {
        complain(probe, model, "received bytes are counted wrong",
                 (double)image->congestion.received, (double)image->hwm);
    }
    check_phase(probe, model, arrived > 0 ? arrived : 0, now_ns);
    if (arrived > 0 || cubic->epoch_ns != old->epoch_ns) {
        model->cubic_grown_ns = now_ns;
    }
    model->cubic = *cubic;
    model->cubic_known = image->congestion.started;
    model->cubic_received = image->congestion.received;
}

/* ---- a class in the control plane ------------------------------------------------------------ */

/* The window of a class in the control plane bounds the data in flight for 5 s after its last
 * answer, and no longer.  most: what receiver window and storage allow. */
void ps_probe_class_check(ps_probe_t *probe, const ps_probe_image_t *model, int64_t window,
                          int64_t most)
{
    const ps_image_t *image = model->image;
    const ps_congestion_t *custom = &image->congestion;
    const int64_t now_ns = image->receiver->now_ns;
    const int64_t here = custom->received - image->consumption;
    const int64_t wanted = custom->custom_silent ? most : here + custom->custom_window;
    const bool silent = custom->custom_silent_ns > 0 &&
                        now_ns - (custom->custom_silent_ns - 5 * SECOND) >= 5 * SECOND;
    if (custom->started && silent != custom->custom_silent) {
        complain(probe, model, "a class is silent after another time", (double)(now_ns),
                 (double)(custom->custom_silent_ns));
    }
    if (window != (wanted < most ? wanted : most) && custom->started) {
        complain(probe, model, "a status message states another window than the class allows",
                 window, wanted);
    }
    if (custom->custom_window < 2 * image->log.mtu && custom->custom_window < most) {
        complain(probe, model, "a class holds the stream below two datagrams",
                 custom->custom_window, most);
    }
}

/* ---- round trips ----------------------------------------------------------------------------- */

/* Of sixteen requests without an answer every second one is forgotten, not the oldest. */
void ps_probe_rtt_requested(ps_probe_image_t *model, int64_t now_ns)
{
    if (model->n_requested_rtt == 16) {
        for (int32_t i = 0; i < 8; i++) {
            model->requested_rtt[i] = model->requested_rtt[2 * i];
        }
        model->n_requested_rtt = 8;
    }
    model->requested_rtt[model->n_requested_rtt++] = now_ns;
}

/* While answers are missing, requests leave a sixteenth of the oldest one's age apart. */
bool ps_probe_rtt_wanted(const ps_probe_image_t *model, int64_t now_ns)
{
    const int32_t n = model->n_requested_rtt;
    return n < 2 ||
           (now_ns - model->requested_rtt[n - 1]) >= (now_ns - model->requested_rtt[0]) / 16;
}

/* Returns the sample, 0: no such request is open. Requests that were open for twice as long are
 * dropped. */
int64_t ps_probe_rtt_answer(ps_probe_image_t *model, int64_t stamp_ns, int64_t now_ns)
{
    const int64_t sample = now_ns > stamp_ns ? now_ns - stamp_ns : 1;
    bool found = false;
    for (int32_t i = 0; i < model->n_requested_rtt; i++) {
        found |= model->requested_rtt[i] == stamp_ns;
    }
    int32_t n = 0;
    for (int32_t i = 0; found && i < model->n_requested_rtt; i++) {
        const int64_t requested_ns = model->requested_rtt[i];
        if (requested_ns != stamp_ns && requested_ns >= now_ns - 2 * sample) {
            model->requested_rtt[n++] = requested_ns;
        }
    }
    model->n_requested_rtt = found ? n : model->n_requested_rtt;
    return found ? sample : 0;
}
