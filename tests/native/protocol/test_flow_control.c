/* SPDX-License-Identifier: Apache-2.0
 * Strategies: each rule of docs/flow-control.md by itself, then min and tagged through a real
 * sender in virtual time: connection, the limit that comes down, eviction, causes and culprits.
 */
#include "ps_flow_control.h"
#include "sender_rig.h"

#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
    } while (0)
enum { T = 65536, W = 8192 };

static ps_fc_t make(int32_t kind, int32_t min_size, int64_t tag)
{
    const ps_fc_params_t params = { .kind = kind, .group_tag = tag, .group_min_size = min_size };
    ps_fc_t fc;
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_OK);
    return fc;
}

/* The address of receiver id: a host of its own. */
static const ps_addr_t *at(int64_t id)
{
    static ps_addr_t address;
    address = (ps_addr_t){ .family = 4, .port = 40456, .ip = { 10, 0, 0, (uint8_t)id } };
    return &address;
}

/* A status message of receiver id; tag 0: none. */
static int64_t sm(ps_fc_t *fc, int64_t id, int64_t position, int64_t limit, int64_t now_ns,
                  int64_t tag, uint8_t flags)
{
    const ps_sm_t frame = {
        .receiver_id = id, .window = W, .group_tag = tag, .has_group_tag = tag != 0, .flags = flags
    };
    return fc->ops->on_sm(fc, &frame, position, limit, at(id), now_ns);
}

static void max_follows_the_furthest(void)
{
    ps_fc_t fc = make(PS_FC_MAX, 0, 0);
    CHECK_EQ(sm(&fc, 1, 1000, 0, 0, 0, 0), 1000 + W);
    CHECK_EQ(sm(&fc, 2, 500, 1000 + W, 0, 0, 0), 1000 + W);
    CHECK_EQ(fc.limiting_receiver, 1);
    CHECK(fc.ops->has_required(&fc));
    ps_fc_free(&fc);
}

static void min_follows_the_slowest(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    limit = sm(&fc, 2, 0, limit, 0, 0, 0);
    CHECK_EQ(fc.tracked, 2);
    limit = sm(&fc, 1, 4096, limit, 1, 0, 0);
    CHECK_EQ(limit, W); /* 2 still stands at 0 */
    CHECK(fc.group_binds && fc.limiting_receiver == 2);
    limit = sm(&fc, 2, 2048, limit, 2, 0, 0);
    CHECK_EQ(limit, 2048 + W);
    ps_fc_free(&fc);
}

static void min_does_not_admit_who_is_too_far_behind(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    int64_t limit = sm(&fc, 1, 100000, 0, 0, 0, 0);
    limit = sm(&fc, 2, 100000 - W - 32, limit, 0, 0, 0); /* more than a window behind */
    CHECK_EQ(fc.tracked, 1);
    CHECK_EQ(limit, 100000 + W);
    limit = sm(&fc, 3, 100000 - W, limit, 0, 0, 0); /* exactly a window */
    CHECK_EQ(fc.tracked, 2);
    CHECK_EQ(limit, 100000 + W);                         /* an SM never lowers ... */
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 1), 100000); /* ... an idle cycle does */
    ps_fc_free(&fc);
}

static void min_evicts_the_silent_the_ended_and_the_erring(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    limit = sm(&fc, 2, 0, limit, 0, 0, 0);
    limit = sm(&fc, 3, 0, limit, 0, 0, 0);
    limit = sm(&fc, 4, 0, limit, 0, 0, 0);
    limit = sm(&fc, 1, 8192, limit, 3 * S, 0, 0);
    limit = sm(&fc, 4, 4096, limit, 4 * S, 0, 0);
    limit = sm(&fc, 2, 0, limit, 4 * S, 0, PS_SM_EOS);
    CHECK_EQ(limit, W);
    CHECK_EQ(fc.due_ns, 4 * S);
    limit = fc.ops->on_idle(&fc, limit, 0, 4 * S); /* 2 left */
    CHECK_EQ(fc.tracked, 3);
    CHECK_EQ(limit, W);
    CHECK_EQ(fc.due_ns, 5 * S); /* 3 was heard at 0 */
    limit = fc.ops->on_idle(&fc, limit, 0, 5 * S - 1);
    CHECK_EQ(fc.tracked, 3);
    limit = fc.ops->on_idle(&fc, limit, 0, 5 * S);
    CHECK_EQ(fc.tracked, 2);
    CHECK_EQ(limit, 4096 + W);
    fc.ops->on_error(&fc, 4, 5 * S);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 * S), 8192 + W);
    fc.ops->on_error(&fc, 77, 5 * S); /* nobody's */
    CHECK_EQ(fc.tracked, 1);
    ps_fc_free(&fc);
}

