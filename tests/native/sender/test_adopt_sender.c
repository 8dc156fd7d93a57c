/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adopt_sender.c: publications that a dead driver left.  Producers go on all the while; what
 * they write must fall on zeroed memory, and what was accepted must leave without a hole.
 */
#include "sender_rig.h"

enum { FAR = 7 * RIG_TERM, WINDOW = 16 * 1024, STEP = 1024, EDGE = 4 * RIG_TERM - STEP };

static uint32_t walk_state;

static uint32_t walk_random(uint32_t below)
{
    walk_state = walk_state * 1664525u + 1013904223u;
    return (walk_state >> 8) % below;
}

/* What a publisher does that finds no room in its term: pads the rest, turns to the next term, and
 * requests again, so that the limit may hold it at that term's very beginning. */
static void turn_term(rig_t *rig)
{
    const int64_t at = rig_tail(rig);
    const int32_t rest = RIG_TERM - (int32_t)(at & rig->log.term_mask);
    const int32_t count = (int32_t)(at >> rig->log.shift);
    CHECK(ps_log_pad(&rig->log, at, rest, 0));
    atomic_fetch_add(&rig->log.meta->tail[count % PS_PARTITIONS], rest);
    CHECK(ps_log_rotate(&rig->log, count, ps_wrap_add(rig->log.initial_term_id, count)));
    CHECK_EQ(rig_tail(rig), at + rest);
    rig_dirty(rig);
}

/* Offers as publishers do: up to the limit, each frame on zeroed memory. */
static void offer_some(rig_t *rig)
{
    static uint8_t payload[1300];
    memset(payload, 0x9a, sizeof payload); /* seen when it is met again three terms on */
    for (int32_t i = (int32_t)walk_random(40);
         i > 0 && rig_tail(rig) < rig_counter(rig, rig->limit); i--) {
        const int32_t length = 1 + (int32_t)walk_random(sizeof payload);
        const int64_t at = rig_tail(rig);
        const int64_t end = at + ps_align32(length + PS_HEADER_BYTES);
        const int64_t term_end = (at | rig->log.term_mask) + 1;
        for (int64_t p = at; p < end && p < term_end; p += 32) {
            static const uint8_t nothing[32];
            CHECK(memcmp(ps_log_at(&rig->log, p), nothing, sizeof nothing) == 0);
        }
        if (end > term_end) {
            turn_term(rig);
        } else {
            rig_offer(rig, payload, length, PS_FLAG_UNFRAGMENTED);
        }
    }
}

/* Takes what was sent; the stream is covered without a hole up to the result. */
static int64_t take_all(rig_t *rig, int64_t covered)
{
    memnet_dgram_t *got = &rig->got;
    while (memnet_take(rig->net, got)) {
        int64_t at;
        int32_t length, offset, term;
        uint16_t type;
        memcpy(&type, got->data + 6, sizeof type);
        memcpy(&length, got->data, sizeof length);
        if (type == PS_TYPE_SETUP || length == 0) {
            continue;
        }
        memcpy(&offset, got->data + 8, sizeof offset);
        memcpy(&term, got->data + 20, sizeof term);
        at = ps_position(term, offset, rig->log.shift, GOLDEN_TERM);
        CHECK(at <= covered);
        const int64_t span = type == PS_TYPE_PAD ? ps_align32(length) : (int64_t)got->length;
        covered = at + span > covered ? at + span : covered;
        if (type == PS_TYPE_DATA) { /* a PAD may close the datagram, without its body */
            for (int64_t p = at; p < at + (int64_t)got->length;) {
                const ps_frame_t *frame = ps_frame_at(&rig->log, p);
                p += ps_align32(ps_frame_length_acquire(frame));
                covered = p > covered ? p : covered;
            }
        }
    }
    return covered;
}

/* Offers frames of STEP bytes up to the limit, and lets the receiver open the sender to edge. */
static void advance_to(rig_t *rig, int64_t edge)
{
    uint8_t payload[STEP - PS_HEADER_BYTES];
    memset(payload, 0x9a, sizeof payload);
    for (int64_t covered = 0; covered < edge;) {
        while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
            rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        }
        const int64_t next = covered + WINDOW < edge ? covered + WINDOW : edge;
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, covered, (int32_t)(next - covered), 0);
        rig_step(rig, MS);
        covered = take_all(rig, covered);
        CHECK(covered >= next);
    }
    CHECK_EQ(rig_counter(rig, rig->sender_position), edge);
}

