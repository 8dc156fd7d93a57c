/* SPDX-License-Identifier: Apache-2.0
 *
 * test_policy.c: policies of a publication as publishers meet them: through the client, with a
 * sender in virtual time and consumers that stop and go.  What was offered was accepted or dropped;
 * what was dropped is stated in the log, at its place, to the message.
 */
#include "ps_client_publication.h"
#include "ps_driver_state.h"
#include "ps_policy.h"
#include "ps_sender.h"
#include "sender_rig.h"

enum { PUBLISHERS_MAX = 3, BATCH = 16, LONGEST = 8000, TURNS = 4000, DRAIN_TURNS = 2000 };
enum { OFFER, OFFER_BATCH, TRY_CLAIM, PATHS };

typedef struct row {
    int32_t kind, path, size, publishers, rate;
} row_t;

typedef struct world {
    rig_t *rig;
    const row_t *row;
    ps_client_t *client[PUBLISHERS_MAX];
    ps_pub_t *pub[PUBLISHERS_MAX];
    int32_t reader;               /* counter of the IPC reader */
    int64_t next[PUBLISHERS_MAX]; /* number of the message to be offered */
    int64_t seen[PUBLISHERS_MAX]; /* number of the message to be read, at least */
    int64_t accepted, dropped;    /* as the publishers were told */
    int64_t delivered, stated;    /* as the log says */
    int64_t read_to, consumed;    /* positions */
    uint64_t random;
} world_t;

static uint8_t payload[BATCH * LONGEST];
static int64_t offsets[BATCH + 1];
static int64_t depth_messages; /* of the worlds that are opened */
static int64_t rate_bytes;     /* as above */

static uint64_t draw(world_t *world, uint64_t below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (world->random >> 33) % below;
}

static void open_publishers(world_t *world)
{
    for (int32_t i = 0; i < world->row->publishers; i++) {
        rig_open_publisher(world->rig, 100 + i, 0, &world->client[i], &world->pub[i]);
    }
}

/* Reads what is in the log: what the publishers were told is there, in order, and what they
 * dropped is stated where it was. */
static void read_log(world_t *world, int64_t to)
{
    const ps_log_t *log = &world->rig->log;
    while (world->read_to < to) {
        const ps_frame_t *frame = ps_frame_at(log, world->read_to);
        const int32_t length = ps_frame_length_acquire(frame);
        CHECK(length > 0);
        if (frame->type == PS_TYPE_PAD) {
            world->stated += ps_frame_messages(frame);
        } else if ((frame->flags & PS_FLAG_BEGIN) != 0) {
            int64_t words[2];
            memcpy(words, (const uint8_t *)frame + PS_HEADER_BYTES, sizeof(words));
            const int64_t publisher = words[0];
            CHECK(publisher >= 0 && publisher < world->row->publishers);
            CHECK(words[1] >= world->seen[publisher]);
            if (world->row->publishers == 1) {
                CHECK_EQ(words[1], world->delivered + world->stated);
            }
            world->seen[publisher] = words[1] + 1;
            world->delivered++;
        }
        world->read_to += ps_align32(length);
    }
}

static void turn(world_t *world, int64_t by_ns, int64_t progress)
{
    rig_t *rig = world->rig;
    const bool ipc = world->row->kind == RIG_IPC;
    const int64_t furthest = ipc ? rig_tail(rig) : rig_counter(rig, rig->sender_position);
    read_log(world, furthest);
    const int64_t to = world->consumed + progress;
    if (progress > 0) {
        world->consumed = to < furthest ? ps_align32_64(to) : furthest;
    }
    if (ipc) {
        ps_counter_set(rig->cnc, world->reader, world->consumed);
        rig_dirty(rig); /* as readers do that pass the wake position */
    } else {
        rig_sm(rig, 5, &rig->peer, world->consumed, RIG_TERM / 2, 0);
        memnet_discard(rig->net);
    }
    rig_step(rig, by_ns);
}

static void open_world(world_t *world, const row_t *row, int32_t policy, uint64_t seed)
{
    const rig_options_t options = { .kind = row->kind,
                                    .policy = policy,
                                    .depth_messages = depth_messages,
                                    .rate_messages_per_s = row->rate,
                                    .rate_bytes_per_s = rate_bytes };
    *world = (world_t){ .rig = rig_open(&options), .row = row, .random = seed };
    rig_step(world->rig, 0);
    if (row->kind == RIG_IPC) {
        world->reader = rig_add_reader(world->rig, 0, -1, 1);
    } else if (row->kind == RIG_MANUAL) {
        CHECK_EQ(ps_send_endpoint_add_destination(world->rig->driver, world->rig->endpoint, 7,
                                                  &world->rig->peer),
                 PS_OK);
    }
    open_publishers(world);
    turn(world, 0, 0);
    turn(world, 0, 0);
}

