/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bands_numbers.c: the exact numbers of the ready set: quantum, rounds, grants, deficits, the
 * credit of retransmits, bounds, late streams, and the slices of a sweep.
 */
#include "ps_bands.h"

#include "check.h"
#include "ps_priority.h"

enum { MTU = 1408, Q = 50000, MANY = 600 };
#define MS INT64_C(1000000)

static ps_band_entry_t entries[MANY];

static ps_bands_t begin(void)
{
    ps_bands_t bands;
    ps_bands_init(&bands);
    ps_bands_set_quantum(&bands, INT64_C(1000000000), MTU);
    for (int32_t i = 0; i < MANY; i++) {
        entries[i] = (ps_band_entry_t){ 0 };
    }
    return bands;
}

static void test_the_numbers_at_the_start(void)
{
    static const int32_t weights[] = { 6, 8, 8, 16, 32, 64, 0 };
    ps_bands_t bands;
    ps_bands_init(&bands);
    for (int32_t i = 0; i < PS_BAND_LISTS; i++) {
        CHECK_EQ(bands.lists[i].weight, weights[i]);
    }
    CHECK_EQ(bands.quantum, 131072);
    CHECK_EQ(bands.lone_turn, 131072);
    CHECK_EQ(bands.round_ns, 837500); /* 134/8 quanta of 50 us */
    CHECK_EQ(bands.at, PS_BAND_B4);
    CHECK(ps_bands_pick(&bands) == NULL);
    CHECK_EQ(bands.rounds, 0);
}

static void check_quantum(int64_t rate, int64_t datagram, int64_t quantum, int64_t round_ns)
{
    ps_bands_t bands = begin();
    ps_bands_set_quantum(&bands, rate, datagram);
    CHECK_EQ(bands.quantum, quantum);
    CHECK_EQ(bands.round_ns, round_ns);
    CHECK_EQ(bands.lone_turn, quantum < 65536 ? 2 * quantum : 131072);
}

static void test_the_quantum_is_what_50_us_send(void)
{
    check_quantum(INT64_C(1000000000), MTU, 50000, 836663);
    check_quantum(INT64_C(327660000), MTU, 16384, 836682);
    check_quantum(INT64_C(327700000), MTU, 16385, 836731);
    check_quantum(INT64_C(2621420000), MTU, 131071, 837314);
    check_quantum(INT64_C(2621440000), MTU, 131072, 837321);
    check_quantum(INT64_C(4000000000), MTU, 131072, 548726);
    check_quantum(INT64_C(9000000000), MTU, 131072, 243912);
    check_quantum(INT64_C(1000000000), 50001, 50001, 836679);
    check_quantum(1, MTU, 16384, 274432000);
    check_quantum(0, 65504, 131072, 837500);
    check_quantum(-1, 65504, 131072, 837500);
}

static void test_the_bound_of_each_list(void)
{
    ps_bands_t bands = begin();
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B4, 10, MTU), 7419712);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B0, 10, MTU), 72744712);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_BACKGROUND, 10, MTU), 32544712);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_REPAIR, 10, MTU), 1336608);
    bands.lowered = 1;
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_REPAIR, 10, MTU), 2004912);
    /* Four rounds, exactly; one byte more than four rounds. */
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B1, 0, 50000), 46625000);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B1, 1, 16667), 47833338);
}

/* Streams of all bands that send a quantum a turn: the turns of four rounds, in order. */
static void test_the_turns_of_four_rounds(void)
{
    static const char *const expected =
        "5555555544443321"
        "0" /* 3/4 of a quantum a round: three turns in four rounds */
        "5555555544443321"
        "0"
        "5555555544443321"
        "0"
        "5555555544443321"
        "5555555544443321"
        "0";
    ps_bands_t bands = begin();
    for (int32_t i = 0; i < PS_BAND_COUNT; i++) {
        ps_bands_add(&bands, &entries[i], i, 0);
    }
    for (int32_t i = 0; expected[i] != '\0'; i++) {
        ps_band_entry_t *entry = ps_bands_pick(&bands);
        const int32_t list = entry->list;
        CHECK_EQ(list, expected[i] - '0');
        ps_bands_add(&bands, entry, list, 0);
        ps_bands_charge(&bands, list, Q);
    }
}

