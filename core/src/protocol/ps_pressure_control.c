/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_control.c: see ps_pressure_control.h.
 */
#include <string.h>

#include "ps_pressure_control.h"

#include "ps_assert.h"

#define SECOND_NS INT64_C(1000000000)
#define BUCKET_NS (PS_PRESSURE_WINDOW_NS / PS_PRESSURE_BUCKETS)
enum { STEPS_MAX = 64, GROW_MAX = 8, WINDOW_ROUND_TRIPS = 2, DRAIN_WINDOWS = 2 };

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

/* ---- sender: measuring ----------------------------------------------------------------------- */

void ps_pressure_control_init(ps_pressure_control_t *rate, int32_t mtu)
{
    *rate = (ps_pressure_control_t){ .limit = PS_PRESSURE_UNLIMITED,
                                     .window_ns = PS_PRESSURE_WINDOW_NS,
                                     .sent_ns = INT64_MIN / 2,
                                     .turned_ns = INT64_MIN / 2,
                                     .began_ns = INT64_MIN / 2 };
    rate->floor = larger(PS_PRESSURE_FLOOR, (int64_t)mtu * 2 * (SECOND_NS / PS_PRESSURE_WINDOW_NS));
}

static void turn_to(ps_pressure_control_t *rate, int64_t now_ns)
{
    const int64_t index = now_ns / BUCKET_NS;
    if (rate->bucket_index < index - PS_PRESSURE_BUCKETS - 1) {
        rate->bucket_index = index - PS_PRESSURE_BUCKETS - 1; /* all buckets are too old */
    }
    while (rate->bucket_index < index) {
        rate->bucket_index++;
        rate->buckets[rate->bucket_index % (PS_PRESSURE_BUCKETS + 1)] = 0;
    }
}

void ps_pressure_control_sent(ps_pressure_control_t *rate, int64_t bytes, int64_t now_ns)
{
    turn_to(rate, now_ns);
    if (now_ns - rate->sent_ns >= PS_PRESSURE_WINDOW_NS) {
        memset(rate->buckets, 0, sizeof(rate->buckets)); /* after a silence */
        rate->began_ns = now_ns;
    }
    rate->sent_ns = now_ns;
    rate->buckets[rate->bucket_index % (PS_PRESSURE_BUCKETS + 1)] += bytes;
}

int64_t ps_pressure_control_measured(ps_pressure_control_t *rate, int64_t now_ns)
{
    int64_t sum = 0;
    turn_to(rate, now_ns);
    const int64_t young_ns = now_ns - rate->began_ns;
    if (young_ns < PS_PRESSURE_WINDOW_NS) { /* nothing was sent before: over the time since then */
        for (int32_t i = 0; i <= PS_PRESSURE_BUCKETS; i++) {
            sum += rate->buckets[i];
        }
        return sum * (SECOND_NS / 1000) / larger(young_ns / 1000, BUCKET_NS / 1000 / 8);
    }
    for (int32_t i = 0; i <= PS_PRESSURE_BUCKETS; i++) { /* the bucket being filled does not
                                                          * count */
        sum += i == rate->bucket_index % (PS_PRESSURE_BUCKETS + 1) ? 0 : rate->buckets[i];
    }
    return sum * (SECOND_NS / PS_PRESSURE_WINDOW_NS);
}

/* ---- sender: cutting ------------------------------------------------------------------------- */

/* Parts of 64, by level. */
static int64_t parts(int64_t rate, const int64_t by_level[PS_PRESSURE_LEVELS], int32_t level)
{
    return rate / 64 * by_level[level - 1] + rate % 64 * by_level[level - 1] / 64;
}

/* Returns the time until a signal's effect shows: two round trips, and the receiver's cadence. */
static int64_t window_of(const ps_pressure_report_t *report)
{
    const int64_t rtt_ns = smaller(report->rtt_ns, PS_PRESSURE_WINDOW_MAX_NS / WINDOW_ROUND_TRIPS);
    return ps_pressure_window_ns(WINDOW_ROUND_TRIPS * rtt_ns,
                                 smaller(report->cadence_ns, PS_PRESSURE_WINDOW_MAX_NS));
}