static void close_publishers(world_t *world)
{
    for (int32_t i = 0; i < world->row->publishers; i++) {
        ps_pub_close(world->pub[i]);
        ps_client_close(world->client[i]);
    }
}

static void number(uint8_t *out, int64_t publisher, int64_t message)
{
    memcpy(out, &publisher, sizeof(publisher));
    memcpy(out + sizeof(publisher), &message, sizeof(message));
}

/* One call.  Returns its code. */
static int64_t publish(world_t *world, int32_t publisher)
{
    ps_pub_t *pub = world->pub[publisher];
    const int32_t size = world->row->size;
    const int32_t count = world->row->path == OFFER_BATCH ? BATCH : 1;
    int32_t accepted = 0;
    ps_claim_t claim;
    int64_t code;
    for (int32_t i = 0; i < count; i++) {
        number(payload + (size_t)i * (size_t)size, publisher, world->next[publisher] + i);
    }
    if (world->row->path == OFFER_BATCH) {
        code = ps_pub_offer_batch(pub, payload, offsets, BATCH, &accepted);
    } else if (world->row->path == TRY_CLAIM) {
        code = ps_pub_try_claim(pub, (size_t)size, &claim);
        if (code > 0) {
            memcpy(claim.data, payload, (size_t)size);
            CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_OK);
        }
        accepted = code > 0;
    } else {
        code = ps_pub_offer(pub, payload, (size_t)size, 0);
        accepted = code > 0;
    }
    const int32_t dropped = code == PS_DROPPED ? count : 0;
    world->next[publisher] += accepted + dropped;
    world->accepted += accepted;
    world->dropped += dropped;
    return code;
}

static void expect_conserved(const world_t *world)
{
    const ps_publication_slot_t *slot = world->rig->slot;
    CHECK_EQ(world->delivered, world->accepted);
    CHECK_EQ(world->stated, world->dropped);
    CHECK_EQ(atomic_load(&slot->policy_word) & PS_POLICY_DROPPED, world->dropped);
    CHECK_EQ(atomic_load(&slot->dropped_bytes), world->dropped * world->row->size);
    CHECK_EQ(atomic_load(&slot->published_ordinal), world->accepted + world->dropped);
    if (world->row->kind != RIG_IPC) {
        CHECK_EQ(atomic_load(&slot->sent_ordinal), world->accepted + world->dropped);
    }
}

/* Under either policy that drops, what finds the log full is dropped and stated.
 * Consumers stop and go while publishers always try; then the publishers leave, with a full log. */
static void drop_and_close(const row_t *row, uint64_t seed)
{
    world_t world;
    ps_event_t event;
    for (int32_t i = 0; i <= BATCH; i++) {
        offsets[i] = (int64_t)i * row->size;
    }
    open_world(&world, row, seed % 2 == 0 ? PS_POLICY_DROP_NEWEST : PS_POLICY_DROP_OLDEST, seed);
    for (int32_t i = 0; i < TURNS; i++) {
        const int32_t offers = (int32_t)draw(&world, 12);
        for (int32_t n = 0; n < offers; n++) {
            const int64_t code = publish(&world, (int32_t)draw(&world, (uint64_t)row->publishers));
            CHECK(code > 0 || code == PS_DROPPED || code == PS_ADMIN_ACTION);
        }
        const bool stopped = i / 200 % 2 == 1;
        turn(&world, 1000 * 1000, stopped ? 0 : (int64_t)draw(&world, RIG_TERM / 4));
    }
    CHECK(world.dropped > 0 && world.accepted > 0);
    while (publish(&world, 0) != PS_DROPPED) {
    }
    close_publishers(&world);
    CHECK_EQ(ps_publication_drain(world.rig->driver, world.rig->pub), PS_OK);
    for (int32_t i = 0; i < 20; i++) {
        turn(&world, 1000 * 1000, 0);
    }
    CHECK_EQ(atomic_load(&world.rig->log.meta->end_of_stream), INT64_MAX); /* it is owed a gap */
    for (int32_t i = 0; i < DRAIN_TURNS && world.stated < world.dropped; i++) {
        turn(&world, 1000 * 1000, RIG_TERM / 8);
    }
    for (int32_t i = 0; i < 20; i++) {
        turn(&world, 1000 * 1000, RIG_TERM);
    }
    expect_conserved(&world);
    CHECK_EQ(atomic_load(&world.rig->log.meta->end_of_stream), world.read_to);
    CHECK(rig_event(world.rig, PS_EV_PUB_DRAINED, &event));
    CHECK(row->kind == RIG_IPC || event.drained.unsent == 0);
    rig_close(world.rig);
}

