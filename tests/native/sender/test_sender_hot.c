/* SPDX-License-Identifier: Apache-2.0
 * Busy streams in virtual time: who is woken when a frame appears behind a tail that was seen
 * before, with nobody left to tell of it (docs/decisions/0020).
 */
#include "ps_barrier.h"
#include "ps_publication.h"
#include "ps_sender.h"
#include "ps_spend.h"
#include "sender_rig.h"

enum { PAYLOAD = 100, SPAN = 160, MESSAGES = 4, CHECKS = 4 };
#define US INT64_C(1000)

typedef struct hot {
    rig_t *rig;
    int32_t client;   /* the reader's slot */
    int32_t position; /* its counter */
} hot_t;

static uint32_t word(const hot_t *hot)
{
    return atomic_load(&hot->rig->shared->clients[hot->client].futex_word);
}

static uint32_t dirty(const hot_t *hot)
{
    return atomic_load(&hot->rig->slot->dirty);
}

static ps_sender_t *sender(const hot_t *hot)
{
    return hot->rig->driver->sender;
}

static void offer_many(const hot_t *hot)
{
    for (int i = 0; i < MESSAGES; i++) {
        rig_offer(hot->rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
        atomic_fetch_add(&hot->rig->slot->published_ordinal, 1);
    }
}

static void heat(const hot_t *hot)
{
    CHECK(!sender(hot)->barriers); /* one thread: only as this test requests it */
    sender(hot)->barriers = true;
    rig_step(hot->rig, 0);
    offer_many(hot); /* the first look only begins the count */
    rig_step(hot->rig, 1 * MS);
    for (int check = 0; check < CHECKS; check++) {
        CHECK_EQ(dirty(hot), PS_DIRTY_NOT);
        offer_many(hot);
        rig_step(hot->rig, 10 * US);
    }
    CHECK_EQ(dirty(hot), PS_DIRTY_HOT);
    CHECK_EQ(sender(hot)->hot_count, 1);
    rig_step(hot->rig, 10 * US);
}

/* An IPC stream with one reader, made hot. */
static hot_t open_hot(void)
{
    hot_t hot = { .rig = rig_open(&(rig_options_t){ .kind = RIG_IPC }) };
    hot.client = ps_slot_allocate(hot.rig->shared, PS_SLOT_CLIENT, 501);
    CHECK(hot.client >= 0);
    hot.position = rig_make_counter(hot.rig, 0);
    const ps_subscriber_params_t reader = {
        .position_counter_id = hot.position, .slot = 0, .client_slot = hot.client, .tether = 1
    };
    CHECK_EQ(ps_publication_add_subscriber(hot.rig->driver, hot.rig->pub, &reader), PS_OK);
    heat(&hot);
    return hot;
}

/* Moves the tail, lets the sender see that, then commits; returns the reader's word after it. */
static uint32_t commit_late(const hot_t *hot)
{
    const uint32_t before = word(hot);
    const int64_t position = rig_claim(hot->rig, PAYLOAD, hot->client);
    rig_step(hot->rig, 10 * US);
    CHECK(word(hot) != before); /* too early: there is nothing to be read */
    const uint32_t woken = word(hot);
    CHECK(rig_commit(hot->rig, position, PAYLOAD, hot->client));
    CHECK_EQ(dirty(hot), PS_DIRTY_HOT);
    rig_step(hot->rig, 10 * US);
    CHECK_EQ(word(hot), woken); /* the tail did not move */
    return woken;
}

static void test_a_stream_that_cools_wakes_its_readers_once_more(void)
{
    hot_t hot = open_hot();
    const uint32_t woken = commit_late(&hot);
    rig_step(hot.rig, 60 * US);
    CHECK_EQ(sender(&hot)->hot_count, 0);
    CHECK_EQ(dirty(&hot), PS_DIRTY_NOT);
    CHECK(word(&hot) != woken);
    CHECK_EQ(rig_counter(hot.rig, hot.rig->position), rig_tail(hot.rig));
    rig_close(hot.rig);
}

static void test_a_sender_that_is_about_to_sleep_wakes_them_too(void)
{
    hot_t hot = open_hot();
    const uint32_t woken = commit_late(&hot);
    CHECK(ps_sender_cool(sender(&hot)));
    CHECK(word(&hot) != woken);
    CHECK_EQ(dirty(&hot), PS_DIRTY_NOT);
    CHECK(ps_sender_has_work(sender(&hot))); /* so it does not sleep yet */
    rig_step(hot.rig, 0);
    CHECK(!ps_sender_cool(sender(&hot)));
    CHECK(!ps_sender_has_work(sender(&hot)));
    rig_close(hot.rig);
}

static void test_a_hot_stream_is_checked_without_notice(void)
{
    hot_t hot = open_hot();
    for (int i = 0; i < 100; i++) {
        const uint32_t before = word(&hot);
        rig_offer(hot.rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
        CHECK_EQ(atomic_load(&hot.rig->shared->dirty[0]), 0);
        rig_step(hot.rig, 10 * US);
        CHECK(word(&hot) != before);
        /* The reader's release goes unsaid as well: room comes with the next look. */
        ps_counter_set(hot.rig->cnc, hot.position, rig_tail(hot.rig));
        rig_step(hot.rig, 10 * US);
        CHECK_EQ(rig_counter(hot.rig, hot.rig->limit), rig_tail(hot.rig) + RIG_TERM / 2);
    }
    CHECK_EQ(sender(&hot)->hot_count, 1);
    rig_close(hot.rig);
}

/* A publisher read NOT, then the stream became hot, then its mark falls on HOT: it tells nobody. */
static void test_a_mark_that_falls_on_hot_does_no_harm(void)
{
    hot_t hot = open_hot();
    atomic_store(&hot.rig->slot->dirty, PS_DIRTY_DATA);
    const uint32_t before = word(&hot);
    rig_offer(hot.rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    CHECK_EQ(atomic_load(&hot.rig->shared->dirty[0]), 0);
    rig_step(hot.rig, 10 * US);
    CHECK(word(&hot) != before);
    rig_step(hot.rig, 60 * US);
    CHECK_EQ(dirty(&hot), PS_DIRTY_NOT);
    rig_offer(hot.rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    CHECK(atomic_load(&hot.rig->shared->dirty[0]) != 0);
    rig_close(hot.rig);
}

/* A publisher that read NOT may set its bit after the stream became hot. */
static void test_a_bit_that_comes_late_does_no_harm(void)
{
    hot_t hot = open_hot();
    for (int i = 0; i < 8; i++) {
        offer_many(&hot);
        atomic_store(&hot.rig->slot->dirty, PS_DIRTY_DATA);
        ps_shared_set_dirty(hot.rig->shared,
                            (int32_t)(hot.rig->slot - hot.rig->shared->publications));
        rig_step(hot.rig, 10 * US);
        CHECK_EQ(dirty(&hot), PS_DIRTY_HOT);
        CHECK_EQ(sender(&hot)->hot_count, 1);
    }
    rig_close(hot.rig);
}

/* ---- what is held back is no news, or the sender would spin beside it ------------------------ */

static hot_t open_network(rig_options_t options)
{
    hot_t hot = { .rig = rig_open(&options) };
    if (options.kind == RIG_MANUAL) {
        CHECK_EQ(
            ps_send_endpoint_add_destination(hot.rig->driver, hot.rig->endpoint, 7, &hot.rig->peer),
            PS_OK);
    }
    rig_connect(hot.rig);
    heat(&hot);
    return hot;
}

/* Frames are there and stay there: nobody looks for their sake, and the stream cools. */
static void expect_rest(const hot_t *hot)
{
    CHECK(rig_counter(hot->rig, hot->rig->sender_position) < rig_tail(hot->rig));
    CHECK_EQ(ps_sender_check_hot(sender(hot)), 0);
    CHECK_EQ(ps_driver_step(hot->rig->driver, hot->rig->now_ns), 0);
    rig_step(hot->rig, 500 * US);
    CHECK_EQ(sender(hot)->hot_count, 0);
}

static void expect_all_sent(const hot_t *hot)
{
    for (int i = 0; i < 20; i++) {
        rig_step(hot->rig, 1 * MS);
    }
    CHECK_EQ(rig_counter(hot->rig, hot->rig->sender_position), rig_tail(hot->rig));
}

/* Offers until not everything leaves. */
static void offer_too_much(const hot_t *hot)
{
    while (rig_counter(hot->rig, hot->rig->sender_position) == rig_tail(hot->rig)) {
        offer_many(hot);
        rig_step(hot->rig, 0);
    }
}

/* States a window, or a rate. */
static void status_message(const hot_t *hot, int32_t window, int64_t rate)
{
    const int64_t position = rig_counter(hot->rig, hot->rig->sender_position);
    const ps_trailer_t trailer = { .capabilities = PS_CAP_PENSTOCK,
                                   .ordinal = -1,
                                   .credit_limit = -1,
                                   .released_ordinal = -1,
                                   .congestion_window = rate > 0,
                                   .pacing_rate = rate };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM,
                         .term_offset = (int32_t)position,
                         .window = window,
                         .receiver_id = GOLDEN_RECEIVER };
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(hot->rig, &hot->rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
    rig_step(hot->rig, 0);
}

static void held_and_sent_after_all(hot_t *hot)
{
    offer_too_much(hot);
    offer_many(hot);
    rig_step(hot->rig, 0);
    expect_rest(hot);
    expect_all_sent(hot);
    rig_close(hot->rig);
}

static void test_a_rate_holds_frames_back(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST, .rate_bytes_per_s = 1000000 });
    held_and_sent_after_all(&hot);
}

static void test_a_congestion_window_holds_frames_back(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST });
    status_message(&hot, RIG_TERM / 4, 1000000);
    held_and_sent_after_all(&hot);
}

