/* SPDX-License-Identifier: Apache-2.0
 *
 * test_credit_statements.c: credits in status messages that are negative, absurd or stale, or that
 * a receiver states which cannot grant. The sender counts them, and keeps the limit. */
#include "ps_credit.h"
#include "ps_policy.h"
#include "ps_publication.h"
#include "ps_spend.h"
#include "sender_rig.h"

enum { GRANTED = 5, RECEIVER = 5 };

typedef struct statement {
    const char *name;
    int64_t limit, released;
    uint32_t messages, epoch, flags;
} statement_t;

static const statement_t FIRST = { "the first", GRANTED, 0, GRANTED, 7, 0 };

/* Each follows the first one. */
static const statement_t REFUSED[] = {
    { "a limit above released + 2 N", 3 + 2 * GRANTED + 1, 3, GRANTED, 7, 0 },
    { "an unknown number of released messages", GRANTED, -1, GRANTED, 7, 0 },
    { "more credits than any receiver may grant", 9, 0, UINT32_MAX, 7, 0 },
    { "a limit that overflows", INT64_MAX, INT64_MAX - 1, GRANTED, 7, 0 },
    { "a released number that overflows", 9, INT64_MAX, GRANTED, 7, 0 },
    { "a lower limit in the same epoch", GRANTED - 1, 0, GRANTED, 7, 0 },
    { "an earlier epoch", 2 * GRANTED, GRANTED, GRANTED, 6, 0 },
    { "an earlier epoch that freezes", 0, 0, GRANTED, 6, PS_CREDIT_FLAG_FROZEN },
};

static void state(rig_t *rig, const statement_t *statement, uint32_t capabilities)
{
    const ps_trailer_t trailer = { .capabilities = capabilities,
                                   .ordinal = -1,
                                   .credit_limit = statement->limit,
                                   .released_ordinal = statement->released,
                                   .credit_messages = statement->messages,
                                   .credit_epoch = statement->epoch,
                                   .credit_flags = statement->flags };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM,
                         .window = RIG_TERM / 2,
                         .receiver_id = RECEIVER };
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
    rig_step(rig, MS);
}