static void the_last_to_leave_leaves_the_limit(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    const int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 * S), limit);
    CHECK_EQ(fc.tracked, 0);
    CHECK_EQ(sm(&fc, 9, 50000, limit, 6 * S, 0, PS_SM_EOS), 50000 + W); /* nobody to wait for */
    CHECK_EQ(fc.tracked, 0);
    ps_fc_free(&fc);
}

static void a_group_below_its_least_size_does_not_move(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 2, 0);
    CHECK(!fc.ops->has_required(&fc));
    CHECK_EQ(sm(&fc, 1, 0, 77, 0, 0, 0), 77);
    CHECK(!fc.ops->has_required(&fc));
    CHECK_EQ(sm(&fc, 2, 32, 77, 0, 0, 0), W);
    CHECK(fc.ops->has_required(&fc));
    sm(&fc, 2, 32, W, 0, 0, PS_SM_EOS);
    CHECK_EQ(fc.ops->on_idle(&fc, W, 0, 1), W);
    CHECK(!fc.ops->has_required(&fc));
    ps_fc_free(&fc);
}

static void a_shrinking_window_brings_the_limit_down_when_idle(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    const int64_t limit = sm(&fc, 1, 4096, 0, 0, 0, 0);
    const ps_sm_t small = { .receiver_id = 1, .window = 1024 };
    CHECK_EQ(fc.ops->on_sm(&fc, &small, 4096, limit, at(1), 1), limit);
    CHECK_EQ(fc.due_ns, 1);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 4096, 1), 4096 + 1024);
    ps_fc_free(&fc);
}

static void a_joiner_is_waited_for(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    const ps_sm_t request = { .receiver_id = 2, .window = W, .flags = PS_SM_SETUP };
    fc.ops->on_setup_requested(&fc, &request, at(request.receiver_id), 0);
    fc.ops->on_setup_sent(&fc, limit, 1);
    CHECK_EQ(sm(&fc, 1, 4096, limit, 2, 0, 0), limit); /* held */
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 3), W);
    CHECK(fc.join_binds && fc.limiting_receiver == 2); /* it is the culprit */
    CHECK_EQ(sm(&fc, 2, 2048, limit, 4, 0, 0), limit); /* it joined: the hold is over, */
    CHECK_EQ(fc.due_ns, 4);
    limit = fc.ops->on_idle(&fc, limit, 0, 4); /* as of the next cycle */
    CHECK_EQ(limit, 2048 + W);
    /* one that asks and never comes holds for one receiver time-out, and only once */
    const ps_sm_t other = { .receiver_id = 3, .window = W, .flags = PS_SM_SETUP };
    fc.ops->on_setup_requested(&fc, &other, at(3), 5);
    fc.ops->on_setup_sent(&fc, limit, 5);
    sm(&fc, 1, 8192, limit, S, 0, 0);
    limit = sm(&fc, 2, 8192, limit, S, 0, 0);
    CHECK_EQ(limit, 2048 + W);
    for (int64_t now_ns = S; now_ns < 5 * S; now_ns += S / 10) { /* it asks at every SETUP */
        (void)fc.ops->on_setup_requested(&fc, &other, at(3), now_ns);
        fc.ops->on_setup_sent(&fc, limit, now_ns);
    }
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 + 5 * S - 4), 2048 + W);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 + 5 * S), 8192 + W);
    CHECK_EQ(fc.ops->on_setup_requested(&fc, &other, at(3), 6 * S), PS_JOIN_NOT_JOINED);
    fc.ops->on_setup_sent(&fc, 8192 + W, 6 * S);
    CHECK(!ps_join_holds(fc.join));
    ps_fc_free(&fc);
}

