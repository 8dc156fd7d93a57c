/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_nak.c: NAK-strength control by its rules (docs/nak-strength.md), in reals: what a
 * sender may send after the signals that it read, and what a receiver must signal.  Where the
 * driver's integers and these reals agree within rounding, the model goes on from the driver's, so
 * that errors do not add up.
 */
#include <string.h>

#include "ps_sim_probe.h"
#include "ps_sim_probe_number.h"

/* ROUNDED: what integers lose in a step, a part below one being taken 64 times. */
enum { SLOTS = 9, MOST_STEPS = 64, ROUNDED = 256 };
#define EIGHTH_NS INT64_C(6250000)
#define SECOND    1e9

/* ---- sender ---------------------------------------------------------------------------------- */

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, double a,
                     double b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "NAK rate: %s (%.0f, %.0f)", what,
                  a, b);
}

void ps_probe_strength_sent(ps_probe_pub_t *model, int64_t bytes, int64_t now_ns)
{
    ps_probe_strength_t *strength = &model->strength;
    const int64_t eighth = now_ns / EIGHTH_NS;
    const int32_t at = (int32_t)(eighth % SLOTS);
    if (strength->eighths[at] != eighth) {
        strength->eighths[at] = eighth;
        strength->bytes[at] = 0;
    }
    if (now_ns - strength->sent_ns >= PS_PRESSURE_WINDOW_NS) {
        strength->began_ns = now_ns; /* bytes from before the silence count no more */
        memset(strength->bytes, 0, sizeof(strength->bytes));
    }
    strength->sent_ns = now_ns;
    strength->bytes[at] += bytes;
}

/* Bytes a second over the last eight eighths of 50 ms that are over; after a silence, over the time
 * since. */
static double measured(const ps_probe_strength_t *strength, int64_t now_ns)
{
    const int64_t eighth = now_ns / EIGHTH_NS;
    const int64_t since_ns = now_ns - strength->began_ns;
    const bool young = since_ns < PS_PRESSURE_WINDOW_NS;
    int64_t sum = 0;
    for (int32_t i = 0; i < SLOTS; i++) {
        const bool counts =
            strength->eighths[i] >= eighth - 8 && (young || strength->eighths[i] < eighth);
        sum += counts ? strength->bytes[i] : 0;
    }
    return young ? (double)sum * SECOND / most((double)since_ns, (double)EIGHTH_NS / 8)
                 : (double)sum * 20;
}

/* Returns the step of a window without a signal. */
static double step_of(ps_probe_strength_t *strength)
{
    const double limit = strength->limit;
    const double wall = strength->wall;
    const double k = strength->quiet < 8 ? strength->quiet : 8;
    const bool known = wall > 0;
    /* Over several windows rounding adds up: at the bound of a rule either may hold. */
    const double nearest = least(apart(limit, 1.125 * wall), apart(limit, 0.875 * wall));
    strength->open = strength->open || (known && nearest <= ROUNDED + strength->unsure);
    if (known && limit > 1.125 * wall) {
        strength->beyond++;
        return limit / 32 * (strength->beyond < 8 ? strength->beyond : 8);
    }
    strength->beyond = 0;
    if (!known || limit < 0.875 * wall) {
        return most(limit * k / 16, (0.875 * wall - limit) / 2);
    }
    const double probe = most(limit / 64, least(limit / 16, strength->wall_dev / 4));
    return least(most(limit * k / 16, limit / 64), probe * (1 + k / 8));
}

static void end_window(ps_probe_strength_t *strength)
{
    if (strength->level > 0) {
        strength->level = 0;
        return;
    }
    strength->quiet++;
    const double step = step_of(strength);
    strength->unsure = strength->unsure * (1 + step / strength->limit) + ROUNDED;
    strength->limit += step;
    if (strength->limit >= PS_PROBE_NO_LIMIT - 0.5) { /* it is as if nothing had been */
        strength->limit = PS_PROBE_NO_LIMIT;
        strength->end_ns = 0;
        strength->window_ns = PS_PRESSURE_WINDOW_NS;
        strength->wall = 0;
        strength->quiet = 0;
        strength->beyond = 0;
    }
}

