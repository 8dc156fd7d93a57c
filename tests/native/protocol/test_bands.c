/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bands.c: the ready set in virtual time: shares, order, the bound of each wait, aging, and
 * the share of retransmits. PS_BANDS_PICKS sets the number of picks (make soak: 10^8).
 */
#include "ps_bands.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ps_priority.h"

enum { STREAMS = 512, MTU = 1408 };
#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

typedef struct stream {
    ps_band_entry_t entry;
    int64_t bytes;    /* sent */
    int64_t bound;    /* of the running wait */
    int64_t asked;    /* bytes that all were charged when the wait began */
    int64_t quantum;  /* when the wait began */
    int64_t priority; /* base */
    uint64_t order;   /* of its add */
    bool repair;
    bool background;
} stream_t;

typedef struct world {
    ps_bands_t bands;
    stream_t streams[STREAMS];
    int32_t count;
    int64_t charged;
    int64_t longest_wait;
    uint64_t adds;
    int64_t now_ns;
    uint64_t random;
    bool changes; /* the quantum changes while streams wait */
} world_t;

static uint64_t draw(world_t *world, uint64_t below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (world->random >> 33) % below;
}

static world_t *make(int32_t count, uint64_t seed)
{
    world_t *world = calloc(1, sizeof(*world));
    CHECK(world != NULL);
    ps_bands_init(&world->bands);
    world->count = count;
    world->random = seed;
    return world;
}

/* The bound for any quanta during the wait: the rounds are those of the smallest quantum, and each
 * of them sends at most as much as with the largest. */
static int64_t bound_of_any_quantum(const ps_bands_t *bands, int32_t list, int64_t ahead)
{
    const double turn = 1.0 + (double)MTU / PS_BANDS_QUANTUM_MIN; /* in quanta, at most */
    const double weight = (double)bands->lists[list].weight / PS_BANDS_WEIGHT_UNIT;
    const double lifts = list == PS_BAND_BACKGROUND ? 0 : PS_BAND_B4 - list;
    double quanta = 2 * (double)(ahead + 1) * turn + 4 * turn;
    if (list != PS_BAND_REPAIR) {
        const double rounds = (double)(int64_t)((double)(ahead + 2) * turn / weight + 1) + 2;
        const double round = (double)PS_BANDS_WEIGHT_SUM / PS_BANDS_WEIGHT_UNIT;
        quanta = 2 * ((rounds + 7 * lifts) * round + PS_BAND_COUNT * turn) + 2 * turn;
    }
    return (int64_t)(quanta * PS_BANDS_QUANTUM_MAX);
}

static void add(world_t *world, stream_t *stream, int32_t list)
{
    const int64_t ahead = world->bands.lists[list].count;
    stream->bound = world->changes ? bound_of_any_quantum(&world->bands, list, ahead)
                                   : ps_bands_bound(&world->bands, list, ahead, MTU);
    stream->asked = world->charged;
    stream->order = world->adds++;
    stream->quantum = world->bands.quantum;
    stream->entry.base = (int32_t)stream->priority;
    ps_bands_add(&world->bands, &stream->entry, list, world->now_ns);
}

static int32_t list_of(const stream_t *stream)
{
    return stream->repair       ? PS_BAND_REPAIR
           : stream->background ? PS_BAND_BACKGROUND
                                : ps_priority_band((int32_t)stream->priority);
}

static stream_t *pick(world_t *world, int32_t *list)
{
    ps_band_entry_t *entry = ps_bands_pick(&world->bands);
    if (entry == NULL) {
        return NULL;
    }
    *list = entry->list;
    stream_t *stream = (stream_t *)(void *)entry;
    const int64_t waited = world->charged - stream->asked;
    world->longest_wait = waited > world->longest_wait ? waited : world->longest_wait;
    CHECK(waited <= stream->bound);
    return stream;
}

static void charge(world_t *world, int32_t list, int64_t bytes)
{
    ps_bands_charge(&world->bands, list, bytes);
    world->charged += bytes > PS_BANDS_TURN_COST ? bytes : PS_BANDS_TURN_COST;
    world->now_ns += bytes; /* 1 GB/s */
}

static int64_t picks(void)
{
    const char *stated = getenv("PS_BANDS_PICKS");
    return stated != NULL ? atoll(stated) : 1000000;
}

