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

/* Data that was deferred for longer than it would wait for a whole datagram leaves at once when the
 * deferral ends: after a second, or when the pressure falls. */
static void test_deferred_data_does_not_wait_again_for_a_whole_datagram(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1);
    connect_all(many, TERM / 2);
    set_pressure(many, 90);    /* 17.5 ms */
    publish(many, low, FRAME); /* its turn of the second */
    run(many, 1 * MS);
    CHECK_EQ(low->sender_position, FRAME);
    const int64_t sent_ns = low->data_sent_ns;
    half_frame(many, low);
    run(many, 990 * MS);
    CHECK_EQ(low->sender_position, FRAME);
    run(many, 11 * MS);
    CHECK_EQ(low->sender_position, FRAME / 2 * 3);
    CHECK(low->data_sent_ns - sent_ns < 1002 * MS);
    half_frame(many, low);
    run(many, 50 * MS);
    CHECK_EQ(low->sender_position, FRAME / 2 * 3);
    sender(many)->governor.forced = 590000; /* 9.75 ms */
    while (sender(many)->governor.defers) {
        run(many, 100 * US);
    }
    run(many, 200 * US);
    CHECK_EQ(low->sender_position, FRAME * 2);
    half_frame(many, low); /* data that was not deferred waits as usual */
    run(many, 8 * MS);
    CHECK_EQ(low->sender_position, FRAME * 2);
    run(many, 3 * MS);
    CHECK_EQ(low->sender_position, FRAME / 2 * 5);
    close_many(many);
}

/* A whole datagram ends the wait for one, but not a deferral: the sender looks at a hot stream in
 * each cycle, and gives it no turn. */
static void test_a_deferred_stream_has_no_turn_for_a_whole_datagram(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1);
    connect_all(many, TERM / 2);
    publish(many, low, FRAME);
    run(many, 1 * MS);
    CHECK_EQ(low->sender_position, FRAME);
    sender(many)->governor.forced = 900000;
    for (int32_t i = 0; !sender(many)->governor.defers; i++) {
        CHECK(i < 10000);
        if (low->sender_position >= low->producer_position) {
            half_frame(many, low); /* it waits for a whole datagram when the deferral begins */
        }
        run(many, 1 * MS);
    }
    const int64_t before = low->sender_position;
    CHECK(low->withheld && low->partial_since_ns >= 0);
    run(many, 1 * MS);
    publish(many, low, before + 2 * FRAME);
    run(many, 1 * MS);
    CHECK(low->withheld && low->deferred);
    const int64_t deferrals = atomic_load(&low->slot->deferrals);
    sender(many)->hot[sender(many)->hot_count++] = low;
    low->hot = true;
    low->hot_ns = many->rig->now_ns;
    for (int32_t i = 0; i < 10; i++) {
        cycle(many);
    }
    CHECK_EQ(atomic_load(&low->slot->deferrals), deferrals);
    CHECK_EQ(low->sender_position, before);
    ps_sender_leave_hot(sender(many), low);
    close_many(many);
}

/* The band of relayed streams has the lowest share already. */
static void test_a_relayed_stream_is_not_deferred(void)
{
    many_t *many = open_many();
    ps_publication_t *relay = add_stream(many, PS_PRIORITY_BACKGROUND);
    ps_publication_t *low = add_stream(many, -1);
    connect_all(many, TERM / 2);
    set_pressure(many, 90);
    publish(many, low, 10 * FRAME);
    run(many, 1 * MS);
    publish(many, low, 20 * FRAME);
    for (int32_t i = 1; i <= 3; i++) {
        publish(many, relay, i * 10 * FRAME);
        run(many, 20 * MS);
        CHECK_EQ(relay->sender_position, i * 10 * FRAME);
        CHECK_EQ(low->sender_position, 10 * FRAME);
    }
    CHECK_EQ(atomic_load(&relay->slot->deferrals), 0);
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
    CHECK_EQ(sender(many)->bands.lowered, 1); /* retransmits get half of their share */
    publish(many, low, 10 * FRAME);           /* a turn: it has not sent for a second */
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
    CHECK_EQ(sender(many)->bands.lowered, 0);
    CHECK(before < 90 * FRAME);
    CHECK_EQ(low->sender_position, 90 * FRAME);
    close_many(many);
}

