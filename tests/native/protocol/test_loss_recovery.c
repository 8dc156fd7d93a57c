/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss recovery: many repairs at once and their turns, the repair budget, a storm that must not
 * starve another stream, lists of NAKs on the wire, and how many NAKs a group sends for one loss.
 *
 *   test_loss_recovery              the tests
 *   test_loss_recovery implosion    the curve as CSV on standard output (tools/plots)
 */
#include <string.h>

#include "ps_nak_timer.h"
#include "ps_wire_nak_list.h"
#include "ps_retransmit.h"
#include "ps_wire_fields.h"
#include "sender_rig.h"

/* ---- the pool -------------------------------------------------------------------------------- */

static void every_action_has_its_turn(void)
{
    ps_resend_t actions[8] = { 0 };
    ps_retransmit_t pool = { .capacity = 8, .linger_ns = 10 * MS, .actions = actions };
    ps_resend_t *due[3];
    int32_t seen[8] = { 0 };
    for (int32_t i = 0; i < 8; i++) {
        CHECK_EQ(ps_retransmit_on_nak(&pool, i * 100, i * 100 + 50, 0), PS_RESEND_ADDED);
    }
    CHECK_EQ(ps_retransmit_on_nak(&pool, 320, 340, 0), PS_RESEND_IGNORED);
    CHECK_EQ(ps_retransmit_on_nak(&pool, 900, 950, 0), PS_RESEND_OVERFLOW);
    for (int32_t round = 0; round < 8; round++) { /* three a turn, none is ever done */
        CHECK_EQ(ps_retransmit_due(&pool, 0, due, 3), 3);
        for (int32_t k = 0; k < 3; k++) {
            seen[due[k] - actions]++;
        }
    }
    for (int32_t i = 0; i < 8; i++) {
        CHECK(seen[i] == 3);
    }
    ps_retransmit_done(&pool, &actions[5], MS);
    ps_retransmit_done(&pool, &actions[2], 2 * MS);
    CHECK_EQ(ps_retransmit_on_nak(&pool, 510, 540, 3 * MS), PS_RESEND_IGNORED); /* it lingers */
    CHECK_EQ(ps_retransmit_on_nak(&pool, 900, 950, 3 * MS), PS_RESEND_ADDED);
    CHECK_EQ(actions[5].from, 900); /* lingered longest, gave way */
    CHECK_EQ(pool.pending, 7);
    ps_retransmit_set_capacity(&pool, 1);
    CHECK_EQ(pool.pending, 1);
    CHECK_EQ(ps_retransmit_due(&pool, 3 * MS, due, 3), 1);
}

/* ---- the wire -------------------------------------------------------------------------------- */

static void lists_on_the_wire(void)
{
    uint8_t out[PS_CONTROL_MAX];
    ps_nak_list_t list = { .session_id = -5, .stream_id = 7, .count = PS_NAK_LIST_MAX }, back;
    uint16_t type;
    for (int32_t i = 0; i < list.count; i++) {
        list.ranges[i].term_id = i;
        list.ranges[i].term_offset = 64 * i;
        list.ranges[i].length = 32;
    }
    const uint32_t length = ps_wire_build_nak_list(out, &list);
    CHECK_EQ(length, 24 + 40 * 12);
    CHECK_EQ(ps_wire_check(out, length, &type), PS_WIRE_OK);
    CHECK_EQ(type, PS_TYPE_EXT);
    CHECK_EQ(ps_wire_ext_subtype(out, length), PS_EXT_NAK_LIST);
    CHECK_EQ(ps_wire_nak_list(out, length, &back), PS_WIRE_OK);
    CHECK(back.session_id == -5 && back.stream_id == 7 && back.count == 40);
    CHECK(back.ranges[39].term_id == 39 && back.ranges[39].term_offset == 64 * 39);
    for (uint32_t cut = 24; cut < length; cut++) { /* the frame says more than the datagram has */
        CHECK(ps_wire_nak_list(out, cut, &back) != PS_WIRE_OK);
    }
    ps_put_i32(out, 24);
    CHECK_EQ(ps_wire_nak_list(out, length, &back), PS_WIRE_BAD_FIELD); /* nothing in it */
    ps_put_i32(out, 30);
    CHECK_EQ(ps_wire_nak_list(out, length, &back), PS_WIRE_BAD_FIELD); /* half a range */
    out[12] = 9;
    CHECK_EQ(ps_wire_ext_subtype(out, length), -1);
}

/* ---- a sender with a penstock receiver ------------------------------------------------------- */

