/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control, the sender's limit: how far ahead of a receiver the sender may send, how
 * long a receiver that cannot signal bounds the limit, and which receiver the limit names.
 */
#include <string.h>

#include "check.h"
#include "ps_cause.h"
#include "ps_error.h"
#include "ps_flow_control.h"
#include "ps_frame.h"

#define S INT64_C(1000000000)
enum { T = 65536, W = 8192, SPEAKS = PS_CAP_PENSTOCK | PS_CAP_PRESSURE };

static ps_fc_t make(void)
{
    const ps_fc_params_t params = { .kind = PS_FC_PRESSURE };
    ps_fc_t fc;
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_OK);
    return fc;
}

static ps_sm_t frame_of(int64_t id, uint32_t capabilities, int32_t window)
{
    ps_sm_t frame = { .receiver_id = id, .window = window };
    frame.trailer.capabilities = capabilities;
    return frame;
}

/* A status message of a receiver, at this time. Returns the new limit. */
static int64_t hear(ps_fc_t *fc, int64_t id, uint32_t capabilities, int64_t position, int64_t limit,
                    int64_t now_ns)
{
    const ps_addr_t from = { .family = 4, .port = 40456, .ip = { 10, 0, 0, (uint8_t)id } };
    const ps_sm_t frame = frame_of(id, capabilities, W);
    return fc->ops->on_sm(fc, &frame, position, limit, &from, now_ns);
}