static void test_drops_are_stated(void)
{
    static const int32_t kinds[] = { RIG_IPC, RIG_UNICAST, RIG_MULTICAST, RIG_MANUAL };
    static const int32_t sizes[] = { 16, 1376, LONGEST };
    uint64_t seed = 7;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (int32_t path = 0; path < PATHS; path++) {
            for (int32_t i = 0; i < 3; i++) {
                if (path == TRY_CLAIM && sizes[i] > 1376) {
                    continue; /* a claim is one frame */
                }
                for (int32_t publishers = 1; publishers <= PUBLISHERS_MAX; publishers += 2) {
                    drop_and_close(&(row_t){ kinds[k], path, sizes[i], publishers, 0 }, seed++);
                }
            }
        }
    }
}

/* A rate that is used up drops too, and what was dropped takes none of the rate. */
static void test_a_rate_drops_what_is_beyond_it(void)
{
    const row_t row = { RIG_UNICAST, OFFER, 16, 1, 1000 };
    world_t world;
    open_world(&world, &row, PS_POLICY_DROP_NEWEST, 3);
    for (int32_t i = 0; i < 3000; i++) {
        for (int32_t n = 0; n < 4; n++) {
            const int64_t code = publish(&world, 0);
            CHECK(code > 0 || code == PS_DROPPED || code == PS_ADMIN_ACTION);
        }
        turn(&world, 1000 * 1000, RIG_TERM);
    }
    CHECK(world.accepted >= 2900 && world.accepted <= 3100);
    CHECK_EQ(atomic_load(&world.rig->slot->dropped_rate), world.dropped);
    for (int32_t i = 0; i < 200; i++) {
        turn(&world, 1000 * 1000, RIG_TERM);
    }
    expect_conserved(&world);
    close_publishers(&world);
    rig_close(world.rig);
}

/* A rate in bytes admits a few bytes each time the sender looks. Publishers that never rest are
 * admitted at the rate all the same: what states their drops leaves room for a message. */
