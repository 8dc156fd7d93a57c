/* SPDX-License-Identifier: Apache-2.0
 * ps_bench.c: see ps_bench.h. */
#include "ps_bench.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
    POLL_LIMIT = 256,
    YIELDS = 16,
    PARK_NS = 1000 * 1000,
    CLOCK_EVERY = 256,
    SIZE_MAX_BYTES = 65536,
    SPIN_CHECKS = 64
};

static const int64_t ECHO_NS = INT64_C(5000000000);

static const ps_fast_table_t *core; /* set once, before any loop runs */

int ps_bench_connect(const ps_fast_table_t *table)
{
    if (table->version != PS_FAST_VERSION || table->size < sizeof *table) {
        return PS_E_VERSION;
    }
    core = table;
    return PS_OK;
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_for_room(ps_client_t *client, ps_pub_t *pub)
{
    const uint32_t ticket = core->client_ticket(client);
    core->pub_want_room(pub);
    if (core->pub_available_window(pub) <= 0 || core->pub_credits(pub) <= 0) {
        (void)core->client_sleep(client, ticket, PARK_NS);
    }
}

static void sleep_for_data(ps_client_t *client, ps_sub_t *sub, int64_t timeout_ns)
{
    const uint32_t ticket = core->client_ticket(client);
    if (!core->sub_has_data(sub)) {
        (void)core->client_sleep(client, ticket, timeout_ns);
    }
}

/* Codes that a later offer may get past. */
static bool is_pressure(int64_t code)
{
    return code == PS_BACK_PRESSURED || code == PS_ADMIN_ACTION || code == PS_NOT_CONNECTED ||
           (code <= PS_NO_CREDIT && code >= PS_DAEMON_AWAY && code != PS_DROPPED &&
            code != PS_FAILED);
}

/* Offers once, waiting for room; position, 0 = time is up, or a code that is not pressure. */
static int64_t offer_waiting(ps_client_t *client, ps_pub_t *pub, const uint8_t *message,
                             int32_t size, int64_t until_ns, ps_bench_result_t *out)
{
    int32_t waits = 0;
    for (;;) {
        const int64_t position = core->pub_offer(pub, message, (size_t)size, 0);
        if (position > 0) {
            return position;
        }
        if (!is_pressure(position)) {
            return position;
        }
        out->refusals++;
        if (monotonic_ns() >= until_ns) {
            return 0;
        }
        if (position == PS_ADMIN_ACTION) {
            continue;
        }
        if (++waits < YIELDS) {
            (void)sched_yield();
        } else {
            sleep_for_room(client, pub);
        }
    }
}

static void write_message(uint8_t *message, int32_t size, uint64_t number)
{
    memcpy(message, &number, sizeof number);
    memset(message + size - 8, (int)(number & 0xff), 8);
}

int ps_bench_publish(ps_client_t *client, ps_pub_t *pub, int32_t size, int64_t until_ns,
                     int64_t max_messages, ps_bench_result_t *out)
{
    uint8_t message[SIZE_MAX_BYTES];
    if (size < 16 || size > SIZE_MAX_BYTES) {
        return core->fail(PS_E_INVALID, "message size %d is not in 16..%d", size, SIZE_MAX_BYTES);
    }
    memset(message, 0, (size_t)size);
    while (out->messages < max_messages) {
        write_message(message, size, (uint64_t)out->messages);
        const int64_t position = offer_waiting(client, pub, message, size, until_ns, out);
        if (position <= 0) {
            return (int)position;
        }
        out->messages++;
        out->bytes += size;
        if (out->messages % CLOCK_EVERY == 0 || out->first_ns == 0) {
            out->last_ns = monotonic_ns();
            out->first_ns = out->first_ns == 0 ? out->last_ns : out->first_ns;
            if (out->last_ns >= until_ns) {
                return PS_OK;
            }
        }
    }
    out->last_ns = monotonic_ns();
    return PS_OK;
}

static inline uint64_t fold_hash(uint64_t hash, uint64_t first, uint64_t last)
{
    return (hash ^ first) * UINT64_C(0x9E3779B97F4A7C15) + last;
}

static inline void fold(ps_bench_result_t *out, const uint8_t *data, int64_t length)
{
    uint64_t first = 0;
    uint64_t last = 0;
    if (length >= 16) {
        memcpy(&first, data, sizeof first);
        memcpy(&last, data + length - 8, sizeof last);
    }
    out->out_of_order += first != (uint64_t)out->messages;
    out->hash = fold_hash(out->hash, first, last);
    out->messages++;
    out->bytes += length;
}

int ps_bench_receive(ps_client_t *client, ps_sub_t *sub, int64_t until_ns, int64_t max_messages,
                     ps_bench_result_t *out)
{
    ps_message_t messages[POLL_LIMIT];
    int32_t idle = 0;
    while (out->messages < max_messages) {
        const int32_t count = core->sub_poll(sub, messages, POLL_LIMIT, PS_POLL_ASSEMBLE);
        if (count < 0) {
            return count;
        }
        for (int32_t i = 0; i < count; i++) {
            fold(out, messages[i].data, (int64_t)messages[i].length);
        }
        if (count > 0) {
            idle = 0;
        }
        if (count > 0 && out->first_ns != 0 && (out->messages & 0xfff) > POLL_LIMIT) {
            continue;
        }
        const int64_t now_ns = monotonic_ns();
        if (count > 0) {
            out->first_ns = out->first_ns == 0 ? now_ns : out->first_ns;
            out->last_ns = now_ns;
        }
        if (now_ns >= until_ns) {
            return PS_OK;
        }
        if (count == 0 && ++idle < YIELDS) {
            (void)sched_yield();
        } else if (count == 0) {
            sleep_for_data(client, sub, PARK_NS);
        }
    }
    out->last_ns = monotonic_ns();
    return PS_OK;
}

/* Polls one message, spinning then parking; count as ps_sub_poll, 0 = time is up. */
static int32_t poll_one(ps_client_t *client, ps_sub_t *sub, ps_message_t *message, int64_t spin_ns,
                        int64_t until_ns)
{
    const int64_t begin_ns = monotonic_ns();
    for (;;) {
        for (int32_t i = 0; i < SPIN_CHECKS; i++) {
            const int32_t count = core->sub_poll(sub, message, 1, PS_POLL_ASSEMBLE);
            if (count != 0) {
                return count;
            }
            if (spin_ns == 0) {
                break;
            }
        }
        const int64_t now_ns = monotonic_ns();
        if (now_ns >= until_ns) {
            return 0;
        }
        if (now_ns - begin_ns >= spin_ns) {
            sleep_for_data(client, sub, until_ns - now_ns);
        }
    }
}

int ps_bench_ping(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int32_t size, int32_t count,
                  int64_t spin_ns, int64_t *times_ns)
{
    uint8_t message[SIZE_MAX_BYTES] = { 0 };
    ps_bench_result_t ignored = { 0 };
    ps_message_t echo;
    if (size < 1 || size > SIZE_MAX_BYTES) {
        return core->fail(PS_E_INVALID, "message size %d is not in 1..%d", size, SIZE_MAX_BYTES);
    }
    for (int32_t i = 0; i < count; i++) {
        const int64_t begin_ns = monotonic_ns();
        memcpy(message, &i, size < (int32_t)sizeof i ? (size_t)size : sizeof i);
        const int64_t until_ns = begin_ns + ECHO_NS;
        const int64_t position = offer_waiting(client, pub, message, size, until_ns, &ignored);
        const int32_t got =
            position > 0 ? poll_one(client, sub, &echo, spin_ns, until_ns) : (int32_t)position;
        if (got <= 0) {
            return got < 0 ? got : core->fail(PS_E_TIMEOUT, "no echo of message %d within 5 s", i);
        }
        times_ns[i] = monotonic_ns() - begin_ns;
        if (echo.length != size || memcmp(echo.data, message, (size_t)size) != 0) {
            return core->fail(PS_E_CORRUPT, "the echo of message %d is another message", i);
        }
    }
    return PS_OK;
}

int ps_bench_pong(ps_client_t *client, ps_pub_t *pub, ps_sub_t *sub, int64_t until_ns,
                  int64_t spin_ns)
{
    ps_bench_result_t ignored = { 0 };
    ps_message_t message;
    for (;;) {
        const int32_t got = poll_one(client, sub, &message, spin_ns, until_ns);
        if (got <= 0) {
            return got;
        }
        /* The call may end, but not before the echo: only this thread has the message. */
        const int64_t echo_ns = monotonic_ns() + ECHO_NS;
        const int64_t position =
            offer_waiting(client, pub, message.data, (int32_t)message.length, echo_ns, &ignored);
        if (position <= 0) {
            return position < 0 ? (int)position : core->fail(PS_E_TIMEOUT, "no room for an echo");
        }
    }
}

void ps_bench_fill(uint8_t *base, int32_t size, int64_t first, int32_t count)
{
    memset(base, 0, (size_t)size * (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        write_message(base + (int64_t)i * size, size, (uint64_t)(first + i));
    }
}

void ps_bench_fold(const uint8_t *base, int32_t size, int64_t count, ps_bench_result_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        fold(out, base + i * size, size);
    }
}

void ps_bench_fold_messages(const ps_message_t *messages, int32_t count, ps_bench_result_t *out)
{
    for (int32_t i = 0; i < count; i++) {
        fold(out, messages[i].data, (int64_t)messages[i].length);
    }
}

uint64_t ps_bench_expected(int64_t count)
{
    uint64_t hash = 0;
    for (uint64_t i = 0; i < (uint64_t)count; i++) {
        hash = fold_hash(hash, i, (i & 0xff) * UINT64_C(0x0101010101010101));
    }
    return hash;
}

/* One tick's messages of one publication; 0 or a code that is not pressure. */
static int offer_tick(ps_pub_t *pub, uint8_t *message, int32_t size, int32_t per_tick,
                      ps_bench_result_t *out)
{
    for (int32_t i = 0; i < per_tick; i++) {
        write_message(message, size, (uint64_t)out->messages);
        int64_t position = PS_ADMIN_ACTION;
        for (int32_t turn = 0; turn < YIELDS && position == PS_ADMIN_ACTION; turn++) {
            position = core->pub_offer(pub, message, (size_t)size, 0);
        }
        if (position > 0) {
            out->messages++;
            out->bytes += size;
            continue;
        }
        out->refusals++;
        return is_pressure(position) ? PS_OK : (int)position;
    }
    return PS_OK;
}

static void sleep_until(int64_t at_ns)
{
    const struct timespec at = { .tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

int ps_bench_publish_paced(ps_client_t *client, ps_pub_t **pubs, int32_t count, int32_t size,
                           int32_t per_tick, int64_t tick_ns, int64_t until_ns,
                           ps_bench_result_t *outs)
{
    uint8_t message[SIZE_MAX_BYTES] = { 0 };
    (void)client;
    if (size < 16 || size > SIZE_MAX_BYTES || tick_ns <= 0) {
        return core->fail(PS_E_INVALID, "message size %d is not in 16..%d", size, SIZE_MAX_BYTES);
    }
    for (int64_t at_ns = monotonic_ns(); at_ns < until_ns; at_ns += tick_ns) {
        sleep_until(at_ns);
        for (int32_t i = 0; i < count; i++) {
            const int code = offer_tick(pubs[i], message, size, per_tick, &outs[i]);
            if (code < 0) {
                return code;
            }
        }
    }
    return PS_OK;
}

int ps_bench_receive_many(ps_client_t *client, ps_sub_t **subs, int32_t count, int64_t until_ns,
                          ps_bench_result_t *outs)
{
    ps_message_t messages[POLL_LIMIT];
    for (;;) {
        const uint32_t ticket = core->client_ticket(client);
        int64_t got = 0;
        for (int32_t i = 0; i < count; i++) {
            const int32_t polled = core->sub_poll(subs[i], messages, POLL_LIMIT, PS_POLL_ASSEMBLE);
            if (polled < 0) {
                return polled;
            }
            for (int32_t j = 0; j < polled; j++) {
                fold(&outs[i], messages[j].data, (int64_t)messages[j].length);
            }
            got += polled;
        }
        if (monotonic_ns() >= until_ns) {
            return PS_OK;
        }
        if (got == 0) {
            (void)core->client_sleep(client, ticket, PARK_NS * 10);
        }
    }
}