static void what_a_receiver_keeps_is_the_distance(void)
{
    static const struct {
        uint32_t capabilities;
        int32_t window, congestion_window, reason;
        int64_t ahead;
    } cases[] = {
        { 0, W, 0, 0, W },
        { PS_CAP_PENSTOCK, W, 0, 0, W },
        { PS_CAP_PENSTOCK, T / 2, 0, 0, T / 2 },
        { PS_CAP_PENSTOCK | PS_CAP_KEEPS_TERM, W, 0, 0, W },
        { SPEAKS, W, 0, 0, T / 2 },
        { SPEAKS, T / 2 + 32, 0, 0, T / 2 + 32 },
        { SPEAKS | PS_CAP_KEEPS_TERM, W, 0, 0, T / 4 * 3 },
        { SPEAKS | PS_CAP_KEEPS_TERM, T / 4 * 3 + 32, 0, 0, T / 4 * 3 + 32 },
        { SPEAKS | PS_CAP_KEEPS_TERM, W, W, 0, W }, /* a congestion window */
        { SPEAKS, W, 1, 0, W },
        { SPEAKS | PS_CAP_KEEPS_TERM, W, 0, PS_CAUSE_STORAGE, W },
        { SPEAKS | PS_CAP_KEEPS_TERM, W, 0, PS_CAUSE_NONE, T / 4 * 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ps_fc_t fc = make();
        ps_addr_t from = { .family = 4 };
        ps_sm_t frame = frame_of(1, cases[i].capabilities, cases[i].window);
        frame.trailer.congestion_window = cases[i].congestion_window;
        frame.trailer.reason = (uint8_t)cases[i].reason;
        CHECK_EQ(fc.ops->on_sm(&fc, &frame, 4096, 0, &from, S), 4096 + cases[i].ahead);
        CHECK_EQ(fc.limiting_receiver, 1);
        ps_fc_free(&fc);
    }
}

/* Before the sender has heard a receiver, the strategy does not change the limit. */
static void without_receivers_the_limit_stays(void)
{
    ps_fc_t fc = make();
    CHECK_EQ(fc.ops->on_idle(&fc, 12345, 0, 100 * S), 12345);
    ps_fc_free(&fc);
}

/* A receiver that cannot signal counts until it was silent for a second, not longer. */
static void a_plain_receiver_bounds_for_a_second(void)
{
    ps_fc_t fc = make();
    int64_t limit = hear(&fc, 1, SPEAKS, 4096, 0, S);
    CHECK_EQ(fc.due_ns, INT64_MAX);
    limit = hear(&fc, 2, 0, 4096, limit, S);
    CHECK(limit == 4096 + W && fc.limiting_receiver == 2 && fc.due_ns == 2 * S);
    limit = hear(&fc, 1, SPEAKS, 8192, limit, 2 * S - 1); /* the other's word changes nothing */
    CHECK(limit == 4096 + W && fc.limiting_receiver == 2 && fc.due_ns == 2 * S);
    limit = fc.ops->on_idle(&fc, limit, 4096, 2 * S - 1);
    CHECK(limit == 4096 + W && fc.limiting_receiver == 2);
    limit = fc.ops->on_idle(&fc, limit, 4096, 2 * S);
    CHECK(limit == 8192 + T / 2 && fc.limiting_receiver == 1 && fc.due_ns == INT64_MAX);
    limit = hear(&fc, 2, 0, 4096, limit, 3 * S); /* it is back */
    CHECK(limit == 4096 + W && fc.limiting_receiver == 2);
    ps_fc_free(&fc);
}

/* Of several receivers that cannot signal, the most advanced one counts, as under max. */
static void the_furthest_plain_receiver_counts(void)
{
    ps_fc_t fc = make();
    int64_t limit = hear(&fc, 1, SPEAKS, 4096, 0, S);
    limit = hear(&fc, 2, 0, 4096, limit, S);
    limit = hear(&fc, 3, 0, 6144, limit, S + 1);
    CHECK(limit == 6144 + W && fc.limiting_receiver == 3);
    limit = hear(&fc, 2, 0, 5120, limit, S + 2);
    CHECK(limit == 6144 + W && fc.limiting_receiver == 3);
    limit = hear(&fc, 2, 0, 6144, limit, S + 3); /* as far: the one that was heard last */
    CHECK(limit == 6144 + W && fc.limiting_receiver == 2 && fc.due_ns == 2 * S + 3);
    limit = hear(&fc, 3, 0, 2048, limit, 2 * S + 2); /* in time: the edge of before stays */
    CHECK_EQ(limit, 6144 + W);
    limit = hear(&fc, 3, 0, 2048, limit, 3 * S + 2); /* late: what it says now counts */
    CHECK(limit == 2048 + W && fc.limiting_receiver == 3);
    ps_fc_free(&fc);
}

/* While a plain receiver bounds the limit, the edge of the others does not fall with it. */
static void a_bound_does_not_lower_the_edge_of_others(void)
{
    ps_fc_t fc = make();
    int64_t limit = hear(&fc, 1, SPEAKS, 20000, 0, S);
    limit = hear(&fc, 2, 0, 4096, limit, S);
    limit = hear(&fc, 3, SPEAKS, 10000, limit, S + 1); /* behind the first */
    CHECK_EQ(limit, 4096 + W);
    limit = fc.ops->on_idle(&fc, limit, 4096, 2 * S);
    CHECK(limit == 20000 + T / 2 && fc.limiting_receiver == 1);
    ps_fc_free(&fc);
}

/* A plain receiver that grants more than the others is no bound: it is the most advanced. */
static void a_plain_receiver_far_ahead_is_no_bound(void)
{
    ps_fc_t fc = make();
    int64_t limit = hear(&fc, 1, SPEAKS, 0, 0, S);
    limit = hear(&fc, 2, 0, T / 2, limit, S);
    CHECK(limit == T / 2 + W && fc.limiting_receiver == 2);
    limit = hear(&fc, 1, SPEAKS, W, limit, S + 1); /* the same edge */
    CHECK(limit == T / 2 + W && fc.limiting_receiver == 1);
    ps_fc_free(&fc);
}

/* The receiver that granted the limit has gone: after the time-out, the others' edge counts. */
static void a_limit_that_has_no_receiver_recedes(void)
{
    ps_fc_t fc = make();
    int64_t limit = hear(&fc, 1, SPEAKS, 20000, 0, S);
    CHECK(limit == 20000 + T / 2 && fc.limiting_receiver == 1);
    limit = hear(&fc, 2, SPEAKS, 10000, limit, 2 * S);
    CHECK(limit == 20000 + T / 2 && fc.limiting_receiver == 1 && fc.due_ns == 7 * S);
    limit = hear(&fc, 3, SPEAKS, 9000, limit, 3 * S);
    limit = fc.ops->on_idle(&fc, limit, 4096, 7 * S - 1);
    CHECK(limit == 20000 + T / 2 && fc.limiting_receiver == 1 && fc.due_ns == 7 * S);
    limit = fc.ops->on_idle(&fc, limit, 4096, 7 * S);
    CHECK(limit == 10000 + T / 2 && fc.limiting_receiver == 2 && fc.due_ns == INT64_MAX);
    limit = hear(&fc, 3, SPEAKS, 10000, limit, 8 * S);
    CHECK(limit == 10000 + T / 2 && fc.limiting_receiver == 3);
    ps_fc_free(&fc);
}

int main(void)
{
    RUN(what_a_receiver_keeps_is_the_distance);
    RUN(without_receivers_the_limit_stays);
    RUN(a_plain_receiver_bounds_for_a_second);
    RUN(the_furthest_plain_receiver_counts);
    RUN(a_bound_does_not_lower_the_edge_of_others);
    RUN(a_plain_receiver_far_ahead_is_no_bound);
    RUN(a_limit_that_has_no_receiver_recedes);
    return 0;
}
