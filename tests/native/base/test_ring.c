/* SPDX-License-Identifier: Apache-2.0
 * The queue between conductor and agents: order, fullness, and two threads at once.  And the
 * learned patience of a parking thread.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "penstock.h"
#include "ps_idle.h"
#include "ps_ring.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct record {
    uint64_t number;
    uint64_t inverse;
    uint8_t body[40];
} record_t;

static record_t record_of(uint64_t number)
{
    record_t record = { .number = number, .inverse = ~number };
    memset(record.body, (int)(number & 0xFF), sizeof record.body);
    return record;
}

static bool is_record(const record_t *record, uint64_t number)
{
    const record_t expected = record_of(number);
    return memcmp(record, &expected, sizeof expected) == 0;
}

static void test_capacity_is_a_power_of_two(void)
{
    ps_ring_t ring;
    CHECK(ps_ring_init(&ring, 3, 8) == PS_E_INVALID && ps_ring_init(&ring, 0, 8) == PS_E_INVALID);
    CHECK(ps_ring_init(&ring, -4, 8) == PS_E_INVALID);
}

static void test_order_and_fullness(void)
{
    ps_ring_t ring;
    record_t out;
    CHECK(ps_ring_init(&ring, 4, sizeof(record_t)) == PS_OK);
    CHECK(ps_ring_is_empty(&ring) && !ps_ring_pop(&ring, &out));
    uint64_t put = 0, taken = 0;
    for (int lap = 0; lap < 9; lap++) { /* the seam is at every place once */
        while (put - taken < 4) {
            const record_t record = record_of(put++);
            CHECK(ps_ring_push(&ring, &record) && !ps_ring_is_empty(&ring));
        }
        const record_t extra = record_of(999);
        CHECK(!ps_ring_push(&ring, &extra));
        for (int i = 0; i < 1 + lap % 4; i++) {
            CHECK(ps_ring_pop(&ring, &out) && is_record(&out, taken));
            taken++;
        }
    }
    while (ps_ring_pop(&ring, &out)) {
        CHECK(is_record(&out, taken));
        taken++;
    }
    CHECK(taken == put && ps_ring_is_empty(&ring));
    ps_ring_free(&ring);
}

enum { MANY = 200000 };

static void *produce(void *argument)
{
    for (uint64_t number = 0; number < MANY; number++) {
        const record_t record = record_of(number);
        while (!ps_ring_push(argument, &record)) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void test_two_threads(void)
{
    ps_ring_t ring;
    pthread_t producer;
    CHECK(ps_ring_init(&ring, 64, sizeof(record_t)) == PS_OK);
    CHECK(pthread_create(&producer, NULL, produce, &ring) == 0);
    for (uint64_t number = 0; number < MANY;) {
        record_t record;
        if (ps_ring_pop(&ring, &record)) {
            CHECK(is_record(&record, number));
            number++;
        } else {
            (void)sched_yield();
        }
    }
    CHECK(pthread_join(producer, NULL) == 0 && ps_ring_is_empty(&ring));
    ps_ring_free(&ring);
}

/* Work comes wait_ns after each silence; does the thread stay awake for it? */
static bool stays_awake(ps_idle_state_t *idle, int64_t *now_ns, int64_t wait_ns)
{
    bool awake = true;
    const int64_t due_ns = *now_ns + wait_ns;
    (void)ps_idle_on_work(idle, *now_ns, false);
    for (; *now_ns < due_ns && awake; *now_ns += 500) {
        awake = ps_idle_on_nothing(idle, *now_ns) == PS_IDLE_AGAIN;
    }
    *now_ns = due_ns;
    (void)ps_idle_on_work(idle, *now_ns, false);
    return awake;
}

static void test_parking_learns(void)
{
    ps_idle_state_t idle;
    int64_t now_ns = 1000000;
    ps_idle_init(&idle, PS_IDLE_PARK, 2);
    CHECK(!stays_awake(&idle, &now_ns, 5000)); /* knows nothing yet: sleeps at once */
    int rounds = 0;
    while (!stays_awake(&idle, &now_ns, 5000)) {
        CHECK(++rounds < 40);
    }
    CHECK(stays_awake(&idle, &now_ns, 5000));
    CHECK(!stays_awake(&idle, &now_ns, 100000000)); /* it came late: gave up waiting */
    rounds = 0;
    while (idle.learned_ns < 200000) { /* and after some more of these does not even start */
        CHECK(++rounds < 10);
        CHECK(!stays_awake(&idle, &now_ns, 100000000));
    }
    (void)ps_idle_on_work(&idle, now_ns, false);
    CHECK(ps_idle_on_nothing(&idle, now_ns) == PS_IDLE_SLEEP);
}

static void test_backing_off_sleeps_longer_and_longer(void)
{
    ps_idle_state_t idle;
    ps_idle_init(&idle, PS_IDLE_BACKOFF, 2);
    int64_t longest_ns = 0;
    for (int i = 0; i < 100; i++) {
        if (ps_idle_on_nothing(&idle, i) == PS_IDLE_PAUSE) {
            CHECK(idle.pause_ns >= longest_ns && idle.pause_ns <= 1000000);
            longest_ns = idle.pause_ns;
        }
    }
    CHECK(longest_ns == 1000000);
    (void)ps_idle_on_work(&idle, 100, false);
    CHECK(ps_idle_on_nothing(&idle, 101) == PS_IDLE_AGAIN);
}

/* The processor is offered after what was waited for, never within a stretch of work. */
static void test_light_work_that_was_waited_for_yields(void)
{
    ps_idle_state_t idle;
    ps_idle_init(&idle, PS_IDLE_PARK, PS_IDLE_FEW_CPUS);
    CHECK(!ps_idle_on_work(&idle, 1000, true)); /* nothing was waited for */
    (void)ps_idle_on_nothing(&idle, 2000);
    CHECK(!ps_idle_on_work(&idle, 3000, false));
    (void)ps_idle_on_nothing(&idle, 4000);
    CHECK(ps_idle_on_work(&idle, 5000, true));
    CHECK(!ps_idle_on_work(&idle, 6000, true));
    for (int32_t strategy = PS_IDLE_PARK; strategy <= PS_IDLE_SPIN; strategy++) {
        ps_idle_init(&idle, strategy, PS_IDLE_FEW_CPUS + 1);
        (void)ps_idle_on_nothing(&idle, 2000);
        CHECK(!ps_idle_on_work(&idle, 3000, true)); /* there are others */
    }
}

/* With more CPUs, others need not wait for this one's. */
static void test_who_parks_on_few_cpus_may_nap(void)
{
    ps_idle_state_t idle;
    for (int32_t strategy = PS_IDLE_PARK; strategy <= PS_IDLE_SPIN; strategy++) {
        ps_idle_init(&idle, strategy, PS_IDLE_FEW_CPUS);
        CHECK(ps_idle_may_nap(&idle) == (strategy == PS_IDLE_PARK));
        ps_idle_init(&idle, strategy, PS_IDLE_FEW_CPUS + 1);
        CHECK(!ps_idle_may_nap(&idle));
    }
}

int main(void)
{
    test_capacity_is_a_power_of_two();
    test_order_and_fullness();
    test_two_threads();
    test_parking_learns();
    test_backing_off_sleeps_longer_and_longer();
    test_light_work_that_was_waited_for_yields();
    test_who_parks_on_few_cpus_may_nap();
    puts("ok");
    return 0;
}