/* Lets the streams of `order` send a quantum a turn; each stays ready. Checks their order. */
static void check_turns(ps_bands_t *bands, const char *order)
{
    for (int32_t i = 0; order[i] != '\0'; i++) {
        ps_band_entry_t *entry = ps_bands_pick(bands);
        const int32_t list = entry->list;
        CHECK_EQ(list, order[i] - '0');
        ps_bands_add(bands, entry, list, 0);
        ps_bands_charge(bands, list, Q);
    }
}

/* A band that gets data after the round has passed it has at once what is left of its share of the
 * round. */
static void test_a_band_that_comes_late_has_its_turns_at_once(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[2], PS_BAND_B0, 0);
    check_turns(&bands, "3313"); /* B2 has a quantum left */
    ps_bands_add(&bands, &entries[3], PS_BAND_B3, 0);
    ps_bands_add(&bands, &entries[4], PS_BAND_B4, 0);
    CHECK_EQ(bands.early, 1u << PS_BAND_B3 | 1u << PS_BAND_B4);
    CHECK_EQ(bands.lists[PS_BAND_B4].deficit, 8 * Q);
    check_turns(&bands, "55555555" /* then B3, then the rest of the round */
                        "4444"
                        "31"
                        "5555555544443315");
    check_turns(&bands, "55");
    ps_bands_remove(&bands, &entries[4]);
    check_turns(&bands, "4");
    ps_bands_add(&bands, &entries[4], PS_BAND_B4, 0); /* it had 3 of its 8 quanta of this round */
    check_turns(&bands, "55555"
                        "44433155");
    ps_bands_add(&bands, &entries[5], PS_BAND_B1, 0); /* the round comes to it */
    CHECK_EQ(bands.early & 1u << PS_BAND_B1, 0);
    check_turns(&bands, "55555544443321");
}

/* While early bands have turns, a new one that is higher has its turns before them; one that left
 * has none. */
static void test_the_highest_band_that_comes_late_is_first(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B0, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B0, 0);
    check_turns(&bands, "1");
    ps_bands_add(&bands, &entries[2], PS_BAND_B1, 0);
    ps_bands_add(&bands, &entries[3], PS_BAND_B3, 0);
    check_turns(&bands, "4");
    ps_bands_add(&bands, &entries[4], PS_BAND_B4, 0);
    check_turns(&bands, "5");
    ps_bands_remove(&bands, &entries[4]);
    check_turns(&bands, "444"
                        "2"
                        "4444214");
}

/* A stream that nobody else waited beside ends a round when it had more than its share of one. */
static void test_turns_alone_end_a_round(void)
{
    for (int32_t turns = 1; turns <= 4; turns++) {
        ps_bands_t bands = begin();
        ps_bands_add(&bands, &entries[0], PS_BAND_B2, 0);
        ps_bands_add(&bands, &entries[1], PS_BAND_B4, 0);
        check_turns(&bands, "5");
        ps_bands_remove(&bands, &entries[1]);
        for (int32_t i = 0; i < 10; i++) { /* it has the processor for itself */
            check_turns(&bands, "3");
        }
        ps_bands_add(&bands, &entries[1], PS_BAND_B4, 0);
        check_turns(&bands, "5");
        ps_bands_remove(&bands, &entries[1]);
        check_turns(&bands, "3"); /* it still waits in its list: the first of its turns alone */
        for (int32_t i = 1; i < turns; i++) {
            check_turns(&bands, "3");
        }
        CHECK_EQ(bands.alone, turns);
        ps_bands_add(&bands, &entries[1], PS_BAND_B4, 0);
        check_turns(&bands, turns > 2 ? "55555555335" : "5555555335");
    }
}