static void turn_to(ps_probe_strength_t *strength, int64_t now_ns)
{
    for (int32_t i = 0; i < MOST_STEPS && strength->end_ns != 0 && strength->end_ns <= now_ns;
         i++) {
        strength->end_ns += strength->window_ns;
        end_window(strength);
    }
    if (strength->end_ns != 0 && strength->end_ns <= now_ns) {
        strength->end_ns = now_ns + strength->window_ns;
    }
}

static int64_t window_of(const ps_pressure_t *pressure)
{
    int64_t window_ns = 2 * pressure->rtt_ns;
    window_ns = pressure->cadence_ns > window_ns ? pressure->cadence_ns : window_ns;
    window_ns = window_ns > PS_PRESSURE_WINDOW_MAX_NS ? PS_PRESSURE_WINDOW_MAX_NS : window_ns;
    return window_ns < PS_PRESSURE_WINDOW_NS ? PS_PRESSURE_WINDOW_NS : window_ns;
}

/* The rate that a signal requests. */
static double wanted(const ps_probe_strength_t *strength, const ps_pressure_t *pressure,
                     double half_term, double sent)
{
    static const double of_sent[] = { 0.875, 0.75, 0.625, 0.5 };
    static const double of_taken[] = { 0.9375, 0.875, 0.75, 0.5 };
    static const double of_more[] = { 1.125, 1.0625, 1.015625, 1.015625 };
    const int32_t at = pressure->level - 1;
    const double by_strength = sent * of_sent[at];
    const double stated = (double)pressure->rate;
    const bool behind = pressure->residue > 0;
    double rate = by_strength;
    if (stated > 0) {
        const double kept = behind || pressure->cadence_ns < 1000000
                                ? PS_PROBE_NO_LIMIT * 1e6
                                : half_term * SECOND / (double)pressure->cadence_ns;
        const double taken = least(stated, kept);
        const double drain_s = 2 * (double)window_of(pressure) / SECOND;
        const double comes = at == 0 ? most(taken, least(sent, kept)) : taken;
        rate = behind ? most(stated * of_taken[at], stated - (double)pressure->residue / drain_s)
                      : most(by_strength, comes * of_more[at]);
        if (pressure->overrun > 0) {
            const double over = (double)pressure->overrun / half_term;
            const double cut = over <= 0.125 ? taken : over > 0.5 ? taken / 2 : taken * 0.875;
            rate = least(rate, behind ? cut : most(cut, by_strength));
        }
    }
    return most(rate, strength->floor);
}

/* Updates the culprit's rate: a mean to which each value adds a quarter, and the deviation from
 * it. */
static void note_wall(ps_probe_strength_t *strength, const ps_pressure_t *pressure, double sent)
{
    const double wall = most(pressure->rate > 0 ? (double)pressure->rate : sent, strength->floor);
    if (pressure->rate > 0 && pressure->residue == 0) {
        strength->wall = 0;
        return;
    }
    /* Just at half of it integers may round to either side. */
    strength->open = strength->open || apart(wall, strength->wall / 2) <= ROUNDED + wall / 1000;
    if (strength->wall <= 0 || wall < strength->wall / 2) {
        strength->wall = wall;
        strength->wall_dev = wall / 8;
        return;
    }
    strength->wall_dev = 0.75 * strength->wall_dev + 0.25 * apart(wall, strength->wall);
    strength->wall = 0.75 * strength->wall + 0.25 * wall;
}

