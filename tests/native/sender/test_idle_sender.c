/* SPDX-License-Identifier: Apache-2.0
 *
 * test_idle_sender.c: a publication that rests gives up the terms that nobody may touch, and none
 * else; it goes on as if nothing had been.
 */
#include "ps_publication.h"
#include "sender_rig.h"

#include <sys/stat.h>

enum { STEP = 1024, QUARTER = RIG_TERM / 4 };

/* Offers frames of STEP bytes and has the receiver take them, up to a position. */
static void advance_to(rig_t *rig, int64_t end)
{
    uint8_t payload[STEP - PS_HEADER_BYTES];
    memset(payload, 0x9a, sizeof payload); /* seen when it is met again three terms on */
    while (rig_tail(rig) < end) {
        CHECK(rig_tail(rig) < rig_counter(rig, rig->limit));
        rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, 0);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 2, 0);
        rig_step(rig, 0);
        memnet_discard(rig->net);
    }
    CHECK_EQ(rig_counter(rig, rig->sender_position), end);
}

/* Asks, and takes the answer. */
static ps_event_t give_up(rig_t *rig, int32_t least_terms)
{
    ps_event_t event;
    CHECK_EQ(ps_publication_release_terms(rig->driver, rig->pub, least_terms), PS_OK);
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_TERMS_RELEASED, &event));
    CHECK(event.kind == PS_KIND_PUBLICATION && event.id == 1);
    return event;
}

static void expect(const ps_event_t event, int64_t from, int64_t to)
{
    CHECK_EQ(event.terms.kept_from, from);
    CHECK_EQ(event.terms.kept_to, to);
}

static int64_t memory_of(const rig_t *rig)
{
    struct stat info;
    CHECK_EQ(stat(rig->log_path, &info), 0);
    return (int64_t)info.st_blocks * 512;
}

static void expect_zero(const rig_t *rig, int64_t from, int64_t to)
{
    static const uint8_t nothing[STEP];
    for (int64_t at = from; at < to; at += STEP) {
        CHECK(memcmp(ps_log_at(&rig->log, at), nothing, STEP) == 0);
    }
}

static rig_t *open_at(int64_t end)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    advance_to(rig, end);
    return rig;
}

static void test_what_may_be_sent_again_and_what_limits_reach_stays(void)
{
    static const int32_t cases[][3] = { /* quarters of a term: end, kept from, to */
                                        { 1, 0, 4 },   { 2, 0, 4 },   { 3, 0, 8 },
                                        { 5, 0, 8 },   { 7, 4, 12 },  { 11, 8, 16 },
                                        { 12, 8, 16 }, { 13, 8, 16 }, { 14, 8, 16 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_t *rig = open_at((int64_t)cases[i][0] * QUARTER);
        const int64_t limit = rig_counter(rig, rig->limit);
        const ps_event_t event = give_up(rig, 1);
        expect(event, (int64_t)cases[i][1] * QUARTER, (int64_t)cases[i][2] * QUARTER);
        CHECK(limit <= event.terms.kept_to);
        CHECK_EQ(rig_counter(rig, rig->limit), limit);
        rig_close(rig);
    }
}

static void test_least_terms_are_kept(void)
{
    rig_t *rig = open_at(QUARTER);
    expect(give_up(rig, 2), 0, 2 * RIG_TERM);
    rig_close(rig);
}

/* Three terms are to stay from the present one on, and the third is not there yet. */
static void test_a_term_that_is_not_there_yet_keeps_none_below(void)
{
    rig_t *rig =
        rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .reserved_position = 3 * RIG_TERM });
    rig_connect(rig);
    advance_to(rig, 7 * QUARTER);
    expect(give_up(rig, 3), RIG_TERM, 3 * RIG_TERM);
    rig_close(rig);
}

