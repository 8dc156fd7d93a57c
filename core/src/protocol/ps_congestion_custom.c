/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion_custom.c: a congestion window that a class in the control plane computes
 * (docs/congestion-control.md). The conductor passes each answer to the receiver. A window is valid
 * until the next one. If no answer arrives for PS_CC_SILENT_NS, the receiver window alone applies
 * until one does, so that no stream depends on code that never answers. */
#include "ps_congestion.h"

enum { FIRST_SEGMENTS = 10 };
#define NS_PER_S INT64_C(1000000000)

static int64_t bounded(const ps_congestion_t *congestion, int64_t window)
{
    const int64_t least = ps_congestion_least(congestion);

    window = window < least ? least : window;
    return window < congestion->window_max ? window : congestion->window_max;
}

static int32_t custom_initial_window(ps_congestion_t *congestion)
{
    congestion->custom_window =
        (int32_t)bounded(congestion, (int64_t)FIRST_SEGMENTS * congestion->mtu);
    return congestion->custom_window;
}

static int32_t custom_on_rebuild(ps_congestion_t *congestion, const ps_congestion_input_t *input,
                                 bool *force)
{
    const bool was_silent = congestion->custom_silent;
    const bool changed = congestion->custom_cut;
    int32_t window = congestion->window_max;

    congestion->started = true;
    congestion->received = input->received;
    congestion->losses += input->new_loss;
    congestion->custom_cut = false;
    if (congestion->custom_silent_ns == 0) {
        congestion->custom_silent_ns = input->now_ns + PS_CC_SILENT_NS;
    }
    congestion->custom_silent = input->now_ns >= congestion->custom_silent_ns;
    *force = false;
    if (congestion->custom_silent) {
        congestion->binds = false;
    } else {
        window = ps_congestion_grant(congestion, input, congestion->custom_window, force);
    }
    *force |= changed || was_silent != congestion->custom_silent;
    return window;
}

static void custom_on_rtt(ps_congestion_t *congestion, int64_t sample_ns, int64_t smoothed_ns)
{
    (void)sample_ns;
    congestion->smoothed_ns = smoothed_ns;
}

static int64_t custom_in_flight(const ps_congestion_t *congestion)
{
    return congestion->custom_silent ? 0 : congestion->custom_window;
}

/* As CUBIC's after slow start: the window in 4/5 of a round trip. */
static int64_t custom_rate(const ps_congestion_t *congestion)
{
    if (congestion->custom_silent || congestion->smoothed_ns <= 0) {
        return 0;
    }
    const __int128 rate =
        (__int128)congestion->custom_window * 5 / 4 * NS_PER_S / congestion->smoothed_ns;
    return rate > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)rate;
}

void ps_congestion_set(ps_congestion_t *congestion, int64_t window, int64_t now_ns)
{
    if (congestion->ops == &ps_congestion_custom) {
        const int32_t next = (int32_t)bounded(congestion, window);
        congestion->custom_cut |= next < congestion->custom_window;
        congestion->custom_window = next;
        congestion->custom_silent_ns = now_ns + PS_CC_SILENT_NS;
    }
}

const ps_congestion_ops_t ps_congestion_custom = { .name = "custom",
                                                   .initial_window = custom_initial_window,
                                                   .on_rebuild = custom_on_rebuild,
                                                   .on_rtt = custom_on_rtt,
                                                   .in_flight = custom_in_flight,
                                                   .rate = custom_rate };
