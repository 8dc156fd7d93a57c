/* SPDX-License-Identifier: Apache-2.0
 * The join hold by itself: each rule of ps_join.h, then random histories against the bounds.
 */
#include "check.h"
#include "ps_destinations.h"
#include "ps_join.h"

#define S INT64_C(1000000000)
#define T (5 * S)

static ps_addr_t host(int number)
{
    return (ps_addr_t){ .family = 4,
                        .port = 40456,
                        .ip = { 10, 0, (uint8_t)(number >> 8), (uint8_t)number } };
}

static int32_t request(ps_join_t *join, int64_t id, int number, int64_t now_ns)
{
    const ps_addr_t from = host(number);
    const int32_t verdict = ps_join_request(join, id, &from, now_ns);
    ps_join_start(join, 1000, true, now_ns);
    return verdict;
}

static void come(ps_join_t *join, int64_t id, int number, int64_t now_ns)
{
    const ps_addr_t from = host(number);
    (void)ps_join_joined(join, id, &from, now_ns);
}

static void a_hold_ends_with_the_join_or_with_its_time(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    CHECK(join.limit == 1000 && join.until_ns == S + T && join.joiner == 1);
    CHECK_EQ(request(&join, 1, 1, 2 * S), PS_JOIN_GRANTED); /* the same hold, no longer */
    CHECK_EQ(join.until_ns, S + T);
    come(&join, 9, 9, 2 * S); /* somebody else */
    CHECK(ps_join_holds(&join));
    come(&join, 1, 1, 3 * S);
    CHECK(!ps_join_holds(&join));
    CHECK_EQ(request(&join, 2, 2, 30 * S), PS_JOIN_GRANTED);
    CHECK(!ps_join_expire(&join, 30 * S + T - 1));
    CHECK(ps_join_expire(&join, 30 * S + T));
    CHECK(!ps_join_holds(&join));
}

/* A refusal ends the hold at once, and the address is not waited for again until it joins. */
static void a_refusal_ends_the_hold(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK(!ps_join_refused(&join, 1, S)); /* nobody waits */
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    CHECK_EQ(request(&join, 2, 2, S + 1), PS_JOIN_GRANTED);
    CHECK(!ps_join_refused(&join, 9, S + 2)); /* somebody else */
    CHECK(!ps_join_refused(&join, 1, S + 2)); /* the other one still joins */
    CHECK(ps_join_holds(&join));
    CHECK(ps_join_refused(&join, 2, S + 3));
    CHECK(!ps_join_holds(&join));
    CHECK_EQ(request(&join, 1, 1, 30 * S), PS_JOIN_NOT_JOINED);
    CHECK_EQ(request(&join, 3, 1, 30 * S), PS_JOIN_NOT_JOINED);
    CHECK(!ps_join_holds(&join));
    come(&join, 1, 1, 31 * S);
    CHECK_EQ(request(&join, 1, 1, 60 * S), PS_JOIN_GRANTED);
    /* A refusal may also come before the SETUP leaves. */
    const ps_addr_t from = host(4);
    CHECK(ps_join_refused(&join, 1, 60 * S));
    CHECK_EQ(ps_join_request(&join, 4, &from, 90 * S), PS_JOIN_GRANTED);
    CHECK(!ps_join_refused(&join, 4, 90 * S));
    ps_join_start(&join, 1000, true, 90 * S);
    CHECK(!ps_join_holds(&join));
}

static void several_that_join_are_all_waited_for(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    CHECK_EQ(request(&join, 2, 2, S + 1), PS_JOIN_GRANTED);
    CHECK_EQ(join.joiner, 2);
    come(&join, 1, 1, S + 2);
    CHECK(ps_join_holds(&join));
    come(&join, 2, 2, S + 3);
    CHECK(!ps_join_holds(&join));
}

static void one_that_joins_before_the_setup_is_not_waited_for(void)
{
    ps_join_t join;
    const ps_addr_t from = host(1);
    ps_join_init(&join, T);
    CHECK_EQ(ps_join_request(&join, 1, &from, S), PS_JOIN_GRANTED);
    come(&join, 1, 1, S + 1);
    ps_join_start(&join, 1000, true, S + 2);
    CHECK(!ps_join_holds(&join));
    CHECK_EQ(request(&join, 1, 1, S + 3), PS_JOIN_GRANTED); /* it had no hold */
    CHECK(ps_join_holds(&join));
}

static void one_receiver_has_one_hold_in_a_time_out(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    come(&join, 1, 1, S + 10);
    CHECK_EQ(request(&join, 1, 1, 2 * S), PS_JOIN_TOO_SOON);
    CHECK(!ps_join_holds(&join));
    CHECK_EQ(request(&join, 1, 1, S + T - 1), PS_JOIN_TOO_SOON);
    CHECK_EQ(request(&join, 1, 1, S + T), PS_JOIN_GRANTED);
}