static void producers_that_stopped_at_a_turn_find_the_next_term_zeroed(void)
{
    static const uint8_t payload[STEP - 2 * PS_HEADER_BYTES];
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .window_bytes = RIG_TERM });
    rig_connect(rig);
    advance_to(rig, EDGE);
    const int64_t limit = rig_counter(rig, rig->limit);
    CHECK_EQ(limit, EDGE + RIG_TERM);
    while (rig_tail(rig) < limit - STEP) {
        rig_offer(rig, NULL, STEP - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
    }
    rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
    turn_term(rig); /* a longer message than fits came: it waits for the limit now */
    CHECK(rig_tail(rig) > limit && (rig_tail(rig) & rig->log.term_mask) == 0);
    rig_succeed(rig);
    ps_publication_params_t params = rig_adopted_publication(rig);
    params.window_bytes = RIG_TERM;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    int64_t covered = EDGE;
    walk_state = 1;
    while (covered < EDGE + 3 * RIG_TERM) {
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, covered, WINDOW, 0);
        rig_step(rig, MS);
        covered = take_all(rig, covered);
        offer_some(rig);
        rig_dirty(rig);
    }
    rig_close(rig);
}

static void walk(uint32_t seed)
{
    int32_t deaths = 0;
    int64_t covered = 0;
    walk_state = seed;
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    while (covered < FAR) {
        offer_some(rig);
        rig_dirty(rig);
        rig_step(rig, MS);
        covered = take_all(rig, covered);
        if (walk_random(4) == 0) {
            const int64_t sent = rig_counter(rig, rig->sender_position);
            const int64_t limit = rig_counter(rig, rig->limit);
            offer_some(rig); /* nobody is there */
            rig_succeed(rig);
            const ps_publication_params_t params = rig_adopted_publication(rig);
            CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
            CHECK_EQ(rig_counter(rig, rig->limit), limit);
            CHECK_EQ(rig_counter(rig, rig->sender_position), sent);
            rig_step(rig, MS);
            CHECK_EQ(rig->log.meta->is_connected, 1); /* publishers notice nothing */
            deaths++;
        }
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, covered, WINDOW, 0);
        rig_step(rig, MS);
        covered = take_all(rig, covered);
    }
    for (int32_t i = 0; i < 64 && covered < rig_tail(rig); i++) {
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, covered, WINDOW, 0);
        rig_step(rig, MS);
        covered = take_all(rig, covered);
    }
    CHECK_EQ(covered, rig_tail(rig));
    CHECK(deaths > 3);
    rig_close(rig);
}

static void a_publication_survives_deaths_at_any_moment(void)
{
    for (uint32_t seed = 1; seed <= 20; seed++) {
        walk(seed);
    }
}

static void nobody_there_is_noticed_after_the_connection_timeout(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_succeed(rig);
    const ps_publication_params_t params = rig_adopted_publication(rig);
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    for (int32_t i = 0; i < 49; i++) {
        rig_step(rig, 100 * MS);
    }
    CHECK_EQ(rig->log.meta->is_connected, 1);
    for (int32_t i = 0; i < 3; i++) {
        rig_step(rig, 100 * MS);
    }
    CHECK_EQ(rig->log.meta->is_connected, 0);
    rig_close(rig);
}

static void counters_that_lie_are_refused(void)
{
    static const uint8_t payload[100];
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
    const int64_t lies[] = { -32, 33, 1 << 30, INT64_MIN };
    for (size_t i = 0; i < 2 * sizeof lies / sizeof lies[0]; i++) {
        const int32_t counter = i % 2 == 0 ? rig->sender_position : rig->limit;
        const int64_t truth = rig_counter(rig, counter);
        ps_publication_t *pub = NULL;
        rig_succeed(rig);
        ps_counter_set(rig->cnc, counter, lies[i / 2]);
        const ps_publication_params_t params = rig_adopted_publication(rig);
        if (counter != rig->limit || lies[i / 2] != 33) { /* a limit may lie anywhere near */
            CHECK_EQ(ps_publication_add(rig->driver, &params, &pub), PS_E_CORRUPT);
        }
        ps_counter_set(rig->cnc, counter, truth);
    }
    rig_close(rig);
}

/* Eight messages sent, a death, two more; the index and the slot say what they are made to say in
 * between (0: as they are).  Returns how many messages the new daemon counts. */
static int64_t counted_over_a_death(int64_t index_ordinal, int64_t index_shift,
                                    int64_t slot_ordinal)
{
    static const uint8_t payload[100] = { 0, 16 }; /* seems to be a frame of 4096 bytes */
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    const int32_t slot = (int32_t)(rig->slot - rig->shared->publications);
    ps_index_ring_t *ring = &rig->shared->publication_histories[slot].ring;
    rig_connect(rig);
    for (int32_t i = 0; i < 8; i++) {
        rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, 2 * MS);
    }
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 8);
    CHECK(ring->count >= 8);
    for (uint64_t i = 0; i < ring->count; i++) {
        ring->entries[i].ordinal = index_ordinal != 0 ? index_ordinal : ring->entries[i].ordinal;
        ring->entries[i].position += index_shift;
    }
    rig->slot->sent_ordinal = slot_ordinal != 0 ? slot_ordinal : rig->slot->sent_ordinal;
    rig_succeed(rig);
    const ps_publication_params_t params = rig_adopted_publication(rig);
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), WINDOW, 0);
    rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
    rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    const int64_t counted = atomic_load(&rig->slot->sent_ordinal);
    rig_close(rig);
    return counted;
}