static rig_t *granted(const rig_options_t *options)
{
    rig_t *rig = rig_open(options);
    rig_step(rig, 0);
    state(rig, &FIRST, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    return rig;
}

static int64_t limit_of(const rig_t *rig)
{
    return atomic_load(&rig->slot->credit_limit);
}

static void test_impossible_and_stale_statements_are_counted_and_ignored(void)
{
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
        CHECK_EQ(limit_of(rig), GRANTED);
        state(rig, &REFUSED[i], PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
        if (limit_of(rig) != GRANTED || atomic_load(&rig->slot->credit_refused) != 1 ||
            rig->pub->credits.revoked) {
            fprintf(stderr, "%s: limit %lld, %lld refused\n", REFUSED[i].name,
                    (long long)limit_of(rig), (long long)atomic_load(&rig->slot->credit_refused));
            exit(1);
        }
        rig_close(rig);
    }
}

static void test_a_limit_of_just_released_and_2_n_counts(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
    const statement_t most = { "the most", 3 + 2 * GRANTED, 3, GRANTED, 7, 0 };
    state(rig, &most, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(limit_of(rig), most.limit);
    CHECK_EQ(atomic_load(&rig->slot->credit_refused), 0);
    rig_close(rig);
}

/* A limit below what publishers have taken: nothing is taken back, and nothing more is granted. */
static void test_a_new_epoch_below_what_was_spent_admits_nothing(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_step(rig, MS);
    for (int i = 0; i < 3; i++) {
        CHECK(ps_pub_offer(pub, "message", 7, 0) > 0);
    }
    const statement_t lower = { "a new epoch", 1, 0, 1, 8, 0 };
    state(rig, &lower, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(limit_of(rig), 1);
    CHECK_EQ(ps_pub_offer(pub, "message", 7, 0), PS_NO_CREDIT);
    CHECK_EQ(ps_pub_credits(pub), 0);
    rig_step(rig, MS);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig)); /* the three were sent */
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* Writes messages without a credit, as a client that does not count. */
static void write_uncounted(rig_t *rig, int32_t messages)
{
    static const uint8_t payload[7] = { 0 };
    for (int32_t i = 0; i < messages; i++) {
        rig_offer(rig, payload, sizeof payload, PS_FLAG_UNFRAGMENTED);
        rig_step(rig, MS);
    }
}

static int64_t sent_messages(const rig_t *rig)
{
    return rig_counter(rig, rig->sender_position) / 64; /* a short message takes 64 bytes */
}

static void test_no_more_leaves_than_is_granted_if_a_client_miscounts(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
    write_uncounted(rig, 2 * GRANTED + 3);
    CHECK_EQ(rig_tail(rig), 64 * (2 * GRANTED + 3));
    CHECK_EQ(sent_messages(rig), GRANTED);
    const statement_t more = { "four more", GRANTED + 4, 4, GRANTED, 7, 0 };
    state(rig, &more, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(sent_messages(rig), GRANTED + 4);
    const statement_t rest = { "the rest", 3 * GRANTED, 2 * GRANTED, GRANTED, 7, 0 };
    state(rig, &rest, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(sent_messages(rig), 2 * GRANTED + 3);
    rig_close(rig);
}

/* A receiver's first statement that arrives may ask for an answer already. */
static void test_an_answer_counts_messages_that_no_credit_was_taken_for(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    state(rig, &FIRST, PS_CAP_PENSTOCK); /* grants nothing: the stream is connected */
    write_uncounted(rig, 3);
    const statement_t asks = { "asks", 3 + GRANTED, 3, GRANTED, 7, PS_CREDIT_FLAG_ANSWER };
    state(rig, &asks, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(limit_of(rig), 3 + GRANTED);
    CHECK_EQ(rig->pub->credits.epoch_ordinal, 3);
    rig_close(rig);
}

/* The word is in memory that clients write: one that gives itself credits back. */
static void test_no_more_leaves_than_is_granted_if_a_client_lowers_the_count(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_step(rig, MS);
    int64_t accepted = 0;
    for (int32_t i = 0; i < 4 * GRANTED; i++) {
        accepted += ps_pub_offer(pub, "message", 7, 0) > 0;
        atomic_store(&rig->slot->spend, 0);
    }
    CHECK(accepted > GRANTED);
    rig_step(rig, MS);
    rig_step(rig, MS);
    CHECK_EQ(sent_messages(rig), GRANTED);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

static void test_a_negative_limit_or_no_credits_end_the_grant(void)
{
    const statement_t ended[] = { { "negative", -1, 0, GRANTED, 7, 0 },
                                  { "no credits", GRANTED, 0, 0, 7, 0 } };
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++) {
        rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST });
        state(rig, &ended[i], PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
        CHECK_EQ(limit_of(rig), PS_CREDIT_OPEN);
        rig_close(rig);
    }
}

static void test_a_receiver_without_the_capability_grants_nothing(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    state(rig, &FIRST, PS_CAP_PENSTOCK | PS_CAP_ORDINALS);
    CHECK_EQ(limit_of(rig), PS_CREDIT_OPEN);
    CHECK(!rig->pub->credits.on);
    rig_close(rig);
}

/* ---- a reader that leaves -------------------------------------------------------------------- */

static int32_t offer_many(ps_pub_t *pub)
{
    int32_t accepted = 0;
    for (int32_t i = 0; i < 10 * GRANTED; i++) {
        accepted += ps_pub_offer(pub, "message", 7, 0) > 0;
    }
    return accepted;
}

/* How the sender loses its only receiver. */
enum { BY_EOS, BY_ERROR, BY_MIN_TIMEOUT, BY_SILENCE, WAYS };

static const rig_options_t MEDIA[WAYS] = {
    [BY_EOS] = { .kind = RIG_UNICAST },
    [BY_ERROR] = { .kind = RIG_UNICAST },
    [BY_MIN_TIMEOUT] = { .kind = RIG_MULTICAST,
                         .flow_control = PS_FC_MIN,
                         .fc_timeout_ns = 100 * MS },
    [BY_SILENCE] = { .kind = RIG_UNICAST },
};

static void leave(rig_t *rig, int32_t way, int64_t receiver_id)
{
    const ps_sm_t leaving = { .session_id = GOLDEN_SESSION,
                              .stream_id = GOLDEN_STREAM,
                              .term_id = GOLDEN_TERM,
                              .receiver_id = receiver_id,
                              .flags = PS_SM_EOS,
                              .trailer = { .credit_limit = -1 } };
    const ps_err_t error = { .session_id = GOLDEN_SESSION,
                             .stream_id = GOLDEN_STREAM,
                             .receiver_id = receiver_id,
                             .text = (const uint8_t *)"" };
    if (way == BY_EOS) {
        ps_publication_on_sm(rig->pub, &leaving, 0, &rig->peer, rig->now_ns);
    } else if (way == BY_ERROR) {
        ps_publication_on_error(rig->pub, &error, &rig->peer, rig->now_ns);
    } else {
        rig_step(rig, 150 * MS);
        rig_step(rig, way == BY_SILENCE ? 6000 * MS : 150 * MS);
    }
}

/* A stream that is not connected accepts nothing; the status messages of a new receiver decide. */
static void check_that_no_limit_binds_a_new_receiver(rig_t *rig, ps_pub_t *pub)
{
    rig_sm(rig, RECEIVER + 1, &rig->peer, 0, RIG_TERM / 2, 0); /* another one grants nothing */
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), PS_CREDIT_OPEN);
    CHECK_EQ(offer_many(pub), 10 * GRANTED);
}

static void test_a_receiver_that_leaves_lifts_no_limit(int32_t way)
{
    rig_t *rig = granted(&MEDIA[way]);
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), GRANTED);
    leave(rig, way, RECEIVER);
    CHECK(offer_many(pub) <= GRANTED);
    rig_step(rig, MS);
    rig_step(rig, MS);
    CHECK_EQ(offer_many(pub), 0);
    check_that_no_limit_binds_a_new_receiver(rig, pub);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* The last of several: until then the others' limit holds. */
static void test_the_last_of_several_receivers_lifts_no_limit(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_MULTICAST });
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    const ps_sm_t more = { .session_id = GOLDEN_SESSION,
                           .stream_id = GOLDEN_STREAM,
                           .term_id = GOLDEN_TERM,
                           .window = RIG_TERM / 2,
                           .receiver_id = RECEIVER + 2,
                           .trailer = { .capabilities = PS_CAP_PENSTOCK | PS_CAP_CREDITS,
                                        .credit_limit = GRANTED + 2,
                                        .credit_messages = GRANTED + 2,
                                        .credit_epoch = 3 } };
    ps_publication_on_sm(rig->pub, &more, 0, &rig->peer, rig->now_ns);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), GRANTED);
    leave(rig, BY_EOS, RECEIVER);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), GRANTED + 2);
    CHECK_EQ(offer_many(pub), GRANTED + 2);
    leave(rig, BY_EOS, RECEIVER + 2);
    CHECK_EQ(offer_many(pub), 0);
    rig_step(rig, MS);
    CHECK_EQ(offer_many(pub), 0);
    check_that_no_limit_binds_a_new_receiver(rig, pub);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* A publisher may send as many messages as it was granted, however many it has dropped. */
