/* SPDX-License-Identifier: Apache-2.0
 * The sender towards this host: publisher limit, cleaning, storage, local readers, stuck claims,
 * and the account of who holds whom.
 */
#include "ps_driver_state.h"
#include "ps_account.h"
#include "ps_publication.h"
#include "ps_tether.h"
#include "sender_rig.h"

static void test_limit_follows_the_sender_and_the_log_is_zeroed_behind_it(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), 0);
    rig_connect(rig);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    int64_t messages = 0;
    for (int lap = 0; lap < 40; lap++) { /* more than thirteen terms */
        const int32_t filled = rig_fill(rig);
        CHECK(filled > 0);
        messages += filled;
        rig_step(rig, 0);
        const int64_t sent = rig_counter(rig, rig->sender_position);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, sent, RIG_TERM / 2, 0);
        rig_step(rig, 0);
        CHECK_EQ(rig_counter(rig, rig->limit),
                 rig_counter(rig, rig->sender_position) + RIG_TERM / 2);
        memnet_discard(rig->net);
    }
    const int64_t sent = rig_counter(rig, rig->sender_position);
    CHECK_EQ(sent, rig_tail(rig));
    CHECK_EQ(rig_counter(rig, rig->position), sent);
    for (int64_t at = sent; at < sent + RIG_TERM; at += 32) { /* the next term's worth is zero */
        CHECK_EQ(ps_frame_length_acquire(ps_frame_at(&rig->log, at)), 0);
    }
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), messages);
    rig_close(rig);
}

static void test_storage_holds_the_limit(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .reserved_position = RIG_TERM });
    ps_event_t event;
    rig_connect(rig);
    CHECK(!rig_event(rig, PS_EV_TERM_NEEDED, &event));
    for (int i = 0; i < 3; i++) {
        rig_fill(rig);
        rig_step(rig, 0);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_counter(rig, rig->sender_position),
               RIG_TERM / 2, 0);
        rig_step(rig, 0);
    }
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    CHECK(rig_event(rig, PS_EV_TERM_NEEDED, &event) && event.term.reserved == RIG_TERM);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_STORAGE);
    rig_step(rig, 2 * S);
    CHECK(rig_event(rig, PS_EV_TERM_NEEDED, &event)); /* again while it binds */
    CHECK_EQ(ps_publication_reserved(rig->driver, rig->pub, INT64_MAX), PS_OK);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM + RIG_TERM / 2);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NONE);
    CHECK_EQ(atomic_load(&rig->slot->blocked_ns[PS_CAUSE_STORAGE]), 2 * S);
    rig_close(rig);
}

static void test_ipc(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC });
    ps_event_t event;
    ps_publication_status_t status;
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NO_RECEIVER);
    const int32_t owner = rig_add_client(rig, 501);
    const int32_t fast = rig_add_reader(rig, 0, -1, 1);
    const int32_t slow = rig_add_reader(rig, 0, owner, 1);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 1);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    CHECK_EQ(rig_fill(rig), 32);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SLOW_SUBSCRIBER);
    CHECK_EQ(atomic_load(&rig->slot->wake_position), 32); /* any progress matters now */
    ps_counter_set(rig->cnc, fast, RIG_TERM / 2);
    rig_step(rig, 1 * S);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 501);
    ps_counter_set(rig->cnc, slow, 1024);
    CHECK(ps_sender_has_work(rig->driver->sender));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2 + 1024);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NONE);
    CHECK_EQ(atomic_load(&rig->slot->blocked_ns[PS_CAUSE_SLOW_SUBSCRIBER]), 1 * S);
    ps_publication_get_status(rig->pub, &status);
    CHECK_EQ(status.consumer_position, 1024);
    CHECK_EQ(status.receivers, 2);
    ps_counter_set(rig->cnc, slow, 1033); /* no frame begins there */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2 + 1024);
    ps_counter_set(rig->cnc, slow, INT64_MAX); /* a lie: no further than was published */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    CHECK_EQ(atomic_load(&rig->slot->wake_position), INT64_MAX);
    CHECK_EQ(ps_publication_remove_subscriber(rig->driver, rig->pub, slow), PS_OK);
    CHECK_EQ(ps_publication_remove_subscriber(rig->driver, rig->pub, fast), PS_OK);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    rig_close(rig);
}