/* A status message with a trailer: the receiver is one of ours. */
static void hear_member(rig_t *rig, int64_t receiver_id, int64_t position, int32_t window,
                        uint32_t reason, int64_t pacing_rate)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM + (int32_t)(position / RIG_TERM),
                         .term_offset = (int32_t)(position % RIG_TERM),
                         .window = window,
                         .receiver_id = receiver_id };
    const ps_trailer_t trailer = { .capabilities = PS_CAP_PENSTOCK,
                                   .daemon_id = 9,
                                   .ordinal = -1,
                                   .credit_limit = -1,
                                   .released_ordinal = -1,
                                   .reason = reason,
                                   .congestion_window = pacing_rate > 0,
                                   .pacing_rate = pacing_rate };
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
}

static void hear_penstock(rig_t *rig, int64_t position, int32_t window, uint32_t reason,
                          int64_t pacing_rate)
{
    hear_member(rig, GOLDEN_RECEIVER, position, window, reason, pacing_rate);
}

static void nak(rig_t *rig, int32_t offset, int32_t length)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_nak_t range = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM, offset, length };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &range));
}

static int64_t pending_bytes(rig_t *rig)
{
    int64_t bytes = 0;
    while (memnet_pending(rig->net) > 0) {
        bytes += rig_take(rig)->length;
    }
    return bytes;
}

/* Twenty frames of 1408 bytes out, to a penstock receiver. */
static rig_t *with_twenty(int64_t retransmit_delay_ns)
{
    rig_t *rig = rig_open(&(rig_options_t){
        .kind = RIG_UNICAST, .advertise = 1, .retransmit_delay_ns = retransmit_delay_ns });
    rig_connect(rig);
    hear_penstock(rig, 0, RIG_TERM / 2, 0, 0);
    for (int32_t i = 0; i < 20; i++) {
        rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    memnet_discard(rig->net);
    return rig;
}

/* More ranges than a list has room for, in a datagram that is as long as it says. */
static void a_list_that_is_too_long_is_refused(void)
{
    enum { MANY = PS_NAK_LIST_MAX + 1 };
    uint8_t frame[PS_EXT_HEADER_BYTES + MANY * PS_NAK_RANGE_BYTES];
    ps_nak_list_t list = { .session_id = 1, .stream_id = 2, .count = PS_NAK_LIST_MAX };
    const uint32_t whole = ps_wire_build_nak_list(frame, &list);
    CHECK_EQ(ps_wire_nak_list(frame, whole, &list), PS_WIRE_OK);
    CHECK_EQ(list.count, PS_NAK_LIST_MAX);
    memset(frame + whole, 0, sizeof frame - whole);
    ps_put_i32(frame, (int32_t)sizeof frame);
    CHECK_EQ(ps_wire_nak_list(frame, sizeof frame, &list), PS_WIRE_BAD_FIELD);
    CHECK_EQ(list.count, 0);
}

static void a_list_is_repaired_in_one_call(void)
{
    uint8_t out[PS_CONTROL_MAX];
    rig_t *rig = with_twenty(0);
    ps_nak_list_t list = { .session_id = GOLDEN_SESSION, .stream_id = GOLDEN_STREAM, .count = 5 };
    for (int32_t i = 0; i < 5; i++) {
        list.ranges[i].term_id = GOLDEN_TERM;
        list.ranges[i].term_offset = 2 * i * 1408;
        list.ranges[i].length = 1408;
    }
    const int32_t before = memnet_sends(rig->net);
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak_list(out, &list));
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 5);
    CHECK_EQ(memnet_sends(rig->net) - before, 1);
    CHECK_EQ(rig_counter(rig, rig->naks), 1);
    CHECK_EQ(rig_counter(rig, PS_SYS_RETRANSMITS_SENT), 5);
    memnet_discard(rig->net);
    list.ranges[2].term_offset = 3; /* one that cannot be: the frame counts as invalid */
    rig->now_ns += 20 * MS;
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak_list(out, &list));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_INVALID_PACKETS), 1);
    rig_close(rig);
}

/* An Aeron receiver counts on a NAK to replace the last one. */
static void one_action_towards_aeron(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .retransmit_delay_ns = MS });
    rig_connect(rig);
    for (int32_t i = 0; i < 10; i++) {
        rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    memnet_discard(rig->net);
    nak(rig, 0, 1408);
    nak(rig, 2816, 1408);
    rig_step(rig, 0);
    rig_step(rig, 2 * MS);
    CHECK_EQ(memnet_pending(rig->net), 1);
    CHECK_EQ(rig_take(rig)->data[9], 2816 >> 8);
    rig_close(rig);
}

/* A receiver that requests everything for ever: the term's half is its burst, 4 MiB/s and
 * as much as is sent anew its rate. */
