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
    static const int32_t weights[] = { 3, 8, 8, 16, 32, 64, 0 };
    ps_bands_t bands;
    ps_bands_init(&bands);
    for (int32_t i = 0; i < PS_BAND_LISTS; i++) {
        CHECK_EQ(bands.lists[i].weight, weights[i]);
    }
    CHECK_EQ(bands.quantum, 131072);
    CHECK_EQ(bands.round_ns, 818750); /* 131/8 quanta of 50 us */
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
}

static void test_the_quantum_is_what_50_us_send(void)
{
    check_quantum(INT64_C(1000000000), MTU, 50000, 817932);
    check_quantum(INT64_C(327660000), MTU, 16384, 817951);
    check_quantum(INT64_C(327700000), MTU, 16385, 818000);
    check_quantum(INT64_C(2621420000), MTU, 131071, 818568);
    check_quantum(INT64_C(2621440000), MTU, 131072, 818575);
    check_quantum(INT64_C(4000000000), MTU, 131072, 536441);
    check_quantum(INT64_C(9000000000), MTU, 131072, 238451);
    check_quantum(INT64_C(1000000000), 50001, 50001, 817948);
    check_quantum(1, MTU, 16384, INT64_C(268288000));
    check_quantum(0, 65504, 131072, 818750);
    check_quantum(-1, 65504, 131072, 818750);
}

static void test_the_bound_of_each_list(void)
{
    ps_bands_t bands = begin();
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B4, 10, MTU), 7269712);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B0, 10, MTU), 71132212);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_BACKGROUND, 10, MTU), 58032212);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_REPAIR, 10, MTU), 1336608);
    bands.lowered = 1;
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_REPAIR, 10, MTU), 2004912);
    /* Four rounds, exactly; one byte more than four rounds. */
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B1, 0, 50000), 45612500);
    CHECK_EQ(ps_bands_bound(&bands, PS_BAND_B1, 1, 16667), 46783338);
}

/* Streams of all bands that send a quantum a turn: the turns of four rounds, in order. */
static void test_the_turns_of_four_rounds(void)
{
    static const char *const expected = "5555555544443321"
                                        "0" /* 3/8 of a quantum: a turn, then two rounds of none */
                                        "5555555544443321"
                                        "5555555544443321"
                                        "0"
                                        "5555555544443321";
    ps_bands_t bands = begin();
    for (int32_t i = 0; i < PS_BAND_COUNT; i++) {
        ps_bands_add(&bands, &entries[i], i, 0);
    }
    bands.at = 0; /* the next band is B4, with its first grant */
    for (int32_t i = 0; expected[i] != '\0'; i++) {
        ps_band_entry_t *entry = ps_bands_pick(&bands);
        const int32_t list = entry->list;
        CHECK_EQ(list, expected[i] - '0');
        ps_bands_add(&bands, entry, list, 0);
        ps_bands_charge(&bands, list, Q);
    }
}

static void test_a_band_owes_what_it_sent_and_an_empty_one_nothing(void)
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
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, 0); /* empty */
    bands.lists[PS_BAND_B1].deficit = 77;
    CHECK(ps_bands_pick(&bands) == &entries[1]);
    CHECK_EQ(bands.lists[PS_BAND_B1].deficit, 0); /* the round passed it */
    CHECK(ps_bands_pick(&bands) == NULL);
}

/* One stream alone waits in no list, but its band is not empty. */
static void test_a_band_with_the_only_stream_keeps_its_deficit(void)
{
    ps_bands_t bands = begin();
    ps_bands_add(&bands, &entries[0], PS_BAND_B3, 0);
    ps_bands_add(&bands, &entries[1], PS_BAND_B2, 0);
    ps_band_entry_t *first = ps_bands_pick(&bands);
    CHECK(first == &entries[0] && !bands.alone);
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
    CHECK(bands.alone);
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
    test_a_band_owes_what_it_sent_and_an_empty_one_nothing();
    test_a_band_with_the_only_stream_keeps_its_deficit();
    test_retransmits_earn_what_the_bands_send();
    test_late_streams_are_those_of_bands();
    test_a_sweep_continues_in_slices();
    test_age_lifts_to_the_highest_band_that_is_sooner();
    return 0;
}