static void test_ipc_drains_when_read(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC });
    ps_event_t event;
    const int32_t reader = rig_add_reader(rig, 0, -1, 1);
    rig_step(rig, 0);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_claim(rig, 100, 0); /* its owner went away: draining does not wait for it */
    rig_step(rig, 0);
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 0);
    CHECK(!rig_event(rig, PS_EV_PUB_DRAINED, &event));
    CHECK_EQ(atomic_load(&rig->log.meta->end_of_stream), rig_tail(rig));
    ps_counter_set(rig->cnc, reader, 64);
    rig_step(rig, 2 * S);
    CHECK(rig_event(rig, PS_EV_PUB_UNBLOCKED, &event) && event.unblocked.position == 64 &&
          event.unblocked.bytes == 160);
    ps_counter_set(rig->cnc, reader, rig_tail(rig));
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_PUB_DRAINED, &event) && event.drained.position == 0);
    rig_close(rig);
}

/* The conductor tells a client of its image before the sender has taken the reader in.  Beside
 * another reader the publisher may fill the window meanwhile, and the newcomer may read all of it:
 * its position is beyond all that the sender has looked at, and stays. */
static void test_a_reader_that_read_before_the_sender_knew_it(void)
{
    for (int32_t lap = 0; lap < 5; lap++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC });
        const int32_t first = rig_add_reader(rig, 0, -1, 1);
        rig_step(rig, 0);
        for (int32_t i = 0; i < lap; i++) { /* half a term each: not only in the first term */
            CHECK(rig_fill(rig) > 0);
            ps_counter_set(rig->cnc, first, rig_tail(rig));
            rig_step(rig, 0);
        }
        const int32_t late = rig_add_reader(rig, rig_tail(rig), -1, 1);
        CHECK(rig_fill(rig) > 0);
        const int64_t read = rig_tail(rig);
        ps_counter_set(rig->cnc, first, read);
        ps_counter_set(rig->cnc, late, read);
        rig_step(rig, 0);
        rig_step(rig, 0);
        CHECK_EQ(rig_counter(rig, late), read);
        CHECK_EQ(rig_counter(rig, rig->limit), read + RIG_TERM / 2);
        rig_close(rig);
    }
}

/* The position of the others replaces one that cannot be. */
static void test_an_impossible_position_of_a_newcomer_is_replaced(void)
{
    static const int64_t wrong[] = { -32, 7, 1 << 20, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC });
        const int32_t first = rig_add_reader(rig, 0, -1, 1);
        rig_step(rig, 0);
        CHECK(rig_fill(rig) > 0);
        ps_counter_set(rig->cnc, first, 1024);
        rig_step(rig, 0);
        const int32_t late = rig_add_reader(rig, wrong[i], -1, 1);
        rig_step(rig, 0);
        CHECK_EQ(rig_counter(rig, late), 1024);
        rig_close(rig);
    }
}

static void test_spies_gate_producers_only(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    const int32_t client = rig_add_client(rig, 502);
    const int32_t spy = rig_add_reader(rig, 0, client, 1);
    rig_step(rig, 0);
    rig_fill(rig);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), RIG_TERM / 2);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, RIG_TERM / 2, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SPY);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 502);
    ps_counter_set(rig->cnc, spy, RIG_TERM / 2);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    rig_close(rig);
}

static void test_spies_simulate_a_connection(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .ssc = 1 });
    rig_step(rig, 0);
    const int32_t spy = rig_add_reader(rig, 0, -1, 1);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_offer(rig, "y", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 0);
    ps_counter_set(rig->cnc, spy, 128);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 128);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 128);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 2);
    rig_close(rig);
}

/* A spy joins, and the sender sends more before it hears of the spy: the spy counts from its join,
 * also if that is the first message of the stream. A position between two frames has no count. */
static void test_a_spy_that_joined_behind_the_sender_counts_from_its_join(void)
{
    enum { FRAME = 64, SENT = 3 };
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .window_bytes = RIG_TERM });
    rig_connect(rig);
    for (int32_t i = 0; i < SENT; i++) {
        rig_offer(rig, "01234567890123456789", 20, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), SENT * FRAME);
    for (int32_t half = 0; half <= 2 * SENT; half++) {
        const int64_t join = half * FRAME / 2;
        const ps_subscriber_params_t spy = { .position_counter_id = rig_make_counter(rig, join),
                                             .slot = half,
                                             .client_slot = -1,
                                             .tether = 1,
                                             .isolated = 1,
                                             .join_position = join,
                                             .depth_bytes = FRAME };
        CHECK_EQ(ps_publication_add_subscriber(rig->driver, rig->pub, &spy), PS_OK);
        rig_step(rig, 0);
        CHECK_EQ(ps_ordinal_read(atomic_load(&rig->shared->subscribers[half].join_ordinal)),
                 half % 2 == 0 ? half / 2 : PS_ORDINAL_UNKNOWN);
    }
    rig_close(rig);
}

