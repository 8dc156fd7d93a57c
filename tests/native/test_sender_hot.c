/* SPDX-License-Identifier: Apache-2.0
 * Busy streams in virtual time: who is woken when a frame appears behind a tail that was seen
 * before, with nobody left to tell of it (docs/decisions/0020).
 */
#include "ps_barrier.h"
#include "ps_publication.h"
#include "ps_sender.h"
#include "sender_rig.h"

enum { PAYLOAD = 100, MESSAGES = 4, LOOKS = 4 };
#define US INT64_C(1000)

typedef struct hot {
    rig_t *rig;
    int32_t client;     /* the reader's slot */
    int32_t position;   /* its counter */
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
    return ps_driver_sender(hot->rig->driver);
}

static void offer_many(const hot_t *hot)
{
    for (int i = 0; i < MESSAGES; i++) {
        rig_offer(hot->rig, NULL, PAYLOAD, PS_FLAG_UNFRAGMENTED);
        atomic_fetch_add(&hot->rig->slot->published_ordinal, 1);
    }
}

/* An IPC stream with one reader, made hot. */
static hot_t open_hot(void)
{
    hot_t hot = { .rig = rig_open(&(rig_options_t){ .kind = RIG_IPC }) };
    hot.client = ps_slot_allocate(hot.rig->shared, PS_SLOT_CLIENT, 501);
    CHECK(hot.client >= 0);
    hot.position = rig_make_counter(hot.rig, 0);
    const ps_subscriber_params_t reader = { .position_counter_id = hot.position, .slot = 0,
                                            .client_slot = hot.client, .tether = 1 };
    CHECK_EQ(ps_publication_add_subscriber(hot.rig->driver, hot.rig->pub, &reader), PS_OK);
    CHECK(!sender(&hot)->barriers); /* one thread: only as this test asks for it */
    sender(&hot)->barriers = true;
    rig_step(hot.rig, 0);
    offer_many(&hot); /* the first look only begins the count */
    rig_step(hot.rig, 1 * MS);
    for (int look = 0; look < LOOKS; look++) {
        CHECK_EQ(dirty(&hot), PS_DIRTY_NOT);
        offer_many(&hot);
        rig_step(hot.rig, 10 * US);
    }
    CHECK_EQ(dirty(&hot), PS_DIRTY_HOT);
    CHECK_EQ(sender(&hot)->hot_count, 1);
    rig_step(hot.rig, 10 * US);
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

static void test_a_hot_stream_is_looked_at_untold(void)
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

int main(void)
{
    if (!ps_barrier_available()) {
        printf("this kernel has no membarrier: no stream becomes hot\n");
        return 0;
    }
    test_a_stream_that_cools_wakes_its_readers_once_more();
    test_a_sender_that_is_about_to_sleep_wakes_them_too();
    test_a_hot_stream_is_looked_at_untold();
    test_a_mark_that_falls_on_hot_does_no_harm();
    return 0;
}
