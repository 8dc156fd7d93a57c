/* SPDX-License-Identifier: Apache-2.0
 * The sender names what holds a stream where two rules meet, and when it was last consumed.
 */
#include "ps_account.h"
#include "ps_driver_state.h"
#include "ps_policy.h"
#include "ps_sender.h"
#include "sender_rig.h"

/* A status message that states more than the one before is consumption; data that leaves is not. */
static void test_consumption_is_an_advance_of_a_status_message(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    const _Atomic int64_t *consumed_ns = &rig->slot->last_consumed_ns;
    rig_connect(rig);
    CHECK_EQ(atomic_load(consumed_ns), 0); /* a first statement is no advance */
    rig_offer(rig, NULL, 992, PS_FLAG_UNFRAGMENTED);
    rig_offer(rig, NULL, 992, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 2048);
    CHECK_EQ(atomic_load(consumed_ns), 0);
    rig_step(rig, 1 * MS);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 1024, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    const int64_t advanced_ns = rig->now_ns;
    CHECK_EQ(atomic_load(consumed_ns), advanced_ns);
    rig_step(rig, 5 * MS);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 1024, RIG_TERM / 2, 0); /* restated */
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, RIG_TERM / 2, 0);    /* late */
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 1024, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(consumed_ns), advanced_ns);
    rig_close(rig);
}

/* While spies stand for receivers, the slowest holds what no other has passed either. */
static void test_a_spy_alone_holds_the_stream(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .ssc = 1 });
    const int32_t client = rig_add_client(rig, 505);
    rig_step(rig, 0);
    (void)rig_add_reader(rig, 0, client, 1);
    rig_step(rig, 0);
    rig_fill(rig);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SPY);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 505);
    rig_close(rig);
}

/* No valid frame lies at the sender's position: no turn of the scheduler would help. */
static void test_a_corrupt_stream_is_held_by_a_claim(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_fill(rig);
    atomic_store(&ps_frame_at(&rig->log, 0)->frame_length, PS_HEADER_BYTES - 1);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_BLOCKED_CLAIM);
    rig_close(rig);
}

/* The last destination was removed; its receiver has not timed out yet. */
static void test_a_stream_without_destinations_has_no_receiver(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MANUAL });
    CHECK_EQ(ps_send_endpoint_add_destination(rig->driver, rig->endpoint, 7, &rig->peer), PS_OK);
    rig_connect(rig);
    CHECK_EQ(ps_send_endpoint_remove_destination(rig->driver, rig->endpoint, 7), PS_OK);
    rig_step(rig, 0);
    rig_fill(rig);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NO_RECEIVER);
    rig_close(rig);
}

/* Where the account says that its culprit is. */
static ps_addr_t culprit_address(const rig_t *rig)
{
    uint64_t words[PS_HOLDER_WORDS];
    ps_holder_t holder;
    for (size_t i = 0; i < PS_HOLDER_WORDS; i++) {
        words[i] = atomic_load(&rig->slot->holder[i]);
    }
    memcpy(&holder, words, sizeof(holder));
    return holder.address;
}

static void expect_missing(rig_t *rig, int64_t receiver_id, uint16_t port)
{
    rig_fill(rig);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NO_RECEIVER);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), receiver_id);
    CHECK_EQ(culprit_address(rig).port, port);
}

/* One receiver refuses the stream after it read, another one before it joined. */
static void test_a_receiver_that_refuses_is_the_culprit(void)
{
    for (int joined = 0; joined < 2; joined++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
        uint8_t frame[256];
        const uint32_t length = golden("err", frame);
        rig_step(rig, 0);
        expect_missing(rig, 0, 0);
        if (joined) {
            rig_connect(rig);
        }
        rig_inject(rig, &rig->peer, frame, length);
        rig_step(rig, 0);
        expect_missing(rig, GOLDEN_RECEIVER, rig->peer.port);
        rig_connect(rig); /* it reads after all */
        CHECK_EQ(rig_cause(rig), PS_CAUSE_NONE);
        rig_step(rig, 11 * S);
        expect_missing(rig, GOLDEN_RECEIVER, rig->peer.port); /* and fell silent */
        rig_close(rig);
    }
}

/* A group waits for the member that left, or for one whose window stays closed. */
static void test_a_group_names_the_member_that_it_waits_for(void)
{
    for (int closed = 0; closed < 2; closed++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST,
                                                .flow_control = PS_FC_MIN,
                                                .group_min_size = 2,
                                                .fc_timeout_ns = 2 * S });
        ps_addr_t other = rig->peer;
        other.port++;
        rig_step(rig, 0);
        for (int i = 0; i < 40; i++) {
            rig_sm(rig, 1, &rig->peer, 0, 8192, 0);
            if (i == 0 || closed) {
                rig_sm(rig, 2, &other, 0, i == 0 ? 8192 : 0, 0);
            } else if (i == 1) {
                rig_sm(rig, 2, &other, 0, 8192, PS_SM_EOS);
            }
            rig_step(rig, 100 * MS);
        }
        CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
        expect_missing(rig, 2, other.port);
        rig_close(rig);
    }
}

