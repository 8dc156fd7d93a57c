/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_nak.c: NAK-strength control by its rules (docs/flow-control.md, ps_nak_rate.h), in
 * reals: what a sender may send after the signals that it read, and what a receiver must signal.
 * Where the driver's integers and these reals agree within rounding, the model goes on from the
 * driver's, so that errors do not add up.
 */
#include "ps_sim_probe.h"

/* ROUNDED: what integers lose in a step, a part below one being taken sixteen times. */
enum { P_STEPPED = 18, SLOTS = 9, MOST_STEPS = 64, ROUNDED = 16 };
#define EIGHTH_NS INT64_C(6250000)
#define SECOND    1e9
#define NO_LIMIT  1099511627776.0

static double least(double a, double b)
{
    return a < b ? a : b;
}
static double most(double a, double b)
{
    return a > b ? a : b;
}
static double apart(double a, double b)
{
    return a > b ? a - b : b - a;
}

/* ---- sender ---------------------------------------------------------------------------------- */

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, double a,
                     double b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "NAK rate: %s (%.0f, %.0f)", what,
                  a, b);
}

void ps_probe_strength_init(ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    const double two_a_window = 2.0 * pub->log.mtu * 20;
    model->strength = (ps_probe_strength_t){ .limit = pub->params.flow_control == PS_FC_NAK
                                                          ? (double)pub->nak_rate.limit
                                                          : NO_LIMIT,
                                             .floor = most(131072, two_a_window),
                                             .window_ns = PS_NAK_WINDOW_NS,
                                             .signals = pub->nak_rate.signals };
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
    strength->bytes[at] += bytes;
}

/* Bytes a second over the last eight eighths of 50 ms that are over. */
static double measured(const ps_probe_strength_t *strength, int64_t now_ns)
{
    const int64_t eighth = now_ns / EIGHTH_NS;
    int64_t sum = 0;
    for (int32_t i = 0; i < SLOTS; i++) {
        sum += strength->eighths[i] < eighth && strength->eighths[i] >= eighth - 8
                   ? strength->bytes[i]
                   : 0;
    }
    return (double)sum * 20;
}

/* What a quiet window adds: small near the wall, larger the longer it is quiet. */
static double step_of(ps_probe_strength_t *strength)
{
    const double limit = strength->limit;
    const double wall = strength->wall;
    const double k = strength->quiet < 8 ? strength->quiet : 8;
    const bool known = wall > 0;
    if (known && limit > 1.125 * wall) {
        strength->beyond++;
        return limit / 32 * (strength->beyond < 16 ? strength->beyond : 16);
    }
    strength->beyond = 0;
    if (!known || limit < 0.875 * wall) {
        return limit * k / 16;
    }
    const double probe = most(limit / 64, least(limit / 16, strength->wall_dev / 4));
    return least(most(limit * k / 16, limit / 64), probe * (1 + k / 8));
}

