/* SPDX-License-Identifier: Apache-2.0
 * test_governor.c: pressure from its three signals, and the ladder, in virtual time.
 */
#include "ps_governor.h"

#include "check.h"

#define MS INT64_C(1000000)

typedef struct feed {
    int64_t wait_ns; /* of each of `waits` turns in a sample */
    int32_t waits;
    int32_t late;
    int32_t busy_percent;
    int32_t ran_percent; /* of the busy time; 0: not measured */
} feed_t;

static int64_t now_ns;

static void step(ps_governor_t *governor, const feed_t *feed, int32_t samples)
{
    for (int32_t i = 0; i < samples; i++) {
        for (int32_t wait = 0; wait < feed->waits; wait++) {
            ps_governor_waited(governor, feed->wait_ns);
        }
        now_ns += PS_GOVERNOR_SAMPLE_NS;
        const ps_governor_sample_t sample = {
            .now_ns = now_ns,
            .idle_ns = PS_GOVERNOR_SAMPLE_NS / 100 * (100 - feed->busy_percent),
            .ran_ns = feed->ran_percent == 0
                          ? -1
                          : PS_GOVERNOR_SAMPLE_NS / 10000 * feed->busy_percent * feed->ran_percent,
            .late_streams = feed->late,
            .workers = 1,
        };
        (void)ps_governor_step(governor, &sample);
    }
}

static ps_governor_t begin(void)
{
    ps_governor_t governor;
    now_ns = 1000 * MS;
    ps_governor_init(&governor);
    step(&governor, &(feed_t){ 0 }, 1);
    CHECK_EQ(governor.pressure, 0);
    return governor;
}

static void test_busy_alone_is_not_pressure(void)
{
    ps_governor_t governor = begin();
    step(&governor, &(feed_t){ .busy_percent = 100 }, 50);
    CHECK_EQ(governor.busy, PS_GOVERNOR_FULL);
    CHECK_EQ(governor.pressure, 150000);
    step(&governor, &(feed_t){ .busy_percent = 100, .wait_ns = MS / 5, .waits = 100 }, 50);
    CHECK(governor.pressure > 180000 && governor.pressure < PS_GOVERNOR_COALESCE);
    CHECK(!governor.holds && governor.status_interval_ns == 0 && governor.retry_after_ns == 0);
}

/* Ten streams wait 2 ms for a turn, of which other programs take three quarters. */
static void test_a_wait_for_a_processor_is_not_pressure(void)
{
    ps_governor_t governor = begin();
    feed_t feed = { .busy_percent = 80, .wait_ns = 2 * MS, .waits = 1000, .ran_percent = 25 };
    step(&governor, &feed, 30);
    CHECK(governor.latency > 99000 && governor.latency <= 100000);
    feed.ran_percent = 100;
    step(&governor, &feed, 30);
    CHECK(governor.latency > 399000 && governor.latency <= 400000);
    feed.ran_percent = 0;
    step(&governor, &feed, 1);
    CHECK(governor.latency > 399000);
}

static void test_each_signal_alone_reaches_full_pressure(void)
{
    ps_governor_t governor = begin();
    step(&governor, &(feed_t){ .late = 16 }, 1);
    CHECK_EQ(governor.pressure, 500000);
    step(&governor, &(feed_t){ .late = 33 }, 1);
    CHECK_EQ(governor.pressure, PS_GOVERNOR_FULL);
    governor = begin();
    step(&governor, &(feed_t){ .wait_ns = 5 * MS, .waits = 100 }, 30);
    CHECK(governor.pressure > 999000);
    step(&governor, &(feed_t){ .wait_ns = 50 * MS, .waits = 100 }, 1);
    CHECK_EQ(governor.pressure, PS_GOVERNOR_FULL);
    governor = begin();
    step(&governor, &(feed_t){ .wait_ns = 5 * MS, .waits = 1 }, 1); /* one late turn */
    CHECK(governor.pressure < PS_GOVERNOR_COALESCE);
}