/* What a spy led the sender over is not held by a window: it is the slower spy that holds it. */
static void test_a_slow_spy_holds_what_a_fast_one_led(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .ssc = 1 });
    const int32_t client = rig_add_client(rig, 505);
    rig_step(rig, 0);
    const int32_t fast = rig_add_reader(rig, 0, -1, 1);
    (void)rig_add_reader(rig, 0, client, 1);
    rig_step(rig, 0);
    rig_fill(rig);
    rig_step(rig, 0);
    ps_counter_set(rig->cnc, fast, rig_tail(rig));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SPY);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 505);
    rig_close(rig);
}

static void test_want_room_wakes_the_client(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    const int32_t client = rig_add_client(rig, 503);
    ps_client_slot_t *slot = &rig->shared->clients[client];
    rig_step(rig, 0);
    rig_fill(rig);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, 0, 0);
    rig_step(rig, 0);
    atomic_store(&slot->waiting, 1);
    atomic_store(&rig->slot->want_room, 1);
    const uint32_t before = atomic_load(&slot->futex_word);
    rig_fill(rig);
    rig_step(rig, 0); /* what was filled leaves, window 32 KiB: the limit stays */
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, RIG_TERM / 2, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK(atomic_load(&slot->futex_word) != before);
    CHECK_EQ(atomic_load(&rig->slot->want_room), 0);
    rig_close(rig);
}

static void test_a_stopped_claimer_is_unblocked_and_quarantined(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    const int32_t client = rig_add_client(rig, 504);
    rig_step(rig, 0);
    const int64_t claim = rig_claim(rig, 100, client);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    for (int i = 0; i < 140; i++) {
        rig_step(rig, 100 * MS);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, RIG_TERM / 2, 0);
    }
    CHECK_EQ(rig_counter(rig, rig->sender_position), claim);
    CHECK(rig_event(rig, PS_EV_PUB_BLOCKED, &event) && event.blocked.position == claim &&
          event.blocked.client_slot == client);
    for (int i = 0; i < 20; i++) {
        rig_step(rig, 100 * MS);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, RIG_TERM / 2, 0);
    }
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    CHECK_EQ(rig_counter(rig, PS_SYS_UNBLOCKED_PUBLICATIONS), 1);
    CHECK(rig_event(rig, PS_EV_PUB_UNBLOCKED, &event) && event.unblocked.position == claim &&
          event.unblocked.bytes == 160);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 1);
    for (int lap = 0; lap < 20; lap++) { /* its memory is not reused */
        rig_fill(rig);
        rig_step(rig, 0);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, rig_counter(rig, rig->sender_position),
               RIG_TERM / 2, 0);
        rig_step(rig, 0);
        memnet_discard(rig->net);
    }
    CHECK_EQ(rig_counter(rig, rig->limit), 3 * RIG_TERM);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_BLOCKED_CLAIM);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), 504);
    memset((uint8_t *)ps_frame_at(&rig->log, claim) + 32, 0xEE, 100); /* it wakes and writes */
    CHECK(!rig_commit(rig, claim, 100, client));
    rig_step(rig, 1 * MS);
    CHECK(rig_counter(rig, rig->limit) > 3 * RIG_TERM);
    for (int64_t at = 32; at < 160; at += 32) { /* what it wrote is gone again */
        CHECK_EQ(ps_frame_length_acquire(ps_frame_at(&rig->log, claim + at)), 0);
    }
    rig_close(rig);
}

static void test_a_claim_in_the_first_cycle_has_its_time(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_claim(rig, 40, 0);
    rig_step(rig, 0);
    rig_step(rig, 14 * S);
    CHECK_EQ(rig_counter(rig, PS_SYS_UNBLOCKED_PUBLICATIONS), 0);
    rig_step(rig, 1 * S);
    CHECK_EQ(rig_counter(rig, PS_SYS_UNBLOCKED_PUBLICATIONS), 1);
    rig_close(rig);
}

static void test_a_dead_claimer_is_unblocked_at_once(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    const int32_t dead = rig_add_client(rig, 505), alive = rig_add_client(rig, 506);
    rig_step(rig, 0);
    const int64_t held = rig_claim(rig, 40, alive);
    const int64_t lost = rig_claim(rig, 40, dead);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    CHECK_EQ(ps_publication_unblock(rig->driver, rig->pub, dead), PS_OK);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), held);
    CHECK_EQ(ps_frame_at(&rig->log, lost)->type, PS_TYPE_PAD);
    CHECK(rig_commit(rig, held, 40, alive));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    rig_close(rig);
}

