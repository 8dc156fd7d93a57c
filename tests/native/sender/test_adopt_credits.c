/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adopt_credits.c: credits of a publication that a dead driver left. The new driver does not
 * know the receivers. The limit to which they had agreed binds until all of them are heard. */
#include "ps_credit.h"
#include "ps_publication.h"
#include "sender_rig.h"

enum { LOW = 5, HIGH = 9, FIRST = 5, SECOND = 6, RESTATED = 7 };

static void say(rig_t *rig, int64_t receiver, int64_t limit, uint32_t flags)
{
    const uint32_t credits = limit > 0 ? PS_CAP_CREDITS : 0;
    const ps_trailer_t trailer = { .capabilities = PS_CAP_PENSTOCK | PS_CAP_ORDINALS | credits,
                                   .ordinal = -1,
                                   .credit_limit = limit,
                                   .credit_messages = (uint32_t)limit,
                                   .credit_epoch = RESTATED,
                                   .credit_flags = flags };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM,
                         .window = RIG_TERM / 2,
                         .receiver_id = receiver };
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
    rig_step(rig, MS);
}

static int64_t limit_of(const rig_t *rig)
{
    return atomic_load(&rig->slot->credit_limit);
}

/* Two receivers, the first of which grants less; a death, and a new driver. */
static rig_t *adopted(int32_t flow_control, int64_t fc_timeout_ns, uint32_t flags)
{
    rig_t *rig = rig_open(&(rig_options_t){
        .kind = RIG_MULTICAST, .flow_control = flow_control, .fc_timeout_ns = fc_timeout_ns });
    rig_step(rig, 0);
    say(rig, FIRST, LOW, flags);
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(limit_of(rig), LOW);
    rig_succeed(rig);
    ps_publication_params_t params = rig_adopted_publication(rig);
    params.group = 1;
    params.flow_control = flow_control;
    params.fc_receiver_timeout_ns = fc_timeout_ns;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), LOW);
    return rig;
}

static void one_of_two_receivers_does_not_lift_the_limit(int32_t flow_control)
{
    rig_t *rig = adopted(flow_control, 0, 0);
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    CHECK_EQ(rig->pub->credits.awaited, 0);
    rig_close(rig);
}

static void a_receiver_without_credits_does_not_lift_the_limit(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, 0);
    say(rig, SECOND, 0, 0);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    rig_close(rig);
}

/* As many receivers are heard as the dead driver followed, but none of them grants credits. */
static void receivers_without_credits_replace_none_that_grants(int32_t flow_control)
{
    rig_t *rig = adopted(flow_control, 0, 0);
    say(rig, SECOND, 0, 0);
    say(rig, SECOND + 1, 0, 0);
    say(rig, SECOND + 2, 0, 0);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    CHECK_EQ(rig->pub->credits.awaited, 0);
    rig_close(rig);
}

/* Receivers leave that granted nothing; another one keeps the stream connected. */
static void a_plain_receiver_that_leaves_lifts_no_limit(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, 0);
    say(rig, SECOND + 3, 0, 0);
    for (int32_t i = 0; i < 3; i++) {
        const ps_sm_t leaving = { .session_id = GOLDEN_SESSION,
                                  .stream_id = GOLDEN_STREAM,
                                  .term_id = GOLDEN_TERM,
                                  .receiver_id = SECOND + i,
                                  .flags = PS_SM_EOS,
                                  .trailer = { .credit_limit = -1 } };
        say(rig, SECOND + i, 0, 0);
        ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns);
        rig_step(rig, MS);
    }
    CHECK_EQ(rig->pub->credits.awaited, 1);
    CHECK_EQ(limit_of(rig), LOW);
    rig_close(rig);
}

/* If no receiver grants credits, the limit ends with the time-out. */
static void receivers_without_credits_wait_for_the_time_out(int32_t flow_control)
{
    const int64_t timeout_ns = flow_control == PS_FC_MIN ? 400 * MS : 5 * S;
    rig_t *rig = adopted(flow_control, flow_control == PS_FC_MIN ? timeout_ns : 0, 0);
    for (int64_t at_ns = 2 * MS; at_ns < timeout_ns; at_ns += timeout_ns / 8) {
        say(rig, FIRST, 0, 0);
        say(rig, SECOND, 0, 0);
        CHECK_EQ(limit_of(rig), LOW);
        rig_step(rig, timeout_ns / 8 - 2 * MS);
    }
    say(rig, FIRST, 0, 0);
    rig_step(rig, timeout_ns / 8);
    CHECK_EQ(limit_of(rig), PS_CREDIT_OPEN);
    rig_close(rig);
}

static void a_freeze_outlives_the_daemon(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, PS_CREDIT_FLAG_FROZEN);
    say(rig, SECOND, HIGH, 0);
    CHECK(rig->pub->credits.revoked);
    say(rig, FIRST, LOW, PS_CREDIT_FLAG_FROZEN);
    CHECK(rig->pub->credits.revoked);
    say(rig, FIRST, 0, 0); /* its last reader has left */
    CHECK(!rig->pub->credits.revoked);
    CHECK_EQ(limit_of(rig), HIGH);
    rig_close(rig);
}