/* Walks pressure up and down, and compares each step of the ladder with its number. */
static void test_the_ladder_follows_pressure(void)
{
    ps_governor_t governor = begin();
    for (int32_t walk = 0; walk <= 200; walk++) {
        governor.forced = (walk <= 100 ? walk : 200 - walk) * 10000;
        step(&governor, &(feed_t){ 0 }, 1);
        const int32_t pressure = governor.pressure;
        CHECK_EQ(pressure, governor.forced);
        CHECK((governor.coalesce_ns > 0) == (pressure > PS_GOVERNOR_COALESCE));
        CHECK(governor.coalesce_ns <= pressure * INT64_C(20));
        const int64_t status_ns = governor.status_interval_ns;
        CHECK((status_ns > 0) == (pressure > PS_GOVERNOR_STATUS));
        CHECK(status_ns == 0 || (status_ns >= MS / 2 && status_ns <= 10 * MS));
        CHECK((governor.retry_after_ns > 0) == (pressure >= PS_GOVERNOR_THROTTLE));
        /* 80 to 86 for six samples, then until below 60. */
        const bool defers = walk >= 86 && walk <= 140;
        CHECK(governor.defers == defers);
    }
    CHECK_EQ(governor.coalesce_ns, 0);
}

static void test_a_peak_that_is_not_sustained_defers_nobody(void)
{
    ps_governor_t governor = begin();
    for (int32_t i = 0; i < 50; i++) {
        governor.forced = PS_GOVERNOR_FULL;
        step(&governor, &(feed_t){ 0 }, 5);
        CHECK(!governor.defers);
        governor.forced = 700000;
        step(&governor, &(feed_t){ 0 }, 1);
        CHECK(!governor.defers);
    }
}

static void test_pressure_begins_at_0_after_a_rest(void)
{
    ps_governor_t governor = begin();
    step(&governor, &(feed_t){ .late = 32, .wait_ns = 50 * MS, .waits = 100 }, 20);
    CHECK(governor.defers && governor.retry_after_ns > 0);
    now_ns += PS_GOVERNOR_STALE_NS;
    step(&governor, &(feed_t){ 0 }, 1);
    CHECK_EQ(governor.pressure, 0);
    CHECK(!governor.defers && !governor.holds && governor.retry_after_ns == 0);
}

/* A clock that does not move, or moves back, makes no sample. */
static void test_a_clock_that_stands_still_changes_nothing(void)
{
    ps_governor_t governor = begin();
    step(&governor, &(feed_t){ .late = 16 }, 1);
    const ps_governor_sample_t same = { .now_ns = now_ns, .ran_ns = -1, .workers = 1 };
    (void)ps_governor_step(&governor, &same);
    const ps_governor_sample_t back = { .now_ns = now_ns - 5 * MS, .ran_ns = -1, .workers = 1 };
    (void)ps_governor_step(&governor, &back);
    CHECK_EQ(governor.pressure, 500000);
}

static void test_retry_after_follows_the_waits(void)
{
    ps_governor_t governor = begin();
    step(&governor, &(feed_t){ .wait_ns = 20 * MS, .waits = 100 }, 30);
    CHECK(governor.retry_after_ns > 49 * MS && governor.retry_after_ns <= 50 * MS);
    step(&governor, &(feed_t){ .wait_ns = 5000 * MS, .waits = 100 }, 30);
    CHECK_EQ(governor.retry_after_ns, 1000 * MS);
}

int main(void)
{
    test_busy_alone_is_not_pressure();
    test_a_wait_for_a_processor_is_not_pressure();
    test_each_signal_alone_reaches_full_pressure();
    test_the_ladder_follows_pressure();
    test_a_peak_that_is_not_sustained_defers_nobody();
    test_pressure_begins_at_0_after_a_rest();
    test_a_clock_that_stands_still_changes_nothing();
    test_retry_after_follows_the_waits();
    return 0;
}