void ps_probe_strength_signal(ps_probe_pub_t *model, const ps_pressure_t *pressure, int64_t now_ns)
{
    ps_probe_strength_t *strength = &model->strength;
    if (model->pub->params.flow_control != PS_FC_PRESSURE || model->pub->endpoint == NULL) {
        return;
    }
    turn_to(strength, now_ns);
    strength->signals++;
    const bool same =
        strength->limit < PS_PROBE_NO_LIMIT && strength->culprit == pressure->receiver_id;
    const bool anew = strength->limit >= PS_PROBE_NO_LIMIT || now_ns >= strength->base_until_ns;
    /* At a longer round trip a sender that waits at its edge sent half a term in two of them. */
    const int64_t rtt_ns =
        pressure->rtt_ns < PS_PRESSURE_WINDOW_MAX_NS ? pressure->rtt_ns : PS_PRESSURE_WINDOW_MAX_NS;
    const double waited = pressure->rtt_ns < PS_PRESSURE_WINDOW_NS
                              ? 0
                              : (double)model->pub->log.term_length / 4 * SECOND / (double)rtt_ns;
    /* A reader that was not seen to consume says nothing of a sender that stands already. */
    const double before = pressure->rate == 0 ? measured(strength, strength->sent_ns) : 0;
    const double recent = most(most(measured(strength, now_ns), before), waited);
    const double sent = anew ? least(recent, strength->limit) : strength->base;
    const double rate = wanted(strength, pressure, (double)model->pub->log.term_length / 2, sent);
    /* Times in microseconds: a cadence of a millisecond may be a thousandth shorter. */
    const double cut = pressure->cadence_ns < 1000000 ? 0 : 1e3 / (double)pressure->cadence_ns;
    const double error = ROUNDED + rate * (1e-4 + cut) + sent / 1e3;
    /* Two receivers that request the same rate: the sender may follow either. */
    strength->open =
        strength->open || (!same && apart(rate, strength->limit) <= error + strength->unsure);
    if (!same && rate >= strength->limit) {
        return;
    }
    /* A sender that stood since its last cut is not cut again for what it sent before. */
    const double moved = measured(strength, now_ns);
    const bool stood = anew && moved < strength->limit / 2;
    const double nearly = strength->limit / 16 + 80.0 * model->pub->log.mtu;
    strength->open = strength->open || (same && pressure->rate == 0 && anew &&
                                        apart(moved, strength->limit / 2) <= nearly);
    if (same && pressure->rate == 0 && (pressure->level <= strength->level || stood)) {
        strength->level = pressure->level > strength->level ? pressure->level : strength->level;
        strength->end_ns = now_ns + strength->window_ns;
        return;
    }
    strength->window_ns = window_of(pressure);
    strength->end_ns = now_ns + strength->window_ns;
    if (anew) {
        strength->base = sent;
        strength->base_until_ns = strength->end_ns;
    }
    if (anew || !same) {
        note_wall(strength, pressure, sent);
    }
    strength->unsure += error;
    /* Data sent in the cycle that reads the signal may count, or may not. */
    strength->unsure += now_ns - strength->began_ns < PS_PRESSURE_WINDOW_NS ? PS_PROBE_NO_LIMIT : 0;
    strength->limit = rate;
    strength->culprit = pressure->receiver_id;
    strength->level =
        !same || pressure->level > strength->level ? pressure->level : strength->level;
    strength->quiet = 0;
    strength->beyond = 0;
}

static bool is_near(const ps_probe_strength_t *strength, double a, double b)
{
    return apart(a, b) <= ROUNDED + strength->unsure;
}

static void follow(ps_probe_strength_t *strength, const ps_pressure_control_t *rate)
{
    strength->unsure = 0;
    strength->limit = (double)rate->limit;
    strength->wall = (double)rate->wall;
    strength->wall_dev = (double)rate->wall_dev;
    strength->base = (double)rate->base;
    strength->base_until_ns = rate->base_until_ns;
    strength->end_ns = rate->window_end_ns;
    strength->window_ns = rate->window_ns;
    strength->level = rate->level;
    strength->quiet = rate->quiet;
    strength->beyond = rate->beyond;
    strength->signals = rate->signals;
    strength->culprit = rate->culprit;
}

static void compare(ps_probe_t *probe, ps_probe_pub_t *model)
{
    const ps_pressure_control_t *rate = &model->pub->pressure_control;
    ps_probe_strength_t *strength = &model->strength;
    if (strength->open) { /* either was right */
        strength->open = false;
        follow(strength, rate);
        return;
    }
    if (!is_near(strength, (double)rate->limit, strength->limit)) {
        complain(probe, model, "another limit", (double)rate->limit, strength->limit);
    }
    if (rate->window_end_ns != strength->end_ns || rate->window_ns != strength->window_ns) {
        complain(probe, model, "another window", (double)rate->window_end_ns,
                 (double)strength->end_ns);
    }
    if (strength->end_ns != 0 && (!is_near(strength, (double)rate->wall, strength->wall) ||
                                  !is_near(strength, (double)rate->wall_dev, strength->wall_dev))) {
        complain(probe, model, "another wall", (double)rate->wall, strength->wall);
    }
    if (rate->level != strength->level || rate->quiet != strength->quiet ||
        rate->signals != strength->signals || rate->culprit != strength->culprit) {
        complain(probe, model, "other signals count", rate->level, strength->level);
    }
    follow(strength, rate);
}