static void end_window(ps_probe_strength_t *strength)
{
    strength->last_fill = strength->level > 0 ? strength->fill : 0;
    strength->quiet = strength->level > 0 ? 0 : strength->quiet + 1;
    if (strength->level == 0) {
        const double step = step_of(strength);
        strength->unsure = strength->unsure * (1 + step / strength->limit) + ROUNDED;
        strength->limit += step;
    }
    strength->level = 0;
    if (strength->limit >= NO_LIMIT - 0.5) { /* it is as if nothing had been */
        strength->limit = NO_LIMIT;
        strength->end_ns = 0;
        strength->window_ns = PS_NAK_WINDOW_NS;
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

/* Where signals come: the mean of a quarter each, and how far they are from it. */
static void note_wall(ps_probe_strength_t *strength)
{
    const double base = strength->base;
    if (strength->wall <= 0) {
        strength->wall = base;
        strength->wall_dev = base / 8;
        return;
    }
    strength->wall_dev = 0.75 * strength->wall_dev + 0.25 * apart(base, strength->wall);
    strength->wall = 0.75 * strength->wall + 0.25 * base;
    strength->wall = base < strength->wall / 2 ? base : strength->wall;
}

void ps_probe_strength_signal(ps_probe_pub_t *model, const ps_pressure_t *pressure, int64_t now_ns)
{
    ps_probe_strength_t *strength = &model->strength;
    const int64_t rtt_ns =
        pressure->rtt_ns > PS_NAK_WINDOW_MAX_NS / 2 ? PS_NAK_WINDOW_MAX_NS / 2 : pressure->rtt_ns;
    if (model->pub->params.flow_control != PS_FC_NAK || model->pub->endpoint == NULL) {
        return;
    }
    turn_to(strength, now_ns);
    strength->signals++;
    strength->window_ns = 2 * rtt_ns > strength->window_ns ? 2 * rtt_ns : strength->window_ns;
    if (strength->end_ns == 0) {
        strength->end_ns = now_ns + strength->window_ns;
        strength->last_fill = 0;
        strength->level = 0;
    }
    if (strength->level == 0) {
        strength->base = most(least(measured(strength, now_ns), strength->limit), strength->floor);
        strength->fill = 0;
        if (strength->last_fill == 0 || strength->base < strength->wall) {
            note_wall(strength);
        }
    } else if (pressure->level < strength->level ||
               (pressure->level == strength->level && pressure->fill_ppm <= strength->fill)) {
        return; /* not the strongest of its window */
    }
    strength->level = pressure->level;
    strength->fill = pressure->fill_ppm;
    strength->culprit = pressure->receiver_id;
    strength->quiet = 0;
    strength->unsure += ROUNDED;
    const bool recedes = strength->last_fill > 0 && pressure->fill_ppm < strength->last_fill &&
                         strength->limit < NO_LIMIT;
    const double cut = most(strength->base * (8 - pressure->level) / 8, strength->floor);
    if (!recedes && cut < strength->limit) {
        strength->limit = cut;
    }
}

static bool is_near(const ps_probe_strength_t *strength, double a, double b)
{
    return apart(a, b) <= ROUNDED + strength->unsure;
}

static void compare(ps_probe_t *probe, ps_probe_pub_t *model)
{
    const ps_nak_rate_t *rate = &model->pub->nak_rate;
    ps_probe_strength_t *strength = &model->strength;
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
    strength->unsure = 0;
    strength->limit = (double)rate->limit;
    strength->wall = (double)rate->wall;
    strength->wall_dev = (double)rate->wall_dev;
    strength->end_ns = rate->window_end_ns;
    strength->window_ns = rate->window_ns;
    strength->level = rate->level;
    strength->quiet = rate->quiet;
    strength->signals = rate->signals;
    strength->culprit = rate->culprit;
}

/* The driver ends windows when it has something to send: not later, but maybe not at all. */
void ps_probe_strength_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_nak_rate_t *rate = &pub->nak_rate;
    if (pub->params.flow_control != PS_FC_NAK || pub->endpoint == NULL) {
        return;
    }
    const bool over = rate->window_end_ns != 0 && rate->window_end_ns <= now_ns;
    const bool sends = model->fresh_bytes > 0;
    ps_probe_promise(probe, &model->promises[P_STEPPED], !over || !sends, now_ns, 0,
                     "windows of the NAK rate end", model->host, pub->log.session_id);
    if (!over) {
        turn_to(&model->strength, now_ns);
        compare(probe, model);
        const int64_t shown =
            atomic_load_explicit(&pub->slot->rate_bytes_per_s, memory_order_relaxed);
        const int64_t wish = pub->params.rate_bytes_per_s;
        const int64_t limit = ps_nak_rate_limits(rate) ? rate->limit : 0;
        if (shown != (limit == 0 || (wish > 0 && wish < limit) ? wish : limit)) {
            complain(probe, model, "another rate is shown", (double)shown, (double)limit);
        }
    }
}

/* ---- receiver -------------------------------------------------------------------------------- */

static void complain_of(ps_probe_t *probe, const ps_probe_image_t *model, const char *what,
                        double a, double b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "PRESSURE: %s (%.0f, %.0f)",
                  what, a, b);
}

/* The queue's growth, smoothed by an eighth, at least an eighth of a window after the last look;
 * what it may grow by until a signal has effect must fit above the first threshold. */
