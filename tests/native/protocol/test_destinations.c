/* SPDX-License-Identifier: Apache-2.0 */
/* Where a multi-destination channel sends: places of receivers, confirmed and provisional. */
#include "check.h"
#include "memnet.h"
#include "ps_destinations.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

enum { KNOWN = 0, ADDED = 1, ANSWER = 2, FULL = 3 };

static ps_addr_t address_of(int32_t n)
{
    ps_addr_t address = memnet_addr(0, (uint16_t)(1000 + n % 50000));
    address.ip[1] = (uint8_t)(n >> 16);
    address.ip[2] = (uint8_t)(n >> 8);
    address.ip[3] = (uint8_t)n;
    return address;
}

static void test_1500_receivers_have_a_place(void)
{
    ps_destinations_t list;
    ps_addr_t gone;
    CHECK_EQ(ps_destinations_init(&list, true, 7), PS_OK);
    for (int32_t n = 0; n < 1500; n++) {
        const ps_addr_t from = address_of(n);
        CHECK_EQ(ps_destinations_on_sm(&list, n, &from, true, n), ADDED);
        CHECK_EQ(ps_destinations_on_sm(&list, n, &from, true, n), KNOWN);
    }
    CHECK_EQ(list.count, 1500);
    for (int32_t n = 0; n < 1500; n += 2) { /* every other one goes on */
        const ps_addr_t from = address_of(n);
        CHECK_EQ(ps_destinations_on_sm(&list, n, &from, false, 3 * S + n), KNOWN);
    }
    CHECK_EQ(ps_destinations_next_ns(&list, 5 * S), 5 * S + 1);
    for (int32_t n = 1; n < 1500; n += 2) { /* the silent ones go, the longest silent first */
        const ps_addr_t was = address_of(n);
        CHECK(ps_destinations_expire(&list, 5 * S, 5 * S + 1500, &gone));
        CHECK(ps_addr_equal(&gone, &was));
    }
    CHECK(!ps_destinations_expire(&list, 5 * S, 5 * S + 1500, &gone));
    CHECK_EQ(list.count, 750);
    for (int32_t n = 0; n < 1500; n++) {
        const ps_addr_t from = address_of(n);
        CHECK_EQ(ps_destinations_on_sm(&list, n, &from, true, 6 * S), n % 2 == 0 ? KNOWN : ADDED);
    }
    ps_destinations_fini(&list);
}

static void test_a_full_list_refuses_and_counts(void)
{
    ps_destinations_t list;
    ps_addr_t gone;
    CHECK_EQ(ps_destinations_init(&list, true, 7), PS_OK);
    for (int32_t n = 0; n < PS_DESTINATIONS_DYNAMIC_MAX + 10; n++) {
        const ps_addr_t from = address_of(n);
        CHECK_EQ(ps_destinations_on_sm(&list, n, &from, true, n),
                 n < PS_DESTINATIONS_DYNAMIC_MAX ? ADDED : FULL);
    }
    CHECK_EQ(list.refused, 10);
    CHECK(ps_destinations_expire(&list, 5 * S, 5 * S, &gone));
    const ps_addr_t late = address_of(9999);
    CHECK_EQ(ps_destinations_on_sm(&list, 9999, &late, true, 5 * S), ADDED);
    ps_destinations_fini(&list);
}

static void test_only_what_names_a_publication_gets_a_place(void)
{
    ps_destinations_t list;
    const ps_addr_t from = address_of(1);
    CHECK_EQ(ps_destinations_init(&list, true, 7), PS_OK);
    CHECK_EQ(ps_destinations_on_sm(&list, 1, &from, false, 0), KNOWN);
    CHECK_EQ(list.count, 0);
    CHECK_EQ(ps_destinations_on_join(&list, &from, 100 * MS, 0), ANSWER);
    CHECK_EQ(list.count, 0);
    CHECK_EQ(list.provisional_count, 1);
    CHECK_EQ(ps_destinations_on_sm(&list, 1, &from, true, 1), ADDED);
    CHECK_EQ(list.count, 1);
    CHECK_EQ(list.provisional_count, 0);
    CHECK_EQ(ps_destinations_on_join(&list, &from, 100 * MS, 2), KNOWN);
    CHECK_EQ(list.provisional_count, 0);
    ps_destinations_fini(&list);
}