static void test_a_rate_in_bytes_admits_whoever_never_rests(void)
{
    enum { LOOKS = 50 * 1000 };
    static const struct {
        int32_t kind, size;
        int64_t rate, turn_ns;
    } rows[] = {
        { RIG_IPC, 1000, 512 * 1024, 20 * 1000 },
        { RIG_UNICAST, 1000, 512 * 1024, 20 * 1000 },
        { RIG_IPC, 16, 300, 1000 * 1000 }, /* a tenth of a second is less than a frame */
        { RIG_UNICAST, 16, 300, 1000 * 1000 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const row_t row = { rows[i].kind, OFFER, rows[i].size, 1, 0 };
        world_t world;
        rate_bytes = rows[i].rate;
        open_world(&world, &row, PS_POLICY_DROP_NEWEST, 5);
        rate_bytes = 0;
        for (int32_t n = 0; n < LOOKS; n++) {
            (void)publish(&world, 0);
            turn(&world, rows[i].turn_ns, RIG_TERM);
        }
        /* Each message takes a header, and so does each statement of drops. */
        const int64_t length = ps_align32(rows[i].size + PS_HEADER_BYTES) + PS_HEADER_BYTES;
        const int64_t fit = rows[i].rate * (LOOKS * rows[i].turn_ns / 1000000) / 1000 / length;
        CHECK(world.accepted >= fit * 9 / 10);
        CHECK(world.accepted <= fit * 12 / 10 + 2);
        close_publishers(&world);
        rig_close(world.rig);
    }
}

/* The sender appends the frame that states drops, so no publisher notifies it: the reader of the
 * frame is followed all the same. */
static void test_a_reader_of_stated_drops_is_followed(void)
{
    const row_t row = { RIG_IPC, OFFER, 16, 1, 1000 };
    world_t world;
    open_world(&world, &row, PS_POLICY_DROP_NEWEST, 3);
    rig_t *rig = world.rig;
    while (publish(&world, 0) != PS_DROPPED) {
    }
    const int64_t tail = rig_tail(rig);
    turn(&world, 0, RIG_TERM);
    CHECK(world.consumed == tail && rig->pub->slowest_position == tail);
    for (int32_t i = 0; i < 20 && rig_tail(rig) == tail; i++) {
        rig_step(rig, 1000 * 1000);
    }
    CHECK_EQ(rig_tail(rig), tail + PS_HEADER_BYTES);
    ps_counter_set(rig->cnc, world.reader, rig_tail(rig));
    rig_step(rig, 0);
    CHECK_EQ(rig->pub->slowest_position, rig_tail(rig));
    close_publishers(&world);
    rig_close(rig);
}

/* Publishers at the limit wait for the low watermark, not for the next byte. */
static void test_a_stream_stays_paused_until_the_low_watermark(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    const int32_t policies[] = { PS_POLICY_BLOCK, PS_POLICY_RATE_LIMIT };
    for (int32_t i = 0; i < 2; i++) {
        world_t world;
        open_world(&world, &row, policies[i], 3);
        while (publish(&world, 0) > 0) {
        }
        CHECK_EQ(rig_tail(world.rig), RIG_TERM / 2);
        turn(&world, 1000 * 1000, RIG_TERM / 4 - 1024);
        CHECK_EQ(publish(&world, 0), PS_BACK_PRESSURED);
        CHECK_EQ(atomic_load(&world.rig->slot->cause), PS_CAUSE_SLOW_SUBSCRIBER);
        turn(&world, 1000 * 1000, 1024);
        CHECK(publish(&world, 0) > 0);
        close_publishers(&world);
        rig_close(world.rig);
    }
}

/* Publishers are ahead by a number of messages, and continue at half of it. */
static void test_a_depth_counts_messages(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    world_t world;
    ps_claim_t claim;
    depth_messages = 10;
    open_world(&world, &row, PS_POLICY_BLOCK, 3);
    depth_messages = 0;
    for (int32_t i = 0; i < 9; i++) {
        CHECK(publish(&world, 0) > 0);
    }
    CHECK(ps_pub_try_claim(world.pub[0], 992, &claim) > 0);
    CHECK_EQ(publish(&world, 0), PS_BACK_PRESSURED); /* a claim counts */
    CHECK_EQ(ps_pub_abort(world.pub[0], &claim), PS_OK);
    turn(&world, 1000 * 1000, 0);
    CHECK(publish(&world, 0) > 0);
    CHECK_EQ(publish(&world, 0), PS_BACK_PRESSURED);
    turn(&world, 1000 * 1000, 0);
    CHECK_EQ(atomic_load(&world.rig->slot->cause), PS_CAUSE_SLOW_SUBSCRIBER);
    CHECK_EQ(atomic_load(&world.rig->slot->watermark_state), PS_WATERMARK_PAUSED);
    turn(&world, 1000 * 1000, 4 * 1024);
    CHECK_EQ(publish(&world, 0), PS_BACK_PRESSURED); /* six are left */
    turn(&world, 1000 * 1000, 1024);
    for (int32_t i = 0; i < 5; i++) {
        CHECK(publish(&world, 0) > 0);
    }
    CHECK_EQ(publish(&world, 0), PS_BACK_PRESSURED);
    close_publishers(&world);
    rig_close(world.rig);
}

/* A publisher died after it took the only ordinal that the depth allows. The other publisher
 * continues after a tick, although nobody notifies the sender. */
static void test_a_depth_forgets_the_ordinals_of_the_dead(int32_t kind)
{
    const row_t row = { kind, OFFER, 992, 2, 0 };
    world_t world;
    uint32_t epoch;
    depth_messages = 1;
    open_world(&world, &row, PS_POLICY_BLOCK, 3);
    depth_messages = 0;
    for (int32_t i = 0; i < 3; i++) { /* the timers of the beginning */
        rig_step(world.rig, PS_TICK_NS);
    }
    CHECK_EQ(ps_pub_take(world.pub[0], 1, &epoch), 1);
    turn(&world, 1000, 0);
    CHECK(atomic_load(&world.rig->slot->cause) != PS_CAUSE_NONE);
    rig_step(world.rig, PS_TICK_NS);
    rig_step(world.rig, PS_TICK_NS);
    CHECK_EQ(atomic_load(&world.rig->slot->cause), PS_CAUSE_NONE);
    CHECK(publish(&world, 1) > 0);
    close_publishers(&world);
    rig_close(world.rig);
}

/* An error keeps session and positions, drops nothing, and leaves open claims alone. */
static void test_an_error_holds_until_the_reset(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    world_t world;
    ps_claim_t claim;
    open_world(&world, &row, PS_POLICY_ERROR, 3);
    ps_pub_t *pub = world.pub[0];
    CHECK_EQ(ps_pub_reset(pub), 0);
    CHECK(ps_pub_try_claim(pub, 992, &claim) > 0);
    world.next[0] = 1;
    while (publish(&world, 0) > 0) {
    }
    CHECK_EQ(publish(&world, 0), PS_FAILED);
    CHECK_EQ(ps_pub_is_failed(pub), 1);
    number(claim.data, 0, 0);
    CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_OK);
    turn(&world, 1000 * 1000, RIG_TERM);
    CHECK_EQ(publish(&world, 0), PS_FAILED); /* room alone does not help */
    ps_client_set_daemon_away(world.client[0], 1);
    CHECK_EQ(publish(&world, 0), PS_FAILED);
    ps_client_set_daemon_away(world.client[0], 0);
    atomic_store(&world.rig->log.meta->is_connected, 0);
    CHECK_EQ(publish(&world, 0), PS_FAILED);
    CHECK_EQ(ps_pub_reset(pub), 1);
    atomic_store(&world.rig->log.meta->is_connected, 1);
    CHECK(publish(&world, 0) > 0);
    CHECK_EQ(atomic_load(&world.rig->slot->failures), 1);
    CHECK_EQ(world.dropped, 0);
    close_publishers(&world);
    rig_close(world.rig);
}

