/* SPDX-License-Identifier: Apache-2.0
 * The token bucket: exact over a long run, bounded bursts, bounded debt, readiness at the very
 * nanosecond, changes of rate.
 */
#include "check.h"
#include "ps_pacer.h"

#define S INT64_C(1000000000)

static void unlimited(void)
{
    ps_pacer_t p;
    ps_pacer_init(&p);
    CHECK(!ps_pacer_limits(&p));
    CHECK_EQ(ps_pacer_room(&p, 5), INT64_MAX);
    ps_pacer_spend(&p, INT64_MAX);
    CHECK_EQ(ps_pacer_ready_ns(&p, 1000, 5), 5);
}

/* Ten seconds in steps that no rate divides: what left is rate x time + one burst, to the unit. */
static void long_run_is_exact(void)
{
    const int64_t rates[] = { 3, 977, 1000003, INT64_C(1250000000), PS_PACER_RATE_MAX };
    for (int r = 0; r < 5; r++) {
        ps_pacer_t p;
        const int64_t burst = rates[r] / 100 + 7;
        int64_t now = 12345, left = 0;
        ps_pacer_init(&p);
        ps_pacer_set(&p, rates[r], burst, now);
        while (now < 12345 + 10 * S) {
            const int64_t room = ps_pacer_room(&p, now);
            CHECK(room <= burst);
            if (room > 0) {
                ps_pacer_spend(&p, room);
                left += room;
            }
            now += 999983;
        }
        now = 12345 + 10 * S;
        left += ps_pacer_room(&p, now) > 0 ? ps_pacer_room(&p, now) : 0;
        CHECK_EQ(left, 10 * (rates[r] < PS_PACER_RATE_MAX ? rates[r] : PS_PACER_RATE_MAX) +
                           (burst < PS_PACER_BURST_MAX ? burst : PS_PACER_BURST_MAX));
    }
}

static void silence_saves_one_burst(void)
{
    ps_pacer_t p;
    ps_pacer_init(&p);
    ps_pacer_set(&p, 1000000, 2816, 0);
    ps_pacer_spend(&p, 2816);
    CHECK_EQ(ps_pacer_room(&p, 0), 0);
    CHECK_EQ(ps_pacer_room(&p, INT64_MAX / 2), 2816);
    CHECK_EQ(ps_pacer_room(&p, 5), 2816); /* backwards: stands still */
}

static void debt_is_bounded_and_paid(void)
{
    ps_pacer_t p;
    ps_pacer_init(&p);
    ps_pacer_set(&p, 1000, 100, 0);
    ps_pacer_spend(&p, 99);
    ps_pacer_spend(&p, 51);
    CHECK_EQ(ps_pacer_room(&p, 0), -50);
    CHECK_EQ(ps_pacer_ready_ns(&p, 1, 0), 51000000);
    CHECK_EQ(ps_pacer_room(&p, 50999999), 0);
    CHECK_EQ(ps_pacer_room(&p, 51000000), 1);
    ps_pacer_spend(&p, INT64_MAX);
    CHECK_EQ(ps_pacer_room(&p, 51000000), -100);
}

static void readiness_is_the_very_nanosecond(void)
{
    ps_pacer_t p;
    ps_pacer_init(&p);
    ps_pacer_set(&p, 3, 10, 0);
    ps_pacer_spend(&p, 10);
    const int64_t ready = ps_pacer_ready_ns(&p, 2, 0);
    CHECK_EQ(ps_pacer_room(&p, ready - 1), 1);
    CHECK_EQ(ps_pacer_room(&p, ready), 2);
    CHECK_EQ(ps_pacer_ready_ns(&p, 2, ready), ready);
    CHECK(ps_pacer_ready_ns(&p, 1000, ready) < ready + 4 * S); /* cut to the burst */
}

static void a_new_rate_keeps_what_was_saved(void)
{
    ps_pacer_t p;
    ps_pacer_init(&p);
    ps_pacer_set(&p, 1000, 1000, 0);
    ps_pacer_spend(&p, 1000);
    ps_pacer_set(&p, 2000, 500, S / 2); /* 500 at the old rate */
    CHECK_EQ(ps_pacer_room(&p, S / 2), 500);
    ps_pacer_set(&p, 2000, 200, S / 2);
    CHECK_EQ(ps_pacer_room(&p, S / 2), 200);
    ps_pacer_set(&p, 0, 1, S);
    CHECK_EQ(ps_pacer_room(&p, S), INT64_MAX);
}

int main(void)
{
    RUN(unlimited);
    RUN(long_run_is_exact);
    RUN(silence_saves_one_burst);
    RUN(debt_is_bounded_and_paid);
    RUN(readiness_is_the_very_nanosecond);
    RUN(a_new_rate_keeps_what_was_saved);
    return 0;
}
