/* SPDX-License-Identifier: Apache-2.0
 *
 * test_overload.c: publishers under ps-policy=block offer more than the reader takes, for millions
 * of messages, on two hosts of the simulated network.  The memory of the stream stays within the
 * formula of docs/back-pressure.md: three terms for each log, and at most the depth and the
 * receiver window of accepted data that the reader has not released.  Each message arrives once, in
 * order.  PENSTOCK_OVERLOAD: messages of each row (make soak: 10^8).
 */
#include <malloc.h>

#include "ps_policy.h"
#include "two_hosts.h"

enum {
    DEPTH = 64 * 1024,
    LONGEST = 1344,
    OFFERS = 32, /* a turn, until one is refused */
    POLL = 8,    /* messages a turn: a quarter of what the publisher offers */
    TURN_NS = 20000,
    CYCLE = 4096, /* turns; in the first STOPPED of each, the reader does not poll */
    STOPPED = 300,
    LOOK = 1 << 10, /* turns from one look at the files and the heap to the next */
    DEFAULT_MESSAGES = 300000,
    SLACK = 64 * 1024 /* bytes: of the heap, and blocks that a file system needs for itself */
};

typedef struct row {
    const char *name;
    bool ipc, exclusive;
    int32_t low, high; /* bytes of a message */
} row_t;

static const row_t ROWS[] = { { "ipc, shared, mixed sizes", true, false, 8, LONGEST },
                              { "ipc, exclusive, 32 bytes", true, true, 32, 32 },
                              { "udp, shared, 32 bytes", false, false, 32, 32 },
                              { "udp, exclusive, mixed sizes", false, true, 8, LONGEST } };

typedef struct world {
    two_hosts_t hosts;
    const row_t *row;
    int64_t offered, refused, received;
    int64_t most; /* accepted bytes that were not released, at most */
    int64_t heap; /* bytes of the heap, at most, in the first quarter */
    uint8_t message[LONGEST];
} world_t;

static int64_t wanted = DEFAULT_MESSAGES;

/* Of the message with that number. */
static int32_t size_of(const row_t *row, int64_t number)
{
    const uint64_t word = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15);
    return row->low + (int32_t)((word >> 40) % (uint64_t)(row->high - row->low + 1));
}

static void offer_some(world_t *world, int64_t most)
{
    for (int32_t i = 0; i < OFFERS && world->offered < most; i++) {
        const size_t size = (size_t)size_of(world->row, world->offered);
        memcpy(world->message, &world->offered, sizeof world->offered);
        int64_t position = ps_pub_offer(world->hosts.pub, world->message, size, 0);
        if (position == PS_ADMIN_ACTION) {
            position = ps_pub_offer(world->hosts.pub, world->message, size, 0);
        }
        if (position < 0) {
            CHECK(position == PS_BACK_PRESSURED ||
                  (position == PS_NOT_CONNECTED && world->received == 0));
            world->refused += position == PS_BACK_PRESSURED ? 1 : 0;
            return;
        }
        world->offered++;
    }
}

static void poll_some(world_t *world)
{
    ps_message_t messages[POLL];
    const int32_t count = ps_sub_poll(world->hosts.sub, messages, POLL, PS_POLL_ASSEMBLE);
    CHECK(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        int64_t number;
        CHECK_EQ(messages[i].length, size_of(world->row, world->received));
        memcpy(&number, messages[i].data, sizeof number);
        CHECK_EQ(number, world->received);
        world->received++;
    }
}

/* The last message begins below the limit, so it may end beyond it. */
static void check_unreleased(world_t *world)
{
    const int64_t bound = DEPTH + (world->row->ipc ? 0 : TWO_HOSTS_WINDOW) +
                          ps_align32(PS_HEADER_BYTES + world->row->high);
    const int64_t released = world->hosts.img != NULL ? ps_img_position(world->hosts.img) : 0;
    const int64_t unreleased = ps_pub_position(world->hosts.pub) - released;
    CHECK(unreleased <= bound);
    world->most = unreleased > world->most ? unreleased : world->most;
}

/* After the first quarter of the messages the heap grows by less than a byte for each message: the
 * simulated network keeps its largest buffers. */
static void check_memory(world_t *world)
{
    const int64_t heap = (int64_t)mallinfo2().uordblks;
    for (int32_t which = 0; which < (world->row->ipc ? 1 : 2); which++) {
        CHECK(memory_of(world->hosts.sides[which].path) <=
              INT64_C(3) * TWO_HOSTS_TERM + PS_LOG_META_BYTES + SLACK);
    }
    if (world->received < wanted / 4) {
        world->heap = heap > world->heap ? heap : world->heap;
    }
    CHECK(heap <= world->heap + SLACK);
}

static void turn(world_t *world, int64_t number, int64_t most)
{
    offer_some(world, most);
    check_unreleased(world);
    two_hosts_step(&world->hosts, TURN_NS);
    if (world->hosts.sub != NULL && (number % CYCLE >= STOPPED || world->offered == most)) {
        poll_some(world);
    }
}

/* The account of refusals has each one. */
static void check_account(const world_t *world)
{
    ps_pressure_view_t view;
    int64_t refused = 0;
    CHECK_EQ(ps_pub_pressure(world->hosts.pub, &view), PS_OK);
    for (size_t i = 0; i < sizeof view.refused / sizeof view.refused[0]; i++) {
        refused += view.refused[i];
    }
    CHECK(refused >= world->refused);
    CHECK(view.refused_ns > 0);
}

static void run(const row_t *row)
{
    static world_t world;
    world = (world_t){ .row = row };
    const two_hosts_params_t params = {
        .ipc = row->ipc, .exclusive = row->exclusive, .policy = PS_POLICY_BLOCK, .depth = DEPTH
    };
    two_hosts_open(&world.hosts, &params);
    int64_t number = 0;
    for (; world.received < wanted; number++) {
        turn(&world, number, wanted);
        if (world.received == 0) {
            two_hosts_serve(&world.hosts);
        } else if (number % LOOK == 0) {
            check_memory(&world);
        }
        CHECK(number < wanted + 100 * CYCLE);
    }
    check_memory(&world);
    check_account(&world);
    CHECK_EQ(world.offered, wanted);
    CHECK(world.most > DEPTH / 2);
    CHECK(world.refused > number / 4); /* in most turns the publisher was refused */
    printf("ok %s: %lld messages, %lld refusals, at most %lld bytes unreleased\n", row->name,
           (long long)world.received, (long long)world.refused, (long long)world.most);
    two_hosts_close(&world.hosts);
}

int main(void)
{
    const char *stated = getenv("PENSTOCK_OVERLOAD");
    wanted = stated != NULL ? atoll(stated) : DEFAULT_MESSAGES;
    CHECK(wanted >= DEFAULT_MESSAGES);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        run(&ROWS[i]);
    }
    return 0;
}
