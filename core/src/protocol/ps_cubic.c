/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cubic.c: see ps_cubic.h.  C = 0.4, beta = 0.7.  Time of the cubic is in ticks of 100 us: with
 * windows below 2^31 bytes and segments of 32 bytes and more, K is below 2^19 ticks and every
 * product below fits 128 bits; |t - K| is cut at 2^20 ticks (105 s), where the cubic is beyond any
 * window.
 */
#include "ps_cubic.h"

#include "ps_assert.h"

#include "ps_frame.h"

enum {
    FRACTION = 16,
    CONSERVATIVE_ROUNDS = 5,
    CONSERVATIVE_DIVISOR = 4,
    ROUND_SAMPLES = 8,
    FIRST_SEGMENTS = 10,
    LEAST_SEGMENTS = 2
};
#define TICK_NS          INT64_C(100000)
#define TICKS_MAX        (INT64_C(1) << 20)
#define TICKS_PER_S      INT64_C(10000)
#define HYSTART_LEAST_NS INT64_C(4000000)
#define HYSTART_MOST_NS  INT64_C(16000000)
#define ROUND_UNKNOWN_NS INT64_C(100000000) /* until a round trip is measured */
#define NS_PER_S         INT64_C(1000000000)

typedef __int128 wide_t;

uint32_t ps_cube_root(uint64_t value)
{
    uint64_t root = 0;
    /* One bit a step: root^3 <= value is kept, with value reduced by root^3 at this scale. */
    for (int shift = 63; shift >= 0; shift -= 3) {
        root <<= 1;
        const uint64_t step = 3 * root * (root + 1) + 1;
        if ((value >> shift) >= step) {
            value -= step << shift;
            root++;
        }
    }
    return (uint32_t)root;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void set_window(ps_cubic_t *cubic, int64_t window_q)
{
    cubic->window_q = clamp(window_q, cubic->least << FRACTION, cubic->most << FRACTION);
}

void ps_cubic_init(ps_cubic_t *cubic, int64_t segment, int64_t window_max, bool friendly)
{
    PS_ASSERT(segment >= PS_FRAME_ALIGNMENT && window_max > 0);
    *cubic = (ps_cubic_t){ .segment = segment,
                           .most = window_max,
                           .friendly = friendly,
                           .threshold = INT64_MAX,
                           .peak = window_max,
                           .limited = true,
                           .last_least_ns = INT64_MAX,
                           .this_least_ns = INT64_MAX };
    cubic->least = LEAST_SEGMENTS * segment < window_max ? LEAST_SEGMENTS * segment : window_max;
    set_window(cubic, (FIRST_SEGMENTS * segment) << FRACTION);
    cubic->round_window = ps_cubic_window(cubic);
}

/* ---- the cubic ------------------------------------------------------------------------------- */

/* Starts the cubic's time, with the plateau at `peak`. */
static void start_epoch(ps_cubic_t *cubic, int64_t peak, int64_t now_ns)
{
    const int64_t below = peak - ps_cubic_window(cubic);
    cubic->peak = peak;
    cubic->reno_q = cubic->window_q;
    cubic->epoch_ns = now_ns;
    cubic->grown_ns = now_ns;
    cubic->credit = 0;
    cubic->epoch_set = true;
    cubic->k_ticks = 0;
    if (below > 0) { /* K^3 = (W_max - cwnd) / C, in segments and seconds */
        const wide_t cubed = (wide_t)below * (TICKS_PER_S * TICKS_PER_S / 4) * 10 * TICKS_PER_S;
        const wide_t per_segment = cubed / cubic->segment;
        cubic->k_ticks =
            ps_cube_root(per_segment > UINT64_MAX ? UINT64_MAX : (uint64_t)per_segment);
    }
}

/* W_cubic(t), bytes; may be far below or above any window. */
static int64_t cubic_at(const ps_cubic_t *cubic, int64_t elapsed_ns)
{
    const int64_t d = clamp(elapsed_ns / TICK_NS - cubic->k_ticks, -TICKS_MAX, TICKS_MAX);
    const wide_t cube = (wide_t)d * d * d * cubic->segment * 4;
    return cubic->peak + (int64_t)(cube / (10 * TICKS_PER_S * TICKS_PER_S * TICKS_PER_S));
}

/* passed_ns: since the window last followed the cubic, a round trip at most. */
static void avoid(ps_cubic_t *cubic, int64_t bytes, int64_t passed_ns, int64_t now_ns)
{
    const int64_t window = ps_cubic_window(cubic);
    const int64_t elapsed_ns = now_ns - cubic->epoch_ns;
    int64_t target = cubic_at(cubic, elapsed_ns + cubic->smoothed_ns);
    /* W_est grows by alpha segments a window: 9/17 until it has reached its old value, then 1. */
    const bool back = (cubic->reno_q >> FRACTION) >= cubic->prior;
    const wide_t reno = ((wide_t)bytes * cubic->segment) << FRACTION;
    cubic->reno_q += (int64_t)(reno * (back ? 17 : 9) / 17 / window);
    cubic->reno_q = clamp(cubic->reno_q, 0, cubic->most << FRACTION);
    if (cubic->friendly && cubic_at(cubic, elapsed_ns) < (cubic->reno_q >> FRACTION)) {
        set_window(cubic, cubic->reno_q > cubic->window_q ? cubic->reno_q : cubic->window_q);
        return;
    }
    /* RFC 9438 grows by (target - cwnd) / cwnd for each segment: by target - cwnd in a round trip.
     * By time, the window keeps to W_cubic(t) where arrivals pause or crowd, as after a cut.  Since
     * the cut it grows by no more than arrived since. */
    target = clamp(target, window, window + window / 2);
    const wide_t way = (wide_t)(target - window) << FRACTION;
    const wide_t credit = (wide_t)cubic->credit << FRACTION;
    const wide_t wanted =
        cubic->smoothed_ns > 0 ? way * passed_ns / cubic->smoothed_ns : way * bytes / window;
    set_window(cubic, cubic->window_q + (int64_t)(wanted < credit ? wanted : credit));
}

/* ---- HyStart++ ------------------------------------------------------------------------------- */

static void leave_slow_start(ps_cubic_t *cubic, int64_t now_ns)
{
    cubic->phase = PS_CUBIC_AVOIDANCE;
    cubic->threshold = ps_cubic_window(cubic);
    cubic->prior = cubic->threshold;
    start_epoch(cubic, cubic->threshold, now_ns); /* K = 0: the plateau is here */
}

void ps_cubic_on_rtt(ps_cubic_t *cubic, int64_t sample_ns, int64_t smoothed_ns)
{
    PS_ASSERT(sample_ns > 0);
    cubic->smoothed_ns = smoothed_ns;
    if (cubic->least_ns == 0 || sample_ns < cubic->least_ns) {
        cubic->least_ns = sample_ns;
    }
    if (sample_ns < cubic->this_least_ns) {
        cubic->this_least_ns = sample_ns;
    }
    cubic->samples++;
    if (cubic->samples < ROUND_SAMPLES || cubic->last_least_ns == INT64_MAX) {
        return;
    }
    if (cubic->phase == PS_CUBIC_SLOW_START) {
        const int64_t threshold =
            clamp(cubic->last_least_ns / 8, HYSTART_LEAST_NS, HYSTART_MOST_NS);
        if (cubic->this_least_ns >= cubic->last_least_ns + threshold) {
            cubic->phase = PS_CUBIC_CONSERVATIVE;
            cubic->baseline_ns = cubic->this_least_ns;
            cubic->conservative_rounds = 0;
        }
    } else if (cubic->phase == PS_CUBIC_CONSERVATIVE && cubic->this_least_ns < cubic->baseline_ns) {
        cubic->phase = PS_CUBIC_SLOW_START; /* the delay was temporary */
        cubic->baseline_ns = INT64_MAX;
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void end_round(ps_cubic_t *cubic, int64_t now_ns)
{
    const int64_t length_ns = now_ns - cubic->round_ns;
    const bool doubling = cubic->phase != PS_CUBIC_AVOIDANCE;
    const int64_t used = cubic->round_window - cubic->round_window / (doubling ? 2 : 4);

    cubic->limited = cubic->round_received >= used;
    if (!cubic->limited && cubic->epoch_set) {
        /* A round in which the window did not limit the sender does not count as time. If the epoch
         * began within the round, only its part is subtracted. */
        const int64_t epoch_ns = cubic->epoch_ns + length_ns;
        cubic->epoch_ns = epoch_ns < now_ns ? epoch_ns : now_ns;
        cubic->grown_ns = now_ns;
    }
    if (cubic->phase == PS_CUBIC_CONSERVATIVE &&
        ++cubic->conservative_rounds >= CONSERVATIVE_ROUNDS) {
        leave_slow_start(cubic, now_ns);
    }
    if (cubic->samples > 0) { /* a round without a sample decides nothing */
        cubic->last_least_ns = cubic->this_least_ns;
        cubic->this_least_ns = INT64_MAX;
        cubic->samples = 0;
    }
    cubic->round_ns = now_ns;
    cubic->round_received = 0;
    cubic->round_window = ps_cubic_window(cubic);
}

void ps_cubic_on_received(ps_cubic_t *cubic, int64_t bytes, int64_t now_ns)
{
    PS_ASSERT(bytes >= 0);
    if (!cubic->round_set) {
        cubic->round_set = true;
        cubic->round_ns = now_ns;
    }
    cubic->round_received += bytes;
    cubic->credit = clamp(cubic->credit + bytes, 0, cubic->most);
    const int64_t passed_ns = clamp(now_ns - cubic->grown_ns, 0, cubic->smoothed_ns);
    cubic->grown_ns = bytes > 0 ? now_ns : cubic->grown_ns;
    if (cubic->limited && bytes > 0) {
        if (cubic->phase == PS_CUBIC_AVOIDANCE) {
            const int64_t before = ps_cubic_window(cubic);
            avoid(cubic, bytes, passed_ns, now_ns);
            cubic->credit = clamp(cubic->credit - ps_cubic_window(cubic) + before, 0, cubic->most);
        } else {
            const int64_t part = cubic->phase == PS_CUBIC_CONSERVATIVE ? CONSERVATIVE_DIVISOR : 1;
            set_window(cubic, cubic->window_q + (bytes << FRACTION) / part);
            if (ps_cubic_window(cubic) >= cubic->threshold) {
                leave_slow_start(cubic, now_ns);
            }
        }
    }
    if (now_ns - cubic->round_ns >=
        (cubic->smoothed_ns > 0 ? cubic->smoothed_ns : ROUND_UNKNOWN_NS)) {
        end_round(cubic, now_ns);
    }
}

bool ps_cubic_on_loss(ps_cubic_t *cubic, int64_t from, int64_t granted_to, int64_t now_ns)
{
    const int64_t window = ps_cubic_window(cubic);
    int64_t peak = window;

    if (cubic->had_event && from < cubic->recovery) {
        return false;
    }
    cubic->had_event = true;
    cubic->recovery = granted_to;
    /* The cubic's last round trip before the plateau is not lower (docs/decisions/0270). */
    if (cubic->epoch_set &&
        window < cubic_at(cubic, cubic->k_ticks * TICK_NS - cubic->smoothed_ns)) {
        peak = window - window * 3 / 20; /* fast convergence: leave room to others */
    }
    cubic->prior = window;
    set_window(cubic, cubic->window_q / 10 * 7);
    cubic->threshold = ps_cubic_window(cubic);
    cubic->round_window = cubic->threshold; /* the sender waits until no more is in flight */
    cubic->phase = PS_CUBIC_AVOIDANCE;
    start_epoch(cubic, peak, now_ns);
    return true;
}

int64_t ps_cubic_rate(const ps_cubic_t *cubic)
{
    if (cubic->smoothed_ns <= 0) {
        return 0;
    }
    const bool doubling = cubic->phase == PS_CUBIC_SLOW_START;
    const wide_t paced = (wide_t)ps_cubic_window(cubic) * (doubling ? 8 : 5) / 4;
    const wide_t rate = paced * NS_PER_S / cubic->smoothed_ns;
    return rate > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)rate;
}
