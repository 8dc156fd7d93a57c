/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rates.c: ps-rate as publishers meet it: through the client, with a sender in virtual time.
 * In any second at most 1.1 of the rate is accepted, and two messages; and no less than the rate
 * when publishers always try.
 */
#include "ps_barrier.h"
#include "ps_client_publication.h"
#include "ps_publication.h"
#include "ps_spend.h"
#include "sender_rig.h"

enum { MOST = 200000, PUBLISHERS_MAX = 4, BATCH = 16, LONGEST = 8000 };
enum { OFFER, OFFER_BATCH, TRY_CLAIM, PATHS };

typedef struct row {
    int64_t messages_per_s, bytes_per_s;
    int32_t size, publishers, exclusive, kind, path;
    int64_t step_ns;
    int64_t credits; /* of the IPC reader; 0: the reader grants none */
} row_t;

typedef struct world {
    rig_t *rig;
    const row_t *row;
    ps_client_t *client[PUBLISHERS_MAX];
    ps_pub_t *pub[PUBLISHERS_MAX];
    int32_t reader; /* counter of the IPC reader */
    int64_t accepted, limited;
} world_t;

static int64_t accepted_ns[MOST];
static uint8_t payload[BATCH * LONGEST];
static int64_t offsets[BATCH + 1];

static void open_publishers(world_t *world)
{
    for (int32_t i = 0; i < world->row->publishers; i++) {
        rig_open_publisher(world->rig, 100 + i, world->row->exclusive, &world->client[i],
                           &world->pub[i]);
    }
}

/* Receivers take everything at once. */
static void turn(world_t *world, int64_t by_ns)
{
    rig_t *rig = world->rig;
    if (world->row->kind == RIG_IPC) {
        ps_counter_set(rig->cnc, world->reader, rig_tail(rig));
    } else {
        rig_sm(rig, 5, &rig->peer, rig_counter(rig, rig->sender_position), RIG_TERM / 2, 0);
        memnet_discard(rig->net);
    }
    rig_step(rig, by_ns);
}

static void open_world(world_t *world, const row_t *row)
{
    const rig_options_t options = { .kind = row->kind,
                                    .exclusive = row->exclusive,
                                    .rate_bytes_per_s = row->bytes_per_s,
                                    .rate_messages_per_s = row->messages_per_s };
    *world = (world_t){ .rig = rig_open(&options), .row = row };
    rig_step(world->rig, 0);
    if (row->kind == RIG_IPC) {
        world->reader = rig_make_counter(world->rig, 0);
        const ps_subscriber_params_t reader = { .position_counter_id = world->reader,
                                                .client_slot = -1,
                                                .tether = 1,
                                                .rejoin = 1,
                                                .credits = row->credits,
                                                .credit_burst = row->credits };
        CHECK_EQ(ps_publication_add_subscriber(world->rig->driver, world->rig->pub, &reader),
                 PS_OK);
    }
    open_publishers(world);
    turn(world, 0);
    turn(world, 0);
}

static void close_world(world_t *world)
{
    for (int32_t i = 0; i < world->row->publishers; i++) {
        ps_pub_close(world->pub[i]);
        ps_client_close(world->client[i]);
    }
    rig_close(world->rig);
}

/* One call: how many were accepted, or a code. */
static int64_t publish(world_t *world, int32_t publisher)
{
    ps_pub_t *pub = world->pub[publisher];
    const int32_t size = world->row->size;
    int32_t accepted = 0;
    ps_claim_t claim;
    int64_t code;
    switch (world->row->path) {
    case OFFER_BATCH:
        code = ps_pub_offer_batch(pub, payload, offsets, BATCH, &accepted);
        return accepted > 0 ? accepted : code;
    case TRY_CLAIM:
        code = ps_pub_try_claim(pub, (size_t)size, &claim);
        if (code > 0) {
            CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_OK);
        }
        return code > 0 ? 1 : code;
    default: code = ps_pub_offer(pub, payload, (size_t)size, 0); return code > 0 ? 1 : code;
    }
}

