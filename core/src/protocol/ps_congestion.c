/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.c: the built-in strategies.  `static` offers the configured window and does not
 * react to loss; it is Aeron's default.  `cubic` bounds the data in flight.
 */

#include "ps_congestion.h"
#include "ps_choices.h"
#include "ps_error.h"

enum { GRANT_PARTS = 16, SAMPLES_PER_ROUND = 10 };
#define RTT_INTERVAL_NS         INT64_C(1000000000)
#define RTT_INTERVAL_LEAST_NS   INT64_C(100000)
#define RTT_INTERVAL_UNKNOWN_NS INT64_C(10000000)

static int32_t static_initial_window(ps_congestion_t *congestion)
{
    return congestion->window_max;
}

static int32_t static_on_rebuild(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                                 bool *force)
{
    (void)input;
    *force = false;
    return congestion->window_max;
}

static const ps_congestion_ops_t ps_congestion_static = { .name = "static",
                                                          .initial_window = static_initial_window,
                                                          .on_rebuild = static_on_rebuild };

static int32_t cubic_initial_window(ps_congestion_t *congestion)
{
    return (int32_t)ps_cubic_window(&congestion->cubic);
}

/* The window is the unread data plus in_flight, at most window_max. A status message reports each
 * sixteenth of a window that the sender gains, in whole datagrams: the part of a datagram more
 * would delay each message until the next datagram, which is 3 % of a window of 33 datagrams. */
int32_t ps_congestion_grant(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                            int64_t in_flight, bool *force)
{
    int64_t window = input->received - input->consumption + in_flight;
    int64_t quantum = in_flight / GRANT_PARTS;

    congestion->binds = window < congestion->window_max;
    if (!congestion->binds) {
        window = congestion->window_max;
    }
    quantum = quantum < congestion->mtu ? congestion->mtu : quantum - quantum % congestion->mtu;
    if (congestion->binds && input->consumption + window >= input->granted + quantum) {
        *force = true;
    }
    return (int32_t)window;
}

/* A status message reports a cut at once. */
static int32_t cubic_on_rebuild(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                                bool *force)
{
    ps_cubic_t *cubic = &congestion->cubic;
    const int64_t arrived = congestion->started ? input->received - congestion->received : 0;

    congestion->started = true;
    congestion->received = input->received;
    *force = false;
    if (input->new_loss) {
        *force = ps_cubic_on_loss(cubic, input->loss_position, input->granted, input->now_ns);
    }
    ps_cubic_on_received(cubic, arrived > 0 ? arrived : 0, input->now_ns);
    return ps_congestion_grant(congestion, input, ps_cubic_window(cubic), force);
}

static void cubic_on_rtt(ps_congestion_t *congestion, int64_t sample_ns, int64_t smoothed_ns)
{
    ps_cubic_on_rtt(&congestion->cubic, sample_ns, smoothed_ns);
}

static int64_t cubic_in_flight(const ps_congestion_t *congestion)
{
    return ps_cubic_window(&congestion->cubic);
}

static int64_t cubic_rate(const ps_congestion_t *congestion)
{
    return ps_cubic_rate(&congestion->cubic);
}

static const ps_congestion_ops_t ps_congestion_cubic = { .name = "cubic",
                                                         .initial_window = cubic_initial_window,
                                                         .on_rebuild = cubic_on_rebuild,
                                                         .on_rtt = cubic_on_rtt,
                                                         .in_flight = cubic_in_flight,
                                                         .rate = cubic_rate };

int ps_congestion_init(ps_congestion_t *congestion, int32_t kind, int32_t window_max, int32_t mtu,
                       bool friendly)
{
    *congestion = (ps_congestion_t){ .window_max = window_max, .mtu = mtu };
    switch (kind) {
    case PS_CC_STATIC: congestion->ops = &ps_congestion_static; return PS_OK;
    case PS_CC_CUBIC:
        congestion->ops = &ps_congestion_cubic;
        ps_cubic_init(&congestion->cubic, mtu, window_max, friendly);
        return PS_OK;
    case PS_CC_CUSTOM: congestion->ops = &ps_congestion_custom; return PS_OK;
    default: return ps_fail(PS_E_INVALID, "congestion control %d is unknown", kind);
    }
}

int64_t ps_congestion_rtt_interval_ns(const ps_congestion_t *congestion, int64_t smoothed_ns)
{
    int64_t interval_ns;

    if (congestion->ops->on_rtt == NULL) {
        return RTT_INTERVAL_NS;
    }
    if (smoothed_ns == 0) {
        return RTT_INTERVAL_UNKNOWN_NS;
    }
    /* HyStart++ needs eight samples a round; otherwise a smoothed value that follows suffices. */
    const bool starts =
        congestion->cubic.segment > 0 && congestion->cubic.phase != PS_CUBIC_AVOIDANCE;
    interval_ns = starts ? smoothed_ns / SAMPLES_PER_ROUND : smoothed_ns / 2;
    interval_ns = interval_ns < RTT_INTERVAL_LEAST_NS ? RTT_INTERVAL_LEAST_NS : interval_ns;
    return interval_ns < RTT_INTERVAL_NS ? interval_ns : RTT_INTERVAL_NS;
}
