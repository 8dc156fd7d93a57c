/* SPDX-License-Identifier: Apache-2.0
 *
 * The window of CUBIC between two losses, by the whole agents on a path in virtual time: it stays
 * within 1.5 % of W_cubic(t) (RFC 9438, section 4.2), at fixed round trips and at drawn ones.
 */
#include <math.h>

#include "ccsim.h"
#include "check.h"
#include "ps_random.h"

#define MS INT64_C(1000000)
enum { PACKET = 320, STEPS = 50, EVENTS = 6, SETTLED = 2 };
static const double SECOND = 1e9, C = 0.4;

typedef struct curve {
    double w_max, k, began_s; /* packets, seconds */
    double worst;             /* distance from the curve, of the curve */
    int32_t events;
} curve_t;

/* A cut to 70 %: the curve of RFC 9438 begins anew.  before, after: packets. */
static void cut(curve_t *curve, double before, double after, double now_s)
{
    curve->w_max = before < curve->w_max ? 0.85 * before : before; /* fast convergence */
    curve->k = curve->w_max > after ? cbrt((curve->w_max - after) / C) : 0;
    curve->began_s = now_s;
    curve->events++;
}

static void follow(curve_t *curve, double window, double now_s)
{
    const double d = now_s - curve->began_s - curve->k;
    const double off = fabs(window / (curve->w_max + C * d * d * d) - 1);
    if (curve->events > SETTLED && off > curve->worst) {
        curve->worst = off;
    }
}

static void stays_on_the_curve(int64_t rtt_ns, int64_t drop_each)
{
    const ccsim_options_t options = { .rtt_ns = rtt_ns,
                                      .drop_each = drop_each,
                                      .flows = 1,
                                      .mtu = PACKET,
                                      .term_length = 1 << 23,
                                      .window_bytes = 1 << 22,
                                      .congestion_control = PS_CC_CUBIC,
                                      .not_friendly = 1,
                                      .seed = 7 };
    ccsim_t *sim = ccsim_open(&options);
    ccsim_flow_state_t state;
    curve_t curve = { 0 };
    double last = 0;

    while (curve.events < SETTLED + EVENTS) {
        ccsim_run(sim, rtt_ns / STEPS);
        ccsim_flow(sim, 0, &state);
        const double window = (double)state.congestion_window / PACKET;
        const double now_s = (double)ccsim_now(sim) / SECOND;
        if (window < 0.75 * last) {
            cut(&curve, last, window, now_s);
        } else if (curve.events > 0) {
            follow(&curve, window, now_s);
        }
        last = window;
    }
    printf("%5.1f ms, one of %5d lost: within %.2f %% of W_cubic(t), W_max %.1f packets\n",
           (double)rtt_ns / 1e6, (int)drop_each, 100 * curve.worst, curve.w_max);
    CHECK(curve.worst < 0.015);
    ccsim_close(sim);
}

static void at_the_round_trips_of_the_target(void)
{
    for (int64_t each = 1000; each <= 10000; each *= 10) {
        stays_on_the_curve(10 * MS, each);
        stays_on_the_curve(100 * MS, each);
        stays_on_the_curve(250 * MS, each);
    }
}

static void at_drawn_neighbours(void)
{
    ps_random_t random;
    ps_random_seed(&random, 9438);
    for (int32_t i = 0; i < 6; i++) {
        const int64_t rtt_ns = (10 + (int64_t)(ps_random_next(&random) % 240)) * MS;
        const int64_t each = 1000 + (int64_t)(ps_random_next(&random) % 9000);
        stays_on_the_curve(rtt_ns, each);
    }
}

int main(void)
{
    RUN(at_the_round_trips_of_the_target);
    RUN(at_drawn_neighbours);
    return 0;
}
