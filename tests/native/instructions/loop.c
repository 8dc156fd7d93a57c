/* SPDX-License-Identifier: Apache-2.0
 * loop.c: one thread offers, steps the sender, moves the simulated network, steps the receiver and
 * polls, again and again.  `measure.py` runs it under callgrind and counts instructions a message,
 * which no load on the machine changes.
 *
 *   loop ROW MESSAGES    ROW: one of ROWS
 *
 * Counted is what measured() does: MESSAGES messages, after a fifth of them to warm up.
 */
#define _GNU_SOURCE 1

#include "two_hosts.h"

enum { OFFERS = 16, POLL = 64, CREDITS = 1024, TURN_NS = 20000, SET_UP_TURNS = 100000 };

typedef struct row {
    const char *name;
    int32_t length;
    two_hosts_params_t params;
} row_t;

#define ROW(IPC, EXCLUSIVE, CREDITS_)                                                              \
    { .ipc = (IPC), .exclusive = (EXCLUSIVE), .credits = (CREDITS_) }
static const row_t ROWS[] = { { "udp-32", 32, ROW(false, true, 0) },
                              { "udp-1344", 1344, ROW(false, true, 0) },
                              { "shared-32", 32, ROW(false, false, 0) },
                              { "ipc-32", 32, ROW(true, true, 0) },
                              { "ipc-shared-32", 32, ROW(true, false, 0) },
                              { "udp-32-credits", 32, ROW(false, true, CREDITS) },
                              { "shared-32-credits", 32, ROW(false, false, CREDITS) },
                              { "ipc-32-credits", 32, ROW(true, true, CREDITS) },
                              { "ipc-shared-32-credits", 32, ROW(true, false, CREDITS) } };

typedef struct loop {
    row_t row;
    two_hosts_t hosts;
    int64_t offered, received;
    uint8_t message[TWO_HOSTS_MTU];
} loop_t;

static void offer_some(loop_t *loop, int64_t most)
{
    for (int32_t i = 0; i < OFFERS && loop->offered < most; i++) {
        int64_t position =
            ps_pub_offer(loop->hosts.pub, loop->message, (size_t)loop->row.length, loop->offered);
        if (position == PS_ADMIN_ACTION) {
            position = ps_pub_offer(loop->hosts.pub, loop->message, (size_t)loop->row.length, 0);
        }
        if (position < 0) {
            CHECK(position == PS_BACK_PRESSURED || position == PS_NOT_CONNECTED ||
                  position == PS_NO_CREDIT);
            return;
        }
        loop->offered++;
    }
}

static void poll_some(loop_t *loop)
{
    ps_message_t messages[POLL];
    const int32_t count = ps_sub_poll(loop->hosts.sub, messages, POLL, PS_POLL_ASSEMBLE);
    CHECK(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        CHECK(messages[i].length == loop->row.length);
    }
    loop->received += count;
}

static void turn(loop_t *loop, int64_t most)
{
    offer_some(loop, most);
    two_hosts_step(&loop->hosts, TURN_NS);
    if (loop->hosts.sub != NULL) {
        poll_some(loop);
    }
}

/* Callgrind collects between entry and return. */
__attribute__((noinline)) static void measured(loop_t *loop, int64_t most)
{
    while (loop->received < most) {
        turn(loop, most);
    }
    __asm__ volatile("" : : : "memory");
}

int main(int argc, char **argv)
{
    static loop_t loop;
    for (size_t i = 0; argc == 3 && i < sizeof ROWS / sizeof ROWS[0]; i++) {
        loop.row = strcmp(ROWS[i].name, argv[1]) == 0 ? ROWS[i] : loop.row;
    }
    const int64_t messages = argc == 3 ? atoll(argv[2]) : 0;
    if (loop.row.name == NULL || messages < 1) {
        fprintf(stderr, "loop: expected the name of a row, and a number of messages from 1 on\n");
        return 2;
    }
    two_hosts_open(&loop.hosts, &loop.row.params);
    const int64_t warm = messages / 5;
    for (int32_t i = 0; i < SET_UP_TURNS && loop.received < warm; i++) {
        turn(&loop, warm);
        two_hosts_serve(&loop.hosts);
    }
    CHECK_EQ(loop.received, warm);
    measured(&loop, warm + messages);
    two_hosts_close(&loop.hosts);
    return 0;
}