static void test_where_all_terms_are_in_use_none_goes(void)
{
    const int64_t end = RIG_TERM + RIG_TERM / 2 + STEP; /* 5/8 reach back, 1/2 reaches on */
    rig_t *rig = open_at(end);
    CHECK_EQ(give_up(rig, 1).terms.kept_to, -1);
    advance_to(rig, 5 * RIG_TERM); /* and nothing is requested: all is there */
    ps_event_t event;
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    rig_close(rig);
}

static void test_a_stream_that_goes_on_requests_its_terms(void)
{
    rig_t *rig = open_at(7 * QUARTER);
    ps_event_t event;
    const int64_t before = memory_of(rig);
    expect(give_up(rig, 1), RIG_TERM, 3 * RIG_TERM);
    CHECK_EQ(ps_log_release(rig->log_path, RIG_TERM, RIG_TERM, 3 * RIG_TERM), PS_OK);
    const int64_t resting = memory_of(rig);
    CHECK_EQ(before - resting, RIG_TERM - 4096);
    for (int i = 0; i < 20; i++) { /* it rests: heartbeats, and no wish */
        rig_step(rig, S);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 2, 0);
    }
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    CHECK_EQ(memory_of(rig), resting);
    advance_to(rig, 2 * RIG_TERM); /* half a term is left beyond the limit */
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    advance_to(rig, 2 * RIG_TERM + STEP);
    CHECK(rig_event(rig, PS_EV_TERM_NEEDED, &event));
    CHECK_EQ(event.term.reserved, 3 * RIG_TERM);
    advance_to(rig, 10 * QUARTER); /* no further without storage: limits end there */
    CHECK_EQ(rig_counter(rig, rig->limit), 3 * RIG_TERM);
    advance_to(rig, 3 * RIG_TERM);
    CHECK_EQ(rig_counter(rig, rig->limit), 3 * RIG_TERM);
    CHECK_EQ(memory_of(rig), resting);
    CHECK_EQ(ps_log_reserve(rig->log_path, RIG_TERM, 3 * RIG_TERM, 3 * RIG_TERM + RIG_TERM), PS_OK);
    expect_zero(rig, 3 * RIG_TERM, 4 * RIG_TERM);
    CHECK_EQ(ps_publication_reserved(rig->driver, rig->pub, INT64_MAX), PS_OK);
    rig_step(rig, 0);
    advance_to(rig, 9 * RIG_TERM + STEP);
    expect_zero(rig, 9 * RIG_TERM + STEP, 10 * RIG_TERM);
    rig_close(rig);
}

static void test_what_was_lost_before_is_sent_again(void)
{
    rig_t *rig = open_at(7 * QUARTER);
    uint8_t out[PS_CONTROL_MAX];
    const int64_t floor = 7 * QUARTER - RIG_TERM / 2;
    expect(give_up(rig, 1), RIG_TERM, 3 * RIG_TERM);
    CHECK_EQ(ps_log_release(rig->log_path, RIG_TERM, RIG_TERM, 3 * RIG_TERM), PS_OK);
    const int64_t resting = memory_of(rig);
    const ps_nak_t nak = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM + 1,
                           (int32_t)(floor - RIG_TERM), STEP };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &nak));
    rig_step(rig, MS);
    CHECK_EQ(rig_take(rig)->length, STEP);
    /* Beyond what is ever sent again; looking for it would take memory. */
    const ps_nak_t old = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM, RIG_TERM / 2, STEP };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &old));
    rig_step(rig, MS);
    CHECK_EQ(memory_of(rig), resting);
    rig_close(rig);
}

static void test_what_was_requested_before_is_requested_again(void)
{
    rig_t *rig =
        rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .reserved_position = 2 * RIG_TERM });
    ps_event_t event;
    rig_connect(rig);
    advance_to(rig, RIG_TERM + QUARTER);
    CHECK(rig_event(rig, PS_EV_TERM_NEEDED, &event) && event.term.reserved == 2 * RIG_TERM);
    expect(give_up(rig, 1), 0, 2 * RIG_TERM);
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    advance_to(rig, RIG_TERM + QUARTER + STEP); /* within the second after the first time */
    CHECK(rig_event(rig, PS_EV_TERM_NEEDED, &event) && event.term.reserved == 2 * RIG_TERM);
    rig_close(rig);
}