/* Fills the log and refuses an offer, as a publisher does. */
static void press(const many_t *many, ps_publication_t *pub)
{
    const int64_t limit = pub->publisher_limit;
    publish(many, pub, limit);
    atomic_store(&pub->slot->want_room, 1);
    run(many, 20 * MS);
}

static int32_t cause_of(const ps_publication_t *pub)
{
    return atomic_load(&pub->slot->cause);
}

static void test_the_governor_is_the_cause_only_while_it_holds_the_stream(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1);
    ps_publication_t *shut = add_stream(many, -1);
    connect_all(many, TERM / 2);
    publish(many, low, FRAME);
    publish(many, shut, FRAME);
    run(many, 5 * MS);
    open_window(many, shut, FRAME, 0);
    set_pressure(many, 90);
    publish(many, low, low->publisher_limit); /* its turn of the second */
    run(many, 1 * MS);
    CHECK_EQ(cause_of(low), PS_CAUSE_NONE);
    press(many, low);
    CHECK_EQ(cause_of(low), PS_CAUSE_GOVERNOR);
    CHECK_EQ(cause_of(shut), PS_CAUSE_NONE); /* it has room */
    sender(many)->governor.forced = 590000;
    run(many, 200 * MS);
    CHECK(cause_of(low) != PS_CAUSE_GOVERNOR);
    const int64_t held_ns = atomic_load(&low->slot->blocked_ns[PS_CAUSE_GOVERNOR]);
    CHECK(held_ns > 10 * MS && held_ns < 300 * MS);
    CHECK_EQ(atomic_load(&shut->slot->blocked_ns[PS_CAUSE_GOVERNOR]), 0);
    close_many(many);
}

/* A stream that waited for its turn waits for a whole datagram only for the rest of the time. */
static void test_the_wait_for_a_turn_counts(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = add_stream(many, 0);
    connect_all(many, TERM / 2);
    set_pressure(many, 60); /* 10 ms */
    half_frame(many, pub);
    ps_sender_ready(sender(many), pub);
    pub->turn.since_ns -= 6 * MS;
    run(many, 1 * MS);
    CHECK_EQ(pub->sender_position, 0);
    run(many, 5 * MS);
    CHECK_EQ(pub->sender_position, FRAME / 2);
    close_many(many);
}

/* The governor does not hold a stream that could not send anyway. */
static void test_a_closed_window_is_the_cause_of_a_deferred_stream(void)
{
    many_t *many = open_many();
    ps_publication_t *low = add_stream(many, -1);
    connect_all(many, 2 * FRAME);
    set_pressure(many, 90);
    publish(many, low, 2 * FRAME); /* its turn of the second */
    run(many, 1 * MS);
    CHECK_EQ(low->sender_position, 2 * FRAME);
    press(many, low);
    CHECK_EQ(cause_of(low), PS_CAUSE_RECEIVER_WINDOW);
    CHECK(!low->withheld);
    close_many(many);
}