/* The room left is too little for the next frame. */
static void test_a_window_holds_frames_back(void)
{
    hot_t hot = { .rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST }) };
    rig_step(hot.rig, 0);
    rig_sm(hot.rig, GOLDEN_RECEIVER, &hot.rig->peer, 0, (CHECKS + 1) * MESSAGES * SPAN + 32, 0);
    rig_step(hot.rig, 0);
    heat(&hot);
    offer_many(&hot);
    rig_step(hot.rig, 0);
    expect_rest(&hot);
    rig_sm(hot.rig, GOLDEN_RECEIVER, &hot.rig->peer, 0, RIG_TERM / 2, 0);
    expect_all_sent(&hot);
    rig_close(hot.rig);
}

static void test_a_full_socket_holds_frames_back(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST });
    memnet_room(hot.rig->net, 0);
    offer_many(&hot);
    rig_step(hot.rig, 0);
    expect_rest(&hot);
    memnet_room(hot.rig->net, -1);
    expect_all_sent(&hot);
    rig_close(hot.rig);
}

static void test_a_corrupt_stream_is_given_up(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST });
    const int64_t end = rig_offer(hot.rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    atomic_store(&ps_frame_at(&hot.rig->log, end - SPAN)->frame_length, PS_HEADER_BYTES - 1);
    rig_step(hot.rig, 10 * US);
    expect_rest(&hot);
    rig_close(hot.rig);
}