static void a_joiner_that_falls_silent_holds_for_one_time_out_in_all(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    const ps_sm_t request = { .receiver_id = 2, .window = W, .flags = PS_SM_SETUP };
    fc.ops->on_setup_requested(&fc, &request, at(2), 0);
    fc.ops->on_setup_sent(&fc, limit, 0);
    limit = sm(&fc, 2, 0, limit, 4 * S, 0, 0); /* it joins late, and is not heard again */
    limit = sm(&fc, 1, 8192, limit, 4 * S, 0, 0);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 * S - 1), W);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 5 * S), 8192 + W);
    ps_fc_free(&fc);
}

static void a_window_that_takes_nothing_holds_for_one_time_out(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    ps_sm_t shut = { .receiver_id = 2, .window = 1407 };
    fc.mtu = 1408;
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    limit = sm(&fc, 2, 0, limit, 0, 0, 0);
    for (int64_t now_ns = S; now_ns < 5 * S; now_ns += S) {
        limit = sm(&fc, 1, 8192, limit, now_ns, 0, 0);
        limit = fc.ops->on_sm(&fc, &shut, 0, limit, at(2), now_ns);
        limit = fc.ops->on_idle(&fc, limit, 0, now_ns);
        CHECK_EQ(limit, 1407);
    }
    limit = fc.ops->on_idle(&fc, limit, 0, 5 * S);
    CHECK_EQ(limit, 8192 + W);
    CHECK_EQ(fc.ops->on_sm(&fc, &shut, 8192, limit, at(2), 5 * S), limit); /* not admitted */
    CHECK_EQ(fc.tracked, 1);
    shut.window = 1408; /* it opens: it counts again */
    (void)fc.ops->on_sm(&fc, &shut, 8192 + W, limit, at(2), 5 * S);
    CHECK_EQ(fc.tracked, 2);
    ps_fc_free(&fc);
}

static void a_setup_nobody_requested_holds_nothing(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    const int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    fc.ops->on_setup_sent(&fc, limit, 1);
    CHECK_EQ(sm(&fc, 1, 4096, limit, 2, 0, 0), 4096 + W);
    ps_fc_free(&fc);
}

static void tagged_follows_the_slowest_of_the_tagged(void)
{
    ps_fc_t fc = make(PS_FC_TAGGED, 0, 7);
    int64_t limit = sm(&fc, 1, 1000, 0, 0, 0, 0); /* untagged drives while alone */
    CHECK_EQ(limit, 1000 + W);
    limit = sm(&fc, 2, 96, limit, 0, 7, 0);
    CHECK_EQ(fc.tracked, 1);
    CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, 1), 96 + W);
    limit = 96 + W;
    CHECK_EQ(sm(&fc, 1, 5000, limit, 2, 0, 0), limit); /* not any more */
    CHECK_EQ(sm(&fc, 3, 5000, limit, 2, 8, 0), limit); /* another group's */
    CHECK_EQ(fc.tracked, 1);
    const ps_sm_t request = { .receiver_id = 4, .window = W, .flags = PS_SM_SETUP };
    fc.ops->on_setup_requested(&fc, &request, at(request.receiver_id), 3); /* untagged: no hold */
    fc.ops->on_setup_sent(&fc, limit, 3);
    CHECK_EQ(sm(&fc, 2, 4096, limit, 4, 7, 0), 4096 + W);
    ps_fc_free(&fc);
}

static void nak_opens_half_a_term_among_those_that_speak(void)
{
    ps_fc_t fc = make(PS_FC_PRESSURE, 0, 0);
    ps_sm_t frame = { .receiver_id = 1, .window = W };
    frame.trailer.capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE;
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, 4096, 0, at(1), 0), 4096 + T / 2);
    frame.trailer.capabilities = 0; /* a plain Aeron peer comes */
    frame.receiver_id = 2;
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, 32768, 0, at(1), 1), 32768 + W);
    frame.trailer.capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE;
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, 32768, 0, at(1), 2), 32768 + W);
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, 32768, 0, at(1), 1 + 5 * S), 32768 + T / 2); /* it went */
    ps_fc_free(&fc);
}