/* The residue is gone after some windows. */
static int64_t draining(const ps_pressure_report_t *report)
{
    const int64_t drain_us = DRAIN_WINDOWS * window_of(report) / 1000;
    return report->rate - report->residue * (SECOND_NS / 1000) / drain_us;
}

/* A reader that empties the queue can take the rate that it states. Of the data of one cadence only
 * the capacity is certainly kept. */
static int64_t kept_of(const ps_pressure_report_t *report, int64_t rate)
{
    if (report->residue > 0 || report->cadence_ns < SECOND_NS / 1000) {
        return rate;
    }
    return smaller(rate, report->capacity * (SECOND_NS / 1000) / (report->cadence_ns / 1000));
}

int64_t ps_pressure_control_wanted(const ps_pressure_control_t *rate,
                                   const ps_pressure_report_t *report, int64_t sent)
{
    static const int64_t of_sent[PS_PRESSURE_LEVELS] = { 56, 48, 40, 32 };
    static const int64_t of_taken[PS_PRESSURE_LEVELS] = { 60, 56, 48, 32 };
    static const int64_t of_more[PS_PRESSURE_LEVELS] = { 72, 68, 65, 65 };
    const int64_t by_strength = parts(sent, of_sent, report->level);
    const int64_t taken = kept_of(report, report->rate);
    int64_t wanted = by_strength;
    if (report->rate > 0 && report->residue > 0) {
        wanted = larger(parts(report->rate, of_taken, report->level), draining(report));
    } else if (report->rate > 0) {
        /* Below 75 % the reader can also take the present rate. */
        const int64_t more = report->level == 1 ? larger(taken, kept_of(report, sent)) : taken;
        wanted = larger(by_strength, parts(more, of_more, report->level));
    }
    if (report->rate > 0 && report->overrun > 0) {
        const bool slight = report->overrun <= report->capacity / 8;
        const bool half = report->overrun > report->capacity / 2;
        const int64_t most = slight ? taken : half ? taken / 2 : taken / 8 * 7;
        wanted = smaller(wanted, report->residue > 0 ? most : larger(most, by_strength));
    }
    return larger(wanted, rate->floor);
}

/* Returns the bytes that left in the 50 ms before the sender last sent. */
static int64_t sent_before(ps_pressure_control_t *rate)
{
    if (rate->sent_ns > rate->turned_ns) { /* later ones are kept */
        rate->before = ps_pressure_control_measured(rate, rate->sent_ns);
        rate->turned_ns = rate->sent_ns;
    }
    return rate->before;
}

/* Returns the bytes that left in the last 50 ms.  A sender that waits at its edge sends nothing for
 * most of a longer round trip: over two of them it sent a capacity at least.  If a reader stated no
 * consumption yet, the rate before the pause counts too: a sender that stands already is not cut
 * because it stands. */
static int64_t sent_lately(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                           int64_t now_ns)
{
    const int64_t before = sent_before(rate);
    int64_t measured = ps_pressure_control_measured(rate, now_ns);
    const int64_t rtt_us = smaller(report->rtt_ns, PS_PRESSURE_WINDOW_MAX_NS) / 1000;
    measured = report->rate == 0 ? larger(measured, before) : measured;
    if (report->rtt_ns < PS_PRESSURE_WINDOW_NS) {
        return measured;
    }
    return larger(measured, report->capacity * (SECOND_NS / 1000) / (2 * rtt_us));
}

/* The walls' mean and deviation: how steady the slowest receiver is. */
static void note_wall(ps_pressure_control_t *rate, const ps_pressure_report_t *report, int64_t sent)
{
    const int64_t wall = larger(report->rate > 0 ? report->rate : sent, rate->floor);
    if (report->rate > 0 && report->residue == 0) {
        rate->wall = 0; /* it takes everything: its possible rate is unknown */
        return;
    }
    if (rate->wall == 0 || wall < rate->wall / 2) { /* the old wall no longer matters */
        rate->wall = wall;
        rate->wall_dev = wall / 8;
        return;
    }
    rate->wall_dev += (distance(wall, rate->wall) - rate->wall_dev) / 4;
    rate->wall += (wall - rate->wall) / 4;
}