static void test_a_stream_has_nowhere_to_go(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_MANUAL });
    CHECK_EQ(ps_send_endpoint_remove_destination(hot.rig->driver, hot.rig->endpoint, 7), PS_OK);
    offer_many(&hot);
    rig_step(hot.rig, 10 * US);
    expect_rest(&hot);
    rig_close(hot.rig);
}

static void test_a_revoked_stream_is_done(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST });
    CHECK_EQ(ps_publication_revoke(hot.rig->driver, hot.rig->pub), PS_OK);
    offer_many(&hot);
    rig_step(hot.rig, 0);
    expect_rest(&hot);
    rig_close(hot.rig);
}

/* ---- naps ------------------------------------------------------------------------------------ */

static void test_a_sender_naps_while_hot_streams_stay_on_this_host(void)
{
    hot_t hot = open_hot();
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0); /* a window of 32 KiB is soon used up */
    hot.rig->pub->window_bytes = 320 * 1024;
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 20480);
    hot.rig->pub->window_bytes = 320 * 1024 - 8192;
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0); /* not worth it */
    hot.rig->pub->window_bytes = 8 * 1024 * 1024;
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 50 * US);
    atomic_store(&hot.rig->slot->want_room, 1);
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0); /* a publisher waits for us */
    atomic_store(&hot.rig->slot->want_room, 0);
    ps_sender_ready(sender(&hot), hot.rig->pub);
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0); /* it has its turn to come */
    rig_step(hot.rig, 10 * US);
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 50 * US);
    rig_step(hot.rig, 60 * US);
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0); /* nothing is hot: it may park */
    rig_close(hot.rig);
}