/* Spies stand for receivers that left: the sender passed over what nobody on the network read. */
static void the_limit_under_nak_stays_where_spies_took_the_sender(void)
{
    ps_fc_t fc = make(PS_FC_PRESSURE, 0, 0);
    ps_sm_t frame = { .receiver_id = 1, .window = W };
    frame.trailer.capabilities = PS_CAP_PENSTOCK | PS_CAP_PRESSURE;
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, 4096, 0, at(1), 0), 4096 + T / 2);
    const int64_t passed = 4096 + 2 * T;
    CHECK_EQ(fc.ops->on_idle(&fc, passed, passed, S), passed);
    frame.receiver_id = 2;
    CHECK_EQ(fc.ops->on_sm(&fc, &frame, passed - T / 4, passed, at(1), 2 * S), passed + T / 4);
    ps_fc_free(&fc);
}

static void a_custom_limit_counts_until_its_time(void)
{
    ps_fc_t fc = make(PS_FC_CUSTOM, 0, 0);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    CHECK_EQ(limit, W); /* the built-in */
    CHECK_EQ(ps_fc_set_custom(&fc, 4096, 100, 10), 4096);
    CHECK_EQ(sm(&fc, 1, 8192, 4096, 20, 0, 0), 4096);
    CHECK_EQ(ps_fc_set_custom(&fc, INT64_MAX, 100, 30), 8192 + W); /* never beyond the edge */
    CHECK_EQ(ps_fc_set_custom(&fc, 5000, 100, 40), 5000);
    CHECK_EQ(fc.due_ns, 100);
    CHECK_EQ(fc.ops->on_idle(&fc, 5000, 0, 99), 5000);
    CHECK_EQ(fc.ops->on_idle(&fc, 5000, 0, 100), 8192 + W); /* late: the built-in */
    ps_fc_free(&fc);
}

/* Two receivers, of which one stands at 0; the strategy answered 5000 and is late from 100 ms. */
static ps_fc_t late(int32_t on_late)
{
    const ps_fc_params_t params = { .kind = PS_FC_CUSTOM, .on_late = on_late };
    ps_fc_t fc;
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_OK);
    int64_t limit = sm(&fc, 1, 0, 0, 0, 0, 0);
    limit = sm(&fc, 2, 8192, limit, 0, 0, 0);
    CHECK_EQ(limit, on_late == PS_FC_LATE_MAX ? 8192 + W : W); /* no answer yet */
    CHECK_EQ(ps_fc_set_custom(&fc, 5000, 100 * MS, MS), 5000);
    return fc;
}

static void a_late_strategy_holds_and_follows_the_slowest(void)
{
    ps_fc_t fc = late(PS_FC_LATE_HOLD);
    CHECK_EQ(fc.ops->on_idle(&fc, 5000, 0, 100 * MS), W); /* the slowest grants more than it did */
    CHECK_EQ(sm(&fc, 1, 4096, W, 200 * MS, 0, 0), 4096 + W);
    CHECK_EQ(ps_fc_set_custom(&fc, 16000, 100 * MS, 300 * MS), 16000); /* late, and yet an answer */
    CHECK(fc.group_binds);
    CHECK_EQ(sm(&fc, 2, 16384, 16000, 4 * S, 0, 0), 16000); /* it is kept */
    CHECK_EQ(sm(&fc, 1, 10240, 16000, 4 * S, 0, 0), 10240 + W);
    CHECK_EQ(ps_fc_set_custom(&fc, INT64_MAX, 100 * MS, 5 * S), 16384 + W); /* never beyond max */
    ps_fc_free(&fc);
}

static void a_late_strategy_is_given_up_after_five_seconds(void)
{
    for (int32_t kind = PS_FC_LATE_HOLD; kind <= PS_FC_LATE_MIN; kind++) {
        ps_fc_t fc = late(kind);
        int64_t limit = 0;
        for (int64_t t = 1; t <= 4; t++) {
            (void)sm(&fc, 1, 0, W, t * S, 0, 0);
            limit = sm(&fc, 2, 8192, W, t * S, 0, 0);
            CHECK_EQ(limit, kind == PS_FC_LATE_MAX ? 8192 + W : W);
        }
        CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, MS + 5 * S - 1), limit);
        CHECK(fc.due_ns == MS + 5 * S);
        CHECK_EQ(fc.ops->on_idle(&fc, limit, 0, MS + 5 * S), 8192 + W);
        CHECK_EQ(ps_fc_set_custom(&fc, 5000, 6 * S, 5 * S + 2 * MS), 5000); /* it is back */
        ps_fc_free(&fc);
    }
}