/* A limit that held nothing back lately is not shown. */
static void check_shown(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t shown = atomic_load_explicit(&pub->slot->rate_bytes_per_s, memory_order_relaxed);
    const int64_t wish = pub->params.rate_bytes_per_s;
    const bool limits = ps_pressure_control_limits(&pub->pressure_control);
    const int64_t limit = limits ? pub->pressure_control.limit : 0;
    const int64_t lower = limit == 0 || (wish > 0 && wish < limit) ? wish : limit;
    if (pub->rate_cause == PS_CAUSE_NAK_RATE && now_ns < pub->pressure_binds_until_ns
            ? shown != lower
            : shown != wish && shown != lower) {
        complain(probe, model, "another rate is shown", (double)shown, (double)limit);
    }
}

/* The driver ends windows when it has something to send: not later, but maybe not at all. */
void ps_probe_strength_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_pressure_control_t *rate = &pub->pressure_control;
    if (pub->params.flow_control != PS_FC_PRESSURE || pub->endpoint == NULL) {
        return;
    }
    const bool over = rate->window_end_ns != 0 && rate->window_end_ns <= now_ns;
    const bool sends = model->fresh_bytes > 0;
    ps_probe_promise(probe, &model->promises[P_PUB_STEPPED], !over || !sends, now_ns, 0,
                     "windows of the NAK rate end", model->host, pub->log.session_id);
    if (!over) {
        turn_to(&model->strength, now_ns);
        compare(probe, model);
        check_shown(probe, model, now_ns);
    }
}

/* ---- receiver -------------------------------------------------------------------------------- */

static void complain_of(ps_probe_t *probe, const ps_probe_image_t *model, const char *what,
                        double a, double b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "PRESSURE: %s (%.0f, %.0f)",
                  what, a, b);
}

/* 50, 75, 87 and 100 %. */
int32_t ps_probe_queue_level(const ps_image_t *image, int64_t fill)
{
    const double share = (double)fill / ((double)image->log.term_length / 2);
    return (share >= 0.5) + (share >= 0.75) + (share >= 0.87) + (share >= 1);
}

/* Returns true if the receiver waits for this reader, and the reader is not paused. */
static bool signals_for(const ps_probe_image_t *model, const ps_image_subscriber_t *subscriber,
                        ps_probe_moment_t moment, int64_t now_ns)
{
    const ps_pressure_reader_t reader = ps_probe_reader_at(model, subscriber, moment);
    const int64_t twice_ns = 2 * reader.cadence_ns;
    const int64_t least_ns = twice_ns < 250000000 ? 250000000 : twice_ns;
    const int64_t pause_ns = least_ns < 2000000000 ? least_ns : 2000000000;
    const bool paused = !reader.empty && now_ns - reader.waiting_ns >= pause_ns;
    const bool gates = moment == PS_PROBE_BEFORE_TETHERS ? ps_probe_gated(model, subscriber)
                                                         : ps_tether_gates(&subscriber->tether);
    return gates && !subscriber->isolation.lagged && reader.started && !paused;
}

/* Returns the position of the slowest reader that is not paused; INT64_MAX: there is none. */
static int64_t slowest_of(const ps_probe_image_t *model, ps_probe_moment_t moment, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        if (signals_for(model, subscriber, moment, now_ns) &&
            subscriber->reader.position < slowest) {
            slowest = subscriber->reader.position;
        }
    }
    return slowest;
}

int64_t ps_probe_queue_fill(const ps_probe_image_t *model, ps_probe_moment_t moment, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t slowest = slowest_of(model, moment, now_ns);
    const int64_t sent = image->sent_seen > image->hwm ? image->sent_seen : image->hwm;
    return slowest == INT64_MAX ? -1 : sent - slowest;
}