static void test_a_dead_exclusive_owner_is_unblocked_at_once(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .exclusive = 1 });
    rig_connect(rig);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_claim(rig, 40, 7);
    rig_step(rig, 0);
    rig_step(rig, 40 * S); /* the time-out is for shared logs */
    CHECK_EQ(rig_counter(rig, rig->sender_position), 64);
    CHECK_EQ(ps_publication_unblock(rig->driver, rig->pub, 3), PS_OK);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    rig_close(rig);
}

/* All that there is was sent, up to the very edge of the window: it is the spy that holds. */
static void test_a_window_that_is_used_up_holds_nothing(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .window_bytes = 4096 });
    (void)rig_add_reader(rig, 0, -1, 1);
    rig_step(rig, 0);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, 4096, 0);
    rig_step(rig, 0);
    for (int i = 0; i < 4; i++) {
        rig_offer(rig, NULL, 1024 - 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 4096);
    CHECK_EQ(rig_counter(rig, rig->limit), 4096);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_SPY);
    rig_close(rig);
}

/* The window would end where a term that is not zeroed yet begins: only its readers change that. */
static void test_a_limit_at_a_terms_start_wakes_nobody(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_IPC, .window_bytes = RIG_TERM });
    const int32_t reader = rig_add_reader(rig, 0, -1, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    rig_fill(rig);
    ps_counter_set(rig->cnc, reader, RIG_TERM);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, rig->limit), 2 * RIG_TERM - PS_FRAME_ALIGNMENT);
    rig_step(rig, 200 * MS); /* an untethered reader is checked */
    CHECK(ps_driver_next_deadline_ns(rig->driver, rig->now_ns) > rig->now_ns + 10 * MS);
    rig_fill(rig);
    rig_step(rig, MS);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_SLOW_SUBSCRIBER);
    ps_counter_set(rig->cnc, reader, RIG_TERM + 1024);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, rig->limit), 2 * RIG_TERM + 1024);
    rig_close(rig);
}

static void test_untethered_spy_is_left_behind(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    const int32_t spy = rig_add_reader(rig, 0, -1, 0);
    rig_step(rig, 0);
    rig_fill(rig);
    rig_step(rig, 0);
    for (int i = 0; i < 140; i++) {
        rig_step(rig, 100 * MS);
        rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, RIG_TERM / 2, 0);
    }
    CHECK(rig_event(rig, PS_EV_SUBSCRIBER, &event) && event.subscriber.state == PS_TETHER_LINGER);
    CHECK_EQ(event.subscriber.position_counter_id, spy);
    CHECK(rig_event(rig, PS_EV_SUBSCRIBER, &event) && event.subscriber.state == PS_TETHER_RESTING);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM);
    rig_step(rig, 10 * S);
    rig_step(rig, 1 * S);
    CHECK(rig_event(rig, PS_EV_SUBSCRIBER, &event) && event.subscriber.state == PS_TETHER_ACTIVE);
    CHECK_EQ(rig_counter(rig, spy), rig_counter(rig, rig->sender_position));
    rig_close(rig);
}

static void test_account_sums_hold(void)
{
    ps_publication_slot_t *slot = aligned_alloc(64, sizeof(*slot));
    CHECK(slot != NULL);
    memset(slot, 0, sizeof(*slot));
    int64_t now_ns = 5, held_ns = 0, by_cause = 0, by_culprit = 0;
    uint64_t random = 88172645463325252u;
    int32_t cause_now = PS_CAUSE_NONE;
    for (int i = 0; i < 5000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const int64_t step = (int64_t)(random % 1000);
        held_ns += cause_now != PS_CAUSE_NONE ? step : 0;
        now_ns += step;
        cause_now = (int32_t)((random >> 20) % 5);
        ps_account_bind(slot, cause_now, (int64_t)((random >> 30) % 20), NULL, now_ns);
    }
    ps_account_bind(slot, PS_CAUSE_NONE, 0, NULL, now_ns);
    for (int i = 0; i < PS_CAUSE_COUNT; i++) {
        by_cause += atomic_load(&slot->blocked_ns[i]);
    }
    for (int i = 0; i <= PS_CULPRITS; i++) {
        by_culprit += atomic_load(&slot->culprits[i].blocked_ns);
    }
    CHECK_EQ(by_cause, held_ns);
    CHECK_EQ(by_culprit, held_ns);
    atomic_store(&slot->cause, 12345); /* a client scribbled: no index from it */
    ps_account_bind(slot, PS_CAUSE_SPY, 0, NULL, now_ns + 1);
    free(slot);
}