static void a_receiver_that_went_is_not_waited_for_while_late(void)
{
    ps_fc_t fc = late(PS_FC_LATE_HOLD);
    CHECK_EQ(sm(&fc, 1, 0, W, S, 0, PS_SM_EOS), 8192 + W);
    ps_fc_free(&fc);
    fc = late(PS_FC_LATE_MIN);
    CHECK_EQ(sm(&fc, 2, 8192, W, 4 * S, 0, 0), W);
    (void)ps_fc_set_custom(&fc, 5000, 4 * S, 4 * S);
    CHECK_EQ(fc.ops->on_idle(&fc, W, 0, 5 * S), 8192 + W); /* 1 was silent for 5 s */
    ps_fc_free(&fc);
}

static void contradictions_are_refused(void)
{
    ps_fc_t fc;
    ps_fc_params_t params = { .kind = 99 };
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_E_INVALID);
    params = (ps_fc_params_t){ .kind = PS_FC_MAX, .group_min_size = 1 };
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_E_INVALID);
    params = (ps_fc_params_t){ .kind = PS_FC_MIN, .group_min_size = 5000 };
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_E_INVALID);
    params = (ps_fc_params_t){ .kind = PS_FC_MIN, .receiver_timeout_ns = -1 };
    CHECK_EQ(ps_fc_init(&fc, &params, T, 1), PS_E_INVALID);
}

/* ---- through a sender ------------------------------------------------------------------------ */

static void rig_beat(rig_t *rig, int64_t id, int64_t position)
{
    rig_sm(rig, id, &rig->peer, position, W, 0);
    rig_step(rig, 0);
}

static void min_needs_its_group_to_be_connected(void)
{
    rig_t *rig = rig_open(
        &(rig_options_t){ .kind = RIG_MULTICAST, .flow_control = PS_FC_MIN, .group_min_size = 2 });
    rig_step(rig, 0);
    rig_beat(rig, 1, 0);
    CHECK_EQ(rig_counter(rig, rig->receivers), 1);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    rig_beat(rig, 2, 0);
    CHECK_EQ(rig_counter(rig, rig->receivers), 2);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    rig_sm(rig, 2, &rig->peer, 0, W, PS_SM_EOS);
    rig_step(rig, 2 * MS);
    rig_step(rig, MS); /* the next tick */
    CHECK_EQ(rig_counter(rig, rig->receivers), 1);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    rig_close(rig);
}

/* A receiver dies: under min everything waits for it until the timeout, and not longer. */
static void min_stalls_until_the_receiver_timeout(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST, .flow_control = PS_FC_MIN });
    rig_step(rig, 0);
    rig_beat(rig, 1, 0);
    rig_beat(rig, 2, 0);
    while (rig_tail(rig) < RIG_TERM / 2) {
        rig_offer(rig, NULL, 1024, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, MS);
    while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
        rig_offer(rig, NULL, 1024, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, MS);
    const int64_t stalled = rig_counter(rig, rig->sender_position);
    CHECK(stalled <= W && stalled > W - 1408);
    for (int i = 1; i < 50; i++) {
        rig_step(rig, 100 * MS);
        rig_beat(rig, 1, stalled);
        CHECK_EQ(rig_counter(rig, rig->sender_position), stalled);
    }
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_GROUP_STRATEGY);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 2);
    CHECK_EQ(rig_counter(rig, rig->receivers), 2);
    rig_step(rig, 100 * MS + MS);
    CHECK_EQ(rig_counter(rig, rig->receivers), 1);
    rig_step(rig, MS);
    CHECK(rig_counter(rig, rig->sender_position) > stalled);
    CHECK(rig_counter(rig, rig->sender_position) <= stalled + W);
    rig_close(rig);
}

/* A receiver asks to join for ever: it is named, and reported on when its hold ends and when it is
 * refused another. */