static int32_t add_reader(rig_t *rig, int64_t position)
{
    const int32_t counter = rig_make_counter(rig, position);
    const ps_subscriber_params_t params = {
        .position_counter_id = counter, .slot = 0, .client_slot = -1, .tether = 1, .rejoin = 1
    };
    CHECK_EQ(ps_publication_add_subscriber(rig->driver, rig->pub, &params), PS_OK);
    rig_step(rig, 0);
    return counter;
}

static void offer_ipc(rig_t *rig, int32_t reader, int64_t end)
{
    while (rig_tail(rig) < end) {
        CHECK(rig_tail(rig) < rig_counter(rig, rig->limit));
        rig_offer(rig, NULL, STEP - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
        ps_counter_set(rig->cnc, reader, rig_tail(rig));
        rig_dirty(rig);
        rig_step(rig, 0);
    }
}

static void test_ipc_keeps_what_is_unread_and_what_limits_reach(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC });
    ps_event_t event;
    rig_step(rig, 0);
    const int32_t reader = add_reader(rig, 0);
    offer_ipc(rig, reader, 5 * QUARTER);
    const int32_t slow = add_reader(rig, 5 * QUARTER);
    for (int i = 0; i < 32; i++) {
        rig_offer(rig, NULL, STEP - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    ps_counter_set(rig->cnc, reader, rig_tail(rig));
    rig_step(rig, 0);
    CHECK_EQ(rig_tail(rig), 7 * QUARTER);
    expect(give_up(rig, 1), RIG_TERM, 3 * RIG_TERM);
    ps_counter_set(rig->cnc, slow, rig_tail(rig));
    rig_dirty(rig);
    rig_step(rig, 0);
    CHECK_EQ(ps_publication_reserved(rig->driver, rig->pub, INT64_MAX), PS_OK);
    CHECK_EQ(ps_publication_remove_subscriber(rig->driver, rig->pub, slow), PS_OK);
    offer_ipc(rig, reader, 9 * QUARTER); /* in a term's first half nothing reaches out of it */
    expect(give_up(rig, 1), 2 * RIG_TERM, 3 * RIG_TERM);
    CHECK_EQ(ps_log_release(rig->log_path, RIG_TERM, 2 * RIG_TERM, 3 * RIG_TERM), PS_OK);
    const int64_t resting = memory_of(rig);
    CHECK_EQ(rig_counter(rig, rig->limit), 11 * QUARTER);
    add_reader(rig, 7 * QUARTER); /* its place went meanwhile: it begins where others are */
    rig_step(rig, S);
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    CHECK_EQ(memory_of(rig), resting);
    CHECK_EQ(rig_counter(rig, rig->limit), 11 * QUARTER);
    rig_close(rig);
}

static void test_a_stopped_claimer_keeps_all(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    advance_to(rig, 3 * QUARTER);
    const int32_t client = ps_slot_allocate(rig->shared, PS_SLOT_CLIENT, 700);
    const int64_t claim = rig_claim(rig, 100, client);
    rig_step(rig, 0);
    rig_step(rig, 40 * S); /* it is padded over, and may still write */
    CHECK(rig_event(rig, PS_EV_PUB_UNBLOCKED, &event));
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(give_up(rig, 1).terms.kept_to, -1);
    CHECK_EQ(rig_commit(rig, claim, 100, client), 0); /* it has answered */
    rig_step(rig, 0);
    expect(give_up(rig, 1), 0, 2 * RIG_TERM);
    rig_close(rig);
}

static void test_an_ending_publication_keeps_all(void)
{
    rig_t *rig = open_at(7 * QUARTER);
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    CHECK_EQ(give_up(rig, 1).terms.kept_to, -1);
    rig_close(rig);
}

/* Lets the stream be idle, with a status message each second; returns the datagrams sent. */
static int32_t idle(rig_t *rig, int32_t seconds)
{
    int32_t sent = 0;
    for (int32_t i = 0; i < 100 * seconds; i++) {
        if (i % 100 == 50) {
            rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 2, 0);
        }
        rig_step(rig, S / 100);
        while (memnet_take(rig->net, &rig->got)) {
            sent++;
        }
    }
    return sent;
}