static void test_dropped_messages_count_as_spent(void)
{
    const rig_options_t one = { .kind = RIG_UNICAST,
                                .policy = PS_POLICY_DROP_NEWEST,
                                .depth_messages = 1 };
    rig_t *rig = granted(&one);
    ps_client_t *client;
    ps_pub_t *pub;
    int64_t limit;
    int64_t spent;
    int32_t dropped = 0;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_step(rig, MS);
    for (int32_t i = 0; i < 4; i++) {
        dropped += ps_pub_offer(pub, "message", 7, 0) == PS_DROPPED;
        if (i != 1) {
            rig_step(rig, MS);
        }
    }
    CHECK(dropped > 0);
    CHECK_EQ(rig->pub->sent_ordinal, 4);
    CHECK_EQ(rig->pub->dropped_sent, dropped);
    CHECK_EQ(ps_pub_credit_counts(pub, &limit, &spent), PS_OK);
    CHECK(limit == GRANTED && spent == 4);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

static void hear(rig_t *rig, int32_t consumed, int32_t window, int64_t limit)
{
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = GOLDEN_TERM,
                         .term_offset = consumed,
                         .window = window,
                         .receiver_id = RECEIVER,
                         .trailer = { .capabilities = PS_CAP_PENSTOCK | PS_CAP_CREDITS,
                                      .credit_limit = limit,
                                      .credit_messages = limit > 0 ? (uint32_t)limit : 0,
                                      .credit_epoch = 7 } };
    ps_publication_on_sm(rig->pub, &sm, consumed, &rig->peer, rig->now_ns);
    rig_step(rig, MS);
}

/* When a receiver begins to grant, a dropped message may be stated in the log and not sent. It has
 * spent no credit. The window has room for one message of the log at a time. */