static void the_budget_bounds_a_storm(void)
{
    rig_t *rig = with_twenty(0);
    int64_t bytes = 0;
    for (int32_t i = 0; i < 2000; i++) { /* two seconds */
        rig->now_ns += MS;
        for (int32_t k = 19; k >= 0; k--) { /* overlapping, so that lingering absorbs nothing */
            nak(rig, k * 1408, (20 - k) * 1408);
        }
        if (i % 100 == 99) { /* it still says that it lives */
            hear_penstock(rig, 0, RIG_TERM / 2, 0, 0);
        }
        rig_step(rig, 0);
        bytes += pending_bytes(rig);
    }
    /* without the bound: 296 kB each 10 ms, 59 MB in two seconds */
    CHECK(bytes < 2 * 4 * 1024 * 1024 + RIG_TERM / 2 + 20 * 100);
    CHECK(bytes > 6 * 1024 * 1024);
    rig_close(rig);
}

static void the_congestion_rate_paces(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .advertise = 1 });
    int64_t bytes = 0;
    rig_connect(rig);
    hear_penstock(rig, 0, RIG_TERM / 2, PS_CAUSE_CONGESTION_WINDOW, 100000);
    rig_step(rig, 0);
    memnet_discard(rig->net);
    for (int32_t i = 0; i < 23; i++) {
        rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    bytes = pending_bytes(rig);
    CHECK(bytes >= 10 * 1408 && bytes <= 11 * 1408);         /* ten datagrams at once */
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_NONE); /* the producer has room still */
    for (int32_t i = 0; i < 100; i++) {
        rig_step(rig, MS);
        bytes += pending_bytes(rig);
    }
    CHECK(bytes >= 10 * 1408 + 8500 && bytes <= 10 * 1408 + 10000 + 1408); /* 100 ms of 100 kB/s */
    rig_close(rig);
}

/* Checks the rate of a group's data while a member states a rate, 0: none. The first 100 ms are not
 * counted: the bucket empties. */
static void check_member(rig_t *rig, int64_t receiver_id, int64_t stated, int64_t expected)
{
    int64_t from = 0;
    for (int32_t i = 0; i < 600; i++) {
        const int64_t sent = rig_counter(rig, rig->sender_position);
        from = i == 100 ? sent : from;
        if (i % 10 == 0) {
            hear_member(rig, receiver_id, sent, RIG_TERM / 2, 0, stated);
        }
        if (rig_tail(rig) - sent < 2 * 1408) {
            rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
        }
        rig_step(rig, MS);
        memnet_discard(rig->net);
    }
    const int64_t rate = (rig_counter(rig, rig->sender_position) - from) * 2;
    const int64_t error = expected / 50 + 2 * 1408; /* a datagram at both ends */
    CHECK(rate >= expected - error && rate <= expected + error);
}

/* Each member states the rate that its own window permits. None receives less than this. */
static void the_fastest_member_paces_a_group(void)
{
    rig_t *rig = rig_open(
        &(rig_options_t){ .kind = RIG_MULTICAST, .advertise = 1, .flow_control = PS_FC_MAX });
    rig_connect(rig);
    check_member(rig, GOLDEN_RECEIVER, 100000, 100000);
    check_member(rig, 6, 50000, 100000);
    check_member(rig, 7, 200000, 200000);
    check_member(rig, 7, 80000, 100000);
    check_member(rig, 7, 150000, 150000);
    check_member(rig, GOLDEN_RECEIVER, 90000, 150000);
    check_member(rig, 8, 0, 1408000); /* one message a millisecond is offered */
    rig_sm(rig, 8, &rig->peer, rig_counter(rig, rig->sender_position), RIG_TERM / 2, PS_SM_EOS);
    check_member(rig, 6, 50000, 150000);
    const int64_t end_ns = rig->now_ns + 6 * S; /* only the sixth is heard */
    while (rig->now_ns < end_ns) {
        hear_member(rig, 6, rig_counter(rig, rig->sender_position), RIG_TERM / 2, 0, 50000);
        rig_step(rig, 100 * MS);
        memnet_discard(rig->net);
    }
    check_member(rig, 6, 50000, 50000);
    rig_close(rig);
}

static void the_member_that_paces_a_group_is_named(void)
{
    rig_t *rig = rig_open(&(rig_options_t){
        .kind = RIG_MULTICAST, .advertise = 1, .flow_control = PS_FC_MAX, .window_bytes = 4096 });
    rig_connect(rig);
    hear_member(rig, GOLDEN_RECEIVER, 0, RIG_TERM / 2, 0, 100000);
    hear_member(rig, 7, 0, RIG_TERM / 2, 0, 200000);
    hear_member(rig, 8, 0, RIG_TERM / 2, 0, 150000);
    rig_step(rig, 0);
    for (int32_t i = 0; i < 20; i++) { /* ten leave at once, then the producers are at the limit */
        rig_fill(rig);
        rig_step(rig, 0);
    }
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_CONGESTION_WINDOW);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 7);
    rig_close(rig);
}