static void messages_are_counted_on(void)
{
    CHECK_EQ(counted_over_a_death(0, 0, 0), 10);
    CHECK_EQ(counted_over_a_death(0, 0, 1), 10); /* the index knows better than the slot */
    CHECK_EQ(counted_over_a_death(-5, 0, 3), 5); /* it does not know: the slot's word */
    CHECK_EQ(counted_over_a_death(INT64_MAX, 0, 3), 5);
    CHECK_EQ(counted_over_a_death(0, 8, 3), 5);          /* in the middle of a frame's header */
    CHECK_EQ(counted_over_a_death(0, 32, 3), 5);         /* in the middle of a frame */
    CHECK_EQ(counted_over_a_death(-5, 0, INT64_MAX), 2); /* neither: from here on */
}

/* The dead sender had taken the bit, or checked the stream by itself: publishers tell again. */
static void marks_of_the_dead_are_cleared(void)
{
    static const uint8_t payload[100];
    const uint32_t marks[] = { PS_DIRTY_DATA, PS_DIRTY_CHECK, PS_DIRTY_HOT };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
        rig_connect(rig);
        atomic_store(&rig->slot->dirty, marks[i]);
        rig_succeed(rig);
        const ps_publication_params_t params = rig_adopted_publication(rig);
        CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
        rig_step(rig, 0);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, WINDOW, 0);
        rig_step(rig, MS);
        rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, 1000);
        CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
        rig_close(rig);
    }
}

/* An isolated reader was outrun before the death. Its client skips later, and then stores positions
 * that are below the sender's: the daemon follows them. */
static void a_reader_that_was_outrun_is_followed(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .window_bytes = RIG_TERM });
    rig_connect(rig);
    advance_to(rig, EDGE);
    rig_succeed(rig);
    const ps_publication_params_t adopted = rig_adopted_publication(rig);
    CHECK_EQ(ps_publication_add(rig->driver, &adopted, &rig->pub), PS_OK);
    const int32_t reader = rig_make_counter(rig, STEP);
    const ps_subscriber_params_t params = { .position_counter_id = reader,
                                            .slot = 0,
                                            .client_slot = -1,
                                            .tether = 1,
                                            .isolated = 1,
                                            .join_position = STEP,
                                            .depth_bytes = 2 * STEP };
    CHECK_EQ(ps_publication_add_subscriber(rig->driver, rig->pub, &params), PS_OK);
    rig_dirty(rig);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, reader), STEP);
    /* Other frames are where it joined. */
    CHECK_EQ(atomic_load(&rig->shared->subscribers[0].join_ordinal), 0);
    CHECK_EQ(atomic_load(&rig->shared->subscribers[0].lagged), 1);
    CHECK(atomic_load(&rig->shared->subscribers[0].overwritten) > STEP); /* its client will skip */
    ps_counter_set(rig->cnc, reader, rig_tail(rig) - STEP);
    rig_dirty(rig);
    rig_step(rig, MS);
    CHECK_EQ(atomic_load(&rig->shared->subscribers[0].lagged), 0);
    rig_close(rig);
}

/* A daemon dies after it raised the limit, and before it woke the publisher that waits for room. No
 * reader goes on, so the limit stays where it is. */
static void a_publisher_that_nobody_woke_is_woken(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    const int32_t client = rig_add_client(rig, 503);
    ps_client_slot_t *slot = &rig->shared->clients[client];
    rig_step(rig, MS);
    CHECK(rig_tail(rig) < rig_counter(rig, rig->limit));
    rig_succeed(rig);
    atomic_store(&slot->waiting, 1);
    atomic_store(&rig->slot->want_room, 1);
    const uint32_t before = atomic_load(&slot->futex_word);
    const ps_publication_params_t params = rig_adopted_publication(rig);
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
    CHECK_EQ(ps_publication_add_client(rig->driver, rig->pub, client), PS_OK);
    rig_step(rig, MS);
    rig_step(rig, MS);
    CHECK(atomic_load(&slot->futex_word) != before);
    CHECK_EQ(atomic_load(&rig->slot->want_room), 0);
    rig_close(rig);
}

int main(void)
{
    a_reader_that_was_outrun_is_followed();
    producers_that_stopped_at_a_turn_find_the_next_term_zeroed();
    a_publication_survives_deaths_at_any_moment();
    a_publisher_that_nobody_woke_is_woken();
    nobody_there_is_noticed_after_the_connection_timeout();
    counters_that_lie_are_refused();
    messages_are_counted_on();
    marks_of_the_dead_are_cleared();
    return 0;
}