/* Publishers that never sleep, for a moment. */
static void try_all(world_t *world)
{
    int32_t refused = 0;
    for (int32_t i = 0; refused < 3 * world->row->publishers; i++) {
        const int64_t result = publish(world, i % world->row->publishers);
        refused += result <= 0;
        world->limited += result == PS_RATE_LIMITED;
        CHECK(result > 0 || result == PS_RATE_LIMITED || result == PS_BACK_PRESSURED ||
              result == PS_ADMIN_ACTION);
        for (int64_t n = 0; n < result; n++) {
            CHECK(world->accepted < MOST);
            accepted_ns[world->accepted++] = world->rig->now_ns;
        }
    }
}

/* Units of the rate that n messages are. */
static int64_t units(const row_t *row, int64_t n)
{
    return row->messages_per_s > 0 ? n : n * ps_align32(row->size + PS_HEADER_BYTES);
}

static void expect_rate_kept(const world_t *world, int64_t from)
{
    const row_t *row = world->row;
    const int64_t rate = row->messages_per_s > 0 ? row->messages_per_s : row->bytes_per_s;
    int64_t first = from;
    for (int64_t i = from; i < world->accepted; i++) {
        while (accepted_ns[i] - accepted_ns[first] >= S) {
            first++;
        }
        const int64_t most = rate + rate / 10 + units(row, 2);
        if (units(row, i - first + 1) > most) {
            fprintf(stderr, "size %d, %d publishers, exclusive %d, kind %d, way %d: %lld of %lld\n",
                    row->size, row->publishers, row->exclusive, row->kind, row->path,
                    (long long)units(row, i - first + 1), (long long)most);
        }
        CHECK(units(row, i - first + 1) <= most);
    }
}

static void run(const row_t *row)
{
    enum { SECONDS = 3 };
    world_t world;
    const int64_t rate = row->messages_per_s > 0 ? row->messages_per_s : row->bytes_per_s;
    for (int32_t i = 0; i <= BATCH; i++) {
        offsets[i] = (int64_t)i * row->size;
    }
    open_world(&world, row);
    for (int64_t at = 0; at < SECONDS * S; at += row->step_ns) {
        try_all(&world);
        turn(&world, row->step_ns);
    }
    expect_rate_kept(&world, 0);
    if (units(row, world.accepted + 2) < SECONDS * rate * 9 / 10) {
        fprintf(stderr, "size %d, %d publishers, exclusive %d, kind %d, way %d, rate %lld: %lld\n",
                row->size, row->publishers, row->exclusive, row->kind, row->path, (long long)rate,
                (long long)units(row, world.accepted));
    }
    CHECK(units(row, world.accepted + 2) >= SECONDS * rate * 9 / 10);
    const int64_t tenth = row->messages_per_s / 10 * ps_align32(row->size + PS_HEADER_BYTES);
    CHECK(row->messages_per_s == 0 || tenth > RIG_TERM / 4 || world.limited > 0);
    const int64_t before = world.accepted; /* a silence saves up a tenth of a second, no more */
    turn(&world, 5 * S);
    for (int32_t i = 0; i < 20; i++) {
        try_all(&world);
        turn(&world, 0);
    }
    CHECK(units(row, world.accepted - before - 2) <= rate / 10);
    close_world(&world);
}

