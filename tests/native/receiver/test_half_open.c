/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of which only a SETUP was seen: how many there are, and which one gives way. */
#include "ps_half_open.h"
#include "recv_world.h"

#define SECOND INT64_C(1000000000)

static ps_addr_t address_of(int32_t n)
{
    ps_addr_t address = memnet_addr(0, (uint16_t)(1000 + n % 50000));
    address.ip[0] = 10;
    address.ip[1] = (uint8_t)(n >> 16);
    address.ip[2] = (uint8_t)(n >> 8);
    address.ip[3] = (uint8_t)n;
    return address;
}

static ps_image_t *image_of(ps_half_open_t *half_open, int32_t handle)
{
    static uint8_t images[4096]; /* only their addresses count */
    ps_image_t *image = (ps_image_t *)(void *)&images[handle];
    ps_half_open_answered(half_open, handle, image);
    return image;
}

static void test_an_address_has_64_and_its_oldest_gives_way(void)
{
    ps_half_open_t half_open;
    ps_image_t *victim = NULL;
    ps_image_t *first = NULL;
    ps_addr_t from = address_of(1);
    CHECK_EQ(ps_half_open_init(&half_open, 4096, 7), PS_OK);
    for (int32_t n = 0; n < 64; n++) {
        from.port = (uint16_t)(n + 1); /* ports are free of charge */
        const int32_t handle = ps_half_open_enter(&half_open, &from, n, &victim);
        CHECK(handle > 0 && victim == NULL);
        ps_image_t *image = image_of(&half_open, handle);
        first = n == 0 ? image : first;
    }
    CHECK_EQ(ps_half_open_enter(&half_open, &from, SECOND - 1, &victim), 0);
    CHECK(victim == NULL); /* all are younger than a second */
    const ps_addr_t other = address_of(2);
    CHECK(ps_half_open_enter(&half_open, &other, SECOND - 1, &victim) > 0 && victim == NULL);
    CHECK(ps_half_open_enter(&half_open, &from, SECOND, &victim) > 0);
    CHECK(victim == first);
    CHECK_EQ(half_open.count, 65);
    ps_half_open_fini(&half_open);
}

static void test_all_have_1024_and_the_oldest_gives_way(void)
{
    ps_half_open_t half_open;
    ps_image_t *victim = NULL;
    ps_image_t *first = NULL;
    CHECK_EQ(ps_half_open_init(&half_open, 4096, 7), PS_OK);
    for (int32_t n = 0; n < 1024; n++) {
        const ps_addr_t from = address_of(n);
        const int32_t handle = ps_half_open_enter(&half_open, &from, n, &victim);
        CHECK(handle > 0 && victim == NULL);
        ps_image_t *image = image_of(&half_open, handle);
        first = n == 0 ? image : first;
    }
    const ps_addr_t late = address_of(5000);
    CHECK_EQ(ps_half_open_enter(&half_open, &late, SECOND - 1, &victim), 0);
    CHECK(ps_half_open_enter(&half_open, &late, SECOND, &victim) > 0);
    CHECK(victim == first);
    CHECK_EQ(half_open.count, 1024);
    ps_half_open_fini(&half_open);
}

static void test_few_wait_for_the_conductor(void)
{
    ps_half_open_t half_open;
    ps_image_t *victim = NULL;
    int32_t handles[64];
    CHECK_EQ(ps_half_open_init(&half_open, 4096, 7), PS_OK);
    for (int32_t n = 0; n < 64; n++) {
        const ps_addr_t from = address_of(n);
        handles[n] = ps_half_open_enter(&half_open, &from, n, &victim);
        CHECK(handles[n] > 0);
    }
    const ps_addr_t late = address_of(99);
    CHECK_EQ(ps_half_open_enter(&half_open, &late, 100 * SECOND, &victim), 0);
    ps_half_open_leave(&half_open, handles[5]); /* refused */
    CHECK(ps_half_open_enter(&half_open, &late, 100 * SECOND, &victim) > 0);
    CHECK(victim == NULL);
    ps_half_open_fini(&half_open);
}

/* Against a plain list: counts of each address and of all, and who is the oldest. */
static void test_sessions_that_come_go_and_are_established(void)
{
    enum { ADDRESSES = 60, MOST = 2048 };
    for (uint64_t seed = 1; seed <= 5; seed++) {
        ps_half_open_t half_open;
        ps_random_t random;
        int32_t live[MOST], of[MOST], count = 0;
        ps_image_t *images[MOST];
        int64_t since[MOST];
        int64_t now_ns = 0;
        ps_random_seed(&random, seed);
        CHECK_EQ(ps_half_open_init(&half_open, 4096, seed), PS_OK);
        for (int32_t i = 0; i < 60000; i++) {
            now_ns += (int64_t)ps_random_below(&random, 4000000);
            if (count > 0 && ps_random_below(&random, 5) == 0) {
                const int32_t k = (int32_t)ps_random_below(&random, (uint64_t)count);
                ps_half_open_leave(&half_open, live[k]);
                count--;
                for (int32_t m = k; m < count; m++) { /* in order of age */
                    live[m] = live[m + 1], of[m] = of[m + 1];
                    images[m] = images[m + 1], since[m] = since[m + 1];
                }
                continue;
            }
            const int32_t n = (int32_t)ps_random_below(&random, ADDRESSES);
            const ps_addr_t from = address_of(n);
            ps_image_t *victim = NULL;
            int32_t same = 0, oldest = -1;
            for (int32_t k = count - 1; k >= 0; k--) {
                same += of[k] == n;
                oldest = of[k] == n ? k : oldest;
            }
            oldest = same >= 64 ? oldest : count == 1024 ? 0 : -1;
            const int32_t handle = ps_half_open_enter(&half_open, &from, now_ns, &victim);
            const bool room = oldest < 0 || now_ns - since[oldest] >= SECOND;
            CHECK_EQ(handle > 0, room);
            CHECK(victim == (room && oldest >= 0 ? images[oldest] : NULL));
            for (int32_t m = oldest; victim != NULL && m < count - 1; m++) {
                live[m] = live[m + 1], of[m] = of[m + 1];
                images[m] = images[m + 1], since[m] = since[m + 1];
            }
            count -= victim != NULL;
            if (handle > 0) {
                live[count] = handle, of[count] = n, since[count] = now_ns;
                images[count] = image_of(&half_open, handle);
                count++;
            }
            CHECK_EQ(half_open.count, count);
        }
        ps_half_open_fini(&half_open);
    }
}

int main(void)
{
    test_an_address_has_64_and_its_oldest_gives_way();
    test_all_have_1024_and_the_oldest_gives_way();
    test_few_wait_for_the_conductor();
    test_sessions_that_come_go_and_are_established();
    return 0;
}
