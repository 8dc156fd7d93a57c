/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_flow_control.c: unicast and max.  Both follow the furthest edge heard; they differ in how much
 * a single NAK may have repeated.
 */
#include "ps_flow_control.h"

#include "ps_driver_internal.h"

static int64_t max_on_sm(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                         int64_t now_ns)
{
    const int64_t edge = position + sm->window;
    (void)now_ns;
    if (edge >= limit) {
        fc->limiting_receiver = sm->receiver_id;
        return edge;
    }
    return limit;
}

static void max_on_setup_asked(ps_fc_t *fc, const ps_sm_t *sm, int64_t now_ns)
{
    (void)fc; (void)sm; (void)now_ns;
}

static void max_on_setup_sent(ps_fc_t *fc, int64_t limit, int64_t now_ns)
{
    (void)fc; (void)limit; (void)now_ns;
}

static int64_t max_on_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns)
{
    (void)fc; (void)sender_position; (void)now_ns;
    return limit;
}

static void max_on_error(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns)
{
    (void)fc; (void)receiver_id; (void)now_ns;
}

static bool max_has_required(const ps_fc_t *fc)
{
    (void)fc;
    return true;
}

static const ps_fc_ops_t unicast_ops = {
    "unicast", 16, max_on_sm, max_on_setup_asked, max_on_setup_sent, max_on_idle, max_on_error,
    max_has_required,
};
static const ps_fc_ops_t max_ops = {
    "max", 4, max_on_sm, max_on_setup_asked, max_on_setup_sent, max_on_idle, max_on_error,
    max_has_required,
};

int ps_fc_init(ps_fc_t *fc, int32_t kind)
{
    fc->limiting_receiver = 0;
    switch (kind) {
    case PS_FC_UNICAST:
        fc->ops = &unicast_ops;
        return PS_OK;
    case PS_FC_MAX:
        fc->ops = &max_ops;
        return PS_OK;
    default:
        fc->ops = NULL;
        return ps_fail(PS_E_INVALID, "flow control %d is not known", (int)kind);
    }
}