static void test_streams_without_a_policy_take_the_short_way(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    world_t world;
    open_world(&world, &row, PS_POLICY_NONE, 3);
    CHECK_EQ(world.pub[0]->single_max, world.pub[0]->max_payload);
    while (publish(&world, 0) > 0) {
    }
    turn(&world, 1000 * 1000, 32);
    CHECK(publish(&world, 0) > 0); /* as Aeron's */
    CHECK_EQ(ps_pub_reset(world.pub[0]), PS_E_INVALID);
    close_publishers(&world);
    rig_close(world.rig);
}

/* Returns the next event of this type; false: there is none. */
static bool pressure_event(world_t *world, int32_t type, ps_event_t *event)
{
    return rig_event(world->rig, type, event);
}

/* Each stream passes through the four states, and tells of both ends of an episode. */
static void watermarks_are_passed(int32_t kind, int32_t policy)
{
    const row_t row = { kind, OFFER, 992, 1, 0 };
    const ps_publication_slot_t *slot;
    world_t world;
    ps_event_t event;
    open_world(&world, &row, policy, 3);
    slot = world.rig->slot;
    CHECK_EQ(atomic_load(&slot->watermark_state), PS_WATERMARK_NORMAL);
    while (publish(&world, 0) > 0) {
    }
    rig_step(world.rig, 1000); /* a network stream sends a window, and has room again */
    const bool ipc = kind == RIG_IPC;
    while (publish(&world, 0) > 0) {
    }
    rig_step(world.rig, 1000);
    CHECK(atomic_load(&slot->watermark_state) == PS_WATERMARK_HIGH ||
          atomic_load(&slot->watermark_state) == PS_WATERMARK_PAUSED);
    CHECK(pressure_event(&world, PS_EV_PRESSURE_TRIGGERED, &event));
    CHECK_EQ(event.pressure.cause, ipc ? PS_CAUSE_SLOW_SUBSCRIBER : PS_CAUSE_RECEIVER_WINDOW);
    CHECK(event.pressure.culprit == (ipc ? 0 : 5));
    CHECK_EQ(event.pressure.episodes, 1);
    CHECK_EQ(event.pressure.depth_bytes, RIG_TERM / 2);
    CHECK(publish(&world, 0) < 0);
    rig_step(world.rig, 1000 * 1000);
    CHECK_EQ(atomic_load(&slot->watermark_state), PS_WATERMARK_PAUSED);
    CHECK(ps_sender_is_paused(world.rig->driver->sender)); /* a shared thread receives first */
    CHECK(atomic_load(&slot->pressed_since_ns) != 0);
    for (int32_t i = 0; i < 12; i++) { /* two turns drain what was sent already */
        turn(&world, 1000 * 1000, RIG_TERM / 4);
    }
    CHECK_EQ(atomic_load(&slot->watermark_state), PS_WATERMARK_LOW);
    CHECK(!ps_sender_is_paused(world.rig->driver->sender));
    CHECK(pressure_event(&world, PS_EV_PRESSURE_RELIEVED, &event));
    CHECK(event.pressure.peak_bytes == RIG_TERM / 2);
    CHECK(event.pressure.duration_ns > 1000 * 1000);
    CHECK(event.pressure.drained == (ipc && policy == PS_POLICY_NONE ? -1 : RIG_TERM / 4 / 1024) ||
          event.pressure.drained > RIG_TERM / 4 / 1024);
    CHECK_EQ(atomic_load(&slot->pressed_since_ns), 0);
    CHECK_EQ(atomic_load(&slot->episodes), 1);
    CHECK_EQ(atomic_load(&slot->peak_bytes), RIG_TERM / 2);
    CHECK(publish(&world, 0) > 0 || publish(&world, 0) > 0); /* the first may turn the term */
    rig_step(world.rig, 1000);
    CHECK_EQ(atomic_load(&slot->watermark_state), PS_WATERMARK_NORMAL);
    close_publishers(&world);
    rig_close(world.rig);
}