static void a_receiver_that_never_joins_is_named_and_reported(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST, .flow_control = PS_FC_MIN });
    ps_addr_t stranger = rig->peer;
    ps_receiver_view_t view;
    ps_event_t event;
    int refused = 0, expired = 0;
    stranger.port++;
    rig_step(rig, 0);
    rig_beat(rig, 1, 0);
    CHECK_EQ(ps_publication_joiner(rig->pub, &view), 0);
    rig_step(rig, 100 * MS);
    rig_sm(rig, 77, &stranger, 0, W, PS_SM_SETUP);
    rig_step(rig, 2 * MS);
    rig_step(rig, MS);
    CHECK_EQ(ps_publication_joiner(rig->pub, &view), 1);
    CHECK(view.receiver_id == 77 && view.address.port == stranger.port);
    while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
        rig_offer(rig, NULL, 1024, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, MS);
    int64_t at = rig_counter(rig, rig->sender_position);
    const int64_t held = at;
    for (int i = 0; i < 120; i++) { /* 12 s; it asks ten times a second */
        rig_sm(rig, 77, &stranger, 0, W, PS_SM_SETUP);
        rig_beat(rig, 1, at);
        while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
            rig_offer(rig, NULL, 1024, PS_FLAG_UNFRAGMENTED);
        }
        rig_step(rig, 100 * MS);
        at = rig_counter(rig, rig->sender_position);
        if (i == 10) {
            CHECK_EQ(at, held);
            CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_JOIN_HOLD);
            CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 77);
        }
        while (rig_event(rig, PS_EV_JOIN, &event)) {
            CHECK(event.join.receiver_id == 77 && event.join.source.port == stranger.port);
            expired += event.join.verdict == PS_JOIN_EXPIRED;
            refused += event.join.verdict == PS_JOIN_NOT_JOINED;
        }
    }
    CHECK(at > held);
    CHECK_EQ(expired, 1);
    CHECK(refused >= 6 && refused <= 8); /* once a second */
    rig_close(rig);
}

static void the_limit_counter_comes_down(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST, .flow_control = PS_FC_MIN });
    rig_step(rig, 0);
    rig_sm(rig, 1, &rig->peer, 0, W, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), W);
    rig_sm(rig, 1, &rig->peer, 0, 2048, 0);
    rig_step(rig, 2 * MS);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 2048);
    rig_offer(rig, NULL, 4096 - 32, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 2 * MS);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 0); /* no frame of 4096 fits */
    rig_close(rig);
}

/* One status message that no receiver repeats moves the limit for as long as a receiver may be
 * silent, and not below what was sent meanwhile. */
static void a_limit_that_no_receiver_grants_comes_down(void)
{
    static const int32_t kinds[] = { PS_FC_UNICAST, PS_FC_MAX, PS_FC_PRESSURE, PS_FC_CUSTOM };
    for (int32_t k = 0; k < 8; k++) {
        ps_fc_t fc = make(kinds[k % 4], 0, 0);
        const bool timed = kinds[k % 4] == PS_FC_CUSTOM; /* it waits for its strategy, too */
        fc.on_late = PS_FC_LATE_MAX;
        const int64_t sent = k < 4 ? 2048 : 30016;
        ps_sm_t true_one = { .receiver_id = 1, .window = W };
        const ps_sm_t forged = { .receiver_id = 2, .window = T / 2 };
        int64_t limit = fc.ops->on_sm(&fc, &true_one, 0, 0, at(true_one.receiver_id), 0);
        CHECK_EQ(limit, W);
        /* An honest stream has no timer, but for receivers that nak must do without. */
        CHECK(timed || fc.due_ns == (kinds[k % 4] == PS_FC_PRESSURE ? S : INT64_MAX));
        limit = fc.ops->on_sm(&fc, &forged, 2048, limit, at(forged.receiver_id), 1);
        CHECK_EQ(limit, 2048 + T / 2);
        for (int64_t t = 1; t <= 50; t++) {
            limit =
                fc.ops->on_sm(&fc, &true_one, 2048, limit, at(true_one.receiver_id), t * S / 10);
            CHECK_EQ(limit, 2048 + T / 2);
            if (fc.due_ns <= t * S / 10) {
                limit = fc.ops->on_idle(&fc, limit, sent, t * S / 10);
            }
        }
        CHECK(timed || fc.due_ns == S / 10 + 5 * S);
        CHECK_EQ(fc.ops->on_idle(&fc, limit, sent, S / 10 + 5 * S - 1), limit);
        limit = fc.ops->on_idle(&fc, limit, sent, S / 10 + 5 * S);
        CHECK_EQ(limit, sent > 2048 + W ? sent : 2048 + W);
        CHECK_EQ(fc.limiting_receiver, 1);
        /* Under nak, a second after the last word of a receiver that cannot signal. */
        CHECK(timed || fc.due_ns == (kinds[k % 4] == PS_FC_PRESSURE ? 6 * S : INT64_MAX));
        limit = fc.ops->on_sm(&fc, &true_one, sent, limit, at(true_one.receiver_id), 6 * S);
        CHECK_EQ(limit, sent + W);
        ps_fc_free(&fc);
    }
}

