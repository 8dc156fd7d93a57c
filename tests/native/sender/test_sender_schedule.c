/* SPDX-License-Identifier: Apache-2.0
 * The sets of the sender: when the sender computes a priority, which streams may wait, the watch
 * list, the due times, and the search of a stream. The test calls the functions of the sets itself,
 * between two cycles.
 */
#include "many.h"

/* One stream more, which the sender knows already. It waits for no turn. */
static ps_publication_t *known_stream(many_t *many, int32_t priority)
{
    ps_publication_t *pub = add_stream(many, priority);
    cycle(many);
    cycle(many);
    ps_sender_leave_ready(sender(many), pub);
    return pub;
}

/* Adds the stream to the ready set at a time. */
static void ready_at(const many_t *many, ps_publication_t *pub, int64_t now_ns)
{
    ps_sender_leave_ready(sender(many), pub);
    sender(many)->now_ns = now_ns;
    ps_sender_ready(sender(many), pub);
    CHECK(pub->turn.queued);
}

static void test_the_priority_is_the_stated_one_or_the_recency(void)
{
    static const struct {
        int32_t stated;
        int64_t now_ns, consumed_ns;
        int32_t base, band;
    } rows[] = {
        { 900, 1000 * S, 0, 900, PS_BAND_B4 },
        { -100, 1000 * S, 1000 * S, -100, PS_BAND_B0 },
        { PS_PRIORITY_NONE, 1000 * S, 1000 * S, 0, PS_BAND_B1 },
        { PS_PRIORITY_BACKGROUND, 1000 * S, 1000 * S, 0, PS_BAND_BACKGROUND },
        { PS_PRIORITY_AUTO, 1000 * S, 1000 * S, 499, PS_BAND_B2 },
        { PS_PRIORITY_AUTO, 1000 * S, 985 * S + 50 * MS, 353, PS_BAND_B2 },
        { PS_PRIORITY_AUTO, 1000 * S, 970 * S, 249, PS_BAND_B1 },
        { PS_PRIORITY_AUTO, 1000 * S, 0, 0, PS_BAND_B1 },
        { PS_PRIORITY_AUTO, 20 * S, 0, 0, PS_BAND_B1 }, /* the host has just started */
    };
    many_t *many = open_many();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ps_publication_t *pub = known_stream(many, rows[i].stated);
        pub->priority_until_ns = 0;
        atomic_store(&pub->slot->base_priority, 12345);
        atomic_store(&pub->slot->last_consumed_ns, rows[i].consumed_ns);
        ready_at(many, pub, rows[i].now_ns);
        CHECK_EQ(pub->turn.base, rows[i].base);
        CHECK_EQ(pub->turn.list, rows[i].band);
        CHECK_EQ(atomic_load(&pub->slot->base_priority), rows[i].base);
    }
    close_many(many);
}

static void test_a_priority_is_valid_for_50_ms(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = known_stream(many, PS_PRIORITY_AUTO);
    pub->priority_until_ns = 0;
    atomic_store(&pub->slot->last_consumed_ns, 1000 * S);
    ready_at(many, pub, 1000 * S);
    CHECK_EQ(pub->turn.base, 499);
    atomic_store(&pub->slot->last_consumed_ns, 0);
    ready_at(many, pub, 1000 * S + 50 * MS - 1);
    CHECK_EQ(pub->turn.base, 499);
    ready_at(many, pub, 1000 * S + 50 * MS);
    CHECK_EQ(pub->turn.base, 0);
    close_many(many);
}

/* A resting stream only repeats its heartbeat, so whatever gives it work ends its rest. */
static void test_work_ends_the_rest_of_a_stream(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = known_stream(many, 0);
    for (int32_t queued = 0; queued < 2; queued++) {
        pub->resting = true;
        ps_sender_ready(sender(many), pub);
        CHECK(!pub->resting && pub->turn.queued);
    }
    pub->resting = true;
    ps_sender_ready_repair(sender(many), pub);
    CHECK(!pub->resting);
    pub->resting = true;
    ps_publication_due(pub, many->rig->now_ns + S);
    CHECK(!pub->resting);
    close_many(many);
}