static void test_a_resting_stream_sends_a_heartbeat_a_second_and_its_data_at_once(void)
{
    static const uint8_t payload[STEP - PS_HEADER_BYTES];
    rig_t *rig = open_at(QUARTER);
    (void)idle(rig, 5);
    CHECK(rig->pub->resting);
    CHECK_EQ(idle(rig, 10), 10);
    CHECK(rig->pub->resting);
    rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK(rig_take(rig) != NULL && rig->got.length == STEP);
    CHECK(!rig->pub->resting);
    rig_close(rig);
}

static void test_heartbeats_of_the_next_rest_state_the_new_position(void)
{
    static const uint8_t payload[STEP - PS_HEADER_BYTES];
    rig_t *rig = open_at(QUARTER);
    (void)idle(rig, 5);
    CHECK(rig->pub->resting);
    for (int32_t i = 0; i < 2; i++) {
        ps_data_t data;
        CHECK_EQ(idle(rig, 1), 1);
        CHECK_EQ(ps_wire_data(rig->got.data, rig->got.length, &data), PS_WIRE_OK);
        CHECK(data.is_heartbeat);
        CHECK_EQ(data.term_offset, rig_tail(rig) % RIG_TERM);
        rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        (void)idle(rig, 5);
        CHECK(rig->pub->resting);
    }
    rig_close(rig);
}

static void test_a_resting_stream_notices_that_its_receiver_is_silent(void)
{
    rig_t *rig = open_at(QUARTER);
    ps_event_t event;
    (void)idle(rig, 20); /* repeated status messages keep it connected */
    CHECK(rig->pub->resting && rig->pub->connected);
    while (rig_event(rig, PS_EV_PUB_CONNECTED, &event)) {
    }
    rig_step(rig, INT64_C(4400) * S / 1000);
    rig_step(rig, S / 100);
    CHECK(rig->pub->connected);
    rig_step(rig, S / 5);
    rig_step(rig, S / 100);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && !event.connection.connected);
    rig_close(rig);
}

static void test_a_status_message_with_another_window_is_no_repetition(void)
{
    rig_t *rig = open_at(QUARTER);
    (void)idle(rig, 5);
    CHECK(rig->pub->resting);
    const int64_t limit = rig_counter(rig, rig->sender_limit);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK(rig->pub->resting);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), limit);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_tail(rig), RIG_TERM / 4, 0);
    rig_step(rig, 0);
    CHECK(!rig->pub->resting);
    rig_close(rig);
}

int main(void)
{
    test_a_resting_stream_sends_a_heartbeat_a_second_and_its_data_at_once();
    test_heartbeats_of_the_next_rest_state_the_new_position();
    test_a_resting_stream_notices_that_its_receiver_is_silent();
    test_a_status_message_with_another_window_is_no_repetition();
    test_what_may_be_sent_again_and_what_limits_reach_stays();
    test_least_terms_are_kept();
    test_a_term_that_is_not_there_yet_keeps_none_below();
    test_where_all_terms_are_in_use_none_goes();
    test_a_stream_that_goes_on_requests_its_terms();
    test_what_was_lost_before_is_sent_again();
    test_what_was_requested_before_is_requested_again();
    test_ipc_keeps_what_is_unread_and_what_limits_reach();
    test_a_stopped_claimer_keeps_all();
    test_an_ending_publication_keeps_all();
    return 0;
}