/* A slow member of a group beside a fast one, and an overtaken status message, change nothing. */
static void a_limit_that_one_receiver_grants_stays(void)
{
    ps_fc_t fc = make(PS_FC_MAX, 0, 0);
    const ps_sm_t fast = { .receiver_id = 1, .window = W };
    const ps_sm_t slow = { .receiver_id = 2, .window = W };
    int64_t limit = 0;
    for (int64_t t = 0; t < 300; t++) {
        limit = fc.ops->on_sm(&fc, &fast, t / 20 * 64, limit, at(fast.receiver_id), t * S / 10);
        limit = fc.ops->on_sm(&fc, &slow, 0, limit, at(slow.receiver_id), t * S / 10 + 1);
        if (fc.due_ns <= t * S / 10 + 2) {
            limit = fc.ops->on_idle(&fc, limit, 0, t * S / 10 + 2);
        }
        CHECK_EQ(limit, t / 20 * 64 + W);
    }
    ps_fc_free(&fc);
}

/* A known member that requests a SETUP does not join: it holds no limit. */
static void a_member_that_requests_a_setup_holds_nothing(void)
{
    ps_fc_t fc = make(PS_FC_MIN, 0, 0);
    const ps_sm_t member = { .receiver_id = 1, .window = W };
    const ps_sm_t requests = { .receiver_id = 1, .flags = PS_SM_SETUP };
    int64_t limit = fc.ops->on_sm(&fc, &member, 0, 0, at(member.receiver_id), 0);
    fc.ops->on_setup_requested(&fc, &requests, at(requests.receiver_id), 1);
    fc.ops->on_setup_sent(&fc, limit, 1);
    CHECK_EQ(fc.ops->on_sm(&fc, &member, 4096, limit, at(member.receiver_id), 2), 4096 + W);
    ps_fc_free(&fc);
}

int main(void)
{
    RUN(max_follows_the_furthest);
    RUN(min_follows_the_slowest);
    RUN(min_does_not_admit_who_is_too_far_behind);
    RUN(min_evicts_the_silent_the_ended_and_the_erring);
    RUN(the_last_to_leave_leaves_the_limit);
    RUN(a_group_below_its_least_size_does_not_move);
    RUN(a_shrinking_window_brings_the_limit_down_when_idle);
    RUN(a_joiner_is_waited_for);
    RUN(a_joiner_that_falls_silent_holds_for_one_time_out_in_all);
    RUN(a_window_that_takes_nothing_holds_for_one_time_out);
    RUN(a_setup_nobody_requested_holds_nothing);
    RUN(a_limit_that_no_receiver_grants_comes_down);
    RUN(a_limit_that_one_receiver_grants_stays);
    RUN(a_member_that_requests_a_setup_holds_nothing);
    RUN(tagged_follows_the_slowest_of_the_tagged);
    RUN(nak_opens_half_a_term_among_those_that_speak);
    RUN(the_limit_under_nak_stays_where_spies_took_the_sender);
    RUN(a_custom_limit_counts_until_its_time);
    RUN(a_late_strategy_holds_and_follows_the_slowest);
    RUN(a_late_strategy_is_given_up_after_five_seconds);
    RUN(a_receiver_that_went_is_not_waited_for_while_late);
    RUN(contradictions_are_refused);
    RUN(min_needs_its_group_to_be_connected);
    RUN(min_stalls_until_the_receiver_timeout);
    RUN(a_receiver_that_never_joins_is_named_and_reported);
    RUN(the_limit_counter_comes_down);
    return 0;
}