/* Each stream of a sender has data; the sample shows signals and waiting streams. */
static void test_the_sample_is_shown(void)
{
    many_t *many = open_many();
    ps_publication_t *streams[4];
    for (int32_t i = 0; i < 4; i++) {
        streams[i] = add_stream(many, i < 3 ? 0 : -1);
    }
    connect_all(many, TERM / 2);
    ps_scheduler_view_t view;
    ps_slot_read_scheduler(many->rig->shared, many->rig->now_ns, &view);
    CHECK(view.sampled_ns == 0 && view.pressure == 0 && view.waits == 0);
    set_pressure(many, 90);
    for (int32_t i = 0; i < 4; i++) {
        publish(many, streams[i], 10 * FRAME);
    }
    run(many, 150 * MS);
    ps_slot_read_scheduler(many->rig->shared, many->rig->now_ns, &view);
    CHECK_EQ(view.pressure, 900000);
    CHECK(view.defers == 1);
    CHECK_EQ(view.coalesce_ns, 17500000);       /* (0.9 - 0.2) * 25 ms */
    CHECK_EQ(view.status_interval_ns, 8416666); /* 0.5 ms + (0.9 - 0.4) / 0.6 * 9.5 ms */
    CHECK_EQ(view.retry_after_ns, 0);
    CHECK(view.waits > 0 && view.waited_ns >= 0);
    publish(many, streams[3], 20 * FRAME);
    run(many, 5 * MS);
    ps_slot_read_scheduler(many->rig->shared, many->rig->now_ns, &view);
    CHECK_EQ(view.deferrals, atomic_load(&streams[3]->slot->deferrals));
    CHECK(view.deferrals > 0);
    CHECK(atomic_load(&streams[1]->slot->waits) > 0);
    const int64_t later_ns = view.sampled_ns + PS_PRESSURE_STALE_NS;
    ps_slot_read_scheduler(many->rig->shared, later_ns - 1, &view);
    CHECK_EQ(view.pressure, 900000);
    ps_slot_read_scheduler(many->rig->shared, later_ns, &view);
    CHECK(view.pressure == 0 && view.defers == 0 && view.coalesce_ns == 0 && view.waits > 0);
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

/* Other programs delay each cycle by 2 ms, so that all waiting streams seem late: the sender takes
 * no sample for up to a second interval. */
static void test_a_sample_waits_for_a_cycle_that_nobody_delayed(void)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < 10; i++) {
        (void)add_stream(many, 0);
    }
    connect_all(many, TERM / 2);
    set_pressure(many, 10);
    const ps_driver_slot_t *slot = many->rig->shared->driver;
    const int64_t taken_ns = atomic_load(&slot->pressure_ns);
    for (int32_t i = 0; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2 - FRAME);
    }
    cycle(many);
    while (many->rig->now_ns < taken_ns + 150 * MS) {
        CHECK(sender(many)->bands.waiting > 0);
        many->rig->now_ns += 2 * MS;
        cycle(many);
        CHECK_EQ(atomic_load(&slot->pressure_ns), taken_ns);
    }
    run(many, 2 * MS);
    CHECK(atomic_load(&slot->pressure_ns) > taken_ns);
    close_many(many);
}

/* A delay inside a cycle makes no slow cycle: the waiting streams have their turns in the next
 * round, and the sender takes the sample after it. */
static void test_a_sample_waits_for_the_round_after_a_delay(void)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < 10; i++) {
        (void)add_stream(many, 0);
    }
    connect_all(many, TERM / 2);
    set_pressure(many, 10);
    const ps_driver_slot_t *slot = many->rig->shared->driver;
    const int64_t taken_ns = atomic_load(&slot->pressure_ns);
    many->rig->now_ns = taken_ns + 99 * MS;
    for (int32_t i = 0; i < many->count; i++) {
        publish(many, many->pubs[i], TERM / 2 - FRAME);
    }
    cycle(many);
    many->rig->now_ns += 2 * MS;
    ps_sender_end_cycle(sender(many), many->rig->now_ns);
    cycle(many);
    const int64_t delayed_ns = many->rig->now_ns;
    while (many->rig->now_ns < delayed_ns + sender(many)->bands.round_ns) {
        CHECK(sender(many)->bands.waiting > 0);
        CHECK_EQ(atomic_load(&slot->pressure_ns), taken_ns);
        cycle(many);
    }
    run(many, 2 * MS);
    CHECK(atomic_load(&slot->pressure_ns) > taken_ns);
    close_many(many);
}

/* The sender is busy while a stream is ready. Idle time counts until the sample, also if the sender
 * is still idle then. */