static void test_unsent_drops_have_spent_no_credit_when_credits_begin(void)
{
    enum { SPACE = 64, MESSAGES = 4, DROPPED = 3, PADDING = PS_FRAME_ALIGNMENT };
    const rig_options_t few = { .kind = RIG_UNICAST,
                                .policy = PS_POLICY_DROP_NEWEST,
                                .window_bytes = MESSAGES * SPACE,
                                .low_watermark_bytes = MESSAGES * SPACE };
    rig_t *rig = rig_open(&few);
    ps_client_t *client;
    ps_pub_t *pub;
    int64_t limit;
    int64_t spent;
    rig_step(rig, 0);
    hear(rig, 0, SPACE, 0);
    rig_open_publisher(rig, 100, 0, &client, &pub);
    for (int32_t i = 0; i < MESSAGES + DROPPED; i++) {
        CHECK_EQ(ps_pub_offer(pub, "message", 7, 0),
                 i < MESSAGES ? (int64_t)(i + 1) * SPACE : PS_DROPPED);
    }
    hear(rig, SPACE, SPACE, 0);
    CHECK_EQ(rig_tail(rig), MESSAGES * SPACE + PADDING);
    CHECK_EQ(rig->pub->sent_ordinal, 2);
    hear(rig, SPACE, SPACE, 2 * MESSAGES);
    CHECK_EQ(rig->pub->sent_ordinal, 2);
    CHECK_EQ(rig->pub->credits.epoch_ordinal, MESSAGES);
    CHECK_EQ(ps_pub_credit_counts(pub, &limit, &spent), PS_OK);
    CHECK(limit == 2 * MESSAGES && spent == MESSAGES);
    hear(rig, SPACE, RIG_TERM / 2, 2 * MESSAGES);
    CHECK_EQ(rig->pub->sent_ordinal, MESSAGES + DROPPED);
    CHECK_EQ(ps_pub_credit_counts(pub, &limit, &spent), PS_OK);
    CHECK(limit == 2 * MESSAGES && spent == MESSAGES + DROPPED);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* What waits in the log for the credits of a silent receiver leaves as soon as that is given up. */
static void test_what_others_grant_leaves_when_a_silent_receiver_is_gone(int32_t flow_control,
                                                                         int64_t timeout_ns)
{
    rig_t *rig = granted(&(rig_options_t){
        .kind = RIG_MULTICAST, .flow_control = flow_control, .fc_timeout_ns = timeout_ns });
    const ps_sm_t more = { .session_id = GOLDEN_SESSION,
                           .stream_id = GOLDEN_STREAM,
                           .term_id = GOLDEN_TERM,
                           .window = RIG_TERM / 2,
                           .receiver_id = RECEIVER + 2,
                           .trailer = { .capabilities = PS_CAP_PENSTOCK | PS_CAP_CREDITS,
                                        .credit_limit = GRANTED + 2,
                                        .credit_messages = GRANTED + 2,
                                        .credit_epoch = 3 } };
    ps_publication_on_sm(rig->pub, &more, 0, &rig->peer, rig->now_ns);
    for (int32_t i = 0; i < GRANTED + 2; i++) { /* as before any credits were granted */
        CHECK(rig_offer(rig, "message", 7, PS_FLAG_UNFRAGMENTED) > 0);
    }
    rig_step(rig, timeout_ns - 100 * MS);
    CHECK_EQ(rig->pub->sent_ordinal, GRANTED);
    ps_publication_on_sm(rig->pub, &more, 0, &rig->peer, rig->now_ns);
    rig_step(rig, MS);
    CHECK_EQ(rig->pub->sent_ordinal, GRANTED);
    rig_step(rig, 105 * MS);
    CHECK_EQ(limit_of(rig), GRANTED + 2);
    CHECK_EQ(rig->pub->sent_ordinal, GRANTED + 2);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    rig_close(rig);
}

/* A receiver that grants nothing keeps the stream connected: nothing limits its publishers. */
static void test_a_receiver_without_credits_lifts_the_limit_of_one_that_left(void)
{
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_MULTICAST });
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_sm(rig, RECEIVER + 1, &rig->peer, 0, RIG_TERM / 2, 0);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), GRANTED);
    leave(rig, BY_EOS, RECEIVER);
    rig_step(rig, MS);
    CHECK_EQ(limit_of(rig), PS_CREDIT_OPEN);
    CHECK_EQ(offer_many(pub), 10 * GRANTED);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* The first refusal comes before the sender has stated a cause: the publisher itself finds out
 * which limit it is. */
static void test_a_refusal_names_the_limit_that_is_used_up(rig_options_t options, int64_t admitted,
                                                           int64_t code)
{
    options.kind = RIG_UNICAST;
    options.policy = options.depth_messages > 0 ? PS_POLICY_BLOCK : PS_POLICY_NONE;
    rig_t *rig = granted(&options);
    ps_client_t *client;
    ps_pub_t *pub;
    rig_open_publisher(rig, 100, 0, &client, &pub);
    rig_step(rig, MS);
    (void)ps_pub_offer(pub, "message", 7, 0); /* finds the limit in its other place */
    rig_step(rig, MS);
    int64_t accepted = rig->pub->sent_ordinal;
    int64_t last = 0;
    for (int32_t i = 0; i < 3 * GRANTED && last >= 0; i++) {
        last = ps_pub_offer(pub, "message", 7, 0);
        accepted += last > 0;
    }
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_NONE);
    CHECK_EQ(last, code);
    CHECK_EQ(accepted, admitted);
    ps_pub_close(pub);
    ps_client_close(client);
    rig_close(rig);
}

