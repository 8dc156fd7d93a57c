/* SPDX-License-Identifier: Apache-2.0 */
/* The sender of a dynamic multi-destination channel: who joins, and who may not. */
#include "golden.h"
#include "ps_destinations.h"
#include "sender_rig.h"

static void test_dynamic_destinations(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_DYNAMIC });
    const ps_addr_t one = memnet_addr(11, 1111), two = memnet_addr(12, 2222);
    uint8_t frame[256];
    ps_event_t event;
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_inject(rig, &one, frame, golden("sm_join", frame));
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_counter(rig, rig->destinations), 0); /* a join names nothing: answered alone */
    CHECK_EQ(rig_take(rig)->to.port, 1111);
    CHECK(rig->got.data[6] == PS_TYPE_SETUP && rig->got.data[5] == PS_SETUP_GROUP);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_sm(rig, GOLDEN_RECEIVER, &one, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_counter(rig, rig->destinations), 1);
    CHECK(rig_event(rig, PS_EV_DESTINATION, &event) && event.destination.change == 1 &&
          event.destination.source.port == 1111);
    rig_sm(rig, 2, &two, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    memnet_discard(rig->net);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 2);
    const int32_t first_port = rig_take(rig)->to.port;
    CHECK_EQ(first_port + rig_take(rig)->to.port, 3333); /* both, in either order */
    for (int i = 0; i < 50; i++) {                       /* only one goes on */
        rig_step(rig, 100 * MS);
        rig_sm(rig, 2, &two, 0, 8192, 0);
    }
    rig_step(rig, 100 * MS);
    CHECK_EQ(rig_counter(rig, rig->destinations), 1);
    CHECK(rig_event(rig, PS_EV_DESTINATION, &event) && event.destination.change == 1);
    CHECK(rig_event(rig, PS_EV_DESTINATION, &event) && event.destination.change == 0 &&
          event.destination.source.port == 1111);
    rig_close(rig);
}

static bool is_setup(const memnet_dgram_t *got)
{
    return got->data[6] == PS_TYPE_SETUP;
}

/* A join whose SETUP is lost is answered again while its place lasts, and then no more. */
static void test_a_join_is_answered_for_two_seconds(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_DYNAMIC });
    const ps_addr_t one = memnet_addr(11, 1111);
    uint8_t frame[256];
    int32_t setups = 0;
    rig_inject(rig, &one, frame, golden("sm_join", frame));
    for (int32_t i = 0; i < 400; i++) {
        rig_step(rig, 10 * MS);
        while (memnet_pending(rig->net) > 0) {
            setups += is_setup(rig_take(rig));
        }
    }
    CHECK(setups >= 19 && setups <= 21);
    CHECK_EQ(rig_counter(rig, rig->destinations), 0);
    rig_close(rig);
}

/* 10 000 joins a second from one address, which is the receiver's too, or from many: it is answered
 * in the poll that brought its question, and joins with its first status message.  What the stream
 * sends goes to it alone. */
static void test_a_receiver_joins_beside_forged_joins(void)
{
    for (int32_t many = 0; many < 2; many++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_DYNAMIC });
        const ps_addr_t honest = memnet_addr(11, 1111);
        uint8_t frame[256];
        const uint32_t length = golden("sm_join", frame);
        int32_t forged = 0;
        bool answered = false;
        for (int32_t ms = 0; ms < 1000 && !answered; ms++) {
            for (int32_t i = 0; i < 10; i++, forged++) {
                ps_addr_t from = memnet_addr(11, (uint16_t)(2000 + forged % 60000));
                from.ip[2] = many ? (uint8_t)(forged % 250) : 0;
                rig_inject(rig, &from, frame, length);
                if (ms == 500 && i == 3) {
                    rig_inject(rig, &honest, frame, length);
                }
            }
            rig_step(rig, 1 * MS);
            while (memnet_pending(rig->net) > 0) {
                const memnet_dgram_t *got = rig_take(rig);
                answered = answered || (is_setup(got) && got->to.port == 1111);
            }
            CHECK_EQ(answered, ms >= 500);
        }
        CHECK(answered);
        CHECK_EQ(rig_counter(rig, rig->destinations), 0);
        rig_sm(rig, GOLDEN_RECEIVER, &honest, 0, 8192, 0);
        rig_step(rig, 1 * MS);
        CHECK_EQ(rig_counter(rig, rig->destinations), 1);
        memnet_discard(rig->net);
        rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, 0);
        while (memnet_pending(rig->net) > 0) {
            const memnet_dgram_t *got = rig_take(rig);
            CHECK(is_setup(got) || got->to.port == 1111);
        }
        rig_close(rig);
    }
}

/* Receivers beyond the places are counted and reported once a second; those that are there stay. */
static void test_a_full_channel_is_reported(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_DYNAMIC });
    ps_event_t event;
    int32_t notified = 0;
    for (int32_t n = 0; n < PS_DESTINATIONS_DYNAMIC_MAX + 100; n++) {
        ps_addr_t from = memnet_addr(11, (uint16_t)(1000 + n));
        rig_sm(rig, 2 + n, &from, 0, 8192, 0);
        if (n % 64 == 63) {
            rig_step(rig, 1 * MS);
            memnet_discard(rig->net);
        }
        while (ps_driver_poll_event(rig->driver, &event)) {
            notified += event.type == PS_EV_DESTINATION && event.destination.change == -1;
        }
    }
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_counter(rig, rig->destinations), PS_DESTINATIONS_DYNAMIC_MAX);
    CHECK_EQ(rig_counter(rig, rig->refused), 100);
    CHECK_EQ(notified, 1);
    rig_close(rig);
}

/* A receiver that was started again has another id at the same address: one socket, one copy. */
static void test_a_new_receiver_at_an_address_is_the_same_destination(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_DYNAMIC });
    const ps_addr_t one = memnet_addr(11, 1111);
    rig_step(rig, 0);
    rig_sm(rig, 2, &one, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    rig_sm(rig, 3, &one, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_counter(rig, rig->destinations), 1);
    memnet_discard(rig->net);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 1);
    rig_close(rig);
}

int main(void)
{
    test_dynamic_destinations();
    test_a_join_is_answered_for_two_seconds();
    test_a_receiver_joins_beside_forged_joins();
    test_a_full_channel_is_reported();
    test_a_new_receiver_at_an_address_is_the_same_destination();
    return 0;
}