static void test_provisional_places_are_few_and_short(void)
{
    ps_destinations_t list;
    ps_addr_t gone;
    CHECK_EQ(ps_destinations_init(&list, true, 7), PS_OK);
    for (int32_t n = 0; n < 1000; n++) { /* one address, many ports */
        ps_addr_t from = address_of(5);
        from.port = (uint16_t)(2000 + n);
        CHECK_EQ(ps_destinations_on_join(&list, &from, 100 * MS, n), ANSWER);
        CHECK(list.provisional_count <= PS_PROVISIONAL_PER_ADDRESS);
    }
    for (int32_t n = 0; n < 1000; n++) { /* many addresses: each is answered, the oldest goes */
        const ps_addr_t from = address_of(100 + n);
        CHECK_EQ(ps_destinations_on_join(&list, &from, 100 * MS, 1000 + n), ANSWER);
        CHECK_EQ(ps_destinations_on_join(&list, &from, 100 * MS, 1000 + n), KNOWN);
        CHECK(list.provisional_count <= PS_PROVISIONAL_MAX);
    }
    CHECK_EQ(list.provisional_count, PS_PROVISIONAL_MAX);
    CHECK(!ps_destinations_expire(&list, 5 * S, 2 * S, &gone));
    CHECK_EQ(list.provisional_count, PS_PROVISIONAL_MAX);
    CHECK(!ps_destinations_expire(&list, 5 * S, 2 * S + 2000, &gone));
    CHECK_EQ(list.provisional_count, 0);
    ps_destinations_fini(&list);
}

static bool has_address(const ps_destinations_t *list, const ps_addr_t *from)
{
    for (int32_t i = 0; i < list->count; i++) {
        if (ps_addr_equal(&list->items[i].address, from)) {
            return true;
        }
    }
    return false;
}

/* The same receiver at the same port of another address. */
static bool has_receiver(const ps_destinations_t *list, int64_t id, const ps_addr_t *from)
{
    for (int32_t i = 0; i < list->count; i++) {
        if (list->items[i].bound && list->items[i].receiver_id == id &&
            list->items[i].address.port == from->port) {
            return true;
        }
    }
    return false;
}

static void test_receivers_that_come_go_and_move(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ps_destinations_t list;
        ps_random_t random;
        ps_addr_t gone;
        int64_t now_ns = 0;
        ps_random_seed(&random, seed);
        CHECK_EQ(ps_destinations_init(&list, true, seed), PS_OK);
        for (int32_t i = 0; i < 20000; i++) {
            now_ns += (int64_t)ps_random_below(&random, 2 * MS);
            const int64_t id = (int64_t)ps_random_below(&random, 300);
            ps_addr_t from = address_of((int32_t)ps_random_below(&random, 400));
            from.port = (uint16_t)(1 + ps_random_below(&random, 4));
            if (ps_random_below(&random, 4) == 0) {
                (void)ps_destinations_on_join(&list, &from, 100 * MS, now_ns);
            } else {
                const bool placed = has_address(&list, &from);
                const bool moved = has_receiver(&list, id, &from);
                const int verdict = ps_destinations_on_sm(&list, id, &from, true, now_ns);
                CHECK(!placed || verdict == KNOWN);
                CHECK(placed || moved || verdict == ADDED);
            }
            while (ps_destinations_expire(&list, 300 * MS, now_ns, &gone)) {
                CHECK(!has_address(&list, &gone));
            }
            for (int32_t k = 0; k < list.count; k++) {
                CHECK(now_ns - list.items[k].heard_ns < 300 * MS);
            }
        }
        ps_destinations_fini(&list);
    }
}

int main(void)
{
    test_1500_receivers_have_a_place();
    test_a_full_list_refuses_and_counts();
    test_only_what_names_a_publication_gets_a_place();
    test_provisional_places_are_few_and_short();
    test_receivers_that_come_go_and_move();
    return 0;
}