static void a_receiver_that_is_not_heard_times_out(int32_t flow_control, int64_t timeout_ns)
{
    rig_t *rig = adopted(flow_control, flow_control == PS_FC_MIN ? timeout_ns : 0, 0);
    for (int64_t at_ns = 2 * MS; at_ns < timeout_ns; at_ns += timeout_ns / 8) {
        say(rig, SECOND, HIGH, 0);
        CHECK_EQ(limit_of(rig), LOW);
        rig_step(rig, timeout_ns / 8 - MS);
    }
    rig_step(rig, timeout_ns / 8);
    CHECK_EQ(limit_of(rig), HIGH);
    rig_close(rig);
}

/* The awaited receivers are those that granted, not as many as granted (seed 5658). */
static void receivers_that_join_anew_replace_none(int32_t flow_control)
{
    rig_t *rig = adopted(flow_control, 0, 0);
    for (int64_t i = 1; i <= 8; i++) {
        say(rig, SECOND + i, HIGH, 0);
        CHECK_EQ(limit_of(rig), LOW);
        CHECK_EQ(rig->pub->credits.awaited, 2);
    }
    say(rig, SECOND, HIGH, 0);
    say(rig, SECOND, HIGH, 0); /* twice, but one receiver */
    CHECK_EQ(limit_of(rig), LOW);
    CHECK_EQ(rig->pub->credits.awaited, 1);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    CHECK_EQ(rig->pub->credits.awaited, 0);
    rig_close(rig);
}

static void adopt_again(rig_t *rig)
{
    rig_succeed(rig);
    ps_publication_params_t params = rig_adopted_publication(rig);
    params.group = 1;
    params.flow_control = PS_FC_MAX;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    rig_step(rig, MS);
}

/* The new driver dies as well, while it awaits a receiver. */
static void a_second_successor_awaits_those_that_the_first_awaited(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, 0);
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(limit_of(rig), LOW);
    adopt_again(rig);
    CHECK_EQ(rig->pub->credits.awaited, 2);
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    adopt_again(rig); /* nobody is awaited twice */
    CHECK_EQ(rig->pub->credits.awaited, 2);
    say(rig, FIRST, LOW + 2, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(limit_of(rig), LOW + 2);
    rig_close(rig);
}

/* Receivers that left or ceased to grant before the death are not awaited. */
static void receivers_that_left_before_are_not_awaited(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, 0);
    const ps_sm_t leaving = { .session_id = GOLDEN_SESSION,
                              .stream_id = GOLDEN_STREAM,
                              .term_id = GOLDEN_TERM,
                              .receiver_id = FIRST,
                              .flags = PS_SM_EOS,
                              .trailer = { .credit_limit = -1 } };
    say(rig, FIRST, LOW, 0);
    say(rig, SECOND, HIGH, 0);
    say(rig, SECOND + 1, HIGH, 0);
    say(rig, SECOND + 1, 0, 0);
    ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), HIGH);
    adopt_again(rig);
    CHECK_EQ(rig->pub->credits.awaited, 1);
    say(rig, SECOND, HIGH + 1, 0);
    CHECK_EQ(limit_of(rig), HIGH + 1);
    rig_close(rig);
}

/* A receiver that leaves, heard before or not, is not awaited, and is no substitute for another
 * one. */
static void a_receiver_that_leaves_is_not_awaited(void)
{
    rig_t *rig = adopted(PS_FC_MAX, 0, 0);
    const ps_sm_t leaving = { .session_id = GOLDEN_SESSION,
                              .stream_id = GOLDEN_STREAM,
                              .term_id = GOLDEN_TERM,
                              .receiver_id = SECOND,
                              .flags = PS_SM_EOS,
                              .trailer = { .credit_limit = -1 } };
    say(rig, SECOND + 1, HIGH, 0); /* joins */
    CHECK_EQ(rig->pub->credits.awaited, 2);
    ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns);
    CHECK_EQ(rig->pub->credits.awaited, 1);
    ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns); /* a duplicate */
    say(rig, SECOND, HIGH, 0);
    CHECK_EQ(rig->pub->credits.awaited, 1);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(rig->pub->credits.awaited, 0);
    rig_close(rig);
    rig = adopted(PS_FC_MAX, 0, 0);
    say(rig, SECOND, HIGH, 0);
    ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns);
    CHECK_EQ(rig->pub->credits.awaited, 1);
    CHECK_EQ(limit_of(rig), LOW);
    say(rig, FIRST, LOW + 1, 0);
    CHECK_EQ(limit_of(rig), LOW + 1);
    rig_close(rig);
}

int main(void)
{
    one_of_two_receivers_does_not_lift_the_limit(PS_FC_MAX);
    one_of_two_receivers_does_not_lift_the_limit(PS_FC_MIN);
    a_receiver_without_credits_does_not_lift_the_limit();
    receivers_without_credits_replace_none_that_grants(PS_FC_MAX);
    receivers_without_credits_replace_none_that_grants(PS_FC_MIN);
    a_plain_receiver_that_leaves_lifts_no_limit();
    receivers_without_credits_wait_for_the_time_out(PS_FC_MAX);
    receivers_without_credits_wait_for_the_time_out(PS_FC_MIN);
    a_freeze_outlives_the_daemon();
    a_receiver_that_is_not_heard_times_out(PS_FC_MAX, 5 * S);
    a_receiver_that_is_not_heard_times_out(PS_FC_MIN, 400 * MS);
    receivers_that_join_anew_replace_none(PS_FC_MAX);
    receivers_that_join_anew_replace_none(PS_FC_MIN);
    a_second_successor_awaits_those_that_the_first_awaited();
    receivers_that_left_before_are_not_awaited();
    a_receiver_that_leaves_is_not_awaited();
    return 0;
}