/* What is left of a round and what is owed are the same part of another quantum. */
static void test_deficits_follow_the_quantum(void)
{
    ps_bands_t bands = begin();
    bands.lists[PS_BAND_B4].deficit = 3 * Q;
    bands.lists[PS_BAND_B0].deficit = -Q;
    bands.lists[PS_BAND_B1].deficit = -Q - MTU;
    bands.repair_credit = Q / 2;
    ps_bands_set_quantum(&bands, INT64_C(2000000000), MTU);
    CHECK_EQ(bands.lists[PS_BAND_B4].deficit, 6 * Q);
    CHECK_EQ(bands.lists[PS_BAND_B0].deficit, -2 * Q);
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, -2 * Q - MTU); /* one turn, not two datagrams more */
    CHECK_EQ(bands.repair_credit, Q);
    bands.repair_credit = -4 * Q;
    ps_bands_set_quantum(&bands, INT64_C(500000000), MTU);
    CHECK_EQ(bands.quantum, Q / 2);
    CHECK_EQ(bands.lists[PS_BAND_B4].deficit, 3 * Q / 2);
    CHECK_EQ(bands.lists[PS_BAND_B0].deficit, -Q / 2);
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, -Q / 2 - MTU / 4);
    CHECK_EQ(bands.repair_credit, -Q / 2 - MTU);
    bands.lists[PS_BAND_B0].deficit = -Q;
    ps_bands_set_quantum(&bands, 0, MTU);
    CHECK_EQ(bands.lists[PS_BAND_B0].deficit, -PS_BANDS_QUANTUM_MAX - MTU);
}

static void test_a_band_owes_what_it_sent(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[2], PS_BAND_B1, 0);
    CHECK(ps_bands_pick(&bands) == &entries[0]);
    CHECK_EQ(bands.lists[PS_BAND_B2].deficit, 2 * Q);
    ps_bands_charge(&bands, PS_BAND_B2, Q);
    CHECK_EQ(bands.lists[PS_BAND_B2].deficit, Q);
    ps_bands_charge(&bands, PS_BAND_B2, 255);
    CHECK_EQ(bands.lists[PS_BAND_B2].deficit, Q - 256);
    ps_bands_charge(&bands, PS_BAND_B2, 257);
    CHECK_EQ(bands.lists[PS_BAND_B2].deficit, Q - 513);
    ps_bands_charge(&bands, PS_BAND_B2, 10 * Q);
    CHECK_EQ(bands.lists[PS_BAND_B2].deficit, -2 * Q);
    CHECK(ps_bands_pick(&bands) == &entries[2]); /* B2 owes a round */
    ps_bands_charge(&bands, PS_BAND_B1, MTU);
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, Q - MTU); /* empty, but the round is not over */
    CHECK(ps_bands_pick(&bands) == &entries[1]);
    CHECK(ps_bands_pick(&bands) == NULL);
}

static void test_a_round_takes_what_bands_left_of_the_last_one(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
    ps_bands_add(&bands, &entries[2], PS_BAND_B1, 0);
    check_turns(&bands, "33");
    CHECK(ps_bands_pick(&bands) == &entries[2]);
    ps_bands_charge(&bands, PS_BAND_B1, 1000);
    check_turns(&bands, "3");
    ps_bands_add(&bands, &entries[2], PS_BAND_B1, 0); /* in the next round, which comes to it */
    CHECK_EQ(bands.early & 1u << PS_BAND_B1, 0);
    check_turns(&bands, "32");
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, 0);
}

/* A band that missed rounds got no share of them, which repays what it owes. */
static void test_missed_rounds_repay_a_debt(void)
{
    static const int64_t left[] = { -5 * Q / 4, -Q / 2, Q / 4, 3 * Q / 4, 3 * Q / 4 };
    for (uint64_t missed = 0; missed < 5; missed++) {
        ps_bands_t bands = begin();
        ps_bands_add(&bands, &entries[0], PS_BAND_B2, 0);
        ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
        bands.rounds = 100;
        bands.at = PS_BAND_BACKGROUND;
        check_turns(&bands, "3");
        CHECK_EQ(bands.rounds, 101);
        bands.lists[PS_BAND_B3].granted = 100 - missed;
        bands.lists[PS_BAND_B3].weight = 6; /* 3/4 of a quantum a round */
        bands.lists[PS_BAND_B3].deficit = -2 * Q;
        ps_bands_add(&bands, &entries[2], PS_BAND_B3, 0);
        CHECK_EQ(bands.lists[PS_BAND_B3].granted, 101);
        CHECK_EQ(bands.lists[PS_BAND_B3].deficit, left[missed]);
    }
}