static void test_the_busy_share_leaves_out_idle_time(void)
{
    static const struct {
        int64_t now_ns, idle_since_ns, idle_ns;
        uint32_t busy;
    } rows[] = {
        { 2000 * S, -1, 0, 1000000 },
        { 2000 * S, -1, 40 * MS, 600000 },
        { 2000 * S, 2000 * S - 25 * MS, 0, 750000 },
        { 2000 * S, 2000 * S - 25 * MS, 10 * MS, 650000 },
        { 2000 * S, 2000 * S - 100 * MS, 0, 0 },
        { 100 * MS, 0, 0, 0 }, /* 0 is a time */
    };
    many_t *many = open_many();
    ps_sender_t *of = sender(many);
    of->governor.forced = 0; /* or it takes no sample */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        of->now_ns = rows[i].now_ns;
        of->governor.sampled_ns = rows[i].now_ns - 100 * MS;
        of->delayed_ns = INT64_MIN / 2;
        of->idle_since_ns = rows[i].idle_since_ns;
        of->idle_ns = rows[i].idle_ns;
        ps_sender_govern(of);
        CHECK_EQ(atomic_load(&many->rig->shared->driver->pressure_ns), rows[i].now_ns);
        CHECK_EQ(atomic_load(&many->rig->shared->driver->busy_ppm), rows[i].busy);
        CHECK_EQ(of->idle_ns, 0);
        CHECK_EQ(of->idle_since_ns, rows[i].idle_since_ns < 0 ? -1 : rows[i].now_ns);
    }
    close_many(many);
}

/* Lets the governor take a sample, or find that it is too early, without a cycle. */
static void sample_after(const many_t *many, int64_t after_ns)
{
    many->rig->now_ns = sender(many)->governor.sampled_ns + after_ns;
    sender(many)->delayed_ns = INT64_MIN / 2;
    sender(many)->now_ns = many->rig->now_ns;
    ps_sender_govern(sender(many));
}

static int64_t processor_ns;

static int64_t read_processor(void)
{
    return processor_ns;
}

/* The thread had the processor for half of the time, so half of each wait counts. */
static void test_the_sample_counts_waits_while_the_thread_ran(void)
{
    many_t *many = open_many();
    const ps_driver_slot_t *slot = many->rig->shared->driver;
    sender(many)->governor.forced = 0;
    many->rig->driver->context.thread_ns = read_processor;
    sender(many)->idle_since_ns = -1;
    processor_ns = 700 * S;
    sample_after(many, 1000 * MS);
    const int64_t waits = atomic_load(&slot->waits), waited_ns = atomic_load(&slot->waited_ns);
    for (int32_t i = 0; i < 64; i++) {
        ps_governor_waited(&sender(many)->governor, 8 * MS);
    }
    processor_ns += 50 * MS;
    sample_after(many, 100 * MS);
    CHECK_EQ(atomic_load(&slot->latency_ppm), 400000); /* half of 4 ms, of 5 ms */
    CHECK_EQ(atomic_load(&slot->waits) - waits, 64);
    CHECK_EQ(atomic_load(&slot->waited_ns) - waited_ns, 64 * 8 * MS);
    close_many(many);
}

/* While there is pressure, the sender takes the next sample on time, whether it has work or not. */
static void test_samples_continue_until_the_pressure_is_over(void)
{
    static const int32_t forced[] = { 300000, 0 };
    many_t *many = open_many();
    for (int32_t i = 0; i < 2; i++) {
        sender(many)->governor.forced = forced[i];
        sender(many)->min_due_ns = INT64_MAX;
        sample_after(many, 600 * MS);
        const int64_t next_ns = i == 0 ? sender(many)->now_ns + 100 * MS : INT64_MAX;
        CHECK_EQ(sender(many)->min_due_ns, next_ns);
        sender(many)->min_due_ns = INT64_MAX;
        sample_after(many, 50 * MS); /* too early */
        CHECK_EQ(sender(many)->min_due_ns, next_ns);
    }
    sender(many)->scan_min_ns = INT64_MAX;
    close_many(many);
}