static void test_watermarks_are_states_of_every_stream(void)
{
    const int32_t policies[] = { PS_POLICY_NONE, PS_POLICY_BLOCK };
    for (int32_t i = 0; i < 2; i++) {
        watermarks_are_passed(RIG_IPC, policies[i]);
        watermarks_are_passed(RIG_UNICAST, policies[i]);
    }
}

/* Episodes that follow each other within a second are counted, and reported together. */
static void test_pressure_is_reported_once_a_second(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    world_t world;
    ps_event_t event;
    int32_t triggered = 0;
    int64_t told = 0;
    open_world(&world, &row, PS_POLICY_NONE, 3);
    for (int32_t i = 0; i <= 400; i++) { /* 4 s: an episode every 10 ms, and one a second later */
        while (publish(&world, 0) > 0 || publish(&world, 0) > 0) { /* a term may have turned */
        }
        turn(&world, 1000 * 1000, 0);
        turn(&world, (i < 399 ? 9 : 1009) * 1000 * 1000, RIG_TERM / 2);
        while (pressure_event(&world, PS_EV_PRESSURE_TRIGGERED, &event)) {
            told += event.pressure.episodes;
            triggered++;
        }
    }
    CHECK_EQ(triggered, 5);
    CHECK_EQ(told, atomic_load(&world.rig->slot->episodes));
    CHECK(told > 300);
    close_publishers(&world);
    rig_close(world.rig);
}

/* What is dropped while a stream is paused costs its sender no turn. */
static void test_drops_of_a_paused_stream_wake_nobody(void)
{
    const row_t row = { RIG_IPC, OFFER, 992, 1, 0 };
    world_t world;
    open_world(&world, &row, PS_POLICY_DROP_NEWEST, 3);
    while (publish(&world, 0) > 0) {
    }
    rig_step(world.rig, 1000);
    rig_step(world.rig, 1000);
    publish(&world, 0);
    rig_step(world.rig, 1000 * 1000);
    CHECK_EQ(atomic_load(&world.rig->slot->watermark_state), PS_WATERMARK_PAUSED);
    for (int32_t i = 0; i < 1000; i++) {
        CHECK_EQ(publish(&world, 0), PS_DROPPED);
        CHECK_EQ(atomic_load(&world.rig->slot->dirty), PS_DIRTY_NOT);
    }
    turn(&world, 1000 * 1000, RIG_TERM);
    turn(&world, 1000 * 1000, RIG_TERM);
    CHECK(publish(&world, 0) > 0);
    close_publishers(&world);
    rig_close(world.rig);
}

int main(void)
{
    test_watermarks_are_states_of_every_stream();
    test_pressure_is_reported_once_a_second();
    test_drops_of_a_paused_stream_wake_nobody();
    test_drops_are_stated();
    test_a_rate_drops_what_is_beyond_it();
    test_a_rate_in_bytes_admits_whoever_never_rests();
    test_a_reader_of_stated_drops_is_followed();
    test_a_stream_stays_paused_until_the_low_watermark();
    test_a_depth_counts_messages();
    test_a_depth_forgets_the_ordinals_of_the_dead(RIG_UNICAST);
    test_a_depth_forgets_the_ordinals_of_the_dead(RIG_MANUAL);
    test_an_error_holds_until_the_reset();
    test_streams_without_a_policy_take_the_short_way();
    return 0;
}
