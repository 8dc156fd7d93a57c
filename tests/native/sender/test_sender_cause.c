/* SPDX-License-Identifier: Apache-2.0
 * The sender names what holds a stream where two rules meet, and when it was last consumed.
 */
#include "ps_driver_state.h"
#include "ps_publication.h"
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
    test_storage_is_named_before_a_rate();
    return 0;
}