/* Eight ids with 0.1 s each, then one with 1000 times 10 ms: it is listed, with its error. */
static void test_the_account_keeps_the_heavy_hitters(void)
{
    ps_publication_slot_t *slot = aligned_alloc(PS_LINE, sizeof(*slot));
    memset(slot, 0, sizeof(*slot));
    int64_t now_ns = 1;
    int64_t total = 0;
    int64_t listed = 0;
    for (int64_t id = 1; id <= 8; id++) {
        ps_account_bind(slot, PS_CAUSE_SPY, id, NULL, now_ns);
        now_ns += 100 * MS;
        total += 100 * MS;
    }
    for (int i = 0; i < 1000; i++) {
        ps_account_bind(slot, PS_CAUSE_SPY, 99, NULL, now_ns);
        now_ns += 10 * MS;
        ps_account_bind(slot, PS_CAUSE_NONE, 0, NULL, now_ns);
        now_ns += MS;
        total += 10 * MS;
    }
    int64_t shown_ns = 0;
    for (int i = 0; i <= PS_CULPRITS; i++) {
        const int64_t error_ns = atomic_load(&slot->culprits[i].error_ns);
        shown_ns += atomic_load(&slot->culprits[i].blocked_ns);
        CHECK(error_ns <= total / PS_CULPRITS);
        if (atomic_load(&slot->culprits[i].id) == 99) {
            listed = atomic_load(&slot->culprits[i].blocked_ns);
            CHECK_EQ(listed - error_ns, 10000 * MS);
        }
    }
    CHECK(listed >= 10000 * MS);
    CHECK_EQ(shown_ns, total);
    free(slot);
}

static void test_receiver_window_is_charged_to_the_receiver(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_fill(rig);
    rig_step(rig, 0);
    rig_fill(rig); /* the window is used up, then the publisher's room */
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_RECEIVER_WINDOW);
    CHECK_EQ(atomic_load(&rig->slot->cause_culprit), GOLDEN_RECEIVER);
    rig_step(rig, 700 * MS);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, RIG_TERM / 2, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_cause(rig), PS_CAUSE_NONE);
    CHECK_EQ(atomic_load(&rig->slot->blocked_ns[PS_CAUSE_RECEIVER_WINDOW]), 700 * MS);
    CHECK_EQ(atomic_load(&rig->slot->culprits[0].id), GOLDEN_RECEIVER);
    rig_close(rig);
}

static void test_index_ring_holds_positions_and_ordinals(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    for (int i = 0; i < 10; i++) {
        rig_offer(rig, NULL, 992, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, 1 * MS);
    }
    const ps_index_ring_t *ring =
        &rig->shared->publication_histories[rig->slot - rig->shared->publications].ring;
    CHECK_EQ(atomic_load(&ring->count), 10);
    CHECK_EQ(atomic_load(&ring->entries[9].position), 10 * 1024);
    CHECK_EQ(atomic_load(&ring->entries[9].ordinal), 10);
    CHECK_EQ(atomic_load(&ring->entries[9].time_ns),
             rig->now_ns + ps_context_epoch_offset_ns(&rig->driver->context));
    rig_close(rig);
}

int main(void)
{
    test_limit_follows_the_sender_and_the_log_is_zeroed_behind_it();
    test_storage_holds_the_limit();
    test_ipc();
    test_a_reader_that_read_before_the_sender_knew_it();
    test_an_impossible_position_of_a_newcomer_is_replaced();
    test_ipc_drains_when_read();
    test_spies_gate_producers_only();
    test_spies_simulate_a_connection();
    test_a_spy_that_joined_behind_the_sender_counts_from_its_join();
    test_a_slow_spy_holds_what_a_fast_one_led();
    test_want_room_wakes_the_client();
    test_a_stopped_claimer_is_unblocked_and_quarantined();
    test_a_claim_in_the_first_cycle_has_its_time();
    test_a_dead_claimer_is_unblocked_at_once();
    test_a_dead_exclusive_owner_is_unblocked_at_once();
    test_a_window_that_is_used_up_holds_nothing();
    test_a_limit_at_a_terms_start_wakes_nobody();
    test_untethered_spy_is_left_behind();
    test_account_sums_hold();
    test_the_account_keeps_the_heavy_hitters();
    test_receiver_window_is_charged_to_the_receiver();
    test_index_ring_holds_positions_and_ordinals();
    return 0;
}