/* Moves messages out of the publisher's lease into the log. */
static void offer_leased(const hot_t *hot, uint64_t *lease)
{
    for (int i = 0; i < MESSAGES; i++) {
        rig_offer(hot->rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
    }
    *lease -= MESSAGES;
    atomic_store(&hot->rig->slot->lease, *lease);
}

/* The spent word moves once for many messages, and the lease states how many of them are there. */
static void test_a_stream_whose_publisher_leases_credits_becomes_hot(void)
{
    hot_t hot = { .rig = rig_open(&(rig_options_t){ .kind = RIG_IPC }) };
    hot.position = rig_make_counter(hot.rig, 0);
    const ps_subscriber_params_t reader = { .position_counter_id = hot.position,
                                            .slot = 0,
                                            .client_slot = -1,
                                            .tether = 1,
                                            .credits = 1024,
                                            .credit_burst = 1024 };
    CHECK_EQ(ps_publication_add_subscriber(hot.rig->driver, hot.rig->pub, &reader), PS_OK);
    sender(&hot)->barriers = true;
    rig_step(hot.rig, 0);
    CHECK(hot.rig->pub->credits.on);
    const uint64_t before = atomic_load(&hot.rig->slot->spend);
    uint64_t lease = ps_lease_of(ps_spend_epoch(before), PS_LEASE_MOST);
    atomic_store(&hot.rig->slot->spend, ps_spend_moved(before, PS_LEASE_MOST));
    atomic_store(&hot.rig->slot->lease, lease);
    for (int check = 0; check < CHECKS + 3; check++) { /* a look sees the credits of the last one */
        offer_leased(&hot, &lease);
        rig_step(hot.rig, 10 * US);
    }
    CHECK_EQ(dirty(&hot), PS_DIRTY_HOT);
    rig_close(hot.rig);
}

static void test_a_sender_does_not_nap_beside_hot_network_streams(void)
{
    hot_t hot = open_network((rig_options_t){ .kind = RIG_UNICAST });
    CHECK_EQ(sender(&hot)->hot_count, 1);
    hot.rig->pub->window_bytes = 8 * 1024 * 1024;
    CHECK_EQ(ps_sender_nap_ns(sender(&hot)), 0);
    rig_close(hot.rig);
}

int main(void)
{
    if (!ps_barrier_available()) {
        printf("this kernel has no membarrier: no stream becomes hot\n");
        return 0;
    }
    test_a_stream_that_cools_wakes_its_readers_once_more();
    test_a_sender_that_is_about_to_sleep_wakes_them_too();
    test_a_hot_stream_is_checked_without_notice();
    test_a_mark_that_falls_on_hot_does_no_harm();
    test_a_bit_that_comes_late_does_no_harm();
    test_a_rate_holds_frames_back();
    test_a_congestion_window_holds_frames_back();
    test_a_window_holds_frames_back();
    test_a_full_socket_holds_frames_back();
    test_a_corrupt_stream_is_given_up();
    test_a_stream_has_nowhere_to_go();
    test_a_revoked_stream_is_done();
    test_a_sender_naps_while_hot_streams_stay_on_this_host();
    test_a_sender_does_not_nap_beside_hot_network_streams();
    test_a_stream_whose_publisher_leases_credits_becomes_hot();
    return 0;
}
