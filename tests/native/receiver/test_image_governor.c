/* SPDX-License-Identifier: Apache-2.0
 * The governor of the receiver's host delays status messages. The test sets its word.
 */
#include "recv_world.h"

enum { STEP = WORLD_WINDOW / 4 + 1024 }; /* more than a quarter window */

static void open_image(world_t *world)
{
    const world_options_t plain = { 0 };
    world_open(world, &plain);
    world_make_image(world, &plain);
    memnet_discard(world->memnet);
}

static void set_interval(const world_t *world, int64_t interval_ns)
{
    ps_driver_slot_t *driver = world->shared->driver;
    atomic_store(&driver->status_interval_ns, interval_ns);
    atomic_store(&driver->pressure_ns, world->now_ns);
}

/* [from, to) arrives and is read at once. */
static void read_through(world_t *world, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to; at += 1024) {
        world_data(world, at, at + 1024, 64);
    }
    world_step(world);
    world_consume(world, to);
    world_step(world);
}

static void test_a_status_message_waits_for_the_interval(void)
{
    world_t world;
    open_image(&world);
    read_through(&world, 0, STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    set_interval(&world, 10 * MS);
    const int64_t sent_ns = world.now_ns;
    read_through(&world, STEP, 2 * STEP - 4096);
    world_pass(&world, 4 * MS);
    read_through(&world, 2 * STEP - 4096, 2 * STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    CHECK(!ps_receiver_has_work(world.driver->receiver));
    CHECK(!ps_receiver_is_busy(world.driver->receiver)); /* the thread may sleep */
    CHECK_EQ(atomic_load(&world.shared->images[world.image_slot].wake_position), INT64_MAX);
    world_pass(&world, sent_ns + 9 * MS - world.now_ns);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    world_pass(&world, 2 * MS);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    for (int64_t at = 2 * STEP; at < 3 * STEP; at += 1024) { /* the next message is due as before */
        world_data(&world, at, at + 1024, 64);
    }
    set_interval(&world, 0);
    world_step(&world);
    CHECK(atomic_load(&world.shared->images[world.image_slot].wake_position) <= 3 * STEP);
    world_consume(&world, 3 * STEP);
    CHECK(ps_receiver_has_work(world.driver->receiver));
    world_step(&world);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    world_close(&world);
}

/* As soon as the sender has used half of the window, the message leaves. */
static void test_half_a_window_ends_the_delay(void)
{
    world_t world;
    open_image(&world);
    read_through(&world, 0, STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    set_interval(&world, 10 * MS);
    read_through(&world, STEP, STEP + WORLD_WINDOW / 2 - 1024);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 0);
    read_through(&world, STEP + WORLD_WINDOW / 2 - 1024, STEP + WORLD_WINDOW / 2);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    world_close(&world);
}

static void test_an_old_or_impossible_interval_delays_nothing(void)
{
    static const int64_t intervals[] = { 0, -1, INT64_MIN, PS_STATUS_MOST_NS + 1, INT64_MAX };
    world_t world;
    int64_t at = STEP;
    open_image(&world);
    read_through(&world, 0, STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    for (size_t i = 0; i < sizeof intervals / sizeof *intervals; i++) {
        set_interval(&world, intervals[i]);
        read_through(&world, at, at + STEP);
        CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
        at += STEP;
    }
    set_interval(&world, 10 * MS);
    atomic_store(&world.shared->driver->pressure_ns, world.now_ns + 1); /* of the future */
    read_through(&world, at, at + STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    at += STEP;
    atomic_store(&world.shared->driver->pressure_ns, world.now_ns - PS_PRESSURE_STALE_NS);
    read_through(&world, at, at + STEP);
    CHECK_EQ(world_count_sent(&world, PS_TYPE_SM), 1);
    world_close(&world);
}

int main(void)
{
    RUN(test_a_status_message_waits_for_the_interval);
    RUN(test_half_a_window_ends_the_delay);
    RUN(test_an_old_or_impossible_interval_delays_nothing);
    return 0;
}
