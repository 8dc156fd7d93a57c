/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_congestion.c: the built-in strategies.  `static` offers the configured window and does not
 * react to loss; it is Aeron's default.
 */
#include "ps_congestion.h"

#include "ps_driver_internal.h"

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

static const ps_congestion_ops_t ps_congestion_static = {
    .name = "static", .initial_window = static_initial_window, .on_rebuild = static_on_rebuild
};

int ps_congestion_init(ps_congestion_t *congestion, int32_t kind, int32_t window_max, int32_t mtu)
{
    if (kind != PS_CC_STATIC) {
        return ps_fail(PS_E_INVALID, "congestion control %d is unknown", kind);
    }
    *congestion = (ps_congestion_t){ .ops = &ps_congestion_static, .window_max = window_max,
                                     .mtu = mtu };
    return PS_OK;
}