static void test_every_way_keeps_the_rate(void)
{
    const int64_t messages[] = { 1, 500, 20000 };
    const int32_t sizes[] = { 1, 1376, LONGEST };
    for (int32_t kind = 0; kind < 2; kind++) {
        for (int32_t path = 0; path < PATHS; path++) {
            for (int32_t i = 0; i < 3; i++) {
                for (int32_t n = 0; n < 3 + 2; n++) { /* rates in messages, then in bytes */
                    for (int32_t owners = 0; owners < 3; owners++) {
                        const row_t row = { .messages_per_s = n < 3 ? messages[n] : 0,
                                            .bytes_per_s = n == 3   ? 20000
                                                           : n == 4 ? 1000000
                                                                    : 0,
                                            .size = sizes[i],
                                            .publishers = owners == 2 ? 4 : 1,
                                            .exclusive = owners == 0,
                                            .kind = kind ? RIG_IPC : RIG_UNICAST,
                                            .path = path,
                                            .step_ns = 2 * MS };
                        const bool fits = path != TRY_CLAIM || sizes[i] <= RIG_MTU - 32;
                        if (fits && row.messages_per_s * sizes[i] < 8000000) {
                            run(&row);
                        }
                    }
                }
            }
        }
    }
}

/* Claims that are given up, and publishers that die between taking an ordinal and committing, cost
 * the stream nothing for long. */
static void test_lost_ordinals_do_not_stop_a_stream(void)
{
    const row_t row = { .messages_per_s = 100,
                        .size = 50,
                        .publishers = 2,
                        .kind = RIG_UNICAST,
                        .path = OFFER,
                        .step_ns = 2 * MS };
    world_t world;
    ps_claim_t claim;
    uint32_t epoch = 0;
    open_world(&world, &row);
    for (int32_t round = 0; round < 40; round++) {
        for (int32_t i = 0; i < 5; i++) { /* died with the ordinal taken and nothing reserved */
            (void)ps_pub_take(world.pub[0], 1, &epoch);
        }
        if (ps_pub_try_claim(world.pub[1], 50, &claim) > 0) { /* died with a claim open */
            const int32_t slot = world.client[1]->slot;
            turn(&world, 0);
            CHECK_EQ(ps_publication_unblock(world.rig->driver, world.rig->pub, slot), PS_OK);
        }
        for (int32_t i = 0; i < 500; i++) {
            turn(&world, row.step_ns);
        }
    }
    world.accepted = 0;
    for (int32_t i = 0; i < 2000; i++) {
        try_all(&world);
        turn(&world, row.step_ns);
    }
    CHECK(world.accepted >= 360);
    close_world(&world);
}

/* The byte limit lies within a message that began below it. The only reader has read the message
 * when it dies, then the daemon dies: the next reader begins behind the message, and the stream
 * keeps its rate. */
static void test_a_limit_within_a_message_survives_the_daemon(void)
{
    const row_t row = { .bytes_per_s = 256 * 1024,
                        .size = LONGEST,
                        .publishers = 1,
                        .exclusive = 1,
                        .kind = RIG_IPC,
                        .path = OFFER,
                        .step_ns = 2 * MS };
    world_t world;
    open_world(&world, &row);
    rig_t *rig = world.rig;
    try_all(&world);
    const int64_t tail = rig_tail(rig);
    CHECK(rig_counter(rig, rig->limit) < tail); /* the last message exceeds it */
    turn(&world, 0);
    CHECK_EQ(ps_publication_remove_subscriber(rig->driver, rig->pub, world.reader), PS_OK);
    rig_step(rig, MS);
    CHECK_EQ(rig->log.meta->is_connected, 0);
    rig_succeed(rig);
    ps_publication_params_t params = rig_adopted_publication(rig);
    params.rate_bytes_per_s = row.bytes_per_s;
    params.exclusive = 1;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    rig_step(rig, 10 * MS);
    world.reader = rig_add_reader(rig, -1, -1, 1); /* no position: the stream's counts */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, world.reader), tail);
    const int64_t before = world.accepted;
    for (int64_t at = 0; at < 2 * S; at += row.step_ns) {
        try_all(&world);
        turn(&world, row.step_ns);
    }
    expect_rate_kept(&world, before);
    CHECK(units(&row, world.accepted - before + 2) >= 2 * row.bytes_per_s * 9 / 10);
    close_world(&world);
}

/* An exclusive publisher has leased credits when its stream becomes silent. The lease gives nothing
 * beyond what the silence saved up: a tenth of a second of the rate. */