bool ps_pressure_control_signal(ps_pressure_control_t *rate, const ps_pressure_report_t *report,
                                int64_t now_ns)
{
    const int64_t before = rate->limit;
    PS_ASSERT(report->level >= 1 && report->level <= PS_PRESSURE_LEVELS && report->capacity > 0);
    (void)ps_pressure_control_step(rate, now_ns);
    rate->signals++;
    const bool same = ps_pressure_control_limits(rate) && report->receiver_id == rate->culprit;
    const bool anew = !ps_pressure_control_limits(rate) || now_ns >= rate->base_until_ns;
    const int64_t sent =
        anew ? smaller(sent_lately(rate, report, now_ns), rate->limit) : rate->base;
    const int64_t wanted = ps_pressure_control_wanted(rate, report, sent);
    if (!same && wanted >= rate->limit) {
        return rate->limit != before; /* a slower one is heard already */
    }
    /* Until its reader was seen to consume, a level repeats the same information. So does the next
     * window's level if almost no data was sent since the last cut. */
    const bool stood = anew && ps_pressure_control_measured(rate, now_ns) < rate->limit / 2;
    if (report->rate == 0 && same && (report->level <= rate->level || stood)) {
        rate->level = report->level > rate->level ? report->level : rate->level;
        rate->window_end_ns = now_ns + rate->window_ns;
        return rate->limit != before;
    }
    if (anew) { /* once a window, so that many receivers do not multiply cuts */
        rate->base = sent;
        rate->base_until_ns = now_ns + window_of(report);
    }
    if (anew || !same) {
        note_wall(rate, report, sent);
    }
    rate->cuts += wanted < rate->limit;
    rate->limit = wanted;
    rate->culprit = report->receiver_id;
    rate->level = !same || report->level > rate->level ? report->level : rate->level;
    rate->quiet = 0;
    rate->beyond = 0;
    rate->window_ns = window_of(report);
    rate->window_end_ns = now_ns + rate->window_ns;
    return rate->limit != before;
}

/* ---- sender: recovering ---------------------------------------------------------------------- */

static int64_t step_of(ps_pressure_control_t *rate)
{
    const int64_t away = smaller(rate->quiet, GROW_MAX);
    if (rate->wall > 0 && rate->limit > rate->wall + rate->wall / 8) {
        rate->beyond++;
        return rate->limit / 32 * smaller(rate->beyond, GROW_MAX);
    }
    rate->beyond = 0;
    const int64_t fast = rate->limit / 16 * away;
    const int64_t near = rate->wall - rate->wall / 8;
    if (rate->wall == 0 || rate->limit < near) {
        return larger(fast, (near - rate->limit) / 2); /* the backlog has been drained */
    }
    const int64_t fine = rate->limit / 64;
    const int64_t probe = larger(fine, smaller(rate->limit / 16, rate->wall_dev / 4));
    return smaller(larger(fast, fine), probe + probe * away / 8);
}

/* One window ended. */
static void end_window(ps_pressure_control_t *rate)
{
    if (rate->level > 0) {
        rate->level = 0;
        return;
    }
    rate->quiet += rate->quiet < INT32_MAX;
    rate->limit += step_of(rate);
    if (rate->limit >= PS_PRESSURE_UNLIMITED) {
        rate->limit = PS_PRESSURE_UNLIMITED;
        rate->window_end_ns = 0;
        rate->window_ns = PS_PRESSURE_WINDOW_NS;
        rate->wall = 0;
        rate->quiet = 0;
        rate->beyond = 0;
    }
}

bool ps_pressure_control_step(ps_pressure_control_t *rate, int64_t now_ns)
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

/* The slowest rise: as above the wall, with k / 32. At the wall each step is at least 1/64, so the
 * limit crosses the wall's width of a quarter in at most 17 windows. Above the wall k begins again,
 * which costs at most as much as the first GROW_MAX windows. */
int32_t ps_pressure_recovery_windows(int64_t from, int64_t to)
{
    int32_t windows = 0;
    int64_t limit = from;
    while (limit <= to && limit < PS_PRESSURE_UNLIMITED && windows < 1000) {
        windows++;
        limit += limit / 32 * smaller(windows, GROW_MAX);
    }
    return windows + 17 + 2 * GROW_MAX;
}