/* A PRESSURE frame states the values of the slowest reader that is not paused. */
bool ps_probe_readers_stated(const ps_probe_image_t *model, const ps_pressure_t *pressure,
                             ps_probe_moment_t moment, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t position = slowest_of(model, moment, now_ns);
    bool any = false;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        const ps_pressure_reader_t reader = ps_probe_reader_at(model, subscriber, moment);
        const bool bounded =
            reader.term > 0 && reader.taken > 0 && reader.position % reader.term == 0;
        const int64_t residue = reader.at_least || bounded ? 0 : reader.residue;
        any = any || (signals_for(model, subscriber, moment, now_ns) &&
                      reader.position == position && pressure->rate == reader.rate &&
                      pressure->cadence_ns == reader.cadence_ns && pressure->residue == residue);
    }
    return any;
}

/* No more than was read in any span can be what a reader takes; no wait is longer than its own. */
static void check_reader(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_pressure_reader_t *reader = &image->subscribers[i].reader;
        if (reader->cadence_ns < 0 || reader->cadence_ns >= PS_NAK_PAUSE_MAX_NS ||
            reader->rate < 0 || reader->waiting_ns > now_ns ||
            (reader->started && (reader->position < image->join_position ||
                                 reader->position > ps_image_contiguous(image)))) {
            complain_of(probe, model, "a reader is seen as it is not", (double)reader->cadence_ns,
                        (double)reader->position);
        }
    }
}

/* In a group, the first signal of an episode is delayed by a random part of a longest delay.  The
 * longest delay is half a window, or a quarter of the time in which the queue filled if that is
 * less. */
static void check_first(ps_probe_t *probe, const ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_pressure_signal_t *signal = &image->pressure;
    const double filling_ns = (double)(now_ns - signal->low_ns) / 4;
    const double part = (double)model->queue.random / 4294967296.0;
    const double most_ns = least(PS_PRESSURE_WINDOW_MAX_NS / 2, filling_ns) * part;
    const double least_ns = least(PS_PRESSURE_WINDOW_NS / 2, filling_ns) * part;
    const double delay_ns = (double)(signal->first_ns - now_ns);
    const bool group = image->params.group != 0;
    if (delay_ns > (group ? most_ns + 2 : 0) || delay_ns < (group ? least_ns - 2 : 0)) {
        complain_of(probe, model, "another delay of the first signal", delay_ns, most_ns);
    }
}

void ps_probe_queue_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    ps_probe_queue_t *queue = &model->queue;
    check_reader(probe, model, now_ns);
    const int64_t signals = atomic_load_explicit(&image->shown_pressure, memory_order_relaxed);
    if (queue->started && signals != queue->signals && queue->random == image->pressure_random) {
        complain_of(probe, model, "the delay of the next signal is not drawn again",
                    (double)queue->random, (double)now_ns);
    }
    if (queue->started && !queue->episode && image->pressure.episode) {
        check_first(probe, model, now_ns);
    }
    queue->started = true;
    queue->episode = image->pressure.episode;
    queue->signals = signals;
    queue->random = image->pressure_random;
}

/* A signal: within a window each level once, and only upwards. */
void ps_probe_queue_notified(ps_probe_t *probe, ps_probe_image_t *model,
                             const ps_pressure_t *pressure, int64_t now_ns)
{
    ps_probe_queue_t *queue = &model->queue;
    int64_t window_ns =
        pressure->rtt_ns > pressure->cadence_ns ? pressure->rtt_ns : pressure->cadence_ns;
    window_ns = window_ns > PS_PRESSURE_WINDOW_MAX_NS ? PS_PRESSURE_WINDOW_MAX_NS : window_ns;
    window_ns = window_ns < PS_PRESSURE_WINDOW_NS ? PS_PRESSURE_WINDOW_NS : window_ns;
    if (queue->notified_ns == now_ns) {
        return; /* by another way */
    }
    if (now_ns < queue->next_ns && pressure->level <= queue->level) {
        complain_of(probe, model, "again too soon", (double)queue->next_ns, (double)now_ns);
    }
    if (now_ns >= queue->next_ns) {
        queue->next_ns = now_ns + window_ns;
    }
    queue->notified_ns = now_ns;
    queue->level = pressure->level;
}