/* Bytes of each list in the present 1 000 rounds, compared with the weights. */
static void check_shares(const world_t *world, const int64_t *sent)
{
    const double round =
        (double)PS_BANDS_WEIGHT_SUM * (double)world->bands.quantum / PS_BANDS_WEIGHT_UNIT * 1000;
    static const int32_t weights[PS_BAND_COUNT] = { 6, 8, 8, 16, 32, 64 };
    for (int32_t band = 0; band < PS_BAND_COUNT; band++) {
        const double fair = round * weights[band] / (double)PS_BANDS_WEIGHT_SUM;
        CHECK((double)sent[band] >= 0.99 * fair && (double)sent[band] <= 1.01 * fair);
    }
}

static void test_saturated_bands_share_by_their_weights_in_any_1000_rounds(void)
{
    world_t *world = make(6 * 3, 1);
    static const int64_t priorities[] = { -5, 100, 300, 600, 900 };
    /* cumulative bytes of each band at the end of each round, for any window of 1 000 */
    enum { WINDOW = 1000 };
    static int64_t history[WINDOW][PS_BAND_COUNT];
    int64_t sent[PS_BAND_COUNT] = { 0 };
    for (int32_t i = 0; i < world->count; i++) {
        world->streams[i].priority = i % 6 < 5 ? priorities[i % 6] : 0;
        add(world, &world->streams[i],
            i % 6 < 5 ? ps_priority_band((int32_t)priorities[i % 6]) : PS_BAND_BACKGROUND);
    }
    uint64_t rounds = world->bands.rounds;
    const int64_t total = picks();
    for (int64_t done = 0; done < total; done++) {
        int32_t list = 0;
        stream_t *stream = pick(world, &list);
        /* All that a turn may: a full quantum and a part of a datagram, or a short one. */
        const int64_t bytes = draw(world, 4) == 0
                                  ? 1 + (int64_t)draw(world, 20000)
                                  : world->bands.quantum + (int64_t)draw(world, MTU);
        add(world, stream, list);
        charge(world, list, bytes);
        sent[list] += bytes > PS_BANDS_TURN_COST ? bytes : PS_BANDS_TURN_COST;
        for (; rounds < world->bands.rounds; rounds++) {
            int64_t in_window[PS_BAND_COUNT];
            for (int32_t band = 0; band < PS_BAND_COUNT; band++) {
                in_window[band] = sent[band] - history[rounds % WINDOW][band];
                history[rounds % WINDOW][band] = sent[band];
            }
            if (rounds >= 2 * WINDOW) {
                check_shares(world, in_window);
            }
        }
    }
    CHECK(total < 1000000 || rounds > 3 * WINDOW);
    free(world);
}

/* A rate from 100 MB/s to 3.3 GB/s: quanta of 16 to 128 KiB. */
static void change_quantum(world_t *world)
{
    const int64_t rate = INT64_C(100000000) << draw(world, 6);
    ps_bands_set_quantum(&world->bands, rate, MTU);
}

/* Streams of all bands and retransmits come and go, with any number of bytes; each is served within
 * its bound. */
static void check_waits(bool changes)
{
    world_t *world = make(STREAMS, 2);
    world->changes = changes;
    const int64_t total = picks();
    for (int64_t done = 0; done < total; done++) {
        for (uint64_t i = draw(world, 3); i > 0; i--) {
            stream_t *stream = &world->streams[draw(world, STREAMS)];
            if (!stream->entry.queued) {
                stream->priority = (int64_t)draw(world, 2001) - 1000;
                stream->repair = draw(world, 5) == 0;
                stream->background = draw(world, 10) == 0;
                add(world, stream, list_of(stream));
            }
        }
        if (draw(world, 50) == 0) {
            stream_t *stream = &world->streams[draw(world, STREAMS)];
            ps_bands_remove(&world->bands, &stream->entry);
        }
        ps_bands_age(&world->bands, world->now_ns);
        if (changes && draw(world, 10) == 0) {
            change_quantum(world);
        }
        int32_t list = 0;
        stream_t *stream = pick(world, &list);
        if (stream == NULL) {
            world->now_ns += MS;
            continue;
        }
        const uint64_t kind = draw(world, 3);
        const int64_t bytes = kind == 0   ? 0
                              : kind == 1 ? (int64_t)draw(world, 3000)
                                          : world->bands.quantum + (int64_t)draw(world, MTU);
        if (draw(world, 2) == 0) {
            add(world, stream, list_of(stream));
        }
        charge(world, list, bytes);
        if (draw(world, 3000) == 0) { /* slow: ages count, and there is all the time to age */
            world->now_ns += (int64_t)draw(world, 3) * S;
        }
    }
    CHECK(world->longest_wait > 10 * world->bands.quantum);
    free(world);
}