static void test_only_a_stream_with_retransmits_waits_in_their_list(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = known_stream(many, 0);
    const int32_t others = sender(many)->bands.waiting;
    ps_sender_ready_repair(sender(many), pub);
    CHECK(!pub->resend.queued);
    pub->retransmit.pending = 1;
    ps_sender_ready_repair(sender(many), pub);
    ps_sender_ready_repair(sender(many), pub); /* once at most */
    CHECK(pub->resend.queued && pub->resend.list == PS_BAND_REPAIR);
    CHECK_EQ(sender(many)->bands.waiting, others + 1);
    ps_sender_ready(sender(many), pub);
    ps_sender_ready(sender(many), pub);
    CHECK_EQ(sender(many)->bands.waiting, others + 2);
    ps_sender_leave_ready(sender(many), pub);
    CHECK(!pub->resend.queued && !pub->turn.queued);
    CHECK_EQ(sender(many)->bands.waiting, others);
    pub->retransmit.pending = 0;
    close_many(many);
}

static void test_a_removed_stream_waits_nowhere(void)
{
    many_t *many = open_many();
    ps_publication_t *pub = known_stream(many, 0);
    pub->removed = true;
    pub->retransmit.pending = 1;
    pub->subscriber_count = 1;
    ps_sender_ready(sender(many), pub);
    ps_sender_ready_repair(sender(many), pub);
    ps_sender_watch(sender(many), pub);
    CHECK(!pub->turn.queued && !pub->resend.queued && !pub->in_watch);
    pub->subscriber_count = 0;
    pub->retransmit.pending = 0;
    pub->removed = false;
    close_many(many);
}

/* Compares the watch list, and its links in both directions, with indices of streams. */
static void check_watched(const many_t *many, const char *expected)
{
    const ps_publication_t *before = NULL;
    const ps_publication_t *pub = sender(many)->watch_head;
    for (; *expected != '\0'; expected++) {
        CHECK(pub == many->pubs[*expected - '0'] && pub->in_watch);
        CHECK(pub->prev_watch == before);
        before = pub;
        pub = pub->next_watch;
    }
    CHECK(pub == NULL);
}

