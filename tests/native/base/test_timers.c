/* SPDX-License-Identifier: Apache-2.0
 * test_timers.c: the heap of timers against a plain array, with random operations. */
#include "check.h"

#include "ps_random.h"
#include "ps_timers.h"

enum { MANY = 300, STEPS = 60000 };

typedef struct object {
    ps_timer_t timer;
    int64_t due_ns;
} object_t;

static int64_t earliest(const object_t *objects)
{
    int64_t due_ns = INT64_MAX;

    for (int32_t i = 0; i < MANY; i++) {
        if (objects[i].timer.at >= 0 && objects[i].due_ns < due_ns) {
            due_ns = objects[i].due_ns;
        }
    }
    return due_ns;
}

/* An entry that is out of order somewhere below becomes the first one only much later. */
static void check_order(const ps_timers_t *timers)
{
    for (int32_t at = 1; at < timers->count; at++) {
        CHECK(timers->entries[(at - 1) / 2].due_ns <= timers->entries[at].due_ns);
    }
}

static void change(ps_timers_t *timers, object_t *object, ps_random_t *random)
{
    const int64_t due_ns =
        ps_random_below(random, 20) == 0 ? INT64_MAX : (int64_t)ps_random_below(random, 1000);

    if (object->timer.at < 0) {
        object->due_ns = due_ns;
        ps_timers_add(timers, &object->timer, due_ns);
    } else if (ps_random_below(random, 3) == 0) {
        ps_timers_remove(timers, &object->timer);
        CHECK_EQ(object->timer.at, -1);
    } else {
        object->due_ns = due_ns;
        ps_timers_set(timers, &object->timer, due_ns);
    }
}

static void test_the_first_timer_is_the_earliest(void)
{
    static object_t objects[MANY];
    ps_timers_t timers;
    ps_random_t random;

    CHECK_EQ(ps_timers_init(&timers, MANY), 0);
    ps_random_seed(&random, 7);
    for (int32_t i = 0; i < MANY; i++) {
        objects[i].timer.at = -1;
    }
    CHECK_EQ(ps_timers_first_ns(&timers), INT64_MAX);
    for (int32_t step = 0; step < STEPS; step++) {
        object_t *object = &objects[ps_random_below(&random, MANY)];

        change(&timers, object, &random);
        check_order(&timers);
        CHECK_EQ(ps_timers_first_ns(&timers), earliest(objects));
        if (object->timer.at >= 0) {
            CHECK_EQ(ps_timers_due_ns(&timers, &object->timer), object->due_ns);
        }
    }
    ps_timers_fini(&timers);
}

static void test_timers_leave_in_order(void)
{
    static object_t objects[MANY];
    ps_timers_t timers;
    ps_random_t random;
    int64_t before_ns = -1;

    CHECK_EQ(ps_timers_init(&timers, MANY), 0);
    ps_random_seed(&random, 11);
    for (int32_t i = 0; i < MANY; i++) {
        objects[i].due_ns = (int64_t)ps_random_below(&random, 100);
        ps_timers_add(&timers, &objects[i].timer, objects[i].due_ns);
    }
    for (int32_t i = 0; i < MANY; i++) {
        const int64_t due_ns = ps_timers_first_ns(&timers);

        CHECK(due_ns >= before_ns);
        before_ns = due_ns;
        ps_timers_remove(&timers, ps_timers_first(&timers));
    }
    CHECK_EQ(timers.count, 0);
    ps_timers_fini(&timers);
}

int main(void)
{
    RUN(test_the_first_timer_is_the_earliest);
    RUN(test_timers_leave_in_order);
    return 0;
}
