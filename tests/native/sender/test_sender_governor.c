/* SPDX-License-Identifier: Apache-2.0
 * Under pressure the sender withholds the data of some streams, and never that of others. Virtual
 * time; the test sets the pressure.
 */
#include "many.h"

/* Runs for a time in steps of 100 us. */
static void run(const many_t *many, int64_t for_ns)
{
    for (int64_t done = 0; done < for_ns; done += 100 * US) {
        many->rig->now_ns += 95 * US;
        cycle(many);
    }
}

static void set_pressure(const many_t *many, int32_t percent)
{
    sender(many)->governor.forced = percent * 10000;
    sender(many)->urgent = true;
    ps_sender_due(sender(many), many->rig->now_ns);
    run(many, 1100 * MS); /* longer than a step must last */
    CHECK_EQ(atomic_load(&many->rig->shared->driver->pressure_ppm), percent * 10000);
}

static void half_frame(const many_t *many, ps_publication_t *pub)
{
    write_frame(pub, FRAME / 2);
    mark(many, pub);
}

static void test_a_partial_datagram_waits_as_long_as_pressure_says(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = add_stream(many, 0);
    ps_publication_t *top = add_stream(many, 1000);
    ps_publication_t *exempt = add_stream(many, 0);
    exempt->params.never_throttle = 1;
    connect_all(many, TERM / 2);
    set_pressure(many, 60); /* 10 ms */
    half_frame(many, pub);
    half_frame(many, top);
    half_frame(many, exempt);
    run(many, 1 * MS);
    CHECK_EQ(top->sender_position, FRAME / 2);
    CHECK_EQ(exempt->sender_position, FRAME / 2);
    CHECK_EQ(pub->sender_position, 0);
    CHECK(pub->withheld && !pub->turn.queued);
    run(many, 8 * MS);
    CHECK_EQ(pub->sender_position, 0);
    run(many, 3 * MS);
    CHECK_EQ(pub->sender_position, FRAME / 2);
    CHECK(!pub->withheld);
    half_frame(many, pub); /* a whole datagram does not wait */
    half_frame(many, pub);
    run(many, 1 * MS);
    CHECK_EQ(pub->sender_position, FRAME / 2 * 3);
    set_pressure(many, 20);
    half_frame(many, pub);
    run(many, 1 * MS);
    CHECK_EQ(pub->sender_position, FRAME * 2);
    close_many(many);
}

static void test_low_priorities_are_deferred_and_never_starve(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1);
    ps_publication_t *zero = add_stream(many, 0);
    connect_all(many, TERM / 2);
    set_pressure(many, 90);
    CHECK(sender(many)->governor.defers);
    publish(many, low, 10 * FRAME); /* a turn: it has not sent for a second */
    run(many, 1 * MS);
    publish(many, zero, 10 * FRAME);
    run(many, 4 * MS);
    CHECK_EQ(zero->sender_position, 10 * FRAME);
    CHECK_EQ(low->sender_position, 10 * FRAME);
    const int64_t heartbeat_ns = low->heartbeat_sent_ns;
    for (int32_t second = 1; second <= 3; second++) {
        publish(many, low, (second + 1) * 10 * FRAME);
        run(many, 900 * MS);
        CHECK_EQ(low->sender_position, second * 10 * FRAME);
        CHECK(low->withheld);
        run(many, 105 * MS);
        CHECK_EQ(low->sender_position, (second + 1) * 10 * FRAME);
    }
    CHECK(low->heartbeat_sent_ns > heartbeat_ns);
    CHECK_EQ(atomic_load(&low->slot->deferrals), 3);
    CHECK_EQ(atomic_load(&zero->slot->deferrals), 0);
    publish(many, low, 60 * FRAME);
    run(many, 5 * MS);
    CHECK_EQ(low->sender_position, 40 * FRAME);
    set_pressure(many, 70); /* until below 60 */
    CHECK(sender(many)->governor.defers);
    const int64_t before = low->sender_position;
    publish(many, low, 90 * FRAME);
    sender(many)->governor.forced = 590000;
    run(many, 300 * MS);
    CHECK(!sender(many)->governor.defers);
    CHECK(before < 90 * FRAME);
    CHECK_EQ(low->sender_position, 90 * FRAME);
    close_many(many);
}

/* A publication that closes sends its rest at once. */
static void test_the_end_of_a_stream_is_never_deferred(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1000);
    connect_all(many, TERM / 2);
    set_pressure(many, 100);
    publish(many, low, FRAME);
    run(many, 5 * MS);
    publish(many, low, 20 * FRAME);
    run(many, 5 * MS);
    CHECK_EQ(low->sender_position, FRAME);
    ps_publication_start_drain(low, many->rig->now_ns);
    run(many, 5 * MS);
    CHECK_EQ(low->sender_position, 20 * FRAME);
    close_many(many);
}

int main(void)
{
    test_a_partial_datagram_waits_as_long_as_pressure_says();
    test_low_priorities_are_deferred_and_never_starve();
    test_the_end_of_a_stream_is_never_deferred();
    return 0;
}