static void test_the_watch_list_has_each_stream_with_local_readers_once(void)
{
    many_t *many = open_many();
    for (int32_t i = 0; i < 3; i++) {
        ps_sender_watch(sender(many), known_stream(many, 0)); /* nobody reads it here */
        check_watched(many, "");
        many->pubs[i]->subscriber_count = 1;
    }
    static const char *const watched[] = { "0", "10", "210" };
    for (int32_t i = 0; i < 3; i++) {
        ps_sender_watch(sender(many), many->pubs[i]);
        ps_sender_watch(sender(many), many->pubs[i]);
        check_watched(many, watched[i]);
    }
    static const struct {
        int32_t leaves;
        const char *rest, *again;
    } rows[] = { { 1, "20", "120" }, { 1, "20", "120" }, { 0, "12", "012" }, { 2, "01", "201" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ps_publication_t *pub = many->pubs[rows[i].leaves];
        ps_sender_leave_watch(sender(many), pub);
        ps_sender_leave_watch(sender(many), pub);
        CHECK(!pub->in_watch);
        check_watched(many, rows[i].rest);
        ps_sender_watch(sender(many), pub);
        check_watched(many, rows[i].again);
    }
    for (int32_t i = 0; i < 3; i++) {
        ps_sender_leave_watch(sender(many), many->pubs[i]);
        many->pubs[i]->subscriber_count = 0;
    }
    check_watched(many, "");
    close_many(many);
}

static void test_the_earliest_due_time_counts(void)
{
    many_t *many = open_many();
    ps_sender_t *of = sender(many);
    ps_publication_t *pub = known_stream(many, 0);
    int64_t *block_ns = &of->block_due_ns[pub->index / PS_SCAN_BLOCK];
    const int64_t late_ns = many->rig->now_ns + 10 * S;
    of->min_due_ns = of->scan_min_ns = *pub->due_ns = *block_ns = late_ns;
    ps_sender_due(of, late_ns + 1);
    ps_publication_due(pub, late_ns + 1);
    CHECK(of->min_due_ns == late_ns && of->scan_min_ns == late_ns);
    CHECK(*pub->due_ns == late_ns && *block_ns == late_ns);
    ps_sender_due(of, late_ns - 1);
    CHECK(of->min_due_ns == late_ns - 1 && of->scan_min_ns == late_ns - 1);
    CHECK(*pub->due_ns == late_ns && *block_ns == late_ns);
    ps_publication_due(pub, late_ns - 2);
    CHECK(of->min_due_ns == late_ns - 2 && of->scan_min_ns == late_ns - 2);
    CHECK(*pub->due_ns == late_ns - 2 && *block_ns == late_ns - 2);
    of->scan_min_ns = INT64_MAX; /* no pass runs */
    close_many(many);
}

/* The socket accepts data again, or a receiver is new: each stream of the endpoint sends a SETUP
 * and its data in the next cycle, without regard to the tick of timers. */
static void test_all_streams_of_an_endpoint_become_ready_at_once(void)
{
    many_t *many = open_many();
    ps_send_endpoint_t another = *many->rig->endpoint;
    for (int32_t i = 0; i < 3; i++) {
        (void)known_stream(many, 0);
    }
    for (int32_t i = 0; i < 3; i++) {
        ps_publication_t *pub = many->pubs[i];
        ps_sender_leave_ready(sender(many), pub);
        pub->setup_sent_ns = many->rig->now_ns;
        *pub->due_ns = many->rig->now_ns + S;
    }
    many->pubs[1]->endpoint = &another;
    sender(many)->urgent = false;
    ps_sender_ready_endpoint(sender(many), many->rig->endpoint);
    CHECK(sender(many)->urgent);
    for (int32_t i = 0; i < 3; i++) {
        const ps_publication_t *pub = many->pubs[i];
        const bool here = i != 1;
        CHECK_EQ(pub->turn.queued, here);
        CHECK_EQ(*pub->due_ns, here ? sender(many)->now_ns : many->rig->now_ns + S);
        CHECK_EQ(pub->setup_sent_ns < many->rig->now_ns - 100 * S, here);
    }
    many->pubs[1]->endpoint = many->rig->endpoint;
    close_many(many);
}

/* The streams share 16 buckets. */
static void test_a_stream_is_found_by_endpoint_session_and_stream(void)
{
    many_t *many = open_many();
    ps_send_endpoint_t another = *many->rig->endpoint; /* of the same number */
    sender(many)->bucket_mask = 15;
    for (int32_t i = 0; i < STREAMS; i++) {
        (void)add_stream(many, 0);
        cycle(many);
    }
    int32_t chained = 0;
    for (int32_t i = 0; i < STREAMS; i++) {
        const ps_publication_t *pub = many->pubs[i];
        const int32_t session = pub->log.session_id;
        chained += pub->next_bucket != NULL;
        CHECK(ps_sender_find(sender(many), many->rig->endpoint, session, 1) == pub);
        CHECK(ps_sender_find(sender(many), &another, session, 1) == NULL);
        for (int32_t other = 2; other < 12; other++) {
            CHECK(ps_sender_find(sender(many), many->rig->endpoint, session, other) == NULL);
            CHECK(ps_sender_find(sender(many), many->rig->endpoint, session + other * 1000, 1) ==
                  NULL);
        }
    }
    CHECK_EQ(chained, STREAMS - 16);
    close_many(many);
}

int main(void)
{
    test_the_priority_is_the_stated_one_or_the_recency();
    test_a_priority_is_valid_for_50_ms();
    test_work_ends_the_rest_of_a_stream();
    test_only_a_stream_with_retransmits_waits_in_their_list();
    test_a_removed_stream_waits_nowhere();
    test_the_watch_list_has_each_stream_with_local_readers_once();
    test_the_earliest_due_time_counts();
    test_all_streams_of_an_endpoint_become_ready_at_once();
    test_a_stream_is_found_by_endpoint_session_and_stream();
    return 0;
}
