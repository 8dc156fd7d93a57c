/* SPDX-License-Identifier: Apache-2.0
 *
 * test_credit_statements.c: credits in status messages that are negative, absurd or stale, or that
 * a receiver states which cannot grant. The sender counts them, and keeps the limit. */
#include "ps_credit.h"
#include "ps_publication.h"
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

int main(void)
{
    test_impossible_and_stale_statements_are_counted_and_ignored();
    test_a_limit_of_just_released_and_2_n_counts();
    test_a_new_epoch_below_what_was_spent_admits_nothing();
    test_a_negative_limit_or_no_credits_end_the_grant();
    test_a_receiver_without_the_capability_grants_nothing();
    return 0;
}
