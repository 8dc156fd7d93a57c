/* SPDX-License-Identifier: Apache-2.0
 * test_allowance.c: the absolute limit of ps_allowance.h.
 */
#include <stdlib.h>

#include "check.h"
#include "ps_allowance.h"
#include "ps_random.h"

#define S INT64_C(1000000000)

static void test_it_begins_full_and_rises_at_its_rate(void)
{
    ps_allowance_t allowance;
    ps_allowance_init(&allowance, 500, 50);
    CHECK_EQ(ps_allowance_room(&allowance, 1000, 7 * S), 50);
    CHECK_EQ(ps_allowance_room(&allowance, 1050, 7 * S), 0);
    CHECK_EQ(ps_allowance_ready_ns(&allowance, 1050, 1), 7 * S + 2000000);
    CHECK_EQ(ps_allowance_room(&allowance, 1050, 7 * S + 1999999), 0);
    CHECK_EQ(ps_allowance_room(&allowance, 1050, 7 * S + 2000000), 1);
    CHECK_EQ(ps_allowance_room(&allowance, 1050, 6 * S), 1); /* backwards */
    CHECK_EQ(ps_allowance_room(&allowance, 1050, 70 * S), 50);
}

static void test_a_debt_is_paid_in_full(void)
{
    ps_allowance_t allowance;
    ps_allowance_init(&allowance, 1000, 100);
    CHECK_EQ(ps_allowance_room(&allowance, 0, 0), 100);
    CHECK_EQ(ps_allowance_room(&allowance, 65536, 0), 100 - 65536);
    CHECK_EQ(ps_allowance_ready_ns(&allowance, 65536, 1), (65536 + 1 - 100) * (S / 1000));
    CHECK_EQ(ps_allowance_room(&allowance, 65536, 65 * S), 100 - 536);
    CHECK_EQ(ps_allowance_room(&allowance, 65536, 66 * S), 100);
}

static void test_unlimited_and_extreme_values(void)
{
    ps_allowance_t allowance;
    ps_allowance_init(&allowance, 0, 5);
    CHECK_EQ(ps_allowance_room(&allowance, 1, 1), INT64_MAX);
    ps_allowance_init(&allowance, INT64_MAX, INT64_MAX);
    CHECK_EQ(ps_allowance_room(&allowance, 0, 0), INT64_C(1) << 31);
    CHECK_EQ(ps_allowance_room(&allowance, INT64_C(1) << 31, INT64_MAX), 0);
    CHECK(ps_allowance_room(&allowance, INT64_C(1) << 61, INT64_MAX) < 0);
    ps_allowance_init(&allowance, 1, 1);
    CHECK_EQ(ps_allowance_room(&allowance, 0, 0), 1);
    CHECK(ps_allowance_room(&allowance, INT64_C(1) << 61, 1) < 0);
    CHECK_EQ(ps_allowance_ready_ns(&allowance, INT64_C(1) << 61, 1), INT64_MAX);
}

/* Whatever the rhythm: in no stretch of time more than burst + rate * time. */
static void test_no_stretch_of_time_takes_more(void)
{
    enum { STEPS = 3000 };
    static int64_t at_ns[STEPS], taken[STEPS];
    ps_random_t random;
    ps_random_seed(&random, 17);
    for (int run = 0; run < 60; run++) {
        const int64_t rate = 1 + (int64_t)ps_random_below(&random, run % 2 ? 100 : 5000000);
        const int64_t burst = rate / 10 > 1 ? rate / 10 : 1;
        ps_allowance_t allowance;
        int64_t now = (int64_t)ps_random_below(&random, 1000) * S, count = 0, limit = 0;
        ps_allowance_init(&allowance, rate, burst);
        for (int i = 0; i < STEPS; i++) {
            const int64_t gap_ns = ps_random_below(&random, 50) == 0 ? S : 20 * S / (rate + 20);
            now += (int64_t)ps_random_below(&random, 1 + (uint64_t)gap_ns);
            if (ps_random_below(&random, 3) == 0) { /* looks and takes come as they like */
                limit = count + ps_allowance_room(&allowance, count, now);
            }
            const int64_t most = limit > count ? limit - count : 0;
            count += ps_random_below(&random, 4) == 0
                         ? most
                         : (int64_t)ps_random_below(&random, (uint64_t)most + 1);
            at_ns[i] = now;
            taken[i] = count;
        }
        for (int from = 0; from < STEPS; from += 7) {
            for (int to = from; to < STEPS; to += 11) {
                const double most =
                    (double)burst + 1 + (double)rate * (double)(at_ns[to] - at_ns[from]) / 1e9;
                CHECK((double)(taken[to] - taken[from]) <= most);
            }
        }
    }
}

int main(void)
{
    RUN(test_it_begins_full_and_rises_at_its_rate);
    RUN(test_a_debt_is_paid_in_full);
    RUN(test_unlimited_and_extreme_values);
    RUN(test_no_stretch_of_time_takes_more);
    return 0;
}