static void test_no_wait_exceeds_its_bound(void)
{
    check_waits(false);
}

static void test_no_wait_exceeds_its_bound_while_the_quantum_changes(void)
{
    check_waits(true);
}

/* A debt of the largest quantum is one turn of the smallest: the band has bytes again after as many
 * rounds as at one quantum. */
static void test_a_debt_lasts_no_longer_at_a_smaller_quantum(void)
{
    for (int32_t band = PS_BAND_BACKGROUND; band < PS_BAND_B4; band++) {
        world_t *world = make(4, 8);
        for (int32_t i = 0; i < 4; i++) {
            world->streams[i].priority = 900;
            add(world, &world->streams[i], i < 2 ? band : PS_BAND_B4);
        }
        int32_t list = 0;
        do {
            stream_t *stream = pick(world, &list);
            add(world, stream, list);
            charge(world, list, world->bands.quantum + MTU - 1);
        } while (list != band || world->bands.lists[band].deficit >= 0);
        ps_bands_set_quantum(&world->bands, INT64_C(100000000), MTU);
        const uint64_t rounds = world->bands.rounds;
        for (list = PS_BAND_B4; list != band;) {
            stream_t *stream = pick(world, &list);
            add(world, stream, list);
            charge(world, list, world->bands.quantum + MTU - 1);
        }
        CHECK(world->bands.rounds - rounds <= 2);
        free(world);
    }
}

/* Beside saturated bands and retransmits, relays keep 2 % of all bytes. */
static void test_the_background_keeps_two_percent_beside_retransmits(void)
{
    world_t *world = make(14, 9);
    int64_t sent[PS_BAND_LISTS] = { 0 };
    int64_t all = 0;
    for (int32_t i = 0; i < world->count; i++) {
        world->streams[i].priority = 900;
        add(world, &world->streams[i], i % PS_BAND_LISTS);
    }
    for (int64_t turn = 0; turn < 100000; turn++) {
        int32_t list = 0;
        stream_t *stream = pick(world, &list);
        const int64_t bytes = world->bands.quantum + (int64_t)draw(world, MTU);
        add(world, stream, list);
        charge(world, list, bytes);
        sent[list] += bytes;
        all += bytes;
    }
    CHECK((double)sent[PS_BAND_REPAIR] > 0.49 * (double)all);
    CHECK((double)sent[PS_BAND_BACKGROUND] >= 0.02 * (double)all);
    free(world);
}

static void test_a_band_serves_in_order(void)
{
    world_t *world = make(100, 3);
    for (int32_t i = 0; i < 100; i++) {
        world->streams[i].priority = 300 + i; /* one band, any priority in it */
        add(world, &world->streams[i], PS_BAND_B2);
    }
    for (int32_t i = 0; i < 100; i++) {
        int32_t list = 0;
        CHECK(pick(world, &list) == &world->streams[i]);
        CHECK_EQ(list, PS_BAND_B2);
        charge(world, list, 1000);
    }
    CHECK(ps_bands_pick(&world->bands) == NULL);
    CHECK_EQ(world->bands.waiting, 0);
    free(world);
}

/* Empty turns cost something, or a band of streams without data would keep the others waiting. */
static void test_turns_without_bytes_do_not_starve_lower_bands(void)
{
    world_t *world = make(11, 4);
    for (int32_t i = 0; i < 10; i++) {
        world->streams[i].priority = 900;
        add(world, &world->streams[i], PS_BAND_B4);
    }
    add(world, &world->streams[10], PS_BAND_B0);
    for (int32_t turns = 0;; turns++) {
        CHECK(turns < 16 * 131072 / PS_BANDS_TURN_COST);
        int32_t list = 0;
        stream_t *stream = pick(world, &list);
        if (stream == &world->streams[10]) {
            break;
        }
        add(world, stream, list);
        charge(world, list, 0);
    }
    free(world);
}

