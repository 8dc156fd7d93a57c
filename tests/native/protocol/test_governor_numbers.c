/* SPDX-License-Identifier: Apache-2.0
 *
 * test_governor_numbers.c: the exact numbers of the governor, at each edge of its steps.
 */
#include "ps_governor.h"

#include "check.h"

#define MS INT64_C(1000000)

static int64_t now_ns;

static ps_governor_t begin(void)
{
    ps_governor_t governor;
    now_ns = 1000 * MS;
    ps_governor_init(&governor);
    const ps_governor_sample_t first = { .now_ns = now_ns, .ran_ns = -1, .workers = 1 };
    (void)ps_governor_step(&governor, &first);
    return governor;
}

static bool sample(ps_governor_t *governor, int64_t after_ns, ps_governor_sample_t values)
{
    now_ns += after_ns;
    values.now_ns = now_ns;
    values.workers = values.workers == 0 ? 1 : values.workers;
    return ps_governor_step(governor, &values);
}

static bool force(ps_governor_t *governor, int32_t pressure, int64_t after_ns)
{
    governor->forced = pressure;
    return sample(governor, after_ns, (ps_governor_sample_t){ .ran_ns = -1 });
}

static void wait_for(ps_governor_t *governor, int32_t waits, int64_t each_ns)
{
    for (int32_t i = 0; i < waits; i++) {
        ps_governor_waited(governor, each_ns);
    }
}

static void test_latency_is_half_new_and_half_old(void)
{
    const ps_governor_sample_t plain = { .idle_ns = 100 * MS, .ran_ns = -1 };
    ps_governor_t governor = begin();
    wait_for(&governor, 64, MS);
    (void)sample(&governor, 100 * MS, plain);
    CHECK_EQ(governor.latency, 100000);
    CHECK_EQ(governor.pressure, 100000);
    CHECK(governor.waits == 0 && governor.waited_ns == 0);
    wait_for(&governor, 33, MS);
    (void)sample(&governor, 100 * MS, plain);
    CHECK_EQ(governor.latency, 150000);
    governor = begin();
    wait_for(&governor, 31, MS); /* as if 32 */
    (void)sample(&governor, 100 * MS, plain);
    CHECK_EQ(governor.latency_ns, 968750 / 2);
    governor = begin();
    wait_for(&governor, 64, 10 * MS);
    (void)sample(&governor, 100 * MS, plain);
    CHECK_EQ(governor.latency, PS_GOVERNOR_FULL);
    governor = begin();
    wait_for(&governor, 64, 10 * MS - 20);
    (void)sample(&governor, 100 * MS, plain);
    CHECK_EQ(governor.latency, PS_GOVERNOR_FULL - 2);
}

static void test_latency_counts_the_time_with_a_processor(void)
{
    static const struct {
        int64_t idle_ns, ran_ns, latency_ns;
    } rows[] = {
        { 0, 50 * MS, 4 * MS / 2 },
        { 0, 100 * MS, 4 * MS },
        { 0, 200 * MS, 4 * MS },
        { 60 * MS, 10 * MS, 4 * MS / 4 },
        { 60 * MS, 40 * MS, 4 * MS },
        { 0, 0, 0 },
        { 0, -1, 4 * MS },
        { 100 * MS, 0, 4 * MS },
        { 100 * MS - 1, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ps_governor_t governor = begin();
        wait_for(&governor, 64, 8 * MS);
        (void)sample(
            &governor, 100 * MS,
            (ps_governor_sample_t){ .idle_ns = rows[i].idle_ns, .ran_ns = rows[i].ran_ns });
        CHECK_EQ(governor.latency_ns, rows[i].latency_ns);
    }
}

static void test_busy_is_the_rest_of_the_idle_time(void)
{
    ps_governor_t governor = begin();
    (void)sample(&governor, 100 * MS, (ps_governor_sample_t){ .idle_ns = 90 * MS, .ran_ns = -1 });
    CHECK(governor.busy == 100000 && governor.pressure == 100000);
    (void)sample(&governor, 100 * MS, (ps_governor_sample_t){ .idle_ns = 100 * MS, .ran_ns = -1 });
    CHECK(governor.busy == 0 && governor.pressure == 0);
    (void)sample(&governor, 100 * MS, (ps_governor_sample_t){ .idle_ns = 200 * MS, .ran_ns = -1 });
    CHECK_EQ(governor.busy, 0);
    (void)sample(&governor, 200 * MS, (ps_governor_sample_t){ .idle_ns = 100 * MS, .ran_ns = -1 });
    CHECK(governor.busy == 500000 && governor.pressure == 150000);
}

static void test_depth_counts_32_streams_a_worker(void)
{
    ps_governor_t governor = begin();
    const ps_governor_sample_t two = {
        .late_streams = 32, .workers = 2, .idle_ns = 100 * MS, .ran_ns = -1
    };
    (void)sample(&governor, 100 * MS, two);
    CHECK(governor.depth == 500000 && governor.pressure == 500000);
    const ps_governor_sample_t one = { .late_streams = 31, .idle_ns = 100 * MS, .ran_ns = -1 };
    (void)sample(&governor, 100 * MS, one);
    CHECK_EQ(governor.depth, 968750);
}

static void test_the_delays_at_each_edge(void)
{
    static const struct {
        int32_t pressure;
        int64_t coalesce_ns, status_ns, retry_ns;
    } rows[] = {
        { 0, 0, 0, 0 },
        { 200000, 0, 0, 0 },
        { 200040, 1000, 0, 0 },
        { 400000, 5 * MS, 0, 0 },
        { 400006, 5 * MS + 150, 500095, 0 },
        { 600000, 10 * MS, 500000 + 9500000 / 3, 0 },
        { 700000, 12500000, 5250000, 0 },
        { 979999, 19499975, 9683317, 0 },
        { 980000, 19500000, 9683333, 10 * MS },
        { 1000000, 20 * MS, 10 * MS, 10 * MS },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ps_governor_t governor = begin();
        (void)force(&governor, rows[i].pressure, 100 * MS);
        CHECK_EQ(governor.pressure, rows[i].pressure);
        CHECK_EQ(governor.coalesce_ns, rows[i].coalesce_ns);
        CHECK_EQ(governor.status_interval_ns, rows[i].status_ns);
        CHECK_EQ(governor.retry_after_ns, rows[i].retry_ns);
        CHECK_EQ(governor.holds, rows[i].coalesce_ns > 0);
    }
}

static void test_retry_after_is_twice_the_wait_and_at_most_a_second(void)
{
    static const int64_t rows[][2] = {
        { 20, 30 }, { 980, 990 }, { 990, 1000 }, { 1000, 1000 }
    }; /* waits of twice the average, and the time to retry, in ms */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ps_governor_t governor = begin();
        wait_for(&governor, 64, rows[i][0] * MS);
        (void)force(&governor, PS_GOVERNOR_FULL, 100 * MS);
        CHECK_EQ(governor.retry_after_ns, rows[i][1] * MS);
    }
}