static void adapt(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_nak_signal_t *signal = &image->pressure;
    ps_probe_queue_t *queue = &model->queue;
    const double elapsed_ns = (double)(signal->sampled_ns - queue->sampled_ns);
    const double capacity = (double)image->log.term_length / 2;
    const int64_t window_ns = ps_nak_window_ns(image->rtt.smoothed_ns);
    if (signal->sampled_ns != now_ns || elapsed_ns < (double)EIGHTH_NS ||
        (image->n_subscribers == 1 /* of several, one may be left behind after the look */
         && signal->sampled_unread != ps_image_contiguous(image) - image->consumption)) {
        complain_of(probe, model, "a queue is looked at at another time",
                    (double)signal->sampled_ns, elapsed_ns);
    }
    const double growth =
        (double)(signal->sampled_unread - queue->sampled_unread) * SECOND / elapsed_ns;
    const double slack = 10 + (apart(growth, 0) + apart(queue->growth, 0)) / 1000;
    queue->varies += (apart(growth, queue->growth) - queue->varies) / 8;
    queue->growth += (growth - queue->growth) / 8;
    if (apart(queue->growth, (double)signal->growth) > slack ||
        apart(queue->varies, (double)signal->growth_dev) > slack) {
        complain_of(probe, model, "a queue grows otherwise", (double)signal->growth, queue->growth);
    }
    queue->growth = (double)signal->growth;
    queue->varies = (double)signal->growth_dev;
    const double pace = most(queue->growth, 0) + 2 * queue->varies;
    const double needed =
        pace * (double)(window_ns + image->rtt.smoothed_ns) / SECOND / capacity * 1e6;
    const double first = most(250000, least(500000, 1000000 - needed));
    const double wanted[PS_NAK_LEVELS] = { first, 1e6 - (1e6 - first) / 2, 1e6 - (1e6 - first) / 4,
                                           1e6 };
    /* The driver counts its pace in thousands of bytes: that much less may be needed. */
    const double rounding = 100 + needed * 1000 / most(pace, 1000);
    for (int32_t i = 0; i < PS_NAK_LEVELS; i++) {
        if (apart(wanted[i], signal->thresholds_ppm[i]) > (i == 3 ? 0 : rounding)) {
            complain_of(probe, model, "another threshold", signal->thresholds_ppm[i], wanted[i]);
        }
    }
    queue->sampled_ns = signal->sampled_ns;
    queue->sampled_unread = signal->sampled_unread;
}

/* The first signal of an episode is put off by a random part of half a window in a group. */
static void look_at_episode(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_nak_signal_t *signal = &image->pressure;
    ps_probe_queue_t *queue = &model->queue;
    const int64_t window_ns = ps_nak_window_ns(image->rtt.smoothed_ns);
    const bool untold = !ps_probe_is_heard(image, now_ns) /* nobody is there to be told */
                        && apart((double)(now_ns + window_ns), (double)signal->next_ns) <= 2;
    const bool told = model->pressure_ns == now_ns || untold;
    double wanted = (double)queue->next_ns;
    if (signal->episode && !queue->episode) {
        const double put_off =
            image->params.group ? (double)queue->random / 4294967296.0 * (double)window_ns / 2 : 0;
        wanted = most(wanted, (double)now_ns + put_off);
        if (told && wanted > (double)now_ns + 1) {
            complain_of(probe, model, "a first signal too soon", wanted, (double)now_ns);
        }
    }
    wanted = told ? (double)(now_ns + window_ns) : wanted;
    if (apart(wanted, (double)signal->next_ns) > 2) {
        complain_of(probe, model, "the next signal is due at another time", (double)signal->next_ns,
                    wanted);
    }
    const int64_t signals = atomic_load_explicit(&image->shown_pressure, memory_order_relaxed);
    if (signals != queue->signals && queue->random == image->pressure_random) {
        complain_of(probe, model, "the delay of the next signal is not drawn anew",
                    (double)queue->random, (double)now_ns);
    }
    queue->signals = signals;
    queue->episode = signal->episode;
    queue->next_ns = signal->next_ns;
    queue->random = image->pressure_random;
}

void ps_probe_queue_look(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_nak_signal_t *signal = &image->pressure;
    ps_probe_queue_t *queue = &model->queue;
    if (!signal->started) {
        queue->random = image->pressure_random;
        return;
    }
    if (!queue->started) {
        queue->started = true;
        queue->sampled_ns = signal->sampled_ns;
        queue->sampled_unread = signal->sampled_unread;
        queue->episode = signal->episode;
        queue->next_ns = signal->next_ns;
        queue->random = image->pressure_random;
        queue->signals = atomic_load_explicit(&image->shown_pressure, memory_order_relaxed);
        return;
    }
    if (signal->sampled_ns != queue->sampled_ns) {
        adapt(probe, model, now_ns);
    }
    look_at_episode(probe, model, now_ns);
}

/* Which strength a queue that is so full has, by the thresholds that the receiver is at. */
int32_t ps_probe_queue_level(const ps_image_t *image, int64_t fill_ppm)
{
    int32_t level = 0;
    for (int32_t i = 0; i < PS_NAK_LEVELS; i++) {
        level += fill_ppm >= image->pressure.thresholds_ppm[i];
    }
    return level;
}