/* While bands wait, retransmits take at most half; alone they take everything. */
static void test_retransmits_take_at_most_half(void)
{
    for (int32_t lowered = 0; lowered < 2; lowered++) {
        world_t *world = make(20, 5);
        int64_t sent[2] = { 0 };
        world->bands.lowered = (uint32_t)lowered;
        for (int32_t i = 0; i < 20; i++) {
            world->streams[i].repair = i < 10;
            world->streams[i].priority = 300;
            add(world, &world->streams[i], list_of(&world->streams[i]));
        }
        for (int32_t turn = 0; turn < 10000; turn++) {
            int32_t list = 0;
            stream_t *stream = pick(world, &list);
            const int64_t bytes = world->bands.quantum + (int64_t)draw(world, MTU);
            add(world, stream, list);
            charge(world, list, bytes);
            sent[stream->repair] += bytes;
        }
        const double share = (double)sent[1] / (double)(sent[0] + sent[1]);
        CHECK(share <= (lowered ? 0.34 : 0.5) + 0.001 && share >= (lowered ? 0.33 : 0.499));
        for (int32_t i = 10; i < 20; i++) {
            ps_bands_remove(&world->bands, &world->streams[i].entry);
        }
        for (int32_t turn = 0; turn < 100; turn++) { /* nobody else waits */
            int32_t list = 0;
            stream_t *stream = pick(world, &list);
            CHECK(stream->repair);
            add(world, stream, list);
            charge(world, list, world->bands.quantum);
        }
        free(world);
    }
}

/* Streams of equal priority get the same, also when they wait so long that aging moves some. */
static void test_equal_streams_share_equally(void)
{
    static const int32_t counts[] = { 2, 7, 100, 500 };
    for (int32_t each = 0; each < 4; each++) {
        for (int32_t slow = 1; slow <= 64; slow *= 4) {
            world_t *world = make(counts[each], 6);
            for (int32_t i = 0; i < world->count; i++) {
                world->streams[i].priority = 499; /* as consumed just now */
                add(world, &world->streams[i], PS_BAND_B2);
            }
            for (int64_t turn = 0; turn < 2000 * (int64_t)world->count; turn++) {
                int32_t list = 0;
                ps_bands_age(&world->bands, world->now_ns);
                stream_t *stream = pick(world, &list);
                const int64_t bytes = world->bands.quantum + (int64_t)draw(world, MTU);
                stream->bytes += bytes;
                add(world, stream, PS_BAND_B2);
                charge(world, list, bytes);
                world->now_ns += bytes * (slow - 1);
            }
            int64_t least = INT64_MAX, most = 0;
            for (int32_t i = 0; i < world->count; i++) {
                const int64_t bytes = world->streams[i].bytes;
                least = bytes < least ? bytes : least;
                most = bytes > most ? bytes : most;
            }
            CHECK((double)most <= 1.02 * (double)least);
            free(world);
        }
    }
}

/* Every stream in the lowest band is lifted by its age while a band above is less crowded. */
static void test_age_lifts_a_stream_out_of_a_crowded_band(void)
{
    world_t *world = make(100, 7);
    for (int32_t i = 0; i < 100; i++) {
        world->streams[i].priority = i == 99 ? -1 : -1000;
        add(world, &world->streams[i], PS_BAND_B0);
    }
    ps_bands_age(&world->bands, world->now_ns);
    CHECK_EQ(world->streams[99].entry.list, PS_BAND_B0);
    world->now_ns += 49 * MS;
    ps_bands_age(&world->bands, world->now_ns);
    CHECK_EQ(world->streams[99].entry.list, PS_BAND_B0);
    world->now_ns += 1 * MS;
    ps_bands_age(&world->bands, world->now_ns);
    CHECK_EQ(world->streams[99].entry.list, PS_BAND_B1);
    CHECK_EQ(world->streams[99].entry.since_ns, 0);
    world->now_ns = 9950 * MS;
    ps_bands_age(&world->bands, world->now_ns);
    CHECK_EQ(world->bands.lists[PS_BAND_B0].count, 99);
    world->now_ns = 10 * S;
    ps_bands_age(&world->bands, world->now_ns);
    CHECK_EQ(world->streams[0].entry.list, PS_BAND_B0); /* the first is served sooner here */
    CHECK(world->bands.lists[PS_BAND_B1].count > 40 && world->bands.lists[PS_BAND_B1].count < 60);
    CHECK_EQ(world->bands.lists[PS_BAND_B2].count, 0); /* -1000 + 1000 is not above B1 */
    free(world);
}