static void a_crowd_does_not_buy_a_receiver_another_hold(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    come(&join, 1, 1, S + 10);
    for (int i = 0; i < 2 * PS_JOIN_RECORDS; i++) {
        const int32_t verdict = request(&join, 100 + i, 100 + i, S + 20 + i);
        CHECK_EQ(verdict, i < PS_JOIN_RECORDS - 1 ? PS_JOIN_GRANTED : PS_JOIN_SPENT);
    }
    CHECK_EQ(request(&join, 1, 1, 2 * S), PS_JOIN_TOO_SOON);
}

static void an_address_that_did_not_join_waits_for_nobody(void)
{
    ps_join_t join;
    ps_join_init(&join, T);
    CHECK_EQ(request(&join, 1, 1, S), PS_JOIN_GRANTED);
    CHECK(ps_join_expire(&join, S + T));
    for (int i = 0; i < 100; i++) { /* under any name, at any time */
        CHECK_EQ(request(&join, 100 + i, 1, (30 + i) * S), PS_JOIN_NOT_JOINED);
    }
    CHECK(!ps_join_holds(&join));
    come(&join, 500, 1, 200 * S); /* whoever joins there */
    CHECK_EQ(request(&join, 501, 1, 201 * S), PS_JOIN_GRANTED);
}

static void all_together_hold_for_one_time_out_in_four(void)
{
    ps_join_t join;
    int64_t held_ns = 0;
    ps_join_init(&join, T);
    for (int64_t now_ns = S; now_ns < 101 * S; now_ns += S / 10) { /* a new host each time */
        (void)ps_join_expire(&join, now_ns);
        (void)request(&join, now_ns, (int)(now_ns / (S / 10)), now_ns);
        held_ns += ps_join_holds(&join) ? S / 10 : 0;
    }
    CHECK(held_ns <= 25 * S + S);
    CHECK(held_ns >= 20 * S); /* what is allowed is given */
}

/* Any 4 T of a random history: never more than T.  Strangers ask, join or not, under few names and
 * many, from few hosts and many. */
static void random_histories_stay_within_the_budget(void)
{
    enum { STEPS = 4000, HISTORIES = 60 };
    static int64_t from_ns[STEPS], to_ns[STEPS];
    int total = 0;
    for (unsigned seed = 1; seed <= HISTORIES; seed++) {
        ps_join_t join;
        int holds = 0;
        int64_t now_ns = S;
        unsigned state = seed * 2654435761u;
        const int64_t timeout_ns = seed % 4 == 0 ? 7 : seed % 4 == 1 ? 1000003 : T;
        ps_join_init(&join, timeout_ns);
        for (int i = 0; i < STEPS; i++) {
            state = state * 1664525u + 1013904223u;
            const int number = (int)(state >> 8) % (seed % 3 == 0 ? 3 : 500);
            const bool before = ps_join_holds(&join);
            now_ns += (int64_t)(state >> 16) % (timeout_ns / 6 + 1);
            const int64_t end_ns = join.until_ns < now_ns ? join.until_ns : now_ns;
            (void)ps_join_expire(&join, now_ns);
            if (before) {
                to_ns[holds - 1] = end_ns;
            }
            const bool between = ps_join_holds(&join);
            if ((state >> 5) % 4 == 0) {
                come(&join, number, number, now_ns);
            } else if ((state >> 20) % 16 == 0) {
                (void)ps_join_refused(&join, number, now_ns);
            } else {
                (void)request(&join, seed % 2 == 0 ? number : i, number, now_ns);
            }
            if (ps_join_holds(&join) && !between) {
                from_ns[holds] = now_ns;
                to_ns[holds++] = now_ns;
            }
        }
        for (int i = 0; i < holds; i++) {
            int64_t spent_ns = 0;
            for (int k = i; k >= 0 && to_ns[k] > to_ns[i] - 4 * timeout_ns; k--) {
                const int64_t since_ns = to_ns[i] - 4 * timeout_ns;
                spent_ns += to_ns[k] - (from_ns[k] > since_ns ? from_ns[k] : since_ns);
            }
            CHECK(spent_ns <= timeout_ns);
        }
        total += holds;
    }
    CHECK(total > 100 * HISTORIES);
}

int main(void)
{
    RUN(a_hold_ends_with_the_join_or_with_its_time);
    RUN(a_refusal_ends_the_hold);
    RUN(several_that_join_are_all_waited_for);
    RUN(one_that_joins_before_the_setup_is_not_waited_for);
    RUN(one_receiver_has_one_hold_in_a_time_out);
    RUN(a_crowd_does_not_buy_a_receiver_another_hold);
    RUN(an_address_that_did_not_join_waits_for_nobody);
    RUN(all_together_hold_for_one_time_out_in_four);
    RUN(random_histories_stay_within_the_budget);
    return 0;
}