static void test_a_lease_does_not_lengthen_a_burst(void)
{
    enum { RATE = 1000 };
    const row_t row = { .messages_per_s = RATE,
                        .size = 1,
                        .publishers = 1,
                        .exclusive = 1,
                        .kind = RIG_IPC,
                        .path = OFFER,
                        .credits = 10 * RATE };
    world_t world;
    open_world(&world, &row);
    rig_t *rig = world.rig;
    turn(&world, MS);
    CHECK(rig->pub->credits.on);
    (void)publish(&world, 0); /* finds the limit in its other place */
    for (int32_t round = 0; round < 3; round++) {
        turn(&world, 5 * S);
        CHECK(publish(&world, 0) > 0);
        turn(&world, 0);
        CHECK(ps_spend_leased(rig->slot) > 0 || !ps_barrier_available());
        turn(&world, 5 * S);
        const int64_t before = world.accepted;
        for (int32_t i = 0; i < 20; i++) {
            try_all(&world);
            turn(&world, 0);
        }
        CHECK_EQ(world.accepted - before, RATE / 10);
        CHECK(world.limited > 0);
    }
    close_world(&world);
}

static void test_an_aborted_claim_returns_its_ordinal(void)
{
    const row_t row = { .messages_per_s = 100, .size = 50, .publishers = 1, .kind = RIG_IPC };
    for (int32_t exclusive = 0; exclusive < 2; exclusive++) {
        row_t one = row;
        world_t world;
        ps_claim_t claim;
        one.exclusive = exclusive;
        open_world(&world, &one);
        const uint64_t before = atomic_load(&world.rig->slot->spend);
        for (int32_t i = 0; i < 50; i++) { /* five times what the rate admits at once */
            CHECK(ps_pub_try_claim(world.pub[0], 50, &claim) > 0);
            CHECK_EQ(atomic_load(&world.rig->slot->spend), before + 1);
            CHECK_EQ(ps_pub_abort(world.pub[0], &claim), PS_OK);
        }
        CHECK_EQ(atomic_load(&world.rig->slot->spend), before);
        close_world(&world);
    }
}

static void test_the_word_wraps_and_keeps_its_epoch(void)
{
    _Atomic uint64_t word;
    uint32_t epoch = 0;
    const uint64_t seven = UINT64_C(7) << PS_SPENT_BITS;
    const int64_t near = (INT64_C(5) << PS_SPENT_BITS) - 3; /* three below a wrap */
    for (int32_t alone = 0; alone < 2; alone++) {
        atomic_store(&word, seven | ((uint64_t)near & PS_SPENT_MASK));
        CHECK_EQ(ps_spent_near(atomic_load(&word), near + 1000), near);
        CHECK_EQ(ps_spend(&word, near + 10, 8, alone, &epoch), 8);
        CHECK_EQ(epoch, 7);
        CHECK_EQ(ps_spent_near(atomic_load(&word), near), near + 8);
        CHECK_EQ(ps_spend(&word, near + 10, 8, alone, &epoch), 2);
        CHECK_EQ(ps_spend(&word, near + 10, 8, alone, &epoch), 0);
        ps_spend_return(&word, 10, alone, 6); /* of an epoch that is over */
        CHECK_EQ(ps_spent_near(atomic_load(&word), near), near + 10);
        ps_spend_return(&word, 10, alone, 7);
        CHECK_EQ(atomic_load(&word), seven | ((uint64_t)near & PS_SPENT_MASK));
        atomic_fetch_or(&word, PS_SPEND_REVOKED);
        CHECK_EQ(ps_spend(&word, near + 10, 1, alone, &epoch), 0);
    }
}

int main(void)
{
    test_the_word_wraps_and_keeps_its_epoch();
    test_an_aborted_claim_returns_its_ordinal();
    test_lost_ordinals_do_not_stop_a_stream();
    test_a_limit_within_a_message_survives_the_daemon();
    test_a_lease_does_not_lengthen_a_burst();
    test_every_way_keeps_the_rate();
    return 0;
}