static void test_the_priority_follows_the_table(void)
{
    CHECK_EQ(ps_priority_recency(-1), 0);
    CHECK_EQ(ps_priority_recency(0), 499);
    CHECK_EQ(ps_priority_recency(49 * MS), 499);
    CHECK_EQ(ps_priority_recency(30 * S - 50 * MS), 250);
    CHECK_EQ(ps_priority_recency(30 * S), 249);
    CHECK_EQ(ps_priority_recency(60 * S - 50 * MS), 125);
    CHECK_EQ(ps_priority_recency(15 * S - 50 * MS), 353);
    CHECK_EQ(ps_priority_recency(300 * S), 0);
    CHECK_EQ(ps_priority_recency(INT64_MAX), 0);
    int32_t last = 500;
    for (int64_t t = 0; t < 300 * S; t += 10 * MS) {
        const int32_t value = ps_priority_recency(t);
        CHECK(value <= last && last - value <= 1 + (t == 0));
        last = value;
    }
    CHECK_EQ(last, 0);
    CHECK_EQ(ps_priority_aging(-1), 0);
    CHECK_EQ(ps_priority_aging(49 * MS), 0);
    CHECK_EQ(ps_priority_aging(1 * S), 100);
    CHECK_EQ(ps_priority_aging(10 * S), 1000);
    CHECK_EQ(ps_priority_aging(INT64_MAX), 1000);
    static const int32_t bands[][2] = { { -1000, PS_BAND_B0 }, { -1, PS_BAND_B0 },
                                        { 0, PS_BAND_B1 },     { 249, PS_BAND_B1 },
                                        { 250, PS_BAND_B2 },   { 499, PS_BAND_B2 },
                                        { 500, PS_BAND_B3 },   { 749, PS_BAND_B3 },
                                        { 750, PS_BAND_B4 },   { 2000, PS_BAND_B4 } };
    for (size_t i = 0; i < sizeof(bands) / sizeof(bands[0]); i++) {
        CHECK_EQ(ps_priority_band(bands[i][0]), bands[i][1]);
    }
}

static void test_the_quantum_follows_the_rate(void)
{
    ps_bands_t bands;
    ps_bands_init(&bands);
    ps_bands_set_quantum(&bands, 0, MTU);
    CHECK_EQ(bands.quantum, PS_BANDS_QUANTUM_MAX);
    ps_bands_set_quantum(&bands, 1000000, MTU);
    CHECK_EQ(bands.quantum, PS_BANDS_QUANTUM_MIN);
    ps_bands_set_quantum(&bands, 1000000, 65504);
    CHECK_EQ(bands.quantum, 65504);
    ps_bands_set_quantum(&bands, INT64_C(1000000000), MTU);
    CHECK_EQ(bands.quantum, 50000);
    ps_bands_set_quantum(&bands, INT64_C(100000000000), MTU);
    CHECK_EQ(bands.quantum, PS_BANDS_QUANTUM_MAX);
}

int main(void)
{
    test_the_priority_follows_the_table();
    test_the_quantum_follows_the_rate();
    test_a_band_serves_in_order();
    test_turns_without_bytes_do_not_starve_lower_bands();
    test_retransmits_take_at_most_half();
    test_age_lifts_a_stream_out_of_a_crowded_band();
    test_equal_streams_share_equally();
    test_saturated_bands_share_by_their_weights_in_any_1000_rounds();
    test_a_debt_lasts_no_longer_at_a_smaller_quantum();
    test_the_background_keeps_two_percent_beside_retransmits();
    test_no_wait_exceeds_its_bound();
    test_no_wait_exceeds_its_bound_while_the_quantum_changes();
    return 0;
}