/* The publisher of a lease stopped between its mark and its frame: the rest of the lease counts as
 * spent until the mark is gone. */
static void test_a_lease_that_is_in_use_returns_later(void)
{
    enum { LEASED = 4 };
    rig_t *rig = granted(&(rig_options_t){ .kind = RIG_UNICAST, .exclusive = 1 });
    (void)rig_add_client(rig, 100);
    rig_step(rig, MS);
    const uint64_t word = atomic_load(&rig->slot->spend);
    const uint64_t lease = ps_lease_of(ps_spend_epoch(word), LEASED - 1);
    const int64_t base = rig->pub->credits.base;
    atomic_store(&rig->slot->spend, ps_spend_moved(word, LEASED));
    atomic_store(&rig->slot->lease, lease + PS_LEASE_SPENDING);
    const statement_t lower = { "a new epoch", GRANTED - 1, 0, GRANTED - 1, 8, 0 };
    state(rig, &lower, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(rig->pub->credits.epoch_ordinal, LEASED);
    CHECK_EQ(rig->pub->credits.base, base);
    atomic_store(&rig->slot->lease, lease + 1); /* its epoch has ended: it used nothing */
    state(rig, &lower, PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS);
    CHECK_EQ(rig->pub->credits.base, base + LEASED);
    rig_close(rig);
}

/* The sender has ended epoch 7. Its publisher may have marked a spend in vain, or taken a lease of
 * epoch 8 meanwhile. */
static void test_only_credits_of_the_ended_epoch_return(void)
{
    enum { ENDED = 7 };
    const uint64_t word = (uint64_t)ENDED << PS_SPENT_BITS | 100;
    CHECK_EQ(ps_spend_epoch(word), ENDED);
    for (int64_t credits = 0; credits <= PS_LEASE_MOST; credits++) {
        const uint64_t old = ps_lease_of(ENDED, credits);
        const uint64_t newer = ps_lease_of(ENDED + 1, credits);
        CHECK_EQ(ps_lease_rest(old, word), credits);
        CHECK_EQ(ps_lease_rest(old + PS_LEASE_SPENDING, word), credits + 1);
        CHECK_EQ(ps_lease_rest(newer, word), 0);
        CHECK_EQ(ps_lease_rest(newer + PS_LEASE_SPENDING, word), 0);
    }
    CHECK_EQ(ps_lease_rest(ps_lease_of(ENDED, PS_LEASE_MOST + 1), word), 0);
}

int main(void)
{
    test_only_credits_of_the_ended_epoch_return();
    test_a_refusal_names_the_limit_that_is_used_up((rig_options_t){ .depth_messages = 20 }, GRANTED,
                                                   PS_NO_CREDIT);
    test_a_refusal_names_the_limit_that_is_used_up((rig_options_t){ .depth_messages = 2 }, 3,
                                                   PS_BACK_PRESSURED);
    test_a_refusal_names_the_limit_that_is_used_up((rig_options_t){ .rate_messages_per_s = 30 }, 3,
                                                   PS_RATE_LIMITED);
    test_a_lease_that_is_in_use_returns_later();
    for (int32_t way = 0; way < WAYS; way++) {
        test_a_receiver_that_leaves_lifts_no_limit(way);
    }
    test_the_last_of_several_receivers_lifts_no_limit();
    test_a_receiver_without_credits_lifts_the_limit_of_one_that_left();
    test_dropped_messages_count_as_spent();
    test_unsent_drops_have_spent_no_credit_when_credits_begin();
    test_what_others_grant_leaves_when_a_silent_receiver_is_gone(PS_FC_MAX, 5 * S);
    test_what_others_grant_leaves_when_a_silent_receiver_is_gone(PS_FC_MIN, S);
    test_impossible_and_stale_statements_are_counted_and_ignored();
    test_a_limit_of_just_released_and_2_n_counts();
    test_a_new_epoch_below_what_was_spent_admits_nothing();
    test_no_more_leaves_than_is_granted_if_a_client_miscounts();
    test_an_answer_counts_messages_that_no_credit_was_taken_for();
    test_no_more_leaves_than_is_granted_if_a_client_lowers_the_count();
    test_a_negative_limit_or_no_credits_end_the_grant();
    test_a_receiver_without_the_capability_grants_nothing();
    return 0;
}