static void the_receivers_reason_is_named(void)
{
    rig_t *rig =
        rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .advertise = 1, .window_bytes = 4096 });
    rig_step(rig, 0);
    hear_penstock(rig, 0, 2816, PS_CAUSE_CONGESTION_WINDOW, 0);
    rig_step(rig, 0);
    for (int32_t i = 0; i < 5; i++) { /* two leave, the window is shut, then 4096 more */
        rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_CONGESTION_WINDOW);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), GOLDEN_RECEIVER);
    hear_penstock(rig, 0, 2816, PS_CAUSE_NONE, 0);
    rig_step(rig, MS);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_RECEIVER_WINDOW);
    rig_close(rig);
}

/* The limit is that of a receiver that left: who is still there is the one that can move it. */
static void who_left_holds_nothing(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .window_bytes = 4096 });
    rig_step(rig, 0);
    rig_sm(rig, 6, &rig->peer, 0, 1408, 0);
    rig_sm(rig, 7, &rig->peer, 0, 2816, 0);
    rig_step(rig, 0);
    for (int32_t i = 0; i < 5; i++) {
        rig_offer(rig, NULL, 1408 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_RECEIVER_WINDOW);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 7);
    rig_sm(rig, 7, &rig->peer, 0, 2816, PS_SM_EOS);
    rig_step(rig, MS);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_RECEIVER_WINDOW);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 6);
    rig_close(rig);
}

/* ---- implosion ------------------------------------------------------------------------------- */

/* NAKs for one loss that all n receivers of a group see: each draws its delay; the first NAK's
 * repair reaches all a round trip later; who drew less than that has asked as well. */
static double naks_per_loss(int32_t receivers, int64_t group_size, int64_t rtt_ns)
{
    enum { LOSSES = 400 };
    const ps_nak_policy_t policy = { .max_backoff_ns = 10 * MS,
                                     .group_size = group_size,
                                     .group = 1 };
    static int64_t drawn[1000];
    int64_t naks = 0;
    ps_random_t random;
    ps_random_seed(&random, 1);
    for (int32_t loss = 0; loss < LOSSES; loss++) {
        int64_t first_ns = INT64_MAX;
        for (int32_t i = 0; i < receivers; i++) {
            drawn[i] = ps_nak_first_ns(&policy, &random);
            first_ns = drawn[i] < first_ns ? drawn[i] : first_ns;
        }
        for (int32_t i = 0; i < receivers; i++) {
            naks += drawn[i] <= first_ns + rtt_ns;
        }
    }
    return (double)naks / LOSSES;
}

static void one_loss_in_a_group_is_requested_by_few(void)
{
    const int32_t receivers[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000 };
    CHECK_EQ((int)naks_per_loss(1, 10, MS), 1);
    for (int32_t i = 0; i < 10; i++) {
        const double got = naks_per_loss(receivers[i], 10, MS);
        const double sized = naks_per_loss(receivers[i], receivers[i], MS);
        printf("%4d receivers: %.1f NAKs a loss (group size 10), %.1f (group size as it is)\n",
               receivers[i], got, sized);
        CHECK(got <= 2.0 + receivers[i] * 0.025); /* 1 000 receivers: at most 27, not 1 000 */
        CHECK(sized <= 12.0);
    }
}

static int print_curve(void)
{
    printf("receivers,group_size_10,group_size_100,group_size_1000,none\n");
    for (int32_t n = 1; n <= 1000; n = n < 10 ? n + 1 : n * 5 / 4) {
        printf("%d,%.3f,%.3f,%.3f,%d\n", n, naks_per_loss(n, 10, MS), naks_per_loss(n, 100, MS),
               naks_per_loss(n, 1000, MS), n);
    }
    return 0;
}

#define TEST(name) (name(), printf("ok %s\n", #name))

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "implosion") == 0) {
        return print_curve();
    }
    TEST(every_action_has_its_turn);
    TEST(lists_on_the_wire);
    TEST(a_list_that_is_too_long_is_refused);
    TEST(a_list_is_repaired_in_one_call);
    TEST(one_action_towards_aeron);
    TEST(the_budget_bounds_a_storm);
    TEST(the_congestion_rate_paces);
    TEST(the_fastest_member_paces_a_group);
    TEST(the_member_that_paces_a_group_is_named);
    TEST(the_receivers_reason_is_named);
    TEST(who_left_holds_nothing);
    TEST(one_loss_in_a_group_is_requested_by_few);
    return 0;
}