/* One stream alone waits in no list, but its band is not empty. */
static void test_a_band_with_the_only_stream_keeps_its_deficit(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B3, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
    ps_band_entry_t *first = ps_bands_pick(&bands);
    CHECK(first == &entries[0] && bands.alone == 0);
    ps_bands_remove(&bands, &entries[1]);
    ps_bands_add(&bands, first, PS_BAND_B3, 0);
    CHECK(bands.only == first);
    ps_bands_charge(&bands, PS_BAND_B3, Q);
    CHECK_EQ(bands.lists[PS_BAND_B3].deficit, 3 * Q);
    ps_bands_remove(&bands, first);
    CHECK(bands.only == NULL && bands.waiting == 0 && !first->queued);
    ps_bands_remove(&bands, first); /* in no list: nothing happens */
    CHECK_EQ(bands.waiting, 0);
}

static void test_retransmits_earn_what_the_bands_send(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_REPAIR, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B1, 0);
    ps_bands_add(&bands, &entries[2], PS_BAND_B1, 0);
    CHECK(ps_bands_pick(&bands) == &entries[1]); /* nothing earned yet */
    ps_bands_charge(&bands, PS_BAND_B1, 1000);
    CHECK_EQ(bands.repair_credit, 1000);
    bands.lowered = 1;
    ps_bands_charge(&bands, PS_BAND_B1, 1000);
    CHECK_EQ(bands.repair_credit, 1500);
    bands.lowered = 0;
    ps_bands_charge(&bands, PS_BAND_B1, 3 * Q);
    CHECK_EQ(bands.repair_credit, Q); /* at most a quantum */
    bands.repair_credit = 1;
    CHECK(ps_bands_pick(&bands) == &entries[0]);
    ps_bands_charge(&bands, PS_BAND_REPAIR, 100);
    CHECK_EQ(bands.repair_credit, 1 - 256);
    ps_bands_charge(&bands, PS_BAND_REPAIR, 9 * Q);
    CHECK_EQ(bands.repair_credit, -2 * Q);
    bands.repair_credit = 0;
    ps_bands_add(&bands, &entries[0], PS_BAND_REPAIR, 0);
    CHECK(ps_bands_pick(&bands) == &entries[2]); /* a credit of 0 is none */
    ps_bands_add(&bands, &entries[1], PS_BAND_REPAIR, 0);
    CHECK(ps_bands_pick(&bands) == &entries[0]); /* no band waits */
    ps_bands_charge(&bands, PS_BAND_REPAIR, Q);
    CHECK_EQ(bands.repair_credit, 0);
    CHECK(ps_bands_pick(&bands) == &entries[1]);
    CHECK_EQ(bands.alone, 1);
}

static void test_late_streams_are_those_of_bands(void)
{
    ps_bands_t bands = begin();
    static const int32_t lists[] = { PS_BAND_BACKGROUND, PS_BAND_REPAIR, PS_BAND_B0, PS_BAND_B4,
                                     PS_BAND_B4 };
    for (int32_t i = 0; i < 5; i++) {
        ps_bands_add(&bands, &entries[i], lists[i], 10 * i);
    }
    CHECK_EQ(ps_bands_late(&bands, 20, 32), 0);
    CHECK_EQ(ps_bands_late(&bands, 21, 32), 1);
    CHECK_EQ(ps_bands_late(&bands, 40, 32), 2);
    CHECK_EQ(ps_bands_late(&bands, 41, 32), 3);
    CHECK_EQ(ps_bands_late(&bands, 41, 2), 2);
    CHECK_EQ(ps_bands_late(&bands, 41, 0), 0);
}