static void test_deferral_begins_after_half_a_second_and_ends_below_60(void)
{
    ps_governor_t governor = begin();
    CHECK(force(&governor, 800001, 100 * MS)); /* coalesces now */
    CHECK_EQ(governor.high_since_ns, now_ns);
    CHECK(!force(&governor, 900000, 499 * MS));
    CHECK(!governor.defers);
    CHECK(force(&governor, 900000, 1 * MS));
    CHECK(governor.defers && governor.holds);
    CHECK(!force(&governor, 600000, 100 * MS));
    CHECK(governor.defers);
    CHECK_EQ(governor.high_since_ns, -1);
    CHECK(force(&governor, 599999, 100 * MS)); /* still coalesces */
    CHECK(!governor.defers && governor.holds);
    CHECK(force(&governor, 200000, 100 * MS));
    CHECK(!governor.holds);
    CHECK(!force(&governor, 100000, 100 * MS));
    for (int32_t i = 0; i < 10; i++) { /* exactly 80 % is not above it */
        (void)force(&governor, 800000, 100 * MS);
        CHECK(!governor.defers && governor.high_since_ns == -1);
    }
}

static void test_a_sample_older_than_half_a_second_begins_again(void)
{
    ps_governor_t governor = begin();
    wait_for(&governor, 64, 8 * MS);
    const ps_governor_sample_t busy = { .ran_ns = -1 };
    (void)sample(&governor, 500 * MS, busy);
    CHECK_EQ(governor.latency_ns, 4 * MS);
    wait_for(&governor, 64, 8 * MS);
    (void)sample(&governor, 500 * MS + 1, busy);
    CHECK(governor.latency_ns == 0 && governor.waits == 0 && governor.busy == 0);
    CHECK(governor.pressure == 0 && governor.forced == -1 && governor.high_since_ns == -1);
    CHECK_EQ(governor.sampled_ns, now_ns);
    (void)sample(&governor, 1, busy); /* any time at all is enough for a sample */
    CHECK_EQ(governor.busy, PS_GOVERNOR_FULL);
    governor.forced = 300000;
    (void)sample(&governor, 600 * MS, busy);
    CHECK(governor.pressure == 300000 && governor.forced == 300000 && governor.holds);
    governor.forced = 0;
    (void)sample(&governor, 600 * MS, busy);
    CHECK(governor.pressure == 0 && governor.forced == 0);
    (void)sample(&governor, 100 * MS, busy);
    CHECK_EQ(governor.pressure, 0);
}

int main(void)
{
    test_latency_is_half_new_and_half_old();
    test_latency_counts_the_time_with_a_processor();
    test_busy_is_the_rest_of_the_idle_time();
    test_depth_counts_32_streams_a_worker();
    test_the_delays_at_each_edge();
    test_retry_after_is_twice_the_wait_and_at_most_a_second();
    test_deferral_begins_after_half_a_second_and_ends_below_60();
    test_a_sample_older_than_half_a_second_begins_again();
    return 0;
}