/* A stream that waits alone is in no list, and counts in its band. */
static void test_the_sample_counts_the_waiting_streams_of_each_band(void)
{
    static const int32_t priorities[] = { 900, 900, -1 };
    many_t *many = open_many();
    const ps_driver_slot_t *slot = many->rig->shared->driver;
    for (int32_t i = 0; i < 3; i++) {
        (void)add_stream(many, priorities[i]);
    }
    connect_all(many, TERM / 2);
    const int64_t round_ns = sender(many)->bands.round_ns;
    for (int32_t ready = 0; ready <= 3; ready++) { /* two or more: all wait for 100 ms */
        set_pressure(many, 10);
        for (int32_t i = 0; i < ready; i++) {
            ps_sender_ready(sender(many), many->pubs[i]);
        }
        CHECK_EQ(sender(many)->bands.waiting, ready);
        sample_after(many, 100 * MS);
        for (int32_t list = 0; list < PS_BAND_LISTS; list++) {
            const int32_t high = ready < 2 ? ready : 2;
            CHECK_EQ(atomic_load(&slot->ready[list]), list == PS_BAND_B4   ? high
                                                      : list == PS_BAND_B0 ? ready - high
                                                                           : 0);
        }
        CHECK_EQ(atomic_load(&slot->depth_ppm), ready < 2 ? 0 : ready * 31250);
    }
    sample_after(many, 100 * MS);
    for (int32_t i = 0; i < 3; i++) { /* for one round, which is not late */
        many->pubs[i]->turn.since_ns = sender(many)->now_ns + 100 * MS - round_ns;
    }
    sample_after(many, 100 * MS);
    CHECK_EQ(atomic_load(&slot->depth_ppm), 0);
    close_many(many);
}

static void test_the_sample_shows_the_time_to_wait(void)
{
    many_t *many = open_many();
    ps_scheduler_view_t view;
    set_pressure(many, 98);
    ps_slot_read_scheduler(many->rig->shared, many->rig->now_ns, &view);
    CHECK_EQ(view.retry_after_ns, sender(many)->governor.retry_after_ns);
    CHECK(view.retry_after_ns >= 10 * MS);
    close_many(many);
}

/* A delay that is shorter than a tick of the timers ends on time. */
static void test_a_short_delay_does_not_wait_for_the_tick(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = add_stream(many, 0);
    connect_all(many, TERM / 2);
    set_pressure(many, 30);
    sender(many)->governor.coalesce_ns = 100 * US;
    ps_sender_due(sender(many), many->rig->now_ns);
    sender(many)->urgent = true;
    cycle(many); /* a pass of the timers, so that the next one is a tick away */
    CHECK(!sender(many)->urgent);
    half_frame(many, pub);
    cycle(many);
    CHECK(pub->withheld);
    const int64_t due_ns = pub->withheld_until_ns;
    CHECK_EQ(due_ns, many->rig->now_ns + 100 * US);
    CHECK(sender(many)->scan_started_ns + PS_TICK_NS > due_ns);
    CHECK_EQ(ps_sender_next_deadline_ns(sender(many), many->rig->now_ns), due_ns);
    many->rig->now_ns = due_ns - 5 * US;
    cycle(many);
    CHECK_EQ(pub->sender_position, FRAME / 2);
    close_many(many);
}

int main(void)
{
    test_the_busy_share_leaves_out_idle_time();
    test_the_sample_counts_the_waiting_streams_of_each_band();
    test_the_sample_counts_waits_while_the_thread_ran();
    test_samples_continue_until_the_pressure_is_over();
    test_the_sample_shows_the_time_to_wait();
    test_a_short_delay_does_not_wait_for_the_tick();
    test_a_partial_datagram_waits_as_long_as_pressure_says();
    test_low_priorities_are_deferred_and_never_starve();
    test_deferred_data_does_not_wait_again_for_a_whole_datagram();
    test_a_deferred_stream_has_no_turn_for_a_whole_datagram();
    test_a_relayed_stream_is_not_deferred();
    test_the_end_of_a_stream_is_never_deferred();
    test_a_sample_waits_for_a_cycle_that_nobody_delayed();
    test_a_sample_waits_for_the_round_after_a_delay();
    test_the_sample_is_shown();
    test_the_wait_for_a_turn_counts();
    test_a_closed_window_is_the_cause_of_a_deferred_stream();
    test_the_governor_is_the_cause_only_while_it_holds_the_stream();
    return 0;
}