/* A receiver without the tag is not the one that a group of tagged receivers waits for. */
static void test_a_tagged_group_waits_for_no_other_receiver(void)
{
    rig_t *rig = rig_open(&(rig_options_t){
        .kind = RIG_MULTICAST, .flow_control = PS_FC_TAGGED, .group_min_size = 1, .group_tag = 5 });
    rig_step(rig, 0);
    rig_sm(rig, 1, &rig->peer, 0, 8192, 0);
    rig_step(rig, 0);
    expect_missing(rig, 0, 0);
    rig_sm(rig, 1, &rig->peer, 0, 8192, PS_SM_EOS);
    rig_step(rig, 1 * MS);
    expect_missing(rig, 0, 0);
    rig_close(rig);
}

/* A receiver whose window is used up states its own reason. */
static void test_a_used_up_window_has_the_reason_of_its_receiver(void)
{
    static const int32_t cases[][2] = { { PS_CAUSE_NONE, PS_CAUSE_RECEIVER_WINDOW },
                                        { PS_CAUSE_SLOW_SUBSCRIBER, PS_CAUSE_RECEIVER_WINDOW },
                                        { PS_CAUSE_LOSS_REPAIR, PS_CAUSE_LOSS_REPAIR },
                                        { PS_CAUSE_CONGESTION_WINDOW,
                                          PS_CAUSE_CONGESTION_WINDOW } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
        const ps_trailer_t trailer = { .capabilities = PS_CAP_PENSTOCK,
                                       .ordinal = -1,
                                       .credit_limit = -1,
                                       .reason = (uint32_t)cases[i][0] };
        const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                             .stream_id = GOLDEN_STREAM,
                             .term_id = GOLDEN_TERM,
                             .window = 8192,
                             .receiver_id = GOLDEN_RECEIVER };
        uint8_t out[PS_CONTROL_MAX];
        rig_step(rig, 0);
        rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
        rig_step(rig, 0);
        for (int times = 0; times < 2; times++) { /* the limit follows the sender */
            rig_fill(rig);
            rig_step(rig, 0);
        }
        CHECK_EQ(rig_counter(rig, rig->sender_position), 8192);
        CHECK_EQ(rig_cause(rig), cases[i][1]);
        CHECK_EQ(atomic_load(&rig->slot->cause_culprit), GOLDEN_RECEIVER);
        rig_close(rig);
    }
}

/* The receiver's window is open, and the publishers are at the limit all the same. */
static void test_a_stream_that_its_receiver_does_not_hold_has_a_cause(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_publication_t *pub = rig->pub;
    rig_connect(rig);
    rig_fill(rig);
    memnet_room(rig->net, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SOCKET);
    pub->short_send = false; /* the stream has had no other turn */
    ps_publication_account(pub, rig->now_ns);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SCHEDULER);
    pub->withheld = true;
    ps_publication_account(pub, rig->now_ns);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_GOVERNOR);
    pub->cleaning_behind = true;
    ps_publication_account(pub, rig->now_ns);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_TERM_ROTATION);
    memnet_room(rig->net, -1);
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NONE);
    rig_close(rig);
}

/* While a stream is paused, a thread that has both agents receives before it sends. */
static void test_a_paused_stream_that_is_removed_pauses_no_sender(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    const ps_sender_t *sender = rig->driver->sender;
    rig_connect(rig);
    for (int i = 0; i < 4; i++) { /* one cycle to the depth, one more until it is paused */
        rig_fill(rig);
        rig_dirty(rig); /* as a refused publisher */
        rig_step(rig, 1 * MS);
    }
    CHECK_EQ(atomic_load(&rig->slot->watermark_state), PS_WATERMARK_PAUSED);
    CHECK(ps_sender_is_paused(sender));
    CHECK_EQ(ps_publication_remove(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 1 * MS);
    CHECK(!ps_sender_is_paused(sender));
    ps_publication_destroy(rig->driver, rig->pub);
    rig_close(rig);
}

/* Both bind: storage comes before rates in the order of refusals. */
static void test_storage_is_named_before_a_rate(void)
{
    rig_t *rig = rig_open(&(rig_options_t){
        .kind = RIG_UNICAST, .reserved_position = RIG_TERM, .rate_messages_per_s = 1000 });
    rig_connect(rig);
    for (int i = 0; i < 200 && rig_cause(rig) != PS_CAUSE_STORAGE; i++) {
        rig_fill(rig);
        atomic_store(&rig->slot->spend, (uint64_t)atomic_load(&rig->slot->ordinal_limit));
        rig_step(rig, 100 * MS);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_counter(rig, rig->sender_position),
               RIG_TERM / 2, 0);
        rig_step(rig, 0);
    }
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_STORAGE);
    rig_close(rig);
}

int main(void)
{
    test_consumption_is_an_advance_of_a_status_message();
    test_a_spy_alone_holds_the_stream();
    test_a_corrupt_stream_is_held_by_a_claim();
    test_a_stream_without_destinations_has_no_receiver();
    test_a_receiver_that_refuses_is_the_culprit();
    test_a_group_names_the_member_that_it_waits_for();
    test_a_tagged_group_waits_for_no_other_receiver();
    test_a_used_up_window_has_the_reason_of_its_receiver();
    test_a_stream_that_its_receiver_does_not_hold_has_a_cause();
    test_a_paused_stream_that_is_removed_pauses_no_sender();
    test_storage_is_named_before_a_rate();
    return 0;
}
