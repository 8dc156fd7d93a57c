/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_nak_rate.c: the controller of NAK-strength flow control.
 */
#include "ps_nak_rate.h"

#include <assert.h>

#define SECOND_NS INT64_C(1000000000)
#define BUCKET_NS (PS_NAK_WINDOW_NS / PS_NAK_BUCKETS)
enum { SAMPLE_PARTS = 8, STEPS_MAX = 64, GROW_MAX = 8 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

/* ---- receiver -------------------------------------------------------------------------------- */

static void set_thresholds(ps_nak_signal_t *signal, int64_t first_ppm)
{
    const int64_t rest = PS_NAK_PPM - first_ppm;
    signal->thresholds_ppm[0] = (uint32_t)first_ppm;
    signal->thresholds_ppm[1] = (uint32_t)(PS_NAK_PPM - rest / 2);
    signal->thresholds_ppm[2] = (uint32_t)(PS_NAK_PPM - rest / 4);
    signal->thresholds_ppm[3] = PS_NAK_PPM;
}

void ps_nak_signal_init(ps_nak_signal_t *signal)
{
    *signal = (ps_nak_signal_t){ 0 };
    set_thresholds(signal, PS_NAK_PPM / 2);
}

/* How fast the queue grows, and what of it must stay free when a signal leaves. */
static void adapt(ps_nak_signal_t *signal, const ps_nak_input_t *in, int64_t window_ns)
{
    const int64_t elapsed_ns = in->now_ns - signal->sampled_ns;
    if (elapsed_ns < PS_NAK_WINDOW_NS / SAMPLE_PARTS) {
        return;
    }
    const int64_t change = in->unread - signal->sampled_unread; /* within a term: no overflow */
    const int64_t growth = change * (SECOND_NS / 1000) / larger(elapsed_ns / 1000, 1);
    signal->growth_dev += (distance(growth, signal->growth) - signal->growth_dev) / 8;
    signal->growth += (growth - signal->growth) / 8;
    signal->sampled_ns = in->now_ns;
    signal->sampled_unread = in->unread;
    const int64_t pace = larger(signal->growth, 0) + 2 * signal->growth_dev;
    const int64_t reaction_us = (window_ns + in->rtt_ns) / 1000;
    const int64_t room = smaller(pace, (INT64_C(1) << 40)) / 1000 * reaction_us / 1000;
    const int64_t needed_ppm = room >= in->capacity ? PS_NAK_PPM : room * PS_NAK_PPM / in->capacity;
    set_thresholds(signal,
                   larger(PS_NAK_PPM / 4, smaller(PS_NAK_PPM / 2, PS_NAK_PPM - needed_ppm)));
}

static int32_t level_of(const ps_nak_signal_t *signal, uint32_t fill_ppm)
{
    int32_t level = 0;
    while (level < PS_NAK_LEVELS && fill_ppm >= signal->thresholds_ppm[level]) {
        level++;
    }
    return level;
}

int32_t ps_nak_signal_step(ps_nak_signal_t *signal, const ps_nak_input_t *in, uint32_t *fill_ppm,
                           int64_t *due_ns)
{
    const int64_t window_ns = ps_nak_window_ns(in->rtt_ns);
    assert(in->capacity > 0);
    if (!signal->started) {
        signal->started = true;
        signal->sampled_ns = in->now_ns;
        signal->sampled_unread = in->unread;
        signal->consumption = in->consumption;
        signal->consumed_ns = in->now_ns;
    }
    if (in->consumption != signal->consumption || in->unread == 0 || signal->empty) {
        signal->consumption = in->consumption;
        signal->consumed_ns = in->now_ns;
    }
    signal->empty = in->unread == 0;
    adapt(signal, in, window_ns);
    *fill_ppm = in->unread >= in->capacity ? PS_NAK_PPM
                                           : (uint32_t)(in->unread * PS_NAK_PPM / in->capacity);
    *due_ns = INT64_MAX;
    const int32_t level = level_of(signal, *fill_ppm);
    if (level == 0) {
        signal->episode = false;
        return 0;
    }
    if (in->now_ns - signal->consumed_ns >= window_ns / 2) {
        return 0; /* its reader stands still: it does not speak for the stream */
    }
    if (!signal->episode) {
        signal->episode = true;
        const int64_t spread_ns = in->group ? window_ns / 2 : 0;
        const int64_t put_off_ns = (int64_t)(((uint64_t)in->random * (uint64_t)spread_ns) >> 32);
        signal->next_ns = larger(signal->next_ns, in->now_ns + put_off_ns);
    }
    if (in->now_ns < signal->next_ns) {
        *due_ns = signal->next_ns;
        return 0;
    }
    signal->next_ns = in->now_ns + window_ns;
    *due_ns = signal->next_ns;
    return level;
}

/* ---- sender: measuring ----------------------------------------------------------------------- */

void ps_nak_rate_init(ps_nak_rate_t *rate, int32_t mtu)
{
    *rate = (ps_nak_rate_t){ .limit = PS_NAK_UNLIMITED, .window_ns = PS_NAK_WINDOW_NS };
    rate->floor = larger(PS_NAK_FLOOR, (int64_t)mtu * 2 * (SECOND_NS / PS_NAK_WINDOW_NS));
}

static void turn_to(ps_nak_rate_t *rate, int64_t now_ns)
{
    const int64_t index = now_ns / BUCKET_NS;
    if (rate->bucket_index < index - PS_NAK_BUCKETS - 1) {
        rate->bucket_index = index - PS_NAK_BUCKETS - 1; /* what any of them holds is too old */
    }
    while (rate->bucket_index < index) {
        rate->bucket_index++;
        rate->buckets[rate->bucket_index % (PS_NAK_BUCKETS + 1)] = 0;
    }
}

void ps_nak_rate_sent(ps_nak_rate_t *rate, int64_t bytes, int64_t now_ns)
{
    turn_to(rate, now_ns);
    rate->buckets[rate->bucket_index % (PS_NAK_BUCKETS + 1)] += bytes;
}

int64_t ps_nak_rate_measured(ps_nak_rate_t *rate, int64_t now_ns)
{
    int64_t sum = 0;
    turn_to(rate, now_ns);
    for (int32_t i = 0; i <= PS_NAK_BUCKETS; i++) { /* the one being filled does not count */
        sum += i == rate->bucket_index % (PS_NAK_BUCKETS + 1) ? 0 : rate->buckets[i];
    }
    return sum * (SECOND_NS / PS_NAK_WINDOW_NS);
}

/* ---- sender: cutting ------------------------------------------------------------------------- */

static int64_t cut(int64_t base, int32_t level)
{
    static const int64_t eighths[PS_NAK_LEVELS + 1] = { 8, 7, 6, 5, 4 };
    return base / 8 * eighths[level];
}

/* The walls' mean and deviation: how steady the slowest receiver is. */
static void note_wall(ps_nak_rate_t *rate, int64_t base)
{
    if (rate->wall == 0) {
        rate->wall = base;
        rate->wall_dev = base / 8;
        return;
    }
    rate->wall_dev += (distance(base, rate->wall) - rate->wall_dev) / 4;
    rate->wall += (base - rate->wall) / 4;
    if (base < rate->wall / 2) { /* it got much worse: where it was does not matter any more */
        rate->wall = base;
    }
}

bool ps_nak_rate_signal(ps_nak_rate_t *rate, int64_t receiver_id, int32_t level, uint32_t fill_ppm,
                        int64_t rtt_ns, int64_t now_ns)
{
    const int64_t before = rate->limit;
    assert(level >= 1 && level <= PS_NAK_LEVELS);
    (void)ps_nak_rate_step(rate, now_ns);
    rate->signals++;
    if (rtt_ns > 0) {
        /* What a step does is seen a round trip later: it takes two to judge it. */
        const int64_t rtt2_ns = 2 * smaller(rtt_ns, PS_NAK_WINDOW_MAX_NS);
        rate->window_ns = larger(rate->window_ns, ps_nak_window_ns(rtt2_ns));
    }
    if (rate->window_end_ns == 0) {
        rate->window_end_ns = now_ns + rate->window_ns;
        rate->last_fill_ppm = 0;
        rate->level = 0;
        rate->fill_ppm = 0;
    }
    if (rate->level == 0) { /* the first of this window */
        const int64_t measured = ps_nak_rate_measured(rate, now_ns);
        rate->base = larger(smaller(measured, rate->limit), rate->floor);
        rate->fill_ppm = 0;
        if (rate->last_fill_ppm == 0 || rate->base < rate->wall) { /* later ones: on the way down */
            note_wall(rate, rate->base);
        }
    }
    if (level < rate->level || (level == rate->level && fill_ppm <= rate->fill_ppm)) {
        return rate->limit != before; /* something stronger was heard in this window */
    }
    rate->level = level;
    rate->fill_ppm = fill_ppm;
    rate->culprit = receiver_id;
    rate->quiet = 0;
    const bool recedes =
        rate->last_fill_ppm > 0 && fill_ppm < rate->last_fill_ppm && ps_nak_rate_limits(rate);
    if (!recedes) {
        const int64_t wanted = larger(cut(rate->base, level), rate->floor);
        if (wanted < rate->limit) {
            rate->cuts++;
            rate->limit = wanted;
        }
    }
    return rate->limit != before;
}

/* ---- sender: recovering ---------------------------------------------------------------------- */

static int64_t step_of(ps_nak_rate_t *rate)
{
    const int64_t away = smaller(rate->quiet, GROW_MAX);
    if (rate->wall > 0 && rate->limit > rate->wall + rate->wall / 8) {
        rate->beyond++;
        return rate->limit / 32 * smaller(rate->beyond, 2 * GROW_MAX);
    }
    rate->beyond = 0;
    const int64_t fast = rate->limit / 16 * away;
    if (rate->wall == 0 || rate->limit < rate->wall - rate->wall / 8) {
        return fast;
    }
    const int64_t fine = rate->limit / 64;
    const int64_t probe = larger(fine, smaller(rate->limit / 16, rate->wall_dev / 4));
    return smaller(larger(fast, fine), probe + probe * away / 8);
}

/* One window ended. */
static void end_window(ps_nak_rate_t *rate)
{
    if (rate->level > 0) {
        rate->last_fill_ppm = rate->fill_ppm;
        rate->level = 0;
        rate->fill_ppm = 0;
        rate->quiet = 0;
        return;
    }
    rate->quiet += rate->quiet < INT32_MAX;
    rate->last_fill_ppm = 0;
    rate->limit += step_of(rate);
    if (rate->limit >= PS_NAK_UNLIMITED) {
        rate->limit = PS_NAK_UNLIMITED;
        rate->window_end_ns = 0;
        rate->window_ns = PS_NAK_WINDOW_NS;
        rate->wall = 0;
        rate->quiet = 0;
        rate->beyond = 0;
    }
}

bool ps_nak_rate_step(ps_nak_rate_t *rate, int64_t now_ns)
{
    const int64_t before = rate->limit;
    for (int32_t i = 0; i < STEPS_MAX && rate->window_end_ns != 0 && now_ns >= rate->window_end_ns;
         i++) {
        rate->window_end_ns += rate->window_ns;
        end_window(rate);
    }
    if (rate->window_end_ns != 0 && rate->window_end_ns <= now_ns) {
        rate->window_end_ns = now_ns + rate->window_ns; /* a sleeper: one window at a time again */
    }
    return rate->limit != before;
}

/* The slowest way up: k / 16 at first, at the wall no less than 1/64, which crosses the quarter of
 * its rate that it is wide in at most 17 windows; behind it k begins anew, which costs at most what
 * the first GROW_MAX windows cost. */
int32_t ps_nak_recovery_windows(int64_t from, int64_t to)
{
    int32_t windows = 0;
    int64_t limit = from;
    while (limit <= to && limit < PS_NAK_UNLIMITED && windows < 1000) {
        windows++;
        limit += limit / 16 * smaller(windows, GROW_MAX);
    }
    return windows + 17 + 2 * GROW_MAX;
}