/* A sweep visits 256 steps a call, and continues where it was, also if its next stream left. */
static void test_a_sweep_continues_in_slices(void)
{
    ps_bands_t bands = begin();
    for (int32_t i = 0; i < MANY; i++) {
        entries[i].base = -1;
        ps_bands_add(&bands, &entries[i], PS_BAND_B0, 0);
    }
    ps_bands_age(&bands, 0);
    CHECK(bands.age_list == PS_BAND_B0 && bands.age_index == 253); /* 3 steps: empty lists */
    CHECK(bands.age_next == &entries[253]);
    ps_bands_remove(&bands, &entries[253]);
    CHECK(bands.age_index == 252 && bands.age_next == &entries[254]);
    ps_bands_remove(&bands, &entries[0]);
    CHECK(bands.age_index == 251 && bands.age_next == &entries[254]);
    ps_bands_age(&bands, 0);
    CHECK_EQ(bands.age_list, PS_BAND_B0);
    ps_bands_age(&bands, 0);
    CHECK_EQ(bands.age_list, PS_BAND_BACKGROUND); /* the sweep is over */
    CHECK_EQ(bands.lists[PS_BAND_B0].count, MANY - 2);
    ps_bands_age(&bands, 50 * MS - 1);
    CHECK_EQ(bands.age_list, PS_BAND_BACKGROUND);
    ps_bands_age(&bands, 50 * MS); /* aging 5: the priority is 4 */
    CHECK_EQ(bands.age_list, PS_BAND_B0);
    CHECK_EQ(entries[1].list, PS_BAND_B0); /* the first is served no later here */
    CHECK_EQ(entries[2].list, PS_BAND_B1);
    CHECK_EQ(entries[3].list, PS_BAND_B0); /* one waits there, and one here: not sooner */
    CHECK_EQ(entries[4].list, PS_BAND_B1);
    CHECK_EQ(bands.swept_ns, 50 * MS);
}

/* A stream goes to the highest band that its age permits and that serves it sooner. */
static void test_age_lifts_to_the_highest_band_that_is_sooner(void)
{
    ps_bands_t bands = begin();
    for (int32_t i = 0; i < 3; i++) {
        entries[i].base = 200;
        ps_bands_add(&bands, &entries[i], PS_BAND_B1, 0);
    }
    for (int32_t i = 3; i < 7; i++) {
        entries[i].base = 900;
        ps_bands_add(&bands, &entries[i], PS_BAND_B4, 0);
    }
    entries[7].base = 0;
    ps_bands_add(&bands, &entries[7], PS_BAND_BACKGROUND, 0);
    ps_bands_age(&bands, 10000 * MS); /* every one of B1 reaches B4 */
    /* B4 has weight 8 and four streams: half a turn of B1, so sooner than one turn of B1. */
    CHECK_EQ(entries[0].list, PS_BAND_B1);
    CHECK_EQ(entries[1].list, PS_BAND_B4);
    CHECK_EQ(entries[2].list, PS_BAND_B4);
    CHECK_EQ(entries[7].list, PS_BAND_BACKGROUND);
    CHECK(bands.lists[PS_BAND_B4].tail == &entries[2]);
    CHECK_EQ(bands.lists[PS_BAND_B4].count, 6);
    CHECK_EQ(bands.lists[PS_BAND_B1].count, 1);
    CHECK(bands.lists[PS_BAND_B1].head == &entries[0] && entries[0].next == NULL);
}

int main(void)
{
    test_the_numbers_at_the_start();
    test_the_quantum_is_what_50_us_send();
    test_the_bound_of_each_list();
    test_the_turns_of_four_rounds();
    test_a_band_that_comes_late_has_its_turns_at_once();
    test_the_highest_band_that_comes_late_is_first();
    test_turns_alone_end_a_round();
    test_deficits_follow_the_quantum();
    test_a_band_owes_what_it_sent();
    test_a_round_takes_what_bands_left_of_the_last_one();
    test_missed_rounds_repay_a_debt();
    test_a_band_with_the_only_stream_keeps_its_deficit();
    test_retransmits_earn_what_the_bands_send();
    test_late_streams_are_those_of_bands();
    test_a_sweep_continues_in_slices();
    test_age_lifts_to_the_highest_band_that_is_sooner();
    return 0;
}
